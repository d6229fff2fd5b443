//! One core of a device, as a client uses it: who initialises it, who loads a model onto it, who
//! runs it, and who may write into it (specification 05 §8.5, §12 to §14).

use alloc::sync::Arc;
use core::ops::RangeInclusive;

use axon_clients::Access;
use axon_clients::core_sync::{
    CoreSync, Init, InitState, InitView, LockView, ModelReader, ModelWriter, SyncError,
};
use axon_clients::gates::GateError;
use axon_clients::reservation::{CoreClaim, MarkRequest};
use axon_neuron::CoreState;
use axon_platform::Platform;
use axon_ports::{ClientId, CoreId, GlobalCore, ModelUuid};

use crate::client::Shared;
use crate::{Client, Device, Driver, Error, InfoClient};

/// A core as one client sees it. After the client is closed every call that needs one answers
/// [`Error::NotAttached`].
pub struct NeuronCore<P: Platform> {
    shared: Arc<Shared<P>>,
    id: CoreId,
}

impl<P: Platform> Clone for NeuronCore<P> {
    fn clone(&self) -> Self {
        NeuronCore { shared: self.shared.clone(), id: self.id }
    }
}

impl<P: Platform> Client<P> {
    /// The core with this number on the client's device.
    ///
    /// # Errors
    /// [`Error::TooBig`] (E2BIG) for a number that the device does not have,
    /// [`Error::InvalidArgument`] for a core that its configuration leaves out.
    pub fn core(&self, number: u32) -> Result<NeuronCore<P>, Error> {
        let id = self.device().core_id(number)?;
        Ok(NeuronCore { shared: self.shared().clone(), id })
    }

    /// Claims `count` cores in a row, the first ones that are free among `cores`, counted from the
    /// first core of the client's device. They are free again when the claim is dropped.
    ///
    /// # Errors
    /// [`Error::Claim`]: EINVAL for a range that is none, EBUSY with the longest free run.
    pub async fn claim(&self, count: u32, cores: RangeInclusive<u32>) -> Result<CoreClaim, Error> {
        self.device().claim_for(self.id(), count, cores).await
    }

    /// Locks and init states by plain numbers, as the console and the C ABI use them.
    pub fn core_commands(&self) -> CoreCommands<'_> {
        CoreCommands { sync: self.device().sync(), access: self.access() }
    }
}

impl<P: Platform> InfoClient<P> {
    /// As [`Client::claim`]: reserving needs no attach slot.
    ///
    /// # Errors
    /// As [`Client::claim`].
    pub async fn claim(&self, count: u32, cores: RangeInclusive<u32>) -> Result<CoreClaim, Error> {
        self.device().claim_for(self.id(), count, cores).await
    }
}

impl<P: Platform> Device<P> {
    /// Position of a core of this device among all cores of the host; `None` behind the last.
    pub fn global_core(&self, core: CoreId) -> Option<GlobalCore> {
        GlobalCore::of(self.index(), self.hal().cores().into(), core)
    }

    /// The model lock of a core, now.
    pub fn model_lock(&self, core: CoreId) -> LockView {
        self.sync().lock(core)
    }

    /// The init state of a core, now.
    pub fn init_state(&self, core: CoreId) -> InitView {
        self.sync().init(core)
    }

    /// Who has claimed a core, now.
    pub fn core_owner(&self, core: CoreId) -> Option<ClientId> {
        self.driver().core_owner(self.global_core(core)?)
    }

    /// UP, RESETTING or DOWN.
    pub fn core_state(&self, core: CoreId) -> CoreState {
        self.neuron().core_state(core)
    }

    /// The core with this number.
    ///
    /// # Errors
    /// As [`Client::core`].
    pub fn core_id(&self, number: u32) -> Result<CoreId, Error> {
        let limit = self.hal().cores().into();
        let core = CoreId::new(number).filter(|_| u64::from(number) < limit);
        let core = core.ok_or(Error::TooBig { what: "core", value: number.into(), limit })?;
        match self.hal().has_core(core) {
            true => Ok(core),
            false => Err(Error::InvalidArgument { what: "core", value: number.into() }),
        }
    }

    async fn claim_for(
        &self,
        client: ClientId,
        count: u32,
        cores: RangeInclusive<u32>,
    ) -> Result<CoreClaim, Error> {
        let base = self.index().number() * u32::from(self.hal().cores());
        let (start, end) = cores.into_inner();
        let request = MarkRequest { client, base, count, start, end, one_word: false };
        Ok(self.driver().reservations().claim(request).await?)
    }
}

impl<P: Platform> Driver<P> {
    /// Claims `count` cores in a row for a client, the first ones that are free among `cores`.
    ///
    /// # Errors
    /// As [`Client::claim`].
    pub async fn claim(
        &self,
        client: ClientId,
        count: u32,
        cores: RangeInclusive<GlobalCore>,
    ) -> Result<CoreClaim, Error> {
        let (start, end) = (cores.start().number(), cores.end().number());
        let request = MarkRequest { client, base: 0, count, start, end, one_word: false };
        Ok(self.reservations().claim(request).await?)
    }

    /// Who has claimed a core of the host, now.
    pub fn core_owner(&self, core: GlobalCore) -> Option<ClientId> {
        self.reservations().owner(core)
    }

    /// Cores of the host that are claimed, now.
    pub fn claimed_cores(&self) -> u32 {
        self.reservations().count()
    }
}

impl<P: Platform> NeuronCore<P> {
    /// Which core of its device.
    pub fn id(&self) -> CoreId {
        self.id
    }

    pub(crate) fn device(&self) -> &Device<P> {
        &self.shared.device
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<P>> {
        &self.shared
    }

    fn sync(&self) -> &CoreSync {
        self.device().sync()
    }

    /// The right to run inferences of a model that this client has loaded. Waits while a model is
    /// being loaded, at most 500 ms.
    ///
    /// # Errors
    /// [`Error::Core`]: ENOENT where the core carries another model, EBUSY when the time is over.
    pub async fn model_reader(&self, model: ModelUuid) -> Result<ModelReader, Error> {
        Ok(self.sync().model_reader(&self.shared.access, self.id, model).await?)
    }

    /// The right to load a model. Waits until nobody holds the core, at most 2 s.
    ///
    /// # Errors
    /// [`Error::Core`]: EBUSY when the time is over.
    pub async fn model_writer(&self, model: ModelUuid) -> Result<ModelWriter, Error> {
        Ok(self.sync().model_writer(&self.shared.access, self.id, model).await?)
    }

    /// The right to initialise the core, or the news that it is. Waits for another initialiser, at
    /// most 5 s, and takes over where that one gives up.
    ///
    /// # Errors
    /// [`Error::Core`]: ETIMEDOUT when the time is over.
    pub async fn begin_init(&self) -> Result<Init, Error> {
        Ok(self.sync().begin_init(&self.shared.access, self.id).await?)
    }

    /// Models loaded onto the core since its last reset, by all clients.
    pub fn model_starts(&self) -> u64 {
        self.sync().model_starts(self.id)
    }

    /// Whether this client has claimed the core: what writes into a core needs that (specification
    /// 05 §8.5).
    ///
    /// # Errors
    /// [`Error::NotAttached`], [`Error::Gate`] (EPERM) where nobody or another client has.
    pub fn check_claim(&self) -> Result<(), Error> {
        self.shared.access.check()?;
        match self.device().core_owner(self.id) {
            Some(owner) if owner == self.shared.access.client() => Ok(()),
            other => Err(GateError::CoreNotClaimed { claimed: other.is_some() }.into()),
        }
    }
}

/// Locks and init states of a client's device by plain numbers. What is held this way ends by
/// command or with the client.
pub struct CoreCommands<'a> {
    sync: &'a CoreSync,
    access: &'a Arc<Access>,
}

impl CoreCommands<'_> {
    /// `CRWL_READER_ENTER`.
    ///
    /// # Errors
    /// As [`NeuronCore::model_reader`]; EINVAL for a core that the device does not have.
    pub async fn reader_enter(&self, core: u32, model: ModelUuid) -> Result<(), Error> {
        Ok(self.sync.reader_enter(self.access, core, model).await?)
    }

    /// `CRWL_READER_EXIT`.
    ///
    /// # Errors
    /// ENOENT for another model or client, EINVAL where there is no reader to leave.
    pub async fn reader_exit(&self, core: u32, model: ModelUuid) -> Result<(), Error> {
        Ok(self.sync.reader_exit(self.access, core, model).await?)
    }

    /// `CRWL_WRITER_ENTER`; answers whether the core carries the model already (EALREADY).
    ///
    /// # Errors
    /// As [`NeuronCore::model_writer`]; EINVAL for a core that the device does not have.
    pub async fn writer_enter(&self, core: u32, model: ModelUuid) -> Result<bool, Error> {
        Ok(self.sync.writer_enter(self.access, core, model).await?)
    }

    /// `CRWL_WRITER_DOWNGRADE`.
    ///
    /// # Errors
    /// EINVAL where there is no writer, ENOENT for another model or client.
    pub async fn writer_downgrade(&self, core: u32, model: ModelUuid) -> Result<(), Error> {
        Ok(self.sync.writer_downgrade(self.access, core, model).await?)
    }

    /// `CINIT_SET_STATE`; answers the state afterwards.
    ///
    /// # Errors
    /// E2BIG for a core that the device does not have, ETIMEDOUT after 5 s of waiting for another
    /// initialiser.
    pub async fn set_init_state(&self, core: u32, state: u32) -> Result<InitState, Error> {
        Ok(self.sync.set_init_state(self.access, core, state).await?)
    }
}

impl From<SyncError> for Error {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::NotAttached => Error::NotAttached,
            SyncError::Removed => Error::Removed,
            other => Error::Core(other),
        }
    }
}
