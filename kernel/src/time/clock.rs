//! The clock: nanoseconds since the entry point, from the time-stamp counter.
//!
//! Two multiplications by fixed-point factors convert both ways; nothing divides.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axon_platform::Instant;

use crate::processor::time_stamp;

/// Fraction bits of the factors.
const FRACTION: u32 = 32;

static ORIGIN: AtomicU64 = AtomicU64::new(0);
static NANOS_PER_TICK: AtomicU64 = AtomicU64::new(1 << FRACTION);
static TICKS_PER_NANO: AtomicU64 = AtomicU64::new(1 << FRACTION);
static MAIN: AtomicU64 = AtomicU64::new(0);

/// Counts from `origin` on, a value of the time-stamp counter, in ticks of 1 ns until
/// [`set_rate`].
pub fn init(origin: u64) {
    ORIGIN.store(origin, Relaxed);
}

/// Sets how fast the time-stamp counter runs.
pub fn set_rate(hertz: u64) {
    let (nanos, ticks) = factors(hertz);
    NANOS_PER_TICK.store(nanos, Relaxed);
    TICKS_PER_NANO.store(ticks, Relaxed);
}

/// Time since the entry point.
#[inline]
pub fn now() -> Instant {
    at(time_stamp())
}

/// Time since the entry point at a value of the time-stamp counter; begins anew after 584 years.
#[inline]
pub fn at(time_stamp: u64) -> Instant {
    let ticks = time_stamp.wrapping_sub(ORIGIN.load(Relaxed));
    Instant::from_nanos(product(ticks, NANOS_PER_TICK.load(Relaxed)) as u64)
}

/// Length of a span of the time-stamp counter, in nanoseconds.
#[inline]
pub fn nanos(ticks: u64) -> u64 {
    scale(ticks, NANOS_PER_TICK.load(Relaxed))
}

/// The value of the time-stamp counter at which [`now`] has reached `instant`; all-ones for one
/// that is never reached.
pub fn time_stamp_at(instant: Instant) -> u64 {
    let ticks = scale(instant.as_nanos(), TICKS_PER_NANO.load(Relaxed));
    // One tick more, because both factors were rounded down.
    ticks.saturating_add(1).saturating_add(ORIGIN.load(Relaxed))
}

/// Notes that the application starts now.
pub fn mark_main() {
    MAIN.store(time_stamp(), Relaxed);
}

/// Ticks from the entry point until now.
pub fn since_entry() -> u64 {
    time_stamp().wrapping_sub(ORIGIN.load(Relaxed))
}

/// Ticks from the entry point to the application's start.
pub fn entry_to_main() -> u64 {
    MAIN.load(Relaxed).wrapping_sub(ORIGIN.load(Relaxed))
}

fn factors(hertz: u64) -> (u64, u64) {
    let hertz = u128::from(hertz.max(1));
    let nanos = (1_000_000_000u128 << FRACTION) / hertz;
    let ticks = (hertz << FRACTION) / 1_000_000_000;
    (u64::try_from(nanos).unwrap_or(u64::MAX), u64::try_from(ticks).unwrap_or(u64::MAX))
}

#[inline]
fn scale(value: u64, factor: u64) -> u64 {
    u64::try_from(product(value, factor)).unwrap_or(u64::MAX)
}

#[inline]
fn product(value: u64, factor: u64) -> u128 {
    (u128::from(value) * u128::from(factor)) >> FRACTION
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_of_one_gigahertz_counts_nanoseconds() {
        let (nanos, ticks) = factors(1_000_000_000);
        assert_eq!(scale(123_456_789_012, nanos), 123_456_789_012);
        assert_eq!(scale(u64::MAX, ticks), u64::MAX);
    }

    proptest! {
        /// A month after start, at any plausible rate, the clock is right to a millionth, and a
        /// deadline converted there and back is not missed by more than a microsecond.
        #[test]
        fn conversions_agree(hertz in 100_000_000u64..6_000_000_000, seconds in 0u64..2_600_000) {
            let (nanos, ticks) = factors(hertz);
            let elapsed = seconds * hertz;
            let exact = seconds * 1_000_000_000;
            prop_assert!(scale(elapsed, nanos).abs_diff(exact) <= exact / 1_000_000);
            let there = scale(exact, ticks) + 1;
            prop_assert!(there.abs_diff(elapsed) <= elapsed / 1_000_000 + 1);
        }
    }
}
