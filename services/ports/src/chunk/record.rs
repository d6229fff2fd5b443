//! The shared record of one chunk: 64 bytes that the memory service writes and everybody reads.
//!
//! Records never move and are reused, so a reader names one by slot *and* generation. One word
//! holds all that decides whether the memory may be reused: the generation (odd while the chunk
//! lives), the pins, the references dropped but not yet swept, and whether the slot waits in the
//! release chain. Whoever holds a pin may read the other fields as they are, because the service
//! rewrites them only when no pin is left (specification 04 §8.2, §8.3).

use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use axon_platform::{DeviceAddr, DmaBuf};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

use super::ChunkFacts;
use crate::{Category, ClientId, CoreId, Lifespan, Location};

mod life;
mod stamp;

pub(in crate::chunk) use life::generation_of;
use life::{ALIVE, HOST, PINS};
pub use life::{Collected, MAX_REFERENCES};
pub use stamp::{Place, Stamp};

const PAGE_SHIFT: u32 = 12;

/// Fields that only the memory service reads and writes; their meaning is its own.
#[derive(Default)]
pub struct ServiceFields {
    /// Counted references beyond the first; 0 in a record without a chunk.
    pub more_references: AtomicU32,
    /// Link towards newer chunks of the same list.
    pub newer: AtomicU32,
    /// Link towards older chunks of the same list, or to the next free record.
    pub older: AtomicU32,
    /// Small numbers of the service; the low byte is the lifespan list: 0 none, 1 to 16 the client
    /// in attach slot n − 1, other numbers the service's own.
    pub tag: AtomicU32,
}

impl ServiceFields {
    /// The lifespan list the chunk is on.
    pub fn list(&self) -> u32 {
        self.tag.load(Ordering::Relaxed) & 0xff
    }
}

/// One record; a cache line of its own.
#[repr(align(64))]
pub struct ChunkRecord {
    state: AtomicU64,
    /// Page-aligned address; location, channel, region, core and lifespan in its low 12 bits.
    place: AtomicU64,
    size_pages: AtomicU32,
    reach_pages: AtomicU32,
    owner: AtomicU32,
    handle: AtomicU32,
    category: AtomicU16,
    /// A number of the service.
    account: AtomicU16,
    /// Next slot of the release chain; written by whoever set `QUEUED`.
    pub(super) chain: AtomicU32,
    host: Mutex<CriticalSectionRawMutex, Cell<Option<Arc<DmaBuf>>>>,
    /// The service's own.
    pub service: ServiceFields,
}

impl ChunkRecord {
    /// A record without a chunk.
    pub const fn new() -> Self {
        ChunkRecord {
            state: AtomicU64::new(0),
            place: AtomicU64::new(0),
            size_pages: AtomicU32::new(0),
            reach_pages: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            handle: AtomicU32::new(0),
            category: AtomicU16::new(0),
            account: AtomicU16::new(0),
            chain: AtomicU32::new(0),
            host: Mutex::new(Cell::new(None)),
            service: ServiceFields {
                more_references: AtomicU32::new(0),
                newer: AtomicU32::new(0),
                older: AtomicU32::new(0),
                tag: AtomicU32::new(0),
            },
        }
    }

    /// The generation that the next [`Self::open`] gives.
    #[inline]
    pub fn next_generation(&self) -> u32 {
        generation_of(self.state.load(Ordering::Relaxed)).wrapping_add(1)
    }

    /// Service: gives the record a chunk of the next generation. The record must be dead and
    /// without pins.
    #[inline(always)]
    pub fn open(&self, stamp: Stamp) {
        debug_assert!(self.state.load(Ordering::Relaxed) & (PINS | ALIVE) == 0, "still in use");
        self.place.store(stamp.place.0, Ordering::Relaxed);
        self.size_pages.store((stamp.size >> PAGE_SHIFT) as u32, Ordering::Relaxed);
        self.reach_pages.store((stamp.reach >> PAGE_SHIFT) as u32, Ordering::Relaxed);
        self.owner.store(stamp.owner, Ordering::Relaxed);
        self.handle.store(stamp.handle, Ordering::Relaxed);
        self.category.store(stamp.category, Ordering::Relaxed);
        self.account.store(stamp.account, Ordering::Relaxed);
        // Nobody else changes a dead record, and an even generation plus one does not carry.
        self.state.store(self.state.load(Ordering::Relaxed) + ALIVE, Ordering::Release);
    }

    /// As [`Self::open`], for host memory that the CPU sees through `host`.
    pub fn open_host(&self, stamp: Stamp, host: Arc<DmaBuf>) {
        self.host.lock(|cell| cell.set(Some(host)));
        self.state.fetch_or(HOST, Ordering::Relaxed);
        self.open(stamp);
    }

    /// Service: forgets the host memory of a dead chunk and hands it back.
    pub fn take_host(&self) -> Option<Arc<DmaBuf>> {
        self.state.fetch_and(!HOST, Ordering::Relaxed);
        self.host.lock(Cell::take)
    }

    /// Service: notes the handle under which the chunk was published.
    pub fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Release);
    }

    /// Service: changes how far an access may reach (contiguous scratchpads only).
    pub fn set_reach(&self, reach: u64) {
        self.reach_pages.store((reach >> PAGE_SHIFT) as u32, Ordering::Release);
    }

    /// Published handle of the chunk, 0 for none. In a dead record of the handle table: the slot
    /// of the chunk that has this handle instead, 0 for none.
    #[inline]
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Acquire)
    }

    /// First byte.
    #[inline]
    pub fn pa(&self) -> u64 {
        self.place.load(Ordering::Relaxed) & !0xfff
    }

    /// Bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        u64::from(self.size_pages.load(Ordering::Relaxed)) << PAGE_SHIFT
    }

    /// Bytes that may be reached from the first one.
    #[inline]
    pub fn reach(&self) -> u64 {
        u64::from(self.reach_pages.load(Ordering::Relaxed)) << PAGE_SHIFT
    }

    /// Number of the owner; 0 for the driver.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// What it is used for.
    #[inline]
    pub fn category(&self) -> Category {
        Category(self.category.load(Ordering::Relaxed).into())
    }

    /// The number that the service gave to [`Self::open`].
    #[inline]
    pub fn account(&self) -> u16 {
        self.account.load(Ordering::Relaxed)
    }

    /// Number of the core it belongs to.
    #[inline]
    pub fn core(&self) -> u32 {
        (self.place.load(Ordering::Relaxed) >> 5 & 7) as u32
    }

    /// Channel and region.
    #[inline]
    pub fn cell(&self) -> (u32, u32) {
        let place = self.place.load(Ordering::Relaxed) as u32;
        (place >> 1 & 3, place >> 3 & 3)
    }

    /// First byte, core, and whether it lies in host memory, in one look.
    #[inline(always)]
    pub fn whereabouts(&self) -> (DeviceAddr, CoreId, bool) {
        let place = self.place.load(Ordering::Relaxed);
        (DeviceAddr(place & !0xfff), CoreId::from_low_bits(place >> 5), place & 1 != 0)
    }

    /// Whether it lies in host memory.
    #[inline]
    pub fn is_host(&self) -> bool {
        self.place.load(Ordering::Relaxed) & 1 != 0
    }

    /// All facts, consistent only while the record cannot change: for the service itself, and for
    /// whoever holds a pin.
    pub fn facts(&self) -> ChunkFacts {
        let place = self.place.load(Ordering::Relaxed);
        ChunkFacts {
            pa: DeviceAddr(place & !0xfff),
            size: self.size(),
            reach: self.reach(),
            location: if place & 1 != 0 { Location::Host } else { Location::Device },
            channel: (place >> 1 & 3) as u8,
            region: (place >> 3 & 3) as u8,
            core: CoreId::from_low_bits(place >> 5),
            category: self.category(),
            lifespan: match place >> 8 & 3 {
                0 => Lifespan::Local,
                1 => Lifespan::Client,
                2 => Lifespan::AllClients,
                _ => Lifespan::Device,
            },
            owner: ClientId::new(self.owner()),
        }
    }

    /// All facts of the chunk of `generation`; `None` where the record has moved on.
    pub fn facts_of(&self, generation: u32) -> Option<ChunkFacts> {
        if generation & 1 == 0 || self.generation() != generation {
            return None;
        }
        let facts = self.facts();
        fence(Ordering::Acquire);
        (generation_of(self.state.load(Ordering::Relaxed)) == generation).then_some(facts)
    }

    /// The CPU's view of host memory; `None` for device memory.
    pub(super) fn host(&self) -> Option<Arc<DmaBuf>> {
        self.host.lock(|cell| {
            let host = cell.take();
            let copy = host.clone();
            cell.set(host);
            copy
        })
    }
}

impl Default for ChunkRecord {
    fn default() -> Self {
        ChunkRecord::new()
    }
}

#[cfg(test)]
mod tests;
