//! NodePools, their node classes and catalogues.

use millpond_api::catalog::overlay::{Overlay, PriceRule};
use millpond_plan::model::{CPU, Consolidation, Disruption, DisruptionReason, MEMORY, Nodes, PODS, Snapshot};
use millpond_plan::taint::Effect;
use millpond_state::{Options, Taken};

use crate::support::{errors, read, taken};

fn pool(metadata: &str, spec: &str, template: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: general, {metadata}}}, spec: {{template: {{spec: {{requirements: [], nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}, {template}}}}}, {spec}}}}}\n---\n"
    )
}

fn requirement(text: &str) -> String {
    pool("", "", "").replace("requirements: []", &format!("requirements: [{text}]"))
}

fn notes(taken: &Taken) -> Vec<String> {
    taken.notes.iter().map(ToString::to_string).collect()
}

fn lower(text: &str) -> Snapshot {
    let taken = taken(text, &Options::default());
    assert_eq!(notes(&taken), [""; 0]);
    taken.snapshot
}

fn words(snapshot: &Snapshot) -> Vec<String> {
    let symbols = &snapshot.symbols;
    let all = snapshot.pools[0].requirements.iter();
    let mut all: Vec<String> =
        all.map(|(key, it)| format!("{} {}", symbols.text(key), it.describe(symbols, 9))).collect();
    all.sort();
    all
}

#[test]
fn everything_a_pool_can_say() {
    let snapshot = lower(
        "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: general
  annotations: {millpond.dev/limit-dollars-per-hour: '12.5'}
spec:
  weight: 10
  limits: {cpu: 100, memory: 1Ti, nodes: 7}
  disruption:
    consolidationPolicy: WhenEmpty
    consolidateAfter: 5m
    budgets:
    - {nodes: 20%, reasons: [Empty, Drifted]}
    - {nodes: '3', schedule: '0 9 * * mon-fri', duration: 8h, timeZone: Europe/Berlin}
  template:
    metadata: {labels: {team: a}}
    spec:
      expireAfter: Never
      terminationGracePeriod: 1h
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      taints: [{key: team, value: a, effect: NoSchedule}]
      startupTaints: [{key: cni, effect: NoExecute}]
      requirements:
      - {key: karpenter.kwok.sh/instance-family, operator: In, values: [c, s, m], minValues: 2}
      - {key: karpenter.kwok.sh/instance-cpu, operator: Gte, values: ['4']}
      - {key: karpenter.kwok.sh/instance-cpu, operator: Lt, values: ['64']}
      - {key: beta.kubernetes.io/arch, operator: NotIn, values: [arm64]}
",
    );
    let pool = &snapshot.pools[0];
    assert_eq!((pool.weight, pool.replicas, pool.not_ready.clone(), pool.min_nodes), (10, None, None, 0));
    assert_eq!(
        words(&snapshot),
        [
            "karpenter.kwok.sh/instance-cpu Gte 4, Lte 63",
            "karpenter.kwok.sh/instance-family In [c, m, s]",
            "karpenter.kwok.sh/kwoknodeclass In [default]",
            "karpenter.sh/nodepool In [general]",
            "kubernetes.io/arch NotIn [arm64]",
            "team In [a]"
        ]
    );
    let family = snapshot.symbols.find("karpenter.kwok.sh/instance-family").unwrap();
    assert_eq!(pool.requirements.get(family).unwrap().min_values(), Some(2));
    assert_eq!(
        (pool.limits.resources.clone(), pool.limits.nodes, pool.limits.price),
        (vec![(CPU, 100_000), (MEMORY, 1 << 40)], Some(7), Some(12_500_000_000))
    );
    assert_eq!((pool.taints[0].effect, pool.startup_taints[0].effect), (Effect::NoSchedule, Effect::NoExecute));
    let disruption = &pool.disruption;
    assert_eq!(
        (disruption.policy, disruption.consolidate_after, disruption.expire_after),
        (Consolidation::WhenEmpty, Some(300), None)
    );
    assert_eq!(disruption.budgets[0].nodes, Nodes::Percent(20));
    assert_eq!(disruption.budgets[0].reasons, [DisruptionReason::Empty, DisruptionReason::Drifted]);
    let schedule = disruption.budgets[1].schedule.as_ref().unwrap();
    assert_eq!(
        (&*schedule.cron, schedule.time_zone.as_deref(), schedule.duration),
        ("0 9 * * mon-fri", Some("Europe/Berlin"), 28_800)
    );
}

#[test]
fn what_a_pool_does_not_say() {
    let snapshot = lower(&pool("", "", ""));
    let pool = &snapshot.pools[0];
    assert_eq!(pool.disruption, Disruption::default());
    assert!(pool.limits.is_empty() && pool.weight == 0 && pool.types.len() == 144);
    let fixed = lower(&super::pools::pool("", "replicas: 3, limits: {nodes: 5}", ""));
    assert_eq!(fixed.pools[0].replicas, Some(3));
}

#[test]
fn what_a_pool_may_not_say() {
    for (text, expected) in [
        (requirement("{key: a, operator: In}"), "requirements[0].values`: `In` on `a` takes at least one value, not 0"),
        (
            requirement("{key: a, operator: Inn, values: [b]}"),
            "requirements[0].operator`: `Inn` is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte",
        ),
        (
            requirement("{key: a, operator: Gt, values: [b]}"),
            "requirements[0].values`: `b` cannot be a value of the label `a`",
        ),
        (
            requirement("{key: a, operator: Exists, values: [b]}"),
            "requirements[0].values`: `Exists` on `a` takes no values, not 1",
        ),
        (
            requirement("{key: a, operator: In, values: [b], minValues: 2}"),
            "requirements[0].minValues`: `2` asks for 2 different values, but only 1 are named",
        ),
        (
            requirement("{key: a, operator: Exists, minValues: 51}"),
            "requirements[0].minValues`: `51` is not from 1 to 50",
        ),
        (
            requirement("{key: kubernetes.io/hostname, operator: Exists}"),
            "requirements[0].key`: `kubernetes.io/hostname` is reserved: a pool may not speak of it",
        ),
        (
            requirement("{key: karpenter.sh/nodepool, operator: Exists}"),
            "requirements[0].key`: `karpenter.sh/nodepool` is reserved: a pool may not speak of it",
        ),
        (
            requirement("{key: karpenter.sh/custom, operator: Exists}"),
            "requirements[0].key`: `karpenter.sh/custom` is reserved: a pool may not speak of it",
        ),
        (
            requirement("{key: karpenter.sh/capacity-type, operator: In, values: [cheap]}"),
            "requirements[0].values`: names none of the capacity types on-demand, spot and reserved",
        ),
        (
            requirement("{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [b]}"),
            "requirements[1]`: contradicts what the pool says about `a` before: no value is left",
        ),
        (
            requirement("{key: a, operator: Gt, values: ['9']}, {key: a, operator: Lt, values: ['5']}"),
            "requirements[1]`: contradicts what the pool says about `a` before: no value is left",
        ),
        (requirement("{key: 'a b', operator: Exists}"), "requirements[0].key`: `a b` is not the name of a label"),
        (
            pool("", "", "taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: a, effect: NoSchedule}]"),
            "startupTaints[0]`: the taint `a:NoSchedule` is there more than once",
        ),
        (
            pool("", "", "taints: [{key: a, effect: Sometimes}]"),
            "taints[0].effect`: `Sometimes` is not one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (pool("", "weight: 101", ""), "spec.weight`: `101` is not from 1 to 100"),
        (
            pool("", "weight: 5, replicas: 1", ""),
            "spec.weight`: `5` means nothing beside `replicas`: the pool has a fixed size",
        ),
        (
            pool("", "replicas: 1, limits: {cpu: 1}", ""),
            "spec.limits.cpu`: `1` means nothing beside `replicas`: only `nodes` can be limited",
        ),
        (pool("", "replicas: -1", ""), "spec.replicas`: `-1` is negative"),
        (pool("", "limits: {cpu: 5x}", ""), "spec.limits.cpu`: `5x` is not a quantity such as `500m`, `4` or `16Gi`"),
        (pool("", "limits: {cpu: -5}", ""), "spec.limits.cpu`: `-5` is a negative quantity"),
        (pool("", "limits: {memory: 9Ei}", ""), "spec.limits.memory`: `9Ei` is too large a quantity"),
        (
            pool("", "disruption: {budgets: [{nodes: 101%}]}", ""),
            "budgets[0].nodes`: `101%` is not a number of nodes such as `3` or `10%`",
        ),
        (
            pool("", "disruption: {budgets: [{schedule: '@daily'}]}", ""),
            "budgets[0].schedule`: `@daily` stands without `duration`: for how long?",
        ),
        (
            pool("", "disruption: {budgets: [{duration: 1h}]}", ""),
            "budgets[0].duration`: `1h` stands without `schedule`: from when?",
        ),
        (
            pool("", "disruption: {consolidateAfter: soon}", ""),
            "spec.disruption.consolidateAfter`: `soon` is not a duration such as `30s`, `1h30m` or `720h`",
        ),
        (
            pool("", "disruption: {consolidationPolicy: Never}", ""),
            "consolidationPolicy`: `Never` is not one of WhenEmpty, WhenEmptyOrUnderutilized, Balanced",
        ),
        (
            pool("", "disruption: {consolidationPolicy: WhenUnderutilized}", ""),
            "`WhenUnderutilized` is not one of WhenEmpty, WhenEmptyOrUnderutilized, Balanced; its name is `WhenEmptyOrUnderutilized` now",
        ),
        (
            pool("annotations: {millpond.dev/limit-dollars-per-hour: cheap}", "", ""),
            "limit-dollars-per-hour`: `cheap` is not a price in dollars such as `0.096`",
        ),
        (
            pool("", "", "expireAfter: 99999999999999h"),
            "spec.template.spec.expireAfter`: `99999999999999h` is longer than a hundred years",
        ),
    ] {
        let all = errors(&text);
        assert!(all.len() == 1 && all[0].ends_with(expected), "wanted: {expected}\ngot: {all:?}");
    }
}

#[test]
fn classes_choose_catalogues_and_settings() {
    let class = |spec: &str| {
        format!(
            "{{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {{name: mine}}, spec: {{{spec}}}}}\n---\n"
        )
    };
    let text = |spec: &str| {
        let mine = "group: millpond.dev, kind: NodeClass, name: mine";
        format!(
            "{}{}",
            class(spec),
            pool("", "", "").replace("group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default", mine)
        )
    };
    let aws = lower(&text("provider: sim, catalog: aws"));
    assert!(aws.types.len() > 1000 && aws.symbols.find("m5.large").is_some());
    let plain = lower(&text("catalog: kwok"));
    let changed = lower(&text(
        "catalog: kwok, kubelet: {maxPods: 20, systemReserved: {cpu: 100m, memory: 200Mi}, kubeReserved: {cpu: 1}}",
    ));
    let of = |snapshot: &Snapshot| {
        let name = snapshot.symbols.find("c-4x-amd64-linux");
        let of = snapshot.types.iter().find(|of| Some(of.name) == name).unwrap();
        [CPU, MEMORY, PODS].map(|resource| of.allocatable.get(resource))
    };
    assert_eq!(of(&plain), [3900, (8 << 30) - (10 << 20), 64]);
    assert_eq!(of(&changed), [2900, (8 << 30) - (210 << 20), 20]);
    let per_core = lower(&text("catalog: kwok, kubelet: {podsPerCore: 3}"));
    assert_eq!(of(&per_core)[2], 12);
}

#[test]
fn pools_share_types_where_nothing_differs() {
    let two = format!("{}{}", pool("", "", ""), pool("", "", "").replace("name: general", "name: other"));
    assert_eq!(lower(&two).types.len(), 144);
}

#[test]
fn classes_of_other_providers() {
    let of = |group: &str, kind: &str| {
        let text = pool("", "", "")
            .replace("group: karpenter.kwok.sh, kind: KWOKNodeClass", &format!("group: {group}, kind: {kind}"));
        let taken = taken(&text, &Options::default());
        let families = ["m5.large", "n2-standard-4", "c-4x-amd64-linux"];
        let found = families.into_iter().find(|name| taken.snapshot.symbols.find(name).is_some());
        (found.unwrap_or(""), notes(&taken))
    };
    assert_eq!(of("karpenter.k8s.aws", "EC2NodeClass"), ("m5.large", vec![]));
    assert_eq!(of("karpenter.k8s.gcp", "GCENodeClass"), ("n2-standard-4", vec![]));
    assert_eq!(of("karpenter.kwok.sh", "KWOKNodeClass"), ("c-4x-amd64-linux", vec![]));
    let stands_in = "test.yaml:1:1: pool `general`: the node class `karpenter.azure.com/AKSNodeClass` is none that is known; the catalogue `aws` stands in";
    assert_eq!(of("karpenter.azure.com", "AKSNodeClass"), ("m5.large", vec![stands_in.to_owned()]));
    let missing = "test.yaml:1:1: pool `general`: its node class `default` is not here; the catalogue `aws` stands in";
    assert_eq!(of("millpond.dev", "NodeClass"), ("m5.large", vec![missing.to_owned()]));
}

#[test]
fn pools_that_are_not_ready() {
    let mine = "group: millpond.dev, kind: NodeClass, name: mien";
    let named = pool("", "", "").replace("group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default", mine);
    let class =
        "{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {name: mine}, spec: {catalog: kwok}}\n---\n";
    let taken_one = taken(&format!("{class}{named}"), &Options::default());
    assert_eq!(
        taken_one.snapshot.pools[0].not_ready.as_deref(),
        Some("there is no node class `mien`; is `mine` meant?")
    );
    let no_catalogue = class.replace("kwok", "acme").replace("mine", "mien");
    let taken_two = taken(&format!("{no_catalogue}{named}"), &Options::default());
    assert_eq!(taken_two.snapshot.pools[0].not_ready.as_deref(), Some("there is no catalogue `acme`"));
    let sick = class
        .replace("mine}", "mien}")
        .replace("spec:", "status: {conditions: [{type: Ready, status: 'False', reason: NoSubnet}]}, spec:");
    let taken_three = taken(&format!("{sick}{named}"), &Options::default());
    assert_eq!(
        taken_three.snapshot.pools[0].not_ready.as_deref(),
        Some("its node class `mien` is not ready: NoSubnet")
    );
    let strict = Options { require_classes: true, ..Options::default() };
    assert_eq!(
        taken(&named, &strict).snapshot.pools[0].not_ready.as_deref(),
        Some("there is no node class `mien`"),
        "no catalogue stands in for it"
    );
    let leaving = class.replace("{name: mine}", "{name: mien, deletionTimestamp: '2026-11-16T11:00:00Z'}");
    let taken_four = taken(&format!("{leaving}{named}"), &strict);
    assert_eq!(taken_four.snapshot.pools[0].not_ready.as_deref(), Some("its node class `mien` is being deleted"));
    let going = pool("deletionTimestamp: '2026-11-16T11:00:00Z'", "", "");
    assert_eq!(lower(&going).pools[0].not_ready.as_deref(), Some("it is being deleted"));
}

#[test]
fn a_pool_without_a_usable_type_is_reported_with_its_place() {
    let text = format!("\n{}", requirement("{key: karpenter.kwok.sh/instance-family, operator: In, values: [x]}"));
    let expected =
        "test.yaml:2:1: pool `general`: none of the 144 types of catalogue `kwok` satisfies its requirements";
    assert_eq!(notes(&taken(&text, &Options::default())), [expected]);
    let provider = requirement("{key: karpenter.kwok.sh/instance-family, operator: DoesNotExist}");
    assert_eq!(notes(&taken(&provider, &Options::default())).len(), 1);
    // A label of the pool's own is no hindrance.
    assert_eq!(notes(&taken(&requirement("{key: team, operator: In, values: [x]}"), &Options::default())), [""; 0]);
}

#[test]
fn a_default_pool_has_no_tiny_machines() {
    let options = Options { default_pool: true, ..Options::default() };
    let taken = taken("", &options);
    let snapshot = &taken.snapshot;
    let of = &snapshot.pools[0];
    let usable: Vec<&str> = of
        .types
        .iter()
        .map(|id| &snapshot.types[id.index()])
        .filter(|it| {
            it.labels.iter().all(|(key, offered)| {
                of.requirements.get(key).is_none_or(|wanted| wanted.intersects(offered, &snapshot.symbols))
            })
        })
        .map(|it| snapshot.text(it.name))
        .collect();
    assert!(usable.contains(&"m5.large") && usable.len() > 300);
    assert!(usable.iter().all(|name| !name.starts_with('t') && !name.contains(".nano") && !name.contains(".micro")));
    assert_eq!(taken.notes.len(), 1);
    let with_pool = super::support::taken(&pool("", "", ""), &options);
    assert_eq!(with_pool.snapshot.pools.len(), 1);
    assert_eq!(with_pool.snapshot.pools[0].name, "general");
}

#[test]
fn overlays_change_prices() {
    let half = Overlay {
        name: "half".into(),
        weight: 0,
        requirements: vec![],
        price: Some(PriceRule::Scale(-500_000)),
        surcharge_nanos_hour: 0,
        capacity: [("example.com/licence".to_owned(), 2)].into(),
    };
    let options = Options { overlays: vec![half], ..Options::default() };
    let price = |snapshot: &Snapshot| {
        let name = snapshot.symbols.find("c-4x-amd64-linux");
        snapshot.types.iter().find(|of| Some(of.name) == name).unwrap().offerings[0].price
    };
    let before = price(&lower(&pool("", "", "")));
    let after = taken(&pool("", "", ""), &options).snapshot;
    assert_eq!(price(&after), before.div_ceil(2));
    assert!(after.resources.find("example.com/licence").is_some());
    let class = "{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {name: default}, spec: {catalog: kwok, overlays: [hlaf]}}\n---\n";
    let named = pool("", "", "")
        .replace("group: karpenter.kwok.sh, kind: KWOKNodeClass", "group: millpond.dev, kind: NodeClass");
    let other = taken(&format!("{class}{named}"), &options);
    assert_eq!((price(&other.snapshot), notes(&other).len()), (before, 1));
    assert!(
        notes(&other)[0]
            .ends_with("is not ready: spec.overlays[0]: there is no price overlay `hlaf`; is `half` meant?")
    );
}

#[test]
fn a_config_map_brings_a_catalogue() {
    let catalog = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {millpond.dev/catalog: lab}}, data: {other: 1, catalog: \"millpond-catalog 1\\nzones here\\ntypes\\nbox amd64 4 8Gi 20 0.25\\n\"}}\n---\n";
    let plain = "{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}, data: {port: 80}}\n---\n";
    let class =
        "{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {name: default}, spec: {catalog: lab}}\n---\n";
    let pool = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: general}, spec: {template: {spec: {requirements: [], nodeClassRef: {group: millpond.dev, kind: NodeClass, name: default}}}}}";
    let taken_one = taken(&format!("{catalog}{plain}{class}{pool}"), &Options::default());
    assert_eq!(taken_one.notes, []);
    let snapshot = &taken_one.snapshot;
    let names: Vec<_> =
        snapshot.pools[0].types.iter().map(|id| snapshot.text(snapshot.types[id.index()].name)).collect();
    assert_eq!(names, ["box"]);
    assert_eq!(read(plain).objects, 0);
    assert_eq!(
        errors(&catalog.replace("0.25", "dear")),
        [
            "test.yaml:1:119: ConfigMap/c: field `data.catalog`: `millpond-catalog 1\\nzones here\\ntypes\\nbox amd64 4 8Gi 20 dear\\n` is no catalogue: c:4:20: field `price`: `dear` is not a price in dollars such as `0.096`"
        ]
    );
    let mut state = read(catalog).state;
    assert!(state.delete(millpond_state::objects::Kind::ConfigMap, "default", "c"));
    assert!(!state.delete(millpond_state::objects::Kind::ConfigMap, "default", "c"));
}

#[test]
fn what_a_class_says_is_out_of_stock_is_not_to_be_had() {
    let class = "
apiVersion: millpond.dev/v1alpha1
kind: NodeClass
metadata: {name: default}
spec: {catalog: kwok}
status:
  unavailable:
  - {instanceType: c-4x-amd64-linux, zone: test-zone-a, capacityType: spot, failures: 2, until: '2026-11-16T12:00:01Z'}
  - {instanceType: c-2x-amd64-linux, zone: test-zone-a, capacityType: on-demand, failures: 1, until: '2026-11-16T12:00:00Z'}
---
";
    let pool = pool("", "", "").replace("karpenter.kwok.sh, kind: KWOKNodeClass", "millpond.dev, kind: NodeClass");
    let text = format!("{class}{pool}");
    let missing = |options: &Options| -> Vec<String> {
        let taken = taken(&text, options);
        assert_eq!(notes(&taken), [""; 0]);
        let snapshot = &taken.snapshot;
        let each = snapshot.types.iter().flat_map(|of| of.offerings.iter().map(move |offering| (of, offering)));
        let missing = each.filter(|(_, offering)| !offering.available);
        missing
            .map(|(of, it)| {
                let (name, zone) = (snapshot.text(of.name), snapshot.text(it.zone));
                format!("{name}/{zone}/{}", it.capacity_type.name())
            })
            .collect()
    };
    assert_eq!(missing(&Options::default()), ["c-4x-amd64-linux/test-zone-a/spot"], "until when counts");
    assert_eq!(missing(&Options { ignore_stock: true, ..Options::default() }), [""; 0]);
}

#[test]
fn types_of_previous_generations_are_left_out_unless_named() {
    let text = |requirement: &str| {
        format!(
            "{}---\n{{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {{name: default}}, spec: {{catalog: aws}}}}\n",
            self::requirement(requirement)
                .replace("karpenter.kwok.sh, kind: KWOKNodeClass", "millpond.dev, kind: NodeClass")
        )
    };
    let unnamed = |requirement: &str| -> Vec<String> {
        let snapshot = lower(&text(requirement));
        let pool = &snapshot.pools[0];
        let text = |id: &millpond_plan::model::TypeId| snapshot.text(snapshot.types[id.index()].name).to_owned();
        assert_eq!(pool.types.len(), 1345, "nodes that run keep their type, and with it their price");
        pool.unnamed.iter().map(text).collect()
    };
    let all = unnamed("");
    assert!(["m1.small", "t1.micro", "r3.large"].iter().all(|old| all.iter().any(|name| name == old)), "{all:?}");
    assert!(!all.iter().any(|name| name.starts_with("m5.")), "{all:?}");
    let but_m1 = unnamed("{key: karpenter.k8s.aws/instance-family, operator: In, values: [m1, m5]}");
    assert_eq!(all.len() - but_m1.len(), 4, "the sizes of m1 are named");
    let none = unnamed("{key: karpenter.k8s.aws/instance-generation, operator: Lt, values: ['4']}");
    assert_eq!(none, [""; 0]);
    // A pool that leaves nothing else says so.
    let only_old = "{key: karpenter.k8s.aws/instance-category, operator: In, values: [m]}, {key: karpenter.k8s.aws/instance-generation, operator: NotIn, values: ['4', '5', '6', '7', '8', '9']}";
    let pod = "---\n{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}\n";
    let taken = taken(&format!("{}{pod}", text(only_old)), &Options::default());
    assert_eq!(taken.notes.len(), 1, "{:?}", notes(&taken));
    let outcome = millpond_plan::plan(&taken.snapshot, &Default::default());
    let why = millpond_plan::explain::explain_in(&taken.snapshot, &outcome, 0.into()).message;
    assert!(
        why.contains("its own requirements leave only types of previous generations, and name none of them: m1."),
        "{why}"
    );
}
