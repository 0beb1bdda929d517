//! A host's life: claimed, joined, released, claimed again, by both ways to join.

use anyhow::Result;
use kube::ResourceExt as _;
use serde_json::json;

use crate::stage::{Host, Stage, kubeadm, tls};

fn condition<'v>(host: &'v serde_json::Value, kind: &str) -> Option<&'v serde_json::Value> {
    host["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind)
}

async fn is_clean(stage: &Stage, host: &Host, epoch: i64) -> Result<()> {
    stage.phase_is(host.machine.name(), epoch, "Reset").await?;
    assert_eq!(host.changes()?, [""; 0], "files of {}", host.machine.name());
    let left = host
        .machine
        .sh("ps -eo comm= | grep -x kubelet; ss -Hltn sport = :10250; grep /var/lib/kubelet /proc/mounts; true")?;
    assert_eq!(left, "", "kubelet, its port, its mounts");
    Ok(())
}

#[tokio::test]
async fn a_host_joins_by_tls_bootstrap_and_is_as_before_afterwards() -> Result<()> {
    let stage = Stage::new().await?;
    let host = stage.host("node10", 10).await?;
    stage.bootstrap("m1", "node10").await?;
    let mut spec = tls("m1");
    spec["labels"] = json!({"purpose": "gpu", "node-role.kubernetes.io/worker": ""});
    spec["taints"] = json!([{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]);
    stage.claim("node10", 1, spec).await?;
    let applied = stage.phase_is("node10", 1, "Applied").await?;
    assert_eq!(condition(&applied, "K8sNodeBootstrapSucceeded").unwrap()["status"], "True");
    let node = stage.node("node10").await?;
    let spec = node.spec.clone().unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some("byoh://node10"));
    assert_eq!(spec.taints.unwrap()[0].key, "nvidia.com/gpu");
    assert_eq!(node.labels().get("purpose").map(String::as_str), Some("gpu"));
    stage.release("node10").await?;
    is_clean(&stage, &host, 1).await?;
    // The next machine takes it, by the other way.
    join_by_kubeadm(&stage, &host, 2).await
}

async fn join_by_kubeadm(stage: &Stage, host: &Host, epoch: i64) -> Result<()> {
    let name = host.machine.name();
    let kubeconfig = stage.kubelet_kubeconfig(name).await?;
    let indented = kubeconfig.replace('\n', "\n    ");
    let data = format!(
        "## template: jinja\n#cloud-config\nwrite_files:\n- path: /run/cluster-api/discovery.conf\n  permissions: '0600'\n  \
         content: |\n    {indented}\nruncmd:\n- kubeadm join --discovery-file /run/cluster-api/discovery.conf --node-name \
         {{{{ ds.meta_data.local_hostname }}}} && echo success > /run/cluster-api/bootstrap-success.complete\n"
    );
    let secret = format!("bootstrap-{epoch}");
    stage.secret(&secret, json!({"value": data})).await?;
    stage
        .secret(
            &format!("install-{epoch}"),
            json!({
                "install": "mkdir -p /opt/kubernetes && echo v1 > /opt/kubernetes/version",
                "uninstall": "rm -rf /opt/kubernetes",
            }),
        )
        .await?;
    let mut spec = kubeadm(&secret);
    spec["installationSecret"] = json!({"kind": "Secret", "name": format!("install-{epoch}"), "namespace": "default"});
    stage.claim(name, epoch, spec).await?;
    let applied = stage.phase_is(name, epoch, "Applied").await?;
    assert_eq!(condition(&applied, "K8sComponentsInstallationSucceeded").unwrap()["status"], "True");
    assert_eq!(
        host.machine.sh("cat /opt/kubernetes/version /run/cluster-api/bootstrap-success.complete")?,
        "v1\nsuccess\n"
    );
    stage.node(name).await?;
    stage.release(name).await?;
    is_clean(stage, host, epoch).await
}

#[tokio::test]
async fn a_bootstrap_that_fails_says_why_and_is_undone() -> Result<()> {
    let stage = Stage::new().await?;
    let host = stage.host("node10", 10).await?;
    stage.claim("node10", 1, kubeadm("later")).await?;
    let waits = |host: &serde_json::Value| {
        condition(host, "K8sNodeBootstrapSucceeded")
            .is_some_and(|one| one["reason"] == "BootstrapDataSecretUnavailable")
    };
    stage.host_is("node10", "it waits for its bootstrap data", waits).await?;
    let data = "#cloud-config\nruncmd:\n- echo half > /etc/half-done\n- kubeadm join --token abcdef.0123456789abcdef; \
                echo no such cluster abcdef.0123456789abcdef >&2; exit 7\n- echo never > /etc/never\n";
    // What a command has written by itself, only a command can undo.
    host.machine.sh("mkdir -p /run/faults && touch /run/faults/kubeadm")?;
    stage.secret("later", json!({"value": data})).await?;
    let reset = stage.phase_is("node10", 1, "Reset").await?;
    let failed = condition(&reset, "K8sNodeBootstrapSucceeded").unwrap();
    assert_eq!((&failed["status"], &failed["reason"]), (&"False".into(), &"CloudInitExecutionFailed".into()));
    let message = failed["message"].as_str().unwrap_or_default();
    assert!(message.contains("exit code 7: ") && message.contains("no such cluster abcdef.******"), "{message}");
    assert_eq!(host.changes()?, ["etc/half-done"]);
    // The same epoch is never tried again.
    assert_eq!(host.machine.sh("ls /etc/never 2>/dev/null; true")?, "");
    stage.release("node10").await?;
    let free = |host: &serde_json::Value| {
        condition(host, "K8sNodeBootstrapSucceeded")
            .is_some_and(|one| one["reason"] == "WaitingForMachineRefToBeAssigned")
    };
    stage.host_is("node10", "it is free", free).await?;
    // Malformed data: nothing runs, and the reason is told.
    stage.secret("malformed", json!({"value": "#cloud-config\nntp: {}\n"})).await?;
    stage.claim("node10", 2, kubeadm("malformed")).await?;
    let refused = stage.phase_is("node10", 2, "Reset").await?;
    let message = refused["status"]["plan"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("ntp: is not supported"), "{message}");
    Ok(())
}
