//! When pods and the nodes that came for them got how far: what a slow run waited for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use millpond_api::condition::is_true;
use millpond_api::karpenter::conditions;
use millpond_controllers::cluster::Cluster;
use millpond_controllers::nominations::NOMINATED_PODS_ANNOTATION;
use millpond_runtime::meta::node_name;
use parking_lot::Mutex;

/// How far something got, in the order in which that happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    PodSeen,
    PodPromised,
    ClaimSeen,
    ProviderCalled,
    ClaimLaunched,
    NodeSeen,
    NodeRegistered,
    NodeReady,
    NodeInitialized,
    PodNominated,
    PodBound,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::PodSeen => "pod seen",
            Self::PodPromised => "pod promised a claim",
            Self::ClaimSeen => "claim written",
            Self::ProviderCalled => "provider called",
            Self::ClaimLaunched => "claim launched",
            Self::NodeSeen => "node made",
            Self::NodeRegistered => "node registered",
            Self::NodeReady => "node ready",
            Self::NodeInitialized => "node initialized",
            Self::PodNominated => "pod nominated",
            Self::PodBound => "pod bound",
        }
    }
}

/// When each pod, claim and node first got how far.
#[derive(Default)]
pub(super) struct Timeline(Mutex<BTreeMap<Step, HashMap<String, Instant>>>);

impl Timeline {
    /// Listens to a cluster.
    pub(super) fn of(cluster: &Cluster) -> Arc<Self> {
        let timeline = Arc::new(Self::default());
        let pods = Arc::clone(&timeline);
        cluster.pods.on_change(move |_, after| {
            let Some(pod) = after else { return };
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            pods.note(Step::PodSeen, name);
            if pod.status.as_ref().is_some_and(|status| status.nominated_node_name.is_some()) {
                pods.note(Step::PodNominated, name);
            }
            if node_name(pod).is_some() {
                pods.note(Step::PodBound, name);
            }
        });
        let claims = Arc::clone(&timeline);
        cluster.claims.on_change(move |_, after| {
            let Some(claim) = after else { return };
            let name = claim.name();
            claims.note(Step::ClaimSeen, name);
            for (kind, step) in [
                (conditions::LAUNCHED, Step::ClaimLaunched),
                (conditions::REGISTERED, Step::NodeRegistered),
                (conditions::INITIALIZED, Step::NodeInitialized),
            ] {
                if is_true(&claim.status.conditions, kind) {
                    claims.note(step, name);
                }
            }
            let promised = claim.annotations().get(NOMINATED_PODS_ANNOTATION).map_or("", String::as_str);
            for (_, pod) in promised.split_ascii_whitespace().filter_map(|pod| pod.split_once('/')) {
                claims.note(Step::PodPromised, pod);
            }
        });
        let nodes = Arc::clone(&timeline);
        cluster.nodes.on_change(move |_, after| {
            let Some(node) = after else { return };
            let name = node.metadata.name.as_deref().unwrap_or_default();
            nodes.note(Step::NodeSeen, name);
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            if conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
                nodes.note(Step::NodeReady, name);
            }
        });
        timeline
    }

    /// Records that an object reached a step for the first time.
    fn note(&self, step: Step, name: &str) {
        self.note_at(step, name, Instant::now());
    }

    /// The same, at another time.
    pub(super) fn note_at(&self, step: Step, name: &str, at: Instant) {
        let mut steps = self.0.lock();
        let known = steps.entry(step).or_default();
        if !known.contains_key(name) {
            known.insert(name.to_owned(), at);
        }
    }

    /// The steps since a time, in seconds after it.
    pub(super) fn table(&self, title: &str, since: Instant) -> String {
        let mut text =
            format!("\n{:<22}  {:>6}  {:>8}  {:>8}  {:>8}  {:>8}\n", title, "COUNT", "FIRST", "MEDIAN", "99 %", "LAST");
        for (step, times) in self.0.lock().iter() {
            let mut times: Vec<Duration> = times.values().filter_map(|at| at.checked_duration_since(since)).collect();
            times.sort_unstable();
            if times.is_empty() {
                continue;
            }
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64();
            text.push_str(&format!(
                "{:<22}  {:>6}  {:>8.3}  {:>8.3}  {:>8.3}  {:>8.3}\n",
                step.name(),
                times.len(),
                at(0.0),
                at(0.5),
                at(0.99),
                at(1.0)
            ));
        }
        text
    }
}
