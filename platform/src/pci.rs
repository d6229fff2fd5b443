//! One PCI function as a driver sees it.

use core::fmt;

use crate::{Errno, MmioWindow};

/// Segment, bus, device and function number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bdf {
    /// PCI segment group.
    pub segment: u16,
    /// Bus number.
    pub bus: u8,
    /// Device number, below 32.
    pub device: u8,
    /// Function number, below 8.
    pub function: u8,
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segment != 0 {
            write!(f, "{:04x}:", self.segment)?;
        }
        write!(f, "{:02x}:{:02x}.{:x}", self.bus, self.device, self.function)
    }
}

/// A memory BAR that firmware has assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarInfo {
    /// Bus address; 0 where firmware assigned none.
    pub address: u64,
    /// Length in bytes, a power of two.
    pub len_bytes: u64,
    /// Prefetchable memory.
    pub prefetchable: bool,
    /// 64-bit BAR (takes two slots).
    pub is_64bit: bool,
}

/// How the CPU may cache a mapped BAR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caching {
    /// Register windows.
    Uncached,
    /// Memory windows; uncached where the machine has no write combining.
    WriteCombining,
}

/// Why a BAR could not be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// The function has no such memory BAR, or its length is 0.
    Absent,
    /// Firmware assigned no address to it.
    Unassigned,
    /// The address lies outside what the machine can map.
    OutOfReach,
    /// No memory for page tables.
    NoMemory,
}

impl MapError {
    /// [`Errno::ENODEV`], or [`Errno::ENOMEM`] for page tables.
    pub const fn errno(self) -> Errno {
        match self {
            MapError::NoMemory => Errno::ENOMEM,
            _ => Errno::ENODEV,
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MapError::Absent => "the function has no such memory BAR",
            MapError::Unassigned => "firmware assigned no address to the BAR",
            MapError::OutOfReach => "the BAR lies outside the mappable address space",
            MapError::NoMemory => "no memory for page tables",
        })
    }
}

impl core::error::Error for MapError {}

/// One PCI function. Clones name the same function.
pub trait PciFunction: Clone + Send + Sync + 'static {
    /// A mapped BAR of this function.
    type Window: MmioWindow;

    /// Where the function sits.
    fn bdf(&self) -> Bdf;

    /// Reads a 32-bit configuration register; `offset` is a multiple of 4 below 4096.
    ///
    /// All-ones where the offset is not reachable or the function is gone.
    fn config_read32(&self, offset: u16) -> u32;

    /// Writes a 32-bit configuration register; ignored where the offset is not reachable.
    fn config_write32(&self, offset: u16, value: u32);

    /// Writes 16 bits at an even `offset` without touching the other half of its word.
    ///
    /// The status register shares a word with the command register and clears bits where ones are
    /// written, so command bits are changed through this call only.
    fn config_write16(&self, offset: u16, value: u16);

    /// Memory BAR `index` (0 to 5) as firmware left it; `None` where there is none.
    fn bar(&self, index: u8) -> Option<BarInfo>;

    /// Maps the whole of memory BAR `index`.
    ///
    /// # Errors
    /// [`MapError`]; nothing is left mapped.
    fn map_bar(&self, index: u8, caching: Caching) -> Result<Self::Window, MapError>;
}
