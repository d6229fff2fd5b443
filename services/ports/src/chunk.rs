//! One allocated span of HBM or host memory, as everybody but the memory service sees it
//! (specification 04 §1.1, §8.2).
//!
//! Two counts live here and mean different things. A [`Chunk`] is a *reference*: it governs the
//! logical life, and dropping it only sets a mark that the memory service sweeps. A [`Pin`] governs
//! reuse: as long as one exists the span stays out of its arena, whatever happened to the
//! references. Neither drop blocks, fails, allocates or sends.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use axon_platform::{DeviceAddr, DmaBuf};

use crate::{Category, ClientId, CoreId, Lifespan, Location};

/// What never changes while a chunk lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkFacts {
    /// First byte as the device sees it: an HBM address, or a tagged host address.
    pub pa: DeviceAddr,
    /// Bytes, a multiple of 4096, never 0.
    pub size: u64,
    /// Bytes that an access starting at `pa` may reach: `size`, or for a contiguous scratchpad the
    /// distance to the end of its pool (specification 04 §6.2).
    pub reach: u64,
    /// Where it lies.
    pub location: Location,
    /// HBM channel; for host memory what the caller said.
    pub channel: u8,
    /// Region of the channel.
    pub region: u8,
    /// Core it belongs to.
    pub core: CoreId,
    /// What it is used for.
    pub category: Category,
    /// How long it lives, as asked for.
    pub lifespan: Lifespan,
    /// Who asked; `None` for the driver itself.
    pub owner: Option<ClientId>,
}

/// How a chunk tells its memory service that something was given up.
pub trait ReleaseSink: Send + Sync {
    /// The chunk in record `slot` lost a reference or its last pin. Never blocks; may be called
    /// from anywhere.
    fn released(&self, slot: u32);
}

/// The part of a chunk that outlives its record. Made by the memory service only.
pub struct ChunkHeader {
    facts: ChunkFacts,
    host: Option<DmaBuf>,
    /// Bit 31: dead, no new pin. Rest: pins.
    pins: AtomicU32,
    /// References dropped and not yet swept by the service.
    dropped: AtomicU32,
    /// Published handle; 0 for none.
    handle: AtomicU32,
    sink: Arc<dyn ReleaseSink>,
    slot: u32,
}

const DEAD: u32 = 1 << 31;

impl ChunkHeader {
    /// A live header without pins. `host` is the CPU's view of host memory.
    pub fn new(
        facts: ChunkFacts,
        host: Option<DmaBuf>,
        sink: Arc<dyn ReleaseSink>,
        slot: u32,
    ) -> Arc<ChunkHeader> {
        Arc::new(ChunkHeader {
            facts,
            host,
            pins: AtomicU32::new(0),
            dropped: AtomicU32::new(0),
            handle: AtomicU32::new(0),
            sink,
            slot,
        })
    }

    /// What never changes.
    #[inline]
    pub fn facts(&self) -> &ChunkFacts {
        &self.facts
    }

    /// The CPU's view; `None` for device memory.
    #[inline]
    pub fn host(&self) -> Option<&DmaBuf> {
        self.host.as_ref()
    }

    /// Record of the memory service this header belongs to.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Published handle; 0 for none.
    #[inline]
    pub fn handle(&self) -> u64 {
        u64::from(self.handle.load(Ordering::Acquire))
    }

    /// Notes the handle under which the chunk was published.
    pub fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Release);
    }

    /// Takes a pin; `None` where the chunk is dead.
    #[inline]
    pub fn pin(self: &Arc<Self>) -> Option<Pin> {
        let mut now = self.pins.load(Ordering::Relaxed);
        loop {
            if now & DEAD != 0 {
                return None;
            }
            match self.pins.compare_exchange_weak(
                now,
                now + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Pin(self.clone())),
                Err(seen) => now = seen,
            }
        }
    }

    /// Whether the chunk was released.
    pub fn is_dead(&self) -> bool {
        self.pins.load(Ordering::Acquire) & DEAD != 0
    }

    /// Forbids new pins; answers how many are left. Called by the service at release.
    pub fn kill(&self) -> u32 {
        self.pins.fetch_or(DEAD, Ordering::AcqRel) & !DEAD
    }

    /// Pins held now.
    pub fn pins(&self) -> u32 {
        self.pins.load(Ordering::Acquire) & !DEAD
    }

    /// Takes the number of references dropped since the last call. Called by the service.
    pub fn take_dropped(&self) -> u32 {
        self.dropped.swap(0, Ordering::AcqRel)
    }
}

/// One reference to a live chunk. Dropping it gives the reference back (specification 04 §5.1).
pub struct Chunk(Arc<ChunkHeader>);

impl Chunk {
    /// Wraps a reference that the memory service has counted.
    pub fn from_header(header: Arc<ChunkHeader>) -> Chunk {
        Chunk(header)
    }

    /// Keeps the reference counted but stops tracking it: from now on only a request to the
    /// service by handle gives it back.
    pub fn into_header(self) -> Arc<ChunkHeader> {
        let header = self.0.clone();
        core::mem::forget(self);
        header
    }

    /// What never changes.
    #[inline]
    pub fn facts(&self) -> &ChunkFacts {
        &self.0.facts
    }

    /// The shared header.
    #[inline]
    pub fn header(&self) -> &Arc<ChunkHeader> {
        &self.0
    }

    /// The CPU's view; `None` for device memory.
    #[inline]
    pub fn host(&self) -> Option<&DmaBuf> {
        self.0.host.as_ref()
    }

    /// Takes a pin; `None` where the chunk was released behind the reference's back.
    #[inline]
    pub fn pin(&self) -> Option<Pin> {
        self.0.pin()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if !self.0.is_dead() {
            self.0.dropped.fetch_add(1, Ordering::AcqRel);
            self.0.sink.released(self.0.slot);
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chunk").field(&self.0.facts).finish()
    }
}

/// Keeps the memory of a chunk from being reused: held by whatever lets hardware reach it.
pub struct Pin(Arc<ChunkHeader>);

impl Pin {
    /// What never changes.
    #[inline]
    pub fn facts(&self) -> &ChunkFacts {
        &self.0.facts
    }

    /// The shared header.
    #[inline]
    pub fn header(&self) -> &Arc<ChunkHeader> {
        &self.0
    }

    /// The CPU's view; `None` for device memory.
    #[inline]
    pub fn host(&self) -> Option<&DmaBuf> {
        self.0.host.as_ref()
    }
}

impl Clone for Pin {
    /// Another pin; allowed on a dead chunk, because this one already holds the memory.
    #[inline]
    fn clone(&self) -> Pin {
        self.0.pins.fetch_add(1, Ordering::Relaxed);
        Pin(self.0.clone())
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        if self.0.pins.fetch_sub(1, Ordering::AcqRel) == DEAD + 1 {
            self.0.sink.released(self.0.slot);
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pin").field(&self.0.facts).finish()
    }
}
