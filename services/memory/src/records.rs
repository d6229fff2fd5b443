//! Slots of chunk records, and the lifespan lists that run through them (specification 04 §5.2).

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use axon_ports::chunk::record::ChunkRecord;
use axon_ports::chunk::table::{NO_SLOT, RECORDS_PER_PAGE};
use axon_ports::{ChunkTable, ClientSlot, Lifespan};

use crate::arena::NoRoom;
use crate::cell::Part;
use crate::faults::Faults;
use crate::host::Origin;

/// A lifespan list; the numbers are those of the record's tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List(u32);

impl List {
    pub(crate) const LOCAL: List = List(17);
    pub(crate) const ALL_CLIENTS: List = List(18);
    pub(crate) const DEVICE: List = List(19);
    const COUNT: usize = 20;

    /// List of the client in `slot`.
    pub(crate) const fn of_client(slot: ClientSlot) -> List {
        List(slot.number() + 1)
    }

    /// The list on which a survivor of this one goes on living; `None` at the end.
    pub(crate) const fn next(self) -> Option<List> {
        match self.0 {
            1..=16 => Some(List::ALL_CLIENTS),
            18 => Some(List::DEVICE),
            _ => None,
        }
    }

    /// All lists, in the order in which they are checked.
    pub(crate) fn all() -> impl Iterator<Item = List> {
        (1..List::COUNT as u32).map(List)
    }

    pub(crate) fn for_lifespan(lifespan: Lifespan, slot: Option<ClientSlot>) -> Option<List> {
        match lifespan {
            Lifespan::Local => Some(List::LOCAL),
            Lifespan::Client => slot.map(List::of_client),
            Lifespan::AllClients => Some(List::ALL_CLIENTS),
            Lifespan::Device => Some(List::DEVICE),
        }
    }
}

/// Where the memory of a chunk goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Device(Part),
    Host(Origin),
}

/// The service's small numbers of one chunk, packed into the record's tag:
/// list 0–7, source 8–11, draining 12, attach slot + 1 in 13–17, reserve page 18–31.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

const DRAINING: u32 = 1 << 12;

impl Tag {
    #[inline]
    pub(crate) fn new(source: Source, slot: Option<ClientSlot>) -> Tag {
        let source = match source {
            Source::Device(Part::Main) => 0,
            Source::Device(Part::Small) => 1,
            Source::Device(Part::Scratchpad) => 2,
            Source::Host(Origin::Direct) => 3,
            Source::Host(Origin::Pool { pool, page }) => {
                (4 + u32::from(pool & 3)) | (u32::from(page) << 10)
            }
        };
        Tag(source << 8 | slot.map_or(0, |slot| slot.number() + 1) << 13)
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

    /// Attach slot of the client that pays.
    #[inline]
    pub(crate) fn payer(self) -> Option<usize> {
        (self.0 >> 13 & 0x1f).checked_sub(1).map(|slot| slot as usize)
    }
}

/// Marks a chunk as released but not yet reusable.
pub(crate) fn set_draining(record: &ChunkRecord) {
    record.service.tag.store(Tag::of(record).0 | DRAINING, Relaxed);
}

/// Free slots and lists of one device.
pub(crate) struct Records {
    pub(crate) table: Arc<ChunkTable>,
    /// First free slot, linked through `older`.
    free: u32,
    /// Slots from here on were never used.
    fresh: u32,
    newest: [u32; List::COUNT],
}

impl Records {
    pub(crate) fn new(table: Arc<ChunkTable>) -> Self {
        Records { table, free: NO_SLOT, fresh: 0, newest: [NO_SLOT; List::COUNT] }
    }

    /// The slot that the next chunk will have; its record exists afterwards. Nothing is taken.
    #[inline]
    pub(crate) fn peek(&mut self, faults: &mut Faults) -> Result<u32, NoRoom> {
        if self.free != NO_SLOT {
            return Ok(self.free);
        }
        if (self.fresh as usize).is_multiple_of(RECORDS_PER_PAGE) {
            if faults.growth.hit() {
                return Err(NoRoom);
            }
            self.table.grow_records(self.fresh).map_err(|_| NoRoom)?;
        }
        Ok(self.fresh)
    }

    /// Takes the slot that [`Self::peek`] answered.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32, record: &ChunkRecord) {
        if slot == self.fresh {
            self.fresh += 1;
        } else {
            self.free = record.service.older.load(Relaxed);
        }
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
        self.newest.get(list.0 as usize).copied().filter(|&slot| slot != NO_SLOT)
    }

    /// Puts a chunk at the front of `list`.
    #[inline]
    pub(crate) fn push(&mut self, list: List, slot: u32, record: &ChunkRecord, tag: Tag) {
        let Some(newest) = self.newest.get_mut(list.0 as usize) else { return };
        record.service.newer.store(NO_SLOT, Relaxed);
        record.service.older.store(*newest, Relaxed);
        record.service.tag.store(tag.0 & !0xff | list.0, Relaxed);
        if *newest != NO_SLOT
            && let Some(older) = self.table.record(*newest)
        {
            older.service.newer.store(slot, Relaxed);
        }
        *newest = slot;
    }

    /// Takes a chunk off its list.
    #[inline]
    pub(crate) fn unlink(&mut self, record: &ChunkRecord) {
        let (newer, older) =
            (record.service.newer.load(Relaxed), record.service.older.load(Relaxed));
        if newer != NO_SLOT {
            if let Some(newer) = self.table.record(newer) {
                newer.service.older.store(older, Relaxed);
            }
        } else if let Some(newest) = self.newest.get_mut(record.service.list() as usize) {
            *newest = older;
        }
        if older != NO_SLOT
            && let Some(older) = self.table.record(older)
        {
            older.service.newer.store(newer, Relaxed);
        }
        record.service.tag.store(Tag::of(record).0 & !0xff, Relaxed);
    }
}
