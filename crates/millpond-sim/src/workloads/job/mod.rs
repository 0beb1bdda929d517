//! Jobs: pods that come to an end.
//!
//! Finished pods are counted in two steps, as the original does it, so that none is lost or
//! counted twice over a crash: their uids are listed in the status, they lose their finalizer,
//! and then they move from the list into the counters.
//!
//! Not implemented: pod failure policies, success policies and back-off limits per index.

pub mod backoff;
pub mod indexes;
pub mod state;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::json;

use super::claim::claim;
use super::pods::{self, BURST, PodControl};
use super::rank::choose_excess;
use crate::clock::after_seconds;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::events::EventReason;
use crate::meta::{Key, controller_of, is_leaving, status_patch};
use crate::queue::Queue;
use crate::scheduler::fit::labels::Selector;
use crate::worker::Reconcile;
use backoff::Backoff;
use state::{FINALIZER, INDEX, JobOptions, JobOutcome, Tally};

const COMPONENT: &str = "job-controller";
const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const OWN_MANAGER: &str = "kubernetes.io/job-controller";

/// The Job controller.
pub struct Jobs {
    cluster: Arc<Cluster>,
    /// Failures since the last success, per job.
    backoffs: Mutex<HashMap<String, Backoff>>,
}

impl Jobs {
    /// The controller, and the work queue that watches fill.
    pub fn new(cluster: Arc<Cluster>) -> (Arc<Self>, Arc<Queue<Key>>) {
        let queue = Arc::new(Queue::new());
        let own = Arc::clone(&queue);
        cluster.jobs.on_change(move |old, new| {
            if let Some(job) = new.or(old) {
                own.add(Key::of(&**job));
            }
        });
        let (pods, jobs) = (Arc::clone(&queue), Arc::clone(&cluster.jobs));
        let batch = cluster.options.batch;
        cluster.pods.on_change(move |old, new| {
            for pod in old.into_iter().chain(new) {
                let namespace = pod.namespace().unwrap_or_default();
                match controller_of(&**pod) {
                    Some(owner) if owner.kind == "Job" => pods.add_after(Key::new(&namespace, &owner.name), batch),
                    Some(_) => {}
                    None => jobs
                        .list_in(&namespace)
                        .iter()
                        .filter(|job| selector(job).matches(pod.labels()))
                        .for_each(|job| pods.add(Key::of(&**job))),
                }
            }
        });
        (Arc::new(Self { cluster, backoffs: Mutex::default() }), queue)
    }

    fn control(&self) -> PodControl<'_> {
        PodControl { cluster: &self.cluster, component: COMPONENT }
    }

    fn record_event(&self, job: &Job, reason: &'static str, warning: bool, note: &str) {
        let event_reason = EventReason { component: COMPONENT, action: "Managing", reason, warning };
        self.cluster.recorder.record(job, event_reason, note);
    }

    /// Takes the finalizer from pods; says from which it could not be taken.
    async fn release(&self, pods: &[Arc<Pod>]) -> Result<()> {
        let mut calls: FuturesUnordered<_> = pods.iter().map(|pod| self.release_one(pod)).collect();
        let mut failure = Ok(());
        while let Some(outcome) = calls.next().await {
            if let Err(error) = outcome {
                failure = Err(error);
            }
        }
        failure
    }

    async fn release_one(&self, pod: &Pod) -> Result<()> {
        let key = Key::of(pod);
        // The pod may have changed since the list was made; its finalizers are what matters.
        let Some(pod) = self.cluster.pods.get(&key).filter(|now| now.uid() == pod.uid()) else {
            return Ok(());
        };
        if !state::is_tracked(&pod) {
            return Ok(());
        }
        let left: Vec<&String> = pod.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let patch = json!({"metadata": {
            "uid": pod.metadata.uid,
            "resourceVersion": pod.metadata.resource_version,
            "finalizers": left,
        }});
        match self.cluster.pods.patch(&key, &patch).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets go of the pods of a job that is no more.
    async fn let_go(&self, key: &Key) -> Result<()> {
        let is_of = |pod: &Pod| {
            let owner = controller_of(pod).filter(|owner| owner.kind == "Job" && owner.name == key.name);
            owner.is_some() && state::is_tracked(pod)
        };
        let orphans: Vec<_> = self.cluster.pods.list_in(&key.namespace).into_iter().filter(|pod| is_of(pod)).collect();
        self.release(&orphans).await
    }

    /// Deletes a finished job when its time has come.
    async fn expire(&self, job: &Job) -> Result<Option<Duration>> {
        self.backoffs.lock().remove(&job.uid().unwrap_or_default());
        let tracked: Vec<_> = self
            .cluster
            .pods
            .owned_by(&job.uid().unwrap_or_default())
            .into_iter()
            .filter(|pod| state::is_tracked(pod))
            .collect();
        self.release(&tracked).await?;
        let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
        let (Some(ttl), Some(finished)) = (ttl, state::finished_at(job)) else {
            return Ok(None);
        };
        let due = after_seconds(finished, i64::from(ttl));
        let left = self.cluster.clock.until(due);
        if !left.is_zero() {
            return Ok(Some(left));
        }
        if !is_leaving(job) {
            self.cluster.jobs.delete(job, None).await?;
        }
        Ok(None)
    }

    /// Creates or deletes pods; says when to look again because of failures.
    async fn manage(&self, job: &Job, tally: &Tally<'_>, backoff: Backoff) -> Result<Option<Duration>> {
        let wishes = JobOptions(job);
        let active = tally.active();
        let now = self.cluster.clock.now();
        if wishes.is_suspended() {
            self.control().delete_all(job, &active).await?;
            return Ok(None);
        }
        let wanted = tally.wanted(active.len() as i32);
        let mut excess = if wishes.is_indexed() { tally.duplicates() } else { Vec::new() };
        let surplus = (active.len() - excess.len()).saturating_sub(usize::try_from(wanted).unwrap_or_default());
        if surplus > 0 {
            let rest: Vec<_> =
                active.iter().filter(|pod| excess.iter().all(|other| other.uid() != pod.uid())).cloned().collect();
            excess.extend(choose_excess(&rest, &[], surplus, now));
        }
        if !excess.is_empty() {
            excess.truncate(BURST);
            self.control().delete_all(job, &excess).await?;
            return Ok(None);
        }
        let waiting_for = if wishes.waits_for_failed() { tally.leaving() } else { 0 };
        let missing = usize::try_from(wanted - waiting_for - active.len() as i32).unwrap_or_default().min(BURST);
        if missing == 0 {
            return Ok(None);
        }
        if let Some(wait) = backoff.remaining(now) {
            return Ok(Some(wait));
        }
        let pods = if wishes.is_indexed() {
            tally.free_indexes(missing).into_iter().map(|index| make_pod(job, Some(index))).collect()
        } else {
            (0..missing).map(|_| make_pod(job, None)).collect()
        };
        self.control().create_all(job, pods).await.1?;
        Ok(None)
    }

    async fn write(&self, job: &Job, status: &JobStatus) -> Result<Arc<Job>> {
        let key = Key::of(job);
        let known = self.cluster.jobs.get(&key).filter(|known| known.uid() == job.uid());
        let base = known.unwrap_or_else(|| Arc::new(job.clone()));
        match status_patch(&*base, base.status.as_ref(), status) {
            Some(patch) => self.cluster.jobs.patch_status(&key, &patch).await,
            None => Ok(base),
        }
    }

    async fn track(
        &self,
        job: &Job,
        mut status: JobStatus,
        tally: &Tally<'_>,
        outcome: Option<JobOutcome>,
    ) -> Result<()> {
        let now = self.cluster.clock.time();
        let release = tally.list_uncounted(&mut status, outcome.as_ref());
        if let Some(outcome) = &outcome {
            let decided = if outcome.success { "SuccessCriteriaMet" } else { "FailureTarget" };
            state::set_condition(&mut status, decided, true, &outcome.reason, &outcome.message, &now);
        }
        self.write(job, &status).await?;
        let released = self.release(&release).await;
        let owned = self.cluster.pods.owned_by(&job.uid().unwrap_or_default());
        let tracked: BTreeSet<String> =
            owned.iter().filter(|pod| state::is_tracked(pod)).filter_map(|pod| pod.uid()).collect();
        let is_left = state::count_released(&mut status, &tracked);
        let leaving = owned.iter().any(|pod| pods::is_terminating(pod));
        let active = owned.iter().any(|pod| pods::is_active(pod));
        let mut finished = None;
        if let Some(outcome) = outcome.filter(|_| !is_left && !leaving && !active && released.is_ok()) {
            finish(&mut status, &outcome, &now);
            finished = Some(outcome);
        }
        self.write(job, &status).await?;
        match finished {
            Some(outcome) if outcome.success => self.record_event(job, "Completed", false, "Job completed"),
            Some(outcome) => self.record_event(job, reason_of(&outcome), true, &outcome.message),
            None => {}
        }
        released
    }
}

fn reason_of(outcome: &JobOutcome) -> &'static str {
    match outcome.reason.as_str() {
        "DeadlineExceeded" => "DeadlineExceeded",
        "BackoffLimitExceeded" => "BackoffLimitExceeded",
        _ => "Failed",
    }
}

fn finish(status: &mut JobStatus, outcome: &JobOutcome, now: &Time) {
    let type_ = if outcome.success { "Complete" } else { "Failed" };
    state::set_condition(status, type_, true, &outcome.reason, &outcome.message, now);
    if outcome.success {
        status.completion_time = Some(now.clone());
    }
}

impl Reconcile for Jobs {
    const NAME: &'static str = COMPONENT;

    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>> {
        let Some(job) = self.cluster.jobs.get(key) else {
            let jobs = self.cluster.jobs.list();
            let live: BTreeSet<String> = jobs.iter().filter_map(|job| job.uid()).collect();
            self.backoffs.lock().retain(|uid, _| live.contains(uid));
            self.let_go(key).await?;
            return Ok(None);
        };
        let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
        if manager.is_some_and(|manager| manager != OWN_MANAGER) {
            return Ok(None);
        }
        if state::finished_at(&job).is_some() {
            return self.expire(&job).await;
        }
        let selector = selector(&job);
        let pods = claim(&self.cluster.pods, &*job, &selector, |_| true).await?;
        let tally = Tally::new(&job, &pods);
        let (succeeded, failed) = tally.news();
        let uid = job.uid().unwrap_or_default();
        let backoff = self.backoffs.lock().get(&uid).copied().unwrap_or_default().after(&succeeded, &failed);
        let now = self.cluster.clock.time();
        let mut status = job.status.clone().unwrap_or_default();
        let suspended = JobOptions(&job).is_suspended();
        if status.start_time.is_none() && !suspended {
            status.start_time = Some(now.clone());
        }
        let mut again = tally.until_deadline(status.start_time.as_ref(), now.0);
        let mut outcome = tally.forced_ending(now.0);
        let mut managed = Ok(None);
        if outcome.is_some() {
            managed = self.control().delete_all(&*job, &tally.active()).await.map(|()| None);
        } else if !is_leaving(&*job) {
            managed = self.manage(&job, &tally, backoff).await;
            let active = self.cluster.pods.owned_by(&uid).iter().filter(|pod| pods::is_active(pod)).count();
            if tally.is_satisfied(active) {
                outcome = Some(JobOutcome::completed());
            } else {
                self.tell_suspension(&job, &mut status, suspended, &now);
            }
        }
        let owned = self.cluster.pods.owned_by(&uid);
        let after = Tally::new(&job, &owned);
        status.active = Some(after.active().len() as i32).filter(|count| *count != 0);
        status.ready = Some(after.ready());
        status.terminating = Some(after.leaving());
        self.track(&job, status, &tally, outcome).await?;
        self.backoffs.lock().insert(uid, backoff);
        if let Some(wait) = managed? {
            again = Some(again.map_or(wait, |known| known.min(wait)));
        }
        Ok(again)
    }
}

impl Jobs {
    fn tell_suspension(&self, job: &Job, status: &mut JobStatus, suspended: bool, now: &Time) {
        if suspended {
            if state::set_condition(status, "Suspended", true, "JobSuspended", "Job suspended", now) {
                self.record_event(job, "Suspended", false, "Job suspended");
                status.start_time = None;
            }
        } else if state::set_condition(status, "Suspended", false, "JobResumed", "Job resumed", now) {
            self.record_event(job, "Resumed", false, "Job resumed");
            status.start_time = Some(now.clone());
        }
        if status.conditions.as_ref().is_some_and(Vec::is_empty) {
            status.conditions = None;
        }
    }
}

/// The selector of a job; one without a selector owns the pods that carry its uid.
fn selector(job: &Job) -> Selector {
    match job.spec.as_ref().and_then(|spec| spec.selector.as_ref()) {
        Some(selector) => Selector::compile(Some(selector)),
        None => Selector::of_pairs([(&UID_LABEL.to_owned(), &job.uid().unwrap_or_default())]),
    }
}

fn make_pod(job: &Job, index: Option<i32>) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = pods::from_template(&template, job);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.entry(UID_LABEL.to_owned()).or_insert_with(|| job.uid().unwrap_or_default());
    labels.entry(NAME_LABEL.to_owned()).or_insert_with(|| job.name_any());
    if let Some(index) = index {
        labels.insert(INDEX.to_owned(), index.to_string());
        pod.metadata.annotations.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        pod.metadata.generate_name = Some(format!("{}-{index}-", job.name_any()));
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(format!("{}-{index}", job.name_any()));
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let env = container.env.get_or_insert_default();
            if !env.iter().any(|variable| variable.name == "JOB_COMPLETION_INDEX") {
                env.push(index_variable());
            }
        }
    }
    pod
}

fn index_variable() -> EnvVar {
    let field =
        ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..ObjectFieldSelector::default() };
    EnvVar {
        name: "JOB_COMPLETION_INDEX".to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}
