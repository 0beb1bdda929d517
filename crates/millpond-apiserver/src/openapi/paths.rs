//! Operations: what can be done under which path, with which parameters.

use serde_json::{Map, Value, json};

use super::schemas::{Definitions, Dialect};
use crate::protobuf;
use crate::registry::GroupVersion;
use crate::resource::{Behaviour, Resource, Verbs};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const DELETE: &[&str] = &["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
];
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];

/// Query parameters: name, type, what it is for.
const PARAMETERS: &[(&str, &str, &str)] = &[
    ("allowWatchBookmarks", "boolean", "While watching, send bookmarks too."),
    ("continue", "string", "Where to go on with a list that `limit` cut short: the token of the part before."),
    ("dryRun", "string", "`All`: go through every step of the request, but store nothing."),
    ("fieldManager", "string", "Who makes this change, for the ownership of fields; needed to apply."),
    ("fieldSelector", "string", "Only objects whose fields match."),
    ("fieldValidation", "string", "What unknown and duplicate fields lead to: `Ignore`, `Warn` or `Strict`."),
    ("force", "boolean", "Apply although others own some of the fields, and take those over."),
    ("gracePeriodSeconds", "integer", "How long the object may take to end; 0 removes it at once."),
    ("labelSelector", "string", "Only objects whose labels match."),
    ("limit", "integer", "At most so many objects; the answer tells how to go on."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("pretty", "string", "`true`: indent the answer."),
    ("propagationPolicy", "string", "What becomes of dependents: `Orphan`, `Background` or `Foreground`."),
    ("resourceVersion", "string", "Which state to read, or where to start watching."),
    ("resourceVersionMatch", "string", "Whether resourceVersion is meant `Exact` or `NotOlderThan`."),
    ("sendInitialEvents", "boolean", "Start the watch with the objects that are there."),
    ("timeoutSeconds", "integer", "How long a list or watch may take."),
    ("watch", "boolean", "Stream changes instead of a list."),
];

/// Kinds whose deletion returns the object's last state.
const RETURNED_KINDS: &[&str] = &[
    "CSIDriver",
    "CSINode",
    "DeviceClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "ResourceSlice",
    "Service",
    "ServiceAccount",
    "StorageClass",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

/// The target of an operation; the paths of one resource share it.
struct About<'a> {
    resource: &'a Resource,
    tag: String,
    /// `AppsV1` in operation ids.
    prefix: String,
    namespaced: bool,
}

/// An operation in a form independent of the OpenAPI version.
struct Operation<'a> {
    method: &'static str,
    action: &'static str,
    id: String,
    description: String,
    parameters: &'static [&'static str],
    body: Option<Body>,
    /// The type of the answer.
    answer: Value,
    /// Statuses with that answer, 200 included.
    statuses: &'static [(&'static str, &'static str)],
    /// Media types of the answer.
    produces: &'static [&'static str],
    kind: (&'a str, &'a str, &'a str),
}

/// The body that an operation takes.
struct Body {
    schema: Value,
    required: bool,
    consumes: Vec<&'static str>,
}

const OK: (&str, &str) = ("200", "OK");
const CREATED: (&str, &str) = ("201", "Created");
const ACCEPTED: (&str, &str) = ("202", "Accepted");

/// Adds the paths of a group's version.
pub(super) fn add(
    group: &str,
    version: &GroupVersion,
    definitions: &mut Definitions<'_>,
    paths: &mut Map<String, Value>,
) {
    let base = if group.is_empty() {
        format!("/api/{}", version.version)
    } else {
        format!("/apis/{group}/{}", version.version)
    };
    if version.resources.values().any(|resource| matches!(resource.behaviour, Behaviour::Builtin(_))) {
        let path = available_resources(definitions, &version.version, group);
        paths.insert(format!("{base}/"), path);
    }
    for resource in version.resources.values() {
        add_resource(&base, resource, definitions, paths);
    }
}

/// `GET /apis/GROUP/VERSION/`: what discovery answers.
fn available_resources(definitions: &mut Definitions<'_>, version: &str, group: &str) -> Value {
    let answer = meta(definitions, "APIResourceList");
    let operation = Operation {
        method: "get",
        action: "",
        id: format!("get{}APIResources", operation_prefix(group, version)),
        description: "get available resources".to_owned(),
        parameters: &[],
        body: None,
        answer,
        statuses: &[OK],
        produces: &[JSON],
        kind: ("", "", ""),
    };
    path_item(definitions.dialect, &tag(group, version), vec![operation], &[])
}

fn add_resource(base: &str, resource: &Resource, definitions: &mut Definitions<'_>, paths: &mut Map<String, Value>) {
    let about = About {
        resource,
        tag: tag(&resource.group, &resource.version),
        prefix: operation_prefix(&resource.group, &resource.version),
        namespaced: resource.namespaced,
    };
    let collection = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{base}/{}", resource.plural)
    };
    let dialect = definitions.dialect;
    let mut insert = |path: String, operations: Vec<Operation<'_>>, name: bool, namespace: bool| {
        let mut parameters = Vec::new();
        if name {
            parameters.push(("name", format!("name of the {}", resource.kind)));
        }
        if namespace {
            parameters.push(("namespace", "the namespace of the object".to_owned()));
        }
        paths.insert(path, path_item(dialect, &about.tag, operations, &parameters));
    };
    let (one, list) = definitions.resource(resource);
    if resource.verbs == Verbs::CreateOnly {
        insert(collection, vec![about.create(&one)], false, resource.namespaced);
        return;
    }
    if resource.namespaced {
        let everywhere = vec![about.list(&list, true)];
        insert(format!("{base}/{}", resource.plural), everywhere, false, false);
    }
    let mut operations = vec![about.list(&list, false), about.create(&one)];
    if resource.verbs == Verbs::All {
        operations.push(about.delete_collection(definitions));
    }
    insert(collection.clone(), operations, false, resource.namespaced);
    let single = format!("{collection}/{{name}}");
    let mut operations = about.change(definitions, &one, "", about.kind());
    operations.push(about.delete(definitions, &one));
    insert(single.clone(), operations, true, resource.namespaced);
    for (name, operations) in about.subresources(definitions, &one) {
        insert(format!("{single}/{name}"), operations, true, resource.namespaced);
    }
}

impl<'a> About<'a> {
    fn kind(&self) -> (&'a str, &'a str, &'a str) {
        (&self.resource.group, &self.resource.version, &self.resource.kind)
    }

    fn is_builtin(&self) -> bool {
        matches!(self.resource.behaviour, Behaviour::Builtin(_))
    }

    fn id(&self, verb: &str, collection: &str, suffix: &str) -> String {
        let scope = if self.namespaced { "Namespaced" } else { "" };
        format!("{verb}{}{collection}{scope}{}{suffix}", self.prefix, self.resource.kind)
    }

    fn consumes(&self) -> Vec<&'static str> {
        if self.is_builtin() { vec![JSON, YAML, protobuf::MEDIA_TYPE] } else { vec![JSON, YAML] }
    }

    fn patch_types(&self) -> Vec<&'static str> {
        let mut types =
            vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
        if self.is_builtin() {
            types.push("application/strategic-merge-patch+json");
        }
        types
    }

    fn list(&self, list: &Value, everywhere: bool) -> Operation<'a> {
        let id = if everywhere {
            format!("list{}{}ForAllNamespaces", self.prefix, self.resource.kind)
        } else {
            self.id("list", "", "")
        };
        Operation {
            method: "get",
            action: "list",
            id,
            description: format!("list or watch objects of kind {}", self.resource.kind),
            parameters: LIST,
            body: None,
            answer: list.clone(),
            statuses: &[OK],
            produces: &[JSON, "application/json;stream=watch", YAML],
            kind: self.kind(),
        }
    }

    fn create(&self, one: &Value) -> Operation<'a> {
        self.create_as(one, "", self.kind())
    }

    fn create_as(&self, schema: &Value, suffix: &str, kind: (&'a str, &'a str, &'a str)) -> Operation<'a> {
        let what = if suffix.is_empty() { String::new() } else { format!("{} of ", suffix.to_lowercase()) };
        Operation {
            method: "post",
            action: "post",
            id: self.id("create", "", suffix),
            description: format!("create {what}a {}", self.resource.kind),
            parameters: WRITE,
            body: Some(Body { schema: schema.clone(), required: true, consumes: self.consumes() }),
            answer: schema.clone(),
            statuses: &[OK, CREATED, ACCEPTED],
            produces: &[JSON, YAML],
            kind,
        }
    }

    fn delete_collection(&self, definitions: &mut Definitions<'_>) -> Operation<'a> {
        Operation {
            method: "delete",
            action: "deletecollection",
            id: self.id("delete", "Collection", ""),
            description: format!("delete collection of {}", self.resource.kind),
            parameters: DELETE_COLLECTION,
            body: Some(self.delete_options(definitions)),
            answer: meta(definitions, "Status"),
            statuses: &[OK],
            produces: &[JSON, YAML],
            kind: self.kind(),
        }
    }

    fn delete(&self, definitions: &mut Definitions<'_>, one: &Value) -> Operation<'a> {
        let returned = RETURNED_KINDS.contains(&&*self.resource.kind) && self.is_builtin();
        let answer = if returned { one.clone() } else { meta(definitions, "Status") };
        Operation {
            method: "delete",
            action: "delete",
            id: self.id("delete", "", ""),
            description: format!("delete a {}", self.resource.kind),
            parameters: DELETE,
            body: Some(self.delete_options(definitions)),
            answer,
            statuses: &[OK, ACCEPTED],
            produces: &[JSON, YAML],
            kind: self.kind(),
        }
    }

    fn delete_options(&self, definitions: &mut Definitions<'_>) -> Body {
        Body { schema: meta(definitions, "DeleteOptions"), required: false, consumes: self.consumes() }
    }

    /// Reads and changes of one object, or of a part of it.
    fn change(
        &self,
        definitions: &mut Definitions<'_>,
        schema: &Value,
        suffix: &str,
        kind: (&'a str, &'a str, &'a str),
    ) -> Vec<Operation<'a>> {
        let of = if suffix.is_empty() { String::new() } else { format!("{} of ", suffix.to_lowercase()) };
        let operation = |method, action, verb: &str, description: &str, parameters, body, statuses| Operation {
            method,
            action,
            id: self.id(verb, "", suffix),
            description: format!("{description} {of}the specified {}", self.resource.kind),
            parameters,
            body,
            answer: schema.clone(),
            statuses,
            produces: &[JSON, YAML],
            kind,
        };
        let replacement = Body { schema: schema.clone(), required: true, consumes: self.consumes() };
        let patch = Body { schema: meta(definitions, "Patch"), required: true, consumes: self.patch_types() };
        vec![
            operation("get", "get", "read", "read", &[] as &[&str], None, &[OK] as &[_]),
            operation("put", "put", "replace", "replace", WRITE, Some(replacement), &[OK, CREATED]),
            operation("patch", "patch", "patch", "partially update", PATCH, Some(patch), &[OK, CREATED]),
        ]
    }

    /// Subresources by name.
    fn subresources(&self, definitions: &mut Definitions<'_>, one: &Value) -> Vec<(&'a str, Vec<Operation<'a>>)> {
        let subresources = &self.resource.subresources;
        let mut found = Vec::new();
        if subresources.status {
            found.push(("status", self.change(definitions, one, "Status", self.kind())));
        }
        if subresources.scale.is_some() {
            let scale = definitions.kind("autoscaling", "v1", "Scale").expect("the table holds Scale");
            let kind = if self.is_builtin() { ("autoscaling", "v1", "Scale") } else { self.kind() };
            found.push(("scale", self.change(definitions, &scale, "Scale", kind)));
        }
        for other in subresources.others {
            let (group, version, kind) = match other.kind {
                ("", "", kind) => (&*self.resource.group, &*self.resource.version, kind),
                named => named,
            };
            // A log is text.
            let Some(schema) = definitions.kind(group, version, kind).filter(|_| other.name != "log") else { continue };
            let kind = (group, version, kind);
            let suffix = capitalized(other.name);
            let mut operations = self.change(definitions, &schema, &suffix, kind);
            operations.push(self.create_as(&schema, &suffix, kind));
            operations.retain(|operation| other.verbs.contains(&verb_of(operation.action)));
            found.push((other.name, operations));
        }
        found
    }
}

/// The verb in discovery.
fn verb_of(action: &str) -> &str {
    match action {
        "put" => "update",
        "post" => "create",
        other => other,
    }
}

fn meta(definitions: &mut Definitions<'_>, name: &str) -> Value {
    definitions.builtin(&format!("{META}{name}")).expect("the table holds the types of every group")
}

fn path_item(dialect: Dialect, tag: &str, operations: Vec<Operation<'_>>, in_path: &[(&str, String)]) -> Value {
    let mut item = Map::new();
    for operation in operations {
        let method = operation.method.to_owned();
        let rendered = match dialect {
            Dialect::V2 => operation.v2(tag),
            Dialect::V3 => operation.v3(tag),
        };
        item.insert(method, rendered);
    }
    let mut parameters: Vec<Value> =
        in_path.iter().map(|(name, description)| parameter(dialect, name, "path", "string", description)).collect();
    if !item.values().all(|operation| operation["x-kubernetes-action"].is_null()) {
        parameters.push(query_parameter(dialect, "pretty"));
        item.insert("parameters".to_owned(), Value::Array(parameters));
    }
    Value::Object(item)
}

fn query_parameter(dialect: Dialect, name: &str) -> Value {
    let (_, ty, description) = PARAMETERS.iter().find(|(known, ..)| *known == name).expect("all parameters are listed");
    parameter(dialect, name, "query", ty, description)
}

fn parameter(dialect: Dialect, name: &str, place: &str, ty: &str, description: &str) -> Value {
    let mut parameter = json!({"name": name, "in": place, "description": description});
    match dialect {
        Dialect::V2 => {
            parameter["type"] = ty.into();
            parameter["uniqueItems"] = true.into();
        }
        Dialect::V3 => parameter["schema"] = json!({"type": ty, "uniqueItems": true}),
    }
    if place == "path" {
        parameter["required"] = true.into();
    }
    parameter
}

impl Operation<'_> {
    fn common(&self, dialect: Dialect, tag: &str) -> Value {
        let mut operation = json!({
            "tags": [tag],
            "description": self.description,
            "operationId": self.id,
        });
        let parameters: Vec<Value> = self.parameters.iter().map(|name| query_parameter(dialect, name)).collect();
        if !parameters.is_empty() {
            operation["parameters"] = Value::Array(parameters);
        }
        if !self.action.is_empty() {
            let (group, version, kind) = self.kind;
            operation["x-kubernetes-action"] = self.action.into();
            operation["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
        }
        operation
    }

    fn v3(&self, tag: &str) -> Value {
        let content = |types: &[&str], schema: &Value| -> Value {
            types.iter().map(|media_type| ((*media_type).to_owned(), json!({"schema": schema}))).collect()
        };
        let mut operation = self.common(Dialect::V3, tag);
        if let Some(body) = &self.body {
            operation["requestBody"] = json!({"content": content(&body.consumes, &body.schema)});
            if body.required {
                operation["requestBody"]["required"] = true.into();
            }
        }
        let mut responses = json!({"401": {"description": "Unauthorized"}});
        for (status, description) in self.statuses {
            responses[*status] = json!({"description": description, "content": content(self.produces, &self.answer)});
        }
        operation["responses"] = responses;
        operation
    }

    fn v2(&self, tag: &str) -> Value {
        let mut operation = self.common(Dialect::V2, tag);
        operation["schemes"] = json!(["https"]);
        operation["produces"] = json!(self.produces);
        operation["consumes"] = self.body.as_ref().map_or(json!(["*/*"]), |body| json!(body.consumes));
        if let Some(body) = &self.body {
            let mut parameter = json!({"name": "body", "in": "body", "schema": body.schema});
            if body.required {
                parameter["required"] = true.into();
            }
            let mut parameters = vec![parameter];
            parameters.extend(operation["parameters"].as_array().cloned().unwrap_or_default());
            operation["parameters"] = Value::Array(parameters);
        }
        let mut responses = json!({"401": {"description": "Unauthorized"}});
        for (status, description) in self.statuses {
            responses[*status] = json!({"description": description, "schema": self.answer});
        }
        operation["responses"] = responses;
        operation
    }
}

/// `apps_v1`, `rbacAuthorization_v1`, `stableExampleCom_v1`.
fn tag(group: &str, version: &str) -> String {
    let words = group_words(group);
    let mut tag = String::new();
    for (index, word) in words.iter().enumerate() {
        tag.push_str(&if index == 0 { (*word).to_owned() } else { capitalized(word) });
    }
    format!("{tag}_{version}")
}

/// `AppsV1` in operation ids.
fn operation_prefix(group: &str, version: &str) -> String {
    let words: String = group_words(group).into_iter().map(capitalized).collect();
    format!("{words}{}", capitalized(version))
}

fn group_words(group: &str) -> Vec<&str> {
    if group.is_empty() {
        return vec!["core"];
    }
    group.strip_suffix(".k8s.io").unwrap_or(group).split(['.', '-']).collect()
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_real_server() {
        assert_eq!(tag("", "v1"), "core_v1");
        assert_eq!(tag("rbac.authorization.k8s.io", "v1"), "rbacAuthorization_v1");
        assert_eq!(tag("stable.example.com", "v1"), "stableExampleCom_v1");
        assert_eq!(operation_prefix("flowcontrol.apiserver.k8s.io", "v1"), "FlowcontrolApiserverV1");
    }

    #[test]
    fn every_parameter_is_described() {
        for name in [LIST, DELETE, DELETE_COLLECTION, WRITE, PATCH, &["pretty"]].concat() {
            assert_eq!(query_parameter(Dialect::V3, name)["name"], name);
        }
        assert!(PARAMETERS.is_sorted());
    }
}
