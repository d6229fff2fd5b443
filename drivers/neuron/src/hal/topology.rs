//! Neighbours of a device and the logical order of cores, both by table (specification 01 §1.5,
//! §13.6).

use super::Hal;
use super::identity::{Generation, PlatformType, Product};
use crate::Error;

/// Device indices of the neighbours, in the order of the links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Neighbours {
    list: [u8; 4],
    count: u8,
}

impl Neighbours {
    /// The indices; empty where no rule applies.
    pub fn as_slice(&self) -> &[u8] {
        self.list.get(..usize::from(self.count)).unwrap_or(&[])
    }

    fn of(indices: &[u8]) -> Neighbours {
        let mut list = [0; 4];
        for (place, &index) in list.iter_mut().zip(indices) {
            *place = index;
        }
        Neighbours { list, count: indices.len().min(4) as u8 }
    }
}

/// Where a logical core lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CorePlace {
    /// Device index.
    pub device: u8,
    /// Core of that device.
    pub core: u8,
}

/// Neighbours in the 16-device torus of Trn2 and Trn3; the position is the SENG.
const TORUS: [[u8; 4]; 16] = [
    [12, 1, 3, 4],
    [0, 13, 5, 2],
    [14, 3, 1, 6],
    [2, 15, 7, 0],
    [8, 5, 7, 0],
    [4, 9, 1, 6],
    [10, 7, 5, 2],
    [6, 11, 3, 4],
    [4, 9, 11, 12],
    [8, 5, 13, 10],
    [6, 11, 9, 14],
    [10, 7, 15, 8],
    [0, 13, 15, 8],
    [12, 1, 9, 14],
    [2, 15, 13, 10],
    [14, 3, 11, 12],
];

/// Logical order of the cores of devices 0 to 15 on V3.
const V3_CORES: [[u8; 8]; 4] = [
    [4, 5, 6, 7, 2, 3, 0, 1],
    [2, 3, 0, 1, 4, 5, 6, 7],
    [0, 1, 2, 3, 6, 7, 4, 5],
    [6, 7, 4, 5, 0, 1, 2, 3],
];
const V3_CORE_ROW: [u8; 16] = [0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3];
/// The same for even and odd devices on V4 in a switched pod.
const V4_PDS_CORES: [[u8; 8]; 2] = [[4, 5, 6, 7, 2, 3, 0, 1], [6, 7, 4, 5, 0, 1, 2, 3]];

impl Hal {
    /// Neighbours of device `index` in a host with `devices` published devices.
    pub fn neighbours(&self, index: u8, devices: u8) -> Neighbours {
        if index >= devices {
            return Neighbours::default();
        }
        let (low, block) = (index % 16, index & 0x10);
        match self.product {
            Product::Trn1 if devices.is_multiple_of(16) => {
                let (row, column) = (low / 4, low % 4);
                let at = |row: u8, column: u8| (row % 4 * 4 + column % 4) | block;
                Neighbours::of(&[
                    at(row + 3, column),
                    at(row, column + 3),
                    at(row + 1, column),
                    at(row, column + 1),
                ])
            }
            Product::Inf2 if devices == 12 => {
                Neighbours::of(&[(index + 11) % 12, (index + 1) % 12])
            }
            Product::Inf2 if devices == 6 => match index {
                0 => Neighbours::of(&[1]),
                5 => Neighbours::of(&[4]),
                _ => Neighbours::of(&[index - 1, index + 1]),
            },
            Product::Trn2 | Product::Trn3 if devices.is_multiple_of(16) => {
                Neighbours::of(&TORUS[usize::from(low)].map(|d| d | block))
            }
            _ => Neighbours::default(),
        }
    }

    /// Fills `places` (at most 128 entries) with the logical core map; answers how many.
    ///
    /// `flip_by_election` says that an election made this node number 1 or 3 of an UltraServer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a version other than 0, [`Error::Unsupported`] on V2.
    pub fn core_places(
        &self,
        version: u32,
        flip_by_election: bool,
        places: &mut [CorePlace],
    ) -> Result<usize, Error> {
        if self.generation() == Generation::V2 {
            return Err(Error::Unsupported { what: "a logical core map" });
        }
        if version != 0 {
            return Err(Error::InvalidArgument { what: "core map version", value: version.into() });
        }
        let switched =
            self.generation() == Generation::V4 && self.platform_type == PlatformType::Pds;
        let ultra = self.platform_type == PlatformType::UltraServer;
        let flip = !switched && (self.force_die_flip || (ultra && flip_by_election));
        let count = places.len().min(128);
        for (k, place) in places.iter_mut().take(count).enumerate() {
            let device = k / 8;
            let position = if flip { (k % 8) ^ 6 } else { k % 8 };
            let row = if switched {
                &V4_PDS_CORES[device % 2]
            } else {
                &V3_CORES[usize::from(V3_CORE_ROW[device % 16])]
            };
            *place = CorePlace { device: device as u8, core: row[position] };
        }
        Ok(count)
    }

    /// Cores that sit beside an HBM channel.
    pub fn cores_of_hbm(&self, hbm: u8) -> impl Iterator<Item = u8> + use<> {
        let share = self.tables.counts.cores_per_seng;
        hbm * share..(hbm + 1) * share
    }
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::super::tests::hal;
    use super::*;
    use crate::DeviceConfig;

    fn cores(h: &Hal, flip: bool) -> [u8; 8] {
        let mut places = [CorePlace { device: 0, core: 0 }; 8];
        assert_eq!(h.core_places(0, flip, &mut places).unwrap(), 8);
        places.map(|place| place.core)
    }

    #[test]
    fn dev_e43_logical_core_map() {
        let plain = hal(0x7364);
        assert_eq!(cores(&plain, false), [4, 5, 6, 7, 2, 3, 0, 1]);
        assert_eq!(cores(&plain, true), [4, 5, 6, 7, 2, 3, 0, 1]);
        let ultra = Hal::new(0x7364, 1, Some("trn2u.48xlarge"), &DeviceConfig::default(), 0);
        assert_eq!(cores(&ultra.unwrap(), true), [0, 1, 2, 3, 6, 7, 4, 5]);
        let mut places = [CorePlace { device: 0, core: 0 }; 8];
        assert_eq!(plain.core_places(1, false, &mut places).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(
            hal(0x7164).core_places(0, false, &mut places).unwrap_err().errno(),
            Errno::EOPNOTSUPP
        );
    }

    #[test]
    fn a_torus_is_symmetric() {
        for device in [0x7164, 0x7364] {
            let h = hal(device);
            for d in 0..16 {
                for &n in h.neighbours(d, 16).as_slice() {
                    assert!(h.neighbours(n, 16).as_slice().contains(&d), "{d} and {n}");
                }
            }
        }
        assert_eq!(hal(0x7364).neighbours(17, 32).as_slice(), [16, 29, 21, 18]);
        assert_eq!(hal(0x7164).neighbours(0, 16).as_slice(), [12, 3, 4, 1]);
    }

    #[test]
    fn dev_d32_an_index_outside_the_host_has_no_neighbours() {
        let inf2 = hal(0x7264);
        assert_eq!(inf2.neighbours(0, 6).as_slice(), [1]);
        assert_eq!(inf2.neighbours(11, 12).as_slice(), [10, 0]);
        assert_eq!(inf2.neighbours(12, 12).as_slice(), []);
        assert_eq!(inf2.neighbours(0, 7).as_slice(), []);
        assert_eq!(hal(0x7364).neighbours(0, 0).as_slice(), []);
    }
}
