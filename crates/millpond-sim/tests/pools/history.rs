//! What the decision history says of nodes that come and go.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millpond_plan::plan::Target;
use millpond_runtime::history::{self, Action, Decision, DecisionKind, History, Subject};
use millpond_state::saved;
use serde_json::json;

use crate::basin::Basin;
use crate::fuse::Fuse;

/// Controllers that write their decisions into a folder, with a pool that consolidates at once.
async fn basin(folder: &Path) -> Basin {
    let mut basin = Basin::without_controllers().await;
    basin.history = History::open(folder).expect("a folder of the test's own");
    basin.hire(Fuse::none());
    basin.class("default", json!({})).await;
    let disruption = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    basin.pool("default", json!({"spec": {"disruption": disruption}})).await;
    basin
}

fn about(history: &History, node: &str) -> Vec<Arc<Decision>> {
    let subject = Subject::Node(node.to_owned());
    history.all().into_iter().filter(|decision| decision.concerns(&subject)).collect()
}

fn of_kind(history: &History, kind: DecisionKind) -> Vec<Arc<Decision>> {
    history.all().into_iter().filter(|decision| decision.kind == kind).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_still_says_what_happened_to_it_and_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let basin = basin(folder.path()).await;
    basin.deployment("web", 10, "1", json!({})).await;
    basin.until_running("web", 10).await;
    basin.until_quiet().await;
    let names: BTreeSet<String> = basin.claims().iter().map(|claim| claim.name().to_owned()).collect();
    let bought = of_kind(&basin.history, DecisionKind::Provision);
    let in_history: BTreeSet<String> =
        bought.iter().flat_map(|decision| &decision.actions).map(|action| action.object.name.clone()).collect();
    assert!(names.is_subset(&in_history), "{names:?} {in_history:?}");
    assert!(bought[0].sentence.ends_with("of Deployment/web"), "{}", bought[0].sentence);
    let pods: usize = bought.iter().flat_map(|decision| &decision.actions).map(|action| action.pods.len()).sum();
    assert_eq!(pods, 10);
    for action in bought.iter().flat_map(|decision| &decision.actions) {
        let life = &action.outcome;
        let times = [life.created, life.launched, life.registered, life.ready];
        assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{action:?}");
        assert!(action.price_nanos.is_some_and(|price| price > 0) && action.node.is_some(), "{action:?}");
    }

    basin.delete("apps/v1", "Deployment", "web").await;
    basin.until("all nodes are gone", |cluster| cluster.claims.is_empty()).await;
    // Another process, later.
    let history = History::open(folder.path()).expect("the same folder");
    for name in names {
        let life = about(&history, &name);
        assert_eq!(life[0].kind, DecisionKind::Provision, "{life:?}");
        let last = life.last().expect("it was decided that it goes");
        assert_eq!(last.kind, DecisionKind::Consolidate, "{life:?}");
        let end: &Action = last.actions.iter().find(|action| action.object.name == name).expect("its own");
        assert_eq!((end.verb.as_str(), end.reason.as_str()), ("delete", "Empty"));
        assert!(end.outcome.leaving.is_some() && end.outcome.gone >= end.outcome.leaving, "{end:?}");
        assert!(last.cost_after_nanos < last.cost_before_nanos, "{last:?}");
    }
    assert_eq!(history::read(folder.path()).expect("readable").len(), history.len());
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_of_a_decision_gives_its_plan_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let basin = basin(folder.path()).await;
    basin.deployment("web", 7, "900m", json!({})).await;
    basin.deployment("big", 2, "5", json!({})).await;
    basin.until_running("web", 7).await;
    basin.until_running("big", 2).await;
    let bought = of_kind(&basin.history, DecisionKind::Provision);
    assert!(!bought.is_empty());
    for decision in bought {
        let text = basin.history.snapshot(decision.number).expect("it is one of the last 64");
        let (snapshot, settings) = saved::load(&text).expect("it was not changed");
        let outcome = millpond_plan::plan(&snapshot, &settings);
        assert_eq!(outcome.plan.revision, decision.revision);
        let new = |action: &Action| {
            let mut pods = action.pods.clone();
            pods.sort();
            (action.instance_type.clone(), action.zone.clone(), action.price_nanos, pods)
        };
        let planned = (0..outcome.plan.new_nodes.len()).map(|index| {
            let node = &outcome.plan.new_nodes[index];
            let of = &snapshot.types[node.instance_type.index()];
            let zone = of.offerings[node.offering as usize].zone;
            let of_node = |(_, target): &&(_, Target)| *target == Target::New(index as u32);
            let mut pods: Vec<String> =
                outcome.plan.placements.iter().filter(of_node).map(|(pod, _)| snapshot.pod_name(*pod)).collect();
            pods.sort();
            let text = |symbol| Some(snapshot.text(symbol).to_owned());
            (text(of.name), text(zone), i64::try_from(node.price).ok(), pods)
        });
        assert_eq!(decision.actions.iter().map(new).collect::<Vec<_>>(), planned.collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn what_fits_nowhere_is_refused_in_the_words_of_the_event() {
    let folder = tempfile::tempdir().expect("a folder");
    let basin = basin(folder.path()).await;
    basin.deployment("huge", 3, "5000", json!({})).await;
    basin.until("it was refused", |_| !of_kind(&basin.history, DecisionKind::Refuse).is_empty()).await;
    basin.pass(Duration::from_mins(1)).await;
    let refused = of_kind(&basin.history, DecisionKind::Refuse);
    assert_eq!(refused.iter().map(|decision| decision.pods.len()).sum::<usize>(), 3, "each pod once: {refused:?}");
    let notes = basin.events("FailedScheduling").await;
    let why = &refused[0].unplaced[0].sentence;
    assert!(notes.iter().any(|note| note == why), "{why}: {notes:?}");
    let name = &refused[0].pods[0];
    assert!(refused[0].refused && refused[0].concerns(&Subject::Pod(name.clone())));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_user_deletes_is_no_decision_of_a_controller() {
    let folder = tempfile::tempdir().expect("a folder");
    let basin = basin(folder.path()).await;
    basin.deployment("web", 1, "1", json!({})).await;
    basin.until_running("web", 1).await;
    let name = basin.claims()[0].name().to_owned();
    basin.delete("karpenter.sh/v1", "NodeClaim", &name).await;
    let is_gone = |cluster: &millpond_controllers::cluster::Cluster| {
        cluster.claims.list().iter().all(|claim| claim.name() != name)
    };
    basin.until("it is gone", is_gone).await;
    let life = about(&basin.history, &name);
    let kinds: Vec<DecisionKind> = life.iter().map(|decision| decision.kind).collect();
    assert_eq!(kinds, [DecisionKind::Provision, DecisionKind::Human], "{life:?}");
    assert_eq!(life[1].actions[0].reason, "a user, or another controller, deleted it");
    assert!(life[1].actions[0].outcome.gone.is_some());
}
