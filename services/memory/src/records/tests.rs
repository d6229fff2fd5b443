//! Handles: order, growth, exhaustion, poisoning (specification 04 §7, MEM-E40 to MEM-E50).

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use axon_ports::ChunkName;
use axon_ports::chunk::record::Stamp;
use proptest::prelude::*;

use super::*;
use crate::faults::Countdown;

struct Handles {
    table: Arc<ChunkTable>,
    records: Records,
    faults: Faults,
}

fn fresh() -> Handles {
    let mut faults = Faults::default();
    let table = ChunkTable::with_pages(1).unwrap();
    let records = Records::new(&table, &mut faults).unwrap();
    Handles { table, records, faults }
}

fn stamp(handle: u32) -> Stamp {
    Stamp {
        place: axon_ports::chunk::record::Place::new(
            0x1000,
            Location::Device,
            0,
            0,
            0,
            Lifespan::Client,
        ),
        size: 0x1000,
        reach: 0x1000,
        owner: 1,
        handle,
        category: 9,
        account: 0,
    }
}

impl Handles {
    /// Issues a handle without a chunk.
    fn mint(&mut self) -> Result<u32, NoHandle> {
        let handle = self.records.next_handle();
        self.records.issue(&self.table, handle, &mut self.faults)
    }

    /// Issues a handle to a chunk in the record of that number.
    fn open(&mut self) -> u32 {
        let handle = self.mint().unwrap();
        self.table.record_of_handle(handle).unwrap().open(stamp(handle));
        handle
    }

    fn free(&mut self, handle: u32) -> Result<(), NoHandle> {
        self.records.free_handle(&self.table, handle, handle)?;
        if let Some(record) = self.table.record_of_handle(handle) {
            record.close();
        }
        Ok(())
    }

    fn finds(&self, handle: u64) -> bool {
        let found = self.table.find(handle);
        assert!(found.is_none_or(|name: ChunkName| u64::from(name.slot) == handle));
        found.is_some()
    }
}

#[test]
fn mem_e40_mem_e41_handles_start_at_one_and_are_reused_last_in_first_out() {
    let mut handles = fresh();
    for expected in 1..=3 {
        assert_eq!(handles.open(), expected);
    }
    handles.free(2).unwrap();
    handles.free(1).unwrap();
    let issued: Vec<_> = (0..3).map(|_| handles.open()).collect();
    assert_eq!(issued, [1, 2, 4]);
}

#[test]
fn mem_e42_mem_e43_mem_e44_forged_handles_name_nothing() {
    let mut handles = fresh();
    for _ in 1..=10 {
        handles.open();
    }
    assert!(handles.finds(10));
    for forged in [0, 11, 8191, 8192, 4_194_303, 4_194_304, u64::MAX, 1 << 32 | 5] {
        assert!(!handles.finds(forged), "{forged:#x}");
    }
}

#[test]
fn mem_e45_the_next_level_2_table_is_made_one_ahead() {
    let mut handles = fresh();
    for _ in 1..8191 {
        handles.mint().unwrap();
    }
    assert!(handles.table.record_of_handle(8192).is_none());
    assert_eq!(handles.mint(), Ok(8191));
    assert!(handles.table.record_of_handle(8192).is_some());
    assert_eq!(handles.mint(), Ok(8192));
}

#[test]
fn mem_e46_a_table_that_cannot_grow_is_down_for_good() {
    let mut handles = fresh();
    for _ in 1..8191 {
        handles.open();
    }
    assert!(handles.finds(5));
    handles.faults.handle_table = Countdown::nth(1);
    assert_eq!(handles.mint(), Err(NoHandle));
    assert!(!handles.finds(5));
    assert_eq!(handles.free(5), Err(NoHandle));
    assert_eq!(handles.mint(), Err(NoHandle));
}

#[test]
fn mem_e47_all_4194302_handles_can_be_issued_and_not_one_more() {
    let mut handles = fresh();
    for expected in 1..=4_194_302 {
        assert_eq!(handles.open(), expected);
    }
    for handle in [1, 8191, 8192, 4_194_302] {
        assert!(handles.finds(handle));
    }
    assert_eq!(handles.mint(), Err(NoHandle));
    assert!(handles.table.is_down());
    assert!(!handles.finds(1));
}

#[test]
fn mem_e50_a_double_free_leaves_the_free_list_alone() {
    let mut handles = fresh();
    handles.open();
    handles.open();
    handles.free(1).unwrap();
    for wrong in [1, 0, 3, 8192, 4_194_304, u32::MAX] {
        assert_eq!(handles.free(wrong), Err(NoHandle), "{wrong}");
    }
    assert_eq!([handles.open(), handles.open()], [1, 3]);
}

#[test]
fn a_full_level_2_table_may_be_freed_and_issued_again_across_its_edge() {
    let mut handles = fresh();
    for _ in 1..=8200 {
        handles.open();
    }
    for handle in [8193, 8192, 8191] {
        handles.free(handle).unwrap();
    }
    handles.faults.handle_table = Countdown::nth(1);
    assert_eq!([handles.open(), handles.open(), handles.open()], [8191, 8192, 8193]);
    assert_eq!(handles.open(), 8201);
}

#[test]
fn a_handle_whose_record_is_taken_is_issued_to_a_slot_elsewhere() {
    let mut handles = fresh();
    let handle = handles.open();
    handles.free(handle).unwrap();
    let Handles { table, records, faults } = &mut handles;
    let record = table.record_of_handle(handle).unwrap();
    record.service.tag.store(DRAINING, Relaxed);
    let slot = records.choose(table, true, faults).unwrap();
    assert!(slot >= HANDLE_LIMIT);
    assert_eq!(records.issue(table, slot, faults), Ok(handle));
    let elsewhere = table.record(slot).unwrap();
    records.take(slot, elsewhere);
    elsewhere.open(stamp(handle));
    assert_eq!(table.find(handle.into()).unwrap().slot, slot);
    records.free_handle(table, slot, handle).unwrap();
    assert_eq!(records.free_handle(table, slot, handle), Err(NoHandle), "double free");
    elsewhere.close();
    assert_eq!(table.find(handle.into()), None);
    records.give(slot, elsewhere);
    record.service.tag.store(0, Relaxed);
    assert_eq!(records.choose(table, true, faults), Ok(handle), "its own record again");
}

#[test]
fn a_table_that_cannot_be_created_is_down() {
    let mut faults = Faults { handle_table: Countdown::nth(1), ..Faults::default() };
    let table = ChunkTable::with_pages(1).unwrap();
    assert!(Records::new(&table, &mut faults).is_err());
    assert!(table.is_down());
}

proptest! {
    #[test]
    fn agrees_with_a_map_and_a_stack(steps in prop::collection::vec((any::<bool>(), any::<usize>()), 1..600)) {
        let mut handles = fresh();
        let mut live: Vec<u32> = vec![];
        let mut freed: Vec<u32> = vec![];
        let mut frontier = 1;
        for (issue, number) in steps {
            if issue || live.is_empty() {
                let expected = freed.pop().unwrap_or_else(|| { frontier += 1; frontier - 1 });
                prop_assert_eq!(handles.open(), expected);
                live.push(expected);
            } else {
                let handle = live.swap_remove(number % live.len());
                handles.free(handle).unwrap();
                freed.push(handle);
            }
            prop_assert!(live.iter().all(|&handle| handles.finds(handle.into())));
            prop_assert!(!freed.iter().any(|&handle| handles.finds(handle.into())));
        }
    }
}
