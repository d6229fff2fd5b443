//! Lists of segments: many ranges into one, and one into many.

use std::time::Duration;

use axon::{Error, Segment, SegmentCopy, SegmentsError};
use axon_hosted::Machine;
use axon_platform::Errno;
use axon_ports::CoreMap;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use axon_tests::bench::{Bench, bytes, every, trn1, trn2, v2};

const PAGE: u64 = 4096;

fn of(handle: u64, offset: u64, len: u64) -> Segment {
    Segment { handle, offset, len }
}

type Made = Result<SegmentCopy<Machine>, SegmentsError>;

/// Why a list was refused, and which entry.
fn refusal(made: Made) -> (Errno, Option<(usize, usize)>) {
    let failed = made.map(drop).unwrap_err();
    (failed.error.errno(), failed.entries)
}

async fn read(bench: &Bench, handle: u64, len: u64) -> Vec<u8> {
    let mut found = vec![0; len as usize];
    bench.client.by_handle(handle).unwrap().read(0, &mut found).await.unwrap();
    found
}

#[test]
fn a_list_is_one_marker_and_one_doorbell_pair() {
    every().run(async |bench| {
        let (a, b) = (bench.pattern(64 * PAGE, 1).await, bench.hbm_of(1, 64 * PAGE).await);
        let (to, back) = (bench.hbm(64 * PAGE).await, bench.host(64 * PAGE).await);
        a.copy_to(.., &b, 0).unwrap().await.unwrap();
        // Host memory and that of another core by turns, backwards.
        let list: Vec<Segment> = (0..64)
            .rev()
            .map(|n| of(if n % 2 == 0 { a.handle() } else { b.handle() }, n * PAGE, PAGE))
            .collect();
        let (before, doorbells) = (bench.device.counters(), bench.doorbells().len());
        bench.client.gather(&list, of(to.handle(), 0, 64 * PAGE)).unwrap().await.unwrap();
        assert_eq!(bench.doorbell_values(doorbells), [65, 65]);
        assert_eq!(bench.device.counters().batches - before.batches, 1);
        assert_eq!(bench.client.in_flight_bytes(), 0);
        let expected: Vec<u8> = bytes(&a).chunks(PAGE as usize).rev().flatten().copied().collect();
        assert!(read(&bench, to.handle(), 64 * PAGE).await == expected);

        // And out again, to where it came from.
        let list: Vec<Segment> = (0..64).rev().map(|n| of(back.handle(), n * PAGE, PAGE)).collect();
        let doorbells = bench.doorbells().len();
        bench.client.scatter(of(to.handle(), 0, 64 * PAGE), &list).unwrap().start().await.unwrap();
        assert_eq!(bench.doorbell_values(doorbells), [65, 65]);
        assert!(bytes(&back) == bytes(&a));
    });
}

/// One ring for each core that a target belongs to, as for single copies (03 §5.3).
#[test]
fn targets_of_several_cores_go_over_a_ring_each() {
    trn2().run(async |bench| {
        let from = bench.pattern(16 * PAGE, 1).await;
        let cores = [0, 1, 4, 7];
        let mut targets = Vec::new();
        for core in cores {
            targets.push(bench.hbm_of(core, 4 * PAGE).await);
        }
        let list: Vec<Segment> =
            (0..16).map(|n| of(targets[n % 4].handle(), (n / 4) as u64 * PAGE, PAGE)).collect();
        let doorbells = bench.doorbells().len();
        bench.client.scatter(of(from.handle(), 0, 16 * PAGE), &list).unwrap().await.unwrap();
        assert_eq!(bench.doorbell_values(doorbells), [5; 8], "a pair for each of four rings");
        let source = bytes(&from);
        for (at, target) in targets.iter().enumerate() {
            let expected: Vec<u8> =
                source.chunks(PAGE as usize).skip(at).step_by(4).flatten().copied().collect();
            assert!(read(&bench, target.handle(), 4 * PAGE).await == expected);
        }
    });
}

#[test]
fn hostile_lists_move_nothing_and_name_the_entry() {
    every().run(async |bench| {
        let (host, hbm) = (bench.pattern(4 * PAGE, 1).await, bench.hbm(4 * PAGE).await);
        let other = bench.device.open().await.unwrap();
        let theirs = other.alloc_device(axon::DeviceAlloc::new(PAGE)).await.unwrap();
        let ring = crate::rig::ring(&bench.client, axon::Side::Rx, 64).await;
        let gone = bench.host(PAGE).await.into_handle();
        bench.client.free(gone).await.unwrap();
        let (h, d) = (host.handle(), hbm.handle());
        let good = of(h, 0, 16);
        let doorbells = bench.doorbells().len();
        for (what, entry, errno) in [
            ("size 0", of(h, 0, 0), Errno::EINVAL),
            ("size 0 far out", of(h, u64::MAX, 0), Errno::EINVAL),
            ("one byte too many", of(h, 4 * PAGE - 15, 16), Errno::EINVAL),
            ("far out", of(h, u64::MAX - 7, 8), Errno::EINVAL),
            ("a sum that wraps", of(h, u64::MAX, 2), Errno::EINVAL),
            ("all there is", of(h, 0, u64::MAX), Errno::EINVAL),
            ("no chunk", of(777, 0, 16), Errno::EINVAL),
            ("handle 0", of(0, 0, 16), Errno::EINVAL),
            ("a freed chunk", of(gone, 0, 16), Errno::EINVAL),
            ("the other end", of(d, 8, 16), Errno::EINVAL),
        ] {
            let len = 16u64.saturating_add(entry.len);
            let gathered = bench.client.gather(&[good, entry], of(d, 0, len.min(4 * PAGE)));
            assert_eq!(refusal(gathered), (errno, Some((1, 1))), "{what}");
            let scattered = bench.client.scatter(of(d, 0, len.min(4 * PAGE)), &[good, entry]);
            assert_eq!(refusal(scattered), (errno, Some((1, 1))), "{what}");
        }
        let client = &bench.client;
        // Lengths that do not fit together.
        let short = client.gather(&[good, good], of(d, 0, 33));
        assert_eq!(refusal(short), (Errno::EINVAL, None));
        let long = client.gather(&[good, good, good], of(d, 0, 40));
        assert_eq!(refusal(long), (Errno::EINVAL, Some((2, 2))));
        // The whole.
        for (whole, errno) in [
            (of(d, 0, 0), Errno::EINVAL),
            (of(d, 4 * PAGE - 8, 16), Errno::EINVAL),
            (of(d, u64::MAX, 16), Errno::EINVAL),
            (of(gone, 0, 16), Errno::EINVAL),
        ] {
            assert_eq!(refusal(client.gather(&[good], whole)), (errno, None), "{whole:?}");
            assert_eq!(refusal(client.scatter(whole, &[good])), (errno, None), "{whole:?}");
        }
        assert_eq!(refusal(client.gather(&[], of(d, 0, 16))), (Errno::EINVAL, None));
        assert_eq!(refusal(client.scatter(of(d, 0, 16), &[])), (Errno::EINVAL, None));
        // What others own is for reading only; rings for nobody.
        let t = theirs.handle();
        assert_eq!(refusal(client.gather(&[good], of(t, 0, 16))), (Errno::EPERM, None));
        let scattered = client.scatter(of(d, 0, 32), &[good, of(t, 0, 16)]);
        assert_eq!(refusal(scattered), (Errno::EPERM, Some((1, 1))));
        let scattered = client.scatter(of(d, 0, 32), &[good, of(ring.handle(), 0, 16)]);
        assert_eq!(refusal(scattered), (Errno::EPERM, Some((1, 1))));
        // Two targets on one byte, wherever they stand in the list.
        let twice = [of(h, 64, 16), of(h, 0, 8), of(h, 79, 1)];
        let scattered = client.scatter(of(d, 0, 25), &twice);
        assert_eq!(refusal(scattered), (Errno::EINVAL, Some((2, 2))));
        assert_eq!(bench.doorbells().len(), doorbells, "nothing was started");
        assert_eq!(client.in_flight_bytes(), 0);

        // Sources may overlap, and be another client's.
        let list = [of(h, 0, 16), of(h, 8, 16), of(t, 0, 16)];
        client.gather(&list, of(d, 0, 48)).unwrap().await.unwrap();
        other.close().await;
        bench.device.open().await.unwrap();
    });
}

#[test]
fn a_list_of_a_client_that_has_left_is_refused() {
    trn2().run(async |bench| {
        let other = bench.device.open().await.unwrap();
        let host = other.alloc_host(axon::HostAlloc::new(PAGE)).await.unwrap();
        let list = [of(host.handle(), 0, 16)];
        let made = other.gather(&list, of(host.handle(), 64, 16)).unwrap();
        other.close().await;
        // It was admitted; its memory is held until it has ended one way or the other.
        let _ = made.await;
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn dma_e16_more_segments_than_a_ring_has_room_for() {
    for setup in every().fault("late-marker=100us") {
        setup.run(async |bench| {
            let count = 20_000;
            let (host, hbm) = (bench.pattern(count, 1).await, bench.hbm(count).await);
            let list: Vec<Segment> =
                (0..count).map(|n| of(host.handle(), count - 1 - n, 1)).collect();
            let mut copies = bench.client.gather(&list, of(hbm.handle(), 0, count)).unwrap();
            copies.try_start().unwrap();
            // Others have the ring full: not now, and nothing of it.
            let mut second = bench.client.gather(&list, of(hbm.handle(), 0, count)).unwrap();
            let before = bench.device.counters().descriptors;
            let failed = second.try_start().unwrap_err();
            assert!(matches!(failed, SegmentsError { entries: None, error: Error::Again { .. } }));
            assert_eq!(bench.device.counters().descriptors, before);
            copies.await.unwrap();
            let mut expected = bytes(&host)[..count as usize].to_vec();
            expected.reverse();
            assert!(read(&bench, hbm.handle(), count).await == expected);
            second.await.unwrap();
            assert_eq!(bench.client.in_flight_bytes(), 0);
        });
    }
}

#[test]
fn segments_above_127_mib_go_over_several_batches() {
    trn2().run(async |bench| {
        let size = (127 << 20) + 3 * 65_536 + 5;
        let (a, b) = (bench.hbm(size).await, bench.hbm(2 * size).await);
        a.fill(.., 0x5a).unwrap().await.unwrap();
        let list = [of(a.handle(), 1, size - 1), of(a.handle(), 0, size)];
        bench.client.gather(&list, of(b.handle(), 0, 2 * size - 1)).unwrap().await.unwrap();
        let mut ends = [0; 8];
        b.read(2 * size - 7, &mut ends[..7]).await.unwrap();
        assert_eq!(ends, [0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0, 0]);
        let mut middle = [0; 2];
        b.read(size - 2, &mut middle).await.unwrap();
        assert_eq!(middle, [0x5a; 2]);
    });
}

#[test]
fn an_abort_names_the_entry() {
    every().run(async |bench| {
        let (host, hbm) = (bench.pattern(1 << 20, 1).await, bench.hbm(1 << 20).await);
        // Entry 1 is three descriptors, so the fifth one belongs to entry 2.
        let list =
            [of(host.handle(), 0, 9), of(host.handle(), 9, 0x2_0001), of(host.handle(), 0, 7)];
        for (after, entry) in [(0, 0), (1, 1), (3, 1), (4, 2)] {
            bench.control(&format!("fault abort-descriptor=a8 after={after}"));
            let whole = of(hbm.handle(), 0, 0x2_0011);
            let failed = bench.client.gather(&list, whole).unwrap().await.unwrap_err();
            assert_eq!((failed.error.errno(), failed.entries), (Errno::EIO, Some((entry, entry))));
            assert!(failed.to_string().starts_with(&format!("entry {entry}: ")), "{failed}");
            bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
            assert_eq!(bench.client.in_flight_bytes(), 0);
        }
        // Where only the marker is missing, it may have been any of them.
        bench.control("fault drop-marker=1");
        let whole = of(hbm.handle(), 0, 0x2_0011);
        let failed = bench.client.gather(&list, whole).unwrap().await.unwrap_err();
        assert_eq!((failed.error.errno(), failed.entries), (Errno::ETIMEDOUT, Some((0, 2))));
        assert!(bench.client.in_flight_bytes() > 0, "in quarantine");
    });
}

/// The batches behind one that failed are not begun, and those in flight have ended.
#[test]
fn a_failure_ends_the_list() {
    trn1().run(async |bench| {
        let count = 20_000;
        let (host, hbm) = (bench.pattern(count, 1).await, bench.hbm(count).await);
        let list: Vec<Segment> = (0..count).map(|n| of(host.handle(), n, 1)).collect();
        bench.control("fault abort-descriptor=b1 after=3000");
        let copies = bench.client.gather(&list, of(hbm.handle(), 0, count)).unwrap();
        let failed = copies.await.unwrap_err();
        // The second batch: its marker is one of the 3000.
        assert_eq!((failed.error.errno(), failed.entries), (Errno::EIO, Some((2999, 2999))));
        assert!(bench.device.counters().batches < 10, "not all of the list");
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        assert_eq!(bench.client.in_flight_bytes(), 0);
        bench.client.gather(&list, of(hbm.handle(), 0, count)).unwrap().await.unwrap();
    });
}

/// The ring goes on, and what was not begun is not begun any more.
#[test]
fn a_timeout_ends_the_list() {
    trn1().run(async |bench| {
        let count = 40_000;
        let (host, hbm) = (bench.pattern(count, 1).await, bench.hbm(count).await);
        let list: Vec<Segment> = (0..count).map(|n| of(host.handle(), n, 1)).collect();
        bench.control("fault drop-marker=1");
        let copies = bench.client.gather(&list, of(hbm.handle(), 0, count)).unwrap();
        let failed = copies.await.unwrap_err();
        assert_eq!((failed.error.errno(), failed.entries), (Errno::ETIMEDOUT, Some((0, 2031))));
        assert!(bench.device.counters().batches < 10, "not all 20");
        hbm.fill(.., 0).unwrap().await.unwrap();
    });
}

#[test]
fn a_list_that_is_dropped_goes_on_and_keeps_its_memory() {
    every().fault("late-marker=5ms").run(async |bench| {
        let (host, hbm) = (bench.pattern(64 * PAGE, 1).await, bench.hbm(64 * PAGE).await);
        let list: Vec<Segment> = (0..64).map(|n| of(host.handle(), n * PAGE, PAGE)).collect();
        let whole = of(hbm.handle(), 0, 64 * PAGE);
        drop(bench.client.gather(&list, whole).unwrap());
        assert!(bench.doorbells().is_empty(), "nothing was started");
        drop(bench.client.gather(&list, whole).unwrap().start());
        bench.pause(Duration::from_millis(1)).await;
        assert!(bench.client.in_flight_bytes() >= 128 * PAGE, "source and target are pinned");
        bench.pause(Duration::from_millis(10)).await;
        assert_eq!(bench.client.in_flight_bytes(), 0);
        assert!(read(&bench, hbm.handle(), 64 * PAGE).await == bytes(&host));
    });
}

#[test]
fn dma_e17_v2_a_list_caught_by_a_reset_is_issued_again() {
    v2().fault("drop-marker=1").budget(100).run(async |bench| {
        let (host, hbm) = (bench.pattern(16 * PAGE, 1).await, bench.hbm(16 * PAGE).await);
        let list: Vec<Segment> = (0..16).map(|n| of(host.handle(), n * PAGE, PAGE)).collect();
        let copies = bench.client.gather(&list, of(hbm.handle(), 0, 16 * PAGE)).unwrap().start();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        copies.await.unwrap();
        reset.await.unwrap();
        assert_eq!(bench.doorbell_values(0), [17; 4]);
        assert!(read(&bench, hbm.handle(), 16 * PAGE).await == bytes(&host));
    });
}

/// One entry: which of four chunks, where, and how much.
type Entry = (usize, u64, u64);

/// Chunks of this size each: host, host, HBM of core 0, HBM of core 1.
const SIZE: u64 = 3 * 65_536;

async fn play(bench: &Bench, entries: &[Entry], shift: u64, gathers: bool) {
    let (a, b) = (bench.pattern(SIZE, 1).await, bench.pattern(SIZE, 2).await);
    let (c, d) = (bench.hbm(SIZE).await, bench.hbm_of(1, SIZE).await);
    b.copy_to(.., &c, 0).unwrap().await.unwrap();
    a.copy_to(.., &d, 0).unwrap().await.unwrap();
    let handles = [a.handle(), b.handle(), c.handle(), d.handle()];
    let whole = bench.hbm(4 * SIZE).await;
    whole.fill(.., 0xee).unwrap().await.unwrap();
    let sum: u64 = entries.iter().map(|entry| entry.2).sum();
    let list: Vec<Segment> =
        entries.iter().map(|&(chunk, offset, len)| of(handles[chunk], offset, len)).collect();
    let mut memory = Vec::new();
    for handle in handles {
        memory.push(read(bench, handle, SIZE).await);
    }
    let mut expected = vec![0xee; 4 * SIZE as usize];
    let contiguous = of(whole.handle(), shift, sum);
    let made = match gathers {
        true => bench.client.gather(&list, contiguous),
        false => bench.client.scatter(contiguous, &list),
    };
    let fits = |&(_, offset, len): &Entry| len > 0 && offset + len <= SIZE;
    let collides = !gathers
        && entries.iter().enumerate().any(|(at, x)| {
            let meets = |y: &Entry| x.0 == y.0 && x.1 < y.1 + y.2 && y.1 < x.1 + x.2;
            entries[..at].iter().any(meets)
        });
    let good = entries.iter().all(fits) && !collides && shift + sum <= 4 * SIZE;
    assert_eq!(made.is_ok(), good, "{entries:?} {shift} {gathers}");
    if let Ok(copies) = made {
        copies.await.unwrap();
        let mut at = shift as usize;
        for &(chunk, offset, len) in entries {
            let (offset, len) = (offset as usize, len as usize);
            match gathers {
                true => {
                    expected[at..at + len].copy_from_slice(&memory[chunk][offset..offset + len])
                }
                false => memory[chunk][offset..offset + len].fill(0xee),
            }
            at += len;
        }
    }
    assert!(read(bench, whole.handle(), 4 * SIZE).await == expected);
    for (handle, expected) in handles.into_iter().zip(memory) {
        assert!(read(bench, handle, SIZE).await == expected);
    }
    assert_eq!(bench.client.in_flight_bytes(), 0);
}

/// Against plain memory: what is accepted is moved byte for byte, what is refused changes nothing.
#[test]
fn lists_move_what_plain_memory_says() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let len = prop_oneof![8 => 1..600u64, 2 => 1..70_000u64, 1 => 0..SIZE + 9];
    let entry = (0..4usize, 0..SIZE, len);
    let entries = prop::collection::vec(entry, 1..24);
    runner
        .run(&(entries, 0..SIZE, any::<bool>(), any::<bool>()), |(entries, shift, gathers, v2)| {
            let setup = if v2 { trn1() } else { trn2() };
            setup.run(async |bench| play(&bench, &entries, shift, gathers).await);
            Ok(())
        })
        .unwrap();
}
