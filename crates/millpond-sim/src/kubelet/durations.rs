//! Simulated durations: annotations first, then options.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::annotations;
use crate::meta::{annotation, controller_of};
use crate::options::Options;

/// How long the stages of a pod's life take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// From binding to running.
    pub start: Duration,
    /// From running until the containers exit; `None` for pods that run until they are deleted.
    pub run: Option<Duration>,
    /// From the request to stop until the containers have stopped.
    pub stop: Duration,
    /// The code of the end.
    pub exit_code: i32,
}

impl Durations {
    /// Reads a pod.
    pub fn of(pod: &Pod, options: &Options) -> Self {
        let read = |name: &str| annotation(pod, name).and_then(parse);
        let is_of_job = controller_of(pod).is_some_and(|owner| owner.kind == "Job");
        Self {
            start: read(annotations::START_AFTER).unwrap_or_else(|| with_jitter(pod, options)),
            run: read(annotations::RUN_FOR).or_else(|| is_of_job.then_some(options.job_duration)),
            stop: read(annotations::STOP_AFTER).unwrap_or(options.pod_shutdown),
            exit_code: annotation(pod, annotations::EXIT_CODE).and_then(|text| text.parse().ok()).unwrap_or_default(),
        }
    }
}

/// Adds up to half, decided by seed and name, so that pods do not start in step.
fn with_jitter(pod: &Pod, options: &Options) -> Duration {
    // The standard hasher with its fixed keys: the same in every run.
    let mut hasher = DefaultHasher::new();
    (options.seed, pod.namespace(), pod.name_any()).hash(&mut hasher);
    let share = (hasher.finish() % 1000) as f64 / 2000.0;
    options.pod_startup.mul_f64(1.0 + share)
}

/// Reads `90s`, `1m30s`, `250ms`, `2h` or plain seconds.
pub fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).filter(|end| *end > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in
            [("30s", 30.0), ("1m30s", 90.0), ("2h", 7200.0), ("250ms", 0.25), ("15", 15.0), ("1.5s", 1.5)]
        {
            assert_eq!(parse(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "5 s", "5x", "-3s"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn jitter_is_bounded_and_repeatable() {
        let options = Options { seed: 3, pod_startup: Duration::from_secs(2), ..Options::default() };
        let pod = |name: &str| -> Pod {
            serde_json::from_value(serde_json::json!({"metadata": {"name": name, "namespace": "ns"}})).expect("a pod")
        };
        let starts: Vec<Duration> = (0..50).map(|n| Durations::of(&pod(&format!("p{n}")), &options).start).collect();
        assert!(starts.iter().all(|start| (2.0..=3.0).contains(&start.as_secs_f64())));
        assert!(starts.iter().any(|start| *start != starts[0]));
        assert_eq!(Durations::of(&pod("p0"), &options).start, starts[0]);
    }
}
