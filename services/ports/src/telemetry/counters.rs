//! The counters that the driver and the services keep of one device (specification 07 §3, 04 §9.4).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use super::{Counter, Gauge};
use crate::{Category, CoreId, CoreMap, Location};

/// All of them. Counters are public: whoever does the thing counts it.
#[derive(Debug)]
pub struct DeviceCounters {
    /// Bytes allocated now, by core and category.
    pub memory: MemoryCells,
    /// Resets asked for, done, failed.
    pub resets: ResetCells,
    /// Exchanges with firmware.
    pub mailbox: MailboxCells,
    /// Notification queues that are armed now.
    pub queues_armed: Gauge,
}

impl DeviceCounters {
    pub(super) const fn new(present: CoreMap) -> Self {
        DeviceCounters {
            memory: MemoryCells::new(),
            resets: ResetCells::new(present),
            mailbox: MailboxCells::new(),
            queues_armed: Gauge::new(),
        }
    }
}

/// Number of a memory gauge: its driver counter id (specification 07 §3.1), 0 to 20.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryCounter(u8);

impl MemoryCounter {
    /// All host memory of a core.
    pub const HOST: MemoryCounter = MemoryCounter(0);
    /// All device memory of a core.
    pub const DEVICE: MemoryCounter = MemoryCounter(1);

    const HOST_CATEGORIES: core::ops::RangeInclusive<u8> = 2..=9;
    const DEVICE_CATEGORIES: core::ops::RangeInclusive<u8> = 10..=20;

    /// Host categories, kept per device.
    pub fn host_categories() -> impl Iterator<Item = MemoryCounter> {
        Self::HOST_CATEGORIES.map(MemoryCounter)
    }

    /// Device categories, kept per core.
    pub fn device_categories() -> impl Iterator<Item = MemoryCounter> {
        Self::DEVICE_CATEGORIES.map(MemoryCounter)
    }

    /// The driver counter id.
    pub const fn id(self) -> u8 {
        self.0
    }

    /// The gauge that a chunk of this category counts in (specification 04 §9.4). A category that
    /// does not exist, or not in this location, counts as unknown.
    pub fn of(location: Location, category: Category) -> MemoryCounter {
        /// Counter ids by category number.
        const IDS: [u8; Category::COUNT] =
            [2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 9, 20, 14];
        let id = IDS.get(category.0 as usize).copied();
        let (ids, unknown) = match location {
            Location::Host => (Self::HOST_CATEGORIES, 2),
            Location::Device => (Self::DEVICE_CATEGORIES, 10),
        };
        MemoryCounter(id.filter(|id| ids.contains(id)).unwrap_or(unknown))
    }

    /// Leaf of the metric tree (specification 07 §9.1).
    pub fn leaf(self) -> &'static str {
        const LEAVES: [&str; 21] = [
            "host_mem",
            "device_mem",
            "uncategorized",
            "dma_buffers",
            "tensors",
            "constants",
            "application_memory",
            "driver_memory",
            "notifications",
            "dma_rings",
            "uncategorized",
            "model_code",
            "tensors",
            "constants",
            "model_shared_scratchpad",
            "runtime_memory",
            "driver_memory",
            "collectives",
            "nonshared_scratchpad",
            "notifications",
            "dma_rings",
        ];
        LEAVES.get(usize::from(self.0)).copied().unwrap_or("uncategorized")
    }
}

#[derive(Debug)]
struct CoreMemory {
    totals: [Gauge; 2],
    categories: [Gauge; 11],
}

/// Bytes allocated now. Every allocation counts twice: for its core, and for its category.
#[derive(Debug)]
pub struct MemoryCells {
    host: [Gauge; 8],
    cores: [CoreMemory; CoreId::COUNT],
    warned: AtomicBool,
}

impl MemoryCells {
    const fn new() -> Self {
        MemoryCells {
            host: [const { Gauge::new() }; 8],
            cores: [const {
                CoreMemory {
                    totals: [const { Gauge::new() }; 2],
                    categories: [const { Gauge::new() }; 11],
                }
            }; CoreId::COUNT],
            warned: AtomicBool::new(false),
        }
    }

    /// Books `bytes`, rounded to whole pages by the caller. Answers `false` for the first category
    /// that does not exist: worth one warning.
    pub fn charge(&self, location: Location, core: CoreId, category: Category, bytes: u64) -> bool {
        for gauge in self.pair(location, core, category).into_iter().flatten() {
            gauge.grow(bytes);
        }
        (category.0 as usize) < Category::COUNT || self.warned.swap(true, Ordering::Relaxed)
    }

    /// Takes `bytes` back that were charged with the same arguments.
    pub fn refund(&self, location: Location, core: CoreId, category: Category, bytes: u64) {
        for gauge in self.pair(location, core, category).into_iter().flatten() {
            gauge.shrink(bytes);
        }
    }

    /// A gauge; host categories are the same for every core.
    pub fn gauge(&self, counter: MemoryCounter, core: CoreId) -> Option<&Gauge> {
        let id = usize::from(counter.0);
        let cells = self.cores.get(core.index())?;
        match id {
            0..=1 => cells.totals.get(id),
            2..=9 => self.host.get(id - 2),
            _ => cells.categories.get(id - 10),
        }
    }

    /// Forgets the peak of one gauge.
    pub fn rebase_peak(&self, counter: MemoryCounter, core: CoreId) {
        if let Some(gauge) = self.gauge(counter, core) {
            gauge.rebase_peak();
        }
    }

    fn pair(&self, location: Location, core: CoreId, category: Category) -> [Option<&Gauge>; 2] {
        let all = match location {
            Location::Host => MemoryCounter::HOST,
            Location::Device => MemoryCounter::DEVICE,
        };
        [all, MemoryCounter::of(location, category)].map(|counter| self.gauge(counter, core))
    }
}

/// Upper bounds of the reset-time buckets, in milliseconds; one more bucket takes the rest.
pub const RESET_BUCKETS_MS: [u64; 10] =
    [500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 240_000, 480_000];

/// How long resets of one scope took.
#[derive(Debug)]
pub struct ResetTimes {
    /// Resets by duration; not cumulative. The last bucket is unbounded.
    pub buckets: [Counter; RESET_BUCKETS_MS.len() + 1],
    /// Nanoseconds of all of them together.
    pub sum_ns: Counter,
    /// Resets that did not succeed.
    pub failures: Counter,
    longest_ns: AtomicU64,
}

impl ResetTimes {
    const fn new() -> Self {
        ResetTimes {
            buckets: [const { Counter::new() }; RESET_BUCKETS_MS.len() + 1],
            sum_ns: Counter::new(),
            failures: Counter::new(),
            longest_ns: AtomicU64::new(0),
        }
    }

    /// Resets acknowledged so far.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }

    /// Takes the longest time since the last call, in nanoseconds.
    pub fn take_longest(&self) -> u64 {
        self.longest_ns.swap(0, Ordering::Relaxed)
    }

    /// Puts a longest time back that was taken and could not be used.
    pub fn give_back_longest(&self, nanos: u64) {
        self.longest_ns.fetch_max(nanos, Ordering::Relaxed);
    }

    fn finished(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let fits = |limit: &&u64| nanos <= **limit * 1_000_000;
        let bucket = RESET_BUCKETS_MS.iter().take_while(|limit| !fits(limit)).count();
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.increment();
        }
        self.sum_ns.add(nanos);
        self.give_back_longest(nanos);
    }
}

/// Resets of a device (specification 07 §3.3).
#[derive(Debug)]
pub struct ResetCells {
    present: CoreMap,
    /// Requests by core.
    pub requests: [Counter; CoreId::COUNT],
    /// Failures by core.
    pub failures: [Counter; CoreId::COUNT],
    /// Whole-device resets.
    pub device: ResetTimes,
    /// Per-core resets.
    pub core: ResetTimes,
}

impl ResetCells {
    const fn new(present: CoreMap) -> Self {
        ResetCells {
            present,
            requests: [const { Counter::new() }; CoreId::COUNT],
            failures: [const { Counter::new() }; CoreId::COUNT],
            device: ResetTimes::new(),
            core: ResetTimes::new(),
        }
    }

    /// A reset of `map` was asked for.
    pub fn requested(&self, map: CoreMap) {
        self.count(&self.requests, map);
    }

    /// Firmware acknowledged a reset of `map`, `took` after it was asked for.
    pub fn finished(&self, map: CoreMap, took: Duration) {
        self.times(map).finished(took);
    }

    /// A reset of `map` failed, at whatever stage. Only the cores in the map are charged.
    pub fn failed(&self, map: CoreMap) {
        self.count(&self.failures, map);
        self.times(map).failures.increment();
    }

    fn count(&self, counters: &[Counter; CoreId::COUNT], map: CoreMap) {
        for (core, counter) in CoreId::all().zip(counters) {
            if map.contains(core) && self.present.contains(core) {
                counter.increment();
            }
        }
    }

    fn times(&self, map: CoreMap) -> &ResetTimes {
        if map.is_device() { &self.device } else { &self.core }
    }
}

/// What firmware can be asked (specification 01 §6, §7). The numbers are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MailboxCommand {
    /// Read registers.
    Read = 1,
    /// Hand over metrics.
    PostMetric = 2,
    /// Choose a performance profile.
    SetPowerProfile = 3,
    /// Ask for profiles.
    GetData = 4,
    /// Switch a feature.
    SetFeature = 5,
}

impl MailboxCommand {
    /// All commands in order of their numbers.
    pub const ALL: [MailboxCommand; 5] = [
        MailboxCommand::Read,
        MailboxCommand::PostMetric,
        MailboxCommand::SetPowerProfile,
        MailboxCommand::GetData,
        MailboxCommand::SetFeature,
    ];

    /// Name as a label (specification 07 §16.4).
    pub const fn name(self) -> &'static str {
        match self {
            MailboxCommand::Read => "read",
            MailboxCommand::PostMetric => "post_metric",
            MailboxCommand::SetPowerProfile => "set_power_profile",
            MailboxCommand::GetData => "get_data",
            MailboxCommand::SetFeature => "set_feature",
        }
    }

    const fn index(self) -> usize {
        self as usize - 1
    }
}

/// Exchanges with firmware.
#[derive(Debug)]
pub struct MailboxCells {
    requests: [Counter; 5],
    timeouts: [Counter; 5],
    /// Answers with an error code, each attempt counted (specification 07 §3.4).
    pub errors: Counter,
}

impl MailboxCells {
    const fn new() -> Self {
        MailboxCells {
            requests: [const { Counter::new() }; 5],
            timeouts: [const { Counter::new() }; 5],
            errors: Counter::new(),
        }
    }

    /// Requests of a command, however many attempts each took.
    pub fn requests(&self, command: MailboxCommand) -> &Counter {
        &self.requests[command.index()]
    }

    /// Attempts of a command that were not answered in time.
    pub fn timeouts(&self, command: MailboxCommand) -> &Counter {
        &self.timeouts[command.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::cell::GaugeReading;

    fn core(number: u32) -> CoreId {
        CoreId::new(number).unwrap()
    }

    fn counters() -> DeviceCounters {
        DeviceCounters::new(CoreMap(0xff))
    }

    #[test]
    fn tel_e27_an_allocation_counts_for_its_core_and_its_category() {
        let memory = counters().memory;
        memory.charge(Location::Host, core(1), Category::TENSORS_HOST, 8192);
        let tensors = memory.gauge(MemoryCounter(4), core(0)).unwrap();
        let of_core = memory.gauge(MemoryCounter::HOST, core(1)).unwrap();
        for gauge in [tensors, of_core] {
            assert_eq!(gauge.read(), GaugeReading { total: 8192, present: 8192, peak: 8192 });
        }
        memory.refund(Location::Host, core(1), Category::TENSORS_HOST, 8192);
        for gauge in [tensors, of_core] {
            assert_eq!(gauge.read(), GaugeReading { total: 0, present: 8192, peak: 8192 });
        }
        assert_eq!(memory.gauge(MemoryCounter::HOST, core(0)).unwrap().get(), 0);
    }

    #[test]
    fn categories_find_their_gauge() {
        let of = MemoryCounter::of;
        assert_eq!(of(Location::Host, Category::DMA_RINGS_HOST).id(), 9);
        assert_eq!(of(Location::Device, Category::DMA_RINGS_DEVICE).id(), 20);
        let scratchpad = of(Location::Device, Category::SCRATCHPAD_DEVICE);
        assert_eq!(scratchpad, of(Location::Device, Category::CONTIGUOUS_SCRATCHPAD_DEVICE));
        assert_eq!(scratchpad.leaf(), "model_shared_scratchpad");
        assert_eq!(of(Location::Host, Category::TENSORS_DEVICE).id(), 2, "wrong location");
        assert_eq!(of(Location::Device, Category(20)).id(), 10);
    }

    #[test]
    fn a_category_outside_the_enumeration_is_worth_one_warning() {
        let memory = counters().memory;
        assert!(memory.charge(Location::Device, core(0), Category(19), 1));
        assert!(!memory.charge(Location::Device, core(0), Category(20), 1));
        assert!(memory.charge(Location::Device, core(0), Category(99), 1));
        assert_eq!(memory.gauge(MemoryCounter(10), core(0)).unwrap().get(), 2);
    }

    #[test]
    fn tel_e43_tel_d21_a_failed_reset_of_core_1_charges_core_1() {
        let resets = counters().resets;
        let map = CoreMap(0b10);
        resets.requested(map);
        resets.failed(map);
        for number in 0..8 {
            let expected = u64::from(number == 1);
            assert_eq!(resets.requests[number].get(), expected);
            assert_eq!(resets.failures[number].get(), expected);
        }
        assert_eq!((resets.core.failures.get(), resets.device.failures.get()), (1, 0));
    }

    #[test]
    fn a_device_reset_counts_for_every_present_core() {
        let resets = ResetCells::new(CoreMap(0b11));
        resets.requested(CoreMap::DEVICE);
        assert_eq!(resets.requests.each_ref().map(Counter::get), [1, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn tel_d22_a_reset_below_a_millisecond_is_a_valid_time() {
        let resets = counters().resets;
        resets.finished(CoreMap::DEVICE, Duration::from_micros(400));
        resets.finished(CoreMap::DEVICE, Duration::from_millis(500));
        resets.finished(CoreMap::DEVICE, Duration::from_nanos(500_000_001));
        resets.finished(CoreMap::DEVICE, Duration::from_secs(481));
        assert_eq!(resets.device.buckets[0].get(), 2, "bounds are inclusive");
        assert_eq!(resets.device.buckets[1].get(), 1);
        assert_eq!(resets.device.buckets[10].get(), 1);
        assert_eq!((resets.device.count(), resets.device.failures.get()), (4, 0));
        assert_eq!(resets.device.take_longest(), 481_000_000_000);
        assert_eq!(resets.device.take_longest(), 0);
    }

    #[test]
    fn tel_d32_timeouts_have_a_counter_of_their_own() {
        let mailbox = counters().mailbox;
        mailbox.timeouts(MailboxCommand::PostMetric).increment();
        mailbox.requests(MailboxCommand::SetFeature).increment();
        assert_eq!(mailbox.errors.get(), 0);
        assert_eq!(mailbox.timeouts(MailboxCommand::PostMetric).get(), 1);
        assert_eq!(mailbox.timeouts(MailboxCommand::Read).get(), 0);
    }
}
