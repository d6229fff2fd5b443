//! Notification blocks: where each producer has its registers, and how queues are numbered
//! (specification 01 §3.7, §13.2).

use axon_ports::{CoreId, EngineId};

use super::Hal;
use crate::Error;
use crate::notify::{Producer, QueueKind};

/// Queues of one block.
pub const NOTIFICATION_SLOTS: u32 = 16;
const TOPSP_PITCH: u64 = 0x4_0000;

/// Software's number of a queue: 16 queues of each type.
pub const fn notification_queue_id(kind: u8, index: u8) -> u16 {
    kind as u16 * NOTIFICATION_SLOTS as u16 + index as u16
}

/// One set of queue registers. Two queues that name the same one exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HardwareQueue {
    /// Block in the register window.
    pub block: u64,
    /// Position in the block.
    pub position: u8,
    /// The block has this one queue only.
    pub single: bool,
    /// Core whose reset ends the queue: the producer, or the owner of the TopSP.
    pub core: CoreId,
    /// Engine whose trace it is.
    pub engine: Option<EngineId>,
}

impl Hal {
    /// Block of a core in the register window.
    ///
    /// # Errors
    /// As [`Hal::check_core`].
    pub fn core_notific(&self, core: u32) -> Result<u64, Error> {
        let id = self.check_core(core)?;
        let block = self.tables.map.core_notific.get(id.index()).copied();
        block.ok_or(Error::InvalidArgument { what: "core", value: core.into() })
    }

    /// Block of a TopSP in the register window, by logical number.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for one that the device has not.
    pub fn topsp_notific(&self, topsp: u32) -> Result<u64, Error> {
        let mut left = topsp;
        for range in self.tables.map.topsp_notific {
            match left.checked_sub(range.count.into()) {
                None => return Ok(range.window + u64::from(left) * TOPSP_PITCH),
                Some(rest) => left = rest,
            }
        }
        Err(Error::InvalidArgument { what: "TopSP", value: topsp.into() })
    }

    /// Block that traces an engine of a core; host-transfer engines are not traced.
    pub fn trace_notific(&self, engine: EngineId) -> Option<u64> {
        let engine = self.engine(engine).filter(|engine| engine.core.is_some())?;
        Some(engine.wrapper + self.tables.map.trace_notific)
    }

    /// The core that a logical TopSP works for.
    ///
    /// # Errors
    /// As [`Hal::topsp_notific`].
    pub fn core_of_topsp(&self, topsp: u32) -> Result<CoreId, Error> {
        let counts = &self.tables.counts;
        let core = topsp / u32::from(counts.topsps_per_core).max(1);
        CoreId::new(core)
            .filter(|_| topsp < u32::from(counts.topsps))
            .ok_or(Error::InvalidArgument { what: "TopSP", value: topsp.into() })
    }

    /// The hardware queue that serves a producer.
    ///
    /// assumed: a TopSP has ten queues for every type, and none whose owning core is absent.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a core or TopSP that the device has not, and for an index
    /// above the queues of the block.
    pub fn hardware_queue(
        &self,
        producer: Producer,
        kind: QueueKind,
        index: u32,
    ) -> Result<HardwareQueue, Error> {
        match (producer, kind) {
            (Producer::Core(number), QueueKind::TraceDma) => {
                let core = self.producing_core(number)?;
                let index = check_index(index, NOTIFICATION_SLOTS)?;
                let engine = EngineId::new(core.number() * 16 + u32::from(index));
                let traced = engine.and_then(|id| Some((id, self.trace_notific(id)?)));
                let (id, block) = traced.ok_or(bad_index(index.into()))?;
                Ok(HardwareQueue { block, position: 0, single: true, core, engine: Some(id) })
            }
            (Producer::Core(number), _) => {
                let core = self.producing_core(number)?;
                let position = check_index(index, self.notification_queues.into())?;
                let block = self.core_notific(number)?;
                Ok(HardwareQueue { block, position, single: false, core, engine: None })
            }
            (Producer::TopSp(number), _) => {
                let block = self.topsp_notific(number)?;
                let owner = self.core_of_topsp(number)?;
                let absent = Error::InvalidArgument { what: "TopSP", value: number.into() };
                let core = Some(owner).filter(|&owner| self.has_core(owner)).ok_or(absent)?;
                let position = check_index(index, self.notification_queues.into())?;
                Ok(HardwareQueue { block, position, single: false, core, engine: None })
            }
        }
    }

    /// Queues of notifications want EINVAL where others want E2BIG (05 §8.4).
    fn producing_core(&self, number: u32) -> Result<CoreId, Error> {
        self.check_core(number)
            .map_err(|_| Error::InvalidArgument { what: "core", value: number.into() })
    }
}

const fn bad_index(index: u32) -> Error {
    Error::InvalidArgument { what: "queue index", value: index as u64 }
}

fn check_index(index: u32, limit: u32) -> Result<u8, Error> {
    u8::try_from(index).ok().filter(|_| index < limit).ok_or(bad_index(index))
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::super::tests::hal;
    use super::*;
    use crate::DeviceConfig;
    use crate::registers::notific::Queue;

    #[test]
    fn blocks_of_cores() {
        assert_eq!(
            [0, 1].map(|c| hal(0x7164).core_notific(c).unwrap()),
            [0x3053_5000, 0x30c3_5000]
        );
        let v3: [u64; 8] = core::array::from_fn(|c| hal(0x7364).core_notific(c as u32).unwrap());
        let die = [0x0600_1000, 0x0618_1000, 0x0640_1000, 0x0658_1000];
        assert_eq!(v3[..4], die);
        assert_eq!(v3[4..], die.map(|block| block + 0x4000_0000));
        assert_eq!(hal(0x7164).core_notific(2).unwrap_err().errno(), Errno::E2BIG);
    }

    #[test]
    fn blocks_of_topsps_and_whom_they_serve() {
        let v2 = hal(0x7164);
        assert_eq!(v2.topsp_notific(5).unwrap(), 0x30f4_4000);
        assert_eq!(v2.topsp_notific(6).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!([2, 3].map(|t| v2.core_of_topsp(t).unwrap().number()), [0, 1]);
        assert_eq!(v2.core_of_topsp(6).unwrap_err().errno(), Errno::EINVAL);
        let v3 = hal(0x7364);
        let block = |t| v3.topsp_notific(t).unwrap();
        assert_eq!([7, 8, 15].map(block), [0x06bc_0000, 0x46a0_0000, 0x46bc_0000]);
        assert_eq!(v3.topsp_notific(16).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!([0, 1, 15].map(|t| v3.core_of_topsp(t).unwrap().number()), [0, 0, 7]);
        assert!(v3.core_of_topsp(16).is_err());
    }

    #[test]
    fn traces_have_a_block_of_their_own() {
        let trace = |device, engine| hal(device).trace_notific(EngineId::new(engine).unwrap());
        assert_eq!(trace(0x7164, 0), Some(0x3040_1000));
        assert_eq!(trace(0x7164, 31), Some(0x30b6_a000));
        assert_eq!(trace(0x7364, 33), Some(0x9414_1000));
        assert_eq!((trace(0x7164, 32), trace(0x7364, 131)), (None, None));
    }

    #[test]
    fn queues_have_numbers() {
        assert_eq!((notification_queue_id(0, 0), notification_queue_id(4, 3)), (0, 67));
        assert_eq!([0x7164, 0x7364].map(|d| hal(d).tables().counts.notification_types), [6, 5]);
    }

    const V2: u16 = 0x7164;
    const V3: u16 = 0x7364;
    const V4: u16 = 0x7564;

    fn low(device: u16, producer: Producer, kind: u32, index: u32) -> u64 {
        let kind = QueueKind::from_number(kind).unwrap();
        let queue = hal(device).hardware_queue(producer, kind, index).unwrap();
        Queue::new(queue.block, queue.position).base_low()
    }

    fn refused(device: u16, producer: Producer, kind: u32, index: u32) -> Errno {
        let kind = QueueKind::from_number(kind).unwrap();
        hal(device).hardware_queue(producer, kind, index).unwrap_err().errno()
    }

    #[test]
    fn nq_e01_nq_e02_nq_e06_registers_of_v2() {
        assert_eq!(low(V2, Producer::Core(0), 1, 4), 0x3053_51a0);
        assert_eq!(low(V2, Producer::Core(1), 4, 3), 0x30b1_6100);
        assert_eq!(low(V2, Producer::TopSp(5), 3, 2), 0x30f4_4150);
    }

    #[test]
    fn nq_e03_nq_e04_nq_e05_nq_e07_registers_of_v3_and_v4() {
        for device in [V3, V4] {
            assert_eq!(low(device, Producer::Core(5), 3, 2), 0x4618_1150);
            assert_eq!(low(device, Producer::Core(7), 4, 15), 0xb5f4_1100);
            assert_eq!(low(device, Producer::TopSp(9), 1, 1), 0x46a4_0128);
            assert_eq!(low(device, Producer::Core(0), 1, 4), 0x0600_11a0);
            assert_eq!(low(device, Producer::Core(1), 4, 3), 0x8334_1100);
        }
    }

    #[test]
    fn nq_e11_nq_e12_producers_that_are_not_there() {
        for (device, producer) in [
            (V2, Producer::Core(2)),
            (V3, Producer::Core(8)),
            (V2, Producer::TopSp(6)),
            (V3, Producer::TopSp(16)),
            (V2, Producer::Core(0x100)),
            (V3, Producer::TopSp(0x100)),
            (V3, Producer::Core(u32::MAX)),
        ] {
            for kind in 0..6 {
                assert_eq!(refused(device, producer, kind, 0), Errno::EINVAL, "{producer:?}");
            }
        }
    }

    #[test]
    fn nq_e13_nq_d03_nq_d04_indices_keep_their_width() {
        for (kind, index) in [(0, 10), (0, 16), (4, 16), (4, 31), (1, 20), (3, 0x102)] {
            assert_eq!(refused(V2, Producer::Core(0), kind, index), Errno::EINVAL);
        }
        assert_eq!(refused(V2, Producer::TopSp(0), 4, 10), Errno::EINVAL);
        for number in [6, 16, 0x101, u32::MAX] {
            assert_eq!(QueueKind::from_number(number), None);
        }
        let config = DeviceConfig { notification_queues: 16, ..DeviceConfig::default() };
        let wide = Hal::new(V2, 1, None, &config, 0).unwrap();
        let queue = wide.hardware_queue(Producer::Core(0), QueueKind::Trace, 15).unwrap();
        assert_eq!(queue.position, 15);
    }

    #[test]
    fn nq_e35_only_cores_of_the_map_have_queues() {
        let config = DeviceConfig { emulator_core_map: 0x1, ..DeviceConfig::default() };
        let one = Hal::new(V2, 0xf0, None, &config, 0).unwrap();
        let of = |producer| one.hardware_queue(producer, QueueKind::Notify, 4);
        assert!(of(Producer::Core(0)).is_ok() && of(Producer::TopSp(2)).is_ok());
        assert_eq!(of(Producer::Core(1)).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(of(Producer::TopSp(3)).unwrap_err().errno(), Errno::EINVAL);
    }

    #[test]
    fn a_topsp_belongs_to_the_core_of_its_share() {
        let owner = |device, number| {
            let queue = hal(device).hardware_queue(Producer::TopSp(number), QueueKind::Error, 2);
            queue.unwrap().core.number()
        };
        assert_eq!([0, 2, 3, 5].map(|t| owner(V2, t)), [0, 0, 1, 1]);
        assert_eq!([0, 1, 8, 15].map(|t| owner(V3, t)), [0, 0, 4, 7]);
    }

    #[test]
    fn no_two_producers_share_a_block() {
        for device in [V2, V3] {
            let hal = hal(device);
            let mut blocks = std::collections::BTreeSet::new();
            let mut add = |producer, kind, index| {
                if let Ok(queue) = hal.hardware_queue(producer, kind, index) {
                    assert!(blocks.insert((queue.block, queue.position)), "{producer:?} {index}");
                }
            };
            for number in 0..16 {
                for index in 0..16 {
                    add(Producer::Core(number), QueueKind::Notify, index);
                    add(Producer::Core(number), QueueKind::TraceDma, index);
                    add(Producer::TopSp(number), QueueKind::Notify, index);
                }
            }
            let expected = if device == V2 { 2 * 10 + 32 + 60 } else { 8 * 10 + 128 + 160 };
            assert_eq!(blocks.len(), expected);
        }
    }
}
