//! The status of a GPUInfo, from the estate. Pure: nothing is read or written here.

use millpond_api::condition::{Conditions, FALSE, READY, TRUE, UNKNOWN};
use millpond_api::gpu_info::{
    Availability, CandidateStatus, GPUInfoSpec, GPUInfoStatus, INVENTORY_FRESH, NONE_AVAILABLE, NodeReservation,
    RESERVED, RejectedStatus, ReservationStatus, Toleration,
};
use millpond_api::karpenter::TaintEffect;
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_plan::gpu::{Candidate, Choice, Excluded, Hysteresis, Job, Rejection, Score, Undisturbed, choose};
use millpond_vsphere::Freshness;

use crate::devices::is_gpu_resource;
use crate::estate::{Estate, NodeView};
pub use crate::proposal::proposal;

/// Nodes that a status lists; more make the object too large for its watchers.
const LIMIT_CANDIDATES: usize = 10;
/// The same for nodes that do not fit.
const LIMIT_REJECTED: usize = 100;
/// Taints that follow from conditions and from cordoning, which have reasons of their own.
const FOLLOWING_TAINTS: [&str; 3] =
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"];

/// The properties of a GPUInfo besides its spec.
#[derive(Clone, Debug, Default)]
pub struct Asking<'a> {
    /// Its uid; empty for a question from the command line.
    pub uid: &'a str,
    /// Its generation.
    pub generation: i64,
    /// The last answer.
    pub last: Option<&'a GPUInfoStatus>,
}

/// The nodes for a job, best first, and why not the others.
#[derive(Debug)]
pub struct Ranking<'e> {
    /// Suitable nodes.
    pub suitable: Vec<(&'e NodeView, Score)>,
    /// The others with their reasons, by name.
    pub rejected: Vec<(&'e NodeView, Rejection)>,
}

impl<'e> Ranking<'e> {
    /// The answer.
    pub fn best(&self) -> Option<&'e NodeView> {
        self.suitable.first().map(|(node, _)| *node)
    }

    /// Ranks all nodes for a job. `pinned` is a node that stays the choice as long as it is suitable.
    pub fn new(
        estate: &'e Estate,
        spec: &GPUInfoSpec,
        own: Option<&str>,
        last: Option<&str>,
        pinned: Option<&str>,
    ) -> Self {
        let job = job(spec);
        let candidates: Vec<Candidate> = estate.nodes.iter().map(|node| candidate(node, spec, own)).collect();
        let Choice { mut suitable, rejected, .. } = choose(&job, &candidates, last, &Hysteresis::default());
        if let Some(at) = suitable.iter().position(|(index, _)| Some(candidates[*index].node.as_str()) == pinned) {
            suitable[..=at].rotate_right(1);
        }
        Self {
            suitable: suitable.into_iter().map(|(index, score)| (&estate.nodes[index], score)).collect(),
            rejected: rejected.into_iter().map(|(index, why)| (&estate.nodes[index], why)).collect(),
        }
    }

    /// Why nothing fits, in one word: the reason that is nearest to a fit.
    pub fn refusal(&self) -> &'static str {
        let nearest = [
            Rejection::NoFreeGPU,
            Rejection::TimeTooShort,
            Rejection::InMaintenance,
            Rejection::TooLittleGPUMemory,
            Rejection::WrongModel,
            Rejection::Excluded(Excluded::UntoleratedTaint),
            Rejection::Excluded(Excluded::SelectorMismatch),
            Rejection::HasGPU,
            Rejection::NoGPU,
        ];
        let is_there = |reason: &&Rejection| self.rejected.iter().any(|(_, why)| why == *reason);
        let found = nearest.iter().find(is_there).or(self.rejected.first().map(|(_, why)| why));
        found.map_or("NoNodes", |reason| reason.as_str())
    }

    /// How many nodes have which reason.
    pub fn summary(&self) -> String {
        if self.rejected.is_empty() {
            return "the cluster has no nodes".to_owned();
        }
        let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
        for (_, why) in &self.rejected {
            *counts.entry(why.as_str()).or_default() += 1;
        }
        let parts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        format!("0 of {} nodes fit: {}", self.rejected.len(), parts.join(", "))
    }
}

/// The job of a spec.
pub fn job(spec: &GPUInfoSpec) -> Job {
    Job {
        hours: u64::try_from(spec.des_acc_time).unwrap_or_default(),
        gpus: spec.gpus(),
        model: spec.gpu_model.clone(),
        min_gpu_memory_mib: spec
            .min_memory_gib
            .and_then(|memory| u64::try_from(memory).ok())
            .map(|memory| memory << 10),
        allow_gpu_nodes: spec.allow_gpu_nodes,
    }
}

fn candidate(node: &NodeView, spec: &GPUInfoSpec, own: Option<&str>) -> Candidate {
    let selects = || spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let tolerated = || {
        let forbids = |taint: &&k8s_openapi::api::core::v1::Taint| {
            let follows = FOLLOWING_TAINTS.contains(&taint.key.as_str());
            taint.effect != "PreferNoSchedule" && !follows && !(spec.gpu_required && is_gpu_resource(&taint.key))
        };
        node.taints.iter().filter(forbids).all(|taint| spec.tolerations.iter().any(|one| tolerates(one, taint)))
    };
    let excluded = match node.excluded {
        Some(excluded) => Some(excluded),
        None if !selects() => Some(Excluded::SelectorMismatch),
        None if node.undisturbed != Undisturbed::Now && !tolerated() => Some(Excluded::UntoleratedTaint),
        None => None,
    };
    Candidate {
        node: node.name.clone(),
        excluded,
        undisturbed: node.undisturbed,
        gpus: node.gpus.as_ref().map_or(0, |gpus| gpus.total),
        free_gpus: node.free(own),
        models: node.models.clone(),
        gpu_memory_mib: node.gpu_memory_mib,
        cpu_demand_mhz: node.load.cpu,
        memory_mib: node.load.memory_mib,
    }
}

fn tolerates(toleration: &Toleration, taint: &k8s_openapi::api::core::v1::Taint) -> bool {
    let effect = toleration.effect.map(|effect| match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    });
    let key = toleration.key.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    effect.is_none_or(|effect| effect == taint.effect) && (key.is_empty() || key == taint.key) && (exists || value)
}

/// Why a node does not fit, in a sentence.
pub fn explain(node: &NodeView, why: Rejection, spec: &GPUInfoSpec, own: Option<&str>) -> String {
    let job = job(spec);
    let event = || node.event.as_ref().map_or_else(String::new, |event| format!(": {}", event.message));
    match why {
        Rejection::Excluded(Excluded::AmbiguousVM) => {
            format!("{} virtual machines match the node by UUID or name", node.machines)
        }
        Rejection::Excluded(Excluded::VMNotFound) => "no virtual machine matches the node".to_owned(),
        Rejection::Excluded(Excluded::HostDisconnected) => "the host of the node is not connected".to_owned(),
        Rejection::Excluded(Excluded::PermissionDenied) => {
            let what = node.denied.as_deref().unwrap_or_default();
            format!("the account may not read all of the node's machine and host: {what}")
        }
        Rejection::Excluded(Excluded::NotReady) => "the node is not ready".to_owned(),
        Rejection::Excluded(Excluded::Unschedulable) => "the node is cordoned".to_owned(),
        Rejection::Excluded(Excluded::SelectorMismatch) => "the node lacks a label of nodeSelector".to_owned(),
        Rejection::Excluded(Excluded::UntoleratedTaint) => {
            let names: Vec<&str> = node.taints.iter().map(|taint| taint.key.as_str()).collect();
            format!("the job does not tolerate a taint of the node ({})", names.join(", "))
        }
        Rejection::NoGPU => "the node has no GPU".to_owned(),
        Rejection::HasGPU => "the node has GPUs, which the job does not need".to_owned(),
        Rejection::WrongModel => {
            let model = node.model.as_deref().unwrap_or("of an unknown model");
            format!("the GPUs are {model}, not {}", job.model.unwrap_or_default())
        }
        Rejection::TooLittleGPUMemory => match node.gpu_memory_mib {
            Some(memory) => format!("a GPU has {} GiB of memory", memory >> 10),
            None => "the memory of a GPU is unknown".to_owned(),
        },
        Rejection::InMaintenance => format!("the node is being disturbed{}", event()),
        Rejection::TimeTooShort => format!("{} of {} hours are left{}", node.undisturbed.hours(), job.hours, event()),
        Rejection::NoFreeGPU => {
            let total = node.gpus.as_ref().map_or(0, |gpus| gpus.total);
            format!("{} of {total} GPUs are free, the job needs {}", node.free(own), job.gpus)
        }
    }
}

/// Hours that a status shows.
pub(crate) fn hours(undisturbed: Undisturbed) -> i64 {
    i64::try_from(undisturbed.hours()).unwrap_or(i64::MAX)
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Where the time of a node comes from.
fn availability(node: &NodeView, estate: &Estate) -> Availability {
    let source = node.event.as_ref().map_or("Assumed", |event| event.source);
    let until = node.event.as_ref().and_then(|event| event.at).map(Time);
    let event = node.event.as_ref().map(|event| event.message.as_str());
    let mut message = event.unwrap_or("no event is known that will disturb the node").to_owned();
    if estate.tasks_unreadable.is_some() {
        message += "; scheduled tasks of vCenter cannot be read";
    }
    Availability { source: source.to_owned(), until, message }
}

/// Whether the node of the last answer has lost its machine or its host, or may not be read any more: then the answer is kept until that is cured.
fn lost(estate: &Estate, last: Option<&GPUInfoStatus>) -> Option<(&'static str, String)> {
    let node = estate.node(&last?.suitable_node_name)?;
    match node.excluded? {
        why @ (Excluded::VMNotFound | Excluded::HostDisconnected | Excluded::PermissionDenied)
            if estate.freshness == Freshness::Fresh =>
        {
            let message = explain(node, Rejection::Excluded(why), &GPUInfoSpec::default(), None);
            Some((Rejection::Excluded(why).as_str(), format!("node {}: {message}", node.name)))
        }
        _ => None,
    }
}

/// Why the last answer is kept, if it is.
pub fn kept(estate: &Estate, last: Option<&GPUInfoStatus>) -> Option<(&'static str, String)> {
    estate.stale().or_else(|| lost(estate, last))
}

/// The state of a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// No reservation was requested.
    #[default]
    Unasked,
    /// The node's annotation has it.
    Held(String, NodeReservation),
    /// Its pod did not come in time, or its pod has ended; the message says which.
    Over(ReservationStatus, String),
    /// It could not be made.
    Refused(&'static str, String),
}

/// The new status.
pub fn status(
    estate: &Estate,
    spec: &GPUInfoSpec,
    asking: &Asking<'_>,
    ranking: &Ranking<'_>,
    keeping: &Keeping,
) -> GPUInfoStatus {
    let mut status = asking.last.cloned().unwrap_or_default();
    let kept = kept(estate, asking.last);
    if kept.is_none() {
        fill(&mut status, spec, asking, (estate, ranking));
        status.proposal = proposal(estate, spec, ranking);
    } else if status.suitable_node_name.is_empty() {
        NONE_AVAILABLE.clone_into(&mut status.suitable_node_name);
        NONE_AVAILABLE.clone_into(&mut status.suitable_host_name);
    }
    status.reservation = match keeping {
        Keeping::Unasked | Keeping::Refused(..) => None,
        Keeping::Over(ended, _) => Some(ended.clone()),
        Keeping::Held(node, entry) => Some(ReservationStatus {
            node: node.clone(),
            gpus: number(entry.gpus),
            phase: if entry.pod.is_some() { "Claimed" } else { "Waiting" }.to_owned(),
            until: Some(entry.until),
            generation: entry.generation,
            pod: entry.pod.clone(),
        }),
    };
    set_conditions(&mut status, estate, asking, ranking, keeping, kept.as_ref());
    status.observed_generation = asking.generation;
    // A time alone is no reason to write.
    if asking.last != Some(&status) {
        status.observed_at = Some(estate.observed_at).filter(|at| *at > 0).map(Time).or(status.observed_at);
    }
    status
}

fn fill(
    status: &mut GPUInfoStatus,
    spec: &GPUInfoSpec,
    asking: &Asking<'_>,
    (estate, ranking): (&Estate, &Ranking<'_>),
) {
    let own = Some(asking.uid).filter(|uid| !uid.is_empty());
    match ranking.best() {
        Some(node) => {
            status.suitable_node_name.clone_from(&node.name);
            status.suitable_host_name.clone_from(&node.host);
            status.node_memory_usage = number(node.load.memory_mib);
            status.node_cpu_usage = number(node.load.cpu);
            status.available_accelerator_time = hours(node.undisturbed);
            status.availability = Some(availability(node, estate));
        }
        None => {
            *status = GPUInfoStatus {
                suitable_node_name: NONE_AVAILABLE.to_owned(),
                suitable_host_name: NONE_AVAILABLE.to_owned(),
                conditions: std::mem::take(&mut status.conditions),
                observed_at: status.observed_at,
                ..GPUInfoStatus::default()
            };
        }
    }
    let candidate = |(node, score): &(&NodeView, Score)| CandidateStatus {
        node: node.name.clone(),
        host: node.host.clone(),
        cpu_demand: number(score.cpu_demand_mhz),
        gpus_left: number(score.gpus_left),
        fragments: score.fragments,
        available_hours: hours(node.undisturbed),
        assumed: score.is_assumed,
        memory: number(score.memory_mib),
    };
    status.candidates = ranking.suitable.iter().take(LIMIT_CANDIDATES).map(candidate).collect();
    let rejected = |(node, why): &(&NodeView, Rejection)| RejectedStatus {
        node: node.name.clone(),
        reason: why.as_str().to_owned(),
        message: explain(node, *why, spec, own),
    };
    status.rejected = ranking.rejected.iter().take(LIMIT_REJECTED).map(rejected).collect();
}

fn up_to_date(estate: &Estate) -> String {
    let but = |problem: &String| format!(", but its scheduled tasks cannot be read: {problem}");
    format!("the inventory of vCenter is up to date{}", estate.tasks_unreadable.as_ref().map(but).unwrap_or_default())
}

fn set_conditions(
    status: &mut GPUInfoStatus,
    estate: &Estate,
    asking: &Asking<'_>,
    ranking: &Ranking<'_>,
    keeping: &Keeping,
    kept: Option<&(&'static str, String)>,
) {
    let mut list = std::mem::take(&mut status.conditions);
    let mut conditions = Conditions::new(&mut list, &[], asking.generation, Time(estate.now));
    conditions.set(match kept {
        Some((reason, message)) => Condition::fails(INVENTORY_FRESH, reason, message),
        None if estate.freshness == Freshness::Unused => {
            let message = "no vCenter is configured; the answer is from Kubernetes data alone";
            Condition::new(INVENTORY_FRESH, TRUE, "KubernetesOnly", message)
        }
        None => Condition::new(INVENTORY_FRESH, TRUE, "Fresh", up_to_date(estate)),
    });
    match keeping {
        Keeping::Unasked => {
            conditions.clear(RESERVED);
        }
        Keeping::Held(node, entry) => {
            let gpus = if entry.gpus == 1 { "1 GPU".to_owned() } else { format!("{} GPUs", entry.gpus) };
            let message = match &entry.pod {
                Some(pod) => format!("pod {pod} uses {gpus} of node {node}"),
                None => format!("{gpus} of node {node} reserved for a pod until {}", entry.until),
            };
            let reason = if entry.pod.is_some() { "Claimed" } else { RESERVED };
            conditions.set(Condition::new(RESERVED, TRUE, reason, message));
        }
        Keeping::Over(ended, message) => {
            conditions.set(Condition::new(RESERVED, FALSE, &ended.phase, message.as_str()));
        }
        Keeping::Refused(reason, message) => {
            conditions.set(Condition::fails(RESERVED, reason, message.as_str()));
        }
    }
    conditions.set(match (kept, ranking.best()) {
        (Some((reason, _)), _) => {
            Condition::new(READY, UNKNOWN, reason, "the answer is the last one: the inventory is not fresh")
        }
        (None, Some(node)) => Condition::new(READY, TRUE, "NodeFound", format!("node {} fits the job", node.name)),
        (None, None) => Condition::new(READY, FALSE, ranking.refusal(), ranking.summary()),
    });
    status.conditions = list;
}
