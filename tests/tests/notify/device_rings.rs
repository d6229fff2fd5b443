//! Rings in HBM: fetched by DMA where the producer pointer is ahead.

use std::time::Duration;

use axon::{Error, Placement, QueueSpec, WhenFull};
use axon_platform::Errno;
use embassy_futures::join::join;

use crate::bench::{Queues, next, spec, trn1, trn2};

fn in_hbm(size: u64) -> QueueSpec {
    QueueSpec { placement: Placement::Device { channel: 1, region: 0 }, ..spec(size) }
}

#[test]
fn records_come_in_order_through_many_wraps() {
    for setup in [trn1(), trn2()] {
        setup.run(async |bench| {
            let mut queue = bench.queue(in_hbm(8192)).await;
            let info = queue.info().unwrap();
            assert_eq!(info.address.0 % 8192, 0, "aligned to its size");
            assert!(queue.memory().is_none());
            bench.control("post nc0 4 count=5000 sequence=0 burst=70 every=30us");
            for expected in 0..5000 {
                assert_eq!(next(&mut queue).await, Ok(expected));
            }
            let state = bench.state(0, 4);
            assert_eq!((state.written, state.dropped), (5000, 0));
            assert_eq!(state.head, state.tail);
        });
    }
}

#[test]
fn a_loss_is_told_once_and_the_ring_is_cleared_by_dma() {
    trn1().run(async |bench| {
        let wish = QueueSpec { when_full: WhenFull::Drop, ..in_hbm(4096) };
        let mut queue = bench.queue(wish).await;
        for round in 0..3u64 {
            bench.control(&format!("post nc0 4 count=300 sequence={}", round * 1000));
            for expected in 0..255 {
                assert_eq!(next(&mut queue).await, Ok(round * 1000 + expected));
            }
            let lost = next(&mut queue).await.err().unwrap();
            assert_eq!(lost.errno(), Errno::EOVERFLOW);
            let post = async {
                bench.pause(Duration::from_millis(5)).await;
                bench.control(&format!("post nc0 4 count=2 sequence={}", round * 1000 + 500));
            };
            let (first, ()) = join(next(&mut queue), post).await;
            assert_eq!(first, Ok(round * 1000 + 500));
            assert_eq!(next(&mut queue).await, Ok(round * 1000 + 501));
        }
        assert_eq!(queue.info().unwrap().counters.restarts, 3);
    });
}

#[test]
fn a_look_fetches_and_takes_nothing() {
    trn1().run(async |bench| {
        let mut queue = bench.queue(in_hbm(4096)).await;
        assert!(queue.peek().await.unwrap().is_empty());
        bench.control("post nc0 4 count=5 sequence=3");
        let peek = queue.peek().await.unwrap();
        assert_eq!((peek.len(), peek.get(4).unwrap().timestamp()), (5, 7));
        assert_eq!(peek.consume(2), 2);
        assert_eq!(next(&mut queue).await, Ok(5));
        assert_eq!(queue.try_next().unwrap().unwrap().timestamp(), 6);
    });
}

#[test]
fn a_reset_in_the_middle_of_a_fetch() {
    trn2().run(async |bench| {
        for delay in 0..40 {
            let mut queue = bench.queue(in_hbm(4096)).await;
            bench.control("post nc0 4 count=100000 sequence=0 burst=20 every=10us");
            let read = async {
                let mut expected = 0;
                loop {
                    match queue.next().await {
                        Some(Ok(notification)) => {
                            assert_eq!(notification.timestamp(), expected);
                            expected += 1;
                        }
                        Some(Err(error)) => break error,
                        None => panic!("it has said nothing"),
                    }
                }
            };
            let reset = async {
                bench.pause(Duration::from_nanos(100_000 + delay * 500)).await;
                bench.client.reset(axon::ports::CoreMap(1)).unwrap().await.unwrap();
            };
            let (error, ()) = join(read, reset).await;
            assert_eq!(error.errno(), Errno::ECANCELED, "{error}");
            let stale = queue.next().await.unwrap().err().unwrap();
            assert!(matches!(stale, Error::Stale(_)), "{stale}");
        }
    });
}

#[test]
fn nobody_polls_for_a_ring_that_nobody_waits_for() {
    trn1().run(async |bench| {
        let _queue = bench.queue(in_hbm(4096)).await;
        let reads = bench.report().register_reads;
        bench.pause(Duration::from_secs(1)).await;
        assert_eq!(bench.report().register_reads, reads);
    });
}

#[test]
fn a_handle_that_is_dropped_while_it_fetches_leaves_nothing() {
    trn1().run(async |bench| {
        let before = bench.device.memory_totals();
        let mut queue = bench.queue(in_hbm(4096)).await;
        bench.control("fault slow=5ms times=1");
        bench.control("post nc0 4 count=5");
        let short = bench.pause(Duration::from_millis(1));
        let _ = embassy_futures::select::select(queue.next(), short).await;
        drop(queue);
        bench.pause(Duration::from_millis(50)).await;
        assert_eq!(bench.device.memory_totals(), before);
    });
}
