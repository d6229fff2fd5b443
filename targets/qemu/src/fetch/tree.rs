//! The unpacked packages: which parts are kept, where things lie in them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// What QEMU needs at run time. The rest of the packages (maintainer tools, some of them
/// set-user-id) is left out.
const KEPT: [&str; 4] =
    ["usr/bin/qemu-system-x86_64", "usr/lib", "usr/share/qemu", "usr/share/seabios"];

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A directory that holds a complete unpacked QEMU.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The finished tree in `directory`, if there is one.
    pub(crate) fn at(directory: &Path) -> Option<Tree> {
        let tree = Tree { root: directory.join("tree") };
        tree.program().is_file().then_some(tree)
    }

    /// Moves what QEMU needs from `unpacked` to the finished tree in `directory`; the tree is
    /// there whole or not at all.
    pub(super) fn finish(unpacked: &Path, directory: &Path) -> Result<Tree, Error> {
        let staged = directory.join("tree.partial");
        let root = directory.join("tree");
        remove(&staged)?;
        for part in KEPT {
            let to = staged.join(part);
            let parent = to.parent().unwrap_or(&staged);
            fs::create_dir_all(parent).map_err(Error::file("create", parent))?;
            let from = unpacked.join(part);
            fs::rename(&from, &to).map_err(Error::file("move", from))?;
        }
        remove(&root)?;
        fs::rename(&staged, &root).map_err(Error::file("move", staged))?;
        Ok(Tree { root })
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.root.join("usr/bin/qemu-system-x86_64")
    }

    pub(crate) fn loader(&self) -> PathBuf {
        self.root.join(LIBRARIES).join("ld-linux-x86-64.so.2")
    }

    pub(crate) fn libraries(&self) -> PathBuf {
        self.root.join(LIBRARIES)
    }

    pub(crate) fn modules(&self) -> PathBuf {
        self.root.join(LIBRARIES).join("qemu")
    }

    /// A folder of read-only data, such as firmware.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.root.join("usr/share").join(name)
    }
}

/// Removes a directory with all that is in it; it may be absent.
pub(super) fn remove(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("remove", directory)(error))
        }
        _ => Ok(()),
    }
}
