//! Requests to the memory service of a device, its error, and the seams through which others reach
//! it (specification 04 §4, §8.2).

use alloc::sync::{Arc, Weak};
use core::fmt;
use core::future::Future;

use axon_platform::{DeviceAddr, Errno};

use crate::chunk::Chunk;
use crate::{ClientId, ClientSlot};

/// Where a chunk lies. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Location {
    /// Host memory that the device reaches over PCIe.
    Host = 1,
    /// HBM of the device.
    Device = 2,
}

/// When a chunk dies (specification 04 §5.2). The numbers are consecutive on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Lifespan {
    /// With the request that made it.
    Local = 1,
    /// With the owning client.
    Client = 2,
    /// With the last client of the device.
    AllClients = 3,
    /// With the device.
    Device = 4,
}

/// What a chunk is used for: 0 to 19 (specification 04 §9.4). Numbers above count as unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Category(pub u32);

/// One allocation (specification 04 §4). Plain numbers, because a caller may get them wrong and
/// has to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocRequest {
    /// Who asks and in which attach slot; `None` for the driver itself.
    pub client: Option<(ClientId, ClientSlot)>,
    /// When it dies.
    pub lifespan: Lifespan,
    /// Bytes; rounded up to 4096.
    pub size: u64,
    /// Alignment in bytes; 0 for none. Must be 0 for host memory.
    pub align: u64,
    /// Where.
    pub location: Location,
    /// HBM channel.
    pub channel: u32,
    /// Region of the channel.
    pub region: u32,
    /// Core it belongs to.
    pub core: u32,
    /// What for.
    pub category: Category,
    /// Also mint a handle.
    pub publish: bool,
}

impl AllocRequest {
    /// Host memory of the driver itself, living as long as the device.
    pub const fn driver_host(size: u64) -> Self {
        AllocRequest {
            client: None,
            lifespan: Lifespan::Device,
            size,
            align: 0,
            location: Location::Host,
            channel: 0,
            region: 0,
            core: 0,
            category: Category::NCDEV_HOST,
            publish: false,
        }
    }
}

macro_rules! categories {
    ($($number:literal $name:ident;)*) => {
        impl Category {
            /// How many categories there are.
            pub const COUNT: usize = [$($number),*].len();

            $(#[doc = concat!("Category ", $number, " of specification 04 §9.4.")]
            pub const $name: Category = Category($number);)*

            /// Name as in the table of specification 04 §9.4; `None` above its end.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The category with this name, in any case.
            pub fn from_name(name: &str) -> Option<Category> {
                let is_it = |one: &Self| one.name().is_some_and(|n| n.eq_ignore_ascii_case(name));
                [$(Category::$name),*].into_iter().find(is_it)
            }
        }
    };
}

categories! {
    0 UNKNOWN_HOST;
    1 CODE_HOST;
    2 TENSORS_HOST;
    3 CONSTANTS_HOST;
    4 MISC_HOST;
    5 NCDEV_HOST;
    6 NOTIFICATION_HOST;
    7 UNKNOWN_DEVICE;
    8 CODE_DEVICE;
    9 TENSORS_DEVICE;
    10 CONSTANTS_DEVICE;
    11 SCRATCHPAD_DEVICE;
    12 MISC_DEVICE;
    13 NCDEV_DEVICE;
    14 COLLECTIVES_DEVICE;
    15 SCRATCHPAD_NONSHARED_DEVICE;
    16 NOTIFICATION_DEVICE;
    17 DMA_RINGS_HOST;
    18 DMA_RINGS_DEVICE;
    19 CONTIGUOUS_SCRATCHPAD_DEVICE;
}

/// One HBM channel (specification 04 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelGeometry {
    /// First byte.
    pub base: DeviceAddr,
    /// Usable bytes.
    pub size: u64,
}

/// Says that a channel is being scrubbed: as long as a clone of it lives, nobody but the client of
/// the scrub gets memory there. Whatever lets hardware write to the channel holds one; dropping it
/// never blocks and never fails.
#[derive(Clone, Debug)]
pub struct ScrubHold {
    _held: Arc<()>,
}

impl ScrubHold {
    /// A hold and, for the memory service, how it looks at it.
    pub fn new() -> (ScrubHold, ScrubWatch) {
        let held = Arc::new(());
        let watch = ScrubWatch(Arc::downgrade(&held));
        (ScrubHold { _held: held }, watch)
    }
}

/// Looks at a [`ScrubHold`] without keeping it.
#[derive(Debug)]
pub struct ScrubWatch(Weak<()>);

impl ScrubWatch {
    /// Whether the scrub may still write.
    pub fn is_held(&self) -> bool {
        self.0.strong_count() != 0
    }
}

/// What the memory service has to know of its device; made by the HAL (specification 04 §2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryGeometry {
    /// The channels; the first `channel_count` count.
    pub channels: [ChannelGeometry; 4],
    /// How many channels the device has.
    pub channel_count: u8,
    /// Regions per channel (1 today: shared-DRAM mode).
    pub regions_per_channel: u8,
    /// Host-base bit that turns a bus address into a device-view address.
    pub host_base: u64,
    /// Cores of the device.
    pub cores: u8,
    /// Whether a small arena is cut from each region.
    pub small_arena: bool,
}

/// Why the memory service refused. Nothing has changed in any of these cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// A value that no request may carry.
    Invalid {
        /// Which one.
        what: &'static str,
        /// What it was.
        value: u64,
    },
    /// No run of free memory is long enough.
    NoMemory {
        /// Where.
        location: Location,
        /// Bytes asked for, rounded up.
        asked: u64,
        /// Free bytes of the arena or arenas tried.
        free: u64,
        /// Longest free run in them.
        largest: u64,
    },
    /// No memory for the service's own records.
    NoRecords,
    /// Handle unknown, freed or forged.
    BadHandle {
        /// The handle as given.
        handle: u64,
    },
    /// No chunk contains this address.
    NoSuchAddress {
        /// The address as given.
        pa: u64,
    },
    /// The chunk belongs to another client.
    WrongOwner {
        /// The handle as given.
        handle: u64,
    },
    /// The range does not fit into the chunk.
    OutOfBounds {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes that may be reached from the start of the chunk.
        limit: u64,
    },
    /// The client is not attached.
    NotAttached,
    /// The handle table is down for good (specification 04 §7.5).
    HandleTableDown,
    /// Taken by somebody else.
    Busy {
        /// What.
        what: &'static str,
    },
    /// The service has ended.
    Gone,
    /// The chunk may not be used like that: memory of the driver, or of a notification queue.
    Forbidden {
        /// What was refused.
        what: &'static str,
    },
    /// The answer does not fit into the room given; nothing was written.
    TooSmall {
        /// Entries there are.
        needed: usize,
    },
    /// No room of a fixed kind is left.
    NoSpace {
        /// Room for what.
        what: &'static str,
    },
    /// Not part of this build.
    Unsupported {
        /// What.
        what: &'static str,
    },
}

impl MemoryError {
    /// The number the Linux driver would have returned.
    pub const fn errno(&self) -> Errno {
        match self {
            MemoryError::Invalid { .. }
            | MemoryError::BadHandle { .. }
            | MemoryError::OutOfBounds { .. } => Errno::EINVAL,
            MemoryError::NoMemory { .. }
            | MemoryError::NoRecords
            | MemoryError::NoSuchAddress { .. } => Errno::ENOMEM,
            MemoryError::WrongOwner { .. } | MemoryError::Forbidden { .. } => Errno::EPERM,
            MemoryError::TooSmall { .. } => Errno::EAGAIN,
            MemoryError::NoSpace { .. } => Errno::ENOSPC,
            MemoryError::NotAttached => Errno::EACCES,
            MemoryError::HandleTableDown => Errno::ENOENT,
            MemoryError::Busy { .. } => Errno::EBUSY,
            MemoryError::Gone => Errno::ENODEV,
            MemoryError::Unsupported { .. } => Errno::EOPNOTSUPP,
        }
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MemoryError::Invalid { what, value } => write!(f, "{what} {value:#x} is not allowed"),
            MemoryError::NoMemory { asked: 0, .. } => f.write_str("size 0 is nothing to allocate"),
            MemoryError::NoMemory { location, asked, free, largest } => write!(
                f,
                "no {} memory for {asked} bytes (asked={asked} free={free} largest={largest})",
                match location {
                    Location::Host => "host",
                    Location::Device => "device",
                }
            ),
            MemoryError::NoRecords => f.write_str("no memory for the service's own records"),
            MemoryError::BadHandle { handle } => write!(f, "handle {handle} names no chunk"),
            MemoryError::NoSuchAddress { pa } => write!(f, "no chunk contains address {pa:#x}"),
            MemoryError::WrongOwner { handle } => {
                write!(f, "the chunk of handle {handle} belongs to another client")
            }
            MemoryError::OutOfBounds { offset, len, limit } => {
                write!(f, "{len} bytes at offset {offset} do not fit into {limit}")
            }
            MemoryError::NotAttached => f.write_str("the client is not attached to the device"),
            MemoryError::HandleTableDown => f.write_str("the handle table is exhausted for good"),
            MemoryError::Busy { what } => write!(f, "{what} is in use"),
            MemoryError::Gone => f.write_str("the memory service has ended"),
            MemoryError::Forbidden { what } => write!(f, "{what} is not allowed for this chunk"),
            MemoryError::TooSmall { needed } => write!(f, "room for {needed} entries is needed"),
            MemoryError::NoSpace { what } => write!(f, "no room for more {what}"),
            MemoryError::Unsupported { what } => write!(f, "{what} is not supported"),
        }
    }
}

impl core::error::Error for MemoryError {}

/// The pools of a device while the bring-up ladder still owns them (rungs D14 to D18): plain calls,
/// no task yet.
pub trait Pools: Send + 'static {
    /// Allocates at once.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing has changed.
    fn alloc(&mut self, request: &AllocRequest) -> Result<Chunk, MemoryError>;
}

/// How the driver asks the memory service for rings, markers and staging memory once the service
/// runs as a task. Clones reach the same service.
pub trait MemoryPort: Clone + Send + Sync + 'static {
    /// Allocates. Dropping the future before it resolves gives the chunk back.
    ///
    /// # Errors
    /// [`MemoryError`]; nothing has changed.
    fn alloc(
        &self,
        request: AllocRequest,
    ) -> impl Future<Output = Result<Chunk, MemoryError>> + Send;
}
