//! Who initialises a core, as plain data: states, the one initialiser, and who waits for it
//! (specification 05 §12). Time comes in as a number.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use axon_platform::Instant;
use axon_ports::desk::Ticket;
use axon_ports::{ClientId, CoreId};
use heapless::Vec;

use super::SyncError;
use super::cell::Released;
use super::owner::{CALLS, Table};
use super::per_core::PerCore;
use crate::Access;

/// Longest wait for another initialiser.
pub(super) const INIT_LIMIT: Duration = Duration::from_secs(5);

/// State of a core as its runtimes see it. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum InitState {
    /// Somebody initialises the core.
    Started = 1,
    /// The core is initialised.
    Completed = 2,
    /// Nobody has initialised the core since its last reset.
    Invalid = 3,
}

impl InitState {
    /// `STARTED`, `COMPLETED` or `INVALID`.
    pub const fn name(self) -> &'static str {
        match self {
            InitState::Started => "STARTED",
            InitState::Completed => "COMPLETED",
            InitState::Invalid => "INVALID",
        }
    }
}

impl fmt::Display for InitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A call to begin.
#[derive(Clone, Debug)]
pub(super) struct Begin {
    pub(super) access: Arc<Access>,
    pub(super) core: CoreId,
    /// The native form: takes over by itself where the initialiser gives up. The command form
    /// answers INVALID instead, and its caller asks again.
    pub(super) takes_over: bool,
}

/// Answer to a [`Begin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Begun {
    pub(super) core: CoreId,
    pub(super) state: InitState,
    /// Where the caller is the initialiser: for the release cell.
    pub(super) mine: Option<u32>,
}

pub(super) type BeginResult = Result<Begun, SyncError>;

/// A request that never waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum InitStep {
    /// Command form with a value other than STARTED: only COMPLETED after STARTED, by the
    /// initialiser, does something.
    Set(CoreId, ClientId, u32),
    /// The holder of the ticket of this generation is done.
    Complete(CoreId, u32),
    /// The end of a client: its waiting calls are cancelled, what it has started is INVALID.
    ClientGone(ClientId),
}

/// One core's init state as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitView {
    /// State.
    pub state: InitState,
    /// Who initialises it.
    pub initialiser: Option<ClientId>,
    /// Calls that wait for that.
    pub waiting: usize,
}

#[derive(Clone, Copy)]
struct InitCell {
    state: InitState,
    initialiser: Option<ClientId>,
    /// Raised whenever a ticket given out earlier has lost its meaning.
    generation: u32,
}

impl InitCell {
    const UNTOUCHED: InitCell =
        InitCell { state: InitState::Invalid, initialiser: None, generation: 0 };

    fn set(&mut self, state: InitState, initialiser: Option<ClientId>) {
        self.state = state;
        self.initialiser = initialiser;
        self.generation = self.generation.wrapping_add(1);
    }
}

struct Waiter {
    ticket: Ticket,
    call: Begin,
    deadline: Instant,
}

pub(super) struct InitTable {
    cells: PerCore<InitCell>,
    waiting: Vec<Waiter, CALLS>,
    answers: Vec<(Ticket, BeginResult), CALLS>,
}

impl Table for InitTable {
    type Call = Begin;
    type Answer = BeginResult;
    type Step = InitStep;
    /// State of the core afterwards; INVALID where no single core was meant.
    type StepAnswer = Result<InitState, SyncError>;
    type View = InitView;

    const UNTOUCHED: InitView =
        InitView { state: InitState::Invalid, initialiser: None, waiting: 0 };

    fn new() -> Self {
        InitTable {
            cells: PerCore::new(|_| InitCell::UNTOUCHED),
            waiting: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// "Set STARTED": the caller becomes the initialiser, learns that it is done, or waits.
    fn call(&mut self, ticket: Ticket, call: Begin, now: Instant) {
        let core = call.core;
        if call.access.check().is_err() {
            return self.answer(ticket, Err(SyncError::NotAttached));
        }
        match self.cells[core].state {
            InitState::Completed => {
                let state = InitState::Completed;
                self.answer(ticket, Ok(Begun { core, state, mine: None }));
            }
            InitState::Invalid => self.start(ticket, &call),
            InitState::Started => {
                let waiter = Waiter { ticket, call, deadline: now + INIT_LIMIT };
                if let Err(waiter) = self.waiting.push(waiter) {
                    // More calls than the desk has slots: cannot be.
                    self.give_up(&waiter);
                }
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket) {
        if let Some(at) = self.waiting.iter().position(|waiter| waiter.ticket == ticket) {
            self.waiting.remove(at);
        }
    }

    fn uncollected(&mut self, answer: BeginResult) {
        if let Ok(Begun { core, mine: Some(generation), .. }) = answer
            && self.cells[core].generation == generation
        {
            self.abandon(core);
        }
    }

    fn step(&mut self, step: InitStep) -> Result<InitState, SyncError> {
        match step {
            InitStep::Set(core, client, value) => Ok(self.set(core, client, value)),
            InitStep::Complete(core, generation) => self.complete(core, generation),
            InitStep::ClientGone(client) => {
                self.client_gone(client);
                Ok(InitState::Invalid)
            }
        }
    }

    fn release(&mut self, core: CoreId, released: Released) {
        if released.abandoned {
            self.abandon(core);
        }
    }

    fn reset(&mut self, core: CoreId) {
        self.settle(core, InitState::Invalid);
    }

    fn expire(&mut self, now: Instant) {
        while let Some(at) = self.waiting.iter().position(|waiter| waiter.deadline <= now) {
            let waiter = self.waiting.remove(at);
            self.give_up(&waiter);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiter| waiter.deadline).min()
    }

    fn take_answer(&mut self) -> Option<(Ticket, BeginResult)> {
        (!self.answers.is_empty()).then(|| self.answers.remove(0))
    }

    fn generation(&self, core: CoreId) -> u32 {
        self.cells[core].generation
    }

    fn view(&self, core: CoreId) -> InitView {
        let InitCell { state, initialiser, .. } = self.cells[core];
        let waiting = self.waiting.iter().filter(|waiter| waiter.call.core == core).count();
        InitView { state, initialiser, waiting }
    }
}

impl InitTable {
    fn set(&mut self, core: CoreId, client: ClientId, value: u32) -> InitState {
        let InitCell { state, initialiser, .. } = self.cells[core];
        let completes = value == InitState::Completed as u32
            && state == InitState::Started
            && initialiser == Some(client);
        if !completes {
            log::info!("{client} may not set {core} from {state} to state {value}");
            return state;
        }
        self.settle(core, InitState::Completed);
        InitState::Completed
    }

    fn complete(&mut self, core: CoreId, generation: u32) -> Result<InitState, SyncError> {
        let InitCell { state, generation: current, .. } = self.cells[core];
        if state != InitState::Started || current != generation {
            return Err(SyncError::InitLost { core, state });
        }
        self.settle(core, InitState::Completed);
        Ok(InitState::Completed)
    }

    /// The initialiser dropped its ticket, or never saw it.
    fn abandon(&mut self, core: CoreId) {
        if self.cells[core].state == InitState::Started {
            self.settle(core, InitState::Invalid);
        }
    }

    fn client_gone(&mut self, client: ClientId) {
        while let Some(at) = self.waiting.iter().position(|w| w.call.access.client() == client) {
            let waiter = self.waiting.remove(at);
            self.answer(waiter.ticket, Err(SyncError::Cancelled));
        }
        for core in CoreId::ALL {
            if self.cells[core].initialiser == Some(client) {
                self.abandon(core);
            }
        }
    }

    /// The core leaves STARTED, or is reset: all who waited learn its state. Except that of an
    /// INVALID core the oldest one who takes over starts, and the others of that kind go on waiting
    /// for it.
    fn settle(&mut self, core: CoreId, state: InitState) {
        self.cells[core].set(state, None);
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at) {
            let takes_over = waiter.call.takes_over && state == InitState::Invalid;
            let started = self.cells[core].state == InitState::Started;
            if waiter.call.core != core || takes_over && started {
                at += 1;
                continue;
            }
            let Waiter { ticket, call, .. } = self.waiting.remove(at);
            match takes_over {
                true => self.start(ticket, &call),
                false => self.answer(ticket, Ok(Begun { core, state, mine: None })),
            }
        }
    }

    fn start(&mut self, ticket: Ticket, call: &Begin) {
        let core = call.core;
        if call.access.check().is_err() {
            return self.answer(ticket, Err(SyncError::NotAttached));
        }
        self.cells[core].set(InitState::Started, Some(call.access.client()));
        let mine = Some(self.cells[core].generation);
        self.answer(ticket, Ok(Begun { core, state: InitState::Started, mine }));
    }

    fn give_up(&mut self, waiter: &Waiter) {
        let core = waiter.call.core;
        let state = self.cells[core].state;
        self.answer(waiter.ticket, Err(SyncError::InitTimeout { core, state }));
    }

    fn answer(&mut self, ticket: Ticket, result: BeginResult) {
        // Cannot be full: one answer for each slot of the desk.
        let _ = self.answers.push((ticket, result));
    }
}
