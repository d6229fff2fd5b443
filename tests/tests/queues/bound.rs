//! Queues bound to rings of a client: init, start, acknowledge, state, release.

use axon::{DmaQueue, EngineState, QueueInit, RingAlloc, RingOwner, Side};
use axon_platform::Errno;
use axon_ports::{AllocRequest, Category, Location};

use crate::rig::{Rings, errno, ring, row, writes};
use axon_tests::bench::{Setup, bytes, later, trn1, trn2, v2};

#[test]
fn a_bound_queue_copies_what_its_ring_says() {
    for setup in axon_tests::bench::every() {
        setup.run(async |bench| {
            let (source, target) = (bench.pattern(4096, 3).await, bench.host(4096).await);
            let rings = Rings::new(&bench.client, 64).await;
            rings.tx.stage(0, &[row(Side::Tx, source.device_addr(), 4096)]).await.unwrap();
            rings.rx.stage(0, &[row(Side::Rx, target.device_addr(), 4096)]).await.unwrap();
            let queue = bench.client.bind_queue(5, 3, &rings.tx, &rings.rx).await;
            let mut queue: DmaQueue<_> = queue.unwrap();
            assert_eq!(bench.device.queue_owner(5, 3).unwrap(), RingOwner::App(bench.client.id()));
            queue.start(1, 1).unwrap();
            assert_eq!(bytes(&target), bytes(&source));
            let status = queue.status().unwrap();
            assert_eq!((status.tx.length, status.tx.head, status.tx.tail), (64, 1, 1));
            assert_eq!((status.rx.sw_status, status.rx.head), (2, 1));
            queue.acknowledge(1).unwrap();
            assert_eq!(errno(queue.acknowledge(1)), Errno::EINVAL, "nothing is outstanding");
            queue.close().await.unwrap();
            assert_eq!(bench.device.queue_owner(5, 3).unwrap(), RingOwner::Free);
            assert_eq!(bench.device.queue_status(5, 3).unwrap().tx.length, 64, "the dummy ring");
            assert_ne!(bench.device.queue_status(5, 3).unwrap().tx.base.0 & 0xffff_f000, 0);
            assert_eq!(bench.client.in_flight_bytes(), 0);
            assert_eq!(errno(bench.client.queues().start(5, 3, 0, 1)), Errno::ENODEV);
        });
    }
}

#[test]
fn dma_e22_a_default_queue_is_the_drivers() {
    for (setup, engine) in [(trn1(), 32), (trn2(), 128)] {
        setup.run(async |bench| {
            let rings = Rings::new(&bench.client, 64).await;
            let before = writes(&bench);
            let queues = bench.client.queues();
            assert_eq!(errno(queues.init(&rings.init(engine, 0)).await), Errno::EALREADY);
            assert_eq!(errno(queues.start(engine, 0, 1, 1)), Errno::EALREADY);
            assert_eq!(errno(queues.acknowledge(engine, 0, 1)), Errno::EALREADY);
            assert_eq!(errno(queues.release(engine, 0).await), Errno::EALREADY);
            assert_eq!(writes(&bench), before);
        });
    }
}

/// A chunk that holds rings of any length.
async fn big_ring(bench: &axon_tests::bench::Bench, side: Side) -> u64 {
    let wishes = RingAlloc { hbm: axon_ports::HbmIndex::new(0), ..RingAlloc::new(side, 0xff_fff0) };
    let ring = bench.client.alloc_ring(wishes).await.unwrap();
    let handle = ring.handle();
    bench.client.retain(handle).await.unwrap();
    handle
}

#[test]
fn dma_e23_udma_e15_lengths_of_rings() {
    later().run(async |bench| {
        let (tx, rx) = (big_ring(&bench, Side::Tx).await, big_ring(&bench, Side::Rx).await);
        let queues = bench.client.queues();
        for (count, works) in [
            (16, false),
            (31, false),
            (32, true),
            (40, false),
            (48, true),
            (0xff_fff0, true),
            (0x100_0000, false),
        ] {
            let init = QueueInit { engine: 2, queue: 1, tx, rx, ..QueueInit::default() };
            let init = QueueInit { tx_count: count, rx_count: count, ..init };
            let before = writes(&bench);
            let bound = queues.init(&init).await;
            if works {
                bound.unwrap();
                assert_eq!(bench.device.queue_status(2, 1).unwrap().rx.length, count);
            } else {
                assert_eq!(errno(bound), Errno::EINVAL, "{count}");
                assert_eq!(writes(&bench), before, "{count}");
            }
        }
    });
}

#[test]
fn dma_e24_udma_d10_dma_d10_dma_d11_rings_that_cannot_be() {
    later().run(async |bench| {
        let rings = Rings::new(&bench.client, 256).await;
        let queues = bench.client.queues();
        let good = rings.init(2, 1);
        let foreign = bench.device.open().await.unwrap();
        let other = Rings::new(&foreign, 64).await;
        let plain = bench.host(4096).await;
        let before = writes(&bench);
        for (what, init, expected) in [
            ("engine", QueueInit { engine: 132, ..good }, Errno::EINVAL),
            ("queue", QueueInit { queue: 16, ..good }, Errno::EINVAL),
            ("completion ring", QueueInit { completion: rings.tx.handle(), ..good }, Errno::EINVAL),
            ("longer than its chunk", QueueInit { tx_count: 256 + 16, ..good }, Errno::EINVAL),
            ("rx longer", QueueInit { rx_count: 512, ..good }, Errno::EINVAL),
            ("no handle", QueueInit { tx: 0, ..good }, Errno::EINVAL),
            ("forged handle", QueueInit { rx: 99_999, ..good }, Errno::EINVAL),
            ("wide handle", QueueInit { rx: u64::MAX, ..good }, Errno::EINVAL),
            ("foreign ring", QueueInit { tx: other.tx.handle(), ..good }, Errno::EPERM),
            ("plain memory", QueueInit { tx: plain.handle(), ..good }, Errno::EINVAL),
            ("one ring for both", QueueInit { rx: rings.tx.handle(), ..good }, Errno::EBUSY),
        ] {
            assert_eq!(errno(queues.init(&init).await), expected, "{what}");
        }
        assert_eq!(writes(&bench), before, "no register was written");
        queues.init(&good).await.unwrap();
    });
}

#[test]
fn udma_d09_dma_d14_engines_that_are_not_there() {
    v2().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        let queues = bench.client.queues();
        assert_eq!(errno(queues.init(&rings.init(34, 0)).await), Errno::ENODEV);
        assert_eq!(errno(queues.start(34, 0, 1, 1)), Errno::ENODEV);
        assert_eq!(errno(queues.start(132, 0, 1, 1)), Errno::EINVAL);
        assert_eq!(errno(queues.start(0, 16, 1, 1)), Errno::EINVAL);
        assert_eq!(errno(queues.acknowledge(u32::MAX, u32::MAX, 1)), Errno::EINVAL);
        assert_eq!(errno(bench.device.queue_status(34, 0)), Errno::ENODEV);
        assert_eq!(errno(bench.device.queue_status(0, 16)), Errno::EINVAL);
        assert_eq!(errno(bench.device.queue_status(256, 0)), Errno::EINVAL, "no number is cut");
        assert_eq!(errno(bench.device.engine_status(34)), Errno::ENODEV);
        assert_eq!(errno(queues.copy_out(256 + 2, 1, 0, 0, 1).await), Errno::EINVAL);
        assert_eq!(errno(queues.start(3, 3, 1, 1)), Errno::ENODEV, "never bound");
    });
}

#[test]
fn dma_e25_dma_d12_a_batch_binds_all_or_none() {
    later().run(async |bench| {
        let queues = bench.client.queues();
        let mut held = Vec::new();
        let mut inits = Vec::new();
        for at in 0..257u32 {
            let rings = Rings::new(&bench.client, 32).await;
            inits.push(rings.init(at / 15, at % 15 + u32::from(at % 15 == 14)));
            held.push(rings);
        }
        let failed = queues.init_batch(&inits).await.unwrap_err();
        assert_eq!((failed.entry, failed.error.errno()), (None, Errno::E2BIG));
        let mut five = inits[..5].to_vec();
        five[3].tx_count = 40;
        let before = writes(&bench);
        let failed = queues.init_batch(&five).await.unwrap_err();
        assert_eq!((failed.entry, failed.error.errno()), (Some(3), Errno::EINVAL));
        assert!(failed.to_string().starts_with("entry 3: "), "{failed}");
        assert_eq!(writes(&bench), before);
        assert_eq!(errno(queues.start(inits[0].engine, inits[0].queue, 0, 1)), Errno::ENODEV);
        let mut twice = inits[..2].to_vec();
        (twice[1].engine, twice[1].queue) = (twice[0].engine, twice[0].queue);
        assert_eq!(queues.init_batch(&twice).await.unwrap_err().entry, Some(1));
        queues.init_batch(&[]).await.unwrap();
        queues.init_batch(&inits[..256]).await.unwrap();
        for init in &inits[..256] {
            assert_eq!(bench.device.queue_status(init.engine, init.queue).unwrap().tx.length, 32);
        }
        drop(held);
    });
}

#[test]
fn dma_e26_dma_d15_udma_d08_udma_e12_udma_e13_counts_of_a_start() {
    later().run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.host(4096).await);
        let rings = Rings::new(&bench.client, 64).await;
        let fill = |side, at| vec![row(side, at, 4); 64];
        rings.tx.stage(0, &fill(Side::Tx, source.device_addr())).await.unwrap();
        rings.rx.stage(0, &fill(Side::Rx, target.device_addr())).await.unwrap();
        let queues = bench.client.queues();
        queues.init(&rings.init(7, 2)).await.unwrap();
        let rung = bench.doorbells().len();
        for (tx, rx) in [(4, 0), (65, 64), (64, 65), (u32::MAX, u32::MAX), (0, 0)] {
            assert_eq!(errno(queues.start(7, 2, tx, rx)), Errno::EINVAL, "{tx} {rx}");
        }
        assert_eq!(bench.doorbells().len(), rung, "no doorbell was rung");
        queues.start(7, 2, 0, 4).unwrap();
        assert_eq!(bench.doorbell_values(rung), [4], "the receive side alone");
        queues.start(7, 2, 64, 60).unwrap();
        assert_eq!(bench.doorbell_values(rung), [4, 60, 64]);
        assert_eq!(bench.device.queue_status(7, 2).unwrap().tx.head, 0, "one lap");
    });
}

#[test]
fn a_start_over_slots_that_nobody_checked_is_refused() {
    later().run(async |bench| {
        let target = bench.host(4096).await;
        let rings = Rings::new(&bench.client, 64).await;
        let queues = bench.client.queues();
        queues.init(&rings.init(7, 2)).await.unwrap();
        assert_eq!(errno(queues.start(7, 2, 0, 1)), Errno::EINVAL);
        rings.rx.stage(0, &[row(Side::Rx, target.device_addr(), 4)]).await.unwrap();
        assert_eq!(errno(queues.start(7, 2, 0, 2)), Errno::EINVAL);
        queues.start(7, 2, 0, 1).unwrap();
    });
}

#[test]
fn dma_d13_dma_d16_queues_of_another_client() {
    later().run(async |bench| {
        let target = bench.host(4096).await;
        let rings = Rings::new(&bench.client, 48).await;
        rings.rx.stage(0, &[row(Side::Rx, target.device_addr(), 4)]).await.unwrap();
        let queues = bench.client.queues();
        queues.init(&rings.init(7, 2)).await.unwrap();
        let stranger = bench.device.open().await.unwrap();
        let other = Rings::new(&stranger, 64).await;
        let rung = bench.doorbells().len();
        let theirs = stranger.queues();
        assert_eq!(errno(theirs.init(&other.init(7, 2)).await), Errno::EBUSY);
        assert_eq!(errno(theirs.start(7, 2, 0, 1)), Errno::EPERM);
        assert_eq!(errno(theirs.acknowledge(7, 2, 1)), Errno::EPERM);
        assert_eq!(errno(theirs.release(7, 2).await), Errno::EPERM);
        assert_eq!(errno(theirs.copy_out(7, 2, 1, 0, 1).await), Errno::EPERM);
        let row = [row(Side::Rx, target.device_addr(), 4)];
        let stolen = theirs.copy_descriptors(rings.rx.handle(), 0, 1, &row).await;
        assert_eq!(errno(stolen), Errno::EPERM);
        assert_eq!(bench.doorbells().len(), rung);
        // 48 descriptors are no power of two: nothing to acknowledge with.
        queues.start(7, 2, 0, 1).unwrap();
        assert_eq!(errno(queues.acknowledge(7, 2, 0)), Errno::EINVAL);
    });
}

#[test]
fn udma_e16_a_ring_starts_at_a_multiple_of_256() {
    // Chunks start at pages, so no handle can name another base: the chunk itself is the check.
    later().run(async |bench| {
        for _ in 0..8 {
            let memory = ring(&bench.client, Side::Tx, 32).await;
            let view = bench.client.by_handle(memory.handle()).unwrap();
            assert!(view.facts().pa.0.is_multiple_of(256));
        }
    });
}

#[test]
fn dma_e45_dma_d18_udma_d14_udma_e26_states_of_an_engine() {
    later().run(async |bench| {
        let queues = bench.client.queues();
        assert_eq!(errno(queues.engine_set_state(5, 2)), Errno::EPERM, "not claimed");
        let claim = bench.client.claim(1, 0..=0).await.unwrap();
        for state in [1, 4, 5, u32::MAX] {
            assert_eq!(errno(queues.engine_set_state(5, state)), Errno::EINVAL, "{state}");
        }
        assert_eq!(errno(queues.engine_set_state(128, 2)), Errno::EPERM, "the driver's");
        assert_eq!(errno(queues.engine_set_state(132, 2)), Errno::EINVAL);
        assert_eq!(errno(queues.engine_set_state(16, 2)), Errno::EPERM, "another core's");
        queues.engine_init(5).unwrap();
        queues.engine_set_state(5, 2).unwrap();
        let status = bench.device.engine_status(5).unwrap();
        assert_eq!((status.revision, status.max_queues, status.queues), (4, 16, 16));
        assert_eq!((status.tx, status.rx), (EngineState::Idle, EngineState::Idle));

        let (source, target) = (bench.pattern(4096, 1).await, bench.host(4096).await);
        let rings = Rings::new(&bench.client, 64).await;
        rings.tx.stage(0, &[row(Side::Tx, source.device_addr(), 4096)]).await.unwrap();
        rings.rx.stage(0, &[row(Side::Rx, target.device_addr(), 4096)]).await.unwrap();
        queues.init(&rings.init(5, 0)).await.unwrap();
        queues.engine_set_state(5, 0).unwrap();
        queues.start(5, 0, 1, 1).unwrap();
        assert_ne!(bytes(&target), bytes(&source), "disabled");
        queues.engine_set_state(5, 2).unwrap();
        assert_eq!(bytes(&target), bytes(&source));
        queues.engine_set_state(5, 3).unwrap();
        let status = bench.device.engine_status(5).unwrap();
        assert_eq!((status.tx, status.rx), (EngineState::Abort, EngineState::Abort));
        assert_eq!(bench.device.queue_status(5, 0).unwrap().tx.sw_status, 3);
        drop(claim);
    });
}

#[test]
fn dma_d29_queue_14_belongs_to_sequencers_on_engines_of_cores_only() {
    v2().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        let queues = bench.client.queues();
        assert_eq!(errno(queues.init(&rings.init(0, 14)).await), Errno::EPERM, "not claimed");
        queues.init(&rings.init(32, 14)).await.unwrap();
        queues.release(32, 14).await.unwrap();
        let _claim = bench.client.claim(1, 0..=0).await.unwrap();
        queues.init(&rings.init(0, 14)).await.unwrap();
    });
}

#[test]
fn a_ring_by_hardware_needs_to_be_asked_for() {
    later().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        let queues = bench.client.queues();
        let init = QueueInit { tx: 0, tx_by_hardware: true, ..rings.init(5, 1) };
        queues.init(&init).await.unwrap();
        assert_eq!(bench.device.queue_status(5, 1).unwrap().tx.base.0, 0);
    });
}

#[test]
fn udma_d15_memory_of_a_ring_is_sealed() {
    later().run(async |bench| {
        let host = ring(&bench.client, Side::Tx, 64).await;
        let plain = bench.host(4096).await;
        for handle in [host.handle(), big_ring(&bench, Side::Rx).await] {
            let view = bench.client.by_handle(handle).unwrap();
            assert_eq!(errno(view.check_writable()), Errno::EPERM);
            assert_eq!(errno(view.write(0, &[1; 16]).await), Errno::EPERM);
            let fill = view.span_at(0, 16).unwrap().fill(1);
            assert_eq!(fill.err().unwrap().errno(), Errno::EPERM);
            let copy = plain.span(..16).unwrap().copy_to(view.span_at(0, 16).unwrap());
            assert_eq!(copy.err().unwrap().errno(), Errno::EPERM);
        }
        let request = AllocRequest {
            size: 4096,
            location: Location::Host,
            category: Category::DMA_RINGS_HOST,
            ..bench.client.request()
        };
        bench.client.alloc(request).await.unwrap();
        let wishes = axon::HostAlloc { category: request.category, ..axon::HostAlloc::new(4096) };
        let sealed = bench.client.alloc_host(wishes).await.unwrap();
        assert!(sealed.memory().is_none());
    });
}

#[test]
fn a_dropped_queue_is_parked_and_can_be_bound_again() {
    later().run(async |bench| {
        let rings = Rings::new(&bench.client, 64).await;
        for _ in 0..3 {
            let queue = bench.client.bind_queue(9, 0, &rings.tx, &rings.rx).await.unwrap();
            drop(queue);
            assert_eq!(bench.device.queue_owner(9, 0).unwrap(), RingOwner::Free);
        }
        // Its owner may bind a bound queue anew; nobody else may.
        let queues = bench.client.queues();
        queues.init(&rings.init(9, 0)).await.unwrap();
        queues.init(&rings.init(9, 0)).await.unwrap();
        assert_eq!(bench.client.in_flight_bytes(), 2 * 4096, "the rings themselves");
    });
}

#[test]
fn udma_d11_every_product_refuses_completion_rings() {
    for product in axon_tests::bench::PRODUCTS {
        Setup::of(product).run(async |bench| {
            let rings = Rings::new(&bench.client, 64).await;
            let init = QueueInit { completion: 1, ..rings.init(1, 1) };
            assert_eq!(errno(bench.client.queues().init(&init).await), Errno::EINVAL);
        });
    }
}
