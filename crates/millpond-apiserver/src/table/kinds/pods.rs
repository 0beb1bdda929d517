//! Pods and pod templates. The status of a pod is a summary of its phase, its conditions and all its
//! containers.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::read::{flag, integer, is_deleting, labels, list, name, optional, present, text, time};
use super::{AGE, NAME, age, age_of, condition, containers, is_true, or, plain, text as column, wide};
use crate::resource::BuiltinColumns;

pub(super) static POD: BuiltinColumns = BuiltinColumns {
    definitions: &[
        NAME,
        column("Ready", "Ready containers of all containers"),
        column("Status", "Summary of the phase and of the containers' states"),
        column("Restarts", "How often containers were started again, and when the last time was"),
        AGE,
        wide(column("IP", "Address of the pod")),
        wide(column("Node", "Node that the pod is bound to")),
        wide(column("Nominated Node", "Node that the pod is expected to be bound to")),
        wide(column("Readiness Gates", "Fulfilled readiness gates of all readiness gates")),
    ],
    cells: pod_cells,
    conditions: pod_conditions,
};

pub(super) static POD_TEMPLATE: BuiltinColumns = plain(
    &[
        NAME,
        column("Containers", "Names of the containers of the template"),
        column("Images", "Images of the containers of the template"),
        column("Pod Labels", "Labels that pods of this template get"),
    ],
    |object, _| {
        let [names, images] = containers(object, "/template/spec/containers");
        vec![json!(name(object)), names, images, json!(labels(object, "/template/metadata/labels"))]
    },
);

fn pod_conditions(pod: &Value) -> Option<Value> {
    let message = match text(pod, "/status/phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    let reason = text(pod, "/status/phase");
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn pod_cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let Summary { reason, ready, restarts } = Summary::of(pod);
    let sidecars = list(pod, "/spec/initContainers").iter().filter(|container| is_sidecar(container)).count();
    let total = list(pod, "/spec/containers").len() + sidecars;
    let restarts = match restarts {
        Restarts { count: 1.., last: Some(last) } => {
            format!("{} ({} ago)", restarts.count, age_of(Some(last), now))
        }
        Restarts { count, .. } => count.to_string(),
    };
    let ip = or(text(pod, "/status/podIP"), text(pod, "/status/podIPs/0/ip"));
    vec![
        json!(name(pod)),
        json!(format!("{ready}/{total}")),
        json!(reason),
        json!(restarts),
        json!(age(pod, now)),
        json!(or(ip, "<none>")),
        json!(or(text(pod, "/spec/nodeName"), "<none>")),
        json!(or(text(pod, "/status/nominatedNodeName"), "<none>")),
        json!(readiness_gates(pod)),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| is_true(pod, text(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

/// An init container that keeps running beside the main ones.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += integer(status, "/restartCount");
        self.last = self.last.max(time(status, "/lastState/terminated/finishedAt"));
    }
}

struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let mut reason = or(text(pod, "/status/reason"), phase).to_owned();
        let is_gate =
            |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
        if list(pod, "/status/conditions").iter().any(is_gate) {
            "SchedulingGated".clone_into(&mut reason);
        }
        let init = Initialization::of(pod);
        let mut summary = Self { reason, ready: init.ready_sidecars, restarts: init.restarts };
        let initializing = init.reason.is_some();
        if let Some(reason) = init.reason {
            summary.reason = reason;
        }
        if !initializing || condition(pod, "Initialized").is_some_and(|condition| condition["status"] == "True") {
            summary.restarts = init.sidecar_restarts;
            summary.add_containers(pod);
        }
        if is_deleting(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut summary.reason);
            } else if !matches!(phase, "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    /// The main containers, last to first, so that the first one's reason is shown.
    fn add_containers(&mut self, pod: &Value) {
        let mut running = false;
        let mut failure = None;
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(terminated) = terminated(status) {
                self.reason = end_of(terminated, "");
                if integer(terminated, "/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if flag(status, "/ready") && present(status, "/state/running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && list(pod, "/status/conditions").iter().any(is_ready_condition) {
                "Running".clone_into(&mut self.reason);
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }
}

fn is_ready_condition(condition: &Value) -> bool {
    condition["type"] == "Ready" && condition["status"] == "True"
}

fn terminated(status: &Value) -> Option<&Value> {
    status.pointer("/state/terminated").filter(|terminated| !terminated.is_null())
}

/// Why a container ended.
fn end_of(terminated: &Value, prefix: &str) -> String {
    let reason = text(terminated, "/reason");
    let signal = integer(terminated, "/signal");
    if !reason.is_empty() {
        format!("{prefix}{reason}")
    } else if signal != 0 {
        format!("{prefix}Signal:{signal}")
    } else {
        format!("{prefix}ExitCode:{}", integer(terminated, "/exitCode"))
    }
}

/// The state of the init containers, up to the first one that has not finished.
#[derive(Default)]
struct Initialization {
    /// Set while an init container is not done.
    reason: Option<String>,
    ready_sidecars: usize,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

impl Initialization {
    fn of(pod: &Value) -> Self {
        let specs = list(pod, "/spec/initContainers");
        let sidecars: HashSet<&str> =
            specs.iter().filter(|spec| is_sidecar(spec)).map(|spec| text(spec, "/name")).collect();
        let mut init = Self::default();
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            init.restarts.add(status);
            let sidecar = sidecars.contains(text(status, "/name"));
            if sidecar {
                init.sidecar_restarts.add(status);
            }
            let terminated = terminated(status);
            if terminated.is_some_and(|terminated| integer(terminated, "/exitCode") == 0) {
                continue;
            }
            if sidecar && flag(status, "/started") {
                init.ready_sidecars += usize::from(flag(status, "/ready"));
                continue;
            }
            let waiting =
                optional(status, "/state/waiting/reason").filter(|reason| !matches!(*reason, "" | "PodInitializing"));
            init.reason = Some(match (terminated, waiting) {
                (Some(terminated), _) => end_of(terminated, "Init:"),
                (None, Some(waiting)) => format!("Init:{waiting}"),
                (None, None) => format!("Init:{index}/{}", specs.len()),
            });
            break;
        }
        init
    }
}
