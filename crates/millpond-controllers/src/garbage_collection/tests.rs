//! What looks like garbage, and what does not.

use millpond_api::amounts::Amounts;
use millpond_api::karpenter::TERMINATION_FINALIZER;
use millpond_providers::OfferingKey;
use serde_json::json;

use super::*;

const NOW: i64 = 1_800_000_000;

fn time(age: i64) -> String {
    Time(NOW - age).to_string()
}

/// A machine `sim://c/<name>` of the claim with the uid `<token>`.
fn machine(name: &str, token: &str, age: i64, state: InstanceState) -> Instance {
    Instance {
        id: format!("sim://c/{name}"),
        token: token.to_owned(),
        claim: token.to_owned(),
        class: "c".to_owned(),
        offering: OfferingKey::new("m5.large", "z", "spot"),
        image: String::new(),
        capacity: Amounts::default(),
        allocatable: Amounts::default(),
        labels: [].into(),
        created: Time(NOW - age),
        state,
    }
}

/// A claim of a uid; words: `machine=NAME registered leaving foreign`.
fn claim(uid: &str, age: i64, words: &str) -> Arc<NodeClaim> {
    let group = if words.contains("foreign") { "karpenter.k8s.aws" } else { "millpond.dev" };
    let mut claim = json!({
        "metadata": {"name": uid, "uid": uid, "creationTimestamp": time(age)},
        "spec": {"requirements": [], "nodeClassRef": {"group": group, "kind": "NodeClass", "name": "c"}},
        "status": {"conditions": []},
    });
    for word in words.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("machine", name) => claim["status"]["providerID"] = json!(format!("sim://c/{name}")),
            ("registered", _) => claim["status"]["conditions"] = json!([{"type": "Registered", "status": "True"}]),
            ("leaving", _) => claim["metadata"]["deletionTimestamp"] = json!(time(0)),
            _ => {}
        }
    }
    Arc::new(serde_json::from_value(claim).unwrap())
}

/// A node on a machine; words: `owner=UID leaving free`.
fn node(name: &str, machine: &str, age: i64, words: &str) -> Arc<Node> {
    let mut node = json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": time(age), "finalizers": [TERMINATION_FINALIZER]},
        "spec": {"providerID": format!("sim://c/{machine}")},
    });
    for word in words.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("owner", uid) => {
                let owner = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": uid, "uid": uid});
                node["metadata"]["ownerReferences"] = json!([owner]);
            }
            ("leaving", _) => node["metadata"]["deletionTimestamp"] = json!(time(0)),
            ("free", _) => node["metadata"]["finalizers"] = json!([]),
            (other, _) => panic!("{other}?"),
        }
    }
    Arc::new(serde_json::from_value(node).unwrap())
}

fn found(instances: &[Instance], claims: &[Arc<NodeClaim>], nodes: &[Arc<Node>]) -> String {
    let suspicion = suspect(instances, claims, nodes, Time(NOW), |_| true);
    let mut words = Vec::new();
    words.extend(suspicion.orphans.iter().map(|instance| format!("orphan {}", &instance.id["sim://c/".len()..])));
    words.extend(suspicion.taken_back.iter().map(|claim| format!("taken back {}", claim.name())));
    words.extend(suspicion.unlisted.iter().map(|claim| format!("unlisted {}", claim.name())));
    words.extend(suspicion.ownerless.iter().map(|node| format!("ownerless {}", node.name_any())));
    words.join(", ")
}

use InstanceState::{Ending, Pending, Running};

#[test]
fn a_converged_cluster_has_no_garbage() {
    let machines = [machine("i", "a", 900, Running), machine("j", "b", 5, Pending)];
    let claims = [claim("a", 900, "machine=i registered"), claim("b", 10, "")];
    assert_eq!(found(&machines, &claims, &[node("n", "i", 900, "owner=a")]), "");
}

#[test]
fn machines_need_a_claim() {
    let cases = [
        ("no claim asked for it", vec![machine("i", "a", 60, Running)], vec![], "orphan i"),
        ("a launch may be under way", vec![machine("i", "a", 59, Running)], vec![], ""),
        ("it ends already", vec![machine("i", "a", 900, Ending)], vec![], ""),
        ("a claim of that token", vec![machine("i", "a", 900, Running)], vec![claim("a", 900, "")], ""),
        ("also one that leaves", vec![machine("i", "a", 900, Running)], vec![claim("a", 900, "leaving")], ""),
        (
            "a claim that was restored has another uid",
            vec![machine("i", "old", 900, Running)],
            vec![claim("new", 900, "machine=i")],
            "",
        ),
    ];
    for (what, machines, claims, expected) in cases {
        assert_eq!(found(&machines, &claims, &[]), expected, "{what}");
    }
}

#[test]
fn claims_need_their_machine() {
    let cases = [
        ("it is gone", vec![], claim("a", 900, "machine=i registered"), "unlisted a"),
        ("before it registered", vec![], claim("a", 60, "machine=i"), "unlisted a"),
        ("lists may lag behind launches", vec![], claim("a", 59, "machine=i"), ""),
        ("there was none yet", vec![], claim("a", 900, ""), ""),
        ("it leaves already", vec![], claim("a", 900, "machine=i registered leaving"), ""),
        ("it belongs to another controller", vec![], claim("a", 900, "machine=i registered foreign"), ""),
        (
            "the cloud takes it back",
            vec![machine("i", "a", 900, Ending)],
            claim("a", 900, "machine=i registered"),
            "taken back a",
        ),
        ("the claim knows", vec![machine("i", "a", 900, Ending)], claim("a", 900, "machine=i registered leaving"), ""),
    ];
    for (what, machines, claim, expected) in cases {
        assert_eq!(found(&machines, &[claim], &[]), expected, "{what}");
    }
}

#[test]
fn nodes_need_a_claim_or_a_machine() {
    let cases = [
        ("neither is there", vec![], vec![], node("n", "i", 900, "owner=a"), "ownerless n"),
        ("it is new", vec![], vec![], node("n", "i", 59, ""), ""),
        ("its claim is there", vec![], vec![claim("a", 5, "")], node("n", "i", 900, "owner=a"), ""),
        ("a claim of its machine is there", vec![], vec![claim("a", 5, "machine=i")], node("n", "i", 900, ""), ""),
        ("its machine is ending", vec![machine("i", "a", 900, Ending)], vec![], node("n", "i", 900, ""), ""),
        ("it leaves, and waits for us", vec![], vec![], node("n", "i", 900, "leaving"), "ownerless n"),
        ("it leaves without us", vec![], vec![], node("n", "i", 900, "leaving free"), ""),
        ("nothing of ours keeps it, but it stays", vec![], vec![], node("n", "i", 900, "free"), "ownerless n"),
    ];
    for (what, machines, claims, node, expected) in cases {
        assert_eq!(found(&machines, &claims, &[node]), expected, "{what}");
    }
}
