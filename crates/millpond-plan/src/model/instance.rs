//! Instance types and how they are bought.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Nanos, Resources};
use crate::requirement::Requirements;
use crate::symbol::Symbol;

/// How capacity is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CapacityType {
    /// Paid for in advance, in a limited number.
    Reserved,
    /// Cheaper, and taken back when the cloud needs it.
    Spot,
    /// Bought at the list price, without a time limit.
    OnDemand,
}

impl CapacityType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    /// The value of `karpenter.sh/capacity-type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// The capacity type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// One way to buy an instance type: zone, capacity type and price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offering {
    /// The zone.
    pub zone: Symbol,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Price in nano-dollars per hour.
    pub price: Nanos,
    /// Whether the offering is available now. A stock-out makes it unavailable.
    pub available: bool,
    /// Nodes left, for reserved capacity.
    pub left: Option<u32>,
}

/// A kind of machine, as a pool would run it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InstanceType {
    /// Name, such as `m5.large`.
    pub name: Symbol,
    /// What the node reports; limits count it.
    pub capacity: Resources,
    /// What pods can use: capacity less what the node reserves for itself.
    pub allocatable: Resources,
    /// Labels of its nodes. Zone and capacity type have the values of all its offerings; other labels may have several
    /// values too (an operating system that is chosen at launch). Shared, because snapshots are taken often and types
    /// seldom change.
    pub labels: Arc<Requirements>,
    /// Ways to buy it.
    pub offerings: Vec<Offering>,
    /// Types of greater priority are used first within their pool.
    pub priority: i32,
}

/// The types of a snapshot. Snapshots are taken often and types hardly ever change, so copies share one list until one of
/// them is changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Types(Arc<Vec<InstanceType>>);

impl Types {
    /// Whether two are known to be the same without looking at each: none of them was changed since one was copied.
    pub fn are_one(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Types {
    type Target = Vec<InstanceType>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Types {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl<'t> IntoIterator for &'t Types {
    type Item = &'t InstanceType;
    type IntoIter = std::slice::Iter<'t, InstanceType>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'t> IntoIterator for &'t mut Types {
    type Item = &'t mut InstanceType;
    type IntoIter = std::slice::IterMut<'t, InstanceType>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
