//! Requests with a time limit for the answer.
//!
//! A controller's worker waits for the answer to its write. A server that was killed, or a network that drops packets,
//! may leave a request without an answer and without an error; given up, it is tried again like any other that failed.

use std::task::{self, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Body as HttpBody;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use tower::{BoxError, Service};

/// Time limit of one response; kube-apiserver itself ends most requests after a minute.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// A service whose responses are complete within a time, or fail. Of a watch, only the beginning is limited.
pub(crate) struct RequestTimeout<S> {
    inner: S,
    within: Duration,
}

impl<S> RequestTimeout<S> {
    pub(crate) fn new(inner: S, within: Duration) -> Self {
        Self { inner, within }
    }
}

impl<S, B> Service<Request<Body>> for RequestTimeout<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (goes_on, within) = (is_watch(request.uri()), self.within);
        let answer = self.inner.call(request);
        let whole = async move {
            let (parts, body) = answer.await?.into_parts();
            let body = body.map_err(Into::into);
            let body = if goes_on {
                body.boxed_unsync()
            } else {
                Full::new(body.collect().await?.to_bytes()).map_err(|never| match never {}).boxed_unsync()
            };
            Ok(Response::from_parts(parts, body))
        };
        Box::pin(async move {
            let late = |_| -> BoxError { format!("no answer within {} s", within.as_secs()).into() };
            tokio::time::timeout(within, whole).await.map_err(late)?
        })
    }
}

fn is_watch(uri: &http::Uri) -> bool {
    let mut settings = uri.query().unwrap_or_default().split('&');
    settings.any(|setting| matches!(setting, "watch=true" | "watch=1" | "watch"))
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::{ClientBuilder, DynBody};
    use kube::{Api, Client};
    use std::future::pending;

    use super::*;

    const ANSWER: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#;

    /// Answers `GET …/a`, begins to answer `…/half` and whatever is watched, and leaves all else without an answer.
    fn client() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let path = request.uri().to_string();
            let begun = || {
                let line = format!("{{\"type\":\"ADDED\",\"object\":{ANSWER}}}\n");
                let first = futures::stream::once(async { Ok(http_body::Frame::data(Bytes::from(line))) });
                StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()))
            };
            let body: Box<DynBody> = match path.as_str() {
                path if path.ends_with("/a") => {
                    Box::new(Full::new(Bytes::from(ANSWER)).map_err(|never| match never {}))
                }
                path if path.ends_with("/half") || path.contains("watch=true") => {
                    Box::new(BodyExt::boxed_unsync(begun()))
                }
                _ => pending().await,
            };
            Ok::<_, BoxError>(Response::new(body))
        });
        ClientBuilder::new(RequestTimeout::new(service, ANSWERED_WITHIN), "default").build()
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_an_error() {
        let pods: Api<Pod> = Api::default_namespaced(client());
        assert_eq!(pods.get("a").await.unwrap().metadata.name.as_deref(), Some("a"));
        for name in ["lost", "half"] {
            let began = tokio::time::Instant::now();
            let error = pods.get(name).await.unwrap_err();
            assert_eq!(began.elapsed().as_secs(), 30, "{name}");
            assert!(format!("{error:?}").contains("no answer within 30 s"), "{error:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on() {
        use futures::{FutureExt, StreamExt};
        let pods: Api<Pod> = Api::default_namespaced(client());
        let events = pods.watch(&kube::api::WatchParams::default(), "0").await.unwrap();
        let mut events = Box::pin(events);
        assert!(matches!(events.next().await, Some(Ok(kube::api::WatchEvent::Added(_)))));
        tokio::time::advance(Duration::from_mins(4)).await;
        assert!(events.next().now_or_never().is_none(), "it neither ended nor failed");
    }
}
