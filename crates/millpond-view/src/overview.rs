//! The first page: one sentence, sums, and what needs attention.

use millpond_plan::model::{CPU, MEMORY, NodeId, NodeState, PodState, Snapshot};
use millpond_plan::plan::Outcome;
use serde::Serialize;

use crate::format::{grouped, plural};
use crate::pending::{GroupRow, PendingState};
use crate::pools::PoolRow;
use crate::totals::{Load, Totals};
use crate::units::{Money, Share};

/// The overview.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The time of the snapshot.
    pub now: i64,
    /// How things are.
    pub sentence: String,
    /// Pods in numbers.
    pub pods: PodCounts,
    /// Nodes in numbers.
    pub nodes: NodeCounts,
    /// What all nodes cost.
    pub cost: Money,
    /// The same for a month.
    pub cost_per_month: String,
    /// What any plan for these pods costs at least.
    pub bound: Option<Money>,
    /// How far the cost is above it, in thousandths.
    pub gap_permille: Option<i64>,
    /// What is requested of what is there.
    #[serde(rename = "use")]
    pub shares: Use,
    /// The limit that is reached first.
    pub limit: Option<NearestLimit>,
    /// Pools.
    pub pools: usize,
    /// What needs attention, the worst first.
    pub findings: Vec<Finding>,
}

/// Pods in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PodCounts {
    /// All that have not ended.
    pub all: usize,
    /// Those that wait.
    pub waiting: usize,
    /// In so many groups.
    pub groups: usize,
}

/// Nodes in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// All.
    pub all: usize,
    /// They take pods, or are cordoned.
    pub ready: usize,
    /// They are on their way.
    pub starting: usize,
    /// They go.
    pub leaving: usize,
    /// They should be ready and are not.
    pub not_ready: usize,
}

/// What is requested of what is there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Use {
    /// Of cpu.
    pub cpu: Share,
    /// Of memory.
    pub memory: Share,
}

/// The limit that is reached first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NearestLimit {
    /// The pool.
    pub pool: String,
    /// The resource.
    pub resource: String,
    /// It in words.
    pub text: String,
    /// The share in thousandths.
    pub permille: Option<i64>,
}

/// Something that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// It in words.
    pub sentence: String,
    /// Where to look.
    pub link: String,
}

/// How bad something is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something will not, or may not.
    Warning,
    /// To be known.
    Info,
}

/// The overview of a snapshot.
pub fn overview(
    snapshot: &Snapshot,
    outcome: &Outcome,
    loads: &[Load],
    pools: &[PoolRow],
    groups: &[GroupRow],
) -> Overview {
    let ids = (0..snapshot.nodes.len()).map(NodeId::from);
    let sum = Totals::of(snapshot, loads, ids);
    let cost = Money::new(sum.price, sum.nodes, sum.unpriced);
    let real = |class: usize| !snapshot.classes[class].is_buffer();
    let waiting: usize = groups.iter().map(|group| group.pods).sum();
    let pods = PodCounts {
        all: snapshot.pods.iter().filter(|pod| real(pod.class.index()) && pod.state != PodState::Terminating).count(),
        waiting,
        groups: groups.len(),
    };
    let is_known = sum.unpriced == 0 && outcome.report.bound > 0 && outcome.plan.new_nodes.is_empty();
    let bound = is_known.then(|| Money::new(outcome.report.bound, 1, 0));
    let gap = outcome.report.gap();
    Overview {
        now: snapshot.now,
        sentence: sentence(&pods, &cost, sum.nodes),
        pods,
        nodes: nodes(snapshot),
        cost_per_month: cost.per_month(),
        gap_permille: bound.as_ref().filter(|_| gap.is_finite()).map(|_| (gap * 1000.0).round() as i64),
        cost,
        bound,
        shares: Use {
            cpu: Share::new("cpu", sum.requests.get(CPU), sum.allocatable.get(CPU)),
            memory: Share::new("memory", sum.requests.get(MEMORY), sum.allocatable.get(MEMORY)),
        },
        limit: nearest_limit(pools),
        pools: pools.len(),
        findings: findings(snapshot, pools, groups),
    }
}

fn sentence(pods: &PodCounts, cost: &Money, nodes: usize) -> String {
    if nodes == 0 && pods.all == 0 {
        return "There are no nodes and no pods yet.".to_owned();
    }
    let placed = match (pods.all, pods.waiting) {
        (0, _) => "There are no pods.".to_owned(),
        (1, 0) => "The one pod has a place.".to_owned(),
        (all, 0) => format!("All {} pods have a place.", grouped(all as f64, 0)),
        (all, 1) => format!("1 of {} waits for a place.", plural(all, "pod")),
        (all, waiting) => format!("{} of {} wait for a place.", grouped(waiting as f64, 0), plural(all, "pod")),
    };
    format!("{placed} {}, {} an hour.", plural(nodes, "node"), cost.text.trim_end_matches("/h"))
}

fn nodes(snapshot: &Snapshot) -> NodeCounts {
    let mut counts = NodeCounts { all: snapshot.nodes.len(), ready: 0, starting: 0, leaving: 0, not_ready: 0 };
    for node in &snapshot.nodes {
        let count = match node.state {
            NodeState::Leaving => &mut counts.leaving,
            NodeState::Starting => &mut counts.starting,
            NodeState::Running if node.ready => &mut counts.ready,
            NodeState::Running => &mut counts.not_ready,
        };
        *count += 1;
    }
    counts
}

fn nearest_limit(pools: &[PoolRow]) -> Option<NearestLimit> {
    let all = pools.iter().flat_map(|pool| pool.limits.iter().map(move |limit| (pool, limit)));
    let (pool, limit) = all.max_by_key(|(_, limit)| limit.permille)?;
    let (text, permille) = (limit.text.clone(), limit.permille);
    Some(NearestLimit { pool: pool.name.clone(), resource: limit.resource.clone(), text, permille })
}

fn findings(snapshot: &Snapshot, pools: &[PoolRow], groups: &[GroupRow]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |severity, sentence: String, link: String| found.push(Finding { severity, sentence, link });
    for group in groups.iter().filter(|group| group.state == PendingState::NobodyFits) {
        let who = group.owner.as_ref().map_or_else(String::new, |owner| format!(" of {owner}"));
        let fits = if group.pods == 1 { "fits" } else { "fit" };
        let sentence = format!("{}{who} {fits} nowhere: {}", plural(group.pods, "pod"), group.sentence);
        add(Severity::Error, sentence, format!("/pending/{}", group.id));
    }
    for pool in pools {
        if let Some(why) = &pool.why_not_ready {
            add(Severity::Error, format!("pool {} is not ready: {why}", pool.name), format!("/pools/{}", pool.id));
        }
        for limit in pool.limits.iter().filter(|limit| limit.permille.is_some_and(|it| it >= 900)) {
            add(Severity::Warning, format!("pool {}: {}", pool.name, limit.text), format!("/pools/{}", pool.id));
        }
    }
    for node in snapshot.nodes.iter().filter(|node| node.state == NodeState::Running && !node.ready) {
        add(Severity::Warning, format!("node {} is not ready", node.name), format!("/nodes/{}", node.name));
    }
    let unpriced = snapshot.nodes.iter().filter(|node| node.price.is_none()).count();
    if unpriced > 0 {
        let has = if unpriced == 1 { "has" } else { "have" };
        let sentence = format!("{} {has} no known price: sums are lower bounds", plural(unpriced, "node"));
        add(Severity::Info, sentence, "/nodes".to_owned());
    }
    found.sort_by_key(|finding| finding.severity);
    found.truncate(MAX_FINDINGS);
    found
}

/// Findings that are shown; the pages that they link to show all.
const MAX_FINDINGS: usize = 50;

#[cfg(test)]
mod tests {
    use millpond_plan::plan::Settings;
    use millpond_plan::testing::Cluster;

    use super::*;
    use crate::{pending, pools, totals};

    fn of(snapshot: &Snapshot) -> Overview {
        let outcome = millpond_plan::plan(snapshot, &Settings::default());
        let loads = totals::loads(snapshot);
        let groups: Vec<GroupRow> =
            pending::groups(snapshot, &outcome, &|_, _| None).into_iter().map(|(row, _)| row).collect();
        overview(snapshot, &outcome, &loads, &pools::rows(snapshot, &loads), &groups)
    }

    #[test]
    fn the_first_sentence_says_how_things_are() {
        assert_eq!(of(&Cluster::new().snapshot()).sentence, "There are no nodes and no pods yet.");
        let cluster = || {
            Cluster::new()
                .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
                .pool("general", |pool| pool)
                .node("a", "small", |node| node.pool("general"))
                .pod("a-0", "cpu=1", |pod| pod.on("a"))
        };
        let fine = of(&cluster().snapshot());
        assert!(fine.sentence.starts_with("The one pod has a place. 1 node, $"), "{}", fine.sentence);
        assert_eq!((fine.nodes.ready, fine.shares.cpu.permille, fine.findings.len()), (1, Some(500), 0));
        let stuck = of(&cluster().pod("huge", "cpu=64", |pod| pod).snapshot());
        assert!(stuck.sentence.starts_with("1 of 2 pods waits for a place."), "{}", stuck.sentence);
        assert_eq!(stuck.findings[0].severity, Severity::Error);
        assert!(stuck.findings[0].link.starts_with("/pending/g"));
    }

    #[test]
    fn a_node_without_a_price_is_not_free() {
        let mut snapshot = Cluster::new()
            .machine("small", "cpu=2 memory=4Gi", |machine| machine.price(50))
            .node("a", "small", |node| node)
            .snapshot();
        snapshot.nodes[0].price = None;
        let overview = of(&snapshot);
        assert_eq!((overview.cost.nanos, overview.cost.text.as_str(), overview.bound), (None, "?", None));
        assert!(overview.sentence.ends_with("1 node, ? an hour."), "{}", overview.sentence);
    }
}
