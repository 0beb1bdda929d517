//! Constraints that a pod's volumes put on its node.
//!
//! Claims, volumes and classes are looked up by the caller; what is left is a list of demands.

use super::labels::{Labels, NodeFilter};
use super::node::Node;
use super::reason::Reason;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Separates the zones of a volume that lives in several.
const ZONE_SEPARATOR: &str = "__";

/// The requirements of one pod's volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeDemands {
    /// A reason that no node can cure, such as a missing claim.
    pub blocked: Option<String>,
    /// Whether a single-pod claim is in use by another pod.
    pub claim_in_use: bool,
    /// Whether a claim is bound to a volume that does not exist.
    pub volume_missing: bool,
    /// Node affinities of the bound volumes.
    pub reachable_from: Vec<NodeFilter>,
    /// Allowed topologies of the classes from which volumes would be made.
    pub provisionable_on: Vec<NodeFilter>,
    /// Zone and region labels of the bound volumes.
    pub zones: Vec<(String, Vec<String>)>,
}

impl VolumeDemands {
    /// Whether the volumes demand nothing.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the zone and region labels of a volume.
    pub fn add_zone_labels(&mut self, labels: &Labels) {
        for (key, value) in labels {
            if [ZONE, REGION, BETA_ZONE, BETA_REGION].contains(&key.as_str()) {
                let zones = value.split(ZONE_SEPARATOR).map(str::to_owned).collect();
                self.zones.push((key.clone(), zones));
            }
        }
    }

    /// Judges one node.
    pub fn check(&self, node: &Node) -> Result<(), Reason> {
        if self.claim_in_use {
            return Err(Reason::ClaimInUse);
        }
        let accepts = |filter: &NodeFilter| filter.matches(&node.name, &node.labels);
        if !self.reachable_from.iter().all(accepts) {
            return Err(Reason::VolumeNodeAffinity);
        }
        if !self.provisionable_on.iter().all(accepts) {
            return Err(Reason::VolumeUnavailable);
        }
        if self.volume_missing {
            return Err(Reason::VolumeMissing);
        }
        if !self.zones_fit(&node.labels) {
            return Err(Reason::VolumeZone);
        }
        Ok(())
    }

    fn zones_fit(&self, labels: &Labels) -> bool {
        let placed = [ZONE, REGION, BETA_ZONE, BETA_REGION].iter().any(|key| labels.contains_key(*key));
        // A node without any zone label belongs to a cluster of one zone.
        !placed
            || self.zones.iter().all(|(key, zones)| {
                let current = match key.as_str() {
                    BETA_ZONE => ZONE,
                    BETA_REGION => REGION,
                    other => other,
                };
                let value = labels.get(key).or_else(|| labels.get(current));
                value.is_some_and(|value| zones.contains(value))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fit::Resources;

    fn node(pairs: &[(&str, &str)]) -> Node {
        Node {
            name: "n".into(),
            labels: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Resources::default(),
            max_pods: 10,
        }
    }

    #[test]
    fn volumes_keep_pods_in_their_zones() {
        let mut demands = VolumeDemands::default();
        demands.add_zone_labels(&Labels::from([(BETA_ZONE.to_owned(), "a__b".to_owned())]));
        assert_eq!(demands.check(&node(&[(ZONE, "a")])), Ok(()));
        assert_eq!(demands.check(&node(&[(ZONE, "c")])), Err(Reason::VolumeZone));
        assert_eq!(demands.check(&node(&[])), Ok(()), "one zone, no labels");
    }
}
