//! One hardware queue: pause, drain, program (specification 02 §5).

use axon_platform::{DeviceAddr, MmioWindow};

use crate::registers::queue::*;

/// The two windows of one queue in the register window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HardwareQueue {
    m2s: u64,
    s2m: u64,
}

/// What a queue is programmed with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPlace {
    /// First descriptor, as the device sees it; a multiple of 256.
    pub base: DeviceAddr,
    /// Descriptors; a multiple of 16.
    pub length: u32,
}

impl HardwareQueue {
    /// Queue `queue` (below 16) of the unit at `unit`.
    pub(crate) const fn new(unit: u64, queue: u64) -> Self {
        HardwareQueue { m2s: unit + M2S + queue * PITCH, s2m: unit + S2M + queue * PITCH }
    }

    /// Doorbell of the source side.
    pub(crate) const fn m2s_doorbell(&self) -> u64 {
        self.m2s + DOORBELL
    }

    /// Doorbell of the destination side.
    pub(crate) const fn s2m_doorbell(&self) -> u64 {
        self.s2m + DOORBELL
    }

    /// Stops both directions; what was fetched may still run (02 §5.3).
    pub(crate) fn pause<W: MmioWindow>(&self, registers: &W) {
        registers.write32(self.m2s + CFG, CFG_PAUSED);
        registers.write32(self.s2m + CFG, CFG_PAUSED);
    }

    /// Whether a paused queue has nothing under way any more. All-ones is not drained.
    pub(crate) fn is_drained<W: MmioWindow>(&self, registers: &W) -> bool {
        (registers.read32(self.m2s + STATUS) | registers.read32(self.s2m + STATUS)) & STATUS_WORKING
            == 0
    }

    /// Descriptors that the two sides are at, source side first.
    pub(crate) fn currents<W: MmioWindow>(&self, registers: &W) -> [u32; 2] {
        [self.m2s, self.s2m].map(|side| registers.read32(side + CURRENT) & INDEX_MASK)
    }

    /// Resets the queue onto its rings and lets it run: 15 writes, no read, in the order of
    /// 02 §5.2. Both sides start at index 0 with ring id 1.
    pub(crate) fn program<W: MmioWindow>(&self, registers: &W, tx: RingPlace, rx: RingPlace) {
        registers.write32(self.m2s + M2S_RATE_MASK, RATE_MASK_DMB);
        side(registers, self.m2s, M2S_CONTROL, M2S_COMPLETION, tx);
        side(registers, self.s2m, S2M_CONTROL, S2M_COMPLETION, rx);
    }
}

fn side<W: MmioWindow>(registers: &W, at: u64, control: u64, completion: u64, ring: RingPlace) {
    registers.write32(at + CFG, CFG_PAUSED);
    registers.write32(at + control, CONTROL_RESET);
    registers.write32(at + BASE_LOW, ring.base.low());
    registers.write32(at + BASE_HIGH, ring.base.high());
    registers.write32(at + LENGTH, ring.length);
    registers.write32(at + completion, 0);
    registers.write32(at + CFG, CFG_ENABLED);
}
