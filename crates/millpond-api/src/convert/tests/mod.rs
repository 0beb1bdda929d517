//! Conversions of small files, as people would read them; round trips; and that the table speaks of every field.

mod errors;
mod fields;
mod foreign;
mod pages;
mod round_trips;

use serde_json::Value;

use super::{Converted, Input, Settings, Target, convert};
use crate::catalog::{Catalog, built_in};

/// A constraint with everything that one can have.
pub(super) const CONSTRAINT: &str = "
apiVersion: sa.gardener.cloud/v1alpha1
kind: ScalingConstraint
metadata: {name: shop, namespace: garden, labels: {team: shop}}
spec:
  consumerID: gardener
  defaultBackoffPolicy: {initialBackoff: 1m, maxBackoff: 10m}
  scaleInPolicy: {}
  nodePools:
  - name: web
    region: us-east-1
    availabilityZones: [us-east-1a, us-east-1b]
    labels: {worker.gardener.cloud/pool: web, tier: front, karpenter.sh/odd: x}
    annotations: {note: kept}
    taints: [{key: team, value: shop, effect: NoSchedule}]
    quota: {cpu: 64, nodes: 5}
    priority: 250
    min: 1
    nodeTemplates:
    - name: large
      architecture: amd64
      instanceType: m5.large
      capacity: {cpu: 2, memory: 8Gi}
      kubeReservedCapacity: {cpu: 80m, memory: 1Gi}
      systemReservedCapacity: {memory: 100Mi}
      maxVolumes: 20
      priority: 2
    - name: xlarge
      architecture: amd64
      instanceType: m5.xlarge
      capacity: {cpu: 4, memory: 16Gi, pods: 50}
      kubeReservedCapacity: {cpu: 80m, memory: 1Gi}
      systemReservedCapacity: {memory: 100Mi}
      priority: 1
  - name: batch
    region: us-east-1
    availabilityZones: [us-east-1c]
    priority: 200
    nodeTemplates:
    - {name: large, architecture: amd64, instanceType: m5.large, capacity: {cpu: 2, memory: 8Gi, pods: 110, ephemeral-storage: 20Gi}}
    - {name: odd, architecture: arm64, instanceType: acme.9, capacity: {cpu: 4, memory: 4G}}
";

pub(super) fn aws() -> &'static Catalog {
    built_in("aws").unwrap()
}

pub(super) fn values(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

pub(super) fn input(text: &str) -> Input {
    Input::gather(values(text)).unwrap()
}

pub(super) fn converted(text: &str, target: Target) -> Converted {
    convert(&input(text), target, &Settings::new(aws())).unwrap()
}

/// Objects as YAML.
pub(super) fn yaml(objects: &[Value]) -> String {
    let documents = objects.iter().map(|object| serde_saphyr::to_string(object).unwrap().trim_end().to_owned());
    documents.collect::<Vec<_>>().join("\n---\n")
}

/// Objects and the report, as people see them.
pub(super) fn page(converted: &Converted) -> String {
    let entries: Vec<String> = converted.report.entries.iter().map(ToString::to_string).collect();
    format!("{}\n\n{}", yaml(&converted.objects), entries.join("\n"))
}
