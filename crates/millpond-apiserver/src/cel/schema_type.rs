//! The CEL type of a schema, with the maximum size of its values.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::types::{ObjectType, Type};
use crate::schema::custom::props::Props;

/// The largest request, which bounds everything that a schema does not.
pub(crate) const MAX_REQUEST_BYTES: i64 = 3 * 1024 * 1024;
const MIN_STRING: i64 = 2;
const MIN_DURATION: i64 = 3;
const DATE: i64 = 12;
const MIN_DATE_TIME: i64 = 21;
const MAX_TIME_OR_DURATION: i64 = 32;

/// A schema as expressions see it.
#[derive(Debug)]
pub(crate) struct SchemaType {
    pub(crate) ty: Type,
    /// The most items, entries or bytes that a value can have; 0 for values of a fixed size.
    pub(crate) max_elements: i64,
    /// The fewest bytes that a value takes in JSON.
    pub(crate) min_size: i64,
    /// The fields of an object, by their names in expressions.
    pub(crate) fields: BTreeMap<Arc<str>, Arc<SchemaType>>,
    /// The type of the elements of a list or map.
    pub(crate) element: Option<Arc<SchemaType>>,
}

impl SchemaType {
    fn scalar(ty: Type, max_elements: i64, min_size: i64) -> Self {
        Self { ty, max_elements, min_size, fields: BTreeMap::new(), element: None }
    }

    /// The schema as expressions see it; `None` if it is invisible to them. `is_resource` says that values are whole
    /// objects.
    pub(crate) fn new(schema: &Props, is_resource: bool, name: &str) -> Option<Self> {
        if schema.int_or_string {
            let max = schema.max_length.map_or(MAX_REQUEST_BYTES - 2, |length| length.max(0) * 4);
            return Some(Self::scalar(Type::Dyn, max, 1));
        }
        match &*schema.ty {
            "array" => {
                let items = schema.items.as_deref()?;
                let element = Self::new(items, items.embedded_resource, &format!("{name}.@idx"))?;
                let most = (MAX_REQUEST_BYTES - 2) / (element.min_size + 1);
                let max_elements = schema.max_items.map_or(most, |max| max.max(0));
                let ty = Type::list(element.ty.clone());
                Some(Self { ty, max_elements, min_size: 2, fields: BTreeMap::new(), element: Some(Arc::new(element)) })
            }
            "object" => Self::object(schema, is_resource, name),
            "string" => Some(string(schema)),
            "boolean" => Some(Self::scalar(Type::Bool, 0, 4)),
            "number" => Some(Self::scalar(Type::Double, 0, 1)),
            "integer" => Some(Self::scalar(Type::Int, 0, 1)),
            _ => None,
        }
    }

    fn object(schema: &Props, is_resource: bool, name: &str) -> Option<Self> {
        if let Some(values) = schema.additional_schema() {
            let element = Self::new(values, values.embedded_resource, &format!("{name}.@elem"))?;
            let most = (MAX_REQUEST_BYTES - 2) / (element.min_size + 6);
            let max_elements = schema.max_properties.map_or(most, |max| max.max(0));
            let ty = Type::map(Type::String, element.ty.clone());
            let element = Some(Arc::new(element));
            return Some(Self { ty, max_elements, min_size: 2, fields: BTreeMap::new(), element });
        }
        let meta = is_resource.then(|| meta_fields(schema)).flatten();
        let own = schema.properties.iter().filter(|(name, _)| meta.is_none() || !is_meta_field(name));
        let added = meta.into_iter().flat_map(|meta| meta.properties.iter());
        let mut fields = BTreeMap::new();
        let mut min_size = 2;
        for (key, property) in own.chain(added) {
            let Some(decl) = Self::new(property, property.embedded_resource, &format!("{name}.{key}")) else {
                continue;
            };
            if schema.required.contains(key) && property.default.is_none() {
                min_size += key.len() as i64 + decl.min_size + 4;
            }
            if let Some(escaped) = escape(key) {
                fields.insert(Arc::from(escaped), Arc::new(decl));
            }
        }
        let types =
            fields.iter().map(|(name, decl): (&Arc<str>, &Arc<SchemaType>)| (name.clone(), decl.ty.clone())).collect();
        let ty = Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields: types }));
        Some(Self { ty, max_elements: 0, min_size, fields, element: None })
    }
}

fn string(schema: &Props) -> SchemaType {
    let unbounded = MAX_REQUEST_BYTES - 2;
    match &*schema.format {
        "byte" => SchemaType::scalar(Type::Bytes, schema.max_length.map_or(unbounded, |max| max.max(0)), MIN_STRING),
        "duration" => SchemaType::scalar(Type::Duration, MAX_TIME_OR_DURATION, MIN_DURATION),
        "date" => SchemaType::scalar(Type::Timestamp, DATE, DATE),
        "date-time" => SchemaType::scalar(Type::Timestamp, MAX_TIME_OR_DURATION, MIN_DATE_TIME),
        _ => {
            let longest_choice = || schema.enumeration.iter().filter_map(|value| value.as_str()).map(str::len).max();
            // A character may take four bytes.
            let max = match schema.max_length {
                Some(max) => max.max(0) * 4,
                None if schema.enumeration.is_empty() => unbounded,
                None => longest_choice().unwrap_or(0) as i64,
            };
            SchemaType::scalar(Type::String, max, MIN_STRING)
        }
    }
}

fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

/// The schema of the fields that every object has, unless the schema itself describes all that rules may see
/// of them.
pub(crate) fn meta_fields(schema: &Props) -> Option<&'static Props> {
    let is_text =
        |schema: &Props, name: &str| schema.properties.get(name).is_some_and(|property| &*property.ty == "string");
    let complete = is_text(schema, "kind")
        && is_text(schema, "apiVersion")
        && schema.properties.get("metadata").is_some_and(|metadata| {
            &*metadata.ty == "object" && is_text(metadata, "name") && is_text(metadata, "generateName")
        });
    if complete { None } else { Some(&META_FIELDS) }
}

static META_FIELDS: std::sync::LazyLock<Props> = std::sync::LazyLock::new(|| {
    let text = || Props { ty: "string".into(), ..Props::default() };
    let names = [("name".into(), text()), ("generateName".into(), text())];
    let metadata = Props { ty: "object".into(), properties: BTreeMap::from(names), ..Props::default() };
    let fields = [("kind".into(), text()), ("apiVersion".into(), text()), ("metadata".into(), metadata)];
    Props { ty: "object".into(), properties: BTreeMap::from(fields), ..Props::default() }
});

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a name is a word of the language, or may become one.
pub(crate) fn is_keyword(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The name of a property in expressions; `None` if it has none.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        let (text, length) = match next {
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            next if next.is_ascii_alphanumeric() || next == '_' => (&rest[..1], 1),
            _ => return None,
        };
        escaped.push_str(text);
        rest = &rest[length..];
    }
    Some(escaped)
}

/// The property for a name in expressions; `None` for names that [`escape`] does not return.
pub(crate) fn unescape(name: &str) -> Option<String> {
    if !name.contains("__") {
        return Some(name.to_owned());
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find("__") {
        let after = &rest[start + 2..];
        let length = after.find('_').unwrap_or(after.len());
        if length == 0 || !after[length..].starts_with("__") {
            // Underscores that escape nothing.
            let end = rest.len().min(start + 1);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let word = &after[..length];
        out.push_str(&rest[..start]);
        rest = &after[length + 2..];
        match word {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if RESERVED.contains(&word) && name.len() == word.len() + 4 => out.push_str(word),
            _ => return None,
        }
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_escaped_and_back() {
        for (name, escaped) in [
            ("replicas", Some("replicas")),
            ("namespace", Some("__namespace__")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("a__b", Some("a__underscores__b")),
            ("a_b", Some("a_b")),
            ("_", Some("_")),
            ("9a", None),
            ("a b", None),
            ("ä", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
            if let Some(escaped) = escaped {
                assert_eq!(unescape(escaped).as_deref(), Some(name));
            }
        }
        assert_eq!(unescape("__what__"), None);
        assert_eq!(unescape("a__in__"), None);
    }

    #[test]
    fn sizes_come_from_the_schema() {
        let schema = Props::parse(
            &json!({"type": "object", "required": ["name", "list"], "properties": {
                "name": {"type": "string", "maxLength": 5},
                "choice": {"type": "string", "enum": ["a", "abc"]},
                "list": {"type": "array", "items": {"type": "integer"}},
                "few": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
                "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
            }}),
            "",
        )
        .unwrap();
        let decl = SchemaType::new(&schema, true, "object").unwrap();
        assert_eq!(decl.min_size, 2 + (4 + 2 + 4) + (4 + 2 + 4));
        assert_eq!(decl.fields["name"].max_elements, 20);
        assert_eq!(decl.fields["choice"].max_elements, 3);
        assert_eq!(decl.fields["list"].max_elements, (MAX_REQUEST_BYTES - 2) / 2);
        assert_eq!(decl.fields["few"].max_elements, 3);
        assert_eq!(decl.fields["map"].max_elements, (MAX_REQUEST_BYTES - 2) / 10);
        assert!(!decl.fields.contains_key("any"));
        assert!(decl.fields["metadata"].fields.contains_key("generateName"));
    }
}
