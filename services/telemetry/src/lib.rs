//! Telemetry of one device: what clients count, what firmware is told, what operators see
//! (specification 07).
//!
//! ```text
//!  clients ──atomic adds──► 16 slabs of host memory ─┐ fold at drop
//!  driver, services ──────► DeviceRecords (ports) ───┤
//!  registers (ECC, power, PE) ──► cached readings ───┴─► Telemetry ──► Snapshot ──► exporters
//!                                                           │
//!                                              Poster ──────┴──► 128-byte posts ──► mailbox
//! ```
//!
//! [`Telemetry`] is the handle, one for each device; [`Poster`] is its task. The crate knows no
//! register window and no mailbox: it reads through [`DeviceSensors`] and posts through
//! [`MetricSink`], which whoever puts the device together implements.
//!
//! A counter that clients keep is always shown as what departed clients counted plus what live
//! ones count now; a snapshot takes both in one turn, so a client that leaves never makes it dip.
//!
//! | module | what it owns |
//! |---|---|
//! | [`datastore`] | the slabs: layout, owners, the owner's handle, copies for others |
//! | [`posting`] | rows, wire form, what is owed to firmware, when to post |
//! | `poster` | the task |
//! | `power` | windows of power utilisation |
//! | `sensors`, `readings` | memory errors, PE activity, serial number; as they were read last |
//! | `totals` | sums over departed and live clients |
//! | `snapshot` | everything at one moment |
//! | [`prometheus`] | text exposition |
//! | `tree` | the metric tree of the Linux driver |
//! | `watch` | waiting for a change |
//! | `catalog` | numbers and names of the counters |
//! | `device` | the seams to the device |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod catalog;
pub mod datastore;
mod device;
mod error;
mod poster;
pub mod posting;
mod power;
pub mod prometheus;
mod readings;
mod sensors;
mod service;
mod snapshot;
#[cfg(test)]
mod testing;
mod totals;
mod tree;
mod watch;

pub use catalog::{CORE_COUNTERS, CoreCounter, DeviceCounter, MemoryCounter};
pub use datastore::{Datastore, DatastoreSnapshot, Slab};
pub use device::{
    ClassVisitor, ClientMemory, DeviceFacts, DeviceNames, DeviceSensors, MetricSink, PodModes,
    PostError, QueueUse,
};
pub use error::Error;
pub use poster::{PostCounts, PostOutcome, PostReport, Poster, PosterStatus};
pub use posting::{Band, PostingMode, PostingState};
pub use power::{PowerStatus, PowerWindow};
pub use readings::Readings;
pub use sensors::{EccCount, EccReadings, HbmErrors, PeLayout, PeRow, ROW_GROUPS};
pub use service::{Telemetry, TelemetryConfig};
pub use snapshot::{CoreSnapshot, QueueSnapshot, ResetSnapshot, Snapshot, VersionUse};
pub use totals::{CoreTotal, CoreTotals};
pub use tree::TreeVisitor;
pub use watch::Metric;

pub(crate) use catalog::STATUS_LEAVES;
