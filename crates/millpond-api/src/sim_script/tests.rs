//! Scripts as users write them, and the messages about mistakes.

use super::*;
use crate::catalog::built_in;
use crate::node_class::NodeClass;
use crate::time::Time;

const FULL: &str = r#"
seed: 7
image: sim-image-2
registrationDelay: 20s
registrationJitter: 1m30s
registrationFailures: 0.5%
shutdown: 250ms
stockOuts:
- {instanceType: "m5.*", zone: us-east-1a, capacityType: spot, from: 10m, until: 25m}
- {capacityType: spot, share: 40%, period: 10m}
- {instanceType: p5.48xlarge, stock: 2, from: "2026-11-16T04:30:00Z"}
quotas:
- {capacityType: spot, vcpus: 256}
- {instances: 1000}
calls:
- {verbs: [create], error: throttled, share: 5%, retryAfter: 2s}
- {verbs: [create], lost: true, nth: [3]}
- {verbs: [get, list, delete], delay: 3s}
throttle: {perSecond: 20, burst: 40}
lag: {get: 1s, list: 5s}
interruptions:
- {zone: us-east-1b, perHour: 10%}
- {capacityType: "*", at: 1h, share: 50%, notice: 30s, nodeGone: true}
"#;

#[test]
fn a_script_is_read_and_written() {
    let script = parse("cloud.yaml", FULL).unwrap();
    assert_eq!(script.seed, Some(7));
    assert_eq!(script.registration_jitter, Some(Span::from_secs(90)));
    assert_eq!(script.registration_failures.map(Share::millionths), Some(5_000));
    assert_eq!(script.shutdown, Some(Span::from_millis(250)));
    assert_eq!(script.stock_outs[0].until, Some(Moment::After(Span::from_secs(1500))));
    assert_eq!(script.stock_outs[2].from, Some(Moment::At(Time(1_794_803_400))));
    assert_eq!(
        script.calls[1],
        CallFault { verbs: vec![Verb::Create], lost: true, nth: vec![3], ..CallFault::default() }
    );
    assert_eq!(script.interruptions[0].capacity_type, Pattern::new("spot"));
    let written = serde_json::to_string(&script).unwrap();
    assert_eq!(parse("cloud.json", &written).unwrap(), script);
    assert!(!written.contains("null"), "{written}");
}

#[test]
fn nothing_is_a_cloud_without_faults() {
    for text in ["", "# nothing\n", "{}"] {
        assert_eq!(parse("cloud.yaml", text).unwrap(), Script::default(), "{text:?}");
    }
    assert_eq!(serde_json::to_string(&Script::default()).unwrap(), "{}");
}

#[test]
fn mistakes_are_reported_with_their_place() {
    let problem = |text: &str| parse("cloud.yaml", text).unwrap_err().to_string();
    for (text, expected) in [
        ("seed: 1\nstockOut: []\n", "cloud.yaml:2:1: unknown field `stockOut`; is `stockOuts` meant?"),
        ("calls:\n- verbs: [creat]\n", "cloud.yaml:2:11: unknown word `creat`; is `create` meant?"),
        (
            "calls:\n- {error: fire}\n",
            "cloud.yaml:2:11: unknown word `fire`; there are throttled, denied, notReady, other",
        ),
        ("stockOuts:\n- share: 40\n", "cloud.yaml:2:10: `40` is not a share such as `5%` or `0.5%`"),
        ("stockOuts:\n- share: 101%\n", "cloud.yaml:2:10: `101%` is more than 100%"),
        ("shutdown: 5\n", "cloud.yaml:1:11: `5` is not a duration such as `30s`, `1h30m` or `720h`"),
        ("shutdown: -5s\n", "cloud.yaml:1:11: `-5s` is a negative duration"),
        (
            "stockOuts:\n- from: soon\n",
            "cloud.yaml:2:9: `soon` is neither a time such as `2026-11-16T04:30:00Z` nor a duration after the beginning \
             such as `10m`",
        ),
        (
            "stockOuts:\n- {}\n- {capacityType: spto}\n",
            "cloud.yaml:3:3: field `stockOuts[1].capacityType`: `spto` is none of on-demand, spot, reserved; is `spot` \
             meant?",
        ),
        ("stockOuts:\n- {from: 10m, until: 10m}\n", "cloud.yaml:2:3: field `stockOuts[0].until`: is not after `from`"),
        ("quotas: [{}]\n", "cloud.yaml:1:10: field `quotas[0]`: limits nothing: give `instances` or `vcpus`"),
        ("throttle: {perSecond: 0}\n", "cloud.yaml:1:11: field `throttle.perSecond`: must be above zero"),
        (
            "calls:\n- {error: other, lost: true}\n",
            "cloud.yaml:2:3: field `calls[0].lost`: stands beside `error`; a call that fails has no answer to lose",
        ),
        ("calls: [{nth: [0], lost: true}]\n", "cloud.yaml:1:9: field `calls[0].nth`: counts from 1"),
        (
            "interruptions: [{zone: a}]\n",
            "cloud.yaml:1:17: field `interruptions[0]`: never happens: give `at` or `perHour`",
        ),
    ] {
        assert_eq!(problem(text), expected);
    }
    let many = format!("quotas: [{}]", "{instances: 1},".repeat(LIMIT_RULES + 1));
    assert!(problem(&many).ends_with("field `quotas`: has more than 100 rules"));
}

#[test]
fn a_class_says_where_its_script_is_wrong() {
    let text =
        "metadata: {name: a}\nspec: {provider: sim, catalog: aws, sim: {calls: [{verbs: [list], lost: true}]}}\n";
    let class: NodeClass = serde_saphyr::from_str(text).unwrap();
    let problems: Vec<String> = class.validate().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        ["spec.sim.calls[0].verbs: `list` is about no class; only the script of the cloud as a whole can speak of it"]
    );
}

#[test]
fn names_that_no_catalogue_has_are_found() {
    let aws = built_in("aws").unwrap();
    let script = parse("a", "stockOuts: [{instanceType: m5.larg}, {zone: us-east-1z}, {instanceType: 'x*'}]").unwrap();
    let problems: Vec<String> = script.unknown_names("spec.sim", aws).iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "spec.sim.stockOuts[0].instanceType: catalogue `aws` has no instance type `m5.larg`; is `m5.large` meant?",
            "spec.sim.stockOuts[1].zone: catalogue `aws` has no zone `us-east-1z`; is `us-east-1a` meant?",
        ]
    );
    assert_eq!(parse("a", FULL).unwrap().unknown_names("", aws), []);
}

#[test]
fn patterns_match() {
    for (pattern, name, matches) in [
        ("*", "", true),
        ("*", "m5.large", true),
        ("m5.*", "m5.large", true),
        ("m5.*", "m5a.large", false),
        ("*.large", "m5.large", true),
        ("*.large", "m5.xlarge", false),
        ("m*.*large", "m5.12xlarge", true),
        ("m5.large", "m5.large", true),
        ("m5.large", "m5.large2", false),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("*a*b*", "xxbxaxb", true),
        ("*a*b*", "bbba", false),
        ("", "a", false),
    ] {
        assert_eq!(Pattern::new(pattern).matches(name), matches, "{pattern} {name}");
    }
}

#[test]
fn values_are_written_as_they_are_read() {
    for text in ["0s", "250ms", "1m30s", "1h0m0s", "1s500ms", "1ns"] {
        assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
    }
    for text in ["0%", "5%", "0.5%", "12.34%", "100%", "0.0001%"] {
        assert_eq!(text.parse::<Share>().unwrap().to_string(), text);
    }
    for text in ["5", "%", "-1%", "1e1%", "0.00001%", "5 %"] {
        assert!(text.parse::<Share>().is_err(), "{text}");
    }
    assert_eq!(Share::percent(250), Share::percent(100));
    assert!("99999999999h".parse::<Span>().is_err());
    assert!("900000h".parse::<Span>().is_err());
}
