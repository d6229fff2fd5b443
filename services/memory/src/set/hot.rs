//! The short way of the usual allocation: device memory without an alignment or a scratchpad, for an
//! attached client, from the arena that the size prefers.
//!
//! It does the same as the general way in `allocate`, in fewer instructions. Whatever is
//! unusual, out of range or out of memory is left to the general way, untouched.

use alloc::sync::Arc;

use axon_ports::chunk::record::{Place, Stamp};
use axon_ports::{AllocRequest, Category, Chunk, ChunkName, ChunkTable, Lifespan, Location};

use super::{MemorySet, State};
use crate::cell::round_up;
use crate::config::PAGE;
use crate::counters::Payer;
use crate::records::{List, Source, Tag, is_taken};

/// Largest size of the usual allocation.
const MAX_SIZE: u64 = i32::MAX as u64;

impl<S> MemorySet<S> {
    /// A chunk, or `None` where the general way has to be tried.
    #[inline(always)]
    pub(crate) fn allocate_hot(&mut self, request: &AllocRequest) -> Option<Chunk> {
        self.state.allocate_hot(&self.table, request)
    }
}

impl<S> State<S> {
    #[inline(always)]
    fn allocate_hot(&mut self, table: &Arc<ChunkTable>, request: &AllocRequest) -> Option<Chunk> {
        let (client, attach_slot) = request.client?;
        if request.location as u8 != Location::Device as u8
            || request.lifespan as u8 != Lifespan::Client as u8
            || request.align > PAGE
            || request.category.0 >= Category::CONTIGUOUS_SCRATCHPAD_DEVICE.0
            || request.core >= self.cores
            || request.channel >= self.hot_channels
            || request.size > MAX_SIZE
            || !self.is_live(client, attach_slot)
        {
            return None;
        }
        let (slot, record) = if request.publish {
            let handle = self.records.next_handle();
            (handle, table.record_of_handle(handle).filter(|record| !is_taken(record))?)
        } else {
            let slot = self.records.next_free();
            (slot, table.record(slot)?)
        };
        let size = round_up(request.size);
        let cell = self.cells.get_mut(request.channel as usize)?;
        let (pa, part) = cell.allocate(size, slot, &mut self.faults).ok()?;
        let name = ChunkName { slot, generation: record.next_generation() };
        let mut handle = 0;
        if request.publish {
            handle = slot;
            if self.records.advance(table, handle, record, &mut self.faults).is_err() {
                let _ = cell.put_back(part, pa, size, slot);
                return None;
            }
        } else {
            self.records.take(slot, record);
        }
        let payer = Payer::of(attach_slot);
        let account =
            self.counters.account(Location::Device, request.category.0 as usize, request.core);
        self.counters.book(Location::Device, request.core, account, payer, size);
        let tag = Tag::new(Source::Device(part), payer);
        self.records.push(table, List::of_client(attach_slot), slot, record, tag);
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
        Some(table.device_reference(name))
    }
}
