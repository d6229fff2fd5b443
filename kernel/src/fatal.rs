//! The end of a machine that cannot go on: says why on the console and ends the virtual machine
//! with a value of [`exit`].

use core::fmt::Write;
use core::panic::PanicInfo;

use crate::{exit, serial};

/// Writes straight to the serial port, every line behind `# `.
struct Report;

impl Write for Report {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for part in text.split_inclusive('\n') {
            serial::write(part.as_bytes());
            if part.ends_with('\n') {
                serial::write(b"# ");
            }
        }
        Ok(())
    }
}

/// Ends the machine after a panic.
pub fn panic(info: &PanicInfo<'_>) -> ! {
    let _ = writeln!(Report, "\n{info}");
    exit::machine(exit::PANIC)
}

/// Ends the machine because it lacks something the kernel cannot do without.
pub fn unfit(what: &str) -> ! {
    let _ = writeln!(Report, "\naxon cannot run on this machine: {what}");
    exit::machine(exit::UNFIT)
}
