//! Random roles and bindings, written to this server and to the real one: both accept the same, with the same words, and
//! then answer the same.

use std::time::Duration;

use kube::Client;
use millpond_testkit::RealCluster;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::questions::send;
use super::replay::embedded;

const GROUP: &str = "rbac.authorization.k8s.io";
const API: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Sets of rules, each with users of its own.
const SETS: usize = 40;
/// The real server sees what was created after a while.
const MAX_TRIES: usize = 60;
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Verb, group, resource, subresource, namespace, name.
const ACTIONS: [(&str, &str, &str, &str, &str, &str); 12] = [
    ("get", "", "pods", "", "n", "x"),
    ("get", "", "pods", "log", "n", "y"),
    ("list", "", "pods", "", "", ""),
    ("list", "", "pods", "", "m", ""),
    ("watch", "apps", "deployments", "", "n", ""),
    ("update", "apps", "deployments", "scale", "n", "x"),
    ("create", "", "pods", "", "n", ""),
    ("create", "", "pods", "exec", "n", "x"),
    ("escalate", GROUP, "clusterroles", "", "", "x"),
    ("get", "example.com", "boats", "", "m", "z"),
    ("*", "*", "*", "", "", ""),
    ("*", "*", "*", "*", "", ""),
];
const PATHS: [&str; 5] = ["/metrics", "/healthz", "/healthz/ping", "/api/v1", "/"];

fn some(choices: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    // One in twelve is empty, which validation may refuse.
    prop_oneof![11 => vec(select(choices), 1..3), 1 => Just(Vec::new())]
}

fn rule() -> impl Strategy<Value = Value> {
    let verbs = || some(&["get", "list", "watch", "update", "create", "escalate", "*"]);
    let groups = some(&["", "apps", "example.com", GROUP, "*"]);
    let resources =
        some(&["pods", "pods/log", "pods/*", "*/scale", "*/*", "deployments", "boats", "clusterroles", "*"]);
    let names = prop_oneof![3 => Just(Vec::new()), 1 => vec(select(&["x", "y", ""][..]), 1..3)];
    let of_resources = (verbs(), groups, resources, names).prop_map(|(verbs, groups, resources, names)| {
        json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
    });
    let paths = some(&["/metrics", "/healthz", "/healthz/*", "/api*", "/a*i", "*", "metrics"]);
    let of_paths = (verbs(), paths, 0..12).prop_map(|(verbs, paths, both)| match both {
        // A rule is about one or the other.
        0 => json!({"verbs": verbs, "nonResourceURLs": paths, "apiGroups": [""], "resources": ["pods"]}),
        _ => json!({"verbs": verbs, "nonResourceURLs": paths}),
    });
    prop_oneof![4 => of_resources, 1 => of_paths]
}

fn subject() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"kind": "User", "apiGroup": GROUP, "name": "u-SET"}),
        json!({"kind": "Group", "apiGroup": GROUP, "name": "g-SET"}),
        json!({"kind": "ServiceAccount", "name": "s-SET", "namespace": "n"}),
        // These are defaulted, or refused.
        json!({"kind": "User", "name": "u-SET"}),
        json!({"kind": "ServiceAccount", "name": "s-SET"}),
        json!({"kind": "Robot", "name": "u-SET"}),
        json!({"kind": "User", "apiGroup": "example.com", "name": "u-SET"}),
    ])
}

/// Collections with the objects that are created in them: roles, then bindings. `SET` stands for the number of the set.
fn objects() -> impl Strategy<Value = Vec<(String, Value)>> {
    let role = (any::<bool>(), vec(rule(), 0..3));
    let roles = vec(role, 2..4).prop_map(|roles| {
        let object = |(at, (cluster, rules)): (usize, (bool, Vec<Value>))| {
            let collection = if cluster { format!("{API}/clusterroles") } else { format!("{API}/namespaces/n/roles") };
            (collection, json!({"metadata": {"name": format!("r{at}-SET")}, "rules": rules}))
        };
        roles.into_iter().enumerate().map(object).collect::<Vec<_>>()
    });
    let binding = (any::<bool>(), select(&["ClusterRole", "ClusterRole", "Role", "Robot"][..]), 0..4_usize);
    let bindings = vec((binding, vec(subject(), 0..3)), 1..5).prop_map(|bindings| {
        let object = |(at, ((cluster, kind, role), subjects)): (usize, ((bool, &str, usize), Vec<Value>))| {
            let collection = match (cluster, at % 2) {
                (true, _) => format!("{API}/clusterrolebindings"),
                (false, 0) => format!("{API}/namespaces/n/rolebindings"),
                (false, _) => format!("{API}/namespaces/m/rolebindings"),
            };
            let reference = json!({"apiGroup": GROUP, "kind": kind, "name": format!("r{role}-SET")});
            (
                collection,
                json!({"metadata": {"name": format!("b{at}-SET")}, "roleRef": reference, "subjects": subjects}),
            )
        };
        bindings.into_iter().enumerate().map(object).collect::<Vec<_>>()
    });
    (roles, bindings).prop_map(|(roles, bindings)| [roles, bindings].concat())
}

/// Reviews for the users of a set.
fn reviews(set: usize) -> Vec<Value> {
    let subjects = [
        (format!("u-{set}"), vec!["system:authenticated".to_owned()]),
        (format!("other-{set}"), vec![format!("g-{set}"), "system:authenticated".to_owned()]),
        (format!("system:serviceaccount:n:s-{set}"), vec!["system:serviceaccounts".to_owned()]),
    ];
    let mut all = Vec::new();
    for (user, groups) in subjects {
        for (verb, group, resource, subresource, namespace, name) in ACTIONS {
            let attributes = json!({
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name,
            });
            all.push(json!({"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}));
        }
        for path in PATHS {
            let attributes = json!({"verb": "get", "path": path});
            all.push(json!({"spec": {"user": user, "groups": groups, "nonResourceAttributes": attributes}}));
        }
    }
    all
}

/// What both servers say of the same review: whether it is allowed, and why not. Roles that are missing are named in no
/// order.
async fn answer(client: &Client, review: &Value) -> (u16, bool, Vec<String>) {
    let (code, body) = send(client, REVIEWS, review).await;
    let status = &body["status"];
    let allowed = status["allowed"] == true;
    let reason = status["reason"].as_str().unwrap_or_default();
    let mut missing: Vec<String> = if allowed {
        Vec::new()
    } else {
        reason.trim_start_matches("RBAC: ").trim_matches(['[', ']']).split(", ").map(str::to_owned).collect()
    };
    missing.sort();
    (code, allowed, missing)
}

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_random_rules_are_decided_alike() {
    let cluster = RealCluster::builder().start().unwrap();
    let (_server, own) = embedded().await;
    let clients = [cluster.client().await.unwrap(), own];
    for namespace in ["n", "m"] {
        for client in &clients {
            let namespace = json!({"metadata": {"name": namespace}});
            assert_eq!(send(client, "/api/v1/namespaces", &namespace).await.0, 201);
        }
    }
    let mut runner = TestRunner::deterministic();
    let (mut differences, mut written, mut allowed) = (Vec::new(), [0, 0], 0);
    for set in 0..SETS {
        for (collection, object) in objects().new_tree(&mut runner).unwrap().current() {
            let object: Value = serde_json::from_str(&object.to_string().replace("SET", &set.to_string())).unwrap();
            let [real, own] =
                [send(&clients[0], &collection, &object).await, send(&clients[1], &collection, &object).await];
            written[usize::from(own.0 == 201)] += 1;
            if real.0 != own.0 || (real.0 != 201 && real.1["message"] != own.1["message"]) {
                let said = [&real, &own].map(|(code, body)| format!("{code} {}", body["message"]));
                differences.push(format!("{collection} {object}\n  real {}\n  own  {}", said[0], said[1]));
            }
        }
    }
    // When it was waited for once, the real server has seen all that was written before.
    let mut tries = MAX_TRIES;
    for review in (0..SETS).flat_map(reviews) {
        let own = answer(&clients[1], &review).await;
        let mut real = answer(&clients[0], &review).await;
        while real != own && tries > 0 {
            tries -= 1;
            tokio::time::sleep(LOOK_AGAIN).await;
            real = answer(&clients[0], &review).await;
        }
        allowed += usize::from(own.1);
        if real != own {
            differences.push(format!("{review}\n  real {real:?}\n  own  {own:?}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    // Neither everything was refused, nor everything accepted; some questions are answered with yes.
    assert!(written[0] > 10 && written[1] > 100 && allowed > 100, "{written:?} {allowed}");
}
