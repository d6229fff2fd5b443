//! Physical memory, page tables, heap.
//!
//! | module | what it owns |
//! |---|---|
//! | [`layout`] | where the image lies, which memory is whose |
//! | [`runs`] | free runs of pages below 4 GiB (pure logic) |
//! | [`frames`] | the machine's memory: DMA runs, page tables, what the heap grows from |
//! | [`paging`] | the page tables: rights of the image, RAM at its physical address |
//! | [`windows`] | device memory, mapped on demand |
//! | [`stacks`] | stacks and their guard pages |
//! | [`heap`] | the global allocator |
//! | [`functions`] | `memcpy` and its kin |
//!
//! RAM is mapped at its physical address, so a bus address, a pointer and a page number say the
//! same thing.

pub mod frames;
pub mod functions;
pub mod heap;
pub mod layout;
pub mod paging;
pub mod runs;
pub mod stacks;
pub mod windows;
