//! What the function saw: counters, registers it does not know, rules that were broken, traces.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::notific::QueueState;

/// A register, and how often it was touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Touched {
    /// 0 for the register window, 4 for the memory window, whatever their PCI index.
    pub bar: u8,
    /// Byte offset in that window.
    pub offset: u64,
    /// Accesses.
    pub count: u64,
}

/// Something that a correct driver never causes, or that a test expects by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Doorbell with value 0.
    DoorbellZero,
    /// Doorbell on a queue without a ring.
    DoorbellWithoutRing,
    /// More descriptors rung than the ring holds.
    RingOverrun,
    /// Ring base or length changed while descriptors were pending.
    RingChangedUnderWay,
    /// A cause that aborts a direction; `detail` is group × 32 + bit.
    Abort,
    /// A ring-id mismatch that is masked; `detail` is the descriptor's word 0.
    RingIdIgnored,
    /// A descriptor with an operation the model does not have; `detail` is the word.
    UnsupportedDescriptor,
    /// DMA with bus mastering off; `detail` is the address.
    DmaWithoutBusMaster,
    /// Access to the unmapped rest of a core range (01 §3.10); `detail` is the address.
    CoreRangeHole,
    /// Mailbox request with a bad CRC or a size that cannot be; `detail` is its first word.
    MailboxMalformed,
    /// Mailbox trigger swallowed by a pending reset.
    MailboxSwallowed,
    /// Value area of a metric post differs from its payload.
    PostMismatch,
    /// Consumer pointer of a notification queue that is no record of its ring; `detail` is it.
    NotificationHead,
    /// Record of a notification queue whose ring lies neither in host memory nor in HBM; `detail`
    /// is the address.
    NotificationAddress,
}

/// One event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// UDMA unit, where one is concerned.
    pub engine: Option<u16>,
    /// Queue of that unit.
    pub queue: Option<u8>,
    /// Number that belongs to the kind.
    pub detail: u64,
    /// Model time.
    pub at_ns: u64,
}

/// Side of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// M2S: reads sources.
    Tx,
    /// S2M: writes destinations.
    Rx,
}

/// One doorbell write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DoorbellRecord {
    /// UDMA unit.
    pub engine: u16,
    /// Queue.
    pub queue: u8,
    /// Side.
    pub side: Side,
    /// Value written.
    pub value: u32,
}

/// One executed descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct DescriptorRecord {
    /// UDMA unit.
    pub engine: u16,
    /// Queue.
    pub queue: u8,
    /// Side.
    pub side: Side,
    /// Slot of the ring.
    pub slot: u32,
    /// The four words.
    pub words: [u32; 4],
}

/// One register write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct RegisterRecord {
    /// Offset in the register window.
    pub offset: u64,
    /// Value written.
    pub value: u32,
    /// Model time.
    pub at_ns: u64,
}

/// One metric post that was accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Post {
    /// Model time.
    pub at_ns: u64,
    /// The blob.
    pub bytes: Vec<u8>,
}

/// Everything the function saw since it was made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Index of the function.
    pub device: u32,
    /// 32-bit register reads.
    pub register_reads: u64,
    /// 32-bit register writes.
    pub register_writes: u64,
    /// Accesses to on-chip and HBM memory through the windows that reached the model.
    pub memory_accesses: u64,
    /// Doorbell writes, all queues.
    pub doorbells: u64,
    /// Descriptors executed, both sides.
    pub descriptors: u64,
    /// Markers written.
    pub markers: u64,
    /// Payload bytes moved.
    pub bytes: u64,
    /// Resets of the whole device that ended.
    pub device_resets: u64,
    /// Resets of cores that ended.
    pub core_resets: u64,
    /// Mailbox requests answered.
    pub mailbox_answers: u64,
    /// Registers touched that no block has.
    pub unmodelled: Vec<Touched>,
    /// Accesses of a width or alignment that registers do not take.
    pub irregular: Vec<Touched>,
    /// Rules broken, oldest first, at most [`Report::EVENT_LIMIT`].
    pub violations: Vec<Event>,
    /// Rules broken, all of them.
    pub violation_count: u64,
    /// Events that are no violations, oldest first, at most [`Report::EVENT_LIMIT`].
    pub expected_events: Vec<Event>,
    /// Notification queues that were ever programmed or posted to.
    pub notifications: Vec<QueueState>,
    /// Metric posts, oldest first, at most [`Report::EVENT_LIMIT`].
    pub posts: Vec<Post>,
    /// Doorbell trace, where switched on.
    pub doorbell_trace: Vec<DoorbellRecord>,
    /// Descriptor trace, where switched on.
    pub descriptor_trace: Vec<DescriptorRecord>,
    /// Register-write trace, where switched on.
    pub register_trace: Vec<RegisterRecord>,
    /// Records that the traces had no room for.
    pub trace_lost: u64,
}

impl Report {
    /// Most events of one kind of list.
    pub const EVENT_LIMIT: usize = 1024;
    /// Most records of one trace.
    pub const TRACE_LIMIT: usize = 1 << 16;
}

/// Which traces are on.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Traces {
    pub doorbells: bool,
    pub descriptors: bool,
    pub registers: bool,
}

impl Traces {
    /// Switches `doorbells`, `descriptors`, `registers` or `all`.
    pub fn switch(&mut self, which: &str, on: bool) -> Result<(), String> {
        match which {
            "doorbells" => self.doorbells = on,
            "descriptors" => self.descriptors = on,
            "registers" => self.registers = on,
            "all" => *self = Traces { doorbells: on, descriptors: on, registers: on },
            _ => return Err(format!("no such trace: {which:?}")),
        }
        Ok(())
    }
}

/// Where the function writes down what it sees; cheap while nothing unusual happens.
#[derive(Default, Debug)]
pub(crate) struct Recorder {
    pub totals: Report,
    pub traces: Traces,
    unmodelled: BTreeMap<(u8, u64), u64>,
    irregular: BTreeMap<(u8, u64), u64>,
}

impl Recorder {
    pub fn new(device: u32) -> Self {
        Recorder { totals: Report { device, ..Report::default() }, ..Recorder::default() }
    }

    pub fn report(&self) -> Report {
        let list = |map: &BTreeMap<(u8, u64), u64>| {
            map.iter().map(|(&(bar, offset), &count)| Touched { bar, offset, count }).collect()
        };
        Report {
            unmodelled: list(&self.unmodelled),
            irregular: list(&self.irregular),
            ..self.totals.clone()
        }
    }

    #[cold]
    pub fn unmodelled(&mut self, bar: u8, offset: u64) {
        count(&mut self.unmodelled, bar, offset);
    }

    #[cold]
    pub fn irregular(&mut self, bar: u8, offset: u64) {
        count(&mut self.irregular, bar, offset);
    }

    #[cold]
    pub fn violation(&mut self, event: Event) {
        self.totals.violation_count += 1;
        keep(&mut self.totals.violations, event, Report::EVENT_LIMIT);
    }

    #[cold]
    pub fn expected(&mut self, event: Event) {
        keep(&mut self.totals.expected_events, event, Report::EVENT_LIMIT);
    }

    pub fn post(&mut self, post: Post) {
        keep(&mut self.totals.posts, post, Report::EVENT_LIMIT);
    }

    #[inline]
    pub fn doorbell(&mut self, record: DoorbellRecord) {
        self.totals.doorbells += 1;
        if self.traces.doorbells
            && !keep(&mut self.totals.doorbell_trace, record, Report::TRACE_LIMIT)
        {
            self.totals.trace_lost += 1;
        }
    }

    #[inline]
    pub fn descriptor(&mut self, record: DescriptorRecord) {
        self.totals.descriptors += 1;
        if self.traces.descriptors
            && !keep(&mut self.totals.descriptor_trace, record, Report::TRACE_LIMIT)
        {
            self.totals.trace_lost += 1;
        }
    }

    #[inline]
    pub fn register_write(&mut self, offset: u64, value: u32, now_ns: impl FnOnce() -> u64) {
        self.totals.register_writes += 1;
        if self.traces.registers {
            let record = RegisterRecord { offset, value, at_ns: now_ns() };
            if !keep(&mut self.totals.register_trace, record, Report::TRACE_LIMIT) {
                self.totals.trace_lost += 1;
            }
        }
    }

    pub fn clear_traces(&mut self) {
        self.totals.doorbell_trace.clear();
        self.totals.descriptor_trace.clear();
        self.totals.register_trace.clear();
        self.totals.trace_lost = 0;
    }
}

fn count(map: &mut BTreeMap<(u8, u64), u64>, bar: u8, offset: u64) {
    if map.len() < Report::TRACE_LIMIT || map.contains_key(&(bar, offset)) {
        *map.entry((bar, offset)).or_default() += 1;
    }
}

fn keep<T>(list: &mut Vec<T>, item: T, limit: usize) -> bool {
    let room = list.len() < limit;
    if room {
        list.push(item);
    }
    room
}
