//! Copies that do not end as they should, without a reset.

use std::time::Duration;

use axon::Error;
use axon_neuron::dma::Stop;
use axon_platform::Errno;

use axon_tests::bench::{Bench, bytes, every, later, v2};

async fn copy(bench: &Bench) -> Result<(), Error> {
    let (source, target) = (bench.pattern(4096, 9).await, bench.hbm(4096).await);
    source.span(..)?.copy_to(target.span(..)?)?.await
}

fn errno(result: Result<(), Error>) -> Errno {
    result.unwrap_err().errno()
}

fn micros(bench: &Bench, since: axon_platform::Instant) -> u128 {
    bench.now().since(since).as_micros()
}

#[test]
fn dma_e14_dma_d03_udma_d03_a_dropped_marker_is_a_timeout_and_the_ring_goes_on() {
    for (setups, earliest, latest) in [(v2(), 39_901, 41_000), (later(), 79_901, 81_000)] {
        setups.fault("drop-marker=1").run(async |bench| {
            let start = bench.now();
            let failed = copy(&bench).await.unwrap_err();
            assert_eq!(failed.errno(), Errno::ETIMEDOUT, "{failed}");
            let waited = micros(&bench, start);
            assert!((earliest..=latest).contains(&waited), "{waited} us");
            copy(&bench).await.unwrap();
            let counters = bench.device.counters();
            assert_eq!((counters.timeouts, counters.quarantined), (1, 1));
        });
    }
}

#[test]
fn dma_e15_a_late_marker_ends_the_quarantine_and_nothing_else() {
    every().fault("late-marker=100ms times=1").run(async |bench| {
        assert_eq!(errno(copy(&bench).await), Errno::ETIMEDOUT);
        assert_eq!(bench.device.counters().quarantined, 1);
        let (source, target) = (bench.pattern(4096, 2).await, bench.hbm(4096).await);
        source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().await.unwrap();
        let back = bench.host(4096).await;
        target.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
        assert_eq!(bytes(&back), bytes(&source));
        bench.pause(Duration::from_millis(200)).await;
        assert_eq!(bench.device.counters().quarantined, 0);
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn a_late_marker_is_seen_beside_traffic_that_never_ends() {
    every().fault("late-marker=100ms times=1").run(async |bench| {
        assert_eq!(errno(copy(&bench).await), Errno::ETIMEDOUT);
        bench.machine.with_model(0, |model| model.control("fault slow=1ms")).unwrap().unwrap();
        let source = bench.pattern(4096, 2).await;
        let targets = [bench.hbm_of(0, 4096).await, bench.hbm_of(1, 4096).await];
        let started = |core: usize| {
            let target = targets[core].span(..).unwrap();
            source.span(..).unwrap().copy_to(target).unwrap().start()
        };
        // Two rings, half a copy apart, so that one of them is at work at any time.
        let mut first = started(0);
        bench.pause(Duration::from_micros(500)).await;
        let mut second = started(1);
        for _ in 0..100 {
            first.await.unwrap();
            first = started(0);
            second.await.unwrap();
            second = started(1);
        }
        assert_eq!(bench.device.counters().quarantined, 0);
        first.await.unwrap();
        second.await.unwrap();
    });
}

#[test]
fn a_wrong_marker_value_is_no_marker() {
    every().fault("wrong-marker").run(async |bench| {
        assert_eq!(errno(copy(&bench).await), Errno::ETIMEDOUT);
        copy(&bench).await.unwrap();
    });
}

#[test]
fn udma_e21_udma_d04_dma_e46_an_abort_names_engine_queue_and_cause() {
    for setup in every().fault("abort-descriptor=a8") {
        let machine = setup.machine();
        let failed = machine.run(async {
            let driver = axon::Driver::with_config(machine.clone(), setup.config);
            driver.settled().await;
            let device = driver.devices().remove(0);
            let client = device.open().await.unwrap();
            let bench = Bench { machine: machine.clone(), device, client };
            let start = bench.now();
            let (source, target) = (bench.pattern(4096, 9).await, bench.hbm(4096).await);
            let part = source.span(..).unwrap();
            let failed = part.copy_to(target.span(..).unwrap()).unwrap().await.unwrap_err();
            assert_eq!(failed.errno(), Errno::EIO);
            assert!(micros(&bench, start) < 20_000, "seen before the deadline");
            let doorbells = bench.doorbells().len();
            assert_eq!(errno(copy(&bench).await), Errno::EIO, "at once");
            assert_eq!(bench.doorbells().len(), doorbells);

            // A reset of the core covers the engine on V2 only; one of the device always does.
            let cores = axon_ports::CoreMap(1);
            bench.client.reset(cores).unwrap().await.unwrap();
            if !bench.is_v2() {
                assert_eq!(errno(copy(&bench).await), Errno::EIO);
                assert!(bench.client.in_flight_bytes() > 0);
            }
            bench.client.reset(axon_ports::CoreMap::DEVICE).unwrap().await.unwrap();
            copy(&bench).await.unwrap();
            assert_eq!(bench.client.in_flight_bytes(), 0);
            (failed, bench.copy_engine().1)
        });
        let (failed, engine) = failed.unwrap();
        let text = failed.to_string();
        assert!(
            text.contains(&format!("engine{engine} "))
                && text.contains("queue0")
                && text.contains("A.8"),
            "{text}"
        );
        machine.shut_down();
    }
}

/// How far the hardware came, by the error of a copy of 8 blocks of 64 KiB behind a small one.
async fn stop_of(bench: &Bench, fault: &str) -> (Stop, String) {
    copy(bench).await.unwrap();
    let (source, target) = (bench.pattern(8 << 16, 9).await, bench.hbm(8 << 16).await);
    bench.control(fault);
    let part = source.span(..).unwrap();
    let failed = part.copy_to(target.span(..).unwrap()).unwrap().await.unwrap_err();
    let text = failed.to_string();
    match failed {
        Error::Device(axon_neuron::Error::DmaAborted { stop, .. }) => (stop, text),
        Error::Timeout(axon_neuron::Error::DmaTimeout { stop, .. }) => (stop, text),
        other => panic!("{other}"),
    }
}

#[test]
fn udma_d04_an_abort_names_the_descriptor() {
    for (fault, descriptor) in [("a8 after=5", 5), ("b1 after=3", 3), ("a2 after=8", 8)] {
        every().run(async |bench| {
            let fault = format!("fault abort-descriptor={fault}");
            let (stop, text) = stop_of(&bench, &fault).await;
            let slot = 2 + descriptor;
            assert_eq!(stop, Stop::At { descriptor, slot, is_logged: true }, "{text}");
            let words = format!("stopped at descriptor {descriptor} ({slot} of the ring)");
            assert!(text.contains(&words), "{text}");
        });
    }
}

#[test]
fn a_timeout_names_the_descriptor_or_the_missing_marker() {
    every().run(async |bench| {
        let (stop, text) = stop_of(&bench, "fault drop-marker=1").await;
        assert_eq!(stop, Stop::Executed, "{text}");
        assert!(text.contains("the marker is missing"), "{text}");
    });
    every().run(async |bench| {
        let fault = format!("fault hang-engine={} times=1", bench.copy_engine().1);
        let (stop, text) = stop_of(&bench, &fault).await;
        assert_eq!(stop, Stop::At { descriptor: 0, slot: 2, is_logged: false }, "{text}");
        assert!(text.contains("at or behind descriptor 0 (2 of the ring)"), "{text}");
    });
}

#[test]
fn dev_e45_a_device_that_is_gone_ends_every_wait() {
    every().fault("drop-marker=1").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 9).await, bench.hbm(4096).await);
        let copy_1 = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        bench.control("fault all-ones");
        assert_eq!(errno(copy_1.await), Errno::EIO);
        assert_eq!(bench.device.state(), axon_ports::reset::DeviceState::Invalid);
        let reads = bench.report().register_reads;
        let second = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap();
        assert_eq!(errno(second.await), Errno::EIO);
        assert_eq!(bench.device.serial_number().unwrap_err().errno(), Errno::EIO);
        assert!(bench.client.in_flight_bytes() > 0, "pinned until bus mastering is off");
        assert_eq!(bench.report().register_reads, reads, "no further access");
    });
}
