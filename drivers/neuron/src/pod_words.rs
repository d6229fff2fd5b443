//! MiscRAM as the pod task uses it (specification 05 §16.2): it reads what firmware says of the node
//! and owns what neighbours read of the device.

use core::ops::RangeInclusive;

use axon_platform::{MmioWindow, Platform};

use crate::registers::misc_ram;
use crate::{Error, NeuronDevice};

/// Words that the pod task writes and nobody else: what neighbours are told, status, pod serial.
const OWNED: RangeInclusive<u32> = 0x180..=0x198;

impl<P: Platform> NeuronDevice<P> {
    /// Reads the MiscRAM word at `offset` as it is.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::DeviceGone`], [`Error::Removed`].
    pub fn pod_word(&self, offset: u32) -> Result<u32, Error> {
        if !offset.is_multiple_of(4) || u64::from(offset) >= misc_ram::LEN {
            return Err(Error::InvalidArgument { what: "pod word", value: offset.into() });
        }
        self.shared().check_alive()?;
        self.shared().misc_ram(offset.into())
    }

    /// Writes one of the words 0x180 to 0x198. Only the pod task does.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any other word, [`Error::DeviceGone`], [`Error::Removed`].
    pub fn set_pod_word(&self, offset: u32, value: u32) -> Result<(), Error> {
        if !offset.is_multiple_of(4) || !OWNED.contains(&offset) {
            return Err(Error::InvalidArgument { what: "pod word", value: offset.into() });
        }
        let shared = self.shared();
        shared.check_alive()?;
        let base = shared.hal.tables().map.misc_ram;
        shared.registers.write32(base + u64::from(offset), value);
        Ok(())
    }
}
