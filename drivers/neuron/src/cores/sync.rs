//! Semaphores and events: one register access each, without waiting (specification 06 §9).
//!
//! Numbers are checked once, when a [`Semaphore`] or an [`Event`] is named; an access then tests
//! that the core is usable and touches one register. Whether the caller may write, which takes a
//! claim on the core (05 §8.5), is for the layer above to test.

use core::future::poll_fn;
use core::task::Poll;

use axon_platform::{MmioWindow, Platform};
use axon_ports::CoreId;

use crate::hal::SemaphoreView;
use crate::notify::{Until, admit};
use crate::registers::misc_ram;
use crate::shared::Shared;
use crate::{Error, NeuronDevice};

/// A semaphore of a core: a signed number of 32 bits that wraps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Semaphore {
    core: CoreId,
    read: u64,
    set: u64,
    add: u64,
    subtract: u64,
}

/// An event of a core: a bit in a register of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    core: CoreId,
    register: u64,
}

impl Semaphore {
    /// Whose it is.
    #[inline]
    pub const fn core(&self) -> CoreId {
        self.core
    }
}

impl Event {
    /// Whose it is.
    #[inline]
    pub const fn core(&self) -> CoreId {
        self.core
    }
}

impl<P: Platform> NeuronDevice<P> {
    /// Semaphore `index` of core `core`.
    ///
    /// # Errors
    /// [`Error::TooBig`] (E2BIG) for a core above those of the device, [`Error::InvalidArgument`]
    /// for one that is absent from the core map and for an index above 255.
    pub fn semaphore(&self, core: u32, index: u32) -> Result<Semaphore, Error> {
        let hal = self.hal();
        let register = |view| hal.semaphore(core, index, view);
        Ok(Semaphore {
            core: hal.check_core(core)?,
            read: register(SemaphoreView::Read)?,
            set: register(SemaphoreView::Set)?,
            add: register(SemaphoreView::Add)?,
            subtract: register(SemaphoreView::Subtract)?,
        })
    }

    /// Event `index` of core `core`.
    ///
    /// # Errors
    /// As [`NeuronDevice::semaphore`].
    pub fn event(&self, core: u32, index: u32) -> Result<Event, Error> {
        let hal = self.hal();
        Ok(Event { core: hal.check_core(core)?, register: hal.event(core, index)? })
    }

    /// Value of a semaphore.
    ///
    /// # Errors
    /// [`Error::Again`] (EAGAIN) while device or core are in reset, [`Error::CoreDown`],
    /// [`Error::DeviceFailed`], [`Error::DeviceGone`], [`Error::Removed`]; so for every access.
    #[inline]
    pub fn semaphore_get(&self, semaphore: &Semaphore) -> Result<i32, Error> {
        Ok(self.read(semaphore.core, semaphore.read)? as i32)
    }

    /// Sets a semaphore, behind all stores to host memory that precede the call.
    ///
    /// # Errors
    /// As [`NeuronDevice::semaphore_get`].
    #[inline]
    pub fn semaphore_set(&self, semaphore: &Semaphore, value: i32) -> Result<(), Error> {
        self.post(semaphore.core, semaphore.set, value as u32)
    }

    /// Adds to a semaphore, as [`NeuronDevice::semaphore_set`].
    ///
    /// # Errors
    /// As [`NeuronDevice::semaphore_get`].
    #[inline]
    pub fn semaphore_add(&self, semaphore: &Semaphore, amount: u32) -> Result<(), Error> {
        self.post(semaphore.core, semaphore.add, amount)
    }

    /// Subtracts from a semaphore, as [`NeuronDevice::semaphore_set`].
    ///
    /// # Errors
    /// As [`NeuronDevice::semaphore_get`].
    #[inline]
    pub fn semaphore_subtract(&self, semaphore: &Semaphore, amount: u32) -> Result<(), Error> {
        self.post(semaphore.core, semaphore.subtract, amount)
    }

    /// Register of an event.
    ///
    /// # Errors
    /// As [`NeuronDevice::semaphore_get`].
    #[inline]
    pub fn event_get(&self, event: &Event) -> Result<u32, Error> {
        self.read(event.core, event.register)
    }

    /// Writes the register of an event, as [`NeuronDevice::semaphore_set`]. The value goes out as
    /// it is; hardware keeps bit 0.
    ///
    /// # Errors
    /// As [`NeuronDevice::semaphore_get`].
    #[inline]
    pub fn event_set(&self, event: &Event, value: u32) -> Result<(), Error> {
        self.post(event.core, event.register, value)
    }

    /// Waits until a semaphore is at least `value`; the sweeping task polls it. Answers the value
    /// that was seen. Waits for a reset of the core to end before it begins.
    ///
    /// # Errors
    /// [`Error::Cancelled`] by a reset of the core, and as [`NeuronDevice::semaphore_get`] but for
    /// [`Error::Again`].
    pub async fn semaphore_reached(&self, semaphore: &Semaphore, value: i32) -> Result<i32, Error> {
        let until = Until::AtLeast(value);
        let seen = watch(self.shared(), semaphore.core, semaphore.read, until).await?;
        Ok(seen as i32)
    }

    /// Waits until an event is set.
    ///
    /// # Errors
    /// As [`NeuronDevice::semaphore_reached`].
    pub async fn event_reached(&self, event: &Event) -> Result<(), Error> {
        watch(self.shared(), event.core, event.register, Until::Set).await.map(drop)
    }

    #[inline]
    fn gate(&self, core: CoreId) -> Result<&Shared<P>, Error> {
        let shared = self.shared();
        if !shared.states.is_open(core) {
            shared.check_open(core)?;
        }
        Ok(shared)
    }

    #[inline]
    fn read(&self, core: CoreId, register: u64) -> Result<u32, Error> {
        let shared = self.gate(core)?;
        let value = shared.registers.read32(register);
        if value == misc_ram::ALL_ONES { shared.confirm(value) } else { Ok(value) }
    }

    #[inline]
    fn post(&self, core: CoreId, register: u64, value: u32) -> Result<(), Error> {
        let shared = self.gate(core)?;
        shared.platform.write_barrier();
        shared.registers.write32(register, value);
        Ok(())
    }
}

impl<P: Platform> Shared<P> {
    /// A semaphore may be −1; so does every register of a device that is gone read.
    #[cold]
    fn confirm(&self, value: u32) -> Result<u32, Error> {
        self.misc_ram(misc_ram::DEVICE_ID)?;
        Ok(value)
    }
}

/// A wait that is noted; nobody polls for it once this is dropped.
struct Watching<'a, P: Platform> {
    shared: &'a Shared<P>,
    id: Option<u64>,
}

impl<P: Platform> Drop for Watching<'_, P> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.shared.notifications.forget_watch(id);
        }
    }
}

async fn watch<P: Platform>(
    shared: &Shared<P>,
    core: CoreId,
    register: u64,
    until: Until,
) -> Result<u32, Error> {
    admit(shared, core).await?;
    let value = shared.registers.read32(register);
    if until.holds(value) && (value != misc_ram::ALL_ONES || shared.confirm(value).is_ok()) {
        return Ok(value);
    }
    let mut watching = Watching { shared, id: None };
    poll_fn(|cx| {
        let Some(id) = watching.id else {
            shared.check_alive()?;
            let id = shared.notifications.begin_watch(core, register, until, cx.waker())?;
            watching.id = Some(id);
            return Poll::Pending;
        };
        match shared.notifications.collect_watch(id, cx.waker()) {
            None => Poll::Pending,
            Some(result) => {
                watching.id = None;
                Poll::Ready(result)
            }
        }
    })
    .await
}
