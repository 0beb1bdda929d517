//! `autoscaling.x-k8s.io`: CapacityBuffer.

use super::definition::{AGE, Definition, column};
use super::parts::{conditions, count, quantities};
use super::schema::{Schema, int32, int64, object, string};
use crate::capacity_buffer::{ACTIVE_STRATEGY, CapacityBuffer};

pub(super) fn definitions() -> Vec<Definition> {
    vec![capacity_buffer()]
}

fn capacity_buffer() -> Definition {
    let scalable = object("The pods are like those of this object of the namespace, which can be scaled")
        .field("apiGroup", string("Its API group; empty for the core group"))
        .required("kind", string("Its kind, such as Deployment").not_empty())
        .required("name", string("Its name").not_empty());
    let spec = object("For which pods room is kept free, and for how many")
        .field("podTemplateRef", pod_template("The pods are of this PodTemplate of the namespace"))
        .field("scalableRef", scalable)
        .field("replicas", count("Room for so many pods; with percentage, the greater of the two"))
        .field("percentage", count("Room for so many of a hundred of the replicas of scalableRef, rounded up"))
        .field(
            "limits",
            quantities("What those pods may ask for together; without replicas and percentage, as many as fit"),
        )
        .field("provisioningStrategy", string("How the room is kept free").default(ACTIVE_STRATEGY))
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
    let status = object("What became of it")
        .field("podTemplateRef", pod_template("The template that the pods are of"))
        .field("podTemplateGeneration", int64("The generation of that template"))
        .field("provisioningStrategy", string("How the room is kept free"))
        .field("replicas", int32("How many pods there is room for"))
        .field("conditions", conditions(true));
    Definition::of::<CapacityBuffer>("Room that is kept free for pods that are still to come", spec)
        .status(status)
        .categories(&["autoscaling"])
        .short_names(&["cb"])
        .columns(vec![
            column("Strategy", "string", ".spec.provisioningStrategy", "How the room is kept free"),
            column("PodTemplate", "string", ".status.podTemplateRef.name", "The template that the pods are of"),
            column("Replicas", "integer", ".status.replicas", "How many pods there is room for"),
            column("ConditionsType", "string", ".status.conditions[*].type", "Its conditions"),
            column("ConditionsStatus", "string", ".status.conditions[*].status", "Whether they hold"),
            column("ConditionsReason", "string", ".status.conditions[*].reason", "Why"),
            AGE,
        ])
}

fn pod_template(description: &str) -> Schema {
    object(description).required("name", string("Its name").not_empty())
}
