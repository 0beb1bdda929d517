//! Controllers are killed with SIGKILL at their writes, again and again: the end is that of an undisturbed run, and no
//! machine leaks.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::stack::{Stack, World, holds, requirements};

/// Controllers that have nothing to do are silent for this long at least: nothing of theirs is renewed more often.
const QUIET: Duration = Duration::from_secs(20);

const PODS: usize = 12;
/// Pods of which the disruption budget lets no more be away.
const LEAST: usize = 10;

/// Nodes by type in the end, however that comes about: eight cores take five pods, two take one.
const GROWN: [(&str, usize); 1] = [("c-8x-amd64-linux", 3)];
const SAVED: [(&str, usize); 2] = [("c-2x-amd64-linux", 2), ("c-8x-amd64-linux", 2)];

fn is_disrupted(node: &k8s_openapi::api::core::v1::Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted")
}

/// All pods run, on just these nodes, and nothing is under way.
fn is_settled(world: &World, nodes: &[(&str, usize)]) -> bool {
    let stays = |claim: &kube::api::DynamicObject| claim.metadata.deletion_timestamp.is_none();
    world.running("web") == PODS
        && world.of_app("web").count() == PODS
        && world.claims.len() == world.nodes.len()
        && world.claims.values().all(|claim| stays(claim) && holds(claim, "Ready"))
        && !world.nodes.values().any(is_disrupted)
        && world.types().into_iter().eq(nodes.iter().copied())
}

/// Whether controllers may live, or are killed at their writes.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Live,
    Die,
}

async fn grow(stack: &mut Stack, fate: Fate) -> Result<()> {
    if fate == Fate::Die {
        stack.kill()?;
    }
    stack.class("default", json!({"sim": {"registrationDelay": "2s"}})).await?;
    let disruption = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    let template = json!({"spec": {"requirements": requirements(&["8"])}});
    stack.pool("default", json!({"spec": {"disruption": disruption, "template": template}})).await?;
    stack
        .create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                       "spec": {"minAvailable": LEAST, "selector": {"matchLabels": {"app": "web"}}}}))
        .await?;
    stack.deployment("web", PODS as i32, "1500m", json!({})).await?;
    let is_grown = |world: &World| is_settled(world, &GROWN);
    if fate == Fate::Die {
        let deaths = stack.die_until("all pods run", is_grown, |_| Ok(())).await?;
        ensure!(deaths >= 5, "only {deaths} controllers died: a scale-up has more writes");
    }
    stack.until("all pods run", is_grown).await
}

/// Small machines are allowed from now on: the node that is nearly empty does not pay any more.
async fn save(stack: &mut Stack, fate: Fate) -> Result<()> {
    if fate == Fate::Die {
        stack.kill()?;
    }
    let patch = json!({"spec": {"template": {"spec": {"requirements": requirements(&["2", "8"])}}}});
    stack.patch(("karpenter.sh/v1", "NodePool", "default"), patch).await?;
    let enough = |world: &World| {
        let ready = world.ready("web");
        ensure!(ready >= LEAST, "only {ready} pods are ready");
        Ok(())
    };
    let is_saved = |world: &World| is_settled(world, &SAVED);
    if fate == Fate::Die {
        let deaths = stack.die_until("it is settled", is_saved, enough).await?;
        ensure!(deaths >= 5, "only {deaths} controllers died: a consolidation has more writes");
    }
    stack.until_and("it is settled", is_saved, enough).await
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_pools_end_the_same_however_often_controllers_are_killed() -> Result<()> {
    let mut stack = Stack::start().await?;
    grow(&mut stack, Fate::Live).await?;
    save(&mut stack, Fate::Live).await?;
    stack.until_quiet_for(QUIET).await?;
    stack.clear().await?;
    assert_eq!(stack.machines()?, [""; 0], "machines leaked");
    grow(&mut stack, Fate::Die).await?;
    assert_eq!(stack.machines()?, stack.world.machines(), "every machine has its claim");
    save(&mut stack, Fate::Die).await?;
    assert_eq!(stack.machines()?, stack.world.machines(), "every machine has its claim");
    stack.until_quiet_for(QUIET).await?;
    stack.clear().await?;
    assert_eq!(stack.machines()?, [""; 0], "machines leaked");
    stack.gate.ensure_nothing_was_forbidden()
}
