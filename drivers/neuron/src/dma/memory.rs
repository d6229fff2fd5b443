//! Memory of one host-transfer ring: transmit ring, receive ring, marker page
//! (specification 03 §3.3, §7.1).

use axon_platform::{Descriptor, DescriptorRing, DeviceAddr, WordRing};
use axon_ports::{AllocRequest, Category, Chunk, MemoryPort, Pin};

use super::queue::RingPlace;
use crate::{Error, Hal};

/// Descriptors of a host-transfer ring, one side.
pub(crate) const DESCRIPTORS: u32 = 8192;
/// Bytes of one side.
const RING_BYTES: u64 = DESCRIPTORS as u64 * 16;
/// Bytes of the marker page: 512 pairs of a source and a poll word.
const MARKER_BYTES: u64 = 4096;
/// Pairs of the marker page.
pub(crate) const PAIRS: u16 = 512;

/// The three chunks of a ring, held for as long as the ring lives.
pub(crate) struct RingMemory {
    tx: DescriptorRing,
    rx: DescriptorRing,
    markers: WordRing,
    tx_base: DeviceAddr,
    rx_base: DeviceAddr,
    marker_base: DeviceAddr,
    _held: [(Chunk, Pin); 3],
}

impl RingMemory {
    /// Takes host memory for a ring.
    pub(crate) async fn allocate<M: MemoryPort>(memory: &M, hal: &Hal) -> Result<Self, Error> {
        let mut chunks = [None, None, None];
        for (chunk, bytes) in chunks.iter_mut().zip([RING_BYTES, RING_BYTES, MARKER_BYTES]) {
            let request =
                AllocRequest { category: Category::NCDEV_HOST, ..AllocRequest::driver_host(bytes) };
            *chunk = Some(memory.alloc(request).await?);
        }
        match chunks {
            [Some(rx), Some(tx), Some(markers)] => RingMemory::new(tx, rx, markers, hal),
            _ => Err(Error::NoRecords),
        }
    }

    /// Checks the chunks and makes views of them.
    pub(crate) fn new(tx: Chunk, rx: Chunk, markers: Chunk, hal: &Hal) -> Result<Self, Error> {
        let view = |chunk: &Chunk, bytes: u64| {
            let facts = chunk.facts();
            let misplaced = Error::InvalidArgument { what: "ring address", value: facts.pa.0 };
            let host = chunk.host().ok_or(misplaced)?;
            let aligned = facts.pa.0.is_multiple_of(256);
            if !hal.is_host(facts.pa) || !aligned || facts.size < bytes {
                return Err(misplaced);
            }
            host.slice(0, bytes).map_err(|_| misplaced)
        };
        let ring = |chunk: &Chunk| {
            view(chunk, RING_BYTES)?.descriptor_ring().map_err(|_| Error::NoRecords)
        };
        let words = view(&markers, MARKER_BYTES)?.word_ring().map_err(|_| Error::NoRecords)?;
        let (tx_ring, rx_ring) = (ring(&tx)?, ring(&rx)?);
        let hold = |chunk: Chunk| match chunk.pin() {
            Some(pin) => Ok((chunk, pin)),
            None => Err(Error::NoRecords),
        };
        Ok(RingMemory {
            tx_base: tx.facts().pa,
            rx_base: rx.facts().pa,
            marker_base: markers.facts().pa,
            tx: tx_ring,
            rx: rx_ring,
            markers: words,
            _held: [hold(tx)?, hold(rx)?, hold(markers)?],
        })
    }

    /// Highest index of the rings.
    pub(crate) fn mask(&self) -> u32 {
        self.tx.mask()
    }

    /// What the transmit side is programmed with.
    pub(crate) fn tx_place(&self) -> RingPlace {
        RingPlace { base: self.tx_base, length: self.tx.mask() + 1 }
    }

    /// What the receive side is programmed with.
    pub(crate) fn rx_place(&self) -> RingPlace {
        RingPlace { base: self.rx_base, length: self.rx.mask() + 1 }
    }

    /// Stores a pair of descriptors.
    #[inline]
    pub(crate) fn store(&self, index: u32, (tx, rx): (Descriptor, Descriptor)) {
        self.tx.store(index, tx);
        self.rx.store(index, rx);
    }

    /// A pair of descriptors, as it was stored.
    pub(crate) fn load(&self, index: u32) -> ([u32; 4], [u32; 4]) {
        (self.tx.load(index).0, self.rx.load(index).0)
    }

    /// Makes a marker pair ready for `value`; answers where the device reads and writes.
    #[inline]
    pub(crate) fn arm(&self, pair: u16, value: u32) -> (DeviceAddr, DeviceAddr) {
        let word = u32::from(pair) * 2;
        self.markers.store(word, value);
        self.markers.store(word + 1, 0);
        let source = self.marker_base.0 + u64::from(pair) * 8;
        (DeviceAddr(source), DeviceAddr(source + 4))
    }

    /// Whether the device has written `value` into the pair's poll word.
    #[inline]
    pub(crate) fn is_marked(&self, pair: u16, value: u32) -> bool {
        self.markers.load(u32::from(pair) * 2 + 1) == value
    }

    /// Clears the poll word of a pair whose marker was seen.
    #[inline]
    pub(crate) fn disarm(&self, pair: u16) {
        self.markers.store(u32::from(pair) * 2 + 1, 0);
    }
}
