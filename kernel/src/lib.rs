//! The x86_64 machine under an axon image: from the entry point to a running executor.
//!
//! One processor, one address space, no user mode. A boot path (`axon-boot`) fills a [`BootInfo`]
//! and calls [`start`]; the application sees the machine as [`Machine`], which implements
//! [`axon_platform::Platform`].
//!
//! | module | what it owns |
//! |---|---|
//! | [`memory`] | RAM, page tables, heap, windows onto device memory, stacks |
//! | [`interrupts`] | segments, vectors, local and I/O APIC |
//! | [`time`] | clock, timers, idling |
//! | [`executor`] | the loop that polls tasks |
//! | [`pci`] | the bus, functions, mapped BARs |
//! | [`console`] | serial port, text log, input |
//! | [`firmware`], [`smbios`] | what ACPI and SMBIOS tables say |
//! | [`files`], [`options`] | what the launcher hands over |
//! | [`processor`] | CPUID and a few instructions by name |
//! | [`exit`], [`fatal`] | how the machine ends |

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod boot_info;
pub mod console;
#[cfg(not(test))]
mod exclusion;
pub mod executor;
pub mod exit;
pub mod fatal;
pub mod files;
pub mod firmware;
pub mod interrupts;
pub mod machine;
pub mod memory;
pub mod options;
pub mod pci;
pub mod processor;
pub mod smbios;
pub mod time;

use core::future::Future;

pub use boot_info::BootInfo;
use firmware::Firmware;
use interrupts::local::LocalApic;
use interrupts::{io, segments, vectors};
pub use machine::Machine;
use options::Options;
use time::{clock, idle, rate};

/// Brings the machine up and runs `application` on it; the machine ends with its exit code.
///
/// # Safety
/// Called once, by the boot path, on the main stack, interrupts off, with the first GiB mapped at
/// its physical address and a true [`BootInfo`].
pub unsafe fn start<F>(info: &BootInfo, application: impl FnOnce(Machine) -> F + 'static) -> !
where
    F: Future<Output: Into<u8>> + 'static,
{
    clock::init(info.entry_tsc);
    console::serial::init();
    // SAFETY: the caller's promise; in this order, once.
    unsafe {
        segments::init();
        vectors::init();
        take_memory(info);
    }
    let options = Options::read(&info.command_line);
    console::text_log::init(options.record, options.echo);
    for word in &options.unknown {
        log::warn!("unknown word {word} on the command line");
    }
    if info.dropped > 0 {
        log::warn!("{} entries of the boot information were too many", info.dropped);
    }
    let firmware = Firmware::read(info.rsdp, io::SERIAL_IRQ);
    // SAFETY: once, after the vectors.
    unsafe { take_interrupts(&firmware, options.instruction_count) };
    files::init(info);
    let functions = pci::bus::walk(&pci::config::Access::new(&firmware));
    log::debug!("{} PCI functions, {} bytes of RAM", functions.len(), memory::frames::free_bytes());
    let machine = Machine::new(options, functions);
    executor::run(async move {
        clock::mark_main();
        exit::application(application(machine).await.into())
    })
}

/// # Safety
/// Called once, on the tables of the entry code.
unsafe fn take_memory(info: &BootInfo) {
    let image = memory::layout::image();
    // SAFETY: forwarded; the caller of `start` vouches for the memory map.
    let tables = unsafe {
        memory::frames::init(info, &image);
        memory::paging::init(info, &image)
    };
    if tables.is_err() {
        fatal::unfit("the memory map has no RAM for page tables");
    }
}

/// Sets the clock's rate, the timer that ends a halt, and the console's interrupt.
///
/// # Safety
/// Called once, after [`vectors::init`].
unsafe fn take_interrupts(firmware: &Firmware, instruction_count: bool) {
    io::silence_legacy();
    // SAFETY: forwarded.
    let Ok(apic) = (unsafe { LocalApic::new() }) else {
        fatal::unfit("the local APIC cannot be mapped")
    };
    let hertz = if instruction_count {
        rate::INSTRUCTIONS
    } else {
        rate::stated().or_else(|| rate::measure(firmware.hpet).ok()).unwrap_or_default()
    };
    if hertz == 0 {
        fatal::unfit("the time-stamp counter's rate is not known and cannot be measured");
    }
    clock::set_rate(hertz);
    let timer_hertz = match apic.has_deadline() {
        true => hertz,
        false if instruction_count => rate::INSTRUCTIONS,
        false => rate::measure_timer(&apic, hertz),
    };
    log::debug!("time-stamp counter at {hertz} Hz, timer at {timer_hertz} Hz");
    let routed =
        firmware.serial.map(|(io_apic, line)| io::route_serial(&io_apic, &line, apic.id()));
    match routed {
        Some(Ok(())) => console::input::has_interrupt(),
        Some(Err(error)) => log::warn!("the console is polled: its interrupt controller: {error}"),
        None => log::debug!("the console is polled: no interrupt controller is known"),
    }
    idle::init(apic, timer_hertz, hertz);
}
