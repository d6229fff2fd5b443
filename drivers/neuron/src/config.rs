//! What may be chosen for one device at attach time (specification 01 §17).

use core::time::Duration;

use crate::Hal;

/// Configuration of one device; [`Default`] is right for silicon and for the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceConfig {
    /// Map the memory window write-combining.
    pub wc_enable: bool,
    /// Leave the hardware alone at a reset: only the driver's part is done (05 §11.7).
    pub no_reset: bool,
    /// A per-core reset of both cores of a SENG includes their host-transfer engine (V3, V4).
    pub reset_top_dma: bool,
    /// Take a V3 host for an UltraServer node whatever its name says.
    pub force_userver: bool,
    /// Flip the dice in the logical core map.
    pub force_die_flip: bool,
    /// Cores of an emulator (PCI revision 0xf0).
    pub emulator_cores: u8,
    /// Cores of an emulator that are there, as a mask.
    pub emulator_core_map: u32,
    /// Multiplies the time a batch may take; `None` takes what the PCI revision says (03 §7.6).
    pub budget_multiplier: Option<u32>,
    /// Copies straight between client pages and a chunk on V2 (03 §11.1).
    pub zero_copy_on_v2: bool,
    /// Descriptors with metadata may be put into rings of clients (03 §5.4). Nobody has described
    /// what they make an engine do.
    pub admit_metadata: bool,
    /// Slices of at most so many bytes are written to the device by the CPU, through the memory
    /// window, where their place and length are multiples of 4; at most 8192, 0 for never
    /// (03 §11.5).
    pub memory_window_limit: u32,
    /// How long firmware may take to name the device (01 §10).
    pub routing_id_deadline: Duration,
    /// The driver alone uses notification queues: it enables them, tells the hardware how far it
    /// has read and sees what was lost (06 §17.2). Without it only rings are programmed. To be
    /// confirmed on silicon; right for the model.
    pub manage_notifications: bool,
    /// Notification queues of a core or TopSP: 10 on silicon, at most 16.
    pub notification_queues: u8,
    /// Host slabs of 256 KiB to take at rung D16: 16 where a telemetry service runs.
    pub datastore_slabs: u8,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        DeviceConfig {
            wc_enable: true,
            no_reset: false,
            reset_top_dma: false,
            force_userver: false,
            force_die_flip: false,
            emulator_cores: 1,
            emulator_core_map: 0x1,
            budget_multiplier: None,
            zero_copy_on_v2: false,
            admit_metadata: false,
            memory_window_limit: Hal::MEMORY_WINDOW_LIMIT,
            routing_id_deadline: Duration::from_secs(60),
            manage_notifications: false,
            notification_queues: 10,
            datastore_slabs: 0,
        }
    }
}
