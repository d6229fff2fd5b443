//! Windows, widths, gates, footprints: specification 01 §14.1–14.4, §14.10–14.12.

use std::sync::{Arc, Mutex};

use axon_model::report::{EventKind, Touched};
use axon_model::{Bar4, ConfigError, FunctionConfig, Neighbour, Product, Unreachable};

use crate::bench::{Bench, Rings};

#[test]
fn memory_enable_gates_the_windows() {
    let mut bench = Bench::new(Product::Trn1);
    assert_eq!(bench.read(0x30fa_0000), 7);
    bench.function.config_write(4, &[0x04, 0]);
    assert_eq!(bench.read(0x30fa_0000), u32::MAX);
    bench.write(0x30fa_0100, 5);
    assert_eq!(bench.hbm(0, 2), [0xff; 2]);
    bench.function.config_write(4, &[0x06, 0]);
    assert_eq!(bench.read(0x30fa_0100), 0);
}

#[test]
fn dma_without_bus_mastering_is_dropped_and_reported() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 128, 0, 64);
    rings.marker(&bench);
    bench.function.config_write(4, &[0x02, 0]);
    rings.ring(&mut bench, 1, 1);
    assert!(!rings.marker_seen(&bench));
    let report = bench.report();
    assert!(report.violations.iter().any(|e| e.kind == EventKind::DmaWithoutBusMaster));
    assert_eq!(report.markers, 0);
}

#[test]
fn registers_take_words_only() {
    let mut bench = Bench::new(Product::Trn1);
    let api = 0x30fa_0000;
    for (offset, len) in [(api, 1), (api, 2), (api + 2, 4), (api + 4, 8), (api, 3), (api, 16)] {
        let mut bytes = vec![0; len];
        bench.function.bar_read(0, offset, &mut bytes);
        assert_eq!(bytes, vec![0xff; len], "{len} bytes at {offset:#x}");
        bench.function.bar_write(0, offset, &vec![0x77; len]);
    }
    assert_eq!(bench.read(api), 7);
    let irregular = bench.report().irregular;
    assert_eq!(irregular.iter().map(|touched| touched.count).sum::<u64>(), 12);
    assert!(bench.report().unmodelled.is_empty());

    // An aligned access of 8 bytes is two words, low half first.
    bench.function.bar_write(0, api + 0x100, &[1, 0, 0, 0, 2, 0, 0, 0]);
    let mut bytes = [0; 8];
    bench.function.bar_read(0, api + 0x100, &mut bytes);
    assert_eq!(bytes, [1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!((bench.read(api + 0x100), bench.read(api + 0x104)), (1, 2));
}

#[test]
fn memory_takes_any_width() {
    let mut bench = Bench::new(Product::Trn2);
    for (bar, offset) in [(0, 0xd000_1235), (0, 0xf000_2001), (4, 0x1003), (0, 0xc000_0007)] {
        bench.function.bar_write(bar, offset, b"axon!");
        let mut bytes = [0; 7];
        bench.function.bar_read(bar, offset - 1, &mut bytes);
        assert_eq!(&bytes, b"\0axon!\0");
    }
    assert!(bench.report().irregular.is_empty());
    assert_eq!(bench.report().register_reads, 0);
}

#[test]
fn what_no_block_has_is_listed() {
    let mut bench = Bench::new(Product::Trn2);
    assert_eq!(bench.read(0x0700_0000), 0);
    bench.write(0x0700_0000, 1);
    bench.write(0x82f3_c800, 1);
    let expected = [
        Touched { bar: 0, offset: 0x0700_0000, count: 2 },
        Touched { bar: 0, offset: 0x82f3_c800, count: 1 },
    ];
    assert_eq!(bench.report().unmodelled, expected);
    // Behind the end there is nothing at all.
    let mut bytes = [0; 4];
    bench.function.bar_read(0, (1 << 32) - 2, &mut bytes);
    assert_eq!(bytes, [0xff; 4]);
    bench.function.bar_read(0, u64::MAX, &mut bytes);
    bench.function.bar_read(1, 0, &mut bytes);
    bench.function.bar_read(77, 0, &mut bytes);
    bench.function.bar_write(4, u64::MAX - 1, &bytes);
    assert_eq!(bytes, [0xff; 4]);
}

#[test]
fn misc_ram_after_power_on() {
    for (product, index, routing, serial) in
        [(Product::Trn1, 7, 5, 8), (Product::Inf2, 5, 5, 6), (Product::Trn2, 3, 1, 4)]
    {
        let mut bench = Bench::with(FunctionConfig::new(product, index));
        let misc = bench.misc();
        for (offset, value) in [
            (0x000, 7),
            (0x024, routing),
            (0x038, serial),
            (0x03c, 1),
            (0x040, 0),
            (0x064, 0),
            (0x070, 0),
            (0x0f0, 0),
            (0x190, 0),
            (0x1ec, 0),
            (0x800, 0),
            (0x808, 0),
        ] {
            assert_eq!(bench.read(misc + offset), value, "{product:?} +{offset:#x}");
        }
    }
}

#[test]
fn dev_e23_power_counts_samples_on_every_die() {
    let mut bench = Bench::new(Product::Trn2);
    let (die_0, die_1) = (bench.misc() + 0x54, bench.misc() + 0x58);
    assert_eq!(bench.read(die_0), 0x0001_09c4);
    bench.pass(100_000_000);
    assert_eq!((bench.read(die_0), bench.read(die_1)), (0x0002_09c4, 0x0002_09c4));
    bench.control("poke 0x54 0x00121388");
    assert_eq!(bench.read(die_0), 0x0012_1388);
    let mut single = Bench::new(Product::Trn1);
    assert_eq!(single.read(0x30fa_0058), 0);
}

#[test]
fn a_stuck_word_reads_the_same_through_resets() {
    let mut bench = Bench::new(Product::Trn1);
    let reset = bench.misc() + 0x1ec;
    bench.control("stick 0x1ec 0xdeadbeef");
    bench.write(reset, 1);
    bench.write(bench.misc() + 0x800, 1);
    bench.pass(20_000_000);
    assert_eq!(bench.read(reset), 0xdead_beef);
    assert_eq!(bench.report().device_resets, 1);
    bench.control("stick 0x1ec off");
    assert_eq!(bench.read(reset), 0);
    for wrong in ["stick 0x1ee 1", "stick 0 0x100000000", "stick 0"] {
        assert!(bench.function.control(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn dev_e41_semaphores_and_events_in_their_windows() {
    let mut bench = Bench::new(Product::Trn1);
    bench.write(0x0670_1814, 3);
    assert_eq!((bench.read(0x0670_1014), bench.read(0x0670_1814)), (3, 0));
    assert_eq!(bench.read(0x0270_1014), 0, "core 0 has its own");
    let mut bench = Bench::new(Product::Trn2);
    bench.write(0xee70_03fc, 3);
    assert_eq!(bench.read(0xee70_03fc), 1);
    // TopSP 16 (physical 18) has the same block at its start.
    bench.write(0xf280_0000 + 8 * 0x40_0000 + 0x1404, 9);
    assert_eq!(bench.read(0xf280_0000 + 8 * 0x40_0000 + 0x1004), 9);
    assert!(bench.report().unmodelled.is_empty());
}

#[test]
fn notific_blocks_keep_what_is_written() {
    for product in [Product::Trn1, Product::Trn2] {
        let mut bench = Bench::new(product);
        let blocks: &[u64] = if bench.is_v2() {
            &[0x3053_5000, 0x30c3_5000, 0x3040_1000, 0x30b0_1000 + 15 * 0x7000, 0x30e0_4000]
        } else {
            &[0x0600_1000, 0x4658_1000, 0x8204_1000, 0xb5f4_1000, 0x06a0_0000, 0x46bc_0000]
        };
        for block in blocks {
            for queue in [0, 15] {
                let at = block + 0x100 + 0x28 * queue;
                bench.write(at + 4, 0x4000);
                bench.write(at, 0x1000);
                bench.write(at + 0xc, 0x40);
                bench.write(at + 8, 0x4000);
                let got: Vec<u32> = (0..5).map(|word| bench.read(at + 4 * word)).collect();
                assert_eq!(got, [0x1000, 0x4000, 0x4000, 0, 0], "{block:#x}");
            }
            bench.write(block + 0x14, 0x3ff);
            assert_eq!(bench.read(block + 0x14), 0x3ff);
        }
        bench.pass(5);
        assert_eq!(bench.read(blocks[0]), 5);
        assert!(bench.report().unmodelled.is_empty());
    }
}

#[test]
fn dev_e05_a_smaller_memory_window_cuts_the_image_off() {
    let mut config = FunctionConfig::new(Product::Trn2, 0);
    config.bar4 = Bar4::Size(64 << 30);
    let mut bench = Bench::with(config.clone());
    assert_eq!(bench.function.bars()[4].map(|bar| bar.size_bytes), Some(64 << 30));
    let segments: Vec<(u64, u64)> =
        bench.function.hbm_segments().iter().map(|s| (s.bar_offset, s.len_bytes)).collect();
    assert_eq!(segments, [(0, 64 << 20)]);
    // HBM 1 is there, by DMA.
    let mut rings = Rings::ready(&mut bench, 128, 0, 64);
    bench.poke(0x5000, &[3; 4]);
    rings.pair(&bench, bench.tagged(0x5000), 0x40_0000_0000, 4);
    rings.pair(&bench, 0x40_0000_0000, bench.tagged(0x6000), 4);
    rings.ring(&mut bench, 2, 2);
    assert_eq!(bench.peek(0x6000, 4), [3; 4]);

    config.bar4 = Bar4::Absent;
    let bench = Bench::with(config.clone());
    assert_eq!(bench.function.bars()[4], None);
    assert!(bench.function.hbm_segments().is_empty());

    config.bar4 = Bar4::Size(65 << 30);
    let memory = bench.memory.clone();
    struct Never;
    impl axon_model::ModelClock for Never {
        fn now_ns(&self) -> u64 {
            0
        }
    }
    let refused = axon_model::Function::new(config, memory, Arc::new(Never));
    assert!(matches!(refused, Err(ConfigError::Bar4Size { .. })));
}

#[test]
fn dev_e09_dev_e12_the_simulator_divides_the_window_among_channels() {
    let mut config = FunctionConfig::new(Product::Trn3, 0);
    config.revision = 0xff;
    config.bar4 = Bar4::Size(4 << 30);
    let mut bench = Bench::with(config);
    let mut rings = Rings::ready(&mut bench, 128, 0, 64);
    bench.poke(0x5000, &[3; 4]);
    rings.pair(&bench, bench.tagged(0x5000), 0x40_0000_1000, 4);
    rings.pair(&bench, bench.tagged(0x5000), 0x8000_0000_0000, 4);
    rings.ring(&mut bench, 2, 2);
    assert_eq!(bench.hbm(0x4000_1000, 4), [3; 4]);
    assert_eq!(bench.hbm(0x8000_0000, 4), [3; 4]);
    rings.pair(&bench, bench.tagged(0x5000), 0x40_4000_0000, 4);
    rings.ring(&mut bench, 1, 1);
    assert_eq!(bench.read(bench.unit(128) + 0x3_a040), 2);
    let segments = bench.function.hbm_segments().len();
    assert_eq!(segments, 4);
}

#[test]
fn gaps_of_the_memory_window_read_0() {
    let mut bench = Bench::new(Product::Trn2);
    bench.function.bar_write(4, 0x6_0000_0000, &[1; 4]);
    assert_eq!(bench.hbm(0x6_0000_0000, 4), [0; 4]);
    assert_eq!(bench.hbm(0x5_ffff_fffe, 4), [0; 4]);
    assert_eq!(bench.report().unmodelled.len(), 2);
    let segments: Vec<u64> =
        bench.function.hbm_segments().iter().map(|segment| segment.bar_offset).collect();
    assert_eq!(segments, [0, 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000]);
}

#[test]
fn a_neighbour_reads_misc_ram_through_the_link() {
    let mut bench = Bench::new(Product::Trn2);
    bench.write(0x06c8_4184, 0x55);
    let mut word = [0; 4];
    assert_eq!(bench.function.peer_read(0x80_06c8_4184, &mut word), Ok(()));
    assert_eq!(word, [0x55, 0, 0, 0]);
    assert_eq!(bench.function.peer_write(0x40, &[1, 2]), Ok(()));
    assert_eq!(bench.hbm(0x40, 2), [1, 2]);
    assert_eq!(bench.function.peer_read(0x9999_0000_0000, &mut word), Err(Unreachable));
}

struct Peer(Mutex<Vec<(u64, Vec<u8>)>>);

impl Neighbour for Peer {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreachable> {
        into.fill(address as u8);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unreachable> {
        self.0.lock().map_err(|_| Unreachable)?.push((address, from.to_vec()));
        Ok(())
    }
}

#[test]
fn peer_windows_lead_to_the_neighbour_or_nowhere() {
    let mut bench = Bench::new(Product::Trn2);
    let mut rings = Rings::ready(&mut bench, 36, 0, 64);
    let peer = Arc::new(Peer(Mutex::new(Vec::new())));
    bench.function.set_neighbour(1, Some(peer.clone()));
    let link = 0x14_0000_0000_0000;
    rings.pair(&bench, link + 0x80_06c8_4024, bench.tagged(0x5000), 4);
    rings.pair(&bench, bench.tagged(0x5000), link + 0x4000_0000_0008, 4);
    rings.ring(&mut bench, 2, 2);
    assert_eq!(bench.peek(0x5000, 4), [0x24; 4]);
    let seen = peer.0.lock().expect("no panic").clone();
    assert_eq!(seen, [(0x4000_0000_0008, vec![0x24; 4])]);
    rings.pair(&bench, 0x10_0000_0000_0000, bench.tagged(0x5000), 4);
    rings.ring(&mut bench, 1, 1);
    assert_eq!(bench.read(bench.unit(36) + 0x3_a000), 1 << 8);
}

#[test]
fn a_bus_reset_is_a_power_on_that_keeps_hbm() {
    let mut bench = Bench::new(Product::Trn1);
    bench.function.bar_write(4, 0, &[7; 4]);
    bench.write(0x30fa_0190, 3);
    bench.init_engine(0);
    bench.function.bus_reset();
    assert_eq!(bench.read(0x30fa_0000), u32::MAX);
    bench.function.config_write(4, &[6, 0]);
    assert_eq!(bench.read(0x30fa_0190), 0);
    assert_eq!(bench.read(0x3000_1020), 0x0300_0000);
    assert_eq!(bench.hbm(0, 4), [7; 4]);
}
