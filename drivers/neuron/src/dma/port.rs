//! The way into a ring: who may stage, who waits, who is refused (specification 03 §7.3, §7.8).

use alloc::boxed::Box;
use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::Waker;

use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::ring::{MAX_DATA, Ring};
use crate::Error;
use crate::wake::{Queue, Ticket};

/// One host-transfer queue of the device, with or without a ring.
#[derive(Default)]
pub(crate) struct Port {
    ring: Option<Box<Ring>>,
    /// Work is taken: there is a ring and nothing below speaks against it.
    open: bool,
    /// A reset is under way, or the first one has not ended.
    held: bool,
    /// The ring drains after a fault.
    draining: bool,
    /// Why no work is taken any more.
    refused: Option<Error>,
    queue: Queue,
    /// Rings that were taken out.
    tenancy: u32,
    /// First marker value of the next ring, where there was one before: no two batches of a port
    /// ever have the same.
    next_value: Option<u32>,
}

impl Port {
    /// A port without a ring, of a device in reset.
    pub(crate) fn in_reset() -> Self {
        Port { held: true, ..Port::default() }
    }

    /// Whether a reset holds the port.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// The ring, where a batch of `data` data descriptors may be staged on it now. `ticket` is the
    /// place in the queue.
    #[inline(always)]
    pub(crate) fn admit(&mut self, data: u32, ticket: Option<Ticket>) -> Option<&mut Ring> {
        if !self.open || !self.queue.is_turn(ticket) {
            return None;
        }
        self.ring.as_deref_mut().filter(|ring| ring.has_room(data))
    }

    /// Stages a barrier for memory that waits for one, where work is taken and there is room: it is
    /// short, and nobody's turn. Answers whether one was staged.
    pub(crate) fn stage_barrier(&mut self, has_strong_order: bool) -> bool {
        let ring = self.ring.as_deref_mut().filter(|ring| self.open && ring.has_room(1));
        ring.is_some_and(|ring| ring.stage_barrier(has_strong_order))
    }

    /// Why nothing will be staged any more, however long one waits.
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.refused.or_else(|| {
            let ring = self.ring.as_deref().filter(|ring| ring.is_choked())?;
            let (engine, queue) = (ring.name.engine, ring.name.queue);
            Some(Error::QuarantineFull { engine, queue })
        })
    }

    /// Another number where the ring is no longer the one that it was.
    pub(crate) fn tenancy(&self) -> u32 {
        self.tenancy
    }

    /// Queues a task until work may be staged.
    pub(crate) fn wait(&mut self, ticket: Option<Ticket>, waker: &Waker) -> Result<Ticket, Error> {
        self.queue.wait(ticket, waker)
    }

    /// Gives a place in the queue up; the next one is called.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        let was_turn = self.queue.is_turn(Some(ticket));
        self.queue.leave(ticket);
        if was_turn {
            self.call();
        }
    }

    /// Calls the task whose turn it is: there is room, or the answer has changed.
    #[inline]
    pub(crate) fn call(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        if self.refused.is_some() {
            self.queue.call_all();
        } else if self.open {
            self.queue.call();
        }
    }

    /// Whether somebody waits although the ring has room for any batch: it was called and has not
    /// come. Called again, it loses its place to the next.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        let has_room = |ring: &Ring| ring.has_room(MAX_DATA as u32);
        !self.queue.is_empty() && self.open && self.ring.as_deref().is_some_and(has_room)
    }

    /// The ring, if one is bound.
    #[inline]
    pub(crate) fn ring(&mut self) -> Option<&mut Ring> {
        self.ring.as_deref_mut()
    }

    /// Binds a ring.
    pub(crate) fn bind(&mut self, mut ring: Box<Ring>) {
        if let Some(value) = self.next_value {
            ring.next_value = value;
        }
        self.ring = Some(ring);
        self.decide();
    }

    /// Takes the ring out; every batch on it has ended and every failure was collected.
    pub(crate) fn unbind(&mut self) -> Option<Box<Ring>> {
        let ring = self.ring.take();
        self.tenancy = self.tenancy.wrapping_add(1);
        self.next_value = ring.as_deref().map_or(self.next_value, |ring| Some(ring.next_value));
        self.decide();
        ring
    }

    /// New work waits from now on, or no longer.
    pub(crate) fn set_held(&mut self, held: bool) {
        self.held = held;
        self.decide();
    }

    /// The ring drains after a fault, or no longer.
    pub(crate) fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
        self.decide();
    }

    /// New work is refused from now on, or no longer.
    pub(crate) fn set_refused(&mut self, refused: Option<Error>) {
        self.refused = refused;
        self.decide();
    }

    /// Why new work is refused.
    pub(crate) fn refused(&self) -> Option<Error> {
        self.refused
    }

    fn decide(&mut self) {
        self.open = self.ring.is_some() && !self.held && !self.draining && self.refused.is_none();
        self.call();
    }
}

/// A port behind a lock that is held within one poll only.
pub(crate) struct PortCell {
    port: Mutex<CriticalSectionRawMutex, RefCell<Port>>,
    /// Copies that were made and have nothing staged yet. The last of them rings for all. One that
    /// is leaked stays counted; then the completion task rings.
    unstaged: AtomicU32,
}

impl PortCell {
    pub(crate) const fn new(port: Port) -> Self {
        PortCell { port: Mutex::new(RefCell::new(port)), unstaged: AtomicU32::new(0) }
    }

    /// A copy was made.
    #[inline]
    pub(crate) fn note_made(&self) {
        self.unstaged.fetch_add(1, Ordering::Relaxed);
    }

    /// A copy is about to be staged, or will never be; answers whether no other is left to stage.
    #[inline]
    pub(crate) fn note_staged(&self) -> bool {
        self.unstaged.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Works on the port. `work` does not come back here.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Port) -> R) -> R {
        self.port.lock(|port| work(&mut port.borrow_mut()))
    }
}
