//! The usage of an object, as quotas count it.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::builtin::json::Fields;
use crate::builtin::pod::quality;
use crate::builtin::resources::{self, Amounts, is_pod_level};
use crate::handlers::update::Part;
use crate::quantity::Quantity;
use crate::resource::Resource;

/// Stands between a storage class and what is counted of it.
const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// Behind the name of a device class.
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// Devices that a claim for all of them may get.
const MOST_DEVICES: u64 = 32;

/// Amounts of pods that a quota can count, besides huge pages and extended resources.
const POD_RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// Amounts that every container has to name once a quota counts them.
const DEMANDED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// How objects of a kind are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// By the requests of their containers.
    Pods,
    /// By node ports and load balancers.
    Services,
    /// By storage.
    VolumeClaims,
    /// By devices.
    DeviceClaims,
    /// Each one counts one.
    Count,
}

impl Measure {
    /// How a kind is counted; `None` for what quotas ignore.
    pub(super) fn of(resource: &Resource) -> Option<Self> {
        match &*resource.storage {
            "pods" => Some(Self::Pods),
            "services" => Some(Self::Services),
            "persistentvolumeclaims" => Some(Self::VolumeClaims),
            "resourceclaims.resource.k8s.io" => Some(Self::DeviceClaims),
            _ if &*resource.plural == "events" && matches!(&*resource.group, "" | "events.k8s.io") => None,
            _ => Some(Self::Count),
        }
    }

    /// Whether a creation (`old` is none) or a change can alter what is counted.
    pub(super) fn concerns(self, new: &Value, old: Option<&Value>, part: Part) -> bool {
        let Some(old) = old else { return part == Part::Main };
        match (self, part) {
            (Self::Pods, Part::Main) => ends(new) != ends(old),
            (Self::Pods, Part::Other("resize")) => true,
            (Self::Services | Self::VolumeClaims | Self::DeviceClaims, Part::Main) => true,
            (Self::VolumeClaims, Part::Status) => {
                let allocated = |claim: &Value| claim.at("status").at("allocatedResources").at("storage").clone();
                allocated(new) != allocated(old) || attributes_classes(new) != attributes_classes(old)
            }
            _ => false,
        }
    }

    /// Whether an amount of a quota is about objects of this kind.
    pub(super) fn covers(self, resource: &Resource, name: &str) -> bool {
        match self {
            Self::Pods => {
                let extended = name.strip_prefix("requests.").is_some_and(is_extended);
                POD_RESOURCES.contains(&name)
                    || name.starts_with("hugepages-")
                    || name.starts_with("requests.hugepages-")
                    || extended
            }
            Self::Services => {
                matches!(name, "count/services" | "services" | "services.nodeports" | "services.loadbalancers")
            }
            Self::VolumeClaims => {
                let own = |name: &str| matches!(name, "persistentvolumeclaims" | "requests.storage");
                own(name)
                    || name == "count/persistentvolumeclaims"
                    || name.split_once(OF_STORAGE_CLASS).is_some_and(|(_, rest)| own(rest))
            }
            Self::DeviceClaims => name == count_name(resource) || name.ends_with(OF_DEVICE_CLASS),
            Self::Count => name == count_name(resource) || alias(resource) == Some(name),
        }
    }

    /// Whether an object is in one scope of a quota.
    pub(super) fn is_in_scope(self, scope: &Scope<'_>, object: &Value) -> bool {
        match (self, scope.name) {
            (Self::Pods, "Terminating") => ends(object),
            (Self::Pods, "NotTerminating") => !ends(object),
            (Self::Pods, "BestEffort") => quality::class(object.at("spec")) == "BestEffort",
            (Self::Pods, "NotBestEffort") => quality::class(object.at("spec")) != "BestEffort",
            (Self::Pods, "PriorityClass") => {
                let class = object.at("spec").text("priorityClassName");
                scope.selects(Some(class).filter(|class| !class.is_empty()).into_iter())
            }
            (Self::Pods, "CrossNamespacePodAffinity") => looks_across_namespaces(object.at("spec").at("affinity")),
            (Self::VolumeClaims, "VolumeAttributesClass") => scope.selects(attributes_classes(object).into_iter()),
            _ => false,
        }
    }

    /// Where cpu or memory is counted, each container has to say how much it takes.
    pub(super) fn check_named(self, counted: &[&str], object: &Value) -> Result<(), String> {
        let spec = object.at("spec");
        if self != Self::Pods || has_own_resources(spec) {
            return Ok(());
        }
        let mut missing = Vec::new();
        for name in DEMANDED.iter().filter(|name| counted.contains(name)) {
            let containers = spec.items("containers").iter().chain(spec.items("initContainers"));
            let silent = containers.filter(|container| {
                let own = container.at("resources");
                let taken = compute(&Amounts::of(own.at("requests")), &Amounts::of(own.at("limits")));
                !taken.0.contains_key(*name)
            });
            let mut silent: Vec<&str> = silent.map(|container| container.text("name")).collect();
            silent.sort_unstable();
            if !silent.is_empty() {
                missing.push(format!("{name} for: {}", silent.join(",")));
            }
        }
        missing.sort();
        if missing.is_empty() { Ok(()) } else { Err(format!("must specify {}", missing.join("; "))) }
    }

    /// The usage of an object.
    pub(super) fn usage(self, resource: &Resource, object: &Value, now: Timestamp) -> Amounts {
        let mut usage = Amounts::default();
        usage.0.insert(count_name(resource), Quantity::count(1));
        match self {
            Self::Pods if is_over(object, now) => {}
            Self::Pods => {
                usage.add(&compute(&resources::of_pod(object, "requests"), &resources::of_pod(object, "limits")));
            }
            Self::Services => usage.add(&service(object.at("spec"))),
            Self::VolumeClaims => usage.add(&volume_claim(object)),
            Self::DeviceClaims => usage.add(&device_claim(object.at("spec"))),
            Self::Count => {
                if let Some(alias) = alias(resource) {
                    usage.0.insert(alias.to_owned(), Quantity::count(1));
                }
            }
        }
        usage
    }
}

/// A scope of a quota: a condition on the objects that it counts.
pub(super) struct Scope<'a> {
    name: &'a str,
    operator: &'a str,
    values: &'a [Value],
}

impl Scope<'_> {
    /// Whether one of the names (or their absence) is selected.
    fn selects<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        let listed = |name: &str| self.values.iter().any(|value| value == name);
        let mut names = names.peekable();
        let any = names.peek().is_some();
        match self.operator {
            "Exists" => any,
            "DoesNotExist" => !any,
            "In" => names.any(listed),
            "NotIn" => !any || names.any(|name| !listed(name)),
            _ => false,
        }
    }
}

/// The scopes of a quota, in both notations.
pub(super) fn scopes(quota: &Value) -> Vec<Scope<'_>> {
    let spec = quota.at("spec");
    let plain = spec.items("scopes").iter().filter_map(Value::as_str);
    let plain = plain.map(|name| Scope { name, operator: "Exists", values: &[] });
    let selected = spec.at("scopeSelector").items("matchExpressions").iter().map(|requirement| Scope {
        name: requirement.text("scopeName"),
        operator: requirement.text("operator"),
        values: requirement.items("values"),
    });
    plain.chain(selected).collect()
}

fn count_name(resource: &Resource) -> String {
    format!("count/{}", crate::status::qualified(&resource.group, &resource.plural))
}

/// The older name under which some kinds are counted.
fn alias(resource: &Resource) -> Option<&'static str> {
    match &*resource.storage {
        "configmaps" => Some("configmaps"),
        "resourcequotas" => Some("resourcequotas"),
        "replicationcontrollers" => Some("replicationcontrollers"),
        "secrets" => Some("secrets"),
        _ => None,
    }
}

/// Whether a name is an extended resource or a device class.
fn is_extended(name: &str) -> bool {
    name.starts_with("deviceclass.resource.kubernetes.io/") || (name.contains('/') && !name.contains("kubernetes.io/"))
}

fn ends(pod: &Value) -> bool {
    pod.at("spec").number("activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

/// Pods that have ended, or should have been gone by now, take nothing.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    if matches!(pod.at("status").text("phase"), "Failed" | "Succeeded") {
        return true;
    }
    let metadata = pod.at("metadata");
    let (Ok(deleted), Some(grace)) =
        (metadata.text("deletionTimestamp").parse::<Timestamp>(), metadata.number("deletionGracePeriodSeconds"))
    else {
        return false;
    };
    deleted.checked_add(SignedDuration::from_secs(grace)).is_ok_and(|end| now > end)
}

fn has_own_resources(spec: &Value) -> bool {
    let own = spec.at("resources");
    ["requests", "limits"].iter().any(|side| own.entries(side).any(|(name, _)| is_pod_level(name)))
}

/// Requests and limits under the names that quotas have for them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut taken = Amounts::default();
    taken.0.insert("pods".to_owned(), Quantity::count(1));
    for (name, amount) in &requests.0 {
        let standard =
            matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if standard {
            taken.0.insert(name.clone(), amount.clone());
        }
        if standard || is_extended(name) {
            taken.0.insert(format!("requests.{name}"), amount.clone());
        }
    }
    for (name, amount) in &limits.0 {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            taken.0.insert(format!("limits.{name}"), amount.clone());
        }
    }
    taken
}

fn looks_across_namespaces(affinity: &Value) -> bool {
    let across = |term: &Value| !term.items("namespaces").is_empty() || term.at("namespaceSelector").is_object();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let rules = affinity.at(kind);
        let mut weighted = rules.items("preferredDuringSchedulingIgnoredDuringExecution").iter();
        rules.items("requiredDuringSchedulingIgnoredDuringExecution").iter().any(across)
            || weighted.any(|weighted| across(weighted.at("podAffinityTerm")))
    })
}

fn service(spec: &Value) -> Amounts {
    let kind = spec.text("type");
    let ports = spec.items("ports").iter();
    // Ports are not given out yet, so it is the intention that counts.
    let node_ports = match kind {
        "LoadBalancer" if spec.at("allocateLoadBalancerNodePorts") == &Value::Bool(false) => {
            ports.filter(|port| port.number("nodePort").unwrap_or(0) != 0).count()
        }
        "NodePort" | "LoadBalancer" => ports.count(),
        _ => 0,
    };
    let mut taken = Amounts::default();
    taken.0.insert("services".to_owned(), Quantity::count(1));
    taken.0.insert("services.nodeports".to_owned(), Quantity::count(node_ports as u64));
    taken.0.insert("services.loadbalancers".to_owned(), Quantity::count(u64::from(kind == "LoadBalancer")));
    taken
}

fn volume_claim(claim: &Value) -> Amounts {
    let spec = claim.at("spec");
    let class = match claim.at("metadata").at("annotations").at("volume.beta.kubernetes.io/storage-class").as_str() {
        Some(annotated) => annotated,
        None => spec.text("storageClassName"),
    };
    let mut amounts = vec![("persistentvolumeclaims", Quantity::count(1))];
    let parse = |amount: &Value| Quantity::parse(amount.as_str()?).ok();
    if let Some(mut storage) = parse(spec.at("resources").at("requests").at("storage")) {
        if let Some(allocated) = parse(claim.at("status").at("allocatedResources").at("storage")) {
            storage = storage.max(allocated);
        }
        amounts.push(("requests.storage", storage.rounded_up_to_whole()));
    }
    let mut taken = Amounts::default();
    for (name, amount) in amounts {
        if !class.is_empty() {
            taken.0.insert(format!("{class}{OF_STORAGE_CLASS}{name}"), amount.clone());
        }
        taken.0.insert(name.to_owned(), amount);
    }
    taken
}

/// The classes of attributes that a claim has or wants.
fn attributes_classes(claim: &Value) -> std::collections::BTreeSet<&str> {
    let status = claim.at("status");
    let names = [
        claim.at("spec").text("volumeAttributesClassName"),
        status.text("currentVolumeAttributesClassName"),
        status.at("modifyVolumeStatus").text("targetVolumeAttributesClassName"),
    ];
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

fn device_claim(spec: &Value) -> Amounts {
    let mut taken = Amounts::default();
    for request in spec.at("devices").items("requests") {
        let mut most = Amounts::default();
        let exactly = request.at("exactly");
        let choices = request.items("firstAvailable").iter();
        // If there are several choices, each class counts its largest possible use.
        for choice in choices.chain(exactly.is_object().then_some(exactly)) {
            let devices = match choice.text("allocationMode") {
                "ExactCount" => choice.at("count").as_u64().unwrap_or(0),
                "All" => MOST_DEVICES,
                _ => 0,
            };
            let mut one = Amounts::default();
            one.0.insert(format!("{}{OF_DEVICE_CLASS}", choice.text("deviceClassName")), Quantity::count(devices));
            most.raise(&one);
        }
        taken.add(&most);
    }
    taken
}
