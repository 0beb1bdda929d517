//! Tracks whether a connection has requests in flight, since when it has none, and whether its client is authenticated.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower_service::Service;

use crate::http::ApiBody;
use crate::server::Authenticated;

/// What one connection is doing.
#[derive(Debug)]
pub(super) struct Activity {
    in_flight: AtomicUsize,
    /// Whether it had a request.
    used: AtomicBool,
    /// Whether it had a request with valid credentials.
    known: AtomicBool,
    idle_since: Mutex<Instant>,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            used: AtomicBool::new(false),
            known: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
        }
    }

    /// Whether a request is being answered.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Whether a request had valid credentials.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// When the last request ended, or the connection began.
    pub(super) fn idle_since(&self) -> Instant {
        *self.idle_since.lock()
    }

    /// Ends when there was no request for too long. The timer is not touched by requests: it looks again when it
    /// fires, so that a request costs no more than a counter.
    pub(super) async fn idle(&self, first_request: Duration, later: Duration) {
        tokio::time::sleep(first_request).await;
        loop {
            let now = Instant::now();
            if self.is_busy() {
                tokio::time::sleep_until(now + later).await;
                continue;
            }
            if !self.used.load(Ordering::Relaxed) {
                return;
            }
            let end = self.idle_since() + later;
            if end <= now {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }

    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.used.store(true, Ordering::Relaxed);
        InFlight(self.clone())
    }
}

/// One request, until its response is sent or dropped.
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A service that counts the requests of its connection.
#[derive(Clone)]
pub(super) struct Tracked<S> {
    inner: S,
    activity: Arc<Activity>,
}

impl<S> Tracked<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self { inner, activity }
    }
}

impl<S, B> Service<Request<B>> for Tracked<S>
where
    S: Service<Request<B>, Response = Response<ApiBody>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<TrackedBody>;
    type Error = Infallible;
    type Future = TrackedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let in_flight = Some(self.activity.begin());
        TrackedFuture { inner: self.inner.call(request), in_flight }
    }
}

/// A request that is being answered.
pub(super) struct TrackedFuture<F> {
    inner: F,
    in_flight: Option<InFlight>,
}

impl<F> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<ApiBody>, Infallible>> + Unpin,
{
    type Output = Result<Response<TrackedBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(Pin::new(&mut self.inner).poll(context));
        let in_flight = self.in_flight.take();
        if let (Some(in_flight), Some(Authenticated)) = (&in_flight, response.extensions().get()) {
            in_flight.0.known.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(response.map(|body| TrackedBody { body, _in_flight: in_flight })))
    }
}

/// A response that is being sent.
pub(super) struct TrackedBody {
    body: ApiBody,
    _in_flight: Option<InFlight>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
