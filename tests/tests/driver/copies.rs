//! Copies and fills that end well.

use std::time::Duration;

use axon_platform::{Errno, Platform};

use axon_tests::bench::{bytes, every, one_of_each_map};

#[test]
fn dma_a_4_kib_is_two_doorbells_and_no_register_read() {
    every().run(async |bench| {
        let (source, target, back) =
            (bench.pattern(4096, 1).await, bench.hbm(4096).await, bench.host(4096).await);
        let before = bench.report();
        let all = ..;
        source.span(all).unwrap().copy_to(target.span(all).unwrap()).unwrap().await.unwrap();
        let after = bench.report();
        assert_eq!(after.doorbells - before.doorbells, 2);
        assert_eq!(after.register_reads, before.register_reads);
        assert_eq!(after.register_writes - before.register_writes, 2);
        target.span(all).unwrap().copy_to(back.span(all).unwrap()).unwrap().await.unwrap();
        assert_eq!(bytes(&back), bytes(&source));
        let counters = bench.device.counters();
        assert_eq!((counters.doorbells, counters.register_reads), (4, 0));
        assert_eq!((counters.completed, counters.bytes), (2, 8192));
    });
}

#[test]
fn dma_e01_dma_d01_udma_d01_size_0_is_refused() {
    every().run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let nothing = || source.span(0..0);
        let copied = nothing().and_then(|span| span.copy_to(target.span(0..0)?));
        assert_eq!(copied.map(drop).unwrap_err().errno(), Errno::EINVAL);
        let filled = target.span(0..0).and_then(|span| span.fill(1));
        assert_eq!(filled.map(drop).unwrap_err().errno(), Errno::EINVAL);
        assert!(bench.doorbells().is_empty());
    });
}

#[test]
fn dma_e02_dma_e03_odd_sizes_and_places() {
    every().run(async |bench| {
        let size = 200_000;
        let source = bench.pattern(size, 3).await;
        let back = bench.host(size).await;
        let target = bench.hbm(size).await;
        let mut rung = 0;
        for (from, to, len, doorbell) in
            [(1, 3, 7, 2), (0, 0, 1, 2), (0, 0, 65_536, 2), (5, 9, 65_537, 3), (1, 0, 131_073, 4)]
        {
            target.span(..).unwrap().fill(0xee).unwrap().await.unwrap();
            rung = bench.doorbells().len().max(rung);
            let part = source.span(from..from + len).unwrap();
            part.copy_to(target.span(to..to + len).unwrap()).unwrap().await.unwrap();
            assert_eq!(bench.doorbell_values(rung), [doorbell, doorbell], "{len} bytes");
            target.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
            let (all, expected) = (bytes(&back), bytes(&source));
            let (to, from, len) = (to as usize, from as usize, len as usize);
            assert_eq!(all[to..to + len], expected[from..from + len]);
            assert!(all[..to].iter().chain(&all[to + len..size as usize]).all(|&b| b == 0xee));
        }
    });
}

#[test]
fn dma_e04_dma_e05_udma_e29_the_largest_batch_and_one_byte_more() {
    one_of_each_map().run(async |bench| {
        let batch = 133_169_152u64;
        let (source, target) = (bench.hbm(batch + 1).await, bench.hbm(batch + 1).await);
        for (len, doorbells) in [(batch, &[2033, 2033][..]), (batch + 1, &[2033, 2033, 2, 2])] {
            let rung = bench.doorbells().len();
            let part = source.span(..len).unwrap();
            part.copy_to(target.span(..len).unwrap()).unwrap().await.unwrap();
            assert_eq!(bench.doorbell_values(rung), doorbells);
        }
    });
}

#[test]
fn dma_e43_a_fill_is_two_batches() {
    every().run(async |bench| {
        let (target, back) = (bench.hbm(200_000).await, bench.host(200_000).await);
        target.span(..).unwrap().fill(0x5a).unwrap().await.unwrap();
        let size = target.size() as u32;
        let rest = (size - 65_536).div_ceil(65_536) + 1;
        assert_eq!(bench.doorbell_values(0), [2, 2, rest, rest]);
        target.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
        assert!(bytes(&back).iter().all(|&byte| byte == 0x5a));
    });
}

#[test]
fn dma_e48_seventy_copies_at_once_share_their_doorbells() {
    for seed in 0..3 {
        every().seed(seed).run(async |bench| {
            let size = 70 * 4096;
            let (source, target) = (bench.pattern(size, 5).await, bench.hbm(size).await);
            let mut copies = Vec::new();
            for k in 0..70 {
                let part = k * 4096..(k + 1) * 4096;
                let target = target.span(part.clone()).unwrap();
                copies.push(source.span(part).unwrap().copy_to(target).unwrap());
            }
            let mut copies: Vec<_> = copies.into_iter().map(Box::pin).collect();
            std::future::poll_fn(|cx| {
                copies.retain_mut(|copy| match copy.as_mut().poll(cx) {
                    std::task::Poll::Ready(result) => {
                        result.unwrap();
                        false
                    }
                    std::task::Poll::Pending => true,
                });
                if copies.is_empty() {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
            assert_eq!(bench.doorbell_values(0), [140, 140]);
            let back = bench.host(size).await;
            target.span(..).unwrap().copy_to(back.span(..).unwrap()).unwrap().await.unwrap();
            assert_eq!(bytes(&back), bytes(&source));
        });
    }
}

#[test]
fn a_started_copy_rings_at_once() {
    every().run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        assert_eq!(bench.doorbell_values(0), [2, 2]);
        copy.await.unwrap();
        assert_eq!(bench.doorbell_values(0), [2, 2]);
    });
}

#[test]
fn dma_e16_a_full_ring_takes_turns() {
    every().fault("slow=200us").run(async |bench| {
        let (source, target) = (bench.hbm(4096).await, bench.hbm(4096).await);
        let copy = || source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap();
        let mut started: Vec<_> = (0..256).map(|_| copy().start()).collect();
        let mut refused = copy();
        assert_eq!(refused.try_start().unwrap_err().errno(), Errno::EAGAIN);
        let staged = bench.device.counters().batches;
        assert_eq!(staged, 256, "never staged in part");
        assert!(embassy_futures::poll_once(&mut refused).is_pending());
        let waiting = refused.try_start().unwrap_err();
        assert_eq!(waiting.errno(), Errno::EAGAIN, "it has a place in the queue, no more");
        // Nobody has to come for the first ones to make room for these.
        for copy in [refused, copy(), copy()] {
            copy.await.unwrap();
        }
        for copy in started.drain(..) {
            copy.await.unwrap();
        }
        assert_eq!(bench.device.counters().completed, 259);
    });
}

#[test]
fn copies_that_wait_and_are_not_polled_hold_nobody_up() {
    every().fault("slow=200us").run(async |bench| {
        let (source, target) = (bench.hbm(4096).await, bench.hbm(4096).await);
        let copy = || source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap();
        let started: Vec<_> = (0..256).map(|_| copy().start()).collect();
        let (mut first, mut second, third) = (copy(), copy(), copy());
        assert!(embassy_futures::poll_once(&mut first).is_pending());
        assert!(embassy_futures::poll_once(&mut second).is_pending());
        third.await.unwrap();
        bench.pause(Duration::from_millis(1)).await;
        // The ring is idle: they are behind nobody any more.
        first.await.unwrap();
        second.await.unwrap();
        for copy in started {
            copy.await.unwrap();
        }
        assert_eq!(bench.device.counters().completed, 259);
    });
}

#[test]
fn a_dropped_copy_goes_on_and_keeps_its_memory() {
    every().fault("late-marker=5ms times=1").run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        let copy = source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().start();
        drop(copy);
        drop(source);
        bench.pause(Duration::from_millis(1)).await;
        assert_eq!(bench.client.in_flight_bytes(), 4096, "the source is pinned");
        bench.pause(Duration::from_millis(10)).await;
        assert_eq!(bench.client.in_flight_bytes(), 0);
        assert_eq!(bench.device.counters().completed, 1);
    });
}

#[test]
fn fills_of_two_bytes_take_turns_with_the_fill_buffer() {
    every().fault("late-marker=1ms").run(async |bench| {
        let (a, b) = (bench.hbm(4096).await, bench.hbm(4096).await);
        let (back_a, back_b) = (bench.host(4096).await, bench.host(4096).await);
        let mut first = Box::pin(a.span(..).unwrap().fill(1).unwrap());
        let mut second = Box::pin(b.span(..).unwrap().fill(2).unwrap());
        std::future::poll_fn(|cx| {
            assert!(first.as_mut().poll(cx).is_pending());
            assert!(second.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        assert_eq!(bench.device.counters().batches, 1, "the second waits");
        second.await.unwrap();
        first.await.unwrap();
        a.span(..).unwrap().copy_to(back_a.span(..).unwrap()).unwrap().await.unwrap();
        b.span(..).unwrap().copy_to(back_b.span(..).unwrap()).unwrap().await.unwrap();
        assert!(bytes(&back_a).iter().all(|&byte| byte == 1));
        assert!(bytes(&back_b).iter().all(|&byte| byte == 2));
    });
}

#[test]
fn an_idle_device_costs_nothing() {
    every().run(async |bench| {
        let (polls, reads) = (bench.machine.polls(), bench.report().register_reads);
        bench.machine.sleep(Duration::from_secs(3600)).await;
        assert!(bench.machine.polls() - polls < 8);
        assert_eq!(bench.report().register_reads, reads);
    });
}
