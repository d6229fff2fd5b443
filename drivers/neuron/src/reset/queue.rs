//! Reset requests: from submission until their result is collected (specification 05 §11.1, §11.3,
//! §11.9).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};

use axon_ports::reset::{Requester, ResetRequest};
use axon_ports::{ClientId, CoreMap};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::waitqueue::AtomicWaker;

use crate::wake::WakerList;
use crate::{CancelCause, Error};

/// Requests of one client that may be queued, running or uncollected.
const UNCOLLECTED: usize = 16;

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// The place is free.
    Free,
    /// Waits for the next drive.
    Waiting,
    /// Part of the drive that runs.
    Driving,
    /// Over.
    Done(Result<(), Error>),
}

struct Entry {
    id: u32,
    request: ResetRequest,
    progress: Progress,
    /// Tickets that name it.
    tickets: u32,
    collected: bool,
    waiting: WakerList,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    last_id: u32,
    closed: bool,
}

/// All requests of a device.
pub(crate) struct ResetQueue {
    state: Mutex<CriticalSectionRawMutex, RefCell<State>>,
    task: AtomicWaker,
    /// What [`axon_platform::Platform::cycles`] said when firmware was last asked.
    triggered: AtomicU64,
}

/// What one drive has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    /// Cores of all members together; the whole device if one of them says so.
    pub map: CoreMap,
    /// The driver itself is among those who ask.
    pub internal: bool,
}

impl ResetQueue {
    pub(crate) const fn new() -> Self {
        ResetQueue {
            state: Mutex::new(RefCell::new(State {
                entries: Vec::new(),
                last_id: 0,
                closed: false,
            })),
            task: AtomicWaker::new(),
            triggered: AtomicU64::new(0),
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.state.lock(|state| work(&mut state.borrow_mut()))
    }

    /// Queues a request; [`ResetQueue::wake`] has it seen to.
    pub(crate) fn submit(self: &Arc<Self>, request: ResetRequest) -> Result<ResetTicket, Error> {
        let place = self.with(|state| state.add(request))?;
        Ok(ResetTicket { queue: self.clone(), place })
    }

    /// Firmware was asked when the machine's counter said `cycles`.
    pub(crate) fn note_trigger(&self, cycles: u64) {
        self.triggered.store(cycles, Ordering::Relaxed);
    }

    pub(crate) fn last_trigger(&self) -> u64 {
        self.triggered.load(Ordering::Relaxed)
    }

    /// Wakes the reset task.
    pub(crate) fn wake(&self) {
        self.task.wake();
    }

    /// Takes every waiting request into one drive; `None` where none waits. Leaves a waker if
    /// asked to.
    pub(crate) fn take_batch(&self, waker: &Waker) -> Option<Batch> {
        self.task.register(waker);
        self.with(State::take_batch)
    }

    /// Ends the drive that runs.
    pub(crate) fn resolve(&self, result: Result<(), Error>) {
        self.with(|state| state.end(Progress::Driving, result));
    }

    /// Ends everything; nothing is taken any more.
    pub(crate) fn close(&self) {
        self.with(|state| {
            state.closed = true;
            let ended = Err(Error::Cancelled { why: CancelCause::Removal });
            state.end(Progress::Driving, ended);
            state.end(Progress::Waiting, ended);
        });
    }

    /// Resolves once no request of `client` waits or runs.
    pub(crate) fn settled(self: Arc<Self>, client: ClientId) -> impl Future<Output = ()> {
        poll_fn(move |cx| {
            self.with(|state| {
                let open = state.entries.iter_mut().find(|entry| {
                    entry.request.requester == Requester::Client(client)
                        && matches!(entry.progress, Progress::Waiting | Progress::Driving)
                });
                match open {
                    Some(entry) => {
                        entry.waiting.register(cx.waker());
                        Poll::Pending
                    }
                    None => Poll::Ready(()),
                }
            })
        })
    }
}

impl State {
    fn add(&mut self, request: ResetRequest) -> Result<usize, Error> {
        if self.closed {
            return Err(Error::Removed);
        }
        if let Requester::Client(_) = request.requester {
            let theirs = self.entries.iter().filter(|entry| {
                entry.progress != Progress::Free
                    && !entry.collected
                    && entry.request.requester == request.requester
            });
            if theirs.count() >= UNCOLLECTED {
                return Err(Error::Busy { what: "the reset queue", limit: UNCOLLECTED as u64 });
            }
        }
        let id = self.last_id.checked_add(1).unwrap_or(1);
        let entry = Entry {
            id,
            request,
            progress: Progress::Waiting,
            tickets: 1,
            collected: false,
            waiting: WakerList::new(),
        };
        let place = match self.entries.iter().position(|e| e.progress == Progress::Free) {
            Some(place) => place,
            None => {
                self.entries.try_reserve(1).map_err(|_| Error::NoRecords)?;
                self.entries.len()
            }
        };
        match self.entries.get_mut(place) {
            Some(free) => *free = entry,
            None => self.entries.push(entry),
        }
        self.last_id = id;
        Ok(place)
    }

    fn take_batch(&mut self) -> Option<Batch> {
        let mut batch: Option<Batch> = None;
        for entry in self.entries.iter_mut().filter(|e| e.progress == Progress::Waiting) {
            entry.progress = Progress::Driving;
            let batch = batch.get_or_insert(Batch { map: CoreMap(0), internal: false });
            batch.map.0 |= entry.request.map.0;
            batch.internal |= entry.request.requester == Requester::Internal;
        }
        batch
    }

    fn end(&mut self, progress: Progress, result: Result<(), Error>) {
        for entry in self.entries.iter_mut().filter(|entry| entry.progress == progress) {
            entry.progress = Progress::Done(result);
            entry.waiting.wake_all();
            entry.free_if_over();
        }
    }
}

impl Entry {
    fn free_if_over(&mut self) {
        if self.tickets == 0 && matches!(self.progress, Progress::Done(_)) {
            self.progress = Progress::Free;
        }
    }
}

/// A reset that was asked for; resolves with its result, as often as it is asked. Clones name the
/// same request. Dropping the last one detaches: the reset still runs.
///
/// # Errors
/// [`Error::ResetTimeout`], [`Error::DeviceGone`], [`Error::Cancelled`] where the device was
/// removed, or what re-initialisation met.
#[must_use = "a ticket may be awaited for the result of the reset"]
pub struct ResetTicket {
    queue: Arc<ResetQueue>,
    place: usize,
}

impl ResetTicket {
    /// Number of the request: not 0, unique on its device.
    pub fn id(&self) -> u32 {
        self.entry(|entry| entry.id).unwrap_or(0)
    }

    fn entry<R>(&self, work: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.queue.with(|state| state.entries.get_mut(self.place).map(work))
    }
}

impl Future for ResetTicket {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.entry(|entry| match entry.progress {
            Progress::Done(result) => {
                entry.collected = true;
                Poll::Ready(result)
            }
            _ => {
                entry.waiting.register(cx.waker());
                Poll::Pending
            }
        });
        polled.unwrap_or(Poll::Ready(Err(Error::Removed)))
    }
}

impl Clone for ResetTicket {
    fn clone(&self) -> Self {
        self.entry(|entry| entry.tickets += 1);
        ResetTicket { queue: self.queue.clone(), place: self.place }
    }
}

impl Drop for ResetTicket {
    fn drop(&mut self) {
        self.entry(|entry| {
            entry.tickets = entry.tickets.saturating_sub(1);
            entry.free_if_over();
        });
    }
}

impl fmt::Debug for ResetTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResetTicket").field(&self.id()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> Requester {
        Requester::Client(ClientId::new(number).unwrap())
    }

    fn submit(queue: &Arc<ResetQueue>, map: u32, requester: Requester) -> ResetTicket {
        queue.submit(ResetRequest { map: CoreMap(map), requester }).unwrap()
    }

    fn poll(ticket: &ResetTicket) -> Poll<Result<(), Error>> {
        let mut ticket = ticket.clone();
        Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn st_e22_st_d27_whatever_waits_becomes_one_drive() {
        let queue = Arc::new(ResetQueue::new());
        let a = submit(&queue, 0x1, client(1));
        let b = submit(&queue, 0x2, client(2));
        assert_eq!(
            queue.take_batch(Waker::noop()),
            Some(Batch { map: CoreMap(0x3), internal: false })
        );
        let c = submit(&queue, u32::MAX, Requester::Internal);
        queue.resolve(Ok(()));
        assert_eq!((poll(&a), poll(&b)), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))));
        assert!(poll(&c).is_pending());
        let d = submit(&queue, 0x4, client(1));
        assert_eq!(
            queue.take_batch(Waker::noop()),
            Some(Batch { map: CoreMap::DEVICE, internal: true })
        );
        assert_eq!(queue.take_batch(Waker::noop()), None);
        queue.close();
        let cancelled = Poll::Ready(Err(Error::Cancelled { why: CancelCause::Removal }));
        assert_eq!((poll(&c), poll(&d)), (cancelled, cancelled));
        let late = queue.submit(ResetRequest { map: CoreMap(1), requester: client(1) });
        assert_eq!(late.unwrap_err(), Error::Removed);
    }

    #[test]
    fn st_e24_st_d33_every_holder_gets_the_result() {
        let queue = Arc::new(ResetQueue::new());
        let first = submit(&queue, 1, client(1));
        let second = first.clone();
        assert_eq!(first.id(), second.id());
        queue.take_batch(Waker::noop());
        queue.resolve(Err(Error::DeviceGone));
        assert_eq!(poll(&first), Poll::Ready(Err(Error::DeviceGone)));
        assert_eq!(poll(&second), Poll::Ready(Err(Error::DeviceGone)));
    }

    #[test]
    fn st_e25_sixteen_uncollected_requests() {
        let queue = Arc::new(ResetQueue::new());
        let tickets: Vec<_> = (0..16).map(|_| submit(&queue, 1, client(1))).collect();
        let next = ResetRequest { map: CoreMap(1), requester: client(1) };
        assert!(matches!(queue.submit(next), Err(Error::Busy { limit: 16, .. })));
        assert_ne!(submit(&queue, 1, client(2)).id(), 0);
        queue.take_batch(Waker::noop());
        queue.resolve(Ok(()));
        assert!(queue.submit(next).is_err(), "none collected yet");
        assert!(poll(&tickets[3]).is_ready());
        assert!(queue.submit(next).is_ok());
    }

    #[test]
    fn a_dropped_ticket_detaches_and_frees_its_place() {
        let queue = Arc::new(ResetQueue::new());
        for _ in 0..100 {
            drop(submit(&queue, 1, client(1)));
            assert!(queue.take_batch(Waker::noop()).is_some(), "the reset still runs");
            queue.resolve(Ok(()));
        }
        assert_eq!(queue.with(|state| state.entries.len()), 1);
    }
}
