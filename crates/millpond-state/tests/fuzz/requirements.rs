//! Label selectors and requirements: kubectl's text, and as objects have them.

use millpond_api::selector::{self, LabelValues, Operator};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use crate::mutate::{mutate, text};
use crate::reading::read;
use crate::rounds;

const SELECTORS: &[&str] = &["size=large", "size==large,os", "os in (darwin, linux)", "!gpu", "gpu!=t4,a notin (b)"];

/// Random words, and what becomes of good ones.
#[test]
fn fuzz_selectors() {
    let labels = LabelValues::from([("os".to_owned(), vec!["linux".to_owned()]), ("a".to_owned(), vec![])]);
    let mut good = 0;
    rounds(20_000, |random| {
        let text = if random.random_bool(0.5) {
            text("ab1 ,=!()inot./-_", 24, random)
        } else {
            let mut bytes = SELECTORS.choose(random).expect("there are some").as_bytes().to_vec();
            mutate(&mut bytes, random);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let Ok(requirements) = selector::parse(&text) else { return };
        good += 1;
        for requirement in requirements {
            assert_eq!(requirement.check(), Ok(()), "{text}");
            let _ = requirement.matches(&labels);
            assert_eq!(selector::parse(&written(&requirement)), Ok(vec![requirement]), "{text}");
        }
    });
    assert!(good > 1_000, "only {good} were selectors");
}

/// A requirement as kubectl writes it.
fn written(requirement: &selector::Requirement) -> String {
    let (key, values) = (&requirement.key, requirement.values.join(","));
    match requirement.operator {
        Operator::In => format!("{key} in ({values})"),
        Operator::NotIn => format!("{key} notin ({values})"),
        Operator::DoesNotExist => format!("!{key}"),
        _ => key.clone(),
    }
}

fn word(random: &mut SmallRng) -> String {
    let known =
        ["a", "kubernetes.io/arch", "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "metadata.name"];
    let numbers = ["0", "5", "-1", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "1.5", "+1"];
    match random.random_range(0..10) {
        0..3 => (*known.choose(random).expect("there are some")).to_owned(),
        3 => (*numbers.choose(random).expect("there are some")).to_owned(),
        4 => text("ab./-_ \n\"\u{0}ü", 8, random),
        _ => text("ab01", 3, random) + "a",
    }
}

/// An expression; the text of its operator may be anything.
fn expression(random: &mut SmallRng) -> Value {
    let odd = ["Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "in", "", "Between"];
    let values: Vec<String> = (0..random.random_range(0..4)).map(|_| word(random)).collect();
    let usual = if values.is_empty() { ["Exists", "DoesNotExist"] } else { ["In", "NotIn"] };
    let operator = if random.random_bool(0.3) { odd.choose(random) } else { usual.choose(random) };
    let operator = *operator.expect("there are some");
    let mut expression = json!({"key": word(random), "operator": operator, "values": values});
    match random.random_range(0..30) {
        0 => drop(expression.as_object_mut().expect("an object").remove("values")),
        1 => expression["values"] = json!([5, null]),
        2 => expression["operator"] = Value::Null,
        _ => {}
    }
    expression
}

/// Every place where an object has requirements, with random ones.
fn object(random: &mut SmallRng) -> Value {
    let some = |random: &mut SmallRng| (0..random.random_range(1..3)).map(|_| expression(random)).collect::<Vec<_>>();
    let metadata = json!({"name": "x", "uid": "u"});
    let with = |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata.clone(), "spec": spec});
    let affinity =
        |kind: &str, of: Value| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": of}}});
    match random.random_range(0..6) {
        0 => with(affinity("nodeAffinity", json!({"nodeSelectorTerms": [{"matchExpressions": some(random)}]}))),
        1 => with(affinity("nodeAffinity", json!({"nodeSelectorTerms": [{"matchFields": some(random)}]}))),
        2 => {
            let kind = *["podAffinity", "podAntiAffinity"].choose(random).expect("there are two");
            let term = json!({"topologyKey": word(random), "labelSelector": {"matchExpressions": some(random)},
                              "namespaceSelector": {"matchExpressions": some(random)}});
            with(affinity(kind, json!([term])))
        }
        3 => with(
            json!({"topologySpreadConstraints": [{"maxSkew": random.random_range(-1..3), "topologyKey": word(random),
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchExpressions": some(random)}}]}),
        ),
        4 => json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata,
                    "spec": {"selector": {"matchExpressions": some(random)}}}),
        _ => {
            let mut requirements = some(random);
            if random.random_bool(0.5) {
                requirements[0]["minValues"] = [json!(-1), json!(0), json!(3), json!(51), json!(u64::MAX), json!("2")]
                    .choose(random)
                    .expect("there are some")
                    .clone();
            }
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": metadata, "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "x"},
                "requirements": requirements}}}})
        }
    }
}

/// The line where an expression begins that is wrong, or the last line of what belongs to it.
#[test]
fn fuzz_requirements_of_objects() {
    let (mut good, mut bad) = (0, 0);
    rounds(6_000, |random| {
        let object = object(random);
        let text = serde_json::to_string_pretty(&object).expect("it is JSON");
        let (reading, _) = read("object.json", text.as_bytes());
        match &reading.errors[..] {
            [] => good += 1,
            [error] => {
                bad += 1;
                // Never at the start of the object: below its `spec`.
                let spec = text.lines().position(|line| line.starts_with("  \"spec\"")).expect("there is one") + 1;
                assert!(error.line as usize > spec, "{error}\n{text}");
                assert!(error.field.as_deref().is_some_and(|field| field.starts_with("spec.")), "{error}\n{text}");
            }
            several => panic!("{several:?}\n{text}"),
        }
    });
    assert!(good > 300 && bad > 300, "{good} were good, {bad} bad");
}
