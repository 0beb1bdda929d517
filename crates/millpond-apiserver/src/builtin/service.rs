//! Service and Endpoints.
//!
//! The caller, who sees all services, allocates addresses and node ports; this module has the rules that concern a
//! single service.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::check::{self, Errors, ReportError};
use super::hooks::{self, UPSERTED};
use super::ip;
use super::json::{Fields, Fill};
use super::path::Path;
use super::shape;
use crate::meta::validate_labels;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const METADATA: Path<'static> = Path::root("metadata");
/// The older way to say which clients a load balancer lets in.
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Service.
pub(super) const SERVICE: BuiltinKind = BuiltinKind {
    prepare_create: |service| {
        shape::preparing(service, |service| {
            service.drop("status");
            let spec = service.object("spec");
            if !spec.text("clusterIP").is_empty() && spec.items("clusterIPs").is_empty() {
                let address = spec.at("clusterIP").clone();
                spec.put("clusterIPs", json!([address]));
            }
            choose_families(spec);
        });
    },
    prepare_update: |new, old| {
        hooks::keep_status(new, old);
        pair_addresses(new.object("spec"), old.at("spec"));
        forget_unused(new, old);
        keep_given_out(new.object("spec"), old.at("spec"));
        choose_families(new.object("spec"));
    },
    validate: validate_service,
    validate_status: |new, _| {
        let mut errors = Errors::new();
        let balancer = Path::root("status");
        let balancer = balancer.child("loadBalancer");
        let list = balancer.child("ingress");
        let given = new.at("status").at("loadBalancer").items("ingress");
        if new.at("spec").text("type") != "LoadBalancer" && !given.is_empty() {
            errors.forbidden(list, "may only be used when `spec.type` is 'LoadBalancer'");
            return errors;
        }
        for (index, ingress) in given.iter().enumerate() {
            let place = list.index(index);
            let address = ingress.text("ip");
            if !address.is_empty() {
                errors.each(place.child("ip"), address, ip::lax_problems(address));
            }
            let name = ingress.text("hostname");
            if !name.is_empty() {
                errors.each(place.child("hostname"), name, names::subdomain_problems(name));
                if ip::parse_legacy(name).is_some() {
                    errors.invalid(place.child("hostname"), name, "must be a DNS name, not an IP address");
                }
            }
        }
        errors
    },
    ..UPSERTED
};

/// Endpoints.
pub(super) const ENDPOINTS: BuiltinKind = BuiltinKind { validate: validate_endpoints, ..UPSERTED };

fn needs_address(spec: &Value) -> bool {
    matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

/// Whether the ports of the service are opened on every node.
pub fn needs_node_ports(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec.at("allocateLoadBalancerNodePorts").as_bool().unwrap_or(true),
        _ => false,
    }
}

/// Whether nodes answer health checks for the service on a port of its own.
pub fn needs_health_port(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn is_headless(spec: &Value) -> bool {
    let addresses = spec.items("clusterIPs");
    addresses.len() == 1 && addresses[0] == "None"
}

fn is_external(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
        || (spec.text("type") == "ClusterIP" && !spec.items("externalIPs").is_empty())
}

/// This server has a single network of addresses, IPv4.
fn choose_families(spec: &mut Value) {
    if !needs_address(spec) {
        return;
    }
    let selectorless = is_headless(spec) && spec.at("selector").is_null();
    if spec.items("ipFamilies").is_empty() {
        let families = if selectorless { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        spec.put("ipFamilies", families);
        if selectorless {
            spec.default_to("ipFamilyPolicy", "RequireDualStack");
        }
    }
    spec.default_to("ipFamilyPolicy", "SingleStack");
}

/// `clusterIP` and `clusterIPs` say the same; a client may change either.
fn pair_addresses(new: &mut Value, old: &Value) {
    let same_list = |new: &Value| new.at("clusterIPs") == old.at("clusterIPs");
    let (now, before) = (new.text("clusterIP").to_owned(), old.text("clusterIP"));
    if !old.items("clusterIPs").is_empty() && new.items("clusterIPs").is_empty() && now == before {
        new.put("clusterIPs", old.at("clusterIPs").clone());
    }
    if now != before {
        if now.is_empty() && !before.is_empty() {
            if same_list(new) {
                new.drop("clusterIPs");
            }
        } else if same_list(new) {
            new.put("clusterIPs", json!([now]));
        }
    }
}

/// Values that were given out, and that the service no longer needs, go, unless the client changed them.
fn forget_unused(service: &mut Value, old_service: &Value) {
    let old = old_service.at("spec");
    let spec = service.object("spec");
    if needs_address(old) && !needs_address(spec) {
        if spec.at("clusterIPs") == old.at("clusterIPs") && spec.at("clusterIP") == old.at("clusterIP") {
            spec.drop("clusterIP");
            spec.drop("clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if spec.at(field) == old.at(field) {
                spec.drop(field);
            }
        }
    }
    let node_ports = |spec: &Value| -> HashSet<i64> {
        spec.items("ports").iter().filter_map(|port| port.number("nodePort")).filter(|port| *port != 0).collect()
    };
    if needs_node_ports(old) && !needs_node_ports(spec) && node_ports(spec) == node_ports(old) {
        for port in spec.items_mut("ports") {
            port.drop("nodePort");
        }
    }
    let balanced = |spec: &Value| spec.text("type") == "LoadBalancer";
    for (field, no_longer) in [
        ("healthCheckNodePort", needs_health_port(old) && !needs_health_port(spec)),
        ("allocateLoadBalancerNodePorts", balanced(old) && !balanced(spec)),
        ("loadBalancerClass", balanced(old) && !balanced(spec)),
        ("externalTrafficPolicy", is_external(old) && !is_external(spec)),
        ("internalTrafficPolicy", needs_address(old) && !needs_address(spec)),
    ] {
        if no_longer && spec.at(field) == old.at(field) {
            spec.drop(field);
        }
    }
    if !balanced(spec) {
        service.put("status", json!({"loadBalancer": {}}));
    }
}

/// Allocated values that the client did not repeat are kept.
fn keep_given_out(spec: &mut Value, old: &Value) {
    if needs_address(old) && needs_address(spec) {
        for field in ["clusterIP", "clusterIPs"].into_iter().filter(|field| old.has(field)) {
            spec.default_to(field, old.at(field).clone());
        }
    }
    if needs_node_ports(old) && needs_node_ports(spec) {
        let number = |port: &Value| port.number("nodePort").filter(|port| *port != 0);
        let ports = |spec: &Value| -> HashSet<i64> { spec.items("ports").iter().filter_map(number).collect() };
        let taken: HashSet<i64> = &ports(old) & &ports(spec);
        for port in spec.items_mut("ports") {
            let before = old.items("ports").iter().rfind(|before| before.text("name") == port.text("name"));
            if let Some(known) = before.and_then(number).filter(|known| !taken.contains(known)) {
                port.default_to("nodePort", known);
            }
        }
    }
    if needs_health_port(old) && needs_health_port(spec) && old.has("healthCheckNodePort") {
        spec.default_to("healthCheckNodePort", old.at("healthCheckNodePort").clone());
    }
}

fn validate_service(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    if let Some(old) = old.map(|old| old.at("spec")) {
        kept_addresses(spec, old, &mut errors);
        kept_families(spec, old, &mut errors);
        let both_balanced = spec.text("type") == "LoadBalancer" && old.text("type") == "LoadBalancer";
        if both_balanced && spec.at("loadBalancerClass") != old.at("loadBalancerClass") {
            let value = spec.at("loadBalancerClass").clone();
            errors.invalid(SPEC.child("loadBalancerClass"), value, "may not change once set");
        }
        let both_checked = needs_health_port(spec) && needs_health_port(old);
        if both_checked && spec.at("healthCheckNodePort") != old.at("healthCheckNodePort") {
            errors.forbidden(SPEC.child("healthCheckNodePort"), "field is immutable");
        }
    }
    by_type(spec, &mut errors);
    ports(spec, &mut errors);
    validate_labels(spec.at("selector"), &SPEC.child("selector"), &mut errors);
    affinity(spec, &mut errors);
    addresses(spec, &mut errors);
    external_addresses(spec, old, &mut errors);
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    errors.required_one_of(SPEC.child("type"), spec.text("type"), &types);
    repeated_ports(spec, &mut errors);
    balancing(new, &mut errors);
    traffic(spec, &mut errors);
    errors
}

fn kept_addresses(new: &Value, old: &Value, errors: &mut Errors) {
    let external = |spec: &Value| spec.text("type") == "ExternalName";
    if external(new) || external(old) || (is_headless(new) && is_headless(old)) {
        return;
    }
    let (after, before) = (new.items("clusterIPs"), old.items("clusterIPs"));
    let path = SPEC.child("clusterIPs");
    let list = new.at("clusterIPs").clone();
    if after.len() == before.len() {
        for index in (0..after.len()).filter(|index| after[*index] != before[*index]) {
            errors.invalid(path.index(index), list.clone(), "may not change once set");
        }
        return;
    }
    if after.is_empty() {
        errors.invalid(path.index(0), list, "primary clusterIP can not be unset");
    } else if !before.is_empty() && after[0] != before[0] {
        errors.invalid(path.index(0), list, "may not change once set");
    }
    if before.len() > after.len() && after.len() == 1 && new.text("ipFamilyPolicy") != "SingleStack" {
        let detail = "must be set to 'SingleStack' when releasing the secondary clusterIP";
        errors.invalid(SPEC.child("ipFamilyPolicy"), new.at("ipFamilyPolicy").clone(), detail);
    }
}

fn kept_families(new: &Value, old: &Value, errors: &mut Errors) {
    let external = |spec: &Value| spec.text("type") == "ExternalName";
    if external(new) || external(old) || is_headless(new) || is_headless(old) {
        return;
    }
    let (after, before) = (new.items("ipFamilies"), old.items("ipFamilies"));
    if let (Some(now), Some(was)) = (after.first(), before.first())
        && now != was
    {
        let list = new.at("ipFamilies").clone();
        errors.invalid(SPEC.child("ipFamilies").index(0), list, "may not change once set");
    }
}

fn by_type(spec: &Value, errors: &mut Errors) {
    let kind = spec.text("type");
    if spec.items("ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(SPEC.child("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(SPEC.child("clusterIPs").index(0), "None", detail);
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].into_iter().filter(|field| spec.has(field)) {
                errors.forbidden(SPEC.child(field), "may not be set for ExternalName services");
            }
            let name = spec.text("externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.required(SPEC.child("externalName"), "");
            } else {
                errors.each(SPEC.child("externalName"), name, names::subdomain_problems(name));
            }
        }
        _ => {}
    }
}

fn ports(spec: &Value, errors: &mut Errors) {
    let list = spec.items("ports");
    let path = SPEC.child("ports");
    let mut seen = HashSet::new();
    for (index, port) in list.iter().enumerate() {
        let place = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            errors.each(place.child("name"), name, names::label_problems(name));
            if !seen.insert(name) {
                errors.duplicate(place.child("name"), name);
            }
        } else if list.len() > 1 {
            errors.required(place.child("name"), "");
        }
        errors.within(place.child("port"), Some(port.number("port").unwrap_or_default()), 1, 65535);
        errors.required_one_of(place.child("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
        check::port_or_name(port.at("targetPort"), place.child("targetPort"), errors);
        if port.has("appProtocol") {
            let protocol = port.text("appProtocol");
            errors.each(place.child("appProtocol"), protocol, names::label_key_problems(protocol));
        }
    }
}

fn affinity(spec: &Value, errors: &mut Errors) {
    let affinity = spec.text("sessionAffinity");
    errors.required_one_of(SPEC.child("sessionAffinity"), affinity, &["ClientIP", "None"]);
    let config = SPEC.child("sessionAffinityConfig");
    if affinity == "ClientIP" {
        let seconds = spec.at("sessionAffinityConfig").at("clientIP").number("timeoutSeconds").unwrap_or_default();
        if !(1..=86400).contains(&seconds) {
            let client = config.child("clientIP");
            let detail = "must be greater than 0 and less than 86400";
            errors.invalid(client.child("timeoutSeconds"), seconds, detail);
        }
    } else if affinity == "None" && spec.has("sessionAffinityConfig") {
        errors.forbidden(config, "must not be set when session affinity is None");
    }
}

fn addresses(spec: &Value, errors: &mut Errors) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let list = spec.at("clusterIPs");
    let given: Vec<&str> = spec.items("clusterIPs").iter().filter_map(Value::as_str).collect();
    let first = spec.text("clusterIP");
    if first.is_empty() {
        if !given.is_empty() {
            errors.invalid(path, list.clone(), "must be empty when `clusterIP` is not specified");
        }
    } else if given.is_empty() {
        errors.required(path, "");
    } else if given[0] != first {
        errors.invalid(path, list.clone(), "first value must match `clusterIP`");
    }
    families(spec, errors);
    let mut well_formed = true;
    for (index, address) in given.iter().enumerate() {
        if index == 0 && *address == "None" {
            if given.len() > 1 {
                well_formed = false;
                errors.invalid(path, list.clone(), "'None' must be the first and only value");
            }
            continue;
        }
        let problems = ip::lax_problems(address);
        well_formed &= problems.is_empty();
        errors.each(path.index(index), address, problems);
    }
    if given.len() > 2 {
        errors.invalid(path, list.clone(), "may only hold up to 2 values");
    }
    if well_formed {
        address_families(spec, &given, errors);
    }
}

fn families(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("ipFamilies");
    let mut seen = HashSet::new();
    for (index, family) in spec.items("ipFamilies").iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(path.index(index), family, &["IPv4", "IPv6"]);
        if !seen.insert(family) {
            errors.duplicate(path.index(index), family);
        }
    }
    if spec.has("ipFamilyPolicy") {
        let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        errors.one_of(SPEC.child("ipFamilyPolicy"), spec.text("ipFamilyPolicy"), &policies);
    }
}

fn address_families(spec: &Value, given: &[&str], errors: &mut Errors) {
    let path = SPEC.child("clusterIPs");
    let kinds: Vec<bool> = given.iter().filter_map(|a| ip::parse_legacy(a)).map(|a| a.is_ipv4()).collect();
    if given.len() > 1 && (kinds.len() != 2 || kinds[0] == kinds[1]) {
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(path, spec.at("clusterIPs").clone(), detail);
    }
    if is_headless(spec) {
        return;
    }
    for (index, (address, family)) in given.iter().zip(spec.items("ipFamilies")).enumerate() {
        let Some(parsed) = ip::parse_legacy(address) else { continue };
        let family = family.as_str().unwrap_or_default();
        if (family == "IPv4" && !parsed.is_ipv4()) || (family == "IPv6" && parsed.is_ipv4()) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(path.index(index), *address, detail);
        }
    }
}

fn external_addresses(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    for (index, address) in spec.items("externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let list = SPEC.child("externalIPs");
        let known = old.is_some_and(|old| old.at("spec").items("externalIPs").iter().any(|known| known == address));
        let problems = ip::lax_problems(address);
        if problems.is_empty() || known {
            endpoint_address(address, list.index(index), errors);
        } else {
            errors.each(list.index(index), address, problems);
        }
    }
}

/// An address that traffic can really be sent to.
pub(super) fn endpoint_address(address: &str, path: Path<'_>, errors: &mut Errors) {
    match ip::parse_legacy(address) {
        None => errors.invalid(path, address, "must be a valid IP address"),
        Some(parsed) if parsed.is_unspecified() => {
            errors.invalid(path, address, format!("may not be unspecified ({address})"));
        }
        Some(parsed) => {
            if let Some(problem) = ip::special_problem(parsed) {
                errors.invalid(path, address, problem);
            }
        }
    }
}

fn repeated_ports(spec: &Value, errors: &mut Errors) {
    let list = spec.items("ports");
    let path = SPEC.child("ports");
    if spec.text("type") == "ClusterIP" {
        for (index, _) in list.iter().enumerate().filter(|(_, port)| port.number("nodePort").unwrap_or(0) != 0) {
            errors.forbidden(path.index(index).child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut node_ports = HashSet::new();
    let mut ports = HashSet::new();
    for (index, port) in list.iter().enumerate() {
        let protocol = port.text("protocol");
        let node_port = port.number("nodePort").filter(|number| *number != 0);
        if let Some(number) = node_port.filter(|number| !node_ports.insert((protocol, *number))) {
            errors.duplicate(path.index(index).child("nodePort"), number);
        }
    }
    for (index, port) in list.iter().enumerate() {
        let key = (port.text("protocol"), port.number("port").unwrap_or_default());
        if !ports.insert(key) {
            errors.duplicate(path.index(index), json!({"protocol": key.0, "port": key.1}));
        }
    }
}

fn balancing(service: &Value, errors: &mut Errors) {
    let spec = service.at("spec");
    let balanced = spec.text("type") == "LoadBalancer";
    let only = "may only be used when `type` is 'LoadBalancer'";
    let ranges = spec.items("loadBalancerSourceRanges");
    let annotation = service.at("metadata").at("annotations").at(RANGES);
    let path = SPEC.child("LoadBalancerSourceRanges");
    if !ranges.is_empty() {
        if !balanced {
            errors.forbidden(path, only);
        }
        for (index, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
            errors.each(path.index(index), range.trim(), ip::network_problems(range.trim()));
        }
    } else if let Some(text) = annotation.as_str() {
        let annotations = METADATA.child("annotations");
        let place = annotations.key(RANGES);
        if !balanced {
            errors.forbidden(place, only);
        }
        for range in text.trim().split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            errors.each(place, range, ip::network_problems(range));
        }
    }
    if spec.has("allocateLoadBalancerNodePorts") && !balanced {
        errors.forbidden(SPEC.child("allocateLoadBalancerNodePorts"), only);
    }
    if spec.has("loadBalancerClass") {
        let class = spec.text("loadBalancerClass");
        if balanced {
            errors.each(SPEC.child("loadBalancerClass"), class, names::label_key_problems(class));
        } else {
            errors.forbidden(SPEC.child("loadBalancerClass"), only);
        }
    }
}

fn traffic(spec: &Value, errors: &mut Errors) {
    let policy = spec.text("externalTrafficPolicy");
    let path = SPEC.child("externalTrafficPolicy");
    if is_external(spec) {
        errors.required_one_of(path, policy, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.invalid(path, policy, "may only be set for externally-accessible services");
    }
    let health_port = spec.number("healthCheckNodePort").unwrap_or_default();
    if !needs_health_port(spec) && health_port != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(SPEC.child("healthCheckNodePort"), health_port, detail);
    }
    let path = SPEC.child("internalTrafficPolicy");
    if spec.has("internalTrafficPolicy") {
        errors.one_of(path, spec.text("internalTrafficPolicy"), &["Cluster", "Local"]);
    } else if needs_address(spec) {
        errors.required(path, "");
    }
    if spec.has("trafficDistribution") {
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        errors.one_of(SPEC.child("trafficDistribution"), spec.text("trafficDistribution"), &known);
    }
}

fn validate_endpoints(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if old.is_some_and(|old| old.at("subsets") == new.at("subsets")) {
        return errors;
    }
    let path = Path::root("subsets");
    for (index, subset) in new.items("subsets").iter().enumerate() {
        let place = path.index(index);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| subset.items(list).is_empty()) {
            errors.required(place, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in lists {
            for (at, address) in subset.items(list).iter().enumerate() {
                let list = place.child(list);
                endpoint(address, list.index(at), &mut errors);
            }
        }
        let ports = subset.items("ports");
        for (at, port) in ports.iter().enumerate() {
            let list = place.child("ports");
            endpoint_port(port, ports.len() > 1, list.index(at), &mut errors);
        }
    }
    errors
}

fn endpoint(address: &Value, path: Path<'_>, errors: &mut Errors) {
    let text = address.text("ip");
    errors.each(path.child("ip"), text, ip::lax_problems(text));
    let name = address.text("hostname");
    if !name.is_empty() {
        errors.each(path.child("hostname"), name, names::label_problems(name));
    }
    if address.has("nodeName") {
        let node = address.text("nodeName");
        errors.each(path.child("nodeName"), node, names::subdomain_problems(node));
    }
    endpoint_address(text, path.child("ip"), errors);
}

fn endpoint_port(port: &Value, named: bool, path: Path<'_>, errors: &mut Errors) {
    let name = port.text("name");
    if !name.is_empty() {
        errors.each(path.child("name"), name, names::label_problems(name));
    } else if named {
        errors.required(path.child("name"), "");
    }
    errors.within(path.child("port"), Some(port.number("port").unwrap_or_default()), 1, 65535);
    errors.required_one_of(path.child("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
    if port.has("appProtocol") {
        let protocol = port.text("appProtocol");
        errors.each(path.child("appProtocol"), protocol, names::label_key_problems(protocol));
    }
}
