//! Finds or fetches QEMU, starts model and VM, collects the report.
//!
//! Used by `xtask` only; runs on the developer's Linux machine.
//!
//! | item | what it is |
//! |---|---|
//! | [`Qemu`] | a QEMU that speaks vfio-user, and how to start it |
//! | [`Progress`] | where the launcher says what it is doing |
//! | [`Ending`] | how a VM ended |
//! | [`Error`] | everything that can keep the launcher from running a VM |

#![forbid(unsafe_code)]

mod error;
mod fetch;
mod find;
mod guest;
mod progress;

pub use error::Error;
pub use find::{Qemu, Version};
pub use guest::Ending;
pub use progress::Progress;
