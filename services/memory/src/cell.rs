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

/// An arena and the address of its first granule.
struct Placed {
    part: Part,
    base: u64,
    arena: Arena,
}

/// One cell.
pub(crate) struct Cell {
    /// Main, and small: without a granule where there is none.
    parts: [Placed; 2],
    shift: u32,
    /// A granule less one.
    round: u64,
    /// Largest request that prefers the small arena; 0 where there is none.
    small_alloc_max: u64,
    /// Bytes of live and draining chunks.
    pub(crate) allocated: u64,
    pub(crate) base: u64,
    /// Bytes of the whole region.
    pub(crate) region_size: u64,
    /// Bytes of the small arena; 0 for none.
    pub(crate) small_size: u64,
    /// Records of the contiguous scratchpads, oldest (highest) first.
    pub(crate) scratchpads: Vec<u32>,
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
        let small = Arena::new(granules(small_size)?, faults)?;
        Ok(Cell {
            parts: [
                Placed { part: Part::Main, base, arena: main },
                Placed { part: Part::Small, base: base + size - small_size, arena: small },
            ],
            shift,
            round: (1 << shift) - 1,
            small_alloc_max: if small_size == 0 { 0 } else { config.small_alloc_max },
            allocated: 0,
            base,
            region_size: size,
            small_size,
            scratchpads: Vec::new(),
            warned: false,
        })
    }

    /// First byte behind the main arena: ceiling of the scratchpads, start of the small arena.
    pub(crate) fn main_end(&self) -> u64 {
        self.parts[1].base
    }

    /// Bytes from the lowest scratchpad to the ceiling.
    pub(crate) fn scratchpad_size(&self) -> u64 {
        match self.scratchpads.is_empty() {
            true => 0,
            false => {
                let frontier = u64::from(self.parts[0].arena.frontier()) << self.shift;
                self.main_end() - (self.base + frontier)
            }
        }
    }

    /// Whether `pa` lies in this cell.
    pub(crate) fn contains(&self, pa: u64) -> bool {
        pa >= self.base && pa - self.base < self.region_size
    }

    /// Bytes free in all, and the longest run.
    pub(crate) fn free(&self) -> (u64, u64) {
        let [main, small] = &self.parts;
        let (main, small) = (&main.arena, &small.arena);
        let free = main.free_granules() + small.free_granules();
        let largest = main.largest().max(small.largest());
        (u64::from(free) << self.shift, u64::from(largest) << self.shift)
    }

    /// Bytes of heap that the arenas' own tables take now.
    pub(crate) fn table_bytes(&self) -> usize {
        self.parts[0].arena.bytes() + self.parts[1].arena.bytes()
    }

    /// Granules of `bytes`.
    #[inline]
    fn granules(&self, bytes: u64) -> u64 {
        (bytes + self.round) >> self.shift
    }

    /// Cuts `bytes`, a multiple of a page, for `record`, from the preferred arena or not at all.
    #[inline(always)]
    pub(crate) fn allocate(
        &mut self,
        bytes: u64,
        record: u32,
        faults: &mut Faults,
    ) -> Result<(u64, Part), ArenaError> {
        let count = self.granules(bytes);
        let small_first = bytes <= self.small_alloc_max;
        let first = &mut self.parts[usize::from(small_first)];
        let start = first.arena.allocate(count, record, faults)?;
        let pa = first.base + (u64::from(start) << self.shift);
        self.allocated += bytes;
        Ok((pa, first.part))
    }

    /// As [`Self::allocate`], with a wish where the span lies.
    pub(crate) fn allocate_placed(
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
        let small_first = bytes <= self.small_alloc_max;
        let first = if small_first { Part::Small } else { Part::Main };
        match self.allocate_in(first, bytes, placement, record, faults) {
            Ok(pa) => Ok((pa, first)),
            Err(ArenaError::Full) => self.allocate_placed_other(bytes, placement, record, faults),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::allocate`], from the arena that is not preferred.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_other(
        &mut self,
        bytes: u64,
        record: u32,
        faults: &mut Faults,
    ) -> Result<(u64, Part), ArenaError> {
        self.allocate_placed_other(bytes, Placement::Anywhere, record, faults)
    }

    fn allocate_placed_other(
        &mut self,
        bytes: u64,
        placement: Placement,
        record: u32,
        faults: &mut Faults,
    ) -> Result<(u64, Part), ArenaError> {
        let other = if bytes <= self.small_alloc_max { Part::Main } else { Part::Small };
        let pa = self.allocate_in(other, bytes, placement, record, faults)?;
        if !self.warned {
            self.warned = true;
            log::warn!("{bytes} bytes at {pa:#x} come from the {other:?} arena");
        }
        Ok((pa, other))
    }

    fn allocate_in(
        &mut self,
        part: Part,
        bytes: u64,
        placement: Placement,
        record: u32,
        faults: &mut Faults,
    ) -> Result<u64, ArenaError> {
        let count = self.granules(bytes);
        let shift = self.shift;
        let placed = self.part(part);
        let start = match placement {
            Placement::Aligned(align) if align > 1 << shift => {
                if !placed.base.is_multiple_of(1 << shift) {
                    return Err(ArenaError::Full);
                }
                let phase = placed.base >> shift;
                placed.arena.allocate_aligned(
                    count as u32,
                    align >> shift,
                    phase,
                    record,
                    faults,
                )?
            }
            _ => placed.arena.allocate(count, record, faults)?,
        };
        let pa = placed.base + (u64::from(start) << shift);
        self.allocated += bytes;
        Ok(pa)
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
        let count = self.granules(bytes);
        let start = self.parts[0].arena.push_down(count as u32, record, faults)?;
        self.scratchpads.push(record);
        self.allocated += bytes;
        Ok(self.base + (u64::from(start) << self.shift))
    }

    /// Takes back the lowest scratchpad.
    pub(crate) fn pull_scratchpad(&mut self, record: u32, bytes: u64) -> Result<(), WrongSpan> {
        if self.scratchpads.last() != Some(&record) {
            return Err(WrongSpan);
        }
        self.parts[0].arena.pull_up((bytes >> self.shift) as u32, record)?;
        self.scratchpads.pop();
        self.allocated -= bytes;
        Ok(())
    }

    /// Takes back `bytes` at `pa`, which `record` holds in `part`.
    #[inline(always)]
    pub(crate) fn release(
        &mut self,
        part: Part,
        pa: u64,
        bytes: u64,
        record: u32,
    ) -> Result<(), WrongSpan> {
        let (shift, count) = (self.shift, self.granules(bytes));
        let placed = self.part(part);
        let start = pa.wrapping_sub(placed.base) >> shift;
        placed.arena.release(start as u32, count as u32, record)?;
        self.allocated -= bytes;
        Ok(())
    }

    /// Undoes [`Self::allocate`].
    pub(crate) fn put_back(
        &mut self,
        part: Part,
        pa: u64,
        bytes: u64,
        record: u32,
    ) -> Result<(), WrongSpan> {
        match part {
            Part::Scratchpad => self.pull_scratchpad(record, bytes),
            _ => self.release(part, pa, bytes, record),
        }
    }

    /// Record of the last span that starts at or before `pa`.
    pub(crate) fn span_at(&mut self, pa: u64) -> Option<u32> {
        let shift = self.shift;
        let placed = &mut self.parts[usize::from(pa >= self.main_end())];
        let granule = u32::try_from((pa - placed.base) >> shift).ok()?;
        placed.arena.span_at(granule).map(|(_, record)| record)
    }

    /// Calls `visit` with the record of every span, in ascending order of address.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u32)) {
        self.parts[0].arena.for_each_used(|_, record| visit(record));
        self.parts[1].arena.for_each_used(|_, record| visit(record));
    }

    #[inline]
    fn part(&mut self, part: Part) -> &mut Placed {
        &mut self.parts[usize::from(part == Part::Small)]
    }
}

/// Rounds a size up to whole pages; the caller has checked that it is below 2^63.
pub(crate) const fn round_up(size: u64) -> u64 {
    (size + (PAGE - 1)) & !(PAGE - 1)
}
