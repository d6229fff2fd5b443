//! The register window and the device's own address space: which offset is which address
//! (specification 01 §3.2 to §3.4), and the windows onto neighbouring devices (§3.1).

use axon_platform::DeviceAddr;
use axon_ports::EngineId;

use super::Hal;
use super::tables::{CORE_LEN, CORE_PITCH, TOPSP_LEN};

/// A piece of the register window behind which device addresses run on without a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterBlock {
    /// First byte as the device sees it.
    pub device: u64,
    /// First byte in the register window.
    pub window: u64,
    /// Bytes.
    pub len_bytes: u64,
}

/// Bytes of the address space behind one peer window.
const PEER_LEN: u64 = 1 << 50;

/// Where `start..start + len` begins inside a block at `base` of `block_len` bytes.
fn inside(start: u64, len: u64, base: u64, block_len: u64) -> Option<u64> {
    let at = start.checked_sub(base)?;
    (len <= block_len && at <= block_len - len).then_some(at)
}

impl Hal {
    /// Every block of the register window. V2 has one, later generations one a block of hardware.
    pub fn register_blocks(&self) -> impl Iterator<Item = RegisterBlock> + '_ {
        let map = &self.tables.map;
        let cores = map.core_bases.iter().zip(0u64..).map(|(&device, core)| RegisterBlock {
            device,
            window: map.core_window + core * CORE_PITCH,
            len_bytes: CORE_LEN,
        });
        let topsps = map.topsps.iter().flat_map(|range| {
            (0..u64::from(range.count)).map(|number| RegisterBlock {
                device: range.device + number * range.device_pitch,
                window: range.window + number * TOPSP_LEN,
                len_bytes: TOPSP_LEN,
            })
        });
        // The one block of V2 holds its cores and TopSPs already.
        let separate = map.linear.is_none();
        let linear = map.linear.into_iter().chain(map.register_blocks.iter().copied());
        linear.chain(cores.chain(topsps).filter(move |_| separate))
    }

    /// Offset in the register window of `len_bytes` at a device address; `None` where no block
    /// shows all of them.
    pub fn register_offset(&self, address: DeviceAddr, len_bytes: u64) -> Option<u64> {
        self.register_blocks().find_map(|block| {
            let at = inside(address.0, len_bytes, block.device, block.len_bytes)?;
            Some(block.window + at)
        })
    }

    /// Device address of `len_bytes` at an offset of the register window; `None` where no block
    /// holds all of them.
    pub fn register_address(&self, offset: u64, len_bytes: u64) -> Option<DeviceAddr> {
        self.register_blocks().find_map(|block| {
            let at = inside(offset, len_bytes, block.window, block.len_bytes)?;
            Some(DeviceAddr(block.device + at))
        })
    }

    /// Where `engine` of a core finds `len_bytes` at `address` of the device behind the link of its
    /// SENG; `None` for host-transfer engines, for what no window shows, and on V2.
    pub fn peer_address(
        &self,
        engine: EngineId,
        address: DeviceAddr,
        len_bytes: u64,
    ) -> Option<DeviceAddr> {
        let counts = &self.tables.counts;
        if engine.number() >= u32::from(counts.core_engines) {
            return None;
        }
        let seng = engine.number() / (16 * u32::from(counts.cores_per_seng)).max(1);
        let window = *self.tables.map.peer_windows.get(seng as usize)?;
        inside(address.0, len_bytes, 0, PEER_LEN).map(|at| DeviceAddr(window + at))
    }

    /// Whether a device-view address leads to a neighbouring device.
    pub fn is_peer(&self, address: DeviceAddr) -> bool {
        let window = |&base: &u64| inside(address.0, 1, base, PEER_LEN).is_some();
        self.tables.map.peer_windows.iter().any(window)
    }

    /// Engines that read the neighbours of an UltraServer node: two on the left links, two on the
    /// right ones (specification 01 §13.7). `None` on V2.
    pub const fn link_engines(&self) -> Option<[[u8; 2]; 2]> {
        self.tables.link_engines
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::hal;
    use super::*;

    fn offset(device: u16, address: u64) -> Option<u64> {
        hal(device).register_offset(DeviceAddr(address), 4)
    }

    #[test]
    fn v2_is_one_window_to_the_last_byte() {
        assert_eq!(hal(0x7164).register_blocks().count(), 1);
        assert_eq!(offset(0x7164, 0xfff_c000_0000), Some(0));
        assert_eq!(offset(0x7164, 0xfff_f000_0000), Some(0x3000_0000));
        assert_eq!(offset(0x7164, 0xfff_f0fa_0000), Some(0x30fa_0000));
        // The window ends where the host window begins.
        assert_eq!(offset(0x7164, 0xfff_ffff_fffc), Some(0x3fff_fffc));
        assert_eq!(offset(0x7164, 0xfff_ffff_fffd), None);
        assert_eq!(offset(0x7164, 0x1000_0000_0000), None);
        assert_eq!(offset(0x7164, 0xfff_bfff_fffc), None);
        assert_eq!(hal(0x7164).register_address(0x4000_0000, 1), None);
    }

    #[test]
    fn v3_and_v4_are_piecewise() {
        let rows = [
            (0x80_0000_0000, 0x0000_0000, 0x2000_0000),
            (0x8080_0000_0000, 0x4000_0000, 0x2000_0000),
            (0x10_0000_0000, 0x8000_0000, 0xc80_0000),
            (0x50_0000_0000, 0x9000_0000, 0xc80_0000),
            (0x8010_0000_0000, 0xa000_0000, 0xc80_0000),
            (0x8050_0000_0000, 0xb000_0000, 0xc80_0000),
            (0x12_0000_0000, 0xc000_0000, 0x34c_0000),
            (0x8052_0000_0000, 0xcc00_0000, 0x34c_0000),
            (0x20_0000_0000, 0xd000_0000, 0x400_0000),
            (0x30_0000_0000, 0xd400_0000, 0x400_0000),
            (0x8070_0000_0000, 0xec00_0000, 0x400_0000),
            (0x82_8000_0000, 0xf000_0000, 0x40_0000),
            // Physical TopSPs 9, 10 and 19.
            (0x84_c000_0000, 0xf240_0000, 0x40_0000),
            (0x8082_8000_0000, 0xf280_0000, 0x40_0000),
            (0x8084_c000_0000, 0xf4c0_0000, 0x40_0000),
        ];
        for device in [0x7364, 0x7564] {
            let h = hal(device);
            assert_eq!(h.register_blocks().count(), 2 + 4 + 4 + 8 + 20);
            for (address, window, len) in rows {
                assert_eq!(offset(device, address), Some(window), "{address:#x}");
                assert_eq!(offset(device, address + len - 4), Some(window + len - 4));
                assert_eq!(h.register_address(window + len - 1, 1).unwrap().0, address + len - 1);
                // Not one byte more: the address space goes on with something else or nothing.
                assert_eq!(h.register_offset(DeviceAddr(address + len - 1), 2), None);
                assert_eq!(h.register_offset(DeviceAddr(address), len), Some(window));
            }
            assert_eq!(h.register_offset(DeviceAddr(u64::MAX), 2), None);
            assert_eq!(h.register_address(0x2000_0000, 4), None, "between the dice");
        }
        // MiscRAM as a neighbour sees it.
        assert_eq!(hal(0x7364).register_address(0x06c8_4000, 4).unwrap().0, 0x80_06c8_4000);
    }

    #[test]
    fn every_referenced_register_lies_in_a_block_and_below_the_needed_length() {
        for device in [0x7164, 0x7264, 0x7364, 0x7564] {
            let h = hal(device);
            let map = &h.tables().map;
            let mut last = 0;
            for block in h.register_blocks() {
                last = last.max(block.window + block.len_bytes);
            }
            assert!(map.register_len <= last);
            for engine in h.engines() {
                for (base, len) in [(engine.unit, 0x4_0000), (engine.wrapper, 0x7000)] {
                    assert!(h.register_address(base, len).is_some(), "{engine:?}");
                    assert!(base + len <= map.register_len, "{engine:?}");
                }
                if let Some(user_fis) = engine.user_fis {
                    assert!(h.register_address(user_fis, 0x2_0000).is_some(), "{engine:?}");
                }
            }
            assert!(h.register_address(map.misc_ram, 0x1000).is_some());
            assert!(map.misc_ram + 0x1000 <= map.register_len);
        }
    }

    #[test]
    fn peer_windows_belong_to_the_link_of_the_engines_seng() {
        let at = |device, engine, address| {
            let engine = EngineId::new(engine).unwrap();
            hal(device).peer_address(engine, DeviceAddr(address), 4).map(|a| a.0)
        };
        let misc = 0x80_06c8_4000;
        assert_eq!(at(0x7364, 4, misc), Some(0x10_0080_06c8_4000));
        assert_eq!(at(0x7364, 36, misc), Some(0x14_0080_06c8_4000));
        assert_eq!(at(0x7564, 72, misc), Some(0x18_0080_06c8_4000));
        assert_eq!(at(0x7564, 127, misc), Some(0x1c_0080_06c8_4000));
        assert_eq!(at(0x7364, 128, misc), None);
        assert_eq!(at(0x7164, 0, misc), None);
        assert_eq!(at(0x7364, 0, (1 << 50) - 4), Some(0x13_ffff_ffff_fffc));
        assert_eq!(at(0x7364, 0, (1 << 50) - 3), None);
        let h = hal(0x7364);
        assert!(h.is_peer(DeviceAddr(0x1f_ffff_ffff_ffff)));
        assert!(!h.is_peer(DeviceAddr(0x20_0000_0000_0000)));
        assert!(!h.is_peer(DeviceAddr(0xf_ffff_ffff_ffff)));
        assert!(!hal(0x7164).is_peer(DeviceAddr(0x10_0000_0000_0000)));
        // The decode order: a peer address is no host address, whatever is below bit 52.
        assert!(!h.is_host(DeviceAddr(0x10_4000_0000_0000)));
    }

    #[test]
    fn link_engines_sit_in_four_different_sengs() {
        assert_eq!(hal(0x7164).link_engines(), None);
        assert_eq!(hal(0x7364).link_engines(), Some([[36, 68], [4, 100]]));
        assert_eq!(hal(0x7564).link_engines(), Some([[40, 72], [8, 104]]));
    }

    proptest! {
        #[test]
        fn offsets_and_addresses_are_inverse(offset in 0u64..1 << 32, len in 1u64..64) {
            for device in [0x7164, 0x7364] {
                let h = hal(device);
                if let Some(address) = h.register_address(offset, len) {
                    prop_assert_eq!(h.register_offset(address, len), Some(offset));
                    prop_assert!(!h.is_host(address) && !h.is_peer(address));
                    prop_assert!(h.hbm_of(address, len).is_none());
                }
            }
        }
    }
}
