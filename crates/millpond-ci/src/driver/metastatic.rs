//! Slots of larger nodes: a backing node is requested by its label like any other, held, and shared by several nodes.
//!
//! Nothing is remembered beyond records, as Nodepool has them: a backing node's `user_data` names its owner, label and
//! slots, its lock outlives the launcher; a node's `driver_data` names its backing node and slot. Only slots that were
//! given out a moment ago, and when a backing node was used last, are in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Driver, DriverError, Instance, Launch, Launched};
use crate::config::{LabelDetails, MetastaticLabel, Provider, Resources};
use crate::launcher::{Backend, BackendError, Records, Write};
use crate::model::{Json, Node, NodeRequest, NodeState, RequestState};

/// The driver of one provider.
pub struct Metastatic {
    backend: Arc<dyn Backend>,
    provider: String,
    /// How backing nodes and their requests name their owner.
    owner: String,
    labels: BTreeMap<String, MetastaticLabel>,
    /// By label: a lock that allows one search for a slot at a time.
    turns: BTreeMap<String, tokio::sync::Mutex<()>>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// The slot of a node that has no record of it yet.
    given: BTreeMap<String, Slot>,
    /// The request for a backing node that a label waits for.
    requests: BTreeMap<String, String>,
    /// When a slot of a backing node was in use last.
    used: BTreeMap<String, Instant>,
}

/// A slot of a backing node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    backing: String,
    index: u32,
}

/// `user_data` of a backing node.
#[derive(Debug, Serialize, Deserialize)]
struct Owned {
    owner: String,
    label: String,
    slots: u32,
    #[serde(default)]
    failed: bool,
    #[serde(default)]
    launched: f64,
}

/// `driver_data` of a node.
#[derive(Debug, Serialize, Deserialize)]
struct Backed {
    backing_node: Option<String>,
    slot: Option<u32>,
    node: String,
}

impl Metastatic {
    /// The driver of a provider, whose backing nodes are requested from this store.
    pub fn new(provider: &Provider, backend: Arc<dyn Backend>) -> Self {
        let labels = provider.pools.iter().flat_map(|pool| &pool.labels);
        let labels = labels.filter_map(|(name, label)| match &label.details {
            LabelDetails::Metastatic(label) => Some((name.clone(), label.clone())),
            _ => None,
        });
        let labels: BTreeMap<_, _> = labels.collect();
        Self {
            backend,
            provider: provider.name.clone(),
            owner: format!("NodePool:metastatic:{}", provider.name),
            turns: labels.keys().map(|label| (label.clone(), tokio::sync::Mutex::default())).collect(),
            labels,
            memory: Mutex::default(),
        }
    }

    async fn find(&self, launch: &Launch) -> Result<Launched, DriverError> {
        let unknown = || DriverError::Permanent("the label is none of this provider".to_owned());
        let (label, turn) = (self.labels.get(&launch.label), self.turns.get(&launch.label));
        let (label, turn) = label.zip(turn).ok_or_else(unknown)?;
        let _turn = turn.lock().await;
        loop {
            let records = self.backend.records();
            if let Some(slot) = self.slot(&launch.node_id, label, &records) {
                let backing = Arc::clone(&records.nodes[&slot.backing].record);
                self.memory.lock().given.insert(launch.node_id.clone(), slot.clone());
                return Ok(facts(&launch.node_id, &backing, &slot));
            }
            let node = self.request(label).await?;
            self.take(label, &node).await?;
        }
    }

    /// A free slot of a backing node with this label, or the one that the node has already.
    fn slot(&self, node_id: &str, label: &MetastaticLabel, records: &Records) -> Option<Slot> {
        let memory = self.memory.lock();
        if let Some(slot) = memory.given.get(node_id) {
            return Some(slot.clone()).filter(|slot| records.nodes.contains_key(&slot.backing));
        }
        let taken: BTreeSet<Slot> =
            self.taken(records).map(|(_, slot)| slot).chain(memory.given.values().cloned()).collect();
        let now = unix_now();
        let usable = self.owned(records).filter(|(_, node, owned)| {
            let is_young = label.max_age_s.is_none_or(|age| now - owned.launched <= age as f64);
            owned.label == label.name && !owned.failed && is_young && node.state == NodeState::InUse
        });
        let mut slots =
            usable.flat_map(|(id, _, owned)| (0..owned.slots).map(move |index| Slot { backing: id.to_owned(), index }));
        slots.find(|slot| !taken.contains(slot))
    }

    /// Backing nodes of this provider.
    fn owned<'r>(&'r self, records: &'r Records) -> impl Iterator<Item = (&'r str, &'r Node, Owned)> {
        records.nodes.iter().filter_map(|(id, stored)| {
            let owned = owned(&stored.record).filter(|owned| owned.owner == self.owner)?;
            Some((id.as_str(), &*stored.record, owned))
        })
    }

    /// Nodes of this provider with their slots.
    fn taken<'r>(&'r self, records: &'r Records) -> impl Iterator<Item = (&'r str, Slot)> {
        let ours = records.nodes.iter().filter(|(_, node)| node.record.provider.as_ref() == Some(&self.provider));
        ours.filter_map(|(id, node)| {
            let data: Backed = serde_json::from_str(node.record.driver_data.as_ref()?.text()).ok()?;
            Some((id.as_str(), Slot { backing: data.backing_node?, index: data.slot? }))
        })
    }

    /// Requests a backing node and waits for it; gives its id.
    async fn request(&self, label: &MetastaticLabel) -> Result<String, DriverError> {
        let mut changes = self.backend.changes();
        loop {
            changes.borrow_and_update();
            let known = self.memory.lock().requests.get(&label.name).cloned();
            let Some(id) = known else {
                let mut request = NodeRequest::new(vec![label.backing_label.clone()], unix_now());
                request.requestor = Some(self.owner.clone());
                let id = self.backend.submit(request).await.map_err(|error| failed(&error))?;
                self.memory.lock().requests.insert(label.name.clone(), id);
                continue;
            };
            let records = self.backend.records();
            let request = records.requests.get(&id).map(|request| Arc::clone(&request.record));
            match request.as_ref().map(|request| request.state) {
                Some(RequestState::Fulfilled) => {
                    let node = request.and_then(|request| request.nodes.first().cloned());
                    return node.ok_or_else(|| DriverError::Transient("the backing request has no node".to_owned()));
                }
                Some(RequestState::Failed) => {
                    self.forget(label).await?;
                    let label = &label.backing_label;
                    return Err(DriverError::Transient(format!("there is no backing node `{label}`")));
                }
                // The request ended with a session, or was deleted.
                None if records.is_complete => {
                    self.memory.lock().requests.remove(&label.name);
                    continue;
                }
                _ => {}
            }
            if changes.changed().await.is_err() {
                return Err(DriverError::Transient("the store has ended".to_owned()));
            }
        }
    }

    /// Holds the node of a fulfilled request, as Zuul does, and deletes the request.
    async fn take(&self, label: &MetastaticLabel, node: &str) -> Result<(), DriverError> {
        if !self.backend.own(node, &self.owner).await.map_err(|error| failed(&error))? {
            self.forget(label).await?;
            return Err(DriverError::Transient(format!("the backing node {node} is locked")));
        }
        let Some(stored) = self.backend.node(node) else {
            self.forget(label).await?;
            return Err(DriverError::Transient(format!("the backing node {node} is gone")));
        };
        let mut record = Node::clone(&stored.record);
        record.set_state(NodeState::InUse, unix_now());
        let owned = Owned {
            owner: self.owner.clone(),
            label: label.name.clone(),
            slots: label.max_parallel_jobs,
            failed: false,
            launched: unix_now(),
        };
        // A text with JSON in it, as Nodepool writes it.
        record.user_data = Some(Json::of(&Json::of(&owned).text()));
        let write = Write::Node { id: node.to_owned(), revision: stored.revision, record, unlock: false };
        self.backend.commit(vec![write]).await.map_err(|error| failed(&error))?;
        self.memory.lock().used.insert(node.to_owned(), Instant::now());
        self.forget(label).await
    }

    async fn forget(&self, label: &MetastaticLabel) -> Result<(), DriverError> {
        let request = self.memory.lock().requests.remove(&label.name);
        match request {
            Some(id) => self.backend.withdraw(&id).await.map_err(|error| failed(&error)),
            None => Ok(()),
        }
    }

    /// Gives back backing nodes that were empty for long enough.
    async fn release_idle(&self) -> Result<(), DriverError> {
        let records = self.backend.records();
        if !records.is_complete {
            return Ok(());
        }
        let idle: Vec<String> = {
            let mut memory = self.memory.lock();
            let busy: BTreeSet<String> = self.taken(&records).map(|(_, slot)| slot.backing).collect();
            let given: BTreeSet<String> = memory.given.values().map(|slot| slot.backing.clone()).collect();
            let empty = self
                .owned(&records)
                .filter(|(id, node, _)| node.state == NodeState::InUse && !busy.contains(*id) && !given.contains(*id));
            let empty: Vec<_> = empty.map(|(id, _, owned)| (id.to_owned(), owned)).collect();
            let idle = empty.into_iter().filter(|(id, owned)| {
                let used = *memory.used.entry(id.clone()).or_insert_with(Instant::now);
                self.is_over(owned, used.elapsed())
            });
            idle.map(|(id, _)| id).collect()
        };
        for id in idle {
            let Some(stored) = self.backend.node(&id) else { continue };
            tracing::info!(node = id, owner = self.owner, "the backing node is given back");
            let mut record = Node::clone(&stored.record);
            record.set_state(NodeState::Used, unix_now());
            let write = Write::Node { id: id.clone(), revision: stored.revision, record, unlock: false };
            self.backend.commit(vec![write]).await.map_err(|error| failed(&error))?;
            self.backend.disown(&id, &self.owner).await.map_err(|error| failed(&error))?;
            self.memory.lock().used.remove(&id);
        }
        Ok(())
    }

    /// Whether an empty backing node goes.
    fn is_over(&self, owned: &Owned, idle: Duration) -> bool {
        let age_s = unix_now() - owned.launched;
        let Some(label) = self.labels.get(&owned.label).filter(|_| !owned.failed) else { return true };
        if label.max_age_s.is_some_and(|limit| age_s > limit as f64) {
            return true;
        }
        idle > Duration::from_secs(label.grace_time_s) && age_s > label.min_retention_time_s as f64
    }
}

/// `user_data` is a text with JSON in it.
fn owned(node: &Node) -> Option<Owned> {
    let text: String = serde_json::from_str(node.user_data.as_ref()?.text()).ok()?;
    serde_json::from_str(&text).ok()
}

fn failed(error: &BackendError) -> DriverError {
    DriverError::Transient(error.to_string())
}

/// A node is reached like its backing node.
fn facts(node_id: &str, backing: &Node, slot: &Slot) -> Launched {
    let data = Backed { backing_node: Some(slot.backing.clone()), slot: Some(slot.index), node: node_id.to_owned() };
    Launched {
        external_id: Some(node_id.to_owned()),
        cloud: backing.cloud.clone(),
        az: backing.az.clone(),
        region: backing.region.clone(),
        host_id: backing.host_id.clone(),
        hostname: backing.hostname.clone(),
        interface_ip: backing.interface_ip.clone(),
        public_ipv4: backing.public_ipv4.clone(),
        private_ipv4: backing.private_ipv4.clone(),
        public_ipv6: backing.public_ipv6.clone(),
        connection_port: Some(backing.connection_port.clone()),
        connection_type: backing.connection_type.clone(),
        username: backing.username.clone(),
        python_path: backing.python_path.clone(),
        shell_type: backing.shell_type.clone(),
        host_keys: backing.host_keys.clone(),
        driver_data: Some(Json::of(&data)),
        resources: Some(Resources::from([(crate::config::INSTANCES.to_owned(), 1)])),
        ..Launched::default()
    }
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Driver for Metastatic {
    fn launch<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<Launched, DriverError>> {
        Box::pin(self.find(launch))
    }

    fn delete<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<(), DriverError>> {
        let records = self.backend.records();
        let slot = self.taken(&records).find(|(id, _)| *id == instance.node_id).map(|(_, slot)| slot);
        let mut memory = self.memory.lock();
        let slot = memory.given.remove(&instance.node_id).or(slot);
        if let Some(slot) = slot {
            memory.used.insert(slot.backing, Instant::now());
        }
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asked from time to time, so backing nodes are looked after here. Slots need no listing.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, DriverError>> {
        Box::pin(async move {
            self.release_idle().await?;
            Ok(Vec::new())
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::config::{self, File};
    use crate::engine::Lock;
    use crate::launcher::{Key, PoolSpec, Stored};

    const CONFIG: &str = "
providers:
  - name: slots
    driver: metastatic
    pools:
      - name: main
        labels:
          - {name: slot, backing-label: large, max-parallel-jobs: 2, grace-time: 10, min-retention-time: 50, max-age: 1000}
";

    /// Records that do not change, and what was written.
    #[derive(Default)]
    struct Fixed {
        records: Records,
        written: Mutex<Vec<(String, NodeState)>>,
        disowned: Mutex<Vec<String>>,
    }

    impl Backend for Fixed {
        fn records(&self) -> Records {
            self.records.clone()
        }
        fn changes(&self) -> watch::Receiver<u64> {
            watch::Sender::new(0).subscribe()
        }
        fn announce(&self, _: Vec<PoolSpec>) {}
        fn lock<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<bool, BackendError>> {
            Box::pin(std::future::ready(Ok(true)))
        }
        fn unlock<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Result<(), BackendError>> {
            Box::pin(std::future::ready(Ok(())))
        }
        fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<String>, BackendError>> {
            for write in writes {
                if let Write::Node { id, record, .. } = write {
                    self.written.lock().push((id, record.state));
                }
            }
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
        fn disown<'a>(&'a self, node: &'a str, _: &'a str) -> BoxFuture<'a, Result<(), BackendError>> {
            self.disowned.lock().push(node.to_owned());
            Box::pin(std::future::ready(Ok(())))
        }
        fn is_connected(&self) -> bool {
            true
        }
    }

    fn provider() -> Provider {
        let read = config::read(File { name: "nodepool.yaml", text: CONFIG }, None, &|_| None);
        read.valid().unwrap().providers.remove(0)
    }

    fn driver(fixed: &Arc<Fixed>) -> Metastatic {
        Metastatic::new(&provider(), Arc::clone(fixed) as Arc<dyn Backend>)
    }

    fn label() -> MetastaticLabel {
        let LabelDetails::Metastatic(label) = &provider().pools[0].labels["slot"].details else { panic!("slots") };
        label.clone()
    }

    /// A backing node that was launched so many seconds ago.
    fn backing(records: &mut Records, id: &str, owner: &str, age_s: f64) {
        let mut node = Node::new(NodeState::InUse, 0.0);
        let (owner, label) = (format!("NodePool:metastatic:{owner}"), "slot".to_owned());
        let owned = Owned { owner, label, slots: 2, failed: false, launched: unix_now() - age_s };
        node.user_data = Some(Json::of(&Json::of(&owned).text()));
        records.nodes.insert(id.to_owned(), Stored { record: node.into(), revision: 1, lock: Lock::Other });
        records.is_complete = true;
    }

    fn taken(records: &mut Records, id: &str, backing: &str, slot: u32) {
        let mut node = Node::new(NodeState::Ready, 0.0);
        node.provider = Some("slots".to_owned());
        let data = Backed { backing_node: Some(backing.to_owned()), slot: Some(slot), node: id.to_owned() };
        node.driver_data = Some(Json::of(&data));
        records.nodes.insert(id.to_owned(), Stored { record: node.into(), revision: 1, lock: Lock::Free });
    }

    #[test]
    fn slots_are_those_of_young_nodes_of_this_provider() {
        let driver = driver(&Arc::default());
        let free =
            |records: &Records| driver.slot("0000000009", &label(), records).map(|slot| (slot.backing, slot.index));
        let mut records = Records::default();
        backing(&mut records, "0000000001", "others", 0.0);
        backing(&mut records, "0000000002", "slots", 2000.0);
        assert_eq!(free(&records), None, "of another provider, or too old");
        backing(&mut records, "0000000003", "slots", 100.0);
        assert_eq!(free(&records), Some(("0000000003".to_owned(), 0)));
        taken(&mut records, "0000000004", "0000000003", 0);
        assert_eq!(free(&records), Some(("0000000003".to_owned(), 1)));
        taken(&mut records, "0000000005", "0000000003", 1);
        assert_eq!(free(&records), None);
    }

    #[tokio::test(start_paused = true)]
    async fn empty_nodes_go_after_the_grace_time_and_old_ones_at_once() {
        let mut records = Records::default();
        backing(&mut records, "0000000001", "slots", 100.0);
        backing(&mut records, "0000000002", "slots", 20.0);
        backing(&mut records, "0000000003", "slots", 2000.0);
        backing(&mut records, "0000000004", "others", 100.0);
        backing(&mut records, "0000000005", "slots", 100.0);
        taken(&mut records, "0000000006", "0000000005", 1);
        let fixed = Arc::new(Fixed { records, ..Fixed::default() });
        let driver = driver(&fixed);
        driver.list().await.unwrap();
        // Too old for new slots, and empty.
        let written = || std::mem::take(&mut *fixed.written.lock());
        assert_eq!(written(), [("0000000003".to_owned(), NodeState::Used)]);
        tokio::time::advance(Duration::from_secs(11)).await;
        driver.list().await.unwrap();
        // The second one is kept for `min-retention-time`, the fifth one is in use.
        let ids: Vec<String> = written().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["0000000001", "0000000003"]);
        assert_eq!(*fixed.disowned.lock(), ["0000000003", "0000000001", "0000000003"]);
    }
}
