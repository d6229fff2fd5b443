//! Many copies behind one marker: lists that are filled, awaited, dropped and caught by resets.

use std::time::Duration;

use axon::{Batch, Error};
use axon_hosted::Machine;
use axon_model::Product;
use axon_platform::Errno;
use axon_ports::CoreMap;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use axon_tests::bench::{Bench, bytes, every, trn1, trn2, v2};

const PAGE: u64 = 4096;

fn errno<T>(result: Result<T, Error>) -> Errno {
    result.map(drop).unwrap_err().errno()
}

/// A batch that turns the order of `pages` pages around, with what it copies.
async fn reversed(
    bench: &Bench,
    pages: u64,
) -> (Batch<Machine>, Vec<u8>, axon::DeviceBuffer<Machine>) {
    let (source, target) = (bench.pattern(pages * PAGE, 7).await, bench.hbm(pages * PAGE).await);
    let mut batch = bench.client.batch(pages as usize).unwrap();
    for page in 0..pages {
        batch.copy(&source, page * PAGE, &target, (pages - 1 - page) * PAGE, PAGE).unwrap();
    }
    let expected = bytes(&source).chunks(PAGE as usize).rev().flatten().copied().collect();
    (batch, expected, target)
}

async fn read(bench: &Bench, target: &axon::DeviceBuffer<Machine>) -> Vec<u8> {
    let back = bench.host(target.size()).await;
    target.copy_to(.., &back, 0).unwrap().await.unwrap();
    bytes(&back)
}

#[test]
fn dma_e48_a_batch_of_64_is_one_marker_and_one_doorbell_pair() {
    every().run(async |bench| {
        let (batch, expected, target) = reversed(&bench, 64).await;
        let before = (bench.report(), bench.device.counters());
        batch.await.unwrap();
        let after = (bench.report(), bench.device.counters());
        assert_eq!(bench.doorbell_values(0), [65, 65]);
        assert_eq!(after.0.register_reads, before.0.register_reads);
        assert_eq!(after.1.batches - before.1.batches, 1);
        assert_eq!(after.1.descriptors - before.1.descriptors, 65);
        assert_eq!(after.1.bytes - before.1.bytes, 64 * PAGE);
        assert_eq!(bench.client.in_flight_bytes(), 0);
        assert_eq!(read(&bench, &target).await, expected);
    });
}

#[test]
fn a_batch_is_filled_again_and_again() {
    trn2().run(async |bench| {
        let (source, target) = (bench.pattern(4 * PAGE, 1).await, bench.hbm(4 * PAGE).await);
        let mut batch = bench.client.batch(2).unwrap();
        for round in 0..600 {
            let (from, to) = (round % 4, (round + 1) % 4);
            batch.copy(&source, from * PAGE, &target, to * PAGE, PAGE).unwrap();
            if round % 3 == 0 {
                batch.try_start().unwrap();
            }
            (&mut batch).await.unwrap();
            assert!(batch.is_empty());
        }
        assert_eq!((&mut batch).await, Err(Error::InvalidArgument { what: "", value: 0 }));
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    trn2().run(async |bench| {
        let (source, target) = (bench.pattern(PAGE, 1).await, bench.hbm(PAGE).await);
        let other_core = bench.hbm_of(1, PAGE).await;
        let mut batch = bench.client.batch(2).unwrap();
        let mut refused = |from, to, len, expected: Errno| {
            let refused = batch.copy(&source, from, &target, to, len);
            assert_eq!(errno(refused), expected, "{from} {to} {len}");
        };
        refused(0, 0, 0, Errno::EINVAL);
        refused(1, 0, PAGE, Errno::EINVAL);
        refused(0, 1, PAGE, Errno::EINVAL);
        refused(u64::MAX, 0, 2, Errno::EINVAL);
        refused(0, u64::MAX, u64::MAX, Errno::EINVAL);
        assert!(batch.is_empty());
        batch.copy(&source, 0, &target, 0, PAGE).unwrap();
        assert_eq!(errno(batch.copy(&source, 0, &other_core, 0, PAGE)), Errno::EINVAL);
        batch.copy(&source, 0, &target, 0, PAGE).unwrap();
        assert_eq!(errno(batch.copy(&source, 0, &target, 0, PAGE)), Errno::E2BIG);
        assert_eq!(batch.len(), 2);
        assert!(bench.doorbells().is_empty());
        batch.await.unwrap();
        assert_eq!(bench.doorbell_values(0), [3, 3]);
        assert_eq!(errno(bench.client.batch(2033).map(drop)), Errno::E2BIG);
    });
}

#[test]
fn another_clients_memory_is_for_reading_only() {
    trn2().run(async |bench| {
        let other = bench.device.open().await.unwrap();
        let foreign = other.alloc_device(axon::DeviceAlloc::new(PAGE)).await.unwrap();
        let own = bench.hbm(PAGE).await;
        let mut batch = bench.client.batch(2).unwrap();
        assert_eq!(errno(batch.copy(&own, 0, &foreign, 0, PAGE)), Errno::EPERM);
        let view = |handle| bench.client.by_handle(handle).unwrap();
        let (theirs, mine) = (view(foreign.handle()), view(own.handle()));
        let write = batch.add(mine.span(..).unwrap(), theirs.span(..).unwrap());
        assert_eq!(errno(write), Errno::EPERM);
        batch.add(theirs.span(..).unwrap(), mine.span(..).unwrap()).unwrap();
        batch.await.unwrap();
        // After its end a client can add nothing.
        let mut late = other.batch(1).unwrap();
        other.close().await;
        assert_eq!(errno(late.copy(&foreign, 0, &foreign, 0, 1)), Errno::EACCES);
    });
}

#[test]
fn a_dropped_batch_goes_on_and_keeps_its_memory() {
    let mut setup = trn1();
    setup.function.fault("late-marker=5ms times=1").unwrap();
    setup.run(async |bench| {
        let (mut batch, expected, target) = reversed(&bench, 8).await;
        batch.try_start().unwrap();
        drop(batch);
        bench.pause(Duration::from_millis(1)).await;
        assert!(bench.client.in_flight_bytes() >= 8 * PAGE, "source and target are pinned");
        bench.pause(Duration::from_millis(10)).await;
        assert_eq!(bench.client.in_flight_bytes(), 0);
        assert_eq!(read(&bench, &target).await, expected);
    });
}

#[test]
fn a_batch_in_flight_takes_no_more_copies_until_it_is_cleared() {
    let mut setup = trn1();
    setup.function.fault("late-marker=5ms times=1").unwrap();
    setup.run(async |bench| {
        let (source, target) = (bench.pattern(PAGE, 1).await, bench.hbm(PAGE).await);
        let mut batch = bench.client.batch(4).unwrap();
        batch.copy(&source, 0, &target, 0, 16).unwrap();
        batch.try_start().unwrap();
        assert_eq!(errno(batch.copy(&source, 0, &target, 0, 16)), Errno::EBUSY);
        // The first list goes on alone with its memory; this one is new.
        batch.clear();
        batch.copy(&source, 16, &target, 16, 16).unwrap();
        (&mut batch).await.unwrap();
        assert_eq!(bench.device.counters().completed, 2);
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn dma_e16_a_batch_waits_for_room_or_says_again() {
    let mut setup = trn2();
    setup.function.fault("late-marker=2ms").unwrap();
    setup.run(async |bench| {
        let (source, target) = (bench.pattern(PAGE, 1).await, bench.hbm(PAGE).await);
        let filled = || {
            let mut batch = bench.client.batch(2032).unwrap();
            (0..2032).for_each(|_| batch.copy(&source, 0, &target, 0, 1).unwrap());
            batch
        };
        // Four lists of 2033 descriptors fit into the 8176 slots that may be used.
        let mut started: Vec<_> = (0..4).map(|_| filled()).collect();
        started.iter_mut().for_each(|batch| batch.try_start().unwrap());
        let mut refused = filled();
        assert_eq!(errno(refused.try_start()), Errno::EAGAIN);
        assert_eq!(bench.device.counters().descriptors, 4 * 2033, "never staged in part");
        refused.await.unwrap();
        for batch in started {
            batch.await.unwrap();
        }
    });
}

#[test]
fn dma_e17_v2_a_batch_caught_by_a_reset_is_issued_again() {
    v2().fault("drop-marker=1").budget(100).run(async |bench| {
        let (mut batch, expected, target) = reversed(&bench, 16).await;
        batch.try_start().unwrap();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        (&mut batch).await.unwrap();
        reset.await.unwrap();
        assert_eq!(bench.doorbell_values(0), [17, 17, 17, 17]);
        assert_eq!(read(&bench, &target).await, expected);
        assert_eq!(bench.client.in_flight_bytes(), 0);
    });
}

#[test]
fn v2_a_batch_that_reads_what_it_wrote_is_not_issued_again() {
    v2().fault("drop-marker=1").budget(100).run(async |bench| {
        let memory = bench.hbm(2 * PAGE).await;
        let mut batch = bench.client.batch(2).unwrap();
        batch.copy(&memory, 0, &memory, PAGE, PAGE).unwrap();
        batch.copy(&memory, PAGE, &memory, 0, PAGE).unwrap();
        batch.try_start().unwrap();
        let reset = bench.client.reset(CoreMap(1)).unwrap();
        assert_eq!(errno(batch.await), Errno::ECANCELED);
        reset.await.unwrap();
        assert_eq!(bench.doorbell_values(0), [3, 3]);
    });
}

#[test]
fn a_lost_marker_ends_the_batch_in_time_and_keeps_its_memory() {
    for setup in every().fault("drop-marker=1") {
        let is_v2 = matches!(setup.function.product, Product::Trn1 | Product::Inf2);
        let budget_us = if is_v2 { 8 * 39_600 + 300 + 29 } else { 8 * 79_800 + 100 + 15 };
        setup.run(async |bench| {
            let (mut batch, _, _target) = reversed(&bench, 8).await;
            batch.try_start().unwrap();
            let start = bench.now();
            assert_eq!(errno((&mut batch).await), Errno::ETIMEDOUT);
            let waited = bench.now().since(start).as_micros();
            assert!((budget_us..budget_us * 11 / 10).contains(&waited), "{waited} of {budget_us}");
            assert!(bench.client.in_flight_bytes() >= 8 * PAGE, "in quarantine");
            // The room of the list came back without the pins.
            let (source, target) = (bench.pattern(PAGE, 1).await, bench.hbm(PAGE).await);
            for _ in 0..8 {
                batch.copy(&source, 0, &target, 0, PAGE).unwrap();
            }
            (&mut batch).await.unwrap();
        });
    }
}

/// One step with a batch of at most 6 copies on memory of 4 pages.
#[derive(Clone, Debug)]
enum Step {
    Copy(u64, u64, u64),
    Start,
    Await,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let size = 4 * PAGE;
    prop_oneof![
        6 => (0..size + 9, 0..size + 9, 0..size + 9).prop_map(|(s, t, len)| Step::Copy(s, t, len)),
        1 => Just(Step::Start),
        2 => Just(Step::Await),
        1 => Just(Step::Clear),
    ]
}

/// Against plain memory: whatever was awaited is there, whatever was refused is not.
#[test]
fn batches_move_what_plain_memory_says() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let steps = prop::collection::vec(step(), 1..40);
    runner
        .run(&steps, |steps| {
            trn1().run(async |bench| play(&bench, steps).await);
            Ok(())
        })
        .unwrap();
}

async fn play(bench: &Bench, steps: Vec<Step>) {
    let size = 4 * PAGE;
    let (source, target) = (bench.pattern(size, 3).await, bench.hbm(size).await);
    target.fill(.., 0).unwrap().await.unwrap();
    let (from, mut expected) = (bytes(&source), vec![0; size as usize]);
    let mut batch = bench.client.batch(6).unwrap();
    let mut added: Vec<(usize, usize, usize)> = Vec::new();
    let mut is_started = false;
    for step in steps {
        match step {
            Step::Copy(s, t, len) => {
                let fits = len > 0 && len <= size && s <= size - len && t <= size - len;
                let expected = fits && added.len() < 6 && !is_started;
                let result = batch.copy(&source, s, &target, t, len);
                assert_eq!(result.is_ok(), expected, "{s} {t} {len} {result:?}");
                if expected {
                    added.push((s as usize, t as usize, len as usize));
                }
            }
            Step::Start => {
                assert_eq!(batch.try_start().is_ok(), !added.is_empty());
                is_started = !added.is_empty();
            }
            Step::Await => {
                let result = (&mut batch).await;
                assert_eq!(result.is_ok(), !added.is_empty());
                is_started = false;
                for (s, t, len) in added.drain(..) {
                    expected[t..t + len].copy_from_slice(&from[s..s + len]);
                }
            }
            Step::Clear => {
                // A list that was started goes on, and ends before whatever comes later.
                for (s, t, len) in added.drain(..).filter(|_| is_started) {
                    expected[t..t + len].copy_from_slice(&from[s..s + len]);
                }
                batch.clear();
                is_started = false;
            }
        }
    }
    drop(batch);
    if is_started {
        for (s, t, len) in added {
            expected[t..t + len].copy_from_slice(&from[s..s + len]);
        }
    }
    assert!(read(bench, &target).await == expected);
    assert_eq!(bench.client.in_flight_bytes(), 0);
}
