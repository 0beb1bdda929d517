//! Prometheus metrics under the names that Software Factory's statsd exporter gives to Nodepool's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::config::{Config, INSTANCES};
use crate::model::RequestState;
use crate::records::{NodeEntry, RequestEntry};

/// Every state has a series, so that a state that no node is in is 0 and not absent.
const STATES: [&str; 11] =
    ["init", "building", "testing", "ready", "in-use", "used", "hold", "deleting", "deleted", "failed", "aborted"];

/// Names of limits in Nodepool's metrics.
const TENANT_LIMITS: [&str; 3] = ["cores", "ram", INSTANCES];

/// All families of nodes, requests and limits as text.
pub fn families(config: &Config, nodes: &[NodeEntry], requests: &[RequestEntry]) -> String {
    let mut out = String::new();
    family(&mut out, "nodepool_nodes", "Nodes by state");
    let mut states: BTreeMap<&str, u64> = STATES.into_iter().map(|state| (state, 0)).collect();
    for entry in nodes {
        *states.entry(entry.node.state.name()).or_default() += 1;
    }
    for (state, count) in states {
        sample(&mut out, "nodepool_nodes", &[("state", state)], count);
    }
    let by_label = counts(config.labels.keys().map(String::as_str), nodes, |entry| {
        entry.node.labels.iter().map(String::as_str).collect()
    });
    by_state(&mut out, "nodepool_label_nodes", "Nodes by label and state", "label", &by_label);
    let by_provider = counts(config.providers.iter().map(|provider| provider.name.as_str()), nodes, |entry| {
        entry.node.provider.iter().map(String::as_str).collect()
    });
    by_state(&mut out, "nodepool_provider_nodes", "Nodes by provider and state", "provider", &by_provider);
    limits(&mut out, config);
    addressable(&mut out, config, requests);
    out
}

type Counts<'a> = BTreeMap<&'a str, BTreeMap<&'a str, u64>>;

fn counts<'a>(
    known: impl Iterator<Item = &'a str>,
    nodes: &'a [NodeEntry],
    of: impl Fn(&'a NodeEntry) -> Vec<&'a str>,
) -> Counts<'a> {
    let zeros = || STATES.into_iter().map(|state| (state, 0)).collect::<BTreeMap<_, _>>();
    let mut counts: Counts<'a> = known.map(|name| (name, zeros())).collect();
    for entry in nodes {
        for name in of(entry) {
            *counts.entry(name).or_insert_with(zeros).entry(entry.node.state.name()).or_default() += 1;
        }
    }
    counts
}

fn by_state(out: &mut String, name: &str, help: &str, key: &str, counts: &Counts<'_>) {
    family(out, name, help);
    for (value, states) in counts {
        for (state, count) in states {
            sample(out, name, &[(key, value), ("state", state)], *count);
        }
    }
}

fn limits(out: &mut String, config: &Config) {
    family(out, "nodepool_provider_max_servers", "The limit of nodes of a provider");
    for provider in &config.providers {
        let pools: Option<u64> = provider.pools.iter().map(|pool| pool.limits.get(INSTANCES).copied()).sum();
        if let Some(limit) = provider.limits.get(INSTANCES).copied().or(pools) {
            sample(out, "nodepool_provider_max_servers", &[("provider", &provider.name)], limit);
        }
    }
    family(out, "nodepool_tenant_limits", "The limits of a tenant");
    for (tenant, limits) in &config.tenant_limits {
        for name in TENANT_LIMITS {
            if let Some(limit) = limits.get(name) {
                sample(out, "nodepool_tenant_limits", &[("tenant", tenant), ("limit", name)], *limit);
            }
        }
    }
}

/// Open requests that a pool has all labels of.
fn addressable(out: &mut String, config: &Config, requests: &[RequestEntry]) {
    const NAME: &str = "nodepool_provider_pool_addressable_requests";
    family(out, NAME, "Open requests that a pool could provide");
    for provider in &config.providers {
        for pool in &provider.pools {
            let fits = |entry: &&RequestEntry| {
                let request = &entry.request;
                let open = matches!(request.state, RequestState::Requested | RequestState::Pending);
                open && request.node_types.iter().all(|label| pool.labels.contains_key(label))
            };
            let count = requests.iter().filter(fits).count() as u64;
            sample(out, NAME, &[("provider", &provider.name), ("pool", &pool.name)], count);
        }
    }
}

fn family(out: &mut String, name: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}.\n# TYPE {name} gauge\n");
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
    let _ = writeln!(out, "{name}{{{}}} {value}", labels.join(","));
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}
