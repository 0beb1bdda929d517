//! Why a machine has its host or none, what a host could serve, what a pool can grow to: as values with reasons, for the
//! command line and for scripts.

use std::collections::BTreeMap;

use millpond_api::byoh::{self, names};
use millpond_api::capi::{Problems, node_group};
use millpond_api::condition;
use millpond_plan::matching::{
    Availability, Explanation, Inventory, Outcome, Pool, Rejection, Requirement, WaitingMachine, explain, match_hosts,
    typed,
};
use serde::Serialize;

use crate::explain::reason;
use crate::inventory::{self, PoolSettings, Pools, Request, requirements};
use crate::kinds::{ByoHost, ByoMachine, ByoMachineTemplate, MachineDeployment};
use crate::state::availability;
use crate::world::World;

/// Why one host does not serve a machine, or that it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The host.
    pub host: String,
    /// From the closed list: `LabelMismatch`, `CapacityShort`, `Attached`, `Cleaning`, `LeaseExpired`, `Paused`,
    /// `Quarantined`, `Registering`, `Deleting`, `Retired`, `ReservedFor`, `SpreadLimit`, `Dearer`; or `Chosen`.
    pub reason: String,
    /// The rest, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Label or resource that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// What the host has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<String>,
}

impl Verdict {
    fn of(host: &str, rejection: &Rejection) -> Self {
        let text = rejection.to_string();
        let message = text.split_once(": ").map(|(_, message)| message.to_owned()).unwrap_or_default();
        let (key, wanted, present) = match rejection {
            Rejection::LabelMismatch { key, wanted, present } => {
                (Some(key.clone()), Some(wanted.clone()), present.clone())
            }
            Rejection::CapacityShort { resource, wanted, present } => {
                (Some(resource.clone()), Some(wanted.to_string()), Some(present.to_string()))
            }
            _ => (None, None, None),
        };
        Self { host: host.to_owned(), reason: reason(rejection), message, key, wanted, present }
    }
}

/// The smallest change of labels that would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FixReport {
    /// The host.
    pub host: String,
    /// As they are typed: `purpose=worker`, `rack-`.
    pub labels: Vec<String>,
    /// The command.
    pub command: String,
}

/// The suitable host that would have been taken next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerUp {
    /// The host.
    pub host: String,
    /// How much more it is worth than the one that was taken.
    pub dearer_by: i64,
}

/// Why a machine has its host or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineReport {
    /// The machine.
    pub machine: String,
    /// Its namespace.
    pub namespace: String,
    /// Its MachineDeployment; empty without one.
    pub pool: String,
    /// Labels of suitable hosts, as kubectl writes them.
    pub selector: String,
    /// The host that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The host that it would get now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_get: Option<String>,
    /// Reason of `BYOHostReady`, unless it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of that condition, and what else is to be known.
    pub notes: Vec<String>,
    /// Every host, with one reason.
    pub hosts: Vec<Verdict>,
    /// The next best host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<RunnerUp>,
    /// What would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<FixReport>,
    /// Other pools whose selector matches the chosen host.
    pub also_matched_by: Vec<String>,
}

/// What a host is for a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedPool {
    /// The pool.
    pub pool: String,
    /// Labels of suitable hosts.
    pub selector: String,
    /// Whether labels and capacity of the host suit the pool.
    pub matches: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Machines of the pool that wait for a host.
    pub waiting: usize,
    /// What to type so that the host suits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<FixReport>,
}

/// The properties of a host, the machine that holds it, and the pools that it suits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    /// The host.
    pub host: String,
    /// Its namespace.
    pub namespace: String,
    /// Where it is in its life.
    pub state: String,
    /// Why it cannot be given to a machine now; `None` if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Pool of the machine that holds it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Machine that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Capacity by resource, as Kubernetes writes it.
    pub capacity: BTreeMap<String, String>,
    /// What is to be known.
    pub notes: Vec<String>,
    /// Pools of the namespace.
    pub pools: Vec<ServedPool>,
}

/// What a pool has and can get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolReport {
    /// The pool.
    pub pool: String,
    /// Its namespace.
    pub namespace: String,
    /// Labels of suitable hosts.
    pub selector: String,
    /// Machines that are asked for.
    pub replicas: u64,
    /// Machines with a host.
    pub attached: usize,
    /// Machines without one.
    pub waiting: usize,
    /// Least and most machines, by the autoscaler's annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<(i64, i64)>,
    /// Machines that it can have with the hosts that there are.
    pub effective_max: usize,
    /// What is probably not what was meant, by name.
    pub warnings: Vec<String>,
    /// Every host, with one reason for one more machine of the pool.
    pub hosts: Vec<Verdict>,
    /// What would give one more host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<FixReport>,
}

/// A namespace, as the matcher sees it.
struct Scene<'w> {
    world: &'w World,
    namespace: &'w str,
    hosts: Vec<&'w ByoHost>,
    views: Vec<byoh::ByoHost>,
    inventory: Inventory,
}

impl<'w> Scene<'w> {
    fn new(world: &'w World, namespace: &'w str) -> Self {
        let hosts: Vec<&ByoHost> = world.hosts.iter().filter(|host| host.namespace() == namespace).collect();
        let views: Vec<byoh::ByoHost> = hosts.iter().map(|host| host.view()).collect();
        let lives: Vec<_> = hosts.iter().map(|host| world.life(host)).collect();
        let inventory = inventory::inventory(views.iter().zip(lives));
        Self { world, namespace, hosts, views, inventory }
    }

    fn request(&self, machine: &ByoMachine) -> Option<Request> {
        let promised = Some(machine.status.host.clone()).filter(|host| !host.is_empty());
        Some(Request {
            namespace: self.namespace.to_owned(),
            machine: machine.name().to_owned(),
            pool: self.world.pool_of(machine),
            selector: requirements(&machine.spec).ok()?,
            needs: machine.spec.capacity_requirements.0.clone(),
            promised,
        })
    }

    fn waiting(&self) -> Vec<Request> {
        let here = self.world.machines.iter().filter(|machine| machine.namespace() == self.namespace);
        let waits = here.filter(|machine| {
            self.world.host_of(machine).is_none()
                && machine.spec.provider_id.is_none()
                && machine.metadata.deletion_timestamp.is_none()
        });
        waits.filter_map(|machine| self.request(machine)).collect()
    }

    fn pools(&self, requests: &[Request]) -> Pools {
        let settings = |name: &str| {
            let pool = self.world.pools(self.namespace).into_iter().find(|(pool, _)| pool.name() == name);
            let annotations = pool.and_then(|(pool, _)| pool.metadata.annotations.clone());
            PoolSettings::of(&annotations.unwrap_or_default())
        };
        Pools::of(requests, settings, |pool| inventory::attached_by_domain(&self.inventory, &self.views, pool))
    }

    fn verdicts(&self, explanation: &Explanation) -> Vec<Verdict> {
        let chosen = explanation.chosen.iter().map(|host| Verdict {
            host: host.clone(),
            reason: "Chosen".to_owned(),
            message: String::new(),
            key: None,
            wanted: None,
            present: None,
        });
        let mut all: Vec<Verdict> = chosen.collect();
        all.extend(explanation.rejected.iter().map(|(host, rejection)| Verdict::of(host, rejection)));
        all.sort_by(|one, other| one.host.cmp(&other.host));
        all
    }

    /// Pools, other than one, whose selector matches a host.
    fn also_matched_by(&self, host: &str, but: &str) -> Vec<String> {
        let Some(host) = self.views.iter().find(|view| view.metadata.name == host) else { return Vec::new() };
        let pools = self.world.pools(self.namespace).into_iter();
        let matches = |(deployment, template): &(&MachineDeployment, Option<&ByoMachineTemplate>)| {
            let selector = template.map(selector_of).unwrap_or_default();
            deployment.name() != but && template.is_some() && selector.iter().all(|one| holds(one, host))
        };
        pools.filter(matches).map(|(deployment, _)| deployment.name().to_owned()).collect()
    }
}

fn holds(requirement: &Requirement, host: &byoh::ByoHost) -> bool {
    requirement.holds(host.metadata.labels.get(&requirement.key).map(String::as_str))
}

fn selector_of(template: &ByoMachineTemplate) -> Vec<Requirement> {
    requirements(&template.spec.template.spec).unwrap_or_default()
}

fn shown(selector: &[Requirement]) -> String {
    if selector.is_empty() {
        return "every host".to_owned();
    }
    selector.iter().map(typed).collect::<Vec<_>>().join(",")
}

fn fix_of(explanation: &Explanation, namespace: &str) -> Option<FixReport> {
    explanation.fix.as_ref().map(|fix| FixReport {
        host: fix.host.clone(),
        labels: fix.labels.clone(),
        command: command(&fix.host, &fix.labels, namespace),
    })
}

fn command(host: &str, labels: &[String], namespace: &str) -> String {
    format!("kubectl label byohost {host} -n {namespace} {} --overwrite", labels.join(" "))
}

/// Explains the host of a machine.
pub fn machine(world: &World, machine: &ByoMachine) -> MachineReport {
    let namespace = machine.namespace();
    let mut scene = Scene::new(world, namespace);
    let held = world.host_of(machine);
    let pool = world.pool_of(machine);
    let selector = requirements(&machine.spec).unwrap_or_default();
    let mut requests: Vec<Request> = scene.waiting();
    if let Some(host) = held {
        // As if it were to be decided again: the host that it holds is free for it alone.
        if let Some(at) = scene.hosts.iter().position(|one| one.name() == host.name()) {
            scene.inventory.hosts[at].availability = Availability::Free;
        }
        requests.extend(
            scene.request(machine).map(|request| Request { promised: Some(host.name().to_owned()), ..request }),
        );
    }
    let number = requests.iter().position(|request| request.machine == machine.name());
    let pools = scene.pools(&requests);
    let outcome: Outcome = match_hosts(&scene.inventory, &pools.pools);
    let place = number.and_then(|number| {
        pools
            .requests
            .iter()
            .enumerate()
            .find_map(|(pool, members)| Some((pool, members.iter().position(|one| *one == number)?)))
    });
    let explanation = place.map(|(pool, place)| explain(&scene.inventory, &pools.pools, &outcome, pool, place));
    let explanation = explanation.unwrap_or_default();
    let ready = condition::find(&machine.status.conditions, names::machine::HOST_READY).filter(|one| !one.is_true());
    let mut notes: Vec<String> =
        ready.map(|ready| ready.message.clone()).filter(|text| !text.is_empty()).into_iter().collect();
    let failed = condition::find(&machine.status.conditions, names::host::BOOTSTRAPPED).filter(|one| one.is_false());
    notes.extend(failed.map(|failed| format!("{}: {}", failed.reason, failed.message)));
    if let Some(host) = held {
        notes.extend(mismatch_note(host));
    }
    let chosen = held.map(|host| host.name().to_owned()).or_else(|| explanation.chosen.clone());
    let also_matched_by = chosen.as_deref().map(|host| scene.also_matched_by(host, &pool)).unwrap_or_default();
    MachineReport {
        machine: machine.name().to_owned(),
        namespace: namespace.to_owned(),
        selector: shown(&selector),
        host: held.map(|host| host.name().to_owned()),
        would_get: explanation.chosen.clone().filter(|_| held.is_none()),
        reason: ready.map(|ready| ready.reason.clone()),
        notes,
        hosts: scene.verdicts(&explanation),
        runner_up: explanation.runner_up.clone().map(|(host, dearer_by)| RunnerUp { host, dearer_by }),
        // A machine with a host needs no change.
        fix: fix_of(&explanation, namespace).filter(|_| explanation.chosen.is_none() && held.is_none()),
        also_matched_by,
        pool,
    }
}

/// What the controllers say about labels of an attached host that do not match any more.
fn mismatch_note(host: &ByoHost) -> Option<String> {
    let matches = condition::find(&host.status.conditions, names::host::SELECTOR_MATCHES)?;
    matches.is_false().then(|| matches.message.clone())
}

/// Explains a host.
pub fn host(world: &World, host: &ByoHost) -> HostReport {
    let (namespace, view) = (host.namespace(), host.view());
    let scene = Scene::new(world, namespace);
    let life = world.life(host);
    let unavailable = match availability(&view, life) {
        Availability::Free => None,
        other => Some(Rejection::Unavailable(other).to_string()),
    };
    let mut notes: Vec<String> = mismatch_note(host).into_iter().collect();
    let healthy = condition::find(&host.status.conditions, names::host::HEALTHY).filter(|one| !one.is_true());
    notes.extend(healthy.map(|healthy| format!("{}: {}", healthy.reason, healthy.message)));
    let failed = [names::host::INSTALLED, names::host::BOOTSTRAPPED];
    let failed = failed.iter().filter_map(|kind| condition::find(&host.status.conditions, kind));
    let failed = failed.filter(|one| one.is_false() && one.reason != names::host::WAITING_FOR_MACHINE);
    notes.extend(failed.map(|failed| format!("{}: {}", failed.reason, failed.message)));
    let waiting = scene.waiting();
    let pools = world.pools(namespace).into_iter().map(|(deployment, template)| {
        let selector = template.map(selector_of).unwrap_or_default();
        let needs =
            template.map(|template| template.spec.template.spec.capacity_requirements.0.clone()).unwrap_or_default();
        served(&scene, deployment, &selector, &needs, &view, &waiting)
    });
    HostReport {
        host: host.name().to_owned(),
        namespace: namespace.to_owned(),
        state: host.status.state.unwrap_or_default().name().to_owned(),
        unavailable,
        pool: host.status.pool.clone(),
        machine: host.status.machine_ref.as_ref().map(|held| held.name.clone()),
        labels: view.metadata.labels.clone(),
        capacity: inventory::capacity(&view)
            .iter()
            .map(|(resource, amount)| (resource.to_owned(), millpond_api::amounts::write(resource, amount)))
            .collect(),
        notes,
        pools: pools.collect(),
    }
}

fn served(
    scene: &Scene<'_>,
    deployment: &MachineDeployment,
    selector: &[Requirement],
    needs: &BTreeMap<String, i64>,
    host: &byoh::ByoHost,
    waiting: &[Request],
) -> ServedPool {
    // The host alone, as if it were free: whether labels and capacity suit.
    let mut free = Inventory::default();
    let labels: Vec<(&str, &str)> =
        host.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let capacity = inventory::capacity(host);
    free.add(&host.metadata.name, &labels, &capacity.iter().collect::<Vec<_>>(), None);
    let machines = vec![WaitingMachine::default()];
    let pool = Pool {
        name: deployment.name().to_owned(),
        selector: selector.to_vec(),
        needs: needs.clone(),
        machines,
        ..Pool::default()
    };
    let pools = [pool];
    let outcome = match_hosts(&free, &pools);
    let explanation = explain(&free, &pools, &outcome, 0, 0);
    ServedPool {
        pool: deployment.name().to_owned(),
        selector: shown(selector),
        matches: explanation.chosen.is_some(),
        verdict: explanation.rejected.first().map(|(name, rejection)| Verdict::of(name, rejection)),
        waiting: waiting.iter().filter(|request| request.pool == deployment.name()).count(),
        fix: fix_of(&explanation, scene.namespace),
    }
}

/// Explains a pool: the hosts for one more machine of it.
pub fn pool(world: &World, deployment: &MachineDeployment, template: Option<&ByoMachineTemplate>) -> PoolReport {
    let (namespace, name) = (deployment.namespace(), deployment.name());
    let scene = Scene::new(world, namespace);
    let selector = template.map(selector_of).unwrap_or_default();
    let needs =
        template.map(|template| template.spec.template.spec.capacity_requirements.0.clone()).unwrap_or_default();
    let mut requests = scene.waiting();
    let waiting = requests.iter().filter(|request| request.pool == name).count();
    let here =
        || world.machines.iter().filter(|machine| machine.namespace() == namespace && world.pool_of(machine) == name);
    let attached = here().filter(|machine| world.host_of(machine).is_some()).count();
    let before = scene.pools(&requests);
    let more = crate::capacity::matchable(
        &scene.inventory,
        &before,
        &Pool { name: name.to_owned(), selector: selector.clone(), needs: needs.clone(), ..Pool::default() },
    );
    let given = crate::capacity::placed(&scene.inventory, &before, name);
    requests.push(Request {
        namespace: namespace.to_owned(),
        machine: "one more".to_owned(),
        // A pool of its own comes last.
        pool: String::new(),
        selector: selector.clone(),
        needs,
        promised: None,
    });
    let number = requests.len() - 1;
    let pools = scene.pools(&requests);
    let outcome = match_hosts(&scene.inventory, &pools.pools);
    let place = pools.requests.iter().position(|members| members.contains(&number));
    let explanation = place.map(|pool| explain(&scene.inventory, &pools.pools, &outcome, pool, 0)).unwrap_or_default();
    let annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    let problems = Problems::new();
    node_group::misspelt(&annotations, &problems);
    let mut warnings: Vec<String> =
        problems.into_inner().iter().map(|one| format!("AnnotationUnknown: {one}")).collect();
    if template.is_none() {
        warnings.push("TemplateNotFound: the ByoMachineTemplate that the pool refers to does not exist".to_owned());
    }
    let others = world.pools(namespace);
    let narrower: Vec<&str> = others
        .iter()
        .filter(|(_, template)| template.is_some_and(|template| !selector_of(template).is_empty()))
        .map(|(other, _)| other.name())
        .collect();
    if template.is_some() && selector.is_empty() && !narrower.is_empty() {
        warnings.push(format!("BroadSelector: the pool takes every host, also those of {}", narrower.join(", ")));
    }
    let of_machines = |deployment: &MachineDeployment| deployment.spec["selector"]["matchLabels"].clone();
    let overlapping: Vec<&str> = others
        .iter()
        .filter(|(other, _)| {
            other.name() != name && !of_machines(other).is_null() && of_machines(other) == of_machines(deployment)
        })
        .map(|(other, _)| other.name())
        .collect();
    if !overlapping.is_empty() {
        let names = overlapping.join(", ");
        warnings.push(format!(
            "OverlappingSelector: spec.selector is that of {names} too; machines are told apart by their owners"
        ));
    }
    let plain = annotations_without_effective(&annotations);
    PoolReport {
        pool: name.to_owned(),
        namespace: namespace.to_owned(),
        selector: shown(&selector),
        replicas: deployment.spec["replicas"].as_u64().unwrap_or(0),
        attached,
        waiting,
        bounds: node_group::bounds(&plain, &Problems::new()).ok().flatten(),
        effective_max: attached + given + more,
        warnings,
        hosts: scene.verdicts(&explanation),
        fix: fix_of(&explanation, namespace).filter(|_| explanation.chosen.is_none()),
    }
}

fn annotations_without_effective(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut plain = annotations.clone();
    plain.remove(node_group::EFFECTIVE_MAX_SIZE);
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::Machine;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn host_of(name: &str, purpose: &str, gpus: i64, claim: Option<&str>) -> ByoHost {
        let claim =
            claim.map(|machine| json!({"machineUID": machine, "namespace": "default", "name": machine, "epoch": 1}));
        read(json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"purpose": purpose}},
            "spec": {"claim": claim},
            "status": {
                "state": if claim.is_some() { "InUse" } else { "Available" },
                "pool": if claim.is_some() { "worker-pool" } else { "" },
                "facts": {"cpu": {"sockets": 1, "cores": 4, "threads": 4}},
                "capacity": if gpus > 0 { json!({"cpu": "4", "nvidia.com/gpu": gpus.to_string()}) } else { json!({"cpu": "4"}) },
                "conditions": [{"type": "AgentHealthy", "status": "True", "reason": "AgentHealthy", "message": ""}],
            },
        }))
    }

    fn deployment(name: &str, replicas: i64) -> MachineDeployment {
        read(json!({
            "metadata": {"name": name, "namespace": "default", "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5",
            }},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "c"}},
                "template": {"spec": {"infrastructureRef": {"kind": "ByoMachineTemplate", "name": format!("{name}-template")}}},
            },
        }))
    }

    fn template(name: &str, purpose: &str) -> ByoMachineTemplate {
        read(json!({
            "metadata": {"name": format!("{name}-template"), "namespace": "default"},
            "spec": {"template": {"spec": {"selector": {"matchLabels": {"purpose": purpose}}}}},
        }))
    }

    fn machine_of(name: &str, pool: &str, purpose: &str) -> (ByoMachine, Machine) {
        let machine = read(json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": "u"},
            ]},
            "spec": {"selector": {"matchLabels": {"purpose": purpose}}},
        }));
        let owner = read(json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"cluster.x-k8s.io/deployment-name": pool}},
            "spec": {},
        }));
        (machine, owner)
    }

    /// Two workers are asked for; node10 serves one, node13 has another label, node11 has a GPU.
    fn world() -> World {
        let machines = [machine_of("w-1", "worker-pool", "worker"), machine_of("w-2", "worker-pool", "worker")];
        let (machines, capi_machines) = machines.into_iter().unzip();
        World {
            hosts: vec![
                host_of("node10", "worker", 0, Some("w-1")),
                host_of("node11", "gpu", 1, None),
                host_of("node13", "general", 0, None),
            ],
            machines,
            capi_machines,
            templates: vec![template("worker-pool", "worker"), template("gpu-pool", "gpu")],
            deployments: vec![deployment("worker-pool", 2), deployment("gpu-pool", 0)],
            ..World::default()
        }
    }

    fn lines(verdicts: &[Verdict]) -> Vec<String> {
        verdicts.iter().map(|one| format!("{} {} {}", one.host, one.reason, one.message)).collect()
    }

    #[test]
    fn nodes_not_scaling_up() {
        let world = world();
        let report = machine(&world, world.machine("default", "w-2").unwrap());
        assert_eq!(
            lines(&report.hosts),
            [
                "node10 Attached to machine w-1",
                "node11 LabelMismatch wants purpose=worker, has purpose=gpu",
                "node13 LabelMismatch wants purpose=worker, has purpose=general",
            ]
        );
        let fix = report.fix.unwrap();
        assert_eq!((fix.host.as_str(), fix.labels), ("node13", vec!["purpose=worker".to_owned()]));
        assert_eq!(fix.command, "kubectl label byohost node13 -n default purpose=worker --overwrite");
        let (deployment, template) = world.pools("default")[0];
        let report = pool(&world, deployment, template);
        assert_eq!((report.attached, report.waiting, report.effective_max, report.bounds), (1, 1, 1, Some((0, 5))));
        assert_eq!(report.fix.unwrap().host, "node13");
        assert!(report.warnings[0].starts_with("OverlappingSelector"), "{:?}", report.warnings);
        let (deployment, template) = world.pools("default")[1];
        assert_eq!(pool(&world, deployment, template).effective_max, 1);
    }

    #[test]
    fn wrong_host_selected() {
        let mut world = world();
        let report = machine(&world, world.machine("default", "w-1").unwrap());
        assert_eq!((report.host.as_deref(), report.would_get, report.fix), (Some("node10"), None, None));
        assert_eq!(report.hosts[0].reason, "Chosen");
        assert_eq!(report.also_matched_by, Vec::<String>::new());
        world.templates[1] = template("gpu-pool", "worker");
        let report = machine(&world, world.machine("default", "w-1").unwrap());
        assert_eq!(report.also_matched_by, ["gpu-pool"], "both selectors match the host");
    }

    #[test]
    fn a_host_says_what_it_could_serve() {
        let world = world();
        let report = host(&world, world.host("default", "node13").unwrap());
        assert_eq!((report.state.as_str(), report.unavailable), ("Available", None));
        let served: Vec<_> = report.pools.iter().map(|one| (one.pool.as_str(), one.matches, one.waiting)).collect();
        assert_eq!(served, [("worker-pool", false, 1), ("gpu-pool", false, 0)]);
        assert_eq!(report.pools[0].fix.as_ref().unwrap().labels, ["purpose=worker"]);
        let report = host(&world, world.host("default", "node10").unwrap());
        assert_eq!(report.unavailable.as_deref(), Some("Attached: to machine w-1"));
    }
}
