//! What other clients may see of a slab: a copy.

use alloc::vec::Vec;

use axon_platform::DmaBuf;
use axon_ports::{ClientId, CoreId};

use super::layout::{self, Record};
use crate::{CoreCounter, DeviceCounter, Error};

/// A copy of the used part of another client's slab. It stays as it is whatever becomes of its
/// owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatastoreSnapshot {
    client: ClientId,
    bytes: Vec<u8>,
}

impl DatastoreSnapshot {
    pub(crate) fn copy(client: ClientId, memory: &DmaBuf) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(layout::USED_BYTES as usize).map_err(|_| Error::NoRoom)?;
        bytes.resize(layout::USED_BYTES as usize, 0);
        let _ = memory.read(0, &mut bytes);
        Ok(DatastoreSnapshot { client, bytes })
    }

    /// Whose counters these were.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// First eight bytes; [`layout::HEADER`] where the owner has begun its slab.
    pub fn header(&self) -> u64 {
        self.word(0)
    }

    /// A device counter.
    pub fn device_counter(&self, counter: DeviceCounter) -> u64 {
        self.word(layout::device_counter(counter))
    }

    /// A core counter.
    pub fn core_counter(&self, core: CoreId, counter: CoreCounter) -> u64 {
        layout::core_counter(core.number(), counter).map_or(0, |offset| self.word(offset))
    }

    /// A record without its check sum; `None` where that does not match: the owner was just
    /// writing, or never wrote.
    pub fn record(&self, record: Record) -> Option<&[u8]> {
        let start = usize::try_from(record.offset).ok()?;
        let bytes = self.bytes.get(start..start.checked_add(record.len as usize)?)?;
        let (sum, content) = bytes.split_first_chunk()?;
        (u32::from_le_bytes(*sum) == layout::checksum(bytes)).then_some(content)
    }

    fn word(&self, offset: u64) -> u64 {
        let bytes = self.bytes.get(offset as usize..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Slots;
    use super::super::layout::{EXTENDED_PROCESS_INFO, PROCESS_INFO, model};
    use super::super::writer::Datastore;
    use super::*;
    use crate::testing::{client, core, slabs};

    fn begin(slots: &mut Slots, number: u32) -> Datastore {
        let (slab, tenancy) = slots.acquire(client(number)).unwrap();
        Datastore::new(client(number), slab, tenancy)
    }

    fn look(slots: &Slots, number: u32) -> DatastoreSnapshot {
        DatastoreSnapshot::copy(client(number), slots.find(client(number)).unwrap()).unwrap()
    }

    #[test]
    fn what_the_owner_counts_a_monitor_sees() {
        let mut slots = Slots::new(slabs()).unwrap();
        let own = begin(&mut slots, 1);
        own.add(core(5), CoreCounter::ERR_SW_NQ_OVERFLOW, 3).unwrap();
        own.add(core(0), CoreCounter::MEM_USAGE_CODE_DEVICE, 4096).unwrap();
        own.subtract(core(0), CoreCounter::MEM_USAGE_CODE_DEVICE, 1096).unwrap();
        own.set_device(DeviceCounter::RUNTIME_VERSION, 9).unwrap();
        own.set_bits(DeviceCounter::FEATURE_BITMAP, 2).unwrap();
        own.set_bits(DeviceCounter::FEATURE_BITMAP, 1).unwrap();
        own.add_device(DeviceCounter::MEM_USAGE_CODE_HOST, 5).unwrap();
        let seen = look(&slots, 1);
        assert_eq!(seen.header(), layout::HEADER);
        assert_eq!(seen.word(0xe698), 3);
        assert_eq!(seen.core_counter(core(0), CoreCounter::MEM_USAGE_CODE_DEVICE), 3000);
        assert_eq!(seen.device_counter(DeviceCounter::RUNTIME_VERSION), 9);
        assert_eq!(seen.device_counter(DeviceCounter::FEATURE_BITMAP), 3);
        assert_eq!(seen.device_counter(DeviceCounter::MEM_USAGE_CODE_HOST), 5);
        assert_eq!(own.core_counter(core(5), CoreCounter::ERR_SW_NQ_OVERFLOW), Ok(3));
    }

    #[test]
    fn records_are_believed_by_their_check_sum() {
        let mut slots = Slots::new(slabs()).unwrap();
        let own = begin(&mut slots, 1);
        assert_eq!(look(&slots, 1).record(PROCESS_INFO), None, "never written");
        own.write_record(PROCESS_INFO, b"trainer").unwrap();
        own.write_record(EXTENDED_PROCESS_INFO, &[7; 256]).unwrap();
        own.write_record(model(63).unwrap(), &[1; 668]).unwrap();
        assert!(own.write_record(PROCESS_INFO, &[0; 61]).is_err());
        let seen = look(&slots, 1);
        assert!(seen.record(PROCESS_INFO).unwrap().starts_with(b"trainer\0"));
        assert_eq!(seen.record(EXTENDED_PROCESS_INFO), Some(&[7; 256][..]));
        assert_eq!(seen.record(model(63).unwrap()), Some(&[1; 668][..]));

        slots.find(client(1)).unwrap().write(PROCESS_INFO.offset + 9, &[1]).unwrap();
        assert_eq!(look(&slots, 1).record(PROCESS_INFO), None, "half written");
    }

    #[test]
    fn tel_e26_tel_d14_a_snapshot_outlives_its_owner_and_a_handle_does_not() {
        let mut slots = Slots::new(slabs()).unwrap();
        let own = begin(&mut slots, 1);
        own.add(core(0), CoreCounter::OOB, 5).unwrap();
        let seen = look(&slots, 1);
        slots.release(client(1), |_| ());
        assert_eq!(seen.core_counter(core(0), CoreCounter::OOB), 5);
        assert!(slots.find(client(1)).is_none());

        for number in 2..=17 {
            begin(&mut slots, number);
        }
        let released = Err(Error::Released { client: client(1) });
        assert_eq!(own.add(core(0), CoreCounter::OOB, 1), released);
        assert_eq!(own.set_device(DeviceCounter::FAL_VERSION, 1), released);
        assert_eq!(own.set_bits(DeviceCounter::FEATURE_BITMAP, 1), released);
        assert_eq!(own.write_record(PROCESS_INFO, b"x"), released);
        for number in 2..=17 {
            assert_eq!(look(&slots, number).core_counter(core(0), CoreCounter::OOB), 0);
        }
    }
}
