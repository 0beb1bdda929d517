//! A client that fails: after a number of writes nothing gets through any more, as if its process had been killed; or
//! it sees nothing new, as a leader that was cut off; or its claims are on their way for long, as if it had been stopped
//! in the middle and woken up again. A pace makes pods come one after the other, as a busy controller manager makes them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use millpond_apiserver::ApiService;
use millpond_apiserver::http::ApiBody;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;
use tower_service::Service;

use crate::write_log::WriteLog;

/// When the next of a number of pods reaches the API.
#[derive(Debug)]
struct Pace {
    random: StdRng,
    next: Instant,
    /// Pods that are paced yet.
    left: usize,
    /// Of so many.
    all: usize,
}

impl Pace {
    /// How long a pod that is sent now is on its way: a moment longer than the pod before it, but some fourteen times
    /// much longer, as where a processor is shared. All of them take some two seconds.
    fn delay(&mut self) -> Duration {
        let now = Instant::now();
        if self.left == 0 {
            return Duration::ZERO;
        }
        self.left -= 1;
        let pauses = self.random.random_range(0..self.all) < 14;
        let gap = self.random.random_range(if pauses { 30_000..150_000 } else { 0..2_000_000 / self.all as u64 });
        self.next = self.next.max(now) + Duration::from_micros(gap);
        self.next - now
    }
}

/// How many writes get through yet; negative when it is blown.
#[derive(Clone, Debug)]
pub(crate) struct Fuse {
    writes: Arc<AtomicI64>,
    is_blind: Arc<AtomicBool>,
    claims_take: Duration,
    all_take: Duration,
    mutes_claims: bool,
    pace: Option<Arc<Mutex<Pace>>>,
    /// New claims that were refused.
    refused_claims: Option<Arc<AtomicI64>>,
    log: Option<WriteLog>,
}

impl Fuse {
    /// One that never blows.
    pub(crate) fn none() -> Self {
        Self::after(i64::MAX)
    }

    /// Blows with the write of that number, counted from 0; the write itself is done, its answer lost.
    pub(crate) fn after(writes: i64) -> Self {
        let writes = Arc::new(AtomicI64::new(writes));
        Self {
            writes,
            is_blind: Arc::default(),
            claims_take: Duration::ZERO,
            all_take: Duration::ZERO,
            mutes_claims: false,
            pace: None,
            refused_claims: None,
            log: None,
        }
    }

    /// Writes of claims reach the API this long after they were sent, whether or not their sender still waits.
    pub(crate) fn slow_claims(time: Duration) -> Self {
        Self { claims_take: time, ..Self::none() }
    }

    /// The API takes no new claims.
    pub(crate) fn refuses_claims() -> Self {
        Self { refused_claims: Some(Arc::default()), ..Self::none() }
    }

    /// How many new claims were refused.
    pub(crate) fn refused(&self) -> i64 {
        self.refused_claims.as_ref().map_or(0, |refused| refused.load(Ordering::SeqCst))
    }

    /// The first so many pods reach the API one after the other, as the seed has it.
    pub(crate) fn paced_pods(pods: usize, seed: u64) -> Self {
        let pace = Pace { random: StdRng::seed_from_u64(seed), next: Instant::now(), left: pods, all: pods };
        Self { pace: Some(Arc::new(Mutex::new(pace))), ..Self::none() }
    }

    /// Every request reaches the API so long after it was sent.
    pub(crate) fn slow(time: Duration) -> Self {
        Self { all_take: time, ..Self::none() }
    }

    /// Claims that are there are never changed: the request is on its way for ever.
    pub(crate) fn mutes_claims() -> Self {
        Self { mutes_claims: true, ..Self::none() }
    }

    /// Keeps a log of all writes.
    pub(crate) fn with_log(self) -> Self {
        Self { log: Some(WriteLog::default()), ..self }
    }

    /// The log of [`Self::with_log`].
    pub(crate) fn log(&self) -> WriteLog {
        self.log.clone().expect("a fuse with a log")
    }

    pub(crate) fn is_blown(&self) -> bool {
        self.writes.load(Ordering::SeqCst) < 0
    }

    pub(crate) fn blow(&self) {
        self.writes.store(-1, Ordering::SeqCst);
    }

    /// From now on no watch tells anything new; what is asked or written goes through.
    pub(crate) fn blind(&self) {
        self.is_blind.store(true, Ordering::SeqCst);
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
    type Response = Response<Curtain>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // Events are news for people: their number differs from run to run.
        let writes = request.method() != Method::GET && !request.uri().path().contains("/events");
        let fuse = &self.fuse.writes;
        let left = if writes { fuse.fetch_sub(1, Ordering::SeqCst) } else { fuse.load(Ordering::SeqCst) };
        let blown = left < 0;
        let last = writes && left == 0;
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let is_blind = watches.then(|| Arc::clone(&self.fuse.is_blind));
        let new_claim = request.method() == Method::POST && request.uri().path().ends_with("/nodeclaims");
        let new_pod = request.method() == Method::POST && request.uri().path().ends_with("/pods");
        let delay = match &self.fuse.pace {
            Some(pace) if new_pod => pace.lock().delay(),
            _ if new_claim => self.fuse.claims_take,
            _ => self.fuse.all_take,
        };
        if let Some(refused) = self.fuse.refused_claims.as_ref().filter(|_| new_claim) {
            refused.fetch_add(1, Ordering::SeqCst);
            *request.uri_mut() = http::Uri::from_static("/apis/karpenter.sh/v1/refused");
        }
        let changes_claim = request.method() == Method::PATCH && request.uri().path().contains("/nodeclaims/");
        let is_muted = self.fuse.mutes_claims && changes_claim;
        let mut service = self.service.clone();
        let log = self.fuse.log.clone().filter(|_| writes && !blown && !is_muted);
        let answer = async move {
            let (request, logged) = match log {
                Some(log) => {
                    let (request, place) = log.add(request).await;
                    (request, Some((log, place)))
                }
                None => (request, None),
            };
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let answer = service.call(request).await;
            if let Some((log, place)) = logged {
                log.answered(place);
            }
            answer
        };
        // A request that is under way arrives, even if its sender no longer waits for the answer.
        let answer: Pin<Box<dyn Future<Output = _> + Send>> = if delay.is_zero() {
            Box::pin(answer)
        } else {
            let sent = tokio::spawn(answer);
            Box::pin(async move { sent.await.expect("the server answers") })
        };
        Box::pin(async move {
            if blown || is_muted {
                return std::future::pending().await;
            }
            let answer = answer.await.map(|answer| answer.map(|body| Curtain { body, is_blind }));
            if last { std::future::pending().await } else { answer }
        })
    }
}

/// A body that is hidden from who is blind.
pub(crate) struct Curtain {
    body: ApiBody,
    is_blind: Option<Arc<AtomicBool>>,
}

impl http_body::Body for Curtain {
    type Data = <ApiBody as http_body::Body>::Data;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
        let seen = Pin::new(&mut self.body).poll_frame(context);
        match &self.is_blind {
            Some(is_blind) if is_blind.load(Ordering::SeqCst) => Poll::Pending,
            _ => seen,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
