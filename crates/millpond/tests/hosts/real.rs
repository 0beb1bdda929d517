//! Hosts on the real kube-apiserver, under exactly the rights that `millpond install rbac` prints.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use millpond_testkit::{Access, Process, RealCluster};
use serde_json::json;

use crate::rights::{as_host, bounds};
use crate::stage::{MILLPOND, byoh};

pub(crate) fn printed(words: &[&str]) -> Result<String> {
    let output = Command::new(MILLPOND).args(words).output().context("run millpond")?;
    if !output.status.success() {
        bail!("millpond {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The controllers, as the service account of `install rbac`.
pub(crate) fn controllers(cluster: &RealCluster) -> Result<Process> {
    let kubectl = cluster.kubectl()?;
    let token = kubectl.run(&["-n", "millpond-system", "create", "token", "millpond-controller", "--duration=2h"])?;
    let access = Access { token: Some(token.trim().to_owned()), ..cluster.access().clone() };
    let kubeconfig = cluster.folder().join("controller.kubeconfig");
    access.write(&kubeconfig)?;
    let mut command = Command::new(MILLPOND);
    command.arg("controller").arg("--kubeconfig").arg(&kubeconfig).args([
        "--no-leader-election",
        "--health-bind=0",
        "--metrics-bind=0",
        "--data-dir",
    ]);
    command.arg(cluster.folder().join("controller")).env("MILLPOND_LOG", "info");
    Process::spawn("controller", &mut command, cluster.folder())
}

struct Agent {
    process: Process,
    state: PathBuf,
}

/// An agent on an empty root, which registers and waits.
fn agent(cluster: &RealCluster, name: &str) -> Result<Agent> {
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let line = printed(&["host", "token", "create", "--kubeconfig", &kubeconfig])?;
    let words = line.trim().strip_prefix("millpond ").context("a command")?.split(' ');
    let root = cluster.folder().join(name);
    std::fs::create_dir_all(root.join("etc"))?;
    std::fs::write(root.join("etc/machine-id"), format!("{name}\n"))?;
    let mut command = Command::new(MILLPOND);
    command.args(words).args(["--name", name, "--root"]).arg(&root);
    let process = Process::spawn(&format!("agent-{name}"), &mut command, cluster.folder())?;
    Ok(Agent { process, state: root.join("var/lib/millpond-agent") })
}

async fn claim(client: &Client, host: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let name = format!("data-{host}");
    let secret = json!({"metadata": {"name": name}, "stringData": {"value": "#cloud-config\n"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let kind = kube::core::GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta1", "ByoMachine");
    let machines: Api<DynamicObject> =
        Api::default_namespaced_with(client.clone(), &kube::core::ApiResource::from_gvk(&kind));
    let machine = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ByoMachine",
        "metadata": {"name": format!("m-{host}"), "annotations": {"cluster.x-k8s.io/paused": "true"}}, "spec": {},
    });
    let machine = machines.create(&PostParams::default(), &serde_json::from_value(machine)?).await?;
    let spec = json!({
        "claim": {"machineUID": machine.metadata.uid, "namespace": "default", "name": format!("m-{host}"), "epoch": 1},
        "epoch": 1, "bootstrapSecret": {"kind": "Secret", "name": name, "namespace": "default"},
    });
    byoh(client).patch(host, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
    let roles: Api<Role> = Api::default_namespaced(client.clone());
    let names_it = |role: Option<&Role>| {
        role.is_some_and(|role| serde_json::to_string(&role.rules).is_ok_and(|rules| rules.contains(&name)))
    };
    await_condition(roles, &format!("byoh-host-{host}"), names_it).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs the real parts"]
async fn real_hosts_come_in_by_token_and_keep_to_themselves() -> Result<()> {
    let cluster = RealCluster::builder().controller_manager("*").start()?;
    let kubectl = cluster.kubectl()?;
    kubectl.run_with_input(
        &["apply", "--server-side", "-f", "-"],
        &printed(&["install", "crds", "--with", "cluster-api"])?,
    )?;
    kubectl.run_with_input(&["apply", "-f", "-"], &printed(&["install", "rbac"])?)?;
    let mut controllers = controllers(&cluster)?;
    let client = cluster.client().await?;
    let mut agents = Vec::new();
    for name in ["node1", "node10"] {
        let agent = agent(&cluster, name)?;
        let reported = |host: Option<&DynamicObject>| host.is_some_and(|host| !host.data["status"]["facts"].is_null());
        let there = await_condition(byoh(&client), name, reported);
        if tokio::time::timeout(std::time::Duration::from_secs(90), there).await.is_err() {
            bail!("{name} does not register: {}\n{}", agent.process.printed(), controllers.printed());
        }
        agents.push((name, agent));
    }
    // The agents have nothing to do on this machine.
    for (_, agent) in &mut agents {
        agent.process.stop()?;
    }
    for (name, _) in &agents {
        claim(&client, name).await?;
    }
    let kubeconfig = |at: usize| -> &Path { &agents[at].1.state };
    for (at, other) in [(0, "node10"), (1, "node1")] {
        bounds(&as_host(&kubeconfig(at).join("kubeconfig")).await?, agents[at].0, other).await?;
    }
    controllers.ensure_running()
}
