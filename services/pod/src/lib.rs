//! UltraServer pods (specification 05 §16): nodes of 16 devices, joined by links, agree on who is
//! which; clients choose how much of the pod they use.
//!
//! ```text
//!  reset task ── device_reset ──> PodTask ──> Election: secondaries 1…15, then the primary
//!  clients ──── control, status ──>  │             │ NeighbourWords: reads over links
//!  reservation ─── Marks ───────────>┘             └ OwnWords: what neighbours read of us
//! ```
//!
//! The task exists on hosts of platform ULTRASERVER or PDS only; [`Pod::single`] answers for all
//! others. Nothing here knows a register address or a ring: [`OwnWords`] and [`NeighbourWords`] are
//! the seam, and the tests elect pods of simulated nodes under virtual time.
//!
//! | module | what it holds |
//! |---|---|
//! | [`handle`] | [`Pod`]: status, control, news of resets |
//! | `task` | [`PodTask`]: requests, and the election beside them |
//! | `machine` | state of the pod as plain data |
//! | `election` | one election |
//! | `decide` | which node is which, from four serial numbers |
//! | `switched` | the same from firmware's words |
//! | [`modes`] | what a node is in each mode |
//! | [`status`] | what commands and class attributes show |
//! | [`words`] | the MiscRAM words |
//! | [`wires`] | the seam to the hardware |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
mod decide;
mod election;
pub mod error;
pub mod handle;
mod machine;
pub mod modes;
pub mod status;
mod switched;
mod task;
#[cfg(test)]
mod tests;
pub mod wires;
pub mod words;

pub use config::{ControlBits, KnownNode, PodConfig, PodKind};
pub use error::{ElectionError, PodError};
pub use handle::Pod;
pub use machine::{Control, Leaving};
pub use modes::{Membership, Mode};
pub use status::{PodState, PodStatus, PodType};
pub use task::PodTask;
pub use wires::{NeighbourWords, OwnWords, WireError};
