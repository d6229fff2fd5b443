//! A reset in the middle: what it catches, and what is issued again afterwards (specification 03
//! §7.8-2, §7.8-4).

use axon_platform::{Instant, MmioWindow};
use core::time::Duration;

use super::engine;
use super::queue::RingPlace;
use super::report::EngineReport;
use super::ring::{Phase, Ring};
use super::slab::{Hardware, MAX_LAPS, Marker, Outcome};
use crate::hal::BatchKind;
use crate::{CancelCause, Hal};

impl Ring {
    /// Whether batches are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.len() != 0
    }

    /// Time that the batches in flight may still take, one after another.
    pub(crate) fn remaining_budget(&self, hal: &Hal, now: Instant) -> Duration {
        let waited = self.oldest_since.map_or(Duration::ZERO, |since| now.since(since));
        let all = self.slab.iter(self.in_flight).fold(Duration::ZERO, |sum, (_, record)| {
            let data = record.count.saturating_sub(1);
            sum.saturating_add(hal.budget(data, BatchKind::Sync).total())
        });
        all.saturating_sub(waited)
    }

    /// Stops the queue for a reset. What was fetched may still run.
    pub(crate) fn pause<W: MmioWindow>(&mut self, registers: &W) {
        self.queue.pause(registers);
        self.phase = Phase::Closing;
    }

    /// Moves the paused queue onto the dummy ring if nothing is under way; answers whether it was.
    pub(crate) fn park<W: MmioWindow>(&self, registers: &W, dummy: RingPlace) -> bool {
        let drained = self.queue.is_drained(registers);
        if drained {
            self.queue.program(registers, dummy, dummy);
        }
        drained
    }

    /// Ends a paused ring once nothing is under way, or with what is there if this is the `last`
    /// look; answers whether to look again. An engine that is `covered` by what follows is not asked
    /// whether it has aborted.
    pub(crate) fn close<W: MmioWindow>(
        &mut self,
        registers: &W,
        last: bool,
        replay: bool,
        covered: bool,
    ) -> bool {
        if self.phase != Phase::Closing {
            return false;
        }
        let drained = self.queue.is_drained(registers);
        if !drained && !last {
            return true;
        }
        self.needs_reset |= !drained || !covered && self.has_aborted(registers);
        self.catch(replay);
        false
    }

    fn has_aborted<W: MmioWindow>(&self, registers: &W) -> bool {
        let (m2s_state, s2m_state) = engine::states(registers, self.name.unit);
        EngineReport { m2s_state, s2m_state, ..EngineReport::default() }.is_aborted()
    }

    /// Whatever has not ended is caught. With `replay` a copy that may be issued again is kept for
    /// that, everything else ends.
    pub(super) fn catch(&mut self, replay: bool) {
        self.sweep();
        self.phase = Phase::Stopped;
        while let Some(slot) = self.slab.pop(&mut self.in_flight) {
            let record = &mut self.slab[slot];
            let again = replay
                && record.hardware != Hardware::Once
                && record.is_repeatable()
                && usize::from(record.laps) < MAX_LAPS;
            if again {
                record.hardware = Hardware::Suspended;
                self.slab.push(&mut self.suspended, slot);
            } else {
                self.end_early(slot, Outcome::Cancelled(CancelCause::Reset), false);
            }
        }
    }

    /// Stages what was suspended once more, in the old order, each with a marker of its own. The
    /// ring was just re-programmed; doorbells are left to the caller.
    pub(crate) fn replay(&mut self) {
        while let Some(slot) = self.slab.pop(&mut self.suspended) {
            let room = self.cursor.free() >= self.slab[slot].count;
            let Some(pair) = (if room { self.lend_pair() } else { None }) else {
                self.end_early(slot, Outcome::Cancelled(CancelCause::Reset), false);
                continue;
            };
            let marker = Marker { pair, value: self.take_value() };
            let span = self.slab[slot].span;
            let list = self.slab[slot].list.take();
            match &list {
                Some(list) => self.write_list(list.pieces(), marker),
                None => self.write_batch(&span, marker),
            };
            let record = &mut self.slab[slot];
            record.list = list;
            record.is_special = true;
            if let Some(old) = record.old_markers.get_mut(usize::from(record.laps)) {
                *old = record.marker;
                record.laps += 1;
            }
            record.marker = marker;
            record.hardware = Hardware::InFlight;
            self.counters.replays += 1;
            self.slab.push(&mut self.in_flight, slot);
        }
    }
}
