//! Making queues: what is written, what is refused, who may have what.

use axon::{Placement, Producer, QueueKind, QueueSpec, WhenFull};
use axon_model::{NotificationBlock, Product};
use axon_platform::{Errno, Platform};

use crate::bench::{Queues, drain, next, spec, trn1, trn2, unmanaged};

const DEVICE: Placement = Placement::Device { channel: 0, region: 0 };

#[test]
fn nq_e01_three_writes_arm_a_queue() {
    unmanaged(Product::Trn1).run(async |bench| {
        let queue = bench.queue(spec(0x4000)).await;
        let address = queue.info().unwrap().address.0;
        assert_eq!(address >> 44, 1, "the bus address carries bit 44");
        let expected = [
            (0x3053_51a4, (address >> 32) as u32),
            (0x3053_51a0, address as u32),
            (0x3053_51a8, 0x4000),
        ];
        assert_eq!(bench.writes(), expected);
        assert_eq!(axon::hal::notification_queue_id(QueueKind::Notify as u8, 4), 20);
    });
}

#[test]
fn nq_e02_nq_e06_traces_and_topsps_of_v2() {
    unmanaged(Product::Trn1).run(async |bench| {
        let trace = QueueSpec { kind: QueueKind::TraceDma, index: 3, ..QueueSpec::new(1, 0, 4096) };
        let _trace = bench.queue(trace).await;
        let offsets = |writes: Vec<(u64, u32)>| writes.into_iter().map(|w| w.0).collect::<Vec<_>>();
        assert_eq!(offsets(bench.writes()), [0x30b1_6104, 0x30b1_6100, 0x30b1_6108]);
        let producer = Producer::TopSp(5);
        let topsp = QueueSpec { producer, kind: QueueKind::Error, ..QueueSpec::new(0, 2, 4096) };
        let _topsp = bench.queue(topsp).await;
        assert_eq!(offsets(bench.writes()), [0x30f4_4154, 0x30f4_4150, 0x30f4_4158]);
    });
}

#[test]
fn nq_e03_nq_e04_nq_e05_nq_e07_queues_of_v3_and_v4() {
    for product in [Product::Trn2, Product::Trn3] {
        unmanaged(product).run(async |bench| {
            let core = QueueSpec { kind: QueueKind::Error, ..QueueSpec::new(5, 2, 4096) };
            let core = bench.queue(core).await;
            let address = core.info().unwrap().address.0;
            let expected =
                [(0x4618_1154, 0x4000), (0x4618_1150, address as u32), (0x4618_1158, 0x1000)];
            assert_eq!((bench.writes(), address >> 32), (expected.to_vec(), 0x4000));
            let trace =
                QueueSpec { kind: QueueKind::TraceDma, index: 15, ..QueueSpec::new(7, 0, 4096) };
            let _trace = bench.queue(trace).await;
            assert_eq!(bench.writes()[1].0, 0xb5f4_1100);
            let producer = Producer::TopSp(9);
            let _topsp = bench.queue(QueueSpec { producer, ..QueueSpec::new(0, 1, 4096) }).await;
            assert_eq!(bench.writes()[1].0, 0x46a4_0128);
            bench.control("post nc5 2 count=2");
            bench.control("post nc7.e15 0 count=3");
            bench.control("post topsp9 1 count=4");
            let written = |block, queue| bench.state_of(block, queue).written;
            assert_eq!(written(NotificationBlock::Core(5), 2), 2);
            assert_eq!(written(NotificationBlock::Engine(127), 0), 3);
            assert_eq!(written(NotificationBlock::TopSp(9), 1), 4);
        });
    }
}

#[test]
fn nq_e08_nq_e09_nq_e10_nq_e11_nq_e12_nq_e13_what_cannot_be_is_refused_untouched() {
    let queue = |producer, kind, index| QueueSpec { producer, kind, index, ..spec(4096) };
    let device = |size| QueueSpec { placement: DEVICE, ..spec(size) };
    let core = Producer::Core;
    for (setup, specs) in [
        (
            trn1(),
            vec![
                spec(0x3000),
                spec(0),
                spec(8),
                device(0x8000_0000),
                device(0x2800),
                queue(core(2), QueueKind::Notify, 4),
                queue(Producer::TopSp(6), QueueKind::Notify, 4),
                queue(core(0x100), QueueKind::Notify, 4),
                queue(core(0), QueueKind::Trace, 16),
                queue(core(0), QueueKind::Notify, 0x104),
                queue(core(0), QueueKind::TraceDma, 16),
                QueueSpec { placement: Placement::Device { channel: 2, region: 0 }, ..spec(4096) },
            ],
        ),
        (
            trn2(),
            vec![
                queue(core(8), QueueKind::Notify, 4),
                queue(Producer::TopSp(16), QueueKind::Notify, 4),
            ],
        ),
    ] {
        setup.run(async |bench| {
            let before = bench.device.memory_totals();
            for spec in specs {
                let refused = bench.client.notifications(spec).await.err().unwrap();
                assert_eq!(refused.errno(), Errno::EINVAL, "{spec:?}: {refused}");
                assert_eq!(bench.device.memory_totals(), before, "{spec:?}");
                assert_eq!(bench.writes(), [], "{spec:?}");
            }
            assert_eq!(bench.device.notification_counters().armed, 0);
        });
    }
}

#[test]
fn nq_e15_the_same_queue_again_is_the_same_queue() {
    for placement in [Placement::Host, DEVICE] {
        trn1().run(async |bench| {
            let spec = QueueSpec { placement, ..spec(4096) };
            let first = bench.queue(spec).await;
            bench.writes();
            let mut second = bench.queue(spec).await;
            assert_eq!(bench.writes(), []);
            let (a, b) = (first.info().unwrap(), second.info().unwrap());
            assert_eq!((a.handle, a.address), (b.handle, b.address));
            // It stays as long as one of its handles.
            drop(first);
            bench.pause(std::time::Duration::from_millis(20)).await;
            bench.control("post nc0 4 sequence=9");
            assert_eq!(next(&mut second).await, Ok(9));
            second.close().await;
            assert!(!bench.state(0, 4).armed);
        });
    }
}

#[test]
fn nq_e16_nq_d09_another_ring_is_not_the_same_queue() {
    trn1().run(async |bench| {
        let queue = bench.queue(spec(0x4000)).await;
        let other = bench.device.open().await.unwrap();
        for wish in [
            spec(0x8000),
            spec(0x2000),
            QueueSpec { placement: DEVICE, ..spec(0x4000) },
            QueueSpec { when_full: WhenFull::Drop, ..spec(0x4000) },
        ] {
            let refused = bench.client.notifications(wish).await.err().unwrap();
            assert_eq!(refused.errno(), Errno::EEXIST, "{wish:?}");
        }
        for replace in [false, true] {
            let wish = QueueSpec { replace, ..spec(0x4000) };
            let refused = other.notifications(wish).await.err().unwrap();
            assert_eq!(refused.errno(), Errno::EBUSY);
        }
        assert_eq!(queue.info().unwrap().spec.size, 0x4000);
        assert!(bench.state(0, 4).armed);
    });
}

#[test]
fn nq_e17_nq_d06_nq_d08_a_ring_is_replaced_behind_its_end() {
    for (seed, post) in (0..2).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut setup = unmanaged(Product::Trn1);
        setup.seed = seed;
        setup.run(async |bench| {
            let mut queue = bench.queue(spec(0x4000)).await;
            let old = queue.info().unwrap();
            bench.writes();
            if post {
                // Records come all the time, also while the ring is replaced.
                bench.control("post nc0 4 count=400 burst=2 every=100us");
            }
            let before = bench.machine.now();
            queue.resize(0x8000).await.unwrap();
            assert!((bench.machine.now() - before).as_micros() >= 1000, "it drained");
            let new = queue.info().unwrap();
            let q = 0x3053_51a0;
            let expected = [
                (q + 8, 0),
                (q + 4, 0),
                (q, 0),
                (q + 4, (new.address.0 >> 32) as u32),
                (q, new.address.0 as u32),
                (q + 8, 0x8000),
            ];
            assert_eq!(bench.writes(), expected);
            assert_ne!(old.address, new.address, "the old memory was there until the end");
            bench.pause(std::time::Duration::from_millis(100)).await;
            let gone = bench.client.by_handle(old.handle).is_err() || old.handle == new.handle;
            assert!(gone, "the old memory is free");
        });
    }
}

#[test]
fn nq_e18_without_memory_the_old_ring_goes_on() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(0x4000)).await;
        bench.control("post nc0 4 count=2 sequence=1");
        bench.writes();
        let refused = queue.resize(0x4000_0000).await.err().unwrap();
        assert_eq!(refused.errno(), Errno::ENOMEM, "{refused}");
        assert_eq!(bench.writes(), []);
        bench.control("post nc0 4 sequence=3");
        assert_eq!(drain(&mut queue), [1, 2, 3]);
    });
}

#[test]
fn nq_e19_nq_d05_one_owner_for_each_hardware_queue() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        for kind in [QueueKind::Event, QueueKind::Trace, QueueKind::Throttle] {
            let refused = bench.client.notifications(QueueSpec { kind, ..spec(4096) }).await;
            assert_eq!(refused.err().unwrap().errno(), Errno::EBUSY);
        }
        // Another position, another block, are other queues.
        let _five =
            bench.queue(QueueSpec { kind: QueueKind::Event, ..QueueSpec::new(0, 5, 4096) }).await;
        let trace = QueueSpec { kind: QueueKind::TraceDma, ..spec(4096) };
        let _trace = bench.queue(trace).await;
        bench.control("post nc0 4 sequence=1");
        assert_eq!(drain(&mut queue), [1]);
        // It may be replaced by another type of the same client.
        let wish = QueueSpec { kind: QueueKind::Event, replace: true, ..spec(4096) };
        let event = bench.queue(wish).await;
        assert_eq!(event.info().unwrap().spec.kind, QueueKind::Event);
        assert_eq!(queue.info().unwrap().spec.kind, QueueKind::Event, "it is the same queue");
    });
}

#[test]
fn a_managed_block_is_brought_up_once() {
    trn1().run(async |bench| {
        let _four = bench.queue(spec(4096)).await;
        let offsets: Vec<u64> = bench.writes().into_iter().map(|w| w.0 - 0x3053_5000).collect();
        let bring_up =
            [0x1a4, 0x1a0, 0x1a8, 0x28, 0xbc, 0xb4, 0x30, 0x34, 0x08, 0x0c, 0x10, 0x1ac, 0x14];
        assert_eq!(offsets, bring_up);
        let _five = bench.queue(QueueSpec::new(0, 5, 4096)).await;
        assert_eq!(bench.writes().len(), 6);
        let _topsp = bench.queue(QueueSpec { producer: Producer::TopSp(0), ..spec(4096) }).await;
        assert_eq!(bench.writes().len(), 13);
    });
}

#[test]
fn a_ring_is_clean_whatever_lay_there_before() {
    for placement in [Placement::Host, DEVICE] {
        trn1().run(async |bench| {
            let spec = QueueSpec { placement, ..spec(4096) };
            for round in 0..3u64 {
                let mut queue = bench.queue(spec).await;
                // Both phases stand in the ring when it goes.
                bench.control(&format!("post nc0 4 count=200 sequence={}", round * 1000));
                for expected in 0..200 {
                    assert_eq!(next(&mut queue).await, Ok(round * 1000 + expected));
                }
                bench.control(&format!("post nc0 4 count=100 sequence={}", round * 1000 + 200));
                for expected in 200..300 {
                    assert_eq!(next(&mut queue).await, Ok(round * 1000 + expected));
                }
                queue.close().await;
            }
        });
    }
}

#[test]
fn every_queue_of_a_device_at_once() {
    trn2().run(async |bench| {
        let mut queues = Vec::new();
        for core in 0..8 {
            for index in 0..10 {
                queues.push(bench.queue(QueueSpec::new(core, index, 4096)).await);
            }
            for index in 0..16 {
                let kind = QueueKind::TraceDma;
                queues.push(
                    bench.queue(QueueSpec { kind, ..QueueSpec::new(core, index, 4096) }).await,
                );
            }
        }
        for topsp in 0..16 {
            let producer = Producer::TopSp(topsp);
            for index in 0..10 {
                queues.push(
                    bench.queue(QueueSpec { producer, ..QueueSpec::new(0, index, 4096) }).await,
                );
            }
        }
        assert_eq!(bench.device.notification_counters().armed, 368);
        bench.control("post topsp15 9 sequence=5");
        assert_eq!(next(queues.last_mut().unwrap()).await, Ok(5));
        let before = bench.machine.now();
        drop(bench.client);
        while bench.device.notification_counters().armed != 0 {
            bench.machine.sleep(std::time::Duration::from_micros(100)).await;
        }
        let took = bench.machine.now() - before;
        assert!(took.as_millis() < 30, "one drain for all of them: {took:?}");
    });
}
