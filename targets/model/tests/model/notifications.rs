//! Notification queues from outside: specification 06 §4, §7.2, §14, §16.

use axon_model::report::EventKind;
use axon_model::{FunctionConfig, NotificationBlock, Posted, Product, QueueState};
use proptest::prelude::*;

use crate::bench::Bench;

const RING: u64 = 0x1234_5000;
const PAGE: u32 = 4096;
const CORE0: NotificationBlock = NotificationBlock::Core(0);
/// NOTIFIC block of core 0 of V2.
const BLOCK: u64 = 0x3053_5000;

fn queue(block: u64, number: u64) -> u64 {
    block + 0x100 + 0x28 * number
}

fn arm(bench: &mut Bench, queue: u64, base: u64, size: u32) {
    bench.write(queue + 4, (base >> 32) as u32);
    bench.write(queue, base as u32);
    bench.write(queue + 8, size);
}

/// A Trn1 with queue 4 of core 0 armed on a page of host memory.
fn armed() -> Bench {
    let mut bench = Bench::new(Product::Trn1);
    let base = bench.tagged(RING);
    arm(&mut bench, queue(BLOCK, 4), base, PAGE);
    bench
}

fn state(bench: &Bench, number: u8) -> QueueState {
    bench.function.queue_state(CORE0, number).unwrap()
}

/// First word of the record at `index` of the ring.
fn first_word(bench: &Bench, index: u64) -> u32 {
    bench.peek32(RING + 16 * index)
}

#[test]
fn every_block_of_the_tables_has_queues() {
    use NotificationBlock::{Core, Engine, TopSp};
    for (product, block, number, offset) in [
        (Product::Trn1, Core(0), 4, 0x3053_51a0),
        (Product::Trn1, Engine(19), 0, 0x30b1_6100),
        (Product::Trn2, Core(5), 2, 0x4618_1150),
        (Product::Trn2, Engine(127), 0, 0xb5f4_1100),
        (Product::Trn2, TopSp(9), 1, 0x46a4_0128),
        (Product::Trn1, TopSp(5), 2, 0x30f4_4150),
        (Product::Trn2, Core(0), 4, 0x0600_11a0),
        (Product::Trn2, Engine(19), 0, 0x8334_1100),
        (Product::Trn3, Core(7), 15, 0x4658_1358),
    ] {
        let mut bench = Bench::new(product);
        let base = bench.tagged(RING);
        arm(&mut bench, offset, base, 0x4000);
        assert_eq!(bench.read(offset + 4), (base >> 32) as u32, "{offset:#x}");
        let state = bench.function.queue_state(block, number).unwrap();
        assert_eq!((state.base, state.size, state.armed), (base, 0x4000, true), "{offset:#x}");
        assert_eq!(bench.report().unmodelled, []);
    }
    let bench = Bench::new(Product::Trn1);
    assert!(bench.function.queue_state(Core(2), 0).is_none());
    assert!(bench.function.queue_state(TopSp(6), 0).is_none());
    assert!(bench.function.queue_state(Core(0), 16).is_none());
    let bench = Bench::new(Product::Trn2);
    assert!(bench.function.queue_state(TopSp(16), 0).is_none());
}

#[test]
fn nq_e20_three_records_and_then_none() {
    let mut bench = armed();
    bench.control("post nc0 4 count=3 sequence=7 line=0x1234 tag=9");
    assert_eq!(bench.read(queue(BLOCK, 4) + 0x10), 0x30);
    for index in 0..3 {
        assert_eq!(first_word(&bench, index), 0x8910_1234);
        assert_eq!(
            bench.peek(RING + 16 * index + 4, 12),
            [0, 0, 3, 0, 7 + index as u8, 0, 0, 0, 0, 0, 0, 0]
        );
    }
    assert_eq!(first_word(&bench, 3), 0);
    let QueueState { posted, written, phase, .. } = state(&bench, 4);
    assert_eq!((posted, written, phase), (3, 3, true));
}

#[test]
fn nq_e21_the_phase_inverts_with_every_pass() {
    let mut bench = armed();
    let q = queue(BLOCK, 4);
    bench.control("post nc0 4 count=255");
    bench.write(q + 0xc, 0xff0);
    bench.control("post nc0 4");
    assert_eq!(bench.read(q + 0x10), 0);
    assert_eq!(first_word(&bench, 255) >> 31, 1);
    bench.write(q + 0xc, 0);
    bench.control("post nc0 4");
    assert_eq!(first_word(&bench, 0) >> 31, 0);
    assert_eq!(first_word(&bench, 1) >> 31, 1);
    assert_eq!(state(&bench, 4).written, 257);
}

#[test]
fn nq_e22_a_full_ring_drops_and_says_so() {
    let mut bench = armed();
    bench.control("post nc0 4 count=300");
    let QueueState { posted, written, dropped, tail, .. } = state(&bench, 4);
    assert_eq!((posted, written, dropped, tail), (300, 255, 45, 0xff0));
    assert_eq!(bench.read(BLOCK + 0xf40), 1 << 29);
    // Only the bits written 0 are cleared.
    bench.write(BLOCK + 0xf40, u32::MAX);
    assert_eq!(bench.read(BLOCK + 0xf40), 1 << 29);
    bench.write(BLOCK + 0xf40, !(1 << 29));
    assert_eq!(bench.read(BLOCK + 0xf40), 0);
}

#[test]
fn a_full_ring_with_back_pressure_holds_its_producer_up() {
    let mut bench = armed();
    bench.write(BLOCK + 0x08, 1 << 4);
    bench.control("post nc0 4 count=300 sequence=0");
    let before = state(&bench, 4);
    assert_eq!((before.written, before.stalled, before.dropped), (255, 45, 0));
    // Another burst queues up behind.
    bench.control("post nc0 4 count=2 sequence=300");
    bench.write(queue(BLOCK, 4) + 0xc, 0x20);
    let after = state(&bench, 4);
    assert_eq!((after.written, after.stalled, after.tail), (257, 45, 0x10));
    assert_eq!(bench.peek32(RING + 8), 256);
    // One more than the ring has space for: the consumer frees all of it.
    bench.write(queue(BLOCK, 4) + 0xc, 0x10);
    let last = state(&bench, 4);
    assert_eq!((last.posted, last.written, last.stalled), (302, 302, 0));
    assert_eq!(bench.read(BLOCK + 0xf40), 0);
}

#[test]
fn a_queue_that_ignores_full_overwrites() {
    let mut bench = armed();
    bench.write(BLOCK + 0x18, 1 << 4);
    bench.control("post nc0 4 count=300 sequence=0");
    let QueueState { written, dropped, tail, .. } = state(&bench, 4);
    assert_eq!((written, dropped, tail), (300, 0, 44 * 16));
    assert_eq!((first_word(&bench, 43) >> 31, first_word(&bench, 44) >> 31), (0, 1));
    assert_eq!(bench.read(BLOCK + 0xf40), 1 << 29);
}

#[test]
fn nq_e23_nothing_is_written_once_the_size_is_zero() {
    let mut bench = armed();
    bench.write(BLOCK + 0x08, 1 << 4);
    bench.control("post nc0 4 count=300");
    bench.write(queue(BLOCK, 4) + 8, 0);
    assert_eq!(bench.read(queue(BLOCK, 4) + 0x10), 0);
    let before = bench.peek(RING, PAGE as usize);
    bench.write(queue(BLOCK, 4) + 0xc, 0);
    bench.control("post nc0 4 count=5");
    assert_eq!(bench.peek(RING, PAGE as usize), before);
    let QueueState { written, stalled, dropped, unarmed, .. } = state(&bench, 4);
    assert_eq!((written, stalled, dropped, unarmed), (255, 0, 45, 5));
}

#[test]
fn once_software_enables_queues_only_enabled_ones_take_records() {
    let mut bench = armed();
    bench.control("post nc0 4 count=2");
    // The first write of the register takes queue 4 away: it begins anew.
    bench.write(BLOCK + 0x14, 1 << 3);
    assert_eq!(bench.read(queue(BLOCK, 4) + 0x10), 0);
    assert_eq!(bench.function.post_notification(CORE0, 4, [0; 16]), Some(Posted::Unarmed));
    bench.write(BLOCK + 0x14, 1 << 3 | 1 << 4);
    assert_eq!(bench.function.post_notification(CORE0, 4, [0xff; 16]), Some(Posted::Written));
    assert_eq!(bench.read(queue(BLOCK, 4) + 0x10), 0x10);
    let mut config = FunctionConfig::new(Product::Trn1, 0);
    config.auto_enable = false;
    let mut strict = Bench::with(config);
    let base = strict.tagged(RING);
    arm(&mut strict, queue(BLOCK, 4), base, PAGE);
    assert_eq!(strict.function.post_notification(CORE0, 4, [0; 16]), Some(Posted::Unarmed));
}

#[test]
fn rings_in_hbm_and_addresses_that_lead_nowhere() {
    let mut bench = Bench::new(Product::Trn2);
    let q = queue(0x0600_1000, 4);
    arm(&mut bench, q, 0x40_0010_0000, PAGE);
    bench.control("post nc0 4 count=2 sequence=5");
    assert_eq!(bench.hbm(0x10_0010_0008, 1), [5]);
    assert_eq!(bench.hbm(0x10_0010_0013, 1)[0] & 0x80, 0x80);
    for nowhere in [0x6_0000_0000, 0x80_06c8_4000, 0x30_0000_0000] {
        arm(&mut bench, q, nowhere, PAGE);
        assert_eq!(bench.function.post_notification(CORE0, 4, [0; 16]), Some(Posted::Nowhere));
    }
    let report = bench.report();
    assert_eq!(report.notifications.len(), 1);
    assert_eq!((report.notifications[0].nowhere, report.notifications[0].written), (3, 2));
    let kinds = report.expected_events.iter().map(|event| event.kind);
    assert_eq!(kinds.filter(|kind| *kind == EventKind::NotificationAddress).count(), 3);
}

#[test]
fn sizes_that_hold_no_record_and_pointers_that_name_none() {
    let mut bench = armed();
    for size in [1, 2, 4, 8, 15] {
        let base = bench.tagged(RING);
        arm(&mut bench, queue(BLOCK, 4), base, size);
        assert_eq!(bench.function.post_notification(CORE0, 4, [1; 16]), Some(Posted::Unarmed));
    }
    let mut bench = armed();
    for head in [0x1000, 8, u32::MAX] {
        bench.write(queue(BLOCK, 4) + 0xc, head);
        assert_eq!(bench.read(queue(BLOCK, 4) + 0xc), 0);
    }
    assert_eq!(bench.report().violation_count, 3);
    // The producer pointer is the hardware's.
    bench.write(queue(BLOCK, 4) + 0x10, 0x40);
    assert_eq!(bench.read(queue(BLOCK, 4) + 0x10), 0);
}

#[test]
fn garbage_keeps_its_phase_only_when_asked_to() {
    let mut bench = armed();
    bench.control("post nc0 4 count=100 noise=1");
    assert!((0..100).all(|index| first_word(&bench, index) >> 31 == 1));
    bench.control("post nc0 4 count=100 noise=2 phase=as-is");
    let set = (100..200).filter(|&index| first_word(&bench, index) >> 31 == 1).count();
    assert!((20..80).contains(&set), "{set} of 100");
    bench.control("post nc0 4 phase=wrong");
    assert_eq!(first_word(&bench, 200) >> 31, 0);
    bench.control("post nc0 4 raw=00112233445566778899aabbccddeeff");
    assert_eq!(bench.peek(RING + 201 * 16, 5), [0x00, 0x11, 0x22, 0xb3, 0x44]);
}

#[test]
fn bursts_come_by_and_by() {
    let mut bench = armed();
    bench.control("post nc0 4 count=10 burst=4 every=1ms sequence=0");
    assert_eq!(state(&bench, 4).posted, 4);
    bench.pass(1_000_000);
    assert_eq!(state(&bench, 4).posted, 8);
    bench.pass(5_000_000);
    assert_eq!(state(&bench, 4).written, 10);
    assert_eq!(bench.peek32(RING + 9 * 16 + 8), 9);
    assert_eq!(bench.function.next_event(), None);
}

#[test]
fn a_reset_of_the_core_ends_its_queues() {
    let mut bench = armed();
    let topsp = queue(0x30e0_4000, 2);
    let base = bench.tagged(RING + 0x1000);
    arm(&mut bench, topsp, base, PAGE);
    bench.write(BLOCK + 0x14, 1 << 4);
    bench.control("post nc0 4 count=1000 every=1ms");
    let misc = bench.misc();
    bench.write(misc + 0x1d8, 0x0701);
    bench.write(misc + 0x1ec, 2);
    bench.write(misc + 0x800, 1);
    bench.pass(100_000_000);
    let after = state(&bench, 4);
    assert_eq!((after.posted, after.size, after.armed), (1, 0, false));
    assert!(!bench.function.queue_state(NotificationBlock::TopSp(0), 2).unwrap().armed);
    assert_eq!(bench.read(BLOCK + 0x14), 0);
    // The enable register counts as never written again.
    let base = bench.tagged(RING);
    arm(&mut bench, queue(BLOCK, 4), base, PAGE);
    assert!(state(&bench, 4).armed);
}

#[test]
fn a_stuck_tail_stays_until_the_reset() {
    let mut bench = armed();
    bench.control("post nc0 4 count=3");
    bench.control("fault stuck-tail=1");
    bench.write(queue(BLOCK, 4) + 8, 0);
    assert_eq!(bench.read(queue(BLOCK, 4) + 0x10), 0x30);
    let misc = bench.misc();
    bench.write(misc + 0x1ec, 1);
    bench.write(misc + 0x800, 1);
    bench.pass(100_000_000);
    assert_eq!(bench.read(queue(BLOCK, 4) + 0x10), 0);
}

#[test]
fn device_time_counts_in_every_block() {
    let mut bench = Bench::new(Product::Trn1);
    bench.pass(0x1_0000_0005);
    for block in [BLOCK, 0x30e0_4000, 0x3040_1000] {
        assert_eq!((bench.read(block + 4), bench.read(block)), (1, 5));
    }
}

#[test]
fn lines_that_make_no_sense_are_refused() {
    let mut bench = armed();
    for line in [
        "post",
        "post nc0",
        "post nc2 0",
        "post nc0 16",
        "post nc0 4 count",
        "post nc0 4 count=many",
        "post nc0 4 hint=16",
        "post nc0 4 tag=32",
        "post nc0 4 raw=00",
        "post nc0 4 every=0",
        "post nc0 4 colour=red",
        "queue nc0 4 5",
        "queue nc0",
        "pe 2 0x100 0",
        "pe 0 0xff 0",
        "pe 0 0x101 0",
    ] {
        assert!(bench.function.control(line).is_err(), "{line}");
    }
    assert_eq!(state(&bench, 4).posted, 0);
    let answer = bench.function.control("queue nc0 4").unwrap();
    assert!(answer.contains("size=4096") && answer.contains("armed=true"), "{answer}");
}

#[test]
fn pe_counters_count_up_in_both_halves() {
    let mut bench = Bench::new(Product::Trn1);
    let idle = 0x305b_1100 + 4 * 0x40 + 0x10;
    bench.pass(5);
    assert_eq!((bench.read(idle), bench.read(idle + 4)), (5, 0));
    bench.control("pe 0 0x210 0xffffffff");
    assert_eq!((bench.read(idle + 4), bench.read(idle)), (0, u32::MAX));
    bench.pass(1);
    assert_eq!((bench.read(idle + 4), bench.read(idle)), (1, 0));
    bench.write(idle, 77);
    assert_eq!(bench.read(idle), 0);
    assert_eq!(bench.read(0x305b_1100), 0);
    assert_eq!(bench.report().unmodelled, []);
}

proptest! {
    /// Whatever is posted and consumed, in both policies: every record is written once, in order,
    /// where the phase walk finds it, or counted.
    #[test]
    fn posted_is_written_or_counted(
        stall in any::<bool>(),
        steps in proptest::collection::vec((0u64..400, 0u64..300), 1..20),
    ) {
        let mut bench = armed();
        bench.write(BLOCK + 0x08, u32::from(stall) << 4);
        let (mut next, mut stale, mut seen) = (0u64, 0u32, Vec::new());
        let mut sequence = 0;
        for (post, take) in steps {
            bench.control(&format!("post nc0 4 count={post} sequence={sequence}"));
            sequence += post;
            for _ in 0..take {
                if first_word(&bench, next) >> 31 == stale {
                    break;
                }
                seen.push(bench.peek32(RING + 16 * next + 8));
                next = (next + 1) % 256;
                stale ^= u32::from(next == 0);
            }
            bench.write(queue(BLOCK, 4) + 0xc, 16 * next as u32);
        }
        let QueueState { posted, written, stalled, dropped, tail, .. } = state(&bench, 4);
        prop_assert_eq!(posted, sequence);
        prop_assert_eq!(posted, written + stalled + dropped);
        prop_assert_eq!(dropped == 0 || !stall, true);
        prop_assert_eq!(u64::from(tail), written * 16 % 4096);
        prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
        if stall {
            prop_assert!(seen.iter().enumerate().all(|(place, value)| place as u32 == *value));
        }
    }
}
