//! The scenarios of a race: their objects, and what is counted.

use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::karpenter::stack::Engine;

/// Deployments of the burst and the scale-down.
const DEPLOYMENTS: usize = 20;

/// Millicores and MiB of the pods, Deployment by Deployment: small and large
/// ones, and none that divides all nodes evenly.
const REQUESTS: [(u32, u32); 5] = [(100, 200), (250, 700), (500, 900), (800, 3000), (1500, 2000)];

/// Replicas that a scale-down leaves of this many.
const LEFT_ONE_OF: usize = 5;

/// Without a new or ended node for so long, an engine is taken to be done:
/// several times the rounds of both (Karpenter looks every 10 s and checks its
/// decisions for 15 s more).
pub(super) const QUIET: Duration = Duration::from_secs(60);

/// The name of class and pool.
pub(super) const POOL: &str = "race";

/// A workload with its course.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    /// Many pods of many Deployments at once
    Burst,
    /// Pods that must spread over zones, with a few large ones behind them
    Zones,
    /// Most of the pods of a burst go, and nodes are consolidated
    ScaleDown,
}

impl Scenario {
    pub(super) const ALL: [Self; 3] = [Self::Burst, Self::Zones, Self::ScaleDown];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Zones => "zones",
            Self::ScaleDown => "scale-down",
        }
    }

    /// The title for users.
    pub(super) fn title(self, pods: usize) -> String {
        match self {
            Self::Burst => format!("burst: {pods} pods of {DEPLOYMENTS} Deployments"),
            Self::Zones => format!("zones: {} pods that spread over zones, with a tail of large ones", self.pods(pods)),
            Self::ScaleDown => format!("scale-down: {pods} pods, then {}", left(pods / DEPLOYMENTS) * DEPLOYMENTS),
        }
    }

    /// The number of pods at the start.
    pub(super) fn pods(self, pods: usize) -> usize {
        let deployments = self.deployments(pods);
        deployments.iter().filter_map(|deployment| deployment["spec"]["replicas"].as_u64()).map(to_usize).sum()
    }

    /// The Deployments.
    pub(super) fn deployments(self, pods: usize) -> Vec<Value> {
        match self {
            Self::Burst | Self::ScaleDown => (0..DEPLOYMENTS)
                .map(|number| deployment(number, pods / DEPLOYMENTS, REQUESTS[number % REQUESTS.len()]))
                .collect(),
            Self::Zones => zones(),
        }
    }

    /// Replicas of each Deployment in the second act, if there is one.
    pub(super) fn second_act(self, pods: usize) -> Option<usize> {
        (self == Self::ScaleDown).then(|| left(pods / DEPLOYMENTS))
    }
}

fn left(replicas: usize) -> usize {
    replicas / LEFT_ONE_OF
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Three Deployments with a pod more or less in each zone, and a tail: a few
/// pods that need most of a node, and a few that may not share one.
fn zones() -> Vec<Value> {
    let mut all: Vec<_> = (0..3).map(|number| deployment(number, 100, REQUESTS[number + 1])).collect();
    all.push(deployment(3, 7, (6000, 8000)));
    all.push(deployment(4, 5, (300, 300)));
    for (number, deployment) in all.iter_mut().enumerate() {
        let spec = &mut deployment["spec"]["template"]["spec"];
        let selector = json!({"matchLabels": {"app": app(number)}});
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }]);
    }
    let selector = json!({"matchLabels": {"app": app(4)}});
    all[4]["spec"]["template"]["spec"]["affinity"] = json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector},
        ],
    }});
    all
}

fn app(number: usize) -> String {
    format!("app-{number:02}")
}

fn deployment(number: usize, replicas: usize, (millicores, mebibytes): (u32, u32)) -> Value {
    let labels = json!({"app": app(number)});
    let requests = json!({"cpu": format!("{millicores}m"), "memory": format!("{mebibytes}Mi")});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app(number), "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}]},
            },
        },
    })
}

/// Class and pool. The pools differ in the class that they name, and in nothing
/// else.
pub(super) fn pool(engine: Engine) -> Vec<Value> {
    let (group, version, kind) = match engine {
        Engine::Millpond => ("millpond.dev", "v1alpha1", "NodeClass"),
        Engine::Karpenter => ("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass"),
    };
    let mut class = json!({"apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": POOL}});
    if engine == Engine::Millpond {
        class["spec"] = json!({"provider": "sim", "catalog": "kwok"});
    }
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": {
            // Nodes change only as the scenario asks.
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never"},
            "template": {"spec": {
                "expireAfter": "Never",
                "nodeClassRef": {"group": group, "kind": kind, "name": POOL},
                "requirements": [
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                ],
            }},
        },
    });
    vec![class, pool]
}

/// The change that makes a pool consolidate at once, all nodes if necessary.
pub(super) fn consolidation() -> Value {
    json!({"spec": {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_the_pods_that_they_claim() {
        assert_eq!(Scenario::Burst.pods(1000), 1000);
        assert_eq!(Scenario::Zones.pods(1000), 312);
        assert_eq!(Scenario::ScaleDown.title(1000), "scale-down: 1000 pods, then 200");
        assert_eq!(Scenario::ScaleDown.second_act(1000), Some(10));
        assert_eq!(Scenario::Burst.second_act(1000), None);
    }
}
