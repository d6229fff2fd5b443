//! What happens to a ring whose oldest batch does not end (specification 03 §7.8-1, 02 §10).
//!
//! The ring is paused and given 10 ms to drain. If it does, it is re-programmed and goes on; if it
//! does not, or the engine shows an abort, it takes no work until a reset that covers its engine.
//! Either way every batch on it ends, and memory that is not proven quiet stays pinned.

use axon_platform::{Instant, MmioWindow};
use core::time::Duration;

use super::engine;
use super::report::{EngineReport, Stop, has_aborted};
use super::ring::{Phase, Ring};
use super::slab::{Hardware, MAX_LAPS, Outcome};
use crate::CancelCause;
use crate::hal::{BatchKind, Budget, Hal};
use crate::registers::misc_ram;

/// How long a paused ring may take until nothing is under way.
pub(crate) const DRAIN: Duration = Duration::from_millis(10);
/// A batch is looked at this long after it could have ended, and no more often; a large one at tenths
/// of its budget, so that nobody looks who only has much to wait for.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS: u32 = 10;

/// The first look, after `now`, at the engine of a batch that waits since `since`; its deadline where
/// that comes first.
fn next_look(since: Instant, now: Instant, budget: &Budget) -> Instant {
    let period = LOOK.max(budget.total() / LOOKS).as_nanos() as u64;
    let first = since + Duration::from_micros(budget.first_us);
    let looks = now.since(first).as_nanos() as u64 / period + 1;
    (first + Duration::from_nanos(period.saturating_mul(looks))).min(since + budget.total())
}

/// What came of looking at a ring that makes no progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attention {
    /// Nothing to do yet.
    Wait,
    /// The oldest batch failed; the ring drains and must not be given work.
    Draining,
    /// The ring was re-programmed and goes on.
    Recovered,
    /// The ring takes no more work.
    Faulted,
    /// The function answers all-ones.
    Gone,
}

/// What a look at the hardware needs.
pub(crate) struct Look<'a, W> {
    /// Register window.
    pub registers: &'a W,
    /// The device.
    pub hal: &'a Hal,
    /// Time of this turn.
    pub now: Instant,
    /// Registers read so far.
    pub reads: u64,
}

impl<W: MmioWindow> Look<'_, W> {
    /// Whether the function is gone: to be asked when a register reads all-ones (01 §5).
    pub(crate) fn is_gone(&mut self) -> bool {
        self.reads += 1;
        let device_id = self.hal.tables().map.misc_ram + misc_ram::DEVICE_ID;
        self.registers.read32(device_id) == misc_ram::ALL_ONES
    }
}

impl Ring {
    /// Looks after a ring on which nothing has ended this turn.
    pub(crate) fn attend<W: MmioWindow>(&mut self, look: &mut Look<'_, W>) -> Attention {
        match self.phase {
            Phase::Running => self.attend_running(look),
            Phase::Draining { until, waited_us } => self.attend_draining(look, until, waited_us),
            Phase::Closing | Phase::Stopped => Attention::Wait,
        }
    }

    /// The clock of a batch starts when it becomes the oldest of its ring: one that waits behind
    /// others must not be late before it has begun. For a batch alone that is its doorbell.
    // assumed: 03 §7.5 counts from the trigger; its own text has one batch a ring in flight.
    #[inline(always)]
    fn attend_running<W: MmioWindow>(&mut self, look: &mut Look<'_, W>) -> Attention {
        if self.oldest_since.is_some() && look.now < self.look_at {
            return Attention::Wait;
        }
        self.attend_due(look)
    }

    /// Begins to wait for the oldest batch, looks at its engine, or gives it up.
    #[inline(never)]
    fn attend_due<W: MmioWindow>(&mut self, look: &mut Look<'_, W>) -> Attention {
        let Some(oldest) = self.in_flight.first() else { return Attention::Wait };
        let data = self.slab[oldest].count.saturating_sub(1);
        let budget = look.hal.budget(data, BatchKind::Sync);
        let Some(since) = self.oldest_since else {
            self.oldest_since = Some(look.now);
            self.look_at = next_look(look.now, look.now, &budget);
            return Attention::Wait;
        };
        let waited = look.now.since(since);
        if waited >= budget.total() {
            // One last read after the deadline has passed.
            if self.sweep() > 0 {
                return Attention::Wait;
            }
            return self.begin_fault(look, waited);
        }
        self.look_at = next_look(since, look.now, &budget);
        look.reads += 2;
        let (m2s_state, s2m_state) = engine::states(look.registers, self.name.unit);
        let report = EngineReport { m2s_state, s2m_state, ..EngineReport::default() };
        if report.is_aborted() || report.is_all_ones() {
            return self.begin_fault(look, waited);
        }
        Attention::Wait
    }

    #[cold]
    fn begin_fault<W: MmioWindow>(
        &mut self,
        look: &mut Look<'_, W>,
        waited: Duration,
    ) -> Attention {
        let report = self.diagnose(look);
        if report.is_all_ones() && look.is_gone() {
            return Attention::Gone;
        }
        let waited_us = waited.as_micros() as u64;
        let aborted = report.is_aborted();
        log::error!(
            "{} {}: {} after {waited_us} us with {} batches in flight: {report}",
            self.name.engine,
            self.name.queue,
            if aborted { "engine stopped" } else { "no completion" },
            self.in_flight.len(),
        );
        self.queue.pause(look.registers);
        if aborted {
            self.counters.aborts += 1;
            return self.end_fault(look, Outcome::Aborted(report), false);
        }
        self.counters.timeouts += 1;
        let until = look.now + DRAIN;
        self.phase = Phase::Draining { until, waited_us };
        self.attend_draining(look, until, waited_us)
    }

    /// What the engine says, and at which descriptor of the oldest batch the queue stands.
    fn diagnose<W: MmioWindow>(&mut self, look: &mut Look<'_, W>) -> EngineReport {
        look.reads += engine::DIAGNOSIS_READS + 2;
        let report = engine::diagnose(look.registers, self.name.unit);
        let stop = self.stop(self.queue.currents(look.registers), &report);
        if let Some(oldest) = self.in_flight.first() {
            *self.slab.stop(oldest) = stop;
        }
        report
    }

    /// The side that has stopped on an error counts, else the one that is behind.
    fn stop(&self, currents: [u32; 2], report: &EngineReport) -> Stop {
        let Some(oldest) = self.in_flight.first() else { return Stop::Unknown };
        let [Some(m2s), Some(s2m)] = currents.map(|index| self.cursor.way_to(index)) else {
            return Stop::Unknown;
        };
        let is_m2s = match (has_aborted(report.m2s_state), has_aborted(report.s2m_state)) {
            (true, false) => true,
            (false, true) => false,
            _ => m2s <= s2m,
        };
        let descriptor = if is_m2s { m2s } else { s2m };
        if descriptor >= self.slab[oldest].count {
            return Stop::Executed;
        }
        let slot = if is_m2s { currents[0] } else { currents[1] };
        let (tx, rx) = self.memory.load(slot);
        let is_logged = if is_m2s { tx == report.m2s_log } else { rx == report.s2m_log };
        Stop::At { descriptor, slot, is_logged }
    }

    fn attend_draining<W: MmioWindow>(
        &mut self,
        look: &mut Look<'_, W>,
        until: Instant,
        waited_us: u64,
    ) -> Attention {
        look.reads += 2;
        if self.queue.is_drained(look.registers) {
            return self.end_fault(look, Outcome::Late { waited_us }, true);
        }
        if look.now < until {
            return Attention::Draining;
        }
        let report = self.diagnose(look);
        if report.is_all_ones() && look.is_gone() {
            return Attention::Gone;
        }
        let failure = match report.is_aborted() {
            true => Outcome::Aborted(report),
            false => Outcome::Late { waited_us },
        };
        self.end_fault(look, failure, false)
    }

    /// Ends every batch of the ring: the oldest with what happened to it, the others as done where
    /// their marker is there, else as cancelled.
    fn end_fault<W: MmioWindow>(
        &mut self,
        look: &mut Look<'_, W>,
        failure: Outcome,
        drained: bool,
    ) -> Attention {
        let mut failure = Some(failure);
        while let Some(slot) = self.slab.pop(&mut self.in_flight) {
            let record = &mut self.slab[slot];
            let seen = self.memory.is_marked(record.marker.pair, record.marker.value);
            let laps = usize::from(record.laps);
            if !seen && drained && laps > 0 && laps < MAX_LAPS {
                failure = None;
                record.hardware = Hardware::Suspended;
                self.slab.push(&mut self.suspended, slot);
                continue;
            }
            let outcome = match failure.take() {
                Some(_) if laps > 0 => Outcome::Cancelled(CancelCause::Reset),
                Some(failure) => failure,
                None if seen => Outcome::Done,
                None => Outcome::Cancelled(CancelCause::RingFault),
            };
            self.end_early(slot, outcome, seen);
        }
        if drained {
            self.program(look.registers);
            self.replay();
            Attention::Recovered
        } else {
            self.phase = Phase::Stopped;
            self.needs_reset = true;
            self.cancel_suspended(CancelCause::Reset);
            Attention::Faulted
        }
    }
}
