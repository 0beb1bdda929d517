//! A pod as a shape: its planner's class, as far as the pod alone decides it, and what other objects decide.

use std::hash::{DefaultHasher, Hash, Hasher};

use millpond_api::duration;
use millpond_api::karpenter::{DO_NOT_DISRUPT, TaintEffect};
use millpond_api::meta::Invalid;
use millpond_plan::model::{
    AffinityTerm, DoNotDisrupt, HostPort, InclusionPolicy, Namespaces, PodClass, PodKind, Problem, Protocol, Snapshot,
    Spread,
};
use millpond_plan::requirement::{Requirement, Requirements};
use millpond_plan::symbol::Symbol;
use millpond_plan::taint::{Comparison, Effect, Toleration};

use super::requests;
use super::select::{current_name, label_selector, labels, node_selector, node_term, within};
use crate::objects::meta::{LabelSelector, Metadata, NodeSelector};
use crate::objects::pod::{
    self, Container, PodAffinityTerm, PodSpec, PodStatus, PreemptionPolicy, SpreadConstraint, TolerationOperator,
    WhenUnsatisfiable,
};
use crate::objects::text::Text;

/// The scheduler of pods that name none.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Everything that scheduling looks at in a pod, but for its volumes. Shared by all pods that agree in it.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// The class, without what other objects decide.
    pub(crate) class: PodClass,
    /// How important it is.
    pub(crate) priority: Priority,
    /// Namespaces of affinity terms that a selector decides: where the term is, and what it selects.
    pub(crate) scopes: Vec<(TermPlace, Scope)>,
    /// A scheduler other than the default one.
    pub(crate) scheduler: Option<Box<str>>,
    /// The kind and name of what looks after it, where the cluster's default spread could hold.
    pub(crate) owner: Option<(Box<str>, Symbol)>,
}

/// How important a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Priority {
    /// So much.
    Known(i32),
    /// The priority of a PriorityClass.
    Class(Box<str>),
    /// The priority of the cluster's default class.
    Default,
}

/// Where an affinity term stands in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TermPlace {
    Near(usize),
    Apart(usize),
    Wish(usize),
}

/// Namespaces by name and by labels.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) named: Vec<Symbol>,
    pub(crate) selector: Requirements,
}

/// Two hashes of all that a shape is made from; pods with equal ones have equal shapes.
pub(crate) fn content(metadata: &Metadata<'_>, spec: &PodSpec<'_>, status: &PodStatus<'_>) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        metadata.namespace().hash(&mut hasher);
        metadata.labels.hash(&mut hasher);
        metadata.annotations.hash(&mut hasher);
        let owner = metadata.controller();
        owner.map(|owner| (&owner.kind, &owner.name)).hash(&mut hasher);
        hash_spec(spec, is_daemon_at_home(metadata, spec), &mut hasher);
        status.container_statuses.hash(&mut hasher);
        status.init_container_statuses.hash(&mut hasher);
        (&status.resources, &status.allocated_resources).hash(&mut hasher);
        let resize = status.conditions.iter().find(|condition| &*condition.kind == "PodResizePending");
        resize.map(|condition| &condition.reason).hash(&mut hasher);
        hasher.finish()
    };
    (u128::from(half(1)) << 64) | u128::from(half(2))
}

fn hash_spec(spec: &PodSpec<'_>, at_home: bool, hasher: &mut DefaultHasher) {
    let PodSpec { scheduler_name, priority, priority_class_name, preemption_policy, node_selector, .. } = spec;
    (scheduler_name, priority, priority_class_name, preemption_policy, node_selector).hash(hasher);
    if at_home {
        (&spec.affinity.pod_affinity, &spec.affinity.pod_anti_affinity).hash(hasher);
    } else {
        spec.affinity.hash(hasher);
    }
    (&spec.tolerations, &spec.topology_spread_constraints, &spec.containers, &spec.init_containers).hash(hasher);
    (&spec.overhead, &spec.resources, spec.host_network, &spec.resource_claims).hash(hasher);
}

/// A DaemonSet's pod on its node. Its node affinity names just that node, and it will go nowhere else: without it,
/// all pods of the set are alike.
fn is_daemon_at_home(metadata: &Metadata<'_>, spec: &PodSpec<'_>) -> bool {
    !spec.node_name.is_empty() && metadata.controller().is_some_and(|owner| &*owner.kind == "DaemonSet")
}

/// Lowers a pod.
pub(crate) fn shape(
    metadata: &Metadata<'_>,
    spec: &PodSpec<'_>,
    status: &PodStatus<'_>,
    tables: &mut Snapshot,
) -> Result<Shape, Invalid> {
    let namespace = tables.symbols.intern(metadata.namespace());
    let mut class = PodClass::new(namespace);
    class.labels = labels(&metadata.labels, &mut tables.symbols);
    class.requests = requests::of_pod(spec, status, &mut tables.resources);
    class.preempts = spec.preemption_policy != Some(PreemptionPolicy::Never);
    class.kind = kind(metadata);
    class.do_not_disrupt = do_not_disrupt(metadata);
    let cost = metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost");
    class.deletion_cost = cost.and_then(|cost| cost.parse().ok()).unwrap_or(0);
    class.tolerations = tolerations(spec, tables)?;
    class.host_ports = host_ports(spec);
    let mut lowering = Lowering { metadata, class, scopes: Vec::new(), tables };
    if !is_daemon_at_home(metadata, spec) {
        lowering.nodes(spec)?;
    }
    lowering.spread(spec)?;
    lowering.pods(spec)?;
    let Lowering { mut class, scopes, tables, .. } = lowering;
    let devices = spec.resource_claims.first().map(|claim| Problem::Devices((*claim.name).into()));
    class.problem = devices.or_else(|| contradiction(&class, tables));
    let priority = match (spec.priority, &*spec.priority_class_name) {
        (Some(priority), _) => Priority::Known(priority),
        (None, "") => Priority::Default,
        (None, name) => Priority::Class(name.into()),
    };
    let scheduler = Some(&*spec.scheduler_name).filter(|name| !name.is_empty() && *name != DEFAULT_SCHEDULER);
    let owner = metadata.controller().map(|owner| ((*owner.kind).into(), tables.symbols.intern(&owner.name)));
    Ok(Shape { class, priority, scopes, scheduler: scheduler.map(Into::into), owner })
}

fn kind(metadata: &Metadata<'_>) -> PodKind {
    if metadata.annotations.get("kubernetes.io/config.mirror").is_some() {
        return PodKind::Mirror;
    }
    match metadata.controller().map(|owner| &*owner.kind) {
        Some("DaemonSet") => PodKind::Daemon,
        Some("Node") => PodKind::Mirror,
        Some(_) => PodKind::Workload,
        None => PodKind::Bare,
    }
}

fn do_not_disrupt(metadata: &Metadata<'_>) -> DoNotDisrupt {
    if metadata.annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == Some("false") {
        return DoNotDisrupt::Always;
    }
    match metadata.annotations.get(DO_NOT_DISRUPT) {
        Some("true") => DoNotDisrupt::Always,
        // Karpenter takes what is neither for nothing.
        Some(text) => duration::parse_seconds(text).map_or(DoNotDisrupt::No, DoNotDisrupt::For),
        None => DoNotDisrupt::No,
    }
}

/// The planner's effect.
pub(crate) fn effect(effect: TaintEffect) -> Effect {
    match effect {
        TaintEffect::NoSchedule => Effect::NoSchedule,
        TaintEffect::PreferNoSchedule => Effect::PreferNoSchedule,
        TaintEffect::NoExecute => Effect::NoExecute,
    }
}

fn tolerations(spec: &PodSpec<'_>, tables: &mut Snapshot) -> Result<Vec<Toleration>, Invalid> {
    let mut tolerations = Vec::with_capacity(spec.tolerations.len());
    for (index, entry) in spec.tolerations.iter().enumerate() {
        let here = format!("spec.tolerations[{index}]");
        let operator = entry.operator.unwrap_or(TolerationOperator::Equal);
        if entry.key.is_empty() && operator != TolerationOperator::Exists {
            return Err(Invalid::new(here, "an empty key goes with the operator Exists only"));
        }
        let number = || {
            let problem = format!("`{}` is not a whole number", &*entry.value);
            entry.value.parse::<i64>().map_err(|_| Invalid::new(format!("{here}.value"), problem))
        };
        tolerations.push(Toleration {
            key: (!entry.key.is_empty()).then(|| tables.symbols.intern(&entry.key)),
            value: match operator {
                TolerationOperator::Exists => Comparison::Exists,
                TolerationOperator::Equal => Comparison::Equal(tables.symbols.intern(&entry.value)),
                TolerationOperator::Gt => Comparison::Above(number()?),
                TolerationOperator::Lt => Comparison::Below(number()?),
            },
            effect: entry.effect.map(effect),
        });
    }
    Ok(tolerations)
}

/// Ports of the host: of containers and sidecars; with the host's network all ports are the host's.
fn host_ports(spec: &PodSpec<'_>) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().filter(|container| &*container.restart_policy == "Always");
    let containers = sidecars.chain(&spec.containers);
    let ports = containers.flat_map(|container: &Container<'_>| &container.ports).filter_map(|port| {
        let number = if port.host_port == 0 && spec.host_network { port.container_port } else { port.host_port };
        let protocol = match port.protocol {
            None | Some(pod::Protocol::Tcp) => Protocol::Tcp,
            Some(pod::Protocol::Udp) => Protocol::Udp,
            Some(pod::Protocol::Sctp) => Protocol::Sctp,
        };
        let address = Some(&*port.host_ip).filter(|address| !address.is_empty() && *address != "0.0.0.0");
        (number > 0).then(|| HostPort { protocol, address: address.map(Into::into), port: number })
    });
    let mut ports: Vec<HostPort> = ports.collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The label on which no node can satisfy the pod, if every alternative contradicts itself.
fn contradiction(class: &PodClass, tables: &Snapshot) -> Option<Problem> {
    let mut contradictions = class.node_terms.iter().map(|term| term.contradiction(&tables.symbols));
    let first = match contradictions.next() {
        Some(first) => first?,
        // Terms that select nothing: none is left.
        None => return Some(Problem::Contradiction("an empty node affinity term".into())),
    };
    let all = contradictions.all(|label| label.is_some());
    all.then(|| Problem::Contradiction(tables.text(first).into()))
}

struct Lowering<'p, 'a, 't> {
    metadata: &'p Metadata<'a>,
    class: PodClass,
    scopes: Vec<(TermPlace, Scope)>,
    tables: &'t mut Snapshot,
}

impl Lowering<'_, '_, '_> {
    /// Node selector and node affinity.
    fn nodes(&mut self, spec: &PodSpec<'_>) -> Result<(), Invalid> {
        const REQUIRED: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED: &str = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        let mut selector = Requirements::new();
        for (key, value) in spec.node_selector.iter() {
            let key = self.tables.symbols.intern(current_name(key));
            let value = self.tables.symbols.intern(value);
            selector.add(key, Requirement::is(value), &self.tables.symbols);
        }
        let affinity = &spec.affinity.node_affinity;
        self.class.node_terms = match &affinity.required {
            None => vec![selector],
            Some(required) => self.required(required, &selector).map_err(within(REQUIRED))?,
        };
        for (index, term) in affinity.preferred.iter().enumerate() {
            let here = format!("{PREFERRED}[{index}]");
            let weight = weight(term.weight).map_err(within(&here))?;
            let preference = node_term(&term.preference, self.tables).map_err(within(&format!("{here}.preference")))?;
            self.class.node_preferences.extend(preference.map(|preference| (weight, preference)));
        }
        Ok(())
    }

    fn required(&mut self, required: &NodeSelector<'_>, selector: &Requirements) -> Result<Vec<Requirements>, Invalid> {
        let mut terms = node_selector(required, self.tables)?;
        for term in &mut terms {
            term.add_all(selector, &self.tables.symbols);
        }
        Ok(terms)
    }

    fn spread(&mut self, spec: &PodSpec<'_>) -> Result<(), Invalid> {
        for (index, constraint) in spec.topology_spread_constraints.iter().enumerate() {
            let spread = self.constraint(constraint);
            let spread = spread.map_err(within(&format!("spec.topologySpreadConstraints[{index}]")))?;
            self.class.spread.push(spread);
        }
        Ok(())
    }

    fn constraint(&mut self, constraint: &SpreadConstraint<'_>) -> Result<Spread, Invalid> {
        let whole = |field: &str, number: i32| {
            let problem = format!("`{number}` is not above zero");
            u32::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| Invalid::new(field, problem))
        };
        if constraint.topology_key.is_empty() {
            return Err(Invalid::new("topologyKey", "is missing"));
        }
        let policy = |policy, default| match policy {
            None => default,
            Some(pod::InclusionPolicy::Honor) => InclusionPolicy::Honor,
            Some(pod::InclusionPolicy::Ignore) => InclusionPolicy::Ignore,
        };
        let selector = self.selector(constraint.label_selector.as_ref(), &constraint.match_label_keys, &[])?;
        Ok(Spread {
            key: self.tables.symbols.intern(&constraint.topology_key),
            max_skew: whole("maxSkew", constraint.max_skew)?,
            min_domains: constraint.min_domains.map(|number| whole("minDomains", number)).transpose()?,
            hard: match constraint.when_unsatisfiable {
                Some(WhenUnsatisfiable::DoNotSchedule) => true,
                Some(WhenUnsatisfiable::ScheduleAnyway) => false,
                None => return Err(Invalid::new("whenUnsatisfiable", "is missing")),
            },
            selector,
            node_affinity: policy(constraint.node_affinity_policy, InclusionPolicy::Honor),
            node_taints: policy(constraint.node_taints_policy, InclusionPolicy::Ignore),
        })
    }

    /// A selector of pods, and labels in which they are like this pod, or unlike it.
    fn selector(
        &mut self,
        selector: Option<&LabelSelector<'_>>,
        like: &[Text<'_>],
        unlike: &[Text<'_>],
    ) -> Result<Option<Requirements>, Invalid> {
        let Some(selector) = selector else { return Ok(None) };
        let symbols = &mut self.tables.symbols;
        let mut selector = label_selector(selector, symbols).map_err(within("labelSelector"))?;
        let keys = like.iter().map(|key| (key, true)).chain(unlike.iter().map(|key| (key, false)));
        for (key, like) in keys {
            let Some(value) = self.metadata.labels.get(key) else { continue };
            let (key, value) = (symbols.intern(key), symbols.intern(value));
            let requirement = if like { Requirement::is(value) } else { Requirement::none_of([value]) };
            selector.add(key, requirement, symbols);
        }
        Ok(Some(selector))
    }

    /// Pods that must or should be near, or not.
    fn pods(&mut self, spec: &PodSpec<'_>) -> Result<(), Invalid> {
        let sides = [
            ("podAffinity", &spec.affinity.pod_affinity, 1),
            ("podAntiAffinity", &spec.affinity.pod_anti_affinity, -1),
        ];
        for (name, side, sign) in sides {
            for (index, term) in side.required.iter().enumerate() {
                let here = format!("spec.affinity.{name}.requiredDuringSchedulingIgnoredDuringExecution[{index}]");
                let place = if sign > 0 {
                    TermPlace::Near(self.class.affinity.len())
                } else {
                    TermPlace::Apart(self.class.anti_affinity.len())
                };
                let term = self.term(term, place).map_err(within(&here))?;
                if sign > 0 { self.class.affinity.push(term) } else { self.class.anti_affinity.push(term) }
            }
            for (index, wish) in side.preferred.iter().enumerate() {
                let here = format!("spec.affinity.{name}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
                let weight = weight(wish.weight).map_err(within(&here))?;
                let place = TermPlace::Wish(self.class.affinity_preferences.len());
                let term = self.term(&wish.pod_affinity_term, place);
                let term = term.map_err(within("podAffinityTerm")).map_err(within(&here))?;
                self.class.affinity_preferences.push((sign * weight, term));
            }
        }
        Ok(())
    }

    fn term(&mut self, term: &PodAffinityTerm<'_>, place: TermPlace) -> Result<AffinityTerm, Invalid> {
        if term.topology_key.is_empty() {
            return Err(Invalid::new("topologyKey", "is missing"));
        }
        let selector =
            self.selector(term.label_selector.as_ref(), &term.match_label_keys, &term.mismatch_label_keys)?;
        let mut named: Vec<Symbol> = term.namespaces.iter().map(|name| self.tables.symbols.intern(name)).collect();
        let namespaces = match &term.namespace_selector {
            None if named.is_empty() => Namespaces::These(Box::new([self.class.namespace])),
            None => Namespaces::These(sorted(&mut named)),
            Some(all) if all == &LabelSelector::default() => Namespaces::All,
            Some(some) => {
                let selector = label_selector(some, &mut self.tables.symbols).map_err(within("namespaceSelector"))?;
                let here = Namespaces::These(sorted(&mut named));
                self.scopes.push((place, Scope { named, selector }));
                here
            }
        };
        Ok(AffinityTerm { key: self.tables.symbols.intern(&term.topology_key), selector, namespaces })
    }
}

/// Namespaces in the planner's order.
pub(crate) fn sorted(namespaces: &mut Vec<Symbol>) -> Box<[Symbol]> {
    namespaces.sort_unstable();
    namespaces.dedup();
    namespaces.as_slice().into()
}

fn weight(weight: i32) -> Result<i32, Invalid> {
    if (1..=100).contains(&weight) {
        return Ok(weight);
    }
    Err(Invalid::new("weight", format!("`{weight}` is not from 1 to 100")))
}
