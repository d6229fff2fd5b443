//! A device that lies: every word of MiscRAM with every value that means something, every place at
//! which a function can vanish. Whatever it is, bring-up ends in bounded time with READY, with a
//! typed refusal, or with INVALID and a reason.

use std::time::Duration;

use axon_model::Product;
use axon_platform::Errno;
use axon_ports::reset::DeviceState;

use crate::host::{Host, Settled};
use axon_tests::bench::PRODUCTS;

/// No word of firmware may hold bring-up up for longer: a deadline of 60 s for the routing id, one
/// of 120 or 480 s for a reset, 1 s for its end.
const LONGEST: u128 = 60_000 + 480_000 + 3_000;

/// What became of the only function.
fn outcome(settled: &Settled, what: &str) -> Option<Errno> {
    let millis = settled.millis();
    assert!(millis <= LONGEST, "{what}: {millis} ms");
    match settled.driver.refusals().first() {
        Some(refusal) => {
            assert!(settled.driver.devices().is_empty(), "{what}");
            assert!(refusal.error.to_string().contains("bring-up failed at D"), "{what}");
            Some(refusal.error.errno())
        }
        None => {
            let device = settled.only_device();
            match device.state() {
                DeviceState::Ready => {
                    assert_eq!(device.failure().map(|e| e.errno()), None, "{what}");
                    // What cannot be told is absent; nothing fails and nothing waits.
                    device.identity().unwrap_or_else(|error| panic!("{what}: {error}"));
                    device.health().unwrap_or_else(|error| panic!("{what}: {error}"));
                    None
                }
                state => {
                    assert_eq!(state, DeviceState::Invalid, "{what}");
                    let failure = device.failure().unwrap_or_else(|| panic!("{what}: no reason"));
                    Some(failure.errno())
                }
            }
        }
    }
}

const VALUES: [u32; 3] = [0, 0xdead_beef, u32::MAX];

/// Words that bring-up or a question to firmware reads, then the rest in pieces.
fn words() -> Vec<Vec<u64>> {
    let named = [
        0x000, 0x024, 0x030, 0x038, 0x03c, 0x040, 0x044, 0x048, 0x04c, 0x050, 0x054, 0x058, 0x064,
        0x070, 0x080, 0x084, 0x0f0, 0x100, 0x180, 0x190, 0x1d4, 0x1d8, 0x1ec, 0x1f0, 0x1f4, 0x1f8,
        0x1fc, 0x800, 0x808,
    ];
    let mut pieces: Vec<Vec<u64>> = named.iter().map(|&offset| vec![offset]).collect();
    let rest: Vec<u64> = (0..0x1000).step_by(4).filter(|offset| !named.contains(offset)).collect();
    pieces.extend(rest.chunks(256).map(<[u64]>::to_vec));
    pieces
}

/// What a word that always reads `value` leads to; `None` is READY.
fn expected(offset: u64, value: u32) -> Option<Errno> {
    match (offset, value) {
        // The number of the device: 0 is a number, the others are none.
        (0x024, 0xdead_beef | u32::MAX) => Some(Errno::ENODEV),
        // A reset that is never accepted.
        (0x1ec, 0xdead_beef | u32::MAX) => Some(Errno::ETIMEDOUT),
        // Firmware that is never ready again: bit 3 is set in both.
        (0x808, 0xdead_beef | u32::MAX) => Some(Errno::ETIMEDOUT),
        _ => None,
    }
}

/// Every word on every product of one register map: on one after the other, on all of them with
/// `AXON_LONG=1`.
fn check_words(products: &[Product]) {
    let all = std::env::var_os("AXON_LONG").is_some();
    let cases = words().into_iter().enumerate().flat_map(|(turn, piece)| {
        let chosen: Vec<Product> = match all {
            true => products.to_vec(),
            false => vec![products[turn % products.len()]],
        };
        chosen.into_iter().map(move |product| (product, piece.clone()))
    });
    for (product, piece) in cases {
        for value in VALUES {
            // What nobody reads is looked at once, and in pieces.
            let verbs = if piece.len() == 1 { &["poke", "stick"][..] } else { &["stick"] };
            for verb in verbs {
                let what = format!("{product:?}: {verb} {:#x}.. {value:#x}", piece[0]);
                let control = piece.iter().map(|at| (0, format!("{verb} {at:#x} {value:#x}")));
                let host = Host { control: control.collect(), ..Host::one(product) };
                let found = outcome(&host.settle(), &what);
                // A poked word is firmware's again with the first reset.
                let lasting = *verb == "stick" || piece[0] == 0x024;
                let wanted = if lasting { expected(piece[0], value) } else { None };
                assert_eq!(found, wanted, "{what}");
            }
        }
    }
}

#[test]
fn v2_and_any_word_of_firmware() {
    check_words(&PRODUCTS[..2]);
}

#[test]
fn v3_and_v4_and_any_word_of_firmware() {
    check_words(&PRODUCTS[2..]);
}

/// Fault, errno of what becomes of the device (`None` is READY), latest time in ms.
const NAMED: [(&str, Option<Errno>, u128); 16] = [
    ("bad-crc", None, 120_000),
    ("mailbox-silent", None, 120_000),
    ("mailbox-fail", None, 120_000),
    ("mailbox-unknown", None, 120_000),
    ("mailbox-oversize", None, 120_000),
    ("reset-stuck", Some(Errno::ETIMEDOUT), 1_300),
    ("reset-stuck=550ms", None, 1_300),
    ("fw-late=3s", None, 4_300),
    ("fw-late=90s", Some(Errno::ENODEV), 61_100),
    ("dead-reads", Some(Errno::ENODEV), 61_100),
    ("dup-routing-id", None, 40),
    ("bar4-absent", None, 40),
    ("all-ones", Some(Errno::ENODEV), 40),
    ("bad-device-id", Some(Errno::ENODEV), 1),
    ("bar-unassigned", Some(Errno::ENODEV), 1),
    ("bar0-size", Some(Errno::ENODEV), 1),
];

#[test]
fn every_named_fault_of_every_product() {
    for product in [Product::Trn1, Product::Inf2, Product::Trn2, Product::Trn3] {
        for (fault, wanted, latest) in NAMED {
            let settled = Host::one(product).fault(0, fault).settle();
            let what = format!("{product:?} {fault}");
            assert_eq!(outcome(&settled, &what), wanted, "{what}");
            assert!(settled.millis() <= latest, "{what}: {} ms", settled.millis());
            if wanted.is_none() {
                settled.check_copies(&settled.only_device());
            }
        }
    }
}

#[test]
fn dead_reads_may_begin_at_any_read() {
    for product in PRODUCTS {
        let reads = Host::one(product).settle().report(0).register_reads;
        for after in (0..reads.min(20)).chain([reads, reads + 5]) {
            let settled =
                Host::one(product).fault(0, &format!("dead-reads after={after}")).settle();
            let what = format!("{product:?} dead reads after {after}");
            if let Some(errno) = outcome(&settled, &what) {
                assert!([Errno::ENODEV, Errno::ETIMEDOUT].contains(&errno), "{what}: {errno:?}");
            }
        }
    }
}

#[test]
fn dev_e45_a_function_may_vanish_at_any_access() {
    let steps = [997, 1_009, 1_999, 2_003, 2_999];
    for (product, step) in PRODUCTS.into_iter().zip(steps) {
        let report = Host::one(product).settle().report(0);
        let accesses = report.register_reads + report.register_writes;
        let early = 0..12;
        for after in early.chain((12..accesses).step_by(step)).chain([accesses - 1]) {
            let settled = Host::one(product).fault(0, &format!("all-ones after={after}")).settle();
            let what = format!("{product:?} gone after {after} of {accesses}");
            let errno = outcome(&settled, &what);
            assert!(settled.millis() < 1_000, "{what}: {} ms", settled.millis());
            match settled.driver.refusals().first() {
                Some(_) => assert_eq!(errno, Some(Errno::ENODEV), "{what}"),
                None => assert_eq!(errno, Some(Errno::EIO), "{what}"),
            }
            // Nobody waits for a device that is gone, and nobody asks it anything.
            let touched = settled.report(0).register_reads;
            settled.sleep(Duration::from_secs(10));
            assert_eq!(settled.report(0).register_reads, touched, "{what}");
        }
    }
}
