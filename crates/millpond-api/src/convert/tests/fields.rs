//! The table covers every field of every kind.

use super::super::report::Report;
use super::super::table::{self, Source, Verdict};
use super::super::{Action, Target};
use super::{CONSTRAINT, values};

/// A NodePool with everything that one can have.
const NODE_POOL: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: a, labels: {a: b}, annotations: {a: b}, uid: x, resourceVersion: "1", generation: 2, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  weight: 3
  replicas: 0
  limits: {cpu: 10}
  disruption: {consolidateAfter: 5m, consolidationPolicy: WhenEmpty, budgets: [{nodes: "1"}]}
  template:
    metadata: {labels: {x: y}, annotations: {x: y}}
    spec:
      requirements: [{key: a, operator: Exists}]
      taints: [{key: a, effect: NoSchedule}]
      startupTaints: [{key: b, effect: NoSchedule}]
      nodeClassRef: {group: g, kind: k, name: n}
      expireAfter: 5h
      terminationGracePeriod: 5m
status: {nodes: 3}
"#;

const NODE_CLASS: &str = "
apiVersion: millpond.dev/v1alpha1
kind: NodeClass
metadata: {name: a}
spec:
  provider: sim
  catalog: aws
  overlays: [half]
  kubelet: {maxPods: 3, podsPerCore: 4, systemReserved: {cpu: 1}, kubeReserved: {cpu: 1}}
  backoff: {initial: 1m, max: 2m}
  sim: {registrationDelay: 3s, seed: 7}
";

fn entries(source: Source, text: &str, target: Target) -> Vec<(String, String)> {
    let mut report = Report::default();
    for object in values(text) {
        table::drops(source, "x", &object, target, &mut report);
    }
    assert!(report.entries.iter().all(|entry| entry.action == Action::Dropped));
    report.entries.into_iter().map(|entry| (entry.field, entry.reason)).collect()
}

#[test]
fn the_table_speaks_of_every_field() {
    for (source, text) in
        [(Source::Constraint, CONSTRAINT), (Source::NodePool, NODE_POOL), (Source::NodeClass, NODE_CLASS)]
    {
        for target in Target::ALL {
            let unspoken: Vec<_> = entries(source, text, target)
                .into_iter()
                .filter(|(_, reason)| reason.ends_with("nothing like it"))
                .collect();
            assert_eq!(unspoken, [], "{source:?} to {target:?}");
        }
    }
}

#[test]
fn what_the_table_does_not_speak_of_is_reported_where_it_begins() {
    let text = "{apiVersion: a, kind: b, metadata: {name: x, zzz: 1}, spec: {weight: 1, future: {a: [1, 2]}, template: {spec: {x: y, z: {}}}}}";
    let found = entries(Source::NodePool, text, Target::ScalingAdvisor);
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["metadata.zzz", "spec.future", "spec.template.spec.x"]);
    assert!(found.iter().all(|(_, reason)| reason == "Scaling Advisor has nothing like it"));
}

#[test]
fn a_part_has_the_reason_of_its_whole() {
    let found = entries(Source::NodeClass, NODE_CLASS, Target::Kwok);
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["spec.backoff", "spec.overlays", "spec.provider", "spec.sim.seed"]);
    assert_eq!(found[3].1, "the faults of Millpond's simulated cloud");
}

#[test]
fn a_pool_of_no_nodes_is_a_pool_of_a_fixed_size() {
    let found = entries(Source::NodePool, NODE_POOL, Target::ScalingAdvisor);
    assert!(found.iter().any(|(field, _)| field == "spec.replicas"));
}

#[test]
fn every_row_is_there_once_and_its_own_kind_is_kept() {
    for source in Source::ALL {
        let mut fields: Vec<&str> = source.rows().iter().map(|row| row.field).collect();
        let count = fields.len();
        fields.sort_unstable();
        fields.dedup();
        assert_eq!(fields.len(), count, "{source:?}");
    }
    let kept =
        |source: Source, target: Target| source.rows().iter().all(|row| !matches!(row.to(target), Verdict::Dropped(_)));
    assert!(kept(Source::NodePool, Target::Millpond) && kept(Source::NodeClass, Target::Millpond));
    assert!(kept(Source::Constraint, Target::ScalingAdvisor) && kept(Source::TemplateNode, Target::ClusterAutoscaler));
}
