//! References to other objects, in every form that BYOH manifests have.

use serde::{Deserialize, Serialize};

/// A reference as it is written: `apiVersion`, or `apiGroup` with or without a version, and often no namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group and version of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Group of the object; manifests in use have the version here too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace of the object; that of the referring object without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// A complete reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResolvedReference {
    /// Group; empty for core kinds.
    pub group: String,
    /// Version, where the reference has one.
    pub version: Option<String>,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Why a reference is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// A required field is empty.
    #[error("the reference has no `{0}`")]
    Missing(&'static str),
    /// `apiGroup` and `apiVersion` differ.
    #[error("`apiGroup: {group}` and `apiVersion: {version}` name different groups")]
    Contradiction {
        /// `apiGroup`.
        group: String,
        /// `apiVersion`.
        version: String,
    },
}

impl ObjectReference {
    /// Completes the reference with the namespace of the object that it stands in.
    pub fn resolve(&self, namespace: &str) -> Result<ResolvedReference, ReferenceError> {
        if self.kind.is_empty() {
            return Err(ReferenceError::Missing("kind"));
        }
        if self.name.is_empty() {
            return Err(ReferenceError::Missing("name"));
        }
        let of_group = match self.api_group.split_once('/') {
            Some((group, version)) => (group, Some(version)),
            None => (self.api_group.as_str(), None),
        };
        let of_version = match self.api_version.split_once('/') {
            Some((group, version)) => (group, Some(version)),
            None => ("", Some(self.api_version.as_str()).filter(|version| !version.is_empty())),
        };
        let (group, version) = match (self.api_group.is_empty(), self.api_version.is_empty()) {
            (true, _) => of_version,
            (false, true) => of_group,
            (false, false) if of_group.0 == of_version.0 => (of_group.0, of_version.1),
            (false, false) => {
                let (group, version) = (self.api_group.clone(), self.api_version.clone());
                return Err(ReferenceError::Contradiction { group, version });
            }
        };
        let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
        Ok(ResolvedReference {
            group: group.to_owned(),
            version: version.map(str::to_owned),
            kind: self.kind.clone(),
            namespace: namespace.to_owned(),
            name: self.name.clone(),
        })
    }
}

impl std::fmt::Display for ResolvedReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::byoh::GROUP;

    fn reference(api_group: &str, api_version: &str) -> ObjectReference {
        ObjectReference {
            api_group: api_group.to_owned(),
            api_version: api_version.to_owned(),
            kind: "BootstrapKubeconfig".to_owned(),
            name: "workers".to_owned(),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn every_form_names_the_same_object() {
        let versioned = format!("{GROUP}/v1beta1");
        for (group, version) in [(GROUP, ""), (&versioned, ""), ("", &versioned), (&versioned, &versioned)] {
            let resolved = reference(group, version).resolve("default").unwrap();
            assert_eq!((resolved.group.as_str(), resolved.namespace.as_str()), (GROUP, "default"), "{group} {version}");
        }
        let secret = ObjectReference { kind: "Secret".into(), namespace: "other".into(), ..reference("", "v1") };
        let secret = secret.resolve("default").unwrap();
        assert_eq!((secret.group.as_str(), secret.version.as_deref()), ("", Some("v1")));
        assert_eq!(secret.to_string(), "Secret other/workers");
    }

    #[test]
    fn what_is_missing_is_an_error() {
        let no_kind = ObjectReference { kind: String::new(), ..reference(GROUP, "") };
        assert_eq!(no_kind.resolve("default"), Err(ReferenceError::Missing("kind")));
        let no_name = ObjectReference { name: String::new(), ..reference(GROUP, "") };
        assert_eq!(no_name.resolve("default").unwrap_err().to_string(), "the reference has no `name`");
        let error = reference(GROUP, "cluster.x-k8s.io/v1beta1").resolve("default").unwrap_err();
        assert!(matches!(error, ReferenceError::Contradiction { .. }), "{error}");
    }
}
