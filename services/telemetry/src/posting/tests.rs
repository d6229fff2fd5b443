//! Posts as a device makes them: clients count, come and go; ticks follow.

extern crate std;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use axon_platform::Instant;
use axon_ports::CoreMap;
use proptest::prelude::*;

use super::version::word;
use super::*;
use crate::datastore::{Datastore, Slots};
use crate::device::PodModes;
use crate::sensors::HbmErrors;
use crate::testing::{FakeDevice, client, core, facts_v2, facts_v3, slabs};
use crate::totals::{Retired, Survey};
use crate::{CoreCounter, DeviceCounter, DeviceFacts};

struct Bench {
    facts: DeviceFacts,
    device: FakeDevice,
    slots: Slots,
    retired: Retired,
    ledger: Ledger,
    constants: Constants,
    firmware_errors: u64,
    hbm: Option<HbmErrors>,
    pod: Option<PodModes>,
    now: Instant,
}

type Records = Vec<(u8, String)>;

impl Bench {
    fn new(facts: DeviceFacts) -> Self {
        Bench {
            facts,
            device: FakeDevice::v3(),
            slots: Slots::new(slabs()).unwrap(),
            retired: Retired::new(),
            ledger: Ledger::new(Instant::default()),
            constants: Constants::new(None, "1"),
            firmware_errors: 0,
            hbm: Some(HbmErrors::default()),
            pod: None,
            now: Instant::default() + Duration::from_secs(150),
        }
    }

    fn own(&mut self, number: u32) -> Datastore {
        let (slab, tenancy) = self.slots.acquire(client(number)).unwrap();
        Datastore::new(client(number), slab, tenancy)
    }

    fn leave(&mut self, number: u32) {
        let Bench { facts, slots, retired, ledger, .. } = self;
        slots.release(client(number), |slab| {
            retired.fold(facts, &slab);
            ledger.departed.fold(&slab);
        });
    }

    fn build(&mut self, band: Band) -> Pending {
        let survey = Survey::take(&self.facts, &self.slots, &self.retired, &self.ledger.departed);
        let input = PostInput {
            now: self.now,
            constants: &self.constants,
            profile: 0,
            cores_per_device: self.facts.cores_per_device,
            firmware_errors: self.firmware_errors,
            resets: &self.device.records.counters.resets,
            hbm: self.hbm,
            pod: self.pod,
            survey,
        };
        self.ledger.build(band, &input)
    }

    fn settle(&mut self, pending: Pending, taken: bool) {
        self.ledger.settle(pending, taken, &self.device.records.counters.resets);
    }

    /// One tick: what firmware got to see, without the rows that are always there.
    fn tick(&mut self, band: Band, taken: bool) -> Records {
        let pending = self.build(band);
        let seen = records(pending.stream.as_bytes())
            .filter(|(id, _)| !matches!(id, 12 | 13 | 56 | 90 | 222 | 229 | 50..=55))
            .map(|(id, value)| (id, String::from_utf8(value.to_vec()).unwrap()))
            .collect();
        self.settle(pending, taken);
        seen
    }

    fn count(&mut self, number: u32, counter: CoreCounter, amount: u64) {
        self.own(number).add(core(0), counter, amount).unwrap();
    }
}

fn text(records: &Records) -> String {
    records.iter().map(|(id, value)| format!("{id}={value}")).collect::<Vec<_>>().join(" ")
}

const ZERO: Band = Band::Zero;
const ONE: Band = Band::One;
const DONE: CoreCounter = CoreCounter::INFER_COMPLETED;

#[test]
fn tel_e01_tel_e02_a_client_counts_and_departs() {
    let mut bench = Bench::new(facts_v2());
    bench.count(1, DONE, 100);
    let pending = bench.build(ZERO);
    let record = [0xc8, 3, 0x31, 0x30, 0x30];
    assert!(pending.stream.as_bytes().windows(5).any(|window| window == record));
    bench.settle(pending, true);
    bench.count(1, DONE, 20);
    bench.leave(1);
    assert_eq!(text(&bench.tick(ONE, true)), "");
    assert_eq!(text(&bench.tick(ZERO, true)), "200=20");
    assert_eq!(text(&bench.tick(ZERO, true)), "");
}

#[test]
fn tel_e03_a_client_that_came_and_went_between_two_ticks() {
    let mut bench = Bench::new(facts_v2());
    bench.count(1, DONE, 50);
    bench.leave(1);
    assert_eq!(text(&bench.tick(ZERO, true)), "200=50");
    assert_eq!(text(&bench.tick(ZERO, true)), "");
}

#[test]
fn tel_e04_only_what_is_new_is_posted_whoever_stays() {
    let mut bench = Bench::new(facts_v2());
    bench.count(1, DONE, 100);
    bench.count(2, DONE, 100);
    assert_eq!(text(&bench.tick(ZERO, true)), "200=200");
    bench.count(2, DONE, 20);
    bench.leave(2);
    bench.count(1, DONE, 5);
    assert_eq!(text(&bench.tick(ZERO, true)), "200=25");
}

#[test]
fn tel_e05_cores_add_up_to_one_record() {
    let mut bench = Bench::new(facts_v2());
    let own = bench.own(1);
    own.add(core(0), DONE, 7).unwrap();
    own.add(core(1), DONE, 8).unwrap();
    own.add(core(2), DONE, 1000).unwrap();
    assert_eq!(text(&bench.tick(ZERO, true)), "200=15");
}

#[test]
fn tel_e06_a_counter_of_a_high_core_goes_with_band_1() {
    let mut bench = Bench::new(facts_v3());
    bench.own(1).add(core(5), CoreCounter::ERR_SW_NQ_OVERFLOW, 3).unwrap();
    assert_eq!(text(&bench.tick(ZERO, true)), "");
    assert_eq!(text(&bench.tick(ONE, true)), "253=3");
}

#[test]
fn tel_e09_without_clients_band_0_has_three_records() {
    let mut bench = Bench::new(facts_v2());
    let stream = bench.build(ZERO).stream;
    let ids: Vec<u8> = records(stream.as_bytes()).map(|(id, _)| id).collect();
    assert_eq!(ids, [12, 13, 56]);
}

#[test]
fn tel_e10_the_two_most_used_versions() {
    let mut bench = Bench::new(facts_v2());
    for number in 1..=4 {
        let version = if number == 2 { word(0, 2, 30, 7) } else { word(0, 2, 31, 24) };
        bench.own(number).set_device(DeviceCounter::RUNTIME_VERSION, version).unwrap();
    }
    assert_eq!(text(&bench.tick(ZERO, true)), "180=2.31.24 181=2.30.7");
    for number in 1..=4 {
        bench.leave(number);
    }
    assert_eq!(text(&bench.tick(ONE, true)), "180=2.31.24 181=2.30.7", "departed count once");
    assert_eq!(text(&bench.tick(ZERO, true)), "");
}

#[test]
fn tel_e11_tel_e12_framework_versions_have_a_type() {
    let framework = |version| {
        let mut bench = Bench::new(facts_v2());
        bench.own(1).set_device(DeviceCounter::FRAMEWORK_VERSION, version).unwrap();
        text(&bench.tick(ONE, true))
    };
    assert_eq!(framework(word(1, 0, 0, 0)), "191=1");
    assert_eq!(framework(word(14, 1, 2, 3)), "190=1.2.3 191=4");
    assert_eq!(framework(word(10, 1, 2, 3)), "190=1.2.3");

    let mut bench = Bench::new(facts_v2());
    bench.own(1).set_device(DeviceCounter::FRAMEWORK_VERSION, word(1, 1, 0, 0)).unwrap();
    bench.own(2).set_device(DeviceCounter::FRAMEWORK_VERSION, word(2, 2, 0, 0)).unwrap();
    bench.own(3).set_device(DeviceCounter::FRAMEWORK_VERSION, word(2, 2, 0, 0)).unwrap();
    assert_eq!(text(&bench.tick(ONE, true)), "190=2.0.0 191=2 192=1.0.0 193=1");
}

#[test]
fn tel_e13_two_of_nine_versions_are_posted() {
    let mut bench = Bench::new(facts_v2());
    for number in 1..=9 {
        let version = word(0, 1, 0, number.into());
        bench.own(number).set_device(DeviceCounter::RUNTIME_VERSION, version).unwrap();
    }
    assert_eq!(bench.tick(ZERO, true).len(), 2);
}

/// Posted ids of the counters of band 0, in order.
const COUNTERS: [(u8, u32); 18] = [
    (200, 1),
    (201, 16),
    (205, 4),
    (212, 5),
    (215, 8),
    (216, 9),
    (217, 10),
    (206, 11),
    (218, 12),
    (214, 2),
    (213, 3),
    (219, 7),
    (204, 17),
    (208, 18),
    (207, 6),
    (202, 19),
    (209, 20),
    (220, 30),
];

#[test]
fn tel_e14_tel_d06_what_does_not_fit_is_owed_and_goes_first() {
    let mut bench = Bench::new(facts_v2());
    for (at, (_, counter)) in (0..).zip(COUNTERS) {
        bench.count(1, CoreCounter::new(counter).unwrap(), 1_000_000_000 + at);
    }
    let mut seen = Records::new();
    for tick in 0..3 {
        let pending = bench.build(ZERO);
        assert!(pending.stream.as_bytes().len() <= 128);
        bench.settle(pending, false);
        let records = bench.tick(ZERO, true);
        assert_eq!(records.len(), if tick < 2 { 9 } else { 0 });
        seen.extend(records);
    }
    let expected: Records = (0..)
        .zip(COUNTERS)
        .map(|(at, (id, _))| (id, (1_000_000_000 + at as u64).to_string()))
        .collect();
    assert_eq!(seen, expected, "every delta once, undiminished, in order");
}

#[test]
fn tel_d06_a_row_that_waits_gathers_more() {
    let mut bench = Bench::new(facts_v2());
    bench.constants = Constants::new(Some(&"x".repeat(63)), &"v".repeat(55));
    bench.count(1, DONE, 100_000);
    assert_eq!(text(&bench.tick(ZERO, true)), "", "profile and counter do not fit together");
    bench.count(1, DONE, 23_456);
    assert_eq!(text(&bench.tick(ZERO, true)), "200=123456");
}

#[test]
fn tel_d05_two_versions_each_have_to_fit() {
    let mut bench = Bench::new(facts_v2());
    // 65 + 50 of 128 bytes are gone: one version of 11 bytes fits, two do not.
    bench.constants = Constants::new(Some(&"x".repeat(63)), &"v".repeat(45));
    bench.own(1).set_device(DeviceCounter::RUNTIME_VERSION, word(0, 2, 31, 2400)).unwrap();
    bench.own(2).set_device(DeviceCounter::RUNTIME_VERSION, word(0, 2, 30, 2400)).unwrap();
    let pending = bench.build(ONE);
    assert!(pending.stream.as_bytes().len() <= 128);
    let runtime = |id| records(pending.stream.as_bytes()).any(|(seen, _)| seen == id);
    assert!(runtime(180) && !runtime(181));
}

#[test]
fn tel_e15_the_longest_instance_id() {
    let mut bench = Bench::new(facts_v2());
    bench.constants = Constants::new(Some(&"i-".repeat(40)), "1");
    let stream = bench.build(ZERO).stream;
    assert_eq!(stream.as_bytes()[..2], [12, 63]);
    assert_eq!(STREAM_BYTES - 2 - 63, 63, "what is left");
    let id = |text| Constants::new(text, "1").instance_id;
    assert_eq!((id(None), id(Some("")), id(Some("i-1 "))), ("0".into(), "0".into(), "i-1".into()));
}

#[test]
fn tel_e16_tel_d07_a_refused_post_owes_every_delta() {
    let mut bench = Bench::new(facts_v2());
    let resets = bench.device.records.clone();
    let resets = &resets.counters.resets;
    bench.count(1, CoreCounter::HW_ERR_NC_UE, 7);
    let own = bench.own(2);
    own.set_bits(DeviceCounter::FEATURE_BITMAP, 2).unwrap();
    own.set_device(DeviceCounter::DEVICE_CLUSTER_ID, 77).unwrap();
    own.set_device(DeviceCounter::FRAMEWORK_VERSION, word(1, 1, 2, 3)).unwrap();
    bench.leave(2);
    resets.finished(CoreMap(1), Duration::from_millis(9));
    let figures = |bench: &mut Bench, taken| {
        let pending = bench.build(ONE);
        let all: Vec<(u8, Vec<u8>)> =
            records(pending.stream.as_bytes()).map(|(id, value)| (id, value.to_vec())).collect();
        bench.settle(pending, taken);
        all
    };
    let refused = figures(&mut bench, false);
    assert!(refused.contains(&(51, b"9".to_vec())) && refused.contains(&(252, b"77".to_vec())));
    assert!(refused.contains(&(250, b"2".to_vec())) && refused.contains(&(190, b"1.2.3".to_vec())));
    assert!(refused.contains(&(223, b"7".to_vec())));
    assert_eq!(figures(&mut bench, true), refused, "the same again");
    let after = figures(&mut bench, true);
    assert!(after.contains(&(51, b"0".to_vec())) && after.contains(&(53, b"0".to_vec())));
    for id in [190, 223, 250, 252] {
        assert!(after.iter().all(|record| record.0 != id), "{id} was taken");
    }
}

#[test]
fn tel_d08_features_of_a_departed_client_wait_for_their_band() {
    let mut bench = Bench::new(facts_v2());
    bench.own(1).set_bits(DeviceCounter::FEATURE_BITMAP, 1).unwrap();
    bench.leave(1);
    bench.own(2).set_bits(DeviceCounter::FEATURE_BITMAP, 2).unwrap();
    assert_eq!(text(&bench.tick(ZERO, true)), "");
    assert_eq!(text(&bench.tick(ONE, true)), "250=3");
    assert_eq!(text(&bench.tick(ONE, true)), "250=2", "the living are told every time");
}

#[test]
fn tel_d09_tel_d19_the_dynamic_bitmap_is_ignored() {
    let mut bench = Bench::new(facts_v2());
    bench.own(1).set_bits(DeviceCounter::DYNAMIC_SYSFS_METRIC_BITMAP, u64::MAX).unwrap();
    assert_eq!(text(&bench.tick(ONE, true)), "");
    bench.leave(1);
    assert_eq!(text(&bench.tick(ONE, true)), "");
}

#[test]
fn tel_d11_firmware_errors_are_a_counter() {
    let mut bench = Bench::new(facts_v2());
    bench.firmware_errors = 3;
    assert_eq!(text(&bench.tick(ZERO, true)), "11=3");
    assert_eq!(text(&bench.tick(ZERO, true)), "");
    bench.firmware_errors = 4;
    assert_eq!(text(&bench.tick(ZERO, true)), "11=1");
}

/// All reset figures of one post.
fn reset_figures(bench: &mut Bench) -> String {
    let pending = bench.build(ONE);
    let figures = records(pending.stream.as_bytes())
        .filter(|(id, _)| (50..=55).contains(id))
        .map(|(id, value)| format!("{id}={}", core::str::from_utf8(value).unwrap()))
        .collect::<Vec<_>>()
        .join(" ");
    bench.settle(pending, true);
    figures
}

#[test]
fn tel_e44_tel_d10_reset_figures_are_since_the_last_post() {
    let mut bench = Bench::new(facts_v2());
    let records = bench.device.records.clone();
    let resets = &records.counters.resets;
    resets.finished(CoreMap::DEVICE, Duration::from_millis(1500));
    resets.finished(CoreMap::DEVICE, Duration::from_millis(500));
    assert_eq!(reset_figures(&mut bench), "50=1500 51=0 52=1000 53=0 54=0 55=0");
    assert_eq!(reset_figures(&mut bench), "50=0 51=0 52=0 53=0 54=0 55=0");
    resets.failed(CoreMap(1));
    assert_eq!(reset_figures(&mut bench), "50=0 51=0 52=0 53=0 54=0 55=1");
}

#[test]
fn hbm_errors_are_posted_as_differences_that_never_go_below_zero() {
    let mut bench = Bench::new(facts_v3());
    let mut post = |errors: Option<(u64, u64)>| {
        bench.hbm = errors.map(|(repairable, other)| HbmErrors { repairable, other });
        let pending = bench.build(ONE);
        let seen: Vec<(u8, Vec<u8>)> = records(pending.stream.as_bytes())
            .filter(|(id, _)| matches!(id, 222 | 229))
            .map(|(id, value)| (id, value.to_vec()))
            .collect();
        bench.settle(pending, true);
        seen
    };
    assert_eq!(post(Some((0, 3))), [(222, b"3".to_vec()), (229, b"0".to_vec())]);
    assert_eq!(post(None), []);
    // The repair state moves the count from one to the other.
    assert_eq!(post(Some((4, 0))), [(222, b"0".to_vec()), (229, b"4".to_vec())]);
    assert_eq!(post(Some((4, 1))), [(222, b"1".to_vec()), (229, b"0".to_vec())]);
}

#[test]
fn utilisation_is_a_share_of_the_time_of_all_cores() {
    let mut bench = Bench::new(facts_v2());
    let share = |bench: &mut Bench, seconds: u64, taken| {
        bench.now = Instant::default() + Duration::from_secs(seconds);
        let pending = bench.build(ONE);
        let value = records(pending.stream.as_bytes())
            .find(|(id, _)| *id == 90)
            .map(|(_, value)| String::from_utf8(value.to_vec()).unwrap());
        bench.settle(pending, taken);
        value
    };
    // 75 s of 150 s on one of two cores, in picoseconds.
    bench.count(1, CoreCounter::TIME_IN_USE, 75_000_000_000_000);
    assert_eq!(share(&mut bench, 0, true), None, "no time has passed");
    assert_eq!(share(&mut bench, 150, false).as_deref(), Some("25"));
    assert_eq!(share(&mut bench, 300, true).as_deref(), Some("12"), "a refused window goes on");
    assert_eq!(bench.ledger.utilisation_ppm, Some(125_000));
    assert_eq!(share(&mut bench, 450, true).as_deref(), Some("0"));
}

#[test]
fn ids_are_posted_live_before_departed_and_neff_in_hexadecimal() {
    let mut bench = Bench::new(facts_v2());
    bench.own(1).set_device(DeviceCounter::DEVICE_CLUSTER_ID, 10).unwrap();
    bench.own(1).set_device(DeviceCounter::AGG_NEFF_ID, 0xabc).unwrap();
    assert_eq!(text(&bench.tick(ONE, true)), "252=10 80=abc");
    bench.leave(1);
    assert_eq!(text(&bench.tick(ONE, true)), "252=10 80=abc");
    assert_eq!(text(&bench.tick(ONE, true)), "");
    bench.pod = Some(PodModes { supported: 6, mode: 2 });
    assert_eq!(text(&bench.tick(ONE, true)), "57=6 58=2");
}

#[test]
fn a_source_that_is_set_back_starts_anew() {
    let mut bench = Bench::new(facts_v2());
    bench.count(1, DONE, 100);
    assert_eq!(text(&bench.tick(ZERO, true)), "200=100");
    bench.own(1).subtract(core(0), DONE, 60).unwrap();
    assert_eq!(text(&bench.tick(ZERO, true)), "");
    bench.count(1, DONE, 5);
    assert_eq!(text(&bench.tick(ZERO, true)), "200=5");
}

proptest! {
    /// At least once, and exactly once where firmware takes every post: what was posted adds up to
    /// what was counted.
    #[test]
    fn posted_deltas_add_up_to_what_was_counted(
        steps in proptest::collection::vec((0..18_usize, 0..5_000_000_000_u64, 0..6_u8), 1..60)
    ) {
        let mut bench = Bench::new(facts_v2());
        let mut counted = [0_u64; 256];
        let mut posted = [0_u64; 256];
        let mut add = |records: Records| for (id, value) in records {
            posted[usize::from(id)] += value.parse::<u64>().unwrap();
        };
        for (at, amount, then) in steps {
            let (id, counter) = COUNTERS[at];
            bench.count(1 + at as u32 % 3, CoreCounter::new(counter).unwrap(), amount);
            counted[usize::from(id)] += amount;
            match then {
                0 => add(bench.tick(ZERO, true)),
                1 => { bench.tick(ZERO, false); }
                2 => bench.leave(1 + at as u32 % 3),
                _ => {}
            }
        }
        for _ in 0..8 {
            add(bench.tick(ZERO, true));
        }
        prop_assert_eq!(&counted[..], &posted[..]);
    }
}
