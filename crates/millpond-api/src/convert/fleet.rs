//! Pools as all dialects together can describe them: what is read from one and written in another passes through here.
//!
//! A pool names its machines one by one, each with the offers that can be bought, as Scaling Advisor and Cluster
//! Autoscaler do. A pool that was a NodePool keeps that, too, so that a NodePool comes out as it went in.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::amounts::Amounts;
use crate::catalog::CapacityType;
use crate::duration::{Duration, NillableDuration};
use crate::karpenter::{Disruption, NodePool, PoolRequirement, Taint};
use crate::node_class::Backoff;

/// All pools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Fleet {
    /// The name of what belongs to no pool alone.
    pub(super) name: String,
    /// The namespace of a constraint.
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) consumer_id: String,
    pub(super) pools: Vec<Pool>,
}

/// Where something was read: an object and the field of it that all else is below.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SourceField {
    /// `ScalingConstraint/shop`.
    pub(super) object: String,
    /// `spec.nodePools[0]`; empty for the whole object.
    pub(super) field: String,
}

impl SourceField {
    /// A field below this one.
    pub(super) fn field(&self, field: &str) -> String {
        if self.field.is_empty() { field.to_owned() } else { format!("{}.{field}", self.field) }
    }
}

/// The fields of a pool under the names that its dialect gives them, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Dialect {
    #[default]
    Karpenter,
    Advisor,
    Autoscaler,
}

/// A field of a pool that a target may not be able to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Labels,
    Taints,
    Requirements,
    Types,
    Limits,
    Least,
    Weight,
    Prices,
}

impl Dialect {
    fn name(self, field: Field) -> &'static str {
        use Field::{Labels, Least, Limits, Name, Prices, Requirements, Taints, Types, Weight};
        match (self, field) {
            (Self::Karpenter, Name) => "metadata.name",
            (Self::Karpenter, Labels) => "spec.template.metadata.labels",
            (Self::Karpenter, Taints) => "spec.template.spec.taints",
            (Self::Karpenter, Requirements | Types | Prices | Least) => "spec.template.spec.requirements",
            (Self::Karpenter, Limits) => "spec.limits",
            (Self::Karpenter, Weight) => "spec.weight",
            (Self::Advisor, Name) => "name",
            (Self::Advisor, Labels) => "labels",
            (Self::Advisor, Taints) => "taints",
            (Self::Advisor, Requirements | Types | Prices) => "nodeTemplates",
            (Self::Advisor, Limits) => "quota",
            (Self::Advisor, Least) => "min",
            (Self::Advisor, Weight) => "priority",
            (Self::Autoscaler, Name | Labels | Requirements | Types | Prices) => "metadata.labels",
            (Self::Autoscaler, Taints) => "spec.taints",
            (Self::Autoscaler, Limits | Least | Weight) => "metadata.annotations",
        }
    }
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pool {
    pub(super) dialect: Dialect,
    pub(super) place: SourceField,
    pub(super) name: String,
    pub(super) region: String,
    /// Higher first.
    pub(super) weight: i64,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) limits: Amounts,
    /// Minimum number of nodes.
    pub(super) least: u64,
    /// Requirements on labels that no machine has, each with its index.
    pub(super) own: Vec<(usize, PoolRequirement)>,
    pub(super) disruption: Disruption,
    pub(super) expire_after: Option<NillableDuration>,
    pub(super) drain: Option<Duration>,
    pub(super) backoff: Option<Backoff>,
    pub(super) machines: Vec<Machine>,
    pub(super) original: Option<Box<Original>>,
}

/// The NodePool that a pool was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) pool: NodePool,
    /// As it was read, with what its type does not know.
    pub(super) object: Value,
    /// The node class that belongs to it.
    pub(super) class: Option<super::gather::Class>,
    /// The name of its catalogue.
    pub(super) catalog: String,
}

/// A kind of machine that a pool may buy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Machine {
    /// Where it was read, within the object of its pool.
    pub(super) field: String,
    /// The name of the template; empty where there is none.
    pub(super) template: String,
    pub(super) instance_type: String,
    pub(super) arch: String,
    pub(super) os: String,
    pub(super) capacity: Amounts,
    pub(super) kube_reserved: Amounts,
    pub(super) system_reserved: Amounts,
    pub(super) most_volumes: Option<i32>,
    /// Higher first, within the pool.
    pub(super) priority: i32,
    /// Labels of the type beyond those that every provider has.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) offers: Vec<Offer>,
}

/// A way to buy a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) zone: String,
    pub(super) capacity_type: CapacityType,
    pub(super) price: u64,
    pub(super) estimated: bool,
}

impl Pool {
    /// The path of a field in the object that it was read from.
    pub(super) fn path(&self, field: Field) -> String {
        self.place.field(self.dialect.name(field))
    }

    /// The path of a field of one of its machines; of the field that names machines where they were not named one
    /// by one.
    pub(super) fn part(&self, machine: &Machine, field: &str) -> String {
        match (self.dialect, field.split('.').next()) {
            (Dialect::Autoscaler, Some("capacity")) => format!("status.{field}"),
            (Dialect::Autoscaler, Some("kubeReservedCapacity")) => "status.allocatable".to_owned(),
            _ if machine.field.is_empty() => self.path(Field::Types),
            _ => format!("{}.{field}", machine.field),
        }
    }

    /// All zones, each once, in the order of the machines' offers.
    pub(super) fn zones(&self) -> Vec<String> {
        distinct(self.machines.iter().flat_map(|machine| &machine.offers).map(|offer| offer.zone.clone()))
    }

    /// All ways in which its machines can be bought.
    pub(super) fn capacity_types(&self) -> Vec<CapacityType> {
        distinct(self.machines.iter().flat_map(|machine| &machine.offers).map(|offer| offer.capacity_type))
    }
}

impl Machine {
    /// Capacity less the reserved resources.
    pub(super) fn allocatable(&self) -> Amounts {
        let mut left = self.capacity.clone();
        for (name, amount) in self.kube_reserved.iter().chain(self.system_reserved.iter()) {
            if let Some(there) = left.0.get_mut(name) {
                *there = (*there - amount).max(0);
            }
        }
        left
    }

    /// The lowest price.
    pub(super) fn price(&self) -> u64 {
        self.offers.iter().map(|offer| offer.price).min().unwrap_or(u64::MAX)
    }
}

/// Each once, in the order of first appearance.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}
