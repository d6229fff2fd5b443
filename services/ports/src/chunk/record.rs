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

const PAGE_SHIFT: u32 = 12;
const PIN: u64 = 1;
const PINS: u64 = 0xf_ffff;
/// Set only where pins are counted the careful way, because there are so many.
const MANY_PINS: u64 = 1 << 19;
const DROP: u64 = 1 << 20;
const DROPS: u64 = 0x3ff << 20;
/// The chunk is host memory; in this word so that pinning device memory need not look elsewhere.
const HOST: u64 = 1 << 30;
const QUEUED: u64 = 1 << 31;
/// The generation is the upper half.
const GENERATION: u32 = 32;
/// Bit of the state: a chunk lives.
const ALIVE: u64 = 1 << GENERATION;

/// References one chunk can have, so that the count of dropped ones cannot overflow.
pub const MAX_REFERENCES: u32 = 1000;

/// What the service finds when it sweeps a slot of the release chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collected {
    /// References dropped since the last sweep; 0 for a dead chunk.
    pub dropped: u32,
    /// Whether the chunk lives.
    pub alive: bool,
    /// Pins held now.
    pub pins: u32,
}

/// Address, location, channel, region, core and lifespan in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u64);

impl Place {
    /// Packs numbers that the caller has checked: a page-aligned address, channel and region below
    /// 4, core below 8.
    #[inline(always)]
    pub const fn new(
        pa: u64,
        location: Location,
        channel: u32,
        region: u32,
        core: u32,
        lifespan: Lifespan,
    ) -> Place {
        let host = matches!(location, Location::Host) as u32;
        let low = host | channel << 1 | region << 3 | core << 5 | (lifespan as u32 - 1) << 8;
        Place(pa | low as u64)
    }
}

/// What the service stamps on a new chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Where it lies.
    pub place: Place,
    /// Bytes.
    pub size: u64,
    /// Bytes that may be reached from the first one.
    pub reach: u64,
    /// Number of the owner; 0 for the driver.
    pub owner: u32,
    /// Published handle; 0 for none.
    pub handle: u32,
    /// What for.
    pub category: u16,
    /// A number of the service's own.
    pub account: u16,
}

impl Stamp {
    /// The stamp of an unpublished chunk with these facts.
    pub fn of(facts: &ChunkFacts) -> Stamp {
        let (channel, region) = (u32::from(facts.channel & 3), u32::from(facts.region & 3));
        let core = facts.core.number();
        Stamp {
            place: Place::new(
                facts.pa.0 & !0xfff,
                facts.location,
                channel,
                region,
                core,
                facts.lifespan,
            ),
            size: facts.size,
            reach: facts.reach,
            owner: facts.owner.map_or(0, ClientId::number),
            handle: 0,
            category: facts.category.0.min(u32::from(u16::MAX)) as u16,
            account: 0,
        }
    }
}

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
        ((self.state.load(Ordering::Relaxed) >> GENERATION) as u32).wrapping_add(1)
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

    /// Service: ends the chunk. No pin can be taken any more; answers how many are left.
    #[inline]
    pub fn close(&self) -> u32 {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let new = now.wrapping_add(ALIVE) & !DROPS;
            match self.exchange(now, new) {
                Ok(()) => return pins_of(now),
                Err(seen) => now = seen,
            }
        }
    }

    /// Service: ends a chunk of device memory that has no pin and does not wait in the release
    /// chain; `false` where that is not so, and nothing has changed.
    #[inline(always)]
    pub fn close_quiet(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let quiet = state & ALIVE != 0 && state as u32 == 0;
        quiet && self.exchange(state, state.wrapping_add(ALIVE)).is_ok()
    }

    /// Service: forgets the host memory of a dead chunk and hands it back.
    pub fn take_host(&self) -> Option<Arc<DmaBuf>> {
        self.state.fetch_and(!HOST, Ordering::Relaxed);
        self.host.lock(Cell::take)
    }

    /// Service: takes the slot out of the release chain and answers why it was there.
    pub fn collect(&self) -> Collected {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            match self.exchange(now, now & !(QUEUED | DROPS)) {
                Ok(()) => {
                    return Collected {
                        dropped: ((now & DROPS) >> 20) as u32,
                        alive: now & ALIVE != 0,
                        pins: pins_of(now),
                    };
                }
                Err(seen) => now = seen,
            }
        }
    }

    /// Service: notes the handle under which the chunk was published.
    pub fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Release);
    }

    /// Service: changes how far an access may reach (contiguous scratchpads only).
    pub fn set_reach(&self, reach: u64) {
        self.reach_pages.store((reach >> PAGE_SHIFT) as u32, Ordering::Release);
    }

    /// Generation now; odd while a chunk lives.
    #[inline]
    pub fn generation(&self) -> u32 {
        generation_of(self.state.load(Ordering::Acquire))
    }

    /// Generation where a chunk lives.
    #[inline]
    pub fn alive(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Acquire);
        (state & ALIVE != 0).then_some(generation_of(state))
    }

    /// Pins held now.
    #[inline]
    pub fn pins(&self) -> u32 {
        pins_of(self.state.load(Ordering::Acquire))
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

    /// Takes a pin on a chunk of device memory: its generation. `None` where no chunk lives, or
    /// where [`Self::pin`] has to decide.
    #[inline(always)]
    pub(super) fn pin_device(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Acquire);
        let usual = state & ALIVE != 0 && state & (HOST | MANY_PINS) == 0;
        (usual && self.exchange(state, state + PIN).is_ok()).then_some(generation_of(state))
    }

    /// Takes a pin on the chunk of `generation`; `false` where it is gone.
    pub(super) fn pin(&self, generation: u32) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while generation_of(now) == generation && generation & 1 != 0 {
            match self.exchange(now, add_pin(now)) {
                Ok(()) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    /// The word, where a chunk lives.
    #[inline(always)]
    pub(super) fn state_alive(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        (state & ALIVE != 0).then_some(state)
    }

    /// Another pin for somebody who holds one; works on a dead chunk too.
    #[inline(always)]
    pub(super) fn pin_held(&self) {
        let now = self.state.load(Ordering::Relaxed);
        if now & MANY_PINS != 0 || self.exchange(now, now + PIN).is_err() {
            self.pin_held_again();
        }
    }

    #[cold]
    #[inline(never)]
    fn pin_held_again(&self) {
        let mut now = self.state.load(Ordering::Relaxed);
        while let Err(seen) = self.exchange(now, add_pin(now)) {
            now = seen;
        }
    }

    /// Gives a pin back, where the chunk lives and nobody has to be told; else `false`, and
    /// [`Self::unpin`] decides.
    #[inline(always)]
    pub(super) fn unpin_live(&self) -> bool {
        let now = self.state.load(Ordering::Relaxed);
        now & ALIVE != 0 && now & MANY_PINS == 0 && self.exchange(now, now - PIN).is_ok()
    }

    /// Gives a pin back; `true` where the caller must put the slot into the release chain.
    pub(super) fn unpin(&self) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let mut new = if now & PINS == PINS { now } else { now - PIN };
            let tell = new & (PINS | QUEUED | ALIVE) == 0;
            if tell {
                new |= QUEUED;
            }
            match self.exchange(now, new) {
                Ok(()) => return tell,
                Err(seen) => now = seen,
            }
        }
    }

    /// Gives a reference back; `true` where the caller must put the slot into the release chain.
    #[inline]
    pub(super) fn drop_reference(&self, generation: u32) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        while generation_of(now) == generation && generation & 1 != 0 && now & DROPS != DROPS {
            match self.exchange(now, (now + DROP) | QUEUED) {
                Ok(()) => return now & QUEUED == 0,
                Err(seen) => now = seen,
            }
        }
        false
    }

    #[inline(always)]
    fn exchange(&self, now: u64, new: u64) -> Result<(), u64> {
        self.state.compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed).map(drop)
    }
}

impl Default for ChunkRecord {
    fn default() -> Self {
        ChunkRecord::new()
    }
}

/// One more pin. A count at its limit stays there for good: such memory is never reused, which is
/// a leak but never a use after free.
fn add_pin(state: u64) -> u64 {
    if state & PINS == PINS { state } else { state + PIN }
}

fn pins_of(state: u64) -> u32 {
    (state & PINS) as u32
}

#[inline(always)]
pub(super) const fn generation_of(state: u64) -> u32 {
    (state >> GENERATION) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ChunkFacts {
        ChunkFacts {
            pa: DeviceAddr(0x8040_0100_0000),
            size: 0x3000,
            reach: 0x5000,
            location: Location::Device,
            channel: 3,
            region: 2,
            core: CoreId::new(7).unwrap(),
            category: Category(200),
            lifespan: Lifespan::AllClients,
            owner: ClientId::new(77),
        }
    }

    fn open(record: &ChunkRecord) -> u32 {
        let generation = record.next_generation();
        record.open(Stamp { handle: 5, account: 77, ..Stamp::of(&facts()) });
        assert_eq!((record.generation(), record.handle(), record.account()), (generation, 5, 77));
        generation
    }

    #[test]
    fn a_record_is_one_cache_line_and_keeps_every_fact() {
        assert_eq!(size_of::<ChunkRecord>(), 64);
        let record = ChunkRecord::new();
        let generation = open(&record);
        assert_eq!(record.facts(), facts());
        assert_eq!(record.facts_of(generation), Some(facts()));
        assert_eq!(record.facts_of(generation + 2), None);
    }

    #[test]
    fn pins_outlive_the_chunk_and_tell_once() {
        let record = ChunkRecord::new();
        let generation = open(&record);
        assert!(record.pin(generation));
        assert!(record.pin(generation));
        record.pin_held();
        assert_eq!(record.pins(), 3);
        assert_eq!(record.close(), 3);
        assert!(!record.pin(generation), "no pin on a dead chunk");
        assert!(!record.pin(generation + 1), "an even generation never lives");
        assert!(!ChunkRecord::new().pin(0), "nor does that of a fresh record");
        assert!(!record.unpin());
        assert!(!record.unpin());
        assert!(record.unpin(), "the last pin of a dead chunk tells the service");
        assert_eq!(record.collect(), Collected { dropped: 0, alive: false, pins: 0 });
    }

    #[test]
    fn dropped_references_count_until_collected() {
        let record = ChunkRecord::new();
        let generation = open(&record);
        assert!(record.drop_reference(generation));
        assert!(!record.drop_reference(generation), "queued once");
        assert_eq!(record.collect(), Collected { dropped: 2, alive: true, pins: 0 });
        record.close();
        assert!(!record.drop_reference(generation), "the chunk is gone");
        let next = open(&record);
        assert!(!record.drop_reference(generation));
        assert!(record.drop_reference(next));
    }

    #[test]
    fn a_slot_still_in_the_chain_is_not_queued_twice() {
        let record = ChunkRecord::new();
        let generation = open(&record);
        assert!(record.pin(generation));
        assert!(record.drop_reference(generation));
        record.close();
        assert!(!record.unpin(), "still in the chain from the reference");
        assert_eq!(record.collect(), Collected { dropped: 0, alive: false, pins: 0 });
    }

    #[test]
    fn only_a_quiet_chunk_of_device_memory_is_closed_the_short_way() {
        let record = ChunkRecord::new();
        assert!(!record.close_quiet(), "nothing lives");
        let generation = open(&record);
        assert!(record.pin(generation));
        assert!(!record.close_quiet(), "pinned");
        assert!(!record.unpin());
        assert!(record.drop_reference(generation));
        assert!(!record.close_quiet(), "in the release chain");
        record.collect();
        assert!(record.close_quiet());
        assert_eq!(record.alive(), None);
        assert!(!record.pin(generation));
        assert!(!record.close_quiet(), "closed already");
    }

    #[test]
    fn a_full_pin_count_sticks() {
        let record = ChunkRecord::new();
        let generation = open(&record);
        record.state.fetch_or(PINS - PIN, Ordering::Relaxed);
        assert!(record.pin(generation));
        assert!(record.pin(generation));
        record.close();
        assert!(!record.unpin());
        assert_eq!(record.pins(), 0xf_ffff, "never reused, never wrapped");
    }
}
