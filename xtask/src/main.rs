//! The commands of the axon repository: `cargo xtask --help`.
#![forbid(unsafe_code)]

mod workspace;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use axon_qemu::{Error, Progress, Qemu};
use clap::{Parser, Subcommand};

/// The launcher itself failed.
const LAUNCHER_FAILURE: u8 = 125;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The commands of axon")]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Print which QEMU is used, fetching one where none serves; with arguments, run it
    Qemu {
        /// Arguments for QEMU, after `--`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    // clap prints usage and exits with 2 where the arguments are wrong.
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Verb::Qemu { arguments } => qemu(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("axon: {error}");
        ExitCode::from(LAUNCHER_FAILURE)
    })
}

fn qemu(arguments: &[String]) -> Result<ExitCode, Error> {
    let qemu = Qemu::find(&workspace::target_dir(), &mut Progress::new(false))?;
    if arguments.is_empty() {
        println!("{} (version {})", qemu.location().display(), qemu.version());
        return Ok(ExitCode::SUCCESS);
    }
    let source = qemu.command().args(arguments).exec();
    Err(Error::Start { program: qemu.location().display().to_string(), source })
}
