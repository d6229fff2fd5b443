//! The command line of a hosted program: the options of the console's page that make sense
//! without a VM, and [`run`], which is all a hosted `main` has to call.

use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use axon_model::{FaultWord, parse_size};
use clap::Parser;

use crate::console::{Input, Output};
use crate::logger;
use crate::machine::{Machine, MachineBuilder};

/// Exit code of a program that did not end in time.
const TIMED_OUT: i32 = 124;

/// Exit code of a program that could not start.
const LAUNCH_FAILURE: u8 = 125;

/// Options of a hosted program.
#[derive(Parser, Debug, Clone)]
#[command(disable_version_flag = true)]
pub struct Options {
    /// Devices: trn1, inf2, trn2, trn3, separated by commas.
    #[arg(long, default_value = "trn1")]
    pub device: String,
    /// Multiplies each entry of --device.
    #[arg(long, default_value_t = 1)]
    pub devices: u32,
    /// Host memory that devices reach, in bytes or with K, M, G.
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    pub memory: u64,
    /// Seed of task order, random numbers and delays.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Fault of the model: `NAME[=VALUE][@DEVICE][,after=N][,times=N]`; may be repeated.
    #[arg(long)]
    pub fault: Vec<FaultWord>,
    /// SMBIOS product name, which says what instance this is: `trn2u.48xlarge`.
    #[arg(long)]
    pub instance: Option<String>,
    /// Script to run instead of reading the console; `-` is standard input.
    #[arg(long)]
    pub script: Option<String>,
    /// Ends the program after so many seconds of the wall, with exit code 124; 0 never does.
    #[arg(long, default_value_t = 0)]
    pub timeout: u64,
    /// One JSON object a line instead of words.
    #[arg(long)]
    pub json: bool,
    /// Writes the application's report, with what the models saw, into this file.
    #[arg(long)]
    pub report: Option<PathBuf>,
    /// How much of the log goes to standard error: off, error, warn, info, debug, trace.
    #[arg(long, default_value = "warn")]
    pub log: log::LevelFilter,
    /// Further words for the application's command line.
    #[arg(trailing_var_arg = true)]
    pub words: Vec<String>,
}

/// What is wrong with the command line: a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The functions named by `--device` and `--devices`: each entry `count` times, in order.
pub fn split_devices(list: &str, count: u32) -> Vec<String> {
    list.split(',')
        .filter(|name| !name.is_empty())
        .flat_map(|name| (0..count).map(|_| name.to_owned()))
        .collect()
}

impl Options {
    /// The machine these options describe.
    ///
    /// # Errors
    /// [`UsageError`] for a script that cannot be opened.
    pub fn machine(&self) -> Result<MachineBuilder, UsageError> {
        let mut builder =
            Machine::builder().seed(self.seed).memory(self.memory).output(Output::Stdout);
        for name in split_devices(&self.device, self.devices) {
            builder = builder.device(&name);
        }
        for fault in &self.fault {
            builder = builder.fault(fault.device, &fault.text);
        }
        if let Some(name) = &self.instance {
            builder = builder.product_name(name);
        }
        if self.json {
            builder = builder.argument("json");
        }
        for word in &self.words {
            builder = builder.argument(word);
        }
        Ok(match &self.script {
            Some(path) => builder.file("script", &read_script(path)?),
            None => builder.input(Input::Stdin),
        })
    }
}

fn read_script(path: &str) -> Result<Vec<u8>, UsageError> {
    let mut text = Vec::new();
    let read = match path {
        "-" => std::io::stdin().lock().read_to_end(&mut text).map(|_| ()),
        path => std::fs::read(path).map(|read| text = read),
    };
    read.map(|()| text).map_err(|error| UsageError(format!("script {path}: {error}")))
}

/// Runs an application as the whole program: options, machine, report, exit code.
///
/// Exit codes: the application's own (0 to 99), 2 for a wrong command line, 125 where the machine
/// could not be made or everything waited for ever.
pub fn run<F, C>(application: impl FnOnce(Machine) -> F) -> ExitCode
where
    F: Future<Output = C>,
    C: Into<u8>,
{
    let options = Options::parse();
    logger::install(options.log);
    let machine = match options.machine() {
        Ok(builder) => builder.build(),
        Err(error) => return fail(2, &error),
    };
    let machine = match machine {
        Ok(machine) => machine,
        Err(error) => return fail(error.exit_code(), &error),
    };
    end_after(options.timeout);
    let ended = machine.run(application(machine.clone()));
    machine.shut_down();
    let code = match ended {
        Ok(code) => code.into(),
        Err(stalled) => return fail(LAUNCH_FAILURE, &stalled),
    };
    if let Some(path) = &options.report
        && let Err(error) = std::fs::write(path, machine.report_json())
    {
        return fail(LAUNCH_FAILURE, &error);
    }
    if options.json && machine.has_report() {
        println!("{}", machine.report_json());
    }
    ExitCode::from(code)
}

/// Ends the program where it takes longer than it may: it may be busy for ever, or wait for a
/// person.
fn end_after(seconds: u64) {
    if seconds > 0 {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(seconds));
            eprintln!("error: no end within {seconds} s");
            std::process::exit(TIMED_OUT);
        });
    }
}

fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_multiply_each_entry() {
        assert_eq!(split_devices("trn1,trn2", 2), ["trn1", "trn1", "trn2", "trn2"]);
        assert!(split_devices("", 3).is_empty());
    }
}
