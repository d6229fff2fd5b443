//! Queues as values: dropping one lets the hardware go on until it has drained, and gives back what
//! it stands for.

use alloc::sync::Arc;

use axon_neuron::dma::{Claims, QueueBind, QueueStatus, RingBind, Side};
use axon_platform::{Descriptor, Platform};
use axon_ports::{AllocRequest, Category, CoreId, EngineId, HbmIndex, Location, QueueId};

use super::commands::QueueCommands;
use crate::calls::Call;
use crate::client::Shared;
use crate::{Buffer, Client, Error};

/// Wishes for the memory of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingAlloc {
    /// What its descriptors are.
    pub side: Side,
    /// Descriptors: 32 to 16,777,200, a multiple of 16.
    pub count: u32,
    /// HBM for a ring in device memory.
    pub hbm: Option<HbmIndex>,
    /// Core whose ring carries descriptors into device memory.
    pub core: u32,
}

impl RingAlloc {
    /// `count` descriptors in host memory.
    pub const fn new(side: Side, count: u32) -> Self {
        RingAlloc { side, count, hbm: None, core: 0 }
    }
}

/// Memory given up for a ring: descriptors enter it checked, and nothing else does.
pub struct RingMem<P: Platform> {
    shared: Arc<Shared<P>>,
    memory: Buffer<P>,
    side: Side,
    count: u32,
}

/// A bound queue.
pub struct DmaQueue<P: Platform> {
    shared: Arc<Shared<P>>,
    engine: u32,
    queue: u32,
    over: bool,
}

/// Host-transfer queues of one core that the client has for itself.
pub struct H2tQueues<P: Platform> {
    shared: Arc<Shared<P>>,
    claims: Claims,
    /// Of the core when they were taken.
    epoch: u32,
}

impl<P: Platform> Client<P> {
    /// Allocates memory for a ring.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a number of descriptors that cannot be, and as
    /// [`Client::alloc`].
    pub async fn alloc_ring(&self, wishes: RingAlloc) -> Result<RingMem<P>, Error> {
        let RingAlloc { side, count, hbm, core } = wishes;
        if !count.is_multiple_of(16) || !(32..=0xff_fff0).contains(&count) {
            let value = count.into();
            return Err(Error::InvalidArgument { what: "descriptors of a ring", value });
        }
        let (location, category) = match hbm {
            Some(_) => (Location::Device, Category::DMA_RINGS_DEVICE),
            None => (Location::Host, Category::DMA_RINGS_HOST),
        };
        let channel = hbm.map_or(0, HbmIndex::number);
        let size = u64::from(count) * 16;
        let request = AllocRequest { size, location, category, channel, core, ..self.request() };
        let memory = self.alloc(request).await?;
        Ok(RingMem { shared: self.shared().clone(), memory, side, count })
    }

    /// Binds a queue to two rings and programs it. Waits while the core is in reset.
    ///
    /// # Errors
    /// As [`QueueCommands::init`].
    pub async fn bind_queue(
        &self,
        engine: u32,
        queue: u32,
        tx: &RingMem<P>,
        rx: &RingMem<P>,
    ) -> Result<DmaQueue<P>, Error> {
        Call::BindQueue.admit(self.access())?;
        let commands = self.queues();
        let claimed = commands
            .dma()
            .core_of_queue(engine, queue)
            .is_ok_and(|core| commands.has_claimed(core));
        let bind =
            QueueBind { engine, queue, tx: tx.bind(Side::Tx)?, rx: rx.bind(Side::Rx)?, claimed };
        commands.dma().bind(self.id(), bind).await?;
        let bound = DmaQueue { shared: self.shared().clone(), engine, queue, over: false };
        self.access().check()?;
        Ok(bound)
    }

    /// Takes host-transfer queues of a core for this client alone: `copy` with rings, so that a long
    /// read need not hold up a write, and `service` without, for hardware or a runtime.
    ///
    /// # Errors
    /// As [`QueueCommands::h2t_alloc`].
    pub async fn h2t_queues(
        &self,
        core: CoreId,
        copy: u32,
        service: u32,
    ) -> Result<H2tQueues<P>, Error> {
        let claims = self.queues().h2t_alloc(core.number(), copy, service).await?;
        let epoch = self.device().neuron().core_epoch(core);
        Ok(H2tQueues { shared: self.shared().clone(), claims, epoch })
    }
}

impl<P: Platform> RingMem<P> {
    fn bind(&self, side: Side) -> Result<RingBind, Error> {
        if self.side != side {
            return Err(Error::InvalidArgument { what: "ring side", value: self.side as u64 });
        }
        let handle = self.memory.handle();
        let memory = Some(QueueCommands { shared: &self.shared }.ring_memory(handle)?);
        Ok(RingBind { count: self.count, memory })
    }

    /// Its number.
    pub fn handle(&self) -> u64 {
        self.memory.handle()
    }

    /// Descriptors that it has room for.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Checks descriptors and stores them from slot `first` on.
    ///
    /// # Errors
    /// As [`QueueCommands::copy_descriptors`].
    pub async fn stage(&self, first: u32, descriptors: &[Descriptor]) -> Result<(), Error> {
        Call::Stage.admit(&self.shared.access)?;
        self.shared.device.neuron().ready().await?;
        let commands = QueueCommands { shared: &self.shared };
        let memory = commands.ring_memory(self.handle())?;
        commands.stage(&memory, self.side, u64::from(first) * 16, descriptors).await
    }
}

impl<P: Platform> DmaQueue<P> {
    fn commands(&self) -> QueueCommands<'_, P> {
        QueueCommands { shared: &self.shared }
    }

    /// Announces descriptors, the receive side first; `&mut` is the lock.
    ///
    /// # Errors
    /// As [`QueueCommands::start`].
    pub fn start(&mut self, tx: u32, rx: u32) -> Result<(), Error> {
        self.commands().start(self.engine, self.queue, tx, rx)
    }

    /// Counts descriptors of both sides as done.
    ///
    /// # Errors
    /// As [`QueueCommands::acknowledge`].
    pub fn acknowledge(&mut self, count: u32) -> Result<(), Error> {
        self.commands().acknowledge(self.engine, self.queue, count)
    }

    /// What the hardware says about it.
    ///
    /// # Errors
    /// As [`crate::Device::queue_status`].
    pub fn status(&self) -> Result<QueueStatus, Error> {
        self.shared.device.queue_status(self.engine, self.queue)
    }

    /// Releases the queue and waits until it has drained.
    ///
    /// # Errors
    /// As [`QueueCommands::release`].
    pub async fn close(mut self) -> Result<(), Error> {
        self.over = true;
        self.commands().release(self.engine, self.queue).await
    }
}

impl<P: Platform> Drop for DmaQueue<P> {
    fn drop(&mut self) {
        if !self.over {
            let client = self.shared.access.client();
            self.commands().dma().let_go(client, self.engine, self.queue);
        }
    }
}

impl<P: Platform> H2tQueues<P> {
    /// The core that they serve.
    pub fn core(&self) -> CoreId {
        self.claims.core
    }

    /// The engine that they are on.
    pub fn engine(&self) -> EngineId {
        self.claims.engine
    }

    /// What was taken, as masks, and the default queue.
    pub fn claims(&self) -> Claims {
        self.claims
    }

    /// The copy queue at position `at`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there are fewer; [`Error::Stale`] behind a reset of the core,
    /// when the queue may already be another client's.
    pub fn copy_queue(&self, at: usize) -> Result<QueueId, Error> {
        let core = self.claims.core;
        if self.shared.device.neuron().core_epoch(core) != self.epoch {
            return Err(axon_neuron::Error::Stale { core }.into());
        }
        let mut queues = QueueId::all().filter(|q| self.claims.copy & 1 << q.number() != 0);
        queues.nth(at).ok_or(Error::InvalidArgument { what: "copy queue", value: at as u64 })
    }

    /// Gives the queues back and waits until nothing is under way on them.
    ///
    /// # Errors
    /// As [`QueueCommands::h2t_free`].
    pub async fn close(mut self) -> Result<(), Error> {
        let queues = u32::from(self.claims.copy | self.claims.service);
        (self.claims.copy, self.claims.service) = (0, 0);
        QueueCommands { shared: &self.shared }.h2t_free(self.claims.core.number(), queues).await
    }
}

impl<P: Platform> Drop for H2tQueues<P> {
    fn drop(&mut self) {
        let client = self.shared.access.client();
        self.shared.device.neuron().dma().drop_claims(client, &self.claims);
    }
}
