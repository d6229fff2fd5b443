//! One measured operation: its samples, its line in the table, its row in the report.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Minimum and median of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    operation: Cow<'static, str>,
    samples: usize,
    minimum: u64,
    median: u64,
    goal: Option<u64>,
}

impl Row {
    /// From the samples of `operation`; no sample counts as 0.
    pub(crate) fn new(
        operation: impl Into<Cow<'static, str>>,
        goal: Option<u64>,
        mut samples: Vec<u64>,
    ) -> Row {
        samples.sort_unstable();
        Row {
            operation: operation.into(),
            samples: samples.len(),
            minimum: samples.first().copied().unwrap_or(0),
            median: samples.get(samples.len() / 2).copied().unwrap_or(0),
            goal,
        }
    }

    pub(crate) fn median(&self) -> u64 {
        self.median
    }

    pub(crate) fn is_above_goal(&self) -> bool {
        self.goal.is_some_and(|goal| self.median > goal)
    }

    pub(crate) fn heading(unit: &str) -> String {
        format!("{unit:44}{:>9}{:>9}{:>9}\n", "minimum", "median", "goal")
    }

    /// The row of the table; `goals` says whether the goal is in the unit that was measured.
    pub(crate) fn line(&self, goals: bool) -> String {
        let goal = match self.goal {
            Some(goal) if goals => format!("{goal:>9}"),
            _ => String::new(),
        };
        let verdict = if goals && self.is_above_goal() { "  above" } else { "" };
        format!("{:44}{:>9}{:>9}{goal}{verdict}\n", self.operation, self.minimum, self.median)
    }

    pub(crate) fn json(&self, unit: &str) -> String {
        let goal = self.goal.map_or(String::from("null"), |goal| format!("{goal}"));
        format!(
            r#"{{"operation":"{}","unit":"{unit}","samples":{},"minimum":{},"median":{},"goal":{goal}}}"#,
            self.operation, self.samples, self.minimum, self.median
        )
    }
}

/// The counter around an operation, over and over: `samples!(machine, operation)`.
///
/// With `before => value` the operation says itself what it took, given the counter before it. A
/// macro and no function, so that the operation stands in the measuring task itself.
macro_rules! samples {
    ($machine:expr, $before:ident => $took:expr) => {{
        let mut samples = alloc::vec::Vec::with_capacity(crate::WARM_UP + crate::SAMPLES);
        for _ in 0..crate::WARM_UP + crate::SAMPLES {
            let $before = $machine.cycles();
            samples.push($took);
        }
        samples.split_off(crate::WARM_UP)
    }};
    ($machine:expr, $operation:expr) => {
        samples!($machine, before => {
            $operation;
            $machine.cycles().wrapping_sub(before)
        })
    };
}
pub(crate) use samples;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn minimum_and_median() {
        let row = Row::new("x", Some(4), vec![9, 1, 5, 3, 7]);
        assert_eq!((row.minimum, row.median), (1, 5));
        assert!(row.is_above_goal());
        assert!(!Row::new("x", Some(5), vec![9, 1, 5, 3, 7]).is_above_goal());
        assert!(!Row::new("x", None, vec![9]).is_above_goal());
        assert_eq!(Row::new("x", None, vec![]).median, 0);
    }

    #[test]
    fn lines_and_rows() {
        let row = Row::new("x", Some(4), vec![5]);
        assert!(row.line(true).ends_with("        5        5        4  above\n"));
        assert!(row.line(false).ends_with("        5        5\n"));
        assert_eq!(
            row.json("instructions"),
            r#"{"operation":"x","unit":"instructions","samples":1,"minimum":5,"median":5,"goal":4}"#
        );
    }
}
