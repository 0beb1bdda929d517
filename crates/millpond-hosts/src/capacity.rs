//! How far pools of own hosts can grow, and what their next node offers, inferred from the hosts that match.
//!
//! Autoscalers plan with machines that are not there. For pools on clouds a template says what such a machine has; a
//! pool of own hosts gets whatever host matches. So the least that all matching hosts have is published twice: in
//! `status.capacity` of the template, which Cluster API's autoscaler reads, and as annotations of the MachineDeployments.
//! Annotations that administrators wrote are theirs. The number of hosts that a pool could still get bounds its size.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use millpond_api::amounts;
use millpond_api::byoh::{self, ByoMachineSpec, ByoMachineTemplateStatus, NodeInfo, TemplateCapacity};
use millpond_api::capi::{self, names as capi_names, node_group};
use millpond_plan::matching::{Availability, Inventory, Pool, WaitingMachine, match_hosts};
use millpond_runtime::error::Result;
use millpond_runtime::meta::{Key, annotation, is_leaving, status_patch};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::hosts::life;
use crate::inventory::{self, PoolSettings, Pools, Request, requirements};
use crate::kinds::{ByoMachine, ByoMachineTemplate, MachineDeployment};
use crate::stock::{Stock, pool_of};

/// Changes that come together are looked at together.
const GATHER: Duration = Duration::from_millis(100);
/// Wait before a failed write is repeated.
const AGAIN: Duration = Duration::from_secs(2);
/// Annotations of a MachineDeployment that were inferred, with their values: what an administrator changes is theirs.
const INFERRED: &str = "millpond.dev/inferred-capacity";
/// Machines beyond this are not asked for: no stock is larger.
const LIMIT_ASKED: usize = 100_000;

/// What a node of a pool offers, as far as hosts show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inferred {
    /// The least of each resource that all matching hosts have.
    pub capacity: BTreeMap<String, i64>,
    /// Architecture and operating system, where all are the same.
    pub node_info: NodeInfo,
    /// Free hosts that match.
    pub free: i64,
    /// Hosts that match, free or not.
    pub matching: i64,
}

/// Infers what a node offers from the hosts that a machine could get: free ones, or all where none is free.
pub fn infer(inventory: &Inventory, hosts: &[byoh::ByoHost], spec: &ByoMachineSpec) -> Inferred {
    let Ok(selector) = requirements(spec) else { return Inferred::default() };
    let pool = Pool { selector, needs: spec.capacity_requirements.0.clone(), ..Pool::default() };
    let suits = |host: &usize| {
        let labels = pool.selector.iter().all(|one| one.holds(inventory.label(*host, &one.key)));
        labels && pool.needs.iter().all(|(resource, amount)| inventory.amount(*host, resource) >= *amount)
    };
    let matching: Vec<usize> = (0..hosts.len()).filter(suits).collect();
    let of = |keep: &dyn Fn(&Availability) -> bool| -> Vec<usize> {
        matching.iter().copied().filter(|host| keep(&inventory.hosts[*host].availability)).collect()
    };
    let free = of(&|availability| *availability == Availability::Free);
    let used = if free.is_empty() { of(&|availability| may_come_back(availability)) } else { free.clone() };
    let mut inferred = Inferred { free: free.len() as i64, matching: matching.len() as i64, ..Inferred::default() };
    let mut capacities = used.iter().map(|host| inventory::capacity(&hosts[*host]).0);
    if let Some(mut least) = capacities.next() {
        for other in capacities {
            least.retain(|resource, _| other.contains_key(resource));
            least.iter_mut().for_each(|(resource, amount)| *amount = (*amount).min(other[resource]));
        }
        inferred.capacity = least;
    }
    let same = |value: &dyn Fn(&byoh::ByoHost) -> String| {
        let values: BTreeSet<String> = used.iter().map(|host| value(&hosts[*host])).collect();
        if values.len() == 1 { values.into_iter().next().unwrap_or_default() } else { String::new() }
    };
    inferred.node_info = NodeInfo {
        architecture: same(&|host| host.status.host_info.architecture.clone()),
        operating_system: same(&|host| host.status.host_info.os_name.clone()),
    };
    inferred
}

/// Whether a host that is not free may serve the pool later.
fn may_come_back(availability: &Availability) -> bool {
    !matches!(
        availability,
        Availability::Registering | Availability::Quarantined { .. } | Availability::Deleting | Availability::Retired
    )
}

/// How many more machines a pool could get after all waiting machines have a host.
pub fn matchable(inventory: &Inventory, waiting: &Pools, pool: &Pool) -> usize {
    let mut pools = waiting.pools.clone();
    let asked = LIMIT_ASKED.min(inventory.hosts.len());
    let extra = Pool {
        // After every machine that waits, whatever its pool.
        priority: i32::MIN,
        minimum: 0,
        machines: vec![WaitingMachine::default(); asked],
        ..pool.clone()
    };
    pools.push(extra);
    let outcome = match_hosts(inventory, &pools);
    outcome.hosts.last().map_or(0, |hosts| hosts.iter().flatten().count())
}

/// Machines of a pool that get a host now, among all that wait.
pub fn placed(inventory: &Inventory, waiting: &Pools, name: &str) -> usize {
    let outcome = match_hosts(inventory, &waiting.pools);
    let of_pool = waiting.pools.iter().zip(&outcome.hosts).filter(|(pool, _)| pool.name == name);
    of_pool.map(|(_, hosts)| hosts.iter().flatten().count()).sum()
}

/// Publishes what is inferred.
pub(crate) struct Capacity {
    stock: Arc<Stock>,
    changed: Arc<Notify>,
}

impl Capacity {
    pub(crate) fn new(stock: &Arc<Stock>) -> Self {
        let changed = Arc::new(Notify::new());
        macro_rules! listen {
            ($($mirror:ident),+) => {$(
                let own = Arc::clone(&changed);
                stock.$mirror.on_change(move |_, _| own.notify_one());
            )+};
        }
        listen!(hosts, templates, deployments, machines);
        let own = Arc::clone(&changed);
        stock.heartbeats.on_change(move |_| own.notify_one());
        Self { stock: Arc::clone(stock), changed }
    }

    /// Publishes after every change until the token is cancelled.
    pub(crate) async fn run(self, token: CancellationToken) {
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                () = self.changed.notified() => {}
            }
            tokio::time::sleep(GATHER).await;
            if let Err(error) = self.publish().await {
                if !error.is_expected() {
                    tracing::warn!(%error, cause = error.cause(), "capacity of own hosts could not be published");
                }
                tokio::time::sleep(AGAIN).await;
                self.changed.notify_one();
            }
        }
    }

    async fn publish(&self) -> Result<()> {
        let templates = self.stock.templates.list();
        let namespaces: BTreeSet<&str> = templates.iter().map(|template| template.namespace()).collect();
        for namespace in namespaces {
            let hosts: Vec<_> = self.stock.hosts.list_in(namespace);
            let views: Vec<byoh::ByoHost> = hosts.iter().map(|host| host.view()).collect();
            let lives: Vec<_> = hosts.iter().map(|host| life(&self.stock, host)).collect();
            let inventory = inventory::inventory(views.iter().zip(lives));
            let waiting = self.waiting(namespace);
            let deployments = self.stock.deployments.list_in(namespace);
            for template in templates.iter().filter(|template| template.namespace() == namespace) {
                let inferred = infer(&inventory, &views, &template.spec.template.spec);
                self.write_template(template, &inferred).await?;
                for deployment in deployments.iter().filter(|one| is_of(one, template.name())) {
                    let given = placed(&inventory, &waiting, deployment.name());
                    let more = matchable(&inventory, &waiting, &pool(&template.spec.template.spec));
                    self.write_deployment(deployment, template, &inferred, given + more).await?;
                }
            }
        }
        Ok(())
    }

    /// Machines without a host, as pools.
    fn waiting(&self, namespace: &str) -> Pools {
        let request = |machine: &Arc<ByoMachine>| {
            let is_waiting = self.stock.host_of(machine).is_none() && machine.spec.provider_id.is_none();
            let owner = self.stock.owner_of(machine).filter(|_| is_waiting && !is_leaving(&**machine))?;
            Some(Request {
                namespace: namespace.to_owned(),
                machine: machine.name().to_owned(),
                pool: pool_of(&owner),
                selector: requirements(&machine.spec).ok()?,
                needs: machine.spec.capacity_requirements.0.clone(),
                promised: None,
            })
        };
        let requests: Vec<Request> = self.stock.machines.list_in(namespace).iter().filter_map(request).collect();
        Pools::of(&requests, |_| PoolSettings::default(), |_| Vec::new())
    }

    async fn write_template(&self, template: &ByoMachineTemplate, inferred: &Inferred) -> Result<()> {
        let mut status = ByoMachineTemplateStatus {
            capacity: inferred
                .capacity
                .iter()
                .map(|(name, amount)| (name.clone(), amounts::write(name, *amount)))
                .collect(),
            node_info: Some(inferred.node_info.clone()).filter(|info| *info != NodeInfo::default()),
            matching_hosts: Some(inferred.free),
            conditions: template.status.conditions.clone(),
        };
        if let Some(given) = &template.spec.capacity {
            for (resource, text) in given_capacity(given) {
                status.capacity.insert(resource, text);
            }
        }
        match status_patch(template, Some(&template.status), &status) {
            Some(patch) => self.stock.templates.patch_status(&Key::of(template), &patch).await.map(drop),
            None => Ok(()),
        }
    }

    async fn write_deployment(
        &self,
        deployment: &MachineDeployment,
        template: &ByoMachineTemplate,
        inferred: &Inferred,
        more: usize,
    ) -> Result<()> {
        let replicas = deployment.spec["replicas"].as_u64().unwrap_or(0) as usize;
        // A pool that is larger than its hosts stays as it is: the autoscaler leaves pools beyond their bounds alone.
        let effective = (self.attached(deployment) + more).max(replicas);
        let scaled = deployment.annotations().contains_key(capi_names::MAX_SIZE);
        let wanted = if scaled { annotations(template, inferred) } else { BTreeMap::new() };
        let mut changes = changes(deployment.annotations(), &wanted);
        let effective = scaled.then(|| effective.to_string());
        if annotation(deployment, node_group::EFFECTIVE_MAX_SIZE) != effective.as_deref() {
            changes.insert(node_group::EFFECTIVE_MAX_SIZE.to_owned(), json!(effective));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "resourceVersion": deployment.metadata.resource_version, "annotations": changes,
        }});
        self.stock.deployments.patch(&Key::of(deployment), &patch).await.map(drop)
    }

    /// Machines of a deployment that hold a host.
    fn attached(&self, deployment: &MachineDeployment) -> usize {
        let machines = self.stock.machines.list_in(deployment.namespace());
        let is_attached = |machine: &&Arc<ByoMachine>| {
            let label = machine.labels().get(capi_names::DEPLOYMENT_NAME);
            label.is_some_and(|label| label == deployment.name()) && self.stock.host_of(machine).is_some()
        };
        machines.iter().filter(is_attached).count()
    }
}

fn pool(spec: &ByoMachineSpec) -> Pool {
    Pool {
        selector: requirements(spec).unwrap_or_default(),
        needs: spec.capacity_requirements.0.clone(),
        ..Pool::default()
    }
}

/// Whether the machines of a deployment are made from a template.
fn is_of(deployment: &MachineDeployment, template: &str) -> bool {
    let infrastructure = capi::Deployment::of(&deployment.spec).template.infrastructure;
    infrastructure.is_some_and(|reference| reference.kind == "ByoMachineTemplate" && reference.name == template)
}

/// Resources that a template gives by hand.
fn given_capacity(given: &TemplateCapacity) -> Vec<(String, String)> {
    let mut all = vec![
        ("cpu", &given.cpu),
        ("memory", &given.memory),
        ("ephemeral-storage", &given.ephemeral_disk),
        ("pods", &given.max_pods),
    ];
    if !given.gpu_type.is_empty() {
        all.push((&given.gpu_type, &given.gpu_count));
    }
    let given = all.into_iter().filter(|(_, text)| !text.is_empty());
    given.map(|(resource, text)| (resource.to_owned(), text.clone())).collect()
}

/// Annotations of the cluster-autoscaler that say what is inferred, or given by the template.
fn annotations(template: &ByoMachineTemplate, inferred: &Inferred) -> BTreeMap<&'static str, String> {
    let mut wanted = BTreeMap::new();
    let amount = |resource: &str| {
        inferred.capacity.get(resource).map(|amount| amounts::write(resource, *amount)).unwrap_or_default()
    };
    wanted.insert(capi_names::CAPACITY_CPU, amount("cpu"));
    wanted.insert(capi_names::CAPACITY_MEMORY, amount("memory"));
    let gpu = inferred.capacity.iter().find(|(resource, _)| resource.contains('/') && resource.ends_with("gpu"));
    if let Some((resource, count)) = gpu {
        wanted.insert(capi_names::CAPACITY_GPU_TYPE, resource.clone());
        wanted.insert(capi_names::CAPACITY_GPU_COUNT, count.to_string());
    }
    if let Some(given) = &template.spec.capacity {
        let all = [
            (capi_names::CAPACITY_CPU, &given.cpu),
            (capi_names::CAPACITY_MEMORY, &given.memory),
            (capi_names::CAPACITY_DISK, &given.ephemeral_disk),
            (capi_names::CAPACITY_PODS, &given.max_pods),
            (capi_names::CAPACITY_GPU_TYPE, &given.gpu_type),
            (capi_names::CAPACITY_GPU_COUNT, &given.gpu_count),
            (capi_names::CAPACITY_LABELS, &given.labels),
            (capi_names::CAPACITY_TAINTS, &given.taints),
            (capi_names::CAPACITY_CSI_DRIVER, &given.csi_drivers),
        ];
        wanted.extend(all.into_iter().filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key, text.clone())));
    }
    wanted.retain(|_, text| !text.is_empty());
    wanted
}

/// Changes of annotations: those of administrators stay, inferred ones follow.
fn changes(present: &BTreeMap<String, String>, wanted: &BTreeMap<&'static str, String>) -> Map<String, Value> {
    let before: BTreeMap<String, String> =
        present.get(INFERRED).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let is_ours = |key: &str| present.get(key).is_none_or(|value| before.get(key) == Some(value));
    let mut changes = Map::new();
    let mut ours = BTreeMap::new();
    for (key, value) in wanted.iter().filter(|(key, _)| is_ours(key)) {
        ours.insert((*key).to_owned(), value.clone());
        if present.get(*key) != Some(value) {
            changes.insert((*key).to_owned(), json!(value));
        }
    }
    for key in before.keys().filter(|key| !wanted.contains_key(key.as_str()) && is_ours(key)) {
        if present.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    if ours != before {
        let text = (!ours.is_empty()).then(|| serde_json::to_string(&ours).unwrap_or_default());
        changes.insert(INFERRED.to_owned(), json!(text));
    }
    changes
}

#[cfg(test)]
mod tests {
    use millpond_api::byoh::{ByoHost, LabelSelector};

    use super::*;
    use crate::state::Life;

    const ALIVE: Life = Life { deleting: false, alive: true, silent_s: 0, leaving: false, joined: false };

    fn host(name: &str, purpose: &str, cpus: i64, gpus: i64) -> ByoHost {
        let mut host = ByoHost::default();
        host.metadata.name = name.to_owned();
        host.metadata.labels.insert("purpose".to_owned(), purpose.to_owned());
        host.status.facts.cpu.threads = cpus;
        host.status.facts.memory.total_bytes = cpus << 32;
        host.status.capacity.0.insert("nvidia.com/gpu".to_owned(), gpus);
        host.status.capacity.0.retain(|_, amount| *amount > 0);
        host
    }

    fn spec(purpose: &str) -> ByoMachineSpec {
        let match_labels = BTreeMap::from([("purpose".to_owned(), purpose.to_owned())]);
        ByoMachineSpec {
            selector: Some(LabelSelector { match_labels, ..LabelSelector::default() }),
            ..ByoMachineSpec::default()
        }
    }

    #[test]
    fn the_least_of_all_matching_hosts_is_published() {
        let mut hosts = [host("a", "w", 8, 0), host("b", "w", 4, 1), host("c", "g", 16, 2), host("d", "w", 2, 0)];
        hosts[3].spec.quarantine = Some(millpond_api::byoh::Quarantine::default());
        let inventory = inventory::inventory(hosts.iter().map(|host| (host, ALIVE)));
        let worker = infer(&inventory, &hosts, &spec("w"));
        let expected = BTreeMap::from([("cpu".to_owned(), 4000), ("memory".to_owned(), 4 << 32)]);
        assert_eq!((worker.capacity, worker.free, worker.matching), (expected, 2, 3));
        let gpu = infer(&inventory, &hosts, &spec("g"));
        assert_eq!(gpu.capacity["nvidia.com/gpu"], 2);
        assert_eq!(infer(&inventory, &hosts, &spec("none")), Inferred::default());
        // Machines that wait come first.
        let request = |machine: &str, purpose| Request {
            machine: machine.into(),
            selector: requirements(&spec(purpose)).unwrap(),
            ..Request::default()
        };
        let waiting = Pools::of(&[request("m", "w")], |_| PoolSettings::default(), |_| Vec::new());
        assert_eq!(matchable(&inventory, &Pools::default(), &pool(&spec("w"))), 2);
        assert_eq!(matchable(&inventory, &waiting, &pool(&spec("w"))), 1);
        assert_eq!(matchable(&inventory, &waiting, &pool(&spec("g"))), 1);
    }

    #[test]
    fn annotations_of_administrators_stay() {
        let wanted = |cpu: &str| BTreeMap::from([(capi_names::CAPACITY_CPU, cpu.to_owned())]);
        let mut present = BTreeMap::new();
        let apply = |present: &mut BTreeMap<String, String>, changes: Map<String, Value>| {
            for (key, value) in changes {
                match value.as_str() {
                    Some(text) => drop(present.insert(key, text.to_owned())),
                    None => drop(present.remove(&key)),
                }
            }
        };
        let made = changes(&present, &wanted("4"));
        apply(&mut present, made);
        assert_eq!(present[capi_names::CAPACITY_CPU], "4");
        assert!(changes(&present, &wanted("4")).is_empty());
        let made = changes(&present, &wanted("8"));
        apply(&mut present, made);
        assert_eq!(present[capi_names::CAPACITY_CPU], "8", "an inferred value follows");
        present.insert(capi_names::CAPACITY_CPU.to_owned(), "2".to_owned());
        let made = changes(&present, &wanted("8"));
        apply(&mut present, made);
        assert_eq!(present[capi_names::CAPACITY_CPU], "2", "an administrator's value stays");
        assert!(changes(&present, &wanted("16")).is_empty());
    }
}
