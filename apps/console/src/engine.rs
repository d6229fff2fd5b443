//! The interpreter's frame: variables, `expect`, the count of failures. What a command does is
//! behind [`Commands`].

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::Future;

use crate::answer::{Failure, Fields, Outcome, Style};
use crate::line::{Line, is_name};

/// Something that carries out commands.
pub trait Commands {
    /// Carries out one command; `words` starts with its name and is never empty. Lines of a
    /// listing go to `rows`.
    fn run(
        &mut self,
        words: &[&str],
        rows: &mut dyn FnMut(&Fields),
    ) -> impl Future<Output = Outcome>;
}

/// Where lines go.
pub trait Sink {
    /// One line of answer.
    fn answer(&mut self, line: &str);
    /// One line for whoever looks for what went wrong.
    fn complain(&mut self, line: &str);
}

/// Interpreter state that outlives a line.
pub struct Engine<C> {
    commands: C,
    style: Style,
    /// In a script an error that nobody expected is a failure.
    strict: bool,
    variables: BTreeMap<String, String>,
    number: u64,
    previous: Option<Previous>,
    failures: u64,
}

/// The command that a bare `expect` is about.
struct Previous {
    number: u64,
    command: String,
    outcome: Outcome,
    /// An error that the next line may still ask for.
    unasked: bool,
}

impl<C: Commands> Engine<C> {
    /// An interpreter; `strict` for scripts.
    pub fn new(commands: C, style: Style, strict: bool) -> Self {
        Engine {
            commands,
            style,
            strict,
            variables: BTreeMap::new(),
            number: 0,
            previous: None,
            failures: 0,
        }
    }

    /// Carries out one line; `true` where it was `quit`.
    pub async fn line(&mut self, text: &str, sink: &mut impl Sink) -> bool {
        self.number += 1;
        let Some(parsed) = Line::parse(text) else { return false };
        let line = match parsed {
            Ok(line) => line,
            Err(failure) => {
                self.settle(sink);
                self.finish_command(text, Err(failure), false, sink);
                return false;
            }
        };
        if line.command.is_empty() {
            self.check_previous(&line, sink);
            return false;
        }
        self.settle(sink);
        if line.command == ["quit"] {
            sink.answer(&self.style.answer(&Ok(Fields::new())));
            return true;
        }
        let outcome = self.run(&line, sink).await;
        if let (Some(name), Ok(fields)) = (line.assign, &outcome)
            && let Some(value) = fields.first()
        {
            self.variables.insert(name.into(), value.to_string());
        }
        let complaint = line.expect.as_ref().and_then(|expect| self.complaint(expect, &outcome));
        self.finish_command(text, outcome, line.expect.is_some(), sink);
        if let Some(wanted) = complaint {
            self.fail(&wanted, sink);
        }
        false
    }

    /// The input ends: how many failures there were.
    pub fn end(&mut self, sink: &mut impl Sink) -> u64 {
        self.settle(sink);
        self.failures
    }

    async fn run(&mut self, line: &Line<'_>, sink: &mut impl Sink) -> Outcome {
        let words = line
            .command
            .iter()
            .map(|word| self.substitute(word))
            .collect::<Result<Vec<String>, Failure>>()?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let style = self.style;
        self.commands.run(&words, &mut |row| sink.answer(&style.row(row))).await
    }

    /// A bare `expect`: answers `ok` or what is different.
    fn check_previous(&mut self, line: &Line<'_>, sink: &mut impl Sink) {
        let complaint = match (&self.previous, &line.expect) {
            (None, _) | (_, None) => Some("there is no previous answer".into()),
            (Some(previous), Some(expect)) => self
                .complaint(expect, &previous.outcome)
                .map(|wanted| alloc::format!("expected {wanted}")),
        };
        if let Some(previous) = &mut self.previous {
            previous.unasked = false;
        }
        match complaint {
            None => sink.answer(&self.style.answer(&Ok(Fields::new()))),
            Some(sentence) => {
                sink.answer(&self.style.answer(&Err(Failure::invalid(&sentence))));
                self.fail(&sentence, sink);
            }
        }
    }

    /// What an answer is not, variables put in.
    fn complaint(&self, expect: &crate::line::Expect<'_>, outcome: &Outcome) -> Option<String> {
        let values: Result<Vec<(&str, String)>, Failure> =
            expect.pairs.iter().map(|(key, value)| Ok((*key, self.substitute(value)?))).collect();
        match values {
            Err(failure) => Some(failure.sentence),
            Ok(values) => crate::line::Expect {
                wanted: expect.wanted,
                pairs: values.iter().map(|(key, value)| (*key, value.as_str())).collect(),
            }
            .complaint(outcome),
        }
    }

    fn finish_command(&mut self, text: &str, outcome: Outcome, asked: bool, sink: &mut impl Sink) {
        sink.answer(&self.style.answer(&outcome));
        self.previous = Some(Previous {
            number: self.number,
            command: text.trim().into(),
            unasked: !asked && outcome.is_err(),
            outcome,
        });
    }

    /// The line after an error did not ask for it.
    fn settle(&mut self, sink: &mut impl Sink) {
        let unasked = self.previous.as_ref().is_some_and(|previous| previous.unasked);
        if unasked && self.strict {
            self.fail("ok", sink);
        }
        if let Some(previous) = &mut self.previous {
            previous.unasked = false;
        }
    }

    fn fail(&mut self, wanted: &str, sink: &mut impl Sink) {
        self.failures += 1;
        let wanted = wanted.strip_prefix("expected ").unwrap_or(wanted);
        match &self.previous {
            Some(Previous { number, command, outcome, .. }) => {
                let answer = Style::Words.answer(outcome);
                sink.complain(&alloc::format!(
                    "line {number}: `{command}` answered `{answer}`; expected {wanted}"
                ));
            }
            None => sink.complain(&alloc::format!("line {}: {wanted}", self.number)),
        }
    }

    /// The word with every `$name` replaced by its value.
    fn substitute(&self, word: &str) -> Result<String, Failure> {
        let mut parts = word.split('$');
        let mut whole = String::from(parts.next().unwrap_or_default());
        for part in parts {
            let end = part.find(|letter| !is_name(letter)).unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            let value = self
                .variables
                .get(name)
                .ok_or_else(|| Failure::invalid(format_args!("${name} is not set")))?;
            whole.push_str(value);
            whole.push_str(rest);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::pin::pin;
    use core::task::{Context, Poll, Waker};
    use std::vec::Vec;

    use axon_platform::Errno;
    use proptest::prelude::*;

    use super::*;

    /// `give N`, `refuse`, `list`.
    struct Fake;

    impl Commands for Fake {
        async fn run(&mut self, words: &[&str], rows: &mut dyn FnMut(&Fields)) -> Outcome {
            match words {
                ["give", value] => Ok(Fields::new().with("value", value.to_string())),
                ["refuse"] => Err(Failure::new(Errno::EBUSY, "taken")),
                ["list"] => {
                    rows(&Fields::new().with("row", 1u64));
                    rows(&Fields::new().with("row", 2u64));
                    Ok(Fields::new().with("count", 2u64))
                }
                _ => Err(Failure::invalid("what?")),
            }
        }
    }

    #[derive(Default)]
    struct Page {
        answers: Vec<String>,
        complaints: Vec<String>,
    }

    impl Sink for Page {
        fn answer(&mut self, line: &str) {
            self.answers.push(line.into());
        }

        fn complain(&mut self, line: &str) {
            self.complaints.push(line.into());
        }
    }

    fn run(script: &str) -> (Page, u64) {
        let mut page = Page::default();
        let mut engine = Engine::new(Fake, Style::Words, true);
        for line in script.lines() {
            let mut future = pin!(engine.line(line, &mut page));
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(false) => {}
                Poll::Ready(true) => break,
                Poll::Pending => panic!("nothing here waits"),
            }
        }
        let failures = engine.end(&mut page);
        (page, failures)
    }

    #[test]
    fn each_command_answers_with_one_line_and_listings_with_more() {
        let (page, failures) = run("give 7\n# comment\n\nlist\n");
        assert_eq!(page.answers, ["ok value=7", "row=1", "row=2", "ok count=2"]);
        assert_eq!(failures, 0);
    }

    #[test]
    fn variables_take_the_first_value() {
        let (page, _) = run("$x = give 7\ngive $x\ngive a$x-$x\nexpect value=a$x-7\ngive $y");
        assert_eq!(page.answers[1], "ok value=7");
        assert_eq!(page.answers[2], "ok value=a7-7");
        assert_eq!(page.answers[3], "ok");
        assert_eq!(page.answers[4], "error EINVAL $y is not set");
    }

    #[test]
    fn an_error_that_nobody_expects_fails_the_script_and_it_goes_on() {
        let (page, failures) = run("refuse\ngive 1\nrefuse");
        assert_eq!(failures, 2);
        assert_eq!(page.answers.len(), 3);
        assert_eq!(
            page.complaints[0],
            "line 1: `refuse` answered `error EBUSY taken`; expected ok"
        );
    }

    #[test]
    fn an_expected_error_is_no_failure_before_or_after_it() {
        let (page, failures) = run("expect EBUSY refuse\nrefuse\nexpect EBUSY\nexpect EBUSY");
        assert_eq!((failures, page.complaints.len()), (0, 0));
        assert_eq!(page.answers[2], "ok");
    }

    #[test]
    fn a_wrong_expectation_fails_once() {
        for script in ["expect EINVAL refuse", "refuse\nexpect EINVAL", "expect ok refuse"] {
            assert_eq!(run(script).1, 1, "{script}");
        }
        let (page, failures) = run("give 1\nexpect value=2");
        assert_eq!(failures, 1);
        assert_eq!(page.answers[1], "error EINVAL expected value=2");
        assert_eq!(page.complaints[0], "line 1: `give 1` answered `ok value=1`; expected value=2");
    }

    #[test]
    fn malformed_lines_are_failures_unless_asked_for() {
        assert_eq!(run("expect\ngive 1").1, 1);
        assert_eq!(run("expect\nexpect EINVAL").1, 0);
        assert_eq!(run("expect ok").1, 1, "there is no previous answer");
    }

    #[test]
    fn quit_ends_the_script() {
        let (page, failures) = run("give 1\nquit\nrefuse");
        assert_eq!(page.answers, ["ok value=1", "ok"]);
        assert_eq!(failures, 0);
    }

    proptest! {
        #[test]
        fn random_scripts_answer_every_command_with_one_line(
            lines in proptest::collection::vec(
                proptest::collection::vec(
                    prop_oneof!["\\PC{0,5}", Just("expect".into()), Just("=".into()),
                        Just("$x".into()), Just("ok".into()), Just("EBUSY".into()),
                        Just("give".into()), Just("refuse".into()), Just("value=1".into())],
                    0..6),
                0..8)
        ) {
            let lines: Vec<String> =
                lines.iter().map(|words| words.join(" ").replace(['\n', '\r'], " ")).collect();
            let commands = lines.iter().filter(|line| Line::parse(line).is_some()).count();
            let quits = lines.iter().any(|line| line.contains("quit"));
            let (page, _) = run(&lines.join("\n"));
            prop_assert!(quits || page.answers.len() == commands);
        }
    }
}
