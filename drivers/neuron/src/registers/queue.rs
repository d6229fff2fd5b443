//! One queue of a UDMA unit, seen from the start of its window (specification 02 §3.4).

/// First queue window of the source side (M2S, "Tx").
pub(crate) const M2S: u64 = 0x0_1000;
/// First queue window of the destination side (S2M, "Rx").
pub(crate) const S2M: u64 = 0x2_1000;
/// Distance of two windows.
pub(crate) const PITCH: u64 = 0x1000;
/// Queues of a unit.
pub(crate) const COUNT: u64 = 16;

/// Configuration: 16 prefetch, 17 scheduling or stream, [27:24] attributes of completions.
pub(crate) const CFG: u64 = 0x20;
/// [`CFG`] of a paused queue: attribute bits as after reset, both enables off.
pub(crate) const CFG_PAUSED: u32 = 0x0300_0000;
/// [`CFG`] of a running queue.
pub(crate) const CFG_ENABLED: u32 = 0x0303_0000;
/// [24:0] descriptors in use, 28 prefetching, 29 busy.
pub(crate) const STATUS: u64 = 0x24;
/// [`STATUS`]: bits that are clear in a drained queue.
pub(crate) const STATUS_WORKING: u32 = 1 << 28 | 1 << 29;
/// Ring base, low half.
pub(crate) const BASE_LOW: u64 = 0x28;
/// Ring base, high half.
pub(crate) const BASE_HIGH: u64 = 0x2c;
/// Ring length in descriptors.
pub(crate) const LENGTH: u64 = 0x30;
/// [23:0] next descriptor to fetch, [31:30] ring id.
pub(crate) const HEAD: u64 = 0x34;
/// Doorbell: adds to the tail.
pub(crate) const DOORBELL: u64 = 0x38;
/// [23:0] next descriptor that software will announce, [31:30] ring id.
pub(crate) const TAIL: u64 = 0x3c;
/// [23:0] descriptor being executed, [31:30] ring id.
pub(crate) const CURRENT: u64 = 0x40;
/// Completion ring: base, low half.
pub(crate) const COMPLETION_BASE_LOW: u64 = 0x44;
/// Completion ring: base, high half.
pub(crate) const COMPLETION_BASE_HIGH: u64 = 0x48;
/// Completion ring: [23:0] head.
pub(crate) const COMPLETION_HEAD: u64 = 0x4c;
/// Bits of a base register that are kept.
pub(crate) const BASE_MASK: u32 = 0xffff_ffc0;
/// Bits of a length or pointer register that count descriptors.
pub(crate) const INDEX_MASK: u32 = 0x00ff_ffff;
/// [`CFG`]: prefetch.
pub(crate) const CFG_PREFETCH: u32 = 1 << 16;
/// [`CFG`]: scheduling of the source side, stream of the destination side.
pub(crate) const CFG_STREAM: u32 = 1 << 17;
/// Source side: rate limiter mask; bit 2 off lets the DMB flag work.
pub(crate) const M2S_RATE_MASK: u64 = 0x74;
/// [`M2S_RATE_MASK`] with DMB on.
pub(crate) const RATE_MASK_DMB: u32 = 0x3;
/// Source side: completion ring.
pub(crate) const M2S_COMPLETION: u64 = 0xa0;
/// Destination side: completion ring; on after reset.
pub(crate) const S2M_COMPLETION: u64 = 0x54;
/// Source side: reset strobes.
pub(crate) const M2S_CONTROL: u64 = 0xb0;
/// Destination side: reset strobes.
pub(crate) const S2M_CONTROL: u64 = 0x64;
/// Strobe: forget everything prefetched, pointers to 0, ring id to 1.
pub(crate) const CONTROL_RESET: u32 = 1 << 8;
