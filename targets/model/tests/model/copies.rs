//! Copies word for word: the worked examples of specification 02 §12 and 03 §17.

use axon_model::Product;
use axon_model::report::Side;

use crate::bench::{BARRIER, Bench, COPY, FIRST, LAST, MARKER, MARKERS, Rings, pattern};

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

#[test]
fn the_worked_example_of_one_copy_with_marker() {
    let mut bench = Bench::new(Product::Trn2);
    bench.init_engine(128);
    for (offset, value) in [
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
    ] {
        bench.write(offset, value);
    }
    let data = pattern(0x1000, 1);
    bench.poke(0x1_0000_2000, &data);
    bench.poke32(0x1_2344_0000, MARKER);
    bench.poke(
        0x1_2340_0000,
        b"\x00\x10\x00\x0D\x03\x00\x08\x05\x00\x20\x00\x00\x01\x40\x00\x00\
          \x04\x00\x00\x0D\x03\x00\x08\x01\x00\x00\x44\x23\x01\x40\x00\x00",
    );
    bench.poke(
        0x1_2342_0000,
        b"\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\
          \x04\x00\x00\x01\x00\x00\x00\x00\x04\x00\x44\x23\x01\x40\x00\x00",
    );
    bench.write(0x0682_1038, 2);
    assert_eq!(bench.peek32(0x1_2344_0004), 0);
    bench.write(0x0680_1038, 2);

    assert_eq!(bench.peek32(0x1_2344_0004), MARKER);
    assert_eq!(bench.hbm(0x0200_0000, 0x1000), data);
    assert_eq!(bench.hbm(0x0200_1000, 16), [0; 16]);
    for window in [0x0680_1000, 0x0682_1000] {
        for register in [0x34, 0x3c, 0x40] {
            assert_eq!(bench.read(window + register), 0x4000_0002);
        }
        assert_eq!(bench.read(window + 0x24), 0);
    }
    let report = bench.report();
    assert_eq!((report.doorbells, report.descriptors, report.markers), (2, 4, 1));
    assert!(report.violations.is_empty() && report.expected_events.is_empty());
}

#[test]
fn example_a_on_both_generations() {
    for (product, engine) in [(Product::Trn2, 128), (Product::Trn1, 32), (Product::Trn3, 128)] {
        let mut bench = Bench::new(product);
        let mut rings = Rings::ready(&mut bench, engine, 0, 8192);
        bench.control("trace all on");
        let data = pattern(0x1000, 2);
        bench.poke(0x1234_5000, &data);
        let source = bench.tagged(0x1234_5000);
        rings.tx(&bench, FIRST | LAST, BARRIER, source, 0x1000);
        rings.rx(&bench, 0, 0x0400_0000, 0x1000);
        rings.marker(&bench);
        let high = if bench.is_v2() { 0x1000 } else { 0x4000 };
        let markers = MARKERS as u32;
        let tx = [0x0d00_1000, 0x0508_0003, 0x1234_5000, high, 0x0d00_0004, COPY, markers, high];
        let rx = [0x0100_1000, 0, 0x0400_0000, 0, 0x0100_0004, 0, markers + 4, high];
        assert_eq!(words(&bench.peek(rings.tx, 32)), tx);
        assert_eq!(words(&bench.peek(rings.rx, 32)), rx);
        rings.ring(&mut bench, 2, 2);
        assert!(rings.marker_seen(&bench));
        assert_eq!(bench.hbm(0x0400_0000, 0x1000), data);

        let report = bench.report();
        let rung: Vec<(Side, u32)> =
            report.doorbell_trace.iter().map(|bell| (bell.side, bell.value)).collect();
        assert_eq!(rung, [(Side::Rx, 2), (Side::Tx, 2)]);
        let sources: Vec<[u32; 4]> = report
            .descriptor_trace
            .iter()
            .filter(|record| record.side == Side::Tx)
            .map(|record| record.words)
            .collect();
        assert_eq!(sources.as_flattened(), tx);
        let window = bench.windows(engine, 0).0;
        assert_eq!(report.register_trace.last().map(|record| record.offset), Some(window + 0x38));
    }
}

/// Example B, put into the ring at `start` pairs after a fresh init.
fn example_b(start: u32) {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 128, 0, 8192);
    for _ in 0..start / 2 {
        rings.pair(&bench, bench.tagged(0x1000), 0x1000, 64);
        rings.marker(&bench);
        rings.ring(&mut bench, 2, 2);
    }
    let data = pattern((1 << 20) + 12, 3);
    bench.poke(0x2000_0000, &data);
    let source = bench.tagged(0x2000_0000);
    for k in 0..16 {
        rings.pair(&bench, source + k * 0x1_0000, 0x0800_0000 + k * 0x1_0000, 0x1_0000);
    }
    rings.tx(&bench, FIRST | LAST, BARRIER, source + 0x10_0000, 12);
    rings.rx(&bench, 0, 0x0810_0000, 12);
    rings.marker(&bench);
    let slot_15 = words(&bench.peek(rings.tx + 15 * 16, 16));
    rings.ring(&mut bench, 18, 18);
    assert!(rings.marker_seen(&bench));
    assert_eq!(bench.hbm(0x0800_0000, data.len()), data);
    let (tx, rx) = bench.windows(128, 0);
    let end = start + 18;
    let pointer = ((1 + end / 8192) << 30) + end % 8192;
    assert_eq!((bench.read(tx + 0x40), bench.read(rx + 0x40)), (pointer, pointer));
    if start == 8190 {
        assert_eq!(slot_15, [0x0e00_0004, COPY, MARKERS as u32, 0x4000]);
    }
}

#[test]
fn example_b_at_the_start_of_a_ring() {
    example_b(0);
}

#[test]
fn example_b_across_the_end_of_a_ring() {
    example_b(8190);
}

#[test]
fn example_d_memset_by_copying_itself() {
    for product in [Product::Trn2, Product::Trn1] {
        let mut bench = Bench::new(product);
        let engine = if bench.is_v2() { 33 } else { 129 };
        let mut rings = Rings::ready(&mut bench, engine, 0, 8192);
        bench.poke(0x9_0000, &[0x5a; 0x1_0000]);
        let to = 0x0100_0000;
        rings.tx(&bench, FIRST | LAST, BARRIER, bench.tagged(0x9_0000), 0x1_0000);
        rings.rx(&bench, 0, to, 0x1_0000);
        rings.marker(&bench);
        rings.ring(&mut bench, 2, 2);
        assert!(rings.marker_seen(&bench));
        for (place, len) in [(0x1_0000, 0x1_0000), (0x2_0000, 0x1_0000), (0x3_0000, 3392)] {
            rings.pair(&bench, to, to + place, len);
        }
        rings.marker(&bench);
        rings.ring(&mut bench, 4, 4);
        assert!(rings.marker_seen(&bench));
        let mut expected = vec![0x5a; 200_000];
        expected.extend([0; 64]);
        assert_eq!(bench.hbm(to, 200_064), expected);
    }
}

#[test]
fn hbm_channels_are_reached_by_device_address() {
    let mut bench = Bench::new(Product::Trn3);
    let mut rings = Rings::ready(&mut bench, 128, 0, 64);
    let channels = [0x0, 0x40_0000_0000, 0x8000_0000_0000, 0x8040_0000_0000u64];
    for (place, base) in channels.into_iter().enumerate() {
        bench.poke(0x5000, &[place as u8 + 1; 8]);
        // The last 8 bytes of 36 GiB.
        rings.pair(&bench, bench.tagged(0x5000), base + 0x9_0000_0000 - 8, 8);
        rings.ring(&mut bench, 1, 1);
        let offset = place as u64 * 0x10_0000_0000 + 0x9_0000_0000 - 8;
        assert_eq!(bench.hbm(offset, 8), [place as u8 + 1; 8]);
    }
    assert!(bench.report().violations.is_empty());
}

#[test]
fn on_chip_windows_are_reached_by_device_address() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 128, 0, 64);
    let host = bench.tagged(0x5000);
    bench.poke32(0x5000, 7);
    // Core 3 SBUF, core 7 semaphore 5 increment, TopSP 19, PREPROC 3, MiscRAM.
    for (address, offset) in [
        (0x70_0000_0000, 0xdc00_0000),
        (0x8070_0270_1814, 0xee70_1014),
        (0x8084_c030_0000, 0xf4f0_0000),
        (0x8052_0000_0100, 0xcc00_0100),
        (0x80_06c8_41a0, 0x06c8_41a0),
    ] {
        rings.pair(&bench, host, address, 4);
        rings.ring(&mut bench, 1, 1);
        assert_eq!(bench.read(offset), 7, "{offset:#x}");
    }
    assert!(bench.report().violations.is_empty());
    assert!(bench.report().unmodelled.is_empty());

    let mut bench = Bench::new(Product::Trn1);
    let mut rings = Rings::ready(&mut bench, 33, 0, 64);
    bench.poke32(0x5000, 7);
    // Core 1 SBUF, TopSP 5, and a semaphore of core 0.
    for (address, offset) in [
        (0xfff_c400_0000, 0x0400_0000),
        (0xfff_d140_0000, 0x1140_0000),
        (0xfff_c270_1400, 0x0270_1000),
    ] {
        rings.pair(&bench, bench.tagged(0x5000), address, 4);
        rings.ring(&mut bench, 1, 1);
        assert_eq!(bench.read(offset), if offset == 0x1140_0000 { 1 } else { 7 }, "{offset:#x}");
    }
}

#[test]
fn a_descriptor_may_reset_its_own_queue_and_its_own_unit() {
    // RST_Q of the Rx window of unit 128, and the reset of the whole device through MiscRAM.
    for (value, address) in [(0x100, 0x80_0682_1064), (1, 0x80_06c8_4800u64)] {
        let mut bench = Bench::new(Product::Trn2);
        let mut rings = Rings::ready(&mut bench, 128, 0, 64);
        bench.write(0x06c8_41ec, 1);
        bench.poke32(0x5000, value);
        rings.tx(&bench, FIRST | LAST, COPY, bench.tagged(0x5000), 4);
        rings.rx(&bench, 0, address, 4);
        rings.marker(&bench);
        rings.ring(&mut bench, 2, 2);
        assert!(!rings.marker_seen(&bench));
        bench.pass(20_000_000);
        bench.init_engine(128);
        rings.restart(&mut bench);
        let (_, rx) = bench.windows(128, 0);
        assert_eq!((bench.read(rx + 0x24), bench.read(rx + 0x40)), (0, 0x4000_0000));
        rings.marker(&bench);
        rings.ring(&mut bench, 1, 1);
        assert!(rings.marker_seen(&bench));
    }
}

#[test]
fn a_descriptor_may_ring_another_queue() {
    let mut bench = Bench::new(Product::Trn2);
    let mut first = Rings::ready(&mut bench, 128, 0, 64);
    let mut second = Rings::ready(&mut bench, 5, 3, 64);
    bench.poke(0x7000, b"rung");
    second.pair(&bench, bench.tagged(0x7000), 0x10_0000, 4);
    bench.poke32(0x6000, 1);
    // Unit 5 is at device address 0x1002500000.
    for window in [0x10_0250_0000 + 0x2_4038, 0x10_0250_0000 + 0x4038] {
        first.pair(&bench, bench.tagged(0x6000), window, 4);
    }
    first.ring(&mut bench, 2, 2);
    assert_eq!(bench.hbm(0x10_0000, 4), b"rung");
    assert_eq!(bench.report().doorbells, 4);
}
