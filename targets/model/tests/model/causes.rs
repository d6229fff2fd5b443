//! Error causes and what they stop: the rows of specification 02 §15 that speak of the model.

use axon_model::Product;
use axon_model::report::EventKind;

use crate::bench::{Bench, COPY, FIRST, LAST, MEMORY_BYTES, Rings};
use crate::rings::{HBM, HOST, M2S_STOPPED, S2M_STOPPED, copy, ready, states};

/// Causes A, B, C.
fn causes(bench: &mut Bench, engine: usize) -> [u32; 3] {
    let u = bench.unit(engine);
    [0x3_a000, 0x3_a040, 0x3_a080].map(|offset| bench.read(u + offset))
}

fn primary_d(bench: &mut Bench, engine: usize) -> u32 {
    let u = bench.unit(engine);
    bench.read(u + 0x3_80c0)
}

#[test]
fn udma_e08_a_stale_descriptor_stops_a_host_transfer_unit() {
    for (stale, expected, states_then) in
        [(0, [1 << 17, 0, 0], (M2S_STOPPED, 0x1_1111)), (1, [0, 1 << 11, 0], (0x1111, S2M_STOPPED))]
    {
        let (mut bench, mut rings) = ready();
        for _ in 0..64 {
            copy(&mut bench, &mut rings, HOST, HBM, 4);
        }
        bench.poke(HOST, &[9; 4]);
        rings.pair(&bench, bench.tagged(HOST), HBM + 0x100, 4);
        let ring = if stale == 0 { rings.tx } else { rings.rx };
        let word = bench.peek32(ring);
        bench.poke32(ring, word & !(3 << 24) | 1 << 24);
        rings.ring(&mut bench, 1, 1);
        assert_eq!(causes(&mut bench, 128), expected);
        assert_eq!(states(&mut bench, 128), states_then);
        assert_eq!(primary_d(&mut bench, 128), 0x100 << stale);
        assert_eq!(bench.hbm(HBM + 0x100, 4), [0; 4]);
        // The slot was not consumed.
        let window = if stale == 0 { 0x0680_1000 } else { 0x0682_1000 };
        assert_eq!(bench.read(window + 0x34), 2 << 30);
        let kinds: Vec<EventKind> = bench.report().violations.iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [EventKind::Abort]);
    }
}

#[test]
fn udma_e09_a_core_unit_ignores_the_lap() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 5, 0, 64);
    bench.poke(HOST, &[9; 4]);
    for round in 0..3 {
        // The same 64 pairs, never stamped anew.
        if round == 0 {
            (0..64).for_each(|_| rings.pair(&bench, bench.tagged(HOST), HBM, 4));
        }
        rings.ring(&mut bench, 64, 64);
    }
    assert_eq!(bench.hbm(HBM, 4), [9; 4]);
    assert_eq!(causes(&mut bench, 5), [1 << 17, 1 << 11, 0]);
    assert_eq!(states(&mut bench, 5), (0, 0));
    assert_eq!(primary_d(&mut bench, 5), 0);
    let report = bench.report();
    assert_eq!(report.descriptors, 3 * 128);
    assert!(report.violations.is_empty());
    assert!(report.expected_events.iter().all(|e| e.kind == EventKind::RingIdIgnored));
}

#[test]
fn udma_e19_packets_of_65_and_66() {
    for (count, cause) in [(65, 0), (66, 1 << 14)] {
        let mut bench = Bench::new(Product::Trn2);
        let mut rings = Rings::ready(&mut bench, 128, 0, 128);
        bench.poke(HOST, &[7; 0x100]);
        for place in 0..count {
            let flags = match place {
                0 => FIRST,
                place if place + 1 == count => LAST,
                _ => 0,
            };
            rings.tx(&bench, flags, COPY, bench.tagged(HOST + place), 1);
        }
        rings.rx(&bench, 0, HBM, 0x100);
        rings.ring(&mut bench, 1, count as u32);
        assert_eq!(causes(&mut bench, 128), [cause, 0, 0]);
        assert_eq!(bench.hbm(HBM, 1), [if cause == 0 { 7 } else { 0 }]);
    }
}

#[test]
fn a_packet_longer_than_the_limit_is_a13() {
    let (mut bench, mut rings) = ready();
    for place in 0..16 {
        let flags = [FIRST, 0, LAST][usize::from(place > 0) + usize::from(place == 15)];
        rings.tx(&bench, flags, COPY, bench.tagged(HOST), 0x1_0000);
    }
    rings.rx(&bench, 0, HBM, 0x1_0000);
    rings.ring(&mut bench, 1, 16);
    assert_eq!(causes(&mut bench, 128), [1 << 13, 0, 0]);
}

#[test]
fn udma_e20_first_and_last_in_the_wrong_place() {
    let cases: [(&[u32], u32); 3] =
        [(&[LAST], 1 << 16), (&[0], 1 << 15), (&[FIRST, FIRST | LAST], 1 << 15)];
    for (flags, cause) in cases {
        let (mut bench, mut rings) = ready();
        for flag in flags {
            rings.tx(&bench, *flag, COPY, bench.tagged(HOST), 4);
        }
        rings.rx(&bench, 0, HBM, 4);
        rings.ring(&mut bench, 1, flags.len() as u32);
        assert_eq!(causes(&mut bench, 128), [cause, 0, 0]);
        assert_eq!(states(&mut bench, 128).0, M2S_STOPPED);
    }
}

#[test]
fn udma_e21_a_source_nowhere_is_a8_and_is_logged() {
    let (mut bench, mut rings) = ready();
    rings.pair(&bench, 0x9999_0000_0000, HBM, 4);
    rings.marker(&bench);
    rings.ring(&mut bench, 2, 2);
    assert_eq!(causes(&mut bench, 128), [1 << 8, 0, 0]);
    assert_eq!(states(&mut bench, 128), (M2S_STOPPED, 0x1_1111));
    assert_eq!(primary_d(&mut bench, 128), 0x100);
    assert!(!rings.marker_seen(&bench));
    let (tx, rx) = bench.windows(128, 0);
    assert_eq!((bench.read(tx + 0x40), bench.read(rx + 0x40)), (0x4000_0000, 0x4000_0000));
    let u = bench.unit(128);
    let log: Vec<u32> = (0..4).map(|word| bench.read(u + 0x214 + 4 * word)).collect();
    assert_eq!(log, [0x0d00_0004, COPY, 0, 0x9999]);
    bench.write(u + 0x224, 1);
    assert_eq!(bench.read(u + 0x214), 0);
    // Neither init nor RST_Q nor NORMAL ends an abort.
    rings.restart(&mut bench);
    bench.init_engine(128);
    bench.write(u + 0x204, 1);
    assert_eq!(states(&mut bench, 128).0, M2S_STOPPED);
}

#[test]
fn a_source_in_memory_the_guest_does_not_share_is_a8() {
    let (mut bench, mut rings) = ready();
    copy(&mut bench, &mut rings, MEMORY_BYTES - 2, HBM, 4);
    assert_eq!(causes(&mut bench, 128), [1 << 8, 0, 0]);
}

#[test]
fn a_destination_in_memory_that_may_only_be_read_is_b1() {
    let (mut bench, mut rings) = ready();
    let page = HOST + 0x10_0000;
    bench.poke(page, &[5; 4096]);
    bench.set_read_only(page);
    // Reading it is no fault; a write that only touches it is, and changes nothing.
    copy(&mut bench, &mut rings, page, HBM, 4096);
    assert_eq!(causes(&mut bench, 128), [0; 3]);
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
    let target = bench.tagged(page - 4);
    rings.pair(&bench, HBM + 8192, target, 8);
    rings.ring(&mut bench, 1, 1);
    assert_eq!(causes(&mut bench, 128), [0, 2, 0]);
    assert_eq!(states(&mut bench, 128).1, S2M_STOPPED);
    assert_eq!(bench.peek(page - 4, 8), [0, 0, 0, 0, 5, 5, 5, 5]);
}

#[test]
fn udma_e22_a_destination_across_the_end_of_hbm_is_b1() {
    let (mut bench, mut rings) = ready();
    bench.poke(HOST, &[9; 8]);
    let end = 0x6_0000_0000;
    copy(&mut bench, &mut rings, HOST, end - 8, 8);
    copy(&mut bench, &mut rings, HOST, end - 7, 8);
    assert_eq!(causes(&mut bench, 128), [0, 2, 0]);
    assert_eq!(states(&mut bench, 128).1, S2M_STOPPED);
    assert_eq!(bench.hbm(end - 8, 8), [9; 8]);
    bench.write(bench.unit(128) + 0x3_a040, 0);
    assert_eq!(causes(&mut bench, 128), [0; 3]);
}

#[test]
fn a_ring_nowhere_is_a11_or_b9() {
    for (register, cause) in [(0x0680_102c, [1 << 11, 0, 0]), (0x0682_102c, [0, 1 << 9, 0])] {
        let (mut bench, mut rings) = ready();
        bench.write(register, 0x0000_4fff);
        copy(&mut bench, &mut rings, HOST, HBM, 4);
        assert_eq!(causes(&mut bench, 128), cause);
        assert_eq!(bench.hbm(HBM, 4), [0; 4]);
    }
}

#[test]
fn udma_e32_software_raises_a_cause() {
    let (mut bench, _) = ready();
    let u = bench.unit(128);
    bench.write(u + 0x3_a008, 1);
    assert_eq!(causes(&mut bench, 128), [1, 0, 0]);
    assert_eq!(primary_d(&mut bench, 128), 0x100);
    assert_eq!(states(&mut bench, 128), (M2S_STOPPED, 0));
    bench.write(u + 0x3_a000, 0xffff_fffe);
    assert_eq!(causes(&mut bench, 128), [0; 3]);
    assert_eq!(states(&mut bench, 128), (M2S_STOPPED, 0));
}

#[test]
fn group_c_stops_the_half_it_belongs_to() {
    for (bit, stopped) in [(0, (0, 0)), (6, (0, S2M_STOPPED))] {
        let (mut bench, _) = ready();
        let u = bench.unit(128);
        bench.write(u + 0x3_a088, 1 << bit);
        // The first write of the stock sequence is lost: C.0 does not stop anything.
        assert_eq!(states(&mut bench, 128), stopped);
        assert_eq!(causes(&mut bench, 128)[2], 1 << bit);
    }
}

#[test]
fn udma_e33_dev_e49_the_rest_of_a_core_range_swallows_writes() {
    let (mut bench, mut rings) = ready();
    rings.pair(&bench, bench.tagged(HOST), 0x20_0400_0000, 4);
    rings.marker(&bench);
    rings.ring(&mut bench, 2, 2);
    assert!(rings.marker_seen(&bench));
    assert_eq!(causes(&mut bench, 128), [0; 3]);
    let report = bench.report();
    assert!(report.violations.is_empty());
    let events: Vec<_> = report.expected_events.iter().map(|e| (e.kind, e.detail)).collect();
    assert_eq!(events, [(EventKind::CoreRangeHole, 0x20_0400_0000)]);
    // Its last mapped word is memory; one byte behind the range is nowhere.
    copy(&mut bench, &mut rings, HOST, 0x20_03ff_fffc, 4);
    assert_eq!(causes(&mut bench, 128), [0; 3]);
    copy(&mut bench, &mut rings, HOST, 0x28_0800_0000, 4);
    assert_eq!(causes(&mut bench, 128), [0, 2, 0]);
}

#[test]
fn other_operations_than_copies_are_a2() {
    for (word0, word1) in [
        (FIRST | LAST | 1 << 23, COPY),
        (FIRST | LAST, COPY | 1 << 20),
        (FIRST | LAST, COPY & !(7 << 23) | 4 << 23),
        (FIRST | LAST, COPY & !(1 << 19)),
    ] {
        let (mut bench, mut rings) = ready();
        rings.tx(&bench, word0, word1, bench.tagged(HOST), 4);
        rings.rx(&bench, 0, HBM, 4);
        rings.ring(&mut bench, 1, 1);
        assert_eq!(causes(&mut bench, 128), [1 << 2, 0, 0]);
        let kinds: Vec<EventKind> = bench.report().violations.iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [EventKind::UnsupportedDescriptor, EventKind::Abort]);
    }
}

#[test]
fn an_interrupt_request_latches_the_queue_and_nothing_else() {
    let (mut bench, mut rings) = ready();
    rings.tx(&bench, FIRST | LAST, COPY, bench.tagged(HOST), 4);
    rings.rx(&bench, 1 << 28, HBM, 4);
    rings.ring(&mut bench, 1, 1);
    let u = bench.unit(128);
    assert_eq!((bench.read(u + 0x3_8040), bench.read(u + 0x3_8080)), (1, 0));
}

#[test]
fn the_queues_of_a_stopped_direction_stop_with_it() {
    let (mut bench, mut rings) = ready();
    let mut other = Rings::on(&mut bench, 128, 1, 64);
    rings.pair(&bench, 0x9999_0000_0000, HBM, 4);
    rings.ring(&mut bench, 1, 1);
    bench.poke(HOST, &[5; 4]);
    copy(&mut bench, &mut other, HOST, HBM, 4);
    assert_eq!(bench.hbm(HBM, 4), [0; 4]);
    // Another unit goes on.
    let mut elsewhere = Rings::ready(&mut bench, 129, 0, 64);
    copy(&mut bench, &mut elsewhere, HOST, HBM, 4);
    assert_eq!(bench.hbm(HBM, 4), [5; 4]);
}
