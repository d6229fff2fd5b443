//! Host memory: the platform's first, then four reserve pools (specification 04 §4.2).
//!
//! The pools are filled at bring-up, while low memory is still in long runs, and used only when the
//! platform has nothing left. A pool is many separate pages; a run never crosses from one to the
//! next.

use alloc::sync::Arc;
use alloc::vec::Vec;

use axon_platform::{DmaBuf, DmaExhausted, Platform};

use crate::arena::NoRoom;
use crate::config::{MemoryConfig, RESERVE_PAGE_SIZES};
use crate::faults::Faults;

/// End of what a 32-bit bus address reaches.
const LOW_ZONE_END: u64 = 1 << 32;

/// Where host memory comes from: contiguous, zeroed, below 4 GiB.
pub trait HostSource: Send + 'static {
    /// `len_bytes`, rounded up to pages, at least page-aligned.
    ///
    /// # Errors
    /// [`DmaExhausted`].
    fn allocate(&mut self, len_bytes: u64) -> Result<DmaBuf, DmaExhausted>;
}

/// The platform as a source of host memory.
pub struct PlatformMemory<P>(pub P);

impl<P: Platform> HostSource for PlatformMemory<P> {
    fn allocate(&mut self, len_bytes: u64) -> Result<DmaBuf, DmaExhausted> {
        self.0.alloc_dma(len_bytes, crate::config::PAGE)
    }
}

/// Where a host chunk came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// From the platform; goes back when the last holder of the buffer lets go.
    Direct,
    /// From this page of this reserve pool.
    Pool { pool: u8, page: u16 },
}

/// One backing page of a reserve pool; a set bit is a granule in use.
struct ReservePage {
    buffer: DmaBuf,
    used: [u64; 8],
}

/// One reserve pool.
pub(crate) struct ReservePool {
    /// Bytes of one page.
    pub(crate) page_size: u64,
    /// Pages wanted.
    pub(crate) requested: u32,
    /// Bytes of live chunks.
    pub(crate) allocated: u64,
    pages: Vec<ReservePage>,
}

impl ReservePool {
    /// Takes pages from `source` until there are enough or it has no more.
    fn fill<S: HostSource>(
        page_size: u64,
        config: &MemoryConfig,
        source: &mut S,
        faults: &mut Faults,
    ) -> Result<ReservePool, NoRoom> {
        let requested = (config.host_memory_size / page_size).min(1 << 14) as u32;
        let mut pages = Vec::new();
        if faults.growth.hit() {
            return Err(NoRoom);
        }
        pages.try_reserve_exact(requested as usize).map_err(|_| NoRoom)?;
        while pages.len() < requested as usize {
            match take_low(source, page_size, faults) {
                Ok(buffer) => pages.push(ReservePage { buffer, used: [0; 8] }),
                Err(_) => break,
            }
        }
        Ok(ReservePool { page_size, requested, allocated: 0, pages })
    }

    /// Pages obtained.
    pub(crate) fn page_count(&self) -> u32 {
        self.pages.len() as u32
    }

    fn allocate(&mut self, bytes: u64, shift: u32) -> Option<(DmaBuf, u16)> {
        let count = granules(bytes, shift);
        let limit = (self.page_size >> shift) as u32;
        let (number, page, start) =
            self.pages.iter_mut().enumerate().find_map(|(number, page)| {
                let start = first_run(&page.used, limit, count)?;
                Some((number, page, start))
            })?;
        let buffer = page.buffer.slice(u64::from(start) << shift, bytes).ok()?;
        mark(&mut page.used, start, count, true);
        self.allocated += bytes;
        Some((buffer, number as u16))
    }

    fn release(&mut self, page: u16, buffer: &DmaBuf, shift: u32) {
        let Some(page) = self.pages.get_mut(usize::from(page)) else { return };
        let start = (buffer.bus().0 - page.buffer.bus().0) >> shift;
        mark(&mut page.used, start as u32, granules(buffer.len_bytes(), shift), false);
        self.allocated -= buffer.len_bytes();
    }
}

/// All host memory of a device.
pub(crate) struct HostMemory<S> {
    source: S,
    shift: u32,
    pub(crate) pools: [ReservePool; 4],
    warned: bool,
    /// Longest run that the platform reported when it refused.
    largest: u64,
}

impl<S: HostSource> HostMemory<S> {
    /// Fills the reserve pools, largest pages first.
    pub(crate) fn new(
        config: &MemoryConfig,
        mut source: S,
        faults: &mut Faults,
    ) -> Result<Self, NoRoom> {
        let [p0, p1, p2, p3] = RESERVE_PAGE_SIZES;
        let mut fill = |size| ReservePool::fill(size, config, &mut source, faults);
        let (p3, p2, p1, p0) = (fill(p3)?, fill(p2)?, fill(p1)?, fill(p0)?);
        let shift = config.granule_shift();
        Ok(HostMemory { source, shift, pools: [p0, p1, p2, p3], warned: false, largest: 0 })
    }

    /// `bytes` (a multiple of a page) from the platform, else from the smallest pool that can.
    pub(crate) fn allocate(
        &mut self,
        bytes: u64,
        faults: &mut Faults,
    ) -> Result<(DmaBuf, Origin), DmaExhausted> {
        let exhausted = match take_low(&mut self.source, bytes, faults) {
            Ok(buffer) => return Ok((buffer, Origin::Direct)),
            Err(exhausted) => exhausted,
        };
        for (number, pool) in self.pools.iter_mut().enumerate() {
            if pool.page_size < bytes {
                continue;
            }
            if let Some((buffer, page)) = pool.allocate(bytes, self.shift) {
                if !self.warned {
                    self.warned = true;
                    log::warn!("host memory: {bytes} bytes served from the reserve");
                }
                return Ok((buffer, Origin::Pool { pool: number as u8, page }));
            }
        }
        self.largest = exhausted.largest;
        Err(exhausted)
    }

    /// Longest free run, as the platform reported it when it last refused.
    pub(crate) fn largest_seen(&self) -> u64 {
        self.largest
    }

    /// Gives the memory of a chunk back.
    pub(crate) fn release(&mut self, buffer: Arc<DmaBuf>, origin: Origin) {
        if let Origin::Pool { pool, page } = origin
            && let Some(pool) = self.pools.get_mut(usize::from(pool))
        {
            pool.release(page, &buffer, self.shift);
        }
    }
}

/// Platform memory that a 32-bit bus address reaches; anything else is given back.
fn take_low<S: HostSource>(
    source: &mut S,
    bytes: u64,
    faults: &mut Faults,
) -> Result<DmaBuf, DmaExhausted> {
    if faults.no_low_zone || faults.low_zone.hit() {
        return Err(DmaExhausted { asked: bytes, largest: 0 });
    }
    let buffer = source.allocate(bytes)?;
    let end = buffer.bus().0.checked_add(buffer.len_bytes());
    if buffer.len_bytes() < bytes
        || !buffer.bus().0.is_multiple_of(crate::config::PAGE)
        || end.is_none_or(|end| end > LOW_ZONE_END)
    {
        return Err(DmaExhausted { asked: bytes, largest: 0 });
    }
    Ok(buffer)
}

fn granules(bytes: u64, shift: u32) -> u32 {
    (bytes.div_ceil(1 << shift)) as u32
}

/// Lowest run of `count` clear bits below `limit`.
fn first_run(used: &[u64; 8], limit: u32, count: u32) -> Option<u32> {
    let mut length = 0;
    for bit in 0..limit.min(512) {
        let taken = used[bit as usize / 64] >> (bit % 64) & 1 != 0;
        length = if taken { 0 } else { length + 1 };
        if length == count {
            return Some(bit + 1 - count);
        }
    }
    None
}

fn mark(used: &mut [u64; 8], start: u32, count: u32, taken: bool) {
    for bit in start..(start + count).min(512) {
        let mask = 1 << (bit % 64);
        let word = &mut used[bit as usize / 64];
        *word = if taken { *word | mask } else { *word & !mask };
    }
}
