//! Semaphores and events of a core: inline calls, one register access each (specification 06 §9,
//! §17.6).
//!
//! A write needs the client's attach and its claim of the core, tested with two loads; then the
//! core must be usable. A read needs neither attach nor claim.

use alloc::sync::Arc;

use axon_clients::gates::GateError;
use axon_clients::reservation::Reservations;
use axon_neuron::NeuronDevice;
use axon_platform::Platform;
use axon_ports::{ClientId, GlobalCore};

use crate::calls::Call;
use crate::client::Shared;
use crate::{Error, NeuronCore};

/// Whose word it is, and on which core of the host. What an access asks is at hand: an access is
/// some twenty instructions.
struct Holder<P: Platform> {
    shared: Arc<Shared<P>>,
    neuron: NeuronDevice<P>,
    reservations: Reservations,
    client: ClientId,
    core: GlobalCore,
}

impl<P: Platform> Clone for Holder<P> {
    fn clone(&self) -> Self {
        Holder {
            shared: self.shared.clone(),
            neuron: self.neuron.clone(),
            reservations: self.reservations.clone(),
            client: self.client,
            core: self.core,
        }
    }
}

impl<P: Platform> Holder<P> {
    /// The gates of specification 05 §8.4 for what writes into a core: attached, then claimed.
    #[inline(always)]
    fn check_write(&self, call: Call) -> Result<(), Error> {
        call.admit(&self.shared.access)?;
        match self.reservations.is_owned_by(self.core, self.client) {
            true => Ok(()),
            false => Err(self.unclaimed()),
        }
    }

    #[cold]
    fn unclaimed(&self) -> Error {
        let claimed = self.reservations.owner(self.core).is_some();
        GateError::CoreNotClaimed { claimed }.into()
    }
}

/// A semaphore: a signed number of 32 bits that wraps.
pub struct Semaphore<P: Platform> {
    holder: Holder<P>,
    word: axon_neuron::Semaphore,
}

/// An event: one bit.
pub struct Event<P: Platform> {
    holder: Holder<P>,
    word: axon_neuron::Event,
}

impl<P: Platform> Clone for Semaphore<P> {
    fn clone(&self) -> Self {
        Semaphore { holder: self.holder.clone(), word: self.word }
    }
}

impl<P: Platform> Clone for Event<P> {
    fn clone(&self) -> Self {
        Event { holder: self.holder.clone(), word: self.word }
    }
}

impl<P: Platform> NeuronCore<P> {
    /// Semaphore `index` of the core.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an index above 255.
    pub fn semaphore(&self, index: u32) -> Result<Semaphore<P>, Error> {
        let word = self.device().neuron().semaphore(self.id().number(), index)?;
        Ok(Semaphore { holder: self.holder()?, word })
    }

    /// Event `index` of the core.
    ///
    /// # Errors
    /// As [`NeuronCore::semaphore`].
    pub fn event(&self, index: u32) -> Result<Event<P>, Error> {
        let word = self.device().neuron().event(self.id().number(), index)?;
        Ok(Event { holder: self.holder()?, word })
    }

    fn holder(&self) -> Result<Holder<P>, Error> {
        let number = self.id().number().into();
        let core = self.device().global_core(self.id());
        let core = core.ok_or(Error::InvalidArgument { what: "core", value: number })?;
        let shared = self.shared().clone();
        let (neuron, client) = (self.device().neuron().clone(), shared.access.client());
        let reservations = self.device().reservations().clone();
        Ok(Holder { shared, neuron, reservations, client, core })
    }
}

impl<P: Platform> Semaphore<P> {
    /// Its value.
    ///
    /// # Errors
    /// [`Error::Again`] while device or core are in reset, [`Error::Device`] for a core that is
    /// DOWN, [`Error::DeviceFailed`], [`Error::DeviceGone`], [`Error::Removed`].
    #[inline]
    pub fn get(&self) -> Result<i32, Error> {
        Ok(self.holder.neuron.semaphore_get(&self.word)?)
    }

    /// Sets it. The write goes out behind all stores to host memory that precede it.
    ///
    /// # Errors
    /// [`Error::NotAttached`], [`Error::Gate`] (EPERM) where the client has not claimed the core,
    /// and as [`Semaphore::get`].
    #[inline]
    pub fn set(&self, value: i32) -> Result<(), Error> {
        self.holder.check_write(Call::SemaphoreSet)?;
        Ok(self.holder.neuron.semaphore_set(&self.word, value)?)
    }

    /// Adds to it, in one step for all clients.
    ///
    /// # Errors
    /// As [`Semaphore::set`].
    #[inline]
    pub fn add(&self, amount: u32) -> Result<(), Error> {
        self.holder.check_write(Call::SemaphoreAdd)?;
        Ok(self.holder.neuron.semaphore_add(&self.word, amount)?)
    }

    /// Subtracts from it, in one step for all clients.
    ///
    /// # Errors
    /// As [`Semaphore::set`].
    #[inline]
    pub fn sub(&self, amount: u32) -> Result<(), Error> {
        self.holder.check_write(Call::SemaphoreSubtract)?;
        Ok(self.holder.neuron.semaphore_subtract(&self.word, amount)?)
    }

    /// Waits until it is at least `value`; answers what it was then.
    ///
    /// # Errors
    /// [`Error::Cancelled`] by a reset of the core, and as [`Semaphore::get`] but for
    /// [`Error::Again`]: a reset that is under way is waited for.
    pub async fn reached(&self, value: i32) -> Result<i32, Error> {
        Ok(self.holder.neuron.semaphore_reached(&self.word, value).await?)
    }
}

impl<P: Platform> Event<P> {
    /// Whether it is set.
    ///
    /// # Errors
    /// As [`Semaphore::get`].
    #[inline]
    pub fn get(&self) -> Result<bool, Error> {
        Ok(self.read()? != 0)
    }

    /// Sets or clears it.
    ///
    /// # Errors
    /// As [`Semaphore::set`].
    #[inline]
    pub fn set(&self, set: bool) -> Result<(), Error> {
        self.write(set.into())
    }

    /// Its register as it is.
    ///
    /// # Errors
    /// As [`Semaphore::get`].
    #[inline]
    pub fn read(&self) -> Result<u32, Error> {
        Ok(self.holder.neuron.event_get(&self.word)?)
    }

    /// Writes its register; hardware keeps bit 0.
    ///
    /// # Errors
    /// As [`Semaphore::set`].
    #[inline]
    pub fn write(&self, value: u32) -> Result<(), Error> {
        self.holder.check_write(Call::EventSet)?;
        Ok(self.holder.neuron.event_set(&self.word, value)?)
    }

    /// Waits until it is set.
    ///
    /// # Errors
    /// As [`Semaphore::reached`].
    pub async fn wait(&self) -> Result<(), Error> {
        Ok(self.holder.neuron.event_reached(&self.word).await?)
    }
}
