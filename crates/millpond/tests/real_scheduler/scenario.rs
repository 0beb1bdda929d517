//! A scenario: objects in files, and the plan that the binary makes of them.
//!
//! A file opens with a comment that says what it is about and ends with two lines for this suite:
//! `# catalog: NAME` (left out: `types.json` beside it) and `# expect: N placed, M unplaced`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// Where a scenario comes from, and what it is to come to.
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// What `plan -f` reads.
    files: Vec<PathBuf>,
    /// What `plan --catalog` is given.
    catalog: PathBuf,
    /// Pods with and without a place.
    expected: (usize, usize),
    /// Everything in the files.
    pub(crate) objects: Vec<Value>,
}

/// What the plan says.
pub(crate) struct Plan {
    /// Pod, as `namespace/name`, and node.
    pub(crate) placements: BTreeMap<String, String>,
    pub(crate) unplaced: BTreeSet<String>,
    /// Nodes to buy, as the API wants them.
    pub(crate) nodes: Vec<Value>,
}

/// The scenarios in the folder beside this file, by name.
pub(crate) fn all() -> Result<Vec<Scenario>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_scheduler/scenarios");
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("list `{}`", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files.into_iter().map(|file| from_file(&file)).collect()
}

fn from_file(file: &Path) -> Result<Scenario> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read `{}`", file.display()))?;
    let said = |key: &str| text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "));
    let expected = said("expect")
        .and_then(expectation)
        .with_context(|| format!("`{}` has no line `# expect: N placed, M unplaced`", file.display()))?;
    let catalog = said("catalog").map_or_else(|| file.with_file_name("types.json"), PathBuf::from);
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Scenario::new(name, vec![file.to_owned()], catalog, expected)
}

fn expectation(text: &str) -> Option<(usize, usize)> {
    let (placed, unplaced) = text.split_once(" placed, ")?;
    Some((placed.parse().ok()?, unplaced.strip_suffix(" unplaced")?.parse().ok()?))
}

impl Scenario {
    pub(crate) fn new(name: String, files: Vec<PathBuf>, catalog: PathBuf, expected: (usize, usize)) -> Result<Self> {
        let mut objects = Vec::new();
        for file in &files {
            let text = std::fs::read_to_string(file).with_context(|| format!("read `{}`", file.display()))?;
            objects.extend(documents(&text).with_context(|| format!("read `{}`", file.display()))?);
        }
        Ok(Self { name, files, catalog, expected, objects })
    }

    /// The objects of a kind.
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Asks the binary, which checks its plan as well.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let plan: Value = serde_json::from_str(&self.millpond(&["-o", "json", "--check"])?).context("read the plan")?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a plan without names");
        let mut placements = BTreeMap::new();
        for one in plan["placements"].as_array().context("a plan without `placements`")? {
            placements.insert(text(&one["pod"])?, text(&one["node"])?);
        }
        let unplaced = plan["unplaced"].as_array().context("a plan without `unplaced`")?;
        let unplaced: BTreeSet<String> = unplaced.iter().map(|one| text(&one["pod"])).collect::<Result<_>>()?;
        let pending: BTreeSet<String> = self.of_kind("Pod").filter(|pod| !has_node(pod)).map(pod_name).collect();
        let known: BTreeSet<String> = placements.keys().chain(&unplaced).cloned().collect();
        ensure!(pending == known, "the plan is about {known:?}; pending are {pending:?}");
        let nodes = documents(&self.millpond(&["-o", "nodes"])?).context("read the nodes")?;
        Ok(Plan { placements, unplaced, nodes })
    }

    fn millpond(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
        command.arg("plan").arg("--catalog").arg(&self.catalog).args(args);
        for file in &self.files {
            command.arg("-f").arg(file);
        }
        let output = command.output().context("run millpond")?;
        if !output.status.success() {
            bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).context("read what millpond printed")
    }

    /// Where the plan is not what the scenario was written for.
    pub(crate) fn surprises(&self, plan: &Plan) -> Vec<String> {
        let found = (plan.placements.len(), plan.unplaced.len());
        if found == self.expected {
            return Vec::new();
        }
        let (placed, unplaced) = self.expected;
        vec![format!("expected {placed} placed and {unplaced} unplaced; the plan has {found:?}")]
    }
}

/// The documents of a YAML text, with lists taken apart.
fn documents(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in serde_saphyr::from_multiple::<Value>(text)? {
        match document.get("items").and_then(Value::as_array) {
            Some(items) => all.extend(items.iter().cloned()),
            None if document.is_null() => {}
            None => all.push(document),
        }
    }
    Ok(all)
}

/// `namespace/name`.
pub(crate) fn pod_name(pod: &Value) -> String {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
    format!("{namespace}/{}", pod["metadata"]["name"].as_str().unwrap_or_default())
}

/// Whether a pod runs already.
pub(crate) fn has_node(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}
