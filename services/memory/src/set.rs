//! Everything that belongs to one device, owned outright (specification 04 §1): while the bring-up
//! ladder holds it, it is called directly; later the service task holds it and nobody else.

mod allocate;
mod hot;
mod query;
mod release;
mod sweep;
mod windows;

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_ports::chunk::record::ChunkRecord;
use axon_ports::chunk::table::NO_SLOT;
use axon_ports::{
    AllocRequest, Category, Chunk, ChunkTable, ClientId, ClientSlot, Lifespan, Location,
    MemoryError, MemoryGeometry, Pools, ScrubWatch,
};

use crate::arena::Index;
use crate::cell::Cell;
use crate::config::{CARVEOUT, MemoryConfig, PAGE};
use crate::counters::Counters;
use crate::faults::Faults;
use crate::host::{HostMemory, HostSource};
use crate::records::Records;

pub use query::{ArenaUsage, ChunkInfo, ChunkLine, PoolUsage, Usage};
pub use sweep::ShutdownReport;
pub(crate) use sweep::SweepState;
pub use windows::ScrubRange;

pub(crate) use query::is_notification;
use windows::Windows;

/// Pages below 4 GiB: what the host index spans.
const LOW_PAGES: u32 = 1 << 20;

/// Arenas, chunks, handles, lifespans and counters of one device.
pub struct MemorySet<S> {
    /// What is published: records, handle snapshot, release chain.
    table: Arc<ChunkTable>,
    state: State<S>,
}

/// What only the set itself sees. Its methods get the table as an argument, so that a record can be
/// held while the state changes.
struct State<S> {
    config: MemoryConfig,
    geometry: MemoryGeometry,
    /// Channels for which the hot way may be taken: all, or none.
    hot_channels: u32,
    /// Of the geometry.
    channels: u32,
    regions: u32,
    /// Takes every region number to 0 where there is one region.
    region_mask: u32,
    cores: u32,
    faults: Faults,
    records: Records,
    host: HostMemory<S>,
    /// Host chunks by page of their bus address.
    host_index: Index,
    /// The grid, channel by channel.
    cells: Vec<Cell>,
    counters: Arc<Counters>,
    /// Clients by attach slot; 0 for none.
    clients: [u32; ClientSlot::COUNT],
    /// As `clients`, without those that are being dropped.
    live_clients: [u32; ClientSlot::COUNT],
    /// Rest of the release chain taken last.
    chain: u32,
    windows: Windows,
    /// Who scrubs a channel, and whether hardware may still write there.
    scrubs: [Option<(ClientId, ScrubWatch)>; 4],
    warned: Warned,
}

/// Log lines that are written once.
#[derive(Default)]
struct Warned {
    category: bool,
    core: bool,
    scratchpad: bool,
}

impl<S: HostSource> MemorySet<S> {
    /// Builds everything of specification 04 §2.4 and takes the carve-outs.
    ///
    /// # Errors
    /// [`MemoryError`]; whatever was built has been undone.
    pub fn new(
        config: MemoryConfig,
        geometry: MemoryGeometry,
        source: S,
    ) -> Result<Self, MemoryError> {
        MemorySet::with_faults(config, geometry, source, Faults::default())
    }

    /// As [`Self::new`], with failures armed.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_faults(
        config: MemoryConfig,
        geometry: MemoryGeometry,
        source: S,
        mut faults: Faults,
    ) -> Result<Self, MemoryError> {
        config.check(&geometry)?;
        if faults.growth.hit() {
            return Err(MemoryError::NoRecords);
        }
        let no_records = |_| MemoryError::NoRecords;
        let table = ChunkTable::new().map_err(|_| MemoryError::NoRecords)?;
        let records = Records::new(&table, &mut faults).map_err(|_| MemoryError::NoRecords)?;
        let host = HostMemory::new(&config, source, &mut faults).map_err(no_records)?;
        let host_index = Index::new(LOW_PAGES, &mut faults).map_err(no_records)?;
        let cells = grid(&config, &geometry, &mut faults)?;
        let mut set = MemorySet {
            table,
            state: State {
                config,
                geometry,
                hot_channels: 0,
                channels: geometry.channel_count.into(),
                regions: geometry.regions_per_channel.into(),
                region_mask: if geometry.regions_per_channel == 1 { 0 } else { u32::MAX },
                cores: geometry.cores.into(),
                faults,
                records,
                host,
                host_index,
                cells,
                counters: Arc::new(Counters::new(geometry.cores)),
                clients: [0; ClientSlot::COUNT],
                live_clients: [0; ClientSlot::COUNT],
                chain: NO_SLOT,
                windows: Windows::new(),
                scrubs: [const { None }; 4],
                warned: Warned::default(),
            },
        };
        set.carve_out()?;
        set.arm(set.state.faults);
        Ok(set)
    }

    /// Takes the firmware's 16 MiB at the base of every region; they are given back with the set.
    fn carve_out(&mut self) -> Result<(), MemoryError> {
        for channel in 0..u32::from(self.state.geometry.channel_count) {
            for region in 0..u32::from(self.state.geometry.regions_per_channel) {
                let name = self.allocate(&AllocRequest {
                    client: None,
                    lifespan: Lifespan::Device,
                    size: CARVEOUT,
                    align: 0,
                    location: Location::Device,
                    channel,
                    region,
                    core: channel,
                    category: Category::NCDEV_DEVICE,
                    publish: false,
                })?;
                let at = self.record(name.slot)?.pa();
                let cell = self.state.cells.get(self.state.cell_index(channel, region));
                if cell.map(|cell| cell.base) != Some(at) {
                    if let Some(record) = self.table.record(name.slot) {
                        self.state.release_reference(&self.table, name.slot, record);
                    }
                    return Err(MemoryError::Invalid { what: "carve-out address", value: at });
                }
            }
        }
        Ok(())
    }

    /// Records, handle snapshot and release chain; readable without a message.
    pub fn table(&self) -> &Arc<ChunkTable> {
        &self.table
    }

    /// The counters; readable without a message.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.state.counters
    }

    /// What the set was built for.
    pub fn geometry(&self) -> &MemoryGeometry {
        &self.state.geometry
    }

    /// The handle that the next publication gets; 0 once the table is down.
    #[cfg(test)]
    pub(crate) fn next_handle(&self) -> u32 {
        match self.state.records.next_handle() {
            axon_ports::chunk::table::HANDLE_LIMIT => 0,
            handle => handle,
        }
    }

    /// Whether a scratchpad was ever released before a newer one.
    #[cfg(test)]
    pub(crate) fn was_out_of_order(&self) -> bool {
        self.state.warned.scratchpad
    }

    /// From now on every allocation takes the general way.
    #[cfg(test)]
    pub(crate) fn forbid_hot_way(&mut self) {
        self.state.hot_channels = 0;
    }

    /// Failures that are still to come.
    pub fn faults(&self) -> Faults {
        self.state.faults
    }

    /// Arms failures to come.
    pub fn arm(&mut self, faults: Faults) {
        self.state.faults = faults;
        self.state.refresh_hot_channels();
    }

    fn record(&self, slot: u32) -> Result<&ChunkRecord, MemoryError> {
        self.table.record(slot).ok_or(MemoryError::NoRecords)
    }
}

impl<S> State<S> {
    /// The hot way is taken where nothing unusual has to be looked at.
    fn refresh_hot_channels(&mut self) {
        let usual = self.regions == 1
            && !self.faults.allocation.is_armed()
            && self.scrubs.iter().all(Option::is_none);
        self.hot_channels = if usual { self.channels } else { 0 };
    }

    /// Scrubs that are over no longer keep anybody out.
    #[cold]
    fn forget_scrubs(&mut self) {
        for scrub in &mut self.scrubs {
            scrub.take_if(|(_, watch)| !watch.is_held());
        }
        self.refresh_hot_channels();
    }

    /// Place in the grid; the caller has checked both numbers.
    #[inline(always)]
    fn cell_index(&self, channel: u32, region: u32) -> usize {
        (channel * self.regions + region) as usize
    }

    /// Whether `client` is attached in `slot` and not being dropped.
    #[inline]
    fn is_live(&self, client: ClientId, slot: ClientSlot) -> bool {
        self.live_clients[slot.index() % ClientSlot::COUNT] == client.number()
    }
}

impl<S: HostSource> Pools for MemorySet<S> {
    fn alloc(&mut self, request: &AllocRequest) -> Result<Chunk, MemoryError> {
        self.allocate_chunk(request)
    }
}

/// The device grid: every channel divided into equal regions.
fn grid(
    config: &MemoryConfig,
    geometry: &MemoryGeometry,
    faults: &mut Faults,
) -> Result<Vec<Cell>, MemoryError> {
    let regions = u64::from(geometry.regions_per_channel);
    let channels = geometry.channels.iter().take(geometry.channel_count.into());
    let mut cells = Vec::new();
    if faults.growth.hit() {
        return Err(MemoryError::NoRecords);
    }
    cells.try_reserve_exact(16).map_err(|_| MemoryError::NoRecords)?;
    for channel in channels {
        let size = channel.size / regions;
        for region in 0..regions {
            let base = channel.base.0.checked_add(region * size).filter(|base| {
                // Bit 63 and addresses inside a page name nothing.
                base.checked_add(size).is_some_and(|end| end <= 1 << 63)
                    && base.is_multiple_of(PAGE)
            });
            let base =
                base.ok_or(MemoryError::Invalid { what: "channel base", value: channel.base.0 })?;
            let cell = Cell::new(config, geometry, base, size, faults)
                .map_err(|_| MemoryError::NoRecords)?;
            cells.push(cell);
        }
    }
    Ok(cells)
}
