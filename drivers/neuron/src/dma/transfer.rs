//! One request on one ring, cut into batches (specification 03 §8). Copies and fills are made of
//! it.

use alloc::sync::Arc;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::Pin;
use axon_ports::telemetry::TraceEvent;

use super::completion::trace_start;
use super::ring::{MAX_BATCH_BYTES, data_descriptors};
use super::slab::{BatchId, Span};
use crate::Error;
use crate::shared::Shared;
use crate::wake::Ticket;

/// Size 0 is refused wherever data moves (03 §8).
pub(super) const NOTHING: Error = Error::InvalidArgument { what: "transfer size", value: 0 };

/// Where a transfer stands.
enum Stage {
    /// The next batch is not staged.
    New,
    /// It waits for its turn.
    Queued(Ticket),
    /// It is staged.
    InFlight(BatchId),
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
        }
    }

    /// Every descriptor reads the first 64 KiB of the source.
    pub(crate) fn with_fixed_source(mut self) -> Self {
        self.fixed_source = true;
        self
    }

    /// The source is the fill buffer, of which this is a reader.
    pub(crate) fn with_fill_source(mut self) -> Self {
        self.reads_fill_source = true;
        self
    }

    /// Carries the transfer on; ends with its result.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
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
        if self.try_stage(Some(cx.waker())) {
            self.shared.mark_dirty(self.port);
            return Poll::Pending;
        }
        self.wait(cx.waker())
    }

    /// Waits until the first batch is staged.
    pub(crate) fn poll_staged(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if matches!(self.stage, Stage::New | Stage::Queued(_))
            && let Poll::Ready(result) = self.poll(cx)
        {
            return Poll::Ready(result);
        }
        match self.stage {
            Stage::InFlight(_) | Stage::Over => Poll::Ready(Ok(())),
            Stage::New | Stage::Queued(_) => Poll::Pending,
        }
    }

    /// Stages the first batch and rings, if that is possible without waiting.
    pub(crate) fn try_start(&mut self) -> Result<(), Error> {
        if !matches!(self.stage, Stage::New) {
            return Ok(());
        }
        if !self.try_stage(None) {
            return Err(match self.refusal() {
                Some(error) => error,
                None => Error::Again { what: "the ring is full or in reset" },
            });
        }
        self.shared.platform.write_barrier();
        if let Some(cell) = self.shared.ports.get(usize::from(self.port)) {
            cell.with(|port| {
                if let Some(ring) = port.ring() {
                    let announced = ring.ring_doorbells(&self.shared.registers);
                    trace_start(&self.shared, ring.name, announced);
                }
            });
        }
        self.shared.mark_dirty(self.port);
        Ok(())
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

    /// Stages the next batch where that is possible now.
    #[inline(always)]
    fn try_stage(&mut self, waker: Option<&Waker>) -> bool {
        let ticket = match self.stage {
            Stage::New => None,
            Stage::Queued(ticket) => Some(ticket),
            Stage::InFlight(_) | Stage::Over => return false,
        };
        if self.remaining == 0 {
            return false;
        }
        let bytes = self.remaining.min(MAX_BATCH_BYTES);
        let span = Span {
            source: self.source,
            destination: self.destination,
            bytes,
            fixed_source: self.fixed_source,
        };
        let last = bytes == self.remaining;
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return false };
        let staged = cell.with(|port| {
            let ring = port.admit(data_descriptors(bytes), ticket)?;
            let event = TraceEvent::DmaMemcpy {
                core: ring.name.core.number().into(),
                source: span.source.0,
                destination: span.destination.0,
                size: bytes,
                pending: self.remaining - bytes,
            };
            self.shared.records.trace.emit(event, || self.shared.platform.now());
            // The pins of the whole transfer go with its last batch.
            let mut more;
            let pins = if last {
                &mut self.pins
            } else {
                more = self.pins.clone();
                &mut more
            };
            let batch = ring.stage(span, pins, self.reads_fill_source, waker.cloned())?;
            if let Some(ticket) = ticket {
                port.leave(ticket);
            }
            Some(batch)
        });
        let Some(batch) = staged else { return false };
        self.stage = Stage::InFlight(batch);
        // From here on the record counts as the reader.
        self.reads_fill_source = false;
        self.remaining -= bytes;
        if !last {
            self.advance(bytes);
        }
        true
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
            Stage::InFlight(_) | Stage::Over => {
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
        match stage {
            Stage::InFlight(batch) => cell.with(|port| {
                if let Some(ring) = port.ring() {
                    ring.abandon(batch);
                }
            }),
            Stage::Queued(ticket) => cell.with(|port| port.leave(ticket)),
            Stage::New | Stage::Over => {}
        }
    }
}

impl<P: Platform> Drop for Transfer<P> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Over) {
            self.give_up();
        }
    }
}
