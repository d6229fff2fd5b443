//! The I/O APIC, as far as one interrupt needs it: the serial port's. The older interrupt
//! controllers are silenced.

use axon_platform::MapError;
use x86_64::instructions::port::Port;

use super::vectors;
use crate::firmware::{IoApic, Line};
use crate::memory::paging::Rights;
use crate::memory::windows::Mapping;

/// Legacy interrupt number of COM1.
pub const SERIAL_IRQ: u8 = 4;

const SELECT: u64 = 0;
const WINDOW: u64 = 0x10;
const REDIRECTION: u32 = 0x10;

/// Masks both 8259 controllers: everything goes through the APICs.
pub fn silence_legacy() {
    // SAFETY: the mask registers of the two controllers; masking stops interrupts and nothing else.
    unsafe {
        Port::new(0x21).write(0xffu8);
        Port::new(0xa1).write(0xffu8);
    }
}

/// Leads `line` to the serial vector of processor `id`.
///
/// # Errors
/// [`MapError`] where the registers cannot be mapped.
pub fn route_serial(apic: &IoApic, line: &Line, id: u32) -> Result<(), MapError> {
    let mapping = Mapping::new(apic.address, 0x20, Rights::Uncached)?;
    let entry = REDIRECTION + 2 * line.number.saturating_sub(apic.first_line);
    let low = u32::from(vectors::SERIAL)
        | u32::from(line.active_low) << 13
        | u32::from(line.level_triggered) << 15;
    // The destination first: writing the low half unmasks the line.
    write(&mapping, entry + 1, id << 24);
    write(&mapping, entry, low);
    Ok(())
}

fn write(mapping: &Mapping, register: u32, value: u32) {
    // SAFETY: the two registers of an I/O APIC, mapped uncached; the interrupt that an entry leads
    // to sets a flag.
    unsafe {
        ((mapping.start() + SELECT) as *mut u32).write_volatile(register);
        ((mapping.start() + WINDOW) as *mut u32).write_volatile(value);
    }
}
