//! CPU and memory in use by the metrics API, where the cluster serves it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::devices::{milli, units};
use crate::estate::Load;

const PATH: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
/// metrics-server measures every 15 s.
const POLL: Duration = Duration::from_secs(15);
/// How often a cluster without the API is asked whether it has it now.
const ASK_AGAIN: Duration = Duration::from_mins(2);

/// The latest measurement; `None` if nothing is measured.
pub type Usage = Arc<RwLock<Option<HashMap<String, Load>>>>;

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Named,
    usage: Amounts,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct Amounts {
    cpu: String,
    memory: String,
}

/// Asks once.
pub async fn fetch(client: &Client) -> Option<HashMap<String, Load>> {
    let request = http::Request::get(PATH).body(Vec::new()).ok()?;
    let list: List = client.request(request).await.ok()?;
    let load = |item: &Item| Load {
        cpu: milli(&item.usage.cpu).unwrap_or_default(),
        memory_mib: units(&item.usage.memory).unwrap_or_default() >> 20,
    };
    Some(list.items.iter().map(|item| (item.metadata.name.clone(), load(item))).collect())
}

/// Asks again and again until the token is cancelled; tells of changes.
pub(crate) async fn follow(client: Client, usage: Usage, changed: Arc<Notify>, stop: CancellationToken) {
    loop {
        let found = fetch(&client).await;
        let pause = if found.is_some() { POLL } else { ASK_AGAIN };
        let differs = *usage.read() != found;
        if differs {
            *usage.write() = found;
            changed.notify_one();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A cluster that answers every request like this.
    async fn fetched(status: StatusCode, answer: serde_json::Value) -> Option<HashMap<String, Load>> {
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri().path(), PATH);
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = status;
            async { Ok::<_, Infallible>(response) }
        });
        fetch(&Client::new(service, "default")).await
    }

    #[tokio::test]
    async fn cores_and_memory_are_read_in_the_units_of_the_metrics_api() {
        let item = |name: &str, cpu: &str, memory: &str| {
            json!({"metadata": {"name": name}, "timestamp": "2026-11-16T04:30:00Z", "window": "20s",
                   "usage": {"cpu": cpu, "memory": memory}})
        };
        let items = [item("a", "1503482913n", "2097152Ki"), item("b", "250m", "512Mi")];
        let list = json!({"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items});
        let found = fetched(StatusCode::OK, list).await.expect("figures");
        assert_eq!((found["a"].cpu, found["a"].memory_mib), (1504, 2048));
        assert_eq!((found["b"].cpu, found["b"].memory_mib), (250, 512));
        // Where the API is not served the load is that of requests.
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404});
        assert_eq!(fetched(StatusCode::NOT_FOUND, status).await, None);
    }
}
