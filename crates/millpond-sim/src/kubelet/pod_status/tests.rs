//! A pod's life, step by step.

use serde_json::{Value, json};

use super::*;

/// A pod that is bound at second zero.
fn pod(spec: Value, meta: Value) -> Pod {
    let mut value = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {"nodeName": "n", "restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending", "qosClass": "BestEffort", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0).to_string()}]},
    });
    for (part, more) in [("spec", spec), ("metadata", meta)] {
        for (key, field) in more.as_object().expect("an object") {
            value[part][key] = field.clone();
        }
    }
    serde_json::from_value(value).expect("a pod")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a time")
}

fn durations() -> Durations {
    Durations { start: Duration::from_secs(1), run: None, stop: Duration::from_secs(3), exit_code: 0 }
}

fn step(pod: &Pod, durations: Durations, second: i64) -> Step {
    let facts = Facts { pod, now: at(second), durations, host_address: "10.64.0.1".to_owned() };
    facts.step(|| "10.128.0.1".to_owned())
}

/// Takes the step and writes its status into the pod.
fn advance(pod: &mut Pod, durations: Durations, second: i64) -> Option<Duration> {
    match step(pod, durations, second) {
        Step::Write { status, then } => {
            pod.status = Some(*status);
            then
        }
        other => panic!("no status at {second}: {other:?}"),
    }
}

fn story(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let conditions: Vec<String> =
        status.conditions.iter().flatten().map(|one| format!("{}={}", one.type_, one.status)).collect();
    format!("{} {}", status.phase.unwrap_or_default(), conditions.join(" "))
}

#[test]
fn a_bound_pod_runs_after_a_while() {
    let mut pod = pod(json!({}), json!({}));
    assert_eq!(step(&pod, durations(), 0), Step::Wait(Duration::from_secs(1)));
    assert_eq!(advance(&mut pod, durations(), 1), None);
    assert_eq!(
        story(&pod),
        "Running PodScheduled=True PodReadyToStartContainers=True Initialized=True ContainersReady=True Ready=True"
    );
    let status = pod.status.clone().expect("a status");
    assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("10.128.0.1"), Some("10.64.0.1")));
    assert_eq!(status.start_time, Some(Time(at(1))));
    let container = &status.container_statuses.expect("containers")[0];
    assert!(container.ready && container.started == Some(true));
    assert_eq!(step(&pod, durations(), 1_000_000), Step::Rest, "and then it is quiet");
}

#[test]
fn a_slow_start_is_shown() {
    let mut pod = pod(json!({"initContainers": [{"name": "i"}]}), json!({}));
    let slow = Durations { start: Duration::from_mins(1), ..durations() };
    assert_eq!(advance(&mut pod, slow, 0), Some(Duration::from_mins(1)));
    assert_eq!(
        story(&pod),
        "Pending PodScheduled=True PodReadyToStartContainers=False Initialized=True Ready=False ContainersReady=False"
    );
    assert_eq!(step(&pod, slow, 10), Step::Wait(Duration::from_secs(50)));
    advance(&mut pod, slow, 60);
    assert!(story(&pod).starts_with("Running"));
    assert_eq!(pod.status.expect("a status").start_time, Some(Time(at(0))));
}

#[test]
fn pods_end_by_themselves() {
    for (policy, code, phase) in [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")] {
        let mut pod = pod(json!({"restartPolicy": policy}), json!({}));
        let short = Durations { run: Some(Duration::from_secs(30)), exit_code: code, ..durations() };
        advance(&mut pod, short, 1);
        assert_eq!(step(&pod, short, 2), Step::Wait(Duration::from_secs(29)));
        advance(&mut pod, short, 31);
        assert!(story(&pod).starts_with(phase), "{policy} {code}: {}", story(&pod));
        let status = pod.status.clone().expect("a status");
        let end = status.container_statuses.expect("containers")[0].state.clone().expect("a state");
        assert_eq!(end.terminated.expect("an end").exit_code, code);
        assert_eq!(step(&pod, short, 99), Step::Rest);
    }
}

#[test]
fn failing_containers_are_restarted_ever_later() {
    let mut pod = pod(json!({"restartPolicy": "OnFailure"}), json!({}));
    let crashing = Durations { run: Some(Duration::from_secs(5)), exit_code: 1, ..durations() };
    let mut second = 1;
    advance(&mut pod, crashing, second);
    for (restart, wait) in [(1, 10), (2, 20), (3, 40)] {
        second += 5;
        advance(&mut pod, crashing, second);
        assert!(story(&pod).starts_with("Running") && story(&pod).contains("Ready=False"));
        assert_eq!(step(&pod, crashing, second), Step::Wait(Duration::from_secs(wait)));
        second += wait as i64;
        advance(&mut pod, crashing, second);
        let status = pod.status.clone().expect("a status");
        let container = &status.container_statuses.expect("containers")[0];
        assert_eq!((container.restart_count, container.ready), (restart, true));
        assert!(container.last_state.is_some());
    }
}

#[test]
fn deletion_takes_the_time_it_takes_but_not_more_than_its_grace() {
    let leaving = json!({"deletionTimestamp": at(130).to_string(), "deletionGracePeriodSeconds": 30});
    let mut running = pod(json!({}), json!({}));
    advance(&mut running, durations(), 1);
    running.metadata.deletion_timestamp = serde_json::from_value(leaving["deletionTimestamp"].clone()).expect("a time");
    running.metadata.deletion_grace_period_seconds = Some(30);
    assert_eq!(step(&running, durations(), 100), Step::Wait(Duration::from_secs(3)));
    assert_eq!(step(&running, durations(), 103), Step::Remove);
    let stubborn = Durations { stop: Duration::from_mins(10), ..durations() };
    assert_eq!(step(&running, stubborn, 100), Step::Wait(Duration::from_secs(30)));
    assert_eq!(step(&running, stubborn, 130), Step::Remove);
    let pending = pod(json!({}), leaving);
    assert_eq!(step(&pending, durations(), 100), Step::Remove, "nothing runs yet");
}

#[test]
fn held_pods_show_their_end_first() {
    let mut pod = pod(json!({"restartPolicy": "Never"}), json!({"finalizers": ["hold"]}));
    advance(&mut pod, durations(), 1);
    pod.metadata.deletion_timestamp = Some(Time(at(130)));
    pod.metadata.deletion_grace_period_seconds = Some(30);
    assert_eq!(advance(&mut pod, durations(), 103), Some(Duration::ZERO));
    assert!(story(&pod).starts_with("Failed"));
    assert_eq!(step(&pod, durations(), 103), Step::Remove);
    pod.metadata.deletion_grace_period_seconds = Some(0);
    assert_eq!(step(&pod, durations(), 104), Step::Rest, "it is up to the holder now");
}

#[test]
fn readiness_gates_are_waited_for() {
    let mut pod = pod(json!({"readinessGates": [{"conditionType": "lb"}]}), json!({}));
    advance(&mut pod, durations(), 1);
    assert!(story(&pod).contains("ContainersReady=True Ready=False"));
    let conditions = pod.status.as_mut().and_then(|status| status.conditions.as_mut()).expect("conditions");
    conditions.push(PodCondition { type_: "lb".into(), status: "True".into(), ..PodCondition::default() });
    advance(&mut pod, durations(), 50);
    assert!(story(&pod).contains("Ready=True lb=True"));
}

#[test]
fn deadlines_end_pods() {
    let mut pod = pod(json!({"activeDeadlineSeconds": 60}), json!({}));
    advance(&mut pod, durations(), 1);
    assert_eq!(step(&pod, durations(), 2), Step::Wait(Duration::from_secs(59)));
    advance(&mut pod, durations(), 61);
    assert!(story(&pod).starts_with("Failed"));
    assert_eq!(pod.status.expect("a status").reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn qos_follows_requests_and_limits() {
    let class = |resources: Value| {
        qos_class(
            &serde_json::from_value(json!({"containers": [{"name": "c", "resources": resources}]})).expect("a spec"),
        )
    };
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(class(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
    let mixed = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(class(mixed), "Burstable");
}
