//! Creates pods in process, without the rest of the binary, which takes minutes to build.
//!
//! ```text
//! cargo run --release -p millpond-apiserver --example creates -- 20000 256         # how many, and how many at a time
//! cargo run --release -p millpond-apiserver --example creates -- 20000 256 memory  # nothing is written to disk
//! valgrind --tool=callgrind target/release/examples/creates 1000 1 memory          # what a create executes
//! ```
//!
//! `millpond bench api` measures the same and more. The time of the processor is of all threads, the client's share (a
//! request, an answer that is read) included; it varies less than creates a second on a machine that does other things.
#![expect(clippy::print_stdout, reason = "it measures and prints")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use millpond_apiserver::{ApiService, Embedded, EmbeddedOptions};
use serde_json::json;
use tower_service::Service;

/// The binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut numbers = words.iter().filter_map(|word| word.parse().ok());
    let (creates, in_flight) = (numbers.next().unwrap_or(20_000), numbers.next().unwrap_or(256));
    let memory = words.iter().any(|word| word == "memory");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if in_flight == 1 {
        runtime.worker_threads(1);
    }
    runtime.enable_all().build()?.block_on(measure(creates, in_flight, memory))
}

async fn measure(creates: usize, in_flight: usize, memory: bool) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let options = EmbeddedOptions { memory, ..EmbeddedOptions::new(directory.path()) };
    let embedded = Embedded::start(options).await?;
    let bodies: Arc<[Bytes]> = (0..creates).map(|number| pod(&format!("pod-{number}"))).collect();
    let (started, busy) = (Instant::now(), processor_s()?);
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        clients.spawn(client(embedded.service(), next.clone(), bodies.clone()));
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    let (took, busy) = (started.elapsed().as_secs_f64(), processor_s()? - busy);
    println!("{:.0} creates/s, {:.1} µs of processor each", creates as f64 / took, busy * 1e6 / creates as f64);
    embedded.stop().await;
    Ok(())
}

async fn client(mut service: ApiService, next: Arc<AtomicUsize>, bodies: Arc<[Bytes]>) -> Result<(), String> {
    while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
        let request = Request::post("/api/v1/namespaces/default/pods")
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .header("user-agent", "creates")
            .body(Full::new(body.clone()))
            .map_err(|problem| problem.to_string())?;
        let Ok(response) = service.call(request).await;
        let status = response.status();
        let answer = response.into_body().collect().await.map_err(|problem| problem.to_string())?.to_bytes();
        if !status.is_success() {
            return Err(String::from_utf8_lossy(&answer).into_owned());
        }
    }
    Ok(())
}

/// Seconds of processor that this process has taken, in user mode and in the kernel.
fn processor_s() -> Result<f64, Box<dyn Error>> {
    const TICKS_PER_S: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = text.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1;
    let ticks: Result<Vec<u64>, _> = behind_name.split_whitespace().skip(11).take(2).map(str::parse).collect();
    Ok(ticks?.iter().sum::<u64>() as f64 / TICKS_PER_S)
}

/// The pod of `millpond bench api`.
fn pod(name: &str) -> Bytes {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "bench", "tier": "web", "pod-template-hash": "5d4f8c7b9d"}},
        "spec": {
            "containers": [{
                "name": "web", "image": "registry.example/web:1.2.3",
                "ports": [{"containerPort": 8080, "name": "http"}],
                "env": [{"name": "PORT", "value": "8080"}, {"name": "MODE", "value": "production"}],
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            }],
            "nodeSelector": {"topology.kubernetes.io/zone": "zone-a"},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}],
        },
    });
    pod.to_string().into()
}
