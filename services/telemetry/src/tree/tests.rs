//! The tree against the diagram of specification 07 §9.1.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use core::time::Duration;

use axon_hosted::Machine;
use axon_ports::CoreMap;

use super::*;
use crate::sensors::misc;
use crate::testing::{FakeDevice, client, core, facts_v2, facts_v3, slabs};
use crate::{DeviceFacts, Metric, TelemetryConfig};

fn telemetry(device: &FakeDevice, facts: DeviceFacts) -> Telemetry<Machine, FakeDevice> {
    let machine = Machine::builder().memory(16 << 20).build().unwrap();
    let config = TelemetryConfig::default();
    Telemetry::new(machine, facts, config, device.records.clone(), slabs(), device.clone()).unwrap()
}

fn read(telemetry: &Telemetry<Machine, FakeDevice>, path: &str) -> String {
    let mut text = String::new();
    telemetry.snapshot().unwrap().legacy_read(path, &mut text).unwrap();
    text
}

fn refresh(telemetry: &Telemetry<Machine, FakeDevice>) {
    telemetry.0.platform.clone().run(telemetry.refresh()).unwrap();
}

fn files(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    snapshot.walk_tree(&mut |path, text| {
        assert_eq!(files.insert(path.to_string(), format!("{text}")), None, "{path} twice");
    });
    files
}

#[test]
fn tel_d20_every_file_of_the_diagram_is_there_and_no_other() {
    let device = FakeDevice::v2();
    let files = files(&telemetry(&device, facts_v2()).snapshot().unwrap());
    let of_core = |path: &&String| path.starts_with("neuron0/neuron_core1/");
    let count =
        |what: &str| files.keys().filter(of_core).filter(|path| path.contains(what)).count();
    assert_eq!(count("/status/"), 24 * 2);
    assert_eq!(count("/memory_usage/"), (2 + 11) * 3);
    assert_eq!(count("/other_info/"), 6 * 2);
    assert_eq!(count("/pe_cntrs") + count("/arch_type"), 2);
    assert_eq!(files.keys().filter(of_core).count(), 48 + 39 + 12 + 2);
    let cores = files.keys().filter(|path| path.contains("neuron_core")).count();
    assert_eq!(cores, 2 * 101);
    // Class 5, device 4, info 5, host memory 8 × 3, hardware 3, power 1.
    assert_eq!(files.len() - cores, 5 + 4 + 5 + 24 + 3 + 1);
    let limit = files.keys().flat_map(|path| path.split('/')).map(str::len).max().unwrap();
    assert!(limit < 64);
}

#[test]
fn texts_are_those_of_linux() {
    let device = FakeDevice::v2();
    let telemetry = telemetry(&device, facts_v2());
    let busy = |path| read(&telemetry, path);
    assert_eq!(busy("neuron0/fw_api_version"), "busy", "not read yet");
    assert_eq!(busy("neuron0/info/serial_number"), "\n");
    assert_eq!(busy("neuron0/neuron_core0/stats/tensor_engine/pe_cntrs"), "");
    device.set_misc(misc::SERIAL_LOW, 0x9abc_def0);
    device.set_misc(misc::SERIAL_HIGH, 0x1234_5678);
    device.set_misc(misc::HBM_ECC, 2);
    refresh(&telemetry);
    for (path, text) in [
        ("reset", "1\n"),
        ("core_count", "2"),
        ("fw_api_version", "7"),
        ("connected_devices", "1, 4, 3, 12\n"),
        ("info/notify_delay", "-1\n"),
        ("info/serial_number", "123456789abcdef0\n"),
        ("info/architecture/arch_type", "NDv2\n"),
        ("info/architecture/instance_type", "Trn1\n"),
        ("info/architecture/device_name", "Trainium1\n"),
        ("stats/hardware/sram_ecc_uncorrected", "0\n"),
        ("stats/hardware/mem_ecc_uncorrected", "2\n"),
        ("stats/hardware/mem_ecc_repairable_uncorrected", "0\n"),
        ("stats/power/utilization", "POWER_STATUS_NO_DATA,0,0.00,0.00,0.00\n"),
        ("neuron_core1/info/architecture/arch_type", "NCv2\n"),
        (
            "neuron_core1/stats/tensor_engine/pe_cntrs",
            "xrow_grp,mm_active,wl_active,idle\n0,0,0,0\n1,0,0,0\n2,0,0,0\n3,0,0,0",
        ),
    ] {
        assert_eq!(read(&telemetry, &format!("neuron0/{path}")), text, "{path}");
    }
    assert_eq!(read(&telemetry, "/sys/class/neuron_device/node_id_4"), "-1\n");
}

#[test]
fn a_device_without_neighbours_has_an_empty_line() {
    let device = FakeDevice::v3();
    device.inside().neighbours.clear();
    assert_eq!(read(&telemetry(&device, facts_v3()), "neuron1/connected_devices"), "\n");
}

#[test]
fn tel_d15_counters_include_live_clients_and_present_is_the_last_departed() {
    let device = FakeDevice::v2();
    let telemetry = telemetry(&device, facts_v2());
    let own = telemetry.acquire(client(1)).unwrap();
    own.add(core(1), CoreCounter::INFER_COMPLETED, 5).unwrap();
    own.add(core(1), CoreCounter::MAC_COUNT, 21).unwrap();
    let at = |path: &str| read(&telemetry, &format!("neuron0/neuron_core1/stats/{path}"));
    assert_eq!(
        (at("status/success/total"), at("status/success/present")),
        ("5\n".into(), "0\n".into())
    );
    assert_eq!(at("other_info/flop_count/total"), "42\n");
    telemetry.release(client(1));
    assert_eq!(
        (at("status/success/total"), at("status/success/present")),
        ("5\n".into(), "5\n".into())
    );
    assert_eq!(at("other_info/flop_count/present"), "42\n");
}

#[test]
fn tel_e27_host_tensors_of_core_1() {
    let device = FakeDevice::v2();
    let telemetry = telemetry(&device, facts_v2());
    // The memory service books a chunk of 5000 bytes as two pages, under both gauges.
    let tensors = MemoryCounter::new(4).unwrap();
    let gauges = [device.gauge(tensors, core(1)), device.gauge(MemoryCounter::HOST, core(1))];
    let figures = |directory: &str| {
        ["total", "present", "peak"]
            .map(|file| read(&telemetry, &format!("neuron0/{directory}/{file}")))
    };
    let places =
        ["stats/memory_usage/host_mem/tensors", "neuron_core1/stats/memory_usage/host_mem"];
    gauges.iter().for_each(|gauge| gauge.grow(8192));
    for place in places {
        assert_eq!(figures(place), ["8192\n", "8192\n", "8192\n"], "{place}");
    }
    gauges.iter().for_each(|gauge| gauge.shrink(8192));
    for place in places {
        assert_eq!(figures(place), ["0\n", "8192\n", "8192\n"], "{place}");
    }
    telemetry.rebase_peak(tensors, core(0)).unwrap();
    assert_eq!(figures(places[0]), ["0\n", "8192\n", "0\n"]);
    assert_eq!(figures(places[1]), ["0\n", "8192\n", "8192\n"]);
}

#[test]
fn tel_e43_a_failed_reset_of_core_1() {
    let device = FakeDevice::v2();
    let telemetry = telemetry(&device, facts_v2());
    device.records.counters.resets.requested(CoreMap(0b10));
    device.records.counters.resets.failed(CoreMap(0b10));
    for (number, count) in [(0, "0\n"), (1, "1\n")] {
        for leaf in ["reset_req_count", "reset_fail_count"] {
            let path = format!("neuron0/neuron_core{number}/stats/other_info/{leaf}/total");
            assert_eq!(read(&telemetry, &path), count, "{path}");
        }
    }
}

#[test]
fn tel_d16_tel_d18_no_file_but_notify_delay_can_be_written() {
    let device = FakeDevice::v2();
    let telemetry = telemetry(&device, facts_v2());
    let total = "neuron0/stats/memory_usage/host_mem/tensors/total";
    assert_eq!(telemetry.legacy_write(total, "0"), Err(Error::ReadOnly));
    assert_eq!(telemetry.legacy_write("neuron0/reset", "1"), Err(Error::ReadOnly));
    assert_eq!(telemetry.legacy_write("neuron1/info/notify_delay", "0"), Err(Error::ReadOnly));
    let delay = "neuron0/info/notify_delay";
    assert!(matches!(telemetry.legacy_write(delay, "7"), Err(Error::Invalid { .. })));
    assert_eq!(telemetry.legacy_write(delay, "0\n"), Ok(()));
    assert_eq!(read(&telemetry, delay), "0\n");
    let mut text = String::new();
    let nothing = telemetry.snapshot().unwrap().legacy_read("neuron0/stats", &mut text);
    assert_eq!(nothing, Err(Error::NoSuchPath));
}

#[test]
fn a_change_is_told_once_at_most_100_ms_later() {
    let device = FakeDevice::v2();
    let telemetry = telemetry(&device, facts_v2());
    let machine = telemetry.0.platform.clone();
    telemetry.legacy_write("neuron0/info/notify_delay", "0").unwrap();
    let gauge = device.gauge(MemoryCounter::DEVICE, core(0));
    let metric = Metric::Memory(core(0), MemoryCounter::DEVICE);
    gauge.grow(4096);
    assert_eq!(machine.run(telemetry.changed(metric, 0)).unwrap(), 4096);
    let waiting = async {
        let change = async {
            machine.sleep(Duration::from_millis(30)).await;
            gauge.shrink(96);
            gauge.shrink(1000);
        };
        embassy_futures::join::join(telemetry.changed(metric, 4096), change).await.0
    };
    assert_eq!(machine.run(waiting).unwrap(), 3000);
    assert_eq!(machine.now().as_nanos(), 100_000_000);
    assert_eq!(telemetry.get(Metric::MemoryPeak(core(0), MemoryCounter::DEVICE)), 4096);
    assert_eq!(telemetry.get(Metric::ResetRequests(core(0))), 0);
    assert_eq!(telemetry.get(Metric::Core(core(1), CoreCounter::OOB)), 0);
}
