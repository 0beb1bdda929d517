//! Objects that commands look at: of files, folders, stdin, or of a live cluster.

use std::io::{IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;
use millpond_plan::model::Snapshot;
use millpond_plan::plan::Settings;
use millpond_state::{LIMIT_BYTES, Options, PODS_LISTED, Reader, Severity, State, saved};
use serde_json::{Value, json};

use super::catalog::Source;
use super::cluster::{Connection, EVERYTHING, List};
use crate::failure::{Code, Failure};

/// The most files that a folder is searched for; more is a mistake, such as the root of a disk.
const LIMIT_FILES: usize = 10_000;
/// Folders within folders.
const LIMIT_DEPTH: usize = 32;

/// Files, or a cluster.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// A file or folder of YAML or JSON, `-` for stdin (repeatable); without it the current cluster
    #[arg(short = 'f', long = "filename", alias = "file", value_name = "PATH")]
    filename: Vec<PathBuf>,

    /// The kubeconfig of the cluster
    #[arg(long, value_name = "FILE", conflicts_with = "filename")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME", conflicts_with = "filename")]
    context: Option<String>,
}

/// Where objects come from.
#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    #[command(flatten)]
    place: PlaceArgs,

    /// Act as if it were this time, e.g. 2026-11-16T08:00:00Z: budgets and ages depend on it
    #[arg(long, value_name = "TIME", value_parser = time)]
    now: Option<i64>,
}

/// Where objects come from, and what can be bought.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    #[command(flatten)]
    pub(crate) objects: ObjectArgs,

    #[command(flatten)]
    source: Source,
}

/// The purpose of reading objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To plan; without a pool, with one over the general families of the catalogue.
    Plan,
    /// The same, keeping the objects so that they can be saved.
    PlanAndSave,
    /// For lists: no default pool is added, and nodes of no pool have prices too.
    List,
}

impl PlaceArgs {
    fn is_live(&self) -> bool {
        self.filename.is_empty()
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.kubeconfig.as_deref(), self.context.as_deref())
    }

    /// Reads files, or lists kinds of the cluster.
    pub(crate) fn read(&self, lists: &[List]) -> anyhow::Result<Texts> {
        if self.is_live() { Ok(self.connect()?.read(lists)?.texts) } else { of_files(&self.filename) }
    }
}

impl ObjectArgs {
    /// Whether they are those of a live cluster.
    pub(crate) fn is_live(&self) -> bool {
        self.place.is_live()
    }

    /// Whether any of it was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.is_live() || self.place.kubeconfig.is_some() || self.place.context.is_some() || self.now.is_some()
    }

    /// The cluster.
    pub(crate) fn connect(&self) -> anyhow::Result<Connection> {
        self.place.connect()
    }

    /// The kubeconfig and the context that were named.
    pub(crate) fn cluster(&self) -> (Option<&Path>, Option<&str>) {
        (self.place.kubeconfig.as_deref(), self.place.context.as_deref())
    }

    /// The time to act at.
    pub(crate) fn now(&self) -> i64 {
        self.now.unwrap_or_else(current_time)
    }

    /// Reads files, or lists kinds of the cluster.
    pub(crate) fn read(&self, lists: &[List]) -> anyhow::Result<Texts> {
        self.place.read(lists)
    }
}

fn time(text: &str) -> Result<i64, String> {
    let parsed = text.parse::<jiff::Timestamp>();
    parsed.map(jiff::Timestamp::as_second).map_err(|_| "a time such as 2026-11-16T08:00:00Z".to_owned())
}

/// The objects that were read.
pub(crate) struct Input {
    /// The planner's input.
    pub(crate) snapshot: Snapshot,
    /// The objects that it was made from, as far as planning looks at them.
    pub(crate) state: State,
    /// The objects themselves, where they are to be saved.
    objects: Vec<Value>,
}

impl Input {
    /// The objects as one List.
    pub(crate) fn saved(&self) -> Value {
        json!({ "apiVersion": "v1", "kind": "List", "items": self.objects })
    }
}

/// The snapshot of a decision, if the one file that was named is one.
pub(crate) fn saved_decision(args: &InputArgs) -> anyhow::Result<Option<(Snapshot, Settings)>> {
    let [path] = &*args.objects.place.filename else { return Ok(None) };
    if path == Path::new("-") || !path.is_file() {
        return Ok(None);
    }
    let mut head = Vec::new();
    // What cannot be read is told by the reader of objects.
    let Ok(file) = std::fs::File::open(path) else { return Ok(None) };
    if file.take(saved::HEAD as u64).read_to_end(&mut head).is_err() || !saved::is_saved(&head) {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let read = saved::load(&text).map_err(|error| {
        let message = format!("`{}` cannot be planned with", path.display());
        let hint = Some("`millpond history ID --save FILE` writes it again".to_owned());
        anyhow::Error::new(error).context(Failure { message, code: None, hint })
    });
    read.map(Some)
}

/// Reads everything and takes a snapshot; what is odd is said, what is wrong fails.
pub(crate) fn load(args: &InputArgs, purpose: Purpose, messages: &mut impl Write) -> anyhow::Result<Input> {
    take(args, &args.objects.read(EVERYTHING)?, purpose, messages)
}

/// Takes a snapshot of what was read.
pub(crate) fn take(
    args: &InputArgs,
    texts: &[(String, Vec<u8>)],
    purpose: Purpose,
    messages: &mut impl Write,
) -> anyhow::Result<Input> {
    let catalog = args.source.load(messages)?.into_owned();
    let live = args.objects.is_live();
    let state = if live { understand_cluster(texts, messages)? } else { understand(texts, messages)? };
    let options = Options {
        catalog: Some(Arc::new(catalog)),
        default_pool: purpose != Purpose::List,
        price_unmanaged: purpose == Purpose::List,
        expand_workloads: true,
        ..Options::default()
    };
    // What is said of a cluster is what its controllers do.
    let options = if live { options.of_cluster() } else { options };
    let taken = state.snapshot(args.objects.now(), &options);
    let mut errors = Vec::new();
    for note in &taken.notes {
        match note.severity {
            Severity::Warning => writeln!(messages, "warning: {note}")?,
            Severity::Error => errors.push(note),
        }
    }
    if !errors.is_empty() {
        return Err(unreadable(&errors, 0));
    }
    let objects = if purpose == Purpose::PlanAndSave { kept(texts, live)? } else { Vec::new() };
    Ok(Input { snapshot: taken.snapshot, state, objects })
}

/// Texts with the file or path that they came from.
pub(crate) type Texts = Vec<(String, Vec<u8>)>;

/// Parses the objects of texts; it is an error if there are none.
fn understand(texts: &[(String, Vec<u8>)], messages: &mut impl Write) -> anyhow::Result<State> {
    let (state, objects) = understand_all(Reader::new(), texts, messages)?;
    if objects == 0 {
        let message = "there is nothing to look at: no object was read".to_owned();
        let hint = Some("give files with pods and node pools, such as examples/web".to_owned());
        return Err(anyhow::Error::new(Failure { message, code: Some(Code::NotFound), hint }));
    }
    Ok(state)
}

/// The objects of a cluster. What is wrong with one of them is a warning: controllers leave it aside as well.
fn understand_cluster(texts: &[(String, Vec<u8>)], messages: &mut impl Write) -> anyhow::Result<State> {
    Ok(understand_all(Reader::of_cluster(), texts, messages)?.0)
}

/// The objects of texts, if there are any.
pub(crate) fn understand_some(texts: &[(String, Vec<u8>)], messages: &mut impl Write) -> anyhow::Result<State> {
    Ok(understand_all(Reader::new(), texts, messages)?.0)
}

fn understand_all(
    mut reader: Reader,
    texts: &[(String, Vec<u8>)],
    messages: &mut impl Write,
) -> anyhow::Result<(State, usize)> {
    texts.iter().for_each(|(name, bytes)| reader.add(name, bytes));
    let reading = reader.finish();
    for warning in &reading.warnings {
        writeln!(messages, "warning: {warning}")?;
    }
    if !reading.errors.is_empty() {
        return Err(unreadable(&reading.errors, reading.more));
    }
    Ok((reading.state, reading.objects))
}

fn current_time() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

fn unreadable(errors: &[impl std::fmt::Display], more: usize) -> anyhow::Error {
    let lines: Vec<String> = errors.iter().map(|error| format!("  {error}")).collect();
    let rest = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    let message = format!("what was read cannot be planned with:\n{}{rest}", lines.join("\n"));
    let hint = Some("nothing was planned; mend these and try again".to_owned());
    anyhow::Error::new(Failure { message, code: None, hint })
}

/// Reads files, folders and stdin.
pub(crate) fn of_files(paths: &[PathBuf]) -> anyhow::Result<Texts> {
    let mut texts = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            texts.push(("stdin".to_owned(), stdin()?));
        } else {
            collect(path, 0, &mut texts)?;
        }
    }
    Ok(texts)
}

fn stdin() -> anyhow::Result<Vec<u8>> {
    let input = std::io::stdin();
    if input.is_terminal() {
        let message = "stdin is a terminal".to_owned();
        let hint = Some("pipe objects in: kubectl get pods,nodepools -A -o yaml | millpond plan -f -".to_owned());
        return Err(anyhow::Error::new(Failure { message, code: Some(Code::Usage), hint }));
    }
    let mut bytes = Vec::new();
    input.lock().take(LIMIT_BYTES as u64 + 1).read_to_end(&mut bytes).context("cannot read stdin")?;
    Ok(bytes)
}

/// A file, or all YAML and JSON files of a folder in the order of their names.
fn collect(path: &Path, depth: usize, texts: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
    let refused = |error: std::io::Error| {
        let missing = (error.kind() == std::io::ErrorKind::NotFound).then_some(Code::NotFound);
        let message = format!("cannot read `{}`", path.display());
        let code = missing.or_else(|| Code::of_io(&error));
        anyhow::Error::new(error).context(Failure { message, code, hint: None })
    };
    if !std::fs::metadata(path).map_err(refused)?.is_dir() {
        let file = std::fs::File::open(path).map_err(refused)?;
        let mut bytes = Vec::new();
        file.take(LIMIT_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(refused)?;
        texts.push((path.display().to_string(), bytes));
        return Ok(());
    }
    if depth > LIMIT_DEPTH || texts.len() > LIMIT_FILES {
        let message = format!("`{}` holds more than {LIMIT_FILES} files or too many folders", path.display());
        let hint = Some("name the folder that holds the objects".to_owned());
        return Err(anyhow::Error::new(Failure { message, code: Some(Code::Usage), hint }));
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(refused)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, _>>()
        .map_err(refused)?;
    entries.sort();
    for entry in entries {
        let readable = entry.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if entry.is_dir() || readable {
            collect(&entry, depth + 1, texts)?;
        }
    }
    Ok(())
}

/// All objects, to be saved. The pods of a live cluster are complete, so no further pods are created for its workloads
/// later.
pub(crate) fn kept(texts: &[(String, Vec<u8>)], live: bool) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for (name, bytes) in texts {
        objects.extend(values(name, bytes)?);
    }
    let is_workload =
        |object: &Value| matches!(object["kind"].as_str(), Some("Deployment" | "ReplicaSet" | "StatefulSet"));
    for object in objects.iter_mut().filter(|object| live && is_workload(object)) {
        object["metadata"]["annotations"][PODS_LISTED] = "true".into();
    }
    Ok(objects)
}

/// The objects of a text, those of lists one by one.
pub(crate) fn values(name: &str, bytes: &[u8]) -> anyhow::Result<Vec<Value>> {
    let text = std::str::from_utf8(bytes).with_context(|| format!("`{name}` is not text"))?;
    let json = || serde_json::Deserializer::from_str(text).into_iter().collect::<Result<Vec<Value>, _>>();
    let like_json = text.trim_start().starts_with(['{', '[']);
    let documents: Vec<Value> = match like_json.then(json) {
        Some(Ok(documents)) => documents,
        // `{apiVersion: v1}` is YAML.
        Some(Err(_)) | None => serde_saphyr::from_multiple(text).with_context(|| name.to_owned())?,
    };
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        flatten(document, &mut objects);
    }
    Ok(objects)
}

fn flatten(document: Value, objects: &mut Vec<Value>) {
    match document {
        Value::Array(items) => items.into_iter().for_each(|item| flatten(item, objects)),
        Value::Object(mut object) if object.contains_key("items") => {
            let version = object.get("apiVersion").cloned().unwrap_or_default();
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().strip_suffix("List");
            let kind = kind.unwrap_or_default().to_owned();
            for mut item in object.remove("items").and_then(|items| items.as_array().cloned()).unwrap_or_default() {
                // Items of a typed list do not repeat what they are.
                if let Some(fields) = item.as_object_mut().filter(|_| !kind.is_empty()) {
                    fields.entry("apiVersion").or_insert_with(|| version.clone());
                    fields.entry("kind").or_insert_with(|| kind.clone().into());
                }
                objects.push(item);
            }
        }
        object => objects.push(object),
    }
}
