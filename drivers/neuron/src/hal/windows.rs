//! Special windows: register and HBM ranges that a client may map by token
//! (specification 01 §3.9). Tokens are opaque names, not addresses.

use super::Hal;
use super::tables::{CORE_PITCH, TOPSP_LEN};
use crate::Error;

/// What kind of block a window belongs to. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Block {
    /// A core.
    Core = 0,
    /// A TopSP.
    TopSp = 1,
    /// An HBM channel.
    Hbm = 2,
}

/// What of the block. The numbers are those of the Linux interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Resource {
    /// Events and semaphores.
    Semaphore = 0,
    /// Everything, read only.
    All = 1,
    /// State buffer of a core.
    StateBuffer = 2,
    /// Memory of an HBM channel.
    Memory = 3,
}

/// A window that may be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialWindow {
    /// Name by which it is asked for.
    pub token: u64,
    /// Length; must be asked for exactly.
    pub len_bytes: u64,
    /// Whether it lies in the memory window instead of the register window.
    pub in_memory_window: bool,
    /// Offset in that window.
    pub offset: u64,
    /// Whether it may be written.
    pub writable: bool,
}

const SEMAPHORES: u64 = 0x270_0000;
const SEMAPHORES_LEN: u64 = 0x2000;
const STATE_BUFFER_LEN: u64 = 0x200_0000;

impl Hal {
    /// The window of a resource.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is none.
    pub fn special_window(
        &self,
        block: Block,
        number: u32,
        resource: Resource,
    ) -> Result<SpecialWindow, Error> {
        let found = match (block, resource) {
            (Block::Core, Resource::Semaphore) => {
                self.core_window(number, SEMAPHORES, SEMAPHORES_LEN)
            }
            (Block::Core, Resource::StateBuffer) => self.core_window(number, 0, STATE_BUFFER_LEN),
            (Block::TopSp, Resource::Semaphore) => self.topsp_window(number, SEMAPHORES_LEN, true),
            (Block::TopSp, Resource::All) => self.topsp_window(number, TOPSP_LEN, false),
            (Block::Hbm, Resource::Memory) => self.hbm_window(number),
            _ => None,
        };
        found.ok_or(Error::InvalidArgument { what: "special window", value: number.into() })
    }

    /// The window that a client asks for by token and length.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless both match exactly.
    pub fn window_by_token(&self, token: u64, len_bytes: u64) -> Result<SpecialWindow, Error> {
        self.special_windows()
            .find(|window| window.token == token && window.len_bytes == len_bytes)
            .ok_or(Error::InvalidArgument { what: "window token", value: token })
    }

    /// Every special window of the device.
    pub fn special_windows(&self) -> impl Iterator<Item = SpecialWindow> + '_ {
        let kinds = [
            (Block::Core, Resource::Semaphore),
            (Block::Core, Resource::StateBuffer),
            (Block::TopSp, Resource::Semaphore),
            (Block::TopSp, Resource::All),
            (Block::Hbm, Resource::Memory),
        ];
        kinds.into_iter().flat_map(move |(block, resource)| {
            (0..16).filter_map(move |number| self.special_window(block, number, resource).ok())
        })
    }

    /// assumed: a core that is absent from the core map has no window either.
    fn core_window(&self, number: u32, offset: u64, len_bytes: u64) -> Option<SpecialWindow> {
        self.check_core(number).ok()?;
        let at = u64::from(number) * CORE_PITCH + offset;
        Some(SpecialWindow {
            token: self.tables.map.core_token + at,
            len_bytes,
            in_memory_window: false,
            offset: self.tables.map.core_window + at,
            writable: true,
        })
    }

    fn topsp_window(&self, number: u32, len_bytes: u64, writable: bool) -> Option<SpecialWindow> {
        let mut left = u64::from(number);
        for range in self.tables.map.topsps {
            if left < u64::from(range.logical) {
                return Some(SpecialWindow {
                    token: range.device + left * range.device_pitch,
                    len_bytes,
                    in_memory_window: false,
                    offset: range.window + left * TOPSP_LEN,
                    writable,
                });
            }
            left -= u64::from(range.logical);
        }
        None
    }

    /// V2 shows its HBM through allocated chunks only.
    fn hbm_window(&self, number: u32) -> Option<SpecialWindow> {
        if !self.tables.map.hbm_follows_bar4 {
            return None;
        }
        let base = *self.tables.map.hbm_bases.get(number as usize)?;
        Some(SpecialWindow {
            token: base,
            len_bytes: self.hbm_size,
            in_memory_window: true,
            offset: u64::from(number) * self.hbm_bar4_pitch,
            writable: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hal;
    use super::*;
    use crate::DeviceConfig;

    #[test]
    fn dev_e11_special_windows_of_v3() {
        let h = hal(0x7364);
        let topsp = h.special_window(Block::TopSp, 9, Resource::All).unwrap();
        assert_eq!(topsp.token, 0x8082_c000_0000);
        assert_eq!((topsp.len_bytes, topsp.offset), (0x40_0000, 0xf2c0_0000));
        assert!(!topsp.writable);
        let buffer = h.special_window(Block::Core, 3, Resource::StateBuffer).unwrap();
        assert_eq!((buffer.token, buffer.offset), (0x20_0c00_0000, 0xdc00_0000));
        assert!(h.special_window(Block::Core, 8, Resource::StateBuffer).is_err());
        assert!(h.window_by_token(0x20_0c00_0000, 0x1000).is_err());
        assert_eq!(h.window_by_token(0x20_0c00_0000, 0x200_0000).unwrap(), buffer);
    }

    #[test]
    fn dev_e12_hbm_window_of_the_simulator() {
        let h = Hal::new(0x7564, 0xff, None, &DeviceConfig::default(), 4 << 30).unwrap();
        let hbm = h.special_window(Block::Hbm, 2, Resource::Memory).unwrap();
        assert_eq!((hbm.len_bytes, hbm.offset), (0x4000_0000, 0x8000_0000));
    }

    #[test]
    fn the_tables_have_16_and_52_rows() {
        assert_eq!(hal(0x7164).special_windows().count(), 16);
        assert_eq!(hal(0x7364).special_windows().count(), 52);
        assert_eq!(hal(0x7564).special_windows().count(), 52);
    }

    #[test]
    fn every_row_is_found_by_its_own_name_and_by_no_other() {
        for device in [0x7164, 0x7264, 0x7364, 0x7564] {
            let h = hal(device);
            let (registers, memory) = (h.tables().map.register_len, 1u64 << 38);
            for window in h.special_windows() {
                let found = h.window_by_token(window.token, window.len_bytes).unwrap();
                assert_eq!(found, window);
                let limit = if window.in_memory_window { memory } else { registers };
                assert!(window.offset + window.len_bytes <= limit, "{window:x?}");
                for wrong in [window.len_bytes - 1, window.len_bytes + 1, 0, u64::MAX] {
                    assert!(h.window_by_token(window.token, wrong).is_err());
                }
                assert!(h.window_by_token(window.token + 4, window.len_bytes).is_err());
            }
            assert!(h.window_by_token(u64::MAX, u64::MAX).is_err());
        }
    }

    #[test]
    fn last_rows_of_each_kind() {
        let v2 = hal(0x7164);
        let row = |h: &Hal, block, number, resource| {
            let window = h.special_window(block, number, resource).unwrap();
            (window.token, window.len_bytes, window.offset, window.writable)
        };
        assert_eq!(
            row(&v2, Block::Core, 1, Resource::Semaphore),
            (0xfff_c670_0000, 0x2000, 0x0670_0000, true)
        );
        assert_eq!(
            row(&v2, Block::TopSp, 5, Resource::All),
            (0xfff_d140_0000, 0x40_0000, 0x1140_0000, false)
        );
        let v4 = hal(0x7564);
        assert_eq!(
            row(&v4, Block::Core, 7, Resource::Semaphore),
            (0x20_1e70_0000, 0x2000, 0xee70_0000, true)
        );
        assert_eq!(
            row(&v4, Block::TopSp, 15, Resource::Semaphore),
            (0x8084_4000_0000, 0x2000, 0xf440_0000, true)
        );
        assert_eq!(
            row(&v4, Block::Hbm, 3, Resource::Memory),
            (0x8040_0000_0000, 0x9_0000_0000, 0x30_0000_0000, true)
        );
        for (block, number, resource) in [
            (Block::Core, 2, Resource::StateBuffer),
            (Block::TopSp, 6, Resource::All),
            (Block::Hbm, 0, Resource::Memory),
            (Block::Core, 0, Resource::All),
            (Block::TopSp, 0, Resource::StateBuffer),
            (Block::Core, u32::MAX, Resource::Semaphore),
        ] {
            assert!(v2.special_window(block, number, resource).is_err(), "{block:?} {number}");
        }
        assert!(v4.special_window(Block::Hbm, 4, Resource::Memory).is_err());
    }

    #[test]
    fn an_absent_core_has_no_window() {
        let config =
            DeviceConfig { emulator_cores: 4, emulator_core_map: 0xb, ..DeviceConfig::default() };
        let h = Hal::new(0x7364, 0xf0, None, &config, 1 << 38).unwrap();
        let of = |core| h.special_window(Block::Core, core, Resource::StateBuffer).is_ok();
        assert_eq!([0, 1, 2, 3, 4].map(of), [true, true, false, true, false]);
    }
}
