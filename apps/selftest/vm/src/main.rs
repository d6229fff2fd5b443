//! The kernel's own tests as a bootable image: what can only be tried on a machine.
//!
//! The first word of the command line that is not `name=value` chooses: nothing or `all` for every check that a healthy
//! machine passes, one line each, exit code 0 or 1; the name of an [end](ends) for one way to die;
//! `echo` to repeat what is typed; `zero` to look whether boot memory
//! is; `cost` for what the kernel's operations cost.

#![no_std]
#![no_main]

extern crate alloc;

mod checks;
mod cost;
mod devices;
mod ends;
mod memory;
mod tasks;

use axon_kernel::Machine;
use axon_platform::Platform;

axon_boot::entry!(main);

async fn main(machine: Machine) -> u8 {
    let mut arguments = machine.arguments();
    arguments.retain(|word| !word.contains('='));
    match arguments.first().map_or("all", |word| word) {
        "all" => checks::run(machine).await,
        "echo" => echo(machine).await,
        "cost" => cost::print(machine),
        "zero" => memory::boot_memory_is_zero(machine),
        "exit" => arguments.get(1).and_then(|code| code.parse().ok()).unwrap_or(2),
        end => ends::die(machine, end).await,
    }
}

/// Repeats the input until its end.
async fn echo(machine: Machine) -> u8 {
    while let Some(byte) = machine.console_read().await {
        machine.console_write(&[byte]);
    }
    0
}
