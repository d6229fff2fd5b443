//! Names the register that a guest reads over and over.

use serde::Serialize;

/// A register read many times in a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Spin {
    /// Offset in the register window.
    pub offset: u64,
    /// What is there.
    pub name: String,
    /// Longest run of reads without another access between them.
    pub reads: u64,
}

/// Spins remembered at most.
const MOST: usize = 64;

/// Counts equal reads in a row.
#[derive(Debug)]
pub(crate) struct Watchdog {
    limit: u64,
    offset: u64,
    run: u64,
    spins: Vec<Spin>,
}

impl Watchdog {
    /// A run of `limit` reads is a spin.
    pub fn new(limit: u64) -> Self {
        Watchdog { limit: limit.max(1), offset: u64::MAX, run: 0, spins: Vec::new() }
    }

    /// Another access than a register read.
    #[inline]
    pub fn other(&mut self) {
        self.run = 0;
    }

    /// A register read; `true` when its run just became a spin, or ten times as long again.
    #[inline]
    pub fn read(&mut self, offset: u64) -> bool {
        if offset != self.offset {
            (self.offset, self.run) = (offset, 0);
        }
        self.run += 1;
        self.run >= self.limit && self.is_milestone()
    }

    #[cold]
    fn is_milestone(&self) -> bool {
        let mut milestone = self.limit;
        while milestone < self.run {
            milestone = milestone.saturating_mul(10);
        }
        milestone == self.run
    }

    /// Writes the run down under the register's name.
    pub fn note(&mut self, name: String) -> &Spin {
        let place = self.spins.iter().position(|spin| spin.offset == self.offset);
        let place = match place {
            Some(place) => place,
            None => {
                if self.spins.len() == MOST {
                    self.spins.remove(0);
                }
                self.spins.push(Spin { offset: self.offset, name, reads: 0 });
                self.spins.len() - 1
            }
        };
        let spin = &mut self.spins[place];
        spin.reads = spin.reads.max(self.run);
        spin
    }

    pub fn spins(&self) -> &[Spin] {
        &self.spins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_is_named_at_its_limit_and_ten_times_it() {
        let mut watchdog = Watchdog::new(3);
        let alarms: Vec<u64> = (1..=30).filter(|_| watchdog.read(8)).collect();
        assert_eq!(alarms, [3, 30]);
        watchdog.note("STATUS".to_owned());
        assert_eq!(watchdog.spins(), [Spin { offset: 8, name: "STATUS".to_owned(), reads: 30 }]);
    }

    #[test]
    fn other_accesses_end_a_run() {
        let mut watchdog = Watchdog::new(3);
        for _ in 0..100 {
            assert!(!watchdog.read(8) && !watchdog.read(8));
            watchdog.other();
            assert!(!watchdog.read(8) && !watchdog.read(12));
        }
        assert!(watchdog.spins().is_empty());
    }
}
