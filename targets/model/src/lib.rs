#![doc = include_str!("../README.md")]
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
mod pe_counters;
mod port;
pub mod report;
mod reset;
#[cfg(feature = "server")]
pub mod server;
mod sync_bank;
mod time;
mod udma;
mod window;
mod words;

pub use config::{
    Bar4, ConfigError, FunctionConfig, Generation, Product, REVISION_EMULATOR, REVISION_QEMU,
};
pub use faults::{FaultError, Faults};
pub use function::{Function, HbmSegment, Neighbour, Unreachable};
pub use host::{HostMemory, ModelClock, Unmapped};
pub use mailbox::message_crc;
pub use notific::{NotificationBlock, Posted, QueueState};
pub use pci::BarSpec;
pub use report::Report;
pub use words::{FaultWord, parse_size};
