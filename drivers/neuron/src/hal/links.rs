//! Engines of the links between nodes of an UltraServer, and where a neighbour's words are
//! (specification 05 §16.1, §16.4).

use axon_platform::DeviceAddr;
use axon_ports::EngineId;

use super::Hal;
use super::identity::Generation;

/// Direction of a neighbouring node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkSide {
    /// Vertical.
    Left,
    /// Horizontal.
    Right,
}

/// First window onto a neighbour, and the distance of the next.
const WINDOWS: (u64, u64) = (0x10_0000_0000_0000, 0x4_0000_0000_0000);
/// MiscRAM of a neighbour in its window.
const MISC_RAM: u64 = 0x80_06c8_4000;
/// Engines of a group; a group has a window.
const GROUP: u64 = 32;

impl Hal {
    /// The engine of one of the two links of a side; `None` where there are no such links.
    pub fn link_engine(&self, side: LinkSide, second: bool) -> Option<EngineId> {
        let number = match (self.generation(), side, second) {
            (Generation::V2, ..) => return None,
            (Generation::V3, LinkSide::Left, false) => 36,
            (Generation::V3, LinkSide::Left, true) => 68,
            (Generation::V3, LinkSide::Right, false) => 4,
            (Generation::V3, LinkSide::Right, true) => 100,
            (Generation::V4, LinkSide::Left, false) => 40,
            (Generation::V4, LinkSide::Left, true) => 72,
            (Generation::V4, LinkSide::Right, false) => 8,
            (Generation::V4, LinkSide::Right, true) => 104,
        };
        EngineId::new(number)
    }

    /// Where the engine of a link sees a word of the neighbour's MiscRAM.
    pub fn neighbour_word(&self, engine: EngineId, offset: u32) -> DeviceAddr {
        let window = WINDOWS.0 + u64::from(engine.number()) / GROUP * WINDOWS.1;
        DeviceAddr(window + MISC_RAM + u64::from(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hal::tests::hal;

    #[test]
    fn engines_and_windows_of_every_generation() {
        let links = |device| {
            let hal = hal(device);
            [
                (LinkSide::Left, false),
                (LinkSide::Left, true),
                (LinkSide::Right, false),
                (LinkSide::Right, true),
            ]
            .map(|(side, second)| {
                let engine = hal.link_engine(side, second)?;
                Some((engine.number(), hal.neighbour_word(engine, 0x38).0))
            })
        };
        let windows =
            [0x14_0000_0000_0000, 0x18_0000_0000_0000, 0x10_0000_0000_0000, 0x1c_0000_0000_0000];
        let at = |engines: [u32; 4]| {
            let pairs = engines.into_iter().zip(windows);
            let links = pairs.map(|(engine, window)| Some((engine, window + 0x80_06c8_4038u64)));
            links.collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(links(0x7164), [None; 4]);
        assert_eq!(links(0x7364)[..], at([36, 68, 4, 100]));
        assert_eq!(links(0x7564)[..], at([40, 72, 8, 104]));
    }
}
