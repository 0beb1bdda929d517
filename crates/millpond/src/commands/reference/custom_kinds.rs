//! The page of the kinds that Millpond scales by, from their definitions.

use millpond_api::crd;
use serde_json::Value;

use super::cell;

const HEAD: &str = "# Custom kinds

<!-- Written by `cargo xtask generate` from the definitions; edits are lost. -->

The kinds that Millpond scales by: Karpenter's, its own, and those of the Scaling Advisor. `millpond up` has them in
place; `millpond install crds | kubectl apply -f -` puts them on another cluster, and the same files are in
[config/crds](../../config/crds). `kubectl explain nodepool.spec --recursive` reads what stands here.

Pools written for Karpenter apply unchanged; those whose `nodeClassRef` names another group than `millpond.dev` are left
alone. Millpond adds `timeZone` to budgets and `surcharge` to overlays. What the API server cannot afford to check (two
long lists of values that exclude each other, an unknown time zone, a catalogue that is not there) is told by a
condition of the object.
";

/// The page.
pub(super) fn page() -> String {
    let kinds = crd::all();
    let parts = kinds.iter().map(section);
    format!("{HEAD}{}", parts.collect::<String>())
}

fn section(definition: &Value) -> String {
    let spec = &definition["spec"];
    let version = &spec["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join("`, `");
    let mut facts = vec![format!("`{}`", text(&spec["names"]["plural"]))];
    facts.push(if spec["scope"] == "Cluster" { "of the cluster" } else { "in namespaces" }.to_owned());
    for (name, list) in [("short", &spec["names"]["shortNames"]), ("category", &spec["names"]["categories"])] {
        if list.is_array() {
            facts.push(format!("{name} `{}`", words(list)));
        }
    }
    let subresources: Vec<_> =
        version["subresources"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
    if !subresources.is_empty() {
        let names: Vec<_> = subresources.iter().map(|name| format!("`{name}`")).collect();
        facts.push(format!("subresources {}", names.join(", ")));
    }
    let mut rows = Vec::new();
    fields("", schema, &mut rows);
    let mut rules = Vec::new();
    collect_rules("", schema, &mut rules);
    let rules = if rules.is_empty() { String::new() } else { format!("\nRules:\n\n{}", rules.concat()) };
    format!(
        "\n## {} `{}/{}`\n\n{}. ({})\n\n| Field | Type | Meaning |\n|---|---|---|\n{}{rules}",
        text(&spec["names"]["kind"]),
        text(&spec["group"]),
        text(&version["name"]),
        text(&schema["description"]),
        facts.join(", "),
        rows.concat()
    )
}

/// A row for each field below `spec` and `status`; conditions are the same everywhere.
fn fields(path: &str, schema: &Value, rows: &mut Vec<String>) {
    let required = |name: &str| schema["required"].as_array().is_some_and(|list| list.iter().any(|one| one == name));
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if matches!(path.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        // The parts themselves say it all in the line above the table.
        if path.contains('.') {
            let mark = if required(name) && field["default"].is_null() { " **required**" } else { "" };
            let meaning = cell(field["description"].as_str().unwrap_or_default());
            rows.push(format!("| `{path}` | {}{mark} | {meaning} |\n", cell(&type_of(field))));
        }
        if name != "conditions" {
            inside(&path, field, rows);
        }
    }
}

fn inside(path: &str, field: &Value, rows: &mut Vec<String>) {
    fields(path, field, rows);
    fields(&format!("{path}[]"), &field["items"], rows);
}

fn type_of(field: &Value) -> String {
    let kind = |schema: &Value| match schema["type"].as_str() {
        Some("array") => "list".to_owned(),
        Some(kind) if schema["additionalProperties"].is_null() => kind.to_owned(),
        Some(_) => "map".to_owned(),
        None => "quantity".to_owned(),
    };
    let mut text = kind(field);
    if let Some(words) = field["enum"].as_array() {
        let words: Vec<_> = words.iter().map(|word| format!("`{}`", word.as_str().unwrap_or_default())).collect();
        text = words.join(", ");
    }
    let bounds = (field["minimum"].as_i64(), field["maximum"].as_i64());
    text += &match bounds {
        (Some(least), Some(most)) => format!(" {least}–{most}"),
        (Some(least), None) if field["type"] == "integer" => format!(" ≥ {least}"),
        _ => String::new(),
    };
    if let Some(most) = field["maxItems"].as_u64().or_else(|| field["maxProperties"].as_u64()) {
        text += &format!(" ≤ {most}");
    }
    match &field["default"] {
        Value::Null => text,
        Value::String(default) => text + &format!("; `{default}`"),
        default => text + &format!("; `{default}`"),
    }
}

/// Each rule with the field that it is about.
fn collect_rules(path: &str, schema: &Value, rules: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        rules.push(format!("- `{path}{field}`: {}\n", rule["message"].as_str().unwrap_or_default()));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect_rules(&path, field, rules);
    }
    if schema["items"].is_object() {
        collect_rules(&format!("{path}[]"), &schema["items"], rules);
    }
}
