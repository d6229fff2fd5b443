//! A faithful emulated AWS Neuron PCI function.
//!
//! [`Function`] is one function: configuration space, a register window (BAR0) and a memory window
//! (BAR4), as specified in chapters 01, 02 and 06. It knows no transport: guest memory comes in as
//! [`HostMemory`], time as [`ModelClock`]; the vfio-user server and the hosted platform both sit on
//! top. DMA is executed inside the doorbell write; what would take too long is left to
//! [`Function::advance`].

#![deny(unsafe_code)]

mod config;
mod control;
mod dma;
mod faults;
mod function;
mod host;
mod mailbox;
mod map;
pub mod memory;
mod miscram;
mod names;
mod notific;
mod pci;
pub mod report;
mod reset;
#[cfg(feature = "server")]
pub mod server;
mod sync_bank;
mod time;
mod udma;

pub use config::{
    Bar4, ConfigError, FunctionConfig, Generation, Product, REVISION_EMULATOR, REVISION_QEMU,
};
pub use faults::{FaultError, Faults};
pub use function::{Function, HbmSegment, Neighbour, Unreachable};
pub use host::{HostMemory, ModelClock, Unmapped};
pub use mailbox::message_crc;
pub use pci::BarSpec;
pub use report::Report;
