//! The command line: words that begin with `axon.` are the machine's, the rest the application's.
//!
//! | word | meaning |
//! |---|---|
//! | `axon.log=LEVEL` | record lines up to this level: `off`, `error`, `warn`, `info` (default), `debug`, `trace` |
//! | `axon.echo=LEVEL` | echo lines up to this level on the console; default: all that is recorded |
//! | `axon.interactive` | a person sits at the console |
//! | `axon.icount` | the time-stamp counter counts guest instructions, at 1 GHz |

use alloc::string::String;
use alloc::vec::Vec;

use log::LevelFilter;

const PREFIX: &str = "axon.";

/// What the command line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Level up to which the text log records.
    pub record: LevelFilter,
    /// Level up to which it echoes.
    pub echo: LevelFilter,
    /// A person sits at the console.
    pub interactive: bool,
    /// The time-stamp counter counts instructions.
    pub instruction_count: bool,
    /// Words for the application.
    pub arguments: Vec<String>,
    /// Words of the machine that it does not know.
    pub unknown: Vec<String>,
}

impl Options {
    /// Reads a command line. Bytes that are not UTF-8 become replacement characters.
    pub fn read(line: &[u8]) -> Options {
        let mut options = Options {
            record: LevelFilter::Info,
            echo: LevelFilter::Trace,
            interactive: false,
            instruction_count: false,
            arguments: Vec::new(),
            unknown: Vec::new(),
        };
        for word in String::from_utf8_lossy(line).split_ascii_whitespace() {
            match word.strip_prefix(PREFIX) {
                Some(own) if options.apply(own).is_none() => options.unknown.push(word.into()),
                Some(_) => {}
                None => options.arguments.push(word.into()),
            }
        }
        options
    }

    /// `None` for a word that is unknown or malformed.
    fn apply(&mut self, word: &str) -> Option<()> {
        match word.split_once('=') {
            None if word == "interactive" => self.interactive = true,
            None if word == "icount" => self.instruction_count = true,
            Some(("log", level)) => self.record = level.parse().ok()?,
            Some(("echo", level)) => self.echo = level.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted_out() {
        let options =
            Options::read(b" axon.icount  --json axon.log=debug axon.echo=WARN a=b axon.x ");
        assert!(options.instruction_count && !options.interactive);
        assert_eq!((options.record, options.echo), (LevelFilter::Debug, LevelFilter::Warn));
        assert_eq!(options.arguments, ["--json", "a=b"]);
        assert_eq!(options.unknown, ["axon.x"]);
    }

    #[test]
    fn malformed_words_change_nothing() {
        let options = Options::read(b"axon.log=loud axon.interactive=1 axon. \xff\xfe");
        assert_eq!(options.record, LevelFilter::Info);
        assert!(!options.interactive);
        assert_eq!(options.unknown.len(), 3);
        assert_eq!(options.arguments.len(), 1);
    }
}
