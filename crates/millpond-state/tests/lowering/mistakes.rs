//! What is wrong in files is told with file, line, column and text.

use millpond_state::{LIMIT_BYTES, Options, Reader, Severity};

use crate::support::{errors, read};

fn warnings(text: &str) -> Vec<String> {
    let reading = read(text);
    assert_eq!(reading.errors, []);
    reading.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn yaml_and_json_name_the_same_place() {
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: c\n    resources:\n      requests:\n        cpu: lots\n";
    let expected =
        "field `spec.containers[0].resources.requests.cpu`: `lots` is not a quantity such as `500m`, `4` or `16Gi`";
    assert_eq!(errors(yaml), [format!("test.yaml:10:14: Pod/p: {expected}")]);
    let json = "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"p\"},\n \"spec\": {\"containers\": [{\"name\": \"c\", \"resources\": {\"requests\":\n  {\"cpu\": \"lots\"}}}]}}";
    assert_eq!(errors(json), [format!("test.yaml:3:11: Pod/p: {expected}")]);
    let in_list = format!("{{\"items\": [\n{json}], \"kind\": \"List\", \"apiVersion\": \"v1\"}}");
    assert_eq!(errors(&in_list), [format!("test.yaml:4:11: Pod/p: {expected}")]);
}

#[test]
fn wrong_types() {
    let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{{spec}}}\n");
    for (spec, expected) in [
        ("containers: 5", "spec.containers`: `5` is a number, not a list"),
        ("nodeSelector: {a: true}", "spec.nodeSelector.a`: `true` is a boolean, not a text; put it in quotes"),
        ("nodeSelector: {a: 5}", "spec.nodeSelector.a`: `5` is a number, not a text; put it in quotes"),
        ("nodeSelector: [a]", "spec.nodeSelector`: is a list, not a map of texts"),
        ("priority: high", "spec.priority`: `high` is a text, not a whole number of 32 bits"),
        ("priority: 99999999999", "spec.priority`: `99999999999` is not a whole number of 32 bits"),
        ("hostNetwork: 'yes'", "spec.hostNetwork`: `yes` is a text, not a boolean"),
        (
            "containers: [{ports: [{hostPort: 70000}]}]",
            "hostPort`: `70000` is not a whole number of 16 bits, not negative",
        ),
        ("containers: [{ports: [{hostPort: -1}]}]", "hostPort`: `-1` is not a whole number of 16 bits, not negative"),
        ("containers: [{resources: {requests: {memory: -1Gi}}}]", "memory`: `-1Gi` is a negative quantity"),
        ("containers: [{resources: {requests: {memory: 99999Ei}}}]", "memory`: `99999Ei` is too large a quantity"),
        ("preemptionPolicy: Sometimes", "preemptionPolicy`: `Sometimes` is not one of PreemptLowerPriority, Never"),
    ] {
        let all = errors(&pod(spec));
        assert!(all.len() == 1 && all[0].ends_with(expected), "wanted: {expected}\ngot: {all:?}");
    }
    // What is null is as good as not there.
    assert_eq!(errors(&pod("containers: null, priority: ~, nodeSelector:")), [""; 0]);
    let name = "apiVersion: v1\nkind: Pod\nmetadata: {name: 5}\nspec: {}\n";
    assert_eq!(errors(name), ["test.yaml:3:18: field `metadata.name`: `5` is a number, not a text; put it in quotes"]);
    assert_eq!(errors("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"), ["test.yaml:1:1: Pod/p: `spec` is missing"]);
    assert_eq!(
        errors("apiVersion: v1\nkind: Node\nmetadata: {}\n"),
        ["test.yaml:3:1: field `metadata.name`: is missing"]
    );
}

#[test]
fn unknown_kinds() {
    let text = "apiVersion: karpenter.sh/v1\nkind: Nodepool\nmetadata: {name: a}\n---\napiVersion: karpenter.sh/v1\nkind: Nodepool\n---\napiVersion: v1\nkind: Service\n---\napiVersion: apps/v1beta1\nkind: Pod\n---\napiVersion: example.com/v1\nkind: Teapot\n";
    assert_eq!(
        warnings(text),
        [
            "test.yaml:2:7: field `kind`: `karpenter.sh/v1` `Nodepool` is an unknown kind and skipped; is `NodePool` meant?",
            "test.yaml:12:7: field `kind`: `apps/v1beta1` `Pod` is an unknown kind and skipped; the one that is known is of `v1`",
            "test.yaml:15:7: field `kind`: `example.com/v1` `Teapot` is an unknown kind and skipped",
        ]
    );
    assert_eq!(errors("a: b\n"), ["test.yaml:1:1: is no object: it has no `kind`"]);
    assert_eq!(errors("{\"a\": \"b\"}"), ["test.yaml:1:1: is no object: it has no `kind`"]);
    assert_eq!(errors("just words\n"), ["test.yaml:1:1: is no object: it has no `kind`"]);
}

#[test]
fn unknown_fields() {
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, lables: {}}\nspec:\n  nodeselector: {}\n  containers:\n  - name: c\n    resources: {request: {cpu: 1}}\n    anything: 5\n  - name: d\n    anything: 5\n";
    let expected = [
        "field `metadata.lables`: is unknown to Pod and skipped; is `labels` meant?",
        "field `spec.nodeselector`: is unknown to Pod and skipped; is `nodeSelector` meant?",
        "field `spec.containers[0].resources.request`: is unknown to Pod and skipped; is `requests` meant?",
        "field `spec.containers[0].anything`: is unknown to Pod and skipped",
    ];
    let places = ["3:21", "5:3", "8:17", "9:5"];
    let expected: Vec<String> =
        places.iter().zip(expected).map(|(place, text)| format!("test.yaml:{place}: {text}")).collect();
    assert_eq!(warnings(yaml), expected);
    let json = r#"{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {"template": {"spec": {"nodeClassRef": {"name": "x"}, "expireafter": "1h"}}}}"#;
    assert_eq!(
        warnings(json),
        [
            "test.yaml:1:144: field `spec.template.spec.expireafter`: is unknown to NodePool and skipped; is `expireAfter` meant?"
        ]
    );
    // The server does not misspell.
    let from_server = yaml.replace("name: p,", "name: p, uid: abc,");
    assert_eq!(warnings(&from_server), [""; 0]);
}

#[test]
fn the_same_object_twice() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a}\nspec: {}\n";
    assert_eq!(
        errors(&format!("{pod}---\n{pod}")),
        ["test.yaml:8:18: Pod/p: field `metadata.name`: `p` is there twice"]
    );
    let other = pod.replace("namespace: a", "namespace: b");
    assert_eq!(errors(&format!("{pod}---\n{other}")), [""; 0]);
    let mut reader = Reader::new();
    reader.add("one.yaml", pod.as_bytes());
    reader.add("two.yaml", pod.as_bytes());
    let reading = reader.finish();
    assert_eq!(
        reading.errors[0].to_string(),
        "two.yaml:3:18: Pod/p: field `metadata.name`: `p` is there already, in one.yaml"
    );
    assert_eq!(reading.errors[0].severity, Severity::Error);
    // Two exports of one cluster overlap, and do no harm.
    let exported = pod.replace("name: p,", "name: p, resourceVersion: '5',");
    assert_eq!(errors(&format!("{exported}---\n{exported}")), [""; 0]);
}

#[test]
fn broken_files() {
    let cases: [(&str, &[u8], &str); 8] = [
        ("a.yaml", b"a: [1, 2", "a.yaml:1:4: is not YAML: "),
        ("a.yaml", b"a: 1\na: 2\n", "a.yaml:2:1: the key `a` is there twice"),
        ("a.json", b"{\"a\": 1,}", "a.json:1:9: is not JSON: "),
        ("a.json", "{\n\"äöü\": x}".as_bytes(), "a.json:2:8: is not JSON: "),
        ("a.json", b"apiVersion: v1", "a.json:1:1: is not JSON: "),
        ("a.yaml", b"a: b\nc: \xff", "a.yaml:2:4: is not text in UTF-8"),
        ("a.yaml", b"? [a, b]\n: c\n", "a.yaml:1:3: is a key that is not a word"),
        ("a.yaml", b"a: *unknown\n", "a.yaml:1:4: is not YAML: "),
    ];
    for (file, bytes, expected) in cases {
        let mut reader = Reader::new();
        reader.add(file, bytes);
        let errors = reader.finish().errors;
        let first = errors.first().map(ToString::to_string).unwrap_or_default();
        assert!(errors.len() == 1 && first.starts_with(expected), "wanted: {expected}\ngot: {first}");
    }
    for nothing in ["", "\n", "---\n---\n", "# only words\n", "null", "\u{feff}"] {
        assert_eq!(errors(nothing), [""; 0], "{nothing:?}");
    }
}

#[test]
fn what_is_right_is_used_beside_what_is_wrong() {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priority: x}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {}}\n";
    let reading = read(text);
    assert_eq!((reading.errors.len(), reading.state.pods()), (1, 1));
}

#[test]
fn messages_are_bounded() {
    let pods: String = (0..500)
        .map(|index| {
            format!(
                "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{index}}}, spec: {{priority: {}}}}}\n",
                "x".repeat(1000)
            )
        })
        .collect();
    let reading = read(&pods);
    assert_eq!((reading.errors.len(), reading.more), (100, 400));
    assert!(reading.errors.iter().all(|error| error.to_string().len() < 300));
}

#[test]
fn anchors_and_merge_keys() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- &base\n  apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n  spec: &spec\n    priority: 5\n- <<: *base\n  metadata: {name: b}\n- {apiVersion: v1, kind: Pod, metadata: {name: c}, spec: *spec}\n";
    let reading = read(text);
    assert_eq!((reading.errors.len(), reading.state.pods(), reading.state.lowered()), (0, 3, 1));
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = level - 1;
        let list = vec![format!("*a{before}"); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    let all = errors(&text);
    assert!(all.len() == 1 && all[0].ends_with("aliases add up to more than 1000000 values"), "{all:?}");
    // One long text, many times.
    let long = format!("a: &a \"{}\\n\"\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 1000].join(", "));
    assert!(errors(&long)[0].ends_with("aliases add up to more than 1000000 values"));
    // Around each other.
    let nested = format!("{}x{}", "&a [".repeat(90), "]".repeat(90));
    assert!(errors(&nested).len() == 1);
}

#[test]
fn depth_is_limited() {
    for (name, text) in [
        ("a.yaml", format!("{}{}", "[".repeat(5000), "]".repeat(5000))),
        ("a.json", format!("{}{}", "[".repeat(5000), "]".repeat(5000))),
        (
            "a.json",
            format!(
                "{{\"kind\": \"Pod\", \"apiVersion\": \"v1\", \"spec\": {}1{}}}",
                "{\"a\":".repeat(5000),
                "}".repeat(5000)
            ),
        ),
        ("a.yaml", (0..3000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect()),
    ] {
        let mut reader = Reader::new();
        reader.add(name, text.as_bytes());
        assert_eq!(reader.finish().errors.len(), 1);
    }
}

#[test]
fn a_hundred_megabytes_are_read() {
    let note = "x".repeat(5_000_000);
    let pods: Vec<String> = (0..21)
        .map(|index| format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"p{index}\",\"uid\":\"u\",\"annotations\":{{\"note\":\"{note}\"}}}},\"spec\":{{\"containers\":[]}}}}"))
        .collect();
    let text = format!("{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[{}]}}", pods.join(","));
    assert!(text.len() > 100 << 20);
    let mut reader = Reader::new();
    reader.add("large.json", text.as_bytes());
    let reading = reader.finish();
    assert_eq!((reading.errors.len(), reading.state.pods()), (0, 21));
}

#[test]
fn long_words_are_cut() {
    let long = "x".repeat(100_000);
    let pool = |name: &str, requirement: &str| {
        format!(
            "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}}}, spec: {{template: {{spec: {{nodeClassRef: {{group: millpond.dev, kind: NodeClass, name: {name}}}, requirements: [{requirement}]}}}}}}}}\n"
        )
    };
    for text in [
        pool("a", &format!("{{key: {long}, operator: Exists}}")),
        pool("a", &format!("{{key: a, operator: {long}}}")),
        pool("a", &format!("{{key: karpenter.sh/capacity-type, operator: In, values: ['`{long}`']}}")),
        format!("{{apiVersion: v1, kind: {long}}}"),
        // Keys of YAML are at most 1024 letters, those of JSON are not.
        format!(
            r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "p"}}, "spec": {{"nodeSelector": {{"{long}": 5}}}}}}"#
        ),
        format!(r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "p"}}, "spec": {{"{long}": 5}}}}"#),
    ] {
        let reading = read(&text);
        let said: Vec<String> = reading.errors.iter().chain(&reading.warnings).map(ToString::to_string).collect();
        assert!(said.len() == 1 && said[0].len() < 700 && said[0].contains("xxx…"), "{said:?}");
    }
    let taken = read(&pool(&long, "")).state.snapshot(crate::support::NOW, &Options::default());
    let notes: Vec<String> = taken.notes.iter().map(ToString::to_string).collect();
    assert!(!notes.is_empty() && notes.iter().all(|note| note.len() < 700), "{notes:?}");
}

#[test]
fn numbers_that_cannot_be() {
    let object = |version: &str, kind: &str, rest: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n{rest}\n")
    };
    let set = |field: &str| object("apps/v1", "ReplicaSet", &format!("spec: {{template: {{spec: {{}}}}, {field}}}"));
    let job = |field: &str| object("batch/v1", "Job", &format!("spec: {{template: {{spec: {{}}}}, {field}}}"));
    let budget = |field: &str| object("policy/v1", "PodDisruptionBudget", &format!("spec: {{{field}}}"));
    let pod = |field: &str| object("v1", "Pod", &format!("spec: {{{field}}}"));
    let spread = |skew: &str| {
        pod(&format!(
            "topologySpreadConstraints: [{{topologyKey: a, whenUnsatisfiable: DoNotSchedule, maxSkew: {skew}}}]"
        ))
    };
    let pool = |field: &str| {
        object(
            "karpenter.sh/v1",
            "NodePool",
            &format!("spec: {{{field}, template: {{spec: {{nodeClassRef: {{group: a, kind: b, name: c}}}}}}}}"),
        )
    };
    let mut said = Vec::new();
    for text in [
        set("replicas: -1"),
        set("replicas: 4294967296"),
        set("replicas: 1.5"),
        job("parallelism: -1"),
        job("completions: 99999999999999999999"),
        budget("minAvailable: -1"),
        budget("maxUnavailable: 101%"),
        budget("maxUnavailable: -5%"),
        object("scheduling.k8s.io/v1", "PriorityClass", "value: 2147483648"),
        pod("priority: -2147483649"),
        spread("-1"),
        spread("99999999999"),
        pod("containers: [{name: c, ports: [{hostPort: 65536}]}]"),
        pod("overhead: {cpu: -1m}"),
        pod("containers: [{name: c, resources: {limits: {cpu: 1e30}}}]"),
        pool("weight: 99999999999"),
        pool("replicas: 99999999999999999999"),
        pool("limits: {nodes: -1}"),
        pool("disruption: {budgets: [{nodes: '-1'}]}"),
        pool("disruption: {consolidateAfter: -1h}"),
        object("v1", "Node", "status: {capacity: {cpu: '-4'}}"),
    ] {
        let reading = read(&text);
        said.extend(reading.errors.iter().map(ToString::to_string));
        if reading.errors.len() != 1 {
            said.push(format!("{} errors: {text}", reading.errors.len()));
        }
    }
    insta::assert_snapshot!(said.join("\n"), @"
    test.yaml:4:40: ReplicaSet/x: field `spec.replicas`: `-1` is not a whole number of 32 bits, not negative
    test.yaml:4:40: ReplicaSet/x: field `spec.replicas`: `4294967296` is not a whole number of 32 bits, not negative
    test.yaml:4:40: ReplicaSet/x: field `spec.replicas`: `1.5` is a number with a fraction, not a whole number of 32 bits, not negative
    test.yaml:4:43: Job/x: field `spec.parallelism`: `-1` is not a whole number of 32 bits, not negative
    test.yaml:4:43: Job/x: field `spec.completions`: `99999999999999999999` is not a whole number of 32 bits, not negative
    test.yaml:4:22: PodDisruptionBudget/x: field `spec.minAvailable`: `-1` is a negative number
    test.yaml:4:24: PodDisruptionBudget/x: field `spec.maxUnavailable`: `101%` is not a share from `0%` to `100%`
    test.yaml:4:24: PodDisruptionBudget/x: field `spec.maxUnavailable`: `-5%` is not a share from `0%` to `100%`
    test.yaml:4:8: PriorityClass/x: field `value`: `2147483648` is not a whole number of 32 bits
    test.yaml:4:18: Pod/x: field `spec.priority`: `-2147483649` is not a whole number of 32 bits
    test.yaml:4:96: Pod/x: field `spec.topologySpreadConstraints[0].maxSkew`: `-1` is not above zero
    test.yaml:4:96: Pod/x: field `spec.topologySpreadConstraints[0].maxSkew`: `99999999999` is not a whole number of 32 bits
    test.yaml:4:50: Pod/x: field `spec.containers[0].ports[0].hostPort`: `65536` is not a whole number of 16 bits, not negative
    test.yaml:4:24: Pod/x: field `spec.overhead.cpu`: `-1m` is a negative quantity
    test.yaml:4:57: Pod/x: field `spec.containers[0].resources.limits.cpu`: `1e30` is too large a quantity
    test.yaml:4:16: NodePool/x: field `spec.weight`: `99999999999` is not a whole number of 32 bits
    test.yaml:4:18: NodePool/x: field `spec.replicas`: `99999999999999999999` is not a whole number of 64 bits
    test.yaml:4:24: NodePool/x: field `spec.limits.nodes`: `-1` is a negative quantity
    test.yaml:4:39: NodePool/x: field `spec.disruption.budgets[0].nodes`: `-1` is not a number of nodes such as `3` or `10%`
    test.yaml:4:39: NodePool/x: field `spec.disruption.consolidateAfter`: `-1h` is a negative duration
    test.yaml:4:26: Node/x: field `status.capacity.cpu`: `-4` is a negative quantity
    ");
}

#[test]
fn sums_do_not_overflow() {
    let container = "{name: c, resources: {requests: {memory: 7Ei, cpu: 9000T}}}";
    let pods: String = (0..3)
        .map(|index| format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{index}}}, spec: {{overhead: {{memory: 7Ei}}, containers: [{container}, {container}]}}}}\n"))
        .collect();
    let snapshot = crate::support::snapshot(&pods);
    let requests = &snapshot.class_of(0.into()).requests;
    assert_eq!(
        (requests.get(millpond_plan::model::MEMORY), requests.get(millpond_plan::model::CPU)),
        (i64::MAX, i64::MAX)
    );
}

#[test]
fn pods_are_made_up_within_limits() {
    let text = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x}, spec: {replicas: 4294967295, template: {spec: {}}}}";
    let options = Options { expand_workloads: true, ..Options::default() };
    let taken = read(text).state.snapshot(crate::support::NOW, &options);
    assert_eq!(taken.snapshot.pods.len(), 2_000_000);
    assert_eq!(taken.notes[0].to_string(), "more than 2000000 pods of workloads; the rest is left out");
}

#[test]
fn files_beyond_the_limit_are_not_looked_at() {
    // Zeroes that are never touched take no memory.
    let bytes = vec![0; LIMIT_BYTES + 1];
    let mut reader = Reader::new();
    reader.add("huge.yaml", &bytes);
    let errors = reader.finish().errors;
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].to_string(), "huge.yaml:1:1: is larger than 1024 MiB");
}

#[test]
fn a_hundred_megabytes_of_yaml_are_read() {
    let note = "x".repeat(5_000_000);
    let pods: String = (0..21)
        .map(|index| format!("---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: p{index}\n  annotations:\n    note: {note}\nspec:\n  containers: []\n"))
        .collect();
    assert!(pods.len() > 100 << 20);
    let reading = read(&pods);
    assert_eq!((reading.errors.len(), reading.state.pods()), (0, 21));
}
