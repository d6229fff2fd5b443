//! Slots of chunk records, and the lifespan lists that run through them (specification 04 §5.2).

use core::sync::atomic::Ordering::Relaxed;

use axon_ports::chunk::record::ChunkRecord;
use axon_ports::chunk::table::{NO_SLOT, RECORDS_PER_PAGE};
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

/// Free slots and lists of one device.
pub(crate) struct Records {
    /// First free slot, linked through `older`.
    free: u32,
    /// Slots from here on have no record yet.
    fresh: u32,
    newest: [u32; List::COUNT],
}

impl Records {
    pub(crate) fn new() -> Self {
        Records { free: NO_SLOT, fresh: 0, newest: [NO_SLOT; List::COUNT] }
    }

    /// The slot that the next chunk will have, or [`NO_SLOT`] where one has to be made first.
    #[inline(always)]
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// The slot that the next chunk will have; its record exists afterwards. Nothing is taken.
    #[inline(always)]
    pub(crate) fn peek(&mut self, table: &ChunkTable, faults: &mut Faults) -> Result<u32, NoRoom> {
        if self.free == NO_SLOT {
            self.add_page(table, faults)?;
        }
        Ok(self.free)
    }

    /// Makes another page of records, all of them free, the lowest first.
    #[cold]
    #[inline(never)]
    fn add_page(&mut self, table: &ChunkTable, faults: &mut Faults) -> Result<(), NoRoom> {
        if faults.growth.hit() {
            return Err(NoRoom);
        }
        table.grow_records(self.fresh).map_err(|_| NoRoom)?;
        let first = self.fresh;
        self.fresh += RECORDS_PER_PAGE as u32;
        for slot in (first..self.fresh).rev() {
            if let Some(record) = table.record(slot) {
                self.give(slot, record);
            }
        }
        Ok(())
    }

    /// Takes the slot that [`Self::peek`] answered.
    #[inline(always)]
    pub(crate) fn take(&mut self, record: &ChunkRecord) {
        self.free = record.service.older.load(Relaxed);
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn give(&mut self, slot: u32, record: &ChunkRecord) {
        record.service.older.store(self.free, Relaxed);
        record.service.tag.store(0, Relaxed);
        self.free = slot;
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
        if let Some(older) = table.record(older) {
            older.service.newer.store(slot, Relaxed);
        }
    }

    /// Takes a chunk off its list.
    #[inline]
    pub(crate) fn unlink(&mut self, table: &ChunkTable, record: &ChunkRecord) {
        let (newer, older) =
            (record.service.newer.load(Relaxed), record.service.older.load(Relaxed));
        if let Some(newer) = table.record(newer) {
            newer.service.older.store(older, Relaxed);
        } else {
            self.newest[List(record.service.list()).index()] = older;
        }
        if let Some(older) = table.record(older) {
            older.service.newer.store(newer, Relaxed);
        }
        record.service.tag.store(Tag::of(record).0 & !0xff, Relaxed);
    }
}
