//! The counters that clients keep: 16 slabs of host memory for a device (specification 07 §2,
//! 04 §12).
//!
//! A client owns at most one slab and writes to it as it likes; the driver writes nothing but
//! zeros. Others get [`DatastoreSnapshot`]s, never the slab.
//!
//! | module | what it holds |
//! |---|---|
//! | [`layout`] | where each counter is, check sums of records |
//! | `slots` | who owns which slab: acquire, release, clear, walk |
//! | `writer` | [`Datastore`]: the owner's handle |
//! | `monitor` | [`DatastoreSnapshot`]: a copy for everybody else |

pub mod layout;
mod monitor;
mod slots;
mod writer;

pub use monitor::DatastoreSnapshot;
pub use slots::Slab;
pub use writer::Datastore;

pub(crate) use slots::{SlabView, Slots};

/// Slabs of a device: one for each client that can be attached.
pub const SLABS: usize = 16;
/// Bytes of a slab.
pub const SLAB_BYTES: u64 = 256 << 10;
