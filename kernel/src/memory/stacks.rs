//! The stacks of the machine, each above a page that the page tables leave out.
//!
//! Compiled code keeps data below its stack pointer (red zone), so every vector that can interrupt
//! it runs on a stack of its own. A stack that overflows runs into its guard page and ends in a
//! fault that names it.

use core::cell::UnsafeCell;

/// Bytes of the guard page below each stack.
pub const GUARD_BYTES: usize = 4096;

/// A guard page and the stack above it.
#[repr(C, align(4096))]
pub struct Stack<const BYTES: usize> {
    guard: UnsafeCell<[u8; GUARD_BYTES]>,
    space: UnsafeCell<[u8; BYTES]>,
}

// SAFETY: the memory is only reached through the stack pointer of the one processor.
unsafe impl<const BYTES: usize> Sync for Stack<BYTES> {}

impl<const BYTES: usize> Stack<BYTES> {
    const fn new() -> Self {
        const { assert!(BYTES.is_multiple_of(4096)) };
        Stack { guard: UnsafeCell::new([0; GUARD_BYTES]), space: UnsafeCell::new([0; BYTES]) }
    }

    /// Address of the guard page.
    pub fn guard(&self) -> u64 {
        self.guard.get() as u64
    }

    /// Address behind the stack: where the stack pointer starts.
    pub fn top(&self) -> u64 {
        self.space.get() as u64 + BYTES as u64
    }
}

/// Bytes of the main stack. Applications run on it.
pub const MAIN_BYTES: usize = 512 * 1024;
/// Distance from [`MAIN`] to the top of its stack, for the entry code.
pub const MAIN_TOP: usize = GUARD_BYTES + MAIN_BYTES;
const FATAL_BYTES: usize = 16 * 1024;

/// The executor, and with it all tasks.
#[unsafe(link_section = ".bss.stacks")]
pub static MAIN: Stack<MAIN_BYTES> = Stack::new();
/// Double fault.
#[unsafe(link_section = ".bss.stacks")]
pub static DOUBLE_FAULT: Stack<FATAL_BYTES> = Stack::new();
/// Non-maskable interrupt.
#[unsafe(link_section = ".bss.stacks")]
pub static NON_MASKABLE: Stack<FATAL_BYTES> = Stack::new();
/// Machine check.
#[unsafe(link_section = ".bss.stacks")]
pub static MACHINE_CHECK: Stack<FATAL_BYTES> = Stack::new();
/// Debug exception.
#[unsafe(link_section = ".bss.stacks")]
pub static DEBUG: Stack<FATAL_BYTES> = Stack::new();
/// Every other exception; all of them are fatal.
#[unsafe(link_section = ".bss.stacks")]
pub static EXCEPTION: Stack<FATAL_BYTES> = Stack::new();
/// Interrupts: a few words each, never nested.
#[unsafe(link_section = ".bss.stacks")]
pub static INTERRUPT: Stack<4096> = Stack::new();

/// Name and guard page of every stack.
pub fn guards() -> [(&'static str, u64); 7] {
    [
        ("main", MAIN.guard()),
        ("double fault", DOUBLE_FAULT.guard()),
        ("non-maskable interrupt", NON_MASKABLE.guard()),
        ("machine check", MACHINE_CHECK.guard()),
        ("debug", DEBUG.guard()),
        ("exception", EXCEPTION.guard()),
        ("interrupt", INTERRUPT.guard()),
    ]
}
