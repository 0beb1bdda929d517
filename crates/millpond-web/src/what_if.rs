//! What would happen if: a change is tried on a copy of the cluster, read as the user, and applied only if the same would
//! still happen.

mod diff;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use millpond_plan::model::{PodState, Snapshot};
use millpond_plan::plan::{Outcome, Policy, Settings, Target};
use millpond_state::{Reader, Severity};
use millpond_view::format::{grouped, plural};
use millpond_view::plan as plan_view;
use millpond_view::units::HOURS_PER_MONTH;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::actions::{claim_of, claims};
use crate::api::Call;
use crate::respond::Problem;
use diff::{fields, merge};

/// A what-if can be applied for this long.
const LIVES: Duration = Duration::from_mins(10);
/// What-ifs that are remembered, of all sessions.
const MOST: usize = 64;
/// Pods that a what-if adds.
const MAX_ADDED: usize = 10_000;
/// Objects and patches of a what-if.
const MAX_CHANGES: usize = 100;

/// A change that is asked about.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Change {
    objects: Vec<Value>,
    patches: Vec<ObjectPatch>,
    remove: Vec<String>,
    add: Vec<Addition>,
    now: Option<i64>,
    policy: Option<String>,
    consolidate: bool,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectPatch {
    api_version: String,
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    patch: Value,
}

#[derive(Debug, Clone, Deserialize)]
struct Addition {
    like: String,
    count: usize,
}

/// Answers that can be applied.
#[derive(Default)]
pub(crate) struct WhatIfs {
    kept: Mutex<VecDeque<Kept>>,
    next: std::sync::atomic::AtomicU64,
}

#[derive(Clone)]
struct Kept {
    id: String,
    user: String,
    made: Instant,
    change: Change,
    lines: Vec<String>,
}

/// What a change comes to.
struct Thought {
    answer: Value,
    /// What would be done, line by line: the same lines mean the same plan.
    lines: Vec<String>,
    /// Objects with their patches, as they were read.
    before: Vec<Value>,
}

/// Answers `POST /what-if`.
pub(crate) async fn ask(call: &Call) -> Result<Value, Problem> {
    let change: Change = call.read()?;
    let _one =
        call.session.thinking.try_lock().map_err(|_| Problem::busy("another what-if of this session is under way"))?;
    let thought = think(call, &change).await?;
    Ok(keep(call, change, thought))
}

fn keep(call: &Call, change: Change, thought: Thought) -> Value {
    let what_ifs = &call.dashboard.0.what_ifs;
    let number = what_ifs.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
    let id = format!("w-{number}");
    let mut answer = thought.answer;
    answer["id"] = json!(id);
    answer["expiresAt"] = json!(call.dashboard.now() + LIVES.as_secs() as i64);
    let user = call.session.user.name.clone();
    let mut kept = what_ifs.kept.lock();
    kept.push_back(Kept { id, user, made: Instant::now(), change, lines: thought.lines });
    if kept.len() > MOST {
        kept.pop_front();
    }
    answer
}

/// Answers `POST /what-if/{id}/apply`.
pub(crate) async fn apply(call: &Call, id: &str) -> Result<Value, Problem> {
    call.require_writable()?;
    let _one =
        call.session.thinking.try_lock().map_err(|_| Problem::busy("another what-if of this session is under way"))?;
    let kept = {
        let all = call.dashboard.0.what_ifs.kept.lock();
        let user = &call.session.user.name;
        let found = all.iter().find(|it| it.id == id && it.user == *user && it.made.elapsed() < LIVES).cloned();
        found.ok_or_else(|| Problem::not_found(format!("the what-if `{id}` is not kept any more: ask again")))?
    };
    if let Some(why) = not_applicable(&kept.change) {
        return Err(Problem::invalid(why));
    }
    let thought = think(call, &kept.change).await?;
    if thought.lines != kept.lines {
        let difference = difference(&kept.lines, &thought.lines);
        let again = keep(call, kept.change, thought);
        let problem = Problem::conflict("the cluster has changed: the plan would be another one by now");
        return Err(problem.with_details(json!({ "difference": difference, "whatIf": again })));
    }
    let applied = write(&call.session.user.client, &kept.change, &thought.before).await?;
    let sentence = format!("{} written", plural(applied.len(), "change"));
    Ok(json!({ "applied": applied, "sentence": sentence }))
}

/// Why a change is only to be looked at.
fn not_applicable(change: &Change) -> Option<&'static str> {
    if !change.add.is_empty() {
        Some("pods that were made up cannot be applied")
    } else if change.now.is_some() || change.policy.as_deref().is_some_and(|policy| policy != "millpond") {
        Some("another time or policy cannot be applied")
    } else if change.objects.is_empty() && change.patches.is_empty() && change.remove.is_empty() {
        Some("nothing is changed")
    } else {
        None
    }
}

/// Lines of one plan that the other one has not, counted.
fn difference(shown: &[String], now: &[String]) -> Vec<Value> {
    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
    now.iter().for_each(|line| *counts.entry(line).or_default() += 1);
    shown.iter().for_each(|line| *counts.entry(line).or_default() -= 1);
    let changed = counts.into_iter().filter(|(_, count)| *count != 0);
    changed
        .map(|(line, count)| {
            let (sign, words) = if count > 0 { ("+", "more than shown") } else { ("-", "less than shown") };
            json!({ "sign": sign, "sentence": format!("{} × {line} {words}", count.abs()) })
        })
        .collect()
}

async fn think(call: &Call, change: &Change) -> Result<Thought, Problem> {
    let added: usize = change.add.iter().map(|add| add.count).fold(0, usize::saturating_add);
    if added > MAX_ADDED {
        return Err(Problem::invalid(format!(
            "{} pods may be added at a time, not {added}",
            grouped(MAX_ADDED as f64, 0)
        )));
    }
    if change.objects.len() + change.patches.len() + change.remove.len() > MAX_CHANGES {
        return Err(Problem::invalid(format!("a what-if has at most {MAX_CHANGES} changes")));
    }
    let watched = &call.dashboard.0.watched;
    let objects = watched.read(call.session.user.client.clone()).await?;
    let (change, options, now) = (change.clone(), watched.snapshot_options(), call.dashboard.now());
    let read_only = call.dashboard.0.options.read_only;
    let thought = tokio::task::spawn_blocking(move || thought(&change, objects, &options, now, read_only));
    thought.await.map_err(|_| Problem::unavailable("the plan could not be made"))?
}

fn thought(
    change: &Change,
    mut objects: Vec<Value>,
    options: &millpond_state::Options,
    now: i64,
    read_only: bool,
) -> Result<Thought, Problem> {
    let policy = change.policy.as_deref().unwrap_or("millpond");
    let policy = Policy::from_name(policy).ok_or_else(|| Problem::invalid(format!("there is no policy `{policy}`")))?;
    let settings = Settings { policy, consolidate: change.consolidate, ..Settings::default() };
    let now = change.now.unwrap_or(now);
    let plain = snapshot(&objects, options, now)?;
    let untouched = millpond_plan::plan(&plain, &settings);
    let (before, diff) = edit(change, &mut objects)?;
    let mut changed = snapshot(&objects, options, now)?;
    let removed = remove(change, &mut changed)?;
    let outcome = millpond_plan::plan(&changed, &settings);
    let lines = lines(&changed, &outcome, change);
    let why_not = if read_only { Some("this dashboard is read-only") } else { not_applicable(change) };
    let removes: Vec<Value> = removed.iter().map(|(node, pods)| removal(&changed, &outcome, node, pods)).collect();
    let price = |outcome: &Outcome| i64::try_from(outcome.report.cost_after).unwrap_or(i64::MAX);
    let gone: i64 = removed
        .iter()
        .filter_map(|(node, _)| changed.nodes[changed.find_node(node)?.index()].price)
        .map(|price| i64::try_from(price).unwrap_or(i64::MAX))
        .sum();
    let delta = (outcome.report.unpriced_nodes == 0).then(|| price(&outcome) - price(&untouched) - gone);
    let answer = json!({
        "revision": outcome.plan.revision,
        "headline": headline(&outcome, removed.len(), delta),
        "deltaPerHourNanos": delta,
        "plan": plan_view::view(&changed, &outcome, policy),
        "groups": groups(&changed, &outcome),
        "diff": diff,
        "removes": removes,
        "limits": limits(&changed, &outcome),
        "canApply": why_not.is_none(),
        "whyNot": why_not,
        "command": "millpond plan",
    });
    Ok(Thought { answer, lines, before })
}

fn snapshot(objects: &[Value], options: &millpond_state::Options, now: i64) -> Result<Snapshot, Problem> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let mut reader = Reader::new();
    reader.add("the cluster", list.to_string().as_bytes());
    let reading = reader.finish();
    if let Some(error) = reading.errors.first() {
        return Err(Problem::invalid(error.to_string()));
    }
    let taken = reading.state.snapshot(now, options);
    match taken.notes.iter().find(|note| note.severity == Severity::Error) {
        Some(note) => Err(Problem::invalid(note.to_string())),
        None => Ok(taken.snapshot),
    }
}

fn identity(object: &Value) -> (&str, &str, &str, &str) {
    (
        object["apiVersion"].as_str().unwrap_or_default(),
        object["kind"].as_str().unwrap_or_default(),
        object["metadata"]["namespace"].as_str().unwrap_or_default(),
        object["metadata"]["name"].as_str().unwrap_or_default(),
    )
}

/// Applies objects and patches to what was read; gives the objects as they were, and the fields that differ.
fn edit(change: &Change, objects: &mut Vec<Value>) -> Result<(Vec<Value>, Vec<Value>), Problem> {
    let (mut before, mut diff) = (Vec::new(), Vec::new());
    for new in &change.objects {
        if identity(new).1.is_empty() || identity(new).3.is_empty() {
            return Err(Problem::invalid("an object has no kind or no name"));
        }
        let known = objects.iter().position(|object| identity(object) == identity(new));
        let old = known.map_or(Value::Null, |at| objects[at].clone());
        diff.push(difference_of(new, &old, new));
        match known {
            Some(at) => objects[at] = new.clone(),
            None => objects.push(new.clone()),
        }
        before.push(old);
    }
    for patch in &change.patches {
        let wanted = (&*patch.api_version, &*patch.kind, &*patch.namespace, &*patch.name);
        let at = objects.iter().position(|object| identity(object) == wanted).ok_or_else(|| {
            Problem::invalid(format!("there is no {} `{}`, or plans do not depend on it", patch.kind, patch.name))
        })?;
        let old = objects[at].clone();
        merge(&mut objects[at], &patch.patch);
        diff.push(difference_of(&old, &old, &objects[at]));
        before.push(old);
    }
    for add in &change.add {
        let (namespace, name) = add.like.split_once('/').unwrap_or(("default", &add.like));
        let model = objects.iter().find(|object| identity(object) == ("v1", "Pod", namespace, name));
        let model = model.ok_or_else(|| Problem::invalid(format!("there is no pod `{namespace}/{name}` to copy")))?;
        let copies: Vec<Value> = (0..add.count).map(|number| copy(model, number)).collect();
        objects.extend(copies);
    }
    Ok((before, diff))
}

/// A pod like another one that waits for a node.
fn copy(model: &Value, number: usize) -> Value {
    let mut pod = model.clone();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    pod["metadata"]["name"] = json!(format!("{name}-what-if-{number}"));
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("uid");
    }
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    pod["status"] = json!({ "phase": "Pending" });
    pod
}

fn difference_of(of: &Value, old: &Value, new: &Value) -> Value {
    let (api_version, kind, namespace, name) = identity(of);
    let object = json!({ "kind": kind, "namespace": namespace, "name": name });
    json!({ "object": object, "apiVersion": api_version, "fields": fields(old, new) })
}

/// Takes nodes away; their pods need other places.
fn remove(
    change: &Change,
    snapshot: &mut Snapshot,
) -> Result<Vec<(String, Vec<millpond_plan::model::PodId>)>, Problem> {
    let mut removed = Vec::new();
    for name in &change.remove {
        let name = name.strip_prefix("node/").unwrap_or(name);
        let id = snapshot.find_node(name).ok_or_else(|| Problem::invalid(format!("there is no node `{name}`")))?;
        let residents = millpond_plan::disruption::Residents::new(snapshot);
        let pods: Vec<_> = residents.movers(snapshot, id).collect();
        for pod in &pods {
            let pod = &mut snapshot.pods[pod.index()];
            (pod.node, pod.state) = (None, PodState::Pending);
        }
        // Nothing is planned on it, and it needs no room of its pool's limits any more.
        snapshot.nodes[id.index()].state = millpond_plan::model::NodeState::Leaving;
        removed.push((name.to_owned(), pods));
    }
    Ok(removed)
}

fn removal(snapshot: &Snapshot, outcome: &Outcome, node: &str, pods: &[millpond_plan::model::PodId]) -> Value {
    let rows: Vec<Value> = pods
        .iter()
        .map(|pod| {
            let to = outcome.plan.target(*pod).map(|target| plan_view::target_name(snapshot, outcome, target));
            let found = outcome.report.unplaced.binary_search_by_key(pod, |(pod, _)| *pod).ok();
            let why = found.map(|at| &outcome.report.verdicts[outcome.report.unplaced[at].1 as usize].message);
            json!({ "pod": snapshot.pod_name(*pod), "to": to, "why": why })
        })
        .collect();
    json!({ "node": node, "refused": null, "pods": rows })
}

/// What a new node is, in words.
fn in_words(snapshot: &Snapshot, node: &millpond_plan::plan::NewNode) -> String {
    let of = &snapshot.types[node.instance_type.index()];
    let offering = &of.offerings[node.offering as usize];
    format!(
        "{} {} {} {} ${:.4}",
        snapshot.pools[node.pool.index()].name,
        snapshot.text(of.name),
        snapshot.text(offering.zone),
        offering.capacity_type.name(),
        node.price as f64 / 1e9
    )
}

/// The plan as lines that can be compared: what is bought, what goes, and which pods stay without a place.
fn lines(snapshot: &Snapshot, outcome: &Outcome, change: &Change) -> Vec<String> {
    let mut lines: Vec<String> =
        outcome.plan.new_nodes.iter().map(|node| format!("new node {}", in_words(snapshot, node))).collect();
    for removal in &outcome.plan.removals {
        let node = |id: &millpond_plan::model::NodeId| {
            format!("node {} goes: {}", snapshot.nodes[id.index()].name, removal.reason.name())
        };
        lines.extend(removal.nodes.iter().map(node));
    }
    lines.extend(change.remove.iter().map(|node| format!("node {node} is removed")));
    lines.extend(
        outcome.report.unplaced.iter().map(|(pod, _)| format!("pod {} without a place", snapshot.pod_name(*pod))),
    );
    lines.sort();
    lines
}

/// Equal new nodes together, then nodes that go.
fn groups(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Value> {
    let mut by_words: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, node) in outcome.plan.new_nodes.iter().enumerate() {
        by_words.entry(in_words(snapshot, node)).or_default().push(index);
    }
    let pods_of = |index: usize| {
        let target = Target::New(index as u32);
        outcome.plan.placements.iter().filter(|(_, to)| *to == target).count()
    };
    let mut groups: Vec<Value> = by_words
        .into_iter()
        .map(|(words, actions)| {
            let pods: usize = actions.iter().map(|index| pods_of(*index)).sum();
            let count = actions.len();
            json!({
                "sign": "+", "count": count, "sentence": format!("{count} × {words}"),
                "reason": format!("for {}", plural(pods, "pod")), "pods": pods, "actions": actions,
            })
        })
        .collect();
    let mut index = outcome.plan.new_nodes.len();
    for removal in &outcome.plan.removals {
        let sign = if removal.replacements.is_empty() { "-" } else { "~" };
        for node in &removal.nodes {
            let name = &snapshot.nodes[node.index()].name;
            groups.push(json!({
                "sign": sign, "count": 1, "sentence": format!("node {name}"), "reason": removal.reason.name(),
                "pods": 0, "actions": [index],
            }));
            index += 1;
        }
    }
    groups
}

fn headline(outcome: &Outcome, removed: usize, delta: Option<i64>) -> String {
    let replaced: usize =
        outcome.plan.removals.iter().filter(|it| !it.replacements.is_empty()).map(|it| it.nodes.len()).sum();
    let gone: usize = outcome.plan.removals.iter().map(|it| it.nodes.len()).sum::<usize>() - replaced + removed;
    let money = delta.map_or_else(
        || "cost: ?".to_owned(),
        |delta| {
            let sign = if delta < 0 { "−" } else { "+" };
            let hour = grouped(delta as f64 / 1e9, 4);
            let month = grouped(delta as f64 / 1e9 * HOURS_PER_MONTH, 2);
            format!("{sign}${hour}/h ({sign}${month}/month)")
        },
    );
    let gap = outcome.report.gap();
    let bound = if outcome.report.bound > 0 && gap.is_finite() {
        format!(" · within {:.1} % of the bound", gap * 100.0)
    } else {
        String::new()
    };
    format!(
        "+{}, −{gone}, {replaced} replaced · {money} · {} placed · {} left without a place{bound}",
        plural(outcome.plan.new_nodes.len(), "node"),
        plural(outcome.report.placed(), "pod"),
        outcome.report.unplaced.len()
    )
}

/// Limits of pools after the plan.
fn limits(snapshot: &Snapshot, outcome: &Outcome) -> Vec<Value> {
    let mut all = Vec::new();
    for (index, pool) in snapshot.pools.iter().enumerate() {
        let mut before = millpond_plan::model::Resources::new();
        let standing = snapshot.nodes.iter().filter(|node| node.pool.is_some_and(|pool| pool.index() == index));
        standing.for_each(|node| before.add(&node.capacity));
        let mut after = before.clone();
        let new = outcome.plan.new_nodes.iter().filter(|node| node.pool.index() == index);
        new.for_each(|node| after.add(&snapshot.types[node.instance_type.index()].capacity));
        for &(resource, most) in &pool.limits.resources {
            let name = snapshot.resources.name(resource);
            let amount = |amount: i64| millpond_view::format::amount(name, amount);
            all.push(json!({
                "pool": pool.name, "resource": name, "before": amount(before.get(resource)),
                "after": amount(after.get(resource)), "limit": amount(most),
                "permille": millpond_view::units::permille(after.get(resource), most).or(Some(1000)),
            }));
        }
    }
    all
}

/// Writes a change as the user. What was read must still be so: the API server refuses an older version.
async fn write(client: &Client, change: &Change, before: &[Value]) -> Result<Vec<Value>, Problem> {
    let mut applied = Vec::new();
    let (of_objects, of_patches) = before.split_at(change.objects.len());
    for (object, old) in change.objects.iter().zip(of_objects) {
        let api = api(client, object)?;
        let (_, kind, _, name) = identity(object);
        let typed: DynamicObject = serde_json::from_value(object.clone())
            .map_err(|error| Problem::invalid(format!("{kind} `{name}`: {error}")))?;
        let verb = if old.is_null() {
            api.create(&kube::api::PostParams::default(), &typed).await?;
            "create"
        } else {
            let mut patch = object.clone();
            patch["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            "patch"
        };
        applied.push(written(object, verb));
    }
    for (patch, old) in change.patches.iter().zip(of_patches) {
        let mut body = patch.patch.clone();
        body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        api(client, old)?.patch(&patch.name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        applied.push(written(old, "patch"));
    }
    for name in &change.remove {
        let name = name.strip_prefix("node/").unwrap_or(name);
        let node = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone()).get(name).await?;
        let claim = claim_of(client, &node).await?;
        let claim = claim.ok_or_else(|| Problem::invalid(format!("node {name} has no NodeClaim: drain it instead")))?;
        let preconditions = Some(Preconditions { uid: claim.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        claims(client).delete(&claim.name_any(), &params).await?;
        let object = json!({ "kind": "NodeClaim", "namespace": "", "name": claim.name_any() });
        let sentence = format!("node {name}: its nodeclaim {} is deleted", claim.name_any());
        applied.push(json!({ "object": object, "verb": "delete", "sentence": sentence }));
    }
    Ok(applied)
}

fn written(object: &Value, verb: &str) -> Value {
    let (_, kind, namespace, name) = identity(object);
    let sentence = format!("{} {name}: {verb}", kind.to_lowercase());
    json!({ "object": { "kind": kind, "namespace": namespace, "name": name }, "verb": verb, "sentence": sentence })
}

fn api(client: &Client, object: &Value) -> Result<Api<DynamicObject>, Problem> {
    let (api_version, kind, namespace, _) = identity(object);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if version.is_empty() || kind.is_empty() {
        return Err(Problem::invalid("an object has no apiVersion or no kind"));
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Ok(if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    })
}
