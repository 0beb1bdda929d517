//! The parts of the documents that clients depend on.

use http::header::ACCEPT;

use super::*;
use crate::builtin;
use crate::registry::Registry;

const POD: &str = "io.k8s.api.core.v1.Pod";

fn served() -> Arc<Resources> {
    Registry::new(builtin::resources()).current()
}

fn document(group: &str, version: &str) -> Value {
    let document = OpenApi::default().document(&served(), group, version).unwrap();
    serde_json::from_slice(&document.text).unwrap()
}

fn swagger(accept: &str) -> Result<Document, ApiError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, accept.parse().unwrap());
    OpenApi::default().swagger(&served(), &headers)
}

fn names(parameters: &Value) -> Vec<&str> {
    parameters.as_array().unwrap().iter().map(|parameter| parameter["name"].as_str().unwrap()).collect()
}

/// Every `$ref` of a document.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                found.push(reference.clone());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn the_index_leads_to_every_document_by_its_hash() {
    let resources = served();
    let openapi = OpenApi::default();
    let index = openapi.index(&resources);
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.len(), versions(&resources).count());
    for (group, version) in versions(&resources) {
        let document = openapi.document(&resources, group, &version.version).unwrap();
        let path = path_of(group, &version.version);
        let address = format!("/openapi/v3/{path}?hash={}", document.tag.trim_matches('"'));
        assert_eq!(paths[&path]["serverRelativeURL"], address);
    }
    assert!(openapi.document(&resources, "apps", "v9").is_none());
}

#[test]
fn tags_last_as_long_as_the_text_is_the_same() {
    let first = OpenApi::default().document(&served(), "apps", "v1").unwrap();
    let second = OpenApi::default().document(&served(), "apps", "v1").unwrap();
    assert_eq!((first.tag, first.text), (second.tag, second.text));
}

#[test]
fn every_reference_leads_somewhere() {
    let resources = served();
    let openapi = OpenApi::default();
    for (group, version) in versions(&resources) {
        let document = openapi.document(&resources, group, &version.version).unwrap();
        let document: Value = serde_json::from_slice(&document.text).unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{group}: {reference}");
        }
    }
    let document = swagger("application/json").unwrap();
    let document: Value = serde_json::from_slice(&document.text).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    for reference in found {
        let name = reference.strip_prefix("#/definitions/").unwrap();
        assert!(document["definitions"][name].is_object(), "{reference}");
    }
}

#[test]
fn kubectl_finds_the_parameters_of_a_patch() {
    let document = document("", "v1");
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(names(&patch["parameters"]), ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
    assert_eq!(patch["operationId"], "patchCoreV1NamespacedPod");
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
}

#[test]
fn kubectl_explain_finds_kinds_and_texts() {
    let document = document("", "v1");
    let list = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["get"];
    assert_eq!(list["x-kubernetes-group-version-kind"]["kind"], "Pod");
    let pod = &document["components"]["schemas"][POD];
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "version": "v1", "kind": "Pod"}]));
    let spec = &pod["properties"]["spec"];
    assert_eq!(spec["allOf"], json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}]));
    assert_eq!(spec["default"], json!({}));
    assert!(spec["description"].as_str().unwrap().starts_with("Specification of the desired behavior of the pod."));
    let container = &document["components"]["schemas"]["io.k8s.api.core.v1.Container"];
    assert_eq!(container["properties"]["ports"]["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(container["properties"]["ports"]["x-kubernetes-patch-merge-key"], "containerPort");
    let quantity = &document["components"]["schemas"]["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["oneOf"], json!([{"type": "string"}, {"type": "number"}]));
}

#[test]
fn subresources_have_the_kind_of_their_body() {
    let document = document("apps", "v1");
    let scale = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]["put"];
    let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    assert_eq!(scale["x-kubernetes-group-version-kind"], kind);
    let core = self::document("", "v1");
    let eviction = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"];
    assert!(eviction["get"].is_null());
    assert_eq!(eviction["post"]["operationId"], "createCoreV1NamespacedPodEviction");
}

#[test]
fn common_types_name_the_groups_of_the_document() {
    let options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    let apps = document("apps", "v1");
    let kind = |group: &str| json!({"group": group, "version": "v1", "kind": "DeleteOptions"});
    let kinds = &apps["components"]["schemas"][options]["x-kubernetes-group-version-kind"];
    assert_eq!(*kinds, json!([kind(""), kind("apps")]));
}

#[test]
fn swagger_says_what_it_can() {
    let document = swagger("application/json, */*").unwrap();
    let document: Value = serde_json::from_slice(&document.text).unwrap();
    let spec = &document["definitions"][POD]["properties"]["spec"];
    assert_eq!(spec["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    assert!(spec["default"].is_null());
    let quantity = &document["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!(quantity["type"], "string");
    let create = &document["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(names(&create["parameters"]), ["body", "dryRun", "fieldManager", "fieldValidation"]);
    assert_eq!(create["parameters"][0]["schema"]["$ref"], format!("#/definitions/{POD}"));
}

#[test]
fn swagger_comes_in_the_form_that_is_asked_for() {
    let json = swagger("*/*").unwrap();
    for accept in GNOSTIC_TYPES {
        let document = swagger(accept).unwrap();
        assert_eq!(document.media_type, GNOSTIC_TYPES[1]);
        assert_eq!(document.tag, json.tag);
        assert!(document.text.starts_with(b"\x0a\x032.0"));
    }
    assert_eq!(swagger("text/html").unwrap_err().code, StatusCode::NOT_ACCEPTABLE);
}

#[test]
fn documents_follow_what_is_served() {
    let registry = Registry::new(builtin::resources());
    let openapi = OpenApi::default();
    let before = openapi.index(&registry.current());
    let mut extra = builtin::resources().remove(0);
    extra.group = "stable.example.com".into();
    registry.refresh("foos.stable.example.com", || Some(vec![extra]));
    let with = openapi.index(&registry.current());
    assert!(with["paths"]["apis/stable.example.com/v1"].is_object());
    assert_eq!(with["paths"]["apis/apps/v1"], before["paths"]["apis/apps/v1"]);
    let first = openapi.swagger(&registry.current(), &HeaderMap::new()).unwrap();
    registry.refresh("foos.stable.example.com", || None);
    assert_eq!(openapi.index(&registry.current()), before);
    assert_ne!(openapi.swagger(&registry.current(), &HeaderMap::new()).unwrap().tag, first.tag);
}
