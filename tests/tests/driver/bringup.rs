//! Bring-up: from the function to READY, and every way in which it is refused.

use std::time::Duration;

use axon::Driver;
use axon_hosted::Machine;
use axon_model::{Bar4, FunctionConfig, Product};
use axon_platform::{Errno, Platform};
use axon_ports::reset::DeviceState;

use axon_tests::bench::{every, later};

/// What became of the functions of a machine: devices by index, refusals in bus order.
type Outcome = (Vec<(u32, DeviceState)>, Vec<(Errno, String)>);

/// Brings these functions up.
fn bring_up(functions: Vec<FunctionConfig>) -> Outcome {
    bring_up_named(functions, None)
}

fn bring_up_named(functions: Vec<FunctionConfig>, name: Option<&str>) -> Outcome {
    let mut builder = Machine::builder();
    for function in functions {
        builder = builder.function(function);
    }
    if let Some(name) = name {
        builder = builder.product_name(name);
    }
    let machine = builder.build().unwrap();
    let output = machine.run(async {
        let driver = Driver::start(machine.clone());
        driver.settled().await;
        let devices = driver.devices().iter().map(|d| (d.index().number(), d.state())).collect();
        let refusals = driver.refusals();
        let refusals = refusals.iter().map(|r| (r.error.errno(), r.error.to_string())).collect();
        (devices, refusals)
    });
    machine.shut_down();
    output.unwrap()
}

fn function(product: Product) -> FunctionConfig {
    FunctionConfig::new(product, 0)
}

#[test]
fn every_product_becomes_ready() {
    every().run(async |bench| {
        let report = bench.report();
        assert_eq!(report.device_resets, 1);
        assert_eq!(bench.device.serial_number().unwrap(), Some((1 << 32) + 1));
        assert_eq!(bench.device.firmware_version().unwrap(), Some(7));
    });
}

#[test]
fn dev_e04_st_e07_generations_mix() {
    let mut functions = vec![function(Product::Trn1), function(Product::Trn2)];
    functions[1].routing_id = 8;
    functions.push(function(Product::Trn3));
    functions[2].routing_id = 9;
    let (devices, refusals) = bring_up(functions);
    assert_eq!(refusals, []);
    assert!(devices.iter().all(|(_, state)| *state == DeviceState::Ready));
    assert_eq!(devices.iter().map(|d| d.0).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn dev_e05_bar4_may_be_absent_or_short() {
    for bar4 in [Bar4::Absent, Bar4::Size(64 << 30)] {
        later().with(|setup| setup.function.bar4 = bar4).run(async |bench| {
            let (source, target) = (bench.pattern(70_000, 1).await, bench.hbm(70_000).await);
            source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().await.unwrap();
        });
    }
}

#[test]
fn dev_e16_dev_e19_st_e03_st_e04_indices_and_duplicates() {
    let with = |product, routing_id| {
        let mut function = function(product);
        function.routing_id = routing_id;
        function
    };
    let index = |product, routing_id| bring_up(vec![with(product, routing_id)]).0[0].0;
    assert_eq!([5, 15, 21, 63].map(|r| index(Product::Trn1, r)), [7, 10, 23, 58]);
    assert_eq!(index(Product::Inf2, 5), 5);
    assert_eq!(index(Product::Trn2, 4), 12);

    let (devices, refusals) = bring_up(vec![with(Product::Trn2, 1), with(Product::Trn2, 17)]);
    assert_eq!((devices.len(), refusals.len()), (1, 1));
    assert_eq!(devices[0], (3, DeviceState::Ready));
    assert_eq!(refusals[0].0, Errno::ENODEV);
    assert!(refusals[0].1.contains("nd3"), "{}", refusals[0].1);
}

#[test]
fn dev_e17_st_e05_routing_ids_out_of_range_and_pds() {
    let with = |routing_id, server_rack_id| {
        let mut function = function(Product::Trn2);
        function.routing_id = routing_id;
        function.server_rack_id = server_rack_id;
        function
    };
    let refused = |(devices, refusals): (Vec<_>, Vec<(Errno, String)>)| {
        assert!(devices.is_empty() && refusals.len() == 1);
        assert_eq!(refusals[0].0, Errno::ENODEV);
    };
    refused(bring_up(vec![with(64, 0)]));
    let pds = Some("trn2es.48xlarge");
    assert_eq!(bring_up_named(vec![with(64, 0x8003)], pds).0[0].0, 0);
    refused(bring_up_named(vec![with(128, 0x8003)], pds));
    refused(bring_up_named(vec![with(64, 0x0003)], pds));
    // 0xdeadbeef has the valid bit and still is no value (DEV-E46).
    refused(bring_up_named(vec![with(64, 0xdead_beef)], pds));
}

#[test]
fn dev_e18_st_e06_late_firmware() {
    every().with(|late| late.function.firmware_late_ns = 3_000_000_000).run(async |bench| {
        let up = bench.now().as_nanos() / 1_000_000;
        assert!((3_000..4_500).contains(&up), "{up} ms");
    });
    let mut never = function(Product::Trn1);
    never.firmware_late_ns = u64::MAX / 4;
    let (devices, refusals) = bring_up(vec![never]);
    assert!(devices.is_empty());
    assert_eq!(refusals[0].0, Errno::ENODEV);
    assert!(refusals[0].1.contains("60000 ms"), "{}", refusals[0].1);
}

#[test]
fn refusals_say_what_is_wrong() {
    let with = |fault: &str| {
        let mut function = function(Product::Trn1);
        function.fault(fault).unwrap();
        bring_up(vec![function]).1.remove(0)
    };
    let cases = [
        ("bar-unassigned", "D6", "assigned no address"),
        ("bad-device-id=0x7065", "D4", "1d0f:7065"),
        ("all-ones", "D9", "all-ones"),
    ];
    for (fault, rung, words) in cases {
        let (errno, text) = with(fault);
        assert_eq!(errno, Errno::ENODEV, "{fault}");
        assert!(text.contains(rung) && text.contains(words), "{fault}: {text}");
    }
}

#[test]
fn dev_e38_an_emulator_of_v4_is_never_reset() {
    let v4 = later().with(|setup| setup.function.revision = 0xf0).into_iter().skip(1);
    for setup in v4 {
        setup.run(async |bench| {
            assert_eq!(bench.report().device_resets, 0);
            assert_eq!(bench.device.hal().cores(), 1);
        });
    }
}

#[test]
fn dev_e37_the_simulator_has_a_reset_doorbell_of_its_own() {
    let simulators = later().with(|setup| {
        setup.function.revision = 0xff;
        setup.function.bar4 = Bar4::Size(4 << 30);
    });
    simulators.run(async |bench| {
        assert!(bench.now().as_nanos() >= 2_000_000_000, "one look takes 2 s");
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().await.unwrap();
    });
}

#[test]
fn st_e21_dev_e36_firmware_that_stays_busy() {
    let stuck = |fault: &str| {
        let mut function = function(Product::Trn1);
        function.fault(fault).unwrap();
        bring_up(vec![function]).0[0].1
    };
    assert_eq!(stuck("reset-stuck=500ms times=1"), DeviceState::Ready);
    assert_eq!(stuck("reset-stuck=1100ms times=1"), DeviceState::Invalid);
}

#[test]
fn st_e19_st_e20_lost_and_ignored_triggers() {
    every().fault("lost-trigger=1").run(async |bench| {
        let up = bench.now().as_nanos() / 1_000_000;
        assert!((30_000..30_250).contains(&up), "{up} ms");
    });
    let products =
        [(Product::Trn1, 120), (Product::Inf2, 120), (Product::Trn2, 480), (Product::Trn3, 480)];
    for (product, seconds) in products {
        let mut function = function(product);
        function.fault("never-ack").unwrap();
        let machine = Machine::builder().function(function).build().unwrap();
        machine
            .run(async {
                let driver = Driver::start(machine.clone());
                driver.settled().await;
                assert_eq!(driver.devices()[0].state(), DeviceState::Invalid);
                let took = machine.now().as_nanos() / 1_000_000;
                assert!((seconds * 1000..seconds * 1000 + 200).contains(&took), "{took} ms");
            })
            .unwrap();
        machine.shut_down();
    }
}

#[test]
fn no_reset_mode_leaves_the_hardware_alone() {
    every().with(|setup| setup.config.no_reset = true).run(async |bench| {
        assert_eq!(bench.report().device_resets, 0);
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().await.unwrap();
        bench.client.reset(axon_ports::CoreMap(1)).unwrap().await.unwrap();
        source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().await.unwrap();
    });
}

#[test]
fn st_e62_st_d52_a_reset_without_work_takes_what_the_device_takes() {
    every().run(async |bench| {
        let start = bench.now();
        bench.client.reset(axon_ports::CoreMap::DEVICE).unwrap().await.unwrap();
        assert!(bench.now().since(start) <= Duration::from_millis(50));
    });
}
