//! Workloads that keep pods running: Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController.

use serde_json::{Value, json};

use super::check::{self, Errors, ReportError};
use super::hooks::{self, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::spec;
use super::shape;
use super::storage;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::{FieldError, FieldProblem};

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const NO_MATCH: &str = "`selector` does not match template `labels`";

/// Deployment.
pub(super) const DEPLOYMENT: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: |new, old| {
        hooks::keep_status(new, old);
        let annotations = |object: &Value| object.at("metadata").at("annotations").clone();
        // Annotations are copied to the ReplicaSets, so they count as well.
        let changed = new.at("spec") != old.at("spec") || annotations(new) != annotations(old);
        hooks::set_generation(new, old, changed);
    },
    prepare_status: |new, old| {
        hooks::keep_all_but_status(new, old);
        new.object("metadata").put("labels", old.at("metadata").at("labels").clone());
    },
    validate: validate_deployment,
    validate_status: |new, old| {
        let counts = [
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        let mut errors = Errors::new();
        errors.not_negative(STATUS.child("observedGeneration"), new.at("status").number("observedGeneration"));
        status_counts(new, &counts, &mut errors);
        for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
            not_above(new, field, "replicas", "cannot be greater than status.replicas", &mut errors);
        }
        not_above(new, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas", &mut errors);
        collisions(new, old, &mut errors);
        errors
    },
    ..PLAIN
};

/// ReplicaSet.
pub(super) const REPLICA_SET: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    validate: |new, old| {
        let mut errors = Errors::new();
        let spec = new.at("spec");
        errors.not_negative(SPEC.child("replicas"), spec.number("replicas"));
        errors.not_negative(SPEC.child("minReadySeconds"), spec.number("minReadySeconds"));
        selector_and_template(spec, &mut errors);
        if let Some(old) = old {
            errors.immutable(SPEC.child("selector"), spec.at("selector"), old.at("spec").at("selector"));
        }
        errors
    },
    validate_status: |new, _| {
        let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
        let mut errors = Errors::new();
        status_counts(new, &counts, &mut errors);
        for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
            not_above(new, field, "replicas", "cannot be greater than status.replicas", &mut errors);
        }
        not_above(new, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas", &mut errors);
        errors
    },
    ..PLAIN
};

/// ReplicationController.
pub(super) const REPLICATION_CONTROLLER: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    validate: validate_replication_controller,
    ..PLAIN
};

/// StatefulSet.
pub(super) const STATEFUL_SET: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    validate: validate_stateful_set,
    validate_status: |new, old| {
        let counts = [
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ];
        let mut errors = Errors::new();
        status_counts(new, &counts, &mut errors);
        for field in ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
            not_above(new, field, "replicas", "cannot be greater than status.replicas", &mut errors);
        }
        let detail = "cannot be greater than status.readyReplicas";
        not_above(new, "availableReplicas", "readyReplicas", detail, &mut errors);
        collisions(new, old, &mut errors);
        errors
    },
    ..PLAIN
};

/// DaemonSet.
pub(super) const DAEMON_SET: BuiltinKind = BuiltinKind {
    default: |set| {
        shape::default(set);
        // The generation is a field of Go's type, which is written into the annotation whatever the client sent.
        set_template_generation(set, template_generation(set));
    },
    prepare_create: |set| {
        hooks::start_anew(set);
        let given = template_generation(set);
        set_template_generation(set, given.max(1));
    },
    prepare_update: |new, old| {
        hooks::keep_status_and_count_spec(new, old);
        let changed = new.at("spec").at("template") != old.at("spec").at("template");
        set_template_generation(new, template_generation(old) + i64::from(changed));
    },
    validate: validate_daemon_set,
    validate_status: |new, old| {
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        let mut errors = Errors::new();
        status_counts(new, &counts, &mut errors);
        collisions(new, old, &mut errors);
        errors
    },
    ..PLAIN
};

/// ControllerRevision.
pub(super) const CONTROLLER_REVISION: BuiltinKind = BuiltinKind { validate: validate_revision, ..PLAIN };

/// Where a DaemonSet counts the changes of its template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(set: &Value) -> i64 {
    set.at("metadata").at("annotations").text(TEMPLATE_GENERATION).parse().unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    let annotations = set.object("metadata").object("annotations");
    annotations.put(TEMPLATE_GENERATION, json!(generation.to_string()));
}

fn status_counts(object: &Value, counts: &[&str], errors: &mut Errors) {
    for count in counts {
        errors.not_negative(STATUS.child(count), object.at("status").number(count));
    }
}

fn not_above(object: &Value, field: &str, limit: &str, detail: &str, errors: &mut Errors) {
    let count = |field: &str| object.at("status").number(field).unwrap_or_default();
    if count(field) > count(limit) {
        errors.invalid(STATUS.child(field), count(field), detail);
    }
}

fn collisions(new: &Value, old: &Value, errors: &mut Errors) {
    let count = |object: &Value| object.at("status").number("collisionCount");
    if count(old).is_some_and(|before| count(new).is_none_or(|now| now < before)) {
        errors.invalid(STATUS.child("collisionCount"), count(new).unwrap_or_default(), "cannot be decremented");
    }
}

/// The selector must exist and select something, and the template must have labels that it selects.
fn selector_and_template(spec: &Value, errors: &mut Errors) {
    let selector = spec.at("selector");
    let before = errors.len();
    let path = SPEC.child("selector");
    if selector.is_null() {
        errors.required(path, "");
    } else {
        check::label_selector(selector, path, errors);
        if check::is_empty_selector(selector) {
            errors.invalid(path, selector.clone(), "empty selector is invalid for deployment");
        }
    }
    if !selector.is_null() && !is_usable(selector, errors, before) {
        errors.invalid(path, selector.clone(), "invalid label selector");
        return;
    }
    let template = spec.at("template");
    let place = SPEC.child("template");
    matches_labels(selector, template, place, errors);
    spec::template(template, place, errors);
    always_running(template, place, "ReplicaSet", errors);
}

/// Whether a selector is valid: its operators are known and fit their values.
fn is_usable(selector: &Value, errors: &Errors, since: usize) -> bool {
    check::is_empty_selector(selector) || errors.len() == since
}

/// A missing selector selects nothing; an empty one is reported elsewhere.
fn matches_labels(selector: &Value, template: &Value, path: Path<'_>, errors: &mut Errors) {
    let labels = template.at("metadata").at("labels");
    if selector.is_null() || !check::selects(selector, labels) {
        let meta = path.child("metadata");
        errors.invalid(meta.child("labels"), labels.clone(), NO_MATCH);
    }
}

fn always_running(template: &Value, path: Path<'_>, kind: &str, errors: &mut Errors) {
    let pod = template.at("spec");
    let place = path.child("spec");
    errors.one_of(place.child("restartPolicy"), pod.text("restartPolicy"), &["Always"]);
    if pod.has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(place.child("activeDeadlineSeconds"), detail);
    }
}

fn validate_deployment(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    errors.not_negative(SPEC.child("replicas"), spec.number("replicas"));
    selector_and_template(spec, &mut errors);
    deployment_strategy(spec.at("strategy"), SPEC.child("strategy"), &mut errors);
    errors.not_negative(SPEC.child("minReadySeconds"), spec.number("minReadySeconds"));
    errors.not_negative(SPEC.child("revisionHistoryLimit"), spec.number("revisionHistoryLimit"));
    if let Some(deadline) = spec.number("progressDeadlineSeconds") {
        let path = SPEC.child("progressDeadlineSeconds");
        errors.not_negative(path, Some(deadline));
        if deadline <= spec.number("minReadySeconds").unwrap_or_default() {
            errors.invalid(path, deadline, "must be greater than minReadySeconds");
        }
    }
    if let Some(old) = old {
        errors.immutable(SPEC.child("selector"), spec.at("selector"), old.at("spec").at("selector"));
    }
    errors
}

fn deployment_strategy(strategy: &Value, path: Path<'_>, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    let place = path.child("rollingUpdate");
    match strategy.text("type") {
        "Recreate" if rolling.is_object() => {
            errors.forbidden(place, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            check::positive_int_or_percent(unavailable, place.child("maxUnavailable"), errors);
            check::positive_int_or_percent(surge, place.child("maxSurge"), errors);
            if amount(unavailable) == 0 && amount(surge) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.invalid(place.child("maxUnavailable"), unavailable.clone(), detail);
            }
            check::not_more_than_100_percent(unavailable, place.child("maxUnavailable"), errors);
        }
        _ => unknown_strategy(strategy, &["Recreate", "RollingUpdate"], path, errors),
    }
}

fn unknown_strategy(strategy: &Value, known: &[&str], path: Path<'_>, errors: &mut Errors) {
    let mut error = FieldError::not_supported(path, "", known);
    error.problem = FieldProblem::NotSupported(strategy.clone());
    errors.report(error);
}

/// The number in a number or percentage.
fn amount(value: &Value) -> i64 {
    value.as_i64().or_else(|| check::percent(value)).unwrap_or_default()
}

fn validate_daemon_set(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    let selector = spec.at("selector");
    if let Some(old) = old {
        errors.immutable(SPEC.child("selector"), selector, old.at("spec").at("selector"));
    }
    let before = errors.len();
    check::label_selector(selector, SPEC.child("selector"), &mut errors);
    let template = spec.at("template");
    let place = SPEC.child("template");
    if errors.len() == before {
        matches_labels(selector, template, place, &mut errors);
    }
    if selector.is_object() && check::is_empty_selector(selector) {
        errors.invalid(SPEC.child("selector"), selector.clone(), "empty selector is invalid for daemonset");
    }
    spec::template(template, place, &mut errors);
    always_running(template, place, "DaemonSet", &mut errors);
    errors.not_negative(SPEC.child("minReadySeconds"), spec.number("minReadySeconds"));
    daemon_set_strategy(spec.at("updateStrategy"), SPEC.child("updateStrategy"), &mut errors);
    errors.not_negative(SPEC.child("revisionHistoryLimit"), spec.number("revisionHistoryLimit"));
    errors
}

fn daemon_set_strategy(strategy: &Value, path: Path<'_>, errors: &mut Errors) {
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = strategy.at("rollingUpdate");
            let place = path.child("rollingUpdate");
            let fields = ["maxUnavailable", "maxSurge"];
            for field in fields {
                check::positive_int_or_percent(rolling.at(field), place.child(field), errors);
            }
            for field in fields {
                check::not_more_than_100_percent(rolling.at(field), place.child(field), errors);
            }
            match (amount(rolling.at("maxUnavailable")) != 0, amount(rolling.at("maxSurge")) != 0) {
                (true, true) => errors.invalid(
                    place.child("maxSurge"),
                    rolling.at("maxSurge").clone(),
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => errors.required(place.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => unknown_strategy(strategy, &["RollingUpdate", "OnDelete"], path, errors),
    }
}

fn validate_stateful_set(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    stateful_set_spec(new.at("spec"), old.is_none(), &mut errors);
    let Some(old) = old else { return errors };
    let mut fixed = new.at("spec").clone();
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        fixed.put(field, old.at("spec").at(field).clone());
    }
    if fixed != *old.at("spec") {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        errors.forbidden(SPEC, detail);
    }
    errors
}

fn stateful_set_spec(spec: &Value, is_new: bool, errors: &mut Errors) {
    let policy = spec.text("podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        errors.invalid(SPEC.child("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'");
    }
    stateful_set_strategy(spec.at("updateStrategy"), SPEC.child("updateStrategy"), errors);
    let retention = SPEC.child("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let policy = spec.at("persistentVolumeClaimRetentionPolicy").text(field);
        errors.one_of(retention.child(field), policy, &["Retain", "Delete"]);
    }
    if is_new {
        for (index, claim) in spec.items("volumeClaimTemplates").iter().enumerate() {
            let list = SPEC.child("volumeClaimTemplates");
            storage::claim_spec(claim.at("spec"), list.index(index).child("spec"), errors);
        }
    }
    errors.not_negative(SPEC.child("replicas"), spec.number("replicas"));
    errors.not_negative(SPEC.child("minReadySeconds"), spec.number("minReadySeconds"));
    errors.not_negative(SPEC.child("ordinals.start"), spec.at("ordinals").number("start"));
    let service = spec.text("serviceName");
    if is_new && !service.is_empty() {
        errors.each(SPEC.child("serviceName"), service, names::label_problems(service));
    }
    stateful_set_template(spec, errors);
}

fn stateful_set_strategy(strategy: &Value, path: Path<'_>, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" if rolling.is_object() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid(path.child("rollingUpdate"), rolling.clone(), detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let place = path.child("rollingUpdate");
            errors.not_negative(place.child("partition"), rolling.number("partition"));
        }
        _ => errors.invalid(path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

fn stateful_set_template(spec: &Value, errors: &mut Errors) {
    let selector = spec.at("selector");
    let path = SPEC.child("selector");
    let before = errors.len();
    if selector.is_null() {
        errors.required(path, "");
    } else {
        check::label_selector(selector, path, errors);
        if check::is_empty_selector(selector) {
            errors.invalid(path, selector.clone(), "empty selector is invalid for statefulset");
        }
    }
    let place = SPEC.child("template");
    let template = with_claim_volumes(spec);
    if !selector.is_null() && !is_usable(selector, errors, before) {
        errors.invalid(path, selector.clone(), "");
    } else {
        matches_labels(selector, &template, place, errors);
        spec::template(&template, place, errors);
    }
    always_running(&template, place, "StatefulSet", errors);
}

/// The template with the volumes that its claims become, and without what the controller overwrites.
fn with_claim_volumes(spec: &Value) -> Value {
    let mut template = spec.at("template").clone();
    let pod = template.object("spec");
    pod.drop("subdomain");
    pod.drop("hostname");
    let claims: Vec<&str> =
        spec.items("volumeClaimTemplates").iter().map(|claim| claim.at("metadata").text("name")).collect();
    if claims.is_empty() {
        return template;
    }
    let mut volumes: Vec<Value> =
        claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    volumes.extend(pod.items("volumes").iter().filter(|volume| !claims.contains(&volume.text("name"))).cloned());
    pod.put("volumes", volumes.into());
    template
}

fn validate_replication_controller(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    errors.not_negative(SPEC.child("minReadySeconds"), spec.number("minReadySeconds"));
    let selector = spec.at("selector");
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(SPEC.child("selector"), "");
    }
    errors.not_negative(SPEC.child("replicas"), spec.number("replicas"));
    let template = spec.at("template");
    let place = SPEC.child("template");
    if template.is_null() {
        errors.required(place, "");
        return errors;
    }
    if selector.is_object() {
        matches_labels(&json!({"matchLabels": selector}), template, place, &mut errors);
    }
    spec::template(template, place, &mut errors);
    always_running(template, place, "ReplicationController", &mut errors);
    errors
}

fn validate_revision(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    errors.not_negative(Path::root("revision"), new.number("revision"));
    let data = new.at("data");
    match old {
        Some(old) => errors.immutable(Path::root("data"), data, old.at("data")),
        None if data.is_null() => errors.required(Path::root("data"), "data is mandatory"),
        None if !data.is_object() => errors.required(Path::root("data"), "data must be a valid JSON object"),
        None => {}
    }
    errors
}
