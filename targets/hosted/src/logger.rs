//! The text log of a hosted program: standard error, so that answers on standard output stay clean.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};

/// Lines of the level that the program was started with, without a time: virtual time means
/// nothing to a reader.
struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_ascii_lowercase();
            // A reader that went away is no reason to stop a run.
            let _ = writeln!(std::io::stderr().lock(), "{level}: {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// Starts the log. A second call, or a program with a log of its own, changes nothing.
pub(crate) fn install(level: LevelFilter) {
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}
