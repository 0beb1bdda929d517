//! Services, endpoints, ingresses and network policies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::read::{integer, joined, labels, list, map, name, number_or_text, optional, present, selector, text};
use super::{AGE, NAME, age, or, plain, text as column, wide, with_more};
use crate::resource::BuiltinColumns;

/// How many addresses, ports or hosts a cell shows.
const MAX_SHOWN: usize = 3;

pub(super) static SERVICE: BuiltinColumns = plain(
    &[
        NAME,
        column("Type", "How the service is reached"),
        column("Cluster-IP", "Address within the cluster"),
        column("External-IP", "Addresses outside the cluster"),
        column("Port(s)", "Ports of the service"),
        AGE,
        wide(column("Selector", "Labels of the pods behind the service")),
    ],
    |service, now| {
        let cluster_ip = or(text(service, "/spec/clusterIPs/0"), text(service, "/spec/clusterIP"));
        vec![
            json!(name(service)),
            json!(text(service, "/spec/type")),
            json!(or(cluster_ip, "<none>")),
            json!(external_addresses(service)),
            json!(service_ports(service)),
            json!(age(service, now)),
            json!(labels(service, "/spec/selector")),
        ]
    },
);

fn external_addresses(service: &Value) -> String {
    let external = joined(service, "/spec/externalIPs", ",");
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" => or(&external, "<none>").to_owned(),
        "LoadBalancer" => {
            let balancer = load_balancer_addresses(service);
            let both = [balancer, external].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
            or(&both, "<pending>").to_owned()
        }
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses and names of a load balancer, sorted.
fn load_balancer_addresses(object: &Value) -> String {
    let addresses: BTreeSet<&str> = list(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|ingress| or(text(ingress, "/ip"), text(ingress, "/hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let (number, protocol) = (integer(port, "/port"), text(port, "/protocol"));
            match integer(port, "/nodePort") {
                node_port @ 1.. => format!("{number}:{node_port}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    or(&ports.join(","), "<none>").to_owned()
}

pub(super) static ENDPOINTS: BuiltinColumns =
    plain(&[NAME, column("Endpoints", "Addresses and ports that the service leads to"), AGE], |object, now| {
        vec![json!(name(object)), json!(endpoints(object)), json!(age(object, now))]
    });

fn endpoints(object: &Value) -> String {
    let subsets = list(object, "/subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut shown = Vec::new();
    let mut total = 0;
    for subset in subsets {
        let addresses = list(subset, "/addresses");
        let ports = list(subset, "/ports");
        // Services without a cluster address may have no ports.
        let rounds: Vec<Option<i64>> =
            if ports.is_empty() { vec![None] } else { ports.iter().map(|port| Some(integer(port, "/port"))).collect() };
        for port in rounds {
            total += addresses.len();
            let missing = MAX_SHOWN - shown.len().min(MAX_SHOWN);
            shown.extend(addresses.iter().take(missing).map(|address| host_and_port(text(address, "/ip"), port)));
        }
    }
    with_more(&shown, total, MAX_SHOWN, ",")
}

fn host_and_port(host: &str, port: Option<i64>) -> String {
    match port {
        None => host.to_owned(),
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
    }
}

pub(super) static ENDPOINT_SLICE: BuiltinColumns = plain(
    &[
        NAME,
        column("AddressType", "Kind of the addresses"),
        column("Ports", "Ports of all endpoints of the slice"),
        column("Endpoints", "Addresses of the endpoints"),
        AGE,
    ],
    |object, now| {
        let ports: Vec<String> = list(object, "/ports").iter().map(slice_port).collect();
        let addresses: Vec<String> = list(object, "/endpoints")
            .iter()
            .flat_map(|endpoint| list(endpoint, "/addresses"))
            .map(|address| address.as_str().unwrap_or_default().to_owned())
            .collect();
        vec![
            json!(name(object)),
            json!(text(object, "/addressType")),
            json!(shown_or_unset(&ports)),
            json!(shown_or_unset(&addresses)),
            json!(age(object, now)),
        ]
    },
);

fn slice_port(port: &Value) -> String {
    match port.get("port").filter(|number| !number.is_null()) {
        Some(number) => number_or_text(number),
        None => optional(port, "/name").unwrap_or("*").to_owned(),
    }
}

fn shown_or_unset(items: &[String]) -> String {
    or(&with_more(items, items.len(), MAX_SHOWN, ","), "<unset>").to_owned()
}

pub(super) static INGRESS: BuiltinColumns = plain(
    &[
        NAME,
        column("Class", "Name of the ingress class"),
        column("Hosts", "Host names of the rules"),
        column("Address", "Addresses of the load balancer"),
        column("Ports", "Ports that are open"),
        AGE,
    ],
    |object, now| {
        let ports = if list(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
        vec![
            json!(name(object)),
            json!(optional(object, "/spec/ingressClassName").unwrap_or("<none>")),
            json!(ingress_hosts(object)),
            json!(load_balancer_addresses(object)),
            json!(ports),
            json!(age(object, now)),
        ]
    },
);

/// The first hosts. Rules without a host count when it is said how many more there are.
fn ingress_hosts(ingress: &Value) -> String {
    let rules = list(ingress, "/spec/rules");
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in rules {
        let host = text(rule, "/host");
        if hosts.len() == MAX_SHOWN {
            more = true;
        } else if !host.is_empty() {
            hosts.push(host);
        }
    }
    match hosts.join(",") {
        none if none.is_empty() => "*".to_owned(),
        hosts if more => format!("{hosts} + {} more...", rules.len() - MAX_SHOWN),
        hosts => hosts,
    }
}

pub(super) static INGRESS_CLASS: BuiltinColumns = plain(
    &[
        NAME,
        column("Controller", "Controller that handles ingresses of this class"),
        column("Parameters", "Object with further settings"),
        AGE,
    ],
    |object, now| {
        let annotation = map(object, "/metadata/annotations")
            .and_then(|annotations| annotations.get("ingressclass.kubernetes.io/is-default-class"));
        let default = if annotation.is_some_and(|value| value == "true") { " (default)" } else { "" };
        let parameters = match object.pointer("/spec/parameters") {
            Some(parameters) if present(object, "/spec/parameters") => {
                let group = optional(parameters, "/apiGroup").map_or_else(String::new, |group| format!(".{group}"));
                format!("{}{group}/{}", text(parameters, "/kind"), text(parameters, "/name"))
            }
            _ => "<none>".to_owned(),
        };
        vec![
            json!(format!("{}{default}", name(object))),
            json!(text(object, "/spec/controller")),
            json!(parameters),
            json!(age(object, now)),
        ]
    },
);

pub(super) static NETWORK_POLICY: BuiltinColumns =
    plain(&[NAME, column("Pod-Selector", "Labels of the pods that the policy is for"), AGE], |object, now| {
        vec![json!(name(object)), json!(selector(object, "/spec/podSelector")), json!(age(object, now))]
    });

pub(super) static SERVICE_CIDR: BuiltinColumns =
    plain(&[NAME, column("CIDRs", "Networks that services get addresses from"), AGE], |object, now| {
        vec![json!(name(object)), json!(joined(object, "/spec/cidrs", ",")), json!(age(object, now))]
    });

/// The real API server gives a cell more than it has columns here.
pub(super) static IP_ADDRESS: BuiltinColumns =
    plain(&[NAME, column("ParentRef", "Object that the address belongs to")], |object, now| {
        vec![json!(name(object)), json!(address_owner(object)), json!(age(object, now))]
    });

fn address_owner(address: &Value) -> String {
    let Some(parent) = address.pointer("/spec/parentRef").filter(|parent| !parent.is_null()) else {
        return "<none>".to_owned();
    };
    let resource = match text(parent, "/group") {
        "" => text(parent, "/resource").to_lowercase(),
        group => format!("{}.{group}", text(parent, "/resource")).to_lowercase(),
    };
    let parts = [resource.as_str(), text(parent, "/namespace")];
    let path = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    format!("{path}/{}", text(parent, "/name"))
}
