//! The short ways of the usual allocation and the usual release: device memory with a handle, no
//! alignment, no scratchpad, for an attached client, from the arena that the size prefers; nobody
//! pins it when it ends.
//!
//! They do the same as the general ways in `allocate` and `release`, in fewer instructions. Whatever
//! is unusual, out of range or out of memory is left to those, untouched.

use core::num::NonZeroU32;
use core::sync::atomic::Ordering::Relaxed;

use axon_ports::chunk::record::{ChunkRecord, Place, Stamp};
use axon_ports::{AllocRequest, Category, ChunkName, ChunkTable, ClientId, Lifespan, Location};

use super::query::is_notification;
use super::{MemorySet, State};
use crate::arena::ArenaError;
use crate::cell::round_up;
use crate::config::PAGE;
use crate::counters::{Account, Payer};
use crate::host::HostSource;
use crate::records::{List, Source, Tag, is_taken};

/// Largest size of the usual allocation.
const MAX_SIZE: u64 = i32::MAX as u64;

impl<S: HostSource> MemorySet<S> {
    /// A chunk whose first reference the caller has to wrap, or `None` where the general way has to
    /// be tried. A call of its own: inlined, it would crowd the registers of its callers.
    #[inline(always)]
    pub(crate) fn allocate_hot(&mut self, request: &AllocRequest) -> Option<ChunkName> {
        let (slot, generation) = self.allocate_at(request)?;
        Some(ChunkName { slot, generation: generation.get() })
    }

    /// As [`Self::allocate_hot`]: slot and generation, which fit into registers.
    #[inline(always)]
    pub(crate) fn allocate_at(&mut self, request: &AllocRequest) -> Option<(u32, NonZeroU32)> {
        self.state.allocate_hot(&self.table, request)
    }

    /// Ends a handle and its chunk with it; `false` where the general way has to be tried.
    #[inline(never)]
    pub(crate) fn free_hot(&mut self, client: Option<ClientId>, handle: u64) -> bool {
        let Some(record) = self.table.record_of_open_handle(handle) else { return false };
        record.owner() == client.map_or(0, ClientId::number)
            && !is_notification(record.category())
            && record.service.more_references.load(Relaxed) == 0
            && self.state.end_hot(&self.table, handle as u32, record)
    }
}

impl<S: HostSource> State<S> {
    /// Slot and generation of a new chunk.
    #[inline(never)]
    fn allocate_hot(
        &mut self,
        table: &ChunkTable,
        request: &AllocRequest,
    ) -> Option<(u32, NonZeroU32)> {
        let (client, attach_slot) = request.client?;
        if request.location as u8 != Location::Device as u8
            || request.lifespan as u8 != Lifespan::Client as u8
            || !request.publish
            || request.align > PAGE
            || request.category.0 >= Category::CONTIGUOUS_SCRATCHPAD_DEVICE.0
            || request.core >= self.cores
            || request.channel >= self.hot_channels
            || request.size > MAX_SIZE
            || !self.is_live(client, attach_slot)
        {
            return None;
        }
        let handle = self.records.next_handle();
        let record = table.record_of_handle(handle).filter(|record| !is_taken(record))?;
        let generation = NonZeroU32::new(record.next_generation())?;
        let size = round_up(request.size);
        let cell = self.cells.get_mut(request.channel as usize)?;
        let (pa, part) = match cell.allocate(size, handle, &mut self.faults) {
            Err(ArenaError::Full) => cell.allocate_other(size, handle, &mut self.faults).ok()?,
            found => found.ok()?,
        };
        if self.records.advance(table, handle, record, &mut self.faults).is_err() {
            let _ = cell.put_back(part, pa, size, handle);
            return None;
        }
        let payer = Payer::of(attach_slot);
        let account =
            self.counters.account(Location::Device, request.category.0 as usize, request.core);
        self.counters.book(Location::Device, request.core, account, payer, size);
        let tag = Tag::new(Source::Device(part), payer);
        self.records.push(table, List::of_client(attach_slot), handle, record, tag);
        record.open(Stamp {
            place: Place::new(
                pa,
                Location::Device,
                request.channel,
                0,
                request.core,
                Lifespan::Client,
            ),
            size,
            reach: size,
            owner: client.number(),
            handle,
            category: request.category.0 as u16,
            account: account.0.into(),
        });
        Some((handle, generation))
    }

    /// Ends a chunk of ordinary device memory that is published in its own record and that nobody
    /// pins; `false` where it is not such a chunk, and nothing has changed.
    #[inline(always)]
    pub(super) fn end_hot(&mut self, table: &ChunkTable, slot: u32, record: &ChunkRecord) -> bool {
        let tag = Tag::of(record);
        let (channel, _) = record.cell();
        let Some(part) = tag.ordinary_part() else { return false };
        let Some(cell) = self.cells.get_mut(channel as usize) else { return false };
        if channel >= self.hot_channels
            || self.records.is_down()
            || record.handle() != slot
            || !record.close_quiet()
        {
            return false;
        }
        let size = record.size();
        self.counters.discharge(tag.payer(), record.owner(), Location::Device, size);
        self.counters.chunk_ended();
        self.records.unlink(table, record, tag);
        self.records.put_handle(slot, record);
        if cell.release(part, record.pa(), size, slot).is_err() {
            self.report_corruption(record);
            return true;
        }
        let account = Account(record.account() as u8);
        self.counters.unbook(Location::Device, record.core(), account, size);
        self.records.give(slot, record);
        true
    }
}
