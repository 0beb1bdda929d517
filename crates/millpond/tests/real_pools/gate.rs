//! A gate before the API server: it counts what controllers write, and shuts with a write of their choosing.
//!
//! The write itself is done and its answer lost, as if the process had been killed in between. Nothing gets through a
//! gate that is shut, until it is opened for those who come next.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Who is behind the gate.
#[derive(Default)]
struct Visit {
    /// Which one this is: what those before it have under way gets no answer.
    number: usize,
    /// How many writes get through yet, if they are counted.
    left: Option<usize>,
}

/// The gate. It ends with the runtime that it was opened on.
pub(crate) struct Gate {
    kubeconfig: PathBuf,
    visit: Arc<Mutex<Visit>>,
    seen: watch::Sender<Seen>,
    requests: Arc<Mutex<Requests>>,
}

/// The requests of the controllers, as RBAC sees them.
#[derive(Default)]
struct Requests {
    made: BTreeSet<Right>,
    forbidden: BTreeSet<String>,
}

/// What one request needs: the API group, the resource with its subresource, the verb.
pub(crate) type Right = (String, String, String);

/// What the gate has seen.
#[derive(Default, Clone, Copy)]
struct Seen {
    writes: usize,
    /// How many different rights requests have needed.
    rights: usize,
    is_shut: bool,
}

impl Gate {
    /// A gate before the server of a client; controllers find it by a kubeconfig in that folder.
    pub(crate) async fn new(client: Client, folder: &Path) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen on loopback")?;
        let address = listener.local_addr()?;
        let kubeconfig = folder.join("gate.kubeconfig");
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "gate",
            "clusters": [{"name": "gate", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "gate", "user": {}}],
            "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "gate"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).context("write a kubeconfig")?;
        let seen = watch::channel(Seen::default()).0;
        let gate = Self { kubeconfig, visit: Arc::default(), seen, requests: Arc::default() };
        let guard = Guard {
            client,
            visit: Arc::clone(&gate.visit),
            seen: gate.seen.clone(),
            requests: Arc::clone(&gate.requests),
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let guard = guard.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let guard = guard.clone();
                        async move { Ok::<_, Infallible>(guard.pass(request).await) }
                    });
                    // Who was killed says no good-bye.
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(gate)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The rights that requests have needed so far.
    pub(crate) fn rights_used(&self) -> BTreeSet<Right> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).made.clone()
    }

    /// Waits until requests have needed these rights, or the time is up: that is an error.
    pub(crate) async fn until_used(&self, wanted: &[(&str, &str, &str)], time: Duration) -> Result<()> {
        let mut seen = self.seen.subscribe();
        let missing = || -> Vec<Right> {
            let used = self.rights_used();
            let wanted = wanted
                .iter()
                .map(|(group, resource, verb)| ((*group).to_owned(), (*resource).to_owned(), (*verb).to_owned()));
            wanted.filter(|right| !used.contains(right)).collect()
        };
        let all = async { while !missing().is_empty() && seen.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(time, all).await;
        ensure!(missing().is_empty(), "no request has needed {:?}", missing());
        Ok(())
    }

    /// Fails if the API server has answered 403.
    pub(crate) fn ensure_nothing_was_forbidden(&self) -> Result<()> {
        let forbidden = &self.requests.lock().unwrap_or_else(PoisonError::into_inner).forbidden;
        ensure!(forbidden.is_empty(), "`millpond install rbac` lacks rules: {forbidden:?}");
        Ok(())
    }

    /// Opens for others, who may write so often, or without an end.
    pub(crate) fn open(&self, writes: Option<usize>) {
        let mut visit = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        *visit = Visit { number: visit.number + 1, left: writes };
        self.seen.send_modify(|seen| seen.is_shut = false);
    }

    /// Ends when it has shut.
    pub(crate) async fn shut(&self) {
        // The sender is here: this does not fail.
        let _ = self.seen.subscribe().wait_for(|seen| seen.is_shut).await;
    }

    /// Waits until there were no writes for this long.
    pub(crate) async fn until_quiet_for(&self, time: Duration) {
        let mut seen = self.seen.subscribe();
        let mut known = seen.borrow_and_update().writes;
        while let Ok(more) = tokio::time::timeout(time, seen.wait_for(|seen| seen.writes != known)).await {
            known = more.map_or(known, |seen| seen.writes);
        }
    }
}

/// What RBAC asks of a request; `None` for paths that are no resource.
fn right_of(request: &Request<Incoming>) -> Option<Right> {
    let segments: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let (group, rest) = match segments.as_slice() {
        ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    // `namespaces/NAME/RESOURCE` names a resource in a namespace, `namespaces/NAME` the namespace.
    let rest = match rest {
        ["namespaces", _, inside @ ..] if !inside.is_empty() => inside,
        other => other,
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, None, None),
        [resource, name] => (*resource, Some(name), None),
        [resource, name, subresource] => (*resource, Some(name), Some(*subresource)),
        _ => return None,
    };
    let watches = request.uri().query().is_some_and(|query| query.split('&').any(|part| part.starts_with("watch=t")));
    let verb = match (request.method().as_str(), name) {
        ("GET", _) if watches => "watch",
        ("GET", None) => "list",
        ("GET", Some(_)) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", _) => "delete",
        _ => return None,
    };
    let resource = subresource.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
    Some((group.to_owned(), resource, verb.to_owned()))
}

/// Stands at the gate.
#[derive(Clone)]
struct Guard {
    client: Client,
    visit: Arc<Mutex<Visit>>,
    seen: watch::Sender<Seen>,
    requests: Arc<Mutex<Requests>>,
}

impl Guard {
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        // Events are news for people: their number differs from run to run.
        let writes = request.method() != Method::GET && !request.uri().path().contains("/events");
        let Some((number, is_last)) = self.enter(writes) else { return std::future::pending().await };
        let (right, request_line) = (right_of(&request), format!("{} {}", request.method(), request.uri()));
        let answer = self.forward(request).await;
        {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            if answer.status() == StatusCode::FORBIDDEN {
                requests.forbidden.insert(request_line);
            }
            requests.made.extend(right);
            let rights = requests.made.len();
            self.seen.send_if_modified(|seen| std::mem::replace(&mut seen.rights, rights) != rights);
        }
        if is_last {
            self.seen.send_modify(|seen| seen.is_shut = true);
        }
        let visit = || self.visit.lock().unwrap_or_else(PoisonError::into_inner).number;
        if is_last || visit() != number { std::future::pending().await } else { answer }
    }

    /// Which visit this belongs to, and whether it is the last write of it; `None` if it is shut.
    fn enter(&self, writes: bool) -> Option<(usize, bool)> {
        let mut visit = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        if visit.left == Some(0) {
            return None;
        }
        if writes {
            visit.left = visit.left.map(|left| left - 1);
            self.seen.send_modify(|seen| seen.writes += 1);
        }
        Some((visit.number, writes && visit.left == Some(0)))
    }

    async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        parts.version = http::Version::default();
        parts.headers.remove(HOST);
        parts.headers.remove(CONNECTION);
        let answer = match body.collect().await {
            Ok(body) => self.client.send(Request::from_parts(parts, Body::from(body.to_bytes().to_vec()))).await,
            // The client is gone.
            Err(_) => return std::future::pending().await,
        };
        match answer {
            Ok(mut answer) => {
                answer.headers_mut().remove(TRANSFER_ENCODING);
                answer.headers_mut().remove(CONNECTION);
                *answer.version_mut() = http::Version::default();
                answer
            }
            Err(error) => {
                let mut answer = Response::new(Body::from(error.to_string().into_bytes()));
                *answer.status_mut() = StatusCode::BAD_GATEWAY;
                answer
            }
        }
    }
}
