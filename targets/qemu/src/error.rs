//! What can keep the launcher from running a VM, each a sentence to act on.

use std::io;
use std::path::PathBuf;

use crate::guest::{LAUNCHER_FAILURE, USAGE};
use crate::{Ending, Version};

const INSTALL_HINT: &str =
    "install QEMU 10.1 or newer with vfio-user-pci and set AXON_QEMU to its qemu-system-x86_64";

/// Why the launcher gave up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended with a failure.
    #[error("{program} failed ({status}):\n{output}")]
    Failed {
        /// The program and its sub-command.
        program: String,
        /// How it ended.
        status: String,
        /// The last lines it printed.
        output: String,
    },
    /// A signal ended the launcher.
    #[error("ended by signal {signal}")]
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// KVM gave the guest up.
    #[error("KVM does not run this guest here; --accel tcg does")]
    Kvm,
    /// A model server did not start.
    #[error("model {index}: {words}")]
    Model {
        /// Index of its device.
        index: usize,
        /// Whether its arguments, which the user gave, were wrong.
        usage: bool,
        /// What it said.
        words: String,
    },
    /// A model server ended before its VM.
    #[error("model {index} ended before the VM")]
    ModelLost {
        /// Index of its device.
        index: usize,
    },
    /// `AXON_QEMU` names a program that does not serve.
    #[error("AXON_QEMU={path} does not serve: {reason}", path = path.display())]
    Unsuitable {
        /// The path in the variable.
        path: PathBuf,
        /// What is wrong with it.
        reason: Unsuitable,
    },
    /// No QEMU at hand, and this system is none that one can be fetched for.
    #[error(
        "no suitable QEMU was found, and fetching one works on Debian for x86-64 only (this is {system}); {INSTALL_HINT}"
    )]
    ForeignSystem {
        /// Name of the system.
        system: String,
    },
    /// The package manager's sources name no archive for this system.
    #[error(
        "no suitable QEMU was found, and the package sources under /etc/apt name no archive with component main for {codename}; {INSTALL_HINT}"
    )]
    NoArchive {
        /// Code name of the system's release.
        codename: String,
    },
    /// No keyring to check the archive with.
    #[error("refusing to fetch QEMU unchecked: there is no archive keyring ({keyring} is missing and the package sources name no other); {INSTALL_HINT}", keyring = keyring.display())]
    NoKeyring {
        /// Where the keyring was expected.
        keyring: PathBuf,
    },
}

/// Why a QEMU does not serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// It could not be started, or failed.
    #[error("it does not run ({0})")]
    DoesNotRun(String),
    /// Its version line was not understood.
    #[error("it is no QEMU: `--version` printed {0:?}")]
    NoVersion(String),
    /// It is older than what is needed.
    #[error("it is version {0}, needed is {min} or newer", min = Version::MINIMUM)]
    TooOld(Version),
    /// It was built without the device.
    #[error("it has no vfio-user-pci device")]
    NoVfioUser,
}

impl Error {
    /// The exit code of a launcher that ends with this error: 125, 2 where the user's words were
    /// wrong, or 128 and the signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Interrupted { signal } => Ending::Interrupted(*signal).exit_code(),
            Error::Model { usage: true, .. } => USAGE,
            _ => LAUNCHER_FAILURE,
        }
    }

    /// For `map_err`: `action` on `path` failed.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { action, path, source }
    }

    /// For `map_err`: `program` did not start.
    pub(crate) fn start(program: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let program = program.into();
        move |source| Error::Start { program, source }
    }
}
