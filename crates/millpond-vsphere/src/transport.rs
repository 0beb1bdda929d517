//! One SOAP request over HTTP. Tests replace [`Transport`].

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE, USER_AGENT};
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::error::{Error, Result};
use crate::settings::{Endpoint, Settings};
use crate::tls;

/// The largest answer that is read. A page of 500 virtual machines with all their devices stays below 20 MB.
const LARGEST_ANSWER: usize = 256 << 20;
/// The cookie that names a session.
const SESSION_COOKIE: &str = "vmware_soap_session";
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A SOAP request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method, for messages.
    pub method: &'static str,
    /// The version of the API: `urn:vim25/8.0.2.0`.
    pub action: String,
    /// The envelope.
    pub body: String,
    /// The session, if there is one.
    pub cookie: Option<String>,
    /// How long to wait for the answer.
    pub timeout: Duration,
}

/// The answer to a request, faults included.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status: 200, or 500 for faults.
    pub status: u16,
    /// The envelope.
    pub body: String,
    /// The session cookie, if the server set one.
    pub cookie: Option<String>,
}

/// Carries requests to one vCenter.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and waits for its answer.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer>>;
}

/// HTTP/1.1 with connections that are kept.
pub struct Https {
    endpoint: Endpoint,
    client: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Https {
    /// A carrier to that vCenter; connects with the first request.
    pub fn new(settings: &Settings) -> Result<Self, tls::TlsError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(&settings.trust)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { endpoint: settings.endpoint.clone(), client })
    }

    async fn exchange(&self, request: Request) -> Result<Answer> {
        let malformed = |problem: String| Error::Malformed { method: request.method, problem };
        let mut http = http::Request::builder()
            .method(Method::POST)
            .uri(self.endpoint.url())
            .header(CONTENT_TYPE, "text/xml; charset=utf-8")
            .header(USER_AGENT, concat!("millpond/", env!("CARGO_PKG_VERSION")))
            .header("SOAPAction", &request.action);
        if let Some(cookie) = &request.cookie {
            http = http.header(COOKIE, format!("{SESSION_COOKIE}={cookie}"));
        }
        let http = http.body(Full::from(request.body)).map_err(|error| malformed(error.to_string()))?;
        let answer = self.client.request(http).await.map_err(|error| self.unreachable(error.into()))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER).collect().await.map_err(|error| self.unreachable(error))?;
        let body = String::from_utf8(body.to_bytes().into()).map_err(|error| malformed(error.to_string()))?;
        Ok(Answer { status: head.status.as_u16(), cookie: session_cookie(&head.headers), body })
    }

    fn unreachable(&self, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
        let address = self.endpoint.address();
        match certificate_problem(&*source) {
            Some(problem) => Error::Certificate { address, problem },
            None => Error::Unreachable { address, source },
        }
    }
}

impl Transport for Https {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer>> {
        async move {
            let (method, timeout) = (request.method, request.timeout);
            match tokio::time::timeout(timeout, self.exchange(request)).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::Timeout { address: self.endpoint.address(), method, seconds: timeout.as_secs() }),
            }
        }
        .boxed()
    }
}

fn session_cookie(headers: &HeaderMap) -> Option<String> {
    headers.get_all(SET_COOKIE).iter().find_map(|header| {
        let (name, value) = header.to_str().ok()?.split(';').next()?.split_once('=')?;
        (name.trim() == SESSION_COOKIE).then(|| value.trim().to_owned())
    })
}

/// The certificate error of rustls within an error of HTTP. An `io::Error` shows what it wraps by `get_ref` only, and
/// connectors wrap one in another.
fn certificate_problem(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    match error.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidCertificate(problem)) => return Some(problem.to_string()),
        Some(problem @ rustls::Error::NoCertificatesPresented) => return Some(problem.to_string()),
        _ => {}
    }
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let wrapped = wrapped.and_then(|wrapped| certificate_problem(wrapped));
    wrapped.or_else(|| error.source().and_then(certificate_problem))
}
