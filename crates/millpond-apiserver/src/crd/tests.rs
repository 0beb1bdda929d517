//! Definitions as a whole: what is refused and how, and what is served.

use serde_json::{Value, json};

use super::*;
use crate::resource::{Columns, SelectableFields};

fn minimal() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "foos", "kind": "Foo"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

fn with_schema(schema: Value) -> Value {
    let mut definition = minimal();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    definition
}

/// Errors of a new definition, after defaulting.
fn problems(mut definition: Value) -> Vec<String> {
    default(&mut definition);
    prepare_create(&mut definition);
    validate(&definition, None).iter().map(ToString::to_string).collect()
}

fn established(mut definition: Value) -> Value {
    default(&mut definition);
    prepare_create(&mut definition);
    assert_eq!(validate(&definition, None), []);
    prepare(&mut definition, None, &[], "2024-01-01T00:00:00Z");
    definition
}

#[test]
fn a_minimal_definition_is_filled_in_and_served() {
    let definition = established(minimal());
    assert_eq!(
        definition["spec"]["names"],
        json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"})
    );
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let resources = resources(&definition).unwrap();
    assert_eq!(resources.len(), 1);
    let foos = &resources[0];
    assert_eq!(
        (&*foos.group, &*foos.version, &*foos.kind, &*foos.list_kind, &*foos.storage),
        ("example.com", "v1", "Foo", "FooList", "foos.example.com")
    );
    assert!(foos.namespaced && !foos.subresources.status && foos.deprecation.is_none());
    assert!(matches!(foos.columns, Columns::NameAndAge));
}

#[test]
fn versions_bring_their_own_parts() {
    let mut definition = minimal();
    definition["spec"]["scope"] = json!("Cluster");
    definition["spec"]["names"]["shortNames"] = json!(["f"]);
    definition["spec"]["versions"] = json!([
        {
            "name": "v1beta1", "served": true, "storage": false, "deprecated": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "string"}}}}}},
            "selectableFields": [{"jsonPath": ".spec.size"}],
        },
        {
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}],
        },
        {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
    ]);
    let resources = resources(&established(definition)).unwrap();
    let versions: Vec<&str> = resources.iter().map(|resource| &*resource.version).collect();
    assert_eq!(versions, ["v1beta1", "v1"]);
    let (beta, stable) = (&resources[0], &resources[1]);
    assert_eq!(beta.deprecation.as_deref(), Some("example.com/v1beta1 Foo is deprecated; use example.com/v1 Foo"));
    assert_eq!(&*beta.storage_version, "v1");
    let SelectableFields::Custom(fields) = &beta.selectable_fields else { panic!("selectable fields") };
    assert_eq!((&*fields[0].0, fields[0].1.len()), ("spec.size", 2));
    assert!(stable.subresources.status && !stable.namespaced);
    assert_eq!(&*stable.subresources.scale.as_ref().unwrap().spec_replicas, ".spec.replicas");
    let Columns::Custom(columns) = &stable.columns else { panic!("columns") };
    assert_eq!((&*columns[0].name, columns[0].priority), ("Size", 1));
}

#[test]
fn names_and_groups_are_checked() {
    let mut definition = minimal();
    definition["metadata"]["name"] = json!("bars.example.com");
    definition["spec"]["group"] = json!("example");
    definition["spec"]["scope"] = json!("Global");
    definition["spec"]["names"] = json!({"plural": "Foos", "kind": "Foo", "listKind": "Foo", "shortNames": ["_"]});
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    assert_eq!(
        problems(definition),
        [
            r#"metadata.name: Invalid value: "bars.example.com": must be spec.names.plural+"."+spec.group"#.to_owned(),
            r#"spec.group: Invalid value: "example": should be a domain with at least one dot"#.to_owned(),
            r#"spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced""#.to_owned(),
            format!(r#"spec.names.plural: Invalid value: "Foos": {label}"#),
            format!(r#"spec.names.shortNames[0]: Invalid value: "_": {label}"#),
            r#"spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same"#.to_owned(),
        ]
    );
    assert_eq!(
        problems(json!({"metadata": {"name": "."}, "spec": {"names": {}}})),
        [
            "spec.group: Required value",
            "spec.scope: Required value",
            "spec.versions: Invalid value: null: must have exactly one version marked as storage version",
            "spec.names.plural: Required value",
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ]
    );
}

#[test]
fn versions_are_checked() {
    let mut definition = minimal();
    definition["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "deprecationWarning": "x"},
        {"name": "v1", "served": true, "storage": true, "deprecated": true, "deprecationWarning": ""},
    ]);
    let shown = r#"[{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":"x","Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null},{"Name":"v1","Served":true,"Storage":true,"Deprecated":true,"DeprecationWarning":"","Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]"#;
    assert_eq!(
        problems(definition),
        [
            "spec.versions[0].schema.openAPIV3Schema: Required value".to_owned(),
            "spec.versions[1].schema.openAPIV3Schema: Required value".to_owned(),
            r#"spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions"#
                .to_owned(),
            r#"spec.versions[1].deprecationWarning: Invalid value: "": must not be an empty string"#.to_owned(),
            format!("spec.versions: Invalid value: {shown}: must contain unique version names"),
            format!("spec.versions: Invalid value: {shown}: must have exactly one version marked as storage version"),
        ]
    );
}

#[test]
fn parts_of_versions_are_checked() {
    let mut definition = minimal();
    definition["spec"]["preserveUnknownFields"] = json!(true);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {}});
    let version = &mut definition["spec"]["versions"][0];
    version["additionalPrinterColumns"] = json!([{"name": "", "type": "text", "format": "x", "jsonPath": "spec"}]);
    version["subresources"] =
        json!({"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": "", "labelSelectorPath": ".x"}});
    version["selectableFields"] = json!([{"jsonPath": ".spec.x"}, {"jsonPath": ""}, {"jsonPath": ".a"}, {"jsonPath": ".a"}, {"jsonPath": ".metadata.name"}]);
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "a": {"type": "object"}, "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
    }});
    assert_eq!(
        problems(definition),
        [
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.x\": should be a json path under .spec",
            "spec.subresources.scale.statusReplicasPath: Required value",
            "spec.subresources.scale.labelSelectorPath: Invalid value: \".x\": should be a json path under either .spec or .status",
            "spec.additionalPrinterColumns[0].name: Required value",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].format: Invalid value: \"x\": must be one of byte,date,date-time,double,float,int32,int64,password",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with .",
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.x\": is an invalid path: does not refer to a valid field",
            "spec.selectableFields[1].jsonPath: Required value",
            "spec.selectableFields[2].jsonPath: Invalid value: \".a\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            "spec.selectableFields[3].jsonPath: Invalid value: \".a\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            "spec.selectableFields[3].jsonPath: Duplicate value: \".a\"",
            "spec.selectableFields[4].jsonPath: Invalid value: \".metadata.name\": must not point to fields in metadata",
            "spec.conversion.strategy: Invalid value: \"Webhook\": conversion webhooks are not served by this API server; use None",
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ]
    );
}

#[test]
fn community_groups_need_an_approval() {
    let mut definition = minimal();
    definition["metadata"] = json!({"name": "foos.x.k8s.io"});
    definition["spec"]["group"] = json!("x.k8s.io");
    assert!(
        problems(definition.clone())[0].starts_with(
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have"
        )
    );
    definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "yes"});
    assert!(problems(definition.clone())[0].contains("with either a URL or a reason starting with \"unapproved\""));
    for given in ["unapproved, testing", "https://example.com/1"] {
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": given});
        assert_eq!(problems(definition.clone()), Vec::<String>::new());
    }
}

#[test]
fn schemas_are_checked() {
    for (schema, expected) in [
        (
            json!({"type": "object", "properties": {"a": {"type": "text"}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            json!({"type": "object", "nullable": true, "properties": {"a": {"type": "string", "$ref": "x"}}}),
            vec![
                "spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root",
                "spec.validation.openAPIV3Schema.properties[a].$ref: Forbidden: $ref is not supported",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "x", "k"], "items": {"type": "object", "nullable": true, "properties": {"k": {"type": "string", "nullable": true}}}}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-map-keys: Invalid value: [\"k\",\"x\",\"k\"]: entries must all be names of item properties",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-map-keys: Invalid value: [\"k\",\"x\",\"k\"]: must not contain duplicate entries",
                "spec.validation.openAPIV3Schema.properties[a].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is map",
                "spec.validation.openAPIV3Schema.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "spec.validation.openAPIV3Schema.properties[a].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
                "spec.validation.openAPIV3Schema.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "spec.validation.openAPIV3Schema.properties[a].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-list-type": "bag", "x-kubernetes-map-type": "tree"}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-map-type: Unsupported value: \"tree\": supported values: \"atomic\", \"granular\"",
                "spec.validation.openAPIV3Schema.properties[a].type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-validations": [{"rule": " "}, {"rule": "true\n", "message": " "}, {"rule": "a\nb"}, {"rule": "true", "reason": "x", "fieldPath": ".y", "message": "a\nb"}]}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[1].message: Invalid value: \" \": must be non-empty if specified",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[2].message: Required value: message must be specified if rule contains line breaks",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[3].message: Invalid value: \"a\\nb\": must not contain line breaks",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[3].reason: Unsupported value: \"x\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[3].fieldPath: Invalid value: \".y\": must be a valid path",
            ],
        ),
    ] {
        assert_eq!(problems(with_schema(schema)), expected);
    }
}

#[test]
fn versions_with_schemas_of_their_own_are_named() {
    let mut definition = minimal();
    let second = json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}});
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    assert_eq!(
        problems(definition),
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"
        ]
    );
}

#[test]
fn defaults_must_be_valid() {
    for (schema, expected) in [
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "default": 1}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "default": {"b": 1, "c": 1}, "properties": {"b": {"type": "integer", "maximum": 0}}}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].default: Invalid value: {\"b\":1,\"c\":1}: must not have unknown fields",
                "spec.validation.openAPIV3Schema.properties[a].default.b: Invalid value: 1: b in body should be less than or equal to 0",
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true, "default": {"kind": "K"}}}}),
            vec!["spec.validation.openAPIV3Schema.properties[a].default.apiVersion: Required value"],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer", "default": "x"}}}}),
            vec![
                "spec.validation.openAPIV3Schema.properties[a].items.default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ],
        ),
    ] {
        assert_eq!(problems(with_schema(schema)), expected);
    }
}

#[test]
fn changes_may_not_break_what_is_stored() {
    let old = established(minimal());
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    new["spec"]["names"]["kind"] = json!("Bar");
    new["spec"]["versions"][0]["name"] = json!("v2");
    prepare_update(&mut new, &old);
    assert_eq!(new["metadata"]["generation"], 2);
    let texts: Vec<String> = validate(&new, Some(&old)).iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Bar\": field is immutable",
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions",
        ]
    );
}

#[test]
fn formats_that_are_not_checked_give_a_warning() {
    let old = with_schema(json!({"type": "object", "properties": {"a": {"type": "string", "format": "odd"}}}));
    assert_eq!(warnings(&old, None), ["unrecognized format \"odd\""]);
    let new = with_schema(json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "odd"}, "b": {"type": "integer", "format": "int16"}, "c": {"type": "string", "format": "uuid"},
    }}));
    assert_eq!(warnings(&new, Some(&old)), ["unrecognized format \"int16\""]);
}
