//! The benchmark of Cluster Autoscaler's estimator: 51,000 pods of two sizes on nodes of one core.
//!
//! All cores together are needed 2,595 times, and 2,595 nodes are enough.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_api::catalog::naming::Naming;
use millpond_api::catalog::{CapacityType, Catalog, InstanceType, Offering, Overhead, Provider};
use millpond_api::money::NANOS;
use millpond_state::add_types;

use super::Workload;
use crate::builder::Builder;

/// Nodes of the best plan: (50,000 × 50m + 1,000 × 95m) / 1000m.
pub const NODES: usize = 2_595;

/// Small and larger pods, and their cpu.
const PODS: [(&str, u64, i64); 2] = [("small", 50_000, 50), ("large", 1_000, 95)];

/// The workload; there is nothing to choose.
pub fn workload() -> Workload {
    let mut builder = Builder::new("bench estimator".to_owned());
    let types = add_types(&machines(), &mut builder.snapshot);
    builder.pool("default", types);
    for (name, count, cpu_milli) in PODS {
        builder.pod(cpu_milli, 0).pending(name, count);
    }
    Workload::pending("estimator", builder)
}

/// One type: a core, room for every pod that fits it, a dollar an hour, nothing kept back.
fn machines() -> Catalog {
    let zone: Arc<str> = "zone-a".into();
    let only = InstanceType {
        name: "one-core".to_owned(),
        arch: "amd64".to_owned(),
        operating_systems: vec!["linux".to_owned()],
        cpu_milli: 1_000,
        memory_bytes: 2 << 30,
        storage_bytes: 20 << 30,
        pods: 110,
        naming: Naming::default(),
        previous_generation: false,
        gpu: None,
        local_nvme_gb: None,
        network_mbps: None,
        extended: BTreeMap::new(),
        labels: BTreeMap::new(),
        overhead: Overhead::default(),
        offerings: vec![Offering {
            zone: Arc::clone(&zone),
            capacity_type: CapacityType::OnDemand,
            price_nanos_hour: NANOS,
            estimated: false,
            available: true,
            reservation_count: None,
        }],
    };
    Catalog {
        name: "estimator".to_owned(),
        provider: Provider::Generic,
        region: String::new(),
        zones: vec![zone],
        spot_per_mille: None,
        source: "the benchmark of Cluster Autoscaler's estimator".to_owned(),
        types: vec![only],
    }
}
