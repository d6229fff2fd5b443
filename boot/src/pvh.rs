//! The start information of a PVH loader, checked and copied into a
//! [`BootInfo`].
//!
//! Layouts are those of `hvm_start_info` version 1. The memory they lie in belongs to the loader
//! and is not protected from later use, so everything is copied.

use axon_kernel::boot_info::{BootInfo, Module, Region, RegionKind};

const MAGIC: u32 = 0x336e_c578;

/// Bytes the entry code has mapped: the start information must lie below.
const MAPPED: u64 = 1 << 30;

/// `hvm_start_info`, version 1.
#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    module_count: u32,
    modules: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_count: u32,
    reserved: u32,
}

/// `hvm_modlist_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ModuleEntry {
    address: u64,
    size: u64,
    command_line: u64,
    reserved: u64,
}

/// `hvm_memmap_table_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryEntry {
    address: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

/// Reads what the loader left at `start_info`.
///
/// A loader that left something else, or something out of reach, yields a map without memory,
/// which the kernel reports.
///
/// # Safety
/// Called before the kernel starts, with the value of `ebx` at entry; the first GiB is mapped at
/// its physical address.
pub unsafe fn read(start_info: u64, entry_tsc: u64) -> BootInfo {
    let mut info = BootInfo::new(entry_tsc);
    // SAFETY: forwarded; `load` checks the range, and any bits are a valid structure.
    let Some(start) = (unsafe { load::<StartInfo>(start_info) }) else { return info };
    if start.magic != MAGIC || start.version < 1 {
        return info;
    }
    info.rsdp = (start.rsdp != 0).then_some(start.rsdp);
    copy_text(start.command_line, &mut info.command_line);
    for index in 0..u64::from(start.memory_map_count) {
        let at = start.memory_map.saturating_add(index * size_of::<MemoryEntry>() as u64);
        // SAFETY: as above.
        let Some(entry) = (unsafe { load::<MemoryEntry>(at) }) else { break };
        info.add_region(Region {
            start: entry.address,
            len_bytes: entry.size,
            kind: kind(entry.kind),
        });
    }
    for index in 0..u64::from(start.module_count) {
        let at = start.modules.saturating_add(index * size_of::<ModuleEntry>() as u64);
        // SAFETY: as above.
        let Some(entry) = (unsafe { load::<ModuleEntry>(at) }) else { break };
        let mut module = Module::new(entry.address, entry.size);
        copy_text(entry.command_line, &mut module.name);
        info.add_module(module);
    }
    info
}

fn kind(number: u32) -> RegionKind {
    match number {
        1 => RegionKind::Ram,
        3 | 4 => RegionKind::Firmware,
        _ => RegionKind::Reserved,
    }
}

/// # Safety
/// `T` is plain data that any bits are valid for; memory below [`MAPPED`] is mapped at its
/// physical address.
unsafe fn load<T: Copy>(address: u64) -> Option<T> {
    let end = address.checked_add(size_of::<T>() as u64)?;
    if address == 0 || end > MAPPED {
        return None;
    }
    // SAFETY: inside the mapped range, not null, and read without any demand on alignment.
    Some(unsafe { (address as *const T).read_unaligned() })
}

/// Copies a NUL-terminated text, cut where `into` is full.
fn copy_text<const BYTES: usize>(address: u64, into: &mut axon_kernel::boot_info::Text<BYTES>) {
    if address == 0 {
        return;
    }
    for at in address.. {
        // SAFETY: a byte is plain data; `load` checks the range.
        match unsafe { load::<u8>(at) } {
            None | Some(0) => break,
            Some(byte) => {
                if into.push(byte).is_err() {
                    break;
                }
            }
        }
    }
}
