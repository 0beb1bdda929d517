//! Snapshots of a cluster in which controllers act: they say what these do.

use millpond_plan::model::Snapshot;
use millpond_state::{Options, Reader};

use crate::support::{NOW, taken};

const CLASS: &str = "
{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {name: default}, spec: {provider: sim, catalog: kwok}}
---
";

fn pool(name: &str, requirements: &str, class: &str, status: &str) -> String {
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}, uid: u, labels: {{}}}}, spec: {{template: {{metadata: {{labels: {{team: {name}}}}}, spec: {{requirements: [{requirements}], nodeClassRef: {{{class}}}}}}}}}, status: {{conditions: [{status}]}}}}\n---\n"
    )
}

const OURS: &str = "group: millpond.dev, kind: NodeClass, name: default";

/// What a command makes of a cluster: the snapshot, and warnings.
fn live(text: &str) -> (Snapshot, Vec<String>) {
    let mut reader = Reader::of_cluster();
    reader.add("cluster", text.as_bytes());
    let reading = reader.finish();
    assert_eq!(reading.errors, [], "an object that is not valid is no reason to say nothing");
    let options = Options { default_pool: true, ..Options::default() }.of_cluster();
    let warnings = reading.warnings.iter().map(ToString::to_string).collect();
    (reading.state.snapshot(NOW, &options).snapshot, warnings)
}

fn not_ready(text: &str) -> String {
    let (snapshot, _) = live(text);
    assert_eq!(snapshot.pools.len(), 1);
    snapshot.pools[0].not_ready.clone().unwrap_or_default()
}

#[test]
fn no_pool_is_made_up_where_there_is_none() {
    assert_eq!(live(CLASS).0.pools.len(), 0);
    let files = taken(CLASS, &Options { default_pool: true, ..Options::default() });
    assert_eq!(files.snapshot.pools.len(), 1, "files may leave it out");
}

#[test]
fn a_class_that_is_missing_is_no_other_catalogue() {
    assert_eq!(not_ready(&pool("a", "", OURS, "")), "there is no node class `default`");
    assert_eq!(not_ready(&format!("{CLASS}{}", pool("a", "", OURS, ""))), "");
}

#[test]
fn pools_of_other_providers_need_their_controller() {
    let class = "group: karpenter.k8s.aws, kind: EC2NodeClass, name: default";
    let alone = "no controller that runs here launches nodes of class `EC2NodeClass.karpenter.k8s.aws/default`";
    assert_eq!(not_ready(&pool("a", "", class, "")), alone);
    let said = "{type: NodeClassReady, status: 'False', reason: NodeClassNotManaged, message: m}, {type: Ready, status: 'False', reason: UnhealthyDependents, message: x}";
    assert_eq!(not_ready(&pool("a", "", class, said)), alone);
    assert_eq!(not_ready(&pool("a", "", class, "{type: Ready, status: 'True', reason: Ready, message: ''}")), "");
    let refused = "{type: NodeClassReady, status: 'False', reason: NodeClassNotFound, message: gone}, {type: Ready, status: 'False', reason: UnhealthyDependents, message: x}";
    assert_eq!(not_ready(&pool("a", "", class, refused)), "its controller says so: gone");
}

#[test]
fn a_pool_whose_launches_fail_is_left_out_as_the_provisioner_leaves_it_out() {
    let failed = |reason: &str| {
        format!("{{type: Launchable, status: 'False', reason: {reason}, message: 'its last launch failed: denied'}}")
    };
    let text = |reason: &str| format!("{CLASS}{}", pool("a", "", OURS, &failed(reason)));
    assert_eq!(not_ready(&text("LaunchFailed")), "its last launch failed: denied");
    assert_eq!(not_ready(&text("LimitReached")), "", "limits are counted anew");
}

#[test]
fn a_pool_that_is_not_valid_is_shown_and_no_other_one_suffers() {
    let both = "{key: kubernetes.io/arch, operator: In, values: [arm64]}, {key: kubernetes.io/arch, operator: In, values: [amd64]}";
    let (snapshot, warnings) = live(&format!("{CLASS}{}{}", pool("bad", both, OURS, ""), pool("good", "", OURS, "")));
    let pools: Vec<(&str, Option<&str>)> =
        snapshot.pools.iter().map(|pool| (pool.name.as_str(), pool.not_ready.as_deref())).collect();
    let why = "it is not valid: spec.template.spec.requirements[1]: contradicts what the pool says about `kubernetes.io/arch` before: no value is left";
    assert_eq!(pools, [("good", None), ("bad", Some(why))]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    // Pods that ask for its nodes are told so.
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: web, uid: p}, spec: {nodeSelector: {team: bad}, containers: [{name: c}]}}\n";
    let (snapshot, _) = live(&format!("{CLASS}{}{}{pod}", pool("bad", both, OURS, ""), pool("good", "", OURS, "")));
    let outcome = millpond_plan::plan(&snapshot, &Default::default());
    let told = millpond_plan::explain::explain_in(&snapshot, &outcome, 0.into()).message;
    assert_eq!(told, format!("pool bad: not ready: {why}"));
}

#[test]
fn the_lowest_of_all_limits_of_the_cluster_holds() {
    let limits = |name: &str, spec: &str| {
        format!(
            "{{apiVersion: millpond.dev/v1alpha1, kind: ClusterLimits, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n---\n"
        )
    };
    let text = [
        limits("a", "limits: {cpu: 10, nodes: 7}, dollarsPerHour: '2.5'"),
        limits("b", "limits: {cpu: 20, memory: 1Gi, nodes: 5}"),
    ];
    let options = Options { limit_nodes: Some(6), ..Options::default() };
    let snapshot = taken(&text.concat(), &options).snapshot;
    let resources: Vec<(&str, i64)> =
        snapshot.limits.resources.iter().map(|(id, most)| (snapshot.resources.name(*id), *most)).collect();
    assert_eq!(resources, [("cpu", 10_000), ("memory", 1 << 30)]);
    assert_eq!((snapshot.limits.nodes, snapshot.limits.price), (Some(5), Some(2_500_000_000)));
}

/// What the consumer of advice could not get is out of stock for as long as the controller leaves it alone.
#[test]
fn feedback_says_what_is_out_of_stock() {
    let constraint = "
apiVersion: sa.gardener.cloud/v1alpha1
kind: ScalingConstraint
metadata: {name: shop, namespace: garden}
spec:
  defaultBackoffPolicy: {initialBackoff: 60s, maxBackoff: 90s}
  nodePools:
  - name: workers
    region: eu
    availabilityZones: [eu-a, eu-b]
    nodeTemplates: [{name: small, architecture: amd64, instanceType: small, capacity: {cpu: '2', memory: 4Gi}}]
---
";
    let feedback = |name: &str, ago: i64| {
        // Noon is `NOW`.
        let second = 12 * 3600 - ago;
        let time = format!("2026-11-16T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        format!(
            "{{apiVersion: sa.gardener.cloud/v1alpha1, kind: ScalingFeedback, metadata: {{name: {name}, namespace: garden, creationTimestamp: '{time}'}}, spec: {{constraintRef: {{name: shop}}, scaleOutErrorInfos: [{{availabilityZone: eu-a, instanceType: small, errorType: ResourceExhaustedError, failCount: 1}}]}}}}\n---\n"
        )
    };
    let missing = |feedbacks: &[(&str, i64)]| -> Vec<String> {
        let feedbacks: String = feedbacks.iter().map(|(name, ago)| feedback(name, *ago)).collect();
        let snapshot = taken(&format!("{constraint}{feedbacks}"), &Options::default()).snapshot;
        let all = snapshot.types.iter().flat_map(|of| &of.offerings);
        all.filter(|it| !it.available).map(|it| snapshot.text(it.zone).to_owned()).collect()
    };
    assert_eq!(missing(&[]), [""; 0]);
    assert_eq!(missing(&[("now", 59)]), ["eu-a"]);
    assert_eq!(missing(&[("long-ago", 60)]), [""; 0]);
    // A second failure in a row waits twice as long, and no longer than the longest wait.
    assert_eq!(missing(&[("first", 150), ("second", 89)]), ["eu-a"]);
    assert_eq!(missing(&[("first", 151), ("second", 90)]), [""; 0]);
    // Failures of the same moment tell one thing.
    assert_eq!(missing(&[("first", 61), ("with-it", 60)]), [""; 0]);
}
