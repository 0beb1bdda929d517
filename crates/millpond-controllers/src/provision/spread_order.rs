//! Whether pods with topology spread constraints can be nominated in advance.
//!
//! While kube-scheduler filters a node, it counts the pods nominated to that node as running, for topology spread as
//! well; pods nominated to other nodes do not count. Thirty pods of a Deployment that are nominated in each of three
//! zones are thirty too many in every zone: no pod is bound, and every attempt clears a nomination. So pods that depend
//! on each other's order are not nominated; the scheduler spreads them over the domains by itself, and pods that it
//! cannot tell apart swap places (`nominations.rs`). A pod is nominated if its domain takes all pods planned there in
//! any order.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use millpond_runtime::meta::{Key, has_ended, node_name};

use crate::cluster::Cluster;

/// Whether a pod has a rule about how pods are spread that the scheduler does not give way on.
pub(crate) fn spreads(pod: &Pod) -> bool {
    hard(pod).next().is_some()
}

fn hard(pod: &Pod) -> impl Iterator<Item = &TopologySpreadConstraint> {
    let all = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_ref());
    all.into_iter().flatten().filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule")
}

/// Which pods have to take turns, as far as it was asked.
pub(super) struct SpreadOrder<'c> {
    cluster: &'c Cluster,
    /// Pods that were promised one node.
    promised: &'c [Key],
    /// By namespace and rule.
    known: HashMap<(String, String), bool>,
}

impl<'c> SpreadOrder<'c> {
    /// For pods that were promised one node.
    pub(super) fn new(cluster: &'c Cluster, promised: &'c [Key]) -> Self {
        Self { cluster, promised, known: HashMap::new() }
    }

    /// Whether the scheduler can be told of the pod's node, and of all others of its spread that were promised the same.
    pub(super) fn may_nominate(&mut self, pod: &Pod, node: &str) -> bool {
        hard(pod).all(|constraint| self.holds_in_any_order(pod, node, constraint))
    }

    fn holds_in_any_order(&mut self, pod: &Pod, node: &str, constraint: &TopologySpreadConstraint) -> bool {
        let selector = full_selector(constraint, pod);
        let namespace = pod.namespace().unwrap_or_default();
        let rule = format!("{} {} {selector:?}", constraint.topology_key, constraint.max_skew);
        let key = (namespace, rule);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let holds = Selector::try_from(selector).is_ok_and(|selector| {
            let promised = self.promised(&key.0, &selector);
            // Most often that is enough to know, and cheap.
            if promised > constraint.max_skew {
                return false;
            }
            let bound = self.bound(&key.0, &constraint.topology_key, &selector);
            let here = self.domain(node, &constraint.topology_key).and_then(|domain| bound.get(&domain).copied());
            fits_in_any_order(bound.values().copied(), here.unwrap_or(0), promised, constraint)
        });
        self.known.insert(key, holds);
        holds
    }

    /// Pods that a rule selects, and that were promised the node.
    fn promised(&self, namespace: &str, selector: &Selector) -> i32 {
        let pods = self.promised.iter().filter(|pod| pod.namespace == namespace);
        let pods = pods.filter_map(|pod| self.cluster.pods.get(pod));
        pods.map(|pod| i32::from(selector.matches(pod.labels()))).sum()
    }

    /// Pods that a rule selects and that are bound, by domain.
    fn bound(&self, namespace: &str, topology_key: &str, selector: &Selector) -> HashMap<String, i32> {
        let nodes = self.cluster.nodes.list();
        let domains = nodes.iter().filter_map(|node| node.labels().get(topology_key).cloned());
        let mut counts: HashMap<String, i32> = domains.map(|domain| (domain, 0)).collect();
        for pod in self.cluster.pods.list_in(namespace) {
            if !has_ended(&pod)
                && selector.matches(pod.labels())
                && let Some(domain) = node_name(&pod).and_then(|node| self.domain(node, topology_key))
            {
                *counts.entry(domain).or_default() += 1;
            }
        }
        counts
    }

    fn domain(&self, node: &str, topology_key: &str) -> Option<String> {
        self.cluster.nodes.get(&Key::new("", node))?.labels().get(topology_key).cloned()
    }
}

/// Whether all pods planned onto one node may be bound now, in any order and whichever other pods are bound before
/// them.
fn fits_in_any_order(
    bound: impl Iterator<Item = i32> + Clone,
    here: i32,
    promised: i32,
    rule: &TopologySpreadConstraint,
) -> bool {
    let few = bound.clone().count() < usize::try_from(rule.min_domains.unwrap_or(1)).unwrap_or(0);
    let least = if few { 0 } else { bound.min().unwrap_or(0) };
    here + promised - least <= rule.max_skew
}

/// What a rule selects, with the labels that it takes from the pod itself.
fn full_selector(constraint: &TopologySpreadConstraint, pod: &Pod) -> LabelSelector {
    let mut selector = constraint.label_selector.clone().unwrap_or_default();
    for key in constraint.match_label_keys.iter().flatten() {
        if let Some(value) = pod.labels().get(key) {
            let same = LabelSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: Some(vec![value.clone()]),
            };
            selector.match_expressions.get_or_insert_default().push(same);
        }
    }
    selector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(bound: &[i32], promised: i32, max_skew: i32, min_domains: Option<i32>) -> bool {
        let rule = TopologySpreadConstraint { max_skew, min_domains, ..TopologySpreadConstraint::default() };
        fits_in_any_order(bound.iter().copied(), bound[0], promised, &rule)
    }

    #[test]
    fn one_pod_more_may_come_where_there_are_fewest() {
        assert!(fits(&[0, 0, 0], 1, 1, None));
        assert!(fits(&[4, 5, 4], 1, 1, None));
        assert!(!fits(&[5, 4, 4], 1, 1, None), "it has to wait for the other domains");
        assert!(!fits(&[0, 0], 2, 1, None));
        assert!(fits(&[0, 0], 2, 2, None));
    }

    #[test]
    fn too_few_domains_count_as_an_empty_one() {
        assert!(fits(&[1, 1], 1, 1, None));
        assert!(!fits(&[1, 1], 1, 1, Some(3)));
    }
}
