//! One request on one ring, cut into batches (specification 03 §8). Copies and fills are made of
//! it.

use alloc::sync::Arc;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::PinPair;
use axon_ports::telemetry::TraceEvent;

use super::completion;
use super::fill_source::FillSource;
use super::port::PortCell;
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
    pins: Option<PinPair>,
    stage: Stage,
    port: u8,
    fixed_source: bool,
    reads_fill_source: bool,
    /// Most bytes of the next batch.
    limit: u32,
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
        pins: PinPair,
    ) -> Self {
        let cell = shared.ports.get(usize::from(port));
        let is_unstaged = cell.inspect(|cell| cell.note_made()).is_some();
        Transfer {
            shared,
            source,
            destination,
            remaining: bytes,
            pins: Some(pins),
            stage: Stage::New,
            port,
            fixed_source: false,
            reads_fill_source: false,
            limit: MAX_BATCH_BYTES as u32,
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
        self.limit = FillSource::BYTES as u32;
    }

    /// Carries the transfer on; ends with its result.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.stage {
            Stage::InFlight(batch) => self.come_for(batch, cx),
            Stage::Done => {
                self.stage = Stage::Over;
                Poll::Ready(Ok(()))
            }
            _ => self.go_on(cx),
        }
    }

    /// One function, called from everywhere, so that all it does becomes part of it.
    #[inline(never)]
    fn go_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.try_stage::<false>(Some(cx.waker())).is_none() {
            return self.wait(cx.waker());
        }
        match self.stage {
            Stage::Done => {
                self.stage = Stage::Over;
                Poll::Ready(Ok(()))
            }
            // It was not the last batch, and has ended; the ring counts how often.
            Stage::New => self.go_on(cx),
            _ => {
                self.shared.mark_dirty(self.port);
                Poll::Pending
            }
        }
    }

    /// Comes for the result of a batch; goes on with the next one where there is more to move.
    #[inline(never)]
    fn come_for(&mut self, batch: BatchId, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let cell = self.shared.ports.get(usize::from(self.port));
        let has_ended_well = |cell: &PortCell| {
            cell.with(|port| port.ring().is_some_and(|ring| ring.has_ended_well(batch)))
        };
        if self.remaining == 0 && cell.is_some_and(has_ended_well) {
            self.stage = Stage::Over;
            return Poll::Ready(Ok(()));
        }
        self.come_in_vain(batch, cx)
    }

    /// The batch is not over, has failed, or there is more to move.
    #[inline(never)]
    fn come_in_vain(&mut self, batch: BatchId, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.collect(batch, cx.waker()) {
            None => Poll::Pending,
            Some(Ok(())) if self.remaining != 0 => {
                self.stage = Stage::New;
                self.go_on(cx)
            }
            Some(result) => {
                self.stage = Stage::Over;
                Poll::Ready(result)
            }
        }
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
        // Not what is empty, nor what is more than a batch.
        let is_whole = || self.remaining.wrapping_sub(1) < self.limit.into();
        if !matches!(self.stage, Stage::New) || !is_whole() {
            return self.try_stage_part(STARTED, waker);
        }
        let span = self.span(self.remaining);
        let shared = &*self.shared;
        let cell = shared.ports.get(usize::from(self.port))?;
        let (pins, is_unstaged) = (&mut self.pins, &mut self.is_unstaged);
        let reads_fill_source = self.reads_fill_source;
        let stage = cell.with(|port| {
            let ring = port.admit(data_descriptors(span.bytes), None)?;
            let is_traced = completion::is_traced(shared);
            if is_traced {
                trace_stage(shared, ring.name, span, 0);
            }
            let batch = ring.stage(span, pins, reads_fill_source)?;
            let is_last = core::mem::take(is_unstaged) && cell.note_staged();
            if STARTED || (is_last && ring.is_device_idle()) {
                completion::ring_now(shared, ring, is_traced);
                if completion::sweep_in_passing(shared, port, is_traced) {
                    return Some(Stage::Done);
                }
            }
            if let (Some(ring), Some(waker)) = (port.ring(), waker) {
                ring.leave_waker(batch, waker);
            }
            Some(Stage::InFlight(batch))
        })?;
        self.stage = stage;
        // From here on the record counts as the reader.
        self.reads_fill_source = false;
        self.remaining = 0;
        Some(())
    }

    /// As [`Transfer::try_stage`] for what has waited for its turn, and for what is more than a
    /// batch.
    #[cold]
    #[inline(never)]
    fn try_stage_part(&mut self, is_started: bool, waker: Option<&Waker>) -> Option<()> {
        let ticket = match self.stage {
            Stage::New => None,
            Stage::Queued(ticket) => Some(ticket),
            Stage::InFlight(_) | Stage::Done | Stage::Over => return None,
        };
        if self.remaining == 0 {
            return None;
        }
        let bytes = self.remaining.min(self.limit.into());
        let (span, left) = (self.span(bytes), self.remaining - bytes);
        let shared = &*self.shared;
        let cell = shared.ports.get(usize::from(self.port))?;
        // The pins of the whole transfer go with its last batch.
        let mut more = if left == 0 { None } else { self.pins.clone() };
        let pins = if left == 0 { &mut self.pins } else { &mut more };
        let (is_unstaged, reads_fill_source) = (&mut self.is_unstaged, self.reads_fill_source);
        let stage = cell.with(|port| {
            let ring = port.admit(data_descriptors(bytes), ticket)?;
            let is_traced = completion::is_traced(shared);
            if is_traced {
                trace_stage(shared, ring.name, span, left);
            }
            let batch = ring.stage(span, pins, reads_fill_source)?;
            let is_last = core::mem::take(is_unstaged) && cell.note_staged();
            let is_over = (is_started || (is_last && ring.is_device_idle())) && {
                completion::ring_now(shared, ring, is_traced);
                completion::look_in_passing(shared, port, is_traced)
            };
            if let (false, Some(ring), Some(waker)) = (is_over, port.ring(), waker) {
                ring.leave_waker(batch, waker);
            }
            if let Some(ticket) = ticket {
                port.leave(ticket);
            }
            Some(match is_over {
                true if left == 0 => Stage::Done,
                true => Stage::New,
                false => Stage::InFlight(batch),
            })
        })?;
        self.stage = stage;
        self.remaining = left;
        if left != 0 {
            self.advance(bytes);
        }
        self.reads_fill_source = false;
        if ticket.is_some() {
            // Who is next in line is called until somebody comes.
            self.shared.mark_dirty(self.port);
        }
        Some(())
    }

    /// The next `bytes`.
    #[inline(always)]
    fn span(&self, bytes: u64) -> Span {
        Span {
            source: self.source,
            destination: self.destination,
            bytes,
            fixed_source: self.fixed_source,
        }
    }

    /// Goes on behind `bytes` that were staged. What the fill buffer went to is read again and again,
    /// and goes to all behind it.
    fn advance(&mut self, bytes: u64) {
        if self.reads_fill_source {
            self.source = self.destination;
            self.fixed_source = true;
            self.limit = MAX_BATCH_BYTES as u32;
        }
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

#[cold]
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
