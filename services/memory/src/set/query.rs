//! Questions: which chunk has this address, what lies on a channel, how full is it
//! (specification 04 §6.1, §6.4, §9.3).

use alloc::vec::Vec;

use axon_platform::DeviceAddr;
use axon_ports::{Category, ChunkFacts, ChunkName, ClientId, ClientSlot, MemoryError};
use core::sync::atomic::Ordering::Relaxed;

use super::MemorySet;
use crate::config::PAGE;
use crate::host::HostSource;
use crate::records::List;

/// One line of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkLine {
    /// First byte.
    pub pa: DeviceAddr,
    /// Bytes.
    pub size: u64,
    /// What for.
    pub category: Category,
    /// Handle; 0 for none.
    pub handle: u64,
    /// Owner; `None` for the driver.
    pub owner: Option<ClientId>,
}

/// A chunk found by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkInfo {
    /// Its facts; the window cookie is their `pa`.
    pub facts: ChunkFacts,
    /// Handle; 0 for none.
    pub handle: u64,
}

/// How full one cell of the grid is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArenaUsage {
    /// First byte.
    pub base: u64,
    /// Bytes of the region.
    pub region_size: u64,
    /// First byte behind the main arena.
    pub main_end: u64,
    /// Bytes of the small arena.
    pub small_size: u64,
    /// Bytes of live and draining chunks.
    pub allocated: u64,
    /// Bytes of contiguous scratchpads, ended ones that are held up included.
    pub scratchpad_size: u64,
    /// Free bytes.
    pub free: u64,
    /// Longest free run.
    pub largest: u64,
}

/// How full one host reserve pool is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolUsage {
    /// Bytes of one page.
    pub page_size: u64,
    /// Pages wanted.
    pub pages_requested: u32,
    /// Pages obtained.
    pub page_count: u32,
    /// Bytes of live and draining chunks.
    pub allocated: u64,
}

/// How full the device is.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// Cells of the grid, channel by channel.
    pub arenas: Vec<ArenaUsage>,
    /// The four host reserve pools.
    pub pools: Vec<PoolUsage>,
    /// Bytes of heap that the arenas' own tables take.
    pub table_bytes: u64,
}

pub(crate) const fn is_notification(category: Category) -> bool {
    matches!(category, Category::NOTIFICATION_HOST | Category::NOTIFICATION_DEVICE)
}

impl<S: HostSource> MemorySet<S> {
    /// Whether the device takes `address` for host memory (specification 04 §6.4).
    pub fn is_host_address(&self, address: u64) -> bool {
        let base = self.state.geometry.host_base;
        // On V2 the test looks at five bits, later at one.
        let mask = if base == 1 << 44 { 0x1f << 44 } else { base };
        base != 0 && address & mask == base
    }

    /// The live chunk that contains `pa`.
    pub(crate) fn find_pa(&mut self, pa: u64) -> Option<ChunkName> {
        let slot = if self.is_host_address(pa) {
            let page = u32::try_from((pa & !self.state.geometry.host_base) / PAGE).ok()?;
            self.state.host_index.used_at_or_before(page)?.1
        } else {
            self.state.cells.iter_mut().find(|cell| cell.contains(pa))?.span_at(pa)?
        };
        let record = self.table.record(slot)?;
        let generation = record.generation();
        let inside = generation & 1 == 1 && pa >= record.pa() && pa - record.pa() < record.size();
        inside.then_some(ChunkName { slot, generation })
    }

    /// The chunk that contains `pa`; with `publish` it gets a handle, unless it is the driver's own
    /// (MEM_MC_GET_INFO).
    ///
    /// # Errors
    /// [`MemoryError::NoSuchAddress`]; [`MemoryError::Forbidden`] for the driver's own chunks with
    /// `publish`; [`MemoryError::HandleTableDown`].
    pub fn search_pa(&mut self, pa: u64, publish: bool) -> Result<ChunkInfo, MemoryError> {
        let name = self.find_pa(pa).ok_or(MemoryError::NoSuchAddress { pa })?;
        let facts = self.record(name.slot)?.facts();
        if publish {
            if facts.owner.is_none() {
                return Err(MemoryError::Forbidden { what: "publishing memory of the driver" });
            }
            self.publish(name)?;
        }
        Ok(ChunkInfo { facts, handle: self.record(name.slot)?.handle().into() })
    }

    /// Whether all of `[pa, pa + len)` lies in one live chunk or its scratchpad run.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchAddress`]; [`MemoryError::OutOfBounds`].
    pub fn within(&mut self, pa: u64, len: u64) -> Result<ChunkName, MemoryError> {
        let name = self.find_pa(pa).ok_or(MemoryError::NoSuchAddress { pa })?;
        let facts = self.record(name.slot)?.facts();
        facts.check(pa - facts.pa.0, len)?;
        Ok(name)
    }

    /// All live device chunks of `channel` in ascending order; an unknown channel has none.
    ///
    /// # Errors
    /// [`MemoryError::TooSmall`] where there are more than `capacity`;
    /// [`MemoryError::NoRecords`].
    pub fn dump(&self, channel: u32, capacity: usize) -> Result<Vec<ChunkLine>, MemoryError> {
        let regions = usize::from(self.state.geometry.regions_per_channel);
        let cells = self.state.cells.iter().skip(channel as usize * regions).take(regions);
        let mut needed = 0;
        for cell in cells.clone() {
            cell.for_each(|slot| needed += usize::from(self.line(slot).is_some()));
        }
        if needed > capacity {
            return Err(MemoryError::TooSmall { needed });
        }
        let mut lines = Vec::new();
        lines.try_reserve_exact(needed).map_err(|_| MemoryError::NoRecords)?;
        for cell in cells {
            cell.for_each(|slot| lines.extend(self.line(slot)));
        }
        Ok(lines)
    }

    /// All live host chunks in ascending order of address.
    ///
    /// # Errors
    /// As [`Self::dump`].
    pub fn dump_host(&self, capacity: usize) -> Result<Vec<ChunkLine>, MemoryError> {
        let mut needed = 0;
        self.state
            .host_index
            .for_each_used(|_, slot| needed += usize::from(self.line(slot).is_some()));
        if needed > capacity {
            return Err(MemoryError::TooSmall { needed });
        }
        let mut lines = Vec::new();
        lines.try_reserve_exact(needed).map_err(|_| MemoryError::NoRecords)?;
        self.state.host_index.for_each_used(|_, slot| lines.extend(self.line(slot)));
        Ok(lines)
    }

    fn line(&self, slot: u32) -> Option<ChunkLine> {
        let record = self.table.record(slot)?;
        let facts = record.facts_of(record.generation())?;
        (record.generation() & 1 == 1).then(|| ChunkLine {
            pa: facts.pa,
            size: facts.size,
            category: facts.category,
            handle: record.handle().into(),
            owner: facts.owner,
        })
    }

    /// Bytes of the chunks on the list of the client in `slot` that something pins now.
    pub fn pinned_bytes(&self, slot: ClientSlot) -> u64 {
        let mut bytes = 0;
        let mut next = self.state.records.newest(List::of_client(slot));
        while let Some(record) = next.and_then(|slot| self.table.record(slot)) {
            bytes += if record.pins() > 0 { record.size() } else { 0 };
            next = Some(record.service.older.load(Relaxed));
        }
        bytes
    }

    /// How full arenas and reserve pools are.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for cell in &self.state.cells {
            let (free, largest) = cell.free();
            usage.arenas.push(ArenaUsage {
                base: cell.base,
                region_size: cell.region_size,
                main_end: cell.main_end(),
                small_size: cell.small_size,
                allocated: cell.allocated,
                scratchpad_size: cell.scratchpad_size(),
                free,
                largest,
            });
            usage.table_bytes += cell.table_bytes() as u64;
        }
        for pool in &self.state.host.pools {
            usage.pools.push(PoolUsage {
                page_size: pool.page_size,
                pages_requested: pool.requested,
                page_count: pool.page_count(),
                allocated: pool.allocated,
            });
        }
        usage
    }
}
