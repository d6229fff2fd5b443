//! The interrupt table and the stubs behind it.
//!
//! Compiled code uses SSE and the red zone, so an interrupt stub runs on a stack of its own and
//! touches integer registers only: set a flag, end the interrupt, return. An exception stub saves all
//! integer registers and enters [`fatal`](crate::fatal), for good.

use core::arch::{global_asm, naked_asm};
use core::sync::atomic::{AtomicBool, AtomicU64};

use static_cell::StaticCell;
use x86_64::VirtAddr;
use x86_64::instructions::tables::lidt;
use x86_64::structures::DescriptorTablePointer;

use super::segments::{self, VectorStack};
use crate::fatal::Registers;

/// Vector of the local APIC timer.
pub const TIMER: u8 = 0x40;
/// Vector of the serial port.
pub const SERIAL: u8 = 0x41;
/// Vector of spurious interrupts of the local APIC.
pub const SPURIOUS: u8 = 0xff;

/// An interrupt came since the flag was last cleared: the loop must not halt before it looked.
pub static ARRIVED: AtomicBool = AtomicBool::new(false);
/// The serial port interrupted.
pub static SERIAL_ARRIVED: AtomicBool = AtomicBool::new(false);

/// Address of the end-of-interrupt register; 0 where it is a model-specific register.
pub(super) static END_OF_INTERRUPT: AtomicU64 = AtomicU64::new(0);

/// One entry of the interrupt table.
#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    low: u16,
    segment: u16,
    stack: u8,
    kind: u8,
    middle: u16,
    high: u32,
    reserved: u32,
}

impl Gate {
    const NONE: Gate =
        Gate { low: 0, segment: 0, stack: 0, kind: 0, middle: 0, high: 0, reserved: 0 };

    /// Present, and of the kind that enters with interrupts off.
    const fn new(address: u64, stack: VectorStack) -> Gate {
        Gate {
            low: address as u16,
            segment: segments::CODE,
            stack: stack as u8,
            kind: 0x8e,
            middle: (address >> 16) as u16,
            high: (address >> 32) as u32,
            reserved: 0,
        }
    }
}

unsafe extern "C" {
    static axon_exception_stubs: u8;
}

/// Loads the table.
///
/// # Safety
/// Called once, after [`segments::init`].
pub unsafe fn init() {
    static TABLE: StaticCell<[Gate; 256]> = StaticCell::new();
    let table = TABLE.init([Gate::NONE; 256]);
    let stubs = (&raw const axon_exception_stubs) as u64;
    for (vector, gate) in table.iter_mut().enumerate().take(32) {
        let stack = match vector {
            1 => VectorStack::Debug,
            2 => VectorStack::NonMaskable,
            8 => VectorStack::DoubleFault,
            18 => VectorStack::MachineCheck,
            _ => VectorStack::Exception,
        };
        *gate = Gate::new(stubs + 16 * vector as u64, stack);
    }
    for (vector, stub) in [
        (TIMER, timer_stub as *const () as u64),
        (SERIAL, serial_stub as *const () as u64),
        (SPURIOUS, spurious_stub as *const () as u64),
    ] {
        table[usize::from(vector)] = Gate::new(stub, VectorStack::Interrupt);
    }
    let pointer = DescriptorTablePointer {
        limit: (size_of::<[Gate; 256]>() - 1) as u16,
        base: VirtAddr::from_ptr(table),
    };
    // SAFETY: every gate leads to a stub of this module on a stack of the task state; the table
    // lives for ever.
    unsafe { lidt(&pointer) };
}

// One stub of 16 bytes for each exception: error code (or 0), vector, then the common part.
global_asm!(
    ".balign 16",
    "axon_exception_stubs:",
    ".set axon_vector, 0",
    ".rept 32",
    ".balign 16",
    // 8, 10 to 14, 17, 21, 29 and 30 come with an error code.
    ".if (0x60227d00 >> axon_vector) & 1",
    ".else",
    "push 0",
    ".endif",
    "push axon_vector",
    "jmp {common}",
    ".set axon_vector, axon_vector + 1",
    ".endr",
    common = sym exception_common,
);

/// Saves what [`Registers`] lists and never returns.
#[unsafe(naked)]
extern "sysv64" fn exception_common() -> ! {
    naked_asm!(
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "push r11",
        "push r10",
        "push r9",
        "push r8",
        "push rbp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rbx",
        "push rax",
        "cld",
        "mov rdi, rsp",
        "and rsp, -16",
        "call {enter}",
        "ud2",
        enter = sym enter_exception,
    )
}

extern "sysv64" fn enter_exception(registers: &Registers) -> ! {
    crate::fatal::exception(registers)
}

/// Body of an interrupt stub that sets `$flag`.
macro_rules! interrupt_stub {
    ($name:ident, $flag:path) => {
        #[unsafe(naked)]
        extern "sysv64" fn $name() {
            naked_asm!(
                "push rax",
                "push rcx",
                "push rdx",
                "mov byte ptr [rip + {arrived}], 1",
                "mov byte ptr [rip + {flag}], 1",
                "mov rax, [rip + {end}]",
                "test rax, rax",
                "jz 2f",
                "mov dword ptr [rax], 0",
                "jmp 3f",
                "2:",
                "mov ecx, 0x80b",
                "xor edx, edx",
                "wrmsr",
                "3:",
                "pop rdx",
                "pop rcx",
                "pop rax",
                "iretq",
                arrived = sym ARRIVED,
                flag = sym $flag,
                end = sym END_OF_INTERRUPT,
            )
        }
    };
}

interrupt_stub!(timer_stub, ARRIVED);
interrupt_stub!(serial_stub, SERIAL_ARRIVED);

/// A spurious interrupt has no end and no meaning.
#[unsafe(naked)]
extern "sysv64" fn spurious_stub() {
    naked_asm!("iretq")
}
