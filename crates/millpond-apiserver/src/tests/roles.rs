//! Who may do what: default roles, bindings, escalation, impersonation, reviews, nodes.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower_service::Service as _;

use super::Api;
use crate::auth::Identity;
use crate::clock::Clock;
use crate::lifecycle::{self, LifecycleOptions};
use crate::server::{Server, ServerOptions};
use crate::store::Store;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn user(name: &str, groups: &[&str]) -> Identity {
    Identity::new(name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
}

fn node(name: &str) -> Identity {
    user(&format!("system:node:{name}"), &["system:nodes"])
}

/// A request of an identity; the answer's code and text.
async fn ask(server: &Arc<Server>, who: &Identity, method: &str, path: &str, body: &Value) -> (u16, Value) {
    ask_as(server, who, &[], method, path, body).await
}

async fn ask_as(
    server: &Arc<Server>,
    who: &Identity,
    headers: &[(&str, &str)],
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = Request::builder().method(method).uri(path).header("content-type", media_type);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.body(Full::<Bytes>::from(body)).unwrap();
    let response = server.service_for(who.clone()).call(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

async fn get(server: &Arc<Server>, who: &Identity, path: &str) -> (u16, String) {
    let (code, answer) = ask(server, who, "GET", path, &Value::Null).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

async fn role(api: &Api, name: &str, rules: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    api.accept("POST", &format!("{RBAC}/clusterroles"), &role).await;
}

fn binding(name: &str, role: &str, subject: Value) -> Value {
    json!({
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    })
}

fn to_user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

async fn bind(api: &Api, role: &str, name: &str) {
    let path = format!("{RBAC}/clusterrolebindings");
    api.accept("POST", &path, &binding(&format!("{role}-{name}").replace(':', "-"), role, to_user(name))).await;
}

#[tokio::test]
async fn a_user_without_roles_may_discover_and_no_more() {
    let api = Api::start().await;
    let jane = user("jane", &[]);
    let refused = |what: &str| Some((403, what.to_owned()));
    let cases = [
        ("/version", None),
        ("/api", None),
        ("/apis", None),
        ("/apis/apps/v1", None),
        ("/openapi/v3", None),
        ("/metrics", refused("forbidden: User \"jane\" cannot get path \"/metrics\"")),
        (
            PODS,
            refused(
                "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
            ),
        ),
        (
            "/api/v1/pods?watch=true",
            refused(
                "pods is forbidden: User \"jane\" cannot watch resource \"pods\" in API group \"\" at the cluster scope",
            ),
        ),
        (
            "/api/v1/namespaces/default/pods/a/log",
            refused(
                "pods \"a\" is forbidden: User \"jane\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"default\"",
            ),
        ),
        (
            "/api/v1/namespaces/dev",
            refused(
                "namespaces \"dev\" is forbidden: User \"jane\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"dev\"",
            ),
        ),
        (
            "/apis/apps/v1/deployments",
            refused(
                "deployments.apps is forbidden: User \"jane\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope",
            ),
        ),
        (
            "/apis/none.example/v1/things",
            refused(
                "things.none.example is forbidden: User \"jane\" cannot list resource \"things\" in API group \"none.example\" at the cluster scope",
            ),
        ),
        (
            "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
            refused(
                "nodes \"n1\" is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
            ),
        ),
    ];
    for (path, expected) in cases {
        let answer = get(&api.server, &jane, path).await;
        match expected {
            None => assert_eq!(answer.0, 200, "{path}: {}", answer.1),
            Some(expected) => assert_eq!(answer, expected, "{path}"),
        }
    }
    let anonymous =
        api.server.service().call(Request::get(PODS).body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(anonymous.status(), 403);
}

#[tokio::test]
async fn a_binding_counts_with_the_answer_to_its_creation() {
    let api = Api::start().await;
    let jane = user("jane", &["dev"]);
    role(&api, "reader", json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}])).await;
    assert_eq!(get(&api.server, &jane, PODS).await.0, 403);
    let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"});
    let path = format!("{RBAC}/namespaces/default/rolebindings");
    api.accept("POST", &path, &binding("readers", "reader", group)).await;
    assert_eq!(get(&api.server, &jane, PODS).await.0, 200);
    assert_eq!(get(&api.server, &jane, "/api/v1/namespaces/kube-system/pods").await.0, 403);
    let rules = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    api.accept("PATCH", &format!("{RBAC}/clusterroles/reader"), &rules).await;
    assert_eq!(get(&api.server, &jane, PODS).await.0, 403);
    api.accept("DELETE", &format!("{RBAC}/clusterroles/reader"), &Value::Null).await;
    let why = get(&api.server, &jane, &format!("{PODS}/a")).await.1;
    assert!(why.ends_with(": RBAC: clusterrole.rbac.authorization.k8s.io \"reader\" not found"), "{why}");
    // A storm that the history does not hold is no obstacle.
    api.server.store().forget_history();
    role(&api, "reader", json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}])).await;
    assert_eq!(get(&api.server, &jane, PODS).await.0, 200);
}

#[tokio::test]
async fn a_service_account_has_what_it_is_given() {
    let api = Api::start().await;
    let robot = Identity::service_account("default", "robot");
    assert_eq!(get(&api.server, &robot, PODS).await.0, 403);
    let subject = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"});
    let path = format!("{RBAC}/clusterrolebindings");
    api.accept("POST", &path, &binding("robots", "cluster-admin", subject)).await;
    assert_eq!(get(&api.server, &robot, PODS).await.0, 200);
    assert_eq!(get(&api.server, &robot, "/metrics").await.0, 200);
}

#[tokio::test]
async fn users_grant_only_what_they_have() {
    let api = Api::start().await;
    let jane = user("jane", &[]);
    role(&api, "role-writer", json!([{"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles"]}])).await;
    bind(&api, "role-writer", "jane").await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let wish = json!({"metadata": {"name": "r"}, "rules": [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]},
        {"verbs": ["get"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"]},
    ]});
    role(
        &api,
        "role-escalator",
        json!([{"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"]}]),
    )
    .await;
    // `*` on roles includes escalate; a user with the plain verbs is refused.
    let joe = user("joe", &[]);
    role(&api, "plain", json!([{"verbs": ["create", "update", "patch", "get"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles"]}])).await;
    bind(&api, "plain", "joe").await;
    let (code, answer) = ask(&api.server, &joe, "POST", &roles, &wish).await;
    assert_eq!(code, 403);
    assert_eq!(
        answer["message"],
        "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"joe\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
    assert_eq!(ask(&api.server, &jane, "POST", &roles, &wish).await.0, 201);

    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let admin = binding("b", "cluster-admin", to_user("joe"));
    assert_eq!(ask(&api.server, &joe, "POST", &bindings, &admin).await.0, 403);
    let unknown = binding("b", "nowhere", to_user("joe"));
    let (code, answer) = ask(&api.server, &joe, "POST", &bindings, &unknown).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (404, "rolebindings.rbac.authorization.k8s.io \"nowhere\" not found")
    );
    assert_eq!(ask(&api.server, &joe, "POST", &bindings, &binding("own", "plain", to_user("ann"))).await.0, 201);
    role(&api, "binder", json!([{"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["view"]}])).await;
    bind(&api, "binder", "joe").await;
    assert_eq!(ask(&api.server, &joe, "POST", &bindings, &binding("viewer", "view", to_user("ann"))).await.0, 201);

    let aggregated = json!({
        "metadata": {"name": "all"}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    });
    let (code, answer) = ask(&api.server, &joe, "POST", &format!("{RBAC}/clusterroles"), &aggregated).await;
    assert_eq!(code, 403);
    assert!(
        answer["message"].as_str().unwrap().ends_with("must have cluster-admin privileges to use the aggregationRule")
    );
}

#[tokio::test]
async fn impersonation_is_asked_for_like_everything_else() {
    let api = Api::start().await;
    let root = Identity::administrator("root");
    let as_jane = [("impersonate-user", "jane"), ("impersonate-group", "dev")];
    let whoami = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = ask_as(&api.server, &root, &as_jane, "POST", whoami, &json!({})).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["status"]["userInfo"], json!({"username": "jane", "groups": ["dev", "system:authenticated"]}));
    assert_eq!(ask_as(&api.server, &root, &as_jane, "GET", PODS, &Value::Null).await.0, 403, "with the rights of jane");

    let joe = user("joe", &[]);
    let (code, answer) = ask_as(&api.server, &joe, &as_jane, "GET", PODS, &Value::Null).await;
    let why = "pods is forbidden: User \"joe\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\"";
    assert_eq!((code, answer["message"].as_str().unwrap()), (403, why));
    role(
        &api,
        "impersonator",
        json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["jane"]}]),
    )
    .await;
    bind(&api, "impersonator", "joe").await;
    let only_user = &as_jane[..1];
    assert_eq!(ask_as(&api.server, &joe, only_user, "POST", whoami, &json!({})).await.0, 201);
    assert_eq!(
        ask_as(&api.server, &joe, &as_jane, "POST", whoami, &json!({})).await.0,
        403,
        "the group is asked for, too"
    );

    let account = [("impersonate-user", "system:serviceaccount:ci:robot")];
    let (_, answer) = ask_as(&api.server, &root, &account, "POST", whoami, &json!({})).await;
    assert_eq!(
        answer["status"]["userInfo"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"])
    );
    let extra = [("impersonate-user", "jane"), ("impersonate-uid", "7"), ("impersonate-extra-example.com%2fteam", "a")];
    let (_, answer) = ask_as(&api.server, &root, &extra, "POST", whoami, &json!({})).await;
    assert_eq!(answer["status"]["userInfo"]["uid"], "7");
    assert_eq!(answer["status"]["userInfo"]["extra"], json!({"example.com/team": ["a"]}));
    let masters = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
    assert_eq!(ask_as(&api.server, &root, &masters, "GET", PODS, &Value::Null).await.0, 200);
    let nobody = [("impersonate-group", "dev")];
    assert_eq!(ask_as(&api.server, &root, &nobody, "GET", PODS, &Value::Null).await.0, 400);
}

#[tokio::test]
async fn reviews_tell_what_the_authorizer_says() {
    let api = Api::start().await;
    role(&api, "reader", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])).await;
    bind(&api, "reader", "jane").await;
    let jane = user("jane", &[]);
    let group = "/apis/authorization.k8s.io/v1";
    let can = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}});
    let path = format!("{group}/selfsubjectaccessreviews");
    let (_, answer) = ask(&api.server, &jane, "POST", &path, &can("get")).await;
    assert_eq!(answer["status"]["allowed"], true);
    let reason = "RBAC: allowed by ClusterRoleBinding \"reader-jane\" of ClusterRole \"reader\" to User \"jane\"";
    assert_eq!(answer["status"]["reason"], reason);
    let (_, answer) = ask(&api.server, &jane, "POST", &path, &can("delete")).await;
    assert_eq!(answer["status"], json!({"allowed": false}));

    let mut about = can("get");
    let reviews = format!("{group}/subjectaccessreviews");
    assert_eq!(ask(&api.server, &jane, "POST", &reviews, &about).await.0, 403);
    assert_eq!(api.refuse("POST", &reviews, &about).await.0, 422, "no user is named");
    about["spec"]["user"] = json!("jane");
    assert_eq!(api.accept("POST", &reviews, &about).await["status"]["allowed"], true);
    let url = json!({"spec": {"user": "jane", "groups": ["system:authenticated"], "nonResourceAttributes": {"verb": "get", "path": "/api/v1"}}});
    assert_eq!(api.accept("POST", &reviews, &url).await["status"]["allowed"], true);
    let local = format!("{group}/namespaces/kube-system/localsubjectaccessreviews");
    assert_eq!(api.refuse("POST", &local, &about).await.0, 422, "another namespace");

    let (_, rules) = ask(
        &api.server,
        &jane,
        "POST",
        &format!("{group}/selfsubjectrulesreviews"),
        &json!({"spec": {"namespace": "default"}}),
    )
    .await;
    let rules = &rules["status"];
    assert_eq!(rules["incomplete"], false);
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    assert!(rules["resourceRules"].as_array().unwrap().contains(&pods), "{rules}");
    let list = rules["nonResourceRules"].as_array().unwrap();
    assert!(list.iter().any(|rule| rule["nonResourceURLs"].as_array().unwrap().contains(&json!("/healthz"))));
}

#[tokio::test]
async fn aggregated_roles_have_the_rules_of_those_that_they_select() {
    let api = Api::start().await;
    tokio::spawn(lifecycle::run(api.server.clone(), LifecycleOptions { controllers: true }));
    bind(&api, "view", "jane").await;
    let jane = user("jane", &[]);
    let mut changed = api.server.store.subscribe(&"clusterroles.rbac.authorization.k8s.io".into());
    while get(&api.server, &jane, PODS).await.0 != 200 {
        changed.changed().await.unwrap();
    }
    assert_eq!(get(&api.server, &jane, "/api/v1/namespaces/default/secrets").await.0, 403);
    let boats = json!({
        "metadata": {"name": "boats", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"verbs": ["get", "list"], "apiGroups": ["example.com"], "resources": ["boats"]}],
    });
    api.accept("POST", &format!("{RBAC}/clusterroles"), &boats).await;
    let review = json!({"spec": {"user": "jane", "resourceAttributes": {"verb": "get", "group": "example.com", "resource": "boats"}}});
    while api.accept("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await["status"]["allowed"]
        != true
    {
        changed.changed().await.unwrap();
    }
}

#[tokio::test]
async fn default_roles_are_completed_at_a_start_by_default() {
    let store = Store::in_memory(Clock::System);
    let api = Api::with(store.clone(), Clock::System, ServerOptions::default()).await;
    let discovery = format!("{RBAC}/clusterroles/system:discovery");
    let own = json!({"verbs": ["get"], "nonResourceURLs": ["/own"]});
    api.accept("PATCH", &discovery, &json!({"rules": [own]})).await;
    let basic = format!("{RBAC}/clusterroles/system:basic-user");
    let off =
        json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": null});
    api.accept("PATCH", &basic, &off).await;
    api.accept("DELETE", &format!("{RBAC}/clusterrolebindings/system:discovery"), &Value::Null).await;

    let api = Api::with(store, Clock::System, ServerOptions::default()).await;
    let rules = api.get(&discovery).await["rules"].clone();
    assert!(rules.as_array().unwrap().contains(&own) && rules.as_array().unwrap().len() > 1, "{rules}");
    assert!(api.get(&basic).await["rules"].as_array().is_none_or(Vec::is_empty));
    api.get(&format!("{RBAC}/clusterrolebindings/system:discovery")).await;
    let revision = api.server.store().revision();
    crate::bootstrap(&api.server, 6443).await.unwrap();
    assert_eq!(api.server.store().revision(), revision, "nothing is left to do");
}

/// Two nodes, and a pod with a secret on the first one.
async fn two_nodes() -> Api {
    let api = Api::start().await;
    for name in ["n1", "n2"] {
        let own = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        let (code, answer) = ask(&api.server, &node(name), "POST", "/api/v1/nodes", &own).await;
        assert_eq!(code, 201, "{answer}");
    }
    for name in ["used", "other"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        api.accept("POST", "/api/v1/namespaces/default/secrets", &secret).await;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        api.accept("POST", "/api/v1/namespaces/default/configmaps", &map).await;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        api.accept("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "nodeName": "n1", "serviceAccountName": "used",
            "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "used", "key": "k"}}}]}],
            "volumes": [
                {"name": "v", "configMap": {"name": "used"}},
                {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            ],
        },
    });
    api.accept("POST", PODS, &pod).await;
    api
}

#[tokio::test]
async fn a_node_reads_what_its_pods_need() {
    let api = two_nodes().await;
    let (one, two) = (node("n1"), node("n2"));
    for (path, first, second) in [
        ("/api/v1/namespaces/default/secrets/used", 200, 403),
        ("/api/v1/namespaces/default/secrets/other", 403, 403),
        ("/api/v1/namespaces/default/secrets", 403, 403),
        ("/api/v1/namespaces/default/configmaps/used", 200, 403),
        ("/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dused", 200, 403),
        ("/api/v1/namespaces/default/serviceaccounts/used", 200, 403),
        ("/api/v1/namespaces/default/pods/web", 200, 403),
        ("/api/v1/pods", 403, 403),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", 200, 403),
        ("/api/v1/nodes/n1", 200, 403),
        ("/api/v1/nodes", 403, 403),
        ("/api/v1/nodes?fieldSelector=metadata.name%3Dn1", 200, 403),
        ("/api/v1/services", 200, 200),
        ("/api/v1/namespaces", 403, 403),
    ] {
        assert_eq!(get(&api.server, &one, path).await.0, first, "n1 {path}");
        assert_eq!(get(&api.server, &two, path).await.0, second, "n2 {path}");
    }
    let why = "secrets \"other\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\": no relationship found between node 'n1' and this object";
    assert_eq!(get(&api.server, &one, "/api/v1/namespaces/default/secrets/other").await.1, why);
    api.accept("DELETE", &format!("{PODS}/web?gracePeriodSeconds=0"), &Value::Null).await;
    assert_eq!(
        get(&api.server, &one, "/api/v1/namespaces/default/secrets/used").await.0,
        403,
        "with the pod its secret goes"
    );
}

#[tokio::test]
async fn a_node_writes_what_is_its_own() {
    let api = two_nodes().await;
    let (one, two) = (node("n1"), node("n2"));
    let status = json!({"status": {"phase": "Running"}});
    let web = format!("{PODS}/web/status");
    assert_eq!(ask(&api.server, &one, "PATCH", &web, &status).await.0, 200);
    let (code, answer) = ask(&api.server, &two, "PATCH", &web, &status).await;
    let why =
        "pods \"web\" is forbidden: node \"n2\" can only update pod status for pods with spec.nodeName set to itself";
    assert_eq!((code, answer["message"].as_str().unwrap()), (403, why));

    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    assert_eq!(ask(&api.server, &one, "PATCH", "/api/v1/nodes/n1", &label("example.com/rack")).await.0, 200);
    let (code, answer) =
        ask(&api.server, &one, "PATCH", "/api/v1/nodes/n1", &label("node-role.kubernetes.io/infra")).await;
    let why = "nodes \"n1\" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/infra";
    assert_eq!((code, answer["message"].as_str().unwrap()), (403, why));
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    assert_eq!(ask(&api.server, &one, "PATCH", "/api/v1/nodes/n1", &taint).await.0, 403);
    let (code, answer) = ask(&api.server, &two, "PATCH", "/api/v1/nodes/n1", &label("a")).await;
    let why = "nodes \"n1\" is forbidden: node \"n2\" is not allowed to modify node \"n1\"";
    assert_eq!((code, answer["message"].as_str().unwrap()), (403, why));

    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease =
        |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    assert_eq!(ask(&api.server, &one, "POST", leases, &lease("n1")).await.0, 201);
    assert_eq!(ask(&api.server, &two, "POST", leases, &lease("n1")).await.0, 403);
    assert_eq!(ask(&api.server, &two, "GET", &format!("{leases}/n1"), &Value::Null).await.0, 403);

    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    let (code, answer) = ask(&api.server, &one, "POST", PODS, &pod).await;
    let why = "pods \"own\" is forbidden: pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods";
    assert_eq!((code, answer["message"].as_str().unwrap()), (403, why));
    let uid = api.get("/api/v1/nodes/n1").await["metadata"]["uid"].clone();
    let mut mirror = pod.clone();
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
    mirror["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true}]);
    let (code, answer) = ask(&api.server, &one, "POST", PODS, &mirror).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(ask(&api.server, &two, "DELETE", &format!("{PODS}/own"), &Value::Null).await.0, 403);
    assert_eq!(ask(&api.server, &one, "DELETE", &format!("{PODS}/own"), &Value::Null).await.0, 200);

    let token = "/api/v1/namespaces/default/serviceaccounts/used/token";
    let (code, answer) = ask(&api.server, &one, "POST", token, &json!({})).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap()),
        (403, "serviceaccounts \"used\" is forbidden: node requested token not bound to a pod")
    );
    let web = api.get(&format!("{PODS}/web")).await["metadata"]["uid"].clone();
    let bound = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": web}}});
    let (code, answer) = ask(&api.server, &one, "POST", token, &bound).await;
    assert_eq!(code, 201, "{answer}");
}
