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

impl Grants {
    /// Nothing at all.
    pub const NONE: Grants = Grants(0);
    /// The device, nothing else.
    pub const DEFAULT: Grants = Grants::NONE.with(Grant::Device);
    /// Everything: the one application of an image.
    pub const ALL: Grants = Grants::DEFAULT.with(Grant::PodControl).with(Grant::RawDram);

    /// These grants and `grant`.
    pub const fn with(self, grant: Grant) -> Self {
        Grants(self.0 | grant as u8)
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
        assert_eq!(Grants::DEFAULT.check(Grant::Device), Ok(()));
        let refused = Grants::DEFAULT.check(Grant::PodControl).unwrap_err();
        assert_eq!(refused, GateError::NoGrant { grant: Grant::PodControl });
        assert_eq!(refused.errno(), Errno::EACCES);
        assert_eq!(Grants::DEFAULT.check(Grant::RawDram).unwrap_err().errno(), Errno::EPERM);
        assert_eq!(Grants::NONE.check(Grant::Device).unwrap_err().errno(), Errno::EACCES);
        assert_eq!(Grants::ALL.check(Grant::RawDram), Ok(()));
    }
}
