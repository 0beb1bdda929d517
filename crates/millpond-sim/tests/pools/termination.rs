//! Claims that leave: what is drained when, and what a machine that is gone, broken or taken back means.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use millpond_controllers::kinds::NodeClaim;
use millpond_sim::meta::{is_leaving, node_name};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::basin::{Basin, key, merge, pods_of, running};
use crate::fuse::Fuse;

const POOL: &str = "karpenter.sh/v1";

/// A cluster with so many pods of an app, all on one node; the claim of that node.
async fn one_node(basin: &Basin, pods: i32) -> Arc<NodeClaim> {
    basin.deployment("web", pods, "400m", json!({})).await;
    basin.until_running("web", pods as usize).await;
    basin.until_quiet().await;
    let claims = basin.claims();
    assert_eq!(claims.len(), 1, "{}", basin.describe());
    Arc::clone(&claims[0])
}

async fn delete_claim(basin: &Basin, claim: &NodeClaim) {
    basin.delete(POOL, "NodeClaim", claim.name()).await;
}

/// Waits until claim, node and machine are gone.
async fn until_gone(basin: &Basin, claim: &NodeClaim) {
    let id = &claim.status.provider_id;
    basin
        .until("claim and node are gone", |cluster| {
            cluster.claims.get(&key(claim.name())).is_none() && cluster.nodes.indexed(id).is_empty()
        })
        .await;
    assert!(basin.instances().iter().all(|instance| instance.id != *id), "the machine is there still");
}

async fn budget(basin: &Basin, max_unavailable: u32) {
    basin
        .create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await;
    basin.until_quiet().await;
}

/// The fewest pods of `web` that ran at any time from now on.
fn fewest_running(basin: &Basin) -> Arc<Mutex<usize>> {
    let fewest = Arc::new(Mutex::new(running(basin.cluster(), "web")));
    let (noted, cluster) = (Arc::clone(&fewest), Arc::downgrade(basin.cluster()));
    basin.cluster().pods.on_change(move |_, _| {
        if let Some(cluster) = cluster.upgrade() {
            let mut fewest = noted.lock();
            *fewest = (*fewest).min(running(&cluster, "web"));
        }
    });
    fewest
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_its_pods_node_and_machine_along() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 3).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let (noted, name) = (Arc::clone(&seen), claim.status.node_name.clone());
    basin.cluster().nodes.on_change(move |_, after| {
        let Some(node) = after.filter(|node| node.name_any() == name) else { return };
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let tainted = taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted" && taint.effect == "NoSchedule");
        let label = "node.kubernetes.io/exclude-from-external-load-balancers";
        let excluded = node.labels().get(label).is_some_and(|value| value == "karpenter");
        if is_leaving(&**node) {
            noted.lock().push(format!("tainted={tainted} excluded={excluded}"));
        }
    });
    let conditions: Arc<Mutex<Vec<String>>> = Arc::default();
    let (noted, name) = (Arc::clone(&conditions), claim.name().to_owned());
    basin.cluster().claims.on_change(move |_, after| {
        let Some(claim) = after.filter(|claim| claim.name() == name) else { return };
        for kind in ["Drained", "VolumesDetached", "InstanceTerminating"] {
            let found = claim.status.conditions.iter().find(|condition| condition.kind == kind);
            let word = found.map(|condition| format!("{kind}={}", condition.status));
            let mut noted = noted.lock();
            if let Some(word) = word.filter(|word| !noted.contains(word)) {
                noted.push(word);
            }
        }
    });
    delete_claim(&basin, &claim).await;
    until_gone(&basin, &claim).await;
    basin.until_running("web", 3).await;
    assert!(seen.lock().iter().all(|words| words == "tainted=true excluded=true"), "{:?}", seen.lock());
    assert_eq!(
        *conditions.lock(),
        ["Drained=Unknown", "Drained=True", "VolumesDetached=True", "InstanceTerminating=True"]
    );
    assert_eq!(basin.events("Evicted").await.len(), 3);
    assert_eq!((basin.claims().len(), basin.instances().len()), (1, 1), "one node in place of the old one");
    basin.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn who_deletes_a_node_deletes_its_claim_and_machine() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 1).await;
    basin.delete("v1", "Node", &claim.status.node_name).await;
    until_gone(&basin, &claim).await;
    basin.until_running("web", 1).await;
}

#[tokio::test(start_paused = true)]
async fn pods_leave_in_tiers() {
    let basin = Basin::start().await;
    let slow = json!({"sim.millpond.dev/stop-after": "20s"});
    for (app, critical) in [("w", false), ("c", true), ("d", false), ("cd", true)] {
        let mut spec = json!({
            "containers": [{"name": "c", "image": "a:1", "resources": {"requests": {"cpu": "100m"}}}],
            "terminationGracePeriodSeconds": 60,
        });
        if critical {
            spec["priorityClassName"] = json!("system-cluster-critical");
        }
        let template = json!({"metadata": {"labels": {"app": app}, "annotations": slow}, "spec": spec});
        let mut workload = json!({
            "apiVersion": "apps/v1", "kind": if app.contains('d') { "DaemonSet" } else { "Deployment" },
            "metadata": {"name": app},
            "spec": {"selector": {"matchLabels": {"app": app}}, "template": template},
        });
        if !app.contains('d') {
            merge(&mut workload, &json!({"spec": {"replicas": 1}}));
        }
        basin.create(workload).await;
    }
    for app in ["w", "c", "d", "cd"] {
        basin.until_running(app, 1).await;
    }
    basin.until_quiet().await;
    let claims = basin.claims();
    assert_eq!(claims.len(), 1, "{}", basin.describe());
    // When each began to leave and when it had left, in seconds.
    let times: Arc<Mutex<BTreeMap<String, Vec<u64>>>> = Arc::default();
    let (noted, node, began) = (Arc::clone(&times), claims[0].status.node_name.clone(), Instant::now());
    basin.cluster().pods.on_change(move |before, after| {
        let pod = after.or(before).filter(|pod| node_name(pod) == Some(node.as_str()));
        let Some(app) = pod.and_then(|pod| pod.labels().get("app").cloned()) else { return };
        let begins = after.is_some_and(|pod| is_leaving(&**pod)) && !before.is_some_and(|pod| is_leaving(&**pod));
        if begins || after.is_none() {
            noted.lock().entry(app).or_default().push(began.elapsed().as_secs());
        }
    });
    delete_claim(&basin, &claims[0]).await;
    until_gone(&basin, &claims[0]).await;
    let times = times.lock().clone();
    let order = ["w", "d", "c", "cd"].map(|app| times[app].clone());
    for pair in order.windows(2) {
        let ([began, left], [next, _]) = (&pair[0][..], &pair[1][..]) else { panic!("{order:?}") };
        // The kubelet counts from a whole second.
        assert!(left - began >= 19 && next >= left && *next <= left + 1, "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_holds_a_node_up_and_lets_it_go() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 4).await;
    budget(&basin, 0).await;
    let fewest = fewest_running(&basin);
    delete_claim(&basin, &claim).await;
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!(running(basin.cluster(), "web"), 4);
    assert!(basin.cluster().nodes.get(&key(&claim.status.node_name)).is_some(), "{}", basin.describe());
    let told = basin.events("FailedDraining").await;
    assert!(told.iter().all(|note| note.contains("violates a budget: The disruption budget web needs")), "{told:?}");
    assert!((4..=8).contains(&told.len()), "one for each pod, now and then: {told:?}");
    assert_eq!(*fewest.lock(), 4);

    basin.patch("policy/v1", "PodDisruptionBudget", "web", json!({"spec": {"maxUnavailable": 1}})).await;
    let begun = Instant::now();
    until_gone(&basin, &claim).await;
    basin.until_running("web", 4).await;
    assert_eq!(*fewest.lock(), 3, "never more than one at a time");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_overrides_wishes_and_budgets() {
    let basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"template": {"spec": {"terminationGracePeriod": "300s"}}}})).await;
    basin.deployment("web", 2, "500m", json!({"terminationGracePeriodSeconds": 60})).await;
    basin
        .create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "held", "labels": {"app": "held"},
                         "annotations": {"karpenter.sh/do-not-disrupt": "true", "sim.millpond.dev/stop-after": "90s"}},
            "spec": {"terminationGracePeriodSeconds": 90,
                     "containers": [{"name": "c", "image": "a:1", "resources": {"requests": {"cpu": "500m"}}}]},
        }))
        .await;
    basin.until_running("web", 2).await;
    basin.until_running("held", 1).await;
    budget(&basin, 0).await;
    let claims = basin.claims();
    assert_eq!(claims.len(), 1, "{}", basin.describe());
    let ends: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let (noted, begun) = (Arc::clone(&ends), Instant::now());
    basin.cluster().pods.on_change(move |_, after| {
        if let Some(pod) = after.filter(|pod| is_leaving(&***pod)) {
            let app = pod.labels().get("app").cloned().unwrap_or_default();
            noted.lock().entry(app).or_insert(begun.elapsed().as_secs());
        }
    });
    let deleted = basin.now();
    delete_claim(&basin, &claims[0]).await;
    basin
        .until("the deadline is written down", |cluster| {
            let claim = cluster.claims.get(&key(claims[0].name()));
            let deadline = claim.and_then(|claim| {
                let text = claim.annotations().get("karpenter.sh/nodeclaim-termination-timestamp").cloned();
                text.and_then(|text| text.parse::<Timestamp>().ok())
            });
            deadline.is_some_and(|deadline| (299..=300).contains(&deadline.duration_since(deleted).as_secs()))
        })
        .await;
    until_gone(&basin, &claims[0]).await;
    let took = begun.elapsed().as_secs();
    assert!((295..=310).contains(&took), "the pod that needs its time has it: {took} s");
    let ends = ends.lock().clone();
    assert!((209..=211).contains(&ends["held"]) && (239..=241).contains(&ends["web"]), "{ends:?}");
    let told = basin.events("Disrupted").await;
    assert!(told.len() == 3 && told.iter().any(|note| note.contains("it has 90 of its 90 seconds")), "{told:?}");
    assert!(!basin.events("TerminationGracePeriodExpiring").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn volumes_are_detached_before_the_machine_goes() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 1).await;
    basin
        .create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
            "spec": {"attacher": "csi.example.com", "nodeName": claim.status.node_name,
                     "source": {"persistentVolumeName": "pv"}},
        }))
        .await;
    delete_claim(&basin, &claim).await;
    basin.pass(Duration::from_mins(5)).await;
    let waiting = basin.get(POOL, "NodeClaim", claim.name()).await;
    let detached = |claim: &Value| {
        let all = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "VolumesDetached").map(|one| one["status"].clone())
    };
    assert_eq!(detached(&waiting), Some(json!("Unknown")));
    assert_eq!(basin.events("AwaitingVolumeDetachment").await.len(), 1);
    assert!(basin.instances().iter().any(|instance| instance.id == claim.status.provider_id));
    basin.delete("storage.k8s.io/v1", "VolumeAttachment", "a").await;
    let begun = Instant::now();
    until_gone(&basin, &claim).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_slow_and_forgetful_cloud_is_asked_until_the_machine_is_gone() {
    let basin = Basin::bare().await;
    let faults =
        json!([{"verbs": ["delete"], "nth": [1], "lost": true}, {"verbs": ["delete"], "nth": [2], "error": "other"}]);
    basin
        .class("default", json!({"sim": {"shutdown": "40s", "lag": {"list": "90s", "get": "20s"}, "calls": faults}}))
        .await;
    basin.pool("default", json!({})).await;
    let claim = one_node(&basin, 1).await;
    delete_claim(&basin, &claim).await;
    let begun = Instant::now();
    until_gone(&basin, &claim).await;
    let took = begun.elapsed().as_secs();
    assert!((40..=50).contains(&took), "{took} s");
    let told = basin.events("FailedTermination").await;
    assert!(told.len() == 2 && told[0].contains("it may have been done"), "{told:?}");
    basin.until_quiet().await;
    basin.pass(Duration::from_mins(5)).await;
    assert_eq!((basin.claims().len(), basin.instances().len(), basin.nodes().len()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_machine_is_left_before_it_goes() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 3).await;
    basin.cloud.interrupt(&claim.status.provider_id, Duration::from_mins(2), basin.now()).expect("interrupted");
    let begun = Instant::now();
    until_gone(&basin, &claim).await;
    basin.until_running("web", 3).await;
    assert!(begun.elapsed() < Duration::from_mins(2), "it was drained in time: {:?}", begun.elapsed());
    assert_eq!(basin.events("InstanceTerminating").await.len(), 2, "of the claim and of the node");
    assert_eq!(basin.events("Evicted").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn pods_end_before_the_machine_that_is_taken_back() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 3).await;
    // No pod may be evicted: they are deleted in time for their own grace period.
    budget(&basin, 0).await;
    let old = pods_of(basin.cluster(), "web");
    basin.cloud.interrupt(&claim.status.provider_id, Duration::from_mins(2), basin.now()).expect("interrupted");
    let begun = Instant::now();
    let names: Vec<String> = old.iter().map(|pod| pod.name_any()).collect();
    basin
        .until("the old pods are gone", |cluster| {
            pods_of(cluster, "web").iter().all(|pod| !names.contains(&pod.name_any()))
        })
        .await;
    let took = begun.elapsed().as_secs();
    assert!((80..=115).contains(&took), "after {took} s of 120");
    until_gone(&basin, &claim).await;
    basin.until_running("web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_names_a_wrong_machine_takes_its_own_along() {
    let mut basin = Basin::start().await;
    let claim = one_node(&basin, 1).await;
    basin.scale("web", 0).await;
    basin.until_quiet().await;
    // All of it while no controller runs.
    basin.kill();
    name_wrongly(&basin, &claim).await;
    delete_claim(&basin, &claim).await;
    basin.hire(Fuse::none());
    let begun = Instant::now();
    basin.until("mirrors are filled", millpond_controllers::cluster::Cluster::is_ready).await;
    until_gone(&basin, &claim).await;
    basin.until("the node is gone", |cluster| cluster.nodes.is_empty()).await;
    assert!(basin.instances().is_empty(), "its machine is gone with it");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_made_to_name_no_machine_ends_with_its_own() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 1).await;
    basin.scale("web", 0).await;
    name_wrongly(&basin, &claim).await;
    let begun = Instant::now();
    until_gone(&basin, &claim).await;
    let its_own = |instance: &millpond_providers::Instance| instance.id == claim.status.provider_id;
    assert!(!basin.instances().iter().any(its_own), "its machine is gone with it");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// Writes an id of no machine into a claim.
async fn name_wrongly(basin: &Basin, claim: &NodeClaim) {
    let api: kube::Api<NodeClaim> = kube::Api::all(basin.client.clone());
    let patch = json!({"status": {"providerID": "sim://default/i-0000000000000000"}});
    let patch = kube::api::Patch::Merge(patch);
    api.patch_status(claim.name(), &kube::api::PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_collected() {
    let mut basin = Basin::start().await;
    let claim = one_node(&basin, 2).await;
    basin.kill();
    basin.cloud.delete(&claim.status.provider_id, basin.now()).expect("ended");
    basin.pass(Duration::from_mins(5)).await;
    basin.hire(Fuse::none());
    let begun = Instant::now();
    basin.until("mirrors are filled", |cluster| !cluster.claims.is_empty()).await;
    until_gone(&basin, &claim).await;
    assert!(begun.elapsed() < Duration::from_mins(3), "{:?}", begun.elapsed());
    basin.until_running("web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn machines_and_nodes_without_a_claim_are_collected() {
    let mut basin = Basin::start().await;
    let claim = one_node(&basin, 2).await;
    let old = pods_of(basin.cluster(), "web");
    basin.kill();
    basin.patch(POOL, "NodeClaim", claim.name(), json!({"metadata": {"finalizers": null}})).await;
    delete_claim(&basin, &claim).await;
    basin.pass(Duration::from_mins(5)).await;
    basin.hire(Fuse::none());
    basin.until("mirrors are filled", |cluster| !cluster.pods.is_empty()).await;
    until_gone(&basin, &claim).await;
    // Pods of a node that is gone are found by the collector of pods, later.
    let is_new = |pod: &Arc<Pod>| old.iter().all(|old| old.uid() != pod.uid());
    basin.until("the old pods are gone", |cluster| pods_of(cluster, "web").iter().all(is_new)).await;
    basin.until_running("web", 2).await;
    assert_eq!((basin.instances().len(), basin.nodes().len()), (1, 1), "{}", basin.describe());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_nobody_wrote_down_goes_with_its_claim() {
    let mut basin = Basin::bare().await;
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    basin.until_quiet().await;
    // The first write of a controller for this claim names the cloud, the second one is its status: the machine is
    // there by then.
    basin.kill();
    let claim = basin
        .create(json!({
            "apiVersion": POOL, "kind": "NodeClaim",
            "metadata": {"name": "lost", "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "default"},
                     "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]},
        }))
        .await;
    basin.hire(Fuse::after(1));
    while basin.instances().is_empty() {
        basin.pass(Duration::from_millis(10)).await;
    }
    basin.kill();
    let before = basin.get(POOL, "NodeClaim", "lost").await;
    assert!(before["status"]["providerID"].is_null(), "nothing was written down: {before}");
    basin.delete(POOL, "NodeClaim", "lost").await;
    basin.hire(Fuse::none());
    basin.pass(Duration::from_mins(5)).await;
    assert!(
        basin.instances().is_empty() && basin.claims().is_empty() && basin.nodes().is_empty(),
        "{}",
        basin.describe()
    );
    assert!(claim.metadata.uid.is_some());
}

/// Makes a node one that does not work any more.
async fn break_node(basin: &Basin, node: &str) {
    basin
        .patch("v1", "Node", node, json!({"metadata": {"annotations": {"sim.millpond.dev/ready-after": "1000h"}}}))
        .await;
    let api: Api<Node> = Api::all(basin.client.clone());
    let now = Timestamp::from_second(basin.now().as_second()).expect("a time").to_string();
    let conditions =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": now, "lastHeartbeatTime": now}]);
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    api.patch_status(node, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test(start_paused = true)]
async fn a_broken_node_is_replaced_without_asking_its_pods() {
    let basin = Basin::start().await;
    let claim = one_node(&basin, 2).await;
    budget(&basin, 0).await;
    break_node(&basin, &claim.status.node_name).await;
    basin.pass(Duration::from_mins(9)).await;
    assert!(!is_leaving(&*basin.cluster().claims.get(&key(claim.name())).expect("there still")));
    until_gone(&basin, &claim).await;
    basin.until_running("web", 2).await;
    assert_eq!(basin.events("DisruptionTerminating").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn when_many_are_unwell_none_is_replaced() {
    let basin = Basin::start().await;
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}});
    basin.deployment("web", 3, "500m", apart).await;
    basin.until_running("web", 3).await;
    basin.until_quiet().await;
    let claims = basin.claims();
    assert_eq!(claims.len(), 3);
    for claim in &claims[..2] {
        break_node(&basin, &claim.status.node_name).await;
    }
    basin.pass(Duration::from_mins(12)).await;
    let told = basin.events("NodeRepairBlocked").await;
    // Their pods have left them by then, to two new nodes.
    assert!(told.len() == 2 && told[0].ends_with("in the nodepool: 2 of 5"), "{told:?}");
    let leaving = |name: &str| basin.cluster().claims.get(&key(name)).is_none_or(|claim| is_leaving(&*claim));
    assert!(!claims.iter().any(|claim| leaving(claim.name())), "{}", basin.describe());
    // One gets well: the other one is replaced.
    let well = json!({"metadata": {"annotations": {"sim.millpond.dev/ready-after": null}}});
    basin.patch("v1", "Node", &claims[0].status.node_name, well).await;
    until_gone(&basin, &claims[1]).await;
    assert!(!leaving(claims[0].name()));
}

/// More writes than the end of one claim can need.
const MOST_WRITES: i64 = 200;

#[tokio::test(start_paused = true)]
async fn e2e_an_end_survives_a_kill_at_every_write() {
    for write in 0..MOST_WRITES {
        let mut basin = Basin::start().await;
        let claim = one_node(&basin, 3).await;
        budget(&basin, 1).await;
        basin.kill();
        delete_claim(&basin, &claim).await;
        basin.hire(Fuse::after(write));
        let mut died = false;
        for _ in 0..30 {
            basin.pass(Duration::from_secs(10)).await;
            died |= basin.is_dead();
        }
        basin.kill();
        basin.hire(Fuse::none());
        basin.until("mirrors are filled", |cluster| !cluster.pods.is_empty()).await;
        let fewest = fewest_running(&basin);
        until_gone(&basin, &claim).await;
        basin.until_running("web", 3).await;
        basin.until_quiet().await;
        let counts = (basin.claims().len(), basin.nodes().len(), basin.instances().len());
        assert_eq!(counts, (1, 1, 1), "killed at write {write}: {}", basin.describe());
        assert!(*fewest.lock() >= 2, "killed at write {write}: no more than one pod is away at a time");
        assert_eq!(pods_of(basin.cluster(), "web").len(), 3);
        if !died {
            assert!(write > 10, "an end has more than {write} writes");
            return;
        }
    }
    panic!("more than {MOST_WRITES} writes for one claim");
}
