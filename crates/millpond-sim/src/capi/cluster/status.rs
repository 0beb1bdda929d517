//! The status of a Cluster.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use millpond_controllers::kinds::{CapiCluster, MachineDeployment};
use serde_json::{Value, json};

use super::super::conditions::{self, Answer, Conditions};
use super::super::{at, number, put};
use crate::meta::is_leaving;

/// An object that all Machines of a Cluster share.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Shared {
    /// The Cluster does without.
    #[default]
    NotAsked,
    /// Its kind is not served.
    NotServed,
    /// It does not exist; its kind.
    Absent(String),
    /// It exists; its kind and status.
    Found(String, Value),
}

impl Shared {
    fn is(&self, initialization: &str, older: &str) -> bool {
        match self {
            Self::NotAsked | Self::NotServed => true,
            Self::Absent(_) => false,
            Self::Found(_, status) => {
                at(status, &["initialization", initialization]).as_bool().unwrap_or(false)
                    || at(status, &[older]).as_bool().unwrap_or(false)
            }
        }
    }

    fn wanting(&self, field: &str) -> (&'static str, String) {
        match self {
            Self::Absent(kind) => ("ObjectDoesNotExist", format!("{kind} does not exist")),
            Self::Found(kind, _) => ("NotReady", format!("{kind} status.initialization.{field} is false")),
            Self::NotAsked | Self::NotServed => ("NotReady", String::new()),
        }
    }
}

/// The inputs of a Cluster's status.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Its infrastructure.
    pub infrastructure: Shared,
    /// Its control plane.
    pub control_plane: Shared,
    /// The error of its topology, if it has a topology and the topology failed.
    pub topology: Option<Option<String>>,
    /// How far its end is.
    pub stage: Option<(&'static str, String)>,
}

/// The status.
pub fn compute(cluster: &CapiCluster, deployments: &[Arc<MachineDeployment>], facts: &Facts, now: &Time) -> Value {
    let mut status = if cluster.status.is_object() { cluster.status.clone() } else { json!({}) };
    let leaving = is_leaving(cluster);
    let provisioned = facts.infrastructure.is("provisioned", "ready");
    let initialized = facts.control_plane.is("controlPlaneInitialized", "initialized");
    status["observedGeneration"] = json!(cluster.metadata.generation);
    // Once set, they stay: a later loss shows in conditions only.
    for (key, holds) in [("infrastructureProvisioned", provisioned), ("controlPlaneInitialized", initialized)] {
        let known = at(&status, &["initialization", key]).as_bool().unwrap_or(false);
        put(&mut status, &["initialization", key], json!(known || holds));
    }
    let is_there = at(&status, &["initialization", "infrastructureProvisioned"]).as_bool().unwrap_or(false);
    status["phase"] = json!(match (leaving, is_there) {
        (true, _) => "Deleting",
        (false, true) => "Provisioned",
        (false, false) => "Provisioning",
    });
    let sum =
        |of: &dyn Fn(&MachineDeployment) -> Option<i64>| deployments.iter().filter_map(|one| of(one)).sum::<i64>();
    let counted = |counter: &'static str| sum(&|one: &MachineDeployment| number(&one.status, &[counter]));
    status["workers"] = json!({
        "desiredReplicas": sum(&|one: &MachineDeployment| number(&one.spec, &["replicas"])),
        "replicas": counted("replicas"),
        "readyReplicas": counted("readyReplicas"),
        "availableReplicas": counted("availableReplicas"),
        "upToDateReplicas": counted("upToDateReplicas"),
    });
    let mut written = Conditions::of(&status, cluster.metadata.generation, now);
    written.set("Paused", Answer::False, "NotPaused", "");
    if leaving {
        let (reason, message) = facts.stage.clone().unwrap_or(("Deleting", String::new()));
        written.set("Deleting", Answer::True, reason, message);
    } else {
        written.set("Deleting", Answer::False, "NotDeleting", "");
        set_shared(&mut written, facts, provisioned, initialized);
        set_workers(&mut written, deployments);
        if let Some(outcome) = &facts.topology {
            match outcome {
                None => written.set("TopologyReconciled", Answer::True, "ReconcileSucceeded", ""),
                Some(problem) => written.set("TopologyReconciled", Answer::False, "ReconcileFailed", problem),
            }
        }
        set_available(&mut written);
    }
    status["conditions"] = written.into_value();
    status
}

fn set_shared(written: &mut Conditions, facts: &Facts, provisioned: bool, initialized: bool) {
    let (reason, message) =
        if provisioned { ("Ready", String::new()) } else { facts.infrastructure.wanting("provisioned") };
    written.set("InfrastructureReady", provisioned.into(), reason, message);
    let (reason, message) = if initialized {
        ("Initialized", String::new())
    } else {
        ("NotInitialized", facts.control_plane.wanting("controlPlaneInitialized").1)
    };
    written.set("ControlPlaneInitialized", initialized.into(), reason, message);
    let reason = if initialized { "Available" } else { "NotAvailable" };
    written.set("ControlPlaneAvailable", initialized.into(), reason, "");
    written.set("RemoteConnectionProbe", Answer::True, "ProbeSucceeded", "");
}

fn set_workers(written: &mut Conditions, deployments: &[Arc<MachineDeployment>]) {
    if deployments.is_empty() {
        return written.set("WorkersAvailable", Answer::True, "NoWorkers", "");
    }
    let answer = conditions::all(deployments.iter().map(|one| conditions::answer(&one.status, "Available")));
    let reason = conditions::reason(answer, "Available", "NotAvailable", "AvailableUnknown");
    written.set("WorkersAvailable", answer, reason, "");
}

fn set_available(written: &mut Conditions) {
    let gates = ["InfrastructureReady", "ControlPlaneAvailable", "WorkersAvailable", "RemoteConnectionProbe"];
    let answer = conditions::all(gates.iter().map(|kind| written.answer(kind)));
    let troubled: Vec<String> = gates
        .iter()
        .filter_map(|kind| written.get(kind))
        .filter(|condition| condition.status != "True")
        .map(|condition| format!("* {}: {}", condition.type_, condition.message))
        .collect();
    let reason = conditions::reason(answer, "Available", "NotAvailable", "AvailableUnknown");
    written.set("Available", answer, reason, troubled.join("\n"));
}
