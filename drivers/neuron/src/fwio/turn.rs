//! Who holds the mailbox.

use core::cell::RefCell;
use core::future::poll_fn;
use core::sync::atomic::{AtomicI8, AtomicU8, Ordering};
use core::task::{Poll, Waker};

use axon_platform::{DmaBuf, Instant, Platform};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::{LOOK, codec};
use crate::Error;
use crate::registers::misc_ram;
use crate::shared::Shared;
use crate::wake::{Queue, Ticket};

/// What firmware shares with the driver, and who may use it.
pub(crate) struct Mailbox {
    /// Request, response.
    pub(super) buffers: [DmaBuf; 2],
    /// Performance profile that was set last.
    pub(super) profile: AtomicU8,
    /// Whether HBM can run at 7200 MT/s, see [`super::commands`].
    pub(super) hbm_7200: AtomicI8,
    state: Mutex<CriticalSectionRawMutex, RefCell<State>>,
}

#[derive(Default)]
struct State {
    taken: bool,
    /// The reset task wants the mailbox, or has it.
    reset: bool,
    reset_waker: Option<Waker>,
    queue: Queue,
    /// Sequence number of the last request; the first one uses 2.
    sequence: u8,
    /// A request was left alone in the middle: firmware may answer until then.
    dirty: Option<Instant>,
}

/// The right to use the mailbox.
pub(crate) struct Turn<'a> {
    mailbox: &'a Mailbox,
    is_reset: bool,
    /// Not yet for a reset that waits.
    holds: bool,
    /// Until when firmware may answer what is on its way.
    busy: Option<Instant>,
}

impl Mailbox {
    pub(crate) fn new(buffers: [DmaBuf; 2]) -> Self {
        let state = State { sequence: 1, ..State::default() };
        let state = Mutex::new(RefCell::new(state));
        let hbm_7200 = AtomicI8::new(super::commands::UNKNOWN);
        Mailbox { buffers, profile: AtomicU8::new(0), hbm_7200, state }
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.state.lock(|state| work(&mut state.borrow_mut()))
    }

    /// Waits for the turn, and for what an earlier holder left on its way.
    ///
    /// # Errors
    /// [`Error::NoRecords`] for a place in the queue, [`Error::DeviceGone`], [`Error::Removed`].
    pub(crate) async fn enter<P: Platform>(&self, shared: &Shared<P>) -> Result<Turn<'_>, Error> {
        let mut place = Place { mailbox: self, ticket: None };
        let mut turn = poll_fn(|cx| {
            if let Err(error) = shared.check_alive() {
                return Poll::Ready(Err(error));
            }
            self.with(|state| {
                if !state.taken && !state.reset && state.queue.is_turn(place.ticket) {
                    state.taken = true;
                    return Poll::Ready(Ok(Turn {
                        mailbox: self,
                        is_reset: false,
                        holds: true,
                        busy: None,
                    }));
                }
                match state.queue.wait(place.ticket, cx.waker()) {
                    Ok(ticket) => place.ticket = Some(ticket),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                Poll::Pending
            })
        })
        .await?;
        drop(place);
        turn.wait_out(shared).await?;
        Ok(turn)
    }

    /// Takes the mailbox for a reset: before everybody who waits, and without waiting for what an
    /// earlier holder left, which ends with the reset.
    pub(crate) async fn enter_for_reset<P: Platform>(&self, shared: &Shared<P>) -> Turn<'_> {
        self.with(|state| state.reset = true);
        // From here a drop of this future lets the others in again.
        let mut turn = Turn { mailbox: self, is_reset: true, holds: false, busy: None };
        poll_fn(|cx| {
            self.with(|state| {
                if !state.taken {
                    state.taken = true;
                    return Poll::Ready(());
                }
                state.reset_waker = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await;
        turn.holds = true;
        if self.with(|state| state.dirty.take()).is_some() {
            super::register_file::give_up(shared);
        }
        turn
    }

    /// Wakes everybody who waits: the device is going away.
    pub(crate) fn call_all(&self) {
        self.with(|state| state.queue.call_all());
    }

    /// Performance profile that was set last.
    pub(crate) fn profile(&self) -> u8 {
        self.profile.load(Ordering::Relaxed)
    }
}

/// A place in the queue; given up when dropped.
struct Place<'a> {
    mailbox: &'a Mailbox,
    ticket: Option<Ticket>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.mailbox.with(|state| {
            state.queue.leave(ticket);
            if !state.taken && !state.reset {
                state.queue.call();
            }
        });
    }
}

impl Turn<'_> {
    /// Whether a reset wants the mailbox now.
    pub(super) fn reset_waits(&self) -> bool {
        !self.is_reset && self.mailbox.with(|state| state.reset)
    }

    pub(super) fn next_sequence(&self) -> u8 {
        self.mailbox.with(|state| {
            state.sequence = codec::next_sequence(state.sequence);
            state.sequence
        })
    }

    /// From here until [`Turn::idle`] firmware may answer, at the latest by `until`.
    pub(super) fn busy(&mut self, until: Instant) {
        self.busy = Some(until);
    }

    /// Nothing is on its way.
    pub(super) fn idle(&mut self) {
        self.busy = None;
    }

    /// Waits until an exchange that was left alone is over, and clears up behind it.
    async fn wait_out<P: Platform>(&mut self, shared: &Shared<P>) -> Result<(), Error> {
        let Some(until) = self.mailbox.with(|state| state.dirty.take()) else { return Ok(()) };
        self.busy(until);
        while shared.platform.now() < until && !self.reset_waits() {
            shared.check_alive()?;
            if shared.misc_ram(misc_ram::TRIGGER)? == 0 {
                break;
            }
            shared.platform.sleep(LOOK).await;
        }
        self.idle();
        super::register_file::give_up(shared);
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.mailbox.with(|state| {
            if self.is_reset {
                state.reset = false;
            }
            if self.holds {
                state.taken = false;
            }
            if self.busy.is_some() {
                state.dirty = self.busy;
            }
            if state.taken {
                return;
            }
            match (state.reset, state.reset_waker.take()) {
                (true, Some(waker)) => waker.wake(),
                (true, None) => {}
                (false, _) => state.queue.call(),
            }
        });
    }
}
