//! Why a client was not let in.

use core::fmt;

use axon_platform::Errno;
use axon_ports::{ClientSlot, MemoryError};

use crate::gates::{Command, GateError, Grant};

/// Refusals of the control plane. Nothing has changed in any of these cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// All attach slots of the device are taken, or still being cleaned up.
    TooManyClients,
    /// The device is INVALID: its last reset failed.
    DeviceFailed,
    /// The device was removed.
    DeviceGone,
    /// The client is closing, closed or revoked.
    NotAttached,
    /// The client was not given what the call needs.
    NoGrant {
        /// What is missing.
        grant: Grant,
    },
    /// The info lane does not have the command.
    NotOnThisLane {
        /// Which.
        command: Command,
    },
    /// No client id is left.
    NoIds,
    /// The memory service did not take the client.
    Memory(MemoryError),
}

impl ClientError {
    /// The number the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            ClientError::TooManyClients => Errno::EBUSY,
            ClientError::DeviceFailed => Errno::EINVAL,
            ClientError::DeviceGone => Errno::ENODEV,
            ClientError::NotAttached => Errno::EACCES,
            ClientError::NoGrant { grant } => GateError::NoGrant { grant: *grant }.errno(),
            ClientError::NotOnThisLane { .. } => Errno::EINVAL,
            ClientError::NoIds => Errno::EMFILE,
            ClientError::Memory(error) => error.errno(),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::TooManyClients => {
                write!(f, "all {} attach slots of the device are in use", ClientSlot::COUNT)
            }
            ClientError::DeviceFailed => {
                f.write_str("the device is INVALID: its last reset failed; try `reset`")
            }
            ClientError::DeviceGone => f.write_str("the device was removed"),
            ClientError::NotAttached => f.write_str("the client is not attached to the device"),
            ClientError::NoGrant { grant } => GateError::NoGrant { grant: *grant }.fmt(f),
            ClientError::NotOnThisLane { command } => {
                GateError::NotOnThisLane { command: *command }.fmt(f)
            }
            ClientError::NoIds => f.write_str("no client id is left"),
            ClientError::Memory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ClientError {}

impl From<MemoryError> for ClientError {
    fn from(error: MemoryError) -> Self {
        ClientError::Memory(error)
    }
}
