//! CRDs come and go; some objects are there from the start.

use serde_json::json;

use super::Api;
use crate::lifecycle::definitions;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[tokio::test]
async fn a_deleted_definition_is_not_served_again_by_a_late_writer() {
    let api = Api::start().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ducks.pond.example"},
        "spec": {
            "group": "pond.example", "scope": "Namespaced",
            "names": {"plural": "ducks", "singular": "duck", "kind": "Duck", "listKind": "DuckList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    api.accept("POST", DEFINITIONS, &definition).await;
    let ducks = "/apis/pond.example/v1/namespaces/default/ducks";
    assert_eq!(api.send("GET", ducks, &json!(null)).await.0, 200);

    // A writer has changed the definition and not yet told the registry when another one removes it.
    let written = api.server.store.get(definitions::COLLECTION, "ducks.pond.example").unwrap();
    let one = format!("{DEFINITIONS}/ducks.pond.example");
    api.accept("PATCH", &one, &json!({"metadata": {"finalizers": null}})).await;
    api.accept("DELETE", &one, &json!(null)).await;
    assert_eq!(api.send("GET", ducks, &json!(null)).await.0, 404);
    definitions::after_write(&api.server, &written);
    assert_eq!(api.send("GET", ducks, &json!(null)).await.0, 404);
    assert_eq!(api.server.registry.current().groups.get("pond.example").map(|group| group.versions.len()), None);
}

#[tokio::test]
async fn the_range_of_service_addresses_is_there_and_ready() {
    let api = Api::start().await;
    let range = api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await;
    assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/16"]));
    let condition = &range["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Ready"), &json!("True")));
    crate::bootstrap(&api.server, 6443).await.unwrap();
    assert_eq!(
        api.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await,
        range,
        "a second start changes nothing"
    );
}
