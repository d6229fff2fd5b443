//! How the virtual machine ends, and what the launcher reads from it.
//!
//! QEMU's `isa-debug-exit` device at port [`PORT`] (four bytes wide) turns a value `v` into the
//! process exit status `(v << 1) | 1`. axon writes
//!
//! | end | value | QEMU exits with |
//! |---|---|---|
//! | the application ended with code `c`, 0 to 99 | `0x10 + c` | `33 + 2·c` |
//! | panic | 8 | 17 |
//! | processor exception | 9 | 19 |
//! | the machine lacks something the kernel cannot do without | 10 | 21 |
//!
//! so the launcher takes an odd status of at least 33 as `(status - 33) / 2`. QEMU's own failures
//! are 1. An application's code above 99 ends as 99.
//!
//! Without the device the processor halts for good, interrupts off.

use x86_64::instructions::port::Port;
use x86_64::instructions::{hlt, interrupts};

use crate::console::serial;

/// I/O port of the device (`-device isa-debug-exit,iobase=0xf4,iosize=4`).
pub const PORT: u16 = 0xf4;

/// Added to an application's exit code.
pub const APPLICATION: u32 = 0x10;

/// An end that no application asked for; the console says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Fatal {
    /// A panic.
    Panic = 8,
    /// A processor exception.
    Exception = 9,
    /// The machine lacks something the kernel cannot do without.
    Unfit = 10,
}

/// Ends the machine with the application's exit code.
pub fn application(code: u8) -> ! {
    machine(APPLICATION + u32::from(code.min(99)))
}

/// Ends the machine because it cannot go on.
pub fn fatal(why: Fatal) -> ! {
    machine(why as u32)
}

fn machine(value: u32) -> ! {
    serial::flush();
    // SAFETY: the port is the exit device's or nobody's; nothing runs after the write that could
    // depend on what it did.
    unsafe { Port::new(PORT).write(value) };
    loop {
        interrupts::disable();
        hlt();
    }
}
