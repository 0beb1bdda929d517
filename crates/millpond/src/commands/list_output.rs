//! Output of list commands: once, or with `--watch` again for each change.

use std::collections::BTreeMap;
use std::io::Write;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::cluster::EVERYTHING;
use super::input::{self, Input, InputArgs, Purpose};
use super::table::{Side, Table};
use super::{as_json, as_yaml, print, print_more};
use crate::failure::{Code, Failure};

/// Arguments of every list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Go on, and print what changes (table and wide; a cluster, not files)
    #[arg(short, long)]
    pub(crate) watch: bool,

    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table for people
    Table,
    /// The same with more columns
    Wide,
    /// One object
    Json,
    /// The same as YAML
    Yaml,
    /// Names, as kubectl takes them
    Name,
}

/// A list in all its forms.
pub(crate) trait List {
    /// As a table.
    fn grid(&self, wide: bool) -> Grid;
    /// For scripts.
    fn view(&self) -> Value;
    /// Names in kubectl's form, one per line.
    fn names(&self) -> Vec<String>;
}

/// A table whose rows have names and are printed repeatedly.
pub(crate) struct Grid {
    pub(crate) columns: Vec<(&'static str, Side)>,
    /// The first cell is the name.
    pub(crate) rows: Vec<Vec<String>>,
    /// The column that changes with time.
    pub(crate) age: &'static str,
    /// The column that shows that a row is gone.
    pub(crate) state: &'static str,
    /// Below the table.
    pub(crate) footer: String,
}

/// Prints a list; with `--watch`, until the reader closes the pipe.
pub(crate) fn run<L: List>(
    args: &ListArgs,
    out: &mut impl Write,
    messages: &mut impl Write,
    list: impl Fn(&Input) -> anyhow::Result<L>,
) -> anyhow::Result<()> {
    let wide = match args.output {
        Output::Table => false,
        Output::Wide => true,
        _ if args.watch => return Err(not_watched("`-w` prints tables", "leave `-o` out, or take `-o wide`")),
        other => return print(out, &structured(&list(&input::load(&args.input, Purpose::List, messages)?)?, other)?),
    };
    if !args.watch {
        let grid = list(&input::load(&args.input, Purpose::List, messages)?)?.grid(wide);
        return print(out, &grid.page());
    }
    if !args.input.objects.is_live() {
        return Err(not_watched("files do not change by themselves", "watch a cluster: leave `-f` out"));
    }
    let cluster = args.input.objects.connect()?;
    let mut before: Option<Grid> = None;
    loop {
        let listing = cluster.read(EVERYTHING)?;
        // Remarks are printed only once.
        let input = match &before {
            None => input::take(&args.input, &listing.texts, Purpose::List, messages)?,
            Some(_) => input::take(&args.input, &listing.texts, Purpose::List, &mut std::io::sink())?,
        };
        let grid = list(&input)?.grid(wide);
        let text = before.as_ref().map_or_else(|| grid.page(), |before| grid.changes(before));
        if !print_more(out, &text)? {
            return Ok(());
        }
        before = Some(grid);
        cluster.wait(&listing);
    }
}

pub(crate) fn not_watched(message: &str, hint: &str) -> anyhow::Error {
    Failure { message: message.to_owned(), code: Some(Code::Usage), hint: Some(hint.to_owned()) }.into()
}

pub(crate) fn structured(list: &impl List, output: Output) -> anyhow::Result<String> {
    match output {
        Output::Json => as_json(&list.view()),
        Output::Yaml => as_yaml(&list.view()),
        _ => Ok(list.names().iter().map(|name| format!("{name}\n")).collect()),
    }
}

impl Grid {
    fn table(&self) -> Table {
        let mut table = Table::new(&self.columns);
        self.rows.iter().for_each(|row| table.row(row.clone()));
        table
    }

    fn column(&self, name: &str) -> usize {
        self.columns.iter().position(|(head, _)| *head == name).unwrap_or(0)
    }

    pub(crate) fn page(&self) -> String {
        format!("{}\n\n{}\n", self.table().text(), self.footer)
    }

    /// Rows that are new, that say something else but for their age, or that are gone.
    pub(crate) fn changes(&self, before: &Self) -> String {
        let (age, state) = (self.column(self.age), self.column(self.state));
        let old: BTreeMap<&str, &Vec<String>> = before.rows.iter().map(|row| (row[0].as_str(), row)).collect();
        let same = |row: &Vec<String>, other: &Vec<String>| {
            row.iter().zip(other).enumerate().all(|(column, (cell, other))| column == age || cell == other)
        };
        let mut table = self.table();
        let is_new = |row: &Vec<String>| old.get(row[0].as_str()).is_none_or(|other| !same(row, other));
        let mut shown: Vec<bool> = self.rows.iter().map(is_new).collect();
        for row in before.rows.iter().filter(|row| !self.rows.iter().any(|other| other[0] == row[0])) {
            let mut gone = row.clone();
            "Gone".clone_into(&mut gone[state]);
            table.row(gone);
            shown.push(true);
        }
        let lines = table.lines().into_iter().skip(1).zip(shown).filter(|(_, shown)| *shown);
        lines.map(|(line, _)| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(rows: &[[&str; 3]]) -> Grid {
        Grid {
            columns: vec![("NAME", Side::Left), ("STATE", Side::Left), ("AGE", Side::Right)],
            rows: rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect(),
            age: "AGE",
            state: "STATE",
            footer: "so many nodes".to_owned(),
        }
    }

    #[test]
    fn only_changes_are_printed_again() {
        let before = grid(&[["a", "Starting", "1s"], ["b", "Ready", "5m"], ["c", "Ready", "9m"]]);
        assert_eq!(before.page().lines().last(), Some("so many nodes"));
        let after = grid(&[["a", "Ready", "3s"], ["b", "Ready", "6m"], ["d", "Starting", "0s"]]);
        insta::assert_snapshot!(after.changes(&before), @"
        a      Ready       3s
        d      Starting    0s
        c      Gone        9m
        ");
        assert_eq!(after.changes(&after), "");
    }
}
