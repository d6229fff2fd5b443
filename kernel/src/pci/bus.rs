//! The walk over the buses: every function behind every bridge, in bus order.

use alloc::vec::Vec;

use axon_platform::Bdf;

use super::config::{Access, Config};
use super::function::Function;

const HEADER: u16 = 0x0c;
const BUS_NUMBERS: u16 = 0x18;
const BRIDGE: u8 = 1;

/// What the walk reads of a function.
trait Read {
    /// The register; all-ones where there is no function.
    fn read32(&self, bdf: Bdf, offset: u16) -> u32;
}

impl Read for Access {
    fn read32(&self, bdf: Bdf, offset: u16) -> u32 {
        self.config(bdf).map_or(u32::MAX, |config| config.read32(offset))
    }
}

/// Every function there is, in bus order.
pub fn walk(access: &Access) -> Vec<Function> {
    let mut found = Vec::new();
    for (segment, first, last) in access.ranges() {
        found.extend(walk_range(access, segment, first, last));
    }
    found.sort_unstable();
    let function = |bdf| {
        let config: Config = access.config(bdf)?;
        Some(Function::new(bdf, config))
    };
    found.into_iter().filter_map(function).collect()
}

/// The buses of one range: the first one, what its bridges lead to, and further root buses.
///
/// assumed: a root bus that no bridge leads to has a function at device 0.
fn walk_range(access: &impl Read, segment: u16, first: u8, last: u8) -> Vec<Bdf> {
    let mut found = Vec::new();
    let mut seen = [false; 256];
    for root in first..=last {
        let probe = Bdf { segment, bus: root, device: 0, function: 0 };
        if seen[usize::from(root)] || root != first && !is_there(access, probe) {
            continue;
        }
        seen[usize::from(root)] = true;
        let mut waiting = alloc::vec![root];
        while let Some(bus) = waiting.pop() {
            each_function(access, segment, bus, |bdf| {
                found.push(bdf);
                if header(access, bdf) & 0x7f != BRIDGE {
                    return;
                }
                // 0 where firmware left the bridge alone; a bus seen before would be a loop.
                let behind = (access.read32(bdf, BUS_NUMBERS) >> 8) as u8;
                if (first..=last).contains(&behind) && !seen[usize::from(behind)] {
                    seen[usize::from(behind)] = true;
                    waiting.push(behind);
                }
            });
        }
    }
    found
}

fn each_function(access: &impl Read, segment: u16, bus: u8, mut each: impl FnMut(Bdf)) {
    for device in 0..32 {
        let first = Bdf { segment, bus, device, function: 0 };
        if !is_there(access, first) {
            continue;
        }
        each(first);
        if header(access, first) & 0x80 == 0 {
            continue;
        }
        for function in 1..8 {
            let bdf = Bdf { function, ..first };
            if is_there(access, bdf) {
                each(bdf);
            }
        }
    }
}

fn is_there(access: &impl Read, bdf: Bdf) -> bool {
    access.read32(bdf, 0) & 0xffff != 0xffff
}

/// Header type: bit 7 says that there is more than one function.
fn header(access: &impl Read, bdf: Bdf) -> u8 {
    (access.read32(bdf, HEADER) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::vec;

    use super::*;

    #[derive(Default)]
    struct Fake(HashMap<Bdf, (u8, u8)>);

    impl Fake {
        fn with(mut self, bus: u8, device: u8, function: u8, header: u8, behind: u8) -> Self {
            self.0.insert(at(bus, device, function), (header, behind));
            self
        }
    }

    impl Read for Fake {
        fn read32(&self, bdf: Bdf, offset: u16) -> u32 {
            match (self.0.get(&bdf), offset) {
                (None, _) => u32::MAX,
                (Some((header, _)), HEADER) => u32::from(*header) << 16,
                (Some((_, behind)), BUS_NUMBERS) => u32::from(*behind) << 8,
                _ => 0x7164_1d0f,
            }
        }
    }

    fn at(bus: u8, device: u8, function: u8) -> Bdf {
        Bdf { segment: 0, bus, device, function }
    }

    #[test]
    fn bridges_multifunction_devices_and_second_roots_are_followed() {
        let fake = Fake::default()
            .with(0, 0, 0, 0, 0)
            .with(0, 3, 0, 0x81, 2)
            .with(0, 3, 5, 0x01, 4)
            .with(2, 31, 0, 0, 0)
            .with(4, 0, 0, 0, 0)
            // Function 3 of a single-function device does not count.
            .with(4, 0, 3, 0, 0)
            .with(64, 0, 0, 0, 0)
            .with(64, 1, 0, 0, 0);
        let mut found = walk_range(&fake, 0, 0, 255);
        found.sort_unstable();
        assert_eq!(
            found,
            vec![
                at(0, 0, 0),
                at(0, 3, 0),
                at(0, 3, 5),
                at(2, 31, 0),
                at(4, 0, 0),
                at(64, 0, 0),
                at(64, 1, 0),
            ]
        );
    }

    #[test]
    fn loops_and_unset_bridges_end() {
        let fake = Fake::default()
            .with(0, 0, 0, 1, 0)
            .with(0, 1, 0, 1, 1)
            .with(1, 0, 0, 1, 0)
            .with(1, 1, 0, 1, 1);
        assert_eq!(walk_range(&fake, 0, 0, 255).len(), 4);
    }

    #[test]
    fn an_empty_bus_has_no_functions() {
        assert!(walk_range(&Fake::default(), 0, 0, 255).is_empty());
    }
}
