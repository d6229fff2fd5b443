//! The locks of all cores and who waits for them, as plain data: time comes in as a number
//! (specification 05 §13.2).
//!
//! One list of waiters, in order of arrival. Per core it is a queue: nobody overtakes, a reader
//! behind a waiting writer waits.

use alloc::sync::Arc;
use core::time::Duration;

use axon_platform::Instant;
use axon_ports::desk::Ticket;
use axon_ports::{ClientId, CoreId, ModelUuid};
use heapless::Vec;

use super::SyncError;
use super::cell::Released;
use super::lock::{CoreLock, Entered, Hold, Keeper, Key};
use super::owner::{CALLS, Table};
use super::per_core::PerCore;
use crate::Access;

/// Longest wait of a reader.
pub(super) const READER_LIMIT: Duration = Duration::from_millis(500);
/// Longest wait of a writer.
pub(super) const WRITER_LIMIT: Duration = Duration::from_secs(2);

/// A call that may have to wait.
#[derive(Clone, Debug)]
pub(super) struct Enter {
    pub(super) access: Arc<Access>,
    pub(super) core: CoreId,
    pub(super) model: ModelUuid,
    pub(super) writer: bool,
    pub(super) keeper: Keeper,
}

/// A lock that was entered for the sender of an [`Enter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Granted {
    pub(super) core: CoreId,
    pub(super) entered: Entered,
    pub(super) keeper: Keeper,
}

pub(super) type EnterResult = Result<Granted, SyncError>;

/// A command that never waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum LockStep {
    /// Command form: one reader less.
    ExitReader(CoreId, Key),
    /// Command form: the writer becomes the only reader.
    Downgrade(CoreId, Key),
    /// The end of a client: its waiting calls are cancelled, every core that it stamped is free.
    ClientGone(ClientId),
}

/// One core's lock as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockView {
    /// Who holds it.
    pub hold: Hold,
    /// Model on the core and whose it is; may outlast the hold.
    pub key: Option<Key>,
    /// Calls that wait for it.
    pub waiting: usize,
    /// Models loaded since the last reset of the core.
    pub loads: u64,
}

struct Waiter {
    ticket: Ticket,
    call: Enter,
    deadline: Instant,
}

pub(super) struct LockTable {
    locks: PerCore<CoreLock>,
    waiting: Vec<Waiter, CALLS>,
    answers: Vec<(Ticket, EnterResult), CALLS>,
}

impl Table for LockTable {
    type Call = Enter;
    type Answer = EnterResult;
    type Step = LockStep;
    type StepAnswer = Result<(), SyncError>;
    type View = LockView;

    const UNTOUCHED: LockView = LockView { hold: Hold::Free, key: None, waiting: 0, loads: 0 };

    fn new() -> Self {
        LockTable { locks: PerCore::new(CoreLock::new), waiting: Vec::new(), answers: Vec::new() }
    }

    fn call(&mut self, ticket: Ticket, call: Enter, now: Instant) {
        let core = call.core;
        let deadline = now + limit(&call);
        if let Err(waiter) = self.waiting.push(Waiter { ticket, call, deadline }) {
            // More calls than the desk has slots: cannot be.
            self.answer(waiter.ticket, Err(busy(&waiter.call, Duration::ZERO)));
        }
        self.admit(core);
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Some(at) = self.waiting.iter().position(|waiter| waiter.ticket == ticket) {
            let core = self.waiting.remove(at).call.core;
            self.admit(core);
        }
    }

    fn uncollected(&mut self, answer: EnterResult) {
        let Ok(Granted { core, entered, keeper }) = answer else { return };
        self.change(core, |lock| lock.undo(entered, keeper));
    }

    fn step(&mut self, step: LockStep) -> Result<(), SyncError> {
        match step {
            LockStep::ExitReader(core, key) => self.change(core, |lock| lock.exit_reader(key)),
            LockStep::Downgrade(core, key) => self.change(core, |lock| lock.downgrade(key)),
            LockStep::ClientGone(client) => {
                self.client_gone(client);
                Ok(())
            }
        }
    }

    fn release(&mut self, core: CoreId, released: Released) {
        self.change(core, |lock| {
            if released.downgraded {
                lock.downgraded();
            }
            if released.abandoned {
                lock.abandoned();
            }
            lock.leave(released.readers);
        });
    }

    fn reset(&mut self, core: CoreId) {
        self.locks[core].reset();
    }

    fn expire(&mut self, now: Instant) {
        while let Some(at) = self.waiting.iter().position(|waiter| waiter.deadline <= now) {
            let Waiter { ticket, call, .. } = self.waiting.remove(at);
            self.answer(ticket, Err(busy(&call, limit(&call))));
            self.admit(call.core);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiter| waiter.deadline).min()
    }

    fn take_answer(&mut self) -> Option<(Ticket, EnterResult)> {
        (!self.answers.is_empty()).then(|| self.answers.remove(0))
    }

    fn generation(&self, core: CoreId) -> u32 {
        self.locks[core].generation()
    }

    fn view(&self, core: CoreId) -> LockView {
        let lock = &self.locks[core];
        LockView {
            hold: lock.hold(),
            key: lock.key(),
            waiting: self.waiting.iter().filter(|waiter| waiter.call.core == core).count(),
            loads: lock.loads(),
        }
    }
}

impl LockTable {
    /// Changes one lock, then lets in whoever was waiting for that.
    fn change<R>(&mut self, core: CoreId, change: impl FnOnce(&mut CoreLock) -> R) -> R {
        let result = change(&mut self.locks[core]);
        self.admit(core);
        result
    }

    fn client_gone(&mut self, client: ClientId) {
        while let Some(at) = self.waiting.iter().position(|w| w.call.access.client() == client) {
            let waiter = self.waiting.remove(at);
            self.answer(waiter.ticket, Err(SyncError::Cancelled));
        }
        for core in CoreId::ALL {
            self.change(core, |lock| {
                if lock.key().is_some_and(|key| key.client == client) {
                    lock.clear();
                }
            });
        }
    }

    /// Lets in whoever can enter `core`, oldest first, until one has to wait.
    fn admit(&mut self, core: CoreId) {
        while let Some(at) = self.waiting.iter().position(|waiter| waiter.call.core == core) {
            let Some(result) = self.try_enter(at) else { break };
            let waiter = self.waiting.remove(at);
            self.answer(waiter.ticket, result);
        }
    }

    fn try_enter(&mut self, at: usize) -> Option<EnterResult> {
        let Enter { access, core, model, writer, keeper } = &self.waiting.get(at)?.call;
        if access.check().is_err() {
            return Some(Err(SyncError::NotAttached));
        }
        let key = Key { client: access.client(), model: *model };
        let lock = &mut self.locks[*core];
        let entered = match writer {
            true => lock.enter_writer(key, *keeper).map(Ok),
            false => lock.enter_reader(key, *keeper),
        };
        Some(entered?.map(|entered| Granted { core: *core, entered, keeper: *keeper }))
    }

    fn answer(&mut self, ticket: Ticket, result: EnterResult) {
        // Cannot be full: one answer for each slot of the desk.
        let _ = self.answers.push((ticket, result));
    }
}

fn limit(call: &Enter) -> Duration {
    if call.writer { WRITER_LIMIT } else { READER_LIMIT }
}

fn busy(call: &Enter, waited: Duration) -> SyncError {
    SyncError::LockBusy { core: call.core, writer: call.writer, waited }
}
