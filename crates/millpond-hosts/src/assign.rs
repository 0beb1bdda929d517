//! Giving hosts to machines: every waiting machine against every free host, whenever one of either changes.
//!
//! A decision is written in two steps. The machine's `status.host` names the host first; then the host's claim is
//! written on condition that the host has not changed. So a crash in between leaves an assignment that the next round
//! completes, never a host with two machines or a machine with two hosts. A lost race only means another round.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::ResourceExt;
use millpond_api::byoh::{self, Claim, DownloadMode, JoinMode, ObjectReference, names};
use millpond_api::condition::Conditions;
use millpond_api::karpenter::Taint;
use millpond_api::meta::Condition;
use millpond_api::node_class::Kubelet;
use millpond_plan::matching::{Availability, Outcome, Spread, explain, match_hosts};
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, is_leaving, status_patch};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bootstrap::kubelet_configs;
use crate::explain::summary;
use crate::hosts::life;
use crate::inventory::{self, PoolSettings, Pools, Request};
use crate::join::{self, Credentials};
use crate::kinds::{ByoHost, ByoMachine};
use crate::state::availability;
use crate::stock::Stock;

/// Changes that come together are decided together.
const GATHER: Duration = Duration::from_millis(10);
/// Wait after a lost race or a failed write.
const AGAIN: Duration = Duration::from_millis(200);
/// The reason why a machine has no host is repeated at most this often, while it stays the same.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Claims under way at a time.
const CLAIMS_AT_A_TIME: usize = 64;
/// With more hosts than this, a round is computed on a thread of its own.
const LARGE: usize = 2000;

/// How a machine joins its cluster, once it has a host.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Joining {
    pub(crate) uid: String,
    pub(crate) cluster: String,
    pub(crate) mode: JoinMode,
    pub(crate) download_mode: Option<DownloadMode>,
    pub(crate) version: String,
    pub(crate) manage_kube_proxy: bool,
    /// Secret with the bootstrap data, in kubeadm mode.
    pub(crate) data_secret: Option<String>,
    /// BootstrapKubeconfig, in tlsBootstrap mode.
    pub(crate) kubeconfig: Option<Key>,
    pub(crate) installation: Option<ObjectReference>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
}

/// A machine that needs only a host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) request: Request,
    pub(crate) joining: Joining,
}

/// Machines that wait for hosts.
#[derive(Default)]
pub(crate) struct WaitingMachines {
    machines: Mutex<BTreeMap<Key, (Waiting, Option<Instant>)>>,
    changed: Notify,
}

impl WaitingMachines {
    /// A machine waits from now on, or waits for something else.
    pub(crate) fn insert(&self, key: &Key, waiting: Waiting) {
        let mut machines = self.machines.lock();
        if machines.get(key).is_none_or(|(known, _)| *known != waiting) {
            machines.insert(key.clone(), (waiting, None));
            self.changed.notify_one();
        }
    }

    /// A machine waits no more.
    pub(crate) fn remove(&self, key: &Key) {
        self.machines.lock().remove(key);
    }

    fn snapshot(&self) -> Vec<(Key, Waiting)> {
        self.machines.lock().iter().map(|(key, (waiting, _))| (key.clone(), waiting.clone())).collect()
    }

    /// Whether the same reason of a machine may be recorded again.
    fn may_tell(&self, key: &Key, now: Instant) -> bool {
        match self.machines.lock().get_mut(key) {
            Some((_, Some(told))) if now.saturating_duration_since(*told) < TELL_EVERY => false,
            Some((_, told)) => {
                *told = Some(now);
                true
            }
            None => false,
        }
    }
}

/// Gives hosts to waiting machines.
pub(crate) struct Assigner {
    stock: Arc<Stock>,
    waiting: Arc<WaitingMachines>,
}

impl Assigner {
    pub(crate) fn new(stock: &Arc<Stock>, waiting: &Arc<WaitingMachines>) -> Self {
        let own = Arc::clone(waiting);
        stock.hosts.on_change(move |_, _| own.changed.notify_one());
        let own = Arc::clone(waiting);
        stock.heartbeats.on_change(move |_| own.changed.notify_one());
        Self { stock: Arc::clone(stock), waiting: Arc::clone(waiting) }
    }

    /// Decides round after round until the token is cancelled.
    pub(crate) async fn run(self, token: CancellationToken) {
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                () = self.waiting.changed.notified() => {}
            }
            tokio::time::sleep(GATHER).await;
            if self.round().await {
                tokio::time::sleep(AGAIN).await;
                self.waiting.changed.notify_one();
            }
        }
    }

    /// Runs one round; returns whether another round has work.
    async fn round(&self) -> bool {
        let mut by_namespace: BTreeMap<String, Vec<(Key, Waiting)>> = BTreeMap::new();
        for (key, waiting) in self.waiting.snapshot() {
            let gone = self.stock.machines.get(&key).is_none_or(|machine| {
                machine.uid() != waiting.joining.uid || is_leaving(&*machine) || self.stock.host_of(&machine).is_some()
            });
            if gone {
                self.waiting.remove(&key);
            } else {
                by_namespace.entry(key.namespace.clone()).or_default().push((key, waiting));
            }
        }
        let mut again = false;
        for (namespace, waiting) in by_namespace {
            again |= self.round_of(&namespace, waiting).await;
        }
        again
    }

    async fn round_of(&self, namespace: &str, waiting: Vec<(Key, Waiting)>) -> bool {
        let hosts = self.stock.hosts.list_in(namespace);
        let views: Vec<byoh::ByoHost> = hosts.iter().map(|host| host.view()).collect();
        let lives: Vec<_> = hosts.iter().map(|host| life(&self.stock, host)).collect();
        let requests: Vec<Request> = waiting.iter().map(|(_, waiting)| self.promised(waiting)).collect();
        let settings = |pool: &str| self.settings(namespace, pool);
        let inventory = inventory::inventory(views.iter().zip(lives));
        let pools = Pools::of(&requests, settings, |pool| {
            let spreads = settings(pool).spread != Spread::None || settings(pool).minimum > 0;
            if spreads { inventory::attached_by_domain(&inventory, &views, pool) } else { Vec::new() }
        });
        let decide = move || {
            let outcome = match_hosts(&inventory, &pools.pools);
            (inventory, pools, outcome)
        };
        let decided = if views.len() > LARGE { tokio::task::spawn_blocking(decide).await.ok() } else { Some(decide()) };
        let Some((inventory, pools, outcome)) = decided else { return true };
        let claims = placed(&pools, &outcome).map(|(request, host)| self.claim(&waiting[request], &hosts[host]));
        let failed = stream::iter(claims).buffer_unordered(CLAIMS_AT_A_TIME).filter(|done| {
            let failed = !*done;
            async move { failed }
        });
        let mut again = failed.count().await > 0;
        for (pool, places) in outcome.hosts.iter().enumerate() {
            let Some(machine) = places.iter().position(Option::is_none) else { continue };
            let explanation = explain(&inventory, &pools.pools, &outcome, pool, machine);
            let message = summary(&explanation);
            for (place, request) in places.iter().zip(&pools.requests[pool]) {
                if place.is_none() {
                    again |= !self.tell(&waiting[*request].0, &message).await;
                }
            }
        }
        again
    }

    /// The request with the host that the machine was assigned.
    fn promised(&self, waiting: &Waiting) -> Request {
        let mut request = waiting.request.clone();
        let machine = self.stock.machines.get(&Key::new(&request.namespace, &request.machine));
        request.promised = machine.map(|machine| machine.status.host.clone()).filter(|promised| !promised.is_empty());
        request
    }

    fn settings(&self, namespace: &str, pool: &str) -> PoolSettings {
        let deployment = self.stock.deployments.get(&Key::new(namespace, pool));
        deployment.map(|deployment| PoolSettings::of(deployment.annotations())).unwrap_or_default()
    }

    /// Gives a host to a machine; false if that has to be decided again.
    async fn claim(&self, (key, waiting): &(Key, Waiting), host: &ByoHost) -> bool {
        match self.try_claim(key, waiting, host).await {
            Ok(claimed) => claimed,
            Err(error) if error.is_expected() => false,
            Err(error) => {
                let cause = error.cause();
                tracing::warn!(machine = %key, host = host.name(), %error, cause, "a host could not be claimed");
                false
            }
        }
    }

    async fn try_claim(&self, key: &Key, waiting: &Waiting, host: &ByoHost) -> Result<bool> {
        let stock = &self.stock;
        let still = |machine: &Arc<ByoMachine>| machine.uid() == waiting.joining.uid && !is_leaving(&**machine);
        let Some(machine) = stock.machines.get(key).filter(still) else { return Ok(true) };
        if stock.host_of(&machine).is_some() {
            return Ok(true);
        }
        if machine.status.host != host.name() {
            let version = &machine.metadata.resource_version;
            let patch = json!({"metadata": {"resourceVersion": version}, "status": {"host": host.name()}});
            stock.machines.patch_status(key, &patch).await?;
        }
        if let Some(config) = &waiting.joining.kubeconfig
            && !self.credentials(&machine, config, host, &waiting.joining.cluster).await?
        {
            return Ok(true);
        }
        // Read the host again: a label, a quarantine or another claim may have changed meanwhile.
        let Some(host) = stock.hosts.get(&Key::of(host)) else { return Ok(false) };
        if availability(&host.view(), life(stock, &host)) != Availability::Free {
            return Ok(false);
        }
        let patch = claim_patch(&host, key, &waiting.joining, stock.now());
        stock.hosts.patch(&Key::of(&*host), &patch).await?;
        self.waiting.remove(key);
        tracing::info!(machine = %key, host = host.name(), pool = waiting.request.pool, "claims a host");
        stock.record(&*machine, "HostClaimed", false, format!("host {} serves the machine", host.name()));
        Ok(true)
    }

    /// Makes the Secret that the host joins with; false if the BootstrapKubeconfig cannot be used.
    async fn credentials(&self, machine: &ByoMachine, config: &Key, host: &ByoHost, cluster: &str) -> Result<bool> {
        let Some(found) = self.stock.bootstrap.get(config) else { return Ok(false) };
        let Ok(endpoint) = join::endpoint(&self.stock, &config.namespace, &found.spec).await? else { return Ok(false) };
        let credentials = Credentials {
            key: Key::new(machine.namespace(), &join::secret_name(machine.name())),
            owner: machine,
            cluster: Some(cluster),
            host: Some(host),
            kubelet: kubelet_configs(config),
            settings: Kubelet::default(),
        };
        join::ensure(&self.stock, &endpoint, credentials).await.map(|()| true)
    }

    /// Says why a machine has no host; false if that could not be written now.
    async fn tell(&self, key: &Key, message: &str) -> bool {
        let Some(machine) = self.stock.machines.get(key) else { return true };
        let condition = Condition::fails(names::machine::HOST_READY, names::machine::HOSTS_UNAVAILABLE, message);
        let known = millpond_api::condition::find(&machine.status.conditions, names::machine::HOST_READY);
        if known.is_some_and(|known| known.reason == condition.reason) {
            if known.is_some_and(|known| known.message == condition.message) {
                return true;
            }
            if !self.waiting.may_tell(key, Instant::now()) {
                return false;
            }
        }
        let mut status = machine.status.clone();
        let generation = machine.metadata.generation.unwrap_or_default();
        Conditions::new(&mut status.conditions, &[], generation, self.stock.now()).set(condition);
        let Some(patch) = status_patch(&*machine, Some(&machine.status), &status) else { return true };
        self.stock.machines.patch_status(key, &patch).await.is_ok()
    }
}

/// Requests with the number of the host that each got.
fn placed<'p>(pools: &'p Pools, outcome: &'p Outcome) -> impl Iterator<Item = (usize, usize)> {
    let of_pools = outcome.hosts.iter().zip(&pools.requests);
    of_pools.flat_map(|(hosts, requests)| {
        hosts.iter().zip(requests).filter_map(|(host, request)| Some((*request, (*host)? as usize)))
    })
}

/// The claim of a host, on condition that the host is as it was read.
pub(crate) fn claim_patch(
    host: &ByoHost,
    machine: &Key,
    joining: &Joining,
    now: millpond_api::time::Time,
) -> serde_json::Value {
    let secret = |name: String| ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: machine.namespace.clone(),
        name,
        ..ObjectReference::default()
    };
    let bootstrap = match joining.mode {
        JoinMode::Kubeadm => joining.data_secret.clone().map(secret),
        JoinMode::TlsBootstrap => Some(secret(join::secret_name(&machine.name))),
    };
    let epoch = host.view().next_epoch();
    let claim = Claim {
        machine_uid: joining.uid.clone(),
        namespace: machine.namespace.clone(),
        name: machine.name.clone(),
        epoch,
        since: Some(now),
    };
    let mut finalizers = host.finalizers().to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == names::HOST_FINALIZER) {
        finalizers.push(names::HOST_FINALIZER.to_owned());
    }
    // Labels are replaced as a whole: what an earlier machine set must not reach the next Node.
    let stale = host.spec.labels.keys().filter(|key| !joining.labels.contains_key(*key));
    let mut labels: serde_json::Map<String, serde_json::Value> =
        stale.map(|key| (key.clone(), serde_json::Value::Null)).collect();
    labels.extend(joining.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    json!({
        "metadata": {
            "resourceVersion": host.metadata.resource_version,
            "finalizers": finalizers,
            "labels": {
                names::CLUSTER_NAME: joining.cluster,
                names::BYO_MACHINE: label_value(&format!("{}.{}", machine.namespace, machine.name)),
            },
        },
        "spec": {
            "claim": claim,
            "epoch": epoch,
            "bootstrapSecret": bootstrap,
            "installationSecret": joining.installation,
            "joinMode": joining.mode,
            "downloadMode": joining.download_mode,
            "kubernetesVersion": Some(&joining.version).filter(|version| !version.is_empty()),
            "manageKubeProxy": joining.manage_kube_proxy.then_some(true),
            "labels": labels,
            "taints": Some(&joining.taints).filter(|taints| !taints.is_empty()),
        },
    })
}

/// As much of a text as the value of a label can have.
pub(crate) fn label_value(text: &str) -> String {
    const LIMIT_VALUE: usize = 63;
    let cut = &text[..text.len().min(LIMIT_VALUE)];
    cut.trim_end_matches(|end: char| !end.is_ascii_alphanumeric()).to_owned()
}
