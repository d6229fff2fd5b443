//! The local APIC of the one processor: end of interrupt, and a one-shot timer to wake up by.
//!
//! Used as model-specific registers (x2APIC) where the processor has them, through memory else. Own
//! code, because eight registers are all there is to it, and the line inputs must stay masked.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use axon_platform::MapError;
use x86_64::registers::model_specific::Msr;

use super::vectors;
use crate::memory::paging::Rights;
use crate::memory::windows::Mapping;
use crate::processor;

const BASE_MSR: u32 = 0x1b;
const DEADLINE_MSR: u32 = 0x6e0;

const ENABLE: u64 = 1 << 11;
const ENABLE_X2: u64 = 1 << 10;

const ID: u32 = 0x20;
const END_OF_INTERRUPT: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const TIMER: u32 = 0x320;
const LINE_0: u32 = 0x350;
const LINE_1: u32 = 0x360;
const ERROR: u32 = 0x370;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;

const MASKED: u32 = 1 << 16;
const TSC_DEADLINE: u32 = 2 << 17;
const DIVIDE_BY_1: u32 = 0b1011;

/// How the registers are reached.
#[derive(Clone)]
enum Access {
    X2,
    Memory(Arc<Mapping>),
}

/// The local APIC.
pub struct LocalApic {
    access: Access,
    deadline: bool,
}

impl LocalApic {
    /// Turns it on: line inputs masked, timer in one-shot or deadline mode and not armed.
    ///
    /// # Errors
    /// [`MapError`] where its registers cannot be mapped.
    ///
    /// # Safety
    /// Called once, after [`vectors::init`].
    pub unsafe fn new() -> Result<Self, MapError> {
        let mut base_register = Msr::new(BASE_MSR);
        // SAFETY: every 64-bit processor has the register; turning the APIC on changes nothing for
        // a machine whose interrupts are off.
        let base = unsafe { base_register.read() } | ENABLE;
        let access = if processor::has_x2apic() {
            // SAFETY: as above.
            unsafe { base_register.write(base | ENABLE_X2) };
            Access::X2
        } else {
            // SAFETY: as above.
            unsafe { base_register.write(base) };
            Access::Memory(Mapping::new(base & 0x000f_ffff_ffff_f000, 4096, Rights::Uncached)?)
        };
        let end = match &access {
            Access::X2 => 0,
            Access::Memory(mapping) => mapping.start() + u64::from(END_OF_INTERRUPT),
        };
        vectors::END_OF_INTERRUPT.store(end, Relaxed);
        let apic = LocalApic { access, deadline: processor::has_tsc_deadline() };
        apic.write(LINE_0, MASKED);
        apic.write(LINE_1, MASKED);
        apic.write(ERROR, MASKED);
        apic.write(DIVIDE, DIVIDE_BY_1);
        let mode = if apic.deadline { TSC_DEADLINE } else { 0 };
        apic.write(TIMER, mode | u32::from(vectors::TIMER));
        apic.write(SPURIOUS, 1 << 8 | u32::from(vectors::SPURIOUS));
        if apic.deadline {
            // The mode is set by a store, the deadline by a register write: keep them in order.
            processor::store_fence();
        }
        Ok(apic)
    }

    /// Number of this processor, for the I/O APIC.
    pub fn id(&self) -> u32 {
        match self.access {
            Access::X2 => self.read(ID),
            Access::Memory(_) => self.read(ID) >> 24,
        }
    }

    /// Whether the timer compares with the time-stamp counter; else it counts its own clock down.
    pub fn has_deadline(&self) -> bool {
        self.deadline
    }

    /// Deadline mode: interrupts once the time-stamp counter reaches `time_stamp`.
    pub fn arm_deadline(&self, time_stamp: u64) {
        // SAFETY: called in deadline mode only, where the register exists; the interrupt it causes
        // sets a flag.
        unsafe { Msr::new(DEADLINE_MSR).write(time_stamp) };
    }

    /// Count mode: interrupts after `ticks` of the timer's clock; 0 disarms it.
    pub fn arm_count(&self, ticks: u32) {
        self.write(INITIAL_COUNT, ticks);
    }

    /// Count mode: ticks that are left.
    pub fn count(&self) -> u32 {
        self.read(CURRENT_COUNT)
    }

    fn read(&self, register: u32) -> u32 {
        // SAFETY: registers that every local APIC has; reading them has no effect on memory.
        unsafe {
            match &self.access {
                Access::X2 => Msr::new(0x800 + register / 16).read() as u32,
                Access::Memory(mapping) => register_at(mapping, register).read_volatile(),
            }
        }
    }

    fn write(&self, register: u32, value: u32) {
        // SAFETY: the values written here mask inputs and lead interrupts to stubs that exist.
        unsafe {
            match &self.access {
                Access::X2 => Msr::new(0x800 + register / 16).write(u64::from(value)),
                Access::Memory(mapping) => register_at(mapping, register).write_volatile(value),
            }
        }
    }
}

fn register_at(mapping: &Mapping, register: u32) -> *mut u32 {
    (mapping.start() + u64::from(register)) as *mut u32
}
