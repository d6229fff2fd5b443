//! The frame around a command: comment, `$x =`, `expect`. Pure text work, no device.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use axon_platform::Errno;

use crate::answer::{Failure, Outcome};
use crate::number;

/// One line, taken apart.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Line<'a> {
    /// Variable that takes the first value of the answer.
    pub assign: Option<&'a str>,
    /// What the answer has to be.
    pub expect: Option<Expect<'a>>,
    /// The command and its words; empty for an `expect` about the previous answer.
    pub command: Vec<&'a str>,
}

/// What an answer is compared with.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Expect<'a> {
    /// `ok` or an error number; `None` where only keys are compared.
    pub wanted: Option<Wanted>,
    /// Keys and values that the answer must have.
    pub pairs: Vec<(&'a str, &'a str)>,
}

/// The outcomes that can be asked for.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Wanted {
    /// `ok`
    Ok,
    /// `error` with this number.
    Error(Errno),
}

impl<'a> Line<'a> {
    /// Takes a line apart; `None` for an empty one.
    pub fn parse(text: &'a str) -> Option<Result<Line<'a>, Failure>> {
        let text = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() { None } else { Some(Self::frame(&words)) }
    }

    fn frame(mut words: &[&'a str]) -> Result<Line<'a>, Failure> {
        let mut line = Line::default();
        loop {
            words = match words {
                [name, "=", rest @ ..] if name.starts_with('$') => {
                    line.assign_to(name)?;
                    rest
                }
                ["expect", rest @ ..] => line.expect_from(rest)?,
                command => {
                    line.command = command.to_vec();
                    break;
                }
            };
        }
        if line.command.is_empty() && (line.expect.is_none() || line.assign.is_some()) {
            return Err(Failure::invalid("there is no command behind the `=`"));
        }
        Ok(line)
    }

    fn assign_to(&mut self, name: &'a str) -> Result<(), Failure> {
        let name = &name[1..];
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(Failure::invalid(format_args!("`${name}` is not a variable name")));
        }
        match self.assign.replace(name) {
            None => Ok(()),
            Some(_) => Err(Failure::invalid("a line sets one variable only")),
        }
    }

    /// Takes the outcome and the pairs behind `expect`; answers what is left.
    fn expect_from<'w>(&mut self, words: &'w [&'a str]) -> Result<&'w [&'a str], Failure> {
        let wanted = words.first().and_then(|word| Wanted::parse(word));
        let rest = if wanted.is_some() { &words[1..] } else { words };
        let is_assignment = matches!(rest, [name, "=", ..] if name.starts_with('$'));
        let count = match is_assignment {
            true => 0,
            false => rest.iter().take_while(|word| is_pair(word)).count(),
        };
        let (pairs, rest) = rest.split_at(count);
        if wanted.is_none() && (pairs.is_empty() || !rest.is_empty()) {
            return Err(Failure::invalid("expect what? `ok`, an error number, or key=value"));
        }
        let pairs = pairs.iter().filter_map(|word| word.split_once('=')).collect();
        match self.expect.replace(Expect { wanted, pairs }) {
            None => Ok(rest),
            Some(_) => Err(Failure::invalid("a line has one `expect` only")),
        }
    }
}

impl Wanted {
    fn parse(word: &str) -> Option<Wanted> {
        match word {
            "ok" => Some(Wanted::Ok),
            name => Errno::from_name(name).map(Wanted::Error),
        }
    }
}

impl Expect<'_> {
    /// `None` where the answer is as asked for, else what was asked for.
    pub fn complaint(&self, outcome: &Outcome) -> Option<String> {
        let wanted = match (self.wanted, outcome) {
            (None, _) | (Some(Wanted::Ok), Ok(_)) => true,
            (Some(Wanted::Error(errno)), Err(failure)) => failure.errno == errno,
            _ => false,
        };
        if !wanted {
            return Some(match self.wanted {
                Some(Wanted::Error(errno)) => errno.to_string(),
                _ => "ok".into(),
            });
        }
        let odd = self.pairs.iter().find(|(key, value)| !has_pair(outcome, key, value))?;
        Some(alloc::format!("{}={}", odd.0, odd.1))
    }
}

/// Whether the answer says `key=value`. The sentence of an error counts too: some carry numbers.
fn has_pair(outcome: &Outcome, key: &str, value: &str) -> bool {
    match outcome {
        Ok(fields) => fields.get(key).is_some_and(|found| same(&found.to_string(), value)),
        Err(failure) => failure
            .sentence
            .split([' ', '(', ')', ','])
            .filter_map(|word| word.split_once('='))
            .any(|(name, found)| name == key && same(found, value)),
    }
}

/// Equal as text or as numbers: `size=4K` finds `size=4096`.
fn same(found: &str, wanted: &str) -> bool {
    let read = |text| number::number("value", text).ok();
    found == wanted || read(found).is_some_and(|found| read(wanted) == Some(found))
}

fn is_pair(word: &str) -> bool {
    word.split_once('=').is_some_and(|(key, _)| !key.is_empty() && !key.starts_with('$'))
}

/// Characters of a variable name.
pub fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::answer::Fields;

    fn parse(text: &str) -> Line<'_> {
        Line::parse(text).unwrap().unwrap()
    }

    #[test]
    fn empty_lines_and_comments_are_nothing() {
        for text in ["", "  ", "# comment", "   # comment"] {
            assert_eq!(Line::parse(text), None);
        }
        assert_eq!(parse("mem # how much").command, ["mem"]);
    }

    #[test]
    fn frames_nest_in_either_order() {
        for text in ["$h = expect ok alloc device 4K", "expect ok $h = alloc device 4K"] {
            let line = parse(text);
            assert_eq!(line.assign, Some("h"));
            assert_eq!(line.expect.unwrap().wanted, Some(Wanted::Ok));
            assert_eq!(line.command, ["alloc", "device", "4K"]);
        }
    }

    #[test]
    fn an_expect_may_be_about_the_previous_answer() {
        let line = parse("expect ENOMEM");
        assert_eq!(line.expect.unwrap().wanted, Some(Wanted::Error(Errno::ENOMEM)));
        assert!(line.command.is_empty());
        let line = parse("expect size=4K pa=0x1000000");
        assert_eq!(line.expect.unwrap().pairs, [("size", "4K"), ("pa", "0x1000000")]);
    }

    #[test]
    fn a_command_with_options_is_not_a_pair() {
        let line = parse("expect EINVAL fault slow=3");
        assert_eq!(line.command, ["fault", "slow=3"]);
        assert!(line.expect.unwrap().pairs.is_empty());
    }

    #[test]
    fn half_lines_are_refused() {
        for text in [
            "expect",
            "expect maybe mem",
            "$x =",
            "$ = mem",
            "$x-y = mem",
            "$x = $y = mem",
            "expect ok expect ok mem",
            "$x = expect ok",
            "expect a=1 mem",
        ] {
            assert!(Line::parse(text).unwrap().is_err(), "{text}");
        }
    }

    #[test]
    fn answers_are_compared_by_outcome_and_value() {
        let fields = Ok(Fields::new().with("size", 4096u64).address("pa", 0x1000));
        let error: Outcome = Err(Failure::new(Errno::ENOMEM, "no memory (asked=8192 free=4096)"));
        let check = |text, outcome| parse(text).expect.unwrap().complaint(outcome);
        assert_eq!(check("expect ok", &fields), None);
        assert_eq!(check("expect size=4K pa=4096", &fields), None);
        assert_eq!(check("expect size=8K", &fields), Some("size=8K".into()));
        assert_eq!(check("expect EINVAL", &fields), Some("EINVAL".into()));
        assert_eq!(check("expect ENOMEM asked=8K free=0x1000", &error), None);
        assert_eq!(check("expect ok", &error), Some("ok".into()));
    }

    proptest! {
        #[test]
        fn nothing_panics(words in proptest::collection::vec(
            prop_oneof!["\\PC{0,6}", Just("expect".into()), Just("=".into()), Just("$x".into()),
                Just("ok".into()), Just("a=b".into())], 0..8)
        ) {
            let text = words.join(" ");
            if let Some(Ok(Line { expect: Some(expect), .. })) = Line::parse(&text) {
                let _ = expect.complaint(&Ok(Fields::new()));
            }
        }
    }
}
