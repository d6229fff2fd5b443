//! Who a device is: numbers, platform types, words of firmware, neighbours.

use axon::hal::identity::PlatformType;
use axon_model::{FunctionConfig, Product};
use axon_platform::{Errno, PciFunction, Platform};
use axon_ports::reset::DeviceState;

use crate::host::{Host, Settled, misc_ram};
use axon_tests::bench::PRODUCTS;

fn with_routing_ids(product: Product, ids: &[u32]) -> Host {
    Host::of(ids.iter().zip(0..).map(|(&routing_id, index)| {
        let mut function = FunctionConfig::new(product, index);
        function.routing_id = routing_id;
        function
    }))
}

/// Index of the device behind each function, in bus order.
fn indices(settled: &Settled, count: usize) -> Vec<Option<u32>> {
    let mut found = vec![None; count];
    for device in settled.driver.devices() {
        found[device.position()] = Some(device.index().number());
    }
    found
}

#[test]
fn dev_e16_every_routing_id_of_every_product() {
    let trn1 = [0, 4, 1, 5, 3, 7, 2, 6, 12, 8, 13, 9, 15, 11, 14, 10];
    let later = [0, 3, 4, 7, 12, 15, 8, 11, 1, 2, 5, 6, 13, 14, 9, 10];
    let ids: Vec<u32> = (0..16).collect();
    for (product, expected) in
        [(Product::Trn1, trn1), (Product::Trn2, later), (Product::Trn3, later)]
    {
        let settled = with_routing_ids(product, &ids).settle();
        assert_eq!(indices(&settled, 16), expected.map(Some), "{product:?}");
        for device in settled.driver.devices() {
            assert_eq!(device.routing_id().number() as usize, device.position());
        }
    }
    let settled = with_routing_ids(Product::Inf2, &ids).settle();
    assert_eq!(settled.ready(), ids);
}

#[test]
fn bus_order_and_gaps_do_not_matter() {
    let ids = [13, 2, 63, 40, 7];
    let settled = with_routing_ids(Product::Trn1, &ids).settle();
    assert_eq!(indices(&settled, 5), [11, 1, 58, 44, 6].map(Some));
    let listed: Vec<u32> = settled.driver.devices().iter().map(|d| d.index().number()).collect();
    assert_eq!(listed, [1, 6, 11, 44, 58], "by index, whatever the bus says");
    let settled = with_routing_ids(Product::Inf2, &[5, 0, 3]).settle();
    assert_eq!(indices(&settled, 3), [5, 0, 3].map(Some));
}

#[test]
fn dev_e16_dev_d13_routing_ids_that_name_one_index() {
    let settled = with_routing_ids(Product::Trn2, &[1, 17, 33, 49, 2]).settle();
    assert_eq!(settled.ready(), [3, 4]);
    let refusals = settled.driver.refusals();
    assert_eq!(refusals.len(), 3);
    for refusal in refusals {
        assert_eq!(refusal.error.errno(), Errno::ENODEV);
        assert!(refusal.error.to_string().contains("nd3"), "{}", refusal.error);
    }
    // V2 counts on with every sixteen.
    assert_eq!(with_routing_ids(Product::Trn1, &[1, 17, 33, 49]).settle().ready().len(), 4);
}

#[test]
fn dev_e17_numbers_beyond_the_limit() {
    for (product, id) in [(Product::Trn1, 64), (Product::Inf2, 64), (Product::Trn3, 64)] {
        for id in [id, 127, 128, 0x8000_0000] {
            let refusal = with_routing_ids(product, &[id]).settle().only_refusal();
            assert_eq!(refusal.error.errno(), Errno::ENODEV);
            let text = refusal.error.to_string();
            assert!(text.contains("D9") && text.contains(&id.to_string()), "{text}");
        }
    }
}

/// A device of a switched pod.
fn pds(product: Product, name: &'static str, routing_id: u32, word: u32) -> Host {
    let mut host = with_routing_ids(product, &[routing_id]);
    host.functions[0].server_rack_id = word;
    Host { name: Some(name), ..host }
}

#[test]
fn dev_e17_dev_e46_st_e63_devices_of_a_switched_pod() {
    for (product, name) in
        [(Product::Trn2, "trn2es.48xlarge"), (Product::Trn3, "trn3-dev0.48xlarge")]
    {
        let settled = pds(product, name, 64, 0x8003).settle();
        let device = settled.only_device();
        assert_eq!((device.index().number(), device.server_id()), (0, Some(3)));
        assert_eq!(device.hal().platform_type(), PlatformType::Pds);
        let mut map = [u32::MAX; 16];
        device.hal().routing_ids(3, &mut map);
        assert_eq!((map[0], map[15]), (48, 63));
        assert_eq!(pds(product, name, 21, 0x8003).settle().ready(), [5]);
        // 0xdeadbeef has its valid bit, and is no value.
        for (routing_id, word) in [(128, 0x8003), (64, 0x0003), (64, 0xdead_beef), (64, u32::MAX)] {
            let refusal = pds(product, name, routing_id, word).settle().only_refusal();
            assert_eq!(refusal.error.errno(), Errno::ENODEV, "{routing_id} {word:#x}");
        }
        // The same device elsewhere is asked for no server.
        assert_eq!(pds(product, "other", 63, 0).settle().ready().len(), 1);
    }
}

#[test]
fn dev_e06_the_platform_type_comes_from_the_product_name_of_the_host() {
    use PlatformType::{Standard, UltraServer};
    let cases = [
        (Product::Trn2, Some("trn2u.48xlarge"), UltraServer),
        (Product::Trn2, Some("trn2u-ac.24xlarge"), UltraServer),
        (Product::Trn2, Some("trn2.48xlarge"), Standard),
        (Product::Trn3, Some("trn3p.48xlarge"), UltraServer),
        (Product::Trn3, Some("trn2u.48xlarge"), Standard),
        (Product::Trn1, Some("trn2u.48xlarge"), Standard),
        (Product::Trn2, Some("Standard PC (Q35 + ICH9, 2009)"), Standard),
        (Product::Trn2, None, Standard),
    ];
    for (product, name, expected) in cases {
        let settled = Host { name, ..Host::one(product) }.settle();
        let device = settled.only_device();
        assert_eq!(device.hal().platform_type(), expected, "{name:?}");
        assert_eq!((device.state(), device.server_id()), (DeviceState::Ready, None));
    }
    let mut host = Host::one(Product::Trn2);
    host.config.force_userver = true;
    assert_eq!(host.settle().only_device().hal().platform_type(), UltraServer);
}

#[test]
fn the_one_device_instance_is_not_asked_for_its_number() {
    let host = Host::one(Product::Trn3).control(0, "stick 0x24 0xdeadbeef");
    let settled = Host { name: Some("trn3pd98.3xlarge"), ..host.clone() }.settle();
    assert_eq!(settled.ready(), [0]);
    assert!(settled.millis() < 40);
    assert!(host.settle().only_refusal().error.to_string().contains("60000 ms"));
}

#[test]
fn dev_e03_an_unknown_device_is_left_as_it_was_found() {
    for id in [0x7065, 0x7064, 0x7563, 0, 0xffff] {
        let host = Host::many(Product::Trn1, 2).fault(0, &format!("bad-device-id={id:#x}"));
        let settled = host.settle();
        let refusal = settled.driver.refusals().remove(0);
        assert_eq!((refusal.error.errno(), refusal.device_id), (Errno::ENODEV, id));
        assert!(refusal.error.to_string().contains("D4"), "{}", refusal.error);
        let function = settled.machine.functions().remove(0);
        assert_eq!(function.config_read32(4) & 0xffff, 0, "the command register");
        let report = settled.report(0);
        assert_eq!((report.register_reads, report.register_writes), (0, 0));
        assert_eq!(settled.ready(), [1]);
    }
}

#[test]
fn unknown_revisions_are_silicon() {
    for revision in [0x00, 0x02, 0x7f, 0xef, 0xf1, 0xfe] {
        for product in [Product::Trn1, Product::Trn3] {
            let settled = Host::one(product).fault(0, &format!("revision={revision}")).settle();
            let device = settled.only_device();
            assert_eq!(device.state(), DeviceState::Ready);
            assert_eq!(device.hal().environment(), axon::hal::identity::Environment::Silicon);
            assert_eq!(settled.report(0).device_resets, 1);
        }
    }
}

#[test]
fn dev_e05_register_windows_that_do_not_fit() {
    let refused = |product, bar0: u64| {
        let settled = Host::one(product).fault(0, &format!("bar0-size={bar0}")).settle();
        let refusal = settled.only_refusal();
        assert_eq!(refusal.error.errno(), Errno::ENODEV);
        let report = settled.report(0);
        assert_eq!((report.register_reads, report.register_writes), (0, 0));
        let function = settled.machine.functions().remove(0);
        assert_eq!(function.config_read32(4) & 0xffff, 0, "decoding is off again");
        refusal.error.to_string()
    };
    for product in PRODUCTS {
        let text = refused(product, 0);
        assert!(text.contains("D6") && text.contains("no BAR 0"), "{text}");
        let text = refused(product, 256 << 20);
        assert!(text.contains("D6") && text.contains("0x10000000 bytes"), "{text}");
    }
    // What is enough for V2 is too little for its successors.
    assert!(refused(Product::Trn2, 1 << 30).contains("0xf5000000"));
    for (product, bar0) in [(Product::Trn1, 4u64 << 30), (Product::Trn3, 8 << 30)] {
        let settled = Host::one(product).fault(0, &format!("bar0-size={bar0}")).settle();
        assert_eq!(settled.ready(), [0], "more than needed is no harm");
    }
}

#[test]
fn dev_e05_memory_windows_of_every_size() {
    for (product, bar4) in [
        (Product::Trn1, "bar4-absent".to_string()),
        (Product::Trn1, format!("bar4-size={}", 64 << 20)),
        (Product::Inf2, format!("bar4-size={}", 16u64 << 30)),
        (Product::Trn2, "bar4-absent".to_string()),
        (Product::Trn2, format!("bar4-size={}", 64u64 << 30)),
        (Product::Trn3, format!("bar4-size={}", 128 << 20)),
    ] {
        let settled = Host::one(product).fault(0, &bar4).settle();
        let device = settled.only_device();
        let address = device.hal().tables().map.hbm_bases[1];
        let refused = device.hal().memory_window_offset(axon_platform::DeviceAddr(address), 4096);
        assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL, "{bar4}");
        settled.check_copies(&device);
    }
}

fn poked(product: Product, words: &[(u64, u32)]) -> Settled {
    let control = words.iter().map(|(offset, word)| (0, format!("poke {offset:#x} {word:#x}")));
    Host { control: control.collect(), ..Host::one(product) }.settle()
}

#[test]
fn dev_e20_serial_numbers() {
    for product in PRODUCTS {
        let serial = |high, low| {
            let settled = poked(product, &[(0x3c, high), (0x38, low)]);
            let device = settled.only_device();
            assert_eq!(device.identity().unwrap().serial, device.serial_number().unwrap());
            device.serial_number().unwrap()
        };
        assert_eq!(serial(0x1234_5678, 0x9abc_def0), Some(0x1234_5678_9abc_def0));
        assert_eq!(serial(0xdead_beef, 1), None);
        assert_eq!(serial(1, 0xdead_beef), None);
        assert_eq!(serial(0, 0), None);
        assert_eq!(serial(0, u32::MAX), Some(0xffff_ffff), "data, as the device is there");
    }
}

#[test]
fn dev_e21_dev_e22_memory_errors_and_repair() {
    let words =
        [(0x40, 0x0003_0002), (0x44, 2), (0x48, 0xdead_beef), (0x4c, 0x0007_0003), (0x50, 0)];
    let of = |product, state: u32| {
        let mut words = words.to_vec();
        words.push((0x64, state));
        let settled = poked(product, &words);
        settled.only_device().health().unwrap()
    };
    for product in [Product::Trn2, Product::Trn3] {
        let health = of(product, 1);
        let sram = health.sram.unwrap();
        assert_eq!((sram.corrected, sram.uncorrected), (3, 2));
        assert_eq!(health.hbm[1], None);
        assert_eq!(health.hbm[2].map(|e| (e.corrected, e.uncorrected)), Some((7, 3)));
        for (state, repairable, unrepairable, shown) in [
            (0, 0, 5, Some(0)),
            (1, 5, 0, Some(1)),
            (2, 0, 5, Some(2)),
            (0xffff_fffd, 5, 0, Some(1)),
            (0xdead_beef, 0, 0, None),
        ] {
            let health = of(product, state);
            let errors = health.hbm_errors;
            assert_eq!((errors.repairable, errors.unrepairable), (repairable, unrepairable));
            assert_eq!(health.repair_state, shown);
        }
    }
    // V2 has two channels, of which one says nothing, and repairs nothing.
    let health = of(Product::Trn1, 1);
    assert_eq!((health.hbm_errors.repairable, health.hbm_errors.unrepairable), (0, 2));
    assert_eq!(health.hbm[2], None);
}

#[test]
fn dev_e23_dev_e46_power() {
    let power = |product, words: &[(u64, u32)]| {
        let settled = poked(product, words);
        let health = settled.only_device().health().unwrap();
        health.power.map(|sample| sample.map(|s| (s.basis_points, s.number)))
    };
    let sample = 0x0012_1388;
    assert_eq!(power(Product::Trn1, &[(0x54, sample)]), [Some((5000, 0x12)), None]);
    let two = power(Product::Trn2, &[(0x54, sample), (0x58, 0x0013_2711)]);
    assert_eq!(two, [Some((5000, 0x12)), None], "10001 is no share");
    let full = power(Product::Trn3, &[(0x54, 0x0001_2710), (0x58, 0xdead_beef)]);
    assert_eq!(full, [Some((10_000, 1)), None]);
    for version in [0, 2, 0xdead_beef] {
        let none = power(Product::Trn2, &[(0x00, version), (0x54, sample)]);
        assert_eq!(none, [None, None], "version {version:#x}");
    }
    let settled = Host::one(Product::Trn2).fault(0, "revision=0xf0").settle();
    assert_eq!(settled.only_device().health().unwrap().power, [None, None]);
}

#[test]
fn server_rack_partition_and_reservation() {
    let of = |words: &[(u64, u32)]| poked(Product::Trn3, words).only_device().identity().unwrap();
    let identity = of(&[(0x70, 0x8005_8003), (0x30, 0x8004_0010), (0x80, 1), (0x84, 2)]);
    assert_eq!((identity.server, identity.rack), (Some(3), Some(5)));
    assert_eq!((identity.instance_size, identity.partition_size), (Some(16), Some(4)));
    assert_eq!((identity.reservation, identity.api_version), (Some(0x1_0000_0002), Some(7)));
    let identity = of(&[(0x70, 0x0005_0003), (0x30, 0x0004_0000)]);
    assert_eq!((identity.server, identity.rack, identity.partition_size), (None, None, None));
    assert_eq!((identity.instance_size, identity.reservation), (None, None));
    let unset = 0xdead_beef;
    let words = [0x00, 0x30, 0x38, 0x3c, 0x70, 0x80, 0x84].map(|offset| (offset, unset));
    assert_eq!(of(&words), axon::Identity::default());
}

#[test]
fn neighbours_of_every_size_of_instance() {
    let list = |settled: &Settled, index| -> Vec<u32> {
        settled.device(index).neighbours().iter().map(|n| n.number()).collect()
    };
    let settled = Host::many(Product::Trn1, 16).settle();
    assert_eq!(list(&settled, 0), [12, 3, 4, 1]);
    assert_eq!(list(&settled, 10), [6, 9, 14, 11]);
    for product in [Product::Trn2, Product::Trn3] {
        let settled = Host::many(product, 16).settle();
        assert_eq!(list(&settled, 0), [12, 1, 3, 4], "{product:?}");
        assert_eq!(list(&settled, 11), [10, 7, 15, 8], "{product:?}");
        assert_eq!(settled.driver.topology().devices().count(), 16);
    }
    let settled = Host::many(Product::Trn1, 32).settle();
    assert_eq!(list(&settled, 16), [28, 19, 20, 17]);
    let settled = Host::many(Product::Inf2, 12).settle();
    assert_eq!((list(&settled, 0), list(&settled, 11)), (vec![11, 1], vec![10, 0]));
    let settled = Host::many(Product::Inf2, 6).settle();
    assert_eq!((list(&settled, 0), list(&settled, 3)), (vec![1], vec![2, 4]));
    for (product, count) in
        [(Product::Trn1, 1), (Product::Trn1, 8), (Product::Inf2, 1), (Product::Inf2, 2)]
    {
        let settled = Host::many(product, count).settle();
        assert!(settled.driver.topology().is_empty(), "{product:?} {count}");
    }
}

#[test]
fn dev_d12_st_d48_only_published_devices_are_counted() {
    let settled = Host::many(Product::Inf2, 7).fault(6, "bad-device-id").settle();
    let neighbours = settled.device(5).neighbours();
    assert_eq!(neighbours.iter().map(|n| n.number()).collect::<Vec<_>>(), [4]);
    // A device whose first reset failed is published, and is somebody's neighbour.
    let settled = Host::many(Product::Inf2, 6).fault(5, "reset-stuck").settle();
    assert_eq!(settled.device(4).neighbours().len(), 2);
}

#[test]
fn dev_e19_dev_e18_the_place_of_a_device_is_free_once_it_has_left() {
    use crate::unbind::Bound;
    let host = with_routing_ids(Product::Trn2, &[4, 4, 20]);
    let machine = host.machine();
    let table = axon_neuron::DeviceTable::new();
    machine
        .run(async {
            let first = Bound::bind(&machine, 0, &host.config, &table).await.unwrap();
            assert_eq!(first.device.index().number(), 12);
            for other in [1, 2] {
                let refused = Bound::bind(&machine, other, &host.config, &table).await;
                let error = refused.err().unwrap();
                assert_eq!(error.errno(), Errno::ENODEV);
                assert!(error.to_string().contains("00:01.0"), "{error}");
            }
            let claimed = Bound::bind(&machine, 0, &host.config, &table).await.err().unwrap();
            assert_eq!(claimed.errno(), Errno::EBUSY);
            first.unbind(&machine).await;
            let second = Bound::bind(&machine, 2, &host.config, &table).await.unwrap();
            assert_eq!(second.device.settled().await, DeviceState::Ready);
            second.unbind(&machine).await;
            let again = Bound::bind(&machine, 0, &host.config, &table).await.unwrap();
            assert_eq!(again.device.settled().await, DeviceState::Ready);
        })
        .unwrap();
    machine.shut_down();
    assert_eq!(machine.stray_accesses(), 0);
    assert_eq!(misc_ram(Product::Trn2), 0x06c8_4000);
}
