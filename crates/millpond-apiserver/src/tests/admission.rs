//! Runtime classes, limit ranges and quotas.

use serde_json::{Value, json};

use super::Api;

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

fn pod(name: &str, resources: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    })
}

/// A quota that has been counted: nothing is used yet.
async fn quota(api: &Api, name: &str, spec: Value) {
    let hard = spec["hard"].clone();
    let used: Value = hard.as_object().unwrap().keys().map(|key| (key.clone(), json!("0"))).collect();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec});
    api.accept("POST", QUOTAS, &quota).await;
    api.accept("PATCH", &format!("{QUOTAS}/{name}/status"), &json!({"status": {"hard": hard, "used": used}})).await;
}

async fn used(api: &Api, name: &str) -> Value {
    api.get(&format!("{QUOTAS}/{name}")).await["status"]["used"].clone()
}

#[tokio::test]
async fn a_runtime_class_gives_its_overhead_and_must_be_there() {
    let api = Api::start().await;
    let mut asking = pod("asking", &json!({}));
    asking["spec"]["runtimeClassName"] = json!("heavy");
    let refusal = api.refuse("POST", PODS, &asking).await;
    assert_eq!(
        refusal,
        (403, r#"pods "asking" is forbidden: pod rejected: RuntimeClass "heavy" not found"#.to_owned())
    );

    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "heavy"}, "handler": "h",
        "overhead": {"podFixed": {"cpu": "100m"}}, "scheduling": {"nodeSelector": {"runtime": "heavy"}},
    });
    api.accept("POST", "/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    let created = api.accept("POST", PODS, &asking).await;
    assert_eq!(created["spec"]["overhead"], json!({"cpu": "100m"}));
    assert_eq!(created["spec"]["nodeSelector"], json!({"runtime": "heavy"}));

    let mut alone = pod("alone", &json!({}));
    alone["spec"]["overhead"] = json!({"cpu": "1"});
    assert_eq!(
        api.refuse("POST", PODS, &alone).await.1,
        "pods \"alone\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    );
}

#[tokio::test]
async fn a_limit_range_fills_in_and_holds_pods_to_its_bounds() {
    let api = Api::start().await;
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"},
        "spec": {"limits": [{
            "type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m", "memory": "1Gi"},
            "defaultRequest": {"cpu": "500m", "memory": "1Gi"},
        }]},
    });
    api.accept("POST", "/api/v1/namespaces/default/limitranges", &range).await;
    let created = api.accept("POST", PODS, &pod("open", &json!({}))).await;
    assert_eq!(created["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
    assert_eq!(created["status"]["qosClass"], "Guaranteed", "the class is told by what was filled in");
    let refusal = api.refuse("POST", PODS, &pod("much", &json!({"limits": {"cpu": "2"}}))).await;
    let expected = r#"pods "much" is forbidden: maximum cpu usage per Container is 1, but limit is 2"#;
    assert_eq!(refusal, (403, expected.to_owned()));
}

#[tokio::test]
async fn pods_are_charged_to_quotas_until_these_are_spent() {
    let api = Api::start().await;
    quota(&api, "compute", json!({"hard": {"pods": "5", "requests.cpu": "1", "requests.example.com/gpu": "2"}})).await;
    quota(&api, "ending", json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]})).await;
    let gpu = json!({"requests": {"cpu": "500m", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
    api.accept("POST", PODS, &pod("one", &gpu)).await;
    let charged = json!({"pods": "1", "requests.cpu": "500m", "requests.example.com/gpu": "1"});
    assert_eq!(used(&api, "compute").await, charged);
    assert_eq!(used(&api, "ending").await, json!({"pods": "0"}), "out of its scope");

    assert_eq!(
        api.refuse("POST", PODS, &pod("silent", &json!({}))).await.1,
        "pods \"silent\" is forbidden: failed quota: compute: must specify requests.cpu for: c"
    );
    assert_eq!(
        api.refuse("POST", PODS, &pod("greedy", &json!({"requests": {"cpu": "600m"}}))).await,
        (
            403,
            "pods \"greedy\" is forbidden: exceeded quota: compute, requested: requests.cpu=600m, used: \
             requests.cpu=500m, limited: requests.cpu=1"
                .to_owned()
        )
    );
    let little = json!({"requests": {"cpu": "100m"}});
    api.accept("POST", &format!("{PODS}?dryRun=All"), &pod("dry", &little)).await;
    assert_eq!(api.refuse("POST", PODS, &pod("one", &little)).await.0, 409);
    assert_eq!(used(&api, "compute").await, charged, "neither a dry run nor a name that is taken costs anything");

    let mut ending = pod("ending", &little);
    ending["spec"]["activeDeadlineSeconds"] = json!(60);
    api.accept("POST", PODS, &ending).await;
    assert_eq!(used(&api, "ending").await, json!({"pods": "1"}));
    let deadline = json!({"spec": {"activeDeadlineSeconds": 60}});
    let refusal = api.refuse("PATCH", &format!("{PODS}/one"), &deadline).await;
    assert!(refusal.1.contains("exceeded quota: ending"), "a pod that comes into a scope is charged: {refusal:?}");
}

#[tokio::test]
async fn an_uncounted_quota_limits_nothing() {
    let api = Api::start().await;
    let uncounted = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "new"}, "spec": {"hard": {"pods": "0"}},
    });
    api.accept("POST", QUOTAS, &uncounted).await;
    api.accept("POST", PODS, &pod("free", &json!({}))).await;
    api.accept("PATCH", &format!("{QUOTAS}/new/status"), &json!({"status": {"hard": {"pods": "5"}}})).await;
    let expected = r#"pods "early" is forbidden: status unknown for quota: new, resources: pods"#;
    assert_eq!(api.refuse("POST", PODS, &pod("early", &json!({}))).await.1, expected);
}

#[tokio::test]
async fn services_claims_and_counted_kinds_are_charged_by_what_they_take() {
    let api = Api::start().await;
    let hard = json!({
        "services": "2", "services.nodeports": "1", "services.loadbalancers": "0", "count/configmaps": "1",
        "configmaps": "5", "secrets": "5", "requests.storage": "3Gi", "persistentvolumeclaims": "2",
        "gold.storageclass.storage.k8s.io/requests.storage": "2Gi", "count/deployments.apps": "0",
    });
    quota(&api, "all", json!({"hard": hard})).await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]},
    });
    api.accept("POST", services, &service).await;
    api.accept("PATCH", &format!("{services}/s"), &json!({"spec": {"type": "NodePort"}})).await;
    let refusal = api.refuse("PATCH", &format!("{services}/s"), &json!({"spec": {"type": "LoadBalancer"}})).await;
    let expected = "services \"s\" is forbidden: exceeded quota: all, requested: services.loadbalancers=1, used: \
                    services.loadbalancers=0, limited: services.loadbalancers=0";
    assert_eq!(refusal, (403, expected.to_owned()));

    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    api.accept("POST", "/api/v1/namespaces/default/configmaps", &map("a")).await;
    let refusal = api.refuse("POST", "/api/v1/namespaces/default/configmaps", &map("b")).await;
    assert!(refusal.1.contains("requested: count/configmaps=1, used: count/configmaps=1"), "{refusal:?}");

    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str, class: &str, size: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": size}},
            },
        })
    };
    api.accept("POST", claims, &claim("gold", "gold", "1Gi")).await;
    let refusal = api.refuse("POST", claims, &claim("more", "gold", "1500Mi")).await;
    assert!(refusal.1.contains("gold.storageclass.storage.k8s.io/requests.storage=1500Mi"), "{refusal:?}");
    api.accept("POST", claims, &claim("lead", "lead", "2Gi")).await;
    let counted = used(&api, "all").await;
    let expected = json!({
        "services": "1", "services.nodeports": "1", "services.loadbalancers": "0", "count/configmaps": "1",
        "configmaps": "1", "secrets": "0", "requests.storage": "3Gi", "persistentvolumeclaims": "2",
        "gold.storageclass.storage.k8s.io/requests.storage": "1Gi", "count/deployments.apps": "0",
    });
    assert_eq!(counted, expected);
}

#[tokio::test]
async fn creations_at_once_do_not_share_what_is_left() {
    let api = Api::start().await;
    quota(&api, "few", json!({"hard": {"pods": "3"}})).await;
    let pods: Vec<Value> = (0..10).map(|number| pod(&format!("p{number}"), &json!({}))).collect();
    let created = futures::future::join_all(pods.iter().map(|pod| api.send("POST", PODS, pod))).await;
    assert_eq!(created.iter().filter(|(code, _)| *code == 201).count(), 3);
    assert_eq!(used(&api, "few").await, json!({"pods": "3"}));
}
