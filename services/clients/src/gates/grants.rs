//! What the machine's configuration lets a client do: gate 0 of specification 05 §8.1.

use core::fmt;

use super::GateError;

/// One thing that a client may be allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Grant {
    /// Reach the device at all, on either lane.
    Device = 1 << 0,
    /// Start, end or shape a pod election.
    PodControl = 1 << 1,
    /// Map arbitrary parts of device memory.
    RawDram = 1 << 2,
}

impl Grant {
    const EACH: [Grant; 3] = [Grant::Device, Grant::PodControl, Grant::RawDram];

    /// The first one whose bit is set.
    pub(crate) fn in_bits(bits: u8) -> Option<Grant> {
        Grant::EACH.into_iter().find(|&grant| bits & grant as u8 != 0)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Grant::Device => "Device",
            Grant::PodControl => "PodControl",
            Grant::RawDram => "RawDram",
        })
    }
}

/// The grants of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grants(u8);

impl Default for Grants {
    /// [`Grants::ALL`].
    fn default() -> Self {
        Grants::ALL
    }
}

impl Grants {
    /// Nothing at all.
    pub const NONE: Grants = Grants(0);
    /// The device, nothing else.
    pub const DEVICE: Grants = Grants::NONE.with(Grant::Device);
    /// Everything: the one application of an image.
    pub const ALL: Grants = Grants::DEVICE.with(Grant::PodControl).with(Grant::RawDram);

    /// These grants and `grant`.
    pub const fn with(self, grant: Grant) -> Self {
        Grants(self.0 | grant as u8)
    }

    /// These grants without `grant`.
    pub const fn without(self, grant: Grant) -> Self {
        Grants(self.0 & !(grant as u8))
    }

    /// What is among both: nobody can give more than there is.
    pub const fn and(self, other: Grants) -> Self {
        Grants(self.0 & other.0)
    }

    /// Bits of the grants that are not among them.
    pub(crate) const fn missing(self) -> u8 {
        Grants::ALL.0 & !self.0
    }

    /// Whether `grant` is among them.
    pub const fn contains(self, grant: Grant) -> bool {
        self.0 & grant as u8 != 0
    }

    /// Gate 0 where `grant` is [`Grant::Device`].
    ///
    /// # Errors
    /// EACCES; EPERM for raw device memory, as in Linux.
    pub const fn check(self, grant: Grant) -> Result<(), GateError> {
        if self.contains(grant) { Ok(()) } else { Err(GateError::NoGrant { grant }) }
    }
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::*;

    #[test]
    fn a_missing_grant_is_named() {
        assert_eq!(Grants::DEVICE.check(Grant::Device), Ok(()));
        let refused = Grants::DEVICE.check(Grant::PodControl).unwrap_err();
        assert_eq!(refused, GateError::NoGrant { grant: Grant::PodControl });
        assert_eq!(refused.errno(), Errno::EACCES);
        assert_eq!(Grants::DEVICE.check(Grant::RawDram).unwrap_err().errno(), Errno::EPERM);
        assert_eq!(Grants::NONE.check(Grant::Device).unwrap_err().errno(), Errno::EACCES);
        assert_eq!(Grants::ALL.check(Grant::RawDram), Ok(()));
    }
}
