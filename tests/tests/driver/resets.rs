//! Resets, with and without copies in the middle.

use std::time::Duration;

use axon::Error;
use axon_platform::Errno;
use axon_ports::CoreMap;
use axon_ports::reset::DeviceState;

use axon_tests::bench::{Bench, bytes, every, later, v2};

fn errno(result: Result<(), Error>) -> Errno {
    result.unwrap_err().errno()
}

async fn copy_on(bench: &Bench, core: u32) -> Result<(), Error> {
    let (source, target) = (bench.pattern(4096, 4).await, bench.hbm_of(core, 4096).await);
    source.span(..)?.copy_to(target.span(..)?)?.await
}

#[test]
fn st_e16_st_e17_st_e18_what_firmware_is_told() {
    let writes = |bench: &Bench| -> Vec<(u64, u32)> {
        let trace = bench.report().register_trace;
        trace
            .iter()
            .filter_map(|r| Some((r.offset.checked_sub(bench.misc_ram())?, r.value)))
            .filter(|(offset, _)| *offset < 0x1000)
            .collect()
    };
    v2().run(async |bench| {
        bench.control("trace registers on");
        bench.client.reset(CoreMap(2)).unwrap().await.unwrap();
        assert_eq!(writes(&bench), [(0x1d8, 0x3802), (0x1ec, 2), (0x800, 1)]);
        bench.control("trace clear");
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        assert_eq!(writes(&bench), [(0x1ec, 1), (0x800, 1)]);
        assert_eq!(errno(bench.client.reset(CoreMap(4)).map(drop)), Errno::EINVAL);
    });
    later().with(|setup| setup.config.reset_top_dma = true).run(async |bench| {
        bench.control("trace registers on");
        bench.client.reset(CoreMap(3)).unwrap().await.unwrap();
        let expected = [(0x1d8, 0x0003_0303), (0x1d4, 1), (0x1ec, 2), (0x800, 1)];
        assert_eq!(writes(&bench), expected);
    });
}

#[test]
fn st_e19_a_lost_trigger_of_a_core_reset() {
    every().run(async |bench| {
        bench.control("fault lost-trigger=1");
        let start = bench.now();
        bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
        let took = bench.now().since(start).as_millis();
        assert!((10_000..10_250).contains(&took), "{took} ms");
    });
}

#[test]
fn st_e22_st_e23_what_waits_becomes_one_reset() {
    every().run(async |bench| {
        let tickets: Vec<_> = (0..u32::from(bench.device.hal().cores()))
            .map(|core| bench.client.reset(CoreMap(1 << core)).unwrap())
            .collect();
        for ticket in tickets {
            ticket.await.unwrap();
        }
        let report = bench.report();
        assert_eq!((report.core_resets, report.device_resets), (1, 1));
    });
}

#[test]
fn dma_e18_st_d29_v3_copies_caught_by_a_reset_are_cancelled() {
    later().budget(100).fault("drop-marker=1").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        let start = bench.now();
        let reset = bench.client.reset(CoreMap::DEVICE).unwrap();
        assert_eq!(errno(copy.await), Errno::ECANCELED);
        let waited = bench.now().since(start);
        assert!((1000..1020).contains(&waited.as_millis()), "{waited:?}");
        assert!(bench.client.in_flight_bytes() > 0, "pinned until the reset has succeeded");
        reset.await.unwrap();
        assert_eq!(bench.client.in_flight_bytes(), 0);
        copy_on(&bench, 0).await.unwrap();
        assert_eq!(bench.device.counters().cancelled, 1);
    });
}

#[test]
fn st_e28_dma_e17_v2_copies_caught_by_a_reset_are_issued_again() {
    v2().budget(100).fault("drop-marker=1").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        copy.await.unwrap();
        reset.await.unwrap();
        assert_eq!(bench.doorbell_values(0), [2, 2, 2, 2]);
        let back = bench.host(4096).await;
        target.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
        assert_eq!(bytes(&back), bytes(&source));
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn dma_e47_v2_a_copy_is_issued_again_at_most_three_times() {
    v2().fault("drop-marker=100").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        let reset = bench.client.reset(CoreMap::DEVICE).unwrap();
        assert_eq!(errno(copy.await), Errno::ECANCELED);
        reset.await.unwrap();
        assert_eq!(bench.device.counters().replays, 3);
        assert_eq!(bench.doorbell_values(2), [2; 6]);
        bench.control("fault clear");
        copy_on(&bench, 0).await.unwrap();
    });
}

#[test]
fn st_e28_a_marker_in_the_grace_is_in_time() {
    every().fault("late-marker=10ms times=1").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        copy.await.unwrap();
        reset.await.unwrap();
        assert_eq!(bench.device.counters().cancelled, 0);
    });
}

#[test]
fn st_e30_dma_e19_other_cores_go_on() {
    later().fault("late-marker=15ms times=1").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm_of(1, 4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        bench.control("trace registers on");
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        copy_on(&bench, 1).await.unwrap();
        copy.await.unwrap();
        reset.await.unwrap();
        let writes = bench.report().register_trace;
        let on_128 = |offset: u64| {
            writes.iter().filter(|record| record.offset == 0x0680_0000 + offset).count()
        };
        assert_eq!(on_128(0x310), 0, "the shared engine is not initialised");
        assert_eq!((on_128(0x10b0), on_128(0x20b0)), (1, 0), "queue 0 alone is programmed");
        assert_eq!(bench.device.counters().cancelled, 0);
    });
}

#[test]
fn dma_e20_a_whole_seng_initialises_its_engine_once() {
    later().run(async |bench| {
        bench.control("trace registers on");
        bench.client.reset(CoreMap(3)).unwrap().await.unwrap();
        let writes = bench.report().register_trace;
        let on_128 = |offset: u64| {
            writes.iter().filter(|record| record.offset == 0x0680_0000 + offset).count()
        };
        assert_eq!((on_128(0x310), on_128(0x10b0), on_128(0x20b0)), (1, 1, 1));
    });
}

#[test]
fn st_e59_memory_on_an_engine_that_is_not_covered_stays_in_quarantine() {
    later().budget(100).fault("drop-marker=1").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        assert_eq!(errno(copy.await), Errno::ECANCELED);
        reset.await.unwrap();
        assert_eq!(bench.client.in_flight_bytes(), 8192);
        copy_on(&bench, 0).await.unwrap();
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn dma_e21_resets_cost_no_memory() {
    every().with(|setup| setup.function.reset_ns = 1_000_000).run(async |bench| {
        use axon_platform::Platform;
        let before = bench.machine.free_dma_bytes();
        for _ in 0..100 {
            bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
        }
        assert_eq!(bench.machine.free_dma_bytes(), before);
        copy_on(&bench, 0).await.unwrap();
    });
}

#[test]
fn dma_e50_dma_d30_st_d32_a_failed_device_reset_refuses_copies_until_one_succeeds() {
    every().run(async |bench| {
        bench.control("fault reset-stuck times=1");
        assert_eq!(
            errno(bench.client.reset(CoreMap::DEVICE).unwrap().await.map_err(Into::into)),
            Errno::ETIMEDOUT
        );
        assert_eq!(bench.device.state(), DeviceState::Invalid);
        let doorbells = bench.doorbells().len();
        assert_eq!(errno(copy_on(&bench, 0).await), Errno::EIO);
        assert_eq!(bench.doorbells().len(), doorbells);
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        assert_eq!(bench.device.state(), DeviceState::Ready);
        copy_on(&bench, 0).await.unwrap();
    });
}

#[test]
fn a_failed_core_reset_takes_its_cores_down_only() {
    every().run(async |bench| {
        bench.control("fault refuse-core-reset times=1000");
        assert_eq!(
            errno(bench.client.reset(CoreMap(1)).unwrap().await.map_err(Into::into)),
            Errno::ETIMEDOUT
        );
        assert_eq!(bench.device.state(), DeviceState::Ready);
        assert_eq!(errno(copy_on(&bench, 0).await), Errno::EIO);
        copy_on(&bench, 1).await.unwrap();
        bench.control("fault clear");
        bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
        copy_on(&bench, 0).await.unwrap();
    });
}

#[test]
fn st_e61_copies_wait_for_the_end_of_a_reset() {
    every().run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let reset = bench.client.reset(CoreMap::DEVICE).unwrap();
        bench.pause(Duration::from_millis(2)).await;
        let mut copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap();
        assert_eq!(copy.try_start().unwrap_err().errno(), Errno::EAGAIN);
        copy.await.unwrap();
        reset.await.unwrap();
    });
}

#[test]
fn copies_and_resets_in_any_order() {
    for seed in 0..2 {
        every().seed(seed).with(|setup| setup.function.reset_ns = 2_000_000).run(async |bench| {
            let size = 64 * 4096;
            let (source, target) = (bench.pattern(size, seed).await, bench.hbm(size).await);
            let mut resets = Vec::new();
            for round in 0..64u64 {
                if round % 16 == 7 {
                    let map = if round % 32 == 7 { CoreMap(1) } else { CoreMap::DEVICE };
                    resets.push(bench.client.reset(map).unwrap());
                }
                let part = round * 4096..(round + 1) * 4096;
                let target = target.span(part.clone()).unwrap();
                source.span(part).unwrap().copy_to(target).unwrap().await.unwrap();
            }
            for reset in resets {
                reset.await.unwrap();
            }
            let back = bench.host(size).await;
            target.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
            assert_eq!(bytes(&back), bytes(&source));
            assert_eq!(bench.device.counters().quarantined, 0);
        });
    }
}
