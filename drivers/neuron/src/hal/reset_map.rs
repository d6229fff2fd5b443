//! What a reset writes to firmware, and what it proves quiet (specification 01 §9.2, 05 §11.4).

use axon_ports::{CoreMap, EngineId};

use super::Hal;
use crate::Error;

/// The two map words of a per-core reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResetMap {
    /// MiscRAM 0x1d8.
    pub low: u32,
    /// MiscRAM 0x1d4; `None` where the generation has no such word.
    pub high: Option<u32>,
}

impl Hal {
    /// Checks the cores of a reset request.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an empty map and for cores that are not there.
    pub fn check_reset(&self, map: CoreMap) -> Result<(), Error> {
        if map.is_device() || (map.0 != 0 && map.0 & !self.core_map == 0) {
            Ok(())
        } else {
            Err(Error::InvalidArgument { what: "core map", value: map.0.into() })
        }
    }

    /// Map words of a per-core reset; `None` for the whole device, which writes no map.
    pub fn reset_map(&self, map: CoreMap) -> Option<ResetMap> {
        if map.is_device() {
            return None;
        }
        let mut low = 0;
        for core in (0..8).filter(|core| map.0 & (1 << core) != 0) {
            for &(first, width) in self.tables.reset.map_fields {
                low |= ((1u32 << width) - 1) << (u32::from(first) + u32::from(width) * core);
            }
        }
        let high = self.tables.reset.has_high_map.then(|| self.covered_sengs(map));
        Some(ResetMap { low, high })
    }

    /// SENGs whose host-transfer engine a per-core reset of `map` includes, as a mask.
    fn covered_sengs(&self, map: CoreMap) -> u32 {
        if !self.reset_top_dma || !self.tables.reset.has_high_map {
            return 0;
        }
        self.whole_sengs(map)
    }

    /// SENGs with all their cores in `map`, as a mask.
    fn whole_sengs(&self, map: CoreMap) -> u32 {
        let share = u32::from(self.tables.host_transfer.cores_per_engine.max(1));
        let all = (1u32 << share) - 1;
        (0..u32::from(self.tables.host_transfer.engines))
            .filter(|seng| (map.0 >> (seng * share)) & all == all)
            .fold(0, |mask, seng| mask | 1 << seng)
    }

    /// Whether a successful reset of `map` proves `engine` quiet.
    pub fn reset_covers(&self, map: CoreMap, engine: EngineId) -> bool {
        if map.is_device() {
            return true;
        }
        match self.host_transfer_number(engine) {
            Some(number) => self.covered_sengs(map) & (1 << number) != 0,
            None => {
                self.tables.reset.covers_core_engines && map.0 & (1 << (engine.number() / 16)) != 0
            }
        }
    }

    /// Whether a ring on `engine` that did not drain may be used again after a reset of `map`. Where
    /// the reset map names no engines, re-programming is all there is (05 §11.4).
    pub fn reset_cures(&self, map: CoreMap, engine: EngineId) -> bool {
        !self.tables.reset.covers_core_engines || self.reset_covers(map, engine)
    }

    /// Whether a reset of `map` re-initialises host-transfer engine `engine`
    /// (specification 03 §2.2): on a part of the device only where all its cores are in the map.
    pub fn reset_initialises(&self, map: CoreMap, engine: EngineId) -> bool {
        match self.host_transfer_number(engine) {
            Some(number) => map.is_device() || self.whole_sengs(map) & (1 << number) != 0,
            None => map.is_device() || map.0 & (1 << (engine.number() / 16)) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::super::tests::hal;
    use super::*;
    use crate::DeviceConfig;

    fn top_dma() -> Hal {
        let config = DeviceConfig { reset_top_dma: true, ..DeviceConfig::default() };
        Hal::new(0x7364, 1, None, &config, 0).unwrap()
    }

    #[test]
    fn dev_e33_reset_maps() {
        let low = |device, map| hal(device).reset_map(CoreMap(map)).unwrap().low;
        assert_eq!([1, 2, 3].map(|map| low(0x7164, map)), [0x0701, 0x3802, 0x3f03]);
        assert_eq!(hal(0x7164).reset_map(CoreMap(2)).unwrap().high, None);
        assert_eq!(low(0x7364, 0x81), 0x0081_8181);
        assert_eq!(
            top_dma().reset_map(CoreMap(0x0c)),
            Some(ResetMap { low: 0x000c_0c0c, high: Some(0x2) })
        );
        let refused = hal(0x7164).check_reset(CoreMap(4)).unwrap_err();
        assert_eq!(refused.errno(), Errno::EINVAL);
        assert_eq!(hal(0x7164).reset_map(CoreMap::DEVICE), None);
    }

    #[test]
    fn st_e15_st_d26_maps_that_are_refused() {
        assert!(hal(0x7364).check_reset(CoreMap(0)).is_err());
        assert!(hal(0x7364).check_reset(CoreMap(0x100)).is_err());
        assert!(hal(0x7364).check_reset(CoreMap(0xff)).is_ok());
        assert!(hal(0x7364).check_reset(CoreMap::DEVICE).is_ok());
    }

    #[test]
    fn what_a_reset_covers() {
        let engine = |n| EngineId::new(n).unwrap();
        let v2 = hal(0x7164);
        assert!(
            !v2.reset_covers(CoreMap(1), engine(32)) && !v2.reset_covers(CoreMap(1), engine(0))
        );
        assert!(v2.reset_covers(CoreMap::DEVICE, engine(32)));
        assert!(v2.reset_initialises(CoreMap(1), engine(32)));
        let v3 = hal(0x7364);
        assert!(
            v3.reset_covers(CoreMap(1), engine(15)) && !v3.reset_covers(CoreMap(1), engine(16))
        );
        assert!(!v3.reset_covers(CoreMap(3), engine(128)));
        assert!(top_dma().reset_covers(CoreMap(3), engine(128)));
        assert!(!v3.reset_initialises(CoreMap(1), engine(128)));
        assert!(v3.reset_initialises(CoreMap(3), engine(128)));
    }
}
