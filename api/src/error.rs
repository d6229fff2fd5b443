//! Why a call of the application was refused or failed (specification 08 §8.10.4).

use core::fmt;
use core::mem::discriminant;

use axon_clients::ClientError;
use axon_clients::core_sync::SyncError;
use axon_clients::gates::GateError;
use axon_clients::reservation::ReservationError;
use axon_neuron::ProbeError;
use axon_platform::{Errno, OutOfBounds, SpawnError};
use axon_pod::PodError;
use axon_ports::{ClientSlot, Location, MemoryError};

/// One enum for everything. [`Error::errno`] is the number the Linux driver would have returned;
/// comparing two errors compares their variants only.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The handle is unknown, freed or forged.
    BadHandle {
        /// The handle as given.
        handle: u64,
    },
    /// A value that no call may carry; also size 0 of a transfer.
    InvalidArgument {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: u64,
    },
    /// A range that does not fit into what it is taken from. Nothing was moved.
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes there are.
        limit: u64,
    },
    /// An index or count above a fixed limit.
    TooBig {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: u64,
        /// Valid numbers are below this.
        limit: u64,
    },
    /// The client is closed or closing.
    NotAttached,
    /// All 16 attach slots of the device are in use.
    TooManyClients,
    /// Taken by somebody else, or a limit of requests is reached.
    Busy {
        /// What.
        what: &'static str,
    },
    /// No run of free memory is long enough.
    NoMemory {
        /// Where.
        location: Location,
        /// Bytes asked for.
        asked: u64,
        /// Bytes free in all.
        free: u64,
        /// Longest free run.
        largest: u64,
    },
    /// No memory for records, tasks or ids.
    NoRecords {
        /// With which number.
        errno: Errno,
        /// What there is no room for.
        what: &'static str,
    },
    /// No device, client, request or queue of this number.
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// Its number.
        value: u64,
        /// ENOENT, or the number this command has for it.
        errno: Errno,
    },
    /// No chunk contains this address.
    NoSuchAddress {
        /// The address as given.
        address: u64,
    },
    /// The object belongs to another client.
    WrongOwner {
        /// Its handle.
        handle: u64,
    },
    /// It is there already, with other parameters.
    Exists {
        /// What.
        what: &'static str,
    },
    /// Records of a notification queue were lost; it starts anew with what comes next.
    NotificationsLost(axon_neuron::Error),
    /// Registered before the last reset of its core.
    Stale(axon_neuron::Error),
    /// The call would have had to wait.
    Again {
        /// For what.
        what: &'static str,
    },
    /// Not supported by this generation, firmware or build.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// A deadline passed; the destination of a copy is undefined.
    Timeout(axon_neuron::Error),
    /// Ended by a reset, a client drop or a removal; the destination of a copy is undefined.
    Cancelled(axon_neuron::Error),
    /// The device failed or aborted: engine, queue and cause are inside.
    Device(axon_neuron::Error),
    /// The device is INVALID: its last whole-device reset failed. EINVAL for an open, else EIO.
    DeviceFailed {
        /// With which number.
        errno: Errno,
    },
    /// The device answers all-ones.
    DeviceGone,
    /// The device was removed.
    Removed,
    /// The function was refused at bring-up, and why.
    Refused(ProbeError),
    /// Telemetry refused.
    Telemetry(axon_telemetry::Error),
    /// Any other refusal of the driver.
    Driver(axon_neuron::Error),
    /// A core's model lock or init state did not do what was asked.
    Core(SyncError),
    /// Cores were not claimed: what could have been had is inside.
    Claim(ReservationError),
    /// The caller has not the right to do this: a grant, or the claim of a core, is missing.
    Gate(GateError),
    /// The pod did not do what was asked.
    Pod(PodError),
}

impl Error {
    /// The number that the Linux driver would have returned.
    pub fn errno(&self) -> Errno {
        match self {
            Error::BadHandle { .. } | Error::InvalidArgument { .. } | Error::OutOfRange { .. } => {
                Errno::EINVAL
            }
            Error::TooBig { .. } => Errno::E2BIG,
            Error::NotAttached => Errno::EACCES,
            Error::TooManyClients | Error::Busy { .. } => Errno::EBUSY,
            Error::NoMemory { .. } | Error::NoSuchAddress { .. } => Errno::ENOMEM,
            Error::NoRecords { errno, .. }
            | Error::NotFound { errno, .. }
            | Error::DeviceFailed { errno } => *errno,
            Error::WrongOwner { .. } => Errno::EPERM,
            Error::Again { .. } => Errno::EAGAIN,
            Error::Unsupported { .. } => Errno::EOPNOTSUPP,
            Error::Exists { .. } => Errno::EEXIST,
            Error::DeviceGone => Errno::EIO,
            Error::Removed => Errno::ENODEV,
            Error::Refused(error) => error.errno(),
            Error::Telemetry(error) => error.errno(),
            Error::Core(error) => error.errno(),
            Error::Claim(error) => error.errno(),
            Error::Gate(error) => error.errno(),
            Error::Pod(error) => error.errno(),
            Error::Stale(error)
            | Error::NotificationsLost(error)
            | Error::Timeout(error)
            | Error::Cancelled(error)
            | Error::Device(error)
            | Error::Driver(error) => error.errno(),
        }
    }

    /// Size 0 of a transfer: refused everywhere before the bounds are looked at (03 §8).
    pub(crate) const EMPTY: Error = Error::InvalidArgument { what: "transfer size", value: 0 };
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        discriminant(self) == discriminant(other)
    }
}

impl Eq for Error {}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Invalid { what, value } => Error::InvalidArgument { what, value },
            MemoryError::NoMemory { location, asked, free, largest } => {
                Error::NoMemory { location, asked, free, largest }
            }
            MemoryError::NoRecords => {
                Error::NoRecords { errno: Errno::ENOMEM, what: "records of the memory service" }
            }
            MemoryError::BadHandle { handle } => Error::BadHandle { handle },
            MemoryError::NoSuchAddress { pa } => Error::NoSuchAddress { address: pa },
            MemoryError::WrongOwner { handle } => Error::WrongOwner { handle },
            MemoryError::OutOfBounds { offset, len, limit } => {
                Error::OutOfRange { offset, len, limit }
            }
            MemoryError::NotAttached => Error::NotAttached,
            MemoryError::HandleTableDown => {
                Error::NoRecords { errno: Errno::ENOENT, what: "handles: the table is down" }
            }
            MemoryError::Busy { what } => Error::Busy { what },
            MemoryError::Gone => Error::Removed,
            MemoryError::Unsupported { what } => Error::Unsupported { what },
            other => Error::Driver(axon_neuron::Error::Memory(other)),
        }
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::TooManyClients => Error::TooManyClients,
            ClientError::DeviceFailed => Error::DeviceFailed { errno: Errno::EINVAL },
            ClientError::DeviceGone => Error::Removed,
            ClientError::NoIds => Error::NoRecords { errno: Errno::EMFILE, what: "client ids" },
            ClientError::Memory(error) => error.into(),
            ClientError::NoGrant { grant } => Error::Gate(GateError::NoGrant { grant }),
            ClientError::NotOnThisLane { command } => {
                Error::Gate(GateError::NotOnThisLane { command })
            }
            _ => Error::NotAttached,
        }
    }
}

impl From<axon_neuron::Error> for Error {
    fn from(error: axon_neuron::Error) -> Self {
        use axon_neuron::Error as Driver;
        match error {
            Driver::InvalidArgument { what, value } => Error::InvalidArgument { what, value },
            Driver::TooBig { what, value, limit } => Error::TooBig { what, value, limit },
            Driver::Again { what } => Error::Again { what },
            Driver::Busy { what, .. } => Error::Busy { what },
            Driver::Exists { what } => Error::Exists { what },
            Driver::NotificationsLost { .. } => Error::NotificationsLost(error),
            Driver::Memory(error) => error.into(),
            Driver::NoRecords => {
                Error::NoRecords { errno: Errno::ENOMEM, what: "records of the driver" }
            }
            Driver::DmaTimeout { .. }
            | Driver::ResetTimeout { .. }
            | Driver::MailboxTimeout { .. } => Error::Timeout(error),
            Driver::Cancelled { .. } => Error::Cancelled(error),
            Driver::Stale { .. } => Error::Stale(error),
            Driver::DmaAborted { .. }
            | Driver::ScrubFailed { .. }
            | Driver::RingFaulted { .. }
            | Driver::LinkSilent { .. }
            | Driver::QuarantineFull { .. }
            | Driver::CoreDown { .. }
            | Driver::MailboxRefused { .. }
            | Driver::MailboxCorrupt { .. }
            | Driver::FirmwareUnknown => Error::Device(error),
            Driver::DeviceFailed => Error::DeviceFailed { errno: Errno::EIO },
            Driver::DeviceGone => Error::DeviceGone,
            Driver::Removed => Error::Removed,
            Driver::Unsupported { what } => Error::Unsupported { what },
            _ => Error::Driver(error),
        }
    }
}

impl From<axon_telemetry::Error> for Error {
    fn from(error: axon_telemetry::Error) -> Self {
        use axon_telemetry::Error as Telemetry;
        match error {
            Telemetry::Released { .. } => Error::NotAttached,
            Telemetry::Invalid { what, value } => Error::InvalidArgument { what, value },
            Telemetry::TooBig { len, limit } => Error::TooBig {
                what: "length of a post",
                value: len as u64,
                limit: limit as u64 + 1,
            },
            error => Error::Telemetry(error),
        }
    }
}

impl From<ProbeError> for Error {
    fn from(error: ProbeError) -> Self {
        Error::Refused(error)
    }
}

impl From<ReservationError> for Error {
    fn from(error: ReservationError) -> Self {
        Error::Claim(error)
    }
}

impl From<PodError> for Error {
    fn from(error: PodError) -> Self {
        Error::Pod(error)
    }
}

impl From<GateError> for Error {
    fn from(error: GateError) -> Self {
        Error::Gate(error)
    }
}

impl From<OutOfBounds> for Error {
    fn from(error: OutOfBounds) -> Self {
        Error::OutOfRange { offset: error.offset, len: error.len_bytes, limit: error.limit }
    }
}

impl From<SpawnError> for Error {
    fn from(error: SpawnError) -> Self {
        Error::NoRecords { errno: error.errno(), what: "another task" }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadHandle { handle } => write!(f, "handle {handle} names no chunk"),
            Error::InvalidArgument { what, value: value @ 0..10 } => {
                write!(f, "{what} {value} is not allowed")
            }
            Error::InvalidArgument { what, value } => write!(f, "{what} {value:#x} is not allowed"),
            Error::OutOfRange { offset, len, limit } => {
                write!(f, "{len} bytes at offset {offset} do not fit into {limit}")
            }
            Error::TooBig { what, value, limit } => {
                write!(f, "{what} {value} is not below {limit}")
            }
            Error::NotAttached => f.write_str("the client is not attached to the device"),
            Error::TooManyClients => {
                write!(f, "all {} attach slots of the device are in use", ClientSlot::COUNT)
            }
            Error::Busy { what } => write!(f, "{what} is in use"),
            Error::NoMemory { asked: 0, .. } => f.write_str("size 0 is nothing to allocate"),
            Error::NoMemory { location, asked, free, largest } => {
                let location = match location {
                    Location::Host => "host",
                    Location::Device => "device",
                };
                write!(
                    f,
                    "no {location} memory for {asked} bytes \
                     (asked={asked} free={free} largest={largest})"
                )
            }
            Error::NoRecords { what, .. } => write!(f, "there is no room for {what}"),
            Error::NotFound { what, value, .. } => write!(f, "there is no {what} {value}"),
            Error::NoSuchAddress { address } => write!(f, "no chunk contains address {address:#x}"),
            Error::WrongOwner { handle } => {
                write!(f, "the chunk of handle {handle} belongs to another client")
            }
            Error::Again { what } => write!(f, "{what}: try again"),
            Error::Unsupported { what } => write!(f, "{what} is not supported"),
            Error::DeviceFailed { .. } => {
                f.write_str("the device is INVALID: its last reset failed or it is gone; another reset tells which")
            }
            Error::DeviceGone => f.write_str("the device answers all-ones: it is gone"),
            Error::Removed => f.write_str("the device was removed"),
            Error::Refused(error) => error.fmt(f),
            Error::Telemetry(error) => error.fmt(f),
            Error::Core(error) => error.fmt(f),
            Error::Claim(error) => error.fmt(f),
            Error::Gate(error) => error.fmt(f),
            Error::Pod(error) => error.fmt(f),
            Error::Exists { what } => write!(f, "{what} exists with other parameters"),
            Error::Stale(error)
            | Error::NotificationsLost(error)
            | Error::Timeout(error)
            | Error::Cancelled(error)
            | Error::Device(error)
            | Error::Driver(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn equality_is_the_variant() {
        assert_eq!(Error::EMPTY, Error::InvalidArgument { what: "offset", value: 7 });
        assert_ne!(Error::NotAttached, Error::TooManyClients);
    }

    #[test]
    fn running_out_of_memory_says_how_much_there_is() {
        let error = Error::from(MemoryError::NoMemory {
            location: Location::Device,
            asked: 8192,
            free: 4096,
            largest: 4096,
        });
        assert_eq!(error.errno(), Errno::ENOMEM);
        assert_eq!(
            error.to_string(),
            "no device memory for 8192 bytes (asked=8192 free=4096 largest=4096)"
        );
    }

    #[test]
    fn an_invalid_device_refuses_opens_and_fails_transfers() {
        assert_eq!(Error::from(ClientError::DeviceFailed).errno(), Errno::EINVAL);
        assert_eq!(Error::from(axon_neuron::Error::DeviceFailed).errno(), Errno::EIO);
    }
}
