//! Discovery: which groups, versions and resources there are, in the aggregated form and the old one.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::HeaderMap;
use serde_json::{Value, json};

use crate::http::negotiate::alternatives;
use crate::registry::{Group, GroupVersion, Resources};
use crate::resource::{Resource, Verbs};
use crate::status::ApiError;

const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const ALL_BUT_COLLECTION: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// Whether the client asked for the aggregated form, and in which version.
pub(crate) fn aggregated_version(headers: &HeaderMap) -> Option<&'static str> {
    alternatives(headers).iter().find_map(|alternative| {
        let aggregated = alternative.media_type == "application/json"
            && alternative.parameter("g") == Some("apidiscovery.k8s.io")
            && alternative.parameter("as") == Some("APIGroupDiscoveryList");
        match alternative.parameter("v") {
            Some("v2") if aggregated => Some("v2"),
            Some("v2beta1") if aggregated => Some("v2beta1"),
            _ => None,
        }
    })
}

/// `/api` or `/apis` in the aggregated form.
pub(crate) fn aggregated(resources: &Resources, core: bool, version: &str) -> Value {
    let groups = resources.groups.iter().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = groups.map(|(name, group)| aggregated_group(name, group)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> = version.resources.values().map(|r| aggregated_resource(r)).collect();
            json!({"version": version.version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if name.is_empty() {
        json!({"creationTimestamp": null})
    } else {
        json!({"name": name, "creationTimestamp": null})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource, &resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|(name, (group, version, kind), verbs)| {
            json!({"subresource": name, "responseKind": response_kind(resource, group, version, kind), "verbs": verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}

fn response_kind(resource: &Resource, group: &str, version: &str, kind: &str) -> Value {
    let version = if version.is_empty() { &resource.version } else { version };
    json!({"group": group, "version": version, "kind": kind})
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    match resource.verbs {
        Verbs::All => ALL,
        Verbs::AllButDeleteCollection => ALL_BUT_COLLECTION,
        Verbs::CreateOnly => &["create"],
    }
}

type SubresourceRow<'a> = (&'a str, (&'a str, &'a str, &'a str), &'static [&'static str]);

fn subresources(resource: &Resource) -> Vec<SubresourceRow<'_>> {
    let own = (&*resource.group, &*resource.version, &*resource.kind);
    let mut rows: Vec<SubresourceRow<'_>> = Vec::new();
    for other in resource.subresources.others {
        rows.push((other.name, if other.kind.2.is_empty() { own } else { other.kind }, other.verbs));
    }
    if resource.subresources.scale.is_some() {
        rows.push(("scale", ("autoscaling", "v1", "Scale"), &["get", "patch", "update"]));
    }
    if resource.subresources.status {
        rows.push(("status", own, &["get", "patch", "update"]));
    }
    rows.sort_by_key(|row| row.0);
    rows
}

/// `/api` in the old form.
pub(crate) fn core_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis` in the old form.
pub(crate) fn groups(resources: &Resources) -> Value {
    let groups = resources.groups.iter().filter(|(name, _)| !name.is_empty());
    let groups: Vec<Value> = groups.map(|(name, group)| group_entry(name, group)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn group(resources: &Resources, name: &str) -> Result<Value, ApiError> {
    let group = resources.groups.get(name).filter(|_| !name.is_empty()).ok_or_else(ApiError::page_not_found)?;
    let mut entry = group_entry(name, group);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Ok(entry)
}

fn group_entry(name: &str, group: &Group) -> Value {
    let version = |version: &GroupVersion| json!({"groupVersion": format!("{name}/{}", version.version), "version": version.version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

/// `/api/v1` or `/apis/GROUP/VERSION`.
pub(crate) fn group_version(resources: &Resources, group: &str, version: &str) -> Result<Value, ApiError> {
    let found = resources.version(group, version).ok_or_else(ApiError::page_not_found)?;
    let mut rows = Vec::new();
    for resource in found.resources.values() {
        rows.push(old_row(resource));
        for (name, (kind_group, kind_version, kind), verbs) in subresources(resource) {
            let mut row = json!({
                "name": format!("{}/{name}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": verbs,
            });
            if kind_group != &*resource.group || kind_version != &*resource.version {
                row["group"] = json!(kind_group);
                row["version"] = json!(kind_version);
            }
            rows.push(row);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": rows}))
}

fn old_row(resource: &Resource) -> Value {
    let mut hasher = DefaultHasher::new();
    (&resource.group, &resource.version, &resource.kind).hash(&mut hasher);
    let mut row = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    });
    if !resource.short_names.is_empty() {
        row["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        row["categories"] = json!(resource.categories);
    }
    if resource.verbs != Verbs::CreateOnly {
        row["storageVersionHash"] = json!(base64_hash(hasher.finish()));
    }
    row
}

fn base64_hash(hash: u64) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(hash.to_be_bytes())
}
