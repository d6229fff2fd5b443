//! Where the launcher says what it is doing: standard error, one line a step.

use std::io::{IsTerminal, Write};

/// Tells a person what happens, on standard error.
///
/// On a terminal, [`Progress::detail`] overwrites one status line; elsewhere details are left out.
#[derive(Debug)]
pub struct Progress {
    quiet: bool,
    terminal: bool,
    status_shown: bool,
}

impl Progress {
    /// Prints steps; `quiet` prints nothing at all.
    pub fn new(quiet: bool) -> Self {
        Progress { quiet, terminal: std::io::stderr().is_terminal(), status_shown: false }
    }

    /// A step begins, or something worth knowing happened.
    pub fn step(&mut self, text: &str) {
        self.finish();
        if !self.quiet {
            eprintln!("axon: {text}");
        }
    }

    /// How far the current step is; shown on terminals only.
    pub fn detail(&mut self, text: &str) {
        if self.quiet || !self.terminal {
            return;
        }
        let line: String = text.chars().take(72).collect();
        eprint!("\r\x1b[Kaxon:   {line}");
        // Progress is a courtesy: a closed standard error is no reason to stop.
        let _ = std::io::stderr().flush();
        self.status_shown = true;
    }

    /// Clears the status line.
    pub fn finish(&mut self) {
        if self.status_shown {
            eprint!("\r\x1b[K");
            self.status_shown = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
