//! `cargo xtask top`: one screen of what an image does, live, fed from its console.
//!
//! The image is the console application, started as `cargo xtask console` starts it. Before each
//! refresh it is asked for its tasks, devices, queues and memory, and carries out the load that was
//! given.
//!
//! | module | what it holds |
//! |---|---|
//! | `feed` | the console at the other end: commands to it, answers from it |
//! | `view` | what was answered, and how it is drawn |

mod feed;
mod view;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use axon_qemu::Error;
use clap::Args;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};

use feed::Feed;
use view::View;

/// Columns of what `--once` prints.
const COLUMNS: u16 = 100;

/// What `cargo xtask top` takes.
#[derive(Args, Debug)]
pub struct TopOptions {
    /// Print one screen as text and end
    #[arg(long)]
    once: bool,
    /// Seconds between two screens, of the image's time
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Console commands to carry out once, at the start
    #[arg(long, value_name = "FILE")]
    begin: Option<PathBuf>,
    /// Console commands to carry out before each screen
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    /// Options of `cargo xtask console`, after `--`
    #[arg(last = true)]
    console: Vec<String>,
}

/// Shows screen after screen until `q`, or one.
///
/// # Errors
/// Where a file cannot be read or the console ends.
pub fn top(options: &TopOptions) -> Result<ExitCode, Error> {
    let lines = |path: &Option<PathBuf>| -> Result<Vec<String>, Error> {
        let Some(path) = path else { return Ok(Vec::new()) };
        let text = fs::read_to_string(path).map_err(failed("read", path))?;
        Ok(text.lines().map(String::from).collect())
    };
    let (begin, load) = (lines(&options.begin)?, lines(&options.load)?);
    let mut feed = Feed::start(&options.console)?;
    feed.carry_out(&begin)?;
    feed.carry_out(&["tasks on".to_string()])?;
    let mut source = Source { feed, load, pause: format!("sleep {}s", options.interval) };
    let first = source.look(None)?;
    if options.once {
        let view = source.look(Some(&first))?;
        print!("{}", page(&view));
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = ratatui::init();
    let shown = show(&mut terminal, &mut source, first);
    ratatui::restore();
    shown.map(|()| ExitCode::SUCCESS)
}

/// Where screens come from.
struct Source {
    feed: Feed,
    load: Vec<String>,
    pause: String,
}

impl Source {
    /// Carries out the load, lets time pass and looks.
    fn look(&mut self, before: Option<&View>) -> Result<View, Error> {
        if before.is_some() {
            self.feed.carry_out(&self.load)?;
            self.feed.carry_out(std::slice::from_ref(&self.pause))?;
        }
        View::ask(&mut self.feed, before)
    }
}

fn show(terminal: &mut DefaultTerminal, source: &mut Source, mut view: View) -> Result<(), Error> {
    loop {
        terminal.draw(|frame| view.draw(frame)).map_err(on_terminal)?;
        while event::poll(Duration::ZERO).map_err(on_terminal)? {
            if let Event::Key(key) = event::read().map_err(on_terminal)? {
                let control_c =
                    key.code == KeyCode::Char('c') && key.modifiers == KeyModifiers::CONTROL;
                if control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(());
                }
            }
        }
        view = source.look(Some(&view))?;
    }
}

/// The screen as text.
fn page(view: &View) -> String {
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, view.height()))
        .unwrap_or_else(|never| match never {});
    if let Err(never) = terminal.draw(|frame| view.draw(frame)) {
        match never {}
    }
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(usize::from(COLUMNS)).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_string()
    });
    let text: Vec<String> = lines.collect();
    format!("{}\n", text.join("\n").trim_end())
}

fn on_terminal(source: io::Error) -> Error {
    Error::File { action: "use", path: "the terminal".into(), source }
}

fn failed<'a>(
    action: &'static str,
    path: &'a std::path::Path,
) -> impl FnOnce(io::Error) -> Error + 'a {
    move |source| Error::File { action, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A console whose every second look is a second later, with seven copies between.
    const CONSOLE: &str = r#"
        looks=0
        while read -r name rest; do
            case "$name" in
                tasks)
                    [ "$rest" = on ] && { echo '{"ok":true}'; continue; }
                    looks=$((looks + 1))
                    echo '# [   1.0] info  a line of the log'
                    echo '{"task":"memory","polls":'$((looks * 10))',"busy_us":'$((looks * 5000))'}'
                    echo '{"task":"pod watch","polls":1,"busy_us":0}'
                    echo '{"task":"pod watch","polls":2,"busy_us":0}'
                    echo '{"ok":true,"count":3,"now_us":'$((looks * 1000000))'}' ;;
                devices)
                    echo '{"index":0,"bdf":"00:01.0","generation":"V2","state":"READY"}'
                    echo '{"ok":true,"count":1}' ;;
                mem) echo '{"ok":true,"host":4096,"device":8388608,"draining":0}' ;;
                counters) echo '{"ok":true,"doorbells":'$((looks * 14))',"bytes":0,"completed":'$((looks * 7))'}' ;;
                nq) echo '{"ok":true,"armed":2,"consumed":0}' ;;
                metrics)
                    [ "$rest" = neuron_host_memory_category_used_bytes ] &&
                        echo '{"line":"x{device=\"0\",category=\"tensors\"} 65536"}'
                    echo '{"ok":true,"seq":1}' ;;
                sleep) echo '{"ok":true}' ;;
                *) echo '{"ok":false,"error":"EINVAL","message":"no"}' ;;
            esac
        done
    "#;

    #[test]
    fn one_screen_as_text() {
        let mut command = Command::new("sh");
        command.args(["-c", CONSOLE]);
        let feed = Feed::of(command).unwrap();
        let load = vec!["# a comment".to_string(), "copy 1 2 3".to_string()];
        let mut source = Source { feed, load, pause: "sleep 1s".to_string() };
        let first = source.look(None).unwrap();
        let text = page(&source.look(Some(&first)).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "axon  up 2 s  7 copies/s  q ends");
        let words = |start: &str| -> Vec<&str> {
            let line = lines.iter().find(|line| line.starts_with(start)).expect(start);
            line.trim_matches('│').split_whitespace().collect()
        };
        let device = ["nd0", "00:01.0", "V2", "READY", "7", "0", "14", "2", "0", "4K", "8M", "0"];
        assert_eq!(words("│nd0"), device);
        assert_eq!(words("│memory  ")[..7], ["memory", "20", "10", "10000", "us", "0.5", "%"]);
        assert_eq!(words("│pod watch")[2..4], ["3", "0"], "two tasks of one name");
        assert_eq!(words("│host"), ["host", "tensors", "64K"]);
    }

    #[test]
    fn a_console_that_ends_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "read -r line"]);
        let mut feed = Feed::of(command).unwrap();
        let error = feed.ask("tasks").err().expect("it ended").to_string();
        assert!(error.contains("the console"), "{error}");
    }
}
