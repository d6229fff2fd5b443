//! Address kinds. A number never changes its kind by accident: conversions are named.

use core::fmt;

/// Address on the host bus: what the CPU calls a physical address.
///
/// A device does not use it as it is: the HAL of its generation turns it into a [`DeviceAddr`] by
/// setting the host-base bit (specification 03 §5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BusAddr(pub u64);

/// Address as a DMA engine of the device sees it: HBM, on-chip windows, or host memory with the
/// host-base bit set ("tagged", specification 03 §5.1).
///
/// Address 0 is legal: it is the first byte of HBM 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceAddr(pub u64);

macro_rules! address {
    ($name:ident, $tag:literal) => {
        impl $name {
            /// The address `offset` bytes further on; `None` where the sum would wrap.
            pub const fn checked_add(self, offset: u64) -> Option<Self> {
                match self.0.checked_add(offset) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// Low 32 bits, as a register takes them.
            pub const fn low(self) -> u32 {
                self.0 as u32
            }

            /// High 32 bits, as a register takes them.
            pub const fn high(self) -> u32 {
                (self.0 >> 32) as u32
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($tag, "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address!(BusAddr, "bus");
address!(DeviceAddr, "dev");
