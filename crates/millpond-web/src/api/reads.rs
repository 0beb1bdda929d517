//! What pages read.

use std::collections::BTreeMap;

use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use millpond_plan::disruption::{DisruptionBlocker, Residents, node_verdict};
use millpond_plan::explain::{explain_in, explain_pool};
use millpond_plan::model::{NodeId, PodId, PodKind, PodState, PoolId, Snapshot};
use millpond_plan::plan::Settings;
use millpond_runtime::history::Subject;
use millpond_view::explain as explanation;
use millpond_view::format::amount;
use millpond_view::units::{Money, permille};
use millpond_view::{pending, pools, totals};
use serde_json::{Value, json};

use super::{Call, lists};
use crate::hub::Frame;
use crate::respond::Problem;
use crate::{Mode, decisions, rights};

/// Points of a cost graph where nothing else is asked for.
const POINTS: i64 = 600;
/// And at most.
const MAX_POINTS: i64 = 4_000;
/// Types of a catalogue page.
const MAX_TYPES: usize = 500;

/// The user, and what they may do.
pub(super) async fn me(call: &Call) -> Result<Value, Problem> {
    let (options, user) = (&call.dashboard.0.options, &call.session.user);
    let rights = rights::of(&call.session).await?;
    let mut can = rights.can.clone();
    let mut why_not = rights.why_not.clone();
    if options.read_only {
        for name in ["cordon", "drain", "hold", "deleteNode", "editPools"] {
            can.insert(name, false);
            why_not.insert(name, "this dashboard is read-only".to_owned());
        }
    }
    let mode = match options.mode {
        _ if options.read_only => "read-only",
        Mode::Acting => "acting",
        Mode::Advice => "advice",
    };
    let left = crate::session::SESSION_LIVES.saturating_sub(call.session.begun.elapsed()).as_secs() as i64;
    Ok(json!({
        "user": { "name": user.name, "groups": user.groups },
        "mode": mode,
        "cluster": options.cluster,
        "version": env!("CARGO_PKG_VERSION"),
        "kubernetes": options.kubernetes,
        "expiresAt": call.dashboard.now() + left,
        "can": can,
        "whyNot": why_not,
    }))
}

/// Everything that is read from the state.
pub(super) async fn read(call: &Call, path: &[&str]) -> Result<Value, Problem> {
    let hub = &call.dashboard.0.hub;
    match *path {
        ["overview"] => overview(call).await,
        ["pools"] => {
            let frame = hub.frame().await?;
            Ok(with_revision(call, &frame, frame.pools_json()))
        }
        ["pools", dialect, namespace, name] => pool(call, dialect, namespace, name).await,
        ["nodes"] => nodes(call).await,
        ["nodes", name] => node(call, name).await,
        ["pending"] => {
            let frame = hub.frame().await?;
            let groups: Vec<&pending::GroupRow> = frame.groups.iter().map(|(row, _)| row).collect();
            let body = json!({ "now": frame.snapshot.now, "pods": frame.overview.pods.waiting, "groups": groups });
            Ok(with_revision(call, &frame, body))
        }
        ["pending", group] => group_detail(call, group).await,
        ["decisions"] => decisions::list(call),
        ["decisions", id] => decisions::one(call, id),
        ["cost"] => cost(call).await,
        ["health"] => health(call).await,
        ["catalog"] => catalog(call).await,
        _ => match lists::list(&call.session.user.client, path).await {
            Some(list) => list,
            None => Err(Problem::not_found("there is nothing at this path")),
        },
    }
}

fn with_revision(call: &Call, frame: &Frame, mut body: Value) -> Value {
    body["revision"] = json!(call.dashboard.0.hub.revision(frame.number));
    body
}

async fn overview(call: &Call) -> Result<Value, Problem> {
    let frame = call.dashboard.0.hub.frame().await?;
    let mut body = json!(frame.overview);
    let latest = call.dashboard.0.watched.history().latest(10);
    body["decisions"] = latest.iter().map(|decision| decision.summary()).collect();
    Ok(with_revision(call, &frame, body))
}

async fn nodes(call: &Call) -> Result<Value, Problem> {
    let hub = &call.dashboard.0.hub;
    let frame = hub.frame().await?;
    let sum = frame.totals();
    let body = json!({
        "now": frame.snapshot.now,
        // Taken after the frame: it has at least the texts that the frame uses.
        "strings": hub.strings(),
        "columns": frame.columns(),
        "total": {
            "nodes": sum.nodes,
            "pods": sum.pods,
            "cost": Money::new(sum.price, sum.nodes, sum.unpriced),
            "sentence": sum.line(),
        },
        "planned": frame.planned(),
    });
    Ok(with_revision(call, &frame, body))
}

async fn node(call: &Call, name: &str) -> Result<Value, Problem> {
    let frame = call.dashboard.0.hub.frame().await?;
    let about: Vec<Value> = decisions::about(call, &Subject::Node(name.to_owned()));
    let Some(id) = frame.snapshot.find_node(name) else {
        if about.is_empty() {
            return Err(Problem::not_found(format!("there is no node `{name}`")));
        }
        let body = json!({ "name": name, "gone": true, "decisions": about });
        return Ok(with_revision(call, &frame, body));
    };
    let mut body = node_body(&frame, id);
    body["decisions"] = about.into();
    Ok(with_revision(call, &frame, body))
}

fn node_body(frame: &Frame, id: NodeId) -> Value {
    let snapshot = &frame.snapshot;
    let node = &snapshot.nodes[id.index()];
    let verdict = node_verdict(snapshot, id, &Settings { consolidate: true, ..Settings::default() });
    let text = |symbol: Option<_>| symbol.map(|symbol| snapshot.text(symbol).to_owned());
    let pool = node.pool.map(|pool| &snapshot.pools[pool.index()]);
    let labels: BTreeMap<&str, &str> =
        node.labels.iter().map(|(key, value)| (snapshot.text(key), snapshot.text(value))).collect();
    let taints: Vec<String> = node
        .taints
        .iter()
        .map(|taint| {
            let value = snapshot.text(taint.value);
            let equals = if value.is_empty() { "" } else { "=" };
            format!("{}{equals}{value}:{:?}", snapshot.text(taint.key), taint.effect)
        })
        .collect();
    let expires = node.expires(pool.and_then(|pool| pool.disruption.expire_after));
    json!({
        "name": node.name,
        "pool": pool.map(|pool| json!({ "id": pools::id(&pool.name), "name": pool.name })),
        "instanceType": text(node.instance_type),
        "zone": text(node.zone),
        "capacityType": node.capacity_type.map(millpond_plan::model::CapacityType::name),
        "state": totals::state(node),
        "stateLetter": frame.nodes.get(&node.name).map(|row| row[4].clone()),
        "cost": Money::of_node(node.price),
        "createdAt": Some(node.created).filter(|created| *created != 0),
        "expiresAt": expires,
        "why": verdict.why(snapshot),
        "disruptable": verdict.is_disruptable(),
        "blocker": verdict.verdict().blocker.map(DisruptionBlocker::name),
        "drifted": node.drifted.as_ref().map(|drift| &drift.why),
        "resources": resources(frame, id),
        "labels": labels,
        "taints": taints,
        "pods": pods_of(snapshot, id),
        "claim": pool.map(|_| &node.name),
    })
}

fn resources(frame: &Frame, id: NodeId) -> Vec<Value> {
    let snapshot = &frame.snapshot;
    let (node, load) = (&snapshot.nodes[id.index()], &frame.loads[id.index()]);
    let mut daemons = millpond_plan::model::Resources::new();
    for pod in snapshot.pods.iter().filter(|pod| pod.node == Some(id) && pod.state == PodState::Bound) {
        let class = &snapshot.classes[pod.class.index()];
        if matches!(class.kind, PodKind::Daemon | PodKind::Mirror) {
            daemons.add(&class.requests);
        }
    }
    let all = snapshot.resources.iter().filter(|(resource, _)| node.capacity.get(*resource) > 0);
    all.map(|(resource, name)| {
        let (requested, allocatable) = (load.requests.get(resource), node.allocatable.get(resource));
        json!({
            "name": name,
            "requested": amount(name, requested),
            "daemons": amount(name, daemons.get(resource)),
            "allocatable": amount(name, allocatable),
            "capacity": amount(name, node.capacity.get(resource)),
            "permille": permille(requested, allocatable),
        })
    })
    .collect()
}

fn pods_of(snapshot: &Snapshot, id: NodeId) -> Vec<Value> {
    let residents = Residents::new(snapshot);
    let row = |pod: &PodId| {
        let (class, of) = (snapshot.class_of(*pod), &snapshot.pods[pod.index()]);
        json!({
            "namespace": snapshot.text(class.namespace),
            "name": of.name,
            "state": if of.state == PodState::Terminating { "leaving" } else { "bound" },
            "requests": pending::requests(snapshot, &class.requests),
            "priority": class.priority,
            "daemon": matches!(class.kind, PodKind::Daemon | PodKind::Mirror),
            "blocks": blocks(snapshot, *pod),
        })
    };
    residents.of(id).iter().map(row).collect()
}

/// Why a pod keeps its node, where it alone does.
fn blocks(snapshot: &Snapshot, pod: PodId) -> Option<&'static str> {
    let class = snapshot.class_of(pod);
    match (class.kind, class.do_not_disrupt) {
        (PodKind::Bare, _) => Some("no controller would make it anew"),
        (_, millpond_plan::model::DoNotDisrupt::No) => None,
        (_, _) => Some("it asks not to be disrupted (karpenter.sh/do-not-disrupt)"),
    }
}

async fn pool(call: &Call, dialect: &str, namespace: &str, name: &str) -> Result<Value, Problem> {
    let frame = call.dashboard.0.hub.frame().await?;
    let wanted = format!("{dialect}/{namespace}/{name}");
    let found = frame.pools.iter().position(|pool| pool.id == wanted);
    let at = found.ok_or_else(|| Problem::not_found(format!("there is no pool `{wanted}`")))?;
    let (snapshot, id) = (&frame.snapshot, PoolId::from(at));
    let of = &snapshot.pools[at];
    let standing = explain_pool(snapshot, id);
    let mut body = json!(frame.pools[at]);
    let requirements: Vec<String> = of
        .requirements
        .iter()
        .map(|(key, requirement)| format!("{} {}", snapshot.text(key), requirement.describe(&snapshot.symbols, 10)))
        .collect();
    let mut left = standing.types;
    let steps: Vec<Value> = standing
        .steps
        .iter()
        .map(|(key, types)| {
            let removed = left.saturating_sub(*types);
            left = *types;
            json!({
                "rule": "requirements", "about": snapshot.text(*key), "typesRemoved": removed, "typesLeft": types,
                "offersLeft": null,
            })
        })
        .collect();
    body["requirements"] = json!(requirements);
    body["types"] = json!({ "all": standing.types, "left": standing.left, "steps": steps });
    body["cheapest"] = json!(standing.cheapest);
    let nodes = snapshot.nodes.iter().filter(|node| node.pool == Some(id)).map(|node| &node.name);
    body["nodesOf"] = json!(nodes.collect::<Vec<_>>());
    body["disruption"] = disruption(of);
    if let Some(object) = object(call, dialect, name).await? {
        body["conditions"] =
            object["status"]["conditions"].as_array().cloned().unwrap_or_default().into_iter().map(condition).collect();
        body["class"] = object["spec"]["template"]["spec"]["nodeClassRef"]["name"].clone();
        body["createdAt"] = json!(seconds(&object["metadata"]["creationTimestamp"]));
        body["yaml"] = json!(serde_saphyr::to_string(&object).unwrap_or_default());
        body["object"] = object;
    }
    Ok(with_revision(call, &frame, body))
}

fn disruption(pool: &millpond_plan::model::Pool) -> Value {
    use millpond_plan::model::{Consolidation, Nodes};
    let policy = match pool.disruption.policy {
        Consolidation::WhenEmpty => "WhenEmpty",
        Consolidation::WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
        Consolidation::Balanced => "Balanced",
    };
    let budgets = pool.disruption.budgets.iter().map(|budget| {
        let nodes = match budget.nodes {
            Nodes::Count(count) => format!("{count} nodes"),
            Nodes::Percent(percent) => format!("{percent}% of nodes"),
        };
        let when = budget
            .schedule
            .as_ref()
            .map_or_else(String::new, |schedule| format!(", from {} for {} s", schedule.cron, schedule.duration));
        let reasons: Vec<&str> = budget.reasons.iter().map(|reason| reason.name()).collect();
        let why = if reasons.is_empty() { String::new() } else { format!(", for {}", reasons.join(", ")) };
        format!("{nodes} at a time{when}{why}")
    });
    json!({ "policy": policy, "budgets": budgets.collect::<Vec<_>>() })
}

fn condition(condition: Value) -> Value {
    json!({
        "type": condition["type"], "status": condition["status"], "reason": condition["reason"],
        "message": condition["message"], "since": seconds(&condition["lastTransitionTime"]),
    })
}

fn seconds(time: &Value) -> Option<i64> {
    time.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// The object of a pool, read as the user; none for pools that are not one object.
async fn object(call: &Call, dialect: &str, name: &str) -> Result<Option<Value>, Problem> {
    if dialect != "karpenter" {
        return Ok(None);
    }
    let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool");
    let api: Api<DynamicObject> = Api::all_with(call.session.user.client.clone(), &ApiResource::from_gvk(&kind));
    let mut object = match api.get_opt(name).await? {
        Some(object) => json!(object),
        None => return Ok(None),
    };
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(Some(object))
}

async fn group_detail(call: &Call, group: &str) -> Result<Value, Problem> {
    let frame = call.dashboard.0.hub.frame().await?;
    let found = frame.groups.iter().position(|(row, _)| row.id == group);
    let at = found.ok_or_else(|| Problem::not_found(format!("no pods wait in a group `{group}` any more")))?;
    let of = std::sync::Arc::clone(&frame);
    // Fixes are tried by planning again.
    let explained = tokio::task::spawn_blocking(move || {
        let (row, pod) = &of.groups[at];
        let explained = explain_in(&of.snapshot, &of.outcome, *pod);
        let mut body = explanation::view(&of.snapshot, &explained);
        for pool in body["pools"].as_array_mut().into_iter().flatten() {
            pool["id"] = json!(pools::id(pool["pool"].as_str().unwrap_or_default()));
            pool["verdict"] = pool["message"].take();
        }
        let fixes: Vec<Value> = explained.suggestion.iter().map(|fix| pending::fix(&of.snapshot, fix)).collect();
        let mut answer = json!(row);
        answer["explanation"] = json!(explained.message);
        answer["pools"] = body["pools"].take();
        answer["nodes"] = body["nodes"].take();
        answer["nearestMiss"] = body["nearestMiss"].take();
        answer["hasFix"] = json!(!fixes.is_empty());
        answer["fixes"] = json!(fixes);
        answer["command"] = json!(format!("millpond explain pod/{}", of.snapshot.pod_name(*pod)));
        answer
    });
    let mut body = explained.await.map_err(|_| Problem::unavailable("the reason could not be found out"))?;
    for fix in body["fixes"].as_array_mut().into_iter().flatten() {
        let yaml = fix["patch"].get("patch").and_then(|patch| serde_saphyr::to_string(patch).ok());
        fix["yaml"] = json!(yaml);
    }
    Ok(with_revision(call, &frame, body))
}

async fn cost(call: &Call) -> Result<Value, Problem> {
    let by = match call.query("by").unwrap_or("pool") {
        "pool" => 0,
        "type" => 1,
        "zone" => 2,
        other => return Err(Problem::bad_request(format!("`{other}` is not pool, type or zone"))),
    };
    let points = call.number("points")?.unwrap_or(POINTS).clamp(1, MAX_POINTS);
    let (from, to) = (call.number("from")?.unwrap_or(0), call.number("to")?.unwrap_or(i64::MAX));
    let hub = &call.dashboard.0.hub;
    // So that there is at least one point.
    hub.frame().await?;
    Ok(hub.samples(|samples| samples.between(from, to, usize::try_from(points).unwrap_or(1), by)))
}

async fn health(call: &Call) -> Result<Value, Problem> {
    let shared = &call.dashboard.0;
    let frame = shared.hub.frame().await;
    let known = match &frame {
        Ok(_) => "all kinds are listed and watched".to_owned(),
        Err(problem) => problem.message.clone(),
    };
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mode": if shared.options.mode == Mode::Acting { "acting" } else { "advice" },
        "startedAt": shared.options.started_at,
        "leads": frame.is_ok(),
        "synced": frame.is_ok(),
        "streams": shared.hub.streams(),
        "sessions": shared.sessions.len(),
        "decisions": shared.watched.history().len(),
        "checks": [{ "name": "state", "ok": frame.is_ok(), "sentence": known }],
    }))
}

async fn catalog(call: &Call) -> Result<Value, Problem> {
    let frame = call.dashboard.0.hub.frame().await?;
    let snapshot = &frame.snapshot;
    let pool = match call.query("pool") {
        None => None,
        Some(name) => {
            let found = snapshot.find_pool(name);
            Some(found.ok_or_else(|| Problem::not_found(format!("there is no pool `{name}`")))?)
        }
    };
    let chosen: Vec<usize> = match pool {
        Some(pool) => snapshot.pools[pool.index()].types.iter().map(|of| of.index()).collect(),
        None => (0..snapshot.types.len()).collect(),
    };
    let types: Vec<Value> = chosen
        .iter()
        .take(MAX_TYPES)
        .map(|&of| {
            let of = &snapshot.types[of];
            let offerings: Vec<Value> = of
                .offerings
                .iter()
                .map(|offering| {
                    json!({
                        "zone": snapshot.text(offering.zone),
                        "capacityType": offering.capacity_type.name(),
                        "priceNanos": offering.price,
                        "available": offering.available,
                        "left": offering.left,
                    })
                })
                .collect();
            json!({
                "name": snapshot.text(of.name),
                "cpu": amount("cpu", of.capacity.get(millpond_plan::model::CPU)),
                "memory": amount("memory", of.capacity.get(millpond_plan::model::MEMORY)),
                "offerings": offerings,
            })
        })
        .collect();
    Ok(json!({ "types": types, "more": chosen.len().saturating_sub(MAX_TYPES) }))
}
