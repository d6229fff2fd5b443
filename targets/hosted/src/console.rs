//! Where a hosted machine types from and prints to.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{BufRead, IsTerminal, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Source of console input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Standard input of the process.
    Stdin,
    /// This text, then end of input.
    Text(String),
}

/// Sink of console output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Standard output of the process.
    Stdout,
    /// Kept in memory, see [`crate::Machine::output`].
    Kept,
}

/// The console of one machine.
pub(crate) struct Console {
    state: Mutex<State>,
}

struct State {
    input: Input,
    output: Output,
    pending: VecDeque<u8>,
    ended: bool,
    waiting: Option<Waker>,
    kept: Vec<u8>,
    /// The line that is being printed.
    line: Vec<u8>,
    /// How much of it was passed on.
    passed: usize,
    report: Option<String>,
}

/// What the line with an application's report starts with.
const REPORT: &str = "axon-report: ";

impl Console {
    pub(crate) fn new(input: Input, output: Output) -> Arc<Console> {
        Arc::new(Console {
            state: Mutex::new(State {
                input,
                output,
                pending: VecDeque::new(),
                ended: false,
                waiting: None,
                kept: Vec::new(),
                line: Vec::new(),
                passed: 0,
                report: None,
            }),
        })
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut state = self.state();
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes {
            state.line.push(*byte);
            if *byte == b'\n' {
                state.end_line(&mut shown);
            }
        }
        if !state.may_be_report() {
            state.pass_on(&mut shown);
        }
        match state.output {
            Output::Stdout => {
                let mut out = std::io::stdout().lock();
                // A reader that went away is no reason to stop a run.
                let _ = out.write_all(&shown).and_then(|()| out.flush());
            }
            Output::Kept => state.kept.extend_from_slice(bytes),
        }
    }

    /// The last report an application printed.
    pub(crate) fn report(&self) -> Option<String> {
        self.state().report.clone()
    }

    pub(crate) fn kept(&self) -> String {
        String::from_utf8_lossy(&self.state().kept).into_owned()
    }

    pub(crate) fn is_interactive(&self) -> bool {
        self.state().input == Input::Stdin
            && std::io::stdin().is_terminal()
            && std::io::stdout().is_terminal()
    }

    pub(crate) fn read(self: &Arc<Self>) -> ReadByte {
        ReadByte(self.clone())
    }

    /// Fetches more input for whoever waits for it; `false` where nobody waits. May block on
    /// standard input: the executor calls it when no task can run, so that virtual time stands
    /// still while a person types.
    pub(crate) fn supply(&self) -> bool {
        let mut state = self.state();
        let Some(waiting) = state.waiting.take() else { return false };
        match &mut state.input {
            Input::Text(text) => {
                let text = std::mem::take(text);
                state.ended = text.is_empty();
                state.pending.extend(text.as_bytes());
            }
            Input::Stdin => {
                drop(state);
                let mut line = Vec::new();
                let read = std::io::stdin().lock().read_until(b'\n', &mut line);
                state = self.state();
                state.ended = !matches!(read, Ok(count) if count > 0);
                state.pending.extend(line);
            }
        }
        drop(state);
        waiting.wake();
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A line is over: the report is kept, whatever else it is shown.
    fn end_line(&mut self, shown: &mut Vec<u8>) {
        match self.line.strip_prefix(REPORT.as_bytes()) {
            Some(report) => {
                self.report = Some(String::from_utf8_lossy(report.trim_ascii_end()).into_owned());
            }
            None => self.pass_on(shown),
        }
        self.line.clear();
        self.passed = 0;
    }

    fn may_be_report(&self) -> bool {
        let mark = REPORT.as_bytes();
        let common = self.line.len().min(mark.len());
        self.line[..common] == mark[..common]
    }

    fn pass_on(&mut self, shown: &mut Vec<u8>) {
        shown.extend_from_slice(&self.line[self.passed..]);
        self.passed = self.line.len();
    }
}

/// Future of the next byte; `None` at end of input.
pub(crate) struct ReadByte(Arc<Console>);

impl Future for ReadByte {
    type Output = Option<u8>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u8>> {
        let mut state = self.0.state();
        if let Some(byte) = state.pending.pop_front() {
            return Poll::Ready(Some(byte));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_taken_out_and_all_else_passes() {
        let console = Console::new(Input::Text(String::new()), Output::Kept);
        console.write(b"table\n> ");
        assert_eq!(console.state().passed, 2, "a prompt is shown at once");
        console.write(b"axon-report: no\naxon-rep");
        assert_eq!(console.state().passed, 0, "it may become one");
        console.write(b"ort: {}\n");
        assert_eq!(console.report().as_deref(), Some("{}"));
        assert_eq!(console.kept(), "table\n> axon-report: no\naxon-report: {}\n");
    }
}
