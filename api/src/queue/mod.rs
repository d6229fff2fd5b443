//! Queues of a client: its own rings, host-transfer queues, zero-copy, numbered copies
//! (specification 03 §10 to §13).
//!
//! ```no_run
//! # use axon::{RingAlloc, Side};
//! # async fn run<P: axon_platform::Platform>(client: axon::Client<P>, rows: &[axon::Descriptor])
//! #     -> Result<(), axon::Error> {
//! let tx = client.alloc_ring(RingAlloc::new(Side::Tx, 64)).await?;
//! let rx = client.alloc_ring(RingAlloc::new(Side::Rx, 64)).await?;
//! tx.stage(0, rows).await?;
//! let mut queue = client.bind_queue(5, 0, &tx, &rx).await?;
//! queue.start(0, 1)?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `commands` | [`QueueCommands`]: everything by plain numbers, as console and C ABI use it |
//! | `descriptors` | descriptors into and out of rings, checked |
//! | `objects` | [`RingMem`], [`DmaQueue`], [`H2tQueues`]: values that give back what they stand for |
//! | `zero_copy` | lists of host memory straight to and from device memory |
//! | `numbered` | [`AsyncCopies`]: copies with wait handles 1 and 2 |

mod commands;
mod descriptors;
mod numbered;
mod objects;
mod zero_copy;

pub use commands::{QueueBatchError, QueueCommands, QueueInit};
pub use numbered::AsyncCopies;
pub(crate) use numbered::Slots;
pub use objects::{DmaQueue, H2tQueues, RingAlloc, RingMem};
pub use zero_copy::{
    Completion, Completions, HostRange, ZeroCopyBatch, ZeroCopyOp, ZeroCopyQueue, ZeroCopyRequest,
};
