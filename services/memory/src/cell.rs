//! One cell of the device grid: a slice of HBM with its main and small arena and its stack of
//! contiguous scratchpads (specification 04 §2.3, §4.3, §4.4).

use alloc::vec::Vec;

use axon_ports::MemoryGeometry;

use crate::arena::{Arena, ArenaError, NoRoom, WrongSpan};
use crate::config::{MemoryConfig, PAGE};
use crate::faults::Faults;

/// Which part of a cell a span came from, and so where it goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Main,
    Small,
    /// Above the frontier of the main arena.
    Scratchpad,
}

/// How the span must lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    Anywhere,
    /// Address a multiple of this power of two, above a page.
    Aligned(u64),
    Scratchpad,
}

/// One cell.
pub(crate) struct Cell {
    pub(crate) base: u64,
    /// Bytes of the whole region.
    pub(crate) region_size: u64,
    /// Bytes of the small arena; 0 for none.
    pub(crate) small_size: u64,
    /// Bytes of live and draining chunks.
    pub(crate) allocated: u64,
    /// Records of the contiguous scratchpads, oldest (highest) first.
    pub(crate) scratchpads: Vec<u32>,
    shift: u32,
    small_alloc_max: u64,
    main: Arena,
    small: Option<Arena>,
    warned: bool,
}

impl Cell {
    /// The cell over `[base, base + size)`.
    pub(crate) fn new(
        config: &MemoryConfig,
        geometry: &MemoryGeometry,
        base: u64,
        size: u64,
        faults: &mut Faults,
    ) -> Result<Cell, NoRoom> {
        let shift = config.granule_shift();
        let small_size = config.small_size(geometry, size);
        let granules = |bytes: u64| u32::try_from(bytes >> shift).map_err(|_| NoRoom);
        let main = Arena::new(granules(size - small_size)?, faults)?;
        let small = match small_size {
            0 => None,
            bytes => Some(Arena::new(granules(bytes)?, faults)?),
        };
        Ok(Cell {
            base,
            region_size: size,
            small_size,
            allocated: 0,
            scratchpads: Vec::new(),
            shift,
            small_alloc_max: config.small_alloc_max,
            main,
            small,
            warned: false,
        })
    }

    /// First byte behind the main arena: ceiling of the scratchpads, start of the small arena.
    pub(crate) fn main_end(&self) -> u64 {
        self.base + self.region_size - self.small_size
    }

    /// Bytes from the lowest scratchpad to the ceiling.
    pub(crate) fn scratchpad_size(&self) -> u64 {
        match self.scratchpads.is_empty() {
            true => 0,
            false => {
                self.main_end() - (self.base + (u64::from(self.main.frontier()) << self.shift))
            }
        }
    }

    /// Whether `pa` lies in this cell.
    pub(crate) fn contains(&self, pa: u64) -> bool {
        pa >= self.base && pa - self.base < self.region_size
    }

    /// Bytes free in all, and the longest run.
    pub(crate) fn free(&self) -> (u64, u64) {
        let small = self.small.as_ref();
        let free = self.main.free_granules() + small.map_or(0, Arena::free_granules);
        let largest = self.main.largest().max(small.map_or(0, Arena::largest));
        (u64::from(free) << self.shift, u64::from(largest) << self.shift)
    }

    /// Bytes of heap that the arenas' own tables take now.
    pub(crate) fn table_bytes(&self) -> usize {
        self.main.bytes() + self.small.as_ref().map_or(0, Arena::bytes)
    }

    /// Cuts `bytes`, a multiple of a page, for `record`.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        bytes: u64,
        placement: Placement,
        record: u32,
        faults: &mut Faults,
    ) -> Result<(u64, Part), ArenaError> {
        if bytes == 0 || bytes > self.region_size {
            return Err(ArenaError::Full);
        }
        if placement == Placement::Scratchpad {
            return Ok((self.push_scratchpad(bytes, record, faults)?, Part::Scratchpad));
        }
        let small_first = self.small.is_some() && bytes <= self.small_alloc_max;
        let (first, other) =
            if small_first { (Part::Small, Part::Main) } else { (Part::Main, Part::Small) };
        let found = match self.allocate_in(first, bytes, placement, record, faults) {
            Ok(pa) => (pa, first),
            Err(ArenaError::Full) if self.small.is_some() => {
                let pa = self.allocate_in(other, bytes, placement, record, faults)?;
                if !self.warned {
                    self.warned = true;
                    log::warn!("{bytes} bytes at {pa:#x} come from the {other:?} arena");
                }
                (pa, other)
            }
            Err(error) => return Err(error),
        };
        self.allocated += bytes;
        Ok(found)
    }

    #[inline]
    fn allocate_in(
        &mut self,
        part: Part,
        bytes: u64,
        placement: Placement,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u64, ArenaError> {
        let count = (bytes.div_ceil(1 << self.shift)) as u32;
        let base = self.part_base(part);
        let shift = self.shift;
        let arena = self.arena(part).ok_or(ArenaError::Full)?;
        let start = match placement {
            Placement::Aligned(align) if align > 1 << shift => {
                if !base.is_multiple_of(1 << shift) {
                    return Err(ArenaError::Full);
                }
                arena.allocate_aligned(count, align >> shift, base >> shift, record, faults)?
            }
            _ => arena.allocate(count, record, faults)?,
        };
        Ok(base + (u64::from(start) << shift))
    }

    fn push_scratchpad(
        &mut self,
        bytes: u64,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u64, ArenaError> {
        let granule = 1 << self.shift;
        let main_bytes = self.region_size - self.small_size;
        // A frontier or size inside a granule can never be met exactly.
        if !bytes.is_multiple_of(granule) || !main_bytes.is_multiple_of(granule) {
            return Err(ArenaError::Full);
        }
        if self.scratchpads.len() == self.scratchpads.capacity() {
            if faults.growth.hit() {
                return Err(ArenaError::NoRoom);
            }
            self.scratchpads.try_reserve(8).map_err(|_| ArenaError::NoRoom)?;
        }
        let start = self.main.push_down((bytes >> self.shift) as u32, record, faults)?;
        self.scratchpads.push(record);
        self.allocated += bytes;
        Ok(self.base + (u64::from(start) << self.shift))
    }

    /// Takes back the lowest scratchpad.
    pub(crate) fn pull_scratchpad(&mut self, record: u32, bytes: u64) -> Result<(), WrongSpan> {
        if self.scratchpads.last() != Some(&record) {
            return Err(WrongSpan);
        }
        self.main.pull_up((bytes >> self.shift) as u32, record)?;
        self.scratchpads.pop();
        self.allocated -= bytes;
        Ok(())
    }

    /// Takes back `bytes` at `pa`, which `record` holds in `part`.
    #[inline]
    pub(crate) fn release(
        &mut self,
        part: Part,
        pa: u64,
        bytes: u64,
        record: u32,
    ) -> Result<(), WrongSpan> {
        let start = pa.checked_sub(self.part_base(part)).ok_or(WrongSpan)? >> self.shift;
        let count = (bytes.div_ceil(1 << self.shift)) as u32;
        let arena = self.arena(part).ok_or(WrongSpan)?;
        arena.release(u32::try_from(start).map_err(|_| WrongSpan)?, count, record)?;
        self.allocated -= bytes;
        Ok(())
    }

    /// Record of the last span that starts at or before `pa`.
    pub(crate) fn span_at(&self, pa: u64) -> Option<u32> {
        let part = if pa >= self.main_end() { Part::Small } else { Part::Main };
        let arena = if part == Part::Small { self.small.as_ref()? } else { &self.main };
        let granule = (pa - self.part_base(part)) >> self.shift;
        arena.index().used_at_or_before(u32::try_from(granule).ok()?).map(|(_, record)| record)
    }

    /// Calls `visit` with the record of every span, in ascending order of address.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u32)) {
        self.main.index().for_each_used(|_, record| visit(record));
        if let Some(small) = &self.small {
            small.index().for_each_used(|_, record| visit(record));
        }
    }

    fn part_base(&self, part: Part) -> u64 {
        if part == Part::Small { self.main_end() } else { self.base }
    }

    fn arena(&mut self, part: Part) -> Option<&mut Arena> {
        if part == Part::Small { self.small.as_mut() } else { Some(&mut self.main) }
    }
}

/// Rounds a size up to whole pages; the caller has checked that it is below 2^63.
pub(crate) const fn round_up(size: u64) -> u64 {
    (size + (PAGE - 1)) & !(PAGE - 1)
}
