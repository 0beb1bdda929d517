//! Checks that a schema is structural: every value has one known place, types are specified outside `allOf` and its
//! siblings, and `metadata` is left to the server.

use super::props::{Additional, Props};
use crate::status::FieldError;

/// Where a schema stands, for the words about a missing type.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Why a schema cannot be read as a structural one: the sentence of the first problem.
pub(crate) fn unreadable(schema: &Props) -> Option<&'static str> {
    let noted = &schema.noted;
    let own = [
        (noted.id, "OpenAPIV3Schema 'id' is not supported"),
        (noted.schema, "OpenAPIV3Schema 'schema' is not supported"),
        (noted.reference.as_ref().is_some_and(|text| !text.is_empty()), "OpenAPIV3Schema '$ref' is not supported"),
        (noted.pattern_properties, "OpenAPIV3Schema 'patternProperties' is not supported"),
        (noted.definitions, "OpenAPIV3Schema 'definitions' is not supported"),
        (noted.additional_items, "OpenAPIV3Schema 'additionalItems' is not supported"),
        (noted.dependencies == Some(true), "OpenAPIV3Schema 'dependencies' is not supported"),
    ];
    let own = own.into_iter().find_map(|(found, text)| found.then_some(text));
    let branches = || {
        let mut all =
            schema.not.as_deref().into_iter().chain(&schema.all_of).chain(&schema.any_of).chain(&schema.one_of);
        all.find_map(unreadable)
    };
    let preserve = (schema.preserve_unknown == Some(false))
        .then_some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined");
    let items = noted.items_list.then_some("OpenAPIV3Schema 'items' must be a schema, but is an array");
    own.or_else(branches)
        .or(preserve)
        .or(items)
        .or_else(|| schema.items.as_deref().and_then(unreadable))
        .or_else(|| schema.properties.values().find_map(unreadable))
        .or_else(|| schema.additional_schema().and_then(unreadable))
}

/// Problems of a schema that is not structural, sorted by their text. `path` is where the schema stands.
pub(crate) fn check(schema: &Props, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors);
    completeness(schema, schema, path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn invariants(schema: &Props, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if &*schema.ty == "array" && schema.items.is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = &schema.items {
        invariants(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in &schema.properties {
        invariants(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    if let Some(additional) = &schema.additional {
        let path = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&path, "must not be used at the root"));
        }
        if let Additional::Schema(additional) = additional {
            invariants(additional, Level::Field, &path, errors);
        }
    }
    extensions(schema, path, errors);
    value_validation(schema, is_int_or_string_any_of(&schema.any_of), is_int_or_string_all_of(schema), path, errors);
    types(schema, level, path, errors);
    resource_fields(schema, level, path, errors);
}

fn extensions(schema: &Props, path: &str, errors: &mut Vec<FieldError>) {
    if schema.int_or_string && schema.preserves_unknown() {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, true, "must be false if x-kubernetes-int-or-string is true"));
    }
    if schema.int_or_string && schema.embedded_resource {
        let field = format!("{path}.x-kubernetes-embedded-resource");
        errors.push(FieldError::invalid(field, true, "must be false if x-kubernetes-int-or-string is true"));
    }
}

fn types(schema: &Props, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.type");
    let ty = &*schema.ty;
    if schema.embedded_resource && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match ty {
            "" => FieldError::required(&field, detail),
            _ => FieldError::invalid(&field, ty, detail),
        });
    } else if ty.is_empty() && !schema.int_or_string && !schema.preserves_unknown() {
        errors.push(FieldError::required(
            &field,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if schema.embedded_resource && schema.additional.is_some() {
        let field = format!("{path}.additionalProperties");
        errors.push(FieldError::forbidden(field, "must not be used if x-kubernetes-embedded-resource is set"));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(field, ty, "must be object at the root"));
    }
}

/// `kind`, `apiVersion` and `metadata`, which belong to the server.
fn resource_fields(schema: &Props, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || schema.embedded_resource;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.properties.get(name).filter(|property| is_resource && &*property.ty != "string")
        {
            errors.push(FieldError::invalid(
                format!("{path}.properties[{name}].type"),
                &*property.ty,
                "must be string",
            ));
        }
    }
    if let Some(metadata) = schema.properties.get("metadata") {
        let path = format!("{path}.properties[metadata]");
        if is_resource && &*metadata.ty != "object" {
            errors.push(FieldError::invalid(format!("{path}.type"), &*metadata.ty, "must be object"));
        }
        if level == Level::Root && !restricts_names_only(metadata) {
            errors.push(FieldError::forbidden(
                path,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    if schema.embedded_resource && !schema.preserves_unknown() && schema.properties.is_empty() {
        errors.push(FieldError::required(
            format!("{path}.properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

fn restricts_names_only(metadata: &Props) -> bool {
    let names = metadata.properties.keys().all(|name| matches!(&**name, "name" | "generateName"));
    names && is_bare(metadata)
}

/// Whether a schema has nothing beyond a type, a default and properties.
fn is_bare(schema: &Props) -> bool {
    let Props {
        ty: _,
        default: _,
        properties: _,
        checked_format: _,
        format,
        nullable,
        additional,
        items,
        int_or_string,
        embedded_resource,
        preserve_unknown,
        list_type,
        list_map_keys,
        map_type,
        rules,
        maximum,
        exclusive_maximum,
        minimum,
        exclusive_minimum,
        multiple_of,
        max_length,
        min_length,
        pattern,
        max_items,
        min_items,
        unique_items,
        max_properties,
        min_properties,
        required,
        enumeration,
        all_of,
        any_of,
        one_of,
        not,
        noted,
    } = schema;
    let no_flags = [
        nullable,
        int_or_string,
        embedded_resource,
        exclusive_maximum,
        exclusive_minimum,
        unique_items,
        &noted.title,
        &noted.description,
        &noted.example,
        &noted.external_docs,
    ]
    .into_iter()
    .all(|flag| !flag);
    let no_bounds = maximum.or(*minimum).or(*multiple_of).is_none()
        && [max_length, min_length, max_items, min_items, max_properties, min_properties].iter().all(|x| x.is_none());
    let no_lists = list_map_keys.is_empty()
        && rules.is_empty()
        && required.is_empty()
        && enumeration.is_empty()
        && all_of.is_empty()
        && any_of.is_empty()
        && one_of.is_empty();
    let no_rest = format.is_empty()
        && additional.is_none()
        && items.is_none()
        && preserve_unknown.is_none()
        && list_type.is_none()
        && map_type.is_none()
        && pattern.is_none()
        && not.is_none();
    no_flags && no_bounds && no_lists && no_rest
}

fn is_only_type(schema: &Props, ty: &str) -> bool {
    &*schema.ty == ty && schema.default.is_none() && schema.properties.is_empty() && is_bare(schema)
}

/// `anyOf: [{type: integer}, {type: string}]`, allowed beside `x-kubernetes-int-or-string`.
fn is_int_or_string_any_of(branches: &[Props]) -> bool {
    matches!(branches, [first, second] if is_only_type(first, "integer") && is_only_type(second, "string"))
}

fn is_int_or_string_all_of(schema: &Props) -> bool {
    schema.all_of.first().is_some_and(|first| is_int_or_string_any_of(&first.any_of))
}

fn value_validation(
    schema: &Props,
    skip_any_of: bool,
    skip_first_all_of_any_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if !skip_any_of {
        for (index, branch) in schema.any_of.iter().enumerate() {
            nested(branch, false, &format!("{path}.anyOf[{index}]"), errors);
        }
    }
    for (index, branch) in schema.all_of.iter().enumerate() {
        nested(branch, skip_first_all_of_any_of && index == 0, &format!("{path}.allOf[{index}]"), errors);
    }
    for (index, branch) in schema.one_of.iter().enumerate() {
        nested(branch, false, &format!("{path}.oneOf[{index}]"), errors);
    }
    if let Some(not) = &schema.not {
        nested(not, false, &format!("{path}.not"), errors);
    }
    if let Some(pattern) = &schema.pattern
        && let Err(error) = pattern.regex()
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &*pattern.source, detail));
    }
}

/// A schema below `allOf`, `anyOf`, `oneOf` or `not` may only restrict values.
fn nested(schema: &Props, skip_any_of: bool, path: &str, errors: &mut Vec<FieldError>) {
    value_validation(schema, skip_any_of, false, path, errors);
    if let Some(items) = &schema.items {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in &schema.properties {
        nested(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    let has_additional = !matches!(schema.additional, None | Some(Additional::Allowed(false)));
    let forbidden = [
        (!schema.ty.is_empty(), "type", "must be empty to be structural"),
        (has_additional, "additionalProperties", "must be undefined to be structural"),
        (schema.default.is_some(), "default", "must be undefined to be structural"),
        (schema.noted.title, "title", "must be empty to be structural"),
        (schema.noted.description, "description", "must be empty to be structural"),
        (schema.nullable, "nullable", "must be false to be structural"),
        (schema.preserves_unknown(), "x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        (schema.embedded_resource, "x-kubernetes-embedded-resource", "must be false to be structural"),
        (schema.int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
        (!schema.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
        (schema.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
        (schema.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
        (!schema.rules.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (found, name, detail) in forbidden {
        if found {
            errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
        }
    }
    if schema.properties.contains_key("metadata") {
        let field = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
}

/// Whatever a nested schema restricts must be specified outside of it too.
fn completeness(nested: &Props, schema: &Props, schema_path: &str, nested_path: &str, errors: &mut Vec<FieldError>) {
    if let Some(not) = &nested.not {
        nested_completeness(not, Some(schema), schema_path, &format!("{nested_path}.not"), errors);
    }
    for (kind, branches) in [("allOf", &nested.all_of), ("anyOf", &nested.any_of), ("oneOf", &nested.one_of)] {
        for (index, branch) in branches.iter().enumerate() {
            nested_completeness(branch, Some(schema), schema_path, &format!("{nested_path}.{kind}[{index}]"), errors);
        }
    }
}

fn nested_completeness(
    nested: &Props,
    schema: Option<&Props>,
    schema_path: &str,
    nested_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(schema) = schema else {
        errors.push(FieldError::required(schema_path, format!("because it is defined in {nested_path}")));
        return;
    };
    completeness(nested, schema, schema_path, nested_path, errors);
    if let Some(items) = &nested.items {
        let paths = (format!("{schema_path}.items"), format!("{nested_path}.items"));
        nested_completeness(items, schema.items.as_deref(), &paths.0, &paths.1, errors);
    }
    for (name, property) in &nested.properties {
        let (schema_path, nested_path) =
            (format!("{schema_path}.properties[{name}]"), format!("{nested_path}.properties[{name}]"));
        nested_completeness(property, schema.properties.get(name), &schema_path, &nested_path, errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(schema: Value) -> Vec<String> {
        let props = Props::parse(&schema, "s").unwrap();
        check(&props, "s").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn structural_schemas_have_no_problems() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}},
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "other": {"x-kubernetes-int-or-string": true, "allOf": [
                    {"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"maximum": 3},
                ]},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
                "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                "a": {"type": "string"},
            }, "oneOf": [{"required": ["a"]}, {"properties": {"a": {"enum": ["x"]}}}]}),
        ] {
            assert_eq!(problems(schema), Vec::<String>::new());
        }
    }

    #[test]
    fn each_problem_is_reported_as_upstream_reports_it() {
        for (schema, expected) in [
            (json!({}), vec!["s.type: Required value: must not be empty at the root"]),
            (
                json!({"type": "array"}),
                vec![
                    "s.items: Required value: must be specified",
                    "s.type: Invalid value: \"array\": must be object at the root",
                ],
            ),
            (
                json!({"type": "object", "additionalProperties": true}),
                vec!["s.additionalProperties: Forbidden: must not be used at the root"],
            ),
            (
                json!({"type": "object", "properties": {"a": {}, "b": {"type": "array", "items": {}}}}),
                vec![
                    "s.properties[a].type: Required value: must not be empty for specified object fields",
                    "s.properties[b].items.type: Required value: must not be empty for specified array items",
                ],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "string", "minLength": 1}, "kind": {"type": "integer"}}}),
                vec![
                    "s.properties[kind].type: Invalid value: \"integer\": must be string",
                    "s.properties[metadata].type: Invalid value: \"string\": must be object",
                    "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
                ],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "object", "allOf": [{"type": "object", "title": "t", "properties": {"b": {"default": 1}}}]}}}),
                vec![
                    "s.properties[a].allOf[0].properties[b].default: Forbidden: must be undefined to be structural",
                    "s.properties[a].allOf[0].title: Forbidden: must be empty to be structural",
                    "s.properties[a].allOf[0].type: Forbidden: must be empty to be structural",
                ],
            ),
            (
                json!({"type": "object", "not": {"properties": {"b": {"items": {"maximum": 1}}}}}),
                vec!["s.properties[b]: Required value: because it is defined in s.not.properties[b]"],
            ),
            (
                json!({"type": "object", "properties": {"e": {"x-kubernetes-embedded-resource": true}}}),
                vec![
                    "s.properties[e].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
                    "s.properties[e].type: Required value: must be object if x-kubernetes-embedded-resource is true",
                ],
            ),
            (
                json!({"type": "object", "properties": {"p": {"type": "string", "pattern": "("}}}),
                vec![
                    "s.properties[p].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
                ],
            ),
        ] {
            assert_eq!(problems(schema), expected);
        }
    }

    #[test]
    fn unsupported_keywords_make_a_schema_unreadable() {
        for (schema, expected) in [
            (json!({"$ref": "#/x"}), Some("OpenAPIV3Schema '$ref' is not supported")),
            (
                json!({"properties": {"a": {"items": [{}]}}}),
                Some("OpenAPIV3Schema 'items' must be a schema, but is an array"),
            ),
            (json!({"allOf": [{"definitions": {"a": {}}}]}), Some("OpenAPIV3Schema 'definitions' is not supported")),
            (
                json!({"x-kubernetes-preserve-unknown-fields": false}),
                Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"),
            ),
            (json!({"type": "object"}), None),
        ] {
            assert_eq!(unreadable(&Props::parse(&schema, "").unwrap()), expected);
        }
    }
}
