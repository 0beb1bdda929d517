//! Known types of every catalogue against published facts and formulas.

use std::collections::BTreeMap;

use crate::catalog::overhead::{GIB, MIB};
use crate::catalog::{BUILT_IN, CapacityType, Catalog, InstanceType, built_in, synthetic};
use crate::labels;
use crate::money;

fn of(catalog: &str, name: &str) -> (&'static Catalog, &'static InstanceType) {
    let catalog = built_in(catalog).unwrap();
    (catalog, catalog.find(name).unwrap_or_else(|| panic!("{name}")))
}

/// Cores, memory, pods, allocatable milli-cores and MiB, on-demand price.
fn row(catalog: &str, name: &str) -> String {
    let (_, of) = of(catalog, name);
    let price = of.cheapest(|offering| offering.capacity_type == CapacityType::OnDemand).unwrap();
    let allocatable = of.allocatable();
    format!(
        "{} {} {} {} {} {}",
        of.cpu_milli / 1000,
        of.memory_bytes / MIB,
        of.pods,
        allocatable.cpu_milli,
        allocatable.memory_bytes / MIB,
        money::exact(price.price_nanos_hour)
    )
}

/// What Karpenter's reference of instance types lists for each.
#[test]
fn aws_types_are_as_published() {
    for (name, expected) in [
        ("a1.medium", "1 2048 8 940 1392 0.0255"),
        ("a1.2xlarge", "8 16384 58 7910 14103 0.204"),
        ("c5.large", "2 4096 29 1930 3114 0.085"),
        ("c5.9xlarge", "36 73728 234 35840 65269 1.53"),
        ("c5.24xlarge", "96 196608 737 95690 173400 4.08"),
        ("c1.medium", "2 1740 12 1930 1122 0.13"),
        ("g5.12xlarge", "48 196608 737 47810 173400 5.672"),
        ("g6f.large", "2 8192 20 1930 7002 0.202"),
        ("g4dn.16xlarge", "64 262144 58 63770 241490 4.352"),
        ("g6.48xlarge", "192 786432 737 191450 718987 13.3504"),
        ("gr6.4xlarge", "16 131072 234 15890 118312 1.5392"),
    ] {
        assert_eq!(row("aws", name), expected, "{name}");
    }
}

#[test]
fn aws_as_a_whole() {
    let catalog = built_in("aws").unwrap();
    assert_eq!(catalog.types.len(), 1345);
    // The import keeps only what the rules do not give: they give every overhead and every part of a name.
    for option in [" kube=", " vm=", " evict=", " disk=", " family=", " category=", " generation=", " size="] {
        assert!(!crate::catalog::shipped::AWS.contains(option), "{option}");
    }
    assert_eq!(catalog.types.iter().filter(|of| of.arch == "arm64").count(), 396);
    assert_eq!(catalog.types.iter().filter(|of| of.gpu.is_some()).count(), 69);
    assert_eq!(catalog.types.iter().filter(|of| of.local_nvme_gb.is_some()).count(), 515);
    for of in &catalog.types {
        assert_eq!(of.allocatable().storage_bytes, 17 * GIB, "{}", of.name);
        assert_eq!(of.offerings.len(), 10, "{}", of.name);
        // Spot is a stated fraction and says so.
        let spot = of.offerings.iter().filter(|offering| offering.capacity_type == CapacityType::Spot);
        assert!(spot.into_iter().all(|offering| offering.estimated), "{}", of.name);
    }
    let (_, small) = of("aws", "c5.large");
    let spot = small.cheapest(|offering| offering.capacity_type == CapacityType::Spot).unwrap();
    assert_eq!(money::exact(spot.price_nanos_hour), "0.034");
}

#[test]
fn gcp_types_are_as_published() {
    for (name, expected) in [
        ("n2-standard-4", 4, 16_384),
        ("c2-standard-60", 60, 245_760),
        ("a2-highgpu-1g", 12, 87_040),
        ("c2d-highmem-112", 112, 917_504),
    ]
    .map(|(name, cores, mib)| (name, (cores * 1000, mib * MIB)))
    {
        let (_, of) = of("gcp", name);
        assert_eq!((of.cpu_milli, of.memory_bytes), expected, "{name}");
        assert_eq!(of.pods, 110);
    }
    let price = |name, kind| {
        let (_, of) = of("gcp", name);
        money::exact(of.cheapest(|offering| offering.capacity_type == kind).unwrap().price_nanos_hour)
    };
    assert_eq!(price("a2-highgpu-1g", CapacityType::OnDemand), "3.673385");
    assert_eq!(price("a2-highgpu-1g", CapacityType::Spot), "1.92802");
    assert_eq!(price("a2-ultragpu-1g", CapacityType::OnDemand), "5.06879789");
    assert_eq!(price("c2-standard-4", CapacityType::OnDemand), "0.208808");
    assert_eq!(price("c2-standard-4", CapacityType::Spot), "0.09968");
    assert_eq!(built_in("gcp").unwrap().types.len(), 365);
    // 16 GiB: 7 % to the hypervisor, 2662 MiB reserved, 100 MiB for eviction.
    let (_, four) = of("gcp", "c2-standard-4");
    let left = 16 * GIB - 16 * GIB * 7 / 100 - (2662 + 100) * MIB;
    assert_eq!(four.allocatable().memory_bytes, left);
    assert_eq!(four.allocatable().cpu_milli, 3920);
}

fn labels_of(catalog: &str, name: &str) -> BTreeMap<String, String> {
    let (catalog, of) = of(catalog, name);
    catalog.labels(of).into_iter().map(|(key, values)| (key, values.join(" "))).collect()
}

#[test]
fn labels_are_those_of_the_providers() {
    insta::assert_debug_snapshot!(labels_of("aws", "g4dn.xlarge"), @r#"
    {
        "karpenter.k8s.aws/instance-capability-flex": "false",
        "karpenter.k8s.aws/instance-category": "g",
        "karpenter.k8s.aws/instance-cpu": "4",
        "karpenter.k8s.aws/instance-cpu-manufacturer": "intel",
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz": "2500",
        "karpenter.k8s.aws/instance-encryption-in-transit-supported": "true",
        "karpenter.k8s.aws/instance-family": "g4dn",
        "karpenter.k8s.aws/instance-generation": "4",
        "karpenter.k8s.aws/instance-gpu-count": "1",
        "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
        "karpenter.k8s.aws/instance-gpu-memory": "16384",
        "karpenter.k8s.aws/instance-gpu-name": "t4",
        "karpenter.k8s.aws/instance-hypervisor": "nitro",
        "karpenter.k8s.aws/instance-local-nvme": "125",
        "karpenter.k8s.aws/instance-memory": "16384",
        "karpenter.k8s.aws/instance-network-bandwidth": "5000",
        "karpenter.k8s.aws/instance-size": "xlarge",
        "karpenter.k8s.aws/instance-tenancy": "default",
        "karpenter.sh/capacity-type": "on-demand spot",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "g4dn.xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a us-east-1b us-east-1c us-east-1d us-east-1f",
    }
    "#);
    insta::assert_debug_snapshot!(labels_of("gcp", "a2-highgpu-2g"), @r#"
    {
        "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
        "karpenter.k8s.gcp/instance-category": "a",
        "karpenter.k8s.gcp/instance-cpu": "24",
        "karpenter.k8s.gcp/instance-family": "a2",
        "karpenter.k8s.gcp/instance-generation": "2",
        "karpenter.k8s.gcp/instance-gpu-count": "2",
        "karpenter.k8s.gcp/instance-gpu-manufacturer": "nvidia",
        "karpenter.k8s.gcp/instance-gpu-memory": "40960",
        "karpenter.k8s.gcp/instance-gpu-name": "nvidia-tesla-a100",
        "karpenter.k8s.gcp/instance-memory": "174080",
        "karpenter.k8s.gcp/instance-shape": "highgpu",
        "karpenter.k8s.gcp/instance-size": "2g",
        "karpenter.sh/capacity-type": "on-demand spot",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "a2-highgpu-2g",
        "topology.kubernetes.io/region": "us-central1",
        "topology.kubernetes.io/zone": "us-central1-a us-central1-b us-central1-c us-central1-f",
    }
    "#);
    insta::assert_debug_snapshot!(labels_of("kwok", "m-256x-arm64-windows"), @r#"
    {
        "karpenter.kwok.sh/instance-cpu": "256",
        "karpenter.kwok.sh/instance-family": "m",
        "karpenter.kwok.sh/instance-memory": "2Ti",
        "karpenter.kwok.sh/instance-size": "256",
        "karpenter.sh/capacity-type": "on-demand spot",
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "windows",
        "node.kubernetes.io/instance-type": "m-256x-arm64-windows",
        "topology.kubernetes.io/zone": "test-zone-a test-zone-b test-zone-c test-zone-d",
    }
    "#);
    insta::assert_debug_snapshot!(labels_of("fake", "fake-it-4"), @r#"
    {
        "integer": "5",
        "karpenter.sh/capacity-type": "on-demand spot",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux windows darwin",
        "node.kubernetes.io/instance-type": "fake-it-4",
        "size": "large",
        "special": "optional",
        "topology.kubernetes.io/zone": "test-zone-1 test-zone-2 test-zone-3",
    }
    "#);
}

#[test]
fn accelerators_are_labels_and_resources() {
    let labels = labels_of("aws", "inf2.24xlarge");
    let told = |key: &str| labels[&format!("karpenter.k8s.aws/instance-accelerator-{key}")].clone();
    assert_eq!([told("name"), told("manufacturer"), told("count")], ["inferentia2", "aws", "6"]);
    let resources = |name: &str| {
        let (_, of) = of("aws", name);
        of.capacity().extended.into_iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>()
    };
    assert_eq!(resources("inf2.24xlarge"), ["aws.amazon.com/neuron 6", "aws.amazon.com/neuroncore 12"]);
    assert_eq!(resources("p5.48xlarge"), ["nvidia.com/gpu 8", "vpc.amazonaws.com/efa 32"]);
    assert_eq!(resources("m5.large"), [""; 0]);
}

#[test]
fn previous_generations_are_marked() {
    let catalog = built_in("aws").unwrap();
    let mut families: Vec<&str> =
        catalog.types.iter().filter(|of| of.previous_generation).map(|of| of.naming.family.as_str()).collect();
    families.dedup();
    assert_eq!(families, ["c1", "c3", "i2", "m1", "m2", "m3", "r3", "t1"]);
    assert!(BUILT_IN[1..].iter().all(|name| built_in(name).unwrap().types.iter().all(|of| !of.previous_generation)));
}

/// What a file says of a type holds against the rules, and survives being written.
#[test]
fn a_file_has_the_last_word() {
    use crate::catalog::text;
    let file = "millpond-catalog 1\nname own\nprovider aws\nzones a\ntypes\n\
                inf2.24xlarge amd64 96 384Gi 737 6.5 previous=yes resource=aws.amazon.com/neuron:5 resource=aws.amazon.com/neuroncore:0\n\
                m1.small amd64 1 2Gi 8 0.05 previous=no\n";
    let catalog = text::parse("own", file).unwrap();
    let [accelerated, small] = &catalog.types[..] else { panic!("{catalog:?}") };
    assert!(accelerated.previous_generation && !small.previous_generation);
    assert_eq!(accelerated.extended, BTreeMap::from([("aws.amazon.com/neuron".to_owned(), 5)]));
    assert_eq!(text::parse("own", &text::encode(&catalog)).unwrap(), catalog);
}

#[test]
fn every_label_is_well_known_and_well_formed() {
    for name in BUILT_IN {
        let catalog = built_in(name).unwrap();
        let own = ["integer", "size", "special"];
        for of in &catalog.types {
            for (key, values) in catalog.labels(of) {
                let known =
                    [labels::WELL_KNOWN, labels::aws::WELL_KNOWN, labels::gcp::WELL_KNOWN, labels::kwok::WELL_KNOWN];
                assert!(known.concat().contains(&key.as_str()) || own.contains(&key.as_str()), "{key}");
                assert!(!values.is_empty() && values.iter().all(|value| labels::is_value(value)), "{key} {values:?}");
            }
        }
    }
}

/// Figures of Karpenter's own generated file.
#[test]
fn kwok_formulas() {
    let catalog = synthetic::kwok();
    assert_eq!(catalog.types.len(), 144);
    assert!(catalog.types.iter().all(|of| of.offerings.len() == 8));
    let small = catalog.find("c-1x-amd64-linux").unwrap();
    assert_eq!((small.cpu_milli, small.memory_bytes, small.pods, small.storage_bytes), (1000, 2 * GIB, 16, 20 * GIB));
    let price =
        |of: &InstanceType, kind| of.cheapest(|offering| offering.capacity_type == kind).unwrap().price_nanos_hour;
    // 0.027147483648 and 0.0190032385536, to the nano-dollar.
    assert_eq!(price(small, CapacityType::OnDemand), 27_147_484);
    assert_eq!(price(small, CapacityType::Spot), 19_003_239);
    let large = catalog.find("m-256x-arm64-windows").unwrap();
    assert_eq!((large.memory_bytes, large.pods), (2048 * GIB, 1024));
    assert_eq!(large.operating_systems, ["windows"]);
    assert_eq!(large.allocatable().cpu_milli, 255_900);
    assert_eq!(large.allocatable().memory_bytes, 2048 * GIB - 10 * MIB);
}

#[test]
fn fake_formulas() {
    let catalog = synthetic::fake(400);
    assert_eq!(catalog.types.len(), 400);
    for index in [0u64, 3, 4, 399] {
        let of = catalog.find(&format!("fake-it-{index}")).unwrap();
        let cores = index + 1;
        assert_eq!((of.cpu_milli, of.memory_bytes, u64::from(of.pods)), (cores * 1000, 2 * cores * GIB, 10 * cores));
        let nanos = (3_147_483_648 * cores + 5) / 10;
        assert!(of.offerings.iter().all(|offering| offering.price_nanos_hour == nanos && offering.available));
        let places: Vec<_> =
            of.offerings.iter().map(|offering| format!("{} {}", offering.zone, offering.capacity_type)).collect();
        assert_eq!(
            places,
            [
                "test-zone-1 on-demand",
                "test-zone-1 spot",
                "test-zone-2 on-demand",
                "test-zone-2 spot",
                "test-zone-3 on-demand"
            ]
        );
        assert_eq!(of.labels.contains_key("special"), cores > 4);
    }
}
