//! Zero-copy: lists of host memory, batches, asynchronous requests.

use std::time::Duration;

use axon::{Direction, HostRange, ZeroCopyBatch, ZeroCopyOp, ZeroCopyRequest};
use axon_hosted::Machine;
use axon_platform::Errno;

use crate::rig::errno;
use axon_tests::bench::{Bench, Setups, bytes, later, v2};

fn range(handle: u64, offset: u64, len: u64) -> HostRange {
    HostRange { handle, offset, len }
}

fn v2_with_override() -> Setups {
    v2().with(|setup| setup.config.zero_copy_on_v2 = true)
}

#[test]
fn dma_e35_generations_and_queues() {
    v2().run(async |bench| {
        let (host, hbm) = (bench.host(4096).await, bench.hbm(4096).await);
        let whole = range(host.handle(), 0, 4096);
        let request = ZeroCopyRequest::single(Direction::ToDevice, -1, hbm.handle(), 0, whole);
        assert_eq!(errno(bench.client.zero_copy(&request).await), Errno::EINVAL);
        assert!(bench.doorbells().is_empty());
    });
    later().run(async |bench| {
        let (host, hbm) = (bench.host(4096).await, bench.hbm(4096).await);
        bench.client.queues().h2t_alloc(1, 1, 0).await.unwrap();
        let whole = range(host.handle(), 0, 4096);
        for queue in [16, -2, i32::MAX, 2, 1, 9] {
            let request =
                ZeroCopyRequest::single(Direction::ToDevice, queue, hbm.handle(), 0, whole);
            let refused = errno(bench.client.zero_copy(&request).await);
            assert_eq!(refused, Errno::ENOENT, "queue {queue} is none of core 0");
        }
        assert!(bench.doorbells().is_empty());
    });
}

#[test]
fn bytes_arrive_whatever_the_place_and_the_size() {
    for setup in later().into_iter().chain(v2_with_override()) {
        setup.run(async |bench| {
            let size = 1 << 20;
            let (source, back) = (bench.pattern(size, 5).await, bench.host(size).await);
            let hbm = bench.hbm(size).await;
            for (offset, to, len) in
                [(0, 0, 4096), (0xfff, 5, 700_001), (0x800, 1, 266_240), (0, 0, size)]
            {
                let (client, device) = (&bench.client, hbm.handle());
                let write = range(source.handle(), offset, len);
                let read = range(back.handle(), offset, len);
                let write = ZeroCopyRequest::single(Direction::ToDevice, -1, device, to, write);
                let read = ZeroCopyRequest::single(Direction::FromDevice, -1, device, to, read);
                client.zero_copy(&write).await.unwrap();
                client.zero_copy(&read).await.unwrap();
                let part = offset as usize..(offset + len) as usize;
                assert_eq!(bytes(&back)[part.clone()], bytes(&source)[part]);
            }
            assert_eq!(bench.client.in_flight_bytes(), 0);
        });
    }
}

#[test]
fn dma_e36_strong_order_in_the_very_last_marker_of_a_write() {
    later().run(async |bench| {
        let (host, hbm) = (bench.pattern(1 << 20, 5).await, bench.hbm(1 << 20).await);
        for direction in [Direction::ToDevice, Direction::FromDevice] {
            let before = bench.report().descriptor_trace.len();
            let whole = range(host.handle(), 0, 1 << 20);
            let request = ZeroCopyRequest::single(direction, -1, hbm.handle(), 0, whole);
            bench.client.zero_copy(&request).await.unwrap();
            let trace = bench.report().descriptor_trace;
            let received: Vec<u32> = trace[before..]
                .iter()
                .filter(|row| row.side == axon_model::report::Side::Rx)
                .map(|row| row.words[0])
                .collect();
            assert_eq!(received.len(), 4 * 5, "4 transfers of 4 data descriptors and a marker");
            let strong: Vec<usize> =
                (0..received.len()).filter(|&at| received[at] & 1 << 29 != 0).collect();
            let expected: &[usize] = if direction == Direction::ToDevice { &[19] } else { &[] };
            assert_eq!(strong, expected);
        }
    });
}

#[test]
fn dma_e37_dma_d26_a_batch_that_cannot_be_moves_nothing() {
    later().run(async |bench| {
        let (host, hbm) = (bench.pattern(8192, 5).await, bench.hbm(8192).await);
        let stranger = bench.device.open().await.unwrap();
        let theirs = stranger.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
        let batch = |offset: u64, operations: Vec<ZeroCopyOp>| ZeroCopyBatch {
            device: hbm.handle(),
            offset,
            operations,
            context: 0,
        };
        let op =
            |offset: u64, len: u64| ZeroCopyOp { offset, host: vec![range(host.handle(), 0, len)] };
        let good = batch(0, vec![op(0, 4096)]);
        for (what, second, expected) in [
            ("an operation of size 0", batch(0, vec![op(0, 0)]), Errno::EINVAL),
            (
                "no host memory",
                batch(0, vec![ZeroCopyOp { offset: 0, host: vec![] }]),
                Errno::EINVAL,
            ),
            ("no operation", batch(0, vec![]), Errno::EINVAL),
            ("behind the end", batch(4096, vec![op(4096, 1)]), Errno::EINVAL),
            ("a sum that wraps", batch(u64::MAX, vec![op(2, 1)]), Errno::EINVAL),
            ("host memory behind its end", batch(0, vec![op(0, 8193)]), Errno::EINVAL),
            ("no such chunk", ZeroCopyBatch { device: 777, ..good.clone() }, Errno::EINVAL),
            (
                "another client's",
                ZeroCopyBatch { device: theirs.handle(), ..good.clone() },
                Errno::EPERM,
            ),
            (
                "a host chunk",
                ZeroCopyBatch { device: host.handle(), ..good.clone() },
                Errno::EINVAL,
            ),
        ] {
            let request = ZeroCopyRequest {
                direction: Direction::ToDevice,
                queue: -1,
                batches: vec![good.clone(), second],
            };
            assert_eq!(errno(bench.client.zero_copy(&request).await), expected, "{what}");
        }
        let none = ZeroCopyRequest { direction: Direction::ToDevice, queue: -1, batches: vec![] };
        assert_eq!(errno(bench.client.zero_copy(&none).await), Errno::EINVAL);
        assert!(bench.doorbells().is_empty(), "the first batch was not carried out");
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn batches_scatter_and_gather() {
    later().run(async |bench| {
        let (a, b) = (bench.pattern(64 << 10, 1).await, bench.pattern(64 << 10, 2).await);
        let hbm = bench.hbm(1 << 20).await;
        let host = vec![
            range(a.handle(), 0x800, 0x800),
            range(b.handle(), 0x1000, 0x2000),
            range(a.handle(), 0x5000, 0x1000),
        ];
        let operations = vec![
            ZeroCopyOp { offset: 0, host: host.clone() },
            ZeroCopyOp { offset: 0x10000, host: vec![range(b.handle(), 3, 5)] },
        ];
        let request = ZeroCopyRequest {
            direction: Direction::ToDevice,
            queue: -1,
            batches: vec![ZeroCopyBatch {
                device: hbm.handle(),
                offset: 64,
                operations,
                context: 0,
            }],
        };
        bench.client.zero_copy(&request).await.unwrap();
        let mut found = vec![0; 0x3800];
        hbm.read(64, &mut found).await.unwrap();
        let expected =
            [&bytes(&a)[0x800..0x1000], &bytes(&b)[0x1000..0x3000], &bytes(&a)[0x5000..0x6000]];
        assert_eq!(found, expected.concat());
        let mut five = vec![0; 5];
        hbm.read(64 + 0x10000, &mut five).await.unwrap();
        assert_eq!(five, bytes(&b)[3..8]);
    });
}

#[test]
fn asynchronous_requests_complete_in_order_with_their_numbers() {
    later().run(async |bench| {
        let (host, hbm) = (bench.pattern(1 << 20, 3).await, bench.hbm(1 << 20).await);
        let (queue, mut completions) = bench.client.zero_copy_queue().unwrap();
        let request = |at: u64| {
            let piece = range(host.handle(), at * 4096, 4096);
            let mut request =
                ZeroCopyRequest::single(Direction::ToDevice, -1, hbm.handle(), at * 4096, piece);
            request.batches[0].context = 1000 + at;
            request
        };
        assert_eq!(errno(queue.submit(0, &request(0))), Errno::EINVAL, "0 is synchronous");
        for at in 0..200 {
            queue.submit(at + 1, &request(at)).unwrap();
        }
        for at in 0..200 {
            let done = completions.next().await.unwrap();
            assert_eq!((done.sequence, done.context, done.result), (at + 1, 1000 + at, Ok(())));
        }
        let mut found = vec![0; 200 * 4096];
        hbm.read(0, &mut found).await.unwrap();
        assert_eq!(found, bytes(&host)[..200 * 4096]);
        drop(queue);
        assert!(completions.next().await.is_none());
    });
}

#[test]
fn dma_d27_completions_that_nobody_reads_hold_up_the_submitter_and_not_the_ring() {
    later().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 3).await, bench.hbm(4096).await);
        let (queue, mut completions) = bench.client.zero_copy_queue().unwrap();
        let piece = range(host.handle(), 0, 64);
        let request = ZeroCopyRequest::single(Direction::ToDevice, -1, hbm.handle(), 0, piece);
        for sequence in 1..=1024 {
            queue.submit(sequence, &request).unwrap();
        }
        assert_eq!(errno(queue.submit(1025, &request)), Errno::EBUSY);
        bench.pause(Duration::from_millis(50)).await;
        assert_eq!(errno(queue.submit(1025, &request)), Errno::EBUSY, "none was read");
        host.span(..).unwrap().copy_to(hbm.span(..).unwrap()).unwrap().await.unwrap();
        assert_eq!(completions.next().await.unwrap().sequence, 1);
        queue.submit(1025, &request).unwrap();
        assert_eq!(completions.try_next().unwrap().sequence, 2);
    });
}

#[test]
fn a_failure_is_one_entry_and_the_next_request_goes_on() {
    later().run(async |bench| {
        let (host, hbm) = (bench.pattern(1 << 20, 3).await, bench.hbm(1 << 20).await);
        let (queue, mut completions) = bench.client.zero_copy_queue().unwrap();
        let piece = range(host.handle(), 0, 1 << 20);
        let request = ZeroCopyRequest::single(Direction::ToDevice, -1, hbm.handle(), 0, piece);
        bench.control("fault drop-marker=1");
        queue.submit(7, &request).unwrap();
        queue.submit(8, &request).unwrap();
        let failed = completions.next().await.unwrap();
        assert_eq!((failed.sequence, errno(failed.result)), (7, Errno::ETIMEDOUT));
        let good = completions.next().await.unwrap();
        assert_eq!((good.sequence, good.result), (8, Ok(())));
        assert!(bench.device.counters().quarantined > 0, "the memory of the first is kept");
    });
}

#[test]
fn a_zero_copy_is_not_replayed() {
    v2_with_override().run(async |bench| {
        let (host, hbm) = (bench.pattern(4096, 3).await, bench.hbm(4096).await);
        bench.control("fault drop-marker=1");
        let whole = range(host.handle(), 0, 4096);
        let request = ZeroCopyRequest::single(Direction::ToDevice, -1, hbm.handle(), 0, whole);
        let mut copy = Box::pin(bench.client.zero_copy(&request));
        assert!(embassy_futures::poll_once(copy.as_mut()).is_pending());
        bench.pause(Duration::from_micros(100)).await;
        bench.client.reset(axon_ports::CoreMap::DEVICE).unwrap().await.unwrap();
        let ended = errno(copy.await);
        assert!(matches!(ended, Errno::ECANCELED | Errno::ETIMEDOUT), "{ended}");
        assert_eq!(bench.device.counters().replays, 0);
    });
}

/// Whether the last thing that reached the device was ordered behind all before it: on V2 the last
/// data, in front of its marker, else the marker.
fn ends_with_a_barrier(bench: &Bench) -> bool {
    let trace = bench.report().descriptor_trace;
    let last = |side| trace.iter().rev().filter(move |row| row.side == side);
    match bench.is_v2() {
        true => {
            let data = last(axon_model::report::Side::Tx).nth(1);
            data.is_some_and(|row| row.words[1] & 1 << 26 != 0)
        }
        false => {
            let marker = last(axon_model::report::Side::Rx).next();
            marker.is_some_and(|row| row.words[0] & 1 << 29 != 0)
        }
    }
}

/// Starts a write of 16 transfers, 8 of which have ended when this returns, and nothing is staged
/// behind them; `after` comes between, and the write is dropped. Only the range is still pinned.
async fn dropped_in_the_middle<R>(
    bench: &Bench,
    between: impl AsyncFnOnce() -> R,
) -> (R, axon::DeviceBuffer<Machine>) {
    let size = RANGE;
    let (host, hbm) = (bench.pattern(size, 5).await, bench.hbm(size).await);
    let whole = range(host.handle(), 0, size);
    let request = ZeroCopyRequest::single(Direction::ToDevice, -1, hbm.handle(), 0, whole);
    let mut copy = Box::pin(bench.client.zero_copy(&request));
    assert!(embassy_futures::poll_once(copy.as_mut()).is_pending());
    bench.pause(Duration::from_micros(100)).await;
    assert_eq!(bench.device.counters().completed, 8);
    let between = between().await;
    let before = bench.device.counters().quarantined;
    drop(copy);
    assert_eq!(bench.device.counters().quarantined, before + 1, "there was no room for a barrier");
    (between, hbm)
}

/// Bytes of the range.
const RANGE: u64 = 4 << 20;

#[test]
fn a_write_dropped_while_its_ring_is_full_keeps_the_range_until_a_barrier() {
    for setup in later().into_iter().chain(v2_with_override()) {
        setup.run(async |bench| {
            let other = bench.device.open().await.unwrap();
            let theirs = other.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
            let source = other.alloc_host(axon::HostAlloc::new(4096)).await.unwrap();
            let fill = async || {
                bench.control("fault late-marker=5ms");
                let mut started = Vec::new();
                while let Ok(batch) = {
                    let mut batch = other.batch(2032).unwrap();
                    let view = |handle| other.by_handle(handle).unwrap();
                    let (from, to) = (view(source.handle()), view(theirs.handle()));
                    for _ in 0..2032 {
                        batch.add(from.span_at(0, 1).unwrap(), to.span_at(0, 1).unwrap()).unwrap();
                    }
                    batch.try_start().map(|()| batch)
                } {
                    started.push(batch);
                }
                // Short ones, until nothing fits.
                while let Ok(batch) = {
                    let mut batch = other.batch(1).unwrap();
                    let view = |handle| other.by_handle(handle).unwrap();
                    let (from, to) = (view(source.handle()), view(theirs.handle()));
                    batch.add(from.span_at(0, 1).unwrap(), to.span_at(0, 1).unwrap()).unwrap();
                    batch.try_start().map(|()| batch)
                } {
                    started.push(batch);
                }
                started
            };
            let (started, _range) = dropped_in_the_middle(&bench, fill).await;
            bench.control("fault clear");
            let mut looks = 0;
            while bench.device.counters().quarantined > 0 {
                looks += 1;
                assert_eq!(bench.client.in_flight_bytes(), RANGE, "after {looks} looks");
                bench.pause(Duration::from_micros(100)).await;
            }
            assert!(looks > 10, "{looks}");
            bench.pause(Duration::from_millis(1)).await;
            assert!(ends_with_a_barrier(&bench));
            assert_eq!(bench.client.in_flight_bytes(), 0);
            assert_eq!(bench.device.counters().quarantined, 0);
            for batch in started {
                batch.await.unwrap();
            }
        });
    }
}

#[test]
fn a_write_dropped_in_a_reset_keeps_the_range_until_its_end() {
    for setup in later().into_iter().chain(v2_with_override()) {
        for map in [axon_ports::CoreMap::DEVICE, axon_ports::CoreMap(1)] {
            setup.clone().run(async |bench| {
                let ([ticket], _range) = dropped_in_the_middle(&bench, async || {
                    let ticket = bench.client.reset(map).unwrap();
                    // The rings are held once the drive has begun.
                    bench.pause(Duration::from_micros(10)).await;
                    [ticket]
                })
                .await;
                let mut ticket = Box::pin(ticket);
                let mut looks = 0;
                while embassy_futures::poll_once(ticket.as_mut()).is_pending() {
                    looks += 1;
                    // The proof is the reset of the engine itself, in the middle of the drive.
                    if bench.client.in_flight_bytes() == 0 {
                        break;
                    }
                    assert_eq!(bench.client.in_flight_bytes(), RANGE);
                    bench.pause(Duration::from_micros(100)).await;
                }
                assert!(looks > 0);
                ticket.await.unwrap();
                bench.pause(Duration::from_millis(200)).await;
                assert_eq!(bench.client.in_flight_bytes(), 0);
                assert_eq!(bench.device.counters().quarantined, 0);
                // A reset that leaves the engine alone proves nothing: then there is a barrier.
                let engine = axon_ports::EngineId::new(bench.copy_engine().1).unwrap();
                let is_covered = bench.device.hal().reset_covers(map, engine);
                assert_eq!(ends_with_a_barrier(&bench), !is_covered);
            });
        }
    }
}

#[test]
fn a_write_dropped_while_its_ring_is_faulted_keeps_the_range_until_a_reset() {
    for setup in later().into_iter().chain(v2_with_override()) {
        setup.run(async |bench| {
            let other = bench.device.open().await.unwrap();
            let theirs = other.alloc_device(axon::DeviceAlloc::new(4096)).await.unwrap();
            let (_, _range) = dropped_in_the_middle(&bench, async || {
                bench.control("fault abort-descriptor=b1");
                assert_eq!(errno(theirs.fill(.., 1).unwrap().await), Errno::EIO);
            })
            .await;
            bench.pause(Duration::from_secs(1)).await;
            assert_eq!(bench.client.in_flight_bytes(), RANGE, "the ring takes no work");
            bench.control("fault clear");
            bench.client.reset(axon_ports::CoreMap::DEVICE).unwrap().await.unwrap();
            assert_eq!(bench.client.in_flight_bytes(), 0);
            assert_eq!(bench.device.counters().quarantined, 0);
        });
    }
}

/// Wherever it is dropped: the last thing that reaches the device has the barrier, and the memory
/// stays pinned until then.
#[test]
fn a_write_that_is_dropped_half_way_ends_with_a_barrier() {
    for setup in later().into_iter().chain(v2_with_override()) {
        let mut ended = false;
        for polls in 1..40 {
            ended = setup.clone().run(async |bench| {
                let size = 4 << 20;
                let (host, hbm) = (bench.pattern(size, 5).await, bench.hbm(size).await);
                let whole = range(host.handle(), 0, size);
                let request =
                    ZeroCopyRequest::single(Direction::ToDevice, -1, hbm.handle(), 0, whole);
                let mut copy = Box::pin(bench.client.zero_copy(&request));
                let mut ended = false;
                for _ in 0..polls {
                    ended = embassy_futures::poll_once(copy.as_mut()).is_ready();
                    if ended {
                        break;
                    }
                    bench.pause(Duration::from_micros(3)).await;
                }
                let barrier = || ends_with_a_barrier(&bench);
                let landed = barrier();
                drop(copy);
                assert!(landed || bench.client.in_flight_bytes() > 0, "dropped at {polls}");
                bench.pause(Duration::from_micros(200)).await;
                assert_eq!(bench.client.in_flight_bytes(), 0);
                assert!(barrier(), "dropped at {polls}");
                ended
            });
            if ended {
                break;
            }
        }
        assert!(ended, "dropped at every poll");
    }
}

#[test]
fn a_request_does_not_go_to_whoever_has_its_queue_next() {
    later().run(async |bench| {
        let (host, hbm) = (bench.pattern(8192, 5).await, bench.hbm(8192).await);
        let claims = bench.client.queues().h2t_alloc(0, 1, 0).await.unwrap();
        let (queue, engine) = (claims.copy.trailing_zeros(), claims.engine.number());
        let batch = |offset| ZeroCopyBatch {
            device: hbm.handle(),
            offset,
            operations: vec![ZeroCopyOp { offset: 0, host: vec![range(host.handle(), 0, 4096)] }],
            context: offset,
        };
        let batches = vec![batch(0), batch(4096)];
        let direction = Direction::ToDevice;
        let request = ZeroCopyRequest { direction, queue: queue as i32, batches };
        let mut copy = Box::pin(bench.client.zero_copy(&request));
        assert!(embassy_futures::poll_once(copy.as_mut()).is_pending());
        bench.client.queues().h2t_free(0, claims.copy.into()).await.unwrap();
        let stranger = bench.device.open().await.unwrap();
        let theirs = stranger.queues().h2t_alloc(0, 1, 0).await.unwrap();
        assert_eq!((theirs.copy, theirs.engine.number()), (claims.copy, engine));
        let rung = bench.doorbells().len();
        assert_eq!(errno(copy.await), Errno::ECANCELED);
        assert_eq!(bench.doorbells().len(), rung, "nothing was put into the ring of another");
    });
}
