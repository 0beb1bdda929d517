//! The real kube-scheduler as the judge of plans.
//!
//! For every scenario: `millpond plan` says which nodes to buy and which pod goes where. Those nodes are made on a
//! real API server, each planned pod is told its node through `status.nominatedNodeName`, and kube-scheduler
//! decides. It must bind every placed pod to the node that the plan names, and leave every other one pending.
//!
//! | Room | Holds |
//! |---|---|
//! | `scenario` | a scenario's files, and what `millpond plan` makes of them |
//! | `benchmark` | Karpenter's benchmark as scenarios: its five groups apart and together |
//! | `order` | in which order pods are let in, so that spreads grow evenly |
//! | `cluster` | the real cluster: making, letting in, waiting, clearing away |

mod benchmark;
mod cluster;
mod order;
mod scenario;

use anyhow::Result;

use cluster::Cluster;
use scenario::Scenario;

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_scheduler_binds_every_pod_as_planned() -> Result<()> {
    let mut scenarios = scenario::all()?;
    let folder = tempfile::tempdir()?;
    scenarios.extend(benchmark::scenarios(folder.path())?);
    assert!(scenarios.len() >= 20, "only {} scenarios", scenarios.len());

    let mut cluster = Cluster::start().await?;
    let mut failures = Vec::new();
    for scenario in &scenarios {
        let complaints = match judge(&mut cluster, scenario).await {
            Ok(complaints) => complaints,
            Err(error) => vec![format!("{error:#}")],
        };
        if !complaints.is_empty() {
            failures.push(format!("{}:\n  {}", scenario.name, complaints.join("\n  ")));
        }
        cluster.clear().await?;
    }
    assert!(failures.is_empty(), "{} of {} fail:\n{}", failures.len(), scenarios.len(), failures.join("\n"));
    Ok(())
}

/// What kube-scheduler did otherwise; nothing if it agrees with the plan.
async fn judge(cluster: &mut Cluster, scenario: &Scenario) -> Result<Vec<String>> {
    let plan = scenario.plan()?;
    let mut complaints = scenario.surprises(&plan);
    cluster.make(scenario, &plan).await?;
    for pod in order::order(scenario, &plan)? {
        cluster.let_in(&pod, Some(&plan.placements[&pod])).await?;
    }
    for (pod, node) in &plan.placements {
        let bound = cluster.bound(pod).await?;
        if bound != *node {
            complaints.push(format!("{pod} is planned for {node} and was bound to {bound}"));
        }
    }
    for pod in &plan.unplaced {
        cluster.let_in(pod, None).await?;
        if let Some(node) = cluster.node_of(pod) {
            complaints.push(format!("{pod} is impossible by the plan and was bound to {node}"));
        }
    }
    complaints.extend(cluster.missing_daemons(scenario, &plan).await?);
    Ok(complaints)
}
