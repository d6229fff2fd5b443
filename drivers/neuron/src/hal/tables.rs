//! What differs between generations, as data: one [`Tables`] value each for V2, V3 and V4
//! (specification 01 §3, §13; 02 §2, §4, §11; 03 §2). No code asks which generation it drives;
//! it asks a table.

use super::identity::Generation;
use super::register_map::RegisterBlock;

/// Constants of one generation.
#[derive(Debug)]
pub struct Tables {
    /// Generation these constants belong to.
    pub generation: Generation,
    /// Address spaces and where blocks lie.
    pub map: AddressTables,
    /// Counts of silicon; an emulator may have fewer cores.
    pub counts: Counts,
    /// DMA engines, in ascending ranges.
    pub engine_ranges: &'static [EngineRange],
    /// Who serves the copies of a core.
    pub host_transfer: HostTransfer,
    /// What engine initialisation writes.
    pub engine: EngineTables,
    /// How long a batch may take.
    pub wait: WaitTables,
    /// What a reset writes and waits for.
    pub reset: ResetTables,
    /// Performance counters of the PE array.
    pub pe_counters: PeCounterTables,
    /// Engines that read the left and the right neighbour of an UltraServer node.
    pub link_engines: Option<[[u8; 2]; 2]>,
    /// Firmware may say that a repair of HBM is pending.
    pub knows_repair: bool,
    /// Simulator and emulator take no metric posts.
    pub posts_on_silicon_only: bool,
    /// Oldest and newest runtime that works with this driver.
    pub compatible_runtime: (u32, u32),
}

/// Bases and sizes (specification 01 §3).
#[derive(Debug)]
pub struct AddressTables {
    /// Bit that turns a bus address into a device-view address.
    pub host_base: u64,
    /// `address & host_mask == host_base` says "host memory".
    pub host_mask: u64,
    /// PCI index of the register window on silicon, and under the functional simulator.
    pub register_bar: (u8, u8),
    /// Bytes of the register window that the map refers to.
    pub register_len: u64,
    /// MiscRAM in the register window.
    pub misc_ram: u64,
    /// Registers that firmware reads for the driver: first address as the device sees it, bytes.
    pub firmware_readable: (u64, u64),
    /// HBM channels: first byte as the device sees it.
    pub hbm_bases: &'static [u64],
    /// Bytes of one HBM channel.
    pub hbm_size: u64,
    /// Distance of two channels in BAR4.
    pub hbm_bar4_pitch: u64,
    /// Whether the functional simulator derives sizes from BAR4.
    pub hbm_follows_bar4: bool,
    /// Cores, as the device sees their first byte.
    pub core_bases: &'static [u64],
    /// Core 0 in the register window; the others follow at [`CORE_PITCH`].
    pub core_window: u64,
    /// Core 0 as a window token (specification 01 §3.9); the others follow at [`CORE_PITCH`].
    pub core_token: u64,
    /// All physical TopSPs of the device, as ranges.
    pub topsps: &'static [TopSpRange],
    /// Notification block of each core in the register window.
    pub core_notific: &'static [u64],
    /// Notification blocks of TopSPs, in ranges of logical numbers.
    pub topsp_notific: &'static [NotificRange],
    /// Notification block of an engine's DMA trace, from the base of its wrapper.
    pub trace_notific: u64,
    /// Instruction windows of the pre-processing units, which program-engine copies may target.
    pub preproc: &'static [(u64, u64)],
    /// The one block of a register window without gaps.
    pub linear: Option<RegisterBlock>,
    /// Blocks of a register window in pieces, cores and TopSPs aside.
    pub register_blocks: &'static [RegisterBlock],
    /// Windows onto the neighbours, by the SENG that reaches through them.
    pub peer_windows: &'static [u64],
    /// Write of 1 here starts a reset under the functional simulator.
    pub simulator_reset: u64,
}

/// Distance of two core tiles in the register window and among the window tokens.
pub const CORE_PITCH: u64 = 0x400_0000;
/// Mapped bytes of a core as a DMA target.
pub const CORE_LEN: u64 = 0x400_0000;
/// Bytes of a TopSP.
pub const TOPSP_LEN: u64 = 0x40_0000;

/// Consecutive physical TopSPs.
#[derive(Debug)]
pub struct TopSpRange {
    /// How many.
    pub count: u8,
    /// How many of them have a logical number, from the first on.
    pub logical: u8,
    /// The first one as the device sees it.
    pub device: u64,
    /// Distance of two of them there.
    pub device_pitch: u64,
    /// The first one in the register window; the others follow at [`TOPSP_LEN`].
    pub window: u64,
}

/// Notification blocks of consecutive logical TopSPs, 0x40000 apart.
#[derive(Debug)]
pub struct NotificRange {
    /// How many.
    pub count: u8,
    /// Block of the first one in the register window.
    pub window: u64,
}

/// How much there is of everything.
#[derive(Debug)]
pub struct Counts {
    /// Cores.
    pub cores: u8,
    /// Dice.
    pub dice: u8,
    /// Logical TopSPs.
    pub topsps: u8,
    /// Logical TopSPs of each core.
    pub topsps_per_core: u8,
    /// Engines private to cores.
    pub core_engines: u8,
    /// All engines.
    pub engines: u8,
    /// Cores of one SENG (a group of engines with one host-transfer engine).
    pub cores_per_seng: u8,
    /// Engines of an HBM channel that reach the host, as a mask relative to the channel's first.
    pub host_connected: u32,
    /// Engines per HBM channel.
    pub engines_per_hbm: u8,
    /// Types of notification queues of a core.
    pub notification_types: u8,
}

/// Consecutive engines with a common layout (specification 02 §2).
#[derive(Debug)]
pub struct EngineRange {
    /// Number of the first.
    pub first: u8,
    /// How many.
    pub count: u8,
    /// UDMA unit of the first in the register window.
    pub unit: u64,
    /// Distance of two units.
    pub unit_pitch: u64,
    /// SDMA wrapper of the first.
    pub wrapper: u64,
    /// Distance of two wrappers.
    pub wrapper_pitch: u64,
    /// Error-trigger controller of the first and the distance of two of them.
    pub user_fis: Option<(u64, u64)>,
}

/// Host-transfer engines (specification 03 §2.2).
#[derive(Debug)]
pub struct HostTransfer {
    /// The first one.
    pub first_engine: u8,
    /// How many.
    pub engines: u8,
    /// Cores that share one.
    pub cores_per_engine: u8,
    /// Engines with queue 14 owned by on-chip sequencers, as a mask of the number in their core.
    pub nx_engines: u16,
    /// A copy caught by a reset is issued again (specification 03 §7.8).
    pub replay: bool,
    /// Receive descriptors may ask for strong order.
    pub strong_order_write: bool,
    /// Copies straight between client pages and a chunk are on by default.
    pub zero_copy: bool,
}

/// Values of engine initialisation (specification 02 §4, §11).
#[derive(Debug)]
pub struct EngineTables {
    /// M2S `data_cfg`: depth of the data FIFO in beats.
    pub m2s_data_cfg: u32,
    /// M2S `ostand_cfg`.
    pub m2s_outstanding: u32,
    /// S2M `ostand_cfg_rd`.
    pub s2m_read_outstanding: u32,
    /// S2M `ostand_cfg_wr_2` bits 9 to 0, where the field exists.
    pub s2m_write_outstanding_2: Option<u32>,
    /// SDMA wrapper +0x800, where the register exists.
    pub overhead_beats: Option<u32>,
    /// Engines of cores get broadcast groups.
    pub broadcast: bool,
    /// AXI errors have to be turned into aborts by tables.
    pub axi_abort_tables: bool,
    /// Engines of cores ignore ring-id errors.
    pub mask_ring_id_errors: bool,
}

/// Coefficients of 03 §7.6; µs.
#[derive(Debug)]
pub struct WaitTables {
    /// Estimate for each data descriptor.
    pub estimate: u64,
    /// The first wait of a synchronous copy is the estimate less this.
    pub lead: u64,
    /// The budget is `(factor · estimate − first) · 100`.
    pub factor: u64,
}

/// Reset map and times (specification 01 §9).
#[derive(Debug)]
pub struct ResetTables {
    /// Fields of the low map word: lowest bit, bits of each core.
    pub map_fields: &'static [(u8, u8)],
    /// The high map word exists: bit *s* = host-transfer engine of SENG *s* as well.
    pub has_high_map: bool,
    /// A per-core reset stops the engines of its cores.
    pub covers_core_engines: bool,
    /// Time allowed until firmware accepts; ms.
    pub initiate_ms: u64,
    /// Completion reads on silicon, under the simulator, on the emulator.
    pub completion_reads: (u32, u32, u32),
    /// The simulator wants the firmware handshake behind its doorbell.
    pub simulator_handshake: bool,
    /// The emulator cannot be reset.
    pub emulator_no_reset: bool,
}

/// Activity counters of the PE array (specification 01 §3.8).
#[derive(Debug)]
pub struct PeCounterTables {
    /// Counter area of each core in the register window.
    pub areas: &'static [u64],
    /// Bytes of one register group.
    pub group: u64,
    /// Buses, hence register groups of one row group.
    pub buses: u64,
    /// Group of the normal weight-load counter.
    pub weight_load_group: u64,
    /// The weight-load counter already includes the fast ones.
    pub weight_load_is_fast_total: bool,
}

/// Trainium1, Inferentia2.
pub static V2: Tables = Tables {
    generation: Generation::V2,
    map: AddressTables {
        host_base: 1 << 44,
        host_mask: 0x1_f000_0000_0000,
        register_bar: (0, 2),
        register_len: 0x30fa_1000,
        misc_ram: 0x30fa_0000,
        firmware_readable: (0xfff_c000_0000, 0x4000_0000),
        hbm_bases: &[0, 0x10_0000_0000],
        hbm_size: 0x4_0000_0000,
        hbm_bar4_pitch: 0x4_0000_0000,
        hbm_follows_bar4: false,
        core_bases: &[0xfff_c000_0000, 0xfff_c400_0000],
        core_window: 0,
        core_token: 0xfff_c000_0000,
        topsps: &[TopSpRange {
            count: 6,
            logical: 6,
            device: 0xfff_d000_0000,
            device_pitch: TOPSP_LEN,
            window: 0x1000_0000,
        }],
        core_notific: &[0x3053_5000, 0x30c3_5000],
        topsp_notific: &[NotificRange { count: 6, window: 0x30e0_4000 }],
        trace_notific: 0x1000,
        preproc: &[],
        linear: Some(block(0xfff_c000_0000, 0, 0x4000_0000)),
        register_blocks: &[],
        peer_windows: &[],
        simulator_reset: 0x3064_7010,
    },
    counts: Counts {
        cores: 2,
        dice: 1,
        topsps: 6,
        topsps_per_core: 3,
        core_engines: 32,
        engines: 34,
        cores_per_seng: 1,
        host_connected: 0xffff,
        engines_per_hbm: 16,
        notification_types: 6,
    },
    engine_ranges: &[
        EngineRange {
            first: 0,
            count: 16,
            unit: 0x3000_0000,
            unit_pitch: 0x4_0000,
            wrapper: 0x3040_0000,
            wrapper_pitch: 0x7000,
            user_fis: None,
        },
        EngineRange {
            first: 16,
            count: 16,
            unit: 0x3070_0000,
            unit_pitch: 0x4_0000,
            wrapper: 0x30b0_0000,
            wrapper_pitch: 0x7000,
            user_fis: None,
        },
        EngineRange {
            first: 32,
            count: 1,
            unit: 0x3060_0000,
            unit_pitch: 0,
            wrapper: 0x3064_0000,
            wrapper_pitch: 0,
            user_fis: None,
        },
        EngineRange {
            first: 33,
            count: 1,
            unit: 0x30d0_0000,
            unit_pitch: 0,
            wrapper: 0x30d4_0000,
            wrapper_pitch: 0,
            user_fis: None,
        },
    ],
    host_transfer: HostTransfer {
        first_engine: 32,
        engines: 2,
        cores_per_engine: 1,
        nx_engines: 0x07ff,
        replay: true,
        strong_order_write: false,
        zero_copy: false,
    },
    engine: EngineTables {
        m2s_data_cfg: 0x0100_0400,
        m2s_outstanding: 0x0000_086f,
        s2m_read_outstanding: 0x0040_0008,
        s2m_write_outstanding_2: None,
        overhead_beats: None,
        broadcast: true,
        axi_abort_tables: true,
        mask_ring_id_errors: false,
    },
    wait: WaitTables { estimate: 4, lead: 3, factor: 100 },
    reset: ResetTables {
        map_fields: &[(0, 1), (8, 3)],
        has_high_map: false,
        covers_core_engines: false,
        initiate_ms: 120_000,
        completion_reads: (5, 5, 5000),
        simulator_handshake: true,
        emulator_no_reset: false,
    },
    pe_counters: PeCounterTables {
        areas: &[0x305b_1100, 0x30cb_1100],
        group: 0x40,
        buses: 5,
        weight_load_group: 1,
        weight_load_is_fast_total: true,
    },
    link_engines: None,
    knows_repair: false,
    posts_on_silicon_only: false,
    compatible_runtime: (5, 7),
};

/// Trainium2.
pub static V3: Tables = Tables {
    generation: Generation::V3,
    map: V3_MAP,
    counts: V3_COUNTS,
    engine_ranges: &V3_ENGINES,
    host_transfer: V3_HOST_TRANSFER,
    engine: V3_ENGINE,
    wait: V3_WAIT,
    reset: V3_RESET,
    pe_counters: V3_PE_COUNTERS,
    link_engines: Some([[36, 68], [4, 100]]),
    knows_repair: true,
    posts_on_silicon_only: true,
    compatible_runtime: (10, 11),
};

/// Trainium3: Trainium2 but for the size of HBM, one engine register and the emulator.
pub static V4: Tables = Tables {
    generation: Generation::V4,
    map: AddressTables { hbm_size: 0x9_0000_0000, ..V3_MAP },
    counts: V3_COUNTS,
    engine_ranges: &V3_ENGINES,
    host_transfer: V3_HOST_TRANSFER,
    engine: EngineTables { s2m_write_outstanding_2: Some(0x100), ..V3_ENGINE },
    wait: V3_WAIT,
    reset: ResetTables { emulator_no_reset: true, ..V3_RESET },
    pe_counters: V3_PE_COUNTERS,
    link_engines: Some([[40, 72], [8, 104]]),
    knows_repair: true,
    posts_on_silicon_only: true,
    compatible_runtime: (10, 11),
};

const fn block(device: u64, window: u64, len_bytes: u64) -> RegisterBlock {
    RegisterBlock { device, window, len_bytes }
}

const V3_MAP: AddressTables = AddressTables {
    host_base: 1 << 46,
    // With bit 52 it leads to a neighbour, whatever the others say.
    host_mask: 1 << 52 | 1 << 46,
    register_bar: (0, 0),
    register_len: 0xf500_0000,
    misc_ram: 0x06c8_4000,
    firmware_readable: (0x80_0000_0000, 0x2000_0000),
    hbm_bases: &[0, 0x40_0000_0000, 0x8000_0000_0000, 0x8040_0000_0000],
    hbm_size: 0x6_0000_0000,
    hbm_bar4_pitch: 0x10_0000_0000,
    hbm_follows_bar4: true,
    core_bases: &[
        0x20_0000_0000,
        0x30_0000_0000,
        0x60_0000_0000,
        0x70_0000_0000,
        0x8020_0000_0000,
        0x8030_0000_0000,
        0x8060_0000_0000,
        0x8070_0000_0000,
    ],
    core_window: 0xd000_0000,
    core_token: 0x20_0000_0000,
    topsps: &[
        TopSpRange {
            count: 10,
            logical: 8,
            device: 0x82_8000_0000,
            device_pitch: 0x4000_0000,
            window: 0xf000_0000,
        },
        TopSpRange {
            count: 10,
            logical: 8,
            device: 0x8082_8000_0000,
            device_pitch: 0x4000_0000,
            window: 0xf280_0000,
        },
    ],
    core_notific: &[
        0x0600_1000,
        0x0618_1000,
        0x0640_1000,
        0x0658_1000,
        0x4600_1000,
        0x4618_1000,
        0x4640_1000,
        0x4658_1000,
    ],
    topsp_notific: &[
        NotificRange { count: 8, window: 0x06a0_0000 },
        NotificRange { count: 8, window: 0x46a0_0000 },
    ],
    trace_notific: 0x1000,
    preproc: &[
        (0x12_0000_0000, 0x34c_0000),
        (0x52_0000_0000, 0x34c_0000),
        (0x8012_0000_0000, 0x34c_0000),
        (0x8052_0000_0000, 0x34c_0000),
    ],
    linear: None,
    register_blocks: &[
        block(0x80_0000_0000, 0x0000_0000, 0x2000_0000),
        block(0x8080_0000_0000, 0x4000_0000, 0x2000_0000),
        block(0x10_0000_0000, 0x8000_0000, 0xc80_0000),
        block(0x50_0000_0000, 0x9000_0000, 0xc80_0000),
        block(0x8010_0000_0000, 0xa000_0000, 0xc80_0000),
        block(0x8050_0000_0000, 0xb000_0000, 0xc80_0000),
        block(0x12_0000_0000, 0xc000_0000, 0x34c_0000),
        block(0x52_0000_0000, 0xc400_0000, 0x34c_0000),
        block(0x8012_0000_0000, 0xc800_0000, 0x34c_0000),
        block(0x8052_0000_0000, 0xcc00_0000, 0x34c_0000),
    ],
    peer_windows: &[
        0x10_0000_0000_0000,
        0x14_0000_0000_0000,
        0x18_0000_0000_0000,
        0x1c_0000_0000_0000,
    ],
    simulator_reset: 0x0630_0010,
};

const V3_COUNTS: Counts = Counts {
    cores: 8,
    dice: 2,
    topsps: 16,
    topsps_per_core: 2,
    core_engines: 128,
    engines: 132,
    cores_per_seng: 2,
    host_connected: 0xf0f0_f0f0,
    engines_per_hbm: 32,
    notification_types: 5,
};

const fn v3_seng(first: u8, unit: u64, user_fis: u64) -> EngineRange {
    EngineRange {
        first,
        count: 32,
        unit,
        unit_pitch: 0x10_0000,
        wrapper: unit + 0x4_0000,
        wrapper_pitch: 0x10_0000,
        user_fis: Some((user_fis, 0x2_0000)),
    }
}

const fn v3_top_level(first: u8, unit: u64) -> EngineRange {
    EngineRange {
        first,
        count: 2,
        unit,
        unit_pitch: 0x10_0000,
        wrapper: unit + 0x4_0000,
        wrapper_pitch: 0x10_0000,
        user_fis: None,
    }
}

static V3_ENGINES: [EngineRange; 6] = [
    v3_seng(0, 0x8200_0000, 0x8c00_0000),
    v3_seng(32, 0x9400_0000, 0x9c40_0000),
    v3_seng(64, 0xa200_0000, 0xac00_0000),
    v3_seng(96, 0xb400_0000, 0xbc40_0000),
    v3_top_level(128, 0x0680_0000),
    v3_top_level(130, 0x4680_0000),
];

const V3_HOST_TRANSFER: HostTransfer = HostTransfer {
    first_engine: 128,
    engines: 4,
    cores_per_engine: 2,
    nx_engines: 0x019f,
    replay: false,
    strong_order_write: true,
    zero_copy: true,
};

const V3_ENGINE: EngineTables = EngineTables {
    m2s_data_cfg: 0x0100_08f8,
    m2s_outstanding: 0x2080_8080,
    s2m_read_outstanding: 0x0040_0080,
    s2m_write_outstanding_2: None,
    overhead_beats: Some(0x26),
    broadcast: false,
    axi_abort_tables: false,
    mask_ring_id_errors: true,
};

const V3_WAIT: WaitTables = WaitTables { estimate: 2, lead: 1, factor: 400 };

const V3_RESET: ResetTables = ResetTables {
    map_fields: &[(0, 1), (8, 1), (16, 1)],
    has_high_map: true,
    covers_core_engines: true,
    initiate_ms: 480_000,
    completion_reads: (5, 5000, 5000),
    simulator_handshake: false,
    emulator_no_reset: false,
};

const V3_PE_COUNTERS: PeCounterTables = PeCounterTables {
    areas: &[
        0x0614_1100,
        0x062c_1100,
        0x0654_1100,
        0x066c_1100,
        0x4614_1100,
        0x462c_1100,
        0x4654_1100,
        0x466c_1100,
    ],
    group: 0x30,
    buses: 9,
    weight_load_group: 8,
    weight_load_is_fast_total: false,
};
