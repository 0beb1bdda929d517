//! Node groups of Cluster API: MachineDeployments with their machines, templates and nodes.

use millpond_plan::model::{CPU, MEMORY, Node, NodeState, PODS, Pool, Snapshot};
use millpond_plan::plan::Settings;
use millpond_plan::requirement::Requirement;
use millpond_state::groups::{Discovery, GroupKind, GroupRef, Held, NodeGroups, Use};
use millpond_state::{Options, Taken};

use crate::support::{NOW, taken, words};

/// Seed 004's pools as they are, annotated as it says.
const BOUNDS: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: '0', cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: '5'";
const CAPACITY: &str =
    "capacity.cluster-autoscaler.kubernetes.io/cpu: '4', capacity.cluster-autoscaler.kubernetes.io/memory: 16Gi";

fn deployment(name: &str, annotations: &str, replicas: u32, template: &str) -> String {
    format!(
        "{{apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineDeployment, metadata: {{name: {name}, namespace: default, labels: {{cluster-autoscaler-enabled: 'true'}}, annotations: {{{annotations}}}}}, spec: {{clusterName: c, replicas: {replicas}, template: {{{template}}}}}}}\n---\n"
    )
}

fn machine(name: &str, group: &str, metadata: &str, status: &str) -> String {
    format!(
        "{{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {{name: {name}, namespace: default, creationTimestamp: '2026-11-16T11:59:00Z', labels: {{cluster.x-k8s.io/deployment-name: {group}, cluster.x-k8s.io/set-name: {group}-1}}, {metadata}}}, spec: {{clusterName: c}}, status: {{{status}}}}}\n---\n"
    )
}

fn node(name: &str, metadata: &str, status: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, creationTimestamp: '2026-11-16T11:00:00Z', {metadata}}}, status: {{capacity: {{cpu: '4', memory: 16Gi, pods: '110'}}, allocatable: {{cpu: 3800m, memory: 15Gi, pods: '110'}}, conditions: [{{type: Ready, status: 'True'}}], {status}}}}}\n---\n"
    )
}

fn pod(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, uid: {name}}}, spec: {{{spec}, containers: [{{name: c, resources: {{requests: {{cpu: '2', memory: 1Gi}}}}}}]}}}}\n---\n"
    )
}

fn notes(taken: &Taken) -> Vec<String> {
    taken.notes.iter().map(ToString::to_string).collect()
}

fn lowered(text: &str) -> Snapshot {
    taken(text, &Options::default()).snapshot
}

fn pool<'s>(snapshot: &'s Snapshot, name: &str) -> &'s Pool {
    let found = snapshot.find_pool(name).unwrap_or_else(|| panic!("no pool {name}"));
    &snapshot.pools[found.index()]
}

fn nodes(snapshot: &Snapshot, state: NodeState) -> Vec<&Node> {
    snapshot.nodes.iter().filter(|node| node.state == state).collect()
}

/// Plans, and says how many nodes each pool gets; the plan is checked from first principles.
fn planned(snapshot: &Snapshot) -> Vec<(String, usize)> {
    let outcome = millpond_plan::plan(snapshot, &Settings::default());
    let violations = millpond_plan::check::check(snapshot, &outcome);
    assert!(violations.is_empty(), "{violations:?}");
    let mut counts = std::collections::BTreeMap::new();
    for node in &outcome.plan.new_nodes {
        *counts.entry(snapshot.pools[node.pool.index()].name.clone()).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

#[test]
fn a_group_is_a_pool_of_one_type() {
    let annotations = format!(
        "{BOUNDS}, {CAPACITY}, capacity.cluster-autoscaler.kubernetes.io/labels: 'team=a', capacity.cluster-autoscaler.kubernetes.io/taints: 'gpu=true:NoSchedule', millpond.dev/weight: '7', millpond.dev/price-per-hour: '0.5'"
    );
    let snapshot = lowered(&deployment("workers", &annotations, 0, "metadata: {}, spec: {}"));
    let group = pool(&snapshot, "default/workers");
    assert_eq!((group.weight, group.limits.nodes, group.taints.len(), &group.not_ready), (7, Some(5), 1, &None));
    let of = &snapshot.types[group.types[0].index()];
    assert_eq!((group.types.len(), of.offerings.len(), of.offerings[0].price), (1, 1, 500_000_000));
    // Three per cent of memory and 100 MiB are the kernel's and kubelet's own.
    assert_eq!((of.capacity.get(CPU), of.allocatable.get(CPU), of.allocatable.get(PODS)), (4000, 4000, 110));
    let memory: i64 = 16 << 30;
    assert_eq!(of.allocatable.get(MEMORY), memory - memory / 1000 * 30 - (100 << 20));
    let team = snapshot.symbols.find("team").unwrap();
    assert_eq!(of.labels.get(team).and_then(Requirement::only_value).map(|it| snapshot.text(it)), Some("a"));
}

#[test]
fn reservations_of_the_kubelet_are_subtracted() {
    let template = "metadata: {}, spec: {bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: k}}, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: VSphereMachineTemplate, name: v}}";
    let templates = "
{apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, metadata: {name: k, namespace: default}, spec: {template: {spec: {joinConfiguration: {nodeRegistration: {kubeletExtraArgs: {kube-reserved: 'cpu=200m,memory=500Mi', eviction-hard: 'memory.available<0', node-labels: 'pool=big', max-pods: '30'}}}}}}}
---
{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: VSphereMachineTemplate, metadata: {name: v, namespace: default}, spec: {template: {spec: {numCPUs: 8, memoryMiB: 16384, network: {devices: []}}}}}
---
";
    let snapshot = lowered(&format!("{templates}{}", deployment("workers", BOUNDS, 0, template)));
    let of = &snapshot.types[pool(&snapshot, "default/workers").types[0].index()];
    let memory: i64 = 16 << 30;
    assert_eq!((of.allocatable.get(CPU), of.allocatable.get(PODS)), (7800, 30));
    assert_eq!(of.allocatable.get(MEMORY), memory - memory / 1000 * 30 - (500 << 20));
    let label = snapshot.symbols.find("pool").unwrap();
    assert_eq!(of.labels.get(label).and_then(Requirement::only_value).map(|it| snapshot.text(it)), Some("big"));
}

#[test]
fn nodes_belong_to_the_group_of_their_machine() {
    let text = [
        deployment("workers", &format!("{BOUNDS}, {CAPACITY}"), 5, "metadata: {}, spec: {}"),
        machine("m1", "workers", "", "nodeRef: {name: n1}, phase: Running"),
        machine("m2", "workers", "", "phase: Running"),
        machine("m3", "workers", "", "phase: Provisioning"),
        machine("m4", "workers", "", "phase: Failed, failureReason: CreateError"),
        node("n1", "", ""),
        node("n2", "annotations: {cluster.x-k8s.io/machine: m2, cluster.x-k8s.io/cluster-namespace: default}", ""),
        node("n3", "", ""),
    ];
    let snapshot = lowered(&text.concat());
    let group = snapshot.find_pool("default/workers");
    let members: Vec<&str> =
        nodes(&snapshot, NodeState::Running).iter().filter(|it| it.pool == group).map(|it| it.name.as_str()).collect();
    assert_eq!(members, ["n1", "n2"]);
    // One machine without a node, and one replica without a machine; the one that failed is nothing.
    let starting = nodes(&snapshot, NodeState::Starting);
    let names: Vec<&str> = starting.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["default/workers-00001", "m3"]);
    // What a node really has says more than annotations.
    assert_eq!(words(&starting[1].allocatable, &snapshot).split(' ').next(), Some("cpu=3800"));
    // Four are counted by the planner, and no more may come: five are wanted, five is the most.
    assert_eq!(pool(&snapshot, "default/workers").limits.nodes, Some(4));
}

#[test]
fn nothing_is_bought_twice_and_never_too_much() {
    let annotations = format!("{BOUNDS}, {CAPACITY}");
    let pods: String = (0..20).map(|number| pod(&format!("p{number}"), "nodeSelector: {}")).collect();
    // Two pods fit on a node: twenty need ten, the group has five at the most.
    let empty = format!("{}{pods}", deployment("workers", &annotations, 0, "metadata: {}, spec: {}"));
    assert_eq!(planned(&lowered(&empty)), [("default/workers".to_owned(), 5)]);
    let coming = format!("{}{pods}", deployment("workers", &annotations, 3, "metadata: {}, spec: {}"));
    assert_eq!(planned(&lowered(&coming)), [("default/workers".to_owned(), 2)]);
    let few: String = (0..4).map(|number| pod(&format!("p{number}"), "nodeSelector: {}")).collect();
    let enough = format!("{}{few}", deployment("workers", &annotations, 2, "metadata: {}, spec: {}"));
    assert_eq!(planned(&lowered(&enough)), []);
}

#[test]
fn the_cheapest_group_that_fits_is_chosen() {
    let group = |name: &str, more: &str| {
        deployment(name, &format!("{BOUNDS}, {CAPACITY}, {more}"), 0, "metadata: {}, spec: {}")
    };
    let one = pod("p", "nodeSelector: {}");
    let priced = |a: &str, b: &str| planned(&lowered(&format!("{}{}{one}", group("a", a), group("b", b))));
    let price = |dollars: &str| format!("millpond.dev/price-per-hour: '{dollars}'");
    assert_eq!(priced(&price("0.4"), &price("0.3")), [("default/b".to_owned(), 1)]);
    assert_eq!(priced(&price("0.2"), &price("0.3")), [("default/a".to_owned(), 1)]);
    let heavy = format!("{}, millpond.dev/weight: '1'", price("0.9"));
    assert_eq!(priced(&heavy, &price("0.3")), [("default/a".to_owned(), 1)], "weight comes before price");
    // Their price is unknown: GPUs are not for pods that ask for none.
    let gpu = "capacity.cluster-autoscaler.kubernetes.io/gpu-type: nvidia.com/gpu, capacity.cluster-autoscaler.kubernetes.io/gpu-count: '1'";
    assert_eq!(priced(gpu, ""), [("default/b".to_owned(), 1)]);
}

#[test]
fn pods_that_ask_for_labels_of_other_nodes_do_not_fit() {
    let group = deployment("workers", &format!("{BOUNDS}, {CAPACITY}"), 0, "metadata: {}, spec: {}");
    for selector in [
        "karpenter.sh/capacity-type: on-demand",
        "karpenter.sh/nodepool: default/workers",
        "topology.kubernetes.io/zone: ''",
    ] {
        let one = pod("p", &format!("nodeSelector: {{{selector}}}"));
        assert_eq!(planned(&lowered(&format!("{group}{one}"))), [], "{selector}");
    }
    let one = pod("p", "nodeSelector: {kubernetes.io/os: linux}");
    assert_eq!(planned(&lowered(&format!("{group}{one}"))), [("default/workers".to_owned(), 1)]);
}

#[test]
fn groups_that_rest_get_nothing() {
    let text = |metadata: &str, more: &str| {
        format!(
            "{}{more}",
            deployment("workers", &format!("{BOUNDS}, {CAPACITY}{metadata}"), 0, "metadata: {}, spec: {}")
        )
    };
    let reason = |text: &str, options: &Options| {
        let taken = taken(text, options);
        pool(&taken.snapshot, "default/workers").not_ready.clone()
    };
    let default = Options::default();
    assert_eq!(reason(&text("", ""), &default), None);
    assert_eq!(reason(&text(", cluster.x-k8s.io/paused: ''", ""), &default).as_deref(), Some("it is paused"));
    let paused = "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: c, namespace: default}, spec: {paused: true}}";
    assert_eq!(reason(&text("", paused), &default).as_deref(), Some("it is paused"));
    let of = GroupRef::new(GroupKind::MachineDeployment, "default", "workers");
    let held = [(of, Held { reason: "no more machines".to_owned(), stalled: false })].into();
    let options = Options { node_groups: NodeGroups { held, ..NodeGroups::default() }, ..Options::default() };
    assert_eq!(reason(&text("", ""), &options).as_deref(), Some("no more machines"));
    let options =
        Options { node_groups: NodeGroups { used: Use::Closed, ..NodeGroups::default() }, ..Options::default() };
    assert_eq!(reason(&text("", ""), &options).as_deref(), Some("others decide how many nodes it has"));
    let options =
        Options { node_groups: NodeGroups { used: Use::None, ..NodeGroups::default() }, ..Options::default() };
    assert!(taken(&text("", ""), &options).snapshot.pools.is_empty());
}

#[test]
fn a_group_of_unknown_size_says_so_until_a_node_was_seen() {
    let unknown = deployment("workers", BOUNDS, 0, "metadata: {}, spec: {}");
    let taken_ = taken(&unknown, &Options::default());
    let told = notes(&taken_);
    assert!(told.len() == 1 && told[0].contains("what its nodes offer is not known"), "{told:?}");
    let remembered = r#"millpond.dev/observed-node: '{"capacity":{"cpu":"4","memory":"16Gi"},"allocatable":{"cpu":"3900m","memory":"15Gi"},"labels":{"purpose":"gpu"}}'"#;
    let snapshot = lowered(&deployment("workers", &format!("{BOUNDS}, {remembered}"), 0, "metadata: {}, spec: {}"));
    let of = &snapshot.types[pool(&snapshot, "default/workers").types[0].index()];
    assert_eq!(of.allocatable.get(CPU), 3900);
    assert!(of.labels.get(snapshot.symbols.find("purpose").unwrap()).is_some());
}

#[test]
fn only_groups_that_are_found_are_scaled() {
    let text = format!(
        "{}{}{}",
        deployment("workers", &format!("{BOUNDS}, {CAPACITY}"), 1, "metadata: {}, spec: {}"),
        machine("m1", "workers", "", "nodeRef: {name: n1}"),
        node("n1", "", "")
    );
    let with = |discovery: &str| {
        let discovery = vec![discovery.parse::<Discovery>().unwrap()];
        let options = Options { node_groups: NodeGroups { discovery, ..NodeGroups::default() }, ..Options::default() };
        taken(&text, &options).snapshot
    };
    let found = with("clusterapi:namespace=default,clusterName=c,cluster-autoscaler-enabled=true");
    assert_eq!(
        (pool(&found, "default/workers").replicas, pool(&found, "default/workers").limits.nodes),
        (None, Some(5))
    );
    // Its nodes are here all the same: a pool of a fixed size.
    let other = with("clusterapi:namespace=other");
    assert_eq!(pool(&other, "default/workers").replicas, Some(1));
}

#[test]
fn misspelt_annotations_are_reported() {
    let misspelt = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-minsize: '0', cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: '5'";
    let text = format!(
        "{}{}{}",
        deployment("workers", misspelt, 1, "metadata: {}, spec: {}"),
        machine("m1", "workers", "", "nodeRef: {name: n1}"),
        node("n1", "", "")
    );
    let told = notes(&taken(&text, &Options::default()));
    assert!(
        told.iter()
            .any(|note| note.contains("is `cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size` meant?")),
        "{told:?}"
    );
    let wrong = BOUNDS.replace("'5'", "many");
    let taken = taken(&deployment("workers", &wrong, 1, "metadata: {}, spec: {}"), &Options::default());
    let not_ready = pool(&taken.snapshot, "default/workers").not_ready.clone().unwrap();
    assert!(not_ready.ends_with("`many` is not a whole number"), "{not_ready}");
}

#[test]
fn lives_of_group_nodes() {
    let state = |metadata: &str, created: &str, status: &str, machine_metadata: &str, replicas: u32| {
        let node = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n1, creationTimestamp: '{created}', {metadata}}}, status: {{capacity: {{cpu: '4', memory: 16Gi}}, {status}}}}}\n---\n"
        );
        let text = [
            deployment("workers", &format!("{BOUNDS}, {CAPACITY}"), replicas, "metadata: {}, spec: {}"),
            machine("m1", "workers", machine_metadata, "nodeRef: {name: n1}"),
            node,
        ];
        let snapshot = lowered(&text.concat());
        snapshot.nodes[snapshot.find_node("n1").unwrap().index()].state
    };
    let (ready, unready) =
        ("conditions: [{type: Ready, status: 'True'}]", "conditions: [{type: Ready, status: 'False'}]");
    let (young, old) = ("2026-11-16T11:55:00Z", "2026-11-16T11:00:00Z");
    assert_eq!(state("", old, ready, "", 1), NodeState::Running);
    assert_eq!(state("", young, unready, "", 1), NodeState::Starting);
    assert_eq!(state("", old, unready, "", 1), NodeState::Running, "it had its time to start");
    let deleted = "deletionTimestamp: '2026-11-16T11:59:30Z'";
    assert_eq!(state("", old, ready, deleted, 1), NodeState::Leaving);
    let marked = "annotations: {cluster.x-k8s.io/delete-machine: ''}";
    assert_eq!(state("", old, ready, marked, 1), NodeState::Running, "a mark alone removes nothing");
    assert_eq!(state("", old, ready, marked, 0), NodeState::Leaving);
    assert_eq!(NOW, 1_794_830_400);
}

#[test]
fn sets_and_pools_are_groups_too() {
    let of = |kind: &str, more: &str| {
        format!(
            "{{apiVersion: cluster.x-k8s.io/v1beta1, kind: {kind}, metadata: {{name: w, namespace: default, annotations: {{{BOUNDS}, {CAPACITY}}}, {more}}}, spec: {{clusterName: c, replicas: 0, template: {{spec: {{}}}}}}}}\n---\n"
        )
    };
    let owned = "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta1, kind: MachineDeployment, name: d, uid: u, controller: true}]";
    let names = |text: &str| -> Vec<String> { lowered(text).pools.iter().map(|pool| pool.name.clone()).collect() };
    assert_eq!(names(&of("MachineSet", "")), ["MachineSet/default/w"]);
    assert_eq!(names(&of("MachineSet", owned)), [""; 0], "its deployment is the group");
    assert_eq!(names(&of("MachinePool", "")), ["MachinePool/default/w"]);
}
