//! Builds the input of the engine: the records of the store, with the work that this launcher has under way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::backend::{Key, Records, Stored};
use super::under_way::Item;
use crate::config::{Config, Driver, LabelDetails, Resources};
use crate::driver::{Sizes, Uploads};
use crate::engine::{self, Lock, Locked, Snapshot};
use crate::model::NodeState;

/// Inputs besides the records.
pub(super) struct Surroundings<'a> {
    pub(super) now: f64,
    pub(super) config: &'a Config,
    /// Limits that the providers themselves reported.
    pub(super) provider_limits: &'a BTreeMap<String, Resources>,
    /// The usage of nodes by provider, as the providers report it.
    pub(super) sizes: &'a BTreeMap<String, Sizes>,
    /// The images that servers boot from, if known.
    pub(super) uploads: Option<&'a Uploads>,
    pub(super) out_of_capacity: BTreeSet<(String, String)>,
    /// Providers that work; pools of the others serve nothing.
    pub(super) usable: &'a BTreeSet<String>,
    /// The name that this launcher writes into the records of its nodes.
    pub(super) launcher: &'a str,
}

/// The pools of a configuration that can be served.
pub(super) fn pools(config: &Config, usable: &BTreeSet<String>) -> Vec<engine::Pool> {
    let mut pools = engine::pools(config, &|_, _| String::new());
    pools.retain(|pool| usable.contains(&pool.provider));
    pools
}

/// Adds what is under way to what is stored.
pub(super) fn snapshot(records: &Records, items: &[Item], around: &Surroundings<'_>) -> Snapshot {
    let mut snapshot = Snapshot {
        now: around.now,
        pools: served(records, around),
        foreign: records.foreign.clone(),
        provider_limits: provider_limits(around),
        tenant_limits: around.config.tenant_limits.clone(),
        labels: around.config.labels.clone(),
        max_hold_age_s: around.config.max_hold_age_s,
        out_of_capacity: around.out_of_capacity.clone(),
        without_image: BTreeMap::new(),
        requests: records.requests.iter().map(|(id, stored)| (id.clone(), locked(stored))).collect(),
        nodes: records.nodes.iter().map(|(id, stored)| (id.clone(), locked(stored))).collect(),
    };
    snapshot.without_image = without_image(&snapshot.pools, around);
    if items.iter().any(|item| item.is_creating) {
        // Among them are nodes that were created a moment ago, and are about to be locked.
        let ours = |node: &&mut Locked<crate::model::Node>| {
            node.record.state == NodeState::Init && node.record.launcher.as_deref() == Some(around.launcher)
        };
        snapshot.nodes.values_mut().filter(ours).for_each(|node| node.lock = Lock::Other);
    }
    for item in items {
        for key in &item.keys {
            match key {
                Key::Request(id) => set_busy(snapshot.requests.get_mut(id)),
                Key::Node(id) => set_busy(snapshot.nodes.get_mut(id)),
            }
        }
        for (id, node) in &item.nodes {
            let is_new = id.starts_with('~');
            // A node that is gone is not brought back.
            if is_new || snapshot.nodes.contains_key(id) {
                let node = Locked { record: Arc::new(node.clone()), lock: Lock::Other };
                snapshot.nodes.insert(id.clone(), node);
            }
        }
    }
    snapshot
}

/// Marks a record that an action works on, so that nothing is decided about it.
fn set_busy<T>(record: Option<&mut Locked<T>>) {
    if let Some(record) = record {
        record.lock = Lock::Other;
    }
}

fn locked<T>(stored: &Stored<T>) -> Locked<T> {
    Locked { record: Arc::clone(&stored.record), lock: stored.lock }
}

/// Pools that the store has announced, with the ids that it gave them.
fn served(records: &Records, around: &Surroundings<'_>) -> Vec<engine::Pool> {
    let pools = pools(around.config, around.usable).into_iter();
    let named = pools.filter_map(|mut pool| {
        pool.id.clone_from(records.ours.get(&(pool.provider.clone(), pool.name.clone()))?);
        let sizes = around.sizes.get(&pool.provider);
        for (label, resources) in &mut pool.labels {
            if let Some(size) = sizes.and_then(|sizes| sizes.get(&(pool.name.clone(), label.clone()))) {
                resources.clone_from(size);
            }
        }
        Some(pool)
    });
    named.collect()
}

/// Labels whose disk image has no upload to boot from. A simulated cloud needs none.
fn without_image(pools: &[engine::Pool], around: &Surroundings<'_>) -> BTreeMap<(String, String), String> {
    let Some(uploads) = around.uploads else { return BTreeMap::new() };
    let mut without = BTreeMap::new();
    for provider in around.config.providers.iter().filter(|provider| provider.driver == Driver::OpenStack) {
        for pool in pools.iter().filter(|pool| pool.provider == provider.name) {
            let labels = provider.pools.iter().filter(|it| it.name == pool.name).flat_map(|it| &it.labels);
            for (name, label) in labels {
                let LabelDetails::OpenStack(details) = &label.details else { continue };
                let Some(image) = &details.diskimage else { continue };
                if !uploads.contains_key(&(image.clone(), provider.name.clone())) {
                    without.insert((pool.id.clone(), name.clone()), image.clone());
                }
            }
        }
    }
    without
}

/// The lower of what the configuration and the provider say.
fn provider_limits(around: &Surroundings<'_>) -> BTreeMap<String, Resources> {
    let providers = around.config.providers.iter().filter(|provider| provider.driver != Driver::Static);
    let limits = providers.map(|provider| {
        let mut limits = provider.limits.clone();
        for (resource, limit) in around.provider_limits.get(&provider.name).into_iter().flatten() {
            let lower = limits.get(resource).map_or(*limit, |own| *own.min(limit));
            limits.insert(resource.clone(), lower);
        }
        (provider.name.clone(), limits)
    });
    limits.collect()
}

/// When a node's age changes what is decided, in seconds since 1970.
pub(super) fn next_deadline(snapshot: &Snapshot) -> Option<f64> {
    let ages = snapshot.nodes.values().filter_map(|node| {
        let record = &node.record;
        let limit = match record.state {
            NodeState::Ready if record.allocated_to.is_none() => {
                let limits = record.labels.iter().filter_map(|label| snapshot.labels.get(label));
                limits.map(|label| label.max_ready_age_s).filter(|age| *age > 0).min()
            }
            NodeState::Hold => {
                let own = record.hold_expiration.and_then(|age| u64::try_from(age).ok()).filter(|age| *age > 0);
                own.into_iter().chain(snapshot.max_hold_age_s).min()
            }
            _ => None,
        };
        Some(record.state_time + limit? as f64)
    });
    ages.filter(|deadline| *deadline > snapshot.now).min_by(f64::total_cmp)
}
