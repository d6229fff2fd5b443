//! Queues that clients bind, and host-transfer queues that they claim (specification 03 §1.3, §13).
//!
//! ```text
//!          bind                    release, client drop, reset
//!  Free ─────────► App ─────────────────────────► pause · drained? ─ yes ─► dummy ring ─► Free, Stale
//!   │  claim        (also Service{bound})                  └─────── no ──► quarantine, until proven
//!   └─────────► Copy · Service ─► free: no new work · last batch ends · pause · drained · dummy ring
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `table` | who has which queue: one enum that holds the memory of each state |
//! | `staged` | which slots of a ring were checked, and what memory they name |
//! | `bind` | queue init, batch init, release |
//! | `run` | start, acknowledge, engine state |
//! | `claims` | host-transfer queues: allocate, free |
//! | `inspect` | what the hardware says about a queue or an engine |
//! | `scrub` | one word over a whole channel, by queue 0 of 16 engines |
//! | `describe` | what a descriptor of a client may name |
//! | `park` | the ends: client drop, reset, removal |
//!
//! Registers are touched within one turn; a queue that drains is looked at between turns.

mod bind;
mod claims;
mod describe;
mod inspect;
mod park;
mod run;
mod scrub;
mod staged;
mod table;

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};

use axon_platform::Platform;
use axon_ports::{ClientId, CoreId, EngineId};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::Dma;
use super::queue::RingPlace;
use crate::hal::Engine;
use crate::shared::Shared;
use crate::{Error, Hal, QueueRefusal};
use table::Place;

pub use bind::{BatchError, MAX_BATCH, QueueBind, RingBind};
pub use claims::Claims;
pub use describe::{Named, Staging, describe};
pub use inspect::{EngineState, EngineStatus, QueueSide, QueueStatus, RingOwner};
pub use run::EngineCommand;
pub use scrub::{Scrub, ScrubOrder};
pub use table::Side;

pub(crate) use claims::reap;
pub(crate) use park::{begin_close, claimed_ports, close, release, settle_reset};
pub(crate) use scrub::{end_all as end_scrubs, sweep as sweep_scrubs};
pub(crate) use table::Table;

/// Descriptors of the dummy ring.
const DUMMY_DESCRIPTORS: u32 = 64;

/// The table of queues behind a lock that is held within one poll only.
pub(crate) struct Queues {
    table: Mutex<CriticalSectionRawMutex, RefCell<Table>>,
    /// There may be rings that go once nothing is left on them.
    leaving: AtomicBool,
    /// A scrub is under way.
    pub(super) scrubbing: AtomicBool,
}

impl Queues {
    pub(crate) fn new() -> Self {
        let table = Mutex::new(RefCell::new(Table::default()));
        Queues { table, leaving: AtomicBool::new(false), scrubbing: AtomicBool::new(false) }
    }

    /// Whether the completion task has to see to a ring that goes, or to a scrub.
    pub(crate) fn are_waiting(&self) -> bool {
        self.leaving.load(Ordering::Acquire) || self.scrubbing.load(Ordering::Acquire)
    }

    /// Works on the table. `work` does not come back here.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Table) -> R) -> R {
        self.table.lock(|table| work(&mut table.borrow_mut()))
    }
}

/// The engine with this number, where it is there.
///
/// # Errors
/// [`Error::NoEngine`].
fn present(hal: &Hal, id: EngineId) -> Result<Engine, Error> {
    let engine = hal.present_engines().find(|engine| engine.id == id);
    engine.ok_or(Error::NoEngine { engine: id })
}

/// The core whose reset takes the queues of an engine away.
// assumed: for a host-transfer engine that serves two cores, the first of them that is there.
fn core_of(hal: &Hal, engine: &Engine) -> Result<CoreId, Error> {
    let serves = |core: &CoreId| hal.host_transfer(*core).is_some_and(|(e, _)| e.id == engine.id);
    engine.core.or_else(|| hal.core_ids().find(serves)).ok_or(Error::NoEngine { engine: engine.id })
}

impl<P: Platform> Shared<P> {
    /// Where a queue without a ring is parked.
    pub(super) fn dummy(&self) -> RingPlace {
        RingPlace { base: self.rungs.dummy_ring.1.pa(), length: DUMMY_DESCRIPTORS }
    }

    /// As `check_open`, for a call that waits until a reset is over.
    async fn opened(&self, core: CoreId) -> Result<(), Error> {
        loop {
            match self.check_open(core) {
                Err(Error::Again { .. }) => self.states.settled(core).await,
                result => return result,
            };
        }
    }
}

impl<P: Platform> Dma<P> {
    /// The queue, if it is none that carries copies of the driver.
    fn place(&self, engine: u32, queue: u32) -> Result<Place, Error> {
        let place = Place::new(engine, queue)?;
        if self.0.hal.is_default_queue(place.engine, place.queue) {
            return Err(place.refuse(QueueRefusal::Driver));
        }
        Ok(place)
    }

    /// Looks at the numbers of a queue that a client wants to bind.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::Queue`] (EALREADY) for a queue of the driver.
    pub fn check_queue(&self, engine: u32, queue: u32) -> Result<(), Error> {
        self.place(engine, queue).map(drop)
    }

    /// Queues in quarantine.
    pub(crate) fn quarantined_queues(&self) -> usize {
        self.0.queues.with(|table| table.quarantined())
    }

    /// Whether `client` has this queue now.
    pub fn owns_queue(&self, client: ClientId, engine: u32, queue: u32) -> bool {
        let Ok(place) = Place::new(engine, queue) else { return false };
        self.0.queues.with(|table| table.owned(place, client, &self.0.states).is_ok())
    }
}
