//! What a command answers, as words or as JSON.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

use axon_platform::Errno;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// One value of an `ok` line or of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A count or size, decimal.
    Number(u64),
    /// An address or register value, `0x` hex.
    Address(u64),
    /// 32 bits, always eight hex digits.
    Word(u32),
    /// Yes or no.
    Flag(bool),
    /// Anything else; quoted where it holds blanks.
    Text(Cow<'static, str>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Address(address) => write!(f, "{address:#x}"),
            Value::Word(word) => write!(f, "{word:#010x}"),
            Value::Flag(flag) => flag.fmt(f),
            Value::Text(text) if text.is_empty() || text.contains([' ', '"']) => {
                write!(f, "{:?}", text.as_ref())
            }
            Value::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Number(number) => to.serialize_u64(*number),
            Value::Flag(flag) => to.serialize_bool(*flag),
            Value::Text(text) => to.serialize_str(text),
            Value::Address(_) | Value::Word(_) => to.collect_str(self),
        }
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Value::Number(number as u64)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Flag(flag)
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(Cow::Owned(text))
    }
}

/// Key of [`Fields::line`].
const LINE: &str = "line";

/// Keys and values in their fixed order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// No key.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of text that is printed as it is; in JSON under the key `line`.
    pub fn line(text: &str) -> Self {
        Fields(Vec::from([(LINE, Value::Text(Cow::Owned(text.into())))]))
    }

    /// Appends a key.
    #[must_use]
    pub fn with(self, key: &'static str, value: impl Into<Value>) -> Self {
        self.with_value(key, value.into())
    }

    /// Once in the image: there are hundreds of callers.
    #[inline(never)]
    fn with_value(mut self, key: &'static str, value: Value) -> Self {
        self.0.push((key, value));
        self
    }

    /// Appends an address, register value or map.
    #[must_use]
    pub fn address(self, key: &'static str, value: u64) -> Self {
        self.with_value(key, Value::Address(value))
    }

    /// Value of the first key.
    pub fn first(&self) -> Option<&Value> {
        self.0.first().map(|(_, value)| value)
    }

    /// Value of this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(LINE, Value::Text(text))] = self.0.as_slice() {
            return f.write_str(text);
        }
        self.0.iter().enumerate().try_for_each(|(at, (key, value))| {
            let blank = if at == 0 { "" } else { " " };
            write!(f, "{blank}{key}={value}")
        })
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Why a command did nothing, or not all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The number the Linux driver would have returned.
    pub errno: Errno,
    /// One sentence.
    pub sentence: String,
}

impl Failure {
    /// With any error number.
    pub fn new(errno: Errno, sentence: impl fmt::Display) -> Self {
        Failure { errno, sentence: sentence.to_string() }
    }

    /// A line that cannot be carried out as it is written: EINVAL, nothing done.
    #[cold]
    pub fn invalid(sentence: impl fmt::Display) -> Self {
        Failure::new(Errno::EINVAL, sentence)
    }

    /// A capability that this build does not have.
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Failure::new(Errno::EOPNOTSUPP, format_args!("{what} is not part of this build"))
    }
}

/// What one command line came to.
pub type Outcome = Result<Fields, Failure>;

/// How answers are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// `ok key=value …`, `error ERRNO sentence`.
    Words,
    /// One JSON object a line: `ok` first, then the same keys.
    Json,
}

impl Style {
    /// The one line that ends a command.
    pub fn answer(self, outcome: &Outcome) -> String {
        let mut line = String::new();
        let written = match (self, outcome) {
            (Style::Words, Ok(fields)) if fields.0.is_empty() => line.write_str("ok"),
            (Style::Words, Ok(fields)) => write!(line, "ok {fields}"),
            (Style::Words, Err(Failure { errno, sentence })) => {
                write!(line, "error {errno} {}", one_line(sentence))
            }
            (Style::Json, outcome) => line.write_str(&json(&JsonAnswer(outcome))),
        };
        debug_assert!(written.is_ok(), "a String takes everything");
        line
    }

    /// One line of a listing.
    pub fn row(self, fields: &Fields) -> String {
        match self {
            Style::Words => one_line(&fields.to_string()),
            Style::Json => json(fields),
        }
    }
}

/// The parser of whoever reads the answers counts lines: nothing may add one.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn json(value: &impl Serialize) -> String {
    // Strings, numbers and string keys only: nothing that JSON cannot say.
    serde_json::to_string(value).unwrap_or_else(|_| "{\"ok\":false}".into())
}

struct JsonAnswer<'a>(&'a Outcome);

impl Serialize for JsonAnswer<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("ok", &self.0.is_ok())?;
        match self.0 {
            Ok(fields) => {
                for (key, value) in &fields.0 {
                    map.serialize_entry(key, value)?;
                }
            }
            Err(failure) => {
                map.serialize_entry("error", failure.errno.name())?;
                map.serialize_entry("message", &failure.sentence)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Fields {
        Fields::new().with("handle", 1u64).address("pa", 0x1000000).with("size", 4096u64)
    }

    #[test]
    fn answers_in_words() {
        assert_eq!(Style::Words.answer(&Ok(sample())), "ok handle=1 pa=0x1000000 size=4096");
        assert_eq!(Style::Words.answer(&Ok(Fields::new())), "ok");
        assert_eq!(
            Style::Words.answer(&Err(Failure::invalid("two\nlines"))),
            "error EINVAL two lines"
        );
        let crc = Fields::new().with("crc", Value::Word(0xbeef));
        assert_eq!(Style::Words.answer(&Ok(crc)), "ok crc=0x0000beef");
    }

    #[test]
    fn answers_in_json_keep_keys_and_their_order() {
        assert_eq!(
            Style::Json.answer(&Ok(sample())),
            r#"{"ok":true,"handle":1,"pa":"0x1000000","size":4096}"#
        );
        assert_eq!(
            Style::Json.answer(&Err(Failure::invalid("say \"what\""))),
            r#"{"ok":false,"error":"EINVAL","message":"say \"what\""}"#
        );
        assert_eq!(Style::Json.row(&sample()), r#"{"handle":1,"pa":"0x1000000","size":4096}"#);
    }

    #[test]
    fn lines_of_text_are_printed_as_they_are() {
        let line = Fields::line("# HELP a \"b\"");
        assert_eq!(Style::Words.row(&line), "# HELP a \"b\"");
        assert_eq!(Style::Json.row(&line), r##"{"line":"# HELP a \"b\""}"##);
    }

    #[test]
    fn text_with_blanks_is_quoted() {
        let row = Fields::new().with("error", String::from("BAR 0 missing")).with("bdf", "00:01.0");
        assert_eq!(Style::Words.row(&row), "error=\"BAR 0 missing\" bdf=00:01.0");
    }
}
