//! The handle table: opaque numbers of published chunks (specification 04 §7).
//!
//! The cells themselves are the snapshot that everybody reads; this is the side that mints and
//! frees. A cell is fresh (0), free (link to the next free index) or used (slot and generation of a
//! record); only used cells have bit 0 set. Log lines and errors may carry a handle, never a cell.

use core::sync::atomic::Ordering;

use axon_ports::chunk::table::{GATE_DOWN, HANDLE_LIMIT, HANDLES_PER_TABLE};
use axon_ports::{ChunkName, ChunkTable};

use crate::faults::Faults;

/// The table is down for good, or the handle names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoHandle;

/// Mark of a free cell; its link is in the upper half.
const FREE: u64 = 2;

/// Mints and frees handles.
pub(crate) struct HandleTable {
    /// First free index; [`DOWN`] once the table is.
    free: u32,
}

/// An index that never has a cell.
const DOWN: u32 = HANDLE_LIMIT;

impl HandleTable {
    /// A table with its first level-2 table and the free list at index 1. Where that table cannot be
    /// made the answer is an error, and the handle table is down.
    pub(crate) fn new(table: &ChunkTable, faults: &mut Faults) -> Result<Self, NoHandle> {
        let mut handles = HandleTable { free: 1 };
        match grow(table, 0, faults) {
            Ok(()) => Ok(handles),
            Err(NoHandle) => {
                handles.poison(table);
                Err(NoHandle)
            }
        }
    }

    /// Gives `chunk` the next handle. Running out poisons the table for good.
    #[inline(always)]
    pub(crate) fn mint(
        &mut self,
        table: &ChunkTable,
        chunk: ChunkName,
        faults: &mut Faults,
    ) -> Result<u32, NoHandle> {
        let index = self.free;
        let cell = table.cell(index).ok_or(NoHandle)?;
        let link = cell.load(Ordering::Relaxed);
        let next = if link & FREE != 0 { (link >> 32) as u32 } else { index + 1 };
        if next % HANDLES_PER_TABLE as u32 == 0 {
            self.cross(table, link, next, faults)?;
        }
        self.free = next;
        cell.store(chunk.cell(), Ordering::Release);
        Ok(index)
    }

    /// The next free index is the first of a level-2 table: at the frontier that table is made one
    /// step ahead.
    #[cold]
    #[inline(never)]
    fn cross(
        &mut self,
        table: &ChunkTable,
        link: u64,
        next: u32,
        faults: &mut Faults,
    ) -> Result<(), NoHandle> {
        let fresh = link & FREE == 0;
        if fresh && (next >= HANDLE_LIMIT || grow(table, next, faults).is_err()) {
            self.poison(table);
            return Err(NoHandle);
        }
        Ok(())
    }

    /// Takes `index` back, last in, first out. A double free changes nothing.
    #[inline]
    pub(crate) fn free(&mut self, table: &ChunkTable, index: u32) -> Result<(), NoHandle> {
        if self.free == DOWN {
            return Err(NoHandle);
        }
        let cell = table.cell(index).ok_or(NoHandle)?;
        if cell.load(Ordering::Relaxed) & 1 == 0 {
            return Err(NoHandle);
        }
        cell.store(u64::from(self.free) << 32 | FREE, Ordering::Release);
        self.free = index;
        Ok(())
    }

    /// First free index; 0 once the table is down.
    #[cfg(test)]
    pub(crate) fn next(&self) -> u32 {
        if self.free == DOWN { 0 } else { self.free }
    }

    /// Shuts the table for good: nothing is minted, freed or found any more.
    #[cold]
    pub(crate) fn poison(&mut self, table: &ChunkTable) {
        self.free = DOWN;
        table.set_gate(GATE_DOWN, true);
    }
}

#[cold]
fn grow(table: &ChunkTable, index: u32, faults: &mut Faults) -> Result<(), NoHandle> {
    if faults.growth.hit() || faults.handle_table.hit() {
        return Err(NoHandle);
    }
    table.grow_handles(index).map_err(|_| NoHandle)
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::faults::Countdown;

    fn name(slot: u32) -> ChunkName {
        ChunkName { slot, generation: 1 }
    }

    struct Handles {
        table: Arc<ChunkTable>,
        handles: HandleTable,
    }

    impl Handles {
        fn mint(&mut self, name: ChunkName, faults: &mut Faults) -> Result<u32, NoHandle> {
            self.handles.mint(&self.table, name, faults)
        }

        fn free(&mut self, index: u32) -> Result<(), NoHandle> {
            self.handles.free(&self.table, index)
        }
    }

    fn fresh() -> (Handles, Faults) {
        let mut faults = Faults::default();
        let table = ChunkTable::with_pages(1).unwrap();
        let handles = HandleTable::new(&table, &mut faults).unwrap();
        (Handles { table, handles }, faults)
    }

    #[test]
    fn mem_e40_mem_e41_handles_start_at_one_and_are_reused_last_in_first_out() {
        let (mut handles, mut faults) = fresh();
        for expected in 1..=3 {
            assert_eq!(handles.mint(name(expected), &mut faults), Ok(expected));
        }
        handles.free(2).unwrap();
        handles.free(1).unwrap();
        let minted: Vec<_> = (0..3).map(|n| handles.mint(name(n), &mut faults).unwrap()).collect();
        assert_eq!(minted, [1, 2, 4]);
    }

    #[test]
    fn mem_e42_mem_e43_mem_e44_forged_handles_name_nothing() {
        let (mut handles, mut faults) = fresh();
        for n in 1..=10 {
            handles.mint(name(n), &mut faults).unwrap();
        }
        assert_eq!(handles.table.find(10), Some(name(10)));
        for forged in [0, 11, 8192, 4_194_303, 4_194_304, u64::MAX, 1 << 32 | 5] {
            assert_eq!(handles.table.find(forged), None, "{forged:#x}");
        }
    }

    #[test]
    fn mem_e45_the_next_level_2_table_is_made_one_ahead() {
        let (mut handles, mut faults) = fresh();
        for n in 1..8191 {
            handles.mint(name(n), &mut faults).unwrap();
        }
        assert!(handles.table.cell(8192).is_none());
        assert_eq!(handles.mint(name(1), &mut faults), Ok(8191));
        assert!(handles.table.cell(8192).is_some());
        assert_eq!(handles.mint(name(2), &mut faults), Ok(8192));
    }

    #[test]
    fn mem_e46_a_table_that_cannot_grow_is_down_for_good() {
        let (mut handles, mut faults) = fresh();
        for n in 1..8191 {
            handles.mint(name(n), &mut faults).unwrap();
        }
        faults.handle_table = Countdown::nth(1);
        assert_eq!(handles.mint(name(1), &mut faults), Err(NoHandle));
        assert_eq!(handles.table.find(5), None);
        assert_eq!(handles.free(5), Err(NoHandle));
        assert_eq!(handles.mint(name(1), &mut faults), Err(NoHandle));
    }

    #[test]
    fn mem_e47_all_4194302_handles_can_be_minted_and_not_one_more() {
        let (mut handles, mut faults) = fresh();
        for expected in 1..=4_194_302 {
            assert_eq!(handles.mint(name(expected), &mut faults), Ok(expected));
        }
        for handle in [1, 8191, 8192, 4_194_302] {
            assert_eq!(handles.table.find(handle), Some(name(handle as u32)));
        }
        assert_eq!(handles.mint(name(9), &mut faults), Err(NoHandle));
        assert!(handles.table.is_down());
        assert_eq!(handles.table.find(1), None);
    }

    #[test]
    fn mem_e50_a_double_free_leaves_the_free_list_alone() {
        let (mut handles, mut faults) = fresh();
        handles.mint(name(1), &mut faults).unwrap();
        handles.mint(name(2), &mut faults).unwrap();
        handles.free(1).unwrap();
        for wrong in [1, 0, 3, 8192, 4_194_304, u32::MAX] {
            assert_eq!(handles.free(wrong), Err(NoHandle), "{wrong}");
        }
        assert_eq!(handles.mint(name(3), &mut faults), Ok(1));
        assert_eq!(handles.mint(name(4), &mut faults), Ok(3));
    }

    #[test]
    fn a_table_that_cannot_be_created_is_down() {
        let mut faults = Faults { handle_table: Countdown::nth(1), ..Faults::default() };
        let table = ChunkTable::with_pages(1).unwrap();
        assert!(HandleTable::new(&table, &mut faults).is_err());
        assert!(table.is_down());
    }

    proptest! {
        #[test]
        fn agrees_with_a_map_and_a_stack(steps in prop::collection::vec((any::<bool>(), any::<u32>()), 1..600)) {
            let (mut handles, mut faults) = fresh();
            let mut live: Vec<(u32, u32)> = Vec::new();
            let mut freed: Vec<u32> = Vec::new();
            let mut frontier = 1;
            for (mint, number) in steps {
                if mint || live.is_empty() {
                    let expected = freed.pop().unwrap_or_else(|| { frontier += 1; frontier - 1 });
                    prop_assert_eq!(handles.mint(name(number), &mut faults), Ok(expected));
                    live.push((expected, number));
                } else {
                    let (index, _) = live.swap_remove(number as usize % live.len());
                    handles.free(index).unwrap();
                    prop_assert_eq!(handles.free(index), Err(NoHandle));
                    freed.push(index);
                }
                for &(index, number) in &live {
                    prop_assert_eq!(handles.table.find(index.into()), Some(name(number)));
                }
                for &index in &freed {
                    prop_assert_eq!(handles.table.find(index.into()), None);
                }
            }
        }
    }
}
