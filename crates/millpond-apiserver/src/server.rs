//! The server: everything that requests share, as a tower service.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::admission::policies::Policies;
use crate::audit::AuditLog;
use crate::auth::{self, Identity, Tokens};
use crate::authz::Authorizer;
use crate::builtin;
use crate::clock::Clock;
use crate::handlers::{self, RequestLog};
use crate::http::ApiBody;
use crate::intake::Intake;
use crate::lifecycle::definitions;
use crate::metrics::Metrics;
use crate::openapi::OpenApi;
use crate::pki::Authority;
use crate::registry::Registry;
use crate::resource::Resource;
use crate::service_account::TokenSigner;
use crate::service_ip::ServiceAddresses;
use crate::store::{Store, StoredObject};

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// How long a request other than a watch may take.
    pub request_timeout: Duration,
    /// Requests of clients outside this process, other than watches, that are worked on at the same time; more are
    /// answered with 429.
    pub max_in_flight: usize,
    /// The same for clients inside this process; more wait for their turn.
    pub max_in_flight_in_process: usize,
    /// Names of the readiness gates that `/readyz` waits for besides the server itself; [`Server::pass_readiness_gate`]
    /// opens each.
    pub readiness_gates: Vec<String>,
    /// Kinds that have no effect here; clients that create objects of them get a warning.
    pub idle_kinds: Vec<IdleKind>,
    /// Host and port that `/api` names.
    pub advertised_address: String,
    /// Where to write the audit log, if anywhere.
    pub audit_log: Option<PathBuf>,
    /// Signs the tokens of service accounts; without one they end with this process.
    pub token_signer: Option<Arc<TokenSigner>>,
    /// Signs certificates for CertificateSigningRequests; without it nothing is signed.
    pub authority: Option<Arc<Authority>>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(60),
            max_in_flight: 1024,
            max_in_flight_in_process: 1024,
            readiness_gates: Vec::new(),
            idle_kinds: IdleKind::OF_THE_SERVER.to_vec(),
            advertised_address: "127.0.0.1".to_owned(),
            audit_log: None,
            token_signer: None,
            authority: None,
        }
    }
}

/// A kind whose objects are stored and change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleKind {
    /// Its API group.
    pub group: &'static str,
    /// Its name.
    pub kind: &'static str,
    /// Why nothing happens, as `kubectl` prints it after `Warning:`.
    pub warning: &'static str,
}

impl IdleKind {
    /// Kinds that have no effect on this server, whatever controllers run beside it.
    pub const OF_THE_SERVER: &[Self] = &[
        Self {
            group: "admissionregistration.k8s.io",
            kind: "ValidatingWebhookConfiguration",
            warning: "this API server calls no webhooks: the configuration is stored and has no effect",
        },
        Self {
            group: "admissionregistration.k8s.io",
            kind: "MutatingWebhookConfiguration",
            warning: "this API server calls no webhooks: the configuration is stored and has no effect",
        },
    ];
}

/// What all requests share.
pub struct Server {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) tokens: Tokens,
    pub(crate) authorizer: Authorizer,
    pub(crate) policies: Policies,
    pub(crate) token_signer: Arc<TokenSigner>,
    pub(crate) options: ServerOptions,
    pub(crate) openapi: OpenApi,
    pub(crate) addresses: ServiceAddresses,
    /// Held while something is charged to quotas.
    pub(crate) quota_turn: tokio::sync::Mutex<()>,
    /// Ends watches when the server stops.
    pub(crate) shutdown: CancellationToken,
    pub(crate) intake: Intake,
    readiness_gates: RwLock<Vec<String>>,
    metrics: Metrics,
    log_sources: RwLock<Vec<LogSource>>,
    audit: Option<AuditLog>,
}

/// Namespace and name of a pod, to its log.
type LogSource = Box<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("options", &self.options).field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl Server {
    /// A server over a store: serves the built-in kinds and the CRDs that the store holds.
    pub fn new(store: Store, clock: Clock, options: ServerOptions) -> std::io::Result<Arc<Self>> {
        let audit = options.audit_log.as_deref().map(AuditLog::open).transpose()?;
        let token_signer = match &options.token_signer {
            Some(signer) => signer.clone(),
            None => Arc::new(TokenSigner::ephemeral().map_err(std::io::Error::other)?),
        };
        let server = Arc::new(Self {
            registry: Registry::new(builtin::resources()),
            intake: Intake::new(options.max_in_flight, options.max_in_flight_in_process),
            readiness_gates: RwLock::new(options.readiness_gates.clone()),
            openapi: OpenApi::default(),
            addresses: ServiceAddresses::default(),
            quota_turn: tokio::sync::Mutex::default(),
            tokens: Tokens::default(),
            authorizer: Authorizer::new(store.clone()),
            policies: Policies::new(store.clone()),
            token_signer,
            shutdown: CancellationToken::new(),
            metrics: Metrics::default(),
            log_sources: RwLock::default(),
            audit,
            store,
            clock,
            options,
        });
        definitions::register_stored(&server);
        Ok(server)
    }

    /// The store behind this server.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The bearer tokens that this server knows.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Adds another source of metrics to `/metrics`: families in OpenMetrics text, without the line that ends it.
    pub fn add_metrics(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        self.metrics.add(Box::new(source));
    }

    /// Adds logs of pods that a part of this process plays: namespace and name of the pod, to its whole log.
    pub fn add_log_source(&self, source: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) {
        self.log_sources.write().push(Box::new(source));
    }

    /// The log of a pod that a part of this process plays.
    pub(crate) fn own_log(&self, namespace: &str, pod: &str) -> Option<String> {
        self.log_sources.read().iter().find_map(|source| source(namespace, pod))
    }

    /// Ends all watches; `/readyz` fails from now on.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
    }

    /// Opens a readiness gate.
    pub fn pass_readiness_gate(&self, name: &str) {
        self.readiness_gates.write().retain(|gate| gate != name);
    }

    /// Readiness gates that were not passed yet.
    pub(crate) fn closed_readiness_gates(&self) -> Vec<String> {
        self.readiness_gates.read().clone()
    }

    /// A service for requests of one identity, without tokens: for clients inside this process.
    pub fn service_for(self: &Arc<Self>, identity: Identity) -> ApiService {
        let caller = Caller { identity: Some(identity.authenticated()), valid_until: None, origin: Origin::InProcess };
        ApiService { server: self.clone(), caller }
    }

    /// A service for requests that bring a token.
    pub fn service(self: &Arc<Self>) -> ApiService {
        self.service_of_connection(None)
    }

    /// A service for requests of one connection, which may have an identity by its certificate.
    pub(crate) fn service_of_connection(self: &Arc<Self>, certificate: Option<&[u8]>) -> ApiService {
        ApiService { server: self.clone(), caller: Caller::of_connection(certificate) }
    }

    /// Handles the consequences of a write: CRDs change the served resources.
    pub(crate) fn after_write(self: &Arc<Self>, resource: &Resource, object: &StoredObject) {
        if &*resource.storage == definitions::COLLECTION {
            definitions::after_write(self, object);
        }
    }

    pub(crate) fn observe(&self, parts: &Parts, request_log: &RequestLog, status: StatusCode, took: Duration) {
        self.metrics.observe(request_log, status, took);
        if let Some(audit) = &self.audit {
            audit.write(self.clock.now(), parts, request_log, status, took);
        }
    }

    pub(crate) fn metrics_text(&self) -> String {
        self.metrics.render(&self.store)
    }
}

/// Where requests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client inside this process.
    InProcess,
    /// A network connection.
    Connection,
}

/// The properties of a client that are known before its request is read.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) identity: Option<Identity>,
    /// When the credentials of the connection end.
    pub(crate) valid_until: Option<Timestamp>,
    pub(crate) origin: Origin,
}

impl Caller {
    /// The client at the other end of a connection, with the certificate that it has shown.
    pub(crate) fn of_connection(certificate: Option<&[u8]>) -> Self {
        let identity = certificate.and_then(Identity::of_certificate);
        let valid_until = certificate.and_then(auth::end_of_certificate);
        Self { identity, valid_until, origin: Origin::Connection }
    }
}

/// Marks responses to requests with valid credentials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticated;

/// The API as a tower service: the same in process and behind TLS.
#[derive(Clone, Debug)]
pub struct ApiService {
    server: Arc<Server>,
    caller: Caller,
}

impl<B> tower_service::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, caller) = (self.server.clone(), self.caller.clone());
        Box::pin(async move { Ok(handlers::handle(server, request, caller).await) })
    }
}
