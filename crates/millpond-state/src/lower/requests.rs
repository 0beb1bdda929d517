//! The requests of a pod, as kubelet and kube-scheduler 1.36 count them.
//!
//! | Part | Rule |
//! |---|---|
//! | containers | the sum |
//! | init containers | each with the sidecars before it; the greatest of these counts where it is above the sum |
//! | sidecars (init containers that restart always) | added to the containers |
//! | a limit without a request | is the request |
//! | a container that is being resized | the greatest of asked, given and had; without what is asked if it is infeasible |
//! | the pod as a whole (`spec.resources`) | replaces cpu, memory and huge pages of the containers |
//! | overhead | added |

use millpond_plan::model::{PODS, ResourceId, ResourceTable, Resources};

use crate::objects::pod::{Container, ContainerStatus, PodSpec, PodStatus, ResourceRequirements};
use crate::objects::text::Amounts;

/// The pod's requests, including one of `pods`.
pub(crate) fn of_pod(spec: &PodSpec<'_>, status: &PodStatus<'_>, table: &mut ResourceTable) -> Resources {
    Parts::new(spec, status, table).requests(&Resources::new())
}

/// The requests of a pod, by container.
///
/// The requests of a pod are its own. Those of a pod that is still to be made also depend on the LimitRanges of its
/// namespace, which speak of containers, and come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    containers: Box<[Part]>,
    whole: Box<[(ResourceId, Whole)]>,
    /// During a resize, the resources that the pod as a whole has or was allocated, and whether its requests count as
    /// well.
    resize: Option<(Resources, bool)>,
    overhead: Resources,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    role: Role,
    asked: Resources,
    /// Resources with an explicit request of zero.
    nothing_of: Vec<ResourceId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Main,
    /// It runs before the main containers.
    Init,
    /// It starts before the main containers and keeps running.
    Sidecar,
}

/// A pod-level request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    /// So much.
    Request(i64),
    /// The sum of the containers' requests, or the pod's limit if they request nothing.
    SumOr(i64),
}

impl Parts {
    /// The requests of a pod, with the state of its resize.
    pub(crate) fn new(spec: &PodSpec<'_>, status: &PodStatus<'_>, table: &mut ResourceTable) -> Self {
        let infeasible = is_infeasible(status);
        let mut containers = Vec::with_capacity(spec.containers.len() + spec.init_containers.len());
        for container in &spec.containers {
            containers.push(Part::new(Role::Main, container, &status.container_statuses, infeasible, table));
        }
        for container in &spec.init_containers {
            let always = &*container.restart_policy == "Always";
            let (role, statuses) =
                if always { (Role::Sidecar, &status.init_container_statuses[..]) } else { (Role::Init, &[][..]) };
            containers.push(Part::new(role, container, statuses, infeasible, table));
        }
        Self {
            containers: containers.into(),
            whole: of_whole(spec, table).into(),
            resize: status.resources.as_ref().map(|had| {
                let mut greatest = amounts(&had.requests, table);
                greatest.raise_to(&amounts(&status.allocated_resources, table));
                (greatest, !infeasible)
            }),
            overhead: amounts(&spec.overhead, table),
        }
    }

    /// The sum of all requests. Containers without a request for a resource use the default.
    pub(crate) fn requests(&self, defaults: &Resources) -> Resources {
        let mut requests = self.of_containers(defaults);
        for &(resource, asked) in &self.whole {
            let asked = match asked {
                Whole::Request(amount) => amount,
                Whole::SumOr(limit) if requests.get(resource) == 0 => limit,
                Whole::SumOr(_) => requests.get(resource),
            };
            let amount = self
                .resize
                .as_ref()
                .map_or(asked, |(greatest, counts)| greatest.get(resource).max(if *counts { asked } else { 0 }));
            requests.set(resource, amount);
        }
        requests.add(&self.overhead);
        requests.set(PODS, 1);
        requests
    }

    fn of_containers(&self, defaults: &Resources) -> Resources {
        let mut sum = Resources::new();
        for part in self.containers.iter().filter(|part| part.role == Role::Main) {
            sum.add(&part.asks(defaults));
        }
        let (mut sidecars, mut starting) = (Resources::new(), Resources::new());
        for part in self.containers.iter().filter(|part| part.role != Role::Main) {
            let mut now = part.asks(defaults);
            if part.role == Role::Sidecar {
                sum.add(&now);
                sidecars.add(&now);
                now = sidecars.clone();
            } else {
                now.add(&sidecars);
            }
            starting.raise_to(&now);
        }
        sum.raise_to(&starting);
        sum
    }
}

impl Part {
    fn new(
        role: Role,
        container: &Container<'_>,
        statuses: &[ContainerStatus<'_>],
        infeasible: bool,
        table: &mut ResourceTable,
    ) -> Self {
        let ResourceRequirements { requests, limits } = &container.resources;
        let nothing = limits.iter().chain(requests.iter()).filter(|(_, amount)| *amount == 0);
        let nothing_of = nothing.map(|(name, _)| table.intern(name)).collect();
        Self { role, asked: of_container(container, statuses, infeasible, table), nothing_of }
    }

    fn asks(&self, defaults: &Resources) -> Resources {
        let mut asked = self.asked.clone();
        for (resource, amount) in defaults.iter() {
            if asked.get(resource) == 0 && !self.nothing_of.contains(&resource) {
                asked.set(resource, amount);
            }
        }
        asked
    }
}

pub(crate) fn amounts(amounts: &Amounts<'_>, table: &mut ResourceTable) -> Resources {
    let mut all = Resources::new();
    for (name, amount) in amounts.iter() {
        // A pod counts as one, whatever it requests of `pods`.
        if name != "pods" || amount > 0 {
            all.set(table.intern(name), amount);
        }
    }
    all
}

fn of_container(
    container: &Container<'_>,
    statuses: &[ContainerStatus<'_>],
    infeasible: bool,
    table: &mut ResourceTable,
) -> Resources {
    let asked = with_limits(&container.resources, table);
    let status = statuses.iter().find(|status| status.name == container.name);
    match status.and_then(|status| Some((status.resources.as_ref()?, &status.allocated_resources))) {
        Some((had, given)) => resized(asked, &had.requests, given, infeasible, table),
        None => asked,
    }
}

fn with_limits(resources: &ResourceRequirements<'_>, table: &mut ResourceTable) -> Resources {
    let mut asked = amounts(&resources.limits, table);
    for (name, amount) in resources.requests.iter() {
        asked.set(table.intern(name), amount);
    }
    asked
}

fn resized(
    asked: Resources,
    had: &Amounts<'_>,
    given: &Amounts<'_>,
    infeasible: bool,
    table: &mut ResourceTable,
) -> Resources {
    let mut greatest = if infeasible { Resources::new() } else { asked };
    greatest.raise_to(&amounts(had, table));
    greatest.raise_to(&amounts(given, table));
    greatest
}

/// Whether the node said that it can never do what a resize asks for.
fn is_infeasible(status: &PodStatus<'_>) -> bool {
    let pending = status.conditions.iter().find(|condition| &*condition.kind == "PodResizePending");
    pending.is_some_and(|condition| &*condition.reason == "Infeasible")
}

/// Resources that a pod can have as a whole.
fn is_of_whole(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// The pod-level requests, with the API server's defaults: for a resource with a limit, the sum of the containers'
/// requests, or else the limit.
fn of_whole(spec: &PodSpec<'_>, table: &mut ResourceTable) -> Vec<(ResourceId, Whole)> {
    let ResourceRequirements { requests, limits } = &spec.resources;
    let mut asked: Vec<(ResourceId, Whole)> = Vec::new();
    for (name, amount) in requests.iter().filter(|(name, _)| is_of_whole(name)) {
        asked.push((table.intern(name), Whole::Request(amount)));
    }
    for (name, limit) in limits.iter().filter(|(name, _)| is_of_whole(name) && requests.get(name).is_none()) {
        let whole = if name.starts_with("hugepages-") { Whole::Request(limit) } else { Whole::SumOr(limit) };
        asked.push((table.intern(name), whole));
    }
    asked
}
