//! What the kernel's operations cost, in ticks of the counter: instructions under counting.

use alloc::format;
use alloc::vec::Vec;
use core::hint::black_box;

use axon_kernel::Machine;
use axon_kernel::memory::functions;
use axon_platform::Platform;

const SAMPLES: usize = 200;

/// Prints one line for each operation: the least and the median of 200 runs.
pub fn print(machine: Machine) -> u8 {
    let page = |bytes: u64| move || drop(black_box(machine.alloc_dma(bytes, 1)));
    let mut from = alloc::vec![1u8; 64 << 10];
    let mut to = from.clone();
    row(machine, "nothing", || {});
    row(machine, "time of day", || {
        black_box(machine.now());
    });
    row(machine, "heap block of 256 bytes and back", || {
        drop(black_box(Vec::<u8>::with_capacity(256)));
    });
    row(machine, "DMA memory of 4 KiB and back", page(4 << 10));
    row(machine, "DMA memory of 64 KiB and back", page(64 << 10));
    row(machine, "DMA memory of 1 MiB and back", page(1 << 20));
    for bytes in [16, 100, 4 << 10, 64 << 10] {
        row(machine, &format!("copying {bytes} bytes"), || {
            black_box(&mut to[..bytes]).copy_from_slice(black_box(&from[..bytes]));
        });
        row(machine, &format!("clearing {bytes} bytes"), || {
            let range = black_box(&mut from[..bytes]);
            // SAFETY: the range is a slice; called directly, so that no compiler replaces it.
            unsafe { functions::memset(range.as_mut_ptr(), 0, range.len()) };
        });
    }
    row(machine, "a line of the log that is not recorded", || log::trace!("{}", 1));
    row(machine, "write barrier", || machine.write_barrier());
    row(machine, "random number", || {
        black_box(machine.random());
    });
    0
}

fn row(machine: Machine, name: &str, mut operation: impl FnMut()) {
    let mut samples: Vec<u64> = (0..SAMPLES)
        .map(|_| {
            let before = machine.cycles();
            operation();
            machine.cycles() - before
        })
        .collect();
    samples.sort_unstable();
    let line = format!("{name:40} {:8} {:8}\n", samples[0], samples[SAMPLES / 2]);
    machine.console_write(line.as_bytes());
}
