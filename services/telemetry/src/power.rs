//! Power utilisation: samples of one wall-clock minute at a time (specification 05 §15.1, 07 §4.2).

use core::fmt;
use core::time::Duration;

use crate::DeviceSensors;
use crate::sensors::{api_version, misc};

/// A window with fewer samples has no data.
const WINDOW_SAMPLES: u64 = 60;
/// 100.00 %.
const FULL: u32 = 10_000;
/// Oldest firmware API with power registers.
const OLDEST_API: u32 = 3;
/// Dice that can be told apart.
const DICE: usize = 2;

/// Whether a window has data. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PowerStatus {
    /// Enough samples.
    Valid = 0,
    /// Too few, or none yet.
    #[default]
    NoData = 1,
}

/// The last complete window. Figures are hundredths of a percent, 0 to 10000.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PowerWindow {
    /// Whether the figures mean something.
    pub status: PowerStatus,
    /// When the window ended, in wall-clock time; before the first one, when the device came.
    pub ended: Duration,
    /// Samples of the window.
    pub samples: u64,
    /// Lowest.
    pub min: u32,
    /// Highest.
    pub max: u32,
    /// Sum divided by count.
    pub average: u32,
}

impl fmt::Display for PowerWindow {
    /// The text of the file `utilization`, without the newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = match self.status {
            PowerStatus::Valid => "POWER_STATUS_VALID",
            PowerStatus::NoData => "POWER_STATUS_NO_DATA",
        };
        write!(f, "{status},{}", self.ended.as_secs())?;
        for figure in [self.min, self.max, self.average] {
            write!(f, ",{}.{:02}", figure / 100, figure % 100)?;
        }
        Ok(())
    }
}

/// What one look at the registers brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampled {
    /// A sample in hundredths of a percent.
    Taken(u32),
    /// A die has no new sample.
    Duplicate,
    /// More than 100 %; nothing was counted.
    Rejected(u32),
    /// Firmware is too old, or does not say.
    Unsupported,
    /// A register could not be read.
    Unreadable,
}

/// Collects samples and publishes a window when the minute changes.
#[derive(Debug)]
pub(crate) struct PowerSampler {
    dice: usize,
    /// Sample number of each die at the last sample taken.
    last: [Option<u16>; DICE],
    count: u64,
    sum: u64,
    min: u32,
    max: u32,
    published: PowerWindow,
}

impl PowerSampler {
    /// Nothing sampled; the device came at `now`, in wall-clock time.
    pub(crate) fn new(dice: u8, now: Duration) -> Self {
        PowerSampler {
            dice: usize::from(dice).min(DICE),
            last: [None; DICE],
            count: 0,
            sum: 0,
            min: FULL,
            max: 0,
            published: PowerWindow { ended: now, ..PowerWindow::default() },
        }
    }

    /// The last complete window.
    pub(crate) fn window(&self) -> PowerWindow {
        self.published
    }

    /// One tick: takes a sample where there is a new one, then publishes where the minute of `now`
    /// is not that of the last window.
    pub(crate) fn tick(&mut self, sensors: &impl DeviceSensors, now: Duration) -> Sampled {
        let sampled = self.sample(sensors);
        if now.as_secs() / 60 != self.published.ended.as_secs() / 60 {
            self.publish(now);
        }
        sampled
    }

    fn sample(&mut self, sensors: &impl DeviceSensors) -> Sampled {
        if api_version(sensors).is_none_or(|version| version < OLDEST_API) {
            return Sampled::Unsupported;
        }
        let mut words = [0; DICE];
        for (word, offset) in words.iter_mut().zip((misc::POWER..).step_by(4)).take(self.dice) {
            match sensors.misc_ram(offset) {
                Some(read) => *word = read,
                None => return Sampled::Unreadable,
            }
        }
        self.fold(words)
    }

    fn fold(&mut self, words: [u32; DICE]) -> Sampled {
        let number = |word: u32| Some((word >> 16) as u16);
        let dice = words.iter().zip(&self.last).take(self.dice);
        if self.dice == 0 || dice.clone().any(|(word, last)| number(*word) == *last) {
            return Sampled::Duplicate;
        }
        let value = dice.map(|(word, _)| word & 0xffff).max().unwrap_or(0);
        if value > FULL {
            return Sampled::Rejected(value);
        }
        self.last = words.map(number);
        self.count += 1;
        self.sum += u64::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        Sampled::Taken(value)
    }

    fn publish(&mut self, now: Duration) {
        let empty = PowerWindow { ended: now, samples: self.count, ..PowerWindow::default() };
        self.published = if self.count < WINDOW_SAMPLES {
            empty
        } else {
            PowerWindow {
                status: PowerStatus::Valid,
                min: self.min,
                max: self.max,
                average: (self.sum / self.count) as u32,
                ..empty
            }
        };
        (self.count, self.sum, self.min, self.max) = (0, 0, FULL, 0);
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::FakeDevice;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn word(number: u32, value: u32) -> u32 {
        number << 16 | value
    }

    /// `count` different samples of die 0 within one minute.
    fn feed(sampler: &mut PowerSampler, device: &FakeDevice, count: u32, minute: u64) {
        for number in 0..count {
            device.set_misc(misc::POWER, word(number + 1, 307 + number));
            assert_eq!(sampler.tick(device, at(minute * 60)), Sampled::Taken(307 + number));
        }
    }

    #[test]
    fn tel_e34_st_e43_all_dice_have_to_move_on() {
        let device = FakeDevice::v3();
        let mut sampler = PowerSampler::new(2, at(0));
        let mut tick = |die_0, die_1| {
            device.set_misc(misc::POWER, die_0);
            device.set_misc(misc::POWER + 4, die_1);
            sampler.tick(&device, at(1))
        };
        assert_eq!(tick(word(1, 10), word(1, 20)), Sampled::Taken(20), "the largest");
        assert_eq!(tick(word(2, 30), word(1, 20)), Sampled::Duplicate);
        assert_eq!(tick(word(3, 30), word(2, 20)), Sampled::Taken(30));
        assert_eq!(tick(0x0005_03e8, 0x0009_07d0), Sampled::Taken(2000));
        assert_eq!(tick(0x0006_03e8, 0x0009_07d0), Sampled::Duplicate, "only die 0 moved on");
        assert_eq!(sampler.count, 3);
    }

    #[test]
    fn tel_e35_st_e45_59_samples_are_no_data_60_are() {
        let device = FakeDevice::v2();
        let mut sampler = PowerSampler::new(1, at(60));
        feed(&mut sampler, &device, 59, 1);
        sampler.tick(&device, at(120));
        assert_eq!(
            sampler.window(),
            PowerWindow { ended: at(120), samples: 59, ..PowerWindow::default() }
        );
        feed(&mut sampler, &device, 60, 2);
        sampler.tick(&device, at(180));
        assert_eq!(format!("{}", sampler.window()), "POWER_STATUS_VALID,180,3.07,3.66,3.36");
        sampler.tick(&device, at(240));
        assert_eq!(format!("{}", sampler.window()), "POWER_STATUS_NO_DATA,240,0.00,0.00,0.00");
    }

    #[test]
    fn st_e42_a_word_that_is_read_twice_counts_once() {
        let device = FakeDevice::v2();
        let mut sampler = PowerSampler::new(1, at(0));
        let words = [0x0001_0064, 0x0001_0064, 0x0002_0190];
        let sampled = words.map(|word| {
            device.set_misc(misc::POWER, word);
            sampler.tick(&device, at(1))
        });
        assert_eq!(sampled, [Sampled::Taken(100), Sampled::Duplicate, Sampled::Taken(400)]);
    }

    #[test]
    fn st_e44_firmware_that_is_not_ready_is_no_sample() {
        let device = FakeDevice::v2();
        let mut sampler = PowerSampler::new(1, at(0));
        device.set_misc(misc::POWER, 0xdead_beef);
        let sampled = sampler.tick(&device, at(1));
        assert!(!matches!(sampled, Sampled::Taken(_)), "{sampled:?}");
        assert_eq!((sampler.count, sampler.last), (0, [None; DICE]));
        // Its upper half is a number that a real sample may have.
        device.set_misc(misc::POWER, 0xdead_0001);
        assert_eq!(sampler.tick(&device, at(2)), Sampled::Taken(1));
    }

    #[test]
    fn tel_e36_more_than_all_is_not_counted() {
        let device = FakeDevice::v2();
        let mut sampler = PowerSampler::new(1, at(0));
        device.set_misc(misc::POWER, word(1, 10_001));
        assert_eq!(sampler.tick(&device, at(1)), Sampled::Rejected(10_001));
        device.set_misc(misc::POWER, word(1, 10_000));
        assert_eq!(
            sampler.tick(&device, at(1)),
            Sampled::Taken(10_000),
            "sample number not stored"
        );
    }

    #[test]
    fn st_e46_old_firmware_has_no_data_each_minute() {
        for version in [2, 0xdead_beef] {
            let device = FakeDevice::v2();
            device.set_misc(misc::API_VERSION, version);
            device.set_misc(misc::POWER, word(1, 1));
            let mut sampler = PowerSampler::new(1, at(0));
            assert_eq!(sampler.tick(&device, at(59)), Sampled::Unsupported);
            assert_eq!(sampler.window().ended, at(0));
            sampler.tick(&device, at(60));
            assert_eq!(sampler.window().ended, at(60));
            assert_eq!(sampler.window().status, PowerStatus::NoData);
        }
    }

    #[test]
    fn tel_d29_a_device_that_never_published_has_no_data_since_it_came() {
        let sampler = PowerSampler::new(1, at(77));
        assert_eq!(format!("{}", sampler.window()), "POWER_STATUS_NO_DATA,77,0.00,0.00,0.00");
    }

    #[test]
    fn an_absent_register_is_no_sample() {
        let device = FakeDevice::v3();
        device.set_misc(misc::POWER, word(1, 1));
        device.set_misc(misc::POWER + 4, 0xdead_beef);
        let mut sampler = PowerSampler::new(2, at(0));
        assert_eq!(sampler.tick(&device, at(1)), Sampled::Unreadable);
    }

    proptest! {
        /// Figures of a window against the plain list of its samples.
        #[test]
        fn a_window_is_what_its_samples_say(
            samples in proptest::collection::vec(0..=10_000_u32, 60..200)
        ) {
            let mut sampler = PowerSampler::new(1, at(0));
            for (number, value) in samples.iter().enumerate() {
                sampler.fold([word(number as u32, *value), 0]);
            }
            sampler.publish(at(60));
            let window = sampler.window();
            prop_assert_eq!(Some(&window.min), samples.iter().min());
            prop_assert_eq!(Some(&window.max), samples.iter().max());
            prop_assert_eq!(window.average, samples.iter().sum::<u32>() / samples.len() as u32);
        }
    }
}
