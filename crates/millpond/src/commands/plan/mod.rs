//! `millpond plan`: what to buy and what to take away, for how much, and why. The planner is in `millpond_plan`,
//! the reading of objects in `millpond_state`; here they get arguments and words.

mod advice;
mod compare;
mod nodes;
mod text;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use millpond_plan::check::{Violation, check, check_rules};
use millpond_plan::model::Snapshot;
use millpond_plan::pack::Budget;
use millpond_plan::plan::{Outcome, Policy, Settings};
use millpond_view::plan as view;

use super::file::{self, Readers};
use super::format::plural;
use super::input::{self, InputArgs, Purpose};
use super::{as_json, as_yaml};
use crate::failure::{Code, Failure};

/// The work of `--budget thorough`: ten times the default, for a plan that is used for long.
const THOROUGH: u64 = 200_000;

/// The arguments of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    input: InputArgs,

    /// Planning policy: millpond, karpenter, cluster-autoscaler, scaling-advisor
    #[arg(long, value_name = "NAME", default_value = "millpond", value_parser = policy)]
    policy: Policy,

    /// Plan by every policy and compare cost, nodes, pods without a place, gap and time
    #[arg(long, conflicts_with_all = ["policy", "as_kind", "detailed_exitcode"])]
    compare: bool,

    /// Also take away or replace nodes that are empty, drifted, expired or too dear for their pods
    #[arg(long)]
    consolidate: bool,

    /// Work that may go into a better plan than the first: first, default, thorough, or a number of patterns
    #[arg(long, value_name = "BUDGET", default_value = "default", value_parser = budget)]
    budget: Budget,

    /// Verify the plan with the checker, which shares no code with the planner
    #[arg(long)]
    check: bool,

    /// Write the objects that were read, as one List, to a file that `-f` takes; only its owner can read it
    #[arg(long, value_name = "FILE")]
    save_snapshot: Option<PathBuf>,

    /// Write the plan to a file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    /// Print another kind instead: scaling-advice (with -o yaml or json)
    #[arg(long = "as", value_name = "KIND", value_enum)]
    as_kind: Option<AsKind>,

    /// Exit with 2 if the plan changes anything, with 7 if it leaves pods without a place
    #[arg(long)]
    detailed_exitcode: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A page for people
    Table,
    /// The same with every node by itself
    Wide,
    /// One object; docs/reference/plan.md tells what is in it
    Json,
    /// The same as YAML
    Yaml,
    /// The planned nodes as v1 Nodes
    Nodes,
    /// The names of the planned nodes
    Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AsKind {
    /// A `sa.gardener.cloud/v1alpha1` ScalingAdvice
    ScalingAdvice,
}

fn policy(text: &str) -> Result<Policy, String> {
    let names = Policy::ALL.map(Policy::name).join(", ");
    Policy::from_name(text).ok_or_else(|| format!("one of {names}"))
}

fn budget(text: &str) -> Result<Budget, String> {
    let evaluations = match text {
        "first" => 0,
        "default" => return Ok(Budget::default()),
        "thorough" => THOROUGH,
        number => number.parse().map_err(|_| "first, default, thorough, or a number of patterns".to_owned())?,
    };
    Ok(Budget { evaluations, ..Budget::default() })
}

/// The schema of `-o json`, for the reference.
pub(crate) fn schema() -> anyhow::Result<String> {
    as_json(&view::schema())
}

/// Runs the command: data to `out`, messages to `messages`. Returns whether the plan changes anything and the flags ask to
/// know by the exit code.
pub(crate) fn run(args: &PlanArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<Changes> {
    if let Some(saved) = input::saved_decision(&args.input)? {
        return run_saved(args, saved, out, messages);
    }
    let purpose = if args.save_snapshot.is_some() { Purpose::PlanAndSave } else { Purpose::Plan };
    let input = input::load(&args.input, purpose, messages)?;
    if let Some(path) = &args.save_snapshot {
        let text = as_json(&input.saved())?;
        // Pods have secrets in their environment.
        file::write(path, &text, Readers::Owner)?;
    }
    let snapshot = &input.snapshot;
    let settings =
        Settings { policy: args.policy, consolidate: args.consolidate, budget: args.budget, ..Settings::default() };
    if args.compare {
        let text = compare::run(snapshot, settings, args.check, args.output)?;
        emit(args, &text, out)?;
        return Ok(Changes::NotAsked);
    }
    let start = Instant::now();
    let outcome = millpond_plan::plan(snapshot, &settings);
    let seconds = start.elapsed().as_secs_f64();
    if args.check {
        verify(snapshot, &outcome, &settings)?;
        writeln!(messages, "checked: the plan keeps every rule and limit")?;
    }
    let text = render(args, args.policy, snapshot, &outcome, seconds)?;
    emit(args, &text, out)?;
    Ok(changes(args, &outcome))
}

/// Plans again for a decision of the history, with the settings that it was made with.
fn run_saved(
    args: &PlanArgs,
    (snapshot, settings): (Snapshot, Settings),
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<Changes> {
    if args.compare || args.save_snapshot.is_some() {
        let message = "the snapshot of a decision is planned as it was, and holds no objects".to_owned();
        let hint = Some("leave `--compare` and `--save-snapshot` out".to_owned());
        return Err(Failure { message, code: Some(Code::Usage), hint }.into());
    }
    let start = Instant::now();
    let outcome = millpond_plan::plan(&snapshot, &settings);
    let seconds = start.elapsed().as_secs_f64();
    if args.check {
        verify(&snapshot, &outcome, &settings)?;
        writeln!(messages, "checked: the plan keeps every rule and limit")?;
    }
    let text = render(args, settings.policy, &snapshot, &outcome, seconds)?;
    emit(args, &text, out)?;
    Ok(changes(args, &outcome))
}

/// What `--detailed-exitcode` tells.
fn changes(args: &PlanArgs, outcome: &Outcome) -> Changes {
    let changes = !outcome.plan.new_nodes.is_empty() || !outcome.plan.removals.is_empty();
    match (args.detailed_exitcode, changes) {
        (false, _) => Changes::NotAsked,
        (true, _) if !outcome.report.unplaced.is_empty() => Changes::Unplaced,
        (true, true) => Changes::Pending,
        (true, false) => Changes::None,
    }
}

/// Whether a plan changes anything, for `--detailed-exitcode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changes {
    NotAsked,
    None,
    Pending,
    /// Whether or not anything changes, some pods get no place.
    Unplaced,
}

impl Changes {
    /// 2 if changes are pending and 7 if pods get no place, where `--detailed-exitcode` asks for it.
    pub(crate) fn exit_code(self) -> ExitCode {
        match self {
            Self::NotAsked | Self::None => ExitCode::SUCCESS,
            Self::Pending => ExitCode::from(2),
            Self::Unplaced => ExitCode::from(Code::Unplaced as u8),
        }
    }
}

fn render(
    args: &PlanArgs,
    policy: Policy,
    snapshot: &Snapshot,
    outcome: &Outcome,
    seconds: f64,
) -> anyhow::Result<String> {
    if args.as_kind == Some(AsKind::ScalingAdvice) {
        let advice = advice::scaling_advice(snapshot, outcome);
        return if args.output == Output::Json { as_json(&advice) } else { as_yaml(&advice) };
    }
    Ok(match args.output {
        Output::Table | Output::Wide => {
            let wide = args.output == Output::Wide;
            text::page(snapshot, outcome, &text::TextOptions { policy, seconds, wide })
        }
        Output::Json => as_json(&view::view(snapshot, outcome, policy))?,
        Output::Yaml => as_yaml(&view::view(snapshot, outcome, policy))?,
        Output::Nodes => as_yaml(&nodes::list(snapshot, outcome))?,
        Output::Name => {
            let names = (0..outcome.plan.new_nodes.len()).map(|node| outcome.plan.node_name(snapshot, node));
            names.map(|name| format!("node/{name}\n")).collect()
        }
    })
}

/// The number of violations that are listed one by one.
const LISTED: usize = 20;

/// Fails with what the checker found.
fn verify(snapshot: &Snapshot, outcome: &Outcome, settings: &Settings) -> anyhow::Result<()> {
    // Other engines understand weights otherwise, and consolidation looks at cost.
    let by_weight = settings.policy == Policy::Millpond && !settings.consolidate;
    let violations = if by_weight { check(snapshot, outcome) } else { check_rules(snapshot, outcome) };
    if violations.is_empty() { Ok(()) } else { Err(broken(settings.policy, &violations).into()) }
}

/// Millpond keeps every rule. The rules of others leave some of kube-scheduler's out, which is no defect of theirs here.
fn broken(policy: Policy, violations: &[Violation]) -> Failure {
    let lines: Vec<String> = violations.iter().take(LISTED).map(|violation| format!("  {violation}")).collect();
    let more = violations.len().saturating_sub(LISTED);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    let list = format!("{}{more}", lines.join("\n"));
    let times = plural(violations.len(), "time");
    let (message, hint) = if policy == Policy::Millpond {
        let message = format!("the plan breaks a rule or limit {times}, which is a defect:\n{list}");
        (message, "please report it with the file that `--save-snapshot` writes".to_owned())
    } else {
        let name = policy.name();
        let message = format!("the plan by the rules of {name} breaks those of kube-scheduler {times}:\n{list}");
        (message, "`--policy millpond` keeps them all".to_owned())
    };
    Failure { message, code: None, hint: Some(hint) }
}

fn emit(args: &PlanArgs, text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    match &args.out {
        Some(path) => file::write(path, text, Readers::Others),
        None => super::print(out, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::describe;

    fn said(policy: Policy, count: usize) -> String {
        let violations: Vec<_> = (0..count).map(|pod| Violation::Forgotten(format!("default/pod-{pod}"))).collect();
        describe(&broken(policy, &violations).into())
    }

    #[test]
    fn a_broken_rule_is_a_defect_of_ours_alone() {
        insta::assert_snapshot!(said(Policy::Millpond, 1), @"
        error: the plan breaks a rule or limit 1 time, which is a defect:
          pod default/pod-0 needs a place and the plan does not speak of it
        hint: please report it with the file that `--save-snapshot` writes
        ");
        insta::assert_snapshot!(said(Policy::ClusterAutoscaler, 2), @"
        error: the plan by the rules of cluster-autoscaler breaks those of kube-scheduler 2 times:
          pod default/pod-0 needs a place and the plan does not speak of it
          pod default/pod-1 needs a place and the plan does not speak of it
        hint: `--policy millpond` keeps them all
        ");
        let many = said(Policy::Karpenter, LISTED + 3);
        assert!(many.contains("default/pod-19 ") && !many.contains("default/pod-20 "), "{many}");
        assert!(many.contains("\n  and 3 more\n"), "{many}");
    }
}
