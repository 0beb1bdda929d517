//! Two controllers that act at once, without leader election: limits hold at every instant, in the view of both.

use std::time::Duration;

use millpond_providers::InstanceState;
use serde_json::{Value, json};

use crate::basin::{Basin, merge, running};
use crate::fuse::Fuse;
use crate::ledger::{ALL, Ledger, Most};

/// Two pools with limits of their own, and limits over both: of cores, of nodes, and of money.
async fn limited(basin: &Basin) {
    basin.class("default", json!({"sim": {"registrationDelay": "15s", "registrationJitter": "10s"}})).await;
    for (name, spec) in
        [("all", json!({"limits": {"cpu": "44", "nodes": "14"}})), ("money", json!({"dollarsPerHour": "2.2"}))]
    {
        let kind = json!({"apiVersion": "millpond.dev/v1alpha1", "kind": "ClusterLimits", "metadata": {"name": name}});
        let mut limits = kind;
        merge(&mut limits, &json!({"spec": spec}));
        basin.create(limits).await;
    }
    let eager = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    basin.pool("a", json!({"spec": {"limits": {"cpu": "30", "nodes": "8"}, "disruption": eager}})).await;
    basin.pool("b", json!({"spec": {"limits": {"nodes": "10"}, "disruption": eager}})).await;
}

fn in_pool(pool: &str) -> Value {
    json!({"nodeSelector": {"karpenter.sh/nodepool": pool}})
}

fn assert_within(ledger: &Ledger) {
    let (all, a, b) = (ledger.most(ALL), ledger.most("a"), ledger.most("b"));
    let within = |most: Most, cores: i64, nodes: usize| {
        most.cpu <= cores * 1000 && most.intended_cpu <= cores * 1000 && most.claims <= nodes && most.machines <= nodes
    };
    assert!(within(all, 44, 14), "{all:?}");
    assert!(within(a, 30, 8), "{a:?}");
    assert!(within(b, 44, 10), "{b:?}");
    assert!(all.nanos_hour <= 2_200_000_000, "{all:?}");
}

/// Pods come in bursts and go again, so that nodes are bought, replaced and left at once.
async fn tides(basin: &mut Basin, mut between: impl FnMut(&mut Basin, usize)) {
    for app in ["a", "b"] {
        basin.deployment(app, 6, "900m", in_pool(app)).await;
        basin.deployment(&format!("{app}-large"), 1, "3500m", in_pool(app)).await;
    }
    for (turn, replicas) in [40, 8, 25, 3, 50, 12, 30, 5].into_iter().enumerate() {
        for app in ["a", "b"] {
            basin.scale(app, replicas).await;
            basin.scale(&format!("{app}-large"), 1 + replicas / 8).await;
            basin.pass(Duration::from_millis(1300)).await;
        }
        basin.pass(Duration::from_secs(35)).await;
        between(basin, turn);
    }
}

#[tokio::test(start_paused = true)]
async fn two_controllers_never_overrun_a_limit() {
    let mut basin = Basin::contested().await;
    basin.hire_rival(Fuse::none());
    limited(&basin).await;
    let ledger = Ledger::open(&basin);
    tides(&mut basin, |_, _| {}).await;
    assert_within(&ledger);
    let most = ledger.most(ALL);
    assert!(most.machines >= 8, "limits were reached, or nearly: {most:?}");
    // What they want fits now: they end without a quarrel.
    basin
        .until("all run", |cluster| {
            ["a", "b"].iter().all(|app| running(cluster, app) == 5 && running(cluster, &format!("{app}-large")) == 1)
        })
        .await;
    basin.until_quiet().await;
    assert_eq!(basin.instances().len(), basin.claims().len());
    assert_within(&ledger);
}

#[tokio::test(start_paused = true)]
async fn two_controllers_that_start_over_never_overrun_a_limit() {
    let mut basin = Basin::contested().await;
    basin.hire_rival(Fuse::none());
    limited(&basin).await;
    let ledger = Ledger::open(&basin);
    // One dies in every tide, in the middle of its writes, and the next one knows nothing.
    tides(&mut basin, |basin, turn| {
        basin.kill();
        basin.hire(Fuse::after(20 + 7 * turn as i64));
    })
    .await;
    basin.kill();
    basin.hire(Fuse::none());
    basin.until("all run", |cluster| running(cluster, "a") == 5 && running(cluster, "b") == 5).await;
    basin.until_quiet().await;
    assert_within(&ledger);
    assert_eq!(basin.instances().len(), basin.claims().len());
}

#[tokio::test(start_paused = true)]
async fn an_old_leader_that_sees_nothing_new_never_overruns_a_limit() {
    let mut basin = Basin::contested().await;
    let old = Fuse::none();
    basin.hire_rival(old.clone());
    basin.class("default", json!({"sim": {"registrationDelay": "15s"}})).await;
    basin.pool("a", json!({})).await;
    basin.pool("b", json!({"spec": {"limits": {"nodes": "50"}}})).await;
    let ledger = Ledger::open(&basin);
    for app in ["a", "b"] {
        basin.deployment(app, 6, "900m", in_pool(app)).await;
        basin.until_running(app, 6).await;
    }
    basin.until_quiet().await;
    let (a, b) = (ledger.most("a"), ledger.most("b"));
    // For ten minutes nothing is to be had. It knows of pods that want nodes, and will try again and again; then it sees
    // nothing more, and of the limits that come now it knows nothing.
    let until = basin.now() + jiff::SignedDuration::from_mins(10);
    let out = json!({"stockOuts": [{"until": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}]});
    let patch = json!({"spec": {"sim": out, "backoff": {"initial": "2m", "max": "4m"}}});
    basin.patch("millpond.dev/v1alpha1", "NodeClass", "default", patch).await;
    basin.pass(Duration::from_secs(2)).await;
    for app in ["a", "b"] {
        basin.deployment(&format!("{app}-more"), 12, "3500m", in_pool(app)).await;
    }
    basin.pass(Duration::from_mins(3)).await;
    old.blind();
    let limit = |nodes: usize| json!({"spec": {"limits": {"nodes": nodes.to_string()}}});
    basin.patch("karpenter.sh/v1", "NodePool", "a", limit(a.claims + 1)).await;
    basin.patch("karpenter.sh/v1", "NodePool", "b", limit(b.claims + 2)).await;
    basin
        .create(json!({
            "apiVersion": "millpond.dev/v1alpha1", "kind": "ClusterLimits", "metadata": {"name": "all"},
            "spec": {"limits": {"nodes": (a.claims + b.claims + 2).to_string()}},
        }))
        .await;
    basin.pass(Duration::from_mins(15)).await;
    let (all, most_a, most_b) = (ledger.most(ALL), ledger.most("a"), ledger.most("b"));
    assert!(most_a.machines <= a.claims + 1, "{most_a:?} after {a:?}");
    assert!(most_b.machines <= b.claims + 2, "{most_b:?} after {b:?}");
    assert!(all.machines <= a.claims + b.claims + 2, "{all:?}");
    assert_eq!(basin.instances().len(), a.claims + b.claims + 2, "what may be had is had");
}

#[tokio::test(start_paused = true)]
async fn claims_that_arrive_after_their_reservation_lapsed_buy_nothing() {
    let mut basin = Basin::without_controllers().await;
    // What it writes is on its way for two minutes: it was stopped between reserving and writing.
    basin.hire(Fuse::slow_claims(Duration::from_mins(2)));
    basin.class("default", json!({})).await;
    basin.pool("default", json!({"spec": {"limits": {"nodes": "2"}}})).await;
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}}});
    let ledger = Ledger::open(&basin);
    basin.deployment("web", 5, "1", apart).await;
    basin.pass(Duration::from_secs(15)).await;
    basin.kill();
    basin.pass(Duration::from_secs(55)).await;
    basin.hire_another(Fuse::none());
    let seen_anew = Ledger::open(&basin);
    basin.until_running("web", 2).await;
    basin.pass(Duration::from_mins(10)).await;
    assert_eq!((ledger.most("default").machines, seen_anew.most("default").machines), (2, 2));
    let told = basin.events("LimitsExceeded").await;
    assert!(told.iter().any(|note| note.contains("limits leave no room")), "{told:?}");
    assert!(basin.events("LaunchTimeout").await.is_empty());
    assert!(seen_anew.most("default").claims > 2, "late claims did not arrive");
    assert_eq!((running(basin.cluster(), "web"), basin.claims().len()), (2, 2));
}

/// A controller has launched a claim and could not write that down. Another one, which began before the claim was made and
/// sees it for the first time when it is leaving, does not let it go before its machine (I2).
#[tokio::test(start_paused = true)]
async fn a_claim_that_another_controller_launched_does_not_go_before_its_machine() {
    let mut basin = Basin::contested().await;
    basin.kill();
    basin.class("default", json!({})).await;
    basin.pool("default", json!({})).await;
    basin.hire(Fuse::mutes_claims());
    basin.pass(Duration::from_secs(2)).await;
    basin.hire_rival(Fuse::slow(Duration::from_secs(4)));
    basin.pass(Duration::from_secs(2)).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.pass(Duration::from_millis(1500)).await;
    let machine = basin.instances().pop().expect("it was launched");
    assert_eq!(basin.get("karpenter.sh/v1", "NodeClaim", &machine.claim).await["status"]["providerID"], json!(null));
    basin.scale("web", 0).await;
    basin.delete("karpenter.sh/v1", "NodeClaim", &machine.claim).await;
    basin
        .until("the claim is gone", |_| {
            let is_there =
                basin.server.store().sizes().iter().any(|(kind, count)| kind.contains("nodeclaims") && *count > 0);
            let runs = basin.instances().iter().any(|machine| machine.state != InstanceState::Ending);
            assert!(is_there || !runs, "the machine has no owner");
            !is_there
        })
        .await;
}
