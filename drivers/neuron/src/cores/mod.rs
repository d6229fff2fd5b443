//! What a core shows besides its queues: semaphores and events (specification 06 §9).

mod sync;

pub use sync::{Event, Semaphore};
