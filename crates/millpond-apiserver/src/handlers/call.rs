//! One request to one resource, with everything that the verbs need.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method};
use hyper::upgrade::OnUpgrade;
use serde_json::Value;

use crate::auth::Identity;
use crate::http::negotiate::Accepted;
use crate::http::path::ResourcePath;
use crate::http::query::Query;
use crate::long_work::LONG_BYTES;
use crate::resource::{Resource, SelectableFields};
use crate::schema::custom;
use crate::selector::{FieldSelector, LabelSelector};
use crate::server::Server;
use crate::status::ApiError;
use crate::store::{SetAside, StoredObject};

/// A request, resolved to a resource.
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    pub(crate) resource: Arc<Resource>,
    pub(crate) path: ResourcePath,
    pub(crate) query: Query,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) identity: Identity,
    pub(crate) accepted: Accepted,
    /// Size of the request's body.
    pub(crate) body_bytes: usize,
    /// Texts of Warning headers, in order.
    pub(crate) warnings: Vec<String>,
    /// Annotations that policies add to the audit log.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The query as it came.
    pub(crate) raw_query: Option<String>,
    /// The connection, for requests that become a tunnel.
    pub(crate) upgrade: Option<OnUpgrade>,
}

impl Call {
    /// The name in the path; requests without one never get here.
    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or_default()
    }

    /// The namespace in the path; empty for cluster-wide requests.
    pub(crate) fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or_default()
    }

    /// The key of the object that the path names.
    pub(crate) fn key(&self) -> Arc<str> {
        key_of(&self.resource, self.namespace(), self.name())
    }

    /// Whether decoding, validating or rendering this write may take long.
    pub(crate) fn is_long(&self) -> bool {
        let rules = || custom::definition(&self.resource.schema).is_some_and(custom::Definition::has_rules);
        self.body_bytes > LONG_BYTES || (self.method != Method::GET && rules())
    }

    /// The object that the path names.
    pub(crate) fn fetch(&self) -> Result<Arc<StoredObject>, ApiError> {
        let key = self.key();
        self.server.store.get(&self.resource.storage, &key).ok_or_else(|| {
            let unreadable = self.server.store.set_aside(&self.resource.storage, &key);
            unreadable.map_or_else(|| self.not_found(), |object| self.unreadable(&object))
        })
    }

    /// The 500 for an object that the store holds and cannot read.
    fn unreadable(&self, object: &SetAside) -> ApiError {
        ApiError::internal(format!(
            "{} {:?} was written at resource version {} and cannot be read ({}); \
             it is kept in the store until it is deleted",
            crate::status::qualified(&self.resource.group, &self.resource.plural),
            self.name(),
            object.revision,
            object.problem,
        ))
    }

    /// The 404 for the object that the path names.
    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, self.name())
    }
}

/// The key of an object in its collection.
pub(crate) fn key_of(resource: &Resource, namespace: &str, name: &str) -> Arc<str> {
    if resource.namespaced { format!("{namespace}/{name}").into() } else { name.into() }
}

/// Namespace and name of a key.
pub(crate) fn split_key<'a>(resource: &Resource, key: &'a str) -> (&'a str, &'a str) {
    if resource.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) }
}

/// The objects that a list, a watch or a delete of a collection is about.
pub(crate) struct Selection {
    pub(crate) resource: Arc<Resource>,
    /// Keys start with this.
    pub(crate) prefix: String,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Selection {
    /// Reads the selectors of a request.
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let fields = FieldSelector::parse(&call.query.field_selector)?;
        fields.check(&call.resource)?;
        let fields = match &call.path.name {
            // A watch on one object.
            Some(name) => FieldSelector::by_name(name),
            None => fields,
        };
        let prefix = match &call.path.namespace {
            Some(namespace) if call.resource.namespaced => format!("{namespace}/"),
            _ => String::new(),
        };
        let labels = LabelSelector::parse(&call.query.label_selector)?;
        Ok(Self { resource: call.resource.clone(), prefix, labels, fields })
    }

    /// No selector: every object under the prefix matches.
    pub(crate) fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub(crate) fn matches(&self, object: &StoredObject, key: &str) -> bool {
        key.starts_with(&self.prefix)
            && (self.labels.is_empty() || self.labels.matches(|label| object.label(label)))
            && (self.fields.is_empty() || self.fields.matches(|field| self.field(object, key, field)))
    }

    fn field<'a>(&self, object: &'a StoredObject, key: &'a str, field: &str) -> Option<Cow<'a, str>> {
        let (namespace, name) = split_key(&self.resource, key);
        match field {
            "metadata.name" => return Some(Cow::Borrowed(name)),
            "metadata.namespace" => return Some(Cow::Borrowed(namespace)),
            _ => {}
        }
        let position = selectable_names(&self.resource).position(|candidate| candidate == field)?;
        let values = object.index.fields.get_or_init(|| field_values(&self.resource, &object.to_value()));
        values.get(position).map(|value| Cow::Borrowed(&**value))
    }
}

fn selectable_names(resource: &Resource) -> Box<dyn Iterator<Item = &str> + '_> {
    match &resource.selectable_fields {
        SelectableFields::NameOnly => Box::new(std::iter::empty()),
        SelectableFields::Builtin(table) => Box::new(table.iter().map(|(name, _)| *name)),
        SelectableFields::Custom(table) => Box::new(table.iter().map(|(name, _)| &**name)),
    }
}

/// Values of the selectable fields of an object, in the order of the descriptor.
fn field_values(resource: &Resource, object: &Value) -> Box<[Box<str>]> {
    match &resource.selectable_fields {
        SelectableFields::NameOnly => Box::default(),
        SelectableFields::Builtin(table) => table.iter().map(|(_, read)| read(object).into()).collect(),
        SelectableFields::Custom(table) => table
            .iter()
            .map(|(_, path)| scalar_text(path.iter().fold(object, |at, step| &at[&**step])).into())
            .collect(),
    }
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
