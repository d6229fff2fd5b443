//! The console of a running image: commands go in, answers come out, one JSON object a line.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use axon_qemu::Error;
use serde_json::Value;

/// What one command brought.
pub struct Answer {
    /// Rows of a listing.
    pub rows: Vec<Value>,
    /// The last line.
    pub fields: Value,
}

/// The console, as long as this lives.
pub struct Feed {
    console: Child,
    /// Dropped to end the console.
    commands: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Feed {
    /// Starts this very program's console with these options.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(options: &[String]) -> Result<Feed, Error> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["console", "--json", "--timeout", "0"]).args(options);
        Feed::of(command)
    }

    /// From a program that talks like a console.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn of(mut command: Command) -> Result<Feed, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let not_started = |source| Error::Start { program: "the console".to_string(), source };
        let mut console = command.spawn().map_err(not_started)?;
        let commands = console.stdin.take();
        let Some(output) = console.stdout.take() else {
            return Err(not_started(std::io::Error::other("no pipe from it")));
        };
        Ok(Feed { console, commands, lines: BufReader::new(output).lines() })
    }

    /// Has a command carried out.
    ///
    /// # Errors
    /// Where the console has ended.
    pub fn ask(&mut self, command: &str) -> Result<Answer, Error> {
        let Some(commands) = &mut self.commands else { return Err(ended()) };
        writeln!(commands, "{command}").and_then(|()| commands.flush()).map_err(|_| ended())?;
        let mut rows = Vec::new();
        for line in self.lines.by_ref() {
            let line = line.map_err(|_| ended())?;
            // The image's log stands between the answers.
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            if value.get("ok").is_some() {
                return Ok(Answer { rows, fields: value });
            }
            rows.push(value);
        }
        Err(ended())
    }

    /// Has commands carried out; blank lines and comments have no answer.
    ///
    /// # Errors
    /// As [`Feed::ask`]; a command that fails is the image's business.
    pub fn carry_out(&mut self, commands: &[String]) -> Result<(), Error> {
        let commands = commands.iter().map(|line| line.trim());
        for command in commands.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            self.ask(command)?;
        }
        Ok(())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // The end of its input ends the console, and the machine with it.
        drop(self.commands.take());
        let _ = self.console.wait();
    }
}

fn ended() -> Error {
    let source = std::io::Error::other("it has ended; try `cargo xtask console`");
    Error::File { action: "ask", path: "the console".into(), source }
}
