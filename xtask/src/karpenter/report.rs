//! The report after a run.

use std::time::Duration;

use anyhow::{Result, bail};

use super::lists::Lists;
use super::stack::Engine;
use crate::ginkgo::Outcome;

/// Lines of a failure's message that are printed; a report file holds it all.
const MESSAGE_LINES: usize = 12;

/// Lines and letters of a failure in the table.
const SUMMARY_LINES: usize = 4;
const SUMMARY_LETTERS: usize = 200;

/// The outcomes of the specs.
pub(super) struct Results<'a> {
    pub(super) engine: Engine,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) lists: &'a Lists,
    pub(super) chosen: usize,
}

impl Results<'_> {
    /// Prints the table, the failures and the sums, and gives the latter; fails
    /// if a spec failed that is not known to.
    pub(super) fn print(&self, title: &str, took: Duration) -> Result<String> {
        println!();
        for outcome in &self.outcomes {
            println!("{}", line(outcome));
        }
        for outcome in self.outcomes.iter().filter(|outcome| !outcome.passed()) {
            println!("\n{}: {}", outcome.state, outcome.name);
            for line in outcome.message.lines().take(MESSAGE_LINES) {
                println!("    {line}");
            }
        }
        let sums = self.sums();
        println!("\n{sums} against {title} in {} min {} s", took.as_secs() / 60, took.as_secs() % 60);
        let unexpected = self.unexpected();
        if !unexpected.is_empty() || self.outcomes.len() != self.chosen {
            bail!(
                "{} of {} specs failed that should pass\nhint: `--logs DIR` keeps the logs, `--focus` runs one",
                unexpected.len().max(1),
                self.chosen
            );
        }
        Ok(sums)
    }

    /// Failed specs that are not known to fail.
    fn unexpected(&self) -> Vec<&str> {
        let known = |outcome: &&Outcome| self.lists.why_not(self.engine, &outcome.name).is_none();
        let failed = self.outcomes.iter().filter(|outcome| !outcome.passed());
        failed.filter(known).map(|outcome| outcome.name.as_str()).collect()
    }

    fn sums(&self) -> String {
        let passed = self.outcomes.iter().filter(|outcome| outcome.passed()).count();
        let skipped = self.outcomes.iter().filter(|outcome| outcome.state == "skipped").count();
        let failed = self.outcomes.len() - passed - skipped;
        let mut sums = format!("{passed} of {} specs passed, {failed} failed, {skipped} skipped", self.chosen);
        let again = self.outcomes.iter().filter(|outcome| outcome.passed() && outcome.is_second_try).count();
        if again > 0 {
            sums = format!("{sums}, {again} passed only when run once more");
        }
        let expected = self.outcomes.iter().filter(|outcome| self.lists.why_not(self.engine, &outcome.name).is_some());
        let (surprises, as_known): (Vec<_>, Vec<_>) = expected.partition(|outcome| outcome.passed());
        if !as_known.is_empty() {
            sums = format!("{sums}, {} of them as listed", as_known.len());
        }
        if !surprises.is_empty() {
            sums = format!("{sums}, {} passed that are listed as failing", surprises.len());
        }
        sums
    }
}

/// A row of the table.
pub(super) fn line(outcome: &Outcome) -> String {
    let mut line = format!("{:8} {:7.1} s  {}", outcome.state, outcome.seconds, outcome.name);
    if !outcome.passed() {
        line = format!("{line}\n{:20}{}", "", summary(&outcome.message));
    }
    line
}

/// The first words of a message. Gomega's first line mostly says no more than
/// that time is up, and its second where; what was expected comes after, with
/// whole objects in between that only the report has room for.
fn summary(message: &str) -> String {
    let lines: Vec<_> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let head = lines.iter().take(SUMMARY_LINES).map(|line| place(line).unwrap_or(line));
    let last = lines.get(SUMMARY_LINES..).and_then(|rest| rest.last());
    let text = head.chain(last.into_iter().flat_map(|last| ["…", last])).collect::<Vec<_>>().join(" ");
    let mut short: String = text.chars().take(SUMMARY_LETTERS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// `file.go:12` of `The function passed to Eventually failed at some/path/file.go:12 with:`.
fn place(line: &str) -> Option<&str> {
    let (_, path) = line.strip_prefix("The function passed to ")?.split_once(" failed at ")?;
    path.trim_end_matches(" with:").rsplit('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, state: &str) -> Outcome {
        let message = if state == "passed" { "" } else { "Timed out after 900s.\nExpected\n    <int>: 3\nto be 2\n" };
        Outcome { name: name.into(), state: state.into(), seconds: 1.25, message: message.into(), is_second_try: false }
    }

    #[test]
    fn a_row_says_why() {
        assert_eq!(line(&outcome("A b", "passed")), "passed       1.2 s  A b");
        let expected = "failed       1.2 s  A b\n                    Timed out after 900s. Expected <int>: 3 to be 2";
        assert_eq!(line(&outcome("A b", "failed")), expected);
    }

    #[test]
    fn a_summary_has_the_place_and_the_end() {
        let message = "Timed out after 9s.\nThe function passed to Eventually failed at a/b/c_test.go:7 with:\n\
                       Expected\n    <[]Node | len:1>: [\n      {\n      },\n    ]\nto have length 2\n";
        assert_eq!(summary(message), "Timed out after 9s. c_test.go:7 Expected <[]Node | len:1>: [ … to have length 2");
    }

    #[test]
    fn only_what_is_not_listed_is_unexpected() {
        let lists = Lists::default();
        let outcomes = vec![outcome("A", "passed"), outcome("B", "failed"), outcome("C", "skipped")];
        let results = Results { engine: Engine::Millpond, outcomes, lists: &lists, chosen: 3 };
        assert_eq!(results.unexpected(), ["B", "C"]);
        assert_eq!(results.sums(), "1 of 3 specs passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_second_try_is_reported() {
        let lists = Lists::default();
        let outcomes = vec![outcome("A", "passed"), Outcome { is_second_try: true, ..outcome("B", "passed") }];
        let results = Results { engine: Engine::Millpond, outcomes, lists: &lists, chosen: 2 };
        assert_eq!(results.sums(), "2 of 2 specs passed, 0 failed, 0 skipped, 1 passed only when run once more");
    }
}
