//! Semaphores and events of a core, one register access each (specification 01 §12). Who may write
//! is checked above, by the clients service.

use axon_platform::{MmioWindow, Platform};
use axon_ports::CoreId;
use axon_ports::reset::DeviceState;

use crate::hal::SemaphoreView;
use crate::state::CoreState;
use crate::{Error, NeuronDevice};

/// Calls in this file answer at once.
///
/// # Errors
/// All of them: [`Error::TooBig`] (E2BIG) for a core number above the cores of the device,
/// [`Error::InvalidArgument`] for an absent core and for a semaphore or event above 255;
/// [`Error::Again`] while the core is being reset, [`Error::CoreDown`] or [`Error::DeviceFailed`]
/// where its reset failed, [`Error::DeviceGone`], [`Error::Removed`]. No register was touched then.
impl<P: Platform> NeuronDevice<P> {
    /// Value of a semaphore.
    ///
    /// # Errors
    /// See above.
    pub fn read_semaphore(&self, core: u32, number: u32) -> Result<i32, Error> {
        let offset = self.semaphore(core, number, SemaphoreView::Read)?;
        Ok(self.shared().registers.read32(offset).cast_signed())
    }

    /// Sets a semaphore.
    ///
    /// # Errors
    /// See above.
    pub fn write_semaphore(&self, core: u32, number: u32, value: i32) -> Result<(), Error> {
        let offset = self.semaphore(core, number, SemaphoreView::Set)?;
        self.shared().registers.write32(offset, value.cast_unsigned());
        Ok(())
    }

    /// Adds to a semaphore, which wraps as a signed 32-bit number.
    ///
    /// # Errors
    /// See above.
    pub fn increment_semaphore(&self, core: u32, number: u32, amount: u32) -> Result<(), Error> {
        let offset = self.semaphore(core, number, SemaphoreView::Add)?;
        self.shared().registers.write32(offset, amount);
        Ok(())
    }

    /// Subtracts from a semaphore, which wraps as a signed 32-bit number.
    ///
    /// # Errors
    /// See above.
    pub fn decrement_semaphore(&self, core: u32, number: u32, amount: u32) -> Result<(), Error> {
        let offset = self.semaphore(core, number, SemaphoreView::Subtract)?;
        self.shared().registers.write32(offset, amount);
        Ok(())
    }

    /// Whether an event is set.
    ///
    /// # Errors
    /// See above.
    pub fn read_event(&self, core: u32, number: u32) -> Result<bool, Error> {
        let offset = self.shared().hal.event(core, number)?;
        self.check_core_up(core)?;
        Ok(self.shared().registers.read32(offset) & 1 == 1)
    }

    /// Sets or clears an event.
    ///
    /// # Errors
    /// See above.
    pub fn write_event(&self, core: u32, number: u32, set: bool) -> Result<(), Error> {
        let offset = self.shared().hal.event(core, number)?;
        self.check_core_up(core)?;
        self.shared().registers.write32(offset, set.into());
        Ok(())
    }

    fn semaphore(&self, core: u32, number: u32, view: SemaphoreView) -> Result<u64, Error> {
        let offset = self.shared().hal.semaphore(core, number, view)?;
        self.check_core_up(core)?;
        Ok(offset)
    }

    /// The hardware gate of specification 05 §6 for calls that do not wait.
    fn check_core_up(&self, core: u32) -> Result<(), Error> {
        let shared = self.shared();
        shared.check_alive()?;
        let core =
            CoreId::new(core).ok_or(Error::InvalidArgument { what: "core", value: core.into() })?;
        match (shared.states.device(), shared.states.core(core)) {
            (DeviceState::Invalid, _) => Err(Error::DeviceFailed),
            (DeviceState::Ready, CoreState::Up) => Ok(()),
            (DeviceState::Ready, CoreState::Down) => Err(Error::CoreDown { core }),
            _ => Err(Error::Again { what: "the core is being reset" }),
        }
    }
}
