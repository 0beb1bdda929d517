//! Pods that wait, in groups of equal ones.

use std::collections::BTreeMap;

use millpond_plan::explain::{Edit, LimitOf, Subject, Suggestion};
use millpond_plan::model::{NodeState, PODS, PodClass, PodId, PodState, Resources, Snapshot};
use millpond_plan::plan::{Outcome, Target};
use serde::Serialize;
use serde_json::{Value, json};

use crate::format::{amount, plural};
use crate::pools;

/// Names that a group shows.
const MAX_NAMES: usize = 20;

/// What a group waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PendingState {
    /// No pool and no node takes it.
    NobodyFits,
    /// Nodes for it are on their way.
    BeingBought,
    /// A node that is there has room for it.
    WaitsForRoom,
    /// A scheduling gate holds it.
    Gated,
}

impl PendingState {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::NobodyFits => "nobody fits",
            Self::BeingBought => "being bought",
            Self::WaitsForRoom => "waits for room of its own",
            Self::Gated => "gated",
        }
    }
}

/// Pods that scheduling cannot tell apart and that wait for the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRow {
    /// Its name: the same as long as its pods ask for the same.
    pub id: String,
    /// What it waits for.
    pub state: PendingState,
    /// That in words.
    pub state_text: &'static str,
    /// How many pods.
    pub pods: usize,
    /// Their namespace.
    pub namespace: String,
    /// What made them, such as `Deployment/web`.
    pub owner: Option<String>,
    /// Some of their names.
    pub names: Vec<String>,
    /// When the oldest was made.
    pub oldest_at: Option<i64>,
    /// What each asks for.
    pub requests: String,
    /// The rule that keeps it out, where nothing takes it.
    pub rule: Option<&'static str>,
    /// Why it waits.
    pub sentence: String,
    /// Whether a fix is known; not known before it was asked for.
    pub has_fix: Option<bool>,
}

/// What a pod waits for; pods that differ in it are in different groups.
struct Wait {
    state: PendingState,
    rule: Option<&'static str>,
    sentence: String,
}

/// All groups, those without a place first, the largest first.
pub fn groups(
    snapshot: &Snapshot,
    outcome: &Outcome,
    owner: &dyn Fn(&str, &str) -> Option<String>,
) -> Vec<(GroupRow, PodId)> {
    let mut found: BTreeMap<(u32, PendingState), (Vec<PodId>, Wait)> = BTreeMap::new();
    for (index, pod) in snapshot.pods.iter().enumerate() {
        let id = PodId::from(index);
        if snapshot.class_of(id).is_buffer() || !matches!(pod.state, PodState::Pending | PodState::Gated) {
            continue;
        }
        let wait = wait(snapshot, outcome, id);
        let key = (pod.class.0, wait.state);
        found.entry(key).or_insert_with(|| (Vec::new(), wait)).0.push(id);
    }
    let mut all: Vec<(GroupRow, PodId)> =
        found.into_values().map(|(pods, wait)| row(snapshot, outcome, &pods, wait, owner)).collect();
    all.sort_by(|(one, _), (other, _)| {
        (one.state, std::cmp::Reverse(one.pods), &one.id).cmp(&(other.state, std::cmp::Reverse(other.pods), &other.id))
    });
    all
}

fn wait(snapshot: &Snapshot, outcome: &Outcome, id: PodId) -> Wait {
    let pod = &snapshot.pods[id.index()];
    let of = |state, sentence: String| Wait { state, rule: None, sentence };
    if pod.state == PodState::Gated {
        return of(PendingState::Gated, "a scheduling gate holds it; no plan is made".to_owned());
    }
    let target = pod.node.map(Target::Existing).or_else(|| outcome.plan.target(id));
    match target {
        Some(Target::Existing(node)) => {
            let node = &snapshot.nodes[node.index()];
            if node.state == NodeState::Starting {
                of(PendingState::BeingBought, format!("node {} starts, and has room for it", node.name))
            } else {
                of(PendingState::WaitsForRoom, format!("node {} has room for it", node.name))
            }
        }
        Some(Target::New(new)) => {
            let pool = &snapshot.pools[outcome.plan.new_nodes[new as usize].pool.index()].name;
            of(PendingState::BeingBought, format!("pool {pool} gets nodes for it"))
        }
        None => {
            let found = outcome.report.unplaced.binary_search_by_key(&id, |(pod, _)| *pod);
            let verdict = found.ok().map(|at| &outcome.report.verdicts[outcome.report.unplaced[at].1 as usize]);
            Wait {
                state: PendingState::NobodyFits,
                rule: verdict.map(|verdict| verdict.rule.name()),
                sentence: verdict.map_or_else(|| "the plan does not speak of it".to_owned(), |it| it.message.clone()),
            }
        }
    }
}

fn row(
    snapshot: &Snapshot,
    outcome: &Outcome,
    pods: &[PodId],
    wait: Wait,
    owner: &dyn Fn(&str, &str) -> Option<String>,
) -> (GroupRow, PodId) {
    let first = pods[0];
    let class = snapshot.class_of(first);
    let namespace = snapshot.text(class.namespace).to_owned();
    let names: Vec<String> =
        pods.iter().take(MAX_NAMES).map(|pod| snapshot.pods[pod.index()].name.to_string()).collect();
    let sentence = match bought(snapshot, outcome, pods) {
        Some(sentence) if wait.state == PendingState::BeingBought => sentence,
        _ => wait.sentence,
    };
    let row = GroupRow {
        id: group_id(snapshot, class, wait.state),
        state: wait.state,
        state_text: wait.state.text(),
        pods: pods.len(),
        owner: owner(&namespace, &names[0]),
        namespace,
        names,
        oldest_at: pods.iter().map(|pod| snapshot.pods[pod.index()].created).filter(|at| *at > 0).min(),
        requests: requests(snapshot, &class.requests),
        rule: wait.rule,
        sentence,
        has_fix: None,
    };
    (row, first)
}

/// `6 nodes of pool general come: 4 start, 2 are asked for`.
fn bought(snapshot: &Snapshot, outcome: &Outcome, pods: &[PodId]) -> Option<String> {
    let (mut starting, mut new) = (BTreeMap::new(), BTreeMap::new());
    for &pod in pods {
        let kept = snapshot.pods[pod.index()].node.map(Target::Existing);
        match kept.or_else(|| outcome.plan.target(pod))? {
            Target::Existing(node) => drop(starting.insert(node, snapshot.nodes[node.index()].pool)),
            Target::New(node) => drop(new.insert(node, Some(outcome.plan.new_nodes[node as usize].pool))),
        }
    }
    let mut names: Vec<&str> = starting
        .values()
        .chain(new.values())
        .flatten()
        .map(|pool| snapshot.pools[pool.index()].name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let of = match names[..] {
        [one] => format!(" of pool {one}"),
        _ => format!(" of {} pools", names.len()),
    };
    let all = starting.len() + new.len();
    let come = if all == 1 { "comes" } else { "come" };
    let start = if starting.len() == 1 { "starts" } else { "start" };
    let are = if new.len() == 1 { "is" } else { "are" };
    let parts = match (starting.len(), new.len()) {
        (0, asked) => format!("{asked} {are} to be asked for"),
        (started, 0) => format!("{started} {start}"),
        (started, asked) => format!("{started} {start}, {asked} {are} to be asked for"),
    };
    Some(format!("{}{of} {come}: {parts}", plural(all, "node")))
}

/// What a pod asks for, in words.
pub fn requests(snapshot: &Snapshot, requests: &Resources) -> String {
    let parts: Vec<String> = snapshot
        .resources
        .iter()
        .filter(|(resource, _)| *resource != PODS && requests.get(*resource) > 0)
        .map(|(resource, name)| {
            let amount = amount(name, requests.get(resource));
            if name == "memory" { amount } else { format!("{amount} {name}") }
        })
        .collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// FNV-1a over what the class says: symbols of one state keep their numbers.
fn group_id(snapshot: &Snapshot, class: &PodClass, state: PendingState) -> String {
    let text = format!("{}{class:?}{state:?}", snapshot.text(class.namespace));
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("g{:012x}", hash >> 16)
}

/// A tried fix as a page shows it: with a patch where it is a change of a pool's limits. Other changes are told in words: lists
/// in pools and templates of pods are edited by their owners.
pub fn fix(snapshot: &Snapshot, suggestion: &Suggestion) -> Value {
    let patch = patch(snapshot, &suggestion.edit);
    let what_if = patch.as_ref().map(|patch| json!({ "patches": [patch] }));
    json!({ "sentence": suggestion.message, "tried": true, "patch": patch, "whatIf": what_if })
}

fn patch(snapshot: &Snapshot, edit: &Edit) -> Option<Value> {
    let Edit::RaiseLimit { of: LimitOf::Pool(pool), what, to } = edit else { return None };
    let (dialect, _, name) = pools::identity(&snapshot.pools[pool.index()].name);
    let resource = match what {
        Subject::Resource(resource) => snapshot.resources.name(*resource),
        Subject::Nodes => "nodes",
        _ => return None,
    };
    let amount = amount(resource, i64::try_from(*to).ok()?);
    let patch = json!({ "spec": { "limits": { resource: amount } } });
    (dialect == "karpenter").then(|| {
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "namespace": "", "name": name, "patch": patch,
        })
    })
}

#[cfg(test)]
mod tests {
    use millpond_plan::plan::Settings;
    use millpond_plan::testing::Cluster;

    use super::*;

    #[test]
    fn equal_pods_are_one_group_with_the_planners_reason() {
        let cluster = Cluster::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
            .pool("general", |pool| pool)
            .pods(3, "web", "cpu=1", |pod| pod)
            .pods(3, "huge", "cpu=64", |pod| pod);
        let snapshot = cluster.snapshot();
        let outcome = millpond_plan::plan(&snapshot, &Settings::default());
        let groups = groups(&snapshot, &outcome, &|_, name| Some(format!("Job/{}", &name[..name.len() - 2])));
        let told: Vec<(PendingState, usize, Option<String>)> =
            groups.iter().map(|(row, _)| (row.state, row.pods, row.owner.clone())).collect();
        assert_eq!(
            told,
            [
                (PendingState::NobodyFits, 3, Some("Job/huge".to_owned())),
                (PendingState::BeingBought, 3, Some("Job/web".to_owned())),
            ]
        );
        let explained = millpond_plan::explain::explain_in(&snapshot, &outcome, groups[0].1);
        assert_eq!(groups[0].0.sentence, explained.verdict.as_ref().unwrap().message, "the words of `explain`");
        assert!(groups[1].0.sentence.contains("of pool general come"), "{}", groups[1].0.sentence);
        assert_eq!(groups[1].0.requests, "1 cpu");
        assert_ne!(groups[0].0.id, groups[1].0.id);
    }
}
