//! MiscRAM: the register RAM of firmware (specification 01 §4).

/// What firmware reads as while it has not set a word, or while the device is in reset.
pub(crate) const NOT_READY: u32 = 0xdead_beef;
/// What a function that is gone reads as.
pub(crate) const ALL_ONES: u32 = u32::MAX;
/// Bytes of the register file.
pub(crate) const LEN: u64 = 0x1000;

/// Version of the firmware interface.
pub(crate) const API_VERSION: u64 = 0x000;
/// Routing id.
pub(crate) const DEVICE_ID: u64 = 0x024;
/// [5:0] devices of the instance, [30:16] devices of the partition, [31] partition valid.
pub(crate) const INSTANCE_PARTITION: u64 = 0x030;
/// Serial number, low half.
pub(crate) const SERIAL_LOW: u64 = 0x038;
/// Serial number, high half.
pub(crate) const SERIAL_HIGH: u64 = 0x03c;
/// Errors of on-chip memory: [31:16] corrected, [15:0] not.
pub(crate) const SRAM_ECC: u64 = 0x040;
/// Errors of HBM channel 0; the others follow.
pub(crate) const HBM_ECC: u64 = 0x044;
/// Power of die 0: [15:0] basis points, [31:16] sample number; die 1 follows.
pub(crate) const POWER: u64 = 0x054;
/// [1:0] 0 none, 1 pending, 2 failed.
pub(crate) const HBM_REPAIR_STATE: u64 = 0x064;
/// [14:0] server id, [15] valid, [30:16] rack id, [31] valid.
pub(crate) const SERVER_RACK_ID: u64 = 0x070;
/// Reservation id, high half; it has the lower offset.
pub(crate) const RESERVATION_HIGH: u64 = 0x080;
/// Reservation id, low half.
pub(crate) const RESERVATION_LOW: u64 = 0x084;
/// 1 while a request stands in the register file.
pub(crate) const ACK: u64 = 0x0f0;
/// 128 bytes of payload.
pub(crate) const DATA: u64 = 0x100;
/// High map word of a per-core reset.
pub(crate) const RESET_MAP_HIGH: u64 = 0x1d4;
/// Low map word of a per-core reset.
pub(crate) const RESET_MAP_LOW: u64 = 0x1d8;
/// Kind of reset wanted; firmware clears it when it has accepted.
pub(crate) const RESET: u64 = 0x1ec;
/// [`RESET`]: the whole device.
pub(crate) const RESET_DEVICE: u32 = 1;
/// [`RESET`]: the cores of the map.
pub(crate) const RESET_CORES: u32 = 2;
/// Request: first header word, or high half of its address.
pub(crate) const REQUEST_HIGH: u64 = 0x1f0;
/// Request: check sum, or low half of its address.
pub(crate) const REQUEST_LOW: u64 = 0x1f4;
/// High half of the address of the response.
pub(crate) const RESPONSE_HIGH: u64 = 0x1f8;
/// Low half of the address of the response.
pub(crate) const RESPONSE_LOW: u64 = 0x1fc;
/// Doorbell of firmware.
pub(crate) const TRIGGER: u64 = 0x800;
/// Bit 3 set: not ready yet.
pub(crate) const FW_STATUS: u64 = 0x808;
/// [`FW_STATUS`]: the bit that the notes call DEVICE_READY, although it says the opposite.
pub(crate) const FW_STATUS_BUSY: u32 = 1 << 3;

/// [`API_VERSION`] from which on power registers are valid.
pub(crate) const API_WITH_POWER: u32 = 3;
