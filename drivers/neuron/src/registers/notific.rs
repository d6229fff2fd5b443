//! NOTIFIC blocks: notification queues of a core, a TopSP or an engine (specification 06 §4).

/// Bit *q*: queue *q* holds its producer up when it is full.
pub(crate) const BACK_PRESSURE: u64 = 0x08;
/// All ones at bring-up; the high half follows.
pub(crate) const HARDWARE_BACK_PRESSURE: [u64; 2] = [0x0c, 0x10];
/// Bit *q* enables queue *q*.
pub(crate) const ENABLE: u64 = 0x14;
/// Bit *q*: queue *q* ignores that it is full.
pub(crate) const IGNORE_FULL: u64 = 0x18;
/// Written at bring-up.
pub(crate) const UART_MODE: u64 = 0x28;
/// All ones at bring-up; the high half follows.
pub(crate) const WRITE_BUFFER_ENABLE: [u64; 2] = [0x30, 0x34];
/// Blocks with ten queues only.
pub(crate) const COALESCER_TIMER: u64 = 0xb4;
/// [`COALESCER_TIMER`]: value at bring-up.
pub(crate) const COALESCER_TIME: u32 = 0x000a_ae60;
/// Bit 9 clears, as a pulse.
pub(crate) const COALESCER_CONTROL: u64 = 0xb8;
/// [`COALESCER_CONTROL`]: clear.
pub(crate) const COALESCER_CLEAR: u32 = 1 << 9;
/// Write-out buffer.
pub(crate) const WRITE_OUT_CONTROL: u64 = 0xbc;
/// [`WRITE_OUT_CONTROL`]: value at bring-up.
pub(crate) const WRITE_OUT_ROTATE: u32 = 1;
/// Latched causes of error-trigger line 61; bits written 0 are cleared.
///
/// assumed: no text says where the trigger lines of a block are; read and written only where the
/// driver manages queues, which it does on the model.
pub(crate) const CAUSE: u64 = 0xf40;
/// [`CAUSE`]: a record was dropped or overwritten because its ring was full.
pub(crate) const OVERFLOW: u32 = 1 << 29;

/// First register of queue 0.
const QUEUES: u64 = 0x100;
/// Distance of two queues.
const QUEUE_PITCH: u64 = 0x28;

/// Registers of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue(u64);

impl Queue {
    /// Queue `position` of the block at `block`.
    pub(crate) const fn new(block: u64, position: u8) -> Self {
        Queue(block + QUEUES + QUEUE_PITCH * position as u64)
    }

    /// Ring address, low half.
    pub(crate) const fn base_low(self) -> u64 {
        self.0
    }

    /// Ring address, high half.
    pub(crate) const fn base_high(self) -> u64 {
        self.0 + 0x04
    }

    /// Ring size in bytes; 0 is off.
    pub(crate) const fn size(self) -> u64 {
        self.0 + 0x08
    }

    /// Consumer pointer in bytes.
    pub(crate) const fn head(self) -> u64 {
        self.0 + 0x0c
    }

    /// Producer pointer in bytes; written by the hardware.
    pub(crate) const fn tail(self) -> u64 {
        self.0 + 0x10
    }
}
