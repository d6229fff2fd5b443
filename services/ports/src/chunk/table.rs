//! What a memory service publishes of its chunks: records, the handle snapshot, the release chain.
//!
//! The service writes, everybody reads without a message and without a lock. Tables only grow and
//! live as long as anyone holds the [`ChunkTable`], so no reader can follow a freed one.
//!
//! The two levels of the handle table are the records themselves: a published chunk lives in the
//! record whose slot is its handle (512 tables of 8192, specification 04 §7). Chunks without a
//! handle live in slots behind [`HANDLE_LIMIT`]. Where a handle is issued while the record of that
//! number still holds draining memory, or is issued to a chunk that lives elsewhere already, the
//! dead record names that slot. A reader names a chunk by slot and generation, so a stale look ends
//! in "not found", never in somebody else's memory (§8.3).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::Waker;

use axon_platform::DmaBuf;
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use once_cell::race::OnceBox;

use super::record::{ChunkRecord, Collected, Stamp, generation_of};
use super::{Chunk, ChunkFacts, ChunkHeader, Pin};

/// Level-1 slots of the handle table.
pub const HANDLE_TABLES: usize = 512;
/// Records of one level-2 table.
pub const HANDLES_PER_TABLE: usize = 8192;
/// Index space of the handle table: valid handles are below this, slots without one are not.
pub const HANDLE_LIMIT: u32 = (HANDLE_TABLES * HANDLES_PER_TABLE) as u32;

/// Records without a handle that are created together.
pub const RECORDS_PER_PAGE: usize = 512;
/// Pages of such records in a full-size table: one million of them.
const RECORD_PAGES: usize = 2048;

/// No slot.
pub const NO_SLOT: u32 = u32::MAX;

/// Bit of the gate: the handle table is down for good.
pub const GATE_DOWN: u32 = 1 << 31;

type HandleTable = [ChunkRecord; HANDLES_PER_TABLE];
type RecordPage = [ChunkRecord; RECORDS_PER_PAGE];

/// Stands in for a record that does not exist, so that no accessor can panic.
static NO_RECORD: ChunkRecord = ChunkRecord::new();

/// There is no memory for another page of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// A chunk found by handle, without a pin: good for nothing but taking one, or reading facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkName {
    /// Record.
    pub slot: u32,
    /// Generation of the record; odd.
    pub generation: u32,
}

/// Records, handle snapshot and release chain of one device.
pub struct ChunkTable {
    /// Handles below this resolve without looking at the gate: all, or none while it is shut.
    open_handles: AtomicU32,
    /// [`GATE_DOWN`]; bit n: clients of attach slot n are being dropped.
    gate: AtomicU32,
    /// Newest slot of the release chain, or [`NO_SLOT`].
    released: AtomicU32,
    /// The service.
    waker: Mutex<CriticalSectionRawMutex, Cell<Option<Waker>>>,
    unpublished: Box<[OnceBox<RecordPage>]>,
    handles: [OnceBox<HandleTable>; HANDLE_TABLES],
}

impl ChunkTable {
    /// A table for every handle, and a million chunks without one.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn new() -> Result<Arc<Self>, NoRoom> {
        ChunkTable::with_pages(RECORD_PAGES)
    }

    /// A table for `pages` × [`RECORDS_PER_PAGE`] chunks without a handle.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn with_pages(pages: usize) -> Result<Arc<Self>, NoRoom> {
        let unpublished = grow(pages, OnceBox::new)?;
        // What follows must not fail, so see first whether there is room.
        drop(grow(1, || [0u64; HANDLE_TABLES + 16])?);
        Ok(Arc::new(ChunkTable {
            open_handles: AtomicU32::new(HANDLE_LIMIT),
            gate: AtomicU32::new(0),
            released: AtomicU32::new(NO_SLOT),
            waker: Mutex::new(Cell::new(None)),
            unpublished,
            handles: [const { OnceBox::new() }; HANDLE_TABLES],
        }))
    }

    /// The record of handle `index`; `None` where its table does not exist.
    #[inline(always)]
    pub fn record_of_handle(&self, index: u32) -> Option<&ChunkRecord> {
        let table = self.handles.get(index as usize / HANDLES_PER_TABLE)?.get()?;
        table.get(index as usize % HANDLES_PER_TABLE)
    }

    /// The record of the number `handle`, alive or not; `None` where its table does not exist or
    /// the gate is shut.
    #[inline(always)]
    pub fn record_of_open_handle(&self, handle: u64) -> Option<&ChunkRecord> {
        if handle >= u64::from(self.open_handles.load(Ordering::Relaxed)) {
            return None;
        }
        let slot = handle as usize;
        let table = self.handles[slot / HANDLES_PER_TABLE % HANDLE_TABLES].get()?;
        Some(&table[slot % HANDLES_PER_TABLE])
    }

    /// The record of `slot`; `None` where its page does not exist.
    #[inline]
    pub fn record(&self, slot: u32) -> Option<&ChunkRecord> {
        if slot < HANDLE_LIMIT {
            return self.record_of_handle(slot);
        }
        let place = (slot - HANDLE_LIMIT) as usize;
        let page = self.unpublished.get(place / RECORDS_PER_PAGE)?.get()?;
        page.get(place % RECORDS_PER_PAGE)
    }

    /// The record of a chunk, whose page exists.
    #[inline(always)]
    pub(super) fn known(&self, slot: u32) -> &ChunkRecord {
        if slot < HANDLE_LIMIT
            && let Some(table) = self.handles[slot as usize / HANDLES_PER_TABLE].get()
        {
            return &table[slot as usize % HANDLES_PER_TABLE];
        }
        self.known_elsewhere(slot)
    }

    #[inline(never)]
    fn known_elsewhere(&self, slot: u32) -> &ChunkRecord {
        self.record(slot).unwrap_or(&NO_RECORD)
    }

    /// Every record there is, chunk or not; for sums that nobody keeps.
    pub fn records(&self) -> impl Iterator<Item = &ChunkRecord> {
        let published = self.handles.iter().filter_map(OnceBox::get).flat_map(|table| &table[..]);
        let others = self.unpublished.iter().filter_map(OnceBox::get).flat_map(|page| &page[..]);
        published.chain(others)
    }

    /// Service: makes sure that the page of `slot` exists.
    ///
    /// # Errors
    /// [`NoRoom`], also for slots that a table never has.
    #[cold]
    pub fn grow(&self, slot: u32) -> Result<(), NoRoom> {
        if slot < HANDLE_LIMIT {
            return fill(self.handles.get(slot as usize / HANDLES_PER_TABLE));
        }
        fill(self.unpublished.get((slot - HANDLE_LIMIT) as usize / RECORDS_PER_PAGE))
    }

    /// The chunk that `handle` names; `None` for any other number, and for every handle once the
    /// table is down.
    #[inline(always)]
    pub fn find(&self, handle: u64) -> Option<ChunkName> {
        let (slot, state, _) = self.find_record(handle)?;
        Some(ChunkName { slot, generation: generation_of(state) })
    }

    /// Slot, word and record of the chunk that `handle` names.
    #[inline(always)]
    fn find_record(&self, handle: u64) -> Option<(u32, u64, &ChunkRecord)> {
        if handle >= u64::from(self.open_handles.load(Ordering::Relaxed)) {
            return self.find_gated(handle);
        }
        let slot = handle as u32;
        let table = self.handles[slot as usize / HANDLES_PER_TABLE % HANDLE_TABLES].get()?;
        let record = &table[slot as usize % HANDLES_PER_TABLE];
        match record.state_alive() {
            Some(state) => Some((slot, state, record)),
            None => self.find_elsewhere(slot, record),
        }
    }

    /// The chunk of a handle that does not live in the record of that number.
    #[cold]
    #[inline(never)]
    fn find_elsewhere(&self, handle: u32, dead: &ChunkRecord) -> Option<(u32, u64, &ChunkRecord)> {
        let slot = dead.handle();
        let record = self.record(slot).filter(|_| slot >= HANDLE_LIMIT)?;
        let state = record.state_alive().filter(|_| record.handle() == handle)?;
        Some((slot, state, record))
    }

    /// As [`Self::find_record`], while the gate is shut: it bars everything once the table is down,
    /// else the chunks of clients that are being dropped.
    #[cold]
    #[inline(never)]
    fn find_gated(&self, handle: u64) -> Option<(u32, u64, &ChunkRecord)> {
        let gate = self.gate.load(Ordering::Acquire);
        if gate & GATE_DOWN != 0 || handle >= u64::from(HANDLE_LIMIT) {
            return None;
        }
        let handle = handle as u32;
        let record = self.record_of_handle(handle)?;
        let (slot, state, record) = match record.state_alive() {
            Some(state) => (handle, state, record),
            None => self.find_elsewhere(handle, record)?,
        };
        let list = record.service.list();
        let barred = matches!(list, 1..=16) && gate & 1 << (list - 1) != 0;
        (!barred).then_some((slot, state, record))
    }

    /// Pins the chunk that `handle` names.
    #[inline(always)]
    pub fn pin(self: &Arc<Self>, handle: u64) -> Option<Pin> {
        // Mostly it is device memory in the record of that number; one look decides.
        if let Some(record) = self.record_of_open_handle(handle)
            && let Some(generation) = record.pin_device()
        {
            let name = ChunkName { slot: handle as u32, generation };
            return Some(Pin(ChunkHeader { table: self.clone(), host: None, name }));
        }
        self.pin_found(handle)
    }

    /// As [`Self::pin`], for any chunk.
    #[inline(never)]
    fn pin_found(self: &Arc<Self>, handle: u64) -> Option<Pin> {
        let (slot, state, record) = self.find_record(handle)?;
        self.pin_record(ChunkName { slot, generation: generation_of(state) }, record)
    }

    /// Pins a chunk found before; `None` where it has gone since.
    #[inline]
    pub fn pin_name(self: &Arc<Self>, name: ChunkName) -> Option<Pin> {
        self.pin_record(name, self.record(name.slot)?)
    }

    /// Pins the chunk of a record, where it is still there.
    fn pin_record(self: &Arc<Self>, name: ChunkName, record: &ChunkRecord) -> Option<Pin> {
        if !record.pin(name.generation) {
            return None;
        }
        let host = if record.is_host() { record.host() } else { None };
        Some(Pin(ChunkHeader { table: self.clone(), host, name }))
    }

    /// The facts of a chunk found before; `None` where it has gone since.
    #[inline]
    pub fn facts(&self, name: ChunkName) -> Option<ChunkFacts> {
        self.record(name.slot)?.facts_of(name.generation)
    }

    /// Service: wraps a reference to device memory that it has counted.
    #[inline(always)]
    pub fn device_reference(self: &Arc<Self>, name: ChunkName) -> Chunk {
        Chunk(ChunkHeader { table: self.clone(), host: None, name })
    }

    /// Service: wraps a reference that it has counted.
    pub fn reference(self: &Arc<Self>, name: ChunkName) -> Chunk {
        let host = self.record(name.slot).filter(|r| r.is_host()).and_then(ChunkRecord::host);
        Chunk(ChunkHeader { table: self.clone(), host, name })
    }

    /// Service: shuts or opens bits of the gate.
    pub fn set_gate(&self, bits: u32, shut: bool) {
        let gate = self.gate.load(Ordering::Relaxed);
        let gate = if shut { gate | bits } else { gate & !bits };
        self.gate.store(gate, Ordering::Release);
        self.open_handles.store(if gate == 0 { HANDLE_LIMIT } else { 0 }, Ordering::Release);
    }

    /// Whether the handle table is down for good.
    pub fn is_down(&self) -> bool {
        self.gate.load(Ordering::Acquire) & GATE_DOWN != 0
    }

    /// Puts a slot into the release chain and wakes the service. Never blocks or allocates.
    pub(super) fn release(&self, slot: u32, record: &ChunkRecord) {
        let mut head = self.released.load(Ordering::Relaxed);
        loop {
            record.chain.store(head, Ordering::Relaxed);
            match self.released.compare_exchange(head, slot, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(seen) => head = seen,
            }
        }
        if head == NO_SLOT {
            self.wake();
        }
    }

    /// Service: whether anything waits in the release chain.
    #[inline(always)]
    pub fn has_released(&self) -> bool {
        self.released.load(Ordering::Relaxed) != NO_SLOT
    }

    /// Service: takes the whole release chain; walk it with [`Self::next_released`].
    #[inline]
    pub fn take_released(&self) -> u32 {
        self.released.swap(NO_SLOT, Ordering::AcqRel)
    }

    /// Service: takes `slot` out of a chain; answers the next one and what happened to `slot`.
    #[inline]
    pub fn next_released(&self, slot: u32) -> Option<(u32, &ChunkRecord, Collected)> {
        let record = self.record(slot)?;
        let next = record.chain.load(Ordering::Acquire);
        Some((next, record, record.collect()))
    }

    /// Wakes the service.
    #[inline(always)]
    pub fn wake(&self) {
        self.waker.lock(|cell| {
            let waker = cell.take();
            if let Some(waker) = &waker {
                waker.wake_by_ref();
            }
            // Nothing is in the cell that would have to be dropped.
            forget(cell.replace(waker));
        });
    }

    /// Service: who is woken when something enters an empty release chain, or by [`Self::wake`].
    pub fn set_waker(&self, waker: &Waker) {
        let old = self.waker.lock(|there| there.replace(Some(waker.clone())));
        drop(old);
    }

    /// A chunk that no service stands behind, the `place`-th without a handle: for tests of code
    /// that only uses chunks. Nothing happens when it is released.
    pub fn lone(
        self: &Arc<Self>,
        place: u32,
        facts: ChunkFacts,
        host: Option<DmaBuf>,
    ) -> Option<Chunk> {
        let slot = HANDLE_LIMIT.checked_add(place)?;
        self.grow(slot).ok()?;
        let record = self.record(slot)?;
        let generation = record.next_generation();
        match host {
            Some(host) => record.open_host(Stamp::of(&facts), Arc::new(host)),
            None => record.open(Stamp::of(&facts)),
        }
        Some(self.reference(ChunkName { slot, generation }))
    }
}

/// Makes a page of records where there is none.
fn fill<const N: usize>(page: Option<&OnceBox<[ChunkRecord; N]>>) -> Result<(), NoRoom> {
    let page = page.ok_or(NoRoom)?;
    if page.get().is_none() {
        let fresh = grow(N, ChunkRecord::new)?;
        let fresh: Box<[ChunkRecord; N]> = fresh.try_into().map_err(|_| NoRoom)?;
        page.set(fresh).map_err(|_| NoRoom)?;
    }
    Ok(())
}

/// `count` values in a box of exactly that size.
fn grow<T>(count: usize, mut value: impl FnMut() -> T) -> Result<Box<[T]>, NoRoom> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| NoRoom)?;
    values.resize_with(count, &mut value);
    Ok(values.into_boxed_slice())
}
