//! `plan -o json` says what its schema says: docs/reference/plan.schema.json, as it is in the tree.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema() -> Value {
    let text = std::fs::read_to_string(root().join("docs/reference/plan.schema.json")).expect("the schema is there");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// Plans of every example, by our rules and by those of others.
fn plans() -> Vec<(String, Value)> {
    let examples = std::fs::read_dir(root().join("examples")).expect("there are examples");
    let mut names: Vec<_> = examples.map(|entry| entry.expect("an example").file_name()).collect();
    // Node pool files are set, not planned; the others are of dialects that `plan` does not read.
    const NOT_PLANNED: [&str; 4] = ["byoh", "ci", "cluster-api", "gpuinfo"];
    names.retain(|name| !NOT_PLANNED.iter().any(|other| name == other));
    names.sort();
    let mut plans = Vec::new();
    for name in names {
        for more in ["--policy=millpond", "--consolidate", "--policy=karpenter"] {
            let output = Command::new(env!("CARGO_BIN_EXE_millpond"))
                .args(["plan", "--now=2026-11-16T08:00:00Z", "-o=json", more, "-f"])
                .arg(root().join("examples").join(&name))
                .output()
                .expect("the binary runs");
            let what = format!("{} {more}", name.display());
            let text = String::from_utf8_lossy(&output.stdout);
            let plan = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
            plans.push((what, plan));
        }
    }
    plans
}

/// What is different from a schema, and which of its properties were there.
struct Comparison<'s> {
    root: &'s Value,
    problems: Vec<String>,
    seen: BTreeSet<String>,
}

fn compare<'s>(root: &'s Value, value: &Value) -> Comparison<'s> {
    let mut comparison = Comparison { root, problems: Vec::new(), seen: BTreeSet::new() };
    comparison.value(root, value, "Plan", "");
    comparison
}

impl Comparison<'_> {
    /// Compares by those keywords that the schema uses, and panics at others. `of` names the definition.
    fn value(&mut self, schema: &Value, value: &Value, of: &str, path: &str) {
        for (keyword, argument) in schema.as_object().expect("a schema is an object") {
            match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "format" | "properties" => {}
                "$ref" => {
                    let pointer = argument.as_str().and_then(|text| text.strip_prefix('#')).expect("a reference");
                    let target = self.root.pointer(pointer).expect("what is referred to");
                    self.value(target, value, pointer.rsplit('/').next().expect("a name"), path);
                }
                "type" => self.expect(is_of(value, argument), path, argument),
                "enum" => self.expect(array(argument).contains(value), path, argument),
                "minimum" => self.expect(value.as_f64() >= argument.as_f64(), path, argument),
                "required" => {
                    for name in array(argument).iter().filter_map(Value::as_str) {
                        self.expect(value.get(name).is_some(), path, name);
                    }
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.value(argument, item, of, &format!("{path}[{index}]"));
                    }
                }
                other => panic!("the test does not know the keyword `{other}`"),
            }
        }
        if let Some(properties) = schema.get("properties") {
            self.properties(properties, value, of, path);
        }
    }

    /// The schema lets fields be added; what is printed today is all in it.
    fn properties(&mut self, properties: &Value, value: &Value, of: &str, path: &str) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            match properties.get(name) {
                None => self.problems.push(format!("{path} is not in the schema")),
                Some(schema) => {
                    self.seen.insert(format!("{of}.{name}"));
                    self.value(schema, value, of, &path);
                }
            }
        }
    }

    fn expect(&mut self, holds: bool, path: &str, wanted: impl std::fmt::Display) {
        if !holds {
            self.problems.push(format!("{path}: {wanted} is wanted"));
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn is_of(value: &Value, kinds: &Value) -> bool {
    let is = |kind: &Value| match kind.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("the test does not know the type `{other}`"),
    };
    if let Value::Array(several) = kinds { several.iter().any(is) } else { is(kinds) }
}

/// All properties that a schema has, as `Definition.name`.
fn named(schema: &Value) -> BTreeSet<String> {
    let definitions = schema["$defs"].as_object().expect("definitions").iter();
    let all = definitions.map(|(name, of)| (name.as_str(), of)).chain([("Plan", schema)]);
    let properties = |of: &Value| of["properties"].as_object().expect("properties").keys().cloned().collect::<Vec<_>>();
    all.flat_map(|(name, of)| properties(of).into_iter().map(move |field| format!("{name}.{field}"))).collect()
}

#[test]
fn plans_of_the_examples_have_all_that_is_in_the_schema() {
    let schema = schema();
    let mut seen = BTreeSet::new();
    for (name, plan) in plans() {
        let comparison = compare(&schema, &plan);
        assert_eq!(comparison.problems, [""; 0], "{name}");
        seen.extend(comparison.seen);
    }
    assert_eq!(seen, named(&schema));
}

/// What scripts were promised from the start.
#[test]
fn the_schema_keeps_its_promises() {
    let schema = schema();
    let required = |of: &Value| {
        let names = array(&of["required"]).iter();
        names.map(|name| name.as_str().expect("a name").to_owned()).collect::<BTreeSet<_>>()
    };
    let has = |of: &Value, promised: &str| {
        let promised: BTreeSet<String> = promised.split(' ').map(ToOwned::to_owned).collect();
        let required = required(of);
        assert!(promised.is_subset(&required), "{:?}", promised.difference(&required));
    };
    has(&schema, "summary actions placements unplaced");
    let of = |name: &str| &schema["$defs"][name];
    has(of("Summary"), "pods placed unplaced nodesBefore nodesAfter costPerHourBefore costPerHourAfter bound gap");
    has(of("Action"), "action node pool instanceType zone capacityType pricePerHour pods reason");
    has(of("Placement"), "pod node");
    has(of("Unplaced"), "pod reason message pools");
    has(of("PoolReason"), "pool rule message");
    assert_eq!(of("Action")["properties"]["action"]["enum"], serde_json::json!(["create", "delete", "replace"]));
}

/// Every way to leave a field of an object out, or to call it something else.
fn damaged(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => {
            let at = |index: usize| {
                damaged(&items[index]).into_iter().map(move |item| {
                    let mut items = items.clone();
                    items[index] = item;
                    Value::Array(items)
                })
            };
            (0..items.len()).flat_map(at).collect()
        }
        Value::Object(fields) => fields.keys().flat_map(|name| damaged_field(fields, name)).collect(),
        _ => Vec::new(),
    }
}

fn damaged_field(fields: &Map<String, Value>, name: &str) -> Vec<Value> {
    let optional = ["replacements", "savingsPerHour", "disruptionCost"].contains(&name);
    let mut without = fields.clone();
    let value = without.remove(name).expect("it is there");
    let mut renamed = without.clone();
    renamed.insert(format!("{name}Again"), value.clone());
    let inside = damaged(&value).into_iter().map(|value| {
        let mut fields = fields.clone();
        fields.insert(name.to_owned(), value);
        Value::Object(fields)
    });
    let left_out = (!optional).then_some(Value::Object(without));
    inside.chain([Value::Object(renamed)]).chain(left_out).collect()
}

#[test]
fn a_field_that_is_missing_or_renamed_is_noticed() {
    let schema = schema();
    let telling = ["consolidate --consolidate", "stuck --policy=millpond"];
    let plans = plans().into_iter().filter(|(name, _)| telling.contains(&name.as_str()));
    let damaged: Vec<Value> = plans.flat_map(|(_, plan)| damaged(&plan)).collect();
    assert!(damaged.len() > 200, "{}", damaged.len());
    for plan in damaged {
        assert_ne!(compare(&schema, &plan).problems, [""; 0], "{plan:#}");
    }
}
