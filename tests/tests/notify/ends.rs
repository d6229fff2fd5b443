//! How queues end: by their owner, with a client, before a reset, with the device.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use axon::ports::{Category, CoreMap};
use axon::{Error, Placement, Producer, QueueKind, QueueSpec, WhenFull};
use axon_model::NotificationBlock;
use axon_neuron::DeviceConfig;
use axon_platform::{Errno, Platform};
use embassy_futures::join::join;

use crate::bench::{Queues, drain, next, spec, trn1, trn2};

/// Register writes that end a queue at `q`.
fn halts(q: u64) -> [(u64, u32); 3] {
    [(q + 8, 0), (q + 4, 0), (q, 0)]
}

#[test]
fn nq_e23_nothing_is_written_once_a_queue_is_off() {
    for seed in 0..4 {
        let mut setup = trn1();
        setup.seed = seed;
        setup.run(async |bench| {
            let mut queue =
                bench.queue(QueueSpec { when_full: WhenFull::Drop, ..spec(4096) }).await;
            bench.control("post nc0 4 count=2000 every=1us");
            bench.pause(Duration::from_micros(100 + seed * 7)).await;
            let seen = drain(&mut queue).len() as u64;
            queue.close().await;
            let off = bench.state(0, 4);
            assert!(!off.armed && off.written >= seen);
            bench.pause(Duration::from_millis(3)).await;
            let after = bench.state(0, 4);
            assert_eq!((after.written, after.posted), (off.written, 2000));
        });
    }
}

#[test]
fn nq_e24_nq_d07_nq_d11_the_queues_of_a_client_end_with_it() {
    trn1().run(async |bench| {
        let client = bench.device.open().await.unwrap();
        let producer = Producer::TopSp(1);
        let first = client.notifications(spec(4096)).await.unwrap();
        let second = QueueSpec { producer, kind: QueueKind::Error, ..spec(4096) };
        let mut second = client.notifications(second).await.unwrap();
        bench.control("post nc0 4 count=100");
        bench.control("post topsp1 4 count=100");
        let handle = second.handle().unwrap();
        // A ring is its owner's alone: others may not even look.
        for refused in [
            bench.client.by_handle(handle).err().unwrap(),
            bench.client.free(handle).await.err().unwrap(),
            bench.client.within(second.info().unwrap().address, 16).await.err().unwrap(),
            client.free(handle).await.err().unwrap(),
        ] {
            assert_eq!(refused.errno(), Errno::EPERM, "{refused}");
        }
        let rings = || async {
            let lines = bench.device.host_chunks().await.unwrap();
            lines.into_iter().filter(|line| line.category == Category::NOTIFICATION_HOST).count()
        };
        assert_eq!(rings().await, 2);
        bench.writes();
        let before = bench.machine.now();
        client.close().await;
        let took = bench.machine.now() - before;
        // One drain for both, and the 10 ms behind it.
        assert!((11_000..13_000).contains(&took.as_micros()), "{took:?}");
        let writes = bench.writes();
        for q in [0x3053_51a0, 0x30e4_41a0] {
            let of_queue: Vec<_> =
                writes.iter().copied().filter(|write| (q..q + 0xc).contains(&write.0)).collect();
            assert_eq!(of_queue, halts(q));
        }
        assert_eq!(rings().await, 0);
        assert!(!bench.state(0, 4).armed);
        assert!(!bench.state_of(NotificationBlock::TopSp(1), 4).armed);
        // What is left of them answers, and touches nothing.
        assert_eq!(first.info().err().unwrap().errno(), Errno::EACCES);
        assert_eq!(second.next().await.unwrap().err().unwrap().errno(), Errno::EACCES);
        assert!(second.next().await.is_none());
        drop((first, second));
        bench.pause(Duration::from_millis(20)).await;
        assert_eq!(bench.writes(), []);
        // Somebody else gets a ring that is clean.
        let mut queue = bench.queue(spec(4096)).await;
        assert_eq!(queue.try_next().unwrap(), None);
        let mut words = [0xff; 4096];
        queue.memory().unwrap().read(0, &mut words).unwrap();
        assert_eq!(words, [0; 4096]);
    });
}

#[test]
fn dropping_a_handle_ends_its_queue_behind_it() {
    trn1().run(async |bench| {
        let before = bench.device.memory_totals();
        let queue = bench.queue(spec(4096)).await;
        bench.writes();
        drop(queue);
        assert_eq!(bench.writes(), [], "a drop touches nothing");
        bench.pause(Duration::from_millis(5)).await;
        assert_eq!(bench.writes()[..3], halts(0x3053_51a0));
        assert_eq!(bench.device.memory_totals(), before);
        assert_eq!(bench.device.notification_counters().armed, 0);
    });
}

#[test]
fn a_queue_that_is_dropped_while_it_is_made_leaves_nothing() {
    for placement in [Placement::Host, Placement::Device { channel: 0, region: 0 }] {
        trn1().run(async |bench| {
            for polls in 0..40 {
                let before = bench.device.memory_totals();
                {
                    let wish = QueueSpec { placement, ..spec(8192) };
                    let mut making = pin!(bench.client.notifications(wish));
                    let mut left = polls;
                    poll_fn(|cx| {
                        if left == 0 || making.as_mut().poll(cx).is_ready() {
                            return Poll::Ready(());
                        }
                        left -= 1;
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    })
                    .await;
                }
                bench.pause(Duration::from_millis(20)).await;
                assert_eq!(bench.device.memory_totals(), before, "{polls} polls");
                assert!(!bench.state(0, 4).armed);
            }
            let mut queue = bench.queue(spec(4096)).await;
            bench.control("post nc0 4 sequence=1");
            assert_eq!(next(&mut queue).await, Ok(1));
        });
    }
}

#[test]
fn nq_e34_st_e29_a_reset_ends_the_queues_it_covers() {
    for setup in [trn1(), trn2()] {
        for map in [CoreMap(1), CoreMap::DEVICE] {
            setup.clone().run(async |bench| {
                let mut queue = bench.queue(spec(4096)).await;
                let mut other = bench.queue(QueueSpec::new(1, 4, 4096)).await;
                let producer = Producer::TopSp(0);
                let topsp = bench.queue(QueueSpec { producer, ..spec(4096) }).await;
                bench.writes();
                let ticket = bench.client.reset(map).unwrap();
                let (told, reset) = join(queue.next(), ticket).await;
                reset.unwrap();
                let told = told.unwrap().err().unwrap();
                assert_eq!(told.errno(), Errno::ECANCELED, "{told}");
                for refused in [
                    queue.try_next().err().unwrap(),
                    queue.info().err().unwrap(),
                    queue.peek().await.err().unwrap(),
                    queue.next().await.unwrap().err().unwrap(),
                    topsp.info().err().unwrap(),
                    queue.resize(8192).await.err().unwrap(),
                ] {
                    assert_eq!(refused.errno(), Errno::ESTALE, "{refused}");
                    assert!(matches!(refused, Error::Stale(_)));
                }
                assert!(queue.next().await.is_none(), "the stream is over");
                // Off before firmware was asked, in the order that ends a queue.
                let writes = bench.writes();
                let trigger = writes.iter().position(|w| w.0 & 0xfff == 0x800 && w.1 == 1).unwrap();
                let off =
                    writes.iter().position(|w| w.0 == halts(bench_queue(&bench))[0].0).unwrap();
                assert!(off < trigger, "{off} {trigger}");
                // A core that is not covered goes on.
                let lives = !map.is_device();
                assert_eq!(other.info().is_ok(), lives);
                if lives {
                    bench.control("post nc1 4 sequence=3");
                    assert_eq!(next(&mut other).await, Ok(3));
                }
                // Its place is free for another one.
                drop((queue, topsp));
                let mut queue = bench.queue(spec(4096)).await;
                bench.control("post nc0 4 count=300 sequence=1");
                for expected in 1..=300 {
                    assert_eq!(next(&mut queue).await, Ok(expected));
                }
            });
        }
    }
}

fn bench_queue(bench: &crate::bench::Bench) -> u64 {
    match bench.device.hal().cores() {
        2 => 0x3053_51a0,
        _ => 0x0600_11a0,
    }
}

#[test]
fn nq_e34_memory_is_kept_until_the_reset_has_succeeded() {
    for faults in [&["stuck-tail"][..], &["stuck-tail", "reset-stuck times=1"][..]] {
        trn2().run(async |bench| {
            let queue = bench.queue(spec(1 << 20)).await;
            bench.control("post nc0 4 count=3");
            let before = bench.device.memory_totals();
            faults.iter().for_each(|fault| drop(bench.control(&format!("fault {fault}"))));
            let reset = bench.client.reset(CoreMap(1)).unwrap();
            let drained = async {
                bench.pause(Duration::from_millis(12)).await;
                // The pointer never went back: halted, not drained, kept.
                assert_eq!(bench.device.memory_totals().host, before.host);
            };
            let (result, ()) = join(reset, drained).await;
            assert_eq!(result.is_ok(), faults.len() == 1);
            let failed = faults.len() == 2;
            assert_eq!(bench.device.memory_totals().host == before.host, failed);
            drop(queue);
            if failed {
                bench.pause(Duration::from_secs(1)).await;
                assert_eq!(bench.device.memory_totals().host, before.host, "time is no proof");
                bench.control("fault clear");
                bench.reset().await;
            }
            assert!(bench.device.memory_totals().host < before.host);
        });
    }
}

#[test]
fn what_does_not_drain_is_kept_until_a_reset_covers_it() {
    trn2().run(async |bench| {
        let before = bench.device.memory_totals();
        let queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 count=3");
        bench.control("fault stuck-tail");
        let started = bench.machine.now();
        queue.close().await;
        let took = (bench.machine.now() - started).as_millis();
        assert!((10..12).contains(&took), "{took} ms");
        bench.control("fault clear");
        let counters = bench.device.notification_counters();
        assert_eq!((counters.armed, counters.quarantined), (0, 1));
        assert_eq!(bench.device.memory_totals().chunks, before.chunks + 1);
        // The hardware queue itself may be used.
        let mut again = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 sequence=5");
        assert_eq!(next(&mut again).await, Ok(5));
        again.close().await;
        // Another core's reset proves nothing.
        bench.client.reset(CoreMap(0b10)).unwrap().await.unwrap();
        assert_eq!(bench.device.notification_counters().quarantined, 1);
        bench.client.reset(CoreMap(0b01)).unwrap().await.unwrap();
        assert_eq!(bench.device.notification_counters().quarantined, 0);
        assert_eq!(bench.device.memory_totals(), before);
    });
}

#[test]
fn nq_e35_nq_d18_only_cores_that_are_there_are_visited_and_they_drain_together() {
    let mut setup = trn1();
    setup.function.revision = axon_model::REVISION_EMULATOR;
    setup.config = DeviceConfig { budget_multiplier: Some(1), ..setup.config };
    setup.run(async |bench| {
        let refused = bench.client.notifications(QueueSpec::new(1, 4, 4096)).await.err().unwrap();
        assert_eq!(refused.errno(), Errno::EINVAL);
        let _queue = bench.queue(spec(4096)).await;
        bench.writes();
        bench.reset().await;
        let blocks = bench.writes().into_iter().filter(|write| {
            (0x30c3_5000..0x30c3_6000).contains(&write.0)
                || (0x30b0_0000..0x30b7_0000).contains(&write.0)
        });
        assert_eq!(
            blocks.filter(|write| write.0 & 0xfff >= 0x100 && write.0 & 0xf000 != 0).count(),
            0
        );
    });
    trn2().run(async |bench| {
        // One core or eight: the drain is the same.
        let mut took = Vec::new();
        for cores in [1, 8] {
            let mut queues = Vec::new();
            for core in 0..cores {
                queues.push(bench.queue(QueueSpec::new(core, 4, 4096)).await);
            }
            let before = bench.machine.now();
            bench.reset().await;
            took.push((bench.machine.now() - before).as_micros());
        }
        assert!(took[1] - took[0] < 500, "{took:?} us");
    });
}

#[test]
fn a_reset_without_queues_does_not_wait_for_any() {
    let took = |queue: bool| {
        trn1().run(async |bench| {
            let _queue = if queue { Some(bench.queue(spec(4096)).await) } else { None };
            let before = bench.machine.now();
            bench.reset().await;
            (bench.machine.now() - before).as_micros()
        })
    };
    let (without, with) = (took(false), took(true));
    assert!((900..1300).contains(&(with - without)), "{without} us, {with} us");
}

#[test]
fn a_queue_that_is_made_meets_a_reset_in_every_order() {
    trn2().run(async |bench| {
        let mut outcomes = [0; 3];
        for delay in 0..60 {
            let placement = Placement::Device { channel: 0, region: 0 };
            let wish = QueueSpec { placement, ..spec(1 << 16) };
            let reset = async {
                bench.pause(Duration::from_micros(delay / 2)).await;
                bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
            };
            let (made, ()) = join(bench.client.notifications(wish), reset).await;
            // Made before: it ended. Made behind: it lives. In between: it was not made.
            let outcome = match made.and_then(|queue| queue.info()) {
                Ok(_) => 0,
                Err(Error::Stale(_)) => 1,
                Err(Error::Cancelled(_)) => 2,
                Err(other) => panic!("{other}"),
            };
            outcomes[outcome] += 1;
            assert_eq!(bench.state(0, 4).armed, outcome == 0);
            bench.pause(Duration::from_millis(20)).await;
        }
        assert!(outcomes[1] > 0 && outcomes[2] > 0, "{outcomes:?}");
    });
}

#[test]
fn a_function_that_is_pulled_out_tells_whoever_waits() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        let pull = async {
            bench.pause(Duration::from_millis(5)).await;
            bench.control("fault all-ones");
        };
        let (told, ()) = join(queue.next(), pull).await;
        let told = told.unwrap().err().unwrap();
        assert!(matches!(told, Error::DeviceGone), "{told}");
        assert!(queue.next().await.is_none());
        assert!(matches!(queue.info(), Err(Error::DeviceGone)));
        let held = bench.device.memory_totals().host;
        queue.close().await;
        bench.pause(Duration::from_millis(50)).await;
        assert_eq!(
            bench.device.memory_totals().host,
            held,
            "nothing proves that it writes no more"
        );
    });
}

#[test]
fn a_waiting_reader_learns_of_another_ring() {
    trn1().run(async |bench| {
        let mut reader = bench.queue(spec(4096)).await;
        let mut owner = bench.queue(spec(4096)).await;
        let resize = async {
            bench.pause(Duration::from_millis(1)).await;
            owner.resize(8192).await.unwrap();
        };
        let (told, ()) = join(reader.next(), resize).await;
        assert_eq!(told.unwrap().err().unwrap().errno(), Errno::ECANCELED);
        bench.control("post nc0 4 sequence=4");
        assert_eq!(next(&mut reader).await, Ok(4), "and goes on with it");
    });
}
