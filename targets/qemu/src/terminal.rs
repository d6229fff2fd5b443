//! The person's terminal while they talk to the VM.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ChildStdin;
use std::sync::mpsc::Receiver;
use std::thread;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::guest::END_OF_INPUT;

/// Standard input handing over every key at once, without echo, as long as this lives.
///
/// The guest echoes and edits. Signals keep working: Ctrl-C ends the launcher.
#[derive(Debug)]
pub(crate) struct EachKey {
    before: Termios,
}

impl EachKey {
    /// `None` where standard input is no terminal.
    pub(crate) fn begin() -> Option<EachKey> {
        let before = tcgetattr(io::stdin().as_fd()).ok()?;
        let mut during = before.clone();
        during.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &during).ok()?;
        Some(EachKey { before })
    }
}

impl Drop for EachKey {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(io::stdin().as_fd(), OptionalActions::Now, &self.before);
    }
}

/// Passes standard input on to the VM's console, and its end as [`END_OF_INPUT`].
///
/// Nothing is sent before `started`: a serial port that is being set up loses bytes. Where `started`
/// is dropped, nothing is sent at all.
pub(crate) fn forward_input(mut to: ChildStdin, started: Receiver<()>) {
    thread::spawn(move || {
        if started.recv().is_err() {
            return;
        }
        let mut buffer = [0; 4096];
        let mut input = io::stdin().lock();
        while let Ok(count @ 1..) = input.read(&mut buffer) {
            if to.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = to.write_all(&[END_OF_INPUT]);
        // The pipe stays open: the console is not gone, only silent.
        thread::park();
    });
}
