//! Trace points: typed events in one ring for each task (specification 07 §11, §16.8).
//!
//! An event that is off costs one load. One that is on costs a few dozen instructions: its values
//! are captured where it happens, in a fixed record of 64 bytes.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use axon_platform::Instant;
use once_cell::race::OnceBox;

use super::{Counter, NoRoom, slots};
use crate::DeviceIndex;

mod event;

pub use event::{TraceEvent, TraceKind};

/// Records of one ring: 64 KiB.
pub const CAPACITY: usize = 1024;

/// Who traces: each has a ring, made when the first of its events is switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TraceTask {
    /// Rings, queues and copies.
    Dma = 0,
    /// Allocations and copies by handle.
    Memory = 1,
    /// Register accesses on behalf of clients.
    Registers = 2,
    /// The metrics poster.
    Poster = 3,
}

const TASKS: usize = 4;

/// One record as a reader gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRecord {
    /// Running number in its ring, from 1.
    pub sequence: u64,
    /// When.
    pub time: Instant,
    /// Device.
    pub device: DeviceIndex,
    /// What.
    pub event: TraceEvent,
}

impl fmt::Display for TraceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.time.as_nanos();
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        write!(f, "{seconds}.{rest:09} {} {}", self.device, self.event)
    }
}

/// 64 bytes: sequence (0 while it is written), nanoseconds, kind and device, five words.
type Slot = [AtomicU64; 8];

struct Ring {
    last: AtomicU64,
    slots: Box<[Slot; CAPACITY]>,
}

/// The trace points of one device.
pub struct Trace {
    /// Index of the device where a record has it.
    device: u64,
    mask: AtomicU32,
    counts: [Counter; TraceKind::COUNT],
    rings: [OnceBox<Ring>; TASKS],
}

impl Trace {
    pub(super) fn new(device: DeviceIndex) -> Self {
        Trace {
            device: u64::from(device.number()) << 32,
            mask: AtomicU32::new(0),
            counts: [const { Counter::new() }; TraceKind::COUNT],
            rings: [const { OnceBox::new() }; TASKS],
        }
    }

    /// A trace point. `now` is only asked where the event is on.
    #[inline(always)]
    pub fn emit(&self, event: TraceEvent, now: impl FnOnce() -> Instant) {
        if self.mask.load(Ordering::Relaxed) & event.kind().bit() != 0 {
            self.keep(event.kind(), event.words(), now());
        }
    }

    /// Whether an event is on.
    #[inline]
    pub fn is_on(&self, kind: TraceKind) -> bool {
        self.mask.load(Ordering::Relaxed) & kind.bit() != 0
    }

    /// Whether one of some events is on: one look for a path with several trace points.
    #[inline(always)]
    pub fn is_any_on<const N: usize>(&self, kinds: [TraceKind; N]) -> bool {
        let bits = kinds.iter().fold(0, |bits, kind| bits | kind.bit());
        self.mask.load(Ordering::Relaxed) & bits != 0
    }

    /// Switches an event on.
    ///
    /// # Errors
    /// [`NoRoom`] for the ring of its task; it stays off.
    pub fn switch_on(&self, kind: TraceKind) -> Result<(), NoRoom> {
        if let Some(ring) = self.rings.get(kind.task() as usize) {
            ring.get_or_try_init(Ring::new)?;
        }
        self.mask.fetch_or(kind.bit(), Ordering::Relaxed);
        Ok(())
    }

    /// Switches an event off; its records stay.
    pub fn switch_off(&self, kind: TraceKind) {
        self.mask.fetch_and(!kind.bit(), Ordering::Relaxed);
    }

    /// Events of a kind kept so far, overwritten ones included.
    pub fn count(&self, kind: TraceKind) -> u64 {
        self.counts.get(kind.index()).map_or(0, Counter::get)
    }

    /// Hands the newest `limit` records of one task to `each`, oldest first. Answers how many.
    pub fn dump(&self, task: TraceTask, limit: usize, each: impl FnMut(TraceRecord)) -> usize {
        let Some(ring) = self.rings.get(task as usize).and_then(OnceBox::get) else { return 0 };
        let last = ring.last.load(Ordering::Acquire);
        let first = last.saturating_sub(limit.min(CAPACITY) as u64) + 1;
        (first..=last).filter_map(|sequence| ring.read(sequence)).map(each).count()
    }

    // Inlined: with the kind known, the ring and the counter are constants and nothing passes
    // through the stack.
    #[inline(always)]
    fn keep(&self, kind: TraceKind, words: [u64; 5], time: Instant) {
        let Some(ring) = self.rings.get(kind.task() as usize).and_then(OnceBox::get) else {
            return;
        };
        ring.write(time, u64::from(kind as u8) | self.device, words);
        if let Some(count) = self.counts.get(kind.index()) {
            count.increment();
        }
    }
}

impl Ring {
    fn new() -> Result<Box<Ring>, NoRoom> {
        let slots = slots(CAPACITY, || [const { AtomicU64::new(0) }; 8])?;
        let slots = slots.try_into().map_err(|_| NoRoom)?;
        Ok(Box::new(Ring { last: AtomicU64::new(0), slots }))
    }

    #[inline(always)]
    fn write(&self, time: Instant, what: u64, words: [u64; 5]) {
        let sequence = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let Some([number, nanos, kind, to @ ..]) = self.slot(sequence) else { return };
        number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        nanos.store(time.as_nanos(), Ordering::Relaxed);
        kind.store(what, Ordering::Relaxed);
        to.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        number.store(sequence, Ordering::Release);
    }

    fn read(&self, sequence: u64) -> Option<TraceRecord> {
        let [number, nanos, kind, from @ ..] = self.slot(sequence)?;
        if number.load(Ordering::Acquire) != sequence {
            return None;
        }
        let (nanos, what) = (nanos.load(Ordering::Relaxed), kind.load(Ordering::Relaxed));
        let words = from.each_ref().map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if number.load(Ordering::Relaxed) != sequence {
            return None;
        }
        Some(TraceRecord {
            sequence,
            time: Instant::from_nanos(nanos),
            device: DeviceIndex::new((what >> 32) as u32)?,
            event: TraceEvent::from_words(TraceKind::from_number(what as u8)?, words),
        })
    }

    fn slot(&self, sequence: u64) -> Option<&Slot> {
        self.slots.get((sequence.wrapping_sub(1) % CAPACITY as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn trace() -> Trace {
        Trace::new(DeviceIndex::new(2).unwrap())
    }

    fn events(trace: &Trace, task: TraceTask, limit: usize) -> Vec<TraceEvent> {
        let mut events = Vec::new();
        trace.dump(task, limit, |record| events.push(record.event));
        events
    }

    #[test]
    fn an_event_that_is_off_asks_nothing_and_keeps_nothing() {
        let trace = trace();
        let read = TraceEvent::BarRead { bar: 0, offset: 4, value: 5 };
        trace.emit(read, || panic!("asked for the time"));
        assert_eq!(events(&trace, TraceTask::Registers, 9), []);

        trace.switch_on(TraceKind::BarRead).unwrap();
        let write = TraceEvent::BarWrite { bar: 0, offset: 4, value: 5 };
        trace.emit(write, || panic!("another kind is on"));
        trace.emit(read, || Instant::from_nanos(1_000_000_007));
        trace.switch_off(TraceKind::BarRead);
        trace.emit(read, || panic!("off again"));
        assert_eq!(events(&trace, TraceTask::Registers, 9), [read]);
        assert_eq!((trace.count(TraceKind::BarRead), trace.count(TraceKind::BarWrite)), (1, 0));

        let mut lines = Vec::new();
        trace.dump(TraceTask::Registers, 9, |record| lines.push(alloc::format!("{record}")));
        assert_eq!(lines, ["1.000000007 nd2 bar_read bar=0x0 offset=0x4 value=0x5"]);
    }

    #[test]
    fn the_newest_records_of_each_task_are_kept() {
        assert_eq!(size_of::<Slot>() * CAPACITY, 64 << 10);
        let trace = trace();
        trace.switch_on(TraceKind::DmaEngineInit).unwrap();
        trace.switch_on(TraceKind::MemFree).unwrap();
        for engine in 0..CAPACITY as u64 + 10 {
            trace.emit(TraceEvent::DmaEngineInit { engine }, Instant::default);
        }
        assert_eq!(events(&trace, TraceTask::Memory, CAPACITY), []);
        let kept = events(&trace, TraceTask::Dma, usize::MAX);
        assert_eq!(kept.len(), CAPACITY);
        assert_eq!(kept[0], TraceEvent::DmaEngineInit { engine: 10 });
        assert_eq!(
            events(&trace, TraceTask::Dma, 1),
            [TraceEvent::DmaEngineInit { engine: CAPACITY as u64 + 9 }]
        );
        assert_eq!(trace.count(TraceKind::DmaEngineInit), CAPACITY as u64 + 10);
    }
}
