//! How many lines the text log takes: a burst, then a steady rate, so that hardware that fails in a
//! loop cannot drown the console. Lines that were asked for (debug, trace) are not counted.

/// Lines taken at once.
const BURST: u64 = 256;
/// Microseconds that earn one line.
const LINE_MICROS: u64 = 10_000;

/// A bucket of lines.
pub struct Budget {
    lines: u64,
    /// Time up to which lines were earned.
    earned_until: u64,
    suppressed: u64,
}

impl Budget {
    /// A full bucket.
    pub const fn new() -> Budget {
        Budget { lines: BURST, earned_until: 0, suppressed: 0 }
    }

    /// Takes one line at a time in microseconds: how many were suppressed since the last one, or
    /// `None` where this one is too.
    pub fn take(&mut self, micros: u64) -> Option<u64> {
        let earned = micros.saturating_sub(self.earned_until) / LINE_MICROS;
        self.lines = (self.lines + earned).min(BURST);
        self.earned_until += earned * LINE_MICROS;
        match self.lines.checked_sub(1) {
            Some(left) => {
                self.lines = left;
                Some(core::mem::take(&mut self.suppressed))
            }
            None => {
                self.suppressed += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_a_steady_rate_and_the_rest_is_counted() {
        let mut budget = Budget::new();
        assert!((0..BURST).all(|_| budget.take(5) == Some(0)));
        assert_eq!(budget.take(6), None);
        assert_eq!(budget.take(LINE_MICROS - 1), None);
        assert_eq!(budget.take(LINE_MICROS), Some(2));
        assert_eq!(budget.take(LINE_MICROS + 1), None);
        // A long silence fills the bucket, no more.
        let later = 1_000_000_000;
        assert_eq!(budget.take(later), Some(1));
        assert!((1..BURST).all(|_| budget.take(later) == Some(0)));
        assert_eq!(budget.take(later), None);
    }

    #[test]
    fn time_that_stands_still_or_runs_backwards_earns_nothing() {
        let mut budget = Budget::new();
        assert!((0..BURST).all(|_| budget.take(LINE_MICROS).is_some()));
        assert_eq!(budget.take(LINE_MICROS), None);
        assert_eq!(budget.take(0), None);
    }
}
