//! A pod as the filters and scores see it.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;

use super::affinity::PodTerm;
use super::labels::{Labels, NodeFilter, NodeTerm, Selector};
use super::ports::HostPort;
use super::resources::{Resources, pod_requests, pod_scoring_requests};
use super::spread::Constraint;
use super::taints::Toleration;

/// Everything about a pod that a rule looks at. Equal pods have equal shapes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's labels.
    pub labels: Labels,
    /// Higher goes first and may push out lower.
    pub priority: i32,
    /// Whether the pod may push out others.
    pub may_preempt: bool,
    /// The requests.
    pub requests: Resources,
    /// The requests that scoring uses.
    pub scoring_requests: Resources,
    /// The nodes it insists on.
    pub node_filter: NodeFilter,
    /// The nodes it likes, with weights.
    pub preferred_nodes: Vec<(i64, NodeTerm)>,
    /// The taints it tolerates.
    pub tolerations: Vec<Toleration>,
    /// The host ports it needs.
    pub host_ports: Vec<HostPort>,
    /// Spread constraints that must hold.
    pub hard_spread: Vec<Constraint>,
    /// Spread constraints that should hold.
    pub soft_spread: Vec<Constraint>,
    /// Whether the soft constraints are the cluster's defaults rather than the pod's own.
    pub spread_is_default: bool,
    /// Pods that must be near.
    pub required_affinity: Vec<PodTerm>,
    /// Pods that must not be near.
    pub required_anti_affinity: Vec<PodTerm>,
    /// Pods that should be near, with weights.
    pub preferred_affinity: Vec<(i64, PodTerm)>,
    /// Pods that should not be near, with weights.
    pub preferred_anti_affinity: Vec<(i64, PodTerm)>,
    /// The single-pod claims (`ReadWriteOncePod`) that it mounts, and all other claims.
    pub claims: Vec<String>,
}

/// Inputs of a shape that are not in the pod object.
#[derive(Clone, Debug, Default)]
pub struct ShapeContext {
    /// The priority of the pod's class, when admission did not write it into the pod.
    pub class_priority: Option<i32>,
    /// The selector of the services and the controller to which the pod belongs; pods without
    /// constraints of their own are softly spread over zones and hosts by it.
    pub owner_selector: Option<Selector>,
}

impl Shape {
    /// Reads a pod object.
    pub fn view(pod: &core::Pod, context: &ShapeContext) -> Self {
        let empty = core::PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let namespace = pod.namespace().unwrap_or_default();
        let labels = pod.labels().clone();
        let affinity = spec.affinity.as_ref();
        let node_affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let own_spread = spec.topology_spread_constraints.as_deref().unwrap_or_default();
        let spread_is_default = own_spread.is_empty();
        let (hard_spread, soft_spread) = if spread_is_default {
            (Vec::new(), default_spread(context.owner_selector.as_ref()))
        } else {
            Constraint::compile(own_spread, &labels)
        };
        let near = Nearness::compile(affinity, &namespace, &labels);
        Self {
            priority: spec.priority.or(context.class_priority).unwrap_or_default(),
            may_preempt: spec.preemption_policy.as_deref() != Some("Never"),
            requests: pod_requests(spec),
            scoring_requests: pod_scoring_requests(spec),
            node_filter: node_filter(spec),
            preferred_nodes: node_affinity
                .and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_deref())
                .unwrap_or_default()
                .iter()
                .filter(|term| term.weight != 0)
                .filter_map(|term| Some((i64::from(term.weight), NodeTerm::compile(&term.preference)?)))
                .collect(),
            tolerations: spec.tolerations.iter().flatten().map(Toleration::view).collect(),
            host_ports: HostPort::of_pod(spec),
            hard_spread,
            soft_spread,
            spread_is_default,
            required_affinity: near.required,
            required_anti_affinity: near.required_apart,
            preferred_affinity: near.preferred,
            preferred_anti_affinity: near.preferred_apart,
            claims: claims(pod, spec),
            namespace,
            labels,
        }
    }

    /// The shape of a running pod. It keeps fewer fields, so more pods share one than among pending pods.
    pub fn of_running(pod: &core::Pod) -> Self {
        let shape = Self::view(pod, &ShapeContext::default());
        Self {
            node_filter: NodeFilter::default(),
            preferred_nodes: Vec::new(),
            tolerations: Vec::new(),
            hard_spread: Vec::new(),
            soft_spread: Vec::new(),
            claims: Vec::new(),
            ..shape
        }
    }

    /// Whether a running pod of this shape keeps others away.
    pub fn repels(&self) -> bool {
        !self.required_anti_affinity.is_empty()
    }

    /// Whether a running pod of this shape has a say in the scores of others.
    pub fn has_affinity(&self) -> bool {
        !(self.required_affinity.is_empty()
            && self.required_anti_affinity.is_empty()
            && self.preferred_affinity.is_empty()
            && self.preferred_anti_affinity.is_empty())
    }
}

/// A shape shared by equal pods.
pub type SharedShape = Arc<Shape>;

/// The cluster's defaults: softly over zones, more softly over hosts.
fn default_spread(owner_selector: Option<&Selector>) -> Vec<Constraint> {
    match owner_selector {
        Some(selector) if !selector.is_unrestricted() && *selector != Selector::Nothing => vec![
            Constraint::soft_default("kubernetes.io/hostname", 3, selector.clone()),
            Constraint::soft_default("topology.kubernetes.io/zone", 5, selector.clone()),
        ],
        _ => Vec::new(),
    }
}

fn node_filter(spec: &core::PodSpec) -> NodeFilter {
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    NodeFilter {
        labels: spec.node_selector.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect(),
        terms: required.map(|selector| selector.node_selector_terms.iter().filter_map(NodeTerm::compile).collect()),
    }
}

/// Claims named in the pod, and those that its ephemeral volumes will have.
fn claims(pod: &core::Pod, spec: &core::PodSpec) -> Vec<String> {
    let mut names = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        if let Some(claim) = &volume.persistent_volume_claim {
            names.push(claim.claim_name.clone());
        } else if volume.ephemeral.is_some() {
            names.push(format!("{}-{}", pod.name_any(), volume.name));
        }
    }
    names
}

#[derive(Default)]
struct Nearness {
    required: Vec<PodTerm>,
    required_apart: Vec<PodTerm>,
    preferred: Vec<(i64, PodTerm)>,
    preferred_apart: Vec<(i64, PodTerm)>,
}

impl Nearness {
    fn compile(affinity: Option<&core::Affinity>, namespace: &str, labels: &Labels) -> Self {
        let Some(affinity) = affinity else {
            return Self::default();
        };
        let hard = |terms: Option<&Vec<core::PodAffinityTerm>>| {
            terms.into_iter().flatten().map(|term| PodTerm::compile(term, namespace, labels)).collect()
        };
        let soft = |terms: Option<&Vec<core::WeightedPodAffinityTerm>>| {
            terms
                .into_iter()
                .flatten()
                .map(|term| {
                    let compiled = PodTerm::compile(&term.pod_affinity_term, namespace, labels);
                    (i64::from(term.weight), compiled)
                })
                .collect()
        };
        let near = affinity.pod_affinity.as_ref();
        let apart = affinity.pod_anti_affinity.as_ref();
        Self {
            required: hard(near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            required_apart: hard(apart.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref())),
            preferred: soft(near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())),
            preferred_apart: soft(apart.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())),
        }
    }
}
