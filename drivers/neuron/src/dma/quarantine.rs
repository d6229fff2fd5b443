//! Memory that the hardware may still reach although nobody waits any more (specification 05
//! §17.3).
//!
//! A batch in quarantine keeps its pins and its marker pairs. It leaves by proof only: its late
//! marker, a successful reset that covers its engine, or bus mastering off.
//!
//! What a zero-copy write without its last transfer has written is here too: the markers that were
//! seen had no barrier in front of them (03 §11.2), so they prove nothing. The proof is a barrier
//! that is staged behind it as soon as there is room, or one of the others.

use axon_ports::chunk::record::ChunkRecord;
use axon_ports::{ChunkName, ClientId, Pin, PinPair};

use super::descriptor::Barrier;
use super::memory::PAIRS;
use super::ring::{Phase, Ring};
use super::slab::{Hardware, List, Marker, Outcome, SLOTS, Slot, Span};
use crate::CancelCause;

impl Ring {
    /// Ends a batch that has left the chain of those in flight. `proven` says that its marker was
    /// seen, so that nothing is left to fear from it.
    pub(super) fn end_early(&mut self, slot: Slot, outcome: Outcome, proven: bool) {
        match outcome {
            Outcome::Done => self.counters.completed += 1,
            Outcome::Cancelled(_) => self.counters.cancelled += 1,
            _ => {}
        }
        self.slab[slot].finish(outcome);
        if proven {
            self.quiet(slot);
        } else {
            self.end_fill_read(slot);
            self.slab[slot].hardware = Hardware::Quarantined;
            self.slab.push(&mut self.quarantined, slot);
        }
    }

    /// Batches in quarantine, and memory that waits for a barrier.
    pub(crate) fn quarantined(&self) -> u16 {
        self.quarantined.len().saturating_add(self.unordered.len() as u16)
    }

    /// Keeps memory until a barrier behind everything staged so far has been executed.
    pub(crate) fn keep_until_barrier(&mut self, pin: Pin) {
        if self.unordered.try_reserve(1).is_ok() {
            self.unordered.push(pin);
        } else {
            // Pinned for good is wasteful, and safe.
            core::mem::forget(pin);
        }
    }

    /// Stages a barrier for memory that waits for one; answers whether there was any. It moves a
    /// word of the marker page that nobody looks at: whatever comes later in the queue of requests
    /// may come first, and must not be overwritten.
    pub(crate) fn stage_barrier(&mut self, has_strong_order: bool) -> bool {
        if self.unordered.is_empty() {
            return false;
        }
        let Some(slot) = self.slab.take() else { return false };
        let value = self.take_value();
        let marker = Marker { pair: self.slab[slot].marker.pair, value };
        let (source, destination) = self.memory.arm(SCRATCH, 0);
        let span = Span { source, destination, bytes: 4, fixed_source: false };
        let ordering = match has_strong_order {
            true => [Barrier::None, Barrier::StrongOrder],
            false => [Barrier::Write, Barrier::None],
        };
        self.store_pair(source, destination, 4, ordering[0]);
        let (from, to) = self.memory.arm(marker.pair, value);
        self.store_pair(from, to, 4, ordering[1]);
        self.announce_later(2);
        let pins = match (self.unordered.pop(), self.unordered.pop()) {
            (Some(one), Some(other)) => Some(PinPair::new(one, other)),
            (one, other) => one.or(other).map(PinPair::from),
        };
        let record = &mut self.slab[slot];
        record.enter(value, 2, span);
        record.hardware = Hardware::Once;
        record.awaited = false;
        record.reads_fill_source = false;
        record.is_special = false;
        record.pins = pins;
        self.slab.push(&mut self.in_flight, slot);
        true
    }

    /// Hands the chunks that every batch in quarantine holds to `each`.
    pub(crate) fn each_quarantined(&mut self, mut each: impl FnMut(ChunkName, &ChunkRecord)) {
        let mut list = core::mem::replace(&mut self.quarantined, List::EMPTY);
        while let Some(slot) = self.slab.pop(&mut list) {
            self.slab[slot].each_held().for_each(|(name, chunk)| each(name, chunk));
            self.slab.push(&mut self.quarantined, slot);
        }
        let unordered = self.unordered.iter().map(|pin| pin.header());
        unordered.for_each(|header| each(header.name(), header.record()));
    }

    /// Lets go of what late markers have proven; answers how many batches that were.
    pub(crate) fn sweep_quarantine(&mut self) -> u32 {
        let mut proven = 0;
        let mut list = core::mem::replace(&mut self.quarantined, List::EMPTY);
        while let Some(slot) = self.slab.pop(&mut list) {
            let seen = self.slab[slot]
                .markers()
                .any(|Marker { pair, value }| self.memory.is_marked(pair, value));
            if seen {
                self.quiet(slot);
                proven += 1;
            } else {
                self.slab.push(&mut self.quarantined, slot);
            }
        }
        proven
    }

    /// A reset has proven the engine quiet: nothing is left to fear from any batch of the past.
    pub(crate) fn release_quarantine(&mut self) {
        self.unordered.clear();
        while let Some(slot) = self.slab.pop(&mut self.quarantined) {
            self.quiet(slot);
        }
    }

    /// Ends everything that somebody may wait for; the memory stays pinned.
    pub(crate) fn end_all(&mut self, outcome: Outcome) {
        while let Some(slot) = self.slab.pop(&mut self.in_flight) {
            let Marker { pair, value } = self.slab[slot].marker;
            let seen = self.memory.is_marked(pair, value);
            self.end_early(slot, if seen { Outcome::Done } else { outcome }, seen);
        }
        while let Some(slot) = self.slab.pop(&mut self.suspended) {
            self.end_early(slot, outcome, false);
        }
    }

    /// Ends the batches that were to be issued again.
    pub(crate) fn cancel_suspended(&mut self, why: CancelCause) {
        while let Some(slot) = self.slab.pop(&mut self.suspended) {
            self.end_early(slot, Outcome::Cancelled(why), false);
        }
    }

    /// Whether a batch in flight names memory of `client`.
    pub(crate) fn works_for(&self, client: ClientId) -> bool {
        [self.in_flight, self.suspended].into_iter().any(|list| {
            self.slab.iter(list).any(|(_, record)| {
                record.each_held().any(|(_, chunk)| chunk.owner() == client.number())
            })
        })
    }

    /// Whether nothing of what it ever carried is left: no batch, no quarantine, no failure that
    /// somebody may still collect.
    pub(crate) fn is_over(&self) -> bool {
        let draining = matches!(self.phase, Phase::Draining { .. });
        !self.is_busy() && !draining && !self.needs_reset && usize::from(self.slab.free()) == SLOTS
    }

    /// Lends a marker pair to another lap of a batch.
    pub(super) fn lend_pair(&mut self) -> Option<u16> {
        let word = self.spare_pairs.iter().position(|&used| used != u64::MAX)?;
        let used = self.spare_pairs.get_mut(word)?;
        let bit = used.trailing_ones();
        *used |= 1 << bit;
        Some(SLOTS as u16 + word as u16 * 64 + bit as u16)
    }

    /// Takes lent pairs back and gives the record its own pair again.
    pub(super) fn return_pairs(&mut self, slot: Slot) {
        let record = &self.slab[slot];
        let mut own = record.marker.pair;
        for Marker { pair, .. } in record.markers() {
            match pair.checked_sub(SLOTS as u16) {
                Some(spare) => {
                    if let Some(used) = self.spare_pairs.get_mut(usize::from(spare / 64)) {
                        *used &= !(1 << (spare % 64));
                    }
                }
                None => own = pair,
            }
        }
        let record = &mut self.slab[slot];
        record.marker.pair = own;
        record.laps = 0;
    }
}

/// The pair that a barrier moves.
const SCRATCH: u16 = PAIRS - 1;
/// Which of the pairs behind those of the records are lent: all but the last may be.
pub(super) const NO_PAIR_LENT: [u64; 4] = [0, 0, 0, 1 << 63];

// Every record has a pair of its own and nearly as many pairs are left for further laps.
const _: () = assert!(PAIRS as usize == 2 * SLOTS);
