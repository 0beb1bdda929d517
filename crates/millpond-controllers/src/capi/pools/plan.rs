//! Plans a change: from the current objects and a pool file to a plan, or to the reasons why there is none.

use std::collections::BTreeMap;

use millpond_api::capi::pool_file::PoolFile;
use millpond_api::capi::{Problems, node_group};
use serde_json::Value;

use super::find::{self, FoundPool, LookupError};
use super::parity::{self, Outcome};
use super::{
    ChangePlan, Current, DeletePlan, Options, Path, RejectedChange, Why, Write, changes, machine_deployment, name_of,
    tanzu, topology,
};

/// The longest name of a MachineDeployment: it is the value of a label on everything that it makes.
const LIMIT_NAME: usize = 63;

/// Plans the creation or change of a pool.
pub fn plan(current: &Current, file: &PoolFile, options: &Options) -> Result<ChangePlan, Vec<RejectedChange>> {
    let found = match find::find(current, &file.name) {
        Ok(found) => Some(found),
        Err(LookupError::Unknown) => None,
        Err(missing) => return Err(vec![find::refuse(current, "name", &file.name, &missing)]),
    };
    let mut problems = Vec::new();
    let ignored = check_fields(current, file, found.is_none(), &mut problems);
    if found.is_some() && options.base.is_some() {
        let problem = format!("the pool `{}` is there; a base is for new pools", file.name);
        problems.push(RejectedChange::new("--base-machine-deployment", problem).hint("leave it out").why(Why::Limit));
    }
    check_name(current, file, found.is_none(), &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let made = match (current.path, found) {
        (Path::Plain, Some(FoundPool { deployment: Some(deployment), .. })) => {
            machine_deployment::update(current, file, options, deployment)
        }
        (Path::Plain, _) => machine_deployment::create(current, file, options),
        (Path::Topology, found) => topology::set(current, file, options, found.and_then(|it| it.entry)),
        (Path::Tanzu, found) => tanzu::set(current, file, found.and_then(|it| it.entry)),
    };
    made.map(|plan| ChangePlan { ignored, ..plan })
}

/// Plans a change of the number of machines.
pub fn plan_scale(current: &Current, name: &str, replicas: i64) -> Result<ChangePlan, Vec<RejectedChange>> {
    if let Err(missing) = find::find(current, name) {
        return Err(vec![find::refuse(current, "NAME", name, &missing)]);
    }
    let file = PoolFile { name: name.to_owned(), replicas: Some(replicas), ..PoolFile::default() };
    plan(current, &file, &Options::default())
}

/// Plans the deletion of a pool.
pub fn plan_delete(current: &Current, name: &str) -> Result<DeletePlan, Vec<RejectedChange>> {
    let found = find::find(current, name).map_err(|missing| vec![find::refuse(current, "NAME", name, &missing)])?;
    let pools = match current.path {
        Path::Plain => current.deployments.iter().filter(|it| it["metadata"]["deletionTimestamp"].is_null()).count(),
        Path::Topology | Path::Tanzu => find::entries(current).len(),
    };
    let leaving = found.deployment.is_some_and(|it| !it["metadata"]["deletionTimestamp"].is_null());
    if pools < 2 && !leaving {
        let problem = format!("`{name}` is the last pool of cluster `{}`", current.cluster);
        let hint = "scale it to 0, or make another pool first";
        return Err(vec![RejectedChange::new("NAME", problem).hint(hint).why(Why::Limit)]);
    }
    let deployment = found.deployment.map(name_of);
    let machines = current.machines.iter().filter(|machine| {
        let of = &machine["metadata"]["labels"][millpond_api::capi::names::DEPLOYMENT_NAME];
        of.as_str().is_some() && of.as_str() == deployment
    });
    let machines = machines.map(|machine| name_of(machine).to_owned()).collect();
    let pool = match found.entry {
        Some(entry) => entry["name"].as_str().unwrap_or_default().to_owned(),
        None => found.deployment.map(|it| find::display_name(current, it)).unwrap_or_default(),
    };
    let write = found.entry.map(|entry| without_entry(current, entry));
    let deployment = deployment.filter(|_| current.path == Path::Plain).map(ToOwned::to_owned);
    Ok(DeletePlan { pool, deployment, write, machines })
}

fn without_entry(current: &Current, entry: &Value) -> Write {
    let rest: Vec<Value> = find::entries(current).iter().filter(|it| *it != entry).cloned().collect();
    entries_write(current, rest)
}

/// The object that contains the entries, with these entries.
pub(super) fn entries_write(current: &Current, entries: Vec<Value>) -> Write {
    let (live, path): (_, &[&str]) = match current.path {
        Path::Tanzu => (&current.tanzu, &["spec", "topology", "nodePools"]),
        _ => (&current.object, &["spec", "topology", "workers", "machineDeployments"]),
    };
    let live = live.clone().unwrap_or_default();
    let mut object = serde_json::json!({
        "apiVersion": live["apiVersion"], "kind": live["kind"],
        "metadata": {
            "name": live["metadata"]["name"], "namespace": live["metadata"]["namespace"],
            "resourceVersion": live["metadata"]["resourceVersion"],
        },
    });
    changes::put(&mut object, path, entries.into());
    Write { object, live: Some(live) }
}

/// Refuses fields that make no sense there; tells those that are left out.
fn check_fields(
    current: &Current,
    file: &PoolFile,
    create: bool,
    problems: &mut Vec<RejectedChange>,
) -> Vec<(String, String)> {
    let mut ignored = Vec::new();
    for field in given(file) {
        let Some(row) = parity::row_of(field) else { continue };
        match row.outcome(current.path, create) {
            Outcome::InPlace | Outcome::Rollout => {}
            Outcome::Ignored(reason) => ignored.push((field.to_owned(), reason.to_owned())),
            Outcome::Refused(reason) => {
                problems.push(RejectedChange::new(field, reason).hint("leave it out of the file"));
            }
        }
    }
    ignored
}

/// Fields that a file gives, as the table names them.
pub(super) fn given(file: &PoolFile) -> Vec<&'static str> {
    let vsphere = &file.vsphere;
    let fields = [
        ("replicas", file.replicas.is_some()),
        ("az", file.az.is_some()),
        ("nodeMachineType", file.node_machine_type.is_some()),
        ("workerClass", file.worker_class.is_some()),
        ("labels", file.labels.is_some()),
        ("taints", file.taints.is_some()),
        ("vmClass", file.vm_class.is_some()),
        ("storageClass", file.storage_class.is_some()),
        ("tkrResolver", file.tkr_resolver.is_some()),
        ("volumes", file.volumes.is_some()),
        ("tkr", file.tkr.is_some()),
        ("nodeDrainTimeout", file.node_drain_timeout_s.is_some()),
        ("baseMachineDeployment", file.base_machine_deployment.is_some()),
        ("vsphere.cloneMode", vsphere.clone_mode.is_some()),
        ("vsphere.datacenter", vsphere.datacenter.is_some()),
        ("vsphere.datastore", vsphere.datastore.is_some()),
        ("vsphere.storagePolicyName", vsphere.storage_policy_name.is_some()),
        ("vsphere.folder", vsphere.folder.is_some()),
        ("vsphere.network", vsphere.network.is_some()),
        ("vsphere.nameservers", vsphere.nameservers.is_some()),
        ("vsphere.tkgIPFamily", vsphere.tkg_ip_family.is_some()),
        ("vsphere.resourcePool", vsphere.resource_pool.is_some()),
        ("vsphere.vcIP", vsphere.vc_ip.is_some()),
        ("vsphere.template", vsphere.template.is_some()),
        ("vsphere.memoryMiB", vsphere.memory_mib.is_some()),
        ("vsphere.diskGiB", vsphere.disk_gib.is_some()),
        ("vsphere.numCPUs", vsphere.num_cpus.is_some()),
        ("vsphere.numCoresPerSocket", vsphere.num_cores_per_socket.is_some()),
        ("vsphere.additionalDisksGiB", vsphere.additional_disks_gib.is_some()),
        ("vsphere.powerOffMode", vsphere.power_off_mode.is_some()),
        ("vsphere.hardwareVersion", vsphere.hardware_version.is_some()),
        ("vsphere.customVMXKeys", vsphere.custom_vmx_keys.is_some()),
        ("vsphere.pciDevices", vsphere.pci_devices.is_some()),
    ];
    fields.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

fn check_name(current: &Current, file: &PoolFile, create: bool, problems: &mut Vec<RejectedChange>) {
    let full = find::full_name(&current.cluster, &file.name);
    if create && full.len() > LIMIT_NAME {
        let most = LIMIT_NAME.saturating_sub(current.cluster.len() + 1);
        let problem = format!("`{full}` has more than {LIMIT_NAME} letters");
        problems.push(
            RejectedChange::new("name", problem).hint(format!("the name may have {most} letters on this cluster")),
        );
    }
}

/// The pool that a new one is copied from: the flag, the file, or none.
pub(super) fn base_name<'f>(file: &'f PoolFile, options: &'f Options) -> Option<(&'static str, &'f str)> {
    let flag = options.base.as_deref().map(|name| ("--base-machine-deployment", name));
    flag.or_else(|| file.base_machine_deployment.as_deref().map(|name| ("baseMachineDeployment", name)))
}

/// Refuses a number of machines that the autoscaler's bounds do not allow.
pub(super) fn check_replicas(
    annotations: &BTreeMap<String, String>,
    replicas: Option<i64>,
) -> Result<(), Vec<RejectedChange>> {
    let (Some(replicas), Ok(Some((min, max)))) = (replicas, node_group::bounds(annotations, &Problems::new())) else {
        return Ok(());
    };
    if (min..=max).contains(&replicas) {
        return Ok(());
    }
    let problem = format!("{replicas} is outside of the autoscaler's bounds, {min} to {max}");
    let hint =
        format!("leave replicas out, or change the annotations `{}` and max-size", millpond_api::capi::names::MIN_SIZE);
    Err(vec![RejectedChange::new("replicas", problem).hint(hint).why(Why::Limit)])
}

/// The texts of a JSON map.
pub(super) fn texts(value: &Value) -> BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
