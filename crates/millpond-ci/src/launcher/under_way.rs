//! The work that this launcher has under way: records that actions work on, and nodes that they are about to create.
//! Decisions leave the former alone, and count the latter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::backend::Key;
use crate::model::Node;

/// All actions under way.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    work: Mutex<BTreeMap<u64, Item>>,
    next: Mutex<u64>,
    /// Work has ended.
    ended: Notify,
}

/// One action.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Records that it works on.
    pub(super) keys: BTreeSet<Key>,
    /// Nodes as they will be: new ones, and changes of existing ones.
    pub(super) nodes: BTreeMap<String, Node>,
    /// Whether it creates nodes whose ids are not known here yet.
    pub(super) is_creating: bool,
    /// Ends it early.
    pub(super) cancelled: CancellationToken,
    /// The node whose lock it depends on.
    pub(super) depends_on: Option<Key>,
}

/// A place in the list; dropping it ends the work.
#[derive(Debug)]
pub(super) struct Work {
    id: u64,
    shared: Arc<Shared>,
    pub(super) cancelled: CancellationToken,
}

impl UnderWay {
    /// Begins work on these records.
    pub(super) fn begin(&self, keys: BTreeSet<Key>, nodes: BTreeMap<String, Node>) -> Work {
        let id = {
            let mut next = self.shared.next.lock();
            *next += 1;
            *next
        };
        // Keys of nodes that are to be created are not known to the store, and sort behind all that are.
        let named = |key: String| match unborn(&key) {
            Some(index) => format!("~{id}-{index}"),
            None => key,
        };
        let nodes = nodes.into_iter().map(|(key, node)| (named(key), node));
        let cancelled = CancellationToken::new();
        let item =
            Item { keys, nodes: nodes.collect(), is_creating: false, cancelled: cancelled.clone(), depends_on: None };
        self.shared.work.lock().insert(id, item);
        Work { id, shared: Arc::clone(&self.shared), cancelled }
    }

    /// All of it.
    pub(super) fn items(&self) -> Vec<Item> {
        self.shared.work.lock().values().cloned().collect()
    }

    /// How many actions are under way.
    pub(super) fn len(&self) -> usize {
        self.shared.work.lock().len()
    }

    /// Waits until work ends.
    pub(super) async fn ended(&self) {
        self.shared.ended.notified().await;
    }
}

/// What a node that is to be created is called in [`UnderWay::begin`].
pub(super) fn new_node(index: usize) -> String {
    format!("~{index:04}")
}

fn unborn(key: &str) -> Option<&str> {
    key.strip_prefix('~')
}

impl Work {
    /// Says that nodes are created whose ids are not known yet.
    pub(super) fn creates(&self) {
        self.edit(|item| item.is_creating = true);
    }

    /// The nodes are there under these ids: they are counted as the store has them.
    pub(super) fn created(&self, ids: &[String]) {
        self.edit(|item| {
            item.is_creating = false;
            item.nodes.retain(|key, _| unborn(key).is_none());
            item.keys.extend(ids.iter().cloned().map(Key::Node));
        });
    }

    /// The work ends early when the lock on this record is lost.
    pub(super) fn depends_on(&self, key: Key) {
        self.edit(|item| item.depends_on = Some(key));
    }

    fn edit(&self, change: impl FnOnce(&mut Item)) {
        if let Some(item) = self.shared.work.lock().get_mut(&self.id) {
            change(item);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.shared.work.lock().remove(&self.id);
        self.shared.ended.notify_one();
    }
}
