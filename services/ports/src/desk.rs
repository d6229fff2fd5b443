//! A desk: where requests for the task that owns some state are left, and answers are picked up.
//!
//! A bounded mailbox with its reply slots built in: no heap, and a request that waits keeps its
//! slot. Callers [`Desk::call`]; the owner takes [`Event`]s, oldest first, and answers each
//! [`Ticket`] once, at once or much later.
//!
//! Dropping a call at any point is sound and never blocks: what the owner has not seen yet
//! disappears; what it has in hand comes back as [`Event::Cancelled`]; an answer that was not picked
//! up comes back as [`Event::Uncollected`], so that what it granted can be taken back.

use core::cell::RefCell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};

use axon_platform::Errno;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::waitqueue::{MultiWakerRegistration, WakerRegistration};
use heapless::Deque;

/// The owner of the desk has ended; nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl Closed {
    /// Always [`Errno::ENODEV`]: owners end with their device.
    pub const fn errno(self) -> Errno {
        Errno::ENODEV
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the task behind the request has ended")
    }
}

impl core::error::Error for Closed {}

/// Names one request between its arrival and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(u16);

/// What an owner finds on its desk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<Q, R> {
    /// A request; the ticket takes one answer.
    Request(Ticket, Q),
    /// The caller of a request in hand has gone: forget it. The ticket takes no answer.
    Cancelled(Ticket),
    /// The caller had gone before it saw its answer.
    Uncollected(R),
}

enum Slot<Q, R> {
    Free,
    /// Left by the caller; in `order`.
    Asked(Q, WakerRegistration),
    /// Left by a caller that has gone; in `order`.
    Withdrawn,
    /// With the owner.
    InHand(WakerRegistration),
    /// In hand, and the caller has gone; in `order`.
    Cancelled,
    Answered(R),
    /// Answered, and the caller has gone; in `order`.
    Uncollected(R),
}

struct State<Q, R, const N: usize> {
    slots: [Slot<Q, R>; N],
    /// Slots that hold something for the owner, oldest first; each at most once.
    order: Deque<u16, N>,
    owner: WakerRegistration,
    /// Callers without a slot.
    senders: MultiWakerRegistration<N>,
    closed: bool,
}

impl<Q, R, const N: usize> State<Q, R, N> {
    /// Puts `value` into a slot and answers what was there.
    fn put(&mut self, index: u16, value: Slot<Q, R>) -> Slot<Q, R> {
        match self.slots.get_mut(usize::from(index)) {
            Some(slot) => core::mem::replace(slot, value),
            None => Slot::Free,
        }
    }

    fn tell_owner(&mut self, index: u16) {
        // Cannot be full: a slot is in `order` at most once.
        let _ = self.order.push_back(index);
        self.owner.wake();
    }

    /// Gives the request back where there is no slot for it.
    fn place(&mut self, request: Q, cx: &Context<'_>) -> Result<u16, Q> {
        if self.closed {
            return Err(request);
        }
        let Some(index) = self.slots.iter().position(|slot| matches!(slot, Slot::Free)) else {
            self.senders.register(cx.waker());
            return Err(request);
        };
        let index = index as u16;
        let mut waker = WakerRegistration::new();
        waker.register(cx.waker());
        self.put(index, Slot::Asked(request, waker));
        self.tell_owner(index);
        Ok(index)
    }

    fn take_event(&mut self) -> Option<Event<Q, R>> {
        loop {
            let index = self.order.pop_front()?;
            match self.put(index, Slot::Free) {
                Slot::Asked(request, waker) => {
                    self.put(index, Slot::InHand(waker));
                    return Some(Event::Request(Ticket(index), request));
                }
                Slot::Cancelled => {
                    self.senders.wake();
                    return Some(Event::Cancelled(Ticket(index)));
                }
                Slot::Uncollected(answer) => {
                    self.senders.wake();
                    return Some(Event::Uncollected(answer));
                }
                Slot::Withdrawn | Slot::Free => self.senders.wake(),
                // Never in `order`.
                other => _ = self.put(index, other),
            }
        }
    }

    fn answer(&mut self, index: u16, answer: R) {
        match self.put(index, Slot::Free) {
            Slot::InHand(mut waker) => {
                self.put(index, Slot::Answered(answer));
                waker.wake();
            }
            Slot::Cancelled => _ = self.put(index, Slot::Uncollected(answer)),
            // Not in hand: nobody waits for it.
            other => _ = self.put(index, other),
        }
    }

    fn collect(&mut self, index: u16, cx: &Context<'_>) -> Poll<Result<R, Closed>> {
        match self.put(index, Slot::Free) {
            Slot::Answered(answer) => {
                self.senders.wake();
                Poll::Ready(Ok(answer))
            }
            mut waiting @ (Slot::Asked(..) | Slot::InHand(_)) if !self.closed => {
                if let Slot::Asked(_, waker) | Slot::InHand(waker) = &mut waiting {
                    waker.register(cx.waker());
                }
                self.put(index, waiting);
                Poll::Pending
            }
            _ => Poll::Ready(Err(Closed)),
        }
    }

    /// The caller of a slot has gone; answers what must be dropped outside the lock.
    fn abandon(&mut self, index: u16) -> Option<Slot<Q, R>> {
        let left = match self.put(index, Slot::Free) {
            asked @ Slot::Asked(..) => {
                self.put(index, Slot::Withdrawn);
                return Some(asked);
            }
            Slot::InHand(_) if !self.closed => Slot::Cancelled,
            Slot::Answered(answer) if !self.closed => Slot::Uncollected(answer),
            other => return Some(other),
        };
        self.put(index, left);
        self.tell_owner(index);
        None
    }
}

/// A desk with `N` slots for requests of kind `Q` with answers of kind `R`.
pub struct Desk<Q, R, const N: usize> {
    state: Mutex<CriticalSectionRawMutex, RefCell<State<Q, R, N>>>,
}

impl<Q, R, const N: usize> Desk<Q, R, N> {
    /// An empty desk.
    pub const fn new() -> Self {
        const { assert!(N > 0 && N <= u16::MAX as usize) };
        Desk {
            state: Mutex::new(RefCell::new(State {
                slots: [const { Slot::Free }; N],
                order: Deque::new(),
                owner: WakerRegistration::new(),
                senders: MultiWakerRegistration::new(),
                closed: false,
            })),
        }
    }

    /// Leaves a request and waits for its answer. Waits for a slot where all are taken.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn call(&self, request: Q) -> Call<'_, Q, R, N> {
        Call { desk: self, stage: Stage::Unplaced(request) }
    }

    /// Owner: the oldest thing on the desk.
    pub fn next(&self) -> impl Future<Output = Event<Q, R>> {
        poll_fn(|cx| self.poll_next(cx))
    }

    /// Owner: the oldest thing on the desk, for owners that watch several.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Event<Q, R>> {
        self.with(|state| match state.take_event() {
            Some(event) => Poll::Ready(event),
            None => {
                state.owner.register(cx.waker());
                Poll::Pending
            }
        })
    }

    /// Owner: answers a request in hand. Where its caller has gone, the answer comes back as
    /// [`Event::Uncollected`] in place of the cancellation.
    pub fn answer(&self, ticket: Ticket, answer: R) {
        self.with(|state| state.answer(ticket.0, answer));
    }

    /// Wakes the owner although nothing is on the desk: it looks after something else too.
    pub fn nudge(&self) {
        self.with(|state| state.owner.wake());
    }

    /// Nothing is taken any more, and the owner is woken to end. Requests without an answer end in
    /// [`Closed`]; answers that are there can still be picked up.
    pub fn close(&self) {
        self.with(|state| {
            state.closed = true;
            state.owner.wake();
            state.senders.wake();
            for slot in &mut state.slots {
                if let Slot::InHand(waker) | Slot::Asked(_, waker) = slot {
                    waker.wake();
                }
            }
        });
        // What nobody will see is dropped outside the lock, which it may want to take itself.
        while let Some(event) = self.with(State::take_event) {
            drop(event);
        }
    }

    /// Whether the desk was closed: the owner may end.
    pub fn is_closed(&self) -> bool {
        self.with(|state| state.closed)
    }

    fn with<T>(&self, step: impl FnOnce(&mut State<Q, R, N>) -> T) -> T {
        self.state.lock(|state| step(&mut state.borrow_mut()))
    }
}

impl<Q, R, const N: usize> Default for Desk<Q, R, N> {
    fn default() -> Self {
        Self::new()
    }
}

enum Stage<Q> {
    Unplaced(Q),
    Placed(u16),
    Done,
}

/// A request on its way, or waiting for its answer. Dropping it takes it back.
#[must_use = "a call does nothing before it is awaited"]
pub struct Call<'d, Q, R, const N: usize> {
    desk: &'d Desk<Q, R, N>,
    stage: Stage<Q>,
}

/// Nothing in a call is pinned: requests and answers are moved in and out.
impl<Q, R, const N: usize> Unpin for Call<'_, Q, R, N> {}

impl<Q, R, const N: usize> Future for Call<'_, Q, R, N> {
    type Output = Result<R, Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let desk = self.desk;
        match core::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Unplaced(request) => {
                let (placed, closed) = desk.with(|state| (state.place(request, cx), state.closed));
                self.stage = match placed {
                    Ok(index) => Stage::Placed(index),
                    Err(_) if closed => return Poll::Ready(Err(Closed)),
                    Err(request) => Stage::Unplaced(request),
                };
                Poll::Pending
            }
            Stage::Placed(index) => {
                let answer = desk.with(|state| state.collect(index, cx));
                if answer.is_pending() {
                    self.stage = Stage::Placed(index);
                }
                answer
            }
            Stage::Done => Poll::Pending,
        }
    }
}

impl<Q, R, const N: usize> Drop for Call<'_, Q, R, N> {
    fn drop(&mut self) {
        if let Stage::Placed(index) = self.stage {
            // What comes back is dropped here, outside the lock.
            let _unseen = self.desk.with(|state| state.abandon(index));
        }
    }
}

#[cfg(test)]
mod tests;
