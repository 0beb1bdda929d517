//! A whole embedded API in one call: store, certificates, listener, life cycles.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::auth::Identity;
use crate::clock::Clock;
use crate::lifecycle::{self, LifecycleOptions};
use crate::pki::{self, Pki, PkiError};
use crate::serve::{self, Limits};
use crate::server::{ApiService, Server, ServerOptions};
use crate::status::ApiError;
use crate::store::log::{Directory, OpenError};
use crate::store::{Store, StoreOptions};

/// How to run an embedded API.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Where the store, the certificates and the kubeconfig live.
    pub directory: PathBuf,
    /// Keep objects in memory only.
    pub memory: bool,
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// Life cycles to run.
    pub lifecycle: LifecycleOptions,
    /// Settings of the server.
    pub server: ServerOptions,
    /// Settings of the store.
    pub store: StoreOptions,
}

impl EmbeddedOptions {
    /// The usual settings: durable, loopback, all life cycles.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            memory: false,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            lifecycle: LifecycleOptions { controllers: true },
            server: ServerOptions::default(),
            store: StoreOptions::default(),
        }
    }
}

/// Why an embedded API did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error("cannot open the store")]
    Store(#[from] OpenError),
    /// Keys or certificates cannot be used.
    #[error("cannot prepare the certificates")]
    Pki(#[from] PkiError),
    /// The port cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The audit log cannot be written.
    #[error("cannot open the audit log")]
    Audit(#[source] std::io::Error),
    /// The first objects cannot be created.
    #[error("cannot create the first objects")]
    Bootstrap(#[from] ApiError),
}

/// A running embedded API.
#[derive(Debug)]
pub struct Embedded {
    server: Arc<Server>,
    address: SocketAddr,
    kubeconfig: PathBuf,
    stop: CancellationToken,
    serving: JoinHandle<()>,
    living: JoinHandle<()>,
    /// Holds the directory where no store does.
    _lock: Option<Directory>,
}

impl Embedded {
    /// Starts everything; when this returns, requests are answered.
    pub async fn start(options: EmbeddedOptions) -> Result<Self, StartError> {
        let clock = Clock::System;
        let (store, lock) = if options.memory {
            // There is no store to lock, but two servers must not overwrite each other's kubeconfig and keys.
            let lock = Directory::lock(&options.directory)?;
            // Microseconds rise faster than revisions do, so a client that resumes from a revision of the process
            // before lists anew instead of taking what happened since for what it has missed.
            (Store::in_memory_from(clock.unix_ms() * 1000, clock), Some(lock))
        } else {
            (Store::open(&options.directory, options.store.clone(), clock)?, None)
        };
        let wanted = SocketAddr::new(options.address, options.port);
        let listen_error = |source| StartError::Listen { address: wanted, source };
        let listener = TcpListener::bind(wanted).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let pki = certificates(&options.directory, address.ip(), clock.now())?;
        let kubeconfig = options.directory.join("kubeconfig");

        let token_signer = Some(pki.token_signer());
        let server_options = ServerOptions {
            advertised_address: address.to_string(),
            token_signer,
            authority: Some(pki.authority()),
            ..options.server
        };
        let server = Server::new(store, clock, server_options).map_err(StartError::Audit)?;
        let administrator = Identity::administrator("admin");
        server
            .tokens()
            .add(pki.admin_token().to_owned(), administrator)
            .map_err(|source| PkiError::Secret { path: options.directory.join("pki/admin.token"), source })?;
        lifecycle::bootstrap::run(&server, address.port()).await?;
        let url = format!("https://{}", SocketAddr::new(reachable(address.ip()), address.port()));
        lifecycle::bootstrap::describe_cluster(&server, &url, pki.ca_pem()).await?;

        let stop = CancellationToken::new();
        let living = tokio::spawn(lifecycle::run(server.clone(), options.lifecycle));
        let (tls, limits) = (Arc::new(pki.tls_config()?), Limits::default());
        let serving = tokio::spawn(serve::serve(server.clone(), listener, tls, limits, stop.clone()));
        pki::write_secret(&kubeconfig, &pki.kubeconfig(&url))?;
        tokio::spawn(renew_certificates(Arc::new(pki), clock, stop.clone()));
        Ok(Self { server, address, kubeconfig, stop, serving, living, _lock: lock })
    }

    /// The server behind the listener.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The API as an administrator inside this process sees it.
    pub fn service(&self) -> ApiService {
        self.server.service_for(Identity::administrator("system:millpond"))
    }

    /// The API as another identity inside this process sees it.
    pub fn service_for(&self, identity: Identity) -> ApiService {
        self.server.service_for(identity)
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Ends watches, lets requests end, closes the store.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.serving.await;
        let _ = self.living.await;
        self.server.store().close().await;
    }
}

/// How often certificates are looked at: they are due for a third of a year.
const RENEWAL_CHECK: Duration = Duration::from_secs(12 * 3600);

/// Replaces the server's certificate before it ends, until the server stops.
async fn renew_certificates(pki: Arc<Pki>, clock: Clock, stop: CancellationToken) {
    let mut checks = tokio::time::interval(RENEWAL_CHECK);
    loop {
        tokio::select! {
            _ = checks.tick() => {}
            () = stop.cancelled() => return,
        }
        match pki.renew_if_due(clock.now()) {
            Ok(true) => tracing::info!("renewed the server's certificate"),
            Ok(false) => {}
            Err(problem) => tracing::error!(%problem, "cannot renew the server's certificate"),
        }
    }
}

/// The address that a client on this machine uses for a listener.
fn reachable(address: IpAddr) -> IpAddr {
    if address.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address }
}

fn certificates(directory: &Path, address: IpAddr, now: Timestamp) -> Result<Pki, PkiError> {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))];
    if !address.is_unspecified() && !addresses.contains(&address) {
        addresses.push(address);
    }
    Pki::load_or_make(&directory.join("pki"), &names, &addresses, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn certificates_are_renewed_while_the_server_runs() {
        let clock = Clock::virtual_from("2026-11-18T12:00:00Z".parse().unwrap());
        let pki = Arc::new(Pki::ephemeral(&[], &[], clock.now()).unwrap());
        let stop = CancellationToken::new();
        let renewing = tokio::spawn(renew_certificates(pki.clone(), clock, stop.clone()));
        tokio::time::sleep(Duration::from_secs(300 * 86_400)).await;
        assert!(!pki.renew_if_due(clock.now()).unwrap(), "it was renewed when it was due");
        stop.cancel();
        renewing.await.unwrap();
    }
}
