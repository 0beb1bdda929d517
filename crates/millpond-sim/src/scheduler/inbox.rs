//! What changed since the scheduler last looked.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::meta::Key;

/// Names of things that changed; what they are now is read from the mirrors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Pods.
    pub pods: BTreeSet<Key>,
    /// Nodes.
    pub nodes: BTreeSet<String>,
    /// Namespaces.
    pub namespaces: BTreeSet<String>,
    /// Whether claims, volumes or their classes changed.
    pub volumes: bool,
}

/// Collects news for the scheduler.
#[derive(Default)]
pub struct Inbox {
    news: Mutex<News>,
    arrived: Notify,
}

impl Inbox {
    /// An inbox that hears of everything the rules look at.
    pub fn listening(cluster: &Cluster) -> Arc<Self> {
        let inbox = Arc::new(Self::default());
        let own = Arc::clone(&inbox);
        cluster.pods.on_change(move |old, new| {
            if let Some(pod) = new.or(old) {
                own.put(|news| news.pods.insert(Key::of(&**pod)));
            }
        });
        let own = Arc::clone(&inbox);
        cluster.nodes.on_change(move |old, new| {
            if let Some(node) = new.or(old) {
                own.put(|news| news.nodes.insert(Key::of(&**node).name));
            }
        });
        let own = Arc::clone(&inbox);
        cluster.namespaces.on_change(move |old, new| {
            if let Some(namespace) = new.or(old) {
                own.put(|news| news.namespaces.insert(Key::of(&**namespace).name));
            }
        });
        let own = Arc::clone(&inbox);
        cluster.claims.on_change(move |_, _| own.volumes_changed());
        let own = Arc::clone(&inbox);
        cluster.volumes.on_change(move |_, _| own.volumes_changed());
        let own = Arc::clone(&inbox);
        cluster.storage_classes.on_change(move |_, _| own.volumes_changed());
        inbox
    }

    fn volumes_changed(&self) {
        self.put(|news| !std::mem::replace(&mut news.volumes, true));
    }

    fn put(&self, change: impl FnOnce(&mut News) -> bool) {
        if change(&mut self.news.lock()) {
            self.arrived.notify_one();
        }
    }

    /// Takes what has arrived.
    pub fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock())
    }

    /// Waits for more.
    pub async fn wait(&self) {
        self.arrived.notified().await;
    }
}
