//! What pods ask for, as kubelet counts it.

use crate::support::{only_class, snapshot, words};

/// The requests of a pod with this spec and status, in flow YAML.
fn requests(spec: &str, status: &str) -> String {
    let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{spec}}}, status: {{{status}}}}}");
    let snapshot = snapshot(&text);
    words(&only_class(&snapshot).requests, &snapshot)
}

fn container(requests: &str) -> String {
    format!("{{name: c, resources: {{requests: {{{requests}}}}}}}")
}

#[test]
fn containers_add_up_and_init_containers_take_turns() {
    let two = format!("containers: [{}, {}]", container("cpu: 100m, memory: 10Mi"), container("cpu: 200m"));
    assert_eq!(requests(&two, ""), "cpu=300 memory=10485760");
    let low = format!("{two}, initContainers: [{}, {}]", container("cpu: 250m"), container("memory: 5Mi"));
    assert_eq!(requests(&low, ""), "cpu=300 memory=10485760");
    let high = format!("{two}, initContainers: [{}, {}]", container("cpu: 1"), container("memory: 1Gi"));
    assert_eq!(requests(&high, ""), "cpu=1000 memory=1073741824");
}

/// The cases of the enhancement for sidecars (KEP 753).
#[test]
fn sidecars_count_from_their_start_on() {
    let sidecar = |cpu| format!("{{name: s, restartPolicy: Always, resources: {{requests: {{cpu: {cpu}}}}}}}");
    let init = |cpu| container(&format!("cpu: {cpu}"));
    let spec = |inits: &[String]| format!("containers: [{}], initContainers: [{}]", init(1), inits.join(", "));
    for (inits, expected) in [
        (vec![sidecar(2)], "cpu=3000"),
        (vec![init(5), sidecar(2)], "cpu=5000"),
        (vec![sidecar(2), init(5)], "cpu=7000"),
        (vec![sidecar(1), init(2), sidecar(1), init(3)], "cpu=5000"),
        (vec![init(1), sidecar(3), sidecar(3), init(1)], "cpu=7000"),
    ] {
        assert_eq!(requests(&spec(&inits), ""), expected, "{inits:?}");
    }
}

#[test]
fn a_limit_without_a_request_is_the_request() {
    let limits = "{name: c, resources: {limits: {cpu: 2, memory: 1Gi, nvidia.com/gpu: 1}, requests: {cpu: 500m}}}";
    assert_eq!(requests(&format!("containers: [{limits}]"), ""), "cpu=500 memory=1073741824 nvidia.com/gpu=1");
    let init = format!("containers: [{{name: c}}], initContainers: [{limits}]");
    assert_eq!(requests(&init, ""), "cpu=500 memory=1073741824 nvidia.com/gpu=1");
}

#[test]
fn overhead_is_added_at_the_end() {
    let init = container("cpu: 1");
    let spec = format!(
        "containers: [{}], initContainers: [{init}], overhead: {{cpu: 250m, memory: 120Mi}}",
        container("cpu: 1")
    );
    assert_eq!(requests(&spec, ""), "cpu=1250 memory=125829120");
}

#[test]
fn a_pod_can_ask_as_a_whole() {
    let one = container("cpu: 100m, memory: 100Mi, ephemeral-storage: 1Gi");
    let cases = [
        ("requests: {cpu: 2}", "cpu=2000 memory=104857600 ephemeral-storage=1073741824"),
        // Less than the containers ask for is refused by the API server, but counts where it stands.
        ("requests: {cpu: 50m}", "cpu=50 memory=104857600 ephemeral-storage=1073741824"),
        // A limit alone: the containers' sum where they ask for something, else the limit.
        ("limits: {cpu: 3}", "cpu=100 memory=104857600 ephemeral-storage=1073741824"),
        ("limits: {hugepages-2Mi: 4Mi}", "cpu=100 memory=104857600 ephemeral-storage=1073741824 hugepages-2Mi=4194304"),
        // Only cpu, memory and huge pages can be asked for as a whole.
        ("requests: {ephemeral-storage: 5Gi}", "cpu=100 memory=104857600 ephemeral-storage=1073741824"),
    ];
    for (whole, expected) in cases {
        assert_eq!(requests(&format!("containers: [{one}], resources: {{{whole}}}"), ""), expected, "{whole}");
    }
    let bare = "containers: [{name: c}], resources: {limits: {cpu: 3, memory: 1Gi}}, overhead: {cpu: 1}";
    assert_eq!(requests(bare, ""), "cpu=4000 memory=1073741824");
}

#[test]
fn a_resize_counts_as_the_greatest_of_asked_given_and_had() {
    let spec = format!("containers: [{}]", container("cpu: 1, memory: 1Gi"));
    let status = |had: &str, given: &str| {
        format!(
            "containerStatuses: [{{name: c, resources: {{requests: {{cpu: {had}}}}}, allocatedResources: {{cpu: {given}}}}}]"
        )
    };
    assert_eq!(requests(&spec, &status("500m", "500m")), "cpu=1000 memory=1073741824");
    assert_eq!(requests(&spec, &status("2", "500m")), "cpu=2000 memory=1073741824");
    assert_eq!(requests(&spec, &status("500m", "3")), "cpu=3000 memory=1073741824");
    let infeasible = "conditions: [{type: PodResizePending, status: 'True', reason: Infeasible}]";
    assert_eq!(requests(&spec, &format!("{}, {infeasible}", status("500m", "600m"))), "cpu=600");
    let deferred = infeasible.replace("Infeasible", "Deferred");
    assert_eq!(requests(&spec, &format!("{}, {deferred}", status("500m", "600m"))), "cpu=1000 memory=1073741824");
    // A status without resources says nothing.
    assert_eq!(
        requests(&spec, "containerStatuses: [{name: c, allocatedResources: {cpu: 9}}]"),
        "cpu=1000 memory=1073741824"
    );
    // The pod as a whole.
    let whole = "containers: [{name: c}], resources: {requests: {cpu: 1}}";
    let status = "resources: {requests: {cpu: 4}}, allocatedResources: {cpu: 2}";
    assert_eq!(requests(whole, status), "cpu=4000");
}

#[test]
fn every_pod_counts_as_one() {
    let snapshot = snapshot(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {pods: 5}}}]}}",
    );
    let pods: Vec<_> = only_class(&snapshot).requests.iter().collect();
    assert_eq!(pods, [(millpond_plan::model::PODS, 1)]);
}
