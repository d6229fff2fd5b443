//! Ends of lifespans: a client, the last client, the device (specification 04 §5.3 to §5.5).

use core::sync::atomic::Ordering::Relaxed;

use axon_ports::chunk::record::ChunkRecord;
use axon_ports::{ChunkTable, ClientId, ClientSlot, MemoryError};

use super::{MemorySet, State};
use crate::host::HostSource;
use crate::records::{List, Tag};

/// Chunks ended in one turn: about 1200 instructions, so that a copy of somebody else that meets one
/// such turn takes less than twice as long as alone.
pub(crate) const SLICE: u32 = 5;

/// A client whose chunks are being swept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SweepState {
    slot: ClientSlot,
}

/// What the end of the device found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShutdownReport {
    /// Clients that were still attached.
    pub clients: u32,
    /// Chunks that lost their last reference only because the device ended.
    pub leaked: u32,
    /// Chunks on a list after everything was swept; 0 unless something is wrong.
    pub left: u32,
    /// Bytes that something still pins.
    pub draining: u64,
}

impl<S: HostSource> MemorySet<S> {
    /// Enters a client into its attach slot, with fresh totals.
    ///
    /// # Errors
    /// [`MemoryError::Busy`] where the slot is taken by another client.
    pub fn attach(&mut self, client: ClientId, slot: ClientSlot) -> Result<(), MemoryError> {
        let state = &mut self.state;
        if state.is_live(client, slot) {
            return Ok(());
        }
        match state.clients.get_mut(slot.index()) {
            Some(empty @ 0) => *empty = client.number(),
            _ => return Err(MemoryError::Busy { what: "the attach slot" }),
        }
        state.live_clients[slot.index()] = client.number();
        state.counters.attach(slot, client);
        Ok(())
    }

    /// Starts to drop a client: from now on none of its handles resolves and it gets no memory.
    ///
    /// # Errors
    /// [`MemoryError::NotAttached`].
    pub(crate) fn begin_detach(
        &mut self,
        client: ClientId,
        slot: ClientSlot,
    ) -> Result<SweepState, MemoryError> {
        if !self.state.is_live(client, slot) {
            return Err(MemoryError::NotAttached);
        }
        self.state.live_clients[slot.index()] = 0;
        self.state.windows.close(Some(client));
        self.table.set_gate(1 << slot.number(), true);
        Ok(SweepState { slot })
    }

    /// Sweeps a slice of a client's chunks, newest first; answers whether the client is gone.
    pub(crate) fn continue_detach(&mut self, sweep: SweepState) -> bool {
        let list = List::of_client(sweep.slot);
        if !self.state.sweep(&self.table, list, list.next(), SLICE) {
            return false;
        }
        self.state.clients[sweep.slot.index()] = 0;
        self.state.counters.detach(sweep.slot);
        self.table.set_gate(1 << sweep.slot.number(), false);
        true
    }

    /// Sweeps a slice of what lives as long as any client does; answers whether it is done.
    pub(crate) fn continue_last_client(&mut self) -> bool {
        self.state.sweep(&self.table, List::ALL_CLIENTS, List::ALL_CLIENTS.next(), SLICE)
    }

    /// Ends everything: still attached clients, then what lives with all clients, then with the
    /// device; then proves that nothing is left.
    pub fn destroy(&mut self) -> ShutdownReport {
        let (table, state) = (&*self.table, &mut self.state);
        state.windows.close(None);
        state.collect_all(table);
        let mut report = ShutdownReport::default();
        for slot in ClientSlot::all() {
            if state.clients[slot.index()] != 0 {
                report.clients += 1;
                log::warn!("nd{}: {slot} still attached", state.config.device);
                while !state.sweep(table, List::of_client(slot), Some(List::DEVICE), SLICE) {}
            }
        }
        while !state.sweep(table, List::ALL_CLIENTS, Some(List::DEVICE), SLICE) {}
        while let Some(slot) = state.records.newest(List::DEVICE)
            && let Some(record) = table.record(slot)
        {
            if !state.release_reference(table, slot, record) {
                report.leaked += 1;
                state.promote(table, slot, record, None);
            }
        }
        state.force_out(table, &mut report);
        state.clients = Default::default();
        state.live_clients = Default::default();
        report.draining = state.counters.draining();
        report
    }
}

impl<S: HostSource> State<S> {
    /// Releases one reference of up to `count` chunks of `list`, newest first. Survivors move to
    /// the front of `next`; at the end of the ladder they are forced out. Answers whether the list
    /// is empty.
    fn sweep(&mut self, table: &ChunkTable, list: List, next: Option<List>, count: u32) -> bool {
        for _ in 0..count {
            let Some(slot) = self.records.newest(list) else { return true };
            let Some(record) = table.record(slot) else { return true };
            if !self.release_reference(table, slot, record) {
                self.promote(table, slot, record, next);
            }
        }
        self.records.newest(list).is_none()
    }

    fn promote(&mut self, table: &ChunkTable, slot: u32, record: &ChunkRecord, next: Option<List>) {
        let device = self.config.device;
        match next {
            Some(next) => {
                log::debug!("nd{device}: lifespan of {} bytes extended", record.size());
                let tag = Tag::of(record);
                self.records.unlink(table, record, tag);
                self.records.push(table, next, slot, record, tag.off_list());
            }
            None => {
                let left = record.service.more_references.load(Relaxed) + 1;
                log::warn!("nd{device}: {} bytes leaked with {left} references", record.size());
                record.service.more_references.store(0, Relaxed);
                self.release_reference(table, slot, record);
            }
        }
    }

    /// Whatever is on a list now was left by a mistake: report it and release it.
    fn force_out(&mut self, table: &ChunkTable, report: &mut ShutdownReport) {
        for list in List::all() {
            while let Some(slot) = self.records.newest(list)
                && let Some(record) = table.record(slot)
            {
                report.left += 1;
                log::error!("nd{}: left behind: {:?}", self.config.device, record.facts());
                record.service.more_references.store(0, Relaxed);
                self.release_reference(table, slot, record);
            }
        }
    }
}
