//! Nothing panics: random bytes, random requirements, and good files with random changes.

use millpond_state::{Options, Reader};
use proptest::prelude::*;

use crate::support::NOW;

/// Files of every kind and form.
const GOOD: [(&str, &str); 4] = [
    ("cluster.yaml", include_str!("data/cluster.yaml")),
    ("pods.json", include_str!("data/pods.json")),
    ("storage.yaml", include_str!("data/storage.yaml")),
    ("advisor.json", include_str!("data/advisor.json")),
];

/// Words that mean something somewhere.
const WORDS: [&str; 24] = [
    "",
    "null",
    "true",
    "-1",
    "1e99",
    "99999999999999999999",
    "[]",
    "{}",
    "[",
    "}",
    "\"",
    ":",
    "\n",
    "- ",
    "&a ",
    "*a",
    "<<: ",
    "5Gi",
    "Never",
    "metadata.name",
    "In",
    "---\n",
    "\u{0}",
    "ü",
];

fn read(file: &str, bytes: &[u8]) {
    let mut reader = Reader::new();
    reader.add(file, bytes);
    let reading = reader.finish();
    let options = Options { default_pool: false, expand_workloads: true, ..Options::default() };
    let taken = reading.state.snapshot(NOW, &options);
    for diagnostic in reading.errors.iter().chain(&reading.warnings) {
        assert!(diagnostic.line > 0 && diagnostic.column > 0);
        assert!(diagnostic.to_string().len() < 2000);
    }
    assert!(taken.snapshot.pods.iter().all(|pod| pod.class.index() < taken.snapshot.classes.len()));
}

#[test]
fn good_files_are_good() {
    for (file, text) in GOOD {
        let mut reader = Reader::new();
        reader.add(file, text.as_bytes());
        let reading = reader.finish();
        assert_eq!((reading.errors, reading.warnings), (vec![], vec![]), "{file}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), json: bool) {
        read(if json { "a.json" } else { "a.yaml" }, &bytes);
    }

    #[test]
    fn any_text(text in "[\\[\\]{}:,&*\"' \n\\-a-c0-9!|>%?#]{0,200}") {
        read("a.yaml", text.as_bytes());
    }

    #[test]
    fn good_files_with_changes(
        which in 0usize..4,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), 0usize..30, 0usize..24), 1..6),
    ) {
        let (file, text) = GOOD[which];
        let mut bytes = text.as_bytes().to_vec();
        for (at, removed, word) in changes {
            let at = at.index(bytes.len());
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, WORDS[word].bytes());
            if bytes.is_empty() {
                break;
            }
        }
        read(file, &bytes);
    }

    #[test]
    fn any_requirement(key in "\\PC{0,20}", operator in 0usize..10, values in proptest::collection::vec("\\PC{0,10}", 0..4), min: i64) {
        let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "in", ""];
        let expression = serde_json::json!({"key": key, "operator": operators[operator], "values": values});
        let mut with_min = expression.clone();
        with_min["minValues"] = min.into();
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "containers": [],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a", "labelSelector": {"matchExpressions": [expression]}}]}}}});
        let pool = serde_json::json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "x"}, "requirements": [with_min]}}}});
        read("a.json", format!("{pod}{pool}").as_bytes());
    }

    #[test]
    fn any_quantity(text in "[-+]?[0-9.]{0,25}[eEkKmMgGtTpPiun]{0,3}[0-9-]{0,4}", quoted: bool) {
        let quantity = if quoted { format!("\"{text}\"") } else { text };
        read("a.yaml", format!("{{apiVersion: v1, kind: Node, metadata: {{name: n}}, status: {{capacity: {{cpu: {quantity}, memory: {quantity}}}}}}}").as_bytes());
    }
}
