//! What can go wrong once a device is up (specification 08 §8.10.4). Probe refusals are
//! [`crate::ProbeError`].

use axon_platform::{BusAddr, DeviceAddr, Errno};
use axon_ports::telemetry::counters::MailboxCommand;
use axon_ports::{CoreId, EngineId, MemoryError, QueueId};
use core::fmt;

use crate::dma::{EngineReport, Stop};
use crate::notify::Producer;

/// Why an operation ended without success. Unless a variant says otherwise nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A value that no call may carry; also size 0 of a transfer.
    InvalidArgument {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: u64,
    },
    /// A number above a fixed limit.
    TooBig {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: u64,
        /// Valid numbers are below this.
        limit: u64,
    },
    /// A register that clients may not write.
    RegisterDenied {
        /// Offset in the register window.
        offset: u64,
    },
    /// Host memory above what the device can name.
    HostUnreachable {
        /// First byte.
        bus: BusAddr,
        /// Bytes.
        len_bytes: u64,
        /// Addresses are below this.
        limit: u64,
    },
    /// Memory that the memory window does not show.
    NoMemoryWindow {
        /// First byte.
        address: DeviceAddr,
        /// Bytes.
        len_bytes: u64,
        /// Length of the window as presented.
        window: u64,
    },
    /// The call would have had to wait.
    Again {
        /// For what.
        what: &'static str,
    },
    /// Taken by somebody else, or a limit of requests is reached.
    Busy {
        /// What.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// It is there already, with other parameters.
    Exists {
        /// What.
        what: &'static str,
    },
    /// Records of a notification queue were lost, because its ring was full or because the device
    /// wrote what no producer writes. The queue starts anew with what comes next.
    NotificationsLost {
        /// Who fills it.
        producer: Producer,
        /// Queue of the producer.
        index: u32,
    },
    /// Memory refused.
    Memory(MemoryError),
    /// No memory for the driver's own records.
    NoRecords,
    /// A batch did not end in time. The destination is undefined; the memory stays pinned until
    /// the hardware is proven quiet.
    DmaTimeout {
        /// Engine.
        engine: EngineId,
        /// Queue.
        queue: QueueId,
        /// Data descriptors of the batch.
        descriptors: u32,
        /// First byte of the source.
        source: DeviceAddr,
        /// First byte of the destination.
        destination: DeviceAddr,
        /// Time it was given; µs.
        waited_us: u64,
        /// How far the hardware came.
        stop: Stop,
    },
    /// The engine stopped on an error. The destination is undefined.
    DmaAborted {
        /// Engine.
        engine: EngineId,
        /// Queue.
        queue: QueueId,
        /// What the engine says.
        report: EngineReport,
        /// How far the queue came.
        stop: Stop,
    },
    /// What a scrub wrote is not what came back.
    ScrubFailed {
        /// Engine.
        engine: EngineId,
        /// First byte that is wrong.
        address: DeviceAddr,
    },
    /// The ring is out of work until a reset that covers its engine.
    RingFaulted {
        /// Engine.
        engine: EngineId,
        /// Queue.
        queue: QueueId,
    },
    /// No answer came over a link to another node.
    LinkSilent {
        /// Engine of the link.
        engine: EngineId,
    },
    /// Every marker pair of the ring is in quarantine.
    QuarantineFull {
        /// Engine.
        engine: EngineId,
        /// Queue.
        queue: QueueId,
    },
    /// A queue that this caller may not use like that. Nothing has changed.
    Queue {
        /// Engine.
        engine: EngineId,
        /// Queue.
        queue: QueueId,
        /// Why not.
        why: QueueRefusal,
    },
    /// The device has no such engine, or none that is initialised.
    NoEngine {
        /// Its number.
        engine: EngineId,
    },
    /// No host-transfer queue of the core is free.
    NoQueue {
        /// The core.
        core: CoreId,
    },
    /// A number that names no host-transfer queue of the core.
    NoSuchQueue {
        /// The number as given.
        queue: i64,
    },
    /// Behind the last descriptor of a ring.
    PastEnd {
        /// First descriptor.
        start: u64,
        /// Descriptors.
        count: u64,
        /// Descriptors of the ring.
        length: u64,
    },
    /// A descriptor that its client may not write. No descriptor was written.
    BadDescriptor {
        /// Which one of the call.
        index: u64,
        /// What is wrong with it.
        what: &'static str,
        /// The address that it names.
        address: DeviceAddr,
    },
    /// The caller has not the right to do this to that engine.
    EngineForeign {
        /// Its number.
        engine: EngineId,
    },
    /// Ended by a reset, a client drop or a removal, or because another operation of the ring
    /// failed. The destination is undefined.
    Cancelled {
        /// By what.
        why: CancelCause,
    },
    /// Made before the last reset of its core.
    Stale {
        /// The core.
        core: CoreId,
    },
    /// The last reset of the core failed.
    CoreDown {
        /// The core.
        core: CoreId,
    },
    /// The last reset of the whole device failed.
    DeviceFailed,
    /// Firmware did not end a reset in time.
    ResetTimeout {
        /// In which stage.
        stage: ResetStage,
        /// Time it was given; ms.
        waited_ms: u64,
    },
    /// Firmware answered none of the attempts at a request.
    MailboxTimeout {
        /// What was asked.
        command: MailboxCommand,
        /// How often.
        attempts: u32,
    },
    /// Firmware answered a request with an error.
    MailboxRefused {
        /// What was asked.
        command: MailboxCommand,
        /// Its code.
        code: u8,
    },
    /// Firmware's answer is damaged or has a length that cannot be.
    MailboxCorrupt {
        /// What was asked.
        command: MailboxCommand,
    },
    /// Firmware does not tell its version; nothing was written.
    FirmwareUnknown,
    /// The function answers all-ones.
    DeviceGone,
    /// The device was removed.
    Removed,
    /// Not part of this generation, firmware or build.
    Unsupported {
        /// What.
        what: &'static str,
    },
}

/// Why a queue was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueRefusal {
    /// It carries copies of the driver (EALREADY).
    Driver,
    /// It belongs to another client (EPERM).
    Foreign,
    /// Another client has bound it, or it is on its way out (EBUSY).
    Taken,
    /// It is owned by on-chip sequencers of a core that the caller has not claimed (EPERM).
    Sequencer,
    /// It has no ring (ENODEV).
    Unbound,
    /// It was not allocated to this core (ENXIO).
    Unclaimed,
}

impl QueueRefusal {
    const fn errno(self) -> Errno {
        match self {
            QueueRefusal::Driver => Errno::EALREADY,
            QueueRefusal::Foreign | QueueRefusal::Sequencer => Errno::EPERM,
            QueueRefusal::Taken => Errno::EBUSY,
            QueueRefusal::Unbound => Errno::ENODEV,
            QueueRefusal::Unclaimed => Errno::ENXIO,
        }
    }
}

impl fmt::Display for QueueRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueRefusal::Driver => "carries copies of the driver",
            QueueRefusal::Foreign => "belongs to another client",
            QueueRefusal::Taken => "is in use",
            QueueRefusal::Sequencer => "belongs to the sequencers of a core that is not claimed",
            QueueRefusal::Unbound => "has no ring",
            QueueRefusal::Unclaimed => "was not allocated to this core",
        })
    }
}

/// What ended an operation early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelCause {
    /// A reset of the core.
    Reset,
    /// A timeout or an abort of an operation staged before it.
    RingFault,
    /// The device was removed or its tasks have ended.
    Removal,
    /// The queue was closed, or another ring took the place of its ring.
    Closed,
}

/// Stages of a reset that wait for firmware.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetStage {
    /// Waiting for firmware to accept.
    Initiate,
    /// Waiting for firmware to be ready again.
    Completion,
}

impl Error {
    /// The number that the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            Error::InvalidArgument { .. }
            | Error::RegisterDenied { .. }
            | Error::HostUnreachable { .. }
            | Error::BadDescriptor { .. }
            | Error::NoMemoryWindow { .. } => Errno::EINVAL,
            Error::Queue { why, .. } => why.errno(),
            Error::NoEngine { .. } => Errno::ENODEV,
            Error::NoQueue { .. } => Errno::ENOSPC,
            Error::NoSuchQueue { .. } => Errno::ENOENT,
            Error::PastEnd { .. } => Errno::EFBIG,
            Error::EngineForeign { .. } => Errno::EPERM,
            Error::TooBig { .. } => Errno::E2BIG,
            Error::Again { .. } => Errno::EAGAIN,
            Error::Busy { .. } => Errno::EBUSY,
            Error::Exists { .. } => Errno::EEXIST,
            Error::NotificationsLost { .. } => Errno::EOVERFLOW,
            Error::Memory(error) => error.errno(),
            Error::NoRecords => Errno::ENOMEM,
            Error::DmaTimeout { .. }
            | Error::ResetTimeout { .. }
            | Error::MailboxTimeout { .. } => Errno::ETIMEDOUT,
            Error::DmaAborted { .. }
            | Error::ScrubFailed { .. }
            | Error::RingFaulted { .. }
            | Error::LinkSilent { .. }
            | Error::QuarantineFull { .. }
            | Error::CoreDown { .. }
            | Error::DeviceFailed
            | Error::MailboxRefused { .. }
            | Error::MailboxCorrupt { .. }
            | Error::FirmwareUnknown
            | Error::DeviceGone => Errno::EIO,
            Error::Cancelled { .. } => Errno::ECANCELED,
            Error::Stale { .. } => Errno::ESTALE,
            Error::Removed => Errno::ENODEV,
            Error::Unsupported { .. } => Errno::EOPNOTSUPP,
        }
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Error {
        Error::Memory(error)
    }
}

impl fmt::Display for CancelCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CancelCause::Reset => "a reset of its core",
            CancelCause::RingFault => "a fault of another operation on its ring",
            CancelCause::Removal => "the removal of the device",
            CancelCause::Closed => "the end of its queue",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::InvalidArgument { what, value } => write!(f, "{what} {value:#x} is not allowed"),
            Error::TooBig { what, value, limit } => {
                write!(f, "{what} {value} is not below {limit}")
            }
            Error::RegisterDenied { offset } => {
                write!(f, "register {offset:#x} may not be written by clients")
            }
            Error::HostUnreachable { bus, len_bytes, limit } => write!(
                f,
                "host memory at {bus} ({len_bytes} bytes) is out of reach: the device names \
                 addresses below {limit:#x}"
            ),
            Error::NoMemoryWindow { address, len_bytes, window } => write!(
                f,
                "the memory window ({window} bytes) does not show {len_bytes} bytes at {address}"
            ),
            Error::Again { what } => write!(f, "{what}: try again"),
            Error::Busy { what, limit } => write!(f, "{what} is in use (limit {limit})"),
            Error::Exists { what } => write!(f, "{what} exists with other parameters"),
            Error::NotificationsLost { producer, index } => {
                write!(f, "notifications of queue {index} of {producer} were lost")
            }
            Error::Memory(ref error) => error.fmt(f),
            Error::NoRecords => f.write_str("no memory for the driver's own records"),
            Error::DmaTimeout {
                engine,
                queue,
                descriptors,
                source,
                destination,
                waited_us,
                stop,
            } => write!(
                f,
                "{engine} {queue} did not finish {descriptors} descriptors from {source} to \
                 {destination} in {waited_us} us: {stop}"
            ),
            Error::DmaAborted { engine, queue, report, stop } => {
                write!(f, "{engine} stopped while it served {queue}: {report}; {stop}")
            }
            Error::ScrubFailed { engine, address } => {
                write!(f, "what {engine} scrubbed does not read back: wrong at {address}")
            }
            Error::RingFaulted { engine, queue } => {
                write!(f, "{engine} {queue} takes no work until the device is reset")
            }
            Error::LinkSilent { engine } => write!(f, "no answer over the link of {engine}"),
            Error::QuarantineFull { engine, queue } => write!(
                f,
                "{engine} {queue} has every marker in quarantine; reset the device to go on"
            ),
            Error::Queue { engine, queue, why } => write!(f, "{engine} {queue} {why}"),
            Error::NoEngine { engine } => {
                write!(f, "the device has no {engine}, or it is not initialised")
            }
            Error::NoQueue { core } => write!(f, "no host-transfer queue of {core} is free"),
            Error::NoSuchQueue { queue } => {
                write!(f, "queue {queue} is no host-transfer queue of the core")
            }
            Error::PastEnd { start, count, length } => {
                write!(f, "{count} descriptors from {start} on are not all among {length}")
            }
            Error::BadDescriptor { index, what, address } => {
                write!(f, "descriptor {index}, which names {address}: {what}")
            }
            Error::EngineForeign { engine } => {
                write!(f, "{engine} belongs to the driver, or to a core that is not claimed")
            }
            Error::Cancelled { why } => write!(f, "ended by {why}"),
            Error::Stale { core } => write!(f, "made before the last reset of {core}"),
            Error::CoreDown { core } => {
                write!(f, "the last reset of {core} failed; reset it again")
            }
            Error::DeviceFailed => {
                f.write_str("the last reset of the whole device failed; reset it again")
            }
            Error::ResetTimeout { stage, waited_ms } => match stage {
                ResetStage::Initiate => {
                    write!(f, "firmware did not accept the reset within {waited_ms} ms")
                }
                ResetStage::Completion => {
                    write!(f, "firmware was not ready {waited_ms} ms after it accepted the reset")
                }
            },
            Error::MailboxTimeout { command, attempts } => {
                write!(f, "firmware answered none of {attempts} requests to {}", command.name())
            }
            Error::MailboxRefused { command, code } => {
                write!(f, "firmware refused {} with code {code}", command.name())
            }
            Error::MailboxCorrupt { command } => {
                write!(f, "firmware's answer to {} is damaged", command.name())
            }
            Error::FirmwareUnknown => {
                f.write_str("firmware does not tell its version; it may be in a reset")
            }
            Error::DeviceGone => f.write_str("the device answers all-ones: it is gone"),
            Error::Removed => f.write_str("the device was removed"),
            Error::Unsupported { what } => write!(f, "{what} is not supported"),
        }
    }
}

impl core::error::Error for Error {}
