//! Everything that belongs to one device, owned outright (specification 04 §1): while the bring-up
//! ladder holds it, it is called directly; later the service task holds it and nobody else.

mod allocate;
mod query;
mod release;
mod sweep;

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_ports::chunk::record::ChunkRecord;
use axon_ports::chunk::table::NO_SLOT;
use axon_ports::{
    AllocRequest, Category, Chunk, ChunkName, ChunkTable, ClientId, ClientSlot, Lifespan, Location,
    MemoryError, MemoryGeometry, Pools,
};

use crate::arena::Index;
use crate::cell::Cell;
use crate::config::{CARVEOUT, MemoryConfig, PAGE};
use crate::counters::Counters;
use crate::faults::Faults;
use crate::handles::HandleTable;
use crate::host::{HostMemory, HostSource};
use crate::records::Records;

pub use query::{ArenaUsage, ChunkInfo, ChunkLine, PoolUsage, Usage};
pub use sweep::ShutdownReport;
pub(crate) use sweep::SweepState;

/// Pages below 4 GiB: what the host index spans.
const LOW_PAGES: u32 = 1 << 20;

/// Arenas, chunks, handles, lifespans and counters of one device.
pub struct MemorySet<S> {
    config: MemoryConfig,
    geometry: MemoryGeometry,
    faults: Faults,
    records: Records,
    handles: HandleTable,
    host: HostMemory<S>,
    /// Host chunks by page of their bus address.
    host_index: Index,
    /// The grid, channel by channel.
    cells: Vec<Cell>,
    counters: Arc<Counters>,
    clients: [Option<ClientId>; ClientSlot::COUNT],
    /// Attach slots whose client is being dropped.
    dropping: u32,
    /// Rest of the release chain taken last.
    chain: u32,
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
        let table = ChunkTable::new().map_err(|_| MemoryError::NoRecords)?;
        let handles =
            HandleTable::new(table.clone(), &mut faults).map_err(|_| MemoryError::NoRecords)?;
        let host =
            HostMemory::new(&config, source, &mut faults).map_err(|_| MemoryError::NoRecords)?;
        let host_index = Index::new(LOW_PAGES, &mut faults).map_err(|_| MemoryError::NoRecords)?;
        let cells = grid(&config, &geometry, &mut faults)?;
        let mut set = MemorySet {
            config,
            geometry,
            faults,
            records: Records::new(table),
            handles,
            host,
            host_index,
            cells,
            counters: Arc::new(Counters::new(geometry.cores)),
            clients: [None; ClientSlot::COUNT],
            dropping: 0,
            chain: NO_SLOT,
            warned: Warned::default(),
        };
        set.carve_out()?;
        Ok(set)
    }

    /// Takes the firmware's 16 MiB at the base of every region; they are given back with the set.
    fn carve_out(&mut self) -> Result<(), MemoryError> {
        for channel in 0..u32::from(self.geometry.channel_count) {
            for region in 0..u32::from(self.geometry.regions_per_channel) {
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
                if self.cell_index(channel, region).and_then(|i| self.cells.get(i)).map(|c| c.base)
                    != Some(at)
                {
                    self.release_reference(name.slot);
                    return Err(MemoryError::Invalid { what: "carve-out address", value: at });
                }
            }
        }
        Ok(())
    }

    /// Records, handle snapshot and release chain; readable without a message.
    pub fn table(&self) -> &Arc<ChunkTable> {
        &self.records.table
    }

    /// The counters; readable without a message.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// What the set was built for.
    pub fn geometry(&self) -> &MemoryGeometry {
        &self.geometry
    }

    /// The handle that the next publication gets; 0 once the table is down.
    #[cfg(test)]
    pub(crate) fn next_handle(&self) -> u32 {
        self.handles.next()
    }

    /// Failures to come.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    fn record(&self, slot: u32) -> Result<&ChunkRecord, MemoryError> {
        self.records.table.record(slot).ok_or(MemoryError::NoRecords)
    }

    fn cell_index(&self, channel: u32, region: u32) -> Option<usize> {
        let regions = u32::from(self.geometry.regions_per_channel);
        (region < regions).then_some((channel * regions + region) as usize)
    }

    /// Attach slot of `client`, where it is attached and not being dropped.
    fn live_client(&self, client: ClientId, slot: ClientSlot) -> bool {
        self.clients.get(slot.index()) == Some(&Some(client))
            && self.dropping & 1 << slot.number() == 0
    }
}

impl<S: HostSource> Pools for MemorySet<S> {
    fn alloc(&mut self, request: &AllocRequest) -> Result<Chunk, MemoryError> {
        let name: ChunkName = self.allocate_or_collect(request)?;
        Ok(self.records.table.reference(name))
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
