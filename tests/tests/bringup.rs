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
    let moved: u64 = rows(&report).iter().map(|row| number(row, "bytes")).sum();
    check_metrics(&report["metrics"], &models, (rung, moved), cores as u64);
}

/// What the driver counted is what the models saw.
fn check_metrics(metrics: &Value, models: &[axon_model::Report], copied: (u64, u64), cores: u64) {
    let sum = |of: fn(&axon_model::Report) -> u64| models.iter().map(of).sum::<u64>();
    let count = |name: &str| number(metrics, name);
    let labelled = |family: &str, label: &str| count(&format!("{family}{{{label}}}"));
    assert_eq!((count("dma_doorbells"), count("dma_bytes")), copied);
    // One descriptor reads, one writes.
    assert_eq!(2 * count("dma_descriptors"), sum(|model| model.descriptors));
    // A batch ends with its marker, four bytes more.
    assert_eq!(count("dma_batches"), sum(|model| model.markers));
    assert_eq!(count("dma_bytes") + 4 * count("dma_batches"), sum(|model| model.bytes));
    let resets = |scope| labelled("neuron_reset_duration_seconds_count", scope);
    assert_eq!(resets("scope=\"device\""), sum(|model| model.device_resets));
    assert_eq!(resets("scope=\"core\""), sum(|model| model.core_resets));
    // Firmware took both bands of every device, to the byte.
    let requests = |command| labelled("neuron_fwio_requests_total", command);
    let all = metrics.as_object().expect("metrics").iter();
    let asked = all.filter(|(name, _)| name.starts_with("neuron_fwio_requests_total"));
    let asked: u64 = asked.filter_map(|(_, count)| count.as_u64()).sum();
    assert_eq!(asked, sum(|model| model.mailbox_answers));
    let posts = |model: &axon_model::Report| model.posts.len() as u64;
    assert_eq!(requests("command=\"post_metric\""), models.iter().map(posts).sum::<u64>());
    let bytes = models.iter().flat_map(|model| &model.posts).map(|post| post.bytes.len() as u64);
    assert_eq!(count("neuron_metrics_posted_bytes_total"), bytes.sum::<u64>());
    assert_ne!(count("neuron_metrics_posted_bytes_total"), 0);
    // A queue of every core was armed, is off, and has seen nothing.
    let events = |kind| labelled("neuron_log_records_total", kind);
    assert_eq!(events("kind=\"queue_armed\""), cores);
    assert_eq!(events("kind=\"queue_destroyed\""), cores);
    assert_eq!(count("neuron_nq_queues_armed"), 0);
    let queues: Vec<_> = models.iter().flat_map(|model| &model.notifications).collect();
    assert_eq!(queues.len() as u64, cores);
    assert!(queues.iter().all(|queue| queue.size == 0 && queue.written == 0));
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
