//! What a command that touches hardware does while its device or core is not usable
//! (specification 05 §6).

use axon_ports::reset::{CoreState, DeviceState};

use super::{Command, GateError, Rule};

/// Whether a command may run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Go ahead.
    Run,
    /// Wait until device and core state have settled, then ask again, gate first: the client may
    /// have gone meanwhile.
    Park,
}

impl Command {
    /// Whether the command asks for a reset: accepted in every state, so that a client can try to
    /// recover an INVALID device and requests meet in one batch.
    pub const fn is_reset_request(self) -> bool {
        matches!(self, Command::DeviceReset | Command::NcReset)
    }

    /// Device state, then the state of the core that the call is about, if it is about one.
    ///
    /// # Errors
    /// EIO for an INVALID device or a core that is DOWN.
    pub fn admit(
        self,
        device: DeviceState,
        core: Option<CoreState>,
    ) -> Result<Admission, GateError> {
        let Rule { hardware, .. } = self.rule();
        if !hardware || self.is_reset_request() {
            return Ok(Admission::Run);
        }
        match (device, core) {
            (DeviceState::Invalid, _) => Err(GateError::DeviceFailed),
            (DeviceState::Reset, _) => Ok(Admission::Park),
            (DeviceState::Ready, Some(CoreState::Down)) => Err(GateError::CoreDown),
            (DeviceState::Ready, Some(CoreState::Resetting)) => Ok(Admission::Park),
            (DeviceState::Ready, Some(CoreState::Up) | None) => Ok(Admission::Run),
        }
    }

    /// The same for a call that cannot wait.
    ///
    /// # Errors
    /// As [`Self::admit`], and EAGAIN instead of parking.
    pub fn admit_inline(
        self,
        device: DeviceState,
        core: Option<CoreState>,
    ) -> Result<(), GateError> {
        match self.admit(device, core)? {
            Admission::Run => Ok(()),
            Admission::Park => Err(GateError::InReset),
        }
    }
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::*;
    use crate::gates::COMMANDS;

    const DEVICES: [DeviceState; 3] =
        [DeviceState::Reset, DeviceState::Ready, DeviceState::Invalid];
    const CORES: [Option<CoreState>; 4] =
        [None, Some(CoreState::Up), Some(CoreState::Resetting), Some(CoreState::Down)];

    #[test]
    fn every_command_in_every_device_and_core_state() {
        for command in COMMANDS {
            let exempt =
                !command.rule().hardware || ["DEVICE_RESET", "NC_RESET"].contains(&command.name());
            for device in DEVICES {
                for core in CORES {
                    let dead = device == DeviceState::Invalid
                        || device == DeviceState::Ready && core == Some(CoreState::Down);
                    let busy = device == DeviceState::Reset
                        || device == DeviceState::Ready && core == Some(CoreState::Resetting);
                    let expected = match (exempt, dead, busy) {
                        (true, ..) | (_, false, false) => Ok(Admission::Run),
                        (_, true, _) => Err(Errno::EIO),
                        (_, _, true) => Ok(Admission::Park),
                    };
                    let seen = command.admit(device, core).map_err(|e| e.errno());
                    assert_eq!(seen, expected, "{command} {device:?} {core:?}");
                }
            }
        }
    }

    #[test]
    fn st_e61_an_inline_call_on_a_resetting_core_says_try_again_and_an_awaiting_one_waits() {
        let resetting = Some(CoreState::Resetting);
        let refused =
            Command::SemaphoreRead.admit_inline(DeviceState::Ready, resetting).unwrap_err();
        assert_eq!(refused.errno(), Errno::EAGAIN);
        let copy = Command::MemCopy;
        assert_eq!(copy.admit(DeviceState::Ready, resetting), Ok(Admission::Park));
        assert_eq!(copy.admit(DeviceState::Ready, Some(CoreState::Up)), Ok(Admission::Run));
    }
}
