//! The console sessions of `tests/scripts`, played once more in a VM.
//!
//! A session is a file of commands with the answers they gave in a Linux process under them, each
//! marked with `<`. Addresses of host memory and times differ on another machine, so here a session
//! passes where every command does what the script expects of it.

use std::fs;
use std::path::{Path, PathBuf};

use axon_qemu::Error;

use crate::workspace;

/// Start of the line that describes the machine.
const MACHINE: &str = "# machine: ";

/// Start of the lines that hold an answer.
const ANSWER: &str = "< ";

/// Commands that only a model in the same process carries out.
const IN_PROCESS: [&str; 2] = ["fault", "post"];

/// One session that can be played in a VM.
pub struct Session {
    /// The file's name without its end.
    pub name: String,
    /// Options of `cargo xtask run` for its machine.
    pub options: Vec<String>,
    /// Its commands.
    pub script: String,
}

/// Every session that does not need the model in the same process, by name.
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
        if let (Some(options), Some(script)) = (machine(&text), commands(&text)) {
            sessions.push(Session { name, options, script });
        }
    }
    Ok(sessions)
}

/// Options for the machine a session describes; `None` where a VM cannot be that machine.
fn machine(text: &str) -> Option<Vec<String>> {
    let description = text.lines().find_map(|line| line.strip_prefix(MACHINE))?;
    let mut options = Vec::new();
    for word in description.split_whitespace() {
        match word.split_once('=') {
            None => options.extend(["--device".to_string(), word.to_string()]),
            Some(("fault", fault)) => options.extend(["--fault".to_string(), fault.to_string()]),
            Some(_) => return None,
        }
    }
    Some(options)
}

/// The commands of a session; `None` where one needs the model in the same process.
fn commands(text: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with(ANSWER));
    let mut script = String::new();
    for line in lines {
        if line.split_whitespace().any(|word| IN_PROCESS.contains(&word)) && !line.starts_with('#')
        {
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
        let text = "# machine: trn1,trn2 fault=slow@1\nopen 0\n< ok client=1\nexpect ok\n< ok\n";
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
    }

    #[test]
    fn the_sessions_of_the_repository_are_found() {
        assert!(all().unwrap().iter().any(|session| session.name == "language"));
    }
}
