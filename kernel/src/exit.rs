//! How the virtual machine ends, and what the launcher reads from it.
//!
//! QEMU's `isa-debug-exit` device at port [`PORT`] (four bytes wide) turns a value `v` into the
//! process exit status `(v << 1) | 1`. axon writes
//!
//! | end | value | QEMU exits with |
//! |---|---|---|
//! | the application ended with code `c`, 0 to 99 | `0x10 + c` | `33 + 2·c` |
//! | panic | [`PANIC`] | 17 |
//! | processor exception | [`EXCEPTION`] | 19 |
//! | the machine lacks something the kernel cannot do without | [`UNFIT`] | 21 |
//!
//! so the launcher takes an odd status of at least 33 as `(status - 33) / 2`, and everything else
//! as a failure: QEMU's own failures are 1. A code above 99 ends as 99.
//!
//! Without the device the processor halts for good, interrupts off.

use x86_64::instructions::port::Port;
use x86_64::instructions::{hlt, interrupts};

/// I/O port of the device (`-device isa-debug-exit,iobase=0xf4,iosize=4`).
pub const PORT: u16 = 0xf4;

/// Added to an application's exit code.
pub const APPLICATION: u32 = 0x10;
/// Value after a panic.
pub const PANIC: u32 = 0x08;
/// Value after a processor exception.
pub const EXCEPTION: u32 = 0x09;
/// Value where the machine is not fit to run on.
pub const UNFIT: u32 = 0x0a;

/// Ends the machine with the application's exit code.
pub fn application(code: u8) -> ! {
    machine(APPLICATION + u32::from(code.min(99)))
}

/// Ends the machine with a raw value of the table above.
pub fn machine(value: u32) -> ! {
    crate::serial::flush();
    // SAFETY: the port is the exit device's or nobody's; nothing runs after the write that could
    // depend on what it did.
    unsafe { Port::new(PORT).write(value) };
    loop {
        interrupts::disable();
        hlt();
    }
}
