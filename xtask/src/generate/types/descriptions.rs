//! What Kubernetes says about its types: a line for each type that is described, and one for each of its properties.
//!
//! ```text
//! type io.k8s.api.core.v1.ConfigMap ConfigMap holds configuration data for pods to consume.
//!  immutable Immutable, if set to true, …
//! ```
//!
//! A line is a name and its text, in which `\n` is a new line and `\\` a backslash. Almost every kind says the same
//! of `apiVersion` and `kind`: it stands once, at [`ANY_OBJECT`].

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::openapi::{Schema, Schemas};

/// The kind that says what `apiVersion` and `kind` are.
const ANY_OBJECT: &str = "io.k8s.api.core.v1.ConfigMap";

/// The whole file.
pub(super) fn render(version: &str, schemas: &Schemas) -> Result<String> {
    let (any_object, _) = schemas.get(ANY_OBJECT).context("no ConfigMap")?;
    let mut text = format!(
        "# Descriptions of the types of Kubernetes {version}, by The Kubernetes Authors (Apache-2.0), written by\n\
         # `cargo xtask generate`; the form is described in xtask/src/generate/types/descriptions.rs\n"
    );
    for (name, (schema, _)) in schemas {
        let common = |property: &str, its: &Schema| {
            name != ANY_OBJECT
                && matches!(property, "apiVersion" | "kind")
                && any_object.properties.get(property).is_some_and(|any| any.description == its.description)
        };
        writeln!(text, "type {name} {}", escaped(schema.description.as_deref().unwrap_or_default()))?;
        for (property, its) in schema.properties.iter().filter(|(property, its)| !common(property, its)) {
            if let Some(description) = &its.description {
                writeln!(text, " {property} {}", escaped(description))?;
            }
        }
    }
    Ok(text)
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn described(text: &str, properties: &[(&str, &str)]) -> Schema {
        let properties = properties.iter().map(|(name, text)| ((*name).to_owned(), described(text, &[])));
        let mut schema = Schema::default();
        schema.description = Some(text.to_owned());
        schema.properties = properties.collect();
        schema
    }

    #[test]
    fn one_line_each_and_common_texts_once() {
        let map = described("A map.", &[("kind", "The kind.")]);
        let pod = described("A pod,\nwith \\ in it.", &[("kind", "The kind."), ("spec", "What it is.")]);
        let schemas = BTreeMap::from([
            (ANY_OBJECT.to_owned(), (map, Vec::new())),
            ("io.k8s.api.core.v1.Pod".to_owned(), (pod, Vec::new())),
        ]);
        let text = render("v1", &schemas).unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "type io.k8s.api.core.v1.ConfigMap A map.",
                " kind The kind.",
                r"type io.k8s.api.core.v1.Pod A pod,\nwith \\ in it.",
                " spec What it is.",
            ]
        );
    }
}
