//! Who owns which hardware queue, and what can be asked of a queue within one poll (specification
//! 06 §17.2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_platform::{DeviceAddr, Instant, MmioWindow};
use axon_ports::telemetry::{DeviceRecords, EventKind};
use axon_ports::{ClientId, CoreMap};

use super::block::{Block, BlockName};
use super::cursor::Cursor;
use super::entry::{Entry, Idle, Ring, Status, Step, told_after};
use super::record::{Notification, Reader};
use super::slots::SlotSet;
use super::watch::Watches;
use super::{NotificationCounters, QueueCounters, QueueInfo, QueueKind, QueueReading, QueueSpec};
use crate::Error;
use crate::hal::{Hal, HardwareQueue};
use crate::registers::notific::Queue;
use crate::wake::WakerList;

/// Queues that a device remembers at once, quarantined ones included.
const QUEUES: usize = 64 * WORDS;
const WORDS: usize = 8;

/// Names one queue; a number that is used again is another queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueName {
    pub slot: u16,
    pub generation: u32,
}

/// A queue that is wished for, once its numbers are checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub hardware: HardwareQueue,
    pub spec: QueueSpec,
    pub size: u32,
    pub owner: ClientId,
    pub reader: Reader,
}

/// What is to be done for a wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reserved {
    /// The hardware queue was free and is taken now.
    New(QueueName),
    /// It is there already, one handle more.
    Same(QueueName),
    /// It is there and to be replaced; the second name keeps the old ring.
    Replace(QueueName, QueueName),
    /// Somebody works on it: ask again when something has changed.
    Wait,
}

/// What reading a queue gave.
pub(super) enum Take {
    Record(Notification),
    Nothing,
    Lost(Error),
    /// The ring that was waited for is no more; the queue goes on with another one, or ends.
    Changed {
        goes_on: bool,
    },
    /// The queue is no more.
    Ended,
}

/// All queues of a device.
pub(super) struct Registry {
    pub entries: Vec<Entry>,
    pub blocks: Vec<Block>,
    /// Queues on which somebody waits, or that have to be looked after.
    pub waiting: SlotSet<WORDS>,
    /// A queue may be between two states.
    pub moving: bool,
    pub watches: Watches,
    /// Tasks that wait for a queue to be made or to end.
    pub changed: WakerList,
    /// The driver manages queues.
    pub managed: bool,
    /// A queue has lost its last handle.
    pub released: bool,
    /// Since the device came up.
    pub drain_ns: u64,
    records: Arc<DeviceRecords>,
}

impl Registry {
    pub(super) const fn new(managed: bool, records: Arc<DeviceRecords>) -> Self {
        Registry {
            entries: Vec::new(),
            blocks: Vec::new(),
            waiting: SlotSet::new(),
            moving: false,
            watches: Watches::new(),
            changed: WakerList::new(),
            managed,
            released: false,
            drain_ns: 0,
            records,
        }
    }

    /// The queue of this name, if it is still that queue.
    #[inline]
    pub(super) fn entry(&mut self, name: QueueName) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(usize::from(name.slot))?;
        (entry.generation == name.generation).then_some(entry)
    }

    /// Takes the hardware queue of a wish, or says who has it.
    ///
    /// # Errors
    /// [`Error::Busy`] where another client has it, or the same one for another type;
    /// [`Error::Exists`] where its ring is another one; [`Error::NoRecords`].
    pub(super) fn reserve(&mut self, wish: &Wish) -> Result<Reserved, Error> {
        let key = |queue: &HardwareQueue| (queue.block, queue.position);
        let holders = self.entries.iter_mut().enumerate().filter(|(_, entry)| {
            entry.holds_hardware() && key(&entry.hardware) == key(&wish.hardware)
        });
        let mut taken = None;
        for (slot, entry) in holders {
            if let Status::Halting { .. } = entry.status {
                return Ok(Reserved::Wait);
            }
            taken = Some((slot, entry));
        }
        let Some((slot, entry)) = taken else {
            let slot = self.free_slot()?;
            return Ok(Reserved::New(self.open(slot, wish)?));
        };
        if entry.owner != wish.owner {
            return Err(Error::Busy { what: "the hardware queue", limit: 1 });
        }
        if entry.status == Status::Creating {
            return Ok(Reserved::Wait);
        }
        let name = QueueName { slot: slot as u16, generation: entry.generation };
        if wish.spec.replace {
            let spare = self.free_slot()?;
            let spare = self.open(spare, wish)?;
            return Ok(Reserved::Replace(name, spare));
        }
        if entry.spec.kind != wish.spec.kind {
            return Err(Error::Busy { what: "the hardware queue", limit: 1 });
        }
        if !entry.spec.same_ring(&wish.spec) {
            return Err(Error::Exists { what: "the notification queue" });
        }
        entry.handles += 1;
        Ok(Reserved::Same(name))
    }

    fn free_slot(&mut self) -> Result<usize, Error> {
        let free = self.entries.iter().position(|entry| entry.status == Status::Free);
        if free.is_none() && self.entries.len() >= QUEUES {
            return Err(Error::Busy { what: "every record of a notification queue", limit: 512 });
        }
        if free.is_none() {
            self.entries.try_reserve(1).map_err(|_| Error::NoRecords)?;
        }
        Ok(free.unwrap_or(self.entries.len()))
    }

    /// Makes a record of a queue that is not armed yet.
    fn open(&mut self, slot: usize, wish: &Wish) -> Result<QueueName, Error> {
        let block = self.block(wish)?;
        let generation = self.entries.get(slot).map_or(0, |entry| entry.generation);
        let entry = Entry {
            generation,
            status: Status::Creating,
            hardware: wish.hardware,
            block,
            spec: wish.spec,
            size: wish.size,
            owner: wish.owner,
            epoch: 0,
            handles: 0,
            ring: None,
            cursor: Cursor::new(wish.size),
            told_after: told_after(wish.size),
            reader: wish.reader,
            gap: None,
            round: 0,
            waiting: WakerList::new(),
            idle: Idle::default(),
            counters: QueueCounters::default(),
        };
        match self.entries.get_mut(slot) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        Ok(QueueName { slot: slot as u16, generation })
    }

    fn block(&mut self, wish: &Wish) -> Result<usize, Error> {
        let Wish { hardware, spec, .. } = wish;
        let known = self.blocks.iter().position(|block| block.start() == hardware.block);
        if let Some(known) = known {
            return Ok(known);
        }
        self.blocks.try_reserve(1).map_err(|_| Error::NoRecords)?;
        let engine =
            (spec.kind == QueueKind::TraceDma && hardware.single).then_some(spec.index as u8);
        self.blocks.push(Block::new(hardware, BlockName { producer: spec.producer, engine }));
        Ok(self.blocks.len() - 1)
    }

    /// Programs the ring of a queue that is being made; one handle more.
    pub(super) fn arm<W: MmioWindow>(
        &mut self,
        window: &W,
        name: QueueName,
        wish: &Wish,
        ring: Ring,
        (epoch, now): (u32, Instant),
    ) -> Result<(), Error> {
        let managed = self.managed.then_some(wish.spec.when_full);
        let Some(entry) = self.entry(name) else { return Err(Error::NoRecords) };
        let address = ring.pin().pa();
        entry.spec = QueueSpec { replace: false, ..wish.spec };
        entry.size = wish.size;
        entry.reader = wish.reader;
        entry.cursor = Cursor::new(wish.size);
        entry.told_after = told_after(wish.size);
        entry.gap = None;
        entry.idle = Idle::default();
        entry.ring = Some(ring);
        entry.epoch = epoch;
        entry.handles += 1;
        entry.status = Status::Armed;
        let (block, position) = (entry.block, entry.hardware.position);
        if let Some(block) = self.blocks.get_mut(block) {
            block.arm(window, position, DeviceAddr(address.0), wish.size, managed);
        }
        self.records.counters.queues_armed.grow(1);
        self.note(now, wish.owner, EventKind::QueueArmed, &wish.hardware);
        self.changed.wake_all();
        Ok(())
    }

    /// A queue that was live is switched off.
    pub(super) fn disarmed(&self, now: Instant, owner: ClientId, hardware: &HardwareQueue) {
        self.records.counters.queues_armed.shrink(1);
        self.note(now, owner, EventKind::QueueDestroyed, hardware);
    }

    /// assumed: an event of a queue carries the offset of its first register.
    fn note(&self, now: Instant, owner: ClientId, kind: EventKind, hardware: &HardwareQueue) {
        let queue = Queue::new(hardware.block, hardware.position).base_low();
        self.records.events.record(now, Some(owner), kind, queue);
    }

    /// The record is unused from now on; whoever holds its old name notices.
    pub(super) fn free(&mut self, slot: usize) {
        if let Some(entry) = self.entries.get_mut(slot) {
            let counters = core::mem::take(&mut entry.counters);
            if let Some(block) = self.blocks.get_mut(entry.block) {
                block.remember(entry.hardware.position, &counters);
            }
            entry.status = Status::Free;
            entry.generation = entry.generation.wrapping_add(1);
            entry.handles = 0;
            entry.ring = None;
            entry.wake();
        }
        self.set_waiting(slot, false);
        self.changed.wake_all();
    }

    /// One handle less; answers whether it was the last one of a queue that is live.
    pub(super) fn release_handle(&mut self, name: QueueName) -> bool {
        let Some(entry) = self.entry(name) else { return false };
        entry.handles = entry.handles.saturating_sub(1);
        let last = entry.handles == 0 && entry.is_live();
        self.released |= last;
        last
    }

    #[inline]
    pub(super) fn set_waiting(&mut self, slot: usize, waits: bool) {
        self.waiting.set(slot, waits);
    }

    /// The next notification of a ring in host memory, where one is there and nothing else is to be
    /// said; [`Self::take`] finds out what is.
    #[inline(always)]
    pub(super) fn take_record<W: MmioWindow>(
        &mut self,
        window: &W,
        name: QueueName,
        round: Option<u32>,
    ) -> Option<Notification> {
        let slot = usize::from(name.slot);
        let entry = self.entries.get_mut(slot).filter(|e| e.generation == name.generation)?;
        if entry.status != Status::Armed || round.is_some_and(|round| round != entry.round) {
            return None;
        }
        let notification = entry.step_once()?;
        if entry.is_tell_due(false) {
            self.tell(window, slot);
        }
        Some(notification)
    }

    /// Reads one notification of a ring in host memory. Where there is none, `waiter` is noted, and
    /// the answer says whether the sweeping task has to know. `round` is the queue's when its
    /// reader was parked.
    #[cold]
    pub(super) fn take<W: MmioWindow>(
        &mut self,
        window: &W,
        name: QueueName,
        round: Option<u32>,
        waiter: Option<&core::task::Waker>,
    ) -> (Take, bool) {
        let slot = usize::from(name.slot);
        let Some(entry) = self.entries.get_mut(slot).filter(|e| e.generation == name.generation)
        else {
            return (Take::Ended, false);
        };
        if round.is_some_and(|round| round != entry.round) {
            return (Take::Changed { goes_on: entry.is_kept() }, false);
        }
        if entry.status != Status::Armed {
            return self.take_unready(name, waiter);
        }
        let step = entry.step();
        if entry.is_tell_due(matches!(step, Step::Nothing)) {
            self.tell(window, slot);
        }
        match step {
            Step::Record(notification) => (Take::Record(notification), false),
            Step::Nothing | Step::Garbage => (Take::Nothing, self.note_waiter(slot, waiter)),
            Step::Lost => (Take::Lost(self.lost(name)), true),
        }
    }

    /// Nothing is there: notes who waits; answers whether the sweeping task has to know.
    fn note_waiter(&mut self, slot: usize, waiter: Option<&core::task::Waker>) -> bool {
        let Some(entry) = self.entries.get_mut(slot) else { return false };
        let watch = waiter.is_some() || entry.is_passed_over();
        if let Some(waker) = waiter {
            entry.waiting.register(waker);
        }
        if watch {
            self.set_waiting(slot, true);
        }
        watch
    }

    /// Tells the hardware how far a ring was read, where the driver manages queues.
    #[inline(never)]
    fn tell<W: MmioWindow>(&mut self, window: &W, slot: usize) {
        let Registry { entries, blocks, managed, .. } = self;
        let Some(entry) = entries.get_mut(slot) else { return };
        let block = if *managed { blocks.get_mut(entry.block) } else { None };
        entry.tell(window, block);
    }

    /// A queue that starts anew makes its reader wait; one that ends tells it.
    #[cold]
    fn take_unready(
        &mut self,
        name: QueueName,
        waiter: Option<&core::task::Waker>,
    ) -> (Take, bool) {
        let Some(entry) = self.entry(name) else { return (Take::Ended, false) };
        match entry.status {
            Status::Suspended { .. } | Status::Drained | Status::Creating => {
                if let Some(waker) = waiter {
                    entry.waiting.register(waker);
                }
                (Take::Nothing, false)
            }
            _ => (Take::Ended, false),
        }
    }

    /// Records were lost: counts it and marks the queue for the sweeping task to hold it up.
    #[cold]
    pub(super) fn lost(&mut self, name: QueueName) -> Error {
        let Some(entry) = self.entry(name) else { return Error::NoRecords };
        entry.counters.overflows += 1;
        entry.gap = None;
        entry.status = Status::Suspended { since: Instant::FAR_FUTURE };
        let (producer, index) = (entry.spec.producer, entry.spec.index);
        self.moving = true;
        Error::NotificationsLost { producer, index }
    }

    /// Head, tail and phase of a queue (NQ-D17). The tail is the hardware's word.
    pub(super) fn info<W: MmioWindow>(&mut self, window: &W, name: QueueName) -> Option<QueueInfo> {
        let entry = self.entry(name).filter(|entry| entry.is_live())?;
        let tail = window.read32(entry.registers().tail());
        Some(QueueInfo {
            spec: entry.spec,
            handle: entry.ring.as_ref().map_or(0, |ring| ring.chunk().handle()),
            address: entry.ring.as_ref().map_or(DeviceAddr(0), |ring| ring.pin().pa()),
            head: entry.cursor.next() * super::record::RECORD_BYTES,
            tail,
            phase: !entry.cursor.stale_phase(),
            counters: entry.counters,
        })
    }

    /// Queues of a core and of its TopSPs; all of them for the whole device.
    pub(super) fn covered(entry: &Entry, map: CoreMap) -> bool {
        map.is_device() || map.contains(entry.hardware.core)
    }

    /// Whether a successful reset of `map` proves that the hardware queue writes no more.
    pub(super) fn is_proven(hal: &Hal, entry: &Entry, map: CoreMap) -> bool {
        match entry.hardware.engine {
            // The trace of an engine ends with the engine.
            Some(engine) => hal.reset_covers(map, engine),
            None => Registry::covered(entry, map),
        }
    }

    /// A reset has put the blocks of the map back to their power-on state.
    pub(super) fn forget_blocks(&mut self, map: CoreMap) {
        let covered = |block: &&mut Block| map.is_device() || map.contains(block.core());
        self.blocks.iter_mut().filter(covered).for_each(Block::forget);
    }

    /// Hands every hardware queue that was ever armed to `each`, with what became of its records.
    pub(super) fn readings(&self, mut each: impl FnMut(QueueReading)) {
        for (number, block) in self.blocks.iter().enumerate() {
            let mut queues = *block.past();
            let here = |entry: &&Entry| entry.status != Status::Free && entry.block == number;
            for entry in self.entries.iter().filter(here) {
                if let Some(queue) = queues.get_mut(usize::from(entry.hardware.position)) {
                    *queue = Some(queue.unwrap_or_default().plus(&entry.counters));
                }
            }
            for (position, counters) in (0..).zip(queues) {
                if let Some(counters) = counters {
                    each(QueueReading { block: block.name(), position, counters });
                }
            }
        }
    }

    /// Totals since the device came up.
    pub(super) fn counters(&self) -> NotificationCounters {
        let mut sum = NotificationCounters { drain_ns: self.drain_ns, ..Default::default() };
        self.readings(|queue| {
            sum.consumed += queue.counters.consumed;
            sum.garbage += queue.counters.garbage;
            sum.overflows += queue.counters.overflows;
            sum.restarts += queue.counters.restarts;
        });
        for entry in &self.entries {
            sum.armed += u32::from(entry.is_live());
            sum.quarantined += u32::from(entry.status == Status::Quarantined);
        }
        sum
    }
}
