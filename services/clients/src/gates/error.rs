//! Why a gate did not open.

use core::fmt;

use axon_platform::Errno;

use super::{Command, Grant};

/// Refusals of the gates. Nothing has happened in any of these cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GateError {
    /// The word is no command, or a size that the command does not have.
    UnknownCommand {
        /// The word.
        word: u32,
    },
    /// The lane does not have the command.
    NotOnThisLane {
        /// Which.
        command: Command,
    },
    /// The handle holds no live attach reference.
    NotAttached {
        /// What was asked for.
        command: Command,
    },
    /// The client was not given what it needs.
    NoGrant {
        /// What is missing.
        grant: Grant,
    },
    /// What the call names belongs to another client.
    NotOwner,
    /// The call writes into a core that the caller has not claimed.
    CoreNotClaimed {
        /// Another client has claimed it.
        claimed: bool,
    },
    /// The device is INVALID: its last reset failed.
    DeviceFailed,
    /// The last reset of the core failed.
    CoreDown,
    /// Device or core is in reset and the call does not wait.
    InReset,
}

impl GateError {
    /// EACCES where a gate was not passed, EPERM where a right is missing, EINVAL for what is not a
    /// command here, EIO for dead hardware, EAGAIN for a reset under way.
    pub const fn errno(&self) -> Errno {
        match self {
            GateError::UnknownCommand { .. } | GateError::NotOnThisLane { .. } => Errno::EINVAL,
            GateError::NotAttached { .. } => Errno::EACCES,
            GateError::NoGrant { grant: Grant::RawDram } => Errno::EPERM,
            GateError::NoGrant { .. } => Errno::EACCES,
            GateError::NotOwner | GateError::CoreNotClaimed { .. } => Errno::EPERM,
            GateError::DeviceFailed | GateError::CoreDown => Errno::EIO,
            GateError::InReset => Errno::EAGAIN,
        }
    }
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateError::UnknownCommand { word } => write!(f, "{word:#010x} is no command"),
            GateError::NotOnThisLane { command } => {
                write!(f, "{command} is not to be had on this lane")
            }
            GateError::NotAttached { command } => {
                write!(f, "{command} needs a client that is attached to the device")
            }
            GateError::NoGrant { grant } => {
                write!(f, "the configuration does not grant {grant} to this client")
            }
            GateError::NotOwner => f.write_str("it belongs to another client"),
            GateError::CoreNotClaimed { claimed: true } => {
                f.write_str("the core is claimed by another client")
            }
            GateError::CoreNotClaimed { claimed: false } => {
                f.write_str("the core is not claimed; reserve it first")
            }
            GateError::DeviceFailed => {
                f.write_str("the device is INVALID: its last reset failed; try `reset`")
            }
            GateError::CoreDown => f.write_str("the last reset of the core failed; try `reset`"),
            GateError::InReset => f.write_str("a reset is under way; try again"),
        }
    }
}

impl core::error::Error for GateError {}
