//! Why a pod is unschedulable, as a type and with kube-scheduler's messages.

use std::collections::BTreeMap;
use std::fmt;

/// Why one node does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The node is cordoned.
    Cordoned,
    /// A taint is not tolerated.
    Taint,
    /// Node selector or required node affinity do not match.
    NodeAffinity,
    /// The pod is tied to other nodes by name.
    TiedElsewhere,
    /// A host port is taken.
    HostPorts,
    /// The node holds as many pods as it may.
    TooManyPods,
    /// Too little of a resource is left.
    Insufficient(String),
    /// A single-pod claim is in use elsewhere.
    ClaimInUse,
    /// A volume cannot be reached from this node.
    VolumeNodeAffinity,
    /// No volume could be provisioned for this node.
    VolumeUnavailable,
    /// A claim is bound to a volume that does not exist.
    VolumeMissing,
    /// A volume lives in another zone.
    VolumeZone,
    /// A hard spread constraint would be broken.
    Spread,
    /// The node lacks a topology label of a hard spread constraint.
    SpreadLabelMissing,
    /// Required pod affinity does not hold.
    PodAffinity,
    /// Required pod anti-affinity does not hold.
    PodAntiAffinity,
    /// A running pod's anti-affinity forbids it.
    ExistingAntiAffinity,
    /// Preemption: there is no pod of lower priority.
    NoVictims,
    /// Preemption: removing pods cannot help.
    PreemptionFutile,
}

impl Reason {
    /// Whether it depends only on the node and its pods, by a rule that [`super::queueing_hint`] checks.
    fn is_local(&self) -> bool {
        match self {
            Self::Cordoned
            | Self::Taint
            | Self::NodeAffinity
            | Self::TiedElsewhere
            | Self::HostPorts
            | Self::TooManyPods
            | Self::Insufficient(_) => true,
            Self::ClaimInUse
            | Self::VolumeNodeAffinity
            | Self::VolumeUnavailable
            | Self::VolumeMissing
            | Self::VolumeZone
            | Self::Spread
            | Self::SpreadLabelMissing
            | Self::PodAffinity
            | Self::PodAntiAffinity
            | Self::ExistingAntiAffinity
            | Self::NoVictims
            | Self::PreemptionFutile => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cordoned => "node(s) were unschedulable",
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::TiedElsewhere => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::HostPorts => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(resource) => return write!(out, "Insufficient {resource}"),
            Self::ClaimInUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
                 already in-use by another pod"
            }
            Self::VolumeNodeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::VolumeUnavailable => "node(s) didn't find available persistent volumes to bind",
            Self::VolumeMissing => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            Self::VolumeZone => "node(s) had no available volume zone",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadLabelMissing => "node(s) didn't match pod topology spread constraints (missing required label)",
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
            Self::NoVictims => "No preemption victims found for incoming pod",
            Self::PreemptionFutile => "Preemption is not helpful for scheduling",
        })
    }
}

/// Why a pod has no place anywhere; `Display` is the message of the `Unschedulable` condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: usize,
    /// A reason that needs no look at any node.
    pub before_nodes: Option<String>,
    /// How many nodes gave which reason.
    pub reasons: BTreeMap<Reason, usize>,
    /// The result of the search for victims.
    pub preemption: Option<Preemption>,
}

/// The result of a search for victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// The pod's policy forbids it.
    Never,
    /// Victims on the nominated node are still leaving.
    Waiting,
    /// Preemption would help on no node; the number of nodes, and the reasons.
    Futile(usize, BTreeMap<Reason, usize>),
    /// Victims were chosen, so that there is nothing to say.
    Found,
    /// Preemption was not tried, since no node was filtered either.
    NotTried,
}

impl FitError {
    /// Whether every node refused it for want of room.
    pub fn lacks_only_room(&self) -> bool {
        let is_room = |reason: &Reason| matches!(reason, Reason::Insufficient(_) | Reason::TooManyPods);
        self.reasons.keys().all(is_room)
    }

    /// Whether every node refused it for reasons of that node alone: then no change of another node can help.
    pub fn is_local(&self) -> bool {
        self.reasons.keys().all(Reason::is_local)
    }

    /// Counts a reason for one more node.
    pub fn count(&mut self, reason: &Reason) {
        match self.reasons.get_mut(reason) {
            Some(nodes) => *nodes += 1,
            None => {
                self.reasons.insert(reason.clone(), 1);
            }
        }
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return out.write_str("no nodes available to schedule pods");
        }
        write!(out, "0/{} nodes are available:", self.nodes)?;
        match &self.before_nodes {
            Some(reason) => write!(out, " {reason}.")?,
            None => write_histogram(out, &self.reasons)?,
        }
        let Some(preemption) = &self.preemption else {
            return Ok(());
        };
        // The first half comes from the part that frees device claims, which never has any here.
        match preemption {
            Preemption::Found => Ok(()),
            // The words with which the original stumbles over a plugin that had no turn.
            Preemption::NotTried => out.write_str(" not found"),
            Preemption::Never => {
                out.write_str(" no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.")
            }
            Preemption::Waiting => out.write_str(
                " no new claims to deallocate, preemption: not eligible due to a terminating pod on \
                 the nominated node.",
            ),
            Preemption::Futile(nodes, reasons) => {
                write!(out, " no new claims to deallocate, preemption: 0/{nodes} nodes are available:")?;
                write_histogram(out, reasons)
            }
        }
    }
}

/// ` 2 Insufficient cpu, 1 Too many pods.`, sorted as text like the original.
fn write_histogram(out: &mut fmt::Formatter<'_>, reasons: &BTreeMap<Reason, usize>) -> fmt::Result {
    let mut lines: Vec<String> = reasons.iter().map(|(why, nodes)| format!("{nodes} {why}")).collect();
    lines.sort();
    if lines.is_empty() { Ok(()) } else { write!(out, " {}.", lines.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_lists_reasons_and_preemption() {
        let mut error = FitError { nodes: 3, ..FitError::default() };
        error.count(&Reason::Insufficient("cpu".into()));
        error.count(&Reason::Insufficient("cpu".into()));
        error.count(&Reason::Taint);
        assert_eq!(
            error.to_string(),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu."
        );
        error.preemption =
            Some(Preemption::Futile(3, BTreeMap::from([(Reason::PreemptionFutile, 1), (Reason::NoVictims, 2)])));
        assert_eq!(
            error.to_string(),
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. \
             no new claims to deallocate, preemption: 0/3 nodes are available: 1 Preemption is not \
             helpful for scheduling, 2 No preemption victims found for incoming pod."
        );
        assert_eq!(FitError::default().to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn only_reasons_of_the_node_itself_are_local() {
        let mut error = FitError { nodes: 2, ..FitError::default() };
        error.count(&Reason::Insufficient("cpu".into()));
        error.count(&Reason::Taint);
        assert!(error.is_local(), "another node's change helps no pod");
        error.count(&Reason::Spread);
        assert!(!error.is_local());
    }
}
