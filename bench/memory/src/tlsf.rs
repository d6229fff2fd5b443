//! `rlsf` as an arena. It keeps its headers in the memory it manages, so that a region of HBM is
//! modelled by a pool in which its smallest block stands for a granule.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use rlsf::{GRANULARITY, Tlsf};

use crate::arenas::Peer;

type Pool = Tlsf<'static, u32, u32, 32, 32>;
type Memory = [MaybeUninit<u8>];

/// Alignment of every block, and bytes of its header.
const ALIGN: usize = 16;

/// A pool of `rlsf`.
pub struct TlsfPool {
    pool: Pool,
    memory: NonNull<Memory>,
}

impl TlsfPool {
    fn layout(count: u32) -> Option<Layout> {
        Layout::from_size_align(count as usize * GRANULARITY - ALIGN, ALIGN).ok()
    }
}

impl Peer for TlsfPool {
    const NAME: &'static str = "rlsf";
    type Span = NonNull<u8>;

    fn new(granules: u32) -> Self {
        // Some more for the headers at both ends of the pool.
        let bytes = (granules as usize + 4) * GRANULARITY;
        let memory: &'static mut Memory = Box::leak(Box::new_uninit_slice(bytes));
        let kept = NonNull::from(&mut *memory);
        let mut pool = Pool::new();
        let _ = pool.insert_free_block(memory);
        TlsfPool { pool, memory: kept }
    }

    #[inline]
    fn allocate(&mut self, count: u32) -> Option<NonNull<u8>> {
        self.pool.allocate(TlsfPool::layout(count)?)
    }

    #[inline]
    fn free(&mut self, span: NonNull<u8>, _count: u32) {
        // SAFETY: `span` was allocated from this pool with this alignment, and is freed once.
        unsafe { self.pool.deallocate(span, ALIGN) };
    }
}

impl Drop for TlsfPool {
    fn drop(&mut self) {
        self.pool = Pool::new();
        // SAFETY: the memory came from a box, and the pool that used it is gone.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}
