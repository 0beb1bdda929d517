//! Everything once: for the reference, which tells of every family and its labels, and for tests.

use std::time::Duration;

use kube::api::ObjectMeta;
use millpond_api::karpenter::NodeClaimSpec;
use millpond_api::labels;
use millpond_plan::plan::Report;
use millpond_state::groups::{GroupKind, GroupRef};

use super::{Metrics, PROVISIONER, created_for};
use crate::kinds::NodeClaim;

/// Counts everything once.
pub(super) fn count(metrics: &Metrics) {
    let claim = claim();
    metrics.claim_created(&claim, created_for::PODS);
    metrics.claim_terminated(&claim);
    metrics.claim_disrupted(&claim, "Underutilized");
    metrics.node_created(&claim);
    metrics.node_terminated(&claim);
    metrics.node_drained(&claim);
    metrics.eviction_answered(429);
    metrics.disruption_decided("Underutilized", 2, 1);
    metrics.disruption_decided("Drifted", 1, 0);
    metrics.planned(PROVISIONER, Duration::from_millis(7));
    metrics.plan_made(&Report::default());
    metrics.pending_pods(3, 1);
    metrics.pod_bound(Duration::from_secs(2));
    metrics.pod_started(Duration::from_secs(3));
    metrics.limit_refused("NodePool", "general", 4);
    let group = GroupRef::new(GroupKind::MachineDeployment, "default", "workers");
    metrics.group_scaled_up(&group, 2);
    metrics.group_scaled_down(&group, 1, "unneeded");
    metrics.machine_failed(&group, "Quota");
    metrics.provider_called("sim", "Create", Duration::from_millis(20), Some("InsufficientCapacityError"));
}

fn claim() -> NodeClaim {
    let labels = [(labels::NODE_POOL, "general"), (labels::CAPACITY_TYPE, "spot"), (labels::ZONE, "a")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let metadata = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
    NodeClaim::new(metadata, NodeClaimSpec::default())
}
