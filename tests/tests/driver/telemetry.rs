//! Telemetry of a device that really is there: posts, hardware sources, resets, clients that leave.

use std::fmt::Write;
use std::time::Duration;

use axon::metrics::posting::records;
use axon::metrics::prometheus::Exposition;
use axon::metrics::{CoreCounter, DeviceCounter, MemoryCounter, Metric};
use axon::ports::telemetry::TraceKind;
use axon::ports::telemetry::trace::TraceTask;
use axon::{DeviceTelemetry, Error};
use axon_hosted::Machine;
use axon_platform::Errno;
use axon_ports::{CoreId, CoreMap};

use axon_tests::bench::{Bench, every, later};

fn telemetry(bench: &Bench) -> &DeviceTelemetry<Machine> {
    bench.device.telemetry().unwrap()
}

fn core(number: u32) -> CoreId {
    CoreId::new(number).unwrap()
}

/// Text of a file of the metric tree of the device.
async fn file(bench: &Bench, path: &str) -> String {
    telemetry(bench).refresh().await;
    let mut text = String::new();
    let snapshot = telemetry(bench).snapshot().unwrap();
    snapshot.legacy_read(&format!("neuron0/{path}"), &mut text).unwrap();
    text
}

/// Lines of the exposition that start with this.
async fn samples(bench: &Bench, start: &str) -> Vec<String> {
    telemetry(bench).refresh().await;
    let snapshots = [telemetry(bench).snapshot().unwrap()];
    let mut text = String::new();
    Exposition::new(&snapshots).render(&mut text).unwrap();
    text.lines().filter(|line| line.starts_with(start)).map(String::from).collect()
}

/// Every value that firmware took under an id.
fn posted(bench: &Bench, id: u8) -> Vec<String> {
    let posts = bench.report().posts;
    let all = posts.iter().flat_map(|post| records(&post.bytes));
    all.filter(|(seen, _)| *seen == id)
        .map(|(_, value)| String::from_utf8(value.to_vec()).unwrap())
        .collect()
}

#[test]
fn tel_e01_tel_e02_firmware_gets_what_clients_count() {
    every().telemetry().run(async |bench| {
        let own = bench.client.datastore().unwrap();
        own.add(core(0), CoreCounter::INFER_COMPLETED, 100).unwrap();
        own.set_device(DeviceCounter::RUNTIME_VERSION, 2 << 40 | 31 << 32 | 24).unwrap();
        bench.pause(Duration::from_secs(160)).await;
        own.add(core(1), CoreCounter::INFER_COMPLETED, 20).unwrap();
        let Bench { machine, device, client } = bench;
        client.close().await;
        assert_eq!(
            own.add(core(1), CoreCounter::INFER_COMPLETED, 1).map_err(|error| error.errno()),
            Err(Errno::EACCES)
        );
        let bench = Bench { client: device.open().await.unwrap(), machine, device };
        bench.pause(Duration::from_secs(600)).await;
        assert_eq!(posted(&bench, 200), ["100", "20"]);
        assert_eq!(posted(&bench, 180), ["2.31.24", "2.31.24"], "live, then departed");
        assert_eq!(bench.report().posts.len(), 5, "one every 150 s");
        let total = Metric::Core(core(0), CoreCounter::INFER_COMPLETED);
        assert_eq!(telemetry(&bench).get(total), 100);
    });
}

#[test]
fn tel_e44_reset_times_reach_firmware() {
    every().telemetry().run(async |bench| {
        // The first reset counts too; its figures go with the first post of band 1.
        telemetry(&bench).post_now().await.unwrap();
        bench.client.reset(CoreMap(0b11)).unwrap().await.unwrap();
        bench.control("fault never-ack");
        assert!(bench.client.reset(CoreMap(1)).unwrap().await.is_err());
        bench.control("fault clear");
        telemetry(&bench).post_now().await.unwrap();
        // The periodic posts had to wait for the reset; one of them was first to tell.
        let sum = |id| posted(&bench, id).iter().map(|n| n.parse::<u64>().unwrap()).sum::<u64>();
        assert_eq!((sum(54), sum(55)), (0, 1));
        assert!((20..100).contains(&sum(51)), "longest of the one that ended: {} ms", sum(51));
        let path = |core, leaf| format!("neuron_core{core}/stats/other_info/{leaf}/total");
        let first = file(&bench, &path(0, "reset_req_count")).await;
        let second = file(&bench, &path(1, "reset_req_count")).await;
        assert_eq!((first.as_str(), second.as_str()), ("3\n", "2\n"));
        assert_eq!(file(&bench, &path(0, "reset_fail_count")).await, "1\n");
        assert_eq!(file(&bench, &path(1, "reset_fail_count")).await, "0\n");
    });
}

#[test]
fn st_e45_a_minute_of_power_samples() {
    every().telemetry().run(async |bench| {
        assert!(file(&bench, "stats/power/utilization").await.starts_with("POWER_STATUS_NO_DATA"));
        bench.pause(Duration::from_secs(130)).await;
        let text = file(&bench, "stats/power/utilization").await;
        assert_eq!(text, "POWER_STATUS_VALID,120,25.00,25.00,25.00\n");
        let expected = r#"neuron_power_utilization_ratio{device="0",stat="avg"} 0.25"#;
        assert_eq!(samples(&bench, "neuron_power_util").await[0], expected);
    });
}

#[test]
fn tel_e29_tel_e31_errors_of_memory() {
    later().telemetry().run(async |bench| {
        for line in ["poke 0x40 0x50003", "poke 0x44 2", "poke 0x4c 1", "poke 0x64 1"] {
            bench.control(line);
        }
        assert_eq!(file(&bench, "stats/hardware/sram_ecc_uncorrected").await, "3\n");
        assert_eq!(file(&bench, "stats/hardware/mem_ecc_repairable_uncorrected").await, "3\n");
        assert_eq!(file(&bench, "stats/hardware/mem_ecc_uncorrected").await, "0\n");
        telemetry(&bench).post_now().await.unwrap();
        assert_eq!(
            (posted(&bench, 229), posted(&bench, 222)),
            (vec!["3".into()], vec!["0".into()])
        );
        bench.control("poke 0x64 2");
        assert_eq!(file(&bench, "stats/hardware/mem_ecc_uncorrected").await, "3\n");
    });
}

#[test]
fn tel_e37_tel_e38_activity_of_the_pe_array() {
    every().telemetry().run(async |bench| {
        let cores = usize::from(bench.device.hal().cores());
        let last = cores - 1;
        // Core 0, row group 3, idle; the last core, row group 0, matmul.
        let (idle, matmul) = if bench.is_v2() { (0x5d0, 0x200) } else { (0x6e0, 0x1c0) };
        bench.control(&format!("pe 0 {idle:#x} 0x1ffffffff"));
        bench.control(&format!("pe {last} {matmul:#x} 77"));
        let cycles = samples(&bench, "neuron_core_pe_cycles_total").await;
        let has = |labels: &str, value: u64| {
            let line = format!("neuron_core_pe_cycles_total{{device=\"0\",{labels}}} {value}");
            assert!(cycles.contains(&line), "{line}\n{cycles:#?}");
        };
        has("core=\"0\",row_group=\"3\",activity=\"idle\"", 0x1_ffff_ffff);
        has(&format!("core=\"{last}\",row_group=\"0\",activity=\"matmul\""), 77);
        assert_eq!(cycles.len(), cores * 4 * 3);
    });
}

#[test]
fn tel_e24_one_client_looks_at_another() {
    every().telemetry().run(async |bench| {
        let other = bench.device.open().await.unwrap();
        let nobody = other.datastore_of(bench.client.id()).await;
        assert_eq!(nobody.map(drop).map_err(|error| error.errno()), Err(Errno::ENOENT));
        bench.client.datastore().unwrap().add(core(1), CoreCounter::OOB, 3).unwrap();
        let copy = other.datastore_of(bench.client.id()).await.unwrap();
        assert_eq!(copy.core_counter(core(1), CoreCounter::OOB), 3);
        bench.client.release_datastore().unwrap();
        assert!(other.datastore_of(bench.client.id()).await.is_err());
        assert_eq!(copy.core_counter(core(1), CoreCounter::OOB), 3);
    });
}

#[test]
fn tel_e27_tel_e28_memory_of_a_device() {
    every().telemetry().run(async |bench| {
        let metric = Metric::Memory(core(1), MemoryCounter::DEVICE);
        let peak = Metric::MemoryPeak(core(1), MemoryCounter::DEVICE);
        let before = telemetry(&bench).get(metric);
        let buffer = bench.hbm_of(1, 5000).await;
        assert_eq!(telemetry(&bench).get(metric), before + 8192);
        let handle = buffer.into_handle();
        bench.client.free(handle).await.unwrap();
        assert_eq!(telemetry(&bench).get(metric), before);
        assert_eq!(telemetry(&bench).get(peak), before + 8192);
        telemetry(&bench).rebase_peak(MemoryCounter::DEVICE, core(1)).unwrap();
        assert_eq!(telemetry(&bench).get(peak), before);
        let client = bench.client.id().number();
        let expected =
            format!("neuron_client_memory_used_bytes{{device=\"0\",client=\"{client}\",location=\"host\"}} 0");
        assert_eq!(samples(&bench, "neuron_client_memory").await[1], expected);
    });
}

#[test]
fn memory_that_hardware_may_still_reach_is_told() {
    every().telemetry().run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(8192).await);
        bench.control("fault late-marker=5ms");
        let copy = source.span(..).unwrap().copy_to(target.span(..4096).unwrap()).unwrap();
        let mut copy = Box::pin(copy.start());
        drop((source, target));
        bench.pause(Duration::from_micros(100)).await;
        let draining = samples(&bench, "neuron_memory_draining_bytes").await;
        assert!(draining[0].ends_with(r#"location="device"} 8192"#), "{draining:?}");
        assert!(draining[1].ends_with(r#"location="host"} 4096"#), "{draining:?}");
        copy.as_mut().await.unwrap();
        drop(copy);
        bench.pause(Duration::from_millis(1)).await;
        assert!(samples(&bench, "neuron_memory_draining").await[0].ends_with(" 0"));
    });
}

#[test]
fn memory_in_quarantine_is_told() {
    every().telemetry().run(async |bench| {
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(8192).await);
        bench.control("fault drop-marker=1");
        let copy = source.span(..).unwrap().copy_to(target.span(..4096).unwrap()).unwrap();
        assert!(matches!(copy.await, Err(Error::Timeout(_))));
        let held = samples(&bench, "neuron_memory_quarantined_bytes").await;
        assert!(held[0].ends_with(r#"location="device"} 8192"#), "{held:?}");
        assert!(held[1].ends_with(r#"location="host"} 4096"#), "{held:?}");
        bench.client.reset(CoreMap::DEVICE).unwrap().await.unwrap();
        assert!(samples(&bench, "neuron_memory_quarantined").await[0].ends_with(" 0"));
    });
}

#[test]
fn trace_points_of_a_copy_and_a_reset() {
    every().telemetry().run(async |bench| {
        let records = bench.device.records();
        for kind in TraceKind::ALL {
            records.trace.switch_on(*kind).unwrap();
        }
        let (source, target) = (bench.pattern(4096, 1).await, bench.hbm(4096).await);
        source.span(..).unwrap().copy_to(target.span(..).unwrap()).unwrap().await.unwrap();
        bench.client.reset(CoreMap(1)).unwrap().await.unwrap();
        let handle = target.into_handle();
        bench.client.free(handle).await.unwrap();
        bench.device.read32(bench.misc_ram()).unwrap();
        let mut text = String::new();
        for task in [TraceTask::Memory, TraceTask::Dma, TraceTask::Registers] {
            records.trace.dump(task, 1000, |record| {
                writeln!(text, "{}", record.event).unwrap();
            });
        }
        for (event, count) in [
            ("ioctl_mem_alloc", 2),
            ("ioctl_mem_copy source", 1),
            ("ioctl_mem_free", 1),
            ("dma_memcpy", 1),
            ("dma_queue_copy_start", 1),
            ("dma_ack_completed", 1),
            ("dma_queue_init", 1),
            ("bar_read", 1),
        ] {
            let seen = text.lines().filter(|line| line.starts_with(event)).count();
            assert_eq!(seen, count, "{event}\n{text}");
        }
        let base = if bench.is_v2() { 10 } else { 40 };
        assert!(text.contains(&format!("dma_memcpy core=0x0 source=0x{base}")), "{text}");
        assert!(records.trace.count(TraceKind::DmaEngineInit) > 10, "the engines of core 0");
    });
}

#[test]
fn without_telemetry_the_calls_say_so() {
    every().run(async |bench| {
        assert!(matches!(bench.client.datastore(), Err(Error::Unsupported { .. })));
        assert!(bench.device.telemetry().is_err());
        bench.client.post_metric(b"abc").await.unwrap();
    });
}
