//! Memory that a guest, or nobody yet, maps as well: HBM, on-chip memory, windows of guest RAM.
//!
//! The one module of the crate with `unsafe`. Nobody ever holds a reference into such memory,
//! because another process may change it at any time: bytes are copied in and out, and words that
//! somebody polls are stored as atomics.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// An access that leaves the mapping, or writes to one that is read-only. Nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// One mapping of `len` bytes, zero on first read, materialised page by page on first touch.
///
/// All accesses are checked against the length; they may run while another process changes the same
/// bytes, in which case a copy is some mixture of old and new.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    file: Option<OwnedFd>,
    writable: bool,
}

// SAFETY: the mapping is plain bytes, owned by this object and unmapped only when it is dropped;
// every access goes through raw copies or atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; concurrent accesses may mix old and new bytes, as with another process writing.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Sparse memory in an unnamed file that other processes can map through [`SharedMemory::file`].
    ///
    /// # Errors
    /// What the operating system says, in particular for a length of 0.
    pub fn in_file(len_bytes: u64) -> io::Result<Self> {
        // SAFETY: the name is a terminated string; the call has no other requirement.
        let fd = unsafe { libc::memfd_create(c"axon-model".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and belongs to nobody else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = libc::off_t::try_from(len_bytes).map_err(io::Error::other)?;
        // SAFETY: no memory is passed.
        if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let (start, len) = map(Some(file.as_fd()), 0, len_bytes, true)?;
        Ok(SharedMemory { start, len, file: Some(file), writable: true })
    }

    /// Sparse memory of this process alone.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn private(len_bytes: u64) -> io::Result<Self> {
        let (start, len) = map(None, 0, len_bytes, true)?;
        Ok(SharedMemory { start, len, file: None, writable: true })
    }

    /// A window of a file that another process handed over, for example guest RAM.
    ///
    /// # Errors
    /// `InvalidInput` where the file ends before the window does; else what the operating system
    /// says, for example for an offset that is no multiple of the page size.
    pub fn window(file: &File, offset: u64, len_bytes: u64, writable: bool) -> io::Result<Self> {
        let end = offset.checked_add(len_bytes).ok_or(io::ErrorKind::InvalidInput)?;
        if file.metadata()?.len() < end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (start, len) = map(Some(file.as_fd()), offset, len_bytes, writable)?;
        Ok(SharedMemory { start, len, file: None, writable })
    }

    /// The file behind memory made by [`SharedMemory::in_file`].
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len as u64
    }

    /// Copies `into.len()` bytes out.
    ///
    /// # Errors
    /// [`Refused`], with `into` untouched.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Refused> {
        let at = self.check(offset, into.len())?;
        // SAFETY: `check` proved the range inside the mapping; `into` is a Rust slice, and no slice
        // into the mapping ever exists, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(at.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies `from` in.
    ///
    /// # Errors
    /// [`Refused`], with the memory untouched.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Refused> {
        let at = self.check(offset, from.len())?;
        if !self.writable {
            return Err(Refused);
        }
        // SAFETY: as in `read`, and the mapping is writable.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at.as_ptr(), from.len()) };
        Ok(())
    }

    /// Stores the aligned word at `offset` with release ordering: whoever loads it with acquire
    /// ordering sees every byte written before.
    ///
    /// # Errors
    /// [`Refused`]; also for an offset that is no multiple of 4.
    #[inline]
    pub fn store32(&self, offset: u64, value: u32) -> Result<(), Refused> {
        let at = self.check(offset, 4)?;
        if !self.writable || !offset.is_multiple_of(4) {
            return Err(Refused);
        }
        // SAFETY: in range, writable, and aligned because mappings start at a page boundary.
        let word = unsafe { AtomicU32::from_ptr(at.cast::<u32>().as_ptr()) };
        word.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[inline]
    fn check(&self, offset: u64, len: usize) -> Result<NonNull<u8>, Refused> {
        let limit = self.len as u64;
        if len as u64 > limit || offset > limit - len as u64 {
            return Err(Refused);
        }
        // SAFETY: `offset` is at most `len`, so the result is inside the mapping or one behind it.
        Ok(unsafe { self.start.add(offset as usize) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` returned, and nobody holds a pointer into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

fn map(
    file: Option<BorrowedFd<'_>>,
    offset: u64,
    len_bytes: u64,
    writable: bool,
) -> io::Result<(NonNull<u8>, usize)> {
    let len = usize::try_from(len_bytes).map_err(io::Error::other)?;
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    let (flags, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), len, protection, flags | libc::MAP_NORESERVE, fd, offset)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start =
        NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
    Ok((start, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zero_then_what_was_written() {
        let memory = SharedMemory::in_file(1 << 40).unwrap();
        let mut word = [1u8; 4];
        memory.read((1 << 40) - 4, &mut word).unwrap();
        assert_eq!(word, [0; 4]);
        memory.store32(0x1000, 0xabcd_ef01).unwrap();
        memory.read(0x1000, &mut word).unwrap();
        assert_eq!(word, [0x01, 0xef, 0xcd, 0xab]);
    }

    #[test]
    fn refuses_what_leaves_it() {
        let memory = SharedMemory::private(8192).unwrap();
        assert_eq!(memory.write(8190, &[0; 3]), Err(Refused));
        assert_eq!(memory.read(u64::MAX, &mut [0; 2]), Err(Refused));
        assert_eq!(memory.store32(2, 0), Err(Refused));
        assert_eq!(memory.write(8192, &[]), Ok(()));
    }

    #[test]
    fn a_window_is_the_same_memory_and_may_be_read_only() {
        let memory = SharedMemory::in_file(0x4000).unwrap();
        let file = File::from(memory.file().unwrap().try_clone_to_owned().unwrap());
        let window = SharedMemory::window(&file, 0x1000, 0x2000, false).unwrap();
        memory.write(0x1010, b"axon").unwrap();
        let mut text = [0; 4];
        window.read(0x10, &mut text).unwrap();
        assert_eq!(&text, b"axon");
        assert_eq!(window.write(0, &[1]), Err(Refused));
        assert!(SharedMemory::window(&file, 0x1000, 0x4000, true).is_err());
        assert!(SharedMemory::window(&file, 0x10, 0x10, true).is_err());
    }
}
