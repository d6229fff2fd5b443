//! A helper process that clears up when the launcher is killed without a chance to do so itself.
//!
//! It reads lines from the launcher's pipe: `watch GROUP`, `gone GROUP`, `directory PATH`, `done`.
//! Where the pipe ends without `done`, the launcher died: the process groups are killed and the
//! directories removed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::Error;

/// The launcher's end of the pipe.
#[derive(Debug)]
pub(super) struct Janitor {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl Janitor {
    /// Starts `command`, a program that calls [`serve`].
    pub(super) fn start(mut command: Command) -> Result<Janitor, Error> {
        // A group of its own: what the terminal sends to the launcher's group must not reach it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(Error::start("the launcher's janitor"))?;
        let pipe = process.stdin.take();
        Ok(Janitor { process, pipe })
    }

    /// Kill this process group if the launcher dies.
    pub(super) fn watch(&mut self, group: Pid) {
        self.say(&format!("watch {}", group.as_raw_nonzero()));
    }

    /// This process group has ended.
    pub(super) fn gone(&mut self, group: Pid) {
        self.say(&format!("gone {}", group.as_raw_nonzero()));
    }

    /// Remove this directory if the launcher dies.
    pub(super) fn directory(&mut self, path: &Path) {
        self.say(&format!("directory {}", path.display()));
    }

    fn say(&mut self, line: &str) {
        // A janitor that is gone cannot help any more; the launcher still clears up itself.
        let _ = self.pipe.as_mut().map(|pipe| writeln!(pipe, "{line}"));
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.say("done");
        self.pipe = None;
        let _ = self.process.wait();
    }
}

/// The whole life of a janitor: obeys `orders`, then clears up unless told that all is done.
pub fn serve(orders: impl BufRead) {
    let mut groups = BTreeSet::new();
    let mut directories = Vec::new();
    for line in orders.lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("watch", group)) => drop(groups.insert(group.to_string())),
            Some(("gone", group)) => drop(groups.remove(group)),
            Some(("directory", path)) => directories.push(path.to_string()),
            _ => return,
        }
    }
    for group in groups.iter().filter_map(|group| Pid::from_raw(group.parse().ok()?)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for directory in directories {
        let _ = fs::remove_dir_all(directory);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("axon-janitor-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_broken_pipe_kills_and_removes() {
        let directory = scratch("broken");
        let (mut watched, mut gone) = (sleeper(), sleeper());
        let orders = format!(
            "watch {}\nwatch {}\ngone {}\ndirectory {}\n",
            watched.id(),
            gone.id(),
            gone.id(),
            directory.display()
        );
        serve(orders.as_bytes());
        assert_eq!(watched.wait().unwrap().signal(), Some(9));
        assert!(gone.try_wait().unwrap().is_none());
        assert!(!directory.exists());
        gone.kill().unwrap();
        gone.wait().unwrap();
    }

    #[test]
    fn after_done_nothing_is_touched() {
        let directory = scratch("done");
        serve(format!("directory {}\ndone\n", directory.display()).as_bytes());
        assert!(directory.exists());
        fs::remove_dir(directory).unwrap();
    }
}
