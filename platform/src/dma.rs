//! Host memory that a device reads and writes behind the CPU's back.
//!
//! This is the one module of the crate with `unsafe`: it turns the address and length a platform
//! vouches for into bounds-checked accesses. No `&[u8]` into the memory ever exists, because the
//! device may change it at any time: data is copied in and out, words are loaded and stored as
//! atomics.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{BusAddr, Errno};

/// An access would have left the buffer; nothing was read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfBounds {
    /// First byte asked for, from the start of the buffer.
    pub offset: u64,
    /// Bytes asked for.
    pub len_bytes: u64,
    /// Length of the buffer in bytes.
    pub limit: u64,
}

impl OutOfBounds {
    /// Always [`Errno::EINVAL`].
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes at offset {} do not fit into {}",
            self.len_bytes, self.offset, self.limit
        )
    }
}

impl core::error::Error for OutOfBounds {}

/// One 16-byte DMA descriptor, as four little-endian words (specification 02 §6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(16))]
pub struct Descriptor(pub [u32; 4]);

/// Physically contiguous host memory, reachable by a device.
///
/// Clones and [slices](DmaBuf::slice) share the memory; it goes back to the platform when the last
/// one is dropped. All accesses are checked; all may run while a device writes the same bytes, in
/// which case the bytes read are some mixture of old and new.
#[derive(Clone)]
pub struct DmaBuf {
    start: NonNull<u8>,
    bus: BusAddr,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is plain bytes owned through `owner`, which is `Send + Sync`; every access
// goes through raw copies or atomics, never through references into the memory.
unsafe impl Send for DmaBuf {}
// SAFETY: as above; concurrent accesses may mix old and new bytes, as with a device writing.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Wraps memory that a platform owns.
    ///
    /// # Safety
    /// `start` is valid for reads and writes of `len` bytes and aligned to 16 as long as `owner` or
    /// a clone of it lives, and no Rust reference into the memory exists in that time. `bus` is
    /// where a device finds its first byte, and the following bytes behind it.
    pub unsafe fn from_raw(
        start: NonNull<u8>,
        bus: BusAddr,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        DmaBuf { start, bus, len, owner }
    }

    /// Zeroed memory from the heap that claims to start at `bus`: for tests, and wherever no device
    /// is on the other side. `len_bytes` is rounded up to 16; `None` where the heap is exhausted.
    pub fn on_heap(len_bytes: u64, bus: BusAddr) -> Option<DmaBuf> {
        let blocks = usize::try_from(len_bytes.div_ceil(16)).ok()?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(blocks).ok()?;
        memory.resize_with(blocks, || Block(UnsafeCell::new([0; 16])));
        let memory: Arc<HeapBlocks> = Arc::new(HeapBlocks(memory.into_boxed_slice()));
        let start = NonNull::from(&*memory.0).cast();
        // SAFETY: the blocks are aligned to 16 and live in `UnsafeCell`s inside `memory`, which
        // becomes the owner; nothing else refers to them.
        Some(unsafe { DmaBuf::from_raw(start, bus, blocks * 16, memory) })
    }

    /// Length in bytes.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.len as u64
    }

    /// Bus address of the first byte.
    #[inline]
    pub fn bus(&self) -> BusAddr {
        self.bus
    }

    /// The part `[offset, offset + len_bytes)`, sharing the memory.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 16.
    pub fn slice(&self, offset: u64, len_bytes: u64) -> Result<DmaBuf, OutOfBounds> {
        let at = self.check(offset, len_bytes)?;
        if !offset.is_multiple_of(16) {
            return Err(self.refuse(offset, len_bytes));
        }
        Ok(DmaBuf {
            start: at,
            bus: BusAddr(self.bus.0 + offset),
            len: len_bytes as usize,
            owner: self.owner.clone(),
        })
    }

    /// Copies `into.len()` bytes out of the buffer.
    ///
    /// # Errors
    /// [`OutOfBounds`], with `into` untouched.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.check(offset, into.len() as u64)?;
        // SAFETY: `check` proved that the range lies inside the memory that `owner` keeps alive;
        // `into` is a Rust slice and so cannot overlap it.
        unsafe { core::ptr::copy_nonoverlapping(at.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `from` into the buffer.
    ///
    /// # Errors
    /// [`OutOfBounds`], with the buffer untouched.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.check(offset, from.len() as u64)?;
        // SAFETY: as in `read`.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), at.as_ptr(), from.len()) };
        Ok(())
    }

    /// Sets `len_bytes` bytes to `byte`.
    ///
    /// # Errors
    /// [`OutOfBounds`], with the buffer untouched.
    pub fn fill(&self, offset: u64, len_bytes: u64, byte: u8) -> Result<(), OutOfBounds> {
        let at = self.check(offset, len_bytes)?;
        // SAFETY: `check` proved that the range lies inside the memory.
        unsafe { core::ptr::write_bytes(at.as_ptr(), byte, len_bytes as usize) };
        Ok(())
    }

    /// Copies `len_bytes` from `other` into this buffer; overlapping ranges behave as `memmove`.
    ///
    /// # Errors
    /// [`OutOfBounds`] of whichever range leaves its buffer, with nothing copied.
    pub fn copy_from(
        &self,
        offset: u64,
        other: &DmaBuf,
        other_offset: u64,
        len_bytes: u64,
    ) -> Result<(), OutOfBounds> {
        let to = self.check(offset, len_bytes)?;
        let from = other.check(other_offset, len_bytes)?;
        // SAFETY: both ranges were checked; `copy` allows them to overlap.
        unsafe { core::ptr::copy(from.as_ptr(), to.as_ptr(), len_bytes as usize) };
        Ok(())
    }

    /// Stores one descriptor whole at `offset`, a multiple of 16.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 16.
    #[inline]
    pub fn store_descriptor(&self, offset: u64, value: Descriptor) -> Result<(), OutOfBounds> {
        let at = self.check(offset, 16)?;
        if !offset.is_multiple_of(16) {
            return Err(self.refuse(offset, 16));
        }
        // SAFETY: in range, and aligned because the buffer is aligned to 16 and so is the offset.
        unsafe { at.cast::<Descriptor>().as_ptr().write_volatile(value) };
        Ok(())
    }

    /// Loads the word at `offset`, a multiple of 4, with acquire ordering: what the device wrote
    /// before that word is visible afterwards.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 4.
    #[inline]
    pub fn load32(&self, offset: u64) -> Result<u32, OutOfBounds> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Stores the word at `offset`, a multiple of 4, with release ordering.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 4.
    #[inline]
    pub fn store32(&self, offset: u64, value: u32) -> Result<(), OutOfBounds> {
        self.word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Loads the word at `offset`, a multiple of 8.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 8.
    #[inline]
    pub fn load64(&self, offset: u64) -> Result<u64, OutOfBounds> {
        Ok(self.long_word(offset)?.load(Ordering::Acquire))
    }

    /// Stores the word at `offset`, a multiple of 8, with release ordering.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 8.
    #[inline]
    pub fn store64(&self, offset: u64, value: u64) -> Result<(), OutOfBounds> {
        self.long_word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Adds to the word at `offset`, a multiple of 8, in one step; wraps around. Answers what the
    /// word was.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 8.
    #[inline]
    pub fn fetch_add64(&self, offset: u64, value: u64) -> Result<u64, OutOfBounds> {
        Ok(self.long_word(offset)?.fetch_add(value, Ordering::Relaxed))
    }

    /// Sets bits of the word at `offset`, a multiple of 8, in one step. Answers what the word was.
    ///
    /// # Errors
    /// [`OutOfBounds`]; also for an offset that is no multiple of 8.
    #[inline]
    pub fn fetch_or64(&self, offset: u64, bits: u64) -> Result<u64, OutOfBounds> {
        Ok(self.long_word(offset)?.fetch_or(bits, Ordering::Relaxed))
    }

    #[inline]
    fn long_word(&self, offset: u64) -> Result<&AtomicU64, OutOfBounds> {
        let at = self.check(offset, 8)?;
        if !offset.is_multiple_of(8) {
            return Err(self.refuse(offset, 8));
        }
        // SAFETY: as in `word`.
        Ok(unsafe { AtomicU64::from_ptr(at.cast::<u64>().as_ptr()) })
    }

    /// The whole buffer as a ring of descriptors.
    ///
    /// # Errors
    /// [`OutOfBounds`] unless it holds a power of two of them, at most 2³¹.
    pub fn descriptor_ring(&self) -> Result<DescriptorRing, OutOfBounds> {
        Ok(DescriptorRing { mask: self.ring_mask(16)?, buffer: self.clone() })
    }

    /// The whole buffer as a ring of words.
    ///
    /// # Errors
    /// [`OutOfBounds`] unless it holds a power of two of them, at most 2³¹.
    pub fn word_ring(&self) -> Result<WordRing, OutOfBounds> {
        Ok(WordRing { mask: self.ring_mask(4)?, buffer: self.clone() })
    }

    fn ring_mask(&self, element: usize) -> Result<u32, OutOfBounds> {
        let count = self.len / element;
        match u32::try_from(count) {
            Ok(count) if count.is_power_of_two() && self.len.is_multiple_of(element) => {
                Ok(count - 1)
            }
            _ => Err(self.refuse(0, 0)),
        }
    }

    #[inline]
    fn word(&self, offset: u64) -> Result<&AtomicU32, OutOfBounds> {
        let at = self.check(offset, 4)?;
        if !offset.is_multiple_of(4) {
            return Err(self.refuse(offset, 4));
        }
        // SAFETY: in range and aligned; the memory lives as long as `self`, and other code only
        // touches it through atomics and raw copies.
        Ok(unsafe { AtomicU32::from_ptr(at.cast::<u32>().as_ptr()) })
    }

    #[inline]
    fn check(&self, offset: u64, len_bytes: u64) -> Result<NonNull<u8>, OutOfBounds> {
        let limit = self.len as u64;
        if len_bytes > limit || offset > limit - len_bytes {
            return Err(self.refuse(offset, len_bytes));
        }
        // SAFETY: `offset` is at most `len`, so the result lies inside the memory or one byte
        // behind its end (for an empty range).
        Ok(unsafe { self.start.add(offset as usize) })
    }

    #[cold]
    fn refuse(&self, offset: u64, len_bytes: u64) -> OutOfBounds {
        OutOfBounds { offset, len_bytes, limit: self.len as u64 }
    }
}

/// 16 bytes, aligned as [`DmaBuf::from_raw`] wants its first byte.
#[repr(align(16))]
struct Block(#[allow(dead_code)] UnsafeCell<[u8; 16]>);

struct HeapBlocks(Box<[Block]>);

// SAFETY: as for `DmaBuf`, the only one to reach the blocks.
unsafe impl Sync for HeapBlocks {}
/// A buffer as a ring of 2ⁿ descriptors: an index counts modulo the length, so that a store on the
/// data path has no way to fail.
#[derive(Clone, Debug)]
pub struct DescriptorRing {
    buffer: DmaBuf,
    mask: u32,
}

impl DescriptorRing {
    /// How many descriptors less one.
    #[inline]
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Stores one descriptor, its first two words and its address in one access each.
    #[inline]
    pub fn store(&self, index: u32, value: Descriptor) {
        let [w0, w1, w2, w3] = value.0;
        let control = u64::from(w0) | u64::from(w1) << 32;
        let address = u64::from(w2) | u64::from(w3) << 32;
        let slot = self.slot(index).cast::<u64>();
        // SAFETY: the masked index is inside the buffer, which `descriptor_ring` proved to hold
        // `mask + 1` descriptors; the buffer is aligned to 16. Words are little-endian on every
        // machine that has such a device.
        unsafe {
            slot.write_volatile(control);
            slot.add(1).write_volatile(address);
        }
    }

    /// Loads one descriptor.
    #[inline]
    pub fn load(&self, index: u32) -> Descriptor {
        // SAFETY: as in `store`.
        unsafe { self.slot(index).read_volatile() }
    }

    #[inline]
    fn slot(&self, index: u32) -> *mut Descriptor {
        let at = (index & self.mask) as usize;
        // SAFETY: as in `store`.
        unsafe { self.buffer.start.cast::<Descriptor>().as_ptr().add(at) }
    }
}

/// A buffer as a ring of 2ⁿ words: an index counts modulo the length, so that an access on the data
/// path has no way to fail.
#[derive(Clone, Debug)]
pub struct WordRing {
    buffer: DmaBuf,
    mask: u32,
}

impl WordRing {
    /// How many words less one.
    #[inline]
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Loads a word with acquire ordering.
    #[inline]
    pub fn load(&self, index: u32) -> u32 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Stores a word with release ordering.
    #[inline]
    pub fn store(&self, index: u32, value: u32) {
        self.word(index).store(value, Ordering::Release);
    }

    #[inline]
    fn word(&self, index: u32) -> &AtomicU32 {
        let at = (index & self.mask) as usize;
        // SAFETY: the masked index is inside the buffer, which `word_ring` proved to hold
        // `mask + 1` words and which lives as long as `self`; other code only touches it through
        // atomics and raw copies.
        unsafe { AtomicU32::from_ptr(self.buffer.start.cast::<u32>().as_ptr().add(at)) }
    }
}

impl fmt::Debug for DmaBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaBuf").field("bus", &self.bus).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn page() -> DmaBuf {
        DmaBuf::on_heap(4096, BusAddr(0x1000)).unwrap()
    }

    #[test]
    fn bytes_round_trip_and_bounds_hold() {
        let buf = page();
        buf.write(4094, &[1, 2]).unwrap();
        let mut out = vec![0; 2];
        buf.read(4094, &mut out).unwrap();
        assert_eq!(out, [1, 2]);
        let refused = buf.write(4095, &[9, 9]).unwrap_err();
        assert_eq!(refused, OutOfBounds { offset: 4095, len_bytes: 2, limit: 4096 });
        assert!(buf.read(u64::MAX, &mut out).is_err());
        assert!(buf.fill(1, u64::MAX, 0).is_err());
        buf.read(4094, &mut out).unwrap();
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn words_need_alignment() {
        let buf = page();
        buf.store32(8, 0xabcd_ef01).unwrap();
        assert_eq!(buf.load32(8).unwrap(), 0xabcd_ef01);
        assert!(buf.load32(2).is_err());
        assert!(buf.load32(4096).is_err());
        assert!(buf.store_descriptor(8, Descriptor::default()).is_err());
        buf.store_descriptor(4080, Descriptor([1, 2, 3, 4])).unwrap();
        assert_eq!(buf.load32(4092).unwrap(), 4);
    }

    #[test]
    fn long_words_are_changed_in_one_step() {
        let buf = page();
        assert_eq!(buf.fetch_add64(8, 5).unwrap(), 0);
        assert_eq!(buf.fetch_add64(8, u64::MAX).unwrap(), 5);
        assert_eq!(buf.fetch_or64(8, 3).unwrap(), 4);
        assert_eq!(buf.load64(8).unwrap(), 7);
        buf.store64(4088, u64::MAX).unwrap();
        assert_eq!(buf.load32(4092).unwrap(), u32::MAX);
        assert!(buf.load64(4).is_err());
        assert!(buf.fetch_add64(4092, 1).is_err());
        assert!(buf.store64(4096, 1).is_err());
    }

    #[test]
    fn heap_memory_is_zeroed_and_rounded_up() {
        let buf = DmaBuf::on_heap(17, BusAddr(64)).unwrap();
        assert_eq!((buf.len_bytes(), buf.bus()), (32, BusAddr(64)));
        assert_eq!(buf.load64(24).unwrap(), 0);
        assert!(DmaBuf::on_heap(u64::MAX, BusAddr(0)).is_none());
        assert_eq!(DmaBuf::on_heap(0, BusAddr(0)).unwrap().len_bytes(), 0);
    }

    #[test]
    fn slices_share_memory_and_keep_it_alive() {
        let buf = page();
        let part = buf.slice(16, 32).unwrap();
        assert_eq!(part.bus(), BusAddr(0x1010));
        drop(buf);
        part.write(0, &[7]).unwrap();
        assert!(part.write(32, &[7]).is_err());
        assert!(part.slice(8, 8).is_err());
    }

    #[test]
    fn rings_wrap_and_need_a_power_of_two() {
        let buf = page();
        let ring = buf.descriptor_ring().unwrap();
        assert_eq!(ring.mask(), 255);
        ring.store(256 + 3, Descriptor([1, 2, 3, 4]));
        assert_eq!(buf.load32(3 * 16 + 4).unwrap(), 2);
        assert_eq!(ring.load(3), Descriptor([1, 2, 3, 4]));
        let words = buf.word_ring().unwrap();
        words.store(u32::MAX, 9);
        assert_eq!(buf.load32(4092).unwrap(), 9);
        assert_eq!(words.load(1023), 9);
        assert!(DmaBuf::on_heap(3 * 4096, BusAddr(0)).unwrap().descriptor_ring().is_err());
        assert!(buf.slice(0, 0).unwrap().word_ring().is_err());
    }
}
