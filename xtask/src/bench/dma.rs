//! `cargo xtask bench dma`: copies by size and depth in a VM that counts instructions, then the same
//! in a Linux process that has a clock; a table and a chart in `docs/bench/`.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

use axon_qemu::{Error, Session};
use serde_json::Value;

use super::chart::{self, Chart, ChartError, Series};
use crate::options::MachineOptions;
use crate::{build, run, workspace};

/// Runs the benchmark in the VM, adds real time from the process, writes the pages.
///
/// # Errors
/// Where the VM or the process cannot be started.
pub fn bench(options: &MachineOptions, screen: &mut dyn Write) -> Result<ExitCode, Error> {
    let mut session = crate::begin(options.json)?;
    let mut outcome = run::boot("bench-dma", options, &mut session, screen)?;
    if outcome.ending.exit_code() == 0 {
        let shares = hosted(&mut session)?;
        add_real_time(&mut outcome.report, &shares);
        if let Err(error) = publish(&outcome.report) {
            eprintln!("axon: {error}");
            return Ok(ExitCode::FAILURE);
        }
    }
    if let Some(path) = &options.report {
        run::write_report(path, &outcome)?;
    }
    match options.json {
        true => println!("{}", outcome.report),
        false => eprintln!("axon: {}", outcome.summary()),
    }
    Ok(ExitCode::from(outcome.ending.exit_code()))
}

/// The rows of a Linux process with the model inside. Without them there is no page: a column that
/// is silently empty looks like a measurement.
fn hosted(session: &mut Session) -> Result<Value, Error> {
    let program = build::hosted("bench", session)?;
    let path = session.scratch()?.join("dma.json");
    let mut command = Command::new(&program);
    command.args(["--device", "trn1", "--report"]).arg(&path).args(["--", "dma"]);
    let output = command
        .stderr(Stdio::null())
        .output()
        .map_err(|source| Error::Start { program: program.display().to_string(), source })?;
    let text = std::fs::read_to_string(&path).map_err(|source| Error::File {
        action: "read",
        path: path.clone(),
        source,
    })?;
    let unread = |reason: String| Error::File {
        action: "understand",
        path: path.clone(),
        source: std::io::Error::other(reason),
    };
    let report: Value = serde_json::from_str(&text).map_err(|error| unread(error.to_string()))?;
    match rows(&report) {
        [] => Err(unread(format!("no rows; the program ended with {}", output.status))),
        rows => Ok(Value::Array(rows.to_vec())),
    }
}

/// Puts the real time of the same row into each row.
fn add_real_time(report: &mut Value, shares: &Value) {
    let key = |row: &Value| ["operation", "bytes", "depth"].map(|key| row[key].clone());
    for row in rows_mut(report) {
        let same = list(shares).iter().find(|other| key(other) == key(row));
        for name in ["wall_ns", "model_ns"] {
            row[name] = same.map_or(Value::Null, |same| same[name].clone());
        }
    }
}

fn list(rows: &Value) -> &[Value] {
    rows.as_array().map_or(&[], Vec::as_slice)
}

/// The rows of a report, which is the list itself or holds it.
fn rows_mut(report: &mut Value) -> &mut [Value] {
    match report {
        Value::Array(rows) => rows,
        Value::Object(map) => map
            .values_mut()
            .find_map(|value| value.as_array_mut().filter(|rows| is_rows(rows)))
            .map_or(&mut [], Vec::as_mut_slice),
        _ => &mut [],
    }
}

fn is_rows(rows: &[Value]) -> bool {
    rows.first().is_some_and(|row| row["operation"].is_string())
}

fn rows(report: &Value) -> &[Value] {
    match report {
        Value::Object(map) => map.values().map(list).find(|rows| is_rows(rows)).unwrap_or(&[]),
        other => list(other),
    }
}

/// Writes the table and the charts.
fn publish(report: &Value) -> Result<(), ChartError> {
    let folder = workspace::root().join("docs/bench");
    let rows = rows(report);
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or(0.0);
    let line = |name: &str, operation: &str, depth: u64| Series {
        name: name.to_string(),
        points: rows
            .iter()
            .filter(|row| row["operation"] == operation && row["depth"] == depth)
            .map(|row| (number(row, "bytes"), number(row, "median")))
            .collect(),
    };
    let chart = Chart {
        title: "Guest instructions of a copy, host to HBM".into(),
        across: "bytes of the copy".into(),
        up: "instructions, a copy's share".into(),
        series: vec![
            line("one, awaited", "copy awaited", 1),
            line("one, started", "copy started", 1),
            line("64 at once, awaited", "copy awaited", 64),
            line("batch of 8", "copy batch", 8),
            line("batch of 64", "copy batch", 64),
        ],
    };
    chart.write(&folder.join("dma.svg"))?;
    let chart = Chart {
        title: "Guest instructions of a small write to HBM".into(),
        across: "bytes of the slice".into(),
        up: "instructions".into(),
        series: vec![
            line("through the memory window", "write window", 1),
            line("the same, awaited", "write window, awaited", 1),
            line("by DMA, with its bounce", "write DMA", 1),
        ],
    };
    chart.write(&folder.join("dma-writes.svg"))?;
    chart::write_text(&folder.join("dma.md"), &page(rows))
}

/// The page of the table.
fn page(rows: &[Value]) -> String {
    let headings = [
        "what",
        "bytes",
        "depth",
        "samples",
        "submit",
        "complete",
        "total",
        "doorbells",
        "descriptors",
        "register reads",
        "ring bytes",
        "driver's share of real time",
    ];
    let cells = |row: &Value| {
        let keys = [
            "bytes",
            "depth",
            "samples",
            "submit",
            "complete",
            "median",
            "doorbells",
            "descriptors",
            "register_reads",
            "ring_bytes",
        ];
        let mut cells = vec![row["operation"].as_str().unwrap_or_default().to_string()];
        cells.extend(keys.map(|key| row[key].to_string()));
        cells.push(share(row));
        cells
    };
    let cells: Vec<_> = rows.iter().map(cells).collect();
    format!("{HEAD}{}", chart::table(&headings, &cells))
}

/// What of the real time is not the model's. Only register writes are timed: stores through the
/// memory window are the model's too but count as nobody's, and what a sweep meets depends on the
/// order of tasks, which a process does not share with the VM.
fn share(row: &Value) -> String {
    if row["kind"] != "copy" && row["way"] != "DMA" && row["kind"] != "fill" {
        return "–".into();
    }
    match (row["wall_ns"].as_f64(), row["model_ns"].as_f64()) {
        (Some(wall), Some(model)) if wall > 0.0 => {
            format!("{:.0} %", (wall - model).max(0.0) * 100.0 / wall)
        }
        _ => "–".into(),
    }
}

const HEAD: &str = "\
# What copies cost

Written by `cargo xtask bench dma`: Trn1, one vCPU, `-icount shift=0`, medians. *Submit* is from the call until the second doorbell,
*complete* from there, where the sweep that sees the marker begins, until the caller goes on, both in guest instructions and a copy's share of its run;
a look at the counter at each doorbell is part of them. Doorbells, descriptors (one side, markers included), register reads and bytes of ring memory
(descriptor pairs, marker words) are those of a whole run. Real time is that of a Linux process with the model
inside; the driver's share is all but the register writes, with executor, benchmark and waiting in it.

Register reads are those that the driver makes because of a copy; what its other tasks read meanwhile, in a run that
takes seconds, is in the report (`all_reads`).

A run of 16 MiB × 64 moves 1 GiB: the model hands such doorbells to a worker, so its markers come later, and how often the driver looks for
them meanwhile differs from run to run. All other figures repeat.

- *awaited*: `copy_to(..)?.await`; the last of the copies that were made together rings for all, in its first poll.
- *started*: `copy_to(..)?.start().await`; they ring at once, and the marker is looked for right behind them.
- *batch*: `Client::batch`; one marker and one future for all.
- *window*: the CPU writes into HBM itself; *DMA*: through a host chunk.

![Copies by size](dma.svg)

![Small writes](dma-writes.svg)

";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn real_time_goes_to_the_row_of_the_same_name() {
        let row = |bytes: u64, wall: u64| json!({"operation": "copy awaited", "kind": "copy", "bytes": bytes, "depth": 1, "wall_ns": wall, "model_ns": 1});
        let mut report = json!({"rows": [row(64, 0), row(4096, 0)]});
        add_real_time(&mut report, &json!([row(4096, 4)]));
        assert_eq!(report["rows"][1]["wall_ns"], 4);
        assert_eq!(report["rows"][0]["wall_ns"], Value::Null);
        assert_eq!(share(&report["rows"][1]), "75 %");
        assert_eq!(share(&report["rows"][0]), "–");
        assert!(page(rows(&report)).contains("| copy awaited | 4096 | 1 | null |"));
    }
}
