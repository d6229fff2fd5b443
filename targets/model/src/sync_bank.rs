//! Events and semaphores of a core or TopSP (specification 01 §3.5, §14.10; 06 §9).

const ENTRIES: usize = 256;
const READ: u64 = 0x1000;
const SET: u64 = 0x1400;
const INCREMENT: u64 = 0x1800;
const DECREMENT: u64 = 0x1c00;
const ARRAY_BYTES: u64 = 0x400;

/// 256 events and 256 counters, seen through one window of 0x2000 bytes.
#[derive(Clone, Debug)]
pub(crate) struct SyncBank {
    events: [u32; ENTRIES],
    semaphores: [u32; ENTRIES],
}

impl SyncBank {
    pub fn new() -> Self {
        SyncBank { events: [0; ENTRIES], semaphores: [0; ENTRIES] }
    }

    /// The set, increment and decrement views and what lies between the arrays read 0.
    pub fn read(&self, offset: u64) -> u32 {
        match offset {
            0..ARRAY_BYTES => self.events[index(offset)],
            READ..SET => self.semaphores[index(offset)],
            _ => 0,
        }
    }

    /// Counters wrap; events keep bit 0; the read view and the gaps ignore writes.
    pub fn write(&mut self, offset: u64, value: u32) {
        let entry = index(offset);
        match offset {
            0..ARRAY_BYTES => self.events[entry] = value & 1,
            SET..INCREMENT => self.semaphores[entry] = value,
            INCREMENT..DECREMENT => {
                self.semaphores[entry] = self.semaphores[entry].wrapping_add(value);
            }
            DECREMENT..0x2000 => {
                self.semaphores[entry] = self.semaphores[entry].wrapping_sub(value);
            }
            _ => {}
        }
    }
}

fn index(offset: u64) -> usize {
    (offset % ARRAY_BYTES / 4) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_e41_dev_e42_counters_wrap_as_signed_words() {
        let mut bank = SyncBank::new();
        bank.write(INCREMENT + 0x14, 3);
        assert_eq!(bank.read(READ + 0x14), 3);
        bank.write(SET + 0x14, 0x7fff_ffff);
        bank.write(INCREMENT + 0x14, 1);
        assert_eq!(bank.read(READ + 0x14), 0x8000_0000);
        bank.write(DECREMENT + 0x14, 0x8000_0001);
        assert_eq!(bank.read(READ + 0x14), u32::MAX);
        for view in [SET, INCREMENT, DECREMENT, 0x400, 0xffc] {
            assert_eq!(bank.read(view + 0x14 * u64::from(view >= 0x1000)), 0);
        }
    }

    #[test]
    fn events_keep_bit_0() {
        let mut bank = SyncBank::new();
        bank.write(0x3fc, 3);
        bank.write(0x400, 1);
        assert_eq!((bank.read(0x3fc), bank.read(0x400)), (1, 0));
    }
}
