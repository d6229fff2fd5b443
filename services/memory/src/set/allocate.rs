//! Allocation: the checks in their order, the three device paths, the host path, the chunk
//! (specification 04 §4).

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_platform::{DeviceAddr, DmaBuf};
use axon_ports::{
    AllocRequest, Category, ChunkFacts, ChunkName, ClientSlot, CoreId, Location, MemoryError,
};
use core::sync::atomic::Ordering::Relaxed;

use super::MemorySet;
use crate::arena::ArenaError;
use crate::cell::{Placement, round_up};
use crate::config::{MAX_CORES, PAGE};
use crate::host::HostSource;
use crate::records::{List, Source, Tag};

/// Largest alignment that a request may carry.
const MAX_ALIGN: u64 = 0x7fff_ffff;

const fn invalid(what: &'static str, value: u64) -> MemoryError {
    MemoryError::Invalid { what, value }
}

/// A request that passed its checks.
struct Checked {
    size: u64,
    region: u32,
    core: CoreId,
    placement: Placement,
    list: List,
    payer: Option<ClientSlot>,
}

impl<S: HostSource> MemorySet<S> {
    /// As [`Self::allocate`]; where memory is short, what was dropped and not yet swept comes back
    /// first.
    #[inline]
    pub(crate) fn allocate_or_collect(
        &mut self,
        request: &AllocRequest,
    ) -> Result<ChunkName, MemoryError> {
        match self.allocate(request) {
            Err(MemoryError::NoMemory { .. }) if self.has_released() => {
                self.collect_all();
                self.allocate(request)
            }
            result => result,
        }
    }

    /// One allocation, complete or not at all.
    #[inline]
    pub(crate) fn allocate(&mut self, request: &AllocRequest) -> Result<ChunkName, MemoryError> {
        let checked = self.check(request)?;
        let slot = self.records.peek(&mut self.faults).map_err(|_| MemoryError::NoRecords)?;
        let (pa, source, host) = match request.location {
            Location::Device => self.cut_device(request, &checked, slot)?,
            Location::Host => self.take_host(request, &checked, slot)?,
        };
        let reach = match checked.placement {
            Placement::Scratchpad => self.scratchpad_reach(request, &checked),
            _ => checked.size,
        };
        let facts = ChunkFacts {
            pa: DeviceAddr(pa),
            size: checked.size,
            reach,
            location: request.location,
            channel: request.channel as u8,
            region: checked.region as u8,
            core: checked.core,
            category: request.category,
            lifespan: request.lifespan,
            owner: request.client.map(|(client, _)| client),
        };
        let name = self.enter(slot, &facts, source, &checked, host)?;
        if request.publish
            && let Err(error) = self.publish(name)
        {
            self.release_reference(slot);
            return Err(error);
        }
        Ok(name)
    }

    /// Checks 1 to 7, and ours behind them.
    #[inline]
    fn check(&mut self, request: &AllocRequest) -> Result<Checked, MemoryError> {
        if request.size > i64::MAX as u64 {
            return Err(invalid("size", request.size));
        }
        if request.channel >= u32::from(self.geometry.channel_count) {
            return Err(invalid("channel", request.channel.into()));
        }
        let size = round_up(request.size);
        if self.faults.allocation.hit() {
            return Err(self.no_memory(request, size));
        }
        let core = CoreId::new(request.core).filter(|_| request.core < MAX_CORES);
        let core = core.ok_or(invalid("core", request.core.into()))?;
        let regions = u32::from(self.geometry.regions_per_channel);
        let region = if regions == 1 { 0 } else { request.region };
        if region >= regions {
            return Err(invalid("region", region.into()));
        }
        let above_page = request.align > PAGE;
        if above_page && !request.align.is_power_of_two() {
            return Err(invalid("alignment", request.align));
        }
        let placement = match request.location {
            Location::Host if request.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE => {
                return Err(invalid("category", request.category.0.into()));
            }
            Location::Host if request.align != 0 => {
                return Err(invalid("alignment", request.align));
            }
            _ if request.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE => {
                Placement::Scratchpad
            }
            _ if request.align > MAX_ALIGN => return Err(invalid("alignment", request.align)),
            _ if above_page => Placement::Aligned(request.align),
            _ => Placement::Anywhere,
        };
        let payer = match request.client {
            Some((client, slot)) if self.live_client(client, slot) => Some(slot),
            _ => None,
        };
        let list = List::for_lifespan(request.lifespan, payer).ok_or(MemoryError::NotAttached)?;
        Ok(Checked { size, region, core, placement, list, payer })
    }

    fn cut_device(
        &mut self,
        request: &AllocRequest,
        checked: &Checked,
        slot: u32,
    ) -> Result<(u64, Source, Option<Arc<DmaBuf>>), MemoryError> {
        let cell = self.cell_index(request.channel, checked.region);
        let cell = cell.and_then(|index| self.cells.get_mut(index));
        let Some(cell) = cell else { return Err(self.no_memory(request, checked.size)) };
        match cell.allocate(checked.size, checked.placement, slot, &mut self.faults) {
            Ok((pa, part)) => Ok((pa, Source::Device(part), None)),
            Err(ArenaError::Full) => Err(self.no_memory(request, checked.size)),
            Err(ArenaError::NoRoom) => Err(MemoryError::NoRecords),
        }
    }

    fn take_host(
        &mut self,
        request: &AllocRequest,
        checked: &Checked,
        slot: u32,
    ) -> Result<(u64, Source, Option<Arc<DmaBuf>>), MemoryError> {
        if checked.size == 0 {
            return Err(self.no_memory(request, 0));
        }
        let (buffer, origin) = match self.host.allocate(checked.size, &mut self.faults) {
            Ok(found) => found,
            Err(exhausted) => {
                let location = Location::Host;
                let largest = exhausted.largest;
                let asked = checked.size;
                return Err(MemoryError::NoMemory { location, asked, free: largest, largest });
            }
        };
        let bus = buffer.bus().0;
        let page = (bus / PAGE) as u32;
        let room = self.host_index.prepare(page, &mut self.faults).is_ok()
            && !self.faults.growth.hit()
            && Vec::<DmaBuf>::new().try_reserve_exact(2).is_ok();
        let buffer = Arc::new(buffer);
        if !room {
            self.host.release(buffer, origin);
            return Err(MemoryError::NoRecords);
        }
        self.host_index.insert_used(page, slot, false);
        Ok((bus | self.geometry.host_base, Source::Host(origin), Some(buffer)))
    }

    /// How far an access may reach that starts in the scratchpad just pushed: through the older
    /// ones above it, as long as they live and have the same owner.
    fn scratchpad_reach(&self, request: &AllocRequest, checked: &Checked) -> u64 {
        let cell = self.cell_index(request.channel, checked.region);
        let above = cell
            .and_then(|index| self.cells.get(index))
            .and_then(|cell| cell.scratchpads.iter().nth_back(1))
            .and_then(|&slot| self.records.table.record(slot));
        let owner = request.client.map_or(0, |(client, _)| client.number());
        match above {
            Some(above) if above.generation() & 1 == 1 && above.owner() == owner => {
                checked.size + above.reach()
            }
            _ => checked.size,
        }
    }

    /// Stamps the record, joins list and totals (specification 04 §4.5).
    #[inline]
    fn enter(
        &mut self,
        slot: u32,
        facts: &ChunkFacts,
        source: Source,
        checked: &Checked,
        host: Option<Arc<DmaBuf>>,
    ) -> Result<ChunkName, MemoryError> {
        let table = self.records.table.clone();
        let record = table.record(slot).ok_or(MemoryError::NoRecords)?;
        self.records.take(slot, record);
        record.service.references.store(1, Relaxed);
        self.records.push(checked.list, slot, record, Tag::new(source, checked.payer));
        let core = facts.core.number();
        self.counters.book(facts.location, facts.category, core, facts.size);
        if let Some(payer) = checked.payer {
            self.counters.charge(payer.index(), facts.location, facts.size);
        }
        if facts.category.0 as usize >= Category::COUNT || core >= u32::from(self.geometry.cores) {
            self.warn_odd(facts);
        }
        let generation = record.open(facts, host);
        Ok(ChunkName { slot, generation })
    }

    #[cold]
    fn warn_odd(&mut self, facts: &ChunkFacts) {
        let device = self.config.device;
        if facts.category.0 as usize >= Category::COUNT && !self.warned.category {
            self.warned.category = true;
            log::warn!("nd{device}: category {} is unknown and booked as such", facts.category.0);
        }
        if facts.core.number() >= u32::from(self.geometry.cores) && !self.warned.core {
            self.warned.core = true;
            log::warn!("nd{device}: {} is not there, its last core serves it", facts.core);
        }
    }

    /// Mints a handle for a live chunk, or answers the one it has.
    pub(crate) fn publish(&mut self, name: ChunkName) -> Result<u32, MemoryError> {
        let record = self.records.table.record(name.slot).ok_or(MemoryError::NoRecords)?;
        let handle = record.handle();
        if handle != 0 {
            return Ok(handle);
        }
        let handle =
            self.handles.mint(name, &mut self.faults).map_err(|_| MemoryError::HandleTableDown)?;
        record.set_handle(handle);
        Ok(handle)
    }

    #[cold]
    fn no_memory(&self, request: &AllocRequest, asked: u64) -> MemoryError {
        let (free, largest) = match request.location {
            Location::Host => (0, 0),
            Location::Device => self
                .cell_index(request.channel, if self.cells.len() > 4 { request.region } else { 0 })
                .and_then(|index| self.cells.get(index))
                .map_or((0, 0), |cell| cell.free()),
        };
        MemoryError::NoMemory { location: request.location, asked, free, largest }
    }
}
