//! HBM scrub: one word over all of a channel that clients may have, by 16 engines at once
//! (specification 04 §9.3, 03 §14).
//!
//! ```text
//! memory, descriptors ─► launch: queue 0 of 16 engines claimed, programmed, started   one turn
//!                           │
//! completion task ──────────┴─► 16 markers ─► read-back right? ─► paused · drained · parked ─► Ok
//!                               late, aborted, reset, client gone, dropped ─► all 16 paused ─► error
//! ```
//!
//! Until `launch` nothing but memory is held, so that a start that fails, or whose future is
//! dropped, leaves nothing. From then on each queue is an entry of the table, which holds what its
//! engine may reach and the [`ScrubHold`] of the channel; an engine that does not drain takes both
//! into quarantine.

mod lane;
mod watch;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin as Pinned;
use core::sync::atomic::Ordering;
use core::task::{Context, Poll};

use axon_platform::{MmioWindow, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{ClientId, ClientSlot, HbmIndex, MemoryPort, QueueId, ScrubHold};

use super::table::{Entry, Holding, Place, Table};
use super::{Dma, core_of, present};
use crate::shared::Shared;
use crate::{Error, QueueRefusal};
use lane::{Crew, LANES, Lane, Markers, Payer, Shape};

pub(crate) use lane::ScrubPart;
pub(crate) use watch::{Scrubs, end_all, sweep};

/// The queue that a scrub takes of each engine.
const QUEUE: QueueId = QueueId::new(0).unwrap();

/// What to scrub, as the memory service admitted it.
#[derive(Debug)]
pub struct ScrubOrder {
    /// Who asks.
    pub client: ClientId,
    /// In which attach slot; host memory of the scrub counts for it.
    pub slot: ClientSlot,
    /// The channel.
    pub hbm: HbmIndex,
    /// First device address.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
    /// What every word is to be.
    pub word: u32,
    /// Keeps others out of the channel while an engine may write there.
    pub hold: ScrubHold,
}

/// A scrub that was started. It ends once its queues are given back. Dropping it stops the engines;
/// what has not drained at once is looked after by the completion task.
#[must_use = "a scrub that is dropped stops"]
pub struct Scrub<P: Platform> {
    shared: Arc<Shared<P>>,
    number: u64,
}

impl<P: Platform> Dma<P> {
    /// Starts a scrub; waits while a core that owns one of the engines is in reset.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a range that is not made of blocks, [`Error::NoEngine`] where
    /// the channel has not 16 engines, [`Error::Queue`] (EBUSY) for an engine whose queue 0 is in
    /// use, [`Error::Memory`], [`Error::NoRecords`], [`Error::CoreDown`], [`Error::DeviceFailed`],
    /// [`Error::DeviceGone`], [`Error::Removed`]. Nothing was started and nothing is held.
    pub async fn scrub<M: MemoryPort>(
        &self,
        memory: &M,
        order: ScrubOrder,
    ) -> Result<Scrub<P>, Error> {
        let shape = Shape::new(order.start, order.end)?;
        let crew = self.crew(order.hbm)?;
        self.all_open(&crew).await?;
        let hal = &self.0.hal;
        let number = self.0.queues.with(|table| {
            self.check_crew(table, &crew)?;
            Ok::<_, Error>(table.scrubs.next_number())
        })?;
        let payer = Payer { client: order.client, slot: order.slot };
        let first = crew.first().ok_or(Error::NoRecords)?.1;
        let markers = Markers::prepare(memory, hal, payer, first).await?;
        let mut lanes = Vec::new();
        lanes.try_reserve_exact(LANES).map_err(|_| Error::NoRecords)?;
        for (at, &member) in crew.iter().enumerate() {
            let scrub = (number, order.hold.clone());
            let lane =
                Lane::prepare(memory, hal, payer, member, at, &shape, order.word, &markers, scrub);
            lanes.push(lane.await?);
        }
        loop {
            self.all_open(&crew).await?;
            let ready = self.0.queues.with(|table| {
                self.check_crew(table, &crew)?;
                crew.iter().try_for_each(|&(_, core, _)| self.0.check_open(core))?;
                table.reserve(LANES)?;
                table.scrubs.reserve()
            });
            match ready {
                Err(Error::Again { .. }) => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        // No await since it was looked at: nobody has come between.
        let job = watch::Job::new(&self.0, number, &order, shape, markers);
        self.0.queues.with(|table| self.launch(table, order.client, lanes, job));
        self.0.work.wake();
        Ok(Scrub { shared: self.0.clone(), number })
    }

    /// The engines of a channel.
    fn crew(&self, hbm: HbmIndex) -> Result<Crew, Error> {
        let hal = &self.0.hal;
        let mut crew = Crew::new();
        crew.try_reserve_exact(LANES).map_err(|_| Error::NoRecords)?;
        for engine in hal.host_connected(hbm).take(LANES) {
            let engine = present(hal, engine)?;
            let place = Place { engine: engine.id, queue: QUEUE };
            crew.push((engine, core_of(hal, &engine)?, place));
        }
        let few =
            Error::InvalidArgument { what: "host-connected engines", value: crew.len() as u64 };
        if crew.len() == LANES { Ok(crew) } else { Err(few) }
    }

    async fn all_open(&self, crew: &Crew) -> Result<(), Error> {
        for &(_, core, _) in crew {
            self.0.opened(core).await?;
        }
        Ok(())
    }

    fn check_crew(&self, table: &mut Table, crew: &Crew) -> Result<(), Error> {
        for &(_, _, place) in crew {
            let free = table.get(place).is_none_or(|entry| {
                matches!(entry.holding, Holding::Stale) && entry.leaving.is_none()
            });
            // An election reads neighbours on queue 0 (05 §17.1).
            if !free || self.0.links.has(place.engine) {
                return Err(place.refuse(QueueRefusal::Taken));
            }
        }
        Ok(())
    }

    /// Claims, programs and starts all 16 queues. There is room for everything.
    fn launch(&self, table: &mut Table, client: ClientId, lanes: Vec<Lane>, mut job: watch::Job) {
        let (registers, count) = (&self.0.registers, job.shape.count());
        for lane in &lanes {
            let (tx, rx) = (lane.bound.tx.place, lane.bound.rx.place);
            lane.bound.hardware.program(registers, tx, rx);
        }
        self.0.platform.write_barrier();
        for mut lane in lanes {
            registers.write32(lane.bound.hardware.s2m_doorbell(), count);
            registers.write32(lane.bound.hardware.m2s_doorbell(), count);
            lane.bound.rx.announce(count);
            lane.bound.tx.announce(count);
            let event = TraceEvent::DmaQueueCopyStart {
                engine: lane.place.engine.number().into(),
                queue: lane.place.queue.number().into(),
                tx_count: count.into(),
                rx_count: count.into(),
            };
            self.0.records.trace.emit(event, || self.0.platform.now());
            let Lane { place, core, unit, bound, chunks, pattern } = lane;
            let epoch = self.0.states.epoch(core);
            job.add(place, core, epoch, unit, chunks, pattern);
            let holding = Holding::Scrub(bound);
            table.insert(Entry { place, client, core, epoch, holding, leaving: None });
        }
        table.retired.descriptors += u64::from(count) * LANES as u64;
        table.retired.batches += LANES as u64;
        table.scrubs.enter(job);
        self.0.queues.scrubbing.store(true, Ordering::Release);
    }
}

impl<P: Platform> Future for Scrub<P> {
    type Output = Result<(), Error>;

    fn poll(self: Pinned<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let collected =
            self.shared.queues.with(|table| table.scrubs.collect(self.number, cx.waker()));
        match collected {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl<P: Platform> Drop for Scrub<P> {
    fn drop(&mut self) {
        if watch::abandon(&self.shared, self.number) {
            self.shared.work.wake();
        }
    }
}
