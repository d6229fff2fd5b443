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
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let (process, _) = session.spawn(&mut command)?;
    let deadline = Instant::now() + PROBE_TIME;
    while session.ended(process).is_none() {
        match session.next(Some(deadline)) {
            Some(Event::Signal(signal)) => return Err(Error::Interrupted { signal }),
            // A complaint: QEMU holds the machine for a debugger and would not end.
            Some(Event::ErrorLine(from, _)) if from != process => {}
            Some(Event::ErrorLine(..)) | None => session.stop(process, Instant::now(), drop),
            Some(_) => {}
        }
    }
    Ok(session.ended(process).and_then(|status| status.code()) == Some(PROBE_CODE))
}

/// Firmware that switches on vector registers, uses one, and ends the machine.
///
/// Where a hypervisor without hardware support emulates what a kernel executes, it stops at the
/// first vector instruction. An image has them from its first line.
fn firmware() -> Vec<u8> {
    const HALT: u8 = 0xf4;
    let mut image = vec![HALT; FIRMWARE_BYTES];
    let [low, high] = EXIT_PORT.to_le_bytes();
    let mut place = |from_end: usize, code: &[u8]| {
        let start = FIRMWARE_BYTES - from_end;
        image[start..start + code.len()].copy_from_slice(code);
    };
    place(0x100, &[0x0f, 0x20, 0xe0]); // mov eax, cr4
    place(0x0fd, &[0x66, 0x0d, 0x00, 0x02, 0x00, 0x00]); // or eax, OSFXSR
    place(0x0f7, &[0x0f, 0x22, 0xe0]); // mov cr4, eax
    place(0x0f4, &[0x66, 0x0f, 0x6e, 0xc0]); // movd xmm0, eax
    place(0x0f0, &[0xba, low, high]); // mov dx, EXIT_PORT
    place(0x0ed, &[0x66, 0xb8, PROBE_VALUE, 0x00, 0x00, 0x00]); // mov eax, PROBE_VALUE
    place(0x0e7, &[0x66, 0xef]); // out dx, eax
    // The processor starts 16 bytes before the end.
    place(0x010, &[0xe9, 0x0d, 0xff]); // jmp to the first of these
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_firmware_starts_at_the_reset_vector() {
        let image = firmware();
        assert_eq!(image.len(), FIRMWARE_BYTES);
        let vector = FIRMWARE_BYTES - 16;
        let jump = &image[vector..vector + 3];
        let distance = i16::from_le_bytes([jump[1], jump[2]]);
        let target = vector as i64 + 3 + i64::from(distance);
        assert_eq!(target, FIRMWARE_BYTES as i64 - 0x100);
        assert_eq!(image[target as usize..][..3], [0x0f, 0x20, 0xe0]);
        // Nothing between the instructions, the halt after them.
        assert_eq!(image[FIRMWARE_BYTES - 0xe5], 0xf4);
        assert_eq!(
            image[target as usize..FIRMWARE_BYTES - 0xe5].iter().filter(|b| **b == 0xf4).count(),
            1
        );
    }
}
