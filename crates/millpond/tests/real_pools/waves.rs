//! Pods of one `kubectl apply`, as kube-controller-manager sends them: over seconds, some of many Deployments at a time. They
//! are planned together, and no node that was bought for some of them goes while others wait.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::stack::{PATIENCE, Stack, World};

const DEPLOYMENTS: usize = 20;
const PODS: usize = 500;
/// Rounds beyond the first buy for pods that spread over zones, which kube-scheduler deals out by itself.
const MOST_ROUNDS: usize = 3;
const MOST_CLAIMS: usize = 20;

/// What happened until all pods ran.
#[derive(Debug, Default)]
struct Seen {
    /// When each claim was made, in seconds.
    claims: BTreeMap<String, i64>,
    /// Pods that lost the node that they were bound to.
    moved: BTreeSet<String>,
}

impl Seen {
    fn look(&mut self, world: &World) {
        for (name, claim) in &world.claims {
            let made = claim.creation_timestamp().map_or(0, |time| time.0.as_second());
            self.claims.insert(name.clone(), made);
        }
        let moved = world.pods.values().filter(|pod| {
            let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            is_bound && pod.metadata.deletion_timestamp.is_some()
        });
        self.moved.extend(moved.map(kube::ResourceExt::name_any));
    }

    /// Claims of one round may differ by a second of the clock.
    fn rounds(&self) -> usize {
        let times: BTreeSet<i64> = self.claims.values().copied().collect();
        let gaps = times.iter().zip(times.iter().skip(1)).filter(|(one, next)| *next - *one > 1);
        usize::from(!times.is_empty()) + gaps.count()
    }
}

/// A Deployment; every fourth spreads over zones.
fn deployment(index: usize) -> Value {
    let name = format!("app-{index:02}");
    let (cpu, memory) = (100 + 150 * (index % 5), 256 << (index % 3));
    let requests = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    let mut pod = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "app:1", "resources": {"requests": requests}}],
    });
    if index.is_multiple_of(4) {
        pod["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": name}},
        }]);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": PODS / DEPLOYMENTS,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    })
}

fn running(world: &World) -> usize {
    (0..DEPLOYMENTS).map(|index| world.running(&format!("app-{index:02}"))).sum()
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_pods_that_come_over_seconds_are_planned_together() -> Result<()> {
    let mut stack = Stack::start().await?;
    stack.class("default", json!({"sim": {"registrationDelay": "2s"}})).await?;
    let disruption = json!({"consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]});
    stack.pool("default", json!({"spec": {"disruption": disruption}})).await?;
    stack.gate.until_used(&[("karpenter.sh", "nodepools/status", "patch")], PATIENCE).await?;
    let all: Vec<Value> = (0..DEPLOYMENTS).map(deployment).collect();
    stack.apply(json!({"apiVersion": "v1", "kind": "List", "items": all})).await?;
    let mut seen = Seen::default();
    let look = |world: &World| {
        seen.look(world);
        Ok(())
    };
    stack.until_and("all pods run", |world| running(world) == PODS, look).await?;
    ensure!(seen.moved.is_empty(), "pods were moved while others waited: {seen:?}");
    let (rounds, claims) = (seen.rounds(), seen.claims.len());
    ensure!(rounds <= MOST_ROUNDS && claims <= MOST_CLAIMS, "{claims} claims in {rounds} rounds: {seen:?}");
    stack.clear().await?;
    assert_eq!(stack.machines()?, [""; 0], "machines leaked");
    Ok(())
}
