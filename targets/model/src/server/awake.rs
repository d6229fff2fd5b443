//! Keeps a processor awake for a moment after each request.
//!
//! A guest's register accesses come one after the other, each a round trip. A processor that goes
//! to sleep between two of them takes longer to wake than the model takes to answer. A thread of
//! the lowest priority, which gives way to any other, spins instead until nothing came for 300 µs.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MOMENT: Duration = Duration::from_micros(300);
const LOWEST_PRIORITY: i32 = 19;

/// The switch between the thread that serves and the thread that spins.
#[derive(Default, Debug)]
pub(crate) struct Awake {
    requests: AtomicU64,
    asleep: AtomicBool,
    ended: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Awake {
    /// A request was received.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.asleep.load(Ordering::Relaxed) {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.asleep.store(false, Ordering::Relaxed);
            self.wake.notify_one();
        }
    }

    /// Ends [`Awake::run`].
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.asleep.store(true, Ordering::Relaxed);
        self.request();
    }

    /// Spins and sleeps until [`Awake::end`].
    pub fn run(&self) {
        // On Linux the priority is one of the calling thread.
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        while !self.ended.load(Ordering::Relaxed) {
            self.spin();
            let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.asleep.store(true, Ordering::Relaxed);
            let _guard = self
                .wake
                .wait_while(guard, |()| {
                    self.asleep.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed)
                })
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn spin(&self) {
        let mut seen = self.requests.load(Ordering::Relaxed);
        let mut since = Instant::now();
        while since.elapsed() < MOMENT && !self.ended.load(Ordering::Relaxed) {
            (0..64).for_each(|_| spin_loop());
            let now = self.requests.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }
}
