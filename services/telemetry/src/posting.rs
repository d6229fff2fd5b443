//! What goes to firmware, and when (specification 07 §5 to §7).
//!
//! ```text
//! schedule ──band──► ledger + survey of the datastore ──► 128-byte stream ──► mailbox
//!                       ▲                                                       │
//!                       └───────── settle: baselines move only if it was taken ─┘
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `registry` | the rows: posted id, band, source |
//! | `stream` | the wire form: records of a post |
//! | `version` | which versions clients run |
//! | `ledger` | what was posted, what is owed; building and settling one post |
//! | `schedule` | periods, bands, pause and resume |

mod ledger;
mod registry;
mod schedule;
mod stream;
#[cfg(test)]
mod tests;
mod version;

pub use registry::{Band, POSTED_IDS};
pub use schedule::{PostingMode, PostingState};
pub use stream::{PostStream, STREAM_BYTES, records};

pub(crate) use ledger::{Constants, Departed, Ledger, Pending, PostInput};
pub(crate) use schedule::Schedule;
pub(crate) use version::{Version, components};
