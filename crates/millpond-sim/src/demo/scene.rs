//! What the demo consists of.

use serde_json::{Value, json};

use super::NAMESPACE;
use crate::marks;

/// A pool of equal nodes.
struct Pool {
    name: &'static str,
    nodes: usize,
    instance_type: &'static str,
    cpu: &'static str,
    memory: &'static str,
    gpus: Option<&'static str>,
}

const POOLS: [Pool; 3] = [
    Pool { name: "small", nodes: 6, instance_type: "sim.large", cpu: "2", memory: "8Gi", gpus: None },
    Pool { name: "large", nodes: 3, instance_type: "sim.4xlarge", cpu: "16", memory: "64Gi", gpus: None },
    Pool { name: "gpu", nodes: 1, instance_type: "sim.gpu.2xlarge", cpu: "8", memory: "32Gi", gpus: Some("2") },
];
const ZONES: [&str; 3] = ["sim-1a", "sim-1b", "sim-1c"];

/// A Deployment that moves, and between which sizes.
pub struct Mover {
    /// Its name.
    pub name: &'static str,
    /// Its smallest size.
    pub least: i64,
    /// Its largest size.
    pub most: i64,
    cpu: &'static str,
    memory: &'static str,
}

/// The Deployments that move. At their largest they need more than the nodes have.
pub const MOVERS: [Mover; 3] = [
    Mover { name: "web", least: 3, most: 24, cpu: "500m", memory: "512Mi" },
    Mover { name: "api", least: 2, most: 16, cpu: "1", memory: "2Gi" },
    Mover { name: "worker", least: 0, most: 30, cpu: "1500m", memory: "3Gi" },
];

/// Everything that is there from the start, in the order in which it is made.
pub fn objects() -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "demo-important"},
            "value": 1000, "description": "Pods of the demo that push out others.",
        }),
    ];
    objects.extend(POOLS.iter().flat_map(nodes));
    objects.extend(MOVERS.iter().map(deployment));
    objects.push(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}},
    }));
    objects.push(stateful_set());
    objects.push(daemon_set());
    objects
}

fn nodes(pool: &Pool) -> impl Iterator<Item = Value> + '_ {
    (0..pool.nodes).map(move |index| {
        let name = format!("demo-{}-{index}", pool.name);
        let mut resources = json!({"cpu": pool.cpu, "memory": pool.memory, "pods": "110", "ephemeral-storage": "50Gi"});
        let mut spec = json!({"providerID": format!("sim:///{name}")});
        if let Some(gpus) = pool.gpus {
            resources["nvidia.com/gpu"] = json!(gpus);
            spec["taints"] = json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]);
        }
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {
                    marks::NODE: "true",
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": pool.instance_type,
                    "pool": pool.name,
                    "topology.kubernetes.io/region": "sim-1",
                    "topology.kubernetes.io/zone": ZONES[index % ZONES.len()],
                },
            },
            "spec": spec,
            "status": {"capacity": resources, "allocatable": resources},
        })
    })
}

fn template(app: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{
            "name": "main", "image": format!("example.com/{app}:1"),
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
        }]},
    })
}

fn deployment(mover: &Mover) -> Value {
    let mut template = template(mover.name, mover.cpu, mover.memory);
    if mover.name == "web" {
        template["spec"]["priorityClassName"] = json!("demo-important");
        template["spec"]["topologySpreadConstraints"] = json!([{
            "maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }]);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": mover.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": mover.least,
            "selector": {"matchLabels": {"app": mover.name}},
            "template": template,
        },
    })
}

fn stateful_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": NAMESPACE},
        "spec": {
            "replicas": 3, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template("db", "500m", "2Gi"),
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
            }],
        },
    })
}

fn daemon_set() -> Value {
    let mut template = template("node-agent", "50m", "64Mi");
    template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "node-agent", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "node-agent"}}, "template": template},
    })
}

/// A Job that works for a while and is forgotten a minute after its end.
pub fn job(number: u64, seconds: u64, pods: u64, on_gpu: bool) -> Value {
    let kind = if on_gpu { "train" } else { "batch" };
    let mut template = template(kind, "1", "1Gi");
    template["metadata"]["annotations"] = json!({marks::RUN_FOR: format!("{seconds}s")});
    template["spec"]["restartPolicy"] = json!("Never");
    if on_gpu {
        template["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
        template["spec"]["tolerations"] = json!([{"key": "nvidia.com/gpu", "operator": "Exists"}]);
    }
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"generateName": format!("{kind}-{number}-"), "namespace": NAMESPACE},
        "spec": {
            "completions": pods, "parallelism": pods, "ttlSecondsAfterFinished": 60, "backoffLimit": 2,
            "template": template,
        },
    })
}
