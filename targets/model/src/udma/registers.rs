//! Offsets and reset values of a unit's registers (specification 02 §3).

/// Offset of the S2M half, of the GEN block.
pub(crate) const S2M: u64 = 0x2_0000;
/// First queue window of a direction, relative to it; windows are 0x1000 apart.
pub(crate) const QUEUE_WINDOWS: u64 = 0x1000;

// Relative to a direction.
pub(crate) const STATE: u64 = 0x200;
pub(crate) const CHANGE_STATE: u64 = 0x204;
pub(crate) const ERROR_LOG_MASK: u64 = 0x20c;
pub(crate) const ERROR_LOG: u64 = 0x214;
pub(crate) const CLEAR_ERROR_LOG: u64 = 0x224;
/// M2S only.
pub(crate) const CFG_LEN: u64 = 0x254;
/// M2S only; S2M has its own.
pub(crate) const PREFETCH_ENABLE_M2S: u64 = 0x25c;
pub(crate) const PREFETCH_ENABLE_S2M: u64 = 0x254;
pub(crate) const PACKET_LIMIT: u64 = 0x304;
pub(crate) const FEATURE: u64 = 0x600;
pub(crate) const DMA_VERSION: u64 = 0x604;

/// Registers of a queue window, the same in both directions.
pub(crate) mod queue {
    pub(crate) const CFG: u64 = 0x20;
    pub(crate) const STATUS: u64 = 0x24;
    pub(crate) const BASE_LOW: u64 = 0x28;
    pub(crate) const BASE_HIGH: u64 = 0x2c;
    pub(crate) const LENGTH: u64 = 0x30;
    pub(crate) const HEAD: u64 = 0x34;
    pub(crate) const DOORBELL: u64 = 0x38;
    pub(crate) const TAIL: u64 = 0x3c;
    pub(crate) const CURRENT: u64 = 0x40;
    pub(crate) const COMPLETION_BASE_LOW: u64 = 0x44;
    pub(crate) const COMPLETION_HEAD: u64 = 0x4c;
    pub(crate) const COMPLETION_HEAD_INTERNAL: u64 = 0x50;
    pub(crate) const SW_CTRL_M2S: u64 = 0xb0;
    pub(crate) const SW_CTRL_S2M: u64 = 0x64;
    pub(crate) const PACKETS_M2S: u64 = 0xc0;
    pub(crate) const PACKETS_S2M: u64 = 0x68;
    pub(crate) const DATA_TAIL_INC: u64 = 0xe0;
    pub(crate) const DATA_TAIL: u64 = 0xe4;

    /// `cfg`: the queue fetches descriptors; it executes them.
    pub(crate) const ENABLE_PREFETCH: u32 = 1 << 16;
    pub(crate) const ENABLE_EXECUTION: u32 = 1 << 17;
    /// `q_sw_ctrl`.
    pub(crate) const RST_Q: u32 = 1 << 8;
}

/// The controllers of errors and interrupt causes.
pub(crate) const IOFIC_PRIMARY: u64 = 0x3_8000;
pub(crate) const IOFIC_SECONDARY: u64 = 0x3_a000;
/// First of the V2 controllers of AXI errors; 0x100 apart, the last one is for MSI-X.
pub(crate) const IOFIC_SUB: u64 = 0x3_ad00;
const IOFIC_SUB_END: u64 = 0x3_b340;
/// Registers of a group of an IOFIC.
pub(crate) mod iofic {
    pub(crate) const GROUP_BYTES: u64 = 0x40;
    pub(crate) const CAUSE: u64 = 0x00;
    pub(crate) const CAUSE_SET: u64 = 0x08;
    pub(crate) const MASK: u64 = 0x10;
    pub(crate) const MASK_CLEAR: u64 = 0x18;
    pub(crate) const STATUS: u64 = 0x20;
    pub(crate) const ABORT_MASK: u64 = 0x30;
}

/// Which group of which IOFIC an offset belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IoficRegister {
    /// Offset of the group in the unit.
    pub group: u64,
    /// Offset in the group.
    pub register: u64,
}

/// The IOFIC register at `offset`, if it is one.
pub(crate) fn iofic_register(offset: u64) -> Option<IoficRegister> {
    let within = |start: u64, end: u64| (start..end).contains(&offset);
    let controlled = within(IOFIC_PRIMARY, IOFIC_PRIMARY + 0x400)
        || within(IOFIC_SECONDARY, IOFIC_SECONDARY + 0x100)
        || within(IOFIC_SUB, IOFIC_SUB_END) && offset & 0xff < iofic::GROUP_BYTES;
    controlled.then_some(IoficRegister { group: offset & !0x3f, register: offset & 0x3f })
}

/// Place of a register inside a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Register of a queue window: direction, queue, offset in the window.
    Queue { s2m: bool, queue: usize, register: u64 },
    /// Global register of a direction.
    Global { s2m: bool, register: u64 },
    /// Error controller.
    Iofic(IoficRegister),
    /// Plain storage.
    Other,
}

/// Where `offset` lies.
#[inline]
pub(crate) fn place(offset: u64) -> Place {
    let s2m = (S2M..S2M + 0x1_8000).contains(&offset);
    let relative = if s2m { offset - S2M } else { offset };
    match relative {
        0..0x1000 => Place::Global { s2m, register: relative },
        QUEUE_WINDOWS..0x1_1000 => {
            let queue = ((relative - QUEUE_WINDOWS) >> 12) as usize;
            Place::Queue { s2m, queue, register: relative & 0xfff }
        }
        _ => match iofic_register(offset) {
            Some(register) => Place::Iofic(register),
            None => Place::Other,
        },
    }
}

/// Value of a stored register that was not written since the last reset of the unit.
pub(crate) fn reset_value(offset: u64) -> u32 {
    match place(offset) {
        Place::Global { s2m: false, register } => m2s_reset(register),
        Place::Global { s2m: true, register } => s2m_reset(register),
        Place::Queue { s2m, register, .. } => queue_reset(s2m, register),
        Place::Iofic(IoficRegister { register, .. }) => match register {
            iofic::MASK | iofic::ABORT_MASK => u32::MAX,
            _ => 0,
        },
        Place::Other => match offset {
            0x3_b468 | 0x3_b46c => u32::MAX,
            _ => 0,
        },
    }
}

fn m2s_reset(register: u64) -> u32 {
    match register {
        0x100 | 0x110 => 0x0103_0000,
        0x104 => 0x3050_0000,
        0x108 => 0x0103_0001,
        0x10c | 0x114 => 0x3250_0000,
        0x118 | 0x11c => 8,
        0x124 => 0x2020_2040,
        0x128 => 0x11f,
        0x250 => u32::MAX,
        CFG_LEN => 0x0101_0000,
        0x258 => 0x100,
        PREFETCH_ENABLE_M2S => 0xffff,
        PACKET_LIMIT => 0x0001_0040,
        0x308 => 0x1041,
        0x310 => 0x0100_08f8,
        0x400 => 0x0101_0040,
        0x404 | 0x408 => 0x0001_86a0,
        FEATURE => 0x400,
        DMA_VERSION => 4,
        _ => 0,
    }
}

fn s2m_reset(register: u64) -> u32 {
    match register {
        0x118 | 0x11c => 8,
        0x124 => 0x0040_0020,
        0x128 => 0x4020_4020,
        PREFETCH_ENABLE_S2M => 0xffff,
        0x304 => 0x0001_0407,
        0x344 => 0x3000_2710,
        0x380 => 0x1004,
        0x38c => 0x0001_86a0,
        _ => 0,
    }
}

fn queue_reset(s2m: bool, register: u64) -> u32 {
    match (s2m, register) {
        (_, 0x00) => 0x80,
        (false, queue::CFG) => 0x0300_0000,
        (true, queue::CFG) => 0x0300_0033,
        (_, queue::BASE_LOW | queue::COMPLETION_BASE_LOW) => 0x40,
        (false, 0x60) => 0x00ff_ffff,
        (false, 0x74) => 0x7,
        (true, 0x54) => 0xf,
        (true, 0x58) => 0x0001_86a0,
        (true, 0x5c) => 0x40,
        _ => 0,
    }
}
