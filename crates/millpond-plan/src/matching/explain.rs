//! Why a machine got its host or none: one reason per host, the runner-up, and the smallest change that would help.

use std::fmt;

use super::Outcome;
use super::model::{Availability, Inventory, Operator, Pool, Requirement, Spread};

/// Why a host does not suit a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// A label differs from what the selector asks for.
    LabelMismatch {
        /// The label.
        key: String,
        /// The requirement, as kubectl writes it.
        wanted: String,
        /// The host's value; `None` if it lacks the label.
        present: Option<String>,
    },
    /// The host is too small.
    CapacityShort {
        /// The resource.
        resource: String,
        /// The required amount.
        wanted: i64,
        /// The host's amount.
        present: i64,
    },
    /// The host cannot be used now; never [`Availability::Free`].
    Unavailable(Availability),
    /// The host was assigned to a machine of this pool.
    ReservedFor {
        /// The pool.
        pool: String,
        /// The machine.
        machine: String,
    },
    /// The pool has its share of machines in the host's failure domain.
    SpreadLimit {
        /// The domain.
        domain: String,
    },
    /// The machine got a host that is worth less, or comes first by priority and name.
    Dearer {
        /// The difference, see [`Inventory::value`].
        by: i64,
    },
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LabelMismatch { key, wanted, present: Some(present) } => {
                write!(f, "LabelMismatch: wants {wanted}, has {key}={present}")
            }
            Self::LabelMismatch { key, wanted, present: None } => {
                write!(f, "LabelMismatch: wants {wanted}, has no label {key}")
            }
            Self::CapacityShort { resource, wanted, present } => {
                write!(f, "CapacityShort: wants {resource} {wanted}, has {present}")
            }
            Self::Unavailable(availability) => match availability {
                Availability::Attached { machine } => write!(f, "Attached: to machine {machine}"),
                Availability::LeaseExpired { seconds } => write!(f, "LeaseExpired: {seconds}s ago"),
                Availability::Quarantined { reason } => write!(f, "Quarantined: {reason}"),
                other => write!(f, "{other:?}"),
            },
            Self::ReservedFor { pool, machine } => write!(f, "ReservedFor: machine {machine} of pool {pool}"),
            Self::SpreadLimit { domain } => write!(f, "SpreadLimit: {domain} holds its share of the pool"),
            Self::Dearer { by: 0 } => f.write_str("Dearer: equal, but later by priority and name"),
            Self::Dearer { by } => write!(f, "Dearer: worth {by} more than the host that was chosen"),
        }
    }
}

/// Labels that would make a host suitable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The host.
    pub host: String,
    /// Each as it is typed after `kubectl label byohost HOST`: `purpose=worker`, or `rack-` to remove one.
    pub labels: Vec<String>,
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kubectl label byohost {} {} --overwrite", self.host, self.labels.join(" "))
    }
}

/// Why a machine got its host, or got none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanation {
    /// The host that it got.
    pub chosen: Option<String>,
    /// Every other host with the reason against it.
    pub rejected: Vec<(String, Rejection)>,
    /// The suitable host that it would have got next, and how much more it is worth.
    pub runner_up: Option<(String, i64)>,
    /// The smallest change of labels that would give the pool one more host.
    pub fix: Option<Fix>,
}

/// The first reason why a host does not suit a pool, whatever other machines do.
pub(super) fn reject(inventory: &Inventory, pool: &Pool, host: usize) -> Option<Rejection> {
    let availability = &inventory.hosts[host].availability;
    if *availability != Availability::Free {
        return Some(Rejection::Unavailable(availability.clone()));
    }
    let short = pool.needs.iter().find(|(resource, wanted)| inventory.amount(host, resource) < **wanted);
    if let Some((resource, &wanted)) = short {
        let present = inventory.amount(host, resource);
        return Some(Rejection::CapacityShort { resource: resource.clone(), wanted, present });
    }
    let wrong = mismatches(inventory, pool, host).next()?;
    let (key, present) = (wrong.key.clone(), inventory.label(host, &wrong.key).map(str::to_owned));
    Some(Rejection::LabelMismatch { key, wanted: typed(wrong), present })
}

fn mismatches<'p>(inventory: &'p Inventory, pool: &'p Pool, host: usize) -> impl Iterator<Item = &'p Requirement> {
    pool.selector.iter().filter(move |requirement| !requirement.holds(inventory.label(host, &requirement.key)))
}

/// A requirement as kubectl writes it.
pub fn typed(requirement: &Requirement) -> String {
    let Requirement { key, operator, values } = requirement;
    match (operator, values.as_slice()) {
        (Operator::In, [value]) => format!("{key}={value}"),
        (Operator::In, values) => format!("{key} in ({})", values.join(",")),
        (Operator::NotIn, [value]) => format!("{key}!={value}"),
        (Operator::NotIn, values) => format!("{key} notin ({})", values.join(",")),
        (Operator::Exists, _) => key.clone(),
        (Operator::DoesNotExist, _) => format!("!{key}"),
    }
}

/// The label change that makes a requirement hold, as kubectl takes it.
fn change(requirement: &Requirement) -> String {
    let Requirement { key, operator, values } = requirement;
    match operator {
        Operator::In => format!("{key}={}", values.first().map_or("", String::as_str)),
        Operator::Exists => format!("{key}=true"),
        Operator::NotIn | Operator::DoesNotExist => format!("{key}-"),
    }
}

/// Explains the place of one machine: pool and machine by their numbers in the input of the match.
pub fn explain(inventory: &Inventory, pools: &[Pool], outcome: &Outcome, pool: usize, machine: usize) -> Explanation {
    let chosen = outcome.hosts[pool][machine];
    let mut owners = vec![None; inventory.hosts.len()];
    for (pool, hosts) in outcome.hosts.iter().enumerate() {
        for (machine, host) in hosts.iter().enumerate() {
            if let Some(host) = host {
                owners[*host as usize] = Some((pool, machine));
            }
        }
    }
    let chosen_value = chosen.map(|host| inventory.value(host as usize));
    let mut explanation =
        Explanation { chosen: chosen.map(|host| name(inventory, host as usize)), ..Explanation::default() };
    let mut free: Vec<(i64, &str)> = Vec::new();
    for host in (0..inventory.hosts.len()).filter(|&host| chosen != Some(host as u32)) {
        let rejection = match (reject(inventory, &pools[pool], host), owners[host]) {
            (Some(rejection), _) => rejection,
            (None, Some((pool, machine))) => Rejection::ReservedFor {
                pool: pools[pool].name.clone(),
                machine: pools[pool].machines[machine].name.clone(),
            },
            (None, None) => match chosen_value {
                Some(value) => {
                    let by = inventory.value(host) - value;
                    free.push((by, &inventory.hosts[host].name));
                    Rejection::Dearer { by }
                }
                None => spread_limit(inventory, &pools[pool], host),
            },
        };
        explanation.rejected.push((name(inventory, host), rejection));
    }
    explanation.runner_up = free.into_iter().min().map(|(by, name)| (name.to_owned(), by));
    explanation.fix = smallest_fix(inventory, &pools[pool], &owners);
    explanation
}

fn name(inventory: &Inventory, host: usize) -> String {
    inventory.hosts[host].name.clone()
}

/// A suitable host stays free beside a waiting machine only because of hard spread.
fn spread_limit(inventory: &Inventory, pool: &Pool, host: usize) -> Rejection {
    debug_assert_eq!(pool.spread, Spread::Hard, "a suitable host is free");
    let domain = inventory.hosts[host].domain.and_then(|domain| inventory.domains.get(domain as usize));
    Rejection::SpreadLimit { domain: domain.cloned().unwrap_or_else(|| "the hosts without a domain".to_owned()) }
}

/// Of the free hosts that only labels exclude, the one with the fewest wrong labels; of these, the least valuable.
fn smallest_fix(inventory: &Inventory, pool: &Pool, owners: &[Option<(usize, usize)>]) -> Option<Fix> {
    let candidate = |host: usize| {
        let rejection = reject(inventory, pool, host)?;
        let by_label = matches!(rejection, Rejection::LabelMismatch { .. }) && owners[host].is_none();
        let count = mismatches(inventory, pool, host).count();
        by_label.then(|| (count, inventory.value(host), inventory.hosts[host].name.as_str(), host))
    };
    let (.., host) = (0..inventory.hosts.len()).filter_map(candidate).min()?;
    let labels = mismatches(inventory, pool, host).map(change).collect();
    Some(Fix { host: name(inventory, host), labels })
}
