//! Resource descriptors: all that the generic handlers need to know about a kind.
//!
//! Built-ins ([`crate::builtin`]) and custom resources ([`crate::crd`]) become the same thing here, so no
//! handler has a code path for one kind where a descriptor can serve.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::SchemaRef;
use crate::status::FieldError;

/// One resource in one version, as served under `/api/v1/…` or `/apis/GROUP/VERSION/…`.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// API version.
    pub version: Arc<str>,
    /// Kind of one object.
    pub kind: Arc<str>,
    /// Kind of a list.
    pub list_kind: Arc<str>,
    /// Plural name, as in paths.
    pub plural: Arc<str>,
    /// Singular name.
    pub singular: Arc<str>,
    /// Short names for kubectl.
    pub short_names: Vec<Arc<str>>,
    /// Categories (`all`, …).
    pub categories: Vec<Arc<str>>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Version in which objects are stored; differs from `version` when a CRD serves several.
    pub storage_version: Arc<str>,
    /// Name of the collection in the store (`pods`, `deployments.apps`); two resources may share one
    /// (the two groups of Event).
    pub storage: Arc<str>,
    /// The verbs that it supports.
    pub verbs: Verbs,
    /// Parts that are served on their own.
    pub subresources: Subresources,
    /// How names are checked.
    pub name_rule: NameRule,
    /// Schema of one object.
    pub schema: SchemaRef,
    /// Columns of the Table form.
    pub columns: Columns,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub selectable_fields: SelectableFields,
    /// Set when this version is deprecated: the text of the Warning header.
    pub deprecation: Option<Arc<str>>,
    /// Defaults are filled in on the way out too: the schema may have got them after an object was stored.
    pub defaults_on_read: bool,
    /// Defaulting, preparation and validation.
    pub behaviour: Behaviour,
}

/// Verbs of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbs {
    /// Everything: create, delete, deletecollection, get, list, patch, update, watch.
    All,
    /// Everything but deletecollection.
    AllButDeleteCollection,
    /// Only create: nothing is stored (access reviews).
    CreateOnly,
}

/// Subresources of a kind.
#[derive(Debug, Clone, Default)]
pub struct Subresources {
    /// `/status` exists: the main resource ignores status, and the subresource everything else.
    pub status: bool,
    /// `/scale` exists.
    pub scale: Option<Scale>,
    /// Others, by name, with the kind that they take (`binding`, `eviction`, `token`, `finalize`, …).
    pub others: &'static [OtherSubresource],
}

/// A subresource with a handler of its own.
#[derive(Debug, Clone, Copy)]
pub struct OtherSubresource {
    /// Path segment.
    pub name: &'static str,
    /// Group, version and kind of its body; empty group and version mean those of the parent.
    pub kind: (&'static str, &'static str, &'static str),
    /// Verbs shown in discovery.
    pub verbs: &'static [&'static str],
}

/// Where `/scale` finds its numbers (paths like `.spec.replicas`).
#[derive(Debug, Clone)]
pub struct Scale {
    /// Path of the wanted number.
    pub spec_replicas: Arc<str>,
    /// Path of the number seen.
    pub status_replicas: Arc<str>,
    /// Path of the label selector: a string in custom resources, a `LabelSelector` or map in built-ins.
    pub label_selector: Option<Arc<str>>,
}

/// How the names of a kind are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, 253 bytes (most kinds).
    Subdomain,
    /// RFC 1123 label, 63 bytes (Namespace, Service, StatefulSet).
    Label,
    /// One path segment: no `/` or `%`, not `.` or `..` (RBAC).
    PathSegment,
    /// A canonical IP address (IPAddress).
    Ip,
}

/// Columns of the Table form.
#[derive(Debug, Clone)]
pub enum Columns {
    /// Name and age, for kinds without columns of their own.
    NameAndAge,
    /// Columns of a built-in kind, filled by code.
    Builtin(&'static BuiltinColumns),
    /// `additionalPrinterColumns` of a CRD.
    Custom(Arc<[CustomColumn]>),
}

/// Columns of a built-in kind.
pub struct BuiltinColumns {
    /// The column definitions.
    pub definitions: &'static [ColumnDefinition],
    /// The cells of one object in its stored form, in the order of the definitions. `now` is for ages.
    pub cells: fn(object: &Value, now: jiff::Timestamp) -> Vec<Value>,
    /// Conditions of an object's row; `None` for most kinds.
    pub conditions: fn(object: &Value) -> Option<Value>,
}

impl fmt::Debug for BuiltinColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinColumns").field("definitions", &self.definitions).finish_non_exhaustive()
    }
}

/// Definition of a Table column.
#[derive(Debug, Clone, Copy)]
pub struct ColumnDefinition {
    /// Heading.
    pub name: &'static str,
    /// JSON type of the cells.
    pub ty: &'static str,
    /// `name` for the name column.
    pub format: &'static str,
    /// Explanation.
    pub description: &'static str,
    /// 0 always, 1 only with `-o wide`.
    pub priority: i32,
}

/// One of a CRD's `additionalPrinterColumns`.
#[derive(Debug, Clone)]
pub struct CustomColumn {
    /// Heading.
    pub name: Arc<str>,
    /// JSON type of the cells; `date` shows ages.
    pub ty: Arc<str>,
    /// OpenAPI format.
    pub format: Arc<str>,
    /// Explanation.
    pub description: Arc<str>,
    /// 0 always, others only with `-o wide`.
    pub priority: i32,
    /// JSONPath as written in the CRD, starting with a dot.
    pub json_path: Arc<str>,
}

/// Fields that field selectors may name, each with the path it reads.
#[derive(Debug, Clone)]
pub enum SelectableFields {
    /// Only `metadata.name` and `metadata.namespace`.
    NameOnly,
    /// A built-in table: selector name → how it is read.
    Builtin(&'static [(&'static str, fn(&Value) -> String)]),
    /// `selectableFields` of a CRD: (selector name without leading dot, path segments).
    Custom(Arc<[(Arc<str>, Vec<Arc<str>>)]>),
}

/// The rules for incoming objects of this kind.
#[derive(Debug, Clone)]
pub enum Behaviour {
    /// A built-in kind.
    Builtin(&'static BuiltinKind),
    /// A custom resource: prune, default and validate by its schema.
    Custom,
}

/// Hooks of a built-in kind. Each works on JSON in the served version, metadata (name, uid, creationTimestamp)
/// already filled in by the caller. Metadata itself is checked by [`crate::meta`].
#[derive(Clone, Copy)]
pub struct BuiltinKind {
    /// Fills in defaults and canonical forms, as the real API server does after decoding.
    pub default: fn(&mut Value),
    /// Before create: clears what a client may not set, fills what the server sets (status, phase, generation …).
    pub prepare_create: fn(&mut Value),
    /// Before update of the main resource: carries over what may not change by this path; sets the generation.
    pub prepare_update: fn(new: &mut Value, old: &Value),
    /// Before update of `/status`: carries over all that may not change by this path.
    pub prepare_status: fn(new: &mut Value, old: &Value),
    /// Validates a new object, or a change when `old` is there.
    pub validate: fn(new: &Value, old: Option<&Value>) -> Vec<FieldError>,
    /// Validates a change through `/status`.
    pub validate_status: fn(new: &Value, old: &Value) -> Vec<FieldError>,
    /// Set when the stored form differs from the served one.
    pub conversion: Option<Conversion>,
    /// Whether an update without `metadata.resourceVersion` is allowed, which overwrites any version.
    pub unconditional_update: bool,
    /// Whether an update of an object that does not exist creates it.
    pub create_on_update: bool,
}

impl fmt::Debug for BuiltinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinKind").field("conversion", &self.conversion).finish_non_exhaustive()
    }
}

/// How a served form becomes the stored one and back (`events.k8s.io` Events, `autoscaling/v1` autoscalers).
/// Both directions also rewrite `apiVersion`.
#[derive(Debug, Clone, Copy)]
pub struct Conversion {
    /// Served form to stored form.
    pub to_storage: fn(&mut Value),
    /// Stored form to served form.
    pub from_storage: fn(&mut Value),
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }
}
