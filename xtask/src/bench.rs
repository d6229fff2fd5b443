//! `cargo xtask bench`: a benchmark in a VM that counts guest instructions, and what it is compared
//! with.

pub mod chart;
mod dma;
mod memory;

use std::path::PathBuf;
use std::process::ExitCode;

use axon_qemu::Error;
use clap::{Args, Parser, ValueEnum};

use crate::options::MachineOptions;
use crate::run;

/// What `cargo xtask bench` takes.
#[derive(Args, Debug)]
pub struct BenchOptions {
    /// What to measure
    #[arg(value_enum)]
    benchmark: Benchmark,
    /// Write the rows into this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the rows as one line of JSON after the table
    #[arg(long)]
    json: bool,
}

/// A benchmark of `apps/bench`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Benchmark {
    /// Copies and fills, one at a time and many at once
    Copy,
    /// Copies by size and depth, small writes by both ways, with pages in `docs/bench`
    Dma,
    /// A message between two tasks: request, reply, wake-up
    Hop,
    /// Clients and resets: open and close, request to trigger, the end of a client that owns much
    State,
    /// Semaphores, notifications, counters, trace points
    Notify,
    /// The memory service, in the image and beside other allocators on this machine
    Memory,
}

/// The machine of a benchmark as a command line of its own.
#[derive(Parser)]
struct Machine {
    #[command(flatten)]
    options: MachineOptions,
}

/// Runs a benchmark.
///
/// # Errors
/// Where the VM cannot be started.
pub fn bench(bench: &BenchOptions) -> Result<ExitCode, Error> {
    let (name, device) = match bench.benchmark {
        Benchmark::Copy => ("copy", "trn1"),
        Benchmark::Dma => ("dma", "trn1"),
        Benchmark::Hop => ("hop", "none"),
        Benchmark::State => ("state", "trn1,trn2"),
        Benchmark::Notify => ("notify", "trn1"),
        Benchmark::Memory => return memory::bench(bench),
    };
    let mut options = machine_options(name, device);
    options.report = bench.report.clone();
    options.json = bench.json;
    match bench.benchmark {
        Benchmark::Dma => dma::bench(&options, &mut std::io::stdout()),
        _ => run::run("bench", &options),
    }
}

/// The machine on which `apps/bench` runs a benchmark.
fn machine_options(name: &str, device: &str) -> MachineOptions {
    Machine::parse_from(["bench", "--device", device, "--icount", "--", name]).options
}
