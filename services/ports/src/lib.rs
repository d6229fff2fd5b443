//! Message types of every task, the ids they use, and the seams between rooms; no behaviour.
//!
//! A leaf: everything may depend on it, it depends on [`axon_platform`] only. The driver asks for
//! memory through [`MemoryPort`] and never sees the memory service; the service hands out
//! [`Chunk`]s and never sees a ring.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ids`] | checked numbers: devices, cores, engines, queues, clients |
//! | [`chunk`] | one allocated span: facts, references, pins |
//! | [`desk`] | requests to a task and their answers |
//! | [`marks`] | how many cores of the host are reserved |
//! | [`memory`] | requests to the memory service, its error, [`MemoryPort`] |
//! | [`reset`] | requests to the reset task |
//! | [`telemetry`] | counters, events and trace points that everybody writes |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod chunk;
pub mod desk;
pub mod ids;
pub mod marks;
pub mod memory;
pub mod reset;
pub mod telemetry;

pub use chunk::{Chunk, ChunkFacts, ChunkHeader, ChunkName, ChunkTable, Pin, PinPair};
pub use ids::{
    ClientId, ClientSlot, CoreId, CoreMap, DeviceIndex, EngineId, GlobalCore, HbmIndex, ModelUuid,
    QueueId, RoutingId,
};
pub use memory::{
    AllocRequest, Category, Lifespan, Location, MemoryError, MemoryGeometry, MemoryPort, Pools,
    ScrubHold, ScrubWatch,
};
