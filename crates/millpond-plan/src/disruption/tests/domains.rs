//! Nodes that go while kube-scheduler would not let their pods come again in the zone that they are in.

use super::fixture::Cluster;
use crate::check::check;
use crate::disruption::node_verdict;
use crate::model::{
    AffinityTerm, ClassId, Drift, InclusionPolicy, Namespaces, NodeId, PoolId, Snapshot, Spread, TypeId,
};
use crate::plan::Settings;
use crate::requirement::{Requirement, Requirements};

const POOL: PoolId = PoolId(0);
/// The node that has drifted: the first one, always in zone a.
const DRIFTED: NodeId = NodeId(0);

/// A cluster around a drifted node of four cores.
struct Case {
    cluster: Cluster,
    small: TypeId,
    large: TypeId,
    filler: ClassId,
}

impl Case {
    /// Nodes of two cores and of four, for pods that mostly need nearly two.
    fn new() -> Self {
        let mut cluster = Cluster::new();
        let small = cluster.instance_type("small", 2, 8, 100);
        let large = cluster.instance_type("large", 4, 16, 150);
        cluster.node(POOL, large, "a");
        cluster.snapshot.nodes[0].drifted = Some(Drift::settled("image"));
        let filler = cluster.class("filler", 1900, 100);
        Self { cluster, small, large, filler }
    }

    fn class(&mut self, app: &str) -> ClassId {
        self.cluster.class(app, 1900, 100)
    }

    /// Pods on the drifted node.
    fn drifting(&mut self, classes: &[ClassId]) {
        classes.iter().for_each(|class| _ = self.cluster.pod(*class, DRIFTED));
    }

    /// A full node for each of these zones, with a pod of the class; all of them stay.
    fn settled(&mut self, class: ClassId, zones: &[&str]) {
        for zone in zones {
            let node = self.cluster.node(POOL, self.small, zone);
            self.cluster.pod(class, node);
            self.cluster.snapshot.nodes[node.index()].do_not_disrupt = true;
        }
    }

    /// Nodes in each zone that have no room, nor any pod that a rule is about.
    fn all_zones(&mut self) {
        self.settled(self.filler, &["a", "b", "c"]);
    }

    fn selector(&mut self, apps: &[&str]) -> Requirements {
        let symbols = &mut self.cluster.snapshot.symbols;
        let (key, apps) = (symbols.intern("app"), apps.iter().map(|app| symbols.intern(app)).collect::<Vec<_>>());
        let mut selector = Requirements::new();
        selector.add(key, Requirement::one_of(apps), symbols);
        selector
    }

    /// Spreads a class over zones by one, counting the pods of some apps.
    fn spread(&mut self, class: ClassId, apps: &[&str]) {
        let selector = Some(self.selector(apps));
        let (node_affinity, node_taints) = (InclusionPolicy::Honor, InclusionPolicy::Ignore);
        let key = self.cluster.snapshot.names.zone;
        let spread = Spread { key, max_skew: 1, min_domains: None, hard: true, selector, node_affinity, node_taints };
        self.cluster.class_mut(class).spread = vec![spread];
    }

    /// Pods of an app in the same zone.
    fn in_zone_of(&mut self, app: &str) -> AffinityTerm {
        let selector = Some(self.selector(&[app]));
        AffinityTerm { key: self.cluster.snapshot.names.zone, selector, namespaces: Namespaces::All }
    }

    /// Nothing can be bought in these zones.
    fn sold_out(&mut self, zones: &[&str]) {
        let snapshot = &mut self.cluster.snapshot;
        let zones: Vec<_> = zones.iter().map(|zone| snapshot.symbols.intern(zone)).collect();
        for offering in snapshot.types.iter_mut().flat_map(|one| &mut one.offerings) {
            offering.available &= !zones.contains(&offering.zone);
        }
    }

    /// What becomes of the drifted node: the zones of what comes in its place, or why it stays. Whether its pool is
    /// consolidated makes no difference.
    fn verdict(mut self) -> String {
        let verdict = verdict(&self.cluster.snapshot);
        self.cluster.first_pool().disruption.consolidate_after = None;
        assert_eq!(verdict, self::verdict(&self.cluster.snapshot), "without consolidation");
        verdict
    }
}

fn verdict(snapshot: &Snapshot) -> String {
    let verdict = node_verdict(snapshot, DRIFTED, &Settings { consolidate: true, ..Settings::default() });
    let found = check(snapshot, &verdict.outcome);
    assert!(found.is_empty(), "{found:?}");
    let Some(removal) = &verdict.removal else { return verdict.sentence(snapshot) };
    let new = removal.replacements.iter().map(|new| &verdict.outcome.plan.new_nodes[*new as usize]);
    let mut zones: Vec<&str> =
        new.filter_map(|new| new.labels.get(snapshot.names.zone)).map(|zone| snapshot.text(zone)).collect();
    zones.sort_unstable();
    format!("goes for {}", zones.join(" "))
}

/// Two pods, spread over zones, on the drifted node in zone a, and others of their kind in these zones.
fn spread_case(others: &[&str]) -> Case {
    let mut case = Case::new();
    let web = case.class("web");
    case.spread(web, &["web"]);
    case.drifting(&[web, web]);
    case.settled(web, others);
    case
}

#[test]
fn pods_stay_in_their_zone_as_far_as_their_spread_allows() {
    for (others, expected) in [
        (&["b", "c"][..], "goes for a"),
        (&["a", "b", "b", "c", "c"], "goes for a"),
        // For one of them there is room in zone a; the other goes where fewest are.
        (&["a", "b", "c"], "goes for a b"),
        (&["a", "b", "b", "c"], "goes for a c"),
        // For none: pods elsewhere have gone since they were bound.
        (&["a", "a", "b", "c"], "goes for b c"),
        (&["a", "a", "a", "b", "b", "b", "c"], "goes for c"),
        // A zone without nodes would make the others too full.
        (&["a", "a", "b", "b"], "goes for a b"),
    ] {
        assert_eq!(spread_case(others).verdict(), expected, "others in {others:?}");
    }
}

#[test]
fn a_zone_that_is_not_sold_any_more_is_left() {
    let mut case = spread_case(&["a", "b", "c"]);
    case.sold_out(&["a"]);
    assert_eq!(case.verdict(), "goes for b c");
}

#[test]
fn a_spread_may_count_pods_of_others() {
    // Only others: they have come to zone a since.
    let mut case = Case::new();
    let (web, api) = (case.class("web"), case.class("api"));
    case.spread(web, &["api"]);
    case.drifting(&[web]);
    case.settled(api, &["a", "a", "b"]);
    case.all_zones();
    assert_eq!(case.verdict(), "goes for c");

    // Others too, on the same node: one of the two may come to zone a again. The one that has no rule does.
    let mut case = Case::new();
    let (web, api) = (case.class("web"), case.class("api"));
    case.spread(web, &["web", "api"]);
    case.drifting(&[web, api]);
    case.settled(api, &["a", "b", "c"]);
    assert_eq!(case.verdict(), "goes for a b");
}

#[test]
fn pods_that_come_later_may_make_a_zone_too_full_for_those_before_them() {
    // In zone a a node has room for both, and the spread has not.
    let mut case = Case::new();
    let web = case.class("web");
    let api = case.cluster.class("api", 150, 100);
    case.spread(web, &["web", "api"]);
    case.drifting(&[web, api]);
    case.all_zones();
    let roomy = case.cluster.node(POOL, case.large, "a");
    case.cluster.pod(case.filler, roomy);
    case.cluster.snapshot.nodes[roomy.index()].do_not_disrupt = true;
    assert_eq!(case.verdict(), "goes for b");
}

#[test]
fn pods_follow_those_that_they_need() {
    let mut case = Case::new();
    let (web, api) = (case.class("web"), case.class("api"));
    let near = case.in_zone_of("api");
    case.cluster.class_mut(web).affinity = vec![near];
    case.drifting(&[web]);
    case.settled(api, &["c"]);
    assert_eq!(case.verdict(), "goes for c");
}

#[test]
fn where_no_zone_will_do_the_rule_is_named() {
    let stays = |rule: &str| format!("it stays: pod default/pod-000 has no other place ({rule})");
    let elsewhere = &["b", "c"];

    let mut case = Case::new();
    let web = case.class("web");
    case.spread(web, &["web"]);
    case.drifting(&[web]);
    case.settled(web, &["a", "a", "b", "c"]);
    case.sold_out(elsewhere);
    assert_eq!(case.verdict(), stays("TopologySpread"));

    for (near, rule) in [(true, "PodAffinity"), (false, "PodAntiAffinity")] {
        let mut case = Case::new();
        let (web, api) = (case.class("web"), case.class("api"));
        let term = case.in_zone_of("api");
        let of = case.cluster.class_mut(web);
        if near { &mut of.affinity } else { &mut of.anti_affinity }.push(term);
        case.drifting(&[web]);
        case.settled(api, if near { &["b"] } else { &["a"] });
        case.sold_out(elsewhere);
        assert_eq!(case.verdict(), stays(rule));
    }

    // In its own zone nothing is sold, and elsewhere its spread allows none.
    let mut case = Case::new();
    let web = case.class("web");
    case.spread(web, &["web"]);
    case.drifting(&[web]);
    case.settled(web, &["b", "c"]);
    case.all_zones();
    case.sold_out(&["a"]);
    assert_eq!(case.verdict(), stays("TopologySpread"));

    // Nothing is sold at all: that is no matter of zones.
    let mut case = spread_case(&["a", "a", "b", "c"]);
    case.sold_out(&["a", "b", "c"]);
    assert_eq!(case.verdict(), stays("Resources").replace("pod-000", "pod-001"));
}
