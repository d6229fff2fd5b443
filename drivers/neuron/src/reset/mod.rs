//! Resets: requests, the drive, the firmware handshake (specification 05 §11).
//!
//! | module | what it does |
//! |---|---|
//! | `queue` | requests that wait, run, or whose result waits to be collected |
//! | `drive` | the stages of one drive, in order |
//! | `handshake` | asking firmware, and waiting for it |
//! | `rings` | closing rings before a reset and bringing them up behind it |

mod drive;
mod handshake;
mod queue;
mod rings;

pub use queue::ResetTicket;

pub(crate) use drive::run;
pub(crate) use queue::ResetQueue;
