//! Why telemetry refused.

use core::fmt;

use axon_platform::Errno;
use axon_ports::ClientId;

use crate::PostError;

/// Why telemetry refused. Nothing has changed in any of these cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// All 16 counter slabs of the device are taken.
    NoSlab,
    /// The client has no counter slab.
    NoEntry {
        /// Who was asked for.
        client: ClientId,
    },
    /// The slab was given up; its former owner may not write to it.
    Released {
        /// Who owned it.
        client: ClientId,
    },
    /// The owner has not written a valid header into its slab.
    BadHeader {
        /// First eight bytes of the slab.
        header: u64,
    },
    /// A number that names nothing, or a value that is not allowed.
    Invalid {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: u64,
    },
    /// More bytes than a post can carry.
    TooBig {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// The text does not fit; nothing of it was handed out.
    TooSmall {
        /// Bytes needed.
        needed: usize,
    },
    /// No file of the metric tree has this path.
    NoSuchPath,
    /// The file cannot be written.
    ReadOnly,
    /// No memory for the service's own records.
    NoRoom,
    /// Fewer slabs than a device needs, or one that is no host memory of 256 KiB.
    BadSlabs {
        /// Usable ones.
        usable: usize,
    },
    /// Not part of this build.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// Posting is switched off by configuration.
    PostingOff,
    /// The poster task has ended.
    Stopped,
    /// Firmware did not take a post.
    Post(PostError),
}

impl Error {
    /// The number the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            Error::NoSlab | Error::NoRoom | Error::BadSlabs { .. } => Errno::ENOMEM,
            Error::NoEntry { .. } | Error::NoSuchPath => Errno::ENOENT,
            Error::Released { .. } => Errno::EACCES,
            Error::BadHeader { .. } | Error::Invalid { .. } => Errno::EINVAL,
            Error::TooBig { .. } => Errno::E2BIG,
            Error::TooSmall { .. } => Errno::EAGAIN,
            Error::ReadOnly => Errno::EPERM,
            Error::PostingOff | Error::Unsupported { .. } => Errno::EOPNOTSUPP,
            Error::Stopped => Errno::ENODEV,
            Error::Post(error) => error.errno(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::NoSlab => f.write_str("all 16 counter slabs of the device are taken"),
            Error::NoEntry { client } => write!(f, "{client} has no counter slab"),
            Error::Released { client } => write!(f, "{client} has given its counter slab up"),
            Error::BadHeader { header } => {
                write!(f, "the slab starts with {header:#018x}, which is no valid header")
            }
            Error::Invalid { what, value } => write!(f, "{what} {value} is not allowed"),
            Error::TooBig { len, limit } => {
                write!(f, "{len} bytes are too many for a post of at most {limit}")
            }
            Error::TooSmall { needed } => write!(f, "the text needs {needed} bytes"),
            Error::NoSuchPath => f.write_str("the metric tree has no such file"),
            Error::ReadOnly => f.write_str("this file of the metric tree cannot be written"),
            Error::NoRoom => f.write_str("no memory for telemetry's own records"),
            Error::BadSlabs { usable } => {
                write!(f, "16 host slabs of 262144 bytes are needed, {usable} are usable")
            }
            Error::Unsupported { what } => write!(f, "{what} is not supported"),
            Error::PostingOff => f.write_str("posting to firmware is off on this device"),
            Error::Stopped => f.write_str("the poster task has ended"),
            Error::Post(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

impl From<PostError> for Error {
    fn from(error: PostError) -> Self {
        Error::Post(error)
    }
}
