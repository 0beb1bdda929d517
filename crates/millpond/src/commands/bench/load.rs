//! Load on an API server: requests as bytes, so that only the server and the wire are measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use millpond_apiserver::ApiService;
use serde_json::json;
use tower::Service;

/// Where requests go.
#[derive(Clone)]
pub(crate) enum Target {
    /// The router of this process.
    InProcess(ApiService),
    /// Any API server, over its kubeconfig.
    Wire(kube::Client),
}

impl Target {
    /// Sends one request and reads the whole answer; returns its length.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<usize> {
        match self {
            Self::InProcess(service) => {
                let request = request(method, path).body(Full::new(body))?;
                let response = service.clone().call(request).await.expect("the service does not fail");
                let status = response.status();
                read(status, response.into_body(), path).await
            }
            Self::Wire(client) => {
                let request = request(method, path).body(Body::from(body.to_vec()))?;
                let response = client.send(request).await.with_context(|| format!("cannot send to {path}"))?;
                let status = response.status();
                read(status, response.into_body(), path).await
            }
        }
    }

    /// Starts a watch and counts the events that arrive until `expected` have.
    async fn watch(&self, path: &str, expected: u64, seen: Arc<AtomicU64>) -> anyhow::Result<()> {
        let mut mine = 0;
        let mut count = |piece: &[u8]| {
            let events = piece.iter().filter(|byte| **byte == b'\n').count() as u64;
            mine += events;
            seen.fetch_add(events, Ordering::Relaxed);
            mine >= expected
        };
        match self {
            Self::InProcess(service) => {
                let request = request(Method::GET, path).body(Full::new(Bytes::new()))?;
                let response = service.clone().call(request).await.expect("the service does not fail");
                let mut body = response.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    if frame.data_ref().is_some_and(|piece| count(piece)) {
                        break;
                    }
                }
            }
            Self::Wire(client) => {
                let response = client.send(request(Method::GET, path).body(Body::empty())?).await?;
                let mut body = response.into_body();
                while let Some(frame) = body.frame().await {
                    if frame?.data_ref().is_some_and(|piece| count(piece)) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .header("user-agent", "millpond-bench")
}

/// Reads an answer piece by piece and returns its length.
async fn read<B>(status: http::StatusCode, mut body: B, path: &str) -> anyhow::Result<usize>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|problem| anyhow!("cannot read the answer to {path}: {problem}"))?;
        let Some(piece) = frame.data_ref() else { continue };
        if !status.is_success() {
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&piece[..piece.len().min(300)]));
        }
        length += piece.len();
    }
    if !status.is_success() {
        bail!("{path}: {status}");
    }
    Ok(length)
}

/// A pod of about a kilobyte, as a Deployment would make it.
pub(crate) fn pod(name: &str) -> Bytes {
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

/// A node as a kubelet registers it.
pub(crate) fn node(name: &str) -> Bytes {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m5.2xlarge", "topology.kubernetes.io/zone": "zone-a",
        }},
        "spec": {"providerID": format!("sim:///{name}")},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "7800m", "memory": "30Gi", "pods": "110"},
        },
    });
    node.to_string().into()
}

/// Runs `total` requests with `in_flight` at a time and returns how many were done a second.
pub(crate) async fn rate<F>(
    total: usize,
    in_flight: usize,
    one: impl Fn(usize) -> F + Send + Sync + 'static,
) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let one = Arc::new(one);
    let started = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        let (next, one) = (next.clone(), one.clone());
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= total {
                    return Ok(());
                }
                one(number).await?;
            }
        });
    }
    while let Some(result) = workers.join_next().await {
        let result: anyhow::Result<()> = result?;
        result?;
    }
    Ok(total as f64 / started.elapsed().as_secs_f64())
}

/// How fast `watchers` watches get the events of `writes` creates; events a second over all of them.
pub(crate) async fn watch_rate(target: &Target, watchers: usize, writes: usize, run: &str) -> anyhow::Result<f64> {
    let seen = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    let path = format!("/api/v1/namespaces/{run}/pods?watch=1&resourceVersion=0");
    for _ in 0..watchers {
        let (target, seen, path) = (target.clone(), seen.clone(), path.clone());
        tasks.spawn(async move { target.watch(&path, writes as u64, seen).await });
    }
    // Watches that the server has taken in: at least all requests were sent once the others are through.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    let (writer, namespace) = (target.clone(), run.to_owned());
    rate(writes, 64, move |number| {
        let (target, path) = (writer.clone(), format!("/api/v1/namespaces/{namespace}/pods"));
        async move { target.send(Method::POST, &path, pod(&format!("w{number}"))).await.map(drop) }
    })
    .await?;
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(seen.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}
