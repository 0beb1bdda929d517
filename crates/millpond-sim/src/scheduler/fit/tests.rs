//! The rules, case by case: nodes and pods in, decision or message out.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::labels::Selector;
use super::preempt::{self, Budget};
use super::reason::Preemption;
use super::volumes::VolumeDemands;
use super::*;

/// A cluster that is built from JSON snippets.
struct TestCluster {
    snapshot: Snapshot,
    cache: FitCache,
    next: usize,
}

impl TestCluster {
    fn new() -> Self {
        Self { snapshot: Snapshot::new(), cache: FitCache::default(), next: 0 }
    }

    /// Nodes of 4 cores, 8 GiB and 110 pods, each `name zone`.
    fn with_nodes(names: &[&str]) -> Self {
        let mut world = Self::new();
        for line in names {
            let (name, zone) = line.split_once(' ').expect("name and zone");
            world.node(name, json!({"topology.kubernetes.io/zone": zone}), json!({}));
        }
        world
    }

    fn node(&mut self, name: &str, labels: Value, spec: Value) {
        let mut labels = labels;
        labels["kubernetes.io/hostname"] = json!(name);
        let node: k8s_openapi::api::core::v1::Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10Gi"}},
        }))
        .expect("a node");
        self.snapshot.set_node(Node::view(&node));
    }

    fn intern(&mut self, namespace: &str, labels: Value, spec: Value) -> snapshot::Interned {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{"name": "c"}]);
        }
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": namespace, "labels": labels},
            "spec": spec,
        }))
        .expect("a pod");
        let shape = Shape::view(&pod, &ShapeContext::default());
        self.snapshot.intern(shape)
    }

    /// Puts a running pod on a node.
    fn run(&mut self, node: &str, labels: Value, spec: Value) -> PodKey {
        self.run_in("default", node, labels, spec)
    }

    fn run_in(&mut self, namespace: &str, node: &str, labels: Value, spec: Value) -> PodKey {
        let shape = self.intern(namespace, labels, spec);
        self.next += 1;
        let key: PodKey = format!("uid-{:03}", self.next).into();
        let entry = entry(&format!("pod-{}", self.next), shape, node);
        self.snapshot.set_pod(&key, entry);
        key
    }

    /// Where a pod would go, or why it goes nowhere.
    fn place(&mut self, labels: Value, spec: Value) -> String {
        let shape = self.intern("default", labels, spec);
        let volumes = VolumeDemands::default();
        let cycle = Cycle::prepare(&self.snapshot, "new", &shape, &volumes);
        match decide(&cycle, &mut self.cache, None) {
            Decision::Place(slot) => self.snapshot.node(slot).name.clone(),
            Decision::Refused { error, .. } => error.to_string(),
        }
    }

    /// Places and keeps the pod.
    fn put(&mut self, labels: Value, spec: Value) -> String {
        let node = self.place(labels.clone(), spec.clone());
        if self.snapshot.slot(&node).is_some() {
            self.run(&node, labels, spec);
        }
        node
    }

    /// Who would have to go: `node: victims (broken budgets)`.
    fn preempt(&mut self, spec: Value, budgets: &[Budget]) -> String {
        let shape = self.intern("default", json!({}), spec);
        let volumes = VolumeDemands::default();
        let cycle = Cycle::prepare(&self.snapshot, "new", &shape, &volumes);
        let Decision::Refused { mut error, resolvable } = decide(&cycle, &mut self.cache, None) else {
            panic!("the pod fits without preemption");
        };
        match preempt::find(&cycle, &resolvable, None, budgets, 0) {
            Ok(found) => {
                let node = &self.snapshot.node(found.slot).name;
                let names: Vec<_> =
                    found.victims.iter().map(|key| self.snapshot.pod(key).expect("a pod").name.clone()).collect();
                format!("{node}: {} ({})", names.join(" "), found.broken_budgets)
            }
            Err(why) => {
                error.preemption = Some(why);
                error.to_string()
            }
        }
    }
}

fn entry(name: &str, shape: snapshot::Interned, node: &str) -> PodEntry {
    PodEntry { name: name.into(), shape, node: node.into(), leaving: false, preempted: false, started: None }
}

fn asking(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

fn with_priority(cpu: &str, priority: i32) -> Value {
    let mut spec = asking(cpu);
    spec["priority"] = json!(priority);
    spec
}

#[test]
fn resources_are_counted_and_named() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z1"]);
    world.run("a", json!({}), asking("3"));
    assert_eq!(world.place(json!({}), asking("2")), "b");
    world.run("b", json!({}), asking("3500m"));
    assert_eq!(world.place(json!({}), asking("2")), "0/2 nodes are available: 2 Insufficient cpu.");
    assert_eq!(world.place(json!({}), asking("1")), "a");
    let gpu = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "4", "example.com/gpu": "1"}}}]});
    assert_eq!(
        world.place(json!({}), gpu),
        "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient example.com/gpu."
    );
}

#[test]
fn a_pod_that_leaves_gives_its_room_back() {
    let mut world = TestCluster::with_nodes(&["a z1"]);
    let key = world.run("a", json!({}), asking("4"));
    assert_eq!(world.place(json!({}), asking("1")), "0/1 nodes are available: 1 Insufficient cpu.");
    world.snapshot.remove_pod(&key);
    assert_eq!(world.place(json!({}), asking("1")), "a");
    assert_eq!(world.snapshot.state(0).usage, snapshot::Usage::default());
}

#[test]
fn the_first_failing_rule_speaks() {
    let mut world = TestCluster::new();
    world.node("cordoned", json!({}), json!({"unschedulable": true}));
    world.node("tainted", json!({"disk": "ssd"}), json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}));
    world.node("plain", json!({}), json!({}));
    let mut spec = asking("8");
    spec["nodeSelector"] = json!({"disk": "ssd"});
    assert_eq!(
        world.place(json!({}), spec),
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
         1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
    );
    let tolerant = json!({
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
    });
    assert_eq!(world.place(json!({}), tolerant), "tainted");
}

#[test]
fn host_ports_collide() {
    let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let mut world = TestCluster::with_nodes(&["a z1", "b z1"]);
    let first = world.put(json!({}), port.clone());
    let second = world.put(json!({}), port.clone());
    assert_eq!(BTreeSet::from([first, second]), BTreeSet::from(["a".into(), "b".into()]));
    assert_eq!(
        world.place(json!({}), port),
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    );
}

#[test]
fn pods_tied_by_name_blame_the_affinity() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z1"]);
    let tied = |names: &[&str]| {
        let fields: Vec<_> =
            names.iter().map(|n| json!({"key": "metadata.name", "operator": "In", "values": [n]})).collect();
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": fields}]}}}})
    };
    assert_eq!(world.place(json!({}), tied(&["b"])), "b");
    assert_eq!(
        world.place(json!({}), tied(&["gone"])),
        "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    );
    assert_eq!(world.place(json!({}), tied(&["a", "b"])), "0/2 nodes are available: pod affinity terms conflict.");
}

fn spread(extra: Value) -> Value {
    let mut constraint = json!({
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    for (key, value) in extra.as_object().expect("an object") {
        constraint[key] = value.clone();
    }
    json!({"topologySpreadConstraints": [constraint]})
}

#[test]
fn hard_spread_keeps_the_skew() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z2"]);
    world.node("bare", json!({}), json!({}));
    let app = json!({"app": "web"});
    world.run("a", app.clone(), json!({}));
    assert_eq!(world.place(app.clone(), spread(json!({}))), "b");
    world.run("a", app.clone(), json!({}));
    world.node("b", json!({"topology.kubernetes.io/zone": "z2"}), json!({"unschedulable": true}));
    assert_eq!(
        world.place(app, spread(json!({}))),
        "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, \
         1 node(s) didn't match pod topology spread constraints (missing required label), \
         1 node(s) were unschedulable."
    );
}

#[test]
fn too_few_domains_count_as_empty_ones() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z2"]);
    let app = json!({"app": "web"});
    let three = spread(json!({"minDomains": 3}));
    world.run("a", app.clone(), json!({}));
    world.run("b", app.clone(), json!({}));
    assert_eq!(
        world.place(app.clone(), three),
        "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."
    );
    assert_eq!(world.place(app, spread(json!({"minDomains": 2}))), "a");
}

#[test]
fn spread_policies_choose_the_nodes_that_count() {
    let mut world = TestCluster::with_nodes(&["a z1"]);
    world.node(
        "b",
        json!({"topology.kubernetes.io/zone": "z2"}),
        json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    );
    let app = json!({"app": "web"});
    world.run("a", app.clone(), json!({}));
    let ignoring = world.place(app.clone(), spread(json!({})));
    assert_eq!(
        ignoring,
        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, \
         1 node(s) had untolerated taint(s)."
    );
    assert_eq!(world.place(app.clone(), spread(json!({"nodeTaintsPolicy": "Honor"}))), "a");

    let mut selective = spread(json!({}));
    selective["nodeSelector"] = json!({"kubernetes.io/hostname": "a"});
    assert_eq!(world.place(app.clone(), selective.clone()), "a", "z2 is out of reach and does not count");
    selective["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    assert_eq!(
        world.place(app, selective),
        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, \
         1 node(s) had untolerated taint(s)."
    );
}

#[test]
fn match_label_keys_spread_each_revision_alone() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z2"]);
    let revision = |hash: &str| json!({"app": "web", "pod-template-hash": hash});
    world.run("a", revision("old"), json!({}));
    world.run("a", revision("old"), json!({}));
    world.run("b", revision("new"), json!({}));
    let keyed = spread(json!({"matchLabelKeys": ["pod-template-hash"]}));
    assert_eq!(world.place(revision("new"), keyed), "a");
    assert_eq!(world.place(revision("new"), spread(json!({}))), "b");
}

#[test]
fn leaving_pods_do_not_count_for_spread() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z2"]);
    let app = json!({"app": "web"});
    let key = world.run("a", app.clone(), json!({}));
    world.run("b", app.clone(), json!({}));
    let gone = PodEntry { leaving: true, ..world.snapshot.pod(&key).expect("a pod").clone() };
    world.snapshot.set_pod(&key, gone);
    assert_eq!(world.place(app, spread(json!({}))), "a");
}

fn near(kind: &str, term: Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

#[test]
fn affinity_follows_and_lets_the_first_in() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z2", "c z2"]);
    let term = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "db"}}});
    assert_eq!(
        world.place(json!({"app": "web"}), near("podAffinity", term.clone())),
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."
    );
    assert_eq!(world.place(json!({"app": "db"}), near("podAffinity", term.clone())), "a", "the first of its kind");
    world.run("c", json!({"app": "db"}), json!({}));
    assert_eq!(world.place(json!({"app": "web"}), near("podAffinity", term)), "b", "same zone, emptier");
}

#[test]
fn anti_affinity_works_in_both_directions() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z1"]);
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}});
    let loner = near("podAntiAffinity", term);
    world.run("a", json!({"app": "db"}), loner.clone());
    assert_eq!(world.place(json!({"app": "db"}), json!({})), "b", "the running pod repels");
    world.run("b", json!({"app": "db"}), json!({}));
    assert_eq!(
        world.place(json!({"app": "other"}), loner.clone()),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
    );
    assert_eq!(world.place(json!({"app": "db"}), json!({})), "b", "only the pod with the rule repels");
    world.run("b", json!({"app": "other"}), loner);
    assert_eq!(
        world.place(json!({"app": "db"}), json!({})),
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    );
}

#[test]
fn affinity_reaches_namespaces_by_name_and_by_label() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z2"]);
    world.snapshot.set_namespace("prod", [("team".to_owned(), "red".to_owned())].into());
    world.run_in("prod", "b", json!({"app": "db"}), json!({}));
    let term = |extra: Value| {
        let mut term =
            json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "db"}}});
        for (key, value) in extra.as_object().expect("an object") {
            term[key] = value.clone();
        }
        near("podAffinity", term)
    };
    let refused = "0/2 nodes are available: 2 node(s) didn't match pod affinity rules.";
    assert_eq!(world.place(json!({}), term(json!({}))), refused);
    assert_eq!(world.place(json!({}), term(json!({"namespaces": ["prod"]}))), "b");
    assert_eq!(world.place(json!({}), term(json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}))), "b");
    assert_eq!(world.place(json!({}), term(json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}))), refused);
    assert_eq!(world.place(json!({}), term(json!({"namespaceSelector": {}}))), "b");
}

#[test]
fn emptier_nodes_come_first_and_ties_go_by_name() {
    let mut world = TestCluster::with_nodes(&["b z1", "a z1", "c z1"]);
    let order: Vec<String> = (0..4).map(|_| world.put(json!({}), asking("1"))).collect();
    assert_eq!(order, ["a", "b", "c", "a"]);
}

#[test]
fn soft_spread_prefers_the_emptier_zone() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z1", "c z2"]);
    let app = json!({"app": "web"});
    let soft = spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    world.run("a", app.clone(), json!({}));
    assert_eq!(world.place(app.clone(), soft.clone()), "c");
    world.run("c", app.clone(), asking("3"));
    world.run("c", app.clone(), json!({}));
    assert_eq!(world.place(app, soft), "b");
}

#[test]
fn preferences_weigh_nodes_taints_and_neighbours() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z2"]);
    let likes = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "preference": {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z2"]}]}},
    ]}}});
    assert_eq!(world.place(json!({}), likes), "b");
    let weighted = |kind: &str| {
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}},
        ]}}})
    };
    world.run("b", json!({"app": "db"}), json!({}));
    assert_eq!(world.place(json!({}), weighted("podAffinity")), "b");
    assert_eq!(world.place(json!({}), weighted("podAntiAffinity")), "a");
    world.node("a", json!({}), json!({"taints": [{"key": "spot", "effect": "PreferNoSchedule"}]}));
    assert_eq!(world.place(json!({}), json!({})), "b");
}

#[test]
fn nominated_nodes_are_tried_first_and_kept_for_their_pods() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z1"]);
    let shape = world.intern("default", json!({}), with_priority("4", 5));
    let volumes = VolumeDemands::default();
    {
        let cycle = Cycle::prepare(&world.snapshot, "me", &shape, &volumes);
        assert_eq!(decide(&cycle, &mut world.cache, Some("b")), Decision::Place(1));
        assert_eq!(decide(&cycle, &mut world.cache, Some("not-there")), Decision::Place(0));
    }
    world.snapshot.nominate(&Arc::from("me"), entry("me", shape, "b"));
    assert_eq!(world.put(json!({}), with_priority("1", 0)), "a");
    assert_eq!(world.put(json!({}), with_priority("3", 0)), "a");
    assert_eq!(
        world.place(json!({}), with_priority("1", 5)),
        "0/2 nodes are available: 2 Insufficient cpu.",
        "equal priority waits too"
    );
    assert_eq!(world.place(json!({}), with_priority("1", 6)), "b", "higher priority does not");
    world.snapshot.withdraw("me");
    assert_eq!(world.place(json!({}), with_priority("1", 0)), "b");
}

#[test]
fn nominations_for_nodes_that_are_still_to_come_count_when_they_come() {
    let mut world = TestCluster::with_nodes(&["a z1"]);
    let shape = world.intern("default", json!({}), asking("4"));
    world.snapshot.nominate(&Arc::from("me"), entry("me", shape, "later"));
    assert_eq!(world.snapshot.node_count(), 1);
    world.run("a", json!({}), asking("4"));
    world.node("later", json!({}), json!({}));
    assert_eq!(world.place(json!({}), asking("1")), "0/2 nodes are available: 2 Insufficient cpu.");
}

#[test]
fn victims_are_few_and_unimportant() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z1"]);
    world.run("a", json!({}), with_priority("2", 3));
    world.run("a", json!({}), with_priority("2", 1));
    world.run("b", json!({}), with_priority("2", 2));
    world.run("b", json!({}), with_priority("2", 2));
    assert_eq!(world.preempt(with_priority("2", 10), &[]), "a: pod-2 (0)");
    assert_eq!(world.preempt(with_priority("4", 10), &[]), "b: pod-3 pod-4 (0)");
    assert_eq!(
        world.preempt(with_priority("2", 1), &[]),
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: \
         0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
    assert_eq!(
        world.preempt(with_priority("5", 10), &[]),
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: \
         0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        "larger than any node"
    );
}

#[test]
fn budgets_are_spared_when_there_is_a_choice() {
    let mut world = TestCluster::with_nodes(&["a z1", "b z1"]);
    let web = json!({"app": "web"});
    world.run("a", web.clone(), with_priority("4", 1));
    world.run("b", json!({"app": "batch"}), with_priority("4", 2));
    let budget = Budget {
        namespace: "default".into(),
        selector: Selector::of_pairs([(&"app".to_owned(), &"web".to_owned())]),
        allowed: 0,
        disrupted: BTreeSet::new(),
    };
    assert_eq!(world.preempt(with_priority("4", 10), &[]), "a: pod-1 (0)");
    assert_eq!(world.preempt(with_priority("4", 10), std::slice::from_ref(&budget)), "b: pod-2 (0)");
    world.run("b", web, with_priority("0", 1));
    assert_eq!(
        world.preempt(with_priority("4", 2), &[budget]),
        "a: pod-1 (1)",
        "only broken when there is no other way"
    );
}

#[test]
fn preemption_never_and_waiting() {
    let mut world = TestCluster::with_nodes(&["a z1"]);
    let key = world.run("a", json!({}), with_priority("4", 1));
    let mut never = with_priority("4", 10);
    never["preemptionPolicy"] = json!("Never");
    assert_eq!(
        world.preempt(never, &[]),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not \
         eligible due to preemptionPolicy=Never."
    );
    let leaving = PodEntry { leaving: true, preempted: true, ..world.snapshot.pod(&key).expect("a pod").clone() };
    world.snapshot.set_pod(&key, leaving);
    let shape = world.intern("default", json!({}), with_priority("4", 10));
    let volumes = VolumeDemands::default();
    let cycle = Cycle::prepare(&world.snapshot, "new", &shape, &volumes);
    assert_eq!(preempt::find(&cycle, &[0], Some("a"), &[], 0), Err(Preemption::Waiting));
    assert!(preempt::find(&cycle, &[0], None, &[], 0).is_ok());
}

#[test]
fn shapes_of_pods_that_are_gone_are_swept() {
    let mut world = TestCluster::with_nodes(&["a z1"]);
    for round in 0..2000 {
        let key = world.run("a", json!({"round": round.to_string()}), json!({}));
        world.snapshot.remove_pod(&key);
    }
    assert!(world.snapshot.running().next().is_none());
    let fresh = world.intern("default", json!({"round": "5"}), json!({}));
    assert!(fresh.id > 1000, "the fifth shape was forgotten and is a new one now");
}
