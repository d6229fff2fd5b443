//! The VM's console on its way to the person: passed on as it comes, the report taken out.

use std::collections::VecDeque;

use crate::guest::{REPORT_MARK, START_OF_INPUT};

/// Lines that are kept for the case that the VM does not end.
const KEPT_LINES: usize = 12;

/// Follows what the VM prints.
#[derive(Debug, Default)]
pub(crate) struct Console {
    /// The line that is being printed, without its end.
    line: Vec<u8>,
    /// How much of `line` was passed on.
    passed: usize,
    last: VecDeque<String>,
    report: Option<String>,
}

impl Console {
    /// Takes what the VM printed and returns what to show of it.
    ///
    /// Everything is passed on at once, prompts without line end too, but for a line that is or may
    /// become the report.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes.iter().filter(|byte| **byte != START_OF_INPUT) {
            self.line.push(*byte);
            if *byte == b'\n' {
                self.end_line(&mut shown);
            }
        }
        if !self.may_be_report() {
            self.pass_on(&mut shown);
        }
        shown
    }

    /// What was held back of a last line without end.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut shown);
        }
        shown
    }

    /// The last lines, oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        let current = String::from_utf8_lossy(&self.line).trim_end().to_string();
        let current = (!current.is_empty()).then_some(current);
        self.last.iter().cloned().chain(current).collect()
    }

    /// The text of the last report.
    pub(crate) fn report(&self) -> Option<&str> {
        self.report.as_deref()
    }

    fn end_line(&mut self, shown: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(&self.line).trim_end().to_string();
        match text.strip_prefix(REPORT_MARK) {
            Some(report) => self.report = Some(report.to_string()),
            None => {
                self.pass_on(shown);
                if self.last.len() == KEPT_LINES {
                    self.last.pop_front();
                }
                self.last.push_back(text);
            }
        }
        self.line.clear();
        self.passed = 0;
    }

    fn may_be_report(&self) -> bool {
        let mark = REPORT_MARK.as_bytes();
        let common = self.line.len().min(mark.len());
        self.line[..common] == mark[..common]
    }

    fn pass_on(&mut self, shown: &mut Vec<u8>) {
        shown.extend_from_slice(&self.line[self.passed..]);
        self.passed = self.line.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &[u8] =
        b"boot\r\naxon> axon-report: no\naxon-rep\naxon-report: {\"ok\":true}\r\nend";

    fn through(pieces: &[&[u8]]) -> (Vec<u8>, Console) {
        let mut console = Console::default();
        let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| console.take(piece)).collect();
        shown.extend(console.finish());
        (shown, console)
    }

    #[test]
    fn the_report_is_taken_out() {
        let (shown, console) = through(&[SAMPLE]);
        assert_eq!(shown, b"boot\r\naxon> axon-report: no\naxon-rep\nend");
        assert_eq!(console.report(), Some("{\"ok\":true}"));
    }

    #[test]
    fn a_prompt_is_shown_at_once() {
        let mut console = Console::default();
        assert_eq!(console.take(b"> "), b"> ");
        assert_eq!(console.take(b"a"), b"a");
        assert_eq!(console.take(b"xon\n"), b"xon\n");
    }

    #[test]
    fn the_start_of_input_is_not_shown() {
        let (shown, console) = through(&[b"\x11axon-report: 1\n\x11> "]);
        assert_eq!(shown, b"> ");
        assert_eq!(console.report(), Some("1"));
    }

    #[test]
    fn a_report_that_is_cut_off_is_kept() {
        let (shown, console) = through(&[b"axon-report: {\"ok\""]);
        assert!(shown.is_empty());
        assert_eq!(console.report(), Some("{\"ok\""));
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut console = Console::default();
        for line in 0..40 {
            console.take(format!("{line}\r\n").as_bytes());
        }
        console.take(b"hang");
        let last = console.last_lines();
        assert_eq!(last.len(), KEPT_LINES + 1);
        assert_eq!(last[0], "28");
        assert_eq!(last[KEPT_LINES], "hang");
    }

    proptest! {
        /// However the text is cut into pieces, the same is shown in the end.
        #[test]
        fn pieces_do_not_matter(cuts in prop::collection::vec(0..SAMPLE.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, SAMPLE.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &SAMPLE[pair[0]..pair[1]]).collect();
            let (shown, console) = through(&pieces);
            let (whole, _) = through(&[SAMPLE]);
            prop_assert_eq!(shown, whole);
            prop_assert_eq!(console.report(), Some("{\"ok\":true}"));
        }
    }
}
