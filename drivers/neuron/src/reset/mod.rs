//! Resets: requests, the drive, the firmware handshake (specification 05 §11).
//!
//! | module | what it does |
//! |---|---|
//! | `queue` | requests that wait, run, or whose result waits to be collected |
//! | `drive` | the stages of one drive, in order |
//! | `handshake` | asking firmware, and waiting for it |
//! | `watch` | who lets go of the device before a drive, and hears how it ended |
//! | `rings` | closing rings before a reset and bringing them up behind it |

mod drive;
mod handshake;
mod queue;
mod rings;
mod watch;

pub use queue::ResetTicket;
pub use watch::ResetNews;

pub(crate) use drive::run;
pub(crate) use queue::ResetQueue;
pub(crate) use watch::ResetWatch;
