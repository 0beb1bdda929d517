//! What can be done with a node: the dry run says what would happen, the action does that and nothing else.
//!
//! "Remove this node" removes that node or refuses. Where a smaller group might lose another node than the one that was
//! meant, nothing is done.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use millpond_plan::disruption::Residents;
use millpond_plan::model::{PodState, Snapshot};
use millpond_plan::plan::{Settings, Target};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Call;
use crate::hub::Frame;
use crate::respond::Problem;

/// The annotation that keeps a node.
const HOLD: &str = "karpenter.sh/do-not-disrupt";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Cordon,
    Uncordon,
    Drain,
    Hold,
    Release,
    Delete,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    verb: Verb,
    object: String,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    uid: Option<String>,
}

/// Answers `POST /actions`.
pub(crate) async fn act(call: &Call) -> Result<Value, Problem> {
    let request: Request = call.read()?;
    let name = request.object.strip_prefix("node/").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Problem::bad_request("`object` is node/NAME"))?;
    if !request.dry_run {
        call.require_writable()?;
    }
    let client = &call.session.user.client;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get(name).await?;
    let uid = node.uid().unwrap_or_default();
    if request.uid.as_ref().is_some_and(|shown| *shown != uid) {
        return Err(Problem::conflict(format!("node {name} is another one by now: it was made anew")));
    }
    let frame = call.dashboard.0.hub.frame_now().await?;
    let done = match request.verb {
        Verb::Cordon | Verb::Uncordon => {
            let closed = request.verb == Verb::Cordon;
            let patch = json!({ "spec": { "unschedulable": closed } });
            change_node(&nodes, &node, patch, request.dry_run).await?;
            let words = if closed { "takes no new pods" } else { "takes new pods again" };
            Done::of_node(format!("node {name} {words}"), "patch", name)
        }
        Verb::Hold | Verb::Release => {
            let value = if request.verb == Verb::Hold { json!("true") } else { Value::Null };
            let patch = json!({ "metadata": { "annotations": { HOLD: value } } });
            change_node(&nodes, &node, patch, request.dry_run).await?;
            let words = if request.verb == Verb::Hold {
                "is not disrupted until it is released"
            } else {
                "may be disrupted again"
            };
            Done::of_node(format!("node {name} {words}"), "patch", name)
        }
        Verb::Drain => drain(client, &frame, &nodes, &node, request.dry_run).await?,
        Verb::Delete => delete(client, &frame, &node, request.dry_run).await?,
    };
    let mut answer = done.0;
    answer["verb"] = json!(format!("{:?}", request.verb).to_lowercase());
    answer["object"] = json!({ "kind": "Node", "namespace": "", "name": name });
    answer["uid"] = json!(uid);
    answer["dryRun"] = json!(request.dry_run);
    Ok(answer)
}

/// What is done, as the answer.
struct Done(Value);

impl Done {
    fn of_node(sentence: String, verb: &str, name: &str) -> Self {
        let step = json!({
            "verb": verb, "object": { "kind": "Node", "namespace": "", "name": name }, "sentence": sentence,
        });
        Self(json!({ "sentence": sentence, "steps": [step], "pods": [] }))
    }
}

/// A change of the node that was looked at; with `dry_run` the API server checks it and keeps nothing.
async fn change_node(nodes: &Api<Node>, node: &Node, patch: Value, dry_run: bool) -> Result<(), Problem> {
    let mut patch = patch;
    // Another node of that name is another node.
    patch["metadata"]["uid"] = json!(node.uid());
    let params = PatchParams { dry_run, ..PatchParams::default() };
    nodes.patch(&node.name_any(), &params, &Patch::Merge(&patch)).await?;
    Ok(())
}

/// Where the pods of a node would go.
fn moves(frame: &Frame, name: &str) -> Vec<Value> {
    let Some(id) = frame.snapshot.find_node(name) else { return Vec::new() };
    let residents = Residents::new(&frame.snapshot);
    let movers: Vec<_> = residents.movers(&frame.snapshot, id).collect();
    let mut without: Snapshot = frame.snapshot.clone();
    without.nodes[id.index()].schedulable = false;
    for pod in &movers {
        let pod = &mut without.pods[pod.index()];
        (pod.node, pod.state) = (None, PodState::Pending);
    }
    let outcome = millpond_plan::plan(&without, &Settings { prove: false, ..Settings::default() });
    let row = |pod: &millpond_plan::model::PodId| {
        let to = outcome.plan.target(*pod).map(|target| match target {
            Target::Existing(node) => without.nodes[node.index()].name.clone(),
            Target::New(node) => {
                let pool = &without.pools[outcome.plan.new_nodes[node as usize].pool.index()].name;
                format!("a new node of pool {pool}")
            }
        });
        let found = outcome.report.unplaced.binary_search_by_key(pod, |(pod, _)| *pod).ok();
        let why = found.map(|at| outcome.report.verdicts[outcome.report.unplaced[at].1 as usize].message.clone());
        json!({ "pod": without.pod_name(*pod), "to": to, "why": why })
    };
    movers.iter().map(row).collect()
}

fn pods_in_words(moves: &[Value]) -> String {
    let lost = moves.iter().filter(|pod| pod["to"].is_null()).count();
    let pods = millpond_view::format::plural(moves.len(), "pod");
    let verb = if moves.len() == 1 { "moves" } else { "move" };
    match lost {
        0 => format!("{pods} {verb}"),
        1 => format!("{pods} {verb}, of which 1 has no place"),
        lost => format!("{pods} {verb}, of which {lost} have no place"),
    }
}

async fn drain(client: &Client, frame: &Frame, nodes: &Api<Node>, node: &Node, dry_run: bool) -> Result<Done, Problem> {
    let name = node.name_any();
    let moves = moves(frame, &name);
    let fields = ListParams::default().fields(&format!("spec.nodeName={name}"));
    let pods = Api::<Pod>::all(client.clone()).list(&fields).await?;
    change_node(nodes, node, json!({ "spec": { "unschedulable": true } }), dry_run).await?;
    let mut steps = vec![json!({
        "verb": "patch", "object": { "kind": "Node", "namespace": "", "name": name },
        "sentence": format!("node {name} takes no new pods"),
    })];
    for pod in pods.items.iter().filter(|pod| may_be_evicted(pod)) {
        let (namespace, pod) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let mut params = EvictParams::default();
        params.post_options.dry_run = dry_run;
        let evicted = Api::<Pod>::namespaced(client.clone(), &namespace).evict(&pod, &params).await;
        let sentence = match evicted {
            Ok(_) => format!("evict pod {namespace}/{pod}"),
            // A budget of disruptions: the others go, this one is asked again by the user.
            Err(kube::Error::Api(status)) if status.code == 429 => {
                format!("pod {namespace}/{pod} stays for now: {}", status.message)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error.into()),
        };
        let object = json!({ "kind": "Pod", "namespace": namespace, "name": pod });
        steps.push(json!({ "verb": "evict", "object": object, "sentence": sentence }));
    }
    let sentence = format!("node {name} is drained: {}", pods_in_words(&moves));
    Ok(Done(json!({ "sentence": sentence, "steps": steps, "pods": moves })))
}

fn may_be_evicted(pod: &Pod) -> bool {
    let is_static = pod.annotations().contains_key("kubernetes.io/config.mirror");
    let is_daemon = pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
    let has_ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !is_static && !is_daemon && !matches!(has_ended, Some("Succeeded" | "Failed"))
}

/// Deletes the claim behind a node: its end drains the node and removes the machine.
async fn delete(client: &Client, frame: &Frame, node: &Node, dry_run: bool) -> Result<Done, Problem> {
    let name = node.name_any();
    let claim = claim_of(client, node).await?.ok_or_else(|| Problem::invalid(refusal(node)))?;
    let moves = moves(frame, &name);
    let params = DeleteParams {
        dry_run,
        preconditions: Some(Preconditions { uid: claim.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    claims(client).delete(&claim.name_any(), &params).await?;
    let claim = claim.name_any();
    let step = json!({
        "verb": "delete", "object": { "kind": "NodeClaim", "namespace": "", "name": claim },
        "sentence": format!("delete nodeclaim {claim}; its end drains the node"),
    });
    let sentence = format!("node {name} goes: {}", pods_in_words(&moves));
    Ok(Done(json!({ "sentence": sentence, "steps": [step], "pods": moves })))
}

/// Why a node without a claim is not removed here.
fn refusal(node: &Node) -> String {
    let name = node.name_any();
    if node.annotations().contains_key("cluster.x-k8s.io/machine") {
        return format!(
            "node {name} is a machine of Cluster API: a smaller group might lose another node; delete its Machine, or \
             drain the node"
        );
    }
    format!("node {name} belongs to no pool of Millpond's: nothing would remove its machine; drain it instead")
}

pub(crate) fn claims(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// The claim of a node: by its owner, and else by the id of its machine.
pub(crate) async fn claim_of(client: &Client, node: &Node) -> Result<Option<DynamicObject>, Problem> {
    let owner = node.owner_references().iter().find(|owner| owner.kind == "NodeClaim");
    if let Some(owner) = owner {
        let found = claims(client).get_opt(&owner.name).await?;
        return Ok(found.filter(|claim| claim.uid().as_deref() == Some(&owner.uid)));
    }
    let machine = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
    let Some(machine) = machine.filter(|machine| !machine.is_empty()) else { return Ok(None) };
    let all = match claims(client).list(&ListParams::default()).await {
        Ok(all) => all,
        // A cluster without that kind has no claims.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(all.items.into_iter().find(|claim| claim.data["status"]["providerID"] == machine))
}
