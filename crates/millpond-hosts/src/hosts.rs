//! ByoHosts: labels that follow from facts, state, health of the agent; and hosts whose machine is gone.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::byoh::{self, HostState, ObjectReference, names};
use millpond_api::condition::Conditions;
use millpond_api::meta::Condition;
use millpond_plan::matching::Requirement;
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, annotation, is_leaving, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use serde_json::{Map, Value, json};

use crate::inventory::requirements;
use crate::join;
use crate::kinds::{ByoHost, ByoMachine};
use crate::provider::INSTANCE;
use crate::release::{NODE_CLAIM, free_patch};
use crate::state::{self, Life};
use crate::stock::{Stock, enqueue, pool_of};

/// Label of nodes with their NodePool.
const NODE_POOL: &str = "karpenter.sh/nodepool";

/// Keeps hosts true to what is known of them.
pub struct Hosts {
    stock: Arc<Stock>,
}

impl Hosts {
    /// The controller, and the work queue that watches fill.
    pub fn new(stock: &Arc<Stock>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        enqueue(&stock.hosts, &queue);
        let (own, shared) = (Arc::clone(&queue), Arc::downgrade(stock));
        stock.heartbeats.on_change(move |host| {
            if let Some(host) = shared.upgrade().and_then(|stock| stock.host(host)) {
                own.add(Key::of(&*host));
            }
        });
        let (own, shared) = (Arc::clone(&queue), Arc::downgrade(stock));
        stock.machines.on_change(move |before, after| {
            let Some(stock) = shared.upgrade() else { return };
            let of = |machine: Option<&Arc<ByoMachine>>| machine.and_then(|machine| stock.host(&machine.status.host));
            if let Some(host) = of(after).or_else(|| of(before)) {
                own.add(Key::of(&*host));
            }
        });
        let (own, shared) = (Arc::clone(&queue), Arc::downgrade(stock));
        stock.nodes.on_change(move |before, after| {
            // Nodes that come and go; their heartbeats do not matter here.
            let Some(node) = after.or(before).filter(|_| before.is_some() != after.is_some()) else { return };
            if let Some(host) = shared.upgrade().and_then(|stock| stock.host(&node.name_any())) {
                own.add(Key::of(&*host));
            }
        });
        (Arc::new(Self { stock: Arc::clone(stock) }), queue)
    }

    /// The machine that holds a host; `None` if it is gone or another one of its name.
    fn machine(&self, host: &ByoHost) -> Option<Arc<ByoMachine>> {
        let claim = host.spec.claim.as_ref()?;
        let machine = self.stock.machines.get(&Key::new(&claim.namespace, &claim.name))?;
        (machine.uid() == claim.machine_uid).then_some(machine)
    }

    /// Whether the machine that holds a host is gone. The watch of machines may lag behind the claim, so the API server is
    /// asked before a host is taken from its machine.
    async fn is_orphan(&self, host: &ByoHost) -> Result<bool> {
        let Some(claim) = &host.spec.claim else { return Ok(false) };
        if host.label(NODE_CLAIM).is_some() || self.machine(host).is_some() {
            return Ok(false);
        }
        match self.stock.machines.fetch(&Key::new(&claim.namespace, &claim.name)).await {
            Ok(machine) => Ok(machine.uid() != claim.machine_uid),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn life(&self, host: &ByoHost, machine: Option<&ByoMachine>) -> Life {
        let stock = &self.stock;
        let owner = machine.and_then(|machine| stock.owner_of(machine));
        let of_claim = host.label(NODE_CLAIM).is_some();
        Life {
            leaving: machine.is_some_and(is_leaving) || owner.is_some_and(|owner| is_leaving(&*owner)),
            joined: machine.is_some_and(|machine| machine.status.initialization.provisioned == Some(true))
                || (of_claim && stock.node_of(host.name()).is_some()),
            ..life(stock, host)
        }
    }

    /// A host that nothing holds any more: released, freed, or both later. Tells whether something was written.
    async fn let_go(&self, host: &ByoHost, view: &byoh::ByoHost) -> Result<bool> {
        let key = Key::of(host);
        if host.spec.claim.is_some() {
            let is_orphan = self.is_orphan(host).await?;
            if is_orphan {
                self.stock.record(host, "MachineGone", true, "the machine that held the host does not exist: released");
                self.stock.release(host).await?;
            }
            return Ok(is_orphan);
        }
        let finalized = host.finalizers().iter().any(|finalizer| finalizer == names::HOST_FINALIZER);
        // A label alone is another provider's claim.
        let was_ours = host.status.machine_ref.is_some() || finalized;
        if !was_ours || !(state::is_clean(view) || state::is_reset_failed(view)) {
            return Ok(false);
        }
        self.stock.delete_node(host.name()).await?;
        if self.stock.node_of(host.name()).is_some_and(|node| !node.finalizers().is_empty()) {
            return self.end_instance(host).await;
        }
        let failed = state::is_reset_failed(view).then(|| {
            let message = view.status.plan.as_ref().map_or("", |plan| plan.message.as_str());
            json!({"reason": shortened(&format!("reset failed: {message}")), "since": self.stock.now()})
        });
        let verdict = if failed.is_some() { "is kept out: its reset failed" } else { "is free again" };
        tracing::info!(host = host.name(), "host {verdict}");
        let patched = self.stock.hosts.patch(&key, &free_patch(host, failed)).await?;
        if patched.status.machine_ref.is_some() && !is_gone(&patched) {
            let patch = json!({"status": {"machineRef": null, "pool": null}});
            self.stock.hosts.patch_status(&key, &patch).await?;
        }
        Ok(true)
    }

    /// Ends the instance of a NodeClaim, which then takes its finalizer off the Node. The host is free once the Node is
    /// gone: a kubelet that registers before would lose its Node with the old one.
    async fn end_instance(&self, host: &ByoHost) -> Result<bool> {
        if annotation(host, INSTANCE).is_none() {
            return Ok(false);
        }
        let metadata = json!({"resourceVersion": host.metadata.resource_version, "annotations": {INSTANCE: null}});
        self.stock.hosts.patch(&Key::of(host), &json!({"metadata": metadata})).await.map(|_| true)
    }

    /// Labels that follow from the facts.
    async fn label(&self, host: Arc<ByoHost>, view: &byoh::ByoHost) -> Result<Arc<ByoHost>> {
        let changes = view.label_changes();
        if changes.is_empty() || !state::is_registered(view) {
            return Ok(host);
        }
        let labels: Map<String, Value> =
            changes.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        self.stock.hosts.patch(&Key::of(&*host), &json!({"metadata": {"labels": labels}})).await
    }

    async fn write_status(&self, host: &ByoHost) -> Result<()> {
        let (view, machine) = (host.view(), self.machine(host));
        let life = self.life(host, machine.as_deref());
        let mut status = host.status.clone();
        status.state = Some(state::state(&view, life));
        if let Some(claim) = &host.spec.claim {
            let (api_version, kind) = match host.label(NODE_CLAIM) {
                Some(_) => ("karpenter.sh/v1".to_owned(), "NodeClaim".to_owned()),
                None => (format!("{}/{}", byoh::GROUP, byoh::VERSION), "ByoMachine".to_owned()),
            };
            status.machine_ref = Some(ObjectReference {
                api_version,
                kind,
                namespace: claim.namespace.clone(),
                name: claim.name.clone(),
                uid: claim.machine_uid.clone(),
                ..ObjectReference::default()
            });
            let owner = machine.as_ref().and_then(|machine| self.stock.owner_of(machine));
            let of_claim = host.spec.labels.get(NODE_POOL).cloned();
            status.pool = owner.map(|owner| pool_of(&owner)).or(of_claim).unwrap_or_default();
        }
        let generation = host.metadata.generation.unwrap_or_default();
        let mut conditions = Conditions::new(&mut status.conditions, &[], generation, self.stock.now());
        conditions.set(self.health(host));
        match machine.as_deref().filter(|_| host.spec.claim.is_some()) {
            Some(machine) => conditions.set(selector_matches(&view, machine)),
            None => conditions.clear(names::host::SELECTOR_MATCHES),
        };
        self.record_changes(host, &status);
        if let Some(claim) = &host.spec.claim
            && host.label(NODE_CLAIM).is_some()
            && status.state == Some(HostState::InUse)
            && host.status.state != status.state
        {
            // The host has joined: its token is not needed any more.
            join::revoke(&self.stock, &Key::new(&claim.namespace, &join::secret_name(&claim.name))).await?;
        }
        match status_patch(host, Some(&host.status), &status) {
            Some(patch) => self.stock.hosts.patch_status(&Key::of(host), &patch).await.map(drop),
            None => Ok(()),
        }
    }

    fn health(&self, host: &ByoHost) -> Condition {
        match self.stock.lease_left(host) {
            None => Condition::unknown(names::host::HEALTHY, "NoLease", "the agent has not renewed its Lease yet"),
            Some(left) if left.is_zero() => {
                let lease = format!("{}/{}", names::LEASE_NAMESPACE, host.name());
                let message = format!("the agent does not renew the Lease {lease}");
                Condition::fails(names::host::HEALTHY, "LeaseExpired", message)
            }
            Some(_) => Condition::holds(names::host::HEALTHY),
        }
    }

    fn record_changes(&self, host: &ByoHost, status: &byoh::ByoHostStatus) {
        let became = |state: HostState| status.state == Some(state) && host.status.state != Some(state);
        if became(HostState::Offline) {
            self.stock.record(host, "Offline", true, "the agent does not renew its Lease");
        }
        if became(HostState::Available) {
            self.stock.record(host, "Available", false, "the host is free and its agent is alive");
        }
        let mismatch = |list: &[Condition]| {
            let found = millpond_api::condition::find(list, names::host::SELECTOR_MATCHES).filter(|one| one.is_false());
            found.map(|found| found.message.clone())
        };
        let (before, after) = (mismatch(&host.status.conditions), mismatch(&status.conditions));
        if let Some(message) = after.filter(|after| before.as_ref() != Some(after)) {
            self.stock.record(host, "SelectorMismatch", true, message);
        }
    }
}

impl Reconcile for Hosts {
    const NAME: &'static str = "byohost";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(host) = self.stock.hosts.get(key) else { return Ok(None) };
        let view = host.view();
        if self.let_go(&host, &view).await? {
            // The watch brings it back as it is now.
            return Ok(None);
        }
        if !is_leaving(&*host) {
            let host = self.label(host, &view).await?;
            self.write_status(&host).await?;
        }
        let left = self.stock.hosts.get(key).and_then(|host| self.stock.lease_left(&host));
        Ok(left.filter(|left| !left.is_zero()))
    }
}

/// What is known about a host without its machine.
pub(crate) fn life(stock: &Stock, host: &ByoHost) -> Life {
    let age = stock.heartbeats.get(host.name()).map(|beat| beat.age(tokio::time::Instant::now()));
    Life {
        deleting: is_leaving(host),
        alive: stock.is_alive(host),
        silent_s: age.map_or(0, |age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX)),
        leaving: false,
        joined: false,
    }
}

/// Whether the labels of an attached host still match the selector of its machine. The host stays where it is.
fn selector_matches(host: &byoh::ByoHost, machine: &ByoMachine) -> Condition {
    let holds =
        |requirement: &Requirement| requirement.holds(host.metadata.labels.get(&requirement.key).map(String::as_str));
    let wrong = requirements(&machine.spec).unwrap_or_default().into_iter().find(|one| !holds(one));
    match wrong {
        None => Condition::holds(names::host::SELECTOR_MATCHES),
        Some(wrong) => {
            let present = match host.metadata.labels.get(&wrong.key) {
                Some(value) => format!("{}={value}", wrong.key),
                None => format!("no label {}", wrong.key),
            };
            let message = format!(
                "machine {} selects {}, the host has {present}: it stays with its machine until that is deleted",
                machine.name(),
                millpond_plan::matching::typed(&wrong),
            );
            Condition::fails(names::host::SELECTOR_MATCHES, "LabelMismatch", message)
        }
    }
}

fn is_gone(host: &ByoHost) -> bool {
    is_leaving(host) && host.finalizers().is_empty()
}

/// As much of a text as a reason of a quarantine can have.
fn shortened(text: &str) -> String {
    const LIMIT_REASON: usize = 1024;
    let mut end = text.len().min(LIMIT_REASON);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
