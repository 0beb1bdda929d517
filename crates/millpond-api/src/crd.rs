//! CustomResourceDefinitions of every kind that Millpond reads and writes, as data.
//!
//! ```text
//!   schema (builder) ──▶ parts (requirements, taints, conditions, durations …) ──┐
//!                                                                                ├──▶ one file per group ──▶ all()
//!   definition (names, columns, subresources) ◀── meta::Kind of the Rust type ───┘
//! ```
//!
//! Karpenter's kinds have its fields, limits and defaults, so that pools written for it apply unchanged. Where a rule
//! refuses, it does so at the wrong entry (`spec.template.spec.requirements[2].values`) and says what would be right. A
//! check that is too expensive for a rule of the API server (two long lists of values that have nothing in common) is
//! made when the pool is planned with, and reported in a condition.

mod autoscaling;
mod byoh;
mod ci;
mod cluster_api;
mod definition;
mod gpu;
mod karpenter;
mod millpond;
mod parts;
mod scaling_advisor;
mod schema;

use serde_json::Value;

/// Millpond's own and those that it stands in for, by name.
pub fn all() -> Vec<Value> {
    let groups = [
        autoscaling::definitions(),
        byoh::definitions(),
        gpu::definitions(),
        ci::definitions(),
        karpenter::definitions(),
        millpond::definitions(),
        scaling_advisor::definitions(),
    ];
    let mut all: Vec<_> = groups.into_iter().flatten().map(definition::Definition::into_value).collect();
    all.sort_by(|one, other| name(one).cmp(name(other)));
    all
}

/// Cluster API's kinds and those of its providers, by name: for the embedded API, where no provider brings them. They
/// are open where Cluster API's own are closed, and belong to Cluster API on a cluster that runs it.
pub fn cluster_api() -> Vec<Value> {
    let mut all = cluster_api::definitions();
    all.sort_by(|one, other| name(one).cmp(name(other)));
    all
}

/// The name of a definition: `nodepools.karpenter.sh`.
pub fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

/// A definition as YAML, with a line break at its end.
pub fn to_yaml(definition: &Value) -> String {
    let text = serde_saphyr::to_string(definition).expect("JSON can be written as YAML");
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_says_the_same() {
        for definition in all().into_iter().chain(cluster_api()) {
            let text = to_yaml(&definition);
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, definition, "{text}");
        }
    }

    /// `kubectl explain` has something to say of every field.
    #[test]
    fn every_field_is_described() {
        fn look(path: &str, schema: &Value, silent: &mut Vec<String>) {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                if field["description"].as_str().is_none_or(str::is_empty) {
                    silent.push(path.clone());
                }
                look(&path, field, silent);
            }
            for inner in ["items", "additionalProperties"] {
                if schema[inner].is_object() {
                    look(path, &schema[inner], silent);
                }
            }
        }
        for definition in all().into_iter().chain(cluster_api()) {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let mut silent = Vec::new();
            look(name(&definition), schema, &mut silent);
            // What metadata is, the API server says.
            silent.retain(|path| !path.ends_with(".metadata") || path.contains(".spec."));
            assert!(silent.is_empty(), "{silent:?}");
            assert!(schema["description"].is_string());
        }
    }
}
