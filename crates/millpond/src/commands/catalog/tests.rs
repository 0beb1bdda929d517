//! Output of the catalogue commands.

use std::fmt::Write as _;
use std::path::Path;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: CatalogCommand,
}

/// Runs a command line in a directory: messages first, then data, then the failure.
fn answer(at: &Path, line: &str) -> String {
    let name = at.to_str().unwrap();
    let words = line.split_whitespace().map(|word| word.replace("DIR", name));
    let (mut out, mut messages) = (Vec::new(), Vec::new());
    let result = match Cli::try_parse_from(std::iter::once("catalog".to_owned()).chain(words)) {
        Ok(cli) => run(&cli.command, &mut out, &mut messages),
        Err(error) => return error.to_string(),
    };
    let mut text = String::from_utf8([messages, out].concat()).unwrap();
    if let Err(error) = result {
        writeln!(text, "{}", crate::failure::describe(&error)).unwrap();
    }
    text.replace(name, "DIR")
}

fn asked(line: &str) -> String {
    answer(Path::new("/no-such-directory"), line)
}

#[test]
fn types_that_fit() {
    insta::assert_snapshot!(asked("types --cpu 4..8 --memory 16Gi.. --arch arm64 --limit 4"), @"
    4 of 66 types; more with a higher --limit
    NAME         ARCH    CPU   MEMORY   GPU   ON-DEMAND      SPOT
    t4g.xlarge   arm64     4     16Gi   -        0.1344   ~0.0538
    m6g.xlarge   arm64     4     16Gi   -        0.1540   ~0.0616
    m7g.xlarge   arm64     4     16Gi   -        0.1632   ~0.0653
    m8g.xlarge   arm64     4     16Gi   -        0.1795   ~0.0718
    ");
    insta::assert_snapshot!(asked("types --gpu a100"), @"
    NAME            ARCH    CPU   MEMORY   GPU      ON-DEMAND       SPOT
    p4d.24xlarge    amd64    96   1152Gi   8 a100     21.9576    ~8.7831
    p4de.24xlarge   amd64    96   1152Gi   8 a100     27.4471   ~10.9788
    ");
    insta::assert_snapshot!(asked("types --gpu l4 --sort memory --limit 3 --zone us-east-1a"), @"
    3 of 23 types; more with a higher --limit
    NAME         ARCH    CPU   MEMORY   GPU          ON-DEMAND      SPOT
    g6f.large    amd64     2      8Gi   part of l4      0.2020   ~0.0808
    g6.xlarge    amd64     4     16Gi   1 l4            0.8048   ~0.3219
    g6f.xlarge   amd64     4     16Gi   part of l4      0.2375   ~0.0950
    ");
    insta::assert_snapshot!(asked("types --catalog gcp --gpu --sort price-per-gib --limit 2 -o wide"), @"
    2 of 21 types; more with a higher --limit
    NAME             ARCH    CPU   MEMORY   GPU           ON-DEMAND     SPOT   PER-CORE   PER-GIB   PODS   FREE-CPU   FREE-MEMORY   NVME   NETWORK   OFFERINGS   GENERATION
    g2-standard-32   amd64    32    128Gi   1 nvidia-l4      1.7344   0.9751     0.0305    0.0076    110     31850m      112253Mi      -         -           8   current
    g2-standard-16   amd64    16     64Gi   1 nvidia-l4      1.1472   0.6449     0.0403    0.0101    110     15890m       55237Mi      -         -           8   current
    ");
    insta::assert_snapshot!(asked("types --family m7g --capacity-type spot --sort cpu --limit 3 -o name"), @"
    3 of 9 types; more with a higher --limit
    m7g.medium
    m7g.large
    m7g.xlarge
    ");
    insta::assert_snapshot!(asked("types --cpu >=1000"), @"No instance type of catalogue aws fits.");
}

#[test]
fn types_by_name_and_makers_of_gpus() {
    insta::assert_snapshot!(asked("types m1.small m7i.large"), @"
    NAME        ARCH    CPU   MEMORY   GPU   ON-DEMAND      SPOT
    m1.small    amd64     1   1740Mi   -        0.0440   ~0.0176
    m7i.large   amd64     2      8Gi   -        0.1008   ~0.0403
    ");
    let wide = asked("types m1.small m7i.large -o wide");
    let ends: Vec<&str> = wide.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(ends, ["GENERATION", "previous", "current"]);
    insta::assert_snapshot!(asked("types m5.largee"), @"
    error: there is no instance type `m5.largee` in the catalogue aws
    hint: did you mean `m5.large`?
    ");
    let makers = |gpu: &str| asked(&format!("types --gpu {gpu} -o name")).lines().count();
    assert!(makers("nvidia") > 50 && makers("amd") == 5, "{} {}", makers("nvidia"), makers("amd"));
}

#[test]
fn one_type_in_full() {
    insta::assert_snapshot!(asked("types --family g6f --cpu 2 --zone us-east-1a -o yaml"), @r#"
    catalog: aws
    items:
    - allocatable:
        cpu: 1930m
        ephemeral-storage: 17Gi
        memory: 7002Mi
        pods: "20"
      arch: amd64
      capacity:
        cpu: "2"
        ephemeral-storage: 20Gi
        memory: 7577Mi
        pods: "20"
      gpu:
        count: 0
        manufacturer: nvidia
        memoryMiB: 2861
        name: l4
        resource: null
      labels:
        karpenter.k8s.aws/instance-capability-flex:
        - "false"
        karpenter.k8s.aws/instance-category:
        - g
        karpenter.k8s.aws/instance-cpu:
        - "2"
        karpenter.k8s.aws/instance-cpu-manufacturer:
        - amd
        karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz:
        - "3400"
        karpenter.k8s.aws/instance-encryption-in-transit-supported:
        - "true"
        karpenter.k8s.aws/instance-family:
        - g6f
        karpenter.k8s.aws/instance-generation:
        - "6"
        karpenter.k8s.aws/instance-gpu-manufacturer:
        - nvidia
        karpenter.k8s.aws/instance-gpu-memory:
        - "2861"
        karpenter.k8s.aws/instance-gpu-name:
        - l4
        karpenter.k8s.aws/instance-hypervisor:
        - nitro
        karpenter.k8s.aws/instance-local-nvme:
        - "100"
        karpenter.k8s.aws/instance-memory:
        - "8192"
        karpenter.k8s.aws/instance-network-bandwidth:
        - "1500"
        karpenter.k8s.aws/instance-size:
        - large
        karpenter.k8s.aws/instance-tenancy:
        - default
        karpenter.sh/capacity-type:
        - on-demand
        - spot
        kubernetes.io/arch:
        - amd64
        kubernetes.io/os:
        - linux
        node.kubernetes.io/instance-type:
        - g6f.large
        topology.kubernetes.io/region:
        - us-east-1
        topology.kubernetes.io/zone:
        - us-east-1a
        - us-east-1b
        - us-east-1c
        - us-east-1d
        - us-east-1f
      name: g6f.large
      offerings:
      - available: true
        capacityType: on-demand
        estimated: false
        pricePerHour: 0.202
        zone: us-east-1a
      - available: true
        capacityType: spot
        estimated: true
        pricePerHour: 0.0808
        zone: us-east-1a
      operatingSystems:
      - linux
      previousGeneration: false
    region: us-east-1
    source: "Karpenter's AWS provider, August 2026: instance types and on-demand prices"
    "#);
    let json = asked("types --catalog fake --cpu <3 -o json");
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["items"].as_array().unwrap().len(), 2);
    assert_eq!(value["items"][1]["offerings"][0]["pricePerHour"], 0.629_496_73);
    assert_eq!(value["items"][0]["allocatable"]["cpu"], "900m");
}

#[test]
fn prices_in_every_zone() {
    insta::assert_snapshot!(asked("prices m5.large"), @"
    TYPE       ZONE         CAPACITY       HOUR   MONTH   OFF
    m5.large   us-east-1a   on-demand    0.0960   70.08     -
    m5.large   us-east-1a   spot        ~0.0384   28.03   60%
    m5.large   us-east-1b   on-demand    0.0960   70.08     -
    m5.large   us-east-1b   spot        ~0.0384   28.03   60%
    m5.large   us-east-1c   on-demand    0.0960   70.08     -
    m5.large   us-east-1c   spot        ~0.0384   28.03   60%
    m5.large   us-east-1d   on-demand    0.0960   70.08     -
    m5.large   us-east-1d   spot        ~0.0384   28.03   60%
    m5.large   us-east-1f   on-demand    0.0960   70.08     -
    m5.large   us-east-1f   spot        ~0.0384   28.03   60%

    TYPE       CAPACITY    ZONES    LOWEST   HIGHEST   SPREAD
    m5.large   on-demand       5    0.0960    0.0960     0.0%
    m5.large   spot            5   ~0.0384   ~0.0384     0.0%
    ");
    insta::assert_snapshot!(asked("prices --catalog gcp c2-standard-4 -o wide"), @"
    TYPE            ZONE            CAPACITY      HOUR    MONTH   OFF   PER-CORE   PER-GIB   AVAILABLE   LEFT
    c2-standard-4   us-central1-a   on-demand   0.2088   152.43     -     0.0522    0.0131   yes            -
    c2-standard-4   us-central1-a   spot        0.0997    72.77   52%     0.0249    0.0062   yes            -
    c2-standard-4   us-central1-b   on-demand   0.2088   152.43     -     0.0522    0.0131   yes            -
    c2-standard-4   us-central1-b   spot        0.0997    72.77   52%     0.0249    0.0062   yes            -
    c2-standard-4   us-central1-c   on-demand   0.2088   152.43     -     0.0522    0.0131   yes            -
    c2-standard-4   us-central1-c   spot        0.0997    72.77   52%     0.0249    0.0062   yes            -
    c2-standard-4   us-central1-f   on-demand   0.2088   152.43     -     0.0522    0.0131   yes            -
    c2-standard-4   us-central1-f   spot        0.0997    72.77   52%     0.0249    0.0062   yes            -

    TYPE            CAPACITY    ZONES   LOWEST   HIGHEST   SPREAD
    c2-standard-4   on-demand       4   0.2088    0.2088     0.0%
    c2-standard-4   spot            4   0.0997    0.0997     0.0%
    ");
    insta::assert_snapshot!(asked("prices m5.largee"), @"
    error: there is no instance type `m5.largee` in the catalogue aws
    hint: did you mean `m5.large`?
    ");
    insta::assert_snapshot!(asked("prices --catalog gcp quantum"), @"
    error: there is no instance type `quantum` in the catalogue gcp
    hint: `millpond catalog types --catalog gcp -o name` lists all
    ");
}

#[test]
fn overlays_by_flag() {
    let only = "types --family m5 --cpu 2 --capacity-type on-demand -o table";
    insta::assert_snapshot!(asked(&format!("{only} --discount 50%")), @"
    NAME       ARCH    CPU   MEMORY   GPU   ON-DEMAND   SPOT
    m5.large   amd64     2      8Gi   -        0.0480      -
    ");
    insta::assert_snapshot!(asked(&format!("{only} --discount 50% --price 0.05@m5.large --surcharge 0.01")), @"
    NAME       ARCH    CPU   MEMORY   GPU   ON-DEMAND   SPOT
    m5.large   amd64     2      8Gi   -        0.0600      -
    ");
    insta::assert_snapshot!(asked(&format!("{only} --surcharge 1@topology.kubernetes.io/zone=mars")), @"
    warning: overlay `--surcharge 1@topology.kubernetes.io/zone=mars` matches no offering
    NAME       ARCH    CPU   MEMORY   GPU   ON-DEMAND   SPOT
    m5.large   amd64     2      8Gi   -        0.0960      -
    ");
    let with = asked(
        &format!("{only} --resource example.com/licence=2@kubernetes.io/os=linux -o json").replace("-o table ", ""),
    );
    let value: serde_json::Value = serde_json::from_str(&with).unwrap();
    assert_eq!(value["items"][0]["capacity"]["example.com/licence"], "2");
}

#[test]
fn mistakes_on_the_line() {
    insta::assert_snapshot!([
        asked("types --cpu 16..4"),
        asked("types --memory 16GB.."),
        asked("types --discount 130%"),
        asked("types --price 0.05"),
        asked("types --resource cpu=1"),
        asked("types --catalog azure"),
    ].join("\n"), @"
    error: invalid value '16..4' for '--cpu <RANGE>': no number is in the range `16..4`

    For more information, try '--help'.

    error: invalid value '16GB..' for '--memory <RANGE>': `16GB` is not a quantity such as `500m`, `4` or `16Gi`

    For more information, try '--help'.

    error: invalid value '130%' for '--discount <PERCENT[@SELECTOR]>': `130%` is not a discount from 0% to 100%

    For more information, try '--help'.

    error: invalid value '0.05' for '--price <USD@SELECTOR>': say for what, as in `0.05@m5.large`

    For more information, try '--help'.

    error: invalid value 'cpu=1' for '--resource <NAME=COUNT[@SELECTOR]>': `cpu=1` would change a resource that the node has itself

    For more information, try '--help'.

    error: there is no catalogue `azure`: neither one that comes with Millpond nor a file
    hint: `--catalog` takes aws, gcp, kwok, fake or the path of a file
    ");
}

#[test]
fn a_price_list_becomes_a_catalogue() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("lab.csv"), "name,cpu,memory,price,colour\nsmall,2,4Gi,0.05,red\nbig,16,64Gi,0.8,blue\n")
        .unwrap();
    let import = "import DIR/lab.csv --zones rack-1,rack-2 --estimate-spot 50% --out DIR/lab.catalog";
    insta::assert_snapshot!(answer(at, import), @"
    warning: DIR/lab.csv:1:1: `colour` is not a column that is understood; ignored
    wrote DIR/lab.catalog: 2 types, 8 offerings
    ");
    insta::assert_snapshot!(answer(at, import), @"
    warning: DIR/lab.csv:1:1: `colour` is not a column that is understood; ignored
    error: `DIR/lab.catalog` exists already
    hint: `--force` replaces it
    ");
    insta::assert_snapshot!(std::fs::read_to_string(at.join("lab.catalog")).unwrap(), @"
    millpond-catalog 1
    name lab
    provider generic
    zones rack-1 rack-2
    spot-per-mille 500
    types
    big amd64 16 64Gi 110 0.8
    small amd64 2 4Gi 110 0.05
    ");
    insta::assert_snapshot!(answer(at, "types --catalog DIR/lab.catalog"), @"
    NAME    ARCH    CPU   MEMORY   GPU   ON-DEMAND      SPOT
    small   amd64     2      4Gi   -        0.0500   ~0.0250
    big     amd64    16     64Gi   -        0.8000   ~0.4000
    ");
    insta::assert_snapshot!(answer(at, "types --catalog DIR/lab.csv --cpu >2"), @"
    warning: DIR/lab.csv:1:1: `colour` is not a column that is understood; ignored
    NAME   ARCH    CPU   MEMORY   GPU   ON-DEMAND   SPOT
    big    amd64    16     64Gi   -        0.8000      -
    ");
    std::fs::write(at.join("bad.csv"), "name,cpu,memory,price\nsmall,2,4Gb,0.05\n").unwrap();
    insta::assert_snapshot!(answer(at, "import DIR/bad.csv"), @"
    error: cannot read the catalogue: DIR/bad.csv:2:9: field `memory`: `4Gb` is not a quantity such as `500m`, `4` or `16Gi`
    hint: the columns and fields are in docs/guides/catalog.md
    ");
    insta::assert_snapshot!(answer(at, "import DIR/none.csv"), @"error: cannot open `DIR/none.csv`: No such file or directory (os error 2)");
    std::fs::write(at.join("o.yaml"), "kind: NodeOverlay\nspec: {prize: 1}\n").unwrap();
    insta::assert_snapshot!(answer(at, "types --overlay DIR/o.yaml"), @"
    error: cannot read the overlays: DIR/o.yaml:2:8: unknown field `prize`, expected one of requirements, weight, price, priceAdjustment, surcharge, capacity
    hint: the fields of an overlay are in docs/guides/catalog.md
    ");
}
