//! What a ring remembers of each batch: 256 records that never move (specification 03 §1.4, §7.9).
//!
//! A batch that ends well gives its record back at once: whoever finds another batch in its record,
//! or none, knows that it ended well. A failure stays until it is collected, and so does a list,
//! which goes back to where it came from. Slots are numbered by a
//! byte into an array of 256, so that no index can be wrong.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use core::task::Waker;

use axon_platform::DeviceAddr;
use axon_ports::chunk::record::ChunkRecord;
use axon_ports::{ChunkName, PinPair};

use super::pieces::PieceList;
use super::report::{EngineReport, Stop};
use crate::{CancelCause, Error};

/// Batches that a ring remembers at once.
pub(crate) const SLOTS: usize = 256;
/// Most times a batch is issued again (03 §7.8-4).
// assumed: the first issue is no lap, so a batch is announced four times at most.
pub(crate) const MAX_LAPS: usize = 3;

/// Number of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(u8);

/// One batch among all that its ring ever carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchId {
    /// Record it has, or had.
    pub slot: Slot,
    /// Value of its first marker, which no other batch has.
    pub number: u32,
}

/// A marker pair and the value it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marker {
    /// Pair of the ring's marker page.
    pub pair: u16,
    /// Value that ends the batch.
    pub value: u32,
}

/// What is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    /// First byte of the source.
    pub source: DeviceAddr,
    /// First byte of the destination.
    pub destination: DeviceAddr,
    /// Bytes, 1 to 127 MiB.
    pub bytes: u64,
    /// The source address does not advance: every descriptor reads the same 64 KiB.
    pub fixed_source: bool,
}

impl Span {
    /// Whether source and destination share a byte. Such a copy is not idempotent.
    pub(crate) fn overlaps(&self) -> bool {
        let source_bytes = if self.fixed_source { self.bytes.min(65_536) } else { self.bytes };
        let (source, destination) = (self.source.0, self.destination.0);
        match destination.checked_sub(source) {
            Some(ahead) => ahead < source_bytes,
            None => source - destination < self.bytes,
        }
    }
}

/// What the hardware may still do with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hardware {
    /// Nothing: its marker was seen, or it is proven quiet.
    Quiet,
    /// Staged; its marker is awaited.
    InFlight,
    /// As [`Hardware::InFlight`], but never issued again.
    Once,
    /// Caught by a reset; to be issued again.
    Suspended,
    /// Given up, but not proven quiet.
    Quarantined,
}

/// How a batch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Not yet.
    Pending,
    /// Its marker was seen.
    Done,
    /// Its deadline passed.
    Late {
        /// Time it was given; µs.
        waited_us: u64,
    },
    /// The engine stopped on an error.
    Aborted(EngineReport),
    /// Ended early.
    Cancelled(CancelCause),
    /// The device is gone.
    Gone,
}

/// One batch. Aligned to its size, so that finding one is a shift.
#[repr(align(256))]
pub(crate) struct Record {
    /// Value of its first marker.
    pub number: u32,
    /// Descriptors of one side, marker included.
    pub count: u32,
    /// Marker that is awaited.
    pub marker: Marker,
    /// What the hardware may still do.
    pub hardware: Hardware,
    /// A future will come for the result.
    pub awaited: bool,
    /// It reads the fill buffer.
    pub reads_fill_source: bool,
    /// Times it was issued again.
    pub laps: u8,
    next: Slot,
    /// How it ended.
    pub outcome: Outcome,
    /// Who waits.
    pub waker: Option<Waker>,
    /// Memory that the hardware may reach.
    pub pins: Option<PinPair>,
    /// More copies than one, and what keeps their memory.
    pub list: Option<PieceList>,
    /// Something is to be done at the end that most batches do not need: it was issued again, or
    /// carries a list.
    pub is_special: bool,
    /// What is copied.
    pub span: Span,
    /// Markers of earlier laps, `laps` of them.
    pub old_markers: [Marker; MAX_LAPS],
}

impl Record {
    fn unused(pair: u16, next: Slot) -> Self {
        Record {
            number: 0,
            count: 0,
            marker: Marker { pair, value: 0 },
            hardware: Hardware::Quiet,
            awaited: false,
            reads_fill_source: false,
            laps: 0,
            next,
            outcome: Outcome::Pending,
            waker: None,
            pins: None,
            list: None,
            is_special: false,
            span: Span {
                source: DeviceAddr(0),
                destination: DeviceAddr(0),
                bytes: 0,
                fixed_source: false,
            },
            old_markers: [Marker::default(); MAX_LAPS],
        }
    }

    /// What every record of a staged batch says; the marker pair is there. A record that nobody uses
    /// has no waker.
    #[inline(always)]
    pub(super) fn enter(&mut self, value: u32, count: u32, span: Span) {
        self.number = value;
        self.count = count;
        self.marker.value = value;
        self.hardware = Hardware::InFlight;
        self.awaited = true;
        self.outcome = Outcome::Pending;
        self.span = span;
    }

    /// Every marker that may still be written, the newest first.
    pub(crate) fn markers(&self) -> impl Iterator<Item = Marker> + '_ {
        let old = self.old_markers.iter().take(usize::from(self.laps));
        core::iter::once(self.marker).chain(old.copied())
    }

    /// Notes the result and wakes who waits for it.
    #[inline]
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Lets go of the memory.
    #[inline]
    pub(crate) fn unpin(&mut self) {
        self.pins = None;
        if let Some(list) = &mut self.list {
            list.unpin();
        }
    }

    /// What keeps the memory that the hardware may reach.
    pub(crate) fn each_held(&self) -> impl Iterator<Item = (ChunkName, &ChunkRecord)> {
        let more = self.list.as_ref().map_or(&[][..], PieceList::pins);
        let more = more.iter().map(|pin| (pin.header().name(), pin.header().record()));
        self.pins.iter().flat_map(PinPair::each).chain(more)
    }

    /// Whether issuing the batch once more gives the same bytes.
    pub(crate) fn is_repeatable(&self) -> bool {
        match &self.list {
            Some(list) => list.is_repeatable(),
            None => !self.span.overlaps(),
        }
    }
}

const _: () = assert!(size_of::<Record>() == 256);

/// A chain of records; ends by count, not by a mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: Slot,
    tail: Slot,
    len: u16,
}

impl List {
    pub(crate) const EMPTY: List = List { head: Slot(0), tail: Slot(0), len: 0 };

    /// Records in the chain.
    #[inline]
    pub(crate) fn len(&self) -> u16 {
        self.len
    }

    /// First record.
    #[inline]
    pub(crate) fn first(&self) -> Option<Slot> {
        if self.len == 0 { None } else { Some(self.head) }
    }
}

/// The records of one ring.
pub(crate) struct Slab {
    records: Box<[Record; SLOTS]>,
    /// The unused one that is taken next; each names the one behind it.
    free: Slot,
    free_count: u16,
    /// How far the hardware came with each that failed. Beside the records, which have no room.
    stops: Box<[Stop; SLOTS]>,
}

impl Index<Slot> for Slab {
    type Output = Record;

    #[inline]
    fn index(&self, slot: Slot) -> &Record {
        &self.records[usize::from(slot.0)]
    }
}

impl IndexMut<Slot> for Slab {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Record {
        &mut self.records[usize::from(slot.0)]
    }
}

impl Slab {
    /// Unused records; slot *n* starts with marker pair *n* and slot 0 is taken first.
    pub(crate) fn new() -> Result<Self, Error> {
        let mut records = Vec::new();
        records.try_reserve_exact(SLOTS).map_err(|_| Error::NoRecords)?;
        records.extend((0..=u8::MAX).map(|n| Record::unused(n.into(), Slot(n.wrapping_add(1)))));
        let records = records.into_boxed_slice().try_into().map_err(|_| Error::NoRecords)?;
        let mut stops = Vec::new();
        stops.try_reserve_exact(SLOTS).map_err(|_| Error::NoRecords)?;
        stops.resize(SLOTS, Stop::Unknown);
        let stops = stops.into_boxed_slice().try_into().map_err(|_| Error::NoRecords)?;
        Ok(Slab { records, free: Slot(0), free_count: SLOTS as u16, stops })
    }

    /// How far the hardware came with a batch that failed.
    pub(crate) fn stop(&mut self, slot: Slot) -> &mut Stop {
        &mut self.stops[usize::from(slot.0)]
    }

    /// Records that nobody uses.
    #[inline]
    pub(crate) fn free(&self) -> u16 {
        self.free_count
    }

    /// Takes an unused record.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Slot> {
        self.free_count = self.free_count.checked_sub(1)?;
        let slot = self.free;
        self.free = self[slot].next;
        Some(slot)
    }

    /// Gives a record back once the hardware is done with it and no failure waits in it to be
    /// collected.
    pub(crate) fn release_if_over(&mut self, slot: Slot) {
        let record = &mut self[slot];
        let kept = record.outcome != Outcome::Done || record.list.is_some();
        if record.hardware == Hardware::Quiet && !(record.awaited && kept) {
            record.list = None;
            self.release(slot);
        }
    }

    /// Gives a record back.
    #[inline]
    pub(crate) fn release(&mut self, slot: Slot) {
        debug_assert!(self[slot].waker.is_none(), "somebody waits for it");
        self[slot].next = self.free;
        self.free = slot;
        self.free_count += 1;
    }

    /// Appends a record to a chain.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, slot: Slot) {
        if list.len == 0 {
            list.head = slot;
        } else {
            self[list.tail].next = slot;
        }
        list.tail = slot;
        list.len += 1;
    }

    /// Takes the first record of a chain.
    #[inline]
    pub(crate) fn pop(&self, list: &mut List) -> Option<Slot> {
        let slot = list.first()?;
        list.head = self[slot].next;
        list.len -= 1;
        Some(slot)
    }

    /// The records of a chain, in order.
    pub(crate) fn iter(&self, list: List) -> impl Iterator<Item = (Slot, &Record)> + '_ {
        let mut at = list.head;
        (0..list.len).map(move |_| {
            let slot = at;
            let record = &self[slot];
            at = record.next;
            (slot, record)
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slots_are_reused_last_first() {
        let mut slab = Slab::new().unwrap();
        let first = slab.take().unwrap();
        assert_eq!((first, slab[first].marker.pair), (Slot(0), 0));
        let second = slab.take().unwrap();
        slab.release_if_over(first);
        assert_eq!(slab.take(), Some(first));
        assert_eq!(second, Slot(1));
    }

    #[test]
    fn both_sides_have_to_let_go() {
        let mut slab = Slab::new().unwrap();
        let slot = slab.take().unwrap();
        slab[slot].hardware = Hardware::Quarantined;
        slab.release_if_over(slot);
        assert_eq!(slab.free(), 255);
        slab[slot].hardware = Hardware::Quiet;
        slab[slot].awaited = true;
        slab[slot].outcome = Outcome::Gone;
        slab.release_if_over(slot);
        assert_eq!(slab.free(), 255);
        slab[slot].awaited = false;
        slab.release_if_over(slot);
        assert_eq!(slab.free(), 256);
        let slot = slab.take().unwrap();
        slab[slot].awaited = true;
        slab[slot].outcome = Outcome::Done;
        slab.release_if_over(slot);
        assert_eq!(slab.free(), 256, "nothing to collect but success");
    }

    #[test]
    fn overlapping_copies_are_known() {
        let span = |source, destination, bytes, fixed_source| Span {
            source: DeviceAddr(source),
            destination: DeviceAddr(destination),
            bytes,
            fixed_source,
        };
        assert!(span(0, 0xfff, 0x1000, false).overlaps());
        assert!(!span(0, 0x1000, 0x1000, false).overlaps());
        assert!(span(0x1800, 0x1000, 0x1000, false).overlaps());
        assert!(!span(0, 0x1_0000, 0x10_0000, true).overlaps());
        assert!(span(u64::MAX, u64::MAX, 1, false).overlaps());
    }

    proptest! {
        /// Against a queue and a stack from the standard library.
        #[test]
        fn chains_keep_order(steps in prop::collection::vec(0u8..3, 1..600)) {
            let mut slab = Slab::new().unwrap();
            let mut list = List::EMPTY;
            let mut oracle = VecDeque::new();
            for step in steps {
                if step < 2 {
                    let taken = slab.take();
                    prop_assert_eq!(taken.is_none(), oracle.len() == SLOTS);
                    if let Some(slot) = taken {
                        slab.push(&mut list, slot);
                        oracle.push_back(slot);
                    }
                } else {
                    let slot = slab.pop(&mut list);
                    prop_assert_eq!(slot, oracle.pop_front());
                    if let Some(slot) = slot {
                        slab.release_if_over(slot);
                    }
                }
                let order: Vec<Slot> = slab.iter(list).map(|(slot, _)| slot).collect();
                prop_assert!(order.iter().eq(oracle.iter()));
                prop_assert_eq!(usize::from(slab.free()) + oracle.len(), SLOTS);
            }
        }
    }
}
