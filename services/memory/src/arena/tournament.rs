//! A tournament of 64 numbers: who is the lowest-placed one that is large enough?

/// Largest of 64 numbers in a binary tree of maxima. Entry 1 is the root, entries 64 to 127 are the
/// numbers themselves.
pub(super) struct Tournament([u32; 128]);

const MASK: usize = 127;
const LEAVES: usize = 64;

impl Tournament {
    pub(super) const fn new() -> Self {
        Tournament([0; 128])
    }

    /// The largest of all.
    #[inline]
    pub(super) fn largest(&self) -> u32 {
        self.0[1]
    }

    /// Number `place`.
    #[inline]
    pub(super) fn get(&self, place: usize) -> u32 {
        self.0[(LEAVES + place) & MASK]
    }

    /// Sets number `place`; answers whether [`Self::largest`] may have changed.
    #[inline]
    pub(super) fn set(&mut self, place: usize, value: u32) -> bool {
        let mut at = (LEAVES + place) & MASK;
        self.0[at] = value;
        while at > 1 {
            let winner = self.0[at].max(self.0[at ^ 1]);
            at >>= 1;
            if self.0[at] == winner {
                return false;
            }
            self.0[at] = winner;
        }
        true
    }

    /// Makes number `place` at least `value`; answers whether [`Self::largest`] has changed.
    #[inline]
    pub(super) fn raise(&mut self, place: usize, value: u32) -> bool {
        let mut at = (LEAVES + place) & MASK;
        while self.0[at] < value {
            self.0[at] = value;
            if at <= 1 {
                return true;
            }
            at >>= 1;
        }
        false
    }

    /// Lowest place with at least `value`. The caller knows that [`Self::largest`] is enough.
    #[inline]
    pub(super) fn first(&self, value: u32) -> usize {
        let mut at = 1;
        while at < LEAVES {
            at = at * 2 + usize::from(self.0[(at * 2) & MASK] < value);
        }
        at - LEAVES
    }

    /// Lowest place from `place` on with at least `value`.
    pub(super) fn first_from(&self, place: usize, value: u32) -> Option<usize> {
        if place >= LEAVES {
            return None;
        }
        let mut at = LEAVES + place;
        while self.0[at & MASK] < value {
            // Up to the first ancestor that is a left child, then over to its right sibling.
            while at & 1 == 1 {
                at >>= 1;
            }
            if at == 0 {
                return None;
            }
            at += 1;
        }
        while at < LEAVES {
            at = at * 2 + usize::from(self.0[(at * 2) & MASK] < value);
        }
        Some(at - LEAVES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_list(steps in prop::collection::vec((0usize..64, 0u32..9, any::<bool>()), 1..200)) {
            let mut tree = Tournament::new();
            let mut list = [0u32; 64];
            for (place, value, raise) in steps {
                let before = tree.largest();
                let told = if raise {
                    list[place] = list[place].max(value);
                    tree.raise(place, value)
                } else {
                    list[place] = value;
                    tree.set(place, value)
                };
                let largest = *list.iter().max().unwrap();
                prop_assert_eq!(tree.largest(), largest);
                prop_assert!(told || before == largest);
                prop_assert_eq!(tree.get(place), list[place]);
                for wanted in 1..10 {
                    for from in [0, place, 63] {
                        let expected = (from..64).find(|&p| list[p] >= wanted);
                        prop_assert_eq!(tree.first_from(from, wanted), expected);
                    }
                    if largest >= wanted {
                        prop_assert_eq!(Some(tree.first(wanted)), tree.first_from(0, wanted));
                    }
                }
                prop_assert_eq!(tree.first_from(64, 1), None);
            }
        }
    }
}
