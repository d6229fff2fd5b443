//! Who sleeps until when: the timer driver behind [`Platform::sleep_until`] and `embassy-time`.
//!
//! The queue is looked at by the executor loop, once a turn: one comparison with the time-stamp
//! counter while nothing is due. No interrupt is involved until the processor halts.
//!
//! [`Platform::sleep_until`]: axon_platform::Platform::sleep_until

use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::task::Waker;

use axon_platform::Instant;
use critical_section::Mutex;
use embassy_time_driver::Driver;
use embassy_time_queue_utils::queue_generic::ConstGenericQueue;

use super::clock;
use crate::processor::time_stamp;

/// Sleeping tasks. One more than fits wakes all others, which go back to sleep: slow, not wrong.
const SLEEPERS: usize = 256;

struct Timers {
    queue: Mutex<RefCell<ConstGenericQueue<SLEEPERS>>>,
}

embassy_time_driver::time_driver_impl!(static TIMERS: Timers = Timers {
    queue: Mutex::new(RefCell::new(ConstGenericQueue::new())),
});

/// Time-stamp at which the first of them is due; all-ones without one.
static DUE: AtomicU64 = AtomicU64::new(u64::MAX);

impl Driver for Timers {
    #[inline]
    fn now(&self) -> u64 {
        clock::now().as_nanos()
    }

    fn schedule_wake(&self, at: u64, waker: &Waker) {
        critical_section::with(|section| {
            if self.queue.borrow_ref_mut(section).schedule_wake(at, waker) {
                let due = clock::time_stamp_at(Instant::from_nanos(at));
                DUE.store(DUE.load(Relaxed).min(due), Relaxed);
            }
        });
    }
}

/// Whether some task's time has come.
#[inline]
pub fn is_due() -> bool {
    time_stamp() >= DUE.load(Relaxed)
}

/// Wakes the tasks whose time has come.
#[inline]
pub fn wake_due() {
    if is_due() {
        wake_due_now();
    }
}

#[cold]
fn wake_due_now() {
    critical_section::with(|section| {
        let now = clock::now().as_nanos();
        let next = TIMERS.queue.borrow_ref_mut(section).next_expiration(now);
        let due = clock::time_stamp_at(Instant::from_nanos(next));
        DUE.store(due, Relaxed);
    });
}

/// Time-stamp at which the next task is due; all-ones without one.
pub fn next_due() -> u64 {
    DUE.load(Relaxed)
}
