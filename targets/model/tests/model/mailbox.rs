//! Both mailboxes: specification 01 §6–7, §14.5–14.7 and rows DEV-E24 to E32, E48.

use axon_model::report::EventKind;
use axon_model::{FunctionConfig, Product, message_crc};

use crate::bench::Bench;

const REQUEST: u64 = 0x100_0000;
const RESPONSE: u64 = 0x101_0000;

/// Sends a legacy request and gives the answer, if one came.
fn legacy(bench: &mut Bench, sequence: u8, command: u8, payload: &[u8]) -> Option<(u8, Vec<u8>)> {
    let first = u32::from(sequence) | u32::from(command) << 8 | (8 + payload.len() as u32) << 16;
    let mut bytes = first.to_le_bytes().to_vec();
    bytes.extend(message_crc(first, payload).to_le_bytes());
    bytes.extend(payload);
    send(bench, &bytes);
    answer(bench, sequence)
}

fn send(bench: &mut Bench, bytes: &[u8]) {
    let misc = bench.misc();
    bench.poke(REQUEST, bytes);
    bench.poke(RESPONSE, &[0; 8]);
    let (request, response) = (bench.tagged(REQUEST), bench.tagged(RESPONSE));
    for (offset, value) in [
        (0x1f4, request as u32),
        (0x1f0, (request >> 32) as u32),
        (0x1fc, response as u32),
        (0x1f8, (response >> 32) as u32),
        (0x800, 1),
    ] {
        bench.write(misc + offset, value);
    }
}

fn answer(bench: &Bench, sequence: u8) -> Option<(u8, Vec<u8>)> {
    let head = bench.peek(RESPONSE, 4);
    let size = usize::from(u16::from_le_bytes([head[2], head[3]]));
    (head[0] == sequence).then(|| (head[1], bench.peek(RESPONSE + 4, size.saturating_sub(4))))
}

fn addresses(list: &[u64]) -> Vec<u8> {
    list.iter().flat_map(|address| address.to_le_bytes()).collect()
}

/// Sends a register-file request; gives header, CRC and whether TRIGGER cleared.
fn register_file(bench: &mut Bench, sequence: u8, command: u8, payload: &[u8]) -> (u32, u32, bool) {
    let misc = bench.misc();
    for (place, chunk) in payload.chunks(4).enumerate() {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        bench.write(misc + 0x100 + 4 * place as u64, u32::from_le_bytes(word));
    }
    let first = u32::from(sequence) | u32::from(command) << 8 | (8 + payload.len() as u32) << 16;
    for (offset, value) in [
        (0x1f0, first),
        (0x1f4, message_crc(first, payload)),
        (0x1f8, 0),
        (0x1fc, 0),
        (0x0f0, 1),
        (0x800, 1),
    ] {
        bench.write(misc + offset, value);
    }
    let done = bench.read(misc + 0x800) == 0;
    assert_eq!(bench.read(misc + 0x0f0), 0, "ACK is cleared by every trigger");
    (bench.read(misc + 0x1f0), bench.read(misc + 0x1f4), done)
}

#[test]
fn dev_e24_set_power_profile() {
    let mut bench = Bench::new(Product::Trn2);
    let profile = [0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(message_crc(0x0010_0302, &profile), 0x847a_a309);
    let got = register_file(&mut bench, 2, 3, &profile);
    assert_eq!(got, (0x0008_0002, message_crc(0x0008_0002, &[]), true));
    // GET_DATA type 1 gives it back.
    let (header, crc, done) = register_file(&mut bench, 3, 4, &[1, 0, 0, 0]);
    assert_eq!((header, done), (0x000c_0003, true));
    assert_eq!(bench.read(bench.misc() + 0x100), 1);
    assert_eq!(crc, message_crc(header, &[1, 0, 0, 0]));
}

#[test]
fn dev_e25_a_legacy_read_through_the_device_map() {
    let mut bench = Bench::new(Product::Trn2);
    let two = addresses(&[0x80_06c8_4000, 0x80_06c8_4024]);
    let (error, words) = legacy(&mut bench, 2, 1, &two).expect("an answer");
    assert_eq!((error, words), (0, [7u32.to_le_bytes(), 0u32.to_le_bytes()].concat()));
    assert_eq!(bench.peek(RESPONSE, 4), [2, 0, 12, 0]);
    // HBM, a semaphore, nowhere.
    bench.function.bar_write(4, 0x40, &[1, 2, 3, 4]);
    bench.write(0xd270_1400, 9);
    let list = addresses(&[0x40, 0x20_0270_1000, 0x9999_0000_0000]);
    let (error, words) = legacy(&mut bench, 3, 1, &list).expect("an answer");
    assert_eq!((error, words), (0, vec![1, 2, 3, 4, 9, 0, 0, 0, 0, 0, 0, 0]));
    let mut bench = Bench::new(Product::Trn1);
    let (_, words) = legacy(&mut bench, 2, 1, &addresses(&[0xfff_f0fa_0000])).expect("an answer");
    assert_eq!(words, [7, 0, 0, 0]);
    assert!(bench.report().violations.is_empty() && bench.report().unmodelled.is_empty());
}

#[test]
fn a_read_of_8190_words_is_answered_and_of_8191_refused() {
    let mut bench = Bench::new(Product::Trn1);
    let list = addresses(&vec![0xfff_f0fa_0000; 8190]);
    let (error, words) = legacy(&mut bench, 2, 1, &list).expect("an answer");
    assert_eq!((error, words.len()), (0, 8190 * 4));
    let (error, _) = legacy(&mut bench, 3, 1, &[0; 7]).expect("an answer");
    assert_eq!(error, 1);
}

#[test]
fn dev_e30_metric_posts_are_kept_and_compared_with_the_value_area() {
    let mut bench = Bench::new(Product::Trn1);
    bench.write(0x30fa_0100, u32::from_le_bytes(*b"blob"));
    bench.write(0x30fa_0104, u32::from(b's'));
    assert_eq!(legacy(&mut bench, 2, 2, b"blobs"), Some((0, vec![])));
    let report = bench.report();
    assert_eq!(
        report.posts.iter().map(|post| post.bytes.as_slice()).collect::<Vec<_>>(),
        [b"blobs"]
    );
    assert!(report.violations.is_empty());
    assert_eq!(legacy(&mut bench, 3, 2, b"other"), Some((0, vec![])));
    let kinds: Vec<EventKind> = bench.report().violations.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::PostMismatch]);
    assert_eq!(legacy(&mut bench, 4, 2, &[0; 129]).map(|answer| answer.0), Some(1));
}

#[test]
fn bad_checksums_fail_and_unknown_commands_are_unknown() {
    let mut bench = Bench::new(Product::Trn1);
    send(&mut bench, &[5, 1, 8, 0, 1, 2, 3, 4]);
    assert_eq!(answer(&bench, 5), Some((1, vec![])));
    send(&mut bench, &[6, 1, 3, 0, 1, 2, 3, 4]);
    assert_eq!(answer(&bench, 6), Some((1, vec![])));
    assert_eq!(legacy(&mut bench, 7, 9, &[]), Some((2, vec![])));
    let (header, _, done) = register_file(&mut bench, 8, 77, &[]);
    assert_eq!((header, done), (0x0008_0208, true));
    bench.write(0x30fa_01f0, 0x00ff_0309);
    bench.write(0x30fa_00f0, 1);
    bench.write(0x30fa_0800, 1);
    assert_eq!(bench.read(0x30fa_01f0), 0x0008_0109);
    let kinds: Vec<EventKind> = bench.report().violations.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::MailboxMalformed; 3]);
}

#[test]
fn a_legacy_request_needs_bus_mastering_and_memory() {
    let mut bench = Bench::new(Product::Trn1);
    bench.function.config_write(4, &[2, 0]);
    assert_eq!(legacy(&mut bench, 2, 1, &[]), None);
    bench.function.config_write(4, &[6, 0]);
    bench.write(0x30fa_01f0, 0x1fff);
    bench.write(0x30fa_0800, 1);
    assert_eq!(bench.report().mailbox_answers, 0);
    assert_eq!(legacy(&mut bench, 3, 1, &[]), Some((0, vec![])));
}

#[test]
fn dev_e32_dev_e48_the_two_protocols_alternate() {
    let mut bench = Bench::new(Product::Trn1);
    let profile = [0; 8];
    assert_eq!(register_file(&mut bench, 2, 3, &profile).0, 0x0008_0002);
    assert!(legacy(&mut bench, 3, 1, &[]).is_some());
    assert_eq!(register_file(&mut bench, 4, 3, &profile).0, 0x0008_0004);
    bench.control("fault mailbox-silent=1");
    assert!(!register_file(&mut bench, 5, 3, &profile).2);
    assert!(legacy(&mut bench, 6, 1, &[]).is_some());
}

#[test]
fn dev_e28_dev_e29_dev_e31_firmware_that_misbehaves() {
    let mut bench = Bench::new(Product::Trn2);
    bench.control("fault mailbox-fail=2");
    for sequence in [2, 3] {
        assert_eq!(register_file(&mut bench, sequence, 3, &[0; 8]).0 >> 8 & 0xff, 1);
    }
    assert_eq!(register_file(&mut bench, 4, 3, &[0; 8]).0, 0x0008_0004);
    bench.control("fault mailbox-unknown=1");
    assert_eq!(legacy(&mut bench, 5, 1, &[]), Some((2, vec![])));
    bench.control("fault mailbox-sequence");
    assert_eq!(register_file(&mut bench, 6, 3, &[0; 8]).0, 0x0008_0005);
    bench.control("fault mailbox-oversize");
    assert_eq!(register_file(&mut bench, 7, 3, &[0; 8]).0, 0xffff_0007);
    bench.control("fault bad-crc=1");
    let (header, crc, _) = register_file(&mut bench, 8, 3, &[0; 8]);
    assert_ne!(crc, message_crc(header, &[]));
    bench.control("fault mailbox-silent");
    assert_eq!(legacy(&mut bench, 9, 1, &[]), None);
}

#[test]
fn answers_may_be_late_and_a_reset_drops_them() {
    let mut config = FunctionConfig::new(Product::Trn1, 0);
    config.mailbox_delay_ns = 1000;
    let mut bench = Bench::with(config);
    assert_eq!(legacy(&mut bench, 2, 1, &[]), None);
    assert_eq!(bench.read(0x30fa_0800), 1);
    bench.pass(1000);
    assert_eq!(answer(&bench, 2), Some((0, vec![])));
    assert_eq!(bench.read(0x30fa_0800), 0);
    bench.control("fault mailbox-delay=1s");
    assert_eq!(legacy(&mut bench, 3, 1, &[]), None);
    bench.write(0x30fa_01ec, 1);
    bench.write(0x30fa_0800, 1);
    bench.pass(20_000_000);
    bench.pass(2_000_000_000);
    assert_eq!(answer(&bench, 3), None);
}
