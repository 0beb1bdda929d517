//! What kube-scheduler asks of a node alone: resources, node affinity, volumes, taints, ports.

use super::violation::Violation;
use super::world::{Group, World};
use crate::model::{HostPort, ResourceId, Resources};

/// Asks for every node that the plan puts pods on.
pub(super) fn check(world: &mut World<'_>, found: &mut Vec<Violation>) {
    for site in 0..world.sites.len() {
        if !world.groups_of(site).iter().any(|group| group.planned > 0) {
            continue;
        }
        resources(world, site, found);
        ports(world, site, found);
        for number in world.sites[site].groups.clone() {
            if world.groups[number].planned > 0 {
                suits(world, number, found);
            }
        }
    }
}

/// Of every resource that a planned pod asks for, all pods together ask for no more than there is.
fn resources(world: &World<'_>, site: usize, found: &mut Vec<Violation>) {
    let mut asked = Resources::new();
    let mut by_planned: Vec<ResourceId> = Vec::new();
    for group in world.groups_of(site) {
        let requests = &world.class(group.class).requests;
        asked.add_times(requests, i64::from(group.total()));
        if group.planned > 0 {
            by_planned.extend(requests.iter().filter(|(_, amount)| *amount > 0).map(|(resource, _)| resource));
        }
    }
    by_planned.sort_unstable();
    by_planned.dedup();
    for resource in by_planned {
        let (asked, allocatable) = (asked.get(resource), world.allocatable(site).get(resource));
        if asked > allocatable {
            let (node, resource) = (world.site_name(site), world.snapshot.resources.name(resource).to_owned());
            found.push(Violation::Resources { node, resource, asked, allocatable });
        }
    }
}

fn suits(world: &mut World<'_>, number: usize, found: &mut Vec<Violation>) {
    let Group { site, class, .. } = world.groups[number];
    let names = |world: &World<'_>| (world.pod_name(&world.groups[number]), world.site_name(site));
    if !world.affinity_allows(class, site) {
        let (pod, node) = names(world);
        found.push(Violation::NodeAffinity { pod, node });
    }
    if !world.class(class).volume_terms.iter().all(|alternatives| world.satisfies(site, alternatives)) {
        let (pod, node) = names(world);
        found.push(Violation::Volumes { pod, node });
    }
    if !world.tolerates(class, site)
        && let Some(taint) = world.forbidding_taint(class, site)
    {
        let (pod, node) = names(world);
        found.push(Violation::Taint { pod, node, taint: world.snapshot.text(taint.key).to_owned() });
    }
}

/// No planned pod wants a port that another pod of the node has.
fn ports(world: &World<'_>, site: usize, found: &mut Vec<Violation>) {
    let groups = world.groups_of(site);
    let wanting: Vec<&Group> = groups.iter().filter(|group| !world.class(group.class).host_ports.is_empty()).collect();
    for (number, group) in wanting.iter().enumerate() {
        let of = |group: &Group| &world.class(group.class).host_ports;
        let clash = |a: &Group, b: &Group| of(a).iter().find(|one| of(b).iter().any(|other| one.conflicts(other)));
        let mut report = |other: &Group, port: &HostPort| {
            let (pod, other) = (world.pod_name(group), world.pod_name(other));
            found.push(Violation::HostPort { pod, other, node: world.site_name(site), port: port.port });
        };
        if group.planned > 0 && group.total() > 1 {
            report(group, &of(group)[0]);
        }
        for other in &wanting[number + 1..] {
            if (group.planned > 0 || other.planned > 0)
                && let Some(port) = clash(group, other)
            {
                report(other, port);
            }
        }
    }
}
