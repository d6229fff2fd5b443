//! One request on one ring, cut into batches (specification 03 §8). Copies and fills are made of
//! it.

use alloc::sync::Arc;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::Pin;
use axon_ports::telemetry::TraceEvent;

use super::completion::trace_start;
use super::port::Admission;
use super::ring::{MAX_BATCH_BYTES, Staging, data_descriptors};
use super::slab::{BatchId, Span};
use crate::Error;
use crate::shared::Shared;
use crate::wake::Ticket;

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

/// What came of trying to stage a batch.
enum Tried {
    Staged,
    Waits,
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
    #[inline]
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
        if let Tried::Staged = self.try_stage(Some(cx.waker()))? {
            self.shared.mark_dirty(self.port);
        }
        Poll::Pending
    }

    /// Stages the first batch and rings, if that is possible without waiting.
    pub(crate) fn try_start(&mut self) -> Result<(), Error> {
        if !matches!(self.stage, Stage::New) {
            return Ok(());
        }
        match self.try_stage(None)? {
            Tried::Waits => Err(Error::Again { what: "the ring is full or in reset" }),
            Tried::Staged => {
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
        }
    }

    #[inline]
    fn collect(&mut self, batch: BatchId, waker: &Waker) -> Option<Result<(), Error>> {
        let cell = self.shared.ports.get(usize::from(self.port))?;
        cell.with(|port| port.ring()?.collect(batch, waker))
    }

    /// Stages the next batch where it may be.
    #[inline]
    fn try_stage(&mut self, waker: Option<&Waker>) -> Result<Tried, Error> {
        let shared = self.shared.clone();
        let Some(cell) = shared.ports.get(usize::from(self.port)) else {
            return Err(self.over(Error::InvalidArgument { what: "core", value: 0xff }));
        };
        let bytes = self.remaining.min(MAX_BATCH_BYTES);
        let ticket = match self.stage {
            Stage::New => None,
            Stage::Queued(ticket) => Some(ticket),
            Stage::InFlight(_) | Stage::Over => {
                return Err(Error::InvalidArgument {
                    what: "poll after the end of a copy",
                    value: 0,
                });
            }
        };
        cell.with(|port| match port.admit(data_descriptors(bytes), ticket) {
            Admission::Go => {
                let Some(ring) = port.ring() else { return Ok(Tried::Waits) };
                let staging = self.take_batch(bytes);
                let event = TraceEvent::DmaMemcpy {
                    core: ring.name.core.number().into(),
                    source: staging.span.source.0,
                    destination: staging.span.destination.0,
                    size: bytes,
                    pending: self.remaining,
                };
                shared.records.trace.emit(event, || shared.platform.now());
                match ring.stage(staging, waker.cloned()) {
                    Some(batch) => self.stage = Stage::InFlight(batch),
                    None => return Err(Error::NoRecords),
                }
                if let Some(ticket) = ticket {
                    port.leave(ticket);
                }
                Ok(Tried::Staged)
            }
            Admission::Refused(error) => Err(self.over(error)),
            Admission::Wait => {
                if let Some(waker) = waker {
                    self.stage = Stage::Queued(port.wait(ticket, waker)?);
                }
                Ok(Tried::Waits)
            }
        })
    }

    /// The next `bytes` bytes, with the pins of the whole transfer behind the last ones.
    #[inline]
    fn take_batch(&mut self, bytes: u64) -> Staging {
        let last = bytes == self.remaining;
        let staging = Staging {
            span: Span {
                source: self.source,
                destination: self.destination,
                bytes,
                fixed_source: self.fixed_source,
            },
            pins: if last { core::mem::take(&mut self.pins) } else { self.pins.clone() },
            reads_fill_source: self.reads_fill_source,
        };
        // From here on the record counts as the reader.
        self.reads_fill_source = false;
        self.remaining -= bytes;
        self.destination.0 = self.destination.0.wrapping_add(bytes);
        if !self.fixed_source {
            self.source.0 = self.source.0.wrapping_add(bytes);
        }
        staging
    }

    fn over(&mut self, error: Error) -> Error {
        self.give_up();
        error
    }

    /// Leaves whatever the transfer holds or waits for; a batch in flight goes on alone.
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
