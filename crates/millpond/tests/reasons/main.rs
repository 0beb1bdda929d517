//! One reason, everywhere: on a running `millpond up`, what `plan`, `explain`, `node list`, `pool list` and `pool get`
//! say is compared with each other, with conditions and events, and with what then happens.
//!
//! The situations are in `situations.yaml`; all of them live in one cluster at the same time, so that every headline
//! has some eighty wrong pools to choose from. `table` reads them, `world` watches the cluster, `say` asks the binary.

mod say;
mod table;
mod world;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use millpond_testkit::EmbeddedServer;
use serde_json::{Value, json};

use say::Commands;
use table::{Fate, Situation, situations};
use world::World;

/// What is gathered before the test fails, so that one run shows all that is wrong.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn check(&mut self, situation: &str, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(format!("{situation}: {}", what()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_reason_everywhere() -> Result<()> {
    let server = EmbeddedServer::start(Path::new(env!("CARGO_BIN_EXE_millpond")), &["--memory"])?;
    let mut world = World::watch(server.client().await?);
    let commands = Commands::new(server.kubeconfig());
    let mut findings = Findings::default();
    let all = situations();
    assert!(all.len() >= 80, "{} situations", all.len());

    without_pools(&mut world, &commands, &mut findings).await?;
    first_pods(&mut world, &all).await?;
    nodes(&mut world, &commands, &all, &mut findings).await?;
    second_pods(&mut world, &all).await?;
    pods(&mut world, &commands, &all, &mut findings).await?;
    pools(&mut world, &commands, &all, &mut findings).await?;
    starting_nodes(&mut world, &commands, &all, &mut findings).await?;
    what_happened(&world, &all, &mut findings);
    cluster_limit(&mut world, &commands, &mut findings).await?;
    ensure!(findings.0.is_empty(), "{} disagreements:\n{}", findings.0.len(), findings.0.join("\n"));
    Ok(())
}

/// Without any pool there is none to buy from: nothing is planned with a pool that is made up.
async fn without_pools(world: &mut World, commands: &Commands, findings: &mut Findings) -> Result<()> {
    world.create(&table::pod("no-pool", "no-pool", &json!({}), &json!({}))).await?;
    let expected = "there is no pool to buy nodes from";
    world.until("the pod without a pool is told", |world| told(world, "Pod", "no-pool", "FailedScheduling")).await?;
    let plan = commands.json(&["plan"])?;
    compare_pod(world, commands, findings, "no-pool", &unplaced(&plan), expected)?;
    world.delete("Pod", "no-pool").await
}

/// Classes, pools, everything that stands there first, and the workloads whose nodes are looked at.
async fn first_pods(world: &mut World, all: &[Situation]) -> Result<()> {
    world.create(&table::catalog()).await?;
    world.create(&table::class("plain", &json!({}))).await?;
    for situation in all {
        for object in situation.first_objects() {
            world.create(&object).await?;
        }
    }
    world
        .until("first pods run", |world| {
            for situation in all.iter().filter(|situation| !situation.pods_wait) {
                for name in situation.first_pods() {
                    world.pod_runs(&name)?;
                }
                if situation.workload.is_some() {
                    world.workload_runs(&situation.name)?;
                }
            }
            Ok(())
        })
        .await?;
    for situation in all {
        situation.change_later(world).await?;
    }
    Ok(())
}

/// What comes second: pods that wait, and workloads whose nodes never start.
async fn second_pods(world: &mut World, all: &[Situation]) -> Result<()> {
    let is_settled = |world: &World| {
        for situation in all.iter().filter(|situation| situation.pool_says.is_some()) {
            if let Some(reason) = situation.reason.as_deref().filter(|reason| reason.starts_with("Node")) {
                world.condition_with(&situation.name, reason)?;
            }
        }
        Ok(())
    };
    world.until("pools say what is wrong with their classes", is_settled).await?;
    for situation in all {
        for object in situation.second_objects() {
            world.create(&object).await?;
        }
    }
    Ok(())
}

/// Nodes that stay: `node list`, `explain node` and the events.
async fn nodes(world: &mut World, commands: &Commands, all: &[Situation], findings: &mut Findings) -> Result<()> {
    let looked_at = || all.iter().filter(|situation| situation.is_about_node() && !situation.pods_wait);
    let listed = |commands: &Commands| -> Result<BTreeMap<String, Value>> {
        let list = commands.json(&["node", "list"])?;
        Ok(list["items"].as_array().into_iter().flatten().map(|row| (text(&row["pool"]), row.clone())).collect())
    };
    // Claims say first that they have drifted or expired; then the rest of time is the ten seconds of grace.
    world.until("claims are what they should be", |world| looked_at().try_for_each(|it| world.claim_is(it))).await?;
    let mut rows = BTreeMap::new();
    world
        .until_asked("nodes have their reason", || {
            rows = listed(commands)?;
            let late = looked_at().find(|it| rows.get(&it.name).is_none_or(|row| !it.is_said(&text(&row["why"]))));
            Ok(late.map(|late| format!("{}: {:?}", late.name, rows.get(&late.name).map(|row| &row["why"]))))
        })
        .await
        .unwrap_or_else(|late| findings.0.push(late.to_string()));
    for situation in looked_at() {
        let Some(row) = rows.get(&situation.name) else {
            findings.0.push(format!("{}: it has no node", situation.name));
            continue;
        };
        let (name, why) = (text(&row["name"]), text(&row["why"]));
        findings.check(&situation.name, situation.is_said(&why), || format!("node list says `{why}`"));
        if let Some(reason) = &situation.reason {
            findings
                .check(&situation.name, text(&row["blocker"]) == *reason, || format!("node list: {}", row["blocker"]));
        }
        let explained = commands.json(&["explain", &format!("node/{name}")])?;
        findings.check(&situation.name, text(&explained["why"]) == why, || {
            format!("node list says `{why}`, explain `{}`", explained["why"])
        });
        let claimed = commands.json(&["explain", &format!("nodeclaim/{name}")])?;
        findings.check(&situation.name, text(&claimed["why"]) == why, || {
            format!("node list says `{why}`, explain nodeclaim `{}`", claimed["why"])
        });
        if let Some(event) = situation.node_event() {
            let found = world.until("the node's event", |world| noted(world, "Node", &name, event, &why)).await;
            findings.check(&situation.name, found.is_ok(), || {
                format!("node list says `{why}`, events {:?}", world.notes("Node", &name, event))
            });
        }
    }
    Ok(())
}

/// Nodes that never start: their pods and they say what they wait for.
async fn starting_nodes(
    world: &mut World,
    commands: &Commands,
    all: &[Situation],
    findings: &mut Findings,
) -> Result<()> {
    for situation in all.iter().filter(|situation| situation.pods_wait) {
        let mut row = Value::Null;
        let asked = world
            .until_asked("the node that starts has its reason", || {
                let list = commands.json(&["node", "list", "--pool", &situation.name])?;
                row = list["items"][0].clone();
                let why = text(&row["why"]);
                Ok((!situation.is_said(&why)).then(|| format!("{}: node list says `{why}`", situation.name)))
            })
            .await;
        findings.check(&situation.name, asked.is_ok(), || format!("{asked:?}"));
        findings.check(&situation.name, situation.reason.as_deref() == row["blocker"].as_str(), || row.to_string());
        let explained = commands.json(&["explain", &format!("node/{}", text(&row["name"]))])?;
        findings.check(&situation.name, explained["why"] == row["why"], || explained.to_string());
        let pod = world.pod_of_workload(&situation.name)?;
        let explained = commands.json(&["explain", &format!("pod/{pod}")])?;
        let told = text(&explained["message"]);
        findings.check(&situation.name, told.contains("which is still starting"), || told.clone());
    }
    Ok(())
}

/// Pods: `plan`, `explain` and the events of those that wait; `explain` of the others.
async fn pods(world: &mut World, commands: &Commands, all: &[Situation], findings: &mut Findings) -> Result<()> {
    let waiting = || all.iter().filter(|situation| situation.has_pod() && situation.fate == Fate::Waits);
    let running = || all.iter().filter(|situation| situation.fate == Fate::Runs);
    world.until("pods run that can", |world| running().try_for_each(|it| world.pod_runs(&it.name))).await?;
    let told_all = |world: &World| waiting().try_for_each(|it| told(world, "Pod", &it.name, "FailedScheduling"));
    world.until("pods that wait are told why", told_all).await?;
    let mut plan = Value::Null;
    world
        .until_asked("pods have their reason", || {
            plan = commands.json(&["plan"])?;
            let said = unplaced(&plan);
            let late = waiting().find(|it| said.get(&it.name).is_none_or(|said| !it.is_said(said)));
            Ok(late.map(|late| format!("{}: plan says {:?}", late.name, said.get(&late.name))))
        })
        .await
        .unwrap_or_else(|late| findings.0.push(late.to_string()));
    let said = unplaced(&plan);
    for situation in waiting() {
        compare_pod(world, commands, findings, &situation.name, &said, &situation.says)?;
    }
    for situation in all.iter().filter(|situation| situation.fate != Fate::Waits && situation.has_pod()) {
        let explained = commands.json(&["explain", &format!("pod/{}", situation.name)])?;
        let told = text(&explained["message"]);
        findings.check(&situation.name, situation.is_said(&told), || format!("explain says `{told}`"));
        let is_unplaced = said.contains_key(&situation.name);
        findings.check(&situation.name, !is_unplaced, || "plan finds no place for it".to_owned());
    }
    Ok(())
}

/// What plan, explain and the events say of a pod that waits.
fn compare_pod(
    world: &World,
    commands: &Commands,
    findings: &mut Findings,
    name: &str,
    plan: &BTreeMap<String, String>,
    expected: &str,
) -> Result<()> {
    let Some(said) = plan.get(name) else {
        findings.0.push(format!("{name}: plan has a place for it"));
        return Ok(());
    };
    findings.check(name, said.contains(expected), || format!("plan says `{said}`"));
    let explained = commands.json(&["explain", &format!("pod/{name}")])?;
    let told = text(&explained["message"]);
    findings.check(name, told == *said, || format!("plan says `{said}`, explain `{told}`"));
    let notes = world.notes("Pod", name, "FailedScheduling");
    findings.check(name, notes.iter().any(|note| note == said), || format!("plan says `{said}`, events {notes:?}"));
    Ok(())
}

/// Pools: `pool list`, `pool get`, `explain pool`, the condition and the event.
async fn pools(world: &mut World, commands: &Commands, all: &[Situation], findings: &mut Findings) -> Result<()> {
    let told = || all.iter().filter_map(|situation| Some((situation, situation.pool_says.as_deref()?)));
    let conditions = |world: &World| {
        told()
            .try_for_each(|(it, _)| world.condition_with(&it.name, it.reason.as_deref().unwrap_or_default()).map(drop))
    };
    if let Err(late) = world.until("pools have their conditions", conditions).await {
        findings.0.push(late.to_string());
    }
    let list = commands.json(&["pool", "list"])?;
    let rows: BTreeMap<String, &Value> =
        list["items"].as_array().into_iter().flatten().map(|row| (text(&row["name"]), row)).collect();
    for (situation, says) in told() {
        let name = &situation.name;
        let Some(row) = rows.get(name) else {
            findings.0.push(format!("{name}: pool list does not have it"));
            continue;
        };
        let why = text(&row["whyNoNode"]);
        findings.check(name, why.contains(says), || format!("pool list says `{why}`"));
        let got = commands.json(&["pool", "get", name])?;
        findings.check(name, text(&got["whyNoNode"]) == why, || format!("pool get says {}", got["whyNoNode"]));
        let explained = commands.json(&["explain", &format!("pool/{name}")])?;
        findings.check(name, text(&explained["why"]) == why, || format!("pool list says `{why}`, explain {explained}"));
        let is_ready = row["ready"] == true;
        let ready = situation.ready.as_deref().unwrap_or("True");
        findings.check(name, is_ready == (ready == "True"), || format!("pool list: ready is {}", row["ready"]));
        let condition = world.condition(name, "Ready").map(|condition| text(&condition["status"])).unwrap_or_default();
        findings.check(name, condition == ready, || format!("its condition Ready is `{condition}`"));
        let Ok(condition) = world.condition_with(name, situation.reason.as_deref().unwrap_or_default()) else {
            continue;
        };
        let message = text(&condition["message"]);
        findings.check(name, why.contains(&message), || format!("pool list says `{why}`, the condition `{message}`"));
        if ["Launchable", "NodeClassReady"].contains(&condition["type"].as_str().unwrap_or_default())
            && situation.has_pool_event()
        {
            let reason = situation.reason.as_deref().unwrap_or_default();
            let notes = world.notes("NodePool", name, reason);
            findings
                .check(name, notes.contains(&message), || format!("the condition says `{message}`, events {notes:?}"));
        }
    }
    Ok(())
}

/// What was said is what happened: pods that wait have no node, nodes that stay are there, pools without a way to make
/// nodes made none.
fn what_happened(world: &World, all: &[Situation], findings: &mut Findings) {
    for situation in all {
        let name = &situation.name;
        if situation.has_pod() {
            let runs = world.pod_runs(name).is_ok();
            findings.check(name, runs == (situation.fate == Fate::Runs), || format!("pod runs: {runs}"));
        }
        if situation.is_about_node() {
            // Pods of a node that is drained get a second one.
            let most = if situation.claim_is_deleted() { 2 } else { 1 };
            let claims = world.claims_of(name);
            findings.check(name, (1..=most).contains(&claims), || format!("{claims} claims"));
        }
        if situation.pool_says.is_some() && situation.ready.is_some() && situation.name != "fixed-beyond-limit" {
            findings.check(name, world.claims_of(name) == 0, || format!("{} claims", world.claims_of(name)));
        }
    }
    findings
        .check("fixed-beyond-limit", world.claims_of("fixed-beyond-limit") == 1, || "as many as allowed".to_owned());
}

/// ClusterLimits hold for all of them, so they come last.
async fn cluster_limit(world: &mut World, commands: &Commands, findings: &mut Findings) -> Result<()> {
    let limits = json!({
        "apiVersion": "millpond.dev/v1alpha1", "kind": "ClusterLimits", "metadata": {"name": "all"},
        "spec": {"limits": {"nodes": "1"}},
    });
    world.create(&limits).await?;
    world.create(&table::pool("cluster-limit", &json!({}))).await?;
    world
        .until("the pool says so", |world| world.condition_with("cluster-limit", "ClusterLimitReached").map(drop))
        .await?;
    world.create(&table::pod("cluster-limit", "cluster-limit", &json!({}), &json!({}))).await?;
    world.until("the pod is told", |world| told(world, "Pod", "cluster-limit", "FailedScheduling")).await?;
    let plan = commands.json(&["plan"])?;
    let expected = "the cluster's limit of 1 node is reached";
    compare_pod(world, commands, findings, "cluster-limit", &unplaced(&plan), expected)?;
    let got = commands.json(&["pool", "get", "cluster-limit"])?;
    findings.check("cluster-limit", text(&got["whyNoNode"]).contains(expected), || got.to_string());
    Ok(())
}

/// Messages of a plan for pods without a place, by name.
fn unplaced(plan: &Value) -> BTreeMap<String, String> {
    let pods = plan["unplaced"].as_array().into_iter().flatten();
    pods.map(|pod| (text(&pod["pod"]).replace("default/", ""), text(&pod["message"]))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether an event of that reason was written.
fn told(world: &World, kind: &str, name: &str, reason: &str) -> Result<()> {
    ensure!(!world.notes(kind, name, reason).is_empty(), "{kind} {name} has no event {reason}");
    Ok(())
}

/// Whether the event says a sentence, whose first letter is large there.
fn noted(world: &World, kind: &str, name: &str, reason: &str, sentence: &str) -> Result<()> {
    let notes = world.notes(kind, name, reason);
    let same = |note: &String| note.chars().skip(1).eq(sentence.chars().skip(1));
    if notes.iter().any(same) { Ok(()) } else { bail!("{kind} {name}: {notes:?}") }
}
