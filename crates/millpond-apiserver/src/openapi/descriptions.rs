//! Prose about built-in types, as `kubectl explain` shows it.
//!
//! The texts are Kubernetes' own. `descriptions.txt` is written by `cargo xtask generate`, whose
//! `types/descriptions.rs` describes its form; it is cut into types when a document needs it.

use std::collections::HashMap;

/// Descriptions of types and their properties, by the full name of the type.
pub(super) struct Descriptions(HashMap<&'static str, Described>);

/// The lines of one type.
struct Described {
    text: &'static str,
    properties: &'static str,
}

/// A type that every object's `apiVersion`, `kind` and `metadata` are described in.
const ANY_OBJECT: &str = "io.k8s.api.core.v1.ConfigMap";

impl Descriptions {
    /// Cuts the file into types.
    pub(super) fn load() -> Self {
        let types = include_str!("descriptions.txt").split("\ntype ").skip(1).map(|lines| {
            let (first, properties) = lines.split_once('\n').unwrap_or((lines, ""));
            let (name, text) = first.split_once(' ').unwrap_or((first, ""));
            (name, Described { text, properties })
        });
        Self(types.collect())
    }

    /// What a type is.
    pub(super) fn of_type(&self, name: &str) -> Option<String> {
        let known = self.0.get(name).map(|described| described.text).filter(|text| !text.is_empty());
        known.map(unescaped).or_else(|| match name.rsplit('.').next()? {
            "Patch" => Some("The body of a PATCH request.".to_owned()),
            "WatchEvent" => Some("A change of a watched object.".to_owned()),
            list => {
                let kind = list.strip_suffix("List")?;
                Some(format!("{kind}List is a list of {kind}"))
            }
        })
    }

    /// What a property of a type is.
    pub(super) fn of_property(&self, name: &str, property: &str) -> Option<String> {
        let lines = self.0.get(name).map_or("", |described| described.properties).lines();
        let mut texts = lines.filter_map(|line| line.strip_prefix(' ')?.strip_prefix(property)?.strip_prefix(' '));
        match (texts.next(), property) {
            (Some(text), _) => Some(unescaped(text)),
            (None, "apiVersion" | "kind") if name != ANY_OBJECT => self.of_type_meta(property),
            (None, _) => None,
        }
    }

    /// What `apiVersion` or `kind` of any object is.
    pub(super) fn of_type_meta(&self, property: &str) -> Option<String> {
        self.of_property(ANY_OBJECT, property)
    }

    /// What `metadata` of any object is.
    pub(super) fn of_metadata(&self) -> Option<String> {
        self.of_property(ANY_OBJECT, "metadata")
    }
}

fn unescaped(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    while let Some(piece) = pieces.next() {
        match piece.strip_prefix('n') {
            Some(line) => whole.extend(["\n", line]),
            // The second backslash of two: what follows it is text.
            None => whole.extend(["\\", piece, pieces.next().unwrap_or_default()]),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    #[test]
    fn every_served_type_is_described() {
        let descriptions = Descriptions::load();
        for index in 0..builtin::len() {
            let name = builtin::type_at(index).name.as_deref().unwrap();
            assert!(descriptions.of_type(name).is_some(), "{name}");
        }
    }

    #[test]
    fn texts_are_those_that_kubectl_explain_shows() {
        let descriptions = Descriptions::load();
        let pod = "io.k8s.api.core.v1.Pod";
        let text = descriptions.of_type(pod).unwrap();
        assert!(text.starts_with("Pod is a collection of containers"), "{text}");
        let text = descriptions.of_property(pod, "spec").unwrap();
        assert!(text.starts_with("Specification of the desired behavior of the pod."), "{text}");
        assert!(descriptions.of_type_meta("kind").unwrap().starts_with("Kind is a string value"));
    }
}
