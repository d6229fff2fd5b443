//! The pod task: one for a host whose devices belong to an UltraServer or a switched pod.
//!
//! It keeps serving while an election runs: the election is a future beside its desk. Whatever ends
//! an election early sets a flag that the election looks at wherever it waits, so that it always
//! gives its links back and leaves its words in order.

use core::future::{pending, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll};

use alloc::sync::Arc;

use axon_platform::{Clock, Instant};
use axon_ports::desk::{Event, Ticket};
use embassy_futures::select::{Either, select};
use heapless::Vec;

use crate::config::{ControlBits, PodKind};
use crate::election::{Election, Start};
use crate::error::{ElectionError, PodError};
use crate::handle::{Answer, REQUESTS, Request, Shared};
use crate::machine::{Action, Machine};
use crate::switched::Location;
use crate::wires::{NeighbourWords, OwnWords, PodDevice, WireError};
use crate::words::{Elected, join, offset};

/// Serves [`crate::Pod`]. While it does not run, requests wait; once it is dropped they end.
pub struct PodTask<W, C> {
    desk: DeskSide,
    machine: Machine,
    words: W,
    clock: C,
}

impl<W: OwnWords + NeighbourWords, C: Clock> PodTask<W, C> {
    pub(crate) fn new(shared: Arc<Shared>, machine: Machine, words: W, clock: C) -> Self {
        let seen_emptied = shared.marks.emptied();
        PodTask { desk: DeskSide { shared, seen_emptied }, machine, words, clock }
    }

    /// Runs until [`crate::Pod::stop`]; an election that is under way is ended properly first.
    pub async fn run(mut self) {
        loop {
            self.desk.publish(&self.machine);
            let turn = self.desk.next_turn(&self.clock, self.machine.deadline()).await;
            let mut pending = Pending::default();
            match take(&mut self.desk, &mut self.machine, &self.words, &self.clock, turn) {
                Taken::Served => {}
                Taken::Leaving(ticket) => self.desk.shared.desk.answer(ticket, Ok(())),
                Taken::Start(start) => self.elect(start, &mut pending).await,
                Taken::Cancel => {}
                Taken::Stop => break,
            }
        }
        self.machine.settle(Err(ElectionError::Cancelled));
        self.desk.publish(&self.machine);
    }

    /// One election, to its end.
    async fn elect(&mut self, start: Start, pending: &mut Pending) {
        let PodTask { desk, machine, words, clock } = self;
        let cancel = AtomicBool::new(false);
        let mut election = pin!(Election::new(&*words, &*clock, &cancel, start).run());
        let result = loop {
            desk.publish(machine);
            let turn = match select(election.as_mut(), desk.next_turn(clock, None)).await {
                Either::First(result) => break result,
                Either::Second(turn) => turn,
            };
            if let Turn::Desk(Event::Cancelled(ticket)) = turn {
                pending.retain(|waiting| *waiting != ticket);
            }
            match take(desk, machine, words, clock, turn) {
                Taken::Served | Taken::Start(_) => continue,
                Taken::Leaving(ticket) => _ = pending.push(ticket),
                Taken::Cancel => {}
                Taken::Stop => {
                    cancel.store(true, Ordering::Release);
                    break election.await;
                }
            }
            cancel.store(true, Ordering::Release);
        };
        machine.settle(result);
        desk.publish(machine);
        pending.iter().for_each(|ticket| desk.shared.desk.answer(*ticket, Ok(())));
    }
}

impl Drop for DeskSide {
    fn drop(&mut self) {
        self.shared.desk.close();
    }
}

/// Devices that wait for the end of an election before they go.
type Pending = Vec<Ticket, REQUESTS>;

/// The task's side of what it shares with handles.
struct DeskSide {
    shared: Arc<Shared>,
    /// How often the count of marks had returned to zero when it was last looked at.
    seen_emptied: u32,
}

enum Turn {
    Desk(Event<Request, Answer>),
    /// Resets of devices have ended.
    Resets,
    /// No core is reserved any more.
    Emptied,
    Deadline,
    Stop,
}

impl DeskSide {
    fn publish(&self, machine: &Machine) {
        self.shared.status.lock(|status| status.set(machine.status()));
    }

    async fn next_turn(&mut self, clock: &impl Clock, deadline: Option<Instant>) -> Turn {
        match select(poll_fn(|cx| self.poll_turn(cx)), until(clock, deadline)).await {
            Either::First(turn) => turn,
            Either::Second(()) => Turn::Deadline,
        }
    }

    /// What was told one-way comes first: a mode that ended is gone before the next one is set.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let shared = &self.shared;
        if shared.desk.is_closed() {
            return Poll::Ready(Turn::Stop);
        }
        if shared.marks.poll_emptied(&mut self.seen_emptied, cx).is_ready() {
            return Poll::Ready(Turn::Emptied);
        }
        if shared.resets.is_pending() {
            return Poll::Ready(Turn::Resets);
        }
        shared.desk.poll_next(cx).map(Turn::Desk)
    }
}

/// What a turn leads to.
enum Taken {
    /// Done.
    Served,
    /// A device may go as soon as no election runs.
    Leaving(Ticket),
    Start(Start),
    Cancel,
    Stop,
}

fn take<W: OwnWords>(
    desk: &mut DeskSide,
    machine: &mut Machine,
    words: &W,
    clock: &impl Clock,
    turn: Turn,
) -> Taken {
    let now = clock.now();
    let (ticket, request) = match turn {
        Turn::Desk(Event::Request(ticket, request)) => (ticket, request),
        Turn::Resets => return take_resets(desk, machine, words, now),
        Turn::Emptied => {
            machine.marks_emptied();
            return Taken::Served;
        }
        Turn::Deadline => {
            machine.expire(now);
            return Taken::Served;
        }
        Turn::Stop => return Taken::Stop,
        Turn::Desk(Event::Cancelled(_) | Event::Uncollected(_)) => return Taken::Served,
    };
    let answer = match request {
        Request::Leave(device, why) => {
            if machine.device_leaves(device, why) {
                return Taken::Leaving(ticket);
            }
            Ok(Action::Nothing)
        }
        Request::Control(control) => machine.control(control, desk.shared.marks.count(), now),
    };
    let (taken, answer): (Taken, Result<(), PodError>) = match answer {
        Ok(action) => (action.into(), Ok(())),
        Err(error) => (Taken::Served, Err(error)),
    };
    // Whoever has its answer sees the state that the request has led to.
    desk.publish(machine);
    desk.shared.desk.answer(ticket, answer);
    taken
}

fn take_resets<W: OwnWords>(
    desk: &DeskSide,
    machine: &mut Machine,
    words: &W,
    now: Instant,
) -> Taken {
    let mut taken = Taken::Served;
    while let Some((device, ok)) = desk.shared.resets.take() {
        if !ok {
            machine.device_failed(device);
            continue;
        }
        let found = match device {
            PodDevice::PRIMARY => find(words, machine),
            _ => None,
        };
        if let Action::Start(start) = machine.device_ready(device, found, now) {
            taken = Taken::Start(start);
        }
    }
    taken
}

/// What device 0 says about the node after its reset.
fn find(words: &impl OwnWords, machine: &Machine) -> Option<Elected> {
    let found = match machine.config().kind {
        PodKind::Links => find_election(words, machine.config().control),
        PodKind::Switch => {
            Location::read(words).map(|location| Some(location.resolve(machine.config())))
        }
    };
    found.unwrap_or_else(|error| {
        log::warn!("the pod words of device 0 cannot be read: {error}");
        None
    })
}

/// What an earlier start has left in MiscRAM.
fn find_election(
    words: &impl OwnWords,
    control: ControlBits,
) -> Result<Option<Elected>, WireError> {
    const PRIMARY: PodDevice = PodDevice::PRIMARY;
    if control.has(ControlBits::CLEAR) {
        for at in (offset::NEIGHBOURS..=offset::POD_SERIAL_LOW).step_by(4) {
            words.write_own(PRIMARY, at, 0)?;
        }
    }
    let status = words.read_own(PRIMARY, offset::ELECTION_STATUS)?;
    let high = words.read_own(PRIMARY, offset::POD_SERIAL_HIGH)?;
    let low = words.read_own(PRIMARY, offset::POD_SERIAL_LOW)?;
    Ok(Elected::cached(status, join(high, low)))
}

impl From<Action> for Taken {
    fn from(action: Action) -> Self {
        match action {
            Action::Nothing => Taken::Served,
            Action::Start(start) => Taken::Start(start),
            Action::Cancel => Taken::Cancel,
        }
    }
}

async fn until(clock: &impl Clock, deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => clock.sleep_until(deadline).await,
        None => pending().await,
    }
}
