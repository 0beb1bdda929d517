//! Field ownership of a request: the bridge from a [`Call`] to [`apply`].

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::call::Call;
use super::update::Part;
use crate::apply::{self, Applied, ApplyError, Manager, Reset, Target, Version, Versions, reset};
use crate::convert;
use crate::registry::Resources;
use crate::resource::{Behaviour, Resource};
use crate::schema::{SchemaRef, builtin};

/// The properties of a request that [`apply`] needs.
pub(crate) struct Ownership {
    manager: String,
    now: jiff::Timestamp,
    api_version: String,
    part: Part,
    resource: Arc<Resource>,
    siblings: Siblings,
}

impl Ownership {
    /// The ownership of what `call` writes to a part of its object.
    pub(crate) fn new(call: &Call, part: Part) -> Self {
        let agent = call.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
        let siblings = Siblings { resources: call.server.registry.current(), resource: call.resource.clone(), part };
        Self {
            manager: apply::manager_name(Some(&call.query.field_manager), agent.unwrap_or_default()).into_owned(),
            now: call.server.clock.now(),
            api_version: call.resource.api_version(),
            part,
            resource: call.resource.clone(),
            siblings,
        }
    }

    fn manager(&self) -> Manager<'_> {
        Manager { name: &self.manager, now: self.now }
    }

    fn target(&self) -> Target<'_> {
        Target {
            api_version: &self.api_version,
            kind: &self.resource.kind,
            schema: &self.resource.schema,
            subresource: self.part.subresource(),
            reset: reset_fields(&self.resource, self.part),
            versions: &self.siblings,
        }
    }

    /// Records the author of a new object.
    pub(crate) fn track_create(&self, object: &mut Value) {
        apply::track_create(object, &self.target(), &self.manager());
    }

    /// The managedFields of a new object as JSON, if they can be computed without changing the object.
    pub(crate) fn new_managed_fields(&self, object: &Value) -> Option<String> {
        apply::new_managed_fields(object, &self.target(), &self.manager())
    }

    /// Records the author of a change.
    pub(crate) fn track_update(&self, old: &Value, new: &mut Value) {
        apply::track_update(old, new, &self.target(), &self.manager());
    }

    /// Applies a configuration.
    pub(crate) fn apply(&self, live: Option<&Value>, config: &Value, force: bool) -> Result<Applied, ApplyError> {
        apply::apply_patch(live, config, &self.target(), &self.manager(), force)
    }

    /// The same for a Scale, whose managers are stored in the scaled object.
    pub(crate) fn of_scale(&self) -> ScaleOwnership<'_> {
        ScaleOwnership { ownership: self, schema: builtin::kind("autoscaling", "v1", "Scale") }
    }
}

/// The ownership of what a request writes to a Scale.
pub(crate) struct ScaleOwnership<'a> {
    ownership: &'a Ownership,
    schema: Option<SchemaRef>,
}

impl ScaleOwnership<'_> {
    fn with_target<T>(&self, use_it: impl FnOnce(&Target<'_>, &Manager<'_>) -> T) -> Option<T> {
        let target = Target {
            api_version: "autoscaling/v1",
            kind: "Scale",
            schema: self.schema.as_ref()?,
            subresource: "scale",
            reset: &Reset::Nothing,
            versions: &apply::SingleVersion,
        };
        Some(use_it(&target, &self.ownership.manager()))
    }

    fn paths(&self) -> Vec<(String, Vec<String>)> {
        self.ownership.siblings.all().map(|resource| (resource.api_version(), replicas_path(resource))).collect()
    }

    /// Gives a Scale the managers that the replicas of `object` have.
    pub(crate) fn enter(&self, scale: &mut Value, object: &Value) {
        let paths = self.paths();
        let managed_fields = object["metadata"].get("managedFields");
        if let Ok(Some(entries)) = apply::scale::to_scale(managed_fields, &borrowed(&paths)) {
            scale["metadata"]["managedFields"] = entries;
        }
    }

    /// Records the author of a change of a Scale.
    pub(crate) fn track_update(&self, old: &Value, new: &mut Value) {
        self.with_target(|target, manager| apply::track_update(old, new, target, manager));
    }

    /// Applies a configuration to a Scale.
    pub(crate) fn apply(&self, live: &Value, config: &Value, force: bool) -> Option<Result<Applied, ApplyError>> {
        self.with_target(|target, manager| apply::apply_patch(Some(live), config, target, manager, force))
    }

    /// Gives the scaled object the managers that its Scale has now.
    pub(crate) fn leave(&self, scale: &Value, object: &mut Value) {
        let paths = self.paths();
        let (parent, scale) = (object["metadata"].get("managedFields"), scale["metadata"].get("managedFields"));
        let entries = apply::scale::to_parent(parent, scale, &self.ownership.api_version, &borrowed(&paths));
        let Value::Object(metadata) = &mut object["metadata"] else { return };
        match entries {
            Ok(Some(entries)) => _ = metadata.insert("managedFields".to_owned(), entries),
            Ok(None) => _ = metadata.remove("managedFields"),
            Err(_) => {}
        }
    }
}

fn borrowed(paths: &[(String, Vec<String>)]) -> Vec<(&str, Vec<&str>)> {
    paths.iter().map(|(version, path)| (version.as_str(), path.iter().map(String::as_str).collect())).collect()
}

fn replicas_path(resource: &Resource) -> Vec<String> {
    let path = resource.subresources.scale.as_ref().map(|scale| scale.spec_replicas.clone());
    path.iter().flat_map(|path| path.split('.')).filter(|step| !step.is_empty()).map(str::to_owned).collect()
}

/// Fields that a request on this part cannot own.
fn reset_fields(resource: &Resource, part: Part) -> &'static Reset {
    let (subresource, has_status) = (part.subresource(), resource.subresources.status);
    match resource.behaviour {
        Behaviour::Builtin(_) => reset::builtin(&resource.group, &resource.kind, subresource, has_status),
        Behaviour::Custom => reset::custom(subresource, has_status),
    }
}

/// The other versions in which the objects of a collection are served.
struct Siblings {
    resources: Arc<Resources>,
    resource: Arc<Resource>,
    part: Part,
}

impl Siblings {
    /// Versions of the same group only: between the two groups of Event, the real API server drops managers.
    fn find(&self, api_version: &str) -> Option<&Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self.resources.find(group, version, &self.resource.plural)?;
        (found.group == self.resource.group && found.storage == self.resource.storage).then_some(found)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let group = self.resources.groups.get(&self.resource.group);
        let versions = group.into_iter().flat_map(|group| &group.versions);
        versions.filter_map(|version| version.resources.get(&self.resource.plural))
    }
}

impl Versions for Siblings {
    fn version(&self, api_version: &str) -> Option<Version<'_>> {
        let resource = self.find(api_version)?;
        // Each version of a custom resource resets its own status only; its status subresource knows of all.
        let main_of_custom = matches!(resource.behaviour, Behaviour::Custom) && self.part == Part::Main;
        let reset = if main_of_custom { &Reset::Nothing } else { reset_fields(resource, self.part) };
        Some(Version { schema: &resource.schema, reset })
    }

    fn convert<'v>(&self, object: &'v Value, api_version: &str) -> Cow<'v, Value> {
        let own = object["apiVersion"].as_str().unwrap_or_default();
        let (Some(from), Some(to)) = (self.find(own), self.find(api_version)) else { return Cow::Borrowed(object) };
        let mut object = object.clone();
        convert::to_stored(from, &mut object);
        convert::to_served(to, &mut object);
        Cow::Owned(object)
    }
}
