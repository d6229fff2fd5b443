//! The map of Trainium1 and Inferentia2 (specification 01 §3.3, 02 §2, 06 §4.1).

use super::{Block, Builder, Map, Owner, PAGE, TILE_BYTES, TOP_SP_BYTES, UNIT_BYTES, Window};

const DEVICE_BASE: u64 = 0xfff_c000_0000;
const BAR0_BYTES: u64 = 1 << 30;
const APB: u64 = 0x3000_0000;
const CORES: u8 = 2;
const TOP_SPS: u8 = 6;
/// Offset of the second half of the APB window, one half a core.
const SENG_PITCH: u64 = 0x70_0000;

pub(super) fn map(builder: &mut Builder, simulated: bool) -> Map {
    for core in 0..CORES {
        builder.tile(u64::from(core) * TILE_BYTES, core);
        seng(builder, core);
    }
    for t in 0..TOP_SPS {
        let number = u64::from(t);
        builder.top_sp(0x1000_0000 + number * TOP_SP_BYTES, u16::from(CORES + t));
        builder.add(
            APB + 0xe0_4000 + number * 0x4_0000,
            PAGE,
            Block::Notific { owner: Owner::TopSp(t) },
        );
    }
    builder.add(APB + 0xfa_0000, PAGE, Block::MiscRam);
    if simulated {
        builder.add(APB + 0x64_7000, PAGE, Block::QemuDoorbell);
    }
    Map {
        spans: Vec::new(),
        windows: vec![Window { device: DEVICE_BASE, bar0: 0, len: BAR0_BYTES }],
        hbm: vec![(0, 0), (0x10_0000_0000, 0)],
        hbm_bytes: 0,
        core_ranges: Vec::new(),
        host_mask: 0x1_f000_0000_0000,
        host_base: 0x1000_0000_0000,
        peers: false,
        onchip_bytes: 0,
        engines: 34,
        banks: usize::from(CORES + TOP_SPS),
    }
}

/// One half of the APB window: 16 units, the host-transfer unit, NOTIFIC block, PE counters.
fn seng(builder: &mut Builder, core: u8) {
    let half = APB + u64::from(core) * SENG_PITCH;
    for e in 0..16 {
        let engine = u16::from(core) * 16 + e;
        builder.add(half + u64::from(e) * 0x4_0000, UNIT_BYTES, Block::Udma { engine });
        builder.wrapper(half + 0x40_0000 + u64::from(e) * 0x7000, engine);
    }
    let engine = 32 + u16::from(core);
    builder.add(half + 0x60_0000, UNIT_BYTES, Block::Udma { engine });
    builder.wrapper(half + 0x64_0000, engine);
    builder.add(half + 0x53_5000, PAGE, Block::Notific { owner: Owner::Core(core) });
    builder.add(half + 0x5b_1000, PAGE, Block::PeCounters { core });
}
