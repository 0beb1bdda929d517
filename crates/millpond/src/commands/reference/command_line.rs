//! The page about the command line: every command and option from the definitions that parse them,
//! exit codes from the table that failures use, and the variables of the environment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use super::cell;
use crate::cli::Cli;
use crate::failure::EXIT_CODES;

const OPENING: &str = "# Command line

<!-- Written by `cargo xtask generate` from the definitions in crates/millpond/src; edits are lost. -->

`millpond help COMMAND` tells the same at the terminal. Results go to stdout; messages and logs to stderr. \
An error is one line that begins with `error:`; where there is a next step, a line with `hint:` names it.
";

/// Variables that no option names, with what they do.
const VARIABLES: &[(&str, &str)] = &[
    (
        crate::LOG_VARIABLE,
        "what is logged to stderr: a level (`error`, `warn`, `info`, `debug`, `trace`), or levels of crates \
         (`warn,millpond_apiserver=debug`). Default: `warn`",
    ),
    ("XDG_DATA_HOME", "where the default data directory lies: `$XDG_DATA_HOME/millpond`"),
    ("HOME", "without `XDG_DATA_HOME`, the default data directory is `$HOME/.local/share/millpond`"),
    ("NO_COLOR", "when it is set and not empty, logs have no colours"),
];

/// Variables that only tests and tools of the tree read.
const TREE_VARIABLES: &[(&str, &str)] = &[
    (
        "MILLPOND_CACHE",
        "where the real parts of Kubernetes are built and kept. Default: `$XDG_CACHE_HOME/millpond`, or \
         `~/.cache/millpond`",
    ),
    ("MILLPOND_KEEP", "when it is set, tests keep their folders with the logs of all servers"),
    ("MILLPOND_BLESS", "when it is set, the test of the guides writes the outputs that it saw into them"),
];

pub(super) fn page() -> String {
    let mut root = Cli::command();
    // Gives every command its full name and the options that it inherits.
    root.build();
    let mut page = OPENING.to_owned();
    section(&root, &mut page);
    environment(&root, &mut page);
    page.push_str("\n## Exit codes\n\n| Code | Meaning |\n|---|---|\n");
    for (code, meaning) in EXIT_CODES {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    page
}

/// A command, then those below it.
fn section(command: &Command, page: &mut String) {
    let path = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let _ = write!(page, "\n## `{path}`\n\n{}\n", about(command));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage:").unwrap_or(&usage).trim();
    let _ = write!(page, "\n```text\n{usage}\n```\n");
    commands(command, page);
    arguments(command, page);
    if let Some(examples) = command.get_after_help() {
        let _ = write!(page, "\n```text\n{examples}\n```\n");
    }
    for below in visible(command) {
        section(below, page);
    }
}

fn about(command: &Command) -> String {
    let text = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    // A heading line ends without a full stop, a paragraph with one.
    text.split("\n\n").map(|paragraph| format!("{}.", paragraph.trim_end_matches('.'))).collect::<Vec<_>>().join("\n\n")
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn commands(command: &Command, page: &mut String) {
    if visible(command).next().is_none() {
        return;
    }
    page.push_str("\n| Command | |\n|---|---|\n");
    for below in visible(command) {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(page, "| `{}` | {} |", below.get_name(), cell(&about));
    }
}

fn arguments(command: &Command, page: &mut String) {
    let ordinary = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let arguments: Vec<_> = command.get_arguments().filter(ordinary).collect();
    if arguments.is_empty() {
        return;
    }
    page.push_str("\n| Option | Meaning | Default | Environment |\n|---|---|---|---|\n");
    for argument in arguments {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            name(argument),
            meaning(argument),
            default(argument),
            variable(argument).map(|name| format!("`{name}`")).unwrap_or_default()
        );
    }
}

/// `-o`, `--output FORMAT`, or `FILE`.
fn name(argument: &Arg) -> String {
    let value = argument.get_value_names().unwrap_or_default().join(" ");
    if argument.is_positional() {
        return format!("`{value}`");
    }
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let long = argument.get_long().unwrap_or_default();
    let value = if argument.get_action().takes_values() { format!(" {value}") } else { String::new() };
    format!("{short}`--{long}{value}`")
}

fn meaning(argument: &Arg) -> String {
    let text = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = cell(&text.replace("\n\n", ". "));
    let values = argument.get_possible_values();
    let choices: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
    if argument.get_action().takes_values() && !choices.is_empty() {
        let _ = write!(text, ": {}", choices.join(", "));
    }
    text
}

fn default(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let values = argument.get_default_values().iter().map(|value| format!("`{}`", value.display()));
    values.collect::<Vec<_>>().join(" ")
}

fn variable(argument: &Arg) -> Option<String> {
    argument.get_env().map(|name| name.display().to_string())
}

fn environment(root: &Command, page: &mut String) {
    let mut named = BTreeMap::new();
    collect(root, &mut named);
    page.push_str("\n## Environment\n\nAn option on the command line wins over its variable.\n\n| Variable | Meaning |\n|---|---|\n");
    for ((variable, long), commands) in &named {
        let _ = writeln!(page, "| `{variable}` | `--{long}` of {} |", commands.join(", "));
    }
    for (variable, meaning) in VARIABLES {
        let _ = writeln!(page, "| `{variable}` | {meaning} |");
    }
    page.push_str("\nOnly tests and tools of the tree read these:\n\n| Variable | Meaning |\n|---|---|\n");
    for (variable, meaning) in TREE_VARIABLES {
        let _ = writeln!(page, "| `{variable}` | {meaning} |");
    }
}

/// Environment variables of options, with the commands that have them.
fn collect(command: &Command, named: &mut BTreeMap<(String, String), Vec<String>>) {
    for argument in command.get_arguments() {
        if let (Some(variable), Some(long)) = (variable(argument), argument.get_long()) {
            let path = command.get_bin_name().unwrap_or_default();
            named.entry((variable, long.to_owned())).or_default().push(format!("`{path}`"));
        }
    }
    visible(command).for_each(|below| collect(below, named));
}
