//! The roles and bindings that every cluster has, as kube-apiserver 1.36 makes them, reconciled at each start: what is
//! missing is added, what an administrator has added stays. An object whose annotation
//! `rbac.authorization.kubernetes.io/autoupdate` is not `true` is left alone.
//!
//! `default_roles.jsonl` has one object a line, without the label, the annotation and the version that all have.

use std::sync::Arc;

use futures::future;
use serde_json::{Value, json};

use super::rule::{self, Rule};
use crate::clock::rfc3339;
use crate::server::Server;
use crate::status::ApiError;
use crate::store::{CommitError, EncodedObject, Expect, Limits, StoredObject, Write};

const OBJECTS: &str = include_str!("default_roles.jsonl");
const GROUP: &str = "rbac.authorization.k8s.io";
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Writes at the same time: enough for a group commit to carry many.
const CONCURRENCY: usize = 64;

/// Creates what is missing and completes what is there.
pub(crate) async fn reconcile(server: &Arc<Server>) -> Result<(), ApiError> {
    let writes: Vec<Write> = objects().filter_map(|wanted| write(server, wanted)).collect();
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        let batch: Vec<_> = writes.by_ref().take(CONCURRENCY).map(|write| server.store.commit(write)).collect();
        for result in future::join_all(batch).await {
            match result {
                // Another writer was faster; the next start looks again.
                Ok(_) | Err(CommitError::Raced) => {}
                Err(problem) => return Err(ApiError::internal(problem)),
            }
        }
    }
    Ok(())
}

/// The objects, complete.
fn objects() -> impl Iterator<Item = Value> {
    OBJECTS.lines().map(|line| {
        let mut object: Value = serde_json::from_str(line).expect("the table of default roles is JSON");
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        let metadata = &mut object["metadata"];
        metadata["annotations"] = json!({AUTO_UPDATE: "true"});
        metadata["labels"]["kubernetes.io/bootstrapping"] = json!("rbac-defaults");
        if object["kind"] == "ClusterRole" && object.get("rules").is_none() {
            object["rules"] = Value::Null;
        }
        object
    })
}

/// The write that brings the store in line with one object, if one is needed.
fn write(server: &Server, mut wanted: Value) -> Option<Write> {
    let plural = format!("{}s", wanted["kind"].as_str().unwrap_or_default().to_lowercase());
    let collection: Arc<str> = format!("{plural}.{GROUP}").into();
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let key: Arc<str> = match wanted["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}").into(),
        None => name.into(),
    };
    let Some(stored) = server.store.get(&collection, &key) else {
        wanted["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
        wanted["metadata"]["creationTimestamp"] = json!(rfc3339(server.clock.now()));
        let draft = EncodedObject::encode(&wanted, None, Limits::NEW).expect("default roles are small");
        return Some(Write { collection, key, expect: Expect::Absent, draft, delete: false });
    };
    let (draft, expect) = completed(&stored, &wanted)?;
    Some(Write { collection, key, expect, draft, delete: false })
}

/// The stored object with what it lacks; `None` if nothing has to be written.
fn completed(stored: &StoredObject, wanted: &Value) -> Option<(EncodedObject, Expect)> {
    let old = stored.to_value();
    if old["metadata"]["annotations"][AUTO_UPDATE].as_str().is_some_and(|flag| flag != "true") {
        return None;
    }
    let mut new = old.clone();
    for field in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            new["metadata"][field][key] = value.clone();
        }
    }
    if let Some(rule) = wanted.get("aggregationRule") {
        // The rules of an aggregated role come from the roles that it selects.
        new["aggregationRule"] = rule.clone();
    } else if wanted["rules"].is_array() {
        let missing = rule::missing(&Rule::all_of(&old), &Rule::all_of(wanted));
        append(&mut new["rules"], missing.iter().map(Rule::to_value));
    }
    let has = |subject: &Value| old["subjects"].as_array().is_some_and(|subjects| subjects.contains(subject));
    let subjects = wanted["subjects"].as_array().into_iter().flatten().filter(|subject| !has(subject)).cloned();
    append(&mut new["subjects"], subjects);
    if wanted.get("roleRef").is_some() {
        new["roleRef"] = wanted["roleRef"].clone();
    }
    if new == old {
        return None;
    }
    let draft = EncodedObject::update_of(stored, &new).expect("default roles are small");
    Some((draft, Expect::Revision(stored.revision)))
}

fn append(list: &mut Value, more: impl Iterator<Item = Value>) {
    let more: Vec<Value> = more.collect();
    if more.is_empty() {
        return;
    }
    match list.as_array_mut() {
        Some(items) => items.extend(more),
        None => *list = Value::Array(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_roles_of_kubernetes() {
        let all: Vec<Value> = objects().collect();
        let names: Vec<&str> = all.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
        for name in
            ["cluster-admin", "admin", "edit", "view", "system:node", "system:kube-scheduler", "system:discovery"]
        {
            assert!(names.contains(&name), "{name}");
        }
        let bound = |role: &str| {
            let of = |object: &&Value| object["roleRef"]["name"] == role;
            all.iter().filter(of).flat_map(|object| object["subjects"].as_array().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(bound("cluster-admin").len(), 1);
        assert_eq!(bound("cluster-admin")[0]["name"], "system:masters");
        let public = bound("system:public-info-viewer");
        assert!(public.iter().any(|subject| subject["name"] == "system:unauthenticated"));
    }
}
