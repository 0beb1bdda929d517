//! The ports of `millpond controller`: `/livez`, `/readyz` and `/metrics`.
//!
//! Health and metrics have an address each, as with controller-runtime. On a loopback address both speak plain HTTP. On any
//! other address both speak TLS, with a certificate that lives as long as the process; metrics then also need a bearer
//! token of a user who may `get` the path `/metrics` ([`access`](mod@super::access)). Probes of a kubelet send no
//! credentials, and it does not verify certificates, so health answers every client, with the names of its checks and
//! nothing else.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use kube::Client;
use millpond_apiserver::pki::Pki;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::access;
use super::exposition::prometheus;
use crate::failure::{Code, Failure};

/// Limit on connections of one listener. Probes and scrapes need two or three; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 32;
/// A client that has not sent its request by then is disconnected, so that it cannot hold one of the connections.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// The longest life of a connection.
const CONNECTION_ENDS_AFTER: Duration = Duration::from_secs(300);
/// After a failed `accept` (no file descriptors left) the next one waits so long.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

const TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where a controller listens.
#[derive(Debug, Clone, Args)]
pub(crate) struct EndpointArgs {
    /// Address of `/livez` and `/readyz`; `0` opens no port, and beyond loopback it speaks TLS
    #[arg(long, value_name = "ADDRESS:PORT", env = "MILLPOND_HEALTH_BIND", default_value = "127.0.0.1:8081")]
    pub(crate) health_bind: Bind,
    /// Address of `/metrics`; `0` opens no port, and beyond loopback it needs TLS and a token that may get `/metrics`
    #[arg(long, value_name = "ADDRESS:PORT", env = "MILLPOND_METRICS_BIND", default_value = "127.0.0.1:8080")]
    pub(crate) metrics_bind: Bind,
}

/// An address to listen on, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bind {
    /// No port is opened.
    Off,
    /// This one.
    At(SocketAddr),
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "0" {
            return Ok(Self::Off);
        }
        // `:8080` means every address, as it does for Go's servers.
        if let Some(port) = text.strip_prefix(':') {
            let port = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
            return Ok(Self::At(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)));
        }
        let not_an_address = |_| "expected ADDRESS:PORT such as `127.0.0.1:8080`, or `0` for no port".to_owned();
        text.parse().map(Self::At).map_err(not_an_address)
    }
}

/// The result of one check of `/livez` or `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    /// Its name, as kube-apiserver's checks have one: lower case with hyphens.
    pub(crate) name: String,
    /// Why it fails; `None` if it passes.
    pub(crate) failure: Option<String>,
    /// A note shown if it passes.
    pub(crate) note: Option<String>,
}

impl Check {
    pub(crate) fn passes(name: &str) -> Self {
        Self { name: name.to_owned(), failure: None, note: None }
    }

    pub(crate) fn passes_with(name: &str, note: &str) -> Self {
        Self { note: Some(note.to_owned()), ..Self::passes(name) }
    }

    pub(crate) fn fails(name: &str, why: impl Into<String>) -> Self {
        Self { failure: Some(why.into()), ..Self::passes(name) }
    }
}

/// What the endpoints report.
pub(crate) trait Report: Send + Sync + 'static {
    /// Checks of `/livez`: a failed one means that the process should be restarted.
    fn live(&self) -> Vec<Check>;
    /// Checks of `/readyz`.
    fn ready(&self) -> Vec<Check>;
    /// Families in OpenMetrics text, without the line that ends an exposition.
    fn metrics(&self) -> String;
}

/// Listeners that are bound, so that a port that is taken fails the start and not a probe.
pub(crate) struct Endpoints {
    health: Option<Listener>,
    metrics: Option<Listener>,
}

struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Health,
    Metrics,
}

impl Endpoints {
    /// Binds what the arguments ask for.
    pub(crate) async fn bind(args: &EndpointArgs) -> anyhow::Result<Self> {
        Ok(Self {
            health: Listener::bind(args.health_bind, "--health-bind").await?,
            metrics: Listener::bind(args.metrics_bind, "--metrics-bind").await?,
        })
    }

    /// Where `/livez` and `/readyz` are, and where `/metrics` is, as URLs.
    pub(crate) fn urls(&self) -> (Option<String>, Option<String>) {
        let url = |listener: &Option<Listener>| listener.as_ref().and_then(Listener::url);
        (url(&self.health), url(&self.metrics))
    }

    /// Serves until the token is cancelled.
    pub(crate) async fn serve(self, report: Arc<dyn Report>, client: Client, stop: CancellationToken) {
        let serve = |listener: Option<Listener>, subject| {
            let (report, client, stop) = (Arc::clone(&report), client.clone(), stop.clone());
            async move {
                if let Some(listener) = listener {
                    listener.serve(subject, report, client, stop).await;
                }
            }
        };
        tokio::join!(serve(self.health, Subject::Health), serve(self.metrics, Subject::Metrics));
    }
}

impl Listener {
    async fn bind(bind: Bind, flag: &str) -> anyhow::Result<Option<Self>> {
        let Bind::At(address) = bind else { return Ok(None) };
        let socket = TcpListener::bind(address).await.map_err(|source| {
            let failure = Failure {
                message: format!("cannot listen on {address}"),
                code: Some(Code::Conflict).filter(|_| source.kind() == std::io::ErrorKind::AddrInUse),
                hint: Some(format!("choose another address with `{flag}`, or none with `{flag} 0`")),
            };
            anyhow::Error::new(source).context(failure)
        })?;
        let tls = if address.ip().is_loopback() { None } else { Some(acceptor(address.ip())?) };
        Ok(Some(Self { socket, tls }))
    }

    fn url(&self) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.socket.local_addr().ok().map(|address| format!("{scheme}://{address}"))
    }

    async fn serve(self, subject: Subject, report: Arc<dyn Report>, client: Client, stop: CancellationToken) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (permit, self.socket.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = stop.cancelled() => return,
                accepted = accepted => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let access = self.tls.is_some().then(|| client.clone());
            let (tls, report, stop) = (self.tls.clone(), Arc::clone(&report), stop.clone());
            tokio::spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = stop.cancelled() => {}
                    // A client that breaks off has its answer or does not want it.
                    _ = tokio::time::timeout(CONNECTION_ENDS_AFTER, connection(stream, tls, subject, report, access)) => {}
                }
            });
        }
    }
}

/// A certificate of this process's own: scrapers and kubelets do not verify it, and a restart makes another one.
fn acceptor(address: IpAddr) -> anyhow::Result<TlsAcceptor> {
    let pki = Pki::ephemeral(&["millpond-controller".to_owned()], &[address], Timestamp::now())
        .context("cannot make a certificate for the health and metrics ports")?;
    let mut config = pki.tls_config()?;
    // Clients that are offered HTTP/2 speak it, as kubelet's probes do; these ports speak HTTP/1.1 alone.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    subject: Subject,
    report: Arc<dyn Report>,
    access: Option<Client>,
) {
    match tls {
        None => exchange(stream, subject, report, access).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(REQUEST_WITHIN, tls.accept(stream)).await {
                exchange(stream, subject, report, access).await;
            }
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    subject: Subject,
    report: Arc<dyn Report>,
    access: Option<Client>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (report, access) = (Arc::clone(&report), access.clone());
        async move { Ok::<_, Infallible>(answer(&request, subject, &*report, access).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_WITHIN);
    // A connection that breaks is the client's business.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer<B>(
    request: &Request<B>,
    subject: Subject,
    report: &dyn Report,
    access: Option<Client>,
) -> Response<Full<Bytes>> {
    let verbose = request.uri().query().is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    match (subject, request.uri().path()) {
        (Subject::Health, "/livez" | "/healthz" | "/readyz") | (Subject::Metrics, "/metrics") if !is_read => {
            text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is served here\n".to_owned())
        }
        (Subject::Health, "/livez" | "/healthz") => health("livez", &report.live(), verbose),
        (Subject::Health, "/readyz") => health("readyz", &report.ready(), verbose),
        (Subject::Metrics, "/metrics") => {
            if let Some(client) = access
                && let Err(refused) = access::check(&client, request.headers(), "/metrics").await
            {
                return text(refused.status, TEXT, format!("{}\n", refused.message));
            }
            metrics(request, report)
        }
        (_, path) => text(StatusCode::NOT_FOUND, TEXT, format!("there is nothing at {path}\n")),
    }
}

/// The form of kube-apiserver's health endpoints: `ok`, or a line for each check.
fn health(endpoint: &str, checks: &[Check], verbose: bool) -> Response<Full<Bytes>> {
    let failed = checks.iter().any(|check| check.failure.is_some());
    if !failed && !verbose {
        return text(StatusCode::OK, TEXT, "ok".to_owned());
    }
    let mut body = String::new();
    for Check { name, failure, note } in checks {
        body += &match (failure, note) {
            (Some(why), _) => format!("[-]{name} failed: {why}\n"),
            (None, Some(note)) => format!("[+]{name} ok: {note}\n"),
            (None, None) => format!("[+]{name} ok\n"),
        };
    }
    body += &format!("{endpoint} check {}\n", if failed { "failed" } else { "passed" });
    text(if failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, TEXT, body)
}

/// OpenMetrics for a client that accepts it, else Prometheus' older text.
fn metrics<B>(request: &Request<B>, report: &dyn Report) -> Response<Full<Bytes>> {
    let accepts = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let body = report.metrics();
    if accepts.contains("application/openmetrics-text") {
        text(StatusCode::OK, OPENMETRICS, body + "# EOF\n")
    } else {
        text(StatusCode::OK, PROMETHEUS, prometheus(&body))
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    struct Fixed {
        live: Vec<Check>,
        ready: Vec<Check>,
    }

    impl Report for Fixed {
        fn live(&self) -> Vec<Check> {
            self.live.clone()
        }
        fn ready(&self) -> Vec<Check> {
            self.ready.clone()
        }
        fn metrics(&self) -> String {
            "# TYPE a counter\na_total 1\n".to_owned()
        }
    }

    fn fixed() -> Fixed {
        Fixed {
            live: vec![Check::passes("ping"), Check::fails("provisioner", "it ended three times")],
            ready: vec![Check::passes_with("leader-election", "another controller leads")],
        }
    }

    async fn ask(subject: Subject, method: &str, path: &str, accept: &str) -> (u16, String, String) {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept).body(()).unwrap();
        let response = answer(&request, subject, &fixed(), None).await;
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn health_names_the_checks_that_fail() {
        let (status, _, body) = ask(Subject::Health, "GET", "/livez", "").await;
        assert_eq!(status, 503);
        assert_eq!(body, "[+]ping ok\n[-]provisioner failed: it ended three times\nlivez check failed\n");
        let (status, _, body) = ask(Subject::Health, "GET", "/readyz", "").await;
        assert_eq!((status, body.as_str()), (200, "ok"));
        let (_, _, body) = ask(Subject::Health, "GET", "/readyz?verbose", "").await;
        assert_eq!(body, "[+]leader-election ok: another controller leads\nreadyz check passed\n");
    }

    #[tokio::test]
    async fn each_port_serves_its_own_paths() {
        assert_eq!(ask(Subject::Health, "GET", "/metrics", "").await.0, 404);
        assert_eq!(ask(Subject::Metrics, "GET", "/livez", "").await.0, 404);
        assert_eq!(ask(Subject::Metrics, "POST", "/metrics", "").await.0, 405);
    }

    #[tokio::test]
    async fn metrics_come_in_the_format_that_the_client_accepts() {
        let (_, kind, body) = ask(Subject::Metrics, "GET", "/metrics", "text/plain").await;
        assert_eq!((kind.as_str(), body.as_str()), (PROMETHEUS, "# TYPE a_total counter\na_total 1\n"));
        let accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        let (_, kind, body) = ask(Subject::Metrics, "GET", "/metrics", accept).await;
        assert_eq!((kind.as_str(), body.as_str()), (OPENMETRICS, "# TYPE a counter\na_total 1\n# EOF\n"));
    }

    #[test]
    fn tls_offers_the_protocol_that_is_spoken() {
        let acceptor = acceptor("10.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(acceptor.config().alpn_protocols, [b"http/1.1".to_vec()]);
    }

    #[test]
    fn an_address_is_read_as_controller_runtime_reads_it() {
        assert_eq!("0".parse(), Ok(Bind::Off));
        assert_eq!(":8080".parse(), Ok(Bind::At("0.0.0.0:8080".parse().unwrap())));
        assert_eq!("[::1]:0".parse(), Ok(Bind::At("[::1]:0".parse().unwrap())));
        assert!("localhost".parse::<Bind>().unwrap_err().contains("ADDRESS:PORT"));
        assert_eq!(":x".parse::<Bind>().unwrap_err(), "`x` is not a port");
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named_with_its_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let args = EndpointArgs { health_bind: Bind::At(address), metrics_bind: Bind::Off };
        let error = Endpoints::bind(&args).await.err().expect("the port is taken");
        let failure = error.downcast::<Failure>().unwrap();
        assert_eq!(failure.message, format!("cannot listen on {address}"));
        assert!(failure.hint.unwrap().contains("--health-bind 0"));
    }
}
