//! What the tests share: geometries, a set with an attached client, requests.

use axon_platform::DeviceAddr;
use axon_ports::memory::ChannelGeometry;
use axon_ports::{
    AllocRequest, Category, Chunk, ClientId, ClientSlot, Lifespan, Location, MemoryError,
    MemoryGeometry, Pools,
};

use crate::testing::HeapMemory;
use crate::{MemoryConfig, MemorySet};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

fn channels(bases: [u64; 4], size: u64) -> [ChannelGeometry; 4] {
    bases.map(|base| ChannelGeometry { base: DeviceAddr(base), size })
}

/// Trn1 and Inf2.
pub(super) fn v2_geometry() -> MemoryGeometry {
    MemoryGeometry {
        channels: channels([0, 0x10_0000_0000, 0, 0], 16 * GIB),
        channel_count: 2,
        regions_per_channel: 1,
        host_base: 1 << 44,
        cores: 2,
        small_arena: true,
    }
}

/// Trn2; Trn3 with 36 GiB.
pub(super) fn v3_geometry(size: u64) -> MemoryGeometry {
    MemoryGeometry {
        channels: channels([0, 0x40_0000_0000, 0x8000_0000_0000, 0x8040_0000_0000], size),
        channel_count: 4,
        regions_per_channel: 1,
        host_base: 1 << 46,
        cores: 8,
        small_arena: true,
    }
}

pub(super) fn client(number: u32) -> (ClientId, ClientSlot) {
    (ClientId::new(number).unwrap(), ClientSlot::new(number - 1).unwrap())
}

/// Small reserve pools, so that tests stay fast.
pub(super) fn config() -> MemoryConfig {
    MemoryConfig { host_memory_size: 0, ..MemoryConfig::default() }
}

pub(super) type TestSet = MemorySet<HeapMemory>;

pub(super) fn build(
    config: MemoryConfig,
    geometry: MemoryGeometry,
) -> Result<TestSet, MemoryError> {
    MemorySet::new(config, geometry, HeapMemory::new(64 * MIB))
}

/// V2, default configuration but for the reserve pools, client 1 attached.
pub(super) fn v2() -> TestSet {
    let mut set = build(config(), v2_geometry()).unwrap();
    let (id, slot) = client(1);
    set.attach(id, slot).unwrap();
    set
}

/// Device memory of channel 0 for client 1, without a handle.
pub(super) fn device(size: u64) -> AllocRequest {
    AllocRequest {
        client: Some(client(1)),
        lifespan: Lifespan::Client,
        size,
        align: 0,
        location: Location::Device,
        channel: 0,
        region: 0,
        core: 0,
        category: Category::TENSORS_DEVICE,
        publish: false,
    }
}

pub(super) fn host(size: u64) -> AllocRequest {
    AllocRequest { location: Location::Host, category: Category::TENSORS_HOST, ..device(size) }
}

pub(super) fn scratchpad(size: u64) -> AllocRequest {
    AllocRequest { category: Category::CONTIGUOUS_SCRATCHPAD_DEVICE, ..device(size) }
}

pub(super) fn published(request: AllocRequest) -> AllocRequest {
    AllocRequest { publish: true, ..request }
}

/// Everything that a failed request must leave alone.
#[derive(PartialEq, Eq)]
pub(super) struct Fingerprint {
    totals: [u64; 4],
    live: u32,
    arenas: alloc::vec::Vec<crate::ArenaUsage>,
    pools: alloc::vec::Vec<crate::PoolUsage>,
    lines: alloc::vec::Vec<crate::ChunkLine>,
    next_handle: u32,
}

impl core::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} {} live, {} lines", self.totals, self.live, self.lines.len())
    }
}

impl Fingerprint {
    /// Handles are minted in the order in which they were freed.
    pub(super) fn without_handles(self) -> Self {
        Fingerprint { next_handle: 0, ..self }
    }
}

pub(super) fn fingerprint(set: &TestSet) -> Fingerprint {
    let counters = set.counters();
    let usage = set.usage();
    let mut lines = set.dump_host(usize::MAX).unwrap();
    // The test's source never uses a bus address again, not even that of a refused buffer.
    lines.iter_mut().for_each(|line| line.pa.0 = 0);
    for channel in 0..4 {
        lines.extend(set.dump(channel, usize::MAX).unwrap());
    }
    let (id, slot) = client(1);
    let mine = counters.client(id, slot).unwrap_or_default();
    Fingerprint {
        totals: [
            counters.total(Location::Host),
            counters.total(Location::Device),
            mine.host,
            mine.device,
        ],
        live: counters.live_chunks(),
        arenas: usage.arenas,
        pools: usage.pools,
        lines,
        next_handle: set.next_handle(),
    }
}

/// Allocates, and keeps the chunk alive without a reference value.
pub(super) fn take(set: &mut TestSet, request: AllocRequest) -> u64 {
    set.alloc(&request).unwrap().into_header().facts().pa.0
}

pub(super) fn pa(chunk: &Chunk) -> u64 {
    chunk.facts().pa.0
}

/// The error of a request that changes nothing.
pub(super) fn refused(set: &mut TestSet, request: AllocRequest) -> MemoryError {
    let before = fingerprint(set);
    let error = set.alloc(&request).map(|chunk| chunk.facts()).unwrap_err();
    assert_eq!(fingerprint(set), before, "{request:?}");
    error
}
