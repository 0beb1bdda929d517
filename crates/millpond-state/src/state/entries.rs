//! What the index stores of each object.

use std::sync::Arc;

use millpond_api::meta::Invalid;
use millpond_plan::model::{ResourceTable, Resources, Seconds, Snapshot};
use millpond_plan::requirement::{Requirement, Requirements};
use millpond_plan::symbol::{Symbol, Symbols};

use super::State;
use crate::lower::pod::Shape;
use crate::lower::requests::Parts;
use crate::lower::select::{current_name, label_selector, node_selector, within};
use crate::objects::Kind;
use crate::objects::cluster::{DisruptionBudget, LimitRange, PriorityClass, StoredTemplate, Workload};
use crate::objects::meta::{Metadata, condition};
use crate::objects::pod::{Pod, PodSpec, PodStatus, PreemptionPolicy, Toleration, TolerationOperator, Volume};
use crate::objects::storage::{BindingMode, ClaimSpec, PersistentVolume, StorageClass};
use crate::objects::text::{Amounts, CountOrShare, PODS_LISTED, Text};

/// Where a pod is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodPhase {
    Pending,
    Bound,
    Terminating,
    Gated,
    /// It was deleted before it had a node, so it no longer matters.
    Gone,
}

/// A pod.
#[derive(Debug, Clone)]
pub(crate) struct PodEntry {
    pub(crate) revision: Box<str>,
    /// Hash of the fields that its shape was derived from.
    pub(crate) content: u128,
    pub(crate) shape: Arc<Shape>,
    pub(crate) phase: PodPhase,
    /// The node that it is bound to or nominated for.
    pub(crate) node: Option<Symbol>,
    pub(crate) created: Seconds,
    pub(crate) started: Option<Seconds>,
    pub(crate) ready: bool,
    pub(crate) claims: Box<[ClaimRef]>,
}

/// A claim that a pod uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimRef {
    pub(crate) name: Box<str>,
    /// The template of a claim that does not exist yet: a volume that is created and deleted with the pod.
    pub(crate) template: Option<Arc<ClaimEntry>>,
}

impl PodEntry {
    pub(super) fn new(pod: &Pod<'_>, content: u128, shape: Arc<Shape>, symbols: &mut Symbols) -> Self {
        let bound = !pod.spec.node_name.is_empty();
        let phase = match (pod.metadata.deletion_timestamp.is_some(), bound) {
            (true, true) => PodPhase::Terminating,
            (true, false) => PodPhase::Gone,
            (false, true) => PodPhase::Bound,
            (false, false) if !pod.spec.scheduling_gates.is_empty() => PodPhase::Gated,
            (false, false) => PodPhase::Pending,
        };
        let node = if bound { &pod.spec.node_name } else { &pod.status.nominated_node_name };
        Self {
            revision: (*pod.metadata.resource_version).into(),
            content,
            shape,
            phase,
            node: (!node.is_empty()).then(|| symbols.intern(node)),
            created: pod.metadata.creation_timestamp.map_or(0, |time| time.0),
            started: pod.status.start_time.map(|time| time.0),
            // Files that people write have no conditions: such pods are taken to be well.
            ready: condition(&pod.status.conditions, "Ready").map_or(bound, |ready| &*ready.status == "True"),
            claims: claims(&pod.metadata.name, &pod.spec.volumes),
        }
    }
}

/// The claims among volumes of a pod of that name.
pub(crate) fn claims(pod: &str, volumes: &[Volume<'_>]) -> Box<[ClaimRef]> {
    let claims = volumes.iter().filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(ClaimRef { name: (*claim.claim_name).into(), template: None }),
        (None, Some(ephemeral)) => {
            let template = ClaimEntry::new(&Metadata::default(), &ephemeral.volume_claim_template.spec);
            let name = format!("{pod}-{}", &*volume.name);
            Some(ClaimRef { name: name.into(), template: Some(Arc::new(template)) })
        }
        (None, None) => None,
    });
    claims.collect()
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimEntry {
    /// `None` means the cluster's default class; empty means no class.
    pub(crate) class: Option<Box<str>>,
    /// The volume that it is bound to; empty if none.
    pub(crate) volume: Box<str>,
    /// Only one pod at a time may use it.
    pub(crate) one_pod: bool,
}

impl ClaimEntry {
    pub(crate) fn new(metadata: &Metadata<'_>, spec: &ClaimSpec<'_>) -> Self {
        let old = metadata.annotations.get("volume.beta.kubernetes.io/storage-class");
        let class = old.or(spec.storage_class_name.as_deref());
        Self {
            class: class.map(Into::into),
            volume: (*spec.volume_name).into(),
            one_pod: spec.access_modes.iter().any(|mode| &**mode == "ReadWriteOncePod"),
        }
    }
}

/// A PersistentVolume.
#[derive(Debug, Clone)]
pub(crate) struct VolumeEntry {
    /// Alternatives of which a node must meet one; empty if any node will do.
    pub(crate) terms: Vec<Requirements>,
    pub(crate) driver: Option<Box<str>>,
    pub(crate) class: Box<str>,
    /// Whether some claim has it.
    pub(crate) claimed: bool,
}

impl VolumeEntry {
    pub(super) fn new(volume: &PersistentVolume<'_>, tables: &mut Snapshot) -> Result<Self, Invalid> {
        let mut terms = match &volume.spec.node_affinity.required {
            Some(required) => node_selector(required, tables).map_err(within("spec.nodeAffinity.required"))?,
            None => Vec::new(),
        };
        let zones = zone_labels(&volume.metadata, tables);
        if !zones.is_empty() {
            if terms.is_empty() {
                terms.push(Requirements::new());
            }
            terms.iter_mut().for_each(|term| term.add_all(&zones, &tables.symbols));
        }
        Ok(Self {
            terms,
            driver: volume.spec.csi.as_ref().map(|csi| (*csi.driver).into()),
            class: (*volume.spec.storage_class_name).into(),
            claimed: volume.spec.claim_ref.is_some(),
        })
    }
}

/// Zone and region as labels of a volume, as volumes of old have them; several zones with `__` between them.
fn zone_labels(metadata: &Metadata<'_>, tables: &mut Snapshot) -> Requirements {
    let mut all = Requirements::new();
    for (key, value) in metadata.labels.iter() {
        let key = current_name(key);
        if key != "topology.kubernetes.io/zone" && key != "topology.kubernetes.io/region" {
            continue;
        }
        let values: Vec<Symbol> = value.split("__").map(|value| tables.symbols.intern(value)).collect();
        let key = tables.symbols.intern(key);
        all.add(key, Requirement::one_of(values), &tables.symbols);
    }
    all
}

/// A StorageClass.
#[derive(Debug, Clone)]
pub(crate) struct StorageClassEntry {
    pub(crate) provisioner: Box<str>,
    pub(crate) waits: bool,
    pub(crate) is_default: bool,
    /// Alternatives of where volumes can be created; empty for everywhere.
    pub(crate) terms: Vec<Requirements>,
}

impl StorageClassEntry {
    pub(super) fn new(class: &StorageClass<'_>, tables: &mut Snapshot) -> Self {
        let mut terms = Vec::new();
        for term in &class.allowed_topologies {
            let mut all = Requirements::new();
            for expression in &term.match_label_expressions {
                let values: Vec<Symbol> = expression.values.iter().map(|it| tables.symbols.intern(it)).collect();
                let key = tables.symbols.intern(current_name(&expression.key));
                all.add(key, Requirement::one_of(values), &tables.symbols);
            }
            terms.push(all);
        }
        let annotations = &class.metadata.annotations;
        let says_default = |key| annotations.get(key) == Some("true");
        Self {
            provisioner: (*class.provisioner).into(),
            waits: class.volume_binding_mode == Some(BindingMode::WaitForFirstConsumer),
            is_default: says_default("storageclass.kubernetes.io/is-default-class")
                || says_default("storageclass.beta.kubernetes.io/is-default-class"),
            terms,
        }
    }
}

/// A PriorityClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PriorityEntry {
    pub(crate) value: i32,
    pub(crate) is_default: bool,
    pub(crate) preempts: bool,
}

impl PriorityEntry {
    pub(super) fn new(class: &PriorityClass<'_>) -> Self {
        Self {
            value: class.value,
            is_default: class.global_default,
            preempts: class.preemption_policy != Some(PreemptionPolicy::Never),
        }
    }
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone)]
pub(crate) struct BudgetEntry {
    pub(crate) selector: Option<Requirements>,
    /// Evictions allowed by its status; `None` if no controller has written it.
    pub(crate) allowed: Option<u32>,
    pub(crate) min_available: Option<CountOrShare>,
    pub(crate) max_unavailable: Option<CountOrShare>,
    pub(crate) unhealthy_always: bool,
}

impl BudgetEntry {
    pub(super) fn new(budget: &DisruptionBudget<'_>, symbols: &mut Symbols) -> Result<Self, Invalid> {
        let selector = budget.spec.selector.as_ref().map(|selector| label_selector(selector, symbols));
        let allowed = budget.status.disruptions_allowed;
        if budget.spec.min_available.is_some() && budget.spec.max_unavailable.is_some() {
            let problem = "stands beside `maxUnavailable`; only one of them may";
            return Err(Invalid::new("spec.minAvailable", problem));
        }
        Ok(Self {
            selector: selector.transpose().map_err(within("spec.selector"))?,
            allowed: allowed.map(|allowed| u32::try_from(allowed).unwrap_or(0)),
            min_available: budget.spec.min_available.clone(),
            max_unavailable: budget.spec.max_unavailable.clone(),
            unhealthy_always: &*budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        })
    }
}

/// A pod template.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    pub(crate) content: u128,
    pub(crate) shape: Arc<Shape>,
    /// The requests of its containers.
    pub(crate) parts: Parts,
}

impl Template {
    pub(super) fn new(metadata: &Metadata<'_>, spec: &PodSpec<'_>, state: &mut State) -> Result<Self, Invalid> {
        let status = PodStatus::default();
        let (content, shape) = state.shape(metadata, spec, &status)?;
        Ok(Self { content, shape, parts: Parts::new(spec, &status, &mut state.tables.resources) })
    }

    /// Of a PodTemplate object.
    pub(super) fn stored(stored: &StoredTemplate<'_>, state: &mut State) -> Result<Self, Invalid> {
        let mut metadata = stored.template.metadata.clone();
        metadata.namespace = stored.metadata.namespace.clone();
        Self::new(&metadata, &stored.template.spec, state).map_err(within("template"))
    }
}

/// The default requests of a LimitRange. Defaults that the API server would fill in are added, because files may leave
/// them out.
pub(super) fn default_requests(range: &LimitRange<'_>, table: &mut ResourceTable) -> Resources {
    let mut requests = Resources::new();
    for item in range.spec.limits.iter().filter(|item| &*item.kind == "Container") {
        let own = [&item.min, &item.max, &item.default, &item.default_request];
        for (name, amount) in own.into_iter().flat_map(Amounts::iter) {
            requests.set(table.intern(name), amount);
        }
    }
    requests
}

/// A DaemonSet, ReplicaSet, Deployment, StatefulSet or Job.
#[derive(Debug, Clone)]
pub(crate) struct WorkloadEntry {
    /// The template of its pods.
    pub(crate) template: Template,
    /// The selector of its pods.
    pub(crate) selector: Option<Requirements>,
    /// How many pods it wants, of which some may have to be made up.
    pub(crate) replicas: u32,
    /// How many pods it wants, whether or not they are there.
    pub(crate) scale: u32,
    /// The workload that it belongs to.
    pub(crate) owner: Option<Box<str>>,
    /// Volumes of its template, and claims that each pod gets.
    pub(crate) claims: Box<[ClaimRef]>,
    /// Volumes that come and go with each pod, by their name.
    pub(crate) own_claims: Vec<(Box<str>, Arc<ClaimEntry>)>,
    pub(crate) gated: bool,
}

impl WorkloadEntry {
    pub(super) fn new(kind: Kind, workload: &Workload<'_>, state: &mut State) -> Result<Self, Invalid> {
        let (metadata, spec) = template(kind, workload);
        let template = Template::new(&metadata, &spec, state).map_err(within("spec.template"))?;
        let selector = workload.spec.selector.as_ref();
        let selector = selector.map(|selector| label_selector(selector, &mut state.tables.symbols)).transpose();
        let own = workload.spec.volume_claim_templates.iter();
        let own = own.map(|claim| {
            let entry = ClaimEntry::new(&claim.metadata, &claim.spec);
            ((*claim.metadata.name).into(), Arc::new(entry))
        });
        let (ephemeral, shared): (Vec<&Volume<'_>>, Vec<_>) =
            spec.volumes.iter().partition(|volume| volume.ephemeral.is_some());
        let ephemeral = ephemeral.into_iter().filter_map(|volume| {
            let spec = &volume.ephemeral.as_ref()?.volume_claim_template.spec;
            Some(((*volume.name).into(), Arc::new(ClaimEntry::new(&Metadata::default(), spec))))
        });
        let shared: Vec<Volume<'_>> = shared.into_iter().cloned().collect();
        Ok(Self {
            template,
            selector: selector.map_err(within("spec.selector"))?,
            replicas: replicas(kind, workload),
            scale: workload.spec.replicas.unwrap_or(1),
            owner: workload.metadata.controller().map(|owner| (*owner.name).into()),
            claims: claims("", &shared),
            own_claims: own.chain(ephemeral).collect(),
            gated: !spec.scheduling_gates.is_empty(),
        })
    }
}

fn replicas(kind: Kind, workload: &Workload<'_>) -> u32 {
    let spec = &workload.spec;
    match kind {
        _ if workload.metadata.annotations.get(PODS_LISTED).is_some() => 0,
        Kind::Job if spec.suspend == Some(true) => 0,
        Kind::Job => {
            let at_once = spec.parallelism.unwrap_or(1);
            spec.completions.map_or(at_once, |completions| completions.min(at_once))
        }
        _ => spec.replicas.unwrap_or(1),
    }
}

/// The pod that a workload makes: in its namespace, looked after by it.
fn template<'a>(kind: Kind, workload: &Workload<'a>) -> (Metadata<'a>, PodSpec<'a>) {
    let mut metadata = workload.spec.template.metadata.clone();
    metadata.namespace = workload.metadata.namespace.clone();
    metadata.owner_references = vec![crate::objects::meta::Owner {
        kind: Text::from(kind.name()),
        name: workload.metadata.name.clone(),
        uid: workload.metadata.uid.clone(),
        controller: true,
    }];
    let mut spec = workload.spec.template.spec.clone();
    if kind == Kind::DaemonSet {
        add_daemon_tolerations(&mut spec);
    }
    (metadata, spec)
}

/// Adds the tolerations that the DaemonSet controller gives its pods.
fn add_daemon_tolerations(spec: &mut PodSpec<'_>) {
    use millpond_api::karpenter::TaintEffect::{NoExecute, NoSchedule};
    let network = spec.host_network.then_some(("node.kubernetes.io/network-unavailable", NoSchedule));
    let always = [
        ("node.kubernetes.io/not-ready", NoExecute),
        ("node.kubernetes.io/unreachable", NoExecute),
        ("node.kubernetes.io/disk-pressure", NoSchedule),
        ("node.kubernetes.io/memory-pressure", NoSchedule),
        ("node.kubernetes.io/pid-pressure", NoSchedule),
        ("node.kubernetes.io/unschedulable", NoSchedule),
    ];
    for (key, effect) in always.into_iter().chain(network) {
        let toleration = Toleration {
            key: Text::from(key),
            operator: Some(TolerationOperator::Exists),
            value: Text::default(),
            effect: Some(effect),
        };
        if !spec.tolerations.contains(&toleration) {
            spec.tolerations.push(toleration);
        }
    }
}
