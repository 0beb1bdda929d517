//! References from one object to another: by `apiVersion` (v1beta1) or by `apiGroup` (v1beta2).

use serde_json::{Value, json};

use super::look::Look;
use super::{Problems, Version};

/// A reference to another object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Reference {
    /// The group.
    pub group: String,
    /// The version, where the reference has one.
    pub version: Option<String>,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace, where the reference has one; else that of the object it stands in.
    pub namespace: Option<String>,
}

impl Reference {
    /// Reads a reference in either form. An `apiGroup` that contains a version, as written by users of v1beta1, is
    /// split.
    pub fn read(value: &Value, path: &str, problems: &Problems) -> Option<Self> {
        Self::look(&Look::new(value, path, problems))
    }

    pub(super) fn look(look: &Look<'_>) -> Option<Self> {
        if look.is_missing() {
            return None;
        }
        let of = look.text("apiGroup").or_else(|| look.text("apiVersion")).unwrap_or_default();
        let is_version = look.text("apiGroup").is_none();
        let (group, version) = match of.split_once('/') {
            Some((group, version)) => (group, Some(version.to_owned())),
            None if is_version && !of.is_empty() => ("", Some(of.to_owned())),
            None => (of, None),
        };
        let (kind, name) = (look.owned("kind"), look.owned("name"));
        if kind.is_empty() || name.is_empty() {
            look.wrong(if kind.is_empty() { "kind" } else { "name" }, "is missing");
            return None;
        }
        Some(Self { group: group.to_owned(), version, kind, name, namespace: look.some_text("namespace") })
    }

    /// In the form of a version; `served` is the version of the referenced object, which v1beta1 includes.
    pub fn write(&self, version: Version, served: &str, namespace: &str) -> Value {
        match version {
            Version::V1Beta1 => json!({
                "apiVersion": format!("{}/{}", self.group, self.version.as_deref().unwrap_or(served)),
                "kind": self.kind, "name": self.name,
                "namespace": self.namespace.as_deref().unwrap_or(namespace),
            }),
            Version::V1Beta2 => json!({"apiGroup": self.group, "kind": self.kind, "name": self.name}),
        }
    }

    /// Whether it names an object of that group, kind and name.
    pub fn is(&self, group: &str, kind: &str, name: &str) -> bool {
        self.group == group && self.kind == kind && self.name == name
    }

    /// The kind of what is made from a template: `VSphereMachine` of `VSphereMachineTemplate`.
    pub fn kind_of_clone(&self) -> &str {
        self.kind.strip_suffix("Template").unwrap_or(&self.kind)
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> (Option<Reference>, Vec<String>) {
        let problems = Problems::new();
        let read = Reference::read(&value, "spec.infrastructureRef", &problems);
        (read, problems.into_inner().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_forms_are_read() {
        let group = "infrastructure.cluster.x-k8s.io";
        let forms = [
            json!({"apiGroup": group, "kind": "VSphereMachineTemplate", "name": "a"}),
            json!({"apiVersion": format!("{group}/v1beta1"), "kind": "VSphereMachineTemplate", "name": "a"}),
            // Seed 004 writes the version into the group.
            json!({"apiGroup": format!("{group}/v1beta1"), "kind": "VSphereMachineTemplate", "name": "a"}),
        ];
        for form in forms {
            let (read, problems) = read(form.clone());
            let read = read.unwrap();
            assert!(read.is(group, "VSphereMachineTemplate", "a"), "{form}");
            assert_eq!((read.kind_of_clone(), problems.len()), ("VSphereMachine", 0));
        }
        let (core, _) = read(json!({"apiVersion": "v1", "kind": "Secret", "name": "a", "namespace": "b"}));
        let core = core.unwrap();
        assert_eq!(
            (core.group.as_str(), core.version.as_deref(), core.namespace.as_deref()),
            ("", Some("v1"), Some("b"))
        );
    }

    #[test]
    fn what_is_missing_is_reported() {
        assert_eq!(read(Value::Null), (None, vec![]));
        assert_eq!(read(json!({"kind": "A"})).1, ["spec.infrastructureRef.name: is missing"]);
        assert_eq!(read(json!({"name": "a"})).1, ["spec.infrastructureRef.kind: is missing"]);
    }

    #[test]
    fn each_version_has_its_form() {
        let (reference, _) = read(json!({"apiGroup": "g", "kind": "K", "name": "a"}));
        let reference = reference.unwrap();
        assert_eq!(
            reference.write(Version::V1Beta2, "v1beta1", "ns"),
            json!({"apiGroup": "g", "kind": "K", "name": "a"})
        );
        assert_eq!(
            reference.write(Version::V1Beta1, "v1beta1", "ns"),
            json!({"apiVersion": "g/v1beta1", "kind": "K", "name": "a", "namespace": "ns"})
        );
    }
}
