//! Why cores were not reserved.

use core::fmt;

use axon_platform::Errno;
use axon_ports::desk::Closed;

/// Refusals of a reservation. Nothing is owned that was not owned before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReservationError {
    /// Zero cores were asked for.
    NoCores,
    /// The range is empty, or an end of it lies behind the last core.
    BadRange {
        /// First core, from the device's first.
        start: u32,
        /// Last core, from the device's first.
        end: u32,
    },
    /// There is no run of free cores in the range that is long enough.
    NoRun {
        /// Cores asked for.
        asked: u32,
        /// Longest free run in the range.
        longest: u32,
    },
    /// The client would own more cores than it may.
    Quota {
        /// Cores asked for.
        asked: u32,
        /// Cores that it may still reserve.
        left: u32,
    },
    /// There is no memory to count another client.
    NoRecords,
    /// The reservation task has ended.
    Stopped,
}

impl ReservationError {
    /// The number the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            ReservationError::NoCores | ReservationError::BadRange { .. } => Errno::EINVAL,
            ReservationError::NoRun { .. } | ReservationError::Quota { .. } => Errno::EBUSY,
            ReservationError::NoRecords => Errno::ENOMEM,
            ReservationError::Stopped => Errno::ECANCELED,
        }
    }

    /// How many cores could have been had: `max_available` of the command.
    pub const fn available(&self) -> u32 {
        match self {
            ReservationError::NoRun { longest, .. } => *longest,
            ReservationError::Quota { left, .. } => *left,
            _ => 0,
        }
    }
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReservationError::NoCores => f.write_str("a reservation needs at least one core"),
            ReservationError::BadRange { start, end } => {
                write!(f, "there are no cores {start} to {end} from this device on")
            }
            ReservationError::NoRun { asked, longest } => {
                write!(f, "no {asked} free cores in a row; the longest free run has {longest}")
            }
            ReservationError::Quota { asked, left } => {
                write!(f, "{asked} cores are more than the {left} this client may still reserve")
            }
            ReservationError::NoRecords => f.write_str("no memory to count another client"),
            ReservationError::Stopped => f.write_str("the reservation task has ended"),
        }
    }
}

impl core::error::Error for ReservationError {}

impl From<Closed> for ReservationError {
    fn from(Closed: Closed) -> Self {
        ReservationError::Stopped
    }
}
