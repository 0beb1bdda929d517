//! Live events: what changed, from where a stream was cut off.

use std::time::Duration;

use http_body_util::BodyExt as _;
use millpond_web::Body;
use serde_json::{Value, json};

use crate::stage::{Stage, small};

/// An open stream.
struct Stream(Body, String);

impl Stream {
    async fn open(stage: &Stage, session: &str, last: Option<&str>) -> Self {
        let bearer = format!("Bearer {session}");
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(last.map(|last| ("last-event-id", last)));
        let response = stage.response("GET", "/ui/api/v1/stream", &headers, "").await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response.into_body(), String::new())
    }

    /// The next event: its name, id and data; none at the end.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            while let Some((block, rest)) = self.1.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.1 = rest;
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                if let (Some(event), Some(id), Some(data)) = (field("event: "), field("id: "), field("data: ")) {
                    return Some((event, id, serde_json::from_str(&data).expect("events are JSON")));
                }
            }
            let frame = self.0.frame().await?.unwrap();
            self.1 +=
                std::str::from_utf8(&frame.into_data().expect("a stream has no trailers")).expect("events are text");
        }
    }

    /// The next event of a topic.
    async fn next_of(&mut self, topic: &str) -> (String, Value) {
        loop {
            let (event, id, data) = self.next().await.expect("the stream goes on");
            if event == topic {
                return (id, data);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changes_come_as_deltas_and_a_cut_stream_goes_on() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let revision = stage.get("/nodes", &session).await.json()["revision"].as_str().unwrap().to_owned();
    let mut stream = Stream::open(&stage, &session, Some(&revision)).await;
    stage.shown.show(small().pod("web-2", "cpu=500m", |pod| pod.on("a")));
    let (first, data) = stream.next_of("nodes").await;
    assert_eq!(data["put"]["a"]["pods"], 2);
    assert_eq!(data["put"]["a"]["cpu"], 750);
    assert_eq!(data["put"]["a"].get("cpuTotal"), None, "only what changed");
    drop(stream);
    // Cut off: two changes are missed.
    stage.shown.show(small().node("b", "small", |node| node.pool("general")));
    tokio::time::advance(Duration::from_secs(5)).await;
    stage.get("/nodes", &session).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    stage.shown.show(small());
    stage.get("/nodes", &session).await;
    let mut again = Stream::open(&stage, &session, Some(&first)).await;
    let (_, data) = again.next_of("nodes").await;
    assert_eq!((&data["new"][0]["name"], &data["put"]["a"]["pods"]), (&json!("b"), &json!(1)));
    let (last, data) = again.next_of("nodes").await;
    assert_eq!(data["gone"], json!(["b"]));
    // Up to date: nothing comes but what happens from now on.
    drop(again);
    let newest = stage.get("/nodes", &session).await.json()["revision"].as_str().unwrap().to_owned();
    let number = |revision: &str| revision.rsplit_once('-').unwrap().1.parse::<u64>().unwrap();
    assert!(number(&newest) >= number(&last));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_missed_too_much_fetches_everything_again() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    let revision = stage.get("/nodes", &session).await.json()["revision"].as_str().unwrap().to_owned();
    for last in ["other-7", "nonsense", &format!("{revision}9999")] {
        let mut stream = Stream::open(&stage, &session, Some(last)).await;
        assert_eq!(stream.next().await.unwrap().0, "resync", "{last}");
    }
    for round in 0..300 {
        stage.shown.show(small().pods(round % 2 + 1, "web", "cpu=10m", |pod| pod.on("a")));
        tokio::time::advance(Duration::from_secs(30)).await;
        stage.get("/nodes", &session).await;
    }
    let mut stream = Stream::open(&stage, &session, Some(&revision)).await;
    assert_eq!(stream.next().await.unwrap().0, "resync");
}

#[tokio::test(start_paused = true)]
async fn decisions_are_told_as_they_are_made() {
    use millpond_runtime::history::{Decision, DecisionKind};
    let stage = Stage::new().await;
    let session = stage.admin().await;
    stage.shown.history.record(Decision::new(DecisionKind::Drift, "test", 1, "before"));
    let revision = stage.get("/overview", &session).await.json()["revision"].as_str().unwrap().to_owned();
    let mut stream = Stream::open(&stage, &session, Some(&revision)).await;
    stage.shown.history.record(Decision::new(DecisionKind::Drift, "test", 2, "after"));
    assert_eq!(stream.next_of("decision").await.1["sentence"], "after");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_computed_while_no_page_is_open() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    stage.get("/nodes", &session).await;
    let stream = Stream::open(&stage, &session, None).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    drop(stream);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let asked = *stage.shown.asked.lock();
    for _ in 0..100 {
        stage.shown.show(small());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(*stage.shown.asked.lock(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_session() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    stage.get("/nodes", &session).await;
    let mut stream = Stream::open(&stage, &session, None).await;
    let bearer = format!("Bearer {session}");
    stage.ask("DELETE", "/ui/api/v1/session", &[("authorization", &bearer)], "").await;
    stage.shown.show(small().pod("web-2", "cpu=500m", |pod| pod.on("a")));
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_topic_is_named() {
    let stage = Stage::new().await;
    let session = stage.admin().await;
    assert!(stage.get("/stream?topics=nodes,weather", &session).await.problem().2.contains("`weather`"));
}
