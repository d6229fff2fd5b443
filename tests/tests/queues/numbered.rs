//! Copies with wait handles.

use std::time::Duration;

use axon_platform::Errno;

use crate::rig::{core, errno};
use axon_tests::bench::{Bench, bytes, every, later, v2};

const BATCH: u64 = 133_169_152;

#[test]
fn dma_e06_dma_d06_the_largest_copy_with_a_handle() {
    later().run(async |bench| {
        let (a, b) = (bench.hbm(BATCH + 4096).await, bench.hbm(BATCH + 4096).await);
        let copies = bench.client.async_copies(core(0));
        let part = |buffer: &axon::DeviceBuffer<_>, len| buffer.span(..len).map(drop);
        part(&a, BATCH).unwrap();
        let handle = copies.submit(-1, a.span(..BATCH).unwrap(), b.span(..BATCH).unwrap()).await;
        assert_eq!(handle.unwrap(), 1);
        copies.wait(1).await.unwrap();
        let rung = bench.doorbells().len();
        let longer =
            copies.submit(-1, a.span(..BATCH + 1).unwrap(), b.span(..BATCH + 1).unwrap()).await;
        assert_eq!(errno(longer), Errno::EINVAL);
        assert_eq!(bench.doorbells().len(), rung, "nothing was started");
    });
}

#[test]
fn dma_e08_dma_e09_handles_that_are_none() {
    v2().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        for pwait in [-2, 3, i32::MIN, i32::MAX] {
            let refused = copies.submit(pwait, host.span(..).unwrap(), hbm.span(..).unwrap()).await;
            assert_eq!(errno(refused), Errno::EINVAL, "{pwait}");
        }
        for handle in [-1, 0, 3, 1, 2, i32::MIN] {
            assert_eq!(errno(copies.wait(handle).await), Errno::EINVAL, "{handle}");
        }
        for pwait in [1, 2] {
            let refused = copies.submit(pwait, host.span(..).unwrap(), hbm.span(..).unwrap()).await;
            assert_eq!(errno(refused), Errno::EINVAL, "nothing is in flight");
        }
        let elsewhere = bench.client.async_copies(core(1));
        let refused = elsewhere.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap()).await;
        assert_eq!(errno(refused), Errno::EINVAL, "another core's ring");
        assert!(bench.doorbells().is_empty());
        let first = copies.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap()).await;
        assert_eq!(first.unwrap(), 1, "both contexts were idle");
        copies.wait(1).await.unwrap();
    });
}

#[test]
fn dma_e10_a_handle_is_waited_for_once() {
    v2().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        copies.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap()).await.unwrap();
        copies.wait(1).await.unwrap();
        assert_eq!(errno(copies.wait(1).await), Errno::EINVAL);
    });
}

#[test]
fn dma_e12_dma_d05_dma_d07_a_handle_is_its_clients_own() {
    v2().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        copies.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap()).await.unwrap();
        let stranger = bench.device.open().await.unwrap();
        assert_eq!(errno(stranger.async_copies(core(0)).wait(1).await), Errno::EINVAL);
        // The ring is that of the handle, whatever core is asked.
        assert_eq!(errno(bench.client.async_copies(core(1)).wait(1).await), Errno::EINVAL);
        copies.wait(1).await.unwrap();
    });
}

async fn read_back(bench: &Bench, hbm: &axon::DeviceBuffer<axon_hosted::Machine>) -> Vec<u8> {
    let back = bench.host(hbm.size()).await;
    hbm.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
    bytes(&back)
}

#[test]
fn dma_e13_a_copy_between_submit_and_wait_and_example_c() {
    later().run(async |bench| {
        let (x, y) = (bench.pattern(128 << 10, 1).await, bench.pattern(4096, 2).await);
        let (to_x, to_y, z) =
            (bench.hbm(128 << 10).await, bench.hbm(4096).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        let spans = || (x.span(..).unwrap(), to_x.span(..).unwrap());
        let (from, to) = spans();
        assert_eq!(copies.submit(-1, from, to).await.unwrap(), 1);
        y.span(..).unwrap().copy_to(z.span(..).unwrap()).unwrap().await.unwrap();
        let second = copies.submit(1, y.span(..).unwrap(), to_y.span(..).unwrap()).await.unwrap();
        assert_eq!(second, 2);
        assert_eq!(errno(copies.wait(1).await), Errno::EINVAL, "waited for by the second");
        let (from, to) = spans();
        assert_eq!(copies.submit(2, from, to).await.unwrap(), 1, "a third takes the first's place");
        copies.wait(1).await.unwrap();
        assert_eq!(copies.submit(0, y.span(..).unwrap(), z.span(..).unwrap()).await.unwrap(), 0);
        assert_eq!(bench.doorbell_values(0), [3, 3, 2, 2, 2, 2, 3, 3, 2, 2]);
        assert_eq!(read_back(&bench, &to_x).await, bytes(&x));
        assert_eq!(read_back(&bench, &to_y).await, bytes(&y));
        assert_eq!(read_back(&bench, &z).await, bytes(&y));
        let tail = bench.device.queue_status(128, 0).unwrap().tx;
        assert_eq!(tail.head, tail.tail);
    });
}

#[test]
fn dma_d04_a_failed_wait_leaves_nothing_running() {
    v2().run(async |bench| {
        let (host, hbm, other) =
            (bench.pattern(4096, 1).await, bench.hbm(4096).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        bench.control("fault drop-marker=1");
        copies.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap()).await.unwrap();
        let failed = copies.submit(1, host.span(..).unwrap(), other.span(..).unwrap()).await;
        assert_eq!(errno(failed), Errno::ETIMEDOUT);
        assert_eq!(errno(copies.wait(2).await), Errno::EINVAL, "the new one has ended too");
        assert_eq!(errno(copies.wait(1).await), Errno::EINVAL);
        copies.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap()).await.unwrap();
        copies.wait(1).await.unwrap();
    });
}

#[test]
fn dma_d05_a_copy_in_flight_is_waited_for_and_not_overwritten() {
    v2().run(async |bench| {
        let (a, b) = (bench.pattern(4096, 1).await, bench.pattern(4096, 2).await);
        let (to_a, to_b) = (bench.hbm(4096).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        copies.submit(-1, a.span(..).unwrap(), to_a.span(..).unwrap()).await.unwrap();
        let again = copies.submit(-1, b.span(..).unwrap(), to_b.span(..).unwrap()).await.unwrap();
        assert_eq!(again, 1);
        copies.wait(1).await.unwrap();
        assert_eq!(errno(copies.wait(1).await), Errno::EINVAL);
        assert_eq!(read_back(&bench, &to_a).await, bytes(&a));
        assert_eq!(read_back(&bench, &to_b).await, bytes(&b));
    });
}

#[test]
fn dma_d08_one_ring_for_both_forms() {
    // Device memory of core 1 to device memory of core 0: both forms use the destination's ring.
    v2().run(async |bench| {
        let (from, to) = (bench.hbm_of(1, 4096).await, bench.hbm_of(0, 4096).await);
        from.span(..).unwrap().copy_to(to.span(..).unwrap()).unwrap().await.unwrap();
        let copies = bench.client.async_copies(core(0));
        copies.submit(-1, from.span(..).unwrap(), to.span(..).unwrap()).await.unwrap();
        copies.wait(1).await.unwrap();
        assert!(bench.doorbells().iter().all(|rung| rung.engine == 32));
    });
}

#[test]
fn a_result_outlives_a_reset_until_it_is_collected_once() {
    later().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        bench.control("fault drop-marker=1");
        copies.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap()).await.unwrap();
        bench.client.reset(axon_ports::CoreMap::DEVICE).unwrap().await.unwrap();
        let result = copies.wait(1).await.unwrap_err().errno();
        assert!(matches!(result, Errno::ECANCELED | Errno::ETIMEDOUT), "{result}");
        assert_eq!(errno(copies.wait(1).await), Errno::EINVAL);
    });
}

#[test]
fn a_copy_that_ends_as_it_is_staged_keeps_its_result() {
    every().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 9).await, bench.hbm(4096).await);
        let copies = bench.client.async_copies(core(0));
        // The ring takes nothing in a reset, so the copy is staged later, by a poll.
        let reset = bench.client.reset(axon_ports::CoreMap::DEVICE).unwrap();
        bench.pause(Duration::from_micros(1)).await;
        let submit = copies.submit(-1, host.span(..).unwrap(), hbm.span(..).unwrap());
        let (handle, reset) = embassy_futures::join::join(submit, reset).await;
        reset.unwrap();
        copies.wait(handle.unwrap()).await.unwrap();
        let mut found = vec![0; 4096];
        hbm.read(0, &mut found).await.unwrap();
        assert_eq!(found, bytes(&host));
    });
}
