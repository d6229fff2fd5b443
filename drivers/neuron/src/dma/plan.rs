//! How a zero-copy operation is cut into transfers (specification 03 §11.2). Pages are 4 KiB.

use alloc::vec::Vec;

use axon_platform::DeviceAddr;
use axon_ports::Pin;

use super::descriptor::MAX_BYTES;
use crate::Error;

const PAGE: u64 = 4096;
/// Most bytes of one transfer.
const STEP: u64 = 256 << 10;
/// Most data descriptors of one transfer.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// Host memory without a gap, of one chunk.
#[derive(Clone, Debug)]
pub struct HostPiece {
    /// First byte, as the device sees it.
    pub address: DeviceAddr,
    /// Bytes, not 0.
    pub len_bytes: u64,
    /// Holds the chunk.
    pub pin: Pin,
}

/// Bytes that one data descriptor moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Segment {
    pub host: u64,
    pub device: u64,
    pub len_bytes: u64,
}

/// One operation on its way: a list of host memory against one range of the device.
pub(crate) struct Plan {
    pieces: Vec<HostPiece>,
    device: DeviceAddr,
    /// Holds the range of the device.
    pub device_pin: Pin,
    left: u64,
    /// Most bytes of the next transfer, and of those behind it.
    next: u64,
    step: u64,
    /// Piece at which the next transfer begins, and the byte in it.
    piece: usize,
    offset: u64,
}

/// What is staged with one marker.
pub(crate) struct Transfer {
    pub segments: heapless::Vec<Segment, MAX_SEGMENTS>,
    pub host_pin: Pin,
    pub len_bytes: u64,
}

impl Plan {
    /// # Errors
    /// [`Error::InvalidArgument`] for an operation of size 0, and for one whose size wraps.
    pub(crate) fn new(
        pieces: Vec<HostPiece>,
        device: DeviceAddr,
        device_pin: Pin,
    ) -> Result<Self, Error> {
        let nothing = Error::InvalidArgument { what: "transfer size", value: 0 };
        let sum = |sum: u64, piece: &HostPiece| sum.checked_add(piece.len_bytes);
        let size = pieces.iter().try_fold(0, sum).filter(|&size| size != 0).ok_or(nothing)?;
        if pieces.iter().any(|piece| piece.len_bytes == 0) {
            return Err(nothing);
        }
        let into_page = pieces.first().map_or(0, |piece| piece.address.0 % PAGE);
        let pages = size.checked_add(into_page).ok_or(nothing)?;
        let step = match pages {
            0..=STEP => pages,
            pages if pages > 2 * STEP => STEP,
            pages => (pages / 2).div_ceil(PAGE) * PAGE,
        };
        let next = step - into_page;
        Ok(Plan { pieces, device, device_pin, left: size, next, step, piece: 0, offset: 0 })
    }

    /// The next transfer; `None` behind the last. A transfer stays within one chunk of host memory,
    /// because its record holds one.
    pub(crate) fn next(&mut self) -> Option<Transfer> {
        let pin = self.pieces.get(self.piece)?.pin.clone();
        let mut room = self.next.min(self.left);
        let mut segments: heapless::Vec<Segment, MAX_SEGMENTS> = heapless::Vec::new();
        let mut moved = 0;
        while let Some(piece) = self.pieces.get(self.piece).filter(|_| room != 0) {
            if piece.pin.header().name() != pin.header().name() {
                break;
            }
            let host = piece.address.0.wrapping_add(self.offset);
            let mut take = (piece.len_bytes - self.offset).min(room);
            match segments.last_mut() {
                Some(last)
                    if last.host.wrapping_add(last.len_bytes) == host
                        && last.len_bytes < MAX_BYTES =>
                {
                    take = take.min(MAX_BYTES - last.len_bytes);
                    last.len_bytes += take;
                }
                _ => {
                    take = take.min(MAX_BYTES);
                    let device = self.device.0.wrapping_add(moved);
                    if segments.push(Segment { host, device, len_bytes: take }).is_err() {
                        break;
                    }
                }
            }
            moved += take;
            room -= take;
            self.offset += take;
            if self.offset == piece.len_bytes {
                self.piece += 1;
                self.offset = 0;
            }
        }
        self.device.0 = self.device.0.wrapping_add(moved);
        self.left -= moved;
        self.next = self.step;
        (moved != 0).then_some(Transfer { segments, host_pin: pin, len_bytes: moved })
    }

    /// Whether there is no further transfer.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hal::tests::hal;
    use crate::testing::FakeMemory;

    fn transfers(into_page: u64, size: u64) -> Vec<u64> {
        let hal = hal(0x7364);
        let mut memory = FakeMemory::new();
        let host = memory.host(&hal, 0x5000_0000, 8 << 20);
        let device = memory.device(0, 8 << 20, None);
        let address = DeviceAddr(host.facts().pa.0 + into_page);
        let piece = HostPiece { address, len_bytes: size, pin: host.pin().unwrap() };
        let mut plan =
            Plan::new(Vec::from([piece]), DeviceAddr(0x1000), device.pin().unwrap()).unwrap();
        let mut lens = Vec::new();
        let (mut from, mut to) = (address.0, 0x1000);
        while let Some(transfer) = plan.next() {
            for segment in &transfer.segments {
                assert_eq!((segment.host, segment.device), (from, to));
                assert!((1..=MAX_BYTES).contains(&segment.len_bytes));
                from += segment.len_bytes;
                to += segment.len_bytes;
            }
            lens.push(transfer.len_bytes);
        }
        assert!(plan.is_over());
        lens
    }

    #[test]
    fn dma_e36_plans_of_the_specification() {
        assert_eq!(transfers(0, 4096), [4096]);
        assert_eq!(transfers(0x800, 266_240), [133_120, 133_120]);
        assert_eq!(transfers(0, 262_145), [131_072, 131_072, 1]);
        assert_eq!(transfers(0, 524_289), [262_144, 262_144, 1]);
        assert_eq!(transfers(0xfff, 1 << 20), [258_049, 262_144, 262_144, 262_144, 4095]);
    }

    #[test]
    fn pages_apart_are_descriptors_apart_and_neighbours_are_joined() {
        let hal = hal(0x7364);
        let mut memory = FakeMemory::new();
        let host = memory.host(&hal, 0x5000_0000, 1 << 20);
        let other = memory.host(&hal, 0x7000_0000, 1 << 20);
        let device = memory.device(0, 1 << 20, None);
        let piece = |chunk: &axon_ports::Chunk, at: u64, len_bytes| HostPiece {
            address: DeviceAddr(chunk.facts().pa.0 + at),
            len_bytes,
            pin: chunk.pin().unwrap(),
        };
        let pieces = Vec::from([
            piece(&host, 0x800, 0x800),
            piece(&host, 0x1000, 0x1000),
            piece(&host, 0x8000, 0x1000),
            piece(&other, 0, 0x1000),
        ]);
        let mut plan = Plan::new(pieces, DeviceAddr(0), device.pin().unwrap()).unwrap();
        let lens = |transfer: Transfer| -> Vec<u64> {
            transfer.segments.iter().map(|segment| segment.len_bytes).collect()
        };
        assert_eq!(lens(plan.next().unwrap()), [0x1800, 0x1000]);
        assert_eq!(lens(plan.next().unwrap()), [0x1000], "another chunk, another transfer");
        assert!(plan.next().is_none());
    }

    #[test]
    fn dma_e01_nothing_is_refused() {
        let mut memory = FakeMemory::new();
        let device = memory.device(0, 4096, None);
        assert!(Plan::new(Vec::new(), DeviceAddr(0), device.pin().unwrap()).is_err());
    }
}
