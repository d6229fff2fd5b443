//! The bring-up application on every product: every byte, and what each copy cost.

use axon_tests::machine;
use serde_json::Value;

/// Runs the application; its report and the models' own.
fn run(description: &str) -> (Value, Vec<axon_model::Report>) {
    let machine = machine(description);
    let main = axon_bringup::main(axon::Context::start(machine.clone()));
    let code: u8 = machine.run(main).expect("it ends").into();
    machine.shut_down();
    let output = machine.output();
    let line = output.lines().find_map(|line| line.strip_prefix("axon-report: "));
    let report: Value = serde_json::from_str(line.expect("a report")).expect("JSON");
    assert_eq!(code, 0, "{description}:\n{output}");
    assert_eq!(report["ok"], true);
    let models = (0..).map_while(|position| machine.report(position)).collect();
    (report, models)
}

fn rows(report: &Value) -> &Vec<Value> {
    report["copies"].as_array().expect("copies")
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}

/// Every core, every size, every direction; two doorbells a batch and no register read.
fn check(description: &str, cores: usize) {
    let (report, models) = run(description);
    let kinds = [("h2d", 10), ("d2d", 10), ("d2h", 30), ("memset", 20)];
    for (kind, count) in kinds {
        let of_kind = rows(&report).iter().filter(|row| row["kind"] == kind).count();
        assert_eq!(of_kind, cores * count, "{description} {kind}");
    }
    for row in rows(&report) {
        assert_eq!(row["verified"], true, "{row}");
        assert_eq!(number(row, "register_reads"), 0, "{row}");
        // A fill is one batch for the first 64 KiB and one for the rest.
        let bytes = number(row, "bytes");
        let batches = if row["kind"] == "memset" && bytes > 65536 { 2 } else { 1 };
        assert_eq!(number(row, "doorbells"), 2 * batches, "{row}");
        assert_eq!(number(row, "descriptors"), bytes.div_ceil(65536) + batches, "{row}");
    }
    for model in &models {
        assert!(model.violations.is_empty(), "{description}: {:?}", model.violations);
        assert!(model.unmodelled.is_empty(), "{description}: {:?}", model.unmodelled);
    }
    // Nothing moved that is not in the report.
    let rung: u64 = rows(&report).iter().map(|row| number(row, "doorbells")).sum();
    assert_eq!(rung, models.iter().map(|model| model.doorbells).sum::<u64>(), "{description}");
    assert_eq!(Some(rung), report["metrics"]["dma_doorbells"].as_u64(), "{description}");
}

#[test]
fn trainium1_copies_every_byte() {
    check("trn1", 2);
}

#[test]
fn inferentia2_copies_every_byte() {
    check("inf2", 2);
}

#[test]
fn trainium2_copies_every_byte() {
    check("trn2", 8);
}

#[test]
fn trainium3_copies_every_byte() {
    check("trn3", 8);
}

#[test]
fn mixed_generations_share_one_machine() {
    let (report, _) = run("trn1,trn2 seed=3");
    let generations: Vec<&Value> =
        report["devices"].as_array().expect("devices").iter().map(|d| &d["generation"]).collect();
    assert_eq!(generations, ["V2", "V3"]);
}
