//! What an axon application sees: devices, clients, buffers, copies (specification 08 §8.10).
//!
//! ```no_run
//! use axon::{Context, DeviceAlloc, Error, HostAlloc};
//! use axon_platform::Platform;
//!
//! async fn send<P: Platform>(cx: &Context<P>, data: &[u8]) -> Result<(), Error> {
//!     cx.driver.settled().await;
//!     let device = cx.driver.device(0)?;
//!     let client = device.open().await?;
//!     let host = client.alloc_host(HostAlloc::new(1 << 20)).await?;
//!     let hbm = client.alloc_device(DeviceAlloc::new(1 << 20)).await?;
//!     host.write(0, data).await?;
//!     host.span(0..4096)?.copy_to(hbm.span(0..4096)?)?.await
//! }
//! ```
//!
//! Everything is a value that gives back what it stands for when it is dropped, without waiting
//! and without failing. What the hardware may still reach outlives the drop.
//!
//! | module | what it holds |
//! |---|---|
//! | `context` | [`run`], [`Context`], [`ExitCode`]: what an application starts and ends with |
//! | `driver` | [`Driver`]: brings every function up, lists devices and refusals |
//! | `device` | [`Device`]: identity, state, registers, resets; no rights |
//! | [`calls`] | every call, the command that it stands for, and its gate |
//! | `client` | [`Client`]: one attach slot; allocation, the by-number layer |
//! | `buffer` | [`DeviceBuffer`], [`HostBuffer`], [`View`]: memory and the ways in and out |
//! | `neuron_core` | [`NeuronCore`], claims: who initialises, loads, runs and owns a core |
//! | `pod` | the pod that the host belongs to |
//! | `program` | writes into the engines of a core |
//! | `sync_words` | [`Semaphore`], [`Event`]: inline, one register each |
//! | `notifications` | [`NotificationQueue`]: a stream of 16-byte records |
//! | `queue` | [`DmaQueue`], [`H2tQueues`]: rings of the client, zero-copy, numbered copies |
//! | `span` | [`Span`], [`Transfer`]: checked ranges, and the copy between two of them |
//! | `telemetry` | counters, metrics, questions to firmware |
//! | `batch` | [`Batch`]: many copies behind one marker and one pair of doorbells |
//! | `segments` | [`SegmentCopy`]: many ranges into one, one into many |
//! | `bounce` | host chunks through which plain slices travel |
//! | `windows` | [`BarView`], [`BarRegion`]: memory and blocks of registers through the CPU, and for peers |
//! | `topology` | [`Topology`]: who is linked to whom, and a drawing |
//! | [`raw`] | the one call that can make a device do anything |
//! | [`pattern`] | repeatable test data |

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod batch;
mod bounce;
mod buffer;
pub mod calls;
mod claimed;
mod client;
mod context;
mod device;
mod driver;
mod error;
mod memory;
mod neuron_core;
mod notifications;
pub mod pattern;
mod peers;
mod pod;
mod program;
mod queue;
pub mod raw;
mod scrub;
mod segments;
mod span;
mod sync_words;
mod telemetry;
mod topology;
mod windows;

pub use batch::Batch;
pub use buffer::{Buffer, DeviceBuffer, HostBuffer, View};
pub use client::{Client, DeviceAlloc, HostAlloc, InfoClient};
pub use context::{Context, ExitCode, run};
pub use device::{Device, OpenOptions};
pub use driver::{Driver, DriverConfig, HostConfig, Refusal};
pub use error::Error;
pub use memory::MemoryTotals;
pub use neuron_core::{CoreCommands, NeuronCore};
pub use notifications::{NextNotification, NotificationQueue};
pub use pod::PodControl;
pub use queue::{
    AsyncCopies, Completion, Completions, DmaQueue, H2tQueues, HostRange, QueueBatchError,
    QueueCommands, QueueInit, RingAlloc, RingMem, ZeroCopyBatch, ZeroCopyOp, ZeroCopyQueue,
    ZeroCopyRequest,
};
pub use scrub::Scrub;
pub use segments::{Segment, SegmentCopy, SegmentsError};
pub use span::{Fill, Span, Transfer};
pub use sync_words::{Event, Semaphore};
pub use telemetry::{DeviceTelemetry, Sensors};
pub use topology::Topology;
pub use windows::{BarRegion, BarView, HeldRanges};

pub use axon_clients::ClientInfo;
pub use axon_clients::core_sync::{
    Hold, Init, InitState, InitTicket, InitView, Key, LockView, ModelReader, ModelWriter, SyncError,
};
pub use axon_clients::gates::{self, Grant, Grants};
pub use axon_clients::reservation::{CoreClaim, CoreSet, ReservationError};
pub use axon_memory::exports::{
    Export as ExportedRegion, ExportState, Peer, PeerPage, Registration,
};
pub use axon_memory::windows::Shown;
pub use axon_memory::{ChunkInfo, ChunkLine, Usage};
pub use axon_neuron::dma::{
    Claims, Direction, EngineState, EngineStatus, QueueSide, QueueStatus, RingOwner, Side,
};
pub use axon_neuron::hal;
pub use axon_neuron::notify::{
    Custom, Notification, NotificationCounters, Peek, Placement, Producer, QueueCounters,
    QueueInfo, QueueKind, QueueSpec, Subtype, WhenFull,
};
pub use axon_neuron::reset::ResetTicket;
pub use axon_neuron::{
    Counters, EccCounts, HbmErrors, Health, Identity, PowerSample, ProbeError, Rung,
};
pub use axon_platform::Descriptor;
pub use axon_pod::{ControlBits, Membership, Mode, PodError, PodState, PodStatus, PodType};
pub use axon_ports as ports;
pub use axon_telemetry as metrics;
