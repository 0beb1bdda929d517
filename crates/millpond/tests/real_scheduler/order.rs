//! The order in which pods are let in.
//!
//! kube-scheduler binds one pod after the other, and a spread constraint looks at the moment: the second of two pods
//! of one zone is refused while another zone is empty, though both are fine in the end. So pods are let in such that
//! everything that is counted grows evenly, and pods that need others come after those. Only the order is decided
//! here; whether a pod fits is kube-scheduler's business.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::scenario::{Plan, Scenario, pod_name};

/// Planned pods, first to last.
pub(crate) fn order(scenario: &Scenario, plan: &Plan) -> Result<Vec<String>> {
    let nodes = scenario.of_kind("Node").chain(&plan.nodes).map(typed::<Node>).collect::<Result<Vec<_>>>()?;
    let nodes: BTreeMap<String, BTreeMap<String, String>> = nodes
        .into_iter()
        .map(|node| (node.metadata.name.unwrap_or_default(), node.metadata.labels.unwrap_or_default()))
        .collect();
    let mut tally = Tally { nodes, groups: BTreeMap::new() };
    let mut waiting = Vec::new();
    let mut running = Vec::new();
    for object in scenario.of_kind("Pod") {
        let pod = Candidate::new(object, plan)?;
        for constraint in &pod.spreads {
            tally.add_group(&pod, constraint)?;
        }
        if plan.placements.contains_key(&pod.name) { waiting.push(pod) } else { running.push(pod) }
    }
    for pod in running {
        tally.count(&pod);
    }
    let mut ordered = Vec::new();
    while let Some(next) = (0..waiting.len()).min_by_key(|index| tally.urgency(&waiting[*index])) {
        let pod = waiting.remove(next);
        tally.count(&pod);
        ordered.push(pod.name);
    }
    Ok(ordered)
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T> {
    serde_json::from_value(object.clone()).with_context(|| format!("read {}", object["metadata"]["name"]))
}

/// What matters about a pod.
struct Candidate {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    node: Option<String>,
    priority: i32,
    spreads: Vec<TopologySpreadConstraint>,
    needs_others: bool,
}

impl Candidate {
    fn new(object: &Value, plan: &Plan) -> Result<Self> {
        let name = pod_name(object);
        let pod: Pod = typed(object)?;
        let spec = pod.spec.context("a pod without a spec")?;
        let labels = pod.metadata.labels.unwrap_or_default();
        let affinity = spec.affinity.and_then(|affinity| affinity.pod_affinity);
        let terms = affinity.and_then(|terms| terms.required_during_scheduling_ignored_during_execution);
        let needs_others = terms.unwrap_or_default().iter().any(|term| !selects(term, &labels));
        Ok(Self {
            namespace: pod.metadata.namespace.unwrap_or_else(|| "default".into()),
            node: spec.node_name.or_else(|| plan.placements.get(&name).cloned()),
            priority: spec.priority.unwrap_or_default(),
            spreads: spec.topology_spread_constraints.unwrap_or_default(),
            needs_others,
            labels,
            name,
        })
    }
}

fn selects(term: &PodAffinityTerm, labels: &BTreeMap<String, String>) -> bool {
    let selector = term.label_selector.clone().and_then(|selector| Selector::try_from(selector).ok());
    selector.is_some_and(|selector| selector.matches(labels))
}

/// Pods of a namespace that a selector chooses, by the domains of a label.
struct Group {
    selector: Selector,
    counts: BTreeMap<String, i32>,
}

/// Namespace, topology key, selector: what a constraint counts.
type GroupKey = (String, String, String);

struct Tally {
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    groups: BTreeMap<GroupKey, Group>,
}

impl Tally {
    fn add_group(&mut self, pod: &Candidate, constraint: &TopologySpreadConstraint) -> Result<()> {
        let selector = Selector::try_from(selector_of(constraint, &pod.labels))?;
        let domains: BTreeSet<&String> =
            self.nodes.values().filter_map(|labels| labels.get(&constraint.topology_key)).collect();
        let counts = domains.into_iter().map(|domain| (domain.clone(), 0)).collect();
        let key = (pod.namespace.clone(), constraint.topology_key.clone(), selector.to_string());
        self.groups.entry(key).or_insert(Group { selector, counts });
        Ok(())
    }

    fn count(&mut self, pod: &Candidate) {
        let Some(labels) = pod.node.as_ref().and_then(|node| self.nodes.get(node)) else { return };
        for ((namespace, key, _), group) in &mut self.groups {
            if *namespace == pod.namespace
                && group.selector.matches(&pod.labels)
                && let Some(domain) = labels.get(key)
            {
                *group.counts.entry(domain.clone()).or_default() += 1;
            }
        }
    }

    /// The least comes first: pods without affinity to others, higher priority, pods whose own constraints have room
    /// for them now, pods that fill up the domains that are behind.
    fn urgency<'a>(&self, pod: &'a Candidate) -> (bool, i32, bool, i32, &'a str) {
        let labels = pod.node.as_ref().and_then(|node| self.nodes.get(node));
        let ahead = self.groups.iter().filter_map(|((namespace, key, _), group)| {
            let counted = *namespace == pod.namespace && group.selector.matches(&pod.labels);
            let domain = counted.then(|| labels?.get(key)).flatten()?;
            Some(group.counts.get(domain)? - group.counts.values().min()?)
        });
        (pod.needs_others, -pod.priority, self.must_wait(pod), ahead.max().unwrap_or_default(), &pod.name)
    }

    /// Whether one of the pod's own constraints would be broken if it came now.
    fn must_wait(&self, pod: &Candidate) -> bool {
        let Some(labels) = pod.node.as_ref().and_then(|node| self.nodes.get(node)) else { return false };
        pod.spreads.iter().any(|constraint| {
            let Ok(selector) = Selector::try_from(selector_of(constraint, &pod.labels)) else { return false };
            let key = (pod.namespace.clone(), constraint.topology_key.clone(), selector.to_string());
            let (Some(group), Some(domain)) = (self.groups.get(&key), labels.get(&constraint.topology_key)) else {
                return false;
            };
            let least = group.counts.values().min().copied().unwrap_or_default();
            let there = group.counts.get(domain).copied().unwrap_or_default();
            there + i32::from(selector.matches(&pod.labels)) - least > constraint.max_skew
        })
    }
}

/// The selector of a constraint, narrowed by `matchLabelKeys`.
fn selector_of(constraint: &TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> LabelSelector {
    let mut selector = constraint.label_selector.clone().unwrap_or_default();
    for key in constraint.match_label_keys.iter().flatten() {
        if let Some(value) = labels.get(key) {
            selector.match_labels.get_or_insert_default().insert(key.clone(), value.clone());
        }
    }
    selector
}
