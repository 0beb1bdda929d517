//! Ingress, IngressClass, NetworkPolicy, EndpointSlice, ServiceCIDR and IPAddress.

use std::collections::HashSet;

use serde_json::Value;

use super::check::{self, Errors, IMMUTABLE, ReportError};
use super::hooks::{self, PLAIN};
use super::ip;
use super::json::{Fields, Fill};
use super::path::Path;
use super::service::endpoint_address;
use super::shape;
use crate::meta::validate_labels;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
/// The older way to name an ingress class.
const CLASS: &str = "kubernetes.io/ingress.class";

/// Ingress.
pub(super) const INGRESS: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    validate: validate_ingress,
    ..PLAIN
};

/// IngressClass.
pub(super) const INGRESS_CLASS: BuiltinKind = BuiltinKind {
    prepare_create: first_generation,
    prepare_update: count_spec,
    validate: validate_ingress_class,
    ..PLAIN
};

/// NetworkPolicy.
pub(super) const NETWORK_POLICY: BuiltinKind = BuiltinKind {
    prepare_create: first_generation,
    prepare_update: count_spec,
    validate: validate_network_policy,
    ..PLAIN
};

/// EndpointSlice.
pub(super) const ENDPOINT_SLICE: BuiltinKind = BuiltinKind {
    prepare_create: |slice| {
        first_generation(slice);
        drop_old_topology(slice);
    },
    prepare_update: |new, old| {
        drop_old_topology(new);
        let content = |slice: &Value| {
            let mut content = slice.clone();
            content.drop("metadata");
            (content, slice.at("metadata").at("labels").clone())
        };
        hooks::set_generation(new, old, content(new) != content(old));
    },
    validate: validate_endpoint_slice,
    ..PLAIN
};

/// ServiceCIDR.
pub(super) const SERVICE_CIDR: BuiltinKind = BuiltinKind {
    prepare_create: |network| {
        shape::preparing(network, |network| {
            network.drop("status");
        });
    },
    prepare_update: hooks::keep_status,
    prepare_status: hooks::keep_all_but_status_and_metadata,
    validate: validate_service_cidr,
    ..PLAIN
};

/// IPAddress.
pub(super) const IP_ADDRESS: BuiltinKind = BuiltinKind { validate: validate_ip_address, ..PLAIN };

fn first_generation(object: &mut Value) {
    object.object("metadata").put("generation", 1.into());
}

fn count_spec(new: &mut Value, old: &Value) {
    hooks::set_generation(new, old, new.at("spec") != old.at("spec"));
}

/// `v1` does not take what older versions had.
fn drop_old_topology(slice: &mut Value) {
    for endpoint in slice.items_mut("endpoints") {
        endpoint.drop("deprecatedTopology");
    }
}

fn validate_ingress(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    if spec.items("rules").is_empty() && !spec.has("defaultBackend") {
        errors.invalid(SPEC, spec.at("rules").clone(), "either `defaultBackend` or `rules` must be specified");
    }
    if spec.has("defaultBackend") {
        backend(spec.at("defaultBackend"), SPEC.child("defaultBackend"), &mut errors);
    }
    for (index, rule) in spec.items("rules").iter().enumerate() {
        let list = SPEC.child("rules");
        ingress_rule(rule, list.index(index), &mut errors);
    }
    for (index, tls) in spec.items("tls").iter().enumerate() {
        let list = SPEC.child("tls");
        let place = list.index(index);
        for (at, host) in tls.items("hosts").iter().filter_map(Value::as_str).enumerate() {
            let hosts = place.child("hosts");
            errors.each(hosts.index(at), host, host_problems(host));
        }
        let secret = tls.text("secretName");
        if !secret.is_empty() {
            errors.each(place.child("secretName"), secret, names::subdomain_problems(secret));
        }
    }
    if spec.has("ingressClassName") {
        let class = spec.text("ingressClassName");
        errors.each(SPEC.child("ingressClassName"), class, names::subdomain_problems(class));
    }
    let annotation = new.at("metadata").at("annotations").at(CLASS);
    if old.is_none()
        && annotation.is_string()
        && spec.has("ingressClassName")
        && annotation != spec.at("ingressClassName")
    {
        let annotations = Path::root("annotations");
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(annotations.child(CLASS), annotation.clone(), detail);
    }
    errors
}

/// The errors in a host name whose first label may be a wildcard.
fn host_problems(host: &str) -> Vec<String> {
    if !host.contains('*') {
        return names::subdomain_problems(host);
    }
    let mut problems = Vec::new();
    if host.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    let rest = host.strip_prefix("*.").unwrap_or("*");
    if !names::subdomain_problems(rest).is_empty() {
        problems.push(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
             '*.example.com', regex used for validation is \
             '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

fn ingress_rule(rule: &Value, path: Path<'_>, errors: &mut Errors) {
    let host = rule.text("host");
    if !host.is_empty() {
        if ip::parse_legacy(host).is_some() {
            errors.invalid(path.child("host"), host, "must be a DNS name, not an IP address");
        }
        errors.each(path.child("host"), host, host_problems(host));
    }
    if !rule.has("http") {
        return;
    }
    let http = path.child("http");
    let paths = rule.at("http").items("paths");
    let list = http.child("paths");
    if paths.is_empty() {
        errors.required(list, "");
    }
    for (index, target) in paths.iter().enumerate() {
        ingress_path(target, list.index(index), errors);
    }
}

fn ingress_path(target: &Value, path: Path<'_>, errors: &mut Errors) {
    let text = target.text("path");
    let place = path.child("path");
    let absolute = text.starts_with('/');
    match target.text("pathType") {
        "" => {
            errors.required(path.child("pathType"), "pathType must be specified");
            return;
        }
        "Exact" | "Prefix" => {
            if !absolute {
                errors.invalid(place, text, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| text.contains(part)) {
                errors.invalid(place, text, format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| text.ends_with(end)) {
                errors.invalid(place, text, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !absolute {
                errors.invalid(place, text, "must be an absolute path");
            }
        }
        other => errors.not_supported(path.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(target.at("backend"), path.child("backend"), errors);
}

fn backend(backend: &Value, path: Path<'_>, errors: &mut Errors) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => typed_reference(backend.at("resource"), path.child("resource"), errors),
        (false, true) => service_backend(backend.at("service"), path, errors),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn service_backend(service: &Value, path: Path<'_>, errors: &mut Errors) {
    let place = path.child("service");
    let name = service.text("name");
    if name.is_empty() {
        errors.required(place.child("name"), "");
    } else {
        errors.each(place.child("name"), name, names::label_problems(name));
    }
    let port = place.child("port");
    let port_name = service.at("port").text("name");
    let number = service.at("port").number("number").filter(|number| *number != 0);
    match (port_name.is_empty(), number) {
        (false, Some(_)) => errors.invalid(path, "", "cannot set both port name & port number"),
        (false, None) => errors.each(port.child("name"), port_name, check::port_name_problems(port_name)),
        (true, Some(_)) => errors.within(port.child("number"), number, 1, 65535),
        (true, None) => errors.required(path, "port name or number is required"),
    }
}

fn typed_reference(reference: &Value, path: Path<'_>, errors: &mut Errors) {
    if reference.has("apiGroup") {
        let group = reference.text("apiGroup");
        errors.each(path.child("apiGroup"), group, names::subdomain_problems(group));
    }
    for field in ["kind", "name"] {
        let text = reference.text(field);
        if text.is_empty() {
            errors.required(path.child(field), "");
        } else {
            errors.each(path.child(field), text, names::path_segment_problems(text));
        }
    }
}

fn validate_ingress_class(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    let path = SPEC.child("controller");
    if let Some(old) = old {
        errors.immutable(path, spec.at("controller"), old.at("spec").at("controller"));
    }
    let controller = spec.text("controller");
    if controller.len() > 250 {
        errors.report(FieldError::too_long(path, 250));
    }
    check::domain_prefixed_path(controller, path, &mut errors);
    let parameters = spec.at("parameters");
    if !parameters.is_object() {
        return errors;
    }
    let path = SPEC.child("parameters");
    typed_reference(parameters, path, &mut errors);
    match parameters.text("scope") {
        "Namespace" if !parameters.has("namespace") => {
            errors.required(path.child("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => {
            let namespace = parameters.text("namespace");
            errors.each(path.child("namespace"), namespace, names::label_problems(namespace));
        }
        "Cluster" if parameters.has("namespace") => {
            errors.forbidden(path.child("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        scope => errors.one_of(path.child("scope"), scope, &["Cluster", "Namespace"]),
    }
    errors
}

fn validate_network_policy(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    check::label_selector(spec.at("podSelector"), SPEC.child("podSelector"), &mut errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in spec.items(direction).iter().enumerate() {
            let list = SPEC.child(direction);
            let place = list.index(index);
            for (at, port) in rule.items("ports").iter().enumerate() {
                policy_port(port, place.child("ports").index(at), &mut errors);
            }
            for (at, peer) in rule.items(peers).iter().enumerate() {
                policy_peer(peer, place.child(peers).index(at), &mut errors);
            }
        }
    }
    let path = SPEC.child("policyTypes");
    let types = spec.items("policyTypes");
    if types.len() > 2 {
        errors.invalid(path, spec.at("policyTypes").clone(), "may not specify more than two policyTypes");
        return errors;
    }
    for (index, kind) in types.iter().filter_map(Value::as_str).enumerate() {
        errors.one_of(path.index(index), kind, &["Ingress", "Egress"]);
    }
    errors
}

fn policy_port(port: &Value, path: Path<'_>, errors: &mut Errors) {
    if port.has("protocol") {
        errors.one_of(path.child("protocol"), port.text("protocol"), &["TCP", "UDP", "SCTP"]);
    }
    let end = port.number("endPort");
    match port.at("port") {
        Value::Null => {
            if let Some(end) = end {
                errors.invalid(path.child("endPort"), end, "may not be specified when `port` is not specified");
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.invalid(path.child("endPort"), end, "may not be specified when `port` is non-numeric");
            }
            errors.each(path.child("port"), name, check::port_name_problems(name));
        }
        number => {
            let start = number.as_i64().unwrap_or_default();
            errors.within(path.child("port"), Some(start), 1, 65535);
            if end.is_some_and(|end| end < start) {
                errors.invalid(path.child("endPort"), start, "must be greater than or equal to `port`");
            }
            errors.within(path.child("endPort"), end, 1, 65535);
        }
    }
}

fn policy_peer(peer: &Value, path: Path<'_>, errors: &mut Errors) {
    let mut peers = 0;
    for field in ["podSelector", "namespaceSelector"].into_iter().filter(|field| peer.has(field)) {
        peers += 1;
        check::label_selector(peer.at(field), path.child(field), errors);
    }
    let blocked = peer.has("ipBlock");
    if blocked {
        peers += 1;
        ip_block(peer.at("ipBlock"), path.child("ipBlock"), errors);
    }
    if peers == 0 {
        errors.required(path, "must specify a peer");
    } else if peers > 1 && blocked {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Value, path: Path<'_>, errors: &mut Errors) {
    let network = block.text("cidr");
    if network.is_empty() {
        errors.required(path.child("cidr"), "");
        return;
    }
    errors.each(path.child("cidr"), network, ip::network_problems(network));
    let Some((base, length)) = ip::parse_cidr(network) else { return };
    for (index, except) in block.items("except").iter().filter_map(Value::as_str).enumerate() {
        let list = path.child("except");
        let place = list.index(index);
        errors.each(place, except, ip::network_problems(except));
        let Some((address, except_length)) = ip::parse_cidr(except) else { continue };
        let inside = base.is_ipv4() == address.is_ipv4()
            && ip::network(ip::network(address, except_length), length) == ip::network(base, length);
        if !inside || length >= except_length {
            errors.invalid(place, except, "must be a strict subset of `cidr`");
        }
    }
}

fn validate_endpoint_slice(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let kind = new.text("addressType");
    errors.required_one_of(Path::root("addressType"), kind, &["FQDN", "IPv4", "IPv6"]);
    slice_ports(new, &mut errors);
    if old.is_none_or(|old| old.at("endpoints") != new.at("endpoints")) {
        slice_endpoints(new, kind, &mut errors);
    }
    if let Some(old) = old {
        errors.immutable(Path::root("addressType"), new.at("addressType"), old.at("addressType"));
    }
    errors
}

fn slice_ports(slice: &Value, errors: &mut Errors) {
    let path = Path::root("ports");
    let ports = slice.items("ports");
    if ports.len() > 20000 {
        errors.report(FieldError::too_many(path, ports.len(), 20000));
        return;
    }
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let place = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            errors.each(place.child("name"), name, names::label_problems(name));
        }
        if !seen.insert(name) {
            errors.duplicate(place.child("name"), name);
        }
        errors.one_of(place.child("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
        if port.has("appProtocol") {
            let protocol = port.text("appProtocol");
            errors.each(place.child("appProtocol"), protocol, names::label_key_problems(protocol));
        }
    }
}

fn slice_endpoints(slice: &Value, kind: &str, errors: &mut Errors) {
    let path = Path::root("endpoints");
    let endpoints = slice.items("endpoints");
    if endpoints.len() > 1000 {
        errors.report(FieldError::too_many(path, endpoints.len(), 1000));
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let place = path.index(index);
        let addresses: Vec<&str> = endpoint.items("addresses").iter().filter_map(Value::as_str).collect();
        let list = place.child("addresses");
        if addresses.is_empty() {
            errors.required(list, "must contain at least 1 address");
        } else if addresses.len() > 100 {
            errors.report(FieldError::too_many(list, addresses.len(), 100));
        }
        for (at, address) in addresses.into_iter().enumerate() {
            slice_address(address, kind, list, list.index(at), errors);
        }
        if endpoint.has("nodeName") {
            let node = endpoint.text("nodeName");
            errors.each(place.child("nodeName"), node, names::subdomain_problems(node));
        }
        validate_labels(endpoint.at("deprecatedTopology"), &place.child("deprecatedTopology"), errors);
        if endpoint.has("hostname") {
            let name = endpoint.text("hostname");
            errors.each(place.child("hostname"), name, names::label_problems(name));
        }
        hints(endpoint.at("hints"), place.child("hints"), errors);
    }
}

fn slice_address(address: &str, kind: &str, list: Path<'_>, path: Path<'_>, errors: &mut Errors) {
    let (problems, wanted) = match kind {
        "IPv4" => (ip::lax_problems(address), "must be an IPv4 address"),
        "IPv6" => (ip::problems(address), "must be an IPv6 address"),
        "FQDN" => {
            check::fully_qualified(address, path, errors);
            return;
        }
        _ => return,
    };
    if !problems.is_empty() {
        errors.each(path, address, problems);
        return;
    }
    if ip::parse_legacy(address).is_some_and(|parsed| parsed.is_ipv4() != (kind == "IPv4")) {
        errors.invalid(list, address, wanted);
    }
    endpoint_address(address, path, errors);
}

fn hints(hints: &Value, path: Path<'_>, errors: &mut Errors) {
    for (field, of_nodes) in [("forZones", false), ("forNodes", true)] {
        let list = path.child(field);
        let items = hints.items(field);
        if items.len() > 8 {
            errors.report(FieldError::too_many(list, items.len(), 8));
            return;
        }
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let name = item.text("name");
            let place = list.index(index);
            if !seen.insert(name) {
                errors.duplicate(place.child("name"), name);
            }
            let problems = if of_nodes { names::subdomain_problems(name) } else { names::label_value_problems(name) };
            errors.each(place.child("name"), name, problems);
        }
    }
}

fn validate_service_cidr(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = SPEC.child("cidrs");
    let networks: Vec<&str> = new.at("spec").items("cidrs").iter().filter_map(Value::as_str).collect();
    let list = new.at("spec").at("cidrs");
    let Some(old) = old else {
        service_networks(&networks, list, &mut errors);
        return errors;
    };
    let before: Vec<&str> = old.at("spec").items("cidrs").iter().filter_map(Value::as_str).collect();
    if before.len() == networks.len() {
        for index in (0..networks.len()).filter(|index| networks[*index] != before[*index]) {
            errors.invalid(path.index(index), networks[index], IMMUTABLE);
        }
    } else if before.len() == 1 && networks.len() == 2 {
        if networks[0] != before[0] {
            errors.invalid(path.index(0), networks[0], IMMUTABLE);
        }
        service_networks(&networks, list, &mut errors);
    } else {
        errors.invalid(path, list.clone(), IMMUTABLE);
    }
    errors
}

fn service_networks(networks: &[&str], list: &Value, errors: &mut Errors) {
    let path = SPEC.child("cidrs");
    if networks.is_empty() {
        errors.required(path, "at least one CIDR required");
        return;
    }
    if networks.len() > 2 {
        errors.invalid(path, list.clone(), "may only hold up to 2 values");
        return;
    }
    for (index, network) in networks.iter().enumerate() {
        errors.each(path.index(index), network, ip::canonical_network_problems(network));
    }
    let families: Vec<bool> =
        networks.iter().filter_map(|network| ip::parse_cidr(network)).map(|(address, _)| address.is_ipv4()).collect();
    if families.len() == 2 && families[0] == families[1] {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(path, list.clone(), detail);
    }
}

fn validate_ip_address(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let parent = new.at("spec").at("parentRef");
    let path = SPEC.child("parentRef");
    if let Some(old) = old {
        errors.immutable(path, parent, old.at("spec").at("parentRef"));
        return errors;
    }
    if !parent.is_object() {
        errors.required(path, "");
        return errors;
    }
    let group = parent.text("group");
    if !group.is_empty() {
        errors.each(path.child("group"), group, names::subdomain_problems(group));
    }
    for field in ["resource", "name"] {
        let text = parent.text(field);
        if text.is_empty() {
            errors.required(path.child(field), "");
        } else {
            errors.each(path.child(field), text, names::path_segment_problems(text));
        }
    }
    let namespace = parent.text("namespace");
    errors.each(path.child("namespace"), namespace, names::path_segment_problems(namespace));
    errors
}
