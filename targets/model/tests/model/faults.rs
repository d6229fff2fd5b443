//! Fault knobs: one test a name (specification 00 §8, 01 §14.13, 03 "What the device model must do").

use axon_model::report::EventKind;
use axon_model::{FunctionConfig, Product};

use crate::bench::{Bench, MARKER, MARKERS, Rings, pattern};

const HBM: u64 = 0x200_0000;
const HOST: u64 = 0x4000_0000;

fn ready(fault: &str) -> (Bench, Rings) {
    let mut bench = Bench::new(Product::Trn1);
    let rings = Rings::ready(&mut bench, 32, 0, 64);
    bench.control(&format!("fault {fault}"));
    (bench, rings)
}

/// One marker; whether it was seen at once.
fn marker(bench: &mut Bench, rings: &mut Rings) -> bool {
    rings.marker(bench);
    rings.ring(bench, 1, 1);
    rings.marker_seen(bench)
}

#[test]
fn drop_marker_hits_the_ones_it_was_told() {
    let (mut bench, mut rings) = ready("drop-marker=2 after=1");
    let seen: Vec<bool> = (0..4).map(|_| marker(&mut bench, &mut rings)).collect();
    assert_eq!(seen, [true, false, false, true]);
    assert_eq!(bench.report().markers, 2);
    let (tx, _) = bench.windows(32, 0);
    assert_eq!(bench.read(tx + 0x40), 0x4000_0004, "the descriptors were consumed");
}

#[test]
fn late_marker_comes_after_a_queue_reset_and_not_after_a_reset() {
    let (mut bench, mut rings) = ready("late-marker=20ms times=2");
    assert!(!marker(&mut bench, &mut rings));
    rings.restart(&mut bench);
    bench.pass(19_999_999);
    assert!(!rings.marker_seen(&bench));
    assert_eq!(bench.function.next_event(), Some(20_000_000));
    bench.pass(1);
    assert!(rings.marker_seen(&bench));

    assert!(!marker(&mut bench, &mut rings));
    bench.write(0x30fa_01ec, 1);
    bench.write(0x30fa_0800, 1);
    bench.pass(60_000_000);
    assert!(!rings.marker_seen(&bench));
}

#[test]
fn wrong_marker_writes_another_value() {
    let (mut bench, mut rings) = ready("wrong-marker=0x1234");
    assert!(!marker(&mut bench, &mut rings));
    assert_eq!(bench.peek32(MARKERS + 4), 0x1234);
    assert!(marker(&mut bench, &mut rings));
}

#[test]
fn abort_descriptor_stops_with_its_cause() {
    for (cause, offset, bits) in
        [("a8", 0x3_a000, 1 << 8), ("b1", 0x3_a040, 2), ("a17", 0x3_a000, 1 << 17)]
    {
        let (mut bench, mut rings) = ready(&format!("abort-descriptor={cause} after=1"));
        assert!(marker(&mut bench, &mut rings));
        assert!(!marker(&mut bench, &mut rings));
        let u = bench.unit(32);
        assert_eq!(bench.read(u + offset), bits);
        let report = bench.report();
        assert!(report.violations.is_empty(), "an injected abort is no violation");
        let kinds: Vec<EventKind> = report.expected_events.iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [EventKind::Abort]);
    }
}

#[test]
fn short_write_leaves_bytes_out_but_no_marker() {
    let (mut bench, mut rings) = ready("short-write=3");
    bench.poke(HOST, &pattern(64, 1));
    rings.pair(&bench, bench.tagged(HOST), HBM, 64);
    rings.marker(&bench);
    rings.ring(&mut bench, 2, 2);
    assert!(rings.marker_seen(&bench));
    let expected = [&pattern(64, 1)[..61], &[0; 3]].concat();
    assert_eq!(bench.hbm(HBM, 64), expected);
}

#[test]
fn slow_executes_later_in_order() {
    let (mut bench, mut rings) = ready("slow=5us");
    assert!(!marker(&mut bench, &mut rings));
    let (tx, rx) = bench.windows(32, 0);
    assert_eq!(bench.read(tx + 0x24) >> 29 & 1, 1);
    bench.pass(5000);
    assert!(rings.marker_seen(&bench));
    assert_eq!((bench.read(tx + 0x24), bench.read(rx + 0x24)), (0, 0));
    // A queue reset forgets what was slow.
    assert!(!marker(&mut bench, &mut rings));
    rings.restart(&mut bench);
    bench.pass(5000);
    assert!(!rings.marker_seen(&bench));
}

/// Which of the copies of queues 0 to 3 have landed, in steps of 1 µs.
fn arrivals(seed: u64) -> Vec<[bool; 4]> {
    let mut bench = Bench::new(Product::Trn1);
    bench.init_engine(32);
    bench.control(&format!("seed {seed}"));
    bench.control("fault jitter=20us");
    bench.poke32(HOST, 0x5a5a_5a5a);
    let place = |queue: u64| HOST + 0x1000 + queue * 64;
    for queue in 0..4 {
        let mut rings = Rings::on(&mut bench, 32, queue, 64);
        let (from, to) = (bench.tagged(HOST), bench.tagged(place(queue)));
        rings.pair(&bench, from, to, 4);
        rings.ring(&mut bench, 1, 1);
    }
    let mut seen = Vec::new();
    for _ in 0..=21 {
        seen.push([0, 1, 2, 3].map(|queue| bench.peek32(place(queue)) != 0));
        bench.pass(1000);
    }
    seen
}

#[test]
fn jitter_ends_queues_out_of_order_and_alike_for_one_seed() {
    let all: Vec<_> = (0..8).map(arrivals).collect();
    assert!(all.iter().all(|seen| seen.last() == Some(&[true; 4])), "at most the span");
    assert_eq!(arrivals(3), all[3]);
    let overtaken = |seen: &Vec<[bool; 4]>| seen.iter().any(|now| now[3] && !now[0]);
    assert!(all.iter().any(overtaken), "a later doorbell ends first");
    assert!(all.iter().any(|seen| seen != &all[0]));
}

#[test]
fn hang_engine_hangs_one_engine_until_its_reset() {
    let (mut bench, mut rings) = ready("hang-engine=32 after=1");
    assert!(marker(&mut bench, &mut rings));
    assert!(!marker(&mut bench, &mut rings));
    let mut other = Rings::ready(&mut bench, 33, 0, 64);
    assert!(marker(&mut bench, &mut other));
    // Paused it never counts as drained; a queue reset does not help.
    let (tx, _) = bench.windows(32, 0);
    bench.write(tx + 0x20, 0x0300_0000);
    assert_eq!(bench.read(tx + 0x24) >> 28 & 3, 2);
    rings.restart(&mut bench);
    assert!(!marker(&mut bench, &mut rings));
    bench.control("fault clear");
    bench.write(0x30fa_01d8, 0x0701);
    bench.write(0x30fa_01ec, 2);
    bench.write(0x30fa_0800, 1);
    bench.pass(20_000_000);
    bench.init_engine(32);
    rings.restart(&mut bench);
    assert!(marker(&mut bench, &mut rings));
}

#[test]
fn hang_engine_without_a_number_hits_doorbells_in_a_reset_window() {
    let (mut bench, mut rings) = ready("hang-engine");
    assert!(marker(&mut bench, &mut rings));
    // A reset of core 1 leaves engine 32 alone, yet its queue hangs until RST_Q.
    bench.write(0x30fa_01d8, 0x3802);
    bench.write(0x30fa_01ec, 2);
    bench.write(0x30fa_0800, 1);
    assert!(!marker(&mut bench, &mut rings));
    bench.pass(20_000_000);
    assert!(!rings.marker_seen(&bench));
    rings.restart(&mut bench);
    assert!(marker(&mut bench, &mut rings));
}

#[test]
fn fw_late_reads_dead_until_firmware_is_up() {
    let mut config = FunctionConfig::new(Product::Trn2, 0);
    config.fault("fw-late=3s").expect("a fault");
    let mut bench = Bench::with(config);
    assert_eq!(bench.read(0x06c8_4024), 0xdead_beef);
    bench.pass(2_999_999_999);
    assert_eq!(bench.read(0x06c8_4000), 0xdead_beef);
    bench.pass(1);
    assert_eq!((bench.read(0x06c8_4024), bench.read(0x06c8_4000)), (0, 7));
}

#[test]
fn dead_reads_and_all_ones_begin_when_told() {
    let mut bench = Bench::new(Product::Trn1);
    bench.control("fault dead-reads after=1 times=2");
    let reads: Vec<u32> = (0..4).map(|_| bench.read(0x30fa_0000)).collect();
    assert_eq!(reads, [7, 0xdead_beef, 0xdead_beef, 7]);
    bench.control("fault all-ones after=1");
    assert_eq!(bench.read(0x30fa_0000), 7);
    assert_eq!(bench.read(0x30fa_0000), u32::MAX);
    bench.control("fault clear");
    assert_eq!(bench.read(0x3000_0200), u32::MAX, "gone is gone");
    let mut id = [0; 4];
    bench.function.config_read(0, &mut id);
    assert_eq!(id, [0xff; 4]);
}

#[test]
fn a_function_that_is_gone_writes_no_more() {
    let (mut bench, mut rings) = ready("late-marker=1ms");
    assert!(!marker(&mut bench, &mut rings));
    bench.control("fault all-ones");
    bench.read(0x30fa_0000);
    bench.pass(1_000_000);
    assert!(!rings.marker_seen(&bench));
}

#[test]
fn identity_faults_are_chosen_before_the_function_exists() {
    let mut config = FunctionConfig::new(Product::Trn1, 3);
    for fault in ["bar4-absent", "bar-unassigned", "bad-device-id", "dup-routing-id"] {
        config.fault(fault).expect(fault);
    }
    let mut bench = Bench::with(config);
    assert!(bench.function.bars()[4].is_none());
    let mut id = [0; 4];
    bench.function.config_read(0, &mut id);
    assert_eq!(id, [0x0f, 0x1d, 0x65, 0x70]);
    assert_eq!(bench.read(0x30fa_0024), 0);
    let refused = bench.function.control("fault bar4-absent");
    assert!(refused.is_err_and(|sentence| sentence.contains("before the function exists")));
}

#[test]
fn the_control_line_answers_in_sentences() {
    let mut bench = Bench::new(Product::Trn1);
    for line in ["", "fault", "fault nothing", "trace x on", "trace all", "poke 1 2", "peek z"] {
        let refused = bench.function.control(line);
        assert!(refused.is_err_and(|sentence| sentence.len() > 10), "{line}");
    }
    bench.control("poke 0x44 0x00030002");
    assert_eq!(bench.read(0x30fa_0044), 0x0003_0002);
    assert_eq!(bench.function.control("peek 0x30fa0044"), Ok("0x30002".to_owned()));
}

#[test]
fn traces_are_off_until_switched_on_and_can_be_emptied() {
    let (mut bench, mut rings) = ready("slow=0");
    assert!(!marker(&mut bench, &mut rings));
    bench.settle();
    assert!(rings.marker_seen(&bench));
    assert!(bench.report().doorbell_trace.is_empty());
    bench.control("trace doorbells on");
    bench.control("fault clear");
    assert!(marker(&mut bench, &mut rings));
    let report = bench.report();
    assert_eq!(report.doorbell_trace.len(), 2);
    assert!(report.descriptor_trace.is_empty() && report.register_trace.is_empty());
    bench.control("trace clear");
    assert!(bench.report().doorbell_trace.is_empty());
    assert_eq!(bench.peek32(MARKERS), MARKER);
}
