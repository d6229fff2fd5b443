//! The way of plain slices into and out of device memory: through host chunks of 64 KiB that the
//! client keeps (specification 03 §8, bounce). Bytes are moved only while a future is polled.

use core::cell::RefCell;
use core::future::poll_fn;
use core::task::Poll;

use axon_clients::Touched;
use axon_platform::Platform;
use axon_ports::{AllocRequest, Chunk, Location};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::waitqueue::MultiWakerRegistration;

use crate::calls::Call;
use crate::client::Shared;
use crate::{Error, Span};

/// Bytes of a bounce chunk: the most that one descriptor moves.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Chunks a client keeps at most; further writers wait.
const CHUNKS: usize = 4;

/// The bounce chunks of one client.
pub(crate) struct Pool(Mutex<CriticalSectionRawMutex, RefCell<State>>);

struct State {
    idle: heapless::Vec<Chunk, CHUNKS>,
    /// Taken or idle.
    made: usize,
    closed: bool,
    waiters: MultiWakerRegistration<CHUNKS>,
}

impl Pool {
    pub(crate) const fn new() -> Self {
        Pool(Mutex::new(RefCell::new(State {
            idle: heapless::Vec::new(),
            made: 0,
            closed: false,
            waiters: MultiWakerRegistration::new(),
        })))
    }

    /// The client leaves: chunks nobody uses go back now, the others when their user is done.
    pub(crate) fn close(&self) {
        self.0.lock(|state| {
            let mut state = state.borrow_mut();
            state.closed = true;
            state.idle.clear();
        });
    }

    fn give_back(&self, chunk: Option<Chunk>) {
        self.0.lock(|state| {
            let mut state = state.borrow_mut();
            // A chunk that the hardware may still touch (its transfer was dropped) is not for
            // the next writer: its pins keep it, a new one takes its place.
            let closed = state.closed;
            match chunk.filter(|chunk| !closed && chunk.header().pins() == 0) {
                Some(chunk) => drop(state.idle.push(chunk)),
                None => state.made = state.made.saturating_sub(1),
            }
            state.waiters.wake();
        });
    }
}

/// A chunk taken from the pool, or the right to make one.
struct Taken<'a> {
    pool: &'a Pool,
    chunk: Option<Chunk>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.pool.give_back(self.chunk.take());
    }
}

/// One write or read through the pool of `client`.
pub(crate) struct Bounce<'a, P: Platform> {
    client: &'a Shared<P>,
}

impl<'a, P: Platform> Bounce<'a, P> {
    pub(crate) fn new(client: &'a Shared<P>) -> Self {
        Bounce { client }
    }

    /// Moves `data` into the range, which is device memory of the same length.
    pub(crate) async fn write(&self, target: Span<'_, P>, data: &[u8]) -> Result<(), Error> {
        let taken = self.take().await?;
        let mut offset = 0;
        for piece in data.chunks(CHUNK_BYTES) {
            let bounce = piece_of(&taken, &target, piece.len())?;
            bounce.pin.host().ok_or(Error::EMPTY)?.write(0, piece)?;
            let end = offset + piece.len() as u64;
            bounce.copy_to(target.part(offset..end)?)?.start().await?;
            offset = end;
        }
        Ok(())
    }

    /// Moves the range, which is device memory, into `into` of the same length.
    pub(crate) async fn read(&self, source: Span<'_, P>, into: &mut [u8]) -> Result<(), Error> {
        let taken = self.take().await?;
        let mut offset = 0;
        for piece in into.chunks_mut(CHUNK_BYTES) {
            let end = offset + piece.len() as u64;
            let bounce = piece_of(&taken, &source, piece.len())?;
            source.part(offset..end)?.copy_to(bounce)?.start().await?;
            let chunk = taken.chunk.as_ref().and_then(Chunk::host).ok_or(Error::NotAttached)?;
            chunk.read(0, piece)?;
            offset = end;
        }
        Ok(())
    }

    async fn take(&self) -> Result<Taken<'a>, Error> {
        let pool = &self.client.bounce;
        let chunk = poll_fn(|cx| {
            pool.0.lock(|state| {
                let mut state = state.borrow_mut();
                if let Some(chunk) = state.idle.pop() {
                    return Poll::Ready(Some(chunk));
                }
                if state.made < CHUNKS {
                    state.made += 1;
                    return Poll::Ready(None);
                }
                state.waiters.register(cx.waker());
                Poll::Pending
            })
        })
        .await;
        let mut taken = Taken { pool, chunk };
        if taken.chunk.is_none() {
            Call::Move.enter(&self.client.access, Touched::Transfers)?;
            let request = AllocRequest::driver_host(CHUNK_BYTES as u64);
            taken.chunk = Some(self.client.device.memory().alloc(request).await?);
        }
        Ok(taken)
    }
}

/// The start of the bounce chunk as the other end of a transfer with `other`.
fn piece_of<'s, P: Platform>(
    taken: &Taken<'_>,
    other: &Span<'s, P>,
    len: usize,
) -> Result<Span<'s, P>, Error> {
    let pin = taken.chunk.as_ref().and_then(Chunk::pin).ok_or(Error::NotAttached)?;
    Ok(Span {
        client: other.client,
        address: pin.pa(),
        len: len as u64,
        core: other.core,
        location: Location::Host,
        writable: true,
        pin,
    })
}
