//! Up to 64 allocations or frees in one message.
//!
//! The lists are made once and travel by reference, so a batch costs no heap when it is used again.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;

use axon_ports::{AllocRequest, Chunk, MemoryError};
use embassy_sync::blocking_mutex::Mutex;
use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;

/// Requests one batch can hold.
pub const BATCH_LIMIT: usize = 64;

#[derive(Default)]
pub(crate) struct BatchItems {
    pub(crate) requests: Vec<AllocRequest>,
    pub(crate) handles: Vec<u64>,
    pub(crate) chunks: Vec<Chunk>,
}

pub(crate) type BatchShared = Mutex<CriticalSectionRawMutex, RefCell<BatchItems>>;

/// A reusable list of requests and its results.
pub struct Batch {
    pub(crate) shared: Arc<BatchShared>,
}

impl Batch {
    /// An empty batch with room for [`BATCH_LIMIT`] items.
    ///
    /// # Errors
    /// [`MemoryError::NoRecords`].
    pub fn new() -> Result<Batch, MemoryError> {
        let mut items = BatchItems::default();
        let reserved = items
            .requests
            .try_reserve_exact(BATCH_LIMIT)
            .and_then(|()| items.handles.try_reserve_exact(BATCH_LIMIT))
            .and_then(|()| items.chunks.try_reserve_exact(BATCH_LIMIT));
        reserved.map_err(|_| MemoryError::NoRecords)?;
        Ok(Batch { shared: Arc::new(Mutex::new(RefCell::new(items))) })
    }

    fn with<R>(&self, with: impl FnOnce(&mut BatchItems) -> R) -> R {
        self.shared.lock(|items| with(&mut items.borrow_mut()))
    }

    /// Adds an allocation.
    ///
    /// # Errors
    /// [`MemoryError::TooSmall`] where the batch is full.
    pub fn push_alloc(&mut self, request: AllocRequest) -> Result<(), MemoryError> {
        self.with(|items| push(&mut items.requests, request))
    }

    /// Adds a handle to be freed.
    ///
    /// # Errors
    /// As [`Self::push_alloc`].
    pub fn push_free(&mut self, handle: u64) -> Result<(), MemoryError> {
        self.with(|items| push(&mut items.handles, handle))
    }

    /// Takes one of the chunks that an allocation has put here, last one first.
    pub fn pop_chunk(&mut self) -> Option<Chunk> {
        self.with(|items| items.chunks.pop())
    }

    /// Forgets requests, handles and chunks.
    pub fn clear(&mut self) {
        let chunks = self.with(|items| {
            items.requests.clear();
            items.handles.clear();
            core::mem::take(&mut items.chunks)
        });
        // The references go back outside the lock; their list is kept.
        let mut chunks = chunks;
        chunks.clear();
        self.with(|items| items.chunks = chunks);
    }
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), MemoryError> {
    if list.len() >= BATCH_LIMIT {
        return Err(MemoryError::TooSmall { needed: BATCH_LIMIT + 1 });
    }
    list.push(item);
    Ok(())
}
