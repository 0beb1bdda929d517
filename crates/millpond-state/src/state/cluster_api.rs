//! The index of Cluster API objects: groups of machines, machines and their templates.

use std::collections::BTreeMap;

use millpond_api::capi::{Cluster, Deployment, Machine, Reference, names};
use millpond_api::meta::ObjectMeta;
use millpond_plan::model::Seconds;
use serde_json::Value;

use super::{Applied, Names, Origin, put, remove};
use crate::groups::{GroupKind, GroupRef, Trouble};
use crate::objects::cluster_api::{ApiKind, Raw};
use crate::objects::namespace_of;

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterApi {
    pub(crate) groups: BTreeMap<GroupRef, GroupEntry>,
    pub(crate) machines: Names<MachineEntry>,
    /// Whether each cluster is paused.
    pub(crate) clusters: Names<bool>,
    /// Infrastructure templates by namespace and name; of one name there can be several kinds.
    machine_templates: Names<Vec<Template>>,
    /// Bootstrap templates, in the same way.
    config_templates: Names<Vec<Template>>,
}

/// Machines alike, and how many of them are wanted.
#[derive(Debug, Clone)]
pub(crate) struct GroupEntry {
    pub(crate) metadata: ObjectMeta,
    pub(crate) deployment: Deployment,
    /// The MachineDeployment that a MachineSet belongs to.
    pub(crate) owner: Option<Box<str>>,
    /// Nodes that a MachinePool names itself.
    pub(crate) nodes: Vec<Box<str>>,
    pub(crate) origin: Option<Origin>,
}

/// A machine.
#[derive(Debug, Clone)]
pub(crate) struct MachineEntry {
    deployment: Option<Box<str>>,
    pub(crate) set: Option<Box<str>>,
    pool: Option<Box<str>>,
    pub(crate) node: Option<Box<str>>,
    pub(crate) provider_id: Option<Box<str>>,
    pub(crate) created: Seconds,
    /// It is being deleted.
    pub(crate) leaving: bool,
    /// It is deleted first when its group is scaled down.
    pub(crate) marked: bool,
    /// Why it will not become a node soon, by its own word.
    pub(crate) trouble: Option<Trouble>,
}

/// A machine or bootstrap template.
#[derive(Debug, Clone)]
struct Template {
    kind: String,
    /// `spec` and `status`.
    object: Value,
}

impl ClusterApi {
    pub(super) fn take(&mut self, kind: ApiKind, raw: &Raw, origin: Option<Origin>) -> Applied {
        let (namespace, name) = (namespace_of(&raw.metadata), raw.metadata.name.as_str());
        match kind {
            ApiKind::MachineDeployment | ApiKind::MachineSet | ApiKind::MachinePool => {
                let of = GroupRef::new(group_kind(kind), namespace, name);
                put(self.groups.insert(of, GroupEntry::new(raw, origin)))
            }
            ApiKind::Machine => {
                let entry = MachineEntry::new(raw);
                put(self.machines.entry(namespace.into()).or_default().insert(name.into(), entry))
            }
            ApiKind::Cluster => {
                let paused = Cluster::of(&raw.spec).paused || raw.metadata.annotations.contains_key(names::PAUSED);
                put(self.clusters.entry(namespace.into()).or_default().insert(name.into(), paused))
            }
            ApiKind::MachineTemplate => put_template(&mut self.machine_templates, namespace, raw),
            ApiKind::ConfigTemplate => put_template(&mut self.config_templates, namespace, raw),
        }
    }

    pub(super) fn forget(&mut self, kind: ApiKind, namespace: &str, name: &str) -> bool {
        match kind {
            ApiKind::MachineDeployment | ApiKind::MachineSet | ApiKind::MachinePool => {
                self.groups.remove(&GroupRef::new(group_kind(kind), namespace, name)).is_some()
            }
            ApiKind::Machine => remove(&mut self.machines, namespace, name),
            ApiKind::Cluster => remove(&mut self.clusters, namespace, name),
            ApiKind::MachineTemplate => remove(&mut self.machine_templates, namespace, name),
            ApiKind::ConfigTemplate => remove(&mut self.config_templates, namespace, name),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The group of a machine: its MachineDeployment if it has one.
    pub(crate) fn group_of(&self, namespace: &str, machine: &MachineEntry) -> Option<GroupRef> {
        let of = |kind, name: &Option<Box<str>>| Some(GroupRef::new(kind, namespace, name.as_deref()?));
        if let Some(deployment) = of(GroupKind::MachineDeployment, &machine.deployment) {
            return Some(deployment);
        }
        if let Some(set) = of(GroupKind::MachineSet, &machine.set) {
            let owner = self.groups.get(&set).and_then(|set| set.owner.as_deref());
            return Some(owner.map_or(set, |owner| GroupRef::new(GroupKind::MachineDeployment, namespace, owner)));
        }
        of(GroupKind::MachinePool, &machine.pool)
    }

    /// Whether a cluster is paused.
    pub(crate) fn is_paused(&self, namespace: &str, cluster: &str) -> bool {
        self.clusters.get(namespace).and_then(|clusters| clusters.get(cluster)).copied().unwrap_or(false)
    }

    /// The infrastructure template that a reference means.
    pub(crate) fn machine_template(&self, namespace: &str, reference: &Reference) -> Option<&Value> {
        find_template(&self.machine_templates, namespace, reference)
    }

    /// The bootstrap template that a reference means.
    pub(crate) fn config_template(&self, namespace: &str, reference: &Reference) -> Option<&Value> {
        find_template(&self.config_templates, namespace, reference)
    }
}

impl GroupEntry {
    fn new(raw: &Raw, origin: Option<Origin>) -> Self {
        let owners = raw.metadata.owner_references.iter();
        let owner = owners.filter(|owner| owner.kind == "MachineDeployment").map(|owner| owner.name.as_str().into());
        let refs = raw.status.get("nodeRefs").and_then(Value::as_array).into_iter().flatten();
        let nodes = refs.filter_map(|node| node.get("name").and_then(Value::as_str)).map(Into::into);
        Self {
            metadata: raw.metadata.clone(),
            // Sets and pools have the same fields, as far as they have them.
            deployment: Deployment::of(&raw.spec),
            owner: owner.into_iter().next(),
            nodes: nodes.collect(),
            origin,
        }
    }
}

impl MachineEntry {
    fn new(raw: &Raw) -> Self {
        let machine = Machine::of(&raw.spec, &raw.status);
        let label = |key: &str| raw.metadata.labels.get(key).map(|value| value.as_str().into());
        let owned = |kind: &str| {
            let mut owners = raw.metadata.owner_references.iter();
            owners.find(|owner| owner.kind == kind).map(|owner| owner.name.as_str().into())
        };
        Self {
            deployment: label(names::DEPLOYMENT_NAME),
            set: owned("MachineSet").or_else(|| label(names::SET_NAME)),
            pool: owned("MachinePool").or_else(|| label(names::POOL_NAME)),
            node: machine.status.node.as_deref().map(Into::into),
            provider_id: machine.spec.provider_id.as_deref().map(Into::into),
            created: raw.metadata.creation_timestamp.map_or(0, |time| time.0),
            leaving: raw.metadata.is_deleting(),
            marked: raw.metadata.annotations.contains_key(names::DELETE_MACHINE),
            trouble: Trouble::of(&machine.status),
        }
    }
}

fn group_kind(kind: ApiKind) -> GroupKind {
    match kind {
        ApiKind::MachineSet => GroupKind::MachineSet,
        ApiKind::MachinePool => GroupKind::MachinePool,
        _ => GroupKind::MachineDeployment,
    }
}

fn put_template(all: &mut Names<Vec<Template>>, namespace: &str, raw: &Raw) -> Applied {
    let named = all.entry(namespace.into()).or_default().entry(raw.metadata.name.as_str().into()).or_default();
    let object = serde_json::json!({"spec": raw.spec, "status": raw.status});
    let template = Template { kind: raw.kind.clone(), object };
    match named.iter_mut().find(|known| known.kind == template.kind) {
        Some(known) => {
            *known = template;
            Applied::Changed
        }
        None => {
            named.push(template);
            Applied::Added
        }
    }
}

fn find_template<'t>(all: &'t Names<Vec<Template>>, namespace: &str, reference: &Reference) -> Option<&'t Value> {
    let namespace = reference.namespace.as_deref().unwrap_or(namespace);
    let named = all.get(namespace)?.get(reference.name.as_str())?;
    // Entries of a list may leave out what they are.
    let found = named.iter().find(|template| template.kind == reference.kind || template.kind.is_empty());
    found.map(|template| &template.object)
}
