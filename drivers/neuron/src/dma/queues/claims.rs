//! Host-transfer queues of a client: copy queues with a ring of the driver, service queues for
//! hardware or runtime (specification 03 §13.9).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use axon_platform::Platform;
use axon_ports::{ClientId, CoreId, EngineId, MemoryPort, QueueId};

use super::Dma;
use super::park::look;
use super::table::{Entry, Holding, Leaving, Place, Then};
use crate::dma::{Ring, RingMemory, RingName};
use crate::shared::{Shared, bits, port_number};
use crate::{CancelCause, Error, QueueRefusal};

/// Copy and service queues of one call are fewer than this.
const LIMIT: u64 = 16;
/// Most time that transfers on a queue get when it is freed.
const GRACE: Duration = Duration::from_secs(1);
const GRACE_LOOK: Duration = Duration::from_millis(1);

/// What an allocation gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claims {
    /// The core that they serve.
    pub core: CoreId,
    /// The engine that they are on.
    pub engine: EngineId,
    /// Queues with a ring for zero-copy transfers, as a mask.
    pub copy: u16,
    /// Queues that their owner binds, as a mask.
    pub service: u16,
    /// Default queue of the core, which every client uses.
    pub default: QueueId,
}

/// Port of a host-transfer queue.
pub(super) fn port_of<P: Platform>(shared: &Shared<P>, place: Place) -> Option<usize> {
    let local = shared.hal.host_transfer_number(place.engine)?;
    Some(port_number(local, place.queue.number()))
}

/// Nothing more is staged on the ring of a queue; it goes once what it carries has ended.
pub(super) fn refuse<P: Platform>(shared: &Shared<P>, place: Place, why: Error) {
    let cell = port_of(shared, place).and_then(|number| shared.ports.get(number));
    if let Some(cell) = cell {
        cell.with(|port| port.set_refused(Some(why)));
    }
    shared.queues.leaving.store(true, Ordering::Release);
}

/// The reset is over: the port is no longer held.
pub(super) fn let_go_of<P: Platform>(shared: &Shared<P>, place: Place) {
    let cell = port_of(shared, place).and_then(|number| shared.ports.get(number));
    if let Some(cell) = cell {
        cell.with(|port| port.set_held(false));
    }
}

/// Lets go of the rings that nothing is left on: paused, drained, parked, freed. Answers whether
/// hardware queues are draining, so that another look is due soon.
pub(crate) fn reap<P: Platform>(shared: &Shared<P>) -> bool {
    if !shared.queues.leaving.load(Ordering::Acquire) {
        return false;
    }
    shared.queues.leaving.store(false, Ordering::Release);
    let draining = look(shared, |_| true);
    if draining {
        shared.queues.leaving.store(true, Ordering::Release);
    }
    let mut at = 0;
    let next = |at: usize| {
        shared.queues.with(|table| {
            let mut rest = table.entries.iter().enumerate().skip(at);
            rest.find(|(_, entry)| {
                matches!(entry.holding, Holding::Copy) && entry.leaving.is_some()
            })
            .map(|(at, entry)| (at, entry.place))
        })
    };
    while let Some((found, place)) = next(at) {
        let before = shared.queues.with(|table| table.entries.len());
        if !reap_one(shared, place) {
            shared.queues.leaving.store(true, Ordering::Release);
        }
        let after = shared.queues.with(|table| table.entries.len());
        at = found + usize::from(after == before);
    }
    draining
}

/// Answers whether the ring is gone.
fn reap_one<P: Platform>(shared: &Shared<P>, place: Place) -> bool {
    let cell = port_of(shared, place).and_then(|number| shared.ports.get(number));
    let (Some(cell), Ok(())) = (cell, shared.check_alive()) else { return false };
    let dummy = shared.dummy();
    let taken = cell.with(|port| {
        let held = port.is_held();
        let over = port.ring().is_some_and(|ring| {
            !held && ring.is_over() && {
                ring.pause(&shared.registers);
                ring.park(&shared.registers, dummy)
            }
        });
        if over { port.unbind() } else { None }
    });
    let Some(ring) = taken else { return false };
    shared.queues.with(|table| {
        table.retired.add(&ring.counters());
        table.settle(place, true, &shared.registers, dummy);
    });
    true
}

/// Queues taken by a call that has not ended: given back unless it does.
struct Pending<'a, P: Platform> {
    shared: &'a Arc<Shared<P>>,
    client: ClientId,
    /// Of the core when they were taken: behind a reset they may be the client's anew.
    epoch: u32,
    places: Vec<Place>,
}

impl<P: Platform> Drop for Pending<'_, P> {
    fn drop(&mut self) {
        self.shared.queues.with(|table| {
            for &place in &self.places {
                let ours =
                    |entry: &&mut Entry| (entry.client, entry.epoch) == (self.client, self.epoch);
                if table.get(place).filter(ours).is_some() {
                    table.remove(place);
                }
            }
        });
    }
}

impl<P: Platform> Dma<P> {
    /// Takes `copy` queues with rings and `service` queues without, the lowest that are free, or
    /// none. Waits while the core is in reset.
    ///
    /// # Errors
    /// [`Error::TooBig`] for a core that the device has not and for 16 queues or more;
    /// [`Error::NoQueue`] (ENOSPC); [`Error::Memory`]; [`Error::Stale`] where a reset came between.
    pub async fn claim<M: MemoryPort>(
        &self,
        memory: &M,
        client: ClientId,
        core: u32,
        copy: u32,
        service: u32,
    ) -> Result<Claims, Error> {
        let core = self.0.hal.check_core(core)?;
        let wanted = u64::from(copy) + u64::from(service);
        if wanted >= LIMIT {
            return Err(Error::TooBig {
                what: "host-transfer queues",
                value: wanted,
                limit: LIMIT,
            });
        }
        let transfer = self.0.hal.host_transfer(core);
        let (engine, default) = transfer.ok_or(Error::NoQueue { core })?;
        self.0.opened(core).await?;
        reap(&self.0);
        let epoch = self.0.states.epoch(core);
        let places = self.take(client, core, engine.id, copy as usize, service as usize)?;
        let mut pending = Pending { shared: &self.0, client, epoch, places };
        let mut rings = Vec::new();
        for place in pending.places.iter().take(copy as usize) {
            let name = RingName { engine: engine.id, queue: place.queue, core, unit: engine.unit };
            let memory = RingMemory::allocate(memory, &self.0.hal).await?;
            rings.push(Box::new(Ring::new(name, memory)?));
        }
        self.0.check_open(core)?;
        self.0.queues.with(|table| {
            let ours = |place: &Place| {
                table.get(*place).is_some_and(|entry| {
                    entry.client == client && entry.epoch == epoch && entry.leaving.is_none()
                })
            };
            match pending.places.iter().all(ours) {
                true if epoch == self.0.states.epoch(core) => Ok(()),
                true => Err(Error::Stale { core }),
                false => Err(Error::Cancelled { why: CancelCause::Closed }),
            }
        })?;
        for ring in rings {
            self.open_port(ring);
        }
        let mask = |places: &[Place]| places.iter().fold(0, |m, p| m | 1 << p.queue.number());
        let (copies, services) = pending.places.split_at(copy as usize);
        let claims = Claims {
            core,
            engine: engine.id,
            copy: mask(copies),
            service: mask(services),
            default,
        };
        pending.places.clear();
        Ok(claims)
    }

    /// Marks queues as taken.
    fn take(
        &self,
        client: ClientId,
        core: CoreId,
        engine: EngineId,
        copy: usize,
        service: usize,
    ) -> Result<Vec<Place>, Error> {
        self.0.queues.with(|table| {
            table.reserve(copy + service)?;
            let mut places = Vec::new();
            places.try_reserve(copy + service).map_err(|_| Error::NoRecords)?;
            for queue in QueueId::all() {
                let place = Place { engine, queue };
                let free = table.get(place).is_none_or(|entry| {
                    matches!(entry.holding, Holding::Stale) && entry.leaving.is_none()
                });
                if free
                    && !self.0.hal.is_default_queue(engine, queue)
                    && places.len() < copy + service
                {
                    places.push(place);
                }
            }
            if places.len() < copy + service {
                return Err(Error::NoQueue { core });
            }
            let epoch = self.0.states.epoch(core);
            for (at, &place) in places.iter().enumerate() {
                let holding = if at < copy { Holding::Copy } else { Holding::Service(None) };
                table.insert(Entry { place, client, core, epoch, holding, leaving: None });
            }
            Ok(places)
        })
    }

    fn open_port(&self, mut ring: Box<Ring>) {
        let place = Place { engine: ring.name.engine, queue: ring.name.queue };
        let Some(cell) = port_of(&self.0, place).and_then(|number| self.0.ports.get(number)) else {
            return;
        };
        cell.with(|port| {
            ring.program(&self.0.registers);
            self.0.records.trace.emit(ring.trace_init(), || self.0.platform.now());
            port.bind(ring);
            port.set_refused(None);
            port.set_held(false);
        });
    }

    /// As [`Dma::unclaim`], for an owner that does not wait.
    pub fn drop_claims(&self, client: ClientId, claims: &Claims) {
        for queue in bits((claims.copy | claims.service).into()) {
            let Some(queue) = QueueId::new(queue as u32) else { continue };
            let place = Place { engine: claims.engine, queue };
            // A queue that a reset took, or that was freed by its number, is nothing to this owner.
            if self.let_go_of_claim(client, claims.core, place).is_ok() {
                self.let_go(client, place.engine.number(), queue.number());
                self.0.queues.with(|table| {
                    let claimed =
                        |entry: &&mut Entry| matches!(entry.holding, Holding::Service(None));
                    if table.get(place).filter(claimed).is_some() {
                        table.remove(place);
                    } else if let Some(Leaving { then, .. }) =
                        table.get(place).and_then(|entry| entry.leaving.as_mut())
                    {
                        *then = Then::Free;
                    }
                });
            }
        }
        reap(&self.0);
    }

    /// Gives queues back. Transfers on a copy queue get at most 1 s; a ring with one that does not
    /// end stays until it does.
    ///
    /// # Errors
    /// [`Error::TooBig`] for a core that the device has not; for a queue that was not allocated to
    /// this core [`Error::Queue`] (ENXIO), of another client (EPERM), from before a reset
    /// [`Error::Stale`]. The other queues are freed all the same; the last error is told.
    pub async fn unclaim(&self, client: ClientId, core: u32, queues: u32) -> Result<(), Error> {
        let core = self.0.hal.check_core(core)?;
        let Some((engine, _)) = self.0.hal.host_transfer(core) else { return Ok(()) };
        let mut result = Ok(());
        let mut freed = Vec::new();
        for queue in bits(queues.into()) {
            let unknown = Error::InvalidArgument { what: "queue", value: queue as u64 };
            let Some(queue) = QueueId::new(queue as u32) else {
                result = Err(unknown);
                continue;
            };
            let place = Place { engine: engine.id, queue };
            if self.0.hal.is_default_queue(engine.id, queue) {
                continue;
            }
            match self.let_go_of_claim(client, core, place) {
                Ok(()) => freed.push(place),
                Err(error) => result = Err(error),
            }
        }
        let ours = |entry: &Entry| entry.client == client && freed.contains(&entry.place);
        self.unbind(ours, |_| Then::Free).await;
        self.wait_gone(&freed).await;
        result
    }

    fn let_go_of_claim(&self, client: ClientId, core: CoreId, place: Place) -> Result<(), Error> {
        let unclaimed = place.refuse(QueueRefusal::Unclaimed);
        self.0.queues.with(|table| {
            let entry = table.get(place).filter(|entry| entry.core == core).ok_or(unclaimed)?;
            if entry.client != client {
                return Err(place.refuse(QueueRefusal::Foreign));
            }
            let until = self.0.platform.now();
            if entry.is_stale(&self.0.states) {
                match (&entry.holding, &mut entry.leaving) {
                    (_, Some(leaving)) => leaving.then = Then::Free,
                    (Holding::Copy, None) => {
                        entry.leaving = Some(Leaving { then: Then::Free, until });
                    }
                    (Holding::Stale | Holding::Service(None), None) => table.remove(place),
                    _ => {}
                }
                return Err(Error::Stale { core });
            }
            match (&entry.holding, entry.leaving) {
                (_, Some(_)) | (Holding::App(_) | Holding::Scrub(_) | Holding::Stale, _) => {
                    Err(unclaimed)
                }
                (Holding::Service(None), None) => {
                    table.remove(place);
                    Ok(())
                }
                (Holding::Service(Some(_)), None) => Ok(()),
                (Holding::Copy, None) => {
                    entry.leaving = Some(Leaving { then: Then::Free, until });
                    refuse(&self.0, place, Error::Cancelled { why: CancelCause::Closed });
                    Ok(())
                }
            }
        })
    }

    async fn wait_gone(&self, places: &[Place]) {
        let deadline = self.0.platform.now() + GRACE;
        loop {
            reap(&self.0);
            let left = self.0.queues.with(|table| {
                places.iter().any(|&place| table.get(place).is_some_and(|e| e.leaving.is_some()))
            });
            if !left || self.0.is_stopped() || self.0.platform.now() >= deadline {
                return;
            }
            self.0.platform.sleep(GRACE_LOOK).await;
        }
    }

    /// The port on which zero-copy transfers of `core` run: its default ring for −1, else a queue
    /// that the client has for this core.
    ///
    /// # Errors
    /// [`Error::NoSuchQueue`] (ENOENT), [`Error::Queue`] (EPERM), [`Error::Stale`].
    pub(crate) fn copy_port(
        &self,
        client: ClientId,
        core: CoreId,
        queue: i32,
    ) -> Result<u8, Error> {
        let none = Error::NoSuchQueue { queue: queue.into() };
        let (engine, default) = self.0.hal.host_transfer(core).ok_or(none)?;
        if queue == -1 || i64::from(queue) == i64::from(default.number()) {
            return Ok(self.0.default_port(core));
        }
        let queue = u32::try_from(queue).ok().and_then(QueueId::new).ok_or(none)?;
        let place = Place { engine: engine.id, queue };
        self.0.queues.with(|table| {
            let entry = table.get(place).filter(|entry| entry.core == core).ok_or(none)?;
            if entry.client == client && entry.is_stale(&self.0.states) {
                return Err(Error::Stale { core });
            }
            match entry.holding {
                Holding::Copy if entry.leaving.is_some() => Err(none),
                Holding::Copy if entry.client == client => Ok(()),
                Holding::Copy => Err(place.refuse(QueueRefusal::Foreign)),
                _ => Err(none),
            }
        })?;
        port_of(&self.0, place).map(|number| number as u8).ok_or(none)
    }
}
