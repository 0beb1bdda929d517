//! `millpond.dev`: NodeClass and ClusterLimits.

use super::definition::{AGE, Definition, READY, column, wide};
use super::parts::{conditions, dollars, duration, quantities, quantity, time};
use super::schema::{Schema, boolean, int32, int64, list, map, object, string};
use crate::cluster_limits::ClusterLimits;
use crate::node_class::{LIMIT_UNAVAILABLE, NodeClass};
use crate::sim_script::LIMIT_RULES;

pub(super) fn definitions() -> Vec<Definition> {
    vec![node_class(), cluster_limits()]
}

fn node_class() -> Definition {
    let backoff = object("How long an offering that could not be had is left alone")
        .field("initial", duration("After the first failure").default("3m"))
        .field("max", duration("The longest, as it grows with every failure that follows").default("30m"))
        .rule_at(".max", "duration(self.initial) <= duration(self.max)", "'max' is shorter than 'initial'");
    let spec = object("Where nodes come from")
        .required("provider", string("Who makes the nodes; sim simulates them").one_of(&["sim"]))
        .field(
            "catalog",
            string("Name of the catalogue of instance types and prices: aws, gcp, kwok or one of your own")
                .length(1, 253),
        )
        .field(
            "overlays",
            list("Names of price overlays that hold for these nodes", string("").not_empty()).max_items(100),
        )
        .field("kubelet", kubelet())
        .field("backoff", backoff)
        .field("sim", sim());
    let unavailable = object("An offering that is left alone for a while")
        .required("instanceType", string("The instance type"))
        .required("zone", string("The zone"))
        .required("capacityType", string("on-demand, spot or reserved"))
        .required("until", time("Until when"))
        .field("failures", int64("How often it failed in a row"))
        .field("message", string("What the provider said"));
    let status = object("What is known of the class")
        .field("instanceTypes", int64("How many instance types the catalogue has"))
        .field(
            "unavailable",
            list("Offerings that could not be had, and are left alone for a while", unavailable)
                .max_items(LIMIT_UNAVAILABLE as u32),
        )
        .field("conditions", conditions(true));
    Definition::of::<NodeClass>("A class of nodes: where they come from, and what kubelet keeps for itself there", spec)
        .status(status)
        .categories(&["karpenter", "millpond"])
        .short_names(&["nclass"])
        .columns(vec![
            column("Provider", "string", ".spec.provider", "Who makes the nodes"),
            column("Catalog", "string", ".spec.catalog", "What there is, and for how much"),
            column("Types", "integer", ".status.instanceTypes", "How many instance types there are"),
            column("Ready", "string", READY, "Whether nodes can be made"),
            AGE,
            wide("Image", "string", ".spec.sim.image", "The image of simulated nodes"),
        ])
        .name_length(63, "It is the value of a label of its nodes")
}

fn kubelet() -> Schema {
    let reserved = |description: &str| {
        quantities(description).rule(
            "self.all(name, name in ['cpu', 'memory', 'ephemeral-storage', 'pid'])",
            "only cpu, memory, ephemeral-storage and pid can be reserved",
        )
    };
    object("Settings of kubelet that change what a node has for pods")
        .field("maxPods", int32("The most pods of a node").at_least(1))
        .field("podsPerCore", int32("Pods for each core, where that is fewer").at_least(1))
        .field("systemReserved", reserved("What is kept for the operating system"))
        .field("kubeReserved", reserved("What is kept for kubelet, instead of what the provider's rule says"))
}

/// A span of time of the simulated cloud; it may be shorter than a second.
fn span(description: &str) -> Schema {
    string(description).length(0, 64).pattern("^([0-9]{1,9}(ms|s|m|h))+$")
}

fn share(description: &str) -> Schema {
    string(description).pattern(r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)%$")
}

/// A time, or so long after the script began to hold.
fn moment(description: &str) -> Schema {
    string(description)
        .length(0, 64)
        .pattern(r"^(([0-9]{1,9}(ms|s|m|h))+|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2}))$")
}

/// Offerings by name.
fn offerings(schema: Schema) -> Schema {
    let pattern = |what: &str| string(&format!("{what}; * stands for any letters")).length(1, 253).default("*");
    schema
        .field("instanceType", pattern("Which instance types"))
        .field("zone", pattern("Which zones"))
        .field("capacityType", pattern("Which capacity types"))
}

/// From when until when.
fn window(schema: Schema) -> Schema {
    schema
        .field("from", moment("From when: a time, or so long after the beginning; from the beginning without it"))
        .field("until", moment("Until when; for good without it"))
}

fn rules(description: &str, rule: Schema) -> Schema {
    list(description, rule).max_items(LIMIT_RULES as u32)
}

fn sim() -> Schema {
    let count = |description: &str| int64(description).at_least(0);
    let stock_out = window(offerings(object("Offerings that are not to be had")))
        .field("share", share("So many of them, by chance; all without it"))
        .field("period", span("How long before others are drawn for the share; 10m without it"))
        .field("stock", count("So many instances of each can be had at once; none without it"))
        .rule_at(".period", "!has(self.period) || has(self.share)", "'period' must be set with 'share'");
    let quota = offerings(object("What the account may have at once"))
        .field("instances", count("The most instances"))
        .field("vcpus", count("The most cores"))
        .rule("has(self.instances) || has(self.vcpus)", "limits nothing: give 'instances' or 'vcpus'");
    let throttle = object("How many calls a second are answered; those above it are throttled")
        .required("perSecond", int64("Calls a second").at_least(1))
        .field("burst", int64("Calls at once after some quiet; as many as perSecond without it").at_least(1));
    let lag = object("How late the cloud tells of what came and went")
        .field("get", span("When one instance is looked at"))
        .field("list", span("When all are looked at"));
    object("What the simulated cloud does with these nodes: how slow it is, and what goes wrong")
        .field("seed", count("Where all chance comes from"))
        .field("image", string("The image of new instances; those of another image have drifted").not_empty())
        .field("registrationDelay", span("From the launch of an instance to its Node"))
        .field("registrationJitter", span("Up to so much longer, by chance"))
        .field("registrationFailures", share("Instances that run and never register"))
        .field("shutdown", span("From the wish for an instance's end to its end"))
        .field("stockOuts", rules("Offerings that are not to be had", stock_out))
        .field("quotas", rules("What the account may have at once", quota))
        .field("calls", rules("Calls that fail, are slow, or whose answer is lost", call_fault()))
        .field("throttle", throttle)
        .field("lag", lag)
        .field("interruptions", rules("Instances that the cloud takes back", interruption()))
}

fn call_fault() -> Schema {
    let verb = string("").one_of(&["create", "delete", "get"]);
    let error = string("It is not done, and this is the answer").one_of(&["throttled", "denied", "notReady", "other"]);
    window(object("Calls that fail, are slow, or whose answer is lost"))
        .field("verbs", list("Which calls; all without it", verb).set().max_items(3))
        .field("share", share("So many of them, by chance; all without it"))
        .field("nth", list("The calls of these numbers, counted from 1", int64("").at_least(1)).set().max_items(1000))
        .field("delay", span("So long before the answer"))
        .field("error", error)
        .field("retryAfter", span("How long to wait, with throttled"))
        .field("lost", boolean("The call is carried out, and its answer is lost"))
        .rule(
            "has(self.delay) || has(self.error) || (has(self.lost) && self.lost)",
            "does nothing: give 'delay', 'error' or 'lost'",
        )
        .rule_at(
            ".lost",
            "!has(self.error) || !has(self.lost) || !self.lost",
            "stands beside 'error': a call that fails has no answer to lose",
        )
        .rule_at(".share", "!has(self.share) || !has(self.nth)", "stands beside 'nth': only one of them may")
        .rule_at(
            ".retryAfter",
            "!has(self.retryAfter) || (has(self.error) && self.error == 'throttled')",
            "'retryAfter' goes with 'error: throttled'",
        )
}

fn interruption() -> Schema {
    offerings(object("Instances that the cloud takes back"))
        .field("capacityType", string("Which capacity types; * stands for any letters").length(1, 253).default("spot"))
        .field("at", moment("When notice is given to what is there then"))
        .field("share", share("So many of them, with at; all without it"))
        .field("perHour", share("The chance of each in an hour, instead of at"))
        .field("notice", span("From the notice to the end; 2m without it"))
        .field("nodeGone", boolean("Whether the cloud takes the Node away too"))
        .rule("has(self.at) != has(self.perHour)", "happens at a time or by chance: give either 'at' or 'perHour'")
        .rule_at(".share", "!has(self.share) || has(self.at)", "'share' must be set with 'at'")
}

fn cluster_limits() -> Definition {
    let limits = map("What all nodes of all pools may add up to; `nodes` counts them", quantity("")).min_properties(1);
    let spec = object("The limits")
        .field("limits", limits)
        .field("dollarsPerHour", dollars("What they may cost together, in dollars an hour"))
        .rule("has(self.limits) || has(self.dollarsPerHour)", "limits nothing: give 'limits' or 'dollarsPerHour'");
    let status = object("What is used of them")
        .field("used", quantities("What all nodes add up to, those that are asked for included"))
        .field("dollarsPerHour", string("What they cost together, in dollars an hour"))
        .field("conditions", conditions(true));
    Definition::of::<ClusterLimits>("What all nodes of all pools may add up to; if there are several, all hold", spec)
        .status(status)
        .categories(&["millpond"])
        .short_names(&["climits"])
        .columns(vec![
            column("Nodes", "string", ".status.used.nodes", "Nodes that are used"),
            column("NodeLimit", "string", ".spec.limits.nodes", "Nodes that there may be"),
            column("Dollars/h", "string", ".status.dollarsPerHour", "What they cost"),
            column("DollarLimit", "string", ".spec.dollarsPerHour", "What they may cost"),
            AGE,
            wide("CPU", "string", ".status.used.cpu", "Cores that are used"),
            wide("CPULimit", "string", ".spec.limits.cpu", "Cores that there may be"),
            wide("Memory", "string", ".status.used.memory", "Memory that is used"),
            wide("MemoryLimit", "string", ".spec.limits.memory", "Memory that there may be"),
        ])
}
