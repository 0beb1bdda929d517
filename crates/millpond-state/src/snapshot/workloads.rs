//! Pods of workloads that have none yet, for files that hold a Deployment and nothing else.

use std::sync::Arc;

use super::SnapshotBuilder;
use super::pods::{Named, selected};
use crate::lower::pod::Shape;
use crate::objects::Kind;
use crate::state::{ClaimRef, PodEntry, PodPhase, WorkloadEntry};

/// The most pods that are made up: a mistyped number of replicas shall not fill the memory.
pub(super) const LIMIT_INVENTED: u32 = 2_000_000;

impl<'s> SnapshotBuilder<'s> {
    /// The pods that workloads would make, of those that have no pod and none below them that has.
    pub(super) fn invented(&mut self) -> Vec<Named<'s>> {
        let mut pods = Vec::new();
        if !self.options.expand_workloads {
            return pods;
        }
        let state = self.state;
        let mut left = LIMIT_INVENTED;
        for ((kind, namespace, name), workload) in &state.workloads {
            if *kind == Kind::DaemonSet || self.has_pods(*kind, namespace, name, workload) {
                continue;
            }
            let count = workload.replicas.min(left);
            if count < workload.replicas {
                self.warn(None, format!("more than {LIMIT_INVENTED} pods of workloads; the rest is left out"));
            }
            left -= count;
            let made = state.made_from(namespace, &workload.template);
            pods.extend((0..count).map(|index| invent(namespace, &format!("{name}-{index}"), workload, &made)));
        }
        pods
    }

    fn has_pods(&self, kind: Kind, namespace: &str, name: &str, workload: &WorkloadEntry) -> bool {
        let of_set = self.state.workloads.iter().any(|((other, space, _), set)| {
            kind == Kind::Deployment
                && *other == Kind::ReplicaSet
                && &**space == namespace
                && set.owner.as_deref() == Some(name)
        });
        let pods = self.state.pods.get(namespace).into_iter().flatten();
        of_set
            || pods.into_iter().any(|(_, pod)| match &workload.selector {
                Some(selector) => selected(selector, &pod.shape.class.labels, self),
                None => pod
                    .shape
                    .owner
                    .as_ref()
                    .is_some_and(|(of, owner)| &**of == kind.name() && self.snapshot.text(*owner) == name),
            })
    }
}

fn invent<'s>(namespace: &'s str, name: &str, workload: &WorkloadEntry, made: &(u128, Arc<Shape>)) -> Named<'s> {
    let own = workload.own_claims.iter().map(|(claim, template)| {
        // A StatefulSet's claims are `<claim>-<pod>`; a volume that comes with the pod is `<pod>-<volume>`.
        let name = format!("{claim}-{name}");
        ClaimRef { name: name.into(), template: Some(Arc::clone(template)) }
    });
    let entry = PodEntry {
        revision: "".into(),
        content: made.0,
        shape: Arc::clone(&made.1),
        phase: if workload.gated { PodPhase::Gated } else { PodPhase::Pending },
        node: None,
        created: 0,
        started: None,
        ready: false,
        claims: workload.claims.iter().cloned().chain(own).collect(),
    };
    Named { namespace, name: name.into(), entry }
}
