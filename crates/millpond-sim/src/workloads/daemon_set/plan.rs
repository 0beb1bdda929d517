//! Finds the nodes on which pods of a DaemonSet are missing, surplus or outdated.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use super::super::history::REVISION_LABEL;
use super::super::pods::{is_available, is_ready};
use super::super::scaled::{Round, resolve};
use crate::meta::{has_ended, is_leaving, node_name};
use crate::scheduler::fit::labels::{Labels, NodeFilter};
use crate::scheduler::fit::taints::{self, Effect, Taint, Toleration};
use crate::scheduler::fit::{Shape, ShapeContext};

/// How a node suits a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A pod should run on it.
    Run,
    /// No pod should be started on it, but a running one may stay.
    Stay,
    /// No pod should be on it.
    Leave,
}

/// A node with the pods of one set.
#[derive(Clone, Debug)]
pub struct NodePods<'a> {
    /// The node's name.
    pub name: &'a str,
    /// How the node suits the DaemonSet.
    pub fit: Fit,
    /// The set's pods that run on it or are created for it.
    pub pods: Vec<Arc<Pod>>,
}

impl NodePods<'_> {
    /// The pod that counts: bound before unbound, then the oldest.
    pub fn first(&self) -> Option<Arc<Pod>> {
        self.pods.iter().min_by_key(|pod| seniority(pod)).cloned()
    }
}

fn seniority(pod: &Pod) -> (bool, Option<Timestamp>, String) {
    (node_name(pod).is_none(), pod.creation_timestamp().map(|time| time.0), pod.name_any())
}

/// The next steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// Nodes that get a pod.
    pub create_on: Vec<String>,
    /// Pods that go.
    pub delete: Vec<Arc<Pod>>,
}

/// The new and the old pod of a node.
type Pair = (Option<Arc<Pod>>, Option<Arc<Pod>>);

/// The properties of a DaemonSet that the rules use.
pub struct Daemon {
    hash: String,
    generation: Option<String>,
    node_name: Option<String>,
    node_filter: NodeFilter,
    tolerations: Vec<Toleration>,
    rolling: bool,
    max_surge: Option<k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>,
    max_unavailable: Option<k8s_openapi::apimachinery::pkg::util::intstr::IntOrString>,
    /// How long a pod must be ready before it counts.
    pub min_ready_seconds: i32,
}

impl Daemon {
    /// Reads a set whose current template has this hash.
    pub fn of(set: &DaemonSet, hash: &str) -> Self {
        let spec = set.spec.clone().unwrap_or_default();
        let mut pod_spec = spec.template.spec.unwrap_or_default();
        let on_host_network = pod_spec.host_network == Some(true);
        pod_spec.tolerations = Some(super::with_daemon_tolerations(pod_spec.tolerations.take(), on_host_network));
        let node_name = pod_spec.node_name.clone().filter(|name| !name.is_empty());
        let pod = Pod { spec: Some(pod_spec), ..Pod::default() };
        let shape = Shape::view(&pod, &ShapeContext::default());
        let strategy = spec.update_strategy.unwrap_or_default();
        let steps = strategy.rolling_update.unwrap_or_default();
        Self {
            hash: hash.to_owned(),
            generation: set.annotations().get("deprecated.daemonset.template.generation").cloned(),
            node_name,
            node_filter: shape.node_filter,
            tolerations: shape.tolerations,
            rolling: strategy.type_.as_deref() != Some("OnDelete"),
            max_surge: steps.max_surge,
            max_unavailable: steps.max_unavailable,
            min_ready_seconds: spec.min_ready_seconds.unwrap_or_default(),
        }
    }

    /// How a node suits the DaemonSet.
    pub fn fit(&self, node: &Node) -> Fit {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let no_labels = Labels::new();
        let labels = node.metadata.labels.as_ref().unwrap_or(&no_labels);
        let named_elsewhere = self.node_name.as_deref().is_some_and(|wanted| wanted != name);
        if named_elsewhere || !self.node_filter.matches(name, labels) {
            return Fit::Leave;
        }
        let taints: Vec<Taint> = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default()
            .iter()
            .filter_map(Taint::view)
            .collect();
        if !taints::is_kept_away(&taints, &self.tolerations) {
            return Fit::Run;
        }
        let driven_out: Vec<Taint> = taints.into_iter().filter(|taint| taint.effect == Effect::NoExecute).collect();
        if taints::is_kept_away(&driven_out, &self.tolerations) { Fit::Leave } else { Fit::Stay }
    }

    /// Whether a pod is of the current template.
    pub fn is_updated(&self, pod: &Pod) -> bool {
        let labels = pod.labels();
        labels.get(REVISION_LABEL) == Some(&self.hash)
            || (self.generation.is_some() && labels.get(super::GENERATION_LABEL) == self.generation.as_ref())
    }

    /// Says what to do now: missing and superfluous pods first, then the rolling update.
    pub fn steps(&self, nodes: &[NodePods<'_>], now: Timestamp) -> Steps {
        let mut steps = Steps::default();
        for node in nodes {
            self.place(node, now, &mut steps);
        }
        if self.rolling && steps == Steps::default() {
            self.roll(nodes, now, &mut steps);
        }
        steps
    }

    fn surge(&self, desired: i32) -> i32 {
        let value = self.max_surge.as_ref();
        value.and_then(|value| resolve(value, desired, Round::Up)).unwrap_or_default()
    }

    fn allows_surge(&self) -> bool {
        self.rolling && self.surge(1) > 0
    }

    fn is_available(&self, pod: &Pod, now: Timestamp) -> bool {
        is_available(pod, self.min_ready_seconds, now)
    }

    fn place(&self, node: &NodePods<'_>, now: Timestamp, steps: &mut Steps) {
        if node.pods.is_empty() {
            if node.fit == Fit::Run {
                steps.create_on.push(node.name.to_owned());
            }
            return;
        }
        let staying = node.pods.iter().filter(|pod| !is_leaving(&***pod));
        if node.fit == Fit::Leave {
            steps.delete.extend(staying.cloned());
            return;
        }
        let (ended, mut running): (Vec<_>, Vec<_>) = staying.cloned().partition(|pod| has_ended(pod));
        steps.delete.extend(ended);
        running.sort_by_key(|pod| seniority(pod));
        if self.allows_surge() {
            if running.is_empty() && node.fit == Fit::Run {
                steps.create_on.push(node.name.to_owned());
            }
            self.settle_pair(running, now, steps);
        } else {
            steps.delete.extend(running.into_iter().skip(1));
        }
    }

    /// With surge, one old and one new pod may share a node until the new one is up.
    fn settle_pair(&self, running: Vec<Arc<Pod>>, now: Timestamp, steps: &mut Steps) {
        let (mut new, mut old) = (None, None);
        for pod in running {
            let place = if self.is_updated(&pod) { &mut new } else { &mut old };
            match place {
                None => *place = Some(pod),
                Some(_) => steps.delete.push(pod),
            }
        }
        if let (Some(new), Some(old)) = (new, old)
            && (!is_ready(&old) || self.is_available(&new, now))
        {
            steps.delete.push(old);
        }
    }

    fn roll(&self, nodes: &[NodePods<'_>], now: Timestamp, steps: &mut Steps) {
        let desired = nodes.iter().filter(|node| node.fit == Fit::Run).count() as i32;
        let surge = self.surge(desired);
        let unavailable = match &self.max_unavailable {
            Some(value) => resolve(value, desired, Round::Up).unwrap_or_default(),
            None => i32::from(surge == 0),
        };
        let relevant = nodes.iter().filter(|node| node.fit == Fit::Run || !node.pods.is_empty());
        if surge == 0 {
            self.roll_in_place(relevant, now, unavailable.max(i32::from(desired > 0)), steps);
        } else {
            self.roll_with_surge(relevant, now, surge, desired, steps);
        }
    }

    /// The new and the old pod of a node; `None` when there are more than one of either.
    fn pair(&self, node: &NodePods<'_>) -> Option<Pair> {
        let (mut new, mut old) = (None, None);
        for pod in node.pods.iter().filter(|pod| !is_leaving(&***pod)) {
            let place = if self.is_updated(pod) { &mut new } else { &mut old };
            if place.replace(Arc::clone(pod)).is_some() {
                return None;
            }
        }
        Some((new, old))
    }

    fn roll_in_place<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodePods<'a>>,
        now: Timestamp,
        max_unavailable: i32,
        steps: &mut Steps,
    ) {
        let mut down = 0;
        let mut candidates = Vec::new();
        for node in nodes {
            match self.pair(node) {
                None | Some((None, None) | (Some(_), Some(_))) => down += 1,
                Some((Some(new), None)) => down += i32::from(!self.is_available(&new, now)),
                Some((None, Some(old))) if !self.is_available(&old, now) => {
                    down += 1;
                    steps.delete.push(old);
                }
                Some((None, Some(old))) => candidates.push(old),
            }
        }
        let more = usize::try_from(max_unavailable - down).unwrap_or_default();
        steps.delete.extend(candidates.into_iter().take(more));
    }

    fn roll_with_surge<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodePods<'a>>,
        now: Timestamp,
        max_surge: i32,
        desired: i32,
        steps: &mut Steps,
    ) {
        let (mut surging, mut available) = (0, 0);
        let (mut candidates, mut out_of_place) = (Vec::new(), Vec::new());
        for node in nodes {
            let Some((new, old)) = self.pair(node) else {
                surging += 1;
                continue;
            };
            let works = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| self.is_available(pod, now));
            available += i32::from(works(if old.is_some() { &old } else { &new }));
            match (&new, old) {
                (_, None) => {}
                (Some(_), Some(old)) if works(&new) => steps.delete.push(old),
                (Some(_), Some(_)) => surging += 1,
                (None, Some(old)) if node.fit != Fit::Run => {
                    if self.is_available(&old, now) {
                        out_of_place.push(old);
                    } else {
                        steps.delete.push(old);
                    }
                }
                (None, Some(old)) if !self.is_available(&old, now) => steps.create_on.push(node.name.to_owned()),
                (None, Some(_)) => candidates.push(node.name.to_owned()),
            }
        }
        let spare = usize::try_from(available - desired).unwrap_or_default();
        steps.delete.extend(out_of_place.into_iter().take(spare));
        let more = usize::try_from(max_surge - surging).unwrap_or_default();
        steps.create_on.extend(candidates.into_iter().take(more));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn daemon(spec: Value) -> Daemon {
        let mut value = json!({"metadata": {"name": "agent"}, "spec": {
            "selector": {}, "template": {"spec": {"containers": []}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        }});
        for (key, field) in spec.as_object().expect("an object") {
            value["spec"][key] = field.clone();
        }
        Daemon::of(&serde_json::from_value(value).expect("a set"), "new")
    }

    fn node(labels: Value, spec: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}, "spec": spec})).expect("a node")
    }

    fn pod(name: &str, text: &str) -> Arc<Pod> {
        let (state, hash) = text.split_once(' ').expect("state and hash");
        let ready = if state == "ready" { "True" } else { "False" };
        let phase = if state == "failed" { "Failed" } else { "Running" };
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {REVISION_LABEL: hash}},
                "spec": {"containers": [], "nodeName": "n"},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            }))
            .expect("a pod"),
        )
    }

    /// Each line is a node: `run: ready old, starting new`.
    fn check(daemon: &Daemon, lines: &[&str], expected: &[&str]) {
        let names: Vec<String> = (0..lines.len()).map(|index| format!("n{index}")).collect();
        let nodes: Vec<NodePods<'_>> = lines
            .iter()
            .zip(&names)
            .map(|(line, name)| {
                let (fit, rest) = line.split_once(':').expect("a fit");
                let fit = match fit {
                    "run" => Fit::Run,
                    "stay" => Fit::Stay,
                    _ => Fit::Leave,
                };
                let texts = rest.split(',').map(str::trim).filter(|text| !text.is_empty());
                let pods = texts.enumerate().map(|(index, text)| pod(&format!("{name}-{index}"), text)).collect();
                NodePods { name, fit, pods }
            })
            .collect();
        let steps = daemon.steps(&nodes, Timestamp::from_second(1_800_000_000).expect("a time"));
        let mut got: Vec<String> = steps.create_on.iter().map(|name| format!("+{name}")).collect();
        got.extend(steps.delete.iter().map(|pod| format!("-{}", pod.name_any())));
        assert_eq!(got, expected, "{lines:?}");
    }

    #[test]
    fn nodes_qualify_by_labels_and_taints() {
        let selective = daemon(json!({"template": {"spec": {"containers": [], "nodeSelector": {"gpu": "yes"}}}}));
        assert_eq!(selective.fit(&node(json!({"gpu": "yes"}), json!({}))), Fit::Run);
        assert_eq!(selective.fit(&node(json!({}), json!({}))), Fit::Leave);
        let plain = daemon(json!({}));
        let tainted = |key: &str, effect: &str| node(json!({}), json!({"taints": [{"key": key, "effect": effect}]}));
        assert_eq!(plain.fit(&tainted("node.kubernetes.io/not-ready", "NoExecute")), Fit::Run);
        assert_eq!(plain.fit(&tainted("node.kubernetes.io/unschedulable", "NoSchedule")), Fit::Run);
        assert_eq!(plain.fit(&tainted("team", "NoSchedule")), Fit::Stay);
        assert_eq!(plain.fit(&tainted("team", "NoExecute")), Fit::Leave);
    }

    #[test]
    fn one_pod_per_node() {
        let daemon = daemon(json!({}));
        check(&daemon, &["run:", "stay:", "leave:"], &["+n0"]);
        check(&daemon, &["run: ready new, ready new"], &["-n0-1"]);
        check(&daemon, &["stay: ready new", "leave: ready new"], &["-n1-0"]);
        check(&daemon, &["run: failed new"], &["-n0-0"]);
    }

    #[test]
    fn updates_in_place_respect_max_unavailable() {
        let one = daemon(json!({}));
        check(&one, &["run: ready old", "run: ready old", "run: ready old"], &["-n0-0"]);
        check(&one, &["run: starting new", "run: ready old"], &[]);
        check(&one, &["run: ready new", "run: ready old"], &["-n1-0"]);
        check(&one, &["run: starting old", "run: ready old"], &["-n0-0"]);
        let half =
            daemon(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}}));
        check(&half, &["run: ready old", "run: ready old", "run: ready old"], &["-n0-0", "-n1-0"]);
        let manual = daemon(json!({"updateStrategy": {"type": "OnDelete"}}));
        check(&manual, &["run: ready old"], &[]);
    }

    #[test]
    fn surge_brings_the_new_pod_first() {
        let surge = daemon(json!({"updateStrategy": {"type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}));
        check(&surge, &["run: ready old", "run: ready old"], &["+n0"]);
        check(&surge, &["run: ready old, starting new", "run: ready old"], &[]);
        check(&surge, &["run: ready old, ready new", "run: ready old"], &["-n0-0"]);
        check(&surge, &["run: ready new", "run: ready old"], &["+n1"]);
        check(&surge, &["run: starting old", "run: ready old"], &["+n0", "+n1"]);
    }
}
