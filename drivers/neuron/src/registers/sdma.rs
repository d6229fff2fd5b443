//! Wrapper around a UDMA unit (specification 02 §3.7).

/// Event acceleration on.
pub(crate) const EVENT_ACCELERATION: (u64, u32) = (0x00, 1);
/// Read reorder buffer on.
pub(crate) const READ_REORDER: (u64, u32) = (0x1c, 1);
/// Write reorder buffer on.
pub(crate) const WRITE_REORDER: (u64, u32) = (0x20, 1);
/// Broadcast group mask; V2.
pub(crate) const BROADCAST_GROUP: u64 = 0x100;
/// Last node of the broadcast; V2.
pub(crate) const BROADCAST_LAST: u64 = 0x104;
/// Engines of a core that end a broadcast, as a mask.
pub(crate) const BROADCAST_LAST_ENGINES: u16 = 1 << 0 | 1 << 3 | 1 << 6 | 1 << 9 | 1 << 15;
/// Overhead beats outstanding; V3, V4.
pub(crate) const OVERHEAD_BEATS: u64 = 0x800;
