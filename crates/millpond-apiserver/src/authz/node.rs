//! Nodes: a kubelet reads what its own pods need, and writes its own objects. The rules and the reasons are those of
//! Kubernetes' node authorizer; what the content of a write may be is checked by the NodeRestriction admission.
//!
//! Pods are followed in the store, each with what it refers to, by node. Volumes are looked up when they are asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use super::Decision;
use super::rule::Rule;
use crate::auth::{Attributes, Identity};
use crate::selector::FieldSelector;
use crate::store::{EventKind, Store};

const PODS: &str = "pods";
const PREFIX: &str = "system:node:";

/// The name of the node that an identity is, if it is one.
pub(crate) fn node_identity(identity: &Identity) -> Option<&str> {
    identity.user.strip_prefix(PREFIX).filter(|_| identity.is_in("system:nodes"))
}

/// The objects that pods refer to, by the node that they are bound to.
pub(super) struct Nodes {
    store: Store,
    seen: Option<u64>,
    node_of: HashMap<Arc<str>, Box<str>>,
    pods: HashMap<Box<str>, HashMap<Arc<str>, References>>,
    rules: Vec<Rule>,
}

/// The objects that one pod refers to, by names in its own namespace.
#[derive(Debug, Default)]
struct References {
    namespace: Box<str>,
    account: Box<str>,
    secrets: BTreeSet<Box<str>>,
    config_maps: BTreeSet<Box<str>>,
    claims: BTreeSet<Box<str>>,
    resource_claims: BTreeSet<Box<str>>,
}

impl Nodes {
    pub(super) fn new(store: Store) -> Self {
        Self { store, seen: None, node_of: HashMap::new(), pods: HashMap::new(), rules: common_rules() }
    }

    /// Whether a node may do something.
    pub(super) fn decide(&mut self, node: &str, wanted: &Attributes<'_>) -> Decision {
        if node.is_empty() {
            return deny(format!("unknown node for user {PREFIX:?}"));
        }
        self.catch_up();
        match (wanted.group, wanted.resource) {
            ("", "secrets") => self.read_one(node, wanted, |nodes| nodes.reaches_secret(node, wanted)),
            ("", "configmaps") => {
                self.read_one(node, wanted, |nodes| nodes.refers(node, wanted, |pod| &pod.config_maps))
            }
            ("", "persistentvolumeclaims") if wanted.subresource == "status" => match wanted.verb {
                "update" | "patch" => self.related(node, wanted, |nodes| nodes.refers(node, wanted, |pod| &pod.claims)),
                _ => deny("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => {
                self.get_one(node, wanted, |nodes| nodes.refers(node, wanted, |pod| &pod.claims))
            }
            ("", "persistentvolumes") => self.get_one(node, wanted, |nodes| nodes.reaches_volume(node, wanted.name)),
            ("resource.k8s.io", "resourceclaims") => {
                self.get_one(node, wanted, |nodes| nodes.refers(node, wanted, |pod| &pod.resource_claims))
            }
            ("storage.k8s.io", "volumeattachments") => self
                .get_one(node, wanted, |nodes| nodes.names_node("volumeattachments.storage.k8s.io", wanted.name, node)),
            ("", "serviceaccounts") => self.account(node, wanted),
            ("coordination.k8s.io", "leases") => lease(node, wanted),
            ("storage.k8s.io", "csinodes") => csi_node(node, wanted),
            ("resource.k8s.io", "resourceslices") => self.slice(node, wanted),
            ("", "nodes") => own_node(node, wanted),
            ("", PODS) => self.pod(node, wanted),
            ("certificates.k8s.io", "podcertificaterequests") => deny(""),
            _ if self.rules.iter().any(|rule| rule.allows(wanted)) => allow(),
            _ => deny(""),
        }
    }

    fn pod(&self, node: &str, wanted: &Attributes<'_>) -> Decision {
        let is_bound = |nodes: &Self| nodes.is_bound(node, wanted);
        match (wanted.subresource, wanted.verb) {
            ("", "get") => self.get_one(node, wanted, is_bound),
            ("", "list" | "watch") if selects(wanted.fields, "spec.nodeName", node) => allow(),
            ("", "list" | "watch") if !wanted.name.is_empty() => self.related(node, wanted, is_bound),
            ("", "list" | "watch") => deny("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => allow(),
            _ => deny(""),
        }
    }

    fn account(&self, node: &str, wanted: &Attributes<'_>) -> Decision {
        let is_used = |nodes: &Self| {
            let mut pods = nodes.pods_of(node).filter(|pod| *pod.namespace == *wanted.namespace);
            pods.any(|pod| *pod.account == *wanted.name)
        };
        if (wanted.verb, wanted.subresource) == ("get", "") {
            return self.read_one(node, wanted, is_used);
        }
        if wanted.verb != "create" || wanted.name.is_empty() {
            return deny("can only create tokens for individual service accounts");
        }
        if wanted.subresource != "token" {
            return deny("can only create token subresource of serviceaccount");
        }
        self.related(node, wanted, is_used)
    }

    fn slice(&self, node: &str, wanted: &Attributes<'_>) -> Decision {
        if !wanted.subresource.is_empty() {
            return deny("cannot authorize ResourceSlice subresources");
        }
        match wanted.verb {
            "create" => allow(),
            "get" | "update" | "patch" | "delete" => self
                .related(node, wanted, |nodes| nodes.names_node("resourceslices.resource.k8s.io", wanted.name, node)),
            "watch" | "list" | "deletecollection" if selects(wanted.fields, "spec.nodeName", node) => allow(),
            "watch" | "list" | "deletecollection" => {
                deny("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => deny(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    /// A read of one object, also as a list or watch of it.
    fn read_one(&self, node: &str, wanted: &Attributes<'_>, is_related: impl Fn(&Self) -> bool) -> Decision {
        if !matches!(wanted.verb, "get" | "list" | "watch") {
            return deny("can only read resources of this type");
        }
        if !wanted.subresource.is_empty() {
            return deny("cannot read subresource");
        }
        if wanted.namespace.is_empty() {
            return deny("can only read namespaced object of this type");
        }
        self.related(node, wanted, is_related)
    }

    fn get_one(&self, node: &str, wanted: &Attributes<'_>, is_related: impl Fn(&Self) -> bool) -> Decision {
        if wanted.verb != "get" {
            return deny("can only get individual resources of this type");
        }
        if !wanted.subresource.is_empty() {
            return deny("cannot get subresource");
        }
        self.related(node, wanted, is_related)
    }

    fn related(&self, node: &str, wanted: &Attributes<'_>, is_related: impl Fn(&Self) -> bool) -> Decision {
        if wanted.name.is_empty() {
            return deny("No Object name found");
        }
        if is_related(self) {
            allow()
        } else {
            deny(format!("no relationship found between node '{node}' and this object"))
        }
    }

    fn pods_of(&self, node: &str) -> impl Iterator<Item = &References> {
        self.pods.get(node).into_iter().flat_map(HashMap::values)
    }

    fn is_bound(&self, node: &str, wanted: &Attributes<'_>) -> bool {
        let key = format!("{}/{}", wanted.namespace, wanted.name);
        self.node_of.get(key.as_str()).is_some_and(|bound| **bound == *node)
    }

    fn refers(&self, node: &str, wanted: &Attributes<'_>, of: impl Fn(&References) -> &BTreeSet<Box<str>>) -> bool {
        let mut pods = self.pods_of(node).filter(|pod| *pod.namespace == *wanted.namespace);
        pods.any(|pod| of(pod).contains(wanted.name))
    }

    fn reaches_secret(&self, node: &str, wanted: &Attributes<'_>) -> bool {
        self.refers(node, wanted, |pod| &pod.secrets)
            || self.pods_of(node).any(|pod| {
                let mut volumes = pod.claims.iter().filter_map(|claim| self.volume_of(&pod.namespace, claim));
                volumes.any(|volume| volume_names_secret(&volume, &pod.namespace, wanted.namespace, wanted.name))
            })
    }

    /// The volume that a claim is bound to, if the volume refers back to the claim.
    fn volume_of(&self, namespace: &str, claim: &str) -> Option<Value> {
        let stored = self.store.get("persistentvolumeclaims", &format!("{namespace}/{claim}"))?.to_value();
        let volume = self.store.get("persistentvolumes", stored["spec"]["volumeName"].as_str()?)?.to_value();
        let bound = &volume["spec"]["claimRef"];
        (bound["namespace"] == namespace && bound["name"] == claim).then_some(volume)
    }

    fn reaches_volume(&self, node: &str, name: &str) -> bool {
        let Some(volume) = self.store.get("persistentvolumes", name).map(|volume| volume.to_value()) else {
            return false;
        };
        let bound = &volume["spec"]["claimRef"];
        let Some(claim) = bound["name"].as_str() else { return false };
        self.pods_of(node).any(|pod| bound["namespace"] == *pod.namespace && pod.claims.contains(claim))
    }

    fn names_node(&self, collection: &str, name: &str, node: &str) -> bool {
        self.store.get(collection, name).is_some_and(|object| object.to_value()["spec"]["nodeName"] == node)
    }

    /// Takes in what has happened to pods.
    fn catch_up(&mut self) {
        if let Some(seen) = self.seen
            && let Ok((events, complete_to)) = self.store.events_after(PODS, seen, usize::MAX)
        {
            for event in events {
                let gone = event.kind == EventKind::Deleted;
                self.learn(&event.key, if gone { None } else { Some(event.object.to_value()) });
            }
            self.seen = Some(complete_to);
            return;
        }
        self.node_of.clear();
        self.pods.clear();
        let listing = self.store.list(PODS, "", None, 0, |_, _| true);
        for (key, pod) in &listing.items {
            self.learn(key, Some(pod.to_value()));
        }
        self.seen = Some(listing.revision);
    }

    fn learn(&mut self, key: &Arc<str>, pod: Option<Value>) {
        if let Some(node) = self.node_of.remove(key)
            && let Some(pods) = self.pods.get_mut(&node)
        {
            pods.remove(key);
            if pods.is_empty() {
                self.pods.remove(&node);
            }
        }
        let Some(pod) = pod else { return };
        let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else { return };
        self.node_of.insert(key.clone(), node.into());
        self.pods.entry(node.into()).or_default().insert(key.clone(), References::of(&pod));
    }
}

impl References {
    fn of(pod: &Value) -> Self {
        let text = |value: &Value| Box::<str>::from(value.as_str().unwrap_or_default());
        let mut found = Self { namespace: text(&pod["metadata"]["namespace"]), ..Self::default() };
        // A kubelet makes mirror pods itself: they must not open anything to it.
        if !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
            return found;
        }
        let spec = &pod["spec"];
        found.account = text(&spec["serviceAccountName"]);
        for reference in items(&spec["imagePullSecrets"]) {
            found.secrets.insert(text(&reference["name"]));
        }
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for container in items(&spec[list]) {
                for source in items(&container["envFrom"]) {
                    found.secrets.insert(text(&source["secretRef"]["name"]));
                    found.config_maps.insert(text(&source["configMapRef"]["name"]));
                }
                for variable in items(&container["env"]) {
                    let source = &variable["valueFrom"];
                    found.secrets.insert(text(&source["secretKeyRef"]["name"]));
                    found.config_maps.insert(text(&source["configMapKeyRef"]["name"]));
                }
            }
        }
        items(&spec["volumes"]).for_each(|volume| found.add_volume(volume, pod));
        for claim in items(&spec["resourceClaims"]) {
            found.resource_claims.insert(text(&claim["resourceClaimName"]));
        }
        for claim in items(&pod["status"]["resourceClaimStatuses"]) {
            found.resource_claims.insert(text(&claim["resourceClaimName"]));
        }
        found.resource_claims.insert(text(&pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]));
        for names in [&mut found.secrets, &mut found.config_maps, &mut found.claims, &mut found.resource_claims] {
            names.remove("");
        }
        found
    }

    fn add_volume(&mut self, volume: &Value, pod: &Value) {
        let text = |value: &Value| Box::<str>::from(value.as_str().unwrap_or_default());
        for source in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            self.secrets.insert(text(&volume[source]["secretRef"]["name"]));
        }
        self.secrets.insert(text(&volume["azureFile"]["secretName"]));
        self.secrets.insert(text(&volume["secret"]["secretName"]));
        self.secrets.insert(text(&volume["csi"]["nodePublishSecretRef"]["name"]));
        self.config_maps.insert(text(&volume["configMap"]["name"]));
        for source in items(&volume["projected"]["sources"]) {
            self.secrets.insert(text(&source["secret"]["name"]));
            self.config_maps.insert(text(&source["configMap"]["name"]));
        }
        self.claims.insert(text(&volume["persistentVolumeClaim"]["claimName"]));
        if volume["ephemeral"].is_object() {
            let names = (pod["metadata"]["name"].as_str(), volume["name"].as_str());
            if let (Some(pod), Some(volume)) = names {
                self.claims.insert(format!("{pod}-{volume}").into());
            }
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether a volume names a secret for the kubelet, which without a namespace lies in that of the claim.
fn volume_names_secret(volume: &Value, claim_namespace: &str, namespace: &str, name: &str) -> bool {
    let spec = &volume["spec"];
    let is_it = |reference: &Value| {
        let own = reference["namespace"].as_str().filter(|own| !own.is_empty()).unwrap_or(claim_namespace);
        reference["name"] == name && own == namespace
    };
    let csi = ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];
    let others = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];
    let azure = &spec["azureFile"];
    let azure = json!({"name": azure["secretName"], "namespace": azure["secretNamespace"]});
    csi.iter().any(|key| is_it(&spec["csi"][key]))
        || others.iter().any(|key| is_it(&spec[key]["secretRef"]))
        || is_it(&azure)
}

fn allow() -> Decision {
    Decision::Allow(String::new())
}

fn deny(reason: impl Into<String>) -> Decision {
    Decision::NoOpinion(reason.into())
}

fn selects(fields: &str, field: &str, value: &str) -> bool {
    FieldSelector::parse(fields).is_ok_and(|selector| {
        let mut terms = selector.requirements().iter();
        terms.any(|term| {
            let equals = term.operator == crate::selector::FieldOperator::Equals;
            equals && *term.field == *field && *term.value == *value
        })
    })
}

fn own_node(node: &str, wanted: &Attributes<'_>) -> Decision {
    match (wanted.subresource, wanted.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allow(),
        ("", "get" | "list" | "watch") => match wanted.name {
            name if name == node => allow(),
            "" => deny(format!("node '{node}' cannot read all nodes, only its own Node object")),
            other => deny(format!("node '{node}' cannot read '{other}', only its own Node object")),
        },
        _ => deny(""),
    }
}

fn lease(node: &str, wanted: &Attributes<'_>) -> Decision {
    if !matches!(wanted.verb, "get" | "create" | "update" | "patch" | "delete") {
        return deny("can only get, create, update, patch, or delete a node lease");
    }
    if wanted.namespace != "kube-node-lease" {
        return deny("can only access leases in the \"kube-node-lease\" system namespace");
    }
    if wanted.verb != "create" && wanted.name != node {
        return deny("can only access node lease with the same name as the requesting node");
    }
    allow()
}

fn csi_node(node: &str, wanted: &Attributes<'_>) -> Decision {
    if !matches!(wanted.verb, "get" | "create" | "update" | "patch" | "delete") {
        return deny("can only get, create, update, patch, or delete a CSINode");
    }
    if !wanted.subresource.is_empty() {
        return deny("cannot authorize CSINode subresources");
    }
    if wanted.verb != "create" && wanted.name != node {
        return deny("can only access CSINode with the same name as the requesting node");
    }
    allow()
}

/// The rights that all nodes have: the rules of the role `system:node` for kinds that are not treated above.
fn common_rules() -> Vec<Rule> {
    let rule = |verbs: &[&str], groups: &[&str], resources: &[&str]| json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
    const READ: &[&str] = &["get", "list", "watch"];
    let rules = json!({"rules": [
        rule(&["create"], &["authentication.k8s.io"], &["tokenreviews"]),
        rule(&["create"], &["authorization.k8s.io"], &["subjectaccessreviews", "localsubjectaccessreviews"]),
        rule(READ, &[""], &["services"]),
        rule(&["create", "update", "patch"], &["", "events.k8s.io"], &["events"]),
        rule(&["get"], &[""], &["endpoints"]),
        rule(&["create", "get", "list", "watch"], &["certificates.k8s.io"], &["certificatesigningrequests"]),
        rule(READ, &["storage.k8s.io"], &["csidrivers"]),
        rule(READ, &["node.k8s.io"], &["runtimeclasses"]),
    ]});
    Rule::all_of(&rules)
}
