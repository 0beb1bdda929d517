//! A server of its own with the ByoHosts of agents that only exist as objects.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Writes at a time.
const IN_FLIGHT: usize = 64;
/// How long the controllers may take to bring up all hosts.
const READY_WITHIN: Duration = Duration::from_mins(10);
/// How long the server may take to bring kinds and namespaces.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// Time between two looks at all hosts.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A client of the server whose kubeconfig is in a directory, once it serves hosts and their Leases: it answers before its
/// controllers have brought kinds and namespaces.
pub(super) async fn client(directory: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(directory.join("kubeconfig")).context("cannot read the kubeconfig")?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let namespaces = Api::<Namespace>::all(client.clone());
    let give_up = Instant::now() + SERVES_WITHIN;
    loop {
        let serves = hosts(&client).list(&ListParams::default().limit(1)).await.map(drop);
        match serves.and(namespaces.get("millpond-hosts").await.map(drop)) {
            Ok(()) => return Ok(client),
            Err(error) if Instant::now() > give_up => return Err(error).context("the server serves no hosts"),
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

pub(super) fn api(client: &Client, api_version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

pub(super) fn hosts(client: &Client) -> Api<DynamicObject> {
    api(client, "infrastructure.cluster.x-k8s.io/v1beta1", "ByoHost", "default")
}

pub(super) fn leases(client: &Client) -> Api<DynamicObject> {
    api(client, "coordination.k8s.io/v1", "Lease", "millpond-hosts")
}

/// Creates an object of the namespace `default`.
pub(super) async fn create(client: &Client, object: Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api = api(client, &text(&object["apiVersion"]), &text(&object["kind"]), "default");
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

pub(super) fn name(number: usize) -> String {
    format!("h{number:06}")
}

/// Registers hosts as their agents would.
pub(super) async fn register(client: &Client, count: usize) -> anyhow::Result<()> {
    let one = |number: usize| async move {
        let (name, hosts) = (name(number), hosts(client));
        let host = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ByoHost",
            "metadata": {"name": name, "labels": {"purpose": "general"}}, "spec": {},
        });
        hosts.create(&PostParams::default(), &serde_json::from_value(host)?).await?;
        let status = json!({"status": {
            "facts": {
                "cpu": {"architecture": "amd64", "sockets": 1, "cores": 8, "threads": 8},
                "memory": {"totalBytes": 32_i64 << 30},
                "os": {"name": "linux", "image": "Debian GNU/Linux 12", "cgroupVersion": 2},
                "machineID": format!("{number:032x}"), "bootID": format!("{number:032x}"),
            },
            "capacity": {"cpu": "8", "memory": "32Gi"},
        }});
        hosts.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        anyhow::Ok(())
    };
    let mut written = futures::stream::iter(0..count).map(one).buffer_unordered(IN_FLIGHT);
    while let Some(done) = written.next().await {
        done?;
    }
    Ok(())
}

/// Waits until so many hosts are free.
pub(super) async fn until_available(client: &Client, count: usize) -> anyhow::Result<()> {
    let give_up = Instant::now() + READY_WITHIN;
    loop {
        let listed = hosts(client).list(&ListParams::default()).await?;
        let free = listed.items.iter().filter(|host| host.data["status"]["state"] == "Available").count();
        if free >= count {
            return Ok(());
        }
        if Instant::now() > give_up {
            bail!("{free} of {count} hosts are free after {} s", READY_WITHIN.as_secs());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
