//! The counters that the driver keeps of one device (specification 07 §3). Those of memory belong to
//! the memory service.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::{Counter, Gauge};
use crate::{CoreId, CoreMap};

/// All of them. Counters are public: whoever does the thing counts it.
#[derive(Debug)]
pub struct DeviceCounters {
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
            resets: ResetCells::new(present),
            mailbox: MailboxCells::new(),
            queues_armed: Gauge::new(),
        }
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
    /// Answers without a check sum of their own.
    pub unverified: Counter,
    /// Answers with an error code, each attempt counted (specification 07 §3.4).
    pub errors: Counter,
}

impl MailboxCells {
    const fn new() -> Self {
        MailboxCells {
            requests: [const { Counter::new() }; 5],
            timeouts: [const { Counter::new() }; 5],
            unverified: Counter::new(),
            errors: Counter::new(),
        }
    }

    /// Requests of a command, however many attempts each took.
    pub fn requests(&self, command: MailboxCommand) -> &Counter {
        &self.requests[command.index()]
    }

    /// Requests of a command of which no attempt was answered in time.
    pub fn timeouts(&self, command: MailboxCommand) -> &Counter {
        &self.timeouts[command.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> DeviceCounters {
        DeviceCounters::new(CoreMap(0xff))
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
