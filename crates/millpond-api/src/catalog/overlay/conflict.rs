//! Overlays of the same weight that set different values for the same offering.

use std::collections::{BTreeMap, BTreeSet};

use super::{Overlay, each_offering, ordered};
use crate::catalog::Catalog;
use crate::selector::LabelValues;

/// The inputs of overlays: the catalogue of a pool, and the labels that the pool gives its nodes.
#[derive(Debug, Clone)]
pub struct Target<'c> {
    /// The catalogue.
    pub catalog: &'c Catalog,
    /// Labels of the pool's nodes.
    pub labels: LabelValues,
}

/// An overlay that is not used, since another goes before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("overlay `{other}` has the same weight and also sets {about}")]
pub struct Conflict {
    /// The overlay.
    pub name: String,
    /// The overlay that has precedence.
    pub other: String,
    /// The first setting that both change.
    pub about: String,
}

/// Overlays that are not used, by name: those that meet another of the same weight that is.
pub fn conflicts(targets: &[Target<'_>], overlays: &[Overlay]) -> BTreeMap<String, Conflict> {
    let ordered = ordered(overlays);
    let meetings = if may_meet(&ordered) { meetings(targets, &ordered) } else { BTreeMap::new() };
    let mut unused: BTreeSet<usize> = BTreeSet::new();
    let mut conflicts = BTreeMap::new();
    for (number, overlay) in ordered.iter().enumerate() {
        let mut earlier = meetings.range((number, 0)..(number + 1, 0)).map(|((_, other), about)| (*other, about));
        if let Some((other, about)) = earlier.find(|(other, _)| !unused.contains(other)) {
            unused.insert(number);
            let (name, other, about) = (overlay.name.clone(), ordered[other].name.clone(), about.clone());
            conflicts.insert(overlay.name.clone(), Conflict { name, other, about });
        }
    }
    conflicts
}

/// Whether two overlays could set the same thing, judged without looking at offerings.
fn may_meet(ordered: &[&Overlay]) -> bool {
    let alike =
        |one: &Overlay, other: &Overlay| one.price.is_some() && other.price.is_some() || shared(one, other).is_some();
    let of_weight = ordered.chunk_by(|one, other| one.weight == other.weight);
    of_weight
        .into_iter()
        .any(|group| group.iter().enumerate().any(|(index, one)| group[..index].iter().any(|other| alike(one, other))))
}

/// A resource that both set.
fn shared<'o>(one: &'o Overlay, other: &Overlay) -> Option<&'o str> {
    one.capacity.keys().find(|name| other.capacity.contains_key(*name)).map(String::as_str)
}

/// Pairs that meet, the later one first, and about what.
fn meetings(targets: &[Target<'_>], ordered: &[&Overlay]) -> BTreeMap<(usize, usize), String> {
    let mut meetings: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for Target { catalog, labels } in targets {
        for of in &catalog.types {
            let mut of_type: BTreeSet<usize> = BTreeSet::new();
            each_offering(catalog, of, labels, |index, labels| {
                let matching = ordered.iter().enumerate().filter(|(_, overlay)| overlay.matches(labels));
                let matching: Vec<usize> = matching.map(|(number, _)| number).collect();
                of_type.extend(&matching);
                let priced: Vec<usize> = matching.into_iter().filter(|one| ordered[*one].price.is_some()).collect();
                for (place, &later) in priced.iter().enumerate() {
                    for &earlier in priced[..place].iter().filter(|one| ordered[**one].weight == ordered[later].weight)
                    {
                        meetings.entry((later, earlier)).or_insert_with(|| {
                            let offering = &of.offerings[index];
                            let kind = offering.capacity_type.name();
                            format!("the price of `{}` in `{}` ({kind})", of.name, offering.zone)
                        });
                    }
                }
            });
            let of_type: Vec<usize> = of_type.into_iter().collect();
            for (place, &later) in of_type.iter().enumerate() {
                for &earlier in of_type[..place].iter().filter(|one| ordered[**one].weight == ordered[later].weight) {
                    if let Some(resource) = shared(ordered[later], ordered[earlier]) {
                        let about = || format!("`{resource}` of `{}`", of.name);
                        meetings.entry((later, earlier)).or_insert_with(about);
                    }
                }
            }
        }
    }
    meetings
}
