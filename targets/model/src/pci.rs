//! Configuration space: a type-0 header with BAR sizing, no interrupt capability (specification 01
//! §14.1), and the control port of this model.

use crate::config::{ConfigError, FunctionConfig};
use crate::port::{CAPABILITY, ControlPort};

/// One base address register of the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarSpec {
    /// Size in bytes, a power of two.
    pub size_bytes: u64,
    /// Whether the window is prefetchable memory.
    pub prefetchable: bool,
    /// Whether it takes two registers.
    pub is_64_bit: bool,
}

const VENDOR: u16 = 0x1d0f;
const CLASS: u32 = 0x12_0000;
const HEADER_BYTES: usize = 64;
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u16 = 1 << 4;
const FIRST_CAPABILITY: usize = 0x34;
const CACHE_LINE: usize = 0x0c;
const BARS: usize = 0x10;
const SUBSYSTEM: usize = 0x2c;
const INTERRUPT_LINE: usize = 0x3c;

/// Memory enable, bus master; parity, SERR and interrupt disable are kept without effect.
const COMMAND_WRITABLE: u16 = 0x0546;
const MEMORY_ENABLE: u16 = 0x2;
const BUS_MASTER: u16 = 0x4;

/// The configuration space of one function.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    header: [u8; HEADER_BYTES],
    bars: [Option<BarSpec>; 6],
    /// Which bits of each of the six registers keep what is written.
    writable: [u32; 6],
    pub port: ControlPort,
}

impl ConfigSpace {
    pub fn new(config: &FunctionConfig) -> Result<Self, ConfigError> {
        let mut space = ConfigSpace {
            header: [0; 64],
            bars: [None; 6],
            writable: [0; 6],
            port: ControlPort::default(),
        };
        space.put16(STATUS, HAS_CAPABILITIES);
        space.put16(FIRST_CAPABILITY, CAPABILITY);
        space.put16(0x00, VENDOR);
        space.put16(0x02, config.device_id);
        space.put32(0x08, CLASS << 8 | u32::from(config.revision));
        space.put16(SUBSYSTEM, VENDOR);
        space.put16(SUBSYSTEM + 2, config.device_id);
        let register_bytes = config.bar0_bytes()?;
        if register_bytes != 0 {
            let registers =
                BarSpec { size_bytes: register_bytes, prefetchable: false, is_64_bit: true };
            space.add_bar(usize::from(config.bar0_index()), registers, config.bar0_assignable);
        }
        let memory_bytes = config.bar4_bytes()?;
        if memory_bytes != 0 {
            let memory = BarSpec { size_bytes: memory_bytes, prefetchable: true, is_64_bit: true };
            space.add_bar(4, memory, true);
        }
        Ok(space)
    }

    fn add_bar(&mut self, index: usize, spec: BarSpec, assignable: bool) {
        let mask = if assignable { !(spec.size_bytes - 1) } else { 0 };
        self.bars[index] = Some(spec);
        self.writable[index] = mask as u32 & !0xf;
        self.writable[index + 1] = (mask >> 32) as u32;
        self.put32(BARS + 4 * index, 0x4 | u32::from(spec.prefetchable) << 3);
    }

    pub fn bars(&self) -> [Option<BarSpec>; 6] {
        self.bars
    }

    pub fn memory_enabled(&self) -> bool {
        self.command() & MEMORY_ENABLE != 0
    }

    pub fn bus_master(&self) -> bool {
        self.command() & BUS_MASTER != 0
    }

    /// What is behind header and capability reads 0, as for a function without further registers.
    pub fn read(&self, offset: u16, into: &mut [u8]) {
        for (place, byte) in into.iter_mut().enumerate() {
            let at = usize::from(offset) + place;
            *byte = match u16::try_from(at) {
                Ok(at) if ControlPort::covers(at) => self.port.read_byte(at),
                _ => self.header.get(at).copied().unwrap_or(0),
            };
        }
    }

    /// Byte by byte, so that any width and alignment acts as on a bus with byte enables.
    pub fn write(&mut self, offset: u16, from: &[u8]) {
        for (place, &byte) in from.iter().enumerate() {
            let at = usize::from(offset) + place;
            let mask = self.writable_byte(at);
            if let Some(kept) = self.header.get_mut(at) {
                *kept = *kept & !mask | byte & mask;
            }
        }
    }

    /// Back to the state after power-on: no addresses, memory decoding and bus mastering off.
    pub fn reset(&mut self) {
        for at in 0..HEADER_BYTES {
            self.header[at] &= !self.writable_byte(at);
        }
    }

    fn writable_byte(&self, at: usize) -> u8 {
        match at {
            COMMAND | 0x05 => COMMAND_WRITABLE.to_le_bytes()[at - COMMAND],
            CACHE_LINE | INTERRUPT_LINE => 0xff,
            BARS..0x28 => self.writable[(at - BARS) / 4].to_le_bytes()[at % 4],
            _ => 0,
        }
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.header[COMMAND], self.header[COMMAND + 1]])
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.header[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Bar4, Product};

    fn read32(space: &ConfigSpace, offset: u16) -> u32 {
        let mut bytes = [0; 4];
        space.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn size_of(space: &mut ConfigSpace, index: u16) -> u64 {
        for half in [0, 4] {
            space.write(0x10 + 4 * index + half, &[0xff; 4]);
        }
        let low = read32(space, 0x10 + 4 * index) & !0xf;
        let high = read32(space, 0x14 + 4 * index);
        (u64::from(high) << 32 | u64::from(low)).wrapping_neg()
    }

    #[test]
    fn presents_identity_and_sizes() {
        let mut config = FunctionConfig::new(Product::Trn2, 0);
        let mut space = ConfigSpace::new(&config).unwrap();
        assert_eq!(read32(&space, 0), 0x7364_1d0f);
        assert_eq!(read32(&space, 8), 0x1200_0001);
        assert_eq!(read32(&space, 0x2c), 0x7364_1d0f);
        assert_eq!(read32(&space, 0x10) & 0xf, 0x4);
        assert_eq!(read32(&space, 0x20) & 0xf, 0xc);
        assert_eq!(size_of(&mut space, 0), 1 << 32);
        assert_eq!(size_of(&mut space, 4), 256 << 30);
        assert_eq!(read32(&space, 0x18), 0);
        config.bar4 = Bar4::Absent;
        let mut space = ConfigSpace::new(&config).unwrap();
        assert_eq!(size_of(&mut space, 4), 0);
    }

    #[test]
    fn dev_e01_revision_ff_moves_the_register_window_of_v2() {
        let mut config = FunctionConfig::new(Product::Inf2, 0);
        config.revision = 0xff;
        let space = ConfigSpace::new(&config).unwrap();
        assert_eq!(space.bars()[0], None);
        assert_eq!(space.bars()[2].map(|bar| bar.size_bytes), Some(1 << 30));
    }

    #[test]
    fn command_bits_gate_and_reset_clears_them() {
        let mut space = ConfigSpace::new(&FunctionConfig::new(Product::Trn1, 0)).unwrap();
        assert!(!space.memory_enabled() && !space.bus_master());
        space.write(4, &[0x06]);
        space.write(0x12, &[0x00, 0xc0]);
        assert!(space.memory_enabled() && space.bus_master());
        assert_eq!(read32(&space, 0x10), 0xc000_0004);
        space.reset();
        assert!(!space.memory_enabled() && !space.bus_master());
        assert_eq!(read32(&space, 0x10), 4);
    }

    #[test]
    fn an_unassignable_window_keeps_address_zero() {
        let mut config = FunctionConfig::new(Product::Trn1, 0);
        config.fault("bar-unassigned").unwrap();
        let mut space = ConfigSpace::new(&config).unwrap();
        space.write(0x10, &[0xff; 8]);
        assert_eq!(read32(&space, 0x10), 4);
        assert_eq!(read32(&space, 0x14), 0);
    }

    #[test]
    fn the_register_window_may_be_short_or_absent() {
        let mut config = FunctionConfig::new(Product::Trn1, 0);
        config.fault("bar0-size").unwrap();
        let mut space = ConfigSpace::new(&config).unwrap();
        assert_eq!(size_of(&mut space, 0), 256 << 20);
        config.fault("bar0-size=0").unwrap();
        let space = ConfigSpace::new(&config).unwrap();
        assert_eq!(space.bars()[0], None);
        config.fault("bar0-size=3000000").unwrap();
        assert!(matches!(ConfigSpace::new(&config), Err(ConfigError::Bar0Size { .. })));
    }

    #[test]
    fn odd_accesses_do_no_harm() {
        let mut space = ConfigSpace::new(&FunctionConfig::new(Product::Trn1, 0)).unwrap();
        space.write(0x3e, &[0xff; 9]);
        space.write(0xffff, &[0xff; 4]);
        let mut bytes = [1; 3];
        space.read(0xfff, &mut bytes);
        assert_eq!(bytes, [0; 3]);
    }
}
