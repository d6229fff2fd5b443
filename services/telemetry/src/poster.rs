//! The poster: one task for each device that samples power and hands metrics to firmware
//! (specification 07 §7, §16.7).

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use axon_platform::{Instant, Platform};
use axon_ports::reset::DeviceState;
use axon_ports::telemetry::{Counter, TraceEvent};
use embassy_futures::select::{Either, select};

use crate::posting::{Band, Pending, PostInput, PostingState, Schedule, records};
use crate::power::Sampled;
use crate::sensors::EccReadings;
use crate::service::Shared;
use crate::totals::Survey;
use crate::{DeviceSensors, MetricSink, PostError, Telemetry};

/// Time between two power samples.
const SAMPLE_PERIOD: Duration = Duration::from_millis(50);
/// How often a rejected power value is worth a line.
const REJECTED_NOTE: Duration = Duration::from_secs(10);
/// How often an unreadable power register is worth a line.
const UNREADABLE_NOTE: Duration = Duration::from_secs(60);
/// How often old firmware is worth a line.
const UNSUPPORTED_NOTE: Duration = Duration::from_secs(30 * 60);

/// How a post ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostOutcome {
    /// Taken.
    Ok,
    /// Not taken; everything in it is owed.
    Failed(PostError),
    /// There was nothing to post.
    Empty,
    /// Given up because the device is being removed.
    GivenUp,
}

/// One post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostReport {
    /// Band.
    pub band: Band,
    /// Records in the stream.
    pub records: u32,
    /// Bytes of the stream.
    pub bytes: u32,
    /// Rows that did not fit.
    pub deferred: u64,
    /// How it ended.
    pub outcome: PostOutcome,
}

/// [`PostCounts`] as they grow.
#[derive(Default, Debug)]
pub(crate) struct PostTallies {
    ok: [Counter; 2],
    error: [Counter; 2],
    empty: [Counter; 2],
    deferred: [Counter; 2],
    bytes: Counter,
}

/// What was posted so far, by band.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PostCounts {
    /// Posts that firmware took.
    pub ok: [u64; 2],
    /// Posts that it did not.
    pub error: [u64; 2],
    /// Ticks with nothing to post.
    pub empty: [u64; 2],
    /// Rows that did not fit, each time.
    pub deferred: [u64; 2],
    /// Bytes of the posts that firmware took.
    pub bytes: u64,
}

impl PostTallies {
    pub(crate) fn read(&self) -> PostCounts {
        let pair = |counters: &[Counter; 2]| counters.each_ref().map(Counter::get);
        PostCounts {
            ok: pair(&self.ok),
            error: pair(&self.error),
            empty: pair(&self.empty),
            deferred: pair(&self.deferred),
            bytes: self.bytes.get(),
        }
    }

    fn count(&self, report: &PostReport) {
        let at = report.band.index();
        let counters = match report.outcome {
            PostOutcome::Ok => {
                self.bytes.add(report.bytes.into());
                &self.ok
            }
            PostOutcome::Failed(_) | PostOutcome::GivenUp => &self.error,
            PostOutcome::Empty => &self.empty,
        };
        if let (Some(counter), Some(deferred)) = (counters.get(at), self.deferred.get(at)) {
            counter.increment();
            deferred.add(report.deferred);
        }
    }
}

/// What the poster is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PosterStatus {
    /// State.
    pub state: PostingState,
    /// Time between two posts.
    pub period: Duration,
    /// Band of the next one.
    pub next_band: Band,
    /// When it is due; `None` while nothing is to be posted.
    pub next_due: Option<Instant>,
    /// What was posted so far.
    pub tallies: PostCounts,
}

impl PosterStatus {
    pub(crate) fn of(schedule: &Schedule, tallies: &PostTallies) -> Self {
        PosterStatus {
            state: schedule.state(),
            period: schedule.wanted_period(),
            next_band: schedule.next_band(),
            next_due: schedule.next_due(),
            tallies: tallies.read(),
        }
    }
}

/// The task. Without it nothing is posted or sampled, and everything else works.
pub struct Poster<P, D>(Telemetry<P, D>);

impl<P: Platform, D: DeviceSensors + MetricSink> Telemetry<P, D> {
    /// The task to spawn as `poster`; `None` where nothing would be posted or traced. There must
    /// be one at most.
    pub fn poster(&self) -> Option<Poster<P, D>> {
        self.0.has_sink().then(|| Poster(self.clone()))
    }
}

impl<P: Platform, D: DeviceSensors + MetricSink> Poster<P, D> {
    /// Runs until [`Telemetry::stop`]. Between ticks it sleeps.
    pub async fn run(self) {
        let shared = &*self.0.0;
        let now = shared.platform.now();
        shared.turn(|state| state.schedule.start(now));
        let mut sampler = Sampler { next: now + SAMPLE_PERIOD, notes: [Instant::default(); 3] };
        while !shared.stopping.load(Ordering::Acquire) {
            let due = shared.turn(|state| state.schedule.next_due());
            let due = due.unwrap_or(Instant::FAR_FUTURE).min(sampler.due(shared));
            select(shared.platform.sleep_until(due), shared.poke.wait()).await;
            if shared.stopping.load(Ordering::Acquire) {
                break;
            }
            let now = shared.platform.now();
            let ready = shared.device.state() == DeviceState::Ready;
            if ready {
                sampler.sample(shared, now);
            }
            sampler.advance(now);
            let bands = shared.turn(|state| state.schedule.due(now, ready));
            for band in bands.into_iter().flatten() {
                tick(shared, band).await;
            }
            extra(shared).await;
        }
        shared.turn(|state| {
            state.schedule.stop();
            state.ended = true;
            state.wake_waiters();
        });
    }
}

/// Posts that somebody asked for out of turn.
async fn extra<P: Platform, D: DeviceSensors + MetricSink>(shared: &Shared<P, D>) {
    let wanted = shared.turn(|state| (state.wanted > state.made).then_some(state.wanted));
    let Some(wanted) = wanted else { return };
    let reports = [tick(shared, Band::Zero).await, tick(shared, Band::One).await];
    shared.turn(|state| {
        state.made = wanted;
        state.last_extra = reports.map(Some);
        state.wake_waiters();
    });
}

/// One post, whatever becomes of it.
async fn tick<P: Platform, D: DeviceSensors + MetricSink>(
    shared: &Shared<P, D>,
    band: Band,
) -> PostReport {
    let pending = build(shared, band);
    let stream = pending.stream;
    let mut report = PostReport {
        band,
        records: records(stream.as_bytes()).count() as u32,
        bytes: stream.as_bytes().len() as u32,
        deferred: pending.deferred,
        outcome: PostOutcome::Empty,
    };
    if !stream.is_empty() {
        report.outcome = deliver(shared, stream.as_bytes()).await;
    }
    let taken = matches!(report.outcome, PostOutcome::Ok);
    let resets = &shared.records.counters.resets;
    shared.turn(|state| state.ledger.settle(pending, taken, resets));
    shared.tallies.count(&report);
    report
}

/// Takes everything that is to be posted in one turn; the device is asked before.
fn build<P: Platform, D: DeviceSensors>(shared: &Shared<P, D>, band: Band) -> Pending {
    let facts = &shared.facts;
    let hbm = (band == Band::One).then(|| EccReadings::read(&shared.device, facts.hbm_channels));
    let hbm = hbm.filter(|readings| readings.hbm.iter().any(Option::is_some));
    let (profile, pod) = (shared.device.performance_profile(), shared.device.pod());
    let counters = &shared.records.counters;
    shared.turn(|state| {
        let survey = Survey::take(facts, &state.slots, &state.retired, &state.ledger.departed);
        let hbm = hbm.map(|readings| {
            let (errors, odd) = readings.hbm_errors(facts.knows_repair);
            state.readings.note_odd_repair(odd);
            errors
        });
        let input = PostInput {
            now: shared.platform.now(),
            constants: &shared.constants,
            profile,
            cores_per_device: facts.cores_per_device,
            firmware_errors: counters.mailbox.errors.get(),
            resets: &counters.resets,
            hbm,
            pod,
            survey,
        };
        state.ledger.build(band, &input)
    })
}

/// Hands a stream to the sinks. A stop does not wait for firmware.
async fn deliver<P: Platform, D: MetricSink>(shared: &Shared<P, D>, stream: &[u8]) -> PostOutcome {
    if shared.config.traces {
        for (id, value) in records(stream) {
            let event = TraceEvent::metrics_post(id, value);
            shared.records.trace.emit(event, || shared.platform.now());
        }
    }
    if !shared.config.posts {
        return PostOutcome::Ok;
    }
    let poked = AtomicBool::new(false);
    let stop = async {
        while !shared.stopping.load(Ordering::Acquire) {
            shared.poke.wait().await;
            poked.store(true, Ordering::Relaxed);
        }
    };
    let outcome = match select(shared.device.post(stream), stop).await {
        Either::First(Ok(())) => PostOutcome::Ok,
        Either::First(Err(error)) => {
            log::warn!("metrics were not posted and will be again: {error}");
            PostOutcome::Failed(error)
        }
        Either::Second(()) => PostOutcome::GivenUp,
    };
    if poked.load(Ordering::Relaxed) {
        // For the main loop to look at.
        shared.poke.signal(());
    }
    outcome
}

/// When to look at the power registers, and when something was said about them last.
struct Sampler {
    next: Instant,
    notes: [Instant; 3],
}

impl Sampler {
    fn due<P, D>(&self, shared: &Shared<P, D>) -> Instant {
        if shared.facts.samples_power { self.next } else { Instant::FAR_FUTURE }
    }

    /// Moves on along the grid; lateness does not add up.
    fn advance(&mut self, now: Instant) {
        if self.next <= now {
            let late = now.since(self.next).as_nanos() / SAMPLE_PERIOD.as_nanos();
            let steps = u32::try_from(late).unwrap_or(u32::MAX).saturating_add(1);
            self.next = self.next + SAMPLE_PERIOD.saturating_mul(steps);
        }
    }

    fn sample<P: Platform, D: DeviceSensors>(&mut self, shared: &Shared<P, D>, now: Instant) {
        if now < self.due(shared) || shared.device.reset_running() {
            return;
        }
        let wall_clock = shared.wall_clock(now);
        let device = shared.facts.device;
        match shared.turn(|state| state.power.tick(&shared.device, wall_clock)) {
            Sampled::Taken(_) | Sampled::Duplicate => {}
            Sampled::Rejected(value) => {
                if self.may_note(0, now, REJECTED_NOTE) {
                    log::warn!("{device}: power utilisation of {value}/100 % is not believed");
                }
            }
            Sampled::Unreadable => {
                if self.may_note(1, now, UNREADABLE_NOTE) {
                    log::warn!("{device}: a power register cannot be read");
                }
            }
            Sampled::Unsupported => {
                if self.may_note(2, now, UNSUPPORTED_NOTE) {
                    log::info!("{device}: firmware has no power registers");
                }
            }
        }
    }

    fn may_note(&mut self, which: usize, now: Instant, pause: Duration) -> bool {
        let Some(next) = self.notes.get_mut(which).filter(|next| now >= **next) else {
            return false;
        };
        *next = now + pause;
        true
    }
}

#[cfg(test)]
mod tests;
