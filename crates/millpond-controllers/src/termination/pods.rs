//! Which pods leave a node next, and how: evicted, deleted, or waited for. Pure; the rules are Karpenter's.
//!
//! ```text
//! tier  1 workloads ─▶ 2 daemons ─▶ 3 critical workloads ─▶ 4 critical daemons      (each empty before the next)
//! ```
//!
//! Not waited for: pods that tolerate the taint of a leaving node, static pods, pods that have ended, and pods that
//! should have been gone a minute ago (no kubelet is left to stop them).
//!
//! Of a tier the large ones leave first: they are made anew first, and find their place while nodes still have much left.
//! What is left for the small ones is in pieces, and enough for them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use millpond_api::karpenter::{DISRUPTED_TAINT, DO_NOT_DISRUPT};
use millpond_api::{amounts, duration};
use millpond_runtime::meta::{annotation, has_ended};

/// A pod that is still there so long after it should have been gone is not waited for.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// Cores and memory of pods are compared as if a core were worth so many bytes.
const BYTES_OF_A_CORE: i64 = 4 << 30;
/// What a pod has for its end when it does not say.
const DEFAULT_GRACE_SECONDS: i64 = 30;
/// The shortest time that a pod is given: with none, it would be forgotten while it may still run.
const LEAST_GRACE_SECONDS: i64 = 1;
/// Annotation of the pods that a kubelet has from its own files.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
/// Classes of pods that leave last.
const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// Who leaves together. Lower ones leave first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    Workload,
    Daemon,
    CriticalWorkload,
    CriticalDaemon,
}

impl Tier {
    fn of(pod: &Pod) -> Self {
        let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()).unwrap_or_default();
        match (CRITICAL.contains(&class), is_owned_by(pod, "apps/v1", "DaemonSet")) {
            (false, false) => Self::Workload,
            (false, true) => Self::Daemon,
            (true, false) => Self::CriticalWorkload,
            (true, true) => Self::CriticalDaemon,
        }
    }

    /// Its pods, in words.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Workload => "pods",
            Self::Daemon => "daemon pods",
            Self::CriticalWorkload => "critical pods",
            Self::CriticalDaemon => "critical daemon pods",
        }
    }
}

/// What is to be done about the pods of a node now.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Drain {
    /// To be evicted: they go if their budgets allow it.
    pub(super) evict: Vec<Arc<Pod>>,
    /// To be deleted with so many seconds for their end: the time of the node is running out.
    pub(super) delete: Vec<(Arc<Pod>, u32)>,
    /// Of the tier that leaves now: those that ask not to be disrupted.
    pub(super) held: Vec<Arc<Pod>>,
    /// The tier that leaves now; `None` when all have left.
    pub(super) tier: Option<Tier>,
    /// Pods of all tiers that are yet to go.
    pub(super) left: usize,
    /// When to look again if no pod changes until then.
    pub(super) again: Option<Timestamp>,
}

/// What is to be done now about pods that share a node which must be gone by the deadline, if it has one.
pub(super) fn drain(pods: &[Arc<Pod>], now: Timestamp, deadline: Option<Timestamp>) -> Drain {
    let waiting: Vec<&Arc<Pod>> = pods.iter().filter(|pod| !has_ended(pod) && is_drainable(pod, now)).collect();
    let tier = waiting.iter().map(|pod| Tier::of(pod)).min();
    let mut drain = Drain { tier, left: waiting.len(), ..Drain::default() };
    for pod in waiting {
        let mut moments = vec![deletion(pod).map(|end| after(end, STUCK_AFTER))];
        if let Some(deadline) = deadline {
            let due = after(deadline, SignedDuration::from_secs(-grace_seconds(pod)));
            if due > now {
                moments.push(Some(due));
            } else if let Some(seconds) = shortened(pod, now, deadline) {
                drain.delete.push((Arc::clone(pod), seconds));
                continue;
            }
        }
        if Some(Tier::of(pod)) == tier && deletion(pod).is_none() {
            match held(pod, now) {
                Held::No => drain.evict.push(Arc::clone(pod)),
                Held::Always => drain.held.push(Arc::clone(pod)),
                Held::Until(end) => {
                    drain.held.push(Arc::clone(pod));
                    moments.push(Some(end));
                }
            }
        }
        drain.again = moments.into_iter().flatten().chain(drain.again).filter(|moment| *moment > now).min();
    }
    drain.evict.sort_by_cached_key(|pod| Reverse(size(pod)));
    drain
}

/// How much a pod asks for, in thousandths of a core. What cannot be read counts for nothing.
fn size(pod: &Pod) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let amount = |requests: &BTreeMap<String, Quantity>, name: &str| {
        requests.get(name).and_then(|quantity| amounts::parse(name, &quantity.0).ok()).unwrap_or(0)
    };
    requests.map(|it| amount(it, "cpu") + amount(it, "memory") / (BYTES_OF_A_CORE / 1000)).sum()
}

/// The time that a pod gets when it is deleted for the node's sake; `None` if it ends in time by itself.
fn shortened(pod: &Pod, now: Timestamp, deadline: Timestamp) -> Option<u32> {
    let latest = deadline.max(after(now, SignedDuration::from_secs(LEAST_GRACE_SECONDS)));
    let seconds = latest.duration_since(now).as_secs();
    deletion(pod).is_none_or(|end| end > latest).then(|| u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// Whether the node waits for a pod to go, unless it has ended.
pub(super) fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    let stuck = deletion(pod).is_some_and(|end| after(end, STUCK_AFTER) <= now);
    !stuck && !is_static(pod) && !tolerates_disruption(pod)
}

/// Whether a pod asks not to be disrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    No,
    Always,
    Until(Timestamp),
}

fn held(pod: &Pod, now: Timestamp) -> Held {
    let Some(text) = annotation(pod, DO_NOT_DISRUPT) else { return Held::No };
    if text == "true" {
        return Held::Always;
    }
    let Some(seconds) = protection_seconds(text) else { return Held::No };
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    // Without a start the time has not begun.
    let Some(started) = started else { return Held::Always };
    match after(started.0, SignedDuration::from_secs(seconds)) {
        end if end > now => Held::Until(end),
        _ => Held::No,
    }
}

/// Whether the wish of a pod not to be disrupted cannot be read, and does not count.
pub(super) fn is_misspelt(pod: &Pod) -> bool {
    annotation(pod, DO_NOT_DISRUPT).is_some_and(|text| text != "true" && protection_seconds(text).is_none())
}

fn protection_seconds(text: &str) -> Option<i64> {
    duration::parse_seconds(text).ok().filter(|seconds| *seconds > 0)
}

/// When a pod that is leaving should be gone.
fn deletion(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref().map(|time| time.0)
}

/// What a pod has for its end.
pub(super) fn grace_seconds(pod: &Pod) -> i64 {
    pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(DEFAULT_GRACE_SECONDS)
}

fn is_static(pod: &Pod) -> bool {
    is_owned_by(pod, "v1", "Node") || annotation(pod, MIRROR_ANNOTATION).is_some()
}

fn is_owned_by(pod: &Pod, api_version: &str, kind: &str) -> bool {
    pod.owner_references().iter().any(|owner| owner.api_version == api_version && owner.kind == kind)
}

fn tolerates_disruption(pod: &Pod) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(tolerates)
}

fn tolerates(toleration: &Toleration) -> bool {
    let fits = |word: &Option<String>, wanted: &str| word.as_deref().is_none_or(|it| it.is_empty() || it == wanted);
    let value = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => fits(&toleration.value, ""),
        Some("Exists") => true,
        Some(_) => false,
    };
    value && fits(&toleration.effect, "NoSchedule") && fits(&toleration.key, DISRUPTED_TAINT)
}

/// A moment before or after another.
pub(super) fn after(moment: Timestamp, time: SignedDuration) -> Timestamp {
    moment.saturating_add(time).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
