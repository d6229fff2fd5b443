//! What axon's own machinery costs, measured where it runs: `cargo xtask bench NAME`.
//!
//! The first word of the command line names the benchmark, `unit=NAME` what the machine's counter
//! counts. Each row is the minimum and the median of [`SAMPLES`] runs; rows go to the console as a
//! table and into the report as a list.
//!
//! | benchmark | rows |
//! |---|---|
//! | `copy` | what copies and fills cost |
//! | `notify` | semaphores, notifications, counters, trace points |
//! | `dma` | copies by size and depth, small writes by both ways: instructions, doorbells, ring memory |
//! | `hop` | what a message between two tasks costs, and what the memory service's messages cost |
//! | `memory` | the memory service empty, with many live chunks, with holes in the way |
//! | `state` | what clients, their ends and resets cost, and what others feel of it |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod copy;
mod dma;
mod hop;
mod memory;
mod notify;
mod probe;
mod row;
mod state;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use axon_platform::{Platform, SpawnError};
use axon_ports::MemoryError;

use row::Row;

/// Runs of each operation.
pub const SAMPLES: usize = 200;

/// Runs that come first and do not count: caches and translations settle.
const WARM_UP: usize = 20;

/// Exit code where nothing could be measured.
const FAILED: u8 = 1;

/// Exit code for words that name no benchmark.
const USAGE: u8 = 2;

/// The unit for which goals are set.
const INSTRUCTIONS: &str = "instructions";

/// Runs the benchmark that the command line names.
pub async fn main<P: Platform>(machine: P) -> u8 {
    run(machine).await
}

/// The benchmark `dma`, which is an image of its own.
pub async fn dma_main<P: Platform>(machine: P) -> u8 {
    dma(&machine, &unit_of(&machine), None).await
}

/// Every benchmark, `dma` with real time in nanoseconds, where the machine's own is virtual.
pub async fn main_with_clock<P: Platform>(machine: P, clock: fn() -> u64) -> u8 {
    if machine.arguments().iter().any(|word| word == "dma") {
        return dma(&machine, &unit_of(&machine), Some(clock)).await;
    }
    run(machine).await
}

fn unit_of<P: Platform>(machine: &P) -> String {
    let words = machine.arguments();
    let unit = words.iter().find_map(|word| word.strip_prefix("unit="));
    String::from(unit.unwrap_or("counts"))
}

async fn run<P: Platform>(machine: P) -> u8 {
    let words = machine.arguments();
    let unit = words.iter().find_map(|word| word.strip_prefix("unit=")).unwrap_or("counts");
    let benchmark = words.iter().find(|word| !word.contains('='));
    let rows = match benchmark.map(String::as_str) {
        Some("copy") => copy::measure(&machine).await,
        Some("hop") => hop(&machine).await,
        Some("memory") => memory::measure_all(&machine).await,
        Some("state") => state::measure(&machine).await,
        Some("notify") => notify::measure(&machine).await,
        other => {
            let name = other.unwrap_or_default();
            machine.console_write(
                format!("no benchmark is called {name:?}: copy, hop, memory, notify, state\n")
                    .as_bytes(),
            );
            return USAGE;
        }
    };
    match rows {
        Ok(rows) => {
            conclude(&machine, &rows, unit);
            0
        }
        Err(error) => {
            machine.console_write(format!("the benchmark could not run: {error}\n").as_bytes());
            FAILED
        }
    }
}

/// Rows with more columns than the others have.
async fn dma<P: Platform>(machine: &P, unit: &str, clock: Option<fn() -> u64>) -> u8 {
    match dma::measure(machine, clock).await {
        Ok(rows) => {
            let mut text = dma::DmaRow::heading(unit);
            rows.iter().for_each(|row| text.push_str(&row.line()));
            let report: Vec<String> = rows.iter().map(|row| row.json(unit)).collect();
            text.push_str(&format!("axon-report: {{\"rows\":[{}]}}\n", report.join(",")));
            machine.console_write(text.as_bytes());
            0
        }
        Err(error) => {
            machine.console_write(format!("the benchmark could not run: {error}\n").as_bytes());
            FAILED
        }
    }
}

/// Why a benchmark could not run.
#[derive(Debug)]
enum Error {
    Spawn(SpawnError),
    Memory(MemoryError),
    Api(axon::Error),
    NoDevice,
    /// Something came out otherwise than it went in.
    Wrong(&'static str),
}

impl From<axon::Error> for Error {
    fn from(error: axon::Error) -> Error {
        Error::Api(error)
    }
}

impl From<SpawnError> for Error {
    fn from(error: SpawnError) -> Error {
        Error::Spawn(error)
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Error {
        Error::Memory(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Spawn(error) => error.fmt(f),
            Error::Memory(error) => error.fmt(f),
            Error::Api(error) => error.fmt(f),
            Error::Wrong(what) => write!(f, "a {what} is not what was written"),
            Error::NoDevice => f.write_str("no device came up"),
        }
    }
}

/// Messages: bare ones, then the memory service's.
async fn hop<P: Platform>(machine: &P) -> Result<Vec<Row>, Error> {
    let mut rows = hop::measure(machine).await?;
    rows.extend(memory::measure(machine).await?);
    Ok(rows)
}

/// Prints table and report; goals hold for instructions only.
fn conclude<P: Platform>(machine: &P, rows: &[Row], unit: &str) {
    let goals = unit == INSTRUCTIONS;
    let mut text = Row::heading(unit);
    rows.iter().for_each(|row| text.push_str(&row.line(goals)));
    let report: Vec<String> = rows.iter().map(|row| row.json(unit)).collect();
    text.push_str(&format!("axon-report: [{}]\n", report.join(",")));
    machine.console_write(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use axon_hosted::Machine;

    use super::*;

    fn run(words: &[&str]) -> u8 {
        let mut builder = Machine::builder();
        for word in words {
            builder = builder.argument(word);
        }
        let machine = builder.build().unwrap();
        machine.run(main(machine.clone())).unwrap()
    }

    #[test]
    fn hop_runs_to_its_end() {
        assert_eq!(run(&["hop"]), 0);
    }

    #[test]
    fn memory_runs_to_its_end() {
        assert_eq!(run(&["memory"]), 0);
    }

    #[test]
    fn notify_runs_to_its_end() {
        let machine = Machine::builder().device("trn1").argument("notify").build().unwrap();
        assert_eq!(machine.run(main(machine.clone())).unwrap(), 0, "{}", machine.output());
        let output = machine.output();
        assert!(output.contains("from memory to its reader"), "{output}");
        machine.shut_down();
    }

    #[test]
    fn an_unknown_benchmark_is_refused() {
        assert_eq!(run(&["skip"]), USAGE);
        assert_eq!(run(&[]), USAGE);
    }
}
