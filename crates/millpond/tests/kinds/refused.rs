//! Objects that cannot be: each is refused, and the answer names the field and says why.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::server::{Answer, ApiServer};

/// A change to an object that is fine, at a JSON pointer, as YAML; the field that is blamed; a part of what is said.
type Case = (&'static str, &'static str, &'static str, &'static str);

const POOL: &str =
    "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: bad}, spec: {disruption: {budgets: [{nodes: '1'}]},
  template: {metadata: {labels: {team: web}}, spec: {requirements: [],
  nodeClassRef: {group: millpond.dev, kind: NodeClass, name: default}}}}}";
const CLAIM: &str = "{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: bad}, spec: {requirements: [],
  nodeClassRef: {group: millpond.dev, kind: NodeClass, name: default}}}";
const OVERLAY: &str =
    "{apiVersion: karpenter.sh/v1alpha1, kind: NodeOverlay, metadata: {name: bad}, spec: {requirements: []}}";
const BUFFER: &str = "{apiVersion: autoscaling.x-k8s.io/v1beta1, kind: CapacityBuffer, metadata: {name: bad},
  spec: {podTemplateRef: {name: a}, replicas: 1}}";
const CLASS: &str = "{apiVersion: millpond.dev/v1alpha1, kind: NodeClass, metadata: {name: bad},
  spec: {provider: sim, kubelet: {}, sim: {}}}";
const LIMITS: &str =
    "{apiVersion: millpond.dev/v1alpha1, kind: ClusterLimits, metadata: {name: bad}, spec: {limits: {cpu: 1}}}";
const CONSTRAINT: &str = "{apiVersion: sa.gardener.cloud/v1alpha1, kind: ScalingConstraint, metadata: {name: bad},
  spec: {nodePools: [{name: a, region: r, availabilityZones: [z], nodeTemplates: [
    {name: t, architecture: amd64, instanceType: m5.large, capacity: {cpu: 2}}]}]}}";
const ADVICE: &str = "{apiVersion: sa.gardener.cloud/v1alpha1, kind: ScalingAdvice, metadata: {name: bad},
  spec: {constraintRef: {name: a}, scaleOutPlan: {items: []}}}";
const FEEDBACK: &str = "{apiVersion: sa.gardener.cloud/v1alpha1, kind: ScalingFeedback, metadata: {name: bad},
  spec: {constraintRef: {name: a}, scaleOutErrorInfos: []}}";

const REQUIREMENTS: &str = "/spec/template/spec/requirements";
const OF_REQUIREMENTS: &[Case] = &[
    (
        REQUIREMENTS,
        "[{key: karpenter.sh/custom, operator: Exists}]",
        "spec.template.spec.requirements[0].key",
        "label domain \"karpenter.sh\" is restricted",
    ),
    (
        REQUIREMENTS,
        "[{key: sub.karpenter.sh/custom, operator: Exists}]",
        "spec.template.spec.requirements[0].key",
        "label domain \"karpenter.sh\" is restricted",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Exists}, {key: karpenter.sh/nodepool, operator: In, values: [x]}]",
        "spec.template.spec.requirements[1].key",
        "label \"karpenter.sh/nodepool\" is restricted",
    ),
    (
        REQUIREMENTS,
        "[{key: kubernetes.io/hostname, operator: In, values: [x]}]",
        "spec.template.spec.requirements[0].key",
        "label \"kubernetes.io/hostname\" is restricted",
    ),
    (REQUIREMENTS, "[{key: a/b/c, operator: Exists}]", "spec.template.spec.requirements[0].key", "should match"),
    (REQUIREMENTS, "[{key: Test.com/a, operator: Exists}]", "spec.template.spec.requirements[0].key", "should match"),
    (REQUIREMENTS, "[{key: 'a b', operator: Exists}]", "spec.template.spec.requirements[0].key", "should match"),
    (REQUIREMENTS, "[{key: a, operator: Like}]", "spec.template.spec.requirements[0].operator", "supported values"),
    (REQUIREMENTS, "[{operator: Exists}]", "spec.template.spec.requirements[0].key", "Required"),
    (REQUIREMENTS, "[{key: a}]", "spec.template.spec.requirements[0].operator", "Required"),
    (REQUIREMENTS, "[{key: a, operator: In}]", "spec.template.spec.requirements[0].values", "must have a value"),
    (
        REQUIREMENTS,
        "[{key: a, operator: In, values: []}]",
        "spec.template.spec.requirements[0].values",
        "must have a value defined",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: In, values: ['b c']}]",
        "spec.template.spec.requirements[0].values[0]",
        "should match",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Gt, values: ['1', '2']}]",
        "spec.template.spec.requirements[0].values",
        "must have a single positive integer value",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Lt}]",
        "spec.template.spec.requirements[0].values",
        "must have a single positive integer value",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Gte, values: [many]}]",
        "spec.template.spec.requirements[0].values",
        "must have a single positive integer value",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Lte, values: ['5.5']}]",
        "spec.template.spec.requirements[0].values",
        "must have a single positive integer value",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: In, values: [b], minValues: 2}]",
        "spec.template.spec.requirements[0].minValues",
        "must have at least that many values",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Exists, minValues: 51}]",
        "spec.template.spec.requirements[0].minValues",
        "less than or equal to 50",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Exists, minValues: 0}]",
        "spec.template.spec.requirements[0].minValues",
        "greater than or equal to 1",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]",
        "spec.template.spec.requirements",
        "contradict each other: a label that must not exist",
    ),
    (
        REQUIREMENTS,
        "[{key: a, operator: Gt, values: ['4']}, {key: a, operator: Lt, values: ['5']}]",
        "spec.template.spec.requirements",
        "contradict each other: no number lies between the bounds",
    ),
    ("/spec/template/spec/requirements", "null", "spec.template.spec.requirements", "Required"),
];

const OF_POOLS: &[Case] = &[
    ("/metadata/name", "a-name-that-is-much-too-long-for-the-nodes-that-come-of-it-1234", "metadata.name", "Too long"),
    ("/spec/template", "null", "spec.template", "Required"),
    ("/spec/template/metadata/labels", "{karpenter.sh/custom: a}", "spec.template.metadata.labels", "restricted"),
    ("/spec/template/metadata/labels", "{karpenter.sh/nodepool: a}", "spec.template.metadata.labels", "restricted"),
    ("/spec/template/metadata/labels", "{kubernetes.io/hostname: a}", "spec.template.metadata.labels", "restricted"),
    ("/spec/template/metadata/labels", "{'a b': c}", "spec.template.metadata.labels", "is not the name of a label"),
    ("/spec/template/metadata/labels", "{team: 'a b'}", "spec.template.metadata.labels.team", "should match"),
    ("/spec/template/spec/nodeClassRef", "null", "spec.template.spec.nodeClassRef", "Required"),
    ("/spec/template/spec/nodeClassRef/name", "''", "spec.template.spec.nodeClassRef.name", "at least 1"),
    (
        "/spec/template/spec/nodeClassRef/group",
        "millpond.dev/v1alpha1",
        "spec.template.spec.nodeClassRef.group",
        "should match",
    ),
    ("/spec/template/spec/nodeClassRef/kind", "null", "spec.template.spec.nodeClassRef.kind", "Required"),
    ("/spec/template/spec/taints", "[{key: a}]", "spec.template.spec.taints[0].effect", "Required"),
    (
        "/spec/template/spec/taints",
        "[{key: a, effect: Sometimes}]",
        "spec.template.spec.taints[0].effect",
        "supported values",
    ),
    (
        "/spec/template/spec/startupTaints",
        "[{key: '', effect: NoSchedule}]",
        "spec.template.spec.startupTaints[0].key",
        "at least 1",
    ),
    (
        "/spec/template/spec/taints",
        "[{key: a, value: '???', effect: NoSchedule}]",
        "spec.template.spec.taints[0].value",
        "should match",
    ),
    ("/spec/template/spec/expireAfter", "1hr", "spec.template.spec.expireAfter", "should match"),
    ("/spec/template/spec/expireAfter", "-1s", "spec.template.spec.expireAfter", "should match"),
    ("/spec/template/spec/expireAfter", "FooNever", "spec.template.spec.expireAfter", "should match"),
    ("/spec/template/spec/expireAfter", "99999999999999999999h", "spec.template.spec.expireAfter", "should match"),
    (
        "/spec/template/spec/terminationGracePeriod",
        "Never",
        "spec.template.spec.terminationGracePeriod",
        "should match",
    ),
    ("/spec/template/spec/resources", "{requests: {cpu: 1}}", "spec.template.spec.resources", "unknown field"),
    ("/spec/disruption/consolidateAfter", "soon", "spec.disruption.consolidateAfter", "should match"),
    (
        "/spec/disruption/consolidationPolicy",
        "balanced",
        "spec.disruption.consolidationPolicy",
        "supported values: \"WhenEmpty\", \"WhenEmptyOrUnderutilized\", \"Balanced\"",
    ),
    ("/spec/disruption/budgets/0/nodes", "101%", "spec.disruption.budgets[0].nodes", "should match"),
    ("/spec/disruption/budgets/0/nodes", "'-10'", "spec.disruption.budgets[0].nodes", "should match"),
    ("/spec/disruption/budgets/0/nodes", "5.5", "spec.disruption.budgets[0].nodes", "must be of type string"),
    ("/spec/disruption/budgets/0/schedule", "'@daily'", "spec.disruption.budgets[0]", "must be set with 'duration'"),
    ("/spec/disruption/budgets/0/duration", "8h", "spec.disruption.budgets[0]", "must be set with 'duration'"),
    ("/spec/disruption/budgets/0", SECONDS, "spec.disruption.budgets[0].duration", "should match"),
    ("/spec/disruption/budgets/0", FOUR_FIELDS, "spec.disruption.budgets[0].schedule", "is not a schedule"),
    ("/spec/disruption/budgets/0", MINUTE_60, "spec.disruption.budgets[0].schedule", "is not a schedule"),
    ("/spec/disruption/budgets/0", MONTH_NAME, "spec.disruption.budgets[0].schedule", "is not a schedule"),
    ("/spec/disruption/budgets/0", STEP_0, "spec.disruption.budgets[0].schedule", "is not a schedule"),
    ("/spec/disruption/budgets/0", OFTEN, "spec.disruption.budgets[0].schedule", "is not a schedule"),
    (
        "/spec/disruption/budgets/0/timeZone",
        "UTC",
        "spec.disruption.budgets[0].timeZone",
        "must be set with 'schedule'",
    ),
    ("/spec/disruption/budgets/0/reasons", "[expired]", "spec.disruption.budgets[0].reasons[0]", "supported values"),
    ("/spec/disruption/budgets/0/reasons", "[Empty, Empty]", "spec.disruption.budgets[0].reasons[1]", "Duplicate"),
    ("/spec/limits", "{cpu: 5x}", "spec.limits.cpu", "should match"),
    ("/spec/limits", "{cpu: -5}", "spec.limits.cpu", "greater than or equal to 0"),
    ("/spec/limits", "{memory: '-5Gi'}", "spec.limits.memory", "should match"),
    ("/spec/limits", "{memory: '1E30'}", "spec.limits.memory", "should match"),
    ("/spec/limits", "{memory: 9Ei}", "spec.limits.memory", "should match"),
    ("/spec/limits", "{memory: 1.5}", "spec.limits.memory", "must be of type"),
    ("/spec/weight", "0", "spec.weight", "greater than or equal to 1"),
    ("/spec/weight", "101", "spec.weight", "less than or equal to 100"),
    ("/spec/replicas", "-1", "spec.replicas", "greater than or equal to 0"),
    ("/spec/weights", "5", "spec.weights", "unknown field"),
];

const SECONDS: &str = "{nodes: '1', schedule: '* * * * *', duration: 30s}";
const FOUR_FIELDS: &str = "{nodes: '1', schedule: '* * * *', duration: 1h}";
const MINUTE_60: &str = "{nodes: '1', schedule: '60 * * * *', duration: 1h}";
const MONTH_NAME: &str = "{nodes: '1', schedule: '0 0 1 juno *', duration: 1h}";
const STEP_0: &str = "{nodes: '1', schedule: '*/0 * * * *', duration: 1h}";
const OFTEN: &str = "{nodes: '1', schedule: '@often', duration: 1h}";

/// Parts of `spec` that go together, or do not.
const OF_STATIC_POOLS: &[Case] = &[
    ("/spec/weight", "5", "spec.weight", "'weight' is not supported on static NodePools"),
    ("/spec/limits", "{cpu: 5}", "spec.limits", "only 'limits.nodes' is supported on static NodePools"),
    ("/spec/limits", "{nodes: 5, memory: 5Gi}", "spec.limits", "only 'limits.nodes' is supported on static NodePools"),
];

const OF_CLAIMS: &[Case] = &[
    ("/spec/requirements", "[{key: karpenter.sh/custom, operator: Exists}]", "spec.requirements[0].key", "restricted"),
    ("/spec/requirements", "[{key: a, operator: In}]", "spec.requirements[0].values", "must have a value defined"),
    ("/spec/nodeClassRef", "null", "spec.nodeClassRef", "Required"),
    ("/spec/expireAfter", "1hr", "spec.expireAfter", "should match"),
    ("/spec/resources", "{requests: {cpu: many}}", "spec.resources.requests.cpu", "should match"),
    ("/spec/taints", "[{key: '???', effect: NoSchedule}]", "spec.taints[0].key", "should match"),
];

const OF_OVERLAYS: &[Case] = &[
    ("/spec/requirements", "null", "spec.requirements", "Required"),
    ("/spec/requirements", "[{key: a, operator: NotIn}]", "spec.requirements[0].values", "must have a value defined"),
    (
        "/spec/requirements",
        "[{key: a, operator: Exists, minValues: 1}]",
        "spec.requirements[0].minValues",
        "unknown field",
    ),
    ("/spec/price", "'+42'", "spec.price", "should match"),
    ("/spec/price", "'1e10'", "spec.price", "should match"),
    ("/spec/priceAdjustment", "'42%'", "spec.priceAdjustment", "should match"),
    ("/spec/priceAdjustment", "'-101.1%'", "spec.priceAdjustment", "should match"),
    ("/spec", "{requirements: [], price: '1', priceAdjustment: '+1'}", "spec.priceAdjustment", "cannot set both"),
    ("/spec/capacity", "{cpu: 4}", "spec.capacity", "invalid resource restricted"),
    ("/spec/weight", "10001", "spec.weight", "less than or equal to 10000"),
];

const OF_BUFFERS: &[Case] = &[
    ("/spec/replicas", "null", "spec.podTemplateRef", "replicas or limits must also be set"),
    ("/spec/scalableRef", "{kind: Deployment, name: a}", "spec.scalableRef", "but not both"),
    ("/spec/scalableRef", "{kind: Deployment}", "spec.scalableRef.name", "Required"),
    ("/spec/replicas", "-1", "spec.replicas", "greater than or equal to 0"),
    ("/spec/podTemplateRef", "{name: ''}", "spec.podTemplateRef.name", "at least 1"),
];

const OF_CLASSES: &[Case] = &[
    ("/spec/provider", "null", "spec.provider", "Required"),
    ("/spec/provider", "ec2", "spec.provider", "supported values: \"sim\""),
    ("/spec/kubelet/maxPods", "0", "spec.kubelet.maxPods", "greater than or equal to 1"),
    ("/spec/kubelet/systemReserved", "{nvidia.com/gpu: 1}", "spec.kubelet.systemReserved", "can be reserved"),
    ("/spec/backoff", "{initial: 1h}", "spec.backoff.max", "shorter than 'initial'"),
    ("/spec/backoff", "{initial: soon}", "spec.backoff.initial", "should match"),
    ("/spec/sim/registrationDelay", "1d", "spec.sim.registrationDelay", "should match"),
    ("/spec/sim/registrationFailures", "101%", "spec.sim.registrationFailures", "should match"),
    ("/spec/sim/stockOuts", "[{period: 5m}]", "spec.sim.stockOuts[0].period", "must be set with 'share'"),
    ("/spec/sim/stockOuts", "[{zone: ''}]", "spec.sim.stockOuts[0].zone", "at least 1"),
    ("/spec/sim/quotas", "[{zone: a}]", "spec.sim.quotas[0]", "limits nothing"),
    ("/spec/sim/calls", "[{verbs: [list], lost: true}]", "spec.sim.calls[0].verbs[0]", "supported values"),
    ("/spec/sim/calls", "[{verbs: [create]}]", "spec.sim.calls[0]", "does nothing"),
    ("/spec/sim/calls", "[{error: other, lost: true}]", "spec.sim.calls[0].lost", "has no answer to lose"),
    ("/spec/sim/calls", "[{error: other, retryAfter: 1s}]", "spec.sim.calls[0].retryAfter", "goes with"),
    ("/spec/sim/calls", "[{lost: true, share: 1%, nth: [1]}]", "spec.sim.calls[0].share", "only one of them"),
    ("/spec/sim/throttle", "{perSecond: 0}", "spec.sim.throttle.perSecond", "greater than or equal to 1"),
    ("/spec/sim/interruptions", "[{zone: a}]", "spec.sim.interruptions[0]", "either 'at' or 'perHour'"),
    ("/spec/sim/interruptions", "[{perHour: 1%, share: 1%}]", "spec.sim.interruptions[0].share", "set with 'at'"),
];

const OF_LIMITS: &[Case] = &[
    ("/spec", "{}", "spec", "limits nothing"),
    ("/spec/limits", "{}", "spec.limits", "at least 1"),
    ("/spec/dollarsPerHour", "'-5'", "spec.dollarsPerHour", "should match"),
    ("/spec/dollarsPerHour", "'cheap'", "spec.dollarsPerHour", "should match"),
];

const OF_CONSTRAINTS: &[Case] = &[
    ("/spec/nodePools/0/region", "''", "spec.nodePools[0].region", "at least 1"),
    ("/spec/nodePools/0/availabilityZones", "[]", "spec.nodePools[0].availabilityZones", "at least 1"),
    ("/spec/nodePools/0/nodeTemplates", "[]", "spec.nodePools[0].nodeTemplates", "at least 1"),
    ("/spec/nodePools/0/priority", "-1", "spec.nodePools[0].priority", "greater than or equal to 0"),
    ("/spec/nodePools/0/name", "null", "spec.nodePools[0].name", "Required"),
    (
        "/spec/defaultBackoffPolicy",
        "{initialBackoff: 5m, maxBackoff: 3m}",
        "spec.defaultBackoffPolicy.maxBackoff",
        "shorter than",
    ),
];

const OF_ADVICE: &[Case] = &[
    ("/spec/constraintRef", "null", "spec.constraintRef", "Required"),
    ("/spec/scaleOutPlan/items", "[{poolName: a}]", "spec.scaleOutPlan.items[0].delta", "Required"),
];

const OF_FEEDBACK: &[Case] = &[(
    "/spec/scaleOutErrorInfos",
    "[{availabilityZone: a, instanceType: b, errorType: Other, failCount: 1}]",
    "spec.scaleOutErrorInfos[0].errorType",
    "supported values",
)];

/// Changes of objects that are there: the object, the change, the field, what is said.
const CHANGES: &[Case] = &[
    (
        POOL,
        "{spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws}}}}}",
        "spec.template.spec.nodeClassRef.group",
        "nodeClassRef.group is immutable",
    ),
    (
        POOL,
        "{spec: {template: {spec: {nodeClassRef: {kind: EC2NodeClass}}}}}",
        "spec.template.spec.nodeClassRef.kind",
        "nodeClassRef.kind is immutable",
    ),
    (POOL, "{spec: {replicas: 1}}", "spec.replicas", "Cannot transition NodePool between static"),
    (CLAIM, "{spec: {expireAfter: 1h}}", "spec", "spec is immutable"),
    (CLAIM, "{spec: {resources: {requests: {cpu: 1}}}}", "spec", "spec is immutable"),
];

/// Goes through all tables; gives what was said in each case.
pub(crate) async fn check(server: &ApiServer) -> Vec<(String, BTreeSet<String>)> {
    let tables = [
        (POOL, OF_REQUIREMENTS),
        (POOL, OF_POOLS),
        (CLAIM, OF_CLAIMS),
        (OVERLAY, OF_OVERLAYS),
        (BUFFER, OF_BUFFERS),
        (CLASS, OF_CLASSES),
        (LIMITS, OF_LIMITS),
        (CONSTRAINT, OF_CONSTRAINTS),
        (ADVICE, OF_ADVICE),
        (FEEDBACK, OF_FEEDBACK),
    ];
    let mut all = Vec::new();
    let mut failures = Vec::new();
    for (base, cases) in tables {
        let base: Value = yaml(base);
        taken(server, &base).await;
        for case in cases {
            let object = changed(&base, case.0, yaml(case.1));
            judge(case, server.create(&object).await, &mut all, &mut failures);
        }
    }
    let fixed = changed(&yaml(POOL), "/spec/replicas", json!(3));
    for case in OF_STATIC_POOLS {
        let object = changed(&fixed, case.0, yaml(case.1));
        judge(case, server.create(&object).await, &mut all, &mut failures);
    }
    for case in CHANGES {
        let object = yaml(case.0);
        assert_eq!(server.create(&object).await.code, 201, "{object}");
        judge(case, server.merge(&object, "", &yaml(case.1)).await, &mut all, &mut failures);
        server.delete(&object).await;
    }
    assert_eq!(server.create(&fixed).await.code, 201);
    let case = ("", "{spec: {replicas: null}}", "spec.replicas", "Cannot transition NodePool between static");
    judge(&case, server.merge(&fixed, "", &yaml(case.1)).await, &mut all, &mut failures);
    server.delete(&fixed).await;
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), all.len(), failures.join("\n"));
    all
}

/// What the changes are made to is itself fine.
async fn taken(server: &ApiServer, base: &Value) {
    let answer = server.create(base).await;
    assert_eq!(answer.code, 201, "{:#}", answer.body);
    server.delete(base).await;
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The object with another value at a place; `null` takes it away.
fn changed(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    match (parent, value) {
        (Value::Object(fields), Value::Null) => drop(fields.remove(name)),
        (Value::Object(fields), value) => drop(fields.insert(name.to_owned(), value)),
        (Value::Array(items), value) => items[name.parse::<usize>().unwrap()] = value,
        (other, _) => panic!("{other} has no {name}"),
    }
    object
}

/// Holds an answer against what is expected of it.
fn judge(case: &Case, answer: Answer, all: &mut Vec<(String, BTreeSet<String>)>, failures: &mut Vec<String>) {
    let (place, value, field, says) = case;
    let said = said(&answer.body);
    let title = format!("{place} {value}");
    let blamed = said.iter().any(|line| line.starts_with(&format!("{field}: ")) && line.contains(says));
    if !(400..500).contains(&answer.code) || !blamed {
        failures.push(format!("{title}\n  wanted: {field}: … {says}\n  got: {} {said:#?}", answer.code));
    }
    all.push((title, said));
}

/// Each field that is blamed with what is said of it.
fn said(status: &Value) -> BTreeSet<String> {
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    let mut said: BTreeSet<_> = causes
        .iter()
        .map(|cause| format!("{}: {}", cause["field"].as_str().unwrap_or(""), cause["message"].as_str().unwrap_or("")))
        .collect();
    // Fields that the schema does not know are told in the message alone.
    let message = status["message"].as_str().unwrap_or_default();
    if let Some((_, field)) = message.split_once("unknown field \"") {
        said.insert(format!("{}: unknown field", field.split('"').next().unwrap_or_default()));
    }
    said
}
