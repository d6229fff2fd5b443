//! What guards have given up since the owner last looked: one word a core, so that dropping a guard
//! never blocks, never fails and never allocates.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bits 63:32: the generation that counts. A guard of any other generation has lost its hold.
const GENERATION_SHIFT: u32 = 32;
/// The writer became a reader.
const DOWNGRADED: u64 = 1 << 31;
/// The writer, or the initialiser, left without finishing.
const ABANDONED: u64 = 1 << 30;
/// Bits 29:0: readers that left.
const READERS: u64 = ABANDONED - 1;

/// Readers that a core can have at a time: as many as the word can count.
pub(super) const MOST_READERS: u32 = READERS as u32;

/// What a cell has collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Released {
    pub(super) downgraded: bool,
    pub(super) abandoned: bool,
    pub(super) readers: u32,
}

pub(super) struct ReleaseCell(AtomicU64);

impl ReleaseCell {
    pub(super) const fn new() -> Self {
        ReleaseCell(AtomicU64::new(0))
    }

    /// Guard: one reader leaves.
    pub(super) fn leave(&self, generation: u32) -> bool {
        self.change(generation, |word| word + 1)
    }

    /// Guard: the writer goes on as the only reader.
    pub(super) fn downgrade(&self, generation: u32) -> bool {
        self.change(generation, |word| word | DOWNGRADED)
    }

    /// Guard: the writer or initialiser leaves without finishing.
    pub(super) fn abandon(&self, generation: u32) -> bool {
        self.change(generation, |word| word | ABANDONED)
    }

    /// Whether a guard of `generation` still holds what it was given.
    pub(super) fn is_current(&self, generation: u32) -> bool {
        self.0.load(Ordering::Acquire) >> GENERATION_SHIFT == u64::from(generation)
    }

    /// Owner: from now on only guards of `generation` count.
    pub(super) fn begin(&self, generation: u32) {
        self.0.store(u64::from(generation) << GENERATION_SHIFT, Ordering::Release);
    }

    /// Owner: takes what was collected.
    pub(super) fn take(&self) -> Released {
        let word = self.0.fetch_and(!u64::from(u32::MAX), Ordering::AcqRel);
        Released {
            downgraded: word & DOWNGRADED != 0,
            abandoned: word & ABANDONED != 0,
            readers: (word & READERS) as u32,
        }
    }

    /// Answers whether the guard's generation still counts.
    fn change(&self, generation: u32, change: impl Fn(u64) -> u64) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word >> GENERATION_SHIFT == u64::from(generation)).then(|| change(word))
            })
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_add_up_and_are_taken_once() {
        let cell = ReleaseCell::new();
        cell.begin(7);
        assert!(cell.downgrade(7) && cell.leave(7) && cell.leave(7));
        let taken = cell.take();
        assert_eq!(taken, Released { downgraded: true, abandoned: false, readers: 2 });
        assert_eq!(cell.take(), Released::default());
        assert!(cell.is_current(7));
    }

    #[test]
    fn a_guard_of_an_older_generation_releases_nothing() {
        let cell = ReleaseCell::new();
        cell.begin(7);
        cell.begin(8);
        assert!(!cell.leave(7) && !cell.abandon(7) && !cell.downgrade(7));
        assert_eq!(cell.take(), Released::default());
    }
}
