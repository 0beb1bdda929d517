//! A snapshot as files that others can read.
//!
//! | File | What |
//! |---|---|
//! | `pods.yaml` | v1 Pods |
//! | `pools.yaml` | `karpenter.sh/v1` NodePools |
//! | `types.json` | instance types, in the format of Karpenter's KWOK provider |
//! | `nodes.yaml` | v1 Nodes, where there are any |
//!
//! Parts that these files cannot express (volumes, DaemonSets, disruption budgets, pools that see only some of the
//! types) are an error and never left out: an engine with a smaller task would not be comparable.

mod pods;
mod pools;
#[cfg(test)]
mod tests;
mod types;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use millpond_api::quantity;
use millpond_plan::model::{CPU, MEMORY, Node, ResourceId, Resources, STORAGE, Seconds, Snapshot};
use millpond_plan::requirement::{Operator, Requirements};
use millpond_plan::symbol::Symbols;
use millpond_plan::taint::{Effect, Taint};
use serde_json::{Map, Value, json};

/// Why a snapshot was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// A file or directory cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The files have no words for something.
    #[error("{0} cannot be said in these files")]
    Inexpressible(String),
}

fn inexpressible(what: impl Into<String>) -> SaveError {
    SaveError::Inexpressible(what.into())
}

/// Writes a snapshot into a directory, which is made if need be.
pub fn save(snapshot: &Snapshot, directory: &Path) -> Result<(), SaveError> {
    refuse_what_has_no_place(snapshot)?;
    let class_texts = pods::class_texts(snapshot)?;
    let pool_texts = pools::texts(snapshot)?;
    let type_values = types::values(snapshot)?;
    std::fs::create_dir_all(directory).map_err(|source| SaveError::Write { path: directory.to_owned(), source })?;
    write(&directory.join("pods.yaml"), |file| pods::write(snapshot, &class_texts, file))?;
    write(&directory.join("pools.yaml"), |file| write_documents(file, pool_texts.iter()))?;
    write(&directory.join("types.json"), |file| types::write(&type_values, file))?;
    if !snapshot.nodes.is_empty() {
        let texts = snapshot.nodes.iter().map(|node| yaml(&node_object(snapshot, node)));
        write(&directory.join("nodes.yaml"), |file| write_documents(file, texts))?;
    }
    Ok(())
}

fn refuse_what_has_no_place(snapshot: &Snapshot) -> Result<(), SaveError> {
    let absent = [
        (snapshot.daemons.is_empty(), "a daemon"),
        (snapshot.disruption_budgets.is_empty(), "a PodDisruptionBudget"),
        (snapshot.limits.is_empty(), "a limit on all pools together"),
        (snapshot.namespaces.values().all(millpond_plan::model::Labels::is_empty), "a label of a namespace"),
    ];
    absent.into_iter().find(|(is_absent, _)| !is_absent).map_or(Ok(()), |(_, what)| Err(inexpressible(what)))
}

fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), SaveError> {
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        content(&mut file)?;
        file.flush()
    });
    written.map_err(|source| SaveError::Write { path: path.to_owned(), source })
}

fn write_documents<T: AsRef<str>>(file: &mut dyn Write, texts: impl Iterator<Item = T>) -> std::io::Result<()> {
    for (number, text) in texts.enumerate() {
        if number > 0 {
            file.write_all(b"---\n")?;
        }
        file.write_all(text.as_ref().as_bytes())?;
    }
    Ok(())
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).expect("JSON values can be written as YAML")
}

/// RFC 3339, as Kubernetes writes times.
fn time(seconds: Seconds) -> String {
    jiff::Timestamp::from_second(seconds).expect("times of snapshots are within a few years of now").to_string()
}

fn amount(snapshot: &Snapshot, resource: ResourceId, amount: i64) -> (String, Value) {
    let unsigned = amount.max(0).unsigned_abs();
    let text = match resource {
        CPU => quantity::cores(unsigned),
        MEMORY | STORAGE => quantity::binary(unsigned),
        _ => unsigned.to_string(),
    };
    (snapshot.resources.name(resource).to_owned(), text.into())
}

fn amounts(snapshot: &Snapshot, of: &Resources) -> Map<String, Value> {
    of.iter().map(|(resource, one)| amount(snapshot, resource, one)).collect()
}

/// `matchExpressions`, sorted by label. Nodes know `Gt` and `Lt` only, so ranges are said with these.
fn expressions(requirements: &Requirements, symbols: &Symbols) -> Vec<Value> {
    let mut all = Vec::new();
    for (key, requirement) in requirements.iter() {
        for (operator, values) in requirement.expressions(symbols) {
            let moved = |by: i64| {
                let bound: i64 = values[0].parse().expect("bounds are whole numbers");
                vec![bound.saturating_add(by).to_string()]
            };
            let (operator, values) = match operator {
                Operator::Gte => (Operator::Gt, moved(-1)),
                Operator::Lte => (Operator::Lt, moved(1)),
                other => (other, values),
            };
            let mut one = json!({"key": symbols.text(key), "operator": operator.name()});
            if !values.is_empty() {
                one["values"] = values.into();
            }
            all.push((symbols.text(key), one));
        }
    }
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, one)| one).collect()
}

fn effect_name(effect: Effect) -> &'static str {
    match effect {
        Effect::NoSchedule => "NoSchedule",
        Effect::PreferNoSchedule => "PreferNoSchedule",
        Effect::NoExecute => "NoExecute",
    }
}

fn taint(symbols: &Symbols, taint: &Taint) -> Value {
    json!({
        "key": symbols.text(taint.key),
        "value": symbols.text(taint.value),
        "effect": effect_name(taint.effect),
    })
}

fn node_object(snapshot: &Snapshot, node: &Node) -> Value {
    let symbols = &snapshot.symbols;
    let labels: Map<String, Value> =
        node.labels.iter().map(|(key, value)| (symbols.text(key).to_owned(), symbols.text(value).into())).collect();
    let ready = if node.ready { "True" } else { "False" };
    let since = time(node.initialized.unwrap_or(node.created));
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "creationTimestamp": time(node.created), "labels": labels},
        "spec": {"providerID": format!("kwok://{}", node.name)},
        "status": {
            "capacity": amounts(snapshot, &node.capacity),
            "allocatable": amounts(snapshot, &node.allocatable),
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}],
        },
    });
    if !node.taints.is_empty() {
        object["spec"]["taints"] = node.taints.iter().map(|one| taint(symbols, one)).collect();
    }
    object
}
