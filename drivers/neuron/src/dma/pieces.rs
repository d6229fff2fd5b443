//! The list of copies that one batch carries, and what keeps their memory (specification 03 §7.3).
//!
//! A list is made once, with all the room it will ever have, and travels: from the future that
//! fills it into the record of its batch, and back when the batch has ended. So a list that is used
//! again and again never asks for memory.

use alloc::vec::Vec;

use axon_platform::DeviceAddr;
use axon_ports::Pin;

use super::ring::{MAX_DATA, data_descriptors};
use super::slab::Span;
use crate::Error;

/// One copy of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// First byte of the source.
    pub source: DeviceAddr,
    /// First byte of the destination.
    pub destination: DeviceAddr,
    /// Bytes, at least 1.
    pub bytes: u64,
}

/// Copies that share one marker.
#[derive(Default)]
pub(crate) struct PieceList {
    pieces: Vec<Piece>,
    pins: Vec<Pin>,
    /// At most 127 MiB, as the descriptors say.
    bytes: u32,
    descriptors: u32,
}

impl PieceList {
    /// Room for `pieces` copies, and for the pins of as many different sources and destinations.
    ///
    /// # Errors
    /// [`Error::NoRecords`].
    pub(crate) fn with_capacity(pieces: usize) -> Result<Self, Error> {
        let mut list = PieceList::default();
        list.reserve(pieces)?;
        Ok(list)
    }

    /// Makes sure that there is room for `pieces` copies; does nothing where there is.
    ///
    /// # Errors
    /// [`Error::NoRecords`].
    pub(crate) fn reserve(&mut self, pieces: usize) -> Result<(), Error> {
        let missing = pieces.saturating_sub(self.pieces.len());
        self.pieces.try_reserve_exact(missing).map_err(|_| Error::NoRecords)?;
        let missing = pieces.saturating_mul(2).saturating_sub(self.pins.len());
        self.pins.try_reserve_exact(missing).map_err(|_| Error::NoRecords)
    }

    /// Appends a copy.
    ///
    /// # Errors
    /// [`Error::TooBig`] where the list is full or would not fit into one batch; nothing changed.
    #[inline(always)]
    pub(crate) fn push(&mut self, piece: Piece, limit: usize) -> Result<(), Error> {
        // What is too long for a batch is so long before its descriptors are counted in 32 bits.
        let descriptors = match piece.bytes {
            0..=0x1_0000 => 1,
            bytes => data_descriptors(bytes.min((MAX_DATA + 1) << 16)),
        };
        let descriptors = self.descriptors + descriptors;
        let count = self.pieces.len();
        if count >= limit || u64::from(descriptors) > MAX_DATA || count == self.pieces.capacity() {
            self.make_room(limit, descriptors)?;
        }
        self.descriptors = descriptors;
        self.bytes += piece.bytes as u32;
        self.pieces.push(piece);
        Ok(())
    }

    /// Refuses what is too much, else takes the room that a list lacks whose batch went on alone.
    #[cold]
    fn make_room(&mut self, limit: usize, descriptors: u32) -> Result<(), Error> {
        if u64::from(descriptors) > MAX_DATA {
            let (value, limit) = (descriptors.into(), MAX_DATA + 1);
            return Err(Error::TooBig { what: "number of descriptors of a batch", value, limit });
        }
        let value = self.pieces.len();
        if value >= limit {
            let what = "number of copies in a batch";
            return Err(Error::TooBig { what, value: value as u64, limit: limit as u64 });
        }
        self.reserve(limit)
    }

    /// Keeps memory that a copy of the list names until the hardware is done with it.
    ///
    /// # Errors
    /// [`Error::NoRecords`] where there is no room for another pin.
    pub(crate) fn hold(&mut self, pin: Pin) -> Result<(), Error> {
        self.pins.try_reserve(1).map_err(|_| Error::NoRecords)?;
        self.pins.push(pin);
        Ok(())
    }

    /// Copies in order.
    #[inline]
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// What keeps their memory.
    pub(crate) fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// Data descriptors of all copies.
    #[inline]
    pub(crate) fn descriptors(&self) -> u32 {
        self.descriptors
    }

    /// What a record says of the list: where it starts, and how much it moves.
    #[inline]
    pub(crate) fn span(&self) -> Span {
        let (source, destination) = match self.pieces.first() {
            Some(first) => (first.source, first.destination),
            None => (DeviceAddr(0), DeviceAddr(0)),
        };
        Span { source, destination, bytes: self.bytes.into(), fixed_source: false }
    }

    /// Whether copying once more gives what copying once gave: nothing that is read was written.
    ///
    /// Looks at the whole of what is read and the whole of what is written, so it may say no where
    /// the answer is yes; such a list is not issued again after a reset.
    pub(crate) fn is_repeatable(&self) -> bool {
        let bounds = |place: fn(&Piece) -> u64| {
            let first = self.pieces.iter().map(place).min().unwrap_or(0);
            let end = self.pieces.iter().map(|piece| place(piece).saturating_add(piece.bytes));
            (first, end.max().unwrap_or(0))
        };
        let (read, read_end) = bounds(|piece| piece.source.0);
        let (written, written_end) = bounds(|piece| piece.destination.0);
        read_end <= written || written_end <= read
    }

    /// Lets go of the memory.
    #[inline]
    pub(crate) fn unpin(&mut self) {
        self.pins.clear();
    }

    /// Forgets the copies and lets go of the memory; the room stays.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.pins.clear();
        self.bytes = 0;
        self.descriptors = 0;
    }

    /// Takes the copies out and leaves what keeps their memory.
    pub(crate) fn without_pins(&mut self) -> PieceList {
        let pins = core::mem::take(&mut self.pins);
        let mut list = core::mem::replace(self, PieceList { pins, ..PieceList::default() });
        list.clear();
        list
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(source: u64, destination: u64, bytes: u64) -> Piece {
        Piece { source: DeviceAddr(source), destination: DeviceAddr(destination), bytes }
    }

    #[test]
    fn dma_e04_a_batch_holds_127_mib_however_it_is_cut() {
        let mut list = PieceList::with_capacity(3000).unwrap();
        list.push(piece(0, 1 << 40, 1000 << 16), 3000).unwrap();
        for _ in 0..1032 {
            list.push(piece(0, 1 << 40, 1), 3000).unwrap();
        }
        assert_eq!(list.descriptors(), 2032);
        let refused = list.push(piece(0, 1 << 40, 1), 3000);
        assert!(matches!(refused, Err(Error::TooBig { value: 2033, limit: 2033, .. })));
        list.clear();
        for bytes in [(2032 << 16) + 1, u64::MAX] {
            assert!(matches!(list.push(piece(0, 0, bytes), 9), Err(Error::TooBig { .. })));
        }
        list.push(piece(0, 1 << 40, 2032 << 16), 3000).unwrap();
        assert_eq!(list.span().bytes, 133_169_152);
    }

    #[test]
    fn a_full_list_says_so_and_stays_as_it_is() {
        let mut list = PieceList::with_capacity(1).unwrap();
        list.push(piece(1, 2, 3), 1).unwrap();
        let refused = list.push(piece(4, 5, 6), 1);
        assert!(matches!(refused, Err(Error::TooBig { value: 1, limit: 1, .. })));
        assert_eq!(list.pieces(), [piece(1, 2, 3)]);
        assert_eq!((list.span().bytes, list.descriptors()), (3, 1));
    }

    proptest! {
        /// Against a memory of bytes: what is called repeatable gives the same bytes when the whole
        /// list is copied a second time.
        #[test]
        fn what_is_repeatable_may_be_copied_twice(
            pieces in prop::collection::vec((0u64..64, 0u64..64, 1u64..16), 1..8),
        ) {
            let mut list = PieceList::with_capacity(8).unwrap();
            let mut memory: Vec<u8> = (0..80).collect();
            for &(source, destination, bytes) in &pieces {
                list.push(piece(source, destination, bytes), 8).unwrap();
            }
            let copy = |memory: &mut Vec<u8>| for piece in list.pieces() {
                let (from, to) = (piece.source.0 as usize, piece.destination.0 as usize);
                memory.copy_within(from..from + piece.bytes as usize, to);
            };
            copy(&mut memory);
            let once = memory.clone();
            copy(&mut memory);
            if list.is_repeatable() {
                prop_assert_eq!(once, memory);
            }
        }
    }
}
