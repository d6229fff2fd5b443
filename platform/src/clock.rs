//! Time alone, for services that never touch a device.

use core::future::Future;

use crate::{Instant, Platform};

/// Monotonic time and timers: the part of a [`Platform`] that a task needs which only keeps
/// deadlines. Every platform is one; a test may bring less than a machine.
pub trait Clock: Clone + Send + Sync + 'static {
    /// Monotonic time.
    fn now(&self) -> Instant;

    /// Resolves at `deadline`, or soon after.
    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static;
}

impl<P: Platform> Clock for P {
    fn now(&self) -> Instant {
        Platform::now(self)
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send + 'static {
        Platform::sleep_until(self, deadline)
    }
}
