//! Why nodes of node groups stay, or that they go: in the words of the cluster-autoscaler, by whose rules they do. Pure.

use std::collections::BTreeMap;

use millpond_api::capi::names;
use millpond_plan::model::Snapshot;
use millpond_state::groups::GroupKind;
use millpond_state::{Group, GroupMachine};

use super::unneeded::{self, NodeNeed};

/// Annotation of a group: how much of a node may be asked for when it goes.
const THRESHOLD: &str = "cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold";

/// What becomes of a node of a node group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupNodeStanding {
    /// Whether it goes as soon as it has been unneeded for long enough.
    pub is_unneeded: bool,
    /// Why, in one sentence.
    pub why: String,
}

/// The standing of every running node of these groups, by name.
pub fn standings(snapshot: &Snapshot, groups: &[Group<'_>]) -> BTreeMap<String, GroupNodeStanding> {
    let timings = groups.iter().map(|group| (group.of.to_string(), group.timing)).collect();
    let mut needs = unneeded::needs(snapshot.clone(), &timings);
    let mut standings = BTreeMap::new();
    for group in groups {
        let closed = closed(group);
        for name in group.machines.iter().filter_map(GroupMachine::node_name) {
            let Some(need) = needs.remove(name) else { continue };
            let is_unneeded = closed.is_none() && matches!(need, NodeNeed::Unneeded(_));
            let why = closed.clone().unwrap_or_else(|| sentence(&need));
            standings.insert(name.to_owned(), GroupNodeStanding { is_unneeded, why });
        }
    }
    standings
}

/// Why no node of a group goes, whatever its pods ask for.
fn closed(group: &Group<'_>) -> Option<String> {
    if let Some(problem) = &group.problem {
        return Some(format!("its node group is not scaled: {problem}"));
    }
    let Some(scaled) = &group.scaled else {
        return Some(format!("its node group is not scaled: it has no annotation `{}`", names::MIN_SIZE));
    };
    if group.of.kind == GroupKind::MachinePool {
        return Some("its node group is a MachinePool, which only grows".to_owned());
    }
    if let Some(rests) = group.resting() {
        return Some(format!("its node group rests: {rests}"));
    }
    if group.is_rolling() {
        return Some("its node group is rolled out just now".to_owned());
    }
    let is_least = i64::try_from(group.replicas).unwrap_or(i64::MAX) <= scaled.min;
    is_least.then(|| format!("its node group has its least size (`{}: {}`)", names::MIN_SIZE, scaled.min))
}

fn sentence(need: &NodeNeed) -> String {
    match need {
        NodeNeed::Unneeded(node) => {
            let pods = match node.pods {
                0 => "it has no pods that need another place".to_owned(),
                1 => "its pod has room elsewhere".to_owned(),
                pods => format!("its {pods} pods have room elsewhere"),
            };
            format!("it is unneeded, {pods}; it goes when it has been so for {} s", node.after_s)
        }
        NodeNeed::Used { share_milli, most_milli } => {
            let percent = |milli: &i64| *milli as f64 / 10.0;
            format!(
                "its pods ask for {:.1}% of it, and only below {:.1}% it may go (`{THRESHOLD}`)",
                percent(share_milli),
                percent(most_milli)
            )
        }
        NodeNeed::Kept(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use millpond_plan::testing::Cluster;
    use millpond_state::groups::Timing;

    use super::*;

    /// A node that is busy, one that is not, and one whose pod fits nowhere else.
    #[test]
    fn nodes_are_told_the_rules_of_the_cluster_autoscaler() {
        let snapshot = Cluster::new()
            .machine("small", "cpu=4 memory=8Gi", |machine| machine.price(50))
            .pool("default/w", |pool| pool.edit(|pool| pool.disruption.consolidate_after = None))
            .node("busy", "small", |node| node.pool("default/w"))
            .node("idle", "small", |node| node.pool("default/w"))
            .node("kept", "small", |node| node.pool("default/w"))
            .pod("large", "cpu=3", |pod| pod.on("busy"))
            .pod("little", "cpu=100m", |pod| pod.on("idle"))
            .pod("alone", "cpu=100m", |pod| pod.on("kept").needs("kubernetes.io/hostname in kept"))
            .snapshot();
        let timings = [("default/w".to_owned(), Timing::default())].into();
        let needs = unneeded::needs(snapshot, &timings);
        let said: Vec<String> = needs.values().map(sentence).collect();
        assert_eq!(said[0], format!("its pods ask for 75.0% of it, and only below 50.0% it may go (`{THRESHOLD}`)"));
        assert_eq!(said[1], "it is unneeded, its pod has room elsewhere; it goes when it has been so for 600 s");
        assert_eq!(said[2], "its pods do not all fit on other nodes");
    }
}
