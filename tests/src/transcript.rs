//! Console sessions kept as files: each command, and under it the lines it answered. An answer is
//! a comment to the console, so that the file is also a script for any other machine.
//!
//! ```text
//! # machine: trn1
//! open 0
//! #> ok client=1
//! ```

use std::fmt::Write;
use std::path::PathBuf;

use axon::Context;
use axon_console::answer::Style;
use axon_console::engine::{Engine, Sink};
use axon_console::session::Session;
use axon_hosted::Machine;

use crate::machine::on;

const MACHINE: &str = "# machine: ";
const ANSWER: &str = "#> ";

/// What a session printed.
#[derive(Default)]
struct Page {
    text: String,
    complaints: Vec<String>,
}

impl Sink for Page {
    fn answer(&mut self, line: &str) {
        let _ = writeln!(self.text, "{ANSWER}{line}");
    }

    fn complain(&mut self, line: &str) {
        self.complaints.push(line.into());
    }
}

/// Runs the commands of `scripts/NAME.console` and compares every answer with the file.
///
/// # Panics
/// Where an answer differs, or a command fails that no `expect` asked to fail.
pub fn check(name: &str) {
    let (path, kept) = read(name);
    let description = described(&kept);
    let (text, complaints) = on(description, async |cx| play(cx, &kept).await);
    if std::env::var_os("AXON_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    } else if let Some(line) = first_difference(&kept, &text) {
        panic!("{name} differs at line {line}; it is now:\n{text}");
    }
    assert!(complaints.is_empty(), "{name}: {complaints:#?}\n{text}");
}

/// Runs the commands of `scripts/NAME.console` on `product` in place of the device it was kept
/// with. Addresses and figures are others there; every command does what the script expects of it.
///
/// # Panics
/// Where a command fails that no `expect` asked to fail, or an `expect` is not met.
pub fn replay(name: &str, product: &str) {
    let (_, kept) = read(name);
    let described = described(&kept);
    let (device, rest) = described.split_once(' ').unwrap_or((described, ""));
    let devices = vec![product; device.split(',').count()].join(",");
    let (text, complaints) = on(&format!("{devices} {rest}"), async |cx| play(cx, &kept).await);
    assert!(complaints.is_empty(), "{name} on {product}: {complaints:#?}\n{text}");
}

/// Runs a script that is not kept in a file; answers what was printed and what went wrong.
pub fn run(description: &str, script: &str) -> (String, Vec<String>) {
    on(description, async |cx| play(cx, script).await)
}

async fn play(cx: Context<Machine>, script: &str) -> (String, Vec<String>) {
    cx.driver.settled().await;
    let mut engine = Engine::new(Session::new(cx.platform, cx.driver), Style::Words, true);
    let mut page = Page::default();
    for line in script.lines().filter(|line| !line.starts_with(ANSWER)) {
        let _ = writeln!(page.text, "{line}");
        if engine.line(line, &mut page).await {
            break;
        }
    }
    engine.end(&mut page);
    (page.text, page.complaints)
}

fn read(name: &str) -> (PathBuf, String) {
    let path = path(name);
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (path, kept)
}

fn described(kept: &str) -> &str {
    kept.lines().find_map(|line| line.strip_prefix(MACHINE)).expect("a machine is described")
}

fn first_difference(kept: &str, now: &str) -> Option<usize> {
    let lines = kept.lines().count().max(now.lines().count());
    (0..lines).find(|at| kept.lines().nth(*at) != now.lines().nth(*at)).map(|at| at + 1)
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts").join(format!("{name}.console"))
}
