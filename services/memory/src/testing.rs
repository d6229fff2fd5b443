//! Host memory without a machine, for tests of this crate and of others.

use axon_platform::{BusAddr, DmaBuf, DmaExhausted};

use crate::host::HostSource;

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
