//! Parts of a pod, applied.

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
