//! A CustomResourceDefinition around a schema: names, columns of `kubectl get`, subresources.

use serde_json::{Value, json};

use super::schema::{Schema, object, string};
use crate::meta::Kind;

/// A column of `kubectl get`.
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    description: &'static str,
    wide: bool,
}

/// A column that is always shown.
pub(super) const fn column(
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    description: &'static str,
) -> Column {
    Column { name, kind, path, description, wide: false }
}

/// A column that is shown with `-o wide`.
pub(super) const fn wide(
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    description: &'static str,
) -> Column {
    Column { name, kind, path, description, wide: true }
}

/// The path of the status of a condition.
pub(super) const READY: &str = r#".status.conditions[?(@.type=="Ready")].status"#;

/// The column that every kind has.
pub(super) const AGE: Column = column("Age", "date", ".metadata.creationTimestamp", "How long it is there");

/// A definition while it is written.
pub(super) struct Definition {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    columns: Vec<Column>,
    scale: Option<(&'static str, &'static str)>,
    status: bool,
    contract: bool,
    schema: Schema,
}

impl Definition {
    /// The definition of the kind of a Rust type, with `apiVersion`, `kind` and `metadata` in its schema.
    pub(super) fn of<K: Kind>(description: &str, spec: Schema) -> Self {
        let schema = object(description)
            .field("apiVersion", string("The version of the schema that this object follows"))
            .field("kind", string("The kind of this object"))
            .field("metadata", object(""))
            .required("spec", spec);
        Self {
            group: K::GROUP,
            version: K::VERSION,
            kind: K::KIND,
            plural: K::PLURAL,
            namespaced: K::NAMESPACED,
            short_names: &[],
            categories: &[],
            columns: Vec::new(),
            scale: None,
            status: false,
            contract: false,
            schema,
        }
    }

    pub(super) fn status(mut self, status: Schema) -> Self {
        self.schema = self.schema.field("status", status);
        self.status = true;
        self
    }

    /// A status that is written together with the spec: the one writer of the object owns both.
    pub(super) fn status_in_object(mut self, status: Schema) -> Self {
        self.schema = self.schema.field("status", status);
        self
    }

    pub(super) fn short_names(self, short_names: &'static [&'static str]) -> Self {
        Self { short_names, ..self }
    }

    pub(super) fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    /// Marks the CRD as keeping the v1beta2 contract of Cluster API, whose manager looks for a label.
    pub(super) fn cluster_api_contract(self) -> Self {
        Self { contract: true, ..self }
    }

    pub(super) fn columns(self, columns: Vec<Column>) -> Self {
        Self { columns, ..self }
    }

    /// `kubectl scale` writes the first path and reads the second.
    pub(super) fn scale(self, wanted: &'static str, present: &'static str) -> Self {
        Self { scale: Some((wanted, present)), ..self }
    }

    /// The longest name, where it is a part of something that has a limit of its own.
    pub(super) fn name_length(mut self, most: u32, why: &str) -> Self {
        self.schema = self.schema.field("metadata", object("").field("name", string(why).length(0, most)));
        self
    }

    /// The object that the API takes.
    pub(super) fn into_value(self) -> Value {
        let singular = self.kind.to_lowercase();
        let mut names = json!({
            "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural, "singular": singular,
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        if !self.categories.is_empty() {
            names["categories"] = json!(self.categories);
        }
        let mut subresources = json!({});
        if self.status {
            subresources["status"] = json!({});
        }
        if let Some((wanted, present)) = self.scale {
            subresources["scale"] = json!({"specReplicasPath": wanted, "statusReplicasPath": present});
        }
        let mut version = json!({
            "name": self.version, "served": true, "storage": true,
            "schema": {"openAPIV3Schema": Value::from(self.schema)},
            "additionalPrinterColumns": self.columns.iter().map(Column::value).collect::<Vec<_>>(),
        });
        if subresources != json!({}) {
            version["subresources"] = subresources;
        }
        let mut metadata = json!({"name": format!("{}.{}", self.plural, self.group)});
        if self.contract {
            metadata["labels"] = json!({"cluster.x-k8s.io/v1beta2": self.version});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group, "names": names, "versions": [version],
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
            },
        })
    }
}

impl Column {
    pub(super) fn value(&self) -> Value {
        let mut value = json!({"name": self.name, "type": self.kind, "jsonPath": self.path});
        if !self.description.is_empty() {
            value["description"] = self.description.into();
        }
        if self.wide {
            value["priority"] = 1.into();
        }
        value
    }
}
