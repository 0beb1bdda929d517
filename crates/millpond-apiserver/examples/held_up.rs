//! How long `/readyz` waits while another request has much to do: long lists in every form, and validation against a long
//! enum. Goal: at most 100 ms under each of them.
//!
//! ```text
//! cargo run --release -p millpond-apiserver --example held_up              # 70 MB of ConfigMaps, an enum of 50,000
//! cargo run --release -p millpond-apiserver --example held_up -- 7 5000    # MB, values
//! ```
#![expect(clippy::print_stdout, reason = "it measures and prints")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use millpond_apiserver::{ApiService, Embedded, EmbeddedOptions};
use serde_json::json;
use tower_service::Service;

/// The binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DUCKS: &str = "/apis/pond.example/v1/namespaces/default/ducks";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Bytes of one ConfigMap.
const MAP_BYTES: usize = 500_000;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let (megabytes, values) = (numbers.next().unwrap_or(70), numbers.next().unwrap_or(50_000));
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(megabytes, values))
}

async fn measure(megabytes: usize, values: usize) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let embedded = Embedded::start(EmbeddedOptions { memory: true, ..EmbeddedOptions::new(directory.path()) }).await?;
    let service = embedded.service();
    for number in 0..megabytes * 1_000_000 / MAP_BYTES {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"x": "x".repeat(MAP_BYTES)}});
        send(service.clone(), "POST", MAPS, "application/json", map.to_string()).await?;
    }
    send(service.clone(), "POST", DEFINITIONS, "application/json", definition(values)).await?;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let duck = json!({"apiVersion": "pond.example/v1", "kind": "Duck", "metadata": {"generateName": "d-"},
        "spec": vec![format!("v{}", values - 1); 1_000]})
    .to_string();
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    };
    println!("nothing: /readyz at most {:?}", longest_wait(&service, second).await?);
    for (name, method, path, accept, body) in [
        ("list as JSON", "GET", MAPS, "application/json", ""),
        ("list as a table", "GET", MAPS, table, ""),
        ("list of metadata", "GET", MAPS, metadata, ""),
        ("list as YAML", "GET", MAPS, "application/yaml", ""),
        ("1,000 values against the enum", "POST", DUCKS, "application/json", duck.as_str()),
    ] {
        let begun = Instant::now();
        let work = send(service.clone(), method, path, accept, body.to_owned());
        let longest = longest_wait(&service, work).await?;
        println!("{name}: took {:?}, /readyz at most {longest:?}", begun.elapsed());
    }
    embedded.stop().await;
    Ok(())
}

/// Asks `/readyz` again and again while some work is done; the longest that an answer took.
async fn longest_wait(
    service: &ApiService,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<Duration, Failure> {
    let (ends, asked) = (Arc::new(AtomicBool::new(false)), service.clone());
    let told = Arc::clone(&ends);
    let asking = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        while !told.load(Ordering::Relaxed) {
            let begun = Instant::now();
            send(asked.clone(), "GET", "/readyz", "*/*", String::new()).await?;
            longest = longest.max(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok::<_, Failure>(longest)
    });
    work.await?;
    ends.store(true, Ordering::Relaxed);
    asking.await?
}

async fn send(mut service: ApiService, method: &str, path: &str, accept: &str, body: String) -> Result<(), Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("accept", accept)
        .body(Full::new(Bytes::from(body)))?;
    let Ok(response) = service.call(request).await;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    if status.is_success() { Ok(()) } else { Err(String::from_utf8_lossy(&answer).into_owned().into()) }
}

/// A CRD whose objects are lists of texts of a long enum.
fn definition(values: usize) -> String {
    let values: Vec<String> = (0..values).map(|number| format!("v{number}")).collect();
    let spec = json!({"type": "array", "items": {"type": "string", "enum": values}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ducks.pond.example"},
        "spec": {
            "group": "pond.example", "scope": "Namespaced",
            "names": {"plural": "ducks", "singular": "duck", "kind": "Duck", "listKind": "DuckList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
    .to_string()
}
