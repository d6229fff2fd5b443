//! Files that the launcher hands over: named items of QEMU's fw_cfg device, and boot modules.
//!
//! The item `opt/axon/NAME` is the file `NAME`; so is a boot module whose command line is `NAME`. A
//! module without a command line, as loaders pass an initial RAM disk, is the file `initrd`.
//! Items are read in one go through the device's DMA interface, or byte by byte where it has none.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::sync::atomic::{Ordering, compiler_fence};

use critical_section::Mutex;
use x86_64::instructions::port::Port;

use crate::boot_info::{BootInfo, Module};

/// Where the launcher's files are among the items of the device.
const FOLDER: &[u8] = b"opt/axon/";

/// Name of a module without one.
const UNNAMED: &str = "initrd";

/// Largest file taken: more is a mistake.
const LIMIT_BYTES: u32 = 256 << 20;

const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
const DMA: u16 = 0x514;

const SIGNATURE: u16 = 0x00;
const FEATURES: u16 = 0x01;
const DIRECTORY: u16 = 0x19;

const ERROR: u32 = 1 << 0;
const READ: u32 = 1 << 1;
const SELECT: u32 = 1 << 3;

static MODULES: Mutex<RefCell<Vec<Module>>> = Mutex::new(RefCell::new(Vec::new()));

/// Remembers the boot modules.
pub fn init(info: &BootInfo) {
    critical_section::with(|section| {
        MODULES.borrow_ref_mut(section).extend(info.modules.iter().cloned());
    });
}

/// The file `name`; `None` where there is none, or no memory for it.
pub fn read(name: &str) -> Option<Vec<u8>> {
    module(name).or_else(|| item(name))
}

fn module(name: &str) -> Option<Vec<u8>> {
    critical_section::with(|section| {
        let modules = MODULES.borrow_ref(section);
        let called = |module: &&Module| match module.name.is_empty() {
            true => name == UNNAMED,
            false => module.name == *name.as_bytes(),
        };
        let module = modules.iter().find(called)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(module.len_bytes).ok()?).ok()?;
        // SAFETY: a module is RAM that was set aside when memory was taken over, mapped at its
        // physical address and written by nobody.
        bytes.extend_from_slice(unsafe {
            core::slice::from_raw_parts(module.start as *const u8, module.len_bytes as usize)
        });
        Some(bytes)
    })
}

fn item(name: &str) -> Option<Vec<u8>> {
    let device = Device::find()?;
    let (key, len) = device.look_up(|item| item.strip_prefix(FOLDER) == Some(name.as_bytes()))?;
    device.read(key, len)
}

/// The fw_cfg device.
struct Device {
    dma: bool,
}

/// What the device's DMA interface reads, big-endian.
#[repr(C, align(16))]
struct Request {
    control: u32,
    len: u32,
    address: u64,
}

impl Device {
    fn find() -> Option<Device> {
        let device = Device { dma: false };
        let mut signature = [0; 4];
        device.read_port(Some(SIGNATURE), &mut signature);
        let mut features = [0; 4];
        device.read_port(Some(FEATURES), &mut features);
        (signature == *b"QEMU").then(|| Device { dma: u32::from_le_bytes(features) & 2 != 0 })
    }

    /// Key and length of the first item whose name `wanted` accepts.
    fn look_up(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<(u16, u32)> {
        const ENTRY_BYTES: u32 = 64;
        let count = self.read(DIRECTORY, 4)?;
        let count = u32::from_be_bytes(count.try_into().ok()?);
        let directory = self.read(DIRECTORY, 4 + count.checked_mul(ENTRY_BYTES)?)?;
        // An entry is: length, key, 2 bytes reserved, name ended by NUL.
        directory.get(4..)?.chunks_exact(ENTRY_BYTES as usize).find_map(|entry| {
            let (len, entry) = entry.split_first_chunk()?;
            let (key, entry) = entry.split_first_chunk()?;
            let name = entry.get(2..)?.split(|&byte| byte == 0).next()?;
            wanted(name).then(|| (u16::from_be_bytes(*key), u32::from_be_bytes(*len)))
        })
    }

    fn read(&self, key: u16, len: u32) -> Option<Vec<u8>> {
        if len > LIMIT_BYTES {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len as usize).ok()?;
        bytes.resize(len as usize, 0);
        if self.dma {
            self.read_dma(key, &mut bytes).then_some(bytes)
        } else {
            self.read_port(Some(key), &mut bytes);
            Some(bytes)
        }
    }

    fn read_dma(&self, key: u16, into: &mut [u8]) -> bool {
        let control = u32::from(key) << 16 | SELECT | READ;
        let mut request = Request {
            control: control.to_be(),
            len: (into.len() as u32).to_be(),
            address: (into.as_mut_ptr() as u64).to_be(),
        };
        let address = &raw mut request as u64;
        // What the device writes behind the compiler's back is read after the fence.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: RAM is mapped at its physical address, so the device writes to `request` and
        // `into` only; both live until it is done, which is when `control` has become 0 or ERROR.
        let control = unsafe {
            Port::new(DMA).write(((address >> 32) as u32).to_be());
            Port::new(DMA + 4).write((address as u32).to_be());
            loop {
                let control = u32::from_be((&raw const request.control).read_volatile());
                if control == 0 || control & ERROR != 0 {
                    break control;
                }
            }
        };
        compiler_fence(Ordering::SeqCst);
        control == 0
    }

    fn read_port(&self, key: Option<u16>, into: &mut [u8]) {
        // SAFETY: the two ports of the device, or nobody's; reading them touches no memory.
        unsafe {
            if let Some(key) = key {
                Port::new(SELECTOR).write(key);
            }
            into.fill_with(|| Port::new(DATA).read());
        }
    }
}
