//! PodDisruptionBudgets.

use crate::support::{errors, snapshot};

/// What a budget allows over ten pods, eight of them ready.
fn allowed(spec: &str, status: &str) -> u32 {
    let mut text = format!(
        "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b}}, spec: {{selector: {{matchLabels: {{app: web}}}}, {spec}}}, status: {{{status}}}}}\n---\n{{apiVersion: v1, kind: Node, metadata: {{name: one}}}}\n"
    );
    for index in 0..12 {
        let app = if index < 10 { "web" } else { "other" };
        let ready = if index < 8 { "True" } else { "False" };
        text.push_str(&format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{index}, labels: {{app: {app}}}}}, spec: {{nodeName: one, containers: []}}, status: {{conditions: [{{type: Ready, status: '{ready}'}}]}}}}\n"));
    }
    let snapshot = snapshot(&text);
    assert_eq!(snapshot.disruption_budgets.len(), 1);
    snapshot.disruption_budgets[0].allowed
}

#[test]
fn the_status_says_it_or_it_is_worked_out() {
    for (spec, expected) in [
        ("minAvailable: 5", 3),
        ("minAvailable: 9", 0),
        ("minAvailable: 50%", 3),
        ("minAvailable: 51%", 2),
        ("maxUnavailable: 3", 1),
        ("maxUnavailable: 25%", 1),
        ("maxUnavailable: 100%", 8),
        ("maxUnavailable: 0", 0),
    ] {
        assert_eq!(allowed(spec, ""), expected, "{spec}");
    }
    assert_eq!(allowed("minAvailable: 5", "disruptionsAllowed: 1"), 1);
    assert_eq!(allowed("minAvailable: 5", "disruptionsAllowed: -1"), 0);
}

#[test]
fn pods_without_conditions_are_taken_to_be_well() {
    let text = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {selector: {}, minAvailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow}}
---
{apiVersion: v1, kind: Node, metadata: {name: one}}
---
{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}, spec: {nodeName: one, containers: []}}, {metadata: {name: b}, spec: {nodeName: one, containers: []}}]}";
    let snapshot = snapshot(text);
    let budget = &snapshot.disruption_budgets[0];
    assert_eq!((&*budget.name, budget.allowed, budget.unhealthy_always), ("default/b", 1, true));
    assert!(budget.selector.as_ref().is_some_and(millpond_plan::requirement::Requirements::is_empty));
}

#[test]
fn a_budget_cannot_say_both() {
    let text = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 1, maxUnavailable: 1}}";
    let expected = "test.yaml:1:94: PodDisruptionBudget/b: field `spec.minAvailable`: `1` stands beside `maxUnavailable`; only one of them may";
    assert_eq!(errors(text), [expected]);
}
