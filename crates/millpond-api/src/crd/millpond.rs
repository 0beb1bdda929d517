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
    let backoff = object("Backoff of an offering after a stock-out")
        .field("initial", duration("Backoff after the first failure").default("3m"))
        .field("max", duration("Longest backoff; every further failure doubles the backoff").default("30m"))
        .rule_at(".max", "duration(self.initial) <= duration(self.max)", "'max' is shorter than 'initial'");
    let spec = object("How the nodes are made")
        .required(
            "provider",
            string("Provider of the nodes: sim simulates them, hosts takes own hosts").one_of(&["sim", "hosts"]),
        )
        .field(
            "catalog",
            string("Name of the catalogue of instance types and prices: aws, gcp, kwok or one of your own")
                .length(1, 253),
        )
        .field(
            "overlays",
            list("Names of price overlays that apply to these nodes", string("").not_empty()).max_items(100),
        )
        .field("kubelet", kubelet())
        .field("backoff", backoff)
        .field("sim", sim())
        .field("hosts", hosts())
        .rule_at(".hosts", "!has(self.hosts) || self.provider == 'hosts'", "'hosts' belongs to the provider 'hosts'");
    let unavailable = object("An offering that plans and launches leave out after a stock-out")
        .required("instanceType", string("The instance type"))
        .required("zone", string("The zone"))
        .required("capacityType", string("on-demand, spot or reserved"))
        .required("until", time("When the backoff ends"))
        .field("failures", int64("Failures in a row"))
        .field("message", string("Message of the provider"));
    let status = object("Observed state of the class")
        .field("instanceTypes", int64("Number of instance types in the catalogue"))
        .field(
            "unavailable",
            list("Offerings that are left out after a stock-out", unavailable).max_items(LIMIT_UNAVAILABLE as u32),
        )
        .field("conditions", conditions(true));
    Definition::of::<NodeClass>(
        "A class of nodes: their provider, their catalogue and their kubelet's reservations",
        spec,
    )
    .status(status)
    .categories(&["karpenter", "millpond"])
    .short_names(&["nclass"])
    .columns(vec![
        column("Provider", "string", ".spec.provider", "Provider of the nodes"),
        column("Catalog", "string", ".spec.catalog", "Catalogue of instance types and prices"),
        column("Types", "integer", ".status.instanceTypes", "Number of instance types"),
        column("Ready", "string", READY, "Whether the class is ready"),
        AGE,
        wide("Image", "string", ".spec.sim.image", "The image of simulated nodes"),
    ])
    .name_length(63, "It is the value of a label of its nodes")
}

fn hosts() -> Schema {
    object("Own hosts that nodes are made of")
        .field("namespace", string("Namespace of the ByoHosts").length(1, 63).default("default"))
        .field("selector", super::byoh::selector())
        .field("pricePerHour", dollars("Price of one host in plans, in dollars per hour; nothing without it"))
        .field(
            "bootstrapKubeconfig",
            string(
                "BootstrapKubeconfig of the same namespace with the address of the API server; the cluster of the \
                 hosts without it",
            )
            .length(1, 253),
        )
}

fn kubelet() -> Schema {
    let reserved = |description: &str| {
        quantities(description).rule(
            "self.all(name, name in ['cpu', 'memory', 'ephemeral-storage', 'pid'])",
            "only cpu, memory, ephemeral-storage and pid can be reserved",
        )
    };
    object("Settings of kubelet that change a node's allocatable resources")
        .field("maxPods", int32("Maximum number of pods on a node").at_least(1))
        .field("podsPerCore", int32("Maximum number of pods for each core, if that is fewer").at_least(1))
        .field("systemReserved", reserved("Resources reserved for the operating system"))
        .field("kubeReserved", reserved("Resources reserved for kubelet, instead of the provider's default"))
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
        .field("from", moment("Start: a time, or a duration after the beginning; default the beginning"))
        .field("until", moment("End; default never"))
}

fn rules(description: &str, rule: Schema) -> Schema {
    list(description, rule).max_items(LIMIT_RULES as u32)
}

fn sim() -> Schema {
    let count = |description: &str| int64(description).at_least(0);
    let stock_out = window(offerings(object("Offerings that are out of stock")))
        .field("share", share("Share of them, chosen at random; default all"))
        .field("period", span("How long until others are chosen for the share; default 10m"))
        .field("stock", count("Instances of each that can run at once; default none"))
        .rule_at(".period", "!has(self.period) || has(self.share)", "'period' must be set with 'share'");
    let quota = offerings(object("Quota of the account"))
        .field("instances", count("Maximum number of instances"))
        .field("vcpus", count("Maximum number of cores"))
        .rule("has(self.instances) || has(self.vcpus)", "limits nothing: give 'instances' or 'vcpus'");
    let throttle = object("Rate limit of calls; calls above it are throttled")
        .required("perSecond", int64("Calls a second").at_least(1))
        .field("burst", int64("Burst of calls; default perSecond").at_least(1));
    let lag = object("How late the cloud's answers show new and deleted instances")
        .field("get", span("Delay for get"))
        .field("list", span("Delay for list"));
    object("Behaviour of the simulated cloud: delays and failures")
        .field("seed", count("Seed of all random choices"))
        .field("image", string("Image of new instances; instances of another image have drifted").not_empty())
        .field("registrationDelay", span("Time from the launch of an instance to its Node"))
        .field("registrationJitter", span("Random addition of up to this time"))
        .field("registrationFailures", share("Share of instances that run and never register"))
        .field("shutdown", span("Time from the deletion of an instance to its end"))
        .field("stockOuts", rules("Offerings that are out of stock", stock_out))
        .field("quotas", rules("Quota of the account", quota))
        .field("calls", rules("Calls that fail, are slow, or lose their answer", call_fault()))
        .field("throttle", throttle)
        .field("lag", lag)
        .field("interruptions", rules("Instances that the cloud interrupts", interruption()))
}

fn call_fault() -> Schema {
    let verb = string("").one_of(&["create", "delete", "get"]);
    let error = string("The call is not carried out, and fails with this error").one_of(&[
        "throttled",
        "denied",
        "notReady",
        "other",
    ]);
    window(object("Calls that fail, are slow, or lose their answer"))
        .field("verbs", list("Which calls; default all", verb).set().max_items(3))
        .field("share", share("Share of them, chosen at random; default all"))
        .field("nth", list("The calls of these numbers, counted from 1", int64("").at_least(1)).set().max_items(1000))
        .field("delay", span("Delay before the answer"))
        .field("error", error)
        .field("retryAfter", span("Time after which to retry, with throttled"))
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
    offerings(object("Instances that the cloud interrupts"))
        .field("capacityType", string("Which capacity types; * stands for any letters").length(1, 253).default("spot"))
        .field("at", moment("Time of the notice to all instances that exist then"))
        .field("share", share("Share of them, with at; default all"))
        .field("perHour", share("Probability of each per hour, instead of at"))
        .field("notice", span("Time from the notice to the end; default 2m"))
        .field("nodeGone", boolean("Whether the cloud deletes the Node too"))
        .rule("has(self.at) != has(self.perHour)", "happens at a time or by chance: give either 'at' or 'perHour'")
        .rule_at(".share", "!has(self.share) || has(self.at)", "'share' must be set with 'at'")
}

fn cluster_limits() -> Definition {
    let limits =
        map("Maximum of all resources of all pools' nodes; `nodes` is their number", quantity("")).min_properties(1);
    let spec = object("The limits")
        .field("limits", limits)
        .field("dollarsPerHour", dollars("Maximum cost, in dollars per hour"))
        .rule("has(self.limits) || has(self.dollarsPerHour)", "limits nothing: give 'limits' or 'dollarsPerHour'");
    let status = object("Usage of the limits")
        .field("used", quantities("Resources of all nodes, including requested ones"))
        .field("dollarsPerHour", string("Cost, in dollars per hour"))
        .field("conditions", conditions(true));
    Definition::of::<ClusterLimits>("Limits on all nodes of all pools; of several objects, all apply", spec)
        .status(status)
        .categories(&["millpond"])
        .short_names(&["climits"])
        .columns(vec![
            column("Nodes", "string", ".status.used.nodes", "Number of nodes"),
            column("NodeLimit", "string", ".spec.limits.nodes", "Maximum number of nodes"),
            column("Dollars/h", "string", ".status.dollarsPerHour", "Cost"),
            column("DollarLimit", "string", ".spec.dollarsPerHour", "Maximum cost"),
            AGE,
            wide("CPU", "string", ".status.used.cpu", "Cores of all nodes"),
            wide("CPULimit", "string", ".spec.limits.cpu", "Maximum number of cores"),
            wide("Memory", "string", ".status.used.memory", "Memory of all nodes"),
            wide("MemoryLimit", "string", ".spec.limits.memory", "Maximum memory"),
        ])
}
