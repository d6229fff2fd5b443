//! From bytes of a terminal or a pipe to lines: echo, backspace, end of input.

use alloc::string::String;
use alloc::vec::Vec;

/// Longest line; a `write` of 64 KiB needs half of it.
const LIMIT_BYTES: usize = 256 << 10;

const INTERRUPT: u8 = 0x03;
const END_OF_INPUT: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const ERASE_LINE: u8 = 0x15;
const ESCAPE: u8 = 0x1b;
const DELETE: u8 = 0x7f;

/// What a byte came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing to do.
    None,
    /// Show this on the terminal.
    Echo(Vec<u8>),
    /// A line is complete.
    Line(String),
    /// A line was longer than 256 KiB and is lost.
    TooLong,
    /// The input ends.
    End,
}

/// The line being typed.
#[derive(Default)]
pub struct Editor {
    line: Vec<u8>,
    /// A person types: keys edit, and what they type is to be shown.
    interactive: bool,
    overrun: bool,
    after_return: bool,
    escape: Escape,
}

/// Where an escape sequence (an arrow key) stands; all of them are skipped.
#[derive(Default, PartialEq, Eq)]
enum Escape {
    #[default]
    Outside,
    Begun,
    Parameters,
}

impl Editor {
    /// An empty line.
    pub fn new(interactive: bool) -> Self {
        Editor { interactive, ..Editor::default() }
    }

    /// Takes one byte.
    pub fn feed(&mut self, byte: u8) -> Event {
        let after_return = core::mem::take(&mut self.after_return);
        if self.interactive && self.skip_escape(byte) {
            return Event::None;
        }
        match byte {
            b'\n' if after_return => Event::None,
            b'\r' | b'\n' => {
                self.after_return = byte == b'\r';
                self.complete()
            }
            END_OF_INPUT if self.line.is_empty() => Event::End,
            byte if self.interactive && (byte < b' ' || byte == DELETE) => self.edit(byte),
            byte => self.insert(byte),
        }
    }

    /// The input ended without a byte for it; an unfinished line still counts.
    pub fn end(&mut self) -> Event {
        if self.line.is_empty() && !self.overrun { Event::End } else { self.complete() }
    }

    fn complete(&mut self) -> Event {
        let line = core::mem::take(&mut self.line);
        if core::mem::take(&mut self.overrun) {
            return Event::TooLong;
        }
        Event::Line(String::from_utf8_lossy(&line).into_owned())
    }

    fn insert(&mut self, byte: u8) -> Event {
        if self.line.len() >= LIMIT_BYTES {
            self.overrun = true;
            return Event::None;
        }
        self.line.push(byte);
        if self.interactive { Event::Echo([byte].into()) } else { Event::None }
    }

    fn edit(&mut self, byte: u8) -> Event {
        match byte {
            BACKSPACE | DELETE => match self.erase_letter() {
                true => Event::Echo(b"\x08 \x08".into()),
                false => Event::None,
            },
            INTERRUPT | ERASE_LINE => {
                let mut echo = Vec::new();
                while self.erase_letter() {
                    echo.extend_from_slice(b"\x08 \x08");
                }
                self.overrun = false;
                Event::Echo(echo)
            }
            _ => Event::None,
        }
    }

    /// Takes the last letter, all bytes of it.
    fn erase_letter(&mut self) -> bool {
        while let Some(byte) = self.line.pop() {
            if byte & 0xc0 != 0x80 {
                return true;
            }
        }
        false
    }

    fn skip_escape(&mut self, byte: u8) -> bool {
        let (next, skip) = match (&self.escape, byte) {
            (Escape::Outside, ESCAPE) => (Escape::Begun, true),
            (Escape::Outside, _) => (Escape::Outside, false),
            (Escape::Begun, b'[' | b'O') => (Escape::Parameters, true),
            (Escape::Parameters, 0x20..=0x3f) => (Escape::Parameters, true),
            (Escape::Begun | Escape::Parameters, b'\r' | b'\n') => (Escape::Outside, false),
            (Escape::Begun | Escape::Parameters, _) => (Escape::Outside, true),
        };
        self.escape = next;
        skip
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    /// The lines that the bytes come to, and what a terminal would show.
    fn feed(interactive: bool, bytes: &[u8]) -> (Vec<String>, Vec<u8>) {
        let mut editor = Editor::new(interactive);
        let (mut lines, mut shown) = (Vec::new(), Vec::new());
        for byte in bytes {
            match editor.feed(*byte) {
                Event::Line(line) => lines.push(line),
                Event::Echo(echo) => shown.extend(echo),
                Event::End => lines.push("END".to_string()),
                Event::TooLong => lines.push("TOO LONG".to_string()),
                Event::None => {}
            }
        }
        (lines, shown)
    }

    #[test]
    fn every_kind_of_line_end_counts_once() {
        assert_eq!(feed(false, b"a\rb\nc\r\nd\n\n").0, ["a", "b", "c", "d", ""]);
    }

    #[test]
    fn keys_edit_only_for_a_person() {
        let typed = b"ax\x7fb\x1b[A\x1b[1;5Dc\r";
        assert_eq!(feed(true, typed).0, ["abc"]);
        assert_eq!(feed(true, "ä\x08b\r".as_bytes()).0, ["b"]);
        assert_eq!(feed(true, b"abc\x03d\r").0, ["d"]);
        assert_eq!(feed(true, b"ax\x7f").1, b"ax\x08 \x08");
        assert_eq!(feed(false, b"ax\x7f\n").0, ["ax\x7f"]);
        assert!(feed(false, b"abc\n").1.is_empty());
    }

    #[test]
    fn the_end_is_a_byte_or_the_end() {
        assert_eq!(feed(true, b"\x04").0, ["END"]);
        let mut editor = Editor::new(false);
        editor.feed(b'q');
        assert_eq!(editor.end(), Event::Line("q".into()));
        assert_eq!(editor.end(), Event::End);
    }

    #[test]
    fn an_endless_line_is_bounded() {
        let mut bytes = vec![b'a'; LIMIT_BYTES + 10];
        bytes.extend(b"\nok\n");
        assert_eq!(feed(false, &bytes).0, ["TOO LONG", "ok"]);
    }

    proptest! {
        #[test]
        fn nothing_panics(interactive: bool, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            feed(interactive, &bytes);
        }
    }
}
