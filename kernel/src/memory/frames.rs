//! The machine's memory: contiguous runs below 4 GiB for DMA and page tables, and what the heap
//! grows from.
//!
//! Memory that a hypervisor has just started with is zero and stays unread until it is needed:
//! clearing RAM would be most of the cost of a boot. What may have been used is cleared when it is
//! handed out.

use alloc::sync::Arc;
use core::cell::RefCell;
use core::ops::Range;
use core::ptr::NonNull;

use axon_platform::{BusAddr, DmaBuf, DmaExhausted};
use critical_section::Mutex;
use heapless::Vec;

use super::layout::{self, Image};
use super::runs::{Head, Links, PAGE_BYTES, Runs};
use crate::boot_info::BootInfo;

const FOUR_GIB: u64 = 1 << 32;

/// Firmware works at the top of the memory below 4 GiB before it starts us, and leaves it in the
/// memory map as free. SeaBIOS stays within a few hundred KiB.
const FIRMWARE_BYTES: u64 = 16 << 20;

/// Left in the page behind the image: where a restarted machine finds it, memory is not zero.
const USED_MARK: u64 = 0x6178_6f6e_2075_7365;

/// Free runs, reached at their physical addresses.
struct Identity;

impl Links for Identity {
    fn head(&self, page: u32) -> Head {
        // SAFETY: the allocator only names pages of free runs, which are RAM, mapped, and nobody
        // else's; the record was written by `set_head`.
        unsafe { head_of(page).read() }
    }

    fn set_head(&mut self, page: u32, head: Head) {
        // SAFETY: as above.
        unsafe { head_of(page).write(head) };
    }

    fn tail(&self, page: u32) -> u32 {
        // SAFETY: as above.
        unsafe { tail_of(page).read() }
    }

    fn set_tail(&mut self, page: u32, pages: u32) {
        // SAFETY: as above.
        unsafe { tail_of(page).write(pages) };
    }
}

fn head_of(page: u32) -> *mut Head {
    (u64::from(page) * PAGE_BYTES) as *mut Head
}

/// In the second half of the page, because a run of one page carries both records.
fn tail_of(page: u32) -> *mut u32 {
    (u64::from(page) * PAGE_BYTES + PAGE_BYTES / 2) as *mut u32
}

struct Frames {
    low: Runs<Identity>,
    /// RAM above 4 GiB that no heap has grown into yet.
    high: Vec<Range<u64>, 16>,
}

static FRAMES: Mutex<RefCell<Frames>> =
    Mutex::new(RefCell::new(Frames { low: Runs::new(Identity), high: Vec::new() }));

fn with<R>(act: impl FnOnce(&mut Frames) -> R) -> R {
    critical_section::with(|section| act(&mut FRAMES.borrow_ref_mut(section)))
}

/// Takes over the RAM of the memory map, except for the first 2 MiB, the image, and the modules.
///
/// # Safety
/// Called once, early: the memory map is right, and nobody but the image uses RAM any more.
pub unsafe fn init(info: &BootInfo, image: &Image) {
    let mark = image.end as *mut u64;
    let mut taken: Vec<Range<u64>, 16> = Vec::new();
    // The first 2 MiB stay the firmware's; the page behind the image holds the mark.
    let _ = taken.push(0..image.text);
    let _ = taken.push(image.text..image.end + PAGE_BYTES);
    for module in &info.modules {
        let _ = taken.push(module.start..module.start.saturating_add(module.len_bytes));
    }
    // SAFETY: the page behind the image is RAM that the linker script's limit keeps inside the
    // first GiB, and taken by nobody.
    let zero = unsafe {
        let used = mark.read_volatile() == USED_MARK;
        mark.write_volatile(USED_MARK);
        // assumed: a hypervisor starts its machine with zeroed memory.
        !used && crate::processor::is_virtual()
    };
    let mut leftovers: Vec<Range<u64>, 16> = Vec::new();
    with(|frames| {
        layout::free_ram(info, &taken, |piece| {
            let low = piece.start..piece.end.min(FOUR_GIB);
            if piece.end > FOUR_GIB {
                let _ = frames.high.push(piece.start.max(FOUR_GIB)..piece.end);
            }
            if low.start >= low.end {
                return;
            }
            let border = low.end.saturating_sub(FIRMWARE_BYTES).max(low.start);
            frames.low.add_fresh(pages(low.start..border), zero);
            let _ = leftovers.push(border..low.end);
        });
        for piece in leftovers {
            frames.low.add_fresh(pages(piece), false);
        }
    });
}

fn pages(bytes: Range<u64>) -> Range<u32> {
    (bytes.start / PAGE_BYTES) as u32..(bytes.end / PAGE_BYTES) as u32
}

/// Takes `pages` zeroed pages, the first of them at a multiple of `align` pages; answers their
/// address.
pub fn take(pages: u32, align: u32) -> Option<NonNull<u8>> {
    let run = with(|frames| frames.low.take(pages, align))?;
    let start = NonNull::new((u64::from(run.page) * PAGE_BYTES) as *mut u8)?;
    if !run.zero {
        // SAFETY: the run is RAM, mapped at its physical address, and ours alone.
        unsafe { start.write_bytes(0, run.pages as usize * PAGE_BYTES as usize) };
    }
    Some(start)
}

/// Gives back pages from [`take`].
///
/// # Safety
/// The pages came from `take`, are given back once, and nobody refers to them any more.
pub unsafe fn give(start: NonNull<u8>, pages: u32) {
    let page = start.as_ptr() as u64 / PAGE_BYTES;
    with(|frames| frames.low.give(page as u32, pages));
}

/// Bytes that [`take`] may still hand out.
pub fn free_bytes() -> u64 {
    with(|frames| u64::from(frames.low.free_pages())) * PAGE_BYTES
}

/// A piece of RAM for the heap, at least `bytes` long: from above 4 GiB where there is some, so
/// that low memory stays for DMA.
pub fn take_for_heap(bytes: usize) -> Option<(NonNull<u8>, usize)> {
    let bytes = bytes.checked_next_multiple_of(PAGE_BYTES as usize)?;
    let high = with(|frames| {
        let fits = |range: &&mut Range<u64>| range.end - range.start >= bytes as u64;
        let range = frames.high.iter_mut().find(fits)?;
        range.end -= bytes as u64;
        NonNull::new(range.end as *mut u8)
    });
    let low = || {
        let run = with(|frames| frames.low.take(u32::try_from(bytes as u64 / PAGE_BYTES).ok()?, 1));
        NonNull::new((u64::from(run?.page) * PAGE_BYTES) as *mut u8)
    };
    Some((high.or_else(low)?, bytes))
}

/// Owns the memory of a [`DmaBuf`].
struct Owner {
    start: NonNull<u8>,
    pages: u32,
}

// SAFETY: the owner is the only holder of its run; giving it back may happen anywhere.
unsafe impl Send for Owner {}
// SAFETY: a shared owner allows nothing.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the run came from `take`, the owner is dropped once, and no `DmaBuf` outlives it.
        unsafe { give(self.start, self.pages) };
    }
}

/// Zeroed contiguous memory below 4 GiB that goes back when the buffer is dropped.
///
/// # Errors
/// [`DmaExhausted`], also for a length of 0 and an alignment that is no power of two.
pub fn alloc_dma(len_bytes: u64, align: u64) -> Result<DmaBuf, DmaExhausted> {
    let exhausted = || DmaExhausted {
        asked: len_bytes,
        largest: with(|frames| u64::from(frames.low.largest())) * PAGE_BYTES,
    };
    let pages = u32::try_from(len_bytes.div_ceil(PAGE_BYTES)).map_err(|_| exhausted())?;
    let align = u32::try_from(align.div_ceil(PAGE_BYTES).max(1)).map_err(|_| exhausted())?;
    if !align.is_power_of_two() {
        return Err(exhausted());
    }
    let start = take(pages, align).ok_or_else(exhausted)?;
    let owner = Arc::new(Owner { start, pages });
    let bus = BusAddr(start.as_ptr() as u64);
    // SAFETY: `owner` keeps the run, which is mapped at its bus address, page-aligned, and not
    // referred to by anybody else.
    Ok(unsafe { DmaBuf::from_raw(start, bus, pages as usize * PAGE_BYTES as usize, owner) })
}
