//! Valid objects of every kind, and random changes that make bad ones of them.

use std::collections::BTreeMap;
use std::iter::repeat_n;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

use crate::resource::Resource;
use crate::schema::{Schema, Type};

/// Objects that the real API server accepted.
const RECORDED: [&str; 6] = [
    include_str!("../../builtin/testdata/core.jsonl"),
    include_str!("../../builtin/testdata/network.jsonl"),
    include_str!("../../builtin/testdata/others.jsonl"),
    include_str!("../../builtin/testdata/pod_create.jsonl"),
    include_str!("../../builtin/testdata/storage.jsonl"),
    include_str!("../../builtin/testdata/workloads.jsonl"),
];

/// Keys that mean something to some parser.
const ODD_KEYS: [&str; 16] = [
    "",
    "a",
    "/",
    "~1",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "metadata",
    "apiVersion",
    "k:{\"name\":\"a\"}",
    "f:spec",
    "__proto__",
    "\u{0}",
    "\u{202e}\u{feff}",
    "kubernetes.io/metadata.name",
];

/// Texts that mean something to some parser.
const ODD_TEXTS: [&str; 40] = [
    "",
    " ",
    "a",
    "replace",
    "delete",
    "-",
    "\u{0}",
    "\u{1b}[31m\n\r\t",
    "\u{202e}\u{feff}\u{10ffff}",
    "a,b in (c,d),!e",
    "1e400",
    "-1e-400",
    "999999999999999999999999999999Ei",
    "0.0000000000000000000000000000001n",
    "1e999999999",
    "-0",
    "0x7fffffffffffffff",
    "9223372036854775808",
    "9999-12-31T23:59:60Z",
    "0000-01-01T00:00:00+23:59",
    "-292277022657-01-27T08:29:52Z",
    "2026-11-19T00:00:00.999999999999999999Z",
    "((((((((((a*)*)*)*)*)*)*)*)*)*)*b",
    "(?<n>a)\\k<n>",
    "[[:alpha:]-\\xff]{0,65535}{0,65535}",
    "{.items[?(@.a==\"b\")]..*}",
    ".spec['a'][0:-1:0]",
    "..",
    "self.all(a, self.all(b, self.all(c, a == b && b == c)))",
    "self.a.b.c[0] + {'a': [1]}['a'][99999999999999999999]",
    "'x'.matches('(a*)*b') ? duration('1h') : optional.none()",
    "255.255.255.255",
    "::ffff:1.2.3.4/129",
    "1.2.3.0/33",
    "../../../../etc/passwd",
    "http://[::1%25lo]:99999/%zz",
    "100%",
    "-2147483649%",
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==",
    "=not base64=",
];

/// Numbers at the ends of their types.
const ODD_NUMBERS: [i64; 10] =
    [0, 1, -1, 65_535, 65_536, i32::MAX as i64, i32::MIN as i64, i64::MAX, i64::MIN, 1 << 53];

/// What some limit is near to.
const NEAR_LIMITS: [usize; 6] = [63, 64, 253, 254, 1_000, 20_000];

/// Valid objects by kind; where none is known, an empty one.
pub(super) fn seeds(resources: &[&Resource]) -> BTreeMap<String, Vec<Value>> {
    let mut seeds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let recorded = RECORDED.iter().flat_map(|cases| cases.lines());
    let recorded = recorded.map(|line| serde_json::from_str::<Value>(line).expect("a case is JSON"));
    let accepted = recorded.filter(|case| case.get("stored").is_some()).map(|mut case| case["object"].take());
    for object in accepted.chain(more_seeds()) {
        seeds.entry(kind_of(&object)).or_default().push(object);
    }
    for resource in resources {
        seeds.entry(key(resource)).or_insert_with(|| {
            vec![json!({"apiVersion": resource.api_version(), "kind": &*resource.kind, "metadata": {}, "spec": {}})]
        });
    }
    seeds
}

/// What [`seeds`] calls a kind.
pub(super) fn key(resource: &Resource) -> String {
    format!("{} {}", resource.api_version(), resource.kind)
}

fn kind_of(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("apiVersion"), text("kind"))
}

/// Kinds that the recordings leave out.
fn more_seeds() -> Vec<Value> {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"});
    let container = json!({"name": "c", "image": "app:1"});
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}});
    let rule =
        json!({"apiGroups": ["none.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"]});
    vec![
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "a"},
            "roleRef": role, "subjects": [subject]}),
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "a"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "a"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "mutations": [mutation], "failurePolicy": "Ignore",
                "reinvocationPolicy": "Never"}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "a"}, "spec": {"policyName": "none"}}),
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "a"},
            "spec": {"request": "YQ==", "signerName": "pond.example/signer", "usages": ["digital signature"]}}),
        definition("seeds"),
        json!({"apiVersion": "pond.example/v1", "kind": "Duck", "metadata": {"name": "a"},
            "spec": {"size": 3, "port": "http", "colours": ["green"], "eggs": [{"name": "a", "weight": 1.5}],
                "feathers": {"white": "many"}, "free": {"a": [1, {"b": null}]}}, "status": {"size": 3}}),
    ]
}

/// A CRD with everything that a schema can ask for.
pub(super) fn definition(plural: &str) -> Value {
    let singular = plural.strip_suffix('s').unwrap_or(plural);
    let kind = format!("{}{}", singular[..1].to_uppercase(), &singular[1..]);
    let egg = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "maxLength": 63, "default": "egg"}, "weight": {"type": "number", "multipleOf": 0.5}}});
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [{"rule": "!has(self.size) || self.size <= 1000", "message": "too large"}],
        "properties": {
            "size": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
            "port": {"x-kubernetes-int-or-string": true},
            "colours": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 9,
                "items": {"type": "string", "maxLength": 99, "enum": ["green", "brown", ""]}},
            "eggs": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": egg},
            "feathers": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "whole": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true},
            "when": {"type": "string", "format": "date-time"},
        },
    });
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}}});
    let scale = json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"});
    let columns = json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "Free", "type": "string", "jsonPath": ".spec.free"}]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.pond.example")},
        "spec": {
            "group": "pond.example", "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale}, "additionalPrinterColumns": columns,
            }],
        },
    })
}

/// Changes an object in one to four places.
pub(super) fn change(object: &mut Value, schema: &Schema, random: &mut StdRng) {
    for _ in 0..random.random_range(1..=4) {
        change_somewhere(object, Some(schema), random);
    }
}

fn change_somewhere(value: &mut Value, schema: Option<&Schema>, random: &mut StdRng) {
    let goes_deeper = random.random_ratio(5, 6);
    match value {
        Value::Object(fields) if goes_deeper && !fields.is_empty() => {
            let place = random.random_range(0..fields.len());
            let (name, child) = fields.iter_mut().nth(place).expect("a field");
            change_somewhere(child, field_schema(schema, name), random);
        }
        Value::Array(items) if goes_deeper && !items.is_empty() => {
            let place = random.random_range(0..items.len());
            change_somewhere(&mut items[place], schema.and_then(|schema| schema.items.as_deref()), random);
        }
        _ => change_here(value, schema, random),
    }
}

fn field_schema<'s>(schema: Option<&'s Schema>, name: &str) -> Option<&'s Schema> {
    let schema = schema?;
    schema.properties.get(name).map(|property| &*property.schema).or(schema.additional.as_deref())
}

fn change_here(value: &mut Value, schema: Option<&Schema>, random: &mut StdRng) {
    let how = random.random_range(0..6);
    match value {
        Value::Object(fields) if how == 0 && !fields.is_empty() => {
            let name = fields.keys().nth(random.random_range(0..fields.len())).cloned();
            fields.remove(&name.expect("a field"));
        }
        Value::Object(fields) if how < 4 => {
            let known: Vec<&str> =
                schema.map(|schema| schema.properties.iter().map(|(name, _)| name).collect()).unwrap_or_default();
            let name = known.choose(random).copied().unwrap_or_else(|| odd_key(random)).to_owned();
            let value = fitting(field_schema(schema, &name), 0, random);
            fields.insert(name, value);
        }
        Value::Object(fields) if how == 4 => {
            fields.insert(odd_key(random).to_owned(), odd(random));
        }
        Value::Array(items) if how == 0 && !items.is_empty() => {
            items.remove(random.random_range(0..items.len()));
        }
        Value::Array(items) if how < 3 => {
            items.push(fitting(schema.and_then(|schema| schema.items.as_deref()), 0, random));
        }
        Value::Array(items) if how < 5 && !items.is_empty() => {
            let again = items[random.random_range(0..items.len())].clone();
            items.extend(repeat_n(again, random.random_range(1..300)));
        }
        _ if how < 3 => *value = fitting(schema, 0, random),
        _ => *value = odd(random),
    }
}

/// A value of the type that a schema asks for, mostly.
fn fitting(schema: Option<&Schema>, depth: usize, random: &mut StdRng) -> Value {
    let Some(schema) = schema.filter(|_| depth < 8 && !random.random_ratio(1, 30)) else { return odd(random) };
    match schema.ty {
        Type::Object => {
            let known: Vec<&str> = schema.properties.iter().map(|(name, _)| name).collect();
            let mut names: Vec<String> = schema.required.iter().map(ToString::to_string).collect();
            names.extend((0..random.random_range(0..3)).filter_map(|_| known.choose(random).map(ToString::to_string)));
            if schema.additional.is_some() {
                names.extend((0..random.random_range(0..3)).map(|_| odd_key(random).to_owned()));
            }
            let value = |name: String, random: &mut StdRng| {
                let value = fitting(field_schema(Some(schema), &name), depth + 1, random);
                (name, value)
            };
            Value::Object(names.into_iter().map(|name| value(name, random)).collect::<Map<_, _>>())
        }
        Type::Array => {
            let items = random.random_range(0..4);
            (0..items).map(|_| fitting(schema.items.as_deref(), depth + 1, random)).collect()
        }
        Type::String => odd_text(random),
        Type::Boolean => Value::Bool(random.random()),
        Type::Integer => odd_number(random),
        Type::Number => json!(random.random_range(-1e300..1e300)),
        Type::IntOrString if random.random() => odd_number(random),
        Type::IntOrString => odd_text(random),
        Type::Any => odd(random),
    }
}

/// A value of any type.
pub(super) fn odd(random: &mut StdRng) -> Value {
    match random.random_range(0..12) {
        0 => Value::Null,
        1 => Value::Bool(random.random()),
        2 | 3 => odd_number(random),
        4 => json!(u64::MAX),
        5 => json!(-1e-300),
        6 => json!({}),
        7 => json!([]),
        8 => nested(random),
        9 => repeat_n(odd_number(random), *NEAR_LIMITS.choose(random).expect("some")).collect(),
        _ => odd_text(random),
    }
}

/// Lists and objects within each other, as deep as is allowed or a little more.
fn nested(random: &mut StdRng) -> Value {
    let levels = random.random_range(2..125);
    let list = random.random();
    (0..levels).fold(json!(1), |inner, _| if list { json!([inner]) } else { json!({"a": inner}) })
}

fn odd_key(random: &mut StdRng) -> &'static str {
    ODD_KEYS.choose(random).expect("some")
}

fn odd_number(random: &mut StdRng) -> Value {
    json!(ODD_NUMBERS.choose(random).expect("some"))
}

fn odd_text(random: &mut StdRng) -> Value {
    if random.random_ratio(1, 10) {
        let length = *NEAR_LIMITS.choose(random).expect("some");
        return Value::String("x".repeat(length));
    }
    json!(ODD_TEXTS.choose(random).expect("some"))
}

/// Bytes that are changed, cut out, doubled or cut off in one to three places.
pub(super) fn garble(bytes: &mut Vec<u8>, random: &mut StdRng) {
    for _ in 0..random.random_range(1..=3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..5) {
            0 => bytes[at] = random.random(),
            1 => bytes[at] ^= 1 << random.random_range(0..8),
            2 => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            _ => {
                let end = (at + 64).min(bytes.len());
                bytes.extend_from_within(at..end);
            }
        }
    }
}

/// A JSON patch of one to eight operations at places of an object. Copies of what holds them double the object.
pub(super) fn json_patch(object: &Value, schema: &Schema, random: &mut StdRng) -> Value {
    let mut places = vec![String::new()];
    pointers(object, "", &mut places);
    let operation = |random: &mut StdRng| {
        let place = |random: &mut StdRng| places.choose(random).cloned().expect("the object itself");
        let (path, from) = (place(random), place(random));
        match random.random_range(0..6) {
            0 => json!({"op": "remove", "path": path}),
            1 => json!({"op": "replace", "path": path, "value": odd(random)}),
            2 => json!({"op": "copy", "from": from, "path": format!("{path}/a")}),
            3 => json!({"op": "move", "from": from, "path": format!("{path}/-")}),
            4 => json!({"op": "add", "path": format!("{path}/a/b"), "value": odd(random)}),
            _ => {
                json!({"op": "add", "path": format!("{path}/{}", odd_key(random)), "value": fitting(Some(schema), 4, random)})
            }
        }
    };
    (0..random.random_range(1..=8)).map(|_| operation(random)).collect()
}

fn pointers(value: &Value, at: &str, places: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(items) => items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, child) in children {
        let place = format!("{at}/{name}");
        pointers(child, &place, places);
        places.push(place);
    }
}

/// A name that the rule of a kind allows.
pub(super) fn name(resource: &Resource, number: usize) -> String {
    match (&*resource.kind, &*resource.group) {
        ("IPAddress", _) => format!("10.200.{}.{}", number / 256, number % 256),
        ("APIService", _) => format!("v{number}.pond.example"),
        _ => format!("x{number}"),
    }
}
