//! GPUs that are kept for a GPUInfo: which entries of which node count, which end, which are to be made. Pure.
//!
//! The annotation of the Node is the truth. It is written with the resource version of the Node that was read, so that of
//! two writers one loses and reads again: a GPU is never kept twice. The status of the GPUInfo follows. Its end is written
//! the other way round, the status first, so that a controller that is killed in between does not begin anew.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use kube::ResourceExt as _;
use millpond_api::gpu_info::{CLAIM_GATE, GPUInfoStatus, NodeReservation, ReservationStatus};
use millpond_api::time::Time;
use millpond_runtime::meta::node_name;

use crate::answer::{Keeping, Ranking};
use crate::estate::{Estate, Facts, claiming_pods};
use crate::kinds::GPUInfo;

/// A node whose annotation is to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The node.
    pub node: String,
    /// All its entries from then on.
    pub entries: Vec<NodeReservation>,
}

/// Pods that claim, by GPUInfo.
pub(crate) struct Claims<'f>(HashMap<(String, String), Vec<&'f Arc<Pod>>>);

impl<'f> Claims<'f> {
    pub(crate) fn new(facts: &'f Facts) -> Self {
        Self(claiming_pods(facts))
    }

    pub(crate) fn of(&self, info: &GPUInfo) -> &[&'f Arc<Pod>] {
        let key = (info.namespace().unwrap_or_default(), info.name_any());
        self.0.get(&key).map(Vec::as_slice).unwrap_or_default()
    }

    /// A pod that waits for the GPUs of a reservation: it has no node, and may get one.
    pub(crate) fn waiting(&self, info: &GPUInfo) -> Option<&'f Arc<Pod>> {
        self.pending(info).find(|pod| gates(pod).is_empty())
    }

    /// A pod that waits to be pinned to the node of a reservation, unless another one has come before it.
    pub(crate) fn gated(&self, info: &GPUInfo) -> Option<&'f Arc<Pod>> {
        let is_gated = |pod: &&Arc<Pod>| gates(pod).iter().any(|gate| gate.name == CLAIM_GATE);
        let other = self.of(info).iter().any(|pod| node_name(pod).is_some()) || self.waiting(info).is_some();
        if other { None } else { self.pending(info).find(is_gated) }
    }

    fn pending(&self, info: &GPUInfo) -> impl Iterator<Item = &'f Arc<Pod>> {
        let waits = |pod: &&'f Arc<Pod>| node_name(pod).is_none() && pod.metadata.deletion_timestamp.is_none();
        self.of(info).iter().copied().filter(waits)
    }
}

/// The scheduling gates of a pod.
pub(crate) fn gates(pod: &Pod) -> &[PodSchedulingGate] {
    pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default()
}

/// The state of a node's entry.
enum Fate {
    Stays,
    Claimed(String),
    /// The status of its GPUInfo says so first.
    Over(&'static str, String),
    Goes,
}

/// The entry of a GPUInfo that counts: where its status says, else the first.
pub(crate) fn held(estate: &Estate, uid: &str, last: Option<&GPUInfoStatus>) -> Option<(String, NodeReservation)> {
    let of_node = |node: &crate::estate::NodeView| {
        node.reservations.iter().find(|entry| entry.uid == uid).map(|entry| (node.name.clone(), entry.clone()))
    };
    let told = last.and_then(|status| status.reservation.as_ref()).and_then(|told| estate.node(&told.node));
    told.and_then(of_node).or_else(|| estate.nodes.iter().find_map(of_node))
}

/// The reservation of a status that is over, if it is, and the generation that it was for.
fn is_over(last: Option<&GPUInfoStatus>, generation: i64) -> Option<&ReservationStatus> {
    let told = last?.reservation.as_ref()?;
    (matches!(told.phase.as_str(), "Expired" | "Ended") && told.generation == generation).then_some(told)
}

fn fate(entry: &NodeReservation, node: &str, info: Option<&Arc<GPUInfo>>, claims: &Claims<'_>, now: i64) -> Fate {
    let Some(info) = info.filter(|info| info.metadata.deletion_timestamp.is_none()) else { return Fate::Goes };
    let generation = info.metadata.generation.unwrap_or_default();
    let Some(reserve) = &info.spec.reserve else { return Fate::Goes };
    let bound: Option<(&str, String)> = claims.of(info).iter().find_map(|pod| Some((node_name(pod)?, pod.name_any())));
    if let Some(pod) = &entry.pod {
        let runs = claims.of(info).iter().any(|found| found.name_any() == *pod && node_name(found) == Some(node));
        if !runs {
            return Fate::Over("Ended", format!("pod {pod} has ended"));
        }
        return Fate::Stays;
    }
    let wanted = reserve.gpus.and_then(|gpus| u64::try_from(gpus).ok()).unwrap_or_else(|| info.spec.gpus());
    if entry.generation != generation || entry.gpus != wanted {
        return Fate::Goes;
    }
    match bound {
        Some((at, pod)) if at == node => Fate::Claimed(pod),
        Some((at, pod)) => Fate::Over("Ended", format!("pod {pod} runs on node {at}")),
        None if entry.until.0 <= now => {
            Fate::Over("Expired", format!("no pod claimed the GPUs of node {node} until {}", entry.until))
        }
        None => Fate::Stays,
    }
}

/// The annotations after all reservations that end, or that are given to their pods.
pub(crate) fn sweep(estate: &Estate, facts: &Facts, claims: &Claims<'_>) -> Vec<Change> {
    let infos: HashMap<String, &Arc<GPUInfo>> =
        facts.infos.iter().filter_map(|info| Some((info.uid()?, info))).collect();
    let mut changes = Vec::new();
    for node in estate.nodes.iter().filter(|node| !node.reservations.is_empty()) {
        let mut entries = Vec::new();
        // A node without GPUs is one whose device plugin starts again: no other pod can have taken them.
        let mut room = node.gpus.as_ref().map_or(u64::MAX, |gpus| gpus.total.saturating_sub(gpus.requested));
        for entry in &node.reservations {
            let info = infos.get(&entry.uid).copied();
            let last = info.and_then(|info| info.status.as_ref());
            let elsewhere = held(estate, &entry.uid, last).is_some_and(|(at, _)| at != node.name);
            match fate(entry, &node.name, info, claims, estate.now) {
                _ if elsewhere => {}
                Fate::Goes => {}
                Fate::Over(..) if is_over(last, entry.generation).is_some() => {}
                Fate::Claimed(pod) => entries.push(NodeReservation { pod: Some(pod), ..entry.clone() }),
                // Other pods have taken the GPUs: there is nothing left to keep.
                Fate::Stays if entry.pod.is_none() && entry.gpus > room => {}
                Fate::Stays | Fate::Over(..) => {
                    if entry.pod.is_none() {
                        room = room.saturating_sub(entry.gpus);
                    }
                    entries.push(entry.clone());
                }
            }
        }
        if entries != node.reservations {
            changes.push(Change { node: node.name.clone(), entries });
        }
    }
    changes
}

/// The next write for a GPUInfo.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing has to be written to a node.
    Keep(Keeping),
    /// This entry has to be written first.
    Write(Change, NodeReservation),
}

/// Decides about the reservation of one GPUInfo.
pub(crate) fn step(
    estate: &Estate,
    info: &Arc<GPUInfo>,
    ranking: &Ranking<'_>,
    claims: &Claims<'_>,
    is_kept: Option<&(&'static str, String)>,
) -> Step {
    let (uid, generation) = (info.uid().unwrap_or_default(), info.metadata.generation.unwrap_or_default());
    let Some(reserve) = &info.spec.reserve else { return Step::Keep(Keeping::Unasked) };
    let last = info.status.as_ref();
    let held = held(estate, &uid, last);
    if let Some((node, entry)) = &held {
        if let Fate::Over(phase, message) = fate(entry, node, Some(info), claims, estate.now) {
            let ended = ReservationStatus {
                node: node.clone(),
                gpus: i64::try_from(entry.gpus).unwrap_or(i64::MAX),
                phase: phase.to_owned(),
                until: Some(entry.until),
                generation: entry.generation,
                pod: entry.pod.clone(),
            };
            return Step::Keep(Keeping::Over(ended, message));
        }
        let still_fits = ranking.suitable.iter().any(|(suitable, _)| suitable.name == *node);
        if still_fits || entry.pod.is_some() || is_kept.is_some() || ranking.best().is_none() {
            return Step::Keep(Keeping::Held(node.clone(), entry.clone()));
        }
    } else if let Some(ended) = is_over(last, generation) {
        let told = last.and_then(|status| millpond_api::condition::find(&status.conditions, "Reserved"));
        return Step::Keep(Keeping::Over(ended.clone(), told.map(|told| told.message.clone()).unwrap_or_default()));
    }
    if let Some((reason, _)) = is_kept {
        let message = "nothing is reserved while the inventory is not fresh".to_owned();
        return Step::Keep(Keeping::Refused(reason, message));
    }
    let Some(best) = ranking.best() else {
        return Step::Keep(Keeping::Refused(ranking.refusal(), ranking.summary()));
    };
    let resource = best.gpus.as_ref().map(|gpus| gpus.resource.clone()).unwrap_or_default();
    let gpus = reserve.gpus.and_then(|gpus| u64::try_from(gpus).ok()).unwrap_or_else(|| info.spec.gpus());
    let entry = NodeReservation {
        gpuinfo: format!("{}/{}", info.namespace().unwrap_or_default(), info.name_any()),
        uid,
        resource,
        gpus,
        until: Time(estate.now.saturating_add(reserve.ttl_seconds())),
        generation,
        pod: None,
    };
    let mut entries = best.reservations.clone();
    entries.push(entry.clone());
    Step::Write(Change { node: best.name.clone(), entries }, entry)
}

/// When the next reservation ends without an event.
pub(crate) fn next_end(estate: &Estate) -> Option<i64> {
    let waiting = estate.nodes.iter().flat_map(|node| &node.reservations).filter(|entry| entry.pod.is_none());
    waiting.map(|entry| entry.until.0).filter(|until| *until > estate.now).min()
}
