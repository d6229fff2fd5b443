//! What a base address register says about itself: kind, address, and length, which takes writing
//! all-ones and reading back.
//!
//! Decoding is off meanwhile, so that the function does not answer at the trial address, and
//! everything is put back as firmware left it.

use axon_platform::BarInfo;

use super::config::Config;

const COMMAND: u16 = 0x04;
const FIRST: u16 = 0x10;
const DECODE: u16 = 0b11;

/// The six registers of an endpoint.
pub type Bars = [Option<BarInfo>; 6];

/// What sizing needs of configuration space.
pub trait Registers {
    /// Reads a register.
    fn read32(&self, offset: u16) -> u32;
    /// Writes a register.
    fn write32(&self, offset: u16, value: u32);
    /// Writes half a register.
    fn write16(&self, offset: u16, value: u16);
}

impl Registers for Config {
    fn read32(&self, offset: u16) -> u32 {
        Config::read32(self, offset)
    }
    fn write32(&self, offset: u16, value: u32) {
        Config::write32(self, offset, value);
    }
    fn write16(&self, offset: u16, value: u16) {
        Config::write16(self, offset, value);
    }
}

/// Reads all memory BARs of an endpoint; none for another kind of header.
pub fn read(config: &impl Registers) -> Bars {
    let mut bars = [None; 6];
    if config.read32(0x0c) >> 16 & 0x7f != 0 {
        return bars;
    }
    let command = config.read32(COMMAND) as u16;
    config.write16(COMMAND, command & !DECODE);
    let mut index = 0;
    while index < bars.len() {
        let low = config.read32(FIRST + 4 * index as u16);
        let wide = low & 0b111 == 0b100;
        // A wide BAR in the last register has no second half: not a BAR.
        if low & 1 == 0 && (!wide || index < 5) {
            bars[index] = size(config, FIRST + 4 * index as u16, low, wide);
        }
        index += if wide { 2 } else { 1 };
    }
    config.write16(COMMAND, command);
    bars
}

fn size(config: &impl Registers, offset: u16, low: u32, wide: bool) -> Option<BarInfo> {
    let high = if wide { config.read32(offset + 4) } else { 0 };
    config.write32(offset, u32::MAX);
    let low_mask = config.read32(offset) & !0xf;
    config.write32(offset, low);
    let mask = if wide {
        config.write32(offset + 4, u32::MAX);
        let high_mask = config.read32(offset + 4);
        config.write32(offset + 4, high);
        u64::from(high_mask) << 32 | u64::from(low_mask)
    } else {
        // The bits that a narrow BAR does not have count as writable.
        u64::from(low_mask) | if low_mask == 0 { 0 } else { 0xffff_ffff_0000_0000 }
    };
    let len_bytes = mask & mask.wrapping_neg();
    // Nothing writable: no BAR. A hole above the lowest writable bit: not one to believe.
    if mask == 0 || mask | (len_bytes - 1) != u64::MAX {
        return None;
    }
    Some(BarInfo {
        address: u64::from(high) << 32 | u64::from(low & !0xf),
        len_bytes,
        prefetchable: low & 0b1000 != 0,
        is_64bit: wide,
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    /// Six registers with their writable bits, and a command register that must be 0 meanwhile.
    struct Fake {
        registers: RefCell<[u32; 6]>,
        writable: [u32; 6],
        command: RefCell<u16>,
        header: u32,
    }

    impl Fake {
        fn new(registers: [u32; 6], writable: [u32; 6]) -> Fake {
            let command = RefCell::new(0x0407);
            Fake { registers: RefCell::new(registers), writable, command, header: 0 }
        }
    }

    impl Registers for Fake {
        fn read32(&self, offset: u16) -> u32 {
            match offset {
                COMMAND => 0x0010_0000 | u32::from(*self.command.borrow()),
                0x0c => self.header,
                _ => self.registers.borrow()[usize::from(offset - FIRST) / 4],
            }
        }
        fn write32(&self, offset: u16, value: u32) {
            assert_eq!(*self.command.borrow() & DECODE, 0, "decoding while a BAR moves");
            let index = usize::from(offset - FIRST) / 4;
            let register = &mut self.registers.borrow_mut()[index];
            let writable = self.writable[index];
            *register = *register & !writable | value & writable;
        }
        fn write16(&self, offset: u16, value: u16) {
            assert_eq!(offset, COMMAND);
            *self.command.borrow_mut() = value;
        }
    }

    #[test]
    fn wide_and_narrow_bars_are_sized_and_put_back() {
        let before = [0x0000_0004, 0x0000_0080, 0xfeb0_0000, 0xc001, 0x0000_000c, 0x40];
        let writable = [0, 0xffff_fffc, 0xffff_f000, 0xffe0, 0, 0xffff_ffc0];
        let fake = Fake::new(before, writable);
        let bars = read(&fake);
        assert_eq!(
            bars[0],
            Some(BarInfo {
                address: 0x80_0000_0000,
                len_bytes: 16 << 30,
                prefetchable: false,
                is_64bit: true,
            })
        );
        assert_eq!(bars[1], None);
        assert_eq!(bars[2].map(|bar| (bar.address, bar.len_bytes)), Some((0xfeb0_0000, 4096)));
        assert_eq!(bars[3], None);
        assert_eq!(bars[4].map(|bar| (bar.address, bar.len_bytes)), Some((64 << 32, 256 << 30)));
        assert!(bars[4].is_some_and(|bar| bar.prefetchable));
        assert_eq!(*fake.registers.borrow(), before);
        assert_eq!(*fake.command.borrow(), 0x0407);
    }

    #[test]
    fn an_unassigned_bar_has_address_0_and_a_length() {
        let fake = Fake::new([4, 0, 0, 0, 0, 0], [0xc000_0000, u32::MAX, 0, 0, 0, 0]);
        let bar = read(&fake)[0].unwrap();
        assert_eq!((bar.address, bar.len_bytes), (0, 1 << 30));
    }

    #[test]
    fn a_bridge_has_no_bars() {
        let fake = Fake { header: 0x0001_0000, ..Fake::new([0; 6], [u32::MAX; 6]) };
        assert_eq!(read(&fake), [None; 6]);
    }

    proptest! {
        /// Whatever a function answers: no panic, lengths are powers of two, all is put back.
        #[test]
        fn no_device_confuses_sizing(registers: [u32; 6], writable: [u32; 6]) {
            let fake = Fake::new(registers, writable);
            for bar in read(&fake).into_iter().flatten() {
                prop_assert!(bar.len_bytes.is_power_of_two() && bar.len_bytes >= 16);
            }
            prop_assert_eq!(*fake.registers.borrow(), registers);
        }
    }
}
