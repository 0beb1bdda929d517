//! The built-in kinds of Kubernetes 1.36: descriptors, defaults, preparation and validation.
//!
//! [`resources()`] is the whole interface to the generic handlers: one [`Resource`] per kind, with hooks. The hooks are
//! pure functions over JSON in the served version: they do no I/O. What depends on other objects (priority classes,
//! free service addresses) is a helper that takes those objects as arguments.
//!
//! Read on in [`table`] (which kinds there are) and [`fields`] (what field selectors read).

mod apps;
mod autoscaling;
mod batch;
pub mod certificates;
pub(crate) mod check;
mod conversion;
pub mod core;
mod cron;
mod defaults;
mod devices;
mod events;
mod extension;
mod fields;
mod hooks;
pub(crate) mod ip;
pub(crate) mod json;
mod network;
pub(crate) mod path;
pub mod pod;
mod policy;
mod quota;
mod rbac;
#[cfg(test)]
mod recorded;
pub(crate) mod resources;
pub mod service;
pub(crate) mod shape;
mod storage;
mod table;

use std::sync::Arc;

use crate::resource::{Behaviour, BuiltinKind, Columns, OtherSubresource, Resource, Scale, Subresources, Verbs};
use crate::resource::{NameRule, SelectableFields};
use crate::schema;

/// One line of the table: what distinguishes a built-in kind from the others.
#[derive(Debug, Clone, Copy)]
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: Verbs,
    status: bool,
    scale: Option<ScalePaths>,
    others: &'static [OtherSubresource],
    name_rule: NameRule,
    fields: Option<fields::Table>,
    storage: Option<&'static str>,
    storage_version: Option<&'static str>,
    deprecation: Option<&'static str>,
    hooks: &'static BuiltinKind,
}

/// Paths of a `/scale` subresource.
#[derive(Debug, Clone, Copy)]
struct ScalePaths {
    spec_replicas: &'static str,
    status_replicas: &'static str,
    label_selector: &'static str,
}

/// Descriptors of all built-in kinds, in the order of discovery.
pub fn resources() -> Vec<Resource> {
    table::rows().iter().map(Row::resource).collect()
}

impl Row {
    fn resource(&self) -> Resource {
        let names = |list: &[&str]| list.iter().map(|&name| Arc::from(name)).collect();
        Resource {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            plural: self.plural.into(),
            singular: self.kind.to_lowercase().into(),
            short_names: names(self.short_names),
            categories: names(self.categories),
            namespaced: self.namespaced,
            storage_version: self.storage_version.unwrap_or(self.version).into(),
            storage: self.storage_name(),
            verbs: self.verbs,
            subresources: self.subresources(),
            name_rule: self.name_rule,
            schema: schema::builtin::kind(self.group, self.version, self.kind)
                .expect("the generated table has every built-in kind"),
            columns: crate::table::builtin_columns(self.group, self.kind).map_or(Columns::NameAndAge, Columns::Builtin),
            selectable_fields: self.fields.map_or(SelectableFields::NameOnly, SelectableFields::Builtin),
            deprecation: self.deprecation.map(Arc::from),
            defaults_on_read: false,
            behaviour: Behaviour::Builtin(self.hooks),
        }
    }

    fn storage_name(&self) -> Arc<str> {
        match (self.storage, self.group) {
            (Some(name), _) => name.into(),
            (None, "") => self.plural.into(),
            (None, group) => format!("{}.{group}", self.plural).into(),
        }
    }

    fn subresources(&self) -> Subresources {
        let scale = self.scale.map(|paths| Scale {
            spec_replicas: paths.spec_replicas.into(),
            status_replicas: paths.status_replicas.into(),
            label_selector: Some(paths.label_selector.into()),
        });
        Subresources { status: self.status, scale, others: self.others }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use super::*;

    #[test]
    fn every_group_version_and_plural_is_served_once() {
        let mut seen = HashSet::new();
        for resource in resources() {
            let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
            assert!(seen.insert(key), "{} {} twice", resource.api_version(), resource.plural);
        }
    }

    #[test]
    fn every_kind_has_a_schema() {
        for resource in resources() {
            assert!(!resource.schema.properties.is_empty(), "{} {}", resource.api_version(), resource.kind);
        }
    }

    /// Lines as the reference page has them: group and version, then the row up to the subresources.
    fn documented() -> BTreeSet<String> {
        let page = include_str!("../../../../docs/reference/kinds.md");
        let mut section = "";
        let mut lines = BTreeSet::new();
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                section = title.trim_matches('`');
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if let ["", kind, plural, scope, subresources, _, ""] = cells[..]
                && plural.starts_with('`')
            {
                lines.insert(format!("{section} {kind} {plural} {scope} {subresources}"));
            }
        }
        lines
    }

    fn served(resource: &Resource) -> String {
        let parts = &resource.subresources;
        let mut subresources: Vec<&str> = parts.others.iter().map(|other| other.name).collect();
        subresources.extend(parts.status.then_some("status"));
        subresources.extend(parts.scale.as_ref().map(|_| "scale"));
        subresources.sort_unstable();
        let subresources: Vec<String> = subresources.iter().map(|name| format!("`{name}`")).collect();
        let scope = if resource.namespaced { "namespace" } else { "cluster" };
        let (kind, plural) = (&resource.kind, &resource.plural);
        format!("{} {kind} `{plural}` {scope} {}", resource.api_version(), subresources.join(", "))
    }

    #[test]
    fn the_reference_page_lists_what_is_served() {
        let served: BTreeSet<String> = resources().iter().map(served).collect();
        let documented = documented();
        let missing: Vec<_> = served.difference(&documented).collect();
        let gone: Vec<_> = documented.difference(&served).collect();
        assert!(missing.is_empty() && gone.is_empty(), "missing: {missing:#?}\ngone: {gone:#?}");
    }

    #[test]
    fn both_groups_of_event_share_one_collection() {
        let storages: HashSet<_> =
            resources().into_iter().filter(|r| &*r.kind == "Event").map(|r| (r.storage, r.storage_version)).collect();
        assert_eq!(storages.len(), 1);
    }

    #[test]
    fn only_resources_that_share_a_collection_convert() {
        for resource in resources() {
            let Behaviour::Builtin(hooks) = resource.behaviour else { panic!("{} is custom", resource.kind) };
            let shared = &*resource.group == "events.k8s.io" || resource.version != resource.storage_version;
            assert_eq!(hooks.conversion.is_some(), shared, "{} {}", resource.api_version(), resource.kind);
        }
    }
}
