//! What time is for a served function.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::ModelClock;

/// Source of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Wall time.
    Wall,
    /// Each register read is 5 ms, so that a reset of 20 ms is 4 reads: for guests whose time is
    /// the number of instructions they execute.
    Reads,
}

/// How far one register read moves the clock.
const READ_NS: u64 = 5_000_000;

/// The clock of one service.
#[derive(Debug)]
pub(crate) struct ServerClock {
    time: Time,
    start: Instant,
    reads: AtomicU64,
}

impl ServerClock {
    pub fn new(time: Time) -> Self {
        ServerClock { time, start: Instant::now(), reads: AtomicU64::new(0) }
    }

    /// How long until `at_ns`, in wall time; `None` where waiting does not bring it nearer.
    pub fn wait_ns(&self, at_ns: u64) -> Option<u64> {
        match self.time {
            _ if at_ns <= self.now_ns() => Some(0),
            Time::Wall => Some(at_ns - self.now_ns()),
            Time::Reads => None,
        }
    }
}

impl ModelClock for ServerClock {
    fn now_ns(&self) -> u64 {
        match self.time {
            Time::Wall => self.start.elapsed().as_nanos() as u64,
            Time::Reads => self.reads.load(Ordering::Relaxed) * READ_NS,
        }
    }

    fn register_was_read(&self) {
        if self.time == Time::Reads {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_four_reads() {
        let clock = ServerClock::new(Time::Reads);
        assert_eq!(clock.wait_ns(20_000_000), None);
        (0..4).for_each(|_| clock.register_was_read());
        assert_eq!((clock.now_ns(), clock.wait_ns(20_000_000)), (20_000_000, Some(0)));
    }

    #[test]
    fn wall_time_can_be_waited_for() {
        let clock = ServerClock::new(Time::Wall);
        clock.register_was_read();
        assert_eq!(clock.wait_ns(0), Some(0));
        assert!(clock.wait_ns(1 << 60).is_some_and(|wait| wait > 1 << 59));
    }
}
