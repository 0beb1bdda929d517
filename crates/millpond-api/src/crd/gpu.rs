//! `topology.corinternal.com`: GPUInfo; `millpond.dev`: MaintenanceWindow.

use super::definition::{AGE, Definition, READY, column, wide};
use super::parts::{KEY, VALUE, conditions, duration, time};
use super::schema::{Schema, boolean, int64, list, map, object, string};
use crate::gpu_info::{GPUInfo, MOST_GPUS, MOST_HOURS};
use crate::maintenance_window::MaintenanceWindow;

/// Entries of the lists of a status and of names in a spec.
const LIMIT_NODES: u32 = 1000;
/// Labels of a selector, taints that are tolerated.
const LIMIT_LABELS: u32 = 100;

pub(super) fn definitions() -> Vec<Definition> {
    vec![gpu_info(), maintenance_window()]
}

fn labels(description: &str) -> Schema {
    map(description, string("").length(0, 63).pattern(VALUE)).max_properties(LIMIT_LABELS)
}

fn toleration() -> Schema {
    object("A taint that the job tolerates")
        .field("key", string("Key of the taint; every key without it").length(0, 317).pattern(KEY))
        .field("operator", string("How the value is compared; Equal without it").one_of(&["Equal", "Exists"]))
        .field("value", string("Value of the taint").length(0, 63).pattern(VALUE))
        .field(
            "effect",
            string("Effect of the taint; every effect without it").one_of(&[
                "NoSchedule",
                "PreferNoSchedule",
                "NoExecute",
            ]),
        )
        .field("tolerationSeconds", int64("Accepted because tolerations of pods have it; ignored"))
        .rule_at(
            ".value",
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "operator 'Exists' takes no value",
        )
        .rule_at(
            ".operator",
            "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
            "operator must be 'Exists' where there is no key",
        )
}

fn gpu_info() -> Definition {
    let reserve = object("Keeps the GPUs for a pod with the label millpond.dev/gpuinfo")
        .field("gpus", int64("How many; as many as the job needs without it").at_least(1).at_most(MOST_GPUS))
        .required("ttl", duration("How long they wait for the pod"))
        .rule_at(".ttl", "duration(self.ttl) > duration('0s')", "ttl must be above zero");
    let needs_gpu = |field: &str| {
        let rule = format!("!has(self.{field}) || self.gpuRequired");
        let message = format!("'{field}' needs 'gpuRequired: true'");
        (format!(".{field}"), rule, message)
    };
    let spec = object("The job")
        .required("desAccTime", int64("Hours that the job must run").at_least(0).at_most(MOST_HOURS))
        .required("gpuRequired", boolean("Whether the job needs a GPU"))
        .field("gpuCount", int64("GPUs that the job needs; 1 without it").at_least(1).at_most(MOST_GPUS))
        .field(
            "gpuModel",
            string("Model of the GPUs: a name such as T4, or vendor and device such as 10de:1eb8").length(1, 128),
        )
        .field("minMemoryGiB", int64("The least memory of one GPU, in GiB").at_least(1).at_most(1 << 20))
        .field("nodeSelector", labels("Labels that a suitable node has"))
        .field("tolerations", list("Taints that the job tolerates", toleration()).max_items(LIMIT_LABELS))
        .field("reserve", reserve)
        .field("allowGpuNodes", boolean("Whether a job that needs no GPU may run on a node that has some"));
    let spec = ["gpuCount", "gpuModel", "minMemoryGiB", "reserve"].iter().fold(spec, |spec, field| {
        let (path, rule, message) = needs_gpu(field);
        spec.rule_at(&path, &rule, &message)
    });
    let spec = spec
        .rule_at(
            ".allowGpuNodes",
            "!has(self.allowGpuNodes) || !self.allowGpuNodes || !self.gpuRequired",
            "'allowGpuNodes' is for jobs with 'gpuRequired: false'",
        )
        .rule_at(
            ".reserve.gpus",
            "!has(self.reserve) || !has(self.reserve.gpus) || !has(self.gpuCount) || self.reserve.gpus == self.gpuCount",
            "'reserve.gpus' and 'gpuCount' must be equal: leave one of them out",
        );
    Definition::of::<GPUInfo>(
        "How long a job must run and whether it needs a GPU; the status names the node for it",
        spec,
    )
    .status(gpu_info_status())
    .short_names(&["gpu"])
    .columns(vec![
        column("Desired Access Time (Hrs)", "integer", ".spec.desAccTime", "Hours that the job must run"),
        column("GPU Required", "boolean", ".spec.gpuRequired", "Whether the job needs a GPU"),
        wide("Node", "string", ".status.suitableNodeName", "The node for the job"),
        wide("Host", "string", ".status.suitableHostName", "The host of that node"),
        wide("Hours", "integer", ".status.availableAcceleratorTime", "Hours until the node is disturbed"),
        wide("Ready", "string", READY, "Whether there is a node for the job"),
    ])
}

fn gpu_info_status() -> Schema {
    let candidate = object("A node that fits, with the parts of its score; less is better")
        .field("node", string("The node"))
        .field("host", string("Its host"))
        .field("cpuDemand", int64("CPU demand: the first part"))
        .field("gpusLeft", int64("Free GPUs that the job leaves over: the second part"))
        .field("fragments", boolean("Whether the job would break up a node whose GPUs are all free: the third part"))
        .field("availableHours", int64("Hours until the node is disturbed: the fourth part"))
        .field("assumed", boolean("Whether that time is only assumed"))
        .field("memory", int64("Memory in use, in MiB: the last part"));
    let rejected = object("A node that does not fit")
        .field("node", string("The node"))
        .field("reason", string("Why, in one word"))
        .field("message", string("Why, in a sentence"));
    let availability = object("Where the time until the node is disturbed comes from")
        .field("source", string("The nearest known event, or Assumed"))
        .field("until", time("When the event begins"))
        .field("message", string("The event in words"));
    let proposal = object("Nodes that would help")
        .field("pool", string("Pool that could bring them"))
        .field("nodes", int64("How many"))
        .field("instanceType", string("Their instance type"))
        .field("pricePerHour", string("Their cost, in dollars per hour"))
        .field("message", string("The proposal in words"));
    let reservation = object("GPUs that are kept for this job")
        .field("node", string("Where they are"))
        .field("gpus", int64("How many"))
        .field("phase", string("State of the reservation").one_of(&["Waiting", "Claimed", "Expired", "Ended"]))
        .field("until", time("Until when they wait for a pod"))
        .field("generation", int64("The metadata.generation that asked for them"))
        .field("pod", string("The pod that claimed them"));
    object("The node for the job")
        .field("suitableNodeName", string("Name of the node, or None available"))
        .field("suitableHostName", string("Name of its host, or None available"))
        .field("nodeMemoryUsage", int64("Guest memory in use, in MiB"))
        .field("nodeCPUUsage", int64("CPU demand, in MHz; without vSphere in millicores"))
        .field("availableAcceleratorTime", int64("Whole hours until the node is disturbed"))
        .field("availability", availability)
        .field("candidates", list("Nodes that fit, best first", candidate).max_items(LIMIT_NODES))
        .field("rejected", list("Nodes that do not fit, by name", rejected).max_items(LIMIT_NODES))
        .field("proposal", proposal)
        .field("reservation", reservation)
        .field("conditions", conditions(true))
        .field("observedAt", time("Time of the data that the answer is from"))
        .field("observedGeneration", int64("The metadata.generation that the answer belongs to"))
}

fn maintenance_window() -> Definition {
    let names = |description: &str| list(description, string("").length(1, 253)).max_items(LIMIT_NODES);
    let spec = object("When, how long, and what")
        .field("schedule", string("Begins by this cron expression, such as 0 2 * * 2").length(1, 256))
        .field("timeZone", string("Time zone of the schedule, such as Europe/Berlin; UTC without it").length(1, 64))
        .field("start", time("Begins once, at this time"))
        .required("duration", duration("How long it lasts"))
        .field("hosts", names("Names of hosts"))
        .field("nodes", names("Names of nodes"))
        .field("nodePools", names("Names of pools: all their nodes"))
        .field("nodeSelector", labels("Labels of nodes"))
        .field("suspend", boolean("Whether it is suspended"))
        .rule("has(self.schedule) != has(self.start)", "give either 'schedule' or 'start'")
        .rule_at(".timeZone", "!has(self.timeZone) || has(self.schedule)", "'timeZone' belongs to a 'schedule'")
        .rule_at(".duration", "duration(self.duration) > duration('0s')", "duration must be above zero")
        .rule(
            "has(self.hosts) || has(self.nodes) || has(self.nodePools) || has(self.nodeSelector)",
            "names nothing: give 'hosts', 'nodes', 'nodePools' or 'nodeSelector'",
        );
    let status = object("Whether the schedule is valid")
        .field("conditions", conditions(true))
        .field("observedGeneration", int64("The metadata.generation that the conditions are about"));
    Definition::of::<MaintenanceWindow>("When hosts or nodes are disturbed, again and again or once", spec)
        .status(status)
        .categories(&["millpond"])
        .short_names(&["mwin"])
        .columns(vec![
            column("Schedule", "string", ".spec.schedule", "When it begins, again and again"),
            column("Start", "string", ".spec.start", "When it begins, once"),
            column("Duration", "string", ".spec.duration", "How long it lasts"),
            column("Suspended", "boolean", ".spec.suspend", "Whether it is suspended"),
            column("Ready", "string", READY, "Whether the schedule is valid"),
            AGE,
        ])
}
