//! The console sessions of `tests/scripts`, played once more in a VM.
//!
//! A session is a file of commands with the answers they gave in a Linux process under them, each
//! marked with `#>`. Addresses of host memory and times differ on another machine, so here a session
//! passes where every command does what the script expects of it.

use std::fs;
use std::path::{Path, PathBuf};

use axon_qemu::{Error, Product};

use crate::workspace;

/// Start of the line that describes the machine.
const MACHINE: &str = "# machine: ";

/// Start of the line that names the products on which a session is played.
const PLAYED_ON: &str = "# in a VM on: ";

/// Start of the lines that hold an answer.
const ANSWER: &str = "#> ";

/// Commands that trouble the model: the time they take counts, and in a VM time is the wall's.
const TIMED: [&str; 2] = ["fault", "post"];

/// Line of a session with such commands that bears any time.
const ANY_TIME: &str = "# bears any time";

/// One session that can be played in a VM.
pub struct Session {
    /// The file's name without its end.
    pub name: String,
    /// Options of `cargo xtask run` for its machine.
    pub options: Vec<String>,
    /// Its commands.
    pub script: String,
}

/// Every session that does not need virtual time, by name.
///
/// # Errors
/// Where a file cannot be read.
pub fn all() -> Result<Vec<Session>, Error> {
    let folder = workspace::root().join("tests/scripts");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(unreadable(&folder))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "console"))
        .collect();
    files.sort();
    let mut sessions = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(unreadable(&file))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some(script) = commands(&text) else { continue };
        for (suffix, text) in variants(&text) {
            let Some(options) = machine(&text) else { continue };
            let name = format!("{name}{suffix}");
            sessions.push(Session { name, options, script: script.clone() });
        }
    }
    Ok(sessions)
}

/// A session that names products is played on each, one that bears any time on every product, with
/// an end to its name.
fn variants(text: &str) -> Vec<(String, String)> {
    let named = text.lines().find_map(|line| line.strip_prefix(PLAYED_ON));
    let is_played = |product: &&Product| match named {
        Some(names) => names.split_whitespace().any(|name| name == product.name()),
        None => text.lines().any(|line| line == ANY_TIME),
    };
    let machine = text.lines().find_map(|line| line.strip_prefix(MACHINE));
    let first = machine.and_then(|machine| machine.split([' ', ',']).next()).unwrap_or_default();
    let from = format!("{MACHINE}{first}");
    let on = |product: &Product| {
        let text = text.replacen(&from, &format!("{MACHINE}{}", product.name()), 1);
        (format!(" on {product}"), text)
    };
    let played: Vec<_> = Product::ALL.iter().filter(is_played).map(on).collect();
    if played.is_empty() { vec![(String::new(), text.to_string())] } else { played }
}

/// Options for the machine a session describes; `None` where a VM cannot be that machine.
fn machine(text: &str) -> Option<Vec<String>> {
    let description = text.lines().find_map(|line| line.strip_prefix(MACHINE))?;
    let mut options = Vec::new();
    for word in description.split_whitespace() {
        match word.split_once('=') {
            None => options.extend(["--device".to_string(), word.to_string()]),
            Some(("fault", fault)) => options.extend(["--fault".to_string(), fault.to_string()]),
            Some(("name", name)) => options.extend(["--instance".to_string(), name.to_string()]),
            Some(_) => return None,
        }
    }
    Some(options)
}

/// The commands of a session; `None` where it needs virtual time.
fn commands(text: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with(ANSWER));
    let any_time = text.lines().any(|line| line == ANY_TIME);
    let mut script = String::new();
    for line in lines {
        let timed = !line.starts_with('#') && line.split_whitespace().any(|w| TIMED.contains(&w));
        if timed && !any_time {
            return None;
        }
        script.push_str(line);
        script.push('\n');
    }
    Some(script)
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::File { action: "read", path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_becomes_options_and_commands() {
        let text = "# machine: trn1,trn2 fault=slow@1\nopen 0\n#> ok client=1\nexpect ok\n#> ok\n";
        assert_eq!(machine(text).unwrap(), ["--device", "trn1,trn2", "--fault", "slow@1"]);
        assert_eq!(
            commands(text).unwrap(),
            "# machine: trn1,trn2 fault=slow@1\nopen 0\nexpect ok\n"
        );
    }

    #[test]
    fn what_a_vm_cannot_be_is_left_out() {
        assert!(machine("# machine: trn1 seed=4\n").is_none());
        assert!(machine("open 0\n").is_none());
        assert!(commands("expect ok fault drop-marker\n").is_none());
        assert!(commands("# no fault here\n").is_some());
        assert!(commands("# bears any time\nfault drop-marker\n").is_some());
    }

    #[test]
    fn the_sessions_of_the_repository_are_found() {
        let names: Vec<String> = all().unwrap().into_iter().map(|session| session.name).collect();
        for name in
            ["language", "faults on trn1", "faults on trn3", "batches on inf2", "cores on trn3"]
        {
            assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
        }
    }
}
