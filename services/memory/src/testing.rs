//! Host memory without a machine, for tests of this crate and of others; parts of the service
//! alone, for measurements.

use alloc::sync::Arc;

use axon_platform::{BusAddr, DmaBuf, DmaExhausted};
use axon_ports::chunk::record::Stamp;
use axon_ports::{ChunkFacts, ChunkTable};

use crate::arena::Arena;
use crate::faults::Faults;
use crate::host::HostSource;
use crate::records::Records;

/// Heap memory that claims bus addresses below 4 GiB, each used once; as much as the budget allows.
pub struct HeapMemory {
    next: u64,
    budget: u64,
}

impl HeapMemory {
    /// A source that gives out `budget` bytes in all, starting at bus address 1 MiB.
    pub const fn new(budget: u64) -> Self {
        HeapMemory::at(0x10_0000, budget)
    }

    /// A source whose first buffer starts at `bus`.
    pub const fn at(bus: u64, budget: u64) -> Self {
        HeapMemory { next: bus, budget }
    }
}

impl HostSource for HeapMemory {
    fn allocate(&mut self, len_bytes: u64) -> Result<DmaBuf, DmaExhausted> {
        let exhausted = DmaExhausted { asked: len_bytes, largest: self.budget };
        if len_bytes == 0 || len_bytes > self.budget {
            return Err(exhausted);
        }
        let buffer = DmaBuf::on_heap(len_bytes, BusAddr(self.next)).ok_or(exhausted)?;
        self.next += len_bytes.next_multiple_of(crate::config::PAGE);
        self.budget -= len_bytes;
        Ok(buffer)
    }
}

/// An arena alone, for measurements beside other allocators.
pub struct BareArena(Arena, Faults);

impl BareArena {
    /// An arena of `granules` free granules; `None` where there is no memory for its tables.
    pub fn new(granules: u32) -> Option<Self> {
        let mut faults = Faults::default();
        Some(BareArena(Arena::new(granules, &mut faults).ok()?, faults))
    }

    /// First granule of `count` free ones, the lowest there are; they belong to `record` now.
    #[inline]
    pub fn allocate(&mut self, count: u32, record: u32) -> Option<u32> {
        self.0.allocate(count.into(), record, &mut self.1).ok()
    }

    /// Takes back what [`Self::allocate`] gave; `false` where it did not, and nothing has changed.
    #[inline]
    pub fn release(&mut self, start: u32, count: u32, record: u32) -> bool {
        self.0.release(start, count, record).is_ok()
    }

    /// Longest free run, in granules.
    pub fn largest(&self) -> u32 {
        self.0.largest()
    }

    /// Bytes of heap that its tables take now.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// A handle table alone, for measurements beside other tables.
pub struct BareHandles {
    table: Arc<ChunkTable>,
    records: Records,
}

impl BareHandles {
    /// A table without chunks; `None` where there is no memory for it.
    pub fn new() -> Option<Self> {
        let table = ChunkTable::new().ok()?;
        let records = Records::new(&table, &mut Faults::default()).ok()?;
        Some(BareHandles { table, records })
    }

    /// The snapshot that everybody reads.
    pub fn table(&self) -> &Arc<ChunkTable> {
        &self.table
    }

    /// Gives the next handle to a chunk; `None` once there are none.
    #[inline]
    pub fn mint(&mut self, facts: &ChunkFacts) -> Option<u32> {
        let handle = self.records.next_handle();
        let record = self.table.record_of_handle(handle)?;
        self.records.advance(&self.table, handle, record, &mut Faults::default()).ok()?;
        record.open(Stamp { handle, ..Stamp::of(facts) });
        Some(handle)
    }

    /// Takes a handle back; `false` where it names nothing.
    #[inline]
    pub fn free(&mut self, handle: u32) -> bool {
        let Some(record) = self.table.record_of_handle(handle) else { return false };
        if !record.close_quiet() {
            return false;
        }
        self.records.put_handle(handle, record);
        true
    }
}
