//! The process is killed, again and again, at random points under load. Nothing that was acknowledged is lost,
//! revisions never go back, and a watcher that resumes misses nothing and sees nothing twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use millpond_testkit::EmbeddedServer;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Kills. Each comes after a random number of acknowledged writes.
const KILLS: usize = 200;
/// Writers at the same time, each with an object of its own, so that its last word is known.
const WRITERS: usize = 8;
/// How long clients have to notice that their server is gone. A request that has no connection yet was seen to wait for
/// one for ever; it is a write without an answer then, like any other.
const NOTICE: Duration = Duration::from_secs(10);

/// What a writer knows about its object.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The acknowledged state: value and revision, or nothing.
    acknowledged: Option<(String, u64)>,
    /// A write without an answer: what the object would be then (`None`: deleted).
    pending: Option<Option<String>>,
}

#[derive(Default)]
struct Shared {
    acknowledgements: AtomicU64,
    /// Revisions of acknowledged writes.
    revisions: Mutex<Vec<u64>>,
    stop: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2e_two_hundred_kills_lose_nothing() -> Result<()> {
    let mut server = EmbeddedServer::start(Path::new(env!("CARGO_BIN_EXE_millpond")), &["--bare"])?;
    let mut random = Random(0x5eed_cafe);
    let mut known = vec![Known::default(); WRITERS];
    let shared = Arc::new(Shared::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut resume_at = configmaps(&server).await?.list(&ListParams::default()).await?.metadata.resource_version;
    for round in 0..KILLS {
        let client = server.client().await?;
        let gone = CancellationToken::new();
        let watch = follow(client.clone(), resume_at.clone().unwrap_or_default(), seen.clone());
        let watcher = tokio::spawn(gone.clone().run_until_cancelled_owned(watch));
        shared.stop.store(false, Ordering::Relaxed);
        let goal = shared.acknowledgements.load(Ordering::Relaxed) + 1 + random.below(60);
        let writers: Vec<_> = known
            .drain(..)
            .enumerate()
            .map(|(number, known)| {
                let writer = Writer { client: client.clone(), number, shared: shared.clone(), gone: gone.clone() };
                tokio::spawn(writer.write(known, random.next()))
            })
            .collect();
        while shared.acknowledgements.load(Ordering::Relaxed) < goal {
            tokio::task::yield_now().await;
        }
        server.kill()?;
        shared.stop.store(true, Ordering::Relaxed);
        let patience = tokio::spawn(async move {
            tokio::time::sleep(NOTICE).await;
            gone.cancel();
        });
        for writer in writers {
            known.push(writer.await?);
        }
        watcher.await?;
        patience.abort();
        server.restart().with_context(|| format!("restart after kill {round}"))?;
        verify(&server, &mut known, &shared).await.with_context(|| format!("after kill {round}"))?;
        let last_seen = seen.lock().await.last().map(|(revision, _): &(u64, String)| revision.to_string());
        resume_at = last_seen.or(resume_at);
    }
    finish(&server, &shared, &seen, resume_at.unwrap_or_default()).await
}

async fn configmaps(server: &EmbeddedServer) -> Result<Api<ConfigMap>> {
    Ok(Api::namespaced(server.client().await?, "default"))
}

/// Writes one object.
struct Writer {
    client: Client,
    number: usize,
    shared: Arc<Shared>,
    /// The server is gone; requests without an answer by now get none.
    gone: CancellationToken,
}

impl Writer {
    /// Creates, changes and deletes the object until the server is gone.
    async fn write(self, mut known: Known, seed: u64) -> Known {
        let Self { client, number, shared, gone } = self;
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        let name = format!("object-{number}");
        let mut random = Random(seed | 1);
        while !shared.stop.load(Ordering::Relaxed) {
            let value = random.next().to_string();
            let delete = known.acknowledged.is_some() && random.below(5) == 0;
            known.pending = Some((!delete).then(|| value.clone()));
            let object: ConfigMap =
                serde_json::from_value(json!({"metadata": {"name": name}, "data": {"value": value}}))
                    .expect("a ConfigMap");
            let answer = async {
                match (&known.acknowledged, delete) {
                    (Some(_), true) => api.delete(&name, &DeleteParams::default()).await.map(|_| None),
                    (Some(_), false) => api.replace(&name, &PostParams::default(), &object).await.map(Some),
                    (None, _) => api.create(&PostParams::default(), &object).await.map(Some),
                }
            };
            let Some(Ok(answer)) = gone.run_until_cancelled(answer).await else { return known };
            known.pending = None;
            known.acknowledged = answer.map(|object| {
                let revision = object.resource_version().and_then(|text| text.parse().ok()).expect("a revision");
                (value, revision)
            });
            if let Some((_, revision)) = &known.acknowledged {
                shared.revisions.lock().await.push(*revision);
            }
            shared.acknowledgements.fetch_add(1, Ordering::Relaxed);
        }
        known
    }
}

/// After a restart each object is as acknowledged, or as the one write without an answer left it.
async fn verify(server: &EmbeddedServer, known: &mut [Known], shared: &Shared) -> Result<()> {
    let list = configmaps(server).await?.list(&ListParams::default()).await?;
    let revision: u64 = list.metadata.resource_version.as_deref().unwrap_or_default().parse()?;
    let newest = shared.revisions.lock().await.iter().copied().max().unwrap_or(0);
    assert!(revision >= newest, "the store went back: {revision} after {newest}");
    let found: BTreeMap<String, (String, u64)> = list
        .items
        .iter()
        .map(|object| {
            let value = object.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default();
            let revision = object.resource_version().and_then(|text| text.parse().ok()).expect("a revision");
            (object.name_any(), (value, revision))
        })
        .collect();
    for (number, known) in known.iter_mut().enumerate() {
        let now = found.get(&format!("object-{number}"));
        let as_acknowledged = now == known.acknowledged.as_ref();
        let as_pending = known.pending.as_ref().is_some_and(|pending| pending.as_ref() == now.map(|(value, _)| value));
        assert!(as_acknowledged || as_pending, "object-{number}: {now:?} is neither of {known:?}");
        *known = Known { acknowledged: now.cloned(), pending: None };
    }
    Ok(())
}

/// Follows the objects from a revision on until the connection ends; notes every event.
async fn follow(client: Client, from: String, seen: Arc<Mutex<Vec<(u64, String)>>>) {
    let path = format!("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={from}");
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    let Ok(stream) = client.request_stream(request).await else { return };
    let mut lines = stream.lines();
    while let Ok(Some(line)) = lines.try_next().await {
        // The last line may be cut off by the kill: it was not received.
        let Ok(event) = serde_json::from_str::<Value>(&line) else { return };
        assert_ne!(event["type"], "ERROR", "the watch was refused: {event}");
        let text = event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let revision = text.parse().expect("a revision");
        seen.lock().await.push((revision, event["type"].as_str().unwrap_or_default().to_owned()));
    }
}

/// Reads the watch to its end and compares it with what was acknowledged.
async fn finish(
    server: &EmbeddedServer,
    shared: &Shared,
    seen: &Arc<Mutex<Vec<(u64, String)>>>,
    resume_at: String,
) -> Result<()> {
    let last = configmaps(server).await?;
    let marker: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "marker"}}))?;
    let marker = last.create(&PostParams::default(), &marker).await?;
    let end: u64 = marker.resource_version().context("a revision")?.parse()?;
    let watcher = tokio::spawn(follow(server.client().await?, resume_at, seen.clone()));
    while seen.lock().await.last().is_none_or(|(revision, _)| *revision < end) {
        tokio::task::yield_now().await;
    }
    watcher.abort();
    let seen = seen.lock().await;
    for pair in seen.windows(2) {
        assert!(pair[0].0 < pair[1].0, "out of order or twice: {pair:?}");
    }
    let revisions: std::collections::BTreeSet<u64> = seen.iter().map(|(revision, _)| *revision).collect();
    let acknowledged = shared.revisions.lock().await;
    let missed: Vec<_> = acknowledged.iter().filter(|revision| !revisions.contains(revision)).collect();
    assert!(missed.is_empty(), "the watcher missed {missed:?}");
    assert!(acknowledged.len() > KILLS, "only {} writes were acknowledged", acknowledged.len());
    Ok(())
}

/// A small seeded generator: the same kills in every run, but for the scheduler's moods.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
