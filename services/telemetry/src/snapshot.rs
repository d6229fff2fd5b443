//! Everything there is to know about a device at one moment, for exporters (specification 07
//! §16.2). Plain data: rendering it twice gives the same text.

use alloc::vec::Vec;

use axon_platform::{Instant, Platform};
use axon_ports::reset::DeviceState;
use axon_ports::telemetry::cell::GaugeReading;
use axon_ports::telemetry::counters::{MailboxCommand, RESET_BUCKETS_MS, ResetTimes};
use axon_ports::telemetry::{Counter, EventKind, TraceKind};
use axon_ports::{ClientId, CoreId, DeviceIndex, Location};

use crate::poster::PosterStatus;
use crate::posting::components;
use crate::power::PowerWindow;
use crate::readings::Readings;
use crate::service::{Shared, State};
use crate::totals::CoreTotals;
use crate::{
    ClientMemory, CoreCounter, DeviceCounter, DeviceFacts, DeviceSensors, Error, MemoryCounter,
};

/// One core.
#[derive(Clone, Debug)]
pub struct CoreSnapshot {
    /// Which.
    pub core: CoreId,
    /// Client counters by number, of departed and live clients.
    pub totals: CoreTotals,
    /// Memory gauges by driver counter id.
    pub memory: [GaugeReading; 21],
    /// Resets asked for.
    pub reset_requests: u64,
    /// Resets that failed.
    pub reset_failures: u64,
}

impl CoreSnapshot {
    /// All that was counted.
    pub fn total(&self, counter: CoreCounter) -> u64 {
        self.totals.get(counter.number() as usize).map_or(0, |cell| cell.total)
    }

    /// A memory gauge.
    pub fn memory(&self, counter: MemoryCounter) -> GaugeReading {
        self.memory.get(usize::from(counter.id())).copied().unwrap_or_default()
    }
}

/// A version that live clients run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionUse {
    /// `runtime`, `framework`, `fal`.
    pub component: &'static str,
    /// Version word (07 §2.3) without its reserved bits.
    pub word: u64,
    /// How many clients.
    pub clients: u64,
}

/// Reset times of one scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResetSnapshot {
    /// Resets by duration, not cumulative; bounds are [`RESET_BUCKETS_MS`].
    pub buckets: [u64; RESET_BUCKETS_MS.len() + 1],
    /// Nanoseconds of all together.
    pub sum_ns: u64,
    /// Failures.
    pub failures: u64,
}

impl ResetSnapshot {
    fn of(times: &ResetTimes) -> Self {
        ResetSnapshot {
            buckets: times.buckets.each_ref().map(Counter::get),
            sum_ns: times.sum_ns.get(),
            failures: times.failures.get(),
        }
    }
}

/// A notification queue, with its name kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueSnapshot {
    /// Block.
    pub block: alloc::string::String,
    /// Queue of the block.
    pub queue: u32,
    /// Records consumed.
    pub consumed: u64,
    /// Overflows seen.
    pub overflows: u64,
}

/// One device at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What never changes.
    pub facts: DeviceFacts,
    /// Version of the driver.
    pub driver_version: alloc::string::String,
    /// When.
    pub at: Instant,
    /// State as observers see it.
    pub state: DeviceState,
    /// Cores that are there.
    pub cores: Vec<CoreSnapshot>,
    /// Devices next to this one, in the order of its links.
    pub neighbours: Vec<DeviceIndex>,
    /// Files of the class, with their text.
    pub class_files: Vec<(&'static str, alloc::string::String)>,
    /// Attached clients.
    pub clients: Vec<ClientMemory>,
    /// Clients with a slab.
    pub slab_owners: Vec<ClientId>,
    /// Versions of live clients.
    pub versions: Vec<VersionUse>,
    /// Features of live clients, one bit each.
    pub features: u64,
    /// Notification queues.
    pub queues: Vec<QueueSnapshot>,
    /// Queues armed now.
    pub queues_armed: u64,
    /// Bytes freed but pinned: host, device.
    pub draining: [u64; 2],
    /// Bytes in quarantine: host, device.
    pub quarantined: [u64; 2],
    /// Whole-device resets, per-core resets.
    pub resets: [ResetSnapshot; 2],
    /// Live sources as they were read last.
    pub readings: Readings,
    /// Last power window.
    pub power: PowerWindow,
    /// Share of its time in use over the last post window, in millionths.
    pub utilisation_ppm: Option<u64>,
    /// Performance profile.
    pub profile: u32,
    /// Poster.
    pub posting: PosterStatus,
    /// Mailbox requests and timeouts by command.
    pub mailbox: [(MailboxCommand, u64, u64); 5],
    /// Mailbox errors.
    pub mailbox_errors: u64,
    /// Events by kind.
    pub events: [(EventKind, u64); EventKind::ALL.len()],
    /// Events overwritten.
    pub events_overwritten: u64,
    /// Trace events by kind.
    pub traces: [(TraceKind, u64); TraceKind::COUNT],
    /// Whether subscribers are told of changes.
    pub notifies: bool,
}

/// By block and queue. They come almost in order, so that this small way is the quick one.
fn put_in_order(queues: &mut [QueueSnapshot]) {
    for end in 1..queues.len() {
        for at in (1..=end).rev() {
            let is_before = match queues.get(at - 1..=at) {
                Some([a, b]) => (a.block.as_str(), a.queue) <= (b.block.as_str(), b.queue),
                _ => true,
            };
            if is_before {
                break;
            }
            queues.swap(at - 1, at);
        }
    }
}

impl Snapshot {
    /// Host categories of the device by driver counter id.
    pub fn host_memory(&self, counter: MemoryCounter) -> GaugeReading {
        self.cores.first().map_or(GaugeReading::default(), |core| core.memory(counter))
    }

    pub(crate) fn take<P: Platform, D: DeviceSensors>(
        shared: &Shared<P, D>,
    ) -> Result<Snapshot, Error> {
        let (device, records) = (&shared.device, &shared.records);
        let counters = &records.counters;
        let mut clients = List::with_room(axon_ports::ClientSlot::COUNT)?;
        device.clients(&mut |client| clients.push(client));
        let mut neighbours = List::with_room(4)?;
        device.neighbours(&mut |neighbour| neighbours.push(neighbour));
        let mut class_files = List::with_room(8)?;
        device.class_files(&mut |name, text| class_files.push((name, alloc::format!("{text}"))));
        let mut queues = List::with_room(0)?;
        device.queues(&mut |queue| {
            queues.push(QueueSnapshot {
                block: queue.block.into(),
                queue: queue.queue,
                consumed: queue.consumed,
                overflows: queue.overflows,
            });
        });
        put_in_order(&mut queues.0);
        let both = [Location::Host, Location::Device];
        let at = shared.platform.now();
        let turn = shared.turn(|state| Turn::take(shared, state))?;
        Ok(Snapshot {
            facts: shared.facts,
            driver_version: shared.constants.driver_version.clone(),
            at,
            state: device.state(),
            cores: turn.cores.done()?,
            neighbours: neighbours.done()?,
            class_files: class_files.done()?,
            clients: clients.done()?,
            slab_owners: turn.owners.done()?,
            versions: turn.versions.done()?,
            features: turn.features,
            queues: queues.done()?,
            queues_armed: counters.queues_armed.get(),
            draining: both.map(|location| device.draining_bytes(location)),
            quarantined: both.map(|location| device.quarantined_bytes(location)),
            resets: [&counters.resets.device, &counters.resets.core].map(ResetSnapshot::of),
            readings: turn.readings,
            power: turn.power,
            utilisation_ppm: turn.utilisation_ppm,
            profile: device.performance_profile(),
            posting: turn.posting,
            mailbox: MailboxCommand::ALL.map(|command| {
                let mailbox = &counters.mailbox;
                (command, mailbox.requests(command).get(), mailbox.timeouts(command).get())
            }),
            mailbox_errors: counters.mailbox.errors.get(),
            events: core::array::from_fn(|at| {
                let kind = EventKind::ALL.get(at).copied().unwrap_or(EventKind::Call);
                (kind, records.events.count(kind))
            }),
            events_overwritten: records.events.overwritten(),
            traces: core::array::from_fn(|at| {
                let kind = TraceKind::ALL.get(at).copied().unwrap_or(TraceKind::MetricsPost);
                (kind, records.trace.count(kind))
            }),
            notifies: shared.notifies.load(core::sync::atomic::Ordering::Relaxed),
        })
    }
}

/// What comes from the state of the service, all in one turn.
struct Turn {
    cores: List<CoreSnapshot>,
    owners: List<ClientId>,
    versions: List<VersionUse>,
    features: u64,
    readings: Readings,
    power: PowerWindow,
    utilisation_ppm: Option<u64>,
    posting: PosterStatus,
}

impl Turn {
    fn take<P: Platform, D: DeviceSensors>(
        shared: &Shared<P, D>,
        state: &State,
    ) -> Result<Turn, Error> {
        let resets = &shared.records.counters.resets;
        let mut cores = List::with_room(CoreId::COUNT)?;
        for core in shared.facts.core_ids() {
            let of_core = |counters: &[Counter]| counters.get(core.index()).map_or(0, Counter::get);
            cores.push(CoreSnapshot {
                core,
                totals: state.retired.with_live(core, &state.slots),
                memory: core::array::from_fn(|id| {
                    let counter = MemoryCounter::new(id as u8);
                    counter.map_or(GaugeReading::default(), |id| shared.device.memory(id, core))
                }),
                reset_requests: of_core(&resets.requests),
                reset_failures: of_core(&resets.failures),
            });
        }
        let mut owners = List::with_room(crate::datastore::SLABS)?;
        let mut versions: List<VersionUse> = List::with_room(3 * crate::datastore::SLABS)?;
        let mut features = 0;
        for slab in state.slots.walk() {
            owners.push(slab.client);
            features |= slab.device_counter(DeviceCounter::FEATURE_BITMAP);
            for (_, counter, component) in components() {
                // The type of a framework is not part of its version.
                match slab.device_counter(counter) & !0 >> 16 {
                    0 => {}
                    word => count_version(&mut versions, component, word),
                }
            }
        }
        versions.0.sort_unstable_by_key(|version| (version.component, version.word));
        Ok(Turn {
            cores,
            owners,
            versions,
            features,
            readings: state.readings.try_clone()?,
            power: state.power.window(),
            utilisation_ppm: state.ledger.utilisation_ppm,
            posting: PosterStatus::of(&state.schedule, &shared.tallies),
        })
    }
}

fn count_version(versions: &mut List<VersionUse>, component: &'static str, word: u64) {
    let known = |entry: &&mut VersionUse| entry.component == component && entry.word == word;
    match versions.0.iter_mut().find(known) {
        Some(entry) => entry.clients += 1,
        None => versions.push(VersionUse { component, word, clients: 1 }),
    }
}

/// A list that grows fallibly and tells at the end whether it could.
struct List<T>(Vec<T>, bool);

impl<T> List<T> {
    fn with_room(count: usize) -> Result<Self, Error> {
        let mut list = Vec::new();
        list.try_reserve_exact(count).map_err(|_| Error::NoRoom)?;
        Ok(List(list, true))
    }

    fn push(&mut self, item: T) {
        if self.0.try_reserve(1).is_ok() {
            self.0.push(item);
        } else {
            self.1 = false;
        }
    }

    fn done(self) -> Result<Vec<T>, Error> {
        if self.1 { Ok(self.0) } else { Err(Error::NoRoom) }
    }
}
