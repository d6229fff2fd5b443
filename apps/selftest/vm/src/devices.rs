//! Checks of the bus, of mapped BARs, and of what the launcher hands over. Those that need a device
//! pass without it, and say so in the log.

use alloc::format;

use axon_kernel::Machine;
use axon_kernel::pci::Function;
use axon_kernel::processor;
use axon_platform::{Caching, MapError, MmioWindow, PciFunction, Platform};

use crate::checks::{Outcome, equal, holds};

/// QEMU's educational device (`-device edu`).
const EDU: u32 = 0x11e8_1234;
/// QEMU's shared memory (`-device ivshmem-plain`).
const SHARED_MEMORY: u32 = 0x1110_1af4;

pub fn functions(machine: Machine) -> Outcome {
    let functions = machine.functions();
    holds("there is a host bridge", functions.first().is_some_and(|f| f.bdf().device == 0))?;
    holds("in bus order", functions.is_sorted_by_key(|function| function.bdf()))?;
    for function in &functions {
        log::debug!("{} {:08x}", function.bdf(), function.config_read32(0));
        holds("it answers", function.config_read32(0) & 0xffff != 0xffff)?;
        equal("unaligned offset", function.config_read32(2), u32::MAX)?;
        equal("BAR 6", function.bar(6), None)?;
    }
    Ok(())
}

pub fn edu(machine: Machine) -> Outcome {
    let Some(function) = find(machine, EDU) else { return Ok(()) };
    let bar = function.bar(0).ok_or("no BAR 0")?;
    equal("length", bar.len_bytes, 1 << 20)?;
    equal("a BAR that is not there", function.map_bar(1, Caching::Uncached).err(), {
        Some(MapError::Absent)
    })?;
    let command = function.config_read32(4) as u16;
    function.config_write16(4, command | 2);
    let window = function.map_bar(0, Caching::Uncached).map_err(|error| format!("{error}"))?;
    equal("identification", window.read32(0) & 0xff, 0xed)?;
    window.write32(4, 0x1234_5678);
    equal("inverted", window.read32(4), !0x1234_5678)?;
    equal("behind the end", window.read32(1 << 20), u32::MAX)?;
    equal("unaligned", window.read32(2), u32::MAX)?;
    let mut bytes = [0; 3];
    holds("bytes", window.read_bytes(4, &mut bytes))?;
    equal("bytes", bytes, [0x87, 0xa9, 0xcb])?;
    holds("range", !window.read_bytes((1 << 20) - 2, &mut bytes))
}

pub fn shared_memory(machine: Machine) -> Outcome {
    let Some(function) = find(machine, SHARED_MEMORY) else { return Ok(()) };
    let bar = function.bar(2).ok_or("no BAR 2")?;
    let command = function.config_read32(4) as u16;
    function.config_write16(4, command | 2);
    let free = machine.free_dma_bytes();
    let before = machine.cycles();
    let window = function.map_bar(2, Caching::WriteCombining).map_err(|e| format!("{e}"))?;
    log::info!(
        "BAR 2 of {:#x} bytes at {:#x}: mapped in {} cycles, {} bytes of tables",
        bar.len_bytes,
        bar.address,
        machine.cycles() - before,
        free - machine.free_dma_bytes()
    );
    // A few levels; without pages of 1 GiB one table for each GiB.
    let tables = if processor::has_gigabyte_pages() { 4 } else { 4 + (bar.len_bytes >> 30) };
    holds("tables", free - machine.free_dma_bytes() <= 4096 * tables)?;
    for offset in [0, 5, bar.len_bytes / 2 + 3, bar.len_bytes - 100] {
        let data: [u8; 100] = core::array::from_fn(|index| index as u8 ^ offset as u8);
        holds("write", window.write_bytes(offset, &data))?;
        machine.write_barrier();
        let mut back = [0; 100];
        holds("read", window.read_bytes(offset, &mut back))?;
        equal("contents", back, data)?;
    }
    drop(window);
    equal("tables came back", machine.free_dma_bytes(), free)
}

pub fn launcher(machine: Machine) -> Outcome {
    equal("a file that is not there", machine.file("no-such-file"), None)?;
    if let Some(script) = machine.file("script") {
        log::info!("script: {} bytes {:?}", script.len(), alloc::string::String::from_utf8(script));
    }
    // Whoever hands these over fills them with the remainders of 251.
    for name in ["large", "initrd"] {
        if let Some(file) = machine.file(name) {
            holds(name, file.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8))?;
            log::info!("{name}: {} bytes", file.len());
        }
    }
    log::info!("product {:?}, arguments {:?}", machine.product_name(), machine.arguments());
    Ok(())
}

fn find(machine: Machine, id: u32) -> Option<Function> {
    let found = machine.functions().into_iter().find(|function| function.config_read32(0) == id);
    if found.is_none() {
        log::info!("no function with id {id:08x}: not checked");
    }
    found
}
