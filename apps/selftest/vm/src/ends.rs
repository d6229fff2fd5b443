//! Ways to die. Each ends the machine with a report and a fatal value; one that returns has failed.

use core::time::Duration;

use axon_kernel::Machine;
use axon_kernel::memory::layout;
use axon_platform::Platform;

/// Dies as `end` says; exit code 2 for an unknown word, 1 where dying failed.
pub async fn die(machine: Machine, end: &str) -> u8 {
    log::info!("about to die: {end}");
    match end {
        "panic" => panic!("asked for\nin two lines"),
        "null" => write(8),
        "write-code" => write(layout::image().text),
        "write-constants" => write(layout::image().constants),
        "execute-data" => execute_data(),
        "overflow" => {
            core::hint::black_box(overflow(1));
        }
        // SAFETY: none is needed: the instruction raises an exception.
        "invalid" => unsafe { core::arch::asm!("ud2") },
        "unmapped" => write(0x7000_0000_0000),
        "no-memory" => drop(alloc::vec![0u8; 1 << 44]),
        "sleep-then-panic" => {
            machine.sleep(Duration::from_millis(5)).await;
            panic!("after a sleep");
        }
        _ => {
            machine.console_write(b"unknown word\n");
            return 2;
        }
    }
    1
}

fn write(address: u64) {
    // SAFETY: the point is that it is not: the page tables must refuse.
    unsafe { (address as *mut u64).write_volatile(1) };
}

fn execute_data() {
    // A return instruction, on the heap.
    let code = alloc::boxed::Box::new(0xc3u8);
    // SAFETY: the point is that it is not: the page tables must refuse.
    let function: extern "C" fn() = unsafe { core::mem::transmute(&raw const *code) };
    function();
}

#[expect(unconditional_recursion, reason = "the stack's guard page ends it")]
fn overflow(depth: u64) -> u64 {
    let frame = core::hint::black_box([depth; 64]);
    overflow(depth + 1) + frame[3]
}
