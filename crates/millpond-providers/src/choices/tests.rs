//! Choices against a plain filter over every offering, and the order that people read of.

use millpond_api::catalog::{built_in, overlay};
use millpond_api::labels::aws;
use millpond_api::selector::Requirement;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

fn requirement(key: &str, operator: Operator, values: &[&str]) -> PoolRequirement {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    PoolRequirement { key: key.to_owned(), operator, values, min_values: None }
}

fn amounts(pairs: &[(&str, i64)]) -> Amounts {
    Amounts(pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect())
}

fn names(choices: &[Choice]) -> Vec<String> {
    choices.iter().map(|choice| choice.offering.to_string()).collect()
}

#[test]
fn the_cheapest_that_fits_is_first() {
    let catalog = built_in("aws").unwrap();
    let wanted = [
        requirement(INSTANCE_TYPE, Operator::In, &["m5.xlarge", "m5.large", "m5.nothing", "c5.large"]),
        requirement("failure-domain.beta.kubernetes.io/zone", Operator::In, &["us-east-1a", "us-east-1b"]),
        requirement(CAPACITY_TYPE, Operator::NotIn, &["spot"]),
        requirement("team", Operator::In, &["a"]),
    ];
    let found = choices(catalog, &NodeClass::default(), &wanted, &amounts(&[("cpu", 1500), ("pods", 20)]));
    assert_eq!(
        names(&found),
        [
            "c5.large/us-east-1a/on-demand",
            "c5.large/us-east-1b/on-demand",
            "m5.large/us-east-1a/on-demand",
            "m5.large/us-east-1b/on-demand",
            "m5.xlarge/us-east-1a/on-demand",
            "m5.xlarge/us-east-1b/on-demand",
        ]
    );
    let labels = found[3].labels();
    assert_eq!(labels[INSTANCE_TYPE], "m5.large");
    assert_eq!(labels[ZONE], "us-east-1b");
    assert_eq!(labels[CAPACITY_TYPE], "on-demand");
    assert_eq!(labels[OS], "linux");
    assert_eq!(labels[aws::CPU], "2");
    assert!(found[3].shape.allocatable.get("memory") < found[3].shape.capacity.get("memory"));
    let large = choices(catalog, &NodeClass::default(), &wanted, &amounts(&[("cpu", 3000)]));
    assert_eq!(large.len(), 2, "{:?}", names(&large));
}

#[test]
fn a_previous_generation_is_bought_only_by_name() {
    let catalog = built_in("aws").unwrap();
    let old = |wanted: &[PoolRequirement]| {
        let found = choices(catalog, &NodeClass::default(), wanted, &amounts(&[]));
        found.iter().filter(|choice| catalog.find(&choice.offering.instance_type).unwrap().previous_generation).count()
    };
    assert_eq!(old(&[]), 0);
    assert_eq!(old(&[requirement(aws::CATEGORY, Operator::In, &["m", "t"])]), 0);
    assert_eq!(old(&[requirement(aws::GENERATION, Operator::NotIn, &["5"])]), 0);
    // Five zones, spot and on-demand.
    assert_eq!(old(&[requirement(INSTANCE_TYPE, Operator::In, &["m1.small", "m5.large"])]), 10);
    assert_eq!(old(&[requirement(aws::FAMILY, Operator::In, &["t1"])]), 10);
    assert!(old(&[requirement(aws::GENERATION, Operator::Lt, &["3"])]) > 10);
}

#[test]
fn settings_of_kubelet_count() {
    let catalog = built_in("aws").unwrap();
    let wanted = [requirement(INSTANCE_TYPE, Operator::In, &["m5.large"])];
    let mut class = NodeClass::default();
    class.spec.kubelet.max_pods = Some(8);
    class.spec.kubelet.kube_reserved = Some(amounts(&[("cpu", 1000)]));
    assert!(choices(catalog, &class, &wanted, &amounts(&[("pods", 9)])).is_empty());
    assert!(choices(catalog, &class, &wanted, &amounts(&[("cpu", 1001)])).is_empty());
    let found = choices(catalog, &class, &wanted, &amounts(&[("pods", 8), ("cpu", 1000)]));
    assert_eq!(found[0].shape.capacity.get("pods"), Some(8));
    assert_eq!(found[0].shape.allocatable.get("cpu"), Some(1000));
    let licence = amounts(&[("example.com/licence", 1)]);
    assert!(choices(catalog, &class, &wanted, &licence).is_empty());
    assert!(!choices(catalog, &class, &wanted, &amounts(&[("example.com/licence", 0)])).is_empty());
}

#[test]
fn at_one_price_what_is_paid_for_goes_first() {
    let mut catalog = built_in("fake").unwrap().clone();
    catalog.types.truncate(2);
    let mut reserved = catalog.types[0].offerings[0].clone();
    reserved.capacity_type = CapacityType::Reserved;
    reserved.reservation_count = Some(1);
    catalog.types[0].offerings.push(reserved.clone());
    // Used up, and not to be had: neither is a choice.
    reserved.reservation_count = Some(0);
    reserved.zone = "test-zone-2".into();
    catalog.types[0].offerings.push(reserved);
    catalog.types[0].offerings[4].available = false;
    let twin = catalog.types[0].clone();
    catalog.types[1] = InstanceType { name: "fake-it-00".to_owned(), ..twin };
    catalog.types.sort_by(|a, b| a.name.cmp(&b.name));
    let found = choices(&catalog, &NodeClass::default(), &[], &Amounts::default());
    assert_eq!(
        names(&found),
        [
            "fake-it-0/test-zone-1/reserved",
            "fake-it-00/test-zone-1/reserved",
            "fake-it-0/test-zone-1/spot",
            "fake-it-0/test-zone-2/spot",
            "fake-it-00/test-zone-1/spot",
            "fake-it-00/test-zone-2/spot",
            "fake-it-0/test-zone-1/on-demand",
            "fake-it-0/test-zone-2/on-demand",
            "fake-it-00/test-zone-1/on-demand",
            "fake-it-00/test-zone-2/on-demand",
        ]
    );
    let windows = [requirement(OS, Operator::NotIn, &["linux"])];
    let found = choices(&catalog, &NodeClass::default(), &windows, &Amounts::default());
    assert!(found.iter().all(|choice| choice.shape.labels[OS] == "windows"));
}

/// The same by a filter that shares nothing with it: the labels of each offering and system, and the selector of
/// overlays.
fn plainly(catalog: &Catalog, requirements: &[PoolRequirement], requests: &Amounts) -> BTreeSet<String> {
    let known: BTreeSet<&str> = labels::WELL_KNOWN.iter().copied().chain(catalog.well_known()).collect();
    let mut found = BTreeSet::new();
    for of in &catalog.types {
        let is_named = requirements.iter().any(|wanted| {
            let listed = |value: &String| wanted.operator == Operator::In && wanted.values.contains(value);
            match wanted.key.as_str() {
                INSTANCE_TYPE => listed(&of.name),
                aws::FAMILY => listed(&of.naming.family),
                aws::GENERATION if wanted.operator == Operator::In => listed(&of.naming.generation),
                aws::GENERATION => matches!(wanted.operator, Operator::Lt | Operator::Lte),
                _ => false,
            }
        });
        if of.previous_generation && !is_named {
            continue;
        }
        let left = of.allocatable().amounts();
        if requests.iter().any(|(name, amount)| amount > left.get(name).unwrap_or(0)) {
            continue;
        }
        for offering in of.offerings.iter().filter(|offering| offering.available) {
            for system in &of.operating_systems {
                let mut labels = catalog.offering_labels(of, offering);
                labels.insert(OS.to_owned(), vec![system.clone()]);
                let fits = requirements.iter().filter(|requirement| known.contains(&*requirement.key)).all(|wanted| {
                    let PoolRequirement { key, operator, values, .. } = wanted.clone();
                    Requirement { key, operator, values }.matches(&labels)
                });
                if fits {
                    found.insert(format!("{}/{}/{}", of.name, offering.zone, offering.capacity_type));
                }
            }
        }
    }
    found
}

#[test]
fn random_requirements_give_what_a_plain_filter_gives() {
    let operators = [
        Operator::In,
        Operator::In,
        Operator::In,
        Operator::NotIn,
        Operator::NotIn,
        Operator::Exists,
        Operator::DoesNotExist,
        Operator::Gt,
        Operator::Lt,
        Operator::Gte,
        Operator::Lte,
    ];
    let mut some = 0;
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let catalog = built_in(["aws", "gcp", "kwok", "fake"][random.random_range(0..4)]).unwrap();
        let of = catalog.types.choose(&mut random).unwrap();
        // Labels as some type has them, so that they can be met; and some that nothing has.
        let mut pool: Vec<(String, Vec<String>)> = catalog.labels(of).into_iter().collect();
        pool.push(("team".to_owned(), vec!["a".to_owned()]));
        pool.push((aws::GPU_NAME.to_owned(), vec!["t4".to_owned()]));
        let mut wanted = Vec::new();
        for _ in 0..random.random_range(0..6) {
            let (key, values) = pool.choose(&mut random).unwrap();
            let operator = *operators.choose(&mut random).unwrap();
            let values: Vec<&str> = match operator {
                Operator::Exists | Operator::DoesNotExist => vec![],
                Operator::In | Operator::NotIn => vec![values.choose(&mut random).unwrap(), "other"],
                _ => vec![values.choose(&mut random).filter(|it| it.parse::<u32>().is_ok()).map_or("4", |it| it)],
            };
            wanted.push(requirement(key, operator, &values));
        }
        let requests = amounts(&[("cpu", random.random_range(0..8000)), ("pods", random.random_range(0..40))]);
        let found = choices(catalog, &NodeClass::default(), &wanted, &requests);
        let listed: BTreeSet<String> = names(&found).into_iter().collect();
        assert_eq!(listed.len(), found.len(), "seed {seed}: doubled");
        assert_eq!(listed, plainly(catalog, &wanted, &requests), "seed {seed}: {wanted:?}");
        assert!(found.is_sorted_by_key(|choice| choice.price_nanos_hour), "seed {seed}");
        some += usize::from(!found.is_empty());
    }
    assert!(some > 20, "most cases find nothing: {some}");
}

#[test]
fn overlays_decide_what_is_chosen_and_what_nodes_have_besides() {
    let catalog = built_in("aws").unwrap();
    let fpga = amounts(&[("cpu", 1000), ("example.com/fpga", 1)]);
    let wanted = [
        requirement(INSTANCE_TYPE, Operator::In, &["m5.large", "c5.large"]),
        requirement(ZONE, Operator::In, &["us-east-1a"]),
        requirement(CAPACITY_TYPE, Operator::In, &["on-demand"]),
    ];
    assert!(choices(catalog, &NodeClass::default(), &wanted, &fpga).is_empty());
    let overlays = overlay::parse(
        "o.yaml",
        "apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: own}
spec:
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]
  price: '0.01'
  capacity: {example.com/fpga: '2'}
",
    );
    let mut overlaid = catalog.clone();
    overlay::apply(&mut overlaid, &overlays.unwrap());
    let found = choices(&overlaid, &NodeClass::default(), &wanted, &fpga);
    assert_eq!(names(&found), ["m5.large/us-east-1a/on-demand"]);
    let shape = &found[0].shape;
    let fpgas = (shape.capacity.get("example.com/fpga"), shape.allocatable.get("example.com/fpga"));
    assert_eq!(fpgas, (Some(2), Some(2)));
    let cheapest = choices(&overlaid, &NodeClass::default(), &wanted, &amounts(&[("cpu", 1000)]));
    assert_eq!(names(&cheapest), ["m5.large/us-east-1a/on-demand", "c5.large/us-east-1a/on-demand"]);
    assert_eq!(cheapest[0].price_nanos_hour, 10_000_000);
}
