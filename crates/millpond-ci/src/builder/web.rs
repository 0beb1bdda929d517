//! Build logs over HTTP, for reading only: `/nodepool/builds/` lists them, `/nodepool/builds/NAME.log` shows one,
//! `?follow=true` goes on until its build ends; `/metrics` has metrics. On loopback; what publishes them stands before it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{Method, Request, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::logs::Logs;

/// Where logs are, as Software Factory publishes them.
pub const PATH: &str = "/nodepool/builds/";
/// Where metrics are.
const METRICS: &str = "/metrics";
/// Limit on concurrent connections; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 64;
/// A client that has not sent its request by then is disconnected.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a log that are sent at a time.
const CHUNK: usize = 64 << 10;
/// How often a log that grows is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long a log that does not grow is followed: longer than any build may be silent.
const SILENCE: Duration = Duration::from_hours(8);

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;

/// What is served, as it is at the time.
#[derive(Clone)]
pub struct Pages {
    /// Build logs.
    pub logs: Arc<dyn Fn() -> Logs + Send + Sync>,
    /// Metrics as text.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
}

/// Serves these pages until the token is cancelled.
pub async fn serve(listener: TcpListener, pages: Pages, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let (pages, stop) = (pages.clone(), stop.clone());
        tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                () = stop.cancelled_owned() => {}
                () = exchange(stream, pages) => {}
            }
        });
    }
}

async fn exchange(stream: TcpStream, pages: Pages) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answered = match request.uri().path() {
            METRICS => text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", &(pages.metrics)()),
            _ => answer(&(pages.logs)(), request.method(), request.uri()),
        };
        std::future::ready(Ok::<_, Infallible>(answered))
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_WITHIN);
    // A connection that breaks is the client's business.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

fn answer(logs: &Logs, method: &Method, uri: &http::Uri) -> Response<Body> {
    if method != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
    }
    let Some(name) = uri.path().strip_prefix(PATH) else {
        if uri.path() == PATH.trim_end_matches('/') {
            let mut moved = text(StatusCode::FOUND, "text/plain", "");
            moved.headers_mut().insert(LOCATION, http::HeaderValue::from_static(PATH));
            return moved;
        }
        return text(StatusCode::NOT_FOUND, "text/plain", "not found\n");
    };
    let query = uri.query().unwrap_or_default();
    if name.is_empty() {
        return list(logs, query.split('&').any(|part| part == "output=json"));
    }
    let Ok(file) = logs.open(name) else { return text(StatusCode::NOT_FOUND, "text/plain", "not found\n") };
    let follows = query.split('&').any(|part| matches!(part, "follow" | "follow=true"));
    let mut shown = Response::new(StreamBody::new(contents(tokio::fs::File::from_std(file), follows)));
    shown.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    shown
}

fn list(logs: &Logs, as_json: bool) -> Response<Body> {
    let files = logs.list().unwrap_or_default();
    if as_json {
        let entry = |log: &super::logs::LogFile| {
            let modified = log.modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
            json!({"name": log.name, "size": log.size, "modified": modified})
        };
        let entries: Vec<_> = files.iter().map(entry).collect();
        return text(StatusCode::OK, "application/json", &json!(entries).to_string());
    }
    let line = |log: &super::logs::LogFile| {
        let name = escape(&log.name);
        format!("<li><a href=\"{name}\">{name}</a> {} bytes</li>\n", log.size)
    };
    let lines: String = files.iter().map(line).collect();
    let page = format!("<!doctype html>\n<title>Build logs</title>\n<h1>Build logs</h1>\n<ul>\n{lines}</ul>\n");
    text(StatusCode::OK, "text/html; charset=utf-8", &page)
}

/// Names of logs have no other letters that mean something in HTML; those in addresses are percent signs and questions.
fn escape(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn text(status: StatusCode, kind: &'static str, body: &str) -> Response<Body> {
    let frame = Ok(Frame::data(Bytes::from(body.to_owned())));
    let mut response = Response::new(StreamBody::new(futures::stream::iter([frame]).boxed()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// A log from its beginning; with `follows` until the line that every build ends with.
fn contents(file: tokio::fs::File, follows: bool) -> BoxStream<'static, Result<Frame<Bytes>, std::io::Error>> {
    let state = (file, String::new(), Duration::ZERO);
    let chunks = futures::stream::try_unfold(state, move |(mut file, mut last, mut silent)| async move {
        loop {
            let mut chunk = vec![0; CHUNK];
            let count = file.read(&mut chunk).await?;
            chunk.truncate(count);
            if count > 0 {
                last.push_str(&String::from_utf8_lossy(&chunk));
                // The last lines are enough to see the end.
                let from = last.len().saturating_sub(64);
                let from = (from..=last.len()).find(|at| last.is_char_boundary(*at)).unwrap_or(last.len());
                last.drain(..from);
                return Ok(Some((Frame::data(Bytes::from(chunk)), (file, last, Duration::ZERO))));
            }
            if !follows || ended(&last) || silent >= SILENCE {
                return Ok(None);
            }
            tokio::time::sleep(LOOK).await;
            silent += LOOK;
        }
    });
    chunks.boxed()
}

fn ended(last: &str) -> bool {
    let line = last.strip_suffix('\n').and_then(|text| text.rsplit('\n').next());
    line.and_then(|line| line.strip_prefix("Exit code: ")).is_some_and(|code| code.parse::<i32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(logs: &Logs, path: &str) -> (u16, String) {
        let response = answer(logs, &Method::GET, &path.parse().unwrap());
        let status = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn logs_are_listed_shown_and_followed() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs { dir: folder.path().to_owned(), retention: -1 };
        let path = logs.path("fedora", "1");
        std::fs::write(&path, "begun\n").unwrap();
        assert_eq!(get(&logs, "/nodepool/builds/fedora-1.log").await, (200, "begun\n".to_owned()));
        assert!(get(&logs, "/nodepool/builds/").await.1.contains("<a href=\"fedora-1.log\">"));
        assert!(get(&logs, "/nodepool/builds/?output=json").await.1.contains(r#""name":"fedora-1.log""#));
        for path in ["/nodepool/builds/none.log", "/nodepool/builds/../x.log", "/etc/passwd"] {
            assert_eq!(get(&logs, path).await.0, 404, "{path}");
        }
        let more = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            std::fs::write(&path, "begun\nmore\nExit code: 0\n").unwrap();
        };
        let (followed, ()) = tokio::join!(get(&logs, "/nodepool/builds/fedora-1.log?follow=true"), more);
        assert_eq!(followed.1, "begun\nmore\nExit code: 0\n");
    }

    #[test]
    fn ends_of_logs() {
        for (text, is_end) in
            [("x\nExit code: 0\n", true), ("Exit code: -9\n", true), ("Exit code: 0", false), ("Exit code: x\n", false)]
        {
            assert_eq!(ended(text), is_end, "{text:?}");
        }
    }
}
