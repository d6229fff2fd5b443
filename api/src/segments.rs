//! Lists of segments: many ranges into one, and one into many (specification 03 §7.3, §8).
//!
//! ```no_run
//! use axon::{Client, DeviceBuffer, HostBuffer, Segment, SegmentsError};
//! use axon_platform::Platform;
//!
//! /// A header and two rows, one behind the other.
//! async fn pack<P: Platform>(
//!     client: &Client<P>,
//!     header: &HostBuffer<P>,
//!     rows: &DeviceBuffer<P>,
//!     packed: &DeviceBuffer<P>,
//! ) -> Result<(), SegmentsError> {
//!     let of = |handle, offset, len| Segment { handle, offset, len };
//!     let list = [
//!         of(header.handle(), 0, 64),
//!         of(rows.handle(), 8192, 4096),
//!         of(rows.handle(), 0, 4096),
//!     ];
//!     client.gather(&list, of(packed.handle(), 0, 64 + 2 * 4096))?.await
//! }
//! ```

use alloc::collections::BinaryHeap;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::pin::Pin as FuturePin;
use core::task::{Context, Poll};

use axon_neuron::Batch;
use axon_neuron::dma::Stop;
use axon_platform::{DeviceAddr, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{ChunkName, CoreId};

use crate::calls::Call;
use crate::client::Shared;
use crate::{Client, Error, Span, View};

/// Most data descriptors that share a marker, and bytes of each.
const MOST: u64 = 2032;
const BLOCK: u64 = 65_536;
/// Batches of one list that are in flight at once: as many full ones as a ring holds.
const AHEAD: usize = 4;

/// Part of a chunk of host or device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Handle of the chunk.
    pub handle: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes, not 0.
    pub len: u64,
}

/// Why a list was refused or failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentsError {
    /// First and last of the entries one of which it was: the same, where that is known; all of a
    /// batch, where the hardware does not tell; `None` for the list as a whole.
    pub entries: Option<(usize, usize)>,
    /// Why.
    pub error: Error,
}

impl SegmentsError {
    fn of(entry: usize, error: impl Into<Error>) -> Self {
        SegmentsError { entries: Some((entry, entry)), error: error.into() }
    }

    fn whole(error: impl Into<Error>) -> Self {
        SegmentsError { entries: None, error: error.into() }
    }
}

impl fmt::Display for SegmentsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entries {
            Some((first, last)) if first == last => write!(f, "entry {first}: {}", self.error),
            Some((first, last)) => write!(f, "entries {first} to {last}: {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl core::error::Error for SegmentsError {}

/// Which entry the descriptors of a batch are of, up to this one.
#[derive(Clone, Copy)]
struct Step {
    end: u64,
    entry: usize,
}

/// Entries, or parts of such, on one ring behind one marker.
struct Part<P: Platform> {
    batch: Batch<P>,
    core: CoreId,
    steps: Vec<Step>,
    /// The chunks that were held last: one entry often lies in that of the one before.
    held: [Option<ChunkName>; 2],
}

impl<P: Platform> Part<P> {
    fn new(client: &Shared<P>, core: CoreId, limit: usize) -> Result<Self, axon_neuron::Error> {
        let mut steps = Vec::new();
        let room = steps.try_reserve_exact(limit);
        room.map_err(|_| axon_neuron::Error::NoRecords)?;
        let mut batch = client.device.neuron().dma().batch(limit)?;
        batch.serve(core);
        Ok(Part { batch, core, steps, held: [None, None] })
    }

    fn descriptors(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.end)
    }

    /// Adds as much of a copy as there is room for; answers how much.
    fn push(
        &mut self,
        entry: usize,
        ends: [&Span<'_, P>; 2],
        [from, to]: [DeviceAddr; 2],
        len: u64,
    ) -> Result<u64, axon_neuron::Error> {
        let taken = len.min((MOST - self.descriptors()) * BLOCK);
        for (held, span) in self.held.iter_mut().zip(ends) {
            let name = span.pin.header().name();
            if *held != Some(name) {
                self.batch.hold(span.pin.clone())?;
                *held = Some(name);
            }
        }
        self.batch.push(from, to, taken)?;
        let end = self.descriptors() + taken.div_ceil(BLOCK);
        self.steps.push(Step { end, entry });
        Ok(taken)
    }

    /// Which entries an error of the batch is about.
    fn explain(&self, error: axon_neuron::Error) -> SegmentsError {
        let first = self.steps.first().map_or(0, |step| step.entry);
        let last = self.steps.last().map_or(first, |step| step.entry);
        let all = (first, last);
        let stop = match error {
            axon_neuron::Error::DmaAborted { stop, .. }
            | axon_neuron::Error::DmaTimeout { stop, .. } => stop,
            axon_neuron::Error::Cancelled { .. } => Stop::Unknown,
            // Nothing was staged.
            error => return SegmentsError::whole(error),
        };
        let entries = match stop {
            Stop::At { descriptor, is_logged, .. } => {
                let at = self.steps.partition_point(|step| step.end <= u64::from(descriptor));
                match self.steps.get(at) {
                    Some(step) if is_logged => (step.entry, step.entry),
                    Some(step) => (step.entry, last),
                    // The marker.
                    None => all,
                }
            }
            Stop::Executed | Stop::Unknown => all,
        };
        SegmentsError { entries: Some(entries), error: error.into() }
    }
}

/// The copies of a list: one batch, with one marker and one pair of doorbells, for each ring and
/// each 2032 descriptors. Where the ring is full it waits for its turn.
///
/// Dropping it cancels nothing in hardware: what was started goes on, and its memory stays pinned
/// until the hardware is done with it.
///
/// # Errors
/// As those of [`crate::Transfer`], with the entries that it may have been; then the targets of all
/// entries are undefined. Everything that was started has ended before it is told.
#[must_use = "a list does nothing unless it is started or awaited"]
pub struct SegmentCopy<P: Platform> {
    parts: VecDeque<Part<P>>,
    failure: Option<SegmentsError>,
}

impl<P: Platform> SegmentCopy<P> {
    /// Starts now instead of at the first poll; where a ring is full or in reset, at the first poll
    /// after all.
    pub fn start(mut self) -> Self {
        // Whatever speaks against it is told when it is awaited.
        let _ = self.try_start();
        self
    }

    /// Starts now or not at all: the first batch, and as many behind it as there is room for.
    ///
    /// # Errors
    /// [`Error::Again`] where the ring is full or in reset: nothing is staged, and the list may
    /// still be awaited. Any other error is its result.
    pub fn try_start(&mut self) -> Result<(), SegmentsError> {
        let mut is_started = false;
        for part in self.parts.iter_mut().take(AHEAD) {
            match part.batch.try_start() {
                Ok(()) => is_started = true,
                Err(_) if is_started => break,
                Err(error) => return Err(part.explain(error)),
            }
        }
        Ok(())
    }

    /// Appends the copy of one entry, cut where a batch is full.
    fn add(
        &mut self,
        client: &Shared<P>,
        entry: usize,
        left_behind: usize,
        [from, to]: [&Span<'_, P>; 2],
        within: [u64; 2],
    ) -> Result<(), axon_neuron::Error> {
        let core = from.ring_core(to);
        let len = from.len.min(to.len);
        let at = [from.address, to.address].map(|address| address.0);
        let event = TraceEvent::MemCopy {
            source: at[0].wrapping_add(within[0]),
            destination: at[1].wrapping_add(within[1]),
        };
        client.device.trace(event);
        let mut done = 0;
        while done < len {
            let open = self.parts.iter().rposition(|part| part.core == core);
            let open =
                open.filter(|&at| self.parts.get(at).is_some_and(|part| part.descriptors() < MOST));
            let at_part = match open {
                Some(at_part) => at_part,
                None => {
                    self.parts.try_reserve(1).map_err(|_| axon_neuron::Error::NoRecords)?;
                    let limit = left_behind.clamp(1, MOST as usize);
                    self.parts.push_back(Part::new(client, core, limit)?);
                    self.parts.len() - 1
                }
            };
            let Some(part) = self.parts.get_mut(at_part) else { break };
            // Checked ranges do not wrap.
            let places = [0, 1].map(|end| DeviceAddr(at[end].wrapping_add(within[end] + done)));
            done += part.push(entry, [from, to], places, len - done)?;
        }
        Ok(())
    }
}

impl<P: Platform> Future for SegmentCopy<P> {
    type Output = Result<(), SegmentsError>;

    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut at = 0;
        while at < AHEAD {
            let Some(part) = this.parts.get_mut(at) else { break };
            if this.failure.is_some() && !part.batch.is_in_flight() {
                // What is in flight ends first; nothing new is staged.
                this.parts.remove(at);
                continue;
            }
            match FuturePin::new(&mut part.batch).poll(cx) {
                Poll::Pending => at += 1,
                Poll::Ready(result) => {
                    if let Err(error) = result {
                        let failed = part.explain(error);
                        this.failure.get_or_insert(failed);
                        // From the front again: what waits for its turn goes.
                        at = 0;
                    }
                    this.parts.retain(|part| !part.batch.is_open() || !part.batch.is_empty());
                }
            }
        }
        if !this.parts.is_empty() {
            return Poll::Pending;
        }
        Poll::Ready(this.failure.map_or(Ok(()), Err))
    }
}

/// Ranges that one list writes: none of them twice.
fn check_disjoint(mut written: BinaryHeap<(u64, u64, usize)>) -> Result<(), SegmentsError> {
    let (mut lowest, mut of) = (u64::MAX, 0);
    while let Some((start, end, entry)) = written.pop() {
        if end > lowest {
            return Err(overlap(entry.max(of), start));
        }
        (lowest, of) = (start, entry);
    }
    Ok(())
}

fn overlap(entry: usize, value: u64) -> SegmentsError {
    SegmentsError::of(entry, Error::InvalidArgument { what: "overlap of segments at", value })
}

impl<P: Platform> Client<P> {
    /// Copies the segments of `from`, in their order and without gaps, to `to`, whose length is
    /// their sum. Sources may be host and device memory of any core, also another client's, and
    /// may overlap each other. Everything is checked before the first byte moves.
    ///
    /// # Errors
    /// With the number of the entry: [`Error::BadHandle`]; [`Error::InvalidArgument`] for a segment
    /// of size 0 and for one that overlaps the target; [`Error::OutOfRange`], also for sums that
    /// wrap. For the list as a whole: [`Error::InvalidArgument`] for an empty list, a sum that
    /// wraps and a target of another length; what is wrong with the target, [`Error::WrongOwner`]
    /// too; [`Error::NoRecords`]; [`Error::NotAttached`].
    pub fn gather(&self, from: &[Segment], to: Segment) -> Result<SegmentCopy<P>, SegmentsError> {
        self.segments(from, to, true)
    }

    /// Copies `from` to the segments of `to`, in their order. Targets may be host memory and that
    /// of any core. Everything is checked before the first byte moves.
    ///
    /// # Errors
    /// As [`Client::gather`] with the ends exchanged: [`Error::WrongOwner`] names an entry, and so
    /// does [`Error::InvalidArgument`] for two targets that overlap.
    pub fn scatter(&self, from: Segment, to: &[Segment]) -> Result<SegmentCopy<P>, SegmentsError> {
        self.segments(to, from, false)
    }

    fn segments(
        &self,
        list: &[Segment],
        whole: Segment,
        gathers: bool,
    ) -> Result<SegmentCopy<P>, SegmentsError> {
        Call::Copy.admit(self.access()).map_err(SegmentsError::whole)?;
        let client: &Arc<Shared<P>> = self.shared();
        let view = |segment: &Segment, writes: bool| -> Result<Span<'_, P>, Error> {
            let view = View::of(client, client.device.memory().lookup(segment.handle)?)?;
            if writes {
                view.check_writable()?;
            }
            view.span_at(segment.offset, segment.len)
        };
        if list.is_empty() {
            let nothing = Error::InvalidArgument { what: "segments", value: 0 };
            return Err(SegmentsError::whole(nothing));
        }
        let contiguous = view(&whole, gathers).map_err(SegmentsError::whole)?;
        let (start, end) = (contiguous.address.0, contiguous.address.0 + contiguous.len);
        let mut written = Vec::new();
        let wanted = if gathers { 0 } else { list.len() };
        let no_room = |_| SegmentsError::whole(axon_neuron::Error::NoRecords);
        written.try_reserve_exact(wanted).map_err(no_room)?;
        let mut copies = SegmentCopy { parts: VecDeque::new(), failure: None };
        let mut sum = 0u64;
        for (entry, segment) in list.iter().enumerate() {
            let span = view(segment, !gathers).map_err(|error| SegmentsError::of(entry, error))?;
            let (first, behind) = (span.address.0, span.address.0 + span.len);
            if first < end && start < behind {
                return Err(overlap(entry, first));
            }
            let length = Error::InvalidArgument { what: "length of the whole", value: whole.len };
            let within = sum;
            sum = sum.checked_add(span.len).ok_or(SegmentsError::of(entry, length))?;
            if sum > whole.len {
                return Err(SegmentsError::of(entry, length));
            }
            if !gathers {
                written.push((first, behind, entry));
            }
            let (ends, offsets) = match gathers {
                true => ([&span, &contiguous], [0, within]),
                false => ([&contiguous, &span], [within, 0]),
            };
            let added = copies.add(client, entry, list.len() - entry, ends, offsets);
            added.map_err(|error| SegmentsError::of(entry, error))?;
        }
        if sum != whole.len {
            let length = Error::InvalidArgument { what: "length of the whole", value: whole.len };
            return Err(SegmentsError::whole(length));
        }
        check_disjoint(BinaryHeap::from(written))?;
        Ok(copies)
    }
}
