//! Reasons of NodePools, NodeClaims, their nodes and the pods on them.

use super::Carrier::{Condition, Event, Warning};
use super::{Reason, act, info};

pub(super) const PENDING_PODS: &[Reason] = &[
    info("Nominated", &[Event("Pod")], "a round planned the pod onto the node of the claim in the message"),
    info("TriggeredScaleUp", &[Event("Pod")], "a node group of Cluster API grows for the pod"),
    act(
        "FailedScheduling",
        &[Warning("Pod")],
        "no pool can give the pod a node; the message has the first rule that fails. kube-scheduler uses the same \
         reason for nodes that exist: `reportingComponent` tells which of the two spoke",
        "`millpond explain pod/NAME` names the rule in every pool and one edit that would help",
    ),
];

pub(super) const LAUNCHES: &[Reason] = &[
    act(
        "InsufficientCapacityError",
        &[Warning("NodeClaim, Pod")],
        "the provider has none of the offerings that the claim allows, or a quota is used up; the claim is deleted, \
         the offerings back off, and the pods are planned again",
        "allow more instance types, zones or capacity types in the NodePool, or raise the quota",
    ),
    act(
        "NodeClassNotReady",
        &[Warning("NodeClaim, Pod")],
        "the provider cannot launch with this NodeClass; the claim is deleted and the pool backs off",
        "`kubectl describe nodeclass NAME`: its `Ready` condition says what is wrong",
    ),
    act(
        "LimitsExceeded",
        &[Warning("NodeClaim, Pod")],
        "the claim was written so late that its reservation had lapsed, and the limits no longer allow it; it is deleted and \
         the pool backs off",
        "if it is frequent: the API server is slow; else raise `spec.limits` of the NodePool or the ClusterLimits",
    ),
    act(
        "LaunchFailed",
        &[
            Warning("NodeClaim, Pod, NodePool"),
            Condition("NodeClaim", "Launched=Unknown"),
            Condition("NodePool", "NodeRegistrationHealthy=False"),
            Condition("NodePool", "Launchable=False"),
        ],
        "the provider's call failed; it is repeated after 1 s, then later each time, up to 1 min. `Launchable=False`: the \
         pool takes no part in plans for a while",
        "read the provider's message; rights and network are the usual causes",
    ),
    act(
        "LaunchTimeout",
        &[Warning("NodeClaim, Pod"), Condition("NodePool", "NodeRegistrationHealthy=False")],
        "no launch succeeded within 5 min; the claim is deleted and its pods are planned again",
        "look for the `LaunchFailed` events before it",
    ),
    act(
        "UnknownCloud",
        &[Warning("NodeClaim"), Condition("NodeClaim", "CloudKnown=False")],
        "the claim's machine belongs to a cloud that this leader does not have; the claim is left alone",
        "start the controller with the data directory (or account) of that cloud",
    ),
];

pub(super) const JOINS: &[Reason] = &[
    info(
        "AwaitingReconciliation",
        &[Condition("NodeClaim", "every condition"), Condition("NodePool", "NodeRegistrationHealthy=Unknown")],
        "nothing has happened yet",
    ),
    info(
        "ReconcilingDependents",
        &[Condition("all", "Ready=Unknown")],
        "a condition that `Ready` depends on is not known yet; the message names it",
    ),
    act(
        "UnhealthyDependents",
        &[Condition("all", "Ready=False")],
        "a condition that `Ready` depends on is false; the message names it",
        "read that condition",
    ),
    info(
        "NodeNotFound",
        &[Condition("NodeClaim", "Registered=Unknown"), Condition("NodeClaim", "Initialized=Unknown")],
        "the machine runs, its Node has not registered yet",
    ),
    act(
        "NodeNotReady",
        &[Condition("NodeClaim", "Initialized=Unknown")],
        "the Node exists, its kubelet is not ready",
        "if it lasts: the Node's own conditions, usually the network plugin",
    ),
    act(
        "StartupTaintsExist",
        &[Condition("NodeClaim", "Initialized=Unknown")],
        "a taint of `startupTaints` is still on the Node",
        "if it lasts: the daemon that removes the taint does not run there",
    ),
    act(
        "KnownEphemeralTaintsExist",
        &[Condition("NodeClaim", "Initialized=Unknown")],
        "Kubernetes' own taint for starting nodes is still there",
        "if it lasts: kubelet, node controller or cloud controller manager",
    ),
    act(
        "ResourceNotRegistered",
        &[Condition("NodeClaim", "Initialized=Unknown")],
        "the Node does not report a resource that the claim promised",
        "if it lasts: the device plugin, or a NodeOverlay with a resource that the nodes do not have",
    ),
    act(
        "RegistrationTimeout",
        &[Warning("NodeClaim")],
        "no Node registered within 15 min of the launch; machine and claim are deleted",
        "the machine's console: bootstrap data, network, rights to join",
    ),
    act(
        "RegistrationFailed",
        &[Condition("NodePool", "NodeRegistrationHealthy=False")],
        "two of the last four machines that the pool launched did not become Nodes",
        "see `RegistrationTimeout`; a change of the pool or its class clears the record",
    ),
];

pub(super) const DISRUPTION: &[Reason] = &[
    info(
        "NodePoolDrifted",
        &[Condition("NodeClaim", "Drifted=True")],
        "the pool's template has changed since the launch; the node is replaced as budgets allow",
    ),
    info(
        "RequirementsDrifted",
        &[Condition("NodeClaim", "Drifted=True")],
        "the node's labels no longer meet the pool's requirements",
    ),
    info(
        "InstanceTypeNotFound",
        &[Condition("NodeClaim", "Drifted=True")],
        "the catalogue no longer has the node's type in its zone and capacity type",
    ),
    info("ImageDrift", &[Condition("NodeClaim", "Drifted=True")], "the NodeClass asks for another image"),
    info("KubeletDrift", &[Condition("NodeClaim", "Drifted=True")], "the NodeClass asks for another kubelet"),
    info("Empty", &[Condition("NodeClaim", "DisruptionReason=True")], "the node goes because only daemons run there"),
    info(
        "Underutilized",
        &[Condition("NodeClaim", "DisruptionReason=True")],
        "the node goes because its pods fit elsewhere or on cheaper nodes",
    ),
    info("Drifted", &[Condition("NodeClaim", "DisruptionReason=True")], "the node goes because it has drifted"),
    info(
        "Expired",
        &[Condition("NodeClaim", "DisruptionReason=True")],
        "the node goes because it reached `expireAfter`",
    ),
    info("DisruptionLaunching", &[Event("NodeClaim")], "a replacement is launched; the old node still runs"),
    info(
        "DisruptionWaitingReadiness",
        &[Event("NodeClaim")],
        "the replacement has to be initialized before the old node is drained",
    ),
    act(
        "DisruptionTerminating",
        &[Event("Node, NodeClaim"), Warning("Node, NodeClaim")],
        "the node is being replaced or removed; a warning if the cause is node repair",
        "a warning: the message has the condition of the Node that failed",
    ),
    info(
        "DisruptionBlocked",
        &[Event("Node, NodeClaim, NodePool")],
        "a rule keeps the node: `karpenter.sh/do-not-disrupt`, a PodDisruptionBudget, a pod without an owner, the \
         pool's least size, a budget that allows nothing. `millpond explain node/NAME` has all of them",
    ),
    info(
        "Unconsolidatable",
        &[Event("Node, NodeClaim")],
        "consolidation keeps the node: it is off for the pool, the pods have no other place, or nothing is saved",
    ),
    act(
        "NodeRepairBlocked",
        &[Warning("Node")],
        "the node is broken, and so are too many others: replacing them may not be the cure; asked again after 5 min",
        "look for a common cause (network, control plane); delete the NodeClaim to replace a node anyway",
    ),
    act(
        "SpotInterrupted",
        &[Warning("NodeClaim, Node")],
        "the provider takes the spot machine back; the node is drained",
        "nothing at once; if it is frequent, allow on-demand or more types",
    ),
    act(
        "InstanceTerminating",
        &[Warning("NodeClaim, Node")],
        "the machine ends by itself or at the provider's wish; claim and node go",
        "if you did not end it: the provider's records",
    ),
];

pub(super) const TERMINATION: &[Reason] = &[
    info("Evicted", &[Event("Pod")], "the pod was evicted; the message has the reason for which the node goes"),
    act(
        "Disrupted",
        &[Event("Pod")],
        "the pod was deleted without regard to its budget: the node's termination grace period ends",
        "raise `terminationGracePeriod` of the NodePool if the pod needs longer",
    ),
    act(
        "InvalidDoNotDisruptAnnotation",
        &[Warning("Pod")],
        "`karpenter.sh/do-not-disrupt` is neither `true` nor a duration and is ignored",
        "correct the annotation",
    ),
    act(
        "Draining",
        &[Condition("NodeClaim", "Drained=Unknown")],
        "pods are still on the node; the message says which",
        "if it lasts: the `FailedDraining` events of the Node",
    ),
    act(
        "FailedDraining",
        &[Warning("Node")],
        "a pod cannot be evicted: a PodDisruptionBudget, `karpenter.sh/do-not-disrupt`, or an error of the API",
        "change the budget or the annotation, or delete the pod",
    ),
    act(
        "TerminationGracePeriodExpiring",
        &[Warning("Node, NodeClaim")],
        "the node goes at the time in the message, whatever holds its pods",
        "move what must not be cut off before that",
    ),
    act(
        "AwaitingVolumeDetachment",
        &[Event("Node"), Condition("NodeClaim", "VolumesDetached=Unknown")],
        "VolumeAttachments of the node still exist",
        "if it lasts: the storage driver's controller",
    ),
    act(
        "TerminationGracePeriodElapsed",
        &[Condition("NodeClaim", "VolumesDetached=False")],
        "the node goes with volumes attached, since its grace period is over",
        "check the volumes in the message before they are used elsewhere",
    ),
    act(
        "FailedTermination",
        &[Warning("NodeClaim")],
        "the provider does not end the machine; the call is repeated, up to 1 min apart",
        "read the provider's message; end the machine by hand if it is gone for good",
    ),
];

pub(super) const POOLS: &[Reason] = &[
    act(
        "NodePoolValidationFailed",
        &[Condition("NodePool", "ValidationSucceeded=False")],
        "the message has the field; nothing is planned for the pool",
        "correct the field",
    ),
    act(
        "NodeClassNotFound",
        &[Condition("NodePool", "NodeClassReady=False")],
        "`nodeClassRef` names a NodeClass that does not exist",
        "create the class or correct the name",
    ),
    act(
        "NodeClassTerminating",
        &[Condition("NodePool", "NodeClassReady=False")],
        "the NodeClass is being deleted; it stays until its claims are gone",
        "name another class in the pool",
    ),
    act(
        "NodeClassNotManaged",
        &[Condition("NodePool", "NodeClassReady=False"), Warning("NodePool")],
        "the class is of another provider, and for 30 s no controller has looked at the pool",
        "name a NodeClass of `millpond.dev`, or run the controller of that provider",
    ),
    act(
        "NoCompatibleInstanceTypes",
        &[Condition("NodePool", "Launchable=False"), Warning("NodePool")],
        "the pool's own requirements leave no instance type; the message has the one that took the last type, and the \
         nearest value. The pool is not `Ready`",
        "correct the requirement; `millpond explain pool/NAME` counts the types that each requirement leaves",
    ),
    act(
        "OutOfStock",
        &[Condition("NodePool", "Launchable=False"), Warning("NodePool")],
        "none of the pool's offerings could be had lately; they are tried again by themselves",
        "nothing at once; if it lasts: allow more types, zones or capacity types",
    ),
    act(
        "LimitReached",
        &[Condition("NodePool", "Launchable=False"), Warning("NodePool")],
        "`spec.limits` leaves no room for the smallest node. If it never does, the pool is not `Ready`",
        "raise the limit",
    ),
    act(
        "ClusterLimitReached",
        &[Condition("NodePool", "Launchable=False"), Warning("NodePool")],
        "a ClusterLimits object leaves no room for the smallest node of the pool",
        "raise the limit",
    ),
    info(
        "NodeClassReadinessUnknown",
        &[Condition("NodePool", "NodeClassReady=Unknown")],
        "the NodeClass has no `Ready` condition yet",
    ),
    act(
        "ValidationFailed",
        &[Condition("NodeClass", "Ready=False")],
        "a field of the class contradicts another; the message has both",
        "correct the class",
    ),
    act(
        "NotReady",
        &[Condition("NodeClass", "Ready=False")],
        "the class names a catalogue or an overlay that is missing or cannot be read, or the provider refuses it",
        "read the message; `millpond catalog types --catalog FILE` reads the same file",
    ),
    act(
        "RuntimeValidation",
        &[Condition("NodeOverlay", "ValidationSucceeded=False")],
        "the overlay is not valid and is not used",
        "correct the field in the message",
    ),
    act(
        "Conflict",
        &[Condition("NodeOverlay", "ValidationSucceeded=False")],
        "another overlay of the same weight sets the same price or resource; this one is not used",
        "give one of the two another `weight`",
    ),
];

pub(super) const BUFFERS: &[Reason] = &[
    info(
        "Resolved",
        &[Condition("CapacityBuffer", "ReadyForProvisioning=True")],
        "the pods to keep capacity for are known",
    ),
    act(
        "PodTemplateNotFound",
        &[Condition("CapacityBuffer", "ReadyForProvisioning=False")],
        "`podTemplateRef` names a PodTemplate that does not exist in the namespace",
        "create it or correct the name",
    ),
    act(
        "ScalableRefNotFound",
        &[Condition("CapacityBuffer", "ReadyForProvisioning=False")],
        "`scalableRef` names a workload that does not exist in the namespace",
        "create it or correct the name",
    ),
    act(
        "ResolutionFailed",
        &[Condition("CapacityBuffer", "ReadyForProvisioning=False")],
        "neither reference is set, the kind is none that a buffer can be for, or the object cannot be read",
        "correct the reference in the message",
    ),
    info(
        "FitsExistingCapacity",
        &[Condition("CapacityBuffer", "Provisioning=True")],
        "all pods of the buffer would fit on nodes that run",
    ),
    info(
        "RequiresNewCapacity",
        &[Condition("CapacityBuffer", "Provisioning=False")],
        "nodes are still to come, or a limit prevents them; the message counts both",
    ),
    act(
        "BufferEmpty",
        &[Condition("CapacityBuffer", "Provisioning=False")],
        "the buffer has no pods",
        "raise `replicas`, `percentage` or `limits`, or the replicas of the workload",
    ),
    act(
        "NotReadyForProvisioning",
        &[Condition("CapacityBuffer", "Provisioning=False")],
        "the pods to keep capacity for are not known",
        "see the condition `ReadyForProvisioning`",
    ),
];
