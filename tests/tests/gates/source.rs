//! The table of calls against the methods that there are, and against the specification's own list
//! of calls (08 §8.11).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use axon::calls::CALLS;
use axon::gates::COMMANDS;

/// Every source file of the interface, as it is.
fn sources() -> Vec<String> {
    let mut folders = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../api/src"))];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => sources.push(fs::read_to_string(path).unwrap()),
            }
        }
    }
    sources
}

/// Types whose calls may be a client's.
const TYPES: &[&str] = &[
    "AsyncCopies",
    "BarView",
    "Batch",
    "Buffer",
    "Client",
    "Completions",
    "CoreCommands",
    "DeviceBuffer",
    "DmaQueue",
    "Event",
    "Fill",
    "H2tQueues",
    "HostBuffer",
    "InfoClient",
    "NeuronCore",
    "NotificationQueue",
    "QueueCommands",
    "RingMem",
    "SegmentCopy",
    "Semaphore",
    "Span",
    "Transfer",
    "View",
    "ZeroCopyQueue",
];

/// Methods that stand for no command: they make a handle on something, say what the caller knows,
/// carry on what was admitted, or give something back.
const NONE: &[&str] = &[
    "AsyncCopies::new",
    "BarView::address",
    "BarView::client",
    "BarView::is_open",
    "BarView::is_writable",
    "BarView::peer_address",
    "BarView::size",
    "Batch::clear",
    "Batch::is_empty",
    "Batch::len",
    "Buffer::device_addr",
    "Buffer::facts",
    "Buffer::handle",
    "Buffer::into_handle",
    "Buffer::size",
    "Client::async_copies",
    "Client::check_grant",
    "Client::close",
    "Client::core",
    "Client::core_commands",
    "Client::device",
    "Client::id",
    "Client::in_flight_bytes",
    "Client::queues",
    "Client::request",
    "DmaQueue::engine",
    "DmaQueue::queue",
    "Fill::start",
    "H2tQueues::claims",
    "H2tQueues::copy_queue",
    "H2tQueues::core",
    "H2tQueues::engine",
    "InfoClient::admit",
    "InfoClient::device",
    "InfoClient::id",
    "NeuronCore::check_claim",
    "NeuronCore::event",
    "NeuronCore::id",
    "NeuronCore::semaphore",
    "RingMem::count",
    "RingMem::handle",
    "SegmentCopy::start",
    "Span::address",
    "Span::is_host",
    "Span::is_writable",
    "Span::len",
    "Transfer::start",
    "Transfer::try_start",
    "View::check_writable",
    "View::device",
    "View::facts",
];

/// `Type::method` of every public method of [`TYPES`].
fn methods() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in sources() {
        let mut owner = None;
        for line in source.lines() {
            if line.starts_with("impl") {
                let name = TYPES.iter().find(|name| {
                    let rest = line.split_once('>').map_or("", |(_, rest)| rest).trim_start();
                    let rest = line.strip_prefix("impl ").unwrap_or(rest);
                    rest.strip_prefix(**name).is_some_and(|next| next.starts_with(['<', ' ']))
                        && !line.contains(" for ")
                });
                owner = name.copied();
            } else if line == "}" {
                owner = None;
            }
            let words = line.strip_prefix("    pub ").unwrap_or("");
            let words = ["async ", "unsafe ", "const "]
                .iter()
                .fold(words, |words, word| words.strip_prefix(word).unwrap_or(words));
            if let (Some(owner), Some(name)) = (owner, words.strip_prefix("fn ")) {
                let end = name.find(['(', '<']).unwrap();
                found.insert(format!("{owner}::{}", &name[..end]));
            }
        }
    }
    found
}

#[test]
fn every_method_is_in_one_row_of_the_table_or_is_no_command() {
    let methods = methods();
    assert!(methods.len() > 80, "{methods:?}");
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for call in CALLS {
        call.methods().iter().for_each(|method| *rows.entry(method).or_default() += 1);
    }
    for (method, count) in &rows {
        assert_eq!(*count, 1, "{method} is in {count} rows of api/src/calls.rs");
        assert!(!NONE.contains(method), "{method} is a command after all");
    }
    let known = |method: &String| rows.contains_key(&**method) || NONE.contains(&&**method);
    let unknown: Vec<_> = methods.iter().filter(|method| !known(method)).collect();
    assert!(unknown.is_empty(), "in no row of api/src/calls.rs: {unknown:?}");
    let gone: Vec<_> = rows
        .keys()
        .filter(|name| name.split_once("::").is_some_and(|(owner, _)| TYPES.contains(&owner)))
        .filter(|name| !methods.contains(**name))
        .collect();
    assert!(gone.is_empty(), "in a row, but not in the source: {gone:?}");
}

/// Numbers of the specification's list that name a call, and have none here under that number.
const UNDER_ANOTHER: &[(u8, &str)] = &[
    (3, "Device and Hal"),
    (25, "Buffer::device_addr"),
    (72, "the drop of a datastore, and Client::release_datastore"),
    (86, "the drop of a claim"),
    (93, "no runtime to be compatible with"),
    (100, "Device and Hal"),
    (101, "Device::bdf"),
    (102, "Alloc"),
    (104, "ResetTicket is a future"),
    (106, "Device::bdf"),
    (107, "Client::export, for who has a window"),
    (110, "Device and Hal"),
    (112, "Client::region"),
    (114, "Device::index"),
    (115, "Device::routing_id"),
    (117, "Driver::core_owner"),
    (118, "scrub"),
    (119, "scrub"),
    (120, "Hal"),
    (121, "Driver::pod"),
    (131, "Driver::placement"),
];

#[test]
fn every_command_of_the_specifications_list_has_a_call() {
    let api = include_str!("../../../docs/spec/08-api.md");
    let list = api.split_once("## 8.11 ").unwrap().1.split("\nCommands with no Rust call").next();
    let mut missing = Vec::new();
    for line in list.unwrap().lines().filter(|line| line.starts_with("| ndl_")) {
        let numbers = line.trim_matches('|').split('|').nth(1).unwrap();
        let numbers =
            numbers.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u8>().ok());
        for number in numbers {
            let called = CALLS.iter().any(|call| call.command().number() == number);
            let elsewhere = UNDER_ANOTHER.iter().any(|(other, _)| *other == number);
            if !called && !elsewhere && COMMANDS.iter().any(|command| command.number() == number) {
                missing.push((number, line));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
