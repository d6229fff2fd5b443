//! The memory service of one device (specification 04): arenas, chunks, lifespans, handles.
//!
//! [`MemorySet`] owns everything of one device. The bring-up ladder builds it and calls it directly
//! through [`axon_ports::Pools`]; then [`MemoryService`] takes it over as one task, and everybody
//! reaches it through [`MemoryClient`]:
//!
//! ```text
//! let mut set = MemorySet::new(config, geometry, PlatformMemory(platform.clone()))?;
//! let marker = set.alloc(&AllocRequest::driver_host(24))?;       // rungs D14 to D18
//! let (client, service) = MemoryService::new(set);
//! platform.spawn("memory", service.run())?;
//! let chunk = client.alloc(request).await?;                       // from now on
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arena;
pub mod batch;
mod call;
mod cell;
mod client;
pub mod config;
pub mod counters;
pub mod exports;
pub mod faults;
mod host;
mod mailbox;
mod messages;
mod records;
mod service;
mod set;
mod task;
pub mod testing;
#[cfg(test)]
mod tests;
pub mod windows;

pub use batch::Batch;
pub use client::MemoryClient;
pub use config::MemoryConfig;
pub use counters::{ClientTotals, CounterValue, Counters};
pub use host::{HostSource, PlatformMemory};
pub use set::{
    ArenaUsage, ChunkInfo, ChunkLine, MemorySet, PoolUsage, ScrubRange, ShutdownReport, Usage,
};
pub use task::MemoryService;
