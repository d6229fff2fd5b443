//! No line takes the console down: random command lines on a machine with a device.

use axon_tests::transcript;
use proptest::prelude::*;

/// Words that commands are made of, and some that they are not.
fn word() -> impl Strategy<Value = String> {
    const NAMES: &[&str] = &[
        "devices", "info", "bars", "topology", "read32", "open", "close", "use", "clients",
        "alloc", "free", "retain", "lookup", "search", "within", "mem", "chunks", "handles",
        "fill", "pattern", "write", "read", "crc", "copy", "memset", "wait", "reset", "state",
        "counters", "fault", "expect", "help", "queue", "nc", "pod", "engine", "h2t", "zcopy",
    ];
    const ARGUMENTS: &[&str] = &[
        "0",
        "1",
        "2",
        "3",
        "4K",
        "64K",
        "65537",
        "0x1000",
        "0xffffffffffffffff",
        "-1",
        "device",
        "host",
        "wait",
        "ok",
        "EINVAL",
        "$h",
        "$d",
        "=",
        "off=1",
        "len=0",
        "len=64K",
        "soff=3",
        "doff=4096",
        "async=1",
        "nc=1",
        "nc=0xff",
        "life=all",
        "align=0x200000",
        "channel=1",
        "type=11",
        "bar0+0",
        "bar0+0x30fa0004",
        "00:01.0",
        "deadbeef",
        "lane=info",
        "clear",
        "slow",
        "init",
        "release",
        "start",
        "tx",
        "rx",
        "tx=1",
        "rx=2",
        "hw",
        "set",
        "normal",
        "in",
        "out",
        "queue=2",
        "128",
        "4294967295",
    ];
    prop_oneof![
        4 => proptest::sample::select(NAMES).prop_map(String::from),
        8 => proptest::sample::select(ARGUMENTS).prop_map(String::from),
        1 => "\\PC{0,8}",
    ]
}

fn line() -> impl Strategy<Value = String> {
    const COMMON: &[&str] = &[
        "open 0",
        "$h = alloc host 64K",
        "$d = alloc device 64K",
        "copy $h $d 4096 async=1",
        "copy $d $h 4K doff=1",
        "memset $d 7 100",
        "wait 1",
        "close 1",
        "fill $h 1",
        "free $d",
    ];
    prop_oneof![
        2 => proptest::sample::select(COMMON).prop_map(String::from),
        3 => proptest::collection::vec(word(), 0..7).prop_map(|words| words.join(" ")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_lines_never_take_the_console_down(
        lines in proptest::collection::vec(line(), 1..40),
        product in proptest::sample::select(&["trn1", "trn2"][..]),
    ) {
        let lines: Vec<String> =
            lines.iter().map(|line| line.replace(['\n', '\r'], " ")).collect();
        let script = lines.join("\n") + "\ndevices\n";
        let (text, _) = transcript::run(product, &script);
        let last = text.lines().next_back().unwrap_or_default();
        prop_assert!(last.starts_with("#> ok count="), "{text}");
    }
}
