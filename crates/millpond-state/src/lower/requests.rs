//! What a pod asks for, as kubelet and kube-scheduler 1.36 count it.
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

/// What the pod asks for, one of `pods` included.
pub(crate) fn of_pod(spec: &PodSpec<'_>, status: &PodStatus<'_>, table: &mut ResourceTable) -> Resources {
    let mut requests = of_containers(spec, status, table);
    let whole = of_whole(spec, status, &requests, table);
    for (resource, amount) in whole {
        requests.set(resource, amount);
    }
    requests.add(&amounts(&spec.overhead, table));
    requests.set(PODS, 1);
    requests
}

pub(crate) fn amounts(amounts: &Amounts<'_>, table: &mut ResourceTable) -> Resources {
    let mut all = Resources::new();
    for (name, amount) in amounts.iter() {
        // A pod counts as one whatever it says.
        if name != "pods" || amount > 0 {
            all.set(table.intern(name), amount);
        }
    }
    all
}

fn of_containers(spec: &PodSpec<'_>, status: &PodStatus<'_>, table: &mut ResourceTable) -> Resources {
    let infeasible = is_infeasible(status);
    let mut sum = Resources::new();
    for container in &spec.containers {
        sum.add(&of_container(container, &status.container_statuses, infeasible, table));
    }
    let (mut sidecars, mut starting) = (Resources::new(), Resources::new());
    for container in &spec.init_containers {
        let always = &*container.restart_policy == "Always";
        let statuses = if always { status.init_container_statuses.as_slice() } else { &[] };
        let mut now = of_container(container, statuses, infeasible, table);
        if always {
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

/// What the pod as a whole asks for, with the API server's defaults: where there are limits, the sum of the
/// containers, or else the limit.
fn of_whole(
    spec: &PodSpec<'_>,
    status: &PodStatus<'_>,
    containers: &Resources,
    table: &mut ResourceTable,
) -> Vec<(ResourceId, i64)> {
    let ResourceRequirements { requests, limits } = &spec.resources;
    let mut asked: Vec<(ResourceId, i64)> = Vec::new();
    for (name, amount) in requests.iter().filter(|(name, _)| is_of_whole(name)) {
        asked.push((table.intern(name), amount));
    }
    for (name, limit) in limits.iter().filter(|(name, _)| is_of_whole(name) && requests.get(name).is_none()) {
        let resource = table.intern(name);
        let sum = if name.starts_with("hugepages-") { 0 } else { containers.get(resource) };
        asked.push((resource, if sum > 0 { sum } else { limit }));
    }
    if let Some(had) = &status.resources {
        let spec: Resources = asked.iter().copied().collect();
        let effective = resized(spec, &had.requests, &status.allocated_resources, is_infeasible(status), table);
        asked.iter_mut().for_each(|(resource, amount)| *amount = effective.get(*resource));
    }
    asked
}
