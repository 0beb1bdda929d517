//! The offerings that can be bought for a NodeClaim: those of a catalogue that its requirements allow and that hold its
//! requests, in the order in which they are tried.
//!
//! This is asked for every launch. Types are dismissed by what costs least to look at (name, then size, then labels);
//! nothing is built of a type before all of it fits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millpond_api::amounts::Amounts;
use millpond_api::catalog::{CapacityType, Catalog, InstanceType, Offering};
use millpond_api::karpenter::PoolRequirement;
use millpond_api::labels::{self, CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, OS, ZONE, current_name};
use millpond_api::node_class::NodeClass;
use millpond_api::selector::Operator;

use crate::request::{Choice, OfferingKey, Shape};

/// The offerings of a class's catalogue that requirements allow and that hold requests, cheapest first.
///
/// Requirements are those of a NodeClaim. A label that the provider fills in ([`Catalog::well_known`]) must be as
/// they say; other labels are put on the node by its claim, and any value of theirs can be had. `requests` may name
/// `pods`. Offerings that the catalogue calls unavailable are left out.
///
/// Types of a previous generation are among them only where the requirements name them.
///
/// Prices and resources that people lay over a catalogue are in it already. What they add to a type is in the shape of
/// its nodes: simulated ones have it, on others it comes with a device plugin.
///
/// Of equal price, reserved capacity is before spot, spot before on-demand (what is paid for is used up first, and at
/// one price spot leaves the on-demand quota alone); then by name, then by zone. A type with several operating systems
/// gets the first that is allowed.
pub fn choices(
    catalog: &Catalog,
    class: &NodeClass,
    requirements: &[PoolRequirement],
    requests: &Amounts,
) -> Vec<Choice> {
    let wanted = Wanted::new(catalog, requirements);
    let mut found = Vec::new();
    for of in wanted.types(catalog).into_iter().filter(|of| of.generation_is_wanted(requirements)) {
        let offerings = || of.offerings.iter().filter(|offering| wanted.offering(offering));
        if offerings().next().is_none() {
            continue;
        }
        if !of.node_allocatable(&class.spec.kubelet).hold(requests) {
            continue;
        }
        let Some(labels) = wanted.labels(catalog, of) else { continue };
        let capacity = of.node_capacity(&class.spec.kubelet).amounts();
        let allocatable = of.node_allocatable(&class.spec.kubelet).amounts();
        let shape = Arc::new(Shape { labels, capacity, allocatable });
        found.extend(offerings().map(|offering| (rank(offering), choice(of, offering, &shape))));
    }
    found.sort_by(|(rank, choice), (other_rank, other)| {
        rank.cmp(other_rank).then_with(|| choice.offering.cmp(&other.offering))
    });
    found.into_iter().map(|(_, choice)| choice).collect()
}

/// Price, then capacity type.
fn rank(offering: &Offering) -> (u64, Reverse<CapacityType>) {
    // On-demand < spot < reserved in the order of tables.
    (offering.price_nanos_hour, Reverse(offering.capacity_type))
}

fn choice(of: &InstanceType, offering: &Offering, shape: &Arc<Shape>) -> Choice {
    Choice {
        offering: OfferingKey::new(of.name.as_str(), &*offering.zone, offering.capacity_type.name()),
        shape: Arc::clone(shape),
        price_nanos_hour: offering.price_nanos_hour,
    }
}

/// Requirements by label.
struct Wanted<'r> {
    names: Vec<&'r PoolRequirement>,
    zones: Vec<&'r PoolRequirement>,
    capacity_types: Vec<&'r PoolRequirement>,
    /// All other labels that the provider fills in.
    others: Vec<(&'r str, Vec<&'r PoolRequirement>)>,
}

impl<'r> Wanted<'r> {
    fn new(catalog: &'r Catalog, requirements: &'r [PoolRequirement]) -> Self {
        let mut wanted = Self { names: vec![], zones: vec![], capacity_types: vec![], others: vec![] };
        let mut well_known = None;
        for requirement in requirements {
            match current_name(&requirement.key) {
                INSTANCE_TYPE => wanted.names.push(requirement),
                ZONE => wanted.zones.push(requirement),
                CAPACITY_TYPE => wanted.capacity_types.push(requirement),
                // The claim's own.
                NODE_POOL => {}
                key => {
                    let known: &BTreeSet<&str> = well_known.get_or_insert_with(|| well_known_of(catalog));
                    match wanted.others.iter_mut().find(|(other, _)| *other == key) {
                        Some((_, list)) => list.push(requirement),
                        None if known.contains(key) => wanted.others.push((key, vec![requirement])),
                        None => {}
                    }
                }
            }
        }
        wanted
    }

    /// The types that the requirements on their name allow.
    fn types<'c>(&self, catalog: &'c Catalog) -> Vec<&'c InstanceType> {
        // Claims of the planner name a few of a thousand.
        match self.names.iter().find(|requirement| requirement.operator == Operator::In) {
            None => catalog.types.iter().filter(|of| all_allow(&self.names, &of.name)).collect(),
            Some(named) => {
                let distinct: BTreeSet<&str> = named.values.iter().map(String::as_str).collect();
                let found = distinct.into_iter().filter_map(|name| catalog.find(name));
                found.filter(|of| all_allow(&self.names, &of.name)).collect()
            }
        }
    }

    fn offering(&self, offering: &Offering) -> bool {
        offering.available
            && offering.reservation_count != Some(0)
            && all_allow(&self.zones, &offering.zone)
            && all_allow(&self.capacity_types, offering.capacity_type.name())
    }

    /// The labels of a node of a type, if they are allowed.
    fn labels(&self, catalog: &Catalog, of: &InstanceType) -> Option<BTreeMap<String, String>> {
        if !self.others.is_empty() {
            let mut seen = vec![Seen::Missing; self.others.len()];
            catalog.each_label(of, |key, value| {
                for ((wanted, requirements), seen) in self.others.iter().zip(&mut seen) {
                    if *wanted == key {
                        let allowed = all_allow(requirements, value);
                        // Of several operating systems one is enough; any other label is given once, or again by the
                        // type itself, which has precedence.
                        let keep = key == OS && *seen == Seen::Allowed;
                        *seen = if allowed || keep { Seen::Allowed } else { Seen::Refused };
                    }
                }
            });
            let fits = self.others.iter().zip(seen).all(|((_, requirements), seen)| match seen {
                Seen::Allowed => true,
                Seen::Refused => false,
                Seen::Missing => requirements.iter().all(|requirement| allows_missing(requirement)),
            });
            if !fits {
                return None;
            }
        }
        let systems = self.others.iter().find(|(key, _)| *key == OS).map_or(&[][..], |(_, list)| list);
        let system = of.operating_systems.iter().find(|system| all_allow(systems, system));
        let mut labels = BTreeMap::new();
        catalog.each_label(of, |key, value| {
            if key != OS || system.is_some_and(|system| system == value) {
                labels.insert(key.to_owned(), value.to_owned());
            }
        });
        Some(labels)
    }
}

/// How a label of a type was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Missing,
    Allowed,
    Refused,
}

fn well_known_of(catalog: &Catalog) -> BTreeSet<&str> {
    labels::WELL_KNOWN.iter().copied().chain(catalog.well_known()).collect()
}

fn all_allow(requirements: &[&PoolRequirement], value: &str) -> bool {
    requirements.iter().all(|requirement| allows(requirement, value))
}

fn allows_missing(requirement: &PoolRequirement) -> bool {
    matches!(requirement.operator, Operator::NotIn | Operator::DoesNotExist)
}

fn allows(requirement: &PoolRequirement, value: &str) -> bool {
    let listed = || requirement.values.iter().any(|listed| listed == value);
    let compares = |test: fn(&i64, &i64) -> bool| {
        let bound = requirement.values.first().and_then(|bound| bound.parse().ok());
        bound.zip(value.parse().ok()).is_some_and(|(bound, value)| test(&value, &bound))
    };
    match requirement.operator {
        Operator::In => listed(),
        Operator::NotIn => !listed(),
        Operator::Exists => true,
        Operator::DoesNotExist => false,
        Operator::Gt => compares(|value, bound| value > bound),
        Operator::Lt => compares(|value, bound| value < bound),
        Operator::Gte => compares(|value, bound| value >= bound),
        Operator::Lte => compares(|value, bound| value <= bound),
    }
}

#[cfg(test)]
mod tests;
