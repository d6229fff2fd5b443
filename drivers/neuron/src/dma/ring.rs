//! One host-transfer ring: staging, doorbells, markers (specification 03 §6, §7).
//!
//! A ring is the unit of ordering, of faulting and of reset. It executes in order, so only the
//! oldest marker has to be looked at. Everything here runs within one poll; nothing awaits.

use alloc::vec::Vec;

use axon_platform::{DeviceAddr, Instant, MmioWindow};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{CoreId, EngineId, Pin, PinPair, QueueId};
use core::task::Waker;

use super::cursor::Cursor;
use super::descriptor::{Barrier, MAX_BYTES, pair};
use super::memory::RingMemory;
use super::pieces::{Piece, PieceList};
use super::quarantine::NO_PAIR_LENT;
use super::queue::HardwareQueue;
use super::slab::{BatchId, Hardware, List, Marker, Outcome, SLOTS, Slab, Slot, Span};
use crate::Error;

/// Most data descriptors of one batch.
pub(crate) const MAX_DATA: u64 = 2032;
/// Most bytes of one batch: 127 MiB.
pub(crate) const MAX_BATCH_BYTES: u64 = MAX_DATA * MAX_BYTES;

/// First marker value of a ring.
const FIRST_MARKER: u32 = 0xabcd_ef01;
/// Descriptors of a marker.
const MARKER_DESCRIPTORS: u32 = 1;

/// Who a ring is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingName {
    /// Engine.
    pub engine: EngineId,
    /// Queue of the engine.
    pub queue: QueueId,
    /// Core whose copies it carries.
    pub core: CoreId,
    /// UDMA unit in the register window.
    pub unit: u64,
}

/// Whether the hardware runs the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Running.
    Running,
    /// Paused after a fault; waiting until nothing is under way (03 §7.8-1).
    Draining {
        /// Given up then.
        until: Instant,
        /// Time the late batch was given; µs.
        waited_us: u64,
    },
    /// Paused for a reset; waiting until nothing is under way.
    Closing,
    /// Not running.
    Stopped,
}

/// Data descriptors of a span.
#[inline]
pub(crate) fn data_descriptors(bytes: u64) -> u32 {
    bytes.div_ceil(MAX_BYTES) as u32
}

/// What has been counted on one ring.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RingCounters {
    // Those that count together are not neighbours: two additions cost less than one of a vector.
    pub descriptors: u64,
    pub doorbells: u64,
    pub batches: u64,
    pub completed: u64,
    pub timeouts: u64,
    pub bytes: u64,
    pub aborts: u64,
    pub cancelled: u64,
    pub replays: u64,
}

impl RingCounters {
    /// Adds what another ring has counted.
    pub(crate) fn add(&mut self, other: &RingCounters) {
        self.doorbells += other.doorbells;
        self.descriptors += other.descriptors;
        self.batches += other.batches;
        self.bytes += other.bytes;
        self.completed += other.completed;
        self.timeouts += other.timeouts;
        self.aborts += other.aborts;
        self.cancelled += other.cancelled;
        self.replays += other.replays;
    }
}

/// A ring with memory.
pub(crate) struct Ring {
    pub(crate) name: RingName,
    pub(super) memory: RingMemory,
    pub(super) queue: HardwareQueue,
    pub(super) cursor: Cursor,
    pub(super) slab: Slab,
    /// Batches whose marker is awaited, in ring order.
    pub(super) in_flight: List,
    /// Batches caught by a reset, in ring order.
    pub(super) suspended: List,
    /// Batches given up but not proven quiet.
    pub(super) quarantined: List,
    /// Memory written by batches without a barrier, until one is staged behind them.
    pub(super) unordered: Vec<Pin>,
    /// Descriptors staged and not yet announced.
    staged: u32,
    pub(super) next_value: u32,
    /// When the oldest batch was first seen to be the oldest.
    pub(super) oldest_since: Option<Instant>,
    /// When its engine is looked at, if it has not ended by then.
    pub(super) look_at: Instant,
    pub(super) phase: Phase,
    /// Marker pairs lent to later laps: pairs 256 to 510.
    pub(super) spare_pairs: [u64; 4],
    /// Looks by others than the completion task since its last turn.
    pub(super) in_passing: u32,
    /// Batches that ended and had read the fill buffer.
    pub(crate) fill_reads_over: u32,
    pub(super) counters: RingCounters,
    /// Raised at each re-programming.
    pub(super) epoch: u32,
    /// It did not drain, or its engine stopped on an error.
    pub(crate) needs_reset: bool,
}

impl Ring {
    /// A ring that is not programmed yet.
    pub(crate) fn new(name: RingName, memory: RingMemory) -> Result<Self, Error> {
        Ok(Ring {
            queue: HardwareQueue::new(name.unit, name.queue.number().into()),
            cursor: Cursor::new(memory.mask()),
            slab: Slab::new()?,
            in_flight: List::EMPTY,
            suspended: List::EMPTY,
            quarantined: List::EMPTY,
            unordered: Vec::new(),
            staged: 0,
            next_value: FIRST_MARKER,
            oldest_since: None,
            look_at: Instant::from_nanos(0),
            phase: Phase::Stopped,
            spare_pairs: NO_PAIR_LENT,
            in_passing: 0,
            fill_reads_over: 0,
            counters: RingCounters::default(),
            epoch: 0,
            needs_reset: false,
            name,
            memory,
        })
    }

    /// Resets the hardware queue onto this ring and starts it. Marker values go on counting.
    pub(crate) fn program<W: MmioWindow>(&mut self, registers: &W) {
        self.queue.program(registers, self.memory.tx_place(), self.memory.rx_place());
        self.cursor.restart();
        self.staged = 0;
        self.epoch = self.epoch.wrapping_add(1);
        self.phase = Phase::Running;
        self.oldest_since = None;
    }

    /// The trace event of [`Ring::program`].
    pub(crate) fn trace_init(&self) -> TraceEvent {
        let (tx, rx) = (self.memory.tx_place(), self.memory.rx_place());
        TraceEvent::DmaQueueInit {
            engine: self.name.engine.number().into(),
            queue: self.name.queue.number().into(),
            port: 0,
            tx_count: tx.length.into(),
            rx_count: rx.length.into(),
            tx_ring: tx.base.0,
            rx_ring: rx.base.0,
            completion_ring: 0,
        }
    }

    /// What has been counted.
    pub(crate) fn counters(&self) -> RingCounters {
        self.counters
    }

    /// Whether a batch of `data` data descriptors can be staged now.
    #[inline]
    pub(crate) fn has_room(&self, data: u32) -> bool {
        self.cursor.free() > data && self.slab.free() > 0
    }

    /// Whether no slot will come free without a reset.
    pub(crate) fn is_choked(&self) -> bool {
        usize::from(self.quarantined.len()) == SLOTS
    }

    /// Stages one batch: data, barrier, marker. Nothing is announced to the device yet. The caller
    /// has seen that there is room; without a free record nothing is staged.
    ///
    /// `pins` go into the record, which has none.
    #[inline(always)]
    pub(crate) fn stage(
        &mut self,
        span: Span,
        pins: &mut Option<PinPair>,
        reads_fill_source: bool,
    ) -> Option<BatchId> {
        let slot = self.slab.take()?;
        let value = self.take_value();
        let record = &mut self.slab[slot];
        let marker = Marker { pair: record.marker.pair, value };
        let mut pen = Pen { memory: &self.memory, cursor: self.cursor, count: 0 };
        pen.write_span(&span);
        pen.mark(marker);
        record.reads_fill_source = reads_fill_source;
        record.is_special = false;
        record.pins = pins.take();
        record.enter(value, pen.count, span);
        let Pen { cursor, count, .. } = pen;
        self.put_down(cursor, count);
        self.slab.push(&mut self.in_flight, slot);
        Some(BatchId { slot, number: value })
    }

    /// Stages a list as one batch, with one marker behind its last copy. The caller has seen that
    /// there is room for its descriptors; without a free record nothing is staged. The list stays
    /// in the record until [`Ring::collect_list`].
    #[inline]
    pub(crate) fn stage_list(
        &mut self,
        list: &mut PieceList,
        waker: Option<Waker>,
    ) -> Option<BatchId> {
        let slot = self.slab.take()?;
        let value = self.take_value();
        let marker = Marker { pair: self.slab[slot].marker.pair, value };
        let count = self.write_list(list.pieces(), marker);
        let span = list.span();
        let record = &mut self.slab[slot];
        record.list = Some(core::mem::take(list));
        record.is_special = true;
        record.enter(value, count, span);
        record.waker = waker;
        self.slab.push(&mut self.in_flight, slot);
        Some(BatchId { slot, number: value })
    }

    #[inline]
    pub(super) fn take_value(&mut self) -> u32 {
        let value = self.next_value;
        self.next_value = match value.wrapping_add(1) {
            0 => 1,
            next => next,
        };
        value
    }

    /// Writes the descriptors of one batch and arms its marker; answers how many a side.
    pub(super) fn write_batch(&mut self, span: &Span, marker: Marker) -> u32 {
        let mut pen = Pen { memory: &self.memory, cursor: self.cursor, count: 0 };
        pen.write_span(span);
        pen.mark(marker);
        let Pen { cursor, count, .. } = pen;
        self.put_down(cursor, count)
    }

    /// As [`Ring::write_batch`], for a list.
    pub(super) fn write_list(&mut self, pieces: &[Piece], marker: Marker) -> u32 {
        let mut pen = Pen { memory: &self.memory, cursor: self.cursor, count: 0 };
        if let Some((&last, others)) = pieces.split_last() {
            for &piece in others {
                pen.write(piece, MAX_BYTES, Barrier::None);
            }
            pen.write(last, MAX_BYTES, Barrier::Write);
        }
        pen.mark(marker);
        let Pen { cursor, count, .. } = pen;
        self.put_down(cursor, count)
    }

    #[inline(always)]
    fn put_down(&mut self, cursor: Cursor, count: u32) -> u32 {
        self.cursor.move_to(cursor);
        self.announce_later(count);
        count
    }

    /// `count` more descriptors a side were written, one batch of them.
    #[inline(always)]
    pub(super) fn announce_later(&mut self, count: u32) {
        self.staged += count;
        self.counters.descriptors += u64::from(count);
        self.counters.batches += 1;
    }

    /// Whether the device has nothing to do on this ring until it is told of more.
    #[inline]
    pub(crate) fn is_device_idle(&self) -> bool {
        self.cursor.used() == self.staged
    }

    /// Announces everything staged: receive side first, one write a side; answers how many
    /// descriptors a side. The caller has issued the write barrier.
    #[inline]
    pub(crate) fn ring_doorbells<W: MmioWindow>(&mut self, registers: &W) -> u32 {
        if self.staged == 0 || self.phase != Phase::Running {
            return 0;
        }
        registers.write32(self.queue.s2m_doorbell(), self.staged);
        registers.write32(self.queue.m2s_doorbell(), self.staged);
        self.counters.doorbells += 2;
        core::mem::take(&mut self.staged)
    }

    /// Retires every batch whose marker is there, oldest first; answers how many.
    #[inline(always)]
    pub(crate) fn sweep(&mut self) -> u32 {
        let mut retired = 0;
        let mut over = Over::default();
        while let Some(slot) = self.in_flight.first() {
            let Marker { pair, value } = self.slab[slot].marker;
            if !self.memory.is_marked(pair, value) {
                break;
            }
            self.memory.disarm(pair);
            self.slab.pop(&mut self.in_flight);
            self.retire(slot, &mut over);
            retired += 1;
        }
        if retired != 0 {
            self.cursor.acknowledge(over.descriptors);
            self.counters.completed += u64::from(retired);
            self.counters.bytes += over.bytes;
            self.fill_reads_over += over.fill_reads;
            self.oldest_since = None;
        }
        retired
    }

    /// Ends a batch whose marker was seen.
    #[inline(always)]
    fn retire(&mut self, slot: Slot, over: &mut Over) {
        let record = &mut self.slab[slot];
        over.descriptors += record.count;
        over.bytes += record.span.bytes;
        record.hardware = Hardware::Quiet;
        record.outcome = Outcome::Done;
        let waker = record.waker.take();
        record.pins = None;
        over.fill_reads += u32::from(record.reads_fill_source);
        record.reads_fill_source = false;
        if record.is_special {
            self.retire_special(slot);
        } else {
            self.slab.release(slot);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Gives back what most batches do not have, then the record, unless a list is to be collected.
    #[inline(never)]
    fn retire_special(&mut self, slot: Slot) {
        self.slab[slot].unpin();
        self.tidy(slot);
        self.slab.release_if_over(slot);
    }

    /// The hardware can no longer reach what the batch named.
    pub(super) fn quiet(&mut self, slot: Slot) {
        let record = &mut self.slab[slot];
        record.hardware = Hardware::Quiet;
        record.unpin();
        self.tidy(slot);
        self.slab.release_if_over(slot);
    }

    /// Gives back what only some batches take.
    #[cold]
    fn tidy(&mut self, slot: Slot) {
        self.end_fill_read(slot);
        if self.slab[slot].laps != 0 {
            self.return_pairs(slot);
        }
    }

    /// The batch no longer counts as a reader of the fill buffer. A batch in quarantine may read
    /// it once more, but what it writes then is undefined anyway.
    pub(super) fn end_fill_read(&mut self, slot: Slot) {
        let record = &mut self.slab[slot];
        if record.reads_fill_source {
            record.reads_fill_source = false;
            self.fill_reads_over += 1;
        }
    }

    /// A future comes for the result of its batch, or leaves its waker.
    #[inline]
    pub(crate) fn collect(&mut self, batch: BatchId, waker: &Waker) -> Option<Result<(), Error>> {
        let record = &mut self.slab[batch.slot];
        if record.number != batch.number {
            return Some(Ok(()));
        }
        match record.outcome {
            Outcome::Done => Some(Ok(())),
            Outcome::Pending => {
                match &mut record.waker {
                    Some(known) if known.will_wake(waker) => {}
                    place => *place = Some(waker.clone()),
                }
                None
            }
            _ => Some(Err(self.collect_failure(batch.slot))),
        }
    }

    /// Leaves a waker with a batch that was staged just now and has not ended.
    #[inline(always)]
    pub(crate) fn leave_waker(&mut self, batch: BatchId, waker: &Waker) {
        self.slab[batch.slot].waker = Some(waker.clone());
    }

    /// Whether a batch that is no list has ended well.
    #[inline(always)]
    pub(crate) fn has_ended_well(&self, batch: BatchId) -> bool {
        let record = &self.slab[batch.slot];
        record.number != batch.number || record.outcome == Outcome::Done
    }

    /// Whether the device has ended all that it was told of.
    #[inline(always)]
    pub(crate) fn has_ended_all(&self) -> bool {
        self.in_flight.len() == 0
    }

    #[cold]
    fn collect_failure(&mut self, slot: Slot) -> Error {
        let error = self.error_of(slot);
        self.slab[slot].awaited = false;
        self.slab.release_if_over(slot);
        error
    }

    /// As [`Ring::collect`] for a batch of [`Ring::stage_list`]; with its end the room of the list
    /// comes back, empty.
    pub(crate) fn collect_list(
        &mut self,
        batch: BatchId,
        waker: &Waker,
        list: &mut PieceList,
    ) -> Option<Result<(), Error>> {
        let record = &mut self.slab[batch.slot];
        if record.number == batch.number && record.outcome != Outcome::Pending {
            if record.outcome == Outcome::Done {
                if let Some(mut over) = record.list.take() {
                    over.clear();
                    *list = over;
                }
                record.awaited = false;
                self.slab.release_if_over(batch.slot);
                return Some(Ok(()));
            }
            // Memory that is not proven quiet stays with the record.
            if let Some(kept) = &mut record.list {
                *list = kept.without_pins();
            }
        }
        self.collect(batch, waker)
    }

    /// A future is gone: its batch goes on without it (03 §15).
    pub(crate) fn abandon(&mut self, batch: BatchId) {
        let record = &mut self.slab[batch.slot];
        let is_over = record.outcome == Outcome::Done && record.list.is_none();
        if record.number != batch.number || is_over {
            return;
        }
        record.awaited = false;
        record.waker = None;
        self.slab.release_if_over(batch.slot);
    }

    #[cold]
    fn error_of(&mut self, slot: Slot) -> Error {
        let RingName { engine, queue, .. } = self.name;
        let stop = *self.slab.stop(slot);
        let record = &self.slab[slot];
        match record.outcome {
            Outcome::Late { waited_us } => Error::DmaTimeout {
                engine,
                queue,
                descriptors: record.count.saturating_sub(MARKER_DESCRIPTORS),
                source: record.span.source,
                destination: record.span.destination,
                waited_us,
                stop,
            },
            Outcome::Aborted(report) => Error::DmaAborted { engine, queue, report, stop },
            Outcome::Cancelled(why) => Error::Cancelled { why },
            Outcome::Gone => Error::DeviceGone,
            Outcome::Pending | Outcome::Done => Error::RingFaulted { engine, queue },
        }
    }
}

/// What the batches of one sweep amount to.
#[derive(Default)]
struct Over {
    descriptors: u32,
    bytes: u64,
    fill_reads: u32,
}

/// Writes pairs of descriptors, one behind the other.
struct Pen<'a> {
    memory: &'a RingMemory,
    cursor: Cursor,
    /// Descriptors written, one side.
    count: u32,
}

impl Pen<'_> {
    /// Writes the only copy of a batch.
    #[inline(always)]
    fn write_span(&mut self, span: &Span) {
        let step = if span.fixed_source { 0 } else { MAX_BYTES };
        let piece = Piece { source: span.source, destination: span.destination, bytes: span.bytes };
        self.write(piece, step, Barrier::Write);
    }

    /// Cuts a copy into blocks of 64 KiB; the source advances by `step` a block. The last block has
    /// the `barrier`.
    #[inline(always)]
    fn write(&mut self, piece: Piece, step: u64, barrier: Barrier) {
        let (mut source, mut destination) = (piece.source.0, piece.destination.0);
        let mut left = piece.bytes;
        while left > MAX_BYTES {
            self.pair(source, destination, MAX_BYTES as u32, Barrier::None);
            source = source.wrapping_add(step);
            destination = destination.wrapping_add(MAX_BYTES);
            left -= MAX_BYTES;
        }
        self.pair(source, destination, left as u32, barrier);
    }

    /// Arms a marker and writes its descriptors. Data and marker take different paths, so the last
    /// data has the barrier that lets it land first.
    #[inline(always)]
    fn mark(&mut self, marker: Marker) {
        let (from, to) = self.memory.arm(marker.pair, marker.value);
        self.pair(from.0, to.0, 4, Barrier::None);
    }

    #[inline(always)]
    fn pair(&mut self, source: u64, destination: u64, bytes: u32, barrier: Barrier) {
        let (source, destination) = (DeviceAddr(source), DeviceAddr(destination));
        let descriptors = pair(self.cursor.ring_id(), source, destination, bytes, barrier);
        self.memory.store(self.cursor.producer(), descriptors);
        self.cursor.advance();
        self.count += 1;
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
