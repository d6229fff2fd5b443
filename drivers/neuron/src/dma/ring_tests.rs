//! Rings against a window that remembers: the worked examples of 02 §12 and 03 §17, word for word.

use alloc::vec::Vec;
use core::task::Waker;
use core::time::Duration;

use axon_platform::DmaBuf;

use super::*;
use crate::dma::fault::{Attention, Look};
use crate::hal::tests::hal;
use crate::hal::{BatchKind, Hal};
use crate::testing::{FakeMemory, FakeWindow, ring};
use crate::{CancelCause, Error};

/// Marker page of example A.
const MARKERS: u64 = 0x10_0000;

fn span(source: u64, destination: u64, bytes: u64) -> Span {
    let (source, destination) = (DeviceAddr(source), DeviceAddr(destination));
    Span { source, destination, bytes, fixed_source: false }
}

fn stage(ring: &mut Ring, span: Span) -> BatchId {
    let data = data_descriptors(span.bytes);
    assert!(ring.has_room(data));
    ring.stage(span, &mut None, false).unwrap()
}

/// Does what the device does with the marker of a batch.
fn complete(ring: &Ring, words: &DmaBuf, batch: BatchId) {
    let Marker { pair, value } = ring.slab[batch.slot].marker;
    words.store32(u64::from(pair) * 8 + 4, value).unwrap();
}

fn collect(ring: &mut Ring, batch: BatchId) -> Option<Result<(), Error>> {
    ring.collect(batch, Waker::noop())
}

struct Bench {
    hal: Hal,
    window: FakeWindow,
    ring: Ring,
    words: DmaBuf,
    now: Instant,
}

impl Bench {
    fn new(device: u16) -> Self {
        let hal = hal(device);
        let window = FakeWindow::new();
        let (ring, words) = ring(&hal, &window, 0x100_0000, 0x110_0000, MARKERS);
        window.take_writes();
        Bench { hal, window, ring, words, now: Instant::default() }
    }

    fn stage(&mut self, bytes: u64) -> BatchId {
        let batch = stage(&mut self.ring, span(0x5000, 0x9000_0000, bytes));
        self.ring.ring_doorbells(&self.window);
        batch
    }

    fn attend_after(&mut self, span: Duration) -> Attention {
        self.now = self.now + span;
        let mut look = Look { registers: &self.window, hal: &self.hal, now: self.now, reads: 0 };
        self.ring.attend(&mut look)
    }

    fn unit(&self, offset: u64) -> u64 {
        self.ring.name.unit + offset
    }
}

#[test]
fn the_register_trace_of_the_worked_example() {
    let hal = hal(0x7364);
    let window = FakeWindow::new();
    let (mut ring, _) = ring(&hal, &window, 0x1_2340_0000, 0x1_2342_0000, 0x1_2344_0000);
    let expected = [
        (0x0680_1074, 0x0000_0003),
        (0x0680_1020, 0x0300_0000),
        (0x0680_10b0, 0x0000_0100),
        (0x0680_1028, 0x2340_0000),
        (0x0680_102c, 0x0000_4001),
        (0x0680_1030, 0x0000_2000),
        (0x0680_10a0, 0x0000_0000),
        (0x0680_1020, 0x0303_0000),
        (0x0682_1020, 0x0300_0000),
        (0x0682_1064, 0x0000_0100),
        (0x0682_1028, 0x2342_0000),
        (0x0682_102c, 0x0000_4001),
        (0x0682_1030, 0x0000_2000),
        (0x0682_1054, 0x0000_0000),
        (0x0682_1020, 0x0303_0000),
    ];
    assert_eq!(window.take_writes(), expected);

    stage(&mut ring, span(0x4001_0000_2000, 0x0200_0000, 0x1000));
    assert_eq!(
        ring.memory.load(0),
        ([0x0d00_1000, 0x0508_0003, 0x2000, 0x4001], [0x0100_1000, 0, 0x0200_0000, 0])
    );
    assert_eq!(
        ring.memory.load(1),
        ([0x0d00_0004, 0x0108_0003, 0x2344_0000, 0x4001], [0x0100_0004, 0, 0x2344_0004, 0x4001])
    );
    ring.ring_doorbells(&window);
    assert_eq!(window.take_writes(), [(0x0682_1038, 2), (0x0680_1038, 2)]);
    assert!(window.take_reads().is_empty());
}

#[test]
fn example_a_one_page() {
    for (device, host, m2s) in [(0x7364, 0x4000, 0x0680_1038), (0x7164, 0x1000, 0x3060_1038)] {
        let mut bench = Bench::new(device);
        let source = u64::from(host) << 32 | 0x1234_5000;
        let batch = stage(&mut bench.ring, span(source, 0x0400_0000, 4096));
        let (tx, rx) = bench.ring.memory.load(0);
        assert_eq!(tx, [0x0d00_1000, 0x0508_0003, 0x1234_5000, host]);
        assert_eq!(rx, [0x0100_1000, 0, 0x0400_0000, 0]);
        let (tx, rx) = bench.ring.memory.load(1);
        assert_eq!(tx, [0x0d00_0004, 0x0108_0003, 0x0010_0000, host]);
        assert_eq!(rx, [0x0100_0004, 0, 0x0010_0004, host]);
        assert_eq!(bench.words.load32(0).unwrap(), 0xabcd_ef01);
        assert_eq!(bench.words.load32(4).unwrap(), 0);

        bench.ring.ring_doorbells(&bench.window);
        assert_eq!(bench.window.take_writes(), [(m2s + 0x2_0000, 2), (m2s, 2)]);
        assert_eq!(bench.ring.sweep(), 0);
        complete(&bench.ring, &bench.words, batch);
        assert_eq!(bench.ring.sweep(), 1);
        assert_eq!(collect(&mut bench.ring, batch), Some(Ok(())));
        assert_eq!(bench.words.load32(0).unwrap(), 0xabcd_ef01);
        assert_eq!(bench.words.load32(4).unwrap(), 0);
        assert_eq!(bench.ring.cursor.free(), 8176);
    }
}

#[test]
fn example_b_and_dma_e07_a_mebibyte_across_the_end_of_the_ring() {
    let mut bench = Bench::new(0x7364);
    for _ in 0..4095 {
        let batch = bench.stage(4096);
        complete(&bench.ring, &bench.words, batch);
        bench.ring.sweep();
        collect(&mut bench.ring, batch);
    }
    bench.window.take_writes();
    assert_eq!(bench.ring.cursor.producer(), 8190);
    let source = 0x4000_2000_0000;
    stage(&mut bench.ring, span(source, 0x0800_0000, (1 << 20) + 12));
    for k in 0..17u32 {
        let (tx, rx) = bench.ring.memory.load(8190 + k);
        let lap = if k < 2 { 1 } else { 2 };
        let (length, word1) = if k == 16 { (12, 0x0508_0003) } else { (0, 0x0108_0003) };
        let at = k * 0x1_0000;
        assert_eq!(tx, [0x0c00_0000 | lap << 24 | length, word1, 0x2000_0000 + at, 0x4000]);
        assert_eq!(rx, [lap << 24 | length, 0, 0x0800_0000 + at, 0]);
    }
    assert_eq!(bench.ring.memory.load(15).0[0], 0x0e00_0004);
    assert_eq!(bench.ring.cursor.producer(), 16);
    bench.ring.ring_doorbells(&bench.window);
    assert_eq!(bench.window.take_writes(), [(0x0682_1038, 18), (0x0680_1038, 18)]);
}

#[test]
fn example_d_a_fill_reads_its_first_block_again_and_again() {
    let mut bench = Bench::new(0x7364);
    let span = Span { fixed_source: true, ..span(0x0400_0000, 0x0401_0000, 200_000 - 65_536) };
    stage(&mut bench.ring, span);
    let expected = [
        (0x0d00_0000, 0x0108_0003, 0x0401_0000),
        (0x0d00_0000, 0x0108_0003, 0x0402_0000),
        (0x0d00_0d40, 0x0508_0003, 0x0403_0000),
    ];
    for (k, (word0, word1, destination)) in (0..).zip(expected) {
        let (tx, rx) = bench.ring.memory.load(k);
        assert_eq!(tx, [word0, word1, 0x0400_0000, 0]);
        assert_eq!(rx[2], destination);
    }
    bench.ring.ring_doorbells(&bench.window);
    assert_eq!(bench.window.take_writes(), [(0x0682_1038, 4), (0x0680_1038, 4)]);
}

#[test]
fn dma_e48_batches_staged_together_share_a_doorbell_pair() {
    let mut bench = Bench::new(0x7164);
    let batches: Vec<BatchId> = (0..70)
        .map(|k| stage(&mut bench.ring, span(0x1000 * k, 0x100_0000 + 0x1000 * k, 4096)))
        .collect();
    bench.ring.ring_doorbells(&bench.window);
    bench.ring.ring_doorbells(&bench.window);
    assert_eq!(bench.window.take_writes(), [(0x3062_1038, 140), (0x3060_1038, 140)]);
    // Each has a value of its own; the newest marker alone ends nothing.
    complete(&bench.ring, &bench.words, batches[69]);
    assert_eq!(bench.ring.sweep(), 0);
    for &batch in &batches {
        complete(&bench.ring, &bench.words, batch);
    }
    assert_eq!(bench.ring.sweep(), 70);
    assert!(batches.iter().all(|&batch| collect(&mut bench.ring, batch) == Some(Ok(()))));
    assert_eq!(bench.ring.cursor.free(), 8176);
}

#[test]
fn marker_values_count_up_and_skip_zero() {
    let mut bench = Bench::new(0x7364);
    assert_eq!([bench.ring.take_value(), bench.ring.take_value()], [0xabcd_ef01, 0xabcd_ef02]);
    bench.ring.next_value = u32::MAX;
    assert_eq!([bench.ring.take_value(), bench.ring.take_value()], [u32::MAX, 1]);
}

#[test]
fn udma_e30_udma_d02_a_late_marker_ends_nothing_but_its_own_batch() {
    let mut bench = Bench::new(0x7164);
    let first = bench.stage(4096);
    let old = bench.ring.slab[first.slot].marker;
    bench.attend_after(Duration::ZERO);
    assert_eq!(bench.attend_after(Duration::from_micros(39_900)), Attention::Wait);
    assert_eq!(bench.attend_after(Duration::from_micros(1)), Attention::Recovered);
    let failed = collect(&mut bench.ring, first).unwrap().unwrap_err();
    assert!(matches!(failed, Error::DmaTimeout { waited_us: 39_901, descriptors: 1, .. }));
    assert_eq!(bench.ring.quarantined(), 1);

    let second = bench.stage(4096);
    assert_ne!(bench.ring.slab[second.slot].marker.pair, old.pair, "the pair is not used again");
    bench.words.store32(u64::from(old.pair) * 8 + 4, old.value).unwrap();
    assert_eq!(bench.ring.sweep(), 0, "the late marker ends no newer batch");
    assert_eq!(bench.ring.sweep_quarantine(), 1, "but it proves its own batch quiet");
    assert_eq!(bench.ring.quarantined(), 0);
    complete(&bench.ring, &bench.words, second);
    assert_eq!(bench.ring.sweep(), 1);
    assert_eq!(collect(&mut bench.ring, second), Some(Ok(())));
}

#[test]
fn a_timeout_cancels_what_waits_behind_it_and_programs_the_ring_again() {
    let mut bench = Bench::new(0x7164);
    let (late, seen, other) = (bench.stage(4096), bench.stage(4096), bench.stage(4096));
    complete(&bench.ring, &bench.words, seen);
    bench.attend_after(Duration::ZERO);
    bench.window.take_writes();
    assert_eq!(bench.attend_after(Duration::from_millis(40)), Attention::Recovered);
    let (cfg, unit) = (0x0300_0000, bench.ring.name.unit);
    let writes = bench.window.take_writes();
    assert_eq!(writes[..2], [(unit + 0x1020, cfg), (unit + 0x2_1020, cfg)], "paused");
    assert!(writes.contains(&(unit + 0x10b0, 0x100)) && writes.contains(&(unit + 0x2_1064, 0x100)));
    assert!(matches!(collect(&mut bench.ring, late), Some(Err(Error::DmaTimeout { .. }))));
    assert_eq!(collect(&mut bench.ring, seen), Some(Ok(())), "its marker was there");
    assert_eq!(
        collect(&mut bench.ring, other),
        Some(Err(Error::Cancelled { why: CancelCause::RingFault }))
    );
    assert_eq!(bench.ring.quarantined(), 2);
    assert_eq!((bench.ring.cursor.producer(), bench.ring.cursor.ring_id()), (0, 1));
    bench.ring.release_quarantine();
    assert_eq!(bench.ring.slab.free(), 256);
}

#[test]
fn an_abort_ends_the_batch_before_its_deadline_and_faults_the_ring() {
    let mut bench = Bench::new(0x7364);
    let batch = bench.stage(4096);
    bench.attend_after(Duration::ZERO);
    bench.window.set(bench.unit(0x200), 0x2222);
    bench.window.set(bench.unit(0x3a000), 1 << 8);
    assert_eq!(bench.attend_after(Duration::from_millis(9)), Attention::Wait);
    assert!(bench.window.take_reads().is_empty(), "no look before 10 ms");
    assert_eq!(bench.attend_after(Duration::from_millis(2)), Attention::Faulted);
    let Some(Err(Error::DmaAborted { engine, report, .. })) = collect(&mut bench.ring, batch)
    else {
        panic!("an abort")
    };
    assert_eq!((engine.number(), report.m2s_causes), (128, 1 << 8));
    assert!(bench.ring.needs_reset);
    assert_eq!(bench.ring.phase, Phase::Stopped);
}

#[test]
fn a_large_batch_is_looked_at_in_tenths_of_its_budget() {
    for data in [256, 2032] {
        let mut bench = Bench::new(0x7164);
        let batch = bench.stage(u64::from(data) * MAX_BYTES);
        bench.attend_after(Duration::ZERO);
        let budget = bench.hal.budget(data, BatchKind::Sync);
        let needed = Duration::from_micros(budget.first_us);
        let tenth = budget.total() / 10;
        assert!(tenth > Duration::from_millis(500), "{tenth:?}");
        bench.attend_after(needed + tenth - Duration::from_millis(1));
        assert!(bench.window.take_reads().is_empty(), "looked early");
        for look in 1..=9 {
            assert_eq!(bench.attend_after(Duration::from_millis(1)), Attention::Wait);
            assert_eq!(bench.window.take_reads().len(), 2);
            if look < 9 {
                assert_eq!(bench.attend_after(tenth - Duration::from_millis(1)), Attention::Wait);
                assert!(bench.window.take_reads().is_empty());
            }
        }
        // The deadline does not wait for a look.
        let left = budget.total() - needed - tenth * 9;
        assert_eq!(bench.attend_after(left), Attention::Recovered);
        assert!(collect(&mut bench.ring, batch).unwrap().is_err());
    }
}

#[test]
fn a_ring_that_does_not_drain_is_out_of_work_after_10_ms() {
    let mut bench = Bench::new(0x7164);
    bench.stage(4096);
    bench.attend_after(Duration::ZERO);
    bench.window.set(bench.unit(0x2_1024), 1 << 29);
    assert_eq!(bench.attend_after(Duration::from_millis(40)), Attention::Draining);
    assert_eq!(bench.attend_after(Duration::from_millis(9)), Attention::Draining);
    assert_eq!(bench.attend_after(Duration::from_millis(1)), Attention::Faulted);
    assert!(bench.ring.needs_reset);
}

#[test]
fn a_device_that_answers_all_ones_is_gone() {
    let mut bench = Bench::new(0x7164);
    bench.stage(4096);
    bench.attend_after(Duration::ZERO);
    for offset in [0x200, 0x2_0200] {
        bench.window.set(bench.unit(offset), u32::MAX);
    }
    // With an answer elsewhere the value is data: every field of it would mean "reserved".
    bench.window.set(0x30fa_0024, 7);
    assert_eq!(bench.attend_after(Duration::from_millis(11)), Attention::Recovered);
    bench.stage(4096);
    bench.attend_after(Duration::ZERO);
    bench.window.set(0x30fa_0024, u32::MAX);
    assert_eq!(bench.attend_after(Duration::from_millis(11)), Attention::Gone);
}

#[test]
fn a_clock_starts_when_a_batch_becomes_the_oldest() {
    let mut bench = Bench::new(0x7164);
    let (first, second) = (bench.stage(4096), bench.stage(4096));
    bench.attend_after(Duration::ZERO);
    assert_eq!(bench.attend_after(Duration::from_millis(39)), Attention::Wait);
    complete(&bench.ring, &bench.words, first);
    assert_eq!(bench.ring.sweep(), 1);
    assert_eq!(bench.attend_after(Duration::from_millis(39)), Attention::Wait);
    assert_eq!(bench.attend_after(Duration::from_millis(39)), Attention::Wait);
    assert_eq!(bench.attend_after(Duration::from_millis(1)), Attention::Recovered);
    assert!(collect(&mut bench.ring, second).unwrap().is_err());
}

#[test]
fn pins_are_held_until_the_marker_or_the_end_of_quarantine() {
    let mut bench = Bench::new(0x7164);
    let mut memory = FakeMemory::new();
    let chunk = memory.device(0x9000_0000, 4096, None);
    let stage = |bench: &mut Bench| {
        let mut pins = chunk.pin().map(PinPair::from);
        let span = span(0x5000, 0x9000_0000, 4096);
        bench.ring.stage(span, &mut pins, false).unwrap()
    };
    let batch = stage(&mut bench);
    assert_eq!(chunk.header().pins(), 1);
    bench.ring.abandon(batch);
    assert_eq!(chunk.header().pins(), 1, "a dropped future cancels nothing");
    complete(&bench.ring, &bench.words, batch);
    bench.ring.sweep();
    assert_eq!((chunk.header().pins(), bench.ring.slab.free()), (0, 256));

    let batch = stage(&mut bench);
    bench.attend_after(Duration::ZERO);
    bench.attend_after(Duration::from_millis(40));
    assert!(collect(&mut bench.ring, batch).unwrap().is_err());
    assert_eq!((chunk.header().pins(), bench.ring.slab.free()), (1, 255));
    bench.ring.release_quarantine();
    assert_eq!((chunk.header().pins(), bench.ring.slab.free()), (0, 256));
}

#[test]
fn dma_e17_dma_e47_dma_d25_a_copy_caught_by_a_reset_is_issued_again_three_times() {
    let mut bench = Bench::new(0x7164);
    let batch = bench.stage(4096);
    let mut markers = Vec::new();
    for lap in 0..3 {
        markers.push(bench.ring.slab[batch.slot].marker);
        bench.ring.catch(true);
        bench.ring.program(&bench.window);
        bench.ring.replay();
        assert_eq!(bench.ring.in_flight.len(), 1, "lap {lap}");
        assert_eq!(bench.ring.memory.load(0).0[0], 0x0d00_1000);
        bench.window.take_writes();
        bench.ring.ring_doorbells(&bench.window);
        assert_eq!(bench.window.take_writes().len(), 2);
    }
    markers.push(bench.ring.slab[batch.slot].marker);
    for (k, marker) in markers.iter().enumerate() {
        assert!(markers[..k].iter().all(|m| m.pair != marker.pair && m.value != marker.value));
    }
    bench.ring.catch(true);
    assert_eq!(
        collect(&mut bench.ring, batch),
        Some(Err(Error::Cancelled { why: CancelCause::Reset }))
    );
    // The marker of any lap proves the batch quiet, and every pair comes back.
    bench.words.store32(u64::from(markers[1].pair) * 8 + 4, markers[1].value).unwrap();
    assert_eq!(bench.ring.sweep_quarantine(), 1);
    assert_eq!((bench.ring.slab.free(), bench.ring.spare_pairs), (256, NO_PAIR_LENT));
}

#[test]
fn a_replay_that_times_out_is_issued_again_then_cancelled() {
    let mut bench = Bench::new(0x7164);
    let batch = bench.stage(4096);
    bench.ring.catch(true);
    bench.ring.program(&bench.window);
    bench.ring.replay();
    for _ in 1..3 {
        bench.attend_after(Duration::ZERO);
        assert_eq!(bench.attend_after(Duration::from_millis(40)), Attention::Recovered);
        assert_eq!(collect(&mut bench.ring, batch), None);
    }
    bench.attend_after(Duration::ZERO);
    assert_eq!(bench.attend_after(Duration::from_millis(40)), Attention::Recovered);
    assert_eq!(
        collect(&mut bench.ring, batch),
        Some(Err(Error::Cancelled { why: CancelCause::Reset }))
    );
    assert_eq!(bench.ring.counters().replays, 3);
}

#[test]
fn a_copy_onto_itself_and_later_generations_are_not_issued_again() {
    let mut bench = Bench::new(0x7164);
    let batch = stage(&mut bench.ring, span(0x9000_0000, 0x9000_0800, 4096));
    bench.ring.catch(true);
    assert!(collect(&mut bench.ring, batch).unwrap().is_err());
    let batch = stage(&mut bench.ring, span(0x9000_0000, 0xa000_0800, 4096));
    bench.ring.catch(false);
    assert_eq!(
        collect(&mut bench.ring, batch),
        Some(Err(Error::Cancelled { why: CancelCause::Reset }))
    );
}

#[test]
fn dma_e16_dma_d02_udma_d12_a_full_ring_stages_nothing() {
    let mut bench = Bench::new(0x7364);
    for _ in 0..4 {
        stage(&mut bench.ring, span(0, 1 << 32, MAX_BATCH_BYTES));
    }
    assert_eq!(bench.ring.cursor.free(), 8176 - 4 * 2033);
    assert!(!bench.ring.has_room(44) && bench.ring.has_room(43));
}

#[test]
fn udma_e04_a_pair_moves_64_kib_at_most() {
    let mut bench = Bench::new(0x7364);
    let batch = stage(&mut bench.ring, span(0x1000, 0x9000_0000, 65_537));
    assert_eq!(bench.ring.slab[batch.slot].count, 3, "two data descriptors and the marker");
    let lengths = [0, 1].map(|at| bench.ring.memory.load(at).1[0] & 0xffff);
    assert_eq!(lengths, [0, 1]);
}
