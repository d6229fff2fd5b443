//! Defects of the Linux driver that no edge case of the specification shows.

use std::time::Duration;

use axon_platform::{Errno, Platform};
use axon_ports::reset::DeviceState;

use crate::rig::errno;
use axon_tests::bench::{bytes, every};

#[test]
fn udma_d18_nobody_waits_behind_a_copy_that_does_not_end() {
    every().run(async |bench| {
        let source = bench.pattern(4096, 1).await;
        let (late, other) = (bench.hbm_of(0, 4096).await, bench.hbm_of(1, 4096).await);
        bench.control("fault drop-marker=1");
        let start = bench.now();
        let stuck = source.span(..).unwrap().copy_to(late.span(..).unwrap()).unwrap().start();
        // Another ring, and the rest of the program, go on meanwhile.
        for _ in 0..10 {
            source.span(..).unwrap().copy_to(other.span(..).unwrap()).unwrap().await.unwrap();
        }
        assert!(bench.now().since(start) < Duration::from_millis(5));
        assert_eq!(errno(stuck.await), Errno::ETIMEDOUT);
    });
}

#[test]
fn dma_d21_a_reset_of_the_whole_device_initialises_dma_anew() {
    every().run(async |bench| {
        let axon_tests::bench::Bench { machine, device, client } = bench;
        client.close().await;
        device.reset().unwrap().await.unwrap();
        assert_eq!(device.settled().await, DeviceState::Ready);
        let client = device.open().await.unwrap();
        let bench = axon_tests::bench::Bench { machine, device, client };
        for core in 0..u32::from(bench.device.hal().cores()) {
            let (source, target) = (bench.pattern(4096, 1).await, bench.hbm_of(core, 4096).await);
            let back = bench.host(4096).await;
            source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().await.unwrap();
            target.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
            assert_eq!(bytes(&back), bytes(&source));
        }
    });
}

#[test]
fn dma_d24_no_sum_wraps() {
    every().run(async |bench| {
        let (source, target) = (bench.pattern(8192, 1).await, bench.hbm(8192).await);
        for (offset, len) in [
            (u64::MAX, 1),
            (u64::MAX - 4095, 4096),
            (1, u64::MAX),
            (8192, u64::MAX),
            (4096, 4097),
            (u64::MAX, u64::MAX),
        ] {
            for handle in [source.handle(), target.handle()] {
                let view = bench.client.by_handle(handle).unwrap();
                let refused = view.span_at(offset, len);
                assert_eq!(refused.err().unwrap().errno(), Errno::EINVAL, "{offset} {len}");
            }
        }
        assert!(bench.doorbells().is_empty());
    });
}

/// Rings of two cores end in whatever order the engines take: completion is by ring.
#[test]
fn rings_end_out_of_order_and_each_in_its_own() {
    for seed in 0..4 {
        every().seed(seed).run(async |bench| {
            let source = bench.pattern(1 << 20, 1).await;
            let (slow, fast) = (bench.hbm_of(0, 1 << 20).await, bench.hbm_of(1, 4096).await);
            bench.control("fault slow=3ms times=1");
            let mut first =
                source.span(..).unwrap().copy_to(slow.span(..).unwrap()).unwrap().start();
            bench.machine.sleep(Duration::from_micros(seed)).await;
            let small = source.span(..4096).unwrap().copy_to(fast.span(..).unwrap()).unwrap();
            small.await.unwrap();
            assert!(embassy_futures::poll_once(&mut first).is_pending());
            let behind = source.span(..4096).unwrap().copy_to(slow.span(..4096).unwrap());
            behind.unwrap().await.unwrap();
            assert!(embassy_futures::poll_once(&mut first).is_ready(), "it was staged before");
        });
    }
}
