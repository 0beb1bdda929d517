//! Edits that could give a pod a place: what to change, in words and in a snapshot.

use super::funnel::Subject;
use super::words::{self, Round};
use crate::model::{ClassId, PoolId, ResourceId, Snapshot, TypeId};
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;
use crate::taint::{Comparison, Taint, Toleration};

/// The owner of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitOf {
    /// A single pool.
    Pool(PoolId),
    /// That of all pools together.
    Cluster,
}

/// One change to the pod's template or to a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The pod tolerates a taint.
    Tolerate(Taint),
    /// The pod requires another value of a label.
    AskFor {
        /// The label.
        key: Symbol,
        /// The value that it requires now.
        instead_of: Symbol,
        /// The value that it should require.
        value: Symbol,
    },
    /// The pod no longer requires a label.
    DropLabel(Symbol),
    /// The pod requests less of a resource.
    Lower {
        /// The resource.
        resource: ResourceId,
        /// The present request.
        from: i64,
        /// The request that would fit.
        to: i64,
    },
    /// A `DoNotSchedule` spread of the pod becomes `ScheduleAnyway`; by its index.
    SoftenSpread(u32),
    /// A required affinity term of the pod becomes a wish.
    SoftenAffinity(u32),
    /// A required anti-affinity term of the pod becomes a wish.
    SoftenAntiAffinity(u32),
    /// A pool allows one more value of a label, or gets the label.
    Allow {
        /// The pool.
        pool: PoolId,
        /// The label.
        key: Symbol,
        /// The value.
        value: Symbol,
    },
    /// A pool drops its requirement on a label.
    DropRequirement {
        /// The pool.
        pool: PoolId,
        /// The label.
        key: Symbol,
    },
    /// A pool lowers a `minValues`.
    LowerMinValues {
        /// The pool.
        pool: PoolId,
        /// The label.
        key: Symbol,
        /// The new number.
        to: u32,
    },
    /// A limit is raised.
    RaiseLimit {
        /// Owner of the limit.
        of: LimitOf,
        /// What is limited: a resource, [`Subject::Nodes`] or [`Subject::Price`].
        what: Subject,
        /// The new limit, in the resource's unit, nodes or nano-dollars per hour.
        to: u64,
    },
    /// No edit: the offering has to become available again.
    Wait {
        /// The type.
        instance_type: TypeId,
        /// Index of the offering.
        offering: u32,
    },
}

impl Edit {
    /// The snapshot with the edit. Changes of the pod are changes of its template: they concern its whole class.
    pub(super) fn apply(&self, snapshot: &Snapshot, class: ClassId) -> Snapshot {
        let mut edited = snapshot.clone();
        match self {
            Self::Tolerate(taint) => {
                let toleration = Toleration {
                    key: Some(taint.key),
                    value: Comparison::Equal(taint.value),
                    effect: Some(taint.effect),
                };
                edited.classes[class.index()].tolerations.push(toleration);
            }
            Self::AskFor { key, instead_of, value } => {
                edit_terms(&mut edited, class, *key, |known| {
                    let (named, complement) = known.named();
                    let replaced = named.iter().map(|one| if one == instead_of { *value } else { *one });
                    if complement { Some(known.clone()) } else { Some(Requirement::one_of(replaced)) }
                });
            }
            Self::DropLabel(key) => edit_terms(&mut edited, class, *key, |_| None),
            Self::Lower { resource, to, .. } => edited.classes[class.index()].requests.set(*resource, *to),
            Self::SoftenSpread(index) => edited.classes[class.index()].spread[*index as usize].hard = false,
            Self::SoftenAffinity(index) => {
                let of = &mut edited.classes[class.index()];
                let term = of.affinity.remove(*index as usize);
                of.affinity_preferences.push((100, term));
            }
            Self::SoftenAntiAffinity(index) => {
                let of = &mut edited.classes[class.index()];
                let term = of.anti_affinity.remove(*index as usize);
                of.affinity_preferences.push((-100, term));
            }
            Self::Allow { pool, key, value } => {
                let requirements = &edited.pools[pool.index()].requirements;
                let widened = match requirements.get(*key) {
                    Some(known) => widened(known, *value),
                    None => Requirement::is(*value),
                };
                edited.pools[pool.index()].requirements = with(snapshot, requirements, *key, Some(widened));
            }
            Self::DropRequirement { pool, key } => {
                let requirements = &edited.pools[pool.index()].requirements;
                edited.pools[pool.index()].requirements = with(snapshot, requirements, *key, None);
            }
            Self::LowerMinValues { pool, key, to } => {
                let requirements = &edited.pools[pool.index()].requirements;
                if let Some(lowered) = requirements.get(*key).and_then(|known| known.clone().with_min_values(*to).ok())
                {
                    edited.pools[pool.index()].requirements = with(snapshot, requirements, *key, Some(lowered));
                }
            }
            Self::RaiseLimit { of, what, to } => {
                let limits = match of {
                    LimitOf::Pool(pool) => &mut edited.pools[pool.index()].limits,
                    LimitOf::Cluster => &mut edited.limits,
                };
                match what {
                    Subject::Resource(resource) => {
                        let known = limits.resources.iter_mut().find(|(known, _)| known == resource);
                        known.into_iter().for_each(|(_, limit)| *limit = i64::try_from(*to).unwrap_or(i64::MAX));
                    }
                    Subject::Nodes => limits.nodes = Some(*to),
                    _ => limits.price = Some(*to),
                }
            }
            Self::Wait { instance_type, offering } => {
                let offering = &mut edited.types[instance_type.index()].offerings[*offering as usize];
                offering.available = true;
                offering.left = offering.left.map(|left| left + 1);
            }
        }
        edited
    }

    /// The edit as an imperative sentence.
    pub(super) fn describe(&self, snapshot: &Snapshot, class: ClassId) -> String {
        let label = |key: &Symbol| words::label(snapshot, *key);
        let text = |value: &Symbol| snapshot.text(*value);
        let of = &snapshot.classes[class.index()];
        match self {
            Self::Tolerate(taint) => format!("add a toleration for {} to the pod", words::taint(snapshot, taint)),
            Self::AskFor { key, instead_of, value } => {
                format!("ask for {} {} instead of {}", label(key), text(value), text(instead_of))
            }
            Self::DropLabel(key) => format!("drop {} from the pod's node selector or affinity", label(key)),
            Self::Lower { resource, from, to } => {
                let name = snapshot.resources.name(*resource);
                let (from, to) = (
                    words::amount(snapshot, *resource, *from, Round::Up),
                    words::amount(snapshot, *resource, *to, Round::Down),
                );
                format!("ask for {name} {to} instead of {from}")
            }
            Self::SoftenSpread(index) => {
                let key = of.spread[*index as usize].key;
                format!("make the spread over {} ScheduleAnyway", label(&key))
            }
            Self::SoftenAffinity(index) => {
                let key = of.affinity[*index as usize].key;
                format!("make the pod affinity by {} preferred instead of required", label(&key))
            }
            Self::SoftenAntiAffinity(index) => {
                let key = of.anti_affinity[*index as usize].key;
                format!("make the pod anti-affinity by {} preferred instead of required", label(&key))
            }
            Self::Allow { pool, key, value } => {
                let name = words::pool(snapshot, *pool);
                match snapshot.pools[pool.index()].requirements.get(*key) {
                    Some(_) => format!("allow {} {} in pool {name}", label(key), text(value)),
                    None => format!("add the label {}={} to pool {name}", text(key), text(value)),
                }
            }
            Self::DropRequirement { pool, key } => {
                let requirement = snapshot.pools[pool.index()].requirements.get(*key);
                let what = requirement.map_or_else(|| label(key).to_owned(), |one| words::wanted(snapshot, *key, one));
                format!("drop the requirement {what} of pool {}", words::pool(snapshot, *pool))
            }
            Self::LowerMinValues { pool, key, to } => {
                format!("lower minValues of {} in pool {} to {to}", label(key), words::pool(snapshot, *pool))
            }
            Self::RaiseLimit { of, what, to } => {
                let whose = match of {
                    LimitOf::Pool(pool) => format!("pool {}", words::pool(snapshot, *pool)),
                    LimitOf::Cluster => "all pools together".to_owned(),
                };
                let amount = |resource: ResourceId| {
                    words::amount(snapshot, resource, i64::try_from(*to).unwrap_or(i64::MAX), Round::Up)
                };
                match what {
                    Subject::Resource(resource) => {
                        let name = snapshot.resources.name(*resource);
                        format!("raise the {name} limit of {whose} to {}", amount(*resource))
                    }
                    Subject::Nodes => format!("raise the limit of nodes of {whose} to {to}"),
                    _ => format!("raise the price limit of {whose} to {}", words::node_price(*to)),
                }
            }
            Self::Wait { instance_type, offering } => {
                let kind = &snapshot.types[instance_type.index()];
                let offering = &kind.offerings[*offering as usize];
                let (how, zone) = (offering.capacity_type.name(), text(&offering.zone));
                format!("wait until {how} {} in {zone} is in stock again", text(&kind.name))
            }
        }
    }
}

/// Changes what a class asks of a label, in each of its alternatives that speaks of it.
fn edit_terms(
    snapshot: &mut Snapshot,
    class: ClassId,
    key: Symbol,
    change: impl Fn(&Requirement) -> Option<Requirement>,
) {
    let terms = snapshot.classes[class.index()].node_terms.clone();
    let edit = |term: &Requirements| match term.get(key) {
        Some(known) => with(snapshot, term, key, change(known)),
        None => term.clone(),
    };
    let edited = terms.iter().map(edit).collect();
    snapshot.classes[class.index()].node_terms = edited;
}

/// The same requirements with another one on a label, or none.
fn with(snapshot: &Snapshot, requirements: &Requirements, key: Symbol, new: Option<Requirement>) -> Requirements {
    let mut changed = Requirements::new();
    for (known, requirement) in requirements.iter().filter(|(known, _)| *known != key) {
        changed.add(known, requirement.clone(), &snapshot.symbols);
    }
    if let Some(new) = new {
        changed.add(key, new, &snapshot.symbols);
    }
    changed
}

/// A requirement that allows one more value.
fn widened(known: &Requirement, value: Symbol) -> Requirement {
    let (named, complement) = known.named();
    if complement {
        return Requirement::none_of(named.iter().copied().filter(|one| *one != value));
    }
    Requirement::one_of(named.iter().copied().chain([value]))
}
