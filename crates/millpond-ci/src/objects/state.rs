//! The records behind the objects, as the engine reads them. Synchronous: changes in, records out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use millpond_runtime::meta::version;

use super::kinds::{CINode, NodeRequest};
use super::record::{self, request_id};
use crate::engine::Lock;
use crate::launcher::{Key, Records, Revision, Stored};
use crate::model::{self, Node, NodeState, RequestState};

/// What the objects are, with the locks of this process.
#[derive(Debug, Default)]
pub(super) struct State {
    requests: BTreeMap<String, Entry<NodeRequest, model::NodeRequest>>,
    nodes: BTreeMap<String, Entry<CINode, Node>>,
    /// The id of each request by its uid.
    ids: HashMap<String, String>,
    /// Nodes by the uid of their request.
    by_request: HashMap<String, BTreeSet<String>>,
    locks: BTreeSet<Key>,
}

/// An object with its record.
#[derive(Debug)]
struct Entry<O, R> {
    object: Arc<O>,
    record: Arc<R>,
    /// The version at which the record became what it is: reasons that are written later do not count.
    revision: Revision,
}

/// How others name a request.
pub fn request_name(object: &NodeRequest) -> String {
    format!("{}/{}", object.metadata.namespace.as_deref().unwrap_or_default(), object.name())
}

impl State {
    /// A request came, changed or went.
    pub(super) fn request_changed(&mut self, before: Option<&Arc<NodeRequest>>, after: Option<&Arc<NodeRequest>>) {
        // One that is being deleted is given up already.
        let after = after.filter(|object| object.metadata.deletion_timestamp.is_none());
        if let Some(before) = before {
            let id = request_id(before);
            if after.is_none_or(|after| request_id(after) != id) {
                self.requests.remove(&id);
                self.locks.remove(&Key::Request(id.clone()));
                self.ids.remove(record::uid_of(&id));
                self.refresh_nodes(record::uid_of(&id));
            }
        }
        let Some(object) = after else { return };
        let id = request_id(object);
        let record = record::request_of(object);
        let uid = record::uid_of(&id).to_owned();
        let (old_state, new_state) = (self.requests.get(&id).map(|old| old.record.state), record.state);
        keep(&mut self.requests, &id, object, record, version(&object.metadata));
        if self.ids.insert(uid.clone(), id).is_none() || old_state != Some(new_state) {
            self.refresh_nodes(&uid);
        }
    }

    /// A node came, changed or went.
    pub(super) fn node_changed(&mut self, before: Option<&Arc<CINode>>, after: Option<&Arc<CINode>>) {
        let uid = |object: &Arc<CINode>| object.status.request.as_ref().map(|request| request.uid.clone());
        if let Some((before, uid)) = before.and_then(|before| Some((before, uid(before)?)))
            && let Some(nodes) = self.by_request.get_mut(&uid)
        {
            nodes.remove(before.name());
            if nodes.is_empty() {
                self.by_request.remove(&uid);
            }
        }
        let Some(object) = after else {
            if let Some(before) = before {
                self.nodes.remove(before.name());
                self.locks.remove(&Key::Node(before.name().to_owned()));
            }
            return;
        };
        if let Some(uid) = uid(object) {
            self.by_request.entry(uid).or_default().insert(object.name().to_owned());
        }
        let record = self.record_of(object);
        keep(&mut self.nodes, object.name(), object, record, version(&object.metadata));
    }

    fn refresh_nodes(&mut self, uid: &str) {
        for name in self.by_request.get(uid).cloned().unwrap_or_default() {
            let Some(object) = self.nodes.get(&name).map(|entry| Arc::clone(&entry.object)) else { continue };
            let record = Arc::new(self.record_of(&object));
            if let Some(entry) = self.nodes.get_mut(&name) {
                entry.record = record;
            }
        }
    }

    /// A node in use whose request no longer holds it was used: it is never handed out again.
    fn record_of(&self, object: &CINode) -> Node {
        let request = object.status.request.as_ref();
        let id = request.and_then(|request| self.ids.get(&request.uid));
        let allocated_to = request.map(|request| id.cloned().unwrap_or_else(|| request.uid.clone()));
        let mut node = record::node_of(object, allocated_to);
        let holds = id
            .and_then(|id| self.requests.get(id))
            .is_some_and(|request| matches!(request.record.state, RequestState::Pending | RequestState::Fulfilled));
        if node.state == NodeState::InUse && !holds {
            node.state = NodeState::Used;
        }
        node
    }

    /// What the engine decides on, but for pools.
    pub(super) fn records(&self) -> Records {
        let requests = self.requests.iter().map(|(id, entry)| (id.clone(), self.as_request(id, entry)));
        let nodes = self.nodes.iter().map(|(id, entry)| (id.clone(), self.as_node(id, entry)));
        Records { requests: requests.collect(), nodes: nodes.collect(), ..Records::default() }
    }

    /// One request of [`Self::records`].
    pub(super) fn stored_request(&self, id: &str) -> Option<Stored<model::NodeRequest>> {
        self.requests.get(id).map(|entry| self.as_request(id, entry))
    }

    /// One node of [`Self::records`].
    pub(super) fn stored_node(&self, id: &str) -> Option<Stored<Node>> {
        self.nodes.get(id).map(|entry| self.as_node(id, entry))
    }

    fn as_request(&self, id: &str, entry: &Entry<NodeRequest, model::NodeRequest>) -> Stored<model::NodeRequest> {
        let lock = self.holder(&Key::Request(id.to_owned()), false);
        Stored { record: Arc::clone(&entry.record), revision: entry.revision, lock }
    }

    fn as_node(&self, id: &str, entry: &Entry<CINode, Node>) -> Stored<Node> {
        let lock = self.holder(&Key::Node(id.to_owned()), entry.record.state == NodeState::InUse);
        Stored { record: Arc::clone(&entry.record), revision: entry.revision, lock }
    }

    fn holder(&self, key: &Key, other: bool) -> Lock {
        match (self.locks.contains(key), other) {
            (true, _) => Lock::Ours,
            (false, true) => Lock::Other,
            (false, false) => Lock::Free,
        }
    }

    /// Takes a lock unless the record is gone or a request holds the node.
    pub(super) fn lock(&mut self, key: &Key) -> bool {
        let is_free = match key {
            Key::Request(id) => self.requests.contains_key(id),
            Key::Node(id) => self.nodes.get(id).is_some_and(|node| node.record.state != NodeState::InUse),
        };
        is_free && self.locks.insert(key.clone())
    }

    pub(super) fn unlock(&mut self, key: &Key) {
        self.locks.remove(key);
    }

    /// A request with the version of its record.
    pub(super) fn request(&self, id: &str) -> Option<(Arc<NodeRequest>, Arc<model::NodeRequest>, Revision)> {
        let entry = self.requests.get(id)?;
        Some((Arc::clone(&entry.object), Arc::clone(&entry.record), entry.revision))
    }

    /// A node with the version of its record.
    pub(super) fn node(&self, id: &str) -> Option<(Arc<CINode>, Arc<Node>, Revision)> {
        let entry = self.nodes.get(id)?;
        Some((Arc::clone(&entry.object), Arc::clone(&entry.record), entry.revision))
    }

    /// Why a node for a request could not be launched.
    pub(super) fn failure(&self, request: &str) -> Option<String> {
        let nodes = self.by_request.get(record::uid_of(request))?;
        let failed = nodes.iter().filter_map(|id| self.nodes.get(id)).find(|it| it.record.state == NodeState::Failed);
        failed?.record.comment.clone()
    }

    /// Requests and nodes as they are listed.
    pub(super) fn objects(&self) -> (Vec<Arc<NodeRequest>>, Vec<Arc<CINode>>) {
        let requests = self.requests.values().map(|entry| Arc::clone(&entry.object)).collect();
        (requests, self.nodes.values().map(|entry| Arc::clone(&entry.object)).collect())
    }
}

fn keep<O, R: PartialEq>(
    entries: &mut BTreeMap<String, Entry<O, R>>,
    id: &str,
    object: &Arc<O>,
    record: R,
    version: u64,
) {
    let revision = match entries.get(id) {
        Some(old) if *old.record == record => old.revision,
        _ => version,
    };
    entries.insert(id.to_owned(), Entry { object: Arc::clone(object), record: Arc::new(record), revision });
}
