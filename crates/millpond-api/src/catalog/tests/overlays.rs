//! Which overlay wins, and what mistakes in overlay files are answered with.

use crate::catalog::overlay::{self, Overlay, PriceRule, Target, conflicts};
use crate::catalog::{CapacityType, Catalog, synthetic};
use crate::karpenter::NodeOverlay;
use crate::selector::LabelValues;
use crate::{money, selector};

const DISCOUNT: &str = "apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: savings-plan}
spec:
  weight: 10
  requirements:
  - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
  priceAdjustment: \"-30%\"
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata:
  name: windows-licence
spec:
  requirements:
  - key: kubernetes.io/os
    operator: In
    values: [windows]
  surcharge: \"0.046\"
  capacity:
    example.com/licence: \"1\"
";

fn apply(overlays: &[Overlay]) -> Catalog {
    let mut catalog = synthetic::kwok();
    overlay::apply(&mut catalog, overlays);
    catalog
}

fn price(catalog: &Catalog, name: &str, kind: CapacityType) -> String {
    let of = catalog.find(name).unwrap();
    money::exact(of.cheapest(|offering| offering.capacity_type == kind).unwrap().price_nanos_hour)
}

fn rule(name: &str, weight: u32, price: PriceRule) -> Overlay {
    Overlay {
        name: name.into(),
        weight,
        requirements: Vec::new(),
        price: Some(price),
        surcharge_nanos_hour: 0,
        capacity: Default::default(),
    }
}

#[test]
fn discounts_and_surcharges_stack() {
    let overlays = overlay::parse("o.yaml", DISCOUNT).unwrap();
    let mut catalog = synthetic::kwok();
    let applied = overlay::apply(&mut catalog, &overlays);
    let matched: Vec<_> = applied.iter().map(|applied| (applied.name.as_str(), applied.offerings)).collect();
    assert_eq!(matched, [("savings-plan", 576), ("windows-licence", 576)]);
    assert_eq!(price(&catalog, "c-1x-amd64-linux", CapacityType::OnDemand), "0.019003239");
    assert_eq!(price(&catalog, "c-1x-amd64-linux", CapacityType::Spot), "0.019003239");
    assert_eq!(price(&catalog, "c-1x-amd64-windows", CapacityType::OnDemand), "0.065003239");
    assert_eq!(price(&catalog, "c-1x-amd64-windows", CapacityType::Spot), "0.065003239");
    let capacity = |name| catalog.find(name).unwrap().capacity().extended;
    assert_eq!(capacity("c-1x-amd64-windows").get("example.com/licence"), Some(&1));
    assert!(capacity("c-1x-amd64-linux").is_empty());
}

#[test]
fn weight_wins_then_the_later_name_whatever_the_order() {
    let (cheap, dear) = (PriceRule::Absolute(1_000_000_000), PriceRule::Absolute(2_000_000_000));
    let cases = [
        ([rule("a", 5, cheap), rule("z", 1, dear)], "1"),
        ([rule("a", 5, cheap), rule("z", 5, dear)], "2"),
        ([rule("a", 0, dear), rule("b", 0, cheap)], "1"),
    ];
    for (mut overlays, expected) in cases {
        for _ in 0..2 {
            assert_eq!(price(&apply(&overlays), "c-1x-amd64-linux", CapacityType::Spot), expected);
            overlays.reverse();
        }
    }
}

#[test]
fn rules_never_go_below_nothing() {
    assert_eq!(PriceRule::parse_adjustment("-0.5").unwrap().apply(100), 0);
    assert_eq!(PriceRule::parse_adjustment("-100%").unwrap().apply(100), 0);
    assert_eq!(PriceRule::parse_adjustment("+12.5%").unwrap().apply(1000), 1125);
    assert_eq!(PriceRule::parse_adjustment("+0.000000001").unwrap().apply(1), 2);
    assert_eq!(PriceRule::Scale(i64::MAX).apply(u64::MAX), u64::MAX);
    for text in ["30%", "", "-", "%", "-101%", "+-1", "+1%%", "++1"] {
        assert!(PriceRule::parse_adjustment(text).is_err(), "{text}");
    }
}

#[test]
fn an_own_price_is_no_estimate() {
    let mut catalog = crate::catalog::built_in("aws").unwrap().clone();
    overlay::apply(&mut catalog, &[rule("own", 0, PriceRule::Absolute(1))]);
    assert!(catalog.types.iter().flat_map(|of| &of.offerings).all(|offering| !offering.estimated));
}

fn in_cluster(name: &str, spec: serde_json::Value) -> NodeOverlay {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

#[test]
fn objects_of_a_cluster_say_the_same_as_files() {
    let files = overlay::parse("o.yaml", DISCOUNT).unwrap();
    let spec = |text: &str| {
        let document: serde_json::Value = serde_saphyr::from_str(text).unwrap();
        document["spec"].clone()
    };
    let (first, second) = DISCOUNT.split_once("---\n").unwrap();
    let objects = [in_cluster("savings-plan", spec(first)), in_cluster("windows-licence", spec(second))];
    assert_eq!(objects.map(|object| Overlay::of(&object).unwrap()).as_slice(), files);
}

#[test]
fn mistakes_of_objects_name_the_field() {
    let problem = |spec| Overlay::of(&in_cluster("own", spec)).unwrap_err().to_string();
    insta::assert_snapshot!([
        problem(serde_json::json!({"requirements": [{"key": "a", "operator": "In"}]})),
        problem(serde_json::json!({"weight": 10_001})),
        problem(serde_json::json!({"price": "1", "priceAdjustment": "+1"})),
        problem(serde_json::json!({"priceAdjustment": "1"})),
        problem(serde_json::json!({"capacity": {"memory": "1Gi"}})),
    ].join("\n"), @"
    spec.requirements[0]: `In` on `a` takes at least one value, not 0
    spec.weight: `10001` is not from 1 to 10000
    spec.price: stands beside `priceAdjustment`; only one of them may
    spec.priceAdjustment: is not an adjustment such as `-30%`, `+12.5%`, `-0.05` or `+0.1`
    spec.capacity.memory: would change a resource that the node has itself
    ");
}

/// Names of those that are not used, with the reason.
fn unused(targets: &[Target<'_>], overlays: &[Overlay]) -> Vec<String> {
    conflicts(targets, overlays).values().map(|conflict| format!("{}: {conflict}", conflict.name)).collect()
}

#[test]
fn of_one_weight_one_speaks_about_an_offering() {
    let kwok = synthetic::kwok();
    let targets = [Target { catalog: &kwok, labels: LabelValues::new() }];
    let only =
        |overlay: Overlay, selector: &str| Overlay { requirements: selector::parse(selector).unwrap(), ..overlay };
    let price = |name: &str, weight| rule(name, weight, PriceRule::Absolute(1));
    let os = "kubernetes.io/os";
    assert_eq!(unused(&targets, &[price("a", 1), price("b", 2)]), [""; 0]);
    let apart = [only(price("a", 1), &format!("{os}=linux")), only(price("b", 1), &format!("{os}=windows"))];
    assert_eq!(unused(&targets, &apart), [""; 0]);
    // The later name has precedence; an overlay that it beats conflicts with nothing any more.
    let three =
        [only(price("a", 1), &format!("{os}=windows")), price("b", 1), only(price("c", 1), &format!("{os}=linux"))];
    assert_eq!(
        unused(&targets, &three),
        [
            "b: overlay `c` has the same weight and also sets the price of `c-128x-amd64-linux` in `test-zone-a` (on-demand)"
        ]
    );
    let licence =
        |name: &str| Overlay { price: None, capacity: [("example.com/a".to_owned(), 1)].into(), ..price(name, 0) };
    assert_eq!(
        unused(&targets, &[licence("a"), licence("b")]),
        ["a: overlay `b` has the same weight and also sets `example.com/a` of `c-128x-amd64-linux`"]
    );
}

#[test]
fn labels_of_a_pool_can_be_asked_for() {
    let gpu = Overlay { requirements: selector::parse("team=red").unwrap(), ..rule("red", 0, PriceRule::Absolute(1)) };
    let of = |team: &str| {
        let mut catalog = synthetic::kwok();
        let labels = LabelValues::from([("team".to_owned(), vec![team.to_owned()])]);
        overlay::apply_for(&mut catalog, &labels, std::slice::from_ref(&gpu))[0].offerings
    };
    assert_eq!((of("red"), of("blue")), (1152, 0));
}

#[test]
fn a_type_has_what_one_of_its_offerings_has() {
    let requirements = selector::parse("topology.kubernetes.io/zone=test-zone-a,karpenter.sh/capacity-type=reserved");
    let capacity = [("example.com/a".to_owned(), 1)].into();
    let one = Overlay { requirements: requirements.unwrap(), price: None, capacity, ..rule("x", 0, PriceRule::Add(0)) };
    let catalog = apply(&[one]);
    assert!(catalog.types.iter().all(|of| of.extended.is_empty()), "no offering is reserved");
}

fn problem(from: &str, to: &str) -> String {
    assert!(DISCOUNT.contains(from), "{from}");
    overlay::parse("o.yaml", &DISCOUNT.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn mistakes_are_placed() {
    insta::assert_snapshot!([
        problem("\"-30%\"", "\"30%\""),
        problem("\"0.046\"", "\"-1\""),
        problem("weight: 10", "weight: 0"),
        problem("weight: 10", "wieght: 10"),
        problem("operator: In", "operator: Inn"),
        problem("values: [on-demand]", "values: []"),
        problem("windows-licence", "savings-plan"),
        problem("example.com/licence", "cpu"),
        problem("example.com/licence", "licence"),
        problem("NodeOverlay", "NodePool"),
        problem("  weight: 10", "  price: \"1\""),
        problem("spec:", "spec"),
    ].join("\n"), @"
    o.yaml:8:20: field `spec.priceAdjustment`: `30%` is not an adjustment such as `-30%`, `+12.5%`, `-0.05` or `+0.1`
    o.yaml:19:14: field `spec.surcharge`: `-1` is a negative price
    o.yaml:5:11: field `spec.weight`: `0` is not from 1 to 10000
    o.yaml:5:3: unknown field `wieght`, expected one of requirements, weight, price, priceAdjustment, surcharge, capacity
    o.yaml:7:49: unknown variant `Inn`, expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte
    o.yaml:7:5: field `spec.requirements`: `In` on `karpenter.sh/capacity-type` takes at least one value, not 0
    o.yaml:13:9: field `metadata.name`: `savings-plan` is there more than once
    o.yaml:21:10: field `spec.capacity.cpu`: `1` would change a resource that the node has itself
    o.yaml:21:14: field `spec.capacity.licence`: `1` is of a resource without a domain, such as `example.com/licence`
    o.yaml:3:18: field `kind`: `karpenter.sh/v1alpha1 NodePool` is not `karpenter.sh/v1alpha1 NodeOverlay`
    o.yaml:5:10: field `spec.price`: stands beside `priceAdjustment`; only one of them may
    o.yaml:4:1: simple key expected ':'
    ");
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "apiVersion: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for letter in 'b'..='z' {
        let before = (letter as u8 - 1) as char;
        text += &format!("{letter}: &{letter} [{}]\n", vec![format!("*{before}"); 10].join(","));
    }
    assert!(overlay::parse("bomb.yaml", &text).is_err());
    let long = format!("kind: {}", "x".repeat(overlay::LIMIT_BYTES));
    assert_eq!(overlay::parse("long.yaml", &long).unwrap_err().to_string(), "long.yaml:1:1: larger than 4 MiB");
}
