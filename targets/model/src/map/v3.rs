//! The map of Trainium2 and Trainium3 (specification 01 §3.4, 02 §2, 06 §4.1).

use super::{Block, Builder, Map, Owner, PAGE, TILE_BYTES, TOP_SP_BYTES, UNIT_BYTES, Window};

/// Device-address bit of the second die.
const DIE: u64 = 0x8000_0000_0000;
const CORES: u8 = 8;
const TOP_SPS: u8 = 20;
const IO_BYTES: u64 = 0x2000_0000;
const SE_BYTES: u64 = 0xc80_0000;
const PREPROC_BYTES: u64 = 0x34c_0000;
const MISC_RAM: u64 = 0x6c8_4000;

pub(super) fn map(builder: &mut Builder, simulated: bool) -> Map {
    for core in 0..CORES {
        builder.tile(tile(core), core);
        io_core(builder, core);
    }
    for physical in 0..TOP_SPS {
        builder.top_sp(top_sp(physical), u16::from(CORES + physical));
    }
    for logical in 0..16u8 {
        let (die, t) = (u64::from(logical / 8), u64::from(logical % 8));
        let start = die * 0x4000_0000 + 0x6a0_0000 + t * 0x4_0000;
        builder.add(start, PAGE, Block::Notific { owner: Owner::TopSp(physical_top_sp(logical)) });
    }
    for seng in 0..4u8 {
        seng_engines(builder, seng);
        let number = u64::from(seng);
        builder.memory(0xc000_0000 + number * TILE_BYTES, PREPROC_BYTES);
        let start = (number / 2) * 0x4000_0000 + 0x680_0000 + (number % 2) * 0x10_0000;
        let engine = 128 + u16::from(seng);
        builder.add(start, UNIT_BYTES, Block::Udma { engine });
        builder.wrapper(start + 0x4_0000, engine);
    }
    builder.add(MISC_RAM, PAGE, Block::MiscRam);
    if simulated {
        builder.add(0x630_0000, PAGE, Block::QemuDoorbell);
    }
    Map {
        spans: Vec::new(),
        windows: windows(),
        hbm: vec![(0, 0), (0x40_0000_0000, 0), (DIE, 0), (DIE + 0x40_0000_0000, 0)],
        hbm_bytes: 0,
        core_ranges: (0..CORES).map(core_address).collect(),
        host_mask: 1 << 46,
        host_base: 1 << 46,
        peers: true,
        onchip_bytes: 0,
        engines: 132,
        banks: usize::from(CORES + TOP_SPS),
    }
}

/// Physical number of a TopSP that drivers number 0..15 (01 §3.4).
pub(crate) const fn physical_top_sp(logical: u8) -> u8 {
    if logical < 8 { logical } else { logical + 2 }
}

fn tile(core: u8) -> u64 {
    0xd000_0000 + u64::from(core) * TILE_BYTES
}

fn core_address(core: u8) -> u64 {
    const PLACE: [u64; 4] = [0x20_0000_0000, 0x30_0000_0000, 0x60_0000_0000, 0x70_0000_0000];
    PLACE[usize::from(core % 4)] + u64::from(core / 4) * DIE
}

fn top_sp(physical: u8) -> u64 {
    0xf000_0000 + u64::from(physical) * TOP_SP_BYTES
}

/// The block of a core in the APB_IO window of its die: NOTIFIC block and PE counters.
fn io_core(builder: &mut Builder, core: u8) {
    const PLACE: [u64; 4] = [0x600_0000, 0x618_0000, 0x640_0000, 0x658_0000];
    let start = u64::from(core / 4) * 0x4000_0000 + PLACE[usize::from(core % 4)];
    builder.add(start + 0x1000, PAGE, Block::Notific { owner: Owner::Core(core) });
    builder.add(start + 0x14_1000, PAGE, Block::PeCounters { core });
}

/// The 32 units of a SENG, their wrappers and error triggers.
fn seng_engines(builder: &mut Builder, seng: u8) {
    let window = 0x8000_0000 + u64::from(seng) * 0x1000_0000;
    let odd = seng % 2 == 1;
    let units = window + if odd { 0x400_0000 } else { 0x200_0000 };
    let triggers = window + if odd { 0xc40_0000 } else { 0xc00_0000 };
    for k in 0..32u16 {
        let engine = u16::from(seng) * 32 + k;
        let start = units + u64::from(k) * 0x10_0000;
        builder.add(start, UNIT_BYTES, Block::Udma { engine });
        builder.wrapper(start + 0x4_0000, engine);
        let owner = Owner::Engine(engine);
        builder.add(triggers + u64::from(k) * 0x2_0000, PAGE, Block::Storage { owner });
    }
}

fn windows() -> Vec<Window> {
    let mut windows = Vec::new();
    let mut add = |device, bar0, len| windows.push(Window { device, bar0, len });
    for die in 0..2 {
        add(0x80_0000_0000 + die * DIE, die * 0x4000_0000, IO_BYTES);
    }
    for seng in 0..4u64 {
        let place = (seng / 2) * DIE + (seng % 2) * 0x40_0000_0000;
        add(0x10_0000_0000 + place, 0x8000_0000 + seng * 0x1000_0000, SE_BYTES);
        add(0x12_0000_0000 + place, 0xc000_0000 + seng * TILE_BYTES, PREPROC_BYTES);
    }
    for core in 0..CORES {
        add(core_address(core), tile(core), TILE_BYTES);
    }
    for physical in 0..TOP_SPS {
        let die = u64::from(physical / 10) * DIE;
        let place = u64::from(physical % 10) * 0x4000_0000;
        add(0x82_8000_0000 + die + place, top_sp(physical), TOP_SP_BYTES);
    }
    windows
}
