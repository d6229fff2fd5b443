//! The console: a line interpreter that drives devices by hand, by script and in tests. Its manual
//! is `docs/console.md`.
//!
//! [`main`] is an application like any other. It reads the file `script` where the launcher
//! handed one over, else the console; answers go to the console, failures to the log.
//!
//! | module | what it holds |
//! |---|---|
//! | [`editor`] | bytes of a terminal to lines |
//! | [`mod@line`] | the frame around a command: comment, `$x =`, `expect` |
//! | [`engine`] | variables, expectations, the count of failures |
//! | [`words`], [`number`] | the words of a command |
//! | [`answer`] | `ok`, `error`, rows; as words or JSON |
//! | [`session`] | what is open: clients, transfers, resets |
//! | `commands` | one file an area |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answer;
mod commands;
pub mod editor;
pub mod engine;
pub mod line;
pub mod number;
pub mod session;
pub mod words;

use alloc::string::String;
use core::time::Duration;

use axon::{Context, ExitCode};
use axon_platform::Platform;
use embassy_futures::select::select;

use crate::answer::{Failure, Style};
use crate::editor::{Editor, Event};
use crate::engine::{Engine, Sink};
use crate::session::Session;

/// Name of the file that holds the script.
const SCRIPT: &str = "script";
const PROMPT: &str = "axon> ";
/// How long a dialogue waits for the devices before it begins.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the script or the dialogue to its end. Exit code 0 for a script without failure and for
/// every dialogue.
pub async fn main<P: Platform>(cx: Context<P>) -> ExitCode {
    let Context { platform, driver } = cx;
    let json = platform.arguments().iter().any(|word| word == "json" || word == "--json");
    let style = if json { Style::Json } else { Style::Words };
    let script = platform.file(SCRIPT);
    // A person is not kept waiting for a device that does not come up.
    if script.is_none() && platform.console_is_interactive() {
        select(driver.settled(), platform.sleep(PATIENCE)).await;
    } else {
        driver.settled().await;
    }
    let session = Session::new(platform.clone(), driver);
    match script {
        Some(text) => run_script(&platform, session, style, &String::from_utf8_lossy(&text)).await,
        None => talk(&platform, session, style).await,
    }
}

async fn run_script<P: Platform>(
    platform: &P,
    session: Session<P>,
    style: Style,
    text: &str,
) -> ExitCode {
    let mut screen = Screen(platform);
    let mut engine = Engine::new(session, style, true);
    for line in text.lines() {
        if engine.line(line, &mut screen).await {
            break;
        }
    }
    match engine.end(&mut screen) {
        0 => ExitCode::SUCCESS,
        failures => {
            screen.complain(&alloc::format!("{failures} failures"));
            ExitCode::FAILURE
        }
    }
}

/// Lines from the console. From a pipe they count like a script.
async fn talk<P: Platform>(platform: &P, session: Session<P>, style: Style) -> ExitCode {
    let interactive = platform.console_is_interactive();
    let mut screen = Screen(platform);
    let echo = interactive && !platform.console_echoes();
    let mut editor = Editor::new(echo);
    let mut engine = Engine::new(session, style, !interactive);
    screen.prompt(interactive);
    loop {
        let event = match platform.console_read().await {
            Some(byte) => editor.feed(byte),
            None => editor.end(),
        };
        match event {
            Event::None => {}
            Event::Echo(bytes) => platform.console_write(&bytes),
            Event::End => break,
            Event::TooLong => {
                let refused = Failure::invalid("the line is too long");
                screen.answer(&style.answer(&Err(refused)));
            }
            Event::Line(line) => {
                if echo {
                    platform.console_write(b"\n");
                }
                if engine.line(&line, &mut screen).await {
                    break;
                }
                screen.prompt(interactive);
            }
        }
    }
    if engine.end(&mut screen) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The console and the log.
struct Screen<'a, P>(&'a P);

impl<P: Platform> Screen<'_, P> {
    fn prompt(&self, interactive: bool) {
        if interactive {
            self.0.console_write(PROMPT.as_bytes());
        }
    }
}

impl<P: Platform> Sink for Screen<'_, P> {
    fn answer(&mut self, line: &str) {
        let mut bytes = String::from(line);
        bytes.push('\n');
        self.0.console_write(bytes.as_bytes());
    }

    fn complain(&mut self, line: &str) {
        log::error!("{line}");
    }
}
