//! The command line of a hosted program: the options of the console's page that make sense
//! without a VM, and [`run`], which is all a hosted `main` has to call.

use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::console::{Input, Output};
use crate::logger;
use crate::machine::{Machine, MachineBuilder};

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
    /// Fault of the model: `NAME[=VALUE][@DEVICE][,after=N]`; may be repeated.
    #[arg(long)]
    pub fault: Vec<String>,
    /// Script to run instead of reading the console; `-` is standard input.
    #[arg(long)]
    pub script: Option<String>,
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

/// Bytes from `64K`, `2G`, `0x1000` or `4096`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        _ => (text, 1u64),
    };
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    number
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("{text} is not a size (4096, 64K, 2G, 0x1000)"))
}

/// The functions named by `--device` and `--devices`: each entry `count` times, in order.
pub fn split_devices(list: &str, count: u32) -> Vec<String> {
    list.split(',')
        .filter(|name| !name.is_empty())
        .flat_map(|name| (0..count).map(|_| name.to_owned()))
        .collect()
}

/// `NAME[=VALUE][@DEVICE][,after=N]` as device and the model's form `NAME[=VALUE] [after=N]`.
fn split_fault(text: &str) -> Result<(Option<usize>, String), UsageError> {
    let (head, after) = match text.split_once(',') {
        Some((head, after)) => (head, Some(after)),
        None => (text, None),
    };
    let (name, device) = match head.split_once('@') {
        Some((name, device)) => {
            let device = device
                .parse()
                .map_err(|_| UsageError(format!("{device} in --fault {text} is no device")))?;
            (name, Some(device))
        }
        None => (head, None),
    };
    Ok((device, [Some(name), after].into_iter().flatten().collect::<Vec<_>>().join(" ")))
}

impl Options {
    /// The machine these options describe.
    ///
    /// # Errors
    /// [`UsageError`] for a fault that cannot be read and a script that cannot be opened.
    pub fn machine(&self) -> Result<MachineBuilder, UsageError> {
        let mut builder =
            Machine::builder().seed(self.seed).memory(self.memory).output(Output::Stdout);
        for name in split_devices(&self.device, self.devices) {
            builder = builder.device(&name);
        }
        for fault in &self.fault {
            let (device, fault) = split_fault(fault)?;
            builder = builder.fault(device, &fault);
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
    ExitCode::from(code)
}

fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64K"), Ok(65536));
        assert_eq!(parse_size("0x1000"), Ok(4096));
        assert_eq!(parse_size("2G"), Ok(2 << 30));
        for wrong in ["", "G", "1T", "-1", "0x", "99999999999G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn devices_multiply_each_entry() {
        assert_eq!(split_devices("trn1,trn2", 2), ["trn1", "trn1", "trn2", "trn2"]);
        assert!(split_devices("", 3).is_empty());
    }

    #[test]
    fn faults_name_a_device_and_a_count() {
        let read = |text| split_fault(text).unwrap();
        assert_eq!(read("slow"), (None, "slow".into()));
        assert_eq!(read("slow=3@2,after=7"), (Some(2), "slow=3 after=7".into()));
        assert!(split_fault("slow@x").is_err());
    }
}
