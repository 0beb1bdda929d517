//! Containers of a pod: names, images, ports, environment, mounts, probes.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::spec::Context;
use super::volume::Volumes;
use super::{parts, requirements};
use crate::builtin::check::{self, Errors, ReportError};
use crate::builtin::json::Fields;
use crate::builtin::path::Path;
use crate::names;

/// The parts of the pod that checks of its containers need.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) context: Context<'a>,
    pub(super) volumes: &'a Volumes<'a>,
    pub(super) claims: &'a HashSet<String>,
}

/// The containers that run all the time.
pub(super) fn containers(around: Surroundings<'_>, path: Path<'_>, errors: &mut Errors) {
    let list = around.context.spec.items("containers");
    if list.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut seen = HashSet::new();
    for (index, container) in list.iter().enumerate() {
        let place = path.index(index);
        common(container, around, place, errors);
        if !seen.insert(container.text("name")) {
            errors.duplicate(place.child("name"), container.text("name"));
        }
        running_parts(container, around, place, errors);
        restart_policy(container, place, errors);
    }
    host_port_conflicts(list, path, errors);
}

/// The containers that run before, one after the other, or (with `restartPolicy: Always`) beside the others.
pub(super) fn init_containers(around: Surroundings<'_>, path: Path<'_>, errors: &mut Errors) {
    let spec = around.context.spec;
    let mut seen: HashSet<&str> = spec.items("containers").iter().map(|container| container.text("name")).collect();
    for (index, container) in spec.items("initContainers").iter().enumerate() {
        let place = path.index(index);
        common(container, around, place, errors);
        restart_policy(container, place, errors);
        let name = container.text("name");
        if seen.contains(name) {
            errors.duplicate(place.child("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        host_port_conflicts(std::slice::from_ref(container), path, errors);
        let stays = container.text("restartPolicy") == "Always";
        if stays {
            running_parts(container, around, place, errors);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(field) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(place.child(field), detail);
            }
        }
        for (at, policy) in container.items("resizePolicy").iter().enumerate() {
            if policy.text("restartPolicy") == "RestartContainer" {
                errors.invalid(
                    place.child("resizePolicy").index(at).child("restartPolicy"),
                    "RestartContainer",
                    "must not be set to 'RestartContainer' for non-sidecar initContainers",
                );
            }
        }
    }
}

/// Fields that a debugging container may have.
const EPHEMERAL_FIELDS: [&str; 18] = [
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "envFrom",
    "env",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
    "resources",
];

/// The containers that were added for debugging.
pub(super) fn ephemeral_containers(around: Surroundings<'_>, path: Path<'_>, errors: &mut Errors) {
    let spec = around.context.spec;
    let others: HashSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec.items(list))
        .map(|c| c.text("name"))
        .collect();
    let mut seen = others.clone();
    for (index, container) in spec.items("ephemeralContainers").iter().enumerate() {
        let place = path.index(index);
        common(container, around, place, errors);
        image_without_spaces(container, place, errors);
        if !seen.insert(container.text("name")) {
            errors.duplicate(place.child("name"), container.text("name"));
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(place.child("targetContainerName"), target, "");
        }
        for (field, value) in container.as_object().into_iter().flatten() {
            let empty_resources = field == "resources" && value.as_object().is_some_and(serde_json::Map::is_empty);
            if !EPHEMERAL_FIELDS.contains(&field.as_str()) || (field == "resources" && !empty_resources) {
                errors.forbidden(place.child(field), "cannot be set for an Ephemeral Container");
            }
        }
        for (at, mount) in container.items("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"].into_iter().filter(|field| !mount.text(field).is_empty()) {
                let mounts = place.child("volumeMounts");
                errors.forbidden(mounts.index(at).child(field), "cannot be set for an Ephemeral Container");
            }
        }
    }
}

/// A pod's image must be usable as it stands; templates may hold placeholders.
pub(super) fn image_without_spaces(container: &Value, path: Path<'_>, errors: &mut Errors) {
    let image = container.text("image");
    if image.trim().len() != image.len() {
        errors.invalid(path.child("image"), image, "must not have leading or trailing whitespace");
    }
}

fn common(container: &Value, around: Surroundings<'_>, path: Path<'_>, errors: &mut Errors) {
    let name = container.text("name");
    if name.is_empty() {
        errors.required(path.child("name"), "");
    } else {
        errors.each(path.child("name"), name, names::label_problems(name));
    }
    if container.text("image").is_empty() {
        errors.required(path.child("image"), "");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    errors.required_one_of(
        path.child("terminationMessagePolicy"),
        container.text("terminationMessagePolicy"),
        &policies,
    );
    ports(container, path.child("ports"), errors);
    environment(container, path, errors);
    mounts(container, around.volumes, path.child("volumeMounts"), errors);
    devices(container, around.volumes, path.child("volumeDevices"), errors);
    pull_policy(container.text("imagePullPolicy"), path.child("imagePullPolicy"), errors);
    requirements::of_container(container.at("resources"), around.claims, path.child("resources"), errors);
    resize_policy(container, around.context.spec, path.child("resizePolicy"), errors);
    parts::container_security(container, around.context.spec, path.child("securityContext"), errors);
}

/// When an image is pulled.
pub(super) fn pull_policy(policy: &str, path: Path<'_>, errors: &mut Errors) {
    errors.required_one_of(path, policy, &["Always", "IfNotPresent", "Never"]);
}

fn ports(container: &Value, path: Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, port) in container.items("ports").iter().enumerate() {
        let place = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            let problems = check::port_name_problems(name);
            if !problems.is_empty() {
                errors.each(place.child("name"), name, problems);
            } else if !seen.insert(name) {
                errors.duplicate(place.child("name"), name);
            }
        }
        match port.number("containerPort").unwrap_or_default() {
            0 => errors.required(place.child("containerPort"), ""),
            number => errors.within(place.child("containerPort"), Some(number), 1, 65535),
        }
        let host = port.number("hostPort").filter(|number| *number != 0);
        errors.within(place.child("hostPort"), host, 1, 65535);
        errors.required_one_of(place.child("protocol"), port.text("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn host_port_conflicts(containers: &[Value], path: Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (at, port) in container.items("ports").iter().enumerate() {
            let number = port.number("hostPort").unwrap_or_default();
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            if !seen.insert(key.clone()) {
                let place = path.index(index);
                errors.duplicate(place.child("ports").index(at).child("hostPort"), key);
            }
        }
    }
}

/// Fields of a pod that an environment variable can show.
const ENVIRONMENT_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn environment(container: &Value, path: Path<'_>, errors: &mut Errors) {
    for (index, variable) in container.items("env").iter().enumerate() {
        let list = path.child("env");
        let place = list.index(index);
        let name = variable.text("name");
        if name.is_empty() {
            errors.required(place.child("name"), "");
        } else {
            errors.each(place.child("name"), name, variable_name_problems(name));
        }
        if variable.has("valueFrom") {
            value_from(variable, place.child("valueFrom"), errors);
        }
    }
    let list = path.child("envFrom");
    for (index, source) in container.items("envFrom").iter().enumerate() {
        let place = list.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.each(place.child("prefix"), prefix, variable_name_problems(prefix));
        }
        let mut sources = 0;
        for field in ["configMapRef", "secretRef"].into_iter().filter(|field| source.has(field)) {
            sources += 1;
            let reference = place.child(field);
            let name = source.at(field).text("name");
            if name.is_empty() {
                errors.required(reference.child("name"), "");
            } else {
                errors.each(reference.child("name"), name, names::subdomain_problems(name));
            }
        }
        match sources {
            0 => errors.invalid(list, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(list, "", "may not have more than one field specified at a time"),
        }
    }
}

fn variable_name_problems(name: &str) -> Vec<String> {
    if name.chars().all(|c| (c.is_ascii_graphic() || c == ' ') && c != '=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

fn value_from(variable: &Value, path: Path<'_>, errors: &mut Errors) {
    let source = variable.at("valueFrom");
    let mut sources = 0;
    if source.has("fieldRef") {
        sources += 1;
        field_reference(source.at("fieldRef"), &ENVIRONMENT_FIELDS, path.child("fieldRef"), errors);
    }
    if source.has("resourceFieldRef") {
        sources += 1;
        resource_reference(source.at("resourceFieldRef"), false, path.child("resourceFieldRef"), errors);
    }
    for field in ["configMapKeyRef", "secretKeyRef"].into_iter().filter(|field| source.has(field)) {
        sources += 1;
        key_reference(source.at(field), path.child(field), errors);
    }
    if source.has("fileKeyRef") {
        sources += 1;
        file_key_reference(source.at("fileKeyRef"), path.child("fileKeyRef"), errors);
    }
    if sources == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", detail);
    } else if !variable.text("value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// A field of the pod, named by path; labels and annotations may be subscripted.
pub(super) fn field_reference(reference: &Value, known: &[&str], path: Path<'_>, errors: &mut Errors) {
    let api_version = reference.text("apiVersion");
    let field = reference.text("fieldPath");
    if api_version.is_empty() {
        errors.required(path.child("apiVersion"), "");
        return;
    }
    if field.is_empty() {
        errors.required(path.child("fieldPath"), "");
        return;
    }
    if api_version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {api_version}");
        errors.invalid(path.child("fieldPath"), field, detail);
        return;
    }
    let subscripted = field.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            errors.each(path, &key, names::label_key_problems(&key));
        }
        Some(("metadata.labels", key)) => errors.each(path, key, names::label_key_problems(key)),
        Some(_) => {
            let detail = format!("error converting fieldPath: field label does not support subscript: {field}");
            errors.invalid(path.child("fieldPath"), field, detail);
        }
        None => {
            const CONVERTIBLE: [&str; 13] = [
                "metadata.annotations",
                "metadata.labels",
                "metadata.name",
                "metadata.namespace",
                "metadata.uid",
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.serviceAccountName",
                "spec.schedulerName",
                "status.phase",
                "status.hostIP",
                "status.hostIPs",
                "status.podIP",
            ];
            if !CONVERTIBLE.contains(&field) && field != "status.podIPs" {
                let detail = format!("error converting fieldPath: field label not supported: {field}");
                errors.invalid(path.child("fieldPath"), field, detail);
            } else if !known.contains(&field) {
                let mut list = known.to_vec();
                list.sort_unstable();
                errors.not_supported(path.child("fieldPath"), field, &list);
            }
        }
    }
}

/// A resource of a container.
pub(super) fn resource_reference(reference: &Value, in_volume: bool, path: Path<'_>, errors: &mut Errors) {
    const KNOWN: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = reference.text("resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_volume && reference.text("containerName").is_empty() {
        errors.required(path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(path.child("resource"), "");
    } else if !KNOWN.contains(&resource) && !huge {
        errors.not_supported(path.child("resource"), resource, &KNOWN);
    }
    divisor(resource, huge, reference.text("divisor"), path.child("divisor"), errors);
}

fn divisor(resource: &str, huge: bool, divisor: &str, path: Path<'_>, errors: &mut Errors) {
    const SIZES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    if matches!(divisor, "" | "0") {
        return;
    }
    let kind = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => {
            if !matches!(divisor, "1" | "1m") {
                errors.invalid(path, resource, "only divisor's values 1m and 1 are supported with the cpu resource");
            }
            return;
        }
        Some("memory") => "memory",
        Some("ephemeral-storage") => "local ephemeral storage",
        _ if huge => "hugepages",
        _ => return,
    };
    if !SIZES.contains(&divisor) {
        let detail = format!("only divisor's values {} are supported with the {kind} resource", SIZES.join(", "));
        errors.invalid(path, resource, detail);
    }
}

fn key_reference(reference: &Value, path: Path<'_>, errors: &mut Errors) {
    let name = reference.text("name");
    errors.each(path.child("name"), name, names::subdomain_problems(name));
    let key = reference.text("key");
    if key.is_empty() {
        errors.required(path.child("key"), "");
    } else {
        errors.each(path.child("key"), key, check::config_key_problems(key));
    }
}

fn file_key_reference(reference: &Value, path: Path<'_>, errors: &mut Errors) {
    let (key, volume, file) = (reference.text("key"), reference.text("volumeName"), reference.text("path"));
    if key.is_empty() {
        errors.required(path.child("key"), "");
    } else {
        errors.each(path.child("key"), key, variable_name_problems(key));
    }
    if volume.is_empty() {
        errors.required(path.child("volumeName"), "");
    } else {
        errors.each(path.child("volumeName"), volume, names::label_problems(volume));
    }
    if file.is_empty() {
        errors.required(path.child("path"), "");
    } else {
        check::no_backsteps(file, path.child("path"), errors);
    }
}

/// (name, path) pairs of one list, to find clashes with the other.
fn places<'a>(container: &'a Value, list: &str, field: &str) -> HashMap<&'a str, &'a str> {
    container.items(list).iter().map(|item| (item.text("name"), item.text(field))).collect()
}

fn mounts(container: &Value, volumes: &Volumes<'_>, path: Path<'_>, errors: &mut Errors) {
    let devices = places(container, "volumeDevices", "devicePath");
    let mut seen = HashSet::new();
    for (index, mount) in container.items("volumeMounts").iter().enumerate() {
        let place = path.index(index);
        let (name, target) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            errors.required(place.child("name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(place.child("name"), name, "");
        }
        if target.is_empty() {
            errors.required(place.child("mountPath"), "");
        }
        if !seen.insert(target) {
            errors.invalid(place.child("mountPath"), target, "must be unique");
        }
        if devices.contains_key(name) {
            errors.invalid(place.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|device| *device == target) {
            errors.invalid(place.child("mountPath"), target, "must not already exist as a path in volumeDevices");
        }
        let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
        if !sub_path.is_empty() {
            check::descending_path(sub_path, path.child("subPath"), errors);
        }
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                errors.invalid(place.child("subPathExpr"), expression, detail);
            }
            check::descending_path(expression, path.child("subPathExpr"), errors);
        }
        propagation(container, mount, path, errors);
    }
}

fn propagation(container: &Value, mount: &Value, path: Path<'_>, errors: &mut Errors) {
    let mode = mount.text("mountPropagation");
    if mount.has("mountPropagation") {
        let place = path.child("mountPropagation");
        errors.one_of(place, mode, &["Bidirectional", "HostToContainer", "None"]);
        if mode == "Bidirectional" && !container.at("securityContext").flag("privileged") {
            let detail = "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(place, detail);
        }
    }
    if !mount.has("recursiveReadOnly") {
        return;
    }
    let place = path.child("recursiveReadOnly");
    match mount.text("recursiveReadOnly") {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.flag("readOnly") {
                errors.forbidden(place, "may only be specified when readOnly is true");
            }
            if !matches!(mode, "" | "None") {
                errors.forbidden(place, "may only be specified when mountPropagation is None or not specified");
            }
        }
        other => errors.not_supported(place, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(container: &Value, volumes: &Volumes<'_>, path: Path<'_>, errors: &mut Errors) {
    let mounts = places(container, "volumeMounts", "mountPath");
    let (mut names_seen, mut paths_seen) = (HashSet::new(), HashSet::new());
    for (index, device) in container.items("volumeDevices").iter().enumerate() {
        let place = path.index(index);
        let (name, target) = (device.text("name"), device.text("devicePath"));
        if name.is_empty() {
            errors.required(place.child("name"), "");
        }
        if names_seen.contains(name) {
            errors.invalid(place.child("name"), name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.not_found(place.child("name"), name, ""),
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => errors.invalid(
                place.child("name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
        }
        if target.is_empty() {
            errors.required(place.child("devicePath"), "");
        }
        if paths_seen.contains(target) {
            errors.invalid(place.child("devicePath"), target, "must be unique");
        }
        if check::has_backsteps(target) {
            errors.invalid(place.child("devicePath"), target, "can not contain backsteps ('..')");
        } else {
            paths_seen.insert(target);
        }
        if mounts.contains_key(name) {
            errors.invalid(place.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|mount| *mount == target) {
            errors.invalid(place.child("devicePath"), target, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names_seen.insert(name);
        }
    }
}

fn resize_policy(container: &Value, spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, policy) in container.items("resizePolicy").iter().enumerate() {
        let resource = policy.text("resourceName");
        if !seen.insert(resource) {
            errors.duplicate(path.index(index), resource);
        }
        errors.required_one_of(path, resource, &["cpu", "memory"]);
        let restart = policy.text("restartPolicy");
        errors.required_one_of(path, restart, &["NotRequired", "RestartContainer"]);
        if spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            errors.invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn restart_policy(container: &Value, path: Path<'_>, errors: &mut Errors) {
    let rules = container.items("restartPolicyRules");
    let place = path.child("restartPolicy");
    if container.has("restartPolicy") {
        errors.one_of(place, container.text("restartPolicy"), &["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        errors.required(place, "must specify restartPolicy when restart rules are used");
    }
    let list = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.report(crate::status::FieldError::too_many(list, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let place = list.index(index);
        errors.one_of(place.child("action"), rule.text("action"), &["Restart", "RestartAllContainers"]);
        if !rule.has("exitCodes") {
            errors.required(place.child("exitCodes"), "must be specified");
            continue;
        }
        let codes = rule.at("exitCodes");
        errors.one_of(place.child("exitCodes").child("operator"), codes.text("operator"), &["In", "NotIn"]);
        let values = codes.items("values").len();
        if values > 255 {
            let codes_path = place.child("exitCodes");
            errors.report(crate::status::FieldError::too_many(codes_path.child("values"), values, 255));
        }
    }
}

/// Lifecycle and probes.
fn running_parts(container: &Value, around: Surroundings<'_>, path: Path<'_>, errors: &mut Errors) {
    let grace = around.context.spec.number("terminationGracePeriodSeconds");
    for hook in ["postStart", "preStop"] {
        let handler = container.at("lifecycle").at(hook);
        if handler.is_object() {
            let lifecycle = path.child("lifecycle");
            parts::handler(handler, grace, lifecycle.child(hook), errors);
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(field);
        if probe.is_object() {
            parts::probe(probe, grace, field, path.child(field), errors);
        }
    }
}
