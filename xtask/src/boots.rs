//! The boots of `cargo xtask test`: command lines, and what must come of them.

use std::fs;
use std::io::Write;

use axon_qemu::{Ending, Error, Outcome, Session};
use clap::Parser;
use serde_json::Value;

use crate::options::MachineOptions;
use crate::{run, sessions};

/// One boot of a VM, or the same one several times.
pub struct Boot {
    /// What it shows.
    pub name: &'static str,
    /// Options and words of `cargo xtask run`.
    arguments: &'static str,
    /// How often it is run.
    times: usize,
    /// The exit code that is right.
    code: u8,
    /// What else must hold.
    check: fn(&[Outcome]) -> Result<(), String>,
    /// Only with `--long`.
    pub long: bool,
}

/// A boot with exit code 0 that is part of every test run.
const fn boot(
    name: &'static str,
    arguments: &'static str,
    check: fn(&[Outcome]) -> Result<(), String>,
) -> Boot {
    Boot { name, arguments, times: 1, code: 0, check, long: false }
}

/// A boot that ends in a report of the kernel.
const fn fatal(
    name: &'static str,
    arguments: &'static str,
    check: fn(&[Outcome]) -> Result<(), String>,
) -> Boot {
    Boot { code: 101, ..boot(name, arguments, check) }
}

/// Every boot.
pub const BOOTS: &[Boot] = &[
    boot("the kernel checks itself", "--app selftest --device none --icount", |_| Ok(())),
    fatal("a stack overflow is told", "--app selftest --device none -- overflow", |outcomes| {
        told(outcomes, "the main stack overflowed")
    }),
    fatal("code cannot be written", "--app selftest --device none -- write-code", |outcomes| {
        told(outcomes, "writing (not allowed)")
    }),
    fatal("data cannot be executed", "--app selftest --device none -- execute-data", |outcomes| {
        told(outcomes, "executing (not allowed)")
    }),
    fatal("a panic prints the log", "--app selftest --device none -- panic", |outcomes| {
        told(outcomes, "in two lines")?;
        told(outcomes, "about to die: panic")
    }),
    fatal("a panic prints the events of a device", "--device trn1 -- panic", |outcomes| {
        told(outcomes, "nd0 queue_destroyed")?;
        told(outcomes, "nd0 client_drop")
    }),
    boot("trn1 comes up and copies", "--device trn1", all_is_well),
    boot("inf2 comes up and copies", "--device inf2", all_is_well),
    boot("trn2 comes up and copies", "--device trn2", all_is_well),
    boot("trn3 comes up and copies", "--device trn3", all_is_well),
    boot("every product in one machine", "--device trn1,inf2,trn2,trn3", all_is_well),
    boot("a device without memory window", "--device trn2 --fault bar4-absent", all_is_well),
    Boot {
        times: 2,
        ..boot("counted instructions repeat", "--device trn1 --icount", same_instructions)
    },
    boot("messages cost what they may", "--app bench --device none --icount -- hop", |outcomes| {
        within(outcomes, MESSAGE_BOUNDS)
    }),
    boot("memory costs what it may", "--app bench --device none --icount -- memory", |outcomes| {
        within(outcomes, MEMORY_BOUNDS)
    }),
    boot("telling costs what it may", "--app bench --icount -- notify", |outcomes| {
        within(outcomes, NOTIFY_BOUNDS)
    }),
    boot("copies cost what they may", "--app bench --icount -- copy", |outcomes| {
        within(outcomes, COPY_BOUNDS)
    }),
    Boot {
        long: true,
        ..boot("sixteen devices", "--device trn1 --devices 16 --memory 2G", all_is_well)
    },
];

/// Whether all went as it must; else what did not.
pub type Verdict = Result<(), String>;

#[derive(Parser)]
#[command(name = "run")]
struct Run {
    #[arg(long, default_value = "bringup")]
    app: String,
    #[command(flatten)]
    options: MachineOptions,
}

/// Boots and judges; the console goes to `screen`.
///
/// # Errors
/// Where the VM cannot be started.
pub fn run(boot: &Boot, session: &mut Session, screen: &mut dyn Write) -> Result<Verdict, Error> {
    let words = ["run"].into_iter().chain(boot.arguments.split_whitespace());
    let Run { app, options } = Run::parse_from(words);
    let mut outcomes = Vec::with_capacity(boot.times);
    for _ in 0..boot.times {
        let outcome = run::boot(&app, &options, session, screen)?;
        if outcome.ending.exit_code() != boot.code {
            return Ok(Err(format!("{}, expected exit code {}", outcome.ending, boot.code)));
        }
        outcomes.push(outcome);
    }
    Ok((boot.check)(&outcomes))
}

/// Plays a console session and judges; the console goes to `screen`.
///
/// # Errors
/// Where the VM cannot be started.
pub fn play(
    console: &sessions::Session,
    session: &mut Session,
    screen: &mut dyn Write,
) -> Result<Verdict, Error> {
    let script = session.scratch()?.join("session");
    fs::write(&script, &console.script).map_err(|source| Error::File {
        action: "write",
        path: script.clone(),
        source,
    })?;
    let words = ["run", "--app", run::CONSOLE].into_iter().map(String::from);
    let words = words.chain(console.options.iter().cloned());
    let mut options = Run::parse_from(words).options;
    options.script = Some(script);
    let outcome = run::boot(run::CONSOLE, &options, session, screen)?;
    Ok(ensure(outcome.ending == Ending::Exited(0), || outcome.ending.to_string()))
}

/// The device is ready, every copy arrived, and the model saw nothing it does not know.
fn all_is_well(outcomes: &[Outcome]) -> Result<(), String> {
    outcomes.iter().try_for_each(|outcome| {
        let report = &outcome.report;
        ensure(report["ok"] == true, || format!("the report says no: {}", report["error"]))?;
        for device in list(&report["devices"]) {
            ensure(device["state"] == "READY", || format!("not ready: {device}"))?;
        }
        for copy in list(&report["copies"]) {
            ensure(copy["verified"] == true, || format!("not verified: {copy}"))?;
        }
        let models = list(&report["model"]);
        let devices = list(&report["devices"]).len();
        ensure(models.len() == devices, || format!("{devices} devices, {} models", models.len()))?;
        for model in models {
            ensure(model["unmodelled"] == Value::Array(Vec::new()), || {
                format!("registers the model does not know: {}", model["unmodelled"])
            })?;
            ensure(model["violation_count"] == 0, || {
                format!("rules broken: {}", model["violations"])
            })?;
        }
        let rung = total(&report["copies"], "doorbells");
        let seen = total(&report["model"], "doorbells");
        ensure(rung == seen, || {
            format!("{rung} doorbells rung for copies, the models saw {seen}")
        })?;
        metrics_are_true(report)
    })
}

/// What the driver counted is what the models saw.
fn metrics_are_true(report: &Value) -> Result<(), String> {
    let metric = |name: &str| report["metrics"][name].as_u64();
    let models = |key| Some(total(&report["model"], key));
    let posts = "neuron_fwio_requests_total{command=\"post_metric\"}";
    let lengths = |key: &'static str| {
        list(&report["model"]).iter().map(move |model| list(&model[key]).len() as u64)
    };
    for (name, counted, seen) in [
        ("doorbells", metric("dma_doorbells"), models("doorbells")),
        ("markers", metric("dma_batches"), models("markers")),
        ("descriptors", metric("dma_descriptors").map(|side| 2 * side), models("descriptors")),
        (
            "resets",
            metric("neuron_reset_duration_seconds_count{scope=\"device\"}"),
            models("device_resets"),
        ),
        ("posts", metric(posts), Some(lengths("posts").sum())),
        (
            "queues",
            metric("neuron_log_records_total{kind=\"queue_armed\"}"),
            Some(lengths("notifications").sum()),
        ),
    ] {
        ensure(counted.is_some() && counted == seen, || {
            format!("the driver counted {counted:?} {name}, the models {seen:?}")
        })?;
    }
    Ok(())
}

/// The console's last lines say this.
fn told(outcomes: &[Outcome], words: &str) -> Result<(), String> {
    outcomes.iter().try_for_each(|outcome| {
        ensure(outcome.last_lines.iter().any(|line| line.contains(words)), || {
            format!("the console does not say {words:?}: {:?}", outcome.last_lines)
        })
    })
}

/// Two boots executed the same number of instructions up to `main`.
fn same_instructions(outcomes: &[Outcome]) -> Result<(), String> {
    all_is_well(outcomes)?;
    let counts: Vec<&Value> = outcomes
        .iter()
        .map(|outcome| &outcome.report["boot"]["entry_to_main_instructions"])
        .collect();
    ensure(counts.iter().all(|count| count.is_u64() && *count == counts[0]), || {
        format!("instructions up to main: {counts:?}")
    })
}

/// Most guest instructions of a benchmark's row: what no change may exceed unnoticed. All are well
/// below what the Linux driver takes for the same on the same scale.
type Bounds = &'static [(&'static str, u64)];

const MESSAGE_BOUNDS: Bounds = &[
    ("request and reply: channel and slot", 400),
    ("request and reply: desk", 550),
    ("look a handle up, without", 30),
];

/// The same whatever lives and whatever holes there are.
const MEMORY_BOUNDS: Bounds = &[
    ("look a handle up, with a pin", 60),
    ("look a handle up, without", 30),
    ("allocate 4 KiB, 0 live chunks", 400),
    ("free 4 KiB, 0 live chunks", 400),
    ("allocate 4 KiB, 100000 live chunks", 400),
    ("free 4 KiB, 100000 live chunks", 400),
    ("allocate 8 KiB, 50000 holes of 4 KiB", 400),
    ("free 8 KiB, 50000 holes of 4 KiB", 400),
    ("allocate 4 KiB, 50000 holes of 4 KiB", 700),
    ("free 4 KiB, 50000 holes of 4 KiB", 700),
    ("allocate 4 KiB by message, 100000 live chunks", 700),
    ("free 4 KiB by message, 100000 live chunks", 700),
    ("allocate 4 KiB, 1000000 live chunks of one arena", 400),
    ("allocate 4 KiB, direct call", 250),
    ("end of a client with 50000 chunks", 15_000_000),
];

const NOTIFY_BOUNDS: Bounds = &[
    ("reading a semaphore", 40),
    ("adding to a semaphore", 30),
    ("a notification, from memory to its reader", 500),
    ("adding to a counter", 5),
    ("a trace point that is off", 4),
    ("a trace point that is on", 40),
];

const COPY_BOUNDS: Bounds = &[
    ("copy 4 KiB host to device", 1400),
    ("copy 4 KiB, started at once", 900),
    ("one of a batch of 64 copies of 4 KiB", 170),
    ("fill 4 KiB, started at once", 1200),
    ("write a slice of 4 KiB", 2500),
    ("write 64 bytes through the window", 240),
    ("copy 64 KiB host to device", 900),
];

fn within(outcomes: &[Outcome], bounds: Bounds) -> Result<(), String> {
    let rows: Vec<&Value> = outcomes.iter().flat_map(|outcome| list(&outcome.report)).collect();
    bounds.iter().try_for_each(|(operation, bound)| {
        let row = rows.iter().find(|row| row["operation"] == *operation);
        let median = row.and_then(|row| row["median"].as_u64());
        ensure(median.is_some_and(|median| median <= *bound), || {
            format!("{operation}: {median:?} instructions, at most {bound}")
        })
    })
}

fn ensure(holds: bool, sentence: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(sentence()) }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn total(values: &Value, key: &str) -> u64 {
    list(values).iter().filter_map(|value| value[key].as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boot_has_arguments_that_are_understood() {
        for boot in BOOTS {
            let words = ["run"].into_iter().chain(boot.arguments.split_whitespace());
            assert!(Run::try_parse_from(words).is_ok(), "{}", boot.name);
        }
    }
}
