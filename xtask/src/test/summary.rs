//! The summary: what ran, what did not, and the results.

use std::fmt;
use std::time::Duration;

/// How a step ended.
pub(super) enum Outcome {
    /// With a remark, which may be empty.
    Passed(String),
    Failed(String),
    NotRun(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(note) if note.is_empty() => write!(f, "ok"),
            Self::Passed(note) => write!(f, "ok, {note}"),
            Self::Failed(error) => write!(f, "FAILED: {error}"),
            Self::NotRun(reason) => write!(f, "not run: {reason}"),
        }
    }
}

/// The steps that are done.
#[derive(Default)]
pub(super) struct Summary {
    steps: Vec<(&'static str, Outcome, Duration)>,
}

impl Summary {
    pub(super) fn add(&mut self, name: &'static str, outcome: Outcome, took: Duration) {
        self.steps.push((name, outcome, took));
    }

    pub(super) fn failed(&self) -> bool {
        self.steps.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)))
    }

    /// Prints the steps with their times; `took` is the time of the whole run, in which lanes overlap.
    pub(super) fn print(&self, took: Duration) {
        println!("\nsummary:");
        for (name, outcome, took) in &self.steps {
            println!("  {name:24} {:5} s  {outcome}", took.as_secs());
        }
        println!("{}", self.verdict(took));
    }

    /// The closing line. Leaves no doubt about what was not tested.
    fn verdict(&self, took: Duration) -> String {
        let names = |wanted: fn(&Outcome) -> bool| -> Vec<&str> {
            self.steps.iter().filter(|(_, outcome, _)| wanted(outcome)).map(|(name, ..)| *name).collect()
        };
        let passed = names(|outcome| matches!(outcome, Outcome::Passed(_))).len();
        let failed = names(|outcome| matches!(outcome, Outcome::Failed(_)));
        let left_out = names(|outcome| matches!(outcome, Outcome::NotRun(_)));
        let seconds = took.as_secs();
        let mut verdict = format!("{passed} steps passed in {} min {} s", seconds / 60, seconds % 60);
        if !failed.is_empty() {
            verdict = format!("{verdict}; FAILED: {}", failed.join(", "));
        }
        if !left_out.is_empty() {
            verdict = format!("{verdict}; NOT RUN: {}", left_out.join(", "));
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_names_what_failed_and_what_did_not_run() {
        let mut summary = Summary::default();
        summary.add("format", Outcome::Passed(String::new()), Duration::from_secs(61));
        let took = Duration::from_secs(61);
        assert_eq!(summary.verdict(took), "1 steps passed in 1 min 1 s");
        summary.add("clippy", Outcome::Failed("cargo failed".into()), Duration::ZERO);
        summary.add("docs", Outcome::NotRun("--quick".into()), Duration::ZERO);
        assert_eq!(summary.verdict(took), "1 steps passed in 1 min 1 s; FAILED: clippy; NOT RUN: docs");
        assert!(summary.failed());
    }
}
