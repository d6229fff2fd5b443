//! What the machine's configuration says about pods.

use core::time::Duration;

use crate::words::LinkMask;

/// How nodes find each other (specification 05 §16.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PodKind {
    /// By electing over links: platform ULTRASERVER.
    Links,
    /// Through a switch; firmware knows where the node is: platform PDS.
    Switch,
}

/// Bits of `userver_ctl` (specification 05 §16.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlBits(pub u32);

impl ControlBits {
    /// No election after the resets of the load.
    pub const SKIP: u32 = 1 << 0;
    /// Neighbours are read at their own addresses; for whoever implements the links.
    pub const REMOTE_BASE_ZERO: u32 = 1 << 1;
    /// More in the text log.
    pub const VERBOSE: u32 = 1 << 2;
    /// Secondaries fail after vetting.
    pub const FAIL_SECONDARIES: u32 = 1 << 3;
    /// The primary fails.
    pub const FAIL_PRIMARY: u32 = 1 << 4;
    /// The primary leaves out the data phase, and so fails.
    pub const SKIP_DATA_PHASE: u32 = 1 << 5;
    /// Forget what an earlier start has left in MiscRAM.
    pub const CLEAR: u32 = 1 << 6;
    /// Reads over left links fail.
    pub const FAIL_LEFT: u32 = 1 << 7;
    /// Reads over right links fail.
    pub const FAIL_RIGHT: u32 = 1 << 8;
    /// Right links only.
    pub const RIGHT_ONLY: u32 = 1 << 9;
    /// Left links only.
    pub const LEFT_ONLY: u32 = 1 << 10;

    /// Whether a bit is set.
    pub const fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// The one side that an election is forced to.
    pub(crate) const fn forced(self) -> Option<LinkMask> {
        if self.has(ControlBits::RIGHT_ONLY) {
            Some(LinkMask::RIGHT)
        } else if self.has(ControlBits::LEFT_ONLY) {
            Some(LinkMask::LEFT)
        } else {
            None
        }
    }
}

/// A switched pod that is known by the serial number of its device 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownNode {
    /// Serial number of device 0.
    pub device_serial: u64,
    /// Number of the node.
    pub node: u8,
    /// Serial of the pod.
    pub pod_serial: u64,
}

/// Configuration of the pod task.
#[derive(Clone, Copy, Debug)]
pub struct PodConfig {
    /// How nodes find each other.
    pub kind: PodKind,
    /// `userver_ctl`.
    pub control: ControlBits,
    /// `userver_etimeout`: for an election after the resets of the load, and for those resets.
    pub timeout: Duration,
    /// Serial of a switched pod without a reservation id.
    pub fallback_serial: u64,
    /// Switched nodes that are known beforehand.
    pub known: &'static [KnownNode],
}

impl PodConfig {
    /// How long an election may take unless told otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    /// Everything as Linux has it unless told otherwise.
    pub const fn new(kind: PodKind) -> Self {
        PodConfig {
            kind,
            control: ControlBits(0),
            timeout: Self::DEFAULT_TIMEOUT,
            fallback_serial: 1,
            known: &[],
        }
    }
}
