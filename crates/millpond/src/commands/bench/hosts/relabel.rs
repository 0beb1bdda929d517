//! From a label to a claim: hosts of a stock get the label that machines wait for, one after the other.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::api::{Scratch, ServerProcess};
use super::super::report::{Goal, Report};
use super::fleet;

/// Seconds from the label to the claim.
const SECONDS: f64 = 1.0;
/// How long machines may take to come into being, and a claim to be made.
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at the machines.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const BYOH: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

/// Measures.
pub(super) async fn measure(hosts: usize, runs: usize) -> anyhow::Result<Report> {
    ensure!(runs <= hosts, "every run takes a host: there are {hosts}");
    let directory = Scratch::new()?;
    let server = ServerProcess::start_with(&directory.0, &[]).await?;
    let client = fleet::client(&directory.0).await?;
    fleet::register(&client, hosts).await?;
    leases(&client, hosts).await?;
    fleet::until_available(&client, hosts).await?;
    for object in pool(runs) {
        fleet::create(&client, object).await?;
    }
    until_waiting(&client, runs).await?;
    let mut times = Vec::new();
    for run in 0..runs {
        times.push(label(&client, &fleet::name(run * hosts / runs)).await?.as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let mut report = Report::default();
    report.add("hosts", hosts as f64, "", None);
    report.add("labels", runs as f64, "", None);
    report.add("from a label to the claim, median", times[times.len() / 2], "ms", None);
    let slowest = times.last().copied().unwrap_or_default();
    report.add("from a label to the claim, slowest", slowest, "ms", Some(Goal::AtMost(SECONDS * 1e3)));
    server.stop()?;
    Ok(report)
}

/// Leases that hold for an hour: nothing renews them.
async fn leases(client: &Client, hosts: usize) -> anyhow::Result<()> {
    let now = jiff::Timestamp::now().to_string();
    let api = &fleet::leases(client);
    let make = |number: usize| {
        let (name, now) = (fleet::name(number), now.clone());
        async move {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": format!("{name}/boot"), "leaseDurationSeconds": 3600, "renewTime": now},
            });
            api.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
            anyhow::Ok(())
        }
    };
    futures::stream::iter(0..hosts).map(make).buffer_unordered(64).try_collect::<Vec<()>>().await.map(drop)
}

/// A pool whose machines wait for hosts with a label that none has.
fn pool(machines: usize) -> Vec<Value> {
    let object = |api_version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let reference =
        |kind: &str, name: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name});
    let template = json!({
        "selector": {"matchLabels": {"purpose": "bench"}}, "joinMode": "tlsBootstrap",
        "bootstrapConfigRef": reference("BootstrapKubeconfig", "bench"),
    });
    let labels = json!({"cluster.x-k8s.io/cluster-name": "bench", "pool": "bench"});
    let deployment = json!({
        "clusterName": "bench", "replicas": machines, "selector": {"matchLabels": {"pool": "bench"}},
        "template": {"metadata": {"labels": labels}, "spec": {
            "clusterName": "bench", "version": "v1.36.0",
            "bootstrap": {"configRef": reference("BootstrapKubeconfig", "bench")},
            "infrastructureRef": reference("ByoMachineTemplate", "bench"),
        }},
    });
    vec![
        object(BYOH, "ByoCluster", "bench", json!({})),
        object(
            "cluster.x-k8s.io/v1beta2",
            "Cluster",
            "bench",
            json!({"infrastructureRef": reference("ByoCluster", "bench")}),
        ),
        object(BYOH, "BootstrapKubeconfig", "bench", json!({})),
        object(BYOH, "ByoMachineTemplate", "bench", json!({"template": {"spec": template}})),
        object("cluster.x-k8s.io/v1beta2", "MachineDeployment", "bench", deployment),
    ]
}

/// Waits until so many machines have no host and say so.
async fn until_waiting(client: &Client, count: usize) -> anyhow::Result<()> {
    let api = fleet::api(client, BYOH, "ByoMachine", "default");
    let give_up = Instant::now() + DONE_WITHIN;
    loop {
        let listed = api.list(&ListParams::default()).await?;
        let waits = |data: &Value| {
            let mut conditions = data["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["reason"] == "BYOHostsUnavailable")
        };
        let waiting = listed.items.iter().filter(|machine| waits(&machine.data)).count();
        if waiting >= count {
            return Ok(());
        }
        if Instant::now() > give_up {
            bail!("{waiting} of {count} machines wait for a host after {} s", DONE_WITHIN.as_secs());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Labels a host, and waits until a machine has claimed it.
async fn label(client: &Client, name: &str) -> anyhow::Result<Duration> {
    let api = fleet::hosts(client);
    let host = api.get(name).await?;
    let version = host.metadata.resource_version.unwrap_or_default();
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(api.watch(&params, &version).await?);
    let begun = Instant::now();
    let patch = json!({"metadata": {"labels": {"purpose": "bench"}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    let claimed = async {
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Modified(host) = event
                && host.data["spec"]["claim"].is_object()
            {
                return Ok(begun.elapsed());
            }
        }
        bail!("the watch of host {name} ended");
    };
    tokio::time::timeout(DONE_WITHIN, claimed).await.with_context(|| format!("nothing claims host {name}"))?
}
