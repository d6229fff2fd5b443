//! Where things are in a slab (specification 07 §2.2).

use crate::{CoreCounter, DeviceCounter};

/// First eight bytes of a slab that its owner has begun: "nds", 0, then version 100000.
pub const HEADER: u64 = 0x0001_86a0_0073_646e;
/// Bytes of a slab that have a meaning.
pub const USED_BYTES: u64 = 0x1_0680;
/// Cores that a slab has room for.
pub const CORES: u32 = 16;

const DEVICE_COUNTERS: u64 = 0x8;
const CORE_COUNTERS: u64 = 0x100;
const EXTENDED: u64 = 0xda80;
const FULL: u64 = 0xe280;

/// Cores whose counters are in two pieces, an old layout.
const SPLIT_CORES: u64 = 4;
/// Counters in the first piece.
const BASIC: u64 = 31;

/// A record that starts with a check sum over itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Offset in the slab.
    pub offset: u64,
    /// Bytes, check sum included.
    pub len: u64,
}

/// Process info: check sum and 60 bytes.
pub const PROCESS_INFO: Record = Record { offset: 0x4e0, len: 64 };
/// Extended process info: check sum and a 256-byte tag.
pub const EXTENDED_PROCESS_INFO: Record = Record { offset: 0xad28, len: 260 };
/// Bitmap of the model records in use.
pub const MODEL_BITMAP: u64 = 0x520;
/// Model records.
pub const MODELS: u64 = 64;

/// Model record `index`; `None` from 64 on.
pub const fn model(index: u64) -> Option<Record> {
    if index < MODELS { Some(Record { offset: 0x528 + index * 672, len: 672 }) } else { None }
}

/// Offset of a device counter.
pub const fn device_counter(counter: DeviceCounter) -> u64 {
    DEVICE_COUNTERS + 8 * counter.number() as u64
}

/// Offset of a core counter; `None` for a core the layout has no room for.
pub const fn core_counter(core: u32, counter: CoreCounter) -> Option<u64> {
    let (core, counter) = (core as u64, counter.number() as u64);
    if core >= CORES as u64 {
        None
    } else if core >= SPLIT_CORES {
        Some(FULL + 8 * (96 * (core - SPLIT_CORES) + counter))
    } else if counter < BASIC {
        Some(CORE_COUNTERS + 8 * (BASIC * core + counter))
    } else {
        Some(EXTENDED + 8 * (64 * core + counter - BASIC))
    }
}

/// Check sum of a record: FNV-1a, 32 bits, over the record with its first word 0.
pub fn checksum(record: &[u8]) -> u32 {
    record.iter().enumerate().fold(0x811c_9dc5, |hash: u32, (at, byte)| {
        let byte = if at < 4 { 0 } else { *byte };
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(core: u32, counter: u32) -> Option<u64> {
        core_counter(core, CoreCounter::new(counter)?)
    }

    #[test]
    fn mem_e82_tel_e06_tel_e07_counters_of_high_cores_and_high_numbers() {
        assert_eq!((core(2, 31), core(3, 30)), (Some(0xde80), Some(0x4d8)));
        assert_eq!((core(5, 40), core(0, 94)), (Some(0xe6c0), Some(0xdc78)));
        assert_eq!(core(5, 35), Some(0xe698));
        assert_eq!(core(2, 40), Some(0xdec8));
    }

    #[test]
    fn tel_e08_counter_95_and_core_16_do_not_exist() {
        assert_eq!(core(0, 95), None);
        assert_eq!(core(16, 0), None);
        assert_eq!(core(u32::MAX, 0), None);
    }

    #[test]
    fn regions_touch_and_end_where_the_specification_says() {
        let device = |number| device_counter(DeviceCounter::new(number).unwrap());
        assert_eq!((device(0), device(30) + 8), (0x8, 0x100));
        assert_eq!((core(0, 0), core(3, 30)), (Some(0x100), Some(0x4d8)));
        assert_eq!((core(0, 31), core(3, 94)), (Some(0xda80), Some(0xe278)));
        assert_eq!((core(4, 0), core(15, 94)), (Some(0xe280), Some(USED_BYTES - 16)));
        assert_eq!(model(0).unwrap().offset, MODEL_BITMAP + 8);
        assert_eq!(model(63).unwrap().offset + 672, EXTENDED_PROCESS_INFO.offset);
        assert_eq!(model(64), None);
        assert_eq!(HEADER.to_le_bytes(), [0x6e, 0x64, 0x73, 0, 0xa0, 0x86, 1, 0]);
    }

    #[test]
    fn no_two_counters_share_a_word() {
        let mut seen = alloc::collections::BTreeSet::new();
        for number in 0..DeviceCounter::COUNT {
            assert!(seen.insert(device_counter(DeviceCounter::new(number).unwrap())));
        }
        for at in 0..CORES {
            for number in 0..CoreCounter::COUNT {
                let offset = core(at, number).unwrap();
                assert!(seen.insert(offset) && offset.is_multiple_of(8) && offset < USED_BYTES);
            }
        }
    }

    #[test]
    fn check_sums_leave_their_own_word_out() {
        // FNV-1a of four zero bytes and "a", worked by hand from the two constants.
        let by_hand = [0_u8, 0, 0, 0, b'a'].iter().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
        assert_eq!(checksum(&[1, 2, 3, 4, b'a']), by_hand);
        assert_ne!(checksum(&[1, 2, 3, 4, b'b']), by_hand);
    }
}
