//! Advice only: what Millpond would do for the pools of a ScalingConstraint, as a ScalingAdvice. The consumer of the
//! advice acts on it and reports in a ScalingFeedback what could not be done.
//!
//! ```text
//! ScalingConstraint ─▶ snapshot with its pools ─▶ plan ─▶ ScalingAdvice (same name, owned by the constraint)
//! ScalingFeedback ───▶ stock: types that could not be had in a zone, nodes that could not go
//! ```
//!
//! Advice says what is wanted, not what is new: as long as nodes that were advised have not come, it stays the same,
//! and nothing is written. With [`crate::cluster::Options::advise`] the NodePools are advised about as well, as if they
//! were one more constraint, and no other controller runs.

mod feedback;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ObjectMeta;
use millpond_api::condition::Conditions;
use millpond_api::karpenter::conditions::VALIDATION_SUCCEEDED;
use millpond_api::labels::is_value;
use millpond_api::meta::Condition;
use millpond_api::scaling_advisor::{
    self as api, CONSUMER_LABEL, ConstraintRef, DIAGNOSTICS_ANNOTATION, Diagnostic, POOLS_LABEL, ScalingAdviceSpec,
    UNSCHEDULED_PODS_LABEL,
};
use millpond_plan::model::Snapshot;
use millpond_plan::plan::{Outcome, Settings};
use millpond_runtime::error::Result;
use millpond_runtime::events::EventReason;
use millpond_runtime::meta::{Key, controller_reference, is_leaving, merge_diff, status_patch};
use millpond_state::objects::Kind as StateKind;
use millpond_state::{PoolsOf, advice};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::kinds::{ScalingAdvice, ScalingConstraint};
use feedback::Feedback;

/// Changes are gathered for at least this long before advice is thought over.
const GATHER: Duration = Duration::from_millis(250);
/// Planning advice takes at most one part in this many of the time.
const REST: u32 = 4;
/// Wait after a failed write.
const RETRY: Duration = Duration::from_secs(1);
/// Where the advice about NodePools is, and what it is called.
const NODE_POOLS: (&str, &str) = ("millpond-system", "nodepools");
/// The conditions that `Ready` of a constraint depends on.
const OF_CONSTRAINT: &[&str] = &[VALIDATION_SUCCEEDED];

const ADVISED: EventReason = EventReason { component: "millpond", action: "Advise", reason: "Advised", warning: false };

/// Writes ScalingAdvice.
pub struct Advisor {
    context: Arc<Context>,
    feedback: Feedback,
    /// Notified by changes that the planner's index does not count.
    woken: Arc<Notify>,
}

/// The advice for one consumer.
struct Advice {
    key: Key,
    metadata: ObjectMeta,
    spec: ScalingAdviceSpec,
    diagnostic: Option<Diagnostic>,
}

impl Advisor {
    /// Subscribes to a cluster whose watches have not started.
    pub fn new(context: Arc<Context>) -> Self {
        let woken = Arc::new(Notify::new());
        let (stock, feedback, advice) = (Arc::clone(&woken), Arc::clone(&woken), Arc::clone(&woken));
        context.stock_outs.on_change(move || stock.notify_one());
        context.cluster.feedbacks.on_change(move |_, _| feedback.notify_one());
        context.cluster.advices.on_change(move |_, after| {
            if after.is_none() {
                advice.notify_one();
            }
        });
        Self { feedback: Feedback::new(Arc::clone(&context)), context, woken }
    }

    /// Advises until the token is cancelled.
    pub async fn run(&mut self, stop: CancellationToken) {
        let mut changes = self.context.cluster.changes();
        loop {
            changes.mark_unchanged();
            let begun = Instant::now();
            let failed = self.pass().await;
            let rest = GATHER.max(begun.elapsed() * REST);
            let again = if failed { Some(RETRY) } else { self.next_probe() };
            let probe = async {
                match again {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = changes.changed() => {}
                () = self.woken.notified() => {}
                () = probe => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// When something that was left out may be advised again.
    fn next_probe(&self) -> Option<Duration> {
        let is_asked = self.context.cluster.options.advise || !self.context.cluster.constraints.is_empty();
        if !is_asked {
            return None;
        }
        [self.context.stock_outs.next_probe(), self.feedback.next_release()].into_iter().flatten().min()
    }

    /// Computes all advice and writes it; returns whether a write failed.
    async fn pass(&mut self) -> bool {
        let _round = self.context.cluster.supervisor.begin("advisor");
        self.feedback.learn();
        let mut failed = false;
        for constraint in self.context.cluster.constraints.list() {
            if let Err(error) = self.advise(&constraint).await {
                failed = true;
                let constraint = constraint.name();
                tracing::warn!(constraint, %error, cause = error.cause(), "advice not given, will try again");
            }
        }
        if self.context.cluster.options.advise
            && let Err(error) = self.advise_node_pools().await
        {
            failed = true;
            tracing::warn!(%error, cause = error.cause(), "advice not given, will try again");
        }
        failed
    }

    async fn advise(&self, constraint: &Arc<ScalingConstraint>) -> Result<()> {
        if is_leaving(&**constraint) || !self.judge(constraint).await? {
            return Ok(());
        }
        let key = Key::of(&**constraint);
        let pools = PoolsOf::Constraint { namespace: key.namespace.clone(), name: key.name.clone() };
        let reference = ConstraintRef { namespace: key.namespace.clone(), name: key.name.clone() };
        let (snapshot, outcome) = self.plan(pools);
        let annotations = constraint.metadata.annotations.as_ref();
        let asked = annotations.and_then(|all| all.get(DIAGNOSTICS_ANNOTATION)).is_some_and(|value| value != "false");
        let mut labels = labels(&snapshot, &outcome);
        let mut annotations = BTreeMap::new();
        let consumer = constraint.spec.consumer_id.clone();
        if !consumer.is_empty() {
            let place = if is_value(&consumer) { &mut labels } else { &mut annotations };
            place.insert(CONSUMER_LABEL.to_owned(), consumer);
        }
        let metadata = ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: Some(labels),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![controller_reference(&**constraint)]),
            ..ObjectMeta::default()
        };
        let spec = self.feedback.without_stuck(advice::spec(&snapshot, &outcome, reference));
        let diagnostic = asked.then(|| advice::diagnostic(&snapshot, &outcome));
        let told = sentence(&spec);
        if self.write(Advice { key, metadata, spec, diagnostic }).await? {
            self.context.events.record(&**constraint, ADVISED, told);
        }
        Ok(())
    }

    /// Writes the conditions of a constraint and returns whether advice can be given for it.
    async fn judge(&self, constraint: &ScalingConstraint) -> Result<bool> {
        let cluster = &self.context.cluster;
        let key = Key::of(constraint);
        let refused = cluster.refused(StateKind::ScalingConstraint, &key);
        let first = || api_constraint(constraint).validate().into_iter().next();
        let validity = match refused.or_else(first) {
            Some(invalid) => Condition::fails(VALIDATION_SUCCEEDED, "InvalidConstraint", invalid.to_string()),
            None => Condition::holds(VALIDATION_SUCCEEDED),
        };
        let is_valid = validity.is_true();
        let mut status = constraint.status.clone();
        let generation = constraint.metadata.generation.unwrap_or_default();
        Conditions::new(&mut status.conditions, OF_CONSTRAINT, generation, cluster.now()).set(validity);
        if let Some(patch) = status_patch(constraint, Some(&constraint.status), &status) {
            cluster.constraints.patch_status(&key, &patch).await?;
        }
        Ok(is_valid)
    }

    async fn advise_node_pools(&self) -> Result<()> {
        let (namespace, name) = NODE_POOLS;
        let namespaces = &self.context.cluster.namespaces;
        if namespaces.get(&Key::new("", namespace)).is_none() {
            let metadata = ObjectMeta { name: Some(namespace.to_owned()), ..ObjectMeta::default() };
            namespaces.create(&Namespace { metadata, ..Namespace::default() }).await?;
        }
        let (snapshot, outcome) = self.plan(PoolsOf::NodePools);
        let reference = ConstraintRef { namespace: String::new(), name: name.to_owned() };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels(&snapshot, &outcome)),
            ..ObjectMeta::default()
        };
        let spec = self.feedback.without_stuck(advice::spec(&snapshot, &outcome, reference));
        self.write(Advice { key: Key::new(namespace, name), metadata, spec, diagnostic: None }).await?;
        Ok(())
    }

    fn plan(&self, pools: PoolsOf) -> (Snapshot, Outcome) {
        let snapshot = self.context.snapshot_of(pools);
        let settings = Settings { consolidate: true, ..Settings::default() };
        let outcome = millpond_plan::plan(&snapshot, &settings);
        (snapshot, outcome)
    }

    /// Writes advice if it differs from the stored object; returns whether it wrote.
    async fn write(&self, advice: Advice) -> Result<bool> {
        let Advice { key, metadata, spec, diagnostic } = advice;
        let advices = &self.context.cluster.advices;
        let known = advices.get(&key).filter(|known| !is_leaving(&**known));
        let is_new = known.as_ref().is_none_or(|known| known.spec != spec);
        let written = match known {
            None => advices.create(&ScalingAdvice::new(metadata, spec)).await?,
            Some(known) if known.spec == spec => known,
            Some(known) => {
                let change = merge_diff(&json!(known.spec), &json!(spec));
                // Labels tell of the plan that the advice is from.
                let meta = json!({"labels": metadata.labels, "annotations": metadata.annotations.unwrap_or_default()});
                advices.patch(&key, &json!({"metadata": meta, "spec": change})).await?
            }
        };
        if is_new {
            self.context.metrics.advised();
        }
        let status = api::ScalingAdviceStatus { diagnostic, ..written.status.clone() };
        if let Some(patch) = status_patch(&*written, Some(&written.status), &status) {
            advices.patch_status(&key, &patch).await?;
        }
        Ok(is_new)
    }
}

fn labels(snapshot: &Snapshot, outcome: &Outcome) -> BTreeMap<String, String> {
    BTreeMap::from([
        (POOLS_LABEL.to_owned(), snapshot.pools.len().to_string()),
        (UNSCHEDULED_PODS_LABEL.to_owned(), outcome.report.pods.to_string()),
    ])
}

/// The advice in one sentence.
fn sentence(spec: &ScalingAdviceSpec) -> String {
    let out = spec.scale_out_plan.as_ref();
    let come: i32 = out.iter().flat_map(|plan| &plan.items).map(|item| item.delta).sum();
    let go = spec.scale_in_plan.as_ref().map_or(0, |plan| plan.items.len());
    let left = out.map_or(0, |plan| plan.unsatisfied_pod_names.len());
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let come = usize::try_from(come).unwrap_or(0);
    format!(
        "add {}, remove {}; {} would still have no place",
        count(come, "node"),
        count(go, "node"),
        count(left, "pod")
    )
}

/// A constraint in the planner's types.
fn api_constraint(constraint: &ScalingConstraint) -> api::ScalingConstraint {
    api::ScalingConstraint {
        metadata: crate::context::api_meta(&constraint.metadata),
        spec: constraint.spec.clone(),
        status: constraint.status.clone(),
    }
}
