//! The pins of one transfer in one value: what a driver keeps with each batch in flight.
//!
//! It counts one reference to the table where two pins count two, and none to the CPU's view, which
//! nobody looks at who moves memory by hardware. The record keeps that for as long as it is pinned.

use alloc::sync::Arc;

use super::record::ChunkRecord;
use super::table::{ChunkName, ChunkTable, NO_SLOT};
use super::{ChunkHeader, Pin};

/// No second chunk.
const NOTHING: ChunkName = ChunkName { slot: NO_SLOT, generation: 0 };

/// Pins on one chunk or on two. Its drop is that of a [`Pin`].
pub struct PinPair {
    table: Arc<ChunkTable>,
    first: ChunkName,
    /// [`NOTHING`], or the other chunk.
    second: ChunkName,
    /// The table of `second`, where that is another one.
    other: Option<Arc<ChunkTable>>,
}

impl PinPair {
    /// Takes two pins over.
    #[inline]
    pub fn new(first: Pin, second: Pin) -> Self {
        let (table, first) = take_over(first);
        let (other, second) = take_over(second);
        let other = (!Arc::ptr_eq(&table, &other)).then_some(other);
        PinPair { table, first, second, other }
    }

    /// The chunks that are held: names and records.
    pub fn each(&self) -> impl Iterator<Item = (ChunkName, &ChunkRecord)> {
        let first = (self.first, self.table.known(self.first.slot));
        let table = self.other.as_ref().unwrap_or(&self.table);
        let second = self.has_second().then(|| (self.second, table.known(self.second.slot)));
        core::iter::once(first).chain(second)
    }

    #[inline(always)]
    fn has_second(&self) -> bool {
        self.second.generation != 0
    }

    /// Gives back what takes more than a look: the pin of a dead chunk, one of very many, one of
    /// another table.
    #[cold]
    #[inline(never)]
    fn give_back(table: &ChunkTable, name: ChunkName) {
        let record = table.known(name.slot);
        if record.unpin() {
            table.release(name.slot, record);
        }
    }
}

impl From<Pin> for PinPair {
    #[inline]
    fn from(pin: Pin) -> Self {
        let (table, first) = take_over(pin);
        PinPair { table, first, second: NOTHING, other: None }
    }
}

impl Clone for PinPair {
    /// More pins; allowed on dead chunks, because this one already holds the memory.
    fn clone(&self) -> Self {
        self.each().for_each(|(_, record)| record.pin_held());
        PinPair { table: self.table.clone(), other: self.other.clone(), ..*self }
    }
}

impl Drop for PinPair {
    #[inline(always)]
    fn drop(&mut self) {
        let PinPair { table, first, second, other } = self;
        if !table.known(first.slot).unpin_live() {
            PinPair::give_back(table, *first);
        }
        if second.generation == 0 {
            return;
        }
        match other {
            None => {
                if !table.known(second.slot).unpin_live() {
                    PinPair::give_back(table, *second);
                }
            }
            Some(other) => PinPair::give_back(other, *second),
        }
    }
}

impl ChunkHeader {
    /// Takes a pin, and shows the record, which says what the chunk is as long as it is pinned.
    /// `None` where the chunk is dead.
    #[inline(always)]
    pub fn pin_one(&self) -> Option<(PinPair, &ChunkRecord)> {
        let record = self.record();
        if !record.pin_live(self.name.generation) {
            return None;
        }
        let table = self.table.clone();
        Some((PinPair { table, first: self.name, second: NOTHING, other: None }, record))
    }

    /// Takes a pin on this chunk and on `other`, and shows their records, which say what the chunks
    /// are as long as they are pinned. `None` where one is dead, or they are not of the same table.
    #[inline(always)]
    pub fn pin_both<'a>(
        &'a self,
        other: &'a ChunkHeader,
    ) -> Option<(PinPair, &'a ChunkRecord, &'a ChunkRecord)> {
        if !Arc::ptr_eq(&self.table, &other.table) {
            return None;
        }
        let (first, second) = (self.record(), self.table.known(other.name.slot));
        if !first.pin_live(self.name.generation) {
            return None;
        }
        if !second.pin_live(other.name.generation) {
            PinPair::give_back(&self.table, self.name);
            return None;
        }
        let table = self.table.clone();
        let pair = PinPair { table, first: self.name, second: other.name, other: None };
        Some((pair, first, second))
    }
}

/// What a pin holds; from here on somebody else gives it back.
#[inline]
fn take_over(mut pin: Pin) -> (Arc<ChunkTable>, ChunkName) {
    let name = pin.0.name;
    let table = pin.0.table.clone();
    // Nothing is counted there, so nothing is given back.
    pin.0.name = NOTHING;
    (table, name)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use axon_platform::DeviceAddr;

    use super::*;
    use crate::{Chunk, ChunkFacts};

    fn chunks(table: &Arc<ChunkTable>) -> [Chunk; 2] {
        let facts = |pa| ChunkFacts {
            pa: DeviceAddr(pa),
            size: 0x1000,
            reach: 0x1000,
            ..ChunkFacts::RELEASED
        };
        [(3, 0x1000), (4, 0x4000)].map(|(n, pa)| table.lone(n, facts(pa), None).unwrap())
    }

    fn pins(chunks: &[Chunk]) -> Vec<u32> {
        chunks.iter().map(|chunk| chunk.header().pins()).collect()
    }

    #[test]
    fn a_pair_is_two_pins_and_counts_the_table_once() {
        let table = ChunkTable::with_pages(1).unwrap();
        let held = chunks(&table);
        let [a, b] = &held;
        let references = Arc::strong_count(&table);
        let (pair, first, second) = a.header().pin_both(b.header()).unwrap();
        assert_eq!((first.pa(), second.pa()), (0x1000, 0x4000));
        assert_eq!((pins(&held), Arc::strong_count(&table)), (vec![1, 1], references + 1));
        let names: Vec<_> = pair.each().map(|(name, _)| name).collect();
        assert_eq!(names, [a.header().name(), b.header().name()]);
        let other = pair.clone();
        assert_eq!(pins(&held), [2, 2]);
        drop(pair);
        assert_eq!(pins(&held), [1, 1]);
        drop(other);
        assert_eq!((pins(&held), Arc::strong_count(&table)), (vec![0, 0], references));
    }

    #[test]
    fn pins_that_are_taken_over_are_given_back_once() {
        let (table, other) =
            (ChunkTable::with_pages(1).unwrap(), ChunkTable::with_pages(1).unwrap());
        let (held, far) = (chunks(&table), chunks(&other));
        let references = [&table, &other].map(Arc::strong_count);
        let pair = PinPair::new(held[0].pin().unwrap(), held[1].pin().unwrap());
        let apart = PinPair::new(held[0].pin().unwrap(), far[1].pin().unwrap());
        let one = PinPair::from(held[1].pin().unwrap());
        assert_eq!((pins(&held), pins(&far)), (vec![2, 2], vec![0, 1]));
        assert_eq!((apart.each().count(), one.each().count()), (2, 1));
        let (same, record) = held[1].header().pin_one().unwrap();
        assert_eq!((pins(&held), record.pa()), (vec![2, 3], 0x4000));
        drop(same);
        let again = apart.clone();
        assert_eq!((pins(&held), pins(&far)), (vec![3, 2], vec![0, 2]));
        drop((pair, apart, one, again));
        assert_eq!((pins(&held), pins(&far)), (vec![0, 0], vec![0, 0]));
        assert_eq!([&table, &other].map(Arc::strong_count), references);
    }

    #[test]
    fn the_last_pin_of_a_dead_chunk_tells_the_service() {
        let table = ChunkTable::with_pages(1).unwrap();
        let held = chunks(&table);
        let (pair, _, second) = held[0].header().pin_both(held[1].header()).unwrap();
        second.close();
        assert!(held[0].header().pin_both(held[1].header()).is_none(), "dead");
        assert!(held[1].header().pin_both(held[0].header()).is_none(), "dead");
        assert_eq!(pins(&held), [1, 1], "a pin that was taken in vain is given back");
        assert!(!table.has_released());
        drop(pair);
        assert!(table.has_released());
        assert_eq!(pins(&held), [0, 0]);
    }

    #[test]
    fn chunks_of_two_tables_are_no_pair() {
        let (table, other) =
            (ChunkTable::with_pages(1).unwrap(), ChunkTable::with_pages(1).unwrap());
        let (a, b) = (chunks(&table), chunks(&other));
        assert!(a[0].header().pin_both(b[0].header()).is_none());
        assert_eq!((pins(&a), pins(&b)), (vec![0, 0], vec![0, 0]));
    }
}
