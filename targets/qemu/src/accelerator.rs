//! What executes guest instructions, and whether KVM can be trusted with it.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::guest::EXIT_PORT;
use crate::session::Event;
use crate::{Error, Qemu, Session};

/// Time the probe gets, QEMU's start included.
const PROBE_TIME: Duration = Duration::from_secs(2);

/// What the probe hands to the exit port, and QEMU's exit code for it.
const PROBE_VALUE: u8 = 0x10;
const PROBE_CODE: i32 = ((PROBE_VALUE as i32) << 1) | 1;

/// Size of the smallest firmware QEMU loads.
const FIRMWARE_BYTES: usize = 64 << 10;

/// What executes guest instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Translation; works everywhere.
    Tcg,
    /// The processor.
    Kvm,
}

impl Accelerator {
    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Accelerator::Tcg => "tcg",
            Accelerator::Kvm => "kvm",
        }
    }

    /// KVM where a small machine runs on it from start to end, else TCG. There are systems with a
    /// `/dev/kvm` that opens and yet runs no foreign guest.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Start`], [`Error::Interrupted`].
    pub fn best(qemu: &Qemu, session: &mut Session) -> Result<Accelerator, Error> {
        if File::options().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Accelerator::Tcg);
        }
        let works = probe(Accelerator::Kvm, qemu, session)?;
        if !works {
            session.progress.step("KVM is there but runs no guest here: taking TCG");
        }
        Ok(if works { Accelerator::Kvm } else { Accelerator::Tcg })
    }
}

/// Whether a machine without an operating system reaches its end.
fn probe(accelerator: Accelerator, qemu: &Qemu, session: &mut Session) -> Result<bool, Error> {
    let path = session.scratch()?.join("probe");
    fs::write(&path, firmware()).map_err(Error::file("write", &path))?;
    let mut command = qemu.command();
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.args(["-machine", "q35", "-cpu", "max", "-m", "32M"]);
    command.args(["-accel", accelerator.name()]).arg("-bios").arg(&path);
    command.args(["-device", &format!("isa-debug-exit,iobase={EXIT_PORT:#x},iosize=0x04")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (process, _) = session.spawn(&mut command)?;
    let deadline = Instant::now() + PROBE_TIME;
    while session.ended(process).is_none() {
        match session.next(Some(deadline)) {
            Some(Event::Signal(signal)) => return Err(Error::Interrupted { signal }),
            Some(_) => {}
            None => session.stop(process, deadline, drop),
        }
    }
    Ok(session.ended(process).and_then(|status| status.code()) == Some(PROBE_CODE))
}

/// Firmware that does nothing but end the machine.
fn firmware() -> Vec<u8> {
    /// Where the processor starts, counted from the end.
    const RESET_VECTOR: usize = 16;
    let mut image = vec![0xf4; FIRMWARE_BYTES];
    let [low, high] = EXIT_PORT.to_le_bytes();
    // mov dx, PORT; mov eax, VALUE; out dx, eax; hlt
    let code = [0xba, low, high, 0x66, 0xb8, PROBE_VALUE, 0, 0, 0, 0x66, 0xef, 0xf4];
    let start = FIRMWARE_BYTES - RESET_VECTOR;
    image[start..start + code.len()].copy_from_slice(&code);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firmware_fits_behind_the_reset_vector() {
        let image = firmware();
        assert_eq!(image.len(), FIRMWARE_BYTES);
        assert_eq!(image[FIRMWARE_BYTES - 16], 0xba);
        assert_eq!(image[FIRMWARE_BYTES - 5], 0xf4);
    }
}
