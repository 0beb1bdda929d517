//! Node groups and pending pods for benchmarks and tests, each a function of its number.

use serde_json::{Value, json};

/// Groups and their pods carry one of this many labels; every other pod has none and may use any group.
const TEAMS: usize = 25;

/// A MachineDeployment without machines. Sizes differ; a few have taints or GPUs.
pub fn group(number: usize) -> Value {
    let cpu = [4, 8, 16, 32][number % 4];
    let memory = cpu * [2, 4, 8][number % 3];
    let capacity = "capacity.cluster-autoscaler.kubernetes.io";
    let size = "cluster.x-k8s.io/cluster-api-autoscaler-node-group";
    let mut annotations = json!({
        format!("{size}-min-size"): "0",
        format!("{size}-max-size"): "100",
        format!("{capacity}/cpu"): cpu.to_string(),
        format!("{capacity}/memory"): format!("{memory}Gi"),
        format!("{capacity}/labels"): format!("team=t{}", number % TEAMS),
    });
    if number % 10 == 9 {
        annotations[format!("{capacity}/gpu-type")] = "nvidia.com/gpu".into();
        annotations[format!("{capacity}/gpu-count")] = "2".into();
    }
    if number % 10 == 8 {
        annotations[format!("{capacity}/taints")] = "dedicated=batch:NoSchedule".into();
    }
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
        "metadata": {"name": format!("group-{number:03}"), "annotations": annotations},
        "spec": {
            "clusterName": "crowd", "replicas": 0, "selector": {"matchLabels": {}},
            "template": {"spec": {"clusterName": "crowd", "bootstrap": {"dataSecretName": "none"}}},
        },
    })
}

/// A pod of one of twenty sizes; half of them want the nodes of a team.
pub fn pod(number: usize) -> Value {
    let size = number % 20;
    let requests = json!({"cpu": format!("{}m", 100 + 170 * size), "memory": format!("{}Mi", 128 + 200 * size)});
    let selector =
        if number.is_multiple_of(2) { json!({"team": format!("t{}", number / 2 % TEAMS)}) } else { json!({}) };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number:05}"), "labels": {"app": "crowd"}},
        "spec": {
            "nodeSelector": selector,
            "containers": [{"name": "c", "image": "app:1", "resources": {"requests": requests}}],
        },
    })
}
