//! The seam to the hardware: the host's own MiscRAM and, over inter-node links, that of the
//! neighbours (specification 05 §16.1, §16.4).

use core::fmt;
use core::future::Future;

use axon_platform::Errno;

use crate::words::LinkMask;

/// Devices of an UltraServer node. Device 0 is the primary.
pub const DEVICES: u8 = 16;

/// A device of this node, below [`DEVICES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodDevice(u8);

impl PodDevice {
    /// The one that computes the node id.
    pub const PRIMARY: PodDevice = PodDevice(0);

    /// The device with this index on its host; `None` behind the last one of a node.
    pub const fn new(index: u32) -> Option<Self> {
        if index < DEVICES as u32 { Some(PodDevice(index as u8)) } else { None }
    }

    /// Its index.
    pub const fn index(self) -> u8 {
        self.0
    }

    /// The devices that only vet links, ascending.
    pub fn secondaries() -> impl Iterator<Item = Self> {
        (1..DEVICES).map(PodDevice)
    }
}

impl fmt::Display for PodDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nd{}", self.0)
    }
}

/// Direction of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Vertical.
    Left,
    /// Horizontal.
    Right,
}

impl Side {
    /// Both, left first.
    pub const ALL: [Side; 2] = [Side::Left, Side::Right];

    /// The links on this side.
    pub const fn links(self) -> LinkMask {
        match self {
            Side::Left => LinkMask::LEFT,
            Side::Right => LinkMask::RIGHT,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Left => "left",
            Side::Right => "right",
        })
    }
}

/// One of the two links of a side. Both lead to the same neighbour and must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Engines 36 and 4 (V4: 40 and 8).
    First,
    /// Engines 68 and 100 (V4: 72 and 104).
    Second,
}

impl Lane {
    /// Both.
    pub const ALL: [Lane; 2] = [Lane::First, Lane::Second];
}

/// A word could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// The host's own device is absent or gone.
    DeviceGone,
    /// The neighbour did not answer in time, or the link engine failed.
    NoAnswer,
    /// The engine of the link is somebody else's.
    Busy,
    /// This build reads over no links.
    Unsupported,
}

impl WireError {
    /// EIO; ENODEV for an absent device, EBUSY for an engine in use, EOPNOTSUPP where there is no
    /// way to read.
    pub const fn errno(self) -> Errno {
        match self {
            WireError::DeviceGone => Errno::ENODEV,
            WireError::NoAnswer => Errno::EIO,
            WireError::Busy => Errno::EBUSY,
            WireError::Unsupported => Errno::EOPNOTSUPP,
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WireError::DeviceGone => "the device is absent or gone",
            WireError::NoAnswer => "no answer over the link",
            WireError::Busy => "the engine of the link is in use",
            WireError::Unsupported => "reads over links are not part of this build",
        })
    }
}

/// MiscRAM of the host's own devices. Offsets are bytes from its base.
pub trait OwnWords: Send + Sync + 'static {
    /// Reads a word.
    ///
    /// # Errors
    /// [`WireError::DeviceGone`].
    fn read_own(&self, device: PodDevice, offset: u32) -> Result<u32, WireError>;

    /// Writes a word.
    ///
    /// # Errors
    /// [`WireError::DeviceGone`].
    fn write_own(&self, device: PodDevice, offset: u32, value: u32) -> Result<(), WireError>;
}

/// MiscRAM of the neighbours, read by DMA over a link.
pub trait NeighbourWords: Send + Sync + 'static {
    /// A lease on queue 0 of one link engine. Dropped, it is given back as soon as the hardware is
    /// quiet.
    type Session: Send;

    /// Takes the engine of a link and sets its queue up.
    ///
    /// # Errors
    /// [`WireError`]; nothing is leased.
    fn open(
        &self,
        device: PodDevice,
        side: Side,
        lane: Lane,
    ) -> impl Future<Output = Result<Self::Session, WireError>> + Send;

    /// Reads consecutive words of the neighbour's MiscRAM, about 4 ms at most.
    ///
    /// # Errors
    /// [`WireError::NoAnswer`]; `into` is unspecified.
    fn read(
        &self,
        session: &mut Self::Session,
        offset: u32,
        into: &mut [u32],
    ) -> impl Future<Output = Result<(), WireError>> + Send;

    /// Parks the queue, waits until the hardware is quiet, gives the engine back.
    fn close(&self, session: Self::Session) -> impl Future<Output = ()> + Send;
}
