//! Bodies that Go made, beside the JSON that Go prints for them, and what becomes of broken ones.
//!
//! `objects.tsv` holds a line for each object: the body in base64, a tab, the JSON. The objects were filled at
//! random, three for every built-in kind, and went through client-go's own encoder and decoder (1.36.3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use super::*;

const OBJECTS: &str = include_str!("../../tests/fixtures/protobuf/objects.tsv");

fn objects() -> impl Iterator<Item = (Vec<u8>, Value)> {
    OBJECTS.lines().map(|line| {
        let (body, json) = line.split_once('\t').unwrap();
        (BASE64.decode(body).unwrap(), serde_json::from_str(json).unwrap())
    })
}

fn no_default() -> Kind {
    Kind { group: String::new(), version: String::new(), kind: String::new() }
}

fn pod() -> Kind {
    Kind { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() }
}

/// A body of the given kind around a raw message.
fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = field(1, api_version.as_bytes());
    meta.extend(field(2, kind.as_bytes()));
    let mut body = PREFIX.to_vec();
    body.extend(field(1, &meta));
    body.extend(field(2, raw));
    body
}

/// A field with a length.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
    out
}

#[test]
fn bodies_become_the_json_that_go_prints() {
    let mut kinds = std::collections::BTreeSet::new();
    for (body, expected) in objects() {
        let decoded = decode(&body, &no_default()).unwrap_or_else(|error| panic!("{error}: {expected}"));
        assert_eq!(decoded, expected, "\n{decoded}\n{expected}");
        kinds.insert(format!("{} {}", expected["apiVersion"], expected["kind"]));
    }
    assert!(kinds.len() >= 70, "only {} kinds", kinds.len());
}

#[test]
fn the_kind_of_the_request_fills_in_for_the_envelope() {
    let raw = field(1, &field(1, b"a"));
    let decoded = decode(&body("", "", &raw), &pod()).unwrap();
    assert_eq!(decoded["kind"], "Pod");
    assert_eq!(decoded["metadata"]["name"], "a");
    let delete = decode(&body("policy/v1", "DeleteOptions", &[]), &pod()).unwrap();
    assert_eq!(delete, json!({"apiVersion": "policy/v1", "kind": "DeleteOptions"}));
}

#[test]
fn a_message_in_two_pieces_is_one() {
    let mut raw = field(1, &field(1, b"a"));
    raw.extend(field(1, &field(3, b"ns")));
    let decoded = decode(&body("v1", "ConfigMap", &raw), &pod()).unwrap();
    assert_eq!(decoded["metadata"], json!({"name": "a", "namespace": "ns"}));
}

#[test]
fn packed_and_unknown_fields_are_taken() {
    // PodSpec.securityContext.supplementalGroups (2.14.4), packed; then an unknown group field.
    let mut context = field(4, &[1, 2, 0xac, 0x02]);
    context.extend([0xfb, 0x01, 0x08, 0x01, 0xfc, 0x01]);
    let raw = field(2, &field(14, &context));
    let decoded = decode(&body("v1", "Pod", &raw), &pod()).unwrap();
    assert_eq!(decoded["spec"]["securityContext"], json!({"supplementalGroups": [1, 2, 300]}));
}

#[test]
fn errors_speak_kubernetes() {
    let error = |body: &[u8]| decode(body, &pod()).unwrap_err().to_api_error("Pod", body).message;
    let unrecognized = "the object provided is unrecognized (must be of type Pod)";
    assert_eq!(error(b""), format!("{unrecognized}: empty data (<empty>)"));
    assert_eq!(error(b"k8s\0"), format!("{unrecognized}: empty body (6b387300)"));
    assert_eq!(
        error(b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}"),
        format!(
            "{unrecognized}: provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] \
             (7b226b696e64223a22506f64222c2261706956657273696f6e223a227631 ...)"
        )
    );
    assert_eq!(
        error(&body("v1", "Pod", &[0x0a, 0x05, 0x01])),
        "Pod in version \"v1\" cannot be handled as a Pod: unexpected EOF"
    );
    assert_eq!(
        error(&body("apps/v9", "Gadget", &[])),
        "Gadget in version \"v9\" cannot be handled as a Pod: no kind \"Gadget\" is registered for version \
         \"apps/v9\" in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
    );
    assert_eq!(
        error(&body("v1", "Pod", &[0x08, 0x01])),
        "Pod in version \"v1\" cannot be handled as a Pod: proto: wrong wireType = 0 for field metadata"
    );
    let missing = decode(&body("v1", "", &[]), &no_default()).unwrap_err();
    assert_eq!(missing.to_string(), "Object 'Kind' is missing in 'runtime.TypeMeta{APIVersion:\"v1\", Kind:\"\"}'");
}

#[test]
fn depth_is_limited() {
    // spec.versions[0].schema.openAPIV3Schema, then `not` in `not`.
    let mut deep = Vec::new();
    for _ in 0..5_000 {
        // Field 28, wire type 2.
        let mut outer = vec![0xe2, 0x01];
        outer.extend(&field(1, &deep)[1..]);
        deep = outer;
    }
    let raw = field(2, &field(7, &field(4, &field(1, &deep))));
    let error = decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw), &pod()).unwrap_err();
    assert_eq!(error.problem, Problem::TooDeep);
}

#[test]
fn size_is_limited() {
    // Half a million containers of two bytes each.
    let containers = [0x12, 0x00].repeat(500_000);
    let error = decode(&body("v1", "Pod", &field(2, &containers)), &pod()).unwrap_err();
    assert_eq!(error.problem, Problem::TooLarge);
    let few = [0x12, 0x00].repeat(5_000);
    assert!(decode(&body("v1", "Pod", &field(2, &few)), &pod()).is_ok());
}

/// Bodies with bytes changed, cut out, doubled or cut off must never panic, and what is taken must be JSON
/// that can be written and read again.
#[test]
fn fuzz_protobuf() {
    let bodies: Vec<Vec<u8>> = objects().map(|(body, _)| body).collect();
    let edit = (any::<prop::sample::Index>(), any::<u8>(), 0_u8..5);
    let strategy = (any::<prop::sample::Index>(), prop::collection::vec(edit, 1..6));
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 4_000, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    runner
        .run(&strategy, |(which, edits)| {
            let mut mutated = which.get(&bodies).clone();
            for (place, byte, how) in edits {
                mutate(&mut mutated, place, byte, how);
            }
            if let Ok(object) = decode(&mutated, &pod()) {
                let text = object.to_string();
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
            }
            Ok(())
        })
        .unwrap();
}

fn mutate(bytes: &mut Vec<u8>, place: prop::sample::Index, byte: u8, how: u8) {
    if bytes.is_empty() {
        return;
    }
    let at = place.index(bytes.len());
    match how {
        0 => bytes[at] = byte,
        1 => bytes[at] ^= 1 << (byte % 8),
        2 => drop(bytes.remove(at)),
        3 => bytes.insert(at, byte),
        _ if byte < 32 => bytes.truncate(at),
        _ => bytes.extend_from_within(at..),
    }
}
