//! What is built before a machine starts: the image, the hosted program, the model server.
//!
//! Images are built with flags and a target directory of their own, so that no feature and no flag
//! of a Linux program gets into them and nothing is built twice.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use axon_qemu::{Error, Session};
use clap::error::ErrorKind;

use crate::options::refuse;
use crate::workspace;

/// None, and not those of the environment: an image runs on less than the machine that builds it,
/// and the kernel finds calls on the stack without frame pointers.
const IMAGE_FLAGS: &str = "";

/// The machines an application can be built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A bootable image.
    Vm,
    /// A Linux process.
    Hosted,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::Vm => "vm",
            Target::Hosted => "hosted",
        }
    }
}

/// The applications that can be built for `target`, by name.
pub fn applications(target: Target) -> BTreeSet<String> {
    let folders = fs::read_dir(workspace::root().join("apps")).into_iter().flatten().flatten();
    folders
        .filter(|folder| folder.path().join(target.name()).join("Cargo.toml").is_file())
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect()
}

/// `name`, if there is such an application; ends the program where there is none.
pub fn known(name: &str, target: Target) -> String {
    let known = applications(target);
    if !known.contains(name) {
        let names: Vec<String> = known.into_iter().collect();
        let sentence = format!("there is no application {name:?}: {}", names.join(", "));
        refuse(ErrorKind::InvalidValue, &sentence);
    }
    name.to_string()
}

/// Builds the image of an application.
pub fn image(application: &str, session: &mut Session) -> Result<PathBuf, Error> {
    let package = format!("axon-{application}-vm");
    let target = workspace::target_dir().join("vm");
    let mut command = cargo("build");
    command.args(["--profile", "image", "--package", &package]);
    command.arg("--target-dir").arg(&target).env("RUSTFLAGS", IMAGE_FLAGS);
    run(command, &package, session)?;
    Ok(target.join("image").join(package))
}

/// Builds the Linux program of an application.
pub fn hosted(application: &str, session: &mut Session) -> Result<PathBuf, Error> {
    program(&format!("axon-{application}-hosted"), session)
}

/// Builds the server that emulates one function.
pub fn model_server(session: &mut Session) -> Result<PathBuf, Error> {
    program("axon-model", session)
}

fn program(package: &str, session: &mut Session) -> Result<PathBuf, Error> {
    let mut command = cargo("build");
    command.args(["--package", package, "--bin", package]);
    run(command, package, session)?;
    Ok(workspace::target_dir().join("debug").join(package))
}

/// A command of the cargo that runs this program, started in the workspace.
pub fn cargo(verb: &str) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.arg(verb).current_dir(workspace::root());
    command
}

fn run(command: Command, package: &str, session: &mut Session) -> Result<(), Error> {
    session.progress.step(&format!("building {package}"));
    session.run_checked(command, &format!("building {package}"))
}
