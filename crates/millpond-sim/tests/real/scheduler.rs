//! Where a pod goes, or why it goes nowhere: kube-scheduler against the stand-in.

use anyhow::Result;
use millpond_sim::Part;
use millpond_testkit::RealCluster;
use serde_json::{Value, json};

use crate::party::Party;

/// A pod to be scheduled among others; every case has one right answer.
struct Case {
    name: &'static str,
    /// Pods that run already: node, labels, spec.
    running: Vec<(&'static str, Value, Value)>,
    labels: Value,
    spec: Value,
}

fn case(name: &'static str, spec: Value) -> Case {
    Case { name, running: Vec::new(), labels: json!({"app": "new"}), spec }
}

impl Case {
    fn running(mut self, node: &'static str, labels: Value, spec: Value) -> Self {
        self.running.push((node, labels, spec));
        self
    }
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]})
}

fn with(mut spec: Value, more: Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

fn on(names: &[&str]) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}]}}})
}

fn spread(key: &str, more: Value) -> Value {
    let mut constraint = json!({
        "topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "new"}},
    });
    constraint = with(constraint, more);
    json!({"topologySpreadConstraints": [constraint]})
}

fn near(kind: &str, key: &str, app: &str, more: Value) -> Value {
    let term = with(json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}), more);
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    let port = json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]});
    let gpu = |count: &str| json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": count}}}]});
    vec![
        case("too-large", cpu("64")),
        case("large-with-memory", json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "64", "memory": "1Ti"}}}]})),
        case("only-the-large-node", cpu("6")),
        case("large-node-full", cpu("6")).running("n4", json!({}), cpu("4")),
        case("gpu", gpu("1")),
        case("no-gpu-left", gpu("2")).running("n4", json!({}), gpu("1")),
        case("init-container-peak", json!({"containers": [{"name": "c", "image": "i"}],
            "initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "6"}}}]})),
        case("sidecar-adds-up", json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}],
            "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}]})),
        case("selector", with(cpu("1"), json!({"nodeSelector": {"disk": "ssd"}}))),
        case("selector-nowhere", with(cpu("1"), json!({"nodeSelector": {"disk": "tape"}}))),
        case("affinity-gt", json!({"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["3"]}]}]}}}})),
        case("match-fields", json!({"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}})),
        case("match-fields-gone", json!({"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]}}}})),
        case("match-fields-conflict", json!({"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}, {"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}}})),
        case("tolerated", with(with(cpu("1"), tolerant.clone()), json!({"affinity": on(&["n2"])}))),
        case("cordon-tolerated", with(with(cpu("1"), tolerant), json!({"affinity": on(&["n3"])}))),
        case("not-tolerated", with(cpu("1"), json!({"affinity": on(&["n2", "n3"])}))),
        case("host-port", with(port.clone(), json!({"affinity": on(&["n1", "n4"])}))).running("n1", json!({}), port.clone()),
        case("host-ports-taken", port.clone()).running("n1", json!({}), port.clone()).running("n4", json!({}), port),
        case("spread-zone", with(cpu("1"), spread(ZONE, json!({"nodeTaintsPolicy": "Honor"})))).running("n1", json!({"app": "new"}), cpu("1")),
        case("spread-broken", with(with(cpu("6"), json!({"nodeSelector": {"size": "large"}})), spread(ZONE, json!({"nodeAffinityPolicy": "Ignore"}))))
            .running("n4", json!({"app": "new"}), cpu("1")),
        case("spread-taints-ignored", with(cpu("1"), spread(ZONE, json!({}))))
            .running("n1", json!({"app": "new"}), cpu("1")).running("n4", json!({"app": "new"}), cpu("1")),
        case("spread-min-domains", with(cpu("1"), spread(ZONE, json!({"minDomains": 5, "nodeTaintsPolicy": "Honor"}))))
            .running("n1", json!({"app": "new"}), cpu("1")).running("n4", json!({"app": "new"}), cpu("1")),
        case("spread-label-missing", with(cpu("1"), spread("rack", json!({})))),
        case("spread-match-label-keys", with(cpu("1"), spread(HOST, json!({"matchLabelKeys": ["rev"], "nodeTaintsPolicy": "Honor"}))))
            .running("n1", json!({"app": "new", "rev": "1"}), cpu("1")).running("n4", json!({"app": "new"}), cpu("1"))
            .running("n4", json!({"app": "new"}), cpu("1")),
        case("near", with(cpu("1"), near("podAffinity", HOST, "db", json!({})))).running("n4", json!({"app": "db"}), cpu("1")),
        case("near-nothing", with(cpu("1"), near("podAffinity", HOST, "db", json!({})))),
        case("near-itself", with(with(cpu("6"), json!({})), near("podAffinity", ZONE, "new", json!({})))),
        case("apart", with(cpu("1"), near("podAntiAffinity", HOST, "db", json!({})))).running("n4", json!({"app": "db"}), cpu("1")),
        case("apart-everywhere", with(cpu("1"), near("podAntiAffinity", HOST, "db", json!({}))))
            .running("n4", json!({"app": "db"}), cpu("1")).running("n1", json!({"app": "db"}), cpu("1")),
        case("repelled", cpu("1")).running("n1", json!({"app": "x"}), with(cpu("1"), near("podAntiAffinity", HOST, "new", json!({})))),
        case("repelled-everywhere", cpu("1"))
            .running("n1", json!({"app": "x"}), with(cpu("1"), near("podAntiAffinity", HOST, "new", json!({}))))
            .running("n4", json!({"app": "x"}), with(cpu("1"), near("podAntiAffinity", HOST, "new", json!({})))),
        case("other-namespace", with(cpu("1"), near("podAffinity", HOST, "db", json!({"namespaces": ["elsewhere"]}))))
            .running("n4", json!({"app": "db"}), cpu("1")),
        case("all-namespaces", with(cpu("1"), near("podAffinity", HOST, "db", json!({"namespaceSelector": {}}))))
            .running("n4", json!({"app": "db"}), cpu("1")),
        case("prefers-the-emptier", cpu("1")).running("n1", json!({}), cpu("3")),
        case("prefers-a-label", json!({"containers": [{"name": "c", "image": "i"}], "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 100, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]}}})),
        case("prefers-company", json!({"containers": [{"name": "c", "image": "i"}], "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 100, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}}]}}}))
            .running("n1", json!({"app": "db"}), cpu("1")),
        case("never-preempts", with(cpu("6"), json!({"priorityClassName": "polite"}))).running("n4", json!({}), cpu("4")),
        case("preempts", with(cpu("6"), json!({"priorityClassName": "high"})))
            .running("n4", json!({}), cpu("3")).running("n4", json!({}), cpu("1")),
        case("claim-missing", with(cpu("1"), json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]}))),
    ]
}

async fn prepare(party: &Party) -> Result<()> {
    party.node("n1", "4", json!({ZONE: "a", "rank": "1"}), json!({}), json!({})).await?;
    let tainted = json!({"taints": [{"key": "dedicated", "effect": "NoSchedule"}]});
    party.node("n2", "4", json!({ZONE: "b", "disk": "hdd", "rank": "2"}), tainted, json!({})).await?;
    party.node("n3", "4", json!({ZONE: "b", "rank": "3"}), json!({"unschedulable": true}), json!({})).await?;
    let gpus = json!({"example.com/gpu": "2"});
    party.node("n4", "8", json!({ZONE: "c", "disk": "ssd", "size": "large", "rank": "4"}), json!({}), gpus).await?;
    let class = |name: &str, value: i32, policy: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "preemptionPolicy": policy})
    };
    party.create(class("high", 1000, "PreemptLowerPriority")).await?;
    party.create(class("polite", 1000, "Never")).await?;
    Ok(())
}

/// `n4`, or `refused: …`, with what was promised.
async fn judge(party: &Party, case: &Case) -> Result<String> {
    for (index, (node, labels, spec)) in case.running.iter().enumerate() {
        let spec = with(spec.clone(), json!({"nodeName": node, "tolerations": [{"operator": "Exists"}]}));
        let name = format!("running-{index}");
        party
            .create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec,
            }))
            .await?;
        party.read_until(("v1", "Pod", &name), |pod| pod["status"]["phase"] == "Running").await?;
    }
    let created = party
        .create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "labels": case.labels}, "spec": case.spec,
        }))
        .await?;
    let refusal = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
        found.map(|one| {
            format!("refused: {} {}", one["reason"].as_str().unwrap_or("-"), one["message"].as_str().unwrap_or("-"))
        })
    };
    let pod =
        party.first_version(&created, |pod| pod["spec"]["nodeName"].is_string() || refusal(pod).is_some()).await?;
    let mut outcome = match pod["spec"]["nodeName"].as_str() {
        Some(node) => node.to_owned(),
        None => refusal(&pod).unwrap_or_default(),
    };
    if let Some(node) = pod["status"]["nominatedNodeName"].as_str() {
        let settled = party.read_until(("v1", "Pod", "new"), |pod| pod["spec"]["nodeName"].is_string()).await?;
        outcome = format!("{outcome} | promised {node}, bound to {}", settled["spec"]["nodeName"]);
        outcome = format!("{outcome} | left {:?}", party.pod_names().await?);
    }
    party.remove_pods().await?;
    Ok(outcome)
}

async fn outcomes(party: Party) -> Result<Vec<(&'static str, String)>> {
    prepare(&party).await?;
    let mut outcomes = Vec::new();
    for case in cases() {
        outcomes.push((case.name, judge(&party, &case).await?));
    }
    party.stop().await;
    Ok(outcomes)
}

#[tokio::test]
#[ignore = "needs the real parts"]
async fn real_scheduler_decides_like_the_stand_in() -> Result<()> {
    let helpers = [Part::Kubelets, Part::NodeLifecycle];
    let theirs = Party::start(&RealCluster::builder().scheduler(), &helpers).await?;
    let theirs = outcomes(theirs).await?;
    let ours = Party::start(&RealCluster::builder(), &[Part::Kubelets, Part::NodeLifecycle, Part::Scheduler]).await?;
    let ours = outcomes(ours).await?;
    let different: Vec<String> = theirs
        .iter()
        .zip(&ours)
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("{}\n  kube-scheduler: {}\n  stand-in:       {}", theirs.0, theirs.1, ours.1))
        .collect();
    assert!(different.is_empty(), "{} of {} differ:\n{}", different.len(), theirs.len(), different.join("\n"));
    Ok(())
}
