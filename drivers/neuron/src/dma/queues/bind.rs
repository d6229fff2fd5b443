//! Queue init, batch init, release (specification 03 §13.2, §13.3). Everything is looked at before
//! anything is written.

use alloc::vec::Vec;

use axon_platform::{DeviceAddr, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{ClientId, Pin};
use core::fmt;

use super::table::{Bound, BoundRing, Entry, Holding, Place, Side, Table, Then, hardware};
use super::{Dma, core_of, present};
use crate::dma::queue::RingPlace;
use crate::{Error, QueueRefusal};

/// Queues that one batch binds at most.
pub const MAX_BATCH: usize = 256;
/// Fewest descriptors of a ring.
const LEAST: u32 = 32;
/// Most descriptors of a ring: 2²⁴ − 16.
const MOST: u32 = 0xff_fff0;

/// One ring that a queue is bound to.
#[derive(Debug)]
pub struct RingBind {
    /// Descriptors: 32 to 16,777,200, a multiple of 16.
    pub count: u32,
    /// The memory, from its first byte on; `None` says that hardware manages the ring: base 0.
    pub memory: Option<Pin>,
}

/// One queue to bind.
#[derive(Debug)]
pub struct QueueBind {
    /// Engine, below 132.
    pub engine: u32,
    /// Queue, below 16.
    pub queue: u32,
    /// Sources.
    pub tx: RingBind,
    /// Destinations.
    pub rx: RingBind,
    /// The caller has claimed the core that the engine belongs to.
    pub claimed: bool,
}

/// Why a batch bound nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchError {
    /// The entry that failed; `None` where the batch as a whole cannot be.
    pub entry: Option<usize>,
    /// Why.
    pub error: Error,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some(entry) => write!(f, "entry {entry}: {}; no queue was bound", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl core::error::Error for BatchError {}

/// The rules of a ring (02 §5.1).
fn check_ring(ring: &RingBind) -> Result<RingPlace, Error> {
    let bad = |what, value: u64| Error::InvalidArgument { what, value };
    let base = ring.memory.as_ref().map_or(DeviceAddr(0), Pin::pa);
    let bytes = u64::from(ring.count) * 16;
    if !base.0.is_multiple_of(256) {
        return Err(bad("ring address", base.0));
    }
    if !ring.count.is_multiple_of(16) || !(LEAST..=MOST).contains(&ring.count) {
        return Err(bad("descriptors of a ring", ring.count.into()));
    }
    match &ring.memory {
        Some(pin) if bytes > pin.size() => Err(bad("bytes of a ring", bytes)),
        _ => Ok(RingPlace { base, length: ring.count }),
    }
}

/// One queue that may be bound now.
struct Checked {
    place: Place,
    bound: Bound,
    core: axon_ports::CoreId,
}

impl<P: Platform> Dma<P> {
    /// Binds a queue to rings of its client, and programs it. A queue that the client has bound
    /// already is released first. Waits while the core is in reset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for numbers and rings that cannot be; [`Error::Queue`]: EALREADY
    /// for a queue with copies of the driver, EBUSY where another client has it, EPERM for a queue
    /// of sequencers; [`Error::Busy`] for a ring that another queue has; [`Error::NoEngine`];
    /// [`Error::CoreDown`], [`Error::DeviceFailed`], [`Error::DeviceGone`], [`Error::Removed`]. No
    /// register was written.
    pub async fn bind(&self, client: ClientId, request: QueueBind) -> Result<(), Error> {
        self.bind_all(client, Vec::from([request])).await.map_err(|failed| failed.error)
    }

    /// Binds many queues, or none.
    ///
    /// # Errors
    /// As [`Dma::bind`], with the entry that failed; [`Error::TooBig`] above [`MAX_BATCH`].
    pub async fn bind_all(
        &self,
        client: ClientId,
        requests: Vec<QueueBind>,
    ) -> Result<(), BatchError> {
        if requests.len() > MAX_BATCH {
            let (value, limit) = (requests.len() as u64, MAX_BATCH as u64 + 1);
            let error = Error::TooBig { what: "queues of a batch", value, limit };
            return Err(BatchError { entry: None, error });
        }
        let failed = |entry: usize| move |error| BatchError { entry: Some(entry), error };
        let mut places = Vec::new();
        let mut waited = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            let checked = self.0.queues.with(|table| {
                let (place, core) = self.check(table, client, request)?;
                let twice = Error::InvalidArgument { what: "queue named twice", value: at as u64 };
                if places.contains(&place) { Err(twice) } else { Ok((place, core)) }
            });
            let (place, core) = checked.map_err(failed(at))?;
            places.push(place);
            waited.push(core);
        }
        for (at, &core) in waited.iter().enumerate() {
            self.0.opened(core).await.map_err(failed(at))?;
        }
        self.unbind(
            |entry| entry.client == client && places.contains(&entry.place),
            Then::after_release,
        )
        .await;
        self.0.queues.with(|table| self.bind_now(table, client, requests))
    }

    /// What does not change by waiting.
    fn check(
        &self,
        table: &mut Table,
        client: ClientId,
        request: &QueueBind,
    ) -> Result<(Place, axon_ports::CoreId), Error> {
        let place = self.place(request.engine, request.queue)?;
        let hal = &self.0.hal;
        let engine = present(hal, place.engine)?;
        // An election reads neighbours on queue 0 (05 §17.1).
        if place.queue.number() == 0 && self.0.links.has(place.engine) {
            return Err(place.refuse(QueueRefusal::Taken));
        }
        let entry = table.get(place);
        let mut core = core_of(hal, &engine)?;
        if let Some(entry) = entry.filter(|entry| !entry.is_stale(&self.0.states)) {
            if matches!(entry.holding, Holding::Copy) {
                return Err(place.refuse(QueueRefusal::Driver));
            }
            let foreign = entry.client != client || entry.is_any_scrub();
            if foreign || entry.leaving.is_some() {
                return Err(place.refuse(QueueRefusal::Taken));
            }
            core = entry.core;
        } else if table.get(place).is_some_and(|entry| entry.leaving.is_some()) {
            return Err(place.refuse(QueueRefusal::Taken));
        }
        if hal.is_nx_queue(place.engine, place.queue) && !request.claimed {
            return Err(place.refuse(QueueRefusal::Sequencer));
        }
        for (ring, side) in [(&request.tx, Side::Tx), (&request.rx, Side::Rx)] {
            check_ring(ring)?;
            let Some(pin) = &ring.memory else { continue };
            let known = table.loose_side(pin.header().name());
            if known.is_some_and(|known| known != side) {
                return Err(Error::InvalidArgument {
                    what: "side of the ring",
                    value: side as u64,
                });
            }
        }
        Ok((place, core))
    }

    /// Checks once more and binds, within one turn.
    fn bind_now(
        &self,
        table: &mut Table,
        client: ClientId,
        requests: Vec<QueueBind>,
    ) -> Result<(), BatchError> {
        let whole = |error| BatchError { entry: None, error };
        table.reserve(requests.len()).map_err(whole)?;
        let mut taken = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            let one = |error| BatchError { entry: Some(at), error };
            let (_, core) = self.check(table, client, request).map_err(one)?;
            self.0.check_open(core).map_err(one)?;
            for pin in [&request.tx.memory, &request.rx.memory].into_iter().flatten() {
                let name = pin.header().name();
                if taken.contains(&name) || table.is_bound(name) {
                    return Err(one(Error::Busy { what: "the ring", limit: 1 }));
                }
                taken.push(name);
            }
        }
        for (at, request) in requests.into_iter().enumerate() {
            let checked = self.prepare(table, client, request);
            let checked = checked.map_err(|error| BatchError { entry: Some(at), error })?;
            self.commit(table, client, checked);
        }
        Ok(())
    }

    fn prepare(
        &self,
        table: &mut Table,
        client: ClientId,
        request: QueueBind,
    ) -> Result<Checked, Error> {
        let (place, core) = self.check(table, client, &request)?;
        let hal = &self.0.hal;
        let mut ring = |ring: RingBind, side| {
            let at = check_ring(&ring)?;
            let memory = ring.memory.map(|pin| (table.take_loose(pin.header(), side), pin));
            Ok::<_, Error>(BoundRing { memory, place: at, tail: 0, outstanding: 0 })
        };
        let bound = Bound {
            hardware: hardware(&present(hal, place.engine)?, place.queue),
            sequencer: hal.is_nx_queue(place.engine, place.queue),
            tx: ring(request.tx, Side::Tx)?,
            rx: ring(request.rx, Side::Rx)?,
            scrub: None,
        };
        Ok(Checked { place, bound, core })
    }

    fn commit(&self, table: &mut Table, client: ClientId, checked: Checked) {
        let Checked { place, bound, core } = checked;
        let (tx, rx) = (bound.tx.place, bound.rx.place);
        bound.hardware.program(&self.0.registers, tx, rx);
        let event = TraceEvent::DmaQueueInit {
            engine: place.engine.number().into(),
            queue: place.queue.number().into(),
            port: 0,
            tx_count: tx.length.into(),
            rx_count: rx.length.into(),
            tx_ring: tx.base.0,
            rx_ring: rx.base.0,
            completion_ring: 0,
        };
        self.0.records.trace.emit(event, || self.0.platform.now());
        if let Some(entry) = table.get(place).filter(|entry| entry.client == client)
            && matches!(entry.holding, Holding::Service(_))
        {
            entry.holding = Holding::Service(Some(bound));
            return;
        }
        let epoch = self.0.states.epoch(core);
        let holding = Holding::App(bound);
        table.insert(Entry { place, client, core, epoch, holding, leaving: None });
    }

    /// Releases a queue: paused, drained for at most 10 ms, parked. A service queue stays claimed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::Queue`] (EALREADY, EPERM, ENODEV). A queue from before a
    /// reset is forgotten and answers [`Error::Stale`].
    pub async fn release(&self, client: ClientId, engine: u32, queue: u32) -> Result<(), Error> {
        let place = self.place(engine, queue)?;
        self.0.queues.with(|table| {
            let states = &self.0.states;
            let found = table.owned(place, client, states).map(|entry| match entry.holding {
                Holding::Copy | Holding::Scrub(_) => Err(place.refuse(QueueRefusal::Driver)),
                Holding::App(_) | Holding::Service(Some(_)) => Ok(()),
                _ => Err(place.refuse(QueueRefusal::Unbound)),
            });
            if let Err(Error::Stale { .. }) = found
                && table.get(place).is_some_and(|entry| matches!(entry.holding, Holding::Stale))
            {
                table.remove(place);
            }
            found?
        })?;
        self.unbind(|entry| entry.client == client && entry.place == place, Then::after_release)
            .await;
        Ok(())
    }
}

impl Then {
    /// What a queue becomes when its owner lets go of its rings.
    pub(super) fn after_release(entry: &Entry) -> Then {
        match entry.holding {
            Holding::Service(_) => Then::Claimed,
            _ => Then::Free,
        }
    }
}
