//! `autoscaling.x-k8s.io`: CapacityBuffer.

use super::definition::{AGE, Definition, column};
use super::parts::{conditions, count, quantities};
use super::schema::{Schema, int32, int64, object, string};
use crate::capacity_buffer::{ACTIVE_STRATEGY, CapacityBuffer};

pub(super) fn definitions() -> Vec<Definition> {
    vec![capacity_buffer()]
}

fn capacity_buffer() -> Definition {
    let scalable = object("Object of the namespace with a scale subresource; the buffer's pods are like its pods")
        .field("apiGroup", string("Its API group; empty for the core group"))
        .required("kind", string("Its kind, such as Deployment").not_empty())
        .required("name", string("Its name").not_empty());
    let spec = object("The pods that capacity is kept for, and their number")
        .field("podTemplateRef", pod_template("PodTemplate of the namespace; the buffer's pods are made from it"))
        .field("scalableRef", scalable)
        .field("replicas", count("Number of pods to keep capacity for; with percentage, the greater of the two"))
        .field("percentage", count("Percentage of scalableRef's replicas to keep capacity for, rounded up"))
        .field(
            "limits",
            quantities("Maximum of the pods' requests in total; without replicas and percentage, as many pods as fit"),
        )
        .field("provisioningStrategy", string("How the capacity is provided").default(ACTIVE_STRATEGY))
        .rule_at(
            ".podTemplateRef",
            "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
            "If podTemplateRef is set, replicas or limits must also be set",
        )
        .rule_at(
            ".scalableRef",
            "!(has(self.podTemplateRef) && has(self.scalableRef))",
            "You must define either PodTemplateRef or ScalableRef, but not both",
        );
    let status = object("Observed state")
        .field("podTemplateRef", pod_template("The template of the pods"))
        .field("podTemplateGeneration", int64("The generation of that template"))
        .field("provisioningStrategy", string("How the capacity is provided"))
        .field("replicas", int32("Number of pods that capacity is kept for"))
        .field("conditions", conditions(true));
    Definition::of::<CapacityBuffer>("Capacity that is kept free for future pods", spec)
        .status(status)
        .categories(&["autoscaling"])
        .short_names(&["cb"])
        .columns(vec![
            column("Strategy", "string", ".spec.provisioningStrategy", "How the capacity is provided"),
            column("PodTemplate", "string", ".status.podTemplateRef.name", "The template of the pods"),
            column("Replicas", "integer", ".status.replicas", "Number of pods that capacity is kept for"),
            column("ConditionsType", "string", ".status.conditions[*].type", "Its conditions"),
            column("ConditionsStatus", "string", ".status.conditions[*].status", "Whether they hold"),
            column("ConditionsReason", "string", ".status.conditions[*].reason", "Why"),
            AGE,
        ])
}

fn pod_template(description: &str) -> Schema {
    object(description).required("name", string("Its name").not_empty())
}
