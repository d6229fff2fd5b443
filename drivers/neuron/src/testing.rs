//! A register window that remembers, and ring memory from the heap: for tests without a model.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::Mutex;

use axon_platform::{BusAddr, DeviceAddr, DmaBuf, MmioWindow};
use axon_ports::chunk::ChunkTable;
use axon_ports::{
    Category, Chunk, ChunkFacts, ClientId, CoreId, EngineId, Lifespan, Location, QueueId,
};

use crate::dma::{Ring, RingMemory, RingName};
use crate::hal::Hal;

/// Remembers writes in order; reads answer what was written last, or what a test has set.
#[derive(Clone, Default)]
pub(crate) struct FakeWindow(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    writes: Vec<(u64, u32)>,
    reads: Vec<u64>,
    values: BTreeMap<u64, u32>,
}

impl FakeWindow {
    pub(crate) fn new() -> Self {
        FakeWindow::default()
    }

    /// What a register reads from now on.
    pub(crate) fn set(&self, offset: u64, value: u32) {
        self.0.lock().unwrap().values.insert(offset, value);
    }

    /// What a register holds.
    pub(crate) fn value(&self, offset: u64) -> u32 {
        self.0.lock().unwrap().values.get(&offset).copied().unwrap_or(0)
    }

    /// Writes since the last call.
    pub(crate) fn take_writes(&self) -> Vec<(u64, u32)> {
        core::mem::take(&mut self.0.lock().unwrap().writes)
    }

    /// Reads since the last call.
    pub(crate) fn take_reads(&self) -> Vec<u64> {
        core::mem::take(&mut self.0.lock().unwrap().reads)
    }
}

impl MmioWindow for FakeWindow {
    fn len_bytes(&self) -> u64 {
        1 << 32
    }

    fn read32(&self, offset: u64) -> u32 {
        let mut log = self.0.lock().unwrap();
        log.reads.push(offset);
        log.values.get(&offset).copied().unwrap_or(0)
    }

    fn write32(&self, offset: u64, value: u32) {
        let mut log = self.0.lock().unwrap();
        log.writes.push((offset, value));
        log.values.insert(offset, value);
    }

    fn read_bytes(&self, _offset: u64, _into: &mut [u8]) -> bool {
        false
    }

    fn write_bytes(&self, _offset: u64, _from: &[u8]) -> bool {
        false
    }
}

/// Hands out chunks of the heap that pretend to lie at given bus addresses.
pub(crate) struct FakeMemory {
    table: Arc<ChunkTable>,
    next: u32,
}

impl FakeMemory {
    pub(crate) fn new() -> Self {
        FakeMemory { table: ChunkTable::with_pages(1).unwrap(), next: 0 }
    }

    pub(crate) fn host(&mut self, hal: &Hal, bus: u64, bytes: u64) -> Chunk {
        let pa = DeviceAddr(bus | hal.tables().map.host_base);
        let buffer = DmaBuf::on_heap(bytes, BusAddr(bus)).unwrap();
        self.chunk(pa, bytes, Location::Host, Some(buffer), None)
    }

    pub(crate) fn device(&mut self, pa: u64, bytes: u64, owner: Option<ClientId>) -> Chunk {
        self.chunk(DeviceAddr(pa), bytes, Location::Device, None, owner)
    }

    fn chunk(
        &mut self,
        pa: DeviceAddr,
        size: u64,
        location: Location,
        host: Option<DmaBuf>,
        owner: Option<ClientId>,
    ) -> Chunk {
        let facts = ChunkFacts {
            pa,
            size,
            reach: size,
            location,
            channel: 0,
            region: 0,
            core: CoreId::new(0).unwrap(),
            category: Category::NCDEV_HOST,
            lifespan: Lifespan::Device,
            owner,
        };
        self.next += 1;
        self.table.lone(self.next, facts, host).unwrap()
    }
}

/// A programmed default ring of core 0, with a transmit ring, a receive ring and a marker page at
/// the bus addresses given. The programming writes are still in the window's log.
pub(crate) fn ring(
    hal: &Hal,
    window: &FakeWindow,
    tx: u64,
    rx: u64,
    markers: u64,
) -> (Ring, DmaBuf) {
    let mut memory = FakeMemory::new();
    let core = CoreId::new(0).unwrap();
    let (engine, queue): (_, QueueId) = hal.host_transfer(core).unwrap();
    let id: EngineId = engine.id;
    let (tx, rx) = (memory.host(hal, tx, 131_072), memory.host(hal, rx, 131_072));
    let page = memory.host(hal, markers, 4096);
    let words = page.host().cloned().unwrap();
    let rings = RingMemory::new(tx, rx, page, hal).unwrap();
    let name = RingName { engine: id, queue, core, unit: engine.unit };
    let mut ring = Ring::new(name, rings).unwrap();
    ring.program(window);
    (ring, words)
}
