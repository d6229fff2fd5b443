//! The way to an armed queue, in the order of specification 06 §17.2; and to another ring for one
//! that is there.
//!
//! Memory comes first and is cleared; then an old ring is switched off and drains; then the hardware
//! learns of the new one, within one poll. A future that is dropped on the way leaves no queue
//! behind that nobody has.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use axon_platform::Platform;
use axon_ports::reset::DeviceState;
use axon_ports::{
    AllocRequest, Category, ClientId, ClientSlot, CoreId, Lifespan, Location, MemoryPort,
};

use super::entry::Ring;
use super::fetch::Staging;
use super::queue::NotificationQueue;
use super::record::Reader;
use super::registry::{QueueName, Reserved, Wish};
use super::spec::{Placement, QueueSpec};
use super::teardown;
use super::{NotificationCounters, Producer, QueueReading};
use crate::dma::Target;
use crate::shared::Shared;
use crate::state::CoreState;
use crate::{CancelCause, Error, NeuronDevice};

/// Takes back what was reserved, unless the queue was armed.
struct Making<'a, P: Platform> {
    shared: &'a Shared<P>,
    name: Option<QueueName>,
    spare: Option<QueueName>,
}

impl<P: Platform> Drop for Making<'_, P> {
    fn drop(&mut self) {
        let names = [self.name.take(), self.spare.take()];
        self.shared.notifications.with(|registry| {
            names.into_iter().flatten().for_each(|name| registry.let_go(name));
        });
        self.shared.notifications.call();
    }
}

impl<P: Platform> NeuronDevice<P> {
    /// Makes a notification queue of `client`, or answers the one that is there with the same
    /// owner, type, size and placement. Waits while its core is in reset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a producer, an index or a size that cannot be;
    /// [`Error::Busy`] where another client has the hardware queue, or another type of this client
    /// does; [`Error::Exists`] where the queue has another ring; [`Error::Memory`];
    /// [`Error::Cancelled`] by a reset in between; [`Error::CoreDown`], [`Error::DeviceFailed`],
    /// [`Error::DeviceGone`], [`Error::Removed`]. Nothing is armed that was not, and what was still
    /// is.
    pub async fn notifications<M: MemoryPort>(
        &self,
        memory: &M,
        client: (ClientId, ClientSlot),
        spec: &QueueSpec,
    ) -> Result<NotificationQueue<P>, Error> {
        let shared = self.dma().0.clone();
        let wish = self.wish(client.0, spec)?;
        let core = wish.hardware.core;
        admit(&shared, core).await?;
        let epoch = shared.states.epoch(core);
        let (name, spare) = match reserve(&shared, &wish).await? {
            Reserved::Same(name) => {
                // From here on the handle gives back what was counted for it.
                let handle = NotificationQueue::new(shared, name, core, epoch);
                let staging = match spec.placement {
                    Placement::Host => None,
                    Placement::Device { .. } => Some(Staging::new(memory).await?),
                };
                return Ok(handle.with_staging(staging));
            }
            Reserved::Replace(name, spare) => (name, Some(spare)),
            Reserved::New(name) => (name, None),
            Reserved::Wait => return Err(Error::NoRecords),
        };
        let making = Making { shared: &shared, name: spare.is_none().then_some(name), spare };
        let (ring, staging) = self.make_ring(memory, client, &wish).await?;
        self.put(making, name, &wish, ring, epoch).await?;
        Ok(NotificationQueue::new(shared.clone(), name, core, epoch).with_staging(staging))
    }

    fn wish(&self, owner: ClientId, spec: &QueueSpec) -> Result<Wish, Error> {
        let size = spec.check_size()?;
        let hardware = self.hal().hardware_queue(spec.producer, spec.kind, spec.index)?;
        let position = match spec.producer {
            Producer::Core(_) => Some(hardware.position),
            Producer::TopSp(_) => None,
        };
        let reader = Reader::new(self.hal().generation(), spec.kind, position);
        Ok(Wish { hardware, spec: *spec, size, owner, reader })
    }

    /// Memory for ring and staging, cleared.
    async fn make_ring<M: MemoryPort>(
        &self,
        memory: &M,
        client: (ClientId, ClientSlot),
        wish: &Wish,
    ) -> Result<(Ring, Option<Staging<P>>), Error> {
        let size = u64::from(wish.size);
        let core = wish.hardware.core;
        let host = AllocRequest {
            client: Some(client),
            lifespan: Lifespan::Device,
            core: core.number(),
            category: Category::NOTIFICATION_HOST,
            publish: true,
            ..AllocRequest::driver_host(size)
        };
        let request = match wish.spec.placement {
            Placement::Host => host,
            Placement::Device { channel, region } => AllocRequest {
                location: Location::Device,
                align: size,
                channel,
                region,
                category: Category::NOTIFICATION_DEVICE,
                ..host
            },
        };
        let ring = Ring::new(memory.alloc(request).await?, wish.size)?;
        if ring.clear(wish.size) {
            return Ok((ring, None));
        }
        let target = Target { address: ring.pin().pa(), pin: ring.pin().clone() };
        self.dma().fill(core, target, 0, size).await?;
        Ok((ring, Some(Staging::new(memory).await?)))
    }

    /// Switches an old ring off, then arms the new one; the old memory goes last.
    async fn put(
        &self,
        mut making: Making<'_, P>,
        name: QueueName,
        wish: &Wish,
        ring: Ring,
        epoch: u32,
    ) -> Result<(), Error> {
        let shared = self.shared();
        let core = wish.hardware.core;
        admit(shared, core).await?;
        if let Some(spare) = making.spare {
            // Dropped while the old ring drains, the queue is gone with it: nobody would make it.
            making.name = Some(name);
            if !teardown::retire(shared, name, spare).await {
                making.name = None;
                return Err(ended(shared, core, epoch));
            }
            admit(shared, core).await?;
        }
        // From here on in one poll: no reset slips in between.
        if shared.states.epoch(core) != epoch || !shared.states.is_open(core) {
            return Err(ended(shared, core, epoch));
        }
        shared.check_alive()?;
        shared.platform.write_barrier();
        let now = shared.platform.now();
        let armed = shared
            .notifications
            .with(|registry| registry.arm(&shared.registers, name, wish, ring, (epoch, now)));
        if armed.is_ok() {
            making.name = None;
        }
        armed
    }

    /// Ends the queues of a client that leaves: off, drained, freed (05 §10.2 step 6).
    pub async fn end_notifications(&self, client: ClientId) {
        teardown::end_client(self.shared(), client).await;
    }

    /// What became of notifications since the device came up.
    pub fn notification_counters(&self) -> NotificationCounters {
        self.shared().notifications.with(|registry| registry.counters())
    }

    /// Hands every hardware queue that was ever armed to `each`. `each` does not come back here.
    pub fn notification_queues(&self, each: impl FnMut(QueueReading)) {
        self.shared().notifications.with(|registry| registry.readings(each));
    }

    /// Has the sweeping task look at once, instead of at the end of its rest: for somebody who
    /// knows that something has come.
    #[inline]
    pub fn look_for_notifications(&self) {
        self.shared().notifications.call();
    }
}

/// Why a queue that was being made is no more.
fn ended<P: Platform>(shared: &Shared<P>, core: CoreId, epoch: u32) -> Error {
    let why = match shared.states.epoch(core) == epoch {
        true => CancelCause::Closed,
        false => CancelCause::Reset,
    };
    shared.check_alive().err().unwrap_or(Error::Cancelled { why })
}

/// Waits until a core can be used (05 §6).
pub(crate) async fn admit<P: Platform>(shared: &Shared<P>, core: CoreId) -> Result<(), Error> {
    shared.check_alive()?;
    match shared.states.settled(core).await {
        (DeviceState::Ready, CoreState::Up) => shared.check_alive(),
        (DeviceState::Ready, _) => Err(Error::CoreDown { core }),
        _ => Err(shared.check_alive().err().unwrap_or(Error::DeviceFailed)),
    }
}

async fn reserve<P: Platform>(shared: &Arc<Shared<P>>, wish: &Wish) -> Result<Reserved, Error> {
    poll_fn(|cx| {
        if let Err(error) = shared.check_alive() {
            return Poll::Ready(Err(error));
        }
        shared.notifications.with(|registry| match registry.reserve(wish) {
            Ok(Reserved::Wait) => {
                registry.changed.register(cx.waker());
                Poll::Pending
            }
            other => Poll::Ready(other),
        })
    })
    .await
}
