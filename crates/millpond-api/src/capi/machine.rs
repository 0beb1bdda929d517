//! Machines, and the template that they are made from.

use std::collections::BTreeMap;

use serde_json::Value;

use super::look::Look;
use super::{Problems, Reference};
use crate::meta::Condition;
use crate::time::{self, Time};

/// The bootstrap data of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bootstrap {
    /// A Secret that exists.
    DataSecret(String),
    /// A bootstrap template (of a machine: its config), which makes one.
    Config(Reference),
    /// Neither is given.
    Missing,
}

/// When a taint of a machine is set on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    /// As long as the machine has it.
    #[default]
    Always,
    /// Set at creation only; a client that removes it keeps it removed.
    OnInitialization,
}

/// A taint of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineTaint {
    /// Its key.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it is on the node.
    pub propagation: Propagation,
}

/// The part of a spec that MachineDeployments, MachineSets and Machines have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineTemplate {
    /// Labels of the machines.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the machines.
    pub annotations: BTreeMap<String, String>,
    /// The cluster.
    pub cluster_name: String,
    /// The Kubernetes version.
    pub version: Option<String>,
    /// Their bootstrap data.
    pub bootstrap: Bootstrap,
    /// Their infrastructure; missing only if the manifest left it out.
    pub infrastructure: Option<Reference>,
    /// Their failure domain.
    pub failure_domain: Option<String>,
    /// Taints of their nodes (v1beta2).
    pub taints: Vec<MachineTaint>,
    /// How long a machine must be ready before it is available.
    pub min_ready_s: i64,
    /// How long draining may take; for ever without it (0 too).
    pub drain_timeout_s: Option<i64>,
    /// How long volumes may take to be detached; for ever without it.
    pub volume_detach_timeout_s: Option<i64>,
    /// How long the Node may take to go; 10 s without it.
    pub deletion_timeout_s: Option<i64>,
    /// The provider id.
    pub provider_id: Option<String>,
}

impl MachineTemplate {
    /// Reads `spec.template`: metadata and spec.
    pub fn read(template: &Value, path: &str, problems: &Problems) -> Self {
        Self::look(&Look::new(template, path, problems))
    }

    pub(super) fn look(look: &Look<'_>) -> Self {
        let metadata = look.at("metadata");
        let mut template = Self::of_spec(&look.at("spec"));
        (template.labels, template.annotations) = (metadata.texts("labels"), metadata.texts("annotations"));
        template
    }

    fn of_spec(spec: &Look<'_>) -> Self {
        let (bootstrap, deletion) = (spec.at("bootstrap"), spec.at("deletion"));
        let config = || Reference::look(&bootstrap.at("configRef"));
        let timeout = |new: &str, old: &str| deletion.int(new).or_else(|| spec.duration_s(old));
        Self {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            cluster_name: spec.owned("clusterName"),
            version: spec.some_text("version"),
            bootstrap: match bootstrap.some_text("dataSecretName") {
                // A Machine has both once its config made a secret; what it was made from matters more.
                None => config().map_or(Bootstrap::Missing, Bootstrap::Config),
                Some(secret) => config().map_or(Bootstrap::DataSecret(secret), Bootstrap::Config),
            },
            infrastructure: Reference::look(&spec.at("infrastructureRef")),
            failure_domain: spec.some_text("failureDomain"),
            taints: spec.list("taints").iter().map(MachineTaint::look).collect(),
            min_ready_s: spec.int("minReadySeconds").unwrap_or(0),
            drain_timeout_s: timeout("nodeDrainTimeoutSeconds", "nodeDrainTimeout"),
            volume_detach_timeout_s: timeout("nodeVolumeDetachTimeoutSeconds", "nodeVolumeDetachTimeout"),
            deletion_timeout_s: timeout("nodeDeletionTimeoutSeconds", "nodeDeletionTimeout"),
            provider_id: spec.some_text("providerID"),
        }
    }
}

impl MachineTaint {
    fn look(look: &Look<'_>) -> Self {
        let propagation = match look.text("propagation") {
            Some("OnInitialization") => Propagation::OnInitialization,
            _ => Propagation::Always,
        };
        Self { key: look.owned("key"), value: look.owned("value"), effect: look.owned("effect"), propagation }
    }
}

/// Observed state of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineStatus {
    /// `Pending`, `Provisioning`, `Provisioned`, `Running`, `Deleting`, `Failed` …
    pub phase: String,
    /// The name of its node.
    pub node: Option<String>,
    /// Whether its bootstrap Secret exists.
    pub bootstrap_ready: bool,
    /// Whether its infrastructure exists.
    pub infrastructure_ready: bool,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Why it will never run, if so: reason and message.
    pub failure: Option<(String, String)>,
    /// When the drain of its node began.
    pub drain_started: Option<Time>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its spec; labels and annotations are those of the object and are not included.
    pub spec: MachineTemplate,
    /// Observed state.
    pub status: MachineStatus,
}

impl Machine {
    /// Reads `spec` and `status`.
    pub fn read(spec: &Value, status: &Value, problems: &Problems) -> Self {
        let spec = MachineTemplate::of_spec(&Look::new(spec, "spec", problems));
        Self { spec, status: MachineStatus::look(&Look::new(status, "status", problems)) }
    }

    /// Like [`Self::read`], ignoring errors.
    pub fn of(spec: &Value, status: &Value) -> Self {
        Self::read(spec, status, &Problems::new())
    }
}

impl MachineStatus {
    fn look(look: &Look<'_>) -> Self {
        let (initialization, old) = (look.at("initialization"), look.at("deprecated").at("v1beta1"));
        let failure = |from: &Look<'_>| {
            let (reason, message) = (from.owned("failureReason"), from.owned("failureMessage"));
            (!reason.is_empty() || !message.is_empty()).then_some((reason, message))
        };
        let is = |new: &str, old: &str| initialization.boolean(new).or_else(|| look.boolean(old)).unwrap_or(false);
        Self {
            phase: look.owned("phase"),
            node: look.at("nodeRef").some_text("name"),
            bootstrap_ready: is("bootstrapDataSecretCreated", "bootstrapReady"),
            infrastructure_ready: is("infrastructureProvisioned", "infrastructureReady"),
            conditions: look.conditions("conditions"),
            failure: failure(look).or_else(|| failure(&old)),
            drain_started: look.at("deletion").text("nodeDrainStartTime").and_then(time::parse),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_versions_say_the_same() {
        let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
            "clusterName": "c", "version": "v1.34.1", "failureDomain": "zone-1",
            "bootstrap": {"configRef": {"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfigTemplate", "name": "kct"}},
            "infrastructureRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereMachineTemplate", "name": "mt"},
            "nodeDrainTimeout": "5m", "nodeDeletionTimeout": "10s", "nodeVolumeDetachTimeout": "1m30s",
        }});
        let new = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
            "clusterName": "c", "version": "v1.34.1", "failureDomain": "zone-1",
            "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfigTemplate", "name": "kct"}},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereMachineTemplate", "name": "mt"},
            "deletion": {"nodeDrainTimeoutSeconds": 300, "nodeDeletionTimeoutSeconds": 10, "nodeVolumeDetachTimeoutSeconds": 90},
        }});
        let problems = Problems::new();
        let (old, new) = (MachineTemplate::read(&old, "", &problems), MachineTemplate::read(&new, "", &problems));
        assert_eq!(old, new);
        assert_eq!((old.drain_timeout_s, old.volume_detach_timeout_s), (Some(300), Some(90)));
        assert_eq!(problems.into_inner(), []);
    }

    #[test]
    fn states_of_machines_are_read() {
        let spec = json!({"bootstrap": {"dataSecretName": "s"}, "providerID": "sim:///a"});
        let old = json!({"phase": "Failed", "bootstrapReady": true, "failureReason": "CreateError", "failureMessage": "no room"});
        let machine = Machine::of(&spec, &old);
        assert_eq!(machine.spec.bootstrap, Bootstrap::DataSecret("s".to_owned()));
        assert_eq!(machine.spec.provider_id.as_deref(), Some("sim:///a"));
        assert_eq!(machine.status.failure, Some(("CreateError".to_owned(), "no room".to_owned())));
        assert!(machine.status.bootstrap_ready && !machine.status.infrastructure_ready);
        let new = json!({"phase": "Running", "nodeRef": {"name": "n"}, "initialization": {"infrastructureProvisioned": true},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-11-17T09:00:00Z"}]});
        let status = Machine::of(&spec, &new).status;
        assert_eq!((status.node.as_deref(), status.infrastructure_ready), (Some("n"), true));
        assert!(status.conditions[0].is_true() && status.conditions[0].last_transition_time.is_some());
    }

    #[test]
    fn what_is_wrong_is_reported_and_taken_as_missing() {
        let problems = Problems::new();
        let spec = json!({"clusterName": 7, "nodeDrainTimeout": "soon", "taints": {}, "bootstrap": "none"});
        let machine = Machine::read(&spec, &Value::Null, &problems);
        assert_eq!((machine.spec.cluster_name.as_str(), machine.spec.drain_timeout_s), ("", None));
        let told: Vec<String> = problems.into_inner().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "spec.bootstrap: is not an object",
                "spec.clusterName: is not text",
                "spec.taints: is not a list",
                "spec.nodeDrainTimeout: `soon` is not a duration such as `30s`, `1h30m` or `720h`",
            ]
        );
    }
}
