//! What was posted and what is owed: builds one post, settles it when firmware has answered
//! (specification 07 §5.3, §16.2).
//!
//! A baseline moves only for a record that firmware took. What did not fit, or was refused, is owed
//! undiminished, and what did not fit goes first next time.

use alloc::string::String;

use axon_platform::Instant;
use axon_ports::telemetry::counters::{ResetCells, ResetTimes};

use super::registry::{Band, Constant, REGISTRY, ROWS, ResetFigure, Row, RowSet, Source, Word};
use super::stream::PostStream;
use super::version::{Component, History, Version, components};
use crate::datastore::SlabView;
use crate::device::PodModes;
use crate::sensors::HbmErrors;
use crate::totals::Survey;
use crate::{CoreCounter, DeviceCounter};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// What clients left behind that is not a sum of counters, until it is posted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Departed {
    pub versions: [History; 3],
    /// Features used, one bit each.
    pub features: u64,
    /// Cluster id and NEFF id.
    pub words: [u64; 2],
}

impl Departed {
    /// Versions and features of a client.
    pub(crate) fn meet(&mut self, slab: &SlabView<'_>) {
        for (history, (_, counter, _)) in self.versions.iter_mut().zip(components()) {
            history.meet(Version(slab.device_counter(counter)), 1);
        }
        self.features |= slab.device_counter(DeviceCounter::FEATURE_BITMAP);
    }

    /// Everything of a client that leaves.
    pub(crate) fn fold(&mut self, slab: &SlabView<'_>) {
        self.meet(slab);
        self.words = [DeviceCounter::DEVICE_CLUSTER_ID, DeviceCounter::AGG_NEFF_ID]
            .map(|counter| slab.device_counter(counter));
    }

    /// Takes the part that belongs to one row.
    fn take(&mut self, source: Source, into: &mut Departed) {
        match source {
            Source::Version(component) => {
                let at = component as usize;
                if let (Some(from), Some(to)) =
                    (self.versions.get_mut(at), into.versions.get_mut(at))
                {
                    to.merge(&core::mem::take(from));
                }
            }
            Source::Features => into.features |= core::mem::take(&mut self.features),
            Source::Word(word) => {
                let at = word as usize;
                if let (Some(from), Some(to)) = (self.words.get_mut(at), into.words.get_mut(at)) {
                    let taken = core::mem::take(from);
                    // Given back: what a later client left is newer.
                    *to = if *to == 0 { taken } else { *to };
                }
            }
            _ => {}
        }
    }
}

/// Texts that do not come from clients.
#[derive(Clone, Debug)]
pub(crate) struct Constants {
    /// Posted id 12.
    pub instance_id: String,
    /// Posted id 13.
    pub driver_version: String,
}

impl Constants {
    /// Longest text of a record.
    const LIMIT: usize = 63;

    /// Cuts both to 63 characters, takes one trailing blank from the instance id; a missing one is
    /// "0".
    pub(crate) fn new(instance_id: Option<&str>, driver_version: &str) -> Self {
        let cut = |text: &str| text.chars().take(Self::LIMIT).collect::<String>();
        let id = instance_id.map(|id| id.strip_suffix(' ').unwrap_or(id));
        Constants {
            instance_id: cut(id.filter(|id| !id.is_empty()).unwrap_or("0")),
            driver_version: cut(driver_version),
        }
    }
}

/// Where the values of a post come from.
pub(crate) struct PostInput<'a> {
    pub now: Instant,
    pub constants: &'a Constants,
    pub profile: u32,
    pub cores_per_device: u8,
    pub firmware_errors: u64,
    pub resets: &'a ResetCells,
    /// `None` where nothing could be read.
    pub hbm: Option<HbmErrors>,
    pub pod: Option<PodModes>,
    pub survey: Survey,
}

impl PostInput<'_> {
    fn times(&self, scope: usize) -> &ResetTimes {
        if scope == 0 { &self.resets.device } else { &self.resets.core }
    }
}

/// A post that waits for firmware's answer.
#[derive(Debug)]
pub(crate) struct Pending {
    pub stream: PostStream,
    /// Rows with something to say that did not fit.
    pub deferred: u64,
    outcomes: [Outcome; ROWS],
    now: Instant,
    departed: Departed,
    longest: [u64; 2],
    sums_ns: [u64; 2],
    utilisation_ppm: u64,
}

/// What became of one row in a post; a baseline is what counts from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Not of this band.
    Untouched,
    /// Nothing to say.
    Quiet(u64),
    /// In the stream.
    Sent(u64),
    /// Did not fit.
    Deferred,
}

/// Baselines and debts of one device.
#[derive(Debug)]
pub(crate) struct Ledger {
    posted: [u64; ROWS],
    posted_sums_ns: [u64; 2],
    deferred: RowSet,
    pub departed: Departed,
    window_start: Instant,
    /// Share of its time that the device was in use, in millionths, over the last window posted.
    pub utilisation_ppm: Option<u64>,
    warned: bool,
}

impl Ledger {
    pub(crate) fn new(now: Instant) -> Self {
        Ledger {
            posted: [0; ROWS],
            posted_sums_ns: [0; 2],
            deferred: RowSet::default(),
            departed: Departed::default(),
            window_start: now,
            utilisation_ppm: None,
            warned: false,
        }
    }

    /// Builds the post of a band. It has to be [settled](Ledger::settle).
    pub(crate) fn build(&mut self, band: Band, input: &PostInput<'_>) -> Pending {
        let mut pending = Pending {
            stream: PostStream::new(),
            deferred: 0,
            outcomes: [Outcome::Untouched; ROWS],
            now: input.now,
            departed: Departed::default(),
            longest: [0; 2],
            sums_ns: self.posted_sums_ns,
            utilisation_ppm: 0,
        };
        for owed in [true, false] {
            for (at, row) in REGISTRY.iter().enumerate() {
                let due = row.band.is_none_or(|of_row| of_row == band);
                if due && self.deferred.contains(at) == owed {
                    self.departed.take(row.source, &mut pending.departed);
                    let outcome = self.write(at, row, input, &mut pending);
                    pending.deferred += u64::from(outcome == Outcome::Deferred);
                    if let Some(slot) = pending.outcomes.get_mut(at) {
                        *slot = outcome;
                    }
                }
            }
        }
        pending
    }

    /// Books what firmware took, and takes back the rest.
    pub(crate) fn settle(&mut self, mut pending: Pending, taken: bool, resets: &ResetCells) {
        for (at, row) in REGISTRY.iter().enumerate() {
            let outcome = pending.outcomes.get(at).copied().unwrap_or(Outcome::Untouched);
            match outcome {
                Outcome::Untouched => continue,
                Outcome::Quiet(baseline) => self.set_posted(at, baseline),
                Outcome::Sent(baseline) if taken => {
                    self.set_posted(at, baseline);
                    self.book(row.source, &pending);
                }
                Outcome::Sent(_) | Outcome::Deferred => {
                    self.take_back(row.source, &mut pending, resets);
                }
            }
            // A refused post changes nothing about who goes first.
            if taken {
                self.deferred.put(at, outcome == Outcome::Deferred);
            }
        }
    }

    fn book(&mut self, source: Source, pending: &Pending) {
        match source {
            Source::Reset(ResetFigure::Average(scope)) => {
                if let (Some(posted), Some(sum)) =
                    (self.posted_sums_ns.get_mut(scope), pending.sums_ns.get(scope))
                {
                    *posted = *sum;
                }
            }
            Source::Utilisation => {
                self.window_start = pending.now;
                self.utilisation_ppm = Some(pending.utilisation_ppm);
            }
            _ => {}
        }
    }

    fn take_back(&mut self, source: Source, pending: &mut Pending, resets: &ResetCells) {
        match source {
            Source::Reset(ResetFigure::Longest(0)) => {
                resets.device.give_back_longest(pending.longest[0]);
            }
            Source::Reset(ResetFigure::Longest(_)) => {
                resets.core.give_back_longest(pending.longest[1]);
            }
            _ => pending.departed.take(source, &mut self.departed),
        }
    }

    fn posted(&self, at: usize) -> u64 {
        self.posted.get(at).copied().unwrap_or(0)
    }

    fn set_posted(&mut self, at: usize, baseline: u64) {
        if let Some(posted) = self.posted.get_mut(at) {
            *posted = baseline;
        }
    }

    /// Writes the records of one row.
    fn write(
        &mut self,
        at: usize,
        row: &Row,
        input: &PostInput<'_>,
        post: &mut Pending,
    ) -> Outcome {
        let posted = self.posted(at);
        match row.source {
            Source::Constant(constant) => {
                let texts = input.constants;
                sent(
                    match constant {
                        Constant::InstanceId => put(post, row.id, &texts.instance_id),
                        Constant::DriverVersion => put(post, row.id, &texts.driver_version),
                        Constant::Profile => put(post, row.id, &input.profile),
                    },
                    posted,
                )
            }
            Source::Version(component) => self.write_versions(row.id, component, input, post),
            Source::Counter(counter) => delta(post, row.id, posted, input.survey.total(counter)),
            Source::FirmwareErrors => delta(post, row.id, posted, input.firmware_errors),
            Source::HbmErrors { repairable } => {
                let Some(errors) = input.hbm else { return Outcome::Quiet(posted) };
                let live = if repairable { errors.repairable } else { errors.other };
                self.warn_of_decrease(posted, live);
                sent(put(post, row.id, &live.saturating_sub(posted)), live)
            }
            Source::Utilisation => self.write_utilisation(row.id, posted, input, post),
            Source::Features => unless_zero(post, row.id, input.survey.clients.features),
            Source::Word(word) => {
                let value = input.survey.clients.words[word as usize];
                match word {
                    _ if value == 0 => Outcome::Quiet(0),
                    Word::ClusterId => sent(put(post, row.id, &value), 0),
                    Word::NeffId => sent(post.stream.push(row.id, format_args!("{value:x}")), 0),
                }
            }
            Source::Reset(figure) => self.write_reset(row.id, posted, figure, input, post),
            Source::PodSupported => pod(post, row.id, input.pod.map(|pod| pod.supported)),
            Source::PodMode => pod(post, row.id, input.pod.map(|pod| pod.mode)),
        }
    }

    /// At most two versions, the most used first. With a type each takes two ids.
    fn write_versions(
        &self,
        id: u8,
        component: Component,
        input: &PostInput<'_>,
        post: &mut Pending,
    ) -> Outcome {
        let typed = component == Component::Framework;
        let step = if typed { 2 } else { 1 };
        let Some(history) = input.survey.clients.versions.get(component as usize) else {
            return Outcome::Quiet(0);
        };
        let (mut any, mut all) = (false, true);
        for (id, version) in (id..).step_by(step).zip(history.top_two()) {
            let Some(version) = version else { continue };
            let mut record = |fits: bool| {
                any = true;
                all &= fits;
            };
            if version.has_number() {
                record(put(post, id, &version));
            }
            if let Some(digit) = version.framework_type().filter(|_| typed) {
                record(put(post, id + 1, &digit));
            }
        }
        if any { sent(all, 0) } else { Outcome::Quiet(0) }
    }

    fn write_utilisation(
        &self,
        id: u8,
        posted: u64,
        input: &PostInput<'_>,
        post: &mut Pending,
    ) -> Outcome {
        let elapsed = input.now.since(self.window_start).as_nanos();
        if elapsed == 0 {
            return Outcome::Quiet(posted);
        }
        let total = input.survey.total(CoreCounter::TIME_IN_USE);
        let picos = u128::from(total.saturating_sub(posted));
        let per_core = picos / 1000 / u128::from(input.cores_per_device.max(1));
        post.utilisation_ppm = u64::try_from(per_core * 1_000_000 / elapsed).unwrap_or(u64::MAX);
        sent(put(post, id, &(per_core * 100 / elapsed)), total)
    }

    fn write_reset(
        &self,
        id: u8,
        posted: u64,
        figure: ResetFigure,
        input: &PostInput<'_>,
        post: &mut Pending,
    ) -> Outcome {
        match figure {
            ResetFigure::Longest(scope) => {
                let nanos = input.times(scope).take_longest();
                if let Some(longest) = post.longest.get_mut(scope) {
                    *longest = nanos;
                }
                sent(put(post, id, &(nanos / NANOS_PER_MILLI)), 0)
            }
            ResetFigure::Average(scope) => {
                let (times, count) = (input.times(scope), input.times(scope).count());
                let sum = times.sum_ns.get();
                let before = self.posted_sums_ns.get(scope).copied().unwrap_or(0);
                if let Some(pending) = post.sums_ns.get_mut(scope) {
                    *pending = sum;
                }
                let nanos = sum.wrapping_sub(before).checked_div(count.wrapping_sub(posted));
                sent(put(post, id, &(nanos.unwrap_or(0) / NANOS_PER_MILLI)), count)
            }
            ResetFigure::Failures(scope) => {
                let failures = input.times(scope).failures.get();
                sent(put(post, id, &failures.saturating_sub(posted)), failures)
            }
        }
    }

    fn warn_of_decrease(&mut self, posted: u64, live: u64) {
        if live < posted && !self.warned {
            self.warned = true;
            log::warn!("HBM error count went down from {posted} to {live}");
        }
    }
}

fn put(post: &mut Pending, id: u8, value: &dyn core::fmt::Display) -> bool {
    post.stream.push(id, format_args!("{value}"))
}

fn sent(fits: bool, baseline: u64) -> Outcome {
    if fits { Outcome::Sent(baseline) } else { Outcome::Deferred }
}

/// What was counted since the baseline, if anything. A source that was set back starts anew.
fn delta(post: &mut Pending, id: u8, posted: u64, total: u64) -> Outcome {
    match total.checked_sub(posted) {
        None | Some(0) => Outcome::Quiet(total),
        Some(delta) => sent(put(post, id, &delta), total),
    }
}

fn unless_zero(post: &mut Pending, id: u8, value: u64) -> Outcome {
    if value == 0 { Outcome::Quiet(0) } else { sent(put(post, id, &value), 0) }
}

fn pod(post: &mut Pending, id: u8, value: Option<u32>) -> Outcome {
    value.map_or(Outcome::Quiet(0), |value| sent(put(post, id, &value), 0))
}
