//! Windows onto device memory: each in its own 512 GiB slot of the upper half of the address
//! space, so that the largest pages fit whatever the size, and mapping costs a few page tables.
//!
//! A slot is one entry of the top page table. BARs are naturally aligned powers of two, so one of up
//! to 512 GiB lies in a slot at the same offset as in its 512 GiB of the bus.

use alloc::sync::Arc;
use core::cell::RefCell;

use axon_platform::MapError;
use critical_section::Mutex;

use super::paging::{self, Rights};
use super::runs::PAGE_BYTES;

const SLOT_BYTES: u64 = 512 << 30;
const FIRST_SLOT: usize = 256;
const SLOTS: usize = 256;

/// Bit set: slot in use.
static USED: Mutex<RefCell<[u64; SLOTS / 64]>> = Mutex::new(RefCell::new([0; SLOTS / 64]));

/// Physical addresses mapped into the upper half; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    slot: usize,
    start: u64,
}

impl Mapping {
    /// Maps `[phys, phys + len)`.
    ///
    /// # Errors
    /// [`MapError::OutOfReach`] for what lies above the processor's address bits, crosses a multiple
    /// of 512 GiB or finds no free slot; [`MapError::NoMemory`]; [`MapError::Absent`] for a length
    /// of 0.
    pub fn new(phys: u64, len: u64, rights: Rights) -> Result<Arc<Mapping>, MapError> {
        if len == 0 {
            return Err(MapError::Absent);
        }
        let end = phys.checked_add(len).ok_or(MapError::OutOfReach)?;
        if end > 1 << crate::processor::address_bits()
            || phys / SLOT_BYTES != (end - 1) / SLOT_BYTES
        {
            return Err(MapError::OutOfReach);
        }
        let first = phys & !(PAGE_BYTES - 1);
        let pages = end.next_multiple_of(PAGE_BYTES) - first;
        let slot = take_slot().ok_or(MapError::OutOfReach)?;
        let base = slot_address(slot) + first % SLOT_BYTES;
        // Made before the pages, so that a failure half-way is undone by dropping it.
        let mapping = Mapping { slot, start: base + phys % PAGE_BYTES };
        paging::map_device(base, first, pages, rights).map_err(|_| MapError::NoMemory)?;
        Ok(Arc::new(mapping))
    }

    /// Address of the first byte.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the slot is this mapping's alone, and the last user of its addresses is gone.
        unsafe { paging::unmap_slot(self.slot) };
        critical_section::with(|section| {
            let slot = self.slot - FIRST_SLOT;
            USED.borrow_ref_mut(section)[slot / 64] &= !(1 << (slot % 64));
        });
    }
}

fn take_slot() -> Option<usize> {
    critical_section::with(|section| {
        let mut used = USED.borrow_ref_mut(section);
        let slot = (0..SLOTS).find(|slot| used[slot / 64] & (1 << (slot % 64)) == 0)?;
        used[slot / 64] |= 1 << (slot % 64);
        Some(FIRST_SLOT + slot)
    })
}

/// Sign-extended, as the upper half wants it.
fn slot_address(slot: usize) -> u64 {
    (slot as u64 * SLOT_BYTES) | 0xffff_0000_0000_0000
}
