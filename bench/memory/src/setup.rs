//! What every measurement starts from.

use axon_memory::testing::HeapMemory;
use axon_memory::{MemoryConfig, MemorySet};
use axon_platform::DeviceAddr;
use axon_ports::memory::ChannelGeometry;
use axon_ports::{
    AllocRequest, Category, ChunkFacts, ClientId, ClientSlot, CoreId, Lifespan, Location,
    MemoryGeometry,
};

/// A Trn1 without reserve pools.
pub fn trn1() -> MemorySet<HeapMemory> {
    let channel = |base| ChannelGeometry { base: DeviceAddr(base), size: 16 << 30 };
    let geometry = MemoryGeometry {
        channels: [channel(0), channel(0x10_0000_0000), channel(0), channel(0)],
        channel_count: 2,
        regions_per_channel: 1,
        host_base: 1 << 44,
        cores: 2,
        small_arena: true,
    };
    let config = MemoryConfig { host_memory_size: 0, ..MemoryConfig::default() };
    MemorySet::new(config, geometry, HeapMemory::new(0)).expect("a Trn1 has room for its tables")
}

/// One region of 24 GiB of a single channel, without a small arena.
pub fn full_region() -> MemorySet<HeapMemory> {
    let channel = |size| ChannelGeometry { base: DeviceAddr(0), size };
    let geometry = MemoryGeometry {
        channels: [channel(24 << 30), channel(0), channel(0), channel(0)],
        channel_count: 1,
        regions_per_channel: 1,
        host_base: 1 << 46,
        cores: 8,
        small_arena: false,
    };
    let config = MemoryConfig { host_memory_size: 0, ..MemoryConfig::default() };
    MemorySet::new(config, geometry, HeapMemory::new(0)).expect("there is room for its tables")
}

/// What a published chunk of device memory is.
pub fn facts() -> ChunkFacts {
    ChunkFacts {
        pa: DeviceAddr(0x1000),
        size: 4096,
        reach: 4096,
        location: Location::Device,
        channel: 0,
        region: 0,
        core: CoreId::ALL[0],
        category: Category::TENSORS_DEVICE,
        lifespan: Lifespan::Client,
        owner: Some(client().0),
    }
}

/// The one client.
pub fn client() -> (ClientId, ClientSlot) {
    (ClientId::new(1).expect("1 names a client"), ClientSlot::new(0).expect("there is a slot 0"))
}

/// Published device memory of the client.
pub fn request(size: u64) -> AllocRequest {
    AllocRequest {
        client: Some(client()),
        lifespan: Lifespan::Client,
        size,
        align: 0,
        location: Location::Device,
        channel: 0,
        region: 0,
        core: 0,
        category: Category::TENSORS_DEVICE,
        publish: true,
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
