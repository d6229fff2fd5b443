//! Records on their way: the phase walk, wraps, full rings, losses, and what all of it costs.

use std::time::Duration;

use axon::{Error, QueueKind, QueueSpec, Subtype, WhenFull};
use axon_platform::Errno;

use crate::bench::{Queues, drain, next, spec, trn1, trn2};

fn dropping(size: u64) -> QueueSpec {
    QueueSpec { when_full: WhenFull::Drop, ..spec(size) }
}

#[test]
fn nq_e20_nq_d17_three_records_then_none() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 count=3 sequence=5 line=0x1234 tag=3 subtype=6 custom=7");
        let info = queue.info().unwrap();
        assert_eq!((info.head, info.tail, info.phase), (0, 0x30, true));
        let first = queue.next().await.unwrap().unwrap();
        assert_eq!((first.line(), first.tag(), first.timestamp()), (0x1234, 3, 5));
        let Some(Subtype::Custom(custom)) = first.subtype() else { panic!("{first:?}") };
        assert_eq!(custom.name(), "tensor-complete");
        assert_eq!(drain(&mut queue), [6, 7]);
        assert_eq!(queue.info().unwrap().head, 0x30);
        assert_eq!(bench.state(0, 4).head, 0x30, "the hardware knows");
    });
}

#[test]
fn nq_e21_the_ring_wraps_and_the_phase_with_it() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 count=256 sequence=0");
        assert_eq!(drain(&mut queue), (0..256).collect::<Vec<_>>());
        let info = queue.info().unwrap();
        assert_eq!((info.head, info.phase), (0, false));
        bench.control("post nc0 4 sequence=256");
        let word = queue.memory().unwrap().load32(0).unwrap();
        assert_eq!(word >> 31, 0, "record 0 is written again with phase 0");
        assert_eq!(next(&mut queue).await, Ok(256));
    });
}

#[test]
fn nq_e22_a_loss_is_told_once_and_the_queue_starts_anew() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(dropping(4096)).await;
        bench.control("post nc0 4 count=300 sequence=0");
        let mut seen = Vec::new();
        let lost = loop {
            match queue.next().await.unwrap() {
                Ok(notification) => seen.push(notification.timestamp()),
                Err(error) => break error,
            }
        };
        assert_eq!(seen, (0..255).collect::<Vec<_>>(), "all that came before the loss");
        let Error::NotificationsLost(inner) = lost else { panic!("{lost}") };
        assert_eq!(inner.to_string(), "notifications of queue 4 of nc0 were lost");
        assert_eq!(lost.errno(), Errno::EOVERFLOW);
        // Exactly what the model says is missing.
        let state = bench.state(0, 4);
        assert_eq!((state.posted, state.written, state.dropped), (300, 255, 45));
        bench.pause(Duration::from_millis(1)).await;
        bench.control("post nc0 4 count=3 sequence=1000");
        for expected in 1000..1003 {
            assert_eq!(next(&mut queue).await, Ok(expected));
        }
        assert_eq!(queue.try_next().unwrap(), None);
        let counters = queue.info().unwrap().counters;
        assert_eq!((counters.overflows, counters.restarts, counters.consumed), (1, 1, 258));
        assert_eq!(bench.device.notification_counters().overflows, 1);
    });
}

#[test]
fn a_loss_behind_records_that_are_read_in_one_go_is_told_by_the_next_call() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(dropping(4096)).await;
        bench.control("post nc0 4 count=300 sequence=0");
        let mut batch = [None; 300];
        assert_eq!(queue.read(&mut batch), Ok(255));
        assert_eq!(batch[254].unwrap().timestamp(), 254);
        bench.pause(Duration::from_millis(5)).await;
        bench.control("post nc0 4 count=3 sequence=1000");
        let told = queue.read(&mut batch);
        assert!(matches!(told, Err(Error::NotificationsLost(_))), "{told:?}");
        bench.pause(Duration::from_millis(5)).await;
        bench.control("post nc0 4 count=3 sequence=2000");
        assert_eq!(queue.read(&mut batch), Ok(3));
        assert_eq!(batch[0].unwrap().timestamp(), 2000);
        assert_eq!(queue.info().unwrap().counters.overflows, 1);
    });
}

#[test]
fn a_loss_while_the_reader_is_slow_is_told_where_it_was() {
    for (share, seed) in [(1, 0), (7, 1), (63, 2), (64, 3), (65, 4), (200, 5)] {
        let mut setup = trn1();
        setup.seed = seed;
        setup.run(async |bench| {
            let mut queue = bench.queue(dropping(4096)).await;
            let (mut posted, mut expected, mut losses, mut lost) = (0u64, 0u64, 0, 0);
            for _ in 0..600 {
                bench.control(&format!("post nc0 4 count=100 sequence={posted}"));
                posted += 100;
                for _ in 0..share {
                    match queue.try_next() {
                        Ok(Some(notification)) => {
                            assert_eq!(notification.timestamp(), expected, "no gap without a word");
                            expected += 1;
                        }
                        Ok(None) => break,
                        Err(Error::NotificationsLost(_)) => {
                            losses += 1;
                            bench.pause(Duration::from_millis(1)).await;
                            lost += posted - expected;
                            expected = posted;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
            let state = bench.state(0, 4);
            assert!(lost <= state.dropped + state.unarmed, "{lost} of {state:?}");
            assert!(share >= 100 || losses > 0, "{share}: nothing was lost");
            assert_eq!(queue.info().unwrap().counters.overflows, losses);
        });
    }
}

#[test]
fn back_pressure_loses_nothing() {
    trn2().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 count=5000 sequence=0");
        assert_eq!(bench.state(0, 4).stalled, 5000 - 255);
        for expected in 0..5000 {
            assert_eq!(next(&mut queue).await, Ok(expected));
        }
        assert_eq!(bench.state(0, 4).dropped, 0);
    });
}

/// Posts `total` records through a ring of 1,024 in bursts; gives how many came out, all of them in
/// order.
fn stream(total: u64, burst: u64) -> u64 {
    trn1().run(async |bench| {
        let mut queue = bench.queue(dropping(16 << 10)).await;
        bench.control(&format!("post nc0 4 count={total} sequence=0 burst={burst} every=20us"));
        let mut expected = 0;
        while expected < total {
            let notification = queue.next().await.unwrap().unwrap();
            assert_eq!(notification.timestamp(), expected);
            expected += 1;
        }
        assert_eq!(queue.try_next().unwrap(), None);
        let state = bench.state(0, 4);
        assert_eq!((state.posted, state.written, state.dropped), (total, total, 0));
        let counters = queue.info().unwrap().counters;
        assert_eq!((counters.consumed, counters.garbage, counters.overflows), (total, 0, 0));
        expected
    })
}

#[test]
fn two_hundred_thousand_through_a_ring_of_a_thousand() {
    assert_eq!(stream(200_000, 500), 200_000);
}

#[test]
fn ten_million_through_a_ring_of_a_thousand() {
    if std::env::var_os("AXON_LONG").is_some() {
        assert_eq!(stream(10_000_000, 900), 10_000_000);
    }
}

#[test]
fn a_reader_that_keeps_up_reads_no_register() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(16 << 10)).await;
        let reads = bench.report().register_reads;
        bench.writes();
        for round in 0..100 {
            bench.control(&format!("post nc0 4 count=64 sequence={}", round * 64));
            for expected in 0..64 {
                assert_eq!(next(&mut queue).await, Ok(round * 64 + expected));
            }
        }
        assert_eq!(bench.report().register_reads, reads);
        // One word of the consumer pointer for each 64 records, and nothing else.
        let writes = bench.writes();
        assert_eq!(writes.len(), 100);
        assert!(writes.iter().all(|write| write.0 == 0x3053_51ac));
    });
}

#[test]
fn nothing_is_polled_while_nobody_waits() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.pause(Duration::from_millis(5)).await;
        let (polls, reads) = (bench.machine.polls(), bench.report().register_reads);
        bench.pause(Duration::from_secs(10)).await;
        assert!(bench.machine.polls() - polls <= 2, "{} polls", bench.machine.polls() - polls);
        assert_eq!(bench.report().register_reads, reads);
        // Somebody waits: a poll a millisecond, and a look at the pointer every 100 ms.
        let waited = async {
            let waiting = queue.next();
            let late = bench.pause(Duration::from_secs(10));
            embassy_futures::select::select(waiting, late).await;
        };
        waited.await;
        let reads = bench.report().register_reads - reads;
        assert!((50..=101).contains(&reads), "{reads} register reads in 10 s");
        // Whoever stops waiting is not polled for.
        let polls = bench.machine.polls();
        bench.pause(Duration::from_secs(10)).await;
        assert!(bench.machine.polls() - polls <= 4);
    });
}

#[test]
fn a_stream_that_is_dropped_in_the_middle_loses_nothing() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 count=400 sequence=0 every=3us");
        let mut expected = 0;
        while expected < 400 {
            let short = bench.pause(Duration::from_micros(1 + expected % 7));
            match embassy_futures::select::select(queue.next(), short).await {
                embassy_futures::select::Either::First(told) => {
                    assert_eq!(told.unwrap().unwrap().timestamp(), expected);
                    expected += 1;
                }
                embassy_futures::select::Either::Second(()) => {}
            }
        }
    });
}

#[test]
fn a_look_takes_nothing() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        assert!(queue.peek().await.unwrap().is_empty());
        bench.control("post nc0 4 count=10 sequence=0");
        bench.control("post nc0 4 subtype=0x55");
        bench.control("post nc0 4 count=100 sequence=10");
        let peek = queue.peek().await.unwrap();
        assert_eq!(peek.len(), 64);
        assert_eq!(peek.get(9).unwrap().timestamp(), 9);
        assert_eq!(peek.get(10), None, "that is no notification");
        assert_eq!(peek.get(11).unwrap().timestamp(), 10);
        assert_eq!(peek.get(64), None);
        assert_eq!(peek.consume(12), 12);
        assert_eq!(queue.peek().await.unwrap().get(0).unwrap().timestamp(), 12);
        let mut batch = [None; 50];
        assert_eq!(queue.read(&mut batch).unwrap(), 50);
        assert_eq!(batch[49].unwrap().timestamp(), 61);
        assert_eq!(drain(&mut queue).len(), 48);
    });
}

#[test]
fn raw_records_of_other_types_come_as_they_are() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(QueueSpec { kind: QueueKind::Error, ..spec(4096) }).await;
        bench.control("post nc0 4 raw=0123456789abcdef0011223344556677");
        let notification = queue.next().await.unwrap().unwrap();
        let bytes = notification.bytes();
        assert_eq!(bytes[..3], [0x01, 0x23, 0x45]);
        assert_eq!(bytes[3], 0xe7, "the phase bit is the ring's");
        assert_eq!(bytes[4..8], [0x89, 0xab, 0xcd, 0xef]);
    });
}

#[test]
fn two_readers_share_a_queue() {
    trn1().run(async |bench| {
        let mut a = bench.queue(spec(4096)).await;
        let mut b = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 count=1000 sequence=0 every=15us burst=3");
        let mut seen = Vec::new();
        while seen.len() < 1000 {
            match embassy_futures::select::select(a.next(), b.next()).await {
                embassy_futures::select::Either::First(told)
                | embassy_futures::select::Either::Second(told) => {
                    seen.push(told.unwrap().unwrap().timestamp());
                }
            }
        }
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    });
}
