//! Guest memory as the client maps it: windows of files, at bus addresses, with gaps.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::memory::shared::SharedMemory;
use crate::{HostMemory, Unmapped};

/// One window.
#[derive(Debug)]
struct Window {
    start: u64,
    end: u64,
    readable: bool,
    memory: SharedMemory,
}

/// All windows of a client, in order of address.
#[derive(Default, Debug)]
pub(crate) struct GuestWindows {
    windows: RwLock<Vec<Window>>,
    unreachable: AtomicU64,
}

impl GuestWindows {
    /// Maps a window of `file`; without one the range stays out of reach and is counted.
    ///
    /// # Errors
    /// An overlap with another window, a range that wraps, or what the operating system says.
    pub fn map(
        &self,
        start: u64,
        len_bytes: u64,
        file: Option<(&File, u64)>,
        readable: bool,
        writable: bool,
    ) -> io::Result<()> {
        let end = start.checked_add(len_bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let Some((file, offset)) = file else {
            self.unreachable.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let mut windows = self.windows.write().unwrap_or_else(PoisonError::into_inner);
        let place = windows.partition_point(|window| window.end <= start);
        if windows.get(place).is_some_and(|next| next.start < end) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let memory = SharedMemory::window(file, offset, len_bytes, writable)?;
        windows.insert(place, Window { start, end, readable, memory });
        Ok(())
    }

    /// Takes away every window that shares a byte with the range. When it returns nobody touches
    /// that memory any more.
    pub fn unmap(&self, start: u64, len_bytes: u64) {
        let end = start.saturating_add(len_bytes);
        let mut windows = self.windows.write().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|window| window.end <= start || window.start >= end);
    }

    /// Takes away all windows.
    pub fn clear(&self) {
        self.windows.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Windows that came without a file.
    pub fn unreachable(&self) -> u64 {
        self.unreachable.load(Ordering::Relaxed)
    }

    fn lock(&self) -> RwLockReadGuard<'_, Vec<Window>> {
        self.windows.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pieces of windows that cover `len` bytes at `address` without a gap.
fn cover(
    windows: &[Window],
    address: u64,
    len: usize,
    fits: impl Fn(&Window) -> bool,
) -> Result<&[Window], Unmapped> {
    let unmapped = Unmapped { address, len_bytes: len as u64 };
    let end = address.checked_add(len as u64).ok_or(unmapped)?;
    let first = windows.partition_point(|window| window.end <= address);
    let mut reached = address;
    for (count, window) in windows[first..].iter().enumerate() {
        if window.start > reached || !fits(window) {
            return Err(unmapped);
        }
        reached = window.end;
        if reached >= end {
            return Ok(&windows[first..=first + count]);
        }
    }
    if len == 0 { Ok(&[]) } else { Err(unmapped) }
}

impl HostMemory for GuestWindows {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let windows = self.lock();
        let (len, mut done) = (into.len(), 0);
        for window in cover(&windows, address, len, |window| window.readable)? {
            let offset = address + done as u64 - window.start;
            let run = (len - done).min((window.end - window.start - offset) as usize);
            let piece = &mut into[done..done + run];
            window.memory.read(offset, piece).map_err(|_| refused(address, len))?;
            done += run;
        }
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let windows = self.lock();
        let (len, mut done) = (from.len(), 0);
        for window in cover(&windows, address, len, |window| window.memory.is_writable())? {
            let offset = address + done as u64 - window.start;
            let run = (len - done).min((window.end - window.start - offset) as usize);
            let piece = &from[done..done + run];
            window.memory.write(offset, piece).map_err(|_| refused(address, len))?;
            done += run;
        }
        Ok(())
    }

    fn store32(&self, address: u64, value: u32) -> Result<(), Unmapped> {
        let windows = self.lock();
        match cover(&windows, address, 4, |window| window.memory.is_writable())? {
            [window] => window
                .memory
                .store32(address - window.start, value)
                .map_err(|_| refused(address, 4)),
            // Windows begin and end at pages, so an aligned word lies in one of them.
            _ => Err(refused(address, 4)),
        }
    }
}

fn refused(address: u64, len: usize) -> Unmapped {
    Unmapped { address, len_bytes: len as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x1000;

    fn file(pages: u64) -> (SharedMemory, File) {
        let memory = SharedMemory::in_file(pages * PAGE).unwrap();
        let file = File::from(memory.file().unwrap().try_clone_to_owned().unwrap());
        (memory, file)
    }

    /// Pages 0–1 of the file at 0x1000, page 3 behind them, page 2 read-only after a gap.
    fn windows() -> (SharedMemory, GuestWindows) {
        let (memory, file) = file(4);
        let windows = GuestWindows::default();
        windows.map(PAGE, 2 * PAGE, Some((&file, 0)), true, true).unwrap();
        windows.map(5 * PAGE, PAGE, Some((&file, 2 * PAGE)), true, false).unwrap();
        windows.map(3 * PAGE, PAGE, Some((&file, 3 * PAGE)), true, true).unwrap();
        (memory, windows)
    }

    #[test]
    fn accesses_cross_windows_and_stop_at_gaps() {
        let (memory, windows) = windows();
        windows.write(3 * PAGE - 2, b"abcd").unwrap();
        let mut bytes = [0; 2];
        memory.read(3 * PAGE, &mut bytes).unwrap();
        assert_eq!(&bytes, b"cd");
        let mut bytes = [0; 4];
        windows.read(3 * PAGE - 2, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcd");
        for address in [0, PAGE - 1, 4 * PAGE - 1, 4 * PAGE, 6 * PAGE - 1, u64::MAX - 1] {
            let asked = Unmapped { address, len_bytes: 4 };
            assert_eq!(windows.read(address, &mut bytes), Err(asked));
            assert_eq!(windows.write(address, &bytes), Err(asked), "{address:#x}");
        }
    }

    #[test]
    fn a_refused_write_changes_nothing() {
        let (memory, windows) = windows();
        assert!(windows.write(4 * PAGE - 4, &[7; 8]).is_err());
        let mut bytes = [1; 4];
        memory.read(4 * PAGE - 4, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4]);
    }

    #[test]
    fn read_only_windows_are_read_only() {
        let (_memory, windows) = windows();
        assert!(windows.read(5 * PAGE, &mut [0; 4]).is_ok());
        assert!(windows.write(5 * PAGE, &[0; 4]).is_err());
        assert!(windows.store32(5 * PAGE, 1).is_err());
        assert!(windows.store32(PAGE + 2, 1).is_err());
        assert!(windows.store32(PAGE + 4, 1).is_ok());
    }

    #[test]
    fn unmap_takes_whole_windows_and_overlaps_are_refused() {
        let (_memory, windows) = windows();
        let (_other, file) = file(1);
        assert!(windows.map(2 * PAGE, PAGE, Some((&file, 0)), true, true).is_err());
        windows.unmap(PAGE, PAGE);
        assert!(windows.read(2 * PAGE, &mut [0; 1]).is_err());
        assert!(windows.read(3 * PAGE, &mut [0; 1]).is_ok());
        assert!(windows.map(2 * PAGE, PAGE, Some((&file, 0)), true, true).is_ok());
        assert!(windows.map(u64::MAX, PAGE, Some((&file, 0)), true, true).is_err());
        assert!(windows.map(0x10_0000, 2 * PAGE, Some((&file, 0)), true, true).is_err());
        windows.map(0x10_0000, PAGE, None, true, true).unwrap();
        assert_eq!(windows.unreachable(), 1);
        windows.clear();
        assert!(windows.read(3 * PAGE, &mut [0; 1]).is_err());
    }
}
