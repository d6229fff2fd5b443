//! Bring-up as specification 02 §4, 03 §3 and 05 §4 write it: counts, values, nothing unmodelled.

use axon_model::Product;

use crate::bench::Bench;

fn init_all(product: Product) -> Bench {
    let mut bench = Bench::new(product);
    (0..bench.engines()).for_each(|engine| bench.init_engine(engine));
    bench
}

/// Reset, all engines, the default rings: what a load does up to READY.
fn load(product: Product) -> Bench {
    let mut bench = Bench::new(product);
    let misc = bench.misc();
    bench.read(misc + 0x24);
    bench.write(misc + 0x1ec, 1);
    bench.write(misc + 0x800, 1);
    bench.pass(20_000_000);
    assert_eq!(bench.read(misc + 0x1ec), 0);
    assert_eq!(bench.read(misc + 0x808) & 8, 0);
    (0..bench.engines()).for_each(|engine| bench.init_engine(engine));
    let defaults: Vec<(usize, u64)> = if bench.is_v2() {
        vec![(32, 0), (33, 0)]
    } else {
        (0..8).map(|core| (128 + core / 2, core as u64 % 2)).collect()
    };
    for (place, (engine, queue)) in defaults.into_iter().enumerate() {
        let ring = 0x100_0000 + place as u64 * 0x10_0000;
        bench.init_queue(engine, queue, (ring, ring + 0x2_0000), 8192);
    }
    bench
}

#[test]
fn engine_inits_make_the_counted_traffic() {
    for (product, writes, reads) in [
        (Product::Trn1, 12_882, 34),
        (Product::Inf2, 12_882, 34),
        (Product::Trn2, 18_316, 900),
        (Product::Trn3, 18_448, 1032),
    ] {
        let bench = init_all(product);
        assert_eq!(bench.traffic(), (writes, reads), "{product:?}");
        let report = bench.report();
        assert_eq!((report.register_writes, report.register_reads), (writes, reads));
        assert!(report.unmodelled.is_empty(), "{product:?}: {:x?}", report.unmodelled);
        assert!(report.irregular.is_empty() && report.violations.is_empty());
    }
}

#[test]
fn a_load_touches_nothing_unmodelled() {
    for (product, writes) in
        [(Product::Trn1, 12_914), (Product::Trn2, 18_438), (Product::Trn3Second, 18_570)]
    {
        let bench = load(product);
        let report = bench.report();
        assert_eq!(report.register_writes, writes, "{product:?}");
        assert!(report.unmodelled.is_empty() && report.violations.is_empty());
        assert_eq!((report.device_resets, report.doorbells), (1, 0));
    }
}

#[test]
fn udma_e31_values_after_init() {
    for product in [Product::Trn1, Product::Trn2, Product::Trn3] {
        let mut bench = init_all(product);
        for engine in 0..bench.engines() {
            let core_unit = engine < if bench.is_v2() { 32 } else { 128 };
            let ids_ignored = core_unit && !bench.is_v2();
            let a = if ids_ignored { 0xf002_0000 } else { 0xf000_0000 };
            let b = if ids_ignored { 0x0000_18f8 } else { 0x0000_10f8 };
            let u = bench.unit(engine);
            for (offset, value) in [
                (0x3_a028, 0x28),
                (0x3_a010, a),
                (0x3_a030, a),
                (0x3_a068, 0x28),
                (0x3_a050, b),
                (0x3_a070, b),
                (0x3_a090, 0xffff_f000),
                (0x3_a0b0, 0xffff_f03f),
                (0x3_80e8, 0x28),
                (0x3_80d0, 0xffff_f8ff),
                (0x3_80f0, u32::MAX),
                (0x3_8010, u32::MAX),
                (0x3_a018, 0),
                (0x1020, 0x0003_0000),
                (0x3_0020, 0x0003_0000),
                (0x254, 0x010f_ffff),
                (0x2_0128, 0x4080_4080),
                (0x3_c40c, u32::MAX),
                (0x200, 0),
                (0x2_0200, 0),
                (0x604, 4),
            ] {
                assert_eq!(bench.read(u + offset), value, "engine {engine} +{offset:#x}");
            }
            let limit = if bench.is_v2() { u32::MAX } else { 0x05f5_e100 };
            assert_eq!(bench.read(u + 0x3_a300), limit);
            if bench.is_v2() {
                assert_eq!(bench.read(u + 0x3_b210), 0);
                assert_eq!(bench.read(u + 0x3_b230), 0);
                assert_eq!(bench.read(u + 0x3_a92c + 5 * 0x40 - 0x40), 0xf);
            }
            if product == Product::Trn3 {
                assert_eq!(bench.read(u + 0x2_012c), 0x100);
            }
            let wrapper = bench.wrapper(engine);
            let overhead = if bench.is_v2() { 0 } else { 0x26 };
            assert_eq!(bench.read(wrapper + 0x800), overhead);
            assert_eq!(bench.read(wrapper + 0x1c), 1);
            if ids_ignored {
                let triggers = bench.triggers(engine);
                assert_eq!(bench.read(triggers + 0x90), 0x800);
                assert_eq!(bench.read(triggers + 0xd0), 4);
                assert_eq!(bench.read(u + 0x20c), 0x2_0000);
            }
        }
        assert!(bench.report().unmodelled.is_empty());
    }
}

#[test]
fn udma_e27_a_second_init_keeps_attributes() {
    let mut bench = Bench::new(Product::Trn1);
    bench.init_engine(0);
    let at = bench.unit(0) + 0x1020;
    assert_eq!(bench.read(at), 0x0003_0000);
    bench.init_engine(0);
    assert_eq!(bench.read(at), 0x0303_0000);
}

#[test]
fn reset_values_of_a_unit() {
    let mut bench = Bench::new(Product::Trn2);
    let u = bench.unit(128);
    for (offset, value) in [
        (0x1020, 0x0300_0000),
        (0x2_1020, 0x0300_0033),
        (0x1028, 0x40),
        (0x1034, 0x4000_0000),
        (0x103c, 0x4000_0000),
        (0x1074, 7),
        (0x2_1054, 0xf),
        (0x124, 0x2020_2040),
        (0x25c, 0xffff),
        (0x2_0304, 0x0001_0407),
        (0x600, 0x400),
        (0x3_b468, u32::MAX),
        (0x3_c7fc, 0),
        (0x1_2000, 0),
    ] {
        assert_eq!(bench.read(u + offset), value, "+{offset:#x}");
    }
    // Read-only and write-only registers stay what they are.
    for offset in [0x200, 0x204, 0x604, 0x1024, 0x1034, 0x103c, 0x1040, 0x10b0, 0x2_1064] {
        let before = bench.read(u + offset);
        bench.write(u + offset, 0x5a);
        let expected = if offset == 0x204 { 0 } else { before };
        assert_eq!(bench.read(u + offset), expected, "+{offset:#x}");
    }
    assert!(bench.report().unmodelled.is_empty());
}
