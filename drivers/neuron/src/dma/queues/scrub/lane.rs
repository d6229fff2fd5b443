//! What one of the 16 engines of a scrub does, and the memory it does it with (specification 04
//! §9.3).
//!
//! ```text
//! engine i   pattern ──► block i ──► block i+16 ──► … ──► last block ──► pattern   marker
//! barrier           DMB         DMB            DMB   DMB             DMB           none
//! ```
//!
//! Each pair reads what the one before it wrote. The last one brings the end of the chain back to
//! the host, over the way that the marker takes too: behind the marker everything has landed.

use alloc::vec::Vec;

use axon_platform::{DescriptorRing, DeviceAddr, WordRing};
use axon_ports::{
    AllocRequest, Category, Chunk, ClientId, ClientSlot, CoreId, Lifespan, MemoryPort, Pin,
    ScrubHold,
};

use super::super::table::{Bound, BoundRing, Place, RingMem, Side, hardware};
use crate::dma::descriptor::{Barrier, MAX_BYTES, pair};
use crate::dma::queue::RingPlace;
use crate::hal::Engine;
use crate::{Error, Hal};

/// Engines of a scrub.
pub(super) const LANES: usize = 16;
/// Bytes from a block to the next one of the same engine.
const ROW: u64 = MAX_BYTES * LANES as u64;
/// What the device writes when an engine is done. Every scrub has marker memory of its own.
pub(super) const MARKER: u32 = 0xabcd_ef01;
/// Bytes of the chunk with the marker pairs.
const MARKER_BYTES: u64 = 4096;

/// The blocks of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    start: u64,
    /// Blocks of each engine.
    blocks: u32,
}

impl Shape {
    /// # Errors
    /// [`Error::InvalidArgument`] for a range that is not made of whole rows of blocks.
    pub(super) fn new(start: u64, end: u64) -> Result<Self, Error> {
        let bytes = end.saturating_sub(start);
        let blocks = u32::try_from(bytes / ROW).ok().filter(|blocks| (1..1 << 20).contains(blocks));
        let blocks = blocks.filter(|_| bytes.is_multiple_of(ROW));
        let refused = Error::InvalidArgument { what: "bytes of a scrub", value: bytes };
        Ok(Shape { start, blocks: blocks.ok_or(refused)? })
    }

    /// Data descriptors of an engine, one side: the first block, the chain, the read-back.
    pub(super) fn data(&self) -> u32 {
        self.blocks + 1
    }

    /// All descriptors of an engine, one side.
    pub(super) fn count(&self) -> u32 {
        self.data() + 1
    }

    /// Descriptors of a ring: never filled, and one lap long.
    fn length(&self) -> u32 {
        (self.blocks + 3 + 16).next_power_of_two().max(64)
    }

    /// Bytes of the whole scrub.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.blocks) * ROW
    }

    /// The block that engine `lane` writes as its `step`th.
    pub(super) fn block(&self, lane: usize, step: u32) -> u64 {
        self.start + u64::from(step) * ROW + lane as u64 * MAX_BYTES
    }
}

/// Who scrubs, and for whom memory counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payer {
    pub client: ClientId,
    pub slot: ClientSlot,
}

impl Payer {
    async fn alloc<M: MemoryPort>(
        self,
        memory: &M,
        hal: &Hal,
        core: CoreId,
        category: Category,
        bytes: u64,
    ) -> Result<(Chunk, Pin), Error> {
        let request = AllocRequest {
            client: Some((self.client, self.slot)),
            lifespan: Lifespan::Client,
            core: core.number(),
            category,
            ..AllocRequest::driver_host(bytes)
        };
        let chunk = memory.alloc(request).await?;
        let pin = chunk.pin().ok_or(Error::NoRecords)?;
        let pa = pin.pa();
        if !hal.is_host(pa) || !pa.0.is_multiple_of(256) || pin.size() < bytes {
            return Err(Error::InvalidArgument { what: "ring address", value: pa.0 });
        }
        Ok((chunk, pin))
    }
}

fn ring_of(pin: &Pin, bytes: u64) -> Result<DescriptorRing, Error> {
    let host = pin.host().ok_or(Error::NoRecords)?;
    let ring = host.slice(0, bytes).and_then(|ring| ring.descriptor_ring());
    ring.map_err(|_| Error::NoRecords)
}

/// What a queue of a scrub keeps of it.
pub(crate) struct ScrubPart {
    /// Number of the scrub.
    pub number: u64,
    words: WordRing,
    lane: usize,
    /// Keeps others out of the channel.
    _hold: ScrubHold,
}

impl ScrubPart {
    /// Whether the engine has written its marker.
    pub(crate) fn is_marked(&self) -> bool {
        self.words.load(self.lane as u32 * 2 + 1) == MARKER
    }
}

/// The marker pairs of all engines: pair *i* at word 2·*i*.
pub(super) struct Markers {
    words: WordRing,
    base: DeviceAddr,
    _chunk: Chunk,
    pin: Pin,
}

impl Markers {
    pub(super) async fn prepare<M: MemoryPort>(
        memory: &M,
        hal: &Hal,
        payer: Payer,
        core: CoreId,
    ) -> Result<Self, Error> {
        let (chunk, pin) =
            payer.alloc(memory, hal, core, Category::CODE_HOST, MARKER_BYTES).await?;
        let host = pin.host().ok_or(Error::NoRecords)?;
        let words = host.slice(0, MARKER_BYTES).and_then(|page| page.word_ring());
        let words = words.map_err(|_| Error::NoRecords)?;
        Ok(Markers { words, base: pin.pa(), _chunk: chunk, pin })
    }

    fn arm(&self, lane: usize) -> (DeviceAddr, DeviceAddr) {
        let word = lane as u32 * 2;
        self.words.store(word, MARKER);
        self.words.store(word + 1, 0);
        let source = self.base.0 + u64::from(word) * 4;
        (DeviceAddr(source), DeviceAddr(source + 4))
    }
}

/// One engine, ready to be started.
pub(super) struct Lane {
    pub place: Place,
    pub core: CoreId,
    pub unit: u64,
    pub bound: Bound,
    pub chunks: [Chunk; 3],
    /// Pattern buffer: first source, last destination.
    pub pattern: Pin,
}

impl Lane {
    /// Takes memory for engine `number` of the scrub and writes everything it will do.
    #[allow(clippy::too_many_arguments)] // what a scrub is, once
    pub(super) async fn prepare<M: MemoryPort>(
        memory: &M,
        hal: &Hal,
        payer: Payer,
        (engine, core, place): (Engine, CoreId, Place),
        number: usize,
        shape: &Shape,
        word: u32,
        markers: &Markers,
        (scrub, hold): (u64, ScrubHold),
    ) -> Result<Self, Error> {
        let bytes = u64::from(shape.length()) * 16;
        let rings = Category::DMA_RINGS_HOST;
        let buffer = payer.alloc(memory, hal, core, Category::CODE_HOST, MAX_BYTES).await?;
        let (pattern_chunk, pattern) = buffer;
        let (tx_chunk, tx) = payer.alloc(memory, hal, core, rings, bytes).await?;
        let (rx_chunk, rx) = payer.alloc(memory, hal, core, rings, bytes).await?;
        let host = pattern.host().ok_or(Error::NoRecords)?;
        let words = word.to_le_bytes().repeat(64);
        for offset in (0..MAX_BYTES).step_by(words.len()) {
            host.write(offset, &words).map_err(|_| Error::NoRecords)?;
        }
        let views = (ring_of(&tx, bytes)?, ring_of(&rx, bytes)?);
        write(views, shape, number, pattern.pa(), markers.arm(number));
        let ring = |pin: Pin, side| {
            let mut memory = RingMem::new(pin.header(), side);
            memory.staged.replace(0, &[Some(pattern.clone()), Some(markers.pin.clone())])?;
            let place = RingPlace { base: pin.pa(), length: shape.length() };
            let memory = Some((memory, pin));
            Ok::<_, Error>(BoundRing { memory, place, tail: 0, outstanding: 0 })
        };
        let (tx, rx) = (ring(tx, Side::Tx)?, ring(rx, Side::Rx)?);
        let hardware = hardware(&engine, place.queue);
        let words = markers.words.clone();
        let scrub = Some(ScrubPart { number: scrub, words, lane: number, _hold: hold });
        let bound = Bound { hardware, sequencer: false, tx, rx, scrub };
        let chunks = [pattern_chunk, tx_chunk, rx_chunk];
        Ok(Lane { place, core, unit: engine.unit, bound, chunks, pattern })
    }
}

/// Writes the descriptors of an engine.
fn write(
    (tx_ring, rx_ring): (DescriptorRing, DescriptorRing),
    shape: &Shape,
    lane: usize,
    pattern: DeviceAddr,
    marker: (DeviceAddr, DeviceAddr),
) {
    let mut at = 0;
    let mut put = |source, destination, bytes, barrier| {
        let (tx, rx) = pair(1, source, destination, bytes, barrier);
        tx_ring.store(at, tx);
        rx_ring.store(at, rx);
        at += 1;
    };
    let mut source = pattern;
    for step in 0..shape.blocks {
        let block = DeviceAddr(shape.block(lane, step));
        put(source, block, MAX_BYTES as u32, Barrier::Data);
        source = block;
    }
    put(source, pattern, MAX_BYTES as u32, Barrier::Data);
    put(marker.0, marker.1, 4, Barrier::None);
}

/// The first byte of a pattern buffer that does not hold the pattern.
pub(super) fn first_wrong(pattern: &Pin, word: u32) -> Option<u64> {
    let host = pattern.host()?;
    let wanted = u64::from(word) << 32 | u64::from(word);
    (0..MAX_BYTES).step_by(8).find(|&at| host.load64(at).ok() != Some(wanted))
}

/// The engines of a scrub with the cores that own them.
pub(super) type Crew = Vec<(Engine, CoreId, Place)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem_e92_shapes_of_the_generations() {
        let shape = |end| Shape::new(0x100_0000, end).unwrap();
        let rows = [
            (0x4_0000_0000, 16_368, 32_768),
            (0x6_0000_0000, 24_560, 32_768),
            (0x9_0000_0000, 36_848, 65_536),
        ];
        for (end, blocks, length) in rows {
            let shape = shape(end);
            assert_eq!((shape.blocks, shape.length()), (blocks, length));
            assert_eq!((shape.data(), shape.count()), (blocks + 1, blocks + 2));
            assert_eq!(shape.block(15, blocks - 1) + MAX_BYTES, end);
        }
        assert_eq!((0x5ff2, 16 * 16_367), (shape(0x6_0000_0000).count(), 261_872));
        assert!(Shape::new(0, 0).is_err() && Shape::new(0, ROW - 1).is_err());
        assert!(Shape::new(5, 0).is_err() && Shape::new(0, u64::MAX).is_err());
    }
}
