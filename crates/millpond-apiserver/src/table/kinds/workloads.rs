//! Kinds that make pods: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job and their like.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::read::{
    flag, integer, is_deleting, labels, list, name, optional, optional_quantity, present, selector, text, time,
};
use super::{
    AGE, CONTAINERS, IMAGES, NAME, age, boolean, containers, integer as number, is_true, plain, since, text as column,
    wide, with_more,
};
use crate::print::human_duration;
use crate::resource::{BuiltinColumns, ColumnDefinition};
use crate::selector::LabelSelector;

const SELECTOR: ColumnDefinition = wide(column("Selector", "Labels of the pods that belong to this object"));
const DESIRED: ColumnDefinition = number("Desired", "Wanted number of pods");
const CURRENT: ColumnDefinition = number("Current", "Number of pods that exist");
const READY: ColumnDefinition = number("Ready", "Number of pods that are ready");

const TEMPLATE_CONTAINERS: &str = "/spec/template/spec/containers";

pub(super) static REPLICATION_CONTROLLER: BuiltinColumns =
    plain(&[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR], |object, now| {
        replica_cells(object, now, &labels(object, "/spec/selector"))
    });

pub(super) static REPLICA_SET: BuiltinColumns =
    plain(&[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR], |object, now| {
        replica_cells(object, now, &selector(object, "/spec/selector"))
    });

fn replica_cells(object: &Value, now: Timestamp, selector: &str) -> Vec<Value> {
    let [names, images] = containers(object, TEMPLATE_CONTAINERS);
    vec![
        json!(name(object)),
        json!(integer(object, "/spec/replicas")),
        json!(integer(object, "/status/replicas")),
        json!(integer(object, "/status/readyReplicas")),
        json!(age(object, now)),
        names,
        images,
        json!(selector),
    ]
}

fn ready_of_wanted(object: &Value) -> String {
    format!("{}/{}", integer(object, "/status/readyReplicas"), integer(object, "/spec/replicas"))
}

pub(super) static DEPLOYMENT: BuiltinColumns = plain(
    &[
        NAME,
        column("Ready", "Ready pods of wanted pods"),
        column("Up-to-date", "Number of pods of the current template"),
        column("Available", "Number of pods that have been ready for long enough"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| {
        let [names, images] = containers(object, TEMPLATE_CONTAINERS);
        let selector = LabelSelector::from_object(&object["spec"]["selector"]);
        vec![
            json!(name(object)),
            json!(ready_of_wanted(object)),
            json!(integer(object, "/status/updatedReplicas")),
            json!(integer(object, "/status/availableReplicas")),
            json!(age(object, now)),
            names,
            images,
            json!(selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string())),
        ]
    },
);

pub(super) static STATEFUL_SET: BuiltinColumns =
    plain(&[NAME, column("Ready", "Ready pods of wanted pods"), AGE, CONTAINERS, IMAGES], |object, now| {
        let [names, images] = containers(object, TEMPLATE_CONTAINERS);
        vec![json!(name(object)), json!(ready_of_wanted(object)), json!(age(object, now)), names, images]
    });

pub(super) static DAEMON_SET: BuiltinColumns = plain(
    &[
        NAME,
        number("Desired", "Number of nodes that should run the pod"),
        number("Current", "Number of nodes that run the pod and should"),
        number("Ready", "Number of nodes with a ready pod"),
        number("Up-to-date", "Number of nodes with a pod of the current template"),
        number("Available", "Number of nodes with a pod that has been ready for long enough"),
        column("Node Selector", "Labels of the nodes that the pods run on"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| {
        let [names, images] = containers(object, TEMPLATE_CONTAINERS);
        vec![
            json!(name(object)),
            json!(integer(object, "/status/desiredNumberScheduled")),
            json!(integer(object, "/status/currentNumberScheduled")),
            json!(integer(object, "/status/numberReady")),
            json!(integer(object, "/status/updatedNumberScheduled")),
            json!(integer(object, "/status/numberAvailable")),
            json!(labels(object, "/spec/template/spec/nodeSelector")),
            json!(age(object, now)),
            names,
            images,
            json!(selector(object, "/spec/selector")),
        ]
    },
);

pub(super) static CONTROLLER_REVISION: BuiltinColumns = plain(
    &[
        NAME,
        column("Controller", "Object that this is a revision of"),
        column("Revision", "Number of the revision"),
        AGE,
    ],
    |object, now| {
        let owner = list(object, "/metadata/ownerReferences").iter().find(|owner| flag(owner, "/controller"));
        let controller = owner.map_or_else(|| "<none>".to_owned(), owner_name);
        vec![json!(name(object)), json!(controller), json!(integer(object, "/revision")), json!(age(object, now))]
    },
);

/// `deployment.apps/web`.
fn owner_name(owner: &Value) -> String {
    let kind = text(owner, "/kind").to_lowercase();
    match text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), text(owner, "/name")),
        None => format!("{kind}/{}", text(owner, "/name")),
    }
}

pub(super) static JOB: BuiltinColumns = plain(
    &[
        NAME,
        column("Status", "How far the job is"),
        column("Completions", "Pods that succeeded of those that have to"),
        column("Duration", "How long the job has run"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| {
        let [names, images] = containers(object, TEMPLATE_CONTAINERS);
        vec![
            json!(name(object)),
            json!(job_status(object)),
            json!(job_completions(object)),
            json!(job_duration(object, now)),
            json!(age(object, now)),
            names,
            images,
            json!(selector(object, "/spec/selector")),
        ]
    },
);

fn job_status(job: &Value) -> &'static str {
    if is_true(job, "Complete") {
        return "Complete";
    }
    if is_true(job, "Failed") {
        return "Failed";
    }
    if is_deleting(job) {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|ty| is_true(job, ty)).unwrap_or("Running")
}

fn job_completions(job: &Value) -> String {
    let succeeded = integer(job, "/status/succeeded");
    let parallelism = integer(job, "/spec/parallelism");
    match job.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    time(job, "/status/startTime").map_or_else(String::new, |start| {
        let end = time(job, "/status/completionTime").unwrap_or(now);
        human_duration(end.duration_since(start))
    })
}

pub(super) static CRON_JOB: BuiltinColumns = plain(
    &[
        NAME,
        column("Schedule", "When jobs are made, in cron's notation"),
        column("Timezone", "Time zone of the schedule"),
        boolean("Suspend", "Whether no new jobs are made"),
        number("Active", "Number of jobs that run"),
        column("Last Schedule", "Time since a job was made"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    |object, now| {
        let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
        let suspend = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let last = if present(object, "/status/lastScheduleTime") {
            since(object, "/status/lastScheduleTime", now)
        } else {
            "<none>".to_owned()
        };
        vec![
            json!(name(object)),
            json!(text(object, "/spec/schedule")),
            json!(optional(object, "/spec/timeZone").unwrap_or("<none>")),
            json!(suspend),
            json!(list(object, "/status/active").len()),
            json!(last),
            json!(age(object, now)),
            names,
            images,
            json!(selector(object, "/spec/jobTemplate/spec/selector")),
        ]
    },
);

pub(super) static SCALE: BuiltinColumns = plain(
    &[ColumnDefinition { format: "", ..NAME }, DESIRED, number("Available", "Number of pods that exist"), AGE],
    |object, now| {
        vec![
            json!(name(object)),
            json!(integer(object, "/spec/replicas")),
            json!(integer(object, "/status/replicas")),
            json!(age(object, now)),
        ]
    },
);

pub(super) static HORIZONTAL_POD_AUTOSCALER: BuiltinColumns = plain(
    &[
        NAME,
        column("Reference", "Object that is scaled"),
        column("Targets", "Current and wanted values of the metrics"),
        column("MinPods", "Least number of pods"),
        column("MaxPods", "Greatest number of pods"),
        column("Replicas", "Number of pods"),
        AGE,
    ],
    |object, now| {
        let target = &object["spec"]["scaleTargetRef"];
        let least = object.pointer("/spec/minReplicas").and_then(Value::as_i64);
        vec![
            json!(name(object)),
            json!(format!("{}/{}", text(target, "/kind"), text(target, "/name"))),
            json!(metrics(object)),
            json!(least.map_or_else(|| "<unset>".to_owned(), |least| least.to_string())),
            json!(integer(object, "/spec/maxReplicas")),
            json!(integer(object, "/status/currentReplicas")),
            json!(age(object, now)),
        ]
    },
);

fn metrics(autoscaler: &Value) -> String {
    const MAX: usize = 2;
    let specs = list(autoscaler, "/spec/metrics");
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = list(autoscaler, "/status/currentMetrics");
    let shown: Vec<String> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    with_more(&shown, specs.len(), MAX, ", ")
}

fn metric(spec: &Value, status: &Value) -> String {
    let (source, averages, named) = match text(spec, "/type") {
        "External" => ("external", true, false),
        "Object" => ("object", true, false),
        "Pods" => ("pods", false, false),
        "Resource" => ("resource", false, true),
        "ContainerResource" => ("containerResource", false, true),
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (&spec[source], &status[source]);
    let average = optional_quantity(spec, "/target/averageValue");
    if named {
        let resource = text(spec, "/name");
        return match average {
            Some(average) => format!("{resource}: {}/{average}", current(status, "averageValue")),
            None => format!(
                "{resource}: {}/{}",
                utilization(status, "current", "<unknown>"),
                utilization(spec, "target", "<auto>")
            ),
        };
    }
    match average {
        Some(average) if averages => {
            let current = optional_quantity(status, "/current/averageValue");
            format!("{}/{average} (avg)", current.unwrap_or_else(|| "<unknown>".to_owned()))
        }
        _ if averages => {
            let wanted = optional_quantity(spec, "/target/value").unwrap_or_else(|| "<nil>".to_owned());
            format!("{}/{wanted}", current(status, "value"))
        }
        average => format!("{}/{}", current(status, "averageValue"), average.unwrap_or_else(|| "<nil>".to_owned())),
    }
}

/// The current value of a metric: unknown without a status, nil in a status that lacks it.
fn current(status: &Value, key: &str) -> String {
    if status.is_null() {
        return "<unknown>".to_owned();
    }
    optional_quantity(status, &format!("/current/{key}")).unwrap_or_else(|| "<nil>".to_owned())
}

fn utilization(source: &Value, part: &str, none: &str) -> String {
    source[part]["averageUtilization"].as_i64().map_or_else(|| none.to_owned(), |percent| format!("{percent}%"))
}
