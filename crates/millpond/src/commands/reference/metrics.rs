//! The page about metrics: what a server really tells under `/metrics` after one request, and what controllers tell when
//! everything has happened once.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Empty};
use millpond_apiserver::auth::Identity;
use millpond_apiserver::clock::Clock;
use millpond_apiserver::store::Store;
use millpond_apiserver::{ApiService, Server, ServerOptions};
use tower::ServiceExt as _;

use super::cell;

const OPENING: &str = "# Metrics

<!-- Written by `cargo xtask generate` from what a server answers; edits are lost. -->

`GET /metrics` (`kubectl get --raw /metrics`) answers in OpenMetrics text, to users with access to the API.

| Name | Type | Labels | Meaning |
|---|---|---|---|
";

pub(super) fn page() -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let text = runtime.block_on(sample())? + &millpond_controllers::metrics::sample();
    let mut page = OPENING.to_owned();
    for metric in parse(&text) {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            metric.series.iter().cloned().collect::<Vec<_>>().join("`, `"),
            metric.kind,
            labels.join(", "),
            cell(&metric.help)
        );
    }
    Ok(page)
}

/// The metrics of a server that has objects and was asked something, so that every family has a member.
async fn sample() -> anyhow::Result<String> {
    let server = Server::new(Store::in_memory(Clock::System), Clock::System, ServerOptions::default())?;
    millpond_apiserver::bootstrap(&server, 6443).await.context("create the first objects")?;
    let service = server.service_for(Identity::administrator("reference"));
    get(&service, "/api/v1/namespaces").await?;
    get(&service, "/metrics").await
}

async fn get(service: &ApiService, path: &str) -> anyhow::Result<String> {
    let request = http::Request::get(path).body(Empty::<bytes::Bytes>::new())?;
    let answer = service.clone().oneshot(request).await?;
    anyhow::ensure!(answer.status().is_success(), "GET {path} was answered with {}", answer.status());
    let body = answer.into_body().collect().await.map_err(|problem| anyhow::anyhow!("{problem}"))?;
    Ok(String::from_utf8(body.to_bytes().to_vec())?)
}

/// One family of the exposition.
#[derive(Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    help: String,
    /// Names that its samples have: a counter's ends with `_total`, a histogram has three.
    series: BTreeSet<String>,
    labels: BTreeSet<String>,
}

fn parse(text: &str) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in text.lines() {
        if let Some((_, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            metrics.push(Metric { help: help.to_owned(), ..Metric::default() });
        } else if let Some(metric) = metrics.last_mut() {
            if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                kind.clone_into(&mut metric.kind);
            } else if !line.starts_with('#') {
                add_sample(metric, line);
            }
        }
    }
    metrics
}

fn add_sample(metric: &mut Metric, line: &str) {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    metric.series.insert(line[..end].to_owned());
    let labels = line[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
    let names = labels.split("\",").filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.to_owned());
    metric.labels.extend(names);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposition_is_read() {
        let text = "# HELP up Whether it runs.\n# TYPE up gauge\nup 1\n\
                    # HELP asked Requests.\n# TYPE asked counter\n\
                    asked_total{verb=\"get\",code=\"200\"} 7\nasked_total{verb=\"list\",code=\"200\"} 1\n# EOF\n";
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let metrics = parse(text);
        assert_eq!(metrics.len(), 2);
        assert_eq!((metrics[0].kind.as_str(), metrics[0].help.as_str()), ("gauge", "Whether it runs."));
        assert_eq!(metrics[1].series, set(&["asked_total"]));
        assert_eq!(metrics[1].labels, set(&["code", "verb"]));
    }

    #[test]
    fn every_family_of_the_server_is_described() {
        let page = page().unwrap();
        assert!(page.contains("`karpenter_nodeclaims_created_total`") && page.contains("`millpond_plan_gap_ratio`"));
        for name in ["requests_total", "request_duration_seconds_bucket", "stored_objects", "store_revision"] {
            assert!(page.contains(&format!("`millpond_apiserver_{name}`")), "no {name} in\n{page}");
        }
    }
}
