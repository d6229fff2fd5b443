//! Configuration space: 4 KiB a function through memory (ECAM), or 256 bytes through two ports.

use alloc::sync::Arc;

use axon_platform::Bdf;
use heapless::Vec;
use x86_64::instructions::port::Port;

use crate::firmware::{ConfigRegion, Firmware};
use crate::memory::paging::Rights;
use crate::memory::windows::Mapping;

const ADDRESS_PORT: u16 = 0xcf8;
const DATA_PORT: u16 = 0xcfc;

/// One function's configuration space. A cheap handle.
#[derive(Clone, Debug)]
pub enum Config {
    /// In memory, `base` being its first byte.
    Memory {
        /// Virtual address.
        base: u64,
        /// Keeps it mapped.
        mapping: Arc<Mapping>,
    },
    /// Through ports.
    Ports(Bdf),
}

impl Config {
    /// Reads the 32-bit register at `offset`; all-ones where it cannot be reached.
    pub fn read32(&self, offset: u16) -> u32 {
        if !offset.is_multiple_of(4) || offset > self.last() {
            return u32::MAX;
        }
        // SAFETY: inside the function's space; reading configuration touches no memory of ours.
        unsafe {
            match self {
                Config::Memory { base, .. } => {
                    ((base + u64::from(offset)) as *const u32).read_volatile()
                }
                Config::Ports(bdf) => {
                    select(*bdf, offset);
                    Port::new(DATA_PORT).read()
                }
            }
        }
    }

    /// Writes the 32-bit register at `offset`; ignored where it cannot be reached.
    pub fn write32(&self, offset: u16, value: u32) {
        if !offset.is_multiple_of(4) || offset > self.last() {
            return;
        }
        // SAFETY: inside the function's space. What a device does once it is told to is the
        // driver's to answer for: it hands out the addresses.
        unsafe {
            match self {
                Config::Memory { base, .. } => {
                    ((base + u64::from(offset)) as *mut u32).write_volatile(value);
                }
                Config::Ports(bdf) => {
                    select(*bdf, offset);
                    Port::new(DATA_PORT).write(value);
                }
            }
        }
    }

    /// Writes 16 bits at an even `offset`, and nothing beside them.
    pub fn write16(&self, offset: u16, value: u16) {
        if !offset.is_multiple_of(2) || offset & !3 > self.last() {
            return;
        }
        // SAFETY: as in `write32`.
        unsafe {
            match self {
                Config::Memory { base, .. } => {
                    ((base + u64::from(offset)) as *mut u16).write_volatile(value);
                }
                Config::Ports(bdf) => {
                    select(*bdf, offset & !3);
                    Port::new(DATA_PORT + offset % 4).write(value);
                }
            }
        }
    }

    /// Offset of the last register.
    fn last(&self) -> u16 {
        match self {
            Config::Memory { .. } => 4092,
            Config::Ports(_) => 252,
        }
    }
}

/// # Safety
/// Changes which register the data port stands for, and nothing else.
unsafe fn select(bdf: Bdf, offset: u16) {
    let address = 1 << 31
        | u32::from(bdf.bus) << 16
        | u32::from(bdf.device) << 11
        | u32::from(bdf.function) << 8
        | u32::from(offset);
    // SAFETY: forwarded.
    unsafe { Port::new(ADDRESS_PORT).write(address) };
}

/// Where the configuration space of every bus is.
pub struct Access {
    regions: Vec<(ConfigRegion, Arc<Mapping>), 8>,
}

impl Access {
    /// Maps the regions that the firmware names; those that cannot be mapped are left out.
    pub fn new(firmware: &Firmware) -> Access {
        let mut regions = Vec::new();
        for region in &firmware.config_regions {
            let buses = u64::from(region.last_bus.saturating_sub(region.first_bus)) + 1;
            match Mapping::new(region.address, buses << 20, Rights::Uncached) {
                Ok(mapping) => {
                    let _ = regions.push((*region, mapping));
                }
                Err(error) => log::warn!("configuration space of {region:x?}: {error}"),
            }
        }
        Access { regions }
    }

    /// Segment, first and last bus of each region; bus 0 to 255 where only ports lead to it.
    pub fn ranges(&self) -> Vec<(u16, u8, u8), 8> {
        let of =
            |(region, _): &(ConfigRegion, _)| (region.segment, region.first_bus, region.last_bus);
        let mut ranges: Vec<_, 8> = self.regions.iter().map(of).collect();
        if ranges.is_empty() {
            let _ = ranges.push((0, 0, 255));
        }
        ranges
    }

    /// The configuration space of `bdf`; `None` for a bus that nothing leads to.
    pub fn config(&self, bdf: Bdf) -> Option<Config> {
        let holds = |region: &ConfigRegion| {
            region.segment == bdf.segment && (region.first_bus..=region.last_bus).contains(&bdf.bus)
        };
        match self.regions.iter().find(|(region, _)| holds(region)) {
            Some((region, mapping)) => {
                let offset = u64::from(bdf.bus - region.first_bus) << 20
                    | u64::from(bdf.device) << 15
                    | u64::from(bdf.function) << 12;
                Some(Config::Memory { base: mapping.start() + offset, mapping: mapping.clone() })
            }
            None if self.regions.is_empty() && bdf.segment == 0 => Some(Config::Ports(bdf)),
            None => None,
        }
    }
}
