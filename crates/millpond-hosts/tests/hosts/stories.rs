//! What happens to hosts, from registration to reuse.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::agent::Hardware;
use crate::stage::{BYOH, CORE, Stage, condition};

fn purpose(value: &str) -> Value {
    json!({"matchLabels": {"purpose": value}})
}

const WORKER: &[(&str, &str)] = &[("purpose", "worker")];
const GPU: &[(&str, &str)] = &[("purpose", "gpu")];

#[tokio::test(start_paused = true)]
async fn a_pool_grows_and_shrinks_and_another_one_gets_its_hosts() {
    let stage = Stage::start().await;
    let _crew = stage.hire();
    let _agents = [
        stage.agent(Hardware::plain("node10", WORKER)),
        stage.agent(Hardware::gpu("node11", GPU)),
        stage.agent(Hardware::plain("node12", WORKER)),
    ];
    let host = stage.until_state("node11", "Available").await;
    let labels = &host["metadata"]["labels"];
    assert_eq!(labels["gpu"], "true", "it follows from the facts");
    assert_eq!(labels["capacity.infrastructure.cluster.x-k8s.io/cpu"], "8");
    assert_eq!(labels["capacity.infrastructure.cluster.x-k8s.io/memory"], "32768Mi");
    assert_eq!(labels["byohost.infrastructure.cluster.x-k8s.io/host"], "node11");
    assert_eq!(stage.host("node10").await["metadata"]["labels"]["gpu"], Value::Null, "and is on no other host");
    stage.cluster().await;
    stage.pool("worker-pool", 0, purpose("worker"), WORKER).await;
    stage.scale("worker-pool", 2).await;
    assert_eq!(stage.until_hosts("worker-pool", 2).await, ["node10", "node12"]);
    for name in ["node10", "node12"] {
        let host = stage.until_state(name, "InUse").await;
        assert_eq!(host["status"]["pool"], "worker-pool");
        assert_eq!(host["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "my-cluster");
        let node = stage.get("v1", "Node", name).await;
        assert_eq!(node["spec"]["providerID"], format!("byoh://{name}"));
        assert_eq!(node["metadata"]["labels"]["purpose"], "worker");
        assert_eq!(node["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], Value::Null);
        let machine = stage.get(BYOH, "ByoMachine", host["status"]["machineRef"]["name"].as_str().unwrap()).await;
        assert_eq!(machine["spec"]["providerID"], node["spec"]["providerID"]);
        assert_eq!(machine["status"]["nodeRef"]["name"], name);
        assert_eq!(condition(&machine, "BYOHostReady")["status"], "True");
        assert_eq!(machine["status"]["addresses"][1]["address"], "10.0.0.7");
    }
    assert_eq!(
        stage.list("v1", "Secret", "cluster.x-k8s.io/cluster-name=my-cluster").await.len(),
        0,
        "tokens end with the join"
    );
    stage
        .until("the pool is ready", async || {
            let status = stage.get(CORE, "MachineDeployment", "worker-pool").await["status"].clone();
            if status["readyReplicas"] == 2 { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
    // Down to nothing: hosts are reset and free, their Nodes gone.
    stage.scale("worker-pool", 0).await;
    assert_eq!(stage.until_hosts("worker-pool", 0).await.len(), 0);
    for name in ["node10", "node12"] {
        let host = stage.until_state(name, "Available").await;
        assert_eq!(host["status"]["plan"]["phase"], "Reset");
        assert_eq!(host["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], Value::Null);
        assert_eq!(host["metadata"]["finalizers"], Value::Null);
        assert_eq!((&host["spec"]["claim"], &host["spec"]["labels"]), (&Value::Null, &Value::Null));
        assert_eq!(stage.get("v1", "Node", name).await, Value::Null);
    }
    // The same hosts serve another pool, under greater epochs and without labels of the first.
    stage.pool("other-pool", 2, purpose("worker"), &[("team", "blue")]).await;
    assert_eq!(stage.until_hosts("other-pool", 2).await, ["node10", "node12"]);
    let host = stage.until_state("node10", "InUse").await;
    assert_eq!((&host["spec"]["claim"]["epoch"], &host["spec"]["labels"]), (&json!(2), &json!({"team": "blue"})));
    assert_eq!(stage.get("v1", "Node", "node10").await["metadata"]["labels"]["purpose"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_a_selector_leaves_the_gpu_host_alone() {
    for general_first in [true, false] {
        let stage = Stage::start().await;
        let _crew = stage.hire();
        let _agents = [
            stage.agent(Hardware::gpu("node10", GPU)),
            stage.agent(Hardware::plain("node11", &[])),
            stage.agent(Hardware::plain("node12", &[])),
            stage.agent(Hardware::plain("node13", &[])),
        ];
        stage.cluster().await;
        let general = async || stage.pool("general", 3, json!({}), &[]).await;
        if general_first {
            general().await;
        }
        stage.pool("gpu-pool", 1, purpose("gpu"), GPU).await;
        if !general_first {
            general().await;
        }
        assert_eq!(stage.until_hosts("general", 3).await, ["node11", "node12", "node13"]);
        assert_eq!(stage.until_hosts("gpu-pool", 1).await, ["node10"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_relabelled_host_serves_a_waiting_machine_at_once() {
    let stage = Stage::start().await;
    let _crew = stage.hire();
    let _agents = [
        stage.agent(Hardware::plain("node13", &[("purpose", "general")])),
        stage.agent(Hardware::plain("node14", GPU)),
    ];
    stage.cluster().await;
    stage.pool("worker-pool", 1, purpose("worker"), WORKER).await;
    let message = stage
        .until("the machine says what it waits for", async || {
            let machines = stage.machines("worker-pool").await;
            let ready = machines.first().map(|machine| condition(machine, "BYOHostReady").clone()).unwrap_or_default();
            let message = ready["message"].as_str().unwrap_or_default();
            // Until both hosts are registered, the reasons are others.
            if ready["reason"] == "BYOHostsUnavailable" && message.contains("2 LabelMismatch") {
                Ok(message.to_owned())
            } else {
                Err(ready.to_string())
            }
        })
        .await;
    assert_eq!(
        message,
        "no free host matches; 2 hosts: 2 LabelMismatch (purpose=worker); \
         `kubectl label byohost node13 purpose=worker --overwrite` would give one"
    );
    stage.label("node13", json!({"purpose": "worker"})).await;
    let labelled = Instant::now();
    stage
        .until("the host is claimed", async || {
            let host = stage.host("node13").await;
            if host["spec"]["claim"].is_object() { Ok(()) } else { Err(host["status"].to_string()) }
        })
        .await;
    assert!(labelled.elapsed() < Duration::from_secs(1), "{:?}", labelled.elapsed());
    assert_eq!(stage.until_hosts("worker-pool", 1).await, ["node13"]);
    // An attached host whose labels change says so, and stays.
    stage.label("node13", json!({"purpose": "general"})).await;
    let host = stage
        .until("the host says that it does not match", async || {
            let host = stage.host("node13").await;
            let matches = condition(&host, "SelectorMatches").clone();
            if matches["status"] == "False" { Ok(host) } else { Err(matches.to_string()) }
        })
        .await;
    assert_eq!(condition(&host, "SelectorMatches")["reason"], "LabelMismatch");
    assert_eq!(host["status"]["state"], "InUse");
}

#[tokio::test(start_paused = true)]
async fn a_failed_bootstrap_frees_the_host_and_is_tried_again() {
    let stage = Stage::start().await;
    let _crew = stage.hire();
    let agent = stage.agent(Hardware::plain("node10", WORKER));
    agent.faults.bootstrap.store(true, Ordering::SeqCst);
    stage.cluster().await;
    stage.pool("worker-pool", 1, purpose("worker"), WORKER).await;
    let machine = stage
        .until("the machine tells of the failure", async || {
            let machines = stage.machines("worker-pool").await;
            let failed = machines.first().map(|machine| condition(machine, "K8sNodeBootstrapSucceeded").clone());
            let host = stage.host("node10").await;
            let is_free = host["status"]["state"] == "Available" && host["status"]["plan"]["phase"] == "Reset";
            match failed {
                Some(failed) if failed["status"] == "False" && is_free => Ok(machines[0].clone()),
                other => Err(format!("{other:?} {}", host["status"])),
            }
        })
        .await;
    let failed = condition(&machine, "K8sNodeBootstrapSucceeded");
    assert_eq!(failed["reason"], "CloudInitExecutionFailed");
    assert!(failed["message"].as_str().unwrap().contains("error execution phase preflight"), "{failed}");
    agent.faults.bootstrap.store(false, Ordering::SeqCst);
    assert_eq!(stage.until_hosts("worker-pool", 1).await, ["node10"]);
    let machine = &stage.machines("worker-pool").await[0];
    assert_eq!(condition(machine, "K8sNodeBootstrapSucceeded")["status"], "True");
    assert_eq!(machine["metadata"]["annotations"]["millpond.dev/bootstrap-failures"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_dead_host_is_let_go_and_reset_before_it_is_used_again() {
    let stage = Stage::start().await;
    let _crew = stage.hire();
    let agent = stage.agent(Hardware::plain("node10", WORKER));
    stage.cluster().await;
    stage.pool("worker-pool", 1, purpose("worker"), WORKER).await;
    assert_eq!(stage.until_hosts("worker-pool", 1).await, ["node10"]);
    agent.faults.silent.store(true, Ordering::SeqCst);
    let host = stage.until_state("node10", "Offline").await;
    assert_eq!(condition(&host, "AgentHealthy")["reason"], "LeaseExpired");
    stage.scale("worker-pool", 0).await;
    stage.until_hosts("worker-pool", 0).await;
    assert_eq!(stage.get("v1", "Node", "node10").await, Value::Null);
    let host = stage.until_state("node10", "Offline").await;
    assert_eq!(host["spec"]["claim"], Value::Null);
    assert_eq!(host["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"], "my-cluster", "not free");
    // Nothing gets it meanwhile.
    stage.scale("worker-pool", 1).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(stage.host("node10").await["spec"]["claim"], Value::Null);
    agent.faults.silent.store(false, Ordering::SeqCst);
    assert_eq!(stage.until_hosts("worker-pool", 1).await, ["node10"]);
    assert_eq!(stage.host("node10").await["spec"]["claim"]["epoch"], 2, "reset first, then claimed anew");
}

#[tokio::test(start_paused = true)]
async fn a_failed_reset_keeps_the_host_out_with_the_reason() {
    let stage = Stage::start().await;
    let _crew = stage.hire();
    let agent = stage.agent(Hardware::plain("node10", WORKER));
    stage.cluster().await;
    stage.pool("worker-pool", 1, purpose("worker"), WORKER).await;
    stage.until_hosts("worker-pool", 1).await;
    agent.faults.reset.store(true, Ordering::SeqCst);
    stage.scale("worker-pool", 0).await;
    stage.until_hosts("worker-pool", 0).await;
    let host = stage.until_state("node10", "Quarantined").await;
    let reason = host["spec"]["quarantine"]["reason"].as_str().unwrap();
    assert_eq!(reason, "reset failed: mounts are left below /var/lib/kubelet");
}

#[tokio::test(start_paused = true)]
async fn references_that_lead_nowhere_are_reported() {
    let stage = Stage::start().await;
    let _crew = stage.hire();
    let _agent = stage.agent(Hardware::plain("node10", WORKER));
    stage.cluster().await;
    stage.delete(BYOH, "K8sInstallerConfigTemplate", "my-cluster-worker-installer").await;
    stage.pool("worker-pool", 1, purpose("worker"), WORKER).await;
    stage
        .until("the machine names the reference", async || {
            let machines = stage.machines("worker-pool").await;
            let resolved =
                machines.first().map(|machine| condition(machine, "RefsResolved").clone()).unwrap_or_default();
            let expected =
                "installerRef: K8sInstallerConfigTemplate default/my-cluster-worker-installer does not exist";
            if resolved["status"] == "False" && resolved["message"] == expected {
                Ok(())
            } else {
                Err(resolved.to_string())
            }
        })
        .await;
    assert_eq!(stage.host("node10").await["spec"]["claim"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn e2e_controllers_that_are_killed_at_any_write_leave_no_host_with_two_owners() {
    // More writes than two machines need: the loop ends when one run needs no more.
    const MOST_WRITES: i64 = 200;
    for write in 0..MOST_WRITES {
        let stage = Stage::start().await;
        let first = stage.hire_until(write);
        let _agents = [stage.agent(Hardware::plain("node10", WORKER)), stage.agent(Hardware::plain("node11", WORKER))];
        stage.cluster().await;
        stage.pool("worker-pool", 1, purpose("worker"), WORKER).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        stage.scale("worker-pool", 0).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let died = first.is_dead();
        let second = stage.hire();
        stage.until_hosts("worker-pool", 0).await;
        for host in ["node10", "node11"] {
            let host = stage.until_state(host, "Available").await;
            assert_eq!(host["metadata"]["finalizers"], Value::Null, "killed at write {write}");
        }
        stage.scale("worker-pool", 2).await;
        assert_eq!(stage.until_hosts("worker-pool", 2).await, ["node10", "node11"], "killed at write {write}");
        let tokens = stage.list("v1", "Secret", "cluster.x-k8s.io/cluster-name=my-cluster").await;
        assert_eq!(tokens.len(), 0, "killed at write {write}: {tokens:?}");
        second.stop().await;
        if !died {
            assert!(write > 10, "a machine has more than {write} writes");
            return;
        }
    }
    panic!("more than {MOST_WRITES} writes");
}

#[tokio::test(start_paused = true)]
async fn pools_scale_from_zero_by_pending_pods() {
    let stage = Stage::start().await;
    let _crew = stage.hire();
    let _autoscaler = stage.hire_autoscaler().await;
    let _agents = [
        stage.agent(Hardware::plain("node10", WORKER)),
        stage.agent(Hardware::gpu("node11", GPU)),
        stage.agent(Hardware::plain("node12", WORKER)),
    ];
    stage.cluster().await;
    for (pool, most, labels) in [("worker-pool", "5", WORKER), ("gpu-pool", "2", GPU)] {
        stage.pool(pool, 0, purpose(labels[0].1), labels).await;
        let bounds = json!({
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": most,
        });
        stage.patch(CORE, "MachineDeployment", pool, json!({"metadata": {"annotations": bounds}})).await;
    }
    let annotations =
        async |pool: &str| stage.get(CORE, "MachineDeployment", pool).await["metadata"]["annotations"].clone();
    for (pool, most, cpus, gpus) in [("worker-pool", "2", "4", None), ("gpu-pool", "1", "8", Some("1"))] {
        stage
            .until("what hosts offer is published", async || {
                let found = annotations(pool).await;
                let read = |key: &str| found[format!("capacity.cluster-autoscaler.kubernetes.io/{key}")].as_str();
                let is = found["millpond.dev/effective-max-size"] == most
                    && read("cpu") == Some(cpus)
                    && read("gpu-count") == gpus;
                if is { Ok(()) } else { Err(found.to_string()) }
            })
            .await;
    }
    let template = stage.get(BYOH, "ByoMachineTemplate", "gpu-pool-template").await;
    assert_eq!(template["status"]["capacity"], json!({"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"}));
    assert_eq!(
        (&template["status"]["matchingHosts"], &template["status"]["nodeInfo"]["architecture"]),
        (&json!(1), &json!("amd64"))
    );
    for number in 0..2 {
        let limits = json!({"nvidia.com/gpu": "1"});
        stage
            .create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpu-workload", "namespace": "default"},
                "spec": {
                    "nodeSelector": {"purpose": "gpu"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [{"name": "gpu-container", "image": "nvidia/cuda:11.0", "resources": {"limits": limits}}],
                },
            }))
            .await;
        stage
            .until("the pod runs on the GPU host", async || {
                let pod = stage.get("v1", "Pod", "gpu-workload").await;
                let runs = pod["status"]["phase"] == "Running" && pod["spec"]["nodeName"] == "node11";
                let node = stage.get("v1", "Node", "node11").await;
                if runs { Ok(()) } else { Err(format!("{} {node}", pod["status"])) }
            })
            .await;
        assert_eq!(stage.machines("worker-pool").await.len(), 0, "the other pool has no part in it");
        stage.delete("v1", "Pod", "gpu-workload").await;
        stage.until_hosts("gpu-pool", 0).await;
        let host = stage.until_state("node11", "Available").await;
        assert_eq!(host["spec"]["epoch"], number + 1);
    }
    // Twelve cores need three workers, and there are two.
    for number in 0..3 {
        let name = format!("web-{number}");
        let resources = json!({"requests": {"cpu": "3"}});
        stage
            .create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeSelector": {"purpose": "worker"}, "containers": [{"name": "c", "image": "i", "resources": resources}]},
            }))
            .await;
    }
    assert_eq!(stage.until_hosts("worker-pool", 2).await, ["node10", "node12"]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        stage.get(CORE, "MachineDeployment", "worker-pool").await["spec"]["replicas"],
        2,
        "no machine waits for a host"
    );
}
