//! `sa.gardener.cloud`: ScalingConstraint, ScalingAdvice and ScalingFeedback.
//!
//! The Scaling Advisor's own short names `sc` and `sa` are those of StorageClasses and ServiceAccounts, of which
//! kubectl would then warn; they are longer here.

use super::definition::{AGE, Definition, READY, column};
use super::parts::{VALUE, conditions, count, duration, namespaced_name, quantities, taints};
use super::schema::{Schema, int32, int64, list, map, object, string};
use crate::scaling_advisor::{ScalingAdvice, ScalingConstraint, ScalingFeedback};

pub(super) fn definitions() -> Vec<Definition> {
    vec![constraint(), advice(), feedback()]
}

fn constraint() -> Definition {
    let spec = object("What may be chosen")
        .field("consumerID", string("Consumer of the advice; other consumers may ignore it"))
        .field("defaultBackoffPolicy", backoff())
        .field("scaleInPolicy", scale_in_policy())
        .field("nodePools", list("Pools to choose from", pool()).keyed_by("name").max_items(500));
    let status = object("Observed state").field("conditions", conditions(true));
    Definition::of::<ScalingConstraint>("What advice may choose from: pools of nodes in zones", spec)
        .status(status)
        .short_names(&["sconstraint"])
        .categories(&["scaling-advisor"])
        .columns(vec![
            column("Consumer", "string", ".spec.consumerID", "Consumer of the advice"),
            column("Ready", "string", READY, "Whether advice can be given"),
            AGE,
        ])
}

fn backoff() -> Schema {
    object("How long an instance type is left alone in a zone where it could not be had")
        .required("initialBackoff", duration("Backoff after the first failure"))
        .required("maxBackoff", duration("Longest backoff; every further failure doubles the backoff"))
        .rule_at(
            ".maxBackoff",
            "duration(self.initialBackoff) <= duration(self.maxBackoff)",
            "'maxBackoff' is shorter than 'initialBackoff'",
        )
}

fn scale_in_policy() -> Schema {
    object("How nodes leave; there is nothing to set yet")
}

fn pool() -> Schema {
    object("A pool: every template in every zone")
        .required("name", string("Its name").length(1, 63))
        .required("region", string("Its region").not_empty())
        .required("availabilityZones", list("Its zones", string("").not_empty()).min_items(1))
        .required("nodeTemplates", list("The nodes that it can have", node_template()).min_items(1))
        .required("priority", int32("Pools of greater priority are used first").at_least(0).default(0))
        .field("labels", map("Labels of its nodes", string("").length(0, 63).pattern(VALUE)))
        .field("annotations", map("Annotations of its nodes", string("")))
        .field("taints", taints("Taints of its nodes"))
        .field("quota", quantities("What its nodes may add up to; `nodes` counts them"))
        .field("min", count("Nodes that it never goes below"))
        .field("scaleInPolicy", scale_in_policy())
        .field("defaultBackoffPolicy", backoff())
}

fn node_template() -> Schema {
    object("A kind of node")
        .required("name", string("Its name").not_empty())
        .required("architecture", string("amd64 or arm64"))
        .required("instanceType", string("Its instance type").not_empty())
        .required("capacity", quantities("All that the machine has"))
        .field("kubeReservedCapacity", quantities("What is kept for kubelet"))
        .field("systemReservedCapacity", quantities("Resources reserved for the operating system"))
        .field("maxVolumes", count("Volumes that can be attached; no limit without it"))
        .required(
            "priority",
            int32("Templates of greater priority come first within their pool").at_least(0).default(0),
        )
}

fn advice() -> Definition {
    let out = placement("Nodes of one template in one zone")
        .required("currentReplicas", int32("Number of replicas"))
        .required("delta", int32("How many should come"));
    let out = object("What should come")
        .required("items", list("Nodes by template and zone", out))
        .field("unsatisfiedPodNames", list("Pods, as namespace/name, that have no place even so", string("")));
    let inward = placement("A node that should go").required("nodeName", string("Its name"));
    let inward = object("What should go").required("items", list("Nodes", inward));
    let spec = object("The advice")
        .required("constraintRef", namespaced_name("The constraint that it follows"))
        .field("scaleOutPlan", out)
        .field("scaleInPlan", inward);
    let result = object("What came of a template in a zone")
        .required("nodePoolName", string("The pool"))
        .required("nodeTemplateName", string("The template"))
        .required("availabilityZone", string("The zone"))
        .required("scheduledPodNames", list("Pods that have a place there", string("")))
        .required("nodeScore", int64("How good it is; the greater the better"))
        .required("numUnscheduledPods", int32("Pods that have no place there"));
    let diagnostic = object("What was tried; only if the constraint asks for it")
        .required("traceLogName", string("Where to read more"))
        .required("simRunResults", list("Each template in each zone", result));
    let status = object("How it was found").field("diagnostic", diagnostic).field("conditions", conditions(true));
    Definition::of::<ScalingAdvice>("Which nodes should come and which should go", spec)
        .status(status)
        .short_names(&["sadvice"])
        .categories(&["scaling-advisor"])
        .columns(vec![
            column("Constraint", "string", ".spec.constraintRef.name", "The constraint that it follows"),
            AGE,
        ])
}

fn placement(description: &str) -> Schema {
    object(description)
        .required("poolName", string("The pool"))
        .required("templateName", string("The template"))
        .required("instanceType", string("The instance type"))
        .required("region", string("The region"))
        .required("availabilityZone", string("The zone"))
}

fn feedback() -> Definition {
    let out = object("Nodes of one type in one zone that did not come")
        .required("availabilityZone", string("The zone").not_empty())
        .required("instanceType", string("The instance type").not_empty())
        .required("errorType", string("Why").one_of(&["ResourceExhaustedError", "CreationTimeoutError"]))
        .required("failCount", count("How many"));
    let inward = object("Nodes that did not go").required("nodeNames", list("Their names", string("")));
    let spec = object("What could not be done")
        .required("constraintRef", namespaced_name("The constraint that it is about"))
        .field("scaleOutErrorInfos", list("Nodes that did not come", out))
        .field("scaleInErrorInfo", inward);
    Definition::of::<ScalingFeedback>("What the consumer of advice could not do", spec)
        .short_names(&["sfeedback"])
        .categories(&["scaling-advisor"])
        .columns(vec![
            column("Constraint", "string", ".spec.constraintRef.name", "The constraint that it is about"),
            AGE,
        ])
}
