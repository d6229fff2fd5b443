//! The hardware abstraction: one immutable value per device, made of tables (specification 01 §13).
//!
//! Nothing here is global and nothing changes after construction, so that mixed generations work
//! side by side. The probe ladder makes the value; everybody else reads it.
//!
//! | module | what it knows |
//! |---|---|
//! | [`identity`] | ids, generation, environment, platform type |
//! | [`tables`] | every constant that differs between generations |
//! | `addresses` | host addresses, HBM in BAR4, core and TopSP windows |
//! | `engines` | DMA engines: where they lie, whom they serve |
//! | `routing` | routing id to device index and back |
//! | `topology` | neighbours, logical core map |
//! | `register_map` | the register window as the device sees it, and windows onto neighbours |
//! | `notific` | notification blocks, their queues, whom a TopSP works for |
//! | `timing` | how long a batch may take |
//! | `reset_map` | what a per-core reset writes and covers |
//! | `deny` | registers that clients may not write |
//! | `windows` | special windows and their tokens |

mod addresses;
mod deny;
mod engines;
pub mod identity;
mod links;
mod notific;
mod register_map;
mod reset_map;
mod routing;
pub mod tables;
mod timing;
mod topology;
mod windows;

use axon_platform::{DeviceAddr, Errno};
use axon_ports::CoreId;
use axon_ports::memory::{ChannelGeometry, MemoryGeometry};
use core::fmt;

use crate::DeviceConfig;
use identity::{Environment, Generation, PlatformType, Product};
use tables::Tables;

pub use addresses::SemaphoreView;
pub use engines::Engine;
pub use links::LinkSide;
pub use notific::{HardwareQueue, NOTIFICATION_SLOTS, notification_queue_id};
pub use register_map::RegisterBlock;
pub use reset_map::ResetMap;
pub use timing::{BatchKind, Budget};
pub use topology::{CorePlace, Neighbours};
pub use windows::{Block, Resource, SpecialWindow};

/// Everything about a device that is known before it is touched.
#[derive(Clone, Copy, Debug)]
pub struct Hal {
    product: Product,
    environment: Environment,
    platform_type: PlatformType,
    single_device_instance: bool,
    tables: &'static Tables,
    cores: u8,
    core_map: u32,
    dice: u8,
    hbm_size: u64,
    hbm_bar4_pitch: u64,
    bar4_len: u64,
    memory_window_limit: u32,
    budget_multiplier: u32,
    notification_queues: u8,
    no_reset: bool,
    reset_top_dma: bool,
    force_die_flip: bool,
    zero_copy_on_v2: bool,
    admit_metadata: bool,
}

/// Why no [`Hal`] could be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HalError {
    /// The PCI device id is not claimed.
    UnknownDevice {
        /// Id as read.
        device_id: u16,
    },
    /// An emulator with no cores, too many, or a core map that names others.
    BadCoreMap {
        /// Cores by configuration.
        cores: u8,
        /// Map by configuration.
        core_map: u32,
    },
}

impl HalError {
    /// [`Errno::ENODEV`] for a foreign device, [`Errno::EINVAL`] for bad configuration.
    pub const fn errno(&self) -> Errno {
        match self {
            HalError::UnknownDevice { .. } => Errno::ENODEV,
            HalError::BadCoreMap { .. } => Errno::EINVAL,
        }
    }
}

impl fmt::Display for HalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            HalError::UnknownDevice { device_id } => {
                write!(f, "device id {device_id:#06x} is no Neuron accelerator")
            }
            HalError::BadCoreMap { cores, core_map } => {
                write!(f, "core map {core_map:#x} does not fit {cores} configured cores")
            }
        }
    }
}

impl core::error::Error for HalError {}

impl Hal {
    /// The value for one device.
    ///
    /// `platform_name` is the SMBIOS product name of the host, `bar4_len` the length of the memory
    /// window as presented, 0 where there is none.
    ///
    /// # Errors
    /// [`HalError`]; nothing has been touched.
    pub fn new(
        device_id: u16,
        revision: u8,
        platform_name: Option<&str>,
        config: &DeviceConfig,
        bar4_len: u64,
    ) -> Result<Hal, HalError> {
        let product =
            Product::from_device_id(device_id).ok_or(HalError::UnknownDevice { device_id })?;
        let tables = match product.generation() {
            Generation::V2 => &tables::V2,
            Generation::V3 => &tables::V3,
            Generation::V4 => &tables::V4,
        };
        let environment = Environment::from_revision(revision);
        let silicon = environment == Environment::Silicon;

        let (cores, core_map) = if environment == Environment::Emulator {
            (config.emulator_cores, config.emulator_core_map)
        } else {
            (tables.counts.cores, (1 << tables.counts.cores) - 1)
        };
        if cores == 0 || cores > tables.counts.cores || core_map == 0 || core_map >> cores != 0 {
            return Err(HalError::BadCoreMap { cores, core_map });
        }

        // assumed: a simulator without a memory window has the HBM of silicon.
        let follows_bar4 =
            environment == Environment::Qemu && tables.map.hbm_follows_bar4 && bar4_len != 0;
        let quarter = bar4_len / 4;
        let mut platform_type = PlatformType::from_name(tables.generation, platform_name);
        if config.force_userver && tables.generation == Generation::V3 {
            platform_type = PlatformType::UltraServer;
        }

        Ok(Hal {
            product,
            environment,
            platform_type,
            single_device_instance: identity::is_single_device_instance(
                tables.generation,
                platform_name,
            ),
            tables,
            cores,
            core_map,
            dice: if silicon { tables.counts.dice } else { 1 },
            hbm_size: if follows_bar4 { quarter } else { tables.map.hbm_size },
            hbm_bar4_pitch: if follows_bar4 { quarter } else { tables.map.hbm_bar4_pitch },
            bar4_len,
            memory_window_limit: match environment {
                Environment::Qemu => 0,
                _ => config.memory_window_limit.min(Hal::MEMORY_WINDOW_LIMIT),
            },
            budget_multiplier: config
                .budget_multiplier
                .unwrap_or(if silicon { 1 } else { 100_000 })
                .max(1),
            notification_queues: config.notification_queues.min(16),
            no_reset: config.no_reset
                || (environment == Environment::Emulator && tables.reset.emulator_no_reset),
            reset_top_dma: config.reset_top_dma,
            force_die_flip: config.force_die_flip,
            zero_copy_on_v2: config.zero_copy_on_v2,
            admit_metadata: config.admit_metadata,
        })
    }

    /// Product.
    pub const fn product(&self) -> Product {
        self.product
    }

    /// Generation.
    pub const fn generation(&self) -> Generation {
        self.tables.generation
    }

    /// What the function really is.
    pub const fn environment(&self) -> Environment {
        self.environment
    }

    /// Server family.
    pub const fn platform_type(&self) -> PlatformType {
        self.platform_type
    }

    /// Constants of the generation.
    pub const fn tables(&self) -> &'static Tables {
        self.tables
    }

    /// PCI index of the register window ("BAR0").
    pub const fn register_bar(&self) -> u8 {
        match self.environment {
            Environment::Qemu => self.tables.map.register_bar.1,
            _ => self.tables.map.register_bar.0,
        }
    }

    /// PCI index of the memory window ("BAR4").
    pub const fn memory_bar(&self) -> u8 {
        4
    }

    /// Cores of the device: numbers are below this.
    pub const fn cores(&self) -> u8 {
        self.cores
    }

    /// Cores that are there, as a mask.
    pub const fn core_map(&self) -> u32 {
        self.core_map
    }

    /// Whether copies straight between client pages and a chunk are on (03 §11.1).
    pub const fn zero_copy(&self) -> bool {
        self.tables.host_transfer.zero_copy || self.zero_copy_on_v2
    }

    /// Whether a write can be made to land behind all earlier ones (02 §8.2).
    pub const fn has_strong_order(&self) -> bool {
        self.tables.host_transfer.strong_order_write
    }

    /// Whether clients may put metadata into their rings.
    pub const fn admits_metadata(&self) -> bool {
        self.admit_metadata
    }

    /// Whether the device has this core.
    pub const fn has_core(&self, core: CoreId) -> bool {
        self.core_map & (1 << core.number()) != 0
    }

    /// The cores of the device in ascending order.
    pub fn core_ids(&self) -> impl Iterator<Item = CoreId> + Clone + use<> {
        let map = self.core_map;
        CoreId::all().filter(move |core| map & (1 << core.number()) != 0)
    }

    /// Dice of the device.
    pub const fn dice(&self) -> u8 {
        self.dice
    }

    /// Bytes of each HBM channel.
    pub const fn hbm_size(&self) -> u64 {
        self.hbm_size
    }

    /// Whether firmware takes metric posts.
    pub fn posts_metrics(&self) -> bool {
        self.environment == Environment::Silicon || !self.tables.posts_on_silicon_only
    }

    /// Whether power may be sampled.
    pub fn has_power_samples(&self) -> bool {
        self.environment == Environment::Silicon
    }

    /// Most bytes that the CPU writes through the memory window at once (03 §11.5).
    pub const MEMORY_WINDOW_LIMIT: u32 = 8192;

    /// Most bytes of a slice that the CPU writes through the memory window instead of by DMA; 0
    /// where it never does.
    #[inline]
    pub fn memory_window_limit(&self) -> u64 {
        self.memory_window_limit.into()
    }

    /// Whether anything may be written through the memory window.
    pub fn allows_memory_window_writes(&self) -> bool {
        self.environment != Environment::Qemu
    }

    /// Whether resets leave the hardware alone.
    pub const fn no_reset(&self) -> bool {
        self.no_reset
    }

    /// The same device with a memory window that could not be mapped.
    pub(crate) const fn without_memory_window(mut self) -> Hal {
        self.bar4_len = 0;
        self.memory_window_limit = 0;
        self
    }

    /// What the memory service has to know.
    pub fn memory_geometry(&self) -> MemoryGeometry {
        let mut channels = [ChannelGeometry { base: DeviceAddr(0), size: 0 }; 4];
        for (channel, &base) in channels.iter_mut().zip(self.tables.map.hbm_bases) {
            *channel = ChannelGeometry { base: DeviceAddr(base), size: self.hbm_size };
        }
        MemoryGeometry {
            channels,
            channel_count: self.tables.map.hbm_bases.len().min(4) as u8,
            regions_per_channel: 1,
            host_base: self.tables.map.host_base,
            cores: self.cores,
            small_arena: true,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hal(device_id: u16) -> Hal {
        Hal::new(device_id, 1, None, &DeviceConfig::default(), 1 << 38).unwrap()
    }

    #[test]
    fn dev_e01_v2_on_silicon_and_under_the_simulator() {
        let trn1 = hal(0x7164);
        assert_eq!(trn1.generation(), Generation::V2);
        assert_eq!((trn1.register_bar(), trn1.cores(), trn1.core_map()), (0, 2, 0x3));
        assert_eq!(trn1.tables().map.misc_ram, 0x30fa_0000);
        let inf2 = Hal::new(0x7264, 0xff, None, &DeviceConfig::default(), 1 << 35).unwrap();
        assert_eq!(inf2.register_bar(), 2);
        assert_eq!(inf2.hbm_size(), 16 << 30);
    }

    #[test]
    fn runtimes_that_fit_are_those_of_the_generation() {
        for (id, versions) in
            [(0x7164, (5, 7)), (0x7264, (5, 7)), (0x7364, (10, 11)), (0x7564, (10, 11))]
        {
            assert_eq!(hal(id).tables().compatible_runtime, versions);
        }
    }

    #[test]
    fn dev_e02_emulator_cores_come_from_configuration() {
        let mut config = DeviceConfig::default();
        let trn2 = Hal::new(0x7364, 0xf0, None, &config, 1 << 38).unwrap();
        assert_eq!((trn2.cores(), trn2.core_map(), trn2.dice()), (1, 0x1, 1));
        config.emulator_cores = 2;
        config.emulator_core_map = 0x4;
        let refused = Hal::new(0x7364, 0xf0, None, &config, 1 << 38).unwrap_err();
        assert_eq!(refused, HalError::BadCoreMap { cores: 2, core_map: 4 });
        assert_eq!(refused.errno(), Errno::EINVAL);
    }

    #[test]
    fn dev_e03_second_trainium3_id_and_foreign_id() {
        let trn3 = hal(0x7565);
        assert_eq!(trn3.generation(), Generation::V4);
        assert_eq!(trn3.hbm_size(), 0x9_0000_0000);
        let refused = Hal::new(0x7065, 1, None, &DeviceConfig::default(), 0).unwrap_err();
        assert_eq!(refused, HalError::UnknownDevice { device_id: 0x7065 });
        assert_eq!(refused.errno(), Errno::ENODEV);
    }

    #[test]
    fn dev_e04_three_generations_side_by_side() {
        let all = [hal(0x7164), hal(0x7364), hal(0x7564)];
        assert_eq!(all.map(|h| h.tables().map.host_base), [1 << 44, 1 << 46, 1 << 46]);
        assert_eq!(all.map(|h| h.hbm_size() >> 30), [16, 24, 36]);
        assert_eq!(all.map(|h| h.memory_geometry().channel_count), [2, 4, 4]);
    }

    #[test]
    fn only_emulated_trainium3_refuses_resets() {
        let config = DeviceConfig::default();
        let emulated = |id| Hal::new(id, 0xf0, None, &config, 1 << 38).unwrap().no_reset();
        assert_eq!([0x7164, 0x7364, 0x7564].map(emulated), [false, false, true]);
    }
}
