//! Halting the processor until a timer is due or an interrupt comes.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use critical_section::Mutex;
use x86_64::instructions::interrupts;

use super::timers;
use crate::interrupts::local::LocalApic;
use crate::interrupts::vectors;
use crate::processor::time_stamp;

/// Ticks of the time-stamp counter that the processor was halted.
static HALTED: AtomicU64 = AtomicU64::new(0);

static WAKE_UP: Mutex<RefCell<Option<WakeUp>>> = Mutex::new(RefCell::new(None));

/// The timer that ends a halt.
struct WakeUp {
    apic: LocalApic,
    /// Ticks of its clock for each of the time-stamp counter, as a 32-bit fraction.
    ratio: u64,
    /// What it is armed for.
    armed: u64,
}

/// Takes the timer. Its rate matters in count mode only.
pub fn init(apic: LocalApic, timer_hertz: u64, time_stamp_hertz: u64) {
    let ratio = (u128::from(timer_hertz) << 32) / u128::from(time_stamp_hertz.max(1));
    let wake_up = WakeUp { apic, ratio: ratio as u64, armed: u64::MAX };
    critical_section::with(|section| *WAKE_UP.borrow_ref_mut(section) = Some(wake_up));
}

/// Halts until an interrupt comes, unless `busy` says that there is something to do.
///
/// Interrupts are off while that is decided and come on with the halt itself, so that none can
/// slip in between.
pub fn wait(busy: impl FnOnce() -> bool) {
    interrupts::disable();
    if busy() || vectors::ARRIVED.swap(false, Relaxed) {
        interrupts::enable();
        return;
    }
    critical_section::with(|section| {
        if let Some(wake_up) = WAKE_UP.borrow_ref_mut(section).as_mut() {
            wake_up.arm(timers::next_due());
        }
    });
    let before = time_stamp();
    interrupts::enable_and_hlt();
    HALTED.fetch_add(time_stamp().wrapping_sub(before), Relaxed);
    vectors::ARRIVED.store(false, Relaxed);
}

/// Ticks of the time-stamp counter that the processor was halted.
pub fn halted() -> u64 {
    HALTED.load(Relaxed)
}

impl WakeUp {
    /// Arms the timer for a value of the time-stamp counter; all-ones is never.
    fn arm(&mut self, due: u64) {
        if self.apic.has_deadline() {
            if due != self.armed {
                // 0 disarms.
                self.apic.arm_deadline(if due == u64::MAX { 0 } else { due });
            }
        } else if due == u64::MAX {
            if due != self.armed {
                self.apic.arm_count(0);
            }
        } else {
            // Armed anew each time: the count left may have been cut at the timer's 32 bits.
            let ticks = due.saturating_sub(time_stamp());
            let counts = (u128::from(ticks) * u128::from(self.ratio)) >> 32;
            self.apic.arm_count(counts.clamp(1, u128::from(u32::MAX)) as u32);
        }
        self.armed = due;
    }
}
