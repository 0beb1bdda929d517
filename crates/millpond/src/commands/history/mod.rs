//! `millpond history`: what was decided, why, and what came of it. Read from the files of the data directory, so that it
//! also answers while nothing runs.

mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use millpond_api::duration::parse_seconds;
use millpond_runtime::history::{self, Decision, DecisionKind, HistoryError, Subject};
use serde_json::json;

use super::file::{self, Readers};
use super::up::default_data_dir;
use super::{as_json, print, print_more};
use crate::failure::{Code, Failure};

/// The folder of the history in a data directory.
pub(crate) const FOLDER: &str = "history";
/// With `-w` the file is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The arguments of `history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// A decision such as d-12, or node/X, pod/X, pool/X, host/X, request/X: what happened to it, and why
    #[arg(value_name = "WHAT", value_parser = wanted)]
    wanted: Option<Wanted>,

    /// Only decisions of the last so long, such as 30m or 24h
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    since: Option<i64>,

    /// Only decisions of these kinds, such as provision or drift
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kind)]
    kind: Vec<DecisionKind>,

    /// At most so many, the latest
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,

    /// Write the snapshot that a decision was made from to a file; `millpond plan -f` makes the same plan of it
    #[arg(long, value_name = "FILE", requires = "wanted", conflicts_with = "watch")]
    save: Option<PathBuf>,

    /// Go on, and print decisions as they are made
    #[arg(short, long)]
    watch: bool,

    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    /// The data directory of `millpond up` or `millpond controller`
    #[arg(long, value_name = "DIR", env = "MILLPOND_DATA_DIR", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table, or a page about one decision or object
    Table,
    /// One object; with -w one line for each decision
    Json,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Decision(u64),
    About(Subject),
}

fn wanted(text: &str) -> Result<Wanted, String> {
    if !text.contains('/')
        && let Some(number) = Decision::number_of(text)
    {
        return Ok(Wanted::Decision(number));
    }
    let either =
        |_| format!("`{text}` is neither a decision such as d-12 nor node/X, pod/X, pool/X, host/X or request/X");
    Subject::parse(text).map(Wanted::About).map_err(either)
}

fn seconds(text: &str) -> Result<i64, String> {
    parse_seconds(text).map_err(|_| "a duration such as 30m or 24h".to_owned())
}

fn kind(text: &str) -> Result<DecisionKind, String> {
    let names = DecisionKind::ALL.map(DecisionKind::name).join(", ");
    DecisionKind::from_name(text).ok_or_else(|| format!("one of {names}"))
}

/// Runs the command.
pub(crate) fn run(args: &HistoryArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let folder = args.data_dir.join(FOLDER);
    if let Some(path) = &args.save {
        return save(args, &folder, path);
    }
    let decisions = read(&folder)?;
    if let Some(Wanted::Decision(number)) = args.wanted {
        let found = decisions.iter().find(|decision| decision.number == number);
        let found = found.ok_or_else(|| missing(number, &decisions))?;
        let kept = history::read_snapshot(&folder, number).map_err(unreadable)?.is_some();
        return print(
            out,
            &match args.output {
                Output::Json => as_json(&found.detail(kept))?,
                Output::Table => text::page(found, kept),
            },
        );
    }
    let now = jiff::Timestamp::now().as_second();
    let chosen: Vec<&Decision> = decisions.iter().filter(|decision| args.selects(decision, now)).collect();
    let chosen = &chosen[chosen.len().saturating_sub(args.limit)..];
    if !args.watch || args.output == Output::Table {
        let about = matches!(args.wanted, Some(Wanted::About(_)));
        let shown = match args.output {
            Output::Json => {
                let items: Vec<_> = chosen.iter().map(|decision| decision.detail(false)).collect();
                as_json(&json!({ "items": items }))?
            }
            Output::Table if about => text::life(chosen),
            Output::Table => text::table(chosen, now),
        };
        print(out, &shown)?;
    }
    if args.watch { watch(args, &folder, decisions.last().map_or(0, |last| last.number), out) } else { Ok(()) }
}

impl HistoryArgs {
    fn selects(&self, decision: &Decision, now: i64) -> bool {
        let about = match &self.wanted {
            Some(Wanted::About(subject)) => decision.concerns(subject),
            _ => true,
        };
        let recent = self.since.is_none_or(|since| decision.at >= now - since);
        about && recent && (self.kind.is_empty() || self.kind.contains(&decision.kind))
    }
}

fn watch(args: &HistoryArgs, folder: &Path, mut seen: u64, out: &mut impl Write) -> anyhow::Result<()> {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let now = jiff::Timestamp::now().as_second();
        let known = seen;
        for decision in read(folder)?.iter().filter(|decision| decision.number > known) {
            seen = decision.number;
            if !args.selects(decision, now) {
                continue;
            }
            let line = match args.output {
                Output::Json => format!("{}\n", serde_json::to_string(&decision.detail(false)).context("write JSON")?),
                Output::Table => text::line(decision),
            };
            if !print_more(out, &line)? {
                return Ok(());
            }
        }
    }
}

fn save(args: &HistoryArgs, folder: &Path, path: &Path) -> anyhow::Result<()> {
    let Some(Wanted::Decision(number)) = args.wanted else {
        let message = "`--save` takes the name of one decision".to_owned();
        let hint = Some("`millpond history` lists them".to_owned());
        return Err(Failure { message, code: Some(Code::Usage), hint }.into());
    };
    let Some(text) = history::read_snapshot(folder, number).map_err(unreadable)? else {
        let decisions = read(folder)?;
        if !decisions.iter().any(|decision| decision.number == number) {
            return Err(missing(number, &decisions).into());
        }
        let message = format!("the snapshot of decision d-{number} is not kept");
        let hint = Some("those of the last 64 decisions that were planned are, and of 64 that failed".to_owned());
        return Err(Failure { message, code: Some(Code::NotFound), hint }.into());
    };
    // It names everything that runs.
    file::write(path, &text, Readers::Owner)
}

fn read(folder: &Path) -> anyhow::Result<Vec<Decision>> {
    history::read(folder).map_err(unreadable)
}

fn unreadable(error: HistoryError) -> anyhow::Error {
    let (message, code) = ("cannot read the decision history".to_owned(), Code::of_io(&error.source));
    anyhow::Error::new(error).context(Failure { message, code, hint: None })
}

fn missing(number: u64, decisions: &[Decision]) -> Failure {
    let hint = match (decisions.first(), decisions.last()) {
        (Some(first), Some(last)) => format!("d-{} to d-{} are kept", first.number, last.number),
        _ => "no decision is kept there; `--data-dir` names another directory".to_owned(),
    };
    Failure { message: format!("there is no decision d-{number}"), code: Some(Code::NotFound), hint: Some(hint) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use millpond_runtime::history::{Action, History, ObjectRef, Outcome};

    use super::*;
    use crate::failure::describe;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: HistoryArgs,
    }

    fn run_on(directory: &Path, line: &str) -> Result<String, String> {
        let words = format!("history --data-dir {} {line}", directory.display());
        let args = Cli::try_parse_from(words.split_whitespace()).map_err(|error| error.to_string())?.args;
        let mut out = Vec::new();
        run(&args, &mut out).map_err(|error| describe(&error))?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn filled() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let history = History::open(&directory.path().join(FOLDER)).unwrap();
        let at = "2026-01-01T08:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second();
        let mut decision =
            Decision::new(DecisionKind::Provision, "provisioner", at, "1 node for 2 pods of Deployment/web");
        decision.actions.push(Action {
            verb: "create".to_owned(),
            object: ObjectRef::new("NodeClaim", "", "general-x7"),
            pool: Some("general".to_owned()),
            instance_type: Some("m5.large".to_owned()),
            zone: Some("us-east-1a".to_owned()),
            capacity_type: Some("on-demand".to_owned()),
            price_nanos: Some(96_000_000),
            reason: "2 pods that waited".to_owned(),
            pods: vec!["default/web-1".to_owned(), "default/web-2".to_owned()],
            ..Action::default()
        });
        (decision.cost_before_nanos, decision.cost_after_nanos) = (Some(0), Some(96_000_000));
        history.record(decision);
        let claim = ObjectRef::new("NodeClaim", "", "general-x7");
        let times = Outcome { created: Some(at), launched: Some(at + 2), ready: Some(at + 31), ..Outcome::default() };
        history.observe(&claim, "create", Some("general-x7"), &times);
        let mut decision = Decision::new(DecisionKind::Drift, "disruption", at + 90, "node general-x7 goes: Drifted");
        decision.actions.push(Action {
            verb: "delete".to_owned(),
            object: claim.clone(),
            node: Some("general-x7".to_owned()),
            pool: Some("general".to_owned()),
            reason: "Drifted".to_owned(),
            ..Action::default()
        });
        history.record(decision);
        let times = Outcome { leaving: Some(at + 92), gone: Some(at + 120), ..Outcome::default() };
        history.observe(&claim, "delete", None, &times);
        history.keep_snapshot(&[1], "the snapshot");
        directory
    }

    #[test]
    fn a_node_that_is_gone_has_a_life_and_a_reason() {
        let directory = filled();
        insta::assert_snapshot!(run_on(directory.path(), "node/general-x7").unwrap(), @"
        d-1   2026-01-01T08:00:00Z   provision, by provisioner
        1 node for 2 pods of Deployment/web
          create nodeclaim/general-x7 m5.large us-east-1a on-demand $0.0960/h: 2 pods that waited
            created 2026-01-01T08:00:00Z, launched after 2s, ready after 31s
            pods default/web-1, default/web-2

        d-2   2026-01-01T08:01:30Z   drift, by disruption
        node general-x7 goes: Drifted
          delete nodeclaim/general-x7: Drifted
            leaving 2026-01-01T08:01:32Z, gone after 28s
        ");
        assert_eq!(
            run_on(directory.path(), "pod/web-2").unwrap().lines().next().unwrap(),
            run_on(directory.path(), "d-1").unwrap().lines().next().unwrap(),
            "a pod's history begins with the decision that gave it a node"
        );
    }

    #[test]
    fn what_is_not_there_is_named() {
        let directory = filled();
        insta::assert_snapshot!(run_on(directory.path(), "d-9").unwrap_err(), @"
        error: there is no decision d-9
        hint: d-1 to d-2 are kept
        ");
        let file = directory.path().join("saved");
        insta::assert_snapshot!(run_on(directory.path(), &format!("d-2 --save {}", file.display())).unwrap_err(), @"
        error: the snapshot of decision d-2 is not kept
        hint: those of the last 64 decisions that were planned are, and of 64 that failed
        ");
        run_on(directory.path(), &format!("d-1 --save {}", file.display())).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "the snapshot");
        assert!(run_on(directory.path(), "general").unwrap_err().contains("neither a decision"));
        let empty = tempfile::tempdir().unwrap();
        insta::assert_snapshot!(run_on(empty.path(), "").unwrap(), @"No decision is kept here yet.");
    }

    #[test]
    fn json_has_everything_and_filters_hold() {
        let directory = filled();
        let items = |line: &str| -> Vec<String> {
            let text = run_on(directory.path(), &format!("-o json {line}")).unwrap();
            let list: serde_json::Value = serde_json::from_str(&text).unwrap();
            list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(items(""), ["d-1", "d-2"]);
        assert_eq!(items("--kind drift"), ["d-2"]);
        assert_eq!(items("--limit 1"), ["d-2"]);
        assert_eq!(items("pool/general"), ["d-1", "d-2"]);
        assert_eq!(items("--since 1s"), [""; 0]);
        let one: serde_json::Value = serde_json::from_str(&run_on(directory.path(), "d-1 -o json").unwrap()).unwrap();
        assert_eq!((one["hasSnapshot"].as_bool(), one["deltaPerHourNanos"].as_i64()), (Some(true), Some(96_000_000)));
        assert_eq!(one["actions"][0]["outcome"]["ready"].as_i64().unwrap() - one["at"].as_i64().unwrap(), 31);
    }
}
