//! LimitRanges: what pods that are still to be made ask for though their template does not say it.

use millpond_plan::model::Snapshot;
use millpond_state::Options;
use millpond_state::objects::Kind;

use crate::support::{NOW, read, snapshot, taken, words};

fn daemon(containers: &str) -> String {
    format!(
        "\n---\n{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: agent, namespace: shop}}, spec: {{selector: {{matchLabels: {{app: agent}}}}, template: {{metadata: {{labels: {{app: agent}}}}, spec: {{{containers}}}}}}}}}\n"
    )
}

fn range(name: &str, namespace: &str, limits: &str) -> String {
    format!(
        "\n---\n{{apiVersion: v1, kind: LimitRange, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{limits: [{limits}]}}}}\n"
    )
}

fn requests(snapshot: &Snapshot) -> String {
    words(&snapshot.classes[snapshot.daemons[0].index()].requests, snapshot)
}

#[test]
fn daemons_without_requests_get_the_defaults_of_their_namespace() {
    let gi: i64 = 1 << 30;
    let silent = "containers: [{name: c}]";
    let limited = "containers: [{name: c, resources: {limits: {memory: 1Gi}}}]";
    for (containers, limits, expected) in [
        (silent, "type: Container, default: {cpu: 2, memory: 1Gi}", format!("cpu=2000 memory={gi}")),
        (silent, "type: Container, defaultRequest: {cpu: 2}", "cpu=2000".to_owned()),
        (silent, "type: Container, defaultRequest: {cpu: 1}, default: {cpu: 2}", "cpu=1000".to_owned()),
        // As the API server fills them in: without defaults, the most is the default; without that, the least.
        (silent, "type: Container, max: {cpu: 3}, min: {cpu: 1}", "cpu=3000".to_owned()),
        (silent, "type: Container, min: {cpu: 1}", "cpu=1000".to_owned()),
        (silent, "type: Pod, max: {cpu: 3}", String::new()),
        // A limit is a request already.
        (limited, "type: Container, default: {cpu: 2, memory: 4Gi}", format!("cpu=2000 memory={gi}")),
        // Each container, those that run before the others too; asking for nothing is asking.
        (
            "containers: [{name: c}, {name: d, resources: {requests: {cpu: 100m}}}, {name: e, resources: {requests: {cpu: 0}}}]",
            "type: Container, defaultRequest: {cpu: 1}",
            "cpu=1100".to_owned(),
        ),
        (
            "containers: [{name: c, resources: {requests: {cpu: 100m}}}], initContainers: [{name: i}]",
            "type: Container, defaultRequest: {cpu: 1}",
            "cpu=1000".to_owned(),
        ),
    ] {
        let text = format!("{}{}", daemon(containers), range("r", "shop", &format!("{{{limits}}}")));
        assert_eq!(requests(&snapshot(&text)), expected, "{containers}, {limits}");
    }
}

#[test]
fn they_hold_in_their_namespace_and_as_long_as_they_are_there() {
    let text = |namespace| {
        format!(
            "{}{}",
            daemon("containers: [{name: c}]"),
            range("r", namespace, "{type: Container, default: {cpu: 2}}")
        )
    };
    assert_eq!(requests(&snapshot(&text("other"))), "");
    let mut reading = read(&text("shop"));
    assert_eq!(requests(&reading.state.snapshot(NOW, &Options::default()).snapshot), "cpu=2000");
    assert!(reading.state.delete(Kind::LimitRange, "shop", "r"));
    assert_eq!(requests(&reading.state.snapshot(NOW, &Options::default()).snapshot), "");
}

#[test]
fn of_several_the_first_by_name_speaks() {
    let two = format!(
        "{}{}{}",
        daemon("containers: [{name: c}]"),
        range("b", "shop", "{type: Container, default: {cpu: 2, memory: 1Gi}}"),
        range("a", "shop", "{type: Container, default: {cpu: 1}}")
    );
    assert_eq!(requests(&snapshot(&two)), format!("cpu=1000 memory={}", 1 << 30));
}

#[test]
fn pods_that_are_made_up_get_them_too_and_those_that_are_there_do_not() {
    let deployment = "\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c}]}}}}\n";
    let pod =
        "\n---\n{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: [{name: c}]}}\n";
    let text = format!("{deployment}{pod}{}", range("r", "shop", "{type: Container, default: {cpu: 2}}"));
    let options = Options { expand_workloads: true, ..Options::default() };
    let snapshot = taken(&text, &options).snapshot;
    let asked: Vec<(String, String)> = snapshot
        .pods
        .iter()
        .map(|pod| (pod.name.to_string(), words(&snapshot.classes[pod.class.index()].requests, &snapshot)))
        .collect();
    assert_eq!(asked, [("p".to_owned(), String::new()), ("web-0".to_owned(), "cpu=2000".to_owned())]);
}
