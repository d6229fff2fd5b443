//! Release: of one reference, of a chunk, of its memory (specification 04 §5.1).
//!
//! A chunk whose last reference is gone leaves handle table and list at once. Its memory goes back
//! when no pin is left, and for a contiguous scratchpad when every newer one has gone too; until
//! then it is draining: invisible, still counted, never reused.

use core::sync::atomic::Ordering::Relaxed;

use axon_ports::chunk::record::{ChunkRecord, Collected, MAX_REFERENCES};
use axon_ports::chunk::table::NO_SLOT;
use axon_ports::{ChunkName, ChunkTable, ClientId, MemoryError};

use super::MemorySet;
use super::sweep::SLICE;
use crate::cell::Part;
use crate::config::PAGE;
use crate::host::HostSource;
use crate::records::{Source, Tag, set_draining};

impl<S: HostSource> MemorySet<S> {
    /// Gives back one reference of a live chunk; answers whether the chunk has ended.
    #[inline]
    pub(crate) fn release_reference(&mut self, slot: u32) -> bool {
        let Some(record) = self.records.table.record(slot) else { return false };
        let references = record.service.references.load(Relaxed);
        if references > 1 {
            record.service.references.store(references - 1, Relaxed);
            return false;
        }
        self.end(slot);
        true
    }

    /// Counts one more reference of a live chunk.
    ///
    /// # Errors
    /// [`MemoryError::Busy`] where it has as many as it can have.
    pub(crate) fn retain(&mut self, name: ChunkName) -> Result<(), MemoryError> {
        let record = self.live(name)?;
        let references = record.service.references.load(Relaxed);
        if references >= MAX_REFERENCES {
            return Err(MemoryError::Busy { what: "every reference of the chunk" });
        }
        record.service.references.store(references + 1, Relaxed);
        Ok(())
    }

    /// As [`Self::retain`], by handle, for the owner.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`]; [`MemoryError::WrongOwner`]; [`MemoryError::Busy`].
    pub(crate) fn retain_handle(
        &mut self,
        client: Option<ClientId>,
        handle: u64,
    ) -> Result<(), MemoryError> {
        let name = self.owned(client, handle)?;
        self.retain(name)
    }

    /// The chunk of a handle, where `client` owns it.
    fn owned(&self, client: Option<ClientId>, handle: u64) -> Result<ChunkName, MemoryError> {
        let name = self.records.table.find(handle).ok_or(MemoryError::BadHandle { handle })?;
        if self.record(name.slot)?.owner() != client.map_or(0, ClientId::number) {
            return Err(MemoryError::WrongOwner { handle });
        }
        Ok(name)
    }

    /// The record of a chunk, where it still lives.
    pub(crate) fn live(&self, name: ChunkName) -> Result<&ChunkRecord, MemoryError> {
        let record = self.record(name.slot)?;
        if name.generation & 1 == 1 && record.generation() == name.generation {
            return Ok(record);
        }
        Err(MemoryError::BadHandle { handle: 0 })
    }

    /// Ends a chunk: handle first, so that look-ups fail cleanly; then counters and list; then its
    /// memory, unless something holds it up.
    #[inline]
    fn end(&mut self, slot: u32) {
        let table = self.records.table.clone();
        let Some(record) = table.record(slot) else { return };
        let handle = record.handle();
        if handle != 0 {
            // A poisoned table refuses; the chunk ends all the same.
            let _ = self.handles.free(handle);
        }
        let tag = Tag::of(record);
        let host = record.is_host();
        if let Some(payer) = tag.payer() {
            let location = location(host);
            self.counters.discharge(payer, record.owner(), location, record.size());
        }
        self.counters.chunk_ended();
        self.records.unlink(record);
        let pins = record.close();
        match tag.source() {
            Source::Device(Part::Scratchpad) => {
                self.start_draining(record);
                self.end_scratchpad(slot, record);
            }
            _ if pins == 0 => self.reclaim(slot, record),
            _ => self.start_draining(record),
        }
    }

    fn start_draining(&mut self, record: &ChunkRecord) {
        set_draining(record);
        self.counters.drain(record.size());
    }

    /// A scratchpad has ended: newer ones reach less far, and those that nothing holds go back.
    fn end_scratchpad(&mut self, slot: u32, record: &ChunkRecord) {
        let Some(index) = self.cell_of(record) else { return };
        let Some(cell) = self.cells.get(index) else { return };
        if let Some(place) = cell.scratchpads.iter().rposition(|&pad| pad == slot) {
            self.shorten_reach(index, place);
            let device = self.config.device;
            if place + 1 != self.cells.get(index).map_or(0, |cell| cell.scratchpads.len())
                && !core::mem::replace(&mut self.warned.scratchpad, true)
            {
                log::warn!("nd{device}: a scratchpad page was released before a newer one");
            }
        }
        self.settle_scratchpads(index);
    }

    /// Recomputes how far the scratchpads newer than the one at `place` may reach.
    fn shorten_reach(&mut self, index: usize, place: usize) {
        let Some(cell) = self.cells.get(index) else { return };
        let mut above = 0;
        let mut owner = None;
        for &slot in cell.scratchpads.iter().skip(place + 1) {
            let Some(record) = self.records.table.record(slot) else { return };
            if record.generation() & 1 == 0 || owner.is_some_and(|owner| owner != record.owner()) {
                return;
            }
            owner = Some(record.owner());
            above += record.size();
            record.set_reach(above);
        }
    }

    /// Moves the frontier up over every ended and unpinned scratchpad at its edge.
    fn settle_scratchpads(&mut self, index: usize) {
        let table = self.records.table.clone();
        while let Some(cell) = self.cells.get_mut(index) {
            let Some(&slot) = cell.scratchpads.last() else { return };
            let Some(record) = table.record(slot) else { return };
            if !Tag::of(record).is_draining() || record.pins() != 0 {
                return;
            }
            if cell.pull_scratchpad(slot, record.size()).is_err() {
                return self.report_corruption(record);
            }
            self.counters.drained(record.size());
            self.leave(slot, record);
        }
    }

    /// Gives the memory of an ended, unpinned chunk back.
    #[inline]
    fn reclaim(&mut self, slot: u32, record: &ChunkRecord) {
        match Tag::of(record).source() {
            Source::Device(part) => {
                let cell = self.cell_of(record).and_then(|index| self.cells.get_mut(index));
                let Some(cell) = cell else { return };
                if cell.release(part, record.pa(), record.size(), slot).is_err() {
                    return self.report_corruption(record);
                }
            }
            Source::Host(origin) => {
                let bus = record.pa() & !self.geometry.host_base;
                self.host_index.remove_used((bus / PAGE) as u32);
                if let Some(buffer) = record.take_host() {
                    self.host.release(buffer, origin);
                }
            }
        }
        self.leave(slot, record);
    }

    /// Last step: totals, and the record is free again.
    #[inline]
    fn leave(&mut self, slot: u32, record: &ChunkRecord) {
        let facts = record.facts();
        let core = facts.core.number();
        self.counters.unbook(facts.location, facts.category, core, facts.size);
        self.records.give(slot, record);
    }

    /// The arena does not know the span: its record is never used again, and neither is the span.
    #[cold]
    fn report_corruption(&self, record: &ChunkRecord) {
        let device = self.config.device;
        log::error!("nd{device}: the arena refuses {} bytes at {:#x}", record.size(), record.pa());
        debug_assert!(false, "arena and records disagree");
    }

    /// Sweeps a slice of the release chain: dropped references, and ended chunks whose last pin is
    /// gone. Answers whether there is more.
    #[inline]
    pub(crate) fn collect_released(&mut self) -> bool {
        self.has_released() && self.collect(SLICE)
    }

    /// Whether anything waits in the release chain.
    pub(crate) fn has_released(&self) -> bool {
        self.chain != NO_SLOT || self.records.table.has_released()
    }

    /// Sweeps the whole release chain.
    pub(crate) fn collect_all(&mut self) {
        while self.collect(u32::MAX) {}
    }

    fn collect(&mut self, count: u32) -> bool {
        let table = self.records.table.clone();
        for _ in 0..count {
            if self.chain == NO_SLOT {
                self.chain = table.take_released();
            }
            let slot = self.chain;
            let Some((next, found)) = table.next_released(slot) else { return false };
            self.chain = next;
            self.collect_one(&table, slot, found);
        }
        true
    }

    fn collect_one(&mut self, table: &ChunkTable, slot: u32, found: Collected) {
        if found.alive {
            for _ in 0..found.dropped {
                if self.release_reference(slot) {
                    break;
                }
            }
        } else if found.pins == 0
            && let Some(record) = table.record(slot)
            && Tag::of(record).is_draining()
        {
            self.unpinned(slot, record);
        }
    }

    fn unpinned(&mut self, slot: u32, record: &ChunkRecord) {
        if Tag::of(record).source() == Source::Device(Part::Scratchpad) {
            if let Some(index) = self.cell_of(record) {
                self.settle_scratchpads(index);
            }
            return;
        }
        self.counters.drained(record.size());
        self.reclaim(slot, record);
    }

    fn cell_of(&self, record: &ChunkRecord) -> Option<usize> {
        let facts = record.facts();
        self.cell_index(facts.channel.into(), facts.region.into())
    }

    /// Ends the handle of a client's own chunk and with it one reference (MEM_FREE).
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`]; [`MemoryError::WrongOwner`]; [`MemoryError::Forbidden`] for the
    /// memory of a notification queue.
    pub(crate) fn free(
        &mut self,
        client: Option<ClientId>,
        handle: u64,
    ) -> Result<(), MemoryError> {
        let name = self.owned(client, handle)?;
        let record = self.record(name.slot)?;
        if super::query::is_notification(record.category()) {
            return Err(MemoryError::Forbidden { what: "freeing a notification queue" });
        }
        self.release_reference(name.slot);
        Ok(())
    }
}

const fn location(host: bool) -> axon_ports::Location {
    if host { axon_ports::Location::Host } else { axon_ports::Location::Device }
}
