//! The driver of AWS Neuron accelerators, as async tasks (specification 01, 02, 03, 05).
//!
//! ```text
//! probe ──► Probed { pools, ladder } ──► memory service starts, gives a MemoryPort
//!                      └── ladder.publish(port) ──► Published { device, completion, reset, notify }
//!                                                   device: handle for everybody
//!                                                   the others: tasks to spawn
//! ```
//!
//! [`probe`](probe::probe) climbs the ladder of specification 05 §4.2 for one PCI function. What
//! comes out is a [`NeuronDevice`]: state, identity, registers, resets, and [`Dma`] for everything
//! that moves bytes. The crate compiles for the image and for a Linux process from one source; it
//! never names a machine.
//!
//! | module | what it owns |
//! |---|---|
//! | [`hal`] | what differs between generations, as one immutable value per device |
//! | [`mod@probe`] | bring-up ladder, device table |
//! | [`device`] | the shared handle: state, identity, registers |
//! | [`dma`] | engines, rings, copies, fills, the completion task |
//! | `cores` | semaphores, events |
//! | [`notify`] | notification queues, the task that polls for them |
//! | [`reset`] | requests, the drive, the firmware handshake |
//! | `fwio` | both firmware mailboxes |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod config;
mod cores;
pub mod device;
pub mod dma;
mod error;
mod fwio;
pub mod hal;
mod info;
pub mod notify;
mod pod_words;
pub mod probe;
mod registers;
pub mod reset;
mod shared;
mod state;
#[cfg(test)]
mod testing;
mod wake;

pub use config::DeviceConfig;
pub use cores::{Event, Semaphore};
pub use device::{Counters, NeuronDevice, Window};
pub use dma::{Batch, Copy, Dma, Fill, Target};
pub use error::{CancelCause, Error, QueueRefusal, ResetStage};
pub use fwio::AvailableProfiles;
pub use hal::Hal;
pub use info::{EccCounts, HbmErrors, Health, Identity, PowerSample};
pub use notify::{Notification, NotificationQueue, QueueSpec};
pub use probe::{DeviceTable, Ladder, ProbeError, Probed, Published, Rung, probe};
pub use reset::ResetTicket;
pub use state::CoreState;
