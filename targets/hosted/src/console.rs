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
    line: Vec<u8>,
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
                report: None,
            }),
        })
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut state = self.state();
        match state.output {
            Output::Stdout => {
                let mut out = std::io::stdout().lock();
                // A reader that went away is no reason to stop a run.
                let _ = out.write_all(bytes).and_then(|()| out.flush());
            }
            Output::Kept => state.kept.extend_from_slice(bytes),
        }
        for byte in bytes {
            match byte {
                b'\n' => state.end_line(),
                byte => state.line.push(*byte),
            }
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
    fn end_line(&mut self) {
        if let Some(report) = self.line.strip_prefix(REPORT.as_bytes()) {
            self.report = Some(String::from_utf8_lossy(report).into_owned());
        }
        self.line.clear();
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
