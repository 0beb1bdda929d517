//! Pools that are entries in the topology of a Cluster: a ClusterClass makes their MachineDeployments, and fields of
//! the file become values of its variables.
//!
//! A value of a pool's own hides the cluster's as a whole, so that it starts as a copy of that.

use std::collections::BTreeMap;

use millpond_api::capi::pool_file::{PciDevice, PoolFile, VSphere};
use millpond_api::capi::{Cluster, IntOrPercent, Problems, TopologyPool, Version, gpus_of, names};
use millpond_api::duration;
use serde_json::{Value, json};

use super::changes::{self, Changes, put};
use super::plan::{base_name, check_replicas, entries_write, texts};
use super::{ChangePlan, Current, Effect, Options, RejectedChange, Verb, find, vsphere};

/// Plans an entry; `entry` is the present one.
pub(super) fn set(
    current: &Current,
    file: &PoolFile,
    options: &Options,
    entry: Option<&Value>,
) -> Result<ChangePlan, Vec<RejectedChange>> {
    let mut draft = TopologyChange::new(current, file, options, entry)?;
    draft.apply(file, options)?;
    let mut entries = find::entries(current).to_vec();
    let at = entry.and_then(|entry| entries.iter().position(|it| it == entry));
    let changed = at.is_none_or(|at| entries[at] != draft.entry);
    match at {
        Some(at) => entries[at] = draft.entry,
        None => entries.push(draft.entry),
    }
    let verb = match (changed, at) {
        (false, _) => Verb::Nothing,
        (true, None) => Verb::Create,
        (true, Some(_)) => Verb::Change,
    };
    let created =
        if at.is_none() { vec![format!("entry `{}` of Cluster/{}", file.name, current.cluster)] } else { vec![] };
    Ok(ChangePlan {
        pool: file.name.clone(),
        object: format!("Cluster/{}", current.cluster),
        verb,
        created,
        changes: draft.changes.0,
        ignored: Vec::new(),
        warnings: draft.warnings,
        writes: if changed { vec![entries_write(current, entries)] } else { vec![] },
    })
}

struct TopologyChange {
    entry: Value,
    /// Values of the cluster, which those of a pool start from.
    variables: BTreeMap<String, Value>,
    /// The variables of the class; `None` if they are not known.
    declared: Option<Vec<String>>,
    class: String,
    effect: Effect,
    version: Version,
    infrastructure: Option<String>,
    changes: Changes,
    warnings: Vec<String>,
}

impl TopologyChange {
    fn new(
        current: &Current,
        file: &PoolFile,
        options: &Options,
        entry: Option<&Value>,
    ) -> Result<Self, Vec<RejectedChange>> {
        let cluster = current.object.as_ref().map(|object| Cluster::of(&object["spec"]));
        let topology = cluster.as_ref().and_then(|it| it.topology.clone());
        let class = topology.as_ref().map(|it| it.class.clone()).unwrap_or_default();
        let (start, warnings) = match entry {
            Some(entry) => (entry.clone(), Vec::new()),
            None => new_entry(current, file, options)?,
        };
        let uses_new = current.object.as_ref().is_some_and(|it| it["spec"]["topology"].get("classRef").is_some());
        Ok(Self {
            entry: start,
            variables: topology.map(|it| it.variables).unwrap_or_default(),
            declared: declared(current.class.as_ref()),
            class,
            effect: if entry.is_none() { Effect::New } else { Effect::Rollout },
            version: if uses_new { Version::V1Beta2 } else { Version::V1Beta1 },
            infrastructure: cluster.and_then(|it| it.infrastructure).map(|it| it.kind),
            changes: Changes::default(),
            warnings,
        })
    }

    fn in_place(&self) -> Effect {
        if self.effect == Effect::New { Effect::New } else { Effect::InPlace }
    }

    fn apply(&mut self, file: &PoolFile, options: &Options) -> Result<(), Vec<RejectedChange>> {
        check_replicas(&texts(&self.entry["metadata"]["annotations"]), file.replicas)?;
        let mut problems = Vec::new();
        self.first_layer(file, &mut problems);
        self.variables_of_first_layer(file, &mut problems);
        self.second_layer(&file.vsphere, &mut problems);
        if let Err(problem) = self.devices(&file.vsphere) {
            problems.push(problem);
        }
        self.labels(file, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        self.surge(options);
        Ok(())
    }

    fn first_layer(&mut self, file: &PoolFile, problems: &mut Vec<RejectedChange>) {
        let (in_place, effect) = (self.in_place(), self.effect);
        let entry = &mut self.entry;
        if let Some(replicas) = file.replicas {
            self.changes.put(entry, &["replicas"], replicas.into(), "replicas", in_place);
        }
        if let Some(zone) = &file.az {
            self.changes.put(entry, &["failureDomain"], zone.as_str().into(), "az", effect);
        }
        if let Some(class) = &file.worker_class {
            self.changes.put(entry, &["class"], class.as_str().into(), "workerClass", effect);
        }
        if let Some(resolver) = &file.tkr_resolver {
            let path = ["metadata", "annotations", names::RESOLVE_OS_IMAGE];
            self.changes.put(entry, &path, resolver.as_str().into(), "tkrResolver", effect);
        }
        if let Some(seconds) = file.node_drain_timeout_s {
            let (path, value): (&[&str], Value) = match self.version {
                Version::V1Beta1 => (&["nodeDrainTimeout"], duration::write(seconds).into()),
                Version::V1Beta2 => (&["deletion", "nodeDrainTimeoutSeconds"], seconds.into()),
            };
            self.changes.put(entry, path, value, "nodeDrainTimeout", in_place);
        }
        if let Some(machine_type) = &file.node_machine_type {
            match self.infrastructure.as_deref() {
                Some("AWSCluster") => {
                    self.set("nodeMachineType", "worker", &["instanceType"], json!(machine_type), problems);
                }
                Some("AzureCluster") => {
                    self.set("nodeMachineType", "worker", &["vmSize"], json!(machine_type), problems);
                }
                _ => problems.push(
                    RejectedChange::new("nodeMachineType", "the cluster is neither on AWS nor on Azure")
                        .hint("give vsphere.numCPUs and vsphere.memoryMiB"),
                ),
            }
        }
    }

    fn variables_of_first_layer(&mut self, file: &PoolFile, problems: &mut Vec<RejectedChange>) {
        if let Some(taints) = &file.taints {
            self.set("taints", "nodePoolTaints", &[], json!(taints), problems);
        }
        if let Some(class) = &file.vm_class {
            self.set("vmClass", "vmClass", &[], json!(class), problems);
        }
        if let Some(class) = &file.storage_class {
            self.set("storageClass", "storageClass", &[], json!(class), problems);
        }
        if let Some(volumes) = &file.volumes {
            let value: Vec<Value> = volumes
                .iter()
                .map(|it| json!({"name": it.name, "mountPath": it.mount_path, "capacity": {"storage": it.storage}}))
                .collect();
            self.set("volumes", "nodePoolVolumes", &[], value.into(), problems);
        }
    }

    fn second_layer(&mut self, file: &VSphere, problems: &mut Vec<RejectedChange>) {
        let texts = [
            ("cloneMode", "cloneMode", &file.clone_mode),
            ("datacenter", "datacenter", &file.datacenter),
            ("datastore", "datastore", &file.datastore),
            ("storagePolicyName", "storagePolicyName", &file.storage_policy_name),
            ("folder", "folder", &file.folder),
            ("network", "network", &file.network),
            ("resourcePool", "resourcePool", &file.resource_pool),
            ("vcIP", "server", &file.vc_ip),
            ("template", "template", &file.template),
        ];
        for (field, key, value) in texts {
            if let Some(value) = value {
                self.set(&format!("vsphere.{field}"), "vcenter", &[key], json!(value), problems);
            }
        }
        for (key, value) in [("numCPUs", file.num_cpus), ("diskGiB", file.disk_gib), ("memoryMiB", file.memory_mib)] {
            if let Some(value) = value {
                self.set(&format!("vsphere.{key}"), "worker", &["machine", key], json!(value), problems);
            }
        }
        if let Some(servers) = &file.nameservers {
            self.set("vsphere.nameservers", "worker", &["network", "nameservers"], json!(servers), problems);
        }
        if let Some(keys) = &file.custom_vmx_keys {
            self.set("vsphere.customVMXKeys", "worker", &["machine", "customVMXKeys"], json!(keys), problems);
        }
        if let Some(version) = &file.hardware_version {
            self.set("vsphere.hardwareVersion", "pci", &["worker", "hardwareVersion"], json!(version), problems);
        }
        if let Some(devices) = &file.pci_devices {
            if devices.iter().any(|it| !matches!(it, PciDevice::Passthrough { custom_label: None, .. })) {
                let problem = "Tanzu's variable `pci` takes vendorId and deviceId, no vGPUProfile and no customLabel";
                return problems.push(
                    RejectedChange::new("vsphere.pciDevices", problem)
                        .hint("use a pool with its own MachineDeployment"),
                );
            }
            let list: Vec<Value> = devices.iter().map(vsphere::device).collect();
            self.set("vsphere.pciDevices", "pci", &["worker", "devices"], list.into(), problems);
        }
    }

    /// The settings that devices need, and the annotations that an autoscaler needs for them.
    fn devices(&mut self, file: &VSphere) -> Result<(), RejectedChange> {
        if *file == VSphere::default() && self.effect != Effect::New {
            return Ok(());
        }
        let list = self.value("pci", &["worker", "devices"]).unwrap_or_default();
        let devices = vsphere::devices(&list);
        let text = |value: Option<Value>| value.and_then(|it| it.as_str().map(ToOwned::to_owned));
        let mut version = text(self.value("pci", &["worker", "hardwareVersion"]));
        let keys = self.value("worker", &["machine", "customVMXKeys"]);
        let mut keys = keys.and_then(|it| it.as_object().cloned()).unwrap_or_default();
        vsphere::settle(&devices, &mut version, &mut keys, &mut self.warnings)?;
        let mut problems = Vec::new();
        if devices.passed > 0 {
            self.set("vsphere.hardwareVersion", "pci", &["worker", "hardwareVersion"], json!(version), &mut problems);
            self.set("vsphere.customVMXKeys", "worker", &["machine", "customVMXKeys"], keys.into(), &mut problems);
        }
        let effect = self.in_place();
        let of_gpus = [names::CAPACITY_GPU_TYPE, names::CAPACITY_GPU_COUNT];
        if let Some((resource, count)) = gpus_of(&list) {
            let mut annotations = vec![(of_gpus[0], resource), (of_gpus[1], count.to_string())];
            let number = |value: Option<Value>| value.and_then(|it| it.as_i64());
            annotations.extend(
                number(self.value("worker", &["machine", "numCPUs"])).map(|it| (names::CAPACITY_CPU, it.to_string())),
            );
            annotations.extend(
                number(self.value("worker", &["machine", "memoryMiB"]))
                    .map(|it| (names::CAPACITY_MEMORY, format!("{it}Mi"))),
            );
            for (key, value) in annotations {
                self.changes.put(&mut self.entry, &["metadata", "annotations", key], value.into(), key, effect);
            }
        } else if file.pci_devices.is_some() {
            for key in of_gpus {
                self.changes.take(&mut self.entry, &["metadata", "annotations", key], key, effect);
            }
        }
        problems.into_iter().next().map_or(Ok(()), Err)
    }

    /// Labels replace those of before; the accelerator's is added.
    fn labels(&mut self, file: &PoolFile, problems: &mut Vec<RejectedChange>) {
        let list = self.value("pci", &["worker", "devices"]).unwrap_or_default();
        let accelerator = vsphere::devices(&list).label;
        let before: BTreeMap<String, String> = self
            .value("nodePoolLabels", &[])
            .and_then(|it| it.as_array().cloned())
            .into_iter()
            .flatten()
            .filter_map(|it| Some((it["key"].as_str()?.to_owned(), it["value"].as_str()?.to_owned())))
            .collect();
        let mut labels = file.labels.clone().unwrap_or_else(|| before.clone());
        if let Some(label) = accelerator {
            labels.insert(names::ACCELERATOR.to_owned(), label);
        }
        if labels == before {
            return;
        }
        let list: Vec<Value> = labels.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
        self.set("labels", "nodePoolLabels", &[], list.into(), problems);
    }

    fn surge(&mut self, options: &Options) {
        let list = self.value("pci", &["worker", "devices"]).unwrap_or_default();
        let devices = i64::from(vsphere::devices(&list).passed);
        let rolls = self.effect == Effect::New || self.changes.0.iter().any(|it| it.effect == Effect::Rollout);
        if devices == 0 || !rolls || i64::from(options.spare_gpus) >= devices {
            return;
        }
        let strategy: &[&str] = match self.version {
            Version::V1Beta1 => &["strategy"],
            Version::V1Beta2 => &["rollout", "strategy"],
        };
        let path = |key: &'static str| [strategy, &["rollingUpdate", key]].concat();
        let given = changes::at(&self.entry, &path("maxSurge")).and_then(Value::as_i64).map(IntOrPercent::Count);
        if given == Some(IntOrPercent::Count(0)) {
            return;
        }
        let effect = self.in_place();
        put(&mut self.entry, &[strategy, &["type"]].concat(), "RollingUpdate".into());
        self.changes.put(&mut self.entry, &path("maxSurge"), 0.into(), "maxSurge", effect);
        self.changes.put(&mut self.entry, &path("maxUnavailable"), 1.into(), "maxUnavailable", effect);
        self.warnings.push(
            "machines with devices are replaced one by one, the old one first (maxSurge 0): a new one could not start \
             while the old one holds its device; --spare-gpus says how many are free"
                .to_owned(),
        );
    }

    /// The value of a variable, or of a part of it, as the pool gets it.
    fn value(&self, variable: &str, path: &[&str]) -> Option<Value> {
        let own = self.overrides().into_iter().find(|it| it["name"] == variable).map(|it| it["value"].clone());
        let value = own.or_else(|| self.variables.get(variable).cloned())?;
        changes::at(&value, path).cloned().filter(|it| !it.is_null())
    }

    fn overrides(&self) -> Vec<Value> {
        self.entry["variables"]["overrides"].as_array().cloned().unwrap_or_default()
    }

    /// Gives a variable, or a part of it, a value of the pool's own.
    fn set(&mut self, field: &str, variable: &str, path: &[&str], value: Value, problems: &mut Vec<RejectedChange>) {
        if self.declared.as_ref().is_some_and(|all| !all.iter().any(|it| it == variable)) {
            let problem = format!("ClusterClass `{}` has no variable `{variable}`", self.class);
            return problems
                .push(RejectedChange::new(field, problem).hint("leave it out, or add the variable to the class"));
        }
        let before = self.value(variable, path);
        if before.as_ref() == Some(&value) {
            return;
        }
        let mut overrides = self.overrides();
        let at = overrides.iter().position(|it| it["name"] == variable).unwrap_or_else(|| {
            let start = self.variables.get(variable).cloned().unwrap_or(Value::Null);
            overrides.push(json!({"name": variable, "value": start}));
            overrides.len() - 1
        });
        self.changes.note(field, before.as_ref().map(changes::shown), Some(changes::shown(&value)), self.effect);
        put(&mut overrides[at]["value"], path, value);
        put(&mut self.entry, &["variables", "overrides"], overrides.into());
    }
}

/// The variable names of a class; `None` if the class cannot be read or declares none.
fn declared(class: Option<&Value>) -> Option<Vec<String>> {
    let class = class?;
    let names = |list: &Value| -> Vec<String> {
        let entries = list.as_array().into_iter().flatten();
        entries.filter_map(|it| it["name"].as_str().map(ToOwned::to_owned)).collect()
    };
    let mut all = names(&class["spec"]["variables"]);
    all.extend(names(&class["status"]["variables"]));
    (!all.is_empty()).then_some(all)
}

/// The entry of a new pool: a copy of the base's, or an empty one of a class that the file names.
fn new_entry(
    current: &Current,
    file: &PoolFile,
    options: &Options,
) -> Result<(Value, Vec<String>), Vec<RejectedChange>> {
    let entries = find::entries(current);
    if let Some((field, name)) = base_name(file, options) {
        let found = find::find(current, name).map_err(|missing| vec![find::refuse(current, field, name, &missing)])?;
        let mut entry = found.entry.cloned().unwrap_or_default();
        entry["name"] = file.name.as_str().into();
        if let Some(annotations) = entry["metadata"]["annotations"].as_object_mut() {
            // The bounds and capacity of another pool are not those of this one.
            annotations.retain(|key, _| !names::OF_NODE_GROUPS.contains(&key.as_str()));
        }
        return Ok((entry, Vec::new()));
    }
    let mut problems = Vec::new();
    let resolves = |entry: &Value| {
        let pool = TopologyPool::read(entry, &Problems::new());
        pool.annotations.contains_key(names::RESOLVE_OS_IMAGE)
    };
    let needed = [
        ("workerClass", file.worker_class.is_none()),
        ("tkrResolver", file.tkr_resolver.is_none() && entries.iter().any(resolves)),
    ];
    for (field, _) in needed.iter().filter(|(_, missing)| *missing) {
        let hint = match entries.first().map(|entry| entry["name"].as_str().unwrap_or_default()) {
            Some(name) => format!("give it, or copy a pool with --base-machine-deployment {name}"),
            None => "give it in the file".to_owned(),
        };
        problems.push(
            RejectedChange::new(*field, "is missing: a new pool needs it when it is copied from no other").hint(hint),
        );
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let warnings =
        if file.replicas.is_none() { vec!["replicas is left out: the pool starts with 1".to_owned()] } else { vec![] };
    Ok((json!({"name": file.name, "class": file.worker_class, "replicas": file.replicas.unwrap_or(1)}), warnings))
}

/// The MachineDeployments without an entry.
pub(super) fn strangers(current: &Current) -> impl Iterator<Item = &Value> {
    let entries = find::entries(current);
    current
        .deployments
        .iter()
        .filter(move |deployment| !entries.iter().any(|entry| find::is_of_entry(current, deployment, entry)))
}
