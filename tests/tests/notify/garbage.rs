//! A device that writes what no producer writes: counted, skipped, never trusted.

use std::time::Duration;

use axon::{Error, NotificationQueue, QueueSpec, WhenFull};
use axon_hosted::Machine;
use axon_platform::Platform;
use embassy_futures::select::{Either, select};
use proptest::prelude::*;

use crate::bench::{Queues, drain, next, spec, trn1};

async fn next_within(
    machine: &Machine,
    queue: &mut NotificationQueue<Machine>,
    span: Duration,
) -> Option<Result<u64, Error>> {
    match select(queue.next(), machine.sleep(span)).await {
        Either::First(told) => told.map(|told| told.map(|n| n.timestamp())),
        Either::Second(()) => None,
    }
}

#[test]
fn records_without_meaning_are_counted_and_skipped() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 sequence=1");
        for options in ["hint=2", "hint=15", "subtype=0", "subtype=4", "subtype=6 custom=11"] {
            bench.control(&format!("post nc0 4 {options}"));
        }
        bench.control("post nc0 4 count=150 subtype=0xffff");
        bench.control("post nc0 4 sequence=2");
        assert_eq!(next(&mut queue).await, Ok(1));
        assert_eq!(next(&mut queue).await, Ok(2));
        let counters = queue.info().unwrap().counters;
        assert_eq!((counters.consumed, counters.garbage), (2, 155));
    });
}

#[test]
fn a_record_with_a_stale_phase_is_passed_over_once_it_is_clear_that_it_stays() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 sequence=1");
        bench.control("post nc0 4 sequence=666 phase=wrong");
        assert_eq!(next(&mut queue).await, Ok(1));
        // It might still be on its way: nothing comes, nothing is skipped.
        assert_eq!(next_within(&bench.machine, &mut queue, Duration::from_millis(50)).await, None);
        bench.control("post nc0 4 sequence=2");
        let before = bench.machine.now();
        assert_eq!(next(&mut queue).await, Ok(2));
        let took = (bench.machine.now() - before).as_millis();
        assert!((10..20).contains(&took), "{took} ms");
        assert_eq!(queue.info().unwrap().counters.garbage, 1);
    });
}

#[test]
fn a_poller_gets_past_it_too() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        bench.control("post nc0 4 phase=wrong");
        bench.control("post nc0 4 count=3 sequence=2");
        assert!(drain(&mut queue).is_empty());
        bench.pause(Duration::from_millis(20)).await;
        assert_eq!(drain(&mut queue), [2, 3, 4]);
    });
}

#[test]
fn an_overtaken_record_is_waited_for() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        let ring = queue.memory().unwrap();
        // Record 1 is visible before record 0, as writes of neighbours may be.
        let record = |place: u64, time: u64| {
            ring.store64(place * 16 + 8, time).unwrap();
            ring.store32(place * 16 + 4, 3 << 16).unwrap();
            ring.store32(place * 16, 1 << 31).unwrap();
        };
        record(1, 11);
        assert_eq!(next_within(&bench.machine, &mut queue, Duration::from_millis(5)).await, None);
        record(0, 10);
        assert_eq!(next(&mut queue).await, Ok(10));
        assert_eq!(next(&mut queue).await, Ok(11));
        assert_eq!(queue.info().unwrap().counters.garbage, 0);
    });
}

#[test]
fn a_ring_that_was_overwritten_is_a_loss() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(spec(4096)).await;
        // Somebody else has told the hardware to ignore that rings are full.
        bench.machine.with_model(0, |model| {
            model.bar_write(0, 0x3053_5018, &(1u32 << 4).to_le_bytes());
        });
        bench.control("post nc0 4 count=300 sequence=0");
        let told = next_within(&bench.machine, &mut queue, Duration::from_secs(5)).await;
        let Some(Err(Error::NotificationsLost(_))) = told else { panic!("{told:?}") };
        bench.pause(Duration::from_millis(1)).await;
        bench.control("post nc0 4 sequence=7");
        assert_eq!(next(&mut queue).await, Ok(7));
    });
}

#[test]
fn a_producer_pointer_that_lies_moves_nobody() {
    for placement in [axon::Placement::Host, axon::Placement::Device { channel: 0, region: 0 }] {
        trn1().run(async |bench| {
            let mut queue = bench.queue(QueueSpec { placement, ..spec(4096) }).await;
            for lie in [0x1000u32, 0xffff_fff0, 0x18, 8] {
                bench.control(&format!("tail nc0 4 {lie}"));
                let told =
                    next_within(&bench.machine, &mut queue, Duration::from_millis(300)).await;
                assert_eq!(told, None, "{lie:#x}");
                assert_eq!(queue.info().unwrap().tail, lie);
            }
            bench.control("post nc0 4 sequence=1");
            assert_eq!(next(&mut queue).await, Ok(1));
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever the device scribbles into a ring, reading ends, and what comes after the queue was
    /// given up and made again is sound.
    #[test]
    fn scribbles_end(
        seed in any::<u64>(),
        counts in prop::collection::vec((1u64..600, any::<bool>()), 1..6),
        drops in any::<bool>(),
    ) {
        let mut setup = trn1();
        setup.seed = seed;
        setup.run(async |bench| {
            let when_full = if drops { WhenFull::Drop } else { WhenFull::Stall };
            let wish = QueueSpec { when_full, ..spec(4096) };
            let mut queue = bench.queue(wish).await;
            let mut records = 0;
            for (count, as_is) in counts {
                let phase = if as_is { "as-is" } else { "right" };
                bench.control(&format!("post nc0 4 count={count} noise={seed} phase={phase}"));
                for _ in 0..2000 {
                    match next_within(&bench.machine, &mut queue, Duration::from_millis(15)).await {
                        Some(Ok(_)) => records += 1,
                        Some(Err(Error::NotificationsLost(_))) => {}
                        Some(Err(other)) => panic!("{other}"),
                        None => break,
                    }
                }
            }
            let counters = queue.info().unwrap().counters;
            assert_eq!(counters.consumed, records);
            queue.close().await;
            let mut again = bench.queue(wish).await;
            bench.control("post nc0 4 count=3 sequence=1");
            for expected in 1..4 {
                assert_eq!(next(&mut again).await, Ok(expected));
            }
        });
    }
}
