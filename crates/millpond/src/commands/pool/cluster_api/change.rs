//! `pool set`, `scale` and `delete`: the plan first, then the question, then the deed.

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use millpond_api::capi::pool_file::{self, PoolFile};
use millpond_api::duration;
use millpond_controllers::capi::pools::execute::{self, Leaving};
use millpond_controllers::capi::pools::fetch::PoolError;
use millpond_controllers::capi::pools::{
    Change, ChangePlan, Current, DeletePlan, Effect, Options, Verb, find, name_of, plan, plan_delete, plan_scale,
};
use serde_json::{Value, json};

use super::{PlaceArgs, Session, failed, refused, usage};
use crate::commands::format::plural;
use crate::commands::{as_json, as_yaml, print};
use crate::failure::{Code, Failure};

/// How often a plan that changes again and again is asked about.
const LIMIT_QUESTIONS: usize = 5;
/// The largest node pool file.
const LIMIT_BYTES: u64 = 1 << 20;

/// Arguments of `pool set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    cluster: String,

    /// The node pool file; `-` for stdin
    #[arg(short, long, alias = "filename", value_name = "FILE")]
    file: PathBuf,

    /// The pool that a new one is copied from; the first one without it
    #[arg(long, value_name = "NAME")]
    base_machine_deployment: Option<String>,

    /// GPUs of the hosts that no machine uses; they may be used while machines are replaced
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    spare_gpus: u32,

    #[command(flatten)]
    act: ActArgs,
}

/// Arguments of `pool scale`.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    cluster: String,

    /// The pool
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// How many machines
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(0..=100_000))]
    replicas: i64,

    #[command(flatten)]
    act: ActArgs,
}

/// Arguments of `pool delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    cluster: String,

    /// The pool
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Follow its machines until they are gone
    #[arg(long)]
    wait: bool,

    /// How long to follow them
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = seconds, requires = "wait")]
    timeout: u64,

    #[command(flatten)]
    act: ActArgs,
}

/// Arguments of all these commands.
#[derive(Debug, Args)]
struct ActArgs {
    #[command(flatten)]
    place: PlaceArgs,

    /// Show what would be done, and stop there
    #[arg(long)]
    dry_run: bool,

    /// Do not ask before machines are replaced or deleted
    #[arg(short, long)]
    yes: bool,

    /// How the plan of a dry run is printed
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// One object
    Json,
    /// The same as YAML
    Yaml,
    /// The pool
    Name,
}

impl ActArgs {
    /// Opens the management cluster, and reads a cluster of it.
    fn open(&self, cluster: &str) -> anyhow::Result<(Session, Current)> {
        let session = Session::of(&self.place)?;
        let current = session.fetch(&self.place.namespace, cluster)?;
        Ok((session, current))
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    let read = duration::parse_seconds(text).map_err(|error| error.to_string())?;
    u64::try_from(read).map_err(|error| error.to_string())
}

/// `pool set`.
pub(crate) fn set(args: &SetArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let file = read(&args.file, messages)?;
    let options = Options { base: args.base_machine_deployment.clone(), spare_gpus: args.spare_gpus };
    let (session, current) = args.act.open(&args.cluster)?;
    let made = plan(&current, &file, &options).map_err(|rejections| refused(&rejections))?;
    act(&session, &current, made, &file, &options, &args.act, out, messages)
}

/// The node pool that is named. A name alone may be that of a NodePool, which kubectl changes: the hint says how.
fn node_pool_of<'n>(name: Option<&'n String>, alone: &str, hint: &str) -> Result<&'n String, Failure> {
    name.ok_or_else(|| usage(&format!("which node pool of Cluster API cluster `{alone}`? NAME is missing"), hint))
}

/// `pool scale`.
pub(crate) fn scale(args: &ScaleArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let hint = format!(
        "NodePools size themselves by their pods; one with `spec.replicas`: `kubectl scale nodepool {} --replicas {}`",
        args.cluster, args.replicas
    );
    let name = node_pool_of(args.name.as_ref(), &args.cluster, &hint)?;
    let (session, current) = args.act.open(&args.cluster)?;
    let made = plan_scale(&current, name, args.replicas).map_err(|rejections| refused(&rejections))?;
    let file = PoolFile { name: name.clone(), replicas: Some(args.replicas), ..PoolFile::default() };
    act(&session, &current, made, &file, &Options::default(), &args.act, out, messages)
}

#[expect(clippy::too_many_arguments, reason = "what two commands have in common")]
fn act(
    session: &Session,
    current: &Current,
    made: ChangePlan,
    file: &PoolFile,
    options: &Options,
    args: &ActArgs,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    if args.dry_run {
        return print(out, &shown(&made, args.output)?);
    }
    write!(messages, "{}", table(&made))?;
    if made.rolls_out() && !args.yes {
        confirm("replaces machines of the pool in turn", messages)?;
    }
    let done = carry_out(session, current, made, file, options, args, messages)?;
    // A template without a reference is left from earlier changes; it can wait if it cannot be collected now.
    let now = jiff::Timestamp::now();
    let collect = execute::collect(&session.connection, &current.namespace, &current.cluster, None, now);
    for template in session.runtime.block_on(collect).unwrap_or_default() {
        writeln!(messages, "{template} is no longer needed and was deleted")?;
    }
    let verb = match done.verb {
        Verb::Create => "created",
        Verb::Change => "configured",
        Verb::Nothing => "unchanged",
    };
    print(out, &format!("pool/{} {verb}\n", done.pool))
}

/// Does what was agreed to. When the objects change meanwhile, and something else would be done now, that is shown and
/// asked for anew; where there is no terminal, or `--yes` was said to another plan, it fails.
fn carry_out(
    session: &Session,
    current: &Current,
    mut agreed: ChangePlan,
    file: &PoolFile,
    options: &Options,
    args: &ActArgs,
    messages: &mut impl Write,
) -> anyhow::Result<ChangePlan> {
    for _ in 0..LIMIT_QUESTIONS {
        let set = execute::set(&session.connection, current, agreed, file, options);
        match session.runtime.block_on(set) {
            Err(PoolError::Differs(now)) => {
                writeln!(messages, "the pool was changed meanwhile; now this would be done:")?;
                write!(messages, "{}", table(&now))?;
                if args.yes || !std::io::stdin().is_terminal() {
                    return Err(failed(PoolError::Differs(now)));
                }
                confirm("is not what was shown before", messages)?;
                agreed = *now;
            }
            done => return done.map_err(failed),
        }
    }
    Err(failed(PoolError::Conflict(format!("pool/{}", file.name))))
}

/// `pool delete`.
pub(crate) fn delete(args: &DeleteArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let namespace = &args.act.place.namespace;
    let hint = format!("a NodePool is deleted with its nodes by `kubectl delete nodepool {}`", args.cluster);
    let name = node_pool_of(args.name.as_ref(), &args.cluster, &hint)?;
    let (session, current) = args.act.open(&args.cluster)?;
    let made = plan_delete(&current, name).map_err(|rejections| refused(&rejections))?;
    let deployment = find(&current, name).ok().and_then(|found| found.deployment.map(|it| name_of(it).to_owned()));
    if args.act.dry_run {
        return print(out, &shown_deletion(&made, args.act.output)?);
    }
    write!(messages, "{}", deletion(&made))?;
    if !args.act.yes {
        confirm(&format!("deletes {}", plural(made.machines.len(), "machine")), messages)?;
    }
    session.runtime.block_on(execute::delete(&session.connection, &current, &made)).map_err(failed)?;
    let Some(deployment) = deployment.filter(|_| args.wait) else {
        return print(out, &format!("pool/{} is being deleted\n", made.pool));
    };
    session.runtime.block_on(async {
        let follow = execute::wait_gone(&session.connection, namespace, &deployment, |left| {
            let _ = writeln!(messages, "{}", leaving(&made.pool, left));
        });
        let within = Duration::from_secs(args.timeout);
        let gone = tokio::time::timeout(within, follow).await;
        gone.unwrap_or_else(|_| Err(PoolError::Timeout(format!("pool/{}", made.pool)))).map_err(failed)?;
        let now = jiff::Timestamp::now();
        let collected = execute::collect(&session.connection, namespace, &args.cluster, Some(&deployment), now).await;
        for template in collected.map_err(failed)? {
            writeln!(messages, "{template} is no longer needed and was deleted")?;
        }
        anyhow::Ok(())
    })?;
    print(out, &format!("pool/{} deleted\n", made.pool))
}

/// Reads a node pool file; says what is odd, fails with all that is wrong.
fn read(path: &Path, messages: &mut impl Write) -> anyhow::Result<PoolFile> {
    let (name, bytes) = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(LIMIT_BYTES + 1).read_to_end(&mut bytes).context("cannot read stdin")?;
        ("stdin".to_owned(), bytes)
    } else {
        let read = std::fs::read(path).map_err(|error| {
            let missing = (error.kind() == std::io::ErrorKind::NotFound).then_some(Code::NotFound);
            let message = format!("cannot read `{}`", path.display());
            let code = missing.or_else(|| Code::of_io(&error));
            anyhow::Error::new(error).context(Failure { message, code, hint: None })
        })?;
        (path.display().to_string(), read)
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| usage(&format!("`{name}` is not text in UTF-8"), "is it a node pool file?"))?;
    match pool_file::parse(&name, &text) {
        Ok(reading) => {
            for warning in &reading.warnings {
                writeln!(messages, "warning: {warning}")?;
            }
            Ok(reading.file)
        }
        Err(errors) => {
            let lines: Vec<String> = errors.iter().map(|error| format!("\n  {error}")).collect();
            let message = match &errors[..] {
                [one] => one.to_string(),
                _ => format!("the file has mistakes:{}", lines.concat()),
            };
            let hint = Some("nothing was done; docs/guides/cluster-api.md shows files".to_owned());
            Err(Failure { message, code: Some(Code::Usage), hint }.into())
        }
    }
}

/// Asks on the terminal; without one, `--yes` is needed.
fn confirm(what: &str, messages: &mut impl Write) -> anyhow::Result<()> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(usage(
            &format!("this {what}, and there is no terminal to confirm it on"),
            "add `--yes`, or look with `--dry-run`",
        )
        .into());
    }
    write!(messages, "This {what}. Go on? [y/N] ")?;
    messages.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).context("cannot read the answer")?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure { message: "nothing was done".to_owned(), code: None, hint: None }.into())
}

// Words

fn shown(made: &ChangePlan, output: Output) -> anyhow::Result<String> {
    match output {
        Output::Table => Ok(table(made)),
        Output::Json => as_json(&value(made)),
        Output::Yaml => as_yaml(&value(made)),
        Output::Name => Ok(format!("pool/{}\n", made.pool)),
    }
}

fn table(made: &ChangePlan) -> String {
    let verb = match made.verb {
        Verb::Create => "is new",
        Verb::Change => "changes",
        Verb::Nothing => "is what the file asks for: nothing is written",
    };
    let mut text = format!("pool/{} ({}) {verb}\n", made.pool, made.object);
    let mut part = |head: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            _ = writeln!(text, "  {head}:");
            lines.iter().for_each(|line| _ = writeln!(text, "    {line}"));
        }
    };
    let of = |effect: Effect| made.changes.iter().filter(move |it| it.effect == effect).map(line).collect();
    part("created", made.created.clone());
    part("set", of(Effect::New));
    part("changed in place", of(Effect::InPlace));
    part("rolled out, machine by machine", of(Effect::Rollout));
    part("ignored", made.ignored.iter().map(|(field, reason)| format!("{field}: {reason}")).collect());
    for warning in &made.warnings {
        _ = writeln!(text, "warning: {warning}");
    }
    text
}

fn line(change: &Change) -> String {
    let Change { field, from, to, .. } = change;
    match (from, to) {
        (Some(from), Some(to)) => format!("{field}: {from} → {to}"),
        (None, Some(to)) => format!("{field}: {to}"),
        (Some(from), None) => format!("{field}: {from} goes"),
        (None, None) => field.clone(),
    }
}

fn value(made: &ChangePlan) -> Value {
    let of = |effect: Effect| -> Vec<Value> {
        let changes = made.changes.iter().filter(|it| it.effect == effect);
        changes.map(|it| json!({"field": it.field, "from": it.from, "to": it.to})).collect()
    };
    json!({
        "pool": made.pool, "object": made.object,
        "action": match made.verb { Verb::Create => "create", Verb::Change => "change", Verb::Nothing => "none" },
        "created": made.created, "set": of(Effect::New), "changedInPlace": of(Effect::InPlace), "rolledOut": of(Effect::Rollout),
        "ignored": made.ignored.iter().map(|(field, reason)| json!({"field": field, "reason": reason})).collect::<Vec<_>>(),
        "warnings": made.warnings,
        "objects": made.writes.iter().map(|write| &write.object).collect::<Vec<_>>(),
    })
}

fn shown_deletion(made: &DeletePlan, output: Output) -> anyhow::Result<String> {
    let value = || json!({"pool": made.pool, "machineDeployment": made.deployment, "machines": made.machines});
    match output {
        Output::Table => Ok(deletion(made)),
        Output::Json => as_json(&value()),
        Output::Yaml => as_yaml(&value()),
        Output::Name => Ok(format!("pool/{}\n", made.pool)),
    }
}

fn deletion(made: &DeletePlan) -> String {
    let mut text = format!("pool/{} goes, with {}\n", made.pool, plural(made.machines.len(), "machine"));
    made.machines.iter().for_each(|machine| _ = writeln!(text, "  {machine}"));
    text
}

fn leaving(pool: &str, left: &Leaving) -> String {
    if left.machines.is_empty() {
        return if left.deployment { format!("pool/{pool}: no machine is left") } else { format!("pool/{pool}: gone") };
    }
    let mut phases: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    left.machines.iter().for_each(|(_, phase)| *phases.entry(phase).or_default() += 1);
    let phases: Vec<String> = phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    format!("pool/{pool}: {} left ({})", plural(left.machines.len(), "machine"), phases.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_is_made_changed_and_rolled_out() {
        let change = |field: &str, from: Option<&str>, to: Option<&str>, effect| Change {
            field: field.to_owned(),
            from: from.map(ToOwned::to_owned),
            to: to.map(ToOwned::to_owned),
            effect,
        };
        let made = ChangePlan {
            pool: "gpu".to_owned(),
            object: "MachineDeployment/c-gpu".to_owned(),
            verb: Verb::Change,
            created: vec!["VSphereMachineTemplate/c-gpu-mt-1a2b3c4d".to_owned()],
            changes: vec![
                change("replicas", Some("1"), Some("3"), Effect::InPlace),
                change("vsphere.memoryMiB", None, Some("32768"), Effect::Rollout),
                change("az", Some("zone-1"), None, Effect::Rollout),
            ],
            ignored: vec![("baseMachineDeployment".to_owned(), "the pool is there".to_owned())],
            warnings: vec!["be careful".to_owned()],
            writes: vec![],
        };
        insta::assert_snapshot!(table(&made), @r"
        pool/gpu (MachineDeployment/c-gpu) changes
          created:
            VSphereMachineTemplate/c-gpu-mt-1a2b3c4d
          changed in place:
            replicas: 1 → 3
          rolled out, machine by machine:
            vsphere.memoryMiB: 32768
            az: zone-1 goes
          ignored:
            baseMachineDeployment: the pool is there
        warning: be careful
        ");
    }

    #[test]
    fn progress_counts_machines_by_phase() {
        let machines = vec![("a".to_owned(), "Deleting".to_owned()), ("b".to_owned(), "Running".to_owned())];
        assert_eq!(
            leaving("gpu", &Leaving { machines, deployment: true }),
            "pool/gpu: 2 machines left (1 Deleting, 1 Running)"
        );
        assert_eq!(leaving("gpu", &Leaving { machines: vec![], deployment: false }), "pool/gpu: gone");
    }
}
