//! The state of a job: what its pods did, what that means, and what to do next.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::indexes::Indexes;
use crate::clock::after_seconds;
use crate::meta::{annotation, is_leaving, phase};
use crate::workloads::pods::{is_active, is_ready, is_terminating};

/// Keeps a finished pod until it was counted.
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The index of a pod of an indexed job.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Pods that are counted per step.
const UNCOUNTED_AT_MOST: usize = 500;
/// Default of `backoffLimit`.
const DEFAULT_BACKOFF_LIMIT: i32 = 6;

/// A way in which a job ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutcome {
    /// Whether it succeeded.
    pub success: bool,
    /// The reason, in one word.
    pub reason: String,
    /// The reason, in a sentence.
    pub message: String,
}

impl JobOutcome {
    fn failure(reason: &str, message: &str) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// The Job reached all its completions.
    pub fn completed() -> Self {
        let message = "Reached expected number of succeeded pods";
        Self { success: true, reason: "CompletionsReached".to_owned(), message: message.to_owned() }
    }
}

/// Reads a job's wishes with the defaults that the API server fills in.
#[derive(Clone, Copy)]
pub struct JobOptions<'a>(pub &'a Job);

impl<'a> JobOptions<'a> {
    fn spec(self) -> Option<&'a JobSpec> {
        self.0.spec.as_ref()
    }

    /// Pods at a time.
    pub fn parallelism(self) -> i32 {
        self.spec().and_then(|spec| spec.parallelism).unwrap_or(1)
    }

    /// Successes wanted; `None` when one success ends it.
    pub fn completions(self) -> Option<i32> {
        let spec = self.spec()?;
        match (spec.completions, spec.parallelism) {
            (None, None) => Some(1),
            (completions, _) => completions,
        }
    }

    /// Whether every completion has its own index.
    pub fn is_indexed(self) -> bool {
        self.spec().and_then(|spec| spec.completion_mode.as_deref()) == Some("Indexed")
    }

    /// Whether it is suspended.
    pub fn is_suspended(self) -> bool {
        self.spec().and_then(|spec| spec.suspend).unwrap_or_default()
    }

    fn backoff_limit(self) -> i32 {
        self.spec().and_then(|spec| spec.backoff_limit).unwrap_or(DEFAULT_BACKOFF_LIMIT)
    }

    fn active_deadline(self) -> Option<i64> {
        self.spec().and_then(|spec| spec.active_deadline_seconds)
    }

    fn restarts_in_place(self) -> bool {
        let template = self.spec().and_then(|spec| spec.template.spec.as_ref());
        template.and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure")
    }

    /// Whether a pod that is leaving is replaced only when it has gone.
    pub fn waits_for_failed(self) -> bool {
        self.spec().and_then(|spec| spec.pod_replacement_policy.as_deref()) == Some("Failed")
    }

    /// The index of a pod, if it has a valid one.
    pub fn index_of(self, pod: &Pod) -> Option<i32> {
        let index: i32 = annotation(pod, INDEX)?.parse().ok()?;
        (0..self.completions()?).contains(&index).then_some(index)
    }

    /// Whether a pod counts as failed.
    pub fn has_failed(self, pod: &Pod) -> bool {
        phase(pod) == "Failed" || (!self.waits_for_failed() && is_leaving(pod) && phase(pod) != "Succeeded")
    }
}

/// A condition of a job, when it holds.
pub fn condition<'a>(job: &'a Job, type_: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "True")
}

/// When a job ended, if it did.
pub fn finished_at(job: &Job) -> Option<Timestamp> {
    let outcome = condition(job, "Complete").or_else(|| condition(job, "Failed"))?;
    Some(outcome.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

/// Whether a pod still waits to be counted.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// The results of a Job's pods.
pub struct Tally<'a> {
    wishes: JobOptions<'a>,
    /// The pods.
    pub pods: &'a [Arc<Pod>],
    /// Finished pods that were put on the list of those to be counted.
    uncounted_succeeded: BTreeSet<String>,
    uncounted_failed: BTreeSet<String>,
    /// Indexes that are done, with the pods at hand.
    pub done: Indexes,
}

impl<'a> Tally<'a> {
    /// Looks at a job and its pods.
    pub fn new(job: &'a Job, pods: &'a [Arc<Pod>]) -> Self {
        let wishes = JobOptions(job);
        let uncounted =
            job.status.as_ref().and_then(|status| status.uncounted_terminated_pods.clone()).unwrap_or_default();
        let mut done = Indexes::default();
        if wishes.is_indexed() {
            let text = job.status.as_ref().and_then(|status| status.completed_indexes.as_deref());
            done = Indexes::parse(text.unwrap_or_default(), wishes.completions().unwrap_or_default());
            for pod in pods.iter().filter(|pod| phase(pod) == "Succeeded" && is_tracked(pod)) {
                if let Some(index) = wishes.index_of(pod) {
                    done.insert(index);
                }
            }
        }
        Self {
            wishes,
            pods,
            uncounted_succeeded: uncounted.succeeded.into_iter().flatten().collect(),
            uncounted_failed: uncounted.failed.into_iter().flatten().collect(),
            done,
        }
    }

    /// Pods that have just succeeded, and those that have just failed.
    pub fn news(&self) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
        let fresh = |known: &BTreeSet<String>, ended: &dyn Fn(&Pod) -> bool| {
            self.pods
                .iter()
                .map(|pod| &**pod)
                .filter(|pod| is_tracked(pod) && !known.contains(&pod.uid().unwrap_or_default()))
                .filter(|pod| !self.wishes.is_indexed() || self.wishes.index_of(pod).is_some())
                .filter(|pod| ended(pod))
                .collect()
        };
        (
            fresh(&self.uncounted_succeeded, &|pod| phase(pod) == "Succeeded"),
            fresh(&self.uncounted_failed, &|pod| self.wishes.has_failed(pod)),
        )
    }

    /// Successes so far.
    pub fn succeeded(&self) -> i32 {
        if self.wishes.is_indexed() {
            return self.done.len() as i32;
        }
        let counted = self.wishes.0.status.as_ref().and_then(|status| status.succeeded).unwrap_or_default();
        counted + (self.uncounted_succeeded.len() + self.news().0.len()) as i32
    }

    /// Failures so far.
    pub fn failed(&self) -> i32 {
        let counted = self.wishes.0.status.as_ref().and_then(|status| status.failed).unwrap_or_default();
        counted + (self.uncounted_failed.len() + self.news().1.len()) as i32
    }

    /// Pods that work.
    pub fn active(&self) -> Vec<Arc<Pod>> {
        self.pods.iter().filter(|pod| is_active(pod)).cloned().collect()
    }

    /// Pods that are on their way out.
    pub fn leaving(&self) -> i32 {
        self.pods.iter().filter(|pod| is_terminating(pod)).count() as i32
    }

    /// Whether the Job must end, whatever its pods are doing.
    pub fn forced_ending(&self, now: Timestamp) -> Option<JobOutcome> {
        let job = self.wishes.0;
        if let Some(decided) = condition(job, "SuccessCriteriaMet") {
            return Some(ending_of(decided, true));
        }
        if let Some(decided) = condition(job, "FailureTarget") {
            return Some(ending_of(decided, false));
        }
        if self.failed() > self.wishes.backoff_limit() || self.restarted_too_often() {
            return Some(JobOutcome::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        let started = job.status.as_ref().and_then(|status| status.start_time.as_ref())?;
        let deadline = self.wishes.active_deadline().filter(|_| !self.wishes.is_suspended())?;
        (after_seconds(started.0, deadline) <= now)
            .then(|| JobOutcome::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
    }

    /// How long until the deadline passes.
    pub fn until_deadline(&self, started: Option<&Time>, now: Timestamp) -> Option<Duration> {
        let deadline = self.wishes.active_deadline().filter(|_| !self.wishes.is_suspended())?;
        let left = Duration::try_from(after_seconds(started?.0, deadline).duration_since(now)).ok()?;
        Some(left).filter(|left| !left.is_zero())
    }

    fn restarted_too_often(&self) -> bool {
        if !self.wishes.restarts_in_place() {
            return false;
        }
        let restarts: i32 = self
            .pods
            .iter()
            .filter(|pod| matches!(phase(pod), "Running" | "Pending"))
            .filter_map(|pod| pod.status.as_ref())
            .flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses).flatten())
            .map(|container| container.restart_count)
            .sum();
        let limit = self.wishes.backoff_limit();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    /// How many pods should work now.
    pub fn wanted(&self, active: i32) -> i32 {
        let succeeded = self.succeeded();
        match self.wishes.completions() {
            None if succeeded > 0 => active,
            None => self.wishes.parallelism(),
            Some(completions) => (completions - succeeded).clamp(0, self.wishes.parallelism()),
        }
    }

    /// Whether all wanted successes are there.
    pub fn is_satisfied(&self, active: usize) -> bool {
        let succeeded = self.succeeded();
        active == 0 && self.wishes.completions().map_or(succeeded > 0, |completions| succeeded >= completions)
    }

    /// The lowest indexes without an active pod.
    pub fn free_indexes(&self, count: usize) -> Vec<i32> {
        let waits = self.wishes.waits_for_failed();
        let taken: BTreeSet<i32> = self
            .pods
            .iter()
            .filter(|pod| is_active(pod) || (waits && is_terminating(pod)))
            .filter_map(|pod| self.wishes.index_of(pod))
            .collect();
        (0..self.wishes.completions().unwrap_or_default())
            .filter(|index| !taken.contains(index) && !self.done.contains(*index))
            .take(count)
            .collect()
    }

    /// Active pods that share an index with an older one, or have none.
    pub fn duplicates(&self) -> Vec<Arc<Pod>> {
        let mut active = self.active();
        active.sort_by_key(|pod| (pod.creation_timestamp().map(|time| time.0), pod.name_any()));
        let mut seen = BTreeSet::new();
        active.retain(|pod| self.wishes.index_of(pod).is_none_or(|index| !seen.insert(index)));
        active
    }

    /// Puts finished pods on the list of those to be counted; says which lose their finalizer.
    pub fn list_uncounted(&self, status: &mut JobStatus, outcome: Option<&JobOutcome>) -> Vec<Arc<Pod>> {
        let mut release = Vec::new();
        let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
        let is_doomed = is_leaving(self.wishes.0) || outcome.is_some();
        for pod in self.pods.iter().filter(|pod| is_tracked(pod)) {
            let failed = self.wishes.has_failed(pod);
            let succeeded = phase(pod) == "Succeeded";
            if !(is_doomed || succeeded || failed) {
                continue;
            }
            release.push(Arc::clone(pod));
            let uid = pod.uid().unwrap_or_default();
            if succeeded && !self.uncounted_failed.contains(&uid) {
                if !self.wishes.is_indexed() && !self.uncounted_succeeded.contains(&uid) {
                    uncounted.succeeded.get_or_insert_default().push(uid);
                }
            } else if (failed || outcome.is_some_and(|outcome| !outcome.success))
                && !self.uncounted_failed.contains(&uid)
                && (!self.wishes.is_indexed() || self.wishes.index_of(pod).is_some())
            {
                uncounted.failed.get_or_insert_default().push(uid);
            }
            let listed = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
            if listed(&uncounted.succeeded) + listed(&uncounted.failed) >= UNCOUNTED_AT_MOST {
                break;
            }
        }
        status.uncounted_terminated_pods = Some(uncounted);
        if self.wishes.is_indexed() {
            status.completed_indexes = Some(self.done.to_string()).filter(|text| !text.is_empty());
            status.succeeded = Some(self.done.len() as i32).filter(|count| *count != 0);
        }
        release
    }

    /// The ready ones among the active pods.
    pub fn ready(&self) -> i32 {
        self.pods.iter().filter(|pod| is_active(pod) && is_ready(pod)).count() as i32
    }
}

/// Counts listed pods that have lost their finalizer; says whether any are left on the list.
pub fn count_released(status: &mut JobStatus, still_tracked: &BTreeSet<String>) -> bool {
    let mut uncounted: UncountedTerminatedPods = status.uncounted_terminated_pods.take().unwrap_or_default();
    let count = |list: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
        let uids = list.take().unwrap_or_default();
        let (left, gone): (Vec<_>, Vec<_>) = uids.into_iter().partition(|uid| still_tracked.contains(uid));
        if !gone.is_empty() {
            *counter = Some(counter.unwrap_or_default() + gone.len() as i32);
        }
        *list = (!left.is_empty()).then_some(left);
    };
    count(&mut uncounted.succeeded, &mut status.succeeded);
    count(&mut uncounted.failed, &mut status.failed);
    let is_left = uncounted.succeeded.is_some() || uncounted.failed.is_some();
    status.uncounted_terminated_pods = Some(uncounted);
    is_left
}

/// Sets a condition, moving its time only when its status changes; says whether it changed.
/// A condition that is false is not added, only taken back.
pub fn set_condition(
    status: &mut JobStatus,
    type_: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: &Time,
) -> bool {
    let wanted = if holds { "True" } else { "False" };
    let conditions = status.conditions.get_or_insert_default();
    let fresh = JobCondition {
        type_: type_.to_owned(),
        status: wanted.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(known) if known.status == wanted => false,
        Some(known) => {
            *known = fresh;
            true
        }
        None if holds => {
            conditions.push(fresh);
            true
        }
        None => false,
    }
}

fn ending_of(decided: &JobCondition, success: bool) -> JobOutcome {
    JobOutcome {
        success,
        reason: decided.reason.clone().unwrap_or_default(),
        message: decided.message.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(spec: Value, status: Value) -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "sum", "uid": "j"},
            "spec": {"template": {"spec": {"containers": []}}},
            "status": status,
        }))
        .map(|mut job: Job| {
            let mut value = serde_json::to_value(&job.spec).expect("json");
            for (key, field) in spec.as_object().expect("an object") {
                value[key] = field.clone();
            }
            job.spec = serde_json::from_value(value).expect("a spec");
            job
        })
        .expect("a job")
    }

    /// `a Running`, `b Succeeded 3` (index), `c Running leaving`, `d Failed free` (no finalizer).
    fn pods(lines: &[&str]) -> Vec<Arc<Pod>> {
        lines
            .iter()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let mut pod = json!({
                    "metadata": {"name": words[0], "uid": words[0], "finalizers": [FINALIZER], "annotations": {}},
                    "status": {"phase": words[1]},
                });
                for word in &words[2..] {
                    match *word {
                        "leaving" => pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                        "free" => pod["metadata"]["finalizers"] = json!([]),
                        index => pod["metadata"]["annotations"][INDEX] = json!(index),
                    }
                }
                Arc::new(serde_json::from_value(pod).expect("a pod"))
            })
            .collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    #[test]
    fn pods_wanted_follow_successes() {
        let many = job(json!({"completions": 5, "parallelism": 2}), json!({"succeeded": 2}));
        let running = pods(&["a Running"]);
        assert_eq!(Tally::new(&many, &running).wanted(1), 2);
        let nearly = pods(&["a Running", "b Succeeded", "c Succeeded"]);
        let tally = Tally::new(&many, &nearly);
        assert_eq!((tally.succeeded(), tally.wanted(1)), (4, 1));
        let single = job(json!({}), json!({}));
        assert_eq!(Tally::new(&single, &[]).wanted(0), 1);
        let queue = job(json!({"parallelism": 3}), json!({}));
        assert_eq!(Tally::new(&queue, &[]).wanted(0), 3);
        let done = pods(&["a Succeeded", "b Running"]);
        let tally = Tally::new(&queue, &done);
        assert_eq!(tally.wanted(1), 1, "one success: no new pods");
        assert!(!tally.is_satisfied(1));
        assert!(tally.is_satisfied(0));
    }

    #[test]
    fn failures_end_a_job() {
        let job = job(
            json!({"backoffLimit": 1, "activeDeadlineSeconds": 60}),
            json!({"startTime": at(0).to_string(), "failed": 1}),
        );
        assert_eq!(Tally::new(&job, &[]).forced_ending(at(59)), None);
        let outcome = Tally::new(&job, &[]).forced_ending(at(60)).expect("an ending");
        assert_eq!(outcome.reason, "DeadlineExceeded");
        let started = Time(at(0));
        assert_eq!(Tally::new(&job, &[]).until_deadline(Some(&started), at(59)), Some(Duration::from_secs(1)));
        assert_eq!(Tally::new(&job, &[]).until_deadline(Some(&started), at(60)), None);
        let failed = pods(&["a Failed"]);
        assert_eq!(Tally::new(&job, &failed).forced_ending(at(1)).expect("an ending").reason, "BackoffLimitExceeded");
        let counted = pods(&["a Failed free"]);
        assert_eq!(Tally::new(&job, &counted).forced_ending(at(1)), None, "it was counted before");
        let leaving = pods(&["a Running leaving"]);
        assert_eq!(Tally::new(&job, &leaving).failed(), 2, "a pod that is deleted has failed");
    }

    #[test]
    fn indexes_are_handed_out_lowest_first() {
        let job = job(
            json!({"completions": 6, "parallelism": 3, "completionMode": "Indexed"}),
            json!({"completedIndexes": "0,2"}),
        );
        let pods = pods(&["a Running 1", "b Succeeded 4", "c Running 1", "d Running"]);
        let tally = Tally::new(&job, &pods);
        assert_eq!(tally.succeeded(), 3);
        assert_eq!(tally.free_indexes(9), [3, 5]);
        let doubles: Vec<String> = tally.duplicates().iter().map(|pod| pod.name_any()).collect();
        assert_eq!(doubles, ["c", "d"]);
    }

    #[test]
    fn every_end_is_counted_exactly_once() {
        let job = job(json!({"completions": 3}), json!({"succeeded": 1}));
        let ended = pods(&["a Succeeded", "b Failed", "c Running"]);
        let tally = Tally::new(&job, &ended);
        let mut status = job.status.clone().expect("a status");
        let release = tally.list_uncounted(&mut status, None);
        assert_eq!(release.len(), 2);
        assert_eq!((status.succeeded, status.failed), (Some(1), None), "listed, not counted");
        // The controller dies here and finds the list and the pods again.
        let mut revived = job.clone();
        revived.status = Some(status.clone());
        let tally = Tally::new(&revived, &ended);
        assert_eq!((tally.succeeded(), tally.failed()), (2, 1));
        let again = tally.list_uncounted(&mut status, None);
        assert_eq!(again.len(), 2);
        // One pod has lost its finalizer.
        assert!(count_released(&mut status, &BTreeSet::from(["b".to_owned(), "c".to_owned()])));
        assert_eq!((status.succeeded, status.failed), (Some(2), None));
        assert!(!count_released(&mut status, &BTreeSet::from(["c".to_owned()])));
        assert_eq!((status.succeeded, status.failed), (Some(2), Some(1)));
    }
}
