//! `millpond export` and `millpond import`: pools in the words of another tool. What goes where is in
//! `millpond_api::convert`; here it gets files, flags and words.

mod input;
mod output;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use millpond_api::convert::{Settings, Target, convert};
use millpond_api::duration::{self, Duration};
use millpond_api::spelling::nearest;

use super::catalog::Source;
use super::cluster::POOLS;
use super::input::{PlaceArgs, of_files};
use output::OutputArgs;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Target format: karpenter, scaling-advisor, cluster-autoscaler-kwok
    #[arg(long, value_name = "TOOL", value_parser = tool)]
    to: Tool,

    #[command(flatten)]
    place: PlaceArgs,

    /// The class that NodePools name, with --to karpenter: Millpond's NodeClass, or the KWOKNodeClass of Karpenter's KWOK provider
    #[arg(long, value_name = "KIND", value_enum, default_value = "millpond")]
    node_class: NodeClassKind,

    /// Keep only this many types of a NodePool: those with the lowest price per core
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_types: Option<u32>,

    #[command(flatten)]
    shared: SharedArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// A file or folder of YAML or JSON, `-` for stdin (repeatable)
    #[arg(short = 'f', long = "filename", alias = "file", value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    shared: SharedArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of both commands besides objects.
#[derive(Debug, Args)]
struct SharedArgs {
    /// Types and prices
    #[command(flatten)]
    source: Source,

    /// The region: of the prices to take from a list of several, and of pools whose catalogue has none
    #[arg(long, value_name = "REGION")]
    region: Option<String>,

    /// Name of the objects that several pools share: the node class, the constraint
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// How long draining a node may take, for pools that do not say: Gardener's machineDrainTimeout, terminationGracePeriod of a NodePool
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    machine_drain_timeout: Option<i64>,
}

/// A tool with files of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Karpenter,
    ScalingAdvisor,
    ClusterAutoscalerKwok,
}

impl Tool {
    const ALL: [(&str, Self); 3] = [
        ("karpenter", Self::Karpenter),
        ("scaling-advisor", Self::ScalingAdvisor),
        ("cluster-autoscaler-kwok", Self::ClusterAutoscalerKwok),
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NodeClassKind {
    /// Millpond's, with a catalogue beside it
    Millpond,
    /// Karpenter's for KWOK, with a list of instance types beside it
    Kwok,
}

/// Reads the name of a tool; a misspelt one is answered with the nearest.
fn tool(text: &str) -> Result<Tool, String> {
    let names = Tool::ALL.map(|(name, _)| name);
    let short = |name: &&str| !text.is_empty() && name.starts_with(text);
    Tool::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, tool)| tool).ok_or_else(|| {
        let near = nearest(text, names).or_else(|| names.into_iter().find(short));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        format!("there is no such tool: one of {}{hint}", names.join(", "))
    })
}

fn seconds(text: &str) -> Result<i64, String> {
    duration::parse_seconds(text).map_err(|error| format!("`{text}` {error}"))
}

/// Says pools in the words of another tool.
pub(crate) fn export(args: &ExportArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let target = match (args.to, args.node_class) {
        (Tool::Karpenter, NodeClassKind::Millpond) => Target::Millpond,
        (Tool::Karpenter, NodeClassKind::Kwok) => Target::Kwok,
        (Tool::ScalingAdvisor, _) => Target::ScalingAdvisor,
        (Tool::ClusterAutoscalerKwok, _) => Target::ClusterAutoscaler,
    };
    let texts = args.place.read(POOLS)?;
    run(&Work { texts, target, max_types: args.max_types, shared: &args.shared, output: &args.output }, out, messages)
}

/// Turns another tool's files into Millpond's.
pub(crate) fn import(args: &ImportArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let texts = of_files(&args.filename)?;
    let work = Work { texts, target: Target::Millpond, max_types: None, shared: &args.shared, output: &args.output };
    run(&work, out, messages)
}

/// The inputs of a conversion.
struct Work<'a> {
    texts: Vec<(String, Vec<u8>)>,
    target: Target,
    max_types: Option<u32>,
    shared: &'a SharedArgs,
    output: &'a OutputArgs,
}

fn run(work: &Work<'_>, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<()> {
    let SharedArgs { source, region, name, machine_drain_timeout } = work.shared;
    let (catalog, overlays) = source.load_with_overlays(region.as_deref(), messages)?;
    let input = input::read(&work.texts, region.as_deref(), messages)?;
    let settings = Settings {
        name: name.clone(),
        catalog: &catalog,
        overlays: &overlays,
        region: region.clone(),
        drain_timeout: machine_drain_timeout.map(Duration),
        most_types: work.max_types.map(|most| most as usize),
    };
    let converted =
        convert(&input, work.target, &settings).map_err(|error| output::refused(error, &input, work, messages))?;
    output::write(&converted, work, out, messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_tool_is_recognised() {
        assert_eq!(tool("karpenter"), Ok(Tool::Karpenter));
        let all = "there is no such tool: one of karpenter, scaling-advisor, cluster-autoscaler-kwok";
        for (text, near) in [
            ("karpentr", "karpenter"),
            ("scaling-adviser", "scaling-advisor"),
            ("cluster-autoscaler", "cluster-autoscaler-kwok"),
        ] {
            assert_eq!(tool(text), Err(format!("{all}; did you mean `{near}`?")));
        }
        assert_eq!(tool("nomad"), Err(all.to_owned()));
    }
}
