//! Schemas of an OpenAPI v3 document, without their prose.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

/// A schema of `components`, or of a property, list item or map value.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Schema {
    #[serde(rename = "$ref")]
    pub(super) reference: Option<String>,
    pub(super) all_of: Vec<Schema>,
    pub(super) r#type: Option<String>,
    pub(super) format: Option<String>,
    pub(super) properties: BTreeMap<String, Schema>,
    pub(super) required: Vec<String>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) additional_properties: Option<Box<Schema>>,
    pub(super) default: Option<Value>,
    #[serde(rename = "x-kubernetes-list-type")]
    pub(super) list_type: Option<String>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    pub(super) list_map_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-map-type")]
    pub(super) map_type: Option<String>,
    #[serde(rename = "x-kubernetes-patch-strategy")]
    pub(super) patch_strategy: Option<String>,
    #[serde(rename = "x-kubernetes-patch-merge-key")]
    pub(super) patch_merge_key: Option<String>,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<Kind>,
}

/// Group, version and kind of a type.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    #[serde(rename = "kind")]
    pub(super) name: String,
}

impl Schema {
    /// Full name of the type that this schema refers to.
    pub(super) fn refers_to(&self) -> Option<&str> {
        let reference = self.reference.as_ref().or_else(|| self.all_of.first()?.reference.as_ref())?;
        reference.strip_prefix("#/components/schemas/")
    }
}

/// Types by name, each with the kinds that it is.
pub(super) type Schemas = BTreeMap<String, (Schema, Vec<Kind>)>;

/// Adds the schemas of a document. A type that stands in several must be the same in all.
pub(super) fn read(path: &Path, schemas: &mut Schemas) -> Result<()> {
    #[derive(Deserialize)]
    struct Document {
        components: Components,
    }
    #[derive(Deserialize)]
    struct Components {
        schemas: BTreeMap<String, Schema>,
    }

    let text = std::fs::read(path).with_context(|| format!("read `{}`", path.display()))?;
    let document: Document = serde_json::from_slice(&text).with_context(|| format!("parse `{}`", path.display()))?;
    for (name, mut schema) in document.components.schemas {
        // A document lists the kinds of a common type (`DeleteOptions`) only for its own group.
        let kinds = std::mem::take(&mut schema.kinds);
        let (known, known_kinds) = schemas.entry(name.clone()).or_insert_with(|| (schema.clone(), Vec::new()));
        if *known != schema {
            bail!("`{}` tells of another `{name}`", path.display());
        }
        for kind in kinds {
            if !known_kinds.contains(&kind) {
                known_kinds.push(kind);
            }
        }
    }
    Ok(())
}
