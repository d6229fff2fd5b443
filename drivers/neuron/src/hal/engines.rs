//! DMA engines of a device: where each lies and whom it serves (specification 01 §3.6, 02 §2,
//! 03 §2).

use axon_ports::{CoreId, EngineId, HbmIndex, QueueId};

use super::Hal;

/// One engine of this device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Engine {
    /// Its number.
    pub id: EngineId,
    /// UDMA unit in the register window.
    pub unit: u64,
    /// SDMA wrapper in the register window.
    pub wrapper: u64,
    /// Error-trigger controller in the register window, where there is one.
    pub user_fis: Option<u64>,
    /// Core it is private to; `None` for a host-transfer engine.
    pub core: Option<CoreId>,
    /// Number among the 16 engines of its core; 0 for a host-transfer engine.
    pub number_in_core: u8,
}

impl Hal {
    /// The engine with this number; `None` where this device has none.
    pub fn engine(&self, id: EngineId) -> Option<Engine> {
        let number = id.number();
        let range = self.tables.engine_ranges.iter().find(|range| {
            (u32::from(range.first)..u32::from(range.first) + u32::from(range.count))
                .contains(&number)
        })?;
        let at = u64::from(number) - u64::from(range.first);
        let private = number < u32::from(self.tables.counts.core_engines);
        let core = if private { CoreId::new(number / 16) } else { None };
        Some(Engine {
            id,
            unit: range.unit + at * range.unit_pitch,
            wrapper: range.wrapper + at * range.wrapper_pitch,
            user_fis: range.user_fis.map(|(base, pitch)| base + at * pitch),
            core,
            number_in_core: if private { (number % 16) as u8 } else { 0 },
        })
    }

    /// All engines of the silicon, in ascending order.
    pub fn engines(&self) -> impl Iterator<Item = Engine> + '_ {
        EngineId::all().filter_map(|id| self.engine(id))
    }

    /// The engines of cores that are there, and the host-transfer engines that serve them.
    pub fn present_engines(&self) -> impl Iterator<Item = Engine> + '_ {
        self.engines().filter(|engine| match engine.core {
            Some(core) => self.has_core(core),
            None => self.core_ids().any(|core| {
                self.host_transfer(core).is_some_and(|(serving, _)| serving.id == engine.id)
            }),
        })
    }

    /// The 16 engines private to a core, in ascending order.
    pub fn engines_of(&self, core: CoreId) -> impl Iterator<Item = Engine> + '_ {
        let first = core.number() * 16;
        (first..first + 16).filter_map(|number| self.engine(EngineId::new(number)?))
    }

    /// The host-transfer engine that serves a core, and the default queue of the core on it.
    pub fn host_transfer(&self, core: CoreId) -> Option<(Engine, QueueId)> {
        let host = &self.tables.host_transfer;
        let share = u32::from(host.cores_per_engine.max(1));
        let local = (core.number() / share).min(u32::from(host.engines) - 1);
        let engine = self.engine(EngineId::new(u32::from(host.first_engine) + local)?)?;
        Some((engine, QueueId::new(core.number() % share)?))
    }

    /// Number of a host-transfer engine among its kind; `None` for other engines.
    pub fn host_transfer_number(&self, engine: EngineId) -> Option<u8> {
        let host = &self.tables.host_transfer;
        let local = engine.number().checked_sub(u32::from(host.first_engine))?;
        (local < u32::from(host.engines)).then_some(local as u8)
    }

    /// Whether queue `queue` of a host-transfer engine is the default of some core.
    pub fn is_default_queue(&self, engine: EngineId, queue: QueueId) -> bool {
        self.host_transfer_number(engine).is_some()
            && queue.number() < u32::from(self.tables.host_transfer.cores_per_engine)
    }

    /// Whether a queue is owned by on-chip sequencers and never re-initialised: queue 14 of some
    /// engines of cores (specification 03 §2.3).
    pub fn is_nx_queue(&self, engine: EngineId, queue: QueueId) -> bool {
        let number = engine.number();
        queue.number() == 14
            && number < u32::from(self.tables.counts.core_engines)
            && self.tables.host_transfer.nx_engines & (1 << (number % 16)) != 0
    }

    /// The 16 engines through which an HBM channel reaches the host (specification 03 §2.4).
    pub fn host_connected(&self, hbm: HbmIndex) -> impl Iterator<Item = EngineId> + '_ {
        let counts = &self.tables.counts;
        let first = hbm.number() * u32::from(counts.engines_per_hbm);
        (0..32)
            .filter(|bit| counts.host_connected & (1 << bit) != 0)
            .filter_map(move |bit| EngineId::new(first + bit))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hal;
    use super::*;

    fn unit(device: u16, number: u32) -> u64 {
        hal(device).engine(EngineId::new(number).unwrap()).unwrap().unit
    }

    #[test]
    fn units_lie_where_the_table_says() {
        assert_eq!(unit(0x7164, 3), 0x300c_0000);
        assert_eq!(unit(0x7164, 17), 0x3074_0000);
        assert_eq!((unit(0x7164, 32), unit(0x7164, 33)), (0x3060_0000, 0x30d0_0000));
        assert_eq!((unit(0x7364, 33), unit(0x7364, 127)), (0x9410_0000, 0xb5f0_0000));
        let top = [128, 129, 130, 131].map(|n| unit(0x7364, n));
        assert_eq!(top, [0x0680_0000, 0x0690_0000, 0x4680_0000, 0x4690_0000]);
        assert!(hal(0x7164).engine(EngineId::new(34).unwrap()).is_none());
        assert_eq!(hal(0x7164).engines().count(), 34);
        assert_eq!(hal(0x7364).engines().count(), 132);
    }

    #[test]
    fn an_emulator_has_the_engines_of_its_cores() {
        let config = crate::DeviceConfig {
            emulator_cores: 4,
            emulator_core_map: 0xa,
            ..crate::DeviceConfig::default()
        };
        let h = Hal::new(0x7364, 0xf0, None, &config, 1 << 38).unwrap();
        let present: alloc::vec::Vec<_> = h.present_engines().map(|e| e.id.number()).collect();
        let expected = (16..32).chain(48..64).chain([128, 129]);
        assert_eq!(present, expected.collect::<alloc::vec::Vec<_>>());
        assert_eq!(hal(0x7164).present_engines().count(), 34);
        assert_eq!(hal(0x7364).present_engines().count(), 132);
    }

    #[test]
    fn wrappers_and_error_controllers() {
        let at = |device, n| hal(device).engine(EngineId::new(n).unwrap()).unwrap();
        assert_eq!(at(0x7164, 16).wrapper, 0x30b0_0000);
        assert_eq!(at(0x7164, 15).wrapper, 0x3046_9000);
        assert_eq!(at(0x7364, 33).wrapper, 0x9414_0000);
        assert_eq!(at(0x7364, 33).user_fis, Some(0x9c42_0000));
        assert_eq!(at(0x7364, 128).user_fis, None);
    }

    #[test]
    fn host_transfer_engines_follow_the_sengs() {
        let of = |device, core| {
            let (engine, queue) = hal(device).host_transfer(CoreId::new(core).unwrap()).unwrap();
            (engine.id.number(), queue.number())
        };
        assert_eq!([0, 1].map(|c| of(0x7164, c)), [(32, 0), (33, 0)]);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 6, 7].map(|c| of(0x7364, c)),
            [(128, 0), (128, 1), (129, 0), (129, 1), (130, 0), (130, 1), (131, 0), (131, 1)]
        );
    }

    #[test]
    fn nx_queues_are_on_engines_of_cores_only() {
        let nx = |device, engine| {
            let queue = QueueId::new(14).unwrap();
            hal(device).is_nx_queue(EngineId::new(engine).unwrap(), queue)
        };
        assert!(nx(0x7164, 10) && !nx(0x7164, 11) && !nx(0x7164, 32));
        assert!(nx(0x7364, 4) && !nx(0x7364, 5) && nx(0x7364, 24) && !nx(0x7364, 128));
    }

    #[test]
    fn host_connected_engines() {
        let of = |device, hbm| -> alloc::vec::Vec<u32> {
            let hbm = HbmIndex::new(hbm).unwrap();
            hal(device).host_connected(hbm).map(|e| e.number()).collect()
        };
        assert_eq!(of(0x7164, 1), (16..32).collect::<alloc::vec::Vec<_>>());
        assert_eq!(of(0x7364, 1), [36, 37, 38, 39, 44, 45, 46, 47, 52, 53, 54, 55, 60, 61, 62, 63]);
    }
}
