//! Where the next descriptor goes, and how many may (specification 02 §7.5, 03 §4).
//!
//! Transmit and receive side of a ring that the driver fills always stand at the same index, so one
//! cursor serves both.

/// Slots that are never filled.
const GAP: u32 = 16;

/// Producer, consumer and lap of one ring of 2ⁿ descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cursor {
    producer: u32,
    consumer: u32,
    ring_id: u32,
    mask: u32,
}

impl Cursor {
    /// Cursor of a freshly programmed ring with `mask + 1` descriptors.
    pub(crate) const fn new(mask: u32) -> Self {
        Cursor { producer: 0, consumer: 0, ring_id: 1, mask }
    }

    /// Descriptors that may be staged now.
    #[inline]
    pub(crate) const fn free(&self) -> u32 {
        self.consumer.wrapping_sub(self.producer).wrapping_sub(GAP) & self.mask
    }

    /// Descriptors staged and not given back.
    #[inline]
    pub(crate) const fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & self.mask
    }

    /// Index of the next descriptor.
    #[inline]
    pub(crate) const fn producer(&self) -> u32 {
        self.producer
    }

    /// Descriptors from the oldest that was not given back to `index`; `None` where that is neither
    /// in use nor right behind those in use.
    pub(crate) const fn way_to(&self, index: u32) -> Option<u32> {
        let way = index.wrapping_sub(self.consumer) & self.mask;
        let used = self.producer.wrapping_sub(self.consumer) & self.mask;
        if index <= self.mask && way <= used { Some(way) } else { None }
    }

    /// Lap of the next descriptor: 1, 2, 3, 0, 1, …
    #[inline]
    pub(crate) const fn ring_id(&self) -> u32 {
        self.ring_id
    }

    /// Takes the next index. The caller has seen that one is free.
    #[inline]
    pub(crate) const fn advance(&mut self) {
        self.producer = (self.producer + 1) & self.mask;
        if self.producer == 0 {
            self.ring_id = (self.ring_id + 1) & 3;
        }
    }

    /// Goes where `other` of the same ring has got to; what was given back stays as it is.
    #[inline(always)]
    pub(crate) const fn move_to(&mut self, other: Cursor) {
        self.producer = other.producer;
        self.ring_id = other.ring_id;
    }

    /// Gives `count` descriptors back: their marker was seen.
    #[inline]
    pub(crate) const fn acknowledge(&mut self, count: u32) {
        self.consumer = self.consumer.wrapping_add(count) & self.mask;
    }

    /// Back to index 0, lap 1: the queue was reset.
    pub(crate) const fn restart(&mut self) {
        *self = Cursor::new(self.mask);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn udma_e06_free_slots() {
        let mut cursor = Cursor::new(8191);
        assert_eq!(cursor.free(), 8176);
        for _ in 0..8176 {
            cursor.advance();
        }
        assert_eq!(cursor.free(), 0);
        cursor.acknowledge(1);
        assert_eq!(cursor.free(), 1);
    }

    #[test]
    fn udma_e07_laps() {
        let mut cursor = Cursor::new(8191);
        let mut at = |pair: u32| {
            while cursor.producer() != (pair - 1) % 8192
                || cursor.ring_id() != (1 + (pair - 1) / 8192) % 4
            {
                cursor.advance();
                cursor.acknowledge(1);
            }
            (cursor.producer(), cursor.ring_id())
        };
        assert_eq!([8193, 16_385, 24_577, 32_769].map(&mut at), [(0, 2), (0, 3), (0, 0), (0, 1)]);
    }

    #[test]
    fn the_way_to_a_descriptor_in_use() {
        let mut cursor = Cursor::new(63);
        for _ in 0..40 {
            cursor.advance();
        }
        cursor.acknowledge(40);
        for _ in 0..30 {
            cursor.advance();
        }
        let ways = [40, 63, 0, 5, 6, 7, 39, 64].map(|index| cursor.way_to(index));
        assert_eq!(ways, [Some(0), Some(23), Some(24), Some(29), Some(30), None, None, None]);
    }

    proptest! {
        /// Against plain counters that never wrap.
        #[test]
        fn agrees_with_unbounded_counters(steps in prop::collection::vec((1u32..300, 0u32..400), 1..200)) {
            let mut cursor = Cursor::new(1023);
            let (mut produced, mut acknowledged) = (0u64, 0u64);
            for (stage, ack) in steps {
                for _ in 0..stage.min(cursor.free()) {
                    cursor.advance();
                    produced += 1;
                }
                let ack = u64::from(ack).min(produced - acknowledged);
                cursor.acknowledge(ack as u32);
                acknowledged += ack;
                prop_assert_eq!(u64::from(cursor.free()), 1024 - 16 - (produced - acknowledged));
                prop_assert_eq!(u64::from(cursor.producer()), produced % 1024);
                prop_assert_eq!(u64::from(cursor.ring_id()), (1 + produced / 1024) % 4);
            }
        }
    }
}
