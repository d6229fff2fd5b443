//! One request on one ring, cut into batches (specification 03 §8). Copies and fills are made of
//! it.

use alloc::sync::Arc;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::Pin;
use axon_ports::telemetry::TraceEvent;

use super::completion;
use super::fill_source::FillSource;
use super::ring::{MAX_BATCH_BYTES, RingName, data_descriptors};
use super::slab::{BatchId, Span};
use crate::Error;
use crate::shared::Shared;
use crate::wake::Ticket;

/// Size 0 is refused wherever data moves (03 §8).
pub(super) const NOTHING: Error = Error::InvalidArgument { what: "transfer size", value: 0 };
/// Nothing could be staged now.
const AGAIN: Error = Error::Again { what: "the ring is full or in reset" };

/// Where a transfer stands.
enum Stage {
    /// The next batch is not staged.
    New,
    /// It waits for its turn.
    Queued(Ticket),
    /// It is staged.
    InFlight(BatchId),
    /// It was the last one, and has ended well before anybody came for the result.
    Done,
    /// There is none.
    Over,
}

/// A transfer of any size; one batch is in flight at a time.
pub(crate) struct Transfer<P: Platform> {
    shared: Arc<Shared<P>>,
    source: DeviceAddr,
    destination: DeviceAddr,
    remaining: u64,
    pins: [Option<Pin>; 2],
    stage: Stage,
    port: u8,
    fixed_source: bool,
    reads_fill_source: bool,
    /// Counted by its port as one that has nothing staged yet.
    is_unstaged: bool,
}

impl<P: Platform> Transfer<P> {
    #[inline]
    pub(crate) fn new(
        shared: Arc<Shared<P>>,
        port: u8,
        source: DeviceAddr,
        destination: DeviceAddr,
        bytes: u64,
        pins: [Option<Pin>; 2],
    ) -> Self {
        let cell = shared.ports.get(usize::from(port));
        let is_unstaged = cell.inspect(|cell| cell.note_made()).is_some();
        Transfer {
            shared,
            source,
            destination,
            remaining: bytes,
            pins,
            stage: Stage::New,
            port,
            fixed_source: false,
            reads_fill_source: false,
            is_unstaged,
        }
    }

    /// Bytes that are not staged yet.
    #[inline]
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The fill buffer of the device.
    #[inline]
    pub(crate) fn fill_source(&self) -> &FillSource {
        &self.shared.fill
    }

    /// The source is the fill buffer, of which this counts as a reader.
    #[inline]
    pub(crate) fn read_fill_source(&mut self) {
        self.reads_fill_source = true;
    }

    /// Goes on behind a transfer of 64 KiB that has ended: what it wrote is read again and again and
    /// goes to the `bytes` behind it, which `pin` holds.
    pub(crate) fn repeat(&mut self, bytes: u64, pin: Option<Pin>) {
        self.source = self.destination;
        self.destination.0 = self.destination.0.wrapping_add(FillSource::BYTES);
        self.remaining = bytes;
        self.pins = [None, pin];
        self.fixed_source = true;
        self.stage = Stage::New;
    }

    /// Carries the transfer on; ends with its result.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Stage::Done = self.stage {
            self.stage = Stage::Over;
            return Poll::Ready(Ok(()));
        }
        self.go_on(cx)
    }

    /// One function, called from everywhere, so that all it does becomes part of it.
    #[inline(never)]
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Stage::InFlight(batch) = self.stage {
            match self.collect(batch, cx.waker()) {
                None => return Poll::Pending,
                Some(Ok(())) if self.remaining != 0 => self.stage = Stage::New,
                Some(result) => {
                    self.stage = Stage::Over;
                    return Poll::Ready(result);
                }
            }
        }
        if self.try_stage::<false>(Some(cx.waker())).is_none() {
            return self.wait(cx.waker());
        }
        if let Stage::Done = self.stage {
            self.stage = Stage::Over;
            return Poll::Ready(Ok(()));
        }
        self.shared.mark_dirty(self.port);
        Poll::Pending
    }

    /// Waits until the first batch is staged.
    pub(crate) fn poll_staged(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if matches!(self.stage, Stage::New | Stage::Queued(_))
            && let Poll::Ready(result) = self.poll(cx)
        {
            if result.is_ok() {
                // It has ended as it was staged: whoever comes for the result finds it.
                self.stage = Stage::Done;
            }
            return Poll::Ready(result);
        }
        match self.stage {
            Stage::InFlight(_) | Stage::Done | Stage::Over => Poll::Ready(Ok(())),
            Stage::New | Stage::Queued(_) => Poll::Pending,
        }
    }

    /// Stages the first batch and rings, if that is possible without waiting. One function, as
    /// `go_on` is.
    #[inline(never)]
    pub(crate) fn try_start(&mut self) -> Result<(), Error> {
        if !matches!(self.stage, Stage::New) {
            return self.started();
        }
        if self.try_stage::<true>(None).is_none() {
            return Err(self.refusal().unwrap_or(AGAIN));
        }
        if !matches!(self.stage, Stage::Done) {
            self.shared.mark_dirty(self.port);
        }
        Ok(())
    }

    /// Whether the first batch is staged. One with a place in the queue is staged when it is polled.
    #[cold]
    fn started(&self) -> Result<(), Error> {
        match self.stage {
            Stage::Queued(_) => Err(self.refusal().unwrap_or(AGAIN)),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn collect(&mut self, batch: BatchId, waker: &Waker) -> Option<Result<(), Error>> {
        let cell = self.shared.ports.get(usize::from(self.port))?;
        cell.with(|port| match port.ring() {
            Some(ring) => ring.collect(batch, waker),
            // A ring goes only when every failure on it was collected.
            None => Some(Ok(())),
        })
    }

    /// Stages the next batch where that is possible now, and rings at once if it is `STARTED`, or if
    /// the device is idle and no other copy was made that could share the doorbells. Then the batch
    /// may end here.
    #[inline(always)]
    fn try_stage<const STARTED: bool>(&mut self, waker: Option<&Waker>) -> Option<()> {
        let ticket = match self.stage {
            Stage::New => None,
            Stage::Queued(ticket) => Some(ticket),
            Stage::InFlight(_) | Stage::Done | Stage::Over => return None,
        };
        if self.remaining == 0 {
            return None;
        }
        let bytes = self.remaining.min(MAX_BATCH_BYTES);
        let span = Span {
            source: self.source,
            destination: self.destination,
            bytes,
            fixed_source: self.fixed_source,
        };
        let left = self.remaining - bytes;
        let shared = &*self.shared;
        let (pins, reads_fill_source) = (&mut self.pins, self.reads_fill_source);
        let cell = shared.ports.get(usize::from(self.port))?;
        let is_unstaged = &mut self.is_unstaged;
        let stage = cell.with(|port| {
            let ring = port.admit(data_descriptors(bytes), ticket)?;
            trace_stage(shared, ring.name, span, left);
            // The pins of the whole transfer go with its last batch.
            let mut more;
            let pins = if left == 0 {
                pins
            } else {
                more = pins.clone();
                &mut more
            };
            let batch = ring.stage(span, pins, reads_fill_source)?;
            let is_last = core::mem::take(is_unstaged) && cell.note_staged();
            if STARTED || (is_last && left == 0 && ring.is_device_idle()) {
                completion::ring_now(shared, ring);
                if completion::sweep_in_passing(shared, port, batch) && left == 0 {
                    return Some(Stage::Done);
                }
            }
            if let (Some(ring), Some(waker)) = (port.ring(), waker) {
                ring.leave_waker(batch, waker);
            }
            if let Some(ticket) = ticket {
                port.leave(ticket);
            }
            Some(Stage::InFlight(batch))
        })?;
        self.stage = stage;
        // From here on the record counts as the reader.
        self.reads_fill_source = false;
        self.remaining = left;
        if left != 0 {
            self.advance(bytes);
        }
        Some(())
    }

    fn advance(&mut self, bytes: u64) {
        self.destination.0 = self.destination.0.wrapping_add(bytes);
        if !self.fixed_source {
            self.source.0 = self.source.0.wrapping_add(bytes);
        }
    }

    /// Queues for a turn, or ends with the reason why there will be none.
    #[cold]
    fn wait(&mut self, waker: &Waker) -> Poll<Result<(), Error>> {
        let ticket = match self.stage {
            Stage::New => None,
            Stage::Queued(ticket) => Some(ticket),
            Stage::InFlight(_) | Stage::Done | Stage::Over => {
                let what = "poll after the end of a copy";
                return Poll::Ready(Err(Error::InvalidArgument { what, value: 0 }));
            }
        };
        if let Some(error) = self.refusal() {
            self.give_up();
            return Poll::Ready(Err(error));
        }
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
        if self.remaining == 0 {
            return Some(NOTHING);
        }
        match self.shared.ports.get(usize::from(self.port)) {
            Some(cell) => cell.with(|port| port.refusal()),
            None => Some(Error::InvalidArgument { what: "core", value: 0xff }),
        }
    }

    /// Leaves whatever the transfer holds or waits for; a batch in flight goes on alone.
    #[cold]
    fn give_up(&mut self) {
        let stage = core::mem::replace(&mut self.stage, Stage::Over);
        if self.reads_fill_source {
            self.reads_fill_source = false;
            self.shared.fill.release(1);
        }
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return };
        if core::mem::take(&mut self.is_unstaged) {
            cell.note_staged();
        }
        match stage {
            Stage::InFlight(batch) => cell.with(|port| {
                if let Some(ring) = port.ring() {
                    ring.abandon(batch);
                }
            }),
            Stage::Queued(ticket) => {
                cell.with(|port| port.leave(ticket));
                self.shared.mark_dirty(self.port);
            }
            Stage::New | Stage::Done | Stage::Over => {}
        }
    }
}

#[inline(always)]
fn trace_stage<P: Platform>(shared: &Shared<P>, name: RingName, span: Span, pending: u64) {
    let event = TraceEvent::DmaMemcpy {
        core: name.core.number().into(),
        source: span.source.0,
        destination: span.destination.0,
        size: span.bytes,
        pending,
    };
    shared.records.trace.emit(event, || shared.platform.now());
}

impl<P: Platform> Drop for Transfer<P> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Over) {
            self.give_up();
        }
    }
}
