//! The host memory of a hosted machine: one sparse mapping at a fixed bus address.
//!
//! Gives out contiguous runs, lowest address first, and watches the devices: an access outside of
//! what is given out at that moment is carried out (a real bus would) and counted as stray, so
//! that a test can prove that no device ever touched freed memory.
//!
//! The one module of the crate with `unsafe`: the mapping itself.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axon_model::{HostMemory, Unmapped};
use axon_platform::{BusAddr, DmaBuf, DmaExhausted};

/// Bus address of the first byte: low, page-aligned and not 0, so that a null address is an error.
const BASE: u64 = 0x1000_0000;
const PAGE: u64 = 4096;
/// What freed memory is filled with, so that a reader of it is noticed.
const POISON: u8 = 0xdb;
/// Longer runs are not filled: that would make sparse memory real.
const POISON_LIMIT: u64 = 1 << 20;

/// Anonymous memory, unmapped at the end.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain bytes; every access is a raw copy or an atomic through `DmaBuf`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> std::io::Result<Mapping> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        match NonNull::new(at.cast()) {
            Some(start) => Ok(Mapping { start, len }),
            None => Err(std::io::Error::other("mapping at address 0")),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; every `DmaBuf` into it held an `Arc` of it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Host memory of one machine.
pub(crate) struct Ram {
    mapping: Arc<Mapping>,
    whole: DmaBuf,
    runs: Mutex<Runs>,
    stray: AtomicU64,
    /// The machine is at its end: nobody will read what is freed now.
    closing: AtomicBool,
}

/// What is given out, by start offset; the rest is free.
struct Runs {
    used: BTreeMap<u64, u64>,
    used_bytes: u64,
    size: u64,
    /// Offsets below this were given out before and may hold old bytes.
    touched: u64,
}

/// Gives a run back when the last `DmaBuf` on it goes.
struct Lease {
    ram: Arc<Ram>,
    offset: u64,
    len: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.len <= POISON_LIMIT && !self.ram.closing.load(Ordering::Relaxed) {
            let _ = self.ram.whole.fill(self.offset, self.len, POISON);
        }
        let mut runs = self.ram.runs();
        runs.used.remove(&self.offset);
        runs.used_bytes -= self.len;
    }
}

impl Ram {
    pub(crate) fn new(size: u64) -> std::io::Result<Arc<Ram>> {
        let size = size.next_multiple_of(PAGE).max(PAGE);
        let mapping = Arc::new(Mapping::new(size as usize)?);
        let (start, len) = (mapping.start, mapping.len);
        // SAFETY: the mapping is page-aligned, `len` long and lives as long as the owner handed
        // over; it is only ever reached through `DmaBuf`s.
        let whole = unsafe { DmaBuf::from_raw(start, BusAddr(BASE), len, mapping.clone()) };
        let (stray, closing) = (AtomicU64::new(0), AtomicBool::new(false));
        let runs = Runs { used: BTreeMap::new(), used_bytes: 0, size, touched: 0 };
        Ok(Arc::new(Ram { mapping, whole, runs: Mutex::new(runs), stray, closing }))
    }

    /// From now on freed memory is left as it is: filling it would make sparse memory real.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn alloc(
        self: &Arc<Self>,
        len_bytes: u64,
        align: u64,
    ) -> Result<DmaBuf, DmaExhausted> {
        let align = align.max(PAGE);
        let len = len_bytes.checked_next_multiple_of(PAGE).filter(|len| *len > 0);
        let mut runs = self.runs();
        let found = len
            .filter(|_| align.is_power_of_two())
            .and_then(|len| runs.find(len, align).map(|offset| (offset, len)));
        let Some((offset, len)) = found else {
            return Err(DmaExhausted { asked: len_bytes, largest: runs.largest() });
        };
        runs.used.insert(offset, len);
        runs.used_bytes += len;
        let old = runs.touched.saturating_sub(offset).min(len);
        runs.touched = runs.touched.max(offset + len);
        drop(runs);
        let refused = |_| DmaExhausted { asked: len_bytes, largest: 0 };
        self.whole.fill(offset, old, 0).map_err(refused)?;
        let bus = BusAddr(BASE + offset);
        let lease = Arc::new(Lease { ram: self.clone(), offset, len });
        // SAFETY: `[offset, offset + len)` lies inside the mapping, which the lease keeps alive
        // through `ram`; the run is given to nobody else before the lease is dropped. `offset` is
        // a multiple of the page size, so the start is aligned.
        Ok(unsafe {
            let start = self.mapping.start.add(offset as usize);
            DmaBuf::from_raw(start, bus, len as usize, lease)
        })
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let runs = self.runs();
        runs.size - runs.used_bytes
    }

    /// Accesses of devices to memory that was not given out at that moment.
    pub(crate) fn stray(&self) -> u64 {
        self.stray.load(Ordering::Relaxed)
    }

    /// Offset of a device access; counts it as stray where it leaves every run given out.
    fn reach(&self, address: u64, len: u64) -> Result<u64, Unmapped> {
        let refused = Unmapped { address, len_bytes: len };
        let offset = address.checked_sub(BASE).ok_or(refused)?;
        if offset.checked_add(len).is_none_or(|end| end > self.whole.len_bytes()) {
            return Err(refused);
        }
        let runs = self.runs();
        let inside = runs
            .used
            .range(..=offset)
            .next_back()
            .is_some_and(|(start, size)| offset + len <= start + size);
        if !inside {
            self.stray.fetch_add(1, Ordering::Relaxed);
        }
        Ok(offset)
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runs {
    fn find(&self, len: u64, align: u64) -> Option<u64> {
        // Alignment counts on the bus address, as a device sees it.
        let aligned = |offset: u64| Some((BASE + offset).checked_next_multiple_of(align)? - BASE);
        let mut free = 0;
        for (start, size) in &self.used {
            let at = aligned(free)?;
            if at.checked_add(len)? <= *start {
                return Some(at);
            }
            free = start + size;
        }
        let at = aligned(free)?;
        (at.checked_add(len)? <= self.size).then_some(at)
    }

    fn largest(&self) -> u64 {
        let mut free = 0;
        let mut largest = 0;
        for (start, size) in &self.used {
            largest = largest.max(start - free);
            free = start + size;
        }
        largest.max(self.size - free)
    }
}

impl HostMemory for Ram {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let offset = self.reach(address, into.len() as u64)?;
        let len_bytes = into.len() as u64;
        self.whole.read(offset, into).map_err(|_| Unmapped { address, len_bytes })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let offset = self.reach(address, from.len() as u64)?;
        let len_bytes = from.len() as u64;
        self.whole.write(offset, from).map_err(|_| Unmapped { address, len_bytes })
    }

    fn store32(&self, address: u64, value: u32) -> Result<(), Unmapped> {
        let offset = self.reach(address, 4)?;
        self.whole.store32(offset, value).map_err(|_| Unmapped { address, len_bytes: 4 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_reused_and_zeroed() {
        let ram = Ram::new(8 * PAGE).unwrap();
        let first = ram.alloc(1, 0).unwrap();
        let second = ram.alloc(2 * PAGE, 2 * PAGE).unwrap();
        assert_eq!(first.bus(), BusAddr(BASE));
        assert_eq!(second.bus().0 % (2 * PAGE), 0);
        second.fill(0, 2 * PAGE, 0xff).unwrap();
        let bus = second.bus();
        drop(second);
        let again = ram.alloc(2 * PAGE, 2 * PAGE).unwrap();
        assert_eq!(again.bus(), bus);
        assert_eq!(again.load32(0).unwrap(), 0);
        assert_eq!(ram.free_bytes(), 5 * PAGE);
        let refused = ram.alloc(6 * PAGE, 0).unwrap_err();
        assert_eq!(refused, DmaExhausted { asked: 6 * PAGE, largest: 4 * PAGE });
        assert!(ram.alloc(0, 0).is_err());
        assert!(ram.alloc(u64::MAX, 0).is_err());
    }

    #[test]
    fn device_accesses_to_freed_memory_are_stray() {
        let ram = Ram::new(8 * PAGE).unwrap();
        let buf = ram.alloc(PAGE, 0).unwrap();
        let bus = buf.bus().0;
        ram.store32(bus + PAGE - 4, 7).unwrap();
        assert_eq!(ram.stray(), 0);
        ram.write(bus + PAGE - 2, &[0; 4]).unwrap();
        assert_eq!(ram.stray(), 1);
        drop(buf);
        ram.store32(bus, 7).unwrap();
        assert_eq!(ram.stray(), 2);
        for address in [BASE + 8 * PAGE - 1, 0, u64::MAX] {
            let refused = Unmapped { address, len_bytes: 2 };
            assert_eq!(ram.read(address, &mut [0; 2]), Err(refused));
        }
    }
}
