//! What a memory service publishes of its chunks: records, the handle snapshot, the release chain.
//!
//! The service writes, everybody reads without a message and without a lock. Tables only grow and
//! live as long as anyone holds the [`ChunkTable`], so no reader can follow a freed one. A handle
//! cell names a record by slot and generation; a stale cell therefore ends in "not found", never in
//! somebody else's memory (specification 04 §7, §8.3).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::task::Waker;

use axon_platform::DmaBuf;
use embassy_sync::waitqueue::AtomicWaker;
use once_cell::race::OnceBox;

use super::record::{ChunkRecord, Collected, Stamp};
use super::{Chunk, ChunkFacts, ChunkHeader, Pin};

/// Level-1 slots of the handle table.
pub const HANDLE_TABLES: usize = 512;
/// Cells of one level-2 table.
pub const HANDLES_PER_TABLE: usize = 8192;
/// Index space of the handle table: valid handles are below this.
pub const HANDLE_LIMIT: u32 = (HANDLE_TABLES * HANDLES_PER_TABLE) as u32;

/// Records that are created together.
pub const RECORDS_PER_PAGE: usize = 512;
const PAGE_SHIFT: u32 = RECORDS_PER_PAGE.trailing_zeros();
/// Pages of a full-size table: every handle can name a chunk, and 65,536 more need none.
const RECORD_PAGES: usize = (HANDLE_LIMIT as usize + 65_536) / RECORDS_PER_PAGE;

/// No slot.
pub const NO_SLOT: u32 = u32::MAX;

/// Bit of the gate: the handle table is down for good.
pub const GATE_DOWN: u32 = 1 << 31;

type RecordPage = [ChunkRecord; RECORDS_PER_PAGE];
type HandlePage = [AtomicU64; HANDLES_PER_TABLE];

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

impl ChunkName {
    fn from_cell(cell: u64) -> Option<Self> {
        (cell & 1 != 0).then_some(ChunkName { slot: (cell >> 32) as u32, generation: cell as u32 })
    }

    /// The handle cell that names this chunk. Cells of free handles have bit 0 clear.
    pub fn cell(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.generation)
    }
}

/// Records, handle snapshot and release chain of one device.
pub struct ChunkTable {
    /// 0 while every published handle resolves. [`GATE_DOWN`]; bit n: clients of attach slot n are
    /// being dropped.
    gate: AtomicU32,
    /// Newest slot of the release chain, or [`NO_SLOT`].
    released: AtomicU32,
    records: Box<[OnceBox<RecordPage>]>,
    waker: AtomicWaker,
    handles: [OnceBox<HandlePage>; HANDLE_TABLES],
}

impl ChunkTable {
    /// A table for as many chunks as there are handles, and 65,536 more.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn new() -> Result<Arc<Self>, NoRoom> {
        ChunkTable::with_pages(RECORD_PAGES)
    }

    /// A table for `pages` × [`RECORDS_PER_PAGE`] chunks.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn with_pages(pages: usize) -> Result<Arc<Self>, NoRoom> {
        let records = grow(pages, OnceBox::new)?;
        let room = grow(1, || [const { AtomicU64::new(0) }; HANDLE_TABLES + 16])?;
        drop(room);
        Ok(Arc::new(ChunkTable {
            gate: AtomicU32::new(0),
            released: AtomicU32::new(NO_SLOT),
            records,
            waker: AtomicWaker::new(),
            handles: [const { OnceBox::new() }; HANDLE_TABLES],
        }))
    }

    /// The record of `slot`; `None` where its page does not exist.
    #[inline]
    pub fn record(&self, slot: u32) -> Option<&ChunkRecord> {
        let page = self.records.get((slot >> PAGE_SHIFT) as usize)?.get()?;
        page.get(slot as usize % RECORDS_PER_PAGE)
    }

    /// How many slots the table can ever have.
    pub fn slot_limit(&self) -> u32 {
        (self.records.len() * RECORDS_PER_PAGE) as u32
    }

    /// Service: makes sure that the page of `slot` exists.
    ///
    /// # Errors
    /// [`NoRoom`], also behind [`Self::slot_limit`].
    pub fn grow_records(&self, slot: u32) -> Result<(), NoRoom> {
        let page = self.records.get((slot >> PAGE_SHIFT) as usize).ok_or(NoRoom)?;
        if page.get().is_none() {
            let fresh = grow(RECORDS_PER_PAGE, ChunkRecord::new)?;
            let fresh: Box<RecordPage> = fresh.try_into().map_err(|_| NoRoom)?;
            page.set(fresh).map_err(|_| NoRoom)?;
        }
        Ok(())
    }

    /// Service: makes sure that the level-2 table of handle `index` exists.
    ///
    /// # Errors
    /// [`NoRoom`], also for an index behind [`HANDLE_LIMIT`].
    pub fn grow_handles(&self, index: u32) -> Result<(), NoRoom> {
        let table = self.handles.get(index as usize / HANDLES_PER_TABLE).ok_or(NoRoom)?;
        if table.get().is_none() {
            let fresh = grow(HANDLES_PER_TABLE, || AtomicU64::new(0))?;
            let fresh: Box<HandlePage> = fresh.try_into().map_err(|_| NoRoom)?;
            table.set(fresh).map_err(|_| NoRoom)?;
        }
        Ok(())
    }

    /// Service: the cell of handle `index`; `None` where its table does not exist.
    #[inline]
    pub fn cell(&self, index: u32) -> Option<&AtomicU64> {
        let table = self.handles.get(index as usize / HANDLES_PER_TABLE)?.get()?;
        table.get(index as usize % HANDLES_PER_TABLE)
    }

    /// The chunk that `handle` names; `None` for any other number, and for every handle once the
    /// table is down.
    #[inline]
    pub fn find(&self, handle: u64) -> Option<ChunkName> {
        if handle >= u64::from(HANDLE_LIMIT) {
            return None;
        }
        let cell = self.cell(handle as u32)?.load(Ordering::Acquire);
        let name = ChunkName::from_cell(cell)?;
        if self.gate.load(Ordering::Relaxed) != 0 && self.is_barred(name) {
            return None;
        }
        Some(name)
    }

    /// Pins the chunk that `handle` names.
    #[inline]
    pub fn pin(self: &Arc<Self>, handle: u64) -> Option<Pin> {
        self.pin_name(self.find(handle)?)
    }

    /// Pins a chunk found before; `None` where it has gone since.
    #[inline]
    pub fn pin_name(self: &Arc<Self>, name: ChunkName) -> Option<Pin> {
        let record = self.record(name.slot)?;
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
    #[inline]
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
        if shut {
            self.gate.fetch_or(bits, Ordering::Release);
        } else {
            self.gate.fetch_and(!bits, Ordering::Release);
        }
    }

    /// Whether the handle table is down for good.
    pub fn is_down(&self) -> bool {
        self.gate.load(Ordering::Acquire) & GATE_DOWN != 0
    }

    /// A shut gate bars everything once the table is down, else the chunks of clients that are
    /// being dropped.
    #[cold]
    fn is_barred(&self, name: ChunkName) -> bool {
        let gate = self.gate.load(Ordering::Acquire);
        let list = self.record(name.slot).map_or(0, |r| r.service.list());
        gate & GATE_DOWN != 0 || matches!(list, 1..=16) && gate & 1 << (list - 1) != 0
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
            self.waker.wake();
        }
    }

    /// Service: whether anything waits in the release chain.
    #[inline]
    pub fn has_released(&self) -> bool {
        self.released.load(Ordering::Relaxed) != NO_SLOT
    }

    /// Service: takes the whole release chain; walk it with [`Self::next_released`].
    pub fn take_released(&self) -> u32 {
        self.released.swap(NO_SLOT, Ordering::AcqRel)
    }

    /// Service: takes `slot` out of a chain; answers the next one and what happened to `slot`.
    pub fn next_released(&self, slot: u32) -> Option<(u32, Collected)> {
        let record = self.record(slot)?;
        let next = record.chain.load(Ordering::Acquire);
        Some((next, record.collect()))
    }

    /// Wakes the service.
    #[inline]
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Service: who is woken when something enters an empty release chain.
    pub fn set_waker(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// A chunk that no service stands behind, in record `slot`: for tests of code that only uses
    /// chunks. Nothing happens when it is released.
    pub fn lone(
        self: &Arc<Self>,
        slot: u32,
        facts: ChunkFacts,
        host: Option<DmaBuf>,
    ) -> Option<Chunk> {
        self.grow_records(slot).ok()?;
        let record = self.record(slot)?;
        let generation = record.next_generation();
        if let Some(host) = host {
            record.set_host(Arc::new(host));
        }
        record.open(Stamp::of(&facts));
        Some(self.reference(ChunkName { slot, generation }))
    }
}

/// `count` values in a box of exactly that size.
fn grow<T>(count: usize, mut value: impl FnMut() -> T) -> Result<Box<[T]>, NoRoom> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| NoRoom)?;
    values.resize_with(count, &mut value);
    Ok(values.into_boxed_slice())
}
