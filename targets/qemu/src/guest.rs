//! What the launcher and a booted image agree on.
//!
//! | what | how |
//! |---|---|
//! | machine | q35, one vCPU, `-cpu max`, firmware SeaBIOS, no device but those named here |
//! | functions | bus 0, device 1 upwards in the order of `--device`, function 0: `00:01.0`, `00:02.0`, … |
//! | console | first serial port, 0x3f8 |
//! | end of input | byte 0x04 on the console |
//! | command line | words; those that start with `axon.` are the machine's, the rest the application's |
//! | `axon.interactive` | a person sits at the console: prompt and echo wanted |
//! | `axon.icount` | the time-stamp counter counts guest instructions, at 1 GHz |
//! | files | fw_cfg item `opt/axon/NAME`; the script is `opt/axon/script` |
//! | end | a 32-bit write of `code + 0x10` to port 0xf4; see [`Ending`] |
//! | report | one line `axon-report: {json}` on the console; it is not shown |

use std::fmt;
use std::process::ExitStatus;

/// Port of the device that ends the VM.
pub(crate) const EXIT_PORT: u16 = 0xf4;

/// What the image adds to its exit code, so that no code looks like a failure of QEMU itself.
const EXIT_BASE: i32 = 0x10;

/// Exit code of an image that panicked.
const PANIC: i32 = 101;

/// Start of the line that carries the image's report.
pub(crate) const REPORT_MARK: &str = "axon-report: ";

/// Byte that stands for the end of input on the console.
pub(crate) const END_OF_INPUT: u8 = 0x04;

/// How a VM ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The application returned this code, 0 to 99.
    Exited(u8),
    /// The image panicked; the console says where.
    Panicked,
    /// The machine stopped without an exit code: a triple fault, or power was switched off.
    Stopped,
    /// QEMU itself failed.
    QemuFailed(ExitStatus),
    /// Nothing ended the VM in time.
    TimedOut,
    /// This signal ended the launcher.
    Interrupted(i32),
}

impl Ending {
    /// From the way QEMU ended. Its exit code is `(value << 1) | 1` for a value written to the exit
    /// port, 0 for a machine that was reset or switched off.
    pub(crate) fn of_qemu(status: ExitStatus) -> Ending {
        let Some(code) = status.code() else { return Ending::QemuFailed(status) };
        match (code >> 1) - EXIT_BASE {
            _ if code == 0 => Ending::Stopped,
            PANIC if code & 1 == 1 => Ending::Panicked,
            value @ 0..100 if code & 1 == 1 => Ending::Exited(value as u8),
            _ => Ending::QemuFailed(status),
        }
    }

    /// The exit code of `cargo xtask run`.
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Exited(code) => code,
            Ending::Panicked | Ending::Stopped => PANIC as u8,
            Ending::TimedOut => 124,
            Ending::QemuFailed(_) => 125,
            Ending::Interrupted(signal) => 128 | (signal as u8 & 0x7f),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(code) => write!(f, "exit code {code}"),
            Ending::Panicked => f.write_str("the image panicked"),
            Ending::Stopped => f.write_str("the machine stopped without an exit code"),
            Ending::QemuFailed(status) => write!(f, "QEMU failed ({status})"),
            Ending::TimedOut => f.write_str("no end in time"),
            Ending::Interrupted(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn ending(code: i32) -> Ending {
        Ending::of_qemu(ExitStatus::from_raw(code << 8))
    }

    /// As the exit device computes it.
    fn written(value: i32) -> i32 {
        ((value + EXIT_BASE) << 1) | 1
    }

    #[test]
    fn every_code_of_an_application_comes_through() {
        for code in 0..100u8 {
            let qemu = written(code.into());
            assert!(qemu < 256);
            assert_eq!(ending(qemu), Ending::Exited(code));
            assert_eq!(ending(qemu).exit_code(), code);
        }
        assert_eq!(ending(written(PANIC)), Ending::Panicked);
    }

    #[test]
    fn what_no_image_wrote_is_no_success() {
        assert_eq!(ending(0), Ending::Stopped);
        assert_ne!(ending(0).exit_code(), 0);
        for code in [1, 2, 32, 34, written(100)] {
            assert_eq!(ending(code).exit_code(), 125, "{code}");
        }
        let killed = ExitStatus::from_raw(9);
        assert_eq!(Ending::of_qemu(killed).exit_code(), 125);
    }
}
