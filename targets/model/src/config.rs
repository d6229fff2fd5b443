//! What a function is: product, revision, sizes, identity, durations (specification 00 §8).

use std::fmt;

use crate::faults::{FaultError, Faults};
use crate::report::Traces;

const GIB: u64 = 1 << 30;

/// The five functions that exist (specification 01 §1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// Trainium1, generation V2.
    Trn1,
    /// Inferentia2, generation V2.
    Inf2,
    /// Trainium2, generation V3.
    Trn2,
    /// Trainium3, generation V4.
    Trn3,
    /// Trainium3 under its second device id, generation V4.
    Trn3Second,
}

/// Hardware generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Generation {
    /// Trainium1, Inferentia2.
    V2,
    /// Trainium2.
    V3,
    /// Trainium3.
    V4,
}

impl Product {
    /// PCI device id.
    pub const fn device_id(self) -> u16 {
        match self {
            Product::Trn1 => 0x7164,
            Product::Inf2 => 0x7264,
            Product::Trn2 => 0x7364,
            Product::Trn3 => 0x7564,
            Product::Trn3Second => 0x7565,
        }
    }

    /// Hardware generation.
    pub const fn generation(self) -> Generation {
        match self {
            Product::Trn1 | Product::Inf2 => Generation::V2,
            Product::Trn2 => Generation::V3,
            Product::Trn3 | Product::Trn3Second => Generation::V4,
        }
    }

    /// The product of that name: `trn1`, `inf2`, `trn2`, `trn3`, `trn3-7565`.
    pub fn from_name(name: &str) -> Option<Product> {
        Some(match name {
            "trn1" => Product::Trn1,
            "inf2" => Product::Inf2,
            "trn2" => Product::Trn2,
            "trn3" => Product::Trn3,
            "trn3-7565" => Product::Trn3Second,
            _ => return None,
        })
    }

    /// The routing id that firmware reports for device index `index` (inverse of 01 §10).
    pub const fn routing_id(self, index: u32) -> u32 {
        const TRN1: [u32; 16] = [0, 2, 6, 4, 1, 3, 7, 5, 9, 11, 15, 13, 8, 10, 14, 12];
        const TRN2: [u32; 16] = [0, 8, 9, 1, 2, 10, 11, 3, 6, 14, 15, 7, 4, 12, 13, 5];
        let (row, place) = (index / 16 * 16, (index % 16) as usize);
        match self {
            Product::Trn1 => row + TRN1[place],
            Product::Inf2 => index,
            Product::Trn2 | Product::Trn3 | Product::Trn3Second => row + TRN2[place],
        }
    }
}

/// How much of the memory window the function presents (specification 01 §14.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bar4 {
    /// The size of 01 §2.2.
    Full,
    /// A power of two of at least 64 MiB; with a silicon revision the layout is simply cut off.
    Size(u64),
    /// No memory window: HBM is reached by DMA only.
    Absent,
}

/// Revision byte of the functional simulator.
pub const REVISION_QEMU: u8 = 0xff;
/// Revision byte of the hardware emulator.
pub const REVISION_EMULATOR: u8 = 0xf0;

/// Everything that can be chosen about a function before it exists.
#[derive(Clone, Debug)]
pub struct FunctionConfig {
    /// Which product.
    pub product: Product,
    /// PCI device id presented; another one than the product's is for tests of refusal.
    pub device_id: u16,
    /// PCI revision: 0x01 is silicon, 0xff the simulator, 0xf0 the emulator (01 §1.2).
    pub revision: u8,
    /// Number of the function in the report.
    pub index: u32,
    /// MiscRAM `DEVICE_ID`.
    pub routing_id: u32,
    /// Memory window.
    pub bar4: Bar4,
    /// Bytes of the register window presented: a power of two, 0 for none; `None` is the product's.
    pub bar0: Option<u64>,
    /// Whether BAR0 takes an address; `false` leaves it at 0 whatever the guest writes.
    pub bar0_assignable: bool,
    /// MiscRAM serial number.
    pub serial: u64,
    /// MiscRAM `API_VERSION`.
    pub api_version: u32,
    /// MiscRAM `SERVER_RACK_ID`; bit 15 makes the server id valid.
    pub server_rack_id: u32,
    /// Seed of whatever the model leaves to chance (today: nothing).
    pub seed: u64,
    /// Start-up time in which MiscRAM reads 0xdeadbeef.
    pub firmware_late_ns: u64,
    /// Whether firmware offers profiles for HBM-7200.
    pub hbm_7200: bool,
    /// Length of a reset.
    pub reset_ns: u64,
    /// How long `FW_STATUS` says "not ready" after `RESET` cleared.
    pub ready_delay_ns: u64,
    /// Delay of every mailbox answer.
    pub mailbox_delay_ns: u64,
    /// Work done inside one doorbell write, in payload bytes and 1 KiB for each descriptor; what is
    /// left runs in [`Function::advance`]. The default holds one full batch of 127 MiB.
    ///
    /// [`Function::advance`]: crate::Function::advance
    pub inline_dma_bytes: u64,
    /// Doorbells on queues without a ring are violations even right after a reset (02 §13.3).
    pub strict: bool,
    /// A notification queue with a ring counts as enabled until software has written the enable
    /// register of its block (06 §14.2).
    pub auto_enable: bool,
    /// Faults armed from the start.
    pub faults: Faults,
    pub(crate) traces: Traces,
}

/// A configuration that no function can have.
#[derive(Debug)]
pub enum ConfigError {
    /// BAR4 size that is no power of two, below 64 MiB, or larger than the product's window.
    Bar4Size {
        /// Size asked for in bytes.
        asked: u64,
        /// Largest size in bytes.
        largest: u64,
    },
    /// BAR0 size that is no power of two from 4 KiB to 1 TiB.
    Bar0Size {
        /// Size asked for in bytes.
        asked: u64,
    },
    /// The operating system refused the backing memory.
    Memory(std::io::Error),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Bar4Size { asked, largest } => write!(
                f,
                "BAR4 of {asked} bytes: it must be a power of two from 64 MiB to {largest} bytes"
            ),
            ConfigError::Bar0Size { asked } => {
                write!(f, "BAR0 of {asked} bytes: it must be a power of two from 4 KiB to 1 TiB")
            }
            ConfigError::Memory(error) => write!(f, "no memory for HBM: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl FunctionConfig {
    /// The default function of a product (specification 00 §8), number `index` of its host.
    pub fn new(product: Product, index: u32) -> Self {
        FunctionConfig {
            product,
            device_id: product.device_id(),
            revision: 0x01,
            index,
            routing_id: product.routing_id(index),
            bar4: Bar4::Full,
            bar0: None,
            bar0_assignable: true,
            serial: (1 << 32) + u64::from(index) + 1,
            api_version: 7,
            server_rack_id: 0,
            seed: 0,
            firmware_late_ns: 0,
            hbm_7200: false,
            reset_ns: 20_000_000,
            ready_delay_ns: 0,
            mailbox_delay_ns: 0,
            inline_dma_bytes: 136 << 20,
            strict: false,
            auto_enable: true,
            faults: Faults::default(),
            traces: Traces::default(),
        }
    }

    /// Arms a fault from its text, `NAME[=VALUE] [after=N] [times=N]`. This is the only way for
    /// those that decide what the function is: sizes, identity, revision.
    ///
    /// # Errors
    /// [`FaultError`] for an unknown name or a value that the fault does not take.
    pub fn fault(&mut self, text: &str) -> Result<(), FaultError> {
        let order = crate::faults::FaultOrder::parse(text)?;
        match order.name.as_str() {
            "bar4-absent" => self.bar4 = Bar4::Absent,
            "bar4-size" => self.bar4 = Bar4::Size(order.number_or(64 << 20)?),
            "bar0-size" => self.bar0 = Some(order.number_or(256 << 20)?),
            "revision" => self.revision = order.number_or(REVISION_QEMU.into())? as u8,
            "bar-unassigned" => self.bar0_assignable = false,
            "bad-device-id" => self.device_id = order.number_or(0x7065)? as u16,
            "dup-routing-id" => {
                self.routing_id = order.number_or(u64::from(self.product.routing_id(0)))? as u32;
            }
            "fw-late" => self.firmware_late_ns = order.duration_or(1_000_000_000)?,
            _ => self.faults.arm(&order)?,
        }
        Ok(())
    }

    /// Switches a trace on from the start: `doorbells`, `descriptors`, `registers` or `all`.
    ///
    /// # Errors
    /// A sentence, for another name.
    pub fn trace(&mut self, which: &str) -> Result<(), String> {
        self.traces.switch(which, true)
    }

    /// Hardware generation of the product.
    pub const fn generation(&self) -> Generation {
        self.product.generation()
    }

    /// Number of NeuronCores.
    pub(crate) const fn cores(&self) -> usize {
        match self.generation() {
            Generation::V2 => 2,
            Generation::V3 | Generation::V4 => 8,
        }
    }

    /// Number of dice as the power registers show them.
    pub(crate) const fn dice(&self) -> usize {
        match (self.generation(), self.revision) {
            (Generation::V2, _) | (_, REVISION_QEMU | REVISION_EMULATOR) => 1,
            _ => 2,
        }
    }

    /// Bytes of the register window; 0 where it is absent.
    pub(crate) fn bar0_bytes(&self) -> Result<u64, ConfigError> {
        match (self.bar0, self.generation()) {
            (None, Generation::V2) => Ok(GIB),
            (None, Generation::V3 | Generation::V4) => Ok(4 * GIB),
            (Some(0), _) => Ok(0),
            (Some(asked), _) if asked.is_power_of_two() && (4096..=1024 * GIB).contains(&asked) => {
                Ok(asked)
            }
            (Some(asked), _) => Err(ConfigError::Bar0Size { asked }),
        }
    }

    /// PCI index of the register window (01 §2.1).
    pub(crate) const fn bar0_index(&self) -> u8 {
        match (self.generation(), self.revision) {
            (Generation::V2, REVISION_QEMU) => 2,
            _ => 0,
        }
    }

    const fn bar4_full_bytes(&self) -> u64 {
        match self.generation() {
            Generation::V2 => 32 * GIB,
            Generation::V3 | Generation::V4 => 256 * GIB,
        }
    }

    /// Bytes of the memory window; 0 where it is absent.
    pub(crate) fn bar4_bytes(&self) -> Result<u64, ConfigError> {
        let largest = self.bar4_full_bytes();
        match self.bar4 {
            Bar4::Full => Ok(largest),
            Bar4::Absent => Ok(0),
            Bar4::Size(asked)
                if asked.is_power_of_two() && (64 << 20..=largest).contains(&asked) =>
            {
                Ok(asked)
            }
            Bar4::Size(asked) => Err(ConfigError::Bar4Size { asked, largest }),
        }
    }

    /// Active bytes of one HBM channel and the distance of channels in BAR4 (01 §1.2, §3.9).
    pub(crate) fn hbm_geometry(&self) -> Result<HbmGeometry, ConfigError> {
        let (channels, silicon, pitch) = match self.generation() {
            Generation::V2 => (2, 16 * GIB, 16 * GIB),
            Generation::V3 => (4, 24 * GIB, 64 * GIB),
            Generation::V4 => (4, 36 * GIB, 64 * GIB),
        };
        let window = self.bar4_bytes()?;
        let simulated = self.generation() != Generation::V2 && self.revision == REVISION_QEMU;
        Ok(if simulated && window != 0 {
            HbmGeometry { channels, active_bytes: window / 4, pitch_bytes: window / 4 }
        } else {
            HbmGeometry { channels, active_bytes: silicon, pitch_bytes: pitch }
        })
    }
}

/// Size and placement of HBM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HbmGeometry {
    pub channels: usize,
    pub active_bytes: u64,
    pub pitch_bytes: u64,
}
