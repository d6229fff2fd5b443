//! How the virtual machine ends, and what the launcher reads from it.
//!
//! QEMU's `isa-debug-exit` device at port [`PORT`] (four bytes wide) turns a value `v` into the
//! process exit status `(v << 1) | 1`. axon writes [`BASE`]` + code`:
//!
//! | end | code | QEMU exits with |
//! |---|---|---|
//! | the application ended with code `c`, 0 to 99 | `c` | `33 + 2·c` |
//! | panic, processor exception, or a machine that axon cannot run on | [`FATAL`] | 235 |
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

/// Added to every code.
pub const BASE: u32 = 0x10;

/// Code of an end that no application asked for; the console says why.
pub const FATAL: u32 = 101;

/// Ends the machine with the application's exit code.
pub fn application(code: u8) -> ! {
    machine(u32::from(code.min(99)))
}

/// Ends the machine because it cannot go on.
pub fn fatal() -> ! {
    machine(FATAL)
}

fn machine(code: u32) -> ! {
    serial::flush();
    // SAFETY: the port is the exit device's or nobody's; nothing runs after the write that could
    // depend on what it did.
    unsafe { Port::new(PORT).write(BASE + code) };
    loop {
        interrupts::disable();
        hlt();
    }
}
