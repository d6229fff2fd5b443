//! Which versions clients run (specification 07 §2.3, §5.2).

use core::fmt;

use crate::DeviceCounter;

/// Software whose version a client tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Component {
    Runtime = 0,
    Framework = 1,
    Fal = 2,
}

/// All components with the counter that holds the version, and the label value.
pub(crate) fn components() -> [(Component, DeviceCounter, &'static str); 3] {
    [
        (Component::Runtime, DeviceCounter::RUNTIME_VERSION, "runtime"),
        (Component::Framework, DeviceCounter::FRAMEWORK_VERSION, "framework"),
        (Component::Fal, DeviceCounter::FAL_VERSION, "fal"),
    ]
}

/// A version word: build in bits 31:0, minor in 39:32, major in 47:40, the rest reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Version(pub u64);

impl Version {
    /// Whether it says anything beside a type.
    pub(super) fn has_number(self) -> bool {
        self.0 << 16 != 0
    }

    /// Framework type, 1 to 9; `None` for none.
    pub(super) fn framework_type(self) -> Option<u64> {
        Some((self.0 >> 48) % 10).filter(|digit| *digit != 0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 >> 40 & 0xff, self.0 >> 32 & 0xff, self.0 as u32)
    }
}

/// The eight most used versions of one component.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct History([(Version, u32); 8]);

impl History {
    /// Counts a use. An unknown version takes the place of the least used one.
    pub(crate) fn meet(&mut self, version: Version, uses: u32) {
        if version.0 == 0 {
            return;
        }
        if let Some((_, count)) = self.0.iter_mut().find(|entry| entry.0 == version) {
            *count = count.saturating_add(uses);
        } else if let Some(least) = self.0.iter_mut().min_by_key(|entry| entry.1) {
            *least = (version, uses);
        }
    }

    /// Adds all of another history.
    pub(super) fn merge(&mut self, other: &History) {
        other.0.iter().filter(|entry| entry.1 != 0).for_each(|entry| self.meet(entry.0, entry.1));
    }

    /// The two most used versions.
    pub(super) fn top_two(mut self) -> [Option<Version>; 2] {
        core::array::from_fn(|_| {
            let most = self.0.iter().map(|entry| entry.1).max()?;
            let entry = self.0.iter_mut().find(|entry| entry.1 == most && most != 0)?;
            entry.1 = 0;
            Some(entry.0)
        })
    }

    #[cfg(test)]
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Version, u32)> {
        self.0.iter().copied().filter(|entry| entry.1 != 0)
    }
}

#[cfg(test)]
pub(super) fn word(kind: u64, major: u64, minor: u64, build: u64) -> u64 {
    kind << 48 | major << 40 | minor << 32 | build
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn version_words() {
        let version = Version(word(14, 1, 2, 3));
        assert_eq!((format!("{version}").as_str(), version.framework_type()), ("1.2.3", Some(4)));
        assert_eq!(Version(word(10, 1, 0, 0)).framework_type(), None);
        assert!(!Version(word(1, 0, 0, 0)).has_number());
        let most = Version(word(0, 255, 255, 0xffff_ffff));
        assert_eq!(format!("{most}"), "255.255.4294967295");
    }

    #[test]
    fn tel_e13_nine_versions_eight_kept() {
        let mut history = History::default();
        for build in 1..=9 {
            history.meet(Version(word(0, 2, 0, build)), 1);
        }
        assert_eq!(history.entries().count(), 8);
        assert_eq!(history.top_two().map(|v| v.map(|v| v.0 as u32)), [Some(9), Some(2)]);
        history.meet(Version(word(0, 2, 0, 5)), 1);
        assert_eq!(history.top_two()[0], Some(Version(word(0, 2, 0, 5))));
    }

    #[test]
    fn words_of_zero_are_ignored() {
        let mut history = History::default();
        history.meet(Version(0), 1);
        assert_eq!(history.top_two(), [None, None]);
        history.meet(Version(7), 1);
        assert_eq!(history.top_two(), [Some(Version(7)), None]);
    }
}
