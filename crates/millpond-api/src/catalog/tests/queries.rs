//! Ranges, filters, orders.

use crate::catalog::query::{GpuFilter, Query, Range, Sort, select};
use crate::catalog::{CapacityType, built_in};
use crate::quantity;

fn cpu(text: &str) -> Range {
    Range::parse(text, quantity::parse_milli).unwrap()
}

fn names(catalog: &str, query: &Query, limit: usize) -> Vec<&'static str> {
    let selected = select(built_in(catalog).unwrap(), query);
    selected.iter().take(limit).map(|selected| selected.of.name.as_str()).collect()
}

#[test]
fn ranges() {
    for (text, low, high) in [
        ("4", 4000, 4000),
        ("=4", 4000, 4000),
        ("4..16", 4000, 16_000),
        ("4..=16", 4000, 16_000),
        ("500m..", 500, u64::MAX),
        ("..16", 0, 16_000),
        (">=8", 8000, u64::MAX),
        ("> 8", 8001, u64::MAX),
        ("<=8", 0, 8000),
        ("<8", 0, 7999),
    ] {
        assert_eq!(cpu(text), Range { low, high }, "{text}");
    }
    let memory = Range::parse("16Gi..64Gi", quantity::parse_units).unwrap();
    assert!(memory.contains(16 << 30) && memory.contains(64 << 30) && !memory.contains((64 << 30) + 1));
}

#[test]
fn wrong_ranges_are_distinguished() {
    let problem = |text| Range::parse(text, quantity::parse_milli).unwrap_err().to_string();
    assert_eq!(problem("16..4"), "no number is in the range `16..4`");
    assert_eq!(problem("<0"), "no number is in the range `<0`");
    assert_eq!(problem(".."), "`..` is not a range such as `4`, `4..16`, `4..`, `..16` or `>=8`");
    assert_eq!(problem("four"), "`four` is not a quantity such as `500m`, `4` or `16Gi`");
    assert_eq!(problem("-4"), "`-4` is a negative quantity");
    assert_eq!(problem("4..x"), "`x` is not a quantity such as `500m`, `4` or `16Gi`");
}

#[test]
fn filters_hold_together() {
    let query = Query {
        cpu_milli: Some(cpu("4..8")),
        arch: vec!["arm64".into()],
        capacity_types: vec![CapacityType::OnDemand],
        zones: vec!["us-east-1a".into()],
        families: vec!["c7g".into(), "m7g".into()],
        sort: Sort::Name,
        ..Query::default()
    };
    assert_eq!(names("aws", &query, 9), ["c7g.2xlarge", "c7g.xlarge", "m7g.2xlarge", "m7g.xlarge"]);
    let selected = select(built_in("aws").unwrap(), &query);
    assert!(selected.iter().all(|selected| selected.offerings.len() == 1));
    let nowhere = Query { zones: vec!["mars".into()], ..Query::default() };
    assert!(names("aws", &nowhere, 1).is_empty());
}

#[test]
fn gpus_by_part_of_their_name() {
    let query = Query { gpu: Some(GpuFilter::Named("A100".into())), sort: Sort::Name, ..Query::default() };
    assert_eq!(names("aws", &query, 9), ["p4d.24xlarge", "p4de.24xlarge"]);
    assert_eq!(names("gcp", &query, 99).len(), 9);
    let any = Query { gpu: Some(GpuFilter::Any), ..Query::default() };
    assert_eq!(names("aws", &any, 9999).len(), 69);
}

#[test]
fn orders() {
    let sorted = |sort, reverse| {
        let query = Query { sort, reverse, capacity_types: vec![CapacityType::OnDemand], ..Query::default() };
        names("kwok", &query, 2)
    };
    assert_eq!(sorted(Sort::Price, false), ["c-1x-amd64-linux", "c-1x-amd64-windows"]);
    assert_eq!(sorted(Sort::Price, true), ["m-256x-amd64-linux", "m-256x-amd64-windows"]);
    assert_eq!(sorted(Sort::Cpu, false), ["c-1x-amd64-linux", "c-1x-amd64-windows"]);
    assert_eq!(sorted(Sort::Memory, true), ["m-256x-amd64-linux", "m-256x-amd64-windows"]);
    assert_eq!(sorted(Sort::PricePerGib, false)[0].split('-').next(), Some("m"));
    assert_eq!(sorted(Sort::PricePerCore, false)[0].split('-').next(), Some("c"));
    assert_eq!(sorted(Sort::Name, false), ["c-128x-amd64-linux", "c-128x-amd64-windows"]);
}
