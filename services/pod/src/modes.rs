//! How much of its pod a node uses (specification 05 §16.7): all four, a pair, or only itself.

use core::fmt;

use crate::words::{Elected, LinkMask};

/// UltraServer mode. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mode {
    /// None was set: as elected.
    Unset = 0,
    /// Four nodes.
    X4 = 1,
    /// The horizontal pair: right links.
    X2H = 2,
    /// The vertical pair: left links.
    X2V = 3,
    /// One node.
    X1 = 4,
}

impl Mode {
    /// Every mode that can be set, by number.
    pub const SETTABLE: [Mode; 4] = [Mode::X4, Mode::X2H, Mode::X2V, Mode::X1];

    /// The mode with this number.
    pub fn from_number(number: u32) -> Option<Mode> {
        match number {
            0 => Some(Mode::Unset),
            _ => Mode::SETTABLE.into_iter().find(|mode| *mode as u32 == number),
        }
    }

    /// `UNSET`, `X4`, `X2H`, `X2V` or `X1`.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Unset => "UNSET",
            Mode::X4 => "X4",
            Mode::X2H => "X2H",
            Mode::X2V => "X2V",
            Mode::X1 => "X1",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a node is in one mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// Number of the node.
    pub node: Option<u8>,
    /// Nodes that belong together; 0 for a node alone.
    pub size: u8,
    /// Names those nodes; 0 for a node alone.
    pub serial: u64,
}

/// Whether `mode` can be set on what was elected.
pub fn is_supported(mode: Mode, elected: Option<&Elected>) -> bool {
    let joined = |links| elected.is_some_and(|e| e.links.contains(links));
    let count = elected.map_or(0, |e| e.count);
    match mode {
        Mode::Unset => false,
        Mode::X4 => count == 4,
        Mode::X2V => count >= 2 && joined(LinkMask::LEFT),
        Mode::X2H => count == 2 && joined(LinkMask::RIGHT),
        Mode::X1 => true,
    }
}

/// The OR of 1 << mode over the modes that can be set.
pub fn supported(elected: Option<&Elected>) -> u32 {
    let modes = Mode::SETTABLE.into_iter().filter(|mode| is_supported(*mode, elected));
    modes.fold(0, |bits, mode| bits | 1 << mode as u32)
}

/// What the node is in `mode`.
pub fn membership(mode: Mode, elected: Option<&Elected>) -> Membership {
    let Some(elected) = elected else { return Membership::default() };
    let as_elected = Membership { node: elected.node, size: elected.count, serial: elected.serial };
    match (mode, elected.count) {
        (Mode::Unset, _) | (Mode::X4, 4) => as_elected,
        // Ids go round the ring: left links join 0-1 and 2-3, right links 1-2 and 3-0.
        (Mode::X2V, 4) => half(elected, [(0, true), (1, true), (0, false), (1, false)]),
        (Mode::X2H, 4) => half(elected, [(0, true), (0, false), (1, false), (1, true)]),
        (Mode::X2V | Mode::X2H, _) => Membership { size: 2, ..as_elected },
        (Mode::X4 | Mode::X1, _) => Membership::default(),
    }
}

/// A pair out of a ring of four: number in the pair, and whether it is the pair of node 0. The other
/// pair needs a name of its own: one less.
fn half(elected: &Elected, places: [(u8, bool); 4]) -> Membership {
    let place = elected.node.and_then(|node| places.get(usize::from(node)));
    match place {
        Some((node, first)) => Membership {
            node: Some(*node),
            size: 2,
            serial: elected.serial.wrapping_sub(u64::from(!first)),
        },
        None => Membership { node: None, size: 2, serial: elected.serial },
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn elected(links: LinkMask, node: u8, count: u8) -> Elected {
        Elected { links, node: Some(node), count, serial: 100 }
    }

    #[test]
    fn supported_modes_are_those_of_the_table() {
        for (links, count, bits) in [
            (LinkMask::BOTH, 4, 0x1a),
            (LinkMask::LEFT, 2, 0x18),
            (LinkMask::RIGHT, 2, 0x14),
            (LinkMask::BOTH, 2, 0x1c),
        ] {
            assert_eq!(supported(Some(&elected(links, 0, count))), bits);
        }
        assert_eq!(supported(None), 0x10);
    }

    fn seen(mode: Mode, links: LinkMask, count: u8) -> Vec<(u8, u8, u64)> {
        (0..count)
            .map(|node| membership(mode, Some(&elected(links, node, count))))
            .map(|m| (m.node.unwrap(), m.size, m.serial))
            .collect()
    }

    #[test]
    fn four_nodes_in_every_mode() {
        let four = [(0, 4, 100), (1, 4, 100), (2, 4, 100), (3, 4, 100)];
        assert_eq!(seen(Mode::Unset, LinkMask::BOTH, 4), four);
        assert_eq!(seen(Mode::X4, LinkMask::BOTH, 4), four);
        let vertical = [(0, 2, 100), (1, 2, 100), (0, 2, 99), (1, 2, 99)];
        assert_eq!(seen(Mode::X2V, LinkMask::BOTH, 4), vertical);
        let alone = membership(Mode::X1, Some(&elected(LinkMask::BOTH, 3, 4)));
        assert_eq!(alone, Membership { node: None, size: 0, serial: 0 });
    }

    #[test]
    fn st_d42_horizontal_pairs_are_those_that_right_links_join() {
        let horizontal = [(0, 2, 100), (0, 2, 99), (1, 2, 99), (1, 2, 100)];
        assert_eq!(seen(Mode::X2H, LinkMask::BOTH, 4), horizontal);
    }

    #[test]
    fn two_nodes_in_every_mode() {
        let two = [(0, 2, 100), (1, 2, 100)];
        for mode in [Mode::Unset, Mode::X2H, Mode::X2V] {
            assert_eq!(seen(mode, LinkMask::RIGHT, 2), two);
        }
        let four = membership(Mode::X4, Some(&elected(LinkMask::RIGHT, 0, 2)));
        assert_eq!(four, Membership::default());
        assert_eq!(membership(Mode::X2V, None), Membership::default());
    }

    #[test]
    fn modes_have_numbers() {
        for number in 0..5 {
            assert_eq!(Mode::from_number(number).unwrap() as u32, number);
        }
        assert_eq!(Mode::from_number(5), None);
    }
}
