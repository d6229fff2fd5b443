//! One run of the launcher: the processes it started, its scratch directory, the signals it gets.
//!
//! Whatever way a session ends, nothing of it is left: children are killed and the scratch
//! directory is removed when it is dropped, and a [janitor](serve_janitor) does the same where the
//! launcher is killed outright. Each child leads a process group of its own, so that its children
//! go with it and the terminal's signals reach the launcher alone.

mod janitor;
mod progress;

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{Ending, Error};
use janitor::Janitor;
pub use janitor::serve as serve_janitor;
pub use progress::Progress;

/// Sessions of this process that took a scratch directory.
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// Output lines of a failed program that are worth showing.
const SHOWN_LINES: usize = 60;

/// Time a process gets to end by itself once it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// The address of a socket has at most 107 bytes; this leaves room for a file name.
const SHORT_PATH: usize = 80;

/// A process of a [`Session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(usize);

/// What a session tells whoever waits for it.
#[derive(Debug)]
pub(crate) enum Event {
    /// Bytes from a process's standard output.
    Output(ProcessId, Vec<u8>),
    /// A line from a process's standard error.
    ErrorLine(ProcessId, String),
    /// A process closed its standard output.
    Closed(ProcessId),
    /// A process ended.
    Ended(ProcessId, ExitStatus),
    /// The launcher is asked to end.
    Signal(i32),
}

#[derive(Debug)]
struct Process {
    group: Pid,
    ended: Option<ExitStatus>,
}

/// One run of the launcher.
#[derive(Debug)]
pub struct Session {
    /// Where it says what it is doing.
    pub progress: Progress,
    janitor: Janitor,
    events: Receiver<Event>,
    sender: Sender<Event>,
    processes: Vec<Process>,
    signals: signal_hook::iterator::Handle,
    scratch: Option<PathBuf>,
}

impl Session {
    /// Begins a session. `janitor` starts a program that calls [`serve_janitor`] on its standard
    /// input.
    ///
    /// # Errors
    /// [`Error::Start`].
    pub fn begin(janitor: Command, progress: Progress) -> Result<Session, Error> {
        let (sender, events) = channel();
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::start("the signal handler"))?;
        let handle = signals.handle();
        let to = sender.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                if to.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        });
        Ok(Session {
            progress,
            janitor: Janitor::start(janitor)?,
            events,
            sender,
            processes: Vec::new(),
            signals: handle,
            scratch: None,
        })
    }

    /// A directory of this session, removed at its end. Its path is short enough for sockets.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn scratch(&mut self) -> Result<PathBuf, Error> {
        if let Some(path) = &self.scratch {
            return Ok(path.clone());
        }
        let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
        let name = format!("axon-{}-{number}", std::process::id());
        let preferred = std::env::temp_dir().join(&name);
        let path = match preferred.as_os_str().len() {
            ..=SHORT_PATH => preferred,
            _ => Path::new("/tmp").join(name),
        };
        // One that is there already is not ours: refuse.
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(Error::file("create", &path))?;
        self.janitor.directory(&path);
        self.scratch = Some(path.clone());
        Ok(path)
    }

    /// Runs `command` to its end and hands each line of its output and errors to `each_line`.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::Interrupted`].
    fn run_quietly(
        &mut self,
        mut command: Command,
        mut each_line: impl FnMut(&mut Progress, &str),
    ) -> Result<ExitStatus, Error> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (process, _) = self.spawn(&mut command)?;
        let mut line = Vec::new();
        let (mut closed, mut ended) = (false, None);
        loop {
            if let (true, Some(status)) = (closed, ended) {
                return Ok(status);
            }
            match self.next(None) {
                Some(Event::Output(_, bytes)) => {
                    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                        line.extend_from_slice(part);
                        if line.ends_with(b"\n") {
                            each_line(
                                &mut self.progress,
                                String::from_utf8_lossy(&line).trim_end(),
                            );
                            line.clear();
                        }
                    }
                }
                Some(Event::ErrorLine(_, text)) => each_line(&mut self.progress, &text),
                Some(Event::Closed(from)) if from == process => closed = true,
                Some(Event::Ended(from, status)) if from == process => ended = Some(status),
                Some(Event::Signal(signal)) => return Err(self.interrupted(process, signal)),
                _ => {}
            }
        }
    }

    /// Runs `command` to its end; what it prints is shown in passing, and in the error.
    ///
    /// # Errors
    /// [`Error::Failed`] under the name `name`, [`Error::Start`], [`Error::Interrupted`].
    pub fn run_checked(&mut self, command: Command, name: &str) -> Result<(), Error> {
        let mut last = VecDeque::new();
        let status = self.run_quietly(command, |progress, line| {
            progress.detail(line);
            if last.len() == SHOWN_LINES {
                last.pop_front();
            }
            last.push_back(line.to_string());
        })?;
        self.progress.finish();
        if status.success() {
            return Ok(());
        }
        let output = Vec::from(last).join("\n");
        Err(Error::Failed { program: name.to_string(), status: status.to_string(), output })
    }

    /// Runs `command` with the launcher's own output, at most for `timeout`.
    ///
    /// Answers its exit code, 124 where it did not end in time, or 128 and the signal that ended it.
    ///
    /// # Errors
    /// [`Error::Start`], [`Error::Interrupted`].
    pub fn run_for(
        &mut self,
        mut command: Command,
        timeout: Option<Duration>,
    ) -> Result<u8, Error> {
        self.progress.finish();
        let deadline = timeout.map(|span| Instant::now() + span);
        let (process, _) = self.spawn(command.stdin(Stdio::null()))?;
        loop {
            match self.next(deadline) {
                Some(Event::Ended(ended, status)) if ended == process => {
                    let signal = status.signal().map_or(0, |signal| 128 | signal);
                    return Ok(status.code().unwrap_or(signal) as u8);
                }
                Some(Event::Signal(signal)) => return Err(self.interrupted(process, signal)),
                Some(_) => {}
                None => {
                    self.stop(process, Instant::now(), drop);
                    return Ok(Ending::TimedOut.exit_code());
                }
            }
        }
    }

    /// Lets `span` pass.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(crate) fn pause(&mut self, span: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + span;
        while let Some(event) = self.next(Some(deadline)) {
            if let Event::Signal(signal) = event {
                return Err(Error::Interrupted { signal });
            }
        }
        Ok(())
    }

    /// Starts `command`; its piped output arrives as events, its piped input is handed out.
    ///
    /// # Errors
    /// [`Error::Start`].
    pub(crate) fn spawn(
        &mut self,
        command: &mut Command,
    ) -> Result<(ProcessId, Option<ChildStdin>), Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.process_group(0).spawn().map_err(Error::start(name))?;
        let id = ProcessId(self.processes.len());
        let group = Pid::from_child(&child);
        self.janitor.watch(group);
        self.processes.push(Process { group, ended: None });
        let input = child.stdin.take();
        self.forward(id, child);
        Ok((id, input))
    }

    /// Turns what `child` prints, and its end, into events.
    fn forward(&self, id: ProcessId, mut child: Child) {
        if let Some(mut output) = child.stdout.take() {
            let to = self.sender.clone();
            thread::spawn(move || {
                let mut buffer = vec![0; 16 << 10];
                while let Ok(count @ 1..) = output.read(&mut buffer) {
                    if to.send(Event::Output(id, buffer[..count].to_vec())).is_err() {
                        return;
                    }
                }
                let _ = to.send(Event::Closed(id));
            });
        }
        let errors = child.stderr.take();
        let to = self.sender.clone();
        thread::spawn(move || {
            // Its last words come before its end.
            for line in errors.into_iter().flat_map(|errors| BufReader::new(errors).lines()) {
                let Ok(line) = line else { break };
                if to.send(Event::ErrorLine(id, line)).is_err() {
                    break;
                }
            }
            if let Ok(status) = child.wait() {
                let _ = to.send(Event::Ended(id, status));
            }
        });
    }

    /// The next event; `None` at `deadline`.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Option<Event> {
        let event = match deadline {
            // The session holds a sender itself: the channel never closes.
            None => self.events.recv().ok()?,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.events.recv_timeout(left) {
                    Ok(event) => event,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
                }
            }
        };
        if let Event::Ended(ProcessId(index), status) = &event
            && let Some(process) = self.processes.get_mut(*index)
        {
            process.ended = Some(*status);
            self.janitor.gone(process.group);
        }
        Some(event)
    }

    /// How a process ended; `None` while it runs.
    pub(crate) fn ended(&self, id: ProcessId) -> Option<ExitStatus> {
        self.processes.get(id.0).and_then(|process| process.ended)
    }

    /// Waits for a process to end by itself until `deadline`, then stops it and all its children;
    /// other events meanwhile go to `others`.
    pub(crate) fn stop(&mut self, id: ProcessId, deadline: Instant, mut others: impl FnMut(Event)) {
        let Some(group) = self.processes.get(id.0).map(|process| process.group) else { return };
        if self.ended(id).is_some() {
            return;
        }
        let mut until = deadline;
        for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
            if let (Some(signal), None) = (signal, self.ended(id)) {
                // It may end at this very moment, which is what is wanted.
                let _ = kill_process_group(group, signal);
                until = Instant::now() + GRACE;
            }
            while self.ended(id).is_none() {
                match self.next(Some(until)) {
                    Some(event) => others(event),
                    None => break,
                }
            }
        }
        // What it started may have outlived it.
        let _ = kill_process_group(group, Signal::KILL);
    }

    fn interrupted(&mut self, process: ProcessId, signal: i32) -> Error {
        self.stop(process, Instant::now(), drop);
        Error::Interrupted { signal }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for index in 0..self.processes.len() {
            self.stop(ProcessId(index), Instant::now(), drop);
        }
        if let Some(scratch) = &self.scratch {
            // Nothing more can be done about a directory that cannot be removed.
            let _ = fs::remove_dir_all(scratch);
        }
        self.signals.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::begin(Command::new("true"), Progress::new(true)).unwrap()
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_failing_program_shows_its_last_lines() {
        let command = shell("seq 1 400; exit 100");
        let error = session().run_checked(command, "apt-get update").unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.starts_with("apt-get update failed (exit status: 100)"), "{sentence}");
        assert!(sentence.ends_with("\n400") && !sentence.contains("\n300\n"), "{sentence}");
        assert_eq!(error.exit_code(), 125);
    }

    #[test]
    fn exit_codes_come_through() {
        let mut session = session();
        assert_eq!(session.run_for(shell("exit 7"), None).unwrap(), 7);
        assert_eq!(session.run_for(shell("kill -9 $$"), None).unwrap(), 137);
        let nothing = Command::new("/nonexistent/program");
        assert!(matches!(session.run_for(nothing, None), Err(Error::Start { .. })));
    }

    #[test]
    fn a_program_is_stopped_with_its_children() {
        let mut session = session();
        // The child ignores the request to end.
        let mut command = shell("sh -c 'trap \"\" TERM; echo $$; sleep 600' & wait");
        let (process, _) = session.spawn(command.stdout(Stdio::piped())).unwrap();
        let Some(Event::Output(_, child)) = session.next(None) else { panic!("no output") };
        session.stop(process, Instant::now(), drop);
        assert_eq!(session.ended(process).unwrap().signal(), Some(15));
        let child = String::from_utf8(child).unwrap();
        let state = format!("/proc/{}/stat", child.trim());
        // A killed process is gone soon, or waits to be collected.
        let runs = || fs::read_to_string(&state).is_ok_and(|text| !text.contains(") Z "));
        let patience = Instant::now() + Duration::from_secs(20);
        while runs() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!runs());
    }

    #[test]
    fn a_program_that_does_not_end_in_time_is_stopped() {
        let code = session().run_for(shell("sleep 600"), Some(Duration::from_millis(10)));
        assert_eq!(code.unwrap(), 124);
    }

    #[test]
    fn the_scratch_directory_goes_with_the_session() {
        let mut session = session();
        let path = session.scratch().unwrap();
        assert!(path.is_dir());
        assert_eq!(session.scratch().unwrap(), path);
        drop(session);
        assert!(!path.exists());
    }
}
