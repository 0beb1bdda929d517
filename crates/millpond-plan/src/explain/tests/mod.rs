//! The pod `default/web` of many small clusters, explained. What is expected stands in `expected.txt`, as a person
//! would read it.

mod labels;
mod neighbours;
mod placed;
mod pools;
mod sizes;
mod stock_and_limits;

use super::{PodExplanation, Subject, explain_pod, words};
use crate::check::check;
use crate::cluster_state::ClusterState;
use crate::market::{Market, Usage};
use crate::model::Snapshot;
use crate::testing::Cluster;

/// A name, and a cluster with a pod `default/web`.
type Case = (&'static str, Cluster);

/// Two types in two zones, on demand and as spot capacity, and a pool of both.
fn shop() -> Cluster {
    shop_without_pool().pool("default", |pool| pool)
}

fn shop_without_pool() -> Cluster {
    Cluster::new()
        .machine("m.large", "cpu=2 memory=8Gi", |machine| {
            machine
                .zones("us-1a us-1b")
                .price(96)
                .spot(35)
                .keeps("cpu=70m memory=1Gi")
                .label("family in m; size in large")
        })
        .machine("m.4xlarge", "cpu=16 memory=64Gi", |machine| {
            machine
                .zones("us-1a us-1b")
                .price(768)
                .spot(280)
                .keeps("cpu=110m memory=3Gi")
                .label("family in m; size in 4xlarge")
        })
}

fn all_cases() -> Vec<Case> {
    [labels::cases(), sizes::cases(), stock_and_limits::cases(), neighbours::cases(), placed::cases()].concat()
}

/// What a command would print.
fn render(snapshot: &Snapshot, explained: &PodExplanation) -> String {
    let mut text = String::new();
    match &explained.verdict {
        Some(verdict) => text.push_str(&format!("  {}: {}\n", verdict.rule, verdict.message)),
        None => text.push_str(&format!("  {}\n", explained.message)),
    }
    if let Some(verdict) = &explained.verdict
        && verdict.pools.len() > 1
    {
        for pool in &verdict.pools {
            let name = words::pool(snapshot, pool.pool);
            text.push_str(&format!("  | pool {name}: {}: {}\n", pool.rule, pool.message));
        }
    }
    for pool in explained.pools.iter().filter(|_| explained.verdict.is_some()) {
        let steps: Vec<String> = pool
            .steps
            .iter()
            .filter(|step| step.types_removed > 0)
            .map(|step| format!("{}{} -{}", step.rule, subject(snapshot, step.subject), step.types_removed))
            .collect();
        if !steps.is_empty() {
            text.push_str(&format!(
                "  types of {}: {}, {}\n",
                words::pool(snapshot, pool.pool),
                pool.types,
                steps.join(", ")
            ));
        }
    }
    for (rule, count) in &explained.nodes {
        text.push_str(&format!("  nodes that are there: {count} by {rule}\n"));
    }
    if explained.closed_nodes > 0 {
        text.push_str(&format!("  nodes that take no pods: {}\n", explained.closed_nodes));
    }
    if let Some(nearest) = &explained.nearest {
        text.push_str(&format!("  nearest: {}\n", nearest.message));
    }
    if let Some(suggestion) = &explained.suggestion {
        text.push_str(&format!("  hint: {}\n", suggestion.message));
    }
    text
}

fn subject(snapshot: &Snapshot, subject: Subject) -> String {
    match subject {
        Subject::Label(key) => format!("({})", words::label(snapshot, key)),
        Subject::Resource(resource) => format!("({})", snapshot.resources.name(resource)),
        Subject::Nodes => "(nodes)".to_owned(),
        Subject::Price => "(price)".to_owned(),
        _ => String::new(),
    }
}

#[test]
fn every_case_reads_as_expected() {
    let mut actual = String::new();
    for (name, cluster) in all_cases() {
        let snapshot = cluster.snapshot();
        let pod = snapshot.find_pod("default/web").expect("every case is about default/web");
        actual.push_str(&format!("{name}\n{}\n", render(&snapshot, &explain_pod(&snapshot, pod))));
    }
    let expected = include_str!("expected.txt");
    for (mine, theirs) in actual.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(mine, theirs, "all of it:\n{actual}");
    }
    assert_eq!(actual, expected, "all of it:\n{actual}");
}

#[test]
fn there_are_many_cases_and_each_has_its_own_name() {
    let cases = all_cases();
    let names: std::collections::BTreeSet<&str> = cases.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 60, "{} cases", cases.len());
    for issue in [
        "aws#1783",
        "aws#3211",
        "aws#5156",
        "aws#5975",
        "aws#8378",
        "karpenter#1212",
        "karpenter#2438",
        "autoscaler#1607",
    ] {
        assert!(names.iter().any(|name| name.contains(issue)), "no case for {issue}");
    }
}

#[test]
fn a_suggestion_holds_when_it_is_tried() {
    let mut tried = 0;
    for (name, cluster) in all_cases() {
        let snapshot = cluster.snapshot();
        let pod = snapshot.find_pod("default/web").expect("there");
        let Some(suggestion) = explain_pod(&snapshot, pod).suggestion else { continue };
        tried += 1;
        let edited = suggestion.edit.apply(&snapshot, snapshot.pods[pod.index()].class);
        let outcome = super::plan(&edited);
        assert!(outcome.plan.target(pod).is_some(), "{name}: {}", suggestion.message);
        assert_eq!(check(&edited, &outcome), [], "{name}");
    }
    assert!(tried >= 30, "{tried}");
}

#[test]
fn the_verdict_of_a_plan_is_that_of_the_explanation() {
    for (name, cluster) in all_cases() {
        let snapshot = cluster.snapshot();
        let pod = snapshot.find_pod("default/web").expect("there");
        let Some(verdict) = explain_pod(&snapshot, pod).verdict else { continue };
        if !snapshot.nodes.is_empty() || snapshot.pods.len() > 1 {
            continue;
        }
        let market = Market::new(&snapshot);
        let mut cluster = ClusterState::new(&snapshot, &market);
        let class = snapshot.pods[pod.index()].class;
        let plain = super::verdict(&snapshot, &market, &mut cluster, &Usage::by_pool(&snapshot), class);
        assert_eq!(plain, verdict, "{name}");
    }
}
