//! Zero-copy transfers: lists of host memory straight to or from a range of the device
//! (specification 03 §11). Several transfers of one operation are in flight at once, in order.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin as FuturePin;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll, Waker};

use axon_platform::{DeviceAddr, Platform};
use axon_ports::{ClientId, CoreId, Pin, PinPair};

use super::Dma;
use super::copy::Target;
use super::descriptor::{Barrier, pair};
use super::plan::{HostPiece, Plan, Transfer};
use super::ring::Ring;
use super::slab::{BatchId, Hardware, Marker, Span};
use crate::shared::Shared;
use crate::wake::Ticket;
use crate::{CancelCause, Error};

/// Transfers of one operation in flight at once.
const AHEAD: usize = 8;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Host memory to the device.
    ToDevice,
    /// The device to host memory.
    FromDevice,
}

/// One operation: host memory in pieces against a range of the device of the same length.
#[derive(Debug)]
pub struct ZeroCopyOp {
    /// Host memory, in the order of the bytes.
    pub host: Vec<HostPiece>,
    /// The range of the device.
    pub device: Target,
}

/// How the end of a transfer is ordered (03 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    /// Not at all.
    No,
    /// The last data descriptor has a write barrier.
    Data,
    /// The marker is written behind everything.
    Marker,
}

impl Ring {
    /// Stages one transfer as a batch. It is not issued again after a reset (03 §7.8-5).
    fn stage_transfer(
        &mut self,
        transfer: &Transfer,
        direction: Direction,
        last: Last,
        pins: PinPair,
        waker: &Waker,
    ) -> Option<BatchId> {
        let slot = self.slab.take()?;
        let value = self.take_value();
        let marker = Marker { pair: self.slab[slot].marker.pair, value };
        let nowhere = DeviceAddr(0);
        let (bytes, fixed_source) = (transfer.len_bytes, false);
        let mut span = Span { source: nowhere, destination: nowhere, bytes, fixed_source };
        for (at, segment) in transfer.segments.iter().enumerate() {
            let (source, destination) = match direction {
                Direction::ToDevice => (segment.host, segment.device),
                Direction::FromDevice => (segment.device, segment.host),
            };
            let (source, destination) = (DeviceAddr(source), DeviceAddr(destination));
            let ends = at + 1 == transfer.segments.len() && last == Last::Data;
            let barrier = if ends { Barrier::Write } else { Barrier::None };
            self.store_pair(source, destination, segment.len_bytes, barrier);
            if at == 0 {
                (span.source, span.destination) = (source, destination);
            }
        }
        let (from, to) = self.memory.arm(marker.pair, marker.value);
        let barrier = if last == Last::Marker { Barrier::StrongOrder } else { Barrier::None };
        self.store_pair(from, to, 4, barrier);
        let count = transfer.segments.len() as u32 + 1;
        self.announce_later(count);
        let record = &mut self.slab[slot];
        record.enter(value, count, span);
        record.waker = Some(waker.clone());
        record.hardware = Hardware::Once;
        record.reads_fill_source = false;
        record.is_special = false;
        record.pins = Some(pins);
        self.slab.push(&mut self.in_flight, slot);
        Some(BatchId { slot, number: value })
    }

    pub(super) fn store_pair(
        &mut self,
        source: DeviceAddr,
        destination: DeviceAddr,
        len: u64,
        how: Barrier,
    ) {
        let words = pair(self.cursor.ring_id(), source, destination, len as u32, how);
        self.memory.store(self.cursor.producer(), words);
        self.cursor.advance();
    }
}

/// Zero-copy operations in order. Dropping it cancels nothing in hardware: what was staged goes on,
/// and the memory stays pinned until the hardware is done with it.
///
/// # Errors
/// As [`struct@super::Copy`]. On an error everything staged has ended before it is told.
#[must_use = "a transfer does nothing unless it is awaited"]
pub struct ZeroCopy<P: Platform> {
    shared: Arc<Shared<P>>,
    port: u8,
    /// Of the port when the queue was looked up: later it may be another client's.
    tenancy: u32,
    direction: Direction,
    plans: VecDeque<Plan>,
    /// The next transfer, cut and not staged.
    cut: Option<Transfer>,
    in_flight: VecDeque<BatchId>,
    ticket: Option<Ticket>,
    failure: Option<Error>,
    /// The range, where transfers into it were staged and the barrier behind them was not.
    unordered: Option<Pin>,
}

impl<P: Platform> Dma<P> {
    /// Moves bytes between host memory and a range of the device in order, on the ring of `queue`:
    /// −1 for the default ring of `core`, else a copy queue that the client has for that core.
    ///
    /// # Errors
    /// [`Error::NoSuchQueue`] (ENOENT), [`Error::InvalidArgument`] on V2 unless configuration turns
    /// it on and for operations of size 0, [`Error::Queue`], [`Error::Stale`]. Nothing was staged.
    pub fn zero_copy(
        &self,
        client: ClientId,
        core: CoreId,
        queue: i32,
        direction: Direction,
        operations: Vec<ZeroCopyOp>,
    ) -> Result<ZeroCopy<P>, Error> {
        if !(-1..16).contains(&queue) {
            return Err(Error::NoSuchQueue { queue: queue.into() });
        }
        if !self.0.hal.zero_copy() {
            return Err(Error::InvalidArgument { what: "zero-copy on this generation", value: 2 });
        }
        let port = self.copy_port(client, core, queue)?;
        let mut plans = VecDeque::new();
        let mut in_flight = VecDeque::new();
        let room = plans
            .try_reserve_exact(operations.len())
            .and_then(|()| in_flight.try_reserve_exact(AHEAD));
        room.map_err(|_| Error::NoRecords)?;
        for ZeroCopyOp { host, device } in operations {
            plans.push_back(Plan::new(host, device.address, device.pin)?);
        }
        let tenancy =
            self.0.ports.get(usize::from(port)).map_or(0, |cell| cell.with(|p| p.tenancy()));
        Ok(ZeroCopy {
            shared: self.0.clone(),
            port,
            tenancy,
            direction,
            plans,
            cut: None,
            in_flight,
            ticket: None,
            failure: None,
            unordered: None,
        })
    }
}

impl<P: Platform> ZeroCopy<P> {
    /// Stages what there is room for.
    fn stage(&mut self, waker: &Waker) -> Result<(), Error> {
        while self.in_flight.len() < AHEAD {
            if self.cut.is_none() {
                self.cut = self.plans.front_mut().and_then(Plan::next);
            }
            let (Some(transfer), Some(plan)) = (&self.cut, self.plans.front()) else {
                return Ok(());
            };
            let ends = plan.is_over() && self.plans.len() == 1;
            let last = if ends { self.barrier() } else { Last::No };
            let pins = PinPair::new(transfer.host_pin.clone(), plan.device_pin.clone());
            let (direction, tenancy, ticket) = (self.direction, self.tenancy, self.ticket);
            let data = transfer.segments.len() as u32;
            let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return Ok(()) };
            let staged = cell.with(|port| {
                if port.tenancy() != tenancy {
                    return Err(Error::Cancelled { why: CancelCause::Closed });
                }
                let Some(ring) = port.admit(data, ticket) else { return Ok(None) };
                let batch = ring.stage_transfer(transfer, direction, last, pins, waker);
                if let (Some(ticket), Some(_)) = (ticket, batch) {
                    port.leave(ticket);
                }
                Ok(batch)
            })?;
            let Some(batch) = staged else { return self.wait(waker) };
            self.ticket = None;
            let is_open = last == Last::No && self.direction == Direction::ToDevice;
            self.unordered = is_open.then(|| plan.device_pin.clone());
            self.in_flight.push_back(batch);
            self.cut = None;
            if plan.is_over() {
                self.plans.pop_front();
            }
            self.shared.mark_dirty(self.port);
        }
        Ok(())
    }

    /// How the very last transfer is ordered.
    fn barrier(&self) -> Last {
        match self.direction {
            Direction::ToDevice if self.shared.hal.has_strong_order() => Last::Marker,
            Direction::ToDevice => Last::Data,
            Direction::FromDevice => Last::No,
        }
    }

    /// Nobody comes for the rest: the range stays pinned until a barrier behind what was staged has
    /// been executed, or until the hardware is proven quiet by other means.
    fn close(&mut self) {
        let Some(range) = self.unordered.take() else { return };
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return };
        let has_strong_order = self.shared.hal.has_strong_order();
        cell.with(|port| {
            // A ring goes only once its queue has drained.
            let same = port.tenancy() == self.tenancy;
            let Some(ring) = port.ring().filter(|_| same) else { return };
            ring.keep_until_barrier(range);
            if port.stage_barrier(has_strong_order) {
                self.shared.mark_dirty(self.port);
            }
            if port.ring().is_some_and(|ring| ring.quarantined() > 0) {
                self.shared.quarantine.fetch_or(1 << (self.port % 64), Ordering::AcqRel);
                self.shared.work.wake();
            }
        });
    }

    /// Waits for a turn, unless there will be none.
    fn wait(&mut self, waker: &Waker) -> Result<(), Error> {
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return Ok(()) };
        let ticket = self.ticket;
        self.ticket = cell.with(|port| match port.refusal() {
            Some(error) => Err(error),
            None => port.wait(ticket, waker).map(Some),
        })?;
        self.shared.mark_dirty(self.port);
        Ok(())
    }

    fn collect(&self, batch: BatchId, waker: &Waker) -> Option<Result<(), Error>> {
        let cell = self.shared.ports.get(usize::from(self.port))?;
        cell.with(|port| match port.ring() {
            Some(ring) => ring.collect(batch, waker),
            None => Some(Ok(())),
        })
    }

    fn leave(&mut self) {
        let ticket = self.ticket.take();
        if let (Some(ticket), Some(cell)) = (ticket, self.shared.ports.get(usize::from(self.port)))
        {
            cell.with(|port| port.leave(ticket));
            self.shared.mark_dirty(self.port);
        }
    }
}

impl<P: Platform> Future for ZeroCopy<P> {
    type Output = Result<(), Error>;

    fn poll(mut self: FuturePin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(&batch) = self.in_flight.front() {
            let Some(result) = self.collect(batch, cx.waker()) else { break };
            self.in_flight.pop_front();
            if let Err(error) = result {
                self.failure.get_or_insert(error);
            }
        }
        if self.failure.is_none() {
            self.failure = self.stage(cx.waker()).err();
        }
        if self.failure.is_some() {
            // What is in flight ends first; nothing new is staged.
            self.leave();
            self.plans.clear();
            self.cut = None;
        }
        if !self.in_flight.is_empty() || !self.plans.is_empty() {
            return Poll::Pending;
        }
        Poll::Ready(self.failure.map_or(Ok(()), Err))
    }
}

impl<P: Platform> Drop for ZeroCopy<P> {
    fn drop(&mut self) {
        self.close();
        self.leave();
        let Some(cell) = self.shared.ports.get(usize::from(self.port)) else { return };
        cell.with(|port| {
            if let Some(ring) = port.ring() {
                self.in_flight.iter().for_each(|&batch| ring.abandon(batch));
            }
        });
    }
}
