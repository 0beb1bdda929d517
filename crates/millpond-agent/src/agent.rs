//! The agent as a whole: registers its host, keeps its Lease, watches its ByoHost, applies and undoes plans.
//!
//! ```text
//!   credentials ◀─ registration ◀─ discovery ◀─ token
//!        │
//!        ├─▶ heartbeat ─▶ Lease
//!        ├─▶ watch ──▶ ByoHost ─┐
//!        │                      ├─▶ decide ─▶ worker (executor on a thread of its own) ─▶ journal
//!        └─▶ report ◀───────────┴── progress ◀───────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use millpond_api::byoh::{ByoHost, HostFacts};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::credentials::{Credentials, CredentialsError, Identity, Key, StateDirectory, USER};
use crate::discovery::{CaHash, DiscoveryError};
use crate::executor::{Executor, ExecutorError};
use crate::heartbeat::{Current, Heartbeat};
use crate::registration::{self, RegistrationError, Requestor};
use crate::session::{Session, SessionError};
use crate::{device_plugin, discovery, facts, work};

pub(crate) mod watching;

/// Time between two attempts to reach a server.
const RETRY: Duration = Duration::from_secs(3);
/// Attempts to reach a server before there are credentials: five minutes, as `kubeadm join` has it.
const ATTEMPTS: u32 = 100;
/// Attempts to create the ByoHost; the roles of a new host come with its certificate.
const CREATE_ATTEMPTS: u32 = 20;
/// Time between two looks at the age of the certificate.
const LOOK_AT_CERTIFICATE: Duration = Duration::from_secs(60);

/// Options of the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to register, where there are no credentials yet.
    pub entry: Option<Entry>,
    /// Namespace of the ByoHost.
    pub namespace: String,
    /// Labels of the ByoHost at its first registration.
    pub labels: BTreeMap<String, String>,
    /// Kubernetes is on the host already: installation scripts are not run.
    pub skip_installation: bool,
    /// GPUs are offered to kubelet, unless a vendor's device plugin is there.
    pub device_plugin: bool,
    /// Where the host's files are: `/`, except in tests.
    pub root: PathBuf,
    /// Where credentials and the journal are.
    pub state: PathBuf,
    /// Name of the host, of its ByoHost and of its Node.
    pub name: String,
    /// Version of the agent.
    pub version: String,
}

/// The means of the first registration.
#[derive(Clone)]
pub enum Entry {
    /// A one-time token, and the hash of the CA of the server that it is for.
    Token {
        /// Address of the server.
        server: String,
        /// `ID.SECRET`.
        token: String,
        /// Hash of the CA's public key.
        ca: CaHash,
    },
    /// A kubeconfig with a token.
    Kubeconfig(PathBuf),
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token { server, ca, .. } => {
                f.debug_struct("Token").field("server", server).field("ca", ca).finish_non_exhaustive()
            }
            Self::Kubeconfig(path) => f.debug_tuple("Kubeconfig").field(path).finish(),
        }
    }
}

/// Why the agent ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The state directory cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The server's CA is not the one that was named.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// No certificate was issued.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The ByoHost cannot be read or made.
    #[error("cannot register the host `{name}`: {source}")]
    Host {
        /// Name of the host.
        name: String,
        /// Why.
        source: SessionError,
    },
    /// The API server knows no hosts.
    #[error("the cluster has no kind ByoHost, or no namespace `{0}`")]
    NoKind(String),
    /// There is neither a token nor a certificate.
    #[error("the host is not registered, and neither a token nor a bootstrap kubeconfig was given")]
    NoEntry,
    /// The certificate's time is over.
    #[error("the certificate in `{}` has expired (at {at})", path.display())]
    Expired {
        /// The kubeconfig.
        path: PathBuf,
        /// When.
        at: Timestamp,
    },
    /// The state directory was copied from another machine.
    #[error(
        "`{}` belongs to the machine {registered}, and this is {present}: it is a copy of that machine", state.display()
    )]
    Copy {
        /// The state directory.
        state: PathBuf,
        /// Machine that registered.
        registered: String,
        /// Machine that this is.
        present: String,
    },
    /// The state directory is that of another host.
    #[error("`{}` belongs to the host `{registered}`, not to `{name}`", state.display())]
    OtherName {
        /// The state directory.
        state: PathBuf,
        /// Name that was registered.
        registered: String,
        /// Name that was given.
        name: String,
    },
    /// The token is no `ID.SECRET`.
    #[error("the token has not the form ID.SECRET")]
    Token,
    /// A file could not be read.
    #[error("cannot read `{}`: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
}

impl AgentError {
    /// Whether the host is not let in: the same attempt would fail again.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Registration(error) => error.is_final(),
            Self::Discovery(DiscoveryError::Unknown { .. }) | Self::Copy { .. } | Self::Expired { .. } => true,
            _ => false,
        }
    }
}

/// Runs until the token is cancelled.
pub async fn run(options: Options, stop: CancellationToken) -> Result<(), AgentError> {
    let state = StateDirectory::open(&options.state)?;
    let facts = facts::read(&options.root);
    let registered = check_identity(&options, &state, &facts)?;
    finish_reset(&options).await?;
    let Some(credentials) = unless_stopped(&stop, credentials(&options, &state)).await? else { return Ok(()) };
    if !registered {
        state.keep_identity(&Identity {
            name: options.name.clone(),
            namespace: options.namespace.clone(),
            machine_id: facts.machine_id.clone(),
            product_uuid: facts.product_uuid.clone(),
        })?;
    }
    let session = Session::open(&credentials.kubeconfig)
        .await
        .map_err(|source| AgentError::Host { name: options.name.clone(), source })?;
    if unless_stopped(&stop, ensure_host(&options, &session)).await?.is_none() {
        return Ok(());
    }
    state.drop_pending_key()?;
    tracing::info!(host = options.name, namespace = options.namespace, "the host is registered");
    let (renewals, current) = Current::new(session, credentials);
    let (held, holds) = watch::channel(false);
    let (seen, host) = watch::channel(None::<Option<ByoHost>>);
    let heartbeat = Heartbeat::new(current.clone(), &options.name, &facts.boot_id).run(held, stop.clone());
    let watching = watching::run(current.clone(), options.namespace.clone(), options.name.clone(), seen, stop.clone());
    let renewing = renew(&options, &state, &current, renewals, stop.clone());
    let gpus = if options.device_plugin { facts.gpus.clone() } else { Vec::new() };
    let offering = device_plugin::run(options.root.clone(), gpus, stop.clone());
    let working = work::run(&options, facts, current.clone(), host, holds, stop.clone());
    let ((), (), (), (), done) = tokio::join!(heartbeat, watching, renewing, offering, working);
    done
}

/// The result of the future, unless the agent is stopped before.
async fn unless_stopped<T, E>(
    stop: &CancellationToken,
    future: impl Future<Output = Result<T, E>>,
) -> Result<Option<T>, E> {
    tokio::select! {
        () = stop.cancelled() => Ok(None),
        done = future => done.map(Some),
    }
}

/// Whether this machine has registered before; an error when another one did.
fn check_identity(options: &Options, state: &StateDirectory, facts: &HostFacts) -> Result<bool, AgentError> {
    let Some(identity) = state.identity()? else { return Ok(false) };
    if identity.name != options.name {
        let (registered, name) = (identity.name, options.name.clone());
        return Err(AgentError::OtherName { state: options.state.clone(), registered, name });
    }
    let differs = |before: &str, now: &str| !before.is_empty() && !now.is_empty() && before != now;
    let pairs = [(identity.machine_id, &facts.machine_id), (identity.product_uuid, &facts.product_uuid)];
    match pairs.into_iter().find(|(before, now)| differs(before, now)) {
        Some((registered, present)) => {
            Err(AgentError::Copy { state: options.state.clone(), registered, present: present.clone() })
        }
        None => Ok(true),
    }
}

/// Finishes a reset that had begun: it needs no API server, and the host is clean the sooner.
async fn finish_reset(options: &Options) -> Result<(), AgentError> {
    let (root, state) = (options.root.clone(), options.state.clone());
    let reset = move || {
        let mut executor = Executor::new(&root, &state)?;
        if executor.journal()?.resetting { executor.reset() } else { Ok(()) }
    };
    if let Ok(Err(error)) = tokio::task::spawn_blocking(reset).await {
        if matches!(error, ExecutorError::Journal(_)) {
            return Err(error.into());
        }
        tracing::warn!(error = crate::executor::describe(&error), "the reset that had begun is not finished yet");
    }
    Ok(())
}

/// The existing credentials, or new ones.
async fn credentials(options: &Options, state: &StateDirectory) -> Result<Credentials, AgentError> {
    let now = Timestamp::now().as_second();
    match (state.credentials()?, &options.entry) {
        (Some(credentials), entry) if !credentials.is_expired(now) => {
            if entry.is_some() {
                tracing::info!("the host is registered already: the token of the command line is not used");
            }
            Ok(credentials)
        }
        (Some(credentials), None) => {
            let at = Timestamp::from_second(credentials.validity.1).unwrap_or_default();
            Err(AgentError::Expired { path: state.kubeconfig_path(), at })
        }
        (None, None) => Err(AgentError::NoEntry),
        (_, Some(entry)) => register(options, state, entry).await,
    }
}

/// Requests a certificate until it is issued or finally denied.
async fn register(options: &Options, state: &StateDirectory, entry: &Entry) -> Result<Credentials, AgentError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match try_register(options, state, entry).await {
            Err(error) if is_passing(&error) && attempt < ATTEMPTS => {
                tracing::warn!(error = crate::executor::describe(&error), "not registered yet");
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => {
                if error.is_refusal() {
                    // A later attempt with another token is another request.
                    state.drop_pending_key()?;
                }
                return Err(error);
            }
            Ok(credentials) => return Ok(credentials),
        }
    }
}

fn is_passing(error: &AgentError) -> bool {
    match error {
        AgentError::Discovery(DiscoveryError::Unreachable { .. }) => true,
        AgentError::Registration(RegistrationError::Session(error)) => {
            error.code().is_none_or(|code| code == 429 || code >= 500)
        }
        _ => false,
    }
}

async fn try_register(options: &Options, state: &StateDirectory, entry: &Entry) -> Result<Credentials, AgentError> {
    let (kubeconfig, server, ca, requestor) = match entry {
        Entry::Token { server, token, ca } => {
            let (id, _) = token.split_once('.').filter(|(id, secret)| is_token(id, secret)).ok_or(AgentError::Token)?;
            let ca = discovery::find(server, *ca).await?;
            let user = Some(format!("system:bootstrap:{id}"));
            (token_kubeconfig(server, &ca, token), server.clone(), ca, Requestor { user, title: id.to_owned() })
        }
        Entry::Kubeconfig(path) => {
            let text = tokio::fs::read_to_string(path)
                .await
                .map_err(|source| AgentError::File { path: path.clone(), source })?;
            let (server, ca) = cluster_of(&text, path)?;
            (text, server, ca, Requestor { user: None, title: format!("of {}", path.display()) })
        }
    };
    let session = Session::open(&kubeconfig).await.map_err(RegistrationError::from)?;
    let key = state.pending_key()?;
    tracing::info!(host = options.name, server, "asks for a certificate");
    let certificate = registration::certificate(&session, &options.name, &key, &requestor).await?;
    Ok(state.keep(&server, &ca, &certificate, &key)?)
}

fn is_token(id: &str, secret: &str) -> bool {
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    id.len() == 6 && secret.len() == 16 && is_word(id) && is_word(secret)
}

fn token_kubeconfig(server: &str, ca: &str, token: &str) -> String {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: \"{server}\", \
         certificate-authority-data: {ca}}}}}]\nusers: [{{name: c, user: {{token: \"{token}\"}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
    )
}

/// Server and CA of a kubeconfig.
fn cluster_of(kubeconfig: &str, path: &std::path::Path) -> Result<(String, String), AgentError> {
    use base64::Engine as _;
    let unusable = |problem: &str| {
        AgentError::Credentials(CredentialsError::Unusable { path: path.to_owned(), problem: problem.to_owned() })
    };
    let read = kube::config::Kubeconfig::from_yaml(kubeconfig).map_err(|error| unusable(&error.to_string()))?;
    let cluster =
        read.clusters.into_iter().find_map(|one| one.cluster).ok_or_else(|| unusable("it names no cluster"))?;
    let server = cluster.server.ok_or_else(|| unusable("it names no server"))?;
    let ca = match (cluster.certificate_authority_data, cluster.certificate_authority) {
        (Some(data), _) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(data);
            bytes
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(|| unusable("its CA is not base64"))?
        }
        (None, Some(file)) => {
            std::fs::read_to_string(&file).map_err(|source| AgentError::File { path: file.into(), source })?
        }
        (None, None) => return Err(unusable("it names no certificate authority")),
    };
    Ok((server, ca))
}

/// Creates the ByoHost unless it is there.
async fn ensure_host(options: &Options, session: &Session) -> Result<(), AgentError> {
    let failed = |source| AgentError::Host { name: options.name.clone(), source };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let error = match try_ensure_host(options, session).await {
            Ok(()) => return Ok(()),
            Err(error) if error.code() == Some(404) => return Err(AgentError::NoKind(options.namespace.clone())),
            Err(error) => error,
        };
        // An agent with credentials waits for its server as long as it takes; a missing right is reported.
        let is_refused = matches!(error.code(), Some(400..=499)) && error.code() != Some(429);
        if is_refused && attempt >= CREATE_ATTEMPTS {
            return Err(failed(error));
        }
        if attempt == 1 || attempt % CREATE_ATTEMPTS == 0 {
            tracing::warn!(%error, "the host is not registered yet");
        }
        tokio::time::sleep(RETRY.min(Duration::from_millis(500) * attempt)).await;
    }
}

async fn try_ensure_host(options: &Options, session: &Session) -> Result<(), SessionError> {
    let object = serde_json::json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ByoHost",
        "metadata": {"name": options.name, "namespace": options.namespace, "labels": options.labels},
        "spec": {},
    });
    // The right to read it comes when it is there.
    match session.create::<serde::de::IgnoredAny>(&hosts(&options.namespace), &object).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some(409) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The path of the ByoHosts of a namespace.
pub(crate) fn hosts(namespace: &str) -> String {
    format!("/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/{namespace}/byohosts")
}

/// Renews the certificate with itself, long before it ends.
async fn renew(
    options: &Options,
    state: &StateDirectory,
    current: &Current,
    renewals: watch::Sender<(Session, Credentials)>,
    stop: CancellationToken,
) {
    loop {
        if current.credentials().renew_at(&options.name) <= Timestamp::now().as_second() {
            match try_renew(options, state, current).await {
                Ok(next) => {
                    tracing::info!("the certificate is renewed");
                    renewals.send_replace(next);
                }
                Err(error) => {
                    tracing::warn!(error = crate::executor::describe(&error), "the certificate is not renewed yet");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_AT_CERTIFICATE) => {}
        }
    }
}

async fn try_renew(
    options: &Options,
    state: &StateDirectory,
    current: &Current,
) -> Result<(Session, Credentials), AgentError> {
    let kubeconfig = state.kubeconfig_path();
    let (server, ca) = cluster_of(&current.credentials().kubeconfig, &kubeconfig)?;
    let key: Key = state.pending_key()?;
    let user = format!("{USER}{}", options.name);
    let requestor = Requestor { user: Some(user.clone()), title: user };
    let certificate = registration::certificate(&current.session(), &options.name, &key, &requestor).await;
    if certificate.as_ref().is_err_and(RegistrationError::is_final) {
        state.drop_pending_key()?;
    }
    let next = state.keep(&server, &ca, &certificate?, &key)?;
    state.drop_pending_key()?;
    let session = Session::open(&next.kubeconfig).await.map_err(RegistrationError::from)?;
    Ok((session, next))
}
