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

/// Who the device is, as firmware says. What it has not set is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Version of the firmware interface.
    pub api_version: Option<u32>,
    /// Serial number.
    pub serial: Option<u64>,
    /// Server in its pod.
    pub server: Option<u16>,
    /// Rack of the server.
    pub rack: Option<u16>,
    /// Devices of the instance.
    pub instance_size: Option<u8>,
    /// Devices of the partition.
    pub partition_size: Option<u16>,
    /// Reservation the instance belongs to.
    pub reservation: Option<u64>,
}

/// How the device is, as firmware says. What it has not set is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// On-chip memory.
    pub sram: Option<EccCounts>,
    /// HBM channels that the device has.
    pub hbm: [Option<EccCounts>; 4],
    /// What becomes of the errors of HBM.
    pub hbm_errors: HbmErrors,
    /// Repair of HBM: 0 none, 1 pending, 2 failed.
    pub repair_state: Option<u8>,
    /// Power of each die, where it is sampled.
    pub power: [Option<PowerSample>; 2],
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

/// What becomes of `total` errors. Without `by_state` nothing is ever repaired; with it, errors
/// whose state cannot be told are not counted (specification 07 §4.1).
fn hbm_errors(total: u32, state: Option<u8>, by_state: bool) -> HbmErrors {
    let unrepairable = HbmErrors { repairable: 0, unrepairable: total };
    match state {
        _ if !by_state => unrepairable,
        Some(1) => HbmErrors { repairable: total, unrepairable: 0 },
        // State 0 is old firmware.
        Some(0 | 2) => unrepairable,
        _ => HbmErrors::default(),
    }
}

fn repair(word: u32) -> Option<u8> {
    value(word).map(|word| word as u8 & 3)
}

/// A field of a word behind a bit that says whether it means anything.
fn field(word: Option<u32>, valid: u32, shift: u32) -> Option<u16> {
    word.filter(|word| word >> valid & 1 == 1).map(|word| (word >> shift) as u16 & 0x7fff)
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

    /// Repair state of HBM: 0 none, 1 pending, 2 failed.
    ///
    /// # Errors
    /// As [`NeuronDevice::serial_number`].
    pub fn repair_state(&self) -> Result<Option<u8>, Error> {
        Ok(repair(self.word(misc_ram::HBM_REPAIR_STATE)?))
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
        Ok(hbm_errors(total, self.repair_state()?, self.hal().tables().knows_repair))
    }

    /// Everything firmware says about who the device is.
    ///
    /// # Errors
    /// As [`NeuronDevice::serial_number`].
    pub fn identity(&self) -> Result<Identity, Error> {
        let server = value(self.word(misc_ram::SERVER_RACK_ID)?);
        let partition = value(self.word(misc_ram::INSTANCE_PARTITION)?);
        let high = value(self.word(misc_ram::RESERVATION_HIGH)?);
        let low = value(self.word(misc_ram::RESERVATION_LOW)?);
        let reservation = high.zip(low).map(|(high, low)| u64::from(high) << 32 | u64::from(low));
        Ok(Identity {
            api_version: self.firmware_version()?,
            serial: self.serial_number()?,
            server: field(server, 15, 0),
            rack: field(server, 31, 16),
            instance_size: partition.map(|word| word as u8 & 0x3f).filter(|&size| size != 0),
            partition_size: field(partition, 31, 16),
            reservation: reservation.filter(|&id| id != 0),
        })
    }

    /// Everything firmware says about how the device is.
    ///
    /// # Errors
    /// As [`NeuronDevice::serial_number`].
    pub fn health(&self) -> Result<Health, Error> {
        let mut health = Health {
            sram: self.sram_ecc()?,
            hbm_errors: self.hbm_errors()?,
            repair_state: self.repair_state()?,
            ..Health::default()
        };
        let channels = self.hal().tables().map.hbm_bases.len();
        for (channel, place) in (0u32..).zip(health.hbm.iter_mut().take(channels)) {
            *place = self.hbm_ecc(channel)?;
        }
        for (die, place) in (0..u32::from(self.hal().dice())).zip(health.power.iter_mut()) {
            *place = self.power(die)?;
        }
        Ok(health)
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
        assert_eq!((repair(0xffff_fffd), repair(0xdead_beef)), (Some(1), None));
        assert_eq!(of(5, 3), (0, 0));
        assert_eq!(hbm_errors(5, None, true), HbmErrors::default());
        for state in [None, Some(0), Some(1), Some(2), Some(3)] {
            assert_eq!(hbm_errors(5, state, false), HbmErrors { repairable: 0, unrepairable: 5 });
        }
    }

    #[test]
    fn fields_mean_nothing_without_their_bit() {
        assert_eq!(field(Some(0x8003), 15, 0), Some(3));
        assert_eq!(field(Some(0x0003), 15, 0), None);
        assert_eq!(field(Some(0x8005_0003), 31, 16), Some(5));
        assert_eq!(field(value(0xdead_beef), 15, 0), None);
        assert_eq!(field(Some(u32::MAX), 31, 16), Some(0x7fff));
    }

    #[test]
    fn dev_e23_power_words() {
        let sample = |basis_points, number| Some(PowerSample { basis_points, number });
        assert_eq!(power(0x0012_1388), sample(5000, 0x12));
        assert_eq!(power(0x0013_2711), None);
        assert_eq!(power(0xdead_beef), None);
    }
}
