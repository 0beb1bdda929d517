//! How long lowering takes: `cargo run --release -p millpond-state --example lower -- 100000`.
//!
//! Makes so many pods of a few hundred ReplicaSets as the JSON that `kubectl get pods -A -o json` has, then reads
//! them, takes a snapshot, applies the same again, and prints the seconds of each.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example measures and prints")]

use std::fmt::Write as _;
use std::time::Instant;

use millpond_state::{Options, Reader};

/// Pods of one ReplicaSet.
const PODS_OF_A_SET: usize = 250;

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let text = pods(count);
    println!("{count} pods, {} bytes, {} each", text.len(), text.len() / count.max(1));

    let start = Instant::now();
    let mut reader = Reader::new();
    reader.add("pods.json", text.as_bytes());
    let reading = reader.finish();
    let read = start.elapsed();
    assert!(reading.errors.is_empty(), "{:?}", reading.errors.first());
    println!("read and lowered in {:.3} s ({} pods lowered)", read.as_secs_f64(), reading.state.lowered());

    let start = Instant::now();
    let taken = reading.state.snapshot(0, &Options { default_pool: true, ..Options::default() });
    let snapshot = start.elapsed();
    let (pods, classes) = (taken.snapshot.pods.len(), taken.snapshot.classes.len());
    println!("snapshot of {pods} pods in {classes} classes in {:.3} s", snapshot.as_secs_f64());
    println!("together {:.3} s", (read + snapshot).as_secs_f64());
}

/// A list of pods as the API server writes them.
fn pods(count: usize) -> String {
    let mut text = String::with_capacity(count * 2600 + 100);
    text.push_str(r#"{"apiVersion":"v1","items":["#);
    for index in 0..count {
        if index > 0 {
            text.push(',');
        }
        pod(index, &mut text);
    }
    text.push_str(r#"],"kind":"List","metadata":{"resourceVersion":""}}"#);
    text
}

fn pod(index: usize, text: &mut String) {
    let set = index / PODS_OF_A_SET;
    let (cpu, memory) = (50 + 25 * (set % 40), 64 << (set % 6));
    let hash = format!("{:08x}", (set as u64).wrapping_mul(0x9e37_79b9) & 0xffff_ffff);
    let name = format!("service-{set}-{hash}-{index:06}");
    let _ = write!(
        text,
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"annotations":{{"kubectl.kubernetes.io/restartedAt":"2026-11-01T10:00:00Z","prometheus.io/scrape":"true","note":"with \"quotes\" in it"}},"creationTimestamp":"2026-11-16T04:00:00Z","generateName":"service-{set}-{hash}-","labels":{{"app.kubernetes.io/name":"service-{set}","app.kubernetes.io/part-of":"shop","pod-template-hash":"{hash}","tier":"t{tier}"}},"name":"{name}","namespace":"team-{team}","ownerReferences":[{{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"service-{set}-{hash}","uid":"4b2f6a1e-0000-4000-8000-{set:012}"}}],"resourceVersion":"{version}","uid":"7c9e6679-7425-40de-944b-{index:012}"}},"#,
        tier = set % 3,
        team = set % 20,
        version = 1000 + index,
    );
    let _ = write!(
        text,
        r#""spec":{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{{"matchExpressions":[{{"key":"kubernetes.io/arch","operator":"In","values":["amd64","arm64"]}}]}}]}}}}}},"containers":[{{"env":[{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.name"}}}}}},{{"name":"LOG_LEVEL","value":"info"}}],"image":"registry.example.com/shop/service-{set}:1.{set}.0","imagePullPolicy":"IfNotPresent","livenessProbe":{{"failureThreshold":3,"httpGet":{{"path":"/healthz","port":8080,"scheme":"HTTP"}},"periodSeconds":10,"successThreshold":1,"timeoutSeconds":1}},"name":"app","ports":[{{"containerPort":8080,"name":"http","protocol":"TCP"}}],"resources":{{"limits":{{"memory":"{memory}Mi"}},"requests":{{"cpu":"{cpu}m","memory":"{memory}Mi"}}}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","volumeMounts":[{{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kube-api-access-{index:05}","readOnly":true}}]}}],"dnsPolicy":"ClusterFirst","enableServiceLinks":true,"nodeSelector":{{"kubernetes.io/os":"linux"}},"preemptionPolicy":"PreemptLowerPriority","priority":0,"restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{{}},"serviceAccount":"default","serviceAccountName":"default","terminationGracePeriodSeconds":30,"tolerations":[{{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300}},{{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":300}}],"topologySpreadConstraints":[{{"labelSelector":{{"matchLabels":{{"app.kubernetes.io/name":"service-{set}"}}}},"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway"}}],"volumes":[{{"name":"kube-api-access-{index:05}","projected":{{"defaultMode":420,"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"items":[{{"key":"ca.crt","path":"ca.crt"}}],"name":"kube-root-ca.crt"}}}}]}}}}]}},"status":{{"conditions":[{{"lastProbeTime":null,"lastTransitionTime":"2026-11-16T04:00:00Z","message":"0/10 nodes are available: 10 Insufficient cpu.","reason":"Unschedulable","status":"False","type":"PodScheduled"}}],"phase":"Pending","qosClass":"Burstable"}}}}"#,
    );
}
