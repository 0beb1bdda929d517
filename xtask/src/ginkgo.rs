//! The JSON report of Ginkgo, the test framework of the Go projects.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Ginkgo's word for a spec that held.
pub(crate) const PASSED: &str = "passed";

/// The outcome of one spec.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    /// Ginkgo's own word: `passed`, `failed`, `skipped`, `timedout` …
    pub(crate) state: String,
    pub(crate) seconds: f64,
    /// Why it failed.
    pub(crate) message: String,
    /// Whether it failed before.
    pub(crate) is_second_try: bool,
}

impl Outcome {
    pub(crate) fn passed(&self) -> bool {
        self.state == PASSED
    }
}

/// Reads a report.
pub(crate) fn read(file: &Path) -> Result<Vec<Outcome>> {
    let text = std::fs::read(file).with_context(|| format!("read `{}`", file.display()))?;
    outcomes(&text).with_context(|| format!("understand `{}`", file.display()))
}

/// Writes outcomes as JSON.
pub(crate) fn write(file: &Path, outcomes: &[Outcome]) -> Result<()> {
    let text = serde_json::to_string_pretty(outcomes).context("render the report")?;
    std::fs::write(file, text + "\n").with_context(|| format!("write `{}`", file.display()))
}

/// Ginkgo's report, as far as it matters here.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    #[serde(rename = "RunTime")]
    run_time_ns: u64,
    #[serde(default)]
    failure: Failure,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failure {
    message: String,
}

/// The outcomes of the chosen specs. A failure outside a spec (in the set-up of the whole suite) is an outcome as well.
fn outcomes(report: &[u8]) -> Result<Vec<Outcome>> {
    let reports: Vec<Report> = serde_json::from_slice(report)?;
    let specs = reports.into_iter().flat_map(|report| report.spec_reports.unwrap_or_default());
    let mut found = Vec::new();
    for spec in specs {
        let is_spec = spec.leaf_node_type == "It";
        let chosen =
            if is_spec { spec.state != "skipped" || !spec.failure.message.is_empty() } else { spec.state != "passed" };
        if !chosen {
            continue;
        }
        let mut words = spec.container_hierarchy_texts.unwrap_or_default();
        words.push(if is_spec { spec.leaf_node_text } else { spec.leaf_node_type });
        found.push(Outcome {
            name: words.join(" "),
            state: spec.state,
            seconds: Duration::from_nanos(spec.run_time_ns).as_secs_f64(),
            message: spec.failure.message,
            is_second_try: false,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_gives_chosen_specs_and_failed_set_ups() {
        let report = br#"[{"SpecReports": [
            {"ContainerHierarchyTexts": ["[sig-a] Things"], "LeafNodeText": "work", "LeafNodeType": "It",
             "State": "passed", "RunTime": 1500000000},
            {"ContainerHierarchyTexts": ["[sig-a] Things"], "LeafNodeText": "fail", "LeafNodeType": "It",
             "State": "failed", "RunTime": 1, "Failure": {"Message": "because"}},
            {"ContainerHierarchyTexts": ["[sig-a] Things"], "LeafNodeText": "not chosen", "LeafNodeType": "It",
             "State": "skipped", "RunTime": 0},
            {"ContainerHierarchyTexts": ["[sig-a] Things"], "LeafNodeText": "want a provider", "LeafNodeType": "It",
             "State": "skipped", "RunTime": 1, "Failure": {"Message": "only for clouds"}},
            {"ContainerHierarchyTexts": null, "LeafNodeText": "", "LeafNodeType": "SynchronizedAfterSuite",
             "State": "passed", "RunTime": 1},
            {"ContainerHierarchyTexts": null, "LeafNodeText": "", "LeafNodeType": "SynchronizedBeforeSuite",
             "State": "failed", "RunTime": 1, "Failure": {"Message": "no nodes"}}
        ]}]"#;
        let found = outcomes(report).unwrap();
        let found: Vec<_> = found.iter().map(|o| (o.name.as_str(), o.state.as_str(), o.message.as_str())).collect();
        assert_eq!(
            found,
            [
                ("[sig-a] Things work", "passed", ""),
                ("[sig-a] Things fail", "failed", "because"),
                ("[sig-a] Things want a provider", "skipped", "only for clouds"),
                ("SynchronizedBeforeSuite", "failed", "no nodes"),
            ]
        );
    }
}
