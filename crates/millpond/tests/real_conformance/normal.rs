//! What may differ between two servers that behave the same: ids, revisions, times, ports.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Pattern → what stands in its place.
static RULES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let rules = [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r#"(resourceVersion"?: ?"?)\d+"#, "${1}RV"),
        (r"(?i)(resource ?version:? )\d+", "${1}RV"),
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r"\bg-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "GENERATED"),
        (r"10\.0\.\d+\.\d+", "CLUSTER-IP"),
        (r"\b\d+(\.\d+)?(ms|s|m\d+s)\b( ago)?", "AGE"),
        (r"(?m)^(I|W|E)\d{4} .*$", ""),
        (r"/tmp/\S+", "FILE"),
        (r"\.go:\d+", ".go:LINE"),
        (r"v1\.36\.3\S*", "VERSION"),
        (r"[ \t]+", " "),
    ];
    rules.iter().map(|(pattern, place)| (Regex::new(pattern).expect("a valid pattern"), *place)).collect()
});

/// Text with everything replaced that may differ.
pub(crate) fn text(raw: &str) -> String {
    let mut text = raw.to_owned();
    for (pattern, place) in RULES.iter() {
        text = pattern.replace_all(&text, *place).into_owned();
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

/// The body of an answer, the same way: JSON is sorted and printed line by line.
pub(crate) fn body(raw: &[u8]) -> String {
    match serde_json::from_slice::<Value>(raw) {
        Ok(mut value) => {
            neutralize(&mut value);
            text(&format!("{value:#}"))
        }
        Err(_) => text(&String::from_utf8_lossy(raw)),
    }
}

/// Descriptions of Table columns are prose that each server words for itself; continue tokens are opaque; of reviews,
/// which are stored nowhere, only the real server says who wrote which field.
fn neutralize(value: &mut Value) {
    let is_review = value["kind"].as_str().is_some_and(|kind| kind.ends_with("Review"));
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| is_review) {
        metadata.remove("managedFields");
    }
    if let Some(columns) = value.get_mut("columnDefinitions").and_then(Value::as_array_mut) {
        for column in columns {
            column["description"] = Value::from("PROSE");
        }
    }
    if let Some(token) = value.pointer_mut("/metadata/continue").filter(|token| *token != "") {
        *token = Value::from("TOKEN");
    }
}
