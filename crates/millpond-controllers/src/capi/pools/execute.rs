//! Executes a plan: by server-side apply, as one field manager, at the revision that the plan was made for.
//!
//! Templates come first and the pool last, so that nothing ever names what is not there. The pool is one write. When a
//! write fails, what was made goes again, unless it is named by then. When another client was faster, everything is read
//! and planned anew, and carried out only if it is what was agreed to.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, WatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use millpond_api::capi::names;
use millpond_api::capi::pool_file::PoolFile;
use serde_json::{Map, Value, json};

use super::fetch::{Kinds, PoolError, doing, fetch, named_templates};
use super::{ChangePlan, Current, DeletePlan, MADE_FOR, MANAGER, Options, Why, Write, name_of, plan, plan_delete};
use crate::capi::client::Connection;
use crate::kinds::{Machine, MachineDeployment};

/// How often a plan is made anew after a write conflict.
const LIMIT_TRIES: usize = 5;
/// An unreferenced template is kept for this long: another run may be about to refer to it.
const YOUNG: Duration = Duration::from_secs(600);
/// A watch ends after this long and is begun anew, so that one that was silently cut is noticed.
const WATCH_SECONDS: u32 = 240;
/// Time between requests for objects that cannot be watched.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Carries out a plan for a file, as it was agreed to. When another client was faster, the plan is made anew; it is carried
/// out if it does what was agreed to, else it is given back as [`PoolError::Differs`].
pub async fn set(
    connection: &Connection,
    current: &Current,
    agreed: ChangePlan,
    file: &PoolFile,
    options: &Options,
) -> Result<ChangePlan, PoolError> {
    let mut made = Vec::new();
    let done = try_set(connection, current, agreed, file, options, &mut made).await;
    if let Ok(plan) = &done {
        let is_used = |it: &Made| {
            plan.writes
                .iter()
                .any(|write| write.object["kind"] == it.resource.kind.as_str() && name_of(&write.object) == it.name)
        };
        made.retain(|it| !is_used(it));
    }
    // Only objects of a failed attempt are left, or of a plan that was replaced.
    let left = take_back(connection, current, made).await;
    match done {
        Err(problem) if !left.is_empty() => Err(PoolError::LeftBehind { problem: problem.to_string(), left }),
        done => done,
    }
}

async fn try_set(
    connection: &Connection,
    current: &Current,
    agreed: ChangePlan,
    file: &PoolFile,
    options: &Options,
    made: &mut Vec<Made>,
) -> Result<ChangePlan, PoolError> {
    let mut next = agreed.clone();
    for _ in 0..LIMIT_TRIES {
        match carry_out(&connection.client, &next.writes, made).await {
            Ok(()) => return Ok(next),
            Err(problem) if is_conflict(&problem) => {}
            Err(problem) => return Err(problem),
        }
        let anew = fetch(connection, &current.namespace, &current.cluster).await?;
        next = plan(&anew, file, options).map_err(PoolError::Refused)?;
        if !next.is_as_agreed(&agreed) {
            return Err(PoolError::Differs(Box::new(next)));
        }
    }
    Err(PoolError::Conflict(next.object))
}

fn is_conflict(problem: &PoolError) -> bool {
    matches!(problem, PoolError::Api { source: kube::Error::Api(status), .. } if status.code == 409)
}

/// Performs the writes in order and records the objects created.
async fn carry_out(client: &Client, writes: &[Write], made: &mut Vec<Made>) -> Result<(), PoolError> {
    let mut kinds = Kinds::default();
    for write in writes {
        made.extend(put(client, &mut kinds, write).await?);
    }
    Ok(())
}

/// An object that was created.
struct Made {
    resource: ApiResource,
    namespace: String,
    name: String,
    uid: Option<String>,
}

/// Takes away what was made and what no MachineDeployment and no MachineSet names; gives what could not be taken away.
/// The answer to a write can be lost: whether it was done is looked up, not concluded. When that cannot be found out,
/// everything stays; what is not named is collected later ([`collect`]).
async fn take_back(connection: &Connection, current: &Current, made: Vec<Made>) -> Vec<String> {
    if made.is_empty() {
        return Vec::new();
    }
    let named = match fetch(connection, &current.namespace, &current.cluster).await {
        Ok(now) => named_templates(&now.deployments, &now.sets),
        Err(error) => {
            tracing::warn!(%error, "cannot find out which templates are in use: all of them stay");
            return Vec::new();
        }
    };
    let is_named = |it: &Made| named.iter().any(|by| it.resource.kind == by.kind && it.name == by.name);
    let mut left = Vec::new();
    for Made { resource, namespace, name, uid } in made.into_iter().rev().filter(|it| !is_named(it)) {
        let api = Api::<DynamicObject>::namespaced_with(connection.client.clone(), &namespace, &resource);
        let preconditions = Some(Preconditions { uid, resource_version: None });
        match api.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(_) => {}
            // Deleted already, or replaced by another object of that name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(_) => left.push(format!("{}/{name}", resource.kind)),
        }
    }
    left
}

/// Writes one object; tells where it is if it was made.
async fn put(client: &Client, kinds: &mut Kinds, write: &Write) -> Result<Option<Made>, PoolError> {
    let object = &write.object;
    let (kind, name) = (object["kind"].as_str().unwrap_or_default(), name_of(object));
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let resource = resource(client, kinds, object).await?;
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
    let words = format!("write {kind} `{name}`");
    let Some(live) = &write.live else {
        // A template of that name has that content; then there is nothing to make.
        let is_there = api.get_opt(name).await.map_err(doing(words.clone()))?;
        if is_there.is_some_and(|there| there.data["spec"] == object["spec"]) {
            return Ok(None);
        }
        let applied = api.patch(name, &PatchParams::apply(MANAGER), &Patch::Apply(object)).await;
        let uid = applied.map_err(doing(words))?.metadata.uid;
        return Ok(Some(Made { resource, namespace: namespace.to_owned(), name: name.to_owned(), uid }));
    };
    // One write in either case, so that no other client writes between two halves of a change. Server-side apply cannot
    // remove fields that other managers own too, so a change that removes any is a merge patch.
    let written = match removal(live, object) {
        Some(patch) => {
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(name, &params, &Patch::Merge(&patch)).await
        }
        None => api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await,
    };
    written.map_err(doing(words))?;
    Ok(None)
}

async fn resource(client: &Client, kinds: &mut Kinds, object: &Value) -> Result<ApiResource, PoolError> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (group, version) = object["apiVersion"].as_str().unwrap_or_default().split_once('/').unwrap_or_default();
    let core = match kind {
        "MachineDeployment" => Some("machinedeployments"),
        "Cluster" => Some("clusters"),
        _ => None,
    };
    if let (Some(plural), millpond_api::capi::GROUP) = (core, group) {
        return Ok(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural));
    }
    let found = kinds.resource(client, group, Some(version), kind).await?;
    found.ok_or_else(|| {
        let rejection = super::RejectedChange::new(kind, format!("the cluster does not know `{group}/{version}`"));
        PoolError::Refused(vec![rejection.why(super::Why::NotFound)])
    })
}

/// A merge patch if a field that exists now has to be removed.
fn removal(live: &Value, object: &Value) -> Option<Value> {
    let roots: &[&[&str]] = match object["kind"].as_str() {
        Some("MachineDeployment") => &[&["spec"], &["metadata", "labels"], &["metadata", "annotations"]],
        Some("Cluster") => &[&["spec", "topology", "workers", "machineDeployments"]],
        _ => &[&["spec", "topology", "nodePools"]],
    };
    let (mut patch, mut removes) = (json!({}), false);
    for root in roots {
        let (before, after) = (super::changes::at(live, root), super::changes::at(object, root));
        let (before, after) = (before.unwrap_or(&Value::Null), after.unwrap_or(&Value::Null));
        removes |= loses(before, after);
        if before != after {
            super::changes::put(&mut patch, root, difference(before, after));
        }
    }
    if !removes {
        return None;
    }
    patch["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    Some(patch)
}

/// Whether something of the one is not in the other.
fn loses(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.iter().any(|(key, value)| after.get(key).is_none_or(|after| loses(value, after)))
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() > after.len() || before.iter().zip(after).any(|(before, after)| loses(before, after))
        }
        (Value::Null, _) => false,
        (_, after) => after.is_null(),
    }
}

/// The merge patch that turns one value into the other.
fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before) => drop(patch.insert(key.clone(), difference(before, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    patch.into()
}

/// Removes templates that were made for pools and that no object refers to any more: those of `gone` at once, others
/// only when they are old enough that no run can be about to refer to them. Returns their names.
pub async fn collect(
    connection: &Connection,
    namespace: &str,
    cluster: &str,
    gone: Option<&str>,
    now: Timestamp,
) -> Result<Vec<String>, PoolError> {
    let current = fetch(connection, namespace, cluster).await?;
    let mut kinds = Kinds::default();
    let mut collected = Vec::new();
    for template in unused(&current, gone, now) {
        let resource = resource(&connection.client, &mut kinds, template).await?;
        let api = Api::<DynamicObject>::namespaced_with(connection.client.clone(), namespace, &resource);
        let metadata = &template["metadata"];
        let as_read = Preconditions {
            uid: metadata["uid"].as_str().map(ToOwned::to_owned),
            resource_version: metadata["resourceVersion"].as_str().map(ToOwned::to_owned),
        };
        let params = DeleteParams { preconditions: Some(as_read), ..DeleteParams::default() };
        match api.delete(name_of(template), &params).await {
            Ok(_) => collected.push(format!("{}/{}", resource.kind, name_of(template))),
            // Deleted already, or changed meanwhile.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(source) => return Err(doing(format!("delete {} `{}`", resource.kind, name_of(template)))(source)),
        }
    }
    Ok(collected)
}

/// Templates of pools that no MachineDeployment and no MachineSet names.
fn unused<'c>(current: &'c Current, gone: Option<&str>, now: Timestamp) -> Vec<&'c Value> {
    let named = named_templates(&current.deployments, &current.sets);
    let is_named = |it: &Value| named.iter().any(|by| it["kind"] == by.kind.as_str() && name_of(it) == by.name);
    let is_old = |it: &Value| {
        let created = it["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        created.is_some_and(|created| now.duration_since(created).unsigned_abs() >= YOUNG && now > created)
    };
    let of = |it: &Value| it["metadata"]["labels"][MADE_FOR].as_str().map(ToOwned::to_owned);
    let may_go = |it: &&Value| of(it).is_some_and(|pool| Some(pool.as_str()) == gone || is_old(it));
    current.templates.iter().filter(|it| !is_named(it)).filter(may_go).collect()
}

/// Begins to delete a pool. An entry is removed from the list as it is at that moment: after a write conflict the list
/// is read anew, and a pool that has gone meanwhile counts as deleted.
pub async fn delete(connection: &Connection, current: &Current, made: &DeletePlan) -> Result<(), PoolError> {
    let mut next = made.write.clone();
    for _ in 0..LIMIT_TRIES {
        let Some(write) = next else { return delete_deployment(connection, current, made).await };
        match carry_out(&connection.client, std::slice::from_ref(&write), &mut Vec::new()).await {
            Err(problem) if is_conflict(&problem) => {}
            done => return done,
        }
        let anew = fetch(connection, &current.namespace, &current.cluster).await?;
        next = match plan_delete(&anew, &made.pool) {
            Ok(made) => made.write,
            Err(rejections) if rejections.iter().all(|rejection| rejection.why == Why::NotFound) => return Ok(()),
            Err(rejections) => return Err(PoolError::Refused(rejections)),
        };
    }
    Err(PoolError::Conflict(format!("the list of pools of cluster `{}`", current.cluster)))
}

async fn delete_deployment(connection: &Connection, current: &Current, made: &DeletePlan) -> Result<(), PoolError> {
    let Some(name) = &made.deployment else { return Ok(()) };
    let api = Api::<MachineDeployment>::namespaced(connection.client.clone(), &current.namespace);
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(doing(format!("delete MachineDeployment `{name}`"))(source)),
    }
}

/// What is left of a pool that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Its machines, with their phases.
    pub machines: Vec<(String, String)>,
    /// Whether its MachineDeployment still exists.
    pub deployment: bool,
}

/// Waits until a pool is gone; `progress` is called with every change.
pub async fn wait_gone(
    connection: &Connection,
    namespace: &str,
    deployment: &str,
    mut progress: impl FnMut(&Leaving),
) -> Result<(), PoolError> {
    let deployments = Api::<MachineDeployment>::namespaced(connection.client.clone(), namespace);
    let machines = Api::<Machine>::namespaced(connection.client.clone(), namespace);
    let selector = format!("{}={deployment}", names::DEPLOYMENT_NAME);
    let mut told: Option<Leaving> = None;
    loop {
        let list = machines.list(&ListParams::default().labels(&selector)).await.map_err(doing("list Machines"))?;
        let there = deployments.get_opt(deployment).await;
        let there = there.map_err(doing(format!("read MachineDeployment `{deployment}`")))?;
        let phase = |it: &Machine| it.status["phase"].as_str().unwrap_or("Pending").to_owned();
        let left = Leaving {
            machines: list.items.iter().map(|it| (it.name().to_owned(), phase(it))).collect(),
            deployment: there.is_some(),
        };
        if told.as_ref() != Some(&left) {
            progress(&left);
        }
        if left.machines.is_empty() && !left.deployment {
            return Ok(());
        }
        told = Some(left);
        let version = list.metadata.resource_version.unwrap_or_default();
        // Machines first; once they are gone, the MachineDeployment itself.
        let is_last = told.as_ref().is_some_and(|left| left.machines.is_empty());
        match there.filter(|_| is_last) {
            Some(there) => {
                let params =
                    WatchParams::default().fields(&format!("metadata.name={deployment}")).timeout(WATCH_SECONDS);
                changed(&deployments, &params, &there.metadata.resource_version.unwrap_or_default()).await;
            }
            None => {
                changed(&machines, &WatchParams::default().labels(&selector).timeout(WATCH_SECONDS), &version).await;
            }
        }
    }
}

/// The revision to watch the pools of a namespace from.
pub async fn revision(connection: &Connection, namespace: &str) -> Result<String, PoolError> {
    let api = Api::<MachineDeployment>::namespaced(connection.client.clone(), namespace);
    let list = api.list(&ListParams::default().limit(1)).await.map_err(doing("list MachineDeployments"))?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Waits until a pool of a namespace has changed, or may have.
pub async fn wait_change(connection: &Connection, namespace: &str, revision: &str) {
    let api = Api::<MachineDeployment>::namespaced(connection.client.clone(), namespace);
    changed(&api, &WatchParams::default().timeout(WATCH_SECONDS), revision).await;
}

/// Ends with the first event, and with anything that keeps events away: then it is time to look again too.
async fn changed<K>(api: &Api<K>, params: &WatchParams, version: &str)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.watch(params, version).await {
        Ok(events) => {
            let mut events = std::pin::pin!(events);
            let _ = events.next().await;
        }
        // A server that refuses watches is asked again, but not all the time.
        Err(_) => tokio::time::sleep(ASK_AGAIN).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(spec: Value, annotations: Value) -> Value {
        json!({"kind": "MachineDeployment", "metadata": {"name": "a", "annotations": annotations, "resourceVersion": "7"}, "spec": spec})
    }

    #[test]
    fn nothing_is_taken_away_by_a_patch_when_nothing_goes() {
        let live = deployment(json!({"replicas": 1}), json!({"x": "1"}));
        assert_eq!(removal(&live, &deployment(json!({"replicas": 2, "more": {}}), json!({"x": "2", "y": "1"}))), None);
    }

    #[test]
    fn what_goes_is_taken_away_at_the_revision_that_was_read() {
        let live = deployment(json!({"replicas": 1, "template": {"a": 1, "b": [1, 2]}}), json!({"x": "1", "y": "2"}));
        let wanted = deployment(json!({"replicas": 2, "template": {"b": [1]}}), json!({"y": "2"}));
        assert_eq!(
            removal(&live, &wanted),
            Some(json!({
                "spec": {"replicas": 2, "template": {"a": null, "b": [1]}},
                "metadata": {"annotations": {"x": null}, "resourceVersion": "7"},
            }))
        );
    }

    #[test]
    fn unreferenced_templates_go_once_they_are_old() {
        let template = |name: &str, created: &str| {
            json!({"kind": "VSphereMachineTemplate", "metadata": {
                "name": name, "creationTimestamp": created, "labels": {MADE_FOR: "c-a"}}})
        };
        let named = json!({"spec": {"template": {"spec": {
            "infrastructureRef": {"apiGroup": "g", "kind": "VSphereMachineTemplate", "name": "of-a-set"}}}}});
        let mut current = super::super::tests::empty();
        current.sets = vec![named];
        current.templates = vec![
            template("of-a-set", "2026-11-17T08:00:00Z"),
            template("old", "2026-11-17T08:00:00Z"),
            template("young", "2026-11-17T08:59:00Z"),
            json!({"kind": "VSphereMachineTemplate", "metadata": {"name": "not-ours", "creationTimestamp": "2026-11-17T08:00:00Z"}}),
        ];
        let now = "2026-11-17T09:00:00Z".parse().unwrap();
        let names = |gone: Option<&str>| unused(&current, gone, now).iter().map(|it| name_of(it)).collect::<Vec<_>>();
        assert_eq!(names(None), ["old"]);
        assert_eq!(names(Some("c-a")), ["old", "young"]);
    }
}
