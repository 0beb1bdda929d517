//! The store of a launcher without ZooKeeper.
//!
//! The Kubernetes API has no writes of several objects. A commit writes nodes before requests, so that a commit that is
//! cut off leaves what the engine cleans up: nodes without a lock, or nodes for a request that does not name them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all, try_join_all};
use kube::Client;
use millpond_api::ci::{FULFILLED, NodeRequestStatus, PoolReason, RequestReference};
use millpond_api::condition::Conditions;
use millpond_api::meta::Condition;
use millpond_api::time::Time;
use millpond_runtime::clock::Clock;
use millpond_runtime::error::Error as WriteError;
use millpond_runtime::meta::{Key as ObjectKey, merge_diff, status_patch};
use millpond_runtime::mirror::{Mirror, Writer};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ids::Ids;
use super::kinds::{CINode, NodeRequest};
use super::state::State;
use super::{record, secrets};
use crate::engine::{Action, Decision, Reason, Verdict};
use crate::launcher::{Backend, BackendError, Key, PoolId, PoolSpec, Records, Stored, Write};
use crate::model::{self, Node, NodeState, RequestState};
use crate::view;

/// Owns the fields that the launcher writes.
const MANAGER: &str = "millpond-ci";
/// Writes under way at a time: enough to fill the batches of an API server, few enough not to crowd out others.
const WRITES: usize = 64;

/// The reason of a pool whose launch failed.
const LAUNCH_FAILED: &str = "LaunchFailed";

/// Requests and nodes as objects.
pub struct ObjectBackend {
    client: Client,
    /// Where Secrets of nodes and the numbers of nodes are.
    namespace: String,
    clock: Clock,
    requests: Arc<Mirror<NodeRequest>>,
    nodes: Arc<Mirror<CINode>>,
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
    is_complete: watch::Sender<bool>,
    pools: Mutex<Vec<PoolSpec>>,
    ids: Ids,
    /// What the pools said of requests, until it is written.
    verdicts: Mutex<BTreeMap<String, Vec<PoolReason>>>,
    reasons_changed: Notify,
}

impl ObjectBackend {
    /// Begins to watch; ends with the token. Nodes' Secrets and numbers are kept in `namespace`.
    pub fn start(
        client: Client,
        namespace: &str,
        clock: Clock,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        let writer = Writer::new(client.clone(), MANAGER, WRITES);
        let backend = Arc::new(Self {
            requests: Arc::new(Mirror::new(writer.clone(), None)),
            nodes: Arc::new(Mirror::new(writer, None)),
            state: Arc::default(),
            changes: watch::Sender::new(0),
            is_complete: watch::Sender::new(false),
            pools: Mutex::new(Vec::new()),
            ids: Ids::new(client.clone(), namespace),
            verdicts: Mutex::default(),
            reasons_changed: Notify::new(),
            namespace: namespace.to_owned(),
            clock,
            client,
        });
        backend.listen();
        tasks.spawn(Arc::clone(&backend.requests).run(false, stop.clone()));
        tasks.spawn(Arc::clone(&backend.nodes).run(false, stop.clone()));
        let (this, token) = (Arc::clone(&backend), stop.clone());
        tasks.spawn(async move { token.run_until_cancelled(this.follow()).await });
        backend
    }

    fn listen(&self) {
        let (state, changes) = (Arc::clone(&self.state), self.changes.clone());
        self.requests.on_change(move |before, after| {
            state.lock().request_changed(before, after);
            changes.send_modify(|count| *count += 1);
        });
        let (state, changes) = (Arc::clone(&self.state), self.changes.clone());
        self.nodes.on_change(move |before, after| {
            state.lock().node_changed(before, after);
            changes.send_modify(|count| *count += 1);
        });
    }

    /// Waits for the first listings, then writes reasons as they come.
    async fn follow(&self) {
        tokio::join!(self.requests.wait_until_ready(), self.nodes.wait_until_ready());
        self.is_complete.send_replace(true);
        self.changes.send_modify(|count| *count += 1);
        loop {
            self.reasons_changed.notified().await;
            let ready: Vec<String> = self.verdicts.lock().keys().cloned().collect();
            join_all(ready.iter().map(|id| self.write_reasons(id))).await;
        }
    }

    /// Waits until everything was read once.
    pub async fn wait_until_complete(&self) {
        // The sender lives as long as this.
        let _ = self.is_complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// Requests and nodes as objects, for lists.
    pub fn objects(&self) -> (Vec<Arc<NodeRequest>>, Vec<Arc<CINode>>) {
        self.state.lock().objects()
    }

    /// The labels of the pools of this launcher.
    pub fn labels(&self) -> std::collections::BTreeSet<String> {
        self.pools.lock().iter().flat_map(|pool| pool.labels.clone()).collect()
    }

    fn now(&self) -> Time {
        Time(self.clock.now().as_second())
    }

    // Commits

    /// The objects that writes replace, if all are at the revisions that the writes name.
    fn compare(&self, writes: &[Write]) -> Result<(), BackendError> {
        let state = self.state.lock();
        for write in writes {
            let (id, named, found) = match write {
                Write::Request { id, revision, .. } => (id, *revision, state.request(id).map(|it| it.2)),
                Write::Node { id, revision, .. } | Write::Remove { id, revision } => {
                    (id, *revision, state.node(id).map(|it| it.2))
                }
                // One launcher at a time works on objects.
                Write::Create { .. } | Write::Tenants { .. } => continue,
            };
            if found != Some(named) {
                return Err(BackendError::Conflict(id.clone()));
            }
        }
        Ok(())
    }

    async fn write_all(&self, writes: Vec<Write>) -> Result<Vec<String>, BackendError> {
        self.compare(&writes)?;
        let writes = writes.into_iter().filter(|write| !matches!(write, Write::Tenants { .. }));
        let (requests, others): (Vec<Write>, Vec<Write>) =
            writes.partition(|write| matches!(write, Write::Request { .. }));
        let mut created = Vec::new();
        // Ids are given in the order of the writes.
        for write in &others {
            if matches!(write, Write::Create { .. }) {
                created.push(self.ids.next().await.map_err(refused_by_api)?);
            }
        }
        let mut ids = created.clone().into_iter();
        let others = others.into_iter().map(|write| match write {
            Write::Create { record } => self.create_node(ids.next().unwrap_or_default(), record).boxed(),
            Write::Node { id, record, unlock, .. } => self.write_node(id, record, unlock).boxed(),
            Write::Remove { id, .. } => self.remove_node(id).boxed(),
            Write::Request { .. } | Write::Tenants { .. } => unreachable!("these are not in this half"),
        });
        try_join_all(others.collect::<Vec<_>>()).await?;
        try_join_all(requests.into_iter().map(|write| self.write_request(write))).await?;
        Ok(created)
    }

    fn reference(&self, node: &Node, before: Option<&CINode>) -> Option<RequestReference> {
        let id = node.allocated_to.as_deref()?;
        let known = self.state.lock().request(id).map(|(object, ..)| record::reference(&object));
        // Of a request that is gone, the record has the bare uid.
        let is_same = |request: &RequestReference| request.uid == record::uid_of(id) || request.uid == id;
        let before = || before?.status.request.clone().filter(is_same);
        known.or_else(before)
    }

    async fn create_node(&self, id: String, node: Node) -> Result<(), BackendError> {
        let (mut object, credentials) = record::object_of(&id, &node, self.reference(&node, None));
        if let Some(credentials) = credentials {
            let kept = secrets::keep(&self.client, &self.namespace, &id, &credentials).await;
            object.status.secret_name = Some(kept.map_err(refused_by_api)?);
        }
        self.nodes.create(&object).await.map(drop).map_err(|error| refused(&id, &error))
    }

    async fn write_node(&self, id: String, node: Node, unlock: bool) -> Result<(), BackendError> {
        let Some((before, ..)) = self.state.lock().node(&id) else { return Err(BackendError::Conflict(id)) };
        self.replace_node(&id, &before, &node).await?;
        if unlock {
            self.state.lock().unlock(&Key::Node(id));
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    async fn replace_node(&self, id: &str, before: &CINode, node: &Node) -> Result<Arc<CINode>, BackendError> {
        let (mut object, credentials) = record::object_of(id, node, self.reference(node, Some(before)));
        object.status.secret_name = match credentials {
            Some(credentials) => {
                let kept = secrets::keep(&self.client, &self.namespace, id, &credentials).await;
                Some(kept.map_err(refused_by_api)?)
            }
            None => before.status.secret_name.clone(),
        };
        let halves = |object: &CINode| json!({"spec": object.spec, "status": object.status});
        let Some(mut patch) = merge_diff(&halves(before), &halves(&object)) else {
            return Ok(Arc::new(before.clone()));
        };
        patch["metadata"] = json!({"resourceVersion": before.metadata.resource_version});
        self.nodes.patch(&ObjectKey::of(before), &patch).await.map_err(|error| refused(id, &error))
    }

    async fn remove_node(&self, id: String) -> Result<(), BackendError> {
        let Some((object, ..)) = self.state.lock().node(&id) else { return Ok(()) };
        if let Some(place) = &object.status.secret_name {
            secrets::forget(&self.client, place).await.map_err(refused_by_api)?;
        }
        self.nodes.delete(&object, None).await.map_err(|error| refused(&id, &error))?;
        self.state.lock().unlock(&Key::Node(id));
        Ok(())
    }

    async fn write_request(&self, write: Write) -> Result<(), BackendError> {
        let Write::Request { id, record: request, unlock, .. } = write else { return Ok(()) };
        let Some((object, ..)) = self.state.lock().request(&id) else { return Err(BackendError::Conflict(id)) };
        let mut nodes = Vec::new();
        for (index, node) in request.nodes.iter().enumerate() {
            let label = request.node_types.get(index).map(String::as_str).unwrap_or_default();
            nodes.push(self.hand_out(&object, request.state, node, label));
        }
        let nodes = try_join_all(nodes).await?;
        let mut status = record::status_of(&request, nodes);
        status.conditions.clone_from(&object.status.conditions);
        self.explain(&id, &object, &request, &mut status);
        if let Some(patch) = status_patch(&*object, Some(&object.status), &status) {
            let written = self.requests.patch_status(&ObjectKey::of(&*object), &patch).await;
            written.map_err(|error| refused(&id, &error))?;
        }
        if unlock {
            self.state.lock().unlock(&Key::Request(id));
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// A node as the status of its request names it. When the request is fulfilled, the node is in use from now on, and
    /// its credentials are beside the request.
    async fn hand_out(
        &self,
        request: &NodeRequest,
        state: RequestState,
        id: &str,
        label: &str,
    ) -> Result<millpond_api::ci::ConnectedNode, BackendError> {
        let Some((object, node, _)) = self.state.lock().node(id) else {
            return Err(BackendError::Conflict(id.to_owned()));
        };
        if state != RequestState::Fulfilled {
            let (id, label) = (id.to_owned(), label.to_owned());
            return Ok(millpond_api::ci::ConnectedNode { id, label, ..Default::default() });
        }
        let mut node = (*node).clone();
        node.set_state(NodeState::InUse, self.now().0 as f64);
        let written = self.replace_node(id, &object, &node).await?;
        let secret = match &written.status.secret_name {
            Some(place) => {
                Some(secrets::hand_over(&self.client, request, &written, place).await.map_err(refused_by_api)?)
            }
            None => None,
        };
        Ok(record::connected(id, label, &written, secret))
    }

    // Reasons

    /// Adds to a status what the pools said, and the condition that sums it up.
    fn explain(&self, id: &str, object: &NodeRequest, request: &model::NodeRequest, status: &mut NodeRequestStatus) {
        let said = self.verdicts.lock().remove(id);
        let condition = match request.state {
            RequestState::Fulfilled => Condition::holds(FULFILLED),
            RequestState::Pending => Condition::fails(FULFILLED, "Launching", "its nodes are being launched"),
            RequestState::Failed | RequestState::Requested => {
                status.reasons = said.unwrap_or_else(|| object.status.reasons.clone());
                summary(request.state, &status.reasons)
            }
        };
        let generation = object.metadata.generation.unwrap_or(1);
        Conditions::new(&mut status.conditions, &[], generation, self.now()).set(condition);
    }

    /// Writes why a request waits.
    async fn write_reasons(&self, id: &str) {
        let Some((object, request, _)) = self.state.lock().request(id) else {
            self.verdicts.lock().remove(id);
            return;
        };
        if request.state != RequestState::Requested {
            // The write of its state takes them along.
            return;
        }
        let Some(reasons) = self.verdicts.lock().remove(id) else { return };
        let mut status = object.status.clone();
        status.state = Some(millpond_api::ci::RequestPhase::Requested);
        status.since = status.since.or(object.metadata.creation_timestamp.as_ref().map(|at| Time(at.0.as_second())));
        status.reasons = reasons;
        let generation = object.metadata.generation.unwrap_or(1);
        let condition = summary(RequestState::Requested, &status.reasons);
        Conditions::new(&mut status.conditions, &[], generation, self.now()).set(condition);
        let Some(patch) = status_patch(&*object, Some(&object.status), &status) else { return };
        if let Err(error) = self.requests.patch_status(&ObjectKey::of(&*object), &patch).await
            && !error.is_expected()
        {
            tracing::warn!(request = super::request_name(&object), error = %error.cause(), "cannot write why it waits");
        }
    }

    /// Records reasons that are not in the status yet. A change of amounts alone is not recorded: amounts change with
    /// every other request.
    fn note(&self, id: &str, verdicts: &[Verdict], write: bool) {
        let Some((object, ..)) = self.state.lock().request(id) else { return };
        let before = self.verdicts.lock().get(id).cloned().unwrap_or_else(|| object.status.reasons.clone());
        let mut reasons: Vec<PoolReason> = verdicts.iter().map(|verdict| pool_reason(verdict, &before)).collect();
        for reason in reasons.iter_mut().filter(|reason| reason.reason == LAUNCH_FAILED) {
            if let Some(why) = self.state.lock().failure(id) {
                reason.message = format!("a node could not be launched: {why}");
            }
        }
        let key = |reasons: &[PoolReason]| -> Vec<(String, String)> {
            reasons.iter().map(|reason| (reason.pool.clone(), reason.reason.clone())).collect()
        };
        if object.status.state.is_some() && key(&before) == key(&reasons) {
            return;
        }
        self.verdicts.lock().insert(id.to_owned(), reasons);
        if write {
            self.reasons_changed.notify_one();
        }
    }
}

/// The reason of a pool's verdict. If the verdict only says that the pool declined, the earlier reason is kept.
fn pool_reason(verdict: &Verdict, before: &[PoolReason]) -> PoolReason {
    let said = before.iter().find(|reason| reason.pool == verdict.pool);
    match (&verdict.reason, said) {
        (Reason::Declined, Some(said)) => said.clone(),
        (reason, _) => PoolReason {
            pool: verdict.pool.clone(),
            reason: view::reason_code(reason).to_owned(),
            message: reason.to_string(),
        },
    }
}

/// One sentence for all pools.
fn summary(state: RequestState, reasons: &[PoolReason]) -> Condition {
    let failed = state == RequestState::Failed;
    let (reason, message) = match reasons {
        [] if failed => ("Failed".to_owned(), "no pool can provide it".to_owned()),
        [] => ("NoPools".to_owned(), "no pool is registered".to_owned()),
        [first, rest @ ..] if rest.iter().all(|other| other.message == first.message) => {
            let message = match first.message.strip_prefix("it has no label ") {
                Some(label) => format!("no pool has the label {label}"),
                None if rest.is_empty() => format!("{}: {}", first.pool, first.message),
                None => format!("in every pool: {}", first.message),
            };
            (first.reason.clone(), message)
        }
        all => {
            let parts: Vec<String> = all.iter().map(|one| format!("{}: {}", one.pool, one.message)).collect();
            let reason = if failed { "NoPoolFits" } else { "Waiting" };
            (reason.to_owned(), parts.join("; "))
        }
    };
    Condition::fails(FULFILLED, &reason, message)
}

impl Backend for ObjectBackend {
    fn records(&self) -> Records {
        let mut records = self.state.lock().records();
        let pools = self.pools.lock();
        records.ours = pools.iter().map(|pool| (pool_key(pool), pool_id(pool))).collect();
        records.is_complete = *self.is_complete.borrow();
        records
    }

    fn request(&self, id: &str) -> Option<Stored<model::NodeRequest>> {
        self.state.lock().stored_request(id)
    }

    fn node(&self, id: &str) -> Option<Stored<Node>> {
        self.state.lock().stored_node(id)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn announce(&self, pools: Vec<PoolSpec>) {
        *self.pools.lock() = pools;
        self.changes.send_modify(|count| *count += 1);
    }

    fn lock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool, BackendError>> {
        let taken = self.state.lock().lock(key);
        std::future::ready(Ok(taken)).boxed()
    }

    fn unlock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), BackendError>> {
        self.state.lock().unlock(key);
        self.changes.send_modify(|count| *count += 1);
        std::future::ready(Ok(())).boxed()
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<String>, BackendError>> {
        self.write_all(writes).boxed()
    }

    fn is_connected(&self) -> bool {
        *self.is_complete.borrow()
    }

    fn decided(&self, decision: &Decision) {
        for (request, verdicts) in &decision.waiting {
            self.note(request, verdicts, true);
        }
        for action in &decision.actions {
            if let Action::Decline { request, verdicts, .. } = action {
                // The write of the decline takes them along.
                self.note(request, verdicts, false);
            }
        }
    }
}

fn pool_key(pool: &PoolSpec) -> PoolId {
    (pool.provider.clone(), pool.name.clone())
}

/// The id is the same after a restart: a request that the pool has declined stays declined.
fn pool_id(pool: &PoolSpec) -> String {
    format!("PoolWorker.{}-{}", pool.provider, pool.name)
}

fn refused(id: &str, error: &WriteError) -> BackendError {
    match error.status() {
        Some(status) if status.is_conflict() || status.is_not_found() => BackendError::Conflict(id.to_owned()),
        Some(status) => BackendError::Refused(status.message.clone()),
        None => BackendError::Disconnected(error.cause()),
    }
}

fn refused_by_api(error: kube::Error) -> BackendError {
    match error {
        kube::Error::Api(status) => BackendError::Refused(status.message.clone()),
        other => BackendError::Disconnected(other.to_string()),
    }
}

/// Only the type: what it knows is in the API.
impl std::fmt::Debug for ObjectBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectBackend").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
