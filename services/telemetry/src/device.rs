//! What telemetry has to know of its device, and what it reads from it: the seams to the driver,
//! the memory service and the mailbox.

use core::fmt;
use core::future::Future;

use axon_platform::Errno;
use axon_ports::reset::DeviceState;
use axon_ports::telemetry::cell::GaugeReading;
use axon_ports::{ClientId, CoreId, CoreMap, DeviceIndex, Location};

use crate::{Error, MemoryCounter, PeLayout};

/// Presentation strings of a product (specification 01 §1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceNames {
    /// Behind `ND`: `v2`, `v3`, `v4`.
    pub device_type: &'static str,
    /// Behind `NC`.
    pub core_type: &'static str,
    /// Instance family, `Trn1`.
    pub instance: &'static str,
    /// Full name, `Trainium1`.
    pub device: &'static str,
}

/// What never changes about a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFacts {
    /// Which device.
    pub device: DeviceIndex,
    /// Its strings.
    pub names: DeviceNames,
    /// Cores that are there.
    pub cores: CoreMap,
    /// Cores that a device of this kind has.
    pub cores_per_device: u8,
    /// HBM channels.
    pub hbm_channels: u8,
    /// Dice, each with a power register.
    pub dice: u8,
    /// Whether HBM errors are told apart by the repair state (V3, V4).
    pub knows_repair: bool,
    /// Whether power may be sampled.
    pub samples_power: bool,
    /// Whether the platform takes posts at all: not under a simulator or emulator of V3 and V4.
    pub takes_posts: bool,
    /// Where the activity counters of the PE array are.
    pub pe: PeLayout,
}

impl DeviceFacts {
    /// The cores that are there, in ascending order.
    pub fn core_ids(&self) -> impl Iterator<Item = CoreId> + use<> {
        let map = self.cores;
        CoreId::all().filter(move |core| map.contains(*core))
    }
}

/// One attached client as the memory service sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientMemory {
    /// Who.
    pub client: ClientId,
    /// Host bytes it holds.
    pub host_bytes: u64,
    /// Device bytes it holds.
    pub device_bytes: u64,
}

/// One notification queue (specification 06 §17.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueUse<'a> {
    /// Block: `nc3`, `ts9`, `nc0.dma4`.
    pub block: &'a str,
    /// Queue of the block.
    pub queue: u32,
    /// Records consumed.
    pub consumed: u64,
    /// Overflows seen.
    pub overflows: u64,
}

/// Pod membership of a device (specification 05 §16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodModes {
    /// Modes the pod supports, as a mask.
    pub supported: u32,
    /// Mode it is in.
    pub mode: u32,
}

/// Gets name and text of every file of the class.
pub type ClassVisitor<'a> = &'a mut dyn FnMut(&'static str, fmt::Arguments<'_>);

/// What telemetry reads of its device. Every call returns at once; whatever cannot be told now is
/// `None`, never a made-up number.
pub trait DeviceSensors: Send + Sync + 'static {
    /// State as observers see it.
    fn state(&self) -> DeviceState;

    /// Whether a reset drive runs now.
    fn reset_running(&self) -> bool;

    /// The MiscRAM word at `offset`; `None` where the one rule of specification 01 §5 calls it
    /// absent: 0xdeadbeef, device gone.
    fn misc_ram(&self, offset: u32) -> Option<u32>;

    /// The register at `offset` of BAR0 as it is; `None` where the device is gone.
    fn register(&self, offset: u64) -> Option<u32>;

    /// A memory gauge; host categories answer the same for every core.
    fn memory(&self, counter: MemoryCounter, core: CoreId) -> GaugeReading;

    /// Makes the peak of a memory gauge its level now.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the memory service cannot do that.
    fn rebase_memory_peak(&self, counter: MemoryCounter, core: CoreId) -> Result<(), Error> {
        let _ = (counter, core);
        Err(Error::Unsupported { what: "a new peak" })
    }

    /// Bytes freed but still pinned.
    fn draining_bytes(&self, location: Location) -> u64;

    /// Bytes that may not be used again before proof that the hardware is quiet.
    fn quarantined_bytes(&self, location: Location) -> u64;

    /// Attached clients with what they hold.
    fn clients(&self, each: &mut dyn FnMut(ClientMemory));

    /// Devices next to this one, in the order of its links.
    fn neighbours(&self, each: &mut dyn FnMut(DeviceIndex));

    /// Current performance profile.
    fn performance_profile(&self) -> u32 {
        0
    }

    /// Pod the device is in; `None` for none.
    fn pod(&self) -> Option<PodModes> {
        None
    }

    /// Files of the class: name and text, in the order of the tree (specification 05 §16.10).
    fn class_files(&self, each: ClassVisitor<'_>) {
        let _ = each;
    }

    /// Notification queues with what they have seen.
    fn queues(&self, each: &mut dyn FnMut(QueueUse<'_>)) {
        let _ = each;
    }
}

/// Why a post did not reach firmware.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// No attempt was answered.
    TimedOut {
        /// How many there were.
        attempts: u32,
    },
    /// Firmware answered with an error.
    Refused {
        /// Its code.
        code: u8,
    },
    /// The answer was damaged.
    Corrupt,
    /// The device is gone or was removed.
    Gone,
    /// There is no mailbox.
    Unsupported,
}

impl PostError {
    /// The number the Linux driver would have returned; a bare −1 becomes EIO.
    pub const fn errno(&self) -> Errno {
        match self {
            PostError::TimedOut { .. } => Errno::ETIMEDOUT,
            PostError::Refused { .. } | PostError::Corrupt | PostError::Gone => Errno::EIO,
            PostError::Unsupported => Errno::EOPNOTSUPP,
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PostError::TimedOut { attempts } => {
                write!(f, "firmware answered none of {attempts} attempts to post")
            }
            PostError::Refused { code } => write!(f, "firmware refused the post with code {code}"),
            PostError::Corrupt => f.write_str("firmware's answer to the post is damaged"),
            PostError::Gone => f.write_str("the device is gone"),
            PostError::Unsupported => f.write_str("the device has no mailbox for posts"),
        }
    }
}

impl core::error::Error for PostError {}

/// Where posts go: a mailbox of the device.
pub trait MetricSink: Send + Sync + 'static {
    /// Hands a stream of 1 to 128 bytes to firmware. Exchanges take turns in order of arrival;
    /// dropping the future gives the exchange up.
    ///
    /// # Errors
    /// [`PostError`]; firmware may or may not have taken the stream.
    fn post(&self, stream: &[u8]) -> impl Future<Output = Result<(), PostError>> + Send;
}
