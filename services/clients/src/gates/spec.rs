//! The two tables of the specification, read from its text: the oracle of the tests.

extern crate std;

use std::vec::Vec;

use axon_platform::Errno;

use super::{COMMANDS, Command, Gate, Grant, Lane, LinuxGate, Ownership};

const STATE: &str = include_str!("../../../../docs/spec/05-state.md");
const API: &str = include_str!("../../../../docs/spec/08-api.md");

/// Lines of the table in section `heading`, split into cells.
fn table(chapter: &'static str, heading: &str) -> Vec<Vec<&'static str>> {
    let body = chapter.split_once(heading).unwrap().1;
    let body = body.split("\n#").next().unwrap();
    body.lines()
        .filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit())
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// One command of the table of gates; a line with several numbers gives several.
pub(super) struct GateRow {
    pub(super) text: &'static str,
    number: u8,
    ours: &'static str,
    pub(super) hardware: bool,
}

pub(super) fn gate_rows() -> Vec<GateRow> {
    let mut rows = Vec::new();
    for cells in table(STATE, "### 8.4 ") {
        for number in numbers(cells[0]) {
            let hardware = cells[4] == "H";
            rows.push(GateRow { text: cells[1], number, ours: cells[3], hardware });
        }
    }
    rows
}

/// `41, 42, 44` or `81–84`.
fn numbers(cell: &str) -> Vec<u8> {
    let number = |text: &str| text.trim().parse::<u8>().unwrap();
    match cell.split_once('–') {
        Some((first, last)) => (number(first)..=number(last)).collect(),
        None => cell.split(',').map(number).collect(),
    }
}

impl GateRow {
    /// The command with the number and, where two share it, the name.
    pub(super) fn command(&self) -> Option<Command> {
        let mut found = COMMANDS.iter().copied().filter(|c| c.number() == self.number);
        let first = found.next()?;
        match found.next() {
            Some(second) if self.text.contains(second.name()) => Some(second),
            _ => Some(first),
        }
    }

    pub(super) fn gate(&self) -> Gate {
        match self.ours.split([' ', ',']).next() {
            Some("I") => Gate::Either,
            Some("N") => Gate::Normal,
            Some("A") => Gate::Attached,
            Some("same") => Gate::EitherAttachedIfNormal,
            Some("–") => Gate::Absent,
            other => panic!("gate {other:?} of {}", self.text),
        }
    }

    pub(super) fn ownership(&self) -> Ownership {
        let words: Vec<&str> = self.ours.split([' ', ',', '/']).collect();
        if self.ours.contains("o for writes") {
            Ownership::Written
        } else if self.ours.contains("o for 126") {
            if self.number == 126 { Ownership::Named } else { Ownership::Nothing }
        } else if words.contains(&"o") || words.contains(&"own") {
            Ownership::Named
        } else {
            Ownership::Nothing
        }
    }

    pub(super) fn core_right(&self) -> bool {
        self.ours.split([' ', '/']).any(|word| word == "c")
    }

    pub(super) fn grant(&self) -> Option<Grant> {
        self.ours.contains("PodControl").then_some(Grant::PodControl)
    }

    /// What a caller with every grant sees, by the words of 05 §8.4 and §8.1.
    pub(super) fn expected(&self, lane: Lane, attached: bool) -> Option<Errno> {
        let letter = self.ours.chars().next().unwrap();
        match (letter, lane) {
            ('–', _) | ('N' | 'A', Lane::Info) => Some(Errno::EINVAL),
            ('A' | 's', Lane::Normal) if !attached => Some(Errno::EACCES),
            _ => None,
        }
    }
}

/// One encoding of the catalogue.
pub(super) struct FormRow {
    pub(super) number: u8,
    pub(super) name: &'static str,
    pub(super) word: u32,
    pub(super) size: u32,
    pub(super) record_bytes: u16,
    pub(super) linux: LinuxGate,
}

pub(super) fn form_rows() -> Vec<FormRow> {
    let row = |cells: Vec<&'static str>| FormRow {
        number: cells[0].parse().unwrap(),
        name: cells[1],
        word: u32::from_str_radix(cells[2].trim_start_matches("0x"), 16).unwrap(),
        size: cells[3].split(' ').next_back().unwrap().parse().unwrap(),
        record_bytes: record_bytes(cells[4]),
        linux: match cells[6] {
            "N" | "N (slips A)" => LinuxGate::Normal,
            "A" => LinuxGate::Attached,
            "FA" => LinuxGate::Either,
            "FA; A on a normal descriptor" => LinuxGate::EitherAttachedIfNormal,
            other => panic!("gate {other}"),
        },
    };
    table(API, "## 8.4 ").into_iter().map(row).collect()
}

/// `80 B: …`, `24 B, unread`, `ignored (nominal 4 B: …)`, `no argument`.
fn record_bytes(cell: &str) -> u16 {
    let Some((before, _)) = cell.split_once(" B") else { return 0 };
    before.split([' ', '(']).next_back().unwrap().parse().unwrap()
}
