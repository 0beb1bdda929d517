//! The table of built-in types, generated from the facts of the Kubernetes API.
//!
//! `builtin.txt` is written by `cargo xtask generate` (whose `types/table.rs` describes its form). It is cut
//! into types when first asked for one; each type is parsed when it is first used, so that a server that
//! holds a few kinds pays for a few kinds.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;

use super::{ListType, MapValue, Property, ProtoField, Schema, SchemaRef, Type, Wire, Zero};

/// The type at this place of the table.
///
/// # Panics
/// Outside the table. Places only come from [`lookup`], [`kind`] and the table itself.
pub fn type_at(index: u16) -> &'static Schema {
    let entry = &TABLE.entries[usize::from(index)];
    entry.schema.get_or_init(|| entry.parse())
}

/// The type of this full name, e.g. `io.k8s.api.core.v1.Pod`.
pub fn lookup(name: &str) -> Option<SchemaRef> {
    let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix.full))?;
    let index = TABLE.find(short)?;
    (full_name(short) == name).then_some(SchemaRef::Named(index))
}

/// The type of this kind. `DeleteOptions` is known to every group and version.
pub fn kind(group: &str, version: &str, kind: &str) -> Option<SchemaRef> {
    let candidates = TABLE.kinds.get(kind)?;
    let (.., index) = candidates
        .iter()
        .find(|(its_group, its_version, _)| *its_group == "*" || (*its_group == group && *its_version == version))?;
    Some(SchemaRef::Named(*index))
}

/// Groups, versions and kinds of a type of the table; `*` for any group and version.
pub fn kinds_of(index: u16) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    TABLE.entries[usize::from(index)].kinds()
}

/// How many types the table has: the places are those below.
pub fn len() -> u16 {
    TABLE.entries.len() as u16
}

/// Words for types with a special form.
const SPECIAL: &[(&str, &str)] = &[
    ("fields", "meta.v1.FieldsV1"),
    ("int-or-string", "util.intstr.IntOrString"),
    ("json", "apiextensions.v1.JSON"),
    ("microtime", "meta.v1.MicroTime"),
    ("quantity", "api.resource.Quantity"),
    ("raw", "runtime.RawExtension"),
    ("schema-or-array", "apiextensions.v1.JSONSchemaPropsOrArray"),
    ("schema-or-bool", "apiextensions.v1.JSONSchemaPropsOrBool"),
    ("schema-or-strings", "apiextensions.v1.JSONSchemaPropsOrStringArray"),
    ("time", "meta.v1.Time"),
];

/// A part of full names that the table leaves out, and how the short names behind it start.
struct Prefix {
    full: &'static str,
    short: &'static [&'static str],
}

/// The first that fits counts, in both directions.
const PREFIXES: &[Prefix] = &[
    Prefix { full: "io.k8s.apimachinery.pkg.apis.", short: &["meta."] },
    Prefix { full: "io.k8s.apimachinery.pkg.", short: &["api.", "runtime.", "util."] },
    Prefix { full: "io.k8s.apiextensions-apiserver.pkg.apis.", short: &["apiextensions."] },
    Prefix { full: "io.k8s.kube-aggregator.pkg.apis.", short: &["apiregistration."] },
    Prefix { full: "io.k8s.api.", short: &[""] },
];

fn full_name(short: &str) -> String {
    let prefix = PREFIXES
        .iter()
        .find(|prefix| prefix.short.iter().any(|start| short.starts_with(start)))
        .expect("the last prefix takes every name");
    format!("{}{short}", prefix.full)
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::cut(include_str!("builtin.txt")));

struct Table {
    /// Sorted by name.
    entries: Vec<Entry>,
    /// Kind → group, version and place of each type of that kind.
    kinds: BTreeMap<&'static str, Vec<(&'static str, &'static str, u16)>>,
}

/// The lines of one type, and the schema once it was asked for.
struct Entry {
    name: &'static str,
    attributes: &'static str,
    properties: &'static str,
    schema: OnceLock<Schema>,
}

impl Table {
    fn cut(text: &'static str) -> Self {
        let mut entries = Vec::new();
        for part in text.split("\ntype ").skip(1) {
            let (head, properties) = part.split_once('\n').unwrap_or((part, ""));
            let (name, attributes) = head.split_once(' ').unwrap_or((head, ""));
            entries.push(Entry { name, attributes, properties, schema: OnceLock::new() });
        }
        let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            for (group, version, kind) in entry.kinds() {
                kinds.entry(kind).or_default().push((group, version, index as u16));
            }
        }
        Self { entries, kinds }
    }

    fn find(&self, short: &str) -> Option<u16> {
        self.entries.binary_search_by(|entry| entry.name.cmp(short)).ok().map(|index| index as u16)
    }
}

impl Entry {
    fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> + use<> {
        let mut words = self.attributes.split(' ');
        std::iter::from_fn(move || {
            words.find(|word| *word == "kind")?;
            let mut parts = words.next()?.splitn(3, '/');
            Some((parts.next()?, parts.next()?, parts.next()?))
        })
    }

    fn parse(&self) -> Schema {
        let mut words = self.attributes.split(' ');
        let mut schema = match words.clone().position(|word| word == "is") {
            Some(at) => special(words.clone().nth(at + 1).expect("a word behind `is`")),
            None => Schema { ty: Type::Object, ..Schema::default() },
        };
        schema.name = Some(full_name(self.name).into());
        schema.atomic_map = words.any(|word| word == "atomic");
        let required = &mut schema.required;
        let properties = self.properties.lines().map(|line| {
            let (name, is_required, property) =
                parse_property(line).unwrap_or_else(|| panic!("type `{}` has a malformed line `{line}`", self.name));
            if is_required {
                required.push(name.into());
            }
            (name.into(), property)
        });
        schema.properties = properties.collect();
        schema
    }
}

/// The schema of a type with a form of its own.
fn special(word: &str) -> Schema {
    let (ty, format, preserve_unknown) = match word {
        "quantity" => (Type::String, Some("quantity"), false),
        "time" | "microtime" => (Type::String, Some("date-time"), false),
        "int-or-string" => (Type::IntOrString, Some("int-or-string"), false),
        "fields" | "raw" => (Type::Object, None, true),
        _ => (Type::Any, None, true),
    };
    Schema { ty, format: format.map(Into::into), preserve_unknown, ..Schema::default() }
}

/// A line like ` containerPort! 3 +int32`: name, whether it is required, and the rest.
fn parse_property(line: &'static str) -> Option<(&'static str, bool, Property)> {
    let (line, default) = match line.split_once(" =") {
        Some((line, default)) => (line, Some(serde_json::from_str::<Value>(default).ok()?)),
        None => (line, None),
    };
    let mut words = line.trim_start().split(' ');
    let name = words.next()?;
    let (name, required) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
    let number = words.next()?;
    let (zero, ty) = parse_zero(words.next()?);
    let (schema, wire) = parse_type(ty)?;
    let mut property = Property::new(schema);
    property.zero = zero;
    property.default = default;
    if number != "-" {
        property.proto = Some(parse_number(number, wire)?);
    }
    for word in words {
        apply_word(&mut property, word)?;
    }
    Some((name, required, property))
}

fn parse_zero(word: &str) -> (Zero, &str) {
    for (mark, zero) in [("*+", Zero::DistinctOrNull), ("*", Zero::Distinct), ("+", Zero::Always)] {
        if let Some(ty) = word.strip_prefix(mark) {
            return (zero, ty);
        }
    }
    (Zero::Omitted, word)
}

/// `7` or `2.1`.
fn parse_number(word: &str, wire: Wire) -> Option<ProtoField> {
    let (outer, number) = word.rsplit_once('.').map_or((None, word), |(outer, number)| (Some(outer), number));
    let mut within = [0; 2];
    for (place, outer) in within.iter_mut().zip(outer.iter().flat_map(|outer| outer.split('.'))) {
        *place = outer.parse().ok()?;
    }
    Some(ProtoField { number: number.parse().ok()?, within, wire })
}

/// A word behind the type.
fn apply_word(property: &mut Property, word: &str) -> Option<()> {
    let (word, argument) = match word.strip_suffix(')') {
        Some(call) => call.split_once('(').map(|(word, argument)| (word, Some(argument)))?,
        None => (word, None),
    };
    match word {
        "merge" => {
            property.patch.merge = true;
            property.patch_merge_key = argument.map(Into::into);
        }
        "replace" => property.patch.replace = true,
        // A copy of the type that differs in this alone, and still has its name.
        "granular" => {
            let schema = Schema { atomic_map: false, ..Schema::clone(&property.schema) };
            property.schema = schema.into();
        }
        "retain" => property.patch.retain_keys = true,
        "atomic" | "set" | "map" => {
            let SchemaRef::Inline(schema) = &mut property.schema else { return None };
            let schema = Arc::make_mut(schema);
            match word {
                "atomic" if schema.ty == Type::Object => schema.atomic_map = true,
                "atomic" => schema.list_type = ListType::Atomic,
                "set" => schema.list_type = ListType::Set,
                _ => {
                    schema.list_type = ListType::Map;
                    schema.list_map_keys = argument?.split(',').map(Into::into).collect();
                }
            }
        }
        _ => return None,
    }
    Some(())
}

/// The type of a value, and how it is written in protobuf.
fn parse_type(word: &str) -> Option<(SchemaRef, Wire)> {
    if let Some(item) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
        let (items, wire) = parse_type(item)?;
        return Some((Schema { ty: Type::Array, items: Some(items), ..Schema::default() }.into(), wire));
    }
    if let Some(value) = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
        let (values, wire) = parse_type(value)?;
        let schema = Schema { ty: Type::Object, additional: Some(values), ..Schema::default() };
        return Some((schema.into(), Wire::MapOf(map_value(wire)?)));
    }
    if word == "strings" {
        let schema = Schema { ty: Type::Array, items: Some(scalar("string")?.0), ..Schema::default() };
        return Some((schema.into(), Wire::StringList));
    }
    if let Some(scalar) = scalar(word) {
        return Some(scalar);
    }
    let (name, wire) = match SPECIAL.iter().find(|(special, _)| *special == word) {
        Some((_, name)) => (*name, special_wire(word)),
        None => (word, Wire::Message),
    };
    Some((SchemaRef::Named(TABLE.find(name)?), wire))
}

fn map_value(wire: Wire) -> Option<MapValue> {
    match wire {
        Wire::String => Some(MapValue::String),
        Wire::Bytes => Some(MapValue::Bytes),
        Wire::Quantity => Some(MapValue::Quantity),
        Wire::Time => Some(MapValue::Time),
        Wire::Message => Some(MapValue::Message),
        Wire::StringList => Some(MapValue::StringList),
        Wire::SchemaOrStrings => Some(MapValue::SchemaOrStrings),
        _ => None,
    }
}

fn special_wire(word: &str) -> Wire {
    match word {
        "quantity" => Wire::Quantity,
        "time" => Wire::Time,
        "microtime" => Wire::MicroTime,
        "int-or-string" => Wire::IntOrString,
        "schema-or-array" => Wire::SchemaOrArray,
        "schema-or-bool" => Wire::SchemaOrBool,
        "schema-or-strings" => Wire::SchemaOrStrings,
        _ => Wire::RawJson,
    }
}

/// There are many scalars, so all properties of a sort share one schema.
fn scalar(word: &str) -> Option<(SchemaRef, Wire)> {
    static SCALARS: LazyLock<[(&str, Arc<Schema>, Wire); 6]> = LazyLock::new(|| {
        let schema =
            |ty, format: Option<&str>| Arc::new(Schema { ty, format: format.map(Into::into), ..Schema::default() });
        [
            ("string", schema(Type::String, None), Wire::String),
            ("bytes", schema(Type::String, Some("byte")), Wire::Bytes),
            ("int32", schema(Type::Integer, Some("int32")), Wire::Int),
            ("int64", schema(Type::Integer, Some("int64")), Wire::Int),
            ("double", schema(Type::Number, Some("double")), Wire::Double),
            ("bool", schema(Type::Boolean, None), Wire::Bool),
        ]
    });
    let (_, schema, wire) = SCALARS.iter().find(|(name, ..)| *name == word)?;
    Some((SchemaRef::Inline(Arc::clone(schema)), *wire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_can_be_read_and_found() {
        for index in 0..len() {
            let schema = type_at(index);
            let name = schema.name.as_deref().unwrap();
            assert!(matches!(lookup(name), Some(SchemaRef::Named(found)) if found == index), "{name}");
            for (group, version, its_kind) in kinds_of(index) {
                assert!(kind(group, version, its_kind).is_some_and(|found| found.name == schema.name), "{name}");
            }
            for required in &schema.required {
                assert!(schema.properties.contains_key(required), "{name} requires {required}");
            }
        }
    }

    #[test]
    fn map_lists_have_keys_that_their_items_know() {
        for index in 0..len() {
            for (name, property) in type_at(index).properties.iter() {
                for key in &property.schema.list_map_keys {
                    let items = property.schema.items.as_deref().unwrap();
                    assert!(items.properties.contains_key(key), "{:?}.{name}: {key}", type_at(index).name);
                }
            }
        }
    }

    #[test]
    fn a_port_is_what_kubernetes_says() {
        let container = lookup("io.k8s.api.core.v1.Container").unwrap();
        assert_eq!(container.required, ["name".into()]);
        let ports = &container.properties["ports"];
        assert_eq!(ports.schema.list_type, ListType::Map);
        assert_eq!(ports.schema.list_map_keys, ["containerPort".into(), "protocol".into()]);
        assert!(ports.patch.merge);
        assert_eq!(ports.patch_merge_key.as_deref(), Some("containerPort"));
        assert_eq!(ports.proto, Some(ProtoField { number: 6, within: [0, 0], wire: Wire::Message }));
        let port = ports.schema.items.as_deref().unwrap();
        assert_eq!(port.properties["protocol"].default, Some("TCP".into()));
        assert_eq!(port.properties["containerPort"].zero, Zero::Always);
        assert_eq!(port.properties["containerPort"].schema.format.as_deref(), Some("int32"));
    }

    #[test]
    fn embedded_structs_lead_to_their_fields() {
        let rule = lookup("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations").unwrap();
        let groups = rule.properties["apiGroups"].proto.unwrap();
        assert_eq!((groups.within, groups.number), ([2, 2], 1));
        let volume = lookup("io.k8s.api.core.v1.Volume").unwrap();
        let empty_dir = volume.properties["emptyDir"].proto.unwrap();
        assert_eq!((empty_dir.within, empty_dir.number), ([2, 0], 2));
    }

    #[test]
    fn a_use_of_an_atomic_type_can_be_granular() {
        let volume = lookup("io.k8s.api.core.v1.PersistentVolumeSpec").unwrap();
        let claim = &volume.properties["claimRef"].schema;
        let reference = lookup("io.k8s.api.core.v1.ObjectReference").unwrap();
        assert_eq!(claim.name, reference.name);
        assert!(reference.atomic_map && !claim.atomic_map);
        let budget = lookup("io.k8s.api.policy.v1.PodDisruptionBudgetSpec").unwrap();
        assert!(budget.properties["selector"].patch.replace);
    }

    #[test]
    fn kinds_are_found_by_group_and_version() {
        let name = |group, version, its_kind| kind(group, version, its_kind).and_then(|found| found.name.clone());
        assert_eq!(name("", "v1", "Event").as_deref(), Some("io.k8s.api.core.v1.Event"));
        assert_eq!(name("events.k8s.io", "v1", "Event").as_deref(), Some("io.k8s.api.events.v1.Event"));
        let options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
        assert_eq!(name("apps", "v1", "DeleteOptions").as_deref(), Some(options));
        assert_eq!(name("apps", "v2", "Deployment"), None);
        assert!(lookup("io.k8s.api.meta.v1.ObjectMeta").is_none());
        assert!(lookup("com.example.v1.Foo").is_none());
    }

    #[test]
    fn recursive_types_end() {
        let props = lookup("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").unwrap();
        let nested = props.properties["properties"].schema.additional.as_deref().unwrap();
        assert_eq!(nested.name, props.name);
    }
}
