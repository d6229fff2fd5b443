//! The page tables of the machine: one address space, every page with no more rights than it needs.
//!
//! | addresses | what | rights |
//! |---|---|---|
//! | page 0 | nothing: a null pointer faults | – |
//! | up to 1 MiB | firmware tables | read |
//! | the image | code / constants / data, guard pages left out | execute / read / write |
//! | RAM | at its physical address, in the largest pages | write |
//! | upper half | device memory, see [`windows`](super::windows) | write |
//!
//! No page is both writable and executable; [`audit`] counts.

use core::cell::RefCell;
use core::ptr::NonNull;

use critical_section::Mutex;
use x86_64::PhysAddr;
use x86_64::registers::control::{Cr3, Cr3Flags};
use x86_64::registers::model_specific::Msr;
use x86_64::structures::paging::page_table::PageTableEntry;
use x86_64::structures::paging::{PageTable, PageTableFlags as Flags, PhysFrame};

use super::layout::Image;
use super::runs::PAGE_BYTES;
use super::{frames, stacks};
use crate::boot_info::{BootInfo, RegionKind};

const LARGE_BYTES: u64 = 2 << 20;

/// End of the memory of old, where firmware leaves tables.
const FIRMWARE_END: u64 = 1 << 20;

/// What may be done with a page, and how it is cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Read and execute.
    Execute,
    /// Read and write, uncached: registers.
    Uncached,
    /// Read and write, stores combined: device memory.
    WriteCombining,
}

impl Rights {
    /// The memory type is named by the two cache bits: 00 is write-back, 01 write-combining (see
    /// [`init`]), 11 uncached.
    fn flags(self) -> Flags {
        Flags::PRESENT
            | match self {
                Rights::Read => Flags::NO_EXECUTE,
                Rights::Write => Flags::NO_EXECUTE | Flags::WRITABLE,
                Rights::Execute => Flags::empty(),
                Rights::Uncached => {
                    Flags::NO_EXECUTE | Flags::WRITABLE | Flags::NO_CACHE | Flags::WRITE_THROUGH
                }
                Rights::WriteCombining => {
                    Flags::NO_EXECUTE | Flags::WRITABLE | Flags::WRITE_THROUGH
                }
            }
    }
}

/// No memory for a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoTables;

struct Tables {
    root: Option<NonNull<PageTable>>,
    gigabyte_pages: bool,
}

// SAFETY: the tables are reached through this one record only.
unsafe impl Send for Tables {}

static TABLES: Mutex<RefCell<Tables>> =
    Mutex::new(RefCell::new(Tables { root: None, gigabyte_pages: false }));

fn with<R>(act: impl FnOnce(&mut Tables) -> R) -> R {
    critical_section::with(|section| act(&mut TABLES.borrow_ref_mut(section)))
}

/// Builds the tables of the table above and switches to them.
///
/// # Errors
/// [`NoTables`], still on the tables of the entry code.
///
/// # Safety
/// Called once, after [`frames::init`], on the tables of the entry code.
pub unsafe fn init(info: &BootInfo, image: &Image) -> Result<(), NoTables> {
    // SAFETY: the entry code mapped everything with cache bits 00, whose type stays the same.
    unsafe { set_memory_types() };
    with(|tables| {
        tables.gigabyte_pages = crate::processor::has_gigabyte_pages();
        tables.root = Some(new_table().ok_or(NoTables)?);
        tables.map(PAGE_BYTES, PAGE_BYTES, FIRMWARE_END - PAGE_BYTES, Rights::Read)?;
        tables.map_image(image)?;
        for region in &info.memory {
            if region.kind != RegionKind::Reserved {
                let end = region.start.saturating_add(region.len_bytes);
                tables.map_ram(region.start, end, image)?;
            }
        }
        if let Some(root) = tables.root {
            let frame = PhysFrame::containing_address(PhysAddr::new(root.as_ptr() as u64));
            // SAFETY: the new tables map the running code, its stack and all RAM where they are.
            unsafe { Cr3::write(frame, Cr3Flags::empty()) };
        }
        Ok(())
    })
}

/// Gives the cache bits of a page table entry their meaning: entry 1 becomes write-combining.
///
/// # Safety
/// No mapping in use has the write-through bit alone.
unsafe fn set_memory_types() {
    // The values at reset, with write-combining (1) instead of write-through (4) in entry 1.
    const TYPES: u64 = 0x0007_0406_0007_0106;
    // SAFETY: forwarded.
    unsafe { Msr::new(0x277).write(TYPES) };
}

/// Maps device memory at an address of the upper half.
///
/// # Errors
/// [`NoTables`]; call [`unmap_slot`] for what was mapped.
pub fn map_device(virt: u64, phys: u64, len: u64, rights: Rights) -> Result<(), NoTables> {
    with(|tables| tables.map(virt, phys, len, rights))
}

/// Takes away everything under one entry of the top table, and its tables.
///
/// # Safety
/// Nobody uses addresses in that range any more.
pub unsafe fn unmap_slot(index: usize) {
    with(|tables| {
        let Some(root) = tables.root_mut() else { return };
        let entry = &mut root[index];
        if let Some(child) = child(entry) {
            entry.set_unused();
            // SAFETY: the entry was the only way to the child.
            unsafe { free_tables(child, 3) };
        }
    });
    // Reloading the root forgets every cached translation: no page is global.
    let (frame, flags) = Cr3::read();
    // SAFETY: the same root; what was unmapped is used by nobody.
    unsafe { Cr3::write(frame, flags) };
}

/// Makes memory that the memory map does not name readable at its physical address: tables of the
/// firmware lie in reserved regions.
///
/// # Errors
/// [`NoTables`], also for addresses that cannot be mapped so.
pub fn map_firmware(phys: u64, len: u64) -> Result<(), NoTables> {
    let start = phys & !(PAGE_BYTES - 1);
    let end = phys.checked_add(len).ok_or(NoTables)?.next_multiple_of(PAGE_BYTES);
    if start == 0 || end > 1 << 46 {
        return Err(NoTables);
    }
    with(|tables| {
        (start..end).step_by(PAGE_BYTES as usize).try_for_each(|page| match tables.lookup(page) {
            Some(_) => Ok(()),
            None => tables.map(page, page, PAGE_BYTES, Rights::Read),
        })
    })
}

/// The physical address behind `virt`, and the flags of its page.
pub fn translate(virt: u64) -> Option<(u64, Flags)> {
    with(|tables| tables.lookup(virt))
}

/// Whether `virt` is mapped; `None` while the tables are being changed. For the fatal paths, which may
/// have interrupted anything.
pub fn is_mapped(virt: u64) -> Option<bool> {
    critical_section::with(|section| {
        let mut tables = TABLES.borrow(section).try_borrow_mut().ok()?;
        Some(tables.lookup(virt).is_some())
    })
}

impl Tables {
    fn root_mut(&mut self) -> Option<&mut PageTable> {
        // SAFETY: the root is a table of ours, reached through this record only.
        self.root.map(|mut root| unsafe { root.as_mut() })
    }

    fn map_image(&mut self, image: &Image) -> Result<(), NoTables> {
        let Image { text, constants, data, end, .. } = *image;
        self.map(text, text, constants - text, Rights::Execute)?;
        self.map(constants, constants, data - constants, Rights::Read)?;
        let mut guards = stacks::guards().map(|(_, address)| address);
        guards.sort_unstable();
        let mut start = data;
        // What is left of the last 2 MiB is RAM.
        for stop in guards.into_iter().chain([end.next_multiple_of(LARGE_BYTES)]) {
            self.map(start, start, stop - start, Rights::Write)?;
            start = stop + PAGE_BYTES;
        }
        Ok(())
    }

    /// RAM behind the image, rounded outwards to 2 MiB so that it takes few tables.
    fn map_ram(&mut self, start: u64, end: u64, image: &Image) -> Result<(), NoTables> {
        let start = (start & !(LARGE_BYTES - 1)).max(image.end.next_multiple_of(LARGE_BYTES));
        let end = end.min(1 << 46).next_multiple_of(LARGE_BYTES);
        if start >= end {
            return Ok(());
        }
        self.map(start, start, end - start, Rights::Write)
    }

    fn map(&mut self, virt: u64, phys: u64, len: u64, rights: Rights) -> Result<(), NoTables> {
        let gigabyte_pages = self.gigabyte_pages;
        let root = self.root_mut().ok_or(NoTables)?;
        fill(root, 4, gigabyte_pages, virt, phys, len, rights.flags())
    }

    fn lookup(&mut self, virt: u64) -> Option<(u64, Flags)> {
        let mut table = self.root?;
        for level in (1..=4).rev() {
            // SAFETY: a table of ours; only read here.
            let entry = unsafe { &table.as_ref()[index(virt, level)] };
            let flags = entry.flags();
            if !flags.contains(Flags::PRESENT) {
                return None;
            }
            if level == 1 || flags.contains(Flags::HUGE_PAGE) {
                let inside = span(level) - 1;
                return Some((entry.addr().as_u64() & !inside | virt & inside, flags));
            }
            table = child(entry)?;
        }
        None
    }
}

/// Bytes that one entry of a table at `level` (1 to 4) covers.
fn span(level: u32) -> u64 {
    PAGE_BYTES << (9 * (level - 1))
}

fn index(virt: u64, level: u32) -> usize {
    (virt / span(level)) as usize % 512
}

fn child(entry: &PageTableEntry) -> Option<NonNull<PageTable>> {
    let flags = entry.flags();
    if !flags.contains(Flags::PRESENT) || flags.contains(Flags::HUGE_PAGE) {
        return None;
    }
    NonNull::new(entry.addr().as_u64() as *mut PageTable)
}

fn new_table() -> Option<NonNull<PageTable>> {
    frames::take(1, 1).map(NonNull::cast)
}

/// Fills entries of `table` for `[virt, virt + len)`, with the largest pages that fit. What is
/// mapped by a larger page already stays as it is.
fn fill(
    table: &mut PageTable,
    level: u32,
    gigabyte_pages: bool,
    mut virt: u64,
    mut phys: u64,
    mut len: u64,
    flags: Flags,
) -> Result<(), NoTables> {
    if level == 1 {
        let pages = (len / PAGE_BYTES) as usize;
        for entry in table.iter_mut().skip(index(virt, 1)).take(pages) {
            entry.set_addr(PhysAddr::new_truncate(phys), flags);
            phys += PAGE_BYTES;
        }
        return Ok(());
    }
    let span = span(level);
    while len > 0 {
        let here = len.min(span - virt % span);
        let entry = &mut table[index(virt, level)];
        let whole = here == span && phys.is_multiple_of(span);
        if entry.is_unused() && whole && (level == 2 || level == 3 && gigabyte_pages) {
            entry.set_addr(PhysAddr::new_truncate(phys), flags | Flags::HUGE_PAGE);
        } else if !entry.flags().contains(Flags::HUGE_PAGE) {
            if entry.is_unused() {
                let new = PhysAddr::new_truncate(new_table().ok_or(NoTables)?.as_ptr() as u64);
                entry.set_addr(new, Flags::PRESENT | Flags::WRITABLE);
            }
            let mut below = child(entry).ok_or(NoTables)?;
            // SAFETY: a table of ours, reached through its parent, which is borrowed.
            let below = unsafe { below.as_mut() };
            fill(below, level - 1, gigabyte_pages, virt, phys, here, flags)?;
        }
        virt = virt.wrapping_add(here);
        phys += here;
        len -= here;
    }
    Ok(())
}

/// # Safety
/// No entry leads to `table` any more.
unsafe fn free_tables(table: NonNull<PageTable>, level: u32) {
    if level > 1 {
        // SAFETY: a table of ours that nobody else reaches.
        for entry in unsafe { table.as_ref() }.iter() {
            if let Some(child) = child(entry) {
                // SAFETY: its only parent is `table`, which goes.
                unsafe { free_tables(child, level - 1) };
            }
        }
    }
    // SAFETY: came from `new_table`; nobody reaches it any more.
    unsafe { frames::give(table.cast(), 1) };
}

/// What [`audit`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// Pages of any size that can be written.
    pub writable: u32,
    /// Pages that can be executed.
    pub executable: u32,
    /// Pages that can be both: must be 0.
    pub both: u32,
}

/// Counts the rights of every mapped page.
pub fn audit() -> Audit {
    let mut found = Audit::default();
    with(|tables| {
        if let Some(root) = tables.root {
            count(root, 4, &mut found);
        }
    });
    found
}

fn count(table: NonNull<PageTable>, level: u32, found: &mut Audit) {
    // SAFETY: a table of ours; only read here.
    for entry in unsafe { table.as_ref() }.iter() {
        let flags = entry.flags();
        match child(entry) {
            Some(child) if level > 1 => count(child, level - 1, found),
            _ if flags.contains(Flags::PRESENT) => {
                let writable = flags.contains(Flags::WRITABLE);
                let executable = !flags.contains(Flags::NO_EXECUTE);
                found.writable += u32::from(writable);
                found.executable += u32::from(executable);
                found.both += u32::from(writable && executable);
            }
            _ => {}
        }
    }
}
