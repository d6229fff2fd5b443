//! Routing id, the number firmware gives a device, and device index, the public one
//! (specification 01 §10).

use axon_ports::{DeviceIndex, RoutingId};

use super::Hal;
use super::identity::{PlatformType, Product};

const TRN1: [u8; 16] = [0, 4, 1, 5, 3, 7, 2, 6, 12, 8, 13, 9, 15, 11, 14, 10];
const TORUS: [u8; 16] = [0, 3, 4, 7, 12, 15, 8, 11, 1, 2, 5, 6, 13, 14, 9, 10];

impl Hal {
    /// Routing ids are below this.
    pub fn routing_id_limit(&self) -> u32 {
        if self.platform_type == PlatformType::Pds { 128 } else { 64 }
    }

    /// Routing id known without asking firmware: the one-device instance.
    pub fn fixed_routing_id(&self) -> Option<RoutingId> {
        if self.single_device_instance { RoutingId::new(0) } else { None }
    }

    /// Whether firmware has to name the server as well.
    pub fn needs_server_id(&self) -> bool {
        self.platform_type == PlatformType::Pds
    }

    /// Public number of the device with this routing id; `None` where it is not below the limit.
    ///
    /// On V3 and V4 ids that differ by 16 name the same index: the second one is a duplicate.
    pub fn device_index(&self, routing_id: RoutingId) -> Option<DeviceIndex> {
        let id = routing_id.number();
        if id >= self.routing_id_limit() {
            return None;
        }
        let low = (id % 16) as usize;
        let index = match (self.product, self.platform_type) {
            (Product::Trn1, _) => u32::from(*TRN1.get(low)?) + id / 16 * 16,
            (Product::Inf2, _) => id,
            (_, PlatformType::Pds) => id % 16,
            _ => u32::from(*TORUS.get(low)?),
        };
        DeviceIndex::new(index)
    }

    /// Fills `map[index] = routing id` for a host with `map.len()` devices (at most 64), as the
    /// clients of the stock driver see it: `server` counts on PDS platforms only.
    pub fn routing_ids(&self, server: u16, map: &mut [u32]) {
        let devices = map.len() as u32;
        for i in 0..devices {
            let routing_id = match self.platform_type {
                PlatformType::Pds => i + u32::from(server) * devices,
                _ => i,
            };
            let low = (routing_id % 16) as usize;
            let index = match (self.product, self.platform_type) {
                (Product::Trn1, _) => u32::from(TRN1[low]) + routing_id / 16 * 16,
                (Product::Inf2, _) => routing_id,
                (_, PlatformType::Pds) => routing_id % 16,
                _ => u32::from(TORUS[low]),
            };
            if let Some(place) = map.get_mut(index as usize) {
                *place = routing_id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hal;
    use super::*;
    use crate::DeviceConfig;

    fn index(h: &Hal, id: u32) -> Option<u32> {
        h.device_index(RoutingId::new(id)?).map(|i| i.number())
    }

    #[test]
    fn dev_e16_routing_ids() {
        let trn1 = hal(0x7164);
        assert_eq!([5, 15, 21, 63].map(|r| index(&trn1, r)), [7, 10, 23, 58].map(Some));
        assert_eq!(index(&hal(0x7264), 5), Some(5));
        assert_eq!([1, 4, 17].map(|r| index(&hal(0x7364), r)), [3, 12, 3].map(Some));
    }

    #[test]
    fn dev_e17_limits_of_routing_ids() {
        assert_eq!(index(&hal(0x7364), 64), None);
        let name = Some("trn2es.48xlarge");
        let pds = Hal::new(0x7364, 1, name, &DeviceConfig::default(), 0).unwrap();
        assert!(pds.needs_server_id());
        assert_eq!(index(&pds, 64), Some(0));
        assert_eq!(index(&pds, 21), Some(5));
        assert_eq!(index(&pds, 128), None);
    }

    #[test]
    fn the_one_device_instance_needs_no_answer() {
        let config = DeviceConfig::default();
        let small = Hal::new(0x7564, 1, Some("trn3pd98.3xlarge"), &config, 0).unwrap();
        assert_eq!(small.fixed_routing_id(), RoutingId::new(0));
        assert_eq!(hal(0x7564).fixed_routing_id(), None);
    }

    #[test]
    fn the_inverse_tables_of_the_specification() {
        let mut map = [0; 16];
        hal(0x7164).routing_ids(0, &mut map);
        assert_eq!(map, [0, 2, 6, 4, 1, 3, 7, 5, 9, 11, 15, 13, 8, 10, 14, 12]);
        hal(0x7364).routing_ids(0, &mut map);
        assert_eq!(map, [0, 8, 9, 1, 2, 10, 11, 3, 6, 14, 15, 7, 4, 12, 13, 5]);
    }
}
