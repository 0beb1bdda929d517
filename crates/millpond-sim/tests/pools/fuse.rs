//! A client that dies: after a number of writes nothing gets through any more, as if its process had been killed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::Body;
use millpond_apiserver::ApiService;
use millpond_apiserver::http::ApiBody;
use tower_service::Service;

/// How many writes get through yet; negative when it is blown.
#[derive(Clone, Debug)]
pub(crate) struct Fuse(Arc<AtomicI64>);

impl Fuse {
    /// One that never blows.
    pub(crate) fn none() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MAX)))
    }

    /// Blows with the write of that number, counted from 0; the write itself is done, its answer lost.
    pub(crate) fn after(writes: i64) -> Self {
        Self(Arc::new(AtomicI64::new(writes)))
    }

    pub(crate) fn is_blown(&self) -> bool {
        self.0.load(Ordering::SeqCst) < 0
    }

    pub(crate) fn blow(&self) {
        self.0.store(-1, Ordering::SeqCst);
    }
}

/// The API behind a fuse.
#[derive(Clone)]
pub(crate) struct Fused {
    service: ApiService,
    fuse: Fuse,
}

impl Fused {
    pub(crate) fn new(service: ApiService, fuse: Fuse) -> Self {
        Self { service, fuse }
    }
}

impl Service<Request<Body>> for Fused {
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Events are news for people: their number differs from run to run.
        let writes = request.method() != Method::GET && !request.uri().path().contains("/events");
        let left = if writes { self.fuse.0.fetch_sub(1, Ordering::SeqCst) } else { self.fuse.0.load(Ordering::SeqCst) };
        let blown = left < 0;
        let last = writes && left == 0;
        let answer = self.service.call(request);
        Box::pin(async move {
            if blown {
                return std::future::pending().await;
            }
            let answer = answer.await;
            if last { std::future::pending().await } else { answer }
        })
    }
}
