//! Allocation: the checks in their order, the three device paths, the host path, the chunk
//! (specification 04 §4). The usual request takes the short way of `hot`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_platform::DmaBuf;
use axon_ports::chunk::record::{ChunkRecord, Place, Stamp};
use axon_ports::{
    AllocRequest, Category, Chunk, ChunkName, ChunkTable, CoreId, Lifespan, Location, MemoryError,
};

use super::{MemorySet, State};
use crate::arena::{ArenaError, NoRoom};
use crate::cell::{Part, Placement, round_up};
use crate::config::{MAX_CORES, PAGE};
use crate::counters::Payer;
use crate::host::{HostSource, Origin};
use crate::records::{List, Source, Tag};

/// Largest alignment that a request may carry.
const MAX_ALIGN: u64 = 0x7fff_ffff;

/// Why a request was refused; [`State::explain`] turns it into a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    Size,
    Channel,
    Core,
    Region,
    Alignment,
    Category,
    NotAttached,
    Scrubbed,
    NoMemory,
    NoRecords,
    HandleTableDown,
}

impl From<ArenaError> for Refusal {
    #[inline]
    fn from(error: ArenaError) -> Self {
        match error {
            ArenaError::Full => Refusal::NoMemory,
            ArenaError::NoRoom => Refusal::NoRecords,
        }
    }
}

impl From<NoRoom> for Refusal {
    #[inline]
    fn from(_: NoRoom) -> Self {
        Refusal::NoRecords
    }
}

/// A request that passed its checks.
struct Checked {
    size: u64,
    region: u32,
    /// Place in the grid.
    cell: usize,
    owner: u32,
    payer: Payer,
    list: List,
}

/// Memory for a chunk.
struct Found {
    slot: u32,
    pa: u64,
    reach: u64,
    handle: u32,
    source: Source,
}

impl<S: HostSource> MemorySet<S> {
    /// One allocation, complete or not at all. Where memory is short, what was dropped and not yet
    /// swept comes back first.
    #[inline]
    pub(crate) fn allocate_chunk(&mut self, request: &AllocRequest) -> Result<Chunk, MemoryError> {
        match self.allocate_hot(request) {
            Some(name) => Ok(self.table.device_reference(name)),
            None => self.allocate_any(request),
        }
    }

    #[inline(never)]
    fn allocate_any(&mut self, request: &AllocRequest) -> Result<Chunk, MemoryError> {
        match self.state.allocate(&self.table, request) {
            Ok(name) => Ok(self.table.reference(name)),
            Err(refusal) => self.allocate_again(request, refusal),
        }
    }

    #[cold]
    #[inline(never)]
    fn allocate_again(
        &mut self,
        request: &AllocRequest,
        mut refusal: Refusal,
    ) -> Result<Chunk, MemoryError> {
        if refusal == Refusal::NoMemory && self.state.has_released(&self.table) {
            self.state.collect_all(&self.table);
            match self.state.allocate(&self.table, request) {
                Ok(name) => return Ok(self.table.reference(name)),
                Err(again) => refusal = again,
            }
        }
        Err(self.state.explain(request, refusal))
    }

    /// As [`Self::allocate_chunk`], without a reference value.
    pub(super) fn allocate(&mut self, request: &AllocRequest) -> Result<ChunkName, MemoryError> {
        let name = self.state.allocate(&self.table, request);
        name.map_err(|refusal| self.state.explain(request, refusal))
    }
}

impl<S: HostSource> State<S> {
    fn allocate(
        &mut self,
        table: &ChunkTable,
        request: &AllocRequest,
    ) -> Result<ChunkName, Refusal> {
        match request.location {
            Location::Device => self.allocate_device(table, request),
            Location::Host => self.allocate_host(table, request),
        }
    }

    /// Device memory.
    fn allocate_device(
        &mut self,
        table: &ChunkTable,
        request: &AllocRequest,
    ) -> Result<ChunkName, Refusal> {
        let checked = self.check(request)?;
        let slot = self.records.choose(table, request.publish, &mut self.faults)?;
        let record = table.record(slot).ok_or(Refusal::NoRecords)?;
        let cell = self.cells.get_mut(checked.cell).ok_or(Refusal::NoMemory)?;
        let mut reach = checked.size;
        let placement = placement(request)?;
        let (pa, part) = cell.allocate_placed(checked.size, placement, slot, &mut self.faults)?;
        if placement == Placement::Scratchpad {
            reach += reach_above(table, &cell.scratchpads, checked.owner);
        }
        let name = ChunkName { slot, generation: record.next_generation() };
        let handle = match self.issue(table, request, slot) {
            Ok(handle) => handle,
            Err(refusal) => {
                self.put_back(&checked, part, pa, slot);
                return Err(refusal);
            }
        };
        let found = Found { slot, pa, reach, handle, source: Source::Device(part) };
        record.open(self.enter(table, request, &checked, record, found));
        Ok(name)
    }

    /// Host memory.
    fn allocate_host(
        &mut self,
        table: &ChunkTable,
        request: &AllocRequest,
    ) -> Result<ChunkName, Refusal> {
        let checked = self.check(request)?;
        let slot = self.records.choose(table, request.publish, &mut self.faults)?;
        let record = table.record(slot).ok_or(Refusal::NoRecords)?;
        let (buffer, origin) = self.take_host(&checked, slot)?;
        let name = ChunkName { slot, generation: record.next_generation() };
        let handle = match self.issue(table, request, slot) {
            Ok(handle) => handle,
            Err(refusal) => {
                self.host_index.remove_used((buffer.bus().0 / PAGE) as u32);
                self.host.release(buffer, origin);
                return Err(refusal);
            }
        };
        let pa = buffer.bus().0 | self.geometry.host_base;
        let source = Source::Host(origin);
        let found = Found { slot, pa, reach: checked.size, handle, source };
        let stamp = self.enter(table, request, &checked, record, found);
        record.open_host(stamp, buffer);
        Ok(name)
    }

    /// Checks 1 to 7, check 9 and ours behind them.
    fn check(&mut self, request: &AllocRequest) -> Result<Checked, Refusal> {
        const { assert!(CoreId::COUNT == MAX_CORES as usize) };
        if request.size > i64::MAX as u64 {
            return Err(Refusal::Size);
        }
        if request.channel >= self.channels {
            return Err(Refusal::Channel);
        }
        if self.faults.allocation.hit() {
            return Err(Refusal::NoMemory);
        }
        if request.core >= MAX_CORES {
            return Err(Refusal::Core);
        }
        let region = request.region & self.region_mask;
        if region >= self.regions {
            return Err(Refusal::Region);
        }
        placement(request)?;
        let own = request.lifespan as u8 == Lifespan::Client as u8;
        let mut owner = 0;
        let mut payer = Payer::DRIVER;
        let mut list = List::shared(request.lifespan);
        match request.client {
            Some((client, slot)) if self.is_live(client, slot) => {
                owner = client.number();
                payer = Payer::of(slot);
                // A request ends at the latest with the client that made it.
                if own || request.lifespan as u8 == Lifespan::Local as u8 {
                    list = List::of_client(slot);
                }
            }
            _ if own => return Err(Refusal::NotAttached),
            Some((client, _)) => owner = client.number(),
            None => {}
        }
        if request.location == Location::Device && self.scrubs.iter().any(Option::is_some) {
            self.forget_scrubs();
            let scrub = self.scrubs.get(request.channel as usize).and_then(Option::as_ref);
            if scrub.is_some_and(|(scrubber, _)| owner != scrubber.number()) {
                return Err(Refusal::Scrubbed);
            }
        }
        let cell = self.cell_index(request.channel, region);
        Ok(Checked { size: round_up(request.size), region, cell, owner, payer, list })
    }

    fn issue(
        &mut self,
        table: &ChunkTable,
        request: &AllocRequest,
        slot: u32,
    ) -> Result<u32, Refusal> {
        if !request.publish {
            return Ok(0);
        }
        self.records.issue(table, slot, &mut self.faults).map_err(|_| Refusal::HandleTableDown)
    }

    /// Joins list and totals; what is to be stamped on the record (specification 04 §4.5).
    fn enter(
        &mut self,
        table: &ChunkTable,
        request: &AllocRequest,
        checked: &Checked,
        record: &ChunkRecord,
        found: Found,
    ) -> Stamp {
        let location = found.source.location();
        let mut category = request.category.0 as usize;
        let mut core = request.core;
        if category >= Category::COUNT {
            category = self.unknown_category(request) as usize;
        }
        if core >= self.cores {
            core = self.missing_core(request);
        }
        let account = self.counters.account(location, category, core);
        self.counters.book(location, core, account, checked.payer, checked.size);
        self.records.take(found.slot, record);
        let tag = Tag::new(found.source, checked.payer);
        self.records.push(table, checked.list, found.slot, record, tag);
        Stamp {
            place: Place::new(
                found.pa,
                location,
                request.channel,
                checked.region,
                request.core,
                request.lifespan,
            ),
            size: checked.size,
            reach: found.reach,
            owner: checked.owner,
            handle: found.handle,
            category: request.category.0 as u16,
            account: account.0.into(),
        }
    }

    fn take_host(
        &mut self,
        checked: &Checked,
        slot: u32,
    ) -> Result<(Arc<DmaBuf>, Origin), Refusal> {
        if checked.size == 0 {
            return Err(Refusal::NoMemory);
        }
        let taken = self.host.allocate(checked.size, &mut self.faults);
        let (buffer, origin) = taken.map_err(|_| Refusal::NoMemory)?;
        let page = (buffer.bus().0 / PAGE) as u32;
        let room = self.host_index.prepare(page, &mut self.faults).is_ok()
            && !self.faults.growth.hit()
            && Vec::<DmaBuf>::new().try_reserve_exact(2).is_ok();
        let buffer = Arc::new(buffer);
        if !room {
            self.host.release(buffer, origin);
            return Err(Refusal::NoRecords);
        }
        self.host_index.insert_used(page, slot, false);
        Ok((buffer, origin))
    }

    /// Undoes the cut: there is no handle for the chunk.
    fn put_back(&mut self, checked: &Checked, part: Part, pa: u64, slot: u32) {
        let cell = self.cells.get_mut(checked.cell);
        let intact = cell.is_some_and(|cell| cell.put_back(part, pa, checked.size, slot).is_ok());
        debug_assert!(intact, "what was just cut goes back");
    }

    /// Category under which a chunk of an unknown one is booked; says so once.
    fn unknown_category(&mut self, request: &AllocRequest) -> u32 {
        if !core::mem::replace(&mut self.warned.category, true) {
            let device = self.config.device;
            log::warn!("nd{device}: category {} is unknown", request.category.0);
        }
        match request.location {
            Location::Host => Category::UNKNOWN_HOST.0,
            Location::Device => Category::UNKNOWN_DEVICE.0,
        }
    }

    /// Core under which a chunk is booked whose core the device does not have; says so once.
    fn missing_core(&mut self, request: &AllocRequest) -> u32 {
        if !core::mem::replace(&mut self.warned.core, true) {
            let device = self.config.device;
            log::warn!("nd{device}: no core {}, the last one serves it", request.core);
        }
        self.counters.shown_core(request.core) as u32
    }

    #[cold]
    fn explain(&self, request: &AllocRequest, refusal: Refusal) -> MemoryError {
        let (what, value) = match refusal {
            Refusal::Size => ("size", request.size),
            Refusal::Channel => ("channel", request.channel.into()),
            Refusal::Core => ("core", request.core.into()),
            Refusal::Region => ("region", request.region.into()),
            Refusal::Alignment => ("alignment", request.align),
            Refusal::Category => ("category", request.category.0.into()),
            Refusal::Scrubbed => return MemoryError::Busy { what: "the channel, by a scrub," },
            Refusal::NotAttached => return MemoryError::NotAttached,
            Refusal::NoRecords => return MemoryError::NoRecords,
            Refusal::HandleTableDown => return MemoryError::HandleTableDown,
            Refusal::NoMemory => return self.no_memory(request),
        };
        MemoryError::Invalid { what, value }
    }

    fn no_memory(&self, request: &AllocRequest) -> MemoryError {
        let region = request.region & self.region_mask;
        let (free, largest) = match request.location {
            Location::Host => (self.host.largest_seen(), self.host.largest_seen()),
            Location::Device => self
                .cells
                .get(self.cell_index(request.channel, region))
                .map_or((0, 0), |cell| cell.free()),
        };
        let asked = round_up(request.size);
        MemoryError::NoMemory { location: request.location, asked, free, largest }
    }
}

/// How the span must lie; check 9, check 11 and ours behind check 7.
fn placement(request: &AllocRequest) -> Result<Placement, Refusal> {
    let scratchpad = request.category == Category::CONTIGUOUS_SCRATCHPAD_DEVICE;
    let above_page = request.align > PAGE;
    if above_page && !request.align.is_power_of_two() {
        return Err(Refusal::Alignment);
    }
    match request.location {
        Location::Host if scratchpad => Err(Refusal::Category),
        Location::Host if request.align != 0 => Err(Refusal::Alignment),
        Location::Device if scratchpad => Ok(Placement::Scratchpad),
        Location::Device if request.align > MAX_ALIGN => Err(Refusal::Alignment),
        Location::Device if above_page => Ok(Placement::Aligned(request.align)),
        _ => Ok(Placement::Anywhere),
    }
}

/// How much further than itself an access may reach that starts in the newest of `scratchpads`:
/// through the older ones above it, as long as they live and have the same owner.
fn reach_above(table: &ChunkTable, scratchpads: &[u32], owner: u32) -> u64 {
    let above = scratchpads.iter().nth_back(1).and_then(|&slot| table.record(slot));
    above
        .filter(|above| above.generation() & 1 == 1 && above.owner() == owner)
        .map_or(0, |above| above.reach())
}
