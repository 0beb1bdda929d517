//! Host against host: what the certificate of one may do to the objects of the other.

use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::stage::{Stage, byoh, tls};

/// Where an agent keeps its certificate.
const KUBECONFIG: &str = "var/lib/millpond-agent/kubeconfig";

/// A client with the certificate of a host.
pub(crate) async fn as_host(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::from_yaml(&std::fs::read_to_string(kubeconfig)?)?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

#[track_caller]
fn forbidden<T: std::fmt::Debug>(what: &str, answer: kube::Result<T>) {
    match answer {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"), "{what}: {}", status.message);
        }
        other => panic!("{what}: {other:?}"),
    }
}

async fn patch(api: &Api<DynamicObject>, name: &str, status: bool, patch: Value) -> kube::Result<DynamicObject> {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    if status { api.patch_status(name, &params, &patch).await } else { api.patch(name, &params, &patch).await }
}

/// What a host with a claim may do, and may not. Bootstrap data is in Secrets named `data-HOST`.
pub(crate) async fn bounds(client: &Client, own: &str, other: &str) -> Result<()> {
    let hosts = byoh(client);
    hosts.get(own).await?;
    forbidden("get", hosts.get(other).await);
    forbidden("list", hosts.list(&ListParams::default()).await);
    for name in [own, other] {
        forbidden("label", patch(&hosts, name, false, json!({"metadata": {"labels": {"purpose": "gpu"}}})).await);
        forbidden("claim", patch(&hosts, name, false, json!({"spec": {"claim": null}})).await);
        forbidden("delete", hosts.delete(name, &kube::api::DeleteParams::default()).await);
    }
    let foreign = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ByoHost",
        "metadata": {"name": format!("{own}0")}, "spec": {},
    });
    let create = hosts.create(&kube::api::PostParams::default(), &serde_json::from_value(foreign)?).await;
    forbidden("a host of another name", create);
    forbidden("status", patch(&hosts, other, true, json!({"status": {"agentVersion": "x"}})).await);
    forbidden("state", patch(&hosts, own, true, json!({"status": {"pool": "gpu-pool"}})).await);
    patch(&hosts, own, true, json!({"status": {"agentVersion": "x"}})).await?;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.get(&format!("data-{own}")).await?;
    forbidden("bootstrap data", secrets.get(&format!("data-{other}")).await);
    forbidden("secrets", secrets.list(&ListParams::default()).await);
    let leases: Api<Lease> = Api::namespaced(client.clone(), "millpond-hosts");
    leases.get(own).await?;
    forbidden("lease", leases.get(other).await);
    let renewal = Patch::Merge(json!({"spec": {}}));
    forbidden("renew", leases.patch(other, &PatchParams::default(), &renewal).await);
    let nodes: Api<Node> = Api::all(client.clone());
    forbidden("nodes", nodes.list(&ListParams::default()).await);
    let tokens: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    forbidden("tokens", tokens.list(&ListParams::default()).await);
    Ok(())
}

#[tokio::test]
async fn a_host_has_nothing_to_say_about_another_one() -> Result<()> {
    let stage = Stage::new().await?;
    let (one, ten) = (stage.host("node1", 11).await?, stage.host("node10", 10).await?);
    for (epoch, name) in [(1, "node1"), (1, "node10")] {
        stage.bootstrap(&format!("data-{name}"), name).await?;
        stage.claim(name, epoch, tls(&format!("data-{name}"))).await?;
        stage.phase_is(name, epoch, "Applied").await?;
    }
    for (host, own, other) in [(&one, "node1", "node10"), (&ten, "node10", "node1")] {
        bounds(&as_host(&host.machine.path(KUBECONFIG)?).await?, own, other).await?;
    }
    // When the claim is over, so is the right to its bootstrap data.
    stage.release("node10").await?;
    stage.phase_is("node10", 1, "Reset").await?;
    let secrets: Api<Secret> = Api::default_namespaced(as_host(&ten.machine.path(KUBECONFIG)?).await?);
    // The controllers take the right away when they hear of it.
    let roles: Api<k8s_openapi::api::rbac::v1::Role> = Api::default_namespaced(stage.client.clone());
    let names_no_secret = |role: Option<&k8s_openapi::api::rbac::v1::Role>| {
        role.is_some_and(|role| !serde_json::to_string(&role.rules).is_ok_and(|rules| rules.contains("secrets")))
    };
    kube::runtime::wait::await_condition(roles, "byoh-host-node10", names_no_secret).await?;
    forbidden("old bootstrap data", secrets.get("data-node10").await);
    Ok(())
}
