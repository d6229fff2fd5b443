//! Lists of host memory straight to and from device memory, without a bounce (specification 03 §11,
//! §12). Everything of a request is checked before its first byte moves.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::task::{Poll, Waker};

use axon_clients::Touched;
use axon_neuron::Target;
use axon_neuron::dma::{self, Direction, HostPiece, ZeroCopy};
use axon_platform::Platform;
use axon_ports::Location;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use crate::calls::Call;
use crate::client::Shared;
use crate::{Client, Error, View};

/// Requests that a queue holds at most, finished ones included until they are read.
const CAPACITY: usize = 1024;

/// Part of a host chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostRange {
    /// Handle of the chunk.
    pub handle: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes, not 0.
    pub len: u64,
}

/// One operation of a batch: `nrt_tensor_batch_op_t`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZeroCopyOp {
    /// First byte in the device chunk, behind the offset of the batch.
    pub offset: u64,
    /// The client's memory, in the order of the bytes; its size is that of the operation.
    pub host: Vec<HostRange>,
}

/// Operations on one device chunk: `neuron_memcpy_batch_t`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZeroCopyBatch {
    /// Handle of the device chunk.
    pub device: u64,
    /// Added to the offset of every operation.
    pub offset: u64,
    /// In order.
    pub operations: Vec<ZeroCopyOp>,
    /// Comes back in the completion.
    pub context: u64,
}

/// Batches in order; each is complete before the next one starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZeroCopyRequest {
    /// Which way.
    pub direction: Direction,
    /// −1 for the default ring of each chunk's core, else a copy queue of the client.
    pub queue: i32,
    /// What to move.
    pub batches: Vec<ZeroCopyBatch>,
}

impl ZeroCopyRequest {
    /// One operation: `host` to or from byte `offset` of a device chunk on.
    pub fn single(
        direction: Direction,
        queue: i32,
        device: u64,
        offset: u64,
        host: HostRange,
    ) -> Self {
        let operations = Vec::from([ZeroCopyOp { offset: 0, host: Vec::from([host]) }]);
        let batches = Vec::from([ZeroCopyBatch { device, offset, operations, context: 0 }]);
        ZeroCopyRequest { direction, queue, batches }
    }
}

/// How an asynchronous request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As given.
    pub sequence: u64,
    /// How. On an error what came behind it was not moved.
    pub result: Result<(), Error>,
    /// Of the batch that ended it.
    pub context: u64,
}

/// Checked batches, and the context of each.
struct Job<P: Platform>(Vec<(ZeroCopy<P>, u64)>);

impl<P: Platform> Job<P> {
    /// Runs it; answers how it ended and the context of the batch that ended it.
    async fn run(self) -> (Result<(), Error>, u64) {
        let mut last = 0;
        for (batch, context) in self.0 {
            last = context;
            if let Err(error) = batch.await {
                return (Err(error.into()), context);
            }
        }
        (Ok(()), last)
    }
}

fn nothing(what: &'static str) -> Error {
    Error::InvalidArgument { what, value: 0 }
}

fn pieces<P: Platform>(
    client: &Shared<P>,
    direction: Direction,
    host: &[HostRange],
) -> Result<(Vec<HostPiece>, u64), Error> {
    let mut pieces = Vec::new();
    let mut size = 0u64;
    pieces.try_reserve_exact(host.len()).map_err(|_| axon_neuron::Error::NoRecords)?;
    for range in host {
        let view = View::of(client, client.device.memory().lookup(range.handle)?)?;
        if direction == Direction::FromDevice {
            view.check_writable()?;
        }
        if view.facts().location != Location::Host {
            return Err(Error::InvalidArgument { what: "host buffer", value: range.handle });
        }
        let span = view.span_at(range.offset, range.len)?;
        size = size.checked_add(range.len).ok_or(nothing("size of an operation"))?;
        let address = span.address;
        pieces.push(HostPiece { address, len_bytes: range.len, pin: span.pin });
    }
    match size {
        0 => Err(Error::EMPTY),
        size => Ok((pieces, size)),
    }
}

fn check<P: Platform>(client: &Shared<P>, request: &ZeroCopyRequest) -> Result<Job<P>, Error> {
    Call::ZeroCopy.enter(&client.access, Touched::Transfers)?;
    if request.batches.is_empty() {
        return Err(nothing("batches"));
    }
    let mut job = Vec::new();
    job.try_reserve_exact(request.batches.len()).map_err(|_| axon_neuron::Error::NoRecords)?;
    for batch in &request.batches {
        let view = View::of(client, client.device.memory().lookup(batch.device)?)?;
        if request.direction == Direction::ToDevice {
            view.check_writable()?;
        }
        let facts = view.facts();
        if facts.location != Location::Device {
            return Err(Error::InvalidArgument { what: "device chunk", value: batch.device });
        }
        if batch.operations.is_empty() {
            return Err(nothing("operations"));
        }
        let mut operations = Vec::new();
        let room = operations.try_reserve_exact(batch.operations.len());
        room.map_err(|_| axon_neuron::Error::NoRecords)?;
        for operation in &batch.operations {
            let (host, size) = pieces(client, request.direction, &operation.host)?;
            let wraps =
                Error::OutOfRange { offset: operation.offset, len: size, limit: facts.reach };
            let offset = batch.offset.checked_add(operation.offset).ok_or(wraps)?;
            let span = view.span_at(offset, size)?;
            let device = Target { address: span.address, pin: span.pin };
            operations.push(dma::ZeroCopyOp { host, device });
        }
        let (queue, direction) = (request.queue, request.direction);
        let dma = client.device.neuron().dma();
        let who = client.access.client();
        let moved = dma.zero_copy(who, facts.core, queue, direction, operations)?;
        job.push((moved, batch.context));
    }
    Ok(Job(job))
}

impl<P: Platform> Client<P> {
    /// Moves the batches of a request and waits for the last.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty list, a size of 0, a chunk in the wrong place, and on
    /// V2 unless configuration turns zero-copy on; [`Error::BadHandle`], [`Error::OutOfRange`],
    /// [`Error::WrongOwner`]; ENOENT for a queue that is none of the core; nothing was moved. Else
    /// those of a copy.
    pub async fn zero_copy(&self, request: &ZeroCopyRequest) -> Result<(), Error> {
        check(self.shared(), request)?.run().await.0
    }

    /// A queue of asynchronous requests, and where their completions are read. They run in the
    /// order of [`ZeroCopyQueue::submit`].
    ///
    /// # Errors
    /// [`Error::NotAttached`]; [`Error::NoRecords`] where there is no room for another task.
    pub fn zero_copy_queue(&self) -> Result<(ZeroCopyQueue<P>, Completions<P>), Error> {
        Call::Completions.enter(self.access(), Touched::Transfers)?;
        let state = State {
            jobs: VecDeque::new(),
            done: VecDeque::new(),
            held: 0,
            writers: 1,
            worker: None,
            reader: None,
        };
        let queue = Arc::new(Queue {
            shared: self.shared().clone(),
            state: Mutex::new(RefCell::new(state)),
        });
        queue.with(|state| {
            let jobs = state.jobs.try_reserve_exact(CAPACITY);
            jobs.and_then(|()| state.done.try_reserve_exact(CAPACITY))
                .map_err(|_| axon_neuron::Error::NoRecords)
        })?;
        let platform = self.device().neuron().platform();
        platform.spawn("zero copy", work(queue.clone()))?;
        Ok((ZeroCopyQueue(queue.clone()), Completions(queue)))
    }
}

struct Waiting<P: Platform> {
    sequence: u64,
    job: Job<P>,
}

struct State<P: Platform> {
    jobs: VecDeque<Waiting<P>>,
    done: VecDeque<Completion>,
    /// Requests that wait, run, or whose completion was not read.
    held: usize,
    /// Submitting sides that are left: 1 or 0.
    writers: u8,
    worker: Option<Waker>,
    reader: Option<Waker>,
}

struct Queue<P: Platform> {
    shared: Arc<Shared<P>>,
    state: Mutex<CriticalSectionRawMutex, RefCell<State<P>>>,
}

impl<P: Platform> Queue<P> {
    fn with<R>(&self, work: impl FnOnce(&mut State<P>) -> R) -> R {
        self.state.lock(|state| work(&mut state.borrow_mut()))
    }
}

/// The submitting side. Dropping it ends the queue behind the request that runs.
pub struct ZeroCopyQueue<P: Platform>(Arc<Queue<P>>);

/// The side where completions are read, in the order of the requests.
pub struct Completions<P: Platform>(Arc<Queue<P>>);

impl<P: Platform> ZeroCopyQueue<P> {
    /// Queues a request under a number, which is not 0. It was checked and holds its memory when
    /// this returns.
    ///
    /// # Errors
    /// As [`Client::zero_copy`]; [`Error::Busy`] while 1024 requests wait, run, or have a completion
    /// that was not read: read some.
    pub fn submit(&self, sequence: u64, request: &ZeroCopyRequest) -> Result<(), Error> {
        if sequence == 0 {
            return Err(nothing("sequence number"));
        }
        let job = check(&self.0.shared, request)?;
        self.0.with(|state| {
            if state.held >= CAPACITY {
                return Err(Error::Busy { what: "the queue of requests" });
            }
            state.held += 1;
            state.jobs.push_back(Waiting { sequence, job });
            if let Some(worker) = state.worker.take() {
                worker.wake();
            }
            Ok(())
        })
    }
}

impl<P: Platform> Drop for ZeroCopyQueue<P> {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.writers = 0;
            state.held -= state.jobs.len();
            state.jobs.clear();
            if let Some(worker) = state.worker.take() {
                worker.wake();
            }
        });
    }
}

impl<P: Platform> Completions<P> {
    /// The next completion; `None` once the submitting side is gone and everything was read.
    #[allow(clippy::should_implement_trait)] // its asynchronous sister
    pub async fn next(&mut self) -> Option<Completion> {
        poll_fn(|cx| {
            self.0.with(|state| {
                if let Some(done) = state.done.pop_front() {
                    state.held -= 1;
                    return Poll::Ready(Some(done));
                }
                if state.writers == 0 && state.held == 0 {
                    return Poll::Ready(None);
                }
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await
    }

    /// The next completion, if it is there.
    pub fn try_next(&mut self) -> Option<Completion> {
        self.0.with(|state| {
            let done = state.done.pop_front();
            state.held -= usize::from(done.is_some());
            done
        })
    }
}

/// Carries out the requests of one queue.
async fn work<P: Platform>(queue: Arc<Queue<P>>) {
    while let Some(Waiting { sequence, job }) = next(&queue).await {
        // A client that has left starts nothing more.
        let (result, context) = match queue.shared.access.check() {
            Ok(()) => job.run().await,
            Err(left) => (Err(left.into()), 0),
        };
        queue.with(|state| {
            // There is room: `held` counts it.
            state.done.push_back(Completion { sequence, result, context });
            if let Some(reader) = state.reader.take() {
                reader.wake();
            }
        });
    }
    queue.with(|state| {
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    });
}

/// The next request; `None` once nobody can submit one.
async fn next<P: Platform>(queue: &Queue<P>) -> Option<Waiting<P>> {
    poll_fn(|cx| {
        queue.with(|state| match state.jobs.pop_front() {
            Some(waiting) => Poll::Ready(Some(waiting)),
            None if state.writers == 0 => Poll::Ready(None),
            None => {
                state.worker = Some(cx.waker().clone());
                Poll::Pending
            }
        })
    })
    .await
}
