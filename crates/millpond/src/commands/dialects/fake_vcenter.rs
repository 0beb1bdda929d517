//! `millpond up --fake-vcenter`: a vCenter in this process with four hosts, whose virtual machines are nodes of the
//! embedded cluster. For tutorials and demonstrations.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use millpond_gpu::credentials::SECRET;
use millpond_vsphere::fake::{FakeVCenter, HostShape, Options, Passthrough, VmShape};
use serde_json::{Value, json};

const MANAGER: &str = "millpond-fake-vcenter";
const USER: &str = "administrator@vsphere.local";
/// Hours until the next maintenance of the second host, and of the last one.
const MAINTENANCE_HOURS: [i64; 2] = [72, 399];

/// A machine of the fake vCenter that is a node.
struct Machine {
    name: &'static str,
    host: usize,
    cpu_demand_mhz: i64,
    memory_mib: i64,
    has_gpu: bool,
}

const HOSTS: [(&str, usize); 4] = [
    ("esxi-dell-e.rainpole.com", 0),
    ("esxi-dell-f.rainpole.com", 0),
    ("esxi-dell-g.rainpole.com", 2),
    ("esxi-dell-h.rainpole.com", 2),
];

const fn machine(name: &'static str, host: usize, cpu_demand_mhz: i64, memory_mib: i64, has_gpu: bool) -> Machine {
    Machine { name, host, cpu_demand_mhz, memory_mib, has_gpu }
}

const MACHINES: [Machine; 4] = [
    machine("tkg-cluster-1-18-5-control-plane-56w57", 0, 412, 1204, false),
    machine("tkg-cluster-1-18-5-workers-7n2q2-548d48669d-4nbtq", 1, 143, 655, false),
    machine("tkg-cluster-1-18-5-workers-7n2q2-548d48669d-j8zrv", 2, 230, 819, true),
    machine("tkg-cluster-1-18-5-workers-7n2q2-548d48669d-l9fgw", 3, 87, 327, true),
];

fn uuid(at: usize) -> String {
    format!("420f1d2c-3b4a-5968-7786-00000000000{at}")
}

/// Starts it, makes its machines nodes of the cluster, and puts its address and account into the Secret that the
/// controller and `millpond gpu` read.
pub(crate) async fn start(client: &Client) -> anyhow::Result<FakeVCenter> {
    let password = format!("{:032x}", rand::random::<u128>());
    let options = Options { tls: true, user: USER.to_owned(), password: password.clone() };
    let vcenter = FakeVCenter::start(options).await.context("cannot start the fake vCenter")?;
    let hosts: Vec<_> =
        HOSTS.iter().map(|(name, gpus)| vcenter.add_host(&HostShape::new(name).with_t4(*gpus))).collect();
    for (at, machine) in MACHINES.iter().enumerate() {
        let passthrough = Passthrough::Fixed("0000:3b:00.0".to_owned(), 0x10de, 0x1eb8);
        vcenter.add_vm(&VmShape {
            passthrough: machine.has_gpu.then_some(passthrough).into_iter().collect(),
            cpu_demand_mhz: machine.cpu_demand_mhz,
            guest_memory_mib: machine.memory_mib,
            ..VmShape::new(machine.name, &uuid(at), &hosts[machine.host])
        });
    }
    for (host, hours) in [1, 3].into_iter().zip(MAINTENANCE_HOURS) {
        // Half an hour more, so that the whole hours stay the same for a while.
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(hours * 60 + 30);
        let name = format!("maintenance of {}", HOSTS[host].0);
        vcenter.schedule(&name, &hosts[host], "EnterMaintenanceMode_Task", true, at);
    }
    publish(client, &vcenter, &password).await?;
    Ok(vcenter)
}

async fn publish(client: &Client, vcenter: &FakeVCenter, password: &str) -> anyhow::Result<()> {
    let params = PatchParams::apply(MANAGER).force();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SECRET.0}});
    Api::<Namespace>::all(client.clone()).patch(SECRET.0, &params, &Patch::Apply(namespace)).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET.1},
        "stringData": {
            "GOVMOMI_URL": vcenter.url(), "GOVMOMI_USERNAME": USER, "GOVMOMI_PASSWORD": password,
            "GOVMOMI_THUMBPRINT": vcenter.thumbprint().unwrap_or_default(),
        },
    });
    let secrets = Api::<Secret>::namespaced(client.clone(), SECRET.0);
    secrets
        .patch(SECRET.1, &params, &Patch::Apply(secret))
        .await
        .context("cannot write the Secret of the fake vCenter")?;
    let nodes = Api::<Node>::all(client.clone());
    for (at, machine) in MACHINES.iter().enumerate() {
        let (object, status) = node(machine, at);
        nodes.patch(machine.name, &params, &Patch::Apply(object)).await.context("cannot write a node")?;
        nodes.patch_status(machine.name, &params, &Patch::Apply(status)).await.context("cannot write a node")?;
    }
    Ok(())
}

fn node(machine: &Machine, at: usize) -> (Value, Value) {
    let mut labels = json!({"kubernetes.io/hostname": machine.name});
    let mut taints = json!([]);
    if at == 0 {
        labels["node-role.kubernetes.io/control-plane"] = "".into();
        taints = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    }
    let mut capacity = json!({"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    if machine.has_gpu {
        capacity["nvidia.com/gpu"] = "1".into();
    }
    let head = json!({"name": machine.name, "labels": labels});
    let spec = json!({"providerID": format!("vsphere://{}", uuid(at)), "taints": taints});
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": head, "spec": spec});
    let status = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name},
        "status": {"capacity": capacity, "allocatable": capacity},
    });
    (object, status)
}
