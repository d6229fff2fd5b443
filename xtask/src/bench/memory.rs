//! `cargo xtask bench memory`: the memory service beside other allocators on this machine, and its
//! cost in guest instructions in the image; one report, one chart, one page in `docs/bench/`.

use std::fs::{self, File};
use std::process::{Command, ExitCode};

use axon_qemu::{Error, Session};
use serde_json::{Value, json};

use super::chart::{self, Chart, ChartError, Series};
use super::{BenchOptions, machine_options};
use crate::{build, run, workspace};

/// What the chart shows of the comparison, by the end of a row's name.
const ARENA: &str = "arena: replace a random chunk of 4 KiB";
/// One heap on large pages, as an image has, for everybody: where the host puts many small mappings
/// would decide how long a look-up takes.
const ONE_HEAP: &str =
    "glibc.malloc.mmap_max=0:glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864";

const SERVICE: &str = "service: allocate and free 4 KiB";

/// Runs both halves and writes what they found.
pub fn bench(options: &BenchOptions) -> Result<ExitCode, Error> {
    let mut session = crate::begin(options.json)?;
    let host = compare(&mut session)?;
    let machine = machine_options("memory", "none");
    let outcome = run::boot("bench", &machine, &mut session, &mut std::io::sink())?;
    let code = outcome.ending.exit_code();
    let report = json!({
        "rows": host["rows"], "metadata": host["metadata"], "image": outcome.report,
    });
    if let Some(path) = &options.report {
        written(chart::write_text(path, &format!("{report:#}\n")))?;
    }
    let page = page(&report);
    let folder = workspace::root().join("docs/bench");
    written(picture(&report).write(&folder.join("memory.svg")))?;
    written(chart::write_text(&folder.join("memory.md"), &page))?;
    match options.json {
        true => println!("{report}"),
        false => println!("{page}"),
    }
    Ok(ExitCode::from(code))
}

/// Builds the host's benchmark, runs it and reads what it printed.
fn compare(session: &mut Session) -> Result<Value, Error> {
    let package = "axon-bench-memory";
    let mut command = build::cargo("build");
    command.args(["--release", "--package", package]);
    session.progress.step(&format!("building {package}"));
    session.run_checked(command, &format!("building {package}"))?;
    session.progress.step("measuring allocators on this machine (a minute or two)");
    let path = session.scratch()?.join("compare.json");
    let file = |action, source| Error::File { action, path: path.clone(), source };
    let output = File::create(&path).map_err(|source| file("create", source))?;
    let mut command = Command::new(workspace::target_dir().join("release").join(package));
    command.arg("compare").stdout(output).env("GLIBC_TUNABLES", ONE_HEAP);
    let code = session.run_for(command, None)?;
    let text = fs::read_to_string(&path).map_err(|source| file("read", source))?;
    serde_json::from_str(&text).map_err(|error| Error::Failed {
        program: package.to_string(),
        status: format!("exit code {code}"),
        output: error.to_string(),
    })
}

fn written(result: Result<(), ChartError>) -> Result<(), Error> {
    result.map_err(|error| match error {
        ChartError::Write(path, source) => Error::File { action: "write", path, source },
        other => Error::Failed {
            program: "drawing".to_string(),
            status: "no chart".to_string(),
            output: other.to_string(),
        },
    })
}

fn list<'a>(report: &'a Value, key: &str) -> &'a [Value] {
    report[key].as_array().map_or(&[], Vec::as_slice)
}

/// Points of the rows called `what`.
fn line(report: &Value, name: &str, what: &str, of: impl Fn(&Value) -> &Value) -> Series {
    let rows = list(report, "rows").iter().filter(|row| row["what"] == what);
    let point = |row: &Value| Some((row["live_chunks"].as_f64()?, of(row).as_f64()?));
    Series { name: name.to_string(), points: rows.filter_map(point).collect() }
}

fn picture(report: &Value) -> Chart {
    let mut series = vec![line(report, "axon, arena alone", ARENA, |row| &row["ours_ns"])];
    for peer in ["offset-allocator", "buddy_system_allocator", "rlsf", "bitmap"] {
        series.push(line(report, peer, ARENA, |row| &row["peers"][peer]));
    }
    series.push(line(report, "axon, whole service, direct", SERVICE, |row| &row["ours_ns"]));
    series.push(line(report, "axon, through the channel", SERVICE, |row| &row["channel_ns"]));
    Chart {
        title: "One 4 KiB allocation and one free in 24 GiB, fragmented".to_string(),
        across: "live chunks".to_string(),
        up: "nanoseconds".to_string(),
        series,
    }
}

fn figure(value: &Value) -> String {
    value.as_f64().map_or(String::from("–"), |value| match value {
        v if v >= 1e6 => chart::number(v),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    })
}

fn count(value: &Value) -> String {
    value.as_u64().map_or(String::from("–"), |value| value.to_string())
}

fn page(report: &Value) -> String {
    let name = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_string();
    let compared: Vec<Vec<String>> = list(report, "rows")
        .iter()
        .map(|row| {
            let peer = |name: &str| figure(&row["peers"][name]);
            vec![
                name(row, "what"),
                count(&row["live_chunks"]),
                figure(&row["ours_ns"]),
                figure(&row["channel_ns"]),
                peer("offset-allocator"),
                peer("buddy_system_allocator"),
                peer("rlsf"),
                peer("bitmap"),
                peer("slotmap"),
                row["ratio"].as_f64().map_or(String::from("–"), |ratio| format!("{ratio:.2}")),
            ]
        })
        .collect();
    let image: Vec<Vec<String>> = list(report, "image")
        .iter()
        .map(|row| {
            let cells = ["minimum", "median", "goal"].map(|key| count(&row[key]));
            [vec![name(row, "operation")], cells.to_vec()].concat()
        })
        .collect();
    let metadata: Vec<Vec<String>> = list(report, "metadata")
        .iter()
        .map(|row| {
            vec![
                count(&row["live_chunks"]),
                count(&row["heap_bytes"]),
                figure(&row["bytes_per_chunk"]),
                count(&row["limit"]),
            ]
        })
        .collect();
    let compared = chart::table(
        &[
            "what",
            "live chunks",
            "axon",
            "through the channel",
            "offset-allocator",
            "buddy_system_allocator",
            "rlsf",
            "bitmap",
            "slotmap",
            "ratio",
        ],
        &compared,
    );
    let image = chart::table(&["operation", "minimum", "median", "goal"], &image);
    let metadata =
        chart::table(&["live chunks", "heap bytes", "bytes a chunk", "limit"], &metadata);
    format!(
        "# The memory service, measured\n\n\
         Written by `cargo xtask bench memory`. Times depend on the machine and on what else it does; within a row all are from one run.\n\n\
         ![chart](memory.svg)\n\n\
         ## Beside other allocators\n\n\
         Median nanoseconds of one allocation and one free (or of one look-up) in a region of 24 GiB with granules of 4 KiB, which was filled with single granules \
         of which all but the live ones were freed in random order. `arena` rows compare arenas alone: those of others may place anywhere, \
         axon's takes the lowest address. `bitmap` is the plain first fit of Linux; `rlsf` keeps its headers in a pool of host memory, 32 bytes for a granule. \
         `service` rows are whole allocations and frees, called directly and through the channel (polled by hand, without an executor). \
         All use one heap on large pages, as in an image. Those of the handle table take turns with their peer. \
         `ratio`: how many times as fast axon is as the fastest other.\n\n{compared}\n\
         ## In the image, in guest instructions\n\n\
         Counted inside the guest, from call to resumed caller; reading the counter takes 3 of them. Where the task sleeps and nobody is in front, \
         an allocation or release is carried out in the caller's own poll; `by message` it goes through the channel to the task and back, \
         as while the task is busy.\n\n{image}\n\
         ## Memory of its own\n\n\
         Heap of a service with so many published chunks of 4 KiB in a region of 24 GiB; the limit is 96 bytes a chunk and 0.2 % of the region.\n\n{metadata}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Value {
        json!({
            "rows": [
                {"what": ARENA, "live_chunks": 1000, "ours_ns": 98.4, "channel_ns": null,
                 "peers": {"bitmap": 59.1, "rlsf": 12.6}, "ratio": 0.13},
                {"what": SERVICE, "live_chunks": 1000, "ours_ns": 101.2, "channel_ns": 214.7,
                 "peers": {}, "ratio": null},
            ],
            "metadata": [{"live_chunks": 1000, "heap_bytes": 683592, "bytes_per_chunk": 683.592,
                          "limit": 51635607}],
            "image": [{"operation": "free 4 KiB", "minimum": 599, "median": 609, "goal": 400}],
        })
    }

    #[test]
    fn the_chart_has_a_line_for_everybody_who_was_measured() {
        let picture = picture(&report());
        let named: Vec<&str> = picture
            .series
            .iter()
            .filter(|series| !series.points.is_empty())
            .map(|series| series.name.as_str())
            .collect();
        assert_eq!(named.len(), 5, "{named:?}");
        assert_eq!(picture.series[0].points, [(1000.0, 98.4)]);
    }

    #[test]
    fn the_page_has_every_row() {
        let page = page(&report());
        for row in ["| 98.4 | – |", "| 101 | 215 |", "| free 4 KiB | 599 | 609 | 400 |", "51635607"]
        {
            assert!(page.contains(row), "{row} in\n{page}");
        }
    }

    #[test]
    fn a_report_without_rows_is_a_page_without_rows() {
        assert!(page(&json!({})).contains("# The memory service"));
        assert!(picture(&json!({})).svg().is_err());
    }
}
