//! The same cluster in another order gives the same plan.

use std::collections::BTreeMap;

use millpond_plan::model::{ClassId, Snapshot};
use millpond_plan::plan::{Outcome, Target};
use millpond_plan::testing::{Recipe, Rng};

use super::{for_seeds, quick_plan};

/// The plan without names of pods: what is bought, where equal pods go, and who has no place. Equal pods may change
/// places with each other.
fn told(snapshot: &Snapshot, outcome: &Outcome) -> String {
    // A class is told by the name of its first pod, whatever its number.
    let mut class_names: BTreeMap<ClassId, &str> = BTreeMap::new();
    for pod in &snapshot.pods {
        let name = class_names.entry(pod.class).or_insert(&pod.name);
        *name = (*name).min(&pod.name);
    }
    let namespace = |class: &ClassId| snapshot.text(snapshot.classes[class.index()].namespace);
    let class_name = |class: ClassId| format!("{}/{}", namespace(&class), class_names[&class]);
    let mut contents: BTreeMap<Target, BTreeMap<String, usize>> = BTreeMap::new();
    for (pod, target) in &outcome.plan.placements {
        let class = class_name(snapshot.pods[pod.index()].class);
        *contents.entry(*target).or_default().entry(class).or_default() += 1;
    }
    let mut lines = Vec::new();
    for (number, node) in outcome.plan.new_nodes.iter().enumerate() {
        let mut labels: Vec<String> =
            node.labels.iter().map(|(key, value)| format!("{}={}", snapshot.text(key), snapshot.text(value))).collect();
        labels.sort_unstable();
        let pods = contents.get(&Target::New(number as u32));
        lines.push(format!("buy {} for {}: {pods:?}", labels.join(" "), node.price));
    }
    for (number, node) in snapshot.nodes.iter().enumerate() {
        if let Some(pods) = contents.get(&Target::Existing(number.into())) {
            lines.push(format!("use {}: {pods:?}", node.name));
        }
    }
    let mut unplaced: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for (pod, verdict) in &outcome.report.unplaced {
        let message = &outcome.report.verdicts[*verdict as usize].message;
        *unplaced.entry((class_name(snapshot.pods[pod.index()].class), message)).or_default() += 1;
    }
    lines.push(format!("unplaced {unplaced:?}"));
    lines.push(format!("cost {} bound {}", outcome.report.cost_after, outcome.report.bound));
    lines.join("\n")
}

fn compare(one: &Snapshot, other: &Snapshot) -> Result<(), String> {
    let [one, other] = [one, other].map(|snapshot| told(snapshot, &quick_plan(snapshot)));
    let different = one.lines().zip(other.lines()).find(|(one, other)| one != other);
    match different {
        Some((one, other)) => Err(format!("\n  {one}\n  {other}")),
        None if one.lines().count() != other.lines().count() => Err("one plan is longer".to_owned()),
        None => Ok(()),
    }
}

/// Pods and classes in another order.
fn shuffled(snapshot: &Snapshot, seed: u64) -> Snapshot {
    let mut rng = Rng::new(seed ^ 0xdead_beef);
    let mut other = snapshot.clone();
    rng.shuffle(&mut other.pods);
    let mut order: Vec<usize> = (0..snapshot.classes.len()).collect();
    rng.shuffle(&mut order);
    other.classes = order.iter().map(|class| snapshot.classes[*class].clone()).collect();
    let moved = |class: ClassId| {
        ClassId::from(order.iter().position(|old| *old == class.index()).expect("every class is there"))
    };
    other.pods.iter_mut().for_each(|pod| pod.class = moved(pod.class));
    other.daemons.iter_mut().for_each(|class| *class = moved(*class));
    other
}

#[test]
fn the_order_of_pods_does_not_matter() {
    for_seeds(0..250, |seed| {
        let snapshot = Recipe::everything(25).snapshot(seed);
        compare(&snapshot, &shuffled(&snapshot, seed))
    });
}

#[test]
fn the_order_of_texts_does_not_matter() {
    for_seeds(0..250, |seed| {
        let recipe = Recipe::everything(25);
        compare(&recipe.snapshot(seed), &recipe.snapshot_with_other_symbols(seed))
    });
}
