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
    assert_eq!(rows(&report).len(), cores * 30, "{description}");
    for row in rows(&report) {
        assert_eq!(row["verified"], true, "{row}");
        assert_eq!(number(row, "doorbells"), 2, "{row}");
        assert_eq!(number(row, "register_reads"), 0, "{row}");
        let pieces = number(row, "bytes").div_ceil(65536);
        assert_eq!(number(row, "descriptors"), pieces + 1, "{row}");
    }
    for model in &models {
        assert!(model.violations.is_empty(), "{description}: {:?}", model.violations);
        assert!(model.unmodelled.is_empty(), "{description}: {:?}", model.unmodelled);
    }
    let counted = report["metrics"]["dma_doorbells"].as_u64();
    assert_eq!(counted, Some(models.iter().map(|model| model.doorbells).sum()), "{description}");
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
