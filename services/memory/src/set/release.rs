//! Release: of one reference, of a chunk, of its memory (specification 04 §5.1).
//!
//! A chunk whose last reference is gone leaves handle table and list at once. Its memory goes back
//! when no pin is left, and for a contiguous scratchpad when every newer one has gone too; until
//! then it is draining: invisible, still counted, never reused.

use core::sync::atomic::Ordering::Relaxed;

use axon_ports::chunk::record::{ChunkRecord, Collected, MAX_REFERENCES};
use axon_ports::chunk::table::NO_SLOT;
use axon_ports::{ChunkName, ChunkTable, ClientId, Location, MemoryError};

use super::query::is_notification;
use super::sweep::SLICE;
use super::{MemorySet, State};
use crate::cell::Part;
use crate::config::PAGE;
use crate::counters::Account;
use crate::host::{HostSource, Origin};
use crate::records::{Source, Tag, set_draining};

impl<S: HostSource> MemorySet<S> {
    /// Ends the handle of a client's own chunk and with it one reference (MEM_FREE).
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`]; [`MemoryError::WrongOwner`]; [`MemoryError::Forbidden`] for the
    /// memory of a notification queue.
    #[inline]
    pub fn free(&mut self, client: Option<ClientId>, handle: u64) -> Result<(), MemoryError> {
        if self.free_hot(client, handle) { Ok(()) } else { self.free_any(client, handle) }
    }

    #[inline(never)]
    fn free_any(&mut self, client: Option<ClientId>, handle: u64) -> Result<(), MemoryError> {
        let name = self.table.find(handle).ok_or(MemoryError::BadHandle { handle })?;
        let record = self.table.record(name.slot).ok_or(MemoryError::BadHandle { handle })?;
        if record.owner() != client.map_or(0, ClientId::number) {
            return Err(MemoryError::WrongOwner { handle });
        }
        if is_notification(record.category()) {
            return Err(MemoryError::Forbidden { what: "freeing a notification queue" });
        }
        self.state.release_reference(&self.table, name.slot, record);
        Ok(())
    }

    /// Counts one more reference of a live chunk.
    ///
    /// # Errors
    /// [`MemoryError::Busy`] where it has as many as it can have.
    pub(crate) fn retain(&mut self, name: ChunkName) -> Result<(), MemoryError> {
        let record = self.live(name)?;
        let more = record.service.more_references.load(Relaxed);
        if more >= MAX_REFERENCES {
            return Err(MemoryError::Busy { what: "every reference of the chunk" });
        }
        record.service.more_references.store(more + 1, Relaxed);
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
        let name = self.table.find(handle).ok_or(MemoryError::BadHandle { handle })?;
        if self.record(name.slot)?.owner() != client.map_or(0, ClientId::number) {
            return Err(MemoryError::WrongOwner { handle });
        }
        self.retain(name)
    }

    /// Mints a handle for a live chunk, or answers the one it has.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`] where it has gone; [`MemoryError::HandleTableDown`].
    pub(crate) fn publish(&mut self, name: ChunkName) -> Result<u32, MemoryError> {
        let handle = self.live(name)?.handle();
        if handle != 0 {
            return Ok(handle);
        }
        let State { records, faults, .. } = &mut self.state;
        let issued = records.issue(&self.table, name.slot, faults);
        let handle = issued.map_err(|_| MemoryError::HandleTableDown)?;
        self.record(name.slot)?.set_handle(handle);
        Ok(handle)
    }

    /// The record of a chunk, where it still lives.
    fn live(&self, name: ChunkName) -> Result<&ChunkRecord, MemoryError> {
        let record = self.record(name.slot)?;
        if name.generation & 1 == 1 && record.generation() == name.generation {
            return Ok(record);
        }
        Err(MemoryError::BadHandle { handle: 0 })
    }

    /// Sweeps a slice of the release chain: dropped references, and ended chunks whose last pin is
    /// gone. Answers whether there is more.
    #[inline(always)]
    pub(crate) fn collect_released(&mut self) -> bool {
        self.state.has_released(&self.table) && self.state.collect(&self.table, SLICE)
    }

    /// Whether anything waits in the release chain.
    #[inline(always)]
    pub(crate) fn has_released(&self) -> bool {
        self.state.has_released(&self.table)
    }

    /// Sweeps the whole release chain.
    pub fn collect_all(&mut self) {
        self.state.collect_all(&self.table);
    }
}

impl<S: HostSource> State<S> {
    /// Gives back one reference of a live chunk; answers whether the chunk has ended.
    #[inline(always)]
    pub(super) fn release_reference(
        &mut self,
        table: &ChunkTable,
        slot: u32,
        record: &ChunkRecord,
    ) -> bool {
        let more = record.service.more_references.load(Relaxed);
        if more > 0 {
            record.service.more_references.store(more - 1, Relaxed);
            return false;
        }
        self.end(table, slot, record);
        true
    }

    /// Ends a chunk.
    #[inline(always)]
    fn end(&mut self, table: &ChunkTable, slot: u32, record: &ChunkRecord) {
        if !self.end_hot(table, slot, record) {
            self.end_any(table, slot, record);
        }
    }

    /// Counters, list and handle first; then nobody can find or pin it any more; then its memory,
    /// unless something holds it up.
    #[inline(never)]
    fn end_any(&mut self, table: &ChunkTable, slot: u32, record: &ChunkRecord) {
        let tag = Tag::of(record);
        let source = tag.source();
        self.counters.discharge(tag.payer(), record.owner(), source.location(), record.size());
        self.counters.chunk_ended();
        self.records.unlink(table, record, tag);
        let handle = record.handle();
        if handle != 0 {
            // A poisoned table refuses; the chunk ends all the same.
            let _ = self.records.free_handle(table, slot, handle);
        }
        let pins = record.close();
        match source {
            Source::Device(part @ (Part::Main | Part::Small)) if pins == 0 => {
                self.reclaim_device(slot, record, part);
            }
            source => self.end_unusual(table, slot, record, source, pins),
        }
    }

    /// Scratchpads, host memory, and whatever is pinned.
    #[inline(never)]
    fn end_unusual(
        &mut self,
        table: &ChunkTable,
        slot: u32,
        record: &ChunkRecord,
        source: Source,
        pins: u32,
    ) {
        match source {
            Source::Device(Part::Scratchpad) => {
                self.start_draining(record);
                self.end_scratchpad(table, slot, record);
            }
            source if pins == 0 => self.reclaim(slot, record, source),
            _ => self.start_draining(record),
        }
    }

    #[cold]
    fn start_draining(&mut self, record: &ChunkRecord) {
        set_draining(record);
        self.counters.drain(Tag::of(record).source().location(), record.size());
    }

    /// A scratchpad has ended: newer ones reach less far, and those that nothing holds go back.
    #[inline(never)]
    fn end_scratchpad(&mut self, table: &ChunkTable, slot: u32, record: &ChunkRecord) {
        let (channel, region) = record.cell();
        let index = self.cell_index(channel, region);
        let Some(cell) = self.cells.get(index) else { return };
        if let Some(place) = cell.scratchpads.iter().rposition(|&pad| pad == slot) {
            shorten_reach(table, cell.scratchpads.get(place + 1..).unwrap_or(&[]));
            if place + 1 != cell.scratchpads.len() && !self.warned.scratchpad {
                self.warned.scratchpad = true;
                let device = self.config.device;
                log::warn!("nd{device}: a scratchpad page was released before a newer one");
            }
        }
        self.settle_scratchpads(table, index);
    }

    /// Moves the frontier up over every ended and unpinned scratchpad at its edge.
    fn settle_scratchpads(&mut self, table: &ChunkTable, index: usize) {
        while let Some(cell) = self.cells.get_mut(index) {
            let Some(&slot) = cell.scratchpads.last() else { return };
            let Some(record) = table.record(slot) else { return };
            if !Tag::of(record).is_draining() || record.pins() != 0 {
                return;
            }
            if cell.pull_scratchpad(slot, record.size()).is_err() {
                return self.report_corruption(record);
            }
            self.counters.drained(Location::Device, record.size());
            self.leave(slot, record, Location::Device);
        }
    }

    /// Gives the memory of an ended, unpinned chunk back.
    #[inline(always)]
    fn reclaim_device(&mut self, slot: u32, record: &ChunkRecord, part: Part) {
        let (channel, region) = record.cell();
        let index = self.cell_index(channel, region);
        let Some(cell) = self.cells.get_mut(index) else { return };
        if cell.release(part, record.pa(), record.size(), slot).is_err() {
            return self.report_corruption(record);
        }
        self.leave(slot, record, Location::Device);
    }

    fn reclaim(&mut self, slot: u32, record: &ChunkRecord, source: Source) {
        match source {
            Source::Device(part) => self.reclaim_device(slot, record, part),
            Source::Host(origin) => self.reclaim_host(slot, record, origin),
        }
    }

    #[inline(never)]
    fn reclaim_host(&mut self, slot: u32, record: &ChunkRecord, origin: Origin) {
        let bus = record.pa() & !self.geometry.host_base;
        self.host_index.remove_used((bus / PAGE) as u32);
        if let Some(buffer) = record.take_host() {
            self.host.release(buffer, origin);
        }
        self.leave(slot, record, Location::Host);
    }

    /// Last step: totals, and the record is free again.
    #[inline(always)]
    fn leave(&mut self, slot: u32, record: &ChunkRecord, location: Location) {
        let account = Account(record.account() as u8);
        self.counters.unbook(location, record.core(), account, record.size());
        self.records.give(slot, record);
    }

    /// The arena does not know the span: its record is never used again, and neither is the span.
    #[cold]
    pub(super) fn report_corruption(&self, record: &ChunkRecord) {
        let device = self.config.device;
        log::error!("nd{device}: the arena refuses {} bytes at {:#x}", record.size(), record.pa());
        debug_assert!(false, "arena and records disagree");
    }

    /// Whether anything waits in the release chain.
    #[inline]
    pub(super) fn has_released(&self, table: &ChunkTable) -> bool {
        self.chain != NO_SLOT || table.has_released()
    }

    /// Sweeps the whole release chain.
    pub(super) fn collect_all(&mut self, table: &ChunkTable) {
        while self.collect(table, u32::MAX) {}
    }

    #[inline(never)]
    fn collect(&mut self, table: &ChunkTable, count: u32) -> bool {
        for _ in 0..count {
            if self.chain == NO_SLOT {
                self.chain = table.take_released();
            }
            let slot = self.chain;
            let Some((next, record, found)) = table.next_released(slot) else { return false };
            self.chain = next;
            self.collect_one(table, slot, record, found);
        }
        true
    }

    #[inline(always)]
    fn collect_one(
        &mut self,
        table: &ChunkTable,
        slot: u32,
        record: &ChunkRecord,
        found: Collected,
    ) {
        if found.alive {
            for _ in 0..found.dropped {
                if self.release_reference(table, slot, record) {
                    break;
                }
            }
        } else if found.pins == 0 && Tag::of(record).is_draining() {
            self.unpinned(table, slot, record);
        }
    }

    /// An ended chunk has lost its last pin.
    fn unpinned(&mut self, table: &ChunkTable, slot: u32, record: &ChunkRecord) {
        match Tag::of(record).source() {
            Source::Device(Part::Scratchpad) => {
                let (channel, region) = record.cell();
                self.settle_scratchpads(table, self.cell_index(channel, region));
            }
            source => {
                self.counters.drained(source.location(), record.size());
                self.reclaim(slot, record, source);
            }
        }
    }
}

/// Recomputes how far scratchpads may reach, oldest first, above which one has just ended.
fn shorten_reach(table: &ChunkTable, newer: &[u32]) {
    let mut above = 0;
    let mut owner = None;
    for &slot in newer {
        let Some(record) = table.record(slot) else { return };
        if record.generation() & 1 == 0 || owner.is_some_and(|owner| owner != record.owner()) {
            return;
        }
        owner = Some(record.owner());
        above += record.size();
        record.set_reach(above);
    }
}
