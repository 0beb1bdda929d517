//! Prose about built-in types, as `kubectl explain` shows it.
//!
//! The texts are Kubernetes' own; they live in the `k8s-openapi` crate, from which the build script takes them. They
//! are read when a document needs them and dropped with it.

use serde_json::{Map, Value};

/// Descriptions of types and their properties, by the full name of the type.
pub(super) struct Descriptions(Map<String, Value>);

/// A type that every object's `apiVersion`, `kind` and `metadata` are described in.
const ANY_OBJECT: &str = "io.k8s.api.core.v1.ConfigMap";

impl Descriptions {
    /// Reads them, which takes some milliseconds.
    pub(super) fn load() -> Self {
        let texts = include_str!(concat!(env!("OUT_DIR"), "/descriptions.json"));
        Self(serde_json::from_str(texts).expect("the build script writes JSON"))
    }

    /// The description of a type.
    pub(super) fn of_type(&self, name: &str) -> Option<String> {
        let known = self.0.get(name).and_then(|schema| schema["description"].as_str());
        known.map(str::to_owned).or_else(|| match name.rsplit('.').next()? {
            "Patch" => Some("The body of a PATCH request.".to_owned()),
            "WatchEvent" => Some("A change of a watched object.".to_owned()),
            list => {
                let kind = list.strip_suffix("List")?;
                Some(format!("{kind}List is a list of {kind}"))
            }
        })
    }

    /// The description of a property of a type.
    pub(super) fn of_property(&self, name: &str, property: &str) -> Option<String> {
        if let Some(schema) = self.0.get(name) {
            return schema["properties"][property].as_str().map(str::to_owned);
        }
        match property {
            "apiVersion" | "kind" => self.of_type_meta(property),
            "items" => Some("Objects of the list.".to_owned()),
            "metadata" => Some("Standard list metadata.".to_owned()),
            _ => None,
        }
    }

    /// The description of `apiVersion` or `kind` of any object.
    pub(super) fn of_type_meta(&self, property: &str) -> Option<String> {
        self.of_property(ANY_OBJECT, property)
    }

    /// The description of `metadata` of any object.
    pub(super) fn of_metadata(&self) -> Option<String> {
        self.of_property(ANY_OBJECT, "metadata")
    }
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
