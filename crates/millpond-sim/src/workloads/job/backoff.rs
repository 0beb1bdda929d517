//! How long a job waits after failures before it makes the next pod.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::meta::pod_condition;

/// The wait after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(10);
/// The longest wait.
const LONGEST: Duration = Duration::from_mins(10);

/// The failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// Counts pods that have just ended.
    pub fn after(self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let last_success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let mut backoff = if last_success.is_some() { Self::default() } else { self };
        for moment in failed.iter().map(|pod| finished_at(pod)) {
            if last_success.is_none_or(|success| moment > success) {
                backoff.failures += 1;
                backoff.last = backoff.last.max(Some(moment));
            }
        }
        backoff
    }

    /// How long to wait still.
    pub fn remaining(self, now: Timestamp) -> Option<Duration> {
        let last = self.last?;
        let doublings = self.failures.checked_sub(1)?.min(16);
        let wait = FIRST.saturating_mul(1 << doublings).min(LONGEST);
        let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
        wait.checked_sub(passed).filter(|left| !left.is_zero())
    }
}

/// When a pod ended: its last container, or what comes nearest to it.
pub fn finished_at(pod: &Pod) -> Timestamp {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let ends: Option<Vec<Timestamp>> = containers
        .iter()
        .map(|container| Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0))
        .collect();
    let not_ready = || {
        let condition = pod_condition(pod, "Ready").filter(|condition| condition.status == "False")?;
        condition.last_transition_time.as_ref().map(|time| time.0)
    };
    ends.and_then(|ends| ends.into_iter().max())
        .or_else(not_ready)
        .or_else(|| pod.metadata.deletion_timestamp.as_ref().map(|time| time.0))
        .or_else(|| pod.creation_timestamp().map(|time| time.0))
        .unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended(second: i64) -> Pod {
        let time = Timestamp::from_second(1_800_000_000 + second).expect("a time").to_string();
        serde_json::from_value(json!({"status": {"containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"terminated": {"exitCode": 1, "finishedAt": time}}}]}}))
        .expect("a pod")
    }

    #[test]
    fn failures_add_up_until_a_success() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).expect("a time");
        let (one, two) = (ended(0), ended(5));
        let once = Backoff::default().after(&[], &[&one]);
        assert_eq!(once.remaining(at(4)), Some(Duration::from_secs(6)));
        assert_eq!(once.remaining(at(10)), None);
        let twice = once.after(&[], &[&two]);
        assert_eq!(twice.remaining(at(5)), Some(Duration::from_secs(20)));
        let cured = twice.after(&[&ended(7)], &[]);
        assert_eq!(cured.remaining(at(8)), None);
        let relapsed = twice.after(&[&ended(3)], &[&two]);
        assert_eq!(relapsed.remaining(at(5)), Some(Duration::from_secs(10)), "only what came after the success");
    }
}
