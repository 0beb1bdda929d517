//! Instances boot: their Node objects are made when they are up, and taken away where the cloud does that.
//!
//! Every step can be repeated: an existing Node with the instance's provider id counts as created.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use millpond_api::amounts::{self, Amounts};
use millpond_api::karpenter::TaintEffect;
use millpond_api::labels::HOSTNAME;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::provider::SimProvider;
use super::record::Record;

/// Node objects that are made or taken away at once: enough to keep an API server busy, few enough to leave room for
/// others.
const AT_ONCE: usize = 32;

/// How long to wait after a first failure, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest sleep: the machine's clock can be set, and jumps when the machine sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The annotation by which kwok and stand-ins know the nodes that they play.
const PLAYED: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

/// Why a Node object was not written.
#[derive(Debug, thiserror::Error)]
enum NodeError {
    #[error("the API server did not do it")]
    Api(#[from] kube::Error),
    #[error("there is a node of that name with the provider id `{0}`")]
    Taken(String),
    #[error("{0}")]
    Cloud(#[from] crate::ProviderError),
}

/// A failed operation, and when it is retried.
struct Failed {
    times: u32,
    again: Instant,
}

impl SimProvider {
    /// Boots instances until it is stopped: makes their Node objects, sends interruption events. Without it, time in
    /// the cloud advances only with calls, and no node ever registers.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        self.boot_until(stop).await;
    }

    async fn boot_until(&self, stop: CancellationToken) {
        let mut under_way = FuturesUnordered::new();
        let mut busy: HashSet<String> = HashSet::new();
        let mut failed: HashMap<String, Failed> = HashMap::new();
        loop {
            // Listens before it looks, so that nothing falls between.
            let changed = self.cloud.changed().notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let work = self.cloud.node_work(self.clock.now());
            let mut wake = work.next.map(|next| self.clock.until(next));
            let make = work.make.into_iter().map(|id| (id, Job::Make));
            let remove = work.remove.into_iter().map(|(id, name)| (id, Job::Remove { name }));
            let jobs: Vec<(String, Job)> = make.chain(remove).collect();
            // An instance that was deleted in the meantime is not waited for.
            failed.retain(|id, _| busy.contains(id) || jobs.iter().any(|(waiting, _)| waiting == id));
            for (id, job) in jobs {
                if busy.contains(&id) || under_way.len() >= AT_ONCE {
                    continue;
                }
                let wait = failed.get(&id).map_or(Duration::ZERO, |failed| failed.again - Instant::now());
                if !wait.is_zero() {
                    wake = Some(wake.map_or(wait, |wake| wake.min(wait)));
                    continue;
                }
                busy.insert(id.clone());
                under_way.push(async move { (self.work(&id, job).await, id) });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Some((result, id)) = under_way.next() => {
                    busy.remove(&id);
                    match result {
                        Ok(()) => _ = failed.remove(&id),
                        Err(error) => note_failure(&mut failed, &id, &error),
                    }
                }
                () = &mut changed => {}
                () = tokio::time::sleep(wake.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)) => {}
            }
        }
    }

    async fn work(&self, id: &str, job: Job) -> Result<(), NodeError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        match job {
            Job::Make => {
                let Some(record) = self.cloud.record(id) else { return Ok(()) };
                match nodes.create(&PostParams::default(), &node(&record)).await {
                    Ok(_) => tracing::debug!(instance = id, node = record.instance.claim, "node registered"),
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {
                        same_node(&nodes, &record.instance.claim, id).await?;
                    }
                    Err(error) => return Err(error.into()),
                }
                Ok(self.cloud.registered(id)?)
            }
            Job::Remove { name } => {
                remove(&nodes, &name, id).await?;
                Ok(self.cloud.node_removed(id)?)
            }
        }
    }
}

/// One Node object to deal with.
enum Job {
    Make,
    Remove { name: String },
}

fn note_failure(failed: &mut HashMap<String, Failed>, id: &str, error: &NodeError) {
    let entry = failed.entry(id.to_owned()).or_insert_with(|| Failed { times: 0, again: Instant::now() });
    let wait = FIRST_WAIT.saturating_mul(1 << entry.times.min(16)).min(LONGEST_WAIT);
    entry.times += 1;
    entry.again = Instant::now() + wait;
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(instance = id, %error, cause, wait_s = wait.as_secs_f32(), "the node of an instance must wait");
}

/// Whether the node of that name is this instance's.
async fn same_node(nodes: &Api<Node>, name: &str, id: &str) -> Result<(), NodeError> {
    let found = nodes.get(name).await?;
    let provider_id = found.spec.and_then(|spec| spec.provider_id).unwrap_or_default();
    if provider_id == id { Ok(()) } else { Err(NodeError::Taken(provider_id)) }
}

/// Takes the node away if it is still the instance's.
async fn remove(nodes: &Api<Node>, name: &str, id: &str) -> Result<(), NodeError> {
    let Some(found) = nodes.get_opt(name).await? else { return Ok(()) };
    if found.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) != Some(id) {
        return Ok(());
    }
    let preconditions = Preconditions { uid: found.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match nodes.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// The Node object as a kubelet would register it.
fn node(record: &Record) -> Node {
    let name = &record.instance.claim;
    let mut labels = record.node.labels.clone();
    labels.insert(HOSTNAME.to_owned(), name.clone());
    let mut annotations = record.node.annotations.clone();
    annotations.entry(PLAYED.0.to_owned()).or_insert_with(|| PLAYED.1.to_owned());
    let taints = record.node.taints.iter().map(|taint| Taint {
        key: taint.key.clone(),
        value: (!taint.value.is_empty()).then(|| taint.value.clone()),
        effect: effect(taint.effect).to_owned(),
        time_added: None,
    });
    Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(record.instance.id.clone()),
            taints: Some(taints.collect()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(quantities(&record.instance.capacity)),
            allocatable: Some(quantities(&record.instance.allocatable)),
            ..NodeStatus::default()
        }),
    }
}

fn quantities(amounts: &Amounts) -> BTreeMap<String, Quantity> {
    let quantity = |name: &str, amount| (name.to_owned(), Quantity(amounts::write(name, amount)));
    amounts.iter().map(|(name, amount)| quantity(name, amount)).collect()
}

fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}
