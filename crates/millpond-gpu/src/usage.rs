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

/// What was measured last; none where nothing is.
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
