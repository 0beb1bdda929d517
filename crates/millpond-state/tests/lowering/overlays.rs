//! NodeOverlays of a cluster: prices and resources of what pools can buy.

use std::sync::Arc;

use millpond_plan::model::{CapacityType, Snapshot, TypeId};
use millpond_plan::plan::Settings;
use millpond_state::{Options, Taken};

use crate::support::{errors, read, taken, words};

const TYPE: &str = "c-2x-amd64-linux";

fn pool(name: &str, labels: &str) -> String {
    format!(
        "\n---\n{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}}}, spec: {{template: {{metadata: {{labels: {{{labels}}}}}, spec: {{requirements: [], nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}}}}}}}\n"
    )
}

fn overlay(name: &str, spec: &str) -> String {
    format!(
        "\n---\n{{apiVersion: karpenter.sh/v1alpha1, kind: NodeOverlay, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n"
    )
}

fn lower(text: &str) -> Taken {
    taken(text, &Options::default())
}

/// What a node of the type costs on demand in a pool, in thousandths of a dollar, and its extended resources.
fn offered(snapshot: &Snapshot, pool: &str) -> (u64, Vec<(String, i64)>) {
    let pool = snapshot.find_pool(pool).expect("the pool");
    let types = snapshot.pools[pool.index()].types.iter().map(|id| &snapshot.types[id.index()]);
    let of = types.into_iter().find(|of| snapshot.text(of.name) == TYPE).expect("the type");
    let on_demand =
        of.offerings.iter().find(|offering| offering.capacity_type == CapacityType::OnDemand).expect("on demand");
    let extended = of.capacity.iter().map(|(id, amount)| (snapshot.resources.name(id).to_owned(), amount));
    (on_demand.price / 1_000_000, extended.filter(|(name, _)| name.contains('/')).collect())
}

#[test]
fn prices_and_resources_of_what_they_match() {
    let linux = "requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]";
    let text = format!(
        "{}{}{}",
        pool("general", ""),
        overlay("fixed", &format!("{linux}, price: '0.5', weight: 5")),
        overlay("more", &format!("{linux}, priceAdjustment: '+10%', capacity: {{example.com/fpga: 2}}"))
    );
    let taken = lower(&text);
    assert_eq!(taken.notes, []);
    assert_eq!(offered(&taken.snapshot, "general"), (500, vec![("example.com/fpga".to_owned(), 2)]));
}

#[test]
fn labels_of_pools_can_be_asked_for() {
    let text = format!(
        "{}{}{}{}",
        pool("red", "team: red"),
        pool("blue", "team: blue"),
        overlay("team", "requirements: [{key: team, operator: In, values: [red]}], price: '1', weight: 2"),
        overlay("pool", "requirements: [{key: karpenter.sh/nodepool, operator: In, values: [blue]}], price: '2'")
    );
    let snapshot = lower(&text).snapshot;
    assert_eq!((offered(&snapshot, "red").0, offered(&snapshot, "blue").0), (1000, 2000));
}

#[test]
fn of_two_that_contradict_each_other_one_is_used() {
    let text = format!(
        "{}{}{}",
        pool("general", ""),
        overlay("a", "requirements: [], price: '1', capacity: {example.com/a: 1}"),
        overlay("b", "requirements: [], price: '2'")
    );
    let taken = lower(&text);
    assert_eq!(offered(&taken.snapshot, "general"), (2000, vec![]), "nothing of the other holds");
    let notes: Vec<String> = taken.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "test.yaml:6:1: overlay `a` is not used: overlay `b` has the same weight and also sets the price of `c-128x-amd64-linux` in `test-zone-a` (on-demand)"
        ]
    );
    let apart = text.replacen("requirements: []", "requirements: [{key: a, operator: Exists}]", 2);
    assert_eq!(lower(&apart).notes, [], "without a common offering there is no conflict");
}

#[test]
fn what_changes_changes_prices() {
    let mut reading = read(&format!("{}{}", pool("general", ""), overlay("own", "requirements: [], price: '1'")));
    let price = |state: &millpond_state::State| offered(&state.snapshot(0, &Options::default()).snapshot, "general").0;
    assert_eq!((price(&reading.state), price(&reading.state)), (1000, 1000));
    let again = read(&overlay("own", "requirements: [], price: '3'"));
    assert_eq!(again.errors, []);
    let json = r#"{"metadata": {"name": "own"}, "spec": {"requirements": [], "price": "3"}}"#;
    let object = millpond_state::objects::Object::read(
        millpond_state::objects::Kind::NodeOverlay,
        &mut serde_json::Deserializer::from_str(json),
    );
    reading.state.apply(&object.unwrap()).unwrap();
    assert_eq!(price(&reading.state), 3000);
    assert!(reading.state.delete(millpond_state::objects::Kind::NodeOverlay, "", "own"));
    assert!(price(&reading.state) < 1000);
}

#[test]
fn a_node_that_starts_will_have_what_an_overlay_says() {
    let claim = "\n---\n{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: one, labels: {karpenter.sh/nodepool: general, node.kubernetes.io/instance-type: c-2x-amd64-linux}}, spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}, status: {capacity: {cpu: 2}, allocatable: {cpu: 1}}}\n";
    let fpga = overlay("fpga", "requirements: [], capacity: {example.com/fpga: 2}");
    let snapshot = lower(&format!("{}{fpga}{claim}", pool("general", ""))).snapshot;
    let node = &snapshot.nodes[0];
    assert_eq!(crate::support::words(&node.allocatable, &snapshot), "cpu=1000 example.com/fpga=2");
}

#[test]
fn mistakes_are_placed() {
    let text = overlay("own", "requirements: [{key: a, operator: In}], price: '1'");
    assert_eq!(
        errors(&text),
        ["test.yaml:3:101: NodeOverlay/own: field `spec.requirements[0]`: `In` on `a` takes at least one value, not 0"]
    );
}

#[test]
fn types_that_were_translated_before_are_the_same_until_something_changes() {
    let options = Options { ignore_stock: true, ..Options::default() };
    let pods = "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeSelector: {team: red}, containers: [{name: a, resources: {requests: {example.com/fpga: 1}}}]}}\n";
    let dear = overlay("dear", "requirements: [], price: '0.5', capacity: {example.com/fpga: 2}");
    let text = format!("{pods}{}{dear}", pool("red", "team: red"));
    let mut state = read(&text).state;
    let plain = state.snapshot(0, &options).snapshot;
    state.prepare(&options);
    let (first, second) = (state.snapshot(0, &options).snapshot, state.snapshot(0, &options).snapshot);
    let all = |snapshot: &Snapshot| -> Vec<String> {
        let described = |of: &millpond_plan::model::InstanceType| {
            let labels: std::collections::BTreeMap<&str, String> = of
                .labels
                .iter()
                .map(|(key, values)| (snapshot.text(key), values.describe(&snapshot.symbols, 9).to_string()))
                .collect();
            let prices: Vec<u64> = of.offerings.iter().map(|offering| offering.price).collect();
            format!("{} {labels:?} {prices:?} {}", snapshot.text(of.name), words(&of.allocatable, snapshot))
        };
        snapshot.types.iter().map(described).collect()
    };
    assert_eq!(all(&first), all(&plain));
    assert_eq!(all(&second), all(&plain));
    let shared = |one: &Snapshot, other: &Snapshot| Arc::ptr_eq(&one.types[0].labels, &other.types[0].labels);
    assert!(shared(&first, &second) && !shared(&first, &plain), "translated once");
    let bought = |snapshot: &Snapshot| -> Vec<(String, u64)> {
        let plan = millpond_plan::plan(snapshot, &Settings::default()).plan;
        let name = |of: TypeId| snapshot.text(snapshot.types[of.index()].name).to_owned();
        plan.new_nodes.iter().map(|node| (name(node.instance_type), node.price)).collect()
    };
    assert_eq!(bought(&first).len(), 1);
    assert_eq!(bought(&first), bought(&plain));

    assert!(state.delete(millpond_state::objects::Kind::NodeOverlay, "", "dear"));
    state.prepare(&options);
    let cheap = state.snapshot(0, &options).snapshot;
    assert_ne!(offered(&cheap, "red"), offered(&first, "red"), "without the overlay");
}
