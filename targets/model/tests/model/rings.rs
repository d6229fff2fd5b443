//! Ring protocol and packets: the rows of specification 02 §15 that speak of the model.

use axon_model::report::EventKind;
use axon_model::{FunctionConfig, Product};

use crate::bench::{Bench, COPY, FIRST, LAST, Rings, pattern};

pub const M2S_STOPPED: u32 = 0x2222;
pub const S2M_STOPPED: u32 = 0x2_2222;
pub const HBM: u64 = 0x200_0000;
pub const HOST: u64 = 0x4000_0000;

/// A Trn2 function with unit 128 and queue 0 ready.
pub fn ready() -> (Bench, Rings) {
    let mut bench = Bench::new(Product::Trn2);
    let rings = Rings::ready(&mut bench, 128, 0, 64);
    (bench, rings)
}

pub fn states(bench: &mut Bench, engine: usize) -> (u32, u32) {
    let u = bench.unit(engine);
    (bench.read(u + 0x200), bench.read(u + 0x2_0200))
}

pub fn copy(bench: &mut Bench, rings: &mut Rings, from: u64, to: u64, len: u32) {
    rings.pair(bench, bench.tagged(from), to, len);
    rings.ring(bench, 1, 1);
}

#[test]
fn udma_e01_udma_e03_a_length_of_0_is_65536() {
    let (mut bench, mut rings) = ready();
    let data = pattern(0x1_0010, 1);
    bench.poke(HOST, &data);
    copy(&mut bench, &mut rings, HOST, HBM, 0x1_0000);
    assert_eq!(bench.hbm(HBM, 0x1_0000), data[..0x1_0000]);
    assert_eq!(bench.hbm(HBM + 0x1_0000, 16), [0; 16]);
}

#[test]
fn a_length_of_0_is_nothing_without_the_bit() {
    let (mut bench, mut rings) = ready();
    bench.write(0x0680_0254, 0x000f_ffff);
    bench.poke(HOST, &[1; 16]);
    copy(&mut bench, &mut rings, HOST, HBM, 0);
    copy(&mut bench, &mut rings, HOST, HBM + 8, 8);
    assert_eq!(bench.hbm(HBM, 24), [[0; 8], [1; 8], [0; 8]].concat());
}

#[test]
fn udma_e02_one_byte_and_65535() {
    let (mut bench, mut rings) = ready();
    let data = pattern(0x1_0000, 2);
    bench.poke(HOST, &data);
    copy(&mut bench, &mut rings, HOST, HBM, 0xffff);
    copy(&mut bench, &mut rings, HOST, HBM + 0x1_0001, 1);
    assert_eq!(bench.hbm(HBM, 0xffff), data[..0xffff]);
    assert_eq!(bench.hbm(HBM + 0xffff, 4), [0, 0, data[0], 0]);
}

#[test]
fn udma_e05_odd_addresses() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, b"0123456789");
    copy(&mut bench, &mut rings, HOST + 1, HBM + 3, 7);
    assert_eq!(bench.hbm(HBM, 12), b"\0\0\x001234567\0\0");
    // And back, to an odd host address.
    rings.pair(&bench, HBM + 3, bench.tagged(HOST + 0x101), 7);
    rings.ring(&mut bench, 1, 1);
    assert_eq!(bench.peek(HOST + 0x100, 9), b"\x001234567\0");
}

#[test]
fn udma_e07_laps_of_a_ring() {
    let (mut bench, mut rings) = ready();
    let (tx, rx) = bench.windows(128, 0);
    for lap in 0..5u32 {
        for _ in 0..64 {
            copy(&mut bench, &mut rings, HOST, HBM, 4);
        }
        let pointer = ((lap + 2) % 4) << 30;
        assert_eq!((bench.read(tx + 0x34), bench.read(rx + 0x3c)), (pointer, pointer));
    }
    assert!(bench.report().violations.is_empty());
}

#[test]
fn udma_e10_a_partial_doorbell() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[5; 4]);
    rings.pair(&bench, bench.tagged(HOST), HBM, 4);
    rings.marker(&bench);
    rings.ring(&mut bench, 2, 1);
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
    assert!(!rings.marker_seen(&bench));
    let (tx, _) = bench.windows(128, 0);
    bench.write(tx + 0x38, 1);
    assert!(rings.marker_seen(&bench));
}

#[test]
fn udma_e11_tx_before_rx_waits() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[5; 4]);
    rings.pair(&bench, bench.tagged(HOST), HBM, 4);
    let (tx, rx) = bench.windows(128, 0);
    bench.write(tx + 0x38, 1);
    assert_eq!(bench.hbm(HBM, 4), [0; 4]);
    assert_eq!(bench.read(tx + 0x24) >> 29 & 1, 1, "a packet is in progress");
    assert_eq!(states(&mut bench, 128).0, 0x1111);
    bench.write(rx + 0x38, 1);
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
    assert_eq!((bench.read(tx + 0x24), bench.read(rx + 0x24)), (0, 0));
    assert!(bench.report().violations.is_empty());
}

#[test]
fn udma_e12_rx_alone_moves_nothing() {
    let (mut bench, mut rings) = ready();
    rings.pair(&bench, bench.tagged(HOST), HBM, 4);
    rings.ring(&mut bench, 1, 0);
    assert_eq!(bench.report().doorbells, 1);
    let (_, rx) = bench.windows(128, 0);
    assert_eq!(bench.read(rx + 0x24) & 0xff_ffff, 1);
    assert_eq!(bench.read(rx + 0x40), 0x4000_0000);
}

#[test]
fn udma_e13_doorbells_of_0_a_lap_and_more() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[5; 4]);
    let (tx, _) = bench.windows(128, 0);
    bench.write(tx + 0x38, 0xff00_0000);
    let report = bench.report();
    assert_eq!(
        report.violations.iter().map(|e| e.kind).collect::<Vec<_>>(),
        [EventKind::DoorbellZero]
    );
    for place in 0..64 {
        rings.pair(&bench, bench.tagged(HOST), HBM + 4 * place, 4);
    }
    rings.ring(&mut bench, 64, 64);
    assert_eq!(bench.hbm(HBM, 256), [5; 256]);
    // More than the ring holds: a violation, status bit 31, and the second lap is stale.
    rings.restart(&mut bench);
    bench.write(tx + 0x38, 65);
    assert_eq!(bench.read(tx + 0x24) >> 31, 1);
    assert_eq!(bench.report().violations.get(1).map(|e| e.kind), Some(EventKind::RingOverrun));
}

#[test]
fn udma_e14_a_ring_of_48() {
    let mut bench = Bench::new(Product::Trn1);
    let mut rings = Rings::ready(&mut bench, 32, 0, 48);
    for place in 0..50u64 {
        bench.poke(HOST + 4 * place, &(place as u32 + 1).to_le_bytes());
    }
    let mut put = |bench: &mut Bench, places: std::ops::Range<u64>| {
        let count = (places.end - places.start) as u32;
        for place in places {
            rings.pair(bench, bench.tagged(HOST + 4 * place), HBM + 4 * place, 4);
        }
        rings.ring(bench, count, count);
        bench.peek32(rings.tx + 16) >> 24 & 3
    };
    put(&mut bench, 0..40);
    let lap_of_slot_1 = put(&mut bench, 40..50);
    assert_eq!(lap_of_slot_1, 2);
    let expected: Vec<u8> = (1..51u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(bench.hbm(HBM, 200), expected);
    let (tx, _) = bench.windows(32, 0);
    assert_eq!(bench.read(tx + 0x40), 0x8000_0002);
    assert!(bench.report().violations.is_empty());
}

#[test]
fn udma_e17_one_packet_into_two_buffers() {
    let (mut bench, mut rings) = ready();
    let data = pattern(0x100, 3);
    bench.poke(HOST, &data);
    rings.tx(&bench, FIRST | LAST, COPY, bench.tagged(HOST), 0x100);
    rings.rx(&bench, 0, HBM, 0x80);
    rings.rx(&bench, 0, HBM + 0x1000, 0x80);
    rings.ring(&mut bench, 2, 1);
    assert_eq!([bench.hbm(HBM, 0x80), bench.hbm(HBM + 0x1000, 0x80)].concat(), data);
    let (_, rx) = bench.windows(128, 0);
    assert_eq!(bench.read(rx + 0x40), 0x4000_0002);
}

#[test]
fn udma_e18_the_last_byte_of_a_packet_closes_a_buffer() {
    let (mut bench, mut rings) = ready();
    let data = pattern(0x100, 4);
    bench.poke(HOST, &data);
    for half in 0..2 {
        rings.tx(&bench, FIRST | LAST, COPY, bench.tagged(HOST + half * 0x80), 0x80);
        rings.rx(&bench, 0, HBM + half * 0x1000, 0x100);
    }
    rings.ring(&mut bench, 2, 2);
    for half in 0..2 {
        let expected = [&data[half * 0x80..][..0x80], &[0; 0x80]].concat();
        assert_eq!(bench.hbm(HBM + half as u64 * 0x1000, 0x100), expected);
    }
}

#[test]
fn a_packet_waits_for_its_last_descriptor() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, b"packet of two");
    rings.tx(&bench, FIRST, COPY, bench.tagged(HOST), 6);
    rings.tx(&bench, LAST, COPY, bench.tagged(HOST + 6), 7);
    rings.rx(&bench, 0, HBM, 64);
    rings.ring(&mut bench, 1, 1);
    assert_eq!(bench.hbm(HBM, 6), [0; 6]);
    let (tx, _) = bench.windows(128, 0);
    bench.write(tx + 0x38, 1);
    assert_eq!(bench.hbm(HBM, 14), b"packet of two\0");
    assert_eq!((bench.read(tx + 0xc0), bench.read(tx + 0x2_0068)), (1, 1));
}

#[test]
fn udma_e23_a_paused_queue_moves_its_tail_only() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[5; 4]);
    let (tx, rx) = bench.windows(128, 0);
    for window in [tx, rx] {
        bench.write(window + 0x20, 0x0300_0000);
    }
    copy(&mut bench, &mut rings, HOST, HBM, 4);
    assert_eq!((bench.read(tx + 0x3c), bench.read(tx + 0x34)), (0x4000_0001, 0x4000_0000));
    assert_eq!((bench.read(tx + 0x24), bench.read(rx + 0x24)), (1, 1));
    assert_eq!(bench.hbm(HBM, 4), [0; 4]);
    for window in [rx, tx] {
        bench.write(window + 0x20, 0x0303_0000);
    }
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
}

#[test]
fn the_global_prefetch_enable_gates_a_queue() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[5; 4]);
    let u = bench.unit(128);
    bench.write(u + 0x25c, 0xfffe);
    copy(&mut bench, &mut rings, HOST, HBM, 4);
    assert_eq!(bench.hbm(HBM, 4), [0; 4]);
    bench.write(u + 0x25c, 0xffff);
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
}

#[test]
fn udma_e24_a_queue_reset_forgets_what_was_rung() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[5; 4]);
    let (tx, rx) = bench.windows(128, 0);
    for window in [tx, rx] {
        bench.write(window + 0x20, 0x0300_0000);
    }
    (0..3).for_each(|_| rings.pair(&bench, bench.tagged(HOST), HBM, 4));
    rings.ring(&mut bench, 3, 3);
    bench.write(tx + 0xb0, 0x100);
    bench.write(rx + 0x64, 0x100);
    for window in [tx, rx] {
        bench.write(window + 0x20, 0x0303_0000);
        for register in [0x34, 0x3c, 0x40, 0x4c] {
            assert_eq!(bench.read(window + register), 0x4000_0000);
        }
        assert_eq!((bench.read(window + 0x24), bench.read(window + 0x30)), (0, 64));
    }
    assert_eq!(bench.hbm(HBM, 4), [0; 4]);
    rings.restart(&mut bench);
    copy(&mut bench, &mut rings, HOST, HBM, 4);
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
    assert!(bench.report().violations.is_empty());
}

#[test]
fn udma_e25_udma_e26_states_idle_busy_off_and_stopped() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[5; 4]);
    let u = bench.unit(128);
    assert_eq!(states(&mut bench, 128), (0, 0));
    for half in [u, u + 0x2_0000] {
        bench.write(half + 0x204, 2);
    }
    copy(&mut bench, &mut rings, HOST, HBM, 4);
    assert_eq!(bench.hbm(HBM, 4), [0; 4]);
    assert_eq!(states(&mut bench, 128), (0, 0));
    for half in [u, u + 0x2_0000] {
        bench.write(half + 0x204, 1);
    }
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
    for half in [u, u + 0x2_0000] {
        bench.write(half + 0x204, 4);
    }
    assert_eq!(states(&mut bench, 128), (M2S_STOPPED, S2M_STOPPED));
}

#[test]
fn udma_e28_a_chain_of_pairs_reads_what_was_written() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 128, 0, 1024);
    let data = pattern(64, 5);
    bench.poke(HOST, &data);
    rings.pair(&bench, bench.tagged(HOST), HBM, 64);
    for block in 1..1000 {
        rings.tx(&bench, FIRST | LAST | 1 << 30, COPY, HBM + (block - 1) * 64, 64);
        rings.rx(&bench, 0, HBM + block * 64, 64);
    }
    rings.ring(&mut bench, 1000, 1000);
    assert_eq!(bench.hbm(HBM, 64_000), data.repeat(1000));
}

#[test]
fn udma_e34_a_doorbell_before_the_init_is_expected() {
    for strict in [false, true] {
        let mut config = FunctionConfig::new(Product::Trn1, 0);
        config.strict = strict;
        let mut bench = Bench::with(config);
        let mut rings = Rings::ready(&mut bench, 32, 0, 64);
        bench.write(0x30fa_01d8, 0x0701);
        bench.write(0x30fa_01ec, 2);
        bench.write(0x30fa_0800, 1);
        bench.pass(20_000_000);
        bench.init_engine(32);
        rings.pair(&bench, bench.tagged(HOST), HBM, 4);
        rings.ring(&mut bench, 2, 2);
        let report = bench.report();
        let (events, others) = if strict {
            (&report.violations, &report.expected_events)
        } else {
            (&report.expected_events, &report.violations)
        };
        assert_eq!(events.len(), 2);
        assert!(events.iter().all(|e| e.kind == EventKind::DoorbellWithoutRing));
        assert!(others.is_empty());
        // After an init whose ring was taken away again it is a violation in either mode.
        rings.restart(&mut bench);
        let (tx, _) = bench.windows(32, 0);
        bench.write(tx + 0x30, 0);
        bench.write(tx + 0x38, 1);
        assert!(bench.report().violation_count > 0);
    }
}

#[test]
fn udma_e35_a_doorbell_for_more_than_a_batch_runs_on_behind() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 0, 0, 0x8000);
    let count = 2500;
    bench.poke(HOST, &pattern(0x1_0000, 6));
    for place in 0..count {
        // The same block each time, so that the test stays small.
        rings.pair(&bench, bench.tagged(HOST), HBM + place % 4 * 0x1_0000, 0x1_0000);
    }
    rings.marker(&bench);
    rings.ring(&mut bench, count as u32 + 1, count as u32 + 1);
    let done = bench.report().descriptors;
    assert!((2 * 2032..2 * 2500).contains(&done), "{done} descriptors inside the write");
    assert!(!rings.marker_seen(&bench));
    let (tx, _) = bench.windows(0, 0);
    assert_eq!(bench.read(tx + 0x24) >> 29 & 1, 1, "it is busy meanwhile");
    assert_eq!(bench.function.next_event(), Some(0));
    bench.settle();
    assert!(rings.marker_seen(&bench));
    assert_eq!(bench.read(tx + 0x24), 0);
}

#[test]
fn a_full_batch_of_127_mib_is_done_inside_the_write() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 128, 0, 8192);
    for _ in 0..2032 {
        rings.pair(&bench, bench.tagged(HOST), HBM, 0x1_0000);
    }
    rings.marker(&bench);
    rings.ring(&mut bench, 2033, 2033);
    assert!(rings.marker_seen(&bench));
    assert_eq!(bench.function.next_event(), None);
}

#[test]
fn a_queue_reset_ends_work_that_was_left_for_later() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 0, 0, 0x8000);
    for _ in 0..2500 {
        rings.pair(&bench, bench.tagged(HOST), HBM, 0x1_0000);
    }
    rings.marker(&bench);
    rings.ring(&mut bench, 2501, 2501);
    rings.restart(&mut bench);
    bench.settle();
    assert!(!rings.marker_seen(&bench));
    copy(&mut bench, &mut rings, HOST, HBM, 4);
    let (tx, _) = bench.windows(0, 0);
    assert_eq!(bench.read(tx + 0x40), 0x4000_0001);
}

#[test]
fn geometry_changed_under_way_is_a_violation() {
    let (mut bench, mut rings) = ready();
    let (tx, _) = bench.windows(128, 0);
    bench.write(tx + 0x20, 0x0300_0000);
    rings.pair(&bench, bench.tagged(HOST), HBM, 4);
    rings.ring(&mut bench, 1, 1);
    bench.write(tx + 0x30, 32);
    let kinds: Vec<EventKind> = bench.report().violations.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::RingChangedUnderWay]);
}
