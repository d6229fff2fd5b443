//! Registers that clients may not write (specification 01 §3.11), compared by overlap.

use core::ops::Range;

use super::Hal;
use crate::Error;

/// MiscRAM words whose write would corrupt a transaction or the device.
const MISC_RAM: [Range<u64>; 8] = [
    0x0f0..0x0f4,
    0x100..0x180,
    0x180..0x19c,
    0x1d4..0x1d8,
    0x1d8..0x1dc,
    0x1ec..0x1f0,
    0x1f0..0x200,
    0x800..0x804,
];

/// Unit-wide registers: the two state commands and the error controllers.
const UNIT: [Range<u64>; 3] = [0x204..0x208, 0x2_0204..0x2_0208, 0x3_8000..0x3_a300];

/// Registers of a queue window, both directions; then the ones of one direction.
const QUEUE: [Range<u64>; 5] = [0x20..0x24, 0x28..0x30, 0x30..0x34, 0x38..0x3c, 0x44..0x4c];
const QUEUE_M2S: [Range<u64>; 2] = [0xb0..0xb4, 0xe0..0xe4];
const QUEUE_S2M: [Range<u64>; 2] = [0x64..0x68, 0xe0..0xe4];

/// Queue slots of a notification block: 0x28 apart; base, size and head are the first 16 bytes.
const NOTIFICATION_SLOTS: Range<u64> = 0x100..0x1000;
const NOTIFICATION_PITCH: u64 = 0x28;
const NOTIFICATION_GUARDED: u64 = 0x10;
const NOTIFICATION_BLOCK: u64 = 0x1000;

impl Hal {
    /// Checks a client's write of the 32-bit register at `offset` of a register window of
    /// `window_len` bytes.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an offset that is unaligned or outside the window,
    /// [`Error::RegisterDenied`] for one on the list.
    pub fn check_register_write(&self, offset: u64, window_len: u64) -> Result<(), Error> {
        self.check_register(offset, window_len)?;
        if self.is_denied(offset) { Err(Error::RegisterDenied { offset }) } else { Ok(()) }
    }

    /// Checks the place of a 32-bit register.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an offset that is unaligned or outside the window.
    pub fn check_register(&self, offset: u64, window_len: u64) -> Result<(), Error> {
        if !offset.is_multiple_of(4) || window_len < 4 || offset > window_len - 4 {
            return Err(Error::InvalidArgument { what: "register offset", value: offset });
        }
        Ok(())
    }

    fn is_denied(&self, offset: u64) -> bool {
        let map = &self.tables.map;
        if within(&MISC_RAM, offset.wrapping_sub(map.misc_ram)) {
            return true;
        }
        if map.core_notific.iter().any(|&block| in_notification_block(offset, block)) {
            return true;
        }
        let topsp = map.topsp_notific.iter().any(|range| {
            (0..u64::from(range.count))
                .any(|i| in_notification_block(offset, range.window + i * 0x4_0000))
        });
        topsp || self.is_denied_in_engines(offset)
    }

    fn is_denied_in_engines(&self, offset: u64) -> bool {
        self.tables.engine_ranges.iter().any(|range| {
            let count = u64::from(range.count);
            let unit = place(offset, range.unit, range.unit_pitch, count);
            let trace = place(
                offset,
                range.wrapper + self.tables.map.trace_notific,
                range.wrapper_pitch,
                count,
            );
            unit.is_some_and(denied_in_unit) || trace.is_some_and(|at| in_notification_block(at, 0))
        })
    }
}

/// Offset inside the block that holds `offset`, of `count` blocks `pitch` apart.
fn place(offset: u64, first: u64, pitch: u64, count: u64) -> Option<u64> {
    let at = offset.checked_sub(first)?;
    match at.checked_div(pitch) {
        Some(block) if block < count => Some(at % pitch),
        Some(_) => None,
        None => Some(at),
    }
}

fn denied_in_unit(at: u64) -> bool {
    if within(&UNIT, at) {
        return true;
    }
    let (queues, one_direction) = match at {
        0x0_1000..0x1_1000 => (at - 0x1000, &QUEUE_M2S),
        0x2_1000..0x3_1000 => (at - 0x2_1000, &QUEUE_S2M),
        _ => return false,
    };
    let register = queues % 0x1000;
    within(&QUEUE, register) || within(one_direction, register)
}

fn in_notification_block(offset: u64, block: u64) -> bool {
    let at = offset.wrapping_sub(block);
    at < NOTIFICATION_BLOCK
        && NOTIFICATION_SLOTS.contains(&at)
        && (at - NOTIFICATION_SLOTS.start) % NOTIFICATION_PITCH < NOTIFICATION_GUARDED
}

/// Whether the four bytes at `at` overlap one of `ranges`. Both are multiples of 4.
fn within(ranges: &[Range<u64>], at: u64) -> bool {
    ranges.iter().any(|range| range.contains(&at))
}

#[cfg(test)]
mod tests {
    use axon_platform::Errno;

    use super::super::tests::hal;

    fn denied(device: u16, offset: u64) -> bool {
        let len = if device == 0x7164 { 0x4000_0000 } else { 0x1_0000_0000 };
        hal(device).check_register_write(offset, len).is_err()
    }

    #[test]
    fn dev_e14_denied_and_allowed_offsets() {
        for offset in [0x06c8_41f4, 0x06c8_4800, 0x8200_3038, 0x8200_3020, 0x8200_0204] {
            assert!(denied(0x7364, offset), "{offset:#x}");
        }
        assert!(denied(0x7164, 0x30d3_0028));
        assert!(!denied(0x7364, 0x8200_3040));
    }

    #[test]
    fn the_longer_list() {
        for offset in [0x06c8_40f0, 0x06c8_417c, 0x06c8_4198, 0x06c8_41ec, 0x8203_a2fc] {
            assert!(denied(0x7364, offset), "{offset:#x}");
        }
        // Strobes are denied in their own direction only.
        assert!(denied(0x7364, 0x8200_10b0) && !denied(0x7364, 0x8202_10b0));
        assert!(denied(0x7364, 0x8202_1064) && !denied(0x7364, 0x8200_1064));
        // Notification queues of cores, TopSPs and engine traces.
        assert!(denied(0x7364, 0x0600_1100) && denied(0x7364, 0x06a0_010c));
        assert!(denied(0x7164, 0x3040_1108) && denied(0x7364, 0x8204_1100));
        assert!(!denied(0x7364, 0x0600_1110));
        // The last unit of each range, and what lies between units of V2.
        assert!(denied(0x7364, 0x4690_0204) && denied(0x7164, 0x3060_0204));
        assert!(!denied(0x7164, 0x3064_0204));
        // The runtime's own words and plain data.
        assert!(!denied(0x7364, 0x06c8_41a0) && !denied(0x7364, 0x06c8_40c0));
    }

    #[test]
    fn dev_e47_unaligned_and_outside() {
        let h = hal(0x7364);
        for offset in [0x8200_3022, 0x1_0000_0000, 0xffff_fffe, u64::MAX - 3] {
            let refused = h.check_register_write(offset, 0x1_0000_0000).unwrap_err();
            assert_eq!(refused.errno(), Errno::EINVAL);
        }
        assert!(h.check_register(0xffff_fffc, 0x1_0000_0000).is_ok());
        assert!(h.check_register(0, 0).is_err());
    }
}
