//! The Table form of objects, which `kubectl get` prints, and PartialObjectMetadata.
//!
//! Columns of built-in kinds are those of the real API server ([`kinds`]); custom resources bring their own
//! ([`custom`]). All columns are always there; kubectl leaves out those of lower priority without `-o wide`.

mod custom;
mod kinds;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::custom::CustomColumns;
pub use self::kinds::{builtin_columns, scale_columns};
use crate::print::go_quoted;
use crate::resource::{Behaviour, BuiltinColumns, ColumnDefinition, Columns, Resource};
use crate::status::ApiError;

/// How much of each object a Table carries beside its cells (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// No object.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter.
    pub fn parse(parameter: Option<&str>) -> Result<Self, ApiError> {
        match parameter.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: \
                 must be 'Metadata', 'Object', 'None', or empty",
                go_quoted(other)
            ))),
        }
    }

    fn of(self, object: &Value) -> Value {
        match self {
            Self::None => Value::Null,
            Self::Metadata => partial_metadata(object),
            Self::Object => object.clone(),
        }
    }
}

/// How the objects of one resource become rows. Made once for many objects: paths are parsed here.
pub struct Printer {
    headings: Vec<Value>,
    cells: Cells,
    to_storage: Option<fn(&mut Value)>,
}

enum Cells {
    NameAndCreation,
    Builtin(&'static BuiltinColumns),
    Custom(CustomColumns),
}

impl Printer {
    /// The printer of a resource.
    pub fn new(resource: &Resource) -> Self {
        let to_storage = match &resource.behaviour {
            Behaviour::Builtin(kind) => kind.conversion.map(|conversion| conversion.to_storage),
            Behaviour::Custom => None,
        };
        match (&resource.columns, &resource.behaviour) {
            (Columns::Builtin(columns), _) => Self { to_storage, ..Self::builtin(columns) },
            (Columns::Custom(columns), _) => Self::custom(CustomColumns::new(columns)),
            (Columns::NameAndAge, Behaviour::Custom) => Self::custom(CustomColumns::new(&[])),
            (Columns::NameAndAge, Behaviour::Builtin(_)) => {
                let definitions = [kinds::NAME, kinds::CREATED_AT];
                let headings = definitions.iter().map(heading).collect();
                Self { headings, cells: Cells::NameAndCreation, to_storage: None }
            }
        }
    }

    /// The printer of objects that are no resource of their own (a Scale).
    pub fn builtin(columns: &'static BuiltinColumns) -> Self {
        let headings = columns.definitions.iter().map(heading).collect();
        Self { headings, cells: Cells::Builtin(columns), to_storage: None }
    }

    fn custom(columns: CustomColumns) -> Self {
        let mut headings = vec![heading(&kinds::NAME)];
        headings.extend(columns.headings());
        Self { headings, cells: Cells::Custom(columns), to_storage: None }
    }

    /// The column definitions.
    pub fn columns(&self) -> &[Value] {
        &self.headings
    }

    /// The row of one object, given in the version it is served in.
    pub fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let mut row = Map::new();
        match &self.cells {
            Cells::NameAndCreation => {
                row.insert("cells".to_owned(), name_and_creation(object));
            }
            Cells::Custom(columns) => {
                row.insert("cells".to_owned(), Value::Array(columns.cells(object, now)));
            }
            Cells::Builtin(columns) => {
                let stored = self.to_storage.map(|to_storage| {
                    let mut stored = object.clone();
                    to_storage(&mut stored);
                    stored
                });
                let stored = stored.as_ref().unwrap_or(object);
                row.insert("cells".to_owned(), Value::Array((columns.cells)(stored, now)));
                if let Some(conditions) = (columns.conditions)(stored) {
                    row.insert("conditions".to_owned(), conditions);
                }
            }
        }
        row.insert("object".to_owned(), include.of(object));
        Value::Object(row)
    }

    /// A whole Table. Without headers (all but the first of a watch) the definitions are null.
    pub fn table<'a>(
        &self,
        objects: impl Iterator<Item = &'a Value>,
        include: IncludeObject,
        now: Timestamp,
        list_meta: &Value,
        no_headers: bool,
    ) -> Value {
        let rows: Vec<Value> = objects.map(|object| self.row(object, include, now)).collect();
        let definitions = if no_headers { Value::Null } else { Value::from(self.headings.clone()) };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": list_meta,
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }
}

/// The column definitions of a resource.
pub fn columns(resource: &Resource) -> Vec<Value> {
    Printer::new(resource).headings
}

/// A Table of objects of a resource, given in the version they are served in.
pub fn render<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    include: IncludeObject,
    now: Timestamp,
    list_meta: &Value,
    no_headers: bool,
) -> Value {
    Printer::new(resource).table(objects, include, now, list_meta, no_headers)
}

/// The metadata of an object, as an object of its own.
pub fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

fn heading(definition: &ColumnDefinition) -> Value {
    json!({
        "name": definition.name,
        "type": definition.ty,
        "format": definition.format,
        "description": definition.description,
        "priority": definition.priority,
    })
}

fn name_and_creation(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let created = metadata["creationTimestamp"].as_str().unwrap_or("0001-01-01T00:00:00Z");
    json!([metadata["name"].as_str().unwrap_or_default(), created])
}

#[cfg(test)]
mod tests;
