//! Hosts and machines as a client lists them once: what `millpond explain` and `millpond host` look at.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use millpond_api::byoh::{self, names};
use millpond_api::condition;
use millpond_runtime::meta::is_leaving;

use crate::kinds::{ByoHost, ByoMachine, ByoMachineTemplate, Machine, MachineDeployment};
use crate::state::Life;

/// Everything that explanations need of one namespace, or of all.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Hosts, by namespace and name.
    pub hosts: Vec<ByoHost>,
    /// Machines on hosts, and those that wait.
    pub machines: Vec<ByoMachine>,
    /// What machines are cloned from.
    pub templates: Vec<ByoMachineTemplate>,
    /// Machines of Cluster API.
    pub capi_machines: Vec<Machine>,
    /// Pools.
    pub deployments: Vec<MachineDeployment>,
    /// Seconds since each host renewed its Lease, by the host's clock.
    pub silent_s: BTreeMap<String, i64>,
}

impl World {
    /// Lists everything in a namespace; in all of them without one.
    pub async fn fetch(client: &Client, namespace: Option<&str>, now: Timestamp) -> kube::Result<Self> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), names::LEASE_NAMESPACE);
        let renewed = |lease: &Lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0);
        let age = |lease: &Lease| Some((lease.name_any(), now.duration_since(renewed(lease)?).as_secs()));
        Ok(Self {
            hosts: list(client, namespace).await?,
            machines: list(client, namespace).await?,
            templates: list(client, namespace).await?,
            capi_machines: list(client, namespace).await?,
            deployments: list(client, namespace).await?,
            silent_s: leases.list(&ListParams::default()).await?.iter().filter_map(age).collect(),
        })
    }

    /// A host.
    pub fn host(&self, namespace: &str, name: &str) -> Option<&ByoHost> {
        self.hosts.iter().find(|host| host.namespace() == namespace && host.name() == name)
    }

    /// A ByoMachine, by its own name or by that of its Machine.
    pub fn machine(&self, namespace: &str, name: &str) -> Option<&ByoMachine> {
        let here = || self.machines.iter().filter(|machine| machine.namespace() == namespace);
        here().find(|machine| machine.name() == name).or_else(|| {
            let owned = |machine: &&ByoMachine| {
                machine.owner_references().iter().any(|owner| owner.kind == "Machine" && owner.name == name)
            };
            here().find(owned)
        })
    }

    /// The Machine that owns a ByoMachine.
    pub fn owner(&self, machine: &ByoMachine) -> Option<&Machine> {
        let owner = machine.owner_references().iter().find(|owner| owner.kind == "Machine")?;
        self.capi_machines.iter().find(|one| one.namespace() == machine.namespace() && one.name() == owner.name)
    }

    /// The pool of a machine; empty without one.
    pub fn pool_of(&self, machine: &ByoMachine) -> String {
        self.owner(machine).map(crate::stock::pool_of).unwrap_or_default()
    }

    /// The host that a machine holds.
    pub fn host_of(&self, machine: &ByoMachine) -> Option<&ByoHost> {
        self.hosts.iter().find(|host| host.spec.claim.as_ref().is_some_and(|claim| claim.machine_uid == machine.uid()))
    }

    /// What is known about a host, by the conditions that controllers wrote.
    pub fn life(&self, host: &ByoHost) -> Life {
        let status = &host.status;
        Life {
            deleting: is_leaving(host),
            alive: condition::is_true(&status.conditions, names::host::HEALTHY),
            silent_s: self.silent_s.get(host.name()).copied().unwrap_or(0),
            leaving: status.state == Some(byoh::HostState::Draining),
            joined: status.state == Some(byoh::HostState::InUse),
        }
    }

    /// Pools of own hosts in a namespace, with their templates.
    pub fn pools(&self, namespace: &str) -> Vec<(&MachineDeployment, Option<&ByoMachineTemplate>)> {
        let here = self.deployments.iter().filter(|deployment| deployment.namespace() == namespace);
        let with_template = |deployment| {
            let name = crate::text::text(&deployment_infrastructure(deployment).clone(), &["name"])?.to_owned();
            let found = self.templates.iter().find(|one| one.namespace() == namespace && one.name() == name);
            Some((deployment, found))
        };
        here.filter(|deployment| deployment_infrastructure(deployment)["kind"] == "ByoMachineTemplate")
            .filter_map(with_template)
            .collect()
    }
}

fn deployment_infrastructure(deployment: &MachineDeployment) -> &serde_json::Value {
    crate::text::at(&deployment.spec, &["template", "spec", "infrastructureRef"])
}

/// All objects of a kind; empty if the kind is not served.
async fn list<K: millpond_runtime::kinds::Kind + serde::de::DeserializeOwned>(
    client: &Client,
    namespace: Option<&str>,
) -> kube::Result<Vec<K>> {
    let resource = kube::core::ApiResource::erase::<K>(&());
    let api: Api<kube::api::DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let listed = match api.list(&ListParams::default()).await {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut objects: Vec<K> = Vec::with_capacity(listed.items.len());
    for object in listed.items {
        let value = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        objects.push(serde_json::from_value(value).map_err(kube::Error::SerdeError)?);
    }
    objects.sort_by_key(|object| (object.namespace(), object.name_any()));
    Ok(objects)
}
