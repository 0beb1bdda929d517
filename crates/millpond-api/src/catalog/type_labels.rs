//! The labels that a type's nodes carry, named as its provider names them.

use std::collections::btree_map::Entry;

use crate::labels::{ARCH, CAPACITY_TYPE, GKE_ACCELERATOR, INSTANCE_TYPE, OS, REGION, ZONE, aws, gcp, kwok};
use crate::quantity;
use crate::selector::LabelValues;

use super::overhead::MIB;
use super::{Catalog, Gpu, InstanceType, Offering, Provider, ec2};

pub(super) fn of_type(catalog: &Catalog, of: &InstanceType) -> LabelValues {
    let mut labels = fixed(catalog, of);
    let available = || of.offerings.iter().filter(|offering| offering.available);
    let zones = available().map(|offering| offering.zone.to_string());
    labels.insert(ZONE.to_owned(), distinct(zones));
    let capacity_types = available().map(|offering| offering.capacity_type.name().to_owned());
    labels.insert(CAPACITY_TYPE.to_owned(), distinct(capacity_types));
    labels
}

pub(super) fn of_offering(catalog: &Catalog, of: &InstanceType, offering: &Offering) -> LabelValues {
    let mut labels = fixed(catalog, of);
    labels.insert(ZONE.to_owned(), vec![offering.zone.to_string()]);
    labels.insert(CAPACITY_TYPE.to_owned(), vec![offering.capacity_type.name().to_owned()]);
    labels
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// All but zone and capacity type.
fn fixed(catalog: &Catalog, of: &InstanceType) -> LabelValues {
    let mut labels = LabelValues::new();
    // The type's own labels come last and win; only operating systems may have several values.
    each(catalog, of, |key, value| match labels.entry(key.to_owned()) {
        Entry::Vacant(entry) => {
            entry.insert(vec![value.to_owned()]);
        }
        Entry::Occupied(mut entry) if key == OS => entry.get_mut().push(value.to_owned()),
        Entry::Occupied(mut entry) => *entry.get_mut() = vec![value.to_owned()],
    });
    labels
}

/// Tells all but zone and capacity type.
pub(super) fn each(catalog: &Catalog, of: &InstanceType, mut tell: impl FnMut(&str, &str)) {
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            tell(key, value);
        }
    };
    put(INSTANCE_TYPE, &of.name);
    put(ARCH, &of.arch);
    put(REGION, &catalog.region);
    match catalog.provider {
        Provider::Aws => {
            put(aws::FAMILY, &of.naming.family);
            put(aws::CATEGORY, &of.naming.category);
            put(aws::GENERATION, &of.naming.generation);
            put(aws::SIZE, &of.naming.size);
            put(aws::CPU, &(of.cpu_milli / 1000).to_string());
            put(aws::MEMORY, &(of.memory_bytes / MIB).to_string());
            put(aws::LOCAL_NVME, &of.local_nvme_gb.map_or_else(String::new, |gb| gb.to_string()));
            put(aws::NETWORK_BANDWIDTH, &of.network_mbps.map_or_else(String::new, |mbps| mbps.to_string()));
            let keys = [aws::GPU_NAME, aws::GPU_MANUFACTURER, aws::GPU_COUNT, aws::GPU_MEMORY];
            put_gpu(of.gpu.as_ref(), keys, &mut put);
            put_ec2(of, &mut put);
        }
        Provider::Gcp => {
            put(gcp::FAMILY, &of.naming.family);
            put(gcp::CATEGORY, &of.naming.category);
            put(gcp::GENERATION, &of.naming.generation);
            put(gcp::SIZE, &of.naming.size);
            put(gcp::SHAPE, &of.naming.shape);
            put(gcp::CPU, &(of.cpu_milli / 1000).to_string());
            put(gcp::MEMORY, &(of.memory_bytes / MIB).to_string());
            let keys = [gcp::GPU_NAME, gcp::GPU_MANUFACTURER, gcp::GPU_COUNT, gcp::GPU_MEMORY];
            put_gpu(of.gpu.as_ref(), keys, &mut put);
            put(GKE_ACCELERATOR, of.gpu.as_ref().map_or("", |gpu| &gpu.name));
        }
        Provider::Kwok => {
            put(kwok::FAMILY, &of.naming.family);
            put(kwok::SIZE, &of.naming.size);
            put(kwok::CPU, &quantity::cores(of.cpu_milli));
            put(kwok::MEMORY, &quantity::binary(of.memory_bytes));
        }
        Provider::Generic => {}
    }
    of.labels.iter().filter(|(key, _)| *key != OS).for_each(|(key, value)| put(key, value));
    of.operating_systems.iter().for_each(|system| put(OS, system));
}

/// The labels that EC2's documentation gives for the family. Instances run on shared hardware: no price of another
/// tenancy is known.
fn put_ec2(of: &InstanceType, put: &mut impl FnMut(&str, &str)) {
    let Some(facts) = ec2::facts(&of.naming, &of.arch) else { return };
    let truth = |is: bool| if is { "true" } else { "false" };
    put(aws::CPU_MANUFACTURER, facts.cpu_manufacturer);
    put(aws::CPU_CLOCK, &facts.clock.to_string());
    put(aws::HYPERVISOR, facts.hypervisor.unwrap_or_default());
    put(aws::ENCRYPTION_IN_TRANSIT, truth(facts.encryption_in_transit));
    put(aws::CAPABILITY_FLEX, truth(facts.flex));
    put(aws::TENANCY, "default");
    if let Some(accelerators) = facts.accelerators {
        put(aws::ACCELERATOR_NAME, accelerators.name);
        put(aws::ACCELERATOR_MANUFACTURER, "aws");
        put(aws::ACCELERATOR_COUNT, &accelerators.count.to_string());
    }
}

fn put_gpu(gpu: Option<&Gpu>, keys: [&str; 4], put: &mut impl FnMut(&str, &str)) {
    let Some(gpu) = gpu else { return };
    let [name, manufacturer, count, memory] = keys;
    put(name, &gpu.name);
    put(manufacturer, &gpu.manufacturer);
    if gpu.count > 0 {
        put(count, &gpu.count.to_string());
    }
    put(memory, &gpu.memory_mib.to_string());
}
