//! Writes through subresources.

use serde_json::json;

use super::Api;

const POD: &str = "/api/v1/namespaces/default/pods/p";
const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
async fn resize_and_ephemeral_containers_take_apply_patches() {
    let api = Api::start().await;
    let resources = json!({"requests": {"cpu": "1"}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    });
    api.accept("POST", "/api/v1/namespaces/default/pods", &pod).await;

    let config =
        |spec: serde_json::Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
    let bigger =
        config(json!({"containers": [{"name": "c", "image": "other", "resources": {"requests": {"cpu": "2"}}}]}));
    let (code, answer) = api.send_as(APPLY, "PATCH", &format!("{POD}/resize?fieldManager=sizer"), &bigger).await;
    assert_eq!((code, answer["reason"].as_str()), (409, Some("Conflict")), "{answer}");
    let (code, resized) =
        api.send_as(APPLY, "PATCH", &format!("{POD}/resize?fieldManager=sizer&force=true"), &bigger).await;
    assert_eq!(code, 200, "{resized}");
    let container = &resized["spec"]["containers"][0];
    assert_eq!((&container["resources"]["requests"]["cpu"], &container["image"]), (&json!("2"), &json!("i")));

    let debug = config(json!({"ephemeralContainers": [{"name": "debug", "image": "tools"}]}));
    let path = format!("{POD}/ephemeralcontainers?fieldManager=debugger");
    let (code, debugged) = api.send_as(APPLY, "PATCH", &path, &debug).await;
    assert_eq!(code, 200, "{debugged}");
    assert_eq!(debugged["spec"]["ephemeralContainers"][0]["name"], "debug");
    assert_eq!(debugged["metadata"]["generation"], 3);
    let managers: Vec<_> = debugged["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), entry["subresource"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(managers, [("debugger", "ephemeralcontainers"), ("sizer", "resize"), ("tester", "")]);
}

#[tokio::test]
async fn pods_without_a_kubelet_say_what_is_missing() {
    let api = Api::start().await;
    let pod = |node: &str| {
        let assigned = (node != "none").then_some(node);
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("on-{node}")},
            "spec": {"nodeName": assigned, "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "played"}});
    api.accept("POST", "/api/v1/nodes", &node).await;
    for node in ["none", "played", "gone"] {
        api.accept("POST", "/api/v1/namespaces/default/pods", &pod(node)).await;
    }
    let ask = async |method: &str, path: &str| {
        let (code, answer) =
            api.send(method, &format!("/api/v1/namespaces/default/pods/{path}"), &serde_json::Value::Null).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    for (method, path) in [
        ("GET", "on-played/log"),
        ("POST", "on-played/exec?command=ls&stdout=1"),
        ("POST", "on-played/attach?stdout=1"),
        ("POST", "on-played/portforward"),
    ] {
        let (code, message) = ask(method, path).await;
        let missing = "status.daemonEndpoints.kubeletEndpoint.Port is not set. A stand-in plays this node";
        assert_eq!(code, 501, "{path}: {message}");
        assert!(
            message.starts_with("node \"played\" has no kubelet") && message.contains(missing),
            "{path}: {message}"
        );
    }
    assert_eq!(ask("GET", "on-none/log").await, (400, "pod on-none does not have a host assigned".to_owned()));
    assert_eq!(ask("GET", "on-gone/log").await, (404, "nodes \"gone\" not found".to_owned()));
}

const POOLS: &str = "/apis/pond.example/v1/pools";

/// A kind like Karpenter's NodePool: `replicas` may not come or go, and has a range in its schema.
fn pools() -> serde_json::Value {
    let replicas = json!({"type": "integer", "minimum": 0, "maximum": 100});
    let rule = json!({
        "rule": "has(self.replicas) == has(oldSelf.replicas)",
        "message": "Cannot transition between static and dynamic",
    });
    let status_rule = json!({"rule": "self.replicas < 10", "message": "status.replicas is small"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pools.pond.example"},
        "spec": {
            "group": "pond.example", "scope": "Cluster",
            "names": {"plural": "pools", "singular": "pool", "kind": "Pool", "listKind": "PoolList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": replicas}, "x-kubernetes-validations": [rule]},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}},
                        "x-kubernetes-validations": [status_rule]},
                }}},
            }],
        },
    })
}

#[tokio::test]
async fn every_way_to_scale_obeys_schema_and_rules() {
    let api = Api::start().await;
    api.accept("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &pools()).await;
    let pool = |name: &str, spec: serde_json::Value| json!({"apiVersion": "pond.example/v1", "kind": "Pool", "metadata": {"name": name}, "spec": spec});
    api.accept("POST", POOLS, &pool("dynamic", json!({}))).await;
    api.accept("POST", POOLS, &pool("static", json!({"replicas": 1}))).await;

    let scale = |name: &str, replicas: i64| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name},
            "spec": {"replicas": replicas}})
    };
    let refused = "Pool.pond.example \"dynamic\" is invalid: spec: Invalid value: \
                   Cannot transition between static and dynamic";
    let path = format!("{POOLS}/dynamic/scale");
    for (media_type, method, query) in [
        ("application/json", "PUT", ""),
        ("application/merge-patch+json", "PATCH", ""),
        ("application/merge-patch+json", "PATCH", "?dryRun=All"),
        (APPLY, "PATCH", "?fieldManager=m&force=true"),
    ] {
        let (code, answer) = api.send_as(media_type, method, &format!("{path}{query}"), &scale("dynamic", 2)).await;
        assert_eq!((code, answer["reason"].as_str()), (422, Some("Invalid")), "{method} {media_type}: {answer}");
        assert_eq!(answer["message"], refused, "{method} {media_type}");
        assert_eq!(answer["details"]["kind"], "Pool");
        assert_eq!(answer["details"]["causes"][0]["field"], "spec");
    }
    assert_eq!(api.get(&format!("{POOLS}/dynamic")).await["spec"], json!({}));

    let path = format!("{POOLS}/static/scale");
    let (code, message) = api.refuse("PUT", &path, &scale("static", 101)).await;
    assert_eq!(code, 422, "{message}");
    assert!(message.contains("spec.replicas in body should be less than or equal to 100"), "{message}");
    assert_eq!(api.accept("PUT", &path, &scale("static", 5)).await["spec"]["replicas"], 5);

    let (code, message) =
        api.refuse("PATCH", &format!("{POOLS}/static/status"), &json!({"status": {"replicas": 10}})).await;
    assert_eq!(code, 422, "{message}");
    assert!(message.contains("status.replicas is small"), "{message}");
}

#[tokio::test]
async fn a_built_in_kind_is_validated_when_it_is_scaled() {
    let api = Api::start().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let all = "/apis/apps/v1/namespaces/default/deployments";
    api.accept("POST", all, &deployment).await;
    let scaled = api.accept("PATCH", &format!("{all}/d/scale"), &json!({"spec": {"replicas": 3}})).await;
    assert_eq!(scaled["spec"]["replicas"], 3);
    let (code, message) = api.refuse("PATCH", &format!("{all}/d/scale"), &json!({"spec": {"replicas": -1}})).await;
    assert_eq!(code, 422, "{message}");
}
