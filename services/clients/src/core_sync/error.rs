//! Why a core's lock or init state did not do what was asked.

use core::fmt;
use core::time::Duration;

use axon_platform::Errno;
use axon_ports::CoreId;
use axon_ports::desk::Closed;

use super::InitState;
use crate::ClientError;

/// Refusals of locks and init states. Nothing has changed in any of these cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SyncError {
    /// The device has no core with this number.
    CoreOutOfRange {
        /// What was asked for.
        core: u32,
        /// Cores of the device.
        cores: u32,
        /// EINVAL for locks, E2BIG for init states (specification 05 §8.4).
        errno: Errno,
    },
    /// The device has the core, but its configuration leaves it out.
    CoreAbsent {
        /// Which.
        core: CoreId,
    },
    /// The lock was held until the limit.
    LockBusy {
        /// Which core's.
        core: CoreId,
        /// A writer was wanted, else a reader.
        writer: bool,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The core carries another model, or the model of another client.
    OtherModel {
        /// Which core.
        core: CoreId,
    },
    /// There is no reader to leave.
    NotReading {
        /// Which core.
        core: CoreId,
    },
    /// There is no writer to downgrade.
    NotWriting {
        /// Which core.
        core: CoreId,
    },
    /// Another client's initialisation did not end within the limit.
    InitTimeout {
        /// Which core.
        core: CoreId,
        /// State in which the limit found it.
        state: InitState,
    },
    /// The initialisation is no longer the caller's: the core was reset.
    InitLost {
        /// Which core.
        core: CoreId,
        /// State now.
        state: InitState,
    },
    /// The client closed while the call waited.
    Cancelled,
    /// The client is closing, closed or revoked.
    NotAttached,
    /// The device was removed.
    Removed,
}

impl SyncError {
    /// The number the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            SyncError::CoreOutOfRange { errno, .. } => *errno,
            SyncError::CoreAbsent { .. }
            | SyncError::NotReading { .. }
            | SyncError::NotWriting { .. } => Errno::EINVAL,
            SyncError::LockBusy { .. } => Errno::EBUSY,
            SyncError::OtherModel { .. } => Errno::ENOENT,
            SyncError::InitTimeout { .. } => Errno::ETIMEDOUT,
            // assumed: a ticket from before a reset is stale, like every object of that kind.
            SyncError::InitLost { .. } => Errno::ESTALE,
            SyncError::Cancelled => Errno::ECANCELED,
            SyncError::NotAttached => Errno::EACCES,
            SyncError::Removed => Errno::ENODEV,
        }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncError::CoreOutOfRange { core, cores, .. } => {
                write!(f, "there is no core {core}: the device has {cores}")
            }
            SyncError::CoreAbsent { core } => write!(f, "{core} is not in the device's core map"),
            SyncError::LockBusy { core, writer, waited } => {
                let wanted = if *writer { "writing" } else { "reading" };
                write!(f, "{core} was not free for {wanted} within {waited:?}")
            }
            SyncError::OtherModel { core } => {
                write!(f, "{core} does not carry this model of this client")
            }
            SyncError::NotReading { core } => write!(f, "{core} has no reader to leave"),
            SyncError::NotWriting { core } => write!(f, "{core} has no writer to downgrade"),
            SyncError::InitTimeout { core, state } => {
                write!(f, "{core} is still {state}: its initialiser did not finish in time")
            }
            SyncError::InitLost { core, state } => {
                write!(f, "the initialisation of {core} was ended by a reset; it is {state}")
            }
            SyncError::Cancelled => f.write_str("the client closed while the call waited"),
            SyncError::NotAttached => f.write_str("the client is not attached to the device"),
            SyncError::Removed => f.write_str("the device was removed"),
        }
    }
}

impl core::error::Error for SyncError {}

impl From<ClientError> for SyncError {
    /// What the attach gate said.
    fn from(error: ClientError) -> Self {
        if error == ClientError::DeviceGone { SyncError::Removed } else { SyncError::NotAttached }
    }
}

impl From<Closed> for SyncError {
    fn from(Closed: Closed) -> Self {
        SyncError::Removed
    }
}
