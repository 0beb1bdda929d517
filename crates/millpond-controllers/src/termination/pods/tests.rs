//! Pods are written as words, what is done about them is read back as words.

use serde_json::{Value, json};

use super::*;

/// Seconds are counted from here.
const ZERO: i64 = 1_800_000_000;

fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_second(ZERO + seconds).unwrap()
}

fn time(seconds: &str) -> String {
    moment(seconds.parse().unwrap()).to_string()
}

/// `b critical daemon grace=60 leaving=20 hold=5m started=-10 ended static tolerates=Exists`
fn pod(text: &str) -> Arc<Pod> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap();
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {}, "ownerReferences": []},
        "spec": {"containers": [], "terminationGracePeriodSeconds": 30, "tolerations": []},
        "status": {"phase": "Running"},
    });
    let owner = |kind: &str, version: &str| json!({"apiVersion": version, "kind": kind, "name": "o", "uid": "o"});
    let push = |pod: &mut Value, path: &str, value: Value| {
        pod.pointer_mut(path).and_then(Value::as_array_mut).unwrap().push(value);
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("critical", _) => pod["spec"]["priorityClassName"] = json!("system-cluster-critical"),
            ("daemon", _) => push(&mut pod, "/metadata/ownerReferences", owner("DaemonSet", "apps/v1")),
            ("static", _) => push(&mut pod, "/metadata/ownerReferences", owner("Node", "v1")),
            ("mirror", _) => pod["metadata"]["annotations"][MIRROR_ANNOTATION] = json!("x"),
            ("grace", seconds) => {
                pod["spec"]["terminationGracePeriodSeconds"] = json!(seconds.parse::<i64>().unwrap());
            }
            ("cpu" | "memory", amount) => {
                let name = word.split_once('=').unwrap().0;
                push(&mut pod, "/spec/containers", json!({"name": "c", "resources": {"requests": {name: amount}}}));
            }
            ("leaving", at) => pod["metadata"]["deletionTimestamp"] = json!(time(at)),
            ("started", at) => pod["status"]["startTime"] = json!(time(at)),
            ("hold", text) => pod["metadata"]["annotations"][DO_NOT_DISRUPT] = json!(text),
            ("phase", phase) => pod["status"]["phase"] = json!(phase),
            ("tolerates", "all") => push(&mut pod, "/spec/tolerations", json!({"operator": "Exists"})),
            ("tolerates", "equal") => push(&mut pod, "/spec/tolerations", json!({"key": DISRUPTED_TAINT})),
            ("tolerates", effect) => {
                let toleration = json!({"key": DISRUPTED_TAINT, "operator": "Exists", "effect": effect});
                push(&mut pod, "/spec/tolerations", toleration);
            }
            (other, _) => panic!("{other}?"),
        }
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// What is done at second 0, with or without a deadline.
fn drained(deadline: Option<i64>, pods: &[&str]) -> String {
    let pods: Vec<Arc<Pod>> = pods.iter().map(|text| pod(text)).collect();
    let drain = drain(&pods, moment(0), deadline.map(moment));
    let mut words = Vec::new();
    words.extend(drain.delete.iter().map(|(pod, seconds)| format!("delete {} in {seconds}s", pod.name_any())));
    words.extend(drain.evict.iter().map(|pod| format!("evict {}", pod.name_any())));
    words.extend(drain.held.iter().map(|pod| format!("hold {}", pod.name_any())));
    words.push(format!("{} left", drain.left));
    words.extend(drain.again.map(|again| format!("again {}", again.as_second() - ZERO)));
    words.join(", ")
}

fn check(cases: &[(&str, Option<i64>, &[&str], &str)]) {
    for (what, deadline, pods, expected) in cases {
        assert_eq!(drained(*deadline, pods), *expected, "{what}");
    }
}

#[test]
fn tiers_leave_one_after_the_other() {
    check(&[
        ("workloads first", None, &["cd critical daemon", "c critical", "d daemon", "w"], "evict w, 4 left"),
        ("then daemons", None, &["cd critical daemon", "c critical", "d daemon"], "evict d, 3 left"),
        ("then what is critical", None, &["cd critical daemon", "c critical"], "evict c, 2 left"),
        ("critical daemons last", None, &["cd critical daemon"], "evict cd, 1 left"),
        ("all of a tier together", None, &["a", "b", "d daemon"], "evict a, evict b, 3 left"),
        (
            "a pod that is on its way out holds the next tier up, until it is stuck",
            None,
            &["w leaving=20", "d daemon"],
            "2 left, again 80",
        ),
        ("a held one as well", None, &["w hold=true", "d daemon"], "hold w, 2 left"),
        ("nothing is left", None, &[], "0 left"),
    ]);
}

#[test]
fn some_pods_are_not_waited_for() {
    check(&[
        ("static pods", None, &["a static", "b mirror"], "0 left"),
        (
            "who tolerates the taint",
            None,
            &["a tolerates=all", "b tolerates=equal", "c tolerates=NoSchedule"],
            "0 left",
        ),
        ("who tolerates another effect leaves", None, &["a tolerates=NoExecute"], "evict a, 1 left"),
        ("who has ended", None, &["a phase=Succeeded", "b phase=Failed"], "0 left"),
        ("who should be gone for a minute", None, &["a leaving=-60"], "0 left"),
        ("but not sooner", None, &["a leaving=-59"], "1 left, again 1"),
        ("pods that never ran leave like others", None, &["a phase=Pending"], "evict a, 1 left"),
    ]);
}

#[test]
fn pods_can_ask_not_to_be_disrupted() {
    check(&[
        ("for good", None, &["a hold=true", "b"], "evict b, hold a, 2 left"),
        ("for a while", None, &["a hold=5m started=-10"], "hold a, 1 left, again 290"),
        ("for a while that is over", None, &["a hold=5m started=-300"], "evict a, 1 left"),
        ("for a while that has not begun", None, &["a hold=5m"], "hold a, 1 left"),
        (
            "not in an unknown unit",
            None,
            &["a hold=yes", "b hold=0s", "c hold=-5m"],
            "evict a, evict b, evict c, 3 left",
        ),
    ]);
    let misspelt = ["a hold=yes", "a hold=0s", "a hold=true", "a hold=5m", "a"].map(|text| is_misspelt(&pod(text)));
    assert_eq!(misspelt, [true, true, false, false, false]);
}

#[test]
fn a_deadline_is_kept() {
    check(&[
        ("far away: politely, until its own time is needed", Some(100), &["a"], "evict a, 1 left, again 70"),
        ("held pods too", Some(100), &["a hold=true"], "hold a, 1 left, again 70"),
        ("then no wish counts", Some(30), &["a hold=true"], "delete a in 30s, 1 left"),
        (
            "nor the tier",
            Some(60),
            &["w", "cd critical daemon grace=60"],
            "delete cd in 60s, evict w, 2 left, again 30",
        ),
        ("more time than there is", Some(10), &["a grace=3600"], "delete a in 10s, 1 left"),
        ("never none at all", Some(-5), &["a"], "delete a in 1s, 1 left"),
        ("on its way out, too late: sooner", Some(10), &["a grace=3600 leaving=3600"], "delete a in 10s, 1 left"),
        ("on its way out, in time: as it is", Some(10), &["a grace=3600 leaving=10"], "1 left, again 70"),
        ("what was made shorter is not made shorter again", Some(-5), &["a leaving=1"], "1 left, again 61"),
        ("late ones get a second", Some(-5), &["a grace=600 leaving=300"], "delete a in 1s, 1 left"),
        ("the first moment counts", Some(100), &["a grace=10", "b grace=50"], "evict a, evict b, 2 left, again 50"),
    ]);
}

#[test]
fn large_pods_leave_first() {
    let pods = ["a cpu=100m memory=1Gi", "b cpu=100m", "c cpu=2", "d memory=8Gi", "e", "f cpu=2", "g cpu=lots"];
    let pods: Vec<Arc<Pod>> = pods.iter().map(|text| pod(text)).collect();
    let order: Vec<String> = drain(&pods, moment(0), None).evict.iter().map(|pod| pod.name_any()).collect();
    assert_eq!(order, ["c", "d", "f", "a", "b", "e", "g"], "of equal ones as they stand");
}
