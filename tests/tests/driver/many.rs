//! Many devices of one host: side by side, nobody waits for another, nobody spoils another.

use std::time::Duration;

use axon_model::{FunctionConfig, Product};
use axon_ports::reset::DeviceState;

use crate::host::{Host, Settled, misc_ram};
use axon_tests::bench::PRODUCTS;

/// From the first trigger of a reset to the last device that is settled.
fn span(settled: &Settled, product: Product, count: usize) -> Duration {
    let trigger = misc_ram(product) + 0x800;
    let first = (0..count).flat_map(|position| settled.report(position).register_trace);
    let first = first.filter(|record| record.offset == trigger).map(|record| record.at_ns).min();
    Duration::from_nanos(settled.at.as_nanos() - first.expect("a trigger"))
}

#[test]
fn sixteen_devices_take_as_long_as_one() {
    for (product, seed) in PRODUCTS.into_iter().zip(0..) {
        let one = Host::one(product).trace_registers().settle();
        let one = span(&one, product, 1);
        let settled = Host { seed, ..Host::many(product, 16) }.trace_registers().settle();
        assert_eq!(settled.ready(), (0..16).collect::<Vec<_>>());
        let all = span(&settled, product, 16);
        assert!(all * 2 <= one * 3, "{product:?}: {all:?}, one takes {one:?}");
    }
}

#[test]
fn resets_of_all_devices_run_at_the_same_time() {
    let mut host = Host::many(Product::Trn1, 16).trace_registers();
    host.functions.iter_mut().for_each(|function| function.reset_ns = 1_000_000_000);
    let settled = host.settle();
    let span = span(&settled, Product::Trn1, 16);
    assert!(span < Duration::from_millis(1150), "{span:?}");
}

#[test]
fn a_late_device_takes_its_own_time_only() {
    let host = Host::many(Product::Trn1, 16).fault(5, "fw-late=3s").fault(9, "fw-late=2s");
    let settled = host.settle();
    assert_eq!(settled.ready().len(), 16);
    assert!((3_000..4_200).contains(&settled.millis()), "{} ms", settled.millis());
    for device in settled.driver.devices() {
        let expected = match device.position() {
            5 => 3_000..4_200,
            9 => 2_000..3_200,
            _ => 20..40,
        };
        let took = device.bringup().as_millis();
        assert!(expected.contains(&took), "{}: {took} ms", device.index());
    }
}

/// One of the devices fails in this way: what it says, and until when the host is settled.
const FAILURES: [(&str, &str, u128); 8] = [
    ("bad-device-id", "D4", 100),
    ("bar0-size", "D6", 100),
    ("bar-unassigned", "D6", 100),
    ("all-ones", "D9", 100),
    ("dead-reads", "D9", 61_100),
    ("reset-stuck", "ready", 1_300),
    ("never-ack", "accept", 120_300),
    ("all-ones after=6000", "gone", 500),
];

#[test]
fn a_device_that_fails_does_not_hold_back_or_dirty_the_others() {
    let clean = Host::many(Product::Trn1, 4).settle();
    for ((fault, words, limit), seed) in FAILURES.into_iter().zip(0..) {
        let host = Host { seed, ..Host::many(Product::Trn1, 4) }.fault(2, fault);
        let settled = host.settle();
        assert_eq!(settled.ready(), [0, 1, 3], "{fault}");
        assert!(settled.millis() <= limit, "{fault}: {} ms", settled.millis());
        let text = match settled.driver.refusals().first() {
            Some(refusal) => refusal.error.to_string(),
            None => {
                let device = settled.device(2);
                assert_eq!(device.state(), DeviceState::Invalid);
                device.failure().expect("a reason").to_string()
            }
        };
        assert!(text.contains(words), "{fault}: {text}");
        for position in [0, 1, 3] {
            let (with, without) = (settled.report(position), clean.report(position));
            assert_eq!(with.register_writes, without.register_writes, "{fault}");
            assert_eq!(with.register_reads, without.register_reads, "{fault}");
            assert_eq!(with.violations, []);
            let device = settled.device(position as u32);
            assert!(device.bringup() < Duration::from_millis(40), "{fault}");
        }
        settled.check_copies(&settled.device(3));
    }
}

#[test]
fn st_e03_st_d10_the_later_of_two_with_one_number_is_refused() {
    for seed in 0..4 {
        let host = Host { seed, ..Host::many(Product::Trn1, 4) };
        let settled = host.fault(2, "dup-routing-id").settle();
        // Who comes first is up to the order of tasks; the other one is unharmed either way.
        assert_eq!(settled.ready(), [0, 1, 3]);
        let refusal = settled.driver.refusals().remove(0);
        let text = refusal.error.to_string();
        assert!(text.contains("D10") && text.contains("rid0") && text.contains("nd0"), "{text}");
        let holder = settled.device(0).bdf().to_string();
        assert!(text.contains(&holder) && refusal.bdf.to_string() != holder, "{text}");
        settled.check_copies(&settled.device(0));
    }
}

#[test]
fn sixty_four_devices_of_one_host() {
    for product in [Product::Trn1, Product::Inf2] {
        let settled = Host::many(product, 64).settle();
        assert_eq!(settled.ready(), (0..64).collect::<Vec<_>>());
        assert!(settled.millis() < 40);
        settled.check_copies(&settled.device(63));
    }
}

#[test]
fn dev_d13_sixty_four_trainium2_have_sixteen_indices() {
    let settled = Host::many(Product::Trn2, 64).settle();
    assert_eq!(settled.ready(), (0..16).collect::<Vec<_>>());
    let refusals = settled.driver.refusals();
    assert_eq!(refusals.len(), 48);
    assert!(refusals.iter().all(|refusal| refusal.error.to_string().contains("D10")));
}

#[test]
fn all_products_fill_one_host() {
    // V3 and V4 have indices below 16 whatever their routing id; V2 takes the rest.
    let later = (0..16).map(|index| {
        let products = [Product::Trn2, Product::Trn3, Product::Trn3Second];
        FunctionConfig::new(products[index as usize % 3], index)
    });
    let v2 = (16..64).map(|index| {
        let products = [Product::Trn1, Product::Inf2];
        FunctionConfig::new(products[index as usize % 2], index)
    });
    // Bus order is another one than that of the indices.
    let mut functions: Vec<_> = later.chain(v2).collect();
    functions.sort_by_key(|function| function.index * 37 % 64);
    let settled = Host::of(functions).settle();
    assert_eq!(settled.ready(), (0..64).collect::<Vec<_>>());
    for index in [0, 15, 16, 63] {
        settled.check_copies(&settled.device(index));
    }
}
