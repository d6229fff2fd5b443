//! Error causes: latching, masking, what stops a direction (specification 02 §9, §13.4).

use super::descriptor::Descriptor;
use super::registers::{self, IOFIC_PRIMARY, IOFIC_SECONDARY, IoficRegister, S2M, iofic};
use super::unit::Unit;

/// An error cause of the secondary controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cause {
    /// 0 A (M2S), 1 B (S2M), 2 C (FIFO parity of both).
    pub group: u8,
    pub bit: u8,
}

impl Cause {
    pub const UNSUPPORTED: Cause = Cause::a(2);
    pub const SOURCE_READ: Cause = Cause::a(8);
    pub const PREFETCH_M2S: Cause = Cause::a(11);
    pub const PACKET_TOO_LONG: Cause = Cause::a(13);
    pub const TOO_MANY_DESCRIPTORS: Cause = Cause::a(14);
    pub const FIRST_WRONG: Cause = Cause::a(15);
    pub const LAST_WRONG: Cause = Cause::a(16);
    pub const RING_ID_M2S: Cause = Cause::a(17);
    pub const DESTINATION_WRITE: Cause = Cause::b(1);
    pub const PREFETCH_S2M: Cause = Cause::b(9);
    pub const RING_ID_S2M: Cause = Cause::b(11);

    const fn a(bit: u8) -> Cause {
        Cause { group: 0, bit }
    }

    const fn b(bit: u8) -> Cause {
        Cause { group: 1, bit }
    }

    /// The cause with number group × 32 + bit, as faults and events carry it.
    pub fn from_number(number: u64) -> Cause {
        Cause { group: (number / 32 % 3) as u8, bit: (number % 32) as u8 }
    }

    pub fn number(self) -> u64 {
        u64::from(self.group) * 32 + u64::from(self.bit)
    }

    /// Whether it stops S2M; else it stops M2S.
    pub fn is_s2m(self) -> bool {
        match self.group {
            0 => false,
            1 => true,
            _ => self.bit >= 6,
        }
    }

    fn mask(self) -> u32 {
        1 << self.bit
    }

    fn group_offset(self) -> u64 {
        IOFIC_SECONDARY + u64::from(self.group) * iofic::GROUP_BYTES
    }
}

const PRIMARY_D: u64 = IOFIC_PRIMARY + 3 * iofic::GROUP_BYTES;

impl Unit {
    /// Whether a cause stops its direction.
    pub fn is_armed(&self, cause: Cause) -> bool {
        self.stored(cause.group_offset() + iofic::ABORT_MASK) & cause.mask() == 0
    }

    /// Latches a cause; stops the direction and returns `true` where it is armed.
    pub fn fault(&mut self, cause: Cause, descriptor: Option<Descriptor>) -> bool {
        let group = cause.group_offset();
        *self.slot(group + iofic::CAUSE) |= cause.mask();
        if self.stored(group + iofic::MASK) & cause.mask() == 0 {
            *self.slot(PRIMARY_D + iofic::CAUSE) |= 1 << (8 + cause.group);
        }
        if let Some(descriptor) = descriptor
            && cause.group < 2
        {
            self.log(cause, descriptor);
        }
        let armed = self.is_armed(cause);
        if armed {
            self.abort(cause.is_s2m());
        }
        armed
    }

    fn log(&mut self, cause: Cause, descriptor: Descriptor) {
        let half = if cause.is_s2m() { S2M } else { 0 };
        if self.stored(half + registers::ERROR_LOG_MASK) & cause.mask() == 0 {
            for (place, word) in descriptor.0.into_iter().enumerate() {
                *self.slot(half + registers::ERROR_LOG + 4 * place as u64) = word;
            }
        }
    }

    /// Latches bits of a primary group, the summary of completions (02 §9.2).
    pub fn latch_primary(&mut self, group: u64, bits: u32) {
        *self.slot(IOFIC_PRIMARY + group * iofic::GROUP_BYTES + iofic::CAUSE) |= bits;
    }

    /// A read of a controller register: the write-only ones and the level read 0.
    pub fn read_iofic(&self, at: IoficRegister) -> u32 {
        match at.register {
            iofic::CAUSE_SET | iofic::MASK_CLEAR | iofic::STATUS => 0,
            register => self.stored(at.group + register),
        }
    }

    /// A write of a controller register; returns the first cause that stopped a direction.
    pub fn write_iofic(&mut self, at: IoficRegister, value: u32) -> Option<Cause> {
        match at.register {
            iofic::CAUSE => *self.slot(at.group + iofic::CAUSE) &= value,
            iofic::CAUSE_SET => return self.raise(at.group, value),
            iofic::MASK_CLEAR => *self.slot(at.group + iofic::MASK) &= value,
            iofic::STATUS => {}
            register => *self.slot(at.group + register) = value,
        }
        None
    }

    /// Software raises causes: as if hardware had seen them.
    fn raise(&mut self, group: u64, bits: u32) -> Option<Cause> {
        let number = group.checked_sub(IOFIC_SECONDARY).map(|offset| offset / iofic::GROUP_BYTES);
        let Some(number @ 0..3) = number else {
            *self.slot(group + iofic::CAUSE) |= bits;
            return None;
        };
        let mut stopped = None;
        for bit in (0..32).filter(|bit| bits & 1 << bit != 0) {
            let cause = Cause { group: number as u8, bit };
            if self.fault(cause, None) {
                stopped = stopped.or(Some(cause));
            }
        }
        stopped
    }
}
