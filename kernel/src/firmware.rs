//! What the ACPI tables say: where PCI configuration space, the I/O APIC and the HPET are.
//!
//! A machine without tables, or with wrong ones, is not an error: configuration space is then
//! reached through ports, the clock measured against the PIT, the console polled.

use core::ptr::NonNull;

use acpi::madt::{Madt, MadtEntry};
use acpi::mcfg::Mcfg;
use acpi::{AcpiHandler, AcpiTables, HpetInfo, PhysicalMapping};
use heapless::Vec;

use crate::memory::paging;

/// A range of buses whose configuration space is mapped into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigRegion {
    /// PCI segment group.
    pub segment: u16,
    /// First bus.
    pub first_bus: u8,
    /// Last bus.
    pub last_bus: u8,
    /// Physical address of the first bus's space.
    pub address: u64,
}

/// An I/O APIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoApic {
    /// Physical address of its registers.
    pub address: u64,
    /// Number of its first interrupt line.
    pub first_line: u32,
}

/// An interrupt line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its global number.
    pub number: u32,
    /// Polarity.
    pub active_low: bool,
    /// Level-triggered, else edge-triggered.
    pub level_triggered: bool,
}

/// What the tables say.
#[derive(Debug, Default)]
pub struct Firmware {
    /// Configuration space in memory.
    pub config_regions: Vec<ConfigRegion, 8>,
    /// The I/O APIC that the serial port's line leads to, and the line.
    pub serial: Option<(IoApic, Line)>,
    /// Physical address of the HPET.
    pub hpet: Option<u64>,
}

impl Firmware {
    /// Reads the tables below the root pointer at `rsdp`.
    pub fn read(rsdp: Option<u64>, serial_irq: u8) -> Firmware {
        let mut firmware = Firmware::default();
        let Some(rsdp) = rsdp else { return firmware };
        // SAFETY: the address is the loader's; the handler maps what the tables name, and checksums
        // are checked before a table is believed.
        let tables = match unsafe { AcpiTables::from_rsdp(Direct, rsdp as usize) } {
            Ok(tables) => tables,
            Err(error) => {
                log::warn!("the ACPI tables are not usable: {error:?}");
                return firmware;
            }
        };
        if let Ok(table) = tables.find_table::<Mcfg>() {
            for entry in table.entries() {
                let region = ConfigRegion {
                    segment: entry.pci_segment_group,
                    first_bus: entry.bus_number_start,
                    last_bus: entry.bus_number_end,
                    address: entry.base_address,
                };
                let _ = firmware.config_regions.push(region);
            }
        }
        if let Ok(table) = tables.find_table::<Madt>() {
            firmware.serial = serial_line(&table, serial_irq);
        }
        firmware.hpet = HpetInfo::new(&tables).ok().map(|info| info.base_address as u64);
        firmware
    }
}

/// The line of a legacy interrupt, and the I/O APIC with the highest first line that is not above
/// it.
fn serial_line(table: &PhysicalMapping<Direct, Madt>, irq: u8) -> Option<(IoApic, Line)> {
    let mut line = Line { number: u32::from(irq), active_low: false, level_triggered: false };
    for entry in table.get().entries() {
        if let MadtEntry::InterruptSourceOverride(entry) = entry
            && entry.irq == irq
        {
            // Polarity and trigger: 3 is the opposite of what the legacy bus has.
            line.number = entry.global_system_interrupt;
            line.active_low = entry.flags & 0b11 == 0b11;
            line.level_triggered = entry.flags >> 2 & 0b11 == 0b11;
        }
    }
    let mut found: Option<IoApic> = None;
    for entry in table.get().entries() {
        if let MadtEntry::IoApic(entry) = entry {
            let apic = IoApic {
                address: u64::from(entry.io_apic_address),
                first_line: entry.global_system_interrupt_base,
            };
            if apic.first_line <= line.number
                && found.is_none_or(|best| best.first_line < apic.first_line)
            {
                found = Some(apic);
            }
        }
    }
    found.map(|apic| (apic, line))
}

/// Tables are read where they lie; what the memory map did not name is mapped first and stays.
#[derive(Clone, Copy, Debug)]
struct Direct;

impl AcpiHandler for Direct {
    unsafe fn map_physical_region<T>(
        &self,
        physical_address: usize,
        size: usize,
    ) -> PhysicalMapping<Self, T> {
        let mapped = paging::map_firmware(physical_address as u64, size as u64);
        let Some(start) = NonNull::new(physical_address as *mut T).filter(|_| mapped.is_ok())
        else {
            crate::fatal::unfit("an ACPI table lies outside the mappable memory")
        };
        // SAFETY: the region is mapped at its physical address for good.
        unsafe { PhysicalMapping::new(physical_address, start, size, size, *self) }
    }

    fn unmap_physical_region<T>(_region: &PhysicalMapping<Self, T>) {}
}
