//! The memory service of a device as this crate puts it together, and what can be read of it.

use axon_memory::{MemoryClient, MemoryConfig, MemorySet, PlatformMemory};
use axon_platform::Platform;
use axon_ports::{Category, ClientId, ClientSlot, Location, MemoryError, MemoryGeometry};

/// Pages of the largest host reserve pool.
const LARGEST_RESERVE_PAGE: u64 = 2 << 20;
/// There are so many reserve pools, all of the same size.
const RESERVE_POOLS: u64 = 4;

/// Live memory by place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryTotals {
    /// Bytes of host chunks.
    pub host: u64,
    /// Bytes of device chunks.
    pub device: u64,
    /// Bytes that are released, or whose client is leaving, and that hardware may still reach.
    pub draining: u64,
    /// Live chunks.
    pub chunks: u32,
}

/// Bytes of each reserve pool of one of `devices` devices: all of them together take at most a
/// quarter of the host memory that devices reach.
pub(crate) fn reserve_bytes(platform: &impl Platform, devices: usize) -> u64 {
    let share = platform.free_dma_bytes() / 4 / (devices as u64).max(1) / RESERVE_POOLS;
    let pages = share / LARGEST_RESERVE_PAGE;
    (pages * LARGEST_RESERVE_PAGE).min(MemoryConfig::default().host_memory_size)
}

/// Rung D15 of the ladder.
pub(crate) fn make_pools<P: Platform>(
    platform: &P,
    reserve_bytes: u64,
    geometry: &MemoryGeometry,
) -> Result<MemorySet<PlatformMemory<P>>, MemoryError> {
    let config = MemoryConfig { host_memory_size: reserve_bytes, ..MemoryConfig::default() };
    MemorySet::new(config, *geometry, PlatformMemory(platform.clone()))
}

/// Totals of the whole device.
pub(crate) fn totals(memory: &MemoryClient) -> MemoryTotals {
    let counters = memory.counters();
    MemoryTotals {
        host: counters.total(Location::Host),
        device: counters.total(Location::Device),
        draining: counters.draining(),
        chunks: counters.live_chunks(),
    }
}

/// Totals of one attached client.
pub(crate) fn client_totals(
    memory: &MemoryClient,
    client: ClientId,
    slot: ClientSlot,
) -> MemoryTotals {
    let totals = memory.counters().client(client, slot).unwrap_or_default();
    MemoryTotals { host: totals.host, device: totals.device, ..MemoryTotals::default() }
}

/// Bytes of live chunks of `client` that something holds against reuse, but for rings of
/// notification queues, which go with their queues. Looks at every record.
pub(crate) fn pinned_bytes(memory: &MemoryClient, client: ClientId) -> u64 {
    memory
        .table()
        .records()
        // A record is alive while its generation is odd; dead ones count as draining already.
        .filter(|record| record.generation() & 1 == 1 && record.owner() == client.number())
        .filter(|record| record.pins() != 0)
        .filter(|record| {
            !matches!(
                record.category(),
                Category::NOTIFICATION_HOST | Category::NOTIFICATION_DEVICE
            )
        })
        .map(|record| record.size())
        .sum()
}
