//! Makes objects from templates, and decides whether two templates make the same Machines.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{DynamicObject, ObjectMeta};
use kube::core::{ApiResource, TypeMeta};
use millpond_api::capi::{Bootstrap, MachineTemplate, Reference, names};
use serde_json::Value;

use super::externals::External;
use crate::name_generator::hash_name;

/// Why a Machine of `current` is not what `wanted` asks for; empty when it is. Labels, annotations, taints and
/// timeouts do not count: they change in place.
pub fn differences(current: &MachineTemplate, wanted: &MachineTemplate) -> Vec<String> {
    let mut found = Vec::new();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    if current.version != wanted.version {
        found.push(format!("Version {}, {} required", text(&current.version), text(&wanted.version)));
    }
    if !same_bootstrap(&current.bootstrap, &wanted.bootstrap) {
        found.push(match (&current.bootstrap, &wanted.bootstrap) {
            (Bootstrap::Config(reference), _) => format!("{} is not up-to-date", reference.kind_of_clone()),
            (now, then) => {
                format!("spec.bootstrap.dataSecretName {}, {} required", secret_name(now), secret_name(then))
            }
        });
    }
    if !same_reference(current.infrastructure.as_ref(), wanted.infrastructure.as_ref()) {
        let kind = current.infrastructure.as_ref().map_or("infrastructure", Reference::kind_of_clone);
        found.push(format!("{kind} is not up-to-date"));
    }
    if current.failure_domain != wanted.failure_domain {
        let (now, then) = (text(&current.failure_domain), text(&wanted.failure_domain));
        found.push(format!("Failure domain {now}, {then} required"));
    }
    found
}

fn secret_name(bootstrap: &Bootstrap) -> &str {
    match bootstrap {
        Bootstrap::DataSecret(name) => name,
        _ => "nil",
    }
}

fn same_bootstrap(a: &Bootstrap, b: &Bootstrap) -> bool {
    match (a, b) {
        (Bootstrap::Config(a), Bootstrap::Config(b)) => same_reference(Some(a), Some(b)),
        (a, b) => a == b,
    }
}

/// References to different versions of an object are equal.
fn same_reference(a: Option<&Reference>, b: Option<&Reference>) -> bool {
    let plain = |reference: &Reference| (reference.group.clone(), reference.kind.clone(), reference.name.clone());
    a.map(plain) == b.map(plain)
}

/// A short hash of what makes a rollout.
pub fn hash(template: &MachineTemplate) -> String {
    let reference = |reference: Option<&Reference>| {
        reference.map(|it| format!("{}/{}/{}", it.group, it.kind, it.name)).unwrap_or_default()
    };
    let bootstrap = match &template.bootstrap {
        Bootstrap::Config(config) => reference(Some(config)),
        other => secret_name(other).to_owned(),
    };
    let parts = [
        template.version.clone().unwrap_or_default(),
        bootstrap,
        reference(template.infrastructure.as_ref()),
        template.failure_domain.clone().unwrap_or_default(),
    ];
    hash_name(parts.join("\n").as_bytes())
}

/// Whether objects are made from what is referred to. Other kinds are shared by all Machines as they are.
pub fn is_template(reference: &Reference) -> bool {
    reference.kind.ends_with("Template")
}

/// Name and owner of a clone.
pub struct Cloning<'a> {
    /// Namespace of the Machine.
    pub namespace: &'a str,
    /// Name of the Machine, and of what is cloned for it.
    pub name: &'a str,
    /// The cluster.
    pub cluster: &'a str,
    /// Labels of the Machine.
    pub labels: &'a BTreeMap<String, String>,
    /// Annotations of the Machine.
    pub annotations: &'a BTreeMap<String, String>,
    /// The owner until the Machine exists.
    pub owner: OwnerReference,
}

impl Cloning<'_> {
    /// An object of `resource` with the spec that the template has for it.
    pub fn of(&self, template: &External, resource: &ApiResource) -> DynamicObject {
        let inner = template.at(&["spec", "template"]);
        let texts = |key: &str| -> BTreeMap<String, String> {
            serde_json::from_value(inner["metadata"][key].clone()).unwrap_or_default()
        };
        let mut labels = texts("labels");
        labels.extend(self.labels.clone());
        labels.insert(names::CLUSTER_NAME.to_owned(), self.cluster.to_owned());
        let mut annotations = texts("annotations");
        annotations.extend(self.annotations.clone());
        annotations.insert(names::CLONED_FROM_NAME.to_owned(), template.object.name_any());
        let group_kind = format!("{}.{}", template.resource.kind, template.resource.group);
        annotations.insert(names::CLONED_FROM_GROUP_KIND.to_owned(), group_kind);
        let spec = inner.get("spec").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        DynamicObject {
            types: Some(TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() }),
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                namespace: Some(self.namespace.to_owned()),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: Some(vec![self.owner.clone()]),
                ..ObjectMeta::default()
            },
            data: serde_json::json!({"spec": spec}),
        }
    }
}

#[cfg(test)]
mod tests {
    use millpond_api::capi::Problems;
    use serde_json::json;

    use super::*;

    fn template(change: impl Fn(&mut Value)) -> MachineTemplate {
        let mut value = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "clusterName": "c", "version": "v1.34.1",
                "bootstrap": {"configRef": {"apiGroup": "b.x", "kind": "KubeadmConfigTemplate", "name": "k"}},
                "infrastructureRef": {"apiGroup": "i.x", "kind": "VSphereMachineTemplate", "name": "t"},
            },
        });
        change(&mut value);
        MachineTemplate::read(&value, "spec.template", &Problems::new())
    }

    #[test]
    fn what_makes_a_rollout() {
        let base = template(|_| {});
        type Change = fn(&mut Value);
        let in_place: [Change; 4] = [
            |value| value["metadata"]["labels"]["a"] = json!("c"),
            |value| value["spec"]["deletion"] = json!({"nodeDrainTimeoutSeconds": 5}),
            |value| value["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule", "propagation": "Always"}]),
            |value| {
                value["spec"]["infrastructureRef"] =
                    json!({"apiVersion": "i.x/v1beta1", "kind": "VSphereMachineTemplate", "name": "t"});
            },
        ];
        for change in in_place {
            let other = template(change);
            assert_eq!((differences(&base, &other), hash(&base) == hash(&other)), (vec![], true));
        }
        let rollouts: [(Change, &str); 4] = [
            (|value| value["spec"]["version"] = json!("v1.35.0"), "Version v1.34.1, v1.35.0 required"),
            (|value| value["spec"]["infrastructureRef"]["name"] = json!("t2"), "VSphereMachine is not up-to-date"),
            (|value| value["spec"]["bootstrap"]["configRef"]["name"] = json!("k2"), "KubeadmConfig is not up-to-date"),
            (|value| value["spec"]["failureDomain"] = json!("z1"), "Failure domain , z1 required"),
        ];
        for (change, why) in rollouts {
            let other = template(change);
            assert_eq!(differences(&base, &other), [why]);
            assert_ne!(hash(&base), hash(&other), "{why}");
        }
    }
}
