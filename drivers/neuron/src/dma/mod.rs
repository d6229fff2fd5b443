//! Everything that moves bytes: engines, rings, copies, fills, the completion task
//! (specification 02, 03).
//!
//! ```text
//! Copy ─first poll─► Port ─admit─► Ring: descriptors + marker ─ alone? doorbells · marker ─► done
//!                                                                      else mark dirty, wake
//!                                                                             │
//! completion task, once a turn: barrier · doorbells S2M, M2S · oldest markers ▼ · wake · yield
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `descriptor`, `cursor`, `memory` | words, indices and memory of a ring |
//! | `queue`, `engine` | what is written to hardware |
//! | `slab`, `ring` | batches of one ring: staged, in flight, ended |
//! | `fault`, `interrupt`, `quarantine` | what happens when a batch does not end as it should |
//! | `port` | who may stage on a ring, who waits, who is refused |
//! | `transfer`, `copy`, `fill_source` | requests of any size, as futures |
//! | `plan`, `gather` | zero-copy: lists of host memory, several transfers at once |
//! | `batch`, `pieces` | many copies behind one marker |
//! | `completion` | the task |
//! | `queues` | queues and rings of clients |

mod batch;
pub(crate) mod completion;
mod copy;
mod cursor;
mod descriptor;
pub(crate) mod engine;
mod fault;
mod fill_source;
mod gather;
mod interrupt;
mod link;
mod memory;
mod pieces;
mod plan;
mod port;
mod quarantine;
mod queue;
pub(crate) mod queues;
mod report;
mod ring;
mod slab;
mod transfer;

use alloc::sync::Arc;
use alloc::vec::Vec;

use core::sync::atomic::Ordering;
use core::time::Duration;

use axon_platform::{DeviceAddr, Platform};
use axon_ports::chunk::record::ChunkRecord;
use axon_ports::{ChunkName, ClientId, CoreId, Pin, PinPair};

use crate::shared::Shared;
use crate::{Counters, Error};

pub use batch::Batch;
pub use copy::{Copy, Fill, Target};
pub use gather::{Direction, ZeroCopy, ZeroCopyOp};
pub use link::Link;
pub use plan::HostPiece;
pub use report::{EngineReport, Stop};

pub use queues::{
    BatchError, Claims, EngineCommand, EngineState, EngineStatus, MAX_BATCH, Named, QueueBind,
    QueueSide, QueueStatus, RingBind, RingOwner, Scrub, ScrubOrder, Side, Staging, describe,
};

pub(crate) use fault::DRAIN;
pub(crate) use fill_source::FillSource;
pub(crate) use link::Links;
pub(crate) use memory::RingMemory;
pub(crate) use port::{Port, PortCell};
pub(crate) use queues::Queues;
pub(crate) use ring::{Ring, RingName};
pub(crate) use slab::Outcome;

use queues::Table;
use ring::RingCounters;

/// Most time that batches of a client get when it is dropped.
const CLIENT_DRAIN: Duration = Duration::from_secs(1);
const CLIENT_DRAIN_LOOK: Duration = Duration::from_millis(1);

/// The DMA side of a device. Clones reach the same rings.
pub struct Dma<P: Platform>(pub(crate) Arc<Shared<P>>);

impl<P: Platform> Clone for Dma<P> {
    fn clone(&self) -> Self {
        Dma(self.0.clone())
    }
}

impl<P: Platform> Dma<P> {
    /// Copies `len_bytes` on the default ring of `core`: the core of the destination if that is
    /// device memory, else of the source (specification 03 §5.3).
    ///
    /// Nothing happens before the first poll or [`Copy::start`]. Copies on one ring end in the
    /// order in which they are staged.
    #[inline]
    pub fn copy(
        &self,
        core: CoreId,
        source: Target,
        destination: Target,
        len_bytes: u64,
    ) -> Copy<P> {
        Copy::new(self.0.clone(), self.0.default_port(core), source, destination, len_bytes)
    }

    /// As [`Dma::copy`] between two addresses whose chunks `pins` hold.
    #[inline]
    pub fn copy_held(
        &self,
        core: CoreId,
        [source, destination]: [DeviceAddr; 2],
        len_bytes: u64,
        pins: PinPair,
    ) -> Copy<P> {
        Copy::held(self.0.clone(), self.0.default_port(core), source, destination, len_bytes, pins)
    }

    /// Sets `len_bytes` to `byte` by DMA on the default ring of `core` (specification 03 §9).
    pub fn fill(&self, core: CoreId, destination: Target, byte: u8, len_bytes: u64) -> Fill<P> {
        self.fill_held(core, destination.address, byte, len_bytes, destination.pin.into())
    }

    /// As [`Dma::fill`] from an address on whose chunk `pins` hold.
    #[inline]
    pub fn fill_held(
        &self,
        core: CoreId,
        destination: DeviceAddr,
        byte: u8,
        len_bytes: u64,
        pins: PinPair,
    ) -> Fill<P> {
        Fill::new(self.0.clone(), self.0.default_port(core), destination, byte, len_bytes, pins)
    }

    /// A batch for at most `limit` copies; which ring carries it says [`Batch::serve`].
    ///
    /// # Errors
    /// [`Error::NoRecords`].
    pub fn batch(&self, limit: usize) -> Result<Batch<P>, Error> {
        Batch::new(self.0.clone(), limit)
    }

    /// What has been done on all rings.
    pub(crate) fn counters(&self) -> Counters {
        let register_reads = self.0.data_path_reads.load(Ordering::Relaxed);
        let mut sum = RingCounters::default();
        let mut quarantined = self.quarantined_queues() as u64;
        self.0.queues.with(|table| sum.add(&table.retired));
        for cell in &self.0.ports {
            cell.with(|port| {
                let Some(ring) = port.ring() else { return };
                sum.add(&ring.counters());
                quarantined += u64::from(ring.quarantined());
            });
        }
        Counters {
            register_reads,
            doorbells: sum.doorbells,
            descriptors: sum.descriptors,
            batches: sum.batches,
            bytes: sum.bytes,
            completed: sum.completed,
            timeouts: sum.timeouts,
            aborts: sum.aborts,
            cancelled: sum.cancelled,
            replays: sum.replays,
            quarantined,
        }
    }

    /// Bytes of the chunks that batches in quarantine hold: host, device. Each chunk counts once;
    /// without memory to tell them apart, as often as it is held.
    pub fn quarantined_bytes(&self) -> [u64; 2] {
        let mut seen: Vec<ChunkName> = Vec::new();
        let mut bytes = [0; 2];
        let mut count = |name: ChunkName, chunk: &ChunkRecord| {
            if seen.contains(&name) {
                return;
            }
            if seen.try_reserve(1).is_ok() {
                seen.push(name);
            }
            let [host, device] = &mut bytes;
            *if chunk.is_host() { host } else { device } += chunk.size();
        };
        for cell in &self.0.ports {
            cell.with(|port| {
                if let Some(ring) = port.ring().filter(|ring| ring.quarantined() > 0) {
                    ring.each_quarantined(&mut count);
                }
            });
        }
        let mut of_pin = |pin: &Pin| count(pin.header().name(), pin.header().record());
        self.0.queues.with(|table| table.each_quarantined_pin(&mut of_pin));
        bytes
    }

    /// Gives the batches of `client` that are in flight at most 1 s (specification 03 §15). What is
    /// not done then goes on without the client: its memory stays pinned until the hardware is done.
    pub async fn drain(&self, client: ClientId) {
        let deadline = self.0.platform.now() + CLIENT_DRAIN;
        while self.works_for(client) && !self.0.is_stopped() {
            if self.0.platform.now() >= deadline {
                return;
            }
            self.0.platform.sleep(CLIENT_DRAIN_LOOK).await;
        }
    }

    fn works_for(&self, client: ClientId) -> bool {
        let busy = |cell: &PortCell| {
            cell.with(|port| port.ring().is_some_and(|ring| ring.works_for(client)))
        };
        self.0.ports.iter().any(busy)
    }

    /// Bus mastering is off: no memory can be written any more.
    pub(crate) fn release_quarantine(&self) {
        for cell in &self.0.ports {
            cell.with(|port| {
                if let Some(ring) = port.ring() {
                    ring.release_quarantine();
                }
            });
        }
        self.0.queues.with(Table::clear);
        self.0.links.release_all();
    }
}
