//! Writes of controllers, with their bodies and with the time at which each was sent and answered.

use std::sync::Arc;

use http::{Method, Request};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

/// One write.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Null where there was none.
    pub(crate) body: Value,
    pub(crate) sent: Instant,
    /// None while the API server has not answered.
    pub(crate) answered: Option<Instant>,
}

/// The writes of controllers, in the order in which they were sent. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteLog(Arc<Mutex<Vec<Write>>>);

impl WriteLog {
    pub(crate) fn all(&self) -> Vec<Write> {
        self.0.lock().clone()
    }

    /// Adds a write; gives the request back, and the place of the write in the log.
    pub(crate) async fn add(&self, request: Request<Body>) -> (Request<Body>, usize) {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await.expect("the body is in memory");
        let mut writes = self.0.lock();
        writes.push(Write {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
            sent: Instant::now(),
            answered: None,
        });
        (Request::from_parts(parts, Body::from(bytes.to_vec())), writes.len() - 1)
    }

    /// Notes that a write was answered.
    pub(crate) fn answered(&self, place: usize) {
        self.0.lock()[place].answered = Some(Instant::now());
    }
}
