//! NOTIFIC blocks: registers, device time, and the queues that records are posted to
//! (specification 06 §4, §7.2, §14).
//!
//! | module | what it holds |
//! |---|---|
//! | `producer` | one queue: where its next record goes, what is held back, what was counted |
//! | `burst` | records to be posted: what each of them says |
//! | `control` | the lines `post …` and `queue …` |

mod burst;
mod control;
mod producer;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::config::Generation;
use crate::faults::Fault;
use crate::function::Function;
use crate::map::{Block, Owner, Target, physical_top_sp};
use crate::report::EventKind;
use crate::time::Later;

use burst::{Burst, Pace};
use producer::{Next, Producer};

const TIMESTAMP_LOW: u64 = 0x00;
const TIMESTAMP_HIGH: u64 = 0x04;
/// Bit *q* set: queue *q* holds its producer up when it is full.
const BACK_PRESSURE: u64 = 0x08;
const ENABLE: u64 = 0x14;
/// Bit *q* set: queue *q* overwrites when it is full.
const IGNORE_FULL: u64 = 0x18;
const QUEUES: u64 = 0x100;
const QUEUE_BYTES: u64 = 0x28;
const QUEUE_COUNT: u8 = 16;
const BASE_LOW: u64 = 0x00;
const BASE_HIGH: u64 = 0x04;
const SIZE: u64 = 0x08;
const HEAD: u64 = 0x0c;
const TAIL: u64 = 0x10;

/// Latched causes of error-trigger line 61; bits written 0 are cleared.
///
/// assumed: no text says where the trigger lines of a block are. Here they are 64 groups of 0x40
/// bytes that end with the block, so that line 61 shows behind the queues.
const CAUSE: u64 = 0xf40;
/// Bits written 1 are latched.
const CAUSE_SET: u64 = 0xf48;
/// Cause: a record was dropped or overwritten.
const OVERFLOW: u32 = 1 << 29;

/// Bytes of one record.
const RECORD_BYTES: u32 = 16;

/// What posts records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NotificationBlock {
    /// A core.
    Core(u8),
    /// A TopSP by the number that drivers use.
    TopSp(u8),
    /// The trace of a UDMA unit.
    Engine(u16),
}

/// What became of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// It is in memory.
    Written,
    /// The ring is full and its producer waits.
    Stalled,
    /// The ring is full and the record is gone.
    Dropped,
    /// The queue is not armed; the record is gone.
    Unarmed,
    /// The ring's address leads nowhere; the record is gone.
    Nowhere,
}

/// One queue as it stands, and what was counted since the function was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct QueueState {
    /// Whose block, for people.
    pub block: String,
    /// Position in the block.
    pub queue: u8,
    /// Ring address as programmed, tag included.
    pub base: u64,
    /// Ring size in bytes; 0 while it is off.
    pub size: u32,
    /// Consumer pointer.
    pub head: u32,
    /// Producer pointer.
    pub tail: u32,
    /// Phase of the record that comes next.
    pub phase: bool,
    /// Whether records are taken.
    pub armed: bool,
    /// Records posted.
    pub posted: u64,
    /// Of these: in memory.
    pub written: u64,
    /// Waiting for room.
    pub stalled: u64,
    /// Gone because the ring was full, or because it was stopped while they waited.
    pub dropped: u64,
    /// Gone because the queue was not armed.
    pub unarmed: u64,
    /// Gone because the address leads nowhere.
    pub nowhere: u64,
}

/// All queues of a function that were ever touched.
#[derive(Debug, Default)]
pub(crate) struct Notifications {
    /// By first byte of the block and position in it.
    producers: BTreeMap<(u64, u8), Producer>,
    /// Blocks whose enable register was written.
    enabled_by_software: BTreeSet<u64>,
    paced: BTreeMap<u64, Pace>,
    last_pace: u64,
}

impl Notifications {
    /// A block was reset: its queues are off, nothing waits for them. Counts stay.
    pub fn reset(&mut self, start: u64) {
        self.enabled_by_software.remove(&start);
        for producer in self.producers.range_mut((start, 0)..=(start, u8::MAX)) {
            producer.1.stop();
        }
        self.paced.retain(|_, pace| pace.start != start);
    }
}

/// The register of a queue at `inside`: number of the queue, offset in it.
fn queue_register(inside: u64) -> Option<(u8, u64)> {
    let offset = inside.checked_sub(QUEUES)?;
    let queue = u8::try_from(offset / QUEUE_BYTES).ok().filter(|queue| *queue < QUEUE_COUNT)?;
    Some((queue, offset % QUEUE_BYTES))
}

fn register(queue: u8, offset: u64) -> u64 {
    QUEUES + u64::from(queue) * QUEUE_BYTES + offset
}

impl Function {
    pub(crate) fn notific_read(&self, start: u64, inside: u64) -> u32 {
        match inside {
            TIMESTAMP_LOW => self.clock.now_ns() as u32,
            TIMESTAMP_HIGH => (self.clock.now_ns() >> 32) as u32,
            CAUSE_SET => 0,
            _ => self.stored(start, inside),
        }
    }

    pub(crate) fn notific_write(&mut self, start: u64, inside: u64, value: u32) {
        match (queue_register(inside), inside) {
            (Some((_, TAIL..)), _) => {}
            (Some((queue, SIZE)), _) => self.program(start, queue, value),
            (Some((queue, HEAD)), _) => self.move_head(start, queue, value),
            (_, ENABLE) => self.enable(start, value),
            (_, CAUSE) => self.store(start, CAUSE, self.stored(start, CAUSE) & value),
            (_, CAUSE_SET) => self.store(start, CAUSE, self.stored(start, CAUSE) | value),
            _ => self.store(start, inside, value),
        }
    }

    /// A write of the size: the ring is another one, or none.
    fn program(&mut self, start: u64, queue: u8, size: u32) {
        self.store(start, register(queue, SIZE), size);
        self.store(start, register(queue, HEAD), 0);
        let low = self.stored(start, register(queue, BASE_LOW));
        let high = self.stored(start, register(queue, BASE_HIGH));
        let base = u64::from(high) << 32 | u64::from(low);
        let producer = self.producer(start, queue);
        if size == 0 {
            producer.stop();
            self.lower_tail(start, queue);
        } else {
            producer.arm(base, size);
            self.store(start, register(queue, TAIL), 0);
        }
    }

    /// The queue stopped: its tail goes back to 0, unless a fault holds it.
    fn lower_tail(&mut self, start: u64, queue: u8) {
        let at = register(queue, TAIL);
        if self.stored(start, at) != 0 && self.faults.strike(Fault::StuckTail).is_none() {
            self.store(start, at, 0);
        }
    }

    fn move_head(&mut self, start: u64, queue: u8, head: u32) {
        let size = self.producer(start, queue).size();
        if size != 0 && (head >= size || !head.is_multiple_of(RECORD_BYTES)) {
            self.violation(EventKind::NotificationHead, None, u64::from(head));
            return;
        }
        self.store(start, register(queue, HEAD), head);
        self.let_go(start, queue);
    }

    fn enable(&mut self, start: u64, bits: u32) {
        let first = self.notifications.enabled_by_software.insert(start);
        let before = if first { u32::MAX } else { self.stored(start, ENABLE) };
        self.store(start, ENABLE, bits);
        for queue in (0..QUEUE_COUNT).filter(|queue| before & !bits & 1 << queue != 0) {
            if let Some(producer) = self.notifications.producers.get_mut(&(start, queue)) {
                producer.restart();
                self.lower_tail(start, queue);
            }
        }
    }

    fn producer(&mut self, start: u64, queue: u8) -> &mut Producer {
        self.notifications.producers.entry((start, queue)).or_default()
    }

    /// Whether records of the queue are taken.
    fn is_armed(&self, start: u64, queue: u8) -> bool {
        let configured = self
            .notifications
            .producers
            .get(&(start, queue))
            .is_some_and(|producer| producer.size() != 0);
        let enabled = match self.notifications.enabled_by_software.contains(&start) {
            true => self.stored(start, ENABLE) & 1 << queue != 0,
            false => self.config.auto_enable,
        };
        configured && enabled
    }

    /// Posts every record of the burst, as fast as possible; what has to wait waits.
    fn post_all(&mut self, start: u64, queue: u8, mut burst: Burst) {
        self.producer(start, queue).counts.posted += burst.left();
        if self.producer(start, queue).has_stalled() {
            self.producer(start, queue).hold(burst);
            return;
        }
        while let Some(record) = burst.peek(self.clock.now_ns()) {
            if self.post_one(start, queue, record) == Posted::Stalled {
                self.producer(start, queue).hold(burst);
                return;
            }
            burst.advance();
        }
    }

    /// The consumer made room: what waits for it goes on.
    fn let_go(&mut self, start: u64, queue: u8) {
        while let Some(mut burst) = self.producer(start, queue).take_stalled() {
            while let Some(record) = burst.peek(self.clock.now_ns()) {
                if self.post_one(start, queue, record) == Posted::Stalled {
                    self.producer(start, queue).hold_first(burst);
                    return;
                }
                burst.advance();
            }
        }
    }

    /// One record: bytes 4 to 15, then the word with the phase bit, then the tail.
    fn post_one(&mut self, start: u64, queue: u8, record: burst::Record) -> Posted {
        if !self.is_armed(start, queue) {
            self.producer(start, queue).counts.unarmed += 1;
            return Posted::Unarmed;
        }
        let bit = 1 << queue;
        let head = self.stored(start, register(queue, HEAD));
        let overwrite = self.stored(start, IGNORE_FULL) & bit != 0;
        let producer = self.producer(start, queue);
        let full = producer.is_full(head);
        if full && !overwrite {
            if self.stored(start, BACK_PRESSURE) & bit != 0 {
                return Posted::Stalled;
            }
            self.producer(start, queue).counts.dropped += 1;
            self.latch_overflow(start);
            return Posted::Dropped;
        }
        let Next { address, phase, tail } = self.producer(start, queue).next();
        if full {
            self.latch_overflow(start);
        }
        let written = self.write_record(address, &record.bytes(phase));
        let producer = self.producer(start, queue);
        producer.advance();
        match written {
            true => producer.counts.written += 1,
            false => producer.counts.nowhere += 1,
        }
        self.store(start, register(queue, TAIL), tail);
        if written { Posted::Written } else { Posted::Nowhere }
    }

    fn write_record(&mut self, address: u64, bytes: &[u8; 16]) -> bool {
        let (first, rest) = bytes.split_at(4);
        let written = match self.map.decode(address, u64::from(RECORD_BYTES)) {
            Some(Target::Host(host)) => self
                .host_write(host.wrapping_add(4), rest)
                .and_then(|()| self.host_write(host, first))
                .is_ok(),
            Some(Target::Hbm(offset)) => self
                .hbm
                .write(offset + 4, rest)
                .and_then(|()| self.hbm.write(offset, first))
                .is_ok(),
            _ => false,
        };
        if !written {
            self.expected(EventKind::NotificationAddress, None, address);
        }
        written
    }

    fn latch_overflow(&mut self, start: u64) {
        let cause = self.stored(start, CAUSE);
        if cause & OVERFLOW == 0 {
            self.store(start, CAUSE, cause | OVERFLOW);
        }
    }

    /// Posts a share of a paced burst and orders the next one.
    pub(crate) fn go_on_posting(&mut self, number: u64) {
        let Some(mut pace) = self.notifications.paced.remove(&number) else { return };
        let (start, queue) = (pace.start, pace.queue);
        let share = pace.burst.split(pace.share);
        self.post_all(start, queue, share);
        if pace.burst.left() != 0 {
            self.after(pace.every_ns, Later::Notifications { number });
            self.notifications.paced.insert(number, pace);
        }
    }

    fn start_posting(&mut self, pace: Pace) {
        self.notifications.last_pace += 1;
        let number = self.notifications.last_pace;
        self.notifications.paced.insert(number, pace);
        self.go_on_posting(number);
    }

    /// First byte of a block in the register window; `None` where the function has none.
    fn notific_start(&self, block: NotificationBlock) -> Option<u64> {
        let owner = match block {
            NotificationBlock::Core(core) => Owner::Core(core),
            NotificationBlock::Engine(engine) => Owner::Engine(engine),
            NotificationBlock::TopSp(logical) => match self.config.generation() {
                Generation::V2 => Owner::TopSp(logical),
                Generation::V3 | Generation::V4 if logical < 16 => {
                    Owner::TopSp(physical_top_sp(logical))
                }
                Generation::V3 | Generation::V4 => return None,
            },
        };
        let wanted = Block::Notific { owner };
        self.map.spans().iter().find(|span| span.block == wanted).map(|span| span.start)
    }

    /// Posts one record of 16 bytes as it is, except for its phase bit.
    ///
    /// `None` where the function has no such block or queue.
    pub fn post_notification(
        &mut self,
        block: NotificationBlock,
        queue: u8,
        record: [u8; 16],
    ) -> Option<Posted> {
        let start = self.notific_start(block).filter(|_| queue < QUEUE_COUNT)?;
        let before = self.producer(start, queue).counts;
        self.post_all(start, queue, Burst::raw(record));
        let after = self.producer(start, queue).counts;
        Some(match () {
            () if after.written > before.written => Posted::Written,
            () if after.dropped > before.dropped => Posted::Dropped,
            () if after.unarmed > before.unarmed => Posted::Unarmed,
            () if after.nowhere > before.nowhere => Posted::Nowhere,
            () => Posted::Stalled,
        })
    }

    /// A queue as it stands; `None` where the function has no such block or queue.
    pub fn queue_state(&self, block: NotificationBlock, queue: u8) -> Option<QueueState> {
        let start = self.notific_start(block).filter(|_| queue < QUEUE_COUNT)?;
        Some(self.describe(start, queue))
    }

    fn describe(&self, start: u64, queue: u8) -> QueueState {
        let unused = Producer::default();
        let producer = self.notifications.producers.get(&(start, queue)).unwrap_or(&unused);
        let counts = producer.counts;
        QueueState {
            block: self.block_name(start),
            queue,
            base: producer.base(),
            size: producer.size(),
            head: self.stored(start, register(queue, HEAD)),
            tail: self.stored(start, register(queue, TAIL)),
            phase: producer.phase(),
            armed: self.is_armed(start, queue),
            posted: counts.posted,
            written: counts.written,
            stalled: producer.stalled(),
            dropped: counts.dropped,
            unarmed: counts.unarmed,
            nowhere: counts.nowhere,
        }
    }

    /// Every queue that was ever programmed or posted to.
    pub(crate) fn queue_states(&self) -> Vec<QueueState> {
        let keys = self.notifications.producers.keys();
        keys.map(|&(start, queue)| self.describe(start, queue)).collect()
    }

    fn block_name(&self, start: u64) -> String {
        match self.map.span(start).map(|span| span.block) {
            Some(Block::Notific { owner: Owner::Core(core) }) => format!("nc{core}"),
            Some(Block::Notific { owner: Owner::Engine(engine) }) => format!("engine{engine}"),
            Some(Block::Notific { owner: Owner::TopSp(physical) }) => {
                let logical = (0..16).find(|&logical| match self.config.generation() {
                    Generation::V2 => logical == physical,
                    _ => physical_top_sp(logical) == physical,
                });
                format!("topsp{}", logical.unwrap_or(physical))
            }
            _ => format!("{start:#x}"),
        }
    }
}
