//! The global allocator: talc, growing by pieces of RAM that it never gives back.

use core::alloc::Layout;

use talc::TalcCell;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::cell::TalcSyncCell;
use talc::source::Source;

use super::frames;

/// Least bytes that the heap grows by.
const STEP_BYTES: usize = 1 << 20;

/// Room for the allocator's own records in a piece.
const OVERHEAD_BYTES: usize = 8192;

#[derive(Debug)]
struct Grow;

// SAFETY: `acquire` takes page runs, whose allocator keeps its records in the pages themselves and
// never uses the heap.
unsafe impl Source for Grow {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let wanted = layout.size().checked_add(layout.align() + OVERHEAD_BYTES).ok_or(())?;
        // Where a whole step is no longer to be had, what was asked for may be.
        let piece = frames::take_for_heap(wanted.max(STEP_BYTES));
        let (start, bytes) = piece.or_else(|| frames::take_for_heap(wanted)).ok_or(())?;
        // SAFETY: the piece is RAM, mapped, and was handed out for this use only.
        unsafe { talc.claim(start.as_ptr(), bytes) }.map(drop).ok_or(())
    }
}

// SAFETY: one processor, and no interrupt handler runs Rust code: two calls never overlap.
#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(test, expect(dead_code, reason = "tests use the host's allocator"))]
static HEAP: TalcSyncCell<Grow, talc::DefaultBinning> =
    unsafe { TalcSyncCell::new(TalcCell::new(Grow)) };
