//! Own files and files of others: round trips, and every kind of mistake.

use proptest::prelude::*;

use super::{read, read_as};
use crate::catalog::import::{self, Format, LIMIT_BYTES, Options};
use crate::catalog::{BUILT_IN, CapacityType, Provider, built_in, shipped, text};
use crate::money;

#[test]
fn shipped_files_are_written_back_byte_for_byte() {
    for (name, data) in [("aws", shipped::AWS), ("gcp", shipped::GCP)] {
        assert!(text::encode(&text::parse(name, data).unwrap()) == data, "{name}");
    }
    // What the binary carries.
    assert!(shipped::AWS.len() + shipped::GCP.len() < 400_000);
}

#[test]
fn every_catalogue_survives_its_own_format() {
    for name in BUILT_IN {
        let catalog = built_in(name).unwrap();
        assert!(text::parse(name, &text::encode(catalog)).unwrap() == *catalog, "{name}");
    }
}

const MINIMAL: &str = "name,cpu,memory,price\nsmall,2,4Gi,0.05\nlarge,16,64Gi,0.8\n";

#[test]
fn four_columns_are_enough() {
    let imported = read("own.csv", MINIMAL).unwrap();
    assert!(imported.warnings.is_empty());
    insta::assert_snapshot!(text::encode(&imported.catalog), @"
    millpond-catalog 1
    name own
    provider generic
    zones default
    types
    large amd64 16 64Gi 110 0.8
    small amd64 2 4Gi 110 0.05
    ");
}

#[test]
fn every_column_is_understood() {
    let options = Options {
        name: "lab".into(),
        region: "cellar".into(),
        zones: vec!["rack-2".into(), "rack-1".into()],
        spot_per_mille: Some(500),
        source: "the price list".into(),
        ..Options::default()
    };
    let csv = "\u{feff}name,vcpu,memory_mib,on_demand_usd_hour,spot_usd_hour,arch,os,max_pods,disk,zones,gpu_count,\
               gpu_name,gpu_resource,gpu_memory_mib,local_nvme_gb,network_mbps,allocatable_cpu_milli,colour\r\n\
               big,64,262144,4.5,1.5,x86_64,linux;windows,250,100Gi,rack-1,2,\"l4\",nvidia.com/gpu,24576,900,25000,63000,red\r\n\
               plain,1.5,2048,0.05,,arm64,,,,,,,,,,,,\r\n";
    let imported = read_as("lab.csv", csv, None, &options).unwrap();
    assert_eq!(imported.warnings, ["lab.csv:1:1: `colour` is not a column that is understood; ignored"]);
    insta::assert_snapshot!(text::encode(&imported.catalog), @"
    millpond-catalog 1
    name lab
    provider generic
    region cellar
    zones rack-1 rack-2
    spot-per-mille 500
    source the price list
    types
    big amd64 64 256Gi 250 - offer=rack-1:on-demand:4.5 offer=rack-1:spot:1.5 gpu=2:nvidia:l4:24576:nvidia.com/gpu nvme=900 net=25000 os=linux+windows disk=100Gi kube=1:10Mi:0
    plain arm64 1500m 2Gi 110 0.05
    ");
    let catalog = imported.catalog;
    assert_eq!(catalog.find("big").unwrap().allocatable().cpu_milli, 63_000);
    assert_eq!(text::parse("lab", &text::encode(&catalog)).unwrap(), catalog);
}

#[test]
fn csv_mistakes_are_placed() {
    let row = |row: &str| read("own.csv", &format!("{MINIMAL}{row}\n")).unwrap_err();
    let header = |header: &str| read("own.csv", &MINIMAL.replacen("name,cpu,memory,price", header, 1)).unwrap_err();
    insta::assert_snapshot!([
        row("x,two,4Gi,0.1"),
        row("x,-2,4Gi,0.1"),
        row("x,0,4Gi,0.1"),
        row("x,2,4Gb,0.1"),
        row("x,2,99999Ei,0.1"),
        row("x,2,4Gi,-0.1"),
        row("x,2,4Gi,1e5"),
        row("x,2,4Gi,12345678"),
        row("x,2,4Gi,"),
        row(",2,4Gi,1"),
        row("small,2,4Gi,1"),
        row("a b,2,4Gi,1"),
        row("x,2,4Gi"),
        row(&format!("{},2,4Gi,1", "y".repeat(10_000))),
        row("\"a,b\",2,4Gi,zero"),
        header("name,cpu,memory,cost"),
        header("name,cpu,cpu,price"),
        read("own.csv", "name,cpu,memory,price\n").unwrap_err(),
        read("own.csv", "").unwrap_err(),
    ].join("\n"), @"
    own.csv:4:3: field `cpu`: `two` is not a quantity such as `500m`, `4` or `16Gi`
    own.csv:4:3: field `cpu`: `-2` is a negative quantity
    own.csv:4:3: field `cpu`: `0` is not between 1m and 1000000 cores
    own.csv:4:5: field `memory`: `4Gb` is not a quantity such as `500m`, `4` or `16Gi`
    own.csv:4:5: field `memory`: `99999Ei` is too large a quantity
    own.csv:4:9: field `price`: `-0.1` is a negative price
    own.csv:4:9: field `price`: `1e5` is not a price in dollars such as `0.096`
    own.csv:4:9: field `price`: `12345678` is more than a million dollars an hour
    own.csv:4:9: field `price`: is empty
    own.csv:4:1: field `name`: is empty
    own.csv:4:1: field `name`: `small` is there more than once
    own.csv:4:1: field `name`: `a b` cannot be the value of a label (at most 63 letters, digits, `-`, `_`, `.`)
    own.csv:4:1: 3 fields here, but 4 in the header
    own.csv:4:1: field `name`: `yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…` cannot be the value of a label (at most 63 letters, digits, `-`, `_`, `.`)
    own.csv:4:1: field `name`: `a,b` cannot be the value of a label (at most 63 letters, digits, `-`, `_`, `.`)
    own.csv:1:1: field `price`: is missing: `name`, `cpu`, `memory` and `price` are needed
    own.csv:1:1: `cpu` is a column twice
    own.csv:1:1: no instance types in this file
    own.csv:1:1: field `name`: is missing: `name`, `cpu`, `memory` and `price` are needed
    ");
}

const KWOK: &str = r#"[{"name": "m5.large", "architecture": "amd64", "operatingSystems": ["linux"],
  "resources": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"},
  "offerings": [
    {"Price": 0.096, "Available": true, "Requirements": [
      {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
      {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z-a", "z-b"]}]},
    {"price": 0.03, "capacityType": "spot", "zone": "z-a"}
  ]}]"#;

#[test]
fn kwok_json_is_read_as_karpenter_reads_it() {
    let catalog = read("types.json", KWOK).unwrap().catalog;
    assert_eq!(catalog.provider, Provider::Kwok);
    insta::assert_snapshot!(text::encode(&catalog), @"
    millpond-catalog 1
    name own
    provider kwok
    zones z-a z-b
    types
    m5.large amd64 2 8Gi 110 - offer=z-a:on-demand:0.096 offer=z-a:spot:0.03 offer=z-b:on-demand:0.096 resource=nvidia.com/gpu:1
    ");
    let of = catalog.find("m5.large").unwrap();
    assert_eq!(of.pods, 110);
    assert_eq!(of.capacity().extended["nvidia.com/gpu"], 1);
    let spot = of.cheapest(|offering| offering.capacity_type == CapacityType::Spot).unwrap();
    assert_eq!(money::exact(spot.price_nanos_hour), "0.03");
}

#[test]
fn kwok_mistakes_are_placed() {
    let with = |from: &str, to: &str| {
        assert!(KWOK.contains(from), "{from}");
        read("types.json", &KWOK.replacen(from, to, 1)).unwrap_err()
    };
    insta::assert_snapshot!([
        with("0.096", "-0.096"),
        with("0.096", "1e99"),
        with("0.096", "\"cheap\""),
        with("\"8Gi\"", "\"8Gb\""),
        with("\"2\"", "\"0\""),
        with("m5.large", "m5 large"),
        with("[\"z-a\", \"z-b\"]", "[]"),
        with("[\"z-a\", \"z-b\"]", "[\"z-a\", \"z-a\"]"),
        with("topology.kubernetes.io/zone", "zone"),
        with("[\"on-demand\"]", "[\"on-demnad\"]"),
        with("\"amd64\"", "\"adm64\""),
        with("}]}", "}"),
        with(", \"nvidia.com/gpu\": \"1\"", ", \"gpu!\": \"1\""),
        read("types.json", "[]").unwrap_err(),
        read("types.json", "{}").unwrap_err(),
        read("types.json", &format!("[{0},{0}]", &KWOK[1..KWOK.len() - 1])).unwrap_err(),
        read("types.json", &"[".repeat(100_000)).unwrap_err(),
    ].join("\n"), @r#"
    types.json:4:20: price -0.096 is negative or more than a million dollars an hour
    types.json:4:18: price 1e99 is negative or more than a million dollars an hour
    types.json:4:21: invalid type: string "cheap", expected f64
    types.json:2:67: resource `memory`: `8Gb` is not a quantity such as `500m`, `4` or `16Gi`
    types.json:1:1: field `m5.large.resources.cpu`: `0` is not between 1m and 1000000 cores
    types.json:1:20: name `m5 large` cannot be the value of a label
    types.json:1:1: field `m5.large.offerings[0]`: `topology.kubernetes.io/zone` needs the operator `In` and at least one value
    types.json:1:1: `m5.large` has two prices for on-demand in z-a
    types.json:1:1: field `m5.large.offerings[0]`: `topology.kubernetes.io/zone` is not among the requirements
    types.json:1:1: field `m5.large.offerings[0]`: `on-demnad` is not a capacity type: on-demand, spot or reserved
    types.json:1:1: field `m5.large.architecture`: `adm64` is not an architecture; did you mean `amd64`?
    types.json:7:58: missing field `key`
    types.json:2:57: `gpu!` is not the name of a resource
    types.json:1:1: no instance types in this file
    types.json:1:1: invalid type: map, expected a sequence
    types.json:1:1: field `name`: `m5.large` is there more than once
    types.json:1:2: invalid type: sequence, expected a string
    "#);
}

#[test]
fn kwok_json_may_have_labels_and_overhead_of_ours() {
    let with = |more: &str| {
        let text = KWOK.replacen("\"architecture\"", &format!("{more}, \"architecture\""), 1);
        read("types.json", &text)
    };
    let labels = r#""requirements": [{"key": "size", "operator": "In", "values": ["small"]},
        {"key": "special", "operator": "DoesNotExist"}]"#;
    let overhead = r#""overhead": {"cpu": "70m", "memory": "1Gi", "ephemeral-storage": "2Gi"}"#;
    let catalog = with(&format!("{labels}, {overhead}")).unwrap().catalog;
    let of = catalog.find("m5.large").unwrap();
    assert_eq!(of.labels.iter().collect::<Vec<_>>(), [(&"size".to_owned(), &"small".to_owned())]);
    assert_eq!((of.allocatable().cpu_milli, of.allocatable().memory_bytes), (1_930, 7 << 30));
    assert_eq!(of.allocatable().storage_bytes, 18 << 30);
    let none = with(r#""overhead": {}"#).unwrap().catalog;
    assert_eq!(none.find("m5.large").unwrap().allocatable().cpu_milli, 2_000);
    insta::assert_snapshot!([
        with(r#""requirements": [{"key": "size", "operator": "In", "values": ["a", "b"]}]"#).unwrap_err(),
        with(r#""requirements": [{"key": "size", "operator": "Exists"}]"#).unwrap_err(),
        with(r#""requirements": [{"key": "a b", "operator": "In", "values": ["a"]}]"#).unwrap_err(),
        with(r#""overhead": {"pods": "1"}"#).unwrap_err(),
        with(r#""overhead": {"cpu": "-1"}"#).unwrap_err(),
    ].join("\n"), @"
    types.json:1:1: field `m5.large.requirements`: `size` needs the operator `In` with one value, or `DoesNotExist`
    types.json:1:1: field `m5.large.requirements`: `size` needs the operator `In` with one value, or `DoesNotExist`
    types.json:1:1: `a b` is not the name of a label or resource
    types.json:1:47: overhead has resources other than cpu, memory and ephemeral-storage
    types.json:1:47: resource `cpu`: `-1` is a negative quantity
    ");
}

#[test]
fn own_mistakes_are_placed() {
    let head = "millpond-catalog 1\nname x\nprovider aws\nzones z\n";
    let line =
        |line: &str| read("x.catalog", &format!("{head}types\nm5.large amd64 2 8Gi 29 0.096\n{line}\n")).unwrap_err();
    insta::assert_snapshot!([
        line("m5.xlarge amd64 4 16Gi 58"),
        line("m5.xlarge amd64 4 16Gi 58 x"),
        line("m5.xlarge amd65 4 16Gi 58 1"),
        line("m5.xlarge amd64 4 16Gi 0 1"),
        line("m5.xlarge amd64 4 16Gi 58 1 net"),
        line("m5.xlarge amd64 4 16Gi 58 1 net=-1"),
        line("m5.xlarge amd64 4 16Gi 58 1 colour=red"),
        line("m5.xlarge amd64 4 16Gi 58 - offer=z:spott:1"),
        line("m5.xlarge amd64 4 16Gi 58 - offer=z:spot:1:q"),
        line("m5.xlarge amd64 4 16Gi 58 1 offer=z:on-demand:1"),
        line("m5.xlarge amd64 4 16Gi 58 -"),
        line("m5.large amd64 2 8Gi 29 0.096"),
        read("x.catalog", "millpond-catalog 2\n").unwrap_err(),
        read("x.catalog", head).unwrap_err(),
        read("x.catalog", &head.replace("aws", "azure")).unwrap_err(),
        read("x.catalog", &format!("{head}spot-per-mille 2000\n")).unwrap_err(),
    ].join("\n"), @"
    x.catalog:7:26: field `price`: is missing
    x.catalog:7:27: field `price`: `x` is not a price in dollars such as `0.096`
    x.catalog:7:11: field `arch`: `amd65` is not an architecture; did you mean `amd64`?
    x.catalog:7:24: field `pods`: `0` is not a number of pods from 1 to 100000
    x.catalog:7:29: `net` is not an option `key=value`
    x.catalog:7:33: field `net`: `-1` is not a whole number, or too large a one
    x.catalog:7:36: `colour` is not an option of a type
    x.catalog:7:35: `spott` is not a capacity type: on-demand, spot or reserved
    x.catalog:7:35: `q` are not flags: `e`, `x` or `r` with a number
    x.catalog:1:1: `m5.xlarge` has two prices for on-demand in z
    x.catalog:1:1: `m5.xlarge` has no offering: neither a price nor zones with prices
    x.catalog:7:1: `m5.large` is not after the name above it: types are sorted, each is there once
    x.catalog:1:1: `millpond-catalog 2` the first line is not `millpond-catalog 1`
    x.catalog:5:1: the file ends before its line `types`
    x.catalog:3:10: `azure` is not a provider: aws, gcp, kwok or generic
    x.catalog:5:16: `2000` is not a number from 0 to 1000
    ");
}

#[test]
fn a_hostile_file_is_refused_in_bounded_memory() {
    let endless = std::io::repeat(b'x');
    let error = import::read("endless", endless, None, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), format!("`endless` is larger than {} MiB", LIMIT_BYTES >> 20));
    let mut many = MINIMAL.to_owned();
    (0..=import::LIMIT_TYPES).for_each(|index| many += &format!("t{index},1,1Gi,1\n"));
    assert_eq!(read("many.csv", &many).unwrap_err(), "many.csv:50002:1: more than 50000 types");
    let error = import::read("binary", &b"name,cpu\n\xff\xfe"[..], None, &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "binary:2:1: not UTF-8 text");
}

proptest! {
    #[test]
    fn nothing_panics(text in "\\PC{0,200}", format in 0..3) {
        let format = [Format::Csv, Format::KwokJson, Format::Millpond][format as usize];
        let _ = read_as("fuzz", &text, Some(format), &Options::default());
    }

    #[test]
    fn broken_lines_do_not_panic(cut in 0usize..160, junk in "[ -~]{0,12}") {
        let line = "p4d.24xlarge amd64 96 1152Gi 737 21.95 gpu=8:nvidia:a100:40960:nvidia.com/gpu offer=z:spot:1:er3";
        let cut = cut.min(line.len());
        let text = format!("millpond-catalog 1\nprovider aws\nzones z\ntypes\n{}{junk}{}\n", &line[..cut], &line[cut..]);
        if let Ok(imported) = read("fuzz.catalog", &text) {
            let again = text::encode(&imported.catalog);
            prop_assert_eq!(text::parse("again", &again).unwrap(), imported.catalog);
        }
    }
}

const PRICES: &str = r#"[
  {"instanceType": "c5.large", "region": "eu-west-1", "VCPU": 2, "memory": 4294967296, "GPU": 0, "GPUMemory": 0, "hourlyPrice": 0.096, "os": "Linux"},
  {"instanceType": "p3.2xlarge", "region": "eu-west-1", "VCPU": 8, "memory": 61, "GPU": 1, "GPUMemory": 17179869184, "hourlyPrice": 3.305, "OS": "Linux"},
  {"instanceType": "c5.large", "region": "us-east-1", "vcpu": 2, "memory": 4294967296, "hourlyPrice": 0.085, "os": "Linux"}]"#;

#[test]
fn prices_of_scaling_advisor_are_those_of_one_region() {
    let read = |region: &str, text: &str| {
        read_as(
            "prices.json",
            text,
            None,
            &Options { name: "prices".into(), region: region.into(), ..Options::default() },
        )
    };
    insta::assert_snapshot!(text::encode(&read("eu-west-1", PRICES).unwrap().catalog), @"
    millpond-catalog 1
    name prices
    provider generic
    region eu-west-1
    zones eu-west-1
    types
    c5.large amd64 2 4Gi 110 0.096
    p3.2xlarge amd64 8 61Gi 110 3.305 gpu=1:::16384:
    ");
    let error = |region: &str, text: &str| read(region, text).unwrap_err();
    let several = "prices.json:1:1: has prices of several regions: one of eu-west-1, us-east-1 has to be chosen";
    assert_eq!(error("", PRICES), several);
    let unknown = "prices.json:1:1: field `region`: `mars` is not among the regions of the list: eu-west-1, us-east-1";
    assert_eq!(error("mars", PRICES), unknown);
    let negative = PRICES.replace("0.085", "-1");
    let place = "prices.json:1:1: field `[2].hourlyPrice`: `-1` is not a price in dollars";
    assert_eq!(error("us-east-1", &negative), place);
    let twice = PRICES.replace("us-east-1", "eu-west-1");
    let place = "prices.json:1:1: field `[2].instanceType`: `c5.large` is there more than once in one region";
    assert_eq!(error("", &twice), place);
    assert_eq!(
        error("eu-west-1", &PRICES.replace(": 4294967296", ": 0.5")),
        "prices.json:1:1: field `[0].memory`: `0.5` is not a whole number"
    );
}
