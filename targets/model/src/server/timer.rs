//! The thread that lets happen what happens by itself.

use std::sync::PoisonError;
use std::time::Duration;

use super::Shared;
use super::clock::ServerClock;

/// Runs until the service ends.
pub(crate) fn run(shared: &Shared, clock: &ServerClock) {
    let mut state = shared.lock();
    while !state.ended {
        let wait = state.function.next_event().and_then(|at| clock.wait_ns(at));
        state = match wait {
            Some(0) => {
                state.function.advance();
                // A request that came meanwhile goes first: its sender waits 5 s at most.
                drop(state);
                std::thread::yield_now();
                shared.lock()
            }
            Some(wait) => {
                let waited = shared.changed.wait_timeout(state, Duration::from_nanos(wait));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
