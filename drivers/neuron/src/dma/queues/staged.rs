//! Which slots of a ring hold descriptors that were checked, and what memory those name
//! (specification 03 §5.4). Neighbouring slots that name the same chunk are one run, so that a ring
//! of millions of descriptors costs what its chunks cost.

use alloc::vec::Vec;

use axon_ports::{ChunkName, Pin};

use crate::Error;

/// Slots in a row that name the same memory.
struct Run {
    first: u32,
    count: u32,
    /// Holds the chunk; `None` for the window of a core.
    pin: Option<Pin>,
}

impl Run {
    fn end(&self) -> u32 {
        self.first + self.count
    }

    fn name(&self) -> Option<ChunkName> {
        self.pin.as_ref().map(|pin| pin.header().name())
    }

    /// The part of the run that lies in `[first, end)`.
    fn part(&self, first: u32, end: u32) -> Option<Run> {
        let (first, end) = (self.first.max(first), self.end().min(end));
        (first < end).then(|| Run { first, count: end - first, pin: self.pin.clone() })
    }
}

/// The checked slots of one ring.
#[derive(Default)]
pub(crate) struct Staged {
    /// Ascending, without overlap.
    runs: Vec<Run>,
}

impl Staged {
    /// Slots `first` and up hold descriptors that name `targets`; what was there is let go.
    ///
    /// # Errors
    /// [`Error::NoRecords`]; nothing has changed.
    pub(crate) fn replace(&mut self, first: u32, targets: &[Option<Pin>]) -> Result<(), Error> {
        self.change(first, targets.len() as u32, targets)
    }

    /// `count` slots from `first` on hold nothing any more.
    ///
    /// # Errors
    /// As [`Staged::replace`].
    pub(crate) fn forget(&mut self, first: u32, count: u32) -> Result<(), Error> {
        self.change(first, count, &[])
    }

    fn change(&mut self, first: u32, count: u32, targets: &[Option<Pin>]) -> Result<(), Error> {
        let end = first.saturating_add(count);
        let mut runs = Runs(Vec::new());
        for run in &self.runs {
            runs.push(run.part(0, first))?;
        }
        for (at, pin) in targets.iter().enumerate() {
            runs.push(Some(Run { first: first + at as u32, count: 1, pin: pin.clone() }))?;
        }
        for run in &self.runs {
            runs.push(run.part(end, u32::MAX))?;
        }
        self.runs = runs.0;
        Ok(())
    }

    /// Whether all of `count` slots from `first` on, in a ring of `length`, were checked.
    pub(crate) fn covers(&self, first: u32, count: u32, length: u32) -> bool {
        let ahead = count.min(length.saturating_sub(first));
        self.covers_row(first, ahead) && self.covers_row(0, count - ahead)
    }

    fn covers_row(&self, first: u32, count: u32) -> bool {
        let end = first.saturating_add(count);
        let mut at = first;
        let behind = self.runs.partition_point(|run| run.end() <= first);
        for run in self.runs.iter().skip(behind) {
            if at >= end || run.first > at {
                break;
            }
            at = run.end();
        }
        at >= end
    }

    /// Memory that the descriptors name.
    pub(crate) fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.runs.iter().filter_map(|run| run.pin.as_ref())
    }
}

/// Runs under construction; equal neighbours become one.
struct Runs(Vec<Run>);

impl Runs {
    fn push(&mut self, run: Option<Run>) -> Result<(), Error> {
        let Some(run) = run else { return Ok(()) };
        if let Some(last) = self.0.last_mut()
            && last.end() == run.first
            && last.name() == run.name()
        {
            last.count += run.count;
            return Ok(());
        }
        self.0.try_reserve(1).map_err(|_| Error::NoRecords)?;
        self.0.push(run);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::FakeMemory;

    #[test]
    fn slots_around_a_wrap_are_looked_at_on_both_sides() {
        let mut staged = Staged::default();
        staged.replace(0, &vec![None; 4]).unwrap();
        staged.replace(60, &vec![None; 4]).unwrap();
        assert!(staged.covers(60, 8, 64));
        assert!(!staged.covers(60, 9, 64));
        assert!(!staged.covers(59, 1, 64));
        assert!(staged.covers(0, 4, 64) && !staged.covers(3, 2, 64));
        staged.forget(1, 2).unwrap();
        assert!(staged.covers(0, 1, 64) && staged.covers(3, 1, 64) && !staged.covers(0, 2, 64));
        assert!(!Staged::default().covers(0, 1, 64) && Staged::default().covers(0, 0, 64));
    }

    proptest! {
        /// Against one cell a slot.
        #[test]
        fn runs_say_what_single_slots_say(
            steps in prop::collection::vec((0u32..40, prop::collection::vec(0usize..4, 1..9)), 1..20)
        ) {
            let mut memory = FakeMemory::new();
            let chunks: Vec<_> = (0..3).map(|n| memory.device(n << 20, 4096, None)).collect();
            let mut staged = Staged::default();
            let mut oracle = vec![None; 48];
            for (first, targets) in steps {
                let pins: Vec<_> =
                    targets.iter().map(|&n| chunks.get(n).and_then(|chunk| chunk.pin())).collect();
                staged.replace(first, &pins).unwrap();
                for (at, &target) in targets.iter().enumerate() {
                    oracle[first as usize + at] = Some(target);
                }
                for at in 0..48u32 {
                    prop_assert_eq!(staged.covers(at, 1, 48), oracle[at as usize].is_some());
                }
                let used = |n: usize| oracle.contains(&Some(n));
                drop(pins);
                for (n, chunk) in chunks.iter().enumerate() {
                    prop_assert_eq!(chunk.header().pins() > 0, used(n));
                }
            }
            drop(staged);
            prop_assert!(chunks.iter().all(|chunk| chunk.header().pins() == 0));
        }
    }
}
