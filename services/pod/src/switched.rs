//! Switched pods (specification 05 §16.8): no election, firmware's words of device 0 say it all.

use crate::config::PodConfig;
use crate::wires::{OwnWords, PodDevice, WireError};
use crate::words::{Elected, LinkMask, NOT_READY, join, offset};

/// Words of device 0 that locate a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub(crate) device_serial: u64,
    pub(crate) server_rack: u32,
    pub(crate) instance_partition: u32,
    pub(crate) reservation: u64,
}

impl Location {
    pub(crate) fn read(words: &impl OwnWords) -> Result<Self, WireError> {
        let read = |offset| words.read_own(PodDevice::PRIMARY, offset);
        let low = read(offset::SERIAL_LOW)?;
        let high = read(offset::SERIAL_HIGH)?;
        let [reserved_high, reserved_low] =
            [read(offset::RESERVATION_HIGH)?, read(offset::RESERVATION_LOW)?];
        let has_reservation = reserved_high != NOT_READY && reserved_low != NOT_READY;
        Ok(Location {
            device_serial: join(high, low),
            server_rack: read(offset::SERVER_RACK)?,
            instance_partition: read(offset::INSTANCE_PARTITION)?,
            reservation: if has_reservation { join(reserved_high, reserved_low) } else { 0 },
        })
    }

    /// Where the node is. There is always an answer.
    pub(crate) fn resolve(&self, config: &PodConfig) -> Elected {
        let known = config.known.iter().find(|known| known.device_serial == self.device_serial);
        if let Some(known) = known {
            let node = Some(known.node);
            return Elected { links: LinkMask::BOTH, node, count: 4, serial: known.pod_serial };
        }
        let count = self.count();
        Elected {
            links: if count == 2 { LinkMask::LEFT } else { LinkMask::BOTH },
            node: self.node(),
            count,
            serial: if self.reservation == 0 { config.fallback_serial } else { self.reservation },
        }
    }

    /// Nodes of the partition.
    fn count(&self) -> u8 {
        let word = self.instance_partition;
        if word == NOT_READY || word >> 31 == 0 {
            return 4;
        }
        let (instance, partition) = (word & 0x3f, word >> 16 & 0x7fff);
        match partition.checked_div(instance).and_then(|count| u8::try_from(count).ok()) {
            // assumed: a quotient that fits no byte is as good as none.
            None | Some(0) => 4,
            Some(count) => count,
        }
    }

    /// Rack and server number the node as the links would go round. A rack that is not valid is
    /// rack 0.
    fn node(&self) -> Option<u8> {
        let word = self.server_rack;
        if word == NOT_READY || word >> 15 & 1 == 0 {
            return None;
        }
        let rack = if word >> 31 == 1 { word >> 16 & 0x7fff } else { 0 };
        match rack << 1 | word & 0x7fff {
            0 => Some(0),
            1 => Some(1),
            2 => Some(3),
            3 => Some(2),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KnownNode, PodKind};

    const CONFIG: PodConfig = PodConfig::new(PodKind::Switch);
    const EMPTY: Location =
        Location { device_serial: 9, server_rack: 0x8000, instance_partition: 0, reservation: 0 };

    #[test]
    fn rack_and_server_give_the_node() {
        for (word, node) in [
            (0x8000, Some(0)),
            (0x8001, Some(1)),
            (0x8001_8000, Some(3)),
            (0x8001_8001, Some(2)),
            (0x8003, Some(2)),
            (0x0001_8001, Some(1)),
            (0x8004, None),
            (0x8002_8000, None),
            (0x0000, None),
            (NOT_READY, None),
        ] {
            let elected = Location { server_rack: word, ..EMPTY }.resolve(&CONFIG);
            assert_eq!(elected.node, node, "{word:#x}");
        }
    }

    #[test]
    fn the_partition_gives_the_count() {
        for (word, count, links) in [
            (0, 4, LinkMask::BOTH),
            (0x8000_0000 | 32 << 16 | 16, 2, LinkMask::LEFT),
            (32 << 16 | 16, 4, LinkMask::BOTH),
            (0x8000_0000 | 64 << 16 | 16, 4, LinkMask::BOTH),
            (0x8000_0000 | 8 << 16 | 16, 4, LinkMask::BOTH),
            (0x8000_0000 | 32 << 16, 4, LinkMask::BOTH),
            (NOT_READY, 4, LinkMask::BOTH),
            (!0x3e, 4, LinkMask::BOTH),
        ] {
            let elected = Location { instance_partition: word, ..EMPTY }.resolve(&CONFIG);
            assert_eq!((elected.count, elected.links), (count, links), "{word:#x}");
        }
    }

    #[test]
    fn the_serial_is_the_reservation_or_the_configured_one() {
        assert_eq!(EMPTY.resolve(&CONFIG).serial, 1);
        let reserved = Location { reservation: 0x1_0000_0002, ..EMPTY };
        assert_eq!(reserved.resolve(&CONFIG).serial, 0x1_0000_0002);
        let other = PodConfig { fallback_serial: 77, ..CONFIG };
        assert_eq!(EMPTY.resolve(&other).serial, 77);
    }

    #[test]
    fn a_known_node_is_what_the_configuration_says() {
        const KNOWN: &[KnownNode] = &[KnownNode { device_serial: 9, node: 3, pod_serial: 55 }];
        let elected = EMPTY.resolve(&PodConfig { known: KNOWN, ..CONFIG });
        let expected = Elected { links: LinkMask::BOTH, node: Some(3), count: 4, serial: 55 };
        assert_eq!(elected, expected);
    }
}
