//! The web API of a launcher: Nodepool's GET endpoints with its keys and tables, and what it lacks: metrics, a watch, and
//! changes for clients with credentials. Everything is served below `/nodepool/api` as well.
//!
//! The listener and the authentication of clients come from the binary, which passes a listener and [`Authorize`].

mod accept;
mod metrics;
mod serve;
#[cfg(test)]
mod tests;
mod watching;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use tokio::sync::watch;

pub use metrics::families;
pub use serve::{Listener, serve};

use crate::config::Config;
use crate::model::NodeState;
use crate::records::{
    Change, Result as SourceResult, Source, SourceError, list_builds, list_labels, list_nodes, list_requests,
    list_status, list_uploads,
};
use crate::view::Listing;

/// The path that Software Factory publishes the API under.
const PREFIX: &str = "/nodepool/api";
/// How long a client may keep an answer, in seconds; Nodepool's own figure.
const MAX_AGE_S: i64 = 1;

/// A body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Whether a client with this bearer token may use a verb (`get`, `update`, `delete`) on a path; the status and the
/// sentence of a refusal otherwise.
pub type Authorize = Arc<
    dyn Fn(Option<String>, &'static str, String) -> BoxFuture<'static, Result<(), (StatusCode, String)>> + Send + Sync,
>;

/// What the API serves.
#[derive(Clone)]
pub struct Web {
    /// Nodes, requests, images.
    pub source: Arc<dyn Source>,
    /// The configuration as it is now.
    pub config: watch::Receiver<Arc<Config>>,
    /// Counts changes of the records.
    pub changes: watch::Receiver<u64>,
    /// Whether the launcher works; `/ready` asks it.
    pub ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Families of metrics that are counted elsewhere, as text.
    pub counters: Arc<dyn Fn() -> String + Send + Sync>,
    /// Authorizes changes, and, where `reads_need_token`, reads.
    pub authorize: Authorize,
    /// Whether reading needs a token: on every address beyond loopback.
    pub reads_need_token: bool,
}

impl Web {
    /// Answers a request.
    pub async fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let path = request.uri().path();
        let path = path.strip_prefix(PREFIX).filter(|rest| rest.starts_with('/')).unwrap_or(path);
        if path == "/ready" {
            return if (self.ready)() {
                text(StatusCode::OK, "OK".to_owned())
            } else {
                text(StatusCode::SERVICE_UNAVAILABLE, "the launcher is not ready\n".to_owned())
            };
        }
        let verb = match *request.method() {
            Method::GET | Method::HEAD => "get",
            Method::POST => "update",
            Method::DELETE => "delete",
            _ => return text(StatusCode::METHOD_NOT_ALLOWED, "only GET, POST and DELETE are served\n".to_owned()),
        };
        if verb != "get" || self.reads_need_token {
            let token = bearer(request.headers());
            if let Err((status, message)) = (self.authorize)(token, verb, format!("{PREFIX}{path}")).await {
                return refusal(status, message);
            }
        }
        let answered = match verb {
            "get" => self.get(path, request).await,
            _ => self.change(request.method(), path).await,
        };
        answered.unwrap_or_else(|error| failure(&error))
    }

    async fn get<B>(&self, path: &str, request: &Request<B>) -> SourceResult<Response<Body>> {
        let query = Query::of(request.uri().query().unwrap_or_default());
        if path == "/metrics" {
            return self.metrics(request.headers()).await;
        }
        if query.get("watch").is_some_and(|value| value == "true" || value == "1")
            && matches!(path, "/node-list" | "/request-list")
        {
            return Ok(watching::stream(self.clone(), path == "/node-list"));
        }
        let Some(listing) = self.listing(path, &query).await? else {
            return Ok(text(StatusCode::NOT_FOUND, format!("there is nothing at {path}\n")));
        };
        let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        Ok(if accept::wants_json(accept) {
            cached(listing.json(), "application/json; charset=UTF-8")
        } else {
            let fields = query.get("fields").filter(|fields| !fields.is_empty());
            let fields: Option<Vec<&str>> = fields.as_ref().map(|fields| fields.split(',').collect());
            cached(listing.table(fields.as_deref(), now()), "text/plain; charset=UTF-8")
        })
    }

    async fn listing(&self, path: &str, query: &Query) -> SourceResult<Option<Listing>> {
        let source = &*self.source;
        Ok(Some(match path {
            "/image-list" => list_uploads(source).await?,
            "/dib-image-list" => list_builds(source).await?,
            "/image-status" => list_status(source).await?,
            "/node-list" => {
                let id = query.get("node_id").filter(|id| !id.is_empty());
                list_nodes(source, id.as_deref(), now()).await?
            }
            "/request-list" => list_requests(source).await?,
            "/label-list" => list_labels(source).await?,
            _ => return Ok(None),
        }))
    }

    async fn metrics(&self, headers: &HeaderMap) -> SourceResult<Response<Body>> {
        let (nodes, requests) = (self.source.nodes().await?, self.source.requests().await?);
        let config = Arc::clone(&self.config.borrow());
        let mut body = families(&config, &nodes, &requests) + &(self.counters)();
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let kind = if accept.contains("application/openmetrics-text") {
            body += "# EOF\n";
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        };
        Ok(with_type(StatusCode::OK, body, kind))
    }

    async fn change(&self, method: &Method, path: &str) -> SourceResult<Response<Body>> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let source = &self.source;
        let done = match (method, &parts[..]) {
            (&Method::DELETE, ["node", id]) => source.set_node_state(id, NodeState::Deleting).await?,
            (&Method::POST, ["node", id, "hold"]) => source.set_node_state(id, NodeState::Hold).await?,
            (&Method::POST, ["image", image, verb @ ("build" | "pause" | "unpause")]) => {
                if self.config.borrow().diskimages.contains_key(*image) {
                    match *verb {
                        "build" => source.request_build(image).await?,
                        verb => source.set_paused(image, verb == "pause").await?,
                    }
                    Change::Done
                } else {
                    Change::NotFound
                }
            }
            (&Method::DELETE, ["dib-image", id]) => match id.rsplit_once('-') {
                Some((image, build)) => source.delete_build(image, build).await?,
                None => Change::NotFound,
            },
            _ => Change::NotFound,
        };
        Ok(match done {
            Change::Done => text(StatusCode::OK, "done\n".to_owned()),
            Change::NotFound => text(StatusCode::NOT_FOUND, format!("there is nothing at {path}\n")),
            Change::Refused(why) => text(StatusCode::CONFLICT, format!("{why}\n")),
        })
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1000.0
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

/// The parameters of a query, the last of each name.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(text: &str) -> Self {
        let parts = text.split('&').filter(|part| !part.is_empty());
        Self(parts.map(|part| part.split_once('=').unwrap_or((part, ""))).map(|(k, v)| (plain(k), plain(v))).collect())
    }

    fn get(&self, name: &str) -> Option<String> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }
}

/// Text without the escapes of a query.
fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (bytes[at], escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn full(body: String) -> Body {
    Full::from(body).boxed_unsync()
}

fn with_type(status: StatusCode, body: String, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

fn text(status: StatusCode, body: String) -> Response<Body> {
    with_type(status, body, "text/plain; charset=UTF-8")
}

/// A list with the headers that Nodepool sends.
fn cached(body: String, kind: &'static str) -> Response<Body> {
    let mut response = with_type(StatusCode::OK, body, kind);
    let at = |second: i64| {
        let time = Timestamp::from_second(second).unwrap_or_default().strftime("%a, %d %b %Y %H:%M:%S GMT");
        HeaderValue::from_str(&time.to_string()).unwrap_or(HeaderValue::from_static("0"))
    };
    let second = Timestamp::now().as_second();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=1, public"));
    headers.insert(header::LAST_MODIFIED, at(second));
    headers.insert(header::EXPIRES, at(second + MAX_AGE_S));
    response
}

fn refusal(status: StatusCode, message: String) -> Response<Body> {
    let mut response = text(status, message + "\n");
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The client learns that it failed. The cause goes to the log: it may name hosts.
fn failure(error: &SourceError) -> Response<Body> {
    if let SourceError::NotKept(_) = error {
        return text(StatusCode::NOT_FOUND, format!("{error}\n"));
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    tracing::warn!(%error, %cause, "cannot answer a request of the web API");
    text(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"))
}
