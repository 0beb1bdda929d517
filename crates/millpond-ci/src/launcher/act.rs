//! A function for each action of the engine. All compare revisions: an action that comes too late changes nothing, and
//! is decided again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::backend::{Backend, BackendError, Key, Records, Revision, Stored, Write};
use super::launch;
use super::run::{Context, Current, now};
use super::under_way::{Work, new_node};
use crate::config::{self, StaticHost};
use crate::driver::{Driver, DriverError, Instance, hosts};
use crate::engine::{Action, DeleteReason, Lock, Snapshot, Source, Verdict};
use crate::model::{Node, NodeRequest, NodeState, RequestState};

/// The pause before an action is decided again that another process was quicker with, or that the store refused: the
/// change that explains it may still be on its way.
const AGAIN: Duration = Duration::from_millis(20);
/// The same where the store refused.
const REFUSED: Duration = Duration::from_secs(5);

/// Between two attempts to delete an instance or to reach a host; doubles up to the longest.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// The most nodes of one transaction: ZooKeeper refuses more than 1 MiB.
const LIMIT_NODES_WRITTEN: usize = 200;

/// One decision.
pub(super) struct Round<'a> {
    pub(super) context: &'a Arc<Context>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) records: &'a Records,
    pub(super) current: Current,
}

/// One action, with what it needs after the round.
pub(super) struct Job {
    pub(super) context: Arc<Context>,
    pub(super) work: Work,
    pub(super) current: Current,
}

/// A pool with its provider.
#[derive(Clone)]
pub(super) struct LaunchTarget {
    pub(super) id: String,
    pub(super) provider: Arc<config::Provider>,
    pub(super) pool: Arc<config::Pool>,
}

/// A node of an assignment.
enum Part {
    Ready { id: String, revision: Revision, record: Box<Node>, host: Option<Box<StaticHost>> },
    New { record: Box<Node> },
}

impl Round<'_> {
    /// Begins an action.
    pub(super) fn start(&self, action: Action) {
        let started = match action {
            Action::Assign { request, pool, nodes } => self.assign(request, &pool, nodes),
            Action::Fulfil { request } => self.fulfil(request),
            Action::Decline { request, declined_by, fails, verdicts } => {
                self.decline(request, declined_by, fails, &verdicts)
            }
            Action::Release { request } => self.release(request),
            Action::Deallocate { node } => self.deallocate(node),
            Action::Delete { node, reason } => self.delete(node, reason),
            Action::Launch { pool, label } => self.launch(&pool, label),
            Action::Register { pool, host, slot } => self.register(&pool, host, slot),
        };
        // The records of a decision are those that it was made from.
        debug_assert!(started.is_some(), "an action names a record or a pool that is not there");
    }

    fn job(&self, keys: impl IntoIterator<Item = Key>, nodes: BTreeMap<String, Node>) -> Job {
        let work = self.context.under_way.begin(keys.into_iter().collect(), nodes);
        Job { context: Arc::clone(self.context), work, current: self.current.clone() }
    }

    fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.context.tasks.spawn(job);
    }

    fn place(&self, id: &str) -> Option<LaunchTarget> {
        let pool = self.snapshot.pools.iter().find(|pool| pool.id == id)?;
        let provider = self.current.config.providers.iter().find(|it| it.name == pool.provider)?;
        let config = provider.pools.iter().find(|it| it.name == pool.name)?;
        Some(LaunchTarget { id: id.to_owned(), provider: Arc::new(provider.clone()), pool: Arc::new(config.clone()) })
    }

    fn assign(&self, request: String, pool: &str, sources: Vec<Source>) -> Option<()> {
        let (stored, place) = (self.records.requests.get(&request)?.clone(), self.place(pool)?);
        let (mut keys, mut overlay) = (BTreeSet::from([Key::Request(request.clone())]), BTreeMap::new());
        let mut parts = Vec::new();
        for (index, source) in sources.into_iter().enumerate() {
            match source {
                Source::Ready(id) => {
                    let known = self.records.nodes.get(&id)?;
                    let mut record = Node::clone(&known.record);
                    allocate(&mut record, &request, &stored.record);
                    let host = host_of(&place.pool, &record).cloned().map(Box::new);
                    keys.insert(Key::Node(id.clone()));
                    overlay.insert(id.clone(), record.clone());
                    parts.push(Part::Ready { id, revision: known.revision, record: Box::new(record), host });
                }
                Source::Launch(label) => {
                    let mut record = self.new_record(&place, &label);
                    allocate(&mut record, &request, &stored.record);
                    overlay.insert(new_node(index), record.clone());
                    parts.push(Part::New { record: Box::new(record) });
                }
            }
        }
        let job = self.job(keys, overlay);
        let guard = self.tenant_guard(&stored.record);
        self.spawn(job.assign(request, stored, place, parts, guard));
        Some(())
    }

    /// What ties a write to what other launchers had given to the request's tenant when it was decided.
    fn tenant_guard(&self, request: &NodeRequest) -> Option<Write> {
        let tenant = request.tenant_name.as_ref()?;
        let is_limited = self.current.config.tenant_limits.contains_key(tenant);
        is_limited.then(|| Write::Tenants { seen: Arc::clone(&self.records.tenants_seen) })
    }

    /// The record of a node that is to be launched.
    fn new_record(&self, place: &LaunchTarget, label: &str) -> Node {
        let mut node = Node::new(NodeState::Init, now());
        node.provider = Some(place.provider.name.clone());
        node.pool = Some(place.pool.name.clone());
        node.labels = vec![label.to_owned()];
        node.launcher = Some(self.context.hostname.clone());
        node.attributes = place.pool.node_attributes.clone();
        // With the usage that the decision counted: providers know more than the configuration.
        let pool = self.snapshot.pools.iter().find(|pool| pool.id == place.id);
        node.resources = pool.and_then(|pool| pool.labels.get(label)).cloned();
        node
    }

    fn fulfil(&self, request: String) -> Option<()> {
        let stored = self.records.requests.get(&request)?.clone();
        let mut writes = Vec::new();
        let mut keys = BTreeSet::from([Key::Request(request.clone())]);
        for id in &stored.record.nodes {
            let node = self.records.nodes.get(id)?;
            keys.insert(Key::Node(id.clone()));
            writes.push(written(id, node.revision, Node::clone(&node.record)));
        }
        let mut record = NodeRequest::clone(&stored.record);
        record.set_state(RequestState::Fulfilled, now());
        tracing::info!(request, nodes = ?record.nodes, "the request is fulfilled");
        let job = self.job(keys, BTreeMap::new());
        self.spawn(async move {
            let context = Arc::clone(&job.context);
            if job.commit_with_request(writes, request, stored.revision, record).await {
                context.count_request("fulfilled");
            }
        });
        Some(())
    }

    fn decline(&self, request: String, declined_by: Vec<String>, fails: bool, verdicts: &[Verdict]) -> Option<()> {
        let stored = self.records.requests.get(&request)?.clone();
        let mut record = NodeRequest::clone(&stored.record);
        record.declined_by = declined_by;
        record.nodes.clear();
        record.set_state(if fails { RequestState::Failed } else { RequestState::Requested }, now());
        for Verdict { pool, reason } in verdicts {
            tracing::info!(request, pool, %reason, fails, "the pool declines the request");
        }
        self.give_back(request, stored, record, fails);
        Some(())
    }

    fn release(&self, request: String) -> Option<()> {
        let stored = self.records.requests.get(&request)?.clone();
        let mut record = NodeRequest::clone(&stored.record);
        record.nodes.clear();
        record.set_state(RequestState::Requested, now());
        tracing::info!(request, "the request is decided again");
        self.give_back(request, stored, record, false);
        Some(())
    }

    /// Writes a request that this launcher no longer works on, and frees its nodes.
    fn give_back(&self, id: String, stored: Stored<NodeRequest>, record: NodeRequest, fails: bool) {
        let mut keys = BTreeSet::from([Key::Request(id.clone())]);
        let mut writes = Vec::new();
        for node_id in &stored.record.nodes {
            let (Some(node), Some(seen)) = (self.records.nodes.get(node_id), self.snapshot.nodes.get(node_id)) else {
                continue;
            };
            // Nodes that are being launched become ready or fail in their own task.
            let is_idle = node.lock == Lock::Ours && seen.lock == Lock::Ours;
            if is_idle && node.record.allocated_to.as_ref() == Some(&id) {
                let mut free = Node::clone(&node.record);
                deallocate(&mut free);
                keys.insert(Key::Node(node_id.clone()));
                writes.push(written(node_id, node.revision, free));
            }
        }
        let needs_lock = stored.lock != Lock::Ours;
        let job = self.job(keys, BTreeMap::new());
        self.spawn(async move {
            let key = Key::Request(id.clone());
            if needs_lock && !job.lock(&[key]).await {
                return;
            }
            let context = Arc::clone(&job.context);
            if job.commit_with_request(writes, id, stored.revision, record).await && fails {
                context.count_request("failed");
            }
        });
    }

    fn deallocate(&self, id: String) -> Option<()> {
        let stored = self.records.nodes.get(&id)?.clone();
        let key = Key::Node(id.clone());
        let needs_lock = stored.lock != Lock::Ours;
        let mut record = Node::clone(&stored.record);
        deallocate(&mut record);
        tracing::info!(node = id, request = stored.record.allocated_to, "the node is for no request any more");
        let job = self.job([key.clone()], BTreeMap::new());
        self.spawn(async move {
            if !needs_lock || job.lock(std::slice::from_ref(&key)).await {
                job.commit_or_unlock(vec![written(&id, stored.revision, record)], &[key]).await;
            }
        });
        Some(())
    }

    fn delete(&self, id: String, reason: DeleteReason) -> Option<()> {
        let stored = self.records.nodes.get(&id)?.clone();
        tracing::info!(node = id, state = %stored.record.state, ?reason, "the node is deleted");
        let provider = stored.record.provider.as_ref()?;
        let driver = self.current.drivers.get(provider).and_then(|driver| driver.as_ref().ok()).cloned();
        let job = self.job([Key::Node(id.clone())], BTreeMap::new());
        self.spawn(job.delete(id, stored, driver));
        Some(())
    }

    fn launch(&self, pool: &str, label: String) -> Option<()> {
        let place = self.place(pool)?;
        let record = self.new_record(&place, &label);
        let job = self.job([], BTreeMap::from([(new_node(0), record.clone())]));
        self.spawn(job.keep_ready(place, record));
        Some(())
    }

    fn register(&self, pool: &str, host: usize, slot: u32) -> Option<()> {
        let place = self.place(pool)?;
        let host = place.pool.hosts.get(host)?.clone();
        let record = host_record(&place, &host, slot);
        let job = self.job([], BTreeMap::from([(new_node(0), record.clone())]));
        self.spawn(job.register(host, record));
        Some(())
    }
}

/// A write that gives the lock back.
fn written(id: &str, revision: Revision, record: Node) -> Write {
    Write::Node { id: id.to_owned(), revision, record, unlock: true }
}

fn allocate(node: &mut Node, id: &str, request: &NodeRequest) {
    node.allocated_to = Some(id.to_owned());
    node.requestor.clone_from(&request.requestor);
    node.tenant_name.clone_from(&request.tenant_name);
}

fn deallocate(node: &mut Node) {
    node.allocated_to = None;
    node.requestor = None;
    node.tenant_name = None;
}

/// The host of a static node.
fn host_of<'a>(pool: &'a config::Pool, node: &Node) -> Option<&'a StaticHost> {
    let is_same = |host: &&StaticHost| {
        node.hostname.as_ref() == Some(&host.name)
            && node.username.as_ref() == Some(&host.username)
            && node.connection_port.as_i64() == Some(i64::from(host.port()))
    };
    pool.hosts.iter().find(is_same)
}

fn host_record(place: &LaunchTarget, host: &StaticHost, slot: u32) -> Node {
    let mut node = Node::new(NodeState::Ready, now());
    node.provider = Some(place.provider.name.clone());
    node.pool = Some(place.pool.name.clone());
    node.labels.clone_from(&host.labels);
    node.launcher = Some("static driver".to_owned());
    node.external_id = Some(host.name.clone());
    node.hostname = Some(host.name.clone());
    node.interface_ip = Some(host.name.clone());
    node.username = Some(host.username.clone());
    node.set_port(crate::model::Json::of(&host.port()));
    node.connection_type = Some(host.connection_type.clone());
    node.python_path = Some(host.python_path.clone());
    node.shell_type.clone_from(&host.shell_type);
    node.attributes.clone_from(&place.pool.node_attributes);
    node.slot = Some(slot);
    node
}

impl Context {
    pub(super) fn count_request(&self, state: &'static str) {
        *self.counters.lock().requests.entry(state).or_default() += 1;
    }
}

impl Job {
    fn backend(&self) -> &dyn Backend {
        &*self.context.backend
    }

    /// A node as it is now; `None` once it is gone. Right after a new connection the store has to read first.
    pub(super) async fn current(&self, id: &str) -> Option<Stored<Node>> {
        let mut changes = self.backend().changes();
        loop {
            changes.borrow_and_update();
            if let Some(node) = self.backend().node(id) {
                return Some(node);
            }
            if self.backend().records().is_complete {
                return None;
            }
            changes.changed().await.ok()?;
        }
    }

    /// Takes all of these locks, or none.
    pub(super) async fn lock(&self, keys: &[Key]) -> bool {
        let taken = join_all(keys.iter().map(|key| self.backend().lock(key))).await;
        if taken.iter().all(|taken| matches!(taken, Ok(true))) {
            return true;
        }
        let held = keys.iter().zip(&taken).filter(|(_, taken)| matches!(taken, Ok(true)));
        self.unlock(held.map(|(key, _)| key)).await;
        for error in taken.into_iter().filter_map(Result::err) {
            report(&error).await;
        }
        tokio::time::sleep(AGAIN).await;
        false
    }

    pub(super) async fn unlock(&self, keys: impl IntoIterator<Item = &Key>) {
        // A lock that cannot be given back is lost with the connection.
        join_all(keys.into_iter().map(|key| self.backend().unlock(key))).await;
    }

    /// Writes; on failure gives these locks back.
    pub(super) async fn commit_or_unlock(&self, writes: Vec<Write>, locks: &[Key]) -> Option<Vec<String>> {
        match self.backend().commit(writes).await {
            Ok(ids) => Some(ids),
            Err(error) => {
                self.unlock(locks).await;
                report(&error).await;
                None
            }
        }
    }

    /// Writes nodes and, with the last of them, their request. All are unlocked, in any case.
    async fn commit_with_request(
        self,
        mut nodes: Vec<Write>,
        id: String,
        revision: Revision,
        record: NodeRequest,
    ) -> bool {
        let node_key = |write: &Write| match write {
            Write::Node { id, .. } => Some(Key::Node(id.clone())),
            _ => None,
        };
        let mut locks: Vec<Key> = nodes.iter().filter_map(node_key).collect();
        locks.push(Key::Request(id.clone()));
        while nodes.len() > LIMIT_NODES_WRITTEN {
            let rest = nodes.split_off(LIMIT_NODES_WRITTEN);
            if self.commit_or_unlock(std::mem::replace(&mut nodes, rest), &locks).await.is_none() {
                return false;
            }
        }
        nodes.push(Write::Request { id, revision, record, unlock: true });
        self.commit_or_unlock(nodes, &locks).await.is_some()
    }

    async fn assign(
        self,
        id: String,
        stored: Stored<NodeRequest>,
        place: LaunchTarget,
        parts: Vec<Part>,
        guard: Option<Write>,
    ) {
        let mut locks = vec![Key::Request(id.clone())];
        locks.extend(parts.iter().filter_map(|part| match part {
            Part::Ready { id, .. } => Some(Key::Node(id.clone())),
            Part::New { .. } => None,
        }));
        let (is_locked, dead) = futures::join!(self.lock(&locks), dead_hosts(&parts));
        if !is_locked {
            return;
        }
        if !dead.is_empty() {
            return self.drop_dead(dead, &parts, &locks).await;
        }
        if parts.iter().any(|part| matches!(part, Part::New { .. })) {
            return self.assign_launches(id, stored, place, (parts, guard), locks).await;
        }
        let (mut nodes, mut ids): (Vec<Write>, Vec<String>) = (guard.into_iter().collect(), Vec::new());
        for part in parts {
            if let Part::Ready { id, revision, record, .. } = part {
                nodes.push(written(&id, revision, *record));
                ids.push(id);
            }
        }
        let mut record = NodeRequest::clone(&stored.record);
        record.nodes = ids;
        record.set_state(RequestState::Fulfilled, now());
        tracing::info!(request = id, pool = place.id, nodes = ?record.nodes, "the request is fulfilled");
        let context = Arc::clone(&self.context);
        if self.commit_with_request(nodes, id, stored.revision, record).await {
            context.count_request("fulfilled");
        }
    }

    /// Hosts that do not answer leave the store; they are registered again once they do.
    async fn drop_dead(&self, dead: Vec<(usize, DriverError)>, parts: &[Part], locks: &[Key]) {
        let mut writes = Vec::new();
        for (index, error) in dead {
            let Part::Ready { id, revision, record, .. } = &parts[index] else { continue };
            tracing::warn!(node = id, host = record.hostname, %error, "the host does not answer");
            let mut record = Node::clone(record);
            deallocate(&mut record);
            record.set_state(NodeState::Deleting, now());
            writes.push(written(id, *revision, record));
        }
        let written = self.commit_or_unlock(writes, locks).await.is_some();
        if written {
            self.unlock(locks).await;
        }
    }

    /// Creates the records of nodes first, then writes the request, then launches: what a crash leaves behind is
    /// unlocked, and deleted by the next decision.
    async fn assign_launches(
        self,
        id: String,
        stored: Stored<NodeRequest>,
        place: LaunchTarget,
        (parts, guard): (Vec<Part>, Option<Write>),
        mut locks: Vec<Key>,
    ) {
        let new = parts.iter().filter_map(|part| match part {
            Part::New { record } => Some(Node::clone(record)),
            Part::Ready { .. } => None,
        });
        let Some(new_ids) = self.create(new.collect(), &locks, guard.as_ref()).await else { return };
        locks.extend(new_ids.iter().cloned().map(Key::Node));
        let (mut writes, mut ids, mut launches) = (Vec::new(), Vec::new(), Vec::new());
        // The new nodes are the tenant's already, the ready ones become it now.
        writes.extend(guard.filter(|_| parts.iter().any(|part| matches!(part, Part::Ready { .. }))));
        let mut new_ids = new_ids.into_iter();
        for part in parts {
            let (id, revision, record) = match part {
                Part::Ready { id, revision, record, .. } => (id, revision, record),
                Part::New { mut record } => {
                    let Some(id) = new_ids.next() else { return self.unlock(&locks).await };
                    record.set_state(NodeState::Building, now());
                    let Some(node) = self.current(&id).await else { return self.unlock(&locks).await };
                    let revision = node.revision;
                    launches.push((id.clone(), Node::clone(&record)));
                    (id, revision, record)
                }
            };
            writes.push(Write::Node { id: id.clone(), revision, record: *record, unlock: false });
            ids.push(id);
        }
        let mut record = NodeRequest::clone(&stored.record);
        record.nodes = ids;
        record.set_state(RequestState::Pending, now());
        while writes.len() > LIMIT_NODES_WRITTEN {
            let rest = writes.split_off(LIMIT_NODES_WRITTEN);
            if self.commit_or_unlock(std::mem::replace(&mut writes, rest), &locks).await.is_none() {
                return;
            }
        }
        tracing::info!(request = id, pool = place.id, nodes = ?record.nodes, "nodes are launched for the request");
        writes.push(Write::Request { id: id.clone(), revision: stored.revision, record, unlock: false });
        if self.commit_or_unlock(writes, &locks).await.is_none() {
            return;
        }
        for (node_id, record) in launches {
            let request = Some((id.clone(), Arc::clone(&stored.record)));
            launch::start(&self.context, &self.current, place.clone(), node_id, record, request);
        }
    }

    /// Creates records of nodes and locks them; gives their ids.
    async fn create(&self, records: Vec<Node>, locks: &[Key], guard: Option<&Write>) -> Option<Vec<String>> {
        let mut ids = Vec::new();
        for some in records.chunks(LIMIT_NODES_WRITTEN) {
            self.work.creates();
            let writes = some.iter().map(|record| Write::Create { record: record.clone() });
            let writes = guard.cloned().into_iter().chain(writes);
            ids.extend(self.commit_or_unlock(writes.collect(), locks).await?);
        }
        self.work.created(&ids);
        let keys: Vec<Key> = ids.iter().cloned().map(Key::Node).collect();
        if !self.lock(&keys).await {
            self.unlock(locks).await;
            return None;
        }
        Some(ids)
    }

    async fn keep_ready(self, place: LaunchTarget, mut record: Node) {
        let Some(id) = self.create(vec![record.clone()], &[], None).await.and_then(|ids| ids.into_iter().next()) else {
            return;
        };
        record.set_state(NodeState::Building, now());
        let key = Key::Node(id.clone());
        let Some(node) = self.current(&id).await else { return self.unlock([&key]).await };
        let write = Write::Node { id: id.clone(), revision: node.revision, record: record.clone(), unlock: false };
        if self.commit_or_unlock(vec![write], &[key]).await.is_some() {
            launch::start(&self.context, &self.current, place, id, record, None);
        }
    }

    async fn delete(self, id: String, stored: Stored<Node>, driver: Option<Arc<dyn Driver>>) {
        let key = Key::Node(id.clone());
        let locks = std::slice::from_ref(&key);
        if !self.lock(locks).await {
            return;
        }
        let mut revision = stored.revision;
        if let Some(driver) = driver {
            if stored.record.state != NodeState::Deleting {
                let mut record = Node::clone(&stored.record);
                record.set_state(NodeState::Deleting, now());
                let write = Write::Node { id: id.clone(), revision, record, unlock: false };
                if self.commit_or_unlock(vec![write], locks).await.is_none() {
                    return;
                }
                let Some(node) = self.current(&id).await else { return self.unlock(locks).await };
                revision = node.revision;
            }
            self.work.depends_on(key.clone());
            let instance = instance(&id, &stored.record);
            tokio::select! {
                () = delete_instance(&*driver, &instance) => {}
                () = self.work.cancelled.cancelled() => return self.unlock(locks).await,
                () = self.context.ends.cancelled() => return self.unlock(locks).await,
            }
        }
        self.commit_or_unlock(vec![Write::Remove { id, revision }], locks).await;
    }

    async fn register(self, host: StaticHost, mut record: Node) {
        let mut pause = RETRY;
        loop {
            match hosts::inspect(&host).await {
                Ok(facts) => {
                    facts.write_to(&mut record);
                    break;
                }
                Err(error) if pause == RETRY => {
                    tracing::warn!(host = host.name, %error, "the host cannot be registered; tries again");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_RETRY),
                () = self.context.ends.cancelled() => return,
            }
            // Another configuration may name the host no more, or otherwise.
            if !Arc::ptr_eq(&self.context.current.lock().config, &self.current.config) {
                return;
            }
        }
        record.state_time = now();
        record.created_time = Some(now());
        self.commit_or_unlock(vec![Write::Create { record }], &[]).await;
    }
}

/// The instance of a node's record.
pub(super) fn instance(id: &str, node: &Node) -> Instance {
    Instance { node_id: id.to_owned(), pool: node.pool.clone(), external_id: node.external_id.clone() }
}

/// Deletes until it is done.
pub(super) async fn delete_instance(driver: &dyn Driver, instance: &Instance) {
    let mut pause = RETRY;
    while let Err(error) = driver.delete(instance).await {
        tracing::warn!(node = instance.node_id, %error, "the instance cannot be deleted; tries again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

/// Hosts that do not answer, by the index of their part.
async fn dead_hosts(parts: &[Part]) -> Vec<(usize, DriverError)> {
    let checks = parts.iter().enumerate().filter_map(|(index, part)| match part {
        Part::Ready { host: Some(host), .. } if host.host_key_checking => {
            Some(async move { Some((index, hosts::check(host).await.err()?)) })
        }
        _ => None,
    });
    join_all(checks).await.into_iter().flatten().collect()
}

/// Logs what is not a matter of course, and keeps a store that refuses from being asked all the time.
async fn report(error: &BackendError) {
    match error {
        BackendError::Conflict(_) => tokio::time::sleep(AGAIN).await,
        BackendError::Disconnected(_) => tracing::debug!(%error, "an action is cut off"),
        BackendError::Refused(_) => {
            tracing::warn!(%error, "an action fails");
            tokio::time::sleep(REFUSED).await;
        }
    }
}
