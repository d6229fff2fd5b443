//! Hooks that make the service fail on purpose, so that every way out can be tested
//! (specification 04 §17).

/// Fails one event: the one after `armed − 1` others. 0 is off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Countdown(u32);

impl Countdown {
    /// Fails the `n`-th event from now and no other; 0 switches it off.
    pub const fn nth(n: u32) -> Self {
        Countdown(n)
    }

    /// One event; `true` where it must fail.
    #[inline]
    pub fn hit(&mut self) -> bool {
        if self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        self.0 == 0
    }

    /// Whether an event still has to fail.
    pub const fn is_armed(self) -> bool {
        self.0 != 0
    }
}

/// What can be made to fail; everything is off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Allocations at check 4 of specification 04 §4.1.
    pub allocation: Countdown,
    /// Growth of the service's own tables, level-2 handle tables included.
    pub growth: Countdown,
    /// Level-2 handle tables alone.
    pub handle_table: Countdown,
    /// Host memory taken from the platform (not from the reserve pools).
    pub low_zone: Countdown,
    /// Windows on host memory.
    pub window: Countdown,
    /// Every request for platform memory fails, so that the reserve pools have to serve.
    pub no_low_zone: bool,
}
