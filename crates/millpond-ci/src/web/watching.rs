//! A list that goes on: `/node-list?watch=true` and `/request-list?watch=true`. Each line is an event in the form of the
//! Kubernetes API, with the object of the list: what is there comes first, as `ADDED`.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use futures::stream;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::{Body, Web, now};
use crate::records::{list_nodes, list_requests};

/// The column that changes with time.
const AGE: &str = "age";

struct Watch {
    web: Web,
    nodes: bool,
    seen: BTreeMap<String, Value>,
    lines: VecDeque<String>,
    started: bool,
}

/// Nodes or requests, and then their changes.
pub(super) fn stream(web: Web, nodes: bool) -> Response<Body> {
    let watch = Watch { web, nodes, seen: BTreeMap::new(), lines: VecDeque::new(), started: false };
    let lines = stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok(Frame::data(Bytes::from(line + "\n"))), watch))
    });
    let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=UTF-8"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl Watch {
    /// The next line; `None` when the launcher ends or cannot read any more.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.started {
                self.web.changes.changed().await.ok()?;
            }
            self.started = true;
            self.web.changes.borrow_and_update();
            let source = &*self.web.source;
            let listing = if self.nodes { list_nodes(source, None, now()).await } else { list_requests(source).await };
            let rows = serde_json::to_value(listing.ok()?).ok()?;
            self.compare(rows.as_array()?);
        }
    }

    fn compare(&mut self, rows: &[Value]) {
        let id = |row: &Value| row["id"].as_str().unwrap_or_default().to_owned();
        let rows: BTreeMap<String, Value> = rows.iter().map(|row| (id(row), row.clone())).collect();
        let mut tell = |kind: &str, row: &Value| {
            self.lines.push_back(json!({"type": kind, "object": row}).to_string());
        };
        for (id, row) in &rows {
            match self.seen.get(id) {
                None => tell("ADDED", row),
                Some(before) if ageless(before) != ageless(row) => tell("MODIFIED", row),
                Some(_) => {}
            }
        }
        self.seen.iter().filter(|(id, _)| !rows.contains_key(*id)).for_each(|(_, row)| tell("DELETED", row));
        self.seen = rows;
    }
}

fn ageless(row: &Value) -> Value {
    let mut row = row.clone();
    if let Some(fields) = row.as_object_mut() {
        fields.remove(AGE);
    }
    row
}
