//! The exposition against a strict reading of format 0.0.4.

extern crate std;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use axon_hosted::Machine;
use axon_ports::CoreMap;
use axon_ports::telemetry::TraceKind;

use super::*;
use crate::sensors::misc;
use crate::testing::{FakeDevice, client, core, facts_v2, facts_v3, slabs};
use crate::{ClientMemory, CoreCounter, DeviceCounter, DeviceFacts, Telemetry, TelemetryConfig};

fn telemetry(device: &FakeDevice, facts: DeviceFacts) -> Telemetry<Machine, FakeDevice> {
    let machine = Machine::builder().memory(16 << 20).build().unwrap();
    let config = TelemetryConfig { driver_version: "0.1.0".into(), ..TelemetryConfig::default() };
    Telemetry::new(machine, facts, config, device.records.clone(), slabs(), device.clone()).unwrap()
}

fn render(snapshots: &[Snapshot]) -> String {
    let mut text = String::new();
    Exposition::new(snapshots).render(&mut text).unwrap();
    text
}

/// One sample: name, labels in order, value.
#[derive(Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: String,
}

#[derive(Debug)]
struct Parsed {
    name: String,
    kind: String,
    samples: Vec<Sample>,
}

/// Format 0.0.4 and the rules of specification 07 §16.4, or the line that breaks them.
fn check(text: &str) -> Result<Vec<Parsed>, String> {
    let mut families: Vec<Parsed> = Vec::new();
    let mut help: Option<String> = None;
    if !text.ends_with('\n') {
        return Err("last line has no end".into());
    }
    for line in text.lines() {
        let broken = |why: &str| Err(format!("{why}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let Some((name, words)) = rest.split_once(' ') else { return broken("no help") };
            if words.is_empty() || help.is_some() {
                return broken("help without type");
            }
            if families.last().is_some_and(|last| last.name.as_str() >= name) {
                return broken("family out of order, or twice");
            }
            help = Some(name.to_string());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else { return broken("no type") };
            if help.take().as_deref() != Some(name) || !is_name(name, true) {
                return broken("type without help");
            }
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return broken("kind");
            }
            if (kind == "counter") != name.ends_with("_total") {
                return broken("counters, and only they, end in _total");
            }
            families.push(Parsed { name: name.into(), kind: kind.into(), samples: vec![] });
        } else {
            let sample = parse(line).ok_or(format!("no sample: {line}"))?;
            let Some(family) = families.last_mut().filter(|_| help.is_none()) else {
                return broken("sample without family");
            };
            let part = sample.name.strip_prefix(&family.name).unwrap_or("?");
            let parts: &[&str] =
                if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            if !parts.contains(&part) {
                return broken("sample of another family");
            }
            family.samples.push(sample);
        }
    }
    for family in &families {
        in_order(family)?;
    }
    Ok(families)
}

fn is_name(name: &str, colon: bool) -> bool {
    let legal =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || colon && letter == ':';
    name.chars().all(legal) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

fn parse(line: &str) -> Option<Sample> {
    let (head, value) = line.rsplit_once(' ')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let (name, mut rest) = match head.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (head, ""),
    };
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, tail) = rest.split_once("=\"")?;
        let (mut value, mut end) = (String::new(), None);
        let mut letters = tail.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    escaped @ ('"' | '\\') => escaped,
                    _ => return None,
                }),
                plain => value.push(plain),
            }
        }
        rest = &tail[end? + 1..];
        if let Some(more) = rest.strip_prefix(',') {
            rest = more;
            if rest.is_empty() {
                return None;
            }
        } else if !rest.is_empty() {
            return None;
        }
        if !is_name(label, false) {
            return None;
        }
        labels.push((label.to_string(), value));
    }
    is_name(name, true).then(|| Sample { name: name.into(), labels, value: value.into() })
}

/// Same label names throughout, no series twice, sorted, histograms whole.
fn in_order(family: &Parsed) -> Result<(), String> {
    let name = &family.name;
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        if !seen.insert((sample.name.clone(), sample.labels.clone())) {
            return Err(format!("{name}: series twice: {sample:?}"));
        }
    }
    for pair in family.samples.windows(2) {
        let [first, second] = pair else { continue };
        if family.kind == "histogram" {
            continue;
        }
        let names = |sample: &Sample| -> Vec<String> {
            sample.labels.iter().map(|label| label.0.clone()).collect()
        };
        if names(first) != names(second) {
            return Err(format!("{name}: labels differ"));
        }
        let pairs = first.labels.iter().zip(&second.labels);
        let order = pairs.map(|(a, b)| natural(&a.1, &b.1)).find(|order| order.is_ne());
        if order != Some(Ordering::Less) {
            return Err(format!("{name}: {first:?} before {second:?}"));
        }
    }
    Ok(())
}

/// Numbers as numbers, also within versions; the rest as text.
fn natural(a: &str, b: &str) -> Ordering {
    let key =
        |text: &str| -> Option<Vec<u64>> { text.split('.').map(|n| n.parse().ok()).collect() };
    match (key(a), key(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.cmp(b),
    }
}

/// A device on which everything there is has a value.
fn busy() -> (FakeDevice, Telemetry<Machine, FakeDevice>) {
    let device = FakeDevice::v3();
    let telemetry = telemetry(&device, facts_v3());
    for (offset, word) in [
        (misc::SRAM_ECC, 0x0002_0001),
        (misc::HBM_ECC, 0x0003_0004),
        (misc::HBM_REPAIR, 1),
        (misc::SERIAL_LOW, 5),
    ] {
        device.set_misc(offset, word);
    }
    for number in 1..=3 {
        let own = telemetry.acquire(client(number)).unwrap();
        own.add(core(0), CoreCounter::INFER_COMPLETED, 40).unwrap();
        own.add(core(7), CoreCounter::TIME_IN_USE, 1_500_000_000_000).unwrap();
        own.add(core(7), CoreCounter::MAC_COUNT, u64::MAX / 4).unwrap();
        own.set_bits(DeviceCounter::FEATURE_BITMAP, 0b101).unwrap();
        let version = if number == 1 { 2 << 40 | 9 << 32 } else { 2 << 40 | 10 << 32 };
        own.set_device(DeviceCounter::RUNTIME_VERSION, version).unwrap();
        // The same version with two types is one version.
        let typed = u64::from(number) << 48 | 1 << 40;
        own.set_device(DeviceCounter::FRAMEWORK_VERSION, typed).unwrap();
        let (host_bytes, device_bytes) = (4096, 8192);
        device.inside().clients.push(ClientMemory {
            client: client(number),
            host_bytes,
            device_bytes,
        });
    }
    let resets = &device.records.counters.resets;
    resets.finished(CoreMap::DEVICE, Duration::from_millis(1500));
    resets.finished(CoreMap::DEVICE, Duration::from_secs(900));
    resets.failed(CoreMap(1));
    device.records.trace.switch_on(TraceKind::BarRead).unwrap();
    telemetry.0.platform.clone().run(telemetry.refresh()).unwrap();
    (device, telemetry)
}

fn find<'a>(families: &'a [Parsed], name: &str) -> &'a Parsed {
    families.iter().find(|family| family.name == name).unwrap()
}

fn value(families: &[Parsed], name: &str, labels: &[(&str, &str)]) -> Option<String> {
    let matches = |sample: &&Sample| {
        labels
            .iter()
            .all(|(label, value)| sample.labels.contains(&(label.to_string(), value.to_string())))
    };
    let samples = &find(families, name).samples;
    assert!(samples.iter().filter(matches).count() < 2, "{name} {labels:?}");
    samples.iter().find(matches).map(|sample| sample.value.clone())
}

#[test]
fn tel_e46_a_device_without_clients_parses_and_counts_from_zero() {
    let device = FakeDevice::v2();
    let snapshot = telemetry(&device, facts_v2()).snapshot().unwrap();
    let families = check(&render(&[snapshot])).unwrap();
    assert_eq!(families.len(), families::FAMILIES.len());
    let status = [("device", "0"), ("core", "1"), ("status", "success")];
    let zero = |name, labels: &[_]| assert_eq!(value(&families, name, labels).unwrap(), "0");
    zero("neuron_core_execution_status_total", &status);
    zero("neuron_core_busy_seconds_total", &status[..2]);
    zero("neuron_clients", &status[..1]);
    zero("neuron_fwio_errors_total", &status[..1]);
    assert_eq!(find(&families, "neuron_component_version_clients").samples.len(), 0);
    assert_eq!(find(&families, "neuron_sram_ecc_corrected_errors_total").samples.len(), 0);
}

/// A parser that others use finds every sample, of the kind that was declared.
#[test]
fn a_parser_of_others_reads_every_sample() {
    use prometheus_parse::{Scrape, Value};
    let device = FakeDevice::v3();
    let telemetry = telemetry(&device, facts_v3());
    let own = telemetry.acquire(client(1)).unwrap();
    own.add(core(2), CoreCounter::INFER_COMPLETED, 120).unwrap();
    let text = render(&[telemetry.snapshot().unwrap()]);
    let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_string()))).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    // The buckets of a histogram are one sample of the parser.
    let plain = lines.filter(|line| !line.contains("_bucket{")).count();
    let histograms =
        |sample: &&prometheus_parse::Sample| matches!(sample.value, Value::Histogram(_));
    assert_eq!(scrape.samples.len() - scrape.samples.iter().filter(histograms).count(), plain);
    assert_eq!(scrape.docs.len(), families::FAMILIES.len());
    for sample in &scrape.samples {
        let counter = sample.metric.ends_with("_total");
        assert_eq!(counter, matches!(sample.value, Value::Counter(_)), "{}", sample.metric);
    }
    let completed = scrape.samples.iter().find(|sample| {
        sample.metric == "neuron_core_execution_status_total"
            && sample.labels.get("core") == Some("2")
            && sample.labels.get("status") == Some("success")
    });
    assert_eq!(completed.unwrap().value, Value::Counter(120.0));
}

#[test]
fn the_families_are_those_of_the_specification() {
    // Every name in the table of 07 §16.4.
    let chapter = include_str!("../../../../docs/spec/07-telemetry.md");
    let table: BTreeSet<&str> = chapter
        .lines()
        .filter_map(|line| line.strip_prefix("| `neuron_")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let ours: BTreeSet<&str> =
        families::FAMILIES.iter().map(|family| &family.name["neuron_".len()..]).collect();
    assert_eq!(ours, table);
}

#[test]
fn a_busy_device_shows_what_it_does() {
    let (_device, telemetry) = busy();
    let families = check(&render(&[telemetry.snapshot().unwrap()])).unwrap();
    let of = |name, labels: &[_]| value(&families, name, labels);
    let show = |name, labels: &[_]| of(name, labels).unwrap();
    let success = [("device", "1"), ("core", "0"), ("status", "success")];
    assert_eq!(show("neuron_core_execution_status_total", &success), "120");
    assert_eq!(show("neuron_core_busy_seconds_total", &[("core", "7")]), "4.5");
    assert_eq!(show("neuron_core_flops_total", &[("core", "7")]), "27670116110564327418");
    assert_eq!(show("neuron_clients", &[]), "3");
    let memory = [("client", "2"), ("location", "device")];
    assert_eq!(show("neuron_client_memory_used_bytes", &memory), "8192");
    assert_eq!(show("neuron_memory_draining_bytes", &[("location", "host")]), "4096");
    let versions = "neuron_component_version_clients";
    assert_eq!(show(versions, &[("component", "runtime"), ("version", "2.10.0")]), "2");
    assert_eq!(show(versions, &[("component", "framework"), ("version", "1.0.0")]), "3");
    assert_eq!(show("neuron_feature_in_use", &[("bit", "2")]), "1");
    assert_eq!(of("neuron_feature_in_use", &[("bit", "1")]), None);
    assert_eq!(show("neuron_hbm_ecc_corrected_errors_total", &[("channel", "0")]), "3");
    assert_eq!(show("neuron_sram_ecc_uncorrected_errors_total", &[]), "1");
    assert_eq!(show("neuron_hbm_repair_state", &[]), "1");
    assert_eq!(
        show(
            "neuron_core_pe_cycles_total",
            &[("core", "7"), ("row_group", "3"), ("activity", "idle")]
        ),
        "0"
    );
    assert_eq!(find(&families, "neuron_power_utilization_ratio").samples.len(), 0);
    let info = &find(&families, "neuron_device_info").samples[0];
    let labels: Vec<&str> = info.labels.iter().map(|label| label.1.as_str()).collect();
    assert_eq!(labels, ["1", "NDv3", "Trn2", "Trainium2", "0000000100000005"]);
    assert_eq!(show("neuron_driver_info", &[("version", "0.1.0")]), "1");
    assert_eq!(show("neuron_nq_overflows_total", &[("block", "nc0"), ("queue", "2")]), "1");
}

#[test]
fn histograms_are_cumulative_and_whole() {
    let (_device, telemetry) = busy();
    let families = check(&render(&[telemetry.snapshot().unwrap()])).unwrap();
    let samples = &find(&families, "neuron_reset_duration_seconds").samples;
    let of_device: Vec<&Sample> = samples
        .iter()
        .filter(|sample| sample.labels.contains(&("scope".into(), "device".into())))
        .collect();
    let bounds: Vec<&str> =
        of_device.iter().filter_map(|sample| Some(sample.labels.get(2)?.1.as_str())).collect();
    assert_eq!(
        bounds,
        ["0.5", "1", "2.5", "5", "10", "30", "60", "120", "240", "480", "+Inf"],
        "as the specification writes them"
    );
    let values: Vec<&str> = of_device.iter().map(|sample| sample.value.as_str()).collect();
    assert_eq!(values, ["0", "0", "1", "1", "1", "1", "1", "1", "1", "1", "2", "901.5", "2"]);
    let names: Vec<&str> = of_device[11..].iter().map(|sample| sample.name.as_str()).collect();
    assert_eq!(names, ["neuron_reset_duration_seconds_sum", "neuron_reset_duration_seconds_count"]);
}

#[test]
fn a_device_of_eight_cores_has_less_than_1200_series() {
    let (_device, telemetry) = busy();
    let text = render(&[telemetry.snapshot().unwrap()]);
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!((600..1200).contains(&series), "{series}");
}

#[test]
fn several_devices_share_the_families() {
    let (_device, telemetry_1) = busy();
    let device = FakeDevice::v2();
    let telemetry_0 = telemetry(&device, facts_v2());
    let both = [telemetry_0.snapshot().unwrap(), telemetry_1.snapshot().unwrap()];
    let families = check(&render(&both)).unwrap();
    assert_eq!(find(&families, "neuron_clients").samples.len(), 2);
    assert_eq!(find(&families, "neuron_driver_info").samples.len(), 1);
    assert_eq!(find(&families, "neuron_trace_events_total").samples.len(), 15);
}

#[test]
fn a_prefix_picks_families() {
    let (_device, telemetry) = busy();
    let snapshots = [telemetry.snapshot().unwrap()];
    let mut text = String::new();
    let exposition = Exposition { devices: &snapshots, prefix: "neuron_fwio_" };
    exposition.render(&mut text).unwrap();
    assert_eq!(check(&text).unwrap().len(), 3);
}

#[test]
fn tel_e48_a_buffer_one_byte_too_small_is_left_alone() {
    let (_device, telemetry) = busy();
    let snapshots = [telemetry.snapshot().unwrap()];
    let exposition = Exposition::new(&snapshots);
    let needed = exposition.len_bytes();
    let mut buffer = vec![0xaa_u8; needed];
    let small = exposition.render_into(&mut buffer[..needed - 1]);
    assert_eq!(small, Err(Error::TooSmall { needed }));
    assert!(buffer.iter().all(|byte| *byte == 0xaa));
    assert_eq!(exposition.render_into(&mut buffer), Ok(needed));
    assert_eq!(buffer, render(&snapshots).as_bytes());
}

#[test]
fn the_check_is_strict() {
    let good =
        "# HELP a_total Words.\n# TYPE a_total counter\na_total{x=\"1\"} 1\na_total{x=\"2\"} 0.5\n";
    assert!(check(good).is_ok());
    for (from, to) in [
        ("0.5\n", "0.5"),
        ("0.5", "1e3"),
        ("0.5", "-1"),
        ("\"2\"", "\"1\""),
        ("\"2\"", "\"0\""),
        ("\"2\"", "\"2"),
        ("x=\"2\"", "y=\"2\""),
        ("x=\"2\"", "x=\"\\q\""),
        ("x=\"2\"", "x=\"2\","),
        ("counter", "summary"),
        ("# HELP a_total Words.\n", ""),
        ("a_total{x=\"2\"}", "b_total{x=\"2\"}"),
        ("a_total", "a"),
    ] {
        assert!(check(&good.replace(from, to)).is_err(), "{from} -> {to}");
    }
    assert!(check(&good.repeat(2)).is_err(), "family twice");
}
