//! GPUs are kept once, given back, and survive the end of the controller at any write.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::DeleteParams;
use millpond_api::condition;
use millpond_gpu::controller::Options;
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn reserve(ttl: &str) -> Value {
    json!({"desAccTime": 10, "gpuRequired": true, "reserve": {"gpus": 1, "ttl": ttl}})
}

/// Names of the GPUInfos that have a GPU, and of those that do not say why they have none.
async fn outcome(cluster: &Cluster) -> (BTreeSet<String>, Vec<String>) {
    let (mut kept, mut silent) = (BTreeSet::new(), Vec::new());
    for info in cluster.infos().list(&Default::default()).await.expect("GPUInfos").items {
        let name = info.metadata.name.unwrap_or_default();
        let conditions = info.status.map(|status| status.conditions).unwrap_or_default();
        match condition::find(&conditions, "Reserved") {
            Some(reserved) if reserved.is_true() => drop(kept.insert(name)),
            Some(reserved) if reserved.reason == "NoFreeGPU" => {}
            _ => silent.push(name),
        }
    }
    (kept, silent)
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_that_ask_for_sixty_gpus_sixty_get_one() {
    let mut cluster = Cluster::start_virtual().await;
    for node in 0..15 {
        cluster.node(&format!("node-{node:02}"), 4, json!({})).await;
    }
    cluster.run(Options::default());
    let asking = (0..100).map(|at| {
        let (cluster, name) = (&cluster, format!("job-{at:03}"));
        async move { cluster.ask(&name, reserve("2h")).await }
    });
    futures::future::join_all(asking).await;
    let kept = cluster
        .eventually("sixty reservations", async || {
            let (kept, silent) = outcome(&cluster).await;
            silent.is_empty().then_some(kept)
        })
        .await;
    assert_eq!(kept.len(), 60);
    let reservations = cluster.reservations().await;
    let mut by_node: BTreeMap<String, u64> = BTreeMap::new();
    reservations.iter().for_each(|(node, entry)| *by_node.entry(node.clone()).or_default() += entry.gpus);
    assert!(by_node.values().all(|gpus| *gpus == 4) && by_node.len() == 15, "{by_node:?}");
    // One is given back, and one of those that wait gets it.
    let first = kept.first().expect("one");
    cluster.infos().delete(first, &DeleteParams::default()).await.unwrap();
    cluster
        .eventually("another one", async || {
            let (now, _) = outcome(&cluster).await;
            (now.len() == 60 && !now.contains(first)).then_some(())
        })
        .await;
    cluster.halt().await;
}

#[tokio::test(start_paused = true)]
async fn a_reservation_ends_with_its_time() {
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("a", 1, json!({})).await;
    cluster.run(Options::default());
    cluster.ask("first", reserve("2m")).await;
    cluster.until_reason("first", "Reserved", "Reserved").await;
    cluster.ask("second", reserve("2m")).await;
    cluster.until_reason("second", "Reserved", "NoFreeGPU").await;
    let status = cluster.until_reason("first", "Reserved", "Expired").await;
    assert_eq!(status.reservation.expect("what it was").phase, "Expired");
    cluster.until_reason("second", "Reserved", "Reserved").await;
    // Another wish is another reservation.
    cluster.infos().delete("second", &DeleteParams::default()).await.unwrap();
    let again = json!({"spec": {"reserve": {"ttl": "1h"}}});
    let params = kube::api::PatchParams::default();
    cluster.infos().patch("first", &params, &kube::api::Patch::Merge(again)).await.unwrap();
    cluster.until_reason("first", "Reserved", "Reserved").await;
    cluster.halt().await;
}

#[tokio::test(start_paused = true)]
async fn a_reservation_stays_while_a_device_plugin_starts_again() {
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("a", 1, json!({})).await;
    cluster.run(Options::default());
    cluster.ask("train", reserve("1h")).await;
    cluster.until_reason("train", "Reserved", "Reserved").await;
    let before = cluster.reservations().await;
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(cluster.client.clone());
    let offer = async |gpus: &str| {
        let amounts = json!({"nvidia.com/gpu": gpus});
        let status = kube::api::Patch::Merge(json!({"status": {"capacity": amounts, "allocatable": amounts}}));
        nodes.patch_status("a", &Default::default(), &status).await.expect("change the node");
    };
    offer("0").await;
    let status = cluster.until_reason("train", "Ready", "NoGPU").await;
    assert!(condition::is_true(&status.conditions, "Reserved"), "{status:?}");
    assert_eq!(cluster.reservations().await, before);
    offer("1").await;
    cluster.until_reason("train", "Ready", "NodeFound").await;
    assert_eq!(cluster.reservations().await, before);
    cluster.halt().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_the_label_gets_the_gpus() {
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("a", 1, json!({})).await;
    cluster.run(Options::default());
    cluster.ask("train", reserve("1h")).await;
    cluster.until_reason("train", "Reserved", "Reserved").await;
    let holder = async || cluster.holders().list(&Default::default()).await.expect("pods").items.into_iter().next();
    let held = cluster.eventually("a holder", &holder).await;
    let spec = held.spec.expect("a spec");
    assert_eq!(spec.node_name.as_deref(), Some("a"));
    assert_eq!(spec.containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap()["nvidia.com/gpu"].0, "1");
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(cluster.client.clone());
    let guard = async || {
        let node = nodes.get("a").await.expect("the node");
        node.metadata.annotations.unwrap_or_default().contains_key("karpenter.sh/do-not-disrupt")
    };
    assert!(guard().await);
    cluster.pod("job", None, 1, json!({"millpond.dev/gpuinfo": "train"})).await;
    let nominated = async || {
        let pod = cluster.pods().get("job").await.expect("the pod");
        pod.status.and_then(|status| status.nominated_node_name)
    };
    assert_eq!(cluster.eventually("a nomination", nominated).await, "a");
    // Nothing here plays kubelet, which would end it.
    let gone = async || holder().await.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(());
    cluster.eventually("the end of the holder", gone).await;
    let binding = json!({"metadata": {"name": "job"}, "target": {"kind": "Node", "name": "a"}});
    let _: Value = cluster.pods().create_subresource("binding", "job", &Default::default(), &binding).await.unwrap();
    let status = cluster.until_reason("train", "Reserved", "Claimed").await;
    assert_eq!(status.suitable_node_name, "a");
    assert!(guard().await, "the node of a running job is left alone");
    cluster.pods().delete("job", &DeleteParams::default().grace_period(0)).await.unwrap();
    cluster.until_reason("train", "Reserved", "Ended").await;
    let released = async || (cluster.reservations().await.is_empty() && !guard().await).then_some(());
    cluster.eventually("the node is released", released).await;
    cluster.halt().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_may_end_at_any_write() {
    let mut ended_early = true;
    let mut write = 0;
    while ended_early {
        let mut cluster = Cluster::start_virtual().await;
        cluster.node("a", 2, json!({})).await;
        cluster.node("b", 1, json!({})).await;
        for at in 0..5 {
            cluster.ask(&format!("job-{at}"), reserve("2h")).await;
        }
        let fuse = cluster.run_until_write(write, Options::default());
        let settled = async || {
            let (kept, silent) = outcome(&cluster).await;
            (silent.is_empty() && kept.len() == 3) || fuse.is_blown()
        };
        cluster.eventually("the end of the first", async || settled().await.then_some(())).await;
        ended_early = fuse.is_blown();
        cluster.halt().await;
        cluster.run(Options::default());
        let kept = cluster
            .eventually("all answers", async || {
                let (kept, silent) = outcome(&cluster).await;
                silent.is_empty().then_some(kept)
            })
            .await;
        let reservations = cluster.reservations().await;
        let names: BTreeSet<String> =
            reservations.iter().map(|(_, entry)| entry.gpuinfo.trim_start_matches("default/").to_owned()).collect();
        assert_eq!((kept.len(), reservations.len()), (3, 3), "write {write}: {reservations:?}");
        assert_eq!(kept, names, "write {write}");
        cluster.halt().await;
        write += 1;
    }
    assert!(write > 8, "{write}");
}

/// What watches of nodes and GPUInfos must never tell: more GPUs kept on a node than it has, or one job with two of them.
async fn ensure_nothing_is_kept_twice(cluster: &Cluster, gpus: u64, when: &str) -> usize {
    let (mut by_node, mut by_job): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
    for (node, entry) in cluster.reservations().await {
        *by_node.entry(node).or_default() += entry.gpus;
        *by_job.entry(entry.uid).or_default() += entry.gpus;
    }
    assert!(by_node.values().all(|kept| *kept <= gpus), "{when}: {by_node:?}");
    assert!(by_job.values().all(|kept| *kept == 1), "{when}: {by_job:?}");
    by_job.len()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_jobs_share_sixty_gpus_though_every_write_is_the_last_of_its_controller() {
    const GPUS: u64 = 4;
    let mut cluster = Cluster::start_virtual().await;
    for node in 0..15 {
        cluster.node(&format!("node-{node:02}"), GPUS, json!({})).await;
    }
    for job in 0..100 {
        cluster.ask(&format!("job-{job:03}"), reserve("2h")).await;
    }
    // Each controller ends with its first write: the write is done, its answer lost.
    let mut ended = 0;
    let kept = loop {
        let fuse = cluster.run_until_write(0, Options::default());
        let settled = async || {
            if fuse.is_blown() {
                return Some(None);
            }
            let (kept, silent) = outcome(&cluster).await;
            let holders = async || cluster.holders().list(&Default::default()).await.expect("pods").items.len();
            (silent.is_empty() && kept.len() == 60 && holders().await == 60).then_some(Some(kept))
        };
        let kept = cluster.eventually("the end of a controller, or of all work", settled).await;
        cluster.halt().await;
        ensure_nothing_is_kept_twice(&cluster, GPUS, &format!("after {ended} controllers")).await;
        if let Some(kept) = kept.filter(|_| !fuse.is_blown()) {
            break kept;
        }
        ended += 1;
        assert!(ended < 2000, "no progress");
    };
    // At least 60 reservations, 60 pods that hold them, 100 answers.
    assert!(ended >= 220, "{ended}");
    assert_eq!(ensure_nothing_is_kept_twice(&cluster, GPUS, "in the end").await, 60);
    assert_eq!(kept.len(), 60);
    // All of it is given back, however often the controller ends on the way.
    let delete = |job: usize| {
        let infos = cluster.infos();
        async move { infos.delete(&format!("job-{job:03}"), &DeleteParams::default()).await.map(drop) }
    };
    for deleted in futures::future::join_all((0..100).map(delete)).await {
        deleted.expect("delete a job");
    }
    loop {
        let fuse = cluster.run_until_write(0, Options::default());
        let settled = async || {
            let free = cluster.reservations().await.is_empty();
            (fuse.is_blown() || free).then_some(free)
        };
        let free = cluster.eventually("the end of a controller, or of all reservations", settled).await;
        cluster.halt().await;
        if free {
            break;
        }
        ensure_nothing_is_kept_twice(&cluster, GPUS, "while they are given back").await;
    }
}
