//! Questions to an authorizer, and what kube-apiserver 1.36 answered (`answers.txt`): every subject is asked about every
//! action, by SubjectAccessReview, after the objects of [`scene`] were created.
//!
//! A line of the answers is the question, and `allowed`, or `denied` with the reason. The reason of what is allowed names
//! one of several bindings, in no order, and is not compared.

use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

pub(super) const ANSWERS: &str = include_str!("answers.txt");

const GROUP: &str = "rbac.authorization.k8s.io";
/// The real server takes a while to see what was created.
const MAX_TRIES: usize = 60;

/// Users with their groups. All but the anonymous one are authenticated.
const SUBJECTS: &[(&str, &[&str])] = &[
    ("nobody", &[]),
    ("system:anonymous", &["system:unauthenticated"]),
    ("root", &["system:masters"]),
    ("jane", &[]),
    ("joe", &[]),
    ("ann", &["ops"]),
    ("viewer", &[]),
    ("editor", &[]),
    ("owner", &[]),
    ("star", &[]),
    ("lost", &[]),
    ("system:serviceaccount:dev:robot", &["system:serviceaccounts", "system:serviceaccounts:dev"]),
    ("system:serviceaccount:dev:other", &["system:serviceaccounts", "system:serviceaccounts:dev"]),
    ("system:serviceaccount:kube-system:namespace-controller", &["system:serviceaccounts"]),
    ("system:bootstrap:abcdef", &["system:bootstrappers"]),
    ("system:kube-scheduler", &[]),
    ("system:kube-controller-manager", &[]),
    ("system:node:n1", &["system:nodes"]),
    ("system:node:n2", &["system:nodes"]),
    ("system:node:", &["system:nodes"]),
    ("system:node:n1", &[]),
];

/// Verb, group, resource (with subresource), namespace, name, field selector; or verb and path.
const ACTIONS: &[(&str, &str, &str, &str, &str, &str)] = &[
    ("get", "", "pods", "dev", "web", ""),
    ("list", "", "pods", "dev", "", ""),
    ("list", "", "pods", "", "", ""),
    ("list", "", "pods", "", "", "spec.nodeName=n1"),
    ("watch", "", "pods", "prod", "", ""),
    ("create", "", "pods", "dev", "", ""),
    ("delete", "", "pods", "dev", "web", ""),
    ("patch", "", "pods/status", "dev", "web", ""),
    ("create", "", "pods/binding", "dev", "web", ""),
    ("create", "", "pods/exec", "dev", "web", ""),
    ("get", "", "pods/log", "dev", "web", ""),
    ("get", "", "secrets", "dev", "used", ""),
    ("get", "", "secrets", "dev", "other", ""),
    ("list", "", "secrets", "dev", "", ""),
    ("update", "", "configmaps", "dev", "settings", ""),
    ("get", "", "configmaps", "dev", "used", ""),
    ("create", "", "serviceaccounts/token", "dev", "used", ""),
    ("impersonate", "", "serviceaccounts", "dev", "robot", ""),
    ("get", "", "nodes", "", "n1", ""),
    ("list", "", "nodes", "", "", ""),
    ("patch", "", "nodes/status", "", "n1", ""),
    ("delete", "", "nodes", "", "n1", ""),
    ("get", "", "namespaces", "dev", "dev", ""),
    ("get", "apps", "deployments", "dev", "web", ""),
    ("update", "apps", "deployments/scale", "dev", "web", ""),
    ("deletecollection", "apps", "deployments", "dev", "", ""),
    ("get", "coordination.k8s.io", "leases", "kube-node-lease", "n1", ""),
    ("create", "certificates.k8s.io", "certificatesigningrequests", "", "", ""),
    ("approve", "certificates.k8s.io", "signers", "", "kubernetes.io/kubelet-serving", ""),
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", "", "", ""),
    ("create", GROUP, "rolebindings", "dev", "", ""),
    ("bind", GROUP, "clusterroles", "dev", "view", ""),
    ("escalate", GROUP, "roles", "dev", "", ""),
    ("get", "example.com", "boats", "dev", "heron", ""),
    ("*", "*", "*", "", "", ""),
];

const PATHS: &[(&str, &str)] = &[
    ("get", "/version"),
    ("get", "/healthz"),
    ("get", "/livez/ping"),
    ("get", "/api/v1"),
    ("get", "/openapi/v3/apis/apps/v1"),
    ("get", "/metrics"),
    ("post", "/version"),
    ("get", "/"),
];

/// One question.
pub(super) struct Question {
    pub(super) text: String,
    pub(super) review: Value,
}

/// All questions, in order.
pub(super) fn questions() -> Vec<Question> {
    let mut all = Vec::new();
    for (user, groups) in SUBJECTS {
        let mut groups = groups.to_vec();
        if *user != "system:anonymous" {
            groups.push("system:authenticated");
        }
        let who = format!("{user} [{}]", groups.join(" "));
        for (verb, group, resource, namespace, name, fields) in ACTIONS {
            let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let mut attributes = json!({
                "verb": verb, "group": group, "resource": plural, "subresource": subresource,
                "namespace": namespace, "name": name,
            });
            if !fields.is_empty() {
                attributes["fieldSelector"] = json!({"rawSelector": fields});
            }
            let text = format!("{who} {verb} {group}/{resource} in {namespace:?} named {name:?} {fields}");
            let review = json!({"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}});
            all.push(Question { text: text.trim_end().to_owned(), review });
        }
        for (verb, path) in PATHS {
            let attributes = json!({"verb": verb, "path": path});
            let review = json!({"spec": {"user": user, "groups": groups, "nonResourceAttributes": attributes}});
            all.push(Question { text: format!("{who} {verb} {path}"), review });
        }
    }
    all
}

/// Collections and the objects that are created in them, in order.
pub(super) fn scene() -> Vec<(&'static str, Value)> {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    const IN_DEV: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/dev/rolebindings";
    let named = |name: &str| json!({"metadata": {"name": name}});
    let rule = |verbs: &[&str], groups: &[&str], resources: &[&str]| json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let user = |name: &str| json!({"apiGroup": GROUP, "kind": "User", "name": name});
    let bind = |name: &str, kind: &str, role: &str, subjects: Value| {
        json!({
            "metadata": {"name": name}, "subjects": subjects,
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        })
    };
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let mut settings = rule(&["get", "update"], &[""], &["configmaps"]);
    settings["resourceNames"] = json!(["settings"]);
    let scale = json!([rule(&["update"], &["apps"], &["*/scale"])]);
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/metrics", "/livez/*"]}]);
    let reader = json!([rule(&["get", "list"], &[""], &["pods", "pods/log"])]);
    let binder = json!([rule(&["bind"], &[GROUP], &["clusterroles"]), rule(&["create"], &[GROUP], &["rolebindings"])]);
    let everything_of_apps = json!([rule(&["*"], &["apps"], &["*"]), rule(&["get"], &["*"], &["boats"])]);
    let robot = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "dev"});
    let web = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "nodeName": "n1", "serviceAccountName": "used",
            "containers": [{
                "name": "c", "image": "i",
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "used", "key": "k"}}}],
            }],
            "volumes": [{"name": "v", "configMap": {"name": "used"}}],
        },
    });
    vec![
        ("/api/v1/namespaces", named("dev")),
        ("/api/v1/namespaces", named("prod")),
        (ROLES, role("test-reader", reader)),
        (ROLES, role("test-scaler", scale)),
        (ROLES, role("test-paths", paths)),
        (ROLES, role("test-binder", binder)),
        (ROLES, role("test-star", everything_of_apps)),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/dev/roles", role("settings", json!([settings]))),
        (BINDINGS, bind("test-jane", "ClusterRole", "test-reader", json!([user("jane")]))),
        (BINDINGS, bind("test-jane-paths", "ClusterRole", "test-paths", json!([user("jane")]))),
        (BINDINGS, bind("test-viewer", "ClusterRole", "view", json!([user("viewer")]))),
        (BINDINGS, bind("test-star", "ClusterRole", "test-star", json!([user("star"), user("other")]))),
        (BINDINGS, bind("test-lost", "ClusterRole", "test-nowhere", json!([user("lost")]))),
        (IN_DEV, bind("joe", "Role", "settings", json!([user("joe")]))),
        (IN_DEV, bind("joe-binds", "ClusterRole", "test-binder", json!([user("joe")]))),
        (
            IN_DEV,
            bind("ann", "ClusterRole", "test-scaler", json!([{"apiGroup": GROUP, "kind": "Group", "name": "ops"}])),
        ),
        (IN_DEV, bind("editor", "ClusterRole", "edit", json!([user("editor")]))),
        (IN_DEV, bind("owner", "ClusterRole", "admin", json!([user("owner")]))),
        (IN_DEV, bind("robot", "ClusterRole", "view", json!([robot]))),
        (IN_DEV, bind("lost", "Role", "nowhere", json!([user("lost")]))),
        ("/api/v1/nodes", node("n1")),
        ("/api/v1/nodes", node("n2")),
        ("/api/v1/namespaces/dev/pods", web),
    ]
}

/// Creates the objects of the scene.
pub(super) async fn set(client: &Client) {
    for (collection, object) in scene() {
        let (code, answer) = send(client, collection, &object).await;
        assert!(code < 300, "{collection}: {code} {answer}");
    }
}

/// The answer to a question, as a line.
pub(super) async fn answer(client: &Client, question: &Question) -> String {
    let (code, review) = send(client, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &question.review).await;
    assert_eq!(code, 201, "{}: {review}", question.text);
    let status = &review["status"];
    let reason = status["reason"].as_str().unwrap_or_default().replace('\n', " / ");
    match (status["allowed"] == true, reason.is_empty()) {
        (true, _) => format!("{}: allowed", question.text),
        (false, true) => format!("{}: denied", question.text),
        (false, false) => format!("{}: denied, {reason}", question.text),
    }
}

/// Questions that are answered otherwise than recorded.
pub(super) async fn differences(client: &Client) -> Vec<String> {
    let mut differences = Vec::new();
    let recorded: Vec<&str> = ANSWERS.lines().collect();
    let questions = questions();
    assert_eq!(questions.len(), recorded.len(), "there is an answer to each question");
    for (question, recorded) in questions.iter().zip(recorded) {
        let mut found = answer(client, question).await;
        for _ in 0..if differences.is_empty() { MAX_TRIES } else { 1 } {
            if found == recorded {
                break;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
            found = answer(client, question).await;
        }
        if found != recorded {
            differences.push(format!("recorded {recorded}\n   found {found}"));
        }
    }
    differences
}

pub(super) async fn send(client: &Client, path: &str, object: &Value) -> (u16, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(object.to_string().into_bytes())).unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}
