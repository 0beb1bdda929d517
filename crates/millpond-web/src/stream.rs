//! Server-sent events: deltas of the hub from a revision on. A stream pulls what it can carry; one that falls behind the
//! ring is told to fetch everything again.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::watch;

use crate::hub::{Hub, Listening, News};
use crate::respond::{Body, Problem};
use crate::rights;
use crate::session::Session;

/// A comment is sent this often, so that both ends notice a cut connection.
const PING: Duration = Duration::from_secs(15);
/// What can be listened to.
const TOPICS: [&str; 5] = ["nodes", "pending", "pools", "overview", "decision"];

struct Open {
    hub: Arc<Hub>,
    session: Arc<Session>,
    topics: BTreeSet<&'static str>,
    /// What was sent.
    number: u64,
    queue: VecDeque<String>,
    numbers: watch::Receiver<u64>,
    _listening: Listening,
}

/// Opens a stream; `last` is the revision that the reader has.
pub(crate) fn open(
    hub: &Arc<Hub>,
    session: Arc<Session>,
    topics: Option<&str>,
    last: Option<&str>,
) -> Result<Response<Body>, Problem> {
    let topics = chosen(topics)?;
    let (listening, numbers) = hub.listen();
    let mut queue = VecDeque::new();
    let number = match last {
        None => hub.last(),
        Some(revision) => hub.number(revision).unwrap_or_else(|| {
            queue.push_back(resync(hub, hub.last()));
            hub.last()
        }),
    };
    let open = Open { hub: Arc::clone(hub), session, topics, number, queue, numbers, _listening: listening };
    let chunks = stream::unfold(open, |mut open| async move {
        let text = open.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), open))
    });
    let mut response = Response::new(StreamBody::new(chunks).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn chosen(topics: Option<&str>) -> Result<BTreeSet<&'static str>, Problem> {
    let Some(topics) = topics.filter(|topics| !topics.is_empty()) else { return Ok(TOPICS.into()) };
    let known = |topic: &str| {
        let found = TOPICS.into_iter().find(|known| *known == topic);
        found.ok_or_else(|| Problem::bad_request(format!("there is no topic `{topic}`")))
    };
    topics.split(',').map(known).collect()
}

fn resync(hub: &Hub, number: u64) -> String {
    format!("event: resync\nid: {}\ndata: {{}}\n\n", hub.revision(number))
}

impl Open {
    /// The next piece; none at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if !self.session.lives() {
                return None;
            }
            if let Some(text) = self.queue.pop_front() {
                return Some(text);
            }
            self.numbers.mark_unchanged();
            self.fill();
            if !self.queue.is_empty() {
                continue;
            }
            match tokio::time::timeout(PING, self.numbers.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => {
                    // An open page is used; whether its user may still see it is asked now and then.
                    self.session.touch();
                    rights::require_view(&self.session).await.ok()?;
                    return Some(": ping\n\n".to_owned());
                }
            }
        }
    }

    fn fill(&mut self) {
        match self.hub.after(self.number) {
            News::Resync(number) => {
                self.number = number;
                self.queue.push_back(resync(&self.hub, number));
            }
            News::Deltas(deltas) => {
                for delta in deltas {
                    self.number = delta.number;
                    if self.topics.contains(delta.topic) {
                        let id = self.hub.revision(delta.number);
                        self.queue.push_back(format!("event: {}\nid: {id}\ndata: {}\n\n", delta.topic, delta.data));
                    }
                }
            }
        }
    }
}
