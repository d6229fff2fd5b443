//! The commands of the axon repository: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod bench;
mod boots;
mod build;
mod options;
mod run;
mod sessions;
mod size;
mod test;
mod top;
mod workspace;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use axon_qemu::{Error, Progress, Qemu, Session};
use bench::BenchOptions;
use clap::{Parser, Subcommand};
use options::MachineOptions;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The commands of axon")]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run an application on an emulated machine
    Run {
        /// The application, a folder of apps/
        #[arg(long, value_name = "NAME", default_value = "bringup")]
        app: String,
        /// Instead of one machine: an UltraServer of 2 or 4 hosted nodes of 16 devices that elect
        #[arg(long, value_name = "NODES", conflicts_with = "app")]
        pod: Option<u8>,
        #[command(flatten)]
        options: MachineOptions,
    },
    /// Talk to devices by hand or by script
    Console {
        #[command(flatten)]
        options: MachineOptions,
    },
    /// Run every test: unit, property and hosted ones, then boots in QEMU
    Test {
        /// Also what takes minutes
        #[arg(long)]
        long: bool,
        /// Only the boots in QEMU
        #[arg(long)]
        boots: bool,
    },
    /// Measure what axon's own machinery costs
    Bench(BenchOptions),
    /// Watch an image: tasks, devices, queues, memory, copies a second
    Top(top::TopOptions),
    /// Build images and compare them with the size limit
    Size {
        /// The application; all where none is named
        #[arg(long, value_name = "NAME")]
        app: Vec<String>,
    },
    /// Print which QEMU is used, fetching one where none serves; with arguments, run it
    Qemu {
        /// Arguments for QEMU, after `--`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Clear up after a launcher that is killed; started by the launcher itself
    #[command(hide = true)]
    Janitor,
}

fn main() -> ExitCode {
    // clap prints usage and exits with 2 where the arguments are wrong.
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Verb::Run { pod: Some(nodes), options, .. } => run::pod(nodes, &options),
        Verb::Run { app, options, .. } => run::run(&app, &options),
        Verb::Console { options } => run::run(run::CONSOLE, &options),
        Verb::Test { long, boots } => test::test(long, boots),
        Verb::Bench(options) => bench::bench(&options),
        Verb::Top(options) => top::top(&options),
        Verb::Size { app } => size::size(&app),
        Verb::Qemu { arguments } => qemu(&arguments),
        Verb::Janitor => {
            axon_qemu::serve_janitor(std::io::stdin().lock());
            Ok(ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("axon: {error}");
        ExitCode::from(error.exit_code())
    })
}

fn qemu(arguments: &[String]) -> Result<ExitCode, Error> {
    let mut session = begin(false)?;
    let qemu = Qemu::find(&workspace::target_dir(), &mut session)?;
    drop(session);
    if arguments.is_empty() {
        println!("{} (version {})", qemu.location().display(), qemu.version());
        return Ok(ExitCode::SUCCESS);
    }
    let source = qemu.command().args(arguments).exec();
    Err(Error::Start { program: qemu.location().display().to_string(), source })
}

/// Begins a session of the launcher, with this very program as its janitor.
fn begin(quiet: bool) -> Result<Session, Error> {
    let mut janitor = Command::new("/proc/self/exe");
    janitor.arg("janitor");
    Session::begin(janitor, Progress::new(quiet))
}
