//! `karpenter.sh`: NodePool, NodeClaim and NodeOverlay.

use serde_json::json;

use super::definition::{AGE, Definition, READY, column, wide};
use super::parts::{
    KEY, Speaker, VALUE, conditions, dollars, duration, duration_or_never, node_class_ref, quantities, requirements,
    taints, time,
};
use super::schema::{Schema, int32, int64, list, map, object, string};
use crate::karpenter::{NodeClaim, NodeOverlay, NodePool};

/// The longest name of a pool: with a dash and five letters it is the name of a node, which is a label's value.
const LIMIT_POOL_NAME: u32 = 57;

pub(super) fn definitions() -> Vec<Definition> {
    vec![node_pool(), node_claim(), node_overlay()]
}

fn node_pool() -> Definition {
    let spec = object("Template, limits and disruption policy of the pool's nodes")
        .required("template", template())
        .field("disruption", disruption())
        .field("limits", quantities("Maximum of all resources of the pool's nodes; `nodes` is their number"))
        .field("weight", int32("Pools of greater weight are used first; 0 without it").at_least(1).at_most(100))
        .field("replicas", int64("A fixed number of nodes, independent of pods").at_least(0))
        .rule_at(
            ".replicas",
            "has(self.replicas) == has(oldSelf.replicas)",
            "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
        )
        .rule_at(
            ".limits",
            "!has(self.replicas) || !has(self.limits) || self.limits.all(name, name == 'nodes')",
            "only 'limits.nodes' is supported on static NodePools",
        )
        .rule_at(
            ".weight",
            "!has(self.replicas) || !has(self.weight)",
            "'weight' is not supported on static NodePools",
        );
    let status = object("Observed state of the pool")
        .field("resources", quantities("Resources of its nodes"))
        .field("nodes", int64("Number of nodes").default(0))
        .field("nodeClassObservedGeneration", int64("The observed generation of the node class"))
        .field("conditions", conditions(true));
    Definition::of::<NodePool>(
        "A pool of nodes: nodes are added for unschedulable pods, and removed when they are not needed",
        spec,
    )
    .status(status)
    .short_names(&["np"])
    .categories(&["karpenter"])
    .scale(".spec.replicas", ".status.nodes")
    .columns(vec![
        column("NodeClass", "string", ".spec.template.spec.nodeClassRef.name", "Node class of its nodes"),
        column("Nodes", "string", ".status.nodes", "Number of nodes"),
        column("Ready", "string", READY, "Whether it is ready"),
        AGE,
        wide("Weight", "integer", ".spec.weight", "Greater ones are used first"),
        wide("CPU", "string", ".status.resources.cpu", "Cores of its nodes"),
        wide("Memory", "string", ".status.resources.memory", "Memory of its nodes"),
    ])
    .name_length(LIMIT_POOL_NAME, "With a dash and five letters it is the name of a node, and so a label's value")
}

fn template() -> Schema {
    let labels = map("Labels of the nodes", string("").length(0, 63).pattern(VALUE))
        .atomic_map()
        .max_properties(100)
        .rule(
            &format!("self.all(key, key.size() <= 317 && key.matches('{}'))", KEY.replace('\\', "\\\\")),
            "has a key that is not the name of a label, such as example.com/team",
        )
        .rule(
            "self.all(key, key in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || \
             !key.split('/')[0].endsWith('karpenter.sh'))",
            "label domain \"karpenter.sh\" is restricted: only karpenter.sh/capacity-type may be set",
        )
        .rule("!('karpenter.sh/nodepool' in self)", "label \"karpenter.sh/nodepool\" is restricted")
        .rule("!('kubernetes.io/hostname' in self)", "label \"kubernetes.io/hostname\" is restricted");
    let metadata = object("Labels and annotations of the nodes")
        .field("labels", labels)
        .field("annotations", map("Annotations of the nodes", string("")));
    let spec = object("Template of the nodes")
        .required(
            "requirements",
            requirements("Requirements on the labels of the nodes: instance types, zones, …", Speaker::Pool),
        )
        .required("nodeClassRef", node_class_ref(false));
    object("Template of the pool's nodes").field("metadata", metadata).required("spec", node_fields(spec, true))
}

/// The fields that pools and claims share.
fn node_fields(spec: Schema, of_pool: bool) -> Schema {
    let age = duration_or_never("Age at which a node is replaced; Never for no such age");
    spec.field("taints", taints("Taints of the node, for good"))
        .field("startupTaints", taints("Startup taints, which another component removes; pods need not tolerate them"))
        .field("expireAfter", if of_pool { age.default("720h") } else { age })
        .field(
            "terminationGracePeriod",
            duration(
                "The longest that draining may take. Then pods go in spite of disruption budgets and \
                 karpenter.sh/do-not-disrupt; without it, draining waits for them",
            ),
        )
}

fn disruption() -> Schema {
    let policies = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"];
    object("Disruption policy")
        .field(
            "consolidateAfter",
            duration_or_never("Time without pod events before a node may be consolidated; Never for no consolidation")
                .default("0s"),
        )
        .field(
            "consolidationPolicy",
            string("Which nodes consolidation considers").one_of(&policies).default("WhenEmptyOrUnderutilized"),
        )
        .field(
            "budgets",
            list(
                "How many nodes may be disrupted at a time; of several active budgets, the smallest applies",
                budget(),
            )
            .max_items(50)
            .default(json!([{"nodes": "10%"}])),
        )
        .default(json!({"consolidateAfter": "0s"}))
}

fn budget() -> Schema {
    object("How many nodes may be disrupted at a time, and when")
        .required(
            "nodes",
            string("A number of nodes, or a share of the pool such as 10%")
                .pattern("^((100|[0-9]{1,2})%|[0-9]{1,9})$")
                .default("10%"),
        )
        .field(
            "schedule",
            string("Start: five fields of cron, or @daily and the like; default always").length(0, 256).rule(
                &format!("self.matches(r'{}')", cron()),
                "is not a schedule: give minute, hour, day, month and weekday as in '0 9 * * mon-fri', or @daily \
                     and the like",
            ),
        )
        .field(
            "timeZone",
            string("Time zone of the schedule, such as Europe/Berlin; UTC without it")
                .length(1, 64)
                .pattern("^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$"),
        )
        .field(
            "duration",
            string("Duration, in hours and minutes").pattern("^(([0-9]{1,7}(h|m)|[0-9]{1,7}h[0-9]{1,7}m)(0s)?)$"),
        )
        .field(
            "reasons",
            list("Reasons that it applies to; default all", string("").one_of(&["Underutilized", "Empty", "Drifted"]))
                .set()
                .max_items(50),
        )
        .rule(
            "has(self.schedule) == has(self.duration)",
            "'schedule' must be set with 'duration': from when, and for how long",
        )
        .rule_at(".timeZone", "!has(self.timeZone) || has(self.schedule)", "'timeZone' must be set with 'schedule'")
}

/// The form of a schedule: names of times, or five fields with numbers that can be.
fn cron() -> String {
    let field = |value: &str| {
        let range = format!("([*?]|({value})(-({value}))?)(/0*[1-9][0-9]*)?");
        format!("{range}(,{range})*")
    };
    let fields = [
        field("[0-5]?[0-9]"),
        field("[01]?[0-9]|2[0-3]"),
        field("0?[1-9]|[12][0-9]|3[01]"),
        field("0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"),
        field("0?[0-7]|sun|mon|tue|wed|thu|fri|sat"),
    ];
    let names = "@(annually|yearly|monthly|weekly|daily|midnight|hourly)";
    format!(r"^\s*({names}|(?i:{}))\s*$", fields.join(r"\s+"))
}

fn node_claim() -> Definition {
    let resources =
        object("Resources that the node must have").field("requests", quantities("Total requests of its pods"));
    let spec = object("Requested node; immutable")
        .required("requirements", requirements("Requirements on the labels of the node", Speaker::Claim))
        .required("nodeClassRef", node_class_ref(true))
        .field("resources", resources);
    let spec = node_fields(spec, false).rule("self == oldSelf", "spec is immutable");
    let status = object("Observed state")
        .field("nodeName", string("Name of the node"))
        .field("providerID", string("Provider id of the machine"))
        .field("imageID", string("The image that the machine runs"))
        .field("capacity", quantities("Capacity of the machine"))
        .field("allocatable", quantities("Allocatable resources"))
        .field("lastPodEventTime", time("Time of the last pod event"))
        .field("conditions", conditions(false));
    Definition::of::<NodeClaim>("One requested node", spec)
        .status(status)
        .short_names(&["nc"])
        .categories(&["karpenter"])
        .columns(vec![
            column("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type", "Its instance type"),
            column(
                "Capacity",
                "string",
                r".metadata.labels.karpenter\.sh/capacity-type",
                "on-demand, spot or reserved",
            ),
            column("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone", "Its zone"),
            column("Node", "string", ".status.nodeName", "Name of its node"),
            column("Ready", "string", READY, "Whether its node is ready for pods"),
            AGE,
            wide("ImageID", "string", ".status.imageID", "The image that it runs"),
            wide("ID", "string", ".status.providerID", "The machine"),
            wide("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool", "Its pool"),
            wide("NodeClass", "string", ".spec.nodeClassRef.name", "Its node class"),
            wide("Drifted", "string", r#".status.conditions[?(@.type=="Drifted")].status"#, "Whether it has drifted"),
        ])
}

fn node_overlay() -> Definition {
    let extended = quantities("Extended resources that the instance types have besides their own").rule(
        "self.all(name, !(name in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
        "invalid resource restricted: cpu, memory, ephemeral-storage and pods are what the instance type has",
    );
    let adjustment = r"^([+-]([0-9]*\.)?[0-9]+|\+([0-9]*\.)?[0-9]+%|-[0-9]{1,2}(\.[0-9]+)?%|-100%)$";
    let spec = object("Matching instance types, and how they change")
        .required(
            "requirements",
            requirements("Instance types and offerings whose labels meet all of them are changed", Speaker::Overlay),
        )
        .field("price", dollars("Their cost, in dollars per hour"))
        .field("priceAdjustment", string("Change of their price: +0.05, -30%").length(0, 32).pattern(adjustment))
        .field("surcharge", dollars("Dollars per hour on top of the price, for licences"))
        .field("capacity", extended)
        .field(
            "weight",
            int32("Overlays of greater weight win; of equals, the last by name").at_least(1).at_most(10_000),
        )
        .rule_at(
            ".priceAdjustment",
            "!has(self.price) || !has(self.priceAdjustment)",
            "cannot set both 'price' and 'priceAdjustment'",
        );
    let status = object("Observed state").field("conditions", conditions(true));
    Definition::of::<NodeOverlay>("Own prices and own resources of instance types", spec)
        .status(status)
        .categories(&["karpenter"])
        .short_names(&["overlays"])
        .columns(vec![
            column("Ready", "string", READY, "Whether it is applied"),
            AGE,
            wide("Weight", "integer", ".spec.weight", "Overlays of greater weight have precedence"),
        ])
}
