//! Hosts, virtual machines, GPUs and scheduled tasks as plain values.
//!
//! `read` turns properties into fields; [`gpus`] joins what a host and its virtual machines say about each card.

pub mod gpus;
mod read;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::property::{ObjectContent, ObjectUpdate, PropertySet, UpdateKind};
use crate::reference::Reference;
use crate::soap;
use crate::xml::Element;

pub use gpus::{Gpu, GpuMode, PciDevice};

/// The types that the inventory holds.
pub(crate) const KINDS: [&str; 2] = ["HostSystem", "VirtualMachine"];

/// Properties that vCenter notifies about.
pub(crate) const WATCHED: [PropertySet; 2] = [
    PropertySet {
        kind: "HostSystem",
        paths: &[
            "name",
            "parent",
            "runtime.connectionState",
            "runtime.powerState",
            "runtime.inMaintenanceMode",
            "runtime.inQuarantineMode",
            "hardware.pciDevice",
            "config.graphicsInfo",
            "config.pciPassthruInfo",
        ],
    },
    PropertySet {
        kind: "VirtualMachine",
        paths: &[
            "name",
            "config.uuid",
            "config.instanceUuid",
            "config.template",
            "config.hardware.device",
            "runtime.host",
            "runtime.powerState",
            "runtime.connectionState",
        ],
    },
];

/// The state of hosts, polled besides being watched: some servers change it without a notification.
pub(crate) const HOST_STATE: [PropertySet; 1] = [PropertySet {
    kind: "HostSystem",
    paths: &["runtime.connectionState", "runtime.powerState", "runtime.inMaintenanceMode", "runtime.inQuarantineMode"],
}];

/// Quick statistics never notify.
pub(crate) const QUICK_STATS: [PropertySet; 1] = [PropertySet {
    kind: "VirtualMachine",
    paths: &["summary.quickStats.overallCpuDemand", "summary.quickStats.guestMemoryUsage"],
}];

/// The properties of a scheduled task.
pub(crate) const TASK: [PropertySet; 1] = [PropertySet { kind: "ScheduledTask", paths: &["info"] }];

/// The inventory of one vCenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// ESXi hosts.
    pub hosts: BTreeMap<Reference, Host>,
    /// Virtual machines, templates included.
    pub vms: BTreeMap<Reference, Vm>,
    /// Scheduled tasks, also those that are not enabled.
    pub tasks: Vec<ScheduledTask>,
    /// Why scheduled tasks cannot be read, if they cannot.
    pub tasks_unreadable: Option<String>,
    /// Objects of which something may not be read that an answer depends on.
    pub denied: BTreeMap<Reference, Denied>,
}

/// A property that the account may not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Its path.
    pub path: String,
    /// What vCenter said.
    pub message: String,
}

/// An ESXi host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its name: `esxi-dell-h.rainpole.com`.
    pub name: String,
    /// Its cluster or compute resource.
    pub parent: Option<Reference>,
    /// The connection state, as vCenter sees it.
    pub connection: Connection,
    /// Whether it is powered on.
    pub powered_on: bool,
    /// Whether it is in maintenance mode.
    pub in_maintenance: bool,
    /// Whether it is in quarantine: degraded hardware, workloads should leave.
    pub in_quarantine: bool,
    /// Display controllers and accelerators.
    pub pci: Vec<PciDevice>,
    /// The host's graphics devices, as its graphics manager reports them.
    pub graphics: Vec<gpus::Graphics>,
    /// Identifiers of PCI devices with active passthrough.
    pub passthrough: Vec<String>,
}

/// A virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vm {
    /// Its name; not unique over datacenters and folders.
    pub name: String,
    /// BIOS UUID, lower case: what a guest sees.
    pub uuid: String,
    /// vCenter's own UUID of it, lower case.
    pub instance_uuid: String,
    /// Whether it is a template, which never runs.
    pub is_template: bool,
    /// The host that it runs on.
    pub host: Option<Reference>,
    /// Whether it is powered on.
    pub powered_on: bool,
    /// The connection state, as vCenter sees it.
    pub connection: Connection,
    /// Its PCI passthrough and vGPU devices.
    pub passthrough: Vec<gpus::Backing>,
    /// CPU demand in MHz.
    pub cpu_demand_mhz: i64,
    /// Guest memory in use in MiB.
    pub guest_memory_mib: i64,
}

/// The connection state of an object, as vCenter sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// It does.
    #[default]
    Connected,
    /// An administrator disconnected it, or the machine is orphaned or inaccessible.
    Disconnected,
    /// It does not respond.
    NotResponding,
}

/// A scheduled task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledTask {
    /// Its name.
    pub name: String,
    /// The object that it acts on: a host, a virtual machine, a cluster.
    pub entity: Reference,
    /// The method that it calls: `EnterMaintenanceMode_Task`.
    pub method: String,
    /// Whether it will run.
    pub enabled: bool,
    /// When it runs next.
    pub next_run: Option<Timestamp>,
}

/// Methods that leave a running machine alone. Any other method on a machine, its host or its cluster counts as a
/// disturbance.
const HARMLESS: [&str; 8] = [
    "CloneVM_Task",
    "CreateSnapshot_Task",
    "CreateSnapshotEx_Task",
    "ExportVm",
    "PowerOnVM_Task",
    "PowerOnMultiVM_Task",
    "RemoveAllSnapshots_Task",
    "RemoveSnapshot_Task",
];

impl ScheduledTask {
    /// Whether the task is enabled and does more than read or copy.
    pub fn disturbs(&self) -> bool {
        self.enabled && !HARMLESS.contains(&self.method.as_str())
    }
}

/// Whether an answer depends on a property: which machine or host it is, and how it is. Without the others an answer only
/// tells less.
fn is_needed(path: &str) -> bool {
    path.starts_with("runtime.") || matches!(path, "name" | "config.uuid" | "config.instanceUuid")
}

/// The effect of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Whether something differs now.
    pub(crate) changed: bool,
    /// The update named a part of a property: the object has to be read again.
    pub(crate) incomplete: bool,
}

impl Inventory {
    /// Takes a change that was watched.
    pub(crate) fn apply(&mut self, update: ObjectUpdate) -> Applied {
        if update.kind == UpdateKind::Leave {
            self.denied.remove(&update.object);
            let changed = self.hosts.remove(&update.object).is_some() | self.vms.remove(&update.object).is_some();
            return Applied { changed, incomplete: false };
        }
        let mut applied = Applied { changed: update.kind == UpdateKind::Enter, incomplete: false };
        for (path, value) in &update.changes {
            match self.set(&update.object, path, value.as_ref()) {
                Some(changed) => applied.changed |= changed,
                None => applied.incomplete = true,
            }
        }
        applied.changed |= self.note_denied(&update);
        applied
    }

    /// Takes properties that were polled; says whether something differs now. An object that is not known (any more) is
    /// left to the watch.
    pub(crate) fn refresh(&mut self, content: &ObjectContent) -> bool {
        if !self.hosts.contains_key(&content.object) && !self.vms.contains_key(&content.object) {
            return false;
        }
        let mut changed = false;
        for (path, value) in &content.properties {
            changed |= self.set(&content.object, path, Some(value)).unwrap_or_default();
        }
        changed
    }

    /// Sets a property; `None` if no field belongs to the path.
    fn set(&mut self, object: &Reference, path: &str, value: Option<&Element>) -> Option<bool> {
        match &*object.kind {
            "HostSystem" => read::host(self.hosts.entry(object.clone()).or_default(), path, value),
            "VirtualMachine" => read::vm(self.vms.entry(object.clone()).or_default(), path, value),
            _ => Some(false),
        }
    }

    /// Notes what may not be read, until it is read; says whether that is new.
    fn note_denied(&mut self, update: &ObjectUpdate) -> bool {
        let is_refused =
            |(path, fault): &&(String, Element)| is_needed(path) && fault.xsi_type.as_deref() == Some("NoPermission");
        if let Some((path, fault)) = update.missing.iter().find(is_refused) {
            let denied = Denied { path: path.clone(), message: soap::permission(fault).to_string() };
            return self.denied.insert(update.object.clone(), denied.clone()).as_ref() != Some(&denied);
        }
        let known = self.denied.get(&update.object);
        let is_read = known.is_some_and(|denied| update.changes.iter().any(|(path, _)| *path == denied.path));
        is_read && self.denied.remove(&update.object).is_some()
    }

    /// A scheduled task from its property `info`.
    pub(crate) fn read_task(content: &ObjectContent) -> Option<ScheduledTask> {
        read::task(content)
    }

    /// The next scheduled task after `now` that disturbs a virtual machine: on itself, its host or its host's cluster.
    pub fn next_disturbing_task(&self, vm: &Reference, now: Timestamp) -> Option<&ScheduledTask> {
        let host = self.vms.get(vm).and_then(|vm| vm.host.as_ref());
        let cluster = host.and_then(|host| self.hosts.get(host)).and_then(|host| host.parent.as_ref());
        let concerns = |task: &&ScheduledTask| {
            let entity = Some(&task.entity);
            task.disturbs() && (entity == Some(vm) || entity == host || entity == cluster)
        };
        let due = |task: &&ScheduledTask| task.next_run.is_some_and(|at| at > now);
        self.tasks.iter().filter(concerns).filter(due).min_by_key(|task| task.next_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_on_machine_host_and_cluster_disturb() {
        let (vm, host) = (Reference::new("VirtualMachine", "vm-1"), Reference::new("HostSystem", "host-1"));
        let cluster = Reference::new("ClusterComputeResource", "domain-c1");
        let mut inventory = Inventory::default();
        inventory.vms.insert(vm.clone(), Vm { host: Some(host.clone()), ..Vm::default() });
        inventory.hosts.insert(host.clone(), Host { parent: Some(cluster.clone()), ..Host::default() });
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let task = |name: &str, entity: &Reference, method: &str, enabled, next_run| ScheduledTask {
            name: name.to_owned(),
            entity: entity.clone(),
            method: method.to_owned(),
            enabled,
            next_run,
        };
        let other = Reference::new("HostSystem", "host-2");
        inventory.tasks = vec![
            task("past", &host, "RebootHost_Task", true, at(5)),
            task("other host", &other, "RebootHost_Task", true, at(11)),
            task("off", &host, "RebootHost_Task", false, at(12)),
            task("snapshot", &vm, "CreateSnapshot_Task", true, at(13)),
            task("never", &vm, "PowerOffVM_Task", true, None),
            task("cluster", &cluster, "RemediateCluster", true, at(20)),
            task("host", &host, "EnterMaintenanceMode_Task", true, at(30)),
        ];
        let now = Timestamp::from_second(10).unwrap();
        assert_eq!(inventory.next_disturbing_task(&vm, now).map(|task| task.name.as_str()), Some("cluster"));
        inventory.tasks.retain(|task| task.name != "cluster");
        assert_eq!(inventory.next_disturbing_task(&vm, now).map(|task| task.name.as_str()), Some("host"));
    }
}
