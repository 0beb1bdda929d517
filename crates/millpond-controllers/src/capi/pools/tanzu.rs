//! Pools that are entries of a TanzuKubernetesCluster; a supervisor creates the other objects.

use millpond_api::capi::pool_file::PoolFile;
use millpond_api::duration;
use serde_json::{Value, json};

use super::changes::Changes;
use super::plan::{check_replicas, entries_write, texts};
use super::{ChangePlan, Current, Effect, RejectedChange, Verb, find};

/// Plans an entry; `entry` is the present one.
pub(super) fn set(
    current: &Current,
    file: &PoolFile,
    entry: Option<&Value>,
) -> Result<ChangePlan, Vec<RejectedChange>> {
    let mut changes = Changes::default();
    let is_new = entry.is_none();
    let mut draft = entry.cloned().unwrap_or_else(|| json!({"name": file.name}));
    check_replicas(&texts(&draft["annotations"]), file.replicas)?;
    apply(&mut draft, file, is_new, &mut changes);
    check_new(current, &draft, is_new)?;
    let mut warnings = Vec::new();
    if is_new && file.replicas.is_none() {
        draft["replicas"] = 1.into();
        warnings.push("replicas is left out: the pool starts with 1".to_owned());
    }
    let mut entries = find::entries(current).to_vec();
    let at = entry.and_then(|entry| entries.iter().position(|it| it == entry));
    let changed = at.is_none_or(|at| entries[at] != draft);
    match at {
        Some(at) => entries[at] = draft,
        None => entries.push(draft),
    }
    let verb = match (changed, is_new) {
        (false, _) => Verb::Nothing,
        (true, true) => Verb::Create,
        (true, false) => Verb::Change,
    };
    let object = format!("TanzuKubernetesCluster/{}", current.cluster);
    let created = if is_new { vec![format!("entry `{}` of {object}", file.name)] } else { vec![] };
    let writes = if changed { vec![entries_write(current, entries)] } else { vec![] };
    let (pool, ignored) = (file.name.clone(), Vec::new());
    Ok(ChangePlan { pool, object, verb, created, changes: changes.0, ignored, warnings, writes })
}

fn apply(draft: &mut Value, file: &PoolFile, is_new: bool, changes: &mut Changes) {
    let effect = |effect| if is_new { Effect::New } else { effect };
    let mut put = |path: &[&str], value: Option<Value>, field: &str, how: Effect| {
        if let Some(value) = value {
            changes.put(draft, path, value, field, effect(how));
        }
    };
    let text = |value: &Option<String>| value.as_ref().map(|it| json!(it));
    put(&["replicas"], file.replicas.map(Value::from), "replicas", Effect::InPlace);
    put(&["labels"], file.labels.as_ref().map(|it| json!(it)), "labels", Effect::InPlace);
    put(&["taints"], file.taints.as_ref().map(|it| json!(it)), "taints", Effect::InPlace);
    put(&["failureDomain"], text(&file.az), "az", Effect::Rollout);
    put(&["vmClass"], text(&file.vm_class), "vmClass", Effect::Rollout);
    put(&["storageClass"], text(&file.storage_class), "storageClass", Effect::Rollout);
    put(&["tkr", "reference", "name"], text(&file.tkr), "tkr", Effect::Rollout);
    let timeout = file.node_drain_timeout_s.map(|seconds| duration::write(seconds).into());
    put(&["nodeDrainTimeout"], timeout, "nodeDrainTimeout", Effect::InPlace);
    let volumes = file.volumes.as_ref().map(|volumes| {
        let volume = |it: &millpond_api::capi::pool_file::Volume| {
            json!({"name": it.name, "mountPath": it.mount_path, "capacity": {"storage": it.storage}})
        };
        volumes.iter().map(volume).collect()
    });
    put(&["volumes"], volumes, "volumes", Effect::Rollout);
}

/// A new pool has no other pool to copy these settings from.
fn check_new(current: &Current, draft: &Value, is_new: bool) -> Result<(), Vec<RejectedChange>> {
    let used = |key: &str| {
        let all = find::entries(current).iter().filter_map(|entry| entry[key].as_str());
        all.fold(Vec::new(), |mut all: Vec<&str>, value| {
            if !all.contains(&value) {
                all.push(value);
            }
            all
        })
    };
    let missing = |key: &&&str| is_new && draft[**key].is_null();
    let refuse = |key: &&str| {
        let others = used(key);
        let hint = if others.is_empty() {
            "give it in the file".to_owned()
        } else {
            format!("other pools have {}", others.join(", "))
        };
        RejectedChange::new(*key, "is missing: a new pool of a supervisor needs it").hint(hint)
    };
    let problems: Vec<RejectedChange> = ["vmClass", "storageClass"].iter().filter(missing).map(refuse).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
