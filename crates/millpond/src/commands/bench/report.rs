//! Figures and how they are shown.

use serde_json::{Value, json};

/// One measured figure.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The project's goal for the value, if there is one.
    pub(crate) goal: Option<Goal>,
}

/// The goal of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(goal) => value >= goal,
            Self::AtMost(goal) => value <= goal,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(goal) => format!("≥ {}", number(goal)),
            Self::AtMost(goal) => format!("≤ {}", number(goal)),
        }
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str, goal: Option<Goal>) {
        self.figures.push(Figure { name: name.into(), value, unit, goal });
    }

    /// A table for people.
    pub(crate) fn table(&self) -> String {
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0).max(6);
        let mut text = format!("{:<width$}  {:>12}  {:<10}  {:<12}  MET\n", "FIGURE", "VALUE", "UNIT", "GOAL");
        for figure in &self.figures {
            let goal = figure.goal.map(Goal::text).unwrap_or_default();
            let met = match figure.goal {
                Some(goal) if goal.met(figure.value) => "yes",
                Some(_) => "no",
                None => "",
            };
            let line = format!(
                "{:<width$}  {:>12}  {:<10}  {goal:<12}  {met}",
                figure.name,
                number(figure.value),
                figure.unit
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> Value {
        let figure = |figure: &Figure| {
            json!({
                "name": figure.name,
                "value": figure.value,
                "unit": figure.unit,
                "goal": figure.goal.map(Goal::text),
                "met": figure.goal.map(|goal| goal.met(figure.value)),
            })
        };
        json!({"figures": self.figures.iter().map(figure).collect::<Vec<_>>()})
    }
}

/// Whole numbers with separators from a thousand on, else three significant digits.
fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_well() {
        let mut report = Report::default();
        report.add("creates, in process", 23456.7, "1/s", Some(Goal::AtLeast(20_000.0)));
        report.add("list of 100,000 pods", 1.25, "s", Some(Goal::AtMost(1.0)));
        report.add("watchers", 1000.0, "", None);
        insta::assert_snapshot!(report.table(), @r"
        FIGURE                       VALUE  UNIT        GOAL          MET
        creates, in process         23,457  1/s         ≥ 20,000      yes
        list of 100,000 pods          1.25  s           ≤ 1           no
        watchers                     1,000
        ");
    }
}
