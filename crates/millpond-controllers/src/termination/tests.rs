//! What a node that leaves must have.

use super::*;

fn node(taints: &Value, label: bool, finalizers: &Value, leaving: bool) -> Node {
    let mut node = json!({
        "metadata": {"name": "n", "resourceVersion": "7", "labels": {}, "finalizers": finalizers},
        "spec": {"taints": taints},
    });
    if label {
        node["metadata"]["labels"][EXCLUDED_LABEL] = json!("karpenter");
    }
    if leaving {
        node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    serde_json::from_value(node).unwrap()
}

#[test]
fn a_node_that_leaves_gets_what_it_lacks() {
    let ours = json!([TERMINATION_FINALIZER]);
    let mine = json!({"key": "mine", "effect": "NoSchedule"});
    let disrupted = json!({"key": DISRUPTED_TAINT, "effect": "NoSchedule"});
    let other_effect = json!({"key": DISRUPTED_TAINT, "effect": "NoExecute"});

    let fresh = hold(&node(&json!([mine, other_effect]), false, &json!(["theirs"]), false)).unwrap();
    assert_eq!(
        fresh,
        json!({
            "metadata": {
                "resourceVersion": "7",
                "labels": {EXCLUDED_LABEL: "karpenter"},
                "finalizers": ["theirs", TERMINATION_FINALIZER],
            },
            "spec": {"taints": [mine, disrupted]},
        })
    );
    let tainted = hold(&node(&json!([disrupted]), false, &ours, false)).unwrap();
    assert_eq!(tainted, json!({"metadata": {"resourceVersion": "7", "labels": {EXCLUDED_LABEL: "karpenter"}}}));
    // Nothing can be added to the finalizers of what leaves.
    assert_eq!(hold(&node(&json!([disrupted]), true, &json!([]), true)), None);
    assert_eq!(hold(&node(&json!([mine, disrupted]), true, &ours, false)), None);
}

#[test]
fn only_the_own_finalizer_goes() {
    let all = ["theirs".to_owned(), TERMINATION_FINALIZER.to_owned()];
    let patch = without_finalizer(&all, Some("7"));
    assert_eq!(patch, json!({"metadata": {"finalizers": ["theirs"], "resourceVersion": "7"}}));
}

#[test]
fn long_lists_are_cut() {
    let names = |count: usize| listed((0..count).map(|index| format!("p{index}")).collect::<Vec<_>>().into_iter());
    assert_eq!(names(2), "p0, p1");
    assert_eq!(names(7), "p0, p1, p2, p3, p4 and 2 more");
}
