//! What a boot path tells the kernel: memory map, command line, modules, the way to the ACPI
//! tables. Filled by `axon-boot`, copied out of the loader's memory.

use heapless::Vec;

/// Bytes of text from the loader, without a terminator.
pub type Text<const BYTES: usize> = Vec<u8, BYTES>;

/// What a region of the physical address space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionKind {
    /// Memory for anybody.
    Ram,
    /// Memory with tables of the firmware: to be read, not to be used.
    Firmware,
    /// Not memory, or not ours.
    Reserved,
}

/// One entry of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// First physical address.
    pub start: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// What it is.
    pub kind: RegionKind,
}

/// A file that the loader put into memory beside the image.
#[derive(Clone, Debug)]
pub struct Module {
    /// First physical address.
    pub start: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Its command line, which serves as its name.
    pub name: Text<64>,
}

impl Module {
    /// A module without a name.
    pub const fn new(start: u64, len_bytes: u64) -> Self {
        Module { start, len_bytes, name: Text::new() }
    }
}

/// Everything known at the entry of the kernel.
pub struct BootInfo {
    /// Time-stamp counter at the first instruction of the image.
    pub entry_tsc: u64,
    /// The memory map, in the loader's order.
    pub memory: Vec<Region, 64>,
    /// The command line; the part that fits.
    pub command_line: Text<2048>,
    /// Modules; the part that fits.
    pub modules: Vec<Module, 8>,
    /// Physical address of the ACPI root pointer.
    pub rsdp: Option<u64>,
    /// Entries of the memory map or modules that were too many.
    pub dropped: u32,
}

impl BootInfo {
    /// Nothing known yet but the time.
    pub const fn new(entry_tsc: u64) -> Self {
        BootInfo {
            entry_tsc,
            memory: Vec::new(),
            command_line: Text::new(),
            modules: Vec::new(),
            rsdp: None,
            dropped: 0,
        }
    }

    /// Adds an entry of the memory map; counts it where there is no room.
    pub fn add_region(&mut self, region: Region) {
        if self.memory.push(region).is_err() {
            self.dropped += 1;
        }
    }

    /// Adds a module; counts it where there is no room.
    pub fn add_module(&mut self, module: Module) {
        if self.modules.push(module).is_err() {
            self.dropped += 1;
        }
    }
}
