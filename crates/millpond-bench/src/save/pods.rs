//! Pods as YAML. A class is turned into text once; a pod adds its name and its node.

use std::io::Write;

use millpond_plan::model::{
    AffinityTerm, DoNotDisrupt, InclusionPolicy, Namespaces, Pod, PodClass, PodKind, PodState, Protocol, ResourceId,
    STORAGE, Snapshot, Spread,
};
use millpond_plan::requirement::{Operator, Requirements};
use millpond_plan::symbol::Symbols;
use millpond_plan::taint::{Comparison, Toleration};
use serde_json::{Map, Value, json};

use super::{SaveError, amount, effect_name, expressions, inexpressible, time, yaml};

/// The parts of a pod that its class decides, indented to stand below `metadata:` and `spec:`.
pub(super) struct ClassText {
    metadata: String,
    spec: String,
}

pub(super) fn class_texts(snapshot: &Snapshot) -> Result<Vec<ClassText>, SaveError> {
    let text = |class| {
        let metadata = indented(&yaml(&metadata(snapshot, class)?));
        Ok(ClassText { metadata, spec: indented(&yaml(&spec(snapshot, class)?)) })
    };
    snapshot.classes.iter().map(text).collect()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

pub(super) fn write(snapshot: &Snapshot, classes: &[ClassText], file: &mut dyn Write) -> std::io::Result<()> {
    for (number, pod) in snapshot.pods.iter().enumerate() {
        if number > 0 {
            file.write_all(b"---\n")?;
        }
        write_pod(snapshot, pod, &classes[pod.class.index()], file)?;
    }
    Ok(())
}

fn write_pod(snapshot: &Snapshot, pod: &Pod, class: &ClassText, file: &mut dyn Write) -> std::io::Result<()> {
    let created = time(pod.created);
    write!(file, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {}\n", pod.name)?;
    write!(file, "  creationTimestamp: \"{created}\"\n{}", class.metadata)?;
    if pod.state == PodState::Terminating {
        writeln!(file, "  deletionTimestamp: \"{created}\"")?;
    }
    write!(file, "spec:\n{}", class.spec)?;
    if pod.state == PodState::Gated {
        writeln!(file, "  schedulingGates: [{{name: gated}}]")?;
    }
    let node = pod.node.map(|node| &snapshot.nodes[node.index()].name);
    match (node, pod.state) {
        (None, _) => Ok(()),
        (Some(node), PodState::Pending | PodState::Gated) => writeln!(file, "status:\n  nominatedNodeName: {node}"),
        (Some(node), PodState::Bound | PodState::Terminating) => {
            let started = time(pod.started.unwrap_or(pod.created));
            writeln!(file, "  nodeName: {node}\nstatus:\n  phase: Running\n  startTime: \"{started}\"")
        }
    }
}

fn metadata(snapshot: &Snapshot, class: &PodClass) -> Result<Value, SaveError> {
    let symbols = &snapshot.symbols;
    let mut metadata = json!({"namespace": symbols.text(class.namespace)});
    if !class.labels.is_empty() {
        let labels = class.labels.iter().map(|(key, value)| (symbols.text(key).to_owned(), symbols.text(value).into()));
        metadata["labels"] = labels.collect::<Map<String, Value>>().into();
    }
    let mut annotations = Map::new();
    match class.do_not_disrupt {
        DoNotDisrupt::No => {}
        DoNotDisrupt::Always => _ = annotations.insert("karpenter.sh/do-not-disrupt".into(), "true".into()),
        DoNotDisrupt::For(seconds) => {
            annotations.insert("karpenter.sh/do-not-disrupt".into(), format!("{seconds}s").into());
        }
    }
    if class.deletion_cost != 0 {
        let cost = class.deletion_cost.to_string();
        annotations.insert("controller.kubernetes.io/pod-deletion-cost".into(), cost.into());
    }
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    let owner = |api: &str, kind: &str| {
        // Any name will do: a pod is judged by the kind of what made it.
        json!([{"apiVersion": api, "kind": kind, "name": "workload", "uid": "workload", "controller": true}])
    };
    match class.kind {
        PodKind::Bare => {}
        PodKind::Workload => metadata["ownerReferences"] = owner("apps/v1", "ReplicaSet"),
        PodKind::Daemon => metadata["ownerReferences"] = owner("apps/v1", "DaemonSet"),
        PodKind::Mirror => return Err(inexpressible("a pod that a file of its node made")),
        PodKind::Buffer => return Err(inexpressible("a pod that is still to come")),
    }
    Ok(metadata)
}

fn spec(snapshot: &Snapshot, class: &PodClass) -> Result<Value, SaveError> {
    if class.problem.is_some() || !class.volume_terms.is_empty() {
        return Err(inexpressible("a pod with volumes"));
    }
    let symbols = &snapshot.symbols;
    let mut spec = json!({"containers": [container(snapshot, class)?]});
    if class.priority != 0 {
        spec["priority"] = class.priority.into();
    }
    if !class.preempts {
        spec["preemptionPolicy"] = "Never".into();
    }
    let affinity = affinity(class, symbols)?;
    if !affinity.is_empty() {
        spec["affinity"] = affinity.into();
    }
    if !class.tolerations.is_empty() {
        spec["tolerations"] = class.tolerations.iter().map(|one| toleration(one, symbols)).collect();
    }
    if !class.spread.is_empty() {
        let all: Result<_, _> = class.spread.iter().map(|one| spread(one, symbols)).collect();
        spec["topologySpreadConstraints"] = all?;
    }
    Ok(spec)
}

/// Resources that a container may ask for without a limit; Kubernetes wants one for all others.
fn may_be_overcommitted(resource: ResourceId) -> bool {
    resource <= STORAGE
}

fn container(snapshot: &Snapshot, class: &PodClass) -> Result<Value, SaveError> {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for (resource, of) in class.requests.iter() {
        let (name, value) = amount(snapshot, resource, of);
        if name == "pods" {
            continue;
        }
        if !may_be_overcommitted(resource) {
            limits.insert(name.clone(), value.clone());
        }
        requests.insert(name, value);
    }
    let mut container = json!({"name": "main", "image": "pause"});
    if !requests.is_empty() {
        container["resources"] = json!({"requests": requests});
    }
    if !limits.is_empty() {
        container["resources"]["limits"] = limits.into();
    }
    if !class.host_ports.is_empty() {
        let port = |port: &millpond_plan::model::HostPort| {
            let protocol = match port.protocol {
                Protocol::Tcp => "TCP",
                Protocol::Udp => "UDP",
                Protocol::Sctp => "SCTP",
            };
            let mut one = json!({"containerPort": port.port, "hostPort": port.port, "protocol": protocol});
            if let Some(address) = &port.address {
                one["hostIP"] = (**address).into();
            }
            one
        };
        container["ports"] = class.host_ports.iter().map(port).collect();
    }
    if class.requests.get(millpond_plan::model::PODS) != 1 {
        return Err(inexpressible("a pod that counts as none or several"));
    }
    Ok(container)
}

fn affinity(class: &PodClass, symbols: &Symbols) -> Result<Map<String, Value>, SaveError> {
    let terms = |of: &[AffinityTerm]| of.iter().map(|one| term(class, one, symbols)).collect::<Result<Vec<_>, _>>();
    let preferred = |sign: i32| {
        let of = class.affinity_preferences.iter().filter(move |(weight, _)| weight.signum() == sign);
        let one = |(weight, one): &(i32, AffinityTerm)| {
            Ok(json!({"weight": weight.abs(), "podAffinityTerm": term(class, one, symbols)?}))
        };
        of.map(one).collect::<Result<Vec<_>, SaveError>>()
    };
    let mut affinity = Map::new();
    let node = node_affinity(class, symbols);
    if !node.is_empty() {
        affinity.insert("nodeAffinity".into(), node.into());
    }
    for (name, required, sign) in [("podAffinity", &class.affinity, 1), ("podAntiAffinity", &class.anti_affinity, -1)] {
        let mut rules = Map::new();
        for (when, of) in [(REQUIRED, terms(required)?), (PREFERRED, preferred(sign)?)] {
            if !of.is_empty() {
                rules.insert(when.into(), of.into());
            }
        }
        if !rules.is_empty() {
            affinity.insert(name.into(), rules.into());
        }
    }
    Ok(affinity)
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn node_affinity(class: &PodClass, symbols: &Symbols) -> Map<String, Value> {
    let mut rules = Map::new();
    if class.node_terms.iter().all(|term| !term.is_empty()) {
        let term = |of: &Requirements| json!({"matchExpressions": expressions(of, symbols)});
        let terms: Vec<Value> = class.node_terms.iter().map(term).collect();
        rules.insert(REQUIRED.into(), json!({"nodeSelectorTerms": terms}));
    }
    if !class.node_preferences.is_empty() {
        let one = |(weight, of): &(i32, Requirements)| json!({"weight": weight, "preference": {"matchExpressions": expressions(of, symbols)}});
        rules.insert(PREFERRED.into(), class.node_preferences.iter().map(one).collect());
    }
    rules
}

fn term(class: &PodClass, of: &AffinityTerm, symbols: &Symbols) -> Result<Value, SaveError> {
    let mut term = json!({"topologyKey": symbols.text(of.key)});
    if let Some(of) = &of.selector {
        term["labelSelector"] = selector(of, symbols)?;
    }
    match &of.namespaces {
        Namespaces::All => term["namespaceSelector"] = json!({}),
        Namespaces::These(these) if **these == [class.namespace] => {}
        Namespaces::These(these) => term["namespaces"] = these.iter().map(|one| symbols.text(*one)).collect(),
    }
    Ok(term)
}

fn spread(of: &Spread, symbols: &Symbols) -> Result<Value, SaveError> {
    let policy = |policy| if policy == InclusionPolicy::Honor { "Honor" } else { "Ignore" };
    let mut one = json!({
        "topologyKey": symbols.text(of.key),
        "maxSkew": of.max_skew,
        "whenUnsatisfiable": if of.hard { "DoNotSchedule" } else { "ScheduleAnyway" },
    });
    if let Some(least) = of.min_domains {
        one["minDomains"] = least.into();
    }
    if let Some(of) = &of.selector {
        one["labelSelector"] = selector(of, symbols)?;
    }
    if of.node_affinity != InclusionPolicy::Honor {
        one["nodeAffinityPolicy"] = policy(of.node_affinity).into();
    }
    if of.node_taints != InclusionPolicy::Ignore {
        one["nodeTaintsPolicy"] = policy(of.node_taints).into();
    }
    Ok(one)
}

/// A selector of pods: `matchLabels` for single values, `matchExpressions` for other requirements.
fn selector(of: &Requirements, symbols: &Symbols) -> Result<Value, SaveError> {
    let single = of.iter().filter_map(|(key, one)| Some((symbols.text(key), symbols.text(one.only_value()?))));
    let labels: Map<String, Value> = single.map(|(key, value)| (key.to_owned(), value.into())).collect();
    let mut rest = Requirements::new();
    for (key, one) in of.iter().filter(|(_, one)| one.only_value().is_none()) {
        if one.expressions(symbols).iter().any(|(operator, _)| matches!(operator, Operator::Gte | Operator::Lte)) {
            return Err(inexpressible("a selector of pods with a range"));
        }
        rest.add(key, one.clone(), symbols);
    }
    let mut selector = Map::new();
    if !labels.is_empty() {
        selector.insert("matchLabels".into(), labels.into());
    }
    if !rest.is_empty() {
        selector.insert("matchExpressions".into(), expressions(&rest, symbols).into());
    }
    Ok(selector.into())
}

fn toleration(of: &Toleration, symbols: &Symbols) -> Value {
    let mut one = Map::new();
    if let Some(key) = of.key {
        one.insert("key".into(), symbols.text(key).into());
    }
    let (operator, value) = match of.value {
        Comparison::Exists => ("Exists", None),
        Comparison::Equal(value) => ("Equal", Some(symbols.text(value).to_owned())),
        Comparison::Above(number) => ("Gt", Some(number.to_string())),
        Comparison::Below(number) => ("Lt", Some(number.to_string())),
    };
    one.insert("operator".into(), operator.into());
    if let Some(value) = value {
        one.insert("value".into(), value.into());
    }
    if let Some(effect) = of.effect {
        one.insert("effect".into(), effect_name(effect).into());
    }
    one.into()
}
