//! From a Linux machine to a Node: one command on the machine makes it a host, and a real kubelet joins because a pod
//! waits. With the pod the Node goes, and the machine is as it was before.

use anyhow::{Context as _, Result};
use millpond_testkit::machines::Machine;
use millpond_testkit::{BUSYBOX, NodePrograms, Process, kubelet_configuration};
use serde_json::{Value, json};

use crate::seed::Shell;
use crate::stage::{Host, MILLPOND, Stage, start};

/// A class of all hosts, and a pool whose empty nodes go at once.
const POOL: &str = "
apiVersion: millpond.dev/v1alpha1
kind: NodeClass
metadata: {name: own}
spec: {provider: hosts, hosts: {pricePerHour: '0.10'}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: own}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s}
  template:
    spec:
      nodeClassRef: {group: millpond.dev, kind: NodeClass, name: own}
      requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}]
";

/// A machine with containerd, kubelet and kubeadm, and a registered agent.
async fn host(stage: &Stage) -> Result<(Host, Process)> {
    let programs = NodePrograms::ensure()?;
    let mut machine = stage.network.machine("node10", 10, MILLPOND.as_ref())?;
    programs.install(&machine)?;
    machine.boot()?;
    let containerd = programs.start_containerd(&machine)?;
    let entry = stage.entry(&[])?;
    let agent = start(&machine, &entry)?;
    stage.host_is("node10", "it is free", is_available).await?;
    Ok((Host { agent, machine, entry }, containerd))
}

fn is_available(host: &Value) -> bool {
    host["status"]["state"] == "Available"
}

fn pod(name: &str, script: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "containers": [{
                "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script],
                "resources": {"requests": {"cpu": "100m"}},
            }],
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        },
    })
    .to_string()
}

/// What of kubelet and its pods is left on a machine.
fn leftovers(machine: &Machine) -> Result<String> {
    machine.sh(
        "ps -eo comm= | grep -x -e kubelet -e 'containerd-shim.*'; grep -e /var/lib/kubelet -e /run/netns /proc/mounts; \
         ls -A /var/lib/kubelet /etc/kubernetes 2>/dev/null | grep -v -e ':$' -e '^$'; true",
    )
}

#[tokio::test]
#[ignore = "needs the real parts"]
async fn real_kubelet_joins_through_the_agent_because_a_pod_waits() -> Result<()> {
    let stage = Stage::new().await?;
    let shell = Shell::new(&stage)?;
    let (host, _containerd) = host(&stage).await?;
    let before = leftovers(&host.machine)?;
    let kubelet = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubelet-config", "namespace": "kube-system"},
        "data": {"kubelet": kubelet_configuration().to_string()},
    });
    shell.apply(&kubelet.to_string())?;
    shell.apply(POOL)?;
    for (epoch, name) in [(1, "first"), (2, "second")] {
        shell.apply(&pod(name, &format!("echo {name} runs; exec sleep 1000000")))?;
        let joined = async {
            shell.until(&format!("kubectl get pod {name} -o jsonpath='{{.status.phase}}'"), "Running").await?;
            shell.until(&format!("kubectl logs {name}"), &format!("{name} runs")).await
        };
        let log = |text: &str| host.machine.sh(&format!("{text} 2>&1 | tail -n 30")).unwrap_or_default();
        joined.await.with_context(|| {
            let units = log("cat /run/kubelet.service.log");
            format!("kubelet: {units}\nagent: {}", host.agent.log_tail())
        })?;
        let node =
            shell.run("kubectl get node node10 -o jsonpath='{.spec.providerID} {.status.nodeInfo.kubeletVersion}'")?;
        assert!(node.starts_with("byoh://node10 v1."), "{node}");
        let held = stage.host_is("node10", "it is a Node", |host| host["status"]["state"] == "InUse").await?;
        assert_eq!(held["spec"]["claim"]["epoch"], epoch);
        shell.run(&format!("kubectl delete pod {name} --wait=false"))?;
        stage.host_is("node10", "it is free again", is_available).await.with_context(|| host.agent.log_tail())?;
        assert_eq!(leftovers(&host.machine)?, before, "after {name}");
        shell.until("kubectl get nodeclaims,nodes -o name", "").await?;
    }
    Ok(())
}
