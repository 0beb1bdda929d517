//! Reasons of node groups of Cluster API, and of advice.

use super::Carrier::{Condition, Event, Warning};
use super::{Reason, act, info};

pub(super) const NODE_GROUPS: &[Reason] = &[
    info(
        "ScaledUpGroup",
        &[Event("MachineDeployment, MachineSet, MachinePool")],
        "replicas were raised for pending pods",
    ),
    info(
        "ScaledDownGroup",
        &[Event("MachineDeployment, MachineSet")],
        "replicas were lowered; the message names the nodes",
    ),
    info("ScaleDown", &[Event("Node")], "the node is removed: unneeded for the time in the message"),
    info(
        "EnforcedMinSize",
        &[Event("MachineDeployment, MachineSet, MachinePool")],
        "replicas were raised to the min-size annotation (`--enforce-min`)",
    ),
    act(
        "BackedOff",
        &[Warning("MachineDeployment, MachineSet, MachinePool")],
        "machines of the group failed or did not become nodes in time; the group is left out of plans for the time in \
         the message",
        "`kubectl describe machine NAME`: the infrastructure provider's error",
    ),
    act(
        "RemovedFailedMachine",
        &[Warning("MachineDeployment, MachineSet, MachinePool")],
        "machines that failed are given up, and replicas lowered by them",
        "as for `BackedOff`; the pods are planned elsewhere",
    ),
    act(
        "InvalidAnnotation",
        &[Warning("MachineDeployment, MachineSet, MachinePool")],
        "an annotation of the group cannot be read and is ignored",
        "correct the annotation in the message",
    ),
];

pub(super) const ADVICE: &[Reason] = &[
    info("Advised", &[Event("ScalingConstraint")], "the ScalingAdvice was written anew; the message counts its nodes"),
    act(
        "InvalidConstraint",
        &[Condition("ScalingConstraint", "ValidationSucceeded=False")],
        "the message has the field; no advice is given",
        "correct the field",
    ),
];
