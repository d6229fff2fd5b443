//! Why a function did not become a device.

use axon_platform::{Bdf, DmaExhausted, Errno, MapError};
use axon_ports::{DeviceIndex, MemoryError, RoutingId};
use core::fmt;

use crate::hal::HalError;

/// A rung of the ladder (specification 05 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rung(pub u8);

impl Rung {
    /// The first reset of the device.
    pub const FIRST_RESET: Rung = Rung(25);
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "D{}", self.0)
    }
}

/// Why a function was refused. Everything taken before has been given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProbeError {
    /// Vendor or device id is not claimed.
    WrongId {
        /// Vendor id as read.
        vendor: u16,
        /// Device id as read.
        device: u16,
    },
    /// The configuration does not fit the device.
    Configuration(HalError),
    /// The function is already bound.
    AlreadyBound {
        /// Where it sits.
        bdf: Bdf,
    },
    /// Memory decoding could not be switched on.
    DecodeOff {
        /// Command register as read back.
        command: u16,
    },
    /// The function has no such BAR.
    BarAbsent {
        /// PCI index.
        bar: u8,
    },
    /// Firmware assigned no address to the BAR.
    BarUnassigned {
        /// PCI index.
        bar: u8,
    },
    /// The BAR ends before the last register.
    BarTooShort {
        /// PCI index.
        bar: u8,
        /// Length as presented.
        len_bytes: u64,
        /// Length needed.
        needed: u64,
    },
    /// The machine cannot map the BAR.
    BarNotMapped {
        /// PCI index.
        bar: u8,
        /// Why.
        reason: MapError,
    },
    /// Firmware did not name the device in time.
    FirmwareNotReady {
        /// Time it was given; ms.
        waited_ms: u64,
    },
    /// Every register reads all-ones.
    DeviceGone,
    /// Firmware's number of the device is too large.
    RoutingIdOutOfRange {
        /// As read.
        routing_id: u32,
        /// Numbers are below this.
        limit: u32,
    },
    /// The server of a switched pod is not named.
    ServerIdInvalid {
        /// The word as read.
        word: u32,
    },
    /// Another function has the same place.
    DuplicateRoutingId {
        /// Firmware's number of this function.
        routing_id: RoutingId,
        /// The place that is taken.
        index: DeviceIndex,
        /// The function that has it.
        holder: Bdf,
    },
    /// No host memory for the mailbox.
    HostMemory(DmaExhausted),
    /// Host memory that the device cannot name.
    HostUnreachable {
        /// First byte.
        address: u64,
        /// Addresses are below this.
        limit: u64,
    },
    /// A pool refused.
    Memory {
        /// The rung that asked.
        rung: Rung,
        /// Why.
        reason: MemoryError,
    },
    /// No memory for the driver's own records.
    NoRecords {
        /// The rung that asked.
        rung: Rung,
    },
    /// Bus mastering could not be switched on.
    BusMasterOff {
        /// Command register as read back.
        command: u16,
    },
    /// Not part of this build.
    Unsupported,
}

impl ProbeError {
    /// The rung that failed.
    pub const fn rung(&self) -> Rung {
        match self {
            ProbeError::WrongId { .. } | ProbeError::Configuration(_) => Rung(4),
            ProbeError::AlreadyBound { .. } => Rung(3),
            ProbeError::DecodeOff { .. } => Rung(5),
            ProbeError::BarAbsent { .. }
            | ProbeError::BarUnassigned { .. }
            | ProbeError::BarTooShort { .. }
            | ProbeError::BarNotMapped { .. } => Rung(6),
            ProbeError::HostMemory(_) => Rung(8),
            ProbeError::FirmwareNotReady { .. }
            | ProbeError::DeviceGone
            | ProbeError::RoutingIdOutOfRange { .. }
            | ProbeError::ServerIdInvalid { .. } => Rung(9),
            ProbeError::DuplicateRoutingId { .. } => Rung(10),
            ProbeError::HostUnreachable { .. } => Rung(11),
            ProbeError::Memory { rung, .. } | ProbeError::NoRecords { rung } => *rung,
            ProbeError::BusMasterOff { .. } => Rung(20),
            ProbeError::Unsupported => Rung(1),
        }
    }

    /// The number that the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            ProbeError::Configuration(reason) => reason.errno(),
            ProbeError::AlreadyBound { .. } => Errno::EBUSY,
            ProbeError::DecodeOff { .. } | ProbeError::BusMasterOff { .. } => Errno::EIO,
            ProbeError::BarNotMapped { reason, .. } => reason.errno(),
            ProbeError::HostMemory(_) | ProbeError::NoRecords { .. } => Errno::ENOMEM,
            ProbeError::Memory { reason, .. } => reason.errno(),
            ProbeError::Unsupported => Errno::EOPNOTSUPP,
            _ => Errno::ENODEV,
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bring-up failed at {}: ", self.rung())?;
        match *self {
            ProbeError::WrongId { vendor, device } => {
                write!(f, "PCI id {vendor:04x}:{device:04x} is no Neuron accelerator")
            }
            ProbeError::Configuration(ref reason) => reason.fmt(f),
            ProbeError::AlreadyBound { bdf } => write!(f, "{bdf} is already bound"),
            ProbeError::DecodeOff { command } => {
                write!(f, "memory decoding stays off (command register {command:#06x})")
            }
            ProbeError::BarAbsent { bar } => write!(f, "the function has no BAR {bar}"),
            ProbeError::BarUnassigned { bar } => {
                write!(f, "firmware assigned no address to BAR {bar}")
            }
            ProbeError::BarTooShort { bar, len_bytes, needed } => {
                write!(f, "BAR {bar} has {len_bytes:#x} bytes, the registers need {needed:#x}")
            }
            ProbeError::BarNotMapped { bar, ref reason } => {
                write!(f, "BAR {bar} could not be mapped: {reason}")
            }
            ProbeError::FirmwareNotReady { waited_ms } => {
                write!(f, "firmware did not name the device within {waited_ms} ms")
            }
            ProbeError::DeviceGone => f.write_str("every register reads all-ones"),
            ProbeError::RoutingIdOutOfRange { routing_id, limit } => {
                write!(f, "routing id {routing_id} is not below {limit}")
            }
            ProbeError::ServerIdInvalid { word } => {
                write!(f, "firmware names no server (word {word:#010x})")
            }
            ProbeError::DuplicateRoutingId { routing_id, index, holder } => {
                write!(f, "{routing_id} is {index}, which {holder} already is")
            }
            ProbeError::HostMemory(ref reason) => reason.fmt(f),
            ProbeError::HostUnreachable { address, limit } => {
                write!(f, "host memory at {address:#x} is not below {limit:#x}")
            }
            ProbeError::Memory { ref reason, .. } => reason.fmt(f),
            ProbeError::NoRecords { .. } => f.write_str("no memory for the driver's own records"),
            ProbeError::BusMasterOff { command } => {
                write!(f, "bus mastering stays off (command register {command:#06x})")
            }
            ProbeError::Unsupported => f.write_str("not part of this build"),
        }
    }
}

impl core::error::Error for ProbeError {}
