//! The end of a queue: off, drained, freed (specification 06 §17.3); and the way of a queue that has
//! lost records back to its start (06 §7.3).
//!
//! Whoever waits for an end moves it on by looking at the producer pointers; the sweeping task does
//! so where nobody waits. What has not drained within 10 ms keeps its memory until a reset or the
//! end of bus mastering proves that nothing writes it any more (05 §17.3).

use core::time::Duration;

use axon_platform::{Instant, MmioWindow, Platform};
use axon_ports::{ClientId, CoreMap};

use super::cursor::Cursor;
use super::entry::{Entry, Idle, Status};
use super::registry::{QueueName, Registry};
use super::slots::SlotSet;
use crate::hal::Hal;
use crate::registers::misc_ram;
use crate::shared::Shared;

/// Shortest and longest time that records under way get to land.
const DRAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// Pause between two looks at a producer pointer.
pub(super) const DRAIN_LOOK: Duration = Duration::from_micros(100);

/// What moving queues on gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Moved {
    /// Some queue is still between two states.
    pub unfinished: bool,
    /// A producer pointer reads all-ones.
    pub all_ones: bool,
}

impl Registry {
    /// Switches off every live queue that `which` names, and has those kept that are on their way
    /// out; answers whether there is any.
    pub(super) fn halt<W: MmioWindow>(
        &mut self,
        window: &W,
        now: Instant,
        keep: bool,
        which: impl Fn(&Entry) -> bool,
    ) -> bool {
        let mut any = false;
        for slot in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(slot).filter(|entry| which(entry)) else {
                continue;
            };
            if let Status::Halting { keep: kept, .. } = &mut entry.status {
                *kept |= keep;
                any = true;
            } else if entry.is_live() {
                entry.status = Status::Halting { since: now, drained: false, keep };
                entry.round = entry.round.wrapping_add(1);
                entry.wake();
                let (block, hardware, owner) = (entry.block, entry.hardware, entry.owner);
                if let Some(block) = self.blocks.get_mut(block) {
                    block.halt(window, hardware.position);
                }
                self.disarmed(now, owner, &hardware);
                self.moving = true;
                self.set_waiting(slot, false);
                any = true;
            }
        }
        any
    }

    /// Whether a queue that `which` names still drains.
    pub(super) fn drains(&self, which: impl Fn(&Entry) -> bool) -> bool {
        let halting = |entry: &&Entry| matches!(entry.status, Status::Halting { .. });
        self.entries.iter().filter(halting).any(which)
    }

    /// Looks at the queues that are between two states and moves them on. Memory is cleared before
    /// `barrier`, the hardware told behind it.
    pub(super) fn move_on<W: MmioWindow>(
        &mut self,
        window: &W,
        now: Instant,
        barrier: impl Fn(),
    ) -> Moved {
        let mut moved = Moved::default();
        for slot in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            match entry.status {
                Status::Halting { since, drained, keep } => {
                    let tail = window.read32(entry.registers().tail());
                    moved.all_ones |= tail == misc_ram::ALL_ONES;
                    let drained = drained || tail == 0;
                    entry.status = Status::Halting { since, drained, keep };
                    let age = now.since(since);
                    if age >= DRAIN.1 || drained && age >= DRAIN.0 {
                        self.drain_ns += age.as_nanos() as u64;
                        self.end(slot, drained, keep);
                    } else {
                        moved.unfinished = true;
                    }
                }
                Status::Suspended { since } => {
                    moved.unfinished |= self.restart(window, slot, since, now, &barrier);
                }
                _ => {}
            }
        }
        moved
    }

    /// A queue is off and has had its time.
    fn end(&mut self, slot: usize, drained: bool, keep: bool) {
        let Some(entry) = self.entries.get_mut(slot) else { return };
        if keep {
            entry.status = Status::Held { drained };
            self.changed.wake_all();
        } else if drained {
            if let Some(ring) = &entry.ring {
                ring.clear(entry.size);
            }
            self.free(slot);
        } else {
            log::warn!(
                "queue {} of {} did not drain: its memory is kept",
                entry.spec.index,
                entry.spec.producer
            );
            entry.status = Status::Quarantined;
            self.changed.wake_all();
        }
    }

    /// Moves a queue on that has lost records; answers whether it is still on its way.
    fn restart<W: MmioWindow>(
        &mut self,
        window: &W,
        slot: usize,
        since: Instant,
        now: Instant,
        barrier: impl Fn(),
    ) -> bool {
        let Registry { entries, blocks, managed, .. } = self;
        let Some(entry) = entries.get_mut(slot) else { return false };
        let Some(block) = blocks.get_mut(entry.block).filter(|_| *managed) else {
            // Nothing of the block may be touched: go on where the ring is.
            entry.status = Status::Armed;
            return false;
        };
        if since == Instant::FAR_FUTURE {
            block.suspend(window, entry.hardware.position);
            entry.status = Status::Suspended { since: now };
            return true;
        }
        if window.read32(entry.registers().tail()) != 0 {
            if now.since(since) < DRAIN.1 {
                return true;
            }
            let queue = entry.registers();
            self.halt(window, now, false, |entry| entry.is_live() && entry.registers() == queue);
            return true;
        }
        if entry.ring.as_ref().is_some_and(|ring| ring.clear(entry.size)) {
            barrier();
            self.resume(window, slot);
        } else {
            // Device memory is cleared by DMA, which its reader does.
            entry.status = Status::Drained;
            entry.wake();
        }
        false
    }

    /// The ring of a queue that has drained is cleared: it starts anew.
    pub(super) fn resume<W: MmioWindow>(&mut self, window: &W, slot: usize) {
        let Registry { entries, blocks, .. } = self;
        let Some(entry) = entries.get_mut(slot).filter(|entry| entry.is_live()) else { return };
        entry.cursor = Cursor::new(entry.size);
        entry.gap = None;
        entry.idle = Idle::default();
        entry.status = Status::Armed;
        entry.counters.restarts += 1;
        entry.wake();
        if let Some(block) = blocks.get_mut(entry.block) {
            block.resume(window, entry.hardware.position);
        }
    }

    /// Puts the ring of `name` away under `spare` and switches it off there, to make room for
    /// another one. `false` where the queue has ended meanwhile.
    pub(super) fn retire<W: MmioWindow>(
        &mut self,
        window: &W,
        name: QueueName,
        spare: QueueName,
        now: Instant,
    ) -> bool {
        let Some(entry) = self.entry(name).filter(|entry| entry.is_live()) else { return false };
        entry.status = Status::Creating;
        entry.round = entry.round.wrapping_add(1);
        entry.wake();
        let (ring, spec, size) = (entry.ring.take(), entry.spec, entry.size);
        let (hardware, block, owner) = (entry.hardware, entry.block, entry.owner);
        self.set_waiting(usize::from(name.slot), false);
        let Some(old) = self.entry(spare) else { return false };
        old.ring = ring;
        old.spec = spec;
        old.size = size;
        old.hardware = hardware;
        old.owner = owner;
        old.status = Status::Halting { since: now, drained: false, keep: true };
        if let Some(block) = self.blocks.get_mut(block) {
            block.halt(window, hardware.position);
        }
        self.disarmed(now, owner, &hardware);
        self.moving = true;
        true
    }

    /// Nobody needs what was kept under this name any more.
    pub(super) fn let_go(&mut self, name: QueueName) {
        let Some(entry) = self.entry(name) else { return };
        match &mut entry.status {
            Status::Halting { keep, .. } => *keep = false,
            Status::Held { drained } => {
                let drained = *drained;
                self.end(usize::from(name.slot), drained, false);
            }
            Status::Creating => self.free(usize::from(name.slot)),
            _ => {}
        }
    }

    /// A reset of `map` is over. What has drained is free; what has not is, where the reset was
    /// carried out (`proof`) and covers it.
    pub(super) fn release(&mut self, hal: &Hal, map: CoreMap, proof: bool) {
        for slot in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            if !Registry::covered(entry, map) {
                continue;
            }
            let proven = proof && Registry::is_proven(hal, entry, map);
            match entry.status {
                Status::Held { drained } => self.end(slot, drained || proven, false),
                Status::Quarantined if proven => self.free(slot),
                _ => {}
            }
        }
        if proof {
            self.forget_blocks(map);
        }
    }

    /// Nothing can be written any more: everything is free.
    pub(super) fn release_all(&mut self) {
        for slot in 0..self.entries.len() {
            if self.entries.get(slot).is_some_and(|entry| entry.status != Status::Free) {
                self.free(slot);
            }
        }
    }

    /// The device is gone: nothing can be switched off, so that all memory has to be kept.
    pub(super) fn quarantine_all(&mut self, now: Instant) {
        for slot in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            let (live, owner, hardware) = (entry.is_live(), entry.owner, entry.hardware);
            if live || matches!(entry.status, Status::Halting { .. }) {
                entry.status = Status::Quarantined;
                entry.round = entry.round.wrapping_add(1);
            }
            entry.wake();
            if live {
                self.disarmed(now, owner, &hardware);
            }
        }
        self.waiting = SlotSet::new();
        self.changed.wake_all();
    }
}

/// Switches off what `which` names and waits until it has drained: not at all where there is
/// nothing, else 1 to 10 ms for all of it.
async fn tear_down<P: Platform>(shared: &Shared<P>, keep: bool, which: impl Fn(&Entry) -> bool) {
    let now = shared.platform.now();
    let registry = &shared.notifications;
    if !registry.with(|registry| registry.halt(&shared.registers, now, keep, &which)) {
        return;
    }
    loop {
        let now = shared.platform.now();
        let moved = registry.move_on(shared, now);
        if moved.all_ones {
            // Tells everybody where the device is gone.
            let _ = shared.misc_ram(misc_ram::DEVICE_ID);
        }
        if !registry.with(|registry| registry.drains(&which)) {
            return;
        }
        shared.platform.sleep(DRAIN_LOOK).await;
    }
}

/// Stage 1 of a reset: queues of the map go off and drain; their memory is kept (05 §11.4).
pub(crate) async fn before_reset<P: Platform>(shared: &Shared<P>, map: CoreMap) {
    shared.notifications.with(|registry| registry.watches.cancel(map));
    tear_down(shared, true, |entry| Registry::covered(entry, map)).await;
}

/// Stage 5: memory is freed where nothing can write it any more; `proof` where a reset was really
/// carried out.
pub(crate) fn after_reset<P: Platform>(shared: &Shared<P>, map: CoreMap, proof: bool) {
    shared.notifications.with(|registry| registry.release(&shared.hal, map, proof));
}

/// The queues of a client that leaves (05 §10.2 step 6).
pub(super) async fn end_client<P: Platform>(shared: &Shared<P>, client: ClientId) {
    tear_down(shared, false, |entry| entry.owner == client).await;
}

/// One queue.
pub(super) async fn end_queue<P: Platform>(shared: &Shared<P>, name: QueueName) {
    let slot = usize::from(name.slot);
    let registers = shared.notifications.with(|registry| {
        registry.entries.get(slot).filter(|e| e.generation == name.generation).map(Entry::registers)
    });
    if let Some(registers) = registers {
        tear_down(shared, false, |entry| entry.registers() == registers).await;
    }
}

/// Every queue: the device is about to be removed (05 §5 T7).
pub(crate) async fn before_removal<P: Platform>(shared: &Shared<P>) {
    tear_down(shared, false, |_| true).await;
}

/// Puts an old ring away and waits until it has drained; its memory is kept under `spare`.
pub(super) async fn retire<P: Platform>(
    shared: &Shared<P>,
    name: QueueName,
    spare: QueueName,
) -> bool {
    let now = shared.platform.now();
    let registry = &shared.notifications;
    if !registry.with(|registry| registry.retire(&shared.registers, name, spare, now)) {
        return false;
    }
    loop {
        registry.move_on(shared, shared.platform.now());
        let halting = |registry: &mut Registry| {
            registry.entry(spare).is_some_and(|old| matches!(old.status, Status::Halting { .. }))
        };
        if !registry.with(halting) {
            return true;
        }
        shared.platform.sleep(DRAIN_LOOK).await;
    }
}
