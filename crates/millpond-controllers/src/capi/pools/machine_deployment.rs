//! Pools that are standalone MachineDeployments.
//!
//! Templates are never changed: one with other content gets another name, derived from its content. Old machines keep
//! the template that they were made from until no object refers to it any more.

use std::collections::BTreeMap;

use millpond_api::capi::pool_file::PoolFile;
use millpond_api::capi::{
    Bootstrap, Deployment, NodeOffer, Problems, Reference, Sources, Strategy, Version, kubelet_labels, names,
};
use millpond_api::{amounts, duration};
use serde_json::{Value, json};

use super::changes::{self, Changes, content_hash, put, shape, writable};
use super::find::{self, full_name};
use super::plan::{base_name, check_replicas, texts};
use super::{
    Change, ChangePlan, Current, Effect, MADE_FOR, Options, RejectedChange, Verb, Why, Write, name_of, vsphere,
};

const VSPHERE: &str = "VSphereMachineTemplate";
const KUBEADM: &str = "KubeadmConfigTemplate";
const REGISTRATION: [&str; 5] = ["spec", "template", "spec", "joinConfiguration", "nodeRegistration"];

/// Plans a new pool, copied from another one.
pub(super) fn create(current: &Current, file: &PoolFile, options: &Options) -> Result<ChangePlan, Vec<RejectedChange>> {
    let mut warnings = Vec::new();
    let base = base(current, file, options, &mut warnings)?;
    let name = full_name(&current.cluster, &file.name);
    let mut draft = MachineDeploymentChange::new(current, base, &name, Effect::New, base)?;
    draft.warnings = warnings;
    draft.deployment = fresh(current, base, &name);
    draft.apply(file, options)?;
    Ok(draft.finish(&file.name, Verb::Create))
}

/// Plans the change of an existing pool.
pub(super) fn update(
    current: &Current,
    file: &PoolFile,
    options: &Options,
    deployment: &Value,
) -> Result<ChangePlan, Vec<RejectedChange>> {
    if !deployment["metadata"]["deletionTimestamp"].is_null() {
        let problem = format!("the pool `{}` is being deleted", file.name);
        return Err(vec![
            RejectedChange::new("name", problem).hint("wait until it is gone, or take another name").why(Why::Limit),
        ]);
    }
    if let Some(entry) = deployment["metadata"]["labels"][names::TOPOLOGY_DEPLOYMENT].as_str() {
        let problem = format!("the MachineDeployment is made by a topology, from its entry `{entry}`");
        return Err(vec![RejectedChange::new("name", problem)]);
    }
    let mut draft =
        MachineDeploymentChange::new(current, deployment, name_of(deployment), Effect::Rollout, deployment)?;
    draft.deployment = writable(deployment);
    draft.apply(file, options)?;
    Ok(draft.finish(&file.name, Verb::Change))
}

/// The MachineDeployment that a new pool is copied from: the one that is named, or the first, with a word about it.
fn base<'c>(
    current: &'c Current,
    file: &PoolFile,
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<&'c Value, Vec<RejectedChange>> {
    if let Some((field, name)) = base_name(file, options) {
        let found = find::find(current, name).map_err(|missing| vec![find::refuse(current, field, name, &missing)])?;
        return found.deployment.ok_or_else(|| vec![RejectedChange::new(field, "has no MachineDeployment yet")]);
    }
    let first = current.deployments.iter().find(|it| it["metadata"]["deletionTimestamp"].is_null());
    let Some(first) = first else {
        let problem = format!("cluster `{}` has no pool that a new one could be copied from", current.cluster);
        let hint = "make its first MachineDeployment with kubectl";
        return Err(vec![RejectedChange::new("--base-machine-deployment", problem).hint(hint).why(Why::NotFound)]);
    };
    let shown = find::display_name(current, first);
    warnings
        .push(format!("no base is named: the pool is copied from `{shown}`; --base-machine-deployment names another"));
    Ok(first)
}

/// The MachineDeployment of a new pool, before the file: the base's spec under a name of its own.
fn fresh(current: &Current, base: &Value, name: &str) -> Value {
    let own = |labels: &Value| -> BTreeMap<String, String> {
        let of_another = |key: &str| {
            matches!(key, names::DEPLOYMENT_NAME | names::SET_NAME | names::TEMPLATE_HASH)
                || key.starts_with("topology.cluster.x-k8s.io/")
        };
        let mut labels: BTreeMap<_, _> = texts(labels).into_iter().filter(|(key, _)| !of_another(key)).collect();
        labels.insert(names::CLUSTER_NAME.to_owned(), current.cluster.clone());
        labels
    };
    let mut spec = base["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("paused");
        spec.remove("rolloutAfter");
    }
    if let Some(rollout) = spec.get_mut("rollout").and_then(Value::as_object_mut) {
        rollout.remove("after");
    }
    let mut of_machines = own(&spec["template"]["metadata"]["labels"]);
    of_machines.insert(names::DEPLOYMENT_NAME.to_owned(), name.to_owned());
    put(&mut spec, &["template", "metadata", "labels"], json!(of_machines));
    spec["selector"] = json!({"matchLabels": {names::CLUSTER_NAME: current.cluster, names::DEPLOYMENT_NAME: name}});
    spec["clusterName"] = current.cluster.as_str().into();
    json!({
        "apiVersion": base["apiVersion"], "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": current.namespace, "labels": own(&base["metadata"]["labels"])},
        "spec": spec,
    })
}

/// A MachineDeployment that is being changed.
struct MachineDeploymentChange<'c> {
    current: &'c Current,
    live: Option<&'c Value>,
    name: String,
    /// The effect of changes that need new machines.
    effect: Effect,
    shape: Version,
    deployment: Value,
    /// The annotations before the change.
    annotations: BTreeMap<String, String>,
    infrastructure_ref: Reference,
    infrastructure: Value,
    old_infrastructure: Value,
    bootstrap: Option<(Reference, Value, Value)>,
    changes: Changes,
    warnings: Vec<String>,
}

impl<'c> MachineDeploymentChange<'c> {
    fn new(
        current: &'c Current,
        source: &'c Value,
        name: &str,
        effect: Effect,
        deployment: &'c Value,
    ) -> Result<Self, Vec<RejectedChange>> {
        let view = Deployment::of(&source["spec"]);
        let of = name_of(source);
        let Some(reference) = view.template.infrastructure else {
            return Err(vec![RejectedChange::new(
                format!("MachineDeployment/{of}"),
                "names no infrastructure template",
            )]);
        };
        let absent = |reference: &Reference| {
            let problem = format!("the template {reference}, which MachineDeployment `{of}` names, does not exist");
            vec![
                RejectedChange::new(format!("MachineDeployment/{of}"), problem)
                    .hint("make it, or name another base")
                    .why(Why::NotFound),
            ]
        };
        let infrastructure = current.template(&reference.kind, &reference.name).ok_or_else(|| absent(&reference))?;
        let bootstrap = match view.template.bootstrap {
            Bootstrap::Config(reference) => {
                let found = current.template(&reference.kind, &reference.name).ok_or_else(|| absent(&reference))?;
                Some((reference, found.clone(), found.clone()))
            }
            Bootstrap::DataSecret(_) | Bootstrap::Missing => None,
        };
        let live = (effect != Effect::New).then_some(deployment);
        Ok(Self {
            current,
            live,
            name: name.to_owned(),
            effect,
            shape: shape(source, current.version),
            deployment: Value::Null,
            annotations: live.map(|it| texts(&it["metadata"]["annotations"])).unwrap_or_default(),
            infrastructure_ref: reference,
            infrastructure: infrastructure.clone(),
            old_infrastructure: infrastructure.clone(),
            bootstrap,
            changes: Changes::default(),
            warnings: Vec::new(),
        })
    }

    fn in_place(&self) -> Effect {
        if self.effect == Effect::New { Effect::New } else { Effect::InPlace }
    }

    fn apply(&mut self, file: &PoolFile, options: &Options) -> Result<(), Vec<RejectedChange>> {
        let mut problems = Vec::new();
        let mut keep = |result: Result<(), RejectedChange>| problems.extend(result.err());
        keep(self.machine_type(file));
        keep(self.vsphere(file));
        keep(self.labels(file));
        keep(self.taints(file));
        if !problems.is_empty() {
            return Err(problems);
        }
        check_replicas(&self.annotations, file.replicas)?;
        let (in_place, effect) = (self.in_place(), self.effect);
        if let Some(replicas) = file.replicas {
            self.changes.put(&mut self.deployment, &["spec", "replicas"], replicas.into(), "replicas", in_place);
        }
        if let Some(zone) = &file.az {
            let path = ["spec", "template", "spec", "failureDomain"];
            self.changes.put(&mut self.deployment, &path, zone.as_str().into(), "az", effect);
        }
        if let Some(seconds) = file.node_drain_timeout_s {
            let template = ["spec", "template", "spec"];
            match self.shape {
                Version::V1Beta1 => {
                    let path = [&template[..], &["nodeDrainTimeout"]].concat();
                    let value = duration::write(seconds).into();
                    self.changes.put(&mut self.deployment, &path, value, "nodeDrainTimeout", in_place);
                }
                Version::V1Beta2 => {
                    let path = [&template[..], &["deletion", "nodeDrainTimeoutSeconds"]].concat();
                    self.changes.put(&mut self.deployment, &path, seconds.into(), "nodeDrainTimeout", in_place);
                }
            }
        }
        self.capacity(file);
        self.surge(options);
        Ok(())
    }

    fn machine_type(&mut self, file: &PoolFile) -> Result<(), RejectedChange> {
        let Some(wanted) = &file.node_machine_type else { return Ok(()) };
        let field = match self.infrastructure_ref.kind.as_str() {
            "AWSMachineTemplate" => "instanceType",
            "AzureMachineTemplate" => "vmSize",
            other => {
                let problem = format!("machines of {other} have no machine type");
                let hint = if other == VSPHERE { "give vsphere.numCPUs and vsphere.memoryMiB" } else { "leave it out" };
                return Err(RejectedChange::new("nodeMachineType", problem).hint(hint));
            }
        };
        let path = ["spec", "template", "spec", field];
        let value = wanted.as_str().into();
        self.changes.put(&mut self.infrastructure, &path, value, "nodeMachineType", self.effect);
        Ok(())
    }

    fn vsphere(&mut self, file: &PoolFile) -> Result<(), RejectedChange> {
        if file.vsphere == millpond_api::capi::pool_file::VSphere::default() {
            return Ok(());
        }
        if self.infrastructure_ref.kind != VSPHERE {
            let problem = format!("the machines are of {}, not of vSphere", self.infrastructure_ref.kind);
            return Err(RejectedChange::new("vsphere", problem).hint("leave the layer out, or name a base on vSphere"));
        }
        let spec = &mut self.infrastructure["spec"]["template"]["spec"];
        vsphere::apply(spec, &file.vsphere, self.effect, &mut self.changes, &mut self.warnings);
        let devices = vsphere::devices(&spec["pciDevices"]);
        let mut version = spec["hardwareVersion"].as_str().map(ToOwned::to_owned);
        let mut keys = spec["customVMXKeys"].as_object().cloned().unwrap_or_default();
        vsphere::settle(&devices, &mut version, &mut keys, &mut self.warnings)?;
        if let Some(version) = version {
            self.changes.put(spec, &["hardwareVersion"], version.into(), "vsphere.hardwareVersion", self.effect);
        }
        if !keys.is_empty() {
            self.changes.put(spec, &["customVMXKeys"], keys.into(), "vsphere.customVMXKeys", self.effect);
        }
        Ok(())
    }

    fn devices(&self) -> vsphere::Devices {
        vsphere::devices(&self.infrastructure["spec"]["template"]["spec"]["pciDevices"])
    }

    /// Labels go to the machines; what Cluster API does not copy from there goes to the kubelet, for new nodes.
    fn labels(&mut self, file: &PoolFile) -> Result<(), RejectedChange> {
        let before = self.bootstrap.as_ref().map(|(_, bootstrap, _)| kubelet_labels(bootstrap)).unwrap_or_default();
        let mut of_kubelet = before.clone();
        if let Some(labels) = &file.labels {
            self.labels_of_machines(labels, &before);
            of_kubelet = labels
                .iter()
                .filter(|(key, _)| !names::reaches_node(key))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if let Some(refused) = of_kubelet.keys().find(|key| kubelet_refuses(key)) {
                let problem = format!("the kubelet may not give its own node the label `{refused}`");
                let hint = "take a domain of your own, or `node.cluster.x-k8s.io`, which Cluster API copies to nodes";
                return Err(RejectedChange::new("labels", problem).hint(hint));
            }
        }
        // The label by which an autoscaler knows that GPUs will come.
        match self.devices().label {
            Some(label) => drop(of_kubelet.insert(names::ACCELERATOR.to_owned(), label)),
            None if self.infrastructure_ref.kind == VSPHERE => drop(of_kubelet.remove(names::ACCELERATOR)),
            None => {}
        }
        if of_kubelet == before {
            return Ok(());
        }
        let own_hosts = self.infrastructure_ref.kind == "ByoMachineTemplate";
        let Some((_, bootstrap, _)) = self.bootstrap.as_mut().filter(|(reference, ..)| reference.kind == KUBEADM)
        else {
            if own_hosts || file.labels.is_none() {
                return Ok(());
            }
            let problem = "would never reach the nodes: the pool has no KubeadmConfigTemplate";
            let hint = "take labels of the domain `node.cluster.x-k8s.io`, which Cluster API copies to nodes";
            return Err(RejectedChange::new("labels", problem).hint(hint));
        };
        let joined: Vec<String> = of_kubelet.iter().map(|(key, value)| format!("{key}={value}")).collect();
        set_kubelet_labels(bootstrap, &joined.join(","));
        let text = |labels: &BTreeMap<String, String>| {
            let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            (!pairs.is_empty()).then(|| pairs.join(","))
        };
        self.changes.note("labels", text(&before), text(&of_kubelet), self.effect);
        Ok(())
    }

    fn labels_of_machines(&mut self, labels: &BTreeMap<String, String>, before: &BTreeMap<String, String>) {
        let path = ["spec", "template", "metadata", "labels"];
        let mut of_machines = changes::at(&self.deployment, &path).map(texts).unwrap_or_default();
        let old: Vec<String> = of_machines.keys().cloned().collect();
        for key in old {
            let of_pool = before.contains_key(&key) || names::reaches_node(&key);
            if of_pool && !labels.contains_key(&key) {
                of_machines.remove(&key);
            }
        }
        of_machines.extend(labels.clone());
        let in_place = self.in_place();
        self.changes.put(&mut self.deployment, &path, json!(of_machines), "labels", in_place);
    }

    fn taints(&mut self, file: &PoolFile) -> Result<(), RejectedChange> {
        let Some(taints) = &file.taints else { return Ok(()) };
        let Some((_, bootstrap, _)) = self.bootstrap.as_mut().filter(|(reference, ..)| reference.kind == KUBEADM)
        else {
            if taints.is_empty() {
                return Ok(());
            }
            let problem = "would never reach the nodes: the pool has no KubeadmConfigTemplate";
            return Err(RejectedChange::new("taints", problem).hint("name a base that starts its machines by kubeadm"));
        };
        let path = [&REGISTRATION[..], &["taints"]].concat();
        if taints.is_empty() && changes::at(bootstrap, &path).is_none() {
            return Ok(());
        }
        self.changes.put(bootstrap, &path, json!(taints), "taints", self.effect);
        Ok(())
    }

    /// The capacity annotations that an autoscaler needs for nodes that do not exist yet.
    fn capacity(&mut self, file: &PoolFile) {
        if self.infrastructure_ref.kind != VSPHERE {
            return;
        }
        let template = Deployment::of(&self.deployment["spec"]).template;
        let nothing = BTreeMap::new();
        let derived = |infrastructure: &Value| {
            let sources = Sources {
                annotations: &nothing,
                template: &template,
                infrastructure: Some(infrastructure),
                bootstrap: None,
            };
            annotations_of(&NodeOffer::read(&sources, &Problems::new()))
        };
        let (now, old) = (derived(&self.infrastructure), derived(&self.old_infrastructure));
        let touched = self.effect == Effect::New || file.vsphere != millpond_api::capi::pool_file::VSphere::default();
        if !touched {
            return;
        }
        let effect = self.in_place();
        for (key, value) in &now {
            // A value that a user wrote is kept while the machines stay the same.
            let by_hand = self.annotations.contains_key(*key) && old.get(key) == Some(value);
            if !by_hand {
                let path = ["metadata", "annotations", *key];
                self.changes.put(&mut self.deployment, &path, value.as_str().into(), key, effect);
            }
        }
        for key in old.keys().filter(|key| !now.contains_key(*key)) {
            self.changes.take(&mut self.deployment, &["metadata", "annotations", key], key, effect);
        }
    }

    /// A machine that waits for a device which another one holds never starts: no surge without a spare device.
    fn surge(&mut self, options: &Options) {
        let devices = self.devices().passed;
        let view = Deployment::of(&self.deployment["spec"]);
        let Strategy::RollingUpdate { max_surge, .. } = view.strategy else { return };
        let surge = max_surge.of(view.replicas.unwrap_or(1), true);
        if devices == 0 || surge == 0 || i64::from(options.spare_gpus) >= surge * i64::from(devices) {
            return;
        }
        let rolls = self.changes.0.iter().any(|change| change.effect == Effect::Rollout);
        if self.effect != Effect::New && !rolls {
            return;
        }
        let strategy: &[&str] = match self.shape {
            Version::V1Beta1 => &["spec", "strategy"],
            Version::V1Beta2 => &["spec", "rollout", "strategy"],
        };
        let effect = self.in_place();
        let path = |key: &'static str| [strategy, &["rollingUpdate", key]].concat();
        put(&mut self.deployment, &[strategy, &["type"]].concat(), "RollingUpdate".into());
        self.changes.put(&mut self.deployment, &path("maxSurge"), 0.into(), "maxSurge", effect);
        self.changes.put(&mut self.deployment, &path("maxUnavailable"), 1.into(), "maxUnavailable", effect);
        self.warnings.push(
            "machines with devices are replaced one by one, the old one first (maxSurge 0): a new one could not start \
             while the old one holds its device; --spare-gpus says how many are free"
                .to_owned(),
        );
    }

    /// Names templates after their content, and puts everything in order: templates first, the pool last.
    fn finish(mut self, pool: &str, verb: Verb) -> ChangePlan {
        let (mut writes, mut created) = (Vec::new(), Vec::new());
        let is_new = self.effect == Effect::New;
        if let Some((reference, bootstrap, old)) = self.bootstrap.take()
            && (is_new || bootstrap["spec"] != old["spec"])
        {
            let path = ["spec", "template", "spec", "bootstrap", "configRef"];
            self.rotate(reference, &bootstrap, "kct", &path, &mut writes, &mut created);
        }
        if is_new || self.infrastructure["spec"] != self.old_infrastructure["spec"] {
            let path = ["spec", "template", "spec", "infrastructureRef"];
            let infrastructure = self.infrastructure.clone();
            self.rotate(self.infrastructure_ref.clone(), &infrastructure, "mt", &path, &mut writes, &mut created);
        }
        let kind = "MachineDeployment";
        if is_new {
            created.push(format!("{kind}/{}", self.name));
        }
        let changed = is_new || self.live.is_some_and(|live| writable(live) != self.deployment);
        if changed {
            writes.push(Write { object: self.deployment, live: self.live.cloned() });
        }
        let verb = if changed { verb } else { Verb::Nothing };
        let changes: Vec<Change> = if changed { self.changes.0 } else { Vec::new() };
        ChangePlan {
            pool: pool.to_owned(),
            object: format!("{kind}/{}", self.name),
            verb,
            created,
            changes,
            ignored: Vec::new(),
            warnings: self.warnings,
            writes,
        }
    }

    /// A template of this content under its own name, and the reference to it.
    fn rotate(
        &mut self,
        reference: Reference,
        content: &Value,
        suffix: &str,
        path: &[&str],
        writes: &mut Vec<Write>,
        created: &mut Vec<String>,
    ) {
        let name = format!("{}-{suffix}-{}", self.name, content_hash(content));
        let mut template = json!({
            "apiVersion": content["apiVersion"], "kind": content["kind"],
            "metadata": {
                "name": name, "namespace": self.current.namespace,
                "labels": {names::CLUSTER_NAME: self.current.cluster, MADE_FOR: self.name},
            },
            "spec": content["spec"],
        });
        if let Some(owner) = owner(self.current) {
            template["metadata"]["ownerReferences"] = json!([owner]);
        }
        if self.current.template(&reference.kind, &name).is_none() {
            created.push(format!("{}/{name}", reference.kind));
            writes.push(Write { object: template, live: None });
        }
        let served =
            content["apiVersion"].as_str().and_then(|it| it.rsplit('/').next()).unwrap_or("v1beta1").to_owned();
        let reference = Reference { name, namespace: None, version: None, ..reference };
        let value = reference.write(self.shape, &served, &self.current.namespace);
        put(&mut self.deployment, path, value);
    }
}

/// Templates are owned by their cluster.
fn owner(current: &Current) -> Option<Value> {
    let cluster = current.object.as_ref()?;
    let uid = cluster["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty())?;
    Some(json!({"apiVersion": cluster["apiVersion"], "kind": "Cluster", "name": current.cluster, "uid": uid}))
}

/// The autoscaler's annotations for what a node offers.
fn annotations_of(offer: &NodeOffer) -> BTreeMap<&'static str, String> {
    let mut annotations = BTreeMap::new();
    for (key, resource) in
        [(names::CAPACITY_CPU, "cpu"), (names::CAPACITY_MEMORY, "memory"), (names::CAPACITY_DISK, "ephemeral-storage")]
    {
        if let Some(amount) = offer.capacity.get(resource) {
            annotations.insert(key, amounts::write(resource, amount));
        }
    }
    if let Some((resource, count)) = &offer.gpu {
        annotations.insert(names::CAPACITY_GPU_TYPE, resource.clone());
        annotations.insert(names::CAPACITY_GPU_COUNT, count.to_string());
    }
    annotations
}

/// Writes the kubelet's `node-labels` into the argument map (v1beta1) or list (v1beta2) that the template has.
fn set_kubelet_labels(bootstrap: &mut Value, labels: &str) {
    let is_new = bootstrap["apiVersion"].as_str().is_some_and(|it| it.ends_with("/v1beta2"));
    let path = [&REGISTRATION[..], &["kubeletExtraArgs"]].concat();
    let mut arguments = changes::at(bootstrap, &path).cloned().unwrap_or(Value::Null);
    match &mut arguments {
        Value::Array(list) => {
            list.retain(|argument| argument["name"] != "node-labels");
            if !labels.is_empty() {
                list.push(json!({"name": "node-labels", "value": labels}));
            }
        }
        Value::Object(map) if labels.is_empty() => drop(map.remove("node-labels")),
        Value::Object(map) => drop(map.insert("node-labels".to_owned(), labels.into())),
        other if is_new => *other = json!([{"name": "node-labels", "value": labels}]),
        other => *other = json!({"node-labels": labels}),
    }
    put(bootstrap, &path, arguments);
}

/// Labels of Kubernetes' own domains that a kubelet does not start with.
fn kubelet_refuses(label: &str) -> bool {
    let Some((domain, name)) = label.split_once('/') else { return false };
    let is_below =
        |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if !is_below("kubernetes.io") && !is_below("k8s.io") {
        return false;
    }
    let known = matches!(
        (domain, name),
        ("kubernetes.io", "hostname" | "arch" | "os")
            | ("beta.kubernetes.io", "arch" | "os" | "instance-type")
            | ("node.kubernetes.io", "instance-type")
            | (
                "topology.kubernetes.io" | "failure-domain.beta.kubernetes.io" | "failure-domain.kubernetes.io",
                "zone" | "region"
            )
    );
    !known && !is_below("kubelet.kubernetes.io") && !is_below("node.kubernetes.io")
}
