//! The poster on a machine in virtual time.

extern crate std;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use axon_hosted::Machine;
use axon_ports::telemetry::TraceKind;
use axon_ports::telemetry::trace::TraceTask;

use super::*;
use crate::posting::PostingMode;
use crate::sensors::misc;
use crate::testing::{FakeDevice, Firmware, client, core, facts_v2, slabs};
use crate::{CoreCounter, DeviceFacts, Error, PowerStatus, TelemetryConfig};

struct Bench {
    machine: Machine,
    device: FakeDevice,
    telemetry: Telemetry<Machine, FakeDevice>,
}

impl Bench {
    fn with(change: impl FnOnce(&mut DeviceFacts, &mut TelemetryConfig)) -> Self {
        let machine = Machine::builder().memory(16 << 20).build().unwrap();
        let device = FakeDevice::v2();
        let mut facts = facts_v2();
        let mut config = TelemetryConfig::default();
        change(&mut facts, &mut config);
        let records = device.records.clone();
        let telemetry =
            Telemetry::new(machine.clone(), facts, config, records, slabs(), device.clone())
                .unwrap();
        Bench { machine, device, telemetry }
    }

    /// Without power samples, so that only posts wake the poster.
    fn new() -> Self {
        let bench = Bench::with(|facts, _| facts.samples_power = false);
        bench.start();
        bench
    }

    fn start(&self) {
        self.machine.spawn("poster", self.telemetry.poster().unwrap().run()).unwrap();
    }

    fn pass(&self, seconds: u64) {
        self.machine.run_for(Duration::from_secs(seconds)).unwrap();
    }

    /// Ids posted so far, post by post.
    fn posts(&self) -> Vec<Vec<u8>> {
        let posts = core::mem::take(&mut self.device.inside().posts);
        posts.iter().map(|post| records(post).map(|(id, _)| id).collect()).collect()
    }

    /// Values posted so far under an id.
    fn values(&self, id: u8) -> Vec<String> {
        let posts = core::mem::take(&mut self.device.inside().posts);
        let all = posts.iter().flat_map(|post| records(post));
        all.filter(|(seen, _)| *seen == id)
            .map(|(_, value)| String::from_utf8(value.to_vec()).unwrap())
            .collect()
    }

    fn count(&self, amount: u64) {
        let own = self.telemetry.acquire(client(1)).unwrap();
        own.add(core(0), CoreCounter::INFER_COMPLETED, amount).unwrap();
    }

    fn counts(&self) -> PostCounts {
        self.telemetry.poster_status().tallies
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.machine.shut_down();
    }
}

const BAND_0: &[u8] = &[12, 13, 56];

#[test]
fn bands_alternate_every_150_seconds_and_nothing_wakes_the_poster_between() {
    let bench = Bench::new();
    bench.pass(149);
    let polls = bench.machine.polls();
    assert!(polls <= 2, "{polls}");
    bench.pass(2);
    assert_eq!(bench.posts(), [BAND_0]);
    bench.pass(150);
    let band_1 = &bench.posts()[0];
    assert!(band_1.starts_with(&[12, 13]) && band_1.contains(&55), "{band_1:?}");
    bench.pass(15_000);
    assert_eq!(bench.counts().ok, [51, 51]);
    assert!(bench.machine.polls() <= polls + 2 * 102, "{}", bench.machine.polls());
}

#[test]
fn tel_e01_tel_e16_a_refused_post_comes_again_with_the_next_tick_of_its_band() {
    let bench = Bench::new();
    bench.count(100);
    bench.device.set_firmware(Firmware::Refuses(1));
    bench.pass(301);
    assert_eq!(bench.counts().error, [1, 1]);
    assert_eq!(bench.device.records.counters.mailbox.errors.get(), 2);
    bench.device.set_firmware(Firmware::Takes);
    bench.pass(150);
    assert_eq!(bench.values(200), ["100"]);
}

#[test]
fn tel_e17_silent_firmware_costs_a_time_out_and_nothing_else() {
    let bench = Bench::new();
    bench.device.set_firmware(Firmware::TimesOut);
    bench.count(5);
    bench.pass(151);
    let mailbox = &bench.device.records.counters.mailbox;
    let timeouts = mailbox.timeouts(axon_ports::telemetry::counters::MailboxCommand::PostMetric);
    assert_eq!((timeouts.get(), mailbox.errors.get()), (1, 0));
    bench.device.set_firmware(Firmware::Takes);
    bench.pass(300);
    assert_eq!(bench.values(200), ["5"]);
}

#[test]
fn tel_e18_a_resume_brings_both_bands_back() {
    let bench = Bench::new();
    bench.telemetry.set_posting(PostingMode::Disabled);
    bench.pass(610);
    assert_eq!(bench.posts().len(), 0);
    bench.telemetry.set_posting(PostingMode::Enabled);
    bench.pass(1);
    assert_eq!(bench.posts().len(), 2);
    bench.pass(138);
    assert_eq!(bench.posts().len(), 0);
    bench.pass(2);
    assert_eq!(bench.posts(), [BAND_0]);
}

#[test]
fn tel_e19_tel_d01_resuming_does_not_spin() {
    let bench = Bench::new();
    bench.pass(1);
    let polls = bench.machine.polls();
    bench.telemetry.set_posting(PostingMode::Disabled);
    bench.pass(1);
    bench.telemetry.set_posting(PostingMode::Enabled);
    bench.pass(100);
    assert_eq!(bench.posts().len(), 0);
    assert!(bench.machine.polls() - polls <= 2, "one look for each change");
    assert_eq!(bench.telemetry.poster_status().state, PostingState::Resuming);
}

#[test]
fn ticks_wait_for_a_device_that_is_not_ready() {
    let bench = Bench::new();
    bench.device.inside().state = DeviceState::Reset;
    bench.pass(301);
    assert_eq!(bench.posts().len(), 0);
    bench.device.inside().state = DeviceState::Ready;
    bench.pass(148);
    assert_eq!(bench.posts().len(), 0, "not replayed");
    bench.pass(2);
    assert_eq!(bench.posts(), [BAND_0]);
}

#[test]
fn post_now_posts_both_bands_and_leaves_the_grid_alone() {
    let bench = Bench::new();
    bench.count(3);
    let telemetry = bench.telemetry.clone();
    let [zero, one] = bench.machine.run(telemetry.post_now()).unwrap().unwrap();
    assert_eq!((zero.band, zero.records, zero.outcome), (Band::Zero, 4, PostOutcome::Ok));
    assert_eq!((one.band, one.outcome, one.deferred), (Band::One, PostOutcome::Ok, 0));
    assert_eq!(bench.values(200), ["3"]);
    bench.pass(151);
    assert_eq!(bench.posts(), [BAND_0], "band 0 is first all the same");
}

#[test]
fn stopping_does_not_wait_for_firmware() {
    let bench = Bench::new();
    bench.device.set_firmware(Firmware::Hangs);
    bench.count(5);
    bench.pass(160);
    let telemetry = bench.telemetry.clone();
    telemetry.stop();
    bench.machine.run(telemetry.stopped()).unwrap();
    assert_eq!(bench.machine.tasks(), [""; 0]);
    assert_eq!(telemetry.poster_status().state, PostingState::Stopped);
    assert_eq!(bench.machine.run(telemetry.post_now()).unwrap(), Err(Error::Stopped));
    // What was on its way is still owed.
    assert_eq!(bench.counts().error, [1, 0]);
}

#[test]
fn a_device_without_a_sink_has_no_poster() {
    let bench = Bench::with(|facts, _| facts.takes_posts = false);
    assert!(bench.telemetry.poster().is_none());
    let refused = bench.machine.run(bench.telemetry.clone().post_now()).unwrap();
    assert_eq!(refused, Err(Error::PostingOff));
    let bench = Bench::with(|_, config| config.posts = false);
    assert!(bench.telemetry.poster().is_none(), "sink mask 0");
}

#[test]
fn sink_bit_1_traces_every_record() {
    let bench = Bench::with(|facts, config| {
        facts.samples_power = false;
        (config.posts, config.traces) = (false, true);
    });
    bench.device.records.trace.switch_on(TraceKind::MetricsPost).unwrap();
    bench.start();
    bench.count(7);
    bench.pass(151);
    let mut lines = Vec::new();
    let trace = &bench.device.records.trace;
    trace.dump(TraceTask::Poster, 9, |record| lines.push(format!("{}", record.event)));
    assert_eq!(lines[3], "metrics_post id=200 length=1 value=7");
    assert_eq!(bench.device.inside().posts.len(), 0);
    assert_eq!(bench.counts().ok, [1, 0]);
}

#[test]
fn tel_e22_tel_d23_posts_of_clients() {
    let bench = Bench::new();
    let post = |bytes: &'static [u8]| {
        let telemetry = bench.telemetry.clone();
        bench.machine.run(async move { telemetry.post(bytes).await }).unwrap()
    };
    assert!(matches!(post(&[]), Err(Error::Invalid { .. })));
    assert_eq!(post(&[7; 128]), Ok(()));
    assert_eq!(post(&[7; 129]), Err(Error::TooBig { len: 129, limit: 128 }));
    assert_eq!(bench.device.inside().posts, [[7; 128]]);
}

#[test]
fn tel_d12_a_client_gets_its_own_bytes_back() {
    // The stream is borrowed for reading: no answer of firmware can reach it.
    let bench = Bench::new();
    let bytes = [1, 2, 3];
    let telemetry = bench.telemetry.clone();
    bench.machine.run(async { telemetry.post(&bytes).await }).unwrap().unwrap();
    assert_eq!(bytes, [1, 2, 3]);
}

/// A device that brings a new power sample every 50 ms.
fn sample(bench: &Bench, count: u32) {
    // Half-way between two looks, so that it does not matter who is first.
    bench.machine.run_for(Duration::from_millis(25)).unwrap();
    for number in 1..=count {
        bench.device.set_misc(misc::POWER, number << 16 | 2500);
        bench.machine.run_for(Duration::from_millis(50)).unwrap();
    }
}

#[test]
fn power_is_sampled_every_50_ms_also_while_posting_is_paused() {
    let bench = Bench::with(|_, _| ());
    bench.start();
    bench.telemetry.set_posting(PostingMode::Disabled);
    sample(&bench, 70);
    bench.pass(60);
    let window = bench.telemetry.snapshot().unwrap().power;
    assert_eq!((window.status, window.samples), (PowerStatus::Valid, 70));
    assert_eq!((window.min, window.average, window.ended), (2500, 2500, Duration::from_secs(60)));
}

#[test]
fn power_is_not_sampled_in_a_reset_or_while_not_ready() {
    let bench = Bench::with(|_, _| ());
    bench.start();
    let reads = |bench: &Bench| {
        let before = bench.device.inside().register_reads;
        bench.pass(1);
        bench.device.inside().register_reads - before
    };
    assert_eq!(reads(&bench), 2 * 20);
    bench.device.inside().resetting = true;
    assert_eq!(reads(&bench), 0);
    bench.device.inside().resetting = false;
    bench.device.inside().state = DeviceState::Reset;
    assert_eq!(reads(&bench), 0);
    bench.device.inside().state = DeviceState::Ready;
    assert_eq!(reads(&bench), 2 * 20);
}

#[test]
fn tel_d13_the_last_close_folds_before_it_clears() {
    let bench = Bench::new();
    for number in 1..=3 {
        let own = bench.telemetry.acquire(client(number)).unwrap();
        own.add(core(1), CoreCounter::OOB, 10).unwrap();
    }
    bench.telemetry.release(client(2));
    bench.telemetry.release_all();
    let snapshot = bench.telemetry.snapshot().unwrap();
    assert_eq!(snapshot.slab_owners, []);
    assert_eq!(snapshot.cores[1].total(CoreCounter::OOB), 30);
    bench.pass(151);
    assert_eq!(bench.values(220), ["30"]);
}

#[test]
fn tel_e24_a_monitor_of_nobody() {
    let bench = Bench::new();
    let none = bench.machine.run(bench.telemetry.monitor(client(9))).unwrap();
    assert_eq!(none, Err(Error::NoEntry { client: client(9) }));
    assert_eq!(none.unwrap_err().errno(), axon_platform::Errno::ENOENT);
}

#[test]
fn a_monitor_looks_twice_at_the_header() {
    let bench = Bench::new();
    let own = bench.telemetry.acquire(client(1)).unwrap();
    let good = bench.machine.run(bench.telemetry.monitor(client(1))).unwrap();
    assert_eq!(good.unwrap().client(), own.client());

    bench.telemetry.0.turn(|state| {
        state.slots.find(client(1)).unwrap().store64(0, 5).unwrap();
    });
    let before = bench.machine.now();
    let bad = bench.machine.run(bench.telemetry.monitor(client(1))).unwrap();
    assert_eq!(bad, Err(Error::BadHeader { header: 5 }));
    assert_eq!(bench.machine.now().since(before), Duration::from_micros(500));
}

#[test]
fn a_refresh_leaves_a_device_in_reset_alone() {
    let bench = Bench::new();
    bench.device.set_misc(misc::SRAM_ECC, 3);
    bench.machine.run(bench.telemetry.refresh()).unwrap();
    let first = bench.telemetry.snapshot().unwrap().readings;
    assert_eq!((first.ecc.sram_uncorrected(), first.api_version), (3, Some(7)));
    assert!(first.pe.iter().all(Option::is_some));

    bench.device.inside().resetting = true;
    bench.device.set_misc(misc::SRAM_ECC, 9);
    let reads = bench.device.inside().register_reads;
    bench.machine.run(bench.telemetry.refresh()).unwrap();
    assert_eq!(bench.telemetry.snapshot().unwrap().readings, first);
    assert_eq!(bench.device.inside().register_reads, reads);
}
