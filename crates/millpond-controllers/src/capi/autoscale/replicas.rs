//! Writes the size of a node group: within its bounds, and on condition that it has not changed since it was planned
//! with.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use millpond_api::capi::{Problems, node_group};
use millpond_runtime::error::Result;
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::Key;
use millpond_runtime::mirror::Mirror;
use millpond_state::groups::{GroupKind, GroupRef};
use serde_json::{Value, json};

use super::Machines;
use crate::kinds::{MachineDeployment, MachinePool, MachineSet};
use crate::turn::Turn;

/// Limit on write conflicts with other clients: Cluster API writes the status of the same object whenever a machine
/// changes.
const TRIES: usize = 10;

/// The result of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resized {
    /// The size was written.
    Done,
    /// The group's size or bounds changed since the plan was made, so it must be planned again.
    Changed,
}

/// A kind with a replica count.
trait Scalable: Kind {
    fn spec(&self) -> &Value;

    fn replicas(&self) -> Option<i64> {
        self.spec().get("replicas").and_then(Value::as_i64)
    }
}

impl Scalable for MachineDeployment {
    fn spec(&self) -> &Value {
        &self.spec
    }
}

impl Scalable for MachineSet {
    fn spec(&self) -> &Value {
        &self.spec
    }
}

impl Scalable for MachinePool {
    fn spec(&self) -> &Value {
        &self.spec
    }
}

impl Machines {
    /// Changes the size of a group from what it was to something else.
    pub(super) async fn resize(&self, _turn: &Turn<'_>, of: &GroupRef, from: Option<i64>, to: i64) -> Result<Resized> {
        match of.kind {
            GroupKind::MachineDeployment => resize(&self.deployments, of, from, to).await,
            GroupKind::MachineSet => resize(&self.sets, of, from, to).await,
            GroupKind::MachinePool => resize(&self.pools, of, from, to).await,
        }
    }

    /// The desired sizes of all groups.
    pub(super) fn sizes(&self) -> BTreeMap<GroupRef, Option<i64>> {
        let mut all = BTreeMap::new();
        add(&self.deployments, GroupKind::MachineDeployment, &mut all);
        add(&self.sets, GroupKind::MachineSet, &mut all);
        add(&self.pools, GroupKind::MachinePool, &mut all);
        all
    }

    /// Writes annotations of a group.
    pub(super) async fn annotate(&self, of: &GroupRef, annotations: &Value) -> Result<()> {
        let patch = json!({"metadata": {"annotations": annotations}});
        let key = Key::new(&of.namespace, &of.name);
        match of.kind {
            GroupKind::MachineDeployment => self.deployments.patch(&key, &patch).await.map(drop),
            GroupKind::MachineSet => self.sets.patch(&key, &patch).await.map(drop),
            GroupKind::MachinePool => self.pools.patch(&key, &patch).await.map(drop),
        }
    }

    /// Records an event about a group. With `once`, an event that was recorded recently is not repeated.
    pub(super) fn record_event(
        &self,
        of: &GroupRef,
        event_reason: millpond_runtime::events::EventReason,
        note: &str,
        once: bool,
    ) {
        if !once {
            self.log.say(&of.to_string(), note, self.clock.now());
        }
        let key = Key::new(&of.namespace, &of.name);
        macro_rules! record {
            ($mirror:ident) => {
                if let Some(object) = self.$mirror.get(&key) {
                    match once {
                        true => self.events.record(&*object, event_reason, note),
                        false => self.recorder.record(&*object, event_reason, note),
                    }
                }
            };
        }
        match of.kind {
            GroupKind::MachineDeployment => record!(deployments),
            GroupKind::MachineSet => record!(sets),
            GroupKind::MachinePool => record!(pools),
        }
    }
}

fn add<K: Scalable>(mirror: &Mirror<K>, kind: GroupKind, all: &mut BTreeMap<GroupRef, Option<i64>>) {
    for object in mirror.list() {
        let Key { namespace, name } = Key::of(&*object);
        all.insert(GroupRef::new(kind, &namespace, &name), object.replicas());
    }
}

async fn resize<K: Scalable>(mirror: &Mirror<K>, of: &GroupRef, from: Option<i64>, to: i64) -> Result<Resized> {
    let key = Key::new(&of.namespace, &of.name);
    let mut object = mirror.get(&key);
    for _ in 0..TRIES {
        let Some(known) = object else { return Ok(Resized::Changed) };
        if known.replicas() != from || !is_within(&*known, from.unwrap_or(0), to) {
            return Ok(Resized::Changed);
        }
        let version = known.resource_version().unwrap_or_default();
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": to}});
        match mirror.patch(&key, &patch).await {
            Ok(_) => return Ok(Resized::Done),
            Err(error) if error.is_conflict() => {
                object = match mirror.fetch(&key).await {
                    Ok(now) => Some(Arc::new(now)),
                    Err(error) if error.is_not_found() => None,
                    Err(error) => return Err(error),
                }
            }
            Err(error) if error.is_not_found() => return Ok(Resized::Changed),
            Err(error) => return Err(error),
        }
    }
    Ok(Resized::Changed)
}

/// Whether a size is within the bounds that the group has now; one that is beyond them may come nearer.
fn is_within<K: Scalable>(object: &K, from: i64, to: i64) -> bool {
    match node_group::bounds(object.annotations(), &Problems::new()) {
        Ok(Some((min, max))) => (to <= max || to < from) && (to >= min || to > from),
        _ => false,
    }
}
