//! Which client may write into which core of the host (specification 05 §8.5, §14): one table of 512
//! slots over all devices, owned by one task.
//!
//! ```text
//! Reservations::claim ──call──> ReservationTask: table ──> CoreClaim
//!        │                             │ publishes            │ drop: mark and wake
//!        └ owner(core), inline <── one word a core <──────────┘
//! ```
//!
//! Whoever must know on a fast path whether a core is claimed reads one word. A claim that is given
//! up counts no more from that moment on, before the task has seen it.

mod claim;
mod cores;
mod error;
mod presence;
mod slot;
mod table;
#[cfg(test)]
mod tests;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Poll;

use axon_ports::desk::{Desk, Event};
use axon_ports::marks::Marks;
use axon_ports::{ClientId, GlobalCore};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

pub use claim::CoreClaim;
pub use cores::{CoreSet, WORDS};
pub use error::ReservationError;
pub use presence::Presence;
pub use table::MarkRequest;

use presence::Roll;
use slot::{SERIAL_MASK, Slot};
use table::Table;

use crate::gates::Lane;

/// Requests on their way at a time; they are answered at once.
const REQUESTS: usize = 16;

enum Request {
    Mark(MarkRequest),
    Unmark(ClientId, CoreSet),
    ClientGone(ClientId),
}

/// Cores that a request reserved, or gave back.
#[derive(Clone, Copy, Debug)]
struct Done {
    cores: CoreSet,
    /// Of a reservation: whose, and its number.
    reserved: Option<(ClientId, u32)>,
}

type Answer = Result<Done, ReservationError>;

/// Whoever wants to know that cores become free.
pub trait FreedCores: Send + Sync {
    /// These become free; nobody can reserve them before this returns. Must neither block nor call
    /// back.
    fn freed(&self, cores: &CoreSet);
}

pub(crate) struct Shared {
    desk: Desk<Request, Answer, REQUESTS>,
    slots: [Slot; GlobalCore::COUNT],
    roll: Mutex<CriticalSectionRawMutex, RefCell<Roll>>,
    /// Some slot was given up, or some client has left.
    news: AtomicBool,
    marks: Arc<Marks>,
    watchers: Mutex<CriticalSectionRawMutex, RefCell<Vec<Weak<dyn FreedCores>>>>,
}

impl Shared {
    fn release(&self, client: ClientId, cores: &CoreSet, serial: u32) {
        let mut any = false;
        for core in cores.iter() {
            any |= self.slots.get(core.index()).is_some_and(|slot| slot.release(client, serial));
        }
        if any {
            self.tell();
        }
    }

    fn tell(&self) {
        self.news.store(true, Ordering::Release);
        self.desk.nudge();
    }

    fn roll<R>(&self, step: impl FnOnce(&mut Roll) -> R) -> R {
        self.roll.lock(|roll| step(&mut roll.borrow_mut()))
    }
}

/// Reservation of cores over all devices of the host. Clones reach the same table.
#[derive(Clone)]
pub struct Reservations(Arc<Shared>);

/// Owns the table. While it does not run, calls wait; once it is dropped they end.
pub struct ReservationTask {
    shared: Arc<Shared>,
    table: Table,
    /// Number of the last reservation.
    serial: u32,
}

impl Reservations {
    /// Cores that a client may own unless configured otherwise: all.
    pub const DEFAULT_QUOTA: u32 = GlobalCore::COUNT as u32;

    /// Nothing is reserved. `marks` shows how many cores are.
    pub fn new(quota: u32, marks: Arc<Marks>) -> (Self, ReservationTask) {
        let shared = Arc::new(Shared {
            desk: Desk::new(),
            slots: [const { Slot::new() }; GlobalCore::COUNT],
            roll: Mutex::new(RefCell::new(Roll::new())),
            news: AtomicBool::new(false),
            marks,
            watchers: Mutex::new(RefCell::new(Vec::new())),
        });
        let task = ReservationTask { shared: shared.clone(), table: Table::new(quota), serial: 0 };
        (Reservations(shared), task)
    }

    /// Reserves the first free run in the range; the cores are free again when the claim is dropped.
    ///
    /// # Errors
    /// [`ReservationError`]: EINVAL for a range that is none, EBUSY with what could have been had.
    pub async fn claim(&self, request: MarkRequest) -> Result<CoreClaim, ReservationError> {
        self.0.roll(|roll| roll.claims(request.client));
        let done = self.0.desk.call(Request::Mark(request)).await??;
        let serial = done.reserved.map_or(0, |(_, serial)| serial);
        Ok(CoreClaim::new(self.0.clone(), request.client, done.cores, serial))
    }

    /// `CRWL_NC_RANGE_MARK`: reserves until the cores are unmarked or the client ends. Answers the
    /// cores, counted from the device's first.
    ///
    /// # Errors
    /// As [`Reservations::claim`].
    pub async fn mark(&self, request: MarkRequest) -> Result<CoreSet, ReservationError> {
        self.0.roll(|roll| roll.claims(request.client));
        let done = self.0.desk.call(Request::Mark(request)).await??;
        Ok(done.cores.relative_to(request.base))
    }

    /// `CRWL_NC_RANGE_UNMARK`: of `cores`, counted from the device's first core `base`, those that
    /// the client owns become free; others are ignored.
    ///
    /// # Errors
    /// [`ReservationError::Stopped`].
    pub async fn unmark(
        &self,
        client: ClientId,
        base: u32,
        cores: &CoreSet,
    ) -> Result<(), ReservationError> {
        let cores = cores.absolute_from(base);
        self.0.desk.call(Request::Unmark(client, cores)).await??;
        Ok(())
    }

    /// Counts a handle of a client, on any device, for as long as the answer lives: with its last
    /// one its reservations end.
    ///
    /// # Errors
    /// [`ReservationError::NoRecords`].
    pub fn enter(&self, client: ClientId, lane: Lane) -> Result<Presence, ReservationError> {
        Presence::new(&self.0, client, lane)
    }

    /// The client ended, on all devices: everything that it owns is free.
    pub async fn client_gone(&self, client: ClientId) {
        // A table that is gone has no owners.
        let _ = self.0.desk.call(Request::ClientGone(client)).await;
    }

    /// Tells `watcher`, as long as it lives, of every core that becomes free.
    ///
    /// # Errors
    /// [`ReservationError::NoRecords`].
    pub fn watch(&self, watcher: Weak<dyn FreedCores>) -> Result<(), ReservationError> {
        self.0.watchers.lock(|list| {
            let mut list = list.borrow_mut();
            list.retain(|there| there.strong_count() > 0);
            list.try_reserve(1).map_err(|_| ReservationError::NoRecords)?;
            list.push(watcher);
            Ok(())
        })
    }

    /// Who owns a core, now.
    pub fn owner(&self, core: GlobalCore) -> Option<ClientId> {
        self.0.slots.get(core.index())?.owner()
    }

    /// Whether `client` owns a core, now.
    #[inline]
    pub fn is_owned_by(&self, core: GlobalCore, client: ClientId) -> bool {
        self.0.slots[core.index() % GlobalCore::COUNT].is_owned_by(client)
    }

    /// Reserved cores of the host, now.
    pub fn count(&self) -> u32 {
        self.0.marks.count()
    }

    /// Ends the task; waiting calls end in [`ReservationError::Stopped`].
    pub fn stop(&self) {
        self.0.desk.close();
    }
}

impl ReservationTask {
    /// Runs until [`Reservations::stop`].
    pub async fn run(mut self) {
        while let Some(turn) = self.next_turn().await {
            self.collect();
            match turn {
                Turn::Event(Event::Request(ticket, request)) => {
                    let answer = self.serve(request);
                    self.shared.desk.answer(ticket, answer);
                }
                Turn::Event(Event::Uncollected(Ok(Done {
                    cores,
                    reserved: Some((client, serial)),
                }))) => {
                    self.shared.release(client, &cores, serial);
                    self.collect();
                }
                Turn::Event(_) | Turn::News => {}
            }
        }
    }

    /// `None` once the desk is closed.
    async fn next_turn(&self) -> Option<Turn> {
        poll_fn(|cx| {
            if self.shared.desk.is_closed() {
                return Poll::Ready(None);
            }
            match self.shared.desk.poll_next(cx) {
                Poll::Ready(event) => Poll::Ready(Some(Turn::Event(event))),
                Poll::Pending if self.shared.news.load(Ordering::Acquire) => {
                    Poll::Ready(Some(Turn::News))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn serve(&mut self, request: Request) -> Answer {
        match request {
            Request::Mark(request) => self.mark(&request),
            Request::Unmark(client, cores) => Ok(self.unmark(client, &cores)),
            Request::ClientGone(client) => Ok(self.unmark(client, &self.table.owned_by(client))),
        }
    }

    fn mark(&mut self, request: &MarkRequest) -> Answer {
        let cores = self.table.mark(request)?;
        self.serial = self.serial.wrapping_add(1) & SERIAL_MASK;
        let slots = cores.iter().filter_map(|core| self.shared.slots.get(core.index()));
        slots.for_each(|slot| slot.take(request.client, self.serial));
        self.shared.marks.reserved(self.table.count());
        Ok(Done { cores, reserved: Some((request.client, self.serial)) })
    }

    /// What the client owns of `cores` becomes free.
    fn unmark(&mut self, client: ClientId, cores: &CoreSet) -> Done {
        let owned = self.table.owned_by(client);
        let freed = cores.iter().filter(|core| owned.contains(*core)).collect();
        self.free(&freed);
        Done { cores: freed, reserved: None }
    }

    /// What claims gave up, and what clients that left still owned, becomes free.
    fn collect(&mut self) {
        if !self.shared.news.swap(false, Ordering::AcqRel) {
            return;
        }
        let slots = GlobalCore::all().zip(&self.shared.slots);
        let mut freed: CoreSet =
            slots.filter(|(_, slot)| slot.is_released()).map(|(core, _)| core).collect();
        while let Some(client) = self.shared.roll(Roll::take_left) {
            self.table.owned_by(client).iter().for_each(|core| freed.insert(core));
        }
        self.free(&freed);
    }

    /// Says so once, and only where something has become free.
    fn free(&mut self, cores: &CoreSet) {
        if cores.is_empty() {
            return;
        }
        self.shared.watchers.lock(|list| {
            let list = list.borrow();
            list.iter().filter_map(Weak::upgrade).for_each(|watcher| watcher.freed(cores));
        });
        self.table.free(cores);
        let slots = cores.iter().filter_map(|core| self.shared.slots.get(core.index()));
        slots.for_each(Slot::clear);
        self.shared.marks.given_back(self.table.count());
    }
}

impl Drop for ReservationTask {
    fn drop(&mut self) {
        self.shared.desk.close();
    }
}

enum Turn {
    Event(Event<Request, Answer>),
    /// Claims were given up, or clients have left.
    News,
}
