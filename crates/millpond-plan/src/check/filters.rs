//! kube-scheduler's filters on a single node: resources, node affinity, volumes, taints, ports.

use super::planned_cluster::{Group, PlannedCluster};
use super::violation::Violation;
use crate::model::{HostPort, ResourceId, Resources};

/// Checks the filters of every node that the plan puts pods on.
pub(super) fn check(cluster: &mut PlannedCluster<'_>, found: &mut Vec<Violation>) {
    for site in 0..cluster.sites.len() {
        if !cluster.groups_of(site).iter().any(|group| group.planned > 0) {
            continue;
        }
        resources(cluster, site, found);
        ports(cluster, site, found);
        for number in cluster.sites[site].groups.clone() {
            if cluster.groups[number].planned > 0 {
                suits(cluster, number, found);
            }
        }
    }
}

/// The pods of a node request no more of any resource than is allocatable, for the resources that a planned pod
/// requests.
fn resources(cluster: &PlannedCluster<'_>, site: usize, found: &mut Vec<Violation>) {
    let mut asked = Resources::new();
    let mut by_planned: Vec<ResourceId> = Vec::new();
    for group in cluster.groups_of(site) {
        let requests = &cluster.class(group.class).requests;
        asked.add_times(requests, i64::from(group.total()));
        if group.planned > 0 {
            by_planned.extend(requests.iter().filter(|(_, amount)| *amount > 0).map(|(resource, _)| resource));
        }
    }
    by_planned.sort_unstable();
    by_planned.dedup();
    for resource in by_planned {
        let (asked, allocatable) = (asked.get(resource), cluster.allocatable(site).get(resource));
        if asked > allocatable {
            let (node, resource) = (cluster.site_name(site), cluster.snapshot.resources.name(resource).to_owned());
            found.push(Violation::Resources { node, resource, asked, allocatable });
        }
    }
}

fn suits(cluster: &mut PlannedCluster<'_>, number: usize, found: &mut Vec<Violation>) {
    let Group { site, class, .. } = cluster.groups[number];
    let names = |cluster: &PlannedCluster<'_>| (cluster.pod_name(&cluster.groups[number]), cluster.site_name(site));
    if !cluster.affinity_allows(class, site) {
        let (pod, node) = names(cluster);
        found.push(Violation::NodeAffinity { pod, node });
    }
    if !cluster.class(class).volume_terms.iter().all(|alternatives| cluster.satisfies(site, alternatives)) {
        let (pod, node) = names(cluster);
        found.push(Violation::Volumes { pod, node });
    }
    if !cluster.tolerates(class, site)
        && let Some(taint) = cluster.forbidding_taint(class, site)
    {
        let (pod, node) = names(cluster);
        found.push(Violation::Taint { pod, node, taint: cluster.snapshot.text(taint.key).to_owned() });
    }
}

/// No planned pod uses a host port that another pod of the node has.
fn ports(cluster: &PlannedCluster<'_>, site: usize, found: &mut Vec<Violation>) {
    let groups = cluster.groups_of(site);
    let wanting: Vec<&Group> =
        groups.iter().filter(|group| !cluster.class(group.class).host_ports.is_empty()).collect();
    for (number, group) in wanting.iter().enumerate() {
        let of = |group: &Group| &cluster.class(group.class).host_ports;
        let clash = |a: &Group, b: &Group| of(a).iter().find(|one| of(b).iter().any(|other| one.conflicts(other)));
        let mut report = |other: &Group, port: &HostPort| {
            let (pod, other) = (cluster.pod_name(group), cluster.pod_name(other));
            found.push(Violation::HostPort { pod, other, node: cluster.site_name(site), port: port.port });
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
