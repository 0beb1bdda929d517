//! What the server tells about itself under `/metrics`.

use std::time::Duration;

use http::StatusCode;
use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::handlers::RequestLog;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    code: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    resource: String,
}

/// Another part of this process that exports metrics.
type Source = Box<dyn Fn() -> String + Send + Sync>;

/// Counters of requests. Labels come from the path of known resources only, so their number is bounded.
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    others: RwLock<Vec<Source>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let durations = Family::new_with_constructor(duration_histogram as fn() -> Histogram);
        Self { requests: Family::default(), durations, others: RwLock::default() }
    }
}

impl Metrics {
    pub(crate) fn observe(&self, told: &RequestLog, status: StatusCode, took: Duration) {
        let Some(path) = &told.path else { return };
        let labels = RequestLabels {
            verb: told.verb.to_owned(),
            group: path.group.clone(),
            resource: path.plural.clone(),
            subresource: path.subresource.clone().unwrap_or_default(),
            code: u32::from(status.as_u16()),
        };
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&DurationLabels { verb: told.verb.to_owned() }).observe(took.as_secs_f64());
    }

    pub(crate) fn add(&self, source: Source) {
        self.others.write().push(source);
    }

    pub(crate) fn render(&self, store: &Store) -> String {
        let mut registry = Registry::with_prefix("millpond_apiserver");
        registry.register("requests", "Requests by verb, resource and status code", self.requests.clone());
        registry.register("request_duration_seconds", "Time until the answer starts", self.durations.clone());
        let objects = Family::<ObjectLabels, Gauge>::default();
        for (resource, count) in store.sizes() {
            objects.get_or_create(&ObjectLabels { resource: resource.to_string() }).set(count as i64);
        }
        registry.register("stored_objects", "Objects in the store", objects);
        let revision = Gauge::<i64>::default();
        revision.set(store.revision() as i64);
        registry.register("store_revision", "Latest resourceVersion", revision);
        let mut page = String::new();
        text::encode_registry(&mut page, &registry).expect("writing to a string does not fail");
        self.others.read().iter().for_each(|source| page.push_str(&source()));
        text::encode_eof(&mut page).expect("writing to a string does not fail");
        page
    }
}

/// Histogram of request times: 0.1 ms to about 13 s.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 18))
}
