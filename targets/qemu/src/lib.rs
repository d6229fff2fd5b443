//! Finds or fetches QEMU, starts model and VM, collects the report.
//!
//! Used by `xtask` only; runs on the developer's Linux machine.
//!
//! | item | what it is |
//! |---|---|
//! | [`Session`] | one run of the launcher: its children, its scratch directory, its signals |
//! | [`Qemu`] | a QEMU that speaks vfio-user, found or fetched, and how to start it |
//! | [`Plan`] | the emulated functions of a VM |
//! | [`Launch`] | one VM with its model servers, run to its end |
//! | [`Outcome`] | how it went: [`Ending`], report, summary |
//! | [`Error`] | everything that can keep the launcher from running a VM |

#![forbid(unsafe_code)]

mod accelerator;
mod console;
mod devices;
mod error;
mod fetch;
mod find;
mod guest;
mod launch;
mod model;
mod outcome;
mod session;
mod terminal;
mod vm;

pub use accelerator::Accelerator;
pub use devices::{MOST_FUNCTIONS, Product};
pub use error::{Error, Unsuitable};
pub use find::{Qemu, Version};
pub use guest::{Crash, Ending};
pub use launch::{Input, Launch, Plan};
pub use outcome::Outcome;
pub use session::{Progress, Session, serve_janitor};
