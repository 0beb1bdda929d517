//! Input that cannot be converted, and the messages about it.

use super::super::{ConvertError, Input, Settings, Target, convert};
use super::{aws, input, values};
use crate::catalog::built_in;

fn error(text: &str, target: Target) -> ConvertError {
    convert(&input(text), target, &Settings::new(aws())).unwrap_err()
}

#[test]
fn no_pool_is_an_error_that_knows_what_was_there() {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: y}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: b}}";
    assert!(matches!(error(text, Target::Millpond), ConvertError::NoPools));
    assert_eq!(input(text).others(), ["Pod", "ConfigMap"]);
    assert!(matches!(error("{pods: []}", Target::Millpond), ConvertError::NoPools));
}

#[test]
fn an_unknown_catalogue_is_named_with_one_like_it() {
    let text = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: small}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: millpond.dev, kind: NodeClass, name: a}}}}
---
{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {name: a}, spec: {catalog: awss}}";
    let error = error(text, Target::ScalingAdvisor);
    assert_eq!(
        error.to_string(),
        "NodeClass/a names the catalogue `awss`, which is neither here nor one that comes with Millpond"
    );
    assert!(matches!(error, ConvertError::UnknownCatalog { near: Some(near), .. } if near == "aws"));
}

#[test]
fn too_many_types_for_a_config_map_are_an_error() {
    let text = "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: all}, spec: {template: {spec: {requirements: [], nodeClassRef: {group: millpond.dev, kind: NodeClass, name: a}}}}}";
    for target in [Target::ClusterAutoscaler, Target::Kwok] {
        let error = error(text, target).to_string();
        assert!(error.ends_with("bytes: Kubernetes takes no ConfigMap of more than 1048576"), "{error}");
    }
}

#[test]
fn broken_texts_within_objects_have_their_place() {
    let told = |data: &str| {
        let text =
            format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: kwok-provider-templates}}, data: {data}}}");
        Input::gather(values(&text)).unwrap_err().to_string()
    };
    assert!(
        told("{templates: \"a: [\"}").starts_with("ConfigMap/kwok-provider-templates data.templates cannot be read: ")
    );
    let amount = told("{templates: \"kind: Node\\nstatus: {capacity: {cpu: x}}\"}");
    assert!(amount.contains("is not a quantity"), "{amount}");
    let priorities = "{apiVersion: v1, kind: ConfigMap, metadata: {name: cluster-autoscaler-priority-expander}, data: {priorities: \"high: [a]\"}}";
    let error = Input::gather(values(priorities)).unwrap_err().to_string();
    assert_eq!(
        error,
        "ConfigMap/cluster-autoscaler-priority-expander data.priorities cannot be read: `high` is no priority"
    );
}

#[test]
fn all_catalogues_convert_to_everything() {
    for name in ["aws", "gcp", "kwok", "fake"] {
        let text = format!(
            "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: all}}
spec: {{template: {{spec: {{requirements: [], nodeClassRef: {{group: millpond.dev, kind: NodeClass, name: a}}}}}}}}
---
{{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {{name: a}}, spec: {{catalog: {name}}}}}"
        );
        for target in Target::ALL {
            let settings = Settings { most_types: Some(30), ..Settings::new(built_in(name).unwrap()) };
            let made = convert(&input(&text), target, &settings).unwrap();
            // What one side wrote, the others read.
            let again = Input::gather(made.objects).unwrap();
            convert(&again, Target::ScalingAdvisor, &settings).unwrap();
        }
    }
}
