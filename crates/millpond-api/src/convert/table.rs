//! The conversion table: for every field of every dialect, where it goes in each of the others, or why it goes nowhere.
//!
//! The page `docs/reference/convert.md` is printed from it, and [`drops`] reports by it: what no row speaks of is
//! reported as dropped, so that nothing is lost without a word.

use serde_json::Value;

use super::Target;
use super::report::{Action, Report};

/// How a target treats a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is kept under this name.
    Kept(&'static str),
    /// It is kept, with exceptions that the report lists.
    Mostly(&'static str),
    /// It is nowhere, for this reason.
    Dropped(&'static str),
    /// It has no meaning for other tools.
    Ignored,
}

use Verdict::{Dropped, Ignored, Kept, Mostly};

/// A field and what becomes of it.
#[derive(Debug)]
pub struct Row {
    /// Its path; `[]` is every entry of a list.
    pub field: &'static str,
    to: [Verdict; 4],
}

impl Row {
    /// How a target treats it.
    pub fn to(&self, target: Target) -> Verdict {
        self.to[target as usize]
    }
}

/// A kind of object that is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Karpenter's NodePool.
    NodePool,
    /// Millpond's NodeClass.
    NodeClass,
    /// The node class of another provider.
    OtherClass,
    /// Scaling Advisor's ScalingConstraint.
    Constraint,
    /// A Node of Cluster Autoscaler's templates.
    TemplateNode,
}

impl Source {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 5] =
        [Self::Constraint, Self::NodePool, Self::NodeClass, Self::OtherClass, Self::TemplateNode];

    /// Its name for users.
    pub fn title(self) -> &'static str {
        match self {
            Self::NodePool => "`karpenter.sh/v1` NodePool",
            Self::NodeClass => "`millpond.dev/v1alpha1` NodeClass",
            Self::OtherClass => "EC2NodeClass, GCENodeClass, KWOKNodeClass",
            Self::Constraint => "`sa.gardener.cloud/v1alpha1` ScalingConstraint",
            Self::TemplateNode => "Nodes of Cluster Autoscaler's `kwok-provider-templates`",
        }
    }

    /// Its fields.
    pub fn rows(self) -> &'static [Row] {
        match self {
            Self::NodePool => NODE_POOL,
            Self::NodeClass => NODE_CLASS,
            Self::OtherClass => OTHER_CLASS,
            Self::Constraint => CONSTRAINT,
            Self::TemplateNode => TEMPLATE_NODE,
        }
    }
}

const fn row(field: &'static str, to: [Verdict; 4]) -> Row {
    Row { field, to }
}

/// For descriptions of a pool's nodes, which are kept unchanged in every target that has the field.
const SAME: Verdict = Kept("the same");

const OF_THE_OBJECT: Verdict = Dropped("it is about the object, not about nodes");
const OF_THE_CLUSTER: Verdict = Dropped("NodePools are in no namespace");
const NAMED_THERE: Verdict = Dropped("Cluster Autoscaler's ConfigMaps have names of their own");
const NO_ADVICE_CONSUMER: Verdict = Dropped("controllers that read pools act on them: there is no consumer of advice");
const NO_POLICY_YET: Verdict = Dropped("Scaling Advisor has not said what it means; `WhenEmpty` is written");
const BY_PRICE: Verdict = Dropped("the types of a NodePool have no order: the price decides");
const BY_DRIVER: Verdict = Dropped("the volume driver of a node tells it, in CSINode");
const BY_FLAGS: Verdict =
    Dropped("flags of the whole autoscaler: --initial-node-group-backoff-duration, --max-node-group-backoff-duration");
const THREE_MINUTES: Verdict = Dropped("Karpenter avoids what is out of stock for 3 minutes, always");

const CONSTRAINT: &[Row] = &[
    row("metadata.name", [Mostly("name of the NodeClass"), Mostly("name of the KWOKNodeClass"), SAME, NAMED_THERE]),
    row("metadata.namespace", [OF_THE_CLUSTER, OF_THE_CLUSTER, SAME, NAMED_THERE]),
    row("metadata.labels", [OF_THE_OBJECT, OF_THE_OBJECT, SAME, OF_THE_OBJECT]),
    row("metadata.annotations", [OF_THE_OBJECT, OF_THE_OBJECT, SAME, OF_THE_OBJECT]),
    row("spec.consumerID", [NO_ADVICE_CONSUMER, NO_ADVICE_CONSUMER, SAME, NO_ADVICE_CONSUMER]),
    row("spec.defaultBackoffPolicy", [Kept("NodeClass `spec.backoff`"), THREE_MINUTES, SAME, BY_FLAGS]),
    row("spec.scaleInPolicy", [NO_POLICY_YET, NO_POLICY_YET, SAME, NO_POLICY_YET]),
    row(
        "spec.nodePools[].name",
        [
            Mostly("`metadata.name`; label `sa.gardener.cloud/node-pool-name`"),
            Mostly("`metadata.name`; label `sa.gardener.cloud/node-pool-name`"),
            SAME,
            Mostly("labels `karpenter.sh/nodepool` and `sa.gardener.cloud/node-pool-name`; part of the group's name"),
        ],
    ),
    row(
        "spec.nodePools[].region",
        [
            Kept("requirement on `topology.kubernetes.io/region`; region of the catalogue"),
            Kept("label `topology.kubernetes.io/region`"),
            SAME,
            Kept("label `topology.kubernetes.io/region`"),
        ],
    ),
    row(
        "spec.nodePools[].availabilityZones",
        [
            Kept("requirement on `topology.kubernetes.io/zone`; offerings of the catalogue"),
            Kept("requirement on `topology.kubernetes.io/zone`; offerings of the instance types"),
            SAME,
            Kept("a group for every zone"),
        ],
    ),
    row(
        "spec.nodePools[].labels",
        [
            Mostly("`spec.template.metadata.labels`, which are requirements, too"),
            Mostly("`spec.template.metadata.labels`, which are requirements, too"),
            SAME,
            Mostly("`metadata.labels`"),
        ],
    ),
    row(
        "spec.nodePools[].annotations",
        [
            Kept("`spec.template.metadata.annotations`"),
            Kept("`spec.template.metadata.annotations`"),
            SAME,
            Kept("`metadata.annotations`"),
        ],
    ),
    row(
        "spec.nodePools[].taints",
        [Mostly("`spec.template.spec.taints`"), Mostly("`spec.template.spec.taints`"), SAME, Kept("`spec.taints`")],
    ),
    row(
        "spec.nodePools[].quota",
        [Kept("`spec.limits`"), Mostly("`spec.limits`"), SAME, Mostly("annotation `…/max-count` of each group")],
    ),
    row(
        "spec.nodePools[].priority",
        [
            Mostly("`spec.weight`, 1 to 100, higher first on both sides"),
            Mostly("`spec.weight`, 1 to 100, higher first on both sides"),
            SAME,
            Mostly("ConfigMap of the priority expander"),
        ],
    ),
    row("spec.nodePools[].defaultBackoffPolicy", [Kept("NodeClass `spec.backoff`"), THREE_MINUTES, SAME, BY_FLAGS]),
    row("spec.nodePools[].scaleInPolicy", [NO_POLICY_YET, NO_POLICY_YET, SAME, NO_POLICY_YET]),
    row(
        "spec.nodePools[].min",
        [
            Dropped(
                "a NodePool has no least number of nodes; a CapacityBuffer or a second pool with `replicas` keeps some",
            ),
            Dropped(
                "a NodePool has no least number of nodes; a CapacityBuffer or a second pool with `replicas` keeps some",
            ),
            SAME,
            Mostly("annotation `…/min-count` of the cheapest group"),
        ],
    ),
    row(
        "spec.nodePools[].nodeTemplates[].name",
        [
            Kept("label `sa.gardener.cloud/node-template-name` of the catalogue's types"),
            Dropped("KWOK's instance types have no labels of their own"),
            SAME,
            Kept("label `sa.gardener.cloud/node-template-name`; part of the group's name"),
        ],
    ),
    row(
        "spec.nodePools[].nodeTemplates[].architecture",
        [
            Kept("architecture of the catalogue's types"),
            Kept("`architecture`"),
            SAME,
            Kept("label `kubernetes.io/arch`"),
        ],
    ),
    row(
        "spec.nodePools[].nodeTemplates[].instanceType",
        [
            Mostly("requirement on `node.kubernetes.io/instance-type`; types of the catalogue"),
            Mostly("requirement on `node.kubernetes.io/instance-type`; `name` of an instance type"),
            SAME,
            Kept("a group for every type"),
        ],
    ),
    row(
        "spec.nodePools[].nodeTemplates[].capacity",
        [Mostly("capacity of the catalogue's types"), Mostly("`resources`"), SAME, Kept("`status.capacity`")],
    ),
    row(
        "spec.nodePools[].nodeTemplates[].kubeReservedCapacity",
        [
            Mostly("`kube=` of the catalogue's types; NodeClass `spec.kubelet.kubeReserved` where all agree"),
            Mostly("less `resources`"),
            SAME,
            Kept("less `status.allocatable`"),
        ],
    ),
    row(
        "spec.nodePools[].nodeTemplates[].systemReservedCapacity",
        [
            Mostly("`system=` of the catalogue's types; NodeClass `spec.kubelet.systemReserved` where all agree"),
            Mostly("less `resources`"),
            SAME,
            Mostly("less `status.allocatable`, together with `kubeReservedCapacity`"),
        ],
    ),
    row("spec.nodePools[].nodeTemplates[].maxVolumes", [BY_DRIVER, BY_DRIVER, SAME, BY_DRIVER]),
    row(
        "spec.nodePools[].nodeTemplates[].priority",
        [BY_PRICE, BY_PRICE, SAME, Mostly("ConfigMap of the priority expander")],
    ),
];

const ADVICE_MAKES_NO_NODES: Verdict = Dropped("Scaling Advisor makes no nodes: who reads the advice knows how");
const KWOK_MAKES_NODES: Verdict = Dropped("kwok makes the nodes");

const NODE_POOL: &[Row] = &[
    row("metadata.name", [SAME, SAME, Kept("`name` of a pool"), Kept("label `karpenter.sh/nodepool`")]),
    row("metadata.labels", [SAME, SAME, OF_THE_OBJECT, OF_THE_OBJECT]),
    row("metadata.annotations", [SAME, SAME, OF_THE_OBJECT, OF_THE_OBJECT]),
    row("spec.template.metadata.labels", [SAME, SAME, Kept("`labels`"), Kept("`metadata.labels`")]),
    row("spec.template.metadata.annotations", [SAME, SAME, Kept("`annotations`"), Kept("`metadata.annotations`")]),
    row(
        "spec.template.spec.requirements",
        [
            SAME,
            Mostly("the same; those on labels of a cloud become a list of instance types"),
            Mostly("`region`, `availabilityZones`, `nodeTemplates`; those on own labels become `labels`"),
            Mostly("a group for every type, zone and capacity type; those on own labels become labels"),
        ],
    ),
    row("spec.template.spec.taints", [SAME, SAME, Kept("`taints`"), Kept("`spec.taints`")]),
    row(
        "spec.template.spec.startupTaints",
        [
            SAME,
            SAME,
            Dropped("Scaling Advisor plans nodes as they are when ready, without startup taints"),
            Dropped("a flag of the whole autoscaler: --startup-taint"),
        ],
    ),
    row(
        "spec.template.spec.nodeClassRef",
        [
            Kept("the same; another provider's class becomes a NodeClass"),
            Kept("a KWOKNodeClass"),
            ADVICE_MAKES_NO_NODES,
            KWOK_MAKES_NODES,
        ],
    ),
    row(
        "spec.template.spec.expireAfter",
        [
            SAME,
            SAME,
            Mostly("`Never` is what Scaling Advisor does; an age is dropped"),
            Mostly("`Never` is what Cluster Autoscaler does; an age is dropped"),
        ],
    ),
    row(
        "spec.template.spec.terminationGracePeriod",
        [
            SAME,
            SAME,
            Dropped("`machineDrainTimeout` of the Gardener worker, which a constraint does not hold"),
            Dropped("a flag of the whole autoscaler: --max-graceful-termination-sec"),
        ],
    ),
    row(
        "spec.disruption.consolidationPolicy",
        [
            SAME,
            SAME,
            Mostly("`WhenEmpty` is all that Scaling Advisor will do; other policies are dropped"),
            Mostly("`WhenEmpty`, and nodes that are half empty; it never replaces a node by a cheaper one"),
        ],
    ),
    row(
        "spec.disruption.consolidateAfter",
        [
            SAME,
            SAME,
            Dropped("`scaleInPolicy` has no fields yet"),
            Dropped("a flag of the whole autoscaler: --scale-down-unneeded-time"),
        ],
    ),
    row(
        "spec.disruption.budgets",
        [
            SAME,
            Mostly("the same; `timeZone` is Millpond's own"),
            Dropped("who reads the advice removes nodes at a pace of their own"),
            Dropped("a flag of the whole autoscaler: --max-scale-down-parallelism"),
        ],
    ),
    row("spec.limits", [SAME, Mostly("the same"), Kept("`quota`"), Mostly("annotation `…/max-count` of each group")]),
    row("spec.weight", [SAME, SAME, Kept("`priority`"), Mostly("ConfigMap of the priority expander")]),
    row(
        "spec.replicas",
        [
            SAME,
            SAME,
            Dropped("Scaling Advisor has no pools of a fixed size"),
            Dropped("Cluster Autoscaler leaves groups of a fixed size alone"),
        ],
    ),
];

const WRITTEN_OUT: Verdict = Mostly("its types and prices are written out");
const KUBELET_KEPT: [Verdict; 4] =
    [SAME, Mostly("less `resources`"), Mostly("`…ReservedCapacity`"), Mostly("less `status.allocatable`")];
const PODS_KEPT: [Verdict; 4] = [SAME, Kept("`resources`"), Kept("`capacity`"), Kept("`status.capacity`")];

const PRICED: Verdict = Dropped("`--overlay` lays them over the prices that are written out");
const SIM_ALONE: Verdict = Dropped("the faults of Millpond's simulated cloud");

const NODE_CLASS: &[Row] = &[
    row("metadata.name", [SAME, SAME, Ignored, Ignored]),
    row("metadata.labels", [SAME, OF_THE_OBJECT, OF_THE_OBJECT, OF_THE_OBJECT]),
    row("metadata.annotations", [SAME, OF_THE_OBJECT, OF_THE_OBJECT, OF_THE_OBJECT]),
    row("spec.provider", [SAME, Dropped("KWOK makes the nodes"), ADVICE_MAKES_NO_NODES, KWOK_MAKES_NODES]),
    row("spec.catalog", [SAME, WRITTEN_OUT, WRITTEN_OUT, WRITTEN_OUT]),
    row("spec.overlays", [SAME, PRICED, PRICED, PRICED]),
    row("spec.kubelet.maxPods", PODS_KEPT),
    row("spec.kubelet.podsPerCore", PODS_KEPT),
    row("spec.kubelet.kubeReserved", KUBELET_KEPT),
    row("spec.kubelet.systemReserved", KUBELET_KEPT),
    row("spec.backoff", [SAME, THREE_MINUTES, Kept("`defaultBackoffPolicy`"), BY_FLAGS]),
    row(
        "spec.sim.registrationDelay",
        [SAME, Kept("`spec.nodeRegistrationDelay`"), ADVICE_MAKES_NO_NODES, KWOK_MAKES_NODES],
    ),
    row("spec.sim", [SAME, SIM_ALONE, ADVICE_MAKES_NO_NODES, KWOK_MAKES_NODES]),
];

const OTHER_CLASS: &[Row] = &[
    row("metadata.name", [Kept("the same"), Kept("the same"), Ignored, Ignored]),
    row("metadata.labels", [OF_THE_OBJECT, OF_THE_OBJECT, OF_THE_OBJECT, OF_THE_OBJECT]),
    row("metadata.annotations", [OF_THE_OBJECT, OF_THE_OBJECT, OF_THE_OBJECT, OF_THE_OBJECT]),
    row("spec.kubelet.maxPods", PODS_KEPT),
    row("spec.kubelet.podsPerCore", PODS_KEPT),
    row("spec.kubelet.kubeReserved", KUBELET_KEPT),
    row("spec.kubelet.systemReserved", KUBELET_KEPT),
    row("spec.kubeletConfiguration.maxPods", PODS_KEPT),
    row("spec.kubeletConfiguration.podsPerCore", PODS_KEPT),
    row("spec.kubeletConfiguration.kubeReserved", KUBELET_KEPT),
    row("spec.kubeletConfiguration.systemReserved", KUBELET_KEPT),
    row(
        "spec.nodeRegistrationDelay",
        [Kept("`spec.sim.registrationDelay`"), SAME, ADVICE_MAKES_NO_NODES, KWOK_MAKES_NODES],
    ),
];

const MADE_ANEW: [Verdict; 4] = [Ignored, Ignored, Ignored, Ignored];

const TEMPLATE_NODE: &[Row] = &[
    row("metadata.name", MADE_ANEW),
    row(
        "metadata.labels",
        [
            Mostly("pool, type, zone, capacity type by their labels; the others `spec.template.metadata.labels`"),
            Mostly("pool, type, zone, capacity type by their labels; the others `spec.template.metadata.labels`"),
            Mostly("pool, type, zone by their labels; the others `labels`"),
            SAME,
        ],
    ),
    row(
        "metadata.annotations",
        [
            Mostly("counts are limits; the others `spec.template.metadata.annotations`"),
            Mostly("counts are limits; the others `spec.template.metadata.annotations`"),
            Mostly("counts are `quota` and `min`; the others `annotations`"),
            SAME,
        ],
    ),
    row(
        "spec.taints",
        [Kept("`spec.template.spec.taints`"), Kept("`spec.template.spec.taints`"), Kept("`taints`"), SAME],
    ),
    row("spec.podCIDR", MADE_ANEW),
    row("spec.podCIDRs", MADE_ANEW),
    row("spec.providerID", MADE_ANEW),
    row("status.capacity", [Kept("types of the catalogue"), Kept("`resources`"), Kept("`capacity`"), SAME]),
    row(
        "status.allocatable",
        [
            Mostly("`kube=` of the catalogue's types: what it lacks of the capacity"),
            Mostly("`resources`"),
            Mostly("`kubeReservedCapacity`: what it lacks of the capacity"),
            SAME,
        ],
    ),
    row("status", MADE_ANEW),
];

/// Fields that the server or a tool wrote.
const NOT_ASKED: [&str; 11] = [
    "apiVersion",
    "kind",
    "status",
    "metadata.uid",
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.creationTimestamp",
    "metadata.managedFields",
    "metadata.selfLink",
    "metadata.generateName",
    "metadata.finalizers",
];

/// Reports every field of an object that has no counterpart in the target.
pub(super) fn drops(source: Source, object: &str, value: &Value, target: Target, report: &mut Report) {
    let walk = Walk { rows: source.rows(), object, target };
    walk.look(value, "", "", report);
}

struct Walk<'a> {
    rows: &'static [Row],
    object: &'a str,
    target: Target,
}

impl Walk<'_> {
    fn look(&self, value: &Value, path: &str, pattern: &str, report: &mut Report) {
        // A pool of no nodes is a pool of a fixed size, too.
        if says_nothing(value) && pattern != "spec.replicas" {
            return;
        }
        let below = |row: &Row| row.field.strip_prefix(pattern).is_some_and(|rest| rest.starts_with(['.', '[']));
        let parts = self.rows.iter().any(below);
        let row = self.rows.iter().find(|row| row.field == pattern).filter(|_| !parts);
        if let Some(row) = row {
            if let Verdict::Dropped(reason) = row.to(self.target) {
                report.say(self.object, path, value.clone(), Action::Dropped, reason);
            }
            return;
        }
        if NOT_ASKED.contains(&pattern) {
            return;
        }
        let known = pattern.is_empty() || parts || pattern == "metadata";
        match value {
            Value::Object(fields) if known => {
                for (key, value) in fields {
                    let join = |path: &str| if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.look(value, &join(path), &join(pattern), report);
                }
            }
            Value::Array(entries) if known => {
                for (index, value) in entries.iter().enumerate() {
                    self.look(value, &format!("{path}[{index}]"), &format!("{pattern}[]"), report);
                }
            }
            _ => {
                // The row of what it is a part of speaks for it, too.
                let whole = |row: &&Row| pattern.strip_prefix(row.field).is_some_and(|rest| rest.starts_with('.'));
                let reason = match self.rows.iter().find(whole).map(|row| row.to(self.target)) {
                    Some(Verdict::Dropped(reason)) => reason.to_owned(),
                    Some(_) => return,
                    None => format!("{} has nothing like it", self.target.title()),
                };
                report.say(self.object, path, value.clone(), Action::Dropped, reason);
            }
        }
    }
}

/// Whether a value means the same as a missing one.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}
