//! Handles and slots of chunk records, and the lifespan lists that run through them
//! (specification 04 §5.2, §7).

use core::sync::atomic::Ordering::Relaxed;

use axon_ports::chunk::record::ChunkRecord;
use axon_ports::chunk::table::{
    GATE_DOWN, HANDLE_LIMIT, HANDLES_PER_TABLE, NO_SLOT, RECORDS_PER_PAGE,
};
use axon_ports::{ChunkTable, ClientSlot, Lifespan, Location};

use crate::arena::NoRoom;
use crate::cell::Part;
use crate::counters::Payer;
use crate::faults::Faults;
use crate::host::Origin;

/// A lifespan list; the numbers are those of the record's tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List(u32);

impl List {
    /// Lists that belong to no client have the lifespan's number, 17 for LOCAL and so on.
    const SHARED: u32 = 16;
    pub(crate) const ALL_CLIENTS: List = List(List::SHARED + Lifespan::AllClients as u32);
    pub(crate) const DEVICE: List = List(List::SHARED + Lifespan::Device as u32);
    const COUNT: usize = 32;

    /// List of the client in `slot`.
    #[inline]
    pub(crate) const fn of_client(slot: ClientSlot) -> List {
        List(slot.number() + 1)
    }

    /// The list on which a survivor of this one goes on living; `None` at the end.
    pub(crate) const fn next(self) -> Option<List> {
        match self.0 {
            1..=16 => Some(List::ALL_CLIENTS),
            19 => Some(List::DEVICE),
            _ => None,
        }
    }

    /// All lists, in the order in which they are checked.
    pub(crate) fn all() -> impl Iterator<Item = List> {
        (1..List::COUNT as u32).map(List)
    }

    /// The list of everybody for a lifespan that is not a client's own.
    #[inline]
    pub(crate) const fn shared(lifespan: Lifespan) -> List {
        List(List::SHARED + lifespan as u32)
    }

    #[inline]
    const fn index(self) -> usize {
        self.0 as usize % List::COUNT
    }
}

/// Where the memory of a chunk goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Device(Part),
    Host(Origin),
}

impl Source {
    #[inline]
    pub(crate) const fn location(self) -> Location {
        match self {
            Source::Device(_) => Location::Device,
            Source::Host(_) => Location::Host,
        }
    }
}

/// The service's small numbers of one chunk, packed into the record's tag:
/// list 0–7, source 8–11, draining 12, attach slot + 1 in 13–17, reserve page 18–31.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

const DRAINING: u32 = 1 << 12;

impl Tag {
    #[inline]
    pub(crate) fn new(source: Source, payer: Payer) -> Tag {
        let source = match source {
            Source::Device(Part::Main) => 0,
            Source::Device(Part::Small) => 1,
            Source::Device(Part::Scratchpad) => 2,
            Source::Host(Origin::Direct) => 3,
            Source::Host(Origin::Pool { pool, page }) => {
                (4 + u32::from(pool & 3)) | (u32::from(page) << 10)
            }
        };
        Tag(source << 8 | payer.0 << 13)
    }

    /// Without a list.
    pub(crate) const fn off_list(self) -> Tag {
        Tag(self.0 & !0xff)
    }

    #[inline]
    pub(crate) fn of(record: &ChunkRecord) -> Tag {
        Tag(record.service.tag.load(Relaxed))
    }

    #[inline]
    pub(crate) fn source(self) -> Source {
        match self.0 >> 8 & 0xf {
            0 => Source::Device(Part::Main),
            1 => Source::Device(Part::Small),
            2 => Source::Device(Part::Scratchpad),
            3 => Source::Host(Origin::Direct),
            pool => {
                Source::Host(Origin::Pool { pool: (pool - 4) as u8, page: (self.0 >> 18) as u16 })
            }
        }
    }

    /// Main or small arena, where the memory is that of a live, ordinary device chunk.
    #[inline(always)]
    pub(crate) fn ordinary_part(self) -> Option<Part> {
        match self.0 >> 8 & 0x1f {
            0 => Some(Part::Main),
            1 => Some(Part::Small),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn is_draining(self) -> bool {
        self.0 & DRAINING != 0
    }

    /// Who pays.
    #[inline]
    pub(crate) fn payer(self) -> Payer {
        Payer(self.0 >> 13 & 0x1f)
    }
}

/// Marks a chunk as released but not yet reusable.
pub(crate) fn set_draining(record: &ChunkRecord) {
    record.service.tag.store(Tag::of(record).0 | DRAINING, Relaxed);
}

/// Whether a record holds a chunk, or memory of one that has ended.
#[inline(always)]
pub(crate) fn is_taken(record: &ChunkRecord) -> bool {
    record.service.tag.load(Relaxed) != 0
}

/// The table is down for good, or the handle names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoHandle;

/// A handle that never has a record.
const DOWN: u32 = HANDLE_LIMIT;

/// Free handles, free slots and lists of one device.
///
/// A handle is the slot of its record (specification 04 §7): freed ones are reused last in, first
/// out, through links in their records; a record that was never used has no link, and then the next
/// handle is the next number. Log lines and errors may carry a handle, never a link.
pub(crate) struct Records {
    /// First free handle; [`DOWN`] once the table is.
    handle: u32,
    /// First free slot without a handle.
    free: u32,
    /// Slots without a handle from here on have no record yet.
    fresh: u32,
    newest: [u32; List::COUNT],
}

impl Records {
    /// The first level-2 table, and the free list at handle 1. Where that table cannot be made the
    /// answer is an error, and the handle table is down.
    pub(crate) fn new(table: &ChunkTable, faults: &mut Faults) -> Result<Self, NoHandle> {
        let newest = [NO_SLOT; List::COUNT];
        let mut records = Records { handle: 1, free: NO_SLOT, fresh: HANDLE_LIMIT, newest };
        match grow_handles(table, 0, faults) {
            Ok(()) => Ok(records),
            Err(NoHandle) => {
                records.poison(table);
                Err(NoHandle)
            }
        }
    }

    /// The handle that the next publication gets.
    #[inline(always)]
    pub(crate) fn next_handle(&self) -> u32 {
        self.handle
    }

    /// Whether no handle is issued or freed any more.
    #[inline(always)]
    pub(crate) fn is_down(&self) -> bool {
        self.handle == DOWN
    }

    /// A slot for the next chunk, whose record exists: that of the next handle where it is to have
    /// one and the record is free, else one without. Nothing is taken.
    pub(crate) fn choose(
        &mut self,
        table: &ChunkTable,
        publish: bool,
        faults: &mut Faults,
    ) -> Result<u32, NoRoom> {
        if publish && table.record_of_handle(self.handle).is_some_and(|record| !is_taken(record)) {
            return Ok(self.handle);
        }
        if self.free == NO_SLOT {
            self.add_page(table, faults)?;
        }
        Ok(self.free)
    }

    /// Makes another page of records without handles, all of them free, the lowest first.
    #[cold]
    #[inline(never)]
    fn add_page(&mut self, table: &ChunkTable, faults: &mut Faults) -> Result<(), NoRoom> {
        if faults.growth.hit() {
            return Err(NoRoom);
        }
        table.grow(self.fresh).map_err(|_| NoRoom)?;
        let first = self.fresh;
        self.fresh += RECORDS_PER_PAGE as u32;
        for slot in (first..self.fresh).rev() {
            if let Some(record) = table.record(slot) {
                self.give(slot, record);
            }
        }
        Ok(())
    }

    /// Takes the slot that [`Self::choose`] answered, where it is one without a handle.
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u32, record: &ChunkRecord) {
        if slot >= HANDLE_LIMIT {
            self.free = record.service.older.load(Relaxed);
        }
    }

    /// Gives a slot back. The record of a handle is reused with its handle.
    #[inline(always)]
    pub(crate) fn give(&mut self, slot: u32, record: &ChunkRecord) {
        record.service.tag.store(0, Relaxed);
        if slot >= HANDLE_LIMIT {
            record.service.older.store(self.free, Relaxed);
            self.free = slot;
        }
    }

    /// Issues the next handle to the chunk in `slot`. Running out poisons the table for good.
    pub(crate) fn issue(
        &mut self,
        table: &ChunkTable,
        slot: u32,
        faults: &mut Faults,
    ) -> Result<u32, NoHandle> {
        let handle = self.handle;
        let record = table.record_of_handle(handle).ok_or(NoHandle)?;
        self.advance(table, handle, record, faults)?;
        if slot != handle {
            record.set_handle(slot);
        }
        Ok(handle)
    }

    /// Takes `handle`, the next one, off the free list.
    #[inline(always)]
    pub(crate) fn advance(
        &mut self,
        table: &ChunkTable,
        handle: u32,
        record: &ChunkRecord,
        faults: &mut Faults,
    ) -> Result<(), NoHandle> {
        let link = record.service.older.load(Relaxed);
        let next = if link == 0 { handle + 1 } else { link };
        if next % HANDLES_PER_TABLE as u32 == 0 {
            self.cross(table, link, next, faults)?;
        }
        self.handle = next;
        Ok(())
    }

    /// The next free handle is the first of a level-2 table: at the frontier that table is made one
    /// step ahead.
    #[cold]
    #[inline(never)]
    fn cross(
        &mut self,
        table: &ChunkTable,
        link: u32,
        next: u32,
        faults: &mut Faults,
    ) -> Result<(), NoHandle> {
        let frontier = link == 0;
        if frontier && (next >= HANDLE_LIMIT || grow_handles(table, next, faults).is_err()) {
            self.poison(table);
            return Err(NoHandle);
        }
        Ok(())
    }

    /// Takes the handle of the chunk in `slot` back, which must be off its list and still live. A
    /// double free changes nothing.
    #[inline(always)]
    pub(crate) fn free_handle(
        &mut self,
        table: &ChunkTable,
        slot: u32,
        handle: u32,
    ) -> Result<(), NoHandle> {
        let record = table.record_of_handle(handle).ok_or(NoHandle)?;
        if slot != handle {
            if record.handle() != slot {
                return Err(NoHandle);
            }
            record.set_handle(0);
        } else if record.alive().is_none() {
            return Err(NoHandle);
        }
        if self.handle == DOWN {
            return Err(NoHandle);
        }
        self.put_handle(handle, record);
        Ok(())
    }

    /// Puts a handle at the front of the free list, which is not down.
    #[inline(always)]
    pub(crate) fn put_handle(&mut self, handle: u32, record: &ChunkRecord) {
        record.service.older.store(self.handle, Relaxed);
        self.handle = handle;
    }

    /// Shuts the handle table for good: nothing is issued, freed or found any more.
    #[cold]
    pub(crate) fn poison(&mut self, table: &ChunkTable) {
        self.handle = DOWN;
        table.set_gate(GATE_DOWN, true);
    }

    /// Newest chunk of `list`.
    #[inline]
    pub(crate) fn newest(&self, list: List) -> Option<u32> {
        Some(self.newest[list.index()]).filter(|&slot| slot != NO_SLOT)
    }

    /// Puts a chunk at the front of `list`.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        table: &ChunkTable,
        list: List,
        slot: u32,
        record: &ChunkRecord,
        tag: Tag,
    ) {
        let older = core::mem::replace(&mut self.newest[list.index()], slot);
        record.service.newer.store(NO_SLOT, Relaxed);
        record.service.older.store(older, Relaxed);
        record.service.tag.store(tag.0 | list.0, Relaxed);
        if let Some(older) = linked(table, older) {
            older.service.newer.store(slot, Relaxed);
        }
    }

    /// Takes a chunk off its list.
    #[inline(always)]
    pub(crate) fn unlink(&mut self, table: &ChunkTable, record: &ChunkRecord, tag: Tag) {
        let (newer, older) =
            (record.service.newer.load(Relaxed), record.service.older.load(Relaxed));
        if let Some(newer) = linked(table, newer) {
            newer.service.older.store(older, Relaxed);
        } else {
            self.newest[List(tag.0 & 0xff).index()] = older;
        }
        if let Some(older) = linked(table, older) {
            older.service.newer.store(newer, Relaxed);
        }
    }
}

/// The record at the other end of a link; `None` at the end of a list.
#[inline(always)]
fn linked(table: &ChunkTable, slot: u32) -> Option<&ChunkRecord> {
    match slot {
        0..HANDLE_LIMIT => table.record_of_handle(slot),
        NO_SLOT => None,
        _ => linked_elsewhere(table, slot),
    }
}

#[inline(never)]
fn linked_elsewhere(table: &ChunkTable, slot: u32) -> Option<&ChunkRecord> {
    table.record(slot)
}

#[cold]
fn grow_handles(table: &ChunkTable, index: u32, faults: &mut Faults) -> Result<(), NoHandle> {
    if faults.growth.hit() || faults.handle_table.hit() {
        return Err(NoHandle);
    }
    table.grow(index).map_err(|_| NoHandle)
}

#[cfg(test)]
mod tests;
