//! The bring-up and tear-down ladders, with a failure at every rung: whatever is refused, what was
//! taken is given back in reverse, and the next bring-up succeeds (specification 05 §4, §5).

use std::time::Duration;

use axon::ports::CoreMap;
use axon::ports::reset::DeviceState;
use axon::{Context, DeviceAlloc, Error, HostAlloc, QueueSpec};
use axon_hosted::Machine;
use axon_platform::{Errno, PciFunction, Platform};
use axon_tests::frail::Frail;

/// Memory decoding and bus mastering in the command register.
const DECODE: u32 = 2;
const MASTER: u32 = 4;

/// What a machine without axon looks like.
#[derive(PartialEq, Eq, Debug)]
struct Baseline {
    tasks: Vec<&'static str>,
    free_bytes: u64,
    command: Vec<u32>,
}

fn baseline(machine: &Machine) -> Baseline {
    let functions = machine.functions();
    Baseline {
        tasks: machine.tasks(),
        free_bytes: machine.free_dma_bytes(),
        command: functions.iter().map(|f| f.config_read32(4) & (DECODE | MASTER)).collect(),
    }
}

/// How a bring-up whose `refused`-th request is refused ends.
enum End {
    /// The request was never made.
    Complete,
    /// The device works without what was refused.
    Tolerated,
    Refused(Error),
}

fn bring_up(machine: &Machine, refused: usize) -> End {
    let frail = Frail::new(machine, refused);
    let cx = Context::start(frail.clone());
    machine.run(cx.driver.settled()).expect("it ends");
    let devices = cx.driver.devices();
    let end = match (cx.driver.refusals().first(), frail.has_refused()) {
        (Some(refusal), _) => {
            assert_eq!(devices.len(), 0, "either a device or a refusal");
            End::Refused(refusal.error)
        }
        (None, true) => End::Tolerated,
        (None, false) => End::Complete,
    };
    let ready = devices.iter().all(|device| device.state() == DeviceState::Ready);
    assert!(ready, "request {refused}: published and not READY");
    machine.run(cx.driver.shut_down()).expect("it ends");
    drop((cx, devices));
    machine.run_for(Duration::from_secs(1)).expect("it ends");
    assert_eq!(frail.windows(), 0, "request {refused}: a window is still mapped");
    end
}

/// Every request of a bring-up refused in turn; answers how many were refused and tolerated.
fn refuse_each(product: &str) -> (usize, usize) {
    // Small: what is freed while a machine runs is filled.
    let machine = Machine::builder().device(product).memory(64 << 20).build().unwrap();
    let before = baseline(&machine);
    let (mut refused, mut tolerated) = (0, 0);
    loop {
        match bring_up(&machine, refused + tolerated) {
            End::Complete => break,
            End::Tolerated => tolerated += 1,
            End::Refused(error) => {
                let errno = error.errno();
                let known = [Errno::ENOMEM, Errno::ENODEV, Errno::EIO];
                assert!(known.contains(&errno), "request {}: {error}", refused + tolerated);
                refused += 1;
            }
        }
        let number = refused + tolerated - 1;
        assert_eq!(baseline(&machine), before, "request {number} of {product}");
    }
    // The last of them was a complete one: it went up after every failure before it.
    assert_eq!(baseline(&machine), before, "{product}");
    machine.shut_down();
    (refused, tolerated)
}

#[test]
fn st_e02_st_d03_a_start_that_gets_nothing_leaves_nothing() {
    let machine = Machine::builder().device("trn1").memory(64 << 20).build().unwrap();
    let before = baseline(&machine);
    for first in 0..3 {
        let cx = Context::start(Frail::from(&machine, first));
        machine.run(cx.driver.settled()).expect("it ends");
        assert_eq!((cx.driver.devices().len(), cx.driver.refusals().len()), (0, 1));
        machine.run(cx.driver.shut_down()).expect("it ends");
        drop(cx);
        machine.run_for(Duration::from_secs(1)).expect("it ends");
        assert_eq!(baseline(&machine), before, "nothing from request {first} on");
    }
    assert!(matches!(bring_up(&machine, usize::MAX), End::Complete), "the second start succeeds");
    assert_eq!(baseline(&machine), before);
    machine.shut_down();
}

#[test]
fn st_e01_st_d01_st_d02_st_d04_st_d05_st_d06_each_rung_fails_and_leaves_nothing() {
    let all = ["trn1", "trn2", "inf2", "trn3"];
    let long = std::env::var_os("AXON_LONG").is_some();
    for product in &all[..if long { 4 } else { 2 }] {
        let (refused, tolerated) = refuse_each(product);
        // Decoding, registers, two mailbox buffers, reserve pools, bus mastering, seven tasks.
        assert!(refused >= 13, "{product}: {refused} rungs can fail");
        // The memory window, and the tasks of the host that no device needs.
        assert!(tolerated >= 1, "{product}: {tolerated}");
    }
}

/// Brings a device up, gives a client something of it, and has the device fall silent at access
/// number `answered` of what `act` does with it. Answers how many accesses there were.
fn silent_in(
    product: &str,
    answered: usize,
    act: impl AsyncFnOnce(&Context<Frail>, &axon::Client<Frail>),
) -> usize {
    let machine = Machine::builder().device(product).memory(64 << 20).build().unwrap();
    let before = baseline(&machine);
    let frail = Frail::new(&machine, usize::MAX);
    let cx = Context::start(frail.clone());
    machine.run(cx.driver.settled()).expect("it ends");
    let accesses = machine.run(async {
        let client = cx.driver.devices()[0].open().await.unwrap();
        let host = client.alloc_host(HostAlloc::new(4096)).await.unwrap();
        let there = client.alloc_device(DeviceAlloc::new(4096)).await.unwrap();
        host.span(..).unwrap().copy_to(there.span(..).unwrap()).unwrap().await.unwrap();
        let _queue = client.notifications(QueueSpec::new(0, 4, 65_536)).await.unwrap();
        frail.fall_silent_after(answered);
        act(&cx, &client).await;
        let accesses = frail.accesses();
        cx.driver.shut_down().await;
        accesses
    });
    let accesses = accesses.expect("it ends");
    drop(cx);
    machine.run_for(Duration::from_secs(1)).expect("it ends");
    assert_eq!(frail.windows(), 0, "access {answered}: a window is still mapped");
    assert_eq!(baseline(&machine), before, "access {answered}");
    machine.shut_down();
    accesses
}

/// The first accesses one by one, later ones further and further apart.
fn accesses(total: usize) -> impl Iterator<Item = usize> {
    let step = if std::env::var_os("AXON_LONG").is_some() { 16 } else { 2 };
    core::iter::successors(Some(1), move |&at| Some(at + 1 + at / step))
        .take_while(move |&at| at <= total)
}

#[test]
fn st_d30_a_device_that_falls_silent_in_any_stage_of_a_reset_fails_every_core_once() {
    for product in ["trn1", "trn2"] {
        let reset = |answered: usize| {
            silent_in(product, answered, async |cx, client| {
                let device = cx.driver.devices().remove(0);
                let ended = client.reset(CoreMap::DEVICE).unwrap().await;
                if answered == usize::MAX {
                    return ended.unwrap();
                }
                let failed = ended.is_err();
                // Behind the last register that a reset reads nothing tells a device that is gone.
                assert!(failed || cx.driver.devices()[0].identity().is_err(), "{answered}");
                let state = if failed { DeviceState::Invalid } else { device.state() };
                assert_eq!(device.state(), state, "{answered}");
                for core in device.hal().core_ids() {
                    let failures = device.records().counters.resets.failures[core.index()].get();
                    assert_eq!(failures, u64::from(failed), "{answered}");
                }
                assert!(device.open().await.is_err() || !failed, "{answered}");
            })
        };
        let total = reset(usize::MAX);
        assert!(total > 13_000, "{product}: {total} accesses");
        for answered in accesses(total) {
            reset(answered);
        }
    }
}

#[test]
fn a_device_that_falls_silent_at_any_step_of_its_tear_down_leaves_nothing() {
    for product in ["trn1", "trn2"] {
        let end =
            |answered| silent_in(product, answered, async |cx, _| cx.driver.shut_down().await);
        let total = end(usize::MAX);
        assert!(total > 60, "{product}: {total} accesses");
        for answered in accesses(total) {
            end(answered);
        }
    }
}

#[test]
fn queues_are_managed_where_a_function_says_that_it_is_emulated() {
    let machine = Machine::builder().device("trn1").device("trn1").build().unwrap();
    let cx = Context::start(Frail::with_hardware(&machine, 1));
    machine.run(cx.driver.settled()).expect("it ends");
    let managed = |device: axon::Device<Frail>| (device.position(), device.manages_notifications());
    let mut all: Vec<_> = cx.driver.devices().into_iter().map(managed).collect();
    all.sort_unstable();
    assert_eq!(all, [(0, true), (1, false)]);
    machine.run(cx.driver.shut_down()).expect("it ends");
    machine.shut_down();
}
