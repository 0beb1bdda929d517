//! Smaller parts of a pod spec: annotations, security, DNS, probes, operating system.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::spec::CONTAINER_LISTS;
use crate::builtin::check::{self, Errors, ReportError};
use crate::builtin::ip;
use crate::builtin::json::Fields;
use crate::builtin::path::Path;
use crate::names;
use crate::status::FieldError;

/// Annotation of static pods, which a kubelet runs without the API.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Annotations that mean something.
pub(super) fn annotations(meta: &Value, spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let annotations = meta.at("annotations");
    if annotations.has(MIRROR) && spec.text("nodeName").is_empty() {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(path.key(MIRROR), annotations.text(MIRROR), detail);
    }
    let cost = annotations.text(DELETION_COST);
    if annotations.has(DELETION_COST) && !is_plain_int32(cost) {
        errors.invalid(path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
}

fn is_plain_int32(text: &str) -> bool {
    let well_formed = text == "0" || text.starts_with('-') || text.starts_with(|c: char| ('1'..='9').contains(&c));
    well_formed && text.parse::<i32>().is_ok()
}

/// Security settings of the whole pod.
pub(super) fn pod_security(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let security = spec.at("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        errors.within(path.child(field), security.number(field), 0, i64::from(i32::MAX));
    }
    for (index, group) in security.items("supplementalGroups").iter().enumerate() {
        let list = path.child("supplementalGroups");
        errors.within(list.index(index), group.as_i64(), 0, i64::from(i32::MAX));
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(path.child("shareProcessNamespace"), true, detail);
    }
    sysctls(spec, path.child("sysctls"), errors);
    for (field, known) in [
        ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ] {
        if security.has(field) {
            errors.one_of(path.child(field), security.text(field), &known);
        }
    }
    seccomp(security.at("seccompProfile"), path.child("seccompProfile"), errors);
    app_armor(security.at("appArmorProfile"), path.child("appArmorProfile"), errors);
}

fn sysctls(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    const PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(PATTERN).expect("the pattern is well formed"));
    let mut seen = HashSet::new();
    for (index, sysctl) in spec.at("securityContext").items("sysctls").iter().enumerate() {
        let place = path.index(index);
        let name = sysctl.text("name");
        if name.is_empty() {
            errors.required(place.child("name"), "");
        } else if name.len() > 253 || !NAME.is_match(name) {
            let detail = format!("must have at most 253 characters and match regex {PATTERN}");
            errors.invalid(place.child("name"), name, detail);
        } else if seen.contains(name) {
            errors.duplicate(place.child("name"), name);
        }
        seen.insert(name);
        let dotted = name.replace('/', ".");
        if spec.flag("hostNetwork") && dotted.starts_with("net.") {
            errors.invalid(place.child("name"), name, "may not be specified when 'hostNetwork' is true");
        } else if spec.flag("hostIPC")
            && ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."].iter().any(|start| dotted.starts_with(start))
        {
            errors.invalid(place.child("name"), name, "may not be specified when 'hostIPC' is true");
        }
    }
}

/// Security settings of a container.
pub(super) fn container_security(container: &Value, spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let security = container.at("securityContext");
    if !security.is_object() {
        return;
    }
    for field in ["runAsUser", "runAsGroup"] {
        errors.within(path.child(field), security.number(field), 0, i64::from(i32::MAX));
    }
    if security.has("procMount") {
        let mount = security.text("procMount");
        errors.one_of(path.child("procMount"), mount, &["Default", "Unmasked"]);
        let host_users = spec.at("hostUsers").as_bool().unwrap_or(true);
        if mount == "Unmasked" && host_users {
            errors.invalid(path.child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(security.at("seccompProfile"), path.child("seccompProfile"), errors);
    if security.at("allowPrivilegeEscalation").as_bool() == Some(false) {
        if security.flag("privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(path, security.clone(), detail);
        }
        if security.at("capabilities").items("add").iter().any(|capability| capability == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(path, security.clone(), detail);
        }
    }
    app_armor(security.at("appArmorProfile"), path.child("appArmorProfile"), errors);
}

fn seccomp(profile: &Value, path: Path<'_>, errors: &mut Errors) {
    if !profile.is_object() {
        return;
    }
    match profile.text("type") {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(path.child("type"), "type is required when seccompProfile is set"),
        other => errors.not_supported(path.child("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    let place = path.child("localhostProfile");
    match (profile.text("type") == "Localhost", profile.has("localhostProfile")) {
        (true, false) => errors.required(place, "must be set when seccomp type is Localhost"),
        (true, true) => check::descending_path(profile.text("localhostProfile"), place, errors),
        (false, true) => errors.invalid(place, profile.clone(), "can only be set when seccomp type is Localhost"),
        (false, false) => {}
    }
}

fn app_armor(profile: &Value, path: Path<'_>, errors: &mut Errors) {
    if !profile.is_object() {
        return;
    }
    let place = path.child("localhostProfile");
    let file = profile.text("localhostProfile");
    match profile.text("type") {
        "Localhost" if file.trim() != file => errors.invalid(place, file, "must not be padded with whitespace"),
        "Localhost" if file.is_empty() => errors.required(place, "must be set when AppArmor type is Localhost"),
        "Localhost" if file.len() > 4095 => errors.report(FieldError::too_long(place, 4095)),
        "RuntimeDefault" | "Unconfined" if profile.has("localhostProfile") => {
            errors.invalid(place, file, "can only be set when AppArmor type is Localhost");
        }
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(path.child("type"), "type is required when appArmorProfile is set"),
        other => errors.not_supported(path.child("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

/// Name servers and search lists.
pub(super) fn dns_config(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let config = spec.at("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        if !config.is_object() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if config.items("nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.required(path.child("nameservers"), detail);
            return;
        }
    }
    let servers = config.items("nameservers");
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.invalid(path.child("nameservers"), config.at("nameservers").clone(), detail);
    }
    for (index, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        let list = path.child("nameservers");
        errors.each(list.index(index), server, ip::lax_problems(server));
    }
    let searches: Vec<&str> = config.items("searches").iter().filter_map(Value::as_str).collect();
    let place = path.child("searches");
    if searches.len() > 32 {
        errors.invalid(place, config.at("searches").clone(), "must not have more than 32 search paths");
    }
    if searches.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        errors.invalid(place, config.at("searches").clone(), detail);
    }
    for (index, search) in searches.into_iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.each(place.index(index), search, search_problems(search));
    }
    for (index, option) in config.items("options").iter().enumerate() {
        if option.text("name").is_empty() {
            let list = path.child("options");
            errors.required(list.index(index), "must not be empty");
        }
    }
}

/// A DNS subdomain whose labels may also contain underscores.
fn search_problems(search: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if search.len() > 253 {
        problems.push("must be no more than 253 characters".to_owned());
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let body = label.strip_prefix('_').unwrap_or(label).as_bytes();
        let ends = |end: Option<&u8>| end.is_some_and(|byte| plain(*byte));
        ends(body.first()) && ends(body.last()) && body.iter().all(|byte| plain(*byte) || matches!(byte, b'-' | b'_'))
    };
    if !search.split('.').all(label) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

/// Restrictions of a pod with a user namespace of its own.
pub(super) fn host_users(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if spec.at("hostUsers").as_bool() != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) {
            errors.forbidden(path.child(shown), "when `hostUsers` is false");
        }
    }
    each_container(spec, path, |container, place| {
        if !container.items("volumeDevices").is_empty() {
            errors.forbidden(place.child("volumeDevices"), "when `hostUsers` is false");
        }
    });
}

fn each_container(spec: &Value, path: Path<'_>, mut visit: impl FnMut(&Value, Path<'_>)) {
    for list in CONTAINER_LISTS {
        for (index, container) in spec.items(list).iter().enumerate() {
            visit(container, path.child(list).index(index));
        }
    }
}

/// A host name that replaces the pod's own.
pub(super) fn hostname_override(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if !spec.has("hostnameOverride") {
        return;
    }
    let place = path.child("hostnameOverride");
    let name = spec.text("hostnameOverride");
    if spec.flag("setHostnameAsFQDN") {
        errors.forbidden(place, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.flag("hostNetwork") {
        errors.forbidden(place, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errors.report(FieldError::too_long(place, 64));
    }
    errors.each(place, name, names::subdomain_problems(name));
}

/// Lines for the pod's hosts file.
pub(super) fn host_aliases(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    for (index, alias) in spec.items("hostAliases").iter().enumerate() {
        let place = path.index(index);
        let address = alias.text("ip");
        errors.each(place.child("ip"), address, ip::lax_problems(address));
        for (at, name) in alias.items("hostnames").iter().filter_map(Value::as_str).enumerate() {
            let list = place.child("hostnames");
            errors.each(list.index(at), name, names::subdomain_problems(name));
        }
    }
}

/// The operating system that a pod asks for, and what does not go with it.
pub(super) fn operating_system(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if !spec.has("os") {
        return;
    }
    match spec.at("os").text("name") {
        "" => errors.required(path.child("os").child("name"), ""),
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            if spec.at("securityContext").has("windowsOptions") {
                errors.forbidden(path.child("securityContext").child("windowsOptions"), detail);
            }
            each_container(spec, path, |container, place| {
                if container.at("securityContext").has("windowsOptions") {
                    errors.forbidden(place.child("securityContext").child("windowsOptions"), detail);
                }
            });
        }
        "windows" => windows(spec, path, errors),
        other => errors.not_supported(path.child("os"), other, &["linux", "windows"]),
    }
}

fn windows(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let security = spec.at("securityContext");
    for field in ["appArmorProfile", "seLinuxOptions"] {
        if security.has(field) {
            errors.forbidden(path.child("securityContext").child(field), DETAIL);
        }
    }
    for field in ["hostUsers", "hostPID", "hostIPC"] {
        if spec.has(field) {
            errors.forbidden(path.child(field), DETAIL);
        }
    }
    for field in ["seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls"] {
        if security.has(field) {
            errors.forbidden(path.child("securityContext").child(field), DETAIL);
        }
    }
    if spec.has("shareProcessNamespace") {
        errors.forbidden(path.child("shareProcessNamespace"), DETAIL);
    }
    for field in ["runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"] {
        if security.has(field) {
            errors.forbidden(path.child("securityContext").child(field), DETAIL);
        }
    }
    let container_fields = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    each_container(spec, path, |container, place| {
        for field in container_fields.into_iter().filter(|field| container.at("securityContext").has(field)) {
            errors.forbidden(place.child("securityContext").child(field), DETAIL);
        }
    });
}

/// A probe; which one says what its thresholds mean.
pub(super) fn probe(probe: &Value, grace: Option<i64>, which: &str, path: Path<'_>, errors: &mut Errors) {
    handler(probe, grace, path, errors);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        errors.not_negative(path.child(field), probe.number(field));
    }
    let grace_field = path.child("terminationGracePeriodSeconds");
    if let Some(seconds) = probe.number("terminationGracePeriodSeconds") {
        if seconds <= 0 {
            errors.invalid(grace_field, seconds, "must be greater than 0");
        }
        if which == "readinessProbe" {
            errors.invalid(grace_field, seconds, "must not be set for readinessProbes");
        }
    }
    let successes = probe.number("successThreshold").unwrap_or_default();
    if which != "readinessProbe" && successes != 1 {
        errors.invalid(path.child("successThreshold"), successes, "must be 1");
    }
}

/// The action of a probe or a lifecycle hook: exactly one of several kinds.
pub(super) fn handler(handler: &Value, grace: Option<i64>, path: Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"].into_iter().filter(|kind| handler.has(kind)) {
        let place = path.child(kind);
        if found {
            errors.forbidden(place, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        let action = handler.at(kind);
        match kind {
            "exec" if action.items("command").is_empty() => errors.required(place.child("command"), ""),
            "httpGet" => http_get(action, place, errors),
            "tcpSocket" | "grpc" => check::port_or_name(action.at("port"), place.child("port"), errors),
            "sleep" => sleep(action, grace, place, errors),
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn http_get(action: &Value, path: Path<'_>, errors: &mut Errors) {
    if action.text("path").is_empty() {
        errors.required(path.child("path"), "");
    }
    check::port_or_name(action.at("port"), path.child("port"), errors);
    errors.one_of(path.child("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
    for header in action.items("httpHeaders") {
        let name = header.text("name");
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                          regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(path.child("httpHeaders"), name, detail);
        }
    }
}

fn sleep(action: &Value, grace: Option<i64>, path: Path<'_>, errors: &mut Errors) {
    let (Some(seconds), Some(grace)) = (action.number("seconds"), grace) else { return };
    if seconds < 0 || seconds > grace {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, detail);
    }
}

/// Conditions of a pod's status.
pub(super) fn conditions(status: &Value, path: Path<'_>, errors: &mut Errors) {
    for (index, condition) in status.items("conditions").iter().enumerate() {
        let place = path.index(index);
        if let Some(generation) = condition.number("observedGeneration").filter(|generation| *generation < 0) {
            errors.invalid(place.child("observedGeneration"), generation, "must be a non-negative integer");
        }
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            errors.each(place.child("Type"), kind, names::label_key_problems(kind));
        }
    }
}
