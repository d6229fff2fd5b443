//! Measures the memory service of axon against other allocators, on the machine it runs on.
//!
//! `cargo xtask bench memory` runs it and makes table, chart and report of what it prints. Arguments:
//!
//! | first word | what it does |
//! |---|---|
//! | `compare` | the same work for axon's parts and for others; one JSON object |
//! | `handles` | of these rows those of the handle table, in a few seconds |
//! | `count LIVE HOLES PAGES ROUNDS` | scenarios whose instructions are counted from outside |

mod arenas;
mod compare;
mod count;
mod handles;
mod measure;
mod metadata;
mod service;
mod setup;
mod tlsf;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| words.get(at).and_then(|a| a.parse().ok()).unwrap_or(or);
    match words.first().map(String::as_str) {
        Some("compare") => {
            println!("{}", compare::all());
            ExitCode::SUCCESS
        }
        Some("handles") => {
            handles::rows(&compare::LOADS).iter().for_each(|row| println!("{}", row.json()));
            ExitCode::SUCCESS
        }
        Some("count") => {
            count::run(number(1, 0), number(2, 0), number(3, 1) as u64, number(4, 1000));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("what to do: compare, handles, or count LIVE HOLES PAGES ROUNDS");
            ExitCode::from(2)
        }
    }
}
