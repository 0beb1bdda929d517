//! ByoMachines: from references to a host that is a Node, and back.
//!
//! ```text
//!   owner, cluster ready ─▶ references ─▶ bootstrap data ─▶ installer ─▶ waits for a host (assign)
//!                                                                           │ claimed
//!   provisioned ◀─ Node with the provider ID ◀─ plan applied ◀──────────────┘
//!        │ deleted                    └── failed and reset: released, back-off, waits again
//!        ▼
//!   released ─▶ agent resets ─▶ host free or quarantined ─▶ finalizer removed
//! ```

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use millpond_api::byoh::{self, ByoMachineStatus, JoinMode, names};
use millpond_api::capi::{self, names::PAUSED};
use millpond_api::condition::Conditions;
use millpond_api::karpenter::Taint;
use millpond_api::meta::Condition;
use millpond_runtime::error::Result;
use millpond_runtime::kinds::Kind;
use millpond_runtime::meta::{Key, annotation, controller_reference, is_leaving, status_patch};
use millpond_runtime::queue::Queue;
use millpond_runtime::worker::Reconcile;
use serde_json::json;

use crate::assign::{Joining, Waiting, WaitingMachines};
use crate::inventory::{Request, requirements};
use crate::join;
use crate::kinds::{ByoHost, ByoMachine, Cluster, K8sInstallerConfig, Machine};
use crate::nodes;
use crate::secrets;
use crate::state::{phase, phase_of_claim};
use crate::stock::{Stock, enqueue, infrastructure_of, pool_of};
use crate::text::{is, text};

/// Bootstraps of a machine that failed in a row, and when the last one did: `2 2026-11-16T04:30:00Z` (annotation).
pub(crate) const FAILURES: &str = "millpond.dev/bootstrap-failures";
/// First wait after a failed bootstrap; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// Longest wait after a failed bootstrap.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// A Secret that is not there is looked for again: Secrets are not watched.
const SECRET_AGAIN: Duration = Duration::from_secs(5);

/// Keeps ByoMachines.
pub(crate) struct Machines {
    stock: Arc<Stock>,
    waiting: Arc<WaitingMachines>,
}

/// What keeps a machine from going on.
struct Blocked {
    reason: &'static str,
    message: String,
    /// When to look again, where no watch tells.
    again: Option<Duration>,
    /// A reference leads nowhere.
    unresolved: bool,
}

impl Blocked {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), again: None, unresolved: false }
    }
}

/// What belongs to a machine that lives.
struct Belongings {
    owner: Arc<Machine>,
    cluster: Arc<Cluster>,
}

impl Machines {
    /// The controller, and the work queue that watches fill.
    pub(crate) fn new(stock: &Arc<Stock>, waiting: &Arc<WaitingMachines>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        enqueue(&stock.machines, &queue);
        listen(stock, &queue);
        let (stock, waiting) = (Arc::clone(stock), Arc::clone(waiting));
        (Arc::new(Self { stock, waiting }), queue)
    }

    async fn live(&self, machine: Arc<ByoMachine>) -> Result<Option<Duration>> {
        let key = Key::of(&*machine);
        let Some(has) = self.belongings(&machine) else {
            self.waiting.remove(&key);
            return Ok(None);
        };
        if is_paused(&has.cluster, &machine) {
            self.waiting.remove(&key);
            let message = "the cluster or the machine is paused";
            let paused = Condition::fails(names::machine::HOST_READY, names::machine::PAUSED, message);
            return self.write(&machine, |_| {}, [paused]).await.map(|()| None);
        }
        let machine = self.hold(machine).await?;
        match self.stock.host_of(&machine) {
            Some(host) if host.spec.claim.as_ref().is_some_and(|claim| claim.machine_uid == machine.uid()) => {
                self.waiting.remove(&key);
                self.attached(&machine, &has, &host).await
            }
            // Released after a failed bootstrap, or by an administrator: once the host is free, the machine goes on.
            Some(_) => {
                self.waiting.remove(&key);
                Ok(None)
            }
            None if machine.spec.provider_id.is_some() => self.lost(&machine).await,
            None => self.prepare(&machine, &has).await,
        }
    }

    fn belongings(&self, machine: &ByoMachine) -> Option<Belongings> {
        let owner = self.stock.owner_of(machine)?;
        let cluster = text(&owner.spec, &["clusterName"])?;
        let cluster = self.stock.clusters.get(&Key::new(machine.namespace(), cluster))?;
        Some(Belongings { owner, cluster })
    }

    async fn hold(&self, machine: Arc<ByoMachine>) -> Result<Arc<ByoMachine>> {
        if machine.finalizers().iter().any(|finalizer| finalizer == names::MACHINE_FINALIZER) {
            return Ok(machine);
        }
        let mut finalizers = machine.finalizers().to_vec();
        finalizers.push(names::MACHINE_FINALIZER.to_owned());
        let metadata = json!({"resourceVersion": machine.metadata.resource_version, "finalizers": finalizers});
        self.stock.machines.patch(&Key::of(&*machine), &json!({"metadata": metadata})).await
    }

    /// A machine without a host: it waits for one as soon as it has everything else.
    async fn prepare(&self, machine: &ByoMachine, has: &Belongings) -> Result<Option<Duration>> {
        let key = Key::of(machine);
        match self.needs(machine, has).await? {
            Ok(waiting) => {
                let resolved = Condition::holds(names::machine::REFS_RESOLVED);
                self.write(machine, |_| {}, [resolved]).await?;
                if let Some(wait) = self.wait_after_failure(machine) {
                    self.waiting.remove(&key);
                    return Ok(Some(wait));
                }
                self.waiting.insert(&key, waiting);
                Ok(None)
            }
            Err(Blocked { reason, message, again, unresolved }) => {
                self.waiting.remove(&key);
                let mut conditions = vec![Condition::fails(names::machine::HOST_READY, reason, message.clone())];
                if unresolved {
                    conditions.push(Condition::fails(names::machine::REFS_RESOLVED, reason, message));
                }
                self.write(machine, |_| {}, conditions).await.map(|()| again)
            }
        }
    }

    async fn needs(&self, machine: &ByoMachine, has: &Belongings) -> Result<Result<Waiting, Blocked>> {
        let selector = match requirements(&machine.spec) {
            Ok(selector) => selector,
            Err(invalid) => {
                return Ok(Err(Blocked::new("InvalidSelector", format!("spec.selector.{invalid}"))));
            }
        };
        if !is_provisioned(&has.cluster) {
            let message = format!("the infrastructure of cluster {} is not ready", has.cluster.name());
            return Ok(Err(Blocked::new(names::machine::WAITING_FOR_CLUSTER, message)));
        }
        let mut joining = self.joining(machine, has);
        if let Err(blocked) = self.bootstrap(machine, has, &mut joining).await? {
            return Ok(Err(blocked));
        }
        match self.installer(machine).await? {
            Ok(installation) => joining.installation = installation,
            Err(blocked) => return Ok(Err(blocked)),
        }
        let mut selector = selector;
        if let Some(domain) = text(&has.owner.spec, &["failureDomain"]) {
            selector.push(millpond_plan::matching::Requirement::equals(names::ZONE, domain));
        }
        let request = Request {
            namespace: machine.namespace().to_owned(),
            machine: machine.name().to_owned(),
            pool: pool_of(&has.owner),
            selector,
            needs: machine.spec.capacity_requirements.0.clone(),
            promised: None,
        };
        Ok(Ok(Waiting { request, joining }))
    }

    fn joining(&self, machine: &ByoMachine, has: &Belongings) -> Joining {
        let view = capi::Machine::of(&has.owner.spec, &has.owner.status).spec;
        let taint = |taint: &capi::MachineTaint| {
            let effect = serde_json::from_value(json!(taint.effect)).ok()?;
            Some(Taint { key: taint.key.clone(), value: taint.value.clone(), effect })
        };
        let version = &machine.spec.kubernetes_version;
        Joining {
            uid: machine.uid().to_owned(),
            cluster: has.cluster.name().to_owned(),
            mode: machine.spec.join_mode.unwrap_or_default(),
            download_mode: machine.spec.download_mode,
            version: if version.is_empty() { view.version.clone().unwrap_or_default() } else { version.clone() },
            manage_kube_proxy: machine.spec.manage_kube_proxy,
            labels: nodes::labels(&has.owner),
            taints: view.taints.iter().filter_map(taint).collect(),
            ..Joining::default()
        }
    }

    /// Bootstrap data, or a BootstrapKubeconfig that makes them.
    async fn bootstrap(
        &self,
        machine: &ByoMachine,
        has: &Belongings,
        joining: &mut Joining,
    ) -> Result<Result<(), Blocked>> {
        let namespace = machine.namespace();
        let waits = |message: String| Blocked::new(names::machine::WAITING_FOR_BOOTSTRAP_DATA, message);
        match (&machine.spec.bootstrap_config_ref, joining.mode) {
            (None, JoinMode::TlsBootstrap) => {
                return Ok(Err(unresolved("joinMode tlsBootstrap needs spec.bootstrapConfigRef")));
            }
            (None, JoinMode::Kubeadm) => {}
            (Some(reference), _) => {
                let config = match self.resolve(reference, namespace, "BootstrapKubeconfig", "bootstrapConfigRef") {
                    Ok(key) => key,
                    Err(blocked) => return Ok(Err(blocked)),
                };
                let Some(found) = self.stock.bootstrap.get(&config) else {
                    return Ok(Err(unresolved(format!(
                        "bootstrapConfigRef: BootstrapKubeconfig {config} does not exist"
                    ))));
                };
                if joining.mode == JoinMode::TlsBootstrap {
                    if let Err(why) = join::endpoint(&self.stock, &config.namespace, &found.spec).await? {
                        return Ok(Err(waits(format!("BootstrapKubeconfig {config}: {why}"))));
                    }
                    joining.kubeconfig = Some(config);
                    return Ok(Ok(()));
                }
            }
        }
        let Some(secret) = text(&has.owner.spec, &["bootstrap", "dataSecretName"]) else {
            return Ok(Err(waits(format!("Machine {} has no bootstrap.dataSecretName yet", has.owner.name()))));
        };
        if secrets::get(&self.stock.client, &Key::new(namespace, secret)).await?.is_none() {
            let message = format!("the Secret {namespace}/{secret} does not exist");
            return Ok(Err(Blocked { again: Some(SECRET_AGAIN), ..waits(message) }));
        }
        joining.data_secret = Some(secret.to_owned());
        Ok(Ok(()))
    }

    fn resolve(
        &self,
        reference: &byoh::ObjectReference,
        namespace: &str,
        kind: &str,
        field: &str,
    ) -> Result<Key, Blocked> {
        let resolved = reference.resolve(namespace).map_err(|error| unresolved(format!("{field}: {error}")))?;
        if resolved.group != byoh::GROUP || resolved.kind != kind {
            let message = format!("{field}: {} of group `{}` is no {kind}", resolved.kind, resolved.group);
            return Err(unresolved(message));
        }
        Ok(Key::new(&resolved.namespace, &resolved.name))
    }

    /// The Secret with the installation scripts of a machine, made from the template that it names.
    async fn installer(&self, machine: &ByoMachine) -> Result<Result<Option<byoh::ObjectReference>, Blocked>> {
        let Some(reference) = &machine.spec.installer_ref else { return Ok(Ok(None)) };
        let template = match self.resolve(reference, machine.namespace(), "K8sInstallerConfigTemplate", "installerRef")
        {
            Ok(template) => template,
            Err(blocked) => return Ok(Err(blocked)),
        };
        let Some(template) = self.stock.installer_templates.get(&template) else {
            let message = format!("installerRef: K8sInstallerConfigTemplate {template} does not exist");
            return Ok(Err(unresolved(message)));
        };
        let waits = Blocked::new(names::machine::INSTALLATION_SECRET, "the Secret with installation scripts is made");
        let Some(config) = self.stock.installers.get(&Key::of(machine)) else {
            let metadata = kube::api::ObjectMeta {
                name: Some(machine.name().to_owned()),
                namespace: Some(machine.namespace().to_owned()),
                owner_references: Some(vec![controller_reference(machine)]),
                ..kube::api::ObjectMeta::default()
            };
            let config = K8sInstallerConfig::new(metadata, template.spec.template.spec.clone());
            return match self.stock.installers.create(&config).await {
                Err(error) if !error.is_already_exists() => Err(error),
                _ => Ok(Err(waits)),
            };
        };
        Ok(match &config.status.installation_secret {
            Some(secret) if config.status.ready => Ok(Some(secret.clone())),
            _ => Err(waits),
        })
    }

    /// Time that a machine still waits after its bootstrap failed.
    fn wait_after_failure(&self, machine: &ByoMachine) -> Option<Duration> {
        let (count, last) = failures(machine)?;
        let wait = FIRST_WAIT.saturating_mul(1 << count.saturating_sub(1).min(16)).min(LONGEST_WAIT);
        let due = last.saturating_add(jiff::SignedDuration::try_from(wait).unwrap_or(jiff::SignedDuration::MAX));
        let left = self.stock.options.clock.until(due.unwrap_or(Timestamp::MAX));
        (!left.is_zero()).then_some(left)
    }

    /// A machine with a host: on its way to a Node, or one.
    async fn attached(&self, machine: &ByoMachine, has: &Belongings, host: &ByoHost) -> Result<Option<Duration>> {
        let view = host.view();
        let waits =
            |message: String| Condition::fails(names::machine::HOST_READY, names::machine::WAITING_FOR_NODE, message);
        match phase_of_claim(&view) {
            phase::RESET | phase::RESET_FAILED => self.failed(machine, host).await,
            phase::FAILED | phase::RESETTING => {
                let (reason, message) = failure(host);
                let failed = Condition::fails(names::host::BOOTSTRAPPED, &reason, message.clone());
                let waits = waits(format!("the bootstrap failed on host {}: {message}", host.name()));
                self.write(machine, |_| {}, [failed, waits]).await.map(|()| None)
            }
            phase::APPLIED => self.join_node(machine, has, host).await,
            _ => {
                let begun = host.spec.claim.as_ref().and_then(|claim| claim.since);
                let mut conditions = vec![waits(format!("host {} joins", host.name()))];
                if let Some(wrong) = missing_data(host) {
                    conditions.push(wrong);
                }
                self.write(machine, |status| status.last_bootstrap_timestamp = begun, conditions).await.map(|()| None)
            }
        }
    }

    /// The bootstrap failed, and the agent has taken everything back: the host is free for others, the machine tries
    /// again after a while.
    async fn failed(&self, machine: &ByoMachine, host: &ByoHost) -> Result<Option<Duration>> {
        let (reason, message) = failure(host);
        let key = Key::of(machine);
        let epoch = host.spec.claim.as_ref().map_or(0, |claim| claim.epoch);
        let count = failures(machine).map_or(0, |(count, _)| count) + 1;
        let note = format!("bootstrap {count} failed on host {}: {message}", host.name());
        tracing::info!(machine = %key, host = host.name(), epoch, count, "a bootstrap failed");
        self.stock.record(machine, "BootstrapFailed", true, note.clone());
        let conditions = [
            Condition::fails(names::host::BOOTSTRAPPED, &reason, message),
            Condition::fails(names::machine::HOST_READY, names::machine::WAITING_FOR_NODE, note),
        ];
        self.write(machine, |_| {}, conditions).await?;
        let failures = format!("{count} {}", self.stock.options.clock.time().0);
        self.stock.machines.patch(&key, &json!({"metadata": {"annotations": {FAILURES: failures}}})).await?;
        join::revoke(&self.stock, &Key::new(&key.namespace, &join::secret_name(&key.name))).await?;
        self.stock.release(host).await?;
        Ok(None)
    }

    /// The plan is applied: the host becomes the Node of its name.
    async fn join_node(&self, machine: &ByoMachine, has: &Belongings, host: &ByoHost) -> Result<Option<Duration>> {
        let (key, name) = (Key::of(machine), host.name());
        let bootstrapped = Condition::holds(names::host::BOOTSTRAPPED);
        let Some(node) = self.stock.nodes.get(&Key::new("", name)) else {
            let message = format!("host {name} has started kubelet; no Node {name} exists yet");
            let waits = Condition::fails(names::machine::HOST_READY, names::machine::WAITING_FOR_NODE, message);
            return self.write(machine, |_| {}, [waits]).await.map(|()| None);
        };
        let id = names::provider_id(name);
        let present = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
        if !present.is_empty() && names::host_of_provider_id(&present) != Some(name) {
            let message = format!("Node {name} has the provider ID {present}, not {id}: it is another machine's");
            let waits = Condition::fails(names::machine::HOST_READY, names::machine::WAITING_FOR_NODE, message);
            return self.write(machine, |_| {}, [waits]).await.map(|()| None);
        }
        if let Some(patch) = nodes::sync(&node, host, &has.owner) {
            self.stock.nodes.patch(&Key::new("", name), &patch).await?;
        }
        if machine.spec.provider_id.as_deref() != Some(id.as_str()) {
            self.stock.machines.patch(&key, &json!({"spec": {"providerID": id}})).await?;
            join::revoke(&self.stock, &Key::new(&key.namespace, &join::secret_name(&key.name))).await?;
            let note = format!("host {name} is Node {name}");
            self.stock.record(machine, "NodeJoined", false, note);
        }
        if failures(machine).is_some() {
            self.stock.machines.patch(&key, &json!({"metadata": {"annotations": {FAILURES: null}}})).await?;
        }
        let Some(machine) = self.stock.machines.get(&key) else { return Ok(None) };
        let joined = |status: &mut ByoMachineStatus| {
            status.initialization.provisioned = Some(true);
            status.ready = true;
            status.node_ref = Some(nodes::reference(&node));
            status.addresses = nodes::addresses(host);
            status.host_info.clone_from(&host.status.host_info);
            status.failure_domain = host.label(names::ZONE).unwrap_or_default().to_owned();
        };
        let ready = Condition::holds(names::machine::HOST_READY);
        self.write(&machine, joined, [ready, bootstrapped]).await.map(|()| None)
    }

    /// The host of a machine that was a Node was taken away. Such a machine never comes back; its owner replaces it.
    async fn lost(&self, machine: &ByoMachine) -> Result<Option<Duration>> {
        let message = format!("host {} was taken from the machine", machine.status.host);
        let lost = Condition::fails(names::machine::HOST_READY, "HostLost", message.clone());
        let failed = |status: &mut ByoMachineStatus| {
            "HostLost".clone_into(&mut status.failure_reason);
            status.failure_message.clone_from(&message);
            status.ready = false;
        };
        self.write(machine, failed, [lost]).await.map(|()| None)
    }

    /// A machine that is being deleted.
    async fn leave(&self, machine: &ByoMachine) -> Result<Option<Duration>> {
        let key = Key::of(machine);
        self.waiting.remove(&key);
        if let Some(host) = self.stock.host_of(machine) {
            if host.spec.claim.as_ref().is_some_and(|claim| claim.machine_uid == machine.uid()) {
                if !machine.status.cleanup_started {
                    let patch = json!({"status": {"cleanupStarted": true, "ready": false}});
                    self.stock.machines.patch_status(&key, &patch).await?;
                }
                self.stock.release(&host).await?;
                return Ok(None);
            }
            if let Some(left) = self.stock.lease_left(&host).filter(|left| !left.is_zero()) {
                // The agent resets the host. If it falls silent meanwhile, the machine goes without it.
                return Ok(Some(left));
            }
            let note = format!(
                "host {} does not answer: it is reset when it comes back, and used by nothing before",
                host.name()
            );
            tracing::warn!(machine = %key, host = host.name(), "releases a host that does not answer");
            self.stock.record(machine, "ForcedRelease", true, note);
            self.stock.delete_node(host.name()).await?;
        }
        join::revoke(&self.stock, &Key::new(&key.namespace, &join::secret_name(&key.name))).await?;
        let finalizers: Vec<&String> =
            machine.finalizers().iter().filter(|finalizer| *finalizer != names::MACHINE_FINALIZER).collect();
        if finalizers.len() < machine.finalizers().len() {
            let metadata = json!({"resourceVersion": machine.metadata.resource_version, "finalizers": finalizers});
            self.stock.machines.patch(&key, &json!({"metadata": metadata})).await?;
        }
        Ok(None)
    }

    /// Writes what changed of the status.
    async fn write(
        &self,
        machine: &ByoMachine,
        change: impl FnOnce(&mut ByoMachineStatus),
        conditions: impl IntoIterator<Item = Condition>,
    ) -> Result<()> {
        let key = Key::of(machine);
        let Some(machine) = self.stock.machines.get(&key) else { return Ok(()) };
        let mut status = machine.status.clone();
        change(&mut status);
        let generation = machine.metadata.generation.unwrap_or_default();
        let mut list = Conditions::new(&mut status.conditions, &[], generation, self.stock.now());
        for condition in conditions {
            list.set(condition);
        }
        match status_patch(&*machine, Some(&machine.status), &status) {
            Some(patch) => self.stock.machines.patch_status(&key, &patch).await.map(drop),
            None => Ok(()),
        }
    }
}

impl Reconcile for Machines {
    const NAME: &'static str = "byomachine";

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        match self.stock.machines.get(key) {
            None => {
                self.waiting.remove(key);
                Ok(None)
            }
            Some(machine) if is_leaving(&*machine) => self.leave(&machine).await,
            Some(machine) => self.live(machine).await,
        }
    }
}

/// Asks for work on machines when what they stand on changes.
fn listen(stock: &Arc<Stock>, queue: &Arc<Queue<Key>>) {
    let own = Arc::clone(queue);
    stock.capi_machines.on_change(move |before, after| {
        if let Some(machine) = after.or(before)
            && let Some(name) = infrastructure_of(machine)
        {
            own.add(Key::new(machine.namespace(), name));
        }
    });
    let own = Arc::clone(queue);
    stock.hosts.on_change(move |before, after| {
        for host in [before, after].into_iter().flatten() {
            if let Some(claim) = &host.spec.claim {
                own.add(Key::new(&claim.namespace, &claim.name));
            }
            if let Some(held) = &host.status.machine_ref {
                own.add(Key::new(&held.namespace, &held.name));
            }
        }
    });
    let (own, shared) = (Arc::clone(queue), Arc::downgrade(stock));
    stock.nodes.on_change(move |before, after| {
        let Some(node) = after.or(before) else { return };
        let host = shared.upgrade().and_then(|stock| stock.host(&node.name_any()));
        if let Some(claim) = host.and_then(|host| host.spec.claim.clone()) {
            own.add(Key::new(&claim.namespace, &claim.name));
        }
    });
    let own = Arc::clone(queue);
    stock.installers.on_change(move |_, after| {
        // An installer is called like its machine.
        if let Some(installer) = after {
            own.add(Key::of(&**installer));
        }
    });
    wake_all(stock, &stock.bootstrap, queue);
    wake_all(stock, &stock.installer_templates, queue);
    wake_all(stock, &stock.clusters, queue);
}

/// Asks for work on all machines of a namespace when an object of some kind changes there.
fn wake_all<K: Kind>(stock: &Arc<Stock>, mirror: &Arc<millpond_runtime::mirror::Mirror<K>>, queue: &Arc<Queue<Key>>) {
    let (own, shared) = (Arc::clone(queue), Arc::downgrade(stock));
    mirror.on_change(move |before, after| {
        let (Some(stock), Some(object)) = (shared.upgrade(), after.or(before)) else { return };
        let namespace = Key::of(&**object).namespace;
        stock.machines.list_in(&namespace).iter().for_each(|machine| own.add(Key::of(&**machine)));
    });
}

fn is_paused(cluster: &Cluster, machine: &ByoMachine) -> bool {
    capi::Cluster::of(&cluster.spec).paused || annotation(machine, PAUSED).is_some()
}

fn is_provisioned(cluster: &Cluster) -> bool {
    is(&cluster.status, &["initialization", "infrastructureProvisioned"])
        || is(&cluster.status, &["infrastructureReady"])
}

fn unresolved(message: impl Into<String>) -> Blocked {
    Blocked { unresolved: true, ..Blocked::new(names::machine::REFERENCE_NOT_FOUND, message) }
}

fn failures(machine: &ByoMachine) -> Option<(u32, Timestamp)> {
    let (count, last) = annotation(machine, FAILURES)?.split_once(' ')?;
    Some((count.parse().ok()?, last.parse().ok()?))
}

/// Why the bootstrap of a host failed: the agent's condition, or its plan.
fn failure(host: &ByoHost) -> (String, String) {
    let failed = [names::host::INSTALLED, names::host::BOOTSTRAPPED]
        .iter()
        .filter_map(|kind| millpond_api::condition::find(&host.status.conditions, kind))
        .find(|condition| condition.is_false() && condition.reason != names::host::WAITING_FOR_MACHINE);
    let of_plan = host.status.plan.as_ref().map(|plan| plan.message.clone()).unwrap_or_default();
    match failed {
        Some(failed) => {
            let message = if failed.message.is_empty() { of_plan } else { failed.message.clone() };
            (failed.reason.clone(), message)
        }
        None => (names::host::CLOUD_INIT_FAILED.to_owned(), of_plan),
    }
}

/// What the agent misses before it can begin.
fn missing_data(host: &ByoHost) -> Option<Condition> {
    let condition = millpond_api::condition::find(&host.status.conditions, names::host::BOOTSTRAPPED)?;
    let waits = [names::host::BOOTSTRAP_SECRET_UNAVAILABLE, names::host::INSTALLATION_SECRET_UNAVAILABLE];
    (condition.is_false() && waits.contains(&condition.reason.as_str()))
        .then(|| Condition::fails(names::host::BOOTSTRAPPED, &condition.reason, condition.message.clone()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn failures_are_counted_in_an_annotation() {
        let mut machine = ByoMachine::new(kube::api::ObjectMeta::default(), byoh::ByoMachineSpec::default());
        assert_eq!(failures(&machine), None);
        let noted = BTreeMap::from([(FAILURES.to_owned(), "2 2026-01-01T00:00:00Z".to_owned())]);
        machine.metadata.annotations = Some(noted);
        assert_eq!(failures(&machine), Some((2, "2026-01-01T00:00:00Z".parse().unwrap())));
    }
}
