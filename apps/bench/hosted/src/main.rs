//! bench in a Linux process.
#![forbid(unsafe_code)]

use std::sync::LazyLock;
use std::time::Instant;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn main() -> std::process::ExitCode {
    let clock: fn() -> u64 = || START.elapsed().as_nanos() as u64;
    axon_hosted::run(move |machine| axon_bench::main_with_clock(machine, clock))
}
