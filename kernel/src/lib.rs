//! The x86_64 machine under an axon image: from the entry point to a running executor.
//!
//! One processor, one address space, no user mode. A boot path (`axon-boot`) fills a [`BootInfo`]
//! and calls [`start`]; the application sees the machine as [`Machine`].

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod boot_info;
#[cfg(not(test))]
mod exclusion;
pub mod executor;
pub mod exit;
pub mod fatal;
pub mod memory;
pub mod processor;
pub mod serial;

use core::future::Future;

pub use boot_info::BootInfo;

/// The machine this image runs on. Copies are handles on the same one.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    _private: (),
}

/// Brings the machine up and runs `application` on it; the machine ends with its exit code.
///
/// # Safety
/// Called once, by the boot path, on the main stack, interrupts off, with the first GiB mapped at
/// its physical address and a true [`BootInfo`].
pub unsafe fn start<F>(info: &BootInfo, application: impl FnOnce(Machine) -> F + 'static) -> !
where
    F: Future<Output = u8> + 'static,
{
    serial::init();
    let image = memory::layout::image();
    // SAFETY: the caller's promise; in this order, once.
    let tables = unsafe {
        memory::frames::init(info, &image);
        memory::paging::init(info, &image)
    };
    if tables.is_err() {
        fatal::unfit("the memory map has no RAM for page tables");
    }
    let machine = Machine { _private: () };
    executor::run(async move { exit::application(application(machine).await) })
}

impl Machine {
    /// Writes to the console.
    pub fn console_write(&self, bytes: &[u8]) {
        serial::write(bytes);
    }
}
