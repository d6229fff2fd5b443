//! Ends of lifespans: a client, the last client, the device (specification 04 §5.3 to §5.5).

use core::sync::atomic::Ordering::Relaxed;

use axon_ports::{ClientId, ClientSlot, MemoryError};

use super::MemorySet;
use crate::host::HostSource;
use crate::records::List;

/// Chunks swept before other messages get their turn.
pub(crate) const SLICE: u32 = 128;

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
        match self.clients.get_mut(slot.index()) {
            Some(Some(there)) if *there == client && self.dropping & 1 << slot.number() == 0 => {}
            Some(empty @ None) => {
                *empty = Some(client);
                self.counters.set_client(slot, Some(client));
            }
            _ => return Err(MemoryError::Busy { what: "the attach slot" }),
        }
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
        if !self.live_client(client, slot) {
            return Err(MemoryError::NotAttached);
        }
        self.dropping |= 1 << slot.number();
        self.records.table.set_gate(1 << slot.number(), true);
        Ok(SweepState { slot })
    }

    /// Sweeps a slice of a client's chunks, newest first; answers whether the client is gone.
    pub(crate) fn continue_detach(&mut self, state: SweepState) -> bool {
        let list = List::of_client(state.slot);
        if !self.sweep(list, list.next(), SLICE) {
            return false;
        }
        if let Some(client) = self.clients.get_mut(state.slot.index()) {
            *client = None;
        }
        self.counters.set_client(state.slot, None);
        self.dropping &= !(1 << state.slot.number());
        self.records.table.set_gate(1 << state.slot.number(), false);
        true
    }

    /// Sweeps a slice of what lives as long as any client does; answers whether it is done.
    pub(crate) fn continue_last_client(&mut self) -> bool {
        self.sweep(List::ALL_CLIENTS, List::ALL_CLIENTS.next(), SLICE)
    }

    /// Releases one reference of up to `count` chunks of `list`, newest first. Survivors move to
    /// the front of `next`; at the end of the ladder they are forced out. Answers whether the list
    /// is empty.
    fn sweep(&mut self, list: List, next: Option<List>, count: u32) -> bool {
        for _ in 0..count {
            let Some(slot) = self.records.newest(list) else { return true };
            if !self.release_reference(slot) {
                self.promote(slot, next);
            }
        }
        self.records.newest(list).is_none()
    }

    fn promote(&mut self, slot: u32, next: Option<List>) {
        let table = self.records.table.clone();
        let Some(record) = table.record(slot) else { return };
        let device = self.config.device;
        match next {
            Some(next) => {
                log::debug!("nd{device}: lifespan of {} bytes extended", record.size());
                let tag = crate::records::Tag::of(record);
                self.records.unlink(record);
                self.records.push(next, slot, record, tag);
            }
            None => {
                let left = record.service.references.load(Relaxed);
                log::warn!("nd{device}: {} bytes leaked with {left} references", record.size());
                record.service.references.store(1, Relaxed);
                self.release_reference(slot);
            }
        }
    }

    /// Ends everything: still attached clients, then what lives with all clients, then with the
    /// device; then proves that nothing is left.
    pub fn destroy(&mut self) -> ShutdownReport {
        self.collect_all();
        let mut report = ShutdownReport::default();
        for slot in ClientSlot::all() {
            if self.clients.get(slot.index()).is_some_and(Option::is_some) {
                report.clients += 1;
                log::warn!("nd{}: {slot} still attached", self.config.device);
                while !self.sweep(List::of_client(slot), Some(List::DEVICE), SLICE) {}
            }
        }
        while !self.sweep(List::ALL_CLIENTS, Some(List::DEVICE), SLICE) {}
        while let Some(slot) = self.records.newest(List::DEVICE) {
            if !self.release_reference(slot) {
                report.leaked += 1;
                self.promote(slot, None);
            }
        }
        self.force_out(&mut report);
        self.clients = Default::default();
        report.draining = self.counters.draining();
        report
    }

    /// Whatever is on a list now was left by a mistake: report it and release it.
    fn force_out(&mut self, report: &mut ShutdownReport) {
        for list in List::all() {
            while let Some(slot) = self.records.newest(list) {
                report.left += 1;
                if let Some(record) = self.records.table.record(slot) {
                    log::error!("nd{}: left behind: {:?}", self.config.device, record.facts());
                    record.service.references.store(1, Relaxed);
                }
                self.release_reference(slot);
            }
        }
    }
}
