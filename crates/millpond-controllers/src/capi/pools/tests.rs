//! Plans for pools: the parity table field by field, and every defect of the original that must not come back.

use millpond_api::capi::Version;
use millpond_api::capi::names;
use millpond_api::capi::pool_file::{PoolFile, parse};
use serde_json::{Value, json};

use super::parity::{Outcome, TABLE};
use super::*;

/// A cluster `c` without anything.
pub(super) fn empty() -> Current {
    Current {
        cluster: "c".to_owned(),
        namespace: "default".to_owned(),
        path: Path::Plain,
        version: Version::V1Beta2,
        object: Some(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": "c", "namespace": "default", "uid": "u-1", "resourceVersion": "1"}, "spec": {},
        })),
        tanzu: None,
        class: None,
        deployments: vec![],
        sets: vec![],
        machines: vec![],
        templates: vec![],
    }
}

fn deployment(name: &str, template: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "default", "resourceVersion": "5", "labels": {names::CLUSTER_NAME: "c"},
            "annotations": {names::MIN_SIZE: "0", names::MAX_SIZE: "9", "example.com/mine": "yes"}},
        "spec": {
            "clusterName": "c", "replicas": 2,
            "selector": {"matchLabels": {names::CLUSTER_NAME: "c", names::DEPLOYMENT_NAME: name}},
            "template": {
                "metadata": {"labels": {names::CLUSTER_NAME: "c", names::DEPLOYMENT_NAME: name}},
                "spec": {
                    "clusterName": "c", "version": "v1.34.1",
                    "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "kct"}},
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": template},
                },
            },
        },
    })
}

fn template(kind: &str, name: &str, spec: Value) -> Value {
    let group = if kind.starts_with("Kubeadm") { "bootstrap" } else { "infrastructure" };
    json!({
        "apiVersion": format!("{group}.cluster.x-k8s.io/v1beta2"), "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": {"template": {"spec": spec}},
    })
}

/// A cluster on vSphere with the pools `c-md-0` and `c-md-01`.
fn plain() -> Current {
    let machine = json!({
        "template": "ubuntu", "numCPUs": 4, "memoryMiB": 8192, "diskGiB": 40, "datacenter": "/dc",
        "network": {"devices": [{"networkName": "VM Network", "dhcp4": true}]},
    });
    Current {
        deployments: vec![
            deployment("c-md-0", "mt", "VSphereMachineTemplate"),
            deployment("c-md-01", "mt", "VSphereMachineTemplate"),
        ],
        templates: vec![
            template("VSphereMachineTemplate", "mt", machine),
            template("KubeadmConfigTemplate", "kct", json!({"joinConfiguration": {}})),
        ],
        ..empty()
    }
}

fn on_aws() -> Current {
    let mut current = plain();
    for deployment in &mut current.deployments {
        deployment["spec"]["template"]["spec"]["infrastructureRef"]["kind"] = "AWSMachineTemplate".into();
    }
    current.templates[0] = template("AWSMachineTemplate", "mt", json!({"instanceType": "m5.large"}));
    current
}

fn topology(infrastructure: &str) -> Current {
    let entry = |name: &str| {
        json!({"name": name, "class": "tkg-worker", "replicas": 2,
            "metadata": {"annotations": {names::RESOLVE_OS_IMAGE: "os-name=photon", names::MIN_SIZE: "0", names::MAX_SIZE: "9"}},
            "variables": {"overrides": [{"name": "nodePoolLabels", "value": [{"key": "old", "value": "1"}]}]}})
    };
    let mut current = empty();
    current.path = Path::Topology;
    current.object.as_mut().unwrap()["spec"] = json!({
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": infrastructure, "name": "c"},
        "topology": {
            "classRef": {"name": "tkg"}, "version": "v1.26.5",
            "variables": [{"name": "worker", "value": {"machine": {"numCPUs": 2, "memoryMiB": 4096, "diskGiB": 40}}},
                {"name": "vcenter", "value": {"server": "10.0.0.9", "datacenter": "/dc"}}],
            "workers": {"machineDeployments": [entry("md-0"), entry("md-1")]},
        },
    });
    current
}

fn tanzu() -> Current {
    let entry = |name: &str| json!({"name": name, "replicas": 2, "vmClass": "small", "storageClass": "gold"});
    let mut current = empty();
    current.path = Path::Tanzu;
    current.tanzu = Some(json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesCluster",
        "metadata": {"name": "c", "namespace": "default", "resourceVersion": "3"},
        "spec": {"topology": {"nodePools": [entry("md-0"), entry("md-1")]}},
    }));
    current
}

fn file(text: &str) -> PoolFile {
    parse("pool.yaml", text).unwrap_or_else(|errors| panic!("{errors:#?}")).file
}

fn made(current: &Current, text: &str) -> ChangePlan {
    plan(current, &file(text), &Options::default()).unwrap_or_else(|refused| panic!("{refused:#?}"))
}

fn refused(current: &Current, text: &str) -> Vec<String> {
    plan(current, &file(text), &Options::default()).unwrap_err().iter().map(ToString::to_string).collect()
}

fn last(plan: &ChangePlan) -> &Value {
    &plan.writes.last().expect("something is written").object
}

/// A value for each field that no pool of the fixtures has.
const SAMPLES: &[(&str, &str)] = &[
    ("replicas", "replicas: 5"),
    ("az", "az: zone-2"),
    ("nodeMachineType", "nodeMachineType: m5.2xlarge"),
    ("workerClass", "workerClass: tkg-other"),
    ("labels", "labels: {team: a}"),
    ("taints", "taints: [{key: a, value: b, effect: NoSchedule}]"),
    ("vmClass", "vmClass: large"),
    ("storageClass", "storageClass: silver"),
    ("tkrResolver", "tkrResolver: os-name=ubuntu"),
    ("volumes", "volumes: [{name: v, mountPath: /v, capacity: {storage: 5Gi}}]"),
    ("tkr", "tkr: {reference: {name: v1.27}}"),
    ("nodeDrainTimeout", "nodeDrainTimeout: 5m"),
    ("baseMachineDeployment", "baseMachineDeployment: md-0"),
    ("vsphere.cloneMode", "vsphere: {cloneMode: linkedClone}"),
    ("vsphere.datacenter", "vsphere: {datacenter: /other}"),
    ("vsphere.datastore", "vsphere: {datastore: /ds}"),
    ("vsphere.storagePolicyName", "vsphere: {storagePolicyName: gold}"),
    ("vsphere.folder", "vsphere: {folder: /f}"),
    ("vsphere.network", "vsphere: {network: other}"),
    ("vsphere.nameservers", "vsphere: {nameservers: [10.0.0.2]}"),
    ("vsphere.tkgIPFamily", "vsphere: {tkgIPFamily: 'ipv4,ipv6'}"),
    ("vsphere.resourcePool", "vsphere: {resourcePool: /rp}"),
    ("vsphere.vcIP", "vsphere: {vcIP: 10.0.0.1}"),
    ("vsphere.template", "vsphere: {template: photon}"),
    ("vsphere.memoryMiB", "vsphere: {memoryMiB: 16384}"),
    ("vsphere.diskGiB", "vsphere: {diskGiB: 80}"),
    ("vsphere.numCPUs", "vsphere: {numCPUs: 16}"),
    ("vsphere.numCoresPerSocket", "vsphere: {numCoresPerSocket: 2}"),
    ("vsphere.additionalDisksGiB", "vsphere: {additionalDisksGiB: [50]}"),
    ("vsphere.powerOffMode", "vsphere: {powerOffMode: soft}"),
    ("vsphere.hardwareVersion", "vsphere: {hardwareVersion: vmx-19}"),
    ("vsphere.customVMXKeys", "vsphere: {customVMXKeys: {a: b}}"),
    ("vsphere.pciDevices", "vsphere: {pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]}"),
];

#[test]
fn every_field_does_on_every_path_what_the_table_says() {
    assert_eq!(
        SAMPLES.iter().map(|(field, _)| *field).collect::<Vec<_>>(),
        TABLE.iter().map(|row| row.field).collect::<Vec<_>>()
    );
    for (row, (field, sample)) in TABLE.iter().zip(SAMPLES) {
        for path in Path::ALL {
            let current = match path {
                Path::Plain if *field == "nodeMachineType" => on_aws(),
                Path::Plain => plain(),
                Path::Topology if *field == "nodeMachineType" => topology("AWSCluster"),
                Path::Topology => topology("VSphereCluster"),
                Path::Tanzu => tanzu(),
            };
            for create in [true, false] {
                let case = format!("{field} on {} (create: {create})", path.name());
                let name = if create { "new" } else { "md-0" };
                let mut wanted = file(&format!("name: {name}\n{sample}\n"));
                let mut options = Options::default();
                match path {
                    _ if !create => {}
                    Path::Tanzu => {
                        wanted.vm_class.get_or_insert_with(|| "small".to_owned());
                        wanted.storage_class.get_or_insert_with(|| "gold".to_owned());
                    }
                    Path::Plain | Path::Topology => {
                        options.base = Some("md-1".to_owned()).filter(|_| path == Path::Topology);
                    }
                }
                let planned = plan(&current, &wanted, &options);
                check(&case, field, row.outcome(path, create), create, planned);
            }
        }
    }
}

fn check(case: &str, field: &str, outcome: Outcome, create: bool, planned: Result<ChangePlan, Vec<RejectedChange>>) {
    match outcome {
        Outcome::Refused(reason) => {
            let refused = planned.expect_err(case);
            assert!(refused.iter().any(|it| it.field == field && it.problem == reason), "{case}: {refused:?}");
        }
        Outcome::Ignored(reason) => {
            let planned = planned.unwrap_or_else(|refused| panic!("{case}: {refused:?}"));
            assert_eq!(planned.ignored, [(field.to_owned(), reason.to_owned())], "{case}");
        }
        Outcome::InPlace | Outcome::Rollout => {
            let planned = planned.unwrap_or_else(|refused| panic!("{case}: {refused:?}"));
            assert_eq!(planned.verb, if create { Verb::Create } else { Verb::Change }, "{case}");
            let effects: Vec<Effect> =
                planned.changes.iter().filter(|it| it.field == field).map(|it| it.effect).collect();
            if field == "baseMachineDeployment" {
                return;
            }
            if create {
                assert!(
                    effects.iter().all(|it| *it == Effect::New) && !effects.is_empty(),
                    "{case}: {:?}",
                    planned.changes
                );
            } else if outcome == Outcome::InPlace {
                assert!(!effects.is_empty() && !planned.rolls_out(), "{case}: {:?}", planned.changes);
            } else {
                assert!(effects.contains(&Effect::Rollout), "{case}: {:?}", planned.changes);
            }
        }
    }
}

// Pools that are MachineDeployments

#[test]
fn a_new_pool_is_three_objects_the_pool_last() {
    let planned = made(&plain(), "name: gpu\nreplicas: 1\nlabels: {purpose: gpu}\n");
    let kinds: Vec<&str> = planned.writes.iter().map(|write| write.object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["KubeadmConfigTemplate", "VSphereMachineTemplate", "MachineDeployment"]);
    let pool = last(&planned);
    assert_eq!(name_of(pool), "c-gpu");
    assert_eq!(
        pool["spec"]["selector"]["matchLabels"],
        json!({names::CLUSTER_NAME: "c", names::DEPLOYMENT_NAME: "c-gpu"})
    );
    let labels = &pool["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&labels["purpose"], &labels[names::DEPLOYMENT_NAME]), (&json!("gpu"), &json!("c-gpu")));
    let spec = &pool["spec"]["template"]["spec"];
    for (reference, object) in [
        (&spec["bootstrap"]["configRef"], &planned.writes[0].object),
        (&spec["infrastructureRef"], &planned.writes[1].object),
    ] {
        assert_eq!(reference["name"], object["metadata"]["name"], "the pool names the templates that were made for it");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u-1");
    }
    let name = name_of(&planned.writes[1].object);
    assert!(name.starts_with("c-gpu-mt-") && name.len() == "c-gpu-mt-".len() + 8, "{name}");
    let arguments = &planned.writes[0].object["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"];
    assert_eq!(*arguments, json!([{"name": "node-labels", "value": "purpose=gpu"}]));
    // The base's bounds are the base's.
    assert_eq!(pool["metadata"]["annotations"].get(names::MIN_SIZE), None);
    assert!(
        planned.warnings[0].starts_with("no base is named: the pool is copied from `md-0`"),
        "{:?}",
        planned.warnings
    );
}

#[test]
fn annotations_survive_a_change() {
    let planned = made(&plain(), "name: md-0\nreplicas: 5\nvsphere: {memoryMiB: 16384}\n");
    let annotations = &last(&planned)["metadata"]["annotations"];
    assert_eq!(annotations[names::MIN_SIZE], "0");
    assert_eq!(annotations[names::MAX_SIZE], "9");
    assert_eq!(annotations["example.com/mine"], "yes");
    assert_eq!(annotations[names::CAPACITY_MEMORY], "16Gi");
    assert_eq!(last(&planned)["metadata"]["resourceVersion"], "5", "a change in between is noticed");
}

#[test]
fn what_is_there_already_is_not_written_again() {
    let mut current = plain();
    let text = "name: gpu\nreplicas: 1\nlabels: {purpose: gpu}\ntaints: [{key: a, effect: NoSchedule}]\nvsphere:\n  memoryMiB: 16384\n  \
                pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]\n";
    let planned = made(&current, text);
    for write in planned.writes {
        let is_pool = write.object["kind"] == "MachineDeployment";
        if is_pool { current.deployments.push(write.object) } else { current.templates.push(write.object) }
    }
    let again = made(&current, text);
    assert_eq!((again.verb, again.writes.len(), again.changes.len()), (Verb::Nothing, 0, 0));
}

#[test]
fn a_template_is_replaced_and_never_changed() {
    let current = plain();
    let planned = made(&current, "name: md-0\nvsphere: {memoryMiB: 16384}\n");
    let kinds: Vec<&str> = planned.writes.iter().map(|write| write.object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["VSphereMachineTemplate", "MachineDeployment"], "the bootstrap template is the same");
    assert!(planned.rolls_out());
    let new = name_of(&planned.writes[0].object);
    assert!(new != "mt" && last(&planned)["spec"]["template"]["spec"]["infrastructureRef"]["name"] == new);
    assert_eq!(last(&planned)["spec"]["template"]["spec"]["bootstrap"]["configRef"]["name"], "kct");
    // Everything that the file does not speak of is carried along.
    assert_eq!(planned.writes[0].object["spec"]["template"]["spec"]["template"], "ubuntu");
}

#[test]
fn labels_that_cluster_api_copies_need_no_rollout() {
    let planned = made(&plain(), "name: md-0\nlabels: {node.cluster.x-k8s.io/team: a}\n");
    assert!(!planned.rolls_out(), "{:?}", planned.changes);
    assert_eq!(last(&planned)["spec"]["template"]["metadata"]["labels"]["node.cluster.x-k8s.io/team"], "a");
    assert_eq!(
        refused(&plain(), "name: md-0\nlabels: {kubernetes.io/team: a}\n"),
        ["labels: the kubelet may not give its own node the label `kubernetes.io/team`"]
    );
}

#[test]
fn labels_that_would_never_reach_nodes_are_refused() {
    let mut current = plain();
    for deployment in &mut current.deployments {
        deployment["spec"]["template"]["spec"]["bootstrap"] = json!({"dataSecretName": "s"});
    }
    assert_eq!(
        refused(&current, "name: new\nlabels: {team: a}\n"),
        ["labels: would never reach the nodes: the pool has no KubeadmConfigTemplate"]
    );
    assert_eq!(
        refused(&current, "name: new\ntaints: [{key: a, effect: NoSchedule}]\n"),
        ["taints: would never reach the nodes: the pool has no KubeadmConfigTemplate"]
    );
    assert_eq!(made(&current, "name: new\nreplicas: 3\n").created.len(), 2);
}

#[test]
fn a_gpu_pool_scales_from_zero_and_does_not_wait_for_itself() {
    let text = "name: gpu\nreplicas: 0\nvsphere:\n  numCPUs: 8\n  memoryMiB: 32768\n  pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]\n";
    let planned = made(&plain(), text);
    let pool = last(&planned);
    let annotations = &pool["metadata"]["annotations"];
    assert_eq!(
        (&annotations[names::CAPACITY_GPU_TYPE], &annotations[names::CAPACITY_GPU_COUNT]),
        (&json!("nvidia.com/gpu"), &json!("1"))
    );
    assert_eq!(
        (&annotations[names::CAPACITY_CPU], &annotations[names::CAPACITY_MEMORY]),
        (&json!("8"), &json!("32Gi"))
    );
    assert_eq!(pool["spec"]["rollout"]["strategy"]["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 1}));
    let machine = &planned.writes[1].object["spec"]["template"]["spec"];
    assert_eq!(machine["pciDevices"], json!([{"vendorId": 4318, "deviceId": 7864}]));
    assert_eq!(
        (&machine["hardwareVersion"], &machine["customVMXKeys"]["pciPassthru.64bitMMIOSizeGB"]),
        (&json!("vmx-17"), &json!("32"))
    );
    let arguments = &planned.writes[0].object["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"];
    assert_eq!(arguments[0]["value"], "cluster-api/accelerator=nvidia-t4");
    // With a card to spare, nothing is slowed down.
    let spare = Options { spare_gpus: 1, ..Options::default() };
    let planned = plan(&plain(), &file(text), &spare).unwrap();
    assert_eq!(last(&planned)["spec"].get("rollout"), None);
}

#[test]
fn devices_that_go_take_along_what_came_with_them() {
    let mut current = plain();
    let planned = made(&current, "name: gpu\nvsphere: {pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]}\n");
    for write in planned.writes {
        if write.object["kind"] == "MachineDeployment" {
            current.deployments.push(write.object);
        } else {
            current.templates.push(write.object);
        }
    }
    let planned = made(&current, "name: gpu\nvsphere: {pciDevices: []}\n");
    let annotations = &last(&planned)["metadata"]["annotations"];
    assert_eq!(
        (annotations.get(names::CAPACITY_GPU_TYPE), annotations[names::CAPACITY_CPU].as_str()),
        (None, Some("4"))
    );
    let bootstrap = &planned.writes[0].object["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"];
    assert_eq!(bootstrap["kubeletExtraArgs"], json!([]));
}

/// The file of seed 000 with its GPU example.
#[test]
fn the_seed_becomes_a_pool() {
    let planned = made(
        &plain(),
        "name: gpu\nreplica: 2\nlabels: {purpose: gpu}\nvsphere:\n  hardwareVersion: vmx-17\n  customVMXKeys:\n  - pciPassthru.allowP2P:true\n    \
         pciPassthru.RelaxACSforP2P:true\n    pciPassthru.use64bitMMIO:true\n    pciPassthru.64bitMMIOSizeGB:512\n  \
         pciDevices:\n  - deviceId: 0x10DE\n    vendorId: 0x1EB8\n",
    );
    let machine = &planned.writes[1].object["spec"]["template"]["spec"];
    assert_eq!(machine["pciDevices"], json!([{"vendorId": 4318, "deviceId": 7864}]));
    assert_eq!(
        machine["customVMXKeys"],
        json!({"pciPassthru.allowP2P": "true", "pciPassthru.RelaxACSforP2P": "true", "pciPassthru.use64bitMMIO": "true",
            "pciPassthru.64bitMMIOSizeGB": "512"})
    );
    assert_eq!(last(&planned)["spec"]["replicas"], 2);
}

#[test]
fn the_old_version_gets_its_own_shape() {
    let mut current = plain();
    current.version = Version::V1Beta1;
    for deployment in &mut current.deployments {
        let spec = &mut deployment["spec"]["template"]["spec"];
        spec["infrastructureRef"] = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereMachineTemplate", "name": "mt"});
        spec["bootstrap"]["configRef"] =
            json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfigTemplate", "name": "kct"});
    }
    for template in &mut current.templates {
        let new = template["apiVersion"].as_str().unwrap().replace("v1beta2", "v1beta1");
        template["apiVersion"] = new.into();
    }
    let planned = made(
        &current,
        "name: gpu\nlabels: {a: b}\nnodeDrainTimeout: 5m\nvsphere: {pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]}\n",
    );
    let spec = &last(&planned)["spec"];
    assert_eq!(spec["template"]["spec"]["infrastructureRef"]["apiVersion"], "infrastructure.cluster.x-k8s.io/v1beta1");
    assert_eq!(spec["template"]["spec"]["nodeDrainTimeout"], "5m0s");
    assert_eq!(spec["strategy"]["rollingUpdate"]["maxSurge"], 0);
    let registration = &planned.writes[0].object["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"];
    assert_eq!(registration["kubeletExtraArgs"]["node-labels"], "a=b,cluster-api/accelerator=nvidia-t4");
}

#[test]
fn names_are_exact_and_never_guessed() {
    let mut current = plain();
    assert_eq!(last(&made(&current, "name: md-0\nreplicas: 7\n"))["metadata"]["name"], "c-md-0");
    assert_eq!(last(&made(&current, "name: c-md-01\nreplicas: 7\n"))["metadata"]["name"], "c-md-01");
    // A part of a name is another name: a new pool.
    assert_eq!(made(&current, "name: md\nreplicas: 7\n").verb, Verb::Create);
    current.deployments.push(deployment("md-0", "mt", "VSphereMachineTemplate"));
    let rejections = plan(&current, &file("name: md-0\nreplicas: 7\n"), &Options::default()).unwrap_err();
    assert_eq!(
        rejections[0].to_string(),
        "name: `md-0` is both the MachineDeployment `md-0` and `c-md-0` of cluster `c`"
    );
    assert_eq!(rejections[0].hint.as_deref(), Some("write `md/md-0` for the one, `c-md-0` for the other"));
    assert_eq!(last(&plan_scale(&current, "md/md-0", 3).unwrap())["metadata"]["name"], "md-0");
    let shown: Vec<String> = views(&current).into_iter().map(|it| it.name).collect();
    assert_eq!(shown, ["c-md-0", "md-01", "md/md-0"]);
}

#[test]
fn bases_and_templates_that_are_not_there_are_told() {
    let base = |name: &str| Options { base: Some(name.to_owned()), ..Options::default() };
    let rejections = plan(&plain(), &file("name: new\n"), &base("md-1")).unwrap_err();
    assert_eq!(rejections[0].to_string(), "--base-machine-deployment: there is no pool `md-1` in cluster `c`");
    assert_eq!((rejections[0].hint.as_deref(), rejections[0].why), (Some("did you mean `md-0`?"), Why::NotFound));
    let rejections = plan(&plain(), &file("name: md-0\n"), &base("md-01")).unwrap_err();
    assert_eq!(
        rejections[0].to_string(),
        "--base-machine-deployment: the pool `md-0` is there; a base is for new pools"
    );
    let rejections = plan(&empty(), &file("name: new\n"), &Options::default()).unwrap_err();
    assert_eq!(
        rejections[0].to_string(),
        "--base-machine-deployment: cluster `c` has no pool that a new one could be copied from"
    );
    let mut current = plain();
    current.templates.remove(0);
    assert_eq!(
        refused(&current, "name: new\n"),
        [
            "MachineDeployment/c-md-0: the template VSphereMachineTemplate/mt, which MachineDeployment `c-md-0` names, does not exist"
        ]
    );
}

#[test]
fn replicas_keep_to_the_bounds_of_the_autoscaler() {
    let rejections = plan(&plain(), &file("name: md-0\nreplicas: 10\n"), &Options::default()).unwrap_err();
    assert_eq!(rejections[0].to_string(), "replicas: 10 is outside of the autoscaler's bounds, 0 to 9");
    assert_eq!(rejections[0].why, Why::Limit);
    assert_eq!(plan_scale(&plain(), "md-0", 9).unwrap().changes.len(), 1);
    assert_eq!(plan_scale(&plain(), "md-9", 9).unwrap_err()[0].why, Why::NotFound);
}

#[test]
fn layers_that_do_not_fit_the_machines_are_refused() {
    assert_eq!(
        refused(&on_aws(), "name: new\nvsphere: {numCPUs: 4}\n"),
        ["vsphere: the machines are of AWSMachineTemplate, not of vSphere"]
    );
    assert_eq!(
        refused(&plain(), "name: new\nnodeMachineType: m5.large\n"),
        ["nodeMachineType: machines of VSphereMachineTemplate have no machine type"]
    );
    let mut current = plain();
    current.templates[0]["spec"]["template"]["spec"]["hardwareVersion"] = "vmx-15".into();
    let text = "name: new\nvsphere: {pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]}\n";
    assert_eq!(refused(&current, text), ["vsphere.hardwareVersion: `vmx-15` is too low for pciDevices"]);
}

#[test]
fn the_last_pool_stays_and_templates_are_not_deleted_with_a_pool() {
    let mut current = plain();
    let deleted = plan_delete(&current, "md-0").unwrap();
    assert_eq!((deleted.deployment.as_deref(), deleted.write), (Some("c-md-0"), None));
    assert_eq!(plan_delete(&current, "md-2").unwrap_err()[0].why, Why::NotFound);
    current.deployments.pop();
    let rejections = plan_delete(&current, "md-0").unwrap_err();
    assert_eq!(rejections[0].to_string(), "NAME: `md-0` is the last pool of cluster `c`");
}

#[test]
fn names_have_a_limit() {
    let text = format!("name: {}\n", "x".repeat(63));
    assert!(refused(&plain(), &text)[0].ends_with("has more than 63 letters"));
}

// Topologies

fn entry<'p>(plan: &'p ChangePlan, name: &str) -> &'p Value {
    let entries = last(plan)["spec"]["topology"]["workers"]["machineDeployments"].as_array().unwrap();
    entries.iter().find(|entry| entry["name"] == name).unwrap()
}

fn variable<'e>(entry: &'e Value, name: &str) -> &'e Value {
    let overrides = entry["variables"]["overrides"].as_array().unwrap();
    &overrides.iter().find(|it| it["name"] == name).unwrap()["value"]
}

#[test]
fn labels_of_a_topology_are_replaced_and_do_not_pile_up() {
    let current = topology("VSphereCluster");
    let planned = made(&current, "name: md-0\nlabels: {team: a}\n");
    assert_eq!(*variable(entry(&planned, "md-0"), "nodePoolLabels"), json!([{"key": "team", "value": "a"}]));
    assert_eq!(
        *variable(entry(&planned, "md-1"), "nodePoolLabels"),
        json!([{"key": "old", "value": "1"}]),
        "others stay"
    );
    assert_eq!(entry(&planned, "md-0")["metadata"]["annotations"][names::MAX_SIZE], "9");
}

#[test]
fn a_value_of_a_pool_starts_as_the_clusters() {
    let planned = made(&topology("VSphereCluster"), "name: md-0\nvsphere: {memoryMiB: 8192, datastore: /ds}\n");
    let entry = entry(&planned, "md-0");
    assert_eq!(*variable(entry, "worker"), json!({"machine": {"numCPUs": 2, "memoryMiB": 8192, "diskGiB": 40}}));
    assert_eq!(*variable(entry, "vcenter"), json!({"server": "10.0.0.9", "datacenter": "/dc", "datastore": "/ds"}));
}

#[test]
fn devices_of_a_topology_are_the_variable_of_tanzu() {
    let planned = made(
        &topology("VSphereCluster"),
        "name: md-0\nvsphere: {pciDevices: [{vendorId: 0x10DE, deviceId: 0x1EB8}]}\n",
    );
    let entry = entry(&planned, "md-0");
    assert_eq!(
        *variable(entry, "pci"),
        json!({"worker": {"devices": [{"vendorId": 4318, "deviceId": 7864}], "hardwareVersion": "vmx-17"}})
    );
    assert_eq!(variable(entry, "worker")["machine"]["customVMXKeys"]["pciPassthru.64bitMMIOSizeGB"], "32");
    assert_eq!(entry["metadata"]["annotations"][names::CAPACITY_GPU_COUNT], "1");
    assert_eq!(entry["rollout"]["strategy"]["rollingUpdate"]["maxSurge"], 0);
    let labels = variable(entry, "nodePoolLabels").as_array().unwrap();
    assert!(labels.contains(&json!({"key": "cluster-api/accelerator", "value": "nvidia-t4"})));
}

#[test]
fn a_new_entry_is_a_copy_or_says_its_class() {
    let current = topology("VSphereCluster");
    let base = Options { base: Some("md-0".to_owned()), ..Options::default() };
    let planned = plan(&current, &file("name: new\nreplicas: 4\n"), &base).unwrap();
    let copy = entry(&planned, "new");
    assert_eq!((&copy["class"], &copy["replicas"]), (&json!("tkg-worker"), &json!(4)));
    assert_eq!(
        copy["metadata"]["annotations"],
        json!({names::RESOLVE_OS_IMAGE: "os-name=photon"}),
        "bounds are the base's own"
    );
    let needs = refused(&current, "name: new\n");
    assert_eq!(needs.len(), 2);
    assert!(
        needs[0].starts_with("workerClass: is missing") && needs[1].starts_with("tkrResolver: is missing"),
        "{needs:?}"
    );
    // An unknown base is not mistaken for a missing class.
    let base = Options { base: Some("md-9".to_owned()), ..Options::default() };
    let rejections = plan(&current, &file("name: new\n"), &base).unwrap_err();
    assert_eq!(rejections[0].to_string(), "--base-machine-deployment: there is no pool `md-9` in cluster `c`");
}

#[test]
fn variables_that_a_class_does_not_have_are_refused() {
    let mut current = topology("VSphereCluster");
    current.class = Some(json!({"spec": {"variables": [{"name": "worker"}, {"name": "vcenter"}]}}));
    assert_eq!(
        refused(&current, "name: md-0\ntaints: [{key: a, effect: NoSchedule}]\n"),
        ["taints: ClusterClass `tkg` has no variable `nodePoolTaints`"]
    );
    assert_eq!(made(&current, "name: md-0\nvsphere: {numCPUs: 8}\n").verb, Verb::Change);
}

#[test]
fn entries_go_one_by_one() {
    let mut current = topology("VSphereCluster");
    let deleted = plan_delete(&current, "md-0").unwrap();
    let write = deleted.write.unwrap();
    assert_eq!(write.object["metadata"]["resourceVersion"], "1", "no entry is removed by an index that has moved");
    let left = write.object["spec"]["topology"]["workers"]["machineDeployments"].as_array().unwrap();
    assert_eq!(left.iter().map(|it| it["name"].as_str().unwrap()).collect::<Vec<_>>(), ["md-1"]);
    current.object.as_mut().unwrap()["spec"]["topology"]["workers"]["machineDeployments"] = json!(left);
    assert_eq!(plan_delete(&current, "md-1").unwrap_err()[0].why, Why::Limit);
}

// Supervisors

#[test]
fn a_new_pool_of_a_supervisor_says_its_classes() {
    let needs = plan(&tanzu(), &file("name: new\n"), &Options::default()).unwrap_err();
    assert_eq!(needs[0].to_string(), "vmClass: is missing: a new pool of a supervisor needs it");
    assert_eq!(needs[0].hint.as_deref(), Some("other pools have small"));
    let planned = made(&tanzu(), "name: new\nvmClass: large\nstorageClass: gold\nlabels: {a: b}\n");
    let pools = last(&planned)["spec"]["topology"]["nodePools"].as_array().unwrap();
    assert_eq!(
        pools[2],
        json!({"name": "new", "vmClass": "large", "storageClass": "gold", "labels": {"a": "b"}, "replicas": 1})
    );
}

#[test]
fn pools_are_told_in_lists_as_the_original_tells_them() {
    let mut current = plain();
    current.deployments[0]["status"] =
        json!({"phase": "Running", "replicas": 2, "readyReplicas": 1, "upToDateReplicas": 2, "availableReplicas": 1});
    let all = views(&current);
    let one = &all[0];
    assert_eq!((one.name.as_str(), one.status.phase.name(), one.status.unavailable), ("md-0", "Running", 1));
    assert_eq!((one.bounds, one.offers().as_str()), (Some((0, 9)), "cpu: 4, ephemeral-storage: 40Gi, memory: 8Gi"));
    let entries: Vec<String> = views(&topology("VSphereCluster")).into_iter().map(|it| it.name).collect();
    assert_eq!(entries, ["md-0", "md-1"]);
}
