//! What a machine and its node reserve for themselves, by the rules of each of Karpenter's providers.
//!
//! | Rule | AWS | GCP | KWOK |
//! |---|---|---|---|
//! | hypervisor, of memory as sold | 7.5 % rounded up to MiB, after 64 MiB that Graviton keeps (CMA) | 7 % rounded down to bytes | – |
//! | kube-reserved cpu | 6 % of core 1, 1 % of core 2, 0.5 % of cores 3–4, 0.25 % above | the same; 1060m for shared-core E2 | 100m |
//! | kube-reserved memory | 255 MiB + 11 MiB for each pod that the network interfaces allow | 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112, 2 % above; 255 MiB up to 1 GiB | 10 MiB |
//! | kube-reserved storage | 1 GiB | the least of 50 %, 35 % + 6 GiB, 100 GiB of the boot disk | – |
//! | eviction | 100 MiB; 10 % of storage | 100 MiB; 10 % of storage | – |
//! | root disk | 20 GiB | 100 GiB | 20 GiB |
//!
//! Sources: karpenter-provider-aws `pkg/providers/instancetype/types.go`
//! (defaults of AL2023 and Bottlerocket; `VM_MEMORY_OVERHEAD_PERCENT` 0.075),
//! karpenter-provider-gcp `pkg/utils/utils.go` and its options, Karpenter's
//! `kwok/cloudprovider/helpers.go`. The AWS rules give exactly the allocatable
//! cpu, memory and storage that the provider's reference lists for all of its
//! 1,345 types; the import of that list asserts it.

use super::Provider;

/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// An amount that is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Cores, in thousandths.
    pub cpu_milli: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Ephemeral storage.
    pub storage_bytes: u64,
}

/// What a machine and its node keep for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overhead {
    /// Memory as sold that never reaches the node's operating system.
    pub vm_memory_bytes: u64,
    /// For the kubelet and the container runtime.
    pub kube_reserved: Reserved,
    /// For the operating system.
    pub system_reserved: Reserved,
    /// Below this the kubelet evicts, so pods never get it.
    pub eviction_threshold: Reserved,
}

impl Overhead {
    /// All that is kept from the node's capacity.
    pub fn reserved(&self) -> Reserved {
        let parts = [self.kube_reserved, self.system_reserved, self.eviction_threshold];
        let sum = |amount: fn(&Reserved) -> u64| parts.iter().map(amount).fold(0, u64::saturating_add);
        Reserved {
            cpu_milli: sum(|part| part.cpu_milli),
            memory_bytes: sum(|part| part.memory_bytes),
            storage_bytes: sum(|part| part.storage_bytes),
        }
    }
}

/// The properties of a machine that the rules use.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// Its name.
    pub name: &'a str,
    /// `amd64` or `arm64`.
    pub arch: &'a str,
    /// Cores, in thousandths.
    pub cpu_milli: u64,
    /// Memory as sold.
    pub memory_bytes: u64,
    /// Root disk.
    pub storage_bytes: u64,
    /// The most pods.
    pub pods: u32,
}

/// The overhead of a machine by its provider's rules.
pub fn by_rule(provider: Provider, machine: Machine<'_>) -> Overhead {
    match provider {
        Provider::Aws => aws(machine),
        Provider::Gcp => gcp(machine),
        // Karpenter's test provider reserves the same.
        Provider::Kwok | Provider::Generic => Overhead {
            kube_reserved: Reserved { cpu_milli: 100, memory_bytes: 10 * MIB, storage_bytes: 0 },
            ..Overhead::default()
        },
    }
}

/// The root disk of a node whose class does not set its size.
pub fn default_storage_bytes(provider: Provider) -> u64 {
    match provider {
        Provider::Gcp => 100 * GIB,
        Provider::Aws | Provider::Kwok | Provider::Generic => 20 * GIB,
    }
}

/// The most pods of a node where nothing limits them before the kubelet does.
pub const DEFAULT_PODS: u32 = 110;

fn aws(machine: Machine<'_>) -> Overhead {
    let cma = if machine.arch == "arm64" { (64 * MIB).min(machine.memory_bytes) } else { 0 };
    let hypervisor = (u128::from(machine.memory_bytes - cma) * 75).div_ceil(1000 * u128::from(MIB)) as u64 * MIB;
    Overhead {
        vm_memory_bytes: cma + hypervisor,
        kube_reserved: Reserved {
            cpu_milli: stepped_cpu(machine.cpu_milli),
            memory_bytes: (11 * u64::from(machine.pods) + 255) * MIB,
            storage_bytes: GIB,
        },
        system_reserved: Reserved::default(),
        eviction_threshold: eviction(machine.storage_bytes.div_ceil(10)),
    }
}

fn gcp(machine: Machine<'_>) -> Overhead {
    let shared_core = ["e2-micro", "e2-small", "e2-medium"].contains(&machine.name);
    let storage_gib = machine.storage_bytes / GIB;
    let half = (storage_gib * 50 + 50) / 100;
    let third = (storage_gib * 35 + 50) / 100 + 6;
    Overhead {
        vm_memory_bytes: (u128::from(machine.memory_bytes) * 7 / 100) as u64,
        kube_reserved: Reserved {
            cpu_milli: if shared_core { 1060 } else { stepped_cpu(machine.cpu_milli) },
            memory_bytes: stepped_memory_mib(machine.memory_bytes / MIB) * MIB,
            storage_bytes: half.min(third).min(100) * GIB,
        },
        system_reserved: Reserved::default(),
        eviction_threshold: eviction(storage_gib / 10 * GIB),
    }
}

fn eviction(storage_bytes: u64) -> Reserved {
    Reserved { cpu_milli: 0, memory_bytes: 100 * MIB, storage_bytes }
}

/// Steps of (width, per hundred thousand); each step's share is rounded down.
fn stepped(mut amount: u64, steps: &[(u64, u64)]) -> u64 {
    let mut sum = 0;
    for (width, share) in steps {
        let here = amount.min(*width);
        sum += (u128::from(here) * u128::from(*share) / 100_000) as u64;
        amount -= here;
    }
    sum
}

fn stepped_cpu(milli: u64) -> u64 {
    stepped(milli, &[(1000, 6000), (1000, 1000), (2000, 500), (u64::MAX, 250)])
}

fn stepped_memory_mib(mib: u64) -> u64 {
    if mib <= 1024 {
        return 255;
    }
    stepped(mib, &[(4096, 25_000), (4096, 20_000), (8192, 10_000), (114_688, 6000), (u64::MAX, 2000)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_reserved_cpu_steps() {
        for (cores, reserved) in [(1, 60), (2, 70), (4, 80), (8, 90), (16, 110), (96, 310), (192, 550)] {
            assert_eq!(stepped_cpu(cores * 1000), reserved, "{cores} cores");
        }
        assert_eq!(stepped_cpu(500), 30);
    }

    #[test]
    fn gke_memory_steps() {
        for (gib, mib) in [(1, 255), (2, 512), (4, 1024), (8, 1843), (16, 2662), (64, 5611), (128, 9543), (256, 12_164)]
        {
            assert_eq!(stepped_memory_mib(gib * 1024), mib, "{gib} GiB");
        }
    }

    #[test]
    fn gke_boot_disk() {
        let machine = Machine {
            name: "e2-medium",
            arch: "amd64",
            cpu_milli: 2000,
            memory_bytes: 4 * GIB,
            storage_bytes: 100 * GIB,
            pods: 110,
        };
        let overhead = gcp(machine);
        assert_eq!(overhead.kube_reserved.cpu_milli, 1060);
        assert_eq!(overhead.kube_reserved.storage_bytes, 41 * GIB);
        assert_eq!(overhead.eviction_threshold.storage_bytes, 10 * GIB);
        assert_eq!(overhead.vm_memory_bytes, 4 * GIB * 7 / 100);
    }

    #[test]
    fn graviton_loses_64_mib_before_the_hypervisor() {
        let machine = |arch| Machine {
            name: "x",
            arch,
            cpu_milli: 8000,
            memory_bytes: 16 * GIB,
            storage_bytes: 20 * GIB,
            pods: 58,
        };
        assert_eq!(aws(machine("amd64")).vm_memory_bytes, 1229 * MIB);
        assert_eq!(aws(machine("arm64")).vm_memory_bytes, (64 + 1224) * MIB);
        assert_eq!(aws(machine("amd64")).kube_reserved.memory_bytes, 893 * MIB);
    }

    #[test]
    fn the_largest_machine_does_not_overflow() {
        for provider in Provider::ALL {
            let machine = Machine {
                name: "x",
                arch: "arm64",
                cpu_milli: u64::MAX,
                memory_bytes: u64::MAX,
                storage_bytes: u64::MAX / 4,
                pods: u32::MAX,
            };
            by_rule(provider, machine);
        }
    }
}
