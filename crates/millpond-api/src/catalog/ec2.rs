//! What EC2 publishes of whole families: clock, maker, hypervisor, accelerators, and which families are of a previous
//! generation. Numbers that differ with every size (EBS bandwidth, branch network interfaces) are not among them.
//!
//! A family that is not listed has none of these labels: nothing is made up for it.

use std::collections::BTreeMap;

use super::naming::Naming;

/// Families that EC2 marks as a previous generation.
const PREVIOUS: &[&str] = &["c1", "cc2", "c3", "cr1", "g2", "hi1", "hs1", "i2", "m1", "m2", "m3", "r3", "t1"];

/// Sustained clock in MHz, by family. EC2 publishes none (0) of the oldest.
const CLOCKS: &[(u32, &str)] = &[
    (0, "c1 m1 m2 t1"),
    (1900, "u7i-12tb u7i-6tb u7i-8tb u7in-16tb u7in-24tb u7in-32tb"),
    (2100, "u-3tb1 u-6tb1"),
    (2200, "m5ad r5ad t3a"),
    (2300, "a1 h1 i3 r4 t2 x1 x1e"),
    (2400, "d2 g7e i7i m4 p5en p6-b200 p6-b300"),
    (2500, "c6g c6gd c6gn g4dn g5g i2 i4g im4gn inf1 is4gen m3 m5a m6g m6gd p3dn r3 r5a r6g r6gd t3 t4g vt1 x2gd"),
    (2600, "c7g c7gd c7gn hpc7g m7g m7gd r7g r7gd"),
    (2800, "c3 c8g c8gb c8gd c8gn c9g c9gd i8g i8ge m8g m8gb m8gd m8gn m9g m9gd r8g r8gb r8gd r8gn x8g"),
    (2900, "c4"),
    (3000, "g4ad p4d p4de"),
    (3100, "d3 d3en i3en m5 m5d m5dn m5n r5 r5b r5d r5dn r5n"),
    (3200, "c7i c7i-flex m7i m7i-flex r7i"),
    (3300, "c5a c5ad g5"),
    (3400, "c5 c5d c5n f2 g6 g6e g6f gr6 gr6f"),
    (3500, "c6i c6id c6in i4i m6i m6id m6idn m6in r6i r6id r6idn r6in trn1 trn1n x2idn x2iedn"),
    (3600, "c6a i7ie inf2 m6a p5 r6a"),
    (3700, "c7a m7a r7a"),
    (
        3900,
        "c8i c8i-flex c8ib c8id c8in c8ine g7 m8i m8i-flex m8ib m8id m8idb m8idn m8in m8ine r7iz r8i r8i-flex r8ib \
         r8id r8idb r8idn r8in x8i",
    ),
    (4000, "z1d"),
    (4500, "c8a m5zn m8a r8a x2iezn"),
    (5000, "m8azn"),
];

/// Sizes whose clock is not that of their family.
const OTHER_CLOCKS: &[(u32, &str, &str)] = &[
    (2300, "m4", "16xlarge"),
    (2400, "t2", "nano"),
    (2500, "t2", "micro small"),
    (2500, "m5ad", "8xlarge"),
    (2500, "r5ad", "8xlarge 16xlarge"),
    (2700, "c8g c8gb c8gd c8gn i8ge m8g m8gb m8gd m8gn r8g r8gb r8gd r8gn x8g", "48xlarge metal-48xl"),
    (3600, "c5 c5d", "12xlarge 24xlarge metal"),
];

/// Families on AMD's processors whose name does not end in `a`, `ad` or `an`.
const AMD: &str = "f2 g4ad g5 g6 g6e g6f gr6 gr6f inf2 m8azn p5";

/// Families on the Xen hypervisor.
const XEN: &str = "c1 c3 c4 d2 h1 i2 i3 m1 m2 m3 m4 r3 r4 t1 t2 x1 x1e";

/// Families whose traffic is not encrypted between instances.
const PLAIN: &str = "a1 c1 c3 c4 c5 c5d c6g c6gd d2 g5g h1 i2 i3 m1 m2 m3 m4 m5 m5a m5ad m5d m6g m6gd r3 r4 r5 r5a \
                     r5ad r5b r5d r6g r6gd t1 t2 t3 t3a t4g x1 x1e x2gd z1d";

/// Accelerators of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accelerators {
    pub(super) name: &'static str,
    pub(super) count: u32,
    /// Cores of each, which the device plugin counts by themselves.
    cores: u32,
}

/// What is published of a type beyond its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) cpu_manufacturer: &'static str,
    /// In MHz.
    pub(super) clock: u32,
    /// None on bare metal.
    pub(super) hypervisor: Option<&'static str>,
    pub(super) encryption_in_transit: bool,
    pub(super) flex: bool,
    pub(super) accelerators: Option<Accelerators>,
}

/// Whether EC2 marks a family as a previous generation.
pub(super) fn is_previous_generation(naming: &Naming) -> bool {
    PREVIOUS.contains(&naming.family.as_str())
}

/// The facts of a type, if its family is known.
pub(super) fn facts(naming: &Naming, arch: &str) -> Option<Facts> {
    let (family, size) = (naming.family.as_str(), naming.size.as_str());
    let listed = |list: &str, name: &str| list.split_whitespace().any(|one| one == name);
    let (clock, _) = CLOCKS.iter().find(|(_, families)| listed(families, family))?;
    let other = OTHER_CLOCKS.iter().find(|(_, families, sizes)| listed(families, family) && listed(sizes, size));
    let generation = family.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
    let suffix = generation.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let cpu_manufacturer = match () {
        () if arch == "arm64" => "aws",
        () if listed(AMD, family) || (!suffix.is_empty() && ["a", "ad"].contains(&suffix)) => "amd",
        () => "intel",
    };
    Some(Facts {
        cpu_manufacturer,
        clock: other.map_or(*clock, |(clock, _, _)| *clock),
        hypervisor: match () {
            () if size.starts_with("metal") => None,
            () if listed(XEN, family) => Some("xen"),
            () => Some("nitro"),
        },
        encryption_in_transit: !listed(PLAIN, family),
        flex: family.ends_with("-flex"),
        accelerators: accelerators(family, size),
    })
}

fn accelerators(family: &str, size: &str) -> Option<Accelerators> {
    let of = |name, cores, count| Some(Accelerators { name, count, cores });
    match (family, size) {
        ("inf1", "xlarge" | "2xlarge") => of("inferentia", 4, 1),
        ("inf1", "6xlarge") => of("inferentia", 4, 4),
        ("inf1", "24xlarge") => of("inferentia", 4, 16),
        ("inf2", "xlarge" | "8xlarge") => of("inferentia2", 2, 1),
        ("inf2", "24xlarge") => of("inferentia2", 2, 6),
        ("inf2", "48xlarge") => of("inferentia2", 2, 12),
        ("trn1", "2xlarge") => of("trainium", 2, 1),
        ("trn1" | "trn1n", "32xlarge") => of("trainium", 2, 16),
        _ => None,
    }
}

/// Elastic fabric adapters of the types that train and infer; other types that have some are not listed.
fn fabric_adapters(family: &str, size: &str) -> u64 {
    match (family, size) {
        ("p5", "48xlarge") => 32,
        ("p5en" | "p6-b300", "48xlarge") | ("trn1n", "32xlarge") => 16,
        ("p6-b200", "48xlarge") | ("trn1", "32xlarge") => 8,
        ("p4d" | "p4de", "24xlarge") | ("g6e" | "g7e", "48xlarge") => 4,
        ("g6e" | "g7e", "24xlarge") | ("g7", "48xlarge") => 2,
        ("p3dn" | "inf1", "24xlarge") | ("p5", "4xlarge") | ("hpc7g", _) => 1,
        ("g4dn", "8xlarge" | "12xlarge" | "16xlarge" | "metal") => 1,
        ("g5" | "g6", "8xlarge" | "12xlarge" | "16xlarge" | "24xlarge" | "48xlarge") => 1,
        ("g6e", "8xlarge" | "12xlarge" | "16xlarge") | ("gr6", "8xlarge") => 1,
        ("g7" | "g7e", "8xlarge" | "12xlarge") | ("g7", "24xlarge") => 1,
        _ => 0,
    }
}

/// Extended resources of a type that its name tells.
pub(super) fn resources(naming: &Naming) -> BTreeMap<String, u64> {
    let accelerators = accelerators(&naming.family, &naming.size);
    let count = accelerators.map_or(0, |of| u64::from(of.count));
    let cores = accelerators.map_or(0, |of| u64::from(of.count * of.cores));
    let all = [
        ("aws.amazon.com/neuron", count),
        ("aws.amazon.com/neuroncore", cores),
        ("vpc.amazonaws.com/efa", fabric_adapters(&naming.family, &naming.size)),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Provider, built_in, naming};

    #[test]
    fn every_family_of_the_catalogue_is_known() {
        for of in &built_in("aws").unwrap().types {
            assert!(facts(&of.naming, &of.arch).is_some(), "{}", of.name);
        }
        assert_eq!(facts(&naming::read(Provider::Aws, "m42.large", 2000), "amd64"), None);
    }

    #[test]
    fn facts_are_as_published() {
        let row = |name: &str, arch: &str| {
            let of = facts(&naming::read(Provider::Aws, name, 2000), arch).unwrap();
            let hypervisor = of.hypervisor.unwrap_or("-");
            format!("{} {} {hypervisor} {} {}", of.cpu_manufacturer, of.clock, of.encryption_in_transit, of.flex)
        };
        for (name, arch, expected) in [
            ("c5.large", "amd64", "intel 3400 nitro false false"),
            ("c5.24xlarge", "amd64", "intel 3600 nitro false false"),
            ("m5.metal", "amd64", "intel 3100 - false false"),
            ("m3.large", "amd64", "intel 2500 xen false false"),
            ("m7i-flex.large", "amd64", "intel 3200 nitro true true"),
            ("c6a.large", "amd64", "amd 3600 nitro true false"),
            ("r5ad.large", "amd64", "amd 2200 nitro false false"),
            ("g4ad.xlarge", "amd64", "amd 3000 nitro true false"),
            ("c8gn.48xlarge", "arm64", "aws 2700 nitro true false"),
            ("c8gn.24xlarge", "arm64", "aws 2800 nitro true false"),
            ("a1.large", "arm64", "aws 2300 nitro false false"),
        ] {
            assert_eq!(row(name, arch), expected, "{name}");
        }
    }
}
