//! What axon needs from a machine, as traits; nothing here knows x86, QEMU or the model.
//!
//! One implementation is the kernel's (`axon-kernel`, the machine the image boots on), the other
//! is `axon-hosted` (a Linux process with the emulated function inside and virtual time). The
//! driver, the services and every application are generic over [`Platform`] and compile for both
//! from the same source.
//!
//! | item | what it stands for |
//! |---|---|
//! | [`Platform`] | clock, timers, host memory for DMA, PCI functions, task spawning, the console |
//! | [`Clock`] | its time alone |
//! | [`PciFunction`] | one PCI function: configuration space, BARs |
//! | [`control()`] | the control line of an emulated one; hardware is refused |
//! | [`MmioWindow`] | one mapped BAR |
//! | [`DmaBuf`] | physically contiguous host memory that a device may read and write |
//! | [`Instant`] | monotonic time |
//! | [`BusAddr`], [`DeviceAddr`] | the two address kinds that may not be mixed up |
//! | [`Errno`] | the number a POSIX caller would see, carried by every error of axon |

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod addr;
mod clock;
mod control;
mod dma;
mod errno;
mod machine;
mod mmio;
mod pci;
mod time;

pub use addr::{BusAddr, DeviceAddr};
pub use clock::Clock;
pub use control::{control, is_emulated};
pub use dma::{Descriptor, DescriptorRing, DmaBuf, OutOfBounds, WordRing};
pub use errno::Errno;
pub use machine::{
    BootStats, DmaExhausted, LastWords, ModelControl, Platform, SpawnError, TaskUse,
};
pub use mmio::MmioWindow;
pub use pci::{BarInfo, Bdf, Caching, MapError, PciFunction};
pub use time::Instant;
