//! Copies with wait handles (specification 03 §10): what commands 108 and 109 and the C function do.
//! Native copies need none of this: they are futures, any number of them.

use core::cell::RefCell;
use core::mem::replace;

use axon_platform::Platform;
use axon_ports::CoreId;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::calls::Call;
use crate::client::Shared;
use crate::{Client, Error, Span, Transfer};

/// Wait for nothing.
const NONE: i32 = -1;
/// Behave as a synchronous copy.
const SYNC: i32 = 0;
/// Most bytes of an asynchronous copy: one batch, 127 MiB.
const LARGEST: u64 = 2032 * 65_536;

/// One of the two copies that a client may have in flight on a ring.
enum Slot<P: Platform> {
    Idle,
    /// A call is at it.
    Taken,
    InFlight(Transfer<P>),
}

/// The two slots of every core's default ring.
pub(crate) struct Slots<P: Platform>(
    Mutex<CriticalSectionRawMutex, RefCell<[[Slot<P>; 2]; CoreId::COUNT]>>,
);

impl<P: Platform> Slots<P> {
    pub(crate) fn new() -> Self {
        let idle = || core::array::from_fn(|_| Slot::Idle);
        Slots(Mutex::new(RefCell::new(core::array::from_fn(|_| idle()))))
    }

    fn with<R>(
        &self,
        core: CoreId,
        handle: i32,
        work: impl FnOnce(&mut Slot<P>) -> R,
    ) -> Option<R> {
        let at = usize::try_from(handle).ok()?.checked_sub(1)?;
        self.0.lock(|slots| {
            let mut slots = slots.borrow_mut();
            slots.get_mut(core.index())?.get_mut(at).map(work)
        })
    }

    /// Takes what is in flight.
    fn take(&self, core: CoreId, handle: i32) -> Option<Transfer<P>> {
        self.with(core, handle, |slot| match replace(slot, Slot::Taken) {
            Slot::InFlight(transfer) => Some(transfer),
            other => {
                *slot = other;
                None
            }
        })?
    }
}

/// A slot that a call is at; idle again when the call ends without putting a copy in.
struct Hold<'a, P: Platform> {
    slots: &'a Slots<P>,
    core: CoreId,
    handle: i32,
}

impl<P: Platform> Hold<'_, P> {
    fn put(self, transfer: Transfer<P>) {
        self.slots.with(self.core, self.handle, |slot| *slot = Slot::InFlight(transfer));
    }
}

impl<P: Platform> Drop for Hold<'_, P> {
    fn drop(&mut self) {
        self.slots.with(self.core, self.handle, |slot| {
            if matches!(slot, Slot::Taken) {
                *slot = Slot::Idle;
            }
        });
    }
}

/// Copies with wait handles on the default ring of one core: at most two of a client at a time.
pub struct AsyncCopies<'a, P: Platform> {
    shared: &'a Shared<P>,
    core: CoreId,
}

impl<P: Platform> Client<P> {
    /// Copies with wait handles on the default ring of a core.
    pub fn async_copies(&self, core: CoreId) -> AsyncCopies<'_, P> {
        AsyncCopies { shared: self.shared(), core }
    }
}

fn bad(handle: i32) -> Error {
    Error::InvalidArgument { what: "wait handle", value: handle as u32 as u64 }
}

impl<'a, P: Platform> AsyncCopies<'a, P> {
    fn hold(&self, handle: i32) -> Hold<'a, P> {
        Hold { slots: &self.shared.numbered, core: self.core, handle }
    }

    /// Starts a copy, then waits for the one of `pwait`: −1 for none, 0 to wait for this one itself.
    /// Answers the handle of the copy that stays in flight: 1 and 2 in turn, 0 for none. A copy
    /// that is in flight under the handle to be given out is waited for first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another handle, one that nothing is in flight under, a copy of
    /// more than 127 MiB, and one that another core's ring serves: nothing was started. Else those of
    /// either copy; then none is in flight.
    pub async fn submit(
        &self,
        pwait: i32,
        source: Span<'_, P>,
        target: Span<'_, P>,
    ) -> Result<i32, Error> {
        Call::CopyNumbered.admit(&self.shared.access)?;
        let handle = match pwait {
            SYNC => {
                source.copy_to(target)?.await?;
                return Ok(SYNC);
            }
            NONE | 2 => 1,
            1 => 2,
            _ => return Err(bad(pwait)),
        };
        let core = source.ring_core(&target);
        if core != self.core {
            return Err(Error::InvalidArgument {
                what: "core of the copy",
                value: core.index() as u64,
            });
        }
        if source.len() > LARGEST {
            return Err(Error::InvalidArgument { what: "transfer size", value: source.len() });
        }
        let slots = &self.shared.numbered;
        let in_flight = |slot: &mut Slot<P>| matches!(slot, Slot::InFlight(_));
        if pwait != NONE && slots.with(self.core, pwait, in_flight) != Some(true) {
            return Err(bad(pwait));
        }
        let mut transfer = source.copy_to(target)?;
        if let Some(earlier) = slots.take(self.core, handle) {
            let _hold = self.hold(handle);
            if let Err(error) = earlier.await {
                log::warn!("a copy whose handle nobody waited for has failed: {error}");
            }
        }
        let free = slots.with(self.core, handle, |slot| {
            let free = matches!(slot, Slot::Idle);
            if free {
                *slot = Slot::Taken;
            }
            free
        });
        if free != Some(true) {
            return Err(Error::Busy { what: "the wait handle" });
        }
        let hold = self.hold(handle);
        // At once where that is possible; an error is met again.
        if transfer.try_start().is_err() {
            transfer.staged().await?;
        }
        hold.put(transfer);
        if pwait == NONE {
            return Ok(handle);
        }
        if let Err(error) = self.wait(pwait).await {
            // Never left running unowned: it has ended when this returns.
            let _ = self.wait(handle).await;
            return Err(error);
        }
        Ok(handle)
    }

    /// Waits for the copy of a handle, 1 or 2, which is free again afterwards.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another handle, and where nothing is in flight under it: also
    /// for one that was waited for. Else those of the copy.
    pub async fn wait(&self, handle: i32) -> Result<(), Error> {
        Call::WaitNumbered.admit(&self.shared.access)?;
        let transfer = self.shared.numbered.take(self.core, handle).ok_or(bad(handle))?;
        let _hold = self.hold(handle);
        transfer.await
    }
}
