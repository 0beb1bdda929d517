//! Workloads that end: Job and CronJob.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::check::{self, Errors, ReportError};
use super::cron;
use super::hooks::{self, PLAIN};
use super::json::{Fields, Fill};
use super::path::Path;
use super::pod::spec;
use super::shape;
use crate::names;
use crate::resource::BuiltinKind;
use crate::status::{FieldError, FieldProblem};

const SPEC: Path<'static> = Path::root("spec");
const CONTROLLER_UID: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const JOB_NAME: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
/// Completions above which an indexed job needs tighter limits.
const MANY_COMPLETIONS: i64 = 100_000;

/// Job.
pub(super) const JOB: BuiltinKind = BuiltinKind {
    prepare_create: |job| {
        shape::preparing(job, |job| {
            if !job.at("spec").flag("manualSelector") {
                generate_selector(job);
            }
            inherit_labels(job);
            job.drop("status");
            job.object("metadata").put("generation", 1.into());
        });
    },
    prepare_update: |new, old| {
        inherit_labels(new);
        hooks::keep_status_and_count_spec(new, old);
    },
    validate: validate_job,
    ..PLAIN
};

/// CronJob.
pub(super) const CRON_JOB: BuiltinKind = BuiltinKind {
    prepare_create: hooks::start_anew,
    prepare_update: hooks::keep_status_and_count_spec,
    validate: validate_cron_job,
    ..PLAIN
};

/// Labels that make the pods of a job its own, and a selector on them.
fn generate_selector(job: &mut Value) {
    let name = job.at("metadata").at("name").clone();
    let uid = job.at("metadata").at("uid").clone();
    let labels = job.object("spec").object("template").object("metadata").object("labels");
    for (keys, value) in [(JOB_NAME, name), (CONTROLLER_UID, uid.clone())] {
        for key in keys {
            labels.default_to(key, value.clone());
        }
    }
    let selector = job.object("spec").object("selector").object("matchLabels");
    selector.default_to(CONTROLLER_UID[1], uid);
}

/// A job without labels has those of its pods.
fn inherit_labels(job: &mut Value) {
    let labels = job.at("spec").at("template").at("metadata").at("labels").clone();
    if labels.is_object() {
        job.object("metadata").default_to("labels", labels);
    }
}

fn validate_job(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    generated_selector(new, &mut errors);
    job_spec(spec, SPEC, &mut errors);
    let selector = spec.at("selector");
    if selector.is_null() {
        errors.required(SPEC.child("selector"), "");
    } else {
        let before = errors.len();
        check::label_selector(selector, SPEC.child("selector"), &mut errors);
        let labels = spec.at("template").at("metadata").at("labels");
        if errors.len() == before && !check::selects(selector, labels) {
            let template = SPEC.child("template");
            let meta = template.child("metadata");
            errors.invalid(meta.child("labels"), labels.clone(), "`selector` does not match template `labels`");
        }
    }
    indexed_pod_names(new, &mut errors);
    if let Some(old) = old {
        changed_job(spec, old.at("spec"), old, &mut errors);
    }
    errors
}

fn generated_selector(job: &Value, errors: &mut Errors) {
    let spec = job.at("spec");
    if spec.flag("manualSelector") || spec.at("selector").is_null() {
        return;
    }
    let (name, uid) = (job.at("metadata").text("name"), job.at("metadata").text("uid"));
    let labels = spec.at("template").at("metadata").at("labels");
    let template = SPEC.child("template");
    let meta = template.child("metadata");
    let path = meta.child("labels");
    let expected = [(CONTROLLER_UID[0], uid), (JOB_NAME[0], name), (CONTROLLER_UID[1], uid), (JOB_NAME[1], name)];
    for (key, value) in expected {
        if labels.at(key).is_null() {
            errors.required(path.key(key), &format!("must be '{value}'"));
        } else if labels.text(key) != value {
            errors.invalid(path.key(key), labels.clone(), format!("must be '{value}'"));
        }
    }
    let all: Value = expected
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    if !check::selects(spec.at("selector"), &all) {
        errors.invalid(SPEC.child("selector"), spec.at("selector").clone(), "`selector` not auto-generated");
    }
}

fn indexed_pod_names(job: &Value, errors: &mut Errors) {
    let spec = job.at("spec");
    let Some(completions) = spec.number("completions").filter(|count| *count > 0) else { return };
    if spec.text("completionMode") != "Indexed" {
        return;
    }
    let name = job.at("metadata").text("name");
    let hostname = format!("{name}-{}", completions - 1);
    if !names::label_problems(&hostname).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
        errors.invalid(Path::root("metadata").child("name"), name, detail);
    }
}

/// Checks the spec of a job, also in the template of a CronJob.
fn job_spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(path.child(field), spec.number(field));
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if spec.has("managedBy") {
        managed_by(spec.text("managedBy"), path.child("managedBy"), errors);
    }
    completion_mode(spec, path, errors);
    if spec.has("podFailurePolicy") {
        failure_policy(spec, path.child("podFailurePolicy"), errors);
    }
    if spec.has("successPolicy") {
        success_policy(spec, path.child("successPolicy"), errors);
    }
    let replacement = spec.text("podReplacementPolicy");
    if spec.has("podReplacementPolicy") {
        let known: &[&str] =
            if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        errors.one_of(path.child("podReplacementPolicy"), replacement, known);
    }
    spec::template(spec.at("template"), path.child("template"), errors);
    let policy = spec.at("template").at("spec").text("restartPolicy");
    let template = path.child("template");
    let pod = template.child("spec");
    let place = pod.child("restartPolicy");
    match policy {
        "Always" | "" => errors.required(place, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            errors.invalid(place, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(place, other, &["OnFailure", "Never"]),
    }
}

fn managed_by(name: &str, path: Path<'_>, errors: &mut Errors) {
    check::domain_prefixed_path(name, path, errors);
    if name.len() > 63 {
        errors.report(FieldError::too_long(path, 63));
    }
}

fn completion_mode(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let mode = spec.text("completionMode");
    if spec.has("completionMode") {
        errors.one_of(path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    let failed = spec.number("maxFailedIndexes");
    if mode != "Indexed" {
        if spec.has("completionMode") && mode != "NonIndexed" {
            return;
        }
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = spec.number(field) {
                errors.invalid(path.child(field), value, "requires indexed completion mode");
            }
        }
        return;
    }
    let (completions, parallelism) = (spec.number("completions"), spec.number("parallelism").unwrap_or_default());
    if completions.is_none() {
        errors.required(path.child("completions"), "when completion mode is Indexed");
    }
    if parallelism > MANY_COMPLETIONS {
        let detail = format!("must be less than or equal to {MANY_COMPLETIONS} when completion mode is Indexed");
        errors.invalid(path.child("parallelism"), parallelism, detail);
    }
    let completions = completions.unwrap_or_default();
    if let Some(failed) = failed {
        if spec.has("completions") && failed > completions {
            errors.invalid(path.child("maxFailedIndexes"), failed, "must be less than or equal to completions");
        }
        if failed > MANY_COMPLETIONS {
            let detail = format!("must be less than or equal to {MANY_COMPLETIONS}");
            errors.invalid(path.child("maxFailedIndexes"), failed, detail);
        }
    }
    if completions > MANY_COMPLETIONS && spec.has("backoffLimitPerIndex") {
        many_indexes(spec, path, errors);
    }
}

fn many_indexes(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    const LIMIT: i64 = 10_000;
    let rest = format!(
        "must be less than or equal to {LIMIT} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    );
    match spec.number("maxFailedIndexes") {
        None => {
            let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.required(path.child("maxFailedIndexes"), &detail);
        }
        Some(failed) if failed > LIMIT => errors.invalid(path.child("maxFailedIndexes"), failed, rest.clone()),
        Some(_) => {}
    }
    if let Some(parallelism) = spec.number("parallelism").filter(|count| *count > LIMIT) {
        errors.invalid(path.child("parallelism"), parallelism, rest);
    }
}

fn quoted(list: &[&str]) -> String {
    let quoted: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn failure_policy(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let rules = spec.at("podFailurePolicy").items("rules");
    let list = path.child("rules");
    if rules.len() > 20 {
        errors.report(FieldError::too_many(list, rules.len(), 20));
    }
    let pod = spec.at("template").at("spec");
    let containers: HashSet<&str> =
        ["containers", "initContainers"].into_iter().flat_map(|list| pod.items(list)).map(|c| c.text("name")).collect();
    for (index, rule) in rules.iter().enumerate() {
        let place = list.index(index);
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        match rule.text("action") {
            "" => errors.required(place.child("action"), &quoted(&actions)),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                errors.invalid(place.child("action"), "FailIndex", "requires the backoffLimitPerIndex to be set");
            }
            action => errors.one_of(place.child("action"), action, &actions),
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.items("onPodConditions"));
        if codes.is_object() {
            exit_codes(codes, &containers, place.child("onExitCodes"), errors);
        }
        pod_conditions(conditions, place.child("onPodConditions"), errors);
        let detail = match (codes.is_object(), conditions.is_empty()) {
            (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.report(FieldError {
            field: place.to_string(),
            problem: FieldProblem::InvalidAs(String::new()),
            detail: detail.to_owned(),
        });
    }
}

fn exit_codes(codes: &Value, containers: &HashSet<&str>, path: Path<'_>, errors: &mut Errors) {
    let operators = ["In", "NotIn"];
    match codes.text("operator") {
        "" => errors.required(path.child("operator"), &quoted(&operators)),
        operator => errors.one_of(path.child("operator"), operator, &operators),
    }
    if codes.has("containerName") && !containers.contains(codes.text("containerName")) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(path.child("containerName"), codes.text("containerName"), detail);
    }
    let values: Vec<i64> = codes.items("values").iter().filter_map(Value::as_i64).collect();
    let list = path.child("values");
    if values.is_empty() {
        errors.invalid(list, json!([]), "at least one value is required");
    } else if values.len() > 255 {
        errors.report(FieldError::too_many(list, values.len(), 255));
    }
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        if codes.text("operator") == "In" && *value == 0 {
            errors.invalid(list.index(index), 0, "must not be 0 for the In operator");
        }
        if !seen.insert(value) {
            errors.duplicate(list.index(index), *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(list, codes.at("values").clone(), "must be ordered");
    }
}

fn pod_conditions(conditions: &[Value], path: Path<'_>, errors: &mut Errors) {
    if conditions.len() > 20 {
        errors.report(FieldError::too_many(path, conditions.len(), 20));
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let place = path.index(index);
        let kind = pattern.text("type");
        errors.each(place.child("type"), kind, names::label_key_problems(kind));
        let statuses = ["False", "True", "Unknown"];
        match pattern.text("status") {
            "" => errors.required(place.child("status"), &quoted(&statuses)),
            status => errors.one_of(place.child("status"), status, &statuses),
        }
    }
}

fn success_policy(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    if spec.text("completionMode") != "Indexed" {
        errors.invalid(path, spec.at("successPolicy").clone(), "requires indexed completion mode");
        return;
    }
    let rules = spec.at("successPolicy").items("rules");
    let list = path.child("rules");
    if rules.is_empty() {
        errors.required(list, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        errors.report(FieldError::too_many(list, rules.len(), 20));
    }
    for (index, rule) in rules.iter().enumerate() {
        let place = list.index(index);
        if !rule.has("succeededCount") && !rule.has("succeededIndexes") {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(place, detail);
        }
        errors.not_negative(place.child("succeededCount"), rule.number("succeededCount"));
    }
}

fn changed_job(new: &Value, old: &Value, old_job: &Value, errors: &mut Errors) {
    let path = SPEC.child("completions");
    if new.text("completionMode") == "Indexed" {
        let completions = new.number("completions");
        if new.at("completions") != old.at("completions")
            && completions.is_some()
            && completions != new.number("parallelism")
        {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.invalid(path, new.at("completions").clone(), detail);
        }
    } else {
        errors.immutable(path, new.at("completions"), old.at("completions"));
    }
    errors.immutable(SPEC.child("selector"), new.at("selector"), old.at("selector"));
    changed_template(new, old, old_job, errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        errors.immutable(SPEC.child(field), new.at(field), old.at(field));
    }
}

/// The template may change only while the job is suspended and never ran: where its pods go, and what they need.
fn changed_template(new: &Value, old: &Value, old_job: &Value, errors: &mut Errors) {
    let mut expected = old.at("template").clone();
    let template = new.at("template");
    let suspended = old.flag("suspend");
    let started = old_job.at("status").has("startTime");
    if suspended && !started {
        for field in ["labels", "annotations"] {
            expected.object("metadata").put(field, template.at("metadata").at(field).clone());
        }
        let pod = expected.object("spec");
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            pod.put(field, template.at("spec").at(field).clone());
        }
        let affinity = template.at("spec").at("affinity").at("nodeAffinity").clone();
        if !affinity.is_null() || pod.has("affinity") {
            pod.object("affinity").put("nodeAffinity", affinity);
        }
        if !template.at("spec").has("affinity") && pod.at("affinity") == &json!({}) {
            pod.drop("affinity");
        }
        for list in ["containers", "initContainers"] {
            for (container, now) in pod.items_mut(list).iter_mut().zip(template.at("spec").items(list)) {
                container.put("resources", now.at("resources").clone());
            }
        }
    }
    errors.immutable(SPEC.child("template"), template, &expected);
}

fn validate_cron_job(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = new.at("spec");
    let schedule = spec.text("schedule");
    let path = SPEC.child("schedule");
    if schedule.is_empty() {
        errors.required(path, "");
    } else {
        if let Some(problem) = cron::problem(schedule) {
            errors.invalid(path, schedule, problem);
        }
        let may_name_zone = old.is_some_and(|old| old.at("spec").text("schedule").contains("TZ"));
        if schedule.contains("TZ") && may_name_zone && spec.has("timeZone") {
            errors.invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
        } else if schedule.contains("TZ") && !may_name_zone {
            errors.invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        }
    }
    errors.not_negative(SPEC.child("startingDeadlineSeconds"), spec.number("startingDeadlineSeconds"));
    if spec.has("timeZone") && old.is_none_or(|old| old.at("spec").at("timeZone") != spec.at("timeZone")) {
        time_zone(spec.text("timeZone"), SPEC.child("timeZone"), &mut errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    errors.required_one_of(SPEC.child("concurrencyPolicy"), spec.text("concurrencyPolicy"), &policies);
    job_template(spec.at("jobTemplate"), SPEC.child("jobTemplate"), &mut errors);
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.not_negative(SPEC.child(field), spec.number(field));
    }
    let name = new.at("metadata").text("name");
    if old.is_none() && name.len() > 52 {
        errors.invalid(Path::root("metadata").child("name"), name, "must be no more than 52 characters");
    }
    errors
}

fn job_template(template: &Value, path: Path<'_>, errors: &mut Errors) {
    let spec = template.at("spec");
    let place = path.child("spec");
    job_spec(spec, place, errors);
    if spec.has("selector") {
        errors.invalid(place.child("selector"), spec.at("selector").clone(), "`selector` will be auto-generated");
    }
    if spec.flag("manualSelector") {
        let mut error = FieldError::not_supported(place.child("manualSelector"), "", &["nil", "false"]);
        error.problem = FieldProblem::NotSupported(true.into());
        errors.report(error);
    }
}

fn time_zone(zone: &str, path: Path<'_>, errors: &mut Errors) {
    let well_formed = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+'))
    };
    if zone.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    } else if !zone.split('/').all(well_formed) {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
    } else {
        if zone.eq_ignore_ascii_case("Local") {
            let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.invalid(path, zone, detail);
        }
        if zone != "Local" && jiff::tz::TimeZone::get(zone).is_err() {
            errors.invalid(path, zone, format!("unknown time zone {zone}"));
        }
    }
}
