//! The status of a Machine: conditions and phase.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use millpond_api::capi::{self, Bootstrap, Machine as View};
use millpond_controllers::kinds::Machine;
use serde_json::{Value, json};

use super::super::conditions::{self, Answer, Conditions, reason};
use super::super::{at, put, text};
use crate::clock::after_seconds;
use crate::meta::is_leaving;

/// The conditions of a Node that its health is judged by, with the status that is good.
const NODE_CONDITIONS: [(&str, &str); 4] =
    [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")];

/// A dependency of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is part of the Machine.
    Given,
    /// It does not exist.
    Absent {
        /// Its kind.
        kind: String,
    },
    /// It exists.
    There {
        /// Its kind.
        kind: String,
        /// Its own report, if it has one: status, reason, message.
        says: Option<(Answer, String, String)>,
    },
}

/// How far the end of a Machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The reason, in one word.
    pub reason: &'static str,
    /// More about it.
    pub message: String,
}

/// The inputs of a status.
pub struct Facts<'a> {
    /// The Machine.
    pub machine: &'a Machine,
    /// Its bootstrap data.
    pub bootstrap: Need,
    /// Its infrastructure.
    pub infrastructure: Need,
    /// The addresses that the infrastructure reports.
    pub addresses: Value,
    /// Its Node.
    pub node: Option<&'a Node>,
    /// Whether the infrastructure of its Cluster is there.
    pub cluster_ready: bool,
    /// How far its end is.
    pub stage: Option<Stage>,
    /// Why it is not what its MachineDeployment asks for; `None` without one.
    pub outdated: Option<Vec<String>>,
    /// The time.
    pub now: Time,
}

/// The status, and when it changes without an event.
pub fn compute(facts: &Facts<'_>) -> (Value, Option<Duration>) {
    let machine = facts.machine;
    let view = View::of(&machine.spec, &machine.status);
    let mut status = if machine.status.is_object() { machine.status.clone() } else { json!({}) };
    status["observedGeneration"] = json!(machine.metadata.generation);
    // Data that the Machine brought along was not created for it.
    let is_made = matches!(view.spec.bootstrap, Bootstrap::Config(_));
    if is_made && text(&machine.spec, &["bootstrap", "dataSecretName"]).is_some() {
        put(&mut status, &["initialization", "bootstrapDataSecretCreated"], json!(true));
    }
    if view.spec.provider_id.is_some() {
        put(&mut status, &["initialization", "infrastructureProvisioned"], json!(true));
    }
    if !facts.addresses.is_null() {
        status["addresses"] = facts.addresses.clone();
    }
    if let Some(node) = facts.node {
        status["nodeRef"] = json!({"name": node.name_any()});
        if let Some(info) = node.status.as_ref().and_then(|status| status.node_info.as_ref()) {
            status["nodeInfo"] = json!(info);
        }
    }
    let mut conditions = Conditions::of(&status, machine.metadata.generation, &facts.now);
    conditions.set("Paused", Answer::False, "NotPaused", "");
    set_bootstrap(&mut conditions, facts);
    set_infrastructure(&mut conditions, facts, &view);
    set_node(&mut conditions, facts, &view);
    match &facts.stage {
        None => conditions.set("Deleting", Answer::False, "NotDeleting", ""),
        Some(stage) => conditions.set("Deleting", Answer::True, stage.reason, stage.message.clone()),
    }
    conditions.set("Updating", Answer::False, "NotUpdating", "");
    set_up_to_date(&mut conditions, facts, &view);
    set_ready(&mut conditions, facts);
    let again = set_available(&mut conditions, view.spec.min_ready_s, &facts.now);
    status["conditions"] = conditions.into_value();
    set_phase(&mut status, machine, &facts.now);
    (status, again)
}

fn set_bootstrap(conditions: &mut Conditions, facts: &Facts<'_>) {
    const KIND: &str = "BootstrapConfigReady";
    let is_created = text(&facts.machine.spec, &["bootstrap", "dataSecretName"]).is_some();
    match &facts.bootstrap {
        Need::Given => conditions.set(KIND, Answer::True, "DataSecretProvided", ""),
        Need::There { says: Some((answer, reason, message)), .. } => conditions.set(KIND, *answer, reason, message),
        Need::There { .. } if is_created => conditions.set(KIND, Answer::True, "Ready", ""),
        Need::There { kind, .. } => {
            let message = format!("{kind} status.initialization.dataSecretCreated is false");
            conditions.set(KIND, Answer::False, "NotReady", message);
        }
        Need::Absent { kind } if is_leaving(facts.machine) && is_created => {
            conditions.set(KIND, Answer::False, "ObjectDeleted", format!("{kind} has been deleted"));
        }
        Need::Absent { kind } => {
            conditions.set(KIND, Answer::False, "ObjectDoesNotExist", format!("{kind} does not exist"));
        }
    }
}

fn set_infrastructure(conditions: &mut Conditions, facts: &Facts<'_>, view: &View) {
    const KIND: &str = "InfrastructureReady";
    let is_provisioned = view.spec.provider_id.is_some();
    match &facts.infrastructure {
        Need::Given => conditions.set(KIND, Answer::True, "Ready", ""),
        Need::There { says: Some((answer, reason, message)), .. } => conditions.set(KIND, *answer, reason, message),
        Need::There { .. } if is_provisioned => conditions.set(KIND, Answer::True, "Ready", ""),
        Need::There { kind, .. } => {
            let message = format!("{kind} status.initialization.provisioned is false");
            conditions.set(KIND, Answer::False, "NotReady", message);
        }
        Need::Absent { kind } if is_provisioned => {
            let while_ = if is_leaving(facts.machine) { "" } else { " while the Machine still exists" };
            conditions.set(KIND, Answer::False, "ObjectDeleted", format!("{kind} has been deleted{while_}"));
        }
        Need::Absent { kind } => {
            conditions.set(KIND, Answer::False, "ObjectDoesNotExist", format!("{kind} does not exist"));
        }
    }
}

fn set_node(conditions: &mut Conditions, facts: &Facts<'_>, view: &View) {
    if let Some(node) = facts.node {
        let (answer, message) = node_ready(node);
        let why = reason(answer, "NodeReady", "NodeNotReady", "NodeReadyUnknown");
        conditions.set("NodeReady", answer, why, message);
        let (answer, message) = node_health(node);
        let why = reason(answer, "NodeHealthy", "NodeNotHealthy", "NodeHealthyUnknown");
        return conditions.set("NodeHealthy", answer, why, message);
    }
    let (answer, why, message) = without_node(facts, view);
    for kind in ["NodeReady", "NodeHealthy"] {
        conditions.set(kind, answer, why, message.clone());
    }
}

fn without_node(facts: &Facts<'_>, view: &View) -> (Answer, &'static str, String) {
    let leaving = is_leaving(facts.machine);
    if !facts.cluster_ready && !leaving {
        let message = "Waiting for Cluster status.initialization.infrastructureProvisioned to be true";
        return (Answer::Unknown, "InspectionFailed", message.to_owned());
    }
    match (&view.status.node, &view.spec.provider_id) {
        (Some(name), _) => {
            let while_ = if leaving { "" } else { " while the Machine still exists" };
            (Answer::False, "NodeDeleted", format!("Node {name} has been deleted{while_}"))
        }
        (None, _) if leaving => (Answer::Unknown, "NodeDoesNotExist", "Node does not exist".to_owned()),
        (None, Some(id)) => {
            let message = format!("Waiting for a Node with spec.providerID {id} to exist");
            (Answer::Unknown, "InspectionFailed", message)
        }
        (None, None) => {
            let kind = view.spec.infrastructure.as_ref().map_or("infrastructure", |reference| &reference.kind);
            (Answer::Unknown, "InspectionFailed", format!("Waiting for {kind} to report spec.providerID"))
        }
    }
}

fn condition_of<'n>(node: &'n Node, kind: &str) -> Option<&'n k8s_openapi::api::core::v1::NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn node_ready(node: &Node) -> (Answer, String) {
    let Some(ready) = condition_of(node, "Ready") else {
        return (Answer::Unknown, "* Node.Ready: Condition not yet reported".to_owned());
    };
    let message = ready.message.as_deref().unwrap_or_default();
    match ready.status.as_str() {
        "True" => (Answer::True, String::new()),
        status => {
            let answer = if status == "False" { Answer::False } else { Answer::Unknown };
            (answer, if message.is_empty() { String::new() } else { format!("* Node.Ready: {message}") })
        }
    }
}

/// One bad condition makes a Node unhealthy; an unreported one leaves it unknown.
fn node_health(node: &Node) -> (Answer, String) {
    let mut answers = Vec::new();
    let mut lines = Vec::new();
    for (kind, good) in NODE_CONDITIONS {
        let Some(condition) = condition_of(node, kind) else {
            answers.push(Answer::Unknown);
            lines.push(format!("* Node.{kind}: Condition not yet reported"));
            continue;
        };
        if condition.status == good {
            continue;
        }
        answers.push(if condition.status == "Unknown" { Answer::Unknown } else { Answer::False });
        let message = condition.message.as_deref().filter(|message| !message.is_empty());
        let fallback = format!("Condition is {}", condition.status);
        lines.push(format!("* Node.{kind}: {}", message.unwrap_or(&fallback)));
    }
    (conditions::all(answers), lines.join("\n"))
}

fn set_up_to_date(conditions: &mut Conditions, facts: &Facts<'_>, view: &View) {
    const KIND: &str = "UpToDate";
    let Some(outdated) = &facts.outdated else { return };
    if !outdated.is_empty() {
        let lines: Vec<String> = outdated.iter().map(|line| format!("* {line}")).collect();
        return conditions.set(KIND, Answer::False, "NotUpToDate", lines.join("\n"));
    }
    let info = facts.node.and_then(|node| node.status.as_ref()?.node_info.as_ref());
    let runs = info.map(|info| info.kubelet_version.as_str()).filter(|version| !version.is_empty());
    match (runs, view.spec.version.as_deref()) {
        (Some(runs), Some(asked)) if runs != asked => {
            let message = format!("* Node.status.nodeInfo.kubeletVersion {runs}, {asked} required");
            conditions.set(KIND, Answer::False, "Updating", message);
        }
        _ => conditions.set(KIND, Answer::True, "UpToDate", ""),
    }
}

/// The sum of the others.
fn set_ready(conditions: &mut Conditions, facts: &Facts<'_>) {
    let mut gates: Vec<(String, bool)> = ["Deleting", "Updating"].map(|kind| (kind.to_owned(), true)).into();
    gates.extend(["BootstrapConfigReady", "InfrastructureReady", "NodeHealthy"].map(|kind| (kind.to_owned(), false)));
    if conditions.get("HealthCheckSucceeded").is_some() {
        gates.push(("HealthCheckSucceeded".to_owned(), false));
    }
    for gate in at(&facts.machine.spec, &["readinessGates"]).as_array().into_iter().flatten() {
        let kind = gate["conditionType"].as_str().unwrap_or_default().to_owned();
        gates.push((kind, gate["polarity"] == "Negative"));
    }
    let judge = |kind: &str, negative: bool| {
        let answer = conditions.answer(kind);
        if negative && conditions.get(kind).is_some() { answer.negated() } else { answer }
    };
    let answer = conditions::all(gates.iter().map(|(kind, negative)| judge(kind, *negative)));
    let mut lines = Vec::new();
    for (kind, negative) in gates.iter().filter(|(kind, negative)| judge(kind, *negative) != Answer::True) {
        let message = match (conditions.get(kind), *negative && kind == "Deleting") {
            (Some(condition), true) => format!("Machine deletion in progress, stage: {}", condition.reason),
            (Some(condition), false) if condition.message.is_empty() => condition.reason.clone(),
            (Some(condition), false) => condition.message.clone(),
            (None, _) => "Condition not yet reported".to_owned(),
        };
        let nested = if message.starts_with('*') {
            format!("\n  {}", message.replace('\n', "\n  "))
        } else {
            format!(" {message}")
        };
        lines.push(format!("* {kind}:{nested}"));
    }
    let why = reason(answer, "Ready", "NotReady", "ReadyUnknown");
    conditions.set("Ready", answer, why, lines.join("\n"));
}

fn set_available(conditions: &mut Conditions, min_ready_s: i64, now: &Time) -> Option<Duration> {
    let since = match conditions.get("Ready") {
        Some(ready) if ready.status == "True" => ready.last_transition_time.0,
        _ => {
            conditions.set("Available", Answer::False, "NotReady", "");
            return None;
        }
    };
    let due = after_seconds(since, min_ready_s);
    if due <= now.0 {
        conditions.set("Available", Answer::True, "Available", "");
        return None;
    }
    conditions.set("Available", Answer::False, "WaitingForMinReadySeconds", "");
    Duration::try_from(due.duration_since(now.0)).ok()
}

fn set_phase(status: &mut Value, machine: &Machine, now: &Time) {
    let before = text(status, &["phase"]).map(str::to_owned);
    let is = |key: &str| at(status, &["initialization", key]).as_bool().unwrap_or(false);
    let (has_secret, has_machine) = (is("bootstrapDataSecretCreated"), is("infrastructureProvisioned"));
    let has_id = text(&machine.spec, &["providerID"]).is_some();
    let phase = if is_leaving(machine) {
        "Deleting"
    } else if has_machine && text(status, &["nodeRef", "name"]).is_some() {
        "Running"
    } else if has_id {
        "Provisioned"
    } else if has_secret && !has_machine {
        "Provisioning"
    } else {
        "Pending"
    };
    if before.as_deref() != Some(phase) {
        status["phase"] = json!(phase);
        status["lastUpdated"] = json!(now);
    }
}

/// Reads what an object says of its own readiness, as the contract between Cluster API and providers has it.
pub fn says_ready(status: &Value) -> Option<(Answer, String, String)> {
    let ready = conditions::find(status, "Ready")?;
    Some((Answer::of(Some(&ready)), ready.reason, ready.message))
}

/// The kind that a reference names.
pub fn kind_of(reference: Option<&capi::Reference>) -> String {
    reference.map(|reference| reference.kind.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(change: impl Fn(&mut Value)) -> Machine {
        let mut value = json!({
            "metadata": {"name": "m", "namespace": "ns", "generation": 1},
            "spec": {"clusterName": "c", "version": "v1.34.1", "bootstrap": {"dataSecretName": "s"},
                "infrastructureRef": {"apiGroup": "i.x", "kind": "FakeMachine", "name": "m"}},
        });
        change(&mut value);
        serde_json::from_value(value).expect("a machine")
    }

    fn node(ready: &str, version: &str) -> Node {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        serde_json::from_value(json!({
            "metadata": {"name": "m"},
            "status": {
                "nodeInfo": {"kubeletVersion": version, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                    "systemUUID": ""},
                "conditions": [condition("Ready", ready), condition("MemoryPressure", "False"),
                    condition("DiskPressure", "False"), condition("PIDPressure", "False")],
            },
        }))
        .expect("a node")
    }

    fn there() -> Need {
        Need::There { kind: "FakeMachine".to_owned(), says: None }
    }

    fn facts<'a>(machine: &'a Machine, node: Option<&'a Node>) -> Facts<'a> {
        Facts {
            machine,
            bootstrap: Need::Given,
            infrastructure: there(),
            addresses: Value::Null,
            node,
            cluster_ready: true,
            stage: None,
            outdated: Some(Vec::new()),
            now: Time("2026-01-01T00:00:00Z".parse().expect("a time")),
        }
    }

    fn told(status: &Value, kind: &str) -> String {
        let condition = conditions::find(status, kind).expect("a condition");
        format!("{} {}", condition.status, condition.reason)
    }

    #[test]
    fn phases_follow_what_is_there() {
        assert_eq!(compute(&facts(&machine(|_| {}), None)).0["phase"], "Pending", "it brought its data along");
        let provisioning = machine(|value| {
            value["spec"]["bootstrap"]["configRef"] = json!({"apiGroup": "b.x", "kind": "KubeadmConfig", "name": "m"});
        });
        let (status, _) = compute(&facts(&provisioning, None));
        assert_eq!(
            (&status["phase"], told(&status, "InfrastructureReady").as_str()),
            (&json!("Provisioning"), "False NotReady")
        );
        assert_eq!(
            (told(&status, "NodeHealthy").as_str(), told(&status, "Ready").as_str()),
            ("Unknown InspectionFailed", "False NotReady")
        );
        let provisioned = machine(|value| value["spec"]["providerID"] = json!("x://1"));
        let (status, _) = compute(&facts(&provisioned, None));
        assert_eq!(
            (&status["phase"], told(&status, "Ready").as_str()),
            (&json!("Provisioned"), "Unknown ReadyUnknown")
        );
        let ready = node("True", "v1.34.1");
        let (status, _) = compute(&facts(&provisioned, Some(&ready)));
        assert_eq!((&status["phase"], &status["nodeRef"]["name"]), (&json!("Running"), &json!("m")));
        for (kind, expected) in [
            ("Ready", "True Ready"),
            ("Available", "True Available"),
            ("UpToDate", "True UpToDate"),
            ("NodeReady", "True NodeReady"),
            ("BootstrapConfigReady", "True DataSecretProvided"),
        ] {
            assert_eq!(told(&status, kind), expected);
        }
    }

    #[test]
    fn trouble_is_reported() {
        let provisioned = machine(|value| value["spec"]["providerID"] = json!("x://1"));
        let ill = node("False", "v1.34.1");
        let (status, _) = compute(&facts(&provisioned, Some(&ill)));
        assert_eq!(
            (told(&status, "NodeHealthy").as_str(), told(&status, "Available").as_str()),
            ("False NodeNotHealthy", "False NotReady")
        );
        let old = node("True", "v1.33.0");
        let (status, _) = compute(&facts(&provisioned, Some(&old)));
        assert_eq!(told(&status, "UpToDate"), "False Updating");
        let outdated =
            Facts { outdated: Some(vec!["FakeMachine is not up-to-date".to_owned()]), ..facts(&provisioned, None) };
        assert_eq!(told(&compute(&outdated).0, "UpToDate"), "False NotUpToDate");
        let gone = machine(|value| {
            value["spec"]["providerID"] = json!("x://1");
            value["status"] = json!({"nodeRef": {"name": "m"}});
        });
        let lost = Facts { infrastructure: Need::Absent { kind: "FakeMachine".to_owned() }, ..facts(&gone, None) };
        let (status, _) = compute(&lost);
        assert_eq!(
            (told(&status, "InfrastructureReady").as_str(), told(&status, "NodeHealthy").as_str()),
            ("False ObjectDeleted", "False NodeDeleted")
        );
    }

    #[test]
    fn the_end_is_reported_stage_by_stage() {
        let leaving = machine(|value| {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            value["spec"]["providerID"] = json!("x://1");
        });
        let ready = node("True", "v1.34.1");
        let stage = Stage { reason: "DrainingNode", message: "Drain not completed yet".to_owned() };
        let (status, _) = compute(&Facts { stage: Some(stage), ..facts(&leaving, Some(&ready)) });
        assert_eq!((&status["phase"], told(&status, "Deleting").as_str()), (&json!("Deleting"), "True DrainingNode"));
        let sum = conditions::find(&status, "Ready").expect("a condition");
        assert_eq!(
            (sum.status.as_str(), sum.message.as_str()),
            ("False", "* Deleting: Machine deletion in progress, stage: DrainingNode")
        );
    }

    #[test]
    fn availability_takes_time() {
        let patient = machine(|value| {
            value["spec"]["providerID"] = json!("x://1");
            value["spec"]["minReadySeconds"] = json!(30);
        });
        let ready = node("True", "v1.34.1");
        let (status, again) = compute(&facts(&patient, Some(&ready)));
        assert_eq!(
            (told(&status, "Available").as_str(), again),
            ("False WaitingForMinReadySeconds", Some(Duration::from_secs(30)))
        );
    }
}
