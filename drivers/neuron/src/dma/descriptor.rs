//! The 16-byte descriptors of a copy (specification 02 §6, §8.1).

use axon_platform::{Descriptor, DeviceAddr};

/// Most bytes one pair moves; encoded as length 0.
pub(crate) const MAX_BYTES: u64 = 65_536;

/// Lowest bit of the lap counter in word 0.
const RING_ID_SHIFT: u32 = 24;
/// Word 0 of a transmit descriptor: first and last of its packet.
const FIRST_AND_LAST: u32 = 1 << 26 | 1 << 27;
/// Word 0 of a transmit descriptor: starts when all earlier transfers have ended.
const DATA_BARRIER: u32 = 1 << 30;
/// Word 0 of a receive descriptor: its write is issued behind all earlier ones.
const STRONG_ORDER: u32 = 1 << 29;
/// Word 1 of a transmit descriptor: plain copy of one block.
const COPY: u32 = 0x0108_0003;
/// Word 1 of a transmit descriptor: its write is complete before a later one is issued.
const WRITE_BARRIER: u32 = 1 << 26;

/// How a pair is ordered against others of its queue (02 §8.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Barrier {
    /// In-order execution only.
    None,
    /// Later writes wait until this one has landed.
    Write,
    /// Waits until all earlier transfers have landed.
    Data,
    /// Lands behind all earlier writes; V3 and V4 only.
    StrongOrder,
}

/// A transmit and a receive descriptor of the same ring index.
///
/// `len_bytes` is 1 to [`MAX_BYTES`]; only its low 16 bits are encoded, so that 65,536 becomes 0.
#[inline(always)]
pub(crate) fn pair(
    ring_id: u32,
    source: DeviceAddr,
    destination: DeviceAddr,
    len_bytes: u32,
    barrier: Barrier,
) -> (Descriptor, Descriptor) {
    let common = ring_id << RING_ID_SHIFT | (len_bytes & 0xffff);
    let (tx0, tx1, rx0) = match barrier {
        Barrier::None => (0, 0, 0),
        Barrier::Write => (0, WRITE_BARRIER, 0),
        Barrier::Data => (DATA_BARRIER, 0, 0),
        Barrier::StrongOrder => (0, 0, STRONG_ORDER),
    };
    (
        Descriptor([common | FIRST_AND_LAST | tx0, COPY | tx1, source.low(), source.high()]),
        Descriptor([common | rx0, 0, destination.low(), destination.high()]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: DeviceAddr = DeviceAddr(0x4001_0000_2000);
    const DESTINATION: DeviceAddr = DeviceAddr(0x0200_0000);

    #[test]
    fn the_words_of_the_worked_example() {
        let (tx, rx) = pair(1, SOURCE, DESTINATION, 0x1000, Barrier::Write);
        assert_eq!(tx.0, [0x0d00_1000, 0x0508_0003, 0x0000_2000, 0x0000_4001]);
        assert_eq!(rx.0, [0x0100_1000, 0, 0x0200_0000, 0]);
        let marker = DeviceAddr(0x4001_2344_0000);
        let (tx, rx) = pair(1, marker, DeviceAddr(marker.0 + 4), 4, Barrier::None);
        assert_eq!(tx.0, [0x0d00_0004, 0x0108_0003, 0x2344_0000, 0x0000_4001]);
        assert_eq!(rx.0, [0x0100_0004, 0, 0x2344_0004, 0x0000_4001]);
        let (tx, rx) = pair(2, SOURCE, DESTINATION, 0x1000, Barrier::Write);
        assert_eq!((tx.0[0], rx.0[0]), (0x0e00_1000, 0x0200_1000));
    }

    #[test]
    fn udma_e01_udma_e02_lengths() {
        let word = |len| pair(1, SOURCE, DESTINATION, len, Barrier::None).1.0[0];
        assert_eq!([65_536, 65_535, 1].map(word), [0x0100_0000, 0x0100_ffff, 0x0100_0001]);
    }

    #[test]
    fn each_barrier_has_one_bit_of_its_own() {
        let words = |barrier| {
            let (tx, rx) = pair(0, SOURCE, DESTINATION, 4, barrier);
            (tx.0[0], tx.0[1], rx.0[0])
        };
        assert_eq!(words(Barrier::None), (0x0c00_0004, 0x0108_0003, 4));
        assert_eq!(words(Barrier::Write), (0x0c00_0004, 0x0508_0003, 4));
        assert_eq!(words(Barrier::Data), (0x4c00_0004, 0x0108_0003, 4));
        assert_eq!(words(Barrier::StrongOrder), (0x0c00_0004, 0x0108_0003, 0x2000_0004));
    }
}
