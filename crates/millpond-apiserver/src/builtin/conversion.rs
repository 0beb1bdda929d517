//! Kinds that are served in two forms and stored in one: Event (stored as `v1`) and HorizontalPodAutoscaler
//! (stored as `autoscaling/v2`).

use serde_json::{Map, Value, json};

use crate::resource::Conversion;

/// `events.k8s.io/v1` Event, stored as `v1` Event.
pub(super) const EVENT: Conversion = Conversion { to_storage: event_to_core, from_storage: event_from_core };

/// `autoscaling/v1` HorizontalPodAutoscaler, stored as `autoscaling/v2`.
pub(super) const AUTOSCALER: Conversion = Conversion { to_storage: autoscaler_to_v2, from_storage: autoscaler_from_v2 };

/// (name in `events.k8s.io/v1`, name in `v1`) of the fields that differ.
const EVENT_NAMES: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Fields that `v1` prints when they are empty, and `events.k8s.io/v1` does not.
const ALWAYS_IN_CORE: &[&str] = &["reportingComponent", "reportingInstance"];

fn event_to_core(event: &mut Value) {
    rename(event, EVENT_NAMES.iter().copied());
    event["apiVersion"] = json!("v1");
    for name in ALWAYS_IN_CORE {
        if event[*name].is_null() {
            event[*name] = json!("");
        }
    }
}

fn event_from_core(event: &mut Value) {
    if let Some(map) = event.as_object_mut() {
        map.retain(|name, value| *value != "" || !ALWAYS_IN_CORE.contains(&name.as_str()));
    }
    rename(event, EVENT_NAMES.iter().map(|&(new, core)| (core, new)));
    event["apiVersion"] = json!("events.k8s.io/v1");
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// Annotations that carry in `autoscaling/v1` what only `autoscaling/v2` has fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CARRIERS: [&str; 4] = [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS];

/// CPU utilization that an autoscaler without any metric aims at.
pub(super) const DEFAULT_CPU_UTILIZATION: i64 = 80;

fn autoscaler_to_v2(object: &mut Value) {
    object["apiVersion"] = json!("autoscaling/v2");
    let carried: Vec<Option<Value>> = CARRIERS.iter().map(|name| take_carrier(object, name)).collect();
    let [metrics, behavior, current_metrics, conditions] = carried.try_into().expect("one value per carrier");

    let spec = object_at(object, "spec");
    let mut all: Vec<Value> = list(metrics).iter().map(|metric| unflatten(metric, &SOURCE)).collect();
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage").filter(|v| !v.is_null()) {
        all.push(cpu_metric(&percent));
    }
    if all.is_empty() {
        all.push(cpu_metric(&json!(DEFAULT_CPU_UTILIZATION)));
    }
    spec.insert("metrics".into(), all.into());
    if let Some(behavior) = behavior {
        spec.insert("behavior".into(), with_initials(&behavior, char::to_lowercase));
    }

    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let percent = status.remove("currentCPUUtilizationPercentage").filter(|v| !v.is_null());
    let current: Vec<Value> = match (current_metrics, percent) {
        (Some(carried), _) => list(Some(carried)).iter().map(|metric| unflatten(metric, &STATUS)).collect(),
        (None, Some(percent)) => {
            vec![json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}})]
        }
        (None, None) => Vec::new(),
    };
    status.insert("currentMetrics".into(), if current.is_empty() { Value::Null } else { current.into() });
    if let Some(conditions) = conditions {
        status.insert("conditions".into(), conditions);
    }
}

fn autoscaler_from_v2(object: &mut Value) {
    object["apiVersion"] = json!("autoscaling/v1");
    for name in CARRIERS {
        take_carrier(object, name);
    }
    let spec = object_at(object, "spec");
    let (cpu, others): (Vec<Value>, Vec<Value>) =
        list(spec.remove("metrics")).into_iter().partition(|metric| cpu_utilization(metric, "target").is_some());
    if let Some(percent) = cpu.first().and_then(|metric| cpu_utilization(metric, "target")) {
        spec.insert("targetCPUUtilizationPercentage".into(), percent);
    }
    let behavior = spec.remove("behavior").map(|behavior| with_initials(&behavior, char::to_uppercase));
    let others = flatten_all(&others, &SOURCE);

    let status = object_at(object, "status");
    let current = list(status.remove("currentMetrics"));
    if let Some(percent) = current.iter().filter_map(|metric| cpu_utilization(metric, "current")).next_back() {
        status.insert("currentCPUUtilizationPercentage".into(), percent);
    }
    let conditions = status.remove("conditions").filter(|v| v.as_array().is_some_and(|a| !a.is_empty()));
    let current = flatten_all(&current, &STATUS);
    for (name, value) in [(METRICS, others), (BEHAVIOR, behavior), (CURRENT_METRICS, current), (CONDITIONS, conditions)]
    {
        if let Some(value) = value {
            object["metadata"]["annotations"][name] = value.to_string().into();
        }
    }
}

pub(super) fn cpu_metric(percent: &Value) -> Value {
    json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}},
    })
}

fn cpu_utilization(metric: &Value, part: &str) -> Option<Value> {
    let resource = metric.get("resource").filter(|_| metric["type"] == "Resource")?;
    let percent = resource.get(part)?.get("averageUtilization")?;
    (resource["name"] == "cpu").then(|| percent.clone())
}

fn take_carrier(object: &mut Value, name: &str) -> Option<Value> {
    let annotations = object.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    let text = annotations.remove(name)?;
    if annotations.is_empty() {
        object.pointer_mut("/metadata")?.as_object_mut()?.remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn list(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn object_at<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object[key].is_object() {
        object[key] = json!({});
    }
    object[key].as_object_mut().expect("made an object above")
}

/// How `autoscaling/v1` spells the parts of a metric that `autoscaling/v2` nests.
struct Flat {
    /// Name of the nested object: `target` or `current`.
    part: &'static str,
    /// (source, path in v2, name in v1)
    names: &'static [(&'static str, &'static str, &'static str)],
}

const SOURCE: Flat = Flat {
    part: "target",
    names: &[
        ("object", "/describedObject", "target"),
        ("object", "/metric/name", "metricName"),
        ("object", "/metric/selector", "selector"),
        ("object", "/target/value", "targetValue"),
        ("object", "/target/averageValue", "averageValue"),
        ("pods", "/metric/name", "metricName"),
        ("pods", "/metric/selector", "selector"),
        ("pods", "/target/averageValue", "targetAverageValue"),
        ("resource", "/name", "name"),
        ("resource", "/target/averageUtilization", "targetAverageUtilization"),
        ("resource", "/target/averageValue", "targetAverageValue"),
        ("containerResource", "/name", "name"),
        ("containerResource", "/container", "container"),
        ("containerResource", "/target/averageUtilization", "targetAverageUtilization"),
        ("containerResource", "/target/averageValue", "targetAverageValue"),
        ("external", "/metric/name", "metricName"),
        ("external", "/metric/selector", "metricSelector"),
        ("external", "/target/value", "targetValue"),
        ("external", "/target/averageValue", "targetAverageValue"),
    ],
};

const STATUS: Flat = Flat {
    part: "current",
    names: &[
        ("object", "/describedObject", "target"),
        ("object", "/metric/name", "metricName"),
        ("object", "/metric/selector", "selector"),
        ("object", "/current/value", "currentValue"),
        ("object", "/current/averageValue", "averageValue"),
        ("pods", "/metric/name", "metricName"),
        ("pods", "/metric/selector", "selector"),
        ("pods", "/current/averageValue", "currentAverageValue"),
        ("resource", "/name", "name"),
        ("resource", "/current/averageUtilization", "currentAverageUtilization"),
        ("resource", "/current/averageValue", "currentAverageValue"),
        ("containerResource", "/name", "name"),
        ("containerResource", "/container", "container"),
        ("containerResource", "/current/averageUtilization", "currentAverageUtilization"),
        ("containerResource", "/current/averageValue", "currentAverageValue"),
        ("external", "/metric/name", "metricName"),
        ("external", "/metric/selector", "metricSelector"),
        ("external", "/current/value", "currentValue"),
        ("external", "/current/averageValue", "currentAverageValue"),
    ],
};

fn flatten_all(metrics: &[Value], flat: &Flat) -> Option<Value> {
    (!metrics.is_empty()).then(|| metrics.iter().map(|metric| flatten(metric, flat)).collect())
}

fn flatten(metric: &Value, flat: &Flat) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, path, name) in flat.names {
        if let Some(value) = metric.get(source).and_then(|inner| inner.pointer(path)) {
            out[source][name] = value.clone();
        }
    }
    out
}

fn unflatten(metric: &Value, flat: &Flat) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (source, path, name) in flat.names {
        let Some(value) = metric.get(source).and_then(|inner| inner.get(name)) else { continue };
        let place = path[1..].split('/').fold(&mut out[*source], |place, key| &mut place[key]);
        *place = value.clone();
    }
    if flat.part == "target" {
        for (source, _, _) in flat.names {
            if let Some(target) = out.get_mut(source).and_then(|inner| inner.get_mut("target")) {
                target["type"] = target_type(source, target).into();
            }
        }
    }
    out
}

/// The v2 type of a target, which v1 only implies by the fields that are set.
fn target_type(source: &str, target: &Value) -> &'static str {
    if target.get("averageUtilization").is_some() {
        "Utilization"
    } else if target.get("value").is_some() && !(source == "object" && target.get("averageValue").is_some()) {
        "Value"
    } else {
        "AverageValue"
    }
}

/// The behavior annotation holds the same tree with capitalised keys.
fn with_initials<I: Iterator<Item = char>>(value: &Value, change: fn(char) -> I) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, inner)| {
                let mut chars = key.chars();
                let initial: String = chars.next().map(change).into_iter().flatten().collect();
                (initial + chars.as_str(), with_initials(inner, change))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(|item| with_initials(item, change)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_the_same_in_both_groups() {
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a", "namespace": "b"},
            "regarding": {"kind": "Pod"}, "note": "hello", "reportingController": "c", "reason": "R",
            "deprecatedCount": 3, "deprecatedSource": {"component": "x"},
        });
        let mut event = new.clone();
        event_to_core(&mut event);
        assert_eq!(
            event,
            json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a", "namespace": "b"},
                "involvedObject": {"kind": "Pod"}, "message": "hello", "reportingComponent": "c", "reportingInstance": "", "reason": "R",
                "count": 3, "source": {"component": "x"},
            })
        );
        event_from_core(&mut event);
        assert_eq!(event, new);
    }

    #[test]
    fn an_autoscaler_without_metrics_aims_at_80_percent() {
        let mut hpa = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3}});
        autoscaler_to_v2(&mut hpa);
        assert_eq!(hpa["spec"]["metrics"], json!([cpu_metric(&json!(80))]));
        autoscaler_from_v2(&mut hpa);
        assert_eq!(hpa["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}));
    }

    #[test]
    fn what_v1_has_no_fields_for_survives_in_annotations() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "metadata": {"name": "a"},
            "spec": {
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
                ],
                "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}},
            },
            "status": {
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7, "averageValue": "1"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}],
            },
        });
        let mut hpa = v2.clone();
        autoscaler_from_v2(&mut hpa);
        assert_eq!(hpa["spec"], json!({"targetCPUUtilizationPercentage": 50}));
        assert_eq!(hpa["status"], json!({"currentCPUUtilizationPercentage": 7}));
        assert_eq!(
            hpa["metadata"]["annotations"][METRICS],
            r#"[{"pods":{"metricName":"m","targetAverageValue":"5"},"type":"Pods"}]"#
        );
        autoscaler_to_v2(&mut hpa);
        assert_eq!(hpa, v2);
    }
}
