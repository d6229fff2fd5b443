//! The owner of a table of cores: takes calls from a desk and releases from cells, lets the table
//! decide, delivers answers and publishes what the cores look like.
//!
//! The same loop serves the locks and the init states; the tables are plain data and know neither
//! tasks nor clocks.

use core::cell::Cell;
use core::future::{pending, poll_fn};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::task::{Context, Poll};

use axon_platform::{Clock, Instant};
use axon_ports::desk::{Closed, Desk, Event, Ticket};
use axon_ports::{CoreId, CoreMap};
use embassy_futures::select::{Either, select};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::cell::{ReleaseCell, Released};
use super::per_core::PerCore;

/// Calls that can wait at a time, over all cores; more wait for a place first.
pub(super) const CALLS: usize = 64;
/// Steps on their way at a time; they are answered at once.
const STEPS: usize = 16;

/// What an owner owns.
pub(super) trait Table {
    /// A request that may have to wait.
    type Call;
    type Answer;
    /// A request that never waits.
    type Step;
    type StepAnswer;
    /// What anybody may see of a core at any time.
    type View: Copy;

    /// A core that nothing has happened to.
    const UNTOUCHED: Self::View;

    fn new() -> Self;

    /// A call arrives.
    fn call(&mut self, ticket: Ticket, call: Self::Call, now: Instant);

    /// The caller of a waiting call has gone.
    fn cancel(&mut self, ticket: Ticket);

    /// A caller had gone before it saw its answer: what it granted is taken back.
    fn uncollected(&mut self, answer: Self::Answer);

    fn step(&mut self, step: Self::Step) -> Self::StepAnswer;

    /// What the guards of a core gave up.
    fn release(&mut self, core: CoreId, released: Released);

    /// A reset of the core was submitted.
    fn reset(&mut self, core: CoreId);

    /// Calls that have waited long enough give up.
    fn expire(&mut self, now: Instant);

    /// When [`Self::expire`] has something to do.
    fn next_deadline(&self) -> Option<Instant>;

    /// The next answer to deliver.
    fn take_answer(&mut self) -> Option<(Ticket, Self::Answer)>;

    /// Guards of another generation have lost their hold on the core.
    fn generation(&self, core: CoreId) -> u32;

    fn view(&self, core: CoreId) -> Self::View;
}

/// What callers, guards and the owner's loop share.
pub(super) struct Owner<T: Table> {
    calls: Desk<T::Call, T::Answer, CALLS>,
    steps: Desk<T::Step, T::StepAnswer, STEPS>,
    cells: PerCore<ReleaseCell>,
    /// Cores whose reset was submitted.
    resets: AtomicU32,
    /// Some cell holds something, or some core was reset.
    news: AtomicBool,
    views: Mutex<CriticalSectionRawMutex, Cell<PerCore<T::View>>>,
}

impl<T: Table> Owner<T> {
    pub(super) fn new() -> Self {
        Owner {
            calls: Desk::new(),
            steps: Desk::new(),
            cells: PerCore::new(|_| ReleaseCell::new()),
            resets: AtomicU32::new(0),
            news: AtomicBool::new(false),
            views: Mutex::new(Cell::new(PerCore::new(|_| T::UNTOUCHED))),
        }
    }

    pub(super) async fn call(&self, call: T::Call) -> Result<T::Answer, Closed> {
        self.calls.call(call).await
    }

    pub(super) async fn step(&self, step: T::Step) -> Result<T::StepAnswer, Closed> {
        self.steps.call(step).await
    }

    pub(super) fn view(&self, core: CoreId) -> T::View {
        self.views.lock(Cell::get)[core]
    }

    /// Guard: gives something up; answers whether it still had it. Never blocks.
    pub(super) fn release(&self, core: CoreId, give_up: impl Fn(&ReleaseCell) -> bool) -> bool {
        let held = give_up(&self.cells[core]);
        if held {
            self.tell();
        }
        held
    }

    /// A reset of these cores was submitted. Never blocks.
    pub(super) fn reset(&self, map: CoreMap) {
        self.resets.fetch_or(map.0, Ordering::AcqRel);
        self.tell();
    }

    fn tell(&self) {
        self.news.store(true, Ordering::Release);
        self.calls.nudge();
    }

    /// Nothing is taken any more; the loop ends.
    pub(super) fn close(&self) {
        self.calls.close();
        self.steps.close();
    }

    /// Runs until it is closed.
    pub(super) async fn serve(&self, clock: &impl Clock) {
        let mut table = T::new();
        loop {
            let turn = poll_fn(|cx| self.poll_turn(cx));
            match select(turn, until(clock, table.next_deadline())).await {
                Either::First(Turn::End) => return,
                Either::First(turn) => self.take(&mut table, turn, clock),
                Either::Second(()) => table.expire(clock.now()),
            }
            self.publish(&table);
            while let Some((ticket, answer)) = table.take_answer() {
                self.calls.answer(ticket, answer);
            }
        }
    }

    /// Calls come before steps: the end of a client is seen after all that it left on the desk.
    fn poll_turn(&self, cx: &mut Context<'_>) -> Poll<Turn<T>> {
        if self.calls.is_closed() {
            return Poll::Ready(Turn::End);
        }
        if let Poll::Ready(event) = self.calls.poll_next(cx) {
            return Poll::Ready(Turn::Call(event));
        }
        if self.news.load(Ordering::Acquire) {
            return Poll::Ready(Turn::News);
        }
        self.steps.poll_next(cx).map(Turn::Step)
    }

    /// Whatever the turn brings, what was told one-way before it comes first.
    fn take(&self, table: &mut T, turn: Turn<T>, clock: &impl Clock) {
        if self.news.swap(false, Ordering::AcqRel) {
            let resets = CoreMap(self.resets.swap(0, Ordering::AcqRel));
            for core in CoreId::ALL {
                table.release(core, self.cells[core].take());
                if resets.contains(core) {
                    table.reset(core);
                }
            }
        }
        match turn {
            Turn::Call(Event::Request(ticket, call)) => table.call(ticket, call, clock.now()),
            Turn::Call(Event::Cancelled(ticket)) => table.cancel(ticket),
            Turn::Call(Event::Uncollected(answer)) => table.uncollected(answer),
            Turn::Step(Event::Request(ticket, step)) => {
                let answer = table.step(step);
                self.publish(table);
                self.steps.answer(ticket, answer);
            }
            Turn::Step(_) | Turn::News | Turn::End => {}
        }
    }

    /// Before any answer is delivered: a guard must find its generation in the cell, and whoever
    /// got an answer must see what it tells.
    fn publish(&self, table: &T) {
        for core in CoreId::ALL {
            if !self.cells[core].is_current(table.generation(core)) {
                self.cells[core].begin(table.generation(core));
            }
        }
        self.views.lock(|views| views.set(PerCore::new(|core| table.view(core))));
    }
}

enum Turn<T: Table> {
    Call(Event<T::Call, T::Answer>),
    Step(Event<T::Step, T::StepAnswer>),
    /// Guards gave something up, or cores were reset.
    News,
    End,
}

async fn until(clock: &impl Clock, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => clock.sleep_until(deadline).await,
        None => pending().await,
    }
}
