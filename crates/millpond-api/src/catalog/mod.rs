//! The catalogue: which machines can be bought, where, and for how much.
//!
//! A [`Catalog`] is a list of [`InstanceType`]s, each with its [`Offering`]s
//! (zone × capacity type, with a price). It comes with the binary (AWS, GCP),
//! from code ([`synthetic`]), from a file ([`import`], [`text`]), or from the
//! cluster ([`config_map`]);
//! [`overlay`] changes prices, [`query`] selects and sorts.

pub mod catalog_set;
pub mod config_map;
mod ec2;
pub mod import;
pub mod naming;
mod node;
pub mod overhead;
pub mod overlay;
pub mod query;
mod shipped;
pub mod synthetic;
#[cfg(test)]
mod tests;
pub mod text;
mod type_labels;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::karpenter::PoolRequirement;
use crate::labels;
use crate::selector::{LabelValues, Operator};
use crate::spelling::nearest;

pub use catalog_set::CatalogSet;
pub use overhead::Overhead;
pub use shipped::{BUILT_IN, built_in};

/// Whose machines these are: decides the names of labels, how a type's name is
/// read, and what the node keeps for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// EC2, as Karpenter's AWS provider sees it.
    Aws,
    /// Compute Engine, as Karpenter's GCP provider sees it.
    Gcp,
    /// Karpenter's KWOK provider.
    Kwok,
    /// Karpenter's test provider; also own machines that no cloud describes.
    Generic,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Aws, Self::Gcp, Self::Kwok, Self::Generic];

    /// The word in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Gcp => "gcp",
            Self::Kwok => "kwok",
            Self::Generic => "generic",
        }
    }

    /// The provider of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.name() == name)
    }
}

/// How capacity is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CapacityType {
    /// Bought at the list price, without a time limit.
    OnDemand,
    /// Cheaper, and taken back when the cloud needs it.
    Spot,
    /// Paid for already, in a limited number.
    Reserved,
}

impl CapacityType {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 3] = [Self::OnDemand, Self::Spot, Self::Reserved];

    /// The value of `karpenter.sh/capacity-type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::Reserved => "reserved",
        }
    }

    /// The capacity type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One way to buy a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offering {
    /// The zone.
    pub zone: Arc<str>,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Nano-dollars an hour.
    pub price_nanos_hour: u64,
    /// The price is a stated fraction of another one, not a published fact.
    pub estimated: bool,
    /// Whether it can be bought.
    pub available: bool,
    /// Nodes left, for reserved capacity.
    pub reservation_count: Option<u32>,
}

/// The graphics processors of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// `a100`, `nvidia-l4`.
    pub name: String,
    /// `nvidia`, `amd`; empty when not known.
    pub manufacturer: String,
    /// How many; 0 for a share of one that no device plugin counts.
    pub count: u32,
    /// Memory of one, or of the share.
    pub memory_mib: u64,
    /// The extended resource that counts them, where one does.
    pub resource: Option<String>,
}

/// One kind of machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    /// `m5.large`.
    pub name: String,
    /// `amd64` or `arm64`.
    pub arch: String,
    /// `linux`, `windows`, `darwin`.
    pub operating_systems: Vec<String>,
    /// Cores, in thousandths.
    pub cpu_milli: u64,
    /// Memory as sold.
    pub memory_bytes: u64,
    /// The root disk that pods may use.
    pub storage_bytes: u64,
    /// The most pods that a node runs.
    pub pods: u32,
    /// Parts of the name.
    pub naming: naming::Naming,
    /// The cloud has replaced it by a newer one: it is bought only for pools that name it.
    pub previous_generation: bool,
    /// Graphics processors.
    pub gpu: Option<Gpu>,
    /// Local NVMe disks, in GB.
    pub local_nvme_gb: Option<u64>,
    /// Baseline network bandwidth.
    pub network_mbps: Option<u64>,
    /// Further extended resources.
    pub extended: BTreeMap<String, u64>,
    /// Labels beyond those that the provider's rules give.
    pub labels: BTreeMap<String, String>,
    /// What the machine and the node reserve for themselves.
    pub overhead: Overhead,
    /// Ways to buy it, by zone, then capacity type.
    pub offerings: Vec<Offering>,
}

/// Kubernetes' name of an architecture that a kubelet runs on, by that or another common name.
pub(crate) fn architecture(name: &str) -> Option<&'static str> {
    import::build::architecture(name)
}

/// Amounts of everything that pods ask a node for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// Cores, in thousandths.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Ephemeral storage.
    pub storage_bytes: u64,
    /// Pods.
    pub pods: u32,
    /// Extended resources.
    pub extended: BTreeMap<String, u64>,
}

impl InstanceType {
    /// Whether a pool, or a claim, with such requirements has it bought as far as its generation goes: a type of a
    /// previous one only where a list of types, families or generations has it, or generations are bounded from above.
    pub fn generation_is_wanted(&self, requirements: &[PoolRequirement]) -> bool {
        const BOUNDS: [Operator; 2] = [Operator::Lt, Operator::Lte];
        let named = |requirement: &PoolRequirement| {
            let (value, bounded) = match labels::current_name(&requirement.key) {
                labels::INSTANCE_TYPE => (&self.name, false),
                labels::aws::FAMILY => (&self.naming.family, false),
                labels::aws::GENERATION => (&self.naming.generation, BOUNDS.contains(&requirement.operator)),
                _ => return false,
            };
            bounded || (requirement.operator == Operator::In && requirement.values.contains(value))
        };
        !self.previous_generation || requirements.iter().any(named)
    }

    /// What the node reports as its capacity: memory without what the
    /// hypervisor takes.
    pub fn capacity(&self) -> Resources {
        let mut extended = self.extended.clone();
        if let Some(Gpu { resource: Some(resource), count, .. }) = &self.gpu {
            extended.insert(resource.clone(), u64::from(*count));
        }
        Resources {
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes.saturating_sub(self.overhead.vm_memory_bytes),
            storage_bytes: self.storage_bytes,
            pods: self.pods,
            extended,
        }
    }

    /// What is left for pods: capacity without the overhead.
    pub fn allocatable(&self) -> Resources {
        let capacity = self.capacity();
        let reserved = self.overhead.reserved();
        Resources {
            cpu_milli: capacity.cpu_milli.saturating_sub(reserved.cpu_milli),
            memory_bytes: capacity.memory_bytes.saturating_sub(reserved.memory_bytes),
            storage_bytes: capacity.storage_bytes.saturating_sub(reserved.storage_bytes),
            ..capacity
        }
    }

    /// The lowest price among available offerings that a test lets pass.
    pub fn cheapest(&self, test: impl Fn(&Offering) -> bool) -> Option<&Offering> {
        let offerings = self.offerings.iter().filter(|offering| offering.available && test(offering));
        offerings.min_by_key(|offering| offering.price_nanos_hour)
    }
}

/// Instance types with the facts that they share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    /// `aws`, or the name of a file.
    pub name: String,
    /// The provider of the machines.
    pub provider: Provider,
    /// The region of all offerings; empty when there is none.
    pub region: String,
    /// Where a type is offered unless it says otherwise.
    pub zones: Vec<Arc<str>>,
    /// Spot prices that are not published are this many thousandths of on-demand.
    pub spot_per_mille: Option<u32>,
    /// Where the facts come from, and when.
    pub source: String,
    /// By name, without duplicates.
    pub types: Vec<InstanceType>,
}

impl Catalog {
    /// The type of that name.
    pub fn find(&self, name: &str) -> Option<&InstanceType> {
        self.types.binary_search_by(|candidate| candidate.name.as_str().cmp(name)).ok().map(|index| &self.types[index])
    }

    /// The name most similar to an unknown one.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.types.iter().map(|candidate| candidate.name.as_str()))
    }

    /// The labels of a type with every value each may take: zone and capacity
    /// type have those of its available offerings.
    pub fn labels(&self, of: &InstanceType) -> LabelValues {
        type_labels::of_type(self, of)
    }

    /// The labels of one offering of a type.
    pub fn offering_labels(&self, of: &InstanceType, offering: &Offering) -> LabelValues {
        type_labels::of_offering(self, of, offering)
    }

    /// Calls a function with every label of a type except those of its offerings; once per value.
    pub fn each_label(&self, of: &InstanceType, tell: impl FnMut(&str, &str)) {
        type_labels::each(self, of, tell);
    }

    /// Labels that the provider fills in: on a type that does not have one of these, no node will ever have it.
    pub fn well_known(&self) -> impl Iterator<Item = &str> {
        let provider = match self.provider {
            Provider::Aws => labels::aws::WELL_KNOWN,
            Provider::Gcp => labels::gcp::WELL_KNOWN,
            Provider::Kwok => labels::kwok::WELL_KNOWN,
            Provider::Generic => &[],
        };
        let own = self.types.iter().flat_map(|of| of.labels.keys()).map(String::as_str);
        provider.iter().copied().chain(own)
    }
}
