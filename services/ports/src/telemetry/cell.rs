//! One number: a counter that only grows, or a gauge with its high-water mark.
//!
//! All updates are relaxed atomics. A reader may see an update of one number without that of
//! another; nothing is ever derived from two of them that has to be exact.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Counter(AtomicU64::new(0))
    }

    /// Adds `amount`; one locked instruction.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds 1.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// The number now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a [`Gauge`] shows (specification 07 §9.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GaugeReading {
    /// The level now.
    pub total: u64,
    /// Size of the last change, in either direction. Not a level; the old name is kept.
    pub present: u64,
    /// Highest level since the start or the last [`Gauge::rebase_peak`].
    pub peak: u64,
}

/// A level with its high-water mark.
#[derive(Default, Debug)]
pub struct Gauge {
    total: AtomicU64,
    present: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    /// Level 0.
    pub const fn new() -> Self {
        Gauge { total: AtomicU64::new(0), present: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Raises the level; a change of 0 leaves no mark.
    #[inline]
    pub fn grow(&self, amount: u64) {
        if amount != 0 {
            let total = self.total.fetch_add(amount, Ordering::Relaxed).wrapping_add(amount);
            self.present.store(amount, Ordering::Relaxed);
            self.peak.fetch_max(total, Ordering::Relaxed);
        }
    }

    /// Lowers the level, to 0 at most; a change of 0 leaves no mark.
    #[inline]
    pub fn shrink(&self, amount: u64) {
        if amount != 0 {
            let lower = |total: u64| Some(total.saturating_sub(amount));
            let _ = self.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
            self.present.store(amount, Ordering::Relaxed);
        }
    }

    /// Forgets earlier peaks: the high-water mark becomes the level now.
    pub fn rebase_peak(&self) {
        self.peak.store(self.total.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The level now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// All three numbers.
    pub fn read(&self) -> GaugeReading {
        GaugeReading {
            total: self.total.load(Ordering::Relaxed),
            present: self.present.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn present_is_the_last_change_not_a_level() {
        let gauge = Gauge::new();
        gauge.grow(8192);
        assert_eq!(gauge.read(), GaugeReading { total: 8192, present: 8192, peak: 8192 });
        gauge.grow(4096);
        gauge.shrink(8192);
        assert_eq!(gauge.read(), GaugeReading { total: 4096, present: 8192, peak: 12288 });
        gauge.grow(0);
        gauge.shrink(0);
        assert_eq!(gauge.read().present, 8192, "a change of 0 is none");
    }

    #[test]
    fn tel_e28_a_free_after_a_peak_rebase_never_wraps() {
        let gauge = Gauge::new();
        gauge.grow(8192);
        gauge.shrink(4096);
        gauge.rebase_peak();
        gauge.shrink(4096);
        assert_eq!(gauge.read(), GaugeReading { total: 0, present: 4096, peak: 4096 });
    }

    #[test]
    fn tel_d16_no_call_sets_a_level_and_less_than_nothing_is_nothing() {
        let gauge = Gauge::new();
        gauge.grow(10);
        gauge.rebase_peak();
        gauge.shrink(11);
        gauge.shrink(u64::MAX);
        assert_eq!(gauge.get(), 0, "Linux wraps to about 1.8e19");
    }

    #[test]
    fn tel_d17_no_update_is_lost_between_threads() {
        extern crate std;
        let (gauge, counter) = (Gauge::new(), Counter::new());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        gauge.grow(3);
                        gauge.shrink(2);
                        counter.increment();
                    }
                });
            }
        });
        assert_eq!((gauge.get(), counter.get()), (40_000, 40_000));
        assert!(gauge.read().peak >= 40_000);
    }

    proptest! {
        /// Against plain saturating arithmetic.
        #[test]
        fn it_behaves_like_three_plain_numbers(
            steps in proptest::collection::vec((0..3_u8, 0..1_u64 << 40), 0..64)
        ) {
            let gauge = Gauge::new();
            let mut plain = GaugeReading::default();
            for (what, amount) in steps {
                match what {
                    0 => {
                        gauge.grow(amount);
                        plain.total += amount;
                        plain.peak = plain.peak.max(plain.total);
                    }
                    1 => {
                        gauge.shrink(amount);
                        plain.total = plain.total.saturating_sub(amount);
                    }
                    _ => {
                        gauge.rebase_peak();
                        plain.peak = plain.total;
                    }
                }
                if what < 2 && amount != 0 {
                    plain.present = amount;
                }
                prop_assert_eq!(gauge.read(), plain);
            }
        }
    }
}
