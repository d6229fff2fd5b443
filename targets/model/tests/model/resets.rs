//! Resets by scope, and what firmware shows meanwhile: specification 01 §9, §14.8–14.9, 05 §19.

use axon_model::{FunctionConfig, Product};

use crate::bench::{Bench, Rings};

const DEAD: u32 = 0xdead_beef;

fn trigger(bench: &mut Bench, kind: u32) {
    let misc = bench.misc();
    bench.write(misc + 0x1ec, kind);
    bench.write(misc + 0x800, 1);
}

fn core_reset(bench: &mut Bench, low: u32, high: u32) {
    let misc = bench.misc();
    bench.write(misc + 0x1d8, low);
    bench.write(misc + 0x1d4, high);
    trigger(bench, 2);
}

#[test]
fn a_device_reset_takes_20_ms_of_dead_reads() {
    for product in [Product::Trn1, Product::Trn2, Product::Trn3] {
        let mut bench = Bench::new(product);
        let misc = bench.misc();
        bench.write(misc + 0x190, 0x0200_0103);
        bench.write(misc + 0x0c0, 77);
        bench.init_engine(0);
        trigger(&mut bench, 1);
        for offset in [0, 0x24, 0x1ec, 0x800, 0x808, 0x190] {
            assert_eq!(bench.read(misc + offset), DEAD);
        }
        bench.write(misc + 0x0c0, 1);
        trigger(&mut bench, 1);
        bench.pass(19_999_999);
        assert_eq!(bench.read(misc + 0x1ec), DEAD);
        bench.pass(1);
        for offset in [0x1ec, 0x800, 0x808, 0x0f0] {
            assert_eq!(bench.read(misc + offset), 0);
        }
        // dev_e39: election results, identity and what the runtime keeps there survive.
        assert_eq!(bench.read(misc + 0x190), 0x0200_0103);
        assert_eq!((bench.read(misc), bench.read(misc + 0x0c0)), (7, 77));
        let u = bench.unit(0);
        assert_eq!(bench.read(u + 0x1020), 0x0300_0000);
        assert_eq!(bench.read(u + 0x3_a030), u32::MAX);
        assert_eq!(bench.read(bench.wrapper(0) + 0x1c), 0);
        assert_eq!(bench.report().device_resets, 1);
    }
}

#[test]
fn time_passes_with_the_clock_even_if_nobody_calls_advance() {
    let mut config = FunctionConfig::new(Product::Trn1, 0);
    config.reset_ns = 0;
    let mut bench = Bench::with(config);
    trigger(&mut bench, 1);
    assert_eq!(bench.read(0x30fa_01ec), 0);
}

#[test]
fn a_core_reset_covers_what_its_map_names() {
    for (product, low, gone, kept) in [
        (Product::Trn1, 0x3802, [16, 31, 33], [0, 15, 32]),
        (Product::Trn2, 0x0001_0101, [0, 7, 15], [16, 127, 128]),
    ] {
        let mut bench = Bench::new(product);
        for engine in gone.into_iter().chain(kept) {
            bench.init_engine(engine);
        }
        core_reset(&mut bench, low, 0);
        bench.pass(20_000_000);
        assert_eq!(bench.report().core_resets, 1);
        for engine in gone {
            assert_eq!(bench.read(bench.unit(engine) + 0x408), 0x0001_86a0, "engine {engine}");
        }
        for engine in kept {
            assert_eq!(bench.read(bench.unit(engine) + 0x408), 0, "engine {engine}");
        }
    }
}

#[test]
fn dev_e40_a_mailbox_request_in_a_reset_window_is_absorbed() {
    let mut bench = Bench::new(Product::Trn2);
    let misc = bench.misc();
    trigger(&mut bench, 1);
    bench.write(misc + 0x1f0, 0x0010_0302);
    bench.write(misc + 0x0f0, 1);
    bench.write(misc + 0x800, 1);
    bench.pass(20_000_000);
    for offset in [0x1ec, 0x800, 0x0f0, 0x1f0] {
        assert_eq!(bench.read(misc + offset), 0);
    }
    assert_eq!(bench.report().mailbox_answers, 0);
}

#[test]
fn the_top_level_engine_goes_with_its_bit() {
    let mut bench = Bench::new(Product::Trn2);
    (128..132).for_each(|engine| bench.init_engine(engine));
    core_reset(&mut bench, 0x000c_0c0c, 0x2);
    bench.pass(20_000_000);
    let limits: Vec<u32> =
        (128..132).map(|engine| bench.read(bench.unit(engine) + 0x408)).collect();
    assert_eq!(limits, [0, 0x0001_86a0, 0, 0]);
}

#[test]
fn semaphores_events_and_notific_blocks_go_with_their_owner() {
    let mut bench = Bench::new(Product::Trn2);
    // Core 0 and 1: events, NOTIFIC, DMA trace; TopSP 0 and 2: semaphores, NOTIFIC.
    let of_core_0 = [0xd270_0000, 0x0600_1108, 0x8204_1108, 0xf000_0000, 0x06a0_0108, 0x06a4_0108];
    let of_core_1 = [0xd670_0000, 0x0618_1108, 0x8304_1108, 0xf080_0000, 0x06a8_0108];
    for offset in of_core_0.into_iter().chain(of_core_1) {
        bench.write(offset, 1);
        assert_eq!(bench.read(offset), 1);
    }
    core_reset(&mut bench, 0x0001_0101, 0);
    bench.pass(20_000_000);
    assert!(of_core_0.iter().all(|&offset| bench.read(offset) == 0));
    assert!(of_core_1.iter().all(|&offset| bench.read(offset) == 1));
    trigger(&mut bench, 1);
    bench.pass(20_000_000);
    assert!(of_core_1.iter().all(|&offset| bench.read(offset) == 0));
}

#[test]
fn work_in_a_reset_window_is_lost_and_nothing_comes_after() {
    let mut bench = Bench::new(Product::Trn1);
    let mut rings = Rings::ready(&mut bench, 32, 0, 64);
    trigger(&mut bench, 1);
    rings.marker(&bench);
    rings.ring(&mut bench, 1, 1);
    bench.pass(20_000_000);
    bench.pass(1_000_000_000);
    assert!(!rings.marker_seen(&bench));
    let report = bench.report();
    assert!(report.violations.is_empty());
    assert_eq!(report.expected_events.len(), 2);
    // Example F: the same pair again after the init.
    bench.init_engine(32);
    rings.restart(&mut bench);
    rings.marker(&bench);
    rings.ring(&mut bench, 1, 1);
    assert!(rings.marker_seen(&bench));
    assert_eq!(bench.report().doorbells, 4);
}

#[test]
fn what_is_programmed_in_a_reset_window_is_gone() {
    let mut bench = Bench::new(Product::Trn2);
    trigger(&mut bench, 1);
    bench.init_engine(3);
    bench.pass(20_000_000);
    assert_eq!(bench.read(bench.unit(3) + 0x408), 0x0001_86a0);
}

#[test]
fn a_reset_ends_an_abort_and_work_left_for_later() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 0, 0, 0x8000);
    for _ in 0..2500 {
        rings.pair(&bench, 0, 0x1_0000, 0x1_0000);
    }
    rings.marker(&bench);
    rings.ring(&mut bench, 2501, 2501);
    core_reset(&mut bench, 0x0001_0101, 0);
    bench.pass(20_000_000);
    bench.settle();
    assert!(!rings.marker_seen(&bench));
    bench.write(bench.unit(0) + 0x204, 4);
    core_reset(&mut bench, 0x0001_0101, 0);
    bench.pass(20_000_000);
    bench.init_engine(0);
    rings.restart(&mut bench);
    rings.marker(&bench);
    rings.ring(&mut bench, 1, 1);
    assert!(rings.marker_seen(&bench));
}

#[test]
fn another_core_keeps_copying() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 128, 1, 64);
    core_reset(&mut bench, 0x0001_0101, 0);
    rings.marker(&bench);
    rings.ring(&mut bench, 1, 1);
    assert!(rings.marker_seen(&bench));
}

#[test]
fn dev_e34_a_lost_trigger_waits_for_the_next() {
    let mut bench = Bench::new(Product::Trn1);
    bench.control("fault lost-trigger=1");
    trigger(&mut bench, 1);
    bench.pass(1_000_000_000);
    assert_eq!(bench.read(0x30fa_01ec), 1);
    assert_eq!(bench.report().device_resets, 0);
    trigger(&mut bench, 1);
    bench.pass(20_000_000);
    assert_eq!(bench.read(0x30fa_01ec), 0);
}

#[test]
fn dev_e50_a_mailbox_trigger_starts_a_pending_reset() {
    let mut bench = Bench::new(Product::Trn1);
    bench.control("fault lost-trigger");
    trigger(&mut bench, 1);
    bench.pass(1_000_000_000);
    bench.write(0x30fa_00f0, 1);
    bench.write(0x30fa_0800, 1);
    assert_eq!(bench.read(0x30fa_01ec), DEAD);
    bench.pass(20_000_000);
    let report = bench.report();
    assert_eq!((report.device_resets, report.mailbox_answers), (1, 0));
    for offset in [0x1ec, 0x800, 0x0f0] {
        assert_eq!(bench.read(0x30fa_0000 + offset), 0);
    }
}

#[test]
fn dev_e35_a_reset_that_is_never_acknowledged() {
    let mut bench = Bench::new(Product::Trn2);
    let misc = bench.misc();
    bench.control("fault never-ack");
    trigger(&mut bench, 1);
    bench.pass(600_000_000_000);
    assert_eq!(bench.read(misc + 0x1ec), 1);
    bench.control("fault clear");
    trigger(&mut bench, 1);
    bench.pass(20_000_000);
    assert_eq!(bench.read(misc + 0x1ec), 0);

    bench.control("fault refuse-core-reset");
    core_reset(&mut bench, 0x0001_0101, 0);
    bench.pass(600_000_000_000);
    assert_eq!(bench.read(misc + 0x1ec), 2);
    trigger(&mut bench, 1);
    bench.pass(20_000_000);
    assert_eq!(bench.read(misc + 0x1ec), 0);
}

#[test]
fn dev_e36_firmware_is_ready_later_or_never() {
    let mut config = FunctionConfig::new(Product::Trn1, 0);
    config.ready_delay_ns = 500_000_000;
    let mut bench = Bench::with(config);
    let status = bench.misc() + 0x808;
    trigger(&mut bench, 1);
    bench.pass(20_000_000);
    assert_eq!((bench.read(0x30fa_01ec), bench.read(status)), (0, 8));
    bench.write(status, 0);
    bench.pass(499_999_999);
    assert_eq!(bench.read(status), 8);
    bench.pass(1);
    assert_eq!(bench.read(status), 0);

    bench.control("fault reset-stuck times=1");
    trigger(&mut bench, 1);
    bench.pass(20_000_000);
    bench.pass(10_000_000_000);
    assert_eq!(bench.read(status), 8);
    trigger(&mut bench, 1);
    bench.pass(520_000_000);
    assert_eq!(bench.read(status), 0);

    bench.control("fault reset-stuck=1100ms");
    trigger(&mut bench, 1);
    bench.pass(20_000_000);
    bench.pass(1_099_999_999);
    assert_eq!(bench.read(status), 8);
    bench.pass(1);
    assert_eq!(bench.read(status), 0);
}

#[test]
fn dev_e37_the_reset_doorbell_of_the_simulator() {
    let mut config = FunctionConfig::new(Product::Trn2, 0);
    config.revision = 0xff;
    let mut bench = Bench::with(config);
    [0, 16].into_iter().for_each(|engine| bench.init_engine(engine));
    bench.write(0x0630_0010, 0x0001_0101);
    assert_eq!(bench.read(0x0630_0010), 0x0001_0101);
    bench.pass(20_000_000);
    assert_eq!(bench.read(0x0630_0010), 0);
    let limits = [0, 16].map(|engine| bench.read(bench.unit(engine) + 0x408));
    assert_eq!(limits, [0x0001_86a0, 0]);
    bench.write(0x0630_0010, 0);
    assert_eq!(bench.read(0x0630_0010), 0);
    bench.pass(20_000_000);
    assert_eq!(bench.report().device_resets, 1);

    let mut config = FunctionConfig::new(Product::Trn1, 0);
    config.revision = 0xff;
    let mut bench = Bench::with(config);
    bench.write(0x3064_7010, 1);
    assert_eq!(bench.read(0x3064_7010), 1);
    bench.pass(20_000_000);
    assert_eq!(bench.read(0x3064_7010), 0);
    assert_eq!(bench.report().device_resets, 0);
    assert!(bench.report().unmodelled.is_empty());
}
