//! Who is linked to whom, and a drawing of it (specification 01 §1.5).

use alloc::vec::Vec;
use core::fmt;

use axon_ports::DeviceIndex;

/// Devices of a side of the square in which 16 devices are drawn.
const SIDE: usize = 4;

/// Devices by index, each with its neighbours in the order of the links. Displays as text: a torus
/// in rows of four, a ring or a line in one row, nothing where no links are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology(Vec<(DeviceIndex, Vec<DeviceIndex>)>);

impl Topology {
    pub(crate) fn new(mut devices: Vec<(DeviceIndex, Vec<DeviceIndex>)>) -> Self {
        devices.sort_by_key(|(index, _)| *index);
        Topology(devices)
    }

    /// Every device with its neighbours.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceIndex, &[DeviceIndex])> {
        self.0.iter().map(|(index, neighbours)| (*index, neighbours.as_slice()))
    }

    /// Whether no links are known.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, neighbours)| neighbours.is_empty())
    }

    /// Whether both ends know of the link.
    fn linked(&self, a: usize, b: usize) -> bool {
        let (Some((a, of_a)), Some((b, of_b))) = (self.0.get(a), self.0.get(b)) else {
            return false;
        };
        of_a.contains(b) && of_b.contains(a)
    }

    fn name(&self, f: &mut fmt::Formatter<'_>, place: usize) -> fmt::Result {
        match self.0.get(place) {
            Some((index, _)) => write!(f, "nd{:<3}", index.number()),
            None => f.write_str("     "),
        }
    }

    /// The square of 16 devices from place `first` on.
    fn torus(&self, f: &mut fmt::Formatter<'_>, first: usize) -> fmt::Result {
        let at = |row: usize, column: usize| first + row % SIDE * SIDE + column % SIDE;
        let vertical = |f: &mut fmt::Formatter<'_>, row: usize| {
            for column in 0..SIDE {
                let linked = self.linked(at(row, column), at(row + 1, column));
                f.write_str(if linked { "   |   " } else { "       " })?;
            }
            f.write_str("\n")
        };
        let horizontal = |row, column| match self.linked(at(row, column), at(row, column + 1)) {
            true => "- ",
            false => "  ",
        };
        // A link that leaves the square on one side comes back on the other.
        vertical(f, SIDE - 1)?;
        for row in 0..SIDE {
            f.write_str(horizontal(row, SIDE - 1))?;
            for column in 0..SIDE {
                self.name(f, at(row, column))?;
                f.write_str(horizontal(row, column))?;
            }
            f.write_str("\n")?;
            vertical(f, row)?;
        }
        Ok(())
    }

    fn row(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.len().saturating_sub(1);
        for (place, (index, _)) in self.0.iter().enumerate() {
            write!(f, "{index}")?;
            if place < last {
                f.write_str(if self.linked(place, place + 1) { " - " } else { "   " })?;
            }
        }
        if let Some((first, _)) = self.0.first().filter(|_| last > 1 && self.linked(last, 0)) {
            write!(f, " - ({first})")?;
        }
        f.write_str("\n")
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SQUARE: usize = SIDE * SIDE;
        if self.is_empty() {
            return Ok(());
        }
        if !self.0.len().is_multiple_of(SQUARE) {
            return self.row(f);
        }
        (0..self.0.len()).step_by(SQUARE).try_for_each(|first| self.torus(f, first))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use axon_neuron::{DeviceConfig, Hal};

    use super::*;

    fn topology(device: u16, count: u32) -> Topology {
        let hal = Hal::new(device, 1, None, &DeviceConfig::default(), 0).unwrap();
        let index = |n| DeviceIndex::new(n).unwrap();
        let neighbours = |n: u32| {
            let list = hal.neighbours(n as u8, count as u8);
            list.as_slice().iter().map(|&n| index(n.into())).collect()
        };
        Topology::new((0..count).map(|n| (index(n), neighbours(n))).collect())
    }

    #[test]
    fn sixteen_devices_are_a_square_that_closes_on_itself() {
        let text = topology(0x7164, 16).to_string();
        let expected = [
            "   |      |      |      |   ",
            "- nd0  - nd1  - nd2  - nd3  - ",
            "   |      |      |      |   ",
            "- nd4  - nd5  - nd6  - nd7  - ",
        ];
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], expected);
        assert_eq!((lines.len(), lines[7]), (9, "- nd12 - nd13 - nd14 - nd15 - "));
        // Later generations count their links in another order; the square is the same.
        assert_eq!(topology(0x7364, 16).to_string(), text);
        assert_eq!(topology(0x7564, 32).to_string().lines().count(), 18);
    }

    #[test]
    fn twelve_are_a_ring_and_six_a_line() {
        let ring = topology(0x7264, 12).to_string();
        assert!(ring.starts_with("nd0 - nd1 - ") && ring.ends_with(" - nd11 - (nd0)\n"), "{ring}");
        let line = "nd0 - nd1 - nd2 - nd3 - nd4 - nd5\n";
        assert_eq!(topology(0x7264, 6).to_string(), line);
    }

    #[test]
    fn without_a_rule_there_is_nothing_to_draw() {
        for (device, count) in [(0x7164, 1), (0x7164, 15), (0x7264, 16), (0x7364, 2)] {
            assert!(topology(device, count).is_empty());
            assert_eq!(topology(device, count).to_string(), "");
        }
    }

    #[test]
    fn a_link_that_one_end_denies_is_not_drawn() {
        let mut broken = topology(0x7264, 6);
        broken.0[2].1.clear();
        assert_eq!(broken.to_string(), "nd0 - nd1   nd2   nd3 - nd4 - nd5\n");
    }
}
