//! Which QEMU to use: `$AXON_QEMU`, one on the `PATH`, one fetched before, or one fetched now.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Unsuitable;
use crate::fetch::{self, Tree};
use crate::{Error, Session};

const PROGRAM: &str = "qemu-system-x86_64";

/// A version of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl Version {
    /// The first version with `vfio-user-pci`.
    pub const MINIMUM: Version = Version { major: 10, minor: 1 };

    /// From the first line of `qemu-system-x86_64 --version`.
    fn parse(output: &str) -> Option<Version> {
        let numbers = output.strip_prefix("QEMU emulator version ")?;
        let mut parts = numbers.split(|c: char| !c.is_ascii_digit());
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        Some(Version { major, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A QEMU for x86-64 guests that speaks vfio-user, and how to start it.
#[derive(Clone, Debug)]
pub struct Qemu {
    program: PathBuf,
    leading: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    location: PathBuf,
    version: Version,
}

impl Qemu {
    /// Finds a QEMU, or fetches one into `target/qemu` under `target_dir`.
    ///
    /// Order: `$AXON_QEMU`, the `PATH`, one fetched before, the distribution's package archive.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] where `$AXON_QEMU` does not serve; the errors of fetching.
    pub fn find(target_dir: &Path, session: &mut Session) -> Result<Qemu, Error> {
        if let Some(path) = std::env::var_os("AXON_QEMU").filter(|value| !value.is_empty()) {
            let path = PathBuf::from(path);
            return Qemu::plain(path.clone())
                .probe()
                .map_err(|reason| Error::Unsuitable { path, reason });
        }
        if let Some(found) = on_path().and_then(|path| Qemu::plain(path).probe().ok()) {
            return Ok(found);
        }
        let directory = target_dir.join("qemu");
        if let Some(found) = fetched_before(&directory) {
            return Ok(found);
        }
        // Another run may be fetching: wait for it, then look again.
        let _lock = fetch::lock(&directory, session)?;
        if let Some(found) = fetched_before(&directory) {
            return Ok(found);
        }
        let tree = fetch::fetch(&directory, session)?;
        let path = tree.program();
        Qemu::unpacked(&tree).probe().map_err(|reason| Error::Unsuitable { path, reason })
    }

    /// Where the program lies.
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// A command that starts it; the caller adds the arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.leading).envs(self.environment.iter().cloned());
        command
    }

    /// An installed program. The version is not known before [`Qemu::probe`].
    fn plain(program: PathBuf) -> Qemu {
        Qemu {
            location: program.clone(),
            program,
            leading: Vec::new(),
            environment: Vec::new(),
            version: Version { major: 0, minor: 0 },
        }
    }

    /// The program of an unpacked package tree: started through the tree's own dynamic loader, so
    /// that it meets the C library it was built for.
    fn unpacked(tree: &Tree) -> Qemu {
        let leading: [OsString; 8] = [
            "--inhibit-cache".into(),
            "--library-path".into(),
            tree.libraries().into(),
            tree.program().into(),
            "-L".into(),
            tree.data("qemu").into(),
            "-L".into(),
            tree.data("seabios").into(),
        ];
        Qemu {
            program: tree.loader(),
            leading: leading.into(),
            environment: vec![("QEMU_MODULE_DIR", tree.modules().into())],
            location: tree.program(),
            version: Version { major: 0, minor: 0 },
        }
    }

    /// Asks the program for its version and for the device.
    fn probe(mut self) -> Result<Qemu, Unsuitable> {
        let banner = self.ask(&["--version"])?;
        let line = banner.lines().next().unwrap_or_default();
        self.version =
            Version::parse(line).ok_or_else(|| Unsuitable::NoVersion(line.to_string()))?;
        if self.version < Version::MINIMUM {
            return Err(Unsuitable::TooOld(self.version));
        }
        // Asking for one device loads no foreign module; `-device help` would load them all.
        let device = self.ask(&["-device", "vfio-user-pci,help"]);
        match device {
            Ok(text) if text.contains("vfio-user-pci") => Ok(self),
            _ => Err(Unsuitable::NoVfioUser),
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<String, Unsuitable> {
        let output = self
            .command()
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Unsuitable::DoesNotRun(error.to_string()))?;
        if !output.status.success() {
            return Err(Unsuitable::DoesNotRun(output.status.to_string()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The first `qemu-system-x86_64` on the `PATH`.
fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file())
}

/// What an earlier run fetched; a tree that no longer works is fetched again.
fn fetched_before(directory: &Path) -> Option<Qemu> {
    let tree = Tree::at(directory)?;
    Qemu::unpacked(&tree).probe().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that answers as QEMU would.
    fn probe(script: &str) -> Result<Qemu, Unsuitable> {
        let mut shell = Qemu::plain("/bin/sh".into());
        shell.leading = vec!["-c".into(), script.into(), "qemu".into()];
        shell.probe()
    }

    #[test]
    fn version_line_is_understood() {
        let line = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)";
        assert_eq!(Version::parse(line), Some(Version { major: 11, minor: 1 }));
        assert_eq!(
            Version::parse("QEMU emulator version 7.2.0"),
            Some(Version { major: 7, minor: 2 })
        );
        assert_eq!(Version::parse("GNU bash, version 5.2"), None);
        assert_eq!(Version::parse("QEMU emulator version "), None);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(Version { major: 10, minor: 0 } < Version::MINIMUM);
        assert!(Version { major: 9, minor: 20 } < Version::MINIMUM);
        assert!(Version { major: 10, minor: 10 } > Version::MINIMUM);
    }

    #[test]
    fn a_suitable_program_is_taken() {
        let script = "case $1 in --version) echo QEMU emulator version 10.1.0;; \
                      *) echo vfio-user-pci options:;; esac";
        assert_eq!(probe(script).unwrap().version(), Version::MINIMUM);
    }

    #[test]
    fn an_old_program_is_refused_with_its_version() {
        assert_eq!(
            probe("echo QEMU emulator version 7.2.0").unwrap_err(),
            Unsuitable::TooOld(Version { major: 7, minor: 2 })
        );
    }

    #[test]
    fn a_program_without_the_device_is_refused() {
        let script = "case $1 in --version) echo QEMU emulator version 10.1.0;; *) exit 1;; esac";
        assert_eq!(probe(script).unwrap_err(), Unsuitable::NoVfioUser);
    }

    #[test]
    fn something_else_is_refused() {
        assert_eq!(probe("echo hello").unwrap_err(), Unsuitable::NoVersion("hello".into()));
        assert!(matches!(probe("exit 3").unwrap_err(), Unsuitable::DoesNotRun(_)));
        let missing = Qemu::plain("/nonexistent/qemu".into()).probe();
        assert!(matches!(missing.unwrap_err(), Unsuitable::DoesNotRun(_)));
    }
}
