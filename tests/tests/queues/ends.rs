//! Queues at the end of their client, in a reset, with a device that is removed.

use std::time::Duration;

use axon::{Direction, HostRange, RingOwner, Side, ZeroCopyRequest};
use axon_platform::Errno;
use axon_ports::CoreMap;

use crate::rig::{Rings, core, errno, host_used, row, writes};
use axon_tests::bench::{later, trn2, v2};

#[test]
fn dma_e40_dma_d22_udma_d13_st_d24_queues_of_a_client_that_leaves_are_parked() {
    later().run(async |bench| {
        let leaving = bench.device.open().await.unwrap();
        leaving.queues().h2t_alloc(0, 2, 2).await.unwrap();
        let (app, service) = (Rings::new(&leaving, 256).await, Rings::new(&leaving, 128).await);
        leaving.queues().init(&app.init(5, 1)).await.unwrap();
        leaving.queues().init(&service.init(128, 4)).await.unwrap();
        drop((app, service));
        assert_eq!(bench.device.queue_status(5, 1).unwrap().tx.length, 256);
        leaving.close().await;
        for (engine, queue) in [(5, 1), (128, 2), (128, 4)] {
            let status = bench.device.queue_status(engine, queue).unwrap();
            assert_eq!((status.tx.length, status.rx.length), (64, 64), "{engine} {queue}");
            assert_eq!(status.tx.base, status.rx.base, "the dummy ring");
            assert_eq!(bench.device.queue_owner(engine, queue).unwrap(), RingOwner::Free);
        }
        assert_eq!(bench.client.queues().h2t_alloc(0, 14, 0).await.unwrap().copy, 0xfffc);
        assert_eq!(bench.device.memory_totals().draining, 0);
    });
}

#[test]
fn dma_e41_a_queue_of_sequencers_is_left_alone() {
    v2().run(async |bench| {
        let leaving = bench.device.open().await.unwrap();
        let claim = leaving.claim(1, 0..=0).await.unwrap();
        let rings = Rings::new(&leaving, 64).await;
        leaving.queues().init(&rings.init(0, 14)).await.unwrap();
        let before = writes(&bench);
        let base = bench.device.queue_status(0, 14).unwrap().tx.base;
        drop((rings, claim));
        leaving.close().await;
        assert_eq!(writes(&bench), before, "no register was written");
        assert_eq!(bench.device.queue_owner(0, 14).unwrap(), RingOwner::Free);
        assert_eq!(bench.device.queue_status(0, 14).unwrap().tx.base, base);
        assert_eq!(bench.device.memory_totals().draining, 2 * 4096, "its rings are kept");
        assert_eq!(bench.device.counters().quarantined, 1);
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        bench.pause(Duration::from_millis(1)).await;
        assert_eq!(bench.device.memory_totals().draining, 0);
    });
}

#[test]
fn st_e29_queues_from_before_a_reset_are_stale() {
    for setup in axon_tests::bench::every() {
        setup.run(async |bench| {
            let rings = Rings::new(&bench.client, 64).await;
            let target = bench.host(4096).await;
            rings.rx.stage(0, &[row(Side::Rx, target.device_addr(), 4)]).await.unwrap();
            let queue = bench.client.bind_queue(3, 2, &rings.tx, &rings.rx).await;
            let mut queue = queue.unwrap();
            let h2t = bench.client.h2t_queues(core(0), 1, 1).await.unwrap();
            let engine = h2t.engine().number();
            let q = h2t.copy_queue(0).unwrap().number();
            bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
            let rung = bench.doorbells().len();
            assert_eq!(errno(queue.start(0, 1)), Errno::ESTALE);
            assert_eq!(errno(queue.acknowledge(0)), Errno::ESTALE);
            assert_eq!(errno(h2t.copy_queue(0)), Errno::ESTALE);
            let owner = bench.device.queue_owner(engine, q).unwrap();
            assert_eq!(owner, RingOwner::Stale(bench.client.id()));
            assert_eq!(errno(bench.client.queues().h2t_free(0, 1 << q).await), Errno::ESTALE);
            drop((queue, h2t));
            assert_eq!(bench.doorbells().len(), rung);
            // What is stale can be taken anew, by anybody.
            let again = bench.device.open().await.unwrap();
            let fresh = Rings::new(&again, 64).await;
            again.queues().init(&fresh.init(3, 2)).await.unwrap();
            again.queues().h2t_alloc(0, 2, 0).await.unwrap();
        });
    }
}

#[test]
fn dma_d19_dma_d20_resets_with_claimed_queues_cost_no_memory() {
    later().run(async |bench| {
        let before = host_used(&bench).await;
        for _ in 0..20 {
            let queues = bench.client.h2t_queues(core(0), 3, 0).await.unwrap();
            bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
            drop(queues);
        }
        bench.pause(Duration::from_millis(5)).await;
        assert_eq!(host_used(&bench).await, before);
    });
}

#[test]
fn a_transfer_on_a_claimed_queue_ends_with_its_reset() {
    later().run(async |bench| {
        let queues = bench.client.h2t_queues(core(0), 1, 0).await.unwrap();
        let number = queues.copy_queue(0).unwrap().number() as i32;
        let (host, hbm) = (bench.pattern(4096, 3).await, bench.hbm(4096).await);
        bench.control("fault drop-marker=1");
        let piece = HostRange { handle: host.handle(), offset: 0, len: 4096 };
        let request = ZeroCopyRequest::single(Direction::ToDevice, number, hbm.handle(), 0, piece);
        let mut copy = Box::pin(bench.client.zero_copy(&request));
        assert!(embassy_futures::poll_once(copy.as_mut()).is_pending());
        bench.pause(Duration::from_micros(50)).await;
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        let ended = errno(copy.await);
        assert!(matches!(ended, Errno::ECANCELED | Errno::ETIMEDOUT), "{ended}");
        assert_eq!(errno(bench.client.zero_copy(&request).await), Errno::ESTALE);
        bench.pause(Duration::from_millis(5)).await;
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn a_ring_whose_transfer_never_ended_stays_until_a_reset() {
    later().run(async |bench| {
        let leaving = bench.device.open().await.unwrap();
        let before = host_used(&bench).await;
        let queues = leaving.h2t_queues(core(0), 1, 0).await.unwrap();
        let number = queues.copy_queue(0).unwrap().number();
        let host = leaving.alloc_host(axon::HostAlloc::new(4096)).await.unwrap();
        let hbm = leaving.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
        bench.control("fault drop-marker=1");
        let piece = HostRange { handle: host.handle(), offset: 0, len: 4096 };
        let request =
            ZeroCopyRequest::single(Direction::ToDevice, number as i32, hbm.handle(), 0, piece);
        assert_eq!(errno(leaving.zero_copy(&request).await), Errno::ETIMEDOUT);
        drop((queues, host, hbm));
        leaving.close().await;
        let owner = bench.device.queue_owner(128, number).unwrap();
        assert!(matches!(owner, RingOwner::Leaving(_)), "{owner:?}");
        assert_eq!(bench.client.queues().h2t_alloc(0, 1, 0).await.unwrap().copy, 0b1000);
        bench.client.queues().h2t_free(0, 0b1000).await.unwrap();
        assert!(host_used(&bench).await > before);
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        bench.pause(Duration::from_millis(5)).await;
        assert_eq!(bench.device.queue_owner(128, number).unwrap(), RingOwner::Free);
        assert_eq!(host_used(&bench).await, before);
        assert_eq!(bench.device.memory_totals().draining, 0);
    });
}

#[test]
fn st_e58_what_staged_descriptors_name_is_not_reused_while_the_engine_hangs() {
    for setup in axon_tests::bench::every() {
        setup.run(async |bench| {
            let before = bench.device.memory_totals();
            let leaving = bench.device.open().await.unwrap();
            let rings = Rings::new(&leaving, 64).await;
            let source = leaving.alloc_host(axon::HostAlloc::new(4096)).await.unwrap();
            let named = leaving.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
            let address = named.device_addr();
            rings.tx.stage(0, &[row(Side::Tx, source.device_addr(), 4096)]).await.unwrap();
            rings.rx.stage(0, &[row(Side::Rx, address, 4096)]).await.unwrap();
            let mut queue = leaving.bind_queue(5, 3, &rings.tx, &rings.rx).await.unwrap();
            bench.control("fault hang-engine=5");
            queue.start(1, 1).unwrap();
            leaving.free(named.handle()).await.unwrap();
            core::mem::forget((named, source, rings, queue));
            leaving.close().await;
            bench.pause(Duration::from_secs(5)).await;
            assert!(bench.device.memory_totals().draining >= 8192, "time is no proof");
            let mut others = Vec::new();
            for _ in 0..64 {
                others.push(bench.hbm(4096).await);
            }
            assert!(others.iter().all(|other| other.device_addr() != address), "handed out");
            bench.control("fault clear");
            bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
            drop(others);
            bench.pause(Duration::from_millis(5)).await;
            let after = bench.device.memory_totals();
            assert_eq!(after, before);
            assert_eq!(bench.hbm(4096).await.device_addr(), address, "and free again");
        });
    }
}

#[test]
fn a_device_that_is_removed_takes_its_queues_along() {
    later().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        let queue = bench.client.bind_queue(3, 2, &rings.tx, &rings.rx).await.unwrap();
        let queues = bench.client.h2t_queues(core(0), 2, 0).await.unwrap();
        bench.device.shut_down().await;
        assert_eq!(errno(queue.close().await), Errno::ENODEV);
        drop((queues, rings));
        assert_eq!(errno(bench.device.queue_status(3, 2)), Errno::ENODEV);
    });
}

/// With `AXON_LONG=1` all of it in one call; else the pieces at both ends and around 4 GiB, where a
/// length of 32 bits would wrap.
#[test]
fn dma_e42_dma_d09_a_bounce_copy_of_more_than_4_gib() {
    let whole = std::env::var_os("AXON_LONG").is_some();
    trn2().run(async |bench| {
        let size: u64 = (4 << 30) + 1;
        let hbm = bench.hbm(size).await;
        let places = [0, 1, (4 << 30) - 1, 4 << 30];
        if whole {
            hbm.fill(.., 0xff).unwrap().await.unwrap();
            let before = bench.device.counters().bytes;
            // Never touched, so it takes no memory.
            hbm.write(0, &vec![0; size as usize]).await.unwrap();
            assert_eq!(bench.device.counters().bytes - before, size);
        } else {
            for place in places {
                hbm.write(place, &[0x5a]).await.unwrap();
            }
        }
        for place in places {
            let mut found = [1; 1];
            hbm.read(place, &mut found).await.unwrap();
            assert_eq!(found, [if whole { 0 } else { 0x5a }], "{place:#x}");
        }
        let mut found = [1; 2];
        hbm.read(2, &mut found).await.unwrap();
        assert_eq!(found, [0; 2], "nothing went to size mod 4 GiB");
    });
}

#[test]
fn a_release_that_is_dropped_half_way_is_carried_on_without_its_caller() {
    for setup in axon_tests::bench::every() {
        setup.run(async |bench| {
            let rings = Rings::new(&bench.client, 64).await;
            let target = bench.host(4096).await;
            rings.tx.stage(0, &[row(Side::Tx, target.device_addr(), 4)]).await.unwrap();
            rings.rx.stage(0, &[row(Side::Rx, target.device_addr(), 4)]).await.unwrap();
            let mut queue = bench.client.bind_queue(5, 3, &rings.tx, &rings.rx).await.unwrap();
            bench.control("fault hang-engine=5");
            queue.start(1, 1).unwrap();
            let mut closing = Box::pin(queue.close());
            assert!(embassy_futures::poll_once(closing.as_mut()).is_pending());
            drop(closing);
            let leaving = RingOwner::Leaving(bench.client.id());
            assert_eq!(bench.device.queue_owner(5, 3).unwrap(), leaving);
            bench.pause(Duration::from_millis(20)).await;
            assert_eq!(bench.device.queue_owner(5, 3).unwrap(), RingOwner::Free);
            bench.client.queues().init(&rings.init(5, 3)).await.unwrap();
        });
    }
}

#[test]
fn a_queue_that_drains_is_not_forgotten_when_the_last_late_marker_is_seen() {
    for setup in axon_tests::bench::every() {
        setup.run(async |bench| {
            let rings = Rings::new(&bench.client, 64).await;
            let target = bench.host(4096).await;
            rings.tx.stage(0, &[row(Side::Tx, target.device_addr(), 4)]).await.unwrap();
            rings.rx.stage(0, &[row(Side::Rx, target.device_addr(), 4)]).await.unwrap();
            let mut queue = bench.client.bind_queue(5, 3, &rings.tx, &rings.rx).await.unwrap();
            let (from, to) = (bench.host(4096).await, bench.hbm(4096).await);
            bench.control("fault late-marker=1s times=1");
            let late = from.span(..).unwrap().copy_to(to.span(..).unwrap()).unwrap();
            let start = bench.now();
            assert_eq!(errno(late.await), Errno::ETIMEDOUT);
            bench.control("fault hang-engine=5");
            queue.start(1, 1).unwrap();
            // By now late markers are looked for every 100 ms only.
            let landed = Duration::from_millis(1001);
            bench.pause(landed - bench.now().since(start)).await;
            assert_eq!(bench.device.counters().quarantined, 1, "not seen yet");
            drop(queue);
            bench.pause(Duration::from_millis(50)).await;
            assert_eq!(bench.device.queue_owner(5, 3).unwrap(), RingOwner::Free);
            assert_eq!(bench.device.counters().quarantined, 1, "the queue in place of the batch");
            bench.control("fault clear");
        });
    }
}
