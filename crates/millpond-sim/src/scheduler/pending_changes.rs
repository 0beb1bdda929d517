//! Changed objects that the scheduler has not processed yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::meta::Key;

/// Names of changed objects; their current state is read from the mirrors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangedObjects {
    /// Pods.
    pub pods: BTreeSet<Key>,
    /// Nodes.
    pub nodes: BTreeSet<String>,
    /// Namespaces.
    pub namespaces: BTreeSet<String>,
    /// Whether claims, volumes or their classes changed.
    pub volumes: bool,
}

/// Collects changes for the scheduler.
#[derive(Default)]
pub struct PendingChanges {
    changed: Mutex<ChangedObjects>,
    arrived: Notify,
}

impl PendingChanges {
    /// Listens to all kinds that scheduling depends on.
    pub fn listening(cluster: &Cluster) -> Arc<Self> {
        let pending_changes = Arc::new(Self::default());
        let own = Arc::clone(&pending_changes);
        cluster.pods.on_change(move |old, new| {
            if let Some(pod) = new.or(old) {
                own.put(|changed| changed.pods.insert(Key::of(&**pod)));
            }
        });
        let own = Arc::clone(&pending_changes);
        cluster.nodes.on_change(move |old, new| {
            if let Some(node) = new.or(old) {
                own.put(|changed| changed.nodes.insert(Key::of(&**node).name));
            }
        });
        let own = Arc::clone(&pending_changes);
        cluster.namespaces.on_change(move |old, new| {
            if let Some(namespace) = new.or(old) {
                own.put(|changed| changed.namespaces.insert(Key::of(&**namespace).name));
            }
        });
        let own = Arc::clone(&pending_changes);
        cluster.claims.on_change(move |_, _| own.volumes_changed());
        let own = Arc::clone(&pending_changes);
        cluster.volumes.on_change(move |_, _| own.volumes_changed());
        let own = Arc::clone(&pending_changes);
        cluster.storage_classes.on_change(move |_, _| own.volumes_changed());
        pending_changes
    }

    fn volumes_changed(&self) {
        self.put(|changed| !std::mem::replace(&mut changed.volumes, true));
    }

    fn put(&self, change: impl FnOnce(&mut ChangedObjects) -> bool) {
        if change(&mut self.changed.lock()) {
            self.arrived.notify_one();
        }
    }

    /// Takes what has arrived.
    pub fn take(&self) -> ChangedObjects {
        std::mem::take(&mut *self.changed.lock())
    }

    /// Waits for more.
    pub async fn wait(&self) {
        self.arrived.notified().await;
    }
}
