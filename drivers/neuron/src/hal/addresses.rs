//! Address arithmetic: host memory, HBM behind BAR4, core and TopSP registers
//! (specification 01 §3).

use core::ops::Range;

use axon_platform::{BusAddr, DeviceAddr};
use axon_ports::{CoreId, HbmIndex};

use super::Hal;
use super::tables::{CORE_LEN, CORE_PITCH, TOPSP_LEN};
use crate::Error;

/// Offset of the event words in a core tile; 256 words.
const EVENTS: u64 = 0x270_0000;
/// Offsets of the four views of the semaphores in a core tile; 256 words each.
const SEMAPHORE_READ: u64 = 0x270_1000;
const SEMAPHORE_SET: u64 = 0x270_1400;
const SEMAPHORE_ADD: u64 = 0x270_1800;
const SEMAPHORE_SUB: u64 = 0x270_1c00;

/// What to do with a semaphore; each is a register view of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SemaphoreView {
    /// Read the value.
    Read,
    /// Write the value.
    Set,
    /// Write an amount to add.
    Add,
    /// Write an amount to subtract.
    Subtract,
}

impl Hal {
    /// The address under which the device finds host memory.
    ///
    /// # Errors
    /// [`Error::HostUnreachable`] where the range reaches the host-base bit.
    pub fn host_address(&self, bus: BusAddr, len_bytes: u64) -> Result<DeviceAddr, Error> {
        let base = self.tables.map.host_base;
        match bus.0.checked_add(len_bytes) {
            Some(end) if end <= base => Ok(DeviceAddr(bus.0 | base)),
            _ => Err(Error::HostUnreachable { bus, len_bytes, limit: base }),
        }
    }

    /// Registers that firmware reads for the driver, as the device sees them.
    pub const fn firmware_readable(&self) -> Range<u64> {
        let (start, len_bytes) = self.tables.map.firmware_readable;
        start..start + len_bytes
    }

    /// Whether a device-view address names host memory.
    pub const fn is_host(&self, address: DeviceAddr) -> bool {
        address.0 & self.tables.map.host_mask == self.tables.map.host_base
    }

    /// HBM channel that holds the whole range.
    pub fn hbm_of(&self, address: DeviceAddr, len_bytes: u64) -> Option<HbmIndex> {
        let index = self.tables.map.hbm_bases.iter().position(|&base| {
            address
                .0
                .checked_sub(base)
                .is_some_and(|at| len_bytes <= self.hbm_size && at <= self.hbm_size - len_bytes)
        })?;
        HbmIndex::new(index as u32)
    }

    /// Offset of an HBM range in BAR4; inclusive of the last byte of a channel.
    ///
    /// # Errors
    /// [`Error::NoMemoryWindow`] where the range is not in one channel, or BAR4 does not show it
    /// (specification 01 §2.3 rule 5).
    #[inline]
    pub fn memory_window_offset(&self, address: DeviceAddr, len_bytes: u64) -> Result<u64, Error> {
        self.memory_window_place(address, len_bytes).ok_or(Error::NoMemoryWindow {
            address,
            len_bytes,
            window: self.bar4_len,
        })
    }

    #[inline(always)]
    fn memory_window_place(&self, address: DeviceAddr, len_bytes: u64) -> Option<u64> {
        let (&first, others) = self.tables.map.hbm_bases.split_first()?;
        let mut at = address.0.wrapping_sub(first);
        let mut place = 0;
        if at >= self.hbm_size {
            let found = |&base: &u64| address.0.wrapping_sub(base) < self.hbm_size;
            let channel = others.iter().position(found)?;
            at = address.0.wrapping_sub(*others.get(channel)?);
            place = (channel as u64 + 1) * self.hbm_bar4_pitch;
        }
        let offset = place + at;
        let is_inside = len_bytes <= self.hbm_size - at
            && len_bytes <= self.bar4_len
            && offset <= self.bar4_len - len_bytes;
        is_inside.then_some(offset)
    }

    /// Tile of a core in the register window.
    ///
    /// # Errors
    /// [`Error::TooBig`] (E2BIG) for a number above the cores of the device,
    /// [`Error::InvalidArgument`] for a core that is absent from the core map.
    pub fn core_tile(&self, core: u32) -> Result<u64, Error> {
        let core = self.check_core(core)?;
        Ok(self.tables.map.core_window + core.index() as u64 * CORE_PITCH)
    }

    /// The core with this number, if the device has it.
    ///
    /// # Errors
    /// As [`Hal::core_tile`].
    pub fn check_core(&self, core: u32) -> Result<CoreId, Error> {
        match CoreId::new(core) {
            Some(id) if core < u32::from(self.cores) => {
                if self.has_core(id) {
                    Ok(id)
                } else {
                    Err(Error::InvalidArgument { what: "core", value: core.into() })
                }
            }
            _ => Err(Error::TooBig { what: "core", value: core.into(), limit: self.cores.into() }),
        }
    }

    /// Register of a semaphore in the register window.
    ///
    /// # Errors
    /// As [`Hal::core_tile`]; [`Error::InvalidArgument`] for a semaphore above 255.
    pub fn semaphore(&self, core: u32, number: u32, view: SemaphoreView) -> Result<u64, Error> {
        let offset = match view {
            SemaphoreView::Read => SEMAPHORE_READ,
            SemaphoreView::Set => SEMAPHORE_SET,
            SemaphoreView::Add => SEMAPHORE_ADD,
            SemaphoreView::Subtract => SEMAPHORE_SUB,
        };
        self.core_word(core, offset, "semaphore", number)
    }

    /// Register of an event in the register window.
    ///
    /// # Errors
    /// As [`Hal::semaphore`].
    pub fn event(&self, core: u32, number: u32) -> Result<u64, Error> {
        self.core_word(core, EVENTS, "event", number)
    }

    fn core_word(
        &self,
        core: u32,
        offset: u64,
        what: &'static str,
        number: u32,
    ) -> Result<u64, Error> {
        let tile = self.core_tile(core)?;
        if number >= 256 {
            return Err(Error::InvalidArgument { what, value: number.into() });
        }
        Ok(tile + offset + 4 * u64::from(number))
    }

    /// The core whose own windows (state buffer, semaphores and events, instruction windows, the
    /// TopSPs that work for it) hold the whole range; of a core of later generations only the part
    /// that is there (specification 01 §3.10, 03 §5.4).
    pub fn core_of_window(&self, address: DeviceAddr, len_bytes: u64) -> Option<CoreId> {
        let within = |base: u64, len: u64| {
            address.0.checked_sub(base).is_some_and(|at| len_bytes <= len && at <= len - len_bytes)
        };
        let map = &self.tables.map;
        if let Some(core) = map.core_bases.iter().position(|&base| within(base, CORE_LEN)) {
            return CoreId::new(core as u32).filter(|&core| self.has_core(core));
        }
        let mut first = 0;
        for range in map.topsps {
            let here = (0..u64::from(range.logical))
                .position(|i| within(range.device + i * range.device_pitch, TOPSP_LEN));
            if let Some(at) = here {
                return self.core_of_topsp(first + at as u32).ok().filter(|&c| self.has_core(c));
            }
            first += u32::from(range.logical);
        }
        None
    }

    /// Whether a program-engine copy may write the whole range (specification 01 §3.10).
    pub fn is_program_target(&self, address: DeviceAddr, len_bytes: u64) -> bool {
        let map = &self.tables.map;
        let within = |base: u64, len: u64| {
            address.0.checked_sub(base).is_some_and(|at| len_bytes <= len && at <= len - len_bytes)
        };
        // V2 names two ranges that span neighbouring tiles; later generations one range a block.
        if map.preproc.is_empty() {
            return within(map.core_token, CORE_LEN * u64::from(self.tables.counts.cores))
                || map
                    .topsps
                    .iter()
                    .any(|range| within(range.device, u64::from(range.count) * TOPSP_LEN));
        }
        map.core_bases.iter().any(|&base| within(base, CORE_LEN))
            || map.topsps.iter().any(|range| {
                (0..u64::from(range.count))
                    .any(|i| within(range.device + i * range.device_pitch, TOPSP_LEN))
            })
            || map.hbm_bases.iter().any(|&base| within(base, self.hbm_size))
            || map.preproc.iter().any(|&(base, len)| within(base, len))
    }
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;
    use proptest::prelude::*;
    use std::vec;

    use super::super::tests::hal;
    use super::*;
    use crate::DeviceConfig;

    fn window(h: &Hal, address: u64, len: u64) -> Option<u64> {
        h.memory_window_offset(DeviceAddr(address), len).ok()
    }

    #[test]
    fn dev_e05_bar4_short_or_absent() {
        let config = DeviceConfig::default();
        let none = Hal::new(0x7164, 1, None, &config, 0).unwrap();
        let refused = none.memory_window_offset(DeviceAddr(0), 4096).unwrap_err();
        assert_eq!(refused.errno(), Errno::EINVAL);
        let short = Hal::new(0x7364, 1, None, &config, 64 << 30).unwrap();
        assert_eq!(window(&short, 0x5_ffff_f000, 0x1000), Some(0x5_ffff_f000));
        assert_eq!(window(&short, 0x40_0000_0000, 0x1000), None);
    }

    #[test]
    fn dev_e07_v2_hbm_in_bar4() {
        let h = hal(0x7164);
        assert_eq!(window(&h, 0x10_0000_0000, 0x1000), Some(0x4_0000_0000));
        assert_eq!(window(&h, 0x4_0000_0000, 0x1000), None);
        assert_eq!(window(&h, 0x3_ffff_f000, 0x1000), Some(0x3_ffff_f000));
        assert_eq!(window(&h, 0x3_ffff_f001, 0x1000), None);
    }

    #[test]
    fn dev_e08_mem_e68_v3_and_v4_hbm_in_bar4() {
        assert_eq!(window(&hal(0x7364), 0x8040_0100_0000, 0x1000), Some(0x30_0100_0000));
        assert_eq!(window(&hal(0x7364), 0x8040_0000_0000, 0x1000), Some(0x30_0000_0000));
        assert_eq!(window(&hal(0x7364), 0x8040_0000_1000, 0x1000), Some(0x30_0000_1000));
        assert_eq!(window(&hal(0x7364), 0x6_0000_0000, 0x1000), None);
        assert_eq!(window(&hal(0x7564), 0x6_0000_0000, 0x1000), Some(0x6_0000_0000));
    }

    #[test]
    fn dev_e09_simulator_sizes_follow_bar4() {
        let h = Hal::new(0x7364, 0xff, None, &DeviceConfig::default(), 4 << 30).unwrap();
        assert_eq!(h.hbm_size(), 1 << 30);
        assert_eq!(window(&h, 0x40_0000_1000, 0x1000), Some(0x4000_1000));
        assert_eq!(window(&h, 0x40_4000_0000, 0x1000), None);
    }

    #[test]
    fn every_channel_shows_to_its_last_byte() {
        let rows: [(u16, &[u64], u64, u64); 4] = [
            (0x7164, &[0, 0x10_0000_0000], 16 << 30, 16 << 30),
            (0x7264, &[0, 0x10_0000_0000], 16 << 30, 16 << 30),
            (0x7364, &HBM, 24 << 30, 64 << 30),
            (0x7564, &HBM, 36 << 30, 64 << 30),
        ];
        for (device, bases, size, pitch) in rows {
            let h = hal(device);
            for (channel, &base) in bases.iter().enumerate() {
                let shown = channel as u64 * pitch;
                assert_eq!(window(&h, base, size), Some(shown));
                assert_eq!(window(&h, base + size - 1, 1), Some(shown + size - 1));
                assert_eq!(window(&h, base + size - 1, 2), None);
                assert_eq!(window(&h, base + size, 1), None);
                assert_eq!(window(&h, base, size + 1), None);
                assert_eq!(window(&h, base.wrapping_sub(1), 1), None);
                let index = h.hbm_of(DeviceAddr(base + size - 1), 1).map(HbmIndex::index);
                assert_eq!(index, Some(channel));
            }
        }
    }

    const HBM: [u64; 4] = [0, 0x40_0000_0000, 0x8000_0000_0000, 0x8040_0000_0000];

    proptest! {
        /// A window of any size shows exactly what the full one shows below its end.
        #[test]
        fn a_shorter_window_is_the_full_one_cut_off(
            device in prop::sample::select(vec![0x7164u16, 0x7364, 0x7564]),
            bar4 in 26u32..=38,
            channel in 0usize..4,
            at in 0u64..40 << 30,
            len in 1u64..8192,
        ) {
            let full = Hal::new(device, 1, None, &DeviceConfig::default(), 1 << 38).unwrap();
            let short = Hal::new(device, 1, None, &DeviceConfig::default(), 1 << bar4).unwrap();
            prop_assert_eq!(short.hbm_size(), full.hbm_size());
            let bases = full.tables().map.hbm_bases;
            let address = bases[channel % bases.len()] + at;
            let expected = window(&full, address, len).filter(|shown| shown + len <= 1 << bar4);
            prop_assert_eq!(window(&short, address, len), expected);
        }
    }

    #[test]
    fn a_simulator_without_a_window_has_the_hbm_of_silicon() {
        let config = DeviceConfig::default();
        let h = Hal::new(0x7364, 0xff, None, &config, 0).unwrap();
        assert_eq!(h.hbm_size(), 24 << 30);
        let smallest = Hal::new(0x7364, 0xff, None, &config, 64 << 20).unwrap();
        assert_eq!(smallest.hbm_size(), 16 << 20);
        assert_eq!(window(&smallest, 0x8040_00ff_ffff, 1), Some((64 << 20) - 1));
    }

    #[test]
    fn dev_e10_ranges_do_not_wrap() {
        assert_eq!(window(&hal(0x7164), 0xffff_ffff_ffff_f000, 0x2000), None);
        assert_eq!(window(&hal(0x7364), 0, u64::MAX), None);
    }

    #[test]
    fn dev_e13_program_engine_targets() {
        let v2 = hal(0x7164);
        assert!(v2.is_program_target(DeviceAddr(0xfff_c7ff_f000), 0x1000));
        assert!(!v2.is_program_target(DeviceAddr(0xfff_c7ff_f000), 0x1001));
        let v3 = hal(0x7364);
        assert!(v3.is_program_target(DeviceAddr(0x8084_c000_0000), 0x1000));
        assert!(!v3.is_program_target(DeviceAddr(0x8084_c000_0000), 0x40_0001));
    }

    #[test]
    fn dev_e15_dma_e44_udma_d16_host_addresses() {
        let bus = BusAddr(0x123_4000);
        assert_eq!(hal(0x7164).host_address(bus, 4096).unwrap().0, 0x1000_0123_4000);
        assert_eq!(hal(0x7364).host_address(bus, 4096).unwrap().0, 0x4000_0123_4000);
        assert!(hal(0x7164).host_address(BusAddr(1 << 44), 1).is_err());
        assert!(hal(0x7364).host_address(BusAddr((1 << 46) - 1), 2).is_err());
        assert!(hal(0x7364).host_address(BusAddr(u64::MAX), 2).is_err());
        assert!(hal(0x7164).is_host(DeviceAddr(0x1000_0123_4000)));
        assert!(!hal(0x7164).is_host(DeviceAddr(0x1_1000_0123_4000)));
        assert!(!hal(0x7364).is_host(DeviceAddr(0x8070_0000_0000)));
    }

    #[test]
    fn dev_e41_semaphores_and_events() {
        let v2 = hal(0x7164);
        assert_eq!(v2.semaphore(1, 5, SemaphoreView::Add).unwrap(), 0x0670_1814);
        let v3 = hal(0x7364);
        assert_eq!(v3.event(7, 255).unwrap(), 0xee70_03fc);
        assert_eq!(v3.semaphore(0, 256, SemaphoreView::Read).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(v3.event(0, 256).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(v3.event(8, 0).unwrap_err().errno(), Errno::E2BIG);
        assert_eq!(v3.semaphore(8, 0, SemaphoreView::Set).unwrap_err().errno(), Errno::E2BIG);
    }

    #[test]
    fn dev_e49_core_range_ends_with_what_is_mapped() {
        let v3 = hal(0x7364);
        assert!(!v3.is_program_target(DeviceAddr(0x20_0400_0000), 4));
        assert!(v3.is_program_target(DeviceAddr(0x20_03ff_fffc), 4));
    }
}
