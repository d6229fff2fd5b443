//! Many copies as one batch: one marker, one doorbell pair, one future (specification 03 §7.3).

use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::telemetry::{TraceEvent, TraceKind};
use axon_ports::{CoreId, Pin};

use super::completion;
use super::pieces::{Piece, PieceList};
use super::slab::BatchId;
use super::transfer::NOTHING;
use crate::Error;
use crate::shared::{PORTS, Shared};
use crate::wake::Ticket;

/// Where a batch stands.
enum Stage {
    /// It is being filled.
    Open,
    /// It waits for its turn.
    Queued(Ticket),
    /// It is staged; the list is in the record.
    InFlight(BatchId),
}

/// A list of copies on one ring, filled and awaited again and again. All room is taken when it is
/// made. As with [`struct@crate::Copy`], dropping it cancels nothing in hardware.
///
/// Copies are carried out in the order in which they were added. One that reads what an earlier one
/// of the same batch writes reads undefined bytes.
///
/// # Errors
/// The future ends as that of a copy does; then the destinations of all copies are undefined.
#[must_use = "a batch does nothing unless it is started or awaited"]
pub struct Batch<P: Platform> {
    shared: Arc<Shared<P>>,
    list: PieceList,
    stage: Stage,
    limit: usize,
    port: u8,
}

impl<P: Platform> Batch<P> {
    pub(super) fn new(shared: Arc<Shared<P>>, limit: usize) -> Result<Self, Error> {
        let list = PieceList::with_capacity(limit)?;
        Ok(Batch { shared, list, stage: Stage::Open, limit, port: PORTS as u8 })
    }

    /// Whether the ring of this batch serves copies of `core` too. A batch without copies goes to
    /// the ring of whatever comes first.
    pub fn serve(&mut self, core: CoreId) -> bool {
        let port = self.shared.default_port(core);
        if self.is_open() && self.is_empty() {
            self.port = port;
        }
        port == self.port
    }

    /// Appends a copy. The caller has checked both ranges and that they do not wrap, and [holds]
    /// what they lie in.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for size 0, [`Error::TooBig`] for more copies than there is room
    /// for or more than one batch moves, [`Error::Busy`] while the batch is in flight. Nothing
    /// changed.
    ///
    /// [holds]: Batch::hold
    #[inline(always)]
    pub fn push(
        &mut self,
        source: DeviceAddr,
        destination: DeviceAddr,
        bytes: u64,
    ) -> Result<(), Error> {
        if bytes == 0 || !matches!(self.stage, Stage::Open) {
            return Err(self.refuse_push(bytes));
        }
        self.list.push(Piece { source, destination, bytes }, self.limit)
    }

    #[cold]
    fn refuse_push(&self, bytes: u64) -> Error {
        if bytes == 0 { NOTHING } else { BUSY }
    }

    /// Keeps memory that a copy names until the hardware is done with it.
    ///
    /// # Errors
    /// [`Error::Busy`] while the batch is in flight, [`Error::NoRecords`].
    pub fn hold(&mut self, pin: Pin) -> Result<(), Error> {
        if !matches!(self.stage, Stage::Open) {
            return Err(BUSY);
        }
        self.list.hold(pin)
    }

    /// Copies added since the batch was made, cleared or awaited.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.pieces().len()
    }

    /// Whether there is nothing to do.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether copies may be added: it is neither in flight nor waits for its turn.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open)
    }

    /// Whether it is staged and has not ended.
    #[inline]
    pub fn is_in_flight(&self) -> bool {
        matches!(self.stage, Stage::InFlight(_))
    }

    /// Forgets the copies that were added; one in flight goes on alone, and takes its room along.
    pub fn clear(&mut self) {
        self.give_up();
        self.list.clear();
    }

    /// Stages all copies and rings at once, without waiting for the end of the turn.
    ///
    /// # Errors
    /// [`Error::Again`] where the ring is full or in reset; nothing is staged and the batch may
    /// still be awaited. Any other error is the result of the batch.
    pub fn try_start(&mut self) -> Result<(), Error> {
        if matches!(self.stage, Stage::InFlight(_)) {
            return Ok(());
        }
        if !self.try_stage::<true>(None) {
            let again = Error::Again { what: "the ring is full or in reset" };
            return Err(self.refusal().unwrap_or(again));
        }
        self.shared.mark_dirty(self.port);
        Ok(())
    }

    fn try_stage<const STARTED: bool>(&mut self, waker: Option<&Waker>) -> bool {
        let ticket = match self.stage {
            Stage::Open => None,
            Stage::Queued(ticket) => Some(ticket),
            Stage::InFlight(_) => return false,
        };
        if self.list.descriptors() == 0 {
            return false;
        }
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return false };
        let (list, shared) = (&mut self.list, &self.shared);
        let staged = cell.with(|port| {
            let ring = port.admit(list.descriptors(), ticket)?;
            let core = ring.name.core;
            if shared.records.trace.is_on(TraceKind::DmaMemcpy) {
                trace(shared, core, list);
            }
            let batch = ring.stage_list(list, waker.cloned())?;
            if STARTED {
                let is_traced = completion::is_traced(shared);
                completion::ring_now(shared, ring, is_traced);
                completion::sweep_in_passing(shared, port, is_traced);
            }
            if let Some(ticket) = ticket {
                port.leave(ticket);
            }
            Some(batch)
        });
        let Some(batch) = staged else { return false };
        self.stage = Stage::InFlight(batch);
        true
    }

    fn collect(&mut self, batch: BatchId, waker: &Waker) -> Poll<Result<(), Error>> {
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else {
            return Poll::Ready(Ok(()));
        };
        let list = &mut self.list;
        let result = cell.with(|port| match port.ring() {
            Some(ring) => ring.collect_list(batch, waker, list),
            // A ring goes only when everything on it was collected.
            None => Some(Ok(())),
        });
        match result {
            None => Poll::Pending,
            Some(result) => {
                self.stage = Stage::Open;
                self.after(result)
            }
        }
    }

    /// A batch that failed has left its room for pins with its record.
    #[inline]
    fn after(&mut self, result: Result<(), Error>) -> Poll<Result<(), Error>> {
        if result.is_err() {
            // Without memory now, `push` and `hold` ask again.
            let _ = self.list.reserve(self.limit);
        }
        Poll::Ready(result)
    }

    /// Queues for a turn, or ends with the reason why there will be none.
    #[cold]
    fn wait(&mut self, waker: &Waker) -> Poll<Result<(), Error>> {
        if let Some(error) = self.refusal() {
            self.clear();
            return Poll::Ready(Err(error));
        }
        let ticket = match self.stage {
            Stage::Queued(ticket) => Some(ticket),
            _ => None,
        };
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else {
            return Poll::Pending;
        };
        self.stage = Stage::Queued(cell.with(|port| port.wait(ticket, waker))?);
        self.shared.mark_dirty(self.port);
        Poll::Pending
    }

    /// Why nothing will ever be staged.
    #[cold]
    fn refusal(&self) -> Option<Error> {
        if self.list.descriptors() == 0 {
            return Some(NOTHING);
        }
        match self.shared.ports.get(usize::from(self.port)) {
            Some(cell) => cell.with(|port| port.refusal()),
            None => Some(Error::InvalidArgument { what: "core", value: 0xff }),
        }
    }

    /// Leaves whatever the batch waits for; one in flight goes on alone.
    fn give_up(&mut self) {
        let stage = core::mem::replace(&mut self.stage, Stage::Open);
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return };
        match stage {
            Stage::Open => {}
            Stage::Queued(ticket) => {
                cell.with(|port| port.leave(ticket));
                self.shared.mark_dirty(self.port);
            }
            Stage::InFlight(batch) => cell.with(|port| {
                if let Some(ring) = port.ring() {
                    ring.abandon(batch);
                }
            }),
        }
    }
}

/// The list of a batch in flight belongs to its record.
const BUSY: Error = Error::Busy { what: "the batch", limit: 1 };

/// One event for each copy.
#[cold]
fn trace<P: Platform>(shared: &Shared<P>, core: CoreId, list: &PieceList) {
    let mut pending = list.span().bytes;
    for piece in list.pieces() {
        pending -= piece.bytes;
        let event = TraceEvent::DmaMemcpy {
            core: core.number().into(),
            source: piece.source.0,
            destination: piece.destination.0,
            size: piece.bytes,
            pending,
        };
        shared.records.trace.emit(event, || shared.platform.now());
    }
}

impl<P: Platform> Future for Batch<P> {
    type Output = Result<(), Error>;

    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::InFlight(batch) = self.stage {
            return self.collect(batch, cx.waker());
        }
        if self.try_stage::<false>(Some(cx.waker())) {
            self.shared.mark_dirty(self.port);
            return Poll::Pending;
        }
        self.wait(cx.waker())
    }
}

impl<P: Platform> Drop for Batch<P> {
    fn drop(&mut self) {
        self.give_up();
    }
}
