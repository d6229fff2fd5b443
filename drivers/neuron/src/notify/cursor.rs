//! Where the consumer of a ring is: the phase walk (specification 06 §7.3).
//!
//! Nothing here comes from the device but one bit of a record, so that no device can move the
//! cursor anywhere but one record on.

use super::record::{PHASE, RECORD_BYTES};

/// The consumer's side of one ring of 2ⁿ records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor {
    next: u32,
    mask: u32,
    /// Phase bit of records that are not new.
    stale: bool,
    /// The consumer pointer as the hardware knows it, in records.
    head: u32,
}

impl Cursor {
    /// At the start of a cleared ring of `size_bytes`, a power of two.
    pub(super) const fn new(size_bytes: u32) -> Self {
        let records = size_bytes / RECORD_BYTES;
        Cursor { next: 0, mask: records.saturating_sub(1), stale: false, head: 0 }
    }

    /// Records that the ring has places for.
    pub(super) const fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// Record that is read next.
    #[inline]
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Phase bit of records that are not new, where the cursor is.
    pub(super) const fn stale_phase(&self) -> bool {
        self.stale
    }

    /// Whether the first word of the record at [`Self::next`] says that it is new.
    #[inline]
    pub(super) const fn is_new(&self, first_word: u32) -> bool {
        (first_word & PHASE != 0) != self.stale
    }

    /// The place `ahead` records on, and whether its first word says that it is new.
    pub(super) const fn look_ahead(&self, ahead: u32) -> (u32, bool) {
        let place = self.next.wrapping_add(ahead) & self.mask;
        // Behind the end the phase is the other one.
        (place, self.stale != (place < self.next))
    }

    /// As [`Self::is_new`] for a place of [`Self::look_ahead`].
    pub(super) const fn is_new_at(first_word: u32, stale: bool) -> bool {
        (first_word & PHASE != 0) != stale
    }

    /// One record on.
    #[inline]
    pub(super) const fn advance(&mut self) {
        self.next = (self.next + 1) & self.mask;
        if self.next == 0 {
            self.stale = !self.stale;
        }
    }

    /// Records taken since the hardware was told.
    #[inline]
    pub(super) const fn taken(&self) -> u32 {
        self.next.wrapping_sub(self.head) & self.mask
    }

    /// The last place that the hardware may fill before it is told more, seen from the cursor.
    pub(super) const fn last_place(&self) -> (u32, bool) {
        // One place stays free: a full ring would look empty.
        let last = self.head.wrapping_sub(2) & self.mask;
        self.look_ahead(last.wrapping_sub(self.next) & self.mask)
    }

    /// The place that stays free until the hardware is told more.
    pub(super) const fn gap(&self) -> u32 {
        self.head.wrapping_sub(1) & self.mask
    }

    /// The hardware is told; answers the consumer pointer in bytes.
    pub(super) const fn tell(&mut self) -> u32 {
        self.head = self.next;
        self.next * RECORD_BYTES
    }

    /// Records between the cursor and a producer pointer; `None` for one that no record of the
    /// ring has.
    pub(super) const fn behind(&self, tail_bytes: u32) -> Option<u32> {
        let record = tail_bytes / RECORD_BYTES;
        if !tail_bytes.is_multiple_of(RECORD_BYTES) || record > self.mask {
            return None;
        }
        Some(record.wrapping_sub(self.next) & self.mask)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nq_e20_nq_e21_three_records_and_the_wrap() {
        let mut cursor = Cursor::new(4096);
        assert_eq!(cursor.capacity(), 256);
        assert!(!cursor.is_new(0) && cursor.is_new(PHASE));
        (0..256).for_each(|_| cursor.advance());
        assert_eq!((cursor.next(), cursor.stale_phase()), (0, true));
        assert!(cursor.is_new(0) && !cursor.is_new(PHASE | 7));
    }

    #[test]
    fn the_last_place_is_two_before_the_consumer_pointer() {
        let mut cursor = Cursor::new(4096);
        assert_eq!(cursor.last_place(), (254, false));
        assert_eq!(cursor.gap(), 255);
        (0..100).for_each(|_| cursor.advance());
        assert_eq!((cursor.taken(), cursor.tell()), (100, 1600));
        assert_eq!(cursor.last_place(), (98, true));
        assert_eq!(cursor.gap(), 99);
        (0..200).for_each(|_| cursor.advance());
        assert_eq!((cursor.next(), cursor.last_place()), (44, (98, true)));
    }

    #[test]
    fn pointers_that_no_record_has_are_refused() {
        let mut cursor = Cursor::new(4096);
        (0..10).for_each(|_| cursor.advance());
        assert_eq!(cursor.behind(160), Some(0));
        assert_eq!(cursor.behind(0), Some(246));
        for wrong in [8, 161, 4096, u32::MAX] {
            assert_eq!(cursor.behind(wrong), None);
        }
    }

    proptest! {
        /// Against a queue: a producer that follows 06 §7.2, a consumer that walks; whatever the
        /// steps, records come once, in order, and a full ring is seen as such.
        #[test]
        fn the_walk_is_a_queue(steps in prop::collection::vec((0u32..300, 0u32..300, any::<bool>()), 1..40)) {
            let mut cursor = Cursor::new(4096);
            let (mut ring, mut tail, mut phase, mut head) = (vec![(0u32, 0u32); 256], 0, true, 0);
            let (mut oracle, mut sequence) = (VecDeque::new(), 0);
            for (post, take, tell) in steps {
                for _ in 0..post {
                    if (tail + 1) % 256 == head {
                        break;
                    }
                    ring[tail] = (u32::from(phase) << 31, sequence);
                    oracle.push_back(sequence);
                    sequence += 1;
                    tail = (tail + 1) % 256;
                    phase ^= tail == 0;
                }
                for _ in 0..take {
                    let (first, value) = ring[cursor.next() as usize];
                    let expected = oracle.front().copied();
                    prop_assert_eq!(cursor.is_new(first), expected.is_some());
                    if oracle.pop_front().is_none() {
                        break;
                    }
                    prop_assert_eq!(Some(value), expected);
                    cursor.advance();
                }
                let (last, stale) = cursor.last_place();
                let full = (tail + 1) % 256 == head;
                // Everything taken: the last place may be behind the cursor.
                if cursor.taken() < 255 {
                    prop_assert_eq!(Cursor::is_new_at(ring[last as usize].0, stale), full);
                }
                prop_assert_eq!(cursor.behind(tail as u32 * 16), Some(oracle.len() as u32));
                if tell {
                    head = (cursor.tell() / 16) as usize;
                }
            }
        }
    }

    #[test]
    fn garbage_moves_the_cursor_one_record_at_most() {
        let mut cursor = Cursor::new(4096);
        let words: Vec<u32> = (0..1000u32).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
        for word in words {
            let before = cursor.next();
            if cursor.is_new(word) {
                cursor.advance();
                assert_eq!(cursor.next(), (before + 1) % 256);
            }
        }
    }
}
