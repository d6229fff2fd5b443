//! Who is attached to a device, and what happens when they leave (specification 05 §7 to §10).
//!
//! A device has 16 attach slots. [`Clients`] hands them out, [`ControlTask`] cleans up after
//! clients that left; one of each exists per device. What the clean-up has to reach outside this
//! crate (DMA, memory, time) it reaches through [`DevicePeers`], so nothing here knows a register.
//!
//! ```text
//! Clients::open ──> Attachment (normal lane) ──drop──> slot closing ──wake──> ControlTask:
//!                        │                              resets · drain · 10 ms · sweep · slot free
//!                        └ Arc<Access> in every buffer: "not attached" from the moment of closing
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`ids`] | client ids, never reused |
//! | [`error`] | why an open was refused |
//! | [`core_sync`] | locks and init states of cores |
//! | [`gates`] | who may issue which command |
//! | [`reservation`] | which client owns which core of the host |
//! | `table` | the attach table as plain data |
//! | `open` | [`Clients`], [`Attachment`], [`InfoHandle`]: the two lanes |
//! | `control` | [`ControlTask`]: the ordered end of a client |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod control;
pub mod core_sync;
pub mod error;
pub mod gates;
pub mod ids;
mod open;
mod peers;
pub mod reservation;
mod table;
#[cfg(test)]
mod testing;

pub use control::ControlTask;
pub use error::ClientError;
pub use ids::ClientIds;
pub use open::{Attachment, Clients, InfoHandle};
pub use peers::DevicePeers;
pub use table::{Access, ClientInfo, Touched};
