//! Notification queues: rings that cores, TopSPs and engines fill with 16-byte records
//! (specification 06).
//!
//! ```text
//! NeuronDevice::notifications ─► registry: one owner a hardware queue ─► block: arm, halt
//!        │                                        ▲                       16-byte records by DMA
//!        └► NotificationQueue::next ── phase walk ┤                              │
//!                    parks                        └── sweeping task: one look a turn ◄── ring
//! ```
//!
//! A ring in host memory is read in place and needs no register but one write of the consumer
//! pointer a batch. A ring in device memory is fetched by DMA where its producer pointer is ahead.
//! Nothing that a device writes is used as an index or a length: a record moves its reader one
//! record on, or not at all.
//!
//! | module | what it knows |
//! |---|---|
//! | `spec`, `record`, `cursor` | what is asked for; what a record says; the phase walk |
//! | `block` | registers, in order |
//! | `slots` | queues on which somebody waits |
//! | `entry`, `registry` | one queue; all of them by hardware queue |
//! | `create` | the way to an armed queue, and to another ring |
//! | `queue`, `fetch` | the owner's handle; rings in device memory |
//! | `teardown` | off, drained, freed; resets, clients, removal; starting anew |
//! | `sweep`, `watch` | the task that polls for all who wait |

mod block;
mod create;
mod cursor;
mod entry;
mod fetch;
mod queue;
mod record;
mod registry;
mod slots;
mod spec;
mod sweep;
mod teardown;
mod watch;

use axon_platform::DeviceAddr;

pub use block::BlockName;
pub use queue::{Next, NotificationQueue, Peek};
pub use record::{Custom, Notification, RECORD_BYTES, Subtype};
pub use spec::{MAX_BYTES, MIN_BYTES, Placement, Producer, QueueKind, QueueSpec, WhenFull};

pub(crate) use create::admit;
pub(crate) use sweep::{Notifications, run};
pub(crate) use teardown::{after_reset, before_removal, before_reset};
pub(crate) use watch::Until;

/// What became of the records of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueCounters {
    /// Handed to the owner.
    pub consumed: u64,
    /// Skipped, because no producer writes such a thing.
    pub garbage: u64,
    /// Times that records were lost.
    pub overflows: u64,
    /// Times that the queue started anew.
    pub restarts: u64,
}

impl QueueCounters {
    /// Both together.
    const fn plus(&self, other: &QueueCounters) -> QueueCounters {
        QueueCounters {
            consumed: self.consumed.wrapping_add(other.consumed),
            garbage: self.garbage.wrapping_add(other.garbage),
            overflows: self.overflows.wrapping_add(other.overflows),
            restarts: self.restarts.wrapping_add(other.restarts),
        }
    }
}

/// What became of the records of one hardware queue since the device came up, whoever had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueReading {
    /// Its block.
    pub block: BlockName,
    /// Its position in the block.
    pub position: u8,
    /// What became of its records.
    pub counters: QueueCounters,
}

/// What became of the records of all queues of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NotificationCounters {
    /// Queues that are armed now.
    pub armed: u32,
    /// Queues whose memory is kept although they are off.
    pub quarantined: u32,
    /// Handed to owners.
    pub consumed: u64,
    /// Skipped, because no producer writes such a thing.
    pub garbage: u64,
    /// Times that records were lost.
    pub overflows: u64,
    /// Times that a queue started anew.
    pub restarts: u64,
    /// Time that queues took to drain, all together.
    pub drain_ns: u64,
}

/// A queue as it stands (NQ-D17).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueInfo {
    /// What was asked for.
    pub spec: QueueSpec,
    /// Handle of its memory.
    pub handle: u64,
    /// First byte of the ring, as the device sees it.
    pub address: DeviceAddr,
    /// Byte that is read next.
    pub head: u32,
    /// Byte that is written next, by the hardware's word.
    pub tail: u32,
    /// Phase bit of records that are new.
    pub phase: bool,
    /// What became of its records.
    pub counters: QueueCounters,
}
