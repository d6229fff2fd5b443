//! Scrubs under way, as the completion task looks after them: markers, deadlines, ends.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::task::Waker;
use core::time::Duration;

use axon_platform::{DeviceAddr, Instant, MmioWindow, Platform};
use axon_ports::telemetry::TraceEvent;
use axon_ports::{Chunk, CoreId, HbmIndex, Pin};

use super::super::park::{begin, look};
use super::super::table::{Entry, Place, Table, Then};
use super::lane::{LANES, Markers, ScrubPart, Shape, first_wrong};
use super::{QUEUE, ScrubOrder};
use crate::dma::engine;
use crate::dma::report::{EngineReport, Stop};
use crate::hal::BatchKind;
use crate::registers::misc_ram;
use crate::shared::Shared;
use crate::{CancelCause, Error};

/// The engines are asked for errors no more often than this.
const LOOK: Duration = Duration::from_millis(10);

/// One engine at work.
struct Member {
    place: Place,
    core: CoreId,
    epoch: u32,
    unit: u64,
    done: bool,
    pattern: Pin,
}

enum Phase {
    Running,
    /// The queues drain.
    Ending(Result<(), Error>),
    /// They are given back, or in quarantine.
    Over(Result<(), Error>),
}

/// One scrub.
pub(crate) struct Job {
    number: u64,
    hbm: HbmIndex,
    word: u32,
    pub(super) shape: Shape,
    markers: Option<Markers>,
    members: Vec<Member>,
    chunks: Vec<[Chunk; 3]>,
    started: Instant,
    budget: Duration,
    looks: u32,
    phase: Phase,
    waker: Option<Waker>,
    abandoned: bool,
}

/// All scrubs whose end nobody has collected yet.
#[derive(Default)]
pub(crate) struct Scrubs {
    jobs: Vec<Job>,
    last_number: u64,
}

impl Scrubs {
    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// [`Error::NoRecords`].
    pub(super) fn reserve(&mut self) -> Result<(), Error> {
        self.jobs.try_reserve(1).map_err(|_| Error::NoRecords)
    }

    pub(super) fn enter(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// How a scrub ended, once it has; else leaves the waker.
    pub(super) fn collect(&mut self, number: u64, waker: &Waker) -> Option<Result<(), Error>> {
        let cancelled = Error::Cancelled { why: CancelCause::Removal };
        let Some(at) = self.jobs.iter().position(|job| job.number == number) else {
            return Some(Err(cancelled));
        };
        let job = self.jobs.get_mut(at)?;
        if let Phase::Over(result) = job.phase {
            self.jobs.swap_remove(at);
            return Some(result);
        }
        job.waker = Some(waker.clone());
        None
    }

    fn is_busy(&self) -> bool {
        self.jobs.iter().any(|job| !matches!(job.phase, Phase::Over(_)))
    }
}

impl Job {
    pub(super) fn new<P: Platform>(
        shared: &Shared<P>,
        number: u64,
        order: &ScrubOrder,
        shape: Shape,
        markers: Markers,
    ) -> Self {
        Job {
            number,
            hbm: order.hbm,
            word: order.word,
            shape,
            markers: Some(markers),
            members: Vec::with_capacity(LANES),
            chunks: Vec::with_capacity(LANES),
            started: shared.platform.now(),
            budget: shared.hal.budget(shape.data(), BatchKind::IntraDevice).total(),
            looks: 0,
            phase: Phase::Running,
            waker: None,
            abandoned: false,
        }
    }

    pub(super) fn add(
        &mut self,
        place: Place,
        core: CoreId,
        epoch: u32,
        unit: u64,
        chunks: [Chunk; 3],
        pattern: Pin,
    ) {
        self.members.push(Member { place, core, epoch, unit, done: false, pattern });
        self.chunks.push(chunks);
    }

    fn step<P: Platform>(&mut self, shared: &Shared<P>, table: &mut Table) {
        let result = match self.phase {
            Phase::Running if self.abandoned => {
                Some(Err(Error::Cancelled { why: CancelCause::Closed }))
            }
            Phase::Running => self.watch(shared, table).transpose(),
            _ => None,
        };
        if let Some(result) = result {
            self.end(shared, table, result);
        }
        if let Phase::Ending(result) = self.phase
            && !self.members.iter().any(|member| table.has_scrub(member.place, self.number))
        {
            self.settle(result);
        }
    }

    /// Everything it had is given back, or has gone into quarantine with the queues.
    fn settle(&mut self, result: Result<(), Error>) {
        self.phase = Phase::Over(result);
        self.markers = None;
        self.members.clear();
        self.chunks.clear();
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Looks at what the engines have done: `Some` once all have.
    fn watch<P: Platform>(
        &mut self,
        shared: &Shared<P>,
        table: &mut Table,
    ) -> Result<Option<()>, Error> {
        shared.check_alive()?;
        let count = self.shape.count();
        let mut left = 0;
        for member in &mut self.members {
            if member.epoch != shared.states.epoch(member.core) {
                return Err(Error::Stale { core: member.core });
            }
            let entry = table.get(member.place).filter(|entry| entry.is_scrub(self.number));
            let bound = entry.filter(|entry| entry.leaving.is_none()).and_then(Entry::bound);
            let Some(bound) = bound else {
                return Err(Error::Cancelled { why: CancelCause::Closed });
            };
            if member.done {
                continue;
            }
            if !bound.scrub.as_ref().is_some_and(ScrubPart::is_marked) {
                left += 1;
                continue;
            }
            member.done = true;
            bound.tx.outstanding = bound.tx.outstanding.saturating_sub(count.into());
            bound.rx.outstanding = bound.rx.outstanding.saturating_sub(count.into());
            table.retired.completed += 1;
            let event = TraceEvent::DmaAckCompleted {
                engine: member.place.engine.number().into(),
                queue: member.place.queue.number().into(),
                count: count.into(),
            };
            shared.records.trace.emit(event, || shared.platform.now());
        }
        if left == 0 {
            return self.verify(table).map(Some);
        }
        self.look_after(shared, table).map(|()| None)
    }

    /// What came back from the end of each chain is the pattern.
    fn verify(&self, table: &mut Table) -> Result<(), Error> {
        for (lane, member) in self.members.iter().enumerate() {
            if let Some(at) = first_wrong(&member.pattern, self.word) {
                let last = self.shape.block(lane, self.shape.data().saturating_sub(2));
                let address = DeviceAddr(last + at);
                return Err(Error::ScrubFailed { engine: member.place.engine, address });
            }
        }
        table.retired.bytes += self.shape.bytes();
        Ok(())
    }

    /// Engines that stopped on an error are named at once, the others at the deadline.
    fn look_after<P: Platform>(
        &mut self,
        shared: &Shared<P>,
        table: &mut Table,
    ) -> Result<(), Error> {
        let waited = shared.platform.now().since(self.started);
        let late = waited >= self.budget;
        if !late && waited < LOOK * (self.looks + 1) {
            return Ok(());
        }
        self.looks = (waited.as_nanos() / LOOK.as_nanos()) as u32;
        let undone = || self.members.iter().enumerate().filter(|(_, member)| !member.done);
        let mut reads = 0;
        let mut failed = None;
        for (_, member) in undone() {
            reads += 2;
            let (m2s_state, s2m_state) = engine::states(&shared.registers, member.unit);
            let report = EngineReport { m2s_state, s2m_state, ..EngineReport::default() };
            if report.is_all_ones() {
                shared.data_path_reads.fetch_add(1, Ordering::Relaxed);
                let id = shared.hal.tables().map.misc_ram + misc_ram::DEVICE_ID;
                if shared.registers.read32(id) == misc_ram::ALL_ONES {
                    return Err(Error::DeviceGone);
                }
            }
            if report.is_aborted() || report.is_all_ones() {
                failed = Some(member);
                break;
            }
        }
        let result = match (failed, undone().next()) {
            (Some(member), _) => {
                reads += engine::DIAGNOSIS_READS;
                table.retired.aborts += 1;
                let report = engine::diagnose(&shared.registers, member.unit);
                let stop = self.stop(shared, table, member.place);
                Err(Error::DmaAborted { engine: member.place.engine, queue: QUEUE, report, stop })
            }
            (None, Some((lane, member))) if late => {
                table.retired.timeouts += 1;
                Err(Error::DmaTimeout {
                    engine: member.place.engine,
                    queue: QUEUE,
                    descriptors: self.shape.data(),
                    source: member.pattern.pa(),
                    destination: DeviceAddr(self.shape.block(lane, 0)),
                    waited_us: waited.as_micros() as u64,
                    stop: self.stop(shared, table, member.place),
                })
            }
            _ => Ok(()),
        };
        shared.data_path_reads.fetch_add(reads, Ordering::Relaxed);
        result
    }

    /// How far an engine has come.
    fn stop<P: Platform>(&self, shared: &Shared<P>, table: &mut Table, place: Place) -> Stop {
        let bound = table.get(place).and_then(Entry::bound);
        let Some(bound) = bound else { return Stop::Unknown };
        let [source, destination] = bound.hardware.currents(&shared.registers);
        let (slot, count) = (source.min(destination), self.shape.count());
        match slot {
            slot if slot < count => Stop::At { descriptor: slot, slot, is_logged: false },
            slot if slot == count => Stop::Executed,
            _ => Stop::Unknown,
        }
    }

    /// All queues are paused, those that are done too, so that they can be parked.
    fn end<P: Platform>(
        &mut self,
        shared: &Shared<P>,
        table: &mut Table,
        result: Result<(), Error>,
    ) {
        if let Err(error) = &result {
            log::error!("the scrub of {} failed: {error}", self.hbm);
            let undone = self.members.iter().filter(|member| !member.done).count() as u64;
            table.retired.cancelled += undone;
        }
        let number = self.number;
        begin(shared, table, |entry| entry.is_scrub(number), |_| Then::Free);
        self.phase = Phase::Ending(result);
    }
}

impl Table {
    fn has_scrub(&mut self, place: Place, number: u64) -> bool {
        self.get(place).is_some_and(|entry| entry.is_scrub(number))
    }
}

fn each_job<P: Platform>(shared: &Shared<P>, mut work: impl FnMut(&mut Table, &mut Job)) -> bool {
    shared.queues.with(|table| {
        let mut jobs = core::mem::take(&mut table.scrubs.jobs);
        jobs.iter_mut().for_each(|job| work(table, job));
        jobs.retain(|job| !(job.abandoned && matches!(job.phase, Phase::Over(_))));
        table.scrubs.jobs = jobs;
        let busy = table.scrubs.is_busy();
        shared.queues.scrubbing.store(busy, Ordering::Release);
        busy
    })
}

/// One look at all scrubs; answers whether any is under way.
pub(crate) fn sweep<P: Platform>(shared: &Shared<P>) -> bool {
    let mut gone = false;
    each_job(shared, |table, job| {
        job.step(shared, table);
        gone |= matches!(job.phase, Phase::Ending(Err(Error::DeviceGone)));
    });
    if gone {
        shared.device_gone();
    }
    look(shared, |entry| entry.leaving.is_some() && entry.is_any_scrub());
    each_job(shared, |table, job| job.step(shared, table))
}

/// Whoever waits is told; nobody looks after scrubs any more.
pub(crate) fn end_all<P: Platform>(shared: &Shared<P>) {
    let error = shared.check_alive().err();
    let why = error.unwrap_or(Error::Cancelled { why: CancelCause::Removal });
    each_job(shared, |_, job| {
        if !matches!(job.phase, Phase::Over(_)) {
            job.settle(Err(why));
        }
    });
}

/// Nobody waits for it any more: its engines stop. Answers whether they still have to.
pub(super) fn abandon<P: Platform>(shared: &Shared<P>, number: u64) -> bool {
    if shared.is_stopped() {
        shared.queues.with(|table| table.scrubs.jobs.retain(|job| job.number != number));
        return false;
    }
    each_job(shared, |table, job| {
        if job.number == number {
            job.abandoned = true;
            job.step(shared, table);
        }
    })
}
