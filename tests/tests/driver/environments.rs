//! Resets on silicon, under the simulator (revision 0xff) and on the emulator (0xf0), and what of
//! firmware's words survives them.

use std::time::Duration;

use axon_model::{Bar4, Product};
use axon_neuron::DeviceConfig;
use axon_platform::Errno;
use axon_ports::reset::DeviceState;
use axon_ports::{CoreId, CoreMap};

use crate::host::{Host, Settled, firmware_writes, misc_ram};
use axon_tests::bench::{PRODUCTS, every};

const SIMULATOR: u8 = 0xff;
const EMULATOR: u8 = 0xf0;

fn with_revision(product: Product, revision: u8) -> Host {
    let mut host = Host::one(product).trace_registers();
    host.functions[0].revision = revision;
    host
}

fn writes_at(settled: &Settled, offset: u64) -> Vec<u32> {
    let trace = settled.report(0).register_trace;
    trace.iter().filter(|r| r.offset == offset).map(|r| r.value).collect()
}

fn reset(settled: &Settled, map: CoreMap) -> Result<(), axon::Error> {
    settled.run(async {
        let client = settled.only_device().open().await?;
        let result = client.reset(map)?.await;
        client.close().await;
        Ok(result?)
    })
}

#[test]
fn dev_e33_silicon_is_reset_by_the_handshake_alone() {
    for product in PRODUCTS {
        let settled = Host::one(product).trace_registers().settle();
        assert_eq!(firmware_writes(&settled.report(0), product), [(0x1ec, 1), (0x800, 1)]);
        assert!(writes_at(&settled, 0x3064_7010).is_empty());
        assert!(writes_at(&settled, 0x0630_0010).is_empty());
        assert!(settled.millis() < 40);
    }
}

#[test]
fn dev_e01_the_v2_simulator_has_its_registers_at_index_2_and_rings_before_the_handshake() {
    for product in [Product::Trn1, Product::Inf2] {
        let settled = with_revision(product, SIMULATOR).settle();
        let device = settled.only_device();
        assert_eq!((device.hal().register_bar(), device.state()), (2, DeviceState::Ready));
        assert_eq!(writes_at(&settled, 0x3064_7010), [1]);
        assert_eq!(firmware_writes(&settled.report(0), product), [(0x1ec, 1), (0x800, 1)]);
        assert!((2_000..2_300).contains(&settled.millis()), "{} ms", settled.millis());
        settled.check_copies(&device);
        reset(&settled, CoreMap(2)).unwrap();
        assert_eq!(writes_at(&settled, 0x3064_7010), [1, 1]);
        assert_eq!(settled.report(0).core_resets, 1);
    }
}

#[test]
fn dev_e37_the_later_simulators_know_the_doorbell_only() {
    for product in [Product::Trn2, Product::Trn3] {
        // The handshake would wait for ever on a word that never clears.
        let settled = with_revision(product, SIMULATOR).control(0, "stick 0x1ec 1").settle();
        let device = settled.only_device();
        assert_eq!(device.state(), DeviceState::Ready);
        assert_eq!(writes_at(&settled, 0x0630_0010), [0]);
        assert_eq!(firmware_writes(&settled.report(0), product), []);
        assert!((2_000..2_200).contains(&settled.millis()), "one look: {} ms", settled.millis());
        reset(&settled, CoreMap(0x81)).unwrap();
        assert_eq!(writes_at(&settled, 0x0630_0010), [0, 0x0081_8181]);
        assert_eq!(firmware_writes(&settled.report(0), product), []);
        settled.check_copies(&device);
    }
}

#[test]
fn dev_e09_simulators_of_any_size() {
    for (product, bar4) in [
        (Product::Trn2, Bar4::Size(128 << 20)),
        (Product::Trn3, Bar4::Size(4 << 30)),
        (Product::Trn2, Bar4::Absent),
        (Product::Trn1, Bar4::Absent),
    ] {
        let mut host = with_revision(product, SIMULATOR);
        host.functions[0].bar4 = bar4;
        let settled = host.settle();
        settled.check_copies(&settled.only_device());
    }
}

#[test]
fn a_simulator_whose_memory_is_all_firmwares_has_none_to_give() {
    let mut host = with_revision(Product::Trn2, SIMULATOR);
    host.functions[0].bar4 = Bar4::Size(64 << 20);
    let settled = host.settle();
    // 16 MiB a channel, all of it reserved: refused or empty, but said.
    match settled.driver.devices().first() {
        None => assert!(settled.only_refusal().error.to_string().contains("D15")),
        Some(device) => {
            let refused = settled.run(async {
                let client = device.open().await.unwrap();
                client.alloc_device(axon::DeviceAlloc::new(4096)).await.map(drop)
            });
            assert_eq!(refused.unwrap_err().errno(), Errno::ENOMEM);
        }
    }
}

#[test]
fn a_simulator_is_waited_for_as_long_as_its_generation_allows() {
    // A device reset of later generations writes 0, which reads as done at the first look.
    assert_eq!(with_revision(Product::Trn3, SIMULATOR).settle().ready(), [0]);
    let slow = |product, seconds: u64| {
        let mut host = with_revision(product, SIMULATOR);
        host.functions[0].reset_ns = seconds * 1_000_000_000;
        host.settle()
    };
    let settled = slow(Product::Trn1, 60);
    assert_eq!(settled.only_device().state(), DeviceState::Ready, "the handshake waits too");
}

#[test]
fn dev_e38_the_v4_emulator_is_never_reset() {
    let settled = with_revision(Product::Trn3, EMULATOR).settle();
    let device = settled.only_device();
    assert_eq!(
        (device.state(), device.hal().cores(), device.hal().dice()),
        (DeviceState::Ready, 1, 1)
    );
    reset(&settled, CoreMap(1)).unwrap();
    reset(&settled, CoreMap::DEVICE).unwrap();
    assert_eq!(firmware_writes(&settled.report(0), Product::Trn3), []);
    assert!(writes_at(&settled, 0x0630_0010).is_empty());
    let report = settled.report(0);
    assert_eq!((report.device_resets, report.core_resets), (0, 0));
    settled.check_copies(&device);
}

#[test]
fn other_emulators_are_reset_like_silicon_with_more_patience() {
    for product in [Product::Trn1, Product::Inf2, Product::Trn2] {
        let settled = with_revision(product, EMULATOR).settle();
        assert_eq!(firmware_writes(&settled.report(0), product), [(0x1ec, 1), (0x800, 1)]);
        settled.check_copies(&settled.only_device());
        // 30 s of "not ready" is a failure of silicon and a slow emulator.
        let slow = with_revision(product, EMULATOR).fault(0, "reset-stuck=30s").settle();
        assert_eq!(slow.only_device().state(), DeviceState::Ready);
        assert!((30_000..33_500).contains(&slow.millis()), "{} ms", slow.millis());
        let silicon = with_revision(product, 0x01).fault(0, "reset-stuck=30s").settle();
        assert_eq!(silicon.only_device().state(), DeviceState::Invalid);
    }
}

#[test]
fn dev_e02_an_emulator_has_the_cores_it_is_said_to_have() {
    let mut host = with_revision(Product::Trn2, EMULATOR);
    let settled = host.settle();
    let hal = *settled.only_device().hal();
    assert_eq!((hal.cores(), hal.core_map(), hal.dice()), (1, 0x1, 1));

    host.config = DeviceConfig { emulator_cores: 2, emulator_core_map: 4, ..host.config };
    let refusal = host.settle().only_refusal();
    assert_eq!(refusal.error.errno(), Errno::EINVAL);
    assert!(refusal.error.to_string().contains("D4"), "{}", refusal.error);
}

#[test]
fn cores_that_are_absent_from_the_core_map_are_left_alone() {
    let mut host = with_revision(Product::Trn2, EMULATOR);
    host.config = DeviceConfig { emulator_cores: 4, emulator_core_map: 0xb, ..host.config };
    let settled = host.settle();
    let device = settled.only_device();
    let cores: Vec<u32> = device.hal().core_ids().map(CoreId::number).collect();
    assert_eq!(cores, [0, 1, 3]);
    settled.check_copies(&device);
    // Neither the engines of core 2 nor those behind core 3 were written to.
    let trace = settled.report(0).register_trace;
    let unit = |engine: u64| (0x8200_0000 + (engine % 32) * 0x10_0000) + engine / 32 * 0x1200_0000;
    let touched = |engine: u64| {
        let base = if engine < 32 { unit(engine) } else { 0x9400_0000 + (engine - 32) * 0x10_0000 };
        trace.iter().any(|record| (base..base + 0x10_0000).contains(&record.offset))
    };
    for engine in 0..64 {
        assert_eq!(touched(engine), engine / 16 != 2, "engine {engine}");
    }
    for map in [CoreMap(0x4), CoreMap(0x10), CoreMap(0xf)] {
        assert_eq!(reset(&settled, map).unwrap_err().errno(), Errno::EINVAL, "{map:?}");
    }
    reset(&settled, CoreMap(0xb)).unwrap();
    settled.check_copies(&device);
}

#[test]
fn dev_e39_words_that_belong_to_others_survive_a_reset() {
    let words = [0x0c0, 0x0ec, 0x180, 0x184, 0x188, 0x18c, 0x190, 0x194, 0x198, 0x1a0, 0x1d0];
    for setup in every() {
        setup.run(async |bench| {
            for (offset, value) in words.into_iter().zip(0x0200_0103u32..) {
                bench.control(&format!("poke {offset:#x} {value:#x}"));
            }
            for map in [CoreMap::DEVICE, CoreMap(1)] {
                bench.client.reset(map).unwrap().await.unwrap();
            }
            let base = bench.device.hal().tables().map.misc_ram;
            for (offset, value) in words.into_iter().zip(0x0200_0103u32..) {
                let found = bench.device.read32(base + offset).unwrap();
                assert_eq!(found, value, "{:?} {offset:#x}", bench.device.hal().product());
            }
            assert_eq!(bench.device.serial_number().unwrap(), Some(0x1_0000_0001));
        });
    }
}

#[test]
fn dev_e34_dev_e35_triggers_that_are_lost_or_ignored() {
    for (product, patience) in
        [(Product::Trn1, 120_000), (Product::Inf2, 120_000), (Product::Trn2, 480_000)]
    {
        let lost = Host::one(product).trace_registers().fault(0, "lost-trigger=2").settle();
        assert_eq!(lost.ready(), [0]);
        assert!((60_000..60_400).contains(&lost.millis()), "{} ms", lost.millis());
        let issue = [(0x1ec, 1), (0x800, 1)];
        assert_eq!(firmware_writes(&lost.report(0), product), issue.repeat(3));

        let deaf = Host::one(product).trace_registers().fault(0, "never-ack").settle();
        let failure = deaf.only_device().failure().unwrap();
        assert_eq!(
            (deaf.only_device().state(), failure.errno()),
            (DeviceState::Invalid, Errno::ETIMEDOUT)
        );
        assert!((patience..patience + 200).contains(&deaf.millis()), "{} ms", deaf.millis());
        let issues = firmware_writes(&deaf.report(0), product).len() / 2;
        assert_eq!(issues as u128, patience / 30_000, "every 30 s");
    }
}

#[test]
fn dev_e36_firmware_that_is_busy_after_it_accepted() {
    for product in PRODUCTS {
        let settled = Host::one(product).fault(0, "reset-stuck=500ms").settle();
        assert_eq!(settled.ready(), [0], "{product:?}");
        let settled = Host::one(product).fault(0, "reset-stuck=1100ms").settle();
        let device = settled.only_device();
        assert_eq!(device.state(), DeviceState::Invalid);
        let failure = device.failure().unwrap();
        assert_eq!(failure.errno(), Errno::ETIMEDOUT);
        assert!(failure.to_string().contains("1000 ms"), "{failure}");
    }
}

#[test]
fn dev_d29_st_d31_a_reset_that_takes_no_time_is_a_success() {
    for product in PRODUCTS {
        let mut host = Host::one(product);
        host.functions[0].reset_ns = 0;
        let settled = host.settle();
        assert_eq!((settled.ready(), settled.millis()), (vec![0], 1));
    }
}

#[test]
fn a_failed_reset_keeps_its_reason_until_one_succeeds() {
    let settled = Host::one(Product::Trn2).fault(0, "reset-stuck times=1").settle();
    let device = settled.only_device();
    assert!(device.failure().is_some());
    settled.run(async { device.reset().unwrap().await.unwrap() });
    assert_eq!((device.state(), device.failure().map(|e| e.errno())), (DeviceState::Ready, None));
    settled.check_copies(&device);
}

#[test]
fn after_a_reset_nothing_of_the_cores_is_left_and_memory_is() {
    for product in [Product::Trn1, Product::Trn2] {
        let settled = Host::one(product).settle();
        let device = settled.only_device();
        let base = device.hal().core_tile(1).unwrap();
        settled.machine.with_model(0, |model| {
            model.bar_write(0, base + 0x270_1404, &7u32.to_le_bytes());
        });
        assert_eq!(device.read32(base + 0x270_1004).unwrap(), 7);
        reset(&settled, CoreMap(1)).unwrap();
        assert_eq!(device.read32(base + 0x270_1004).unwrap(), 7, "core 1 was not in the map");
        reset(&settled, CoreMap(2)).unwrap();
        assert_eq!(device.read32(base + 0x270_1004).unwrap(), 0);
        assert_eq!(device.read32(misc_ram(product) + 0x24).unwrap(), 0);
        settled.sleep(Duration::from_millis(1));
    }
}
