//! Node selectors, affinity, spread, tolerations, ports, priority: what scheduling looks at.

use millpond_plan::model::{DoNotDisrupt, InclusionPolicy, Namespaces, PodClass, PodKind, PodState, Problem, Snapshot};
use millpond_plan::requirement::Requirements;
use millpond_plan::taint::{Comparison, Effect, Toleration};
use millpond_state::{DefaultSpread, Options};

use crate::support::{errors, only_class, snapshot, taken};

fn pod(metadata: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: shop, {metadata}}}, spec: {{containers: [{{name: c}}], {spec}}}}}\n"
    )
}

fn lowered(metadata: &str, spec: &str) -> (Snapshot, PodClass) {
    let snapshot = snapshot(&pod(metadata, spec));
    let class = only_class(&snapshot).clone();
    (snapshot, class)
}

/// Requirements in words, by key.
fn words(requirements: &Requirements, snapshot: &Snapshot) -> String {
    let symbols = &snapshot.symbols;
    let mut all: Vec<String> =
        requirements.iter().map(|(key, it)| format!("{} {}", symbols.text(key), it.describe(symbols, 9))).collect();
    all.sort();
    all.join("; ")
}

fn node_terms(spec: &str) -> Vec<String> {
    let (snapshot, class) = lowered("", spec);
    class.node_terms.iter().map(|term| words(term, &snapshot)).collect()
}

#[test]
fn node_selector_and_affinity() {
    assert_eq!(node_terms(""), [""]);
    assert_eq!(
        node_terms("nodeSelector: {beta.kubernetes.io/os: linux, a: b}"),
        ["a In [b]; kubernetes.io/os In [linux]"]
    );
    let required = |terms: &str| {
        format!(
            "nodeSelector: {{a: b}}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}}}}}"
        )
    };
    let two = required(
        "{matchExpressions: [{key: size, operator: Gt, values: ['4']}, {key: gpu, operator: DoesNotExist}]}, \
         {matchFields: [{key: metadata.name, operator: In, values: [one]}]}, {}",
    );
    assert_eq!(node_terms(&two), ["a In [b]; gpu DoesNotExist; size Gte 5", "a In [b]; metadata.name In [one]"]);
    // An alternative without requirements selects nothing; with no other, no node will do.
    let (_, class) = lowered("", &required("{}"));
    assert_eq!(class.node_terms, []);
    assert!(matches!(class.problem, Some(Problem::Contradiction(_))));
}

#[test]
fn a_contradiction_is_a_problem_when_every_alternative_has_one() {
    let terms = |more: &str| {
        format!(
            "nodeSelector: {{arch: arm}}, affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{{key: arch, operator: In, values: [x86]}}]}}{more}]}}}}}}"
        )
    };
    assert_eq!(lowered("", &terms("")).1.problem, Some(Problem::Contradiction("arch".into())));
    let other = ", {matchExpressions: [{key: zone, operator: Exists}]}";
    assert_eq!(lowered("", &terms(other)).1.problem, None);
}

#[test]
fn preferences_keep_their_weights() {
    let (snapshot, class) = lowered(
        "",
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 7, preference: {matchExpressions: [{key: a, operator: Exists}]}}, {weight: 3, preference: {}}]},
          podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, podAffinityTerm: {topologyKey: zone, labelSelector: {}}}]},
          podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 9, podAffinityTerm: {topologyKey: host}}]}}",
    );
    let nodes: Vec<_> = class.node_preferences.iter().map(|(weight, it)| (*weight, words(it, &snapshot))).collect();
    assert_eq!(nodes, [(7, "a Exists".to_owned())]);
    let pods: Vec<_> =
        class.affinity_preferences.iter().map(|(weight, term)| (*weight, term.selector.is_some())).collect();
    assert_eq!(pods, [(5, true), (-9, false)]);
}

#[test]
fn tolerations() {
    let (snapshot, class) = lowered(
        "",
        "tolerations: [{operator: Exists}, {key: a}, {key: a, value: b, effect: NoExecute}, {key: a, operator: Gt, value: '5'}, {key: a, operator: Lt, value: '-5', effect: ''}]",
    );
    let [a, b, empty] = ["a", "b", ""].map(|text| snapshot.symbols.find(text));
    let toleration = |key, value, effect| Toleration { key, value, effect };
    let expected = [
        toleration(None, Comparison::Exists, None),
        toleration(a, Comparison::Equal(empty.unwrap()), None),
        toleration(a, Comparison::Equal(b.unwrap()), Some(Effect::NoExecute)),
        toleration(a, Comparison::Above(5), None),
        toleration(a, Comparison::Below(-5), None),
    ];
    assert_eq!(class.tolerations, expected);
}

#[test]
fn spread() {
    let (snapshot, class) = lowered(
        "labels: {app: web, hash: h1}",
        "topologySpreadConstraints: [
          {topologyKey: zone, maxSkew: 2, whenUnsatisfiable: DoNotSchedule, minDomains: 3, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [hash, missing], nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor},
          {topologyKey: host, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, matchLabelKeys: [hash]}]",
    );
    let [zone, host] = class.spread.as_slice() else { panic!("two constraints") };
    assert_eq!((zone.max_skew, zone.min_domains, zone.hard), (2, Some(3), true));
    assert_eq!(words(zone.selector.as_ref().unwrap(), &snapshot), "app In [web]; hash In [h1]");
    assert_eq!((zone.node_affinity, zone.node_taints), (InclusionPolicy::Ignore, InclusionPolicy::Honor));
    // Without a selector no pod is counted, whatever its labels.
    assert_eq!((host.selector.clone(), host.hard), (None, false));
    assert_eq!((host.node_affinity, host.node_taints), (InclusionPolicy::Honor, InclusionPolicy::Ignore));
    assert_eq!(class.labels.len(), 2);
}

#[test]
fn namespaces_of_affinity_terms() {
    let spaces = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}\n---\n\
                  {apiVersion: v1, kind: Namespace, metadata: {name: bank, labels: {team: a}}}\n---\n\
                  {apiVersion: v1, kind: Namespace, metadata: {name: zoo, labels: {team: b}}}\n---\n";
    for (term, expected) in [
        ("", "shop"),
        ("namespaces: [zoo, bank]", "bank zoo"),
        ("namespaceSelector: {}", "all"),
        ("namespaceSelector: {matchLabels: {team: a}}", "bank shop"),
        ("namespaceSelector: {matchLabels: {team: b}}, namespaces: [shop]", "shop zoo"),
        ("namespaceSelector: {matchLabels: {team: none}}", ""),
        ("namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}", ""),
    ] {
        let spec = format!(
            "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: host, labelSelector: {{}}, {term}}}]}}}}"
        );
        let snapshot = snapshot(&format!("{spaces}{}", pod("", &spec)));
        let words = match &only_class(&snapshot).anti_affinity[0].namespaces {
            Namespaces::All => "all".to_owned(),
            Namespaces::These(these) => {
                let mut names: Vec<&str> = these.iter().map(|name| snapshot.text(*name)).collect();
                names.sort_unstable();
                names.join(" ")
            }
        };
        assert_eq!(words, expected, "{term}");
    }
}

#[test]
fn labels_in_which_pods_are_alike_or_not() {
    let (snapshot, class) = lowered(
        "labels: {hash: h1, tenant: t1}",
        "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {}, matchLabelKeys: [hash], mismatchLabelKeys: [tenant, none]}]}}",
    );
    assert_eq!(words(class.affinity[0].selector.as_ref().unwrap(), &snapshot), "hash In [h1]; tenant NotIn [t1]");
}

#[test]
fn labels_without_selectors_do_not_make_classes() {
    let pods: String = (0..5)
        .map(|index| format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: p{index}, labels: {{app: web, index: '{index}'}}}}, spec: {{containers: []}}}}\n"))
        .collect();
    assert_eq!(snapshot(&pods).classes.len(), 1);
    let budget = "---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {selector: {matchLabels: {index: '3'}}}}\n";
    assert_eq!(snapshot(&format!("{pods}{budget}")).classes.len(), 5);
}

#[test]
fn host_ports() {
    let ports = |spec: &str| {
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{spec}}}}}");
        let snapshot = snapshot(&text);
        let ports = &only_class(&snapshot).host_ports;
        let words: Vec<String> = ports
            .iter()
            .map(|port| format!("{}{:?}/{}", port.address.as_deref().unwrap_or(""), port.protocol, port.port))
            .collect();
        words.join(" ")
    };
    let list = "[{containerPort: 80}, {containerPort: 81, hostPort: 8081, protocol: UDP, hostIP: 10.0.0.1}, {containerPort: 82, hostPort: 82, hostIP: 0.0.0.0}]";
    assert_eq!(ports(&format!("containers: [{{name: c, ports: {list}}}]")), "Tcp/82 10.0.0.1Udp/8081");
    assert_eq!(
        ports(&format!("hostNetwork: true, containers: [{{name: c, ports: {list}}}]")),
        "Tcp/80 Tcp/82 10.0.0.1Udp/8081"
    );
    // Of init containers only those count that stay.
    let init = "containers: [], initContainers: [{name: i, ports: [{containerPort: 1, hostPort: 1}]}, {name: s, restartPolicy: Always, ports: [{containerPort: 2, hostPort: 2}]}]";
    assert_eq!(ports(init), "Tcp/2");
}

#[test]
fn priority_by_number_class_or_default() {
    let classes = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000, preemptionPolicy: Never}\n---\n\
                   {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 10, globalDefault: true}\n---\n";
    for (spec, expected) in [
        ("", (10, true)),
        ("priority: 7", (7, true)),
        ("priorityClassName: high", (1000, false)),
        ("priorityClassName: high, priority: 999, preemptionPolicy: PreemptLowerPriority", (999, true)),
        ("preemptionPolicy: Never", (10, false)),
        ("priorityClassName: system-node-critical", (2_000_001_000, true)),
        ("priorityClassName: nobody", (0, true)),
    ] {
        let snapshot = snapshot(&format!("{classes}{}", pod("", spec)));
        let class = only_class(&snapshot);
        assert_eq!((class.priority, class.preempts), expected, "{spec}");
    }
    assert_eq!(lowered("", "").1.priority, 0);
}

#[test]
fn owners_and_annotations() {
    let owner = |kind: &str| format!("ownerReferences: [{{kind: {kind}, name: x, uid: u, controller: true}}]");
    for (metadata, kind) in [
        (owner("ReplicaSet"), PodKind::Workload),
        (owner("DaemonSet"), PodKind::Daemon),
        (owner("Node"), PodKind::Mirror),
        ("annotations: {kubernetes.io/config.mirror: abc}".to_owned(), PodKind::Mirror),
        (String::new(), PodKind::Bare),
        ("ownerReferences: [{kind: ReplicaSet, name: x, uid: u}]".to_owned(), PodKind::Bare),
    ] {
        assert_eq!(lowered(&metadata, "").1.kind, kind, "{metadata}");
    }
    for (annotation, expected) in [
        ("karpenter.sh/do-not-disrupt: 'true'", DoNotDisrupt::Always),
        ("karpenter.sh/do-not-disrupt: 1h30m", DoNotDisrupt::For(5400)),
        ("karpenter.sh/do-not-disrupt: 'false'", DoNotDisrupt::No),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict: 'false'", DoNotDisrupt::Always),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict: 'true'", DoNotDisrupt::No),
    ] {
        assert_eq!(lowered(&format!("annotations: {{{annotation}}}"), "").1.do_not_disrupt, expected, "{annotation}");
    }
    let cost = |text: &str| {
        lowered(&format!("annotations: {{controller.kubernetes.io/pod-deletion-cost: '{text}'}}"), "").1.deletion_cost
    };
    assert_eq!((cost("-5"), cost("100"), cost("much")), (-5, 100, 0));
}

#[test]
fn other_schedulers() {
    let text = pod("", "schedulerName: mine");
    let problem = |options: &Options| only_class(&taken(&text, options).snapshot).problem.clone();
    assert_eq!(problem(&Options::default()), Some(Problem::OtherScheduler("mine".into())));
    assert_eq!(problem(&Options { schedulers: vec!["mine".to_owned()], ..Options::default() }), None);
    assert_eq!(lowered("", "schedulerName: default-scheduler").1.problem, None);
}

#[test]
fn states_of_pods() {
    let text = "
{apiVersion: v1, kind: Node, metadata: {name: one}, status: {capacity: {cpu: 4}}}
---
{apiVersion: v1, kind: PodList, items: [
  {metadata: {name: a-pending}, spec: {containers: []}},
  {metadata: {name: b-bound}, spec: {nodeName: one, containers: []}},
  {metadata: {name: c-ending, deletionTimestamp: '2026-11-16T12:00:00Z'}, spec: {nodeName: one, containers: []}},
  {metadata: {name: d-gone, deletionTimestamp: '2026-11-16T12:00:00Z'}, spec: {containers: []}},
  {metadata: {name: e-gated}, spec: {schedulingGates: [{name: wait}], containers: []}},
  {metadata: {name: f-done}, spec: {nodeName: one, containers: []}, status: {phase: Succeeded}},
  {metadata: {name: g-failed}, spec: {nodeName: one, containers: []}, status: {phase: Failed}},
  {metadata: {name: h-nominated}, spec: {containers: []}, status: {nominatedNodeName: one, startTime: '2026-11-16T12:00:00Z'}},
  {metadata: {name: i-lost}, spec: {nodeName: two, containers: []}},
  {metadata: {generateName: j-}, spec: {containers: []}},
]}";
    let taken = taken(text, &Options::default());
    let pods: Vec<_> = taken.snapshot.pods.iter().map(|pod| (&*pod.name, pod.state, pod.node.is_some())).collect();
    let expected = [
        ("a-pending", PodState::Pending, false),
        ("b-bound", PodState::Bound, true),
        ("c-ending", PodState::Terminating, true),
        ("e-gated", PodState::Gated, false),
        ("h-nominated", PodState::Pending, true),
        ("j-00007", PodState::Pending, false),
    ];
    assert_eq!(pods, expected);
    assert_eq!(taken.snapshot.pods[4].started, Some(1_794_830_400));
    let notes: Vec<_> = taken.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["1 pod is left out because of nodes that are missing"]);
}

#[test]
fn default_spread_counts_pods_of_the_same_owner() {
    let text = format!(
        "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: web, namespace: shop}}, spec: {{replicas: 0, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: []}}}}}}}}\n---\n{}",
        pod("labels: {app: web}, ownerReferences: [{kind: ReplicaSet, name: web, uid: u, controller: true}]", "")
    );
    assert_eq!(only_class(&snapshot(&text)).spread, []);
    let options = Options { default_spread: DefaultSpread::system(), ..Options::default() };
    let snapshot = taken(&text, &options).snapshot;
    let spread = &only_class(&snapshot).spread;
    let words: Vec<_> = spread
        .iter()
        .map(|it| (snapshot.text(it.key), it.max_skew, it.hard, words(it.selector.as_ref().unwrap(), &snapshot)))
        .collect();
    assert_eq!(
        words,
        [
            ("kubernetes.io/hostname", 3, false, "app In [web]".to_owned()),
            ("topology.kubernetes.io/zone", 5, false, "app In [web]".to_owned())
        ]
    );
    // This one has no controller.
    assert_eq!(only_class(&taken(&pod("labels: {app: web}", ""), &options).snapshot).spread, []);
}

#[test]
fn what_cannot_be_is_refused() {
    for (spec, expected) in [
        (
            "tolerations: [{key: '', operator: Equal}]",
            "field `spec.tolerations[0]`: an empty key goes with the operator Exists only",
        ),
        (
            "tolerations: [{key: a, operator: Gt, value: x}]",
            "field `spec.tolerations[0].value`: `x` is not a whole number",
        ),
        (
            "tolerations: [{key: a, operator: Like}]",
            "field `spec.tolerations[0].operator`: `Like` is not one of Exists, Equal, Gt, Lt",
        ),
        (
            "topologySpreadConstraints: [{topologyKey: a, maxSkew: 0, whenUnsatisfiable: DoNotSchedule}]",
            "field `spec.topologySpreadConstraints[0].maxSkew`: `0` is not above zero",
        ),
        (
            "topologySpreadConstraints: [{topologyKey: a, maxSkew: 1}]",
            "field `spec.topologySpreadConstraints[0].whenUnsatisfiable`: is missing",
        ),
        (
            "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}",
            "field `spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight`: `101` is not from 1 to 100",
        ),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gte, values: ['1']}]}]}}}",
            "field `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator`: `Gte` is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
        ),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}",
            "field `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values`: In needs at least one value",
        ),
        (
            "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}}",
            "field `spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey`: is missing",
        ),
    ] {
        let all = errors(&pod("", spec));
        assert!(all.len() == 1 && all[0].ends_with(expected), "{spec}: {all:?}");
    }
}
