//! Queue operations by plain numbers (specification 03 §13), as the console and the C ABI use them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use axon_clients::Touched;
use axon_neuron::dma::{
    Claims, Dma, EngineStatus, MAX_BATCH, QueueBind, QueueStatus, RingBind, RingOwner,
};
use axon_platform::Platform;
use axon_ports::{CoreId, Pin};

use crate::buffer::is_ring;
use crate::calls::Call;
use crate::client::Shared;
use crate::{Client, Device, Error};

/// One queue to bind. A ring is the start of a chunk of type `DMA_RINGS_…`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueInit {
    /// Engine, below 132.
    pub engine: u32,
    /// Queue, below 16.
    pub queue: u32,
    /// Descriptors of the transmit ring: 32 to 16,777,200, a multiple of 16.
    pub tx_count: u32,
    /// Descriptors of the receive ring.
    pub rx_count: u32,
    /// Handle of the transmit ring; 0 only with [`QueueInit::tx_by_hardware`].
    pub tx: u64,
    /// Handle of the receive ring; 0 only with [`QueueInit::rx_by_hardware`].
    pub rx: u64,
    /// Handle of a completion ring: 0, there are none.
    pub completion: u64,
    /// Hardware manages the transmit ring: base 0 is programmed.
    pub tx_by_hardware: bool,
    /// Hardware manages the receive ring.
    pub rx_by_hardware: bool,
}

/// Why a batch bound no queue at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueBatchError {
    /// The entry that failed; `None` where the batch as a whole cannot be.
    pub entry: Option<usize>,
    /// Why.
    pub error: Error,
}

impl fmt::Display for QueueBatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some(entry) => write!(f, "entry {entry}: {}; no queue was bound", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl core::error::Error for QueueBatchError {}

/// Queue operations of a client. What is bound this way ends by command or with the client.
pub struct QueueCommands<'a, P: Platform> {
    pub(super) shared: &'a Arc<Shared<P>>,
}

impl<P: Platform> Client<P> {
    /// Queue operations by plain numbers.
    pub fn queues(&self) -> QueueCommands<'_, P> {
        QueueCommands { shared: self.shared() }
    }
}

impl<P: Platform> Device<P> {
    /// State of a DMA engine.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]; ENODEV for an engine that is not there; [`Error::DeviceGone`],
    /// [`Error::Removed`].
    pub fn engine_status(&self, engine: u32) -> Result<EngineStatus, Error> {
        Ok(self.neuron().dma().engine_status(engine)?)
    }

    /// State of a DMA queue, read from the hardware.
    ///
    /// # Errors
    /// As [`Device::engine_status`].
    pub fn queue_status(&self, engine: u32, queue: u32) -> Result<QueueStatus, Error> {
        Ok(self.neuron().dma().queue_status(engine, queue)?)
    }

    /// Who has a DMA queue, and for what.
    ///
    /// # Errors
    /// As [`Device::engine_status`].
    pub fn queue_owner(&self, engine: u32, queue: u32) -> Result<RingOwner, Error> {
        Ok(self.neuron().dma().queue_owner(engine, queue)?)
    }
}

impl<P: Platform> QueueCommands<'_, P> {
    /// Queues are parked when the client ends.
    pub(super) fn dma(&self) -> &Dma<P> {
        self.shared.access.touch(Touched::Transfers);
        self.shared.device.neuron().dma()
    }

    /// Whether the client has claimed a core.
    pub(super) fn has_claimed(&self, core: CoreId) -> bool {
        self.shared.device.core_owner(core) == Some(self.shared.access.client())
    }

    /// `DMA_ENG_INIT`: does nothing, as on Linux.
    ///
    /// # Errors
    /// [`Error::NotAttached`].
    pub fn engine_init(&self, _engine: u32) -> Result<(), Error> {
        Call::EngineInit.admit(&self.shared.access)
    }

    /// `DMA_ENG_SET_STATE`: 0 disable, 2 normal, 3 abort.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another state or engine; EPERM for a host-transfer engine and
    /// for one whose core the client has not claimed; [`Error::Again`] in a reset.
    pub fn engine_set_state(&self, engine: u32, state: u32) -> Result<(), Error> {
        Call::EngineSetState.admit(&self.shared.access)?;
        Ok(self.dma().command(engine, state, |core| self.has_claimed(core))?)
    }

    /// The memory of a ring, which has to be this client's and of the right type.
    ///
    /// # Errors
    /// [`Error::BadHandle`], [`Error::WrongOwner`], [`Error::InvalidArgument`].
    pub(super) fn ring_memory(&self, handle: u64) -> Result<Pin, Error> {
        let memory = self.shared.device.memory();
        let pin = memory.lookup_mut(self.shared.access.client(), handle)?;
        let category = pin.header().record().category();
        match is_ring(category) {
            true => Ok(pin),
            false => Err(Error::InvalidArgument {
                what: "memory type of a ring",
                value: category.0.into(),
            }),
        }
    }

    fn ring(&self, handle: u64, count: u32, by_hardware: bool) -> Result<RingBind, Error> {
        let memory = match (handle, by_hardware) {
            (0, true) => None,
            (0, false) => return Err(Error::BadHandle { handle }),
            _ => Some(self.ring_memory(handle)?),
        };
        Ok(RingBind { count, memory })
    }

    fn binding(&self, init: &QueueInit) -> Result<QueueBind, Error> {
        self.dma().check_queue(init.engine, init.queue)?;
        if init.completion != 0 {
            return Err(Error::InvalidArgument { what: "completion ring", value: init.completion });
        }
        let claimed = self
            .dma()
            .core_of_queue(init.engine, init.queue)
            .is_ok_and(|core| self.has_claimed(core));
        Ok(QueueBind {
            engine: init.engine,
            queue: init.queue,
            tx: self.ring(init.tx, init.tx_count, init.tx_by_hardware)?,
            rx: self.ring(init.rx, init.rx_count, init.rx_by_hardware)?,
            claimed,
        })
    }

    /// `DMA_QUEUE_INIT`: binds a queue to rings and programs it. Waits while the core is in reset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::BadHandle`], [`Error::WrongOwner`]; EALREADY for a queue
    /// with copies of the driver, EBUSY where another client has it, ENODEV for an engine that is
    /// not there. No register was written.
    pub async fn init(&self, init: &QueueInit) -> Result<(), Error> {
        self.init_batch(core::slice::from_ref(init)).await.map_err(|failed| failed.error)
    }

    /// `DMA_QUEUE_INIT_BATCH`: binds up to 256 queues, or none.
    ///
    /// # Errors
    /// As [`QueueCommands::init`], with the entry that failed; [`Error::TooBig`] for more.
    pub async fn init_batch(&self, inits: &[QueueInit]) -> Result<(), QueueBatchError> {
        let whole = |error| QueueBatchError { entry: None, error };
        Call::BindQueues.admit(&self.shared.access).map_err(whole)?;
        if inits.len() > MAX_BATCH {
            let (value, limit) = (inits.len() as u64, MAX_BATCH as u64 + 1);
            return Err(whole(Error::TooBig { what: "queues of a batch", value, limit }));
        }
        let mut binds = Vec::new();
        for (entry, init) in inits.iter().enumerate() {
            let bind = self.binding(init);
            binds.push(bind.map_err(|error| QueueBatchError { entry: Some(entry), error })?);
        }
        let client = self.shared.access.client();
        let bound = self.dma().bind_all(client, binds).await;
        bound.map_err(|failed| QueueBatchError {
            entry: failed.entry,
            error: failed.error.into(),
        })?;
        if let Err(left) = self.shared.access.check() {
            // The client left meanwhile: nobody will release what was bound behind its end.
            self.dma().park(client).await;
            return Err(whole(left.into()));
        }
        Ok(())
    }

    /// `DMA_QUEUE_RELEASE`: pauses, drains and parks a queue. A service queue stays claimed.
    ///
    /// # Errors
    /// EALREADY, EPERM, ENODEV; [`Error::Stale`] once for a queue that a reset took.
    pub async fn release(&self, engine: u32, queue: u32) -> Result<(), Error> {
        Call::ReleaseQueue.admit(&self.shared.access)?;
        Ok(self.dma().release(self.shared.access.client(), engine, queue).await?)
    }

    /// `DMA_QUEUE_COPY_START`: announces descriptors, the receive side first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for `rx` of 0, more than a ring has, or slots that hold no checked
    /// descriptor; EALREADY, EPERM, ENODEV; [`Error::Stale`]; [`Error::Again`] in a reset. No
    /// doorbell was rung.
    pub fn start(&self, engine: u32, queue: u32, tx: u32, rx: u32) -> Result<(), Error> {
        Call::StartQueue.admit(&self.shared.access)?;
        Ok(self.dma().start(self.shared.access.client(), engine, queue, tx, rx)?)
    }

    /// `DMA_ACK_COMPLETED`: counts descriptors of both sides as done.
    ///
    /// # Errors
    /// As [`QueueCommands::start`]; [`Error::InvalidArgument`] for more than was announced and for
    /// rings that are no power of two.
    pub fn acknowledge(&self, engine: u32, queue: u32, count: u32) -> Result<(), Error> {
        Call::Acknowledge.admit(&self.shared.access)?;
        Ok(self.dma().acknowledge(self.shared.access.client(), engine, queue, count)?)
    }

    /// `H2T_DMA_ALLOC_QUEUES`: takes copy and service queues of a core, or none.
    ///
    /// # Errors
    /// [`Error::TooBig`] for the core or for 16 queues and more; ENOSPC; [`Error::NoMemory`].
    pub async fn h2t_alloc(&self, core: u32, copy: u32, service: u32) -> Result<Claims, Error> {
        Call::TakeQueues.admit(&self.shared.access)?;
        let memory = self.shared.device.memory();
        let client = self.shared.access.client();
        let claims = self.dma().claim(memory, client, core, copy, service).await?;
        if let Err(left) = self.shared.access.check() {
            self.dma().drop_claims(client, &claims);
            return Err(left.into());
        }
        Ok(claims)
    }

    /// `H2T_DMA_FREE_QUEUES`: gives queues of a core back, each on its own; the default queue is
    /// passed over.
    ///
    /// # Errors
    /// [`Error::TooBig`] for the core; the last of: ENXIO for a queue that was not allocated to it,
    /// EPERM for another client's, [`Error::Stale`].
    pub async fn h2t_free(&self, core: u32, queues: u32) -> Result<(), Error> {
        Call::FreeQueues.admit(&self.shared.access)?;
        Ok(self.dma().unclaim(self.shared.access.client(), core, queues).await?)
    }
}
