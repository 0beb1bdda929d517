//! Filters and scores the nodes of a snapshot for one pod.

use super::affinity::AffinityState;
use super::node::Node;
use super::reason::Reason;
use super::shape::Shape;
use super::snapshot::{Interned, PodEntry, Slot, Snapshot, Usage};
use super::spread::SpreadState;
use super::taints;
use super::volumes::VolumeDemands;

/// Why a node fails the filters for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterFailure {
    /// The reasons that the first failing rule gave.
    pub reasons: Vec<Reason>,
    /// Whether removing pods from the node could help; kube-scheduler's Unschedulable, as opposed to
    /// UnschedulableAndUnresolvable.
    pub resolvable: bool,
}

impl FilterFailure {
    fn resolvable(reason: Reason) -> Self {
        Self { reasons: vec![reason], resolvable: true }
    }

    fn final_(reason: Reason) -> Self {
        Self { reasons: vec![reason], resolvable: false }
    }
}

/// What is the same for all nodes while one pod is scheduled.
pub struct Cycle<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// The pod's uid; its own nomination does not stand in its way.
    pub key: &'a str,
    /// The properties of the pod that the rules use.
    pub pod: &'a Interned,
    /// The requirements of its volumes.
    pub volumes: &'a VolumeDemands,
    spread: SpreadState<'a>,
    affinity: AffinityState<'a>,
}

/// A node as it would be after some pods came or left; for nominations and for preemption.
#[derive(Clone)]
pub struct Trial<'a> {
    slot: Slot,
    usage: Usage,
    spread: SpreadState<'a>,
    affinity: AffinityState<'a>,
}

impl<'a> Trial<'a> {
    /// Counts a pod as present.
    pub fn add(&mut self, entry: &'a PodEntry) {
        let shape = &entry.shape.shape;
        self.usage.add(shape);
        self.spread.update(shape, self.slot, 1);
        self.affinity.update(shape, self.slot, 1);
    }

    /// Counts a pod as gone.
    pub fn remove(&mut self, entry: &'a PodEntry) {
        let shape = &entry.shape.shape;
        self.usage.remove(shape);
        // Spread does not count pods that are on their way out already.
        if !entry.leaving {
            self.spread.update(shape, self.slot, -1);
        }
        self.affinity.update(shape, self.slot, -1);
    }

    /// Counts a pod as present again after [`Self::remove`].
    pub fn restore(&mut self, entry: &'a PodEntry) {
        let shape = &entry.shape.shape;
        self.usage.add(shape);
        if !entry.leaving {
            self.spread.update(shape, self.slot, 1);
        }
        self.affinity.update(shape, self.slot, 1);
    }
}

impl<'a> Cycle<'a> {
    /// Computes what holds for all nodes.
    pub fn prepare(snapshot: &'a Snapshot, key: &'a str, pod: &'a Interned, volumes: &'a VolumeDemands) -> Self {
        Self {
            snapshot,
            key,
            pod,
            volumes,
            spread: SpreadState::prepare(snapshot, &pod.shape),
            affinity: AffinityState::prepare(snapshot, &pod.shape),
        }
    }

    /// The pod's shape.
    pub fn shape(&self) -> &'a Shape {
        &self.pod.shape
    }

    /// Judges a node, with the pods that are expected there and without them.
    pub fn check(&self, slot: Slot) -> Result<(), FilterFailure> {
        self.check_trial(&self.trial(slot))
    }

    /// Like [`Self::check`], with a known result of [`check_local`] for the node.
    pub fn check_with_local(&self, slot: Slot, local: &Result<(), FilterFailure>) -> Result<(), FilterFailure> {
        if self.has_nominated_pods(slot) {
            return self.check(slot);
        }
        local.clone()?;
        check_topology(slot, &self.spread, &self.affinity)
    }

    /// Whether the answer for a node depends on that node alone.
    pub fn is_local(&self) -> bool {
        self.spread.is_idle() && self.affinity.is_idle()
    }

    /// A node as it is.
    pub fn trial(&self, slot: Slot) -> Trial<'a> {
        Trial {
            slot,
            usage: self.snapshot.state(slot).usage.clone(),
            spread: self.spread.clone(),
            affinity: self.affinity.clone(),
        }
    }

    /// Filters a node as a trial left it, with and without the pods nominated to it.
    pub fn check_trial(&self, trial: &Trial<'a>) -> Result<(), FilterFailure> {
        if self.has_nominated_pods(trial.slot) {
            let mut with_nominated = trial.clone();
            for nominated in self.nominated_pods(trial.slot) {
                with_nominated.add(nominated);
            }
            self.check_once(&with_nominated)?;
        }
        self.check_once(trial)
    }

    fn check_once(&self, trial: &Trial<'a>) -> Result<(), FilterFailure> {
        check_local(self.shape(), self.volumes, self.snapshot.node(trial.slot), &trial.usage)?;
        check_topology(trial.slot, &trial.spread, &trial.affinity)
    }

    /// Pods nominated to a node whose priority is at least that of this pod.
    fn nominated_pods(&self, slot: Slot) -> impl Iterator<Item = &'a PodEntry> {
        self.snapshot
            .state(slot)
            .nominated
            .iter()
            .filter(|key| &***key != self.key)
            .filter_map(|key| self.snapshot.nomination(key))
            .filter(|entry| entry.shape.shape.priority >= self.pod.shape.priority)
    }

    /// Whether such pods exist.
    pub fn has_nominated_pods(&self, slot: Slot) -> bool {
        !self.snapshot.state(slot).nominated.is_empty() && self.nominated_pods(slot).next().is_some()
    }
}

/// The queueing hint: whether a new or changed node may make a pending pod schedulable that is not nominated to it, as
/// far as the node alone can show.
pub fn queueing_hint(snapshot: &Snapshot, slot: Slot, shape: &Shape) -> bool {
    if !(shape.hard_spread.is_empty() && shape.required_affinity.is_empty()) {
        // A node makes a domain.
        return true;
    }
    let state = snapshot.state(slot);
    let is_lesser = |pod: &PodEntry| pod.shape.shape.priority < shape.priority;
    let mut usage = state.usage.clone();
    let expected = state.nominated.iter().filter_map(|key| snapshot.nomination(key));
    expected.filter(|nominated| !is_lesser(nominated)).for_each(|nominated| usage.add(&nominated.shape.shape));
    match check_local(shape, &VolumeDemands::default(), snapshot.node(slot), &usage) {
        Ok(()) => true,
        Err(refusal) => refusal.resolvable && state.pods.iter().any(|key| snapshot.pod(key).is_some_and(is_lesser)),
    }
}

/// The rules that look at one node only, in kube-scheduler's order; the first that fails speaks.
pub fn check_local(shape: &Shape, volumes: &VolumeDemands, node: &Node, usage: &Usage) -> Result<(), FilterFailure> {
    if node.unschedulable && taints::is_kept_away(&[Node::cordon_taint()], &shape.tolerations) {
        return Err(FilterFailure::final_(Reason::Cordoned));
    }
    if taints::is_kept_away(&node.taints, &shape.tolerations) {
        return Err(FilterFailure::final_(Reason::Taint));
    }
    if !shape.node_filter.matches(&node.name, &node.labels) {
        return Err(FilterFailure::final_(Reason::NodeAffinity));
    }
    if usage.ports.conflicts(&shape.host_ports) {
        return Err(FilterFailure::resolvable(Reason::HostPorts));
    }
    check_resources(shape, node, usage)?;
    volumes.check(node).map_err(|reason| match reason {
        Reason::ClaimInUse => FilterFailure::resolvable(reason),
        other => FilterFailure::final_(other),
    })
}

/// All resources of which too little is free; unresolvable if even the empty node would be too small.
fn check_resources(shape: &Shape, node: &Node, usage: &Usage) -> Result<(), FilterFailure> {
    let mut refusal = FilterFailure { reasons: Vec::new(), resolvable: true };
    if usage.pods + 1 > node.max_pods {
        refusal.reasons.push(Reason::TooManyPods);
    }
    let mut compare = |name: &str, wanted: i64, total: i64, used: i64| {
        if wanted > 0 && wanted > total - used {
            refusal.reasons.push(Reason::Insufficient(name.to_owned()));
            refusal.resolvable &= wanted <= total;
        }
    };
    let (wanted, total, used) = (&shape.requests, &node.allocatable, &usage.requested);
    compare("cpu", wanted.cpu_millis, total.cpu_millis, used.cpu_millis);
    compare("memory", wanted.memory_bytes, total.memory_bytes, used.memory_bytes);
    compare("ephemeral-storage", wanted.ephemeral_bytes, total.ephemeral_bytes, used.ephemeral_bytes);
    for (name, amount) in &wanted.named {
        compare(name, *amount, total.named(name), used.named(name));
    }
    if refusal.reasons.is_empty() { Ok(()) } else { Err(refusal) }
}

/// The rules that look at other nodes too.
fn check_topology(slot: Slot, spread: &SpreadState<'_>, affinity: &AffinityState<'_>) -> Result<(), FilterFailure> {
    spread
        .check(slot)
        .map_err(|reason| FilterFailure { resolvable: reason != Reason::SpreadLabelMissing, reasons: vec![reason] })?;
    affinity
        .check(slot)
        .map_err(|reason| FilterFailure { resolvable: reason != Reason::PodAffinity, reasons: vec![reason] })
}
