//! Virtual time. It moves only when the executor says so: to the next timer or model event once
//! every task waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use axon_model::ModelClock;
use axon_platform::Instant;

/// The clock of one machine: the time and the timers that wait for it.
pub(crate) struct Clock {
    now: AtomicU64,
    timers: Mutex<Timers>,
}

/// Timers in slots that are used again, so that a timer costs no allocation once warm. There are
/// few of them; the earliest is found by looking at all.
#[derive(Default)]
struct Timers {
    slots: Vec<Option<(Instant, Waker)>>,
    free: Vec<usize>,
}

impl Clock {
    pub(crate) fn new() -> Arc<Clock> {
        Arc::new(Clock { now: AtomicU64::new(0), timers: Mutex::default() })
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.now.load(Ordering::Acquire))
    }

    /// Earliest deadline that somebody waits for.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers().slots.iter().flatten().map(|(deadline, _)| *deadline).min()
    }

    /// Moves time forward to `to` (never back) and wakes whoever waited for it, once: a timer that
    /// nobody polls again must not hold time where it is.
    pub(crate) fn advance(&self, to: Instant) {
        self.now.fetch_max(to.as_nanos(), Ordering::AcqRel);
        let now = self.now();
        for slot in &mut self.timers().slots {
            if let Some((_, waker)) = slot.take_if(|(deadline, _)| *deadline <= now) {
                waker.wake();
            }
        }
    }

    pub(crate) fn sleep_until(self: &Arc<Self>, deadline: Instant) -> Sleep {
        Sleep { clock: self.clone(), deadline, slot: None }
    }

    fn timers(&self) -> MutexGuard<'_, Timers> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelClock for Clock {
    fn now_ns(&self) -> u64 {
        self.now().as_nanos()
    }
}

/// Future of [`Clock::sleep_until`].
pub(crate) struct Sleep {
    clock: Arc<Clock>,
    deadline: Instant,
    slot: Option<usize>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.deadline {
            return Poll::Ready(());
        }
        let clock = self.clock.clone();
        let mut timers = clock.timers();
        let entry = (self.deadline, cx.waker().clone());
        match self.slot {
            Some(slot) => timers.slots[slot] = Some(entry),
            None => {
                let slot = match timers.free.pop() {
                    Some(slot) => {
                        timers.slots[slot] = Some(entry);
                        slot
                    }
                    None => {
                        timers.slots.push(Some(entry));
                        timers.slots.len() - 1
                    }
                };
                self.slot = Some(slot);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut timers = self.clock.timers();
            timers.slots[slot] = None;
            timers.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn a_timer_that_is_over_and_not_looked_at_does_not_hold_time() {
        let clock = Clock::new();
        let mut context = Context::from_waker(Waker::noop());
        let at = Instant::from_nanos;
        let mut first = pin!(clock.sleep_until(at(10)));
        let mut second = pin!(clock.sleep_until(at(20)));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        clock.advance(at(10));
        assert_eq!(clock.next_timer(), Some(at(20)));
        clock.advance(at(20));
        assert_eq!(clock.next_timer(), None);
        assert!(first.as_mut().poll(&mut context).is_ready());
        assert!(second.as_mut().poll(&mut context).is_ready());
    }
}
