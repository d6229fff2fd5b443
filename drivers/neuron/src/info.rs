//! What firmware says about the device: serial number, versions, errors, power (specification 01
//! §4, §5). A word that firmware has not set is no value.

use axon_platform::Platform;

use crate::registers::misc_ram;
use crate::{Error, NeuronDevice};

/// Errors of one memory since power-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EccCounts {
    /// Corrected.
    pub corrected: u16,
    /// Not corrected.
    pub uncorrected: u16,
}

/// Uncorrected errors of all HBM channels, by what can be done about them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HbmErrors {
    /// A repair is pending.
    pub repairable: u32,
    /// Nothing will repair them.
    pub unrepairable: u32,
}

/// Power of one die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerSample {
    /// Share of the maximum, in hundredths of a per cent: 0 to 10,000.
    pub basis_points: u16,
    /// Number of the sample; a new one counts up.
    pub number: u16,
}

fn value(word: u32) -> Option<u32> {
    (word != misc_ram::NOT_READY).then_some(word)
}

fn ecc(word: u32) -> Option<EccCounts> {
    value(word).map(|word| EccCounts { corrected: (word >> 16) as u16, uncorrected: word as u16 })
}

fn power(word: u32) -> Option<PowerSample> {
    let sample = PowerSample { basis_points: word as u16, number: (word >> 16) as u16 };
    value(word).map(|_| sample).filter(|sample| sample.basis_points <= 10_000)
}

/// `by_state`: V3 and V4 know whether a repair is pending; V2 repairs nothing.
fn hbm_errors(total: u32, state: Option<u32>, by_state: bool) -> HbmErrors {
    match state.map(|state| state & 3) {
        Some(1) if by_state => HbmErrors { repairable: total, unrepairable: 0 },
        Some(3) if by_state => HbmErrors::default(),
        _ => HbmErrors { repairable: 0, unrepairable: total },
    }
}

impl<P: Platform> NeuronDevice<P> {
    fn word(&self, offset: u64) -> Result<u32, Error> {
        self.shared().check_alive()?;
        self.shared().misc_ram(offset)
    }

    /// Word of MiscRAM at `offset`; `None` where firmware has not set it, or the device is gone.
    pub fn firmware_word(&self, offset: u32) -> Option<u32> {
        value(self.word(offset.into()).ok()?)
    }

    /// Serial number; `None` where firmware has not set one.
    ///
    /// # Errors
    /// [`Error::DeviceGone`], [`Error::Removed`]; so for every question to firmware.
    pub fn serial_number(&self) -> Result<Option<u64>, Error> {
        let low = value(self.word(misc_ram::SERIAL_LOW)?);
        let high = value(self.word(misc_ram::SERIAL_HIGH)?);
        let serial = high.zip(low).map(|(high, low)| u64::from(high) << 32 | u64::from(low));
        Ok(serial.filter(|&serial| serial != 0))
    }

    /// Version of the firmware interface; `None` where firmware has not set one.
    ///
    /// # Errors
    /// As [`NeuronDevice::serial_number`].
    pub fn firmware_version(&self) -> Result<Option<u32>, Error> {
        Ok(value(self.word(misc_ram::API_VERSION)?))
    }

    /// Errors of on-chip memory.
    ///
    /// # Errors
    /// As [`NeuronDevice::serial_number`].
    pub fn sram_ecc(&self) -> Result<Option<EccCounts>, Error> {
        Ok(ecc(self.word(misc_ram::SRAM_ECC)?))
    }

    /// Errors of one HBM channel.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a channel that the device has not.
    pub fn hbm_ecc(&self, channel: u32) -> Result<Option<EccCounts>, Error> {
        let channels = self.hal().tables().map.hbm_bases.len() as u32;
        if channel >= channels {
            return Err(Error::InvalidArgument { what: "HBM channel", value: channel.into() });
        }
        Ok(ecc(self.word(misc_ram::HBM_ECC + 4 * u64::from(channel))?))
    }

    /// Uncorrected errors of all channels. A channel without a value counts 0.
    ///
    /// # Errors
    /// As [`NeuronDevice::serial_number`].
    pub fn hbm_errors(&self) -> Result<HbmErrors, Error> {
        let mut total = 0u32;
        for channel in 0..self.hal().tables().map.hbm_bases.len() as u32 {
            let errors = self.hbm_ecc(channel)?.unwrap_or_default();
            total += u32::from(errors.uncorrected);
        }
        let state = value(self.word(misc_ram::HBM_REPAIR_STATE)?);
        let by_state = self.hal().generation() > crate::hal::identity::Generation::V2;
        Ok(hbm_errors(total, state, by_state))
    }

    /// Power of one die; `None` where there is no valid sample.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a die that the device has not.
    pub fn power(&self, die: u32) -> Result<Option<PowerSample>, Error> {
        if die >= u32::from(self.hal().dice()) {
            return Err(Error::InvalidArgument { what: "die", value: die.into() });
        }
        let version = self.firmware_version()?;
        if !self.hal().has_power_samples() || version.is_none_or(|v| v < misc_ram::API_WITH_POWER) {
            return Ok(None);
        }
        Ok(power(self.word(misc_ram::POWER + 4 * u64::from(die))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_e21_ecc_words() {
        assert_eq!(ecc(0x0003_0002), Some(EccCounts { corrected: 3, uncorrected: 2 }));
        assert_eq!(ecc(0xdead_beef), None);
        let total: u32 = [2, 0xdead_beef, 3, 0]
            .into_iter()
            .map(|word| u32::from(ecc(word).unwrap_or_default().uncorrected))
            .sum();
        assert_eq!(total, 5);
    }

    #[test]
    fn dev_e22_repair_state() {
        let of = |total, state| {
            let errors = hbm_errors(total, Some(state), true);
            (errors.repairable, errors.unrepairable)
        };
        assert_eq!(
            [(5, 1), (5, 2), (5, 0), (0, 1)].map(|(t, s)| of(t, s)),
            [(5, 0), (0, 5), (0, 5), (0, 0)]
        );
        assert_eq!(of(5, 0xffff_fffd), (5, 0));
        assert_eq!(hbm_errors(5, Some(1), false).unrepairable, 5);
    }

    #[test]
    fn dev_e23_power_words() {
        let sample = |basis_points, number| Some(PowerSample { basis_points, number });
        assert_eq!(power(0x0012_1388), sample(5000, 0x12));
        assert_eq!(power(0x0013_2711), None);
        assert_eq!(power(0xdead_beef), None);
    }
}
