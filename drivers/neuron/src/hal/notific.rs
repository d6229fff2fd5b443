//! Notification blocks: where each producer has its registers, and how queues are numbered
//! (specification 01 §3.7, §13.2).

use axon_ports::{CoreId, EngineId};

use super::Hal;
use crate::Error;

/// Queues of one block.
pub const NOTIFICATION_SLOTS: u32 = 16;
/// Base address of queue 0, low half: high half, size and head are the next three words. The other
/// queues follow at [`SLOT_PITCH`].
const FIRST_SLOT: u64 = 0x100;
const SLOT_PITCH: u64 = 0x28;
const TOPSP_PITCH: u64 = 0x4_0000;

/// Software's number of a queue: 16 queues of each type.
pub const fn notification_queue_id(kind: u8, index: u8) -> u16 {
    kind as u16 * NOTIFICATION_SLOTS as u16 + index as u16
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

    /// Registers of a queue of the block at `block`: address low, address high, bytes, head.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a slot above 15.
    pub fn notification_slot(&self, block: u64, slot: u32) -> Result<u64, Error> {
        if slot >= NOTIFICATION_SLOTS {
            return Err(Error::InvalidArgument { what: "notification slot", value: slot.into() });
        }
        Ok(block + FIRST_SLOT + SLOT_PITCH * u64::from(slot))
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
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::super::tests::hal;
    use super::*;

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
    fn queues_of_a_block() {
        let h = hal(0x7364);
        assert_eq!(h.notification_slot(0x0600_1000, 0).unwrap(), 0x0600_1100);
        assert_eq!(h.notification_slot(0x0600_1000, 15).unwrap(), 0x0600_1358);
        assert!(h.notification_slot(0x0600_1000, 16).is_err());
        assert_eq!((notification_queue_id(0, 0), notification_queue_id(4, 3)), (0, 67));
        assert_eq!([0x7164, 0x7364].map(|d| hal(d).tables().counts.notification_types), [6, 5]);
    }
}
