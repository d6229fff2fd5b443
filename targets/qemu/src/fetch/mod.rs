//! Fetches QEMU from the distribution's package archive, unpacked, without touching the system.
//!
//! The package manager does the work with a private configuration, state and cache: it checks the
//! index against the archive keyring and every package against the index, resolves dependencies as
//! if nothing were installed, resumes what was interrupted, and honours the system's proxies.
//! Nothing is installed and nothing needs root.

mod archive;
mod tree;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use archive::{Archive, Release};
pub(crate) use tree::Tree;

use crate::{Error, Session};

const PACKAGE: &str = "qemu-system-x86";

/// Holds `directory` against other runs that would fetch into it, until dropped.
///
/// # Errors
/// [`Error::File`], [`Error::Interrupted`].
pub(crate) fn lock(directory: &Path, session: &mut Session) -> Result<File, Error> {
    fs::create_dir_all(directory).map_err(Error::file("create", directory))?;
    let path = directory.join("lock");
    let file = File::create(&path).map_err(Error::file("create", &path))?;
    if file.try_lock().is_err() {
        session.progress.step("waiting for another run that fetches QEMU");
        while file.try_lock().is_err() {
            session.pause(Duration::from_millis(200))?;
        }
    }
    Ok(file)
}

/// Fetches QEMU into `directory`, which the caller holds [locked](lock).
///
/// # Errors
/// Where there is no archive or keyring, or a step of the package manager fails. What was
/// downloaded stays for the next try.
pub(crate) fn fetch(directory: &Path, session: &mut Session) -> Result<Tree, Error> {
    let root = Path::new("/");
    let release = Release::of_system(root)?;
    let suites = release.suites();
    let archive = Archive::of_system(root, &release)?;

    let apt = Apt::lay(&directory.join("apt"), &archive.stanza(&suites))?;
    let newest = suites.last().cloned().unwrap_or_default();
    session
        .progress
        .step(&format!("no suitable QEMU here; fetching one from {newest} (about 40 MB, once)"));
    apt.run("update", &[], session)?;
    // A package that was left by an interrupted run and has been replaced since must not be mixed in.
    apt.run("autoclean", &[], session)?;
    apt.run("install", &["--yes", "--download-only", "-t", &newest, PACKAGE], session)?;

    session.progress.step("unpacking QEMU");
    let unpacked = directory.join("unpacked");
    tree::remove(&unpacked)?;
    fs::create_dir(&unpacked).map_err(Error::file("create", &unpacked))?;
    for package in apt.packages()? {
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        session.progress.detail(&name);
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(&package).arg(&unpacked);
        session.run_checked(command, "dpkg-deb --extract")?;
    }
    let tree = Tree::finish(&unpacked, directory)?;
    tree::remove(&unpacked)?;
    tree::remove(&apt.directory)?;
    session.progress.finish();
    Ok(tree)
}

/// The package manager with a configuration of its own.
struct Apt {
    directory: PathBuf,
}

impl Apt {
    /// Lays out configuration, state and cache in `directory`; keeps what was downloaded before.
    fn lay(directory: &Path, stanza: &str) -> Result<Apt, Error> {
        for folder in ["sources", "nothing", "state/lists/partial", "cache/archives/partial"] {
            let folder = directory.join(folder);
            fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        }
        let files = [
            ("sources/archive.sources", stanza),
            ("state/status", ""),
            ("apt.conf", &configuration(directory)),
        ];
        for (name, text) in files {
            let path = directory.join(name);
            fs::write(&path, text).map_err(Error::file("write", &path))?;
        }
        Ok(Apt { directory: directory.to_path_buf() })
    }

    /// Runs `apt-get COMMAND ARGUMENTS…`.
    fn run(&self, name: &str, arguments: &[&str], session: &mut Session) -> Result<(), Error> {
        let mut command = Command::new("apt-get");
        command.arg("--quiet").arg("--config-file").arg(self.directory.join("apt.conf"));
        command.arg(name).args(arguments).env("LC_ALL", "C");
        session.run_checked(command, &format!("apt-get {name}"))
    }

    /// The downloaded packages.
    fn packages(&self) -> Result<Vec<PathBuf>, Error> {
        let folder = self.directory.join("cache/archives");
        let entries = fs::read_dir(&folder).map_err(Error::file("read", &folder))?;
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        Ok(files.filter(|path| path.extension().is_some_and(|kind| kind == "deb")).collect())
    }
}

/// The private configuration. It is read after the system's, whose proxies and credentials stay in
/// force; hooks are cleared, and every path that would be written to lies in `directory`.
fn configuration(directory: &Path) -> String {
    format!(
        r#"#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Architectures;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::Contents-deb;
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Default-Release "";
APT::Immediate-Configure "false";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{directory}/sources";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "{directory}/nothing";
Dir::Etc::Trusted "/dev/null";
Dir::Etc::TrustedParts "{directory}/nothing";
Dir::State "{directory}/state";
Dir::State::Lists "lists";
Dir::State::Status "{directory}/state/status";
Dir::Cache "{directory}/cache";
Dir::Cache::Archives "archives";
Dir::Log "{directory}/nothing";
"#,
        directory = directory.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_the_directory() {
        let text = configuration(Path::new("/d"));
        for key in ["Dir::State ", "Dir::Cache ", "Dir::Log ", "Dir::State::Status "] {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap();
            assert!(line.contains("\"/d/"), "{line}");
        }
    }
}
