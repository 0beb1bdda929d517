//! Topology spread constraints, hard and soft.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use super::labels::{Labels, Requirement, Selector};
use super::node::Node;
use super::reason::Reason;
use super::shape::Shape;
use super::snapshot::{Slot, Snapshot, Topology};
use super::taints;

/// The label that makes every node its own domain.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// One spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constraint {
    key: String,
    max_skew: i64,
    min_domains: i64,
    selector: Selector,
    honor_affinity: bool,
    honor_taints: bool,
}

impl Constraint {
    /// Compiles the constraints of a pod with these labels into hard and soft ones.
    pub fn compile(constraints: &[TopologySpreadConstraint], labels: &Labels) -> (Vec<Self>, Vec<Self>) {
        let (hard, soft): (Vec<_>, Vec<_>) =
            constraints.iter().partition(|one| one.when_unsatisfiable == "DoNotSchedule");
        let compile =
            |list: Vec<&TopologySpreadConstraint>| list.into_iter().map(|one| Self::compile_one(one, labels)).collect();
        (compile(hard), compile(soft))
    }

    /// A soft constraint of the cluster's defaults.
    pub fn soft_default(key: &str, max_skew: i64, selector: Selector) -> Self {
        Self { key: key.to_owned(), max_skew, min_domains: 1, selector, honor_affinity: true, honor_taints: false }
    }

    /// The label whose value makes a domain.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn compile_one(constraint: &TopologySpreadConstraint, labels: &Labels) -> Self {
        let same = constraint
            .match_label_keys
            .iter()
            .flatten()
            .filter_map(|key| Some(Requirement::equals(key, labels.get(key)?)));
        Self {
            key: constraint.topology_key.clone(),
            max_skew: i64::from(constraint.max_skew),
            min_domains: i64::from(constraint.min_domains.unwrap_or(1)),
            selector: Selector::compile(constraint.label_selector.as_ref()).and(same),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// Whether the pods of a node count.
    fn includes(&self, shape: &Shape, node: &Node) -> bool {
        (!self.honor_affinity || shape.node_filter.matches(&node.name, &node.labels))
            && (!self.honor_taints || !taints::is_kept_away(&node.taints, &shape.tolerations))
    }
}

#[derive(Clone, Debug)]
struct HardState<'a> {
    constraint: &'a Constraint,
    topology: &'a Topology,
    /// Matching pods per domain; `None` for domains without an eligible node.
    counts: Vec<Option<i64>>,
    fewest: i64,
    domains: i64,
    selects_itself: bool,
}

impl HardState<'_> {
    fn measure(&mut self) {
        let present = || self.counts.iter().flatten();
        self.fewest = present().min().copied().unwrap_or(i64::from(i32::MAX));
        self.domains = present().count() as i64;
    }

    fn check(&self, slot: Slot) -> Result<(), Reason> {
        let domain = self.topology.domain(slot).ok_or(Reason::SpreadLabelMissing)?;
        let fewest = if self.domains < self.constraint.min_domains { 0 } else { self.fewest };
        let here = self.counts[domain].unwrap_or_default();
        let skew = here + i64::from(self.selects_itself) - fewest;
        if skew > self.constraint.max_skew { Err(Reason::Spread) } else { Ok(()) }
    }
}

/// The required spread constraints of one incoming pod, compiled for a cycle.
#[derive(Clone, Debug)]
pub struct SpreadState<'a> {
    snapshot: &'a Snapshot,
    shape: &'a Shape,
    constraints: Vec<HardState<'a>>,
}

impl<'a> SpreadState<'a> {
    /// Counts the running pods that matter to a pod of this shape.
    pub fn prepare(snapshot: &'a Snapshot, shape: &'a Shape) -> Self {
        let mut state = Self {
            snapshot,
            shape,
            constraints: shape
                .hard_spread
                .iter()
                .map(|constraint| {
                    let topology = snapshot.topology(&constraint.key);
                    HardState {
                        constraint,
                        topology,
                        counts: vec![None; topology.len()],
                        fewest: 0,
                        domains: 0,
                        selects_itself: constraint.selector.matches(&shape.labels),
                    }
                })
                .collect(),
        };
        if state.constraints.is_empty() {
            return state;
        }
        let pods: Vec<Vec<i64>> = shape
            .hard_spread
            .iter()
            .map(|constraint| snapshot.count_matching(&shape.namespace, &constraint.selector))
            .collect();
        for slot in snapshot.slots() {
            if !state.has_all_labels(slot) {
                continue;
            }
            for (one, pods) in state.constraints.iter_mut().zip(&pods) {
                if one.constraint.includes(shape, snapshot.node(slot))
                    && let Some(domain) = one.topology.domain(slot)
                {
                    *one.counts[domain].get_or_insert(0) += pods[slot];
                }
            }
        }
        state.constraints.iter_mut().for_each(HardState::measure);
        state
    }

    /// Whether there is no hard constraint.
    pub fn is_idle(&self) -> bool {
        self.constraints.is_empty()
    }

    /// Counts `amount` pods of a shape more (or less) on a slot.
    pub fn update(&mut self, running: &Shape, slot: Slot, amount: i64) {
        if running.namespace != self.shape.namespace || !self.has_all_labels(slot) {
            return;
        }
        let node = self.snapshot.node(slot);
        for one in &mut self.constraints {
            if one.constraint.selector.matches(&running.labels)
                && one.constraint.includes(self.shape, node)
                && let Some(domain) = one.topology.domain(slot)
            {
                *one.counts[domain].get_or_insert(0) += amount;
                one.measure();
            }
        }
    }

    /// Judges one node.
    pub fn check(&self, slot: Slot) -> Result<(), Reason> {
        self.constraints.iter().try_for_each(|one| one.check(slot))
    }

    fn has_all_labels(&self, slot: Slot) -> bool {
        self.constraints.iter().all(|one| one.topology.domain(slot).is_some())
    }
}

struct SoftState<'a> {
    constraint: &'a Constraint,
    topology: &'a Topology,
    /// Matching pods per slot.
    on_slot: std::rc::Rc<Vec<i64>>,
    /// Matching pods per domain, for domains with a candidate.
    in_domain: Vec<Option<i64>>,
    weight: f64,
}

/// The scores of feasible nodes by preferred spread constraints.
pub struct SpreadScores<'a> {
    constraints: Vec<SoftState<'a>>,
    /// Whether nodes that lack a label are left out.
    labels_required: bool,
}

impl<'a> SpreadScores<'a> {
    /// Counts the running pods; `None` without soft constraints.
    pub fn prepare(snapshot: &'a Snapshot, shape: &'a Shape, candidates: &[Slot]) -> Option<Self> {
        if shape.soft_spread.is_empty() {
            return None;
        }
        let mut scores = Self { constraints: Self::fresh(snapshot, shape), labels_required: !shape.spread_is_default };
        let judged: Vec<Slot> = candidates.iter().copied().filter(|slot| !scores.ignores(*slot)).collect();
        for one in &mut scores.constraints {
            let size = if one.constraint.key == HOSTNAME { judged.len() } else { one.open_domains(&judged) };
            one.weight = (size as f64 + 2.0).ln();
        }
        for slot in snapshot.slots() {
            if scores.labels_required && !scores.has_all_labels(slot) {
                continue;
            }
            for one in scores.constraints.iter_mut().filter(|one| one.constraint.key != HOSTNAME) {
                one.count(shape, snapshot.node(slot), slot);
            }
        }
        Some(scores)
    }

    fn fresh(snapshot: &'a Snapshot, shape: &'a Shape) -> Vec<SoftState<'a>> {
        let mut states: Vec<SoftState<'a>> = Vec::new();
        for constraint in &shape.soft_spread {
            let topology = snapshot.topology(&constraint.key);
            let on_slot = states.iter().find(|state| state.constraint.selector == constraint.selector).map_or_else(
                || snapshot.count_matching(&shape.namespace, &constraint.selector).into(),
                |state| std::rc::Rc::clone(&state.on_slot),
            );
            let in_domain = vec![None; topology.len()];
            states.push(SoftState { constraint, topology, on_slot, in_domain, weight: 0.0 });
        }
        states
    }

    /// Whether a node is left out of the comparison.
    pub fn ignores(&self, slot: Slot) -> bool {
        self.labels_required && !self.has_all_labels(slot)
    }

    /// The raw score of a node: fewer matching pods nearby are better.
    pub fn raw(&self, slot: Slot) -> i64 {
        if self.ignores(slot) {
            return 0;
        }
        let mut score = 0.0;
        for one in &self.constraints {
            let Some(domain) = one.topology.domain(slot) else {
                continue;
            };
            let pods = if one.constraint.key == HOSTNAME {
                one.on_slot[slot]
            } else {
                one.in_domain[domain].unwrap_or_default()
            };
            score += pods as f64 * one.weight + (one.constraint.max_skew - 1) as f64;
        }
        score.round() as i64
    }

    fn has_all_labels(&self, slot: Slot) -> bool {
        self.constraints.iter().all(|one| one.topology.domain(slot).is_some())
    }
}

impl SoftState<'_> {
    /// Opens the domains of the candidates and returns their number.
    fn open_domains(&mut self, candidates: &[Slot]) -> usize {
        let mut missing = 0;
        for slot in candidates {
            match self.topology.domain(*slot) {
                Some(domain) => self.in_domain[domain] = Some(0),
                // Nodes without the label share one nameless domain.
                None => missing = 1,
            }
        }
        self.in_domain.iter().flatten().count() + missing
    }

    fn count(&mut self, shape: &Shape, node: &Node, slot: Slot) {
        let pods = self.on_slot[slot];
        if pods > 0
            && let Some(domain) = self.topology.domain(slot)
            && let Some(total) = &mut self.in_domain[domain]
            && self.constraint.includes(shape, node)
        {
            *total += pods;
        }
    }
}
