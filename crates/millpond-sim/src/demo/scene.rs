//! The objects of the demo.

use serde_json::{Value, json};

use super::NAMESPACE;
use crate::annotations;

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

/// The Deployments that move.
pub const MOVERS: [Mover; 3] = [
    Mover { name: "web", least: 3, most: 24, cpu: "500m", memory: "512Mi" },
    Mover { name: "api", least: 2, most: 16, cpu: "1", memory: "2Gi" },
    Mover { name: "worker", least: 0, most: 30, cpu: "1500m", memory: "3Gi" },
];

/// All initial objects, in the order of their creation.
pub fn objects() -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "demo-important"},
            "value": 1000, "description": "Pods of the demo that push out others.",
        }),
    ];
    objects.push(class());
    objects.extend(pools());
    objects.extend(MOVERS.iter().map(deployment));
    objects.push(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}},
    }));
    objects.push(stateful_set());
    objects.push(daemon_set());
    objects
}

/// Where the machines come from: EC2's types and prices, booted in a few seconds.
fn class() -> Value {
    json!({
        "apiVersion": "millpond.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": NAMESPACE},
        "spec": {"provider": "sim", "catalog": "aws", "sim": {"registrationDelay": "3s"}},
    })
}

/// A pool whose empty and half empty nodes are removed soon.
fn pool(name: &str, requirements: &Value, limits: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": NAMESPACE},
                "requirements": requirements,
            }},
            "limits": limits,
            "disruption": {"consolidateAfter": "20s", "budgets": [{"nodes": "30%"}]},
        },
    })
}

fn pools() -> [Value; 2] {
    let one_of = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let any = [one_of("kubernetes.io/arch", &["amd64"]), one_of("karpenter.sh/capacity-type", &["spot", "on-demand"])];
    let [arch, capacity] = &any;
    let category = one_of("karpenter.k8s.aws/instance-category", &["c", "m", "r"]);
    let newer = json!({"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["6"]});
    let general = pool("demo", &json!([arch, capacity, category, newer]), &json!({"cpu": "120"}));
    let family = one_of("karpenter.k8s.aws/instance-family", &["g4dn", "g5"]);
    let mut gpu = pool("demo-gpu", &json!([arch, capacity, family]), &json!({"nvidia.com/gpu": "4"}));
    gpu["spec"]["template"]["spec"]["taints"] =
        json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]);
    [general, gpu]
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
    template["metadata"]["annotations"] = json!({annotations::RUN_FOR: format!("{seconds}s")});
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
