//! How a run went: the report file and the summary at the end.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Ending;
use crate::console::Console;

/// How a VM ran.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// From the start of QEMU to its end.
    pub elapsed: Duration,
    /// The last lines on the console, oldest first.
    pub last_lines: Vec<String>,
    /// The report, with what the models saw.
    pub report: Value,
}

impl Outcome {
    pub(crate) fn new(
        ending: Ending,
        elapsed: Duration,
        console: &Console,
        models: Vec<Option<Value>>,
    ) -> Outcome {
        let models = models.into_iter().enumerate().map(|(index, report)| {
            report.unwrap_or_else(|| json!({ "device": index, "error": "no report" }))
        });
        Outcome {
            ending,
            elapsed,
            last_lines: console.last_lines(),
            report: assemble(ending, console.report(), models.collect()),
        }
    }

    /// A few lines for a person: how the VM ended, each device, the copies, each model.
    pub fn summary(&self) -> String {
        let mut text = format!("{} after {:.1} s", self.ending, self.elapsed.as_secs_f64());
        for device in list(&self.report, "devices") {
            let took = number(device, "bringup_ns") as f64 / 1e6;
            line(
                &mut text,
                format_args!(
                    "{:9}{} {:3} {:8} brought up in {took:.3} ms {}",
                    word(device, "bdf"),
                    word(device, "pci_id"),
                    word(device, "generation"),
                    word(device, "state"),
                    word(device, "error"),
                ),
            );
        }
        let copies = list(&self.report, "copies");
        if !copies.is_empty() {
            let verified = copies.iter().filter(|copy| copy["verified"] == true).count();
            line(
                &mut text,
                format_args!(
                    "copies   {} ({verified} verified), {} bytes, {} doorbells, {} register reads",
                    copies.len(),
                    total(copies, "bytes"),
                    total(copies, "doorbells"),
                    total(copies, "register_reads"),
                ),
            );
        }
        for model in list(&self.report, "model") {
            line(
                &mut text,
                format_args!(
                    "model {:<3}{} reads, {} writes, {} doorbells, {} unmodelled registers {}",
                    number(model, "device"),
                    number(model, "register_reads"),
                    number(model, "register_writes"),
                    number(model, "doorbells"),
                    list(model, "unmodelled").len(),
                    word(model, "error"),
                ),
            );
        }
        text
    }
}

/// The image's report with `model` added; a report in its place where the image gave none.
fn assemble(ending: Ending, report: Option<&str>, models: Vec<Value>) -> Value {
    let parsed = report.map(serde_json::from_str::<Value>);
    let mut report = match parsed {
        Some(Ok(report)) => report,
        Some(Err(error)) => json!({ "ok": false, "error": format!("unreadable report: {error}") }),
        None => json!({
            "ok": ending == Ending::Exited(0),
            "error": format!("the image gave no report ({ending})"),
        }),
    };
    if let Value::Object(fields) = &mut report {
        fields.insert("model".to_string(), models.into());
    }
    report
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    let start = text.len();
    // Writing to a string cannot fail.
    let _ = write!(text, "\n  {words}");
    text.truncate(start + text[start..].trim_end().len());
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn total(values: &[Value], key: &str) -> u64 {
    values.iter().map(|value| number(value, key)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(printed: &str, ending: Ending) -> Outcome {
        let mut console = Console::default();
        console.take(printed.as_bytes());
        let model = json!({
            "device": 0, "register_reads": 39, "register_writes": 12914, "doorbells": 24,
            "unmodelled": [],
        });
        Outcome::new(ending, Duration::from_millis(2345), &console, vec![Some(model), None])
    }

    const REPORT: &str = concat!(
        r#"axon-report: {"ok":true,"devices":[{"bdf":"00:01.0","pci_id":"1d0f:7164","#,
        r#""generation":"V2","state":"READY","bringup_ns":12345678,"error":null}],"#,
        r#""copies":[{"bytes":4096,"verified":true,"doorbells":2,"register_reads":0}]}"#,
        "\n"
    );

    #[test]
    fn the_report_gains_the_models() {
        let report = outcome(REPORT, Ending::Exited(0)).report;
        assert_eq!(report["ok"], true);
        assert_eq!(report["devices"][0]["state"], "READY");
        assert_eq!(report["model"][0]["register_writes"], 12914);
        assert_eq!(report["model"][1]["error"], "no report");
    }

    #[test]
    fn a_list_of_rows_stays_a_list() {
        let report = outcome("axon-report: [{\"row\":1}]\n", Ending::Exited(0)).report;
        assert_eq!(report, json!([{ "row": 1 }]));
    }

    #[test]
    fn no_or_a_broken_report_is_told() {
        let report = outcome("", Ending::TimedOut).report;
        assert_eq!(report["ok"], false);
        assert!(report["error"].as_str().unwrap().contains("no end in time"));
        let report = outcome("axon-report: {\"ok\"\n", Ending::Exited(0)).report;
        assert_eq!(report["ok"], false);
        assert!(report["error"].as_str().unwrap().contains("unreadable"));
    }

    #[test]
    fn the_summary_fits_a_screen() {
        let summary = outcome(REPORT, Ending::Exited(0)).summary();
        let expected = "exit code 0 after 2.3 s\n  \
            00:01.0  1d0f:7164 V2  READY    brought up in 12.346 ms\n  \
            copies   1 (1 verified), 4096 bytes, 2 doorbells, 0 register reads\n  \
            model 0  39 reads, 12914 writes, 24 doorbells, 0 unmodelled registers\n  \
            model 1  0 reads, 0 writes, 0 doorbells, 0 unmodelled registers no report";
        assert_eq!(summary, expected);
    }
}
