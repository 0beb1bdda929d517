//! The content of the workloads.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use millpond_plan::model::{CPU, MEMORY, PODS, PodClass, PodState, Resources, Snapshot};
use millpond_plan::requirement::{Requirements, Undefined};

use super::*;

/// What a workload varies in as text; symbols are numbered by arrival, so equal texts mean equal snapshots.
fn text(workload: &Workload) -> String {
    let Snapshot { classes, pods, nodes, .. } = &workload.snapshot;
    format!("{classes:?} {pods:?} {nodes:?}")
}

fn classes_with<'s>(snapshot: &'s Snapshot, label: &str) -> Vec<(&'s PodClass, usize)> {
    let key = snapshot.symbols.find(label);
    let mut counts = vec![0; snapshot.classes.len()];
    snapshot.pods.iter().for_each(|pod| counts[pod.class.index()] += 1);
    let has = |class: &PodClass| key.is_some_and(|key| class.labels.get(key).is_some());
    snapshot.classes.iter().zip(counts).filter(|(class, _)| has(class)).collect()
}

fn count<'c>(classes: impl IntoIterator<Item = &'c (&'c PodClass, usize)>) -> usize {
    classes.into_iter().map(|(_, count)| count).sum()
}

#[test]
fn the_same_seed_gives_the_same_snapshot_and_another_does_not() {
    let small = scale::Scale { pods: 500, shapes: 60, third: true, families: Families::Usual };
    let made: [(&str, fn(u64, scale::Scale) -> Workload); 5] = [
        ("karpenter", |seed, _| karpenter::workload(600, seed)),
        ("preferences", |seed, _| karpenter::preferences(60, seed)),
        ("scale", |seed, small| scale::workload(small, seed)),
        ("consolidate", |seed, _| consolidate::workload(30, 300, seed)),
        ("everything", |seed, _| mixes::Mix::find("everything").unwrap().workload(Families::Usual, seed)),
    ];
    for (name, make) in made {
        let [first, again, other] = [7, 7, 8].map(|seed| text(&make(seed, small)));
        assert!(first == again, "{name}: the same seed, another snapshot");
        assert!(first != other, "{name}: another seed, the same snapshot");
    }
}

#[test]
fn karpenters_groups_are_a_fifth_each_and_the_rest_is_generic() {
    for (pods, generic) in [(20_000, 4_000), (1_003, 203), (4, 4), (1, 1), (0, 0)] {
        let made = karpenter::workload(pods, karpenter::SEED).snapshot;
        assert_eq!(made.pods.len() as u64, pods);
        let fifth = (pods / 5) as usize;
        let labelled = classes_with(&made, "my-label");
        let spread_over = |key| {
            let over = labelled.iter().filter(move |(class, _)| class.spread.iter().any(|spread| spread.key == key));
            count(over)
        };
        assert_eq!(spread_over(made.names.zone), fifth);
        assert_eq!(spread_over(made.names.hostname), fifth);
        assert_eq!(count(labelled.iter().filter(|(class, _)| class.spread.is_empty())), generic);
        let near = classes_with(&made, "my-affininity");
        assert_eq!(count(near.iter().filter(|(class, _)| class.affinity[0].key == made.names.zone)), fifth);
        let apart = classes_with(&made, "app");
        assert_eq!(count(apart.iter().filter(|(class, _)| class.anti_affinity[0].key == made.names.hostname)), fifth);
    }
}

#[test]
fn karpenters_rules_are_those_of_its_benchmark() {
    let made = karpenter::workload(20_000, karpenter::SEED).snapshot;
    let selects = |selector: &Option<Requirements>, class: &PodClass| {
        millpond_plan::model::selects(selector.as_ref().unwrap(), &class.labels, &made.symbols)
    };
    let (mut own, mut others) = (0, 0);
    for (class, pods) in classes_with(&made, "my-label") {
        for spread in &class.spread {
            assert_eq!((spread.max_skew, spread.hard, spread.min_domains), (1, true, None));
            *(if selects(&spread.selector, class) { &mut own } else { &mut others }) += pods;
        }
    }
    // Own label and selected label are drawn apart: a seventh selects itself.
    assert!((900..1_400).contains(&own), "{own} of {}", own + others);
    for (class, _) in classes_with(&made, "my-affininity") {
        assert!(selects(&class.affinity[0].selector, class));
    }
    for (class, _) in classes_with(&made, "app") {
        assert!(selects(&class.anti_affinity[0].selector, class));
    }
    let sizes: BTreeSet<(i64, i64)> =
        made.classes.iter().map(|class| (class.requests.get(CPU), class.requests.get(MEMORY) >> 20)).collect();
    assert_eq!(sizes.len(), 30);
    assert!(sizes.contains(&(1_500, 4_096)) && sizes.contains(&(100, 100)));
    assert!(made.classes.len() <= 210 + 1_470 + 1_470 + 210 + 30);
    assert!(made.classes.iter().all(|class| class.requests.get(PODS) == 1));
}

#[test]
fn karpenters_types_are_those_of_its_benchmark() {
    let made = karpenter::workload(5, 1).snapshot;
    assert_eq!((made.types.len(), made.pools.len(), made.nodes.len()), (400, 1, 0));
    let find = |name: &str| made.types.iter().find(|of| made.text(of.name) == name).unwrap();
    let large = find("fake-it-9");
    let amounts: Resources =
        [(CPU, 9_900), (MEMORY, (20 << 30) - (10 << 20)), (PODS, 100), (millpond_plan::model::STORAGE, 20 << 30)]
            .into_iter()
            .collect();
    assert_eq!(large.allocatable, amounts);
    assert_eq!(large.offerings.len(), 5);
    assert!(large.offerings.iter().all(|offering| offering.price == 3_147_483_648 && offering.available));
    let label = |of: &millpond_plan::model::InstanceType, key: &str| {
        let requirement = of.labels.get(made.symbols.find(key).unwrap()).unwrap();
        requirement.describe(&made.symbols, 9).to_string()
    };
    assert_eq!(label(large, "special"), "In [optional]");
    assert!(find("fake-it-3").labels.get(made.symbols.find("special").unwrap()).is_none());
    assert_eq!(label(find("fake-it-3"), "size"), "In [small]");
    assert_eq!(label(large, "kubernetes.io/os"), "In [darwin, linux, windows]");
    assert_eq!(label(large, ZONE), "In [test-zone-1, test-zone-2, test-zone-3]");
    let pool = &made.pools[0];
    assert!(pool.requirements.is_empty() && pool.taints.is_empty());
    assert_eq!(pool.limits.resources, [(CPU, 10_000_000_000), (MEMORY, 10_000_000 << 30)]);
}

#[test]
fn preference_pods_are_alike_and_wish_for_what_they_cannot_all_have() {
    let made = karpenter::preferences(karpenter::PREFERENCE_PODS, karpenter::PREFERENCE_SEED).snapshot;
    assert_eq!((made.pods.len(), made.classes.len()), (4_000, 1));
    let class = &made.classes[0];
    let weights: Vec<i32> = class.affinity_preferences.iter().map(|(weight, _)| *weight).collect();
    assert_eq!((weights, class.node_preferences[0].0), (vec![-10, -1], 1));
    assert!(class.affinity.is_empty() && class.anti_affinity.is_empty());
    // Four GiB, as in the runs of Karpenter that the figures are compared with.
    assert_eq!(class.requests.get(MEMORY), 4 << 30);
}

#[test]
fn the_estimator_has_two_sizes_and_one_machine() {
    let made = estimator::workload().snapshot;
    assert_eq!((made.pods.len(), made.classes.len(), made.types.len()), (51_000, 2, 1));
    let sum: i64 = made.pods.iter().map(|pod| made.classes[pod.class.index()].requests.get(CPU)).sum();
    assert_eq!(sum, 1_000 * estimator::NODES as i64);
    assert_eq!(made.types[0].allocatable.get(CPU), 1_000);
    assert_eq!(made.types[0].offerings[0].price, 1_000_000_000);
}

#[test]
fn scale_has_exactly_as_many_pods_and_shapes_as_asked_for() {
    for (pods, shapes, expected) in [(10_000, 2_000, 2_000), (100, 2_000, 100), (1, 5, 1), (0, 5, 0)] {
        let made = scale::workload(scale::Scale { pods, shapes, third: true, families: Families::Usual }, 5).snapshot;
        assert_eq!((made.pods.len() as u64, made.classes.len()), (pods, expected));
        let names: HashSet<&str> = made.pods.iter().map(|pod| &*pod.name).collect();
        assert_eq!(names.len() as u64, pods, "a name is there twice");
    }
}

#[test]
fn a_third_of_the_shapes_is_constrained_where_asked_for() {
    for third in [false, true] {
        let asked = scale::Scale { pods: 10_000, shapes: 1_200, third, families: Families::Usual };
        let made = scale::workload(asked, 5).snapshot;
        let apart = made.classes.iter().filter(|class| !class.anti_affinity.is_empty()).count();
        let spread = made.classes.iter().filter(|class| !class.spread.is_empty()).count();
        assert_eq!((apart, spread), if third { (200, 200) } else { (0, 0) });
    }
}

#[test]
fn families_are_the_whole_catalogue_or_the_usual_ones() {
    let types = |families| {
        let made = scale::workload(scale::Scale { pods: 1, shapes: 1, third: false, families }, 5).snapshot;
        made.types.iter().map(|of| made.text(of.name).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(types(Families::Full).len(), ec2().types.len());
    let usual = types(Families::Usual);
    assert!((600..1_000).contains(&usual.len()), "{}", usual.len());
    for (name, expected) in [("m5.large", true), ("t3.micro", false), ("c4.large", false), ("g5.xlarge", true)] {
        assert_eq!(usual.iter().any(|of| of == name), expected, "{name}");
    }
    assert!(!usual.iter().any(|name| name.contains("metal")));
}

#[test]
fn a_cluster_to_consolidate_is_full_as_asked_for() {
    let made = consolidate::workload(300, 3_001, 1).snapshot;
    assert_eq!((made.nodes.len(), made.pods.len()), (300, 3_001));
    let mut used = vec![Resources::new(); 300];
    for pod in &made.pods {
        assert_eq!(pod.state, PodState::Bound);
        used[pod.node.unwrap().index()].add(&made.classes[pod.class.index()].requests);
    }
    let mut fills = BTreeMap::new();
    for (node, used) in made.nodes.iter().zip(&used) {
        assert_eq!(node.allocatable.first_lacking(used), None, "{}", node.name);
        assert!(node.price.is_some());
        let share = |resource| 100 * used.get(resource) / node.allocatable.get(resource);
        *fills.entry(share(CPU).max(share(MEMORY)) / 10).or_insert(0) += 1;
    }
    let outside: usize = fills.iter().filter(|(tenth, _)| !(2..=9).contains(*tenth)).map(|(_, count)| count).sum();
    assert!(outside <= 15, "{fills:?}");
    assert!(fills.len() >= 6, "{fills:?}");
}

#[test]
fn fewer_pods_than_nodes_leave_nodes_empty() {
    let made = consolidate::workload(10, 4, 1).snapshot;
    let used: HashSet<_> = made.pods.iter().map(|pod| pod.node).collect();
    assert!(used.len() <= 4);
    assert_eq!((made.nodes.len(), made.pods.len()), (10, 4));
}

#[test]
fn mixes_are_what_their_names_say() {
    assert!(mixes::ALL.len() >= 12);
    let names: HashSet<&str> = mixes::ALL.iter().map(|mix| mix.name).collect();
    assert_eq!(names.len(), mixes::ALL.len());
    let classes = |name: &str| mixes::Mix::find(name).unwrap().workload(Families::Usual, 1).snapshot;
    let made = classes("tiny-case");
    assert_eq!((made.classes.len(), made.pods.len()), (3, 7));
    let made = classes("tiny-podlimit");
    assert_eq!((made.classes.len(), made.pods.len()), (3, 10_000));
    let made = classes("gpu-mix");
    let gpu = made.resources.find("nvidia.com/gpu").unwrap();
    assert_eq!(made.classes.iter().filter(|class| class.requests.get(gpu) > 0).count(), 8);
    let made = classes("anti-affinity");
    assert_eq!(made.classes.iter().filter(|class| !class.anti_affinity.is_empty()).count(), 40);
    let made = classes("everything");
    assert_eq!(made.classes.len(), 300);
}

/// No mix asks for what cannot be bought: each class fits some machine of either catalogue.
#[test]
fn every_pod_of_a_mix_fits_some_machine() {
    for mix in mixes::ALL {
        for families in Families::ALL {
            let made = mix.workload(families, mixes::SEED).snapshot;
            for class in &made.classes {
                let fits = made.types.iter().any(|of| {
                    let compatible = |term: &Requirements| {
                        term.compatible_with(&of.labels, Undefined::IsMissing, &made.symbols).is_ok()
                    };
                    of.allocatable.first_lacking(&class.requests).is_none() && class.node_terms.iter().any(compatible)
                });
                assert!(fits, "{} {}: {class:?}", mix.name, families.name());
            }
        }
    }
}
