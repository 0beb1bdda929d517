//! Output of a conversion: the objects and the report.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use millpond_api::catalog::config_map::NAMESPACE;
use millpond_api::convert::{ConvertError, Converted, Input, Report, Target};
use serde_json::{Value, json};

use super::super::file::{self, Readers};
use super::super::format::plural;
use super::super::{as_json, as_yaml, print};
use super::Work;
use crate::failure::{Code, Failure};

/// How it is written.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// How objects are written
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Format,

    /// Write files into this folder instead of stdout, those that are no objects included
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Replace existing files
    #[arg(long)]
    force: bool,

    /// How fields without an exact counterpart are reported on stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    report: ReportFormat,

    /// Write the report to a file instead of stderr
    #[arg(long, value_name = "FILE")]
    report_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Documents between `---`
    Yaml,
    /// One List
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// Two lines for each field
    Text,
    /// A list of {object, field, action, value, reason}
    Json,
    /// Not at all
    None,
}

/// Writes objects, files and the report.
pub(super) fn write(
    converted: &Converted,
    work: &Work<'_>,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    let args = work.output;
    let text = objects(converted, args.output)?;
    match &args.out {
        Some(folder) => write_files(folder, &text, converted, work, messages)?,
        None => print(out, &text)?,
    }
    if args.out.is_none() && work.target == Target::ScalingAdvisor {
        let names: Vec<&str> = converted.files.iter().map(|file| file.name.as_str()).collect();
        writeln!(messages, "`--out FOLDER` writes the prices that Scaling Advisor reads, too: {}", names.join(", "))?;
    }
    tell(&converted.report, work, messages)
}

fn objects(converted: &Converted, format: Format) -> anyhow::Result<String> {
    let objects = with_namespace(&converted.objects);
    match format {
        Format::Json => as_json(&json!({ "apiVersion": "v1", "kind": "List", "items": objects })),
        Format::Yaml => {
            let documents: Vec<String> = objects.iter().map(as_yaml).collect::<Result<_, _>>()?;
            Ok(documents.join("---\n"))
        }
    }
}

/// The same with the namespace of Millpond's own objects before the first object in it: `kubectl apply` refuses objects
/// whose namespace is not there.
fn with_namespace(objects: &[Value]) -> Vec<Value> {
    let mut objects = objects.to_vec();
    let first = objects.iter().position(|object| object["metadata"]["namespace"] == NAMESPACE);
    if let Some(first) = first {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        objects.insert(first, namespace);
    }
    objects
}

fn write_files(
    folder: &Path,
    text: &str,
    converted: &Converted,
    work: &Work<'_>,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    let stem = match work.target {
        Target::Millpond | Target::Kwok => "pools",
        Target::ScalingAdvisor => "constraint",
        Target::ClusterAutoscaler => "kwok-provider",
    };
    let end = if work.output.output == Format::Json { "json" } else { "yaml" };
    let main = (format!("{stem}.{end}"), text);
    let others = converted.files.iter().map(|file| (file.name.clone(), file.text.as_str()));
    let files: Vec<(PathBuf, &str)> =
        std::iter::once(main).chain(others).map(|(name, text)| (folder.join(name), text)).collect();
    if let Some((there, _)) = files.iter().find(|(path, _)| path.exists() && !work.output.force) {
        let message = format!("`{}` exists already", there.display());
        let hint = Some("`--force` replaces it".to_owned());
        return Err(Failure { message, code: Some(Code::Conflict), hint }.into());
    }
    std::fs::create_dir_all(folder).map_err(|error| {
        let (code, message) = (Code::of_io(&error), format!("cannot make the folder `{}`", folder.display()));
        anyhow::Error::new(error).context(Failure { message, code, hint: None })
    })?;
    for (path, text) in files {
        file::write(&path, text, Readers::Others)?;
        writeln!(messages, "wrote {}", path.display())?;
    }
    Ok(())
}

/// Tells the report where it is wanted.
fn tell(report: &Report, work: &Work<'_>, messages: &mut impl Write) -> anyhow::Result<()> {
    let text = match work.output.report {
        ReportFormat::Text => in_words(report, work.target),
        ReportFormat::Json => as_json(report)?,
        ReportFormat::None => return Ok(()),
    };
    match &work.output.report_file {
        Some(path) => file::write(path, &text, Readers::Others),
        None => print(messages, &text),
    }
}

/// Two lines for each field, below its object.
fn in_words(report: &Report, target: Target) -> String {
    let title = target.title();
    if report.is_empty() {
        return format!("every field has its counterpart in {title}\n");
    }
    let mut page = format!("{} without an exact counterpart in {title}:\n", plural(report.entries.len(), "field"));
    let mut object = "";
    for entry in &report.entries {
        if entry.object != object {
            object = &entry.object;
            _ = writeln!(page, "\n{object}");
        }
        let (action, shown) = (entry.action.name(), entry.shown());
        _ = writeln!(page, "  {action:12} {}: {shown}\n  {:12} {}", entry.field, "", entry.reason);
    }
    page
}

/// Why nothing was made, and what to do.
pub(super) fn refused(error: ConvertError, input: &Input, work: &Work<'_>, messages: &mut impl Write) -> anyhow::Error {
    if let ConvertError::NothingLeft { report } = &error {
        _ = tell(report, work, messages);
    }
    let (code, hint) = match &error {
        ConvertError::NoPools => {
            let there = match input.others() {
                [] => String::new(),
                others => format!(", and not {}", others.join(", ")),
            };
            let known =
                "NodePools, ScalingConstraints, the ConfigMap kwok-provider-templates and KWOK's instance types";
            (Some(Code::NotFound), format!("pools are {known}{there}"))
        }
        ConvertError::UnknownCatalog { near: Some(near), .. } => {
            (Some(Code::NotFound), format!("did you mean `{near}`?"))
        }
        ConvertError::UnknownCatalog { .. } => {
            (Some(Code::NotFound), "`--catalog FILE` or a file among those of `-f` can bring it".to_owned())
        }
        ConvertError::TooLarge { .. } => (
            Some(Code::Conflict),
            "`--max-types NUMBER` keeps the cheapest types, or narrow the requirements of the pool".to_owned(),
        ),
        ConvertError::NothingLeft { .. } => (None, "the report above says what is wrong with each".to_owned()),
        ConvertError::Object { .. } | ConvertError::Text { .. } | ConvertError::Catalog { .. } => {
            (None, "nothing was written; mend it and try again".to_owned())
        }
    };
    let message = "cannot convert".to_owned();
    anyhow::Error::new(error).context(Failure { message, code, hint: Some(hint) })
}
