//! A small set of numbers that is empty most of the time.

/// Numbers below 64 × `WORDS`; `WORDS` is 64 at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotSet<const WORDS: usize> {
    words: [u64; WORDS],
    /// Words that are not 0.
    used: u64,
}

impl<const WORDS: usize> SlotSet<WORDS> {
    /// Empty.
    pub(super) const fn new() -> Self {
        SlotSet { words: [0; WORDS], used: 0 }
    }

    /// Puts a number in or takes it out; one that the set cannot hold is left alone.
    #[inline]
    pub(super) fn set(&mut self, number: usize, is_in: bool) {
        let (at, bit) = (number / 64, 1 << (number % 64));
        let Some(word) = self.words.get_mut(at) else { return };
        if is_in {
            *word |= bit;
            self.used |= 1 << at;
        } else {
            *word &= !bit;
            self.used &= !(u64::from(*word == 0) << at);
        }
    }

    /// The first number from `from` on.
    #[inline]
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let at = from / 64;
        let here = self.words.get(at)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(at * 64 + here.trailing_zeros() as usize);
        }
        // 64 words at most: a shift by two cannot drop what a shift by one too many would.
        let behind = self.used & (u64::MAX << at << 1);
        let word = self.words.get(behind.trailing_zeros() as usize)?;
        Some(behind.trailing_zeros() as usize * 64 + word.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn numbers(set: &SlotSet<8>) -> impl Iterator<Item = usize> {
        core::iter::successors(set.next(0), |number| set.next(number + 1))
    }

    proptest! {
        #[test]
        fn it_is_a_set(changes in prop::collection::vec((0usize..520, any::<bool>()), 0..200)) {
            let (mut set, mut oracle) = (SlotSet::<8>::new(), BTreeSet::new());
            for (number, is_in) in changes {
                set.set(number, is_in);
                match is_in && number < 512 {
                    true => oracle.insert(number),
                    false => oracle.remove(&number),
                };
                prop_assert!(numbers(&set).eq(oracle.iter().copied()));
                prop_assert_eq!(set == SlotSet::new(), oracle.is_empty());
            }
            let all: Vec<usize> = numbers(&set).collect();
            all.iter().for_each(|number| set.set(*number, false));
            prop_assert_eq!(set, SlotSet::new());
        }
    }
}
