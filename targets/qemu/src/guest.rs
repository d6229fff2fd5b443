//! What the launcher and a booted image agree on.
//!
//! | what | how |
//! |---|---|
//! | machine | q35, one vCPU, `-cpu max`, firmware SeaBIOS, no device but those named here |
//! | functions | bus 0, device 1 upwards in the order of `--device`, function 0: `00:01.0`, `00:02.0`, … |
//! | console | first serial port, 0x3f8 |
//! | start of input | nothing is sent before the image printed something, a byte 0x11 at least, which is not shown |
//! | end of input | byte 0x04 on the console |
//! | command line | words; those that start with `axon.` are the machine's, the rest the application's |
//! | `axon.interactive` | a person sits at the console: prompt and echo wanted |
//! | `axon.icount` | the time-stamp counter counts guest instructions, at 1 GHz |
//! | `unit=instructions` | the same for the application: what `Platform::cycles` counts |
//! | files | fw_cfg item `opt/axon/NAME`; the script is `opt/axon/script` |
//! | end | a 32-bit write to port 0xf4: `0x10 + code` of the application, 8 after a panic, 9 after a processor exception, 10 on a machine that is not fit |
//! | report | one line `axon-report: {json}` on the console; it is not shown |

use std::fmt;
use std::process::ExitStatus;

/// Port of the device that ends the VM.
pub(crate) const EXIT_PORT: u16 = 0xf4;

/// What the image adds to the application's exit code before it writes it to the exit port.
const APPLICATION: i32 = 0x10;

/// Exit code of the launcher where the image broke down.
const CRASHED: u8 = 101;

/// Exit code of the launcher where it could not run a VM to its end.
pub(crate) const LAUNCHER_FAILURE: u8 = 125;

/// Exit code of the launcher where its command line is wrong.
pub(crate) const USAGE: u8 = 2;

/// Exit code of the launcher where the VM did not end in time.
const TIMED_OUT: u8 = 124;

/// Start of the line that carries the image's report.
pub(crate) const REPORT_MARK: &str = "axon-report: ";

/// Byte with which an image says that it takes input; it is not shown.
pub(crate) const START_OF_INPUT: u8 = 0x11;

/// Byte that stands for the end of input on the console.
pub(crate) const END_OF_INPUT: u8 = 0x04;

/// How a VM ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The application returned this code, 0 to 99.
    Exited(u8),
    /// The image broke down; the console says where.
    Crashed(Crash),
    /// The kernel found that it cannot run on this machine; the console says why.
    Unfit,
    /// QEMU itself failed.
    QemuFailed(ExitStatus),
    /// Nothing ended the VM in time.
    TimedOut,
    /// This signal ended the launcher.
    Interrupted(i32),
}

/// How an image broke down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// A panic.
    Panic,
    /// A processor exception.
    Exception,
    /// The machine stopped without a word: a triple fault, or power was switched off.
    Silent,
}

impl Ending {
    /// From the way QEMU ended. Its exit code is `(value << 1) | 1` for a value written to the exit
    /// port, 0 for a machine that was reset or switched off.
    pub(crate) fn of_qemu(status: ExitStatus) -> Ending {
        match status.code().map(|code| (code >> 1, code & 1)) {
            Some((0, 0)) => Ending::Crashed(Crash::Silent),
            Some((8, 1)) => Ending::Crashed(Crash::Panic),
            Some((9, 1)) => Ending::Crashed(Crash::Exception),
            Some((10, 1)) => Ending::Unfit,
            Some((value, 1)) if (0..=99).contains(&(value - APPLICATION)) => {
                Ending::Exited((value - APPLICATION) as u8)
            }
            _ => Ending::QemuFailed(status),
        }
    }

    /// The exit code of `cargo xtask run`.
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Exited(code) => code,
            Ending::Crashed(_) => CRASHED,
            Ending::TimedOut => TIMED_OUT,
            Ending::Unfit | Ending::QemuFailed(_) => LAUNCHER_FAILURE,
            Ending::Interrupted(signal) => 128 | (signal as u8 & 0x7f),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(code) => write!(f, "exit code {code}"),
            Ending::Crashed(Crash::Panic) => f.write_str("the image panicked"),
            Ending::Crashed(Crash::Exception) => f.write_str("a processor exception in the image"),
            Ending::Crashed(Crash::Silent) => {
                f.write_str("the machine stopped without an exit code")
            }
            Ending::Unfit => f.write_str("the kernel cannot run on this machine"),
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
    fn written(value: i32) -> Ending {
        let code = (value << 1) | 1;
        assert!(code < 256);
        ending(code)
    }

    #[test]
    fn every_code_of_an_application_comes_through() {
        for code in 0..100u8 {
            let ending = written(APPLICATION + i32::from(code));
            assert_eq!(ending, Ending::Exited(code));
            assert_eq!(ending.exit_code(), code);
        }
    }

    #[test]
    fn crashes_are_told_apart() {
        assert_eq!(written(8), Ending::Crashed(Crash::Panic));
        assert_eq!(written(9), Ending::Crashed(Crash::Exception));
        assert_eq!(written(10), Ending::Unfit);
        assert_eq!(ending(0), Ending::Crashed(Crash::Silent));
    }

    #[test]
    fn what_is_no_exit_of_an_application_is_no_success() {
        for code in (0..256).filter(|code| code & 1 == 0 || *code < 33 || *code > 231) {
            assert!(ending(code).exit_code() >= 100, "{code}");
        }
        let killed = ExitStatus::from_raw(9);
        assert_eq!(Ending::of_qemu(killed), Ending::QemuFailed(killed));
    }
}
