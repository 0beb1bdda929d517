//! The schema of a custom resource in the form that all readers share.

use serde_json::Value;

use super::metadata::OBJECT_META;
use super::props::{Additional, Props};
use crate::schema::{ListType, Property, Schema, SchemaRef, Type};

/// The shared form of a whole object's schema: what the CRD says, with `apiVersion`, `kind` and `metadata`.
/// `original` is the schema as written, for its descriptions.
pub(crate) fn resource_schema(props: &Props, original: &Value) -> Schema {
    let mut schema = schema(props, original);
    add_meta_fields(&mut schema);
    schema
}

fn schema(props: &Props, original: &Value) -> Schema {
    let text = |key: &str| original.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let properties = props.properties.iter().map(|(name, property)| {
        let original = &original["properties"][&**name];
        (name.clone(), Property::new(schema(property, original).into()))
    });
    let mut schema = Schema {
        name: None,
        ty: if props.int_or_string { Type::IntOrString } else { json_type(&props.ty) },
        format: Some(props.format.clone()).filter(|format| !format.is_empty()),
        description: text("description").map(Box::from),
        properties: properties.collect(),
        required: props.required.clone(),
        additional: props.additional.as_ref().map(|additional| match additional {
            Additional::Schema(props) => schema_ref(props, &original["additionalProperties"]),
            Additional::Allowed(_) => SchemaRef::from(Schema::default()),
        }),
        items: props.items.as_deref().map(|items| schema_ref(items, &original["items"])),
        list_type: match props.list_type.as_deref() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            _ => ListType::Atomic,
        },
        list_map_keys: props.list_map_keys.clone(),
        atomic_map: props.map_type.as_deref() == Some("atomic"),
        preserve_unknown: props.preserves_unknown(),
        embedded_resource: props.embedded_resource,
        nullable: props.nullable,
        default: props.default.clone(),
        rules: None,
    };
    if props.embedded_resource {
        add_meta_fields(&mut schema);
    }
    schema
}

fn schema_ref(props: &Props, original: &Value) -> SchemaRef {
    schema(props, original).into()
}

fn json_type(name: &str) -> Type {
    match name {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    }
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
     convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer \
     this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The fields of every object, with the words that the real server publishes.
fn add_meta_fields(schema: &mut Schema) {
    let text = |description: &str| {
        let text = Schema { ty: Type::String, description: Some(description.into()), ..Schema::default() };
        Property::new(text.into())
    };
    let metadata = Property { description: Some(METADATA.into()), ..Property::new(OBJECT_META.clone()) };
    let properties = [("apiVersion", text(API_VERSION)), ("kind", text(KIND)), ("metadata", metadata)];
    schema.properties.extend(properties.map(|(name, property)| (name.into(), property)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_readers_need_is_there() {
        let original = json!({
            "type": "object", "description": "a thing", "required": ["spec"],
            "properties": {
                "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
                "spec": {"type": "object", "properties": {
                    "ports": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                        "items": {"type": "object", "properties": {"port": {"type": "integer", "format": "int32", "default": 1}}},
                    },
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "size": {"x-kubernetes-int-or-string": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string", "description": "d"}, "x-kubernetes-map-type": "atomic"},
                    "object": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                }},
            },
        });
        let schema = resource_schema(&Props::parse(&original, "").unwrap(), &original);
        assert_eq!(schema.description.as_deref(), Some("a thing"));
        assert!(schema.properties["metadata"].schema.properties.contains_key("ownerReferences"));
        let spec = &schema.properties["spec"].schema;
        let ports = &spec.properties["ports"].schema;
        assert_eq!((ports.list_type, &*ports.list_map_keys[0]), (ListType::Map, "port"));
        assert_eq!(ports.items.as_ref().unwrap().properties["port"].schema.default, Some(json!(1)));
        assert!(spec.properties["any"].schema.preserve_unknown);
        assert_eq!(spec.properties["size"].schema.ty, Type::IntOrString);
        let labels = &spec.properties["labels"].schema;
        assert!(labels.atomic_map);
        assert_eq!(labels.additional.as_ref().unwrap().description.as_deref(), Some("d"));
        assert!(spec.properties["object"].schema.properties.contains_key("metadata"));
    }
}
