//! Live hardware sources: identity, memory errors, activity of the PE array (specification 07 §4).

use core::fmt;

use crate::DeviceSensors;

/// Offsets in MiscRAM (specification 01 §4).
pub(crate) mod misc {
    pub const API_VERSION: u32 = 0x00;
    pub const SERIAL_LOW: u32 = 0x38;
    pub const SERIAL_HIGH: u32 = 0x3c;
    pub const SRAM_ECC: u32 = 0x40;
    pub const HBM_ECC: u32 = 0x44;
    pub const POWER: u32 = 0x54;
    pub const HBM_REPAIR: u32 = 0x64;
}

/// Firmware API version; `None` where it cannot be told, which is never "at least 3".
pub fn api_version(sensors: &impl DeviceSensors) -> Option<u32> {
    sensors.misc_ram(misc::API_VERSION)
}

/// Serial number; `None` where either half is absent, or the whole is 0.
pub fn serial_number(sensors: &impl DeviceSensors) -> Option<u64> {
    let low = sensors.misc_ram(misc::SERIAL_LOW)?;
    let high = sensors.misc_ram(misc::SERIAL_HIGH)?;
    Some(u64::from(high) << 32 | u64::from(low)).filter(|serial| *serial != 0)
}

/// Errors of one memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EccCount {
    /// Not corrected.
    pub uncorrected: u16,
    /// Corrected.
    pub corrected: u16,
}

impl EccCount {
    fn from_register(word: u32) -> Self {
        EccCount { uncorrected: word as u16, corrected: (word >> 16) as u16 }
    }
}

/// HBM errors that were not corrected, split by what can be done about them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HbmErrors {
    /// A repair is pending.
    pub repairable: u64,
    /// Others.
    pub other: u64,
}

/// All memory-error registers of a device as they were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EccReadings {
    /// On-chip memory.
    pub sram: Option<EccCount>,
    /// HBM channels.
    pub hbm: [Option<EccCount>; 4],
    /// Repair state of HBM: 0 none, 1 pending, 2 failed.
    pub repair_state: Option<u8>,
}

impl EccReadings {
    /// Reads all registers of a device with `channels` HBM channels.
    pub fn read(sensors: &impl DeviceSensors, channels: u8) -> Self {
        let ecc = |offset| sensors.misc_ram(offset).map(EccCount::from_register);
        let mut hbm = [None; 4];
        for (channel, offset) in
            hbm.iter_mut().zip((misc::HBM_ECC..).step_by(4)).take(channels.into())
        {
            *channel = ecc(offset);
        }
        EccReadings {
            sram: ecc(misc::SRAM_ECC),
            hbm,
            repair_state: sensors.misc_ram(misc::HBM_REPAIR).map(|word| (word & 3) as u8),
        }
    }

    /// Whether nothing at all could be read.
    pub fn is_blind(&self) -> bool {
        self.sram.is_none() && self.hbm.iter().all(Option::is_none) && self.repair_state.is_none()
    }

    /// Errors of on-chip memory that were not corrected; an unreadable register counts 0.
    pub fn sram_uncorrected(&self) -> u64 {
        self.sram.map_or(0, |count| count.uncorrected.into())
    }

    /// HBM errors by the rules of specification 07 §4.1. The second value tells that the repair
    /// state contradicts the counts, which is worth one warning.
    pub fn hbm_errors(&self, knows_repair: bool) -> (HbmErrors, bool) {
        let total: u64 = self.hbm.iter().flatten().map(|count| u64::from(count.uncorrected)).sum();
        if !knows_repair {
            return (HbmErrors { repairable: 0, other: total }, false);
        }
        match self.repair_state {
            None => (HbmErrors::default(), false),
            Some(state) if total == 0 => (HbmErrors::default(), state != 0),
            Some(1) => (HbmErrors { repairable: total, other: 0 }, false),
            // State 0 is old firmware.
            Some(0 | 2) => (HbmErrors { repairable: 0, other: total }, false),
            Some(_) => (HbmErrors::default(), false),
        }
    }
}

/// Where the activity counters of the PE array are (specification 01 §3.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeLayout {
    /// Counter area of each core in BAR0.
    pub areas: &'static [u64],
    /// Bytes of one register group.
    pub group: u64,
    /// Register groups of one row group.
    pub buses: u64,
    /// Group of the normal weight-load counter.
    pub weight_load_group: u64,
    /// The normal weight-load counter would count twice.
    pub weight_load_is_fast_total: bool,
}

/// Row groups of a PE array.
pub const ROW_GROUPS: usize = 4;

/// Cycles of one row group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeRow {
    /// Multiplying.
    pub matmul: u64,
    /// Loading weights.
    pub weight_load: u64,
    /// Idle.
    pub idle: u64,
}

impl PeLayout {
    /// Offset of the low half of a counter; the high half is 4 bytes further on.
    fn offset(&self, core: usize, row: u64, in_row: u64) -> Option<u64> {
        self.areas.get(core).map(|area| area + row * self.buses * self.group + in_row)
    }

    fn matmul(&self) -> u64 {
        4 * self.group
    }

    fn idle(&self) -> u64 {
        4 * self.group + 0x10
    }

    /// Reads one row group of a core; `None` where a register cannot be read or does not hold
    /// still.
    pub fn read_row(&self, sensors: &impl DeviceSensors, core: usize, row: u64) -> Option<PeRow> {
        let read = |in_row| read_wide(sensors, self.offset(core, row, in_row)?);
        let mut weight_load = 0_u64;
        for column in 0..4 {
            weight_load = weight_load.wrapping_add(read(column * self.group + 8)?);
        }
        if !self.weight_load_is_fast_total {
            weight_load = weight_load.wrapping_add(read(self.weight_load_group * self.group + 8)?);
        }
        Some(PeRow { matmul: read(self.matmul())?, weight_load, idle: read(self.idle())? })
    }
}

/// A 64-bit counter in two halves: high, low, high, again while the highs differ, three times at
/// most.
fn read_wide(sensors: &impl DeviceSensors, low_offset: u64) -> Option<u64> {
    let mut high = sensors.register(low_offset + 4)?;
    for _ in 0..3 {
        let low = sensors.register(low_offset)?;
        let again = sensors.register(low_offset + 4)?;
        if again == high {
            return Some(u64::from(high) << 32 | u64::from(low));
        }
        high = again;
    }
    None
}

/// The text of `pe_cntrs` (specification 07 §4.3).
pub(crate) struct PeText<'a>(pub &'a [PeRow]);

impl fmt::Display for PeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("xrow_grp,mm_active,wl_active,idle")?;
        for (at, row) in self.0.iter().enumerate() {
            write!(f, "\n{at},{},{},{}", row.matmul, row.weight_load, row.idle)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::testing::{FakeDevice, V2_PE, V3_PE};

    #[test]
    fn tel_e29_tel_e30_sram_errors() {
        let device = FakeDevice::v2();
        device.set_misc(misc::SRAM_ECC, 0x0005_0003);
        let ecc = EccReadings::read(&device, 2);
        assert_eq!(ecc.sram, Some(EccCount { uncorrected: 3, corrected: 5 }));
        assert_eq!(ecc.sram_uncorrected(), 3);
        device.set_misc(misc::SRAM_ECC, 0xdead_beef);
        assert_eq!(EccReadings::read(&device, 2).sram_uncorrected(), 0);
    }

    fn hbm(device: &FakeDevice, counts: &[u32], repair: u32, v3: bool) -> (u64, u64, bool) {
        for (offset, count) in (misc::HBM_ECC..).step_by(4).zip(counts) {
            device.set_misc(offset, *count);
        }
        device.set_misc(misc::HBM_REPAIR, repair);
        let (errors, odd) = EccReadings::read(device, counts.len() as u8).hbm_errors(v3);
        (errors.repairable, errors.other, odd)
    }

    #[test]
    fn tel_e31_hbm_errors_by_repair_state() {
        let device = FakeDevice::v3();
        let counts = [2, 0, 1, 0];
        assert_eq!(hbm(&device, &counts, 1, true), (3, 0, false));
        assert_eq!(hbm(&device, &counts, 2, true), (0, 3, false));
        assert_eq!(hbm(&device, &counts, 0, true), (0, 3, false));
        assert_eq!(hbm(&device, &counts, 3, true), (0, 0, false), "no such state");
        assert_eq!(hbm(&device, &[2, 0xdead_beef, 1, 0], 1, true), (3, 0, false));
        assert_eq!(hbm(&device, &counts, 0xdead_beef, true), (0, 0, false));
    }

    #[test]
    fn tel_e32_no_errors_but_a_repair_is_worth_a_warning() {
        assert_eq!(hbm(&FakeDevice::v3(), &[0; 4], 1, true), (0, 0, true));
    }

    #[test]
    fn tel_e33_v2_knows_no_repair() {
        assert_eq!(hbm(&FakeDevice::v2(), &[2, 1], 1, false), (0, 3, false));
    }

    #[test]
    fn tel_e37_tel_e38_where_the_pe_counters_are() {
        assert_eq!(V2_PE.offset(1, 2, V2_PE.matmul()), Some(0x30cb_1480));
        assert_eq!(V3_PE.offset(0, 3, V3_PE.idle()), Some(0x0614_16e0));
        assert_eq!(V3_PE.offset(4, 0, 0), Some(0x4614_1100));
        assert_eq!(V3_PE.offset(8, 0, 0), None);
    }

    #[test]
    fn weight_loads_add_up_as_the_generation_wants() {
        let device = FakeDevice::v3();
        for column in 0..4 {
            device.set_register(0x0614_1108 + column * 0x30, 10);
        }
        device.set_register(0x0614_1100 + 8 * 0x30 + 8, 7);
        assert_eq!(V3_PE.read_row(&device, 0, 0).unwrap().weight_load, 47);

        let device = FakeDevice::v2();
        for column in 0..4 {
            device.set_register(0x305b_1108 + column * 0x40, 10);
        }
        assert_eq!(V2_PE.read_row(&device, 0, 0).unwrap().weight_load, 40);
    }

    #[test]
    fn tel_e39_tel_d30_a_carry_between_two_reads_is_seen() {
        let device = FakeDevice::v2();
        let at = 0x305b_1200;
        // High 0; by the time the low half is read, the counter has wrapped to 0x1_0000_0000.
        device.script_register(at + 4, &[0, 1, 1]);
        device.script_register(at, &[0, 0]);
        assert_eq!(read_wide(&device, at), Some(0x1_0000_0000));
        device.script_register(at + 4, &[0, 0]);
        device.script_register(at, &[0xffff_ffff]);
        assert_eq!(read_wide(&device, at), Some(0xffff_ffff));
    }

    #[test]
    fn a_counter_that_never_holds_still_has_no_value() {
        let device = FakeDevice::v2();
        device.script_register(0x305b_1204, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(read_wide(&device, 0x305b_1200), None);
        device.gone();
        assert_eq!(read_wide(&device, 0x305b_1200), None);
    }

    #[test]
    fn tel_d31_the_text_is_as_long_as_it_has_to_be() {
        let row = PeRow { matmul: u64::MAX, weight_load: u64::MAX, idle: u64::MAX };
        let text = format!("{}", PeText(&[row; ROW_GROUPS]));
        assert_eq!(text.lines().count(), 5);
        assert!(text.len() > 256 && text.ends_with("18446744073709551615"));
    }

    #[test]
    fn tel_e45_serial_number() {
        let device = FakeDevice::v2();
        device.set_misc(misc::SERIAL_LOW, 0x9abc_def0);
        device.set_misc(misc::SERIAL_HIGH, 0x1234_5678);
        assert_eq!(serial_number(&device), Some(0x1234_5678_9abc_def0));
        device.set_misc(misc::SERIAL_HIGH, 0xdead_beef);
        assert_eq!(serial_number(&device), None);
        device.set_misc(misc::SERIAL_HIGH, 0);
        device.set_misc(misc::SERIAL_LOW, 0xdead_beef);
        assert_eq!(serial_number(&device), None);
        device.set_misc(misc::SERIAL_LOW, 0);
        assert_eq!(serial_number(&device), None);
    }
}
