//! Why an election failed, and why a control request was refused.

use core::fmt;

use axon_platform::Errno;
use axon_ports::desk::Closed;

use crate::modes::Mode;
use crate::wires::{PodDevice, Side, WireError};

/// Why an attempt to elect failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ElectionError {
    /// A link or an own device failed.
    Wire {
        /// Whose.
        device: PodDevice,
        /// On which side; `None` for the device itself.
        side: Option<Side>,
        /// How.
        error: WireError,
    },
    /// The device has no serial number yet.
    NoSerial,
    /// The two links of a side lead to different devices.
    LinksDisagree {
        /// Whose links.
        device: PodDevice,
        /// On which side.
        side: Side,
    },
    /// A link leads to a device of another number, or to one that is no primary.
    Miswired {
        /// Whose link.
        device: PodDevice,
        /// On which side.
        side: Side,
        /// What the neighbour told.
        told: u64,
    },
    /// Not all secondaries have vetted their links.
    Secondaries {
        /// How many have.
        good: u8,
    },
    /// The neighbour's election failed.
    NeighbourFailed {
        /// On which side.
        side: Side,
    },
    /// A fault was asked for by configuration.
    Injected,
    /// The deadline has passed.
    TimedOut,
    /// Killed, or a device of it is reset or removed.
    Cancelled,
    /// Election after the load is switched off.
    Skipped,
    /// Not all devices were reset in time, or one of them failed.
    NotReady,
}

impl ElectionError {
    /// The number the Linux driver would have used.
    pub const fn errno(&self) -> Errno {
        match self {
            ElectionError::Wire { error, .. } => error.errno(),
            ElectionError::NoSerial => Errno::EIO,
            ElectionError::LinksDisagree { .. }
            | ElectionError::Miswired { .. }
            | ElectionError::Secondaries { .. }
            | ElectionError::Injected => Errno::EPIPE,
            ElectionError::NeighbourFailed { .. } => Errno::ENODEV,
            ElectionError::TimedOut | ElectionError::NotReady => Errno::ETIMEDOUT,
            ElectionError::Cancelled | ElectionError::Skipped => Errno::ECANCELED,
        }
    }
}

impl fmt::Display for ElectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElectionError::Wire { device, side: Some(side), error } => {
                write!(f, "the {side} neighbour of {device} could not be read: {error}")
            }
            ElectionError::Wire { device, side: None, error } => write!(f, "{device}: {error}"),
            ElectionError::NoSerial => f.write_str("the device has no serial number yet"),
            ElectionError::LinksDisagree { device, side } => {
                write!(f, "the two {side} links of {device} lead to different devices")
            }
            ElectionError::Miswired { device, side, told } => {
                write!(f, "the {side} link of {device} leads to a device that tells {told:#x}")
            }
            ElectionError::Secondaries { good } => {
                write!(f, "only {good} of 15 secondary devices have good links")
            }
            ElectionError::NeighbourFailed { side } => {
                write!(f, "the election of the {side} neighbour failed")
            }
            ElectionError::Injected => f.write_str("a fault was asked for by configuration"),
            ElectionError::TimedOut => f.write_str("the neighbours were not ready in time"),
            ElectionError::Cancelled => f.write_str("the election was cancelled"),
            ElectionError::Skipped => f.write_str("election after the load is switched off"),
            ElectionError::NotReady => f.write_str("not all devices of the node were reset"),
        }
    }
}

impl core::error::Error for ElectionError {}

/// Refusals of a control request. Nothing has changed in any of these cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PodError {
    /// There is no request with this number.
    BadControl {
        /// The number.
        control: u32,
    },
    /// Cores are reserved.
    Reserved {
        /// How many.
        marks: u32,
    },
    /// Not all devices of the node were reset.
    NotAllReset {
        /// How many were.
        done: u8,
    },
    /// An election is running, or has yet to run.
    Electing,
    /// Another mode is set; it stays until no core is reserved.
    OtherModeSet {
        /// Which.
        mode: Mode,
    },
    /// The pod cannot be used in this mode.
    Unsupported {
        /// Which.
        mode: u32,
    },
    /// The pod task has ended.
    Stopped,
}

impl PodError {
    /// The number the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            PodError::BadControl { .. } => Errno::EINVAL,
            PodError::Reserved { .. } | PodError::NotAllReset { .. } => Errno::EAGAIN,
            PodError::Electing => Errno::EBUSY,
            PodError::OtherModeSet { .. } => Errno::EEXIST,
            PodError::Unsupported { .. } => Errno::EOPNOTSUPP,
            PodError::Stopped => Errno::ECANCELED,
        }
    }
}

impl fmt::Display for PodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PodError::BadControl { control } => write!(f, "there is no pod control {control}"),
            PodError::Reserved { marks } => {
                write!(f, "{marks} cores are reserved; an election needs all free")
            }
            PodError::NotAllReset { done } => {
                write!(f, "{done} of 16 devices of the node have been reset")
            }
            PodError::Electing => f.write_str("an election is running or has yet to run"),
            PodError::OtherModeSet { mode } => {
                write!(f, "mode {mode} is set until no core is reserved")
            }
            PodError::Unsupported { mode } => match Mode::from_number(*mode) {
                Some(mode) => write!(f, "the pod cannot be used in mode {mode}"),
                None => write!(f, "there is no mode {mode}"),
            },
            PodError::Stopped => f.write_str("the pod task has ended"),
        }
    }
}

impl core::error::Error for PodError {}

impl From<Closed> for PodError {
    fn from(Closed: Closed) -> Self {
        PodError::Stopped
    }
}
