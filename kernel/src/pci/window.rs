//! A mapped BAR.
//!
//! Registers are accessed by single `mov` instructions of their width, which any hypervisor can
//! decode; a doorbell is one check and one of them. Memory behind an uncached window is accessed in
//! aligned words, because registers may lie beside it; behind a write-combining one in 16-byte moves.

use alloc::sync::Arc;
use core::arch::asm;

use axon_platform::{Caching, MmioWindow};

use crate::memory::windows::Mapping;

/// A mapped BAR. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Window {
    base: u64,
    len: u64,
    /// Whole words of `len`.
    words: u64,
    caching: Caching,
    _mapping: Arc<Mapping>,
}

impl Window {
    /// The first `len` bytes of `mapping`, at least 4.
    pub(super) fn new(mapping: Arc<Mapping>, len: u64, caching: Caching) -> Window {
        let (base, len) = (mapping.start(), len.max(4));
        Window { base, len, words: len / 4, caching, _mapping: mapping }
    }

    /// An offset between words turns into a number that is far too large: one check for two.
    #[inline(always)]
    fn holds_word(&self, offset: u64) -> bool {
        offset.rotate_right(2) < self.words
    }

    fn holds(&self, offset: u64, len: usize) -> bool {
        let len = len as u64;
        len <= self.len && offset <= self.len - len
    }
}

impl MmioWindow for Window {
    #[inline]
    fn len_bytes(&self) -> u64 {
        self.len
    }

    #[inline(always)]
    fn read32(&self, offset: u64) -> u32 {
        if !self.holds_word(offset) {
            return u32::MAX;
        }
        // SAFETY: an aligned word inside the mapping, which lives as long as `self`.
        unsafe { load(self.base + offset) }
    }

    #[inline(always)]
    fn write32(&self, offset: u64, value: u32) {
        if self.holds_word(offset) {
            // SAFETY: as in `read32`.
            unsafe { store(self.base + offset, value) };
        }
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> bool {
        if !self.holds(offset, into.len()) {
            return false;
        }
        let from = self.base + offset;
        match self.caching {
            // SAFETY: inside the mapping; device memory that the compiler knows nothing of, so no
            // reference to it exists.
            Caching::WriteCombining => unsafe {
                core::ptr::copy_nonoverlapping(from as *const u8, into.as_mut_ptr(), into.len());
            },
            Caching::Uncached => read_words(from, into),
        }
        true
    }

    fn write_bytes(&self, offset: u64, from: &[u8]) -> bool {
        if !self.holds(offset, from.len()) {
            return false;
        }
        let to = self.base + offset;
        match self.caching {
            // SAFETY: as in `read_bytes`.
            Caching::WriteCombining => unsafe {
                core::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len());
            },
            Caching::Uncached => write_words(to, from),
        }
        true
    }
}

/// # Safety
/// `address` is an aligned word of a mapping.
#[inline(always)]
unsafe fn load(address: u64) -> u32 {
    let value;
    // SAFETY: forwarded. Not `nomem`: stores to memory stay before a read that may depend on them.
    unsafe {
        asm!("mov {:e}, [{}]", out(reg) value, in(reg) address, options(nostack, preserves_flags));
    }
    value
}

/// # Safety
/// `address` is an aligned word of a mapping.
#[inline(always)]
unsafe fn store(address: u64, value: u32) {
    // SAFETY: forwarded. Not `nomem`: stores to memory stay before the register write that tells
    // the device of them.
    unsafe {
        asm!("mov [{}], {:e}", in(reg) address, in(reg) value, options(nostack, preserves_flags));
    }
}

/// Reads whole aligned words and takes the bytes asked for.
///
/// The range lies in a mapping, whose borders are aligned, so the words do too.
fn read_words(mut from: u64, mut into: &mut [u8]) {
    while !into.is_empty() {
        let skip = (from % 4) as usize;
        let count = into.len().min(4 - skip);
        let (now, later) = into.split_at_mut(count);
        // SAFETY: an aligned word that overlaps the range.
        let word = unsafe { load(from & !3) }.to_le_bytes();
        now.copy_from_slice(&word[skip..skip + count]);
        from += count as u64;
        into = later;
    }
}

/// Writes whole words where the range covers them, bytes at its ends.
fn write_words(mut to: u64, mut from: &[u8]) {
    while let [byte, later @ ..] = from {
        if to.is_multiple_of(4)
            && let Some((word, later)) = from.split_first_chunk()
        {
            // SAFETY: an aligned word inside the range.
            unsafe { store(to, u32::from_le_bytes(*word)) };
            to += 4;
            from = later;
        } else {
            // SAFETY: a byte of the range.
            unsafe { (to as *mut u8).write_volatile(*byte) };
            to += 1;
            from = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_and_bytes_come_through_at_any_alignment(
            skip in 0usize..4, data in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut memory = [0xeeeeeeeeu32; 12];
            let start = memory.as_mut_ptr() as u64 + skip as u64;
            write_words(start, &data);
            let mut back = std::vec![0; data.len()];
            read_words(start, &mut back);
            prop_assert_eq!(&back, &data);
            let bytes: std::vec::Vec<u8> = memory.iter().flat_map(|w| w.to_ne_bytes()).collect();
            prop_assert_eq!(&bytes[skip..skip + data.len()], &data[..]);
            prop_assert!(bytes[..skip].iter().chain(&bytes[skip + data.len()..]).all(|b| *b == 0xee));
        }
    }
}
