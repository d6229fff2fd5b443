//! What is fixed before the service starts: tunables, and how a region is split
//! (specification 04 §0, §2.3).

use axon_ports::{MemoryError, MemoryGeometry};

/// Smallest unit of everything: chunk sizes and addresses are multiples of it.
pub const PAGE: u64 = 0x1000;
/// Lowest bytes of each region, owned by firmware (specification 04 §2.5).
pub const CARVEOUT: u64 = 0x100_0000;
/// Page sizes of the host reserve pools.
pub const RESERVE_PAGE_SIZES: [u64; 4] = [0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000];
/// Cores that any request may name, whatever the device has.
pub(crate) const MAX_CORES: u32 = 8;

/// Tunables of one device; fixed at bring-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Number of the device, for log lines.
    pub device: u32,
    /// Smallest arena granule wanted; a non-zero multiple of a page.
    pub min_alloc_size: u64,
    /// Bytes of each of the four host reserve pools.
    pub host_memory_size: u64,
    /// Bytes of the small arena cut from the top of each region; 0 for none.
    pub small_pool_size: u64,
    /// Largest request that prefers the small arena.
    pub small_alloc_max: u64,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        MemoryConfig {
            device: 0,
            min_alloc_size: PAGE,
            host_memory_size: 0x200_0000,
            small_pool_size: 0x4000_0000,
            small_alloc_max: 0x8_0000,
        }
    }
}

impl MemoryConfig {
    /// Refuses to start with a granule that is no multiple of a page.
    pub(crate) fn check(&self, geometry: &MemoryGeometry) -> Result<(), MemoryError> {
        let wrong = |what, value| Err(MemoryError::Invalid { what, value });
        if self.min_alloc_size == 0 || !self.min_alloc_size.is_multiple_of(PAGE) {
            return wrong("minimum allocation size", self.min_alloc_size);
        }
        if self.min_alloc_size > RESERVE_PAGE_SIZES[0] {
            // assumed: a granule that no reserve page can hold is a mistake.
            return wrong("minimum allocation size", self.min_alloc_size);
        }
        if !(1..=4).contains(&geometry.channel_count) {
            return wrong("number of channels", geometry.channel_count.into());
        }
        if !(1..=4).contains(&geometry.regions_per_channel) {
            return wrong("number of regions", geometry.regions_per_channel.into());
        }
        if geometry.cores == 0 || u32::from(geometry.cores) > MAX_CORES {
            return wrong("number of cores", geometry.cores.into());
        }
        Ok(())
    }

    /// log2 of the arena granule: the largest power of two that is not above the minimum.
    pub(crate) fn granule_shift(&self) -> u32 {
        self.min_alloc_size.max(PAGE).ilog2()
    }

    /// Bytes of the small arena of a region of `region_size` bytes; 0 for none.
    pub(crate) fn small_size(&self, geometry: &MemoryGeometry, region_size: u64) -> u64 {
        let small = self.small_pool_size;
        if small >= region_size
            || !small.is_multiple_of(self.min_alloc_size)
            || !geometry.small_arena
        {
            0
        } else {
            small
        }
    }
}
