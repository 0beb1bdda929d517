//! The workloads, each a function from parameters and a seed to a snapshot.
//!
//! | Module | Whose |
//! |---|---|
//! | [`karpenter`] | Karpenter's scheduling benchmark |
//! | [`estimator`] | the benchmark of Cluster Autoscaler's estimator |
//! | [`scale`] | up to a million pods of up to 2,000 shapes on EC2 |
//! | [`mod@consolidate`] | a cluster that is too large for its pods |
//! | [`mixes`] | small ones with a name, from web services to training on GPUs |

pub mod consolidate;
pub mod estimator;
pub mod karpenter;
pub mod mixes;
pub mod scale;
#[cfg(test)]
mod tests;

use millpond_api::catalog::{Catalog, InstanceType, built_in};
use millpond_api::labels::{CAPACITY_TYPE, ZONE};
use millpond_plan::model::{Snapshot, TypeId};
use millpond_state::add_types;

use crate::builder::Builder;

/// A snapshot with a name.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The name of its row.
    pub name: String,
    /// The snapshot to plan for.
    pub snapshot: Snapshot,
    /// Whether nodes may be taken away: that is the work, then.
    pub consolidate: bool,
}

impl Workload {
    fn pending(name: impl Into<String>, builder: Builder) -> Self {
        Self { name: name.into(), snapshot: builder.snapshot, consolidate: false }
    }
}

/// The EC2 machines that can be bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Families {
    /// All of them, from `t4g.nano` up.
    #[default]
    Full,
    /// Families c, m and r from the fifth generation on, and those with GPUs; no bare metal.
    Usual,
}

impl Families {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Full, Self::Usual];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Usual => "usual",
        }
    }

    fn has(self, machine: &InstanceType) -> bool {
        match self {
            Self::Full => true,
            Self::Usual => is_general(machine) || (is_for_graphics(machine) && !is_metal(machine)),
        }
    }
}

fn is_metal(machine: &InstanceType) -> bool {
    machine.naming.size.starts_with("metal")
}

fn is_for_graphics(machine: &InstanceType) -> bool {
    machine.gpu.is_some() || ["g", "p"].contains(&machine.naming.category.as_str())
}

/// Families c, m and r from the fifth generation on, no bare metal.
fn is_general(machine: &InstanceType) -> bool {
    let generation: u32 = machine.naming.generation.parse().unwrap_or(0);
    ["c", "m", "r"].contains(&machine.naming.category.as_str()) && generation >= 5 && !is_metal(machine)
}

/// Zones that pods of the EC2 workloads may be in.
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

fn ec2() -> &'static Catalog {
    built_in("aws").expect("it comes with the binary")
}

/// EC2 machines that a test lets pass, in three zones, bought in one of these ways, as the pool `default`.
fn ec2_pool(builder: &mut Builder, keep: impl Fn(&InstanceType) -> bool, capacity_types: &[&str]) -> Vec<TypeId> {
    let mut machines = ec2().clone();
    machines.types.retain(keep);
    let types = add_types(&machines, &mut builder.snapshot);
    let mut requirements = builder.one_of(ZONE, &ZONES);
    requirements.add_all(&builder.one_of(CAPACITY_TYPE, capacity_types), &builder.snapshot.symbols);
    builder.pool("default", types.clone()).requirements = requirements;
    types
}
